//! The view change in every order of events: whole members of a cluster, with crashes, restarts, pauses and changes of
//! the leader.
//!
//! The members are the code that real drivers run, unchanged. The model of their environment is simplified, so that all
//! states can be searched:
//! - There is one lock. Each member has one client, which receives a grant at once and may use the lock while its
//!   member's lease is valid.
//! - Time passes in units, for all members at once. A renewal is due after one unit, a member is suspected after
//!   two, and a lease lasts four. All members that are awake tick in each unit. The number of units is bounded.
//!   Clocks do not drift unless [`Bounds::fast`] is set.
//! - A renewal, its reply, a request to join and a plain acknowledgement are delivered at once. They are lost if the
//!   receiver is paused or has crashed.
//! - All other frames are delivered in any order, at any time, at most once. A retransmission of a frame in transit
//!   does not add a second copy.
//! - The voters decide at once if a majority with the leader is awake, and notify each member at any later time.
//! - With a [`Holder`], one more client holds the lock through a session at the last member, and runs the state machine
//!   of the library. It sends to any member, its messages are relayed at once, and the answers arrive in any order, at
//!   any time, at most once. A newer answer of a kind replaces an older one from the same member. Writes to the table of
//!   recorded holds are applied in any order, at any time, at most once. The other clients are in the processes of their
//!   members. A lease lasts two units, the time to live of the hold is six.
//! - Crashes, restarts, pauses, elections, requests and views have budgets: see [`Bounds`].

mod bounds;
pub mod bug_switches;
mod error;
mod explorer;
mod forced_steps;
mod holder;
mod observer;
mod sentences;
mod tables;
mod voters;
mod world;

pub use bounds::{Bounds, Holder};
pub use error::ViewsError;
pub use explorer::{SearchResult, ViolatingRun};

use lockkeeper_core::algorithms::{naimi_trehel::NaimiTrehel, ricart_agrawala::RicartAgrawala};
use lockkeeper_lab::checker::explore::SearchProgress;
use lockkeeper_member::BugSwitch;

/// Searches all states that a cluster can reach within these bounds. `go_on` receives the progress and may end the
/// search.
///
/// One token-based and one permission-based algorithm are enough: members treat every other algorithm like one of
/// these two.
pub fn check(
    algorithm: &str,
    bounds: Bounds,
    bug: Option<BugSwitch>,
    go_on: impl FnMut(SearchProgress) -> bool,
) -> Result<SearchResult, ViewsError> {
    match algorithm {
        "naimi-trehel" => explorer::search::<NaimiTrehel>(bounds, bug, go_on),
        "ricart-agrawala" => explorer::search::<RicartAgrawala>(bounds, bug, go_on),
        other => Err(ViewsError::Algorithm { algorithm: other.into() }),
    }
}
