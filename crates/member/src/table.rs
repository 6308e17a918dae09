//! The locks that a member knows. They keep their slots when a view starts; the start only makes all instances
//! obsolete. One bit per lock records whether its instance is of the present view. Each chunk records the view that
//! its bits belong to, so a new view clears all bits at once. A lock without local users and without an instance of
//! the present view counts as unknown, and is removed later in small steps.

use crate::chunks::ChunkedList;
use crate::index::Index;
use crate::lock::{Active, Lock};
use crate::{LockName, StartHold};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hash};
use foldhash::fast::FixedState;
use lockkeeper_core::MutualExclusion;

/// Number of locks in a chunk. Growing the table adds chunks, and copies nothing.
const CHUNK: usize = 1024;
const KINDS: usize = CHUNK / 64;

/// Most allocations of idle locks that are kept for reuse.
const MOST_SPARE: usize = 1024;

/// A lock's slot in the table. It does not change while a client of this member uses the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LockId(u32);

impl LockId {
    fn new(chunk: usize, slot: usize) -> Self {
        let number = u32::try_from(chunk * CHUNK + slot);
        Self(number.expect("a table has fewer than 2^32 slots"))
    }

    fn chunk(self) -> usize {
        self.0 as usize / CHUNK
    }

    fn slot(self) -> usize {
        self.0 as usize % CHUNK
    }
}

/// A fixed-size piece of the table.
#[derive(Clone, Debug)]
struct Chunk<P: MutualExclusion> {
    locks: Vec<Lock<P>>,
    /// The slots with an instance of the view with number `view`, one bit each.
    view: u64,
    fresh: [u64; KINDS],
    /// The free slots below `locks.len()`, one bit each.
    vacant: [u64; KINDS],
    live: usize,
    /// Whether the chunk is in the list of chunks with a free slot.
    is_roomy: bool,
}

/// All locks of a member.
#[derive(Clone, Debug)]
pub(crate) struct Locks<P: MutualExclusion> {
    /// Seeded with the member's incarnation, so that no client can choose colliding names. The index is never
    /// iterated.
    hasher: FixedState,
    index: Index<LockId>,
    chunks: Vec<Chunk<P>>,
    /// Chunks with a free slot.
    roomy: Vec<usize>,
    /// The name in a free slot.
    nothing: LockName,
    /// Number of views that have started here.
    view: u64,
    /// Number of locks with an instance of the present view.
    fresh: usize,
    /// The next slot to check for an obsolete lock.
    sweep: Option<LockId>,
    /// Number of locks that clients of this member have requested in this view, or used when it started.
    own: usize,
    /// Locks with local holds, waiters or requests to the algorithm, in arbitrary order.
    active: Vec<LockId>,
    /// Boxed: the allocations are reused for other locks.
    #[expect(clippy::vec_box)]
    spare: Vec<Box<Active>>,
    /// The holds at the start of the view, and an index from a lock to its holds: chunk number, and index in the
    /// chunk.
    start_holds: ChunkedList<StartHold>,
    start_index: Index<(u32, u32)>,
}

impl<P: MutualExclusion> Locks<P> {
    pub fn new(seed: u64) -> Self {
        Self {
            hasher: FixedState::with_seed(seed),
            index: Index::default(),
            chunks: Vec::new(),
            roomy: Vec::new(),
            nothing: LockName::new(""),
            view: 0,
            fresh: 0,
            sweep: None,
            own: 0,
            active: Vec::new(),
            spare: Vec::new(),
            start_holds: ChunkedList::default(),
            start_index: Index::default(),
        }
    }

    /// Begins a view with `used` locks in use here. All instances are obsolete from now on.
    pub fn next_view(&mut self, used: usize) {
        self.view += 1;
        self.fresh = 0;
        self.own = used;
        self.sweep = (self.index.len() > used).then_some(LockId(0));
    }

    pub fn get(&self, id: LockId) -> &Lock<P> {
        &self.chunks[id.chunk()].locks[id.slot()]
    }

    pub fn get_mut(&mut self, id: LockId) -> &mut Lock<P> {
        &mut self.chunks[id.chunk()].locks[id.slot()]
    }

    /// Whether the lock's instance is of the present view.
    pub fn is_fresh(&self, id: LockId) -> bool {
        let chunk = &self.chunks[id.chunk()];
        chunk.view == self.view && is_set(&chunk.fresh, id.slot())
    }

