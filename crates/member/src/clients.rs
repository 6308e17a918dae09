//! The member's side of client sessions: requests, releases, leases, revocations.

use crate::lock::Waiter;
use crate::member::{Member, Message, Timer};
use crate::session::{Session, Stage};
use crate::table::LockId;
use crate::{
    Acquisition, BugSwitch, Bugs, Ended, Fence, Generation, LONGEST_TAG, LockMode, LockName, LockRequest,
    Out, Proof, SessionId, Tag, ToClient, ToMember,
};
use alloc::string::String;
use alloc::vec::Vec;
use lockkeeper_core::MutualExclusion;

/// The present use of a delegation, as its client reports it: the fence of the entry, and the tag of the user.
struct DelegationUse {
    fence: Option<Fence>,
    tag: Tag,
}

impl<P: MutualExclusion, B: Bugs> Member<P, B> {
    /// Handles a message of a client that is connected to this member. The session may be at another one.
    pub(crate) fn client_message(
        &mut self,
        now: u64,
        id: SessionId,
        proof: Proof,
        message: ToMember,
        out: &mut Out<Message<P>>,
    ) {
        let opens = matches!(message, ToMember::KeepAlive { first: true, .. });
        match self.sessions.get_mut(&id) {
            Some(session) if !session.ends => session.via = None,
            None if !opens && !id.is_resident() => return self.relay(now, id, proof, message, out),
            _ => {}
        }
        self.client(now, id, proof, message, out);
    }

    /// Handles a message of a client whose session is at this member, or is opened by the message.
    pub(crate) fn client(
        &mut self,
        now: u64,
        id: SessionId,
        proof: Proof,
        message: ToMember,
        out: &mut Out<Message<P>>,
    ) {
        // Resident clients send no keep-alives: a connecting client has used the number of a resident one.
        if id.is_resident() && matches!(message, ToMember::KeepAlive { .. }) {
            return;
        }
        if let ToMember::KeepAlive { first: true, .. } = message
            && self.leave.is_none()
        {
            let generation = self.new_generation();
            let new = || Session { generation, proof, last_message_ns: now, ..Session::default() };
            self.sessions.entry(id).or_insert_with(new);
            self.timers.insert((now + self.config.session_ns(), Timer::Session(id)));
        }
        let (lease_left_ns, promises) = (self.lease_left_ns(now), self.promises(now));
        let (slice, installed, running) = (self.config.slice(), self.installed, self.running().is_some());
        let while_frozen = self.config.has(BugSwitch::PromisedWhileFrozen);
        if self.sessions.get(&id).is_some_and(|session| session.adopted_in > installed) && !while_frozen {
            // The view with which this member adopts the session has not started here.
            return;
        }
        let Some(session) = self.sessions.get_mut(&id).filter(|session| !session.ends) else {
            // A request may overtake the keep-alive that opens its session. Only a later keep-alive proves that the
            // session is lost.
            if let ToMember::KeepAlive { .. } = message {
                out.clients.push((id, ToClient::NoSession));
            }
            return;
        };
        match message {
            ToMember::KeepAlive { sent_ns, settled, generation, .. } => {
                let was_in_jeopardy = session.is_in_jeopardy(now, &self.config);
                session.last_message_ns = now;
                session.is_orphan = false;
                session.keep_alive_sent_ns = session.keep_alive_sent_ns.max(Some(sent_ns));
                let stale = session.settle(settled, slice);
                let without_lease = self.config.has(BugSwitch::PromisedWithoutLease);
                if generation.is_some_and(|known| known < session.generation) {
                    out.clients.extend(self.resumed(id).map(|resumed| (id, resumed)));
                } else if !promises {
                    // A client that receives this stops using its holds. The message may get lost, so the member
                    // waits until the lease has expired nevertheless. Recorded holds move to another member.
                    if session.recorded == 0 && session.adopted_in == 0 {
                        out.clients.push((id, ToClient::NoSession));
                    }
                } else if let Some(duration_ns) =
                    session.promise(now, lease_left_ns, &self.config).or(without_lease.then_some(0))
                {
                    let revoked = session.revoked.iter().copied().collect();
                    let generation = session.generation;
                    let recorded = (running || without_lease || while_frozen).then_some(session.recorded);
                    if recorded.is_some() {
                        session.durably_promised_ns = session.durably_promised_ns.max(Some(now));
                    }
                    // The client may have missed the message that named the operator.
                    out.clients.extend(session.revokers().map(|revoker| (id, revoker)));
                    let alive = ToClient::Alive { generation, sent_ns, duration_ns, revoked, recorded };
                    out.clients.push((id, alive));
                }
                for number in stale {
                    self.give_back(now, Acquisition { session: id, number }, out);
                }
                if was_in_jeopardy {
                    self.note_changes_of(id);
                }
            }
            ToMember::Acquire { number, settled, request } => {
                for number in session.settle(settled, slice) {
                    self.give_back(now, Acquisition { session: id, number }, out);
                }
                self.acquire(now, Acquisition { session: id, number }, request, out)
            }
            ToMember::Release { number } => self.give_back(now, Acquisition { session: id, number }, out),
            ToMember::InUse { number, fence, tag } => {
                self.in_use(now, Acquisition { session: id, number }, DelegationUse { fence, tag }, out);
            }
            ToMember::Close => self.end_session(now, id, out),
        }
    }

