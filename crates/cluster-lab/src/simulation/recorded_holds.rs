//! Checks the starts of views and the promises of members against the table of recorded holds.

use super::observer::Property;
use super::sim::Sim;
use lockkeeper_core::MutualExclusion;
use lockkeeper_member::{
    Acquisition, ChunkedList, LockMode, LockName, Node, SessionId, StartHold, ToClient, View,
};
use std::collections::BTreeMap;

impl<P: MutualExclusion> Sim<'_, P> {
    /// Checks that the start of the newest view has every record of the table, and no holds that conflict.
    pub(super) fn check_start(&mut self, view: &View, holds: &ChunkedList<StartHold>) {
        if self.consensus.decided().last().is_none_or(|newest| newest.epoch != view.epoch) {
            return;
        }
        let lacks =
            self.consensus.table.records().find(|record| {
                !holds.iter().any(|held| held.lock == record.lock && held.node == record.home)
            });
        let mut by_lock = BTreeMap::<&LockName, Vec<LockMode>>::new();
        for held in holds.iter() {
            let modes = by_lock.entry(&held.lock).or_default();
            modes.extend((0..held.units).map(|_| held.mode));
        }
        let conflict = by_lock.iter().find(|(_, modes)| {
            // Each hold fits beside all others.
            modes.split_last().is_some_and(|(last, others)| !last.fits(others.iter().copied()))
        });
        let how = match (lacks, conflict) {
            (Some(record), _) => {
                let (home, lock) = (record.home, &record.lock);
                format!("the start of epoch {} lacks the recorded hold of {lock} at {home}", view.epoch)
            }
            (None, Some((lock, modes))) => {
                format!("the start of epoch {} has conflicting holds of {lock}: {modes:?}", view.epoch)
            }
            (None, None) => return,
        };
        self.observer.broken(self.now, Property::Starts, how);
    }

    /// Checks that a member promises a hold only while it has a lease and runs in a view, and only if the hold is recorded.
    pub(super) fn check_promise(
        &mut self,
        node: Node,
        session: SessionId,
        message: &ToClient,
        (lease_left_ns, runs): (u64, bool),
    ) {
        let (number, promises) = match message {
            ToClient::Alive { recorded, .. } => (None, recorded.is_some_and(|count| count > 0)),
            ToClient::Recorded { number, sent_ns, .. } => (Some(*number), sent_ns.is_some()),
            _ => return,
        };
        if promises && lease_left_ns == 0 {
            let how = format!("{node} promises recorded holds of {session}, and its lease is over");
            return self.observer.broken(self.now, Property::Promises, how);
        }
        if promises && !runs {
            let how = format!("{node} promises recorded holds of {session} while it changes its view");
            self.observer.broken_inside(self.now, Property::Promises, how);
        }
        // Once the lease is over, another member may have adopted the hold and ended it.
        if lease_left_ns == 0 {
            return;
        }
        if promises && number.is_none() {
            self.check_extended_promise(node, session);
        }
        let Some(number) = number else { return };
        let recorded = Acquisition { session, number };
        if !self.consensus.table.records().any(|record| record.acquisition == recorded) {
            let how = format!("{node} reports acquisition {number} of {session} as recorded, and it is not");
            self.observer.broken(self.now, Property::Promises, how);
        }
    }

    /// Checks an answer to a keep-alive: the hold that it promises anew is in the table. Only its present home may have
    /// ended the record.
    fn check_extended_promise(&mut self, node: Node, session: SessionId) {
        let request = self.clients.get(session.client as usize).and_then(|client| client.request.as_ref());
        let number = request.filter(|request| request.session == session).map(|request| request.number);
        let Some(acquisition) = number.map(|number| Acquisition { session, number }) else { return };
        let member = self.members[node.id.0 as usize - 1].as_ref();
        let promised = member.is_some_and(|member| member.is_record_current(acquisition));
        if promised && !self.consensus.table.records().any(|record| record.acquisition == acquisition) {
            let number = acquisition.number;
            let how = format!("{node} promises acquisition {number} of {session}, whose record has ended");
            self.observer.broken(self.now, Property::Promises, how);
        }
    }

    /// Checks that a daemon promises the hold of a tenant only while its member has a lease and runs in a view, and the table
    /// has the record.
    pub(super) fn check_tenant_promise(&mut self, daemon: usize, acquisition: Acquisition) {
        let clock = self.machines[daemon].clock.read(self.now);
        let Some(member) = &self.members[daemon] else { return };
        let (node, session) = (member.node(), acquisition.session);
        if member.running().is_none() {
            let how = format!("{node} promises recorded holds of {session} while it changes its view");
            self.observer.broken_inside(self.now, Property::Promises, how);
        }
        let how = if member.lease_left_ns(clock) == 0 {
            format!("{node} promises recorded holds of {session}, and its lease is over")
        } else if !self.consensus.table.records().any(|record| record.acquisition == acquisition) {
            format!("{node} promises a hold of {session}, whose record has ended")
        } else {
            return;
        };
        self.observer.broken(self.now, Property::Promises, how);
    }
}
