//! Mutual exclusion algorithms, one file each, to be read beside the paper.

pub mod bakery_messages;
pub mod centralized;
pub mod centralized_failover;
pub mod failover_messages;
pub mod gate;
pub mod gate_messages;
pub mod k_mutual_exclusion;
pub mod lamport;
pub mod lodha_kshemkalyani;
pub mod maekawa;
pub mod maekawa_basic;
pub mod maekawa_variants;
pub mod misra;
pub mod naimi_trehel;
pub mod neilsen_mizuno;
pub mod raymond;
pub mod readers_writers;
pub mod ricart_agrawala;
pub mod roucairol_carvalho;
pub mod suzuki_kasami;
pub mod token_ring;
pub mod token_ring_parked;
pub mod token_ring_recovering;
