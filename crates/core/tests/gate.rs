//! The gate over several algorithms, with requests of all modes on one lock and several holders per site: small systems
//! in every order of events, larger ones in random orders.

use lockkeeper_core::algorithms::centralized::Centralized;
use lockkeeper_core::algorithms::gate::{Gate, Options};
use lockkeeper_core::algorithms::maekawa::Maekawa;
use lockkeeper_core::algorithms::naimi_trehel::NaimiTrehel;
use lockkeeper_core::algorithms::ricart_agrawala::RicartAgrawala;
use lockkeeper_core::algorithms::suzuki_kasami::SuzukiKasami;
use lockkeeper_core::algorithms::token_ring_parked::TokenRingParked;
use lockkeeper_core::{
    Inspect, LockMode, MutualExclusion, Out, PaperFigures, Protocol, Setup, Site, SiteId, Validate,
};
use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

type Message<P> = <Gate<P> as Protocol>::Message;

/// The clients of one site: they request in this order, and may be inside together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Clients {
    requests: Vec<LockMode>,
    asked: Option<LockMode>,
    inside: Vec<LockMode>,
}

/// All sites of one lock, the messages in transit, and the highest fence of each mode.
#[derive(Clone, Debug)]
struct System<P: MutualExclusion> {
    sites: Vec<Site<Gate<P>>>,
    clients: Vec<Clients>,
    under_way: Vec<(SiteId, SiteId, u64, Message<P>)>,
    fences: Vec<(LockMode, u64)>,
    entries: usize,
    sent: usize,
}

/// An event that can happen next.
#[derive(Clone, Copy, Debug)]
enum Next {
    Asks(usize),
    Leaves(usize, usize),
    Arrives(usize),
}

impl<P: MutualExclusion> System<P> {
    /// A system with these requests of each site, and these holders at the start.
    fn new(requests: &[&[LockMode]], inside: &[(usize, LockMode, u32)]) -> Self {
        let mut system = Self {
            sites: Vec::new(),
            clients: Vec::new(),
            under_way: Vec::new(),
            fences: Vec::new(),
            entries: 0,
            sent: 0,
        };
        let all = requests.len() + P::helpers(&P::Options::default());
        let inside: Vec<_> = inside.iter().map(|&(site, mode, n)| (SiteId::new(site), mode, n)).collect();
        let mut out = Out::new(all);
        for id in SiteId::all(all) {
            let setup = Setup::new(requests.len(), P::Options::default());
            let site = Site::new(id, &mut out, |out| Gate::<P>::begin(id, setup, &inside, out));
            let own = inside.iter().filter(|(site, ..)| *site == id);
            system.clients.push(Clients {
                requests: requests.get(id.index()).map_or(Vec::new(), |requests| requests.to_vec()),
                asked: None,
                inside: own.flat_map(|&(_, mode, n)| vec![mode; n as usize]).collect(),
            });
            system.sites.push(site);
            system.collect(id.index(), &mut out);
        }
        system
    }

    fn collect(&mut self, site: usize, out: &mut Out<Gate<P>>) {
        for _ in out.outputs.drain(..) {
            let mode = self.clients[site].asked.take().expect("a site enters only after a request");
            let fence = self.sites[site].stamp();
            let inside: Vec<LockMode> =
                self.clients.iter().flat_map(|clients| clients.inside.clone()).collect();
            assert!(
                mode.fits(inside.iter().copied()),
                "S{} enters in mode {mode} although {inside:?} are inside",
                site + 1
            );
            for &(other, before) in &self.fences {
                assert!(
                    !mode.conflicts(other) || fence > before,
                    "entry in mode {mode} has fence {fence}, an earlier one in mode {other} had {before}"
                );
            }
            self.fences.retain(|&(other, before)| other != mode || before > fence);
            self.fences.push((mode, fence));
            self.fences.sort_unstable();
            self.fences.dedup_by_key(|(mode, _)| *mode);
            self.clients[site].inside.push(mode);
            self.entries += 1;
        }
        let (from, clock) = (SiteId::new(site), self.sites[site].fence());
        self.sent += out.sends.len();
        self.under_way.extend(out.sends.drain(..).map(|(to, message)| (from, to, clock, message)));
        let state = self.sites[site].protocol();
        assert_eq!(state.invariant(), Ok(()), "S{}: {state:?}", site + 1);
    }

    fn nexts(&self, in_order: bool) -> Vec<Next> {
        let mut nexts = Vec::new();
        for (site, clients) in self.clients.iter().enumerate() {
            // An exclusive holder is in the section below, and its site cannot request that section again.
            let free = clients.asked.is_none() && !clients.inside.contains(&Exclusive);
            if free && !clients.requests.is_empty() {
                nexts.push(Next::Asks(site));
            }
            for place in 0..clients.inside.len() {
                if !clients.inside[..place].contains(&clients.inside[place]) {
                    nexts.push(Next::Leaves(site, place));
                }
            }
        }
        let mut pairs = BTreeSet::new();
        for (place, &(from, to, ..)) in self.under_way.iter().enumerate() {
            if pairs.insert((from, to)) || !in_order {
                nexts.push(Next::Arrives(place));
            }
        }
        nexts
    }

