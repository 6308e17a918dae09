//! One lock's algorithm, as one member plays it in one view.

use crate::lock::Wants;
use crate::{Kind, LockName, Words};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use lockkeeper_core::algorithms::k_mutual_exclusion::{KMutualExclusion, Options as Permits};
use lockkeeper_core::algorithms::readers_writers::ReadersWriters;
use lockkeeper_core::mutex::Settings;
use lockkeeper_core::{Ask, Holder, Mode, MutualExclusion, Out, Setup, Site, SiteId};

/// A message on its way: from site to site, with the sender's fence clock.
#[derive(Clone, Debug)]
pub(crate) struct Sent<W> {
    pub from: SiteId,
    pub to: SiteId,
    pub clock: u64,
    pub words: W,
}

/// What happens to one site.
enum Happening<Q: MutualExclusion> {
    Input(Ask),
    Message { from: SiteId, clock: u64, message: Q::Message },
}

/// What all locks of a view share: no lock has a copy of its own of the algorithm's options, and steps use the same buffers.
#[derive(Clone, Debug)]
pub(crate) struct Play<P: MutualExclusion> {
    /// How many members the view has.
    pub members: usize,
    /// This member's place among them.
    pub place: usize,
    /// Who holds the lock that is to start: place, mode, units.
    pub holders: Vec<(usize, Mode, u32)>,
    /// The algorithm's options: one for all, or one for each home where the home plays a coordinator apart.
    options: Vec<P::Options>,
    mutex: Out<P>,
    readers_writers: Out<ReadersWriters>,
}

impl<P: MutualExclusion> Play<P> {
    pub fn new(settings: &[(String, String)], members: usize, place: usize) -> Result<Self, String> {
        let first = options::<P>(settings, members.max(1), 0)?;
        let homes = if P::helpers(&first) == 0 { 1 } else { members.max(1) };
        let options = (0..homes).map(|home| options::<P>(settings, members.max(1), home));
        Ok(Self {
            members,
            place,
            holders: Vec::new(),
            options: options.collect::<Result<_, _>>()?,
            mutex: Out::new(members),
            readers_writers: Out::new(members),
        })
    }

    fn setup<O>(&self, name: &LockName, slots: usize, options: O) -> Setup<O> {
        let mut setup = Setup::new(self.members * slots, options);
        setup.home = SiteId::new(name.home(self.members) * slots);
        for &(place, mode, units) in &self.holders {
            for unit in 0..(units as usize).min(slots) {
                setup.holders.push(Holder { site: SiteId::new(place * slots + unit), mode });
            }
        }
        setup
    }
}

/// The sites that one member plays for a semaphore: one for each permit that it can have. A message between two of them never
/// leaves the member.
#[derive(Clone, Debug)]
pub(crate) struct Permitted {
    sites: Vec<Site<KMutualExclusion>>,
    first: usize,
    all: usize,
}

impl Permitted {
    fn start<M>(place: usize, slots: usize, setup: &Setup<Permits>, wants: &mut Wants<M>) -> Self {
        let mut sites = Self { sites: Vec::with_capacity(slots), first: place * slots, all: setup.sites };
        let mut out = Out::new(setup.sites);
        for slot in 0..slots {
            let id = SiteId::new(sites.first + slot);
            sites.sites.push(Site::new(id, &mut out, |out| KMutualExclusion::start(id, setup, out)));
            sites.collect(slot, &mut out, &mut VecDeque::new(), wants);
        }
        sites
    }

    /// One step, and the steps that its messages to this member's other sites cause.
    fn step<M>(&mut self, slot: usize, happening: Happening<KMutualExclusion>, wants: &mut Wants<M>) {
        let mut out = Out::new(self.all);
        let mut todo = VecDeque::from([(slot, happening)]);
        while let Some((slot, happening)) = todo.pop_front() {
            happen(&mut self.sites[slot], happening, &mut out);
            self.collect(slot, &mut out, &mut todo, wants);
        }
    }

    fn collect<M>(
        &mut self,
        slot: usize,
        out: &mut Out<KMutualExclusion>,
        todo: &mut VecDeque<(usize, Happening<KMutualExclusion>)>,
        wants: &mut Wants<M>,
    ) {
        let (from, first) = (SiteId::new(self.first + slot), self.first);
        let own = first..first + self.sites.len();
        collect(&mut self.sites[slot], slot, out, wants, |to, clock, message, wants| {
            if own.contains(&to.index()) {
                todo.push_back((to.index() - first, Happening::Message { from, clock, message }));
            } else {
                wants.sends.push(Sent { from, to, clock, words: Words::Semaphore(message) });
            }
        });
    }
}

fn happen<Q: MutualExclusion>(site: &mut Site<Q>, happening: Happening<Q>, out: &mut Out<Q>) {
    match happening {
        Happening::Input(ask) => site.input(ask, out),
        Happening::Message { from, clock, message } => site.deliver(from, clock, message, out),
    }
}

/// Takes out what a step did: entries get their stamps BEFORE messages get their clocks.
fn collect<Q: MutualExclusion, M>(
    site: &mut Site<Q>,
    slot: usize,
    out: &mut Out<Q>,
    wants: &mut Wants<M>,
    mut send: impl FnMut(SiteId, u64, Q::Message, &mut Wants<M>),
) {
    // No timer runs here: nobody is suspected inside a view. Only a message that no correct member sends could arm one.
    out.timers.clear();
    for _ in out.outputs.drain(..) {
        wants.entered.push((slot, site.stamp()));
    }
    let clock = site.fence();
    for (to, message) in out.sends.drain(..) {
        send(to, clock, message, wants);
    }
}

