//! What only a cluster of lockkeeper's own daemons can be asked, for those who run it.

pub use crate::engine::cluster::{Operator, probe};
pub use lockkeeper_wire::{ClusterLine, MemberLine};
