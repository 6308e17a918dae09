//! When a client repeats its messages, gives up a daemon and connects to another one.

use lockkeeper_session::{
    ClientLink, ClientSettings, Connection, Ended, Generation, LinkEnd, LockName, LockRequest, Progress,
    SessionId, ToClient, ToMember,
};

const MS: u64 = 1_000_000;
const LEASE: u64 = 1_000 * MS;
const GENERATION: Generation = Generation { epoch: 0, incarnation: 1, number: 0 };

fn link() -> ClientLink {
    ClientLink::new(SessionId { client: 1, number: 1 }, ClientSettings::new(3), 0, 0, 0)
}

fn open() -> ClientLink {
    let mut link = link();
    link.opened(0, LEASE);
    assert!(matches!(sent(&mut link)[..], [ToMember::KeepAlive { first: true, .. }]));
    link
}

fn alive() -> ClientLink {
    let mut link = open();
    promise(&mut link, 0, 0, Vec::new());
    link
}

fn promise(link: &mut ClientLink, now: u64, sent_ns: u64, revoked: Vec<u64>) {
    link.receive(
        now,
        ToClient::Alive { generation: GENERATION, sent_ns, duration_ns: LEASE, revoked, recorded: None },
    );
}

fn grant(link: &mut ClientLink, now: u64, number: u64) {
    link.receive(
        now,
        ToClient::Granted {
            generation: GENERATION,
            number,
            fence: None,
            delegated_entries: 0,
            contended: false,
        },
    );
}

fn sent(link: &mut ClientLink) -> Vec<ToMember> {
    link.take_messages().collect()
}

fn request(name: &str) -> LockRequest {
    LockRequest::exclusive(LockName::new(name))
}

/// Polls the link at each of its wake times. Returns the messages that it sends, with their times.
fn run(link: &mut ClientLink, until: u64) -> Vec<(u64, ToMember)> {
    let mut all = Vec::new();
    while link.wake_ns() <= until {
        let now = link.wake_ns();
        link.poll(now);
        assert!(link.wake_ns() > now, "a poll leaves nothing to do at the same time");
        all.extend(sent(link).into_iter().map(|message| (now, message)));
    }
    all
}

#[test]
fn keep_alive_is_sent_every_fifth_of_a_lease() {
    let mut link = alive();
    let keep_alives: Vec<u64> = run(&mut link, LEASE - 1).into_iter().map(|(at, _)| at / MS).collect();
    assert_eq!(keep_alives, [200, 400, 600, 800]);
}

#[test]
fn keep_alive_is_sent_earlier_after_a_renewal_shorter_than_a_lease() {
    let mut link = open();
    let duration_ns = 100 * MS;
    link.receive(
        0,
        ToClient::Alive {
            generation: GENERATION,
            sent_ns: 0,
            duration_ns,
            revoked: Vec::new(),
            recorded: None,
        },
    );
    assert_eq!(link.wake_ns(), 20 * MS);
}

#[test]
fn request_is_repeated_until_it_is_answered() {
    let mut link = alive();
    let number = link.acquire(0, request("m")).unwrap();
    assert!(matches!(sent(&mut link)[..], [ToMember::Acquire { .. }]));
    let mut requests = 0;
    for beat in 1..=10 {
        let now = beat * 200 * MS;
        let repeated = run(&mut link, now);
        requests +=
            repeated.iter().filter(|(_, message)| matches!(message, ToMember::Acquire { .. })).count();
        promise(&mut link, now, now, Vec::new());
    }
    assert_eq!(requests, 4, "2 s are four halves of a lease");
    grant(&mut link, 2_000 * MS, number);
    let after = run(&mut link, 2_900 * MS);
    assert!(after.iter().all(|(_, message)| matches!(message, ToMember::KeepAlive { .. })), "{after:?}");
}

