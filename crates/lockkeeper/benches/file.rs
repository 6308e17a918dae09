//! The cost of the `file` engine: in one process, and `lockkeeper run` beside `flock(1)` and `etcdctl lock`.
//!
//! ```sh
//! cargo bench -p lockkeeper --bench file                                  # in one process
//! cargo build --release && cargo bench -p lockkeeper --bench file -- run target/release/lockkeeper
//! ```

use lockkeeper::Lockkeeper;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The number of processes, the same as in earlier results.
const PROCESSES: usize = 64;
const ROUNDS: usize = 10;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    match &words[..] {
        [] => in_process(),
        [run, binary] if run == "run" => commands(binary),
        _ => eprintln!("usage: cargo bench --bench file [-- run PATH_OF_LOCKKEEPER]"),
    }
}

fn in_process() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let locks = Lockkeeper::open(&format!("file://{}", dir.path().display())).await.unwrap();
        for (what, tasks) in [("one task", 1), ("8 tasks, one lock", 8)] {
            let each = 20_000 / tasks;
            let start = Instant::now();
            let running: Vec<_> = (0..tasks).map(|_| tokio::spawn(take_turns(locks.clone(), each))).collect();
            for task in running {
                task.await.unwrap();
            }
            let rate = (each * tasks) as f64 / start.elapsed().as_secs_f64();
            println!("acquire+release, {what}: {rate:.0} per second");
        }
    });
}

async fn take_turns(locks: Lockkeeper, times: usize) {
    for _ in 0..times {
        locks.mutex("bench").acquire().await.unwrap().release().await.unwrap();
    }
}

fn commands(binary: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (url, lock_file) = (format!("file://{}", dir.path().display()), dir.path().join("flock"));
    let lock_file = lock_file.display().to_string();
    let bare = || Command::new("true");
    let flock = || with(Command::new("flock"), &[&lock_file, "true"]);
    let run = || with(Command::new(binary), &["run", "--on", &url, "bench", "--", "true"]);
    let etcd = Etcd::start(dir.path());
    if etcd.is_none() {
        println!("(no etcd and etcdctl here: Debian's packages etcd-server and etcd-client have them)");
    }
    for (what, processes) in [("at once on one lock", PROCESSES), ("one after the other", 1)] {
        println!("{PROCESSES} times `true`, {what}; best and median of {ROUNDS} rounds, per run:");
        report("true alone", processes, &bare);
        report("flock(1)", processes, &flock);
        report("lockkeeper run", processes, &run);
        if let Some(etcd) = &etcd {
            report("etcdctl lock", processes, &|| etcd.lock());
        }
    }
}

/// One etcd server on loopback; stopped when dropped.
struct Etcd {
    server: std::process::Child,
    url: String,
}

impl Etcd {
    fn start(dir: &std::path::Path) -> Option<Etcd> {
        let port = || {
            let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
            free.expect("a free port").port()
        };
        let (url, peer) = (format!("http://127.0.0.1:{}", port()), format!("http://127.0.0.1:{}", port()));
        let data = dir.join("etcd").display().to_string();
        let cluster = format!("default={peer}");
        let args = [
            ["--data-dir", &data],
            ["--listen-client-urls", &url],
            ["--advertise-client-urls", &url],
            ["--listen-peer-urls", &peer],
            ["--initial-advertise-peer-urls", &peer],
            ["--initial-cluster", &cluster],
        ];
        let mut command = with(Command::new("etcd"), &args.concat());
        let server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
        let etcd = Etcd { server, url };
        // The first lock waits until the server is ready.
        let ready =
            |_| etcd.lock().stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success());
        (0..20).any(ready).then_some(etcd)
    }

    fn lock(&self) -> Command {
        let mut command = with(Command::new("etcdctl"), &["--endpoints", &self.url, "lock", "bench", "true"]);
        command.env("ETCDCTL_API", "3");
        command
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn with(mut command: Command, args: &[&str]) -> Command {
    command.args(args);
    command
}

fn report(what: &str, processes: usize, command: &dyn Fn() -> Command) {
    // Single runs are short: repeat them so that each round has the same number of runs.
    let repeats = PROCESSES / processes;
    let mut rounds: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            (0..repeats).for_each(|_| at_once(processes, command));
            start.elapsed() / PROCESSES as u32
        })
        .collect();
    rounds.sort();
    println!("  {what:16} {:7.2?}  {:7.2?}", rounds[0], rounds[ROUNDS / 2]);
}

fn at_once(processes: usize, command: &dyn Fn() -> Command) {
    let children: Vec<_> =
        (0..processes).map(|_| command().stdin(Stdio::null()).spawn().expect("it can be started")).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
}
