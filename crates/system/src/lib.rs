//! What several crates need of the machine.
//!
//! | module | contents |
//! |---|---|
//! | [`lease_clock`] | the clock that leases are counted on |
//! | [`ports`] | ports that no other process gets |

pub mod lease_clock;
pub mod ports;
