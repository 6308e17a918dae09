//! The faults of a cluster, and the checks after each of them.

use lockkeeper_testbed::history::{self, History};
use lockkeeper_testbed::hosts::{Hosts, PORT, address};
use lockkeeper_testbed::options::Random;
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Timeout that is much longer than any correct operation, so that it fails only if something never happens.
const LONGEST_WAIT: Duration = Duration::from_secs(120);

/// A kind of fault.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    Kill,
    KillAll,
    LoseDisk,
    Stop,
    CutBoth,
    CutOneWay,
    Isolate,
    Delay,
    FullDisk,
}

impl Fault {
    pub const ALL: [Self; 9] = [
        Self::Kill,
        Self::Stop,
        Self::CutBoth,
        Self::CutOneWay,
        Self::Isolate,
        Self::Delay,
        Self::LoseDisk,
        Self::FullDisk,
        Self::KillAll,
    ];
}

struct Node {
    id: u32,
    process: Option<Child>,
    data: PathBuf,
    starts: u32,
}

/// A cluster under test.
pub struct Run {
    hosts: Hosts,
    nodes: Vec<Node>,
    members: Vec<String>,
    directory: TempDir,
    history: History,
    seed: u64,
    random: Random,
    faults: u32,
}

impl Run {
    pub fn start(members: u32, seed: u64) -> Self {
        let directory = tempfile::tempdir().expect("a directory for the run");
        for name in ["history", "forgeries"] {
            std::fs::create_dir(directory.path().join(name)).expect("in a directory of our own");
        }
        history::assert_forgeries_are_found(&directory.path().join("forgeries"));
        let history = History::of(&directory.path().join("history"));
        let mut hosts = Hosts::new(members);
        // One member can be reached only through the proxy.
        let behind_proxy = members;
        let proxy = hosts.start_proxy(behind_proxy);
        let of = |id: u32| if id == behind_proxy { proxy.clone() } else { format!("{}:{PORT}", address(id)) };
        let addresses = (1..=members).map(|id| format!("{id}={}", of(id))).collect();
        let random = Random::new(seed);
        let (nodes, members_at, faults) = (Vec::new(), addresses, 0);
        let mut run = Self { hosts, nodes, members: members_at, directory, history, seed, random, faults };
        for id in 1..=members {
            let data = run.directory.path().join(format!("data-{id}"));
            std::fs::create_dir(&data).expect("in a directory of our own");
            run.hosts.mount_small(&data);
            run.nodes.push(Node { id, process: None, data, starts: 0 });
            run.spawn(run.nodes.len() - 1);
        }
        run
    }

    fn history(&mut self) -> &History {
        self.history.read();
        &self.history
    }

    fn spawn(&mut self, place: usize) {
        let node = &mut self.nodes[place];
        node.starts += 1;
        let history =
            self.directory.path().join("history").join(format!("{}-{}.jsonl", node.id, node.starts));
        let listen = format!("{}:{PORT}", address(node.id));
        let advertise = self.members[place].split_once('=').expect("ID=ADDRESS").1.to_owned();
        let program = std::env::current_exe().expect("this program has a path");
        let mut command = self.hosts.command(node.id, &program);
        command.arg("node").arg(node.id.to_string()).args([listen, advertise]);
        command
            .arg(node.data.join("store"))
            .arg(history)
            .arg((self.seed ^ u64::from(node.starts)).to_string());
        command.args(&self.members).stdin(Stdio::null());
        node.process = Some(command.spawn().expect("a member starts"));
    }

    fn kill(&mut self, place: usize) {
        if let Some(mut process) = self.nodes[place].process.take() {
            process.kill().expect("it is our own child");
            process.wait().expect("it is our own child");
        }
    }

    fn signal(&self, place: usize, signal: Signal) {
        let process = self.nodes[place].process.as_ref().expect("it runs");
        let pid = Pid::from_raw(process.id() as i32).expect("a process has a number");
        kill_process(pid, signal).expect("it is our own child");
    }

