//! The bytes of every message between sites, as members of a cluster send them.
//!
//! A deterministic run of each algorithm collects the first message of each kind that occurs. Its encoding is compared with
//! `tests/golden/messages.txt`. Kinds that are rare in runs, and fields with different values, are in `tests/golden/kinds.txt`. A
//! reordered enum variant or a new field fails a test. A change of these files is a change of the wire format: raise the version of
//! the greeting between members.

use lockkeeper_core::algorithms::failover_messages::Term;
use lockkeeper_core::algorithms::gate::Gate;
use lockkeeper_core::algorithms::{
    bakery_messages, centralized, failover_messages, lamport, lodha_kshemkalyani, maekawa, naimi_trehel,
    neilsen_mizuno, raymond, ricart_agrawala, roucairol_carvalho, suzuki_kasami, token_ring,
    token_ring_parked, token_ring_recovering,
};
use lockkeeper_core::any::{self, AnySite};
use lockkeeper_core::elections::relay::RingMessage;
use lockkeeper_core::elections::{bully, elector, ring_election};
use lockkeeper_core::protocol::TimerChange;
use lockkeeper_core::settings::Settings;
use lockkeeper_core::{
    Configure, LockMode, MessageKinds, MutualExclusion, Out, Phase, Protocol, Setup, Site, SiteId, Timestamp,
    Validate,
};
use lockkeeper_testbed::every_variant;
use lockkeeper_testbed::golden::Golden;
use std::collections::{BTreeMap, VecDeque};

type Message = <Gate<AnySite> as Protocol>::Message;
type Timer = <Gate<AnySite> as Protocol>::Timer;

const SITES: usize = 4;
/// The site that crashes in the second half of a run.
const CRASHED: SiteId = SiteId(SITES as u32 - 1);
const ROUNDS: usize = 12;

/// All sites of one lock. Messages arrive in the order in which they were sent.
struct System {
    sites: Vec<Site<Gate<AnySite>>>,
    in_flight: VecDeque<(SiteId, SiteId, u64, Message)>,
    timers: Vec<(SiteId, Timer)>,
    requested: Vec<Option<LockMode>>,
    inside: Vec<Option<LockMode>>,
    crashed: bool,
    /// The first message of each kind, encoded.
    seen: BTreeMap<usize, Vec<u8>>,
}

impl System {
    fn new(slug: &str) -> Self {
        let mut settings = Settings::new([(any::ALGORITHM.into(), slug.into())]);
        let options = Gate::<AnySite>::options(&mut settings, SITES).unwrap();
        let processes = SITES + Gate::<AnySite>::helpers(&options);
        let mut system = Self {
            sites: Vec::new(),
            in_flight: VecDeque::new(),
            timers: Vec::new(),
            requested: vec![None; processes],
            inside: vec![None; processes],
            crashed: false,
            seen: BTreeMap::new(),
        };
        let setup = Setup::new(SITES, options);
        let mut out = Out::quiet(processes);
        for id in SiteId::all(processes) {
            let site = Site::new(id, &mut out, |out| Gate::<AnySite>::start(id, &setup, out));
            system.sites.push(site);
            system.collect(id, &mut out);
        }
        system
    }

    fn collect(&mut self, site: SiteId, out: &mut Out<Gate<AnySite>>) {
        for _ in out.outputs.drain(..) {
            self.sites[site.index()].stamp();
            self.inside[site.index()] = self.requested[site.index()].take();
        }
        for change in out.timers.drain(..) {
            let (TimerChange::Arm { timer, .. } | TimerChange::Disarm { timer }) = &change;
            self.timers.retain(|armed| *armed != (site, timer.clone()));
            if let TimerChange::Arm { timer, .. } = change {
                self.timers.push((site, timer));
            }
        }
        let fence = self.sites[site.index()].fence();
        for (to, message) in out.sends.drain(..) {
            let bytes = postcard::to_stdvec(&message).unwrap();
            self.seen.entry(message.kind()).or_insert(bytes);
            self.in_flight.push_back((site, to, fence, message));
        }
    }

    fn runs(&self, site: SiteId) -> bool {
        !self.crashed || site != CRASHED
    }

    fn step(&mut self, site: SiteId, act: impl FnOnce(&mut Site<Gate<AnySite>>, &mut Out<Gate<AnySite>>)) {
        if self.runs(site) {
            let mut out = Out::quiet(self.sites.len());
            act(&mut self.sites[site.index()], &mut out);
            self.collect(site, &mut out);
        }
    }

    /// Delivers messages until none is in flight; at most so many, because tokens may circulate for ever.
    fn deliver(&mut self) {
        for _ in 0..200 {
            let Some((from, to, fence, message)) = self.in_flight.pop_front() else { return };
            if self.sites[to.index()].protocol().is_expected(from, &message) {
                self.step(to, |site, out| site.deliver(from, fence, message, out));
            }
        }
    }

