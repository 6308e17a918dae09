//! One type for every algorithm that a cluster can run.
//!
//! A member reads its algorithm from the settings of the decided view at run time; the next view may select another
//! one. [`AnySite`] is a site of the selected algorithm. Its messages carry a tag of the algorithm, so that a message
//! of another algorithm is recognised and refused. Drivers that use it are compiled once, not once per algorithm.
//!
//! The simulator and the checker of the lab do not use it: they run mutants and algorithms from outside of this crate,
//! too, and need the rules. They have an algorithm as a value (`lockkeeper_lab::algorithm`).

use crate::algorithms::{
    bakery_messages::BakeryMessages,
    centralized::Centralized,
    centralized_failover::CentralizedFailover,
    lamport::{Lamport, LamportSuppressed},
    lodha_kshemkalyani::LodhaKshemkalyani,
    maekawa::{Maekawa, Majority, TreeQuorum},
    naimi_trehel::NaimiTrehel,
    neilsen_mizuno::NeilsenMizuno,
    raymond::Raymond,
    ricart_agrawala::RicartAgrawala,
    roucairol_carvalho::RoucairolCarvalho,
    suzuki_kasami::SuzukiKasami,
    token_ring::TokenRing,
    token_ring_parked::TokenRingParked,
    token_ring_recovering::TokenRingRecovering,
};
use crate::protocol::TimerChange;
use crate::settings::{OptionsError, Settings};
use crate::{
    About, ApplicationInput, Configure, Entered, Expected, Field, Inspect, InvariantViolated, Load,
    MessageKind, MessageKinds, MutualExclusion, Out, PaperFigures, Protocol, Rules, Setup, SiteId, Timestamp,
    Validate,
};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::error::Error;
use core::fmt;
use serde::{Deserialize, Serialize};

/// The setting that names the algorithm.
pub const ALGORITHM: &str = "algorithm";

/// The algorithm of a cluster whose settings do not name one.
pub const DEFAULT: &str = NaimiTrehel::ABOUT.slug;

/// The rules of [`AnySite`]: none, because its drivers do not trace rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRule {}

impl Rules for NoRule {
    const ALL: &'static [Self] = &[];

    fn name(self) -> &'static str {
        match self {}
    }

    fn sentence(self) -> &'static str {
        match self {}
    }

    fn index(self) -> usize {
        match self {}
    }
}

/// An upper bound for the number of message kinds of all algorithms together.
const MOST_KINDS: usize = 96;

