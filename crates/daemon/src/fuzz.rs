//! Entry points for fuzzing. Each function parses its input as the daemon does and panics if a property does not
//! hold.
//!
//! The targets are in `/fuzz`, with seeds in `/fuzz/seeds`. The tests below run the same functions on the seeds and
//! random mutations of them.

use crate::access::{self, Permission};
use crate::config::Config;
use std::path::Path;

/// Parses the body of an HTTP request.
pub fn http_body(bytes: &[u8]) {
    crate::http::fuzz::body(bytes);
}

/// Decodes a gRPC message.
pub fn grpc_message(bytes: &[u8]) {
    crate::etcd::fuzz::message(bytes);
}

/// Parses a configuration file. One that is accepted passes its own checks.
pub fn configuration(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Config::parse(text, Path::new("/etc/lockkeeper")) {
        Ok(config) => config.check().expect("a configuration that was accepted is valid"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Parses a token file. Only the empty prefix may allow every lock.
pub fn tokens(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match access::parse(text) {
        Ok(known) => {
            for principal in known.values() {
                for permission in [Permission::Acquire, Permission::Observe, Permission::Admin] {
                    let every = principal.prefixes(permission).iter().any(String::is_empty);
                    let checked = principal.check(permission, "");
                    assert!(every || checked.is_err(), "only the empty prefix allows every lock");
                }
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_testbed::mutation;

    /// Runs a target on its seeds and on random mutations of them.
    fn run(name: &str, target: fn(&[u8])) {
        let folder = format!("{}/../../fuzz/seeds/{name}", env!("CARGO_MANIFEST_DIR"));
        let files = std::fs::read_dir(&folder).expect("the target has seeds");
        let mut seeds: Vec<Vec<u8>> =
            files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
        seeds.sort();
        assert!(seeds.len() >= 3, "{name} has too few seeds");
        mutation::run(&seeds, target);
    }

    #[test]
    fn http_bodies_never_panic() {
        run("http_body", super::http_body);
    }

    #[test]
    fn grpc_messages_never_panic() {
        run("grpc_message", super::grpc_message);
    }

    #[test]
    fn configuration_files_never_panic() {
        run("configuration", super::configuration);
    }

    #[test]
    fn token_files_never_panic() {
        run("tokens", super::tokens);
    }
}
