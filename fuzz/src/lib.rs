//! A small cluster in its first view, which the targets attack.

pub mod cluster;