macro_rules! any {
    ($($variant:ident: $stored:ty),+ $(,)?) => {
        /// A site of one algorithm. The default algorithm is stored inline, because a member may have millions of idle
        /// locks.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "each variant is the algorithm of its name")]
        pub enum AnySite { $($variant($stored),)+ }

        /// A message of one algorithm. The order of the variants is part of the wire format: append new algorithms at
        /// the end.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[expect(missing_docs, reason = "each variant is the algorithm of its name")]
        pub enum AnyMessage { $($variant(<$variant as Protocol>::Message),)+ }

        /// A timer of one algorithm.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[expect(missing_docs, reason = "each variant is the algorithm of its name")]
        pub enum AnyTimer { $($variant(<$variant as Protocol>::Timer),)+ }

        /// The options of one algorithm. The variant selects the algorithm.
        #[derive(Clone, Debug)]
        #[expect(missing_docs, reason = "each variant is the algorithm of its name")]
        pub enum AnyOptions { $($variant(<$variant as Configure>::Options),)+ }

        /// Every algorithm that a cluster can run, in the order of the wire format.
        pub const ALL: &[&About] = &[$(&<$variant as MutualExclusion>::ABOUT,)+];

        impl AnyMessage {
            /// The index in [`MessageKinds::KINDS`] of the first message kind of each algorithm.
            const FIRST_KINDS: [usize; ALL.len() + 1] = {
                let counts = [$(<<$variant as Protocol>::Message as MessageKinds>::KINDS.len(),)+];
                let mut first = [0; ALL.len() + 1];
                let mut place = 0;
                while place < counts.len() {
                    first[place + 1] = first[place] + counts[place];
                    place += 1;
                }
                first
            };
            const LISTS: [&'static [MessageKind]; ALL.len()] =
                [$(<<$variant as Protocol>::Message as MessageKinds>::KINDS,)+];

            /// The position of the algorithm in [`ALL`].
            fn position(&self) -> usize {
                #[derive(Clone, Copy)]
                enum Position { $($variant,)+ }
                match self { $(Self::$variant(_) => Position::$variant as usize,)+ }
            }
        }

        impl MessageKinds for AnyMessage {
            const KINDS: &'static [MessageKind] =
                Self::EVERY_KIND.split_at(Self::FIRST_KINDS[ALL.len()]).0;

            fn kind(&self) -> usize {
                let kind = match self { $(Self::$variant(message) => message.kind(),)+ };
                Self::FIRST_KINDS[self.position()] + kind
            }
        }

        impl fmt::Display for AnyMessage {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $(Self::$variant(message) => message.fmt(f),)+ }
            }
        }

        impl Protocol for AnySite {
            type Input = ApplicationInput;
            type Message = AnyMessage;
            type Output = Entered;
            type Timer = AnyTimer;
            type Rule = NoRule;

            fn input(&mut self, input: ApplicationInput, out: &mut Out<Self>) {
                match self {
                    $(Self::$variant(site) => {
                        step(out, AnyMessage::$variant, AnyTimer::$variant, |out| site.input(input, out));
                    })+
                }
            }

            /// Ignores a message of another algorithm; [`is_expected`](Validate::is_expected) refuses it before.
            fn message(&mut self, from: SiteId, message: AnyMessage, out: &mut Out<Self>) {
                match (self, message) {
                    $((Self::$variant(site), AnyMessage::$variant(message)) => {
                        step(out, AnyMessage::$variant, AnyTimer::$variant, |out| {
                            site.message(from, message, out);
                        });
                    })+
                    _ => {}
                }
            }

            fn timer(&mut self, timer: AnyTimer, out: &mut Out<Self>) {
                match (self, timer) {
                    $((Self::$variant(site), AnyTimer::$variant(timer)) => {
                        step(out, AnyMessage::$variant, AnyTimer::$variant, |out| site.timer(timer, out));
                    })+
                    _ => {}
                }
            }

            fn suspect(&mut self, suspect: SiteId, out: &mut Out<Self>) {
                match self {
                    $(Self::$variant(site) => {
                        step(out, AnyMessage::$variant, AnyTimer::$variant, |out| site.suspect(suspect, out));
                    })+
                }
            }

            fn fields(&self) -> Vec<Field> {
                match self { $(Self::$variant(site) => site.fields(),)+ }
            }

            fn points_to(&self) -> Option<SiteId> {
                match self { $(Self::$variant(site) => site.points_to(),)+ }
            }

            fn quorum(&self) -> &[SiteId] {
                match self { $(Self::$variant(site) => site.quorum(),)+ }
            }

            fn waits_for(&self) -> Vec<SiteId> {
                match self { $(Self::$variant(site) => site.waits_for(),)+ }
            }
        }

        impl MutualExclusion for AnySite {
            /// The description of the default algorithm; [`about`](MutualExclusion::about) describes the selected one.
            const ABOUT: About = NaimiTrehel::ABOUT;

            fn about(options: &AnyOptions) -> &'static About {
                match options { $(AnyOptions::$variant(_) => &$variant::ABOUT,)+ }
            }

            fn helpers(options: &AnyOptions) -> usize {
                match options { $(AnyOptions::$variant(options) => $variant::helpers(options),)+ }
            }

            fn start(me: SiteId, setup: &Setup<AnyOptions>, out: &mut Out<Self>) -> Self {
                match &setup.options {
                    $(AnyOptions::$variant(options) => {
                        let setup = Setup {
                            sites: setup.sites,
                            home: setup.home,
                            holders: setup.holders.clone(),
                            clocks: setup.clocks.clone(),
                            options: options.clone(),
                        };
                        let mut site = None;
                        step(out, AnyMessage::$variant, AnyTimer::$variant, |out| {
                            site = Some($variant::start(me, &setup, out));
                        });
                        let site = site.expect("the step creates the site");
                        Self::$variant(<$stored>::from(site))
                    })+
                }
            }

            fn is_wanted(&self) -> bool {
                match self { $(Self::$variant(site) => site.is_wanted(),)+ }
            }
        }

        impl Configure for AnySite {
            type Options = AnyOptions;

            fn options(settings: &mut Settings, sites: usize) -> Result<AnyOptions, OptionsError> {
                let slug = settings.take(ALGORITHM, String::from(DEFAULT), |text| Some(text.into()), "a name")?;
                $(if slug == $variant::ABOUT.slug {
                    return Ok(AnyOptions::$variant($variant::options(settings, sites)?));
                })+
                Err(refusal(slug).into())
            }
        }

        impl PaperFigures for AnySite {
            fn expected(load: Load, sites: usize, options: &AnyOptions) -> Expected {
                match options { $(AnyOptions::$variant(options) => $variant::expected(load, sites, options),)+ }
            }
        }

        impl Inspect for AnySite {
            fn timestamp(&self) -> Option<Timestamp> {
                match self { $(Self::$variant(site) => site.timestamp(),)+ }
            }

            fn tokens(&self) -> u32 {
                match self { $(Self::$variant(site) => site.tokens(),)+ }
            }

            fn tokens_in(message: &AnyMessage) -> u32 {
                match message { $(AnyMessage::$variant(message) => $variant::tokens_in(message),)+ }
            }

            fn invariant(&self) -> Result<(), InvariantViolated> {
                match self { $(Self::$variant(site) => site.invariant(),)+ }
            }
        }

        impl Validate for AnySite {
            fn is_well_formed(message: &AnyMessage, sites: usize) -> bool {
                match message { $(AnyMessage::$variant(message) => $variant::is_well_formed(message, sites),)+ }
            }

            fn is_expected(&self, from: SiteId, message: &AnyMessage) -> bool {
                match (self, message) {
                    $((Self::$variant(site), AnyMessage::$variant(message)) => site.is_expected(from, message),)+
                    _ => false,
                }
            }
        }
    };
}

