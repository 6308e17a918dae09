//! The sites of a system and their steps, without time.
//!
//! A [`World`] has no notion of delays: its driver chooses the next event, and the world executes it. The
//! simulator chooses by virtual time. The effects of a step are left in [`World::out`]. The checker does not
//! use a world, since it stores the state of each site apart; see [`crate::checker::mutual_exclusion::mutex`].

use lockkeeper_core::{Ask, Mode, MutualExclusion, Out, Phase, Setup, Sharing, Site, SiteId};

/// A message under way, with the fence clock that drivers piggyback on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Envelope<M> {
    /// The sender.
    pub from: SiteId,
    /// The receiver.
    pub to: SiteId,
    /// The sender's fence clock.
    pub fence: u64,
    /// The message.
    pub message: M,
}

/// The sites of a system.
#[derive(Debug)]
pub struct World<P: MutualExclusion> {
    setup: Setup<P::Options>,
    sites: Vec<Site<P>>,
    sharing: Sharing,
    phases: Vec<Phase>,
    /// The mode of each site's last request.
    modes: Vec<Mode>,
    up: Vec<bool>,
    /// Number of restarts of each site.
    lives: Vec<u32>,
    tokens: i64,
    /// The effects of the last step.
    pub out: Out<P>,
}

/// The result of a step, apart from the messages that it sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The fence of the entry, if the site entered.
    pub entered: Option<u64>,
    /// Whether the site entered without a request, or twice: the algorithm is broken.
    pub uninvited: bool,
}

impl<P: MutualExclusion> World<P> {
    /// A system in its initial state. `sent` is called for each site after its start, with the messages in
    /// [`World::out`].
    ///
    /// # Panics
    /// If the initial holders cannot be inside together; check with [`Sharing::check`] first.
    pub fn new(setup: Setup<P::Options>, mut sent: impl FnMut(&mut Self, SiteId)) -> Self {
        let processes = setup.sites + P::helpers(&setup.options);
        let sharing = P::sharing(&setup.options);
        if let Err(why) = sharing.check(&setup.holders) {
            panic!("{why}");
        }
        let mut world = Self {
            sites: Vec::with_capacity(processes),
            sharing,
            phases: vec![Phase::Idle; processes],
            modes: vec![Mode::Exclusive; processes],
            up: vec![true; processes],
            lives: vec![0; processes],
            tokens: 0,
            out: Out::new(processes),
            setup,
        };
        for id in SiteId::all(processes) {
            let site = Site::new(id, &mut world.out, |out| P::start(id, &world.setup, out));
            world.tokens += i64::from(site.protocol().tokens());
            world.sites.push(site);
            sent(&mut world, id);
        }
        // A holder at the start counts as an entry before all others.
        for holder in &world.setup.holders {
            let index = holder.site.index();
            world.sites[index].stamp();
            world.phases[index] = Phase::Inside;
            world.modes[index] = holder.mode;
        }
        world
    }

    /// Number of processes: the sites, and helpers such as a separate coordinator.
    pub fn processes(&self) -> usize {
        self.sites.len()
    }

    /// The initial configuration.
    pub fn setup(&self) -> &Setup<P::Options> {
        &self.setup
    }

    /// The modes that may be inside together.
    pub fn sharing(&self) -> Sharing {
        self.sharing
    }

    /// The algorithm's state at a site.
    pub fn protocol(&self, site: SiteId) -> &P {
        self.sites[site.index()].protocol()
    }

    /// The fence clock of a site, which is attached to every message.
    pub fn fence(&self, site: SiteId) -> u64 {
        self.sites[site.index()].fence()
    }

    /// The phase of a site, as its application sees it.
    #[inline]
    pub fn phase(&self, site: SiteId) -> Phase {
        self.phases[site.index()]
    }

    /// The mode of the site's last request; if the site is inside, of its hold.
    #[inline]
    pub fn mode(&self, site: SiteId) -> Mode {
        self.modes[site.index()]
    }

    /// Whether a site is running.
    #[inline]
    pub fn is_up(&self, site: SiteId) -> bool {
        self.up[site.index()]
    }

    /// Number of tokens at the sites. The driver counts those in messages.
    pub fn tokens(&self) -> i64 {
        self.tokens
    }

    /// A site requests, in a mode that the lock [knows](Sharing::knows). It must be idle.
    pub fn request(&mut self, site: SiteId, mode: Mode) -> Step {
        self.phases[site.index()] = Phase::Waiting;
        self.modes[site.index()] = mode;
        self.step(site, |site, out| site.input(Ask::Request(mode), out))
    }

    /// A site leaves. It must be inside.
    pub fn release(&mut self, site: SiteId) -> Step {
        self.phases[site.index()] = Phase::Idle;
        self.step(site, |site, out| site.input(Ask::Release, out))
    }

    /// A message arrives.
    #[inline]
    pub fn deliver(&mut self, envelope: Envelope<P::Message>) -> Step {
        let Envelope { from, to, fence, message } = envelope;
        self.step(to, |site, out| site.deliver(from, fence, message, out))
    }

    /// A timer of a site expires.
    pub fn timer(&mut self, site: SiteId, timer: P::Timer) -> Step {
        self.step(site, |site, out| site.timer(timer, out))
    }

    /// A site's failure detector suspects another.
    pub fn suspect(&mut self, site: SiteId, suspect: SiteId) -> Step {
        self.step(site, |site, out| site.suspect(suspect, out))
    }

    /// A site crashes and loses its state.
    pub fn crash(&mut self, site: SiteId) {
        self.up[site.index()] = false;
        self.phases[site.index()] = Phase::Idle;
        self.tokens -= i64::from(self.protocol(site).tokens());
    }

    /// Replaces the state of an idle site by an initial one.
    pub fn forget(&mut self, id: SiteId) {
        self.crash(id);
        self.restart(id);
    }

    /// A crashed site starts again with an initial state. It has forgotten requests and promises, and does
    /// not bring a token back.
    pub fn restart(&mut self, id: SiteId) {
        let elsewhere = id.next_on_ring(self.setup.sites);
        let setup = Setup { holders: Vec::new(), home: elsewhere, ..self.setup.clone() };
        self.lives[id.index()] += 1;
        let life = self.lives[id.index()];
        self.sites[id.index()] = Site::new(id, &mut self.out, |out| P::restart(id, life, &setup, out));
        self.tokens += i64::from(self.protocol(id).tokens());
        self.up[id.index()] = true;
    }

    #[inline]
    fn step(&mut self, id: SiteId, act: impl FnOnce(&mut Site<P>, &mut Out<P>)) -> Step {
        let site = &mut self.sites[id.index()];
        let tokens_before = site.protocol().tokens();
        act(site, &mut self.out);
        self.tokens += i64::from(site.protocol().tokens()) - i64::from(tokens_before);

        let mut step = Step::default();
        for _ in 0..self.out.outputs.len() {
            step.uninvited |= self.phases[id.index()] != Phase::Waiting || step.entered.is_some();
            self.phases[id.index()] = Phase::Inside;
            step.entered = Some(site.stamp());
        }
        step
    }
}
