//! An election as a value: the place where the types of the elections end, as [`crate::algorithm`] is that of mutual
//! exclusion. Simulator and checker share one interface here, since elections send few messages.

use crate::algorithm::{Actions, Event, actions, stepped};
use crate::mutants;
use lockkeeper_core::election::{About, Case, Setup};
use lockkeeper_core::registry::{self, ElectionVisitor};
use lockkeeper_core::settings::{OptionsError, Settings};
use lockkeeper_core::{
    Campaign, Elected, Election, Field, MessageKind, MessageKinds, Out, Protocol, Rules, Site, SiteId,
};
use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::sync::Arc;

/// An election.
pub trait ElectionAlgorithm: fmt::Debug + Send + Sync {
    /// The description of the election; for a mutant, that of its twin.
    fn about(&self) -> &'static About;

    /// The kinds of messages.
    fn kinds(&self) -> &'static [MessageKind];

    /// The sentence of the rule with this index; `None` after the last one.
    fn rule(&self, index: usize) -> Option<&'static str>;

    /// The name of the rule with this index; `None` after the last one.
    fn rule_name(&self, index: usize) -> Option<&'static str>;

    /// See [`Election::cases`].
    fn cases(&self, sites: usize) -> Vec<Case>;

    /// The election with its default options.
    fn with_defaults(&self) -> Arc<dyn ConfiguredElection>;

    /// The election with the options that it takes from the settings.
    fn configure(
        &self,
        settings: &mut Settings,
        sites: usize,
    ) -> Result<Arc<dyn ConfiguredElection>, OptionsError>;
}

/// An election with its options.
pub trait ConfiguredElection: Send + Sync {
    /// The election.
    fn algorithm(&self) -> &'static dyn ElectionAlgorithm;

    /// A site that starts, and knows the leader or none; see [`Election::start`].
    fn start(
        &self,
        me: SiteId,
        sites: usize,
        leader: Option<SiteId>,
        seed: u64,
    ) -> (Arc<dyn Voter>, Actions<Elected>);

    /// A site that restarts, from its state at the crash; see [`Election::restart`].
    fn restart(
        &self,
        crashed: &dyn Voter,
        me: SiteId,
        sites: usize,
        seed: u64,
    ) -> (Arc<dyn Voter>, Actions<Elected>);
}

/// The state of one site of an election. It never changes: a step makes a new one.
pub trait Voter: Any + Send + Sync {
    /// Whether a site of the same election has the same state.
    fn equals(&self, other: &dyn Voter) -> bool;

    /// Feeds the state to a hasher.
    fn hash_into(&self, hasher: &mut dyn Hasher);

    /// The state after one step in a system of this many sites, and the actions of the step.
    fn step(&self, sites: usize, event: &Event<Campaign>) -> (Arc<dyn Voter>, Actions<Elected>);

    /// The leader as far as this site knows; see [`Election::leader`].
    fn leader(&self) -> Option<SiteId>;

    /// The number of the leadership period; see [`Election::term`].
    fn term(&self) -> u64;

    /// The state under the paper's names; see [`Protocol::fields`].
    fn fields(&self) -> Vec<Field>;
}

impl PartialEq for dyn Voter {
    fn eq(&self, other: &Self) -> bool {
        self.equals(other)
    }
}

impl Eq for dyn Voter {}

impl Hash for dyn Voter {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash_into(state);
    }
}

/// The value of an election that is given as a type.
pub const fn of<E: Election>() -> &'static dyn ElectionAlgorithm {
    &Typed::<E>(PhantomData)
}

/// The election of the registry with this name.
pub fn find(name: &str) -> Option<&'static dyn ElectionAlgorithm> {
    struct OfType;
    impl ElectionVisitor for OfType {
        type Output = &'static dyn ElectionAlgorithm;

        fn visit<E: Election>(self) -> Self::Output {
            of::<E>()
        }
    }
    registry::visit_election(name, OfType)
}

/// The election of the registry or the mutant with this name; the names are distinct.
pub fn find_with_mutants(name: &str) -> Option<&'static dyn ElectionAlgorithm> {
    let mutant = || mutants::election::ALL.iter().find(|mutant| mutant.name == name);
    find(name).or_else(|| mutant().map(|mutant| mutant.algorithm))
}

struct Typed<E>(PhantomData<fn() -> E>);

impl<E: Election> fmt::Debug for Typed<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(E::ABOUT.slug)
    }
}

impl<E: Election> ElectionAlgorithm for Typed<E> {
    fn about(&self) -> &'static About {
        const { &E::ABOUT }
    }

    fn kinds(&self) -> &'static [MessageKind] {
        <E as Protocol>::Message::KINDS
    }

    fn rule(&self, index: usize) -> Option<&'static str> {
        <E as Protocol>::Rule::ALL.get(index).map(|rule| rule.sentence())
    }

    fn rule_name(&self, index: usize) -> Option<&'static str> {
        <E as Protocol>::Rule::ALL.get(index).map(|rule| rule.name())
    }

    fn cases(&self, sites: usize) -> Vec<Case> {
        E::cases(sites)
    }

    fn with_defaults(&self) -> Arc<dyn ConfiguredElection> {
        Arc::new(WithOptions::<E>(E::Options::default()))
    }

    fn configure(
        &self,
        settings: &mut Settings,
        sites: usize,
    ) -> Result<Arc<dyn ConfiguredElection>, OptionsError> {
        Ok(Arc::new(WithOptions::<E>(E::options(settings, sites)?)))
    }
}

struct WithOptions<E: Election>(E::Options);

impl<E: Election> ConfiguredElection for WithOptions<E> {
    fn algorithm(&self) -> &'static dyn ElectionAlgorithm {
        of::<E>()
    }

    fn start(
        &self,
        me: SiteId,
        sites: usize,
        leader: Option<SiteId>,
        seed: u64,
    ) -> (Arc<dyn Voter>, Actions<Elected>) {
        let setup = Setup { sites, leader, seed, options: self.0.clone() };
        let mut out = Out::new(sites);
        let site = Site::new(me, &mut out, |out| E::start(me, &setup, out));
        (Arc::new(site), actions(&mut out))
    }

    fn restart(
        &self,
        crashed: &dyn Voter,
        me: SiteId,
        sites: usize,
        seed: u64,
    ) -> (Arc<dyn Voter>, Actions<Elected>) {
        let crashed: &dyn Any = crashed;
        let crashed: &Site<E> = crashed.downcast_ref().expect("all sites run the same election");
        let setup = Setup { sites, leader: None, seed, options: self.0.clone() };
        let mut out = Out::new(sites);
        let site = Site::new(me, &mut out, |out| crashed.protocol().restart(me, &setup, out));
        (Arc::new(site), actions(&mut out))
    }
}

impl<E: Election> Voter for Site<E> {
    fn equals(&self, other: &dyn Voter) -> bool {
        let other: &dyn Any = other;
        other.downcast_ref() == Some(self)
    }

    fn hash_into(&self, mut hasher: &mut dyn Hasher) {
        self.protocol().hash(&mut hasher);
    }

    fn step(&self, sites: usize, event: &Event<Campaign>) -> (Arc<dyn Voter>, Actions<Elected>) {
        let (site, actions) = stepped(self, sites, event);
        (Arc::new(site), actions)
    }

    fn leader(&self) -> Option<SiteId> {
        self.protocol().leader()
    }

    fn term(&self) -> u64 {
        self.protocol().term()
    }

    fn fields(&self) -> Vec<Field> {
        self.protocol().fields()
    }
}
