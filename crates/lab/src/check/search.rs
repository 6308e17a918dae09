//! Breadth-first search over every reachable state of a [`Model`].
//!
//! States of one level are expanded in batches. With several threads, each expands a part of the batch and sorts
//! what it finds by shard; then each takes some shards and puts the finds in. What is counted does not depend on
//! the number of threads. Which way to a state is found first does: so only a search by one thread tells the run that
//! leads to a breach. It is a shortest one, and a function of the model alone.

use super::store::{MOST_SLOTS, Put, Shard, hash_of};
use std::ops::Range;

/// Into so many parts the store is divided.
const SHARDS: usize = 16;
/// So many states are expanded by each thread before what they lead to is put into the store.
const BATCH: u32 = 1 << 14;

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
    type Action: Clone + Send;
    /// What can be wrong with a state or an action.
    type Breach: Clone + Send;

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
    /// A shortest run that shows it.
    pub run: Vec<A>,
}

/// How a search ended.
#[derive(Clone, Debug)]
pub enum Ended<A, B> {
    /// Every reachable state was seen, and nothing is wrong.
    All,
    /// It was stopped before its end.
    Stopped,
    /// Something is wrong. Several threads do not say how it comes about: a search of a fresh model by one thread does.
    Wrong(Option<Witness<A, B>>),
}

type WorkerOf<'m, M> = <M as Model>::Worker<'m>;
type ActionOf<'m, M> = <WorkerOf<'m, M> as Worker>::Action;
type BreachOf<'m, M> = <WorkerOf<'m, M> as Worker>::Breach;
type WitnessOf<'m, M> = Witness<ActionOf<'m, M>, BreachOf<'m, M>>;

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
}

impl<'m, M: Model> Search<'m, M> {
    /// A search with so many threads.
    pub fn new(model: &'m M, threads: usize) -> Self {
        assert!(model.slots() <= MOST_SLOTS, "a state has at most {MOST_SLOTS} slots");
        Self {
            model,
            shards: (0..SHARDS).map(|_| Shard::new(model.slots(), model.tallies())).collect(),
            levels: vec![[0; SHARDS]],
            generated: 0,
            bounded: false,
            upwards: Upwards::default(),
            workers: (0..threads.max(1)).map(|_| model.worker()).collect(),
        }
    }

    /// How far it has come.
    pub fn sofar(&self) -> Sofar {
        Sofar {
            distinct: self.shards.iter().map(|shard| u64::from(shard.len())).sum(),
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
            self.shards[shard_of(hash)].put(hash, state, &tallies);
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
            let found = if self.workers.len() == 1 {
                self.expand_level_alone(&before, &after, &mut go_on)
            } else {
                self.expand_level_together(&before, &after, &mut go_on)
            };
            match found {
                Expanded::All => {}
                Expanded::Stopped => return Ended::Stopped,
                Expanded::Wrong(place, action, breach) => {
                    return Ended::Wrong(Some(self.witness(place, action, breach)));
                }
                Expanded::WrongSomewhere => return Ended::Wrong(None),
            }
        }
        self.settle_tallies();
        Ended::All
    }

    fn lengths(&self) -> [u32; SHARDS] {
        std::array::from_fn(|shard| self.shards[shard].len())
    }

    fn expand_level_alone(
        &mut self,
        before: &[u32; SHARDS],
        after: &[u32; SHARDS],
        go_on: &mut impl FnMut(Sofar) -> bool,
    ) -> Expanded<ActionOf<'m, M>, BreachOf<'m, M>> {
        let mut since_told = 0;
        for shard in 0..SHARDS {
            for number in before[shard]..after[shard] {
                let place = Place { shard: shard as u32, number };
                if let Some((action, breach)) = self.expand_one(place, after) {
                    return Expanded::Wrong(place, action, breach);
                }
                since_told += 1;
                if since_told == BATCH {
                    since_told = 0;
                    if !go_on(self.sofar()) {
                        return Expanded::Stopped;
                    }
                }
            }
        }
        Expanded::All
    }

    /// Expands one state and puts what follows into the store; returns what is wrong, if anything is.
    #[inline]
    fn expand_one(
        &mut self,
        place: Place,
        seen: &[u32; SHARDS],
    ) -> Option<(Option<ActionOf<'m, M>>, BreachOf<'m, M>)> {
        let (mut state, mut tallies) = ([0; MOST_SLOTS], [0; MOST_SLOTS]);
        let state = &mut state[..self.model.slots()];
        let tallies = &mut tallies[..self.model.tallies()];
        let home = &self.shards[place.shard as usize];
        home.get(place.number, state);
        tallies.copy_from_slice(home.tallies(place.number));
        let Self { shards, workers, generated, upwards, bounded, .. } = self;
        let mut wrong = None;
        let own = workers[0].expand(state, tallies, &mut |next| {
            *generated += 1;
            if let Some(breach) = next.breach
                && wrong.is_none()
            {
                wrong = Some((Some(next.action), breach));
            }
            if next.beyond {
                *bounded = true;
                return;
            }
            let hash = hash_of(next.state);
            let shard = shard_of(hash);
            upwards.note(shards[shard].put(hash, next.state, next.tallies), shard, seen);
        });
        own.map(|breach| (None, breach)).or(wrong)
    }

