//! The sites of a system and what happens to them, without time.
//!
//! A [`World`] knows nothing of delays: it is told what happens next and takes that step. The simulator
//! decides by virtual time, a checker by trying everything. What a step sends is left in [`World::out`].

use lockkeeper_core::{Ask, MutualExclusion, Out, Phase, Setup, Site, SiteId};

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
    phases: Vec<Phase>,
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
    pub fn new(setup: Setup<P::Options>, mut sent: impl FnMut(&mut Self, SiteId)) -> Self {
        let processes = setup.sites + P::helpers(&setup.options);
        let mut world = Self {
            sites: Vec::with_capacity(processes),
            phases: SiteId::all(processes).map(|site| setup.phase_of(site)).collect(),
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
        // Whoever starts inside counts as the first entry.
        if let Some(holder) = world.setup.holder {
            world.sites[holder.index()].stamp();
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

    /// Whether a site is running.
    #[inline]
    pub fn is_up(&self, site: SiteId) -> bool {
        self.up[site.index()]
    }

    /// How many tokens the sites have; those in messages are the driver's to count.
    pub fn tokens(&self) -> i64 {
        self.tokens
    }

    /// A site asks to enter. It must be idle.
    pub fn request(&mut self, site: SiteId) -> Step {
        self.phases[site.index()] = Phase::Waiting;
        self.step(site, |site, out| site.input(Ask::Request, out))
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

    /// A crashed site starts from scratch, remembering nothing: not who asked, not what it promised. It does
    /// not bring a token back.
    pub fn restart(&mut self, id: SiteId) {
        let elsewhere = id.next_on_ring(self.setup.sites);
        let setup = Setup { holder: None, home: elsewhere, ..self.setup.clone() };
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
