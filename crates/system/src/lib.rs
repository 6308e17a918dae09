//! Access to the machine's clock and ports, shared by several crates.
//!
//! | module | contents |
//! |---|---|
//! | [`lease_clock`] | the clock that leases are counted on |
//! | [`ports`] | ports that no other process gets |

pub mod lease_clock;
pub mod ports;
