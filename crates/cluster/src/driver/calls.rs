//! The calls into a running member: from the API, the network and consensus.

use super::{Driver, Message, random};
use crate::clock::now_ns;
use crate::consensus::Consensus;
use crate::engine::{Asked, Engine, Hears, LEAVING, Standing};
use crate::error::{Error, Result};
use crate::local::{Local, Look};
use crate::metrics::{Metrics, name_of, seconds};
use crate::net::Net;
use crate::trouble::Trouble;
use lockkeeper_core::MutualExclusion;
use lockkeeper_member::{
    Acquisition, Body, ClusterSettings, Event, Fence, Frame, LockList, LockMode, LockName, LockRequest,
    LockScan, LockStatus, MemberId, NoFence, PortEvent, Query, Reply, SessionId, ToMember,
};
use lockkeeper_session::Progress;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tracing::Span;

impl<P: MutualExclusion> Engine for Driver<P> {
    fn connect(&self, net: Arc<Net>, consensus: Consensus) {
        if self.around.set((net, consensus)).is_ok() {
            self.timer.notify_one();
        }
    }

    fn open(&self) -> u64 {
        let state = &mut *self.turn();
        // The number is random. It need not be secret: clients outside of this process cannot use numbers of resident
        // clients.
        let mut client = random().unwrap_or_else(|_| state.next_client.wrapping_add(1)) | SessionId::RESIDENT;
        while state.locals.contains_key(&client) {
            client = client.wrapping_add(1) | SessionId::RESIDENT;
        }
        state.next_client = client;
        // The first request opens the session at the member, so an idle client costs the member nothing.
        state.locals.insert(client, Local::new(SessionId { client, number: 0 }));
        client
    }

    fn close(&self, client: u64) {
        let state = &mut *self.turn();
        if let Some(local) = state.locals.remove(&client)
            && local.open_in == Some(state.life)
        {
            self.step(state, Event::Client(local.session.id(), ToMember::Close));
        }
    }

    fn session(&self, client: u64) -> Option<SessionId> {
        self.lock().locals.get(&client).map(|local| local.session.id())
    }

    fn acquire(&self, client: u64, wish: LockRequest, span: Span) -> Result<Asked> {
        let state = &mut *self.turn();
        if let Some(why) = &state.stopped {
            return Err(Error::Stopped(why.clone()));
        }
        if state.leaving {
            return Err(Error::Stopped(String::from(LEAVING)));
        }
        // If the member has started a new incarnation, settle the losses of the previous one first.
        if state.locals.get(&client).is_some_and(|local| local.is_of_earlier_life(state.life)) {
            self.look_at_client(state, client, 0);
        }
        self.open_session(state, client)?;
        let local = state.locals.get_mut(&client).expect("the session was opened just before");
        let lock = wish.lock.clone();
        let (id, number) = (local.session.id(), local.session.acquire(wish.clone()));
        let settled = local.session.settle();
        span.in_scope(|| {
            self.step(state, Event::Client(id, ToMember::Acquire { number, settled, request: wish }))
        });
        if let Some(why) = &state.stopped {
            return Err(Error::Stopped(why.clone()));
        }
        let lease = self.lease(state, now_ns());
        let local = state.locals.get_mut(&client).expect("the state was locked all the time");
        match local.session.progress(number) {
            Some(Progress::Held(fence)) if lease.is_worth_telling() => {
                let fence = *fence;
                local.hold(lease, number);
                self.metrics.entries.inc();
                self.metrics.wait.observe(0.0);
                Ok(Asked::Granted(number, fence))
            }
            Some(Progress::Ended(how)) => Ok(Asked::Ended(*how)),
            progress => {
                if let Some(Progress::Held(_)) = progress {
                    state.untold.push((client, number));
                }
                Ok(Asked::Later(number, local.wait(lease.now_ns, number, lock, span)))
            }
        }
    }

    fn leave(&self, client: u64, number: u64) -> Option<Look> {
        let state = &mut *self.turn();
        let lease = self.lease(state, now_ns());
        let local = state.locals.get_mut(&client)?;
        let id = local.session.id();
        let held = local.leave(lease, number);
        self.step(state, Event::Client(id, ToMember::Release { number }));
        let (held_ns, look) = held?;
        self.metrics.hold.observe(seconds(held_ns));
        Some(look)
    }

    fn look(&self, client: u64, number: u64) -> Look {
        let state = self.lock();
        let (gone, lease) = (Look::Lost("its session was closed"), self.lease(&state, now_ns()));
        state.locals.get(&client).map_or(gone, |local| local.look(lease, number))
    }

    fn promised_until_ns(&self) -> u64 {
        let (now, state) = (now_ns(), self.lock());
        now + state.member.lease_left_ns(now)
    }

    fn draw_fence(&self, client: u64, number: u64) -> std::result::Result<u64, NoFence> {
        let state = &mut *self.lock();
        let lease = self.lease(state, now_ns());
        let local = state.locals.get(&client).ok_or(NoFence::NotHeld)?;
        if let Look::Lost(_) = local.look(lease, number) {
            return Err(NoFence::NotHeld);
        }
        let acquisition = Acquisition { session: local.session.id(), number };
        state.member.draw_fence(lease.now_ns, acquisition).map(Fence::number)
    }

    fn expiring(&self) -> watch::Receiver<u64> {
        self.expiring.subscribe()
    }

    fn trouble(&self) -> Option<Trouble> {
        self.find_trouble()
    }

    fn changes(&self, client: u64) -> watch::Receiver<()> {
        let state = self.lock();
        state.locals.get(&client).map_or_else(|| watch::Sender::new(()).subscribe(), Local::changes)
    }

