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

/// The messages of keys with their values, and of their changes.
pub mod mvccpb {
    include!("../generated/mvccpb.rs");
}

/// The messages and services of the key-value store, watches, leases and authentication.
pub mod etcdserverpb {
    include!("../generated/etcdserverpb.rs");
}

/// The messages and the service of locks.
pub mod v3lockpb {
    include!("../generated/v3lockpb.rs");
}

/// The messages and the service of elections.
pub mod v3electionpb {
    include!("../generated/v3electionpb.rs");
}