any! {
    NaimiTrehel: NaimiTrehel,
    Centralized: Box<Centralized>,
    CentralizedFailover: Box<CentralizedFailover>,
    Lamport: Box<Lamport>,
    LamportSuppressed: Box<LamportSuppressed>,
    RicartAgrawala: Box<RicartAgrawala>,
    RoucairolCarvalho: Box<RoucairolCarvalho>,
    LodhaKshemkalyani: Box<LodhaKshemkalyani>,
    BakeryMessages: Box<BakeryMessages>,
    TokenRing: Box<TokenRing>,
    TokenRingParked: Box<TokenRingParked>,
    TokenRingRecovering: Box<TokenRingRecovering>,
    Maekawa: Box<Maekawa>,
    Majority: Box<Majority>,
    TreeQuorum: Box<TreeQuorum>,
    SuzukiKasami: Box<SuzukiKasami>,
    Raymond: Box<Raymond>,
    NeilsenMizuno: Box<NeilsenMizuno>,
}

impl AnyMessage {
    const EVERY_KIND: &'static [MessageKind; MOST_KINDS] = &{
        let mut all = [Self::LISTS[0][0]; MOST_KINDS];
        let mut list = 0;
        while list < ALL.len() {
            let mut kind = 0;
            while kind < Self::LISTS[list].len() {
                all[Self::FIRST_KINDS[list] + kind] = Self::LISTS[list][kind];
                kind += 1;
            }
            list += 1;
        }
        all
    };
}

impl Default for AnyOptions {
    fn default() -> Self {
        Self::NaimiTrehel(())
    }
}

/// The reason why a cluster does not run the algorithm of this name.
fn refusal(slug: String) -> AlgorithmError {
    match crate::registry::find(&slug) {
        None => AlgorithmError::Unknown { slug },
        Some(entry) if !entry.about.deadlock_free => AlgorithmError::CanDeadlock { slug },
        Some(_) if crate::registry::survives_a_loss(&slug) => AlgorithmError::ForLossyChannels { slug },
        Some(_) => AlgorithmError::NotAMutex { slug },
    }
}

/// The reason why a cluster does not run an algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AlgorithmError {
    /// There is no such algorithm.
    Unknown {
        /// The given name.
        slug: String,
    },
    /// The algorithm can deadlock.
    CanDeadlock {
        /// The name of the algorithm.
        slug: String,
    },
    /// The algorithm replaces lost messages, and the members of a cluster lose none.
    ForLossyChannels {
        /// The name of the algorithm.
        slug: String,
    },
    /// The algorithm is not a mutex.
    NotAMutex {
        /// The name of the algorithm.
        slug: String,
    },
}

impl fmt::Display for AlgorithmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { slug } => {
                write!(
                    f,
                    "there is no algorithm '{slug}'{}: `lockkeeper algorithms` lists them",
                    crate::registry::PresentName(slug)
                )
            }
            Self::CanDeadlock { slug } => write!(f, "{slug} can deadlock: a cluster does not run it"),
            Self::ForLossyChannels { slug } => write!(
                f,
                "{slug} is for channels that lose messages, which those of a cluster do not: choose another algorithm, \
                 such as token-ring"
            ),
            Self::NotAMutex { slug } => write!(
                f,
                "{slug} is not a mutex: choose one for the cluster, which serves shared holders and permits with it"
            ),
        }
    }
}

