//! An algorithm as a value: the place where the types of the algorithms end.
//!
//! The rest of the lab is compiled once, and not once for each of some eighty algorithms and mutants. It selects an
//! [`Algorithm`] by its name, makes it [`Configured`] with its options, and runs it behind two interfaces:
//!
//! | module | contents |
//! |---|---|
//! | [`sites`] | [`Sites`], all sites of a simulated system: fast, messages are numbers |
//! | [`state`] | [`State`], one site that is stored, compared and stepped alone, for the checker |
//! | [`value`] | [`Message`] and [`Timer`], single messages and timers, for the checker |
//!
//! This module is compiled for each algorithm, so it only delegates. It is part of the lab and not of `core`, so that
//! programs without the lab do not compile it.

pub mod sites;
pub mod state;
pub mod value;

pub use sites::{Effects, MessageId, Outgoing, Sites, TimerId};
pub use state::{Actions, Event, State};
pub(crate) use state::{actions, stepped};
pub use value::{Message, Timer};

use crate::mutants;
use lockkeeper_core::registry::{self, Visitor};
use lockkeeper_core::settings::{OptionsError, Settings};
use lockkeeper_core::{
    About, Entered, Expected, Load, MessageKind, MessageKinds, MutualExclusion, Out, Rules, Setup, Sharing,
    Site, SiteId, Stamp,
};
use sites::SitesOf;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// A mutual exclusion algorithm.
pub trait Algorithm: fmt::Debug + Send + Sync {
    /// The description of the algorithm; for a mutant, that of its twin.
    fn about(&self) -> &'static About;

    /// The kinds of messages.
    fn kinds(&self) -> &'static [MessageKind];

    /// The sentence of the rule with this index; `None` after the last one.
    fn rule(&self, index: usize) -> Option<&'static str>;

    /// The name of the rule with this index; `None` after the last one.
    fn rule_name(&self, index: usize) -> Option<&'static str>;

    /// See [`MutualExclusion::SURVIVES_CRASHES`].
    fn survives_crashes(&self) -> bool;

    /// See [`MutualExclusion::SURVIVES_A_LOSS`].
    fn survives_a_loss(&self) -> bool;

    /// See [`MutualExclusion::HAS_CLOCKS`].
    fn has_clocks(&self) -> bool;

    /// See [`lockkeeper_core::PaperFigures::in_timestamp_order`].
    fn in_timestamp_order(&self) -> bool;

    /// See [`lockkeeper_core::Inspect::scales`].
    fn scales(&self, sites: usize) -> usize;

    /// See [`lockkeeper_core::Inspect::is_symmetric`].
    fn is_symmetric(&self) -> bool;

    /// The algorithm with its default options.
    fn with_defaults(&self) -> Arc<dyn Configured>;

    /// The algorithm with the options that it takes from the settings.
    fn configure(&self, settings: &mut Settings, sites: usize) -> Result<Arc<dyn Configured>, OptionsError>;
}

impl dyn Algorithm + '_ {
    /// The sentences of all rules.
    pub fn rules(&self) -> Vec<&'static str> {
        (0..).map_while(|index| self.rule(index)).collect()
    }
}

/// An algorithm with its options.
pub trait Configured: Send + Sync {
    /// The algorithm.
    fn algorithm(&self) -> &'static dyn Algorithm;

    /// See [`MutualExclusion::helpers`].
    fn helpers(&self) -> usize;

    /// See [`MutualExclusion::sharing`].
    fn sharing(&self) -> Sharing;

    /// See [`lockkeeper_core::PaperFigures::expected`].
    fn expected(&self, load: Load, sites: usize) -> Expected;

    /// See [`lockkeeper_core::PaperFigures::most_messages`].
    fn most_messages(&self, sites: usize) -> Option<usize>;

    /// See [`lockkeeper_core::PaperFigures::unreachable_labels`].
    fn unreachable_labels(&self) -> &'static [&'static str];

    /// A system for the simulator. Its sites are not started.
    fn sites(&self, setup: &Setup<()>) -> Box<dyn Sites>;

    /// One site for the checker, after `incarnation` restarts; see [`Sites::start`].
    fn start(&self, me: SiteId, incarnation: u32, setup: &Setup<()>) -> (Arc<dyn State>, Actions<Entered>);

    /// Number of tokens in the message.
    fn tokens_in(&self, message: &Message) -> u32;

    /// The message after a visit of its relative integers; see [`lockkeeper_core::Inspect::numbers_in`].
    fn numbers_in(&self, from: SiteId, message: &Message, visit: &mut dyn FnMut(usize, &mut u64)) -> Message;

    /// The message after a visit of its times and tickets; see [`lockkeeper_core::Inspect::stamps_in`].
    fn stamps_in(&self, from: SiteId, message: &Message, visit: &mut dyn FnMut(Stamp<'_>)) -> Message;
}

/// The value of an algorithm that is given as a type.
pub const fn of<P: MutualExclusion>() -> &'static dyn Algorithm {
    &Typed::<P>(PhantomData)
}

/// The value of an algorithm that is given as a type, with its options.
pub fn with<P: MutualExclusion>(options: P::Options) -> Arc<dyn Configured> {
    Arc::new(WithOptions::<P>(options))
}

