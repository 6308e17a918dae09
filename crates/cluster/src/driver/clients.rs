//! The clients in this process: the lease that all of them share, and the loss of their holds when it ends.

use super::{Driver, State, random};
use crate::engine::LEAVING;
use crate::error::{Error, Result};
use crate::local::{AdoptedHold, Counts, LEASE_RAN_OUT, LocalClient, LocalLease, warning_margin_ns};
use lockkeeper_core::MutualExclusion;
use lockkeeper_member::{Event, NotOpened, Proof, SessionId, ToMember};
use lockkeeper_system::lease_clock::now_ns;

/// Maximum number of clients, and of holds of each, that are examined before the lock is released to other threads.
/// Each one takes some microseconds.
const AT_ONCE: usize = 256;

/// The reason for lost holds at a leaving member, once its holders' time to release is over.
const LEAVES: &str = "this member is leaving its cluster";

impl<P: MutualExclusion> Driver<P> {
    /// Holders are warned when less than this is left of the lease.
    fn margin_ns(state: &State<P>) -> u64 {
        warning_margin_ns(state.member.settings().lease_ns)
    }

    /// The lease of the clients in this process at this moment.
    pub(super) fn lease(&self, state: &State<P>, now: u64) -> LocalLease {
        // The promises of a leaving member end at a fixed time, which may pass between two steps.
        let until_ns = state.lease_until_ns.min(state.member.resident_until_ns(now));
        LocalLease {
            now_ns: now,
            until_ns,
            number: state.lease_number,
            ended: state.lease_ended,
            margin_ns: Self::margin_ns(state),
        }
    }

    /// Ends the lease if it has expired by `now`. Holds under it are lost, even if the current step brings a new lease.
    pub(super) fn end_lease_if_over(&self, state: &mut State<P>, now: u64) {
        if state.lease_until_ns != 0 && now >= state.lease_until_ns.min(state.member.resident_until_ns(now)) {
            self.end_lease(state, now, if state.leaving { LEAVES } else { LEASE_RAN_OUT });
        }
    }

    /// Adopts the member's lease as it is after a step.
    pub(super) fn follow_lease(&self, state: &mut State<P>, now: u64) {
        let until_ns = state.member.resident_until_ns(now);
        if until_ns > now {
            if state.lease_until_ns == 0 {
                self.begin_lease(state, now);
            }
            state.warned &= until_ns <= state.lease_until_ns;
            state.lease_until_ns = until_ns;
        } else if state.lease_until_ns != 0 {
            self.end_lease(state, now, if state.leaving { LEAVES } else { LEASE_RAN_OUT });
        }
    }

    /// Ends the lease. All holds under it are lost at once, since the next lease has another number; the holders are
    /// notified later, some at a time.
    pub(super) fn end_lease(&self, state: &mut State<P>, now: u64, why: &'static str) {
        if state.lease_until_ns == 0 {
            return;
        }
        state.lease_until_ns = 0;
        state.lease_number += 1;
        state.lease_ended = why;
        self.note_lease_lost(state, now);
        self.examine_all_clients(state);
        self.expiring.send_modify(|changes| *changes += 1);
    }

    /// Schedules the examination of all clients in this process, some at a time.
    pub(super) fn examine_all_clients(&self, state: &mut State<P>) {
        state.stale = state.locals.keys().map(|&client| (client, 0)).collect();
        state.armed_ns = 0;
        self.timer.notify_one();
    }

    /// Examines the next clients that may have lost holds, up to `AT_ONCE` acquisitions.
    pub(super) fn examine_some_clients(&self, state: &mut State<P>) {
        let mut left = AT_ONCE;
        while left > 0
            && let Some((client, from)) = state.stale.pop_front()
        {
            left = left.saturating_sub(1 + self.examine_client(state, client, from));
        }
    }

    /// Settles the losses of a client: releases its lost holds from acquisition `from` on, and repeats its waiting
    /// requests in a new session if the member has started a new incarnation. Returns the number of acquisitions
    /// concerned.
    pub(super) fn examine_client(&self, state: &mut State<P>, client: u64, from: u64) -> usize {
        let lease = self.lease(state, now_ns());
        let (incarnations, leaving) = (state.incarnations, state.leaving);
        let Some(local) = state.locals.get_mut(&client) else { return 0 };
        if local.is_of_earlier_incarnation(incarnations) {
            if local.begin_again(state.lease_ended) {
                self.metrics.lost_leases.inc();
            }
            let requests = local.session.waiting_requests();
            if requests.is_empty() || self.open_session(state, client).is_err() {
                return 0;
            }
            let Some(local) = state.locals.get_mut(&client) else { return 0 };
            let (id, settled, count) = (local.session.id(), local.session.settle(), requests.len());
            for (number, request) in requests {
                self.step(
                    state,
                    Event::Client(id, Proof::default(), ToMember::Acquire { number, settled, request }),
                );
            }
            return count;
        }
        let (id, (lost, next)) = (local.session.id(), local.lose_earlier(lease, from, AT_ONCE));
        if let Some(next) = next {
            state.stale.push_back((client, next));
        }
        let count = lost.len();
        if count > 0 {
            self.metrics.lost_leases.inc();
        }
        // A leaving member does not release them now: it waits until all its promises have expired, and then ends the
        // session.
        if leaving {
            return count;
        }
        for number in lost {
            if let Some(local) = state.locals.get_mut(&client) {
                local.session.release(number);
            }
            self.step(state, Event::Client(id, Proof::default(), ToMember::Release { number }));
        }
        count
    }

