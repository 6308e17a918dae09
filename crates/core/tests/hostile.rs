//! Sites that receive forged or damaged messages. A driver delivers only messages that [`Validate::is_well_formed`]
//! and [`Validate::is_expected`] accept. With these, no site panics, loops for ever or grows without bound; and no
//! message of a correct site is refused.

use lockkeeper_core::mutex::LARGEST_NUMBER;
use lockkeeper_core::registry::{self, Visitor};
use lockkeeper_core::{ApplicationInput, Mode, MutualExclusion, Out, Setup, Site, SiteId};

/// xorshift64*.
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

#[derive(Clone, Copy, PartialEq)]
enum State {
    Idle,
    Asked,
    Inside,
}

/// All sites of one lock, and the messages in transit, in order for each pair.
struct System<P: MutualExclusion> {
    sites: Vec<Site<P>>,
    stands: Vec<State>,
    under_way: Vec<(SiteId, SiteId, u64, P::Message)>,
    /// Some of the messages that were really sent, encoded.
    seen: Vec<Vec<u8>>,
    out: Out<P>,
    random: Random,
    /// Whether the lock supports shared mode.
    shares: bool,
    /// The number of forged messages that were accepted, and that were refused.
    damaged: (u64, u64),
    entries: u64,
}

impl<P: MutualExclusion> System<P> {
    fn new(sites: usize, seed: u64) -> Self {
        let mut settings = lockkeeper_core::settings::Settings::new([]);
        let mut options = P::options(&mut settings, sites).unwrap();
        if P::helpers(&options) > 0 {
            let coordinator = ("coordinator".into(), "1".into());
            options =
                P::options(&mut lockkeeper_core::settings::Settings::new([coordinator]), sites).unwrap();
        }
        let shares = P::sharing(&options).knows(Mode::Shared);
        let setup = Setup::new(sites, options);
        let mut system = Self {
            sites: Vec::new(),
            stands: vec![State::Idle; sites],
            under_way: Vec::new(),
            seen: Vec::new(),
            out: Out::new(sites),
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            shares,
            damaged: (0, 0),
            entries: 0,
        };
        for id in SiteId::all(sites) {
            let site = Site::new(id, &mut system.out, |out| P::start(id, &setup, out));
            system.sites.push(site);
            system.collect(id);
        }
        system
    }

    fn collect(&mut self, site: SiteId) {
        for _ in self.out.outputs.drain(..) {
            let stands = &mut self.stands[site.index()];
            if *stands == State::Asked {
                *stands = State::Inside;
                self.sites[site.index()].stamp();
                self.entries += 1;
            }
        }
        let fence = self.sites[site.index()].fence();
        let sends = self.out.sends.drain(..).map(|(to, message)| (site, to, fence, message));
        self.under_way.extend(sends);
    }

    /// Requests or releases at a random site.
    fn input(&mut self) {
        let site = self.random.below(self.sites.len());
        let input = match self.stands[site] {
            State::Idle if self.shares && self.random.below(2) == 0 => {
                ApplicationInput::Request(Mode::Shared)
            }
            State::Idle => ApplicationInput::Request(Mode::Exclusive),
            State::Asked => return,
            State::Inside => ApplicationInput::Release,
        };
        self.stands[site] = if self.stands[site] == State::Idle { State::Asked } else { State::Idle };
        self.sites[site].input(input, &mut self.out);
        self.collect(SiteId::new(site));
    }

    /// Delivers the oldest message of a random pair. Returns whether it was accepted.
    fn deliver(&mut self) -> bool {
        if self.under_way.is_empty() {
            return true;
        }
        let any = self.random.below(self.under_way.len());
        let (from, to, ..) = self.under_way[any];
        let oldest = self.under_way.iter().position(|&(f, t, ..)| (f, t) == (from, to)).unwrap();
        let (from, to, fence, message) = self.under_way.remove(oldest);
        if self.seen.len() < 200 {
            self.seen.push(postcard::to_stdvec(&message).unwrap());
        }
        self.arrives(from, to, fence, message)
    }