    /// The generation of a session that is opened, or that loses holds of a silent client.
    pub(crate) fn new_generation(&mut self) -> Generation {
        let number = self.next_generation;
        self.next_generation += 1;
        Generation { epoch: self.installed, incarnation: self.me.incarnation, number }
    }

    /// The state of an acquisition, if the member remembers it.
    pub(crate) fn stage(&self, acquisition: Acquisition) -> Option<&Stage> {
        self.sessions.get(&acquisition.session)?.acquisitions.get(&acquisition.number)
    }

    /// The generation of a session.
    pub(crate) fn generation(&self, session: SessionId) -> Generation {
        self.sessions.get(&session).map(|session| session.generation).unwrap_or_default()
    }

    /// Records the state of an acquisition.
    pub(crate) fn set(&mut self, acquisition: Acquisition, stage: Stage) {
        if let Some(session) = self.sessions.get_mut(&acquisition.session) {
            session.set(acquisition.number, stage);
        }
    }

    /// Handles a request for a lock.
    fn acquire(
        &mut self,
        now: u64,
        acquisition: Acquisition,
        request: LockRequest,
        out: &mut Out<Message<P>>,
    ) {
        let Some(session) = self.sessions.get(&acquisition.session) else { return };
        if !session.is_new(acquisition.number) {
            return self.answer_again(acquisition, out);
        }
        if self.leave.is_some() {
            return self.over(acquisition, Ended::Leaving, out);
        }
        if !request.mode.is_possible() || request.tag.check().is_err() {
            return self.over(acquisition, Ended::Refused, out);
        }
        if let Err(how) = self.admit(&request.lock) {
            self.check_capacity(now);
            return self.over(acquisition, how, out);
        }
        if request.reentrant && self.reenter(now, acquisition, &request, out) {
            return;
        }
        let id = self.locks.own_entry(&request.lock);
        self.check_capacity(now);
        let non_blocking = request.timeout_ns == Some(0);
        let active = self.locks.get(id).active.as_ref();
        let in_the_way = active.filter(|active| active.is_in_the_way_of(request.mode));
        let recalls = non_blocking && in_the_way.is_some_and(|active| active.is_perhaps_unused());
        if non_blocking && in_the_way.is_some() && !recalls {
            return self.over(acquisition, Ended::Busy, out);
        }
        // No grant is possible without a view, and this request does not wait for one.
        if non_blocking && self.running().is_none() {
            return self.over(acquisition, Ended::TimedOut, out);
        }
        let ttl_ns = self.config.cluster.ttl_in_force_ns(request.ttl_ns);
        self.order += 1;
        // An idle delegation is recalled, and the non-blocking request waits for the client's reply.
        let timeout_ns = if recalls { Some(self.config.round_trip_ns) } else { request.timeout_ns };
        let timeout_at_ns = timeout_ns.map(|timeout| now.saturating_add(timeout));
        let may_delegate =
            request.mode == LockMode::Exclusive && request.longest_hold_ns.is_none() && !request.reentrant;
        self.set(acquisition, Stage::Waiting(id));
        self.locks.activate(id).queue.push_back(Waiter {
            acquisition,
            mode: request.mode,
            timeout_at_ns,
            longest_hold_ns: request.longest_hold_ns,
            delegated_entries: if may_delegate { request.delegated_entries } else { 0 },
            ttl_ns: if acquisition.session.is_resident() { 0 } else { ttl_ns },
            non_blocking,
            tag: request.tag,
            order: self.order,
            since_ns: now,
        });
        if let Some(at) = timeout_at_ns {
            self.timers.insert((at, Timer::RequestTimeout(acquisition)));
        }
        self.advance(now, id, out);
    }

