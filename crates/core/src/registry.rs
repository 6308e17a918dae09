//! The only list of algorithms. Everything that offers a choice of them reads it here.

use crate::{About, MutualExclusion, algorithms};

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
}

/// The algorithm of the given name.
pub fn find(slug: &str) -> Option<&'static Entry> {
    ALL.iter().find(|entry| entry.about.slug == slug)
}
