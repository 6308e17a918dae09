//! The locks that a member knows in one view. The next view has a table of its own, which takes over the locks that somebody here
//! holds or waits for; so no view change walks through the others.

use crate::lock::{Active, Lock};
use crate::{Held, LockName};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hash};
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use lockkeeper_core::MutualExclusion;

/// Locks are kept in chunks of so many: a table that grows copies nothing, and goes chunk by chunk.
const CHUNK: usize = 1024;

/// How many resting locks' queues are kept for others.
const MOST_SPARE: usize = 1024;

/// A lock's number in its table, in the order of first use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LockId(u32);

/// A part of a table that is not needed any more.
pub(crate) type Chunk<P> = Vec<Lock<P>>;

/// All locks of one view.
#[derive(Clone, Debug)]
pub(crate) struct Locks<P: MutualExclusion> {
    /// Nobody outside can know which names collide, since the seed is the member's incarnation. Nothing iterates over the index.
    hasher: FixedState,
    index: HashTable<LockId>,
    chunks: Vec<Chunk<P>>,
    /// How many locks clients of this member brought, or used already when the view started.
    own: usize,
    /// Locks at which somebody here holds, waits, or has asked, in no order that means anything.
    active: Vec<LockId>,
    /// Boxed, as they go from lock to lock.
    #[expect(clippy::vec_box)]
    spare: Vec<Box<Active>>,
    /// Who held what when the view started, and where to find a lock there.
    start_holds: Vec<Held>,
    start_index: HashTable<u32>,
}

impl<P: MutualExclusion> Locks<P> {
    pub fn new(seed: u64) -> Self {
        Self {
            hasher: FixedState::with_seed(seed),
            index: HashTable::new(),
            chunks: Vec::new(),
            own: 0,
            active: Vec::new(),
            spare: Vec::new(),
            start_holds: Vec::new(),
            start_index: HashTable::new(),
        }
    }

    /// An empty table for the next view.
    pub fn next(&self) -> Self {
        Self { hasher: self.hasher.clone(), ..Self::new(0) }
    }

    /// What is left of a table after its active locks were taken over.
    pub fn into_chunks(self) -> Vec<Chunk<P>> {
        self.chunks
    }

    pub fn get(&self, id: LockId) -> &Lock<P> {
        &self.chunks[id.0 as usize / CHUNK][id.0 as usize % CHUNK]
    }

    pub fn get_mut(&mut self, id: LockId) -> &mut Lock<P> {
        &mut self.chunks[id.0 as usize / CHUNK][id.0 as usize % CHUNK]
    }

    pub fn find(&self, name: &LockName) -> Option<LockId> {
        let hash = self.hasher.hash_one(Key(name));
        self.index.find(hash, |&id| self.get(id).name == *name).copied()
    }

    /// The lock of that name, made if it is new.
    pub fn entry(&mut self, name: &LockName) -> LockId {
        let hash = self.hasher.hash_one(Key(name));
        let (chunks, hasher) = (&self.chunks, &self.hasher);
        let at = |id: LockId| &chunks[id.0 as usize / CHUNK][id.0 as usize % CHUNK].name;
        match self.index.entry(hash, |&id| at(id) == name, |&id| hasher.hash_one(Key(at(id)))) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let full = chunks.last().is_none_or(|chunk| chunk.len() == CHUNK);
                let number = (chunks.len() - usize::from(!full)) * CHUNK
                    + chunks.last().filter(|_| !full).map_or(0, Vec::len);
                let id = LockId(u32::try_from(number).expect("four thousand million locks fit no machine"));
                new.insert(id);
                if full {
                    // The first chunk grows with its locks: most members know few.
                    let size = if self.chunks.is_empty() { 0 } else { CHUNK };
                    self.chunks.push(Vec::with_capacity(size));
                }
                self.chunks.last_mut().expect("there is one now").push(Lock::new(name.clone()));
                id
            }
        }
    }

    /// The lock of that name, made for a client of this member if it is new.
    pub fn own_entry(&mut self, name: &LockName) -> LockId {
        let before = self.index.len();
        let id = self.entry(name);
        self.own += self.index.len() - before;
        id
    }

    /// How many locks clients of this member brought, or used already when the view started.
    pub fn own_count(&self) -> usize {
        self.own
    }

    /// At how many locks somebody here holds, waits, or has asked.
    pub fn active_count(&self) -> usize {
        self.active.len()
    }

    /// Whether the lock is known, or can be, where there are to be so many at most.
    pub fn has_room_for(&self, name: &LockName, most: usize) -> bool {
        self.index.len() < most || self.find(name).is_some()
    }

    /// The lock's queue and holds; made if it was at rest.
    pub fn activate(&mut self, id: LockId) -> &mut Active {
        if self.get(id).active.is_none() {
            let mut active = self.spare.pop().unwrap_or_default();
            active.place = self.active.len();
            self.active.push(id);
            self.get_mut(id).activate(active);
        }
        self.get_mut(id).active.as_mut().expect("it is there now")
    }

    /// Takes a lock's queue and holds away.
    pub fn deactivate(&mut self, id: LockId) -> Option<Box<Active>> {
        let active = self.get_mut(id).active.take()?;
        self.active.swap_remove(active.place);
        if let Some(&moved) = self.active.get(active.place)
            && let Some(other) = &mut self.get_mut(moved).active
        {
            other.place = active.place;
        }
        Some(active)
    }

    /// Puts a lock's queue and holds aside, if nobody here has anything to do with it any more.
    pub fn rest(&mut self, id: LockId) {
        if self.get(id).active.as_ref().is_some_and(|active| active.is_at_rest())
            && let Some(active) = self.deactivate(id)
            && self.spare.len() < MOST_SPARE
        {
            self.spare.push(active);
        }
    }

    /// Gives a lock the holders and waiters that it had in the table before.
    pub fn adopt(&mut self, id: LockId, mut active: Box<Active>) {
        active.place = self.active.len();
        self.active.push(id);
        self.get_mut(id).activate(active);
    }

    /// The table knows who held what when its view started.
    pub fn held_at_start(&mut self, holds: Vec<Held>) {
        self.start_holds = holds;
        let (holds, hasher) = (&self.start_holds, &self.hasher);
        let hash = |&place: &u32| hasher.hash_one(Key(&holds[place as usize].lock));
        self.start_index.reserve(holds.len(), hash);
        for place in 0..holds.len() as u32 {
            self.start_index.insert_unique(hash(&place), place, hash);
        }
    }

    /// Who held a lock when the view started.
    pub fn holders_at_start(&self, id: LockId) -> impl Iterator<Item = &Held> {
        let name = &self.get(id).name;
        let places = self.start_index.iter_hash(self.hasher.hash_one(Key(name)));
        places.map(|&place| &self.start_holds[place as usize]).filter(move |held| held.lock == *name)
    }

    /// Who held anything when the view started.
    pub fn start_holds(&self) -> &[Held] {
        &self.start_holds
    }

    /// The locks at which somebody here holds or waits.
    pub fn active(&self) -> impl Iterator<Item = (LockId, &LockName, &Active)> {
        self.active.iter().filter_map(|&id| {
            let lock = self.get(id);
            Some((id, &lock.name, lock.active.as_deref()?))
        })
    }
}

/// Hashed without the length: names rarely differ in that alone.
struct Key<'a>(&'a LockName);

impl Hash for Key<'_> {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        state.write(self.0.name.as_bytes());
    }
}
