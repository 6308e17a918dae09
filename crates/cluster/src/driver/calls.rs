//! The calls into a running member: from the API, the network and consensus.

use super::{Driver, Message};
use crate::engine::{
    ClientIdentity, ClientTransport, Environment, FrameError, Immediate, LEAVING, LocalSessions, LockTable,
    MemberStatus, Operations, ProposalError, RecordedHolds, RemoteClients,
};
use crate::error::{Error, Result};
use crate::local::{AdoptedHold, HoldState, LocalClient};
use crate::metrics::{Metrics, message_name, seconds};
use crate::net::Net;
use crate::not_serving::NotServing;
use lockkeeper_consensus::Consensus;
use lockkeeper_core::MutualExclusion;
use lockkeeper_member::{
    Acquisition, Body, ClusterSettings, Event, Fence, Frame, LockList, LockMode, LockName, LockRequest,
    LockScan, LockStatus, MemberId, NoFence, PortEvent, Proof, Query, Reply, SessionId, ToMember,
};
use lockkeeper_session::Progress;
use lockkeeper_system::lease_clock::now_ns;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tracing::Span;

impl<P: MutualExclusion> LocalSessions for Driver<P> {
    fn open(&self) -> u64 {
        let state = &mut *self.turn();
        let client = Self::free_number(state);
        // The first request opens the session at the member, so an idle client costs the member nothing.
        state.locals.insert(client, LocalClient::new(SessionId { client, number: 0 }));
        client
    }

    fn close(&self, client: u64) {
        let state = &mut *self.turn();
        if let Some(local) = state.locals.remove(&client)
            && local.open_in == Some(state.incarnations)
        {
            state.adopted_sessions.remove(&local.session.id());
            self.step(state, Event::Client(local.session.id(), Proof::default(), ToMember::Close));
        }
    }

    fn session(&self, client: u64) -> Option<SessionId> {
        self.lock().locals.get(&client).map(|local| local.session.id())
    }

    fn acquire(&self, client: u64, request: LockRequest, span: Span) -> Result<Immediate> {
        let state = &mut *self.turn();
        if let Some(why) = &state.stopped {
            return Err(Error::Stopped(why.clone()));
        }
        if state.leaving {
            return Err(Error::Stopped(String::from(LEAVING)));
        }
        // If the member has started a new incarnation, settle the losses of the previous one first.
        if state.locals.get(&client).is_some_and(|local| local.is_of_earlier_incarnation(state.incarnations))
        {
            self.examine_client(state, client, 0);
        }
        self.open_session(state, client)?;
        let local = state.locals.get_mut(&client).expect("the session was opened just before");
        let lock = request.lock.clone();
        let (id, number) = (local.session.id(), local.session.acquire(request.clone()));
        let settled = local.session.settle();
        span.in_scope(|| {
            self.step(
                state,
                Event::Client(id, Proof::default(), ToMember::Acquire { number, settled, request }),
            )
        });
        if let Some(why) = &state.stopped {
            return Err(Error::Stopped(why.clone()));
        }
        let lease = self.lease(state, now_ns());
        let local = state.locals.get_mut(&client).expect("the state was locked all the time");
        match local.session.progress(number) {
            Some(Progress::Held(fence)) if lease.is_reportable() => {
                let fence = *fence;
                local.hold(lease, number);
                self.metrics.entries.inc();
                self.metrics.wait.observe(0.0);
                Ok(Immediate::Granted(number, fence))
            }
            Some(Progress::Ended(how)) => Ok(Immediate::Ended(*how)),
            progress => {
                if let Some(Progress::Held(_)) = progress {
                    state.unreported.push((client, number));
                }
                Ok(Immediate::Later(number, local.wait(lease.now_ns, number, lock, span)))
            }
        }
    }