    /// Marks the lock as having an instance of the present view, and drops an obsolete one.
    pub fn renew(&mut self, id: LockId) {
        if !self.is_fresh(id) {
            self.fresh += 1;
            let chunk = &mut self.chunks[id.chunk()];
            if chunk.view != self.view {
                chunk.view = self.view;
                chunk.fresh = [0; KINDS];
            }
            chunk.fresh[id.slot() / 64] |= 1 << (id.slot() % 64);
            chunk.locks[id.slot()].instance = None;
        }
    }

    /// Whether the slot exists and its lock has local users.
    fn is_used(&self, id: LockId) -> bool {
        self.chunks
            .get(id.chunk())
            .and_then(|chunk| chunk.locks.get(id.slot()))
            .is_some_and(|lock| lock.active.is_some())
    }

    /// The lock with this name, if it is known in the present view.
    pub fn find(&self, name: &LockName) -> Option<LockId> {
        self.place(name).filter(|&id| self.is_fresh(id) || self.is_used(id))
    }

    /// The slot of this name, also if the lock counts as unknown.
    fn place(&self, name: &LockName) -> Option<LockId> {
        let hash = self.hasher.hash_one(Key(name));
        self.index.find(hash, |&id| self.get(id).name == *name)
    }

    /// The lock with this name, created if it is new.
    pub fn entry(&mut self, name: &LockName) -> LockId {
        if let Some(id) = self.place(name) {
            return id;
        }
        let id = self.make(name);
        let hash = self.hasher.hash_one(Key(name));
        let (chunks, hasher) = (&self.chunks, &self.hasher);
        let rehash = |id: &LockId| hasher.hash_one(Key(&chunks[id.chunk()].locks[id.slot()].name));
        self.index.insert(hash, id, rehash);
        id
    }

    /// Creates a lock in a free slot.
    fn make(&mut self, name: &LockName) -> LockId {
        if self.roomy.is_empty() {
            // The first chunk grows with its locks, because most members know few.
            let size = if self.chunks.is_empty() { 0 } else { CHUNK };
            self.roomy.push(self.chunks.len());
            self.chunks.push(Chunk {
                locks: Vec::with_capacity(size),
                view: self.view,
                fresh: [0; KINDS],
                vacant: [0; KINDS],
                live: 0,
                is_roomy: true,
            });
        }
        let number = *self.roomy.last().expect("a chunk with a free slot was added above");
        let chunk = &mut self.chunks[number];
        let free = chunk.vacant.iter().position(|&word| word != 0);
        let slot = match free {
            Some(word) => word * 64 + chunk.vacant[word].trailing_zeros() as usize,
            None => chunk.locks.len(),
        };
        let lock = Lock::new(name.clone());
        if free.is_some() {
            chunk.vacant[slot / 64] &= !(1 << (slot % 64));
            chunk.locks[slot] = lock;
        } else {
            chunk.locks.push(lock);
        }
        chunk.live += 1;
        if chunk.live == CHUNK {
            chunk.is_roomy = false;
            self.roomy.pop();
        }
        LockId::new(number, slot)
    }

    /// The lock with this name, created for a client of this member if it is new in this view.
    pub fn own_entry(&mut self, name: &LockName) -> LockId {
        let id = self.entry(name);
        self.own += usize::from(!self.is_fresh(id) && !self.is_used(id));
        id
    }

    /// Number of locks that clients of this member have requested in this view, or used when it started.
    pub fn own_count(&self) -> usize {
        self.own
    }

    /// Number of locks with local holds, waiters or requests to the algorithm.
    pub fn active_count(&self) -> usize {
        self.active.len()
    }

    /// Whether the lock is known, or can be added to a table of at most `most` locks.
    pub fn has_room_for(&self, name: &LockName, most: usize) -> bool {
        self.fresh < most || self.find(name).is_some()
    }

    /// Checks up to `most` slots, and removes the locks that count as unknown. Returns the number of checked slots.
    pub fn sweep(&mut self, most: usize) -> usize {
        let Some(first) = self.sweep else { return 0 };
        let (mut number, mut slot) = (first.chunk(), first.slot());
        for looked in 0..most {
            while self.chunks.get(number).is_some_and(|chunk| slot >= chunk.locks.len()) {
                (number, slot) = (number + 1, 0);
            }
            if number >= self.chunks.len() {
                self.sweep = None;
                return looked;
            }
            let id = LockId::new(number, slot);
            if !is_set(&self.chunks[number].vacant, slot) && !self.is_fresh(id) && !self.is_used(id) {
                self.forget(id);
            }
            slot += 1;
        }
        // The chunk may have been emptied in the loop.
        let last = self.chunks.get(number).map_or(0, |chunk| chunk.locks.len());
        self.sweep = Some(if slot < last { LockId::new(number, slot) } else { LockId::new(number + 1, 0) });
        most
    }

