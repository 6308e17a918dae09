//! Clients in the driver's own process: sessions without keep-alives, and further fences for a hold.

use lockkeeper_core::Protocol;
use lockkeeper_core::algorithms::naimi_trehel::NaimiTrehel;
use lockkeeper_member::{
    Acquisition, Body, Config, Event, Fence, LockName, LockRequest, Member, MemberId, NoFence, Node,
    NotOpened, Out, PortEvent, PortRequest, Proof, SessionId, ToClient, ToMember,
};
use std::collections::BTreeSet;

const MS: u64 = 1_000_000;

fn new_cluster() -> Config {
    let mut config = Config::new([MemberId(1)]);
    config.is_new = true;
    config
}

/// A cluster of one member, with a consensus that decides at once.
struct SingleMember {
    member: Member<NaimiTrehel>,
    now: u64,
    sent: Vec<(SessionId, ToClient)>,
}

impl SingleMember {
    fn start(config: Config) -> Self {
        let me = Node { id: MemberId(1), incarnation: 1 };
        let member = Member::new(me, config, 0).unwrap();
        let mut alone = Self { member, now: 0, sent: Vec::new() };
        alone.step(Event::Port(PortEvent::Leading { term: 1 }));
        // The first view of a new cluster waits for one lease.
        alone.run(3_000 * MS);
        assert!(alone.member.running().is_some() && alone.member.lease_left_ns(alone.now) > 0);
        alone
    }

    fn step(&mut self, event: Event<<NaimiTrehel as Protocol>::Message>) {
        let (mut events, mut out) = (vec![event], Out::default());
        while let Some(event) = events.pop() {
            self.member.handle(self.now, event, &mut out);
            assert!(out.frames.iter().all(|frame| !matches!(frame.body, Body::Link { .. })));
            self.sent.append(&mut out.clients);
            for request in out.port.drain(..) {
                events.push(Event::Port(match request {
                    PortRequest::Propose(view) => PortEvent::Decided { view, adopted: Vec::new() },
                    PortRequest::Confirm { number, .. } => PortEvent::Confirmed { number },
                    PortRequest::StepDown { .. } | PortRequest::Write(_) => continue,
                }));
            }
        }
    }

    fn run(&mut self, for_ns: u64) {
        let until = self.now + for_ns;
        while self.now < until {
            self.now = self.member.wake_ns().clamp(self.now + 1, until);
            self.step(Event::Tick);
        }
    }

    fn acquire(&mut self, session: SessionId, number: u64) -> Option<Fence> {
        self.sent.clear();
        let request = LockRequest::exclusive(LockName::new("a"));
        self.step(Event::Client(
            session,
            Proof::default(),
            ToMember::Acquire { number, settled: 0, request },
        ));
        self.sent.iter().find_map(|message| match message {
            (of, ToClient::Granted { fence, .. }) if *of == session => *fence,
            _ => None,
        })
    }
}

fn session(client: u64) -> SessionId {
    SessionId { client: SessionId::RESIDENT + client, number: 0 }
}

#[test]
fn resident_session_stays_open_without_keep_alives() {
    let mut alone = SingleMember::start(new_cluster());
    for client in 0..100 {
        assert_eq!(alone.member.open_resident(alone.now, session(client)), Ok(()));
    }
    let fence = alone.acquire(session(0), 1);
    assert!(fence.is_some());
    alone.run(60_000 * MS);
    assert_eq!(alone.member.sessions().len(), 100);
    assert!(alone.member.resident_until_ns(alone.now) > alone.now);
    // The client still holds the lock: another client waits.
    assert_eq!(alone.acquire(session(1), 1), None);
    alone.step(Event::Client(session(0), Proof::default(), ToMember::Close));
    assert!(
        alone
            .sent
            .iter()
            .any(|(of, message)| *of == session(1) && matches!(message, ToClient::Granted { .. }))
    );
}

