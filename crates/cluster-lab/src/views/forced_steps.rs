//! Steps without any choice: how the first view is formed before the search, and how all waiters are served after
//! it.

use super::bounds::Bounds;
use super::error::ViewsError;
use super::observer::Observer;
use super::tables::Tables;
use super::voters::Voters;
use super::world::{Action, DOWN, Rest, World};
use lockkeeper_core::MutualExclusion;

/// The largest number of steps between two time units; far more than ever happen.
const MOST_AT_ONCE: usize = 1000;
/// The number of time units within which the members of any cluster run in one view.
const LONG: u64 = 100;

impl World {
    /// Performs all deliveries and notifications that are possible without time passing.
    pub(super) fn deliver_all<P: MutualExclusion>(&mut self, tables: &mut Tables<P>) {
        let by_itself = |action: &Action| {
            use Action::{Answer, Apply, Confirm, Deliver, HolderReceives, Notify, NotifyLeader};
            matches!(action, Deliver(_) | Notify(_) | NotifyLeader(_) | Confirm(_) | Answer(_))
                || matches!(action, Apply(_) | HolderReceives(..))
        };
        for _ in 0..MOST_AT_ONCE {
            let Some(action) = self.actions(tables).into_iter().find(by_itself) else { break };
            self.act(action, tables);
        }
    }

    /// Ends all faults: paused members continue, and no further fault may happen.
    pub fn heal(&mut self) {
        let Rest { asleep, left, .. } = &mut self.rest;
        *asleep = 0;
        let nothing =
            Bounds { crashes: 0, restarts: 0, sleeps: 0, elections: 0, lock_requests: 0, leaves: 0, ..*left };
        *left = Bounds { units: u64::MAX, views: u8::MAX, ..nothing };
    }

    /// Performs all deliveries and notifications, and lets one unit of time pass. Holders release the lock.
    pub fn pass_unit_without_faults<P: MutualExclusion>(&mut self, tables: &mut Tables<P>) {
        for who in 0..self.members.len() {
            // A member that was excluded begins a new incarnation; one that has crashed does not.
            if !self.is_up(who) && self.rest.crashed >> who & 1 == 0 {
                self.start_incarnation(who, tables).expect("the settings were good before");
            }
        }
        let other = self.awake().next().filter(|_| !self.is_awake(self.rest.voters.leader));
        if let Some(leader) = other {
            self.rest.voters.elect(leader);
        }
        self.rest.left.views = u8::MAX;
        self.deliver_all(tables);
        self.holder_returns(tables);
        for who in 0..self.members.len() {
            if self.is_awake(who) && self.holds(who) {
                self.act(Action::Release(who), tables);
            }
        }
        self.act(Action::Time, tables);
    }

    /// A member whose client waits, if a majority is awake that can serve it.
    pub fn waits(&self) -> Option<usize> {
        self.awake().find(|&who| self.has_majority() && self.rest.requests[who].1 && !self.holds(who))
    }

    /// Creates the start state of the search: delivers, notifies, and lets time pass until all members run in one
    /// view.
    pub fn warm_up<P: MutualExclusion>(bounds: Bounds, tables: &mut Tables<P>) -> Result<Self, ViewsError> {
        let members = bounds.members;
        let mut voters = Voters::new(members, 0);
        voters.table = tables.empty_hold_table();
        let rest = Rest {
            now: 0,
            voters,
            writes: Vec::new(),
            holder: None,
            observer: Observer::new(members, bounds.readers),
            asleep: 0,
            crashed: 0,
            leadership_queries: Vec::new(),
            incarnations: vec![0; members],
            requests: vec![(0, false); members],
            left: Bounds { units: u64::MAX, views: u8::MAX, ..bounds },
        };
        let mut world = Self::new(vec![DOWN; members], Vec::new(), rest);
        for who in 0..members {
            world.start_incarnation(who, tables)?;
        }
        world.act(Action::Time, tables);
        world.act(Action::NotifyLeader(0), tables);
        while !(0..members).all(|who| world.runs(who, tables)) {
            world.act(Action::Time, tables);
            world.deliver_all(tables);
            if world.rest.now > LONG {
                return Err(ViewsError::NoFirstView);
            }
        }
        if let Some(holder) = bounds.holder {
            world.begin_holder(holder, tables)?;
        }
        world.rest.left = bounds;
        Ok(world)
    }

    fn runs<P: MutualExclusion>(&self, who: usize, tables: &Tables<P>) -> bool {
        let member = tables.member(self.members[who] - 1);
        let whole = member.running().is_some_and(|view| view.members.len() == self.members.len());
        whole && member.lease_left_ns(self.clock(who)) > 0
    }
}