    /// Injects one fault. While it lasts, the unaffected members must grant locks; after it, all members must.
    pub fn inject(&mut self, fault: Fault) {
        self.faults += 1;
        let victim = self.random.below(self.nodes.len());
        let other = (victim + 1 + self.random.below(self.nodes.len() - 1)) % self.nodes.len();
        let (at, to) = (self.nodes[victim].id, self.nodes[other].id);
        println!(
            "== {fault:?}: M{at}{}",
            if matches!(fault, Fault::CutBoth | Fault::CutOneWay) {
                format!(" and M{to}")
            } else {
                String::new()
            }
        );
        let others: Vec<usize> = (0..self.nodes.len()).filter(|&place| place != victim).collect();
        match fault {
            Fault::Kill => {
                self.kill(victim);
                self.wait_for_entries(&others, "while one is dead");
                self.spawn(victim);
            }
            Fault::KillAll => {
                (0..self.nodes.len()).for_each(|place| self.kill(place));
                (0..self.nodes.len()).for_each(|place| self.spawn(place));
            }
            Fault::LoseDisk => {
                self.kill(victim);
                std::fs::remove_dir_all(self.nodes[victim].data.join("store")).expect("it was there");
                self.wait_for_entries(&others, "while one has lost its disk");
                self.spawn(victim);
            }
            Fault::Stop => {
                self.signal(victim, Signal::STOP);
                // The others are granted the stopped member's locks only once its lease has expired.
                self.wait_for_entries(&others, "while one is stopped");
                self.signal(victim, Signal::CONT);
            }
            Fault::CutBoth => {
                self.hosts.cut(at, to);
                self.hosts.cut(to, at);
                self.some_client_enters("while a link is cut");
            }
            Fault::CutOneWay => {
                self.hosts.cut(at, to);
                self.some_client_enters("while a link carries one way only");
            }
            Fault::Isolate => {
                for &place in &others {
                    self.hosts.cut(at, self.nodes[place].id);
                    self.hosts.cut(self.nodes[place].id, at);
                }
                self.wait_for_entries(&others, "while one is cut off");
            }
            Fault::Delay => {
                self.hosts.delay(Duration::from_millis(40));
                self.some_client_enters("while one is slow to reach");
                self.hosts.delay(Duration::ZERO);
            }
            Fault::FullDisk => self.fill_disk(victim, &others),
        }
        self.hosts.heal();
        self.every_client_enters("after it");
        self.check_history();
    }

    /// Starts a member while its disk is full. It may stop for lack of space; with space it must start.
    fn fill_disk(&mut self, victim: usize, others: &[usize]) {
        let ballast = self.nodes[victim].data.join("ballast");
        fill(&ballast);
        self.kill(victim);
        self.wait_for_entries(others, "while one has no space on its disk");
        let (before, began) = (self.entries(victim), Instant::now());
        self.spawn(victim);
        std::fs::remove_file(&ballast).expect("written a moment ago");
        while self.entries(victim) == before {
            let process = self.nodes[victim].process.as_mut().expect("started a moment ago");
            if process.try_wait().expect("our own child").is_some() {
                self.spawn(victim);
            }
            assert!(began.elapsed() < LONGEST_WAIT, "with space on its disk, it does not come up");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn entries(&mut self, place: usize) -> u64 {
        let who = format!("M{}", self.nodes[place].id);
        self.history().entries.get(&who).copied().unwrap_or(0)
    }

    /// Waits until the clients of each of these members have entered five more times.
    fn wait_for_entries(&mut self, places: &[usize], when: &str) {
        let before: Vec<u64> = places.iter().map(|&place| self.entries(place)).collect();
        let began = Instant::now();
        loop {
            let now: Vec<u64> = places.iter().map(|&place| self.entries(place)).collect();
            if now.iter().zip(&before).all(|(now, before)| *now >= before + 5) {
                println!("   {when}: all in after {} ms", began.elapsed().as_millis());
                return;
            }
            self.no_member_died(places);
            assert!(began.elapsed() < LONGEST_WAIT, "{when}, M{places:?} of {before:?} came to {now:?} only");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn no_member_died(&mut self, places: &[usize]) {
        for &place in places {
            if let Some(process) = &mut self.nodes[place].process {
                let ended = process.try_wait().expect("our own child");
                assert!(ended.is_none(), "M{} ended by itself: {ended:?}", self.nodes[place].id);
            }
        }
    }

    fn some_client_enters(&mut self, when: &str) {
        let total = |history: &History| history.entries.values().sum::<u64>();
        let (before, began) = (total(self.history()), Instant::now());
        while total(self.history()) < before + 10 {
            assert!(began.elapsed() < LONGEST_WAIT, "{when}, no client enters");
            std::thread::sleep(Duration::from_millis(20));
        }
        println!("   {when}: served after {} ms", began.elapsed().as_millis());
    }

    pub fn every_client_enters(&mut self, when: &str) {
        let all: Vec<usize> = (0..self.nodes.len()).collect();
        self.wait_for_entries(&all, when);
    }

    /// Checks the records so far for mutual exclusion and rising fences.
    pub fn check_history(&mut self) {
        let faults = self.history().faults();
        assert!(
            faults.is_empty(),
            "{} faults in the history, such as:\n{}",
            faults.len(),
            faults[..faults.len().min(5)].join("\n")
        );
    }

    pub fn finish(mut self) {
        (0..self.nodes.len()).for_each(|place| self.kill(place));
        self.check_history();
        let history = self.history();
        let (entries, losses) = (history.entries.values().sum::<u64>(), history.losses.values().sum::<u64>());
        println!(
            "{} faults survived: {entries} entries, never two inside, fences rising; {losses} holds lost, each with a notice",
            self.faults
        );
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        (0..self.nodes.len()).for_each(|place| self.kill(place));
    }
}

fn fill(path: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(path).expect("an empty file fits");
    while file.write_all(&[0; 4096]).is_ok() {}
}
