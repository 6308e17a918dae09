//! Every order of what can happen to a small cluster.

use super::bounds::Bounds;
use super::tables::Tables;
use super::watcher::Breach;
use super::world::{Action, Rest, World};
use crate::Promise;
use foldhash::fast::FixedState;
use hashbrown::HashSet;
use lockkeeper_core::MutualExclusion;
use lockkeeper_lab::check::intern::Interner;
use lockkeeper_lab::check::search::{Ended, Model, Next, Search, Sofar, Worker};
use lockkeeper_member::Flaw;
use std::sync::Mutex;

/// So many units after nothing goes wrong any more, everybody must have been served.
const SERVED_WITHIN: usize = 40;

/// What came of a search.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Different states.
    pub distinct: u64,
    /// Steps tried.
    pub generated: u64,
    /// How many steps the longest of the shortest runs has.
    pub depth: u64,
    /// Whether everything within the bounds was seen, or enough to find what is wrong.
    pub complete: bool,
    /// What is wrong.
    pub wrong: Option<Wrong>,
}

/// What is wrong, and how it comes about.
#[derive(Clone, Debug)]
pub struct Wrong {
    /// What does not hold.
    pub promise: Promise,
    /// What happened, in a sentence.
    pub what: String,
    /// A shortest run to it, a sentence for each step.
    pub run: Vec<String>,
}

/// Searches every state that a cluster can reach within these bounds.
pub(super) fn search<P: MutualExclusion>(
    bounds: Bounds,
    flaw: Option<Flaw>,
    go_on: impl FnMut(Sofar) -> bool,
) -> Result<Answer, String> {
    bounds.check()?;
    let mut tables = Tables::<P>::new(bounds.config(flaw), bounds.readers);
    let starts: Result<Vec<World>, String> =
        bounds.mixtures().into_iter().map(|bounds| World::warm_up(bounds, &mut tables)).collect();
    let explorer = Explorer::new(tables, starts?, bounds.service);
    let model = Cluster { members: bounds.members, explorer: Mutex::new(Some(explorer)) };
    let mut search = Search::new(&model, 1);
    let ended = search.run(u64::MAX, go_on);
    let Sofar { distinct, generated, depth, .. } = search.sofar();
    let complete = !matches!(ended, Ended::Stopped);
    let wrong = match ended {
        Ended::Wrong(witness) => {
            let (promise, what) = witness.breach;
            let run = witness.run.unwrap_or_default();
            Some(Wrong { promise, what, run: search.workers()[0].tell(&run) })
        }
        _ => None,
    };
    Ok(Answer { distinct, generated, depth, complete, wrong })
}

/// A cluster as a model.
struct Cluster<P: MutualExclusion> {
    members: usize,
    /// For the one thread that searches.
    explorer: Mutex<Option<Explorer<P>>>,
}

impl<P: MutualExclusion> Model for Cluster<P> {
    type Worker<'m> = Explorer<P>;

    fn slots(&self) -> usize {
        self.members + 2
    }

    fn worker(&self) -> Explorer<P> {
        let mut explorer = self.explorer.lock().expect("nobody panics");
        explorer.take().expect("one thread searches")
    }
}

/// Expands states: each member by its number, the frames under way by the number of their set, the rest by its own.
struct Explorer<P: MutualExclusion> {
    tables: Tables<P>,
    starts: Vec<World>,
    frames: Interner<Vec<u32>>,
    rests: Interner<Rest>,
    service: bool,
    /// States from which everybody is served.
    served: HashSet<Vec<u32>, FixedState>,
}

impl<P: MutualExclusion> Explorer<P> {
    fn new(tables: Tables<P>, starts: Vec<World>, service: bool) -> Self {
        let (frames, rests) = (Interner::default(), Interner::default());
        Self { tables, starts, frames, rests, service, served: HashSet::default() }
    }

    fn pack(&mut self, world: &World) -> Vec<u32> {
        let mut state = world.members.clone();
        state.push(self.frames.number(world.frames.clone()));
        state.push(self.rests.number(world.rest.clone()));
        state
    }

    fn unpack(&self, state: &[u32]) -> World {
        let (members, others) = state.split_at(state.len() - 2);
        World::new(members.to_vec(), self.frames.get(others[0]).clone(), self.rests.get(others[1]).clone())
    }

    /// A run in sentences.
    fn tell(&mut self, run: &[Action]) -> Vec<String> {
        let mut told = Vec::new();
        for mut world in self.starts.clone() {
            told.clear();
            for &action in run {
                told.push(world.sentence(action, &self.tables));
                world.act(action, &mut self.tables);
            }
            if world.wrong.is_some() || self.unserved(&world).is_some() {
                break;
            }
        }
        told
    }

    /// Who is not served from here on, though nothing goes wrong any more.
    fn unserved(&mut self, world: &World) -> Option<Breach> {
        let mut world = world.clone();
        world.heal();
        let mut way = Vec::new();
        while let Some(who) = world.waits() {
            let state = self.pack(&world);
            if self.served.contains(&state) {
                break;
            }
            if way.len() == SERVED_WITHIN {
                let what =
                    format!("a client of M{} waits for ever, though nothing goes wrong any more", who + 1);
                return Some((Promise::Service, what));
            }
            way.push(state);
            world.live_on(&mut self.tables);
            if let Some((promise, what)) = world.wrong {
                return Some((promise, format!("while everything heals afterwards, {what}")));
            }
        }
        self.served.extend(way);
        None
    }
}

impl<P: MutualExclusion> Worker for Explorer<P> {
    type Action = Action;
    type Breach = Breach;

    fn start(&mut self, found: &mut impl FnMut(&[u32])) {
        for start in self.starts.clone() {
            found(&self.pack(&start));
        }
    }

    fn expand(
        &mut self,
        state: &[u32],
        _tallies: &[u8],
        found: &mut impl FnMut(Next<'_, Action, Breach>),
    ) -> Option<Breach> {
        let world = self.unpack(state);
        for action in world.actions(&self.tables) {
            let mut next = world.clone();
            next.act(action, &mut self.tables);
            let breach = next.wrong.take();
            let state = self.pack(&next);
            found(Next { action, state: &state, tallies: &[], breach, beyond: false });
        }
        if self.service && world.rest.left.units == 0 { self.unserved(&world) } else { None }
    }
}
