//! End-to-end tests of `check` and `replay`.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn lockkeeper(line: &str) -> Output {
    let binary = env!("CARGO_BIN_EXE_lockkeeper");
    Command::new(binary).args(line.split_whitespace()).output().expect("the binary runs")
}

fn printed(line: &str, code: i32) -> String {
    let output = lockkeeper(line);
    let stdout = String::from_utf8(output.stdout).expect("output is UTF-8");
    let stderr = String::from_utf8(output.stderr).expect("output is UTF-8");
    assert_eq!(output.status.code(), Some(code), "{line}\n{stdout}\n{stderr}");
    stdout + &stderr
}

#[test]
fn a_verified_algorithm_has_the_promised_form() {
    let answer: Value =
        serde_json::from_str(&printed("check ricart-agrawala --sites 3 --requests 2 --json", 0)).unwrap();
    for name in [
        "algorithm",
        "sites",
        "requests",
        "distinct",
        "generated",
        "depth",
        "complete",
        "reduction",
        "seconds",
        "bytes_per_state",
        "properties",
        "never_fired",
        "max_bypass",
        "max_messages_per_entry",
        "counterexample",
    ] {
        assert!(answer.get(name).is_some(), "{name} is missing in {answer}");
    }
    assert_eq!((&answer["distinct"], &answer["complete"]), (&16_801.into(), &true.into()));
    let full: Value =
        serde_json::from_str(&printed("check ricart-agrawala --sites 3 --requests 2 --full --json", 0))
            .unwrap();
    assert_eq!((&full["distinct"], &full["reduction"]), (&73_518.into(), &Value::Null));
    assert_eq!((&answer["max_bypass"], &answer["max_messages_per_entry"]), (&4.into(), &4.0.into()));
    assert_eq!(answer["properties"]["mutual_exclusion"], "holds");
    assert_eq!(
        (&answer["counterexample"], &answer["never_fired"]),
        (&Value::Null, &Value::Array(Vec::new()))
    );
}

#[test]
fn a_counterexample_is_printed_drawn_and_written_for_replay_and_sim() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (svg, scenario) = (place("broken.svg"), place("broken.scenario"));
    let text = printed(&format!("check lamport --sites 2 --non-fifo --svg {svg} --trace {scenario}"), 2);
    assert!(text.contains("3. S1 receives REQUEST(1) from S2: it puts the request into its queue"), "{text}");
    assert!(text.contains("5 █─REPLY(2)─────>│"), "a diagram in text:\n{text}");
    assert!(std::fs::read_to_string(&svg).unwrap().starts_with("<svg"));
    let replayed = printed(&format!("replay {scenario}"), 2);
    assert!(
        replayed.contains("mutual exclusion violated at 4 T: S2 enters while S1 is inside"),
        "{replayed}"
    );
    assert!(printed(&format!("sim --scenario {scenario}"), 2).contains("mutual exclusion violated"));
}

#[test]
fn a_variant_can_be_checked_and_replayed_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("variant.scenario");
    let scenario = scenario.to_string_lossy();
    let text = printed(
        &format!("check centralized-last-come-first-served --sites 2 --forever --trace {scenario}"),
        2,
    );
    assert!(text.contains("from here on it goes round and round"), "{text}");
    assert!(printed(&format!("replay {scenario}"), 0).contains("goes round and round"));
}

#[test]
fn a_saved_trace_is_reproduced_or_the_first_difference_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let run = "sim --algorithm raymond --sites 5 --entries 10 --delay exponential:1 --seed 7";
    printed(&format!("{run} --trace {}", path.display()), 0);
    assert!(printed(&format!("replay {}", path.display()), 0).contains("came out the same"));
    changed(&path);
    assert!(printed(&format!("replay {}", path.display()), 2).contains("differs in line 3"));
}

/// Changes the third line of a file.
fn changed(path: &Path) {
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines: Vec<String> = text.lines().map(Into::into).collect();
    lines[2] = lines[2].replace("\"site\":\"S", "\"site\":\"X");
    std::fs::write(path, lines.join("\n") + "\n").unwrap();
}