#[test]
fn release_is_repeated_until_it_is_answered() {
    let mut link = alive();
    let number = link.acquire(0, request("m")).unwrap();
    grant(&mut link, 0, number);
    link.release(0, number);
    sent(&mut link);
    let repeated = run(&mut link, 900 * MS);
    assert!(repeated.iter().any(|(at, message)| (*at, message) == (500 * MS, &ToMember::Release { number })));
    link.receive(900 * MS, ToClient::Ended { number, outcome: Ended::Released });
    promise(&mut link, 900 * MS, 900 * MS, Vec::new());
    let after = run(&mut link, 1_800 * MS);
    assert!(after.iter().all(|(_, message)| matches!(message, ToMember::KeepAlive { .. })), "{after:?}");
}

#[test]
fn revoked_hold_is_released_by_a_message() {
    let mut link = alive();
    let number = link.acquire(0, request("m")).unwrap();
    grant(&mut link, 0, number);
    sent(&mut link);
    link.receive(MS, ToClient::Ended { number, outcome: Ended::Revoked });
    assert_eq!(sent(&mut link), [ToMember::Release { number }]);
    promise(&mut link, 2 * MS, MS, vec![number]);
    assert_eq!(sent(&mut link), [ToMember::Release { number }], "the member has not received the first one");
}

#[test]
fn many_waiting_requests_are_repeated_in_turns() {
    let mut link = alive();
    for n in 0..1_000 {
        link.acquire(0, request(&format!("m{n}"))).unwrap();
    }
    sent(&mut link);
    let mut repeated = Vec::new();
    for beat in 1..=10 {
        let now = beat * 200 * MS;
        let messages = run(&mut link, now);
        let acquires = messages.into_iter().filter_map(|(_, message)| match message {
            ToMember::Acquire { number, .. } => Some(number),
            _ => None,
        });
        let before = repeated.len();
        repeated.extend(acquires);
        assert!(repeated.len() - before <= 512, "at most two turns in one interval");
        promise(&mut link, now, now, Vec::new());
    }
    repeated.sort_unstable();
    repeated.dedup();
    assert_eq!(repeated.len(), 1_000, "each of them was repeated");
}

#[test]
fn daemon_that_answers_no_keep_alive_for_a_lease_is_given_up() {
    let mut link = open();
    let numbers = [link.acquire(0, request("a")).unwrap(), link.acquire(0, request("b")).unwrap()];
    run(&mut link, LEASE - 1);
    assert_eq!(link.ended(), None);
    run(&mut link, LEASE);
    assert_eq!((link.ended(), link.next_daemon()), (Some(LinkEnd::Silent), 1));
    let moved: Vec<u64> = link.take_moved().into_iter().map(|(number, _)| number).collect();
    assert_eq!(moved, numbers, "in the order of the requests");
    assert!(link.acquire(LEASE, request("c")).is_none());
}

#[test]
fn grant_without_a_lease_does_not_keep_a_silent_link() {
    let mut link = open();
    let number = link.acquire(0, request("a")).unwrap();
    grant(&mut link, 1, number);
    run(&mut link, LEASE);
    assert_eq!(link.ended(), Some(LinkEnd::Silent));
}

#[test]
fn silent_daemon_is_given_up_only_once_a_request_waits() {
    let mut link = open();
    run(&mut link, 10 * LEASE);
    assert_eq!(link.ended(), None, "an operator may look at a member that does not serve");
    link.acquire(10 * LEASE, request("a")).unwrap();
    link.poll(10 * LEASE);
    assert_eq!(link.ended(), Some(LinkEnd::Silent));
}

#[test]
fn reconnecting_does_not_excuse_a_silent_daemon() {
    let mut link = open();
    link.acquire(0, request("a")).unwrap();
    for n in 1..10 {
        link.closed(n * LEASE / 10);
        assert_eq!(link.connection(), Connection::Connecting { daemon: 0 });
        link.opened(n * LEASE / 10, LEASE);
    }
    link.poll(LEASE);
    assert_eq!(link.ended(), Some(LinkEnd::Silent));
}

