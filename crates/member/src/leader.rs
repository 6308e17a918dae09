//! The leader's part of a member: it grants leases, detects failed members, proposes views, and gathers reports.
//!
//! A lease of length L is granted in three steps. R is the leader's clock BEFORE it queried the voters:
//!
//! ```text
//! member   Renew(sent_ns) ──┐                            ┌── Renewed(sent_ns, duration_ns)
//! leader                    └─ Confirm at R ─ Confirmed ─┘   duration_ns = R + L - now
//! ```
//!
//! A majority has confirmed the leadership after R, so no other leader has replaced this one before R. The member
//! counts the lease from `sent_ns`. The renewal was sent before `now`, so the lease expires by R + L: the coordinator
//! of the next view has to wait until then if it excludes the member.

use crate::gather::Gather;
use crate::view::Proposal;
use crate::{BugSwitch, Bugs, ClusterSettings, Config, Inherited, MemberId, Node, Renewal, View};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

/// A renewal that waits until the leadership is confirmed.
#[derive(Clone, Copy, Debug)]
struct PendingRenewal {
    node: Node,
    sent_ns: u64,
    epoch: u64,
}

/// A lease to be sent to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub node: Node,
    pub sent_ns: u64,
    pub duration_ns: u64,
}

/// The state of one term of leadership. It is dropped with the term, because another leader may have granted leases
/// in between.
#[derive(Clone, Debug)]
pub(crate) struct Leader {
    pub term: u64,
    since_ns: u64,
    /// When this leader applied the newest view; the beginning of its term if the view was decided before.
    applied_ns: u64,
    /// Settings that an operator requested, until a view with them is decided.
    pub change: Option<ClusterSettings>,
    /// The last renewal of each node, and when it arrived.
    renewals: BTreeMap<Node, (u64, Renewal)>,
    /// When each new member was admitted: the silence of a member is counted from then, at the earliest.
    admitted: BTreeMap<Node, u64>,
    /// For each node, the R of the last lease that this leader granted to it in this term.
    answered: BTreeMap<Node, u64>,
    /// The confirmations requested from the voters, the oldest first, each with its R: the clock BEFORE the request.
    confirming: VecDeque<(u64, u64)>,
    pending: Vec<PendingRenewal>,
    /// Members that have drained and will grant nothing more.
    departed: BTreeSet<Node>,
    /// The proposed epoch, and the time of the proposal.
    proposed: Option<(u64, u64)>,
    /// Number of exclusions of each member, and the time of the last one: a member that crashes in a loop must not
    /// freeze all locks at each restart.
    exclusions: BTreeMap<MemberId, (u32, u64)>,
    pub gather: Option<Gather>,
}

impl Leader {
    pub fn new(term: u64, now: u64) -> Self {
        Self {
            term,
            since_ns: now,
            applied_ns: now,
            change: None,
            renewals: BTreeMap::new(),
            admitted: BTreeMap::new(),
            answered: BTreeMap::new(),
            confirming: VecDeque::new(),
            pending: Vec::new(),
            departed: BTreeSet::new(),
            proposed: None,
            exclusions: BTreeMap::new(),
            gather: None,
        }
    }

    /// Handles a decided view.
    pub fn applied(&mut self, now: u64, view: &View) {
        self.applied_ns = now;
        self.change.take_if(|change| *change == view.settings);
        self.renewals.retain(|node, _| view.has(*node));
        self.admitted.retain(|node, _| view.has(*node));
        self.departed.retain(|node| view.has(*node));
        for node in &view.members {
            self.admitted.entry(*node).or_insert(now);
        }
    }

    /// Handles a renewal. Returns the number of the confirmation to request from the voters, unless one was requested
    /// lately. If the voters are slow, another one is requested, but late confirmations of older requests count:
    /// otherwise no lease would ever be renewed with voters that are always late.
    pub fn renewal(
        &mut self,
        now: u64,
        node: Node,
        renewal: Renewal,
        number: u64,
        config: &Config<impl Bugs>,
    ) -> Option<u64> {
        if !renewal.drained {
            self.pending.push(PendingRenewal { node, sent_ns: renewal.sent_ns, epoch: renewal.epoch });
        }
        self.renewals.insert(node, (now, renewal));
        let lately = |&(_, read): &(u64, u64)| now < read + 2 * config.round_trip_ns;
        if self.pending.is_empty() || self.confirming.back().is_some_and(lately) {
            return None;
        }
        self.confirming.push_back((number, now));
        Some(number)
    }

    /// Whether one more renewal can be stored: bounds the memory that faulty members can make a leader use.
    pub fn has_room_for(&self, node: Node) -> bool {
        const MOST: usize = 16 * crate::MOST_MEMBERS;
        self.pending.len() < MOST && (self.renewals.len() < MOST || self.renewals.contains_key(&node))
    }

