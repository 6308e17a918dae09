//! Which entries may overlap, and which conflict.
//!
//! Drivers, checkers and tests all use this definition.
//!
//! | lock | entries that may overlap | entries that [conflict](Sharing::conflict), so that their fences rise |
//! |---|---|---|
//! | [`Mutex`](Sharing::Mutex) | none | any two |
//! | [`Semaphore`](Sharing::Semaphore) | up to k | none, unless k is 1: permits are not ordered among themselves |
//! | [`ReadersWriters`](Sharing::ReadersWriters) | any number of shared ones | any two, unless both are shared |

use crate::SiteId;
use crate::mutex::{list, parse_site};
use alloc::string::String;
use alloc::vec::Vec;
use core::error::Error;
use core::fmt;
use serde::{Deserialize, Serialize};

/// The mode of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Exclusive, or one of the k permits of a semaphore.
    #[default]
    Exclusive,
    /// Shared with other shared entries: a reader.
    Shared,
}

impl Mode {
    /// Both modes.
    pub const ALL: [Self; 2] = [Self::Exclusive, Self::Shared];
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
        })
    }
}

/// A site inside the critical section, with its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Holder {
    /// The holder.
    pub site: SiteId,
    /// The mode in which it holds.
    pub mode: Mode,
}

impl Holder {
    /// A holder in exclusive mode.
    pub fn exclusive(site: SiteId) -> Self {
        Self { site, mode: Mode::Exclusive }
    }

    /// A holder in shared mode.
    pub fn shared(site: SiteId) -> Self {
        Self { site, mode: Mode::Shared }
    }

    /// Reads `2`, `S2`, `2:shared` or `S2 shared`, with sites numbered from 1.
    pub fn parse(text: &str, sites: usize) -> Result<Self, HolderError> {
        let (site, mode) = text.split_once([':', ' ']).unwrap_or((text, "exclusive"));
        let mode = match mode.trim() {
            "exclusive" => Mode::Exclusive,
            "shared" => Mode::Shared,
            other => return Err(HolderError::UnknownMode { mode: other.into() }),
        };
        let site =
            parse_site(site, sites).ok_or_else(|| HolderError::UnknownSite { site: site.into(), sites })?;
        Ok(Self { site, mode })
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mode {
            Mode::Exclusive => write!(f, "{}", self.site.number()),
            Mode::Shared => write!(f, "{}:shared", self.site.number()),
        }
    }
}

/// The number of sites in each mode, either inside or waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ModeCounts {
    /// Sites in exclusive mode.
    pub exclusive: usize,
    /// Sites in shared mode.
    pub shared: usize,
}

impl ModeCounts {
    /// The number of sites in both modes.
    pub fn all(self) -> usize {
        self.exclusive + self.shared
    }

    /// Adds a site.
    pub fn add(&mut self, mode: Mode) {
        *self.count(mode) += 1;
    }

    /// Removes a site.
    pub fn remove(&mut self, mode: Mode) {
        *self.count(mode) -= 1;
    }

    /// The number of sites in this mode.
    pub fn of(mut self, mode: Mode) -> usize {
        *self.count(mode)
    }

    fn count(&mut self, mode: Mode) -> &mut usize {
        match mode {
            Mode::Exclusive => &mut self.exclusive,
            Mode::Shared => &mut self.shared,
        }
    }
}

/// The kind of a lock: which entries may overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// One holder at a time.
    #[default]
    Mutex,
    /// Up to this many holders at a time.
    Semaphore(usize),
    /// One exclusive holder, or any number of shared ones.
    ReadersWriters,
}

impl Sharing {
    /// Whether this kind of lock supports the mode.
    pub fn knows(self, mode: Mode) -> bool {
        mode == Mode::Exclusive || self == Self::ReadersWriters
    }