    /// Delivers a forged message to a random site, from a random sender.
    fn deceive(&mut self) {
        let place = self.random.below(self.seen.len().max(1));
        let mut bytes = self.seen.get(place).cloned().unwrap_or_default();
        if self.random.below(4) > 0 {
            self.damage(&mut bytes);
        }
        let Ok((message, _)) = postcard::take_from_bytes(&bytes) else { return };
        let to = self.random.below(self.sites.len());
        let from = (to + 1 + self.random.below(self.sites.len() - 1)) % self.sites.len();
        let fence = [0, self.sites[to].fence(), LARGEST_NUMBER][self.random.below(3)];
        if self.arrives(SiteId::new(from), SiteId::new(to), fence, message) {
            self.damaged.0 += 1;
        } else {
            self.damaged.1 += 1;
        }
    }

    fn arrives(&mut self, from: SiteId, to: SiteId, fence: u64, message: P::Message) -> bool {
        let site = &mut self.sites[to.index()];
        if !P::is_well_formed(&message, self.stands.len()) || !site.protocol().is_expected(from, &message) {
            return false;
        }
        site.deliver(from, fence, message, &mut self.out);
        self.collect(to);
        true
    }

    fn damage(&mut self, bytes: &mut Vec<u8>) {
        let place = self.random.below(bytes.len().max(1)).min(bytes.len());
        match self.random.below(3) {
            0 => bytes.get_mut(place).into_iter().for_each(|byte| *byte ^= 1 << self.random.below(8)),
            // A varint of up to ten bytes.
            1 => {
                let mut number = vec![0xff; self.random.below(10)];
                number.push(1);
                bytes.splice(place.., number);
            }
            _ => *bytes = (0..self.random.below(12)).map(|_| self.random.next() as u8 % 8).collect(),
        }
    }

    fn size(&self) -> usize {
        self.sites.iter().map(|site| format!("{:?}", site.protocol()).len()).sum()
    }
}

struct Honest;

impl Visitor for Honest {
    type Output = ();

    fn visit<P: MutualExclusion>(self) {
        for seed in 1..=3 {
            let mut system = System::<P>::new(5, seed);
            for step in 0..5_000 {
                if step % 4 == 0 {
                    system.input();
                }
                assert!(
                    system.deliver(),
                    "{}, seed {seed}: a message of a correct site was refused",
                    P::ABOUT.slug
                );
            }
            assert!(system.entries > 20, "{}: {} entries", P::ABOUT.slug, system.entries);
        }
    }
}

struct Attack;

impl Visitor for Attack {
    type Output = ();

    fn visit<P: MutualExclusion>(self) {
        let (mut taken, mut refused) = (0, 0);
        for seed in 1..=40 {
            let mut system = System::<P>::new(3 + seed as usize % 3, seed);
            let start = system.size();
            for step in 0..1_500 {
                if step % 3 == 0 {
                    system.input();
                }
                system.deliver();
                if step % 2 == 0 {
                    system.deceive();
                }
                // Forged tokens multiply the messages in transit. The sites must not store them.
                system.under_way.truncate(500);
            }
            let size = system.size();
            assert!(size < 20 * start + 4_000, "{}, seed {seed}: from {start} to {size}", P::ABOUT.slug);
            taken += system.damaged.0;
            refused += system.damaged.1;
        }
        assert!(taken > 500, "{}: {taken} forged messages were accepted", P::ABOUT.slug);
        let never_wrong = ["token-ring"];
        assert!(refused > 20 || never_wrong.contains(&P::ABOUT.slug), "{}: {refused} refused", P::ABOUT.slug);
    }
}

/// Visits the algorithms that a cluster can run. The others never receive messages from outside.
fn each(mut visit: impl FnMut(&'static str)) {
    for entry in registry::ALL.iter().filter(|entry| entry.about.deadlock_free) {
        visit(entry.about.slug);
    }
}

#[test]
fn messages_of_correct_sites_are_accepted() {
    each(|slug| registry::visit(slug, Honest).unwrap());
}

#[test]
fn accepted_forged_messages_neither_panic_nor_grow_the_state() {
    each(|slug| registry::visit(slug, Attack).unwrap());
}