    /// Repeats the answer to a duplicate of a request or release.
    fn answer_again(&self, acquisition: Acquisition, out: &mut Out<Message<P>>) {
        let (session, number) = (acquisition.session, acquisition.number);
        let answer = match self.stage(acquisition) {
            None | Some(Stage::Waiting(_)) => return,
            Some(Stage::Over(_)) if self.recording.has(acquisition) => return,
            Some(Stage::Over(how)) => ToClient::Ended { number, outcome: *how },
            Some(Stage::Held(id)) => {
                let active = self.locks.get(*id).active.as_ref();
                let hold = active.and_then(|active| active.holds.iter().find(|hold| hold.is_of(acquisition)));
                let Some(hold) = hold.filter(|hold| hold.revoked_until_ns.is_none()) else { return };
                let (generation, fence, delegated_entries) =
                    (self.generation(session), hold.fence, hold.delegated_entries);
                ToClient::Granted { generation, number, fence, delegated_entries, contended: false }
            }
        };
        out.clients.push((session, answer));
    }

    /// Grants a reentrant request if the session holds the lock already. Returns `false` if it does not.
    fn reenter(
        &mut self,
        now: u64,
        acquisition: Acquisition,
        request: &LockRequest,
        out: &mut Out<Message<P>>,
    ) -> bool {
        let session = acquisition.session;
        let Some(id) = self.locks.find(&request.lock) else { return false };
        let Some(active) = &mut self.locks.get_mut(id).active else { return false };
        let hold = active.holds.iter_mut().find(|hold| {
            let own = hold.acquisitions().any(|held| held.session == session);
            // A delegation is recalled first: its client may have used fences beyond that of the grant.
            let free = hold.revoked_until_ns.is_none() && !hold.was_delegated;
            own && free && [LockMode::Exclusive, request.mode].contains(&hold.mode)
        });
        let Some(hold) = hold else { return false };
        if now >= self.lease_until_ns {
            // The client repeats its request. Another member may have adopted the hold.
            return true;
        }
        hold.again.push(acquisition);
        let (fence, ttl_ns) = (hold.fence, hold.ttl_ns);
        if ttl_ns > 0 {
            self.young_holds.push_back((now, acquisition));
        }
        self.set(acquisition, Stage::Held(id));
        self.note_change(id);
        let (generation, number) = (self.generation(session), acquisition.number);
        out.clients.push((
            session,
            ToClient::Granted { generation, number, fence, delegated_entries: 0, contended: false },
        ));
        true
    }

    /// Handles the message that a delegation is in use: non-blocking requests that waited for it fail.
    fn in_use(
        &mut self,
        now: u64,
        acquisition: Acquisition,
        DelegationUse { fence, tag }: DelegationUse,
        out: &mut Out<Message<P>>,
    ) {
        let Some(&Stage::Held(id)) = self.stage(acquisition) else { return };
        let Some(active) = &mut self.locks.get_mut(id).active else { return };
        let Some(hold) = active.hold_mut(acquisition) else { return };
        if !hold.was_delegated || tag.check().is_err() {
            return;
        }
        hold.delegated_entries = 0;
        if !core::mem::replace(&mut hold.in_use, true) && hold.ttl_ns > 0 {
            self.young_holds.push_back((now, acquisition));
        }
        hold.tag = tag;
        hold.fence =
            hold.fence.max(fence.filter(|fence| hold.fence.is_some_and(|f| f.epoch() == fence.epoch())));
        let trying =
            active.queue.iter().filter(|waiter| waiter.non_blocking).map(|waiter| waiter.acquisition);
        let trying: Vec<_> = trying.collect();
        self.note_change(id);
        for trying in trying {
            self.cancel(now, trying, Ended::Busy, out);
        }
    }

