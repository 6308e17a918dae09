//! The view change in every order: whole members of a cluster, crashes, restarts, sleep, and another leader.
//!
//! The members are the code that real drivers run, unchanged. What is left out, so that all of it can be searched:
//! - one lock, one client at each member, which is told of a grant at once, and may use the lock while its member's lease runs;
//! - time goes in units, for all at once: clocks do not drift here. A renewal is one unit, a silence two, a lease four. When a
//!   unit passes, whoever is awake ticks. There is a last unit;
//! - a renewal, its answer, a wish to join and a mere acknowledgement arrive at once, or never: if whoever should hear it
//!   sleeps or has crashed;
//! - all other frames arrive in any order, at any time, once or never; sent again, the same frame is one frame;
//! - the voters decide at once, if the leader has a majority that is awake, and tell each member whenever they like;
//! - crashes, restarts, sleeps, elections, wishes and views have budgets: see [`Bounds`].

mod explorer;
mod tables;
mod voters;
mod watcher;
mod world;

pub use explorer::{Answer, Bounds, check};
pub use world::Action;
