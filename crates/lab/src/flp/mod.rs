//! The impossibility of consensus with one crash (Fischer, Lynch, Paterson 1985), shown on small protocols.
//!
//! No protocol is safe, tolerates one crash and ends in every run. Each of the two protocols here is safe and lacks one
//! of the other two. Every claim of the lesson is computed from the graph of all configurations.
//!
//! | module | contents |
//! |---|---|
//! | [`protocol`] | a consensus protocol as a pure state machine; configurations and events |
//! | [`rounds`] | a protocol that one crash does not block, and that need not end |
//! | [`wait_for_all`] | a protocol that ends, and that one crash blocks |
//! | [`explore`] | the graph of all configurations; valence, commutativity, decisions without a process |
//! | [`mod@lesson`] | the three lemmas for a protocol, in sentences |
//! | [`adversary`] | a fair run without a decision, chosen step by step |

pub mod adversary;
pub mod explore;
pub mod lesson;
pub mod protocol;
pub mod rounds;
pub mod wait_for_all;

pub use adversary::AdversaryStep;
pub use lesson::{Lesson, Section, lesson};

/// The names of the protocols, in the order of the lesson.
pub const PROTOCOLS: [&str; 2] = ["wait-for-all", "rounds"];
