//! The client with a session of its own: it holds the lock, its hold is recorded, and another member adopts it.
//!
//! It runs the state machine of the library. After every step it is checked that the client does not rely on its hold
//! while another one may use the lock.

use super::bounds::Holder;
use super::error::ViewsError;
use super::observer::Breach;
use super::tables::{Cause, HolderSession, Tables};
use super::world::{Action, World};
use crate::Property;
use lockkeeper_core::MutualExclusion;
use lockkeeper_member::{ChunkedList, HoldTable, StartHold, ToClient};
use lockkeeper_session::Progress;

/// The number of time units within which the first hold is recorded and promised.
const LONG: u64 = 20;

/// The state of the client and of the messages to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HolderState {
    /// The number of the state of its session.
    session: u32,
    /// The number of its acquisition.
    acquisition: u64,
    /// Whether it has released the lock.
    released: bool,
    /// The messages to it that have not arrived: their senders and numbers, sorted.
    inbox: Vec<(usize, u32)>,
}

impl World {
    /// The steps of the client, and the writes that the voters may apply.
    pub(super) fn holder_actions(&self, actions: &mut Vec<Action>) {
        if self.has_majority() && self.is_awake(self.rest.voters.leader) {
            actions.extend(self.rest.writes.iter().map(|&write| Action::Apply(write)));
        }
        let (Some(holder), Some(bounds)) = (&self.rest.holder, self.rest.left.holder) else { return };
        actions.extend(holder.inbox.iter().map(|&(from, message)| Action::HolderReceives(from, message)));
        if bounds.contacts > 0 {
            actions.extend(self.awake().map(Action::Contact));
        }
        if bounds.releases && !holder.released {
            actions.push(Action::GiveBack);
        }
    }

    /// The reading of the client's clock, which does not drift.
    fn holder_clock(&self) -> u64 {
        self.rest.left.clock_without_drift(self.rest.now)
    }

    /// Applies a write to the table, and reports the outcomes to its writer, if that is awake.
    pub(super) fn apply<P: MutualExclusion>(&mut self, write: u32, tables: &mut Tables<P>) {
        self.rest.writes.retain(|&other| other != write);
        let Some(&newest) = self.rest.voters.decided.last() else { return };
        let (table, outcomes) = tables.table_after_write(self.rest.voters.table, write, newest);
        self.rest.voters.table = table;
        let home = tables.write(write).home;
        let who = home.id.0 as usize - 1;
        if self.is_up(who) && self.rest.incarnations[who] == home.incarnation {
            self.happens(who, Cause::Written(write, outcomes), tables);
        }
    }

    fn change_holder<P: MutualExclusion, T>(
        &mut self,
        tables: &mut Tables<P>,
        change: impl FnOnce(&mut HolderSession, u64) -> T,
    ) -> Option<T> {
        let clock = self.holder_clock();
        let holder = self.rest.holder.as_mut()?;
        let mut session = tables.holder(holder.session).clone();
        let changed = change(&mut session, clock);
        holder.session = tables.number_of_holder(session);
        Some(changed)
    }

    /// Sends all messages of the client to a member, one after the other.
    pub(super) fn contact<P: MutualExclusion>(&mut self, who: usize, tables: &mut Tables<P>) {
        if let Some(bounds) = &mut self.rest.left.holder {
            bounds.contacts -= 1;
        }
        let messages = self.change_holder(tables, |session, clock| {
            if session.is_lost(clock) { Vec::new() } else { session.all_messages(clock) }
        });
        for message in messages.unwrap_or_default() {
            let number = tables.message_of_holder(message);
            self.happens(who, Cause::Holder(number), tables);
        }
    }

    /// Puts an answer of a member on its way to the client, and checks the promise in it.
    pub(super) fn answer_holder<P: MutualExclusion>(
        &mut self,
        who: usize,
        number: u32,
        tables: &Tables<P>,
    ) -> Option<Breach> {
        let message = tables.message_to_holder(number);
        let wrong = self.promise_breach(who, message, tables);
        let holder = self.rest.holder.as_mut()?;
        let same_kind = |other: u32| {
            std::mem::discriminant(tables.message_to_holder(other)) == std::mem::discriminant(message)
        };
        holder.inbox.retain(|&(from, other)| from != who || !same_kind(other));
        if let Err(place) = holder.inbox.binary_search(&(who, number)) {
            holder.inbox.insert(place, (who, number));
        }
        wrong
    }

    /// A member that has the session promises the hold only while its lease runs, and reports as recorded only what is
    /// in the table.
    fn promise_breach<P: MutualExclusion>(
        &self,
        who: usize,
        message: &ToClient,
        tables: &Tables<P>,
    ) -> Option<Breach> {
        let member = tables.member(self.members[who].checked_sub(1)?);
        let (node, acquisition) = (member.node(), self.rest.holder.as_ref()?.acquisition);
        let promises = match message {
            ToClient::Alive { recorded, .. } => recorded.is_some(),
            ToClient::Recorded { sent_ns, .. } => sent_ns.is_some(),
            _ => false,
        };
        // A message that is relayed was checked at the member that has the session.
        let at_home = member.has_session(tables.holder(self.rest.holder.as_ref()?.session).id());
        if at_home && promises && self.lease_left(who, tables) == 0 {
            return Some((Property::Promises, format!("{node} promises the recorded hold without a lease")));
        }
        let table = tables.hold_table(self.rest.voters.table);
        let recorded = table.records().any(|record| record.acquisition.number == acquisition);
        let reports = matches!(message, ToClient::Recorded { number, .. } if *number == acquisition);
        // A hold that the client has released may have ended in the table.
        (reports && !recorded && !self.rest.holder.as_ref()?.released).then(|| {
            (Property::Promises, format!("{node} reports the hold as recorded, and the log does not have it"))
        })
    }

