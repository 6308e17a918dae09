//! End-to-end tests of `lockkeeper algorithms`, `sim` and `scenarios`.

use serde_json::Value;
use std::process::{Command, Output};

fn lockkeeper(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lockkeeper")).args(args).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is UTF-8")
}

fn json(args: &[&str]) -> (i32, Value) {
    let output = lockkeeper(args);
    let value = serde_json::from_str(&text(&output.stdout)).expect("one JSON object");
    (output.status.code().expect("an exit code"), value)
}

/// The figures in the documentation are what their commands draw. After an intended change, draw them again:
/// `lockkeeper sim --scenario NAME --trace docs/figures/NAME.svg`.
#[test]
fn figures_of_the_documentation_are_drawn_as_they_are_shown() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("figure.svg");
    let shown = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/figures");
    for name in [
        "lamport-two-requests",
        "maekawa-inquire",
        "raymond-tree",
        "bully-crash-during-election",
        "token-ring-two-tokens",
    ] {
        let args = ["sim", "--scenario", name, "--trace", file.to_str().unwrap()];
        assert!(matches!(lockkeeper(&args).status.code(), Some(0 | 2)), "{name}");
        let shown = std::fs::read_to_string(shown.join(format!("{name}.svg"))).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), shown, "{name}");
    }
}

#[test]
fn the_json_of_a_run_has_the_promised_form() {
    let args = "sim --algorithm ricart-agrawala --sites 9 --load high --entries 900 --delay constant:1 --cs 0.1 --seed 7 --json";
    let (code, run) = json(&args.split(' ').collect::<Vec<_>>());
    assert_eq!(code, 0);
    assert_eq!(run["algorithm"], "ricart-agrawala");
    assert_eq!((&run["sites"], &run["seed"], &run["entries"]), (&9.into(), &7.into(), &900.into()));
    assert_eq!((&run["load"], &run["fifo"]), (&"high".into(), &true.into()));
    assert_eq!(run["messages"], 900 * 16);
    assert_eq!(run["messages_per_entry"], 16.0);
    assert_eq!(run["to_enter"], 16.0);
    assert_eq!(run["on_exit"], 0.0);
    assert_eq!(run["by_message"]["REQUEST"], 900 * 8);
    assert_eq!(run["expected"]["messages_per_entry"], 16.0);
    assert_eq!(run["expected"]["sync_delay"], 1.0);
    assert_eq!(run["sync_delay"]["mean"], 1.0);
    for times in ["sync_delay", "client_delay", "waiting", "response"] {
        for figure in ["mean", "ci95", "p50", "p99", "max", "count"] {
            assert!(run[times].get(figure).is_some(), "{times}.{figure}");
        }
    }
    for key in ["bytes_per_entry", "idle_messages", "site_load", "throughput", "events", "virtual_time"] {
        assert!(run.get(key).is_some(), "{key}");
    }
    assert!(run["site_load"]["max"].is_number() && run["site_load"]["mean"].is_number());
    let fairness = &run["fairness"];
    assert_eq!(fairness["jain"], 1.0);
    assert_eq!((&fairness["timestamp_inversions"], &fairness["causal_inversions"]), (&0.into(), &0.into()));
    assert_eq!(fairness["max_bypass"], 8);
    let properties = &run["properties"];
    assert_eq!(properties["mutual_exclusion"], "held");
    assert_eq!(properties["deadlock"], "none");
    assert_eq!(properties["starvation"], "none");
    assert_eq!(properties["fence_monotone"], "held");
    assert!(!run.to_string().contains("wall"), "the JSON is a function of its inputs");
}

#[test]
fn the_same_command_prints_the_same_bytes() {
    let args = [
        "sim",
        "-a",
        "lamport",
        "-n",
        "5",
        "--delay",
        "exponential:1",
        "--seeds",
        "6",
        "--entries",
        "50",
        "--json",
    ];
    assert_eq!(lockkeeper(&args).stdout, lockkeeper(&args).stdout);
}

#[test]
fn a_violation_exits_with_2_and_its_command_reproduces_it() {
    let args = [
        "sim",
        "-a",
        "lamport",
        "-n",
        "3",
        "--non-fifo",
        "--delay",
        "exponential:1",
        "--seeds",
        "20",
        "--json",
    ];
    let output = lockkeeper(&args);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("warning: lamport assumes FIFO channels"),
        "{}",
        text(&output.stderr)
    );
    let run: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    assert_eq!(run["properties"]["mutual_exclusion"], "violated");
    let found = run["violations"].as_array().unwrap();
    let broken = found.iter().find(|found| found["property"] == "mutual_exclusion").expect("within 20 seeds");

    let command = broken["reproduce"].as_str().unwrap();
    let words: Vec<&str> = command.split(' ').skip(1).chain(["--json"]).collect();
    let (code, again) = json(&words);
    assert_eq!(code, 2);
    assert!(again["violations"].as_array().unwrap().contains(broken), "{command}");
}

