//! Locks with several holders: Raymond, *A Distributed Algorithm for Multiple Entries to a Critical Section*,
//! 1989, and readers and writers by permission.

use super::{LoadSpec, SITES, assert_equal, assert_near, measure, n};
use lockkeeper_core::{Holder, Mode, SiteId};
use lockkeeper_lab::simulator::delay::Delay;
use lockkeeper_lab::simulator::spec::{Action, Scripted};
use lockkeeper_lab::trace::{EventKind, Record, Sink};
use lockkeeper_lab::{Progress, Report, Spec, Time, simulate, trace_run};
use std::io;

/// The tested numbers of permits.
const PERMITS: [usize; 5] = [1, 2, 3, 5, 8];
/// The tested shares of readers.
const SHARES: [f64; 5] = [0.0, 0.2, 0.5, 0.8, 1.0];

fn permits(sites: usize, k: usize, load: LoadSpec) -> Report {
    measure("k-mutual-exclusion", sites, load, &[("k", &k.to_string())])
}

/// Each of the N−1 other sites receives a REQUEST and sends a REPLY: 2(N−1) messages, a round trip without
/// contention.
#[test]
fn permit_costs_a_request_to_and_a_reply_from_every_other_site() {
    for (sites, k) in SITES.into_iter().flat_map(|sites| PERMITS.map(|k| (sites, k))) {
        let low = permits(sites, k, LoadSpec::Low);
        assert_equal(low.messages_per_entry, 2.0 * (n(sites) - 1.0), "messages");
        let delay = if sites <= k { 0.0 } else { 2.0 };
        assert_equal(low.client_delay.mean, delay, "client delay");
        assert_equal(low.client_delay.max, delay, "largest client delay");
    }
}

/// N−k replies are enough: k sites are inside together, never more, and there are k entries in each T+E.
#[test]
fn at_most_k_sites_are_inside_together() {
    for (k, rounds) in PERMITS.into_iter().flat_map(|k| [2, 3, 4].map(|rounds| (k, rounds))) {
        let sites = rounds * k;
        let high = permits(sites, k, LoadSpec::High);
        assert_eq!(high.max_inside, k, "{sites} sites");
        assert_equal(high.sync_delay.mean, 1.0, "synchronization delay");
        assert_equal(high.sync_delay.max, 1.0, "largest synchronization delay");
        assert_near(high.throughput, k as f64 / 1.1, "throughput is k/(SD+E)");
        assert_near(high.messages_per_entry, 2.0 * (n(sites) - 1.0), "messages, when all take turns");
    }
    // If there is room for all sites, none waits.
    let roomy = permits(5, 8, LoadSpec::High);
    assert_eq!((roomy.max_inside, roomy.waiting.max), (5, Some(0.0)));
}

/// While k−1 sites stay inside, an entry of another needs N−1 requests and the N−k replies that it waits for:
/// 2N−k−1 messages. The replies owed by the sites inside are sent together when they leave.
#[test]
fn sites_that_stay_inside_save_replies() {
    for (sites, k) in [(5, 2), (9, 2), (9, 3), (9, 5), (16, 8), (33, 5)] {
        let mut spec = Spec::new("k-mutual-exclusion", sites);
        spec.settings = vec![("k".into(), k.to_string())];
        spec.entries = 12 * (sites - k + 1) as u64;
        let inside: Vec<SiteId> = SiteId::all(k - 1).collect();
        spec.holders = inside.iter().copied().map(Holder::exclusive).collect();
        spec.script =
            inside.iter().map(|&site| Scripted { at: Time::ZERO, action: Action::Pause(site) }).collect();
        let report = simulate(&spec, 7, 1, &Progress::default()).unwrap();
        assert!(report.held(), "{:?}", report.violations);
        assert_equal(report.messages_per_entry, 2.0 * n(sites) - n(k) - 1.0, "messages");
        assert_eq!(report.max_inside, k);
        assert_equal(report.sync_delay.max, 1.0, "the others take turns as for a mutex");
    }
}

/// A crashed site never replies: each crash costs a permit, inside or outside, until none is left.
#[test]
fn every_crash_costs_a_permit() {
    for (crashes, most) in [(0, 3), (1, 2), (2, 1)] {
        let report = crashed(crashes);
        assert!(report.held(), "{:?}", report.violations);
        assert_eq!(report.max_inside, most, "{crashes} of 9 sites crashed, and k was 3");
    }
    assert_eq!(crashed(3).properties.deadlock, "found");
}

/// Nine sites and three permits; the first sites crash at the start.
fn crashed(sites: usize) -> Report {
    let mut spec = Spec::new("k-mutual-exclusion", 9);
    spec.settings = vec![("k".into(), "3".into())];
    spec.entries = 200;
    let crash = |site| Scripted { at: Time::ZERO, action: Action::Crash(site) };
    spec.script = SiteId::all(sites).map(crash).collect();
    simulate(&spec, 7, 1, &Progress::default()).unwrap()
}

/// With one permit it sends the same messages as Ricart and Agrawala's algorithm.
#[test]
fn one_permit_is_a_mutex() {
    for sites in SITES {
        let (one, mutex) =
            (permits(sites, 1, LoadSpec::High), measure("ricart-agrawala", sites, LoadSpec::High, &[]));
        assert_eq!((one.messages, one.max_inside), (mutex.messages, 1));
        assert_eq!(one.fairness.timestamp_inversions, 0);
    }
}

