//! Breadth-first search over every reachable state of a [`Model`].
//!
//! States of one level are expanded in batches. With several threads, each expands a part of the batch and sorts
//! what it finds by shard; then each takes some shards and puts the finds in. What is counted does not depend on
//! the number of threads. Which way to a state is found first does: so only a search by one thread tells the run that
//! leads to a breach. It is a shortest one, and a function of the model alone.

use super::store::{Incoming, MOST_SLOTS, Put, Shard, hash_of};
use std::ops::Range;

/// Into so many parts the store is divided for several threads. A thread alone uses the first only.
const SHARDS: usize = 16;
/// So many states are expanded by each thread before what they lead to is put into the store: enough to make up for the
/// threads' waiting for each other.
const BATCH: u32 = 1 << 13;
/// The same for a thread alone: so few that all of it stays in the processor's cache.
const SMALL_BATCH: u32 = 1 << 8;

/// Something whose states are rows of small numbers.
pub trait Model: Sync {
    /// What expands states, one for each thread.
    type Worker<'m>: Worker + Send
    where
        Self: 'm;

    /// How many slots a state has.
    fn slots(&self) -> usize;

    /// How many tallies a state has: numbers of which only the largest that any run brings along is kept.
    fn tallies(&self) -> usize {
        0
    }

    /// A worker.
    fn worker(&self) -> Self::Worker<'_>;
}

/// Expands states.
pub trait Worker {
    /// What leads from one state to the next.
    type Action: Clone + Send + Sync;
    /// What can be wrong with a state or an action.
    type Breach: Clone + Send + Sync;

    /// Hands over every state at the start.
    fn start(&mut self, found: &mut impl FnMut(&[u32]));

    /// Hands over everything that can follow a state; returns what is wrong with the state itself.
    fn expand(
        &mut self,
        state: &[u32],
        tallies: &[u8],
        found: &mut impl FnMut(Next<'_, Self::Action, Self::Breach>),
    ) -> Option<Self::Breach>;
}

/// What can follow a state.
#[derive(Debug)]
pub struct Next<'a, A, B> {
    /// By what.
    pub action: A,
    /// The next state.
    pub state: &'a [u32],
    /// Its tallies along this run.
    pub tallies: &'a [u8],
    /// What is wrong with it.
    pub breach: Option<B>,
    /// Whether it lies beyond what the model wants explored: it is counted as generated, and left alone.
    pub beyond: bool,
}

/// Where a state is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    shard: u32,
    number: u32,
}

/// How far a search has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sofar {
    /// Different states.
    pub distinct: u64,
    /// States generated, the start included, each as often as it was.
    pub generated: u64,
    /// How many states the longest of the shortest runs has, the start included.
    pub depth: u64,
    /// Memory that the states take.
    pub bytes: usize,
}

/// What is wrong, and how it comes about.
#[derive(Clone, Debug)]
pub struct Witness<A, B> {
    /// What is wrong.
    pub breach: B,
    /// A shortest run that shows it. Several threads do not tell it: a search of a fresh model by one thread does.
    pub run: Option<Vec<A>>,
}

/// How a search ended.
#[derive(Clone, Debug)]
pub enum Ended<A, B> {
    /// Every reachable state was seen, and nothing is wrong.
    All,
    /// It was stopped before its end.
    Stopped,
    /// Something is wrong.
    Wrong(Witness<A, B>),
}

type WorkerOf<'m, M> = <M as Model>::Worker<'m>;
type ActionOf<'m, M> = <WorkerOf<'m, M> as Worker>::Action;
type BreachOf<'m, M> = <WorkerOf<'m, M> as Worker>::Breach;

/// A search, running or done.
pub struct Search<'m, M: Model> {
    model: &'m M,
    shards: Vec<Shard>,
    /// For each level, how many states each shard had before it.
    levels: Vec<[u32; SHARDS]>,
    generated: u64,
    /// Whether something beyond the model's bounds was met.
    bounded: bool,
    upwards: Upwards,
    workers: Vec<WorkerOf<'m, M>>,
    /// What each worker found in the present batch.
    finds: Vec<Finds<ActionOf<'m, M>, BreachOf<'m, M>>>,
    batches: u64,
}

