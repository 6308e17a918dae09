//! The cost of elections equals the formulas exactly.
//!
//! N includes the crashed leader, and messages to it count as sent. Delays are 1 T, the timeout 3 T.

use super::{at, election, site};
use lockkeeper_lab::election::cost::costs;
use lockkeeper_lab::election::{Report, elect};
use lockkeeper_lab::simulator::spec::Action;

const SITES: [usize; 6] = [3, 4, 5, 7, 16, 33];

#[test]
fn every_case_of_every_election_has_the_cost_of_its_formula() {
    let rows = costs(None, &SITES).unwrap();
    assert_eq!(rows.len(), SITES.len() * (3 + 2 + 3 + 2 + 1 + 2));
    for row in rows {
        assert!(row.is_exact(), "{row:?}");
    }
}

fn after_a_crash(name: &str, sites: usize, initiator: usize) -> Report {
    let mut spec = election(name, sites, &[(initiator, 10.0)]);
    at(&mut spec, 10.0, Action::Crash(site(sites)));
    let report = elect(&spec, 1, 1).unwrap();
    assert!(report.held(), "{:?}", report.violations);
    report
}

/// Best case: N−2 COORDINATOR, and one ELECTION to the crashed leader. Worst case: every site sends ELECTION
/// to every higher one.
#[test]
fn bully_best_and_worst_case() {
    for n in SITES.map(|sites| sites as u64) {
        let best = after_a_crash("bully", n as usize, n as usize - 1);
        assert_eq!((best.messages, best.by_message["COORDINATOR"]), (n - 1, n - 2));
        let worst = after_a_crash("bully", n as usize, 1);
        assert_eq!(worst.messages, n * n - n - 1);
        // The timeout of the next highest site, which S1 reaches after T, and its announcement: T + 3T + T.
        if n > 3 {
            assert_eq!(worst.time_to_agreement, Some(5.0));
        }
    }
}

/// The sum that textbooks give for the worst case omits the OKs and assumes that the highest site is up.
#[test]
fn bully_textbook_sum() {
    for n in SITES.map(|sites| sites as u64) {
        let report = elect(&election("bully", n as usize, &[(1, 0.0)]), 1, 1).unwrap();
        let textbook: u64 = (1..n).sum::<u64>() + n - 1;
        assert_eq!(report.by_message["ELECTION"] + report.by_message["COORDINATOR"], textbook);
    }
}

/// 2N with the failed sends to the crashed leader, 2(N−1) without them, for every initiator.
#[test]
fn ring_election_takes_two_rounds() {
    for sites in SITES {
        for initiator in 1..sites {
            let report = after_a_crash("ring-election", sites, initiator);
            let n = sites as u64;
            assert_eq!(report.by_message["ELECTION"] + report.by_message["COORDINATOR"], 2 * n);
            assert_eq!(
                report.by_message["ACK"],
                2 * (n - 1),
                "every message except the two to the crashed leader arrived"
            );
        }
    }
}

/// The list in the messages grows with every site: twice as many sites, about four times as many bytes.
#[test]
fn messages_of_ring_election_grow_and_those_of_chang_roberts_do_not() {
    let bytes = |name, sites| after_a_crash(name, sites, 1).bytes as f64;
    let growth = |name| bytes(name, 64) / bytes(name, 32);
    assert!((3.0..4.0).contains(&growth("ring-election")), "{}", growth("ring-election"));
    assert!((1.9..2.1).contains(&growth("chang-roberts")), "{}", growth("chang-roberts"));
}

/// If all sites start at once: 2N−1 numbers if they rise along the ring, N(N+1)/2 if they fall.
#[test]
fn chang_roberts_depends_on_the_direction() {
    for sites in SITES {
        let n = sites as u64;
        for (direction, expected) in [("up", 2 * n - 1), ("down", n * (n + 1) / 2)] {
            let initiators: Vec<_> = (1..=sites).map(|number| (number, 0.0)).collect();
            let mut spec = election("chang-roberts", sites, &initiators);
            spec.system.settings.push(("direction".into(), direction.into()));
            let report = elect(&spec, 1, 1).unwrap();
            assert_eq!(report.by_message["ELECTION"], expected, "{direction}, {sites}");
            assert_eq!(report.by_message["COORDINATOR"], n);
        }
    }
}

/// If all sites are up, one initiator costs from 2N (the highest site itself) to 3N−1 (its successor).
#[test]
fn chang_roberts_with_all_sites_up() {
    for sites in SITES {
        let n = sites as u64;
        let cost = |initiator| {
            let report = elect(&election("chang-roberts", sites, &[(initiator, 0.0)]), 1, 1).unwrap();
            report.by_message["ELECTION"] + report.by_message["COORDINATOR"]
        };
        assert_eq!((cost(sites), cost(1)), (2 * n, 3 * n - 1));
    }
}
