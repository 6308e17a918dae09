//! Every order of events in systems of 3 and 4 sites: one crash at any point, elections started spontaneously
//! at any point, and elections started by all survivors when they detect the crash of the leader.
//!
//! The state counts are pinned, so that a change of an election or of the search shows how much is still
//! explored.

use lockkeeper_core::Election;
use lockkeeper_core::elections::bully::Bully;
use lockkeeper_core::elections::chang_roberts::ChangRoberts;
use lockkeeper_core::elections::ring_election::RingElection;
use lockkeeper_lab::election::Property;
use lockkeeper_lab::election::check::{Bounds, Timing, Verdict, check};

fn explore<E: Election>(sites: usize, initiators: u8, fifo: bool, timing: Timing) -> Verdict {
    let bounds =
        Bounds { sites, initiators, crashes: 1, partition: false, fifo, timing, most_states: 3_000_000 };
    check::<E>(&bounds, &E::Options::default())
}

fn holds<E: Election>(sites: usize, initiators: u8, fifo: bool, states: usize) {
    let verdict = explore::<E>(sites, initiators, fifo, Timing::Synchronous);
    if let Some(counterexample) = verdict.counterexample {
        panic!("{}, {sites} sites: {counterexample}", E::ABOUT.slug);
    }
    assert!(verdict.complete && verdict.at_rest > 0);
    assert_eq!(verdict.states, states, "{}, {sites} sites", E::ABOUT.slug);
}

#[test]
fn three_sites_bully() {
    holds::<Bully>(3, 3, true, 9_788);
    holds::<Bully>(3, 2, false, 5_639);
}

#[test]
fn three_sites_ring_election() {
    holds::<RingElection>(3, 2, false, 412_648);
}

#[test]
fn three_sites_chang_roberts() {
    holds::<ChangRoberts>(3, 3, true, 482_345);
    holds::<ChangRoberts>(3, 2, false, 156_683);
}

#[test]
fn four_sites_bully() {
    holds::<Bully>(4, 1, true, 149_274);
}

#[test]
fn four_sites_ring_election() {
    holds::<RingElection>(4, 1, true, 1_074_460);
}

#[test]
fn four_sites_chang_roberts() {
    holds::<ChangRoberts>(4, 1, true, 410_993);
}

/// The shortest run to two leaders: only a timeout that expires before the reply.
#[test]
fn timeout_that_is_too_short_leads_to_two_leaders() {
    fn breaks<E: Election>(steps: usize) {
        let verdict = explore::<E>(3, 1, true, Timing::TooShort);
        let found = verdict.counterexample.expect("two leaders");
        assert_eq!(found.property, Property::HighestLeads);
        assert_eq!(found.what, "S1 comes to lead although S3 is up");
        assert_eq!(found.story.len(), steps, "{found}");
    }
    breaks::<Bully>(2);
    breaks::<RingElection>(3);
    breaks::<ChangRoberts>(3);
}
