//! A member looks after its locks: instances on demand, messages to other members, grants to clients.

use crate::guard::known;
use crate::instance::{Sent, Start};
use crate::link::Link;
use crate::lock::{Rules, Wants};
use crate::member::{Due, Member, Message};
use crate::session::Stage;
use crate::{Body, Flaw, LockMessage, LockName, Out, ToClient, Words};
use lockkeeper_core::{MutualExclusion, SiteId};

impl<P: MutualExclusion> Member<P> {
    /// Makes the lock's instance of this view, if there is none yet. `own` tells that somebody here wants the lock.
    pub(crate) fn ensure_instance(
        &mut self,
        now: u64,
        name: &LockName,
        own: bool,
        out: &mut Out<Message<P>>,
    ) {
        let Some(view) = self.running() else { return };
        let (members, place) = (view.members.len(), view.site(self.me).map_or(0, SiteId::index));
        let held = self.start_holds.get(name).map_or(&[][..], |held| held);
        let at = |node| view.site(node).map(SiteId::index);
        let holders = held.iter().filter_map(|held| Some((at(held.node)?, held.mode, held.units))).collect();
        let mut holders: alloc::vec::Vec<_> = holders;
        if self.config.has(Flaw::ReportChanges)
            && self.locks.get(name).is_none_or(|lock| lock.holds.is_empty())
        {
            holders.retain(|&(at, _, _)| at != place);
        }
        let start = Start { lock: name, members, place, holders, settings: &self.config.settings };
        let lock = known(&mut self.locks, &mut self.slots, name);
        if lock.has_instance() {
            return;
        }
        let mut wants = Wants::default();
        lock.start(&start, &mut wants);
        // A token that travels unasked is not asked for: its home must be told that it is wanted.
        let (home, free) = (name.home(members), start.holders.is_empty());
        if own && P::ABOUT.perpetual && name.kind == crate::Kind::Mutex && home != place && free {
            wants.sends.push(Sent {
                from: SiteId::new(place),
                to: SiteId::new(home),
                clock: 0,
                words: Words::Wake,
            });
        }
        self.grant_wants(now, name, wants, out);
    }

    /// Lets in whoever can be let in, and asks for whoever waits.
    pub(crate) fn look_after(&mut self, now: u64, name: &LockName, out: &mut Out<Message<P>>) {
        let Some(epoch) = self.running().map(|view| view.epoch) else { return };
        let Some(lock) = self.locks.get(name) else { return };
        if !lock.has_instance() && lock.is_busy() {
            self.ensure_instance(now, name, true, out);
        }
        let rules = Rules {
            epoch,
            lease_runs: now < self.lease_until_ns || self.config.has(Flaw::GrantsWithoutLease),
            local_in_a_row: self.config.local_in_a_row,
            largest_clock: self.config.largest_clock,
        };
        let Some(lock) = self.locks.get_mut(name) else { return };
        let mut wants = Wants::default();
        lock.look_after(name, rules, &mut wants);
        if lock.is_idle() && self.config.has(Flaw::IdleInstanceDropped) {
            self.locks.remove(name);
        }
        self.grant_wants(now, name, wants, out);
    }

    /// Does what a lock wants done.
    pub(crate) fn grant_wants(
        &mut self,
        now: u64,
        name: &LockName,
        wants: Wants<Message<P>>,
        out: &mut Out<Message<P>>,
    ) {
        let slots = crate::instance::slots(name.kind);
        for Sent { from, to, clock, words } in wants.sends {
            let Some(view) = self.running() else { break };
            let Some(&node) = view.members.get(to.index() / slots) else { continue };
            let epoch = view.epoch;
            let message = LockMessage { lock: name.clone(), from, to, clock, words };
            let link = self.links.entry(node).or_insert_with(|| Link::new(now));
            let packet = link.send(now, message);
            self.send(node, Body::Link { epoch, packet }, out);
        }
        for grant in wants.grants {
            let (session, number) = (grant.acquisition.session, grant.acquisition.number);
            if let Some(state) = self.sessions.get_mut(&session) {
                state.acquisitions.insert(number, Stage::Held(name.clone()));
            }
            let birth = self.birth(session);
            if let Some(longest) = grant.longest_hold_ns {
                self.due.insert((now.saturating_add(longest), Due::LongestHold(grant.acquisition)));
            }
            out.clients.push((session, ToClient::Granted { birth, number, fence: grant.fence }));
        }
        if wants.parked {
            self.parked.insert(name.clone());
        }
        self.clock_full |= wants.clock_full;
    }
}
