//! The bytes of every message between sites, as members of a cluster send them.
//!
//! A deterministic run of each algorithm collects one message of each kind. Its encoding is compared with `tests/golden/messages.txt`,
//! so that a reordered enum variant or a new field fails a test. A change of that file is a change of the wire format: raise the
//! version of the greeting between members.

use lockkeeper_core::algorithms::gate::Gate;
use lockkeeper_core::any::{self, AnySite};
use lockkeeper_core::mutex::Settings;
use lockkeeper_core::protocol::TimerChange;
use lockkeeper_core::{LockMode, MutualExclusion, Out, Protocol, Setup, Site, SiteId, Vocabulary};
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
            self.seen.entry(message.word()).or_insert(bytes);
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
            if self.sites[to.index()].protocol().awaits(from, &message) {
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
        for (word, bytes) in &system.seen {
            golden.bytes(&format!("{} {}", about.slug, Message::WORDS[*word].name), bytes);
        }
    }
    golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/messages.txt");
}