#[test]
fn every_flag_of_a_fault_comes_back_in_the_command_that_reproduces_it() {
    let flags = "sim --algorithm centralized --sites 4 --set denied=yes --load burst --entries 4 --warmup 0 \
                 --delay uniform:0.5..1.5 --cs exponential:1 --loss 0.01 --duplicate 0.02 --link 1>5=constant:3 \
                 --partition 1,2|3@50..60 --service 0.01 --service-at 5=0.02 --holder 2 --detector false:0.5 \
                 --crash 5@3 --recover 5@100 --pause 1@1..2 --seed 9 --non-fifo";
    let words: Vec<&str> = flags.split_whitespace().collect();
    let (code, run) = json(&[&words[..], &["--json"]].concat());
    assert_eq!(code, 2);
    let command = run["violations"][0]["reproduce"].as_str().unwrap().replace('\'', "");
    let mut given: Vec<&str> = words.clone();
    let mut printed: Vec<&str> = command.split(' ').skip(1).collect();
    given.sort_unstable();
    printed.sort_unstable();
    assert_eq!(printed, given);
}

#[test]
fn wrong_usage_is_rejected_with_a_message_and_exit_code_64() {
    let cases = [
        ("sim -a ricart-agrawalla -n 3", "did you mean 'ricart-agrawala'?"),
        ("sim -a zzz -n 3", "there is no algorithm 'zzz'"),
        ("sim -a lamport -n 0", "between 1 and 1000000 sites"),
        ("sim -a lamport -n 1000001", "between 1 and 1000000 sites"),
        ("sim -a lamport -n -3", "unexpected argument '-3'"),
        ("sim -a lamport -n 3 --delay constant:-1", "a time must lie between 0"),
        ("sim -a lamport -n 3 --delay constant:NaN", "a time must lie between 0"),
        ("sim -a lamport -n 3 --delay -1", "a time must lie between 0"),
        ("sim -a lamport -n 3 --delay gauss:1", "there is no delay 'gauss'"),
        ("sim -a lamport -n 3 --delay matrix:/does/not/exist", "cannot read the delay matrix"),
        ("sim -a lamport -n 3 --cs NaN", "a time must lie between 0"),
        ("sim -a lamport -n 3 --loss 2", "a probability between 0 and 1"),
        ("sim -a lamport -n 3 --partition 1,2|7@0..1", "there is no site '7'"),
        ("sim -a lamport -n 3 --partition 1,2|3", "a partition is written"),
        ("sim -a lamport -n 3 --crash 9@1", "there is no site '9'"),
        ("sim -a lamport -n 3 --pause 1@5..2", "is empty"),
        ("sim -a lamport -n 3 --holder 4", "there is no site '4'"),
        ("sim -a lamport -n 3 --holder 1,2", "S1, S2 cannot all start inside: this lock is a mutex"),
        ("sim -a lamport -n 3 --readers 0.5", "there are no readers here: lamport is a mutex"),
        ("sim -a readers-writers -n 3 --readers 2", "the share of readers is a probability between 0 and 1"),
        ("sim -a readers-writers -n 3 --holder 1:shared,2", "or several that share"),
        ("sim -a k-mutual-exclusion -n 4 --holder 1,2,3", "a semaphore, which 2 hold at a time"),
        ("sim -a k-mutual-exclusion -n 4 --set k=0", "the setting k takes a number from 1, not '0'"),
        ("sim -a token-ring -n 3 --set colour=blue", "this algorithm takes none"),
        ("sim -a centralized -n 3 --set coordinator=9", "takes 'apart' or the number of a site"),
        ("sim -a centralized -n 3 --set color=1", "there is coordinator, denied"),
        ("sim -a lamport -n 3 --load heavy", "there is no load 'heavy'"),
        ("sim -a lamport -n 3 --detector psychic", "there is no failure detector 'psychic'"),
        ("sim -a lamport -n 3 --entries 0", "at least one entry"),
        ("sim -a lamport -n 3 --trace run.doc", "the form of a trace follows its file's name"),
        ("sim -a lamport -n 3 --trace x.svg --seeds 2", "a trace tells one run"),
        ("sim -a token-ring -n 3 --delay 0", "give the delay more than 0"),
        ("sim --scenario no-such-figure", "neither a file nor one of the figures"),
        ("sim --scenario token-ring -n 3", "--sites cannot be used with --scenario: it applies to"),
        ("sim --scenario token-ring --members 3", "--cluster"),
        ("sim --cluster -a raymond -n 3", "--sites cannot be used with --cluster: it applies to"),
        ("sim --cluster -a raymond --crash 1@2", "--crash cannot be used with --cluster: it applies to"),
        ("sim --cluster -a raymond --set k=3", "--set cannot be used with --cluster: it applies to"),
        ("sim --cluster --scenario token-ring", "--scenario cannot be used with --cluster"),
        ("sim --cluster --election bully -n 3", "cannot be used with --cluster"),
        ("sim -a bully -n 3", "lockkeeper sim --election bully"),
        ("sim -n 3", "required"),
        ("scenarios no-such-figure", "neither a file nor one of the figures"),
        ("dance", "unrecognized subcommand"),
    ];
    for (args, expected) in cases {
        let output = lockkeeper(&args.split(' ').collect::<Vec<_>>());
        let printed = text(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{args}: {printed}");
        assert!(printed.contains(expected), "{args}: {printed}");
        assert!(!printed.contains("panicked"), "{args}: {printed}");
    }
}

#[test]
fn a_scenario_that_names_a_missing_site_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.scenario");
    for (event, expected) in [
        ("0 S4 requests", "there is no site S4"),
        ("0 crash S4", "there is no site S4"),
        ("0 deliver S4>S1", "there is no site S4"),
        ("0 cut 1|4", "there is no site S4"),
    ] {
        std::fs::write(&path, format!("algorithm: lamport\nsites: 3\n{event}\n")).unwrap();
        let output = lockkeeper(&["sim", "--scenario", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(64), "{event}");
        assert!(text(&output.stderr).contains(expected), "{event}: {}", text(&output.stderr));
    }
}

#[test]
fn a_closed_pipe_is_not_reported_as_an_error() {
    use std::process::Stdio;
    let mut child = Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
        .arg("algorithms")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_matrix_of_the_wrong_size_is_refused_and_one_of_regions_fits_any_number() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        format!("matrix:{}", path.display())
    };
    let square = file("square", "0 1\n1 0\n");
    let output = lockkeeper(&["sim", "-a", "lamport", "-n", "3", "--delay", &square]);
    assert_eq!(output.status.code(), Some(64));
    assert!(text(&output.stderr).contains("is for 2 processes, and there are 3"));

    let regions = file("regions", "  near far\nnear 0.1 2\nfar 2 0.1\n");
    let (code, run) =
        json(&["sim", "-a", "lamport", "-n", "5", "--load", "low", "--delay", &regions, "--json"]);
    assert_eq!(code, 0);
    assert_eq!(run["client_delay"]["max"], 4.0, "a round trip to the far region");
    assert_eq!(run["expected"]["client_delay"], Value::Null, "there is no single T");
}

