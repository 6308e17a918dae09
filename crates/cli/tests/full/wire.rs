//! The messages of a real cluster are those of the simulator: the same algorithm and the same order of requests lead
//! to the same number of messages of each kind.

use lockkeeper_cluster::{Config, JoinToken, Member, MemberId, Times};
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The member of each request, one after the other.
const TURNS: [usize; 12] = [1, 2, 3, 1, 1, 2, 1, 3, 3, 2, 3, 1];
/// A timeout far longer than any step takes, so that only a stuck test fails.
const LONG: Duration = Duration::from_secs(120);

type Counts = BTreeMap<String, u64>;

fn simulated(algorithm: &str, directory: &Path) -> Counts {
    let mut scenario = format!("title: turns\nalgorithm: {algorithm}\nsites: 3\ncs: 1\n\n");
    for (time, site) in TURNS.iter().enumerate() {
        scenario.push_str(&format!("{} S{site} requests\n", 100 * time));
    }
    let file = directory.join("turns.scenario");
    std::fs::write(&file, scenario).expect("a file");
    let run = Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
        .args(["sim", "--json", "--scenario"])
        .arg(&file)
        .output()
        .expect("the command runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let report: serde_json::Value = serde_json::from_slice(&run.stdout).expect("JSON");
    serde_json::from_value(report["by_message"].clone()).expect("counts by kind")
}

/// A name whose lock starts at the first member, where the simulator's token starts: by FNV-1a, as in the member.
fn name_at_first() -> String {
    let hash = |name: &str| {
        name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    };
    (0..)
        .map(|number| format!("lock-{number}"))
        .find(|name| hash(name).is_multiple_of(3))
        .expect("one of three")
}

async fn cluster(algorithm: &str, directory: &Path) -> Vec<Member> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let sockets = [(); 3].map(|()| TcpListener::bind(any).expect("a port"));
    let addresses = sockets.map(|socket| socket.local_addr().expect("bound"));
    let join_token = JoinToken::random().expect("random");
    let mut members = Vec::new();
    for (number, listen) in (1..).zip(addresses) {
        let mut config = Config::new(MemberId(number), listen, directory.join(number.to_string()));
        config.first_members =
            (1..).map(MemberId).zip(addresses.map(|address| address.to_string())).collect();
        config.algorithm = algorithm.into();
        config.join_token = Some(join_token.clone());
        config.times = Times::default().times(4);
        members.push(Member::start(config).await.expect("it starts"));
    }
    for member in &members {
        let mut changes = member.status_changes();
        while member.status().view.is_none_or(|view| view.members.len() != 3) {
            tokio::time::timeout(LONG, changes.changed()).await.expect("soon").expect("it lives");
        }
    }
    members
}

fn counted(members: &[Member]) -> Counts {
    let mut counts = Counts::new();
    for member in members {
        let (mut registry, mut text) = (Registry::default(), String::new());
        member.register_metrics(&mut registry);
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
        for line in text.lines().filter_map(|line| line.strip_prefix("lockkeeper_messages_total{kind=\"")) {
            let (kind, count) = line.split_once("\"} ").expect("a label and a number");
            *counts.entry(kind.into()).or_default() += count.parse::<u64>().expect("a number");
        }
    }
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_on_the_wire_are_those_of_the_simulator() {
    for algorithm in ["naimi-trehel", "ricart-agrawala", "lamport", "suzuki-kasami", "roucairol-carvalho"] {
        let directory = tempfile::tempdir().expect("a directory");
        let expected = simulated(algorithm, directory.path());
        let members = cluster(algorithm, directory.path()).await;
        let name = name_at_first();
        for turn in TURNS {
            let asked = members[turn - 1].mutex(name.as_str()).acquire();
            let guard = tokio::time::timeout(LONG, asked).await.expect("soon").expect("served");
            guard.release().await.expect("held");
        }
        let settles = async {
            while counted(&members) != expected {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let settled = tokio::time::timeout(LONG, settles).await;
        assert!(settled.is_ok(), "{algorithm}: {:?} on the wire, {expected:?} simulated", counted(&members));
        for member in members {
            member.stop().await;
        }
    }
}
