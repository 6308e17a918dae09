//! The faults of daemons and clients, and the checks after each of them.

use crate::audit::{self, Audit};
use crate::clients::{held_durably, is_for_turns};
use crate::cluster::{Cluster, LEAVE_TIMEOUT_S};
use crate::daemon::{slower, times};
use lockkeeper_daemon::{CLIENTS_PORT, HTTP_PORT, MEMBERS_PORT};
use lockkeeper_testbed::history::{self, History, now_ns};
use lockkeeper_testbed::hosts::HUB;
use lockkeeper_testbed::options::Random;
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Far longer than any step takes, so that only a hang fails.
const LONGEST_WAIT: Duration = Duration::from_secs(120);
/// Number of turns after which a client counts as served.
const TURNS: u64 = 3;

/// One kind of fault.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    Kill,
    Stop,
    Leave,
    CutFromMembers,
    CutFromClients,
    Isolate,
    KillClient,
    KillAll,
    ChangeSettings,
}

impl Fault {
    pub const ALL: [Self; 9] = [
        Self::ChangeSettings,
        Self::Leave,
        Self::Kill,
        Self::Stop,
        Self::CutFromMembers,
        Self::CutFromClients,
        Self::Isolate,
        Self::KillClient,
        Self::KillAll,
    ];
}

/// A cluster and its clients under test.
pub struct Run {
    // Declared before the directory: dropping it ends the processes that have files there.
    cluster: Cluster,
    history: History,
    audit: Audit,
    /// The number of holds that are counted so far, and the number of turns of each client among them.
    turns: (usize, BTreeMap<String, u64>),
    /// Violations that were observed.
    broken: Vec<String>,
    random: Random,
    faults: u32,
    _directory: TempDir,
}

impl Run {
    pub fn start(members: u32, seed: u64) -> Self {
        let directory = tempfile::tempdir().expect("a directory for the run");
        for name in ["history", "forged-history", "forged-audit"] {
            std::fs::create_dir(directory.path().join(name)).expect("in a directory of our own");
        }
        history::assert_forgeries_are_found(&directory.path().join("forged-history"));
        audit::assert_forged_logs_are_found(&directory.path().join("forged-audit"));
        let mut cluster = Cluster::new(members, seed, directory.path());
        (0..cluster.daemons.len()).for_each(|place| cluster.start_daemon(place));
        (0..cluster.clients.len()).for_each(|place| cluster.start_client(place));
        let history = History::of(&cluster.history());
        let audit = Audit::new((0..cluster.daemons.len()).map(|place| cluster.audit(place)));
        let (turns, broken, random) = ((0, BTreeMap::new()), Vec::new(), Random::new(seed));
        Self { cluster, history, audit, turns, broken, random, faults: 0, _directory: directory }
    }

    /// Injects one fault. While it lasts, all clients that can make progress must; after it, all clients must.
    pub fn inject(&mut self, fault: Fault) {
        self.faults += 1;
        let count = self.cluster.daemons.len();
        let victim = self.random.below(count);
        let host = self.cluster.daemons[victim].host;
        println!("== {fault:?}: M{host}");
        match fault {
            Fault::Kill => {
                self.kill(victim);
                self.every_client_enters("while one is dead");
                self.cluster.start_daemon(victim);
            }
            Fault::Stop => {
                self.cluster.daemons[victim].signal(Signal::STOP);
                // The locks of the stopped daemon can be granted only after its lease has expired.
                self.every_client_enters("while one is stopped");
                self.cluster.daemons[victim].signal(Signal::CONT);
            }
            Fault::Leave => self.leave(victim),
            Fault::CutFromMembers => {
                for other in self.hosts().filter(|&other| other != HUB && other != host) {
                    self.cluster.hosts.cut_service(host, &[MEMBERS_PORT], other);
                    self.cluster.hosts.cut_service(other, &[MEMBERS_PORT], host);
                }
                self.every_client_enters("while one is cut off from the other members");
            }
            Fault::CutFromClients => {
                self.hosts().for_each(|other| {
                    self.cluster.hosts.cut_service(host, &[CLIENTS_PORT, HTTP_PORT], other)
                });
                self.every_client_enters("while one is cut off from all clients");
            }
            Fault::Isolate => {
                for other in self.hosts().filter(|&other| other != host) {
                    self.cluster.hosts.cut(host, other);
                    self.cluster.hosts.cut(other, host);
                }
                self.wait_for_entries("elsewhere, while a host is cut off", |at| at != host);
            }
            Fault::KillClient => {
                // Every client holds a lock or is about to.
                let client = self.random.below(self.cluster.clients.len());
                println!("   {}", self.cluster.clients[client].1.name);
                self.cluster.clients[client].1.kill();
                self.cluster.start_client(client);
            }
            Fault::ChangeSettings => self.change_settings(victim),
            Fault::KillAll => {
                (0..count).for_each(|place| self.kill(place));
                (0..count).for_each(|place| self.cluster.start_daemon(place));
            }
        }
        self.cluster.hosts.heal();
        self.every_client_enters("after it");
        self.every_daemon_serves();
        self.check_history();
    }

