//! Breadth-first search over every reachable state of a [`Model`].
//!
//! States of one level are expanded in batches. With several threads, each thread expands a part of the batch
//! and sorts the successors by shard; then each thread inserts the successors of some shards. The counts do
//! not depend on the number of threads. The path on which a state is first found does, so only a search by
//! one thread reports the run that leads to a violation. That run is a shortest one, and depends on the model
//! alone.
//!
//! Example: the start state has number 0, and its successors get the numbers 1 to 3 in the order in which
//! they are found. Then `levels` is `[0, 1, 4]`: level 0 is the range 0..1, level 1 is the range 1..4. No
//! predecessor is stored with a state; `backwards` finds one by expanding the states of the level before.

use super::model::{FoundViolation, Model, Run, Step, Worker};
use super::store::{Incoming, Insertion, MOST_SLOTS, Shard, hash_of};
use std::ops::Range;

/// Number of shards of the store if several threads search. A single thread uses only the first.
const SHARDS: usize = 16;
/// Number of states that each thread expands before the successors are inserted. It is large enough to
/// amortise the synchronisation of the threads.
const BATCH: u32 = 1 << 13;
/// The batch size of a single thread, small enough for the batch to stay in the processor's cache.
const SMALL_BATCH: u32 = 1 << 8;

/// The position of a state in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    shard: u32,
    number: u32,
}

/// The progress of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchProgress {
    /// Number of distinct states.
    pub distinct: u64,
    /// Number of generated states, the initial ones included; a state counts each time it is generated.
    pub generated: u64,
    /// Number of levels: the length in states of the longest shortest run, the initial state included.
    pub depth: u64,
    /// Memory used by the states, in bytes.
    pub bytes: usize,
}

/// The limits at which a search stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchLimits {
    /// The number of distinct states.
    pub states: u64,
    /// The number of levels to expand.
    pub depth: u64,
    /// The memory used by the states, in bytes.
    pub bytes: usize,
}

impl SearchLimits {
    /// No limits.
    pub const NONE: Self = Self { states: u64::MAX, depth: u64::MAX, bytes: usize::MAX };

    /// A limit on the number of distinct states only.
    pub const fn states(states: u64) -> Self {
        Self { states, ..Self::NONE }
    }
}

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Every reachable state was visited.
    All,
    /// The search was stopped by its caller or by a limit.
    Stopped,
    /// A violation was found.
    Violated,
}

type WorkerOf<'m, M> = <M as Model>::Worker<'m>;
type ActionOf<'m, M> = <WorkerOf<'m, M> as Worker>::Action;
type ViolationOf<'m, M> = <WorkerOf<'m, M> as Worker>::Violation;
/// A violation of a model.
pub type FoundViolationOf<'m, M> = FoundViolation<ActionOf<'m, M>, ViolationOf<'m, M>>;

/// A breadth-first search, running or finished.
pub struct Search<'m, M: Model> {
    model: &'m M,
    shards: Vec<Shard>,
    /// For each level, the number of states that each shard had before it.
    levels: Vec<[u32; SHARDS]>,
    generated: u64,
    /// Number of steps whose successor exceeds the model's bounds.
    cut: u64,
    /// Whether the search continues after a violation, and reports the first violation of each property.
    every_property: bool,
    /// The first violation, or the first one of each property.
    wrong: Vec<ViolationAt<ActionOf<'m, M>, ViolationOf<'m, M>>>,
    back_edges: BackEdges,
    workers: Vec<WorkerOf<'m, M>>,
    /// The successors that each worker found in the current batch.
    finds: Vec<BatchResult<ActionOf<'m, M>, ViolationOf<'m, M>>>,
    batches: u64,
}

impl<'m, M: Model> Search<'m, M> {
    /// A search of `model` with `threads` threads.
    pub fn new(model: &'m M, threads: usize) -> Self {
        assert!(model.slots() <= MOST_SLOTS, "a state has at most {MOST_SLOTS} slots");
        let shards = if threads > 1 { SHARDS } else { 1 };
        Self {
            model,
            shards: (0..shards).map(|_| Shard::new(model.slots(), model.tallies())).collect(),
            levels: vec![[0; SHARDS]],
            generated: 0,
            cut: 0,
            every_property: false,
            wrong: Vec::new(),
            back_edges: BackEdges::default(),
            workers: (0..threads.max(1)).map(|_| model.worker()).collect(),
            finds: (0..threads.max(1)).map(|_| BatchResult::new(shards)).collect(),
            batches: 0,
        }
    }