    /// Releases a hold, or cancels a request, for the client.
    fn give_back(&mut self, now: u64, acquisition: Acquisition, out: &mut Out<Message<P>>) {
        // Only a message of the client ends a revocation: until then the grant may still be in transit, and every
        // answer to a keep-alive must list it.
        if let Some(session) = self.sessions.get_mut(&acquisition.session) {
            session.revoked.remove(&acquisition.number);
            session.revoked_by.remove(&acquisition.number);
        }
        match self.stage(acquisition) {
            Some(Stage::Waiting(_)) => self.cancel(now, acquisition, Ended::Cancelled, out),
            Some(Stage::Held(id)) => self.end_hold(now, *id, acquisition, Ended::Released, out),
            Some(Stage::Over(_)) => self.answer_again(acquisition, out),
            // The request may still be in transit: it is over when it arrives.
            None if self.sessions.get(&acquisition.session).is_some_and(|s| s.is_new(acquisition.number)) => {
                self.over(acquisition, Ended::Cancelled, out);
            }
            None => {}
        }
    }

    /// Records the outcome of an acquisition and sends it to the client.
    fn over(&mut self, acquisition: Acquisition, how: Ended, out: &mut Out<Message<P>>) {
        self.set(acquisition, Stage::Over(how));
        out.clients.push((acquisition.session, ToClient::Ended { number: acquisition.number, outcome: how }));
    }

    /// Removes a waiter from its queue.
    pub(crate) fn cancel(
        &mut self,
        now: u64,
        acquisition: Acquisition,
        how: Ended,
        out: &mut Out<Message<P>>,
    ) {
        let Some(&Stage::Waiting(id)) = self.stage(acquisition) else { return };
        if let Some(active) = &mut self.locks.get_mut(id).active
            && let Some(place) = active.queue.iter().position(|waiter| waiter.acquisition == acquisition)
            && let Some(waiter) = active.queue.remove(place)
        {
            // A long queue takes long to search: 64 waiters cost about as much as one lock.
            self.work = self.work.saturating_add(place / 64);
            if let Some(at) = waiter.timeout_at_ns {
                self.timers.remove(&(at, Timer::RequestTimeout(acquisition)));
            }
        }
        self.over(acquisition, how, out);
        // The next waiter may be compatible with the present holders although this one was not.
        self.advance(now, id, out);
    }

    /// Ends one acquisition of a hold. The hold ends with its last one.
    fn end_hold(
        &mut self,
        now: u64,
        id: LockId,
        acquisition: Acquisition,
        how: Ended,
        out: &mut Out<Message<P>>,
    ) {
        let running = self.running().is_some();
        if running {
            // A new view may not have resumed this lock yet. Its algorithm starts with the hold, as the other members'
            // instances do, and then exits.
            self.ensure_instance(id, true);
        }
        let Some(active) = &mut self.locks.get_mut(id).active else { return };
        let Some(place) = active.holds.iter().position(|hold| hold.is_of(acquisition)) else { return };
        let hold = &mut active.holds[place];
        hold.end(acquisition);
        let proposed_is_short = self.config.has(BugSwitch::ProposedCountsAsShort);
        let ends_later =
            self.recording.end(acquisition, proposed_is_short) && !self.config.has(BugSwitch::FreedBeforeEnd);
        if ends_later {
            hold.ending.push(acquisition);
        }
        if let Some(at) = hold.longest_until_ns {
            self.timers.remove(&(at, Timer::LongestHold(acquisition)));
        }
        if let Some(at) = hold.revoked_until_ns {
            self.timers.remove(&(at, Timer::Revoked(acquisition)));
        }
        // While frozen, the report lists the hold, and the next view starts from the report.
        if hold.is_over() && (running || self.config.has(BugSwitch::ReportChanges)) {
            active.holds.remove(place);
            self.held -= 1;
        }
        if ends_later {
            // The client repeats its release until the end of the record is committed. If this member crashes before
            // that, the client repeats it to the member that adopts the hold.
            self.set(acquisition, Stage::Over(how));
        } else {
            self.over(acquisition, how, out);
        }
        self.advance(now, id, out);
    }

    /// Ends a session: the client closed it, or its lease has expired. A session with many holds ends over several
    /// steps; meanwhile it counts as unknown to its client.
    pub(crate) fn end_session(&mut self, now: u64, id: SessionId, out: &mut Out<Message<P>>) {
        let Some(session) = self.sessions.get_mut(&id).filter(|session| !session.ends) else { return };
        session.ends = true;
        self.ending.push_back(id);
        self.continue_ending(now, out);
    }

