//! The sites of a system and their steps, without time.
//!
//! A [`World`] has no notion of delays: its driver chooses the next event, and the world executes it. The
//! simulator chooses by virtual time. The effects of a step are left in [`World::effects`]. The world knows
//! what every algorithm has in common: phases, modes, crashes, tokens. The algorithm itself is behind
//! [`Sites`]. The checker does not use a world, since it stores the state of each site apart; see
//! [`crate::checker::mutual_exclusion::mutex`].

use crate::algorithm::{Configured, Effects, MessageId, Sites, State, TimerId};
use lockkeeper_core::{ApplicationInput, Mode, Phase, Setup, Sharing, SiteId};
use std::fmt::Display;

/// The sites of a system.
pub struct World {
    sites: Box<dyn Sites>,
    sharing: Sharing,
    phases: Vec<Phase>,
    /// The mode of each site's last request.
    modes: Vec<Mode>,
    up: Vec<bool>,
    /// Number of restarts of each site.
    incarnations: Vec<u32>,
    /// Number of tokens at each site.
    tokens_at: Vec<u32>,
    tokens: i64,
    /// The effects of the last step.
    pub effects: Effects,
}

/// The result of a step, apart from its [`Effects`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The fence of the entry, if the site entered.
    pub entered: Option<u64>,
    /// Whether the site entered without a request, or twice: the algorithm is broken.
    pub uninvited: bool,
}

impl World {
    /// A system in its initial state. `started` is called for each site after its start.
    ///
    /// # Panics
    /// If the initial holders cannot be inside together; check with [`Sharing::check`] first.
    pub fn new(
        algorithm: &dyn Configured,
        setup: &Setup<()>,
        mut started: impl FnMut(SiteId, &Effects),
    ) -> Self {
        let processes = setup.sites + algorithm.helpers();
        let sharing = algorithm.sharing();
        if let Err(why) = sharing.check(&setup.holders) {
            panic!("{why}");
        }
        let mut world = Self {
            sites: algorithm.sites(setup),
            sharing,
            phases: vec![Phase::Idle; processes],
            modes: vec![Mode::Exclusive; processes],
            up: vec![true; processes],
            incarnations: vec![0; processes],
            tokens_at: vec![0; processes],
            tokens: 0,
            effects: Effects::default(),
        };
        for id in SiteId::all(processes) {
            world.sites.start(id, 0, &mut world.effects);
            world.count_tokens(id);
            started(id, &world.effects);
        }
        // A holder at the start counts as an entry before all others.
        for holder in &setup.holders {
            let index = holder.site.index();
            world.sites.stamp(holder.site);
            world.phases[index] = Phase::Inside;
            world.modes[index] = holder.mode;
        }
        world
    }

    /// Number of processes: the sites, and helpers such as a separate coordinator.
    pub fn processes(&self) -> usize {
        self.phases.len()
    }

    /// The modes that may be inside together.
    pub fn sharing(&self) -> Sharing {
        self.sharing
    }

    /// The state of a site.
    pub fn state(&self, site: SiteId) -> &dyn State {
        self.sites.state(site)
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

    /// The text of a message under way.
    pub fn message(&self, message: MessageId) -> &dyn Display {
        self.sites.message(message)
    }

    /// Duplicates a message under way.
    pub fn copy(&mut self, message: MessageId) -> MessageId {
        self.sites.copy(message)
    }

    /// A message under way is lost.
    pub fn discard(&mut self, message: MessageId) {
        self.sites.discard(message);
    }

    /// The armed timers of a site, in the order of the algorithm's timers.
    pub fn armed(&self, site: SiteId) -> Vec<TimerId> {
        self.sites.armed(site)
    }

    /// A site requests, in a mode that the lock [knows](Sharing::knows). It must be idle.
    pub fn request(&mut self, site: SiteId, mode: Mode) -> Step {
        self.phases[site.index()] = Phase::Waiting;
        self.modes[site.index()] = mode;
        self.sites.input(site, ApplicationInput::Request(mode), &mut self.effects);
        self.stepped(site)
    }

    /// A site leaves. It must be inside.
    pub fn release(&mut self, site: SiteId) -> Step {
        self.phases[site.index()] = Phase::Idle;
        self.sites.input(site, ApplicationInput::Release, &mut self.effects);
        self.stepped(site)
    }

    /// A message arrives, with the fence clock that its sender had.
    #[inline]
    pub fn deliver(&mut self, message: MessageId, from: SiteId, to: SiteId, fence: u64) -> Step {
        self.sites.deliver(message, from, to, fence, &mut self.effects);
        self.stepped(to)
    }

    /// A timer of a site expires; `None` if it is no longer armed.
    pub fn timer(&mut self, site: SiteId, timer: TimerId) -> Option<Step> {
        let expired = self.sites.timer(site, timer, &mut self.effects);
        expired.then(|| self.stepped(site))
    }

    /// A site's failure detector suspects another.
    pub fn suspect(&mut self, site: SiteId, suspect: SiteId) -> Step {
        self.sites.suspect(site, suspect, &mut self.effects);
        self.stepped(site)
    }

    /// A site crashes and loses its state and timers.
    pub fn crash(&mut self, site: SiteId) {
        self.stop(site);
        self.sites.disarm(site);
    }

    /// Replaces the state of an idle site by an initial one. Its timers stay armed.
    pub fn forget(&mut self, id: SiteId) {
        self.stop(id);
        self.restart(id);
    }

    fn stop(&mut self, site: SiteId) {
        self.up[site.index()] = false;
        self.phases[site.index()] = Phase::Idle;
        self.tokens -= i64::from(self.tokens_at[site.index()]);
        self.tokens_at[site.index()] = 0;
    }

    /// A crashed site starts again with an initial state. It has forgotten requests and promises, and does
    /// not bring a token back.
    pub fn restart(&mut self, id: SiteId) {
        self.incarnations[id.index()] += 1;
        self.sites.start(id, self.incarnations[id.index()], &mut self.effects);
        self.count_tokens(id);
        self.up[id.index()] = true;
    }

    #[inline]
    fn stepped(&mut self, id: SiteId) -> Step {
        self.count_tokens(id);
        let entries = self.effects.entries;
        if entries == 0 {
            return Step::default();
        }
        let uninvited = self.phases[id.index()] != Phase::Waiting || entries > 1;
        self.phases[id.index()] = Phase::Inside;
        Step { entered: Some(self.effects.fence), uninvited }
    }

    #[inline]
    fn count_tokens(&mut self, id: SiteId) {
        let before = std::mem::replace(&mut self.tokens_at[id.index()], self.effects.tokens);
        self.tokens += i64::from(self.effects.tokens) - i64::from(before);
    }
}
