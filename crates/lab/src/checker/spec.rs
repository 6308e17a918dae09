//! The system to check, and the options of the check.

use super::mutual_exclusion::machine::{Fault, Faults};
use super::mutual_exclusion::symmetry::MOST_MACHINES;
use crate::algorithm::Algorithm;
use crate::checker::explore::SearchLimits;
use crate::checker::registers::{self, RegisterKind};
use crate::mutants;
use crate::property::Property;
use lockkeeper_core::mutex::Channels;
use lockkeeper_core::{Holder, registry};
use serde::Serialize;
use std::fmt;

/// The maximum number of processes (sites and helpers): each state stores one integer per channel.
pub const MOST_SITES: usize = 9;
/// The maximum number of requests per site.
pub const MOST_REQUESTS: u8 = 15;

/// The kinds of models that the explorer can check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelKind {
    /// Sites that exchange messages to exclude each other.
    MutualExclusion,
    /// Sites that elect a leader.
    Election,
    /// Processes that share registers.
    Registers,
}

impl ModelKind {
    /// The kind of the algorithm or mutant with this name.
    pub fn of(name: &str) -> Option<Self> {
        let mutex = registry::find(name).is_some() || mutants::ALL.iter().any(|mutant| mutant.name == name);
        let election = registry::find_election(name).is_some()
            || mutants::election::ALL.iter().any(|mutant| mutant.name == name);
        let registers = registers::ALL.iter().any(|about| about.slug == name);
        match (mutex, election, registers) {
            (true, _, _) => Some(Self::MutualExclusion),
            (_, true, _) => Some(Self::Election),
            (_, _, true) => Some(Self::Registers),
            _ => None,
        }
    }

    /// The properties that are checked in models of this kind.
    pub fn properties(self) -> &'static [Property] {
        match self {
            Self::MutualExclusion => &[
                Property::MutualExclusion,
                Property::NoDeadlock,
                Property::NoStarvation,
                Property::FenceMonotone,
                Property::Invariant,
                Property::TimestampOrder,
                Property::MessageBound,
            ],
            Self::Election => {
                &[Property::HighestLeads, Property::OneLeader, Property::Agreement, Property::Termination]
            }
            Self::Registers => &[
                Property::MutualExclusion,
                Property::NoDeadlock,
                Property::NoStarvation,
                Property::FirstComeFirstServed,
            ],
        }
    }
}

impl fmt::Display for ModelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MutualExclusion => "message-passing algorithms",
            Self::Election => "elections",
            Self::Registers => "algorithms for shared registers",
        })
    }
}

/// The system to check, and the options of the check. An option that does not apply to the algorithm is an
/// error, unless it has its default.
#[derive(Clone, Debug)]
pub struct CheckSpec {
    /// The name of the algorithm or of a mutant.
    pub algorithm: String,
    /// Number of sites that may request, or of processes that share registers.
    pub sites: usize,
    /// The algorithm's own settings.
    pub settings: Vec<(String, String)>,
    /// Number of requests of each site. `None`: without limit. Processes that share registers always request
    /// without limit.
    pub requests: Option<u8>,
    /// Whether channels are FIFO. `None`: as the algorithm assumes; elections assume FIFO channels.
    pub fifo: Option<bool>,
    /// The sites inside the critical section at the start, with their modes.
    pub holders: Vec<Holder>,
    /// The maximum number of faults of each kind in a run.
    pub faults: Faults,
    /// The only property to check: the search continues past violations of the others. `None`: all
    /// properties.
    pub only: Option<Property>,
    /// Whether to explore all interleavings, without partial-order reduction; see [`super::mutual_exclusion::reduce`].
    pub full: bool,
    /// Whether states that differ only in the names of the sites and in the distances of timestamps count as one; see
    /// [`super::mutual_exclusion::symmetry`].
    pub symmetry: bool,
    /// Elections: how many sites may start an election without having detected a crash. `None`: 1.
    pub initiators: Option<u8>,
    /// Elections: whether the network may be partitioned into two groups, once and permanently.
    pub partition: bool,
    /// Elections: whether a timeout may expire before the reply.
    pub short_timeouts: bool,
    /// Registers: what a read returns that overlaps a write.
    pub registers: RegisterKind,
    /// Registers: the bakery's highest ticket. `None`: 4.
    pub tickets: Option<u8>,
    /// The limits at which the search stops.
    pub limits: SearchLimits,
    /// Number of search threads. A search for cycles uses one.
    pub threads: usize,
}

impl CheckSpec {
    /// A check with one request per site and no faults.
    pub fn new(algorithm: &str, sites: usize) -> Self {
        Self {
            algorithm: algorithm.into(),
            sites,
            settings: Vec::new(),
            requests: Some(1),
            fifo: None,
            holders: Vec::new(),
            faults: Faults::default(),
            only: None,
            full: false,
            symmetry: false,
            initiators: None,
            partition: false,
            short_timeouts: false,
            registers: RegisterKind::Atomic,
            tickets: None,
            limits: SearchLimits::NONE,
            threads: 1,
        }
    }

    /// Sets the number of requests per site.
    pub fn requests(mut self, requests: u8) -> Self {
        self.requests = Some(requests);
        self
    }

    /// Whether a property is checked.
    pub fn checks(&self, property: Property) -> bool {
        self.only.is_none_or(|only| only == property)
    }