/// The algorithm of the registry with this name.
pub fn find(name: &str) -> Option<&'static dyn Algorithm> {
    struct OfType;
    impl Visitor for OfType {
        type Output = &'static dyn Algorithm;

        fn visit<P: MutualExclusion>(self) -> Self::Output {
            of::<P>()
        }
    }
    registry::visit(name, OfType)
}

/// The algorithm of the registry or the mutant with this name; the names are distinct.
pub fn find_with_mutants(name: &str) -> Option<&'static dyn Algorithm> {
    let mutant = || mutants::ALL.iter().find(|mutant| mutant.name == name);
    find(name).or_else(|| mutant().map(|mutant| mutant.algorithm))
}

struct Typed<P>(PhantomData<fn() -> P>);

impl<P: MutualExclusion> fmt::Debug for Typed<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(P::ABOUT.slug)
    }
}

impl<P: MutualExclusion> Algorithm for Typed<P> {
    fn about(&self) -> &'static About {
        const { &P::ABOUT }
    }

    fn kinds(&self) -> &'static [MessageKind] {
        P::Message::KINDS
    }

    fn rule(&self, index: usize) -> Option<&'static str> {
        P::Rule::ALL.get(index).map(|rule| rule.sentence())
    }

    fn rule_name(&self, index: usize) -> Option<&'static str> {
        P::Rule::ALL.get(index).map(|rule| rule.name())
    }

    fn survives_crashes(&self) -> bool {
        P::SURVIVES_CRASHES
    }

    fn survives_a_loss(&self) -> bool {
        P::SURVIVES_A_LOSS
    }

    fn has_clocks(&self) -> bool {
        P::HAS_CLOCKS
    }

    fn in_timestamp_order(&self) -> bool {
        P::in_timestamp_order()
    }

    fn scales(&self, sites: usize) -> usize {
        P::scales(sites)
    }

    fn is_symmetric(&self) -> bool {
        P::is_symmetric()
    }

    fn with_defaults(&self) -> Arc<dyn Configured> {
        with::<P>(P::Options::default())
    }

    fn configure(&self, settings: &mut Settings, sites: usize) -> Result<Arc<dyn Configured>, OptionsError> {
        P::options(settings, sites).map(with::<P>)
    }
}

struct WithOptions<P: MutualExclusion>(P::Options);

impl<P: MutualExclusion> WithOptions<P> {
    fn setup(&self, setup: &Setup<()>) -> Setup<P::Options> {
        let Setup { sites, home, ref holders, ref clocks, options: () } = *setup;
        Setup { sites, home, holders: holders.clone(), clocks: clocks.clone(), options: self.0.clone() }
    }
}

impl<P: MutualExclusion> Configured for WithOptions<P> {
    fn algorithm(&self) -> &'static dyn Algorithm {
        of::<P>()
    }

    fn helpers(&self) -> usize {
        P::helpers(&self.0)
    }

    fn sharing(&self) -> Sharing {
        P::sharing(&self.0)
    }

    fn expected(&self, load: Load, sites: usize) -> Expected {
        P::expected(load, sites, &self.0)
    }

    fn most_messages(&self, sites: usize) -> Option<usize> {
        P::most_messages(sites, &self.0)
    }

    fn unreachable_labels(&self) -> &'static [&'static str] {
        P::unreachable_labels(&self.0)
    }

    fn sites(&self, setup: &Setup<()>) -> Box<dyn Sites> {
        Box::new(SitesOf::<P>::new(self.setup(setup)))
    }

    fn start(&self, me: SiteId, incarnation: u32, setup: &Setup<()>) -> (Arc<dyn State>, Actions<Entered>) {
        let setup = self.setup(setup);
        let mut out = Out::new(setup.sites + self.helpers());
        let site = started::<P>(me, incarnation, &setup, &mut out);
        (Arc::new(site), actions(&mut out))
    }

    fn tokens_in(&self, message: &Message) -> u32 {
        P::tokens_in(message.typed())
    }

    fn numbers_in(&self, from: SiteId, message: &Message, visit: &mut dyn FnMut(usize, &mut u64)) -> Message {
        let mut message = message.typed::<P::Message>().clone();
        P::numbers_in(from, &mut message, visit);
        Message::new(message)
    }

    fn stamps_in(&self, from: SiteId, message: &Message, visit: &mut dyn FnMut(Stamp<'_>)) -> Message {
        let mut message = message.typed::<P::Message>().clone();
        P::stamps_in(from, &mut message, visit);
        Message::new(message)
    }
}

/// Starts a site, or restarts it after its crash number `incarnation`. A restarted site is not a holder and does not
/// have the token.
fn started<P: MutualExclusion>(
    me: SiteId,
    incarnation: u32,
    setup: &Setup<P::Options>,
    out: &mut Out<P>,
) -> Site<P> {
    Site::new(me, out, |out| {
        if incarnation == 0 {
            return P::start(me, setup, out);
        }
        let elsewhere = me.next_on_ring(setup.sites);
        P::restart(me, incarnation, &Setup { holders: Vec::new(), home: elsewhere, ..setup.clone() }, out)
    })
}
