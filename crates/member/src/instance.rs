//! The site of one lock's algorithm at one member in one view: the gate over the cluster's algorithm.

use crate::lock::Effects;
use crate::{LockName, SettingsError};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use lockkeeper_core::algorithms::gate::Gate;
use lockkeeper_core::algorithms::gate_messages::Message;
use lockkeeper_core::settings::Settings;
use lockkeeper_core::{LockMode, MutualExclusion, Out, Setup, Site, SiteId, Validate};

/// A message to be sent, with the sender's fence clock.
#[derive(Clone, Debug)]
pub(crate) struct Sent<W> {
    pub to: SiteId,
    pub clock: u64,
    pub content: W,
}

/// The context that all locks of a view share, so that no lock needs its own copy of the algorithm's options or its
/// own buffer.
#[derive(Clone, Debug)]
pub(crate) struct ViewContext<P: MutualExclusion> {
    /// Number of members of the view.
    pub members: usize,
    /// This member's index among them.
    pub place: usize,
    /// The holders of the lock that is to start: site, mode, number of holds.
    pub holders: Vec<(SiteId, LockMode, u32)>,
    /// Whether the token circulates without requests.
    pub perpetual: bool,
    /// The algorithm's options: one set for all locks, or one for each home if the home plays a separate coordinator.
    options: Vec<P::Options>,
    out: Out<Gate<P>>,
}

impl<P: MutualExclusion> ViewContext<P> {
    /// Creates the context of a view with this many members, in which this member has index `place`.
    pub fn new(settings: &[(String, String)], members: usize, place: usize) -> Result<Self, SettingsError> {
        let first = options::<P>(settings, members.max(1), 0)?;
        let homes = if P::helpers(&first) == 0 { 1 } else { members.max(1) };
        let options = (0..homes).map(|home| options::<P>(settings, members.max(1), home));
        Ok(Self {
            members,
            place,
            holders: Vec::new(),
            perpetual: P::about(&first).perpetual,
            options: options.collect::<Result<_, _>>()?,
            out: Out::quiet(members),
        })
    }

    /// This member's site in every lock.
    pub fn me(&self) -> SiteId {
        SiteId::new(self.place)
    }
}

/// This member's site of one lock.
#[derive(Clone, Debug)]
pub(crate) struct Instance<P: MutualExclusion>(Site<Gate<P>>);

impl<P: MutualExclusion> Instance<P> {
    /// Starts the site, with the holders in `play`.
    pub fn start(name: &LockName, context: &mut ViewContext<P>, effects: &mut Effects<P::Message>) -> Self {
        let (me, home) = (context.me(), crate::ids::home(name, context.members));
        // A single set of options serves all homes.
        let options = context.options[home.min(context.options.len() - 1)].clone();
        let setup = Setup { home: SiteId::new(home), ..Setup::new(context.members, options) };
        let holders = &context.holders;
        let site = Site::new(me, &mut context.out, |out| Gate::begin(me, setup, holders, out));
        let mut instance = Self(site);
        instance.collect(context, effects);
        instance
    }

    /// Requests one more entry.
    pub fn request(
        &mut self,
        mode: LockMode,
        context: &mut ViewContext<P>,
        effects: &mut Effects<P::Message>,
    ) {
        context.out.known_time = self.0.fence();
        self.0.step(&mut context.out, |gate, out| gate.request(mode, out));
        self.collect(context, effects);
    }

    /// Releases an entry.
    pub fn release(
        &mut self,
        mode: LockMode,
        context: &mut ViewContext<P>,
        effects: &mut Effects<P::Message>,
    ) {
        context.out.known_time = self.0.fence();
        self.0.step(&mut context.out, |gate, out| gate.release(mode, out));
        self.collect(context, effects);
    }

    /// Handles a message. Returns `false`, without any effect, if no correct site can have sent it.
    pub fn message(
        &mut self,
        from: SiteId,
        clock: u64,
        message: Message<P::Message>,
        context: &mut ViewContext<P>,
        effects: &mut Effects<P::Message>,
    ) -> bool {
        let makes_sense = from.index() < context.members
            && Gate::<P>::is_well_formed(&message, context.members)
            && self.0.protocol().is_expected(from, &message);
        if makes_sense {
            context.out.known_time = clock.max(self.0.fence());
            self.0.deliver(from, clock, message, &mut context.out);
            self.collect(context, effects);
        }
        makes_sense
    }

    /// The stamp of one more entry while this member is inside.
    pub fn stamp(&mut self) -> u64 {
        self.0.stamp()
    }

    /// Reserves this many stamps for the holder.
    pub fn set_aside(&mut self, stamps: u64) {
        self.0.set_aside(stamps);
    }

    /// Whether another member is known to wait for this one.
    pub fn is_wanted(&self) -> bool {
        self.0.protocol().is_wanted()
    }

    /// Collects the actions of a step. An entry gets its stamp BEFORE messages get their clocks.
    fn collect(&mut self, context: &mut ViewContext<P>, effects: &mut Effects<P::Message>) {
        let out = &mut context.out;
        // No timer runs here: no site is suspected within a view. Only a message that no correct member sends could
        // set one.
        out.timers.clear();
        for _ in out.outputs.drain(..) {
            effects.entered = Some(self.0.stamp());
        }
        let clock = self.0.fence();
        let sends = out.sends.drain(..);
        effects.sends.extend(sends.map(|(to, message)| Sent {
            to,
            clock,
            content: crate::LockContent::Algorithm(message),
        }));
    }
}

/// The algorithm's options for this many members. If it needs a separate coordinator, each lock's home plays it.
pub(crate) fn options<P: MutualExclusion>(
    settings: &[(String, String)],
    members: usize,
    home: usize,
) -> Result<P::Options, SettingsError> {
    let read = |settings: &[(String, String)]| {
        let mut settings = Settings::new(settings.iter().cloned());
        let options = P::options(&mut settings, members);
        let options = options.and_then(|options| settings.nothing_left().map(|()| options));
        options.map_err(|why| SettingsError::Algorithm(why.to_string()))
    };
    let options = read(settings)?;
    if P::helpers(&options) == 0 {
        return Ok(options);
    }
    let mut at_home = settings.to_vec();
    at_home.push(("coordinator".into(), format!("{}", home + 1)));
    read(&at_home)
}
