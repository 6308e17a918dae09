//! Troubles happen to a cluster, and pass.

use super::faults::{Fault, Trouble};
use super::sim::{Message, Sim, What};
use super::spec::{ClusterSpec, MS};
use lockkeeper_core::MutualExclusion;
use lockkeeper_member::{Event, MemberId};

impl<P: MutualExclusion> Sim<'_, P> {
    pub(super) fn trouble(&mut self, trouble: Trouble) {
        self.tell(|| "trouble".into(), &trouble);
        // What a machine went through, its clients may feel for the time of a lease and a rejoining.
        let slowest = if self.spec.faults.contains(&Fault::Settings) { ClusterSpec::LONGEST } else { 1 };
        let recovery = slowest * 6_000 * MS;
        match trouble {
            Trouble::Crash { machine, wipe, back_ns } => {
                self.hit_until_ns[machine] = back_ns + recovery;
                if self.machines[machine].up {
                    self.machines[machine].up = false;
                    self.after(back_ns.saturating_sub(self.now), What::Back { machine, wipe });
                }
                if machine < self.spec.members {
                    self.members[machine] = None;
                } else {
                    self.watch.leaves(machine - self.spec.members);
                }
            }
            Trouble::Pause { machine, until_ns } => {
                let state = &mut self.machines[machine];
                state.paused_until_ns = state.paused_until_ns.max(until_ns);
                self.hit_until_ns[machine] = until_ns + recovery;
            }
            Trouble::Cut { ways, until_ns } => {
                ways.iter().for_each(|&(from, to)| self.net.cut(from, to, true));
                if until_ns < u64::MAX {
                    self.after(until_ns.saturating_sub(self.now), What::Mend(ways));
                }
            }
            Trouble::Leave { machine, patience_ns } => {
                self.hit_until_ns[machine] = self.now + patience_ns + recovery;
                self.event(machine, Event::Leave { patience_ns });
            }
            Trouble::Revoke { place } => self.revoke(place),
            Trouble::Change(settings) => {
                for machine in 0..self.spec.members {
                    self.event(machine, Event::Change(settings.clone()));
                }
            }
            Trouble::LoseAll { back_ns } => self.lose_all(&back_ns),
            Trouble::Leader => self.consensus(|consensus, _, reach, later, _| consensus.elect(reach, later)),
        }
    }

    /// All members crash and lose their disks.
    fn lose_all(&mut self, back_ns: &[u64]) {
        for (machine, &back_ns) in back_ns.iter().enumerate() {
            let down = Trouble::Crash { machine, wipe: false, back_ns };
            self.trouble(down);
        }
        // The floor is the wall clock of the founder, in units in which no cluster changes its view more than once.
        let floor = if self.spec.epochs_begin_at_one { 0 } else { self.now / (MS / 100) };
        self.consensus.lose_all(floor);
    }

    /// An event at a member whose machine does something just now.
    fn event(&mut self, machine: usize, event: Event<Message<P>>) {
        if self.machines[machine].is_awake(self.now) {
            self.machines[machine].busy_until_ns = 0;
            self.at(machine, |()| What::Tick(machine, 0), (), |()| event);
        }
    }

    /// A member has left in order: its machine stops, and comes back after a while.
    pub(super) fn left(&mut self, machine: usize) {
        self.members[machine] = None;
        self.machines[machine].up = false;
        self.watch.outcome.leaves += 1;
        self.after(300 * MS, What::Back { machine, wipe: false });
    }

    /// Takes a lock from whoever is at this place among all that hold one.
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
            self.event(machine, Event::Revoke(lock, acquisition));
        }
    }

    /// One direction of a link is mended: its sender notices once the whole link is.
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
            self.begin_life(machine).expect("the settings were good before");
            self.consensus(|consensus, _, _, later, _| consensus.restarted(machine, wipe, later));
        } else if let Some(tenant) = (machine - self.spec.members).checked_sub(self.spec.clients) {
            self.tenants[tenant].restart(self.now);
            self.wake_tenant(tenant);
        } else {
            let clock = self.machines[machine].clock.read(self.now);
            let client = &mut self.clients[machine - self.spec.members];
            client.restart(clock);
            client.wake_ns = self.now;
            self.after(0, What::Look(machine - self.spec.members));
        }
    }
}
