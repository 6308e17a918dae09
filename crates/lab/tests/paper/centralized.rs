//! The centralized coordinator; Coulouris et al., *Distributed Systems*, section 15.2.

use super::{LoadSpec, SITES, assert_equal, measure, n};

/// ENTER and GRANTED to enter, RELEASED on exit; a round trip to enter, and another between two entries.
#[test]
fn three_messages_and_two_delays_with_a_separate_coordinator() {
    for sites in SITES {
        for load in [LoadSpec::Low, LoadSpec::High] {
            let report = measure("centralized", sites, load, &[]);
            assert_equal(report.messages_per_entry, 3.0, "messages");
            assert_equal(report.to_enter, 2.0, "to enter");
            assert_equal(report.on_exit, 1.0, "on exit");
            match load {
                LoadSpec::Low => assert_equal(report.client_delay.max, 2.0, "client delay"),
                _ => assert_equal(report.sync_delay.mean, 2.0, "synchronization delay"),
            }
        }
    }
}

/// The coordinator's own requests cost nothing: one in N, over every order of requesters.
#[test]
fn a_coordinator_among_the_sites_saves_one_entry_in_n() {
    for sites in SITES {
        let remote = 1.0 - 1.0 / n(sites);
        let low = measure("centralized", sites, LoadSpec::Pairs, &[("coordinator", "1")]);
        assert_equal(low.messages_per_entry, 3.0 * remote, "messages, low");
        assert_equal(low.client_delay.mean, 2.0 * remote, "client delay");
        let high = measure("centralized", sites, LoadSpec::High, &[("coordinator", "1")]);
        assert_equal(high.messages_per_entry, 3.0 * remote, "messages, high");
        assert_equal(high.sync_delay.mean, 2.0 * remote, "synchronization delay");
    }
}

/// With DENIED, a request that has to wait costs a fourth message; at low load no request waits.
#[test]
fn denied_costs_a_fourth_message_for_requests_that_wait() {
    for sites in SITES {
        let denied = ("denied", "yes");
        let high = measure("centralized", sites, LoadSpec::High, &[denied]);
        assert_equal(high.messages_per_entry, 4.0, "messages, high");
        let among = measure("centralized", sites, LoadSpec::High, &[denied, ("coordinator", "2")]);
        assert_equal(
            among.messages_per_entry,
            4.0 * (1.0 - 1.0 / n(sites)),
            "messages, coordinator among the sites",
        );
        let low = measure("centralized", sites, LoadSpec::Low, &[denied]);
        assert_equal(low.messages_per_entry, 3.0, "messages, low");
    }
}

/// Every message goes to or comes from the coordinator, for every number of sites.
#[test]
fn the_coordinator_handles_every_message() {
    for sites in SITES {
        let report = measure("centralized", sites, LoadSpec::High, &[]);
        assert_equal(report.site_load.max, 3.0, "load of the coordinator");
    }
}
