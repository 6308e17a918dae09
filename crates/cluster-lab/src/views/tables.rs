//! Numbers members, frames and views, and caches the steps of members, so that each step is computed once.

use super::bounds::is_reader;
use foldhash::fast::{FixedState, FoldHasher};
use hashbrown::HashMap;
use lockkeeper_core::MutualExclusion;
use lockkeeper_lab::checker::explore::intern::Interner;
use lockkeeper_member::{
    BugSwitch, Config, Event, Frame, LockMode, LockName, LockRequest, Member, MemberId, Node, Note, Out,
    PortEvent, PortRequest, Proof, Report, SessionId, SettingsError, ToClient, ToMember, View,
};
use std::fmt::{self, Write};
use std::hash::{BuildHasher, Hasher};

/// A message of the algorithm.
pub type Message<P> = <P as lockkeeper_core::Protocol>::Message;

/// An event at a member, in terms of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// A unit of time has passed.
    Tick,
    /// The frame with this number arrives.
    Frame(u32),
    /// The view with this number is decided.
    Decided(u32),
    /// The member leads in this term.
    Leading(u64),
    /// The member no longer leads.
    Deposed,
    /// The voters confirm that the member leads, in reply to this query.
    Confirmed(u64),
    /// The member learns which member leads.
    Leader(usize),
    /// Its client opens a session.
    Opens,
    /// Its client requests the lock, under this number.
    Requests(u64),
    /// Its client releases the acquisition with this number.
    Releases(u64),
}

/// The result of a member's step.
#[derive(Clone, Debug)]
pub struct Stepped {
    /// The number of the member's state after the step.
    pub member: u32,
    /// The frames that it sent.
    pub frames: Vec<u32>,
    /// Its requests to the voters.
    pub port: Vec<PortRequest>,
    /// The fences of its grants: the epoch, and the whole number.
    pub fences: Vec<(u64, u64)>,
    /// Its notes.
    pub notes: Vec<Note>,
}

/// All member states, frames, views and steps that the search has met.
pub struct Tables<P: MutualExclusion> {
    config: Config<Option<BugSwitch>>,
    /// The members whose clients request shared mode, one bit each.
    readers: u32,
    members: Vec<Member<P, Option<BugSwitch>>>,
    by_text: HashMap<u128, u32, FixedState>,
    frames: Vec<Frame<Message<P>>>,
    by_bytes: HashMap<Vec<u8>, u32, FixedState>,
    views: Interner<View>,
    reports: Vec<Report>,
    steps: HashMap<(u32, u64, Cause), u32, FixedState>,
    stepped: Vec<Stepped>,
    out: Out<Message<P>>,
}

impl<P: MutualExclusion> Tables<P> {
    /// Creates empty tables.
    pub fn new(config: Config<Option<BugSwitch>>, readers: u32) -> Self {
        Self {
            config,
            readers,
            members: Vec::new(),
            by_text: HashMap::default(),
            frames: Vec::new(),
            by_bytes: HashMap::default(),
            views: Interner::default(),
            reports: Vec::new(),
            steps: HashMap::default(),
            stepped: Vec::new(),
            out: Out::default(),
        }
    }

    /// Begins an incarnation of a member.
    pub fn begin(&mut self, who: usize, incarnation: u64, now: u64) -> Result<u32, SettingsError> {
        let node = Node { id: MemberId(who as u32 + 1), incarnation };
        let member = Member::new(node, self.config.clone(), now)?;
        Ok(self.number(member))
    }

    /// The member state with this number.
    pub fn member(&self, number: u32) -> &Member<P, Option<BugSwitch>> {
        &self.members[number as usize]
    }

    /// The frame with this number.
    pub fn frame(&self, number: u32) -> &Frame<Message<P>> {
        &self.frames[number as usize]
    }

    /// The view with this number.
    pub fn view(&self, number: u32) -> &View {
        self.views.get(number)
    }

    /// The number of a view.
    pub fn number_of_view(&mut self, view: View) -> u32 {
        self.views.number(view)
    }

    /// The number of a report.
    pub fn number_of_report(&mut self, report: &Report) -> u32 {
        let known = self.reports.iter().position(|known| known == report);
        known.unwrap_or_else(|| {
            self.reports.push(report.clone());
            self.reports.len() - 1
        }) as u32
    }