    /// Records that this node has drained and will grant nothing more.
    pub fn mark_departed(&mut self, node: Node) {
        self.departed.insert(node);
    }

    /// Whether this node has drained and will grant nothing more.
    pub fn has_departed(&self, node: Node) -> bool {
        self.departed.contains(&node)
    }

    /// Handles the confirmation of the leadership by a majority: each member that has sent a renewal, and knows the
    /// newest view, gets the rest of L since R.
    pub fn confirmed(
        &mut self,
        now: u64,
        number: u64,
        view: &View,
        config: &Config<impl Bugs>,
    ) -> Vec<Lease> {
        let Some(place) = self.confirming.iter().position(|&(asked, _)| asked == number) else {
            return Vec::new();
        };
        // Older requests have an earlier R, so their confirmations would yield shorter leases.
        let read = self.confirming[place].1;
        self.confirming.drain(..=place);
        // Example: R = 100 ms, L = 1200 ms, and the confirmation arrives at 130 ms: the lease lasts 1170 ms from
        // `sent_ns`.
        let duration_ns = (read + config.cluster.lease_ns).saturating_sub(now).min(config.cluster.lease_ns);
        let mut leases = Vec::new();
        for PendingRenewal { node, sent_ns, epoch } in self.pending.drain(..) {
            let newest = epoch == view.epoch && view.has(node) || config.has(BugSwitch::AnswersOldEpochs);
            if newest && duration_ns > 0 {
                self.answered.insert(node, read);
                leases.push(Lease { node, sent_ns, duration_ns });
            }
        }
        leases
    }

    /// Drops confirmation requests that are older than a lease. The members that wait for them renew again.
    pub fn drop_old_confirmations(&mut self, now: u64, config: &Config<impl Bugs>) {
        while self.confirming.front().is_some_and(|&(_, read)| now >= read + config.cluster.lease_ns) {
            self.confirming.pop_front();
        }
        if self.confirming.is_empty() {
            self.pending.clear();
        }
    }

    /// When the last lease of a node that `view` excludes has certainly expired, on this clock. Leases of an earlier
    /// leader were granted before this term, and may be longer than the view's own: the view has inherited their
    /// length.
    pub fn lease_over_ns(&self, node: Node, view: &View, config: &Config<impl Bugs>) -> u64 {
        let last = self.answered.get(&node).copied().unwrap_or(self.since_ns).max(self.since_ns);
        let inherited = if config.has(BugSwitch::OwnLeaseWaitedFor) {
            Inherited::of(&config.cluster)
        } else {
            view.inherited
        };
        last.saturating_add(inherited.lease_wait_ns(config.margin_ns, config.bugs))
    }

    /// When every lease of a cluster that lost all its disks has certainly expired, on this clock.
    pub fn founded_ns(&self, config: &Config<impl Bugs>) -> u64 {
        if config.has(BugSwitch::FounderDoesNotWait) {
            return 0;
        }
        let own_only = config.has(BugSwitch::FounderWaitsForOwnLease);
        let longest = if own_only { config.cluster.lease_ns } else { config.cluster.longest_lease_ns };
        // The last lease of the lost cluster may have promised recorded holds for their whole time to live.
        let no_records = config.is_new || own_only || config.has(BugSwitch::FounderIgnoresTtl);
        let ttl = if no_records { 0 } else { config.outwait(config.cluster.longest_ttl_ns) };
        self.since_ns.saturating_add(config.outwait(longest)).saturating_add(ttl)
    }

    /// The lease lengths that the next view inherits: only those of the present settings, once every lease from
    /// before the present view has expired.
    fn inherited(&self, now: u64, applied: &View, config: &Config<impl Bugs>) -> Inherited {
        let present = Inherited::of(&applied.settings);
        let over =
            self.applied_ns.saturating_add(applied.inherited.lease_wait_ns(config.margin_ns, config.bugs));
        if now >= over { present } else { present.max(applied.inherited) }
    }