    fn hosts(&self) -> impl Iterator<Item = u32> {
        self.cluster.daemons.iter().map(|daemon| daemon.host).chain([HUB])
    }

    fn kill(&mut self, place: usize) {
        self.cluster.daemons[place].kill();
        self.audit.kill(now_ns());
    }

    /// Makes a daemon leave. Clients that release their holds in time lose nothing.
    fn leave(&mut self, place: usize) {
        let (began, began_ns) = (Instant::now(), now_ns());
        self.cluster.daemons[place].signal(Signal::TERM);
        let status = loop {
            if let Some(status) = self.cluster.daemons[place].ended() {
                break status;
            }
            assert!(began.elapsed() < LONGEST_WAIT, "a leaving daemon does not end");
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(status.success(), "a leaving daemon ended with {status}");
        let leave = began.elapsed();
        println!("   it has left after {} ms", leave.as_millis());
        self.every_client_enters("while one has left");
        let kept_until_ns = began_ns + LEAVE_TIMEOUT_S * 1_000_000_000;
        for hold in &self.history.holds {
            let lost = hold.lost_ns.filter(|lost_ns| (began_ns..kept_until_ns).contains(lost_ns));
            // A client that got no CPU time loses its hold by itself, which takes longer.
            let soon =
                lost.is_some_and(|lost_ns| lost_ns < hold.claimed_ns + times().lease.as_nanos() as u64 / 2);
            // Holds are not renewed while the view changes. On a machine that is so slow that this takes most of a lease, they
            // expire, but not before the end of their promise.
            let is_slow = leave > times().lease / 2;
            let expired = lost.is_some_and(|lost_ns| lost_ns >= hold.until_ns);
            if soon && !(is_slow && expired) {
                self.broken.push(format!("while a daemon left in order, {} lost `{}`", hold.who, hold.lock));
            }
        }
        self.cluster.start_daemon(place);
    }

    /// Requests another algorithm and other times from one daemon, as an operator. No client may lose a hold.
    fn change_settings(&mut self, place: usize) {
        const ALGORITHMS: [&str; 5] =
            ["majority", "raymond", "ricart-agrawala", "suzuki-kasami", "naimi-trehel"];
        let algorithm = ALGORITHMS[self.random.below(ALGORITHMS.len())];
        let factor = 2 + self.random.below(2) as u32;
        let times = slower(factor);
        let time = |name: &str, time: Duration| format!("{name}={}ms", time.as_millis());
        let changes = [
            format!("algorithm={algorithm}"),
            time("longest_lease", slower(3).lease),
            time("lease", times.lease),
            time("renewal", times.renewal),
            time("silence", times.silence),
            time("settle", times.settle),
        ];
        println!("   {}", changes.join(" "));
        let (began, began_ns) = (Instant::now(), now_ns());
        let status = self.cluster.operate(place, &changes);
        assert!(status.success(), "the change of the settings ended with {status}");
        println!("   changed after {} ms", began.elapsed().as_millis());
        self.every_client_enters("with other settings");
        let ended_ns = now_ns();
        for hold in &self.history.holds {
            let lost = hold.lost_ns.filter(|lost_ns| (began_ns..ended_ns).contains(lost_ns));
            // A client that got no CPU time loses its hold by itself, which takes longer.
            let soon =
                lost.is_some_and(|lost_ns| lost_ns < hold.claimed_ns + times.lease.as_nanos() as u64 / 2);
            if soon {
                self.broken.push(format!("while the settings changed, {} lost `{}`", hold.who, hold.lock));
            }
        }
    }

    fn turns(&mut self) -> &BTreeMap<String, u64> {
        self.history.read();
        let (counted, turns) = &mut self.turns;
        for hold in self.history.holds[*counted..].iter().filter(|hold| is_for_turns(&hold.lock)) {
            *turns.entry(hold.who.clone()).or_default() += 1;
        }
        *counted = self.history.holds.len();
        turns
    }

    /// Waits until every daemon has granted locks.
    pub fn every_daemon_serves(&mut self) {
        self.audit.read();
        let (before, began) = (self.audit.served.clone(), Instant::now());
        while self.audit.served.iter().zip(&before).any(|(now, before)| now == before) {
            let served = &self.audit.served;
            assert!(began.elapsed() < LONGEST_WAIT, "a daemon grants nothing: {before:?}, then {served:?}");
            std::thread::sleep(Duration::from_millis(20));
            self.audit.read();
        }
        println!("   every daemon serves after {} ms", began.elapsed().as_millis());
    }

    /// Waits until every client of every kind has taken turns, and every lock was held.
    pub fn every_client_enters(&mut self, when: &str) {
        self.wait_for_entries(when, |_| true);
    }

    fn wait_for_entries(&mut self, when: &str, on: impl Fn(u32) -> bool) {
        let clients = self.cluster.clients.iter().map(|(_, client)| client);
        let names: Vec<String> =
            clients.filter(|client| on(client.host)).map(|client| client.name.clone()).collect();
        let (before, began, began_ns) = (self.turns().clone(), Instant::now(), now_ns());
        let mut last = Vec::new();
        loop {
            let waited_for = self.waited_for(&names, &before, began_ns);
            if waited_for.is_empty() {
                println!(
                    "   {when}: all in after {} ms, last {}",
                    began.elapsed().as_millis(),
                    last.join(", ")
                );
                return;
            }
            last.clone_from(&waited_for);
            self.no_daemon_ended();
            assert!(began.elapsed() < LONGEST_WAIT, "{when}, these make no progress: {waited_for:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Clients without enough turns, and locks that no client held.
    fn waited_for(&mut self, names: &[String], before: &BTreeMap<String, u64>, began_ns: u64) -> Vec<String> {
        let now = self.turns().clone();
        let turns = |turns: &BTreeMap<String, u64>, name| turns.get(name).copied().unwrap_or(0);
        let idle = names.iter().filter(|name| turns(&now, *name) < turns(before, *name) + TURNS);
        let mut waited_for: Vec<String> = idle.cloned().collect();
        if waited_for.is_empty() {
            let mut locks: BTreeSet<&str> =
                self.history.holds.iter().map(|hold| hold.lock.as_str()).collect();
            for hold in self.history.holds.iter().filter(|hold| hold.until_ns > began_ns) {
                locks.remove(hold.lock.as_str());
            }
            waited_for.extend(locks.into_iter().map(String::from));
        }
        waited_for
    }

    fn no_daemon_ended(&mut self) {
        let clients = self.cluster.clients.iter_mut().map(|(_, client)| client);
        for process in self.cluster.daemons.iter_mut().chain(clients) {
            if let Some(status) = process.ended().filter(|status| !status.success()) {
                panic!("{} ended by itself: {status}", process.name);
            }
        }
    }

    /// Checks that the history so far satisfies mutual exclusion and agrees with the logs of the daemons.
    fn check_history(&mut self) {
        self.history.read();
        let began = Instant::now();
        // Logs are written with a delay.
        let faults = loop {
            self.audit.read();
            let faults = self.audit.faults(&self.history.holds);
            if faults.is_empty() || began.elapsed() > LONGEST_WAIT / 10 {
                break faults;
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        let faults: Vec<String> = [faults, self.history.faults(), self.broken.clone()].concat();
        let some = faults[..faults.len().min(8)].join("\n");
        assert!(faults.is_empty(), "{} faults in the history, such as:\n{some}", faults.len());
    }

    /// Checks everything at the end, and prints a summary.
    pub fn finish(mut self) {
        self.cluster.clients.iter_mut().for_each(|(_, client)| client.kill());
        self.check_history();
        for (_, client) in &self.cluster.clients {
            assert!(
                self.audit.refused.contains(&client.name),
                "no log records that {} was refused",
                client.name
            );
        }
        let lost = self.history.losses.values().sum::<u64>();
        let mut by_kind: BTreeMap<&str, u64> = BTreeMap::new();
        for (kind, client) in &self.cluster.clients {
            *by_kind.entry(kind.name()).or_default() += self.history.entries.get(&client.name).unwrap_or(&0);
        }
        let durable = self.history.holds.iter().filter(|hold| hold.lock.starts_with(&held_durably("")));
        let (long, expired) = durable.fold((0, 0), |(long, expired), hold| {
            let is_long = hold.claimed_ns > hold.entered_ns + 1_000_000_000;
            (long + u32::from(is_long), expired + u32::from(is_long && hold.lost_ns.is_some()))
        });
        println!(
            "{long} durable holds of more than a second: none lost by the cluster, {expired} expired because no daemon replied for their time to live"
        );
        println!(
            "{} faults survived: entries {by_kind:?}, mutual exclusion kept, fences rising; {lost} holds lost and reported; {} fenced grants in the audit logs, {} of them for several entries",
            self.faults, self.audit.fenced, self.audit.kept
        );
    }
}