#[test]
fn budgets_and_wrong_usage_have_their_own_exit_codes() {
    let text = printed("check lamport --sites 3 --max-states 5000", 3);
    assert!(text.contains("The budget was reached"), "{text}");
    assert!(printed("check lamprot", 64).contains("did you mean 'lamport'"));
    assert!(printed("check lamport --sites 12", 64).contains("1 to 9 sites"));
    assert!(printed("check lamport --requests 0", 64).contains("1 to 15 requests"));
    assert!(printed("check lamport --only happiness", 64).contains("mutual-exclusion"));
    assert!(printed("replay nowhere.scenario", 64).contains("neither a file nor one of the figures"));
    printed("check", 64);
}

#[test]
fn a_cluster_is_checked_and_a_bug_switch_is_caught() {
    let text = printed("check --cluster --crashes 1", 0);
    assert!(text.contains("Everything that was promised holds"), "{text}");
    let text = printed("check --cluster --sleeps 1 --bug no-wait", 2);
    assert!(text.contains("VIOLATED: no lease outside of a view that starts. After 6 steps"), "{text}");
    let answer: Value =
        serde_json::from_str(&printed("check --cluster --sleeps 1 --bug no-wait --json", 2)).unwrap();
    assert_eq!(answer["counterexample"].as_array().map(Vec::len), Some(6));
    assert!(printed("check --cluster --bug no-weight", 64).contains("no-wait"));
    // The former name of the flag.
    assert!(printed("check --cluster --bug no-weight", 64).contains("no-wait"));
    assert!(printed("check raymond --cluster", 64).contains("naimi-trehel or ricart-agrawala"));
}

#[test]
fn registers_are_checked_by_the_same_command() {
    assert!(printed("check bakery --sites 2 --safe-registers", 0).contains("safe registers"));
    // The former name of the flag.
    assert!(printed("check bakery --sites 2 --flickering", 0).contains("safe registers"));
    assert!(printed("check bakery-without-choosing --sites 2", 2).contains("P1 and P2 are both inside"));
    let text = printed("check dijkstra --sites 2", 0);
    assert!(text.contains("does not hold, and is not promised"), "{text}");
    assert!(text.contains("and then, again and again:"), "{text}");
}

#[test]
fn elections_are_checked_by_the_same_command() {
    let report: Value = serde_json::from_str(&printed(
        "check bully --sites 3 --initiators 3 --crashes 1 --threads 2 --max-seconds 600 --json",
        0,
    ))
    .unwrap();
    assert_eq!((&report["distinct"], &report["model"]), (&9_800.into(), &"election".into()));
    for property in ["highest_leads", "agreement", "termination"] {
        assert_eq!(report["properties"][property], "holds", "{report}");
    }
    let text = printed("check bully --sites 3 --partition", 2);
    assert!(text.contains("highest leads      VIOLATED"), "{text}");
    assert!(text.contains("Two leaders: S1 comes to lead although S3 is up"), "{text}");
    let text = printed("check bully --sites 3 --short-timeouts --only highest-leads --non-fifo", 2);
    assert!(text.contains("3. a timer of S1 runs out") && !text.contains("agreement"), "{text}");
    let text = printed("check bully-ignores-ok --sites 3 --crashes 1", 2);
    assert!(text.contains("highest leads      VIOLATED"), "{text}");
    assert!(printed("check bully --set patience=3", 64).contains("patience"));
    assert!(printed("check bully --sites 12", 64).contains("1 to 9 sites"));
}