impl Error for AlgorithmError {}

/// Runs one step of an algorithm's site and adds the algorithm's tag to its messages and timers.
fn step<P: Protocol<Output = Entered>>(
    out: &mut Out<AnySite>,
    message: impl Fn(P::Message) -> AnyMessage,
    timer: impl Fn(P::Timer) -> AnyTimer,
    act: impl FnOnce(&mut Out<P>),
) {
    let mut inner = out.inner();
    act(&mut inner);
    out.sends.extend(inner.sends.into_iter().map(|(to, sent)| (to, message(sent))));
    out.local.extend(inner.local.into_iter().map(&message));
    out.outputs.append(&mut inner.outputs);
    out.timers.extend(inner.timers.into_iter().map(|change| match change {
        TimerChange::Arm { timer: of, after_milli_t } => TimerChange::Arm { timer: timer(of), after_milli_t },
        TimerChange::Disarm { timer: of } => TimerChange::Disarm { timer: timer(of) },
    }));
    out.skipped_fences += inner.skipped_fences;
    out.fence_floor = out.fence_floor.max(inner.fence_floor);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sharing, registry};

    /// Except those for channels that lose messages.
    #[test]
    fn every_deadlock_free_mutex_of_the_registry_can_run_in_a_cluster() {
        let fit = registry::ALL.iter().map(|entry| entry.about).filter(|about| about.deadlock_free);
        let mut fit: Vec<&str> = fit
            .map(|about| about.slug)
            .filter(|slug| {
                registry::sharing(slug) == Some(Sharing::Mutex) && !registry::survives_a_loss(slug)
            })
            .collect();
        let mut known: Vec<&str> = ALL.iter().map(|about| about.slug).collect();
        fit.sort_unstable();
        known.sort_unstable();
        assert_eq!(known, fit);
    }

    #[test]
    fn settings_choose_the_algorithm_and_its_options() {
        let read = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|&(name, value)| (name.into(), value.into()));
            let mut settings = Settings::new(pairs);
            let options = AnySite::options(&mut settings, 3)?;
            settings.nothing_left().map(|()| AnySite::about(&options).slug)
        };
        assert_eq!(read(&[]), Ok("naimi-trehel"));
        assert_eq!(read(&[("algorithm", "raymond"), ("tree", "line")]), Ok("raymond"));
        assert!(matches!(
            read(&[("algorithm", "naimi-trehel"), ("tree", "line")]),
            Err(OptionsError::UnknownSetting { name, .. }) if name == "tree"
        ));
        let refused = |algorithm: &str| match read(&[("algorithm", algorithm)]) {
            Err(OptionsError::Algorithm(error)) => error,
            other => panic!("{other:?}"),
        };
        let slug = String::from;
        assert_eq!(refused("maekawa-basic"), AlgorithmError::CanDeadlock { slug: slug("maekawa-basic") });
        assert_eq!(refused("readers-writers"), AlgorithmError::NotAMutex { slug: slug("readers-writers") });
        let lossy = AlgorithmError::ForLossyChannels { slug: slug("misra-ping-pong") };
        assert_eq!(refused("misra-ping-pong"), lossy);
        assert_eq!(refused("paxos"), AlgorithmError::Unknown { slug: slug("paxos") });
    }

    #[test]
    fn a_message_of_another_algorithm_is_not_awaited() {
        let mut out = Out::quiet(3);
        let start = |options| {
            let mut out = Out::quiet(3);
            AnySite::start(SiteId::new(0), &Setup::new(3, options), &mut out)
        };
        let mut asks = start(AnyOptions::Majority(Default::default()));
        out.begin(SiteId::new(0));
        asks.input(ApplicationInput::Request(crate::Mode::Exclusive), &mut out);
        let (_, message) = out.sends.pop().expect("a request to another site");
        let other = start(AnyOptions::NaimiTrehel(()));
        assert!(asks.is_expected(SiteId::new(1), &message) || AnySite::is_well_formed(&message, 3));
        assert!(!other.is_expected(SiteId::new(1), &message));
    }

    #[test]
    fn kinds_of_messages_keep_their_names() {
        let request = AnyMessage::Majority(crate::algorithms::maekawa::Message::Request(1));
        assert_eq!(AnyMessage::KINDS[request.kind()].name, "REQUEST");
    }
}
