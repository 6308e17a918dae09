//! One lock's algorithm, as one member plays it in one view.

use crate::{Kind, LockName, Words};
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use lockkeeper_core::algorithms::k_mutual_exclusion::{KMutualExclusion, Options as Permits};
use lockkeeper_core::algorithms::readers_writers::ReadersWriters;
use lockkeeper_core::mutex::Settings;
use lockkeeper_core::{Ask, Holder, Mode, MutualExclusion, Out, Setup, Site, SiteId};

/// A message on its way: from site to site, with the sender's fence clock.
#[derive(Debug)]
pub(crate) struct Sent<W> {
    pub from: SiteId,
    pub to: SiteId,
    pub clock: u64,
    pub words: W,
}

/// What steps of an instance did.
#[derive(Debug)]
pub(crate) struct Steps<M> {
    /// Which slots entered, with their stamps.
    pub entered: Vec<(usize, u64)>,
    pub sends: Vec<Sent<Words<M>>>,
}

impl<M> Default for Steps<M> {
    fn default() -> Self {
        Self { entered: Vec::new(), sends: Vec::new() }
    }
}

/// What happens to one site.
enum Happening<Q: MutualExclusion> {
    Input(Ask),
    Message { from: SiteId, clock: u64, message: Q::Message },
}

/// The sites that one member plays for one lock: one, or one for each permit that it can have. A message between two of them
/// never leaves the member.
#[derive(Clone, Debug)]
pub(crate) struct Sites<Q: MutualExclusion> {
    sites: Vec<Site<Q>>,
    first: usize,
    all: usize,
}

impl<Q: MutualExclusion> Sites<Q> {
    fn start<M>(
        place: usize,
        slots: usize,
        setup: &Setup<Q::Options>,
        steps: &mut Steps<M>,
        wrap: fn(Q::Message) -> Words<M>,
    ) -> Self {
        let mut sites = Self { sites: Vec::with_capacity(slots), first: place * slots, all: setup.sites };
        let mut out = Out::new(setup.sites);
        for slot in 0..slots {
            let id = SiteId::new(sites.first + slot);
            sites.sites.push(Site::new(id, &mut out, |out| Q::start(id, setup, out)));
            sites.collect(slot, &mut out, &mut VecDeque::new(), steps, wrap);
        }
        sites
    }

    /// One step, and the steps that its messages to this member's other sites cause.
    fn step<M>(
        &mut self,
        slot: usize,
        happening: Happening<Q>,
        steps: &mut Steps<M>,
        wrap: fn(Q::Message) -> Words<M>,
    ) {
        let mut out = Out::new(self.all);
        let mut todo = VecDeque::from([(slot, happening)]);
        while let Some((slot, happening)) = todo.pop_front() {
            let site = &mut self.sites[slot];
            match happening {
                Happening::Input(ask) => site.input(ask, &mut out),
                Happening::Message { from, clock, message } => site.deliver(from, clock, message, &mut out),
            }
            self.collect(slot, &mut out, &mut todo, steps, wrap);
        }
    }

    fn collect<M>(
        &mut self,
        slot: usize,
        out: &mut Out<Q>,
        todo: &mut VecDeque<(usize, Happening<Q>)>,
        steps: &mut Steps<M>,
        wrap: fn(Q::Message) -> Words<M>,
    ) {
        // No timer runs here: nobody is suspected inside a view. Only a message that no correct member sends could arm one.
        out.timers.clear();
        let (from, own) = (SiteId::new(self.first + slot), self.first..self.first + self.sites.len());
        for _ in out.outputs.drain(..) {
            steps.entered.push((slot, self.sites[slot].stamp()));
        }
        let clock = self.sites[slot].fence();
        for (to, message) in out.sends.drain(..) {
            if own.contains(&to.index()) {
                todo.push_back((to.index() - self.first, Happening::Message { from, clock, message }));
            } else {
                steps.sends.push(Sent { from, to, clock, words: wrap(message) });
            }
        }
    }
}

/// An instance of whichever algorithm serves the kind of lock.
#[derive(Clone, Debug)]
pub(crate) enum Instance<P: MutualExclusion> {
    Mutex(Sites<P>),
    ReadersWriters(Sites<ReadersWriters>),
    Semaphore(Sites<KMutualExclusion>),
}

/// Where an instance starts.
pub(crate) struct Start<'a> {
    pub lock: &'a LockName,
    /// How many members the view has.
    pub members: usize,
    /// This member's place among them.
    pub place: usize,
    /// Who holds the lock: place, mode, units.
    pub holders: Vec<(usize, Mode, u32)>,
    pub settings: &'a [(String, String)],
}

