//! The state of a cluster between two steps, and its transitions.

use super::bounds::Bounds;
use super::holder::{self, HolderState};
use super::observer::{Breach, Hold, Observer};
use super::tables::{Cause, Tables};
use super::voters::Voters;
use lockkeeper_core::MutualExclusion;
use lockkeeper_member::{Body, Note, PortRequest, SettingsError};
use std::collections::VecDeque;

/// A possible next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A unit of time passes, and all members that are awake tick.
    Time,
    /// The frame with this number arrives.
    Deliver(u32),
    /// The voters notify a member of what it does not know.
    Notify(usize),
    /// The voters notify their leader that it leads.
    NotifyLeader(usize),
    /// A member's client requests the lock.
    Request(usize),
    /// A member's client releases the lock.
    Release(usize),
    /// A member crashes.
    Crash(usize),
    /// A member restarts with a new incarnation.
    Restart(usize),
    /// A member pauses.
    Sleep(usize),
    /// A paused member continues.
    Wake(usize),
    /// The voters elect this member as their leader.
    Elect(usize),
    /// A majority confirms that a member leads.
    Confirm(usize),
    /// The confirmation reaches the member.
    Answer(usize),
    /// A member begins a planned leave.
    Leave(usize),
    /// The write with this number is applied to the table.
    Apply(u32),
    /// The holder sends all its messages to this member.
    Contact(usize),
    /// The holder receives the message with this number, from this member.
    HolderReceives(usize, u32),
    /// The holder releases the lock.
    GiveBack,
}

/// A member's query to the voters whether it leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeadershipQuery {
    who: usize,
    term: u64,
    number: u64,
    confirmed: bool,
}

/// The number of a member that has crashed or whose incarnation has ended.
pub const DOWN: u32 = 0;

/// The state of the cluster except for its members and frames.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rest {
    /// The time, in units.
    pub now: u64,
    /// The state of the voters.
    pub voters: Voters,
    /// The history that the properties depend on.
    pub observer: Observer,
    /// The paused members, one bit each.
    pub asleep: u32,
    /// The crashed members, one bit each. Other members that are down were excluded.
    pub crashed: u32,
    /// The newest query of each member to the voters, if queries take time.
    pub leadership_queries: Vec<LeadershipQuery>,
    /// For each member, the number of incarnations that it has begun.
    pub incarnations: Vec<u64>,
    /// For each member, the number of requests of its client, and whether the last one waits or holds.
    pub requests: Vec<(u64, bool)>,
    /// The writes to the table that are not applied yet, sorted.
    pub writes: Vec<u32>,
    /// The client with a session of its own.
    pub holder: Option<HolderState>,
    /// The remaining budgets.
    pub left: Bounds,
}

/// The state of a cluster.
#[derive(Clone, Debug)]
pub struct World {
    /// For each member, one plus the number of its state; see [`DOWN`].
    pub members: Vec<u32>,
    /// The frames in transit, sorted.
    pub frames: Vec<u32>,
    /// The rest of the state.
    pub rest: Rest,
    /// Events that are handled before the step ends.
    at_once: VecDeque<(usize, Cause)>,
    /// The first violation.
    pub wrong: Option<Breach>,
}

impl World {
    /// Creates a cluster between two steps.
    pub fn new(members: Vec<u32>, frames: Vec<u32>, rest: Rest) -> Self {
        Self { members, frames, rest, at_once: VecDeque::new(), wrong: None }
    }

    pub(super) fn is_up(&self, who: usize) -> bool {
        self.members[who] != DOWN
    }

    /// Whether a member runs and is not paused.
    pub fn is_awake(&self, who: usize) -> bool {
        self.is_up(who) && self.rest.asleep >> who & 1 == 0
    }

