//! Members that receive invalid frames: with flipped bits, of other views and incarnations, duplicated, reordered,
//! and random bytes.
//!
//! No algorithm may make a member panic, loop forever, or grow without bound. Mutual exclusion is not checked here:
//! no member can detect that another one lies about a token.

use lockkeeper_core::any::{self, AnyMessage, AnySite};
use lockkeeper_member::{
    Body, Config, Event, Frame, LockMessage, LockMode, LockName, LockRequest, Member, MemberId, Node, Note,
    Out, PortEvent, PortRequest, Proof, Query, SessionId, Tag, ToMember,
};
use peak_alloc::PeakAlloc;
use std::collections::VecDeque;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const MS: u64 = 1_000_000;
const MEMBERS: u32 = 3;
/// Number of real frames that are kept to be damaged and repeated.
const KEPT: usize = 2_000;

/// The generator xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// A small cluster, and an attacker that damages the frames between its members.
struct Hostile {
    now: u64,
    random: Random,
    /// Whether frames are delivered without damage.
    honest: bool,
    members: Vec<Member<AnySite>>,
    incarnations: u64,
    config: Config,
    /// Encoded frames that members sent.
    real: Vec<Vec<u8>>,
    refused: u64,
    damaged: u64,
    todo: VecDeque<(usize, Event<AnyMessage>)>,
    out: Out<AnyMessage>,
}

impl Hostile {
    fn new(algorithm: &str, seed: u64) -> Self {
        let mut config = Config::new((1..=MEMBERS).map(MemberId));
        config.is_new = true;
        config.most_locks = 600;
        config.cluster.algorithm = vec![(any::ALGORITHM.into(), algorithm.into())];
        let member = |id| Member::new(Node { id: MemberId(id), incarnation: 1 }, config.clone(), 0).unwrap();
        let members = (1..=MEMBERS).map(member).collect();
        let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut hostile = Self {
            honest: true,
            now: 0,
            random,
            members,
            incarnations: 1,
            config,
            real: Vec::new(),
            refused: 0,
            damaged: 0,
            todo: VecDeque::new(),
            out: Out::default(),
        };
        hostile.begin();
        hostile
    }

    /// Starts all members, without damage, until the first view runs.
    fn begin(&mut self) {
        self.honest = true;
        self.todo.clear();
        for id in 1..=MEMBERS {
            let node = Node { id: MemberId(id), incarnation: self.incarnations };
            self.members[id as usize - 1] = Member::new(node, self.config.clone(), self.now).unwrap();
        }
        self.wait(10);
        self.todo.push_back((0, Event::Port(PortEvent::Leading { term: 1 })));
        for member in 0..self.members.len() {
            self.todo.push_back((member, Event::Port(PortEvent::Leader(Some(MemberId(1))))));
        }
        self.settle();
        for _ in 0..300 {
            self.wait(10);
        }
        assert!(
            self.members.iter().all(|member| member.running().is_some()),
            "the first view has not started"
        );
        self.honest = false;
    }

    fn wait(&mut self, ms: u64) {
        self.now += ms * MS;
        for member in 0..self.members.len() {
            self.todo.push_back((member, Event::Tick));
        }
        self.settle();
    }

    /// Handles all events that follow, up to a bound: forged tokens may circulate forever.
    fn settle(&mut self) {
        for _ in 0..5_000 {
            let Some((member, event)) = self.todo.pop_front() else { return };
            self.happens(member, event);
        }
        self.todo.clear();
    }