    /// The number of a member state. Two states are equal if all of their content is, clocks included. They are
    /// compared by a 128-bit hash of their `Debug` output, since `Member` has no `Eq`, and needs none for any other
    /// purpose.
    fn number(&mut self, member: Member<P, Option<BugSwitch>>) -> u32 {
        let mut text = Fingerprint::default();
        write!(text, "{member:?}").expect("a hash takes everything");
        let new = self.members.len() as u32;
        let number = *self.by_text.entry(text.finish()).or_insert(new);
        if number == new {
            self.members.push(member);
        }
        number
    }

    fn number_of_frame(&mut self, frame: Frame<Message<P>>) -> u32 {
        let bytes = postcard::to_allocvec(&frame).expect("a frame can be written");
        let new = self.frames.len() as u32;
        let number = *self.by_bytes.entry(bytes).or_insert(new);
        if number == new {
            self.frames.push(frame);
        }
        number
    }

    /// The result of an event at a member state at this time.
    pub fn step(&mut self, member: u32, now: u64, cause: Cause) -> &Stepped {
        let known = self.steps.get(&(member, now, cause)).copied();
        let number = known.unwrap_or_else(|| {
            let stepped = self.take(member, now, cause);
            self.stepped.push(stepped);
            let number = self.stepped.len() as u32 - 1;
            self.steps.insert((member, now, cause), number);
            number
        });
        &self.stepped[number as usize]
    }

    fn take(&mut self, member: u32, now: u64, cause: Cause) -> Stepped {
        let mut member = self.members[member as usize].clone();
        let mut out = std::mem::take(&mut self.out);
        member.handle(now, self.event(member.node(), cause), &mut out);
        let fence = |(_, message): &(SessionId, ToClient)| match message {
            ToClient::Granted { fence: Some(fence), .. } => Some((fence.epoch(), fence.number())),
            _ => None,
        };
        let stepped = Stepped {
            member: self.number(member),
            frames: out.frames.drain(..).map(|frame| self.number_of_frame(frame)).collect(),
            port: std::mem::take(&mut out.port),
            fences: out.clients.iter().filter_map(fence).collect(),
            notes: std::mem::take(&mut out.notes),
        };
        self.out = out;
        stepped
    }

    fn event(&self, node: Node, cause: Cause) -> Event<Message<P>> {
        let session = SessionId { client: node.id.0.into(), number: node.incarnation };
        match cause {
            Cause::Tick => Event::Tick,
            Cause::Frame(number) => Event::Frame(self.frame(number).clone()),
            Cause::Decided(view) => {
                Event::Port(PortEvent::Decided { view: self.view(view).clone(), adopted: Vec::new() })
            }
            Cause::Leading(term) => Event::Port(PortEvent::Leading { term }),
            Cause::Deposed => Event::Port(PortEvent::Deposed),
            Cause::Confirmed(number) => Event::Port(PortEvent::Confirmed { number }),
            Cause::Leader(who) => Event::Port(PortEvent::Leader(Some(MemberId(who as u32 + 1)))),
            Cause::Opens => Event::Client(
                session,
                Proof::default(),
                ToMember::KeepAlive { sent_ns: 0, first: true, settled: 0, generation: None },
            ),
            Cause::Requests(number) => {
                let reads = is_reader(self.readers, node.id.0 as usize - 1);
                let mode = if reads { LockMode::Shared } else { LockMode::Exclusive };
                let lock_request = LockRequest { mode, ..LockRequest::exclusive(LockName::new("lock")) };
                Event::Client(
                    session,
                    Proof::default(),
                    ToMember::Acquire { number, settled: 0, request: lock_request },
                )
            }
            Cause::Releases(number) => Event::Client(session, Proof::default(), ToMember::Release { number }),
        }
    }
}

/// A 128-bit hash of a text, computed while the text is written.
struct Fingerprint(FoldHasher<'static>, FoldHasher<'static>);

impl Default for Fingerprint {
    fn default() -> Self {
        Self(FixedState::with_seed(1).build_hasher(), FixedState::with_seed(2).build_hasher())
    }
}

impl Fingerprint {
    fn finish(self) -> u128 {
        u128::from(self.0.finish()) << 64 | u128::from(self.1.finish())
    }
}

impl Write for Fingerprint {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        self.1.write(text.as_bytes());
        Ok(())
    }
}
