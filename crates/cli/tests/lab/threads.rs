//! End-to-end tests of `threads`, and of the shared-memory family among the algorithms.

use serde_json::Value;
use std::process::{Command, Output};

/// The names of all locks for threads.
const LOCKS: [&str; 12] = [
    "dijkstra",
    "eisenberg-mcguire",
    "bakery",
    "peterson",
    "filter",
    "szymanski",
    "black-white-bakery",
    "test-and-set",
    "semaphore",
    "ticket",
    "mcs",
    "clh",
];

fn lockkeeper(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lockkeeper")).args(line.split(' ')).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is UTF-8")
}

fn printed(line: &str) -> String {
    let output = lockkeeper(line);
    assert_eq!(output.status.code(), Some(0), "{line}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn refused(line: &str) -> String {
    let output = lockkeeper(line);
    assert_eq!(output.status.code(), Some(64), "{line}");
    assert!(output.stdout.is_empty(), "{line}");
    text(&output.stderr)
}

#[test]
fn two_atms_lose_a_deposit_and_locks_lose_none() {
    let printed = printed("threads --algorithm bakery --threads 3 --deposits 3000");
    for part in [
        "  1. ATM 1 reads $1,000\n  2. ATM 2 reads $1,000\n",
        "  5. ATM 1 writes $11,000\n  6. ATM 2 writes $11,000\n",
        "the account holds $11,000; $21,000 would be right, and $10,000 are lost",
        "3 threads, 3,000 deposits of $1, $1,000 at first",
    ] {
        assert!(printed.contains(part), "{part}\n{printed}");
    }
    for lock in ["bakery", "std-mutex"] {
        let row = printed.lines().find(|line| line.trim_start().starts_with(lock)).expect(lock);
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words[..3], [lock, "$4,000", "0"], "{printed}");
    }
    assert!(printed.contains("no lock") && !printed.contains("dijkstra"), "{printed}");
}

#[test]
fn json_has_the_promised_form() {
    let printed: Value =
        serde_json::from_str(&printed("threads --threads 2 --deposits 2000 --json")).unwrap();
    assert_eq!((&printed["threads"], &printed["deposits"]), (&2.into(), &2000.into()));
    assert_eq!(printed["fixed_schedule"].as_array().unwrap().len(), 6);
    assert_eq!(printed["fixed_schedule"][5]["balance"], 11_000);
    assert!(printed["without_lock"]["lock"].is_null());
    let locks = printed["locks"].as_array().unwrap();
    let names: Vec<&str> = locks.iter().map(|run| run["lock"].as_str().unwrap()).collect();
    assert_eq!(names, [&LOCKS[..], &["std-mutex"]].concat());
    for run in locks {
        assert_eq!((&run["balance"], &run["expected"]), (&3000.into(), &3000.into()));
        let by_atm: u64 = run["by_atm"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum();
        assert_eq!(by_atm, 2000);
        assert!((0.0..=1.0).contains(&run["overlap"].as_f64().unwrap()), "{run}");
        for key in ["seconds", "per_second", "jain", "longest_wait"] {
            assert!(run[key].is_number(), "{key}");
        }
    }
}

#[test]
fn wrong_usage_is_rejected_with_a_message() {
    let what = refused("threads --algorithm bakeri");
    assert!(
        what.contains(
            "there is no lock 'bakeri' for threads: there are dijkstra, eisenberg-mcguire, bakery,"
        ),
        "{what}"
    );
    for (line, part) in [
        ("threads --threads 0", "0 is not in 1..=256"),
        ("threads --threads 257", "257 is not in 1..=256"),
        ("threads --deposits 0", "0 is not in 1..=1000000000"),
        ("threads --deposits many", "invalid digit"),
    ] {
        let what = refused(line);
        assert!(what.contains(part), "{line}: {what}");
    }
    // An algorithm of this family in another command is rejected with a hint to the right command.
    let what = refused("sim --algorithm bakery --sites 3");
    assert!(what.contains("lockkeeper threads --algorithm bakery"), "{what}");
}

#[test]
fn the_shared_memory_family_is_listed() {
    let list: Value = serde_json::from_str(&printed("algorithms --json")).unwrap();
    let family = |about: &&Value| about["family"] == "shared memory";
    let slugs: Vec<&Value> =
        list.as_array().unwrap().iter().filter(family).map(|about| &about["slug"]).collect();
    assert_eq!(slugs, LOCKS);
    let list = printed("algorithms");
    assert!(list.contains("shared memory") && list.contains("black-white-bakery"), "{list}");
    let one = printed("algorithms black-white-bakery");
    assert!(one.contains("shared memory") && one.contains("Taubenfeld"), "{one}");
}

#[test]
fn the_lab_checks_the_algorithms_that_threads_use() {
    let shared: Vec<&str> = lockkeeper_shared_memory::ALL.iter().map(|about| about.slug).collect();
    let checked = lockkeeper_lab::checker::registers::ALL.iter();
    let right: Vec<&str> =
        checked.filter(|about| about.mutant_of.is_none()).map(|about| about.slug).collect();
    assert!(right.len() == 10 && right.iter().all(|slug| shared.contains(slug)), "{right:?}");
}