    fn happens(&mut self, member: usize, event: Event<AnyMessage>) {
        let (now, mut out) = (self.now, std::mem::take(&mut self.out));
        self.members[member].handle(now, event, &mut out);
        assert!(out.frames.len() < 20_000, "one event caused {} frames", out.frames.len());
        for frame in out.frames.drain(..) {
            self.keep(&frame);
            let frame = self.on_its_way(frame);
            let to = frame.to.0.wrapping_sub(1) as usize;
            if to < self.members.len() {
                self.todo.push_back((to, Event::Frame(frame)));
            }
        }
        for request in out.port.drain(..) {
            match request {
                PortRequest::Propose(view) => {
                    let decided = |member| {
                        (member, Event::Port(PortEvent::Decided { view: view.clone(), adopted: Vec::new() }))
                    };
                    self.todo.extend((0..MEMBERS as usize).map(decided));
                }
                PortRequest::Confirm { number, .. } => {
                    self.todo.push_back((member, Event::Port(PortEvent::Confirmed { number })));
                }
                PortRequest::StepDown { .. } | PortRequest::Write(_) => {}
            }
        }
        for note in out.notes.drain(..) {
            match note {
                Note::Refused { .. } => self.refused += 1,
                // As the driver's duties require.
                Note::Excluded => {
                    self.incarnations += 1;
                    let node = Node { id: MemberId(member as u32 + 1), incarnation: self.incarnations };
                    self.members[member] = Member::new(node, self.config.clone(), now).unwrap();
                }
                _ => {}
            }
        }
        self.out = out;
    }

    /// Sometimes replaces the payload of a link by another message, under the same number, so that it is delivered.
    fn on_its_way(&mut self, mut frame: Frame<AnyMessage>) -> Frame<AnyMessage> {
        if self.honest || self.random.below(4) > 0 {
            return frame;
        }
        let Body::Link { packet, .. } = &mut frame.body else { return frame };
        let Some((_, message)) = &mut packet.payload else { return frame };
        let bytes = postcard::to_stdvec(message).unwrap();
        let bytes = self.damage(bytes);
        if let Ok((mut other, _)) = postcard::take_from_bytes::<LockMessage<AnyMessage>>(&bytes) {
            if self.random.below(4) > 0 {
                other.lock = message.lock.clone();
            }
            *message = other;
            self.damaged += 1;
        }
        frame
    }

    fn keep(&mut self, frame: &Frame<AnyMessage>) {
        let bytes = postcard::to_stdvec(frame).unwrap();
        if bytes.len() > 4_000 {
            return;
        }
        if self.real.len() < KEPT {
            self.real.push(bytes);
        } else {
            let place = self.random.below(KEPT);
            self.real[place] = bytes;
        }
    }

    fn real(&mut self) -> Vec<u8> {
        let place = self.random.below(self.real.len().max(1));
        self.real.get(place).cloned().unwrap_or_default()
    }

    /// Damages encoded bytes.
    fn damage(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        match self.random.below(5) {
            // Flipped bits.
            0 | 1 => {
                for _ in 0..=self.random.below(4) {
                    let place = self.random.below(bytes.len().max(1));
                    let bit = 1 << self.random.below(8);
                    bytes.get_mut(place).into_iter().for_each(|byte| *byte ^= bit);
                }
            }
            // Large numbers: a variable-length integer of up to ten bytes.
            2 => {
                let place = self.random.below(bytes.len().max(1)).min(bytes.len());
                let end = (place + 1).min(bytes.len());
                let largest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
                let smaller = 1 + self.random.below(9);
                let mut number = largest[..smaller].to_vec();
                number.push(self.random.below(2) as u8);
                bytes.splice(place..end, number);
            }
            // The beginning of this frame and the end of another one.
            3 => {
                let other = self.real();
                let cut = self.random.below(bytes.len().max(1));
                bytes.truncate(cut);
                bytes.extend(other.into_iter().skip(cut));
            }
            _ => {
                let length = self.random.below(60);
                bytes = (0..length).map(|_| self.random.next() as u8).collect();
            }
        }
        bytes
    }

    /// Delivers a damaged frame. As from a real driver, it can be decoded, and its sender is authenticated.
    fn deceive(&mut self, victim: usize) {
        let mut bytes = self.real();
        // A quarter of the frames are real, but late or duplicated.
        if self.random.below(4) > 0 {
            bytes = self.damage(bytes);
        }
        let Ok((mut frame, _)) = postcard::take_from_bytes::<Frame<AnyMessage>>(&bytes) else { return };
        let me = self.members[victim].node();
        let other = (victim + 1 + self.random.below(MEMBERS as usize - 1)) % MEMBERS as usize;
        frame.from.id = MemberId(other as u32 + 1);
        if self.random.below(8) > 0 {
            // Most frames must pass the first checks to do any harm.
            frame.to = me.id;
            frame.incarnation = (self.random.below(2) == 0).then_some(me.incarnation);
            frame.from = self.members[other].node();
            let running = self.members[victim].running().map_or(0, |view| view.epoch);
            if let Body::Link { epoch, .. } | Body::Start { epoch, .. } | Body::Report { epoch, .. } =
                &mut frame.body
                && self.random.below(4) > 0
            {
                *epoch = running;
            }
        }
        self.damaged += 1;
        self.todo.push_back((victim, Event::Frame(frame)));
    }

