//! Tests of [`MutualExclusion::is_wanted`]: under which algorithms the site inside knows that another site waits.

use lockkeeper_core::registry::{self, Visitor};
use lockkeeper_core::settings::Settings;
use lockkeeper_core::{ApplicationInput, Mode, MutualExclusion, Out, Setup, Sharing, Site, SiteId};
use std::collections::VecDeque;

/// The number of deliveries after a request. More than any algorithm needs for one entry; the token of a ring never
/// rests.
const STEPS: usize = 200;

struct System<P: MutualExclusion> {
    sites: Vec<Site<P>>,
    under_way: VecDeque<(SiteId, SiteId, u64, P::Message)>,
    inside: Vec<SiteId>,
    out: Out<P>,
}

impl<P: MutualExclusion> System<P> {
    fn new(setup: &Setup<P::Options>) -> Self {
        let (under_way, inside, out) = (VecDeque::new(), Vec::new(), Out::new(setup.sites));
        let mut system = Self { sites: Vec::new(), under_way, inside, out };
        for id in SiteId::all(setup.sites) {
            let site = Site::new(id, &mut system.out, |out| P::start(id, setup, out));
            system.sites.push(site);
            system.collect(id);
        }
        system
    }

    fn collect(&mut self, site: SiteId) {
        self.inside.extend(self.out.outputs.drain(..).map(|_| site));
        let fence = self.sites[site.index()].fence();
        self.under_way.extend(self.out.sends.drain(..).map(|(to, message)| (site, to, fence, message)));
    }

    /// A site requests, and all messages are delivered.
    fn asks(&mut self, site: SiteId) {
        self.sites[site.index()].input(ApplicationInput::Request(Mode::Exclusive), &mut self.out);
        self.collect(site);
        for _ in 0..STEPS {
            let Some((from, to, fence, message)) = self.under_way.pop_front() else { return };
            self.sites[to.index()].deliver(from, fence, message, &mut self.out);
            self.collect(to);
        }
    }
}

/// Returns whether the site inside knows that another waits; `None` if the lock admits several holders.
struct Knows;

impl Visitor for Knows {
    type Output = Option<bool>;

    fn visit<P: MutualExclusion>(self) -> Option<bool> {
        let sites = 3;
        let mut options = P::options(&mut Settings::new([]), sites).unwrap();
        if P::helpers(&options) > 0 {
            let at_a_site = ("coordinator".into(), "1".into());
            options = P::options(&mut Settings::new([at_a_site]), sites).unwrap();
        }
        if P::sharing(&options) != Sharing::Mutex {
            return None;
        }
        // S1 is the home site or the coordinator. S2 and S3 are neither, so they know only what they receive in
        // messages.
        let (holder, other) = (SiteId::new(1), SiteId::new(2));
        let mut system = System::<P>::new(&Setup::new(sites, options));
        system.asks(holder);
        let slug = P::ABOUT.slug;
        assert_eq!(system.inside, [holder], "{slug}");
        assert!(!system.sites[1].protocol().is_wanted(), "{slug}: no site waits");
        system.asks(other);
        assert_eq!(system.inside, [holder], "{slug}");
        Some(system.sites[1].protocol().is_wanted())
    }
}

#[test]
fn is_wanted_is_true_where_requests_reach_the_holder() {
    let served = registry::ALL.iter().filter(|entry| entry.about.deadlock_free);
    let (mut know, mut do_not) = (Vec::new(), Vec::new());
    for slug in served.map(|entry| entry.about.slug) {
        match registry::visit(slug, Knows).expect("the slug is of the registry") {
            Some(true) => know.push(slug),
            Some(false) => do_not.push(slug),
            None => {}
        }
    }
    let by_permission =
        ["lamport", "lamport-suppressed", "ricart-agrawala", "roucairol-carvalho", "lodha-kshemkalyani"];
    let by_token = ["token-ring-parked", "suzuki-kasami", "raymond", "naimi-trehel", "neilsen-mizuno"];
    assert_eq!(know, [by_permission, by_token].concat());
    // The others send requests to a coordinator or to arbiters, wait for a token that arrives anyway, or read tickets.
    let never = [
        "centralized",
        "centralized-failover",
        "bakery-messages",
        "token-ring",
        "token-ring-recovering",
        "misra-ping-pong",
    ];
    assert_eq!(do_not, [&never[..], &["maekawa", "majority", "tree-quorum"]].concat());
}
