//! Drives the links of the clients in virtual time: opens and breaks connections, delivers messages, and polls.
//!
//! A connection belongs to one start of the daemon's machine. A machine that has restarted resets the connections
//! of its earlier starts when a message arrives on them. A machine that is down either resets them too (its process
//! has died) or stays silent (it has lost power). A member that begins a new incarnation in the same process keeps
//! its connections. The daemon's check before it accepts a client, whether its member grants locks, is left out:
//! its result may be outdated when the first keep-alive arrives.

use super::clients::{Peer, Step};
use super::faults::Fault;
use super::observer::{Inside, NestedFences, Property};
use super::sim::{ScheduledEvent, Sim};
use super::spec::MS;
use lockkeeper_core::MutualExclusion;
use lockkeeper_member::{BugSwitch, LockName, SessionId, ToClient};
use lockkeeper_session::{ClientLink, Connection, Progress};

/// An event of a connection, as the client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connects {
    /// It was opened.
    Opened,
    /// It could not be opened.
    NotOpened,
    /// It was reset.
    Closed,
}

/// How long the library waits for a daemon to accept a connection.
const CONNECT_NS: u64 = 2_000 * MS;

/// Delivers a message. Returns the number of an acquisition on which the client relies for longer by it, if the message is of
/// an older generation than the client knows.
fn receive(link: &mut ClientLink<Option<BugSwitch>>, clock: u64, message: ToClient) -> Option<u64> {
    let is_older = match &message {
        ToClient::Alive { generation, .. }
        | ToClient::Granted { generation, .. }
        | ToClient::Recorded { generation, .. }
        | ToClient::Resumed { generation, .. } => Some(*generation) < link.session().generation(),
        _ => false,
    };
    // Holds that lapse by now have nothing to do with the message.
    let before = is_older.then(|| {
        let mut before = link.clone();
        before.poll(clock);
        before
    });
    link.receive(clock, message);
    let before = before?;
    let until_ns = |number| match before.session().progress(number) {
        Some(Progress::Held(_)) => before.session().hold_until_ns(number),
        _ => 0,
    };
    let gained = |&number: &u64| link.session().hold_until_ns(number) > until_ns(number);
    link.session().held().find(gained)
}

