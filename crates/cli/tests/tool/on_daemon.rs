//! `lockkeeper run` on a daemon: a forced release, and a lock that is kept after its command has ended.

use lockkeeper_daemon::{Config, Daemon};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A timeout that only a stuck test reaches.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A daemon that is the only member of its cluster, in this process.
struct OnDaemon {
    home: tempfile::TempDir,
    daemon: Daemon,
}

impl OnDaemon {
    async fn start() -> OnDaemon {
        let home = tempfile::tempdir().unwrap();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let config =
            Config { clients: Some(any), http: Some(any), ..Config::alone(home.path().join("data")) };
        let daemon = Daemon::start(config).await.unwrap();
        daemon.member().ready().await.unwrap();
        OnDaemon { home, daemon }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn lockkeeper(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
        command.args(args).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.home.path());
        command.env("LOCKKEEPER_URL", format!("lockkeeper://{}", self.daemon.addresses().clients.unwrap()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The exit code, standard output and standard error of a command.
    async fn result(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let mut command = self.lockkeeper(args);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        texts(&output)
    }
}

fn texts(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

async fn until_exists(path: &Path) {
    let start = Instant::now();
    while !path.exists() {
        assert!(start.elapsed() < TIMEOUT, "stuck");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_release_gives_the_command_time_to_stop_before_the_next_client_enters() {
    let on = OnDaemon::start().await;
    let (started, stopping, go) = (on.path("started"), on.path("stopping"), on.path("go"));
    // It does not stop before it is allowed to.
    let script = format!(
        "trap 'touch {}; until [ -e {} ]; do sleep 0.01; done; echo stopped; exit 0' TERM; touch {}; \
         while :; do sleep 0.01; done",
        stopping.display(),
        go.display(),
        started.display()
    );
    // With --at-least, the command starts when its hold is recorded: its lease is then as long as its time to live.
    let args = ["run", "--ttl", "60s", "--at-least", "60s", "--grace", "50s", "-c", "job", "--", &script];
    let run = on.lockkeeper(&args).spawn().unwrap();
    until_exists(&started).await;
    let (code, _, error) = on.result(&["release", "--force", "job"]).await;
    assert_eq!(code, Some(0), "{error}");
    until_exists(&stopping).await;
    assert_eq!(
        on.result(&["run", "-n", "job", "--", "true"]).await.0,
        Some(1),
        "the lease protects the command"
    );
    std::fs::write(&go, "").unwrap();
    let ended = tokio::task::spawn_blocking(move || run.wait_with_output().unwrap()).await.unwrap();
    let (code, printed, error) = texts(&ended);
    assert_eq!((code, printed.as_str()), (Some(79), "stopped\n"), "{error}");
    assert!(error.contains("the lock is lost, stopping the command (SIGKILL in "), "{error}");
    // The shell may report that its `sleep` was terminated.
    let lines = error.lines().filter(|line| line.starts_with("lockkeeper:"));
    assert!(error.contains("released by force") && lines.count() == 1, "{error}");
    // An operator also ends the time for which the lock would be kept.
    assert_eq!(on.result(&["run", "job", "--", "true"]).await.0, Some(0));
    on.daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_several_machines_start_runs_once_on_a_cluster() {
    let on = OnDaemon::start().await;
    let log = on.path("log");
    let script = format!("echo ran >> {}", log.display());
    let job = ["run", "--at-least", "60s", "--skip", "-c", "nightly", "--", &script];
    for _ in 0..3 {
        assert_eq!(on.result(&job).await, (Some(0), String::new(), String::new()));
    }
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "ran\n");
    let (code, _, error) = on.result(&["run", "-n", "nightly", "--", "true"]).await;
    assert_eq!(code, Some(1), "its process has ended, and the lock is held: {error}");
    on.daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_cannot_be_run_keeps_nothing_on_a_cluster() {
    let on = OnDaemon::start().await;
    assert_eq!(on.result(&["run", "--at-least", "60s", "a", "--", "/no/such/command"]).await.0, Some(69));
    assert_eq!(on.result(&["run", "-n", "a", "--", "true"]).await.0, Some(0));
    on.daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_holds_a_lock_of_a_cluster_without_a_process() {
    let on = OnDaemon::start().await;
    let hold = ["hold", "reboot", "--as", "web-3"];
    let (code, _, error) = on.result(&hold).await;
    assert!(code == Some(1) && error.contains("to acquire it, give --for DURATION"), "{error}");
    let (code, first, error) = on.result(&[&hold[..], &["--for", "2h"]].concat()).await;
    assert_eq!(code, Some(0), "{error}");
    assert!(first.starts_with("`web-3` holds `reboot` with fence "), "{first}");
    // Again, with the same fence and a later deadline.
    let (code, again, error) = on.result(&[&hold[..], &["--for", "50h"]].concat()).await;
    assert_eq!(code, Some(0), "{error}");
    let fence = |text: &str| text.split(" for ").next().map(String::from);
    assert_eq!(fence(&again), fence(&first));
    assert!(on.result(&hold).await.1.contains("for 2 d 1 h") && again.contains("for 2 d"), "{again}");
    let (code, _, error) = on.result(&["hold", "reboot", "--as", "web-4", "--for", "1h", "-n"]).await;
    assert!(code == Some(1) && error.contains("`reboot` is held by web-3"), "{error}");
    let (_, locks, _) = on.result(&["locks"]).await;
    assert!(locks.contains("held, 2 d 1 h left") && locks.contains("web-3"), "{locks}");
    assert_eq!(on.result(&["run", "-n", "reboot", "--", "true"]).await.0, Some(1));
    assert_eq!(on.result(&["release", "reboot", "--as", "web-4"]).await.0, Some(1));
    assert_eq!(on.result(&["release", "reboot", "--as", "web-3"]).await.0, Some(0));
    assert_eq!(on.result(&["run", "-n", "reboot", "--", "true"]).await.0, Some(0));
    // At most two machines are down at a time.
    let down = |owner: &'static str| ["hold", "down", "--as", owner, "--for", "1h", "--permits", "2", "-n"];
    for (owner, code) in [("web-1", 0), ("web-2", 0), ("web-1", 0), ("web-3", 1)] {
        assert_eq!(on.result(&down(owner)).await.0, Some(code), "{owner}");
    }
    // An operator can end the hold of any owner, and a lock can be kept for longer than a time to live.
    assert_eq!(on.result(&["release", "--force", "down"]).await.0, Some(0));
    assert_eq!(on.result(&["run", "--at-least", "10h", "nightly", "--", "true"]).await.0, Some(0));
    let (_, locks, _) = on.result(&["locks"]).await;
    assert!(locks.contains("held, 9 h 59 min left"), "{locks}");
    on.daemon.stop().await;
}