    fn release(&self, client: u64, number: u64) -> Option<HoldState> {
        let state = &mut *self.turn();
        let lease = self.lease(state, now_ns());
        let local = state.locals.get_mut(&client)?;
        let id = local.session.id();
        let held = local.release(lease, number);
        self.step(state, Event::Client(id, Proof::default(), ToMember::Release { number }));
        let (held_ns, look) = held?;
        self.metrics.hold.observe(seconds(held_ns));
        Some(look)
    }

    fn hold_state(&self, client: u64, number: u64) -> HoldState {
        let state = self.lock();
        let (gone, lease) = (HoldState::Lost("its session was closed"), self.lease(&state, now_ns()));
        state.locals.get(&client).map_or(gone, |local| local.hold_state(lease, number))
    }

    fn revoker(&self, client: u64, number: u64) -> Option<String> {
        self.lock().locals.get(&client)?.revoker(number)
    }

    fn is_releasing(&self, client: u64) -> bool {
        let state = self.lock();
        state.stopped.is_none() && state.locals.get(&client).is_some_and(LocalClient::is_releasing)
    }

    fn draw_fence(&self, client: u64, number: u64) -> std::result::Result<u64, NoFence> {
        let state = &mut *self.lock();
        let lease = self.lease(state, now_ns());
        let local = state.locals.get(&client).ok_or(NoFence::NotHeld)?;
        if let HoldState::Lost(_) = local.hold_state(lease, number) {
            return Err(NoFence::NotHeld);
        }
        let acquisition = Acquisition { session: local.session.id(), number };
        state.member.draw_fence(lease.now_ns, acquisition).map(Fence::number)
    }

    fn losses(&self, client: u64) -> watch::Receiver<()> {
        let state = self.lock();
        state.locals.get(&client).map_or_else(|| watch::Sender::new(()).subscribe(), LocalClient::changes)
    }

    fn expiring(&self) -> watch::Receiver<u64> {
        self.expiring.subscribe()
    }

    fn not_serving(&self) -> Option<NotServing> {
        self.find_not_serving()
    }
}

impl<P: MutualExclusion> RecordedHolds for Driver<P> {
    fn promised_until_ns(&self, client: u64, number: u64) -> u64 {
        let state = self.lock();
        let lease_until_ns = state.member.resident_promised_until_ns();
        lease_until_ns.max(state.locals.get(&client).map_or(0, |local| local.promised_until_ns(number)))
    }

    fn record(&self, client: u64, number: u64, ttl: Duration, payload: Vec<u8>) -> bool {
        let state = &mut *self.turn();
        let Some(local) = state.locals.get(&client) else { return false };
        let acquisition = Acquisition { session: local.session.id(), number };
        let ttl_ns = u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX);
        let changes = local.is_recorded(number);
        let held =
            state.stopped.is_none() && state.member.record_resident(now_ns(), acquisition, ttl_ns, payload);
        if held && changes {
            // The next step writes the change at once: the caller waits for it.
            self.step(state, Event::Tick);
        }
        held
    }

    fn detach_hold(&self, client: u64, number: u64, until_ms: Option<u64>) {
        let state = &mut *self.turn();
        let Some(local) = state.locals.get(&client).filter(|_| state.stopped.is_none()) else { return };
        let acquisition = Acquisition { session: local.session.id(), number };
        state.member.detach_resident(acquisition, until_ms);
        // The next step writes the record.
        self.step(state, Event::Tick);
    }

    fn is_record_unfit(&self, client: u64, number: u64) -> bool {
        let state = self.lock();
        let session = state.locals.get(&client).map(|local| local.session.id());
        session.is_some_and(|session| state.member.is_record_unfit(Acquisition { session, number }))
    }

    fn is_recorded(&self, client: u64, number: u64) -> bool {
        let state = self.lock();
        let Some(local) = state.locals.get(&client).filter(|local| local.is_recorded(number)) else {
            return false;
        };
        state.member.is_record_current(Acquisition { session: local.session.id(), number })
    }

    fn promise(&self, client: u64, number: u64, ttl: Duration) -> bool {
        let state = &mut *self.lock();
        let (now, serves) = (now_ns(), state.stopped.is_none());
        let ttl_ns = u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX);
        let Some(local) = state.locals.get_mut(&client) else { return false };
        local.is_recorded(number)
            && serves
            && state.member.promise_resident(now, local.session.id())
            && local.promise(number, now.saturating_add(ttl_ns))
    }

    fn take_adopted(&self) -> Vec<AdoptedHold> {
        std::mem::take(&mut self.lock().adopted)
    }

    fn adoptions(&self) -> watch::Receiver<u64> {
        self.adoptions.subscribe()
    }
}

