//! Explores all interleavings of events in a small cluster.

use super::bounds::Bounds;
use super::error::ViewsError;
use super::observer::Breach;
use super::tables::Tables;
use super::world::{Action, Rest, World};
use crate::Property;
use foldhash::fast::FixedState;
use hashbrown::HashSet;
use lockkeeper_core::MutualExclusion;
use lockkeeper_lab::checker::explore::intern::Interner;
use lockkeeper_lab::checker::explore::{
    Ended, FoundViolation, Model, Next, Search, SearchLimits, SearchProgress, Worker,
};
use lockkeeper_member::BugSwitch;
use std::sync::Mutex;

/// The number of time units within which all waiters must be served once faults have ended.
const SERVED_WITHIN: usize = 40;

/// The result of a search.
#[derive(Clone, Debug)]
pub struct SearchResult {
    /// The number of distinct states.
    pub distinct: u64,
    /// The number of steps.
    pub generated: u64,
    /// The depth: the largest distance of a state from the start, in steps.
    pub depth: u64,
    /// Whether the search has seen all states within the bounds, or has found a violation.
    pub complete: bool,
    /// The violation, if one was found.
    pub wrong: Option<ViolatingRun>,
}

/// A violation, with the run that leads to it.
#[derive(Clone, Debug)]
pub struct ViolatingRun {
    /// The violated property.
    pub property: Property,
    /// A description of the violation.
    pub what: String,
    /// A shortest run that leads to it, one sentence per step.
    pub run: Vec<String>,
}

/// Searches all states that a cluster can reach within these bounds.
pub(super) fn search<P: MutualExclusion>(
    bounds: Bounds,
    bug: Option<BugSwitch>,
    go_on: impl FnMut(SearchProgress) -> bool,
) -> Result<SearchResult, ViewsError> {
    bounds.check()?;
    let mut tables = Tables::<P>::new(&bounds, bug);
    let starts: Result<Vec<World>, ViewsError> =
        bounds.mixtures().into_iter().map(|bounds| World::warm_up(bounds, &mut tables)).collect();
    let explorer = Explorer::new(tables, starts?, bounds.service);
    let model = Cluster { members: bounds.members, explorer: Mutex::new(Some(explorer)) };
    let mut search = Search::new(&model, 1);
    let ended = search.run(SearchLimits::NONE, go_on);
    let SearchProgress { distinct, generated, depth, .. } = search.progress();
    let complete = ended != Ended::Stopped;
    let wrong = search.violations().pop().map(|FoundViolation { violation: (property, what), run }| {
        let sentences = run.map(|run| search.describe(&run)).unwrap_or_default();
        ViolatingRun { property, what, run: sentences.into_iter().flatten().collect() }
    });
    Ok(SearchResult { distinct, generated, depth, complete, wrong })
}

/// A cluster as a model of the search engine.
struct Cluster<P: MutualExclusion> {
    members: usize,
    /// The state of the one thread that searches.
    explorer: Mutex<Option<Explorer<P>>>,
}

impl<P: MutualExclusion> Model for Cluster<P> {
    type Worker<'m> = Explorer<P>;

    fn slots(&self) -> usize {
        self.members + 2
    }

    fn worker(&self) -> Explorer<P> {
        let mut explorer = self.explorer.lock().expect("the search does not panic while it holds the lock");
        explorer.take().expect("one thread searches")
    }
}

/// Expands states. A state consists of one number per member, one for the set of frames in transit, and one for the
/// rest.
struct Explorer<P: MutualExclusion> {
    tables: Tables<P>,
    starts: Vec<World>,
    frames: Interner<Vec<u32>>,
    rests: Interner<Rest>,
    service: bool,
    /// States from which all waiters are known to be served.
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

    /// Checks that all waiters are served from this state on if no further fault happens.
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
                    format!("a client of M{} waits for ever, although no fault happens any more", who + 1);
                return Some((Property::Service, what));
            }
            way.push(state);
            world.pass_unit_without_faults(&mut self.tables);
            if let Some((property, what)) = world.wrong {
                return Some((property, format!("after the faults have ended, {what}")));
            }
        }
        self.served.extend(way);
        None
    }
}

impl<P: MutualExclusion> Worker for Explorer<P> {
    type Action = Action;
    type Violation = Breach;
    type Property = Property;

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
            found(Next { action, state: &state, tallies: &[], violation: breach, beyond: false });
        }
        if self.service && world.rest.left.units == 0 { self.unserved(&world) } else { None }
    }

    fn property((property, _): &Breach) -> Property {
        *property
    }

    fn describe(&mut self, from: &[u32], action: &Action) -> Vec<String> {
        vec![self.unpack(from).sentence(*action, &self.tables)]
    }
}