#[test]
fn session_that_expires_ends_its_link_and_the_next_daemon_is_tried() {
    let mut link = alive();
    let number = link.acquire(0, request("a")).unwrap();
    grant(&mut link, 0, number);
    run(&mut link, LEASE);
    assert_eq!((link.ended(), link.next_daemon()), (Some(LinkEnd::Expired), 1));
    assert!(link.take_moved().is_empty(), "a hold is lost, not moved");
}

#[test]
fn session_unknown_to_its_member_is_opened_again_at_the_same_daemon() {
    let mut link = alive();
    link.acquire(0, request("a")).unwrap();
    link.receive(1, ToClient::NoSession);
    assert_eq!((link.ended(), link.next_daemon()), (Some(LinkEnd::Unknown), 0));
    assert_eq!(link.take_moved().len(), 1);
}

#[test]
fn holds_outlive_a_broken_connection_and_waiting_requests_move() {
    let mut link = alive();
    let held = link.acquire(0, request("a")).unwrap();
    grant(&mut link, 0, held);
    let waits = link.acquire(0, request("b")).unwrap();
    link.closed(1);
    assert_eq!(link.connection(), Connection::Connecting { daemon: 0 }, "the daemon that knows the session");
    link.not_opened(2);
    assert_eq!((link.is_retired(), link.ended(), link.next_daemon()), (true, None, 1));
    assert_eq!(link.take_moved().into_iter().map(|(number, _)| number).collect::<Vec<_>>(), [waits]);
    assert!(link.session().may_use(3, held));
    assert_eq!(link.connection(), Connection::Connecting { daemon: 1 }, "any daemon relays the messages");
    link.opened(60 * MS, LEASE);
    let messages = sent(&mut link);
    assert!(
        messages.contains(&ToMember::Release { number: waits }),
        "the moved request is cancelled here: {messages:?}"
    );
    link.receive(61 * MS, ToClient::Ended { number: waits, outcome: Ended::Cancelled });
    link.release(62 * MS, held);
    link.receive(63 * MS, ToClient::Ended { number: held, outcome: Ended::Released });
    link.poll(64 * MS);
    assert_eq!(link.ended(), Some(LinkEnd::Closed), "the retired link has no holds left");
    assert_eq!(sent(&mut link), [ToMember::Close]);
}

const TTL: u64 = 10 * LEASE;

/// A link with a hold that is recorded and promised for its time to live from time 0.
fn recorded() -> (ClientLink, u64) {
    let mut link = alive();
    let held = link.acquire(0, LockRequest { ttl_ns: TTL, ..request("a") }).unwrap();
    grant(&mut link, 0, held);
    let (generation, sent_ns) = (GENERATION, Some(0));
    link.receive(1, ToClient::Recorded { generation, number: held, index: 1, ttl_ns: TTL, sent_ns });
    sent(&mut link);
    (link, held)
}

#[test]
fn a_recorded_hold_outlives_the_lease_and_the_other_holds_lapse() {
    let (mut link, held) = recorded();
    let short = link.acquire(2, request("b")).unwrap();
    grant(&mut link, 3, short);
    assert!(link.session().may_use(4, short) && !link.is_in_jeopardy());
    link.poll(LEASE);
    assert_eq!(link.ended(), None);
    assert!(link.is_in_jeopardy() && link.is_retired());
    assert!(link.session().may_use(LEASE, held) && !link.session().may_use(LEASE, short));
    // The hold that has lapsed never becomes usable again.
    link.opened(LEASE + 1, LEASE);
    promise(&mut link, LEASE + 3, LEASE + 1, Vec::new());
    assert!(!link.session().may_use(LEASE + 4, short) && link.session().may_use(LEASE + 4, held));
    link.poll(TTL + LEASE);
    assert_eq!(link.ended(), Some(LinkEnd::Expired), "the promise is over");
}

