//! The only list of algorithms. Everything that offers a choice of them reads it here.

use crate::{About, Election, MutualExclusion, Sharing, algorithms, election, elections};

/// One algorithm of the registry.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// What a person should know about it.
    pub about: &'static About,
    /// The text of its file.
    pub source: &'static str,
}

/// Something to be done with one algorithm, whose type is only known from its name. This is where types
/// are erased, once: everything behind `visit` is compiled for each algorithm on its own.
pub trait Visitor {
    /// What comes of it.
    type Output;

    /// Does it with the algorithm `P`.
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

        /// Does something with the algorithm of the given name; `None` if there is no such algorithm.
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
    maekawa_published::MaekawaPublished,
    maekawa::Maekawa,
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

/// Who may be inside together under the algorithm of the given name, with its default options.
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

/// The algorithm of the given name.
pub fn find(slug: &str) -> Option<&'static Entry> {
    ALL.iter().find(|entry| entry.about.slug == slug)
}

/// One election of the registry.
#[derive(Clone, Copy, Debug)]
pub struct ElectionEntry {
    /// What a person should know about it.
    pub about: &'static election::About,
    /// The text of its file.
    pub source: &'static str,
}

/// Something to be done with one election, whose type is only known from its name.
pub trait ElectionVisitor {
    /// What comes of it.
    type Output;

    /// Does it with the election `E`.
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

        /// Does something with the election of the given name; `None` if there is no such election.
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
}

/// The election of the given name.
pub fn find_election(slug: &str) -> Option<&'static ElectionEntry> {
    ELECTIONS.iter().find(|entry| entry.about.slug == slug)
}
