//! Operations that only a cluster of lockkeeper's own daemons offers, for its operators.

pub use crate::engine::cluster::{Operator, probe};
pub use lockkeeper_session::protocol::{ClusterLine, MemberLine};
