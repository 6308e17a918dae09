//! Each known counterexample equals what its checker finds today.

use lockkeeper_cluster_lab::views::bug_switches::search;
use lockkeeper_lab::checker::counterexamples::{self, FoundBy};
use std::path::Path;

/// `LOCKKEEPER_RECORD=1` records them again, for an intended change of a checker or an algorithm.
#[test]
fn every_counterexample_equals_a_fresh_run_of_the_checker() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/counterexamples");
    for failure in counterexamples::ALL {
        let found = match failure.found_by {
            FoundBy::Cluster => search(failure.name).map_err(|error| error.to_string()),
            _ => failure.search().map_err(|error| error.to_string()),
        };
        let found = found.unwrap_or_else(|error| panic!("{}: {error}", failure.name));
        if std::env::var_os("LOCKKEEPER_RECORD").is_some() {
            let ending = if failure.scenario().is_some() { "scenario" } else { "story" };
            std::fs::write(folder.join(format!("{}.{ending}", failure.name)), &found).unwrap();
        } else {
            assert_eq!(found, failure.run, "{}", failure.name);
        }
    }
}