/// The step of a member that plays one site.
fn step<Q: MutualExclusion, M>(
    site: &mut Site<Q>,
    place: usize,
    happening: Happening<Q>,
    out: &mut Out<Q>,
    wants: &mut Wants<M>,
    wrap: fn(Q::Message) -> Words<M>,
) {
    happen(site, happening, out);
    collect_from(site, place, out, wants, wrap);
}

fn collect_from<Q: MutualExclusion, M>(
    site: &mut Site<Q>,
    place: usize,
    out: &mut Out<Q>,
    wants: &mut Wants<M>,
    wrap: fn(Q::Message) -> Words<M>,
) {
    let from = SiteId::new(place);
    collect(site, 0, out, wants, |to, clock, message, wants| {
        wants.sends.push(Sent { from, to, clock, words: wrap(message) });
    });
}

/// An instance of whichever algorithm serves the kind of lock. A cluster has millions of mutexes: the others are boxed.
#[derive(Clone, Debug)]
pub(crate) enum Instance<P: MutualExclusion> {
    Mutex(Site<P>),
    ReadersWriters(Box<Site<ReadersWriters>>),
    Semaphore(Box<Permitted>),
}

impl<P: MutualExclusion> Instance<P> {
    /// The holders are in `play`.
    pub fn start(name: &LockName, play: &mut Play<P>, wants: &mut Wants<P::Message>) -> Self {
        let (slots, place) = (slots(name.kind), play.place);
        let id = SiteId::new(place);
        match name.kind {
            Kind::Mutex => {
                // Where there is one for all, it is the first and the last.
                let home = name.home(play.members).min(play.options.len() - 1);
                let setup = play.setup(name, slots, play.options[home].clone());
                let mut site = Site::new(id, &mut play.mutex, |out| P::start(id, &setup, out));
                collect_from(&mut site, place, &mut play.mutex, wants, Words::Mutex);
                Self::Mutex(site)
            }
            Kind::ReadersWriters => {
                let setup = play.setup(name, slots, ());
                let out = &mut play.readers_writers;
                let mut site = Site::new(id, out, |out| ReadersWriters::start(id, &setup, out));
                collect_from(&mut site, place, out, wants, Words::ReadersWriters);
                Self::ReadersWriters(Box::new(site))
            }
            Kind::Semaphore(_) => {
                let setup = play.setup(name, slots, Permits { k: slots });
                Self::Semaphore(Box::new(Permitted::start(place, slots, &setup, wants)))
            }
        }
    }

    pub fn input(&mut self, slot: usize, ask: Ask, play: &mut Play<P>, wants: &mut Wants<P::Message>) {
        let place = play.place;
        match self {
            Self::Mutex(site) => {
                step(site, place, Happening::Input(ask), &mut play.mutex, wants, Words::Mutex);
            }
            Self::ReadersWriters(site) => {
                let out = &mut play.readers_writers;
                step(site, place, Happening::Input(ask), out, wants, Words::ReadersWriters);
            }
            Self::Semaphore(sites) => sites.step(slot, Happening::Input(ask), wants),
        }
    }

    /// A message arrives. One that is not for this kind of lock, or for no site of this member, or that no site can have sent, is
    /// refused.
    pub fn message(
        &mut self,
        sent: Sent<Words<P::Message>>,
        play: &mut Play<P>,
        wants: &mut Wants<P::Message>,
    ) -> bool {
        let Sent { from, to, clock, words } = sent;
        let (place, members) = (play.place, play.members);
        let ours = to.index() == place && from.index() < members;
        match (self, words) {
            (Self::Mutex(site), Words::Mutex(message))
                if ours && makes_sense(site, from, &message, members) =>
            {
                let happening = Happening::Message { from, clock, message };
                step(site, place, happening, &mut play.mutex, wants, Words::Mutex);
                true
            }
            (Self::ReadersWriters(site), Words::ReadersWriters(message))
                if ours && makes_sense(site, from, &message, members) =>
            {
                let happening = Happening::Message { from, clock, message };
                step(site, place, happening, &mut play.readers_writers, wants, Words::ReadersWriters);
                true
            }
            (Self::Semaphore(sites), Words::Semaphore(message)) if from.index() < sites.all => {
                let slot = to.index().checked_sub(sites.first).filter(|&slot| {
                    let site = sites.sites.get(slot);
                    site.is_some_and(|site| makes_sense(site, from, &message, sites.all))
                });
                if let Some(slot) = slot {
                    sites.step(slot, Happening::Message { from, clock, message }, wants);
                }
                slot.is_some()
            }
            // What was to be done is done: there is an instance.
            (Self::Mutex(_), Words::Wake) => true,
            _ => false,
        }
    }

    /// The stamp of one more entry under a right that the slot has already.
    pub fn stamp(&mut self, slot: usize) -> u64 {
        match self {
            Self::Mutex(site) => site.stamp(),
            Self::ReadersWriters(site) => site.stamp(),
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

/// Whether a correct site can have said this to the site, as it stands.
fn makes_sense<Q: MutualExclusion>(site: &Site<Q>, from: SiteId, message: &Q::Message, sites: usize) -> bool {
    Q::plausible(message, sites) && site.protocol().awaits(from, message)
}