    /// Continues to end sessions: releases their holds and cancels their requests.
    pub(crate) fn continue_ending(&mut self, now: u64, out: &mut Out<Message<P>>) {
        while let Some(&id) = self.ending.front()
            && self.has_budget()
        {
            let message = out.clients.len();
            let done = self.end_some(now, id, out);
            // One message is enough for the whole session.
            let others = out.clients.split_off(message);
            out.clients.extend(others.into_iter().filter(|(session, _)| *session != id));
            if done {
                self.ending.pop_front();
                self.sessions.remove(&id);
                out.clients.push((id, ToClient::NoSession));
            }
        }
    }

    /// Ends as many acquisitions of a session as this step may. Returns whether none is left.
    fn end_some(&mut self, now: u64, id: SessionId, out: &mut Out<Message<P>>) -> bool {
        loop {
            let first = self.sessions.get(&id).and_then(|session| session.acquisitions.first_key_value());
            let Some((&number, &stage)) = first else { return true };
            if !self.has_budget() {
                return false;
            }
            self.spend(1);
            let acquisition = Acquisition { session: id, number };
            match stage {
                Stage::Waiting(_) => self.cancel(now, acquisition, Ended::Cancelled, out),
                Stage::Held(lock) => self.end_hold(now, lock, acquisition, Ended::Released, out),
                Stage::Over(_) => {}
            }
            if let Some(session) = self.sessions.get_mut(&id) {
                session.acquisitions.remove(&number);
            }
        }
    }

    /// Revokes a hold for an operator, if it is a hold of this lock: the operator's permission was checked for the
    /// lock, not for the acquisition.
    pub(crate) fn revoke_hold_of(
        &mut self,
        now: u64,
        lock: &LockName,
        acquisition: Acquisition,
        by: String,
        out: &mut Out<Message<P>>,
    ) {
        let Some(&Stage::Held(id)) = self.stage(acquisition) else { return };
        if self.locks.find(lock) == Some(id) {
            self.revoke(now, acquisition, by, out);
        }
    }

    /// Revokes a hold: for an operator, or because its longest hold is over. The client may use it until it receives
    /// the message, so the lock is free only once the session's present lease has expired. Every answer to a
    /// keep-alive lists the hold as revoked until the client releases it. `by` is the operator's name; empty if there is
    /// none.
    pub(crate) fn revoke(
        &mut self,
        now: u64,
        acquisition: Acquisition,
        by: String,
        out: &mut Out<Message<P>>,
    ) {
        let Some(&Stage::Held(id)) = self.stage(acquisition) else { return };
        let Some(session) = self.sessions.get(&acquisition.session) else { return };
        let at_once = self.config.has(BugSwitch::RevokedAtOnce)
            || self.config.has(BugSwitch::OrphanFreedByForce)
                && session.adopted_in > 0
                && session.keep_alive_sent_ns.is_none();
        let session_until = self.promised_until_ns(session);
        let Some(session) = self.sessions.get_mut(&acquisition.session) else { return };
        let Some(active) = &mut self.locks.get_mut(id).active else { return };
        let Some(hold) = active.hold_mut(acquisition) else { return };
        if hold.revoked_until_ns.is_some() {
            return;
        }
        let is_recorded = hold.acquisitions().any(|held| self.recording.has(held));
        let recorded_until =
            if is_recorded { session.record_promised_until_ns(hold.ttl_ns, &self.config) } else { 0 };
        let until = if at_once { now } else { session_until.max(recorded_until).max(now) };
        hold.revoked_until_ns = Some(until);
        for held in hold.acquisitions() {
            session.revoked.insert(held.number);
            if !by.is_empty() && by.len() <= LONGEST_TAG {
                session.revoked_by.insert(held.number, by.clone());
                out.clients.push((held.session, ToClient::RevokedBy { number: held.number, by: by.clone() }));
            }
            out.clients
                .push((held.session, ToClient::Ended { number: held.number, outcome: Ended::Revoked }));
            self.timers.insert((until, Timer::Revoked(held)));
        }
    }

    /// Handles a timer that has expired.
    pub(crate) fn run_timer(&mut self, now: u64, due: Timer, out: &mut Out<Message<P>>) {
        match due {
            Timer::RequestTimeout(acquisition) => self.cancel(now, acquisition, Ended::TimedOut, out),
            Timer::LongestHold(acquisition) => self.revoke(now, acquisition, String::new(), out),
            Timer::Revoked(acquisition) => {
                if let Some(&Stage::Held(id)) = self.stage(acquisition) {
                    self.end_hold(now, id, acquisition, Ended::Revoked, out);
                }
            }
            Timer::Session(id) => self.check_session(now, id, out),
            Timer::CheckLink(node) => self.check_link(now, node, out),
            Timer::QueryTimeout(number) => self.end_query(number, out),
        }
    }

