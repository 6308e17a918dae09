//! A hash index that grows in small steps: a large one has many shards, each of which grows by itself. One table of a
//! million entries would move all of them in the step in which it grows.

use alloc::vec::Vec;
use hashbrown::HashTable;

/// Number of values from which on the index is divided into shards.
const LARGE: usize = 4096;
/// Number of shards: a power of two.
const SHARDS: usize = 1024;

/// A set of values, found by their hashes.
#[derive(Clone, Debug)]
pub(crate) struct Index<T> {
    shards: Vec<HashTable<T>>,
    len: usize,
    /// Capacity that each shard reserves for its first value.
    share: usize,
}

impl<T> Default for Index<T> {
    fn default() -> Self {
        Self { shards: Vec::new(), len: 0, share: 0 }
    }
}

impl<T: Copy> Index<T> {
    /// Creates an index for about `values` values. Shards of equal size would all grow in the same steps, so each of
    /// them reserves room for its share.
    pub fn for_many(values: usize) -> Self {
        if values < LARGE {
            return Self::default();
        }
        let share = values / SHARDS;
        let mut shards = Vec::new();
        shards.resize_with(SHARDS, HashTable::new);
        Self { shards, len: 0, share: share + share / 4 + 16 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// The shard of a hash. `HashTable` uses the lowest and the highest bits of a hash, so this uses bits from the
    /// middle.
    fn shard(&self, hash: u64) -> usize {
        (hash >> 32) as usize & self.shards.len().wrapping_sub(1)
    }

    /// The value with this hash for which `is` returns `true`.
    pub fn find(&self, hash: u64, is: impl Fn(&T) -> bool) -> Option<T> {
        self.shards.get(self.shard(hash))?.find(hash, is).copied()
    }

    /// All values with this hash, and perhaps others.
    pub fn iter_hash(&self, hash: u64) -> impl Iterator<Item = &T> {
        self.shards.get(self.shard(hash)).into_iter().flat_map(move |shard| shard.iter_hash(hash))
    }

    /// Adds a value. `rehash` returns the hash of a value in the index.
    pub fn insert(&mut self, hash: u64, value: T, rehash: impl Fn(&T) -> u64) {
        if self.shards.is_empty() {
            self.shards.push(HashTable::new());
        }
        if self.len == LARGE && self.shards.len() == 1 {
            // The index becomes large: divide the single table, once.
            let all = core::mem::take(&mut self.shards);
            self.shards.resize_with(SHARDS, HashTable::new);
            for &value in all.iter().flatten() {
                let hash = rehash(&value);
                let shard = self.shard(hash);
                self.shards[shard].insert_unique(hash, value, &rehash);
            }
        }
        let shard = self.shard(hash);
        if self.share > 0 && self.shards[shard].capacity() == 0 {
            self.shards[shard].reserve(self.share, &rehash);
        }
        self.shards[shard].insert_unique(hash, value, rehash);
        self.len += 1;
    }

    /// Removes the value with this hash for which `is` returns `true`.
    pub fn remove(&mut self, hash: u64, is: impl Fn(&T) -> bool) {
        let shard = self.shard(hash);
        if let Some(shard) = self.shards.get_mut(shard)
            && let Ok(entry) = shard.find_entry(hash, is)
        {
            entry.remove();
            self.len -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_values_are_found_and_removed_values_are_not() {
        let hash = |value: &u64| value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut index = Index::default();
        for value in 0..3 * LARGE as u64 {
            index.insert(hash(&value), value, hash);
        }
        for value in (0..3 * LARGE as u64).step_by(2) {
            index.remove(hash(&value), |&other| other == value);
        }
        for value in 0..3 * LARGE as u64 {
            let found = index.find(hash(&value), |&other| other == value);
            assert_eq!(found, (value % 2 == 1).then_some(value));
        }
        assert_eq!(index.len(), 3 * LARGE / 2);
    }
}
