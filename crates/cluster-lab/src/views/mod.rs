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

mod bounds;
mod calm;
mod explorer;
pub mod gallery;
mod tables;
mod telling;
mod voters;
mod watcher;
mod world;

pub use bounds::Bounds;
pub use explorer::{Answer, Wrong};

use lockkeeper_core::algorithms::{naimi_trehel::NaimiTrehel, ricart_agrawala::RicartAgrawala};
use lockkeeper_lab::check::Sofar;
use lockkeeper_member::Flaw;

/// Searches every state that a cluster can reach within these bounds. `go_on` is told how far it is, and may end the search.
///
/// One algorithm with a token and one with permissions are enough: members treat all others in one of these two ways.
pub fn check(
    algorithm: &str,
    bounds: Bounds,
    flaw: Option<Flaw>,
    go_on: impl FnMut(Sofar) -> bool,
) -> Result<Answer, String> {
    match algorithm {
        "naimi-trehel" => explorer::search::<NaimiTrehel>(bounds, flaw, go_on),
        "ricart-agrawala" => explorer::search::<RicartAgrawala>(bounds, flaw, go_on),
        other => Err(format!(
            "whole clusters are checked with naimi-trehel or ricart-agrawala, not with '{other}'"
        )),
    }
}
