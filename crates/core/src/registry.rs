//! The list of all algorithms and elections. Every command that offers a choice of them reads this list.

use crate::{About, Election, MutualExclusion, Sharing, algorithms, election, elections};
use core::fmt;

/// One algorithm of the registry.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The description of the algorithm.
    pub about: &'static About,
    /// The source text of its file.
    pub source: &'static str,
}

/// An operation on one algorithm that is selected by name. `visit` is the only place where a name becomes a type: the
/// code behind it is compiled separately for each algorithm, so it should be small. The lab's code behind it makes a
/// value of the type (`lockkeeper_lab::algorithm`); that of the members uses [`AnySite`](crate::any::AnySite) instead.
pub trait Visitor {
    /// The result of the operation.
    type Output;

    /// Runs the operation with the algorithm `P`.
    fn visit<P: MutualExclusion>(self) -> Self::Output;
}

macro_rules! registry {
    ($($module:ident :: $protocol:ident),+ $(,)?) => {
        /// Every mutual exclusion algorithm.
        pub const ALL: &[Entry] = &[
            $(Entry {
                about: &<algorithms::$module::$protocol as MutualExclusion>::ABOUT,
                source: include_str!(concat!("algorithms/", stringify!($module), ".rs")),
            },)+
        ];

        /// Runs an operation with the algorithm of the given name; `None` if there is no such algorithm.
        pub fn visit<V: Visitor>(slug: &str, visitor: V) -> Option<V::Output> {
            $(if slug == <algorithms::$module::$protocol as MutualExclusion>::ABOUT.slug {
                return Some(visitor.visit::<algorithms::$module::$protocol>());
            })+
            None
        }
    };
}

registry! {
    centralized::Centralized,
    centralized_failover::CentralizedFailover,
    lamport::Lamport,
    lamport::LamportSuppressed,
    ricart_agrawala::RicartAgrawala,
    roucairol_carvalho::RoucairolCarvalho,
    lodha_kshemkalyani::LodhaKshemkalyani,
    bakery_messages::BakeryMessages,
    token_ring::TokenRing,
    token_ring_parked::TokenRingParked,
    token_ring_recovering::TokenRingRecovering,
    misra::Misra,
    maekawa_basic::MaekawaBasic,
    maekawa::Maekawa,
    maekawa::Maekawa1985,
    maekawa::Majority,
    maekawa::TreeQuorum,
    suzuki_kasami::SuzukiKasami,
    raymond::Raymond,
    naimi_trehel::NaimiTrehel,
    neilsen_mizuno::NeilsenMizuno,
    k_mutual_exclusion::KMutualExclusion,
    readers_writers::ReadersWriters,
    gate::SharedByToken,
}

/// The sharing rule of the algorithm of the given name, with its default options.
pub fn sharing(slug: &str) -> Option<Sharing> {
    struct OfDefaults;
    impl Visitor for OfDefaults {
        type Output = Sharing;
        fn visit<P: MutualExclusion>(self) -> Sharing {
            P::sharing(&P::Options::default())
        }
    }
    visit(slug, OfDefaults)
}

/// Whether the algorithm of the given name continues when one message is lost. A cluster runs no such algorithm: the
/// links between its members lose no message.
pub fn survives_a_loss(slug: &str) -> bool {
    struct Survives;
    impl Visitor for Survives {
        type Output = bool;
        fn visit<P: MutualExclusion>(self) -> bool {
            P::SURVIVES_A_LOSS
        }
    }
    visit(slug, Survives).unwrap_or(false)
}

/// Former names of algorithms, and the present names.
const RENAMED: &[(&str, &str)] = &[("maekawa-published", "maekawa-basic")];

/// Whether an algorithm had the given name in an earlier version.
pub fn is_former_name(slug: &str) -> bool {
    RENAMED.iter().any(|(former, _)| *former == slug)
}

/// The addition to the error about an unknown algorithm: its present name if an earlier version had the given one, else
/// nothing.
#[derive(Clone, Copy, Debug)]
pub struct PresentName<'a>(pub &'a str);

impl fmt::Display for PresentName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match RENAMED.iter().find(|(former, _)| *former == self.0) {
            Some((_, present)) => write!(f, ": it is called '{present}' now"),
            None => Ok(()),
        }
    }
}

/// The entry of the algorithm of the given name.
pub fn find(slug: &str) -> Option<&'static Entry> {
    ALL.iter().find(|entry| entry.about.slug == slug)
}

/// One election of the registry.
#[derive(Clone, Copy, Debug)]
pub struct ElectionEntry {
    /// The description of the election.
    pub about: &'static election::About,
    /// The source text of its file.
    pub source: &'static str,
}

/// An operation on one election that is selected by name.
pub trait ElectionVisitor {
    /// The result of the operation.
    type Output;

    /// Runs the operation with the election `E`.
    fn visit<E: Election>(self) -> Self::Output;
}

macro_rules! elections {
    ($($module:ident :: $protocol:ident),+ $(,)?) => {
        /// Every election.
        pub const ELECTIONS: &[ElectionEntry] = &[
            $(ElectionEntry {
                about: &<elections::$module::$protocol as Election>::ABOUT,
                source: include_str!(concat!("elections/", stringify!($module), ".rs")),
            },)+
        ];

        /// Runs an operation with the election of the given name; `None` if there is no such election.
        pub fn visit_election<V: ElectionVisitor>(slug: &str, visitor: V) -> Option<V::Output> {
            $(if slug == <elections::$module::$protocol as Election>::ABOUT.slug {
                return Some(visitor.visit::<elections::$module::$protocol>());
            })+
            None
        }
    };
}

elections! {
    bully::Bully,
    ring_election::RingElection,
    chang_roberts::ChangRoberts,
    hirschberg_sinclair::HirschbergSinclair,
    itai_rodeh::ItaiRodeh,
    raft::Raft,
}

/// The entry of the election of the given name.
pub fn find_election(slug: &str) -> Option<&'static ElectionEntry> {
    ELECTIONS.iter().find(|entry| entry.about.slug == slug)
}
