//! Applies faults to the cluster, and repairs them.

use super::faults::{Fault, FaultEvent};
use super::sim::{Message, ScheduledEvent, Sim, proof};
use super::spec::{ClusterSpec, MS};
use lockkeeper_core::MutualExclusion;
use lockkeeper_member::{Event, MemberId, SessionId, ToMember};

impl<P: MutualExclusion> Sim<'_, P> {
    pub(super) fn inject(&mut self, fault_event: FaultEvent) {
        self.trace(|| "fault".into(), &fault_event);
        // The clients of an affected machine may lose their holds during the fault and for the time of a lease and
        // a rejoin.
        let slowest = if self.spec.faults.contains(&Fault::Settings) { ClusterSpec::LONGEST } else { 1 };
        let recovery = slowest * 6_000 * MS;
        match fault_event {
            FaultEvent::Crash { machine, wipe, back_ns } => {
                self.hit_until_ns[machine] = back_ns + recovery;
                if self.machines[machine].up {
                    self.machines[machine].up = false;
                    self.after(back_ns.saturating_sub(self.now), ScheduledEvent::Back { machine, wipe });
                }
                if machine < self.spec.members {
                    self.members[machine] = None;
                } else {
                    self.observer.leaves(machine - self.spec.members);
                }
            }
            FaultEvent::Pause { machine, until_ns } => {
                let state = &mut self.machines[machine];
                state.paused_until_ns = state.paused_until_ns.max(until_ns);
                self.hit_until_ns[machine] = until_ns + recovery;
            }
            FaultEvent::Cut { ways, until_ns } => {
                ways.iter().for_each(|&(from, to)| self.net.cut(from, to, true));
                if until_ns < u64::MAX {
                    self.after(until_ns.saturating_sub(self.now), ScheduledEvent::Mend(ways));
                }
            }
            FaultEvent::HomeCut { client, until_ns } => {
                let (home, machine) = (self.home_of(client), self.spec.members + client);
                self.hit_until_ns[machine] = until_ns + recovery;
                self.inject(FaultEvent::Cut { ways: vec![(machine, home), (home, machine)], until_ns });
            }
            FaultEvent::Leave { machine, timeout_ns } => {
                self.hit_until_ns[machine] = self.now + timeout_ns + recovery;
                self.event(machine, Event::Leave { timeout_ns });
            }
            FaultEvent::Revoke { place } => self.revoke(place),
            FaultEvent::Theft { machine, place } => self.present_foreign_session(machine, place),
            FaultEvent::Change(settings) => {
                for machine in 0..self.spec.members {
                    self.event(machine, Event::Change(settings.clone()));
                }
            }
            FaultEvent::LoseAll { back_ns } => self.lose_all(&back_ns),
            FaultEvent::Leader => {
                self.consensus(|consensus, _, reach, later, _| consensus.elect(reach, later))
            }
        }
    }

    /// The member that a client is connected to. The tenants follow the clients.
    fn home_of(&self, client: usize) -> usize {
        match client.checked_sub(self.spec.clients) {
            Some(tenant) => self.tenants[tenant].daemon,
            None => self.clients[client].wires.last().map_or(0, |wire| wire.link.daemon()),
        }
    }

    /// Crashes all members and loses their disks.
    fn lose_all(&mut self, back_ns: &[u64]) {
        for (machine, &back_ns) in back_ns.iter().enumerate() {
            let down = FaultEvent::Crash { machine, wipe: false, back_ns };
            self.inject(down);
        }
        // The floor is the founder's wall clock. Its unit is so small that no cluster changes its view more than
        // once in one.
        let floor = if self.spec.epochs_begin_at_one { 0 } else { self.now / (MS / 100) };
        self.consensus.lose_all(floor);
    }

    /// Handles an event at a member if its machine runs, at once even if the member is busy.
    fn event(&mut self, machine: usize, event: Event<Message<P>>) {
        if self.machines[machine].is_awake(self.now) {
            self.machines[machine].busy_until_ns = 0;
            self.at(machine, |()| ScheduledEvent::Tick(machine, 0), (), |()| event);
        }
    }

    /// Stops the machine of a member that has left as planned, and restarts it after a while.
    pub(super) fn left(&mut self, machine: usize) {
        self.members[machine] = None;
        self.machines[machine].up = false;
        self.observer.outcome.leaves += 1;
        self.after(300 * MS, ScheduledEvent::Back { machine, wipe: false });
    }

    /// Revokes the hold with this index among the holds of all members.
    fn revoke(&mut self, place: usize) {
        let tables =
            self.members.iter().map(|member| member.as_ref().map_or_else(Vec::new, |it| it.table(0)));
        let holders = tables.enumerate().flat_map(|(machine, table)| {
            table.into_iter().flat_map(move |row| {
                let lock = row.lock;
                row.holders.into_iter().map(move |who| (machine, lock.clone(), who.acquisition))
            })
        });
        let holders: Vec<_> = holders.collect();
        if !holders.is_empty() {
            let (machine, lock, acquisition) = holders[place % holders.len()].clone();
            self.event(machine, Event::Revoke(lock, acquisition, String::new()));
        }
    }

    /// A client with another proof tries to close the session of a client, through a member that does not have the
    /// session. A daemon does not let a client name a session of another client at its own member.
    fn present_foreign_session(&mut self, machine: usize, place: usize) {
        let sessions: Vec<SessionId> = self
            .clients
            .iter()
            .flat_map(|client| client.wires.iter().map(|wire| wire.link.session().id()))
            .collect();
        let Some(&session) = sessions.get(place % sessions.len().max(1)) else { return };
        let has = |member: &Option<_>| {
            member
                .as_ref()
                .is_some_and(|member: &super::sim::SimMember<P>| member.sessions().contains(&session))
        };
        if has(&self.members[machine]) {
            return;
        }
        let keep_alive =
            ToMember::KeepAlive { sent_ns: 0, first: false, settled: u64::MAX, generation: None };
        for message in [keep_alive, ToMember::Close] {
            self.event(machine, Event::Client(session, proof(u64::MAX - 1), message));
        }
    }

    /// Removes a cut of one direction. The members reconnect once both directions are open.
    pub(super) fn mend(&mut self, from: usize, to: usize) {
        self.net.cut(from, to, false);
        let members = from.max(to) < self.spec.members;
        if members && self.net.is_open(from, to) && self.net.is_open(to, from) {
            self.event(from, Event::Connected(MemberId(to as u32 + 1)));
            self.event(to, Event::Connected(MemberId(from as u32 + 1)));
        }
    }

    pub(super) fn back(&mut self, machine: usize, wipe: bool) {
        self.machines[machine].up = true;
        self.machines[machine].paused_until_ns = 0;
        self.machines[machine].boots += 1;
        if machine < self.spec.members {
            self.start_incarnation(machine).expect("the settings were good before");
            self.consensus(|consensus, _, _, later, _| consensus.restarted(machine, wipe, later));
        } else if let Some(tenant) = (machine - self.spec.members).checked_sub(self.spec.clients) {
            self.tenants[tenant].restart(self.now, self.spec);
            self.wake_tenant(tenant);
        } else {
            let clock = self.machines[machine].clock.read(self.now);
            let client = &mut self.clients[machine - self.spec.members];
            client.restart(clock);
            client.wake_ns = self.now;
            self.after(0, ScheduledEvent::Client(machine - self.spec.members));
        }
    }
}
