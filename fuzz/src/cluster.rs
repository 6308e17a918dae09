//! Three members in their first view.

use lockkeeper_core::{MutualExclusion, Protocol};
use lockkeeper_member::{
    Config, Event, Frame, LockMode, LockName, LockRequest, Member, MemberId, Node, Out, PortEvent,
    PortRequest, SessionId, ToMember,
};
use std::collections::VecDeque;

/// The message of an algorithm.
pub type Message<P> = <P as Protocol>::Message;

const MS: u64 = 1_000_000;

/// A cluster without faults.
pub struct Cluster<P: MutualExclusion> {
    /// The reading of every clock.
    pub now: u64,
    /// The members; the first one leads.
    pub members: Vec<Member<P>>,
    /// The frames that they have sent to each other.
    pub frames: Vec<Frame<Message<P>>>,
}

impl<P: MutualExclusion> Cluster<P> {
    /// Creates a cluster in its first view, with some locks held and some waited for.
    pub fn start() -> Self {
        let mut config = Config::new((1..=3).map(MemberId));
        config.most_locks = 1_000;
        let member = |id| {
            let node = Node { id: MemberId(id), incarnation: 1 };
            Member::new(node, config.clone(), 0).expect("these settings are good")
        };
        let mut cluster = Self { now: 0, members: (1..=3).map(member).collect(), frames: Vec::new() };
        cluster.wait();
        cluster.happens(0, Event::Port(PortEvent::Leading { term: 1 }));
        for member in 0..3 {
            cluster.happens(member, Event::Port(PortEvent::Leader(Some(MemberId(1)))));
        }
        for _ in 0..100 {
            cluster.wait();
        }
        for member in 0..3 {
            let session = SessionId { client: member as u64, number: 0 };
            let message = ToMember::KeepAlive { sent_ns: 0, first: true, settled: 0 };
            cluster.happens(member, Event::Client(session, message));
            for number in 0..3 {
                let mode =
                    [LockMode::Exclusive, LockMode::Shared, LockMode::Permit { of: 2 }][number as usize];
                let request = LockRequest { mode, ..LockRequest::exclusive(LockName::new(format!("{number}"))) };
                cluster.happens(
                    member,
                    Event::Client(session, ToMember::Acquire { number, settled: 0, request }),
                );
            }
        }
        cluster.wait();
        cluster
    }

    fn wait(&mut self) {
        self.now += 20 * MS;
        for member in 0..self.members.len() {
            self.happens(member, Event::Tick);
        }
    }

    fn happens(&mut self, member: usize, event: Event<Message<P>>) {
        let mut todo = VecDeque::from([(member, event)]);
        let mut out = Out::default();
        // A token that never rests would send frames for ever.
        for _ in 0..1_000 {
            let Some((member, event)) = todo.pop_front() else { return };
            self.members[member].handle(self.now, event, &mut out);
            for frame in out.frames.drain(..) {
                self.frames.push(frame.clone());
                todo.push_back((frame.to.0 as usize - 1, Event::Frame(frame)));
            }
            for request in out.port.drain(..) {
                match request {
                    PortRequest::Propose(view) => {
                        let decided = |member| (member, Event::Port(PortEvent::Decided(view.clone())));
                        todo.extend((0..3).map(decided));
                    }
                    PortRequest::Confirm { number, .. } => {
                        todo.push_back((member, Event::Port(PortEvent::Confirmed { number })));
                    }
                    PortRequest::StepDown { .. } => {}
                }
            }
        }
    }
}
