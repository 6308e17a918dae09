//! End-to-end tests of the commands that every build has.

mod hold;
mod other_commands;
mod run;
mod shared_directory;