impl<P: MutualExclusion> RemoteClients for Driver<P> {
    fn attach(&self, client: ClientIdentity, transport: Arc<dyn ClientTransport>) -> bool {
        let state = &mut *self.lock();
        match state.remotes.entry(client.number) {
            Entry::Vacant(place) if client.number < lockkeeper_member::SessionId::RESIDENT => {
                place.insert((transport, client.proof));
                true
            }
            _ => false,
        }
    }

    fn detach(&self, client: u64) {
        self.lock().remotes.remove(&client);
    }

    fn handle_client_message(&self, session: SessionId, message: ToMember) {
        let state = &mut *self.lock();
        // Clients in this process are not attached and have other numbers, so no remote message can name their
        // sessions.
        if let Some(&(_, proof)) = state.remotes.get(&session.client) {
            self.step(state, Event::Client(session, proof, message));
        }
    }

    fn mode_in_use(&self, lock: &LockName) -> Option<LockMode> {
        let state = self.lock();
        if state.stopped.is_some() { None } else { state.member.mode_in_use(lock) }
    }

    fn most_own_locks(&self) -> usize {
        let state = self.lock();
        self.config.most_own_locks(state.member.running().map_or(1, |view| view.members.len()))
    }
}

impl<P: MutualExclusion> LockTable for Driver<P> {
    fn watch_table(&self) -> watch::Receiver<u64> {
        let state = &mut *self.lock();
        // Random, so that no reader confuses it with a number of an earlier process.
        if state.member.next_change().is_none() {
            let first = getrandom::u64().map_or(1, |number| (number >> 16) | 1);
            state.member.begin_journal(first);
            self.table_versions.send_replace(first);
        }
        self.table_versions.subscribe()
    }

    fn table_page(&self, after: Option<LockName>, most_bytes: usize) -> (LockList, u64) {
        // A long table is read in chunks. The lock is released between two chunks, so that other threads can step the
        // machine.
        let mut scan = LockScan::new(Query::Page(after), most_bytes);
        loop {
            let state = self.lock();
            if state.stopped.is_some() {
                return (LockList::new(), 0);
            }
            if state.member.scan(now_ns(), self.config.slice, &mut scan) {
                drop(state);
                return scan.finish();
            }
        }
    }

    fn table_changes(&self, from: u64) -> Option<(LockList, u64)> {
        let state = self.lock();
        state.member.changes(now_ns(), from, self.config.slice).filter(|_| state.stopped.is_none())
    }

    fn lock_status(&self, lock: &LockName, most_bytes: usize) -> LockStatus {
        self.lock().member.status_of(now_ns(), lock, most_bytes)
    }

    fn query(&self, query: Query) -> oneshot::Receiver<Vec<Reply>> {
        let (replies, receiver) = oneshot::channel();
        let state = &mut *self.turn();
        // A member that has stopped does not answer. Dropping `replies` notifies the caller.
        if state.stopped.is_none() {
            state.next_query += 1;
            state.query_callers.insert(state.next_query, replies);
            self.step(state, Event::Query(state.next_query, query));
        }
        receiver
    }
}

impl<P: MutualExclusion> Operations for Driver<P> {
    fn revoke(&self, lock: LockName, acquisition: Acquisition, by: String) {
        if !lock.is_served() {
            return;
        }
        tracing::warn!(member = %self.me, %lock, %acquisition, by, "released by force");
        self.step(&mut self.turn(), Event::Revoke(lock, acquisition, by));
    }

