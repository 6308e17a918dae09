//! What a member costs: `cargo bench -p lockkeeper-member`.
//!
//! Time is told beside the time of a lookup in a `BTreeMap` of a thousand names, in the same run; memory as the allocator counts it.

use lockkeeper_core::Protocol;
use lockkeeper_core::algorithms::naimi_trehel::NaimiTrehel;
use lockkeeper_member::{
    Config, Event, LockName, Member, MemberId, Node, Note, Out, PortEvent, PortRequest, SessionId, ToMember,
    Wish,
};
use peak_alloc::PeakAlloc;
use std::collections::{BTreeMap, VecDeque};
use std::hint::black_box;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

type Happening = Event<<NaimiTrehel as Protocol>::Message>;

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
}

impl Cluster {
    fn new(members: u32) -> Self {
        let config = Config::new((1..=members).map(MemberId));
        let member = |id| Member::new(Node { id: MemberId(id), incarnation: 1 }, config.clone(), 0);
        let members: Vec<_> = (1..=members).map(|id| member(id).expect("good settings")).collect();
        let installed = vec![0; members.len()];
        let mut cluster = Self { now: 0, members, out: Out::default(), installed, frames: 0, number: 0 };
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

    fn happens(&mut self, member: usize, event: Happening) {
        let mut todo = VecDeque::from([(member, event)]);
        while let Some((member, event)) = todo.pop_front() {
            self.members[member].handle(self.now, event, &mut self.out);
            self.frames += self.out.frames.len() as u64;
            let frames = self.out.frames.drain(..);
            todo.extend(frames.map(|frame| (frame.to.0 as usize - 1, Event::Frame(frame))));
            for request in self.out.port.drain(..) {
                match request {
                    PortRequest::Propose(view) => {
                        let decided = |member| (member, Event::Port(PortEvent::Decided(view.clone())));
                        todo.extend((0..self.members.len()).map(decided));
                    }
                    PortRequest::Confirm { question, .. } => {
                        todo.push_back((member, Event::Port(PortEvent::Confirmed { question })));
                    }
                    PortRequest::StepDown { .. } => {}
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
        let said = ToMember::KeepAlive { sent_ns: self.now, first, settled: 0 };
        self.happens(member, Event::Client(Self::session(member), said));
    }

    /// Time passes, and every session is kept.
    fn wait(&mut self, ms: u64) {
        for _ in 0..ms / 10 {
            self.now += 10 * MS;
            for member in 0..self.members.len() {
                self.happens(member, Event::Tick);
                self.keep_alive(member, false);
            }
        }
    }

    fn acquire(&mut self, member: usize, lock: LockName) -> u64 {
        self.number += 1;
        let said = ToMember::Acquire { number: self.number, settled: 0, wish: Wish::of(lock) };
        self.happens(member, Event::Client(Self::session(member), said));
        self.number
    }

    fn release(&mut self, member: usize, number: u64) {
        self.happens(member, Event::Client(Self::session(member), ToMember::Release { number }));
    }
}

fn name(number: usize) -> LockName {
    LockName::new(format!("orders/{number:07}"))
}

/// The time that this program has had of its core, where the system tells it: others may want the core too.
fn core_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// How long something takes, of the core's time if that is known.
fn timed(what: impl FnOnce()) -> Duration {
    let (begin, core) = (Instant::now(), core_time());
    what();
    let elapsed = begin.elapsed();
    core.zip(core_time()).map_or(elapsed, |(begin, end)| end - begin)
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
    let before = ALLOCATOR.current_usage();
    let Cluster { now, members, out, .. } = &mut cluster;
    let mut granted = 0;
    let time = timed(|| {
        for at in 0..u64::from(TIMES) {
            let (number, lock) = (first + at, locks[at as usize * 7 % 1000].clone());
            let said = ToMember::Acquire { number, settled: number, wish: Wish::of(lock) };
            members[0].handle(*now, Event::Client(session, said), out);
            granted += out.clients.len();
            members[0].handle(*now, Event::Client(session, ToMember::Release { number }), out);
            assert!(out.frames.is_empty());
        }
    });
    let ns = per(time, TIMES);
    assert_eq!((granted, cluster.frames), (TIMES as usize, frames));
    let grown = ALLOCATOR.current_usage().saturating_sub(before);
    println!(
        "acquire and release, token at home    {ns:6.0} ns, {:.1} lookups of {lookup_ns:.0} ns, {:.2} million a second",
        ns / lookup_ns,
        1e3 / ns,
    );
    println!("memory that is left after {TIMES} of them: {grown} bytes");
}

/// What the system says that this process has in memory.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm");
    let pages = pages.ok().and_then(|text| text.split(' ').nth(1)?.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}

/// Locks that were used once and are idle.
fn memory() {
    const LOCKS: usize = 1_000_000;
    let mut cluster = Cluster::new(1);
    let (before, resident_before) = (ALLOCATOR.current_usage(), resident());
    for number in 0..LOCKS {
        let number = cluster.acquire(0, name(number));
        cluster.release(0, number);
        if number.is_multiple_of(1000) {
            let said = ToMember::KeepAlive { sent_ns: cluster.now, first: false, settled: number };
            cluster.happens(0, Event::Client(Cluster::session(0), said));
        }
    }
    let bytes = (ALLOCATOR.current_usage() - before) as f64 / LOCKS as f64;
    let resident = (resident() - resident_before) as f64 / LOCKS as f64;
    println!(
        "an idle lock among {LOCKS}            {bytes:6.0} bytes, its name of 14 letters included; {resident:.0} as the system counts"
    );
    let frames = cluster.frames;
    cluster.wait(10_000);
    println!("frames in ten seconds in which nobody wants them: {}", cluster.frames - frames);
}

/// From the decision to the start at the last member: frames arrive at once, so this is what the members compute.
fn view_change(known: usize, held: usize) {
    let mut cluster = Cluster::new(3);
    for number in 0..known {
        let acquisition = cluster.acquire(number % 2, name(number));
        if number >= held {
            cluster.release(number % 2, acquisition);
        }
    }
    let before = cluster.installed[0];
    // The third member leaves, which nobody has to wait for.
    cluster.happens(2, Event::Leave { patience_ns: 0 });
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

fn main() {
    let lookup_ns = lookup_ns();
    speed(lookup_ns);
    memory();
    for (known, held) in
        [(10_000, 10_000), (100_000, 10_000), (1_000_000, 10_000), (100_000, 100_000), (1_000_000, 100_000)]
    {
        view_change(known, held);
    }
}
