//! The part of etcd's gRPC API that lockkeeper serves (locks, leases, elections) and uses (keys, transactions, watches, leases).
//!
//! The definitions in `proto/` have etcd's package names, field numbers and types, and those alone go over the wire. Messages and fields
//! that neither side uses are left out: a receiver skips fields that it does not know.
//!
//! Feature `client` generates clients, feature `server` the services' traits.

#![allow(missing_docs, clippy::all, reason = "generated from the definitions")]

/// Keys with their values, and their changes.
pub mod mvccpb {
    tonic::include_proto!("mvccpb");
}

/// The store, watches, leases and authentication.
pub mod etcdserverpb {
    tonic::include_proto!("etcdserverpb");
}

/// Locks.
pub mod v3lockpb {
    tonic::include_proto!("v3lockpb");
}

/// Elections.
pub mod v3electionpb {
    tonic::include_proto!("v3electionpb");
}
