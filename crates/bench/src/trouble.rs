//! What can go wrong, as sentences.

use std::fmt;

/// Why a bench ended early.
#[derive(Debug)]
pub enum Trouble {
    /// Exclusivity was violated.
    Violated {
        /// Which engine.
        engine: String,
        /// Under which workload.
        workload: String,
        /// A sentence.
        what: String,
    },
    /// Programs are missing: for each engine, what it needs and which Debian package has it.
    Missing(Vec<Missing>),
    /// Something else.
    Failed(String),
}

/// A program that is not on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Who needs it.
    pub engine: String,
    /// Its name.
    pub program: String,
    /// The Debian package that has it.
    pub package: &'static str,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} needs {} (Debian: apt-get install {})", self.engine, self.program, self.package)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Violated { engine, workload, what } => {
                write!(f, "{engine} does not exclude: in {workload}, {what}; no figure of it counts")
            }
            Trouble::Missing(missing) => {
                let each: Vec<String> = missing.iter().map(ToString::to_string).collect();
                f.write_str(&each.join("; "))
            }
            Trouble::Failed(why) => f.write_str(why),
        }
    }
}

impl From<String> for Trouble {
    fn from(why: String) -> Self {
        Trouble::Failed(why)
    }
}