    /// The view to propose now, if any.
    pub fn proposal(
        &mut self,
        now: u64,
        me: Node,
        applied: &View,
        joiners: &BTreeMap<Node, u64>,
        config: &Config<impl Bugs>,
    ) -> Option<View> {
        // Wait for the decision about the last proposal before the next one.
        let decision_timeout = 4 * config.round_trip_ns;
        if self.proposed.is_some_and(|(epoch, at)| epoch > applied.epoch && now < at + decision_timeout) {
            return None;
        }
        let gone = self.gone(now, me, applied, config);
        let stays = |node: &Node| !gone.contains(node) && !self.departed.contains(node);
        let mut members: Vec<Node> = applied.members.iter().copied().filter(stays).collect();
        let mut needed = members.len() < applied.members.len()
            || self.change.is_some()
            || self.needs_new_epoch(applied, me, config)
            || self.has_full_table(now, applied, config);
        // Two incarnations of one member are never in a view together: this one has to wait for the exclusion of the
        // other.
        if !members.contains(&me) && !self.departed.contains(&me) {
            members.retain(|node| node.id != me.id);
            members.push(me);
            needed = true;
        }
        // Members join in a view change of their own, so that they never delay an exclusion. The first view takes all
        // of them.
        if !needed || applied.epoch == 0 {
            let joining = self.joining(now, applied, &members, joiners, config);
            needed |= !joining.is_empty();
            members.extend(joining);
        }
        if !needed {
            return None;
        }
        if config.has(BugSwitch::ProposerWaits)
            && gone.iter().any(|&node| now < self.lease_over_ns(node, applied, config))
        {
            return None;
        }
        // Members that left as planned do not count as excluded: they may come back at once.
        for node in gone.difference(&self.departed) {
            let times = self.exclusions.entry(node.id).or_insert((0, now));
            *times = (times.0 + 1, now);
        }
        let started =
            self.gather.as_ref().is_some_and(|gather| gather.started() && gather.view.epoch == applied.epoch);
        self.proposed = Some((applied.epoch + 1, now));
        let present = if applied.epoch == 0 { &config.cluster } else { &applied.settings };
        let settings = self.change.as_ref().unwrap_or(present).clone();
        let inherited = match applied.epoch {
            0 => Inherited::of(&settings),
            _ => self.inherited(now, applied, config).max(Inherited::of(&settings)),
        };
        let (departed, term) = (&self.departed, self.term);
        Some(applied.next(Proposal {
            members,
            departed,
            coordinator: me,
            term,
            started,
            settings,
            inherited,
        }))
    }

    /// The members to exclude: those that have been silent for too long, and one end of each link that carries
    /// nothing.
    fn gone(&self, now: u64, me: Node, applied: &View, config: &Config<impl Bugs>) -> BTreeSet<Node> {
        let silent_for = |node: Node| {
            let admitted = self.admitted.get(&node).map_or(self.since_ns, |&at| at);
            now.saturating_sub(self.renewals.get(&node).map_or(admitted, |&(at, _)| at))
        };
        let others = || applied.members.iter().copied().filter(|&node| node != me);
        // A member that does not know the present view yet renews at the interval of an earlier one.
        let knows = |node: Node| {
            let renewals = self.renewals.get(&node).map(|(_, renewal)| renewal);
            renewals.is_some_and(|renewal| renewal.epoch == applied.epoch)
                || config.has(BugSwitch::OwnLeaseWaitedFor)
        };
        let allowed = |node: Node| {
            if knows(node) {
                config.cluster.silence_ns
            } else {
                applied.inherited.silence_ns.max(config.cluster.silence_ns)
            }
        };
        let mut gone: BTreeSet<Node> = others().filter(|&node| silent_for(node) > allowed(node)).collect();
        let lively = |node: Node| silent_for(node) <= 2 * config.cluster.renewal_ns;
        for one in applied.members.iter().copied().filter(|&node| lively(node)) {
            for &other in
                self.unreachable(one, applied).iter().filter(|&&other| lively(other) && applied.has(other))
            {
                if gone.contains(&one) || gone.contains(&other) {
                    continue;
                }
                // The choice is the same for every leader: the end with the higher number, but never the leader
                // itself.
                let end = if one == me {
                    other
                } else if other == me {
                    one
                } else {
                    one.max(other)
                };
                gone.insert(end);
            }
        }
        gone
    }

    /// The members that `node` cannot reach in this view. A renewal from before it installed the view is ignored: it
    /// is about links of an older view, which may have been silent because the other end was in this view already.
    fn unreachable(&self, node: Node, applied: &View) -> &[Node] {
        let renewal_of = self.renewals.get(&node).map(|(_, renewal)| renewal);
        renewal_of
            .filter(|renewal| renewal.installed == applied.epoch)
            .map_or(&[], |renewal| &renewal.unreachable)
    }

    /// Whether the view must be followed by another one with the same members: it was not started, or a fence clock
    /// is exhausted.
    fn needs_new_epoch(&self, applied: &View, me: Node, config: &Config<impl Bugs>) -> bool {
        let own = applied.coordinator == me && applied.term == self.term;
        let renewal_of = |node: &Node| self.renewals.get(node).map(|(_, renewal)| renewal);
        let mut renewals = applied.members.iter().filter_map(renewal_of);
        renewals.any(|renewal| {
            let unstarted = !own && renewal.installed < applied.epoch;
            let left = config.has(BugSwitch::UnstartedViewLeft) || config.has(BugSwitch::TwoCoordinators);
            unstarted && !left || renewal.clock_full && renewal.installed == applied.epoch
        })
    }