    fn step(&mut self, next: Next) {
        let mut out = Out::quiet(self.sites.len());
        let site = match next {
            Next::Asks(site) => {
                let mode = self.clients[site].requests.remove(0);
                self.clients[site].asked = Some(mode);
                self.sites[site].step(&mut out, |gate, out| gate.request(mode, out));
                site
            }
            Next::Leaves(site, place) => {
                let mode = self.clients[site].inside.remove(place);
                self.sites[site].step(&mut out, |gate, out| gate.release(mode, out));
                site
            }
            Next::Arrives(place) => {
                let (from, to, clock, message) = self.under_way.remove(place);
                let state = self.sites[to.index()].protocol();
                assert!(
                    Gate::<P>::is_well_formed(&message, self.sites.len()),
                    "{message} is not well-formed"
                );
                assert!(state.is_expected(from, &message), "{message} from {from} to {to} is not expected");
                self.sites[to.index()].deliver(from, clock, message, &mut out);
                to.index()
            }
        };
        self.collect(site, &mut out);
    }

    fn assert_all_served(&self) {
        let waits = |clients: &&Clients| clients.asked.is_some() || !clients.requests.is_empty();
        let stuck: Vec<_> = self.clients.iter().filter(waits).collect();
        assert!(
            stuck.is_empty(),
            "no message is in transit, and these clients wait: {stuck:?} at {:#?}",
            self.sites
        );
    }

    /// A hash of everything that influences later events.
    fn state(&self) -> u128 {
        let mut under_way: Vec<_> =
            self.under_way.iter().map(|(from, to, clock, message)| (from, to, clock, message)).collect();
        under_way.sort_by_key(|&(from, to, ..)| (from, to));
        let half = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            (salt, &self.sites, &self.clients, &under_way, &self.fences).hash(&mut hasher);
            hasher.finish()
        };
        u128::from(half(1)) << 64 | u128::from(half(2))
    }
}

/// Explores every order of events. Returns the number of states.
fn every_order<P: MutualExclusion>(
    requests: &[&[LockMode]],
    inside: &[(usize, LockMode, u32)],
    in_order: bool,
) -> usize {
    let mut todo = vec![System::<P>::new(requests, inside)];
    let mut seen = HashSet::new();
    while let Some(system) = todo.pop() {
        let nexts = system.nexts(in_order);
        if nexts.is_empty() {
            system.assert_all_served();
        }
        for next in nexts {
            let mut then = system.clone();
            then.step(next);
            if seen.insert(then.state()) {
                todo.push(then);
            }
        }
    }
    seen.len()
}

use LockMode::{Exclusive, Shared};

const fn permit(of: u32) -> LockMode {
    LockMode::Permit { of }
}

/// Explores every mixture of modes where one site requests twice and two request once, and some starts with holders.
/// Returns the number of states.
fn small<P: MutualExclusion>(modes: &[LockMode], in_order: bool) -> usize {
    let mut states = 0;
    for mixture in 0..modes.len().pow(4) {
        let mode = |place: u32| modes[mixture / modes.len().pow(place) % modes.len()];
        let requests: &[&[LockMode]] = &[&[mode(0), mode(1)], &[mode(2)], &[mode(3)]];
        states += every_order::<P>(requests, &[], in_order);
    }
    states += every_order::<P>(&[&[], &[Exclusive], &[Shared]], &[(0, Shared, 2), (2, Shared, 1)], in_order);
    states += every_order::<P>(
        &[&[permit(3)], &[permit(3)], &[]],
        &[(0, permit(3), 2), (2, permit(3), 1)],
        in_order,
    );
    states + every_order::<P>(&[&[Shared], &[], &[permit(2)]], &[(1, Exclusive, 1)], in_order)
}

#[test]
fn gate_over_path_reversal_is_safe_and_live_in_every_order() {
    let states = small::<NaimiTrehel>(&[Exclusive, Shared, permit(1), permit(2)], false);
    assert!(states > 100_000, "{states} states");
}

#[test]
fn gate_over_permissions_is_safe_and_live_in_every_order() {
    let states = small::<RicartAgrawala>(&[Exclusive, Shared, permit(2)], true);
    assert!(states > 100_000, "{states} states");
}

#[test]
fn gate_over_a_separate_coordinator_is_safe_and_live_in_every_order() {
    let states = small::<Centralized>(&[Exclusive, Shared, permit(1), permit(2)], true);
    assert!(states > 100_000, "{states} states");
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }
}

/// The modes from which the requests of one random run are drawn.
const MIXTURES: [&[LockMode]; 3] =
    [&[Exclusive, Shared, Shared, permit(2), permit(3)], &[Shared, Shared, Exclusive], &[permit(3)]];

