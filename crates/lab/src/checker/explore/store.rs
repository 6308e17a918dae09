//! The store of visited states: packed, each state once.
//!
//! A state is a short row of small integers, its *slots*. A shard stores each slot in as few bytes as its
//! largest value so far needs. When a larger value comes, the whole shard is rewritten; that happens a few
//! times at most. States are stored exactly and not as fingerprints, so a state that is not in the store has
//! not been visited.
//!
//! Example: with the widths 1, 2, 1 the state `[7, 300, 2]` takes four bytes: `07 2C 01 02`.

use super::rows::Rows;
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

/// A buffer to pack a state in.
type PackBuffer = [u8; 4 * MOST_SLOTS + 4];
const EMPTY_BUFFER: PackBuffer = [0; 4 * MOST_SLOTS + 4];

/// The width of each slot, in bytes.
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

    /// Packs a state and returns its length; `None` if a slot does not fit.
    #[inline]
    fn pack(&self, slots: &[u32], buffer: &mut PackBuffer) -> Option<usize> {
        let (mut end, mut left_over) = (0, 0);
        for (&width, &slot) in self.widths.iter().zip(slots) {
            // Always writes four bytes; the next slot overwrites those beyond the width.
            buffer[end..end + 4].copy_from_slice(&slot.to_le_bytes());
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

/// The result of inserting a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// The state is new.
    New,
    /// The state was present, with this number.
    Known(u32),
    /// The state was present, with this number, and some of its tallies increased.
    Grown(u32),
}

/// Number of hash tables in the index of a shard. A full table is copied into one of twice the size. With
/// several tables, only one of them exists twice at a time.
const TABLES: usize = 16;

#[inline]
fn table_of(hash: u64) -> usize {
    // Bits that select neither the shard nor the place within a table.
    (hash >> 48) as usize % TABLES
}

/// A part of the store. States are numbered in the order of insertion.
#[derive(Debug)]
pub struct Shard {
    layout: Layout,
    count: u32,
    packed: Rows,
    tallies: Rows,
    index: [HashTable<u32>; TABLES],
    buffer: Box<PackBuffer>,
}

/// States to be inserted into the store.
#[derive(Debug, Default)]
pub struct Incoming {
    hashes: Vec<u64>,
    states: Vec<u32>,
    tallies: Vec<u8>,
}

impl Incoming {
    /// Adds a state.
    #[inline]
    pub fn push(&mut self, hash: u64, slots: &[u32], tallies: &[u8]) {
        self.hashes.push(hash);
        self.states.extend_from_slice(slots);
        self.tallies.extend_from_slice(tallies);
    }

    /// Removes all states; keeps the memory.
    pub fn clear(&mut self) {
        self.hashes.clear();
        self.states.clear();
        self.tallies.clear();
    }
}

impl Shard {
    /// An empty shard for states of `slots` slots and `tallies_each` tallies.
    pub fn new(slots: usize, tallies_each: usize) -> Self {
        Self {
            layout: Layout::new(slots),
            count: 0,
            packed: Rows::new(slots),
            tallies: Rows::new(tallies_each),
            index: std::array::from_fn(|_| HashTable::new()),
            buffer: Box::new(EMPTY_BUFFER),
        }
    }

    /// Number of states.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Reads the state with this number.
    #[inline]
    pub fn get(&self, number: u32, slots: &mut [u32]) {
        self.layout.unpack(self.packed.get(number), slots);
    }

    /// The tallies of a state.
    #[inline]
    pub fn tallies(&self, number: u32) -> &[u8] {
        self.tallies.get(number)
    }

    /// The number of a state, if it is present.
    pub fn find(&self, hash: u64, slots: &[u32]) -> Option<u32> {
        let mut buffer = EMPTY_BUFFER;
        let length = self.layout.pack(slots, &mut buffer)?;
        self.index[table_of(hash)].find(hash, |&number| *self.packed.get(number) == buffer[..length]).copied()
    }

    /// Inserts states, or increases the tallies of those that are present; calls `note` with each result.
    pub fn put_all(&mut self, rows: &Incoming, mut note: impl FnMut(Insertion)) {
        self.warm(&rows.hashes);
        let slots = self.layout.widths.len();
        let tallies = self.tallies.length();
        for (place, (&hash, state)) in rows.hashes.iter().zip(rows.states.chunks_exact(slots)).enumerate() {
            note(self.put(hash, state, &rows.tallies[place * tallies..][..tallies]));
        }
    }

    /// Reads the memory that the states with these hashes will be compared with. A lookup waits for memory
    /// twice. Reading ahead, with no dependent work in between, lets the processor wait for many lookups at
    /// once.
    fn warm(&self, hashes: &[u64]) {
        let mut touched = 0_u8;
        for chunk in hashes.chunks(64) {
            let mut likely = [0; 64];
            for (likely, &hash) in likely.iter_mut().zip(chunk) {
                *likely = self.index[table_of(hash)].find(hash, |_| true).copied().unwrap_or(0);
            }
            for &number in &likely[..chunk.len()] {
                touched ^= self.packed.peek(number).unwrap_or(0);
            }
        }
        std::hint::black_box(touched);
    }

    /// Inserts a state, or increases the tallies if it is present.
    #[inline]
    pub fn put(&mut self, hash: u64, slots: &[u32], tallies: &[u8]) -> Insertion {
        let packed_length = match self.layout.pack(slots, &mut self.buffer) {
            Some(length) => length,
            None => self.widen(slots),
        };
        let Self { layout, packed, index, buffer, .. } = self;
        let (new, index) = (&buffer[..packed_length], &mut index[table_of(hash)]);
        if let Some(&number) = index.find(hash, |&number| *packed.get(number) == *new) {
            return self.grow(number, tallies);
        }
        let rehash = |&number: &u32| {
            let mut buffer = [0; MOST_SLOTS];
            let buffer = &mut buffer[..layout.widths.len()];
            layout.unpack(packed.get(number), buffer);
            hash_of(buffer)
        };
        index.insert_unique(hash, self.count, rehash);
        self.count += 1;
        packed.push(new);
        self.tallies.push(tallies);
        Insertion::New
    }

    #[inline]
    fn grow(&mut self, number: u32, tallies: &[u8]) -> Insertion {
        let mut grown = false;
        for (old, &new) in self.tallies.get_mut(number).iter_mut().zip(tallies) {
            grown |= new > *old;
            *old = new.max(*old);
        }
        if grown { Insertion::Grown(number) } else { Insertion::Known(number) }
    }

    /// Rewrites every state with slots that are wide enough for this state, too, and then packs this one.
    /// Hashes do not depend on the widths.
    #[cold]
    fn widen(&mut self, slots: &[u32]) -> usize {
        let mut wider = self.layout.clone();
        wider.widen(slots);
        let (mut state, mut buffer) = (vec![0; slots.len()], EMPTY_BUFFER);
        self.packed.rewrite(wider.stride, |row, rewritten| {
            self.layout.unpack(row, &mut state);
            let length = wider.pack(&state, &mut buffer).expect("wider than before");
            rewritten.extend_from_slice(&buffer[..length]);
        });
        self.layout = wider;
        self.layout.pack(slots, &mut self.buffer).expect("wide enough now")
    }

    /// Memory used by the states, in bytes.
    pub fn bytes(&self) -> usize {
        let index: usize = self.index.iter().map(HashTable::allocation_size).sum();
        self.packed.bytes() + self.tallies.bytes() + index
    }
}

/// The maximum number of slots of a state: 9 sites with all their channels need 83.
pub const MOST_SLOTS: usize = 96;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_can_be_read_after_their_slots_are_widened() {
        let mut shard = Shard::new(3, 1);
        let states: Vec<[u32; 3]> =
            (0..20_000).map(|n| [n, n * 1_000, 7]).chain([[u32::MAX, 0, 1 << 20]]).collect();
        for state in &states {
            assert_eq!(shard.put(hash_of(state), state, &[0]), Insertion::New);
        }
        for (number, state) in states.iter().enumerate() {
            let mut read = [0; 3];
            shard.get(number as u32, &mut read);
            assert_eq!(read, *state);
            assert_eq!(shard.find(hash_of(state), state), Some(number as u32));
            assert_eq!(shard.put(hash_of(state), state, &[0]), Insertion::Known(number as u32));
        }
        assert_eq!(shard.put(hash_of(&states[5]), &states[5], &[3]), Insertion::Grown(5));
        assert_eq!(shard.tallies(5), [3]);
        assert_eq!(shard.find(hash_of(&[9, 9, 9]), &[9, 9, 9]), None);
    }
}