    pub(super) fn awake(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.members.len()).filter(|&who| self.is_awake(who))
    }

    /// The reading of a member's clock.
    pub(super) fn clock(&self, who: usize) -> u64 {
        self.rest.left.clock(who, self.rest.now)
    }

    pub(super) fn has_majority(&self) -> bool {
        2 * self.awake().count() > self.members.len()
    }

    /// All possible next steps.
    pub fn actions<P: MutualExclusion>(&self, tables: &Tables<P>) -> Vec<Action> {
        let Rest { left, voters, .. } = &self.rest;
        let mut actions = Vec::new();
        for &frame in &self.frames {
            let to = tables.frame(frame).to.0 as usize - 1;
            if self.is_awake(to) {
                actions.push(Action::Deliver(frame));
            }
        }
        for who in 0..self.members.len() {
            let mut may = |possible: bool, action: Action| actions.extend(possible.then_some(action));
            if !self.is_awake(who) {
                may(!self.is_up(who) && left.restarts > 0, Action::Restart(who));
                may(self.is_up(who), Action::Wake(who));
                continue;
            }
            may(voters.does_not_know_that_it_leads(who), Action::NotifyLeader(who));
            if let Some(query) = self.rest.leadership_queries.iter().find(|query| query.who == who) {
                may(!query.confirmed && self.leads(who, query.term), Action::Confirm(who));
                may(query.confirmed, Action::Answer(who));
            }
            may(voters.has_news_for(who), Action::Notify(who));
            may(!self.rest.requests[who].1 && left.lock_requests > 0, Action::Request(who));
            may(self.holds(who), Action::Release(who));
            may(left.crashes > 0, Action::Crash(who));
            may(left.sleeps > 0, Action::Sleep(who));
            may(left.leaves > 0, Action::Leave(who));
            may(left.elections > 0 && voters.leader != who && self.has_majority(), Action::Elect(who));
        }
        self.holder_actions(&mut actions);
        if left.units > 0 {
            actions.push(Action::Time);
        }
        actions
    }

    /// Performs a step.
    pub fn act<P: MutualExclusion>(&mut self, action: Action, tables: &mut Tables<P>) {
        match action {
            Action::Time => self.pass_time(tables),
            Action::Deliver(frame) => {
                self.frames.retain(|&other| other != frame);
                let to = tables.frame(frame).to.0 as usize - 1;
                self.happens(to, Cause::Frame(frame), tables);
            }
            Action::Notify(who) => self.notify(who, tables),
            Action::NotifyLeader(who) => {
                self.notify(who, tables);
                let term = self.rest.voters.term;
                self.rest.voters.leads[who] = Some(term);
                self.rest.voters.hint[who] = Some(who);
                self.happens(who, Cause::Leading(term), tables);
            }
            Action::Request(who) => {
                self.rest.left.lock_requests -= 1;
                let (number, open) = &mut self.rest.requests[who];
                (*number, *open) = (*number + 1, true);
                let number = *number;
                self.happens(who, Cause::Requests(number), tables);
            }
            Action::Release(who) => {
                self.rest.observer.holds.retain(|hold| hold.who != who || hold.until.is_some());
                self.rest.requests[who].1 = false;
                self.happens(who, Cause::Releases(self.rest.requests[who].0), tables);
            }
            Action::Crash(who) => {
                self.rest.left.crashes -= 1;
                self.rest.crashed |= 1 << who;
                self.end_incarnation(who, tables);
            }
            Action::Restart(who) => {
                self.rest.left.restarts -= 1;
                self.start_incarnation(who, tables).expect("the settings were good before");
            }
            Action::Sleep(who) => {
                self.rest.left.sleeps -= 1;
                self.rest.asleep |= 1 << who;
            }
            Action::Wake(who) => self.rest.asleep &= !(1 << who),
            Action::Elect(who) => {
                self.rest.left.elections -= 1;
                self.rest.voters.elect(who);
            }
            Action::Confirm(who) => {
                let leadership_queries = self.rest.leadership_queries.iter_mut();
                leadership_queries.filter(|query| query.who == who).for_each(|query| query.confirmed = true);
            }
            Action::Answer(who) => {
                let answered = self.rest.leadership_queries.extract_if(.., |query| query.who == who).next();
                if let Some(query) = answered {
                    self.happens(who, Cause::Confirmed(query.number), tables);
                }
            }
            Action::Leave(who) => {
                self.rest.left.leaves -= 1;
                self.happens(who, Cause::Leaves, tables);
            }
            Action::Apply(write) => self.apply(write, tables),
            Action::Contact(who) => self.contact(who, tables),
            Action::HolderReceives(from, message) => self.receive_by_holder(from, message, tables),
            Action::GiveBack => self.give_back(tables),
        }
        self.settle(tables);
        let wrong = self.check_holder(tables);
        self.wrong = self.wrong.take().or(wrong);
    }

    /// Begins an incarnation of a member, and a session of its client.
    pub fn start_incarnation<P: MutualExclusion>(
        &mut self,
        who: usize,
        tables: &mut Tables<P>,
    ) -> Result<(), SettingsError> {
        self.rest.incarnations[who] += 1;
        self.rest.crashed &= !(1 << who);
        self.members[who] = tables.begin(who, self.rest.incarnations[who], self.clock(who))? + 1;
        self.rest.voters.forget(who);
        self.rest.requests[who] = (0, false);
        self.happens(who, Cause::Opens, tables);
        Ok(())
    }

    fn end_incarnation<P: MutualExclusion>(&mut self, who: usize, tables: &Tables<P>) {
        let until = self.clock(who) + self.lease_left(who, tables);
        self.members[who] = DOWN;
        self.rest.asleep &= !(1 << who);
        self.rest.observer.ends(who, until);
        self.forget_expired();
        self.rest.leadership_queries.retain(|query| query.who != who);
        // Frames in transit to this incarnation do not reach the next one.
        self.frames.retain(|&frame| tables.frame(frame).to.0 as usize - 1 != who);
    }

    fn forget_expired(&mut self) {
        let Rest { left, now, observer, .. } = &mut self.rest;
        observer.forget_expired(|who| left.clock(who, *now));
    }

    pub(super) fn lease_left<P: MutualExclusion>(&self, who: usize, tables: &Tables<P>) -> u64 {
        self.members[who]
            .checked_sub(1)
            .map_or(0, |member| tables.member(member).lease_left_ns(self.clock(who)))
    }

    fn pass_time<P: MutualExclusion>(&mut self, tables: &mut Tables<P>) {
        self.rest.left.units -= 1;
        self.rest.now += 1;
        self.forget_expired();
        self.expire_holder(tables);
        for who in 0..self.members.len() {
            if self.is_awake(who) {
                self.happens(who, Cause::Tick, tables);
                self.settle(tables);
            }
        }
    }

    fn notify<P: MutualExclusion>(&mut self, who: usize, tables: &mut Tables<P>) {
        for (view, table) in self.rest.voters.news_for(who) {
            self.happens(who, Cause::Decided(view, table), tables);
        }
        let voters = &mut self.rest.voters;
        if voters.leads[who].is_some_and(|term| term < voters.term) {
            voters.leads[who] = None;
            self.happens(who, Cause::Deposed, tables);
        }
        let leader = self.rest.voters.leader;
        if leader != who && self.rest.voters.hint[who].replace(leader) != Some(leader) {
            self.happens(who, Cause::Leader(leader), tables);
        }
    }

    /// Handles the events that are due within this step, until none is left.
    fn settle<P: MutualExclusion>(&mut self, tables: &mut Tables<P>) {
        while let Some((who, cause)) = self.at_once.pop_front() {
            self.happens(who, cause, tables);
        }
    }

    /// Handles an event at a member, if it is awake.
    pub(super) fn happens<P: MutualExclusion>(&mut self, who: usize, cause: Cause, tables: &mut Tables<P>) {
        if !self.is_awake(who) {
            return;
        }
        let stepped = tables.step(self.members[who] - 1, self.clock(who), cause).clone();
        self.members[who] = stepped.member + 1;
        for frame in stepped.frames {
            self.send(frame, tables);
        }
        for note in &stepped.notes {
            let wrong = self.notes(who, note, tables);
            self.wrong = self.wrong.take().or(wrong);
        }
        for fence in stepped.fences {
            let wrong = self.enters(who, fence, tables);
            self.wrong = self.wrong.take().or(wrong);
        }
        for message in stepped.to_holder {
            let wrong = self.answer_holder(who, message, tables);
            self.wrong = self.wrong.take().or(wrong);
        }
        for write in stepped.writes {
            if let Err(place) = self.rest.writes.binary_search(&write) {
                self.rest.writes.insert(place, write);
            }
        }
        for request in stepped.port {
            self.request_of_voters(who, request, tables);
        }
        if stepped.notes.contains(&Note::Excluded) {
            self.end_incarnation(who, tables);
        }
        if stepped.notes.contains(&Note::Left) {
            self.rest.crashed |= 1 << who;
            self.end_incarnation(who, tables);
        }
    }

    fn send<P: MutualExclusion>(&mut self, number: u32, tables: &Tables<P>) {
        let frame = tables.frame(number);
        let to = frame.to.0 as usize - 1;
        let lease = matches!(frame.body, Body::Renew(_) | Body::Renewed { .. });
        let at_once = match &frame.body {
            Body::Renew(_) | Body::Renewed { .. } => !self.rest.left.late_leases,
            Body::Excluded { .. } | Body::Join => true,
            Body::Relay { .. } | Body::Relayed { .. } | Body::NotHome { .. } => true,
            Body::Link { packet, .. } => packet.payload.is_none(),
            _ => false,
        };
        if at_once {
            self.at_once.push_back((to, Cause::Frame(number)));
            return;
        }
        if !self.is_up(to) {
            return;
        }
        if lease {
            // A newer renewal or reply replaces the one in transit.
            self.frames.retain(|&other| {
                let other = tables.frame(other);
                let same = std::mem::discriminant(&other.body) == std::mem::discriminant(&frame.body);
                !(same && other.from == frame.from && other.to == frame.to)
            });
        }
        if let Err(place) = self.frames.binary_search(&number) {
            self.frames.insert(place, number);
        }
    }

    /// Whether a member leads in this term with a majority that is awake.
    fn leads(&self, who: usize, term: u64) -> bool {
        self.rest.voters.leader == who && self.rest.voters.term == term && self.has_majority()
    }

    fn request_of_voters<P: MutualExclusion>(
        &mut self,
        who: usize,
        request: PortRequest,
        tables: &mut Tables<P>,
    ) {
        match request {
            PortRequest::Confirm { number, term } if self.rest.left.late_leases => {
                self.rest.leadership_queries.retain(|query| query.who != who);
                self.rest.leadership_queries.push(LeadershipQuery { who, term, number, confirmed: false });
                self.rest.leadership_queries.sort_unstable_by_key(|query| query.who);
            }
            PortRequest::Confirm { number, term } if self.leads(who, term) => {
                self.at_once.push_back((who, Cause::Confirmed(number)));
            }
            PortRequest::Propose(view) if self.leads(who, view.term) && self.rest.left.views > 0 => {
                let last = self.rest.voters.decided.last().map_or(0, |&last| tables.view(last).epoch);
                if view.epoch == last + 1 {
                    self.rest.left.views -= 1;
                    let number = tables.number_of_view(view);
                    let table = tables.table_after_view(self.rest.voters.table, number);
                    self.rest.voters.decide(number, table);
                }
            }
            _ => {}
        }
    }

    fn notes<P: MutualExclusion>(
        &mut self,
        who: usize,
        note: &Note,
        tables: &mut Tables<P>,
    ) -> Option<Breach> {
        match note {
            Note::Started { view, holds } => {
                let decided = &self.rest.voters.decided;
                let newest = decided.last().is_some_and(|&last| tables.view(last).epoch == view.epoch);
                let outside = |who: &usize| {
                    let node = tables.member(self.members[*who] - 1).node();
                    !view.has(node) && self.lease_left(*who, tables) > 0
                };
                let up = (0..self.members.len()).filter(|&who| self.is_up(who));
                let leases: Vec<usize> = up.filter(outside).collect();
                let table = tables.hold_table(self.rest.voters.table);
                let wrong = holder::start_breach(view.epoch, newest, holds, table);
                self.rest.observer.starts(view.epoch, newest, &leases).or(wrong)
            }
            Note::Reported { epoch, report } => {
                let report = tables.number_of_report(report);
                self.rest.observer.reports(who, *epoch, report)
            }
            Note::Installed { .. } => {
                self.rest.observer.installs(who);
                None
            }
            _ => None,
        }
    }

    fn enters<P: MutualExclusion>(
        &mut self,
        who: usize,
        fence: (u64, u64),
        tables: &Tables<P>,
    ) -> Option<Breach> {
        let lease = self.lease_left(who, tables);
        let others: Vec<usize> = self
            .usable_holds(tables)
            .filter(|hold| hold.until.is_some() || hold.who != who)
            .map(|hold| hold.who)
            .collect();
        self.rest.observer.enters(who, self.rest.incarnations[who], fence, &others, lease)
    }

    /// The holds that clients of members may use now.
    pub(super) fn usable_holds<P: MutualExclusion>(&self, tables: &Tables<P>) -> impl Iterator<Item = &Hold> {
        self.rest.observer.holds.iter().filter(|hold| match hold.until {
            Some(until) => until > self.clock(hold.who),
            None => self.lease_left(hold.who, tables) > 0,
        })
    }

    /// Whether a member's client has received a grant and has not released the lock.
    pub(super) fn holds(&self, who: usize) -> bool {
        self.rest.observer.holds.iter().any(|hold| hold.who == who && hold.until.is_none())
    }
}
