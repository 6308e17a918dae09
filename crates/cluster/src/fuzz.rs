//! Entry points for fuzzing. Each function decodes its input as a member does and panics if a property does not hold.
//!
//! The targets are in `/fuzz`. The tests below run the same functions on the seeds and on random mutations of them.

pub use crate::consensus::fuzz as consensus;
pub use crate::net::fuzz as net;

#[cfg(test)]
mod tests {
    use lockkeeper_testbed::mutation;

    #[test]
    fn bytes_of_a_connection_never_panic_and_memory_is_bounded_by_them() {
        mutation::run(&super::net::seeds(), super::net::connection);
    }

    #[test]
    fn queries_about_consensus_never_panic() {
        mutation::run(&super::consensus::seeds(), super::consensus::message);
    }
}