    /// Whether a member's table is full of idle locks, and a view that drops them would start at once: every member
    /// is reachable, runs in the present view, and got a lease in it. Without the last condition, views in quick
    /// succession would leave every renewal with an old epoch, and the leases would expire.
    fn has_full_table(&self, now: u64, applied: &View, config: &Config<impl Bugs>) -> bool {
        let present = |node: &Node| {
            let leased = self.answered.get(node).is_some_and(|&read| read >= self.applied_ns);
            let lately = |&&(at, ref renewal): &&(u64, Renewal)| {
                now <= at + 2 * config.cluster.renewal_ns && renewal.installed == applied.epoch && leased
            };
            self.renewals.get(node).filter(lately).map(|(_, renewal)| renewal.table_full)
        };
        let renewal_of: Option<Vec<bool>> = applied.members.iter().map(present).collect();
        renewal_of.is_some_and(|renewal_of| renewal_of.contains(&true))
    }

    /// The members that may join: the view has run for a while, and every member receives the joiner's messages.
    fn joining(
        &self,
        now: u64,
        applied: &View,
        members: &[Node],
        joiners: &BTreeMap<Node, u64>,
        config: &Config<impl Bugs>,
    ) -> Vec<Node> {
        let received_here = |at: u64| now <= at + 2 * config.cluster.renewal_ns;
        let known = |node: &Node| config.peers.contains(&node.id);
        let lately =
            joiners.iter().filter(|&(_, &at)| received_here(at)).map(|(&node, _)| node).filter(known);
        if applied.epoch == 0 {
            let mut first: BTreeMap<MemberId, Node> = BTreeMap::new();
            first.extend(
                lately
                    .filter(|node| members.iter().all(|member| member.id != node.id))
                    .map(|node| (node.id, node)),
            );
            return first.into_values().collect();
        }
        let running = |node: &Node| {
            self.renewals.get(node).is_some_and(|(_, renewal)| renewal.installed == applied.epoch)
        };
        let settled = match &self.gather {
            Some(gather) => gather.started_ns.is_some_and(|at| now >= at + config.cluster.settle_ns),
            None => now >= self.since_ns + config.cluster.settle_ns,
        };
        if !settled || !applied.members.iter().all(running) {
            return Vec::new();
        }
        let is_received_everywhere = |joiner: Node| {
            members.iter().all(|member| {
                self.renewals.get(member).is_some_and(|(_, renewal)| renewal.joiners.contains(&joiner))
            })
        };
        let back_off = |id: MemberId| {
            let (times, at) = self.exclusions.get(&id).copied().unwrap_or((0, 0));
            // A member that was excluded n times waits for 2^n settle times (n is at most 4).
            times == 0 || now >= at + (config.cluster.settle_ns << times.min(4))
        };
        let welcome = |node: &Node| {
            members.iter().all(|member| member.id != node.id)
                && back_off(node.id)
                && is_received_everywhere(*node)
        };
        let mut joining: Vec<Node> = lately.filter(welcome).collect();
        joining.dedup_by_key(|node| node.id);
        joining
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn node(id: u32) -> Node {
        Node { id: MemberId(id), incarnation: 1 }
    }

    #[test]
    fn unreachable_links_of_an_older_view_exclude_no_member() {
        let config = Config::new([1, 2, 3].map(MemberId));
        let (me, mut leader) = (node(1), Leader::new(1, 0));
        let view = View::none().next(Proposal {
            members: [1, 2, 3].map(node).to_vec(),
            departed: &BTreeSet::new(),
            coordinator: me,
            term: 1,
            started: false,
            settings: config.cluster.clone(),
            inherited: Inherited::of(&config.cluster),
        });
        let older = view.epoch - 1;
        leader.applied(0, &view);
        let mut proposed_after = |installed: u64| {
            for (node, unreachable) in [(me, vec![node(2), node(3)]), (node(2), vec![]), (node(3), vec![])] {
                let renewal = Renewal {
                    epoch: view.epoch,
                    sent_ns: 0,
                    installed,
                    unreachable,
                    joiners: Vec::new(),
                    clock_full: false,
                    table_full: false,
                    drained: false,
                };
                leader.renewal(0, node, renewal, 1, &config);
            }
            leader.proposal(0, me, &view, &BTreeMap::new(), &config).map(|view| view.members)
        };
        assert_eq!(proposed_after(older), None);
        assert_eq!(proposed_after(view.epoch), Some(vec![me]));
    }
}
