//! End-to-end tests of daemons, of engines with servers, and of generated files.

mod generate;
mod join;
mod no_majority;
mod on_daemon;
mod on_redis;
mod on_servers;
mod operator;
mod outlives;
mod three_daemons;