    /// Delivers a message to the client, and checks that the client loses no promised hold by it.
    pub(super) fn receive_by_holder<P: MutualExclusion>(
        &mut self,
        from: usize,
        number: u32,
        tables: &mut Tables<P>,
    ) {
        if let Some(holder) = &mut self.rest.holder {
            holder.inbox.retain(|&other| other != (from, number));
        }
        let message = tables.message_to_holder(number).clone();
        let before = self.relies(tables);
        // The client sends its unanswered messages again when it contacts a member next.
        self.change_holder(tables, |session, clock| drop(session.receive(clock, message)));
        let released = self.rest.holder.as_ref().is_some_and(|holder| holder.released);
        if before && !self.relies(tables) && !released {
            let what = format!("the holder loses its hold by a message of M{}", from + 1);
            self.wrong.get_or_insert((Property::RecordedHolds, what));
        }
    }

    /// The client releases the lock. It sends the release with its next contact.
    pub(super) fn give_back<P: MutualExclusion>(&mut self, tables: &mut Tables<P>) {
        let Some(holder) = &mut self.rest.holder else { return };
        holder.released = true;
        let acquisition = holder.acquisition;
        self.change_holder(tables, |session, _| session.release(acquisition));
    }

    /// Ends the hold if it is not promised to the client any more.
    pub(super) fn expire_holder<P: MutualExclusion>(&mut self, tables: &mut Tables<P>) {
        self.change_holder(tables, |session, clock| session.is_lost(clock));
    }

    /// Whether the client may use the lock now.
    fn relies<P: MutualExclusion>(&self, tables: &Tables<P>) -> bool {
        self.rest.holder.as_ref().is_some_and(|holder| {
            tables.holder(holder.session).may_use(self.holder_clock(), holder.acquisition)
        })
    }

    /// Checks that the client does not rely on its hold while another one may use the lock.
    pub(super) fn check_holder<P: MutualExclusion>(&self, tables: &Tables<P>) -> Option<Breach> {
        self.rest.holder.as_ref()?;
        let other = self.usable_holds(tables).next()?;
        self.relies(tables).then(|| {
            let what = format!("the holder and a client of M{} may both use the lock", other.who + 1);
            (Property::Exclusion, what)
        })
    }

    /// Opens the session at the last member, and lets the client acquire the lock; if the bounds require it, until the
    /// hold is recorded and has just been promised.
    pub(super) fn begin_holder<P: MutualExclusion>(
        &mut self,
        bounds: Holder,
        tables: &mut Tables<P>,
    ) -> Result<(), ViewsError> {
        let home = self.members.len() - 1;
        let (session, acquisition) = tables.new_holder();
        self.rest.holder = Some(HolderState { session, acquisition, released: false, inbox: Vec::new() });
        let until = self.rest.now + LONG;
        while self.rest.now < until {
            self.rest.left.holder = Some(Holder { contacts: u8::MAX, ..bounds });
            self.act(Action::Contact(home), tables);
            self.deliver_all(tables);
            let (session, clock) = (tables.holder(self.holder_number()), self.holder_clock());
            let granted = session.may_use(clock, acquisition);
            let promised = session.hold_until_ns(acquisition) > session.lease_until_ns();
            if granted && (promised || !bounds.recorded) {
                return Ok(());
            }
            self.act(Action::Time, tables);
            self.deliver_all(tables);
        }
        Err(ViewsError::NoFirstHold)
    }

    fn holder_number(&self) -> u32 {
        self.rest.holder.as_ref().map_or(0, |holder| holder.session)
    }

    /// After the faults have ended: the client, if it still reaches the cluster, releases the lock.
    pub(super) fn holder_returns<P: MutualExclusion>(&mut self, tables: &mut Tables<P>) {
        let Some(bounds) = self.rest.left.holder.filter(|bounds| bounds.returns) else { return };
        self.rest.left.holder = Some(Holder { contacts: u8::MAX, ..bounds });
        let Some(holder) = &self.rest.holder else { return };
        let (acquisition, released) = (holder.acquisition, holder.released);
        let session = tables.holder(holder.session);
        let holds = matches!(session.progress(acquisition), Some(Progress::Held(_)));
        if holds && !released {
            self.act(Action::GiveBack, tables);
        }
        let member = self.awake().next();
        if let Some(who) = member {
            self.act(Action::Contact(who), tables);
            self.deliver_all(tables);
        }
    }
}

/// The start of the newest view has every record of the table, and no two holds that conflict.
pub(super) fn start_breach(
    epoch: u64,
    newest: bool,
    holds: &ChunkedList<StartHold>,
    table: &HoldTable,
) -> Option<Breach> {
    let lacks = |record: &&lockkeeper_member::HoldRecord| {
        !holds.iter().any(|held| held.lock == record.lock && held.node == record.home)
    };
    if let Some(record) = table.records().find(lacks).filter(|_| newest) {
        let what = format!("the start of epoch {epoch} lacks the recorded hold of {}", record.home);
        return Some((Property::Starts, what));
    }
    // There is one lock here.
    let units = |mode| holds.iter().filter(|held| held.mode == mode).map(|held| held.units).sum::<u32>();
    let exclusive = units(lockkeeper_member::LockMode::Exclusive);
    let all: u32 = holds.iter().map(|held| held.units).sum();
    (exclusive > 1 || exclusive > 0 && all > exclusive)
        .then(|| (Property::Starts, format!("the start of epoch {epoch} has holds that exclude each other")))
}
