//! The costs of a member: `cargo bench -p lockkeeper-member`; `-- steps` for the longest steps alone.
//!
//! Times are compared with a lookup in a `BTreeMap` of a thousand names, in the same run. Memory is counted by the
//! allocator.

use cap::Cap;
use lockkeeper_core::Protocol;
use lockkeeper_core::algorithms::naimi_trehel::NaimiTrehel;
use lockkeeper_member::{
    Body, Config, Event, LockName, LockRequest, Member, MemberId, Node, Note, Out, PortEvent, PortRequest,
    Proof, Query, SessionId, ToMember,
};
use mimalloc::MiMalloc;
use std::collections::{BTreeMap, VecDeque};
use std::hint::black_box;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: Cap<MiMalloc> = Cap::new(MiMalloc, usize::MAX);

type MemberEvent = Event<<NaimiTrehel as Protocol>::Message>;

const MS: u64 = 1_000_000;

/// Members whose frames arrive at once, in virtual time.
struct Cluster {
    now: u64,
    members: Vec<Member<NaimiTrehel>>,
    out: Out<<NaimiTrehel as Protocol>::Message>,
    installed: Vec<u64>,
    frames: u64,
    /// The next number of each session's acquisitions.
    number: u64,
    /// The longest step of each kind, if that is measured.
    steps: Option<Steps>,
}

/// For each kind of event: the number of steps, the longest one, and the most items that one touched.
type Steps = BTreeMap<&'static str, (u64, Duration, usize)>;

fn kind(event: &MemberEvent) -> &'static str {
    match event {
        Event::Frame(frame) => match &frame.body {
            Body::Freeze { .. } => "frame: freeze",
            Body::Report { .. } => "frame: report",
            Body::Start { .. } | Body::More { .. } => "frame: start",
            Body::Link { .. } => "frame: message of a lock",
            Body::Query { .. } | Body::Reply { .. } => "frame: survey",
            _ => "frame: lease",
        },
        Event::Client(_, _, ToMember::Close) => "client: close",
        Event::Client(..) => "client: other",
        Event::Port(_) => "consensus",
        Event::Tick => "tick",
        _ => "operator",
    }
}

impl Cluster {
    fn new(members: u32) -> Self {
        let mut config = Config::new((1..=members).map(MemberId));
        config.is_new = true;
        Self::with(config)
    }

    fn with(config: Config) -> Self {
        let members = config.peers.len() as u32;
        let member = |id| Member::new(Node { id: MemberId(id), incarnation: 1 }, config.clone(), 0);
        let members: Vec<_> = (1..=members).map(|id| member(id).expect("good settings")).collect();
        let installed = vec![0; members.len()];
        let mut cluster =
            Self { now: 0, members, out: Out::default(), installed, frames: 0, number: 0, steps: None };
        cluster.wait(10);
        cluster.happens(0, Event::Port(PortEvent::Leading { term: 1 }));
        for member in 0..cluster.members.len() {
            cluster.happens(member, Event::Port(PortEvent::Leader(Some(MemberId(1)))));
        }
        cluster.wait(2_000);
        for member in 0..cluster.members.len() {
            cluster.keep_alive(member, true);
        }
        cluster
    }

    fn happens(&mut self, member: usize, event: MemberEvent) {
        let mut todo = VecDeque::from([(member, event)]);
        while let Some((member, event)) = todo.pop_front() {
            let (kind, begin) = (kind(&event), core_time());
            self.members[member].handle(self.now, event, &mut self.out);
            if let Some(steps) = &mut self.steps {
                let (count, longest, work) = steps.entry(kind).or_default();
                (*count, *longest) = (*count + 1, (core_time() - begin).max(*longest));
                *work = self.out.work.max(*work);
            }
            // Long work continues at once, after the events in the queue.
            if self.members[member].wake_ns() == 0 {
                todo.push_back((member, Event::Tick));
            }
            self.frames += self.out.frames.len() as u64;
            let frames = self.out.frames.drain(..);
            todo.extend(frames.map(|frame| (frame.to.0 as usize - 1, Event::Frame(frame))));
            for request in self.out.port.drain(..) {
                match request {
                    PortRequest::Propose(view) => {
                        let decided = |member| {
                            (
                                member,
                                Event::Port(PortEvent::Decided { view: view.clone(), adopted: Vec::new() }),
                            )
                        };
                        todo.extend((0..self.members.len()).map(decided));
                    }
                    PortRequest::Confirm { number: question, .. } => {
                        todo.push_back((member, Event::Port(PortEvent::Confirmed { number: question })));
                    }
                    PortRequest::StepDown { .. } | PortRequest::Write(_) => {}
                }
            }
            for note in self.out.notes.drain(..) {
                if let Note::Installed { epoch } = note {
                    self.installed[member] = epoch;
                }
            }
        }
    }

    fn session(member: usize) -> SessionId {
        SessionId { client: member as u64, number: 0 }
    }

