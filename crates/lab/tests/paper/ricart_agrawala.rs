//! Ricart and Agrawala, *An Optimal Algorithm for Mutual Exclusion in Computer Networks*, 1981; described in
//! section 9.4 of Kshemkalyani and Singhal, *Distributed Computing*.

use lockkeeper_lab::Progress;

use super::{LoadSpec, SITES, assert_equal, measure, n};

/// The paper's message traffic, section 9.4 of the book: N−1 requests and N−1 replies for each entry.
#[test]
fn two_messages_for_every_other_site() {
    for sites in SITES {
        for load in [LoadSpec::Low, LoadSpec::High] {
            let report = measure("ricart-agrawala", sites, load, &[]);
            assert_equal(report.messages_per_entry, 2.0 * (n(sites) - 1.0), "messages");
            assert_eq!(report.by_message["REQUEST"], report.by_message["REPLY"]);
            assert_equal(report.on_exit, 0.0, "a deferred reply is another site's permission to enter");
        }
    }
}

/// The paper's delay, section 9.4 of the book: a round trip without contention, and a single message from one
/// section to the next with contention.
#[test]
fn a_round_trip_alone_and_one_delay_between_sections() {
    for sites in SITES {
        let low = measure("ricart-agrawala", sites, LoadSpec::Low, &[]);
        assert_equal(low.client_delay.mean, 2.0, "client delay");
        assert_equal(low.client_delay.max, 2.0, "largest client delay");
        let high = measure("ricart-agrawala", sites, LoadSpec::High, &[]);
        assert_equal(high.sync_delay.mean, 1.0, "synchronization delay");
        assert_equal(high.sync_delay.max, 1.0, "largest synchronization delay");
        assert_equal(high.throughput, 1.0 / 1.1, "throughput is 1/(SD+E)");
    }
}

/// Section 9.4 of the book, on fairness: requests are served in the order of their sequence numbers, ties by
/// the node's number.
#[test]
fn entries_follow_the_order_of_sequence_numbers() {
    for sites in SITES {
        let report = measure("ricart-agrawala", sites, LoadSpec::High, &[]);
        assert_eq!(report.fairness.timestamp_inversions, 0);
        assert_eq!(report.fairness.causal_inversions, Some(0));
        assert_eq!(report.fairness.max_bypass, sites as u64 - 1);
    }
}

/// The figure of the textbooks with the timestamps 41 and 34: the smaller one is served first.
#[test]
fn clocks_start_at_the_readings_of_the_textbook() {
    let scenario = lockkeeper_lab::Scenario::open("ricart-agrawala-textbook-timestamps").unwrap();
    let mut story = lockkeeper_lab::trace::Story::default();
    lockkeeper_lab::trace_run(&scenario.spec, 1, &mut story, &Progress::default()).unwrap();
    let story: Vec<String> = story.lines.into_iter().map(|(_, line)| line).collect();
    let text = story.join("\n");
    assert!(text.contains("REQUEST(41) to S2, S3") && text.contains("REQUEST(34) to S1, S3"), "{text}");
    let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}\n{text}"));
    assert!(place("S2 is inside") < place("S1 is inside"));
    let mut spec = scenario.spec;
    spec.algorithm = "token-ring".into();
    let error = lockkeeper_lab::simulate(&spec, 1, 1, &Progress::default()).unwrap_err().to_string();
    assert_eq!(error, "'clock' sets Lamport clocks at the start, and token-ring has none");
}

/// Of the messages against deadlock, each travels between sites in a figure.
#[test]
fn figures_use_every_message_of_maekawa_and_of_the_recovering_ring() {
    let kinds = |name: &str| {
        let scenario = lockkeeper_lab::Scenario::open(name).unwrap();
        let report = lockkeeper_lab::simulate(&scenario.spec, 1, 1, &Progress::default()).unwrap();
        report
            .by_message
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(kind, _)| kind)
            .collect::<Vec<_>>()
    };
    let maekawa = kinds("maekawa-inquire");
    for kind in ["REQUEST", "LOCKED", "FAILED", "INQUIRE", "RELINQUISH", "RELEASED"] {
        assert!(maekawa.contains(&kind), "{kind} in {maekawa:?}");
    }
    let ring = kinds("token-made-anew");
    assert!(["TOKEN", "WHO-HAS", "ANSWER"].iter().all(|kind| ring.contains(kind)), "{ring:?}");
}
