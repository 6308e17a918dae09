//! The member's side of its locks: instances on demand, messages to other members, grants to clients.

use crate::instance::Sent;
use crate::link::Link;
use crate::lock::Rules;
use crate::member::{Member, Message, Timer};
use crate::session::Stage;
use crate::table::LockId;
use crate::{
    Body, BugSwitch, Bugs, FrameFault, LockContent, LockMessage, LockMode, Node, Note, Out, ToClient,
};
use alloc::vec::Vec;
use lockkeeper_core::{MutualExclusion, SiteId};

impl<P: MutualExclusion, B: Bugs> Member<P, B> {
    /// Creates the lock's instance of this view, if there is none yet. `own` is set if a client of this member uses
    /// the lock. [`Self::apply_effects`] performs the actions of the start.
    pub(crate) fn ensure_instance(&mut self, id: LockId, own: bool) {
        if self.locks.is_fresh(id) && self.locks.get(id).instance.is_some() {
            return;
        }
        let Some(view) = self.running() else { return };
        let holders = self.locks.holders_at_start(id);
        let holders = holders.filter_map(|held| Some((view.site(held.node)?, held.mode, held.units)));
        let mut holders = merged(holders.filter(|&(_, _, units)| units > 0).collect());
        let Some(context) = &mut self.context else { return };
        let active = &self.locks.get(id).active;
        let held = active.as_ref().is_some_and(|active| !active.holds.is_empty());
        if self.config.has(BugSwitch::ReportChanges) && !held {
            holders.retain(|&(site, ..)| site != context.me());
        }
        let own_hold = holders.iter().find(|&&(site, ..)| site == context.me());
        let own_hold = own_hold.map(|&(_, mode, units)| (mode, units));
        if own_hold.is_some() {
            self.locks.activate(id);
        }
        let token_at_home = holders.iter().all(|&(_, mode, _)| mode != LockMode::Exclusive);
        context.holders = holders;
        self.locks.renew(id);
        let lock = self.locks.get_mut(id);
        lock.start(own_hold, context, &mut self.effects);
        // Holds that were released while the member was frozen: the algorithm starts as reported, and `advance`
        // then gives the unused entries back.
        if let Some(active) = &mut lock.active {
            let before = active.holds.len();
            active.holds.retain(|hold| !hold.is_over());
            self.held -= before - active.holds.len();
        }
        // No request reaches a token that circulates without requests: the home has to be notified that the lock is
        // in use.
        let home = crate::ids::home(&lock.name, context.members);
        if own && context.perpetual && home != context.place && token_at_home {
            self.effects.sends.push(Sent { to: SiteId::new(home), clock: 0, content: LockContent::Wake });
        }
    }

    /// Advances a lock: grants to waiters where possible, and requests to the algorithm for the others.
    pub(crate) fn advance(&mut self, now: u64, id: LockId, out: &mut Out<Message<P>>) {
        self.note_change(id);
        let Some((epoch, members)) = self.running().map(|view| (view.epoch, view.members.len())) else {
            return;
        };
        if self.locks.get(id).is_busy() {
            self.ensure_instance(id, true);
        }
        let rules = Rules {
            now,
            epoch,
            lease_runs: now < self.lease_until_ns || self.config.has(BugSwitch::GrantsWithoutLease),
            rounds: self.config.rounds,
            largest_clock: self.config.largest_clock,
            max_delegated_entries: self.config.max_delegated_entries,
            // A single member has no handoffs to save, so it serves its clients strictly in order.
            max_contended_entries: if members > 1 { self.config.max_contended_entries } else { 0 },
            reserves_no_fences: self.config.has(BugSwitch::NothingSetAside),
        };
        let Some(context) = &mut self.context else { return };
        let fresh = self.locks.is_fresh(id);
        let lock = self.locks.get_mut(id);
        if !fresh {
            // An instance of an older view counts as none.
            lock.instance = None;
        }
        lock.advance(rules, context, &mut self.effects);
        self.locks.rest(id);
        if self.config.has(BugSwitch::IdleInstanceDropped) && self.locks.get(id).active.is_none() {
            self.locks.get_mut(id).instance = None;
        }
        self.apply_effects(now, id, out);
    }