    /// Whether entries in these modes can never overlap. The fences of conflicting entries rise.
    pub fn conflict(self, one: Mode, other: Mode) -> bool {
        match self {
            Self::Mutex => true,
            Self::Semaphore(most) => most <= 1,
            Self::ReadersWriters => one == Mode::Exclusive || other == Mode::Exclusive,
        }
    }

    /// Whether an entry in one of the modes can make the other wait. Conflicting entries do; so do the permits of a
    /// semaphore, although two of them may overlap.
    pub fn compete(self, one: Mode, other: Mode) -> bool {
        matches!(self, Self::Semaphore(_)) || self.conflict(one, other)
    }

    /// The number of further sites that may enter in this mode while `inside` are holders.
    pub fn room(self, inside: ModeCounts, mode: Mode) -> usize {
        match (self, mode) {
            (Self::Mutex, _) => 1usize.saturating_sub(inside.all()),
            (Self::Semaphore(most), _) => most.saturating_sub(inside.all()),
            (Self::ReadersWriters, Mode::Exclusive) => 1usize.saturating_sub(inside.all()),
            (Self::ReadersWriters, Mode::Shared) if inside.exclusive > 0 => 0,
            (Self::ReadersWriters, Mode::Shared) => usize::MAX,
        }
    }

    /// Whether one more site may enter in this mode while `inside` are holders: the safety property of every lock.
    pub fn admits(self, inside: ModeCounts, mode: Mode) -> bool {
        self.room(inside, mode) > 0
    }

    /// The number of entries in exclusive mode that may overlap.
    pub fn capacity(self) -> usize {
        self.room(ModeCounts::default(), Mode::Exclusive)
    }

    /// Rejects holders that cannot be inside together, with an error that names them.
    pub fn check(self, holders: &[Holder]) -> Result<(), HolderError> {
        let mut inside = ModeCounts::default();
        for (place, holder) in holders.iter().enumerate() {
            if holders[..place].iter().any(|other| other.site == holder.site) {
                return Err(HolderError::NamedTwice { site: holder.site });
            }
            if !self.knows(holder.mode) {
                return Err(HolderError::CannotShare { site: holder.site, lock: self });
            }
            if !self.admits(inside, holder.mode) {
                let sites = holders.iter().map(|holder| holder.site).collect();
                return Err(HolderError::Conflict { sites, lock: self });
            }
            inside.add(holder.mode);
        }
        Ok(())
    }
}

/// The kind of lock as the end of the sentence `this lock is …`.
impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mutex => f.write_str("a mutex, which one site holds at a time"),
            Self::Semaphore(most) => write!(f, "a semaphore, which {most} hold at a time"),
            Self::ReadersWriters => {
                f.write_str("a readers-writers lock, which one site holds at a time, or several that share")
            }
        }
    }
}

/// The reason why holders cannot be inside at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HolderError {
    /// There is no such mode.
    UnknownMode {
        /// The given mode.
        mode: String,
    },
    /// There is no such site.
    UnknownSite {
        /// The given site.
        site: String,
        /// The number of sites.
        sites: usize,
    },
    /// A site is named twice.
    NamedTwice {
        /// The site.
        site: SiteId,
    },
    /// A site is to share a lock that has no shared mode.
    CannotShare {
        /// The site.
        site: SiteId,
        /// The kind of the lock.
        lock: Sharing,
    },
    /// The holders cannot be inside together.
    Conflict {
        /// All given holders.
        sites: Vec<SiteId>,
        /// The kind of the lock.
        lock: Sharing,
    },
}

impl fmt::Display for HolderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownMode { mode } => {
                write!(f, "a site is inside 'exclusive' or 'shared', not '{mode}'")
            }
            Self::UnknownSite { site, sites } => {
                write!(f, "there is no site '{site}': sites are numbered from 1 to {sites}")
            }
            Self::NamedTwice { site } => write!(f, "{site} is named twice among the holders at the start"),
            Self::CannotShare { site, lock } => write!(f, "{site} cannot share this lock: it is {lock}"),
            Self::Conflict { sites, lock } => {
                let hint = if *lock == Sharing::ReadersWriters { ", as in 1:shared,2:shared" } else { "" };
                let named = list(sites, "nobody");
                write!(f, "{named} cannot all start inside: this lock is {lock}{hint}")
            }
        }
    }
}

