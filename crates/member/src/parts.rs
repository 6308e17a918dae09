//! Long lists in parts: a report or a start may name a million locks, and no frame is that long.
//!
//! Whoever needs the list asks for it from a certain part on, and gets so many; asking for more acknowledges what came, and asking again
//! brings back what was lost. A list is there once all of its parts are. Parts are shared, so that no step copies a list.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// So many parts are sent in answer to one request.
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
    pub items: Arc<[T]>,
}

/// A list in parts. It does not change, and copies share its items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Items<T> {
    parts: Vec<Arc<[T]>>,
    len: usize,
}

impl<T> Default for Items<T> {
    fn default() -> Self {
        Self { parts: Vec::new(), len: 0 }
    }
}

impl<T> Items<T> {
    pub(crate) fn of(parts: Vec<Arc<[T]>>) -> Self {
        let len = parts.iter().map(|part| part.len()).sum();
        Self { parts, len }
    }

    /// How many items there are in all parts.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Every item, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.parts.iter().flat_map(|part| part.iter())
    }

    /// The number of parts.
    pub(crate) fn count(&self) -> u32 {
        self.parts.len() as u32
    }

    /// One part, as it is sent.
    pub(crate) fn part(&self, number: u32) -> Option<Part<T>> {
        let items = self.parts.get(number as usize)?.clone();
        Some(Part { number, of: self.count(), items })
    }

    /// The item at a place: the number of its part, and its place there.
    pub(crate) fn at(&self, part: u32, place: u32) -> Option<&T> {
        self.parts.get(part as usize)?.get(place as usize)
    }

    pub(crate) fn into_parts(self) -> Vec<Arc<[T]>> {
        self.parts
    }
}

/// A list that is being made, item by item, and cut into parts on the way.
#[derive(Clone, Debug)]
pub(crate) struct Cutter<T> {
    parts: Vec<Arc<[T]>>,
    /// The part that is not full yet, and about how many bytes it has.
    open: Vec<T>,
    size: usize,
}

impl<T> Default for Cutter<T> {
    fn default() -> Self {
        Self { parts: Vec::new(), open: Vec::new(), size: 0 }
    }
}

impl<T> Cutter<T> {
    /// Adds an item of about so many bytes; parts have about `part_bytes`.
    pub fn push(&mut self, item: T, bytes: usize, part_bytes: usize) {
        if self.size > 0 && self.size + bytes > part_bytes {
            self.parts.push(core::mem::take(&mut self.open).into());
            self.size = 0;
        }
        self.size += bytes;
        self.open.push(item);
    }

    /// The whole list: at least one part, also where nothing is listed.
    pub fn finish(mut self) -> Items<T> {
        self.parts.push(self.open.into());
        Items::of(self.parts)
    }
}

/// A list, as far as it has arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arriving<T> {
    parts: Vec<Arc<[T]>>,
    of: Option<u32>,
    /// Arrived ahead of their turn.
    early: BTreeMap<u32, Arc<[T]>>,
    /// Whether something has arrived since it was last asked for.
    moves: bool,
}

impl<T> Default for Arriving<T> {
    fn default() -> Self {
        Self { parts: Vec::new(), of: None, early: BTreeMap::new(), moves: false }
    }
}

impl<T> Arriving<T> {
    /// Takes a part in. Tells whether the sender is to be asked for more.
    pub fn take(&mut self, part: Part<T>) -> bool {
        let of = *self.of.get_or_insert(part.of);
        let expected = part.of == of && part.number < of && of <= MOST_PARTS;
        if !expected || self.is_complete() || part.number >= self.next().saturating_add(WINDOW) {
            return false;
        }
        let before = self.next();
        if part.number < before {
            // A first part that comes again says that the sender does not know how far this is.
            return part.number == 0;
        }
        self.early.insert(part.number, part.items);
        while let Some(items) = self.early.remove(&self.next()) {
            self.parts.push(items);
            self.moves = true;
        }
        !self.is_complete() && before / WINDOW < self.next() / WINDOW
    }

    /// The first part that has not arrived.
    pub fn next(&self) -> u32 {
        self.parts.len() as u32
    }

    pub fn is_complete(&self) -> bool {
        self.of == Some(self.next())
    }

    /// Takes the list out.
    pub fn items(&mut self) -> Items<T> {
        Items::of(core::mem::take(&mut self.parts))
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

    fn cut(list: &[u32]) -> Items<u32> {
        let mut cutter = Cutter::default();
        list.iter().for_each(|&item| cutter.push(item, 4, 10));
        cutter.finish()
    }

    #[test]
    fn a_list_is_there_once_all_of_its_parts_are_in_whatever_order_they_come() {
        let list: Vec<u32> = (0..100).collect();
        let items = cut(&list);
        assert!(items.iter().eq(&list) && items.len() == 100);
        let mut arriving = Arriving::default();
        let mut asked = 0;
        while !arriving.is_complete() {
            let first = arriving.next();
            asked += 1;
            let mut parts: Vec<_> = (first..first + WINDOW).filter_map(|number| items.part(number)).collect();
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
        assert_eq!(arriving.items(), items);
        assert!(asked > 4, "50 parts, 16 at once");
    }

    #[test]
    fn an_empty_list_has_one_part_and_lies_are_not_believed() {
        let mut arriving = Arriving::<u32>::default();
        arriving.take(cut(&[]).part(0).expect("one part"));
        assert!(arriving.is_complete() && arriving.items().is_empty());
        let mut arriving = Arriving::default();
        for (number, of) in [(0, 1 << 30), (5, 5), (9, 1 << 30)] {
            assert!(!arriving.take(Part { number, of, items: Arc::from([1]) }));
        }
        assert!(!arriving.is_complete() && arriving.items().is_empty());
    }
}
