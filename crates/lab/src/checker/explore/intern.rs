//! Interning and memoisation: values that occur often are stored once and identified by a small integer.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use smallvec::SmallVec;
use std::hash::{BuildHasher, Hash};

/// A table of distinct values, numbered in the order of insertion.
#[derive(Debug)]
pub struct Interner<T> {
    items: Vec<T>,
    index: HashTable<u32>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { items: Vec::new(), index: HashTable::new() }
    }
}

impl<T: Eq + Hash> Interner<T> {
    /// The number of a value; inserts it if it is new.
    pub fn number(&mut self, item: T) -> u32 {
        let hash = hash(&item);
        let items = &self.items;
        if let Some(&number) = self.index.find(hash, |&number| items[number as usize] == item) {
            return number;
        }
        let number = u32::try_from(self.items.len()).expect("fewer than 2^32 distinct values");
        self.index.insert_unique(hash, number, |&number| self::hash(&items[number as usize]));
        self.items.push(item);
        number
    }

    /// The number of a value; inserts a copy of it if it is new.
    pub fn number_of(&mut self, item: &T) -> u32
    where
        T: Clone,
    {
        let items = &self.items;
        match self.index.find(hash(item), |&number| items[number as usize] == *item) {
            Some(&number) => number,
            None => self.number(item.clone()),
        }
    }

    /// The value with this number.
    pub fn get(&self, number: u32) -> &T {
        &self.items[number as usize]
    }
}

fn hash<T: Hash>(item: &T) -> u64 {
    FixedState::with_seed(0).hash_one(item)
}

/// A memo table from pairs of numbers to a number. Each left number occurs with few right ones, so a row is
/// searched linearly.
#[derive(Debug, Default)]
pub struct Memo {
    by_left: Vec<SmallVec<[(u32, u32); 3]>>,
}

impl Memo {
    /// The result for a pair, if it is known.
    #[inline]
    pub fn get(&self, left: u32, right: u32) -> Option<u32> {
        let known = self.by_left.get(left as usize)?;
        known.iter().find(|(other, _)| *other == right).map(|(_, value)| *value)
    }

    /// Stores the result for a pair.
    pub fn insert(&mut self, left: u32, right: u32, value: u32) {
        let left = left as usize;
        if self.by_left.len() <= left {
            self.by_left.resize(left + 1, SmallVec::new());
        }
        self.by_left[left].push((right, value));
    }

    /// All entries: left, right, result.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32, u32)> + '_ {
        let rows = self.by_left.iter().enumerate();
        rows.flat_map(|(left, row)| row.iter().map(move |&(right, value)| (left as u32, right, value)))
    }
}

/// A memo table from a number to a value.
#[derive(Debug)]
pub struct Known<T> {
    values: Vec<Option<T>>,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self { values: Vec::new() }
    }
}

impl<T> Known<T> {
    /// The value for a number, if it is known.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        self.values.get(number as usize)?.as_ref()
    }

    /// Stores the value for a number.
    pub fn insert(&mut self, number: u32, value: T) -> &T {
        let place = number as usize;
        if self.values.len() <= place {
            self.values.resize_with(place + 1, || None);
        }
        self.values[place].insert(value)
    }

    /// All entries.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> + '_ {
        let values = self.values.iter().enumerate();
        values.filter_map(|(number, value)| Some((number as u32, value.as_ref()?)))
    }
}