/// A session has one owner: a second one would be granted locks that the first one holds.
#[test]
fn session_that_exists_is_not_opened_again() {
    let mut alone = SingleMember::start(new_cluster());
    assert_eq!(alone.member.open_resident(alone.now, session(1)), Ok(()));
    assert_eq!(alone.member.open_resident(alone.now, session(1)), Err(NotOpened::Exists));
}

/// A connecting client cannot have the number of a resident one, and vice versa.
#[test]
fn client_that_connects_cannot_open_a_resident_session_nor_the_other_way_round() {
    let mut alone = SingleMember::start(new_cluster());
    let outside = SessionId { client: 7, number: 0 };
    assert_eq!(alone.member.open_resident(alone.now, outside), Err(NotOpened::NotResident));
    let keep_alive = ToMember::KeepAlive { sent_ns: 0, first: true, settled: 0, generation: None };
    alone.step(Event::Client(session(7), Proof::default(), keep_alive.clone()));
    assert_eq!((alone.member.sessions(), &alone.sent[..]), (Vec::new(), &[][..]));
    // The same while the resident session is open: the keep-alive is not answered, so it renews no lease.
    alone.member.open_resident(alone.now, session(7)).unwrap();
    alone.step(Event::Client(session(7), Proof::default(), keep_alive));
    assert_eq!(alone.sent, []);
}

#[test]
fn drawn_fences_rise_and_stay_below_the_next_holders() {
    let mut alone = SingleMember::start(new_cluster());
    let mut highest = None;
    let mut seen = BTreeSet::new();
    for holder in 1..=5 {
        let session = session(holder);
        alone.member.open_resident(alone.now, session).unwrap();
        let fence = alone.acquire(session, 1);
        assert!(fence > highest, "{fence:?} after {highest:?}");
        highest = fence;
        for _ in 0..1_000 {
            let acquisition = Acquisition { session, number: 1 };
            let fence = alone.member.draw_fence(alone.now, acquisition).unwrap();
            assert!(Some(fence) > highest && seen.insert(fence));
            highest = Some(fence);
        }
        alone.step(Event::Client(session, Proof::default(), ToMember::Release { number: 1 }));
        let over = alone.member.draw_fence(alone.now, Acquisition { session, number: 1 });
        assert_eq!(over, Err(NoFence::NotHeld));
    }
}

#[test]
fn lock_with_an_exhausted_clock_gets_fences_of_a_new_epoch() {
    let mut config = new_cluster();
    config.largest_clock = 10;
    let mut alone = SingleMember::start(config);
    alone.member.open_resident(alone.now, session(1)).unwrap();
    let mut highest = alone.acquire(session(1), 1).unwrap();
    let acquisition = Acquisition { session: session(1), number: 1 };
    let first = highest.epoch();
    for _ in 0..25 {
        let fence = match alone.member.draw_fence(alone.now, acquisition) {
            Ok(fence) => fence,
            Err(NoFence::NotHeld) => panic!("the lock is held"),
            Err(NoFence::NotNow) => {
                alone.run(5_000 * MS);
                alone.member.draw_fence(alone.now, acquisition).unwrap()
            }
        };
        assert!(fence > highest, "{fence} after {highest}");
        highest = fence;
    }
    assert!(highest.epoch() > first);
}

#[test]
fn revoked_hold_of_a_resident_client_stays_until_the_lease_it_could_read_has_passed() {
    let mut alone = SingleMember::start(new_cluster());
    for client in [1, 2] {
        alone.member.open_resident(alone.now, session(client)).unwrap();
    }
    assert!(alone.acquire(session(1), 1).is_some());
    assert_eq!(alone.acquire(session(2), 1), None);
    let until = alone.member.resident_until_ns(alone.now);
    alone.step(Event::Revoke(
        LockName::new("a"),
        Acquisition { session: session(1), number: 1 },
        String::from("root"),
    ));
    let granted = |alone: &SingleMember| {
        alone
            .sent
            .iter()
            .any(|(of, message)| *of == session(2) && matches!(message, ToClient::Granted { .. }))
    };
    alone.run(until - alone.now - 1);
    assert!(!granted(&alone));
    alone.run(2);
    assert!(granted(&alone));
}