impl<'m, M: Model> Search<'m, M> {
    /// A search with so many threads.
    pub fn new(model: &'m M, threads: usize) -> Self {
        assert!(model.slots() <= MOST_SLOTS, "a state has at most {MOST_SLOTS} slots");
        let shards = if threads > 1 { SHARDS } else { 1 };
        Self {
            model,
            shards: (0..shards).map(|_| Shard::new(model.slots(), model.tallies())).collect(),
            levels: vec![[0; SHARDS]],
            generated: 0,
            bounded: false,
            upwards: Upwards::default(),
            workers: (0..threads.max(1)).map(|_| model.worker()).collect(),
            finds: (0..threads.max(1)).map(|_| Finds::new(shards)).collect(),
            batches: 0,
        }
    }

    /// How far it has come.
    pub fn sofar(&self) -> Sofar {
        Sofar {
            distinct: self.shards.iter().map(|shard| u64::from(shard.count())).sum(),
            generated: self.generated,
            depth: self.levels.len() as u64 - 1,
            bytes: self.shards.iter().map(Shard::bytes).sum(),
        }
    }

    /// Whether it is certain that no run comes back to a state.
    pub fn is_graded(&self) -> bool {
        !self.upwards.any
    }

    /// Whether some states were left alone because they lie beyond the model's bounds.
    pub fn is_bounded(&self) -> bool {
        self.bounded
    }

    /// What the workers know at the end.
    pub fn workers(&mut self) -> &mut [WorkerOf<'m, M>] {
        &mut self.workers
    }

    /// Searches until all is seen, something is wrong, or `go_on` says to stop; at most so many levels.
    pub fn run(
        &mut self,
        deepest: u64,
        mut go_on: impl FnMut(Sofar) -> bool,
    ) -> Ended<ActionOf<'m, M>, BreachOf<'m, M>> {
        let mut starts = Vec::new();
        let slots = self.model.slots();
        self.workers[0].start(&mut |state| starts.extend_from_slice(state));
        let tallies = vec![0; self.model.tallies()];
        for state in starts.chunks_exact(slots) {
            let hash = hash_of(state);
            let shards = self.shards.len();
            self.shards[shard_of(hash, shards)].put(hash, state, &tallies);
            self.generated += 1;
        }
        loop {
            let before = self.levels[self.levels.len() - 1];
            let after = self.lengths();
            if before == after {
                break;
            }
            if self.levels.len() as u64 > deepest {
                return Ended::Stopped;
            }
            self.levels.push(after);
            match self.expand_level(&before, &after, &mut go_on) {
                Expanded::All => {}
                Expanded::Stopped => return Ended::Stopped,
                Expanded::Wrong(place, action, breach) => {
                    let alone = self.workers.len() == 1;
                    let run = alone.then(|| self.backwards(place, action.into_iter().collect()));
                    return Ended::Wrong(Witness { breach, run });
                }
            }
        }
        self.settle_tallies();
        Ended::All
    }

    fn lengths(&self) -> [u32; SHARDS] {
        std::array::from_fn(|shard| self.shards.get(shard).map_or(0, Shard::count))
    }

    fn expand_level(
        &mut self,
        before: &[u32; SHARDS],
        after: &[u32; SHARDS],
        go_on: &mut impl FnMut(Sofar) -> bool,
    ) -> Expanded<ActionOf<'m, M>, BreachOf<'m, M>> {
        let batch = if self.workers.len() == 1 { SMALL_BATCH } else { BATCH };
        let parts: Vec<(usize, Range<u32>)> = (0..self.shards.len())
            .flat_map(|shard| {
                let starts = (before[shard]..after[shard]).step_by(batch as usize);
                starts.map(move |start| (shard, start..after[shard].min(start.saturating_add(batch))))
            })
            .collect();
        for parts in parts.chunks(self.workers.len()) {
            self.expand_parts(parts);
            let wrong = self.finds.iter_mut().find_map(|finds| finds.wrong.take());
            if let Some((place, action, breach)) = wrong {
                return Expanded::Wrong(place, action, breach);
            }
            self.put_finds(parts.len(), after);
            if self.batches.is_multiple_of(64) && !go_on(self.sofar()) {
                return Expanded::Stopped;
            }
            self.batches += 1;
        }
        Expanded::All
    }

