//! The messages and rules of the [`gate`](super::gate), and the register of all sites.

use crate::mutex::{LARGEST_NUMBER, list};
use crate::{LockMode, MessageKind, MessageKinds, Rules, SiteId};
use alloc::format;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use serde::{Deserialize, Serialize};

/// The registration of one site: it may have holders of this mode inside, up to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Entry {
    /// The registered site.
    pub site: SiteId,
    /// The number of this registration, counted per site from 1.
    pub version: u64,
    /// The mode: never exclusive.
    pub mode: LockMode,
    /// The number of permits, or 1 for any number of shared holders; 0 once no holder is left. Falls within a version.
    pub units: u32,
}

/// The registrations of all sites as far as they are known: at most one entry per site, ordered by site.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Register(Vec<Entry>);

impl Register {
    /// The registration of a site, if it is known to have had one.
    pub fn of(&self, site: SiteId) -> Option<&Entry> {
        self.place(site).ok().map(|place| &self.0[place])
    }

    /// Stores an entry if it is newer than the known one: a later version, or fewer units within the same version.
    pub fn note(&mut self, news: Entry) {
        match self.place(news.site) {
            Err(place) => self.0.insert(place, news),
            Ok(place) => {
                let known = &mut self.0[place];
                let newer =
                    news.version > known.version || news.version == known.version && news.units < known.units;
                if newer {
                    *known = news;
                }
            }
        }
    }

    /// All entries, ordered by site.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter()
    }

    /// Whether no site is known to have ever registered.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a register of a system of this many sites can have these contents.
    pub fn is_plausible(&self, sites: usize) -> bool {
        let possible = |entry: &Entry| {
            let most = if let LockMode::Permit { of: permits } = entry.mode { permits } else { 1 };
            entry.site.index() < sites
                && (1..=LARGEST_NUMBER).contains(&entry.version)
                && entry.mode != LockMode::Exclusive
                && entry.mode.is_possible()
                && entry.units <= most
        };
        self.0.iter().all(possible) && self.0.windows(2).all(|pair| pair[0].site < pair[1].site)
    }

    /// Visits every version, together with its site. Versions matter only relative to others of the same site.
    pub fn versions(&mut self, visit: &mut dyn FnMut(SiteId, &mut u64)) {
        for entry in &mut self.0 {
            visit(entry.site, &mut entry.version);
        }
    }

    fn place(&self, site: SiteId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&site, |entry| entry.site)
    }
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registered = self.0.iter().filter(|entry| entry.units > 0).map(|entry| match entry.mode {
            LockMode::Permit { .. } => format!("{} with {}", entry.site, entry.units),
            _ => format!("{}", entry.site),
        });
        f.write_str(&list(registered, "nobody"))
    }
}

/// A message of the gate. Each carries the register of its sender.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Message<M> {
    /// The registrations that the sender knows.
    pub register: Register,
    /// The content of the message.
    pub content: Content<M>,
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Content<M> {
    /// A message of the algorithm below.
    Inner(M),
    /// Asks the receiver to close the registration that the register of this message contains.
    Recall {
        /// Whether to answer when no holder is left, rather than as soon as fewer units are left than the register
        /// shows.
        all: bool,
    },
    /// The answer to a recall. The register of this message contains the units that are left.
    Cleared,
}

/// An upper bound for the message kinds or rules of an algorithm below. A constant array needs a fixed length.
const MOST: usize = 128;

impl<M: MessageKinds> Message<M> {
    const OWN: [MessageKind; 2] = [MessageKind::enter("RECALL"), MessageKind::enter("CLEARED")];
    const ALL: &'static [MessageKind; MOST] = &joined(&Self::OWN, M::KINDS);
}

/// Concatenates two lists in an array of fixed length; the remaining elements are unused.
const fn joined<T: Copy>(own: &[T], inner: &[T]) -> [T; MOST] {
    let mut all = [own[0]; MOST];
    let mut place = 0;
    while place < own.len() + inner.len() {
        all[place] = if place < own.len() { own[place] } else { inner[place - own.len()] };
        place += 1;
    }
    all
}

impl<M: MessageKinds> MessageKinds for Message<M> {
    const KINDS: &'static [MessageKind] = Self::ALL.split_at(Self::OWN.len() + M::KINDS.len()).0;

    fn kind(&self) -> usize {
        match &self.content {
            Content::Recall { .. } => 0,
            Content::Cleared => 1,
            Content::Inner(message) => Self::OWN.len() + message.kind(),
        }
    }
}

impl<M: fmt::Display> fmt::Display for Message<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.content {
            Content::Inner(message) => write!(f, "{message}")?,
            Content::Recall { all: true } => f.write_str("RECALL")?,
            Content::Recall { all: false } => f.write_str("RECALL(one)")?,
            Content::Cleared => f.write_str("CLEARED")?,
        }
        if self.register.is_empty() { Ok(()) } else { write!(f, " [{}]", self.register) }
    }
}

crate::rules! {
    /// The rules of the gate itself.
    pub enum GateRule {
        /// The site has a registration that is not recalled.
        EntersRegistered: "is registered, and not recalled: it enters at once",
        /// In the section below.
        Recalls: "has the section, and recalls the registrations that conflict with its request",
        /// In the section below, and no registration conflicts.
        Registers: "has the section, and no registration conflicts: it registers, leaves the section, and enters",
        /// In the section below, and no site is registered.
        EntersAlone: "has the section, and no site is registered: it enters, and keeps the section until it leaves",
        /// A recall arrives.
        AnswersAtOnce: "has fewer holders than it is registered for: it returns the rest, and answers at once",
        /// A recall arrives.
        AnswersLater: "has a holder inside: it admits no other, and answers when one has left",
        /// A holder has left.
        Answers: "has one holder fewer, and answers the sites that recalled it",
    }
}

/// A rule of the gate or of the algorithm below, as an index into the list of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule<R> {
    place: u8,
    of: PhantomData<fn() -> R>,
}

impl<R: Rules> Rule<R> {
    const EVERY: &'static [Self; MOST] = &{
        let mut all = [Self { place: 0, of: PhantomData }; MOST];
        let mut place = 0;
        while place < MOST {
            all[place].place = place as u8;
            place += 1;
        }
        all
    };

    /// A rule of the gate.
    pub fn gate(rule: GateRule) -> Self {
        Self::EVERY[rule.index()]
    }

    /// The index of a rule of the algorithm below, from its index there.
    pub fn inner(rule: usize) -> usize {
        GateRule::ALL.len() + rule
    }
}

impl<R: Rules> Rules for Rule<R> {
    const ALL: &'static [Self] = Self::EVERY.split_at(GateRule::ALL.len() + R::ALL.len()).0;

    fn name(self) -> &'static str {
        match self.index().checked_sub(GateRule::ALL.len()) {
            None => GateRule::ALL[self.index()].name(),
            Some(inner) => R::ALL[inner].name(),
        }
    }

    fn sentence(self) -> &'static str {
        match self.index().checked_sub(GateRule::ALL.len()) {
            None => GateRule::ALL[self.index()].sentence(),
            Some(inner) => R::ALL[inner].sentence(),
        }
    }

    fn index(self) -> usize {
        self.place.into()
    }
}