    /// Every site requests the lock in turn, in another mode each time, and releases it.
    fn round(&mut self, round: usize) {
        let modes = [LockMode::Exclusive, LockMode::Shared, LockMode::Permit { of: 2 }, LockMode::Exclusive];
        for site in SiteId::all(SITES) {
            let place = site.index();
            if self.requested[place].is_none() && self.inside[place].is_none() {
                let mode = modes[(place + round) % modes.len()];
                self.requested[place] = Some(mode);
                self.step(site, |site, out| site.step(out, |gate, out| gate.request(mode, out)));
            }
            // Odd rounds: all sites request before any message arrives.
            if round.is_multiple_of(2) {
                self.deliver();
            }
        }
        self.deliver();
        for site in SiteId::all(SITES) {
            if let Some(mode) = self.inside[site.index()].take() {
                self.step(site, |site, out| site.step(out, |gate, out| gate.release(mode, out)));
                self.deliver();
            }
        }
        for (site, timer) in std::mem::take(&mut self.timers) {
            self.step(site, |site, out| site.timer(timer, out));
            self.deliver();
        }
    }

    fn crash(&mut self) {
        self.crashed = true;
        for site in SiteId::all(SITES).filter(|site| *site != CRASHED) {
            self.step(site, |site, out| site.suspect(CRASHED, out));
        }
        self.deliver();
    }
}

#[test]
fn bytes_of_messages_between_sites_do_not_change() {
    let mut golden = Golden::default();
    for about in any::ALL {
        let mut system = System::new(about.slug);
        for round in 0..ROUNDS {
            if round == ROUNDS / 2 {
                system.crash();
            }
            system.round(round);
        }
        for (kind, bytes) in &system.seen {
            golden.bytes(&format!("{} {}", about.slug, Message::KINDS[*kind].name), bytes);
        }
    }
    golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/messages.txt");
}

const THREE: SiteId = SiteId(3);
const STAMP: Timestamp = Timestamp { time: 4, site: THREE };
const TERM: Term = Term { number: 5, coordinator: THREE };

/// The algorithms with tokens and trees.
fn kinds_of_token_algorithms(golden: &mut Golden) {
    golden.values(
        "naimi-trehel",
        &every_variant!(naimi_trehel::Message {
            "request": naimi_trehel::Message::Request(_) => naimi_trehel::Message::Request(THREE),
            "token": naimi_trehel::Message::Token => naimi_trehel::Message::Token,
        }),
    );
    golden.values(
        "raymond",
        &every_variant!(raymond::Message {
            "request": raymond::Message::Request => raymond::Message::Request,
            "privilege": raymond::Message::Privilege => raymond::Message::Privilege,
        }),
    );
    golden.values(
        "neilsen-mizuno",
        &every_variant!(neilsen_mizuno::Message {
            "request": neilsen_mizuno::Message::Request(_) => neilsen_mizuno::Message::Request(THREE),
            "privilege": neilsen_mizuno::Message::Privilege => neilsen_mizuno::Message::Privilege,
        }),
    );
    golden.values(
        "suzuki-kasami",
        &every_variant!(suzuki_kasami::Message {
            "request": suzuki_kasami::Message::Request(_) => suzuki_kasami::Message::Request(6),
            // Only the algorithm makes tokens: two numbers of served requests, and a queue of one site.
            "token": suzuki_kasami::Message::Token(_) => postcard::from_bytes(&[1, 2, 7, 8, 1, 3]).unwrap(),
        }),
    );
    golden.values(
        "token-ring",
        &every_variant!(token_ring::Message {
            "token": token_ring::Message::Token => token_ring::Message::Token,
        }),
    );
    golden.values("token-ring-parked", &every_variant!(token_ring_parked::Message {
        "request": token_ring_parked::Message::Request(_) => token_ring_parked::Message::Request(THREE),
        "token": token_ring_parked::Message::Token(_) => token_ring_parked::Message::Token([THREE].into()),
    }));
    use token_ring_recovering::Message as Recovering;
    golden.values(
        "token-ring-recovering",
        &every_variant!(Recovering {
            "token": Recovering::Token(_) => Recovering::Token(STAMP),
            "who-has": Recovering::WhoHas(_) => Recovering::WhoHas(STAMP),
            "answer": Recovering::Answer(..) => Recovering::Answer(STAMP, true),
            "join": Recovering::Join(_) => Recovering::Join(7),
            "welcome": Recovering::Welcome(..) => Recovering::Welcome(8, STAMP),
        }),
    );
}

