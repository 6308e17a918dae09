//! What others ask of a member at work: the API, the network, and consensus.

use super::{Driver, Message};
use crate::clock::now_ns;
use crate::consensus::Consensus;
use crate::engine::{Asked, Engine, Hears, LEAVING, Standing};
use crate::error::{Error, Result};
use crate::local::{Local, Look};
use crate::metrics::{Metrics, name_of, seconds};
use crate::net::Net;
use lockkeeper_core::MutualExclusion;
use lockkeeper_member::{
    Acquisition, Body, Claim, Event, Frame, LockName, MemberId, Node, PortEvent, Progress, SessionId, Table,
    TableScan, ToMember, Wish,
};
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
        let client = state.next_client;
        state.next_client = client.wrapping_add(1);
        state
            .locals
            .insert(client, Local::new(SessionId { client, number: 0 }, self.config.session_ns() / 5));
        self.keep_alive(state, client);
        client
    }

    fn close(&self, client: u64) {
        let state = &mut *self.turn();
        if let Some(local) = state.locals.remove(&client) {
            self.step(state, Event::Client(local.session.id(), ToMember::Close));
        }
    }

    fn session(&self, client: u64) -> Option<SessionId> {
        self.lock().locals.get(&client).map(|local| local.session.id())
    }

    fn acquire(&self, client: u64, wish: Wish, span: Span) -> Result<Asked> {
        let state = &mut *self.turn();
        if let Some(why) = &state.stopped {
            return Err(Error::Stopped(why.clone()));
        }
        if state.leaving {
            return Err(Error::Stopped(String::from(LEAVING)));
        }
        let local = state.locals.get_mut(&client).expect("whoever asks has opened a session");
        let lock = wish.lock.clone();
        let (id, number) = (local.session.id(), local.session.acquire(wish.clone()));
        let settled = local.session.settle();
        span.in_scope(|| self.step(state, Event::Client(id, ToMember::Acquire { number, settled, wish })));
        let now = now_ns();
        let local = state.locals.get_mut(&client).expect("nobody closes it meanwhile");
        match local.session.progress(number) {
            Some(Progress::Held(fence)) if local.is_worth_holding(now, number) => {
                let fence = *fence;
                local.hold(now, number);
                self.metrics.entries.inc();
                self.metrics.wait.observe(0.0);
                Ok(Asked::Granted(number, fence))
            }
            Some(Progress::Over(how)) => Ok(Asked::Ended(*how)),
            _ => Ok(Asked::Later(number, local.wait(now, number, lock, span))),
        }
    }

    fn leave(&self, client: u64, number: u64) -> Option<Look> {
        let state = &mut *self.turn();
        let local = state.locals.get_mut(&client)?;
        let id = local.session.id();
        let held = local.leave(now_ns(), number);
        self.step(state, Event::Client(id, ToMember::Release { number }));
        let (held_ns, look) = held?;
        self.metrics.hold.observe(seconds(held_ns));
        Some(look)
    }

    fn look(&self, client: u64, number: u64) -> Look {
        let state = self.lock();
        let gone = Look::Lost("its session was closed");
        state.locals.get(&client).map_or(gone, |local| local.look(now_ns(), number))
    }

    fn promised_until_ns(&self, client: u64) -> u64 {
        self.lock().locals.get(&client).map_or(0, |local| local.session.lease_until_ns())
    }

    fn changes(&self, client: u64) -> watch::Receiver<()> {
        let state = self.lock();
        state.locals.get(&client).map_or_else(|| watch::Sender::new(()).subscribe(), Local::changes)
    }

    fn attach(&self, client: u64, hears: Arc<dyn Hears>) -> bool {
        let state = &mut *self.lock();
        // Nobody outside speaks for a client of this process.
        let stranger = !state.locals.contains_key(&client);
        if stranger {
            state.remotes.insert(client, hears);
        }
        stranger
    }

    fn detach(&self, client: u64, hears: &Arc<dyn Hears>) {
        let state = &mut *self.lock();
        if state.remotes.get(&client).is_some_and(|remote| Arc::ptr_eq(remote, hears)) {
            state.remotes.remove(&client);
        }
    }

    fn say(&self, session: SessionId, said: ToMember) {
        let state = &mut *self.lock();
        if !state.locals.contains_key(&session.client) {
            self.step(state, Event::Client(session, said));
        }
    }

    fn tables(&self) -> watch::Receiver<u64> {
        self.tables.subscribe()
    }

    fn claimed(&self, lock: &LockName) -> Option<Claim> {
        self.lock().member.claimed(lock)
    }

    fn table(&self) -> Table {
        // Others have the machine between two parts of a long table.
        let mut scan = TableScan::new(usize::MAX);
        while !self.lock().member.scan(now_ns(), self.config.slice, &mut scan) {}
        scan.finish().0
    }

    fn survey(&self) -> oneshot::Receiver<Vec<(Node, Table)>> {
        let (told, hears) = oneshot::channel();
        let state = &mut *self.turn();
        state.surveyors.push(told);
        self.step(state, Event::Survey);
        hears
    }

    fn revoke(&self, acquisition: Acquisition) {
        tracing::warn!(member = %self.me, %acquisition, "released by force");
        self.step(&mut self.turn(), Event::Revoke(acquisition));
    }

    fn standing(&self) -> Standing {
        let state = self.lock();
        Standing {
            node: state.member.node(),
            view: state.member.running().cloned(),
            lease: Duration::from_nanos(state.member.lease_left_ns(now_ns())),
            stopped: state.stopped.clone(),
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
        let frame: Frame<Message<P>> = postcard::from_bytes(bytes).map_err(|error| {
            self.metrics.refused.inc();
            format!("a frame of {from} cannot be read: {error}")
        })?;
        if frame.from.id != from || frame.to != self.me {
            self.metrics.refused.inc();
            return Err(format!("a frame of {from} says that it is from {} to {}", frame.from, frame.to));
        }
        let state = &mut *self.lock();
        if let Body::Link { packet, .. } = &frame.body
            && let Some((_, message)) = &packet.payload
        {
            self.trace(state, &message.lock, "receives", name_of(&message.words), from);
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
        tracing::debug!(member = %self.me, ?event, "consensus says");
        self.step(&mut self.turn(), Event::Port(event));
    }

    fn leave_cluster(&self, patience_ns: u64) {
        let state = &mut *self.turn();
        state.leaving = true;
        self.step(state, Event::Leave { patience_ns });
    }

    fn stop(&self, why: &str) {
        let mut state = self.lock();
        self.halt(&mut state, why);
        // Whoever carries words to clients has the member, too: they would keep each other for ever. What ends with them may need the lock.
        let remotes = std::mem::take(&mut state.remotes);
        drop(state);
        drop(remotes);
        self.timer.notify_one();
    }

    fn metrics(&self) -> &Metrics {
        &self.metrics
    }
}
