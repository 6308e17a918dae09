//! End-to-end tests of `compare`, `properties`, `explain`, `choose` and `quorums`.

use serde_json::Value;
use std::process::{Command, Output, Stdio};

fn lockkeeper(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lockkeeper")).args(args).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is UTF-8")
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn printed(line: &str) -> String {
    let output = lockkeeper(&words(line));
    assert_eq!(output.status.code(), Some(0), "{line}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn json(line: &str) -> Value {
    serde_json::from_str(&printed(line)).expect("one JSON value")
}

#[test]
fn quorums_have_the_promised_form() {
    let expected = "{\"construction\":\"plane\",\"sites\":7,\"quorums\":[[1,2,4],[2,3,5],[3,4,6],[4,5,7],[1,5,6],[2,6,7],\
                    [1,3,7]],\"m1\":true,\"m2\":true,\"m3\":true,\"m4\":true,\"load\":0.428571428571428";
    let plane = "quorums --sites 7 --construction plane --json";
    assert!(printed(plane).starts_with(expected), "{}", printed(plane));
    let plane = json(plane);
    assert_eq!((&plane["load_exact"], &plane["samples"]), (&true.into(), &Value::Null));
    assert_eq!(plane["failure"].as_array().unwrap().len(), 6);
    assert!((plane["failure"][5]["failure"].as_f64().unwrap() - 0.5).abs() < 1e-9);
    let grid = json("quorums --sites 10 --construction grid --json");
    assert_eq!((&grid["m1"], &grid["m3"]), (&true.into(), &false.into()));
    let tree = json("quorums --sites 7 --construction tree --json");
    assert_eq!((&tree["m1"], &tree["m2"], &tree["m4"]), (&true.into(), &true.into(), &false.into()));
    assert!(printed("quorums --sites 9 --construction majority").contains("M3  all have the same size"));
}

#[test]
fn load_and_availability_of_quorums_are_printed_and_drawn() {
    let tree = printed("quorums --sites 7 --construction tree --whole");
    for part in
        ["of 15 different quorums", "load                 1/2 = 0.5000 (exact)", "exact: all 2^7 sets"]
    {
        assert!(tree.contains(part), "{part}\n{tree}");
    }
    assert!(
        printed("quorums --sites 7 --construction tree").contains("1/1 = 1.0000 (exact)"),
        "every path has the root"
    );
    let large = printed("quorums --sites 25 --construction grid");
    assert!(
        large.contains("9/25 = 0.3600 (exact)") && large.contains("2000 random sets of each size"),
        "{large}"
    );
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("quorum-plots");
    printed(&format!("quorums --sites 7 --construction plane --plots {}", folder.display()));
    for name in ["availability.svg", "load.svg"] {
        assert!(std::fs::read_to_string(folder.join(name)).unwrap().starts_with("<svg"), "{name}");
    }
    let output = lockkeeper(&["quorums", "--sites", "31", "--construction", "tree", "--whole"]);
    assert_eq!(output.status.code(), Some(64));
    assert!(text(&output.stderr).contains("more than 10000 quorums"), "{}", text(&output.stderr));
}

#[test]
fn quorums_from_a_file_are_checked() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let triangle = file("triangle", "# seed of all deadlocks\n1,2\n2 3\n3,1\n");
    let sets = json(&format!("quorums --sites 3 --construction {triangle} --json"));
    assert_eq!(sets["quorums"], serde_json::json!([[1, 2], [2, 3], [1, 3]]));

    let apart = file("apart", "1,2\n2,3\n3,4\n4,1\n");
    let output = lockkeeper(&["quorums", "--construction", &apart, "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let sets: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    assert_eq!((&sets["m1"], &sets["m2"]), (&false.into(), &true.into()));
    assert!(text(&output.stderr).contains("{S1, S2} of S1 and {S3, S4} of S3 share no site"), "{output:?}");

    let unknown = file("unknown", "1,2\n2,9\n");
    let output = lockkeeper(&["quorums", "--construction", &unknown]);
    assert_eq!(output.status.code(), Some(64));
    assert!(text(&output.stderr).contains("line 2: there is no site '9'"));
}

#[test]
fn a_comparison_has_the_promised_form() {
    let line =
        "compare --algorithms ricart-agrawala,maekawa-basic --sites 3,7 --load low,high --seeds 2 --json";
    let all = json(line);
    assert_eq!(printed(line), printed(line), "the same bytes");
    assert_eq!(all["rows"].as_array().unwrap().len(), 8);
    let row = &all["rows"][2];
    assert_eq!(
        (&row["algorithm"], &row["sites"], &row["load"]),
        (&"ricart-agrawala".into(), &7.into(), &"low".into())
    );
    assert_eq!((&row["messages_per_entry"], &row["formula_value"]), (&12.0.into(), &12.0.into()));
    assert_eq!((&row["formula"], &row["verdict"]), (&"2(N−1)".into(), &"exact".into()));
    assert_eq!((&row["to_enter"], &row["on_exit"]), (&12.0.into(), &0.0.into()));
    for key in
        ["throughput", "throughput_bound", "jain", "busiest_site", "state_bytes", "fifo_needed", "crash"]
    {
        assert!(row.get(key).is_some(), "{key}");
    }
    let stuck = all["rows"].as_array().unwrap().iter().find(|row| row["verdict"] == "deadlocks").unwrap();
    assert_eq!((&stuck["algorithm"], &stuck["load"]), (&"maekawa-basic".into(), &"high".into()));

    // The command of a row that deadlocks reproduces the deadlock.
    let command = stuck["trouble"]["reproduce"].as_str().unwrap();
    let output = lockkeeper(&words(command)[1..]);
    assert_eq!(output.status.code(), Some(2), "{command}");
    assert!(text(&output.stderr).contains("deadlock"));
}

#[test]
fn a_comparison_is_printed_as_a_table() {
    let table = printed("compare --algorithms lamport,ricart-agrawala --sites 3 --load high --seeds 1");
    for part in [
        "messages per entry, high load",
        "lamport¹",
        "exact",
        "1/(SD+E)",
        "FIFO needed",
        "N−1 as the synchronization delay",
    ] {
        assert!(table.contains(part), "{part}\n{table}");
    }
}

#[test]
fn locks_that_several_may_hold_are_compared_with_what_is_set() {
    let line = "compare -a ricart-agrawala,k-mutual-exclusion,readers-writers -n 9 --load high --seeds 1 --set k=3 --readers 1";
    let all = json(&format!("{line} --json"));
    let inside: Vec<u64> =
        all["rows"].as_array().unwrap().iter().map(|row| row["max_inside"].as_u64().unwrap()).collect();
    assert_eq!(inside, [1, 3, 9]);
    assert!(all["rows"].as_array().unwrap().iter().all(|row| row["verdict"] != "off"));
    let notes = all["footnotes"].to_string();
    assert!(notes.contains("measured 16 with 9 sites and k = 3, where 2N−k−1 is 14"), "{notes}");
    assert!(printed(line).contains("k/(SD+E)"));
}

#[test]
fn plots_page_and_rows_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let line = format!(
        "compare --algorithms centralized,maekawa --sites 3,7 --load low --seeds 1 --plots {} --html {} --csv {}",
        path("plots"),
        path("page.html"),
        path("rows.csv")
    );
    printed(&line);
    for name in ["messages-low", "throughput", "response", "fairness"] {
        let svg = std::fs::read_to_string(path(&format!("plots/{name}.svg"))).unwrap();
        assert!(svg.contains("centralized"), "{name}");
    }
    let page = std::fs::read_to_string(path("page.html")).unwrap();
    assert_eq!(page.matches("<svg ").count(), 4);
    assert!(page.contains("prefers-color-scheme:dark"));
    for outside in ["<script", "<link", "src=", "url("] {
        assert!(!page.contains(outside), "the page must need nothing else, and has {outside}");
    }
    let rows = std::fs::read_to_string(path("rows.csv")).unwrap();
    assert_eq!(rows.lines().count(), 5);
    assert!(rows.starts_with("algorithm,family,load,sites,"));

    let nowhere = path("rows.csv") + "/page.html";
    let output =
        lockkeeper(&words(&format!("compare -a lamport -n 2 --load high --seeds 1 --html {nowhere}")));
    assert_eq!(output.status.code(), Some(74));
    assert!(text(&output.stderr).contains("cannot write"));
}

#[test]
fn witnesses_of_properties_reproduce_the_violation() {
    let table = printed("properties --algorithms maekawa-basic,ricart-agrawala");
    assert!(table.contains("by happened-before") && table.contains("held"), "{table}");
    let found = json("properties --algorithms maekawa-basic,ricart-agrawala --json");
    let answer = |finding: usize, question: &str| {
        let answers = found[finding]["answers"].as_array().unwrap();
        answers.iter().find(|answer| answer[0] == question).unwrap()[1].clone()
    };
    let deadlock = answer(0, "no_deadlock");
    assert_eq!(deadlock["found"], "broken");
    let output = lockkeeper(&words(deadlock["witness"].as_str().unwrap())[1..]);
    assert_eq!(output.status.code(), Some(2));

    let order = answer(1, "causal_order");
    let witness = format!("{} --json", order["witness"].as_str().unwrap().trim_start_matches("lockkeeper "));
    assert!(json(&witness)["fairness"]["causal_inversions"].as_u64().unwrap() > 0, "{witness}");
    assert_eq!(answer(1, "timestamp_order")["found"], "held");
}

#[test]
fn every_algorithm_is_explained() {
    let list = json("algorithms --json");
    // Algorithms for threads have no messages and no small run; their files and docs/shared-memory.md explain them.
    for about in list.as_array().unwrap().iter().filter(|about| about["family"] != "shared memory") {
        let slug = about["slug"].as_str().unwrap();
        let printed = printed(&format!("explain {slug}"));
        for part in
            ["Idea. ", "Assumes. ", "Cost. ", "Pitfalls. ", "Messages", "Rules", "A small run: ", "  1. "]
        {
            assert!(printed.contains(part), "{slug}: {part}");
        }
        // Text is wrapped; a command is one line, to be copied.
        let prose = printed.lines().filter(|line| !line.contains("lockkeeper "));
        assert!(prose.into_iter().all(|line| line.chars().count() <= 100), "{slug}:\n{printed}");
    }
    assert!(printed("explain maekawa-basic").contains("deadlock at"), "its figure is its deadlock");
}

#[test]
fn a_recommendation_is_printed_with_reasons() {
    let advice = printed("choose --sites 5 --failures 1 --topology lan --load low --fairness strict");
    assert!(
        advice.contains("left out: token-ring: ") && advice.contains("out of timestamp order"),
        "{advice}"
    );
    assert!(advice.contains("Take ") && advice.contains("None of these survives every crash"), "{advice}");
    let ranked = json("choose --sites 7 --topology wan --load high --fairness none --json");
    let costs: Vec<f64> =
        ranked["ranked"].as_array().unwrap().iter().map(|c| c["cost"].as_f64().unwrap()).collect();
    assert!(costs.len() > 5 && costs.is_sorted(), "{costs:?}");
    printed("choose --sites 7 --topology tree --load high --fairness fifo");
}

#[test]
fn wrong_usage_is_rejected_with_a_message_and_exit_code_64() {
    let cases = [
        ("compare --algorithms lamprt --sites 3", "did you mean 'lamport'?"),
        ("compare --sites 0", "between 1 and 1000000 sites"),
        ("compare --sites 9223372036854775807 --load low,pairs,high", "between 1 and 1000000 sites"),
        ("choose --sites 9223372036854775807 --failures 1", "2 to 200 sites"),
        ("compare --sites x", "invalid value 'x'"),
        ("compare --load heavy", "there is no load 'heavy'"),
        ("compare --seeds 0", "0 is not in"),
        ("compare -a lamport -n 3 --set k=3", "none of these algorithms takes the setting 'k'"),
        ("compare --cs -1", "a time must lie between 0"),
        ("compare --cs matrix:/does/not/exist", "cannot read the delay matrix"),
        ("properties --algorithms raymnd", "did you mean 'raymond'?"),
        ("explain ricart", "did you mean 'ricart-agrawala'?"),
        ("explain", "required"),
        ("choose --sites 1", "2 to 200 sites"),
        ("choose --sites 5 --failures 5", "at least one must stay"),
        ("choose --sites 5 --topology mesh", "invalid value 'mesh'"),
        ("quorums --construction plane", "say how many sites"),
        ("quorums --sites 8 --construction plane", "there is no plane for 8 sites"),
        ("quorums --sites 0 --construction grid", "1 to 2000 sites"),
        ("quorums --sites 5 --construction /does/not/exist", "cannot read"),
    ];
    for (line, expected) in cases {
        let output = lockkeeper(&words(line));
        let printed = text(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{line}: {printed}");
        assert!(printed.contains(expected), "{line}: {printed}");
        assert!(!printed.contains("panicked"), "{line}: {printed}");
    }
}

#[test]
fn a_closed_pipe_is_not_reported_as_an_error() {
    for line in
        ["explain lamport", "quorums --sites 133 --construction plane", "compare -a lamport -n 2 --seeds 1"]
    {
        let mut child = Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
            .args(words(line))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(text(&output.stderr), "", "{line}");
    }
}

#[test]
fn stabilisation_is_measured_beside_its_bound() {
    let report = json("stabilise --sites 5 --seeds 200 --every-state --json");
    assert_eq!((&report["bound"], &report["runs"]["stabilised"]), (&30.into(), &200.into()));
    assert_eq!(report["every_state"]["states"], 3125);
    let worst = report["every_state"]["most_moves"].as_u64().unwrap();
    assert!(report["runs"]["most_moves"].as_u64().unwrap() <= worst && worst <= 30, "{report}");
    let synchronous = printed("stabilise --sites 9 --daemon synchronous --seeds 20");
    assert!(synchronous.contains("20 of 20 runs stabilised"), "{synchronous}");
    let few = lockkeeper(&["stabilise", "--sites", "5", "--states", "3", "--every-state"]);
    assert_eq!(few.status.code(), Some(2), "{}", text_of(&few));
    assert!(text_of(&few).contains("for ever"), "{}", text_of(&few));
    for (args, expected) in [
        (["stabilise", "--sites", "1"], "2 to 1000 machines, not 1"),
        (["stabilise", "--sites=9", "--states=1"], "at least 2 states, not 1"),
        (["stabilise", "--sites=30", "--every-state"], "are too many"),
        (["stabilise", "--sites=9", "--daemon=fair"], "not 'fair'"),
    ] {
        let output = lockkeeper(&args);
        assert_eq!(output.status.code(), Some(64), "{args:?}");
        assert!(text(&output.stderr).contains(expected), "{args:?}: {}", text(&output.stderr));
    }
}

fn text_of(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}
