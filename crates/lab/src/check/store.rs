//! Where the states seen so far are kept: packed, each once.
//!
//! A state is a short row of small numbers, its *slots*. A shard writes each slot with as few bytes as its largest
//! value so far needs; when a larger one comes, the whole shard is written anew, which happens a few times at most.
//! States are kept exactly, not as fingerprints: what is not in the store has not been seen.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::{BuildHasher, Hasher};

/// The hash of a state.
#[inline]
pub fn hash_of(slots: &[u32]) -> u64 {
    let mut hasher = FixedState::with_seed(0).build_hasher();
    let (pairs, rest) = slots.as_chunks::<2>();
    for &[low, high] in pairs {
        hasher.write_u64(u64::from(low) | u64::from(high) << 32);
    }
    for &slot in rest {
        hasher.write_u32(slot);
    }
    hasher.finish()
}

/// Room to pack a state in.
type Room = [u8; 4 * MOST_SLOTS + 4];
const ROOM: Room = [0; 4 * MOST_SLOTS + 4];

/// How many bytes each slot takes.
#[derive(Clone, Debug)]
struct Layout {
    widths: Vec<u8>,
    stride: usize,
}

impl Layout {
    fn new(slots: usize) -> Self {
        Self { widths: vec![1; slots], stride: slots }
    }

    fn widen(&mut self, slots: &[u32]) {
        for (width, &slot) in self.widths.iter_mut().zip(slots) {
            *width = (*width).max(bytes_for(slot));
        }
        self.stride = self.widths.iter().map(|&width| usize::from(width)).sum();
    }

    /// Writes a state and returns its length; `None` if a slot does not fit.
    #[inline]
    fn pack(&self, slots: &[u32], room: &mut Room) -> Option<usize> {
        let (mut end, mut left_over) = (0, 0);
        for (&width, &slot) in self.widths.iter().zip(slots) {
            // Four bytes are written whatever the width; the next slot overwrites those that do not count.
            room[end..end + 4].copy_from_slice(&slot.to_le_bytes());
            left_over |= u64::from(slot) >> (8 * width);
            end += usize::from(width);
        }
        (left_over == 0).then_some(end)
    }

    #[inline]
    fn unpack(&self, mut packed: &[u8], slots: &mut [u32]) {
        for (&width, slot) in self.widths.iter().zip(slots) {
            let (bytes, rest) = packed.split_at(usize::from(width));
            *slot = bytes.iter().rev().fold(0, |slot, &byte| slot << 8 | u32::from(byte));
            packed = rest;
        }
    }
}

fn bytes_for(slot: u32) -> u8 {
    match slot {
        0..0x100 => 1,
        0x100..0x1_0000 => 2,
        0x1_0000..0x100_0000 => 3,
        _ => 4,
    }
}

/// What came of putting a state into a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is new.
    New,
    /// It has been seen; this is its number.
    Known(u32),
    /// It has been seen, but some of its tallies have grown now; this is its number.
    Grown(u32),
}

/// A part of the store. States are numbered in the order in which they came.
#[derive(Debug)]
pub struct Shard {
    layout: Layout,
    packed: Vec<u8>,
    tallies: Vec<u8>,
    tallies_each: usize,
    index: HashTable<u32>,
    room: Box<Room>,
}

/// States on their way into the store.
#[derive(Debug, Default)]
pub struct Rows {
    hashes: Vec<u64>,
    states: Vec<u32>,
    tallies: Vec<u8>,
}

impl Rows {
    /// Adds a state.
    #[inline]
    pub fn push(&mut self, hash: u64, slots: &[u32], tallies: &[u8]) {
        self.hashes.push(hash);
        self.states.extend_from_slice(slots);
        self.tallies.extend_from_slice(tallies);
    }

    /// Empties it; its memory stays.
    pub fn clear(&mut self) {
        self.hashes.clear();
        self.states.clear();
        self.tallies.clear();
    }
}

impl Shard {
    /// An empty shard for states of so many slots with so many tallies.
    pub fn new(slots: usize, tallies_each: usize) -> Self {
        Self {
            layout: Layout::new(slots),
            packed: Vec::new(),
            tallies: Vec::new(),
            tallies_each,
            index: HashTable::new(),
            room: Box::new(ROOM),
        }
    }

    /// How many states there are.
    pub fn count(&self) -> u32 {
        self.index.len() as u32
    }

    /// Reads a state.
    #[inline]
    pub fn get(&self, number: u32, slots: &mut [u32]) {
        self.layout.unpack(self.row(number), slots);
    }

    /// The tallies of a state.
    #[inline]
    pub fn tallies(&self, number: u32) -> &[u8] {
        let start = number as usize * self.tallies_each;
        &self.tallies[start..start + self.tallies_each]
    }

    /// The number of a state that has been seen.
    pub fn find(&self, hash: u64, slots: &[u32]) -> Option<u32> {
        let mut room = ROOM;
        let length = self.layout.pack(slots, &mut room)?;
        self.index.find(hash, |&number| *self.row(number) == room[..length]).copied()
    }

