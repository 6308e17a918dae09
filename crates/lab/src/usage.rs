//! Errors of the parameters that a caller gives to the lab.

use crate::checker::CheckSpecError;
use crate::comparison::choose;
use crate::simulator::delay::MatrixError;
use crate::simulator::runner::Error;
use crate::simulator::scenario::ScenarioError;
use crate::simulator::spec::MOST_SITES;
use crate::simulator::time::Time;
use lockkeeper_core::registry::PresentName;
use lockkeeper_core::settings::OptionsError;
use lockkeeper_core::sharing::HolderError;
use lockkeeper_core::{Sharing, SiteId};

/// The reason why the parameters of a run, a check or a comparison are invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UsageError {
    /// There is no algorithm of this name.
    #[error("there is no algorithm '{name}'{}", PresentName(name))]
    UnknownAlgorithm {
        /// The name.
        name: String,
    },
    /// There is no algorithm for registers of this name.
    #[error("there is no algorithm '{name}' for registers")]
    UnknownProgram {
        /// The name.
        name: String,
    },
    /// There is no election of this name.
    #[error("there is no election '{name}'{}", Known(known))]
    UnknownElection {
        /// The name.
        name: String,
        /// The names of the elections; empty if the error does not list them.
        known: Vec<&'static str>,
    },
    /// There is no counterexample of this name.
    #[error("there is no exhibit '{name}'")]
    UnknownExhibit {
        /// The name.
        name: String,
    },
    /// The checker does not find a counterexample of this name.
    #[error("the checker does not find '{name}'")]
    NotFound {
        /// The name.
        name: String,
    },
    /// A counterexample is one of whole clusters, which this crate does not search.
    #[error("'{name}' is a failure of whole clusters: lockkeeper-cluster-lab searches for it")]
    FailureOfClusters {
        /// The name.
        name: String,
    },
    /// The system has no site, or too many.
    #[error("a system has between 1 and {MOST_SITES} sites, and {sites} were asked for")]
    Sites {
        /// The number of sites.
        sites: usize,
    },
    /// The algorithm rejects its settings.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The delay matrix does not fit the system.
    #[error(transparent)]
    Matrix(#[from] MatrixError),
    /// The duration of the critical section is a matrix.
    #[error("the time in the critical section cannot be a matrix")]
    MatrixAsDuration,
    /// Messages take no time, and the token of the algorithm never rests.
    #[error("a token that never rests would circle for ever in no time: give the delay more than 0")]
    TokenWithoutDelay,
    /// No entry is measured.
    #[error("at least one entry must be measured")]
    NoEntries,
    /// The script names a site that does not exist.
    #[error("at {at} T: there is no site {site}: sites are numbered from 1 to {sites}")]
    UnknownSiteAt {
        /// The time of the action.
        at: Time,
        /// The site.
        site: SiteId,
        /// The number of sites.
        sites: usize,
    },
    /// There is no such site.
    #[error("there is no site {site}: sites are numbered from 1 to {sites}")]
    UnknownSite {
        /// The site.
        site: SiteId,
        /// The number of sites.
        sites: usize,
    },
    /// A holder at the start is not one of the sites.
    #[error("a site that starts inside must be one of the sites")]
    UnknownHolder,
    /// The holders at the start cannot be inside together.
    #[error(transparent)]
    Holders(#[from] HolderError),
    /// Requests are shared, and the algorithm has no shared mode.
    #[error("there are no readers here: {algorithm} is {sharing}")]
    NotShared {
        /// The name of the algorithm.
        algorithm: String,
        /// The kind of lock that it is.
        sharing: Sharing,
    },
    /// Clocks are set at the start, and the algorithm has none.
    #[error("'clock' sets Lamport clocks at the start, and {algorithm} has none")]
    NoClocks {
        /// The name of the algorithm.
        algorithm: String,
    },
    /// The scenario is invalid.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A run has too many processes to be recorded.
    #[error("a recorded run has at most {most} processes, not {processes}")]
    RecordedProcesses {
        /// The maximum.
        most: usize,
        /// The number of processes.
        processes: usize,
    },
    /// The system cannot be checked.
    #[error(transparent)]
    Check(#[from] CheckSpecError),
    /// The checker does not take so many processes.
    #[error("the checker takes at most {most} processes")]
    CheckedProcesses {
        /// The maximum.
        most: usize,
    },
    /// TLA+ does not permit the name of a module.
    #[error("a TLA+ module is named with letters, digits and _, and starts with a letter: '{name}' is none")]
    ModuleName {
        /// The name.
        name: String,
    },
    /// A system has too many states for a TLA+ module.
    #[error(
        "the system has more than {most} states, which is too many for a TLA+ module: use fewer sites or requests"
    )]
    LargeModule {
        /// The limit.
        most: usize,
    },
    /// Elections are not written as TLA+ modules.
    #[error("'{algorithm}' is an election: TLA+ modules are made of mutual exclusion algorithms")]
    NotAModule {
        /// The name of the algorithm.
        algorithm: String,
    },
    /// The highest ticket is out of range.
    #[error("the highest ticket is between 1 and {most}, not {tickets}")]
    Tickets {
        /// The maximum.
        most: u8,
        /// The highest ticket.
        tickets: u8,
    },
    /// The highest ticket is set for an algorithm whose tickets are bounded.
    #[error("'tickets' cannot be used with '{algorithm}': its tickets are bounded, or it has none")]
    NoTickets {
        /// The name of the algorithm.
        algorithm: &'static str,
    },
    /// Advice is not given for this number of sites.
    #[error("advice is given for 2 to {} sites, not for {sites}", choose::MOST_SITES)]
    AdviceSites {
        /// The number of sites.
        sites: usize,
    },
    /// All sites may crash.
    #[error("{failures} of {sites} sites may crash: at least one must stay")]
    AllCrash {
        /// The number of sites that may crash.
        failures: usize,
        /// The number of sites.
        sites: usize,
    },
    /// A comparison has nothing to compare.
    #[error("a comparison needs an algorithm, a number of sites, a load and a seed")]
    EmptyComparison,
    /// A setting applies to none of the compared algorithms.
    #[error("none of these algorithms takes the setting '{name}'")]
    UnusedSetting {
        /// The name of the setting.
        name: String,
    },
}

/// The list of the known names, as the end of a sentence.
struct Known<'a>(&'a [&'static str]);

impl std::fmt::Display for Known<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ": there is {}", self.0.join(", ")) }
    }
}

impl From<UsageError> for Error {
    fn from(error: UsageError) -> Self {
        Self::Usage(error)
    }
}
