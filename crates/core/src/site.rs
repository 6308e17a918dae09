//! Sites and sets of sites.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// One process of the system. Displayed numbers start at 1 (`S1`), indices at 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SiteId(pub u32);

impl SiteId {
    /// The site at position `index`, counted from 0.
    pub fn new(index: usize) -> Self {
        Self(u32::try_from(index).expect("the index of a site fits into 32 bits"))
    }

    /// The site's position, counted from 0.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The displayed number of the site, counted from 1.
    pub fn number(self) -> usize {
        self.index() + 1
    }

    /// The next site on the ring S1 → S2 → … → SN → S1.
    pub fn next_on_ring(self, sites: usize) -> Self {
        Self::new((self.index() + 1) % sites)
    }

    /// All sites of a system of `sites` sites.
    pub fn all(sites: usize) -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator {
        (0..sites).map(Self::new)
    }
}

impl fmt::Display for SiteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S{}", self.number())
    }
}

impl fmt::Debug for SiteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A set of sites of one system, stored as one bit per site.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SiteSet {
    words: Vec<u64>,
}

impl SiteSet {
    /// The empty set, with capacity for `sites` sites.
    pub fn none(sites: usize) -> Self {
        Self { words: vec![0; sites.div_ceil(64)] }
    }

    /// Every site of the system except one.
    pub fn all_but(sites: usize, left_out: SiteId) -> Self {
        let mut set = Self::none(sites);
        set.extend(SiteId::all(sites).filter(|&site| site != left_out));
        set
    }

    /// Adds a site. Returns whether it was new.
    pub fn insert(&mut self, site: SiteId) -> bool {
        let (word, bit) = Self::place(site);
        let new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        new
    }

    /// Removes a site. Returns whether it was in the set.
    pub fn remove(&mut self, site: SiteId) -> bool {
        let (word, bit) = Self::place(site);
        let there = self.words[word] & bit != 0;
        self.words[word] &= !bit;
        there
    }

    /// Whether the site is in the set.
    pub fn contains(&self, site: SiteId) -> bool {
        let (word, bit) = Self::place(site);
        self.words.get(word).is_some_and(|w| w & bit != 0)
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&w| w == 0)
    }

    /// The number of sites in the set.
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Removes all sites.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// The set of the sites that these sites are renamed to.
    pub fn renamed(&self, to: &dyn Fn(SiteId) -> SiteId) -> Self {
        let mut renamed = Self { words: vec![0; self.words.len()] };
        renamed.extend(self.iter().map(to));
        renamed
    }

    /// The sites in the set, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = SiteId> + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            let mut left = word;
            core::iter::from_fn(move || {
                if left == 0 {
                    return None;
                }
                let bit = left.trailing_zeros() as usize;
                left &= left - 1;
                Some(SiteId::new(index * 64 + bit))
            })
        })
    }

    /// The index of the word that holds the site's bit, and the bit: site 70 is bit 6 of word 1.
    fn place(site: SiteId) -> (usize, u64) {
        (site.index() / 64, 1 << (site.index() % 64))
    }
}

impl Extend<SiteId> for SiteSet {
    fn extend<I: IntoIterator<Item = SiteId>>(&mut self, sites: I) {
        for site in sites {
            self.insert(site);
        }
    }
}

impl fmt::Display for SiteSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nobody");
        }
        for (position, site) in self.iter().enumerate() {
            write!(f, "{}{site}", if position == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl fmt::Debug for SiteSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn displayed_site_numbers_start_at_one() {
        assert_eq!(SiteId::new(0).to_string(), "S1");
        assert_eq!(SiteId::new(2).next_on_ring(3), SiteId::new(0));
    }

    #[test]
    fn site_set_spans_several_machine_words() {
        let mut set = SiteSet::none(130);
        for index in [0, 63, 64, 129] {
            assert!(set.insert(SiteId::new(index)));
            assert!(!set.insert(SiteId::new(index)));
        }
        assert_eq!(set.to_string(), "S1, S64, S65, S130");
        assert!(set.remove(SiteId::new(64)));
        assert!(!set.contains(SiteId::new(64)));
        assert_eq!(set.len(), 3);
        assert_eq!(SiteSet::all_but(130, SiteId::new(7)).len(), 129);
    }
}