    /// Removes a lock and frees its slot.
    fn forget(&mut self, id: LockId) {
        let hash = self.hasher.hash_one(Key(&self.get(id).name));
        self.index.remove(hash, |&other| other == id);
        let nothing = self.nothing.clone();
        let chunk = &mut self.chunks[id.chunk()];
        chunk.live -= 1;
        chunk.vacant[id.slot() / 64] |= 1 << (id.slot() % 64);
        chunk.locks[id.slot()] = Lock::new(nothing);
        if chunk.live == 0 {
            chunk.locks = Vec::new();
            chunk.vacant = [0; KINDS];
            chunk.fresh = [0; KINDS];
        }
        if !chunk.is_roomy {
            chunk.is_roomy = true;
            self.roomy.push(id.chunk());
        }
    }

    /// The lock's queue and holds, created if the lock was idle.
    pub fn activate(&mut self, id: LockId) -> &mut Active {
        if self.get(id).active.is_none() {
            let mut active = self.spare.pop().unwrap_or_default();
            active.place = self.active.len();
            active.begin_view();
            self.active.push(id);
            self.get_mut(id).active = Some(active);
        }
        self.get_mut(id).active.as_mut().expect("it was set above")
    }

    /// Removes a lock's queue and holds.
    pub fn deactivate(&mut self, id: LockId) {
        let Some(active) = self.get_mut(id).active.take() else { return };
        self.active.swap_remove(active.place);
        if let Some(&moved) = self.active.get(active.place)
            && let Some(other) = &mut self.get_mut(moved).active
        {
            other.place = active.place;
        }
        if self.spare.len() < MOST_SPARE && active.is_small() {
            self.spare.push(active);
        }
    }

    /// Removes a lock's queue and holds if the lock is idle.
    pub fn rest(&mut self, id: LockId) {
        if self.get(id).active.as_ref().is_some_and(|active| active.is_at_rest()) {
            self.deactivate(id);
        }
    }

    /// Sets the holds at the start of a view, to be indexed by [`Self::index_start`]. Returns those of the previous
    /// view.
    pub fn set_start_holds(&mut self, holds: ChunkedList<StartHold>) -> ChunkedList<StartHold> {
        self.start_index = Index::for_many(holds.len());
        core::mem::replace(&mut self.start_holds, holds)
    }

    /// Indexes one hold of the start. Returns whether it exists.
    pub fn index_start(&mut self, chunk: u32, place: u32) -> bool {
        let (holds, hasher) = (&self.start_holds, &self.hasher);
        let Some(held) = holds.at(chunk, place) else { return false };
        let rehash = |&(chunk, place): &(u32, u32)| {
            holds.at(chunk, place).map_or(0, |held| hasher.hash_one(Key(&held.lock)))
        };
        self.start_index.insert(hasher.hash_one(Key(&held.lock)), (chunk, place), rehash);
        true
    }

    /// The holders of a lock at the start of the view.
    pub fn holders_at_start(&self, id: LockId) -> impl Iterator<Item = &StartHold> {
        let name = &self.get(id).name;
        let places = self.start_index.iter_hash(self.hasher.hash_one(Key(name)));
        places
            .filter_map(|&(chunk, place)| self.start_holds.at(chunk, place))
            .filter(move |held| held.lock == *name)
    }

    /// All holds at the start of the view.
    pub fn start_holds(&self) -> &ChunkedList<StartHold> {
        &self.start_holds
    }

    /// The active lock with this index.
    pub fn active_at(&self, place: usize) -> Option<(LockId, &LockName, &Active)> {
        let id = *self.active.get(place)?;
        let lock = self.get(id);
        Some((id, &lock.name, lock.active.as_deref()?))
    }

    /// The queue and holds of a lock that may be idle, or removed.
    pub fn used_mut(&mut self, id: LockId) -> Option<&mut Active> {
        self.chunks.get_mut(id.chunk())?.locks.get_mut(id.slot())?.active.as_deref_mut()
    }
}

fn is_set(bits: &[u64; KINDS], slot: usize) -> bool {
    bits[slot / 64] >> (slot % 64) & 1 == 1
}

/// Hashes the name without its length, because names rarely differ in the length alone.
struct Key<'a>(&'a LockName);

impl Hash for Key<'_> {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        state.write(self.0.name.as_bytes());
    }
}