fn random_runs<P: MutualExclusion>(in_order: bool) {
    let runs = std::env::var("LOCKKEEPER_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(300);
    let mut together = BTreeSet::new();
    for seed in 1..=runs {
        let mut random = Random(u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15));
        let modes = MIXTURES[random.below(MIXTURES.len())];
        let sites = 2 + random.below(4);
        let requests: Vec<Vec<LockMode>> = (0..sites)
            .map(|_| (0..random.below(8)).map(|_| modes[random.below(modes.len())]).collect())
            .collect();
        let requests: Vec<&[LockMode]> = requests.iter().map(Vec::as_slice).collect();
        let all: usize = requests.iter().map(|requests| requests.len()).sum();
        let mut system = System::<P>::new(&requests, &[]);
        loop {
            let nexts = system.nexts(in_order);
            if nexts.is_empty() {
                break;
            }
            system.step(nexts[random.below(nexts.len())]);
            let inside: usize = system.clients.iter().map(|clients| clients.inside.len()).sum();
            together.insert(inside);
        }
        system.assert_all_served();
        assert_eq!(system.entries, all, "seed {seed}");
        if let Some(most) = Gate::<P>::most_messages(sites, &Options::default()) {
            assert!(system.sent <= most * all, "seed {seed}: {} messages for {all} entries", system.sent);
        }
    }
    assert!(together.contains(&5), "numbers of holders inside together: {together:?}");
}

#[test]
fn gate_over_every_family_is_safe_and_live_in_random_orders() {
    random_runs::<NaimiTrehel>(false);
    random_runs::<RicartAgrawala>(false);
    random_runs::<SuzukiKasami>(false);
    random_runs::<Maekawa>(true);
    random_runs::<Centralized>(true);
    random_runs::<TokenRingParked>(true);
}

/// The cost of the gate: nothing for exclusive use, nothing at a registered site, two messages for each recall.
#[test]
fn a_registered_site_enters_without_a_message_until_it_is_recalled() {
    let mut system = System::<NaimiTrehel>::new(&[&[Exclusive], &[Shared; 4], &[Shared, Exclusive]], &[]);
    let settle = |system: &mut System<NaimiTrehel>| {
        while !system.under_way.is_empty() {
            system.step(Next::Arrives(0));
        }
        std::mem::take(&mut system.sent)
    };
    system.step(Next::Asks(0));
    assert_eq!(settle(&mut system), 0, "exclusive at the home site");
    system.step(Next::Leaves(0, 0));
    system.step(Next::Asks(1));
    assert_eq!(settle(&mut system), 2, "REQUEST and TOKEN");
    for inside in 2..=4 {
        system.step(Next::Asks(1));
        assert_eq!((settle(&mut system), system.clients[1].inside.len()), (0, inside));
    }
    system.step(Next::Asks(2));
    assert_eq!(settle(&mut system), 3, "REQUEST, forwarded once, and TOKEN: two sites share");
    system.step(Next::Leaves(2, 0));
    system.step(Next::Asks(2));
    assert_eq!(settle(&mut system), 1, "RECALL");
    for left in (0..=3).rev() {
        assert_eq!(system.clients[2].inside, []);
        system.step(Next::Leaves(1, 0));
        assert_eq!(settle(&mut system), usize::from(left == 0), "CLEARED when the last holder has left");
    }
    assert_eq!(system.clients[2].inside, [Exclusive]);
}

/// S1 recalls both holders of two permits, and gets one from S3. S2 is recalled again by S3, leaves, and registers
/// again. Only then S1's recall arrives at S2: it is for a registration that is over, and has no effect.
#[test]
fn late_recall_does_not_apply_to_the_next_registration() {
    let two = permit(2);
    let mut system = System::<NaimiTrehel>::new(&[&[two], &[two, two, two], &[two, two]], &[]);
    // Delivers all messages except those from S1 to S2.
    let settle = |system: &mut System<NaimiTrehel>, all: bool| {
        let late = |&(from, to, _, _): &(SiteId, SiteId, u64, Message<NaimiTrehel>)| {
            !all && (from, to) == (SiteId(0), SiteId(1))
        };
        while let Some(place) = system.under_way.iter().position(|sent| !late(sent)) {
            system.step(Next::Arrives(place));
        }
    };
    let inside =
        |system: &System<NaimiTrehel>| system.clients.iter().map(|c| c.inside.len()).collect::<Vec<_>>();
    system.step(Next::Asks(1));
    settle(&mut system, true);
    system.step(Next::Asks(2));
    settle(&mut system, true);
    system.step(Next::Asks(0));
    settle(&mut system, false);
    system.step(Next::Leaves(2, 0));
    settle(&mut system, false);
    assert_eq!(inside(&system), [1, 1, 0]);
    system.step(Next::Asks(2));
    settle(&mut system, false);
    system.step(Next::Leaves(1, 0));
    settle(&mut system, false);
    assert_eq!(inside(&system), [1, 0, 1]);
    system.step(Next::Asks(1));
    settle(&mut system, false);
    system.step(Next::Leaves(2, 0));
    settle(&mut system, false);
    assert_eq!(inside(&system), [1, 1, 0]);
    let late = system.under_way.len();
    settle(&mut system, true);
    let before = system.sent;
    system.step(Next::Leaves(1, 0));
    system.step(Next::Asks(1));
    assert_eq!(
        (late, inside(&system), system.sent - before),
        (1, vec![1, 1, 0], 0),
        "the registration of S2 is still valid"
    );
}
