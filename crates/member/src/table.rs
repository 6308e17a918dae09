//! The locks that a member knows. They stay in their places when a view starts; what matters is whether a lock's instance is of the
//! present view. One bit for each lock tells that, and all bits are cleared at once. Locks that nobody here uses and that
//! have no instance of the present view count as unknown, and go bit by bit.

use crate::index::Index;
use crate::lock::{Active, Lock};
use crate::parts::Items;
use crate::{Held, LockName};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hash};
use foldhash::fast::FixedState;
use lockkeeper_core::MutualExclusion;

/// Locks are kept in chunks of so many: a table that grows copies nothing.
const CHUNK: usize = 1024;
const WORDS: usize = CHUNK / 64;

/// How many resting locks' queues are kept for others.
const MOST_SPARE: usize = 1024;

/// A lock's place in the table. It stays the same for as long as somebody here uses the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LockId(u32);

impl LockId {
    fn new(chunk: usize, slot: usize) -> Self {
        let number = u32::try_from(chunk * CHUNK + slot);
        Self(number.expect("four thousand million locks fit no machine"))
    }

    fn chunk(self) -> usize {
        self.0 as usize / CHUNK
    }

    fn slot(self) -> usize {
        self.0 as usize % CHUNK
    }
}

/// A part of the table.
#[derive(Clone, Debug)]
struct Chunk<P: MutualExclusion> {
    locks: Vec<Lock<P>>,
    /// Which slots have an instance of the view with that number, one bit each.
    view: u64,
    fresh: [u64; WORDS],
    /// Which slots below `locks.len()` are free, one bit each.
    vacant: [u64; WORDS],
    live: usize,
    /// Whether it is among those with room.
    is_roomy: bool,
}