/// The algorithms with permissions of other sites.
fn kinds_of_permission_algorithms(golden: &mut Golden) {
    golden.values(
        "lamport",
        &every_variant!(lamport::Message {
            "request": lamport::Message::Request(_) => lamport::Message::Request(9),
            "reply": lamport::Message::Reply(_) => lamport::Message::Reply(10),
            "release": lamport::Message::Release(_) => lamport::Message::Release(11),
        }),
    );
    golden.values(
        "ricart-agrawala",
        &every_variant!(ricart_agrawala::Message {
            "request": ricart_agrawala::Message::Request(_) => ricart_agrawala::Message::Request(12),
            "reply": ricart_agrawala::Message::Reply => ricart_agrawala::Message::Reply,
        }),
    );
    golden.values(
        "roucairol-carvalho",
        &every_variant!(roucairol_carvalho::Message {
            "request": roucairol_carvalho::Message::Request(_) => roucairol_carvalho::Message::Request(13),
            "reply": roucairol_carvalho::Message::Reply => roucairol_carvalho::Message::Reply,
        }),
    );
    use lodha_kshemkalyani::Message as Lodha;
    golden.values(
        "lodha-kshemkalyani",
        &every_variant!(Lodha {
            "request": Lodha::Request(..) => Lodha::Request(14, Some(STAMP)),
            "reply": Lodha::Reply(_) => Lodha::Reply(Some(STAMP)),
            "flush": Lodha::Flush(_) => Lodha::Flush(None),
        }),
    );
    use bakery_messages::Message as Bakery;
    golden.values(
        "bakery-messages",
        &every_variant!(Bakery {
            "read-number": Bakery::ReadNumber => Bakery::ReadNumber,
            "number": Bakery::Number(_) => Bakery::Number(15),
            "await-chosen": Bakery::AwaitChosen => Bakery::AwaitChosen,
            "chosen": Bakery::Chosen => Bakery::Chosen,
            "await-turn": Bakery::AwaitTurn(_) => Bakery::AwaitTurn(16),
            "turn": Bakery::Turn => Bakery::Turn,
        }),
    );
    use maekawa::Message as Maekawa;
    golden.values(
        "maekawa",
        &every_variant!(Maekawa {
            "request": Maekawa::Request(_) => Maekawa::Request(17),
            "locked": Maekawa::Locked(_) => Maekawa::Locked(18),
            "failed": Maekawa::Failed(_) => Maekawa::Failed(19),
            "inquire": Maekawa::Inquire(_) => Maekawa::Inquire(20),
            "relinquish": Maekawa::Relinquish(_) => Maekawa::Relinquish(21),
            "released": Maekawa::Released(_) => Maekawa::Released(22),
        }),
    );
}

/// The algorithms with a coordinator, and its election.
fn kinds_of_coordinator_algorithms(golden: &mut Golden) {
    golden.values(
        "centralized",
        &every_variant!(centralized::Message {
            "enter": centralized::Message::Enter => centralized::Message::Enter,
            "granted": centralized::Message::Granted => centralized::Message::Granted,
            "denied": centralized::Message::Denied => centralized::Message::Denied,
            "released": centralized::Message::Released => centralized::Message::Released,
        }),
    );
    use failover_messages::Message as Failover;
    let elected = elector::Message::Bully(bully::Message::Ok);
    golden.values(
        "centralized-failover",
        &every_variant!(Failover {
            "enter": Failover::Enter(_) => Failover::Enter(TERM),
            "granted": Failover::Granted(_) => Failover::Granted(TERM),
            "released": Failover::Released(_) => Failover::Released(TERM),
            "inquire": Failover::Inquire(..) => Failover::Inquire(TERM, 23),
            "status": Failover::Status(..) => Failover::Status(TERM, 24, Phase::Inside),
            "election": Failover::Election(_) => Failover::Election(elected),
        }),
    );
    golden.values(
        "phase",
        &every_variant!(Phase {
            "idle": Phase::Idle => Phase::Idle,
            "waiting": Phase::Waiting => Phase::Waiting,
            "inside": Phase::Inside => Phase::Inside,
        }),
    );
    use bully::Message as Bully;
    use elector::Message as Elector;
    use ring_election::Body;
    let body = |body| Elector::Ring(RingMessage::Body { number: 25, body });
    golden.values(
        "election",
        &every_variant!(Elector {
            "bully-election": Elector::Bully(Bully::Election) => Elector::Bully(Bully::Election),
            "bully-ok": Elector::Bully(Bully::Ok) => Elector::Bully(Bully::Ok),
            "bully-coordinator": Elector::Bully(Bully::Coordinator) => Elector::Bully(Bully::Coordinator),
            "ring-election": Elector::Ring(RingMessage::Body { body: Body::Election { .. }, .. }) =>
                body(Body::Election { round: 26, list: vec![THREE] }),
            "ring-coordinator": Elector::Ring(RingMessage::Body { body: Body::Coordinator { .. }, .. }) =>
                body(Body::Coordinator { round: 27, leader: THREE, informed: vec![SiteId(1)] }),
            "ring-ack": Elector::Ring(RingMessage::Ack { .. }) => Elector::Ring(RingMessage::Ack { number: 28 }),
        }),
    );
}

#[test]
fn bytes_of_every_kind_of_message_do_not_change() {
    let mut golden = Golden::default();
    kinds_of_token_algorithms(&mut golden);
    kinds_of_permission_algorithms(&mut golden);
    kinds_of_coordinator_algorithms(&mut golden);
    golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/kinds.txt");
}
