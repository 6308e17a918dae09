//! The part of etcd's gRPC API that lockkeeper serves (locks, leases, elections) and uses (keys, transactions, watches, leases).
//!
//! The definitions in `proto/` have etcd's package names, field numbers and types, and those alone go over the wire. Messages and fields
//! that neither side uses are left out: a receiver skips fields that it does not know.
//!
//! The code in `generated/` is made from them, and kept in the repository: generating it took longer than compiling the rest of the
//! crate's dependencies. `tests/generated.rs` fails if it is not what `proto/` gives.
//!
//! Feature `client` has the clients, feature `server` the services' traits.

#![allow(missing_docs, clippy::all, reason = "generated from the definitions")]

/// Keys with their values, and their changes.
pub mod mvccpb {
    include!("../generated/mvccpb.rs");
}

/// The store, watches, leases and authentication.
pub mod etcdserverpb {
    include!("../generated/etcdserverpb.rs");
}

/// Locks.
pub mod v3lockpb {
    include!("../generated/v3lockpb.rs");
}

/// Elections.
pub mod v3electionpb {
    include!("../generated/v3electionpb.rs");
}
