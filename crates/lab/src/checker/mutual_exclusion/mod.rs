//! Mutual exclusion algorithms as models for the explorer.
//!
//! | module | contents |
//! |---|---|
//! | [`machine`] | the interface of a system of machines that exchange messages |
//! | [`mutex`] | mutual exclusion algorithms as machines |
//! | [`kernel`] | local states and messages as small integers, each local step computed once |
//! | [`net`] | global states: machines and channels as rows of integers |
//! | `expand`, `entering` | the successors of a state, and the properties of an entry |
//! | [`seen`] | coverage and maxima of a search |
//! | [`reduce`] | partial-order reduction |
//! | [`shift`] | normalisation of clocks and sequence numbers |
//! | [`symmetry`] | states up to the names of the sites and the distances of timestamps |

mod entering;
mod expand;
pub mod kernel;
pub mod machine;
pub mod mutex;
pub mod net;
pub mod reduce;
pub mod seen;
pub mod shift;
pub mod symmetry;
