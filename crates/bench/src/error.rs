//! The errors of a bench.

use std::fmt;

/// The reason why a bench ended early.
#[derive(Debug)]
pub enum BenchError {
    /// Mutual exclusion was violated.
    Violated {
        /// The engine.
        engine: String,
        /// The workload.
        workload: String,
        /// A description of the violation.
        what: String,
    },
    /// Programs are missing: for each engine, the required program and its Debian package.
    Missing(Vec<Missing>),
    /// Another failure.
    Failed(String),
}

/// A program that is not installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The engine that needs it.
    pub engine: String,
    /// The name of the program.
    pub program: String,
    /// The Debian package that contains it.
    pub package: &'static str,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} needs {} (Debian: apt-get install {})", self.engine, self.program, self.package)
    }
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BenchError::Violated { engine, workload, what } => {
                write!(f, "{engine} violated mutual exclusion in {workload}: {what}; its figures are void")
            }
            BenchError::Missing(missing) => {
                let each: Vec<String> = missing.iter().map(ToString::to_string).collect();
                f.write_str(&each.join("; "))
            }
            BenchError::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for BenchError {}

impl From<String> for BenchError {
    fn from(why: String) -> Self {
        BenchError::Failed(why)
    }
}