impl Start<'_> {
    fn setup<O>(&self, slots: usize, options: O) -> Setup<O> {
        let mut setup = Setup::new(self.members * slots, options);
        setup.home = SiteId::new(self.lock.home(self.members) * slots);
        for &(place, mode, units) in &self.holders {
            for unit in 0..(units as usize).min(slots) {
                setup.holders.push(Holder { site: SiteId::new(place * slots + unit), mode });
            }
        }
        setup
    }
}

impl<P: MutualExclusion> Instance<P> {
    pub fn start(start: &Start<'_>, steps: &mut Steps<P::Message>) -> Self {
        let slots = slots(start.lock.kind);
        match start.lock.kind {
            Kind::Mutex => {
                let home = start.lock.home(start.members);
                let options = options::<P>(start.settings, start.members, home)
                    .expect("the settings were read for this many members when the view was accepted");
                let setup = start.setup(slots, options);
                Self::Mutex(Sites::start(start.place, slots, &setup, steps, Words::Mutex))
            }
            Kind::ReadersWriters => {
                let setup = start.setup(slots, ());
                Self::ReadersWriters(Sites::start(start.place, slots, &setup, steps, Words::ReadersWriters))
            }
            Kind::Semaphore(_) => {
                let setup = start.setup(slots, Permits { k: slots });
                Self::Semaphore(Sites::start(start.place, slots, &setup, steps, Words::Semaphore))
            }
        }
    }

    pub fn input(&mut self, slot: usize, ask: Ask, steps: &mut Steps<P::Message>) {
        match self {
            Self::Mutex(sites) => sites.step(slot, Happening::Input(ask), steps, Words::Mutex),
            Self::ReadersWriters(sites) => {
                sites.step(slot, Happening::Input(ask), steps, Words::ReadersWriters);
            }
            Self::Semaphore(sites) => sites.step(slot, Happening::Input(ask), steps, Words::Semaphore),
        }
    }

    /// A message arrives. One that is not for this kind of lock, or for no site of this member, or that no site can have sent, is
    /// refused.
    pub fn message(&mut self, sent: Sent<Words<P::Message>>, steps: &mut Steps<P::Message>) -> bool {
        fn step<Q: MutualExclusion, M>(
            sites: &mut Sites<Q>,
            sent: (SiteId, SiteId, u64),
            message: Q::Message,
            steps: &mut Steps<M>,
            wrap: fn(Q::Message) -> Words<M>,
        ) -> bool {
            let (from, to, clock) = sent;
            let slot = to.index().checked_sub(sites.first).filter(|&slot| slot < sites.sites.len());
            let Some(slot) = slot.filter(|_| from.index() < sites.all) else { return false };
            let awaited = sites.sites[slot].protocol().awaits(from, &message);
            if !awaited || !Q::plausible(&message, sites.all) {
                return false;
            }
            sites.step(slot, Happening::Message { from, clock, message }, steps, wrap);
            true
        }
        let way = (sent.from, sent.to, sent.clock);
        match (self, sent.words) {
            (Self::Mutex(sites), Words::Mutex(message)) => step(sites, way, message, steps, Words::Mutex),
            (Self::ReadersWriters(sites), Words::ReadersWriters(message)) => {
                step(sites, way, message, steps, Words::ReadersWriters)
            }
            (Self::Semaphore(sites), Words::Semaphore(message)) => {
                step(sites, way, message, steps, Words::Semaphore)
            }
            // What was to be done is done: there is an instance.
            (Self::Mutex(_), Words::Wake) => true,
            _ => false,
        }
    }

    /// The stamp of one more entry under a right that the slot has already.
    pub fn stamp(&mut self, slot: usize) -> u64 {
        match self {
            Self::Mutex(sites) => sites.sites[slot].stamp(),
            Self::ReadersWriters(sites) => sites.sites[slot].stamp(),
            Self::Semaphore(sites) => sites.sites[slot].stamp(),
        }
    }
}

/// How many sites one member plays for a lock of this kind. A member may have every permit of a semaphore.
pub(crate) fn slots(kind: Kind) -> usize {
    match kind {
        Kind::Mutex | Kind::ReadersWriters => 1,
        Kind::Semaphore(permits) => permits.max(1) as usize,
    }
}

/// The algorithm's options for so many members. Where it wants a coordinator apart, each lock's home plays it.
pub(crate) fn options<P: MutualExclusion>(
    settings: &[(String, String)],
    members: usize,
    home: usize,
) -> Result<P::Options, String> {
    let read = |settings: &[(String, String)]| {
        let mut settings = Settings::new(settings.iter().cloned());
        let options = P::options(&mut settings, members)?;
        settings.nothing_left()?;
        Ok::<_, String>(options)
    };
    let options = read(settings)?;
    if P::helpers(&options) == 0 {
        return Ok(options);
    }
    let mut at_home = settings.to_vec();
    at_home.push(("coordinator".into(), format!("{}", home + 1)));
    read(&at_home)
}