    fn keep_alive(&mut self, member: usize, first: bool) {
        let message = ToMember::KeepAlive { sent_ns: self.now, first, settled: 0, generation: None };
        self.happens(member, Event::Client(Self::session(member), Proof::default(), message));
    }

    /// Advances time; every session is kept alive.
    fn wait(&mut self, ms: u64) {
        for _ in 0..ms / 10 {
            self.now += 10 * MS;
            for member in 0..self.members.len() {
                self.happens(member, Event::Tick);
                self.keep_alive(member, false);
            }
        }
    }

    /// Advances time, without keep-alives.
    fn tick(&mut self, ms: u64) {
        for _ in 0..ms / 10 {
            self.now += 10 * MS;
            (0..self.members.len()).for_each(|member| self.happens(member, Event::Tick));
        }
    }

    fn acquire(&mut self, member: usize, lock: LockName) -> u64 {
        self.number += 1;
        let message =
            ToMember::Acquire { number: self.number, settled: 0, request: LockRequest::exclusive(lock) };
        self.happens(member, Event::Client(Self::session(member), Proof::default(), message));
        self.number
    }

    fn release(&mut self, member: usize, number: u64) {
        self.happens(
            member,
            Event::Client(Self::session(member), Proof::default(), ToMember::Release { number }),
        );
    }
}

fn name(number: usize) -> LockName {
    LockName::new(format!("orders/{number:07}"))
}

/// The CPU time of this thread: other processes may use the core too.
fn core_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The CPU time of a call.
fn timed(what: impl FnOnce()) -> Duration {
    let begin = core_time();
    what();
    core_time() - begin
}

fn per(time: Duration, times: u32) -> f64 {
    time.as_secs_f64() * 1e9 / f64::from(times)
}

/// The time of one lookup of a name among a thousand.
fn lookup_ns() -> f64 {
    const TIMES: u32 = 2_000_000;
    let names: Vec<String> = (0..1000).map(|number| format!("orders/{number:07}")).collect();
    let map: BTreeMap<&str, u64> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let look = |at: usize| map[black_box(names[at * 7 % 1000].as_str())];
    let time = timed(|| {
        black_box((0..TIMES as usize).map(look).sum::<u64>());
    });
    per(time, TIMES)
}

/// Acquire and release, uncontended, the token at home: through `handle` alone, as a driver in the same process does.
fn speed(lookup_ns: f64) {
    const TIMES: u32 = 1_000_000;
    let mut cluster = Cluster::new(3);
    let locks: Vec<LockName> = (0..1000).map(name).collect();
    for lock in &locks {
        let number = cluster.acquire(0, lock.clone());
        cluster.release(0, number);
    }
    let (session, first) = (Cluster::session(0), cluster.number + 1);
    let frames = cluster.frames;
    let before = ALLOCATOR.allocated();
    let Cluster { now, members, out, .. } = &mut cluster;
    let mut granted = 0;
    let time = timed(|| {
        for at in 0..u64::from(TIMES) {
            let (number, lock) = (first + at, locks[at as usize * 7 % 1000].clone());
            let message =
                ToMember::Acquire { number, settled: number, request: LockRequest::exclusive(lock) };
            members[0].handle(*now, Event::Client(session, Proof::default(), message), out);
            granted += out.clients.len();
            members[0].handle(
                *now,
                Event::Client(session, Proof::default(), ToMember::Release { number }),
                out,
            );
            assert!(out.frames.is_empty());
        }
    });
    let ns = per(time, TIMES);
    assert_eq!((granted, cluster.frames), (TIMES as usize, frames));
    let grown = ALLOCATOR.allocated().saturating_sub(before);
    println!(
        "acquire and release, token at home    {ns:6.0} ns, {:.1} lookups of {lookup_ns:.0} ns, {:.2} million a second",
        ns / lookup_ns,
        1e3 / ns,
    );
    println!("memory that is left after {TIMES} of them: {grown} bytes");
}

/// The resident memory of this process, as the system counts it.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm");
    let pages = pages.ok().and_then(|text| text.split(' ').nth(1)?.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}

/// The memory of locks that were used once and are idle.
fn memory() {
    const LOCKS: usize = 1_000_000;
    let mut cluster = Cluster::new(1);
    let (before, resident_before) = (ALLOCATOR.allocated(), resident());
    for number in 0..LOCKS {
        let number = cluster.acquire(0, name(number));
        cluster.release(0, number);
        if number.is_multiple_of(1000) {
            let message =
                ToMember::KeepAlive { sent_ns: cluster.now, first: false, settled: number, generation: None };
            cluster.happens(0, Event::Client(Cluster::session(0), Proof::default(), message));
        }
    }
    let bytes = (ALLOCATOR.allocated() - before) as f64 / LOCKS as f64;
    let resident = (resident() - resident_before) as f64 / LOCKS as f64;
    println!(
        "an idle lock among {LOCKS}            {bytes:6.0} bytes, its name of 14 letters included; \
         {resident:.0} as the system counts"
    );
    let frames = cluster.frames;
    cluster.wait(10_000);
    println!("frames in ten seconds without requests: {}", cluster.frames - frames);
}

