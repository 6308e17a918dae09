//! Which sites, inside, know that another one waits ([`MutualExclusion::is_wanted`]).

use lockkeeper_core::mutex::Settings;
use lockkeeper_core::registry::{self, Visitor};
use lockkeeper_core::{Ask, Mode, MutualExclusion, Out, Setup, Sharing, Site, SiteId};
use std::collections::VecDeque;

/// More than any of them needs for one entry; the token of a ring travels for ever.
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

    /// A site asks, and all that is said arrives.
    fn asks(&mut self, site: SiteId) {
        self.sites[site.index()].input(Ask::Request(Mode::Exclusive), &mut self.out);
        self.collect(site);
        for _ in 0..STEPS {
            let Some((from, to, fence, message)) = self.under_way.pop_front() else { return };
            self.sites[to.index()].deliver(from, fence, message, &mut self.out);
            self.collect(to);
        }
    }
}

/// Whether the one inside knows; `None` where several may be inside.
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
        // The first site is everybody's home, or coordinator: the others show what it does not tell them.
        let (holder, other) = (SiteId::new(1), SiteId::new(2));
        let mut system = System::<P>::new(&Setup::new(sites, options));
        system.asks(holder);
        let slug = P::ABOUT.slug;
        assert_eq!(system.inside, [holder], "{slug}");
        assert!(!system.sites[1].protocol().is_wanted(), "{slug}: nobody waits");
        system.asks(other);
        assert_eq!(system.inside, [holder], "{slug}");
        Some(system.sites[1].protocol().is_wanted())
    }
}

#[test]
fn whoever_is_inside_knows_who_waits_where_the_algorithm_tells_it() {
    let served = registry::ALL.iter().filter(|entry| entry.about.deadlock_free);
    let (mut know, mut do_not) = (Vec::new(), Vec::new());
    for slug in served.map(|entry| entry.about.slug) {
        match registry::visit(slug, Knows).expect("it is registered") {
            Some(true) => know.push(slug),
            Some(false) => do_not.push(slug),
            None => {}
        }
    }
    let told =
        ["lamport", "lamport-suppressed", "ricart-agrawala", "roucairol-carvalho", "lodha-kshemkalyani"];
    let by_token = ["token-ring-parked", "suzuki-kasami", "raymond", "naimi-trehel", "neilsen-mizuno"];
    assert_eq!(know, [told, by_token].concat());
    // Others ask a coordinator or their arbiters, wait for a token that comes anyway, or look at tickets by themselves.
    let not_told =
        ["centralized", "centralized-failover", "bakery-messages", "token-ring", "token-ring-recovering"];
    assert_eq!(do_not, [&not_told[..], &["maekawa", "majority", "tree-quorum"]].concat());
}