fn readers(sites: usize, share: f64, load: LoadSpec) -> Report {
    let mut spec = Spec::new("readers-writers", sites);
    spec.load = load;
    spec.readers = share;
    spec.entries = 40 * sites as u64;
    let report = simulate(&spec, 7, 1, &Progress::default()).unwrap();
    assert!(report.held(), "{:?}", report.violations);
    report
}

/// The cost is that of Ricart and Agrawala's algorithm for every share of readers; the next site enters T
/// after a writer or the last reader.
#[test]
fn reading_and_writing_cost_the_same_messages_and_delays() {
    for (sites, share) in SITES.into_iter().flat_map(|sites| SHARES.map(|share| (sites, share))) {
        let low = readers(sites, share, LoadSpec::Low);
        assert_equal(low.messages_per_entry, 2.0 * (n(sites) - 1.0), "messages, low load");
        assert_equal(low.client_delay.max, 2.0, "client delay");
        let high = readers(sites, share, LoadSpec::High);
        assert_near(high.messages_per_entry, 2.0 * (n(sites) - 1.0), "messages, high load");
        if share < 1.0 {
            assert_equal(high.sync_delay.mean, 1.0, "synchronization delay");
            assert_equal(high.sync_delay.max, 1.0, "largest synchronization delay");
        }
    }
}

/// Readers are inside together, all of them if none writes; and a waiter is bypassed at most once by each
/// other site that conflicts with it.
#[test]
fn readers_share_and_no_waiter_is_bypassed_twice_by_a_site() {
    for sites in SITES {
        let all_read = readers(sites, 1.0, LoadSpec::High);
        assert_eq!((all_read.max_inside, all_read.fairness.max_bypass), (sites, 0));
        assert_eq!(all_read.sync_delay.count, 0, "no site ever waits for an exit");
        assert_equal(all_read.waiting.max, 2.0, "a round trip");
        assert_eq!(readers(sites, 0.0, LoadSpec::High).max_inside, 1, "writers");
        for share in SHARES {
            let report = readers(sites, share, LoadSpec::High);
            assert!(report.fairness.max_bypass < sites as u64, "{:?}", report.fairness);
            assert_eq!(report.fairness.timestamp_inversions, 0);
        }
    }
}

/// The entries: time, site, mode.
#[derive(Default)]
struct Entries(Vec<(Time, SiteId, Mode)>);

impl Sink for Entries {
    fn record(&mut self, record: &Record<'_>) -> io::Result<()> {
        if let EventKind::Enter { mode, .. } = record.what {
            self.0.push((record.at, record.site, mode));
        }
        Ok(())
    }

    fn finish(&mut self, _end: Time) -> io::Result<()> {
        Ok(())
    }
}

/// Six sites request one after the other, every T/2, for a section of 4 T, so that some are always inside; a
/// seventh requests in another mode at 20 T. Returns all entries, and the time of the seventh site's entry.
fn one_among_others(others: Mode, own: Mode) -> (Entries, Time) {
    let mut spec = Spec::new("readers-writers", 7);
    spec.load = LoadSpec::Script;
    spec.cs = Some(Delay::Constant(at(4.0)));
    let stream = (0..100).map(|i| Scripted {
        at: Time::from_milli_t(500 * i),
        action: Action::Request(SiteId::new(i as usize % 6), others),
    });
    spec.script = stream.collect();
    spec.script.push(Scripted { at: at(20.0), action: Action::Request(SiteId(6), own) });
    spec.script.sort_by_key(|scripted| scripted.at);
    let mut entries = Entries::default();
    let report = trace_run(&spec, 1, &mut entries, &Progress::default()).unwrap();
    assert!(report.held(), "{:?}", report.violations);
    let entered =
        entries.0.iter().find(|(_, site, _)| *site == SiteId(6)).expect("the seventh site enters").0;
    (entries, entered)
}

fn at(t: f64) -> Time {
    Time::from_t(t).unwrap()
}

/// Once its request has arrived everywhere, no later reader enters first: the writer waits for the readers
/// that are inside or about to enter, for at most T + 2T + 4T, and one T more for the last reply.
#[test]
fn writer_enters_among_a_stream_of_readers() {
    let (entries, entered) = one_among_others(Mode::Shared, Mode::Exclusive);
    assert!(entered <= at(28.0), "{entered}");
    let together = entries.0.iter().filter(|(time, ..)| *time < entered).count();
    assert!(together > 20, "the readers shared: {together} entries of 4 T before {entered} T");
    assert!(entries.0.iter().any(|(time, ..)| *time > entered), "readers enter after it");
}

/// A reader bypasses no waiter and is bypassed only by writers that requested before it: each of the six at
/// most once.
#[test]
fn reader_enters_among_a_stream_of_writers() {
    let (entries, entered) = one_among_others(Mode::Exclusive, Mode::Shared);
    let before = entries.0.iter().filter(|(time, ..)| at(20.0) < *time && *time < entered).count();
    assert!((1..=6).contains(&before), "{before} writers entered first");
    assert!(entries.0.iter().any(|(time, ..)| *time > entered), "writers enter after it");
}
