//! Holds outlive their daemons: `lockkeeper run`, a session of HTTP that curl uses, and a lease of the etcd-client crate, at three
//! daemons that are cut off, killed, restarted one by one and killed all at once.
//!
//! With `LOCKKEEPER_TTL_S=10` the time to live is 10 s, and the cluster has its default times. Otherwise they are 60 s and five
//! times as long, so that a slow machine fails nothing.

use super::three_daemons::{Cut, ThreeDaemons, curl, curl_post, has_curl, until};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

fn ttl_s() -> u64 {
    std::env::var("LOCKKEEPER_TTL_S").ok().and_then(|text| text.parse().ok()).unwrap_or(60)
}

/// A process that holds a lock until a file exists.
struct Holder {
    name: &'static str,
    process: Child,
    end: PathBuf,
}

impl Holder {
    fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }

    /// Lets the process end, and checks that it has ended in good order.
    fn end(mut self) {
        std::fs::write(&self.end, "").unwrap();
        let mut ended = None;
        until(&format!("{} ends", self.name), || {
            ended = self.process.try_wait().unwrap();
            ended.is_some()
        });
        assert_eq!(ended.and_then(|status| status.code()), Some(0), "{}", self.name);
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl ThreeDaemons {
    /// Starts `lockkeeper run` through these addresses, with its messages in the file `run.log`. Its command writes the fence
    /// and the time to live to a file with the name of the lock.
    fn run(&self, url: &str, lock: &str) -> Holder {
        let (end, log) = (self.path("end-run"), std::fs::File::create(self.path("run.log")).unwrap());
        let script = format!(
            "printf '%s %s' $LOCKKEEPER_FENCE $LOCKKEEPER_TTL_MS > {0}.tmp; mv {0}.tmp {0}; until [ -e {1} ]; do sleep 0.05; done",
            self.path(lock).display(),
            end.display()
        );
        let mut command = self.lockkeeper(&["run", "-v", "--ttl", &format!("{}s", ttl_s()), "--on", url]);
        command.args(["-c", lock, "--", &script]).stdout(Stdio::null()).stderr(log);
        Holder { name: "lockkeeper run", process: command.spawn().unwrap(), end }
    }

    /// Starts a program with the etcd-client crate, if `scripts/test` has built it.
    fn etcd_client(&self, lock: &str) -> Option<Holder> {
        let Some(program) = std::env::var_os("LOCKKEEPER_ETCD_FLOWS") else {
            eprintln!(
                "SKIPPED: LOCKKEEPER_ETCD_FLOWS does not name the program built from examples/etcd-client"
            );
            return None;
        };
        let end = self.path("end-etcd-client");
        let mut command = Command::new(program);
        command.args(["hold", lock, &ttl_s().to_string()]).arg(&end).args(self.http_addresses());
        let log = std::fs::File::create(self.path("etcd-client.log")).unwrap();
        let process = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        Some(Holder { name: "etcd-client", process, end })
    }

    /// Whether `lockkeeper run -v` has reported jeopardy this many times, and the end of each.
    fn has_reported_jeopardy(&self, times: usize) -> bool {
        let log = std::fs::read_to_string(self.path("run.log")).unwrap();
        log.matches("is in jeopardy").count() >= times && log.trim_end().ends_with("is renewed again")
    }

    /// The holders of a lock, as each daemon that runs shows them.
    fn holders(&self, lock: &str) -> Vec<Value> {
        let shown = self.running().filter_map(|http| curl(http, &format!("/v1/locks/{lock}")));
        shown.map(|(_, lock)| lock["holders"].clone()).collect()
    }

    /// Waits until every daemon that runs shows one holder, with this fence, whose client is connected.
    fn is_held(&self, lock: &str, fence: &Value) {
        let is_healthy = |holders: &Value| {
            let one = holders.as_array().is_some_and(|holders| holders.len() == 1);
            one && holders[0]["fence"] == *fence && holders[0]["in_jeopardy"] != true
        };
        until(&format!("`{lock}` is held with fence {fence} at all daemons"), || {
            let holders = self.holders(lock);
            holders.len() == self.running().count() && holders.iter().all(is_healthy)
        });
    }
}

/// A session of HTTP whose client is curl. Each request goes to any daemon that answers.
struct CurlSession {
    ends: Arc<AtomicBool>,
    /// Returns the reason why the session or its hold was lost.
    renews: Option<JoinHandle<Result<(), String>>>,
    id: String,
    hold: Value,
    fence: Value,
}

impl CurlSession {
    fn start(daemons: &ThreeDaemons, lock: &str) -> Self {
        let ports: Vec<u16> = daemons.http_ports();
        let body = json!({ "ttl_ms": 1000 * ttl_s(), "owner": "curl" });
        let (_, session) = curl_post(ports[0], "/v1/sessions", &body, 60).expect("a session");
        let id = session["session"].as_str().expect("a session").to_owned();
        let acquire = json!({ "session": id, "wait_ms": 60_000 });
        let path = format!("/v1/locks/{lock}/acquire");
        let (_, held) = curl_post(ports[0], &path, &acquire, 60).expect("the lock is free");
        let ends = Arc::new(AtomicBool::new(false));
        let (hold, fence) = (held["hold"].clone(), held["fence"].clone());
        let renews = std::thread::spawn({
            let (ends, path) = (ends.clone(), format!("/v1/sessions/{id}/keep-alive"));
            move || keep_alive(&ports, &path, &ends)
        });
        Self { ends, renews: Some(renews), id, hold, fence }
    }

    fn has_lost(&self) -> bool {
        self.renews.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Releases the hold through another daemon than the first one.
    fn end(mut self, daemons: &ThreeDaemons, lock: &str) {
        self.ends.store(true, Ordering::SeqCst);
        let renewed = self.renews.take().expect("it runs").join().expect("no panic");
        assert_eq!(renewed, Ok(()));
        let port = daemons.http_ports()[2];
        let release = json!({ "hold": self.hold });
        let path = format!("/v1/locks/{lock}/release");
        let (_, released) = curl_post(port, &path, &release, 60).expect("an answer");
        assert_eq!(released["released"], true, "session {}", self.id);
    }
}

impl Drop for CurlSession {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
    }
}

/// Extends a session until `ends` is set. Fails if the session or its hold is lost.
fn keep_alive(ports: &[u16], path: &str, ends: &AtomicBool) -> Result<(), String> {
    let (mut renewed, mut at) = (Instant::now(), 0);
    while !ends.load(Ordering::SeqCst) {
        let sent = Instant::now();
        match curl_post(ports[at % ports.len()], path, &json!({}), 3) {
            Some((200, alive)) if alive["lost"] == json!([]) => renewed = sent,
            Some((200 | 404, lost)) => return Err(format!("it is lost: {lost}")),
            // The daemon does not run, or asks for a repetition.
            _ => at += 1,
        }
        if renewed.elapsed() > Duration::from_secs(ttl_s()) {
            return Err(String::from("no daemon answers"));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// The clients of the three protocols, each with a lock.
struct Clients {
    run: Holder,
    etcd_client: Option<Holder>,
    curl: CurlSession,
    /// The locks, and the fences of their holds.
    held: Vec<(String, Value)>,
}

impl Clients {
    /// Starts the clients, and waits until their holds are recorded: from then on they survive. Returns `None` if one was
    /// lost before, because its daemon got no processor time for a lease.
    fn start(daemons: &ThreeDaemons, url: &str, attempt: u32) -> Option<Self> {
        let lock = |by: &str| format!("by-{by}-{attempt}");
        let (started, records) = (daemons.path(&lock("run")), daemons.records(0));
        let run = daemons.run(url, &lock("run"));
        let etcd_client = daemons.etcd_client(&lock("etcd-client"));
        let curl = CurlSession::start(daemons, &lock("curl"));
        let mut clients = Self { run, etcd_client, curl, held: Vec::new() };
        until("the command starts", || started.exists() || clients.has_lost());
        let started = std::fs::read_to_string(started).ok()?;
        let (fence, ttl_ms) = started.split_once(' ').expect("a fence and a time to live");
        assert_eq!(ttl_ms, (1000 * ttl_s()).to_string());
        clients.held.push((lock("run"), fence.parse().expect("a number")));
        clients.held.push((lock("curl"), clients.curl.fence.clone()));
        if clients.etcd_client.is_some() {
            let fence = || daemons.holders(&lock("etcd-client")).first()?[0]["fence"].as_u64();
            until("the lease has its lock", || fence().is_some() || clients.has_lost());
            clients.held.push((lock("etcd-client"), json!(fence()?)));
        }
        let all = records + clients.held.len() as u64;
        until("the records", || daemons.records(0) >= all || clients.has_lost());
        (!clients.has_lost()).then_some(clients)
    }

    fn has_lost(&mut self) -> bool {
        let etcd_client = self.etcd_client.as_mut().is_some_and(Holder::has_ended);
        let lost = self.run.has_ended() || etcd_client || self.curl.has_lost();
        if lost {
            println!("a hold was lost before its record");
        }
        lost
    }
}

#[test]
fn holds_of_all_protocols_survive_cuts_crashes_and_restarts_of_their_daemons() {
    if !has_curl() {
        return;
    }
    let mut daemons = ThreeDaemons::start();
    let cut = Cut::to(daemons.clients_port(0));
    let url =
        format!("lockkeeper://127.0.0.1:{},{}?in-order", cut.port(), daemons.clients_addresses(&[1, 2]));
    let started = (1..).find_map(|attempt| Clients::start(&daemons, &url, attempt));
    let Some(Clients { run, etcd_client, curl: curl_session, held }) = started else { return };
    let all_held =
        |daemons: &ThreeDaemons| held.iter().for_each(|(lock, fence)| daemons.is_held(lock, fence));
    all_held(&daemons);

    println!("a cut between the client and its daemon");
    cut.stall();
    until("the client goes on through another daemon", || daemons.has_reported_jeopardy(1));
    all_held(&daemons);
    cut.heal();

    println!("kill -9 of the daemon that has the session");
    let home = daemons.holders(&held[0].0)[0][0]["member"].as_u64().expect("a member") as usize - 1;
    daemons.kill(home);
    all_held(&daemons);
    daemons.restart(home);
    all_held(&daemons);

    println!("SIGTERM and restart of each");
    for daemon in 0..3 {
        assert_eq!(daemons.leave(daemon), Some(0));
        all_held(&daemons);
        daemons.restart(daemon);
        all_held(&daemons);
    }

    println!("kill -9 and restart of all");
    daemons.restart_all();
    all_held(&daemons);

    // No other client has been granted a lock, and each is free once its holder has released it.
    for (lock, _) in &held {
        let (code, error) = daemons.result(&["run", "-n", lock, "--", "true"]);
        assert_eq!(code, Some(1), "{lock}: {error}");
    }
    run.end();
    etcd_client.into_iter().for_each(Holder::end);
    curl_session.end(&daemons, &held[1].0);
    for (lock, fence) in &held {
        let (code, printed) = daemons.printed(&["run", "-c", lock, "--", "printf %s $LOCKKEEPER_FENCE"]);
        let next: Option<u64> = printed.parse().ok();
        assert!(code == Some(0) && next > fence.as_u64(), "{lock}: {printed} after {fence}");
    }
}

#[test]
fn after_kill_9_of_a_client_and_its_daemon_the_next_waiter_enters() {
    if !has_curl() {
        return;
    }
    let mut daemons = ThreeDaemons::start();
    let url = format!("lockkeeper://{}?in-order", daemons.clients_addresses(&[0, 1, 2]));
    let started = daemons.path("started");
    let script = format!("touch {}; sleep 600", started.display());
    let mut holder = loop {
        let _ = std::fs::remove_file(&started);
        let mut holder =
            daemons.lockkeeper(&["run", "--ttl", "3s", "--on", &url, "-c", "job", "--", &script]);
        let mut holder = holder.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut has_ended = || holder.try_wait().unwrap().is_some();
        until("the command starts and its hold is recorded", || {
            started.exists() && daemons.records(1) == 1 || has_ended()
        });
        // If its daemon got no processor time for a lease, the hold was lost before its record.
        if !has_ended() {
            break holder;
        }
    };
    let fence = daemons.holders("job")[0][0]["fence"].as_u64();
    let others = format!("lockkeeper://{}?in-order", daemons.clients_addresses(&[1, 2]));
    let mut waiter =
        daemons.lockkeeper(&["run", "--on", &others, "-c", "job", "--", "printf %s $LOCKKEEPER_FENCE"]);
    let waiter = waiter.stdout(Stdio::piped()).spawn().unwrap();
    until("it waits", || {
        let (_, job) = curl(daemons.http_ports()[1], "/v1/locks/job").expect("an answer");
        job["waiters"].as_array().is_some_and(|waiters| waiters.len() == 1)
    });
    let killed = Instant::now();
    holder.kill().unwrap();
    holder.wait().unwrap();
    daemons.kill(0);
    let entered = waiter.wait_with_output().unwrap();
    println!("the next waiter had entered and left after {:?}", killed.elapsed());
    let next: Option<u64> = String::from_utf8(entered.stdout).ok().and_then(|text| text.parse().ok());
    assert!(entered.status.success() && next > fence, "{next:?} after {fence:?}");
}