#[test]
fn an_answer_from_before_the_record_promises_only_the_lease() {
    let mut link = alive();
    let held = link.acquire(0, LockRequest { ttl_ns: TTL, ..request("a") }).unwrap();
    grant(&mut link, 0, held);
    let (generation, ttl_ns) = (GENERATION, TTL);
    link.receive(1, ToClient::Recorded { generation, number: held, index: 2, ttl_ns, sent_ns: None });
    let alive = |recorded| ToClient::Alive {
        generation,
        sent_ns: 0,
        duration_ns: LEASE,
        revoked: Vec::new(),
        recorded,
    };
    link.receive(2, alive(Some(1)));
    assert_eq!(link.session().hold_until_ns(held), LEASE);
    link.receive(3, alive(None));
    assert_eq!(link.session().hold_until_ns(held), LEASE);
    link.receive(4, alive(Some(2)));
    assert_eq!(link.session().hold_until_ns(held), TTL);
}

#[test]
fn a_session_that_another_member_has_adopted_keeps_its_recorded_holds_only() {
    let (mut link, held) = recorded();
    let short = link.acquire(2, request("b")).unwrap();
    grant(&mut link, 3, short);
    link.closed(4);
    link.not_opened(5);
    link.opened(6, LEASE);
    sent(&mut link);
    let generation = Generation { epoch: 1, ..GENERATION };
    link.receive(7, ToClient::Resumed { generation, held: vec![(held, TTL), (99, TTL)] });
    let messages = sent(&mut link);
    assert!(
        messages.contains(&ToMember::Release { number: 99 }),
        "the client does not hold it: {messages:?}"
    );
    assert!(link.session().may_use(8, held) && !link.session().may_use(8, short));
    // A message of the previous member has no effect any more.
    promise(&mut link, 9, 8, Vec::new());
    assert_eq!(link.session().lease_until_ns(), LEASE);
}

#[test]
fn a_release_of_a_recorded_hold_is_repeated_at_other_daemons_until_it_is_answered() {
    let (mut link, held) = recorded();
    link.closed(2);
    link.release(3, held);
    link.not_opened(4);
    link.poll(LEASE + 1);
    assert_eq!(link.ended(), None, "a member that adopts the hold would keep it for its time to live");
    link.opened(LEASE + 2, LEASE);
    assert!(sent(&mut link).contains(&ToMember::Release { number: held }));
    link.receive(LEASE + 3, ToClient::Ended { number: held, outcome: Ended::Released });
    link.poll(LEASE + 4);
    assert!(link.ended().is_some());
}

#[test]
fn a_release_whose_answer_is_lost_is_confirmed_once_no_member_knows_the_session() {
    let (mut link, held) = recorded();
    link.release(2, held);
    // The release arrives, its answer is lost with the connection, and the session without holds is closed.
    link.closed(3);
    link.opened(4, LEASE);
    assert!(sent(&mut link).contains(&ToMember::Release { number: held }));
    link.receive(5, ToClient::NoSession);
    assert_eq!(link.ended(), Some(LinkEnd::Unknown));
    assert_eq!(link.session().progress(held), Some(&Progress::Ended(Ended::Released)));
}

#[test]
fn a_hold_that_ended_before_its_release_is_not_confirmed_as_released() {
    // The hold has lapsed before the client releases it.
    let (mut link, held) = recorded();
    let short = link.acquire(2, request("b")).unwrap();
    grant(&mut link, 3, short);
    link.release(LEASE + 1, short);
    link.receive(LEASE + 2, ToClient::NoSession);
    assert_ne!(link.session().progress(short), Some(&Progress::Ended(Ended::Released)));
    assert_ne!(link.session().progress(held), Some(&Progress::Ended(Ended::Released)), "it was in use");
    // No member answers until the promise is over: the lock may be held for as long.
    let (mut link, held) = recorded();
    link.release(2, held);
    link.poll(TTL + 2 * LEASE);
    assert_eq!(link.ended(), Some(LinkEnd::Expired));
    assert_ne!(link.session().progress(held), Some(&Progress::Ended(Ended::Released)));
    // The member revoked the hold before the release arrived.
    let (mut link, held) = recorded();
    link.release(2, held);
    link.receive(3, ToClient::Ended { number: held, outcome: Ended::Revoked });
    link.receive(4, ToClient::NoSession);
    assert_eq!(link.session().progress(held), Some(&Progress::Ended(Ended::Revoked)));
}