    /// Continues after a violation, to report the first violation of each property.
    pub fn every_property(mut self) -> Self {
        self.every_property = true;
        self
    }

    /// The model.
    pub fn model(&self) -> &'m M {
        self.model
    }

    /// The progress so far.
    pub fn progress(&self) -> SearchProgress {
        SearchProgress {
            distinct: self.shards.iter().map(|shard| u64::from(shard.count())).sum(),
            generated: self.generated,
            depth: self.levels.len() as u64 - 1,
            bytes: self.shards.iter().map(Shard::bytes).sum(),
        }
    }

    /// Whether every step led to a later level, so that no run returns to a visited state.
    pub fn is_graded(&self) -> bool {
        !self.back_edges.any
    }

    /// Number of steps that were not followed because the successor exceeds the model's bounds.
    pub fn cut(&self) -> u64 {
        self.cut
    }

    /// The workers, with the coverage that each of them recorded.
    pub fn workers(&mut self) -> &mut [WorkerOf<'m, M>] {
        &mut self.workers
    }

    /// Searches until every state is visited, a violation is found, a limit is reached, or `go_on` returns
    /// `false`.
    pub fn run(&mut self, limits: SearchLimits, mut go_on: impl FnMut(SearchProgress) -> bool) -> Ended {
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
            // The states numbered `before..after` in each shard form the next level.
            let before = self.levels[self.levels.len() - 1];
            let after = self.lengths();
            if before == after {
                break;
            }
            if self.levels.len() as u64 > limits.depth {
                return Ended::Stopped;
            }
            self.levels.push(after);
            match self.expand_level(&before, &after, limits, &mut go_on) {
                Ended::All => {}
                ended => return ended,
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
        limits: SearchLimits,
        go_on: &mut impl FnMut(SearchProgress) -> bool,
    ) -> Ended {
        let batch = if self.workers.len() == 1 { SMALL_BATCH } else { BATCH };
        let parts: Vec<(usize, Range<u32>)> = (0..self.shards.len())
            .flat_map(|shard| {
                let starts = (before[shard]..after[shard]).step_by(batch as usize);
                starts.map(move |start| (shard, start..after[shard].min(start.saturating_add(batch))))
            })
            .collect();
        // One part per worker at a time: expand in parallel, then insert in parallel.
        for parts in parts.chunks(self.workers.len()) {
            self.expand_parts(parts);
            if self.note_violations() && !self.every_property {
                return Ended::Violated;
            }
            self.put_finds(parts.len(), after);
            let stopped = self.batches.is_multiple_of(8) && !go_on(self.progress());
            if stopped || self.exceeds(limits) {
                return Ended::Stopped;
            }
            self.batches += 1;
        }
        Ended::All
    }

    fn exceeds(&self, limits: SearchLimits) -> bool {
        let distinct: u64 = self.shards.iter().map(|shard| u64::from(shard.count())).sum();
        distinct > limits.states
            || (limits.bytes < usize::MAX
                && self.shards.iter().map(Shard::bytes).sum::<usize>() > limits.bytes)
    }

    /// Takes the violations that the workers found in a batch; returns whether there is one. Of each
    /// property, the first one is kept.
    fn note_violations(&mut self) -> bool {
        let found = self.finds.iter_mut().flat_map(|finds| finds.wrong.drain(..));
        for wrong in found {
            let property = |wrong: &ViolationAt<_, _>| WorkerOf::<'m, M>::property(&wrong.violation);
            if !self.wrong.iter().any(|known| property(known) == property(&wrong)) {
                self.wrong.push(wrong);
            }
        }
        !self.wrong.is_empty()
    }

    /// The violation that ended the search, without a run that shows it.
    pub fn violation(&self) -> Option<ViolationOf<'m, M>> {
        self.wrong.first().map(|wrong| wrong.violation.clone())
    }

    /// The violation that ended the search; or, if it continued, the first one of each property. Each has a
    /// shortest run if one thread searched.
    pub fn violations(&mut self) -> Vec<FoundViolationOf<'m, M>> {
        let alone = self.workers.len() == 1;
        let wanted = if self.every_property { self.wrong.len() } else { 1 };
        let found: Vec<_> = self.wrong.iter().take(wanted).cloned().collect();
        let with_run = |ViolationAt { place, action, violation }| {
            let run = alone.then(|| Run { steps: self.backwards(place, action), cycle_after: None });
            FoundViolation { violation, run }
        };
        found.into_iter().map(with_run).collect()
    }

    /// The sentences that describe each step of a run.
    pub fn describe(&mut self, run: &Run<ActionOf<'m, M>>) -> Vec<Vec<String>> {
        let worker = &mut self.workers[0];
        run.steps.iter().map(|step| worker.describe(&step.from, &step.action)).collect()
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

    /// Inserts the successors found by the first `workers` workers into the store. States
    /// numbered below `seen` in their shard belong to the current level or an earlier one.
    fn put_finds(&mut self, workers: usize, seen: &[u32; SHARDS]) {
        let finds = &self.finds[..workers];
        // Each thread owns a contiguous group of shards, so the threads need no lock.
        let each = self.shards.len().div_ceil(workers);
        let put = |shards: &mut [Shard], first: usize| {
            let mut back_edges = BackEdges::default();
            for (shard, index) in shards.iter_mut().zip(first..) {
                for finds in finds {
                    shard.put_all(&finds.by_shard[index], |put| back_edges.note(put, index, seen));
                }
            }
            back_edges
        };
        let back_edges: Vec<BackEdges> = if workers == 1 {
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
        for back_edges in back_edges {
            self.back_edges.any |= back_edges.any;
            self.back_edges.grown.extend(back_edges.grown);
        }
        for finds in finds {
            self.generated += finds.generated;
            self.cut += finds.cut;
        }
    }

    /// Propagates increased tallies until none increases.
    ///
    /// Example: a state with a tally of 2 has been expanded, and a longer run reaches it with a tally of 3.
    /// It is expanded again, so that its successors can increase, too.
    fn settle_tallies(&mut self) {
        let (generated, cut, seen) = (self.generated, self.cut, [u32::MAX; SHARDS]);
        while !self.back_edges.grown.is_empty() {
            let mut grown = std::mem::take(&mut self.back_edges.grown);
            grown.sort();
            grown.dedup();
            for Place { shard, number } in grown {
                self.expand_parts(&[(shard as usize, number..number + 1)]);
                self.put_finds(1, &seen);
            }
        }
        (self.generated, self.cut) = (generated, cut);
    }

    /// The run to a state and, if there is one, a last step from it. It is found backwards: for each level, a
    /// predecessor in the level before.
    fn backwards(&mut self, place: Place, last: Option<ActionOf<'m, M>>) -> Vec<Step<ActionOf<'m, M>>> {
        let mut target = vec![0; self.model.slots()];
        self.shards[place.shard as usize].get(place.number, &mut target);
        let mut steps: Vec<_> =
            last.into_iter().map(|action| Step { from: target.clone(), action }).collect();
        let mut level = self.level_of(place);
        while level > 0 {
            level -= 1;
            let (before, action) = self.predecessor(level, &target);
            target.clone_from(&before);
            steps.push(Step { from: before, action });
        }
        steps.reverse();
        steps
    }

    /// Calls `look` with the first worker and a state. Only for searches by one thread, whose states are
    /// numbered in the order in which they were found.
    pub fn visit<R>(
        &mut self,
        number: u32,
        look: impl FnOnce(&mut WorkerOf<'m, M>, &[u32], &[u8]) -> R,
    ) -> R {
        let mut state = vec![0; self.model.slots()];
        self.shards[0].get(number, &mut state);
        look(&mut self.workers[0], &state, self.shards[0].tallies(number))
    }

    /// The number of a visited state. Only for searches by one thread.
    pub fn number(&self, state: &[u32]) -> u32 {
        self.shards[0].find(hash_of(state), state).expect("the state has been visited")
    }

    /// A shortest run to a state. Only for searches by one thread.
    pub fn run_to(&mut self, number: u32) -> Vec<Step<ActionOf<'m, M>>> {
        self.backwards(Place { shard: 0, number }, None)
    }

    /// The step that leads from a state to its successor number `place`, in the order of
    /// [`Worker::expand`]. Only for searches by one thread.
    pub fn step(&mut self, number: u32, place: usize) -> Step<ActionOf<'m, M>> {
        let mut left = place;
        let found = self.visit(number, |worker, state, tallies| {
            let mut found = None;
            worker.expand(state, tallies, &mut |next| {
                if left == 0 && found.is_none() {
                    found = Some(Step { from: state.to_vec(), action: next.action });
                }
                left = left.saturating_sub(1);
            });
            found
        });
        found.expect("the state has a successor with this index")
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
        unreachable!("every state of a level has a predecessor in the level before")
    }
}

/// Steps that lead to a state of the same level or of an earlier one.
#[derive(Default)]
struct BackEdges {
    /// Whether there was such a step. If not, no run returns to a visited state.
    any: bool,
    /// States whose tallies increased after they were expanded, or in the level being expanded.
    grown: Vec<Place>,
}

impl BackEdges {
    #[inline]
    fn note(&mut self, put: Insertion, shard: usize, seen: &[u32; SHARDS]) {
        // A number below `seen` belongs to a state of the current level or an earlier one.
        match put {
            Insertion::Known(number) if number < seen[shard] => self.any = true,
            Insertion::Grown(number) if number < seen[shard] => {
                self.any = true;
                self.grown.push(Place { shard: shard as u32, number });
            }
            _ => {}
        }
    }
}

/// A violation, and where it was found.
#[derive(Clone)]
struct ViolationAt<A, B> {
    place: Place,
    /// The step from the state at `place` that violates the property; `None` if the state itself does.
    action: Option<A>,
    violation: B,
}

#[inline]
fn shard_of(hash: u64, shards: usize) -> usize {
    // Bits 40 and up: the hash table of a shard uses the lowest and the highest bits. `shards` is a power of
    // two.
    (hash >> 40) as usize & (shards - 1)
}

/// The successors that one worker found in a batch.
struct BatchResult<A, B> {
    by_shard: Vec<Incoming>,
    generated: u64,
    cut: u64,
    /// The violations: the first of each property.
    wrong: Vec<ViolationAt<A, B>>,
}

impl<A, B> BatchResult<A, B> {
    fn new(shards: usize) -> Self {
        let by_shard = (0..shards).map(|_| Incoming::default()).collect();
        Self { by_shard, generated: 0, cut: 0, wrong: Vec::new() }
    }

    /// Expands a range of states of one shard.
    fn expand<M: Model, W: Worker<Action = A, Violation = B>>(
        &mut self,
        model: &M,
        worker: &mut W,
        shard: &Shard,
        index: usize,
        numbers: Range<u32>,
    ) {
        self.by_shard.iter_mut().for_each(Incoming::clear);
        (self.generated, self.cut) = (0, 0);
        let mut state = [0; MOST_SLOTS];
        let state = &mut state[..model.slots()];
        for number in numbers {
            let place = Place { shard: index as u32, number };
            shard.get(number, state);
            let own = worker.expand(state, shard.tallies(number), &mut |next| {
                self.generated += 1;
                if let Some(violation) = next.violation {
                    self.note::<W>(ViolationAt { place, action: Some(next.action), violation });
                }
                if next.beyond {
                    self.cut += 1;
                    return;
                }
                let hash = hash_of(next.state);
                let shards = self.by_shard.len();
                self.by_shard[shard_of(hash, shards)].push(hash, next.state, next.tallies);
            });
            if let Some(violation) = own {
                self.note::<W>(ViolationAt { place, action: None, violation });
            }
        }
    }

    /// Records a violation unless one of the same property is known.
    #[cold]
    fn note<W: Worker<Action = A, Violation = B>>(&mut self, wrong: ViolationAt<A, B>) {
        let property = |wrong: &ViolationAt<A, B>| W::property(&wrong.violation);
        if !self.wrong.iter().any(|known| property(known) == property(&wrong)) {
            self.wrong.push(wrong);
        }
    }
}
