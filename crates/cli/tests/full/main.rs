//! End-to-end tests of daemons beside the lab: `bench`, and simulated messages compared with those of a cluster.

mod bench;
mod wire;
