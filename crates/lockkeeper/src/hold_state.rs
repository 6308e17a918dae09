//! [`HoldState`]: whether a hold is safe, in jeopardy, or lost.

use crate::Loss;

/// The state of a hold.
///
/// ```text
///            a renewal fails                    no renewal succeeds in time
///   Held ───────────────────────▶ Jeopardy ───────────────────────────────▶ Lost
///     ▲                              │                                        ▲
///     └──────────────────────────────┘           revoked, or ended by the server
///            a renewal succeeds
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldState {
    /// The hold is valid, and its last renewal succeeded.
    Held,
    /// The hold is valid, and its last renewal failed, for this reason: the connection is lost, or the server does not
    /// answer. [`Guard::valid_for`](crate::Guard::valid_for) is the time that is left. The next renewal, perhaps through
    /// another server or member, ends the jeopardy.
    Jeopardy(String),
    /// The hold is lost.
    Lost(Loss),
}