/// The time from the decision to the start at the last member. Frames arrive at once, so this is the computation of
/// the members.
fn view_change(known: usize, held: usize) {
    let mut cluster = Cluster::new(3);
    for number in 0..known {
        let acquisition = cluster.acquire(number % 2, name(number));
        if number >= held {
            cluster.release(number % 2, acquisition);
        }
    }
    let before = cluster.installed[0];
    // The third member leaves as planned, so the view change waits for no lease.
    cluster.happens(2, Event::Leave { timeout_ns: 0 });
    let mut longest = Duration::ZERO;
    while cluster.installed[0] == before || cluster.installed[1] == before {
        longest = longest.max(timed(|| cluster.wait(10)));
    }
    println!(
        "view change, {held:6} held of {known:7}     {:6.1} ms, {:.2} µs for each that is held",
        longest.as_secs_f64() * 1e3,
        longest.as_secs_f64() * 1e6 / held.max(1) as f64
    );
}

/// The limit of a step.
const LIMIT_MS: f64 = 10.0;

/// Measures the longest step of each kind during a call.
fn longest_steps(name: &str, cluster: &mut Cluster, what: impl FnOnce(&mut Cluster)) {
    cluster.steps = Some(Steps::new());
    what(cluster);
    for (kind, (count, longest, work)) in cluster.steps.take().unwrap_or_default() {
        let ms = longest.as_secs_f64() * 1e3;
        let verdict = if ms <= LIMIT_MS { "" } else { "  TOO LONG" };
        println!(
            "{name:28} {kind:26} {count:8} steps, longest {ms:7.2} ms of {LIMIT_MS} ms, {work:5} items{verdict}"
        );
    }
}

/// Three members whose sessions hold `holds` locks.
fn many_holds(holds: u64, sessions: u64) -> Cluster {
    let mut config = Config::new((1..=3).map(MemberId));
    config.is_new = true;
    // Sessions are not kept alive here.
    config.session_ns = Some(1 << 50);
    let mut cluster = Cluster::with(config);
    let session = |number: u64| SessionId { client: 1_000 + number % sessions, number: 0 };
    let member = |number: u64| (number % sessions % 3) as usize;
    for number in 0..sessions {
        let message = ToMember::KeepAlive { sent_ns: 0, first: true, settled: 0, generation: None };
        cluster.happens(member(number), Event::Client(session(number), Proof::default(), message));
    }
    for number in 0..holds {
        let request = LockRequest::exclusive(name(number as usize));
        let message = ToMember::Acquire { number: number / sessions, settled: 0, request };
        cluster.happens(member(number), Event::Client(session(number), Proof::default(), message));
        if number.is_multiple_of(100_000) {
            cluster.tick(20);
        }
    }
    cluster.tick(500);
    cluster
}

/// No step may take long with many holds and sessions, because other events wait for it.
fn steps() {
    const HOLDS: u64 = 1_000_000;
    let mut cluster = many_holds(HOLDS, 100_000);
    longest_steps("view change", &mut cluster, |cluster| {
        let before = cluster.installed.clone();
        let mut settings = cluster.members[0].settings().clone();
        settings.settle_ns += MS;
        cluster.happens(0, Event::Change(settings));
        cluster.tick(100);
        assert!(cluster.installed.iter().zip(&before).all(|(now, before)| now > before));
    });
    longest_steps("survey", &mut cluster, |cluster| {
        cluster.happens(1, Event::Query(1, Query::ALL));
        cluster.tick(20);
    });
    longest_steps("planned leave", &mut cluster, |cluster| {
        let before = cluster.installed[0];
        cluster.happens(2, Event::Leave { timeout_ns: 0 });
        while cluster.installed[0] == before {
            cluster.tick(10);
        }
    });
    drop(cluster);
    let mut cluster = many_holds(HOLDS, 1);
    longest_steps("end of one session", &mut cluster, |cluster| {
        let session = SessionId { client: 1_000, number: 0 };
        cluster.happens(0, Event::Client(session, Proof::default(), ToMember::Close));
        cluster.tick(100);
        assert!(cluster.members[0].table(cluster.now).is_empty());
    });
}

fn main() {
    if std::env::args().any(|arg| arg == "steps") {
        return steps();
    }
    let lookup_ns = lookup_ns();
    speed(lookup_ns);
    memory();
    for (known, held) in
        [(10_000, 10_000), (100_000, 10_000), (1_000_000, 10_000), (100_000, 100_000), (1_000_000, 100_000)]
    {
        view_change(known, held);
    }
    steps();
}