    /// Opens a client's session at the member, unless it is open.
    pub(super) fn open_session(&self, state: &mut State<P>, client: u64) -> Result<()> {
        let Some(local) = state.locals.get_mut(&client) else {
            return Err(Error::Stopped(String::from("its session was closed")));
        };
        if local.open_in != Some(state.incarnations) {
            let id = local.session.id();
            state.member.open_resident(now_ns(), id).map_err(|why| match why {
                NotOpened::Leaving => Error::Stopped(String::from(LEAVING)),
                NotOpened::Exists | NotOpened::NotResident => {
                    Error::Unavailable(format!("the session {id} cannot be opened: {why:?}"))
                }
            })?;
            local.open_in = Some(state.incarnations);
        }
        Ok(())
    }

    /// Makes clients in this process of the holds that the member has adopted from other members' processes. Their
    /// sessions get numbers of their own here: an earlier client of this process may have had theirs.
    pub(super) fn adopt_locals(&self, state: &mut State<P>) {
        let records = state.member.take_adopted_residents();
        if records.is_empty() {
            return;
        }
        let (now, incarnations) = (now_ns(), state.incarnations);
        let lease = self.lease(state, now);
        for record in records {
            let session = record.acquisition.session;
            let client = match state.adopted_sessions.get(&session) {
                Some(&client) => client,
                None => {
                    let client = Self::free_number(state);
                    let open_in = Some(incarnations);
                    let mut local = LocalClient::new(session);
                    local.open_in = open_in;
                    state.locals.insert(client, local);
                    state.adopted_sessions.insert(session, client);
                    client
                }
            };
            let number = record.acquisition.number;
            let owed_until_ns = state.member.adopted_until_ns(now, record.ttl_ns);
            if let Some(local) = state.locals.get_mut(&client) {
                local.adopt(lease, number, record.fence, (record.ttl_ns, owed_until_ns));
            }
            state.adopted.push(AdoptedHold {
                client,
                number,
                fence: record.fence,
                lock: record.lock,
                payload: record.payload,
                until_ns: owed_until_ns.saturating_add(record.ttl_ns),
            });
        }
        tracing::info!(member = %self.me, holds = state.adopted.len(), "adopted holds of this cluster's other daemons");
        self.adoptions.send_modify(|changes| *changes += 1);
    }

    /// A random number for a client in this process. It need not be secret: clients outside of this process cannot use
    /// numbers of resident clients.
    pub(super) fn free_number(state: &mut State<P>) -> u64 {
        let mut client = random().unwrap_or_else(|_| state.next_client.wrapping_add(1)) | SessionId::RESIDENT;
        while state.locals.contains_key(&client) {
            client = client.wrapping_add(1) | SessionId::RESIDENT;
        }
        state.next_client = client;
        client
    }

    /// Ends the sessions of adopted holds that no caller has taken over: this process does not serve such clients.
    pub(super) fn end_unclaimed(&self, state: &mut State<P>, now: u64) {
        if state.adopted.iter().all(|hold| now < hold.until_ns) {
            return;
        }
        let over: Vec<AdoptedHold> = state.adopted.extract_if(.., |hold| now >= hold.until_ns).collect();
        for hold in over {
            if let Some(local) = state.locals.remove(&hold.client) {
                state.adopted_sessions.remove(&local.session.id());
                self.step(state, Event::Client(local.session.id(), Proof::default(), ToMember::Close));
            }
        }
    }

    /// Ends a client's session because the member leaves.
    pub(super) fn end_local(&self, state: &mut State<P>, client: u64) {
        if let Some(local) = state.locals.get_mut(&client)
            && local.begin_again(LEAVES)
        {
            self.metrics.lost_leases.inc();
        }
    }

    /// Notifies the waiters whose grants were deferred because the lease was too short, if it is long enough now.
    pub(super) fn report_grants(&self, state: &mut State<P>, lease: LocalLease, counts: &mut Counts) {
        if state.unreported.is_empty() || !lease.is_reportable() {
            return;
        }
        for (client, number) in std::mem::take(&mut state.unreported) {
            if let Some(local) = state.locals.get_mut(&client) {
                local.settle(lease, number, counts);
            }
        }
    }

    /// Notifies all holders at once when the lease is about to end. Returns the time at which to check again.
    pub(super) fn warn_of_end(&self, state: &mut State<P>, now: u64) -> u64 {
        if state.lease_until_ns == 0 {
            return u64::MAX;
        }
        let warn_ns = state.lease_until_ns.saturating_sub(Self::margin_ns(state));
        if state.warned {
            return state.lease_until_ns;
        }
        if now < warn_ns {
            return warn_ns;
        }
        state.warned = true;
        self.expiring.send_modify(|changes| *changes += 1);
        state.lease_until_ns
    }
}
