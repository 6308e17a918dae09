//! Servers whose clock is wrong.

use crate::servers;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use tempfile::TempDir;

/// A library that sets the wall clock of a process five seconds ahead. Servers load it before their first reading of
/// the clock, as long as this exists.
///
/// The program `faketime` would be the parent of the server, which would continue after it was killed, and it leaves
/// files in `/dev/shm`; and its library does not agree with the allocator of redis-server.
pub struct FiveSecondsAhead(TempDir);

impl FiveSecondsAhead {
    /// Compiles the library. Without a C compiler, as [`servers::program`].
    pub fn new() -> Option<FiveSecondsAhead> {
        let compiler = servers::program("cc", &[], "gcc")?;
        let directory = tempfile::tempdir().expect("a temporary directory");
        // Servers run as users of their own.
        let readable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(directory.path(), readable).expect("its owner may do this");
        let source = directory.path().join("ahead.c");
        std::fs::write(&source, include_str!("five_seconds_ahead.c")).expect("it can be written");
        let library = FiveSecondsAhead(directory);
        let mut compile = Command::new(compiler);
        compile.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]).arg(library.path()).arg(&source);
        assert!(compile.status().expect("it starts").success(), "{compile:?}");
        Some(library)
    }

    fn path(&self) -> String {
        self.0.path().join("ahead.so").to_str().expect("the path is UTF-8").to_owned()
    }

    /// The variables in the environment of such a server.
    pub fn environment(&self) -> [(&'static str, String); 1] {
        [("LD_PRELOAD", self.path())]
    }
}