    fn expand_level_together(
        &mut self,
        before: &[u32; SHARDS],
        after: &[u32; SHARDS],
        go_on: &mut impl FnMut(Sofar) -> bool,
    ) -> Expanded<ActionOf<'m, M>, BreachOf<'m, M>> {
        let parts: Vec<(usize, Range<u32>)> = (0..SHARDS)
            .flat_map(|shard| {
                let starts = (before[shard]..after[shard]).step_by(BATCH as usize);
                starts.map(move |start| (shard, start..after[shard].min(start.saturating_add(BATCH))))
            })
            .collect();
        for batch in parts.chunks(self.workers.len()) {
            let finds = self.expand_parts(batch);
            if finds.iter().any(|finds| finds.wrong) {
                return Expanded::WrongSomewhere;
            }
            self.put_all(&finds, after);
            if !go_on(self.sofar()) {
                return Expanded::Stopped;
            }
        }
        Expanded::All
    }

    fn expand_parts(&mut self, batch: &[(usize, Range<u32>)]) -> Vec<Finds> {
        let (shards, model) = (&self.shards, self.model);
        std::thread::scope(|scope| {
            let running: Vec<_> = batch
                .iter()
                .zip(&mut self.workers)
                .map(|((shard, numbers), worker)| {
                    scope.spawn(move || expand_part(model, worker, &shards[*shard], numbers.clone()))
                })
                .collect();
            running.into_iter().map(|part| part.join().expect("a worker does not panic")).collect()
        })
    }

    fn put_all(&mut self, finds: &[Finds], seen: &[u32; SHARDS]) {
        let threads = self.workers.len();
        let (slots, tallies) = (self.model.slots(), self.model.tallies());
        let each = SHARDS.div_ceil(threads);
        let upwards: Vec<Upwards> = std::thread::scope(|scope| {
            let running: Vec<_> = self
                .shards
                .chunks_mut(each)
                .enumerate()
                .map(|(part, shards)| {
                    scope.spawn(move || {
                        let mut upwards = Upwards::default();
                        for (shard, index) in shards.iter_mut().zip(part * each..) {
                            for find in finds.iter().map(|finds| &finds.by_shard[index]) {
                                find.put_into(shard, slots, tallies, |put| upwards.note(put, index, seen));
                            }
                        }
                        upwards
                    })
                })
                .collect();
            running.into_iter().map(|part| part.join().expect("the store does not panic")).collect()
        });
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
            for place in grown {
                self.expand_one(place, &seen);
            }
        }
        self.generated = generated;
    }

    /// The run to a state, found backwards: from each level to the one before.
    fn witness(
        &mut self,
        place: Place,
        last: Option<ActionOf<'m, M>>,
        breach: BreachOf<'m, M>,
    ) -> WitnessOf<'m, M> {
        let mut run: Vec<ActionOf<'m, M>> = last.into_iter().collect();
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
        Witness { breach, run }
    }

    fn level_of(&self, place: Place) -> usize {
        let shard = place.shard as usize;
        self.levels.iter().rposition(|starts| starts[shard] <= place.number).expect("every state has a level")
    }

    fn predecessor(&mut self, level: usize, target: &[u32]) -> (Vec<u32>, ActionOf<'m, M>) {
        let mut state = vec![0; target.len()];
        for shard in 0..SHARDS {
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
    WrongSomewhere,
}

#[inline]
fn shard_of(hash: u64) -> usize {
    // Neither the lowest bits nor the highest, by which a shard finds its states.
    (hash >> 40) as usize % SHARDS
}

/// What one thread found, by shard.
struct Finds {
    by_shard: Vec<Find>,
    generated: u64,
    bounded: bool,
    wrong: bool,
}

#[derive(Default)]
struct Find {
    hashes: Vec<u64>,
    states: Vec<u32>,
    tallies: Vec<u8>,
}

impl Find {
    fn put_into(&self, shard: &mut Shard, slots: usize, tallies: usize, mut note: impl FnMut(Put)) {
        for (place, (&hash, state)) in self.hashes.iter().zip(self.states.chunks_exact(slots)).enumerate() {
            note(shard.put(hash, state, &self.tallies[place * tallies..][..tallies]));
        }
    }
}

fn expand_part<M: Model>(
    model: &M,
    worker: &mut WorkerOf<'_, M>,
    shard: &Shard,
    numbers: Range<u32>,
) -> Finds {
    let by_shard = (0..SHARDS).map(|_| Find::default()).collect();
    let mut finds = Finds { by_shard, generated: 0, bounded: false, wrong: false };
    let mut state = vec![0; model.slots()];
    for number in numbers {
        shard.get(number, &mut state);
        let own = worker.expand(&state, shard.tallies(number), &mut |next| {
            finds.generated += 1;
            finds.wrong |= next.breach.is_some();
            if next.beyond {
                finds.bounded = true;
                return;
            }
            let hash = hash_of(next.state);
            let find = &mut finds.by_shard[shard_of(hash)];
            find.hashes.push(hash);
            find.states.extend_from_slice(next.state);
            find.tallies.extend_from_slice(next.tallies);
        });
        finds.wrong |= own.is_some();
    }
    finds
}
