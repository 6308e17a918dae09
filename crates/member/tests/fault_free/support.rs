//! The cluster, and requests of its clients.

use lockkeeper_core::algorithms::naimi_trehel::NaimiTrehel;
use lockkeeper_member::{
    Acquisition, BugSwitch, Config, Ended, Event, Fence, HoldTable, LockList, LockMode, LockName,
    LockRequest, MOST_TABLE_BYTES, Member, MemberId, Node, Note, Out, PortEvent, PortRequest, Proof,
    SessionId, ToClient, ToMember, View,
};
use std::collections::VecDeque;

type MemberEvent = Event<<NaimiTrehel as lockkeeper_core::Protocol>::Message>;

pub const MS: u64 = 1_000_000;

pub struct FaultFreeCluster {
    pub now: u64,
    pub members: Vec<Member<NaimiTrehel, Option<BugSwitch>>>,
    pub sent: Vec<(SessionId, ToClient)>,
    pub query_replies: Vec<Vec<(Node, LockList)>>,
    pub views: u64,
    pub frames: u64,
    pub left: Vec<usize>,
    pub steps_down: bool,
    pub decided: Option<View>,
    /// The recorded holds, and the number of writes to them.
    pub table: HoldTable,
    pub most_table_bytes: usize,
    pub writes: u64,
    /// Sessions whose clients send no keep-alives.
    pub silent: Vec<SessionId>,
    /// The most items that one step has touched.
    pub most_work: usize,
    /// Whether long work continues at once, as with a driver.
    pub drains: bool,
    /// Whether a majority confirms the leadership.
    pub voters_answer: bool,
}

impl FaultFreeCluster {
    pub fn new(members: u32, change: impl Fn(&mut Config<Option<BugSwitch>>)) -> Self {
        let mut config = Config::new((1..=members).map(MemberId)).with_bugs(None);
        config.is_new = true;
        change(&mut config);
        let member = |id| {
            Member::new(Node { id: MemberId(id), incarnation: 1 }, config.clone(), 0).expect("good settings")
        };
        let members: Vec<_> = (1..=members).map(member).collect();
        let mut cluster = Self {
            now: 0,
            members,
            sent: vec![],
            query_replies: vec![],
            views: 0,
            frames: 0,
            left: vec![],
            steps_down: false,
            decided: None,
            table: HoldTable::default(),
            most_table_bytes: MOST_TABLE_BYTES,
            writes: 0,
            silent: vec![],
            most_work: 0,
            drains: true,
            voters_answer: true,
        };
        cluster.wait(10);
        cluster.happens(0, Event::Port(PortEvent::Leading { term: 1 }));
        for member in 0..cluster.members.len() {
            cluster.happens(member, Event::Port(PortEvent::Leader(Some(MemberId(1)))));
        }
        cluster.wait(2_000);
        cluster
    }