#[test]
fn a_flag_that_does_not_apply_is_refused_with_the_flag_the_model_and_the_jobs_that_use_it() {
    for (line, flag, model, applies) in [
        (
            "check bakery --crashes 1",
            "--crashes",
            "bakery",
            "message-passing algorithms, elections, --all and --cluster",
        ),
        ("check bakery --svg x", "--svg", "bakery", "message-passing algorithms"),
        ("check bakery --trace x", "--trace", "bakery", "message-passing algorithms"),
        ("check bakery --initiators 1", "--initiators", "bakery", "elections"),
        ("check dijkstra --requests 2", "--requests", "dijkstra", "message-passing algorithms"),
        ("check bakery --set k=2", "--set", "bakery", "message-passing algorithms and elections"),
        ("check bully --requests 2", "--requests", "bully", "message-passing algorithms and --all"),
        ("check bully --losses 1", "--losses", "bully", "message-passing algorithms"),
        ("check bully --full", "--full", "bully", "message-passing algorithms"),
        (
            "check bully --regular-registers",
            "--regular-registers",
            "bully",
            "algorithms for shared registers",
        ),
        (
            "check bully-ignores-ok --safe-registers",
            "--safe-registers",
            "bully-ignores-ok",
            "algorithms for shared registers",
        ),
        ("check lamport --safe-registers", "--safe-registers", "lamport", "algorithms for shared registers"),
        ("check lamport --partition", "--partition", "lamport", "elections"),
        ("check --all --svg x", "--svg", "--all", "message-passing algorithms"),
        ("check --all --safe-registers", "--safe-registers", "--all", "algorithms for shared registers"),
        ("check --mutants --sites 2", "--sites", "--mutants", "message-passing algorithms"),
        ("check --mutants --max-states 9", "--max-states", "--mutants", "message-passing algorithms"),
        ("check --cluster --sites 2", "--sites", "--cluster", "message-passing algorithms"),
        ("check --cluster --losses 1", "--losses", "--cluster", "message-passing algorithms"),
        ("check --cluster --only no-deadlock", "--only", "--cluster", "message-passing algorithms"),
        ("check --cluster --threads 2", "--threads", "--cluster", "message-passing algorithms"),
        (
            "check lamport --crashes 1 --safe-registers",
            "--safe-registers",
            "lamport",
            "algorithms for shared registers",
        ),
    ] {
        let text = printed(line, 64);
        assert!(text.contains(&format!("{flag} cannot be used with {model}:")), "{line}: {text}");
        assert!(text.contains(&format!("it applies to {applies}")), "{line}: {text}");
    }
    assert!(!Path::new("x").exists());
    assert!(printed("check dijkstra --tickets 3", 64).contains("'tickets' cannot be used with 'dijkstra'"));
}

#[test]
fn every_model_has_the_same_budgets() {
    for model in ["lamport --sites 3", "bully --sites 3 --crashes 1", "bakery --sites 3"] {
        for budget in ["--max-states 60", "--max-depth 5", "--max-memory 0"] {
            let text = printed(&format!("check {model} {budget} --threads 1"), 3);
            assert!(text.contains("not known") && text.contains("The budget was reached"), "{text}");
        }
    }
}

#[test]
fn registers_report_a_violation_within_the_budget_and_check_one_property_alone() {
    let text = printed("check bakery-without-choosing --sites 2 --max-states 60", 2);
    assert!(text.contains("P1 and P2 are both inside") && text.contains("not known"), "{text}");
    let text = printed("check dijkstra --sites 2 --only no-starvation", 2);
    assert!(text.contains("no starvation") && !text.contains("mutual exclusion"), "{text}");
    printed("check dijkstra --sites 2 --only mutual-exclusion --threads 2 --max-seconds 600", 0);
    printed("check dijkstra --sites 2 --only first-come-first-served", 2);
    let text = printed("check bakery --only timestamp-order", 64);
    assert!(text.contains("timestamp-order") && text.contains("no-starvation"), "{text}");
}

#[test]
fn a_deadlock_is_starvation_in_check_sim_and_properties() {
    let text = printed("check maekawa-basic --sites 3 --only no-starvation", 2);
    assert!(text.contains("no starvation      VIOLATED"), "{text}");
    assert!(text.contains("Starvation: nothing can happen any more"), "{text}");
    let text = printed("check maekawa-basic --sites 3", 2);
    assert!(
        text.contains("no deadlock        VIOLATED") && text.contains("no starvation      VIOLATED"),
        "{text}"
    );
    let text = printed("sim --scenario maekawa-deadlock", 2);
    assert!(text.contains("deadlock found, starvation found"), "{text}");
    let found: Value = serde_json::from_str(&printed("properties -a maekawa-basic --json", 0)).unwrap();
    let answer = |name: &str| {
        let answers = found[0]["answers"].as_array().unwrap();
        answers.iter().find(|answer| answer[0] == name).unwrap()[1].clone()
    };
    let (deadlock, starvation) = (answer("no_deadlock"), answer("no_starvation"));
    assert_eq!((&deadlock["found"], &deadlock), (&"broken".into(), &starvation));
}

#[test]
fn a_table_of_all() {
    let text = printed("check --all --sites 2", 0);
    assert!(text.contains("maekawa-basic") && text.contains("deadlock after 4 steps"), "{text}");
    let verified = text.matches("verified").count();
    assert_eq!(verified, lockkeeper_core::registry::ALL.len() - 1, "{text}");
}
