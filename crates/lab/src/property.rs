//! The properties that every run must satisfy.

use crate::simulator::time::Time;
use lockkeeper_core::SiteId;
use serde::Serialize;
use std::fmt;

/// A property that a run, or every run, is checked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Property {
    /// Conflicting holds never overlap; in a mutex, at most one site is inside.
    MutualExclusion,
    /// The system never comes to rest while a site waits.
    NoDeadlock,
    /// No site waits while others, which requested later and could know of the earlier request, enter again
    /// and again; and every request is granted eventually. A deadlock violates this property, too; see
    /// [`Property::is_violated_by`].
    NoStarvation,
    /// The fence of an entry is larger than those of all earlier entries that conflict with it.
    FenceMonotone,
    /// The invariant of the algorithm's own proof holds, for example that there is one token.
    Invariant,
    /// Requests are granted in the order of their timestamps, if the algorithm has timestamps.
    TimestampOrder,
    /// No complete run takes more messages per entry than the paper's bound.
    MessageBound,
    /// Shared registers: a process that completes its doorway before another begins its own enters first.
    FirstComeFirstServed,
    /// Elections: a site that becomes leader is the highest site that is up.
    HighestLeads,
    /// Elections in which any site may win: no two sites become leader in the same term.
    OneLeader,
    /// Elections: when the system is at rest, every site that is up knows the same leader, and the leader is
    /// up.
    Agreement,
    /// Elections: the system comes to rest.
    Termination,
}

impl Property {
    /// Whether a violation of `found` violates this property, too.
    ///
    /// Freedom from starvation implies freedom from deadlock: a site that waits in a deadlock waits for ever.
    pub fn is_violated_by(self, found: Self) -> bool {
        self == found || (self == Self::NoStarvation && found == Self::NoDeadlock)
    }

    /// The name of the violation.
    pub fn violation_name(self) -> &'static str {
        match self {
            Self::MutualExclusion => "mutual exclusion violated",
            Self::NoDeadlock => "deadlock",
            Self::NoStarvation => "starvation",
            Self::FenceMonotone => "fences do not rise",
            Self::Invariant => "the algorithm's own invariant violated",
            Self::TimestampOrder => "not in the order of timestamps",
            Self::MessageBound => "more messages than the bound of the paper",
            Self::FirstComeFirstServed => "not first come, first served",
            Self::HighestLeads => "two leaders",
            Self::OneLeader => "two leaders in one term",
            Self::Agreement => "no agreement",
            Self::Termination => "no end",
        }
    }

    /// The name of the property.
    pub fn name(self) -> &'static str {
        match self {
            Self::MutualExclusion => "mutual exclusion",
            Self::NoDeadlock => "no deadlock",
            Self::NoStarvation => "no starvation",
            Self::FenceMonotone => "rising fences",
            Self::Invariant => "invariants",
            Self::TimestampOrder => "timestamp order",
            Self::MessageBound => "message bound",
            Self::FirstComeFirstServed => "first come, first served",
            Self::HighestLeads => "highest leads",
            Self::OneLeader => "one leader",
            Self::Agreement => "agreement",
            Self::Termination => "termination",
        }
    }

    /// The name in the form of the command line: `no-deadlock`.
    pub fn slug(self) -> String {
        self.name().replace(',', "").replace(' ', "-")
    }
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A violation of a property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The violated property.
    pub property: Property,
    /// The time of the violation.
    pub at: Time,
    /// The sites concerned.
    #[serde(serialize_with = "numbers")]
    pub sites: Vec<SiteId>,
    /// A sentence that describes the violation.
    pub what: String,
}

fn numbers<S: serde::Serializer>(sites: &[SiteId], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(sites.iter().map(|site| site.number()))
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} T: {}", self.property.violation_name(), self.at, self.what)
    }
}

/// The display names of the processes: sites are S1, S2, …; a separate coordinator is C.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// Number of sites that may request.
    pub sites: usize,
}

impl Names {
    /// The name of a process.
    pub fn of(self, site: SiteId) -> Name {
        Name { site, helper: site.index() >= self.sites }
    }
}

/// A process's name.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    site: SiteId,
    helper: bool,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.helper { f.write_str("C") } else { self.site.fmt(f) }
    }
}
