//! Entry points for fuzzing. Each function decodes its input as a member does and panics if a property does not hold.
//!
//! The targets are in `/fuzz`. The tests below run the same functions on the seeds and on random mutations of them.

pub use crate::net::fuzz as net;
#[cfg(feature = "fuzzing")]
pub use lockkeeper_consensus::fuzz as consensus;

#[cfg(test)]
mod tests {
    use lockkeeper_testbed::mutation;

    #[test]
    fn bytes_of_a_connection_never_panic_and_memory_is_bounded_by_them() {
        mutation::run(&super::net::seeds(), super::net::connection);
    }
}