    fn client(&mut self, member: usize) {
        let number = self.random.next() % 4;
        let session = SessionId { client: self.random.next() % 4, number: 0 };
        let mode = match self.random.below(6) {
            0 | 1 => LockMode::Shared,
            2 => LockMode::Permit { of: self.random.below(5) as u32 },
            3 if self.random.below(20) == 0 => LockMode::Permit { of: u32::MAX },
            _ => LockMode::Exclusive,
        };
        let name = match self.random.below(200) {
            0 => "x".repeat(100_000),
            other => format!("lock {}", other % 5),
        };
        let request = LockRequest {
            mode,
            timeout_ns: [None, Some(0), Some(u64::MAX), Some(MS)][self.random.below(4)],
            longest_hold_ns: [None, Some(0), Some(u64::MAX), Some(MS)][self.random.below(4)],
            reentrant: self.random.below(2) == 0,
            delegated_entries: [0, 3, u32::MAX][self.random.below(3)],
            tag: Tag::default(),
            ..LockRequest::exclusive(LockName::new(name))
        };
        let number = number + self.now / (500 * MS) * 4;
        let message = match self.random.below(9) {
            8 => ToMember::InUse { number, fence: None, tag: Tag::default() },
            0 => ToMember::Close,
            1 | 2 => ToMember::Release { number },
            3 => ToMember::KeepAlive { sent_ns: u64::MAX, first: false, settled: number, generation: None },
            4 => ToMember::KeepAlive { sent_ns: 0, first: true, settled: 0, generation: None },
            _ => ToMember::Acquire { number, settled: 0, request },
        };
        self.todo.push_back((member, Event::Client(session, Proof::default(), message)));
    }

    fn run(&mut self, steps: usize) {
        let mut stuck = 0;
        for _ in 0..steps {
            // A member that has accepted a forged view waits for its start, and handles no further messages: restart
            // the cluster.
            stuck = if self.members.iter().all(|member| member.running().is_some()) { 0 } else { stuck + 1 };
            if stuck > 200 {
                self.incarnations += 1;
                self.begin();
            }
            let member = self.random.below(self.members.len());
            match self.random.below(10) {
                0 | 1 => self.client(member),
                2 => self.wait(1 + member as u64 * 7),
                3 if self.random.below(10) == 0 => self.todo.push_back((member, Event::Query(1, Query::ALL))),
                _ => self.deceive(member),
            }
            self.settle();
        }
    }
}

/// A single test, because it measures the memory of the whole process.
#[test]
fn damaged_frames_cause_neither_panics_nor_unbounded_memory() {
    let steps = std::env::var("LOCKKEEPER_STEPS").ok().and_then(|text| text.parse().ok()).unwrap_or(3_000);
    let seeds: u64 = std::env::var("LOCKKEEPER_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    for slug in any::ALL.iter().map(|about| about.slug) {
        for seed in 1..=seeds {
            MEMORY.reset_peak_usage();
            let before = MEMORY.current_usage();
            let mut hostile = Hostile::new(slug, seed);
            hostile.run(steps);
            let Hostile { damaged, refused, .. } = hostile;
            assert!(damaged > steps as u64 / 8, "{slug}: {damaged} damaged frames");
            assert!(refused > 0, "{slug}, seed {seed}: no frame was refused");
            let grown = MEMORY.peak_usage().saturating_sub(before);
            assert!(grown < 64 << 20, "{slug}, seed {seed}: {grown} bytes");
        }
    }
}