impl Error for HolderError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    const E: Mode = Mode::Exclusive;
    const S: Mode = Mode::Shared;

    fn inside(exclusive: usize, shared: usize) -> ModeCounts {
        ModeCounts { exclusive, shared }
    }

    #[test]
    fn only_readers_and_permits_may_overlap() {
        for (one, other) in [(E, E), (E, S), (S, E), (S, S)] {
            assert!(Sharing::Mutex.conflict(one, other));
            assert!(Sharing::Semaphore(1).conflict(one, other));
            assert!(!Sharing::Semaphore(2).conflict(one, other) && Sharing::Semaphore(2).compete(one, other));
            assert_eq!(Sharing::ReadersWriters.conflict(one, other), (one, other) != (S, S));
            assert_eq!(Sharing::ReadersWriters.compete(one, other), (one, other) != (S, S));
        }
    }

    #[test]
    fn lock_admits_entries_up_to_its_capacity() {
        assert!(Sharing::Mutex.admits(inside(0, 0), E) && !Sharing::Mutex.admits(inside(1, 0), E));
        assert!(Sharing::Semaphore(3).admits(inside(2, 0), E));
        assert!(!Sharing::Semaphore(3).admits(inside(3, 0), E));
        assert!(
            Sharing::ReadersWriters.admits(inside(0, 7), S)
                && !Sharing::ReadersWriters.admits(inside(0, 7), E)
        );
        assert!(
            !Sharing::ReadersWriters.admits(inside(1, 0), S)
                && !Sharing::ReadersWriters.admits(inside(1, 0), E)
        );
        assert_eq!(
            [Sharing::Mutex, Sharing::Semaphore(4), Sharing::ReadersWriters].map(Sharing::capacity),
            [1, 4, 1]
        );
    }

    #[test]
    fn impossible_initial_holders_are_rejected_with_an_error() {
        let of = |text: &str| Holder::parse(text, 5).unwrap();
        let refused = |sharing: Sharing, holders: &[Holder]| sharing.check(holders).unwrap_err().to_string();
        assert!(refused(Sharing::Mutex, &[of("1"), of("2")]).starts_with("S1, S2 cannot all start inside"));
        assert!(refused(Sharing::Semaphore(2), &[of("1"), of("2"), of("3")]).contains("which 2 hold"));
        assert!(refused(Sharing::ReadersWriters, &[of("1:shared"), of("2")]).contains("S1, S2"));
        assert_eq!(
            Sharing::Semaphore(9).check(&[of("4"), of("4")]),
            Err(HolderError::NamedTwice { site: SiteId(3) })
        );
        assert_eq!(
            Sharing::Mutex.check(&[of("1:shared")]),
            Err(HolderError::CannotShare { site: SiteId(0), lock: Sharing::Mutex })
        );
        assert_eq!(Sharing::Semaphore(2).check(&[of("1"), of("2")]), Ok(()));
        assert_eq!(Sharing::ReadersWriters.check(&[of("S1 shared"), of("s2:shared")]), Ok(()));
    }

    #[test]
    fn holder_display_and_parse_round_trip() {
        for text in ["3", "4:shared"] {
            assert_eq!(Holder::parse(text, 5).unwrap().to_string(), text);
        }
        let unknown = HolderError::UnknownSite { site: "6".into(), sites: 5 };
        assert_eq!(unknown.to_string(), "there is no site '6': sites are numbered from 1 to 5");
        assert_eq!(Holder::parse("6", 5), Err(unknown));
        assert_eq!(Holder::parse("1:often", 5), Err(HolderError::UnknownMode { mode: "often".into() }));
    }
}
