//! Drives the tenants, and the daemons' half of their leases.
//!
//! The stand-in of a daemon does what `lockkeeper-daemon` and the driver of its member do: a renewal that arrives at
//! another daemon than that of the lease is forwarded; a lease does not exist once all members of a view have answered in
//! the same epoch that they do not have it; a hold that is revoked stays locked for as long as the tenant may rely on it.
//! Forwarded replies pass through the daemon of the tenant without a check that it still runs.

use super::daemon_leases::{Changes, Lease, kept_ns};
use super::observer::{Inside, Property};
use super::sim::{ScheduledEvent, Sim};
use super::tenants::{LeaseId, RenewalReply, SentRenewal, TenantState, TenantStep};
use lockkeeper_core::MutualExclusion;
use lockkeeper_member::{Acquisition, Ended, LockMode, SessionId, ToClient, ToMember};
use std::collections::BTreeSet;

impl<P: MutualExclusion> Sim<'_, P> {
    // ---- The tenant's side.

    pub(super) fn wake_tenant(&mut self, tenant: usize) {
        self.tenant_wake_ns[tenant] = self.now;
        self.after(0, ScheduledEvent::Tenant(tenant));
    }

    fn tenant_machine(&self, tenant: usize) -> usize {
        self.spec.members + self.spec.clients + tenant
    }

    pub(super) fn drive_tenant(&mut self, tenant: usize) {
        let state = self.machines[self.tenant_machine(tenant)];
        if !state.up || self.now < self.tenant_wake_ns[tenant] {
            return;
        }
        if self.now < state.paused_until_ns {
            return self.after(state.paused_until_ns - self.now, ScheduledEvent::Tenant(tenant));
        }
        self.tenant_steps(tenant);
    }

    fn tenant_steps(&mut self, tenant: usize) {
        let machine = self.tenant_machine(tenant);
        let clock = self.machines[machine].clock;
        let turn = self.tenants[tenant].step(self.now, clock.read(self.now), self.spec);
        match turn {
            TenantStep::Waits => {}
            TenantStep::Enters => self.tenant_enters(tenant),
            TenantStep::Leaves { lost_promised } => {
                self.observer.leaves(self.spec.clients + tenant);
                if lost_promised {
                    self.tenant_loses(tenant);
                }
            }
        }
        if turn != TenantStep::Waits {
            self.trace(|| format!("T{tenant}"), &turn);
        }
        if let Some(renewal) = self.tenants[tenant].renewal(self.now, clock.read(self.now), self.spec) {
            let daemon = self.tenants[tenant].daemon;
            let sent = SentRenewal { via: daemon, daemon, boot: self.machines[daemon].boots, renewal };
            for delay in self.net.send(self.now, machine, daemon).into_iter().flatten() {
                self.after(delay, ScheduledEvent::Renewal(sent.clone()));
            }
        }
        let next = self.tenants[tenant].next_wake(self.now, |reading| clock.when(reading)).max(self.now + 1);
        self.tenant_wake_ns[tenant] = next;
        self.after(next - self.now, ScheduledEvent::Tenant(tenant));
    }

    /// Handles the loss of a hold that was recorded and promised for its time to live.
    fn tenant_loses(&mut self, tenant: usize) {
        self.observer.outcome.lost_recorded += 1;
        if self.spec.spares_recorded_holds() {
            let how = format!("tenant {tenant} loses a recorded hold");
            self.observer.broken(self.now, Property::RecordedHolds, how);
        }
    }

    fn tenant_enters(&mut self, tenant: usize) {
        let it = &self.tenants[tenant];
        let (Some(lock_request), Some(hold)) = (&it.lock_request, it.hold) else { return };
        let (session, number) = hold.id;
        let (lock, client) = (lock_request.lock.clone(), self.spec.clients + tenant);
        let who = Inside { client, session, number, mode: LockMode::Exclusive, reentrant: false };
        let valid = self.relied_on(&lock);
        let valid = |other: &Inside| valid.contains(&(other.session, other.number));
        self.observer.outcome.leased += 1;
        self.observer.enters(self.now, &lock, who, hold.fence, valid);
    }

    pub(super) fn deliver_to_tenant(&mut self, tenant: usize, daemon: usize, reply: RenewalReply) {
        let state = self.machines[self.tenant_machine(tenant)];
        if !state.up {
            return;
        }
        if self.now < state.paused_until_ns {
            return self.after(
                state.paused_until_ns - self.now,
                ScheduledEvent::RenewalReply { tenant, daemon, reply },
            );
        }
        if self.tenants[tenant].daemon == daemon {
            let clock = state.clock.read(self.now);
            if self.tenants[tenant].receive(self.now, clock, &reply, self.spec) {
                self.tenant_loses(tenant);
            }
            self.tenant_steps(tenant);
        }
    }

    /// Describes a tenant that has waited since `latest` or longer.
    pub(super) fn waiting_tenant(&self, latest: u64) -> Option<String> {
        let waits = |doing| matches!(doing, TenantState::Waits(since) if since <= latest);
        let tenant = self.tenants.iter().position(|tenant| waits(tenant.doing))?;
        Some(format!("tenant {tenant} at M{} still waits", self.tenants[tenant].daemon + 1))
    }

    // ---- The daemon's side.

    /// Handles a renewal that arrives at a daemon, from a tenant or from another daemon.
    pub(super) fn renewed(&mut self, sent: SentRenewal) {
        let state = self.machines[sent.daemon];
        if !state.up || state.boots != sent.boot {
            return;
        }
        if self.now < state.paused_until_ns {
            return self.after(state.paused_until_ns - self.now, ScheduledEvent::Renewal(sent));
        }
        let SentRenewal { via, daemon, renewal, .. } = &sent;
        let (via, daemon, lease) = (*via, *daemon, renewal.lease);
        let known = self.leases.get(&(daemon, lease)).is_some_and(|known| known.boot == state.boots);
        if known {
            return self.renew_lease(&sent);
        }
        if via != daemon {
            return self.absent_here(daemon, via, lease);
        }
        if renewal.creates {
            return self.create_lease(&sent);
        }
        for other in (0..self.spec.members).filter(|&other| other != daemon) {
            let forwarded = SentRenewal { daemon: other, boot: self.machines[other].boots, ..sent.clone() };
            for delay in self.net.send(self.now, daemon, other).into_iter().flatten() {
                self.after(delay, ScheduledEvent::Renewal(forwarded.clone()));
            }
        }
        self.answer_if_absent_everywhere(via, lease);
    }

    fn create_lease(&mut self, sent: &SentRenewal) {
        let (daemon, tenant) = (sent.daemon, sent.renewal.lease.0);
        let (session, state) = (self.lease_session(tenant), self.machines[daemon]);
        let clock = state.clock.read(self.now);
        let Some(member) = &mut self.members[daemon] else { return };
        // A member that leaves opens no session.
        if member.open_resident(clock, session).is_ok() {
            let lease = Lease::new(state.boots, session, sent.renewal.ttl_ns, clock);
            self.leases.insert((daemon, sent.renewal.lease), lease);
            self.renew_lease(sent);
        }
    }

    fn lease_session(&mut self, tenant: usize) -> SessionId {
        self.lease_sessions += 1;
        SessionId { client: SessionId::RESIDENT | tenant as u64, number: self.lease_sessions }
    }

    fn renew_lease(&mut self, sent: &SentRenewal) {
        let SentRenewal { via, daemon, renewal, .. } = sent;
        let (via, daemon, key) = (*via, *daemon, (*daemon, renewal.lease));
        let clock = self.machines[daemon].clock.read(self.now);
        self.follow_process_lease(daemon);
        self.lose_expired(daemon, renewal.lease);
        let process = self.process_leases[daemon];
        let (Some(lease), Some(member)) = (self.leases.get_mut(&key), &mut self.members[daemon]) else {
            return;
        };
        let entry = lease.entry.as_ref().filter(|entry| entry.hold.is_some_and(|hold| hold.recorded));
        let acquisition = entry.map(|entry| Acquisition { session: lease.session, number: entry.number });
        let recorded = acquisition.filter(|&acquisition| member.is_record_current(acquisition));
        let longest = member.settings().longest_ttl_ns;
        let promised = recorded.map(|held| member.promise_resident(clock, held.session));
        let answers = lease.keep_alive(clock, longest, process, promised);
        let (session, mut reply) = (lease.session, lease.reply(clock, renewal, process, self.spec.bug));
        let Changes { release, acquire } = lease.follow_request(renewal);
        if !answers {
            reply.held = None;
        }
        if let Some(acquisition) = recorded.filter(|_| promised == Some(true)) {
            self.check_tenant_promise(daemon, acquisition);
        }
        for number in release {
            self.local(daemon, session, ToMember::Release { number });
        }
        if let Some((number, request)) = acquire {
            self.local(daemon, session, ToMember::Acquire { number, settled: 0, request });
        }
        self.schedule_leases(daemon);
        self.reply_via(daemon, via, reply);
    }

    /// Sends a reply to a tenant through the daemon to which the tenant sent its renewal.
    fn reply_via(&mut self, daemon: usize, via: usize, reply: RenewalReply) {
        let tenant = reply.lease.0;
        let between = if daemon == via { [Some(0), None] } else { self.net.send(self.now, daemon, via) };
        for first in between.into_iter().flatten() {
            for second in self.net.send(self.now, via, self.tenant_machine(tenant)).into_iter().flatten() {
                let what = ScheduledEvent::RenewalReply { tenant, daemon: via, reply: reply.clone() };
                self.after(first + second, what);
            }
        }
    }

    /// Answers another daemon that a lease is not here. The view comes first: a lease that this daemon adopts with a
    /// later view is found in that one.
    fn absent_here(&mut self, daemon: usize, via: usize, lease: LeaseId) {
        let epoch = self.members[daemon].as_ref().and_then(|member| member.running()).map(|view| view.epoch);
        let Some(epoch) = epoch else { return };
        let boot = self.machines[via].boots;
        for delay in self.net.send(self.now, daemon, via).into_iter().flatten() {
            self.after(delay, ScheduledEvent::LeaseAbsent { via, boot, lease, from: daemon, epoch });
        }
    }

    /// Handles such an answer.
    pub(super) fn lease_absent(&mut self, via: usize, lease: LeaseId, from: usize, epoch: u64) {
        let absent = self.absent_leases.entry((via, lease)).or_insert((epoch, BTreeSet::new()));
        if absent.0 != epoch {
            *absent = (epoch, BTreeSet::new());
        }
        absent.1.insert(from);
        self.answer_if_absent_everywhere(via, lease);
    }

    fn answer_if_absent_everywhere(&mut self, via: usize, lease: LeaseId) {
        let boots = self.machines[via].boots;
        if self.leases.get(&(via, lease)).is_some_and(|known| known.boot == boots) {
            return;
        }
        let Some(view) = self.members[via].as_ref().and_then(|member| member.running()) else { return };
        let others = view.members.iter().map(|node| node.id.0 as usize - 1).filter(|&other| other != via);
        let none = (0, BTreeSet::new());
        let (epoch, absent) = self.absent_leases.get(&(via, lease)).unwrap_or(&none);
        let mut others = others;
        let current = *epoch == view.epoch || view.members.len() == 1;
        if current && others.all(|other| absent.contains(&other)) {
            self.absent_leases.remove(&(via, lease));
            self.trace(|| format!("M{}", via + 1), &format!("no member has the lease {lease:?}"));
            let (sent_ns, request, held) = (0, 0, None);
            let gone = RenewalReply { lease, sent_ns, request, serves: false, lost: false, gone: true, held };
            self.reply_via(via, via, gone);
        }
    }

    /// Sends a message of a session in the daemon's process to its member.
    fn local(&mut self, machine: usize, session: SessionId, message: ToMember) {
        self.after(0, ScheduledEvent::Local { machine, session, message });
    }

    fn leases_at(&self, machine: usize) -> Vec<LeaseId> {
        let boots = self.machines[machine].boots;
        let all = self.leases.range((machine, (0, 0))..=(machine, (usize::MAX, u64::MAX)));
        all.filter(|(_, lease)| lease.boot == boots).map(|((_, id), _)| *id).collect()
    }

    /// Detects the end of the member's lease.
    pub(super) fn follow_process_lease(&mut self, machine: usize) {
        let clock = self.machines[machine].clock.read(self.now);
        let until_ns = self.members[machine].as_ref().map_or(0, |member| member.resident_until_ns(clock));
        self.process_leases[machine].end_if_over(clock, until_ns);
    }

    /// Ends a hold that is not recorded and whose member has lost its lease, or leaves. The tenant may rely on it until the
    /// lease of the member ends.
    fn lose_expired(&mut self, machine: usize, id: LeaseId) {
        let (clock, process) = (self.machines[machine].clock.read(self.now), self.process_leases[machine]);
        let until_ns = self.lease_promised_until_ns(machine);
        let Some(lease) = self.leases.get_mut(&(machine, id)) else { return };
        let session = lease.session;
        let Some(number) = lease.lose_expired(clock, process) else { return };
        if until_ns <= clock {
            self.local(machine, session, ToMember::Release { number });
        } else {
            lease.taken_away.push((number, until_ns));
        }
    }

    /// The latest end of a lease of the member that its daemon may have reported to a tenant.
    fn lease_promised_until_ns(&self, machine: usize) -> u64 {
        self.members[machine].as_ref().map_or(0, |member| member.resident_promised_until_ns())
    }

    /// Handles a message of the member to a session in the daemon's process.
    pub(super) fn deliver_to_lease(&mut self, machine: usize, session: SessionId, message: ToClient) {
        let found = |id: &LeaseId| self.leases.get(&(machine, *id)).is_some_and(|it| it.session == session);
        let Some(id) = self.leases_at(machine).into_iter().find(found) else { return };
        let (process, lease_until_ns) = (self.process_leases[machine], self.lease_promised_until_ns(machine));
        let Some(lease) = self.leases.get_mut(&(machine, id)) else { return };
        match message {
            ToClient::Granted { number, fence, .. } if lease.granted(number, fence, process) => {
                self.record_hold(machine, id);
            }
            ToClient::Recorded { number, .. } if lease.is_current(number) => {
                if let Some(hold) = lease.hold_mut() {
                    hold.recorded = true;
                }
            }
            ToClient::Ended { number, outcome: Ended::Revoked } if lease.is_current(number) => {
                lease.revoked(lease_until_ns);
                self.schedule_leases(machine);
            }
            ToClient::Ended { number, .. } if lease.is_current(number) => lease.entry = None,
            ToClient::NoSession => self.leave_incarnation(machine, id),
            _ => {}
        }
    }

    /// Requests the record of a hold that was granted.
    fn record_hold(&mut self, machine: usize, id: LeaseId) {
        let clock = self.machines[machine].clock.read(self.now);
        let (Some(lease), Some(member)) = (self.leases.get(&(machine, id)), &mut self.members[machine])
        else {
            return;
        };
        let (Some(entry), Some(payload)) = (&lease.entry, lease.payload(id)) else { return };
        let acquisition = Acquisition { session: lease.session, number: entry.number };
        let ttl_ns = kept_ns(lease.ttl_ns).min(member.settings().longest_ttl_ns);
        member.record_resident(clock, acquisition, ttl_ns, payload);
    }

    /// Creates the leases of adopted holds.
    pub(super) fn adopt_leases(&mut self, machine: usize) {
        let Some(member) = &mut self.members[machine] else { return };
        let records = member.take_adopted_residents();
        if records.is_empty() {
            return;
        }
        let (boot, clock) = (self.machines[machine].boots, self.machines[machine].clock.read(self.now));
        let process = self.process_leases[machine];
        for record in records {
            let Some(member) = &self.members[machine] else { return };
            let owed_until_ns = member.adopted_until_ns(clock, record.ttl_ns);
            let adopted = Lease::adopted(boot, &record, (clock, owed_until_ns), process, self.spec.bug);
            let Some((id, lease)) = adopted else { continue };
            self.trace(|| format!("M{}", machine + 1), &format!("adopts the lease {id:?}"));
            self.observer.outcome.adopted_leases += 1;
            let same = |known: &&mut Lease| known.session == lease.session && known.boot == boot;
            match self.leases.get_mut(&(machine, id)).filter(same) {
                Some(known) => known.merge(lease),
                None => {
                    // A lease with a wait may have stayed here while another daemon adopted its last hold. It is not found
                    // any more, and ends at its deadline.
                    if let Some(other) = self.leases.insert((machine, id), lease) {
                        let unreachable = (id.0, (1 << 40) + other.session.number);
                        self.leases.insert((machine, unreachable), other);
                    }
                }
            }
        }
        self.schedule_leases(machine);
    }

    /// The member has begun a new incarnation: its leases with a recorded hold have moved to another daemon.
    pub(super) fn leases_begin_again(&mut self, machine: usize) {
        self.process_leases[machine].until_ns = 0;
        self.process_leases[machine].number += 1;
        for id in self.leases_at(machine) {
            self.leave_incarnation(machine, id);
        }
    }

    fn leave_incarnation(&mut self, machine: usize, id: LeaseId) {
        let (session, clock) = (self.lease_session(id.0), self.machines[machine].clock.read(self.now));
        let (Some(lease), Some(member)) = (self.leases.get_mut(&(machine, id)), &mut self.members[machine])
        else {
            return;
        };
        let moved = lease.hold_mut().is_some_and(|hold| hold.recorded);
        if moved || member.open_resident(clock, session).is_err() {
            self.leases.remove(&(machine, id));
        } else if let Some((number, request)) = lease.begin_again(session) {
            self.local(machine, session, ToMember::Acquire { number, settled: 0, request });
        }
    }

    /// Ends the leases that were not renewed, and releases the revoked holds on which no tenant may rely any more.
    pub(super) fn advance_leases(&mut self, machine: usize, boot: u64) {
        let state = self.machines[machine];
        if !state.up || state.boots != boot {
            // A restarted daemon does not know the leases of its earlier process.
            self.leases.retain(|(daemon, _), lease| *daemon != machine || lease.boot > boot);
            self.lease_wake_ns.remove(&machine);
            return self.schedule_leases(machine);
        }
        if self.now < state.paused_until_ns {
            let what = ScheduledEvent::Leases { machine, boot };
            return self.after(state.paused_until_ns - self.now, what);
        }
        self.follow_process_lease(machine);
        let clock = state.clock.read(self.now);
        for id in self.leases_at(machine) {
            self.lose_expired(machine, id);
            let Some(lease) = self.leases.get_mut(&(machine, id)) else { continue };
            let session = lease.session;
            if clock >= lease.deadline_ns {
                self.leases.remove(&(machine, id));
                self.local(machine, session, ToMember::Close);
                continue;
            }
            let free: Vec<u64> = lease
                .taken_away
                .extract_if(.., |(_, until_ns)| clock >= *until_ns)
                .map(|(number, _)| number)
                .collect();
            for number in free {
                self.local(machine, session, ToMember::Release { number });
            }
        }
        self.schedule_leases(machine);
    }

    /// Schedules the next check of a daemon's leases.
    fn schedule_leases(&mut self, machine: usize) {
        let state = self.machines[machine];
        let all = self.leases_at(machine).into_iter().filter_map(|id| self.leases.get(&(machine, id)));
        let times = all.flat_map(|lease| {
            let taken_away = lease.taken_away.iter().map(|&(_, until_ns)| until_ns);
            taken_away.chain([lease.deadline_ns])
        });
        let Some(next) = times.min() else { return };
        let at = state.clock.when(next).max(self.now + 1);
        let planned = self.lease_wake_ns.entry(machine).or_default();
        if *planned <= self.now || at < *planned {
            *planned = at;
            self.after(at - self.now, ScheduledEvent::Leases { machine, boot: state.boots });
        }
    }
}