    /// Ends a session whose client is silent and whose lease has expired; otherwise sets its timer again.
    fn check_session(&mut self, now: u64, id: SessionId, out: &mut Out<Message<P>>) {
        let Some(session) = self.sessions.get(&id).filter(|session| !session.ends) else { return };
        if session.is_over(now, &self.config) {
            return self.end_unprotected_holds(now, id, out);
        }
        if let Some(session) = self.sessions.get_mut(&id) {
            session.examined = None;
        }
        let Some(session) = self.sessions.get(&id) else { return };
        let next = session.promised_until_ns.max(session.last_message_ns + self.config.session_ns());
        let next = if self.config.has(BugSwitch::SilentClientForgotten) {
            now + self.config.session_ns() / 4
        } else {
            next
        };
        self.timers.insert((next.max(now + 1), Timer::Session(id)));
    }

    /// Ends the holds and requests of a silent client, except for recorded holds that are still promised. The session ends
    /// with the last of them. The client may have missed the answers, so what is left is a new generation of the session.
    fn end_unprotected_holds(&mut self, now: u64, id: SessionId, out: &mut Out<Message<P>>) {
        loop {
            let Some(session) = self.sessions.get(&id) else { return };
            let rest = session.examined.map_or(0, |examined| examined + 1);
            let Some((&number, &stage)) = session.acquisitions.range(rest..).next() else { break };
            if !self.has_budget() {
                self.timers.insert((now, Timer::Session(id)));
                return;
            }
            self.spend(1);
            let acquisition = Acquisition { session: id, number };
            let kept = self.is_protected(now, acquisition);
            match stage {
                Stage::Held(lock) if !kept => self.end_hold(now, lock, acquisition, Ended::Released, out),
                // From now on the hold is in jeopardy.
                Stage::Held(lock) => self.note_change(lock),
                Stage::Waiting(_) => self.cancel(now, acquisition, Ended::Cancelled, out),
                Stage::Over(_) => {}
            }
            let generation = (!kept && !matches!(stage, Stage::Over(_))).then(|| self.new_generation());
            if let Some(session) = self.sessions.get_mut(&id) {
                session.examined = Some(number);
                session.generation = generation.map_or(session.generation, |new| new.max(session.generation));
            }
        }
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.examined = None;
        let Some(session) = self.sessions.get(&id) else { return };
        let until = |(&number, stage): (&u64, &Stage)| match stage {
            Stage::Held(_) => self.protected_until_ns(session, Acquisition { session: id, number }),
            _ => None,
        };
        let next = session.acquisitions.iter().filter_map(until).min();
        match next.filter(|_| !session.is_done()) {
            Some(next) => {
                // A promise that is over and kept nevertheless (a bug switch) is examined again after a while.
                let next = if next > now { next } else { now.saturating_add(self.config.session_ns()) };
                self.timers.insert((next, Timer::Session(id)));
            }
            None => self.end_session(now, id, out),
        }
    }

    /// Whether a hold of a silent client is recorded and still promised.
    fn is_protected(&self, now: u64, acquisition: Acquisition) -> bool {
        let Some(session) = self.sessions.get(&acquisition.session) else { return false };
        if self.config.has(BugSwitch::OrphanKeptForEver) && session.adopted_in > 0 {
            return true;
        }
        self.protected_until_ns(session, acquisition).is_some_and(|until| now < until)
    }

    /// The end of the promise of a recorded hold; `None` if it is not recorded.
    fn protected_until_ns(&self, session: &Session, acquisition: Acquisition) -> Option<u64> {
        let Some(Stage::Held(id)) = session.acquisitions.get(&acquisition.number) else { return None };
        let hold = self.locks.get(*id).active.as_ref()?.holds.iter().find(|hold| hold.is_of(acquisition))?;
        let recorded = self.recording.has(acquisition);
        recorded.then(|| session.record_promised_until_ns(hold.ttl_ns, &self.config))
    }

    /// Whether a session is at this member.
    pub fn has_session(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// The ids of all sessions at this member.
    pub fn sessions(&self) -> Vec<SessionId> {
        self.sessions.keys().copied().collect()
    }
}
