//! The daemons' half of the leases of tenants. Each lease has a local session, which the daemon keeps alive until
//! the lease ends.
//!
//! No message is lost between a local session and its member. Two things differ from a client in the daemon's own
//! process, because the tenant relies on the daemon's last reply: a revoked hold, and the holds of a session that
//! the member has ended, are released only after the validity that the daemon has reported has expired.

use super::observer::Inside;
use super::sim::{ScheduledEvent, Sim};
use super::spec::{ClusterSpec, MS};
use super::tenants::{Lease, RenewalReply, SentRenewal, TenantState, TenantStep};
use lockkeeper_core::MutualExclusion;
use lockkeeper_member::{BugSwitch, Ended, LockMode, SessionId, ToClient, ToMember, certainly_left};

/// The lowest client number of the daemons' local sessions.
pub(super) const LOCAL: u64 = 1 << 32;
/// The time to live of a lease, counted from its last renewal.
const TTL_NS: u64 = 900 * MS;
/// The interval at which a daemon sends keep-alives for its local sessions.
const BEAT_NS: u64 = 100 * MS;

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
            TenantStep::Leaves => self.observer.leaves(self.spec.clients + tenant),
        }
        if turn != TenantStep::Waits {
            self.trace(|| format!("T{tenant}"), &turn);
        }
        if let Some(renewal) = self.tenants[tenant].renewal(self.now, clock.read(self.now), self.spec) {
            let daemon = self.tenants[tenant].daemon;
            let sent = SentRenewal { tenant, daemon, boot: self.machines[daemon].boots, renewal };
            for delay in self.net.send(self.now, machine, daemon).into_iter().flatten() {
                self.after(delay, ScheduledEvent::Renewal(sent.clone()));
            }
        }
        let next = self.tenants[tenant].next_wake(self.now, |reading| clock.when(reading)).max(self.now + 1);
        self.tenant_wake_ns[tenant] = next;
        self.after(next - self.now, ScheduledEvent::Tenant(tenant));
    }

    fn tenant_enters(&mut self, tenant: usize) {
        let it = &self.tenants[tenant];
        let (Some(lock_request), Some(((session, number), _, fence))) = (&it.lock_request, it.hold) else {
            return;
        };
        let (lock, client) = (lock_request.lock.clone(), self.spec.clients + tenant);
        let who = Inside { client, session, number, mode: LockMode::Exclusive, reentrant: false };
        let valid = self.relied_on(&lock);
        let valid = |other: &Inside| valid.contains(&(other.session, other.number));
        self.observer.outcome.leased += 1;
        self.observer.enters(self.now, &lock, who, fence, valid);
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
            self.tenants[tenant].receive(self.now, &reply);
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

    /// Handles a renewal that arrives at a daemon.
    pub(super) fn renewed(&mut self, sent: SentRenewal) {
        let SentRenewal { tenant, daemon, boot, .. } = sent;
        let state = self.machines[daemon];
        if !state.up || state.boots != boot {
            return;
        }
        if self.now < state.paused_until_ns {
            return self.after(state.paused_until_ns - self.now, ScheduledEvent::Renewal(sent));
        }
        let renewal = sent.renewal;
        let clock = state.clock.read(self.now);
        if !self.leases.contains_key(&(daemon, tenant)) {
            let lease = Lease::new(self.lease_session(tenant));
            self.leases.insert((daemon, tenant), lease);
        }
        let Some(lease) = self.leases.get_mut(&(daemon, tenant)) else { return };
        lease.renew(clock, TTL_NS, &renewal);
        let allows = |left| match self.spec.bug {
            Some(BugSwitch::LeaseWithoutDrift) => left,
            _ => certainly_left(left, ClusterSpec::DRIFT_PPM, 0),
        };
        let reply = lease.reply(clock, &renewal, allows);
        self.send_lease_messages(daemon, tenant);
        self.advance_leases(daemon, boot, true);
        let copies = self.net.send(self.now, daemon, self.tenant_machine(tenant));
        for delay in copies.into_iter().flatten() {
            self.after(delay, ScheduledEvent::RenewalReply { tenant, daemon, reply: reply.clone() });
        }
    }

    fn lease_session(&mut self, tenant: usize) -> SessionId {
        self.lease_sessions += 1;
        SessionId { client: LOCAL + tenant as u64, number: self.lease_sessions }
    }

    fn send_lease_messages(&mut self, machine: usize, tenant: usize) {
        let clock = self.machines[machine].clock.read(self.now);
        let Some(lease) = self.leases.get_mut(&(machine, tenant)) else { return };
        let session = lease.session.id();
        for message in lease.session.all_messages(clock) {
            self.after(0, ScheduledEvent::Local { machine, session, message });
        }
    }

    /// Handles a message of the member to a local session of the daemon.
    pub(super) fn deliver_to_lease(&mut self, machine: usize, session: SessionId, message: ToClient) {
        let clock = self.machines[machine].clock.read(self.now);
        let mut own = self.leases.range_mut((machine, 0)..=(machine, usize::MAX));
        let Some((_, lease)) = own.find(|(_, lease)| lease.session.id() == session) else { return };
        match message {
            ToClient::Ended { number, outcome: Ended::Revoked } if lease.is_current(number) => {
                lease.revoked = true
            }
            // The session is replaced once its lease has expired.
            ToClient::NoSession => {}
            ToClient::Alive { generation, sent_ns, duration_ns, revoked, .. } => {
                // The current hold is released later; an earlier one has been released already.
                let (current, revoked): (Vec<u64>, Vec<u64>) =
                    revoked.into_iter().partition(|&number| lease.is_current(number));
                lease.revoked |= !current.is_empty();
                lease.session.receive(
                    clock,
                    ToClient::Alive { generation, sent_ns, duration_ns, revoked, recorded: None },
                );
            }
            message => drop(lease.session.receive(clock, message)),
        }
    }

    /// Keeps the local sessions alive, replaces those that have expired, and ends leases that were not renewed.
    pub(super) fn advance_leases(&mut self, machine: usize, boot: u64, renewed: bool) {
        let state = self.machines[machine];
        if !state.up || state.boots != boot {
            // A restarted daemon does not know the leases of its earlier process.
            self.leases.retain(|(daemon, _), _| *daemon != machine || (state.up && state.boots != boot));
            return;
        }
        if self.now < state.paused_until_ns {
            let what = ScheduledEvent::Leases { machine, boot };
            return self.after(state.paused_until_ns - self.now, what);
        }
        if self.now < self.lease_wake_ns.get(&machine).copied().unwrap_or(0) && !renewed {
            return;
        }
        let clock = state.clock.read(self.now);
        let own = self.leases.range((machine, 0)..=(machine, usize::MAX));
        let tenants: Vec<usize> = own.map(|((_, tenant), _)| *tenant).collect();
        let mut next = u64::MAX;
        for tenant in tenants {
            let Some(lease) = self.leases.get_mut(&(machine, tenant)) else { continue };
            let (session, over) = (lease.session.id(), clock >= lease.deadline_ns);
            if over || lease.session.is_lost(clock) {
                self.after(0, ScheduledEvent::Local { machine, session, message: ToMember::Close });
                if over {
                    self.leases.remove(&(machine, tenant));
                    continue;
                }
                let id = self.lease_session(tenant);
                if let Some(lease) = self.leases.get_mut(&(machine, tenant)) {
                    lease.begin_again(id);
                }
            }
            if let Some(lease) = self.leases.get_mut(&(machine, tenant)) {
                lease.give_back_revoked(clock);
            }
            self.send_lease_messages(machine, tenant);
            if let Some(lease) = self.leases.get(&(machine, tenant)) {
                next = next.min(state.clock.when(lease.deadline_ns));
            }
        }
        let planned = self.lease_wake_ns.entry(machine).or_default();
        if next < u64::MAX {
            let at = next.min(self.now + BEAT_NS).max(self.now + 1);
            if *planned <= self.now || at < *planned {
                *planned = at;
                self.after(at - self.now, ScheduledEvent::Leases { machine, boot });
            }
        }
    }
}
