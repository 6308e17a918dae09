//! End-to-end tests of `bench`: all figures are present and mutual exclusion was checked. They never assert a speed.

use serde_json::Value;
use std::process::{Command, Output, Stdio};

fn bench(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    command.arg("bench").args(words).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn done(words: &[&str]) -> String {
    let output = bench(words).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(0), "{words:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn refused(output: &Output, code: i32, part: &str) {
    let printed = text(&output.stderr);
    assert!(
        output.status.code() == Some(code) && printed.contains(part),
        "{:?}: {printed}",
        output.status.code()
    );
}

/// The engines that can be measured here: redis-server may be missing, unless root could have installed it.
fn engines() -> &'static str {
    let there = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !cfg!(feature = "redis") || !there && !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: redis1, which needs redis-server and the feature redis");
        return "lockkeeper1,member1,floor";
    }
    "lockkeeper1,redis1,member1,floor"
}

#[test]
fn all_figures_are_present_and_mutual_exclusion_is_checked() {
    let place = tempfile::tempdir().unwrap();
    let (json, report) = (place.path().join("figures.json"), place.path().join("report"));
    let printed = done(&[
        "locks",
        "--engines",
        engines(),
        "--workloads",
        "w1,w2",
        "--seconds",
        "0.2",
        "--repeat",
        "1",
        "--json",
        json.to_str().unwrap(),
        "--report",
        report.to_str().unwrap(),
    ]);
    assert!(printed.contains("w1: one client, one lock") && printed.contains("p50 / floor"), "{printed}");
    let figures: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let runs = figures["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2 * engines().split(',').count());
    for run in runs {
        let (engine, clients) = (run["engine"].as_str().unwrap(), run["turns"].as_array().unwrap().len());
        assert_eq!(clients, if run["workload"] == "w1" { 1 } else { 8 }, "{run}");
        for figure in ["per_second", "acquire_p50_us", "acquire_p99_us", "acquire_max_us", "release_p50_us"] {
            assert!(run[figure].as_f64().is_some_and(|value| value > 0.0), "{figure}: {run}");
        }
        assert!(run["client_cpu_us"].is_number() && run["server_cpu_us"].is_number(), "{run}");
        let turns: u64 = run["turns"].as_array().unwrap().iter().map(|turns| turns.as_u64().unwrap()).sum();
        let checked = run["checked"].as_u64().unwrap();
        assert!(if engine == "floor" { checked == 0 } else { checked >= turns }, "{run}");
        if engine == "lockkeeper1" {
            assert_eq!(run["messages"], 0.0, "a single daemon has no peers: {run}");
        }
    }
    for engine in figures["engines"].as_array().unwrap() {
        assert!(["version", "durability", "how"].iter().all(|key| engine[key] != ""), "{engine}");
    }
    assert!(figures["machine"]["cores"].as_u64() > Some(0) && figures["command"][1] == "bench");
    assert!(std::fs::read_to_string(report.join("index.html")).unwrap().contains("<svg"));
    assert!(report.join("figures.csv").exists() && report.join("figures.json").exists());
}

#[test]
#[cfg(feature = "redis")]
fn a_missing_server_is_named_with_its_package() {
    let run = bench(&["locks", "--engines", "redis1,floor"]).env("PATH", "/nowhere").output().unwrap();
    refused(&run, 69, "redis1 needs redis-server (Debian: apt-get install redis-server)");
}

#[test]
fn wrong_usage_is_rejected_with_a_message() {
    let refuse = |words: &[&str], part: &str| refused(&bench(words).output().unwrap(), 64, part);
    refuse(&["locks", "--engines", "consul"], "there is no engine `consul`");
    refuse(&["locks", "--workloads", "w9"], "there are w1, w2, w3 and w4");
    refuse(&["locks", "--seconds", "0"], "from 0.05 to 3600");
    refuse(&["sim", "--only", "luck"], "there are ricart-agrawala, lamport");
    refuse(&["growth", "--algorithm", "luck"], "there is no algorithm `luck`");
}

#[test]
#[cfg(not(feature = "etcd"))]
fn a_build_without_etcd_reports_how_to_build_with_it() {
    let run = bench(&["locks", "--engines", "etcd3"]).output().unwrap();
    refused(&run, 69, "cargo build --release -p lockkeeper-cli --features bench,etcd");
}

#[test]
fn the_labs_speed_and_growth_are_measured() {
    let searched: Value =
        serde_json::from_str(&done(&["check", "--max-clock", "2", "--repeat", "1", "--json"])).unwrap();
    assert!(searched[0]["by"] == "lockkeeper" && searched[0]["states"].as_u64() > Some(10), "{searched}");
    let speeds: Value =
        serde_json::from_str(&done(&["sim", "--only", "centralized", "--part", "0.001", "--json"])).unwrap();
    let measured = |speed: &Value| speed["messages_per_second"].as_f64() > Some(0.0);
    assert!(speeds.as_array().unwrap().iter().all(measured), "{speeds}");
    let words =
        ["growth", "--locks", "1,100", "--members", "3", "--entries", "300", "--seconds", "0.1", "--json"];
    let grown: Value = serde_json::from_str(&done(&words)).unwrap();
    assert_eq!(grown["locks"].as_array().unwrap().len(), 2);
    // With one request at a time, the messages do not depend on the machine, only on the random order of the members.
    let low = &grown["members"][0];
    assert!((1.3..1.7).contains(&low["messages"].as_f64().unwrap()), "{low}");
    assert_eq!(low["formula"], 1.5);
}
