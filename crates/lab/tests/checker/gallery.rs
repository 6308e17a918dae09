//! Every exhibit of the gallery is caught, with the pinned property and number of steps; its twin passes the
//! same systems.

use lockkeeper_lab::checker::gallery::{MOST_STATES, all};
use lockkeeper_lab::checker::{CheckSpec, check};
use lockkeeper_lab::property::Property::{
    self, FenceMonotone, Invariant, MessageBound, MutualExclusion, NoDeadlock, NoStarvation, TimestampOrder,
};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Name, violated property, number of steps of the counterexample, and the system: number of sites, and
/// requests of each.
type Row = (&'static str, Property, usize, (usize, Option<u8>));

const PINNED: &[Row] = &[
    ("centralized-last-come-first-served", NoStarvation, 10, (2, None)),
    ("centralized-forgets-the-holder", MutualExclusion, 6, (2, Some(1))),
    ("centralized-forgets-the-queue", NoDeadlock, 7, (2, Some(1))),
    ("lamport-without-l1", MutualExclusion, 2, (2, Some(1))),
    ("lamport-without-l2", MutualExclusion, 5, (2, Some(1))),
    ("lamport-any-message-counts", TimestampOrder, 11, (2, Some(2))),
    ("lamport-acknowledges-twice", MessageBound, 6, (2, Some(1))),
    ("ricart-agrawala-ties-unbroken", TimestampOrder, 4, (2, Some(1))),
    ("ricart-agrawala-ties-both-win", NoDeadlock, 4, (2, Some(1))),
    ("ricart-agrawala-clock-not-updated", TimestampOrder, 4, (2, Some(1))),
    ("ricart-agrawala-replies-inside", MutualExclusion, 6, (2, Some(1))),
    ("token-ring-idle-first-holder", NoDeadlock, 1, (2, Some(1))),
    ("token-ring-keeps-a-copy", Invariant, 1, (2, Some(1))),
    ("token-ring-parked-forgets-who-waits", NoDeadlock, 3, (3, Some(1))),
    ("token-ring-parked-passes-while-inside", Invariant, 3, (2, Some(1))),
    ("maekawa-displaced-is-not-told", NoDeadlock, 14, (4, Some(1))),
    ("maekawa-forgets-an-early-inquire", NoDeadlock, 10, (4, Some(1))),
    ("maekawa-never-inquires", NoDeadlock, 5, (2, Some(1))),
    ("maekawa-enters-one-vote-short", Invariant, 1, (2, Some(1))),
    ("suzuki-kasami-takes-old-requests", Invariant, 10, (3, Some(1))),
    ("raymond-last-come-first-served", NoStarvation, 7, (2, Some(1))),
    ("raymond-asked-is-not-reset", NoDeadlock, 9, (2, Some(2))),
    ("naimi-trehel-queues-only-when-inside", Invariant, 5, (2, Some(1))),
    ("naimi-trehel-forgets-the-asker", Invariant, 2, (2, Some(1))),
    ("lamport-suppressed-forgets-its-own-request", NoDeadlock, 2, (2, Some(1))),
    ("roucairol-carvalho-does-not-ask-back", NoDeadlock, 13, (3, Some(1))),
    ("roucairol-carvalho-keeps-what-it-gives", MutualExclusion, 4, (2, Some(1))),
    ("neilsen-mizuno-follows-no-site-while-waiting", Invariant, 5, (2, Some(1))),
    ("bakery-messages-without-choosing", MutualExclusion, 14, (2, Some(1))),
    ("bakery-ties-unbroken", MutualExclusion, 14, (2, Some(1))),
    ("k-mutual-exclusion-takes-late-replies", MutualExclusion, 13, (3, Some(2))),
    ("k-mutual-exclusion-lets-one-more-in", Invariant, 1, (3, Some(1))),
    ("k-mutual-exclusion-clock-not-updated", MutualExclusion, 9, (3, Some(1))),
    ("k-mutual-exclusion-ties-all-win", NoDeadlock, 9, (3, Some(1))),
    ("readers-writers-reader-lets-a-writer-in", MutualExclusion, 6, (2, Some(1))),
    ("readers-writers-writer-lets-readers-pass", TimestampOrder, 4, (2, Some(1))),
    ("gate-shares-and-does-not-listen", MutualExclusion, 6, (2, Some(2))),
    ("gate-answers-while-a-site-is-inside", MutualExclusion, 6, (2, Some(1))),
    ("gate-lets-one-more-in-after-a-recall", MutualExclusion, 8, (2, Some(2))),
    ("gate-version-does-not-grow", MutualExclusion, 13, (2, Some(2))),
    ("gate-leaves-without-a-word", NoDeadlock, 6, (2, Some(1))),
    ("lodha-kshemkalyani-flush-counts-as-reply", MutualExclusion, 18, (3, Some(2))),
    ("lodha-kshemkalyani-request-hides-what-was-served", NoDeadlock, 17, (3, Some(2))),
    ("lodha-kshemkalyani-queues-what-was-served", NoDeadlock, 13, (3, Some(1))),
    ("lodha-kshemkalyani-forgets-who-crossed", MutualExclusion, 4, (2, Some(1))),
    ("suzuki-kasami-sends-the-token-while-inside", Invariant, 3, (2, Some(1))),
    ("suzuki-kasami-last-come-first-served", NoStarvation, 25, (3, None)),
    ("raymond-does-not-ask-again", Invariant, 9, (3, Some(1))),
    ("token-ring-recovering-makes-a-slow-token-anew", MutualExclusion, 7, (2, Some(1))),
    ("token-ring-recovering-takes-old-tokens", MutualExclusion, 7, (3, Some(1))),
    ("token-ring-recovering-never-asks", NoDeadlock, 3, (2, Some(1))),
    ("token-ring-recovering-starts-from-scratch", FenceMonotone, 3, (2, Some(1))),
    ("maekawa-keeps-the-vote-it-gives-back", MutualExclusion, 12, (3, Some(2))),
    ("maekawa-answers-inquire-inside", MutualExclusion, 6, (3, Some(1))),
    ("token-ring-turns-back", NoStarvation, 3, (3, Some(1))),
    ("raymond-lowest-number-first", NoStarvation, 11, (3, Some(1))),
    ("misra-number-does-not-change", MutualExclusion, 7, (2, Some(1))),
    ("misra-does-not-remember-ping", Invariant, 7, (2, Some(1))),
    ("lamport-on-channels-that-reorder", MutualExclusion, 4, (2, Some(1))),
    ("state-rebuilt-from-scratch-after-a-crash", MutualExclusion, 7, (3, Some(1))),
    ("an-idle-lock-recreated-with-a-fresh-clock", MutualExclusion, 7, (2, Some(2))),
    ("maekawa-triangle", NoDeadlock, 6, (3, Some(1))),
    ("maekawa-displaced-request", NoDeadlock, 14, (4, Some(1))),
    ("two-tokens-after-a-hasty-regeneration", MutualExclusion, 6, (3, Some(1))),
];

#[test]
fn every_exhibit_is_caught_as_pinned_and_its_twin_passes() {
    let exhibits = all();
    let caught: Vec<(Row, usize)> = exhibits
        .par_iter()
        .map(|exhibit| {
            let caught =
                exhibit.catch(|_| true).unwrap().unwrap_or_else(|| panic!("{} was not caught", exhibit.name));
            let (property, steps) = caught.how().unwrap();
            ((exhibit.name, property, steps, (caught.report.sites, caught.report.requests)), caught.rung)
        })
        .collect();
    let found: Vec<Row> = caught.iter().map(|(row, _)| *row).collect();
    let rows: Vec<String> = found.iter().map(|row| format!("    {row:?},")).collect();
    assert_eq!(found, PINNED, "if the change is intended, pin these:\n{}", rows.join("\n"));

    // Several exhibits have the same twin: each of its systems is checked once.
    let twins: BTreeMap<String, &CheckSpec> = exhibits
        .iter()
        .zip(&caught)
        .flat_map(|(exhibit, (_, rung))| exhibit.twins.iter().take(rung + 1))
        .map(|spec| (format!("{spec:?}"), spec))
        .collect();
    twins.into_par_iter().for_each(|(name, spec)| {
        let report = check(spec, |progress| progress.distinct < MOST_STATES).unwrap();
        assert!(!report.is_violated(), "{name}: {:#?}", report.counterexample);
    });
}