    /// Rejects values that are out of range, and options that do not apply to the model.
    pub(super) fn check(&self, kind: ModelKind) -> Result<(), CheckSpecError> {
        self.check_options(kind)?;
        let most = match kind {
            ModelKind::MutualExclusion | ModelKind::Election => MOST_SITES,
            ModelKind::Registers => registers::MOST_PROCESSES,
        };
        let least = if kind == ModelKind::Registers { 2 } else { 1 };
        if !(least..=most).contains(&self.sites) {
            let unit = if kind == ModelKind::Registers { "processes that share registers" } else { "sites" };
            return Err(CheckSpecError::Size { least, most, unit, sites: self.sites });
        }
        match self.requests {
            Some(requests) if !(1..=MOST_REQUESTS).contains(&requests) => {
                Err(CheckSpecError::Requests { requests })
            }
            _ => Ok(()),
        }
    }

    fn check_options(&self, kind: ModelKind) -> Result<(), CheckSpecError> {
        let algorithm = self.algorithm.clone();
        if let Some((option, _)) = self.options().find(|(_, kinds)| !kinds.contains(&kind)) {
            return Err(CheckSpecError::Option { option, algorithm, kind });
        }
        match self.only {
            Some(only) if !kind.properties().contains(&only) => {
                Err(CheckSpecError::Property { only, algorithm, kind })
            }
            _ => Ok(()),
        }
    }

    /// Rejects a search by symmetry of a system whose sites are not alike.
    pub(super) fn check_symmetry(&self, algorithm: &dyn Algorithm) -> Result<(), CheckSpecError> {
        let assumed = algorithm.about().channels == Channels::Fifo;
        let reason = if !algorithm.is_symmetric() {
            "its sites are not alike; it applies to lamport, lamport-suppressed and bakery-messages"
                .to_string()
        } else if self.requests.is_none() {
            "each site needs a limited number of requests".to_string()
        } else if !self.faults.none() {
            "it does not apply to systems with faults".to_string()
        } else if !self.holders.is_empty() {
            "a site that holds the lock at the start differs from the others".to_string()
        } else if self.full {
            "'full' explores every state".to_string()
        } else if self.fifo.is_some_and(|fifo| fifo != assumed) {
            "it needs the channels that the algorithm assumes".to_string()
        } else if self.sites > MOST_MACHINES {
            format!("it takes at most {MOST_MACHINES} sites, not {}", self.sites)
        } else {
            return Ok(());
        };
        Err(CheckSpecError::Symmetry { algorithm: self.algorithm.clone(), reason })
    }

    /// The options that are not at their default, each with the kinds of models to which it applies.
    fn options(&self) -> impl Iterator<Item = (&'static str, &'static [ModelKind])> {
        use ModelKind::{Election, MutualExclusion, Registers};
        let fault = |fault| self.faults.of(fault) > 0;
        let options: [(&'static str, bool, &'static [ModelKind]); 19] = [
            ("requests", self.requests.is_some_and(|requests| requests != 1), &[MutualExclusion]),
            ("forever", self.requests.is_none(), &[MutualExclusion, Registers]),
            ("fifo", self.fifo.is_some(), &[MutualExclusion, Election]),
            ("set", !self.settings.is_empty(), &[MutualExclusion, Election]),
            ("holder", !self.holders.is_empty(), &[MutualExclusion]),
            ("crashes", fault(Fault::Crash), &[MutualExclusion, Election]),
            ("restarts", fault(Fault::Restart), &[MutualExclusion]),
            ("losses", fault(Fault::Loss), &[MutualExclusion]),
            ("duplicates", fault(Fault::Duplicate), &[MutualExclusion]),
            ("forgets", fault(Fault::Forget), &[MutualExclusion]),
            ("suspicions", fault(Fault::Suspicion), &[MutualExclusion]),
            ("full", self.full, &[MutualExclusion]),
            ("symmetry", self.symmetry, &[MutualExclusion]),
            ("initiators", self.initiators.is_some(), &[Election]),
            ("partition", self.partition, &[Election]),
            ("short-timeouts", self.short_timeouts, &[Election]),
            ("regular-registers", self.registers == RegisterKind::Regular, &[Registers]),
            ("safe-registers", self.registers == RegisterKind::Safe, &[Registers]),
            ("tickets", self.tickets.is_some(), &[Registers]),
        ];
        options.into_iter().filter(|(_, given, _)| *given).map(|(name, _, kinds)| (name, kinds))
    }
}

/// The reason why a system cannot be checked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckSpecError {
    /// The system is too small or too large.
    #[error("the checker takes {least} to {most} {unit}, not {sites}")]
    Size {
        /// The smallest size.
        least: usize,
        /// The largest size.
        most: usize,
        /// The unit of the size: sites, or processes.
        unit: &'static str,
        /// The size of the system.
        sites: usize,
    },
    /// The number of requests is out of range.
    #[error("each site makes 1 to {MOST_REQUESTS} requests, or an unlimited number; not {requests}")]
    Requests {
        /// The number of requests.
        requests: u8,
    },
    /// An option does not apply to models of this kind.
    #[error("'{option}' cannot be used with '{algorithm}': it does not apply to {kind}")]
    Option {
        /// The name of the option.
        option: &'static str,
        /// The name of the algorithm.
        algorithm: String,
        /// The kind of its model.
        kind: ModelKind,
    },
    /// The search by symmetry does not apply to the system.
    #[error("'symmetry' cannot be used with '{algorithm}': {reason}")]
    Symmetry {
        /// The name of the algorithm.
        algorithm: String,
        /// The reason.
        reason: String,
    },
    /// The only property to check is not checked in models of this kind.
    #[error("'only {}' cannot be used with '{algorithm}': {kind} are checked for {}", only.slug(), slugs(*kind))]
    Property {
        /// The property.
        only: Property,
        /// The name of the algorithm.
        algorithm: String,
        /// The kind of its model.
        kind: ModelKind,
    },
}

/// The names of the properties that are checked in models of this kind.
fn slugs(kind: ModelKind) -> String {
    let names: Vec<String> = kind.properties().iter().map(|property| property.slug()).collect();
    names.join(", ")
}