    fn expand_parts(&mut self, parts: &[(usize, Range<u32>)]) {
        let (shards, model) = (&self.shards, self.model);
        let work = parts.iter().zip(self.workers.iter_mut().zip(&mut self.finds));
        if let [(shard, numbers)] = parts {
            self.finds[0].expand(model, &mut self.workers[0], &shards[*shard], *shard, numbers.clone());
            return;
        }
        std::thread::scope(|scope| {
            for ((shard, numbers), (worker, finds)) in work {
                scope.spawn(move || finds.expand(model, worker, &shards[*shard], *shard, numbers.clone()));
            }
        });
    }

    /// Puts what the first so many workers found into the store.
    fn put_finds(&mut self, workers: usize, seen: &[u32; SHARDS]) {
        let finds = &self.finds[..workers];
        let each = self.shards.len().div_ceil(workers);
        let put = |shards: &mut [Shard], first: usize| {
            let mut upwards = Upwards::default();
            for (shard, index) in shards.iter_mut().zip(first..) {
                for finds in finds {
                    shard.put_all(&finds.by_shard[index], |put| upwards.note(put, index, seen));
                }
            }
            upwards
        };
        let upwards: Vec<Upwards> = if workers == 1 {
            vec![put(&mut self.shards, 0)]
        } else {
            std::thread::scope(|scope| {
                let put = &put;
                let parts = self.shards.chunks_mut(each).enumerate();
                let running: Vec<_> =
                    parts.map(|(part, shards)| scope.spawn(move || put(shards, part * each))).collect();
                running.into_iter().map(|part| part.join().expect("the store does not panic")).collect()
            })
        };
        for upwards in upwards {
            self.upwards.any |= upwards.any;
            self.upwards.grown.extend(upwards.grown);
        }
        for finds in finds {
            self.generated += finds.generated;
            self.bounded |= finds.bounded;
        }
    }

    /// Hands grown tallies on until nothing grows any more.
    fn settle_tallies(&mut self) {
        let (generated, seen) = (self.generated, [u32::MAX; SHARDS]);
        while !self.upwards.grown.is_empty() {
            let mut grown = std::mem::take(&mut self.upwards.grown);
            grown.sort();
            grown.dedup();
            for Place { shard, number } in grown {
                self.expand_parts(&[(shard as usize, number..number + 1)]);
                self.put_finds(1, &seen);
            }
        }
        self.generated = generated;
    }

    /// The run to a state, found backwards: from each level to the one before.
    fn backwards(&mut self, place: Place, mut run: Vec<ActionOf<'m, M>>) -> Vec<ActionOf<'m, M>> {
        let slots = self.model.slots();
        let mut target = vec![0; slots];
        self.shards[place.shard as usize].get(place.number, &mut target);
        let mut level = self.level_of(place);
        while level > 0 {
            level -= 1;
            let (before, action) = self.predecessor(level, &target);
            run.push(action);
            target = before;
        }
        run.reverse();
        run
    }

    /// Lets the first worker look at a state. For searches of one thread, whose states are numbered as they came.
    pub fn visit<R>(
        &mut self,
        number: u32,
        look: impl FnOnce(&mut WorkerOf<'m, M>, &[u32], &[u8]) -> R,
    ) -> R {
        let mut state = vec![0; self.model.slots()];
        self.shards[0].get(number, &mut state);
        look(&mut self.workers[0], &state, self.shards[0].tallies(number))
    }

    /// The number of a state that has been seen. For searches of one thread.
    pub fn number(&self, state: &[u32]) -> u32 {
        self.shards[0].find(hash_of(state), state).expect("a state that has been seen")
    }

    /// A shortest run to a state. For searches of one thread.
    pub fn run_to(&mut self, number: u32) -> Vec<ActionOf<'m, M>> {
        self.backwards(Place { shard: 0, number }, Vec::new())
    }

    /// The action that leads from a state to the one of that place among those that follow. For searches of one thread.
    pub fn action(&mut self, number: u32, place: usize) -> ActionOf<'m, M> {
        let mut left = place;
        let found = self.visit(number, |worker, state, tallies| {
            let mut found = None;
            worker.expand(state, tallies, &mut |next| {
                if left == 0 && found.is_none() {
                    found = Some(next.action);
                }
                left = left.saturating_sub(1);
            });
            found
        });
        found.expect("so many states follow")
    }

