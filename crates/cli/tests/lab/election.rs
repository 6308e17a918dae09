//! End-to-end tests of `lockkeeper sim --election` and `compare --elections`.

use serde_json::Value;
use std::process::{Command, Output};

fn lockkeeper(line: &str) -> Output {
    let words = line.split(' ').filter(|word| !word.is_empty());
    Command::new(env!("CARGO_BIN_EXE_lockkeeper")).args(words).output().expect("the binary runs")
}

fn printed(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("output is UTF-8")
}

fn complained(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("output is UTF-8")
}

fn json(line: &str) -> (i32, Value) {
    let output = lockkeeper(line);
    let value = serde_json::from_str(&printed(&output)).expect("one JSON value");
    (output.status.code().expect("an exit code"), value)
}

#[test]
fn the_json_of_an_election_has_the_promised_form() {
    let (code, run) = json("sim --election bully --sites 7 --crash 7@10 --initiator 1 --recover 7@50 --json");
    assert_eq!(code, 0);
    assert_eq!((&run["election"], &run["sites"], &run["seed"]), (&"bully".into(), &7.into(), &1.into()));
    // N²−N−1 messages after the crash, N−1 when the highest site comes back.
    assert_eq!(run["messages"], 41 + 6);
    assert_eq!(run["by_message"]["OK"], 15);
    assert!(run["bytes"].is_number());
    assert_eq!(run["elections"][0]["to"], 15.0);
    assert_eq!(run["announced"][0]["site"], 6);
    assert_eq!(run["outcome"][0]["leader"], 7);
    assert_eq!(run["properties"]["highest_leads"], "held");
    assert_eq!(run["violations"], Value::Array(Vec::new()));
}

#[test]
fn a_partition_gives_two_leaders_and_a_command_that_reproduces_it() {
    let output =
        lockkeeper("sim --election bully --sites 7 --initiator 1@31 --partition 1,2,3|4,5,6,7@30..60");
    assert_eq!(output.status.code(), Some(2));
    let complaint = complained(&output);
    assert!(complaint.contains("two leaders"), "{complaint}");
    assert!(complaint.contains("S1, S2, S3 follow S3; S4, S5, S6, S7 follow S7"), "{complaint}");
    let again =
        complaint.lines().find_map(|line| line.split_once("see it again with: lockkeeper ")).unwrap().1;
    assert_eq!(complained(&lockkeeper(&again.replace('\'', ""))), complaint);
}

#[test]
fn elections_are_traced_in_every_format() {
    let directory = std::env::temp_dir().join(format!("lockkeeper-election-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let forms = [
        ("svg", "leader</text>"),
        ("jsonl", r#""event":"elected","leader":"S3""#),
        ("shiviz", "S3 leads."),
        ("mmd", "Note over S3: 14 T: leads"),
        ("perfetto.json", r#""name":"leading""#),
    ];
    for (form, expected) in forms {
        let path = directory.join(format!("run.{form}"));
        let line = "sim --election bully --sites 4 --crash 4@10 --initiator 1 --trace";
        let output = lockkeeper(&format!("{line} {}", path.display()));
        assert!(output.status.success(), "{}", complained(&output));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(expected), "{form}: {text}");
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn counterexample_of_an_election_is_a_scenario_that_is_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("cut.scenario").display().to_string();
    let checked = lockkeeper(&format!("check bully --sites 3 --partition --trace {file}"));
    assert_eq!(checked.status.code(), Some(2));
    assert!(
        printed(&checked).contains("S1 misses the leader: it asks every higher site"),
        "{}",
        printed(&checked)
    );
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("election: bully\n") && text.contains("S1 wakes 1"), "{text}");
    let replayed = lockkeeper(&format!("replay {file}"));
    assert_eq!(replayed.status.code(), Some(2));
    assert!(printed(&replayed).contains("two leaders at 3 T: S1 comes to lead although S3 is up"));
    let report = lockkeeper(&format!("sim --scenario {file}"));
    assert_eq!(report.status.code(), Some(2), "{}", complained(&report));
}

#[test]
fn saved_trace_of_an_election_is_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("run.jsonl").display().to_string();
    let line = format!("sim --election bully --sites 4 --crash 4@10 --initiator 1 --trace {file}");
    assert!(lockkeeper(&line).status.success());
    let replayed = lockkeeper(&format!("replay {file}"));
    assert!(replayed.status.success(), "{}", complained(&replayed));
    assert!(printed(&replayed).contains("came out the same"), "{}", printed(&replayed));
}

#[test]
fn figure_of_an_election_shows_the_states_of_each_step() {
    let described = printed(&lockkeeper("scenarios bully-crash-during-election"));
    for part in
        ["S1 state: waits for COORDINATOR", "S3 crashed", "S2 leads; 16 messages; every property held"]
    {
        assert!(described.contains(part), "{part}\n{described}");
    }
    let report = lockkeeper("sim --scenario bully-crash-during-election");
    assert!(report.status.success() && printed(&report).contains("S2"), "{}", printed(&report));
}

#[test]
fn the_table_meets_every_formula() {
    let output = lockkeeper("compare --elections --sites 3,7,16");
    let table = printed(&output);
    assert!(output.status.success() && table.contains("N²−N−1") && !table.contains('≠'), "{table}");
    let (_, rows) = json("compare --elections --sites 7 --json");
    assert_eq!(rows.as_array().map(Vec::len), Some(13));
}

#[test]
fn algorithms_lists_elections_as_a_family() {
    let (_, all) = json("algorithms --json");
    let of_family =
        |family: &str| all.as_array().unwrap().iter().filter(|about| about["family"] == family).count();
    assert_eq!(of_family("election"), 6);
    assert!(["coordinator", "permission", "token", "quorum"].into_iter().all(|family| of_family(family) > 0));
    assert!(printed(&lockkeeper("algorithms")).contains("chang-roberts"));
}

#[test]
fn wrong_usage_is_rejected_with_a_message() {
    for (line, expected) in [
        ("sim --election bull --sites 3", "there is no election 'bull'"),
        ("sim --election bully --sites 3 --initiator 9", "no site '9'"),
        ("sim --election bully --sites 3 --load low", "--load cannot be used with --election"),
        ("sim --election bully --sites 3 --readers 0.5", "--readers cannot be used with --election"),
        ("sim --election bully --sites 3 --holder 1", "--holder cannot be used with --election"),
        ("compare --elections --readers 0.5", "--readers cannot be used with --elections"),
        ("compare --elections --set k=3", "--set cannot be used with --elections"),
        ("compare --elections --load low", "--load cannot be used with --elections"),
        ("sim --algorithm lamport --sites 3 --initiator 1", "cannot be used with '--initiator"),
        ("sim --sites 3 --initiator 1", "--election"),
        ("sim --election bully --sites 3 --set denied=yes", "there is timeout"),
    ] {
        let output = lockkeeper(line);
        assert_eq!(output.status.code(), Some(64), "{line}");
        assert!(complained(&output).contains(expected), "{line}: {}", complained(&output));
    }
}
