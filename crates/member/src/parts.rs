//! Long lists in parts: a report or a start may name a hundred thousand locks, and no frame is that long.
//!
//! Whoever needs the list asks for it from a certain part on, and gets so many; asking for more acknowledges what came, and asking again
//! brings back what was lost. A list is there once all of its parts are.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// So many parts are sent at once.
pub(crate) const WINDOW: u32 = 16;

/// A list of more parts than this is not believed.
const MOST_PARTS: u32 = 1 << 16;

/// One part of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part<T> {
    /// Which, counted from 0.
    pub number: u32,
    /// Of how many: at least one, also where nothing is listed.
    pub of: u32,
    /// What it lists.
    pub items: Vec<T>,
}

/// A list, as its sender keeps it. It does not change.
#[derive(Clone, Debug)]
pub(crate) struct Parted<T> {
    pub items: Vec<T>,
    /// Where each part ends.
    ends: Vec<usize>,
}

impl<T: Clone> Parted<T> {
    /// Cuts a list into parts of about so many bytes.
    pub fn new(items: Vec<T>, part_bytes: usize, bytes: impl Fn(&T) -> usize) -> Self {
        let (mut ends, mut size) = (Vec::new(), 0);
        for (place, item) in items.iter().enumerate() {
            if size > 0 && size + bytes(item) > part_bytes {
                ends.push(place);
                size = 0;
            }
            size += bytes(item);
        }
        ends.push(items.len());
        Self { items, ends }
    }

    /// As many parts as are sent at once, from this one on.
    pub fn parts(&self, first: u32) -> impl Iterator<Item = Part<T>> + '_ {
        let of = self.ends.len() as u32;
        (first..of.min(first.saturating_add(WINDOW))).map(move |number| {
            let end = self.ends[number as usize];
            let begin = number.checked_sub(1).map_or(0, |before| self.ends[before as usize]);
            Part { number, of, items: self.items[begin..end].to_vec() }
        })
    }
}

/// A list, as far as it has arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arriving<T> {
    pub items: Vec<T>,
    of: Option<u32>,
    next: u32,
    /// Arrived ahead of their turn.
    early: BTreeMap<u32, Vec<T>>,
    /// Whether something has arrived since it was last asked for.
    moves: bool,
}

impl<T> Default for Arriving<T> {
    fn default() -> Self {
        Self { items: Vec::new(), of: None, next: 0, early: BTreeMap::new(), moves: false }
    }
}

impl<T> Arriving<T> {
    /// Takes a part in. Tells whether the sender is to be asked for more.
    pub fn take(&mut self, part: Part<T>) -> bool {
        let of = *self.of.get_or_insert(part.of);
        let expected = part.of == of && part.number < of && of <= MOST_PARTS;
        if !expected || self.is_complete() || part.number >= self.next.saturating_add(WINDOW) {
            return false;
        }
        if part.number < self.next {
            // A first part that comes again says that the sender does not know how far this is.
            return part.number == 0;
        }
        let before = self.next;
        self.early.insert(part.number, part.items);
        while let Some(items) = self.early.remove(&self.next) {
            self.items.extend(items);
            self.next += 1;
            self.moves = true;
        }
        !self.is_complete() && before / WINDOW < self.next / WINDOW
    }

    /// The first part that has not arrived.
    pub fn next(&self) -> u32 {
        self.next
    }

    pub fn is_complete(&self) -> bool {
        self.of == Some(self.next)
    }

    /// Whether some of it is there, and nothing more has come since this was last asked.
    pub fn is_stuck(&mut self) -> bool {
        let moves = core::mem::take(&mut self.moves);
        self.of.is_some() && !self.is_complete() && !moves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_there_once_all_of_its_parts_are_in_whatever_order_they_come() {
        let list: Vec<u32> = (0..100).collect();
        let parted = Parted::new(list.clone(), 10, |_| 4);
        let mut arriving = Arriving::default();
        let mut asked = 0;
        while !arriving.is_complete() {
            let first = arriving.next();
            asked += 1;
            let mut parts: Vec<_> = parted.parts(first).collect();
            assert!(parts.iter().all(|part| part.items.len() <= 2));
            parts.reverse();
            // Every other window, one part is lost.
            if asked % 2 == 0 {
                parts.pop();
            }
            for part in parts {
                arriving.take(part.clone());
                arriving.take(part);
            }
        }
        assert_eq!(arriving.items, list);
        assert!(asked > 4, "50 parts, 16 at once");
    }

    #[test]
    fn an_empty_list_has_one_part_and_lies_are_not_believed() {
        let mut arriving = Arriving::<u32>::default();
        for part in Parted::new(Vec::new(), 10, |_| 4).parts(0) {
            arriving.take(part);
        }
        assert!(arriving.is_complete() && arriving.items.is_empty());
        let mut arriving = Arriving::default();
        for (number, of) in [(0, 1 << 30), (5, 5), (9, 1 << 30)] {
            assert!(!arriving.take(Part { number, of, items: Vec::from([1]) }));
        }
        assert!(!arriving.is_complete() && arriving.items.is_empty());
    }
}
