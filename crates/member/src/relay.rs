//! Messages of clients whose session is at another member.
//!
//! A client that cannot reach the member of its session connects to any other one. That member relays the client's
//! messages and the answers:
//!
//! ```text
//! client ── KeepAlive ──▶ M3 ── Relay ──▶ M1, M2      M3 does not know where the session is
//! client ◀── Alive ────── M3 ◀── Relayed ── M2        M2 has it: from now on M3 relays to M2 alone
//! ```
//!
//! A session is at one member of a view or at none, and moves only when a view starts. So once every other member has
//! answered in the same epoch that it does not have the session, the session is lost.

use crate::member::{Member, Message};
use crate::{Body, BugSwitch, Bugs, Node, Out, Proof, SessionId, ToClient, ToMember};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use lockkeeper_core::MutualExclusion;

/// Most sessions whose messages a member relays at a time: bounds its memory.
const MOST_RELAYS: usize = 1 << 16;

/// A session at another member, of a client that is connected to this one.
#[derive(Clone, Debug)]
pub(crate) struct Relay {
    proof: Proof,
    /// The member that has the session, once it has answered.
    home: Option<Node>,
    /// The members that do not have the session, in the view of this epoch.
    without: (u64, BTreeSet<Node>),
    /// When the last message of the client arrived.
    last_message_ns: u64,
}

impl<P: MutualExclusion, B: Bugs> Member<P, B> {
    /// Relays a message of a client to the member of its session.
    pub(crate) fn relay(
        &mut self,
        now: u64,
        session: SessionId,
        proof: Proof,
        message: ToMember,
        out: &mut Out<Message<P>>,
    ) {
        let Some(view) = self.running() else { return };
        let (epoch, members) = (view.epoch, view.members.clone());
        if self.relays.len() >= MOST_RELAYS && !self.relays.contains_key(&session) {
            return;
        }
        let others: BTreeSet<Node> = members.into_iter().filter(|&node| node != self.me).collect();
        let relay = self.relays.entry(session).or_insert_with(|| Relay {
            proof,
            home: None,
            without: (epoch, BTreeSet::new()),
            last_message_ns: now,
        });
        relay.last_message_ns = now;
        relay.proof = proof;
        relay.home.take_if(|home| !others.contains(home));
        let to = match relay.home {
            Some(home) => Vec::from([home]),
            // Other messages are repeated until the session is found.
            None if !matches!(message, ToMember::KeepAlive { .. }) => return,
            None => others.iter().copied().collect(),
        };
        if to.is_empty() {
            self.relays.remove(&session);
            return out.clients.push((session, ToClient::NoSession));
        }
        for node in to {
            self.send(node, Body::Relay { session, proof, message: message.clone() }, out);
        }
    }

    /// As the possible home of a session: handles a message that another member relays.
    pub(crate) fn receive_relay(
        &mut self,
        now: u64,
        from: Node,
        (session, proof, message): (SessionId, Proof, ToMember),
        out: &mut Out<Message<P>>,
    ) {
        let any_proof = self.config.has(BugSwitch::ProofNotCompared);
        match self.sessions.get_mut(&session) {
            Some(known) if known.proof == proof || any_proof => {
                if !known.ends {
                    known.via = Some(from);
                    self.relayed_sessions = true;
                    self.client(now, session, proof, message, out);
                }
            }
            _ => {
                if let Some(epoch) = self.running().map(|view| view.epoch) {
                    self.send(from, Body::NotHome { session, epoch }, out);
                }
            }
        }
    }

    /// As the member of the connection: handles a message from the session's member to the client.
    pub(crate) fn receive_relayed(
        &mut self,
        from: Node,
        session: SessionId,
        message: ToClient,
        out: &mut Out<Message<P>>,
    ) {
        if let Some(relay) = self.relays.get_mut(&session) {
            relay.home = Some(from);
            out.clients.push((session, message));
        }
    }

    /// As the member of the connection: handles the answer that a member does not have the session.
    pub(crate) fn receive_not_home(
        &mut self,
        now: u64,
        from: Node,
        session: SessionId,
        epoch: u64,
        out: &mut Out<Message<P>>,
    ) {
        let Some(view) = self.running().filter(|view| view.epoch == epoch) else { return };
        let others = view.members.iter().filter(|&&node| node != self.me).count();
        let lease_runs = now < self.lease_until_ns;
        let Some(relay) = self.relays.get_mut(&session) else { return };
        relay.home.take_if(|home| *home == from);
        if relay.without.0 != epoch {
            relay.without = (epoch, BTreeSet::new());
        }
        relay.without.1.insert(from);
        // Without a lease this member may be excluded, and a newer view may have the session.
        if relay.without.1.len() == others && lease_runs {
            self.relays.remove(&session);
            out.clients.push((session, ToClient::NoSession));
        }
    }

    /// Forgets the relays of clients that have gone.
    pub(crate) fn drop_old_relays(&mut self, now: u64) {
        let silence_ns = 2 * self.config.session_ns();
        self.relays.retain(|_, relay| now < relay.last_message_ns.saturating_add(silence_ns));
    }

    /// Sends the messages to relayed clients to the members that they are connected to.
    pub(crate) fn route_to_clients(&mut self, out: &mut Out<Message<P>>) {
        if !self.relayed_sessions || out.clients.is_empty() {
            return;
        }
        let via = |session: &SessionId| self.sessions.get(session).and_then(|session| session.via);
        if !out.clients.iter().any(|(session, _)| via(session).is_some()) {
            return;
        }
        for (session, message) in core::mem::take(&mut out.clients) {
            match via(&session) {
                Some(node) => {
                    let body = Body::Relayed { session, message };
                    let (to, incarnation) = (node.id, Some(node.incarnation));
                    out.frames.push(crate::Frame { from: self.me, to, incarnation, body });
                }
                None => out.clients.push((session, message)),
            }
        }
    }
}
