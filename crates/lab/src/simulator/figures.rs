//! The figures of the textbooks as scenarios, by name.

/// A textbook figure.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// The figure's name.
    pub name: &'static str,
    /// The figure's text, a [scenario](crate::simulator::scenario).
    pub text: &'static str,
}

macro_rules! figures {
    ($($name:literal),+ $(,)?) => {
        /// All figures.
        pub const ALL: &[Figure] = &[
            $(Figure { name: $name, text: include_str!(concat!("../../figures/", $name, ".scenario")) },)+
        ];
    };
}

figures! {
    "two-atms",
    "bakery-doorway",
    "centralized-queue",
    "centralized-denied",
    "centralized-order",
    "lamport-two-requests",
    "ricart-agrawala-two-requests",
    "ricart-agrawala-three-requests",
    "ricart-agrawala-textbook-timestamps",
    "token-ring",
    "token-ring-parked",
    "lodha-kshemkalyani-crossing",
    "maekawa-seven",
    "maekawa-grid",
    "maekawa-deadlock",
    "maekawa-resolved",
    "maekawa-inquire",
    "quorum-holder-crashes",
    "suzuki-kasami-queue",
    "raymond-tree",
    "naimi-trehel-path",
    "k-mutual-exclusion-late-reply",
    "readers-writers",
    "gate-recall",
    "lamport-overtaken",
    "coordinator-crashes",
    "holder-crashes",
    "ricart-agrawala-crash",
    "token-lost",
    "token-ring-recovers",
    "token-made-anew",
    "token-ring-two-tokens",
    "misra-token-lost",
    "remaining-sites",
    "remaining-sites-cut-off",
    "maekawa-fallback",
    "bully-leader-crashes",
    "bully-concurrent-initiators",
    "bully-crash-during-election",
    "bully-leader-returns",
    "bully-cut-in-two",
    "ring-election-leader-crashes",
    "ring-election-concurrent-initiators",
    "ring-election-crash-during-election",
    "chang-roberts-two-candidates",
    "hirschberg-sinclair-phases",
    "itai-rodeh-draws-again",
    "raft-split-vote",
}

/// The figure of the given name.
pub fn find(name: &str) -> Option<&'static Figure> {
    ALL.iter().find(|figure| figure.name == name)
}
