//! What the sites of a [`gate`](super::gate) say to each other, and what they know of each other.

use crate::mutex::{LARGEST_NUMBER, list};
use crate::{Claim, Rules, SiteId, Vocabulary, Word};
use alloc::format;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use serde::{Deserialize, Serialize};

/// One site's registration: it may have holders of this kind inside, at most so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Entry {
    /// Whose.
    pub site: SiteId,
    /// The how-manyth registration of that site.
    pub version: u64,
    /// Of which kind: never alone.
    pub claim: Claim,
    /// How many permits, 1 for any number that share, 0 once nobody is left. Within a version it only falls.
    pub units: u32,
}

/// What is known of everybody's registrations: at most one entry a site, in the order of sites.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Register(Vec<Entry>);

impl Register {
    /// The registration of a site, if it is known to have had one.
    pub fn of(&self, site: SiteId) -> Option<&Entry> {
        self.place(site).ok().map(|place| &self.0[place])
    }

    /// Takes over what is newer: a later version, or fewer units within the same one.
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

    /// Every entry, in the order of sites.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter()
    }

    /// Whether nobody is known to have ever registered.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the sites of a system of so many can know this.
    pub fn is_plausible(&self, sites: usize) -> bool {
        let possible = |entry: &Entry| {
            let most = if let Claim::Permit(permits) = entry.claim { permits } else { 1 };
            entry.site.index() < sites
                && (1..=LARGEST_NUMBER).contains(&entry.version)
                && entry.claim != Claim::Alone
                && entry.claim.is_possible()
                && entry.units <= most
        };
        self.0.iter().all(possible) && self.0.windows(2).all(|pair| pair[0].site < pair[1].site)
    }

    /// Visits every version, each of them a number that only matters beside others of its site.
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
        let registered = self.0.iter().filter(|entry| entry.units > 0).map(|entry| match entry.claim {
            Claim::Permit(_) => format!("{} with {}", entry.site, entry.units),
            _ => format!("{}", entry.site),
        });
        f.write_str(&list(registered, "nobody"))
    }
}

/// A message. What its sender knows of everybody's registrations goes along with all of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Message<M> {
    /// Who is registered, as far as the sender knows.
    pub register: Register,
    /// What is said.
    pub words: Words<M>,
}

/// What is said.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Words<M> {
    /// In the words of the algorithm below.
    Inner(M),
    /// Let nobody else in under the registration that this message tells of.
    Recall {
        /// Answer when nobody is left of it, rather than as soon as fewer units are than this message tells of.
        all: bool,
    },
    /// The answer: the message tells of what is left.
    Cleared,
}

/// The most words or rules of an algorithm below: constants cannot be longer than the compiler is told.
const MOST: usize = 128;

impl<M: Vocabulary> Message<M> {
    const OWN: [Word; 2] = [Word::enter("RECALL"), Word::enter("CLEARED")];
    const ALL: &'static [Word; MOST] = &joined(&Self::OWN, M::WORDS);
}

/// One list after the other, in an array that is longer than both.
const fn joined<T: Copy>(own: &[T], inner: &[T]) -> [T; MOST] {
    let mut all = [own[0]; MOST];
    let mut place = 0;
    while place < own.len() + inner.len() {
        all[place] = if place < own.len() { own[place] } else { inner[place - own.len()] };
        place += 1;
    }
    all
}

impl<M: Vocabulary> Vocabulary for Message<M> {
    const WORDS: &'static [Word] = Self::ALL.split_at(Self::OWN.len() + M::WORDS.len()).0;

    fn word(&self) -> usize {
        match &self.words {
            Words::Recall { .. } => 0,
            Words::Cleared => 1,
            Words::Inner(message) => Self::OWN.len() + message.word(),
        }
    }
}

impl<M: fmt::Display> fmt::Display for Message<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.words {
            Words::Inner(message) => write!(f, "{message}")?,
            Words::Recall { all: true } => f.write_str("RECALL")?,
            Words::Recall { all: false } => f.write_str("RECALL(one)")?,
            Words::Cleared => f.write_str("CLEARED")?,
        }
        if self.register.is_empty() { Ok(()) } else { write!(f, " [{}]", self.register) }
    }
}

crate::rules! {
    /// The rules of the gate itself.
    pub enum GateRule {
        /// By a registration that is not recalled.
        EntersRegistered: "is registered, and nobody has recalled that: it enters at once",
        /// Inside the section below.
        Recalls: "has the section, and recalls the registrations that it cannot be inside with",
        /// Inside the section below, nothing in the way.
        Registers: "has the section, and nothing is in its way: it registers, leaves the section to others, and enters",
        /// Inside the section below, nobody registered.
        EntersAlone: "has the section, and nobody is registered: it enters, and keeps the section until it leaves",
        /// A recall arrives.
        AnswersAtOnce: "has fewer inside than it is registered for: it gives that up, and says so at once",
        /// A recall arrives.
        AnswersLater: "has somebody inside: it lets nobody else in, and answers when one has left",
        /// One has left.
        Answers: "has one fewer inside, and says so to those who recalled it",
    }
}

/// A rule of the gate, or of the algorithm below: its place in the list of the ones and then the others.
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

    /// One of the gate.
    pub fn gate(rule: GateRule) -> Self {
        Self::EVERY[rule.index()]
    }

    /// One of the algorithm below.
    pub fn inner(rule: R) -> Self {
        Self::EVERY[GateRule::ALL.len() + rule.index()]
    }
}

impl<R: Rules> Rules for Rule<R> {
    const ALL: &'static [Self] = Self::EVERY.split_at(GateRule::ALL.len() + R::ALL.len()).0;

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