    fn level_of(&self, place: Place) -> usize {
        let shard = place.shard as usize;
        self.levels.iter().rposition(|starts| starts[shard] <= place.number).expect("every state has a level")
    }

    fn predecessor(&mut self, level: usize, target: &[u32]) -> (Vec<u32>, ActionOf<'m, M>) {
        let mut state = vec![0; target.len()];
        for shard in 0..self.shards.len() {
            for number in self.levels[level][shard]..self.levels[level + 1][shard] {
                self.shards[shard].get(number, &mut state);
                let tallies = self.shards[shard].tallies(number).to_vec();
                let mut by = None;
                self.workers[0].expand(&state, &tallies, &mut |next| {
                    if by.is_none() && !next.beyond && next.state == target {
                        by = Some(next.action);
                    }
                });
                if let Some(action) = by {
                    return (state, action);
                }
            }
        }
        unreachable!("a state of one level follows from one of the level before")
    }
}

/// Steps that lead to states of the same level or of one before.
#[derive(Default)]
struct Upwards {
    /// Whether there were any: if not, no run comes back to a state.
    any: bool,
    /// States whose tallies grew after they had been expanded, or while they were.
    grown: Vec<Place>,
}

impl Upwards {
    #[inline]
    fn note(&mut self, put: Put, shard: usize, seen: &[u32; SHARDS]) {
        match put {
            Put::Known(number) if number < seen[shard] => self.any = true,
            Put::Grown(number) if number < seen[shard] => {
                self.any = true;
                self.grown.push(Place { shard: shard as u32, number });
            }
            _ => {}
        }
    }
}

enum Expanded<A, B> {
    All,
    Stopped,
    Wrong(Place, Option<A>, B),
}

#[inline]
fn shard_of(hash: u64, shards: usize) -> usize {
    // Neither the lowest bits nor the highest, by which a shard finds its states. One shard or a power of two.
    (hash >> 40) as usize & (shards - 1)
}

/// What one worker found.
struct Finds<A, B> {
    by_shard: Vec<Incoming>,
    generated: u64,
    bounded: bool,
    /// The first thing that is wrong: where, by which action if not by itself, and what.
    wrong: Option<(Place, Option<A>, B)>,
}

impl<A, B> Finds<A, B> {
    fn new(shards: usize) -> Self {
        let by_shard = (0..shards).map(|_| Incoming::default()).collect();
        Self { by_shard, generated: 0, bounded: false, wrong: None }
    }

    /// Expands some states of a shard.
    fn expand<M: Model>(
        &mut self,
        model: &M,
        worker: &mut impl Worker<Action = A, Breach = B>,
        shard: &Shard,
        index: usize,
        numbers: Range<u32>,
    ) {
        self.by_shard.iter_mut().for_each(Incoming::clear);
        (self.generated, self.bounded) = (0, false);
        let mut state = [0; MOST_SLOTS];
        let state = &mut state[..model.slots()];
        for number in numbers {
            let place = Place { shard: index as u32, number };
            shard.get(number, state);
            let own = worker.expand(state, shard.tallies(number), &mut |next| {
                self.generated += 1;
                if let Some(breach) = next.breach
                    && self.wrong.is_none()
                {
                    self.wrong = Some((place, Some(next.action), breach));
                }
                if next.beyond {
                    self.bounded = true;
                    return;
                }
                let hash = hash_of(next.state);
                let shards = self.by_shard.len();
                self.by_shard[shard_of(hash, shards)].push(hash, next.state, next.tallies);
            });
            if let Some(breach) = own
                && self.wrong.is_none()
            {
                self.wrong = Some((place, None, breach));
            }
        }
    }
}