/// All locks.
#[derive(Clone, Debug)]
pub(crate) struct Locks<P: MutualExclusion> {
    /// Nobody outside can know which names collide, since the seed is the member's incarnation. Nothing iterates over the index.
    hasher: FixedState,
    index: Index<LockId>,
    chunks: Vec<Chunk<P>>,
    /// Chunks with room for another lock.
    roomy: Vec<usize>,
    /// The name of a place that is free.
    nothing: LockName,
    /// Counts views.
    view: u64,
    /// How many locks have an instance of the present view.
    fresh: usize,
    /// Where the search for locks that count as unknown goes on.
    sweep: Option<LockId>,
    /// How many locks clients of this member brought, or used already when the view started.
    own: usize,
    /// Locks at which somebody here holds, waits, or has asked, in no order that means anything.
    active: Vec<LockId>,
    /// Boxed, as they go from lock to lock.
    #[expect(clippy::vec_box)]
    spare: Vec<Box<Active>>,
    /// Who held what when the view started, and where to find a lock there: the number of its part, and its place in that.
    start_holds: Items<Held>,
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
            start_holds: Items::default(),
            start_index: Index::default(),
        }
    }

    /// A view starts, with so many locks in use here: all instances are of older views from now on.
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

    /// The lock is to have an instance of the present view: one of an older view goes.
    pub fn renew(&mut self, id: LockId) {
        if !self.is_fresh(id) {
            self.fresh += 1;
            let chunk = &mut self.chunks[id.chunk()];
            if chunk.view != self.view {
                chunk.view = self.view;
                chunk.fresh = [0; WORDS];
            }
            chunk.fresh[id.slot() / 64] |= 1 << (id.slot() % 64);
            chunk.locks[id.slot()].instance = None;
        }
    }

    fn is_used(&self, id: LockId) -> bool {
        self.chunks
            .get(id.chunk())
            .and_then(|chunk| chunk.locks.get(id.slot()))
            .is_some_and(|lock| lock.active.is_some())
    }

    /// The lock of that name, if it counts as known in the present view.
    pub fn find(&self, name: &LockName) -> Option<LockId> {
        self.place(name).filter(|&id| self.is_fresh(id) || self.is_used(id))
    }

    fn place(&self, name: &LockName) -> Option<LockId> {
        let hash = self.hasher.hash_one(Key(name));
        self.index.find(hash, |&id| self.get(id).name == *name)
    }

    /// The lock of that name, made if it is new.
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

    /// A lock in a free place.
    fn make(&mut self, name: &LockName) -> LockId {
        if self.roomy.is_empty() {
            // The first chunk grows with its locks: most members know few.
            let size = if self.chunks.is_empty() { 0 } else { CHUNK };
            self.roomy.push(self.chunks.len());
            self.chunks.push(Chunk {
                locks: Vec::with_capacity(size),
                view: self.view,
                fresh: [0; WORDS],
                vacant: [0; WORDS],
                live: 0,
                is_roomy: true,
            });
        }
        let number = *self.roomy.last().expect("there is one now");
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

    /// The lock of that name, made for a client of this member if it is new in this view.
    pub fn own_entry(&mut self, name: &LockName) -> LockId {
        let id = self.entry(name);
        self.own += usize::from(!self.is_fresh(id) && !self.is_used(id));
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
        self.fresh < most || self.find(name).is_some()
    }

    /// Forgets locks that count as unknown; looks at so many. Gives how many it looked at.
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
        // The chunk may have been emptied meanwhile.
        let last = self.chunks.get(number).map_or(0, |chunk| chunk.locks.len());
        self.sweep = Some(if slot < last { LockId::new(number, slot) } else { LockId::new(number + 1, 0) });
        most
    }

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
            chunk.vacant = [0; WORDS];
            chunk.fresh = [0; WORDS];
        }
        if !chunk.is_roomy {
            chunk.is_roomy = true;
            self.roomy.push(id.chunk());
        }
    }

    /// The lock's queue and holds; made if it was at rest.
    pub fn activate(&mut self, id: LockId) -> &mut Active {
        if self.get(id).active.is_none() {
            let mut active = self.spare.pop().unwrap_or_default();
            active.place = self.active.len();
            active.begin_view();
            self.active.push(id);
            self.get_mut(id).active = Some(active);
        }
        self.get_mut(id).active.as_mut().expect("it is there now")
    }

    /// Takes a lock's queue and holds away.
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

    /// Puts a lock's queue and holds aside, if nobody here has anything to do with it any more.
    pub fn rest(&mut self, id: LockId) {
        if self.get(id).active.as_ref().is_some_and(|active| active.is_at_rest()) {
            self.deactivate(id);
        }
    }

    /// From now on the table knows who held what when its view started, once [`Self::index_start`] has seen every hold. Gives what it
    /// knew before.
    pub fn held_at_start(&mut self, holds: Items<Held>) -> Items<Held> {
        self.start_index = Index::for_many(holds.len());
        core::mem::replace(&mut self.start_holds, holds)
    }

    /// Makes the hold at that place of the start known; tells whether there is one.
    pub fn index_start(&mut self, part: u32, place: u32) -> bool {
        let (holds, hasher) = (&self.start_holds, &self.hasher);
        let Some(held) = holds.at(part, place) else { return false };
        let rehash = |&(part, place): &(u32, u32)| {
            holds.at(part, place).map_or(0, |held| hasher.hash_one(Key(&held.lock)))
        };
        self.start_index.insert(hasher.hash_one(Key(&held.lock)), (part, place), rehash);
        true
    }

    /// Who held a lock when the view started.
    pub fn holders_at_start(&self, id: LockId) -> impl Iterator<Item = &Held> {
        let name = &self.get(id).name;
        let places = self.start_index.iter_hash(self.hasher.hash_one(Key(name)));
        places
            .filter_map(|&(part, place)| self.start_holds.at(part, place))
            .filter(move |held| held.lock == *name)
    }

    /// Who held anything when the view started.
    pub fn start_holds(&self) -> &Items<Held> {
        &self.start_holds
    }

    /// The lock at that place among those that somebody here holds or waits for.
    pub fn active_at(&self, place: usize) -> Option<(LockId, &LockName, &Active)> {
        let id = *self.active.get(place)?;
        let lock = self.get(id);
        Some((id, &lock.name, lock.active.as_deref()?))
    }

    /// The queue and holds of a lock that may be at rest, or gone.
    pub fn used_mut(&mut self, id: LockId) -> Option<&mut Active> {
        self.chunks.get_mut(id.chunk())?.locks.get_mut(id.slot())?.active.as_deref_mut()
    }
}

fn is_set(bits: &[u64; WORDS], slot: usize) -> bool {
    bits[slot / 64] >> (slot % 64) & 1 == 1
}

/// Hashed without the length: names rarely differ in that alone.
struct Key<'a>(&'a LockName);

impl Hash for Key<'_> {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        state.write(self.0.name.as_bytes());
    }
}