    fn attach(&self, hears: Arc<dyn Hears>) -> Result<u64> {
        let state = &mut *self.lock();
        loop {
            let client = random()? & !SessionId::RESIDENT;
            if let Entry::Vacant(place) = state.remotes.entry(client) {
                place.insert(hears);
                return Ok(client);
            }
        }
    }

    fn detach(&self, client: u64) {
        self.lock().remotes.remove(&client);
    }

    fn say(&self, session: SessionId, said: ToMember) {
        let state = &mut *self.lock();
        // Clients in this process are not attached and have other numbers, so no remote message can name their
        // sessions.
        if state.remotes.contains_key(&session.client) {
            self.step(state, Event::Client(session, said));
        }
    }

    fn tables(&self) -> watch::Receiver<u64> {
        let state = &mut *self.lock();
        // Random, so that no reader confuses it with a number of an earlier process.
        if state.member.next_change().is_none() {
            let first = getrandom::u64().map_or(1, |number| (number >> 16) | 1);
            state.member.begin_journal(first);
            self.tables.send_replace(first);
        }
        self.tables.subscribe()
    }

    fn table_changes(&self, from: u64) -> Option<(LockList, u64)> {
        let state = self.lock();
        state.member.changes(now_ns(), from, self.config.slice).filter(|_| state.stopped.is_none())
    }

    fn one(&self, lock: &LockName, most_bytes: usize) -> LockStatus {
        self.lock().member.status_of(now_ns(), lock, most_bytes)
    }

    fn most_own_locks(&self) -> usize {
        let state = self.lock();
        self.config.most_own_locks(state.member.running().map_or(1, |view| view.members.len()))
    }

    fn mode_in_use(&self, lock: &LockName) -> Option<LockMode> {
        let state = self.lock();
        if state.stopped.is_some() { None } else { state.member.mode_in_use(lock) }
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

    fn survey(&self, query: Query) -> oneshot::Receiver<Vec<Reply>> {
        let (told, hears) = oneshot::channel();
        let state = &mut *self.turn();
        // A member that has stopped does not answer. Dropping `told` notifies the caller.
        if state.stopped.is_none() {
            state.next_survey += 1;
            state.surveyors.insert(state.next_survey, told);
            self.step(state, Event::Query(state.next_survey, query));
        }
        hears
    }

    fn revoke(&self, lock: LockName, acquisition: Acquisition) {
        if !lock.is_served() {
            return;
        }
        tracing::warn!(member = %self.me, %lock, %acquisition, "released by force");
        self.step(&mut self.turn(), Event::Revoke(lock, acquisition));
    }

    fn settings(&self) -> ClusterSettings {
        self.lock().member.settings().clone()
    }

    fn change(&self, settings: ClusterSettings) -> std::result::Result<(), String> {
        let state = &mut *self.turn();
        state.member.check_settings(&settings)?;
        if !state.member.leads() {
            return Err(String::from("another member leads now: try again"));
        }
        self.step(state, Event::Change(settings));
        Ok(())
    }

    fn standing(&self) -> Standing {
        let state = self.lock();
        let runs = state.stopped.is_none();
        let lease_ns = if runs { state.member.lease_left_ns(now_ns()) } else { 0 };
        Standing {
            node: state.member.node(),
            view: state.member.running().filter(|_| runs).cloned(),
            lease: Duration::from_nanos(lease_ns),
            stopped: state.stopped.clone(),
            failed: state.failed,
            left: state.left,
        }
    }

    fn standings(&self) -> watch::Receiver<u64> {
        self.standings.subscribe()
    }

    fn peers(&self, peers: Vec<MemberId>) {
        let state = &mut *self.turn();
        state.peers.clone_from(&peers);
        self.step(state, Event::Peers(peers));
    }

    fn frame(&self, from: MemberId, bytes: &[u8]) -> std::result::Result<(), String> {
        // Frames of another cluster with the same name are dropped: the same members may have founded it after the loss
        // of all disks.
        let own = self.around.get().map_or(0, |(_, consensus)| consensus.cluster_id());
        let (cluster, bytes) =
            bytes.split_first_chunk().map_or((0, bytes), |(id, rest)| (u64::from_le_bytes(*id), rest));
        if cluster != own || own == 0 {
            self.metrics.refused.inc();
            tracing::debug!(%from, "drops a frame of another cluster of this name");
            return Ok(());
        }
        let frame: Frame<Message<P>> = postcard::from_bytes(bytes).map_err(|error| {
            self.metrics.refused.inc();
            format!("a frame of {from} cannot be read: {error}")
        })?;
        if frame.from.id != from || frame.to != self.me {
            self.metrics.refused.inc();
            return Err(format!("a frame of {from} claims to be from {} to {}", frame.from, frame.to));
        }
        let state = &mut *self.lock();
        if let Body::Link { packet, .. } = &frame.body
            && let Some((_, message)) = &packet.payload
        {
            self.trace(state, &message.lock, "receives", name_of(&message.content), from);
        }
        self.step(state, Event::Frame(frame));
        Ok(())
    }

    fn flush(&self) {
        self.write();
    }

    fn connected(&self, peer: MemberId) {
        self.step(&mut self.turn(), Event::Connected(peer));
    }

    fn port(&self, event: PortEvent) {
        tracing::debug!(member = %self.me, ?event, "event of consensus");
        self.step(&mut self.turn(), Event::Port(event));
    }

    fn leave_cluster(&self, timeout_ns: u64) {
        let state = &mut *self.turn();
        state.leaving = true;
        self.step(state, Event::Leave { timeout_ns });
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

    fn metrics(&self) -> &Metrics {
        &self.metrics
    }
}
