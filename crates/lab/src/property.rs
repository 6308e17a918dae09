//! What must hold in every run.

use crate::time::Time;
use lockkeeper_core::SiteId;
use serde::Serialize;
use std::fmt;

/// Something that a mutual exclusion algorithm promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Property {
    /// No two are inside together that conflict; in a mutex, at most one site is inside.
    MutualExclusion,
    /// It does not happen that nothing can happen any more while somebody waits.
    NoDeadlock,
    /// Nobody waits while others, who asked later and could know of it, enter again and again; and everybody who
    /// waits is served in the end. A deadlock violates it, see [`Property::is_violated_by`].
    NoStarvation,
    /// The fence of an entry is larger than those of all entries before it that conflict with it.
    FenceMonotone,
    /// What the algorithm's own proof relies on: one token, …
    Invariant,
    /// Requests are served in the order of their timestamps, where the algorithm has them.
    TimestampOrder,
    /// No run that comes to its end takes more messages per entry than the paper says.
    MessageBound,
}

impl Property {
    /// Whether a violation of `found` violates this property, too.
    ///
    /// Freedom from starvation implies freedom from deadlock: a site that waits in a deadlock waits for ever.
    pub fn is_violated_by(self, found: Self) -> bool {
        self == found || (self == Self::NoStarvation && found == Self::NoDeadlock)
    }

    /// What is wrong when it does not hold.
    pub fn breach(self) -> &'static str {
        match self {
            Self::MutualExclusion => "mutual exclusion violated",
            Self::NoDeadlock => "deadlock",
            Self::NoStarvation => "starvation",
            Self::FenceMonotone => "fences do not rise",
            Self::Invariant => "the algorithm's own invariant violated",
            Self::TimestampOrder => "not in the order of timestamps",
            Self::MessageBound => "more messages than the paper says",
        }
    }
}

/// A property that did not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Which one.
    pub property: Property,
    /// When it broke.
    pub at: Time,
    /// The sites concerned.
    #[serde(serialize_with = "numbers")]
    pub sites: Vec<SiteId>,
    /// What happened, in a sentence.
    pub what: String,
}

fn numbers<S: serde::Serializer>(sites: &[SiteId], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(sites.iter().map(|site| site.number()))
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} T: {}", self.property.breach(), self.at, self.what)
    }
}

/// What people call the processes of a system: sites are S1, S2, …; a coordinator apart is C.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// How many sites may ask.
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