    fn settings(&self) -> ClusterSettings {
        self.lock().member.settings().clone()
    }

    fn propose_settings(&self, settings: ClusterSettings) -> Result<(), ProposalError> {
        let state = &mut *self.turn();
        state.member.check_settings(&settings)?;
        if !state.member.leads() {
            return Err(ProposalError::NotLeader);
        }
        self.step(state, Event::Change(settings));
        Ok(())
    }

    fn status(&self) -> MemberStatus {
        let state = self.lock();
        let runs = state.stopped.is_none();
        let lease_ns = if runs { state.member.lease_left_ns(now_ns()) } else { 0 };
        MemberStatus {
            node: state.member.node(),
            view: state.member.running().filter(|_| runs).cloned(),
            lease: Duration::from_nanos(lease_ns),
            stopped: state.stopped.clone(),
            failed: state.failed,
            left: state.left,
        }
    }

    fn status_changes(&self) -> watch::Receiver<u64> {
        self.status_changes.subscribe()
    }

    fn leave_cluster(&self, drain_ns: u64) {
        let state = &mut *self.turn();
        state.leaving = true;
        self.step(state, Event::Leave { timeout_ns: drain_ns });
    }

    fn metrics(&self) -> &Metrics {
        &self.metrics
    }
}

impl<P: MutualExclusion> Environment for Driver<P> {
    fn connect(&self, net: Arc<Net>, consensus: Consensus) {
        if self.environment.set((net, consensus)).is_ok() {
            self.timer.notify_one();
        }
    }

    fn set_peers(&self, peers: Vec<MemberId>) {
        let state = &mut *self.turn();
        state.peers.clone_from(&peers);
        self.step(state, Event::Peers(peers));
    }

    fn receive_frame(&self, from: MemberId, bytes: &[u8]) -> Result<(), FrameError> {
        // Frames of another cluster with the same name are dropped: the same members may have founded it after the loss
        // of all disks.
        let own = self.environment.get().map_or(0, |(_, consensus)| consensus.cluster_id());
        let (cluster, bytes) =
            bytes.split_first_chunk().map_or((0, bytes), |(id, rest)| (u64::from_le_bytes(*id), rest));
        if cluster != own || own == 0 {
            self.metrics.refused.inc();
            tracing::debug!(%from, "drops a frame of another cluster of this name");
            return Ok(());
        }
        let frame: Frame<Message<P>> = postcard::from_bytes(bytes).map_err(|source| {
            self.metrics.refused.inc();
            FrameError::Malformed { from, source }
        })?;
        if frame.from.id != from || frame.to != self.me {
            self.metrics.refused.inc();
            return Err(FrameError::Misaddressed { from, sender: frame.from, to: frame.to });
        }
        let state = &mut *self.lock();
        if let Body::Link { packet, .. } = &frame.body
            && let Some((_, message)) = &packet.payload
        {
            self.trace(state, &message.lock, "receives", message_name(&message.content), from);
        }
        self.step(state, Event::Frame(frame));
        Ok(())
    }

    fn flush(&self) {
        self.write();
    }

    fn peer_connected(&self, peer: MemberId) {
        self.step(&mut self.turn(), Event::Connected(peer));
    }

    fn consensus_event(&self, event: PortEvent) {
        tracing::debug!(member = %self.me, ?event, "event of consensus");
        self.step(&mut self.turn(), Event::Port(event));
    }

    fn stop(&self, why: &str) {
        let mut state = self.lock();
        self.halt(&mut state, why);
        // The transports of remote clients keep the member alive and the member keeps them: dropping them here breaks
        // the cycle. Their destructors may call the member, so the lock is released first.
        let remotes = std::mem::take(&mut state.remotes);
        drop(state);
        drop(remotes);
        self.timer.notify_one();
    }
}
