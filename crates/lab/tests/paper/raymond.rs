//! Raymond, *A Tree-Based Algorithm for Distributed Mutual Exclusion*, 1989; described in section 9.12 of
//! Kshemkalyani and Singhal, *Distributed Computing*.

use super::{LoadSpec, SITES, assert_equal, assert_near, mean, measure, n};

/// Section 9.12 of the book, cost at low load: a request travels to the privilege and the privilege back,
/// over every order of requesters.
#[test]
fn twice_the_distance_at_low_load() {
    for sites in SITES {
        let star = measure("raymond", sites, LoadSpec::Pairs, &[("tree", "star")]);
        let others = n(sites) - 1.0;
        assert_equal(star.messages_per_entry, 4.0 * others * others / (n(sites) * n(sites)), "star");
        assert_equal(star.client_delay.mean, star.messages_per_entry.unwrap(), "each message takes T");
        let line = measure("raymond", sites, LoadSpec::Pairs, &[("tree", "line")]);
        assert_equal(line.messages_per_entry, 2.0 * (n(sites) * n(sites) - 1.0) / (3.0 * n(sites)), "line");
        for tree in ["binary", "kary:3", "random:5"] {
            let report = measure("raymond", sites, LoadSpec::Pairs, &[("tree", tree)]);
            assert_equal(report.messages_per_entry, report.expected.messages_per_entry.unwrap(), tree);
        }
    }
}

/// Section 9.12 of the book, cost at heavy load: about four messages per entry, for every number of sites.
#[test]
fn about_four_messages_at_high_load() {
    for sites in SITES {
        let star = measure("raymond", sites, LoadSpec::High, &[]);
        assert_equal(star.messages_per_entry, 4.0 * (1.0 - 1.0 / n(sites)), "star");
        assert_equal(star.sync_delay.mean, 2.0 * (1.0 - 1.0 / n(sites)), "synchronization delay");
        for tree in ["line", "binary", "random:5"] {
            let report = mean("raymond", sites, LoadSpec::High, &[("tree", tree)]);
            assert!(report.messages_per_entry.unwrap() <= 4.0, "{tree}");
        }
    }
}

/// A tree given by the user.
#[test]
fn tree_given_by_the_user_is_used() {
    let edges = ("tree", "1-2,2-3,3-4,4-5");
    let given = mean("raymond", 5, LoadSpec::Low, &[edges]);
    assert_near(given.messages_per_entry, 2.0 * 24.0 / 15.0, "a line by another name");
}
