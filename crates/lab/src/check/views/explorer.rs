//! Every order of what can happen to a small cluster.

use super::super::intern::Interner;
use super::super::search::{Ended, Model, Next, Search, Sofar, Worker};
use super::tables::Tables;
use super::watcher::Breach;
use super::world::{Action, Rest, World};
use crate::cluster::Promise;
use lockkeeper_core::MutualExclusion;
use lockkeeper_member::{Config, Flaw, MemberId};
use std::sync::Mutex;

/// How much may happen after a cluster has come together. Everything beyond is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// How many members there are.
    pub members: usize,
    /// How many units of time pass.
    pub units: u64,
    /// How often a member crashes.
    pub crashes: u8,
    /// How often one begins another life.
    pub restarts: u8,
    /// How often one stops for a while.
    pub sleeps: u8,
    /// How often the voters choose another leader.
    pub elections: u8,
    /// How often a client asks for the lock.
    pub wishes: u8,
    /// How many views are decided, after the first.
    pub views: u8,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { members: 3, units: 5, crashes: 1, restarts: 0, sleeps: 0, elections: 0, wishes: 2, views: 2 }
    }
}

impl Bounds {
    fn config(&self, flaw: Option<Flaw>) -> Config {
        Config {
            lease_ns: 4,
            renewal_ns: 1,
            silence_ns: 2,
            election_ns: 0,
            round_trip_ns: 0,
            resend_ns: 1,
            margin_ns: 0,
            drift_ppm: 0,
            // Clients do not fall silent here.
            session_ns: 1 << 20,
            settle_ns: 1,
            flaw,
            ..Config::new((1..=self.members as u32).map(MemberId))
        }
    }
}

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
    /// What is wrong, and a shortest run to it, in sentences.
    pub wrong: Option<(Promise, String, Vec<String>)>,
}

/// Searches every state that a cluster can reach within these bounds.
pub fn check<P: MutualExclusion>(
    bounds: Bounds,
    flaw: Option<Flaw>,
    go_on: impl FnMut(Sofar) -> bool,
) -> Result<Answer, String> {
    let mut tables = Tables::<P>::new(bounds.config(flaw));
    let start = World::warm_up(bounds, &mut tables)?;
    let model = Cluster { members: bounds.members, explorer: Mutex::new(Some(Explorer::new(tables, start))) };
    let mut search = Search::new(&model, 1);
    let ended = search.run(u64::MAX, go_on);
    let Sofar { distinct, generated, depth, .. } = search.sofar();
    let complete = !matches!(ended, Ended::Stopped);
    let wrong = match ended {
        Ended::Wrong(witness) => {
            let (promise, what) = witness.breach;
            let run = witness.run.unwrap_or_default();
            Some((promise, what, search.workers()[0].tell(&run)))
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
    start: World,
    frames: Interner<Vec<u32>>,
    rests: Interner<Rest>,
}

impl<P: MutualExclusion> Explorer<P> {
    fn new(tables: Tables<P>, start: World) -> Self {
        Self { tables, start, frames: Interner::default(), rests: Interner::default() }
    }

    fn pack(&mut self, world: World) -> Vec<u32> {
        let mut state = world.members;
        state.push(self.frames.number(world.frames));
        state.push(self.rests.number(world.rest));
        state
    }

    fn unpack(&self, state: &[u32]) -> World {
        let (members, others) = state.split_at(state.len() - 2);
        World::new(members.to_vec(), self.frames.get(others[0]).clone(), self.rests.get(others[1]).clone())
    }

    /// A run in sentences.
    fn tell(&mut self, run: &[Action]) -> Vec<String> {
        let mut world = self.start.clone();
        let mut told = Vec::new();
        for &action in run {
            told.push(world.sentence(action, &self.tables));
            world.act(action, &mut self.tables);
        }
        told
    }
}

impl<P: MutualExclusion> Worker for Explorer<P> {
    type Action = Action;
    type Breach = Breach;

    fn start(&mut self, found: &mut impl FnMut(&[u32])) {
        let start = self.start.clone();
        found(&self.pack(start));
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
            let state = self.pack(next);
            found(Next { action, state: &state, tallies: &[], breach, beyond: false });
        }
        None
    }
}