    /// Puts states in, or lets the tallies of those that are there grow; `note` is told of each.
    pub fn put_all(&mut self, rows: &Rows, mut note: impl FnMut(Put)) {
        self.warm(&rows.hashes);
        let slots = self.layout.widths.len();
        let tallies = self.tallies_each;
        for (place, (&hash, state)) in rows.hashes.iter().zip(rows.states.chunks_exact(slots)).enumerate() {
            note(self.put(hash, state, &rows.tallies[place * tallies..][..tallies]));
        }
    }

    /// Reads what the states of these hashes will be compared with. One after the other, each would wait for memory
    /// twice; read first, without anything to do in between, the processor waits for many at once.
    fn warm(&self, hashes: &[u64]) {
        let stride = self.layout.stride;
        let mut touched = 0_u8;
        for chunk in hashes.chunks(64) {
            let mut likely = [0; 64];
            for (likely, &hash) in likely.iter_mut().zip(chunk) {
                *likely = self.index.find(hash, |_| true).copied().unwrap_or(0);
            }
            for &number in &likely[..chunk.len()] {
                touched ^= self.packed.get(number as usize * stride).copied().unwrap_or(0);
            }
        }
        std::hint::black_box(touched);
    }

    /// Puts a state in, or lets the tallies of the one that is there grow.
    #[inline]
    pub fn put(&mut self, hash: u64, slots: &[u32], tallies: &[u8]) -> Put {
        let packed_length = match self.layout.pack(slots, &mut self.room) {
            Some(length) => length,
            None => self.widen(slots),
        };
        let Self { layout, packed, index, room, .. } = self;
        let new = &room[..packed_length];
        let stride = layout.stride;
        let row = |number: u32| &packed[number as usize * stride..][..stride];
        if let Some(&number) = index.find(hash, |&number| *row(number) == *new) {
            return self.grow(number, tallies);
        }
        let rehash = |&number: &u32| {
            let mut room = [0; MOST_SLOTS];
            let room = &mut room[..layout.widths.len()];
            layout.unpack(row(number), room);
            hash_of(room)
        };
        index.insert_unique(hash, index.len() as u32, rehash);
        packed.extend_from_slice(new);
        self.tallies.extend_from_slice(tallies);
        Put::New
    }

    #[inline]
    fn grow(&mut self, number: u32, tallies: &[u8]) -> Put {
        let start = number as usize * self.tallies_each;
        let mut grown = false;
        for (old, &new) in self.tallies[start..].iter_mut().zip(tallies) {
            grown |= new > *old;
            *old = new.max(*old);
        }
        if grown { Put::Grown(number) } else { Put::Known(number) }
    }

    #[inline]
    fn row(&self, number: u32) -> &[u8] {
        &self.packed[number as usize * self.layout.stride..][..self.layout.stride]
    }

    /// Writes every state anew with slots wide enough for this one too, and then packs this one. Hashes do not depend on
    /// widths.
    #[cold]
    fn widen(&mut self, slots: &[u32]) -> usize {
        let mut wider = self.layout.clone();
        wider.widen(slots);
        let mut packed = Vec::with_capacity(self.packed.len() / self.layout.stride * wider.stride);
        let (mut state, mut room) = (vec![0; slots.len()], ROOM);
        for row in self.packed.chunks_exact(self.layout.stride) {
            self.layout.unpack(row, &mut state);
            let length = wider.pack(&state, &mut room).expect("wider than before");
            packed.extend_from_slice(&room[..length]);
        }
        (self.packed, self.layout) = (packed, wider);
        self.layout.pack(slots, &mut self.room).expect("wide enough now")
    }

    /// How much memory the states take.
    pub fn bytes(&self) -> usize {
        self.packed.capacity() + self.tallies.capacity() + self.index.allocation_size()
    }
}

/// The most slots that a state may have: 9 sites with all their channels, and some to spare.
pub const MOST_SLOTS: usize = 96;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_survive_being_widened() {
        let mut shard = Shard::new(3, 1);
        let states: Vec<[u32; 3]> =
            (0..300).map(|n| [n, n * 1_000, 7]).chain([[u32::MAX, 0, 1 << 20]]).collect();
        for state in &states {
            assert_eq!(shard.put(hash_of(state), state, &[0]), Put::New);
        }
        for (number, state) in states.iter().enumerate() {
            let mut read = [0; 3];
            shard.get(number as u32, &mut read);
            assert_eq!(read, *state);
            assert_eq!(shard.find(hash_of(state), state), Some(number as u32));
            assert_eq!(shard.put(hash_of(state), state, &[0]), Put::Known(number as u32));
        }
        assert_eq!(shard.put(hash_of(&states[5]), &states[5], &[3]), Put::Grown(5));
        assert_eq!(shard.tallies(5), [3]);
        assert_eq!(shard.find(hash_of(&[9, 9, 9]), &[9, 9, 9]), None);
    }
}