/// The member records the hold of an ended delegation only once it knows that the lock is in use.
#[test]
fn the_use_of_an_ended_delegation_is_sent_again_over_a_new_connection_until_the_hold_is_recorded() {
    let mut link = alive();
    let number = link.acquire(0, LockRequest { delegated_entries: 3, ..request("a") }).unwrap();
    let (generation, fence) = (GENERATION, None);
    link.receive(0, ToClient::Granted { generation, number, fence, delegated_entries: 3, contended: false });
    let is_use =
        |message: &ToMember| matches!(message, ToMember::InUse { number: used, .. } if *used == number);
    let ended = run(&mut link, 100 * MS);
    assert_eq!(ended.iter().filter(|(_, message)| is_use(message)).count(), 1, "{ended:?}");
    let reconnect = |link: &mut ClientLink, now: u64| {
        link.closed(now);
        link.opened(now, LEASE);
        sent(link).iter().filter(|message| is_use(message)).count()
    };
    assert_eq!((reconnect(&mut link, 110 * MS), reconnect(&mut link, 120 * MS)), (1, 1));
    let sent_ns = Some(110 * MS);
    link.receive(130 * MS, ToClient::Recorded { generation, number, index: 1, ttl_ns: 3 * LEASE, sent_ns });
    assert_eq!(reconnect(&mut link, 140 * MS), 0);
    // A hold that was never recorded.
    let number = link.acquire(150 * MS, LockRequest { delegated_entries: 3, ..request("b") }).unwrap();
    link.receive(
        150 * MS,
        ToClient::Granted { generation, number, fence, delegated_entries: 3, contended: false },
    );
    run(&mut link, 170 * MS);
    link.release(180 * MS, number);
    link.receive(190 * MS, ToClient::Ended { number, outcome: Ended::Released });
    assert_eq!(reconnect(&mut link, 200 * MS), 0);
}

#[test]
fn requests_move_away_from_a_member_that_leaves() {
    let mut link = alive();
    let held = link.acquire(0, request("a")).unwrap();
    grant(&mut link, 0, held);
    let waits = link.acquire(0, request("b")).unwrap();
    link.receive(1, ToClient::Ended { number: waits, outcome: Ended::Leaving });
    assert_eq!(link.take_moved().len(), 1);
    assert!(link.is_retired() && link.session().may_use(1, held));
    assert_eq!(link.session().progress(waits), Some(&Progress::Ended(Ended::Leaving)));
}

#[test]
fn daemons_are_tried_for_five_leases_and_at_least_six_seconds() {
    for (lease_ns, timeout) in [(0, 6_000 * MS), (LEASE, 6_000 * MS), (3 * LEASE, 15_000 * MS)] {
        let id = SessionId { client: 1, number: 1 };
        let mut link = ClientLink::new(id, ClientSettings::new(3), 2, lease_ns, 0);
        let (mut now, mut tried) = (0, Vec::new());
        while link.ended().is_none() {
            match link.connection() {
                Connection::Connecting { daemon } => {
                    tried.push(daemon);
                    link.not_opened(now);
                }
                Connection::Pausing { until_ns, .. } => {
                    now = until_ns;
                    link.poll(now);
                }
                Connection::Open { .. } => unreachable!(),
            }
        }
        assert_eq!(link.ended(), Some(LinkEnd::Unreachable));
        assert_eq!(tried[..4], [2, 0, 1, 2]);
        assert!(now > timeout && now <= timeout + 100 * MS, "{now}");
    }
}