    /// Handles a message of the lock's algorithm.
    pub(crate) fn deliver(
        &mut self,
        now: u64,
        sender: Node,
        message: LockMessage<Message<P>>,
        out: &mut Out<Message<P>>,
    ) {
        let LockMessage { lock, clock, content } = message;
        let Some(from) = self.running().and_then(|view| view.site(sender)) else { return };
        let id = self.locks.entry(&lock);
        self.ensure_instance(id, false);
        let Some(context) = &mut self.context else { return };
        if !self.locks.get_mut(id).message(from, clock, content, context, &mut self.effects) {
            out.notes.push(Note::Refused { from: sender, why: FrameFault::OutOfPlace });
        }
        self.advance(now, id, out);
    }

    /// Performs the actions of a lock.
    pub(crate) fn apply_effects(&mut self, now: u64, id: LockId, out: &mut Out<Message<P>>) {
        let mut effects = core::mem::take(&mut self.effects);
        self.spend(effects.sends.len() + effects.grants.len());
        for sent in effects.sends.drain(..) {
            self.send_lock_message(now, id, sent, out);
        }
        self.held += effects.grants.len();
        for grant in effects.grants.drain(..) {
            let (session, number) = (grant.acquisition.session, grant.acquisition.number);
            let Some(state) = self.sessions.get_mut(&session) else { continue };
            state.set(number, Stage::Held(id));
            let generation = state.generation;
            if let Some(at) = grant.timeout_at_ns {
                self.timers.remove(&(at, Timer::RequestTimeout(grant.acquisition)));
            }
            if let Some(at) = grant.longest_until_ns {
                self.timers.insert((at, Timer::LongestHold(grant.acquisition)));
            }
            if grant.ttl_ns > 0 {
                self.young_holds.push_back((now, grant.acquisition));
            }
            let (fence, delegated_entries, contended) =
                (grant.fence, grant.delegated_entries, grant.contended);
            out.clients.push((
                session,
                ToClient::Granted { generation, number, fence, delegated_entries, contended },
            ));
        }
        for recalled in effects.recalls.drain(..) {
            out.clients.push((recalled.session, ToClient::Recall { number: recalled.number }));
        }
        if core::mem::take(&mut effects.parked)
            && let Some(active) = self.locks.used_mut(id)
            && !core::mem::replace(&mut active.parked, true)
        {
            self.parked.push_back(id);
        }
        self.clock_full |= core::mem::take(&mut effects.clock_full);
        self.effects = effects;
    }

    /// Sends a message of a lock's algorithm over the link to its recipient.
    fn send_lock_message(
        &mut self,
        now: u64,
        id: LockId,
        sent: Sent<LockContent<Message<P>>>,
        out: &mut Out<Message<P>>,
    ) {
        let Sent { to, clock, content } = sent;
        let lock = self.locks.get(id).name.clone();
        let Some(view) = self.running() else { return };
        let Some(&node) = view.members.get(to.index()) else { return };
        let epoch = view.epoch;
        let message = LockMessage { lock, clock, content };
        let link = self.links.entry(node).or_insert_with(|| Link::new(now));
        let packet = link.send(now, message);
        self.send(node, Body::Link { epoch, packet }, out);
    }
}

/// Sorts the holders of a lock at the start of a view, and adds up the units of each site: a member may have reported
/// holds of its own and adopted others.
fn merged(mut holders: Vec<(SiteId, LockMode, u32)>) -> Vec<(SiteId, LockMode, u32)> {
    holders.sort_unstable();
    holders.dedup_by(|next, first| {
        let same = (next.0, next.1) == (first.0, first.1);
        first.2 += if same { next.2 } else { 0 };
        same
    });
    holders
}