#[test]
fn a_site_alone_is_fine() {
    for algorithm in ["lamport", "ricart-agrawala", "token-ring", "token-ring-parked"] {
        let (code, run) = json(&["sim", "-a", algorithm, "-n", "1", "--json"]);
        assert_eq!((code, &run["messages"]), (0, &0.into()), "{algorithm}");
    }
}

#[test]
fn the_registry_is_listed_for_people_and_for_programs() {
    let (code, list) = json(&["algorithms", "--json"]);
    assert_eq!(code, 0);
    let slugs: Vec<&str> =
        list.as_array().unwrap().iter().map(|about| about["slug"].as_str().unwrap()).collect();
    for slug in ["centralized", "lamport", "ricart-agrawala", "token-ring", "token-ring-parked"] {
        assert!(slugs.contains(&slug));
    }
    for key in ["family", "paper", "channels", "cost", "crash"] {
        assert!(list[0].get(key).is_some(), "{key}");
    }
    let list = text(&lockkeeper(&["algorithms"]).stdout);
    for slug in slugs {
        assert_eq!(
            list.lines().filter(|line| line.split_whitespace().next() == Some(slug)).count(),
            1,
            "{slug}"
        );
    }
    assert!(list.lines().all(|line| line.chars().count() <= 80), "{list}");
    let one = text(&lockkeeper(&["algorithms", "lamport"]).stdout);
    assert!(one.contains("3(N−1)") && one.contains("Lamport, Time, Clocks"));
    let (code, one) = json(&["algorithms", "bully", "--json"]);
    assert_eq!((code, &one["slug"]), (0, &"bully".into()));
    let unknown = lockkeeper(&["algorithms", "maekava"]);
    assert_eq!(unknown.status.code(), Some(64));
    assert!(text(&unknown.stderr).contains("did you mean `maekawa"), "{}", text(&unknown.stderr));
    let former = text(&lockkeeper(&["algorithms", "maekawa-published"]).stderr);
    assert!(former.contains("it is called 'maekawa-basic' now;"), "{former}");
}

#[test]
fn every_figure_is_listed_and_described() {
    let list = text(&lockkeeper(&["scenarios"]).stdout);
    let names: Vec<&str> =
        list.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.split(' ').next()).collect();
    assert!(names.len() >= 13);
    for name in names {
        let output = lockkeeper(&["scenarios", name]);
        assert_eq!(output.status.code(), Some(0), "{name}");
        assert!(text(&output.stdout).contains("  1. "), "{name}");
    }
}

