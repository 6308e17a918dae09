//! The sites of a system and what happens to them, without time.
//!
//! A [`World`] knows nothing of delays: it is told what happens next and takes that step. The simulator
//! decides by virtual time, a checker by trying everything. What a step sends is left in [`World::out`].

use lockkeeper_core::{Ask, Mode, MutualExclusion, Out, Phase, Setup, Sharing, Site, SiteId};

/// A message under way, with what drivers piggyback on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Envelope<M> {
    /// Who sent it.
    pub from: SiteId,
    /// Who gets it.
    pub to: SiteId,
    /// The sender's fence clock.
    pub fence: u64,
    /// What it says.
    pub message: M,
}

/// The sites of a system.
#[derive(Debug)]
pub struct World<P: MutualExclusion> {
    setup: Setup<P::Options>,
    sites: Vec<Site<P>>,
    sharing: Sharing,
    phases: Vec<Phase>,
    /// How each site last asked.
    modes: Vec<Mode>,
    up: Vec<bool>,
    /// How often each site has come back from a crash.
    lives: Vec<u32>,
    tokens: i64,
    /// What the last step left behind.
    pub out: Out<P>,
}

/// What a step did to its site, beside what it sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The fence of the entry, if the site entered.
    pub entered: Option<u64>,
    /// An entry that nobody asked for, or a second one: the algorithm is broken.
    pub uninvited: bool,
}

impl<P: MutualExclusion> World<P> {
    /// A system at its start. What sites send at their start is handed to `sent`.
    ///
    /// # Panics
    /// If the start names holders that cannot be inside together: ask [`Sharing::check`] before.
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
        // Whoever starts inside counts as an entry before all others.
        for holder in &world.setup.holders {
            let index = holder.site.index();
            world.sites[index].stamp();
            world.phases[index] = Phase::Inside;
            world.modes[index] = holder.mode;
        }
        world
    }

    /// How many processes there are: the sites, and helpers such as a coordinator apart.
    pub fn processes(&self) -> usize {
        self.sites.len()
    }

    /// How the system started.
    pub fn setup(&self) -> &Setup<P::Options> {
        &self.setup
    }

    /// Who may be inside together.
    pub fn sharing(&self) -> Sharing {
        self.sharing
    }

    /// The algorithm's state at a site.
    pub fn protocol(&self, site: SiteId) -> &P {
        self.sites[site.index()].protocol()
    }

    /// The fence clock of a site, to be sent along with every message.
    pub fn fence(&self, site: SiteId) -> u64 {
        self.sites[site.index()].fence()
    }

    /// Where a site stands, as the application sees it.
    #[inline]
    pub fn phase(&self, site: SiteId) -> Phase {
        self.phases[site.index()]
    }

    /// How a site last asked: how it is inside, if it is.
    #[inline]
    pub fn mode(&self, site: SiteId) -> Mode {
        self.modes[site.index()]
    }

    /// Whether a site is running.
    #[inline]
    pub fn is_up(&self, site: SiteId) -> bool {
        self.up[site.index()]
    }

    /// How many tokens the sites have; those in messages are the driver's to count.
    pub fn tokens(&self) -> i64 {
        self.tokens
    }

    /// A site asks to enter, in a mode that the lock [knows](Sharing::knows). It must be idle.
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

    /// A timer runs out.
    pub fn timer(&mut self, site: SiteId, timer: P::Timer) -> Step {
        self.step(site, |site, out| site.timer(timer, out))
    }

    /// A site's failure detector suspects another.
    pub fn suspect(&mut self, site: SiteId, suspect: SiteId) -> Step {
        self.step(site, |site, out| site.suspect(suspect, out))
    }

    /// A site stops, and loses what it knew.
    pub fn crash(&mut self, site: SiteId) {
        self.up[site.index()] = false;
        self.phases[site.index()] = Phase::Idle;
        self.tokens -= i64::from(self.protocol(site).tokens());
    }

    /// The state of an idle site is thrown away and made anew, as if the site had never heard of the lock.
    pub fn forget(&mut self, id: SiteId) {
        self.crash(id);
        self.restart(id);
    }

    /// A crashed site starts from scratch, remembering nothing: not who asked, not what it promised. It does
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
