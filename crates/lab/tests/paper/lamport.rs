//! Lamport, *Time, Clocks, and the Ordering of Events in a Distributed System*, 1978.

use super::{LoadSpec, SITES, assert_equal, measure, n};

/// Section "Ordering the Events Totally", rules 1 to 5: a request, an acknowledgement and a release go to or
/// come from every other process, so that an entry costs 3(N−1) messages at every load.
#[test]
fn three_messages_for_every_other_site() {
    for sites in SITES {
        for load in [LoadSpec::Low, LoadSpec::High] {
            let report = measure("lamport", sites, load, &[]);
            assert_equal(report.messages_per_entry, 3.0 * (n(sites) - 1.0), "messages");
            let each = report.entries * (sites as u64 - 1);
            assert_eq!(report.by_message["REQUEST"], each);
            assert_eq!(report.by_message["REPLY"], each);
            assert_eq!(report.by_message["RELEASE"], each);
            assert_equal(report.to_enter, 2.0 * (n(sites) - 1.0), "to enter");
            assert_equal(report.on_exit, n(sites) - 1.0, "on exit");
        }
    }
}

/// Rules 3 to 5: the release travels for T, and on its receipt the next process enters.
#[test]
fn one_delay_from_exit_to_entry() {
    for sites in SITES {
        let report = measure("lamport", sites, LoadSpec::High, &[]);
        assert_equal(report.sync_delay.mean, 1.0, "synchronization delay");
        assert_equal(report.sync_delay.max, 1.0, "largest synchronization delay");
        assert_equal(report.throughput, 1.0 / 1.1, "throughput is 1/(SD+E)");
    }
}

/// Rules 1, 2 and 5: without contention, a process waits for its request to arrive and for the reply to
/// return.
#[test]
fn a_round_trip_to_enter_alone() {
    for sites in SITES {
        let report = measure("lamport", sites, LoadSpec::Low, &[]);
        assert_equal(report.client_delay.mean, 2.0, "client delay");
        assert_equal(report.client_delay.max, 2.0, "largest client delay");
    }
}

/// The section's conditions II and III: requests are granted in the order in which they are made, and every
/// request is granted. No entry is out of the order of timestamps or of causality, and no site bypasses a
/// waiter twice.
#[test]
fn requests_are_granted_in_order() {
    for sites in SITES {
        let report = measure("lamport", sites, LoadSpec::High, &[]);
        assert_eq!(report.fairness.timestamp_inversions, 0);
        assert_eq!(report.fairness.causal_inversions, Some(0));
        assert_eq!(report.fairness.max_bypass, sites as u64 - 1);
        assert_equal(report.fairness.jain, 1.0, "Jain's index");
    }
}

/// Lectures that count the receipt of a REQUEST and the sending of its REPLY as two events of the clock show REPLY(3)
/// where one step of the algorithm gives REPLY(2). The setting changes the numbers only.
#[test]
fn a_reply_has_a_tick_of_its_own_if_the_settings_say_so() {
    let run = |settings: &[(&str, &str)]| {
        let mut spec = lockkeeper_lab::Scenario::open("lamport-two-requests").unwrap().spec;
        spec.settings = settings.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let mut story = lockkeeper_lab::trace::Story::default();
        let report =
            lockkeeper_lab::trace_run(&spec, 1, &mut story, &lockkeeper_lab::Progress::default()).unwrap();
        let lines: Vec<String> = story.lines.iter().map(|(_, line)| line.clone()).collect();
        (report, lines.join("\n"))
    };
    let ((one, first), (two, second)) = (run(&[]), run(&[("ticks", "two")]));
    assert!(first.contains("It sends REPLY(2) to S1") && !first.contains("REPLY(4)"), "{first}");
    assert!(second.contains("It sends REPLY(3) to S1") && !second.contains("REPLY(2)"), "{second}");
    assert_eq!((one.entries, one.messages), (two.entries, two.messages));
    assert!(one.held() && two.held());
}
