//! End-to-end tests of the commands that every build has.

mod other_commands;
mod run;
