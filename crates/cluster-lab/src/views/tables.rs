//! Numbers members, frames and views, and caches the steps of members, so that each step is computed once.

use super::bounds::{Bounds, TTL_NS, is_reader};
use foldhash::fast::{FixedState, FoldHasher};
use hashbrown::HashMap;
use lockkeeper_core::MutualExclusion;
use lockkeeper_lab::checker::explore::intern::Interner;
use lockkeeper_member::{
    BugSwitch, Config, Event, Frame, HoldTable, LockMode, LockName, LockRequest, Member, MemberId, Node,
    Note, Out, PortEvent, PortRequest, Proof, RecordOutcome, RecordWrite, Report, SessionId, SettingsError,
    ToClient, ToMember, View,
};
use lockkeeper_session::ClientSession;
use serde::Serialize;
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
    /// The view with this number is decided, and this is the table at its position.
    Decided(u32, u32),
    /// The write with this number is applied, with these outcomes in base 4.
    Written(u32, u32),
    /// This message of the [`Holder`](super::Holder) arrives.
    Holder(u32),
    /// The member begins a planned leave.
    Leaves,
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
    /// Its requests to the voters, except for its writes to the table.
    pub port: Vec<PortRequest>,
    /// Its writes to the table.
    pub writes: Vec<u32>,
    /// Its messages to the [`Holder`](super::Holder).
    pub to_holder: Vec<u32>,
    /// The fences of its grants: the epoch, and the whole number.
    pub fences: Vec<(u64, u64)>,
    /// The notes of the step.
    pub notes: Vec<Note>,
}

/// All member states, frames, views and steps that the search has met.
pub struct Tables<P: MutualExclusion> {
    config: Config<Option<BugSwitch>>,
    /// The members whose clients request shared mode, one bit each.
    readers: u32,
    /// Whether the clients of the members are in their processes.
    residents: bool,
    members: Vec<Member<P, Option<BugSwitch>>>,
    by_text: HashMap<u128, u32, FixedState>,
    frames: Vec<Frame<Message<P>>>,
    by_bytes: HashMap<Vec<u8>, u32, FixedState>,
    views: Interner<View>,
    reports: Vec<Report>,
    hold_tables: ByBytes<HoldTable>,
    writes: ByBytes<RecordWrite>,
    to_holder: ByBytes<ToClient>,
    of_holder: ByBytes<ToMember>,
    holders: Vec<HolderSession>,
    holders_by_text: HashMap<u128, u32, FixedState>,
    steps: HashMap<(u32, u64, Cause), u32, FixedState>,
    stepped: Vec<Stepped>,
    out: Out<Message<P>>,
}