    pub fn happens(&mut self, member: usize, event: MemberEvent) {
        let mut todo = VecDeque::from([(member, event)]);
        let mut out = Out::default();
        while let Some((member, event)) = todo.pop_front() {
            self.members[member].handle(self.now, event, &mut out);
            self.frames += out.frames.len() as u64;
            self.most_work = self.most_work.max(out.work);
            if self.drains && self.members[member].wake_ns() == 0 {
                todo.push_back((member, Event::Tick));
            }
            todo.extend(out.frames.drain(..).map(|frame| (frame.to.0 as usize - 1, Event::Frame(frame))));
            self.sent.append(&mut out.clients);
            for request in out.port.drain(..) {
                match request {
                    PortRequest::Propose(view) => {
                        self.decided = Some(view.clone());
                        self.table.apply_view(&view);
                        for member in 0..self.members.len() {
                            let coordinates = self.members[member].node() == view.coordinator;
                            let adopted = if coordinates { self.table.adopted() } else { Vec::new() };
                            let decided = PortEvent::Decided { view: view.clone(), adopted };
                            todo.push_back((member, Event::Port(decided)));
                        }
                    }
                    PortRequest::Write(write) => {
                        self.writes += 1;
                        let newest = self.decided.clone().expect("a view is decided");
                        let outcomes = self.table.apply_within(&write, &newest, self.most_table_bytes);
                        let (home, sequence) = (write.home, write.sequence);
                        let written = PortEvent::Written { home, sequence, outcomes };
                        if self.voters_answer {
                            todo.push_back((member, Event::Port(written)));
                        }
                    }
                    PortRequest::StepDown { .. } => self.steps_down = true,
                    PortRequest::Confirm { number, .. } if self.voters_answer => {
                        todo.push_back((member, Event::Port(PortEvent::Confirmed { number })));
                    }
                    PortRequest::Confirm { .. } => {}
                }
            }
            for note in out.notes.drain(..) {
                match note {
                    Note::Started { .. } => self.views += 1,
                    Note::Left => self.left.push(member),
                    Note::Replies(_, replies) => {
                        let tables = replies.into_iter().map(|reply| (reply.node, reply.locks));
                        self.query_replies.push(tables.collect());
                    }
                    _ => {}
                }
            }
        }
    }

    /// Advances time; all sessions are kept alive.
    pub fn wait(&mut self, ms: u64) {
        for _ in 0..ms / 10 {
            self.now += 10 * MS;
            for member in 0..self.members.len() {
                self.happens(member, Event::Tick);
                for session in self.members[member].sessions() {
                    if self.silent.contains(&session) {
                        continue;
                    }
                    self.send(
                        member,
                        session,
                        ToMember::KeepAlive { sent_ns: self.now, first: false, settled: 0, generation: None },
                    );
                }
            }
        }
    }

    pub fn send(&mut self, member: usize, session: SessionId, message: ToMember) {
        self.happens(member, Event::Client(session, Proof::default(), message));
    }

    pub fn session(&mut self, member: usize, client: u64) -> SessionId {
        let session = SessionId { client, number: 0 };
        self.send(
            member,
            session,
            ToMember::KeepAlive { sent_ns: self.now, first: true, settled: 0, generation: None },
        );
        session
    }

    pub fn acquire(&mut self, member: usize, session: SessionId, number: u64, request: &LockRequest) {
        self.send(member, session, ToMember::Acquire { number, settled: 0, request: request.clone() });
    }

    pub fn release(&mut self, member: usize, session: SessionId, number: u64) {
        self.send(member, session, ToMember::Release { number });
    }

    pub fn revoke(&mut self, member: usize, lock: &str, session: SessionId, number: u64) {
        let acquisition = Acquisition { session, number };
        self.happens(member, Event::Revoke(LockName::new(lock), acquisition, String::from("root")));
    }

    pub fn leave(&mut self, member: usize, timeout_ms: u64) {
        self.happens(member, Event::Leave { timeout_ns: timeout_ms * MS });
    }

    /// The fence of a grant, if there was one; the inner option is `None` for a permit.
    pub fn granted(&self, session: SessionId, number: u64) -> Option<Option<Fence>> {
        self.sent.iter().find_map(|(to, message)| match message {
            ToClient::Granted { number: granted, fence, .. } if *to == session && *granted == number => {
                Some(*fence)
            }
            _ => None,
        })
    }

    pub fn ended(&self, session: SessionId, number: u64) -> Option<Ended> {
        self.sent.iter().rev().find_map(|(to, message)| match message {
            ToClient::Ended { number: ended, outcome: how } if *to == session && *ended == number => {
                Some(*how)
            }
            _ => None,
        })
    }
}

pub fn mutex(name: &str) -> LockRequest {
    LockRequest::exclusive(LockName::new(name))
}

pub fn shared(name: &str) -> LockRequest {
    LockRequest { mode: LockMode::Shared, ..mutex(name) }
}

pub fn permit(name: &str, permits: u32) -> LockRequest {
    LockRequest { mode: LockMode::Permit { of: permits }, ..mutex(name) }
}