#[test]
fn traces_are_written_in_every_form() {
    let directory = tempfile::tempdir().unwrap();
    for form in ["jsonl", "svg", "shiviz", "perfetto.json", "mmd"] {
        let path = directory.path().join(format!("run.{form}"));
        let output =
            lockkeeper(&["sim", "--scenario", "lamport-two-requests", "--trace", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{form}: {}", text(&output.stderr));
        assert!(std::fs::read_to_string(&path).unwrap().contains("REQUEST"), "{form}");
    }
    let nowhere = directory.path().join("missing/run.svg");
    let output = lockkeeper(&["sim", "-a", "lamport", "-n", "2", "--trace", nowhere.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(74));
    assert!(text(&output.stderr).contains("cannot write the trace"));
}

#[test]
fn the_largest_number_of_concurrent_holders_is_reported() {
    let line = "sim -a k-mutual-exclusion -n 9 --set k=3 --holder 1,2,3 --entries 90 --json";
    let (code, run) = json(&line.split(' ').collect::<Vec<_>>());
    assert_eq!((code, &run["max_inside"], &run["sharing"]["semaphore"]), (0, &3.into(), &3.into()));
    let line = "sim -a readers-writers -n 5 --readers 1 --holder 1:shared,2:shared --entries 50 --seed 3";
    let words: Vec<&str> = line.split(' ').collect();
    let (code, run) = json(&[&words[..], &["--json"]].concat());
    assert_eq!((code, &run["max_inside"], &run["readers"]), (0, &5.into(), &1.0.into()));
    assert_eq!(run["sharing"], "readers_writers");
    let printed = text(&lockkeeper(&words).stdout);
    assert!(
        printed.contains("sites inside at once, at most") && printed.contains("1 readers, FIFO channels"),
        "{printed}"
    );
}

#[test]
fn a_shared_entry_is_described_and_drawn_as_shared() {
    let printed = text(&lockkeeper(&["scenarios", "readers-writers"]).stdout);
    let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    for sentence in
        ["S1 wants to enter and to share", "S2 is inside and shares, with fence", "S3 wants to enter:"]
    {
        assert!(printed.contains(sentence), "{sentence}\n{printed}");
    }
    let directory = tempfile::tempdir().unwrap();
    let drawn = |form: &str| {
        let path = directory.path().join(form).display().to_string();
        let output = lockkeeper(&["sim", "--scenario", "readers-writers", "--trace", &path]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        std::fs::read_to_string(path).unwrap()
    };
    assert_eq!(drawn("a.svg").matches("is inside and shares").count(), 3);
    assert_eq!(drawn("a.jsonl").matches(r#""event":"enter","fence":"#).count(), 4);
    assert_eq!(drawn("a.jsonl").matches(r#""mode":"shared""#).count(), 6, "asked and entered");
    assert_eq!(drawn("a.mmd").matches("enters to share").count(), 3);
    assert!(drawn("a.perfetto.json").contains("\"sharing\""));
}

#[test]
fn a_cluster_keeps_its_promises_and_a_bug_switch_is_caught_with_its_command() {
    let (code, report) = json(&[
        "sim",
        "--cluster",
        "--members",
        "3",
        "--algorithm",
        "naimi-trehel",
        "--seed",
        "42",
        "--json",
    ]);
    assert_eq!((code, &report["runs"], &report["found"]), (0, &1.into(), &serde_json::json!([])));
    assert!(report["entries"].as_u64().is_some_and(|entries| entries > 0));
    let with_bug = [
        "sim",
        "--cluster",
        "--algorithm",
        "naimi-trehel",
        "--faults",
        "none",
        "--bug",
        "idle-instance-dropped",
    ];
    let output = lockkeeper(&with_bug);
    assert_eq!(output.status.code(), Some(2));
    let again = "lockkeeper sim --cluster --members 5 --algorithm naimi-trehel --faults none --bug idle-instance-dropped --seed 1";
    assert!(text(&output.stderr).contains(again), "{}", text(&output.stderr));
}

#[test]
fn wrong_parameters_of_a_cluster_are_rejected_with_a_message() {
    for (args, sentence) in [
        (&["--members", "99"][..], "between 1 and 9 members"),
        (&["--faults", "rain"], "there is no fault 'rain'"),
        (&["--bug", "perfect"], "there is no bug switch 'perfect'"),
    ] {
        let mut all = vec!["sim", "--cluster", "--algorithm", "naimi-trehel"];
        all.extend(args);
        let output = lockkeeper(&all);
        assert_eq!(output.status.code(), Some(64));
        assert!(text(&output.stderr).contains(sentence), "{}", text(&output.stderr));
    }
}