impl<P: MutualExclusion> Tables<P> {
    /// Creates empty tables.
    pub fn new(bounds: &Bounds, bug: Option<BugSwitch>) -> Self {
        Self {
            config: bounds.config(bug),
            readers: bounds.readers,
            residents: bounds.holder.is_some(),
            members: Vec::new(),
            by_text: HashMap::default(),
            frames: Vec::new(),
            by_bytes: HashMap::default(),
            views: Interner::default(),
            reports: Vec::new(),
            hold_tables: ByBytes::default(),
            writes: ByBytes::default(),
            to_holder: ByBytes::default(),
            of_holder: ByBytes::default(),
            holders: Vec::new(),
            holders_by_text: HashMap::default(),
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
        let new = self.members.len() as u32;
        let number = *self.by_text.entry(Fingerprint::of(&member)).or_insert(new);
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
        match cause {
            Cause::Opens if self.residents => {
                let opened = member.open_resident(now, self.session(member.node()));
                opened.expect("a new incarnation has no session");
                out.clear();
            }
            cause => member.handle(now, self.event(member.node(), cause), &mut out),
        }
        let fence = |(session, message): &(SessionId, ToClient)| match message {
            ToClient::Granted { fence: Some(fence), .. } if *session != HOLDER => {
                Some((fence.epoch(), fence.number()))
            }
            _ => None,
        };
        let (mut port, mut writes) = (Vec::new(), Vec::new());
        for request in out.port.drain(..) {
            match request {
                PortRequest::Write(write) => writes.push(self.writes.number(write)),
                request => port.push(request),
            }
        }
        let to_holder = out.clients.iter().filter(|(session, _)| *session == HOLDER);
        let stepped = Stepped {
            to_holder: to_holder.map(|(_, message)| self.to_holder.number(message.clone())).collect(),
            writes,
            port,
            member: self.number(member),
            frames: out.frames.drain(..).map(|frame| self.number_of_frame(frame)).collect(),
            fences: out.clients.iter().filter_map(fence).collect(),
            notes: std::mem::take(&mut out.notes),
        };
        self.out = out;
        stepped
    }

    /// The session of the client of a member. With a [`Holder`](super::Holder), silent sessions expire, so the other
    /// clients are in the processes of their members.
    fn session(&self, node: Node) -> SessionId {
        let resident = if self.residents { SessionId::RESIDENT } else { 0 };
        SessionId { client: u64::from(node.id.0) | resident, number: node.incarnation }
    }

    fn event(&self, node: Node, cause: Cause) -> Event<Message<P>> {
        let session = self.session(node);
        match cause {
            Cause::Tick => Event::Tick,
            Cause::Frame(number) => Event::Frame(self.frame(number).clone()),
            Cause::Decided(view, table) => {
                let view = self.view(view).clone();
                // Only the coordinator needs the records.
                let coordinates = view.coordinator.id == node.id;
                let adopted = if coordinates { self.hold_tables.get(table).adopted() } else { Vec::new() };
                Event::Port(PortEvent::Decided { view, adopted })
            }
            Cause::Written(write, outcomes) => {
                let RecordWrite { home, sequence, ref changes, .. } = *self.writes.get(write);
                let outcomes = outcomes_of(outcomes, changes.len());
                Event::Port(PortEvent::Written { home, sequence, outcomes })
            }
            Cause::Holder(message) => {
                Event::Client(HOLDER, HOLDER_PROOF, self.of_holder.get(message).clone())
            }
            Cause::Leaves => Event::Leave { timeout_ns: 0 },
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

/// The session of the [`Holder`](super::Holder), and its proof.
const HOLDER: SessionId = SessionId { client: 100, number: 1 };
const HOLDER_PROOF: Proof = Proof([7; 16]);

/// The client's half of that session.
pub type HolderSession = ClientSession<Option<BugSwitch>>;

/// The session, writes, tables and messages of the [`Holder`](super::Holder).
impl<P: MutualExclusion> Tables<P> {
    /// The holder before it has requested the lock, and the number of its acquisition.
    pub fn new_holder(&mut self) -> (u32, u64) {
        let mut holder = HolderSession::with_bugs(HOLDER, self.config.bugs);
        let number =
            holder.acquire(LockRequest { ttl_ns: TTL_NS, ..LockRequest::exclusive(LockName::new("lock")) });
        (self.number_of_holder(holder), number)
    }

    /// The state of the holder with this number.
    pub fn holder(&self, number: u32) -> &HolderSession {
        &self.holders[number as usize]
    }

    /// The number of a state of the holder.
    pub fn number_of_holder(&mut self, holder: HolderSession) -> u32 {
        let new = self.holders.len() as u32;
        let number = *self.holders_by_text.entry(Fingerprint::of(&holder)).or_insert(new);
        if number == new {
            self.holders.push(holder);
        }
        number
    }

    /// The message to the holder with this number.
    pub fn message_to_holder(&self, number: u32) -> &ToClient {
        self.to_holder.get(number)
    }

    /// The number of a message of the holder.
    pub fn message_of_holder(&mut self, message: ToMember) -> u32 {
        self.of_holder.number(message)
    }

    /// The table with this number.
    pub fn hold_table(&self, number: u32) -> &HoldTable {
        self.hold_tables.get(number)
    }

    /// The number of the table before the first record.
    pub fn empty_hold_table(&mut self) -> u32 {
        self.hold_tables.number(HoldTable::default())
    }

    /// The write with this number.
    pub fn write(&self, number: u32) -> &RecordWrite {
        self.writes.get(number)
    }

    /// The table after a decided view.
    pub fn table_after_view(&mut self, table: u32, view: u32) -> u32 {
        let mut next = self.hold_tables.get(table).clone();
        next.apply_view_with(self.views.get(view), self.config.bugs);
        self.hold_tables.number(next)
    }

    /// The table after a write, and the outcomes in base 4.
    pub fn table_after_write(&mut self, table: u32, write: u32, newest: u32) -> (u32, u32) {
        let mut next = self.hold_tables.get(table).clone();
        let outcomes = next.apply_with(self.writes.get(write), self.views.get(newest), self.config.bugs);
        (self.hold_tables.number(next), code_of(&outcomes))
    }
}

const OUTCOMES: [RecordOutcome; 3] = [RecordOutcome::Recorded, RecordOutcome::Ended, RecordOutcome::Refused];

/// The outcomes of a write as one number: two bits for each change. A write here has one or two changes.
fn code_of(outcomes: &[RecordOutcome]) -> u32 {
    let code = |outcome| OUTCOMES.iter().position(|known| known == outcome).unwrap_or(0) as u32;
    outcomes.iter().rev().fold(0, |sum, outcome| sum * 4 + code(outcome))
}

fn outcomes_of(code: u32, changes: usize) -> Vec<RecordOutcome> {
    (0..changes).map(|change| OUTCOMES[(code >> (2 * change) & 3) as usize]).collect()
}

/// Numbers values by their encoding.
struct ByBytes<T> {
    values: Vec<T>,
    numbers: HashMap<Vec<u8>, u32, FixedState>,
}

impl<T> Default for ByBytes<T> {
    fn default() -> Self {
        Self { values: Vec::new(), numbers: HashMap::default() }
    }
}

impl<T: Serialize> ByBytes<T> {
    fn number(&mut self, value: T) -> u32 {
        let bytes = postcard::to_allocvec(&value).expect("a value can be encoded into memory");
        let new = self.values.len() as u32;
        let number = *self.numbers.entry(bytes).or_insert(new);
        if number == new {
            self.values.push(value);
        }
        number
    }

    fn get(&self, number: u32) -> &T {
        &self.values[number as usize]
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
    /// The hash of the `Debug` output of a value.
    fn of(value: &impl fmt::Debug) -> u128 {
        let mut text = Self::default();
        write!(text, "{value:?}").expect("a hash takes everything");
        text.finish()
    }

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
