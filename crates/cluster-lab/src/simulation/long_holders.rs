//! Clients that hold hundreds of locks for as long as they can. Their messages are built by hand, without a
//! `ClientLink`: they exist only to give the members much work.

use super::observer::Property;
use super::sim::{ScheduledEvent, Sim};
use super::spec::{ClusterSpec, MS};
use lockkeeper_core::MutualExclusion;
use lockkeeper_member::{Ended, Generation, LockName, LockRequest, SessionId, ToClient, ToMember};
use std::collections::BTreeSet;

/// The number of locks that it requests at a time.
const AT_ONCE: usize = 20;

/// A client that holds many locks.
#[derive(Clone, Debug)]
pub struct LongHolder {
    number: usize,
    session: SessionId,
    member: usize,
    since_ns: u64,
    generation: Option<Generation>,
    /// The end of its lease on its own clock. `u64::MAX` before the first reply.
    lease_until_ns: u64,
    wants: BTreeSet<u64>,
    holds: BTreeSet<u64>,
}

impl LongHolder {
    /// Creates a client that holds nothing yet.
    pub fn new(number: usize, spec: &ClusterSpec) -> Self {
        Self {
            number,
            session: SessionId { client: (spec.clients + spec.tenants + number) as u64, number: 0 },
            member: number % spec.members,
            since_ns: 0,
            generation: None,
            lease_until_ns: u64::MAX,
            wants: (0..spec.locks_per_long_holder as u64).collect(),
            holds: BTreeSet::new(),
        }
    }

    /// Describes the missing locks, if the client has waited for them since `latest_ns` or longer.
    pub fn lacks(&self, latest_ns: u64) -> Option<String> {
        let lacks = self.since_ns <= latest_ns && !self.wants.is_empty();
        lacks.then(|| {
            let (session, member, count) = (self.session, self.member + 1, self.wants.len());
            format!("{session} at M{member} still waits for {count} locks of its long_holder")
        })
    }

    fn begin_again(&mut self, now: u64, spec: &ClusterSpec) {
        self.session.number += 1;
        self.member = (self.member + 1) % spec.members;
        self.since_ns = now;
        self.generation = None;
        self.lease_until_ns = u64::MAX;
        self.wants.append(&mut self.holds);
    }
}

impl<P: MutualExclusion> Sim<'_, P> {
    fn hoard_clock(&self, index: usize) -> u64 {
        let machine = self.spec.members + self.spec.clients + self.spec.tenants + index;
        self.machines[machine].clock.read(self.now)
    }

    /// Sends a keep-alive, and requests some of the locks that it lacks.
    pub(super) fn look_at_hoard(&mut self, index: usize) {
        self.after(150 * MS, ScheduledEvent::LongHolder(index));
        let clock = self.hoard_clock(index);
        let silent = self.long_holders[index].generation.is_none()
            && self.now > self.long_holders[index].since_ns + 4_000 * MS;
        if silent || clock >= self.long_holders[index].lease_until_ns {
            self.hoard_loses(index, "its lease ended");
        }
        let long_holder = &self.long_holders[index];
        let first = long_holder.generation.is_none();
        let mut message = vec![ToMember::KeepAlive { sent_ns: clock, first, settled: 0, generation: None }];
        for &number in long_holder.wants.iter().take(if first { 0 } else { AT_ONCE }) {
            let lock = LockName::new(format!("long_holder-{}-{number}", long_holder.number));
            message.push(ToMember::Acquire { number, settled: 0, request: LockRequest::exclusive(lock) });
        }
        self.send_of_long_holder(index, message);
    }

    fn send_of_long_holder(&mut self, index: usize, all: Vec<ToMember>) {
        let (session, member) = (self.long_holders[index].session, self.long_holders[index].member);
        let machine = self.spec.members + self.spec.clients + self.spec.tenants + index;
        for message in all {
            for delay in self.net.send(self.now, machine, member).into_iter().flatten() {
                self.after(
                    delay,
                    ScheduledEvent::Local { machine: member, session, message: message.clone() },
                );
            }
        }
    }

    fn hoard_loses(&mut self, index: usize, why: &str) {
        let (session, member) = (self.long_holders[index].session, self.long_holders[index].member);
        let held = self.long_holders[index].holds.len();
        if held > 0 {
            self.observer.outcome.lost += 1;
            if self.spec.spares_survivors() && self.now >= self.hit_until_ns[member] {
                let how = format!(
                    "{session} loses {held} locks at M{}, to which nothing happened: {why}",
                    member + 1
                );
                self.observer.broken(self.now, Property::Survivors, how);
            }
        }
        self.long_holders[index].begin_again(self.now, self.spec);
    }

    pub(super) fn deliver_to_long_holder(&mut self, index: usize, session: SessionId, message: &ToClient) {
        let long_holder = &mut self.long_holders[index];
        if long_holder.session != session {
            return;
        }
        match message {
            ToClient::Alive { generation, sent_ns, duration_ns, .. } => {
                if *long_holder.generation.get_or_insert(*generation) != *generation {
                    return self.hoard_loses(index, "its session began anew");
                }
                let until = sent_ns + duration_ns;
                let before =
                    if long_holder.lease_until_ns == u64::MAX { 0 } else { long_holder.lease_until_ns };
                long_holder.lease_until_ns = before.max(until);
            }
            ToClient::Granted { generation, number, .. }
                if Some(*generation) == long_holder.generation && long_holder.wants.remove(number) =>
            {
                long_holder.holds.insert(*number);
            }
            // An operator has revoked the hold.
            ToClient::Ended { number, outcome: Ended::Revoked } => {
                long_holder.wants.remove(number);
                long_holder.holds.remove(number);
                self.send_of_long_holder(index, vec![ToMember::Release { number: *number }]);
            }
            ToClient::NoSession => self.hoard_loses(index, "its member does not know it"),
            _ => {}
        }
    }
}