impl<P: MutualExclusion> Sim<'_, P> {
    /// Whether a message that arrives now reaches the daemon's process over its connection. If not, the client may
    /// receive a reset.
    pub(super) fn is_connected(&mut self, client: usize, peer: Peer) -> bool {
        let machine = self.machines[peer.daemon];
        let connected = machine.up && machine.boots == peer.boot;
        // Of the machines that are down, those with an even number of starts send resets (only the process has
        // died); the others stay silent (no power).
        if !connected && (machine.up || machine.boots.is_multiple_of(2)) {
            let copies = self.net.send(self.now, peer.daemon, self.spec.members + client);
            if let Some(delay) = copies[0] {
                self.after(delay, ScheduledEvent::Connection(client, peer, Connects::Closed));
            }
        }
        connected
    }

    /// The delay after which a message of a session arrives, in nanoseconds. A connection delivers messages in
    /// order. If the network loses, duplicates or delays messages, those of a session arrive in any order, as if
    /// they came over several connections.
    pub(super) fn in_order(&mut self, session: SessionId, to_member: bool, delay: u64) -> u64 {
        const DISORDER: [Fault; 3] = [Fault::Loss, Fault::Duplicate, Fault::Delay];
        if DISORDER.iter().any(|fault| self.spec.faults.contains(fault)) {
            return delay;
        }
        let last = self.arrivals.entry((session, to_member)).or_default();
        *last = (*last).max(self.now + delay);
        *last - self.now
    }

    /// Starts a connection attempt of a client to a daemon.
    fn connect(&mut self, client: usize, peer: Peer) {
        let (own, machine) = (self.spec.members + client, self.machines[peer.daemon]);
        let linked = self.net.is_open(own, peer.daemon) && self.net.is_open(peer.daemon, own);
        let peer = Peer { boot: machine.boots, ..peer };
        let (delay, how) = if linked && machine.is_awake(self.now) {
            let there = self.net.send(self.now, own, peer.daemon)[0];
            let back = self.net.send(self.now, peer.daemon, own)[0];
            // The transport retransmits a lost segment.
            let delay = there.unwrap_or(200 * MS) + back.unwrap_or(200 * MS);
            (delay, Connects::Opened)
        } else if linked && !machine.up && machine.boots.is_multiple_of(2) {
            (2 * MS, Connects::NotOpened)
        } else {
            (CONNECT_NS, Connects::NotOpened)
        };
        self.after(delay, ScheduledEvent::Connection(client, peer, how));
    }

    pub(super) fn connection(&mut self, index: usize, peer: Peer, how: Connects) {
        let state = self.machines[self.spec.members + index];
        if !state.up {
            return;
        }
        if self.now < state.paused_until_ns {
            return self
                .after(state.paused_until_ns - self.now, ScheduledEvent::Connection(index, peer, how));
        }
        let (clock, lease_ns) = (state.clock.read(self.now), self.spec.config().cluster.lease_ns);
        let Some(wire) = self.clients[index].wire(peer.session) else { return };
        match how {
            Connects::Opened | Connects::NotOpened if !wire.dialing => return,
            Connects::Opened => {
                wire.dialing = false;
                wire.boot = peer.boot;
                wire.has_moved |= *wire.first.get_or_insert(peer.daemon) != peer.daemon;
                wire.link.opened(clock, lease_ns);
            }
            Connects::NotOpened => {
                wire.dialing = false;
                wire.link.not_opened(clock);
            }
            Connects::Closed if wire.boot == peer.boot => wire.link.closed(clock),
            Connects::Closed => return,
        }
        self.trace(|| peer.session.to_string(), &(how, peer.daemon + 1));
        self.client_steps(index);
    }

    pub(super) fn deliver_to_client(&mut self, daemon: usize, session: SessionId, message: ToClient) {
        let index = session.client as usize;
        if let Some(long_holder) = index.checked_sub(self.spec.clients + self.spec.tenants) {
            return self.deliver_to_long_holder(long_holder, session, &message);
        }
        let state = self.machines[self.spec.members + index];
        if !state.up {
            return;
        }
        if self.now < state.paused_until_ns {
            let later = ScheduledEvent::ToClient { daemon, session, message };
            return self.after(state.paused_until_ns - self.now, later);
        }
        // A connection that the client has given up carries nothing any more.
        let connected = |wire: &&mut super::clients::Wire| wire.link.daemon() == daemon;
        let clock = state.clock.read(self.now);
        if let Some(wire) = self.clients[index].wire(session).filter(connected) {
            let gains = receive(&mut wire.link, clock, message);
            if let Some(number) = gains {
                let how =
                    format!("{session} relies on acquisition {number} by a message of an older generation");
                self.observer.broken_inside(self.now, Property::Generations, how);
            }
            self.client_steps(index);
        }
    }

    pub(super) fn drive_client(&mut self, index: usize) {
        let state = self.machines[self.spec.members + index];
        if !state.up {
            return;
        }
        if self.now < state.paused_until_ns {
            return self.after(state.paused_until_ns - self.now, ScheduledEvent::Client(index));
        }
        if self.now >= self.clients[index].wake_ns {
            self.clients[index].wake_ns = u64::MAX;
            self.client_steps(index);
        }
    }

    fn client_steps(&mut self, index: usize) {
        let clock = self.machines[self.spec.members + index].clock;
        loop {
            let step = self.clients[index].step(self.now, clock.read(self.now), self.spec);
            if let Step::Waits = step {
                break;
            }
            self.trace(|| format!("C{index}"), &step);
            match step {
                Step::Waits | Step::Speaks => {}
                Step::Enters => self.enters(index, false),
                Step::EntersNested => self.enters(index, true),
                Step::Leaves => self.observer.leaves(index),
                Step::LosesRecorded(session) => {
                    self.observer.leaves(index);
                    self.loses_recorded(session);
                }
                Step::LeavesOne(number) => self.observer.leaves_one(index, number),
                Step::LosesLink { session, daemon, held, stayed, .. } => {
                    if held {
                        self.loses_hold(index, session, daemon, stayed);
                    }
                    if std::mem::take(&mut self.clients[index].lost_recorded) {
                        self.loses_recorded(session);
                    }
                }
            }
        }
        self.client_sends(index);
        let client = &mut self.clients[index];
        let next = client.next_wake(self.now, |reading| clock.when(reading)).max(self.now + 1);
        if next < client.wake_ns {
            client.wake_ns = next;
            self.after(next - self.now, ScheduledEvent::Client(index));
        }
    }

    /// Sends the messages of the client's links, and starts the connection attempts that they need.
    fn client_sends(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let mut messages = std::mem::take(&mut client.last_messages);
        let mut dials = Vec::new();
        for wire in &mut client.wires {
            let peer = wire.peer();
            messages.extend(wire.link.take_messages().map(|message| (peer, message)));
            if let Connection::Connecting { .. } = wire.link.connection()
                && !std::mem::replace(&mut wire.dialing, true)
            {
                dials.push(peer);
            }
        }
        for (peer, message) in messages {
            let copies = self.net.send(self.now, self.spec.members + index, peer.daemon);
            for delay in copies.into_iter().flatten() {
                let delay = self.in_order(peer.session, true, delay);
                self.after(delay, ScheduledEvent::ToMember { client: index, peer, message: message.clone() });
            }
        }
        for peer in dials {
            self.connect(index, peer);
        }
    }

    fn enters(&mut self, index: usize, nested: bool) {
        let client = &self.clients[index];
        let Some(request) = &client.request else { return };
        let (session, lock) = (request.session, request.lock_request.lock.clone());
        let number = match request.nested {
            super::clients::Nested::Held(number) if nested => number,
            _ => request.number,
        };
        let fence = client.fence(session, number);
        let outer = nested.then(|| client.fence(session, request.number));
        let (mode, reentrant) = (request.lock_request.mode, request.lock_request.reentrant);
        let who = Inside { client: index, session, number, mode, reentrant };
        let valid = self.relied_on(&lock);
        let valid = |other: &Inside| valid.contains(&(other.session, other.number));
        match outer {
            None => self.observer.enters(self.now, &lock, who, fence, valid),
            Some(first) => {
                let fences = NestedFences { first, nested: fence };
                self.observer.enters_nested(self.now, &lock, who, fences, valid);
            }
        }
    }

    /// The acquisitions of a lock that clients may use now.
    pub(super) fn relied_on(&self, lock: &LockName) -> Vec<(SessionId, u64)> {
        let inside = self.observer.inside.get(lock).map_or(&[][..], Vec::as_slice);
        let valid = |other: &&Inside| {
            let machine = &self.machines[self.spec.members + other.client];
            let clock = machine.clock.read(self.now);
            let used = match self.clients.get(other.client) {
                Some(client) => client.may_use(clock, other.session, other.number),
                None => {
                    let tenant = &self.tenants[other.client - self.clients.len()];
                    tenant.may_use(clock, other.session, other.number)
                }
            };
            machine.up && used
        };
        inside.iter().filter(valid).map(|other| (other.session, other.number)).collect()
    }

    /// Handles the loss of a hold that was recorded and promised for its time to live.
    fn loses_recorded(&mut self, session: SessionId) {
        self.observer.outcome.lost_recorded += 1;
        if self.spec.spares_recorded_holds() {
            let how = format!("{session} loses a recorded hold");
            self.observer.broken(self.now, Property::RecordedHolds, how);
        }
    }

    fn loses_hold(&mut self, index: usize, session: SessionId, daemon: usize, stayed: bool) {
        let machine = self.spec.members + index;
        self.observer.leaves(index);
        self.observer.outcome.lost += 1;
        let spared = self.now >= self.hit_until_ns[daemon] && self.now >= self.hit_until_ns[machine];
        if self.spec.spares_survivors() && spared && stayed {
            let how = format!("{session} loses what it holds at M{}, to which nothing happened", daemon + 1);
            self.observer.broken(self.now, Property::Survivors, how);
        }
    }
}
