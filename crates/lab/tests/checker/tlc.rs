//! The search counts the same states as TLC.

use lockkeeper_checker_models::lamport_mutex::LamportMutex;
use lockkeeper_lab::checker::explore::{Ended, Search, SearchLimits};
use lockkeeper_lab::checker::mutual_exclusion::net::Net;

fn counts(processes: usize, max_clock: u8, threads: usize) -> (u64, u64, u64) {
    let net = Net::new(LamportMutex { processes, max_clock });
    let mut search = Search::new(&net, threads);
    let ended = search.run(SearchLimits::NONE, |_| true);
    assert_eq!(ended, Ended::All);
    assert!(search.cut() > 0);
    let progress = search.progress();
    (progress.distinct, progress.generated, progress.depth)
}

#[test]
fn counts_are_as_published_for_three_processes_and_clocks_up_to_6() {
    assert_eq!(counts(3, 6, 2), (724_274, 2_729_079, 61));
}

#[test]
fn counts_are_those_of_tlc_for_smaller_systems() {
    assert_eq!(counts(3, 3, 1), (10_209, 41_533, 31));
    assert_eq!(counts(2, 10, 1), (3_215, 6_061, 64));
}
