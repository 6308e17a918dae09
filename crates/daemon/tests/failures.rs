//! A daemon that cannot serve reports the reason: without a majority, and after a panic. In a process of its own,
//! since all threads share one log.

mod support;

use lockkeeper_cluster::{ClientIdentity, ClientTransport, Proof, SessionId, ToClient, ToMember};
use lockkeeper_daemon::Ending;
use serde_json::json;
use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock};
use support::{Daemons, get, post, session, soon, until};

/// The captured log of all tests in this process.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn begin() -> Self {
        static LOG: OnceLock<Log> = OnceLock::new();
        LOG.get_or_init(|| {
            let log = Self::default();
            let writer = log.clone();
            let subscriber = tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::INFO);
            subscriber.with_writer(move || writer.clone()).init();
            lockkeeper_daemon::log_panics();
            log
        })
        .clone()
    }

    /// The lines that contain all of these texts.
    fn lines(&self, texts: &[&str]) -> Vec<String> {
        let log = String::from_utf8_lossy(&self.0.lock().expect("no panic")).into_owned();
        log.lines().filter(|line| texts.iter().all(|text| line.contains(text))).map(String::from).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemon_without_a_majority_reports_why_it_grants_nothing() {
    let log = Log::begin();
    let mut daemons = Daemons::start(3).await;
    let at = daemons.address(0);
    let id = session(at, 600_000).await;
    let elsewhere = session(daemons.address(1), 600_000).await;
    get(at, "/readyz").await.is_text(200, "ok");
    daemons.kill(2).await;
    daemons.kill(1).await;
    let member = daemons.all[0].member().clone();
    until("the lease is over, and both are missed", || async {
        member.not_serving().is_some_and(|trouble| !trouble.has_lease && trouble.unreachable.len() == 2)
    })
    .await;
    let says_why = |text: &str| {
        assert!(text.contains("member 1 has had no lease for"), "{text}");
        assert!(text.contains("members 2 and 3"), "{text}");
    };
    // Non-blocking requests, and requests with a timeout; with a session here, without one, and with one that lived
    // at another daemon.
    let no_wait = [json!({}), json!({ "session": id }), json!({ "session": elsewhere })];
    for body in no_wait.into_iter().chain([json!({ "wait_ms": 50 }), json!({ "wait_ms": 50, "session": id })])
    {
        let refused = post(at, "/v1/locks/a/acquire", body).await.is(503);
        assert_eq!(refused["error"], "no_lease");
        says_why(refused["message"].as_str().expect("a sentence"));
    }
    says_why(get(at, "/readyz").await.is(503)["message"].as_str().expect("a sentence"));
    let status = get(at, "/v1/status").await.is(200);
    assert_eq!(status["serves"], false);
    says_why(status["reason"].as_str().expect("a sentence"));
    // The process itself is still alive.
    get(at, "/healthz").await.is_text(200, "ok");
    until("a line in the log", || async { !log.lines(&["the lease is lost"]).is_empty() }).await;
    let lost = log.lines(&["WARN", "the lease is lost", "member 1 has had no lease"]);
    assert_eq!(lost.len(), 1, "{lost:#?}");
}

/// Panics in a step of the member to which it is attached.
struct Panics;

impl ClientTransport for Panics {
    fn deliver(&self, _session: SessionId, _message: ToClient) {
        panic!("injected by the test");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemon_whose_member_panics_reports_it_and_ends() {
    let log = Log::begin();
    let daemons = Daemons::start(1).await;
    let at = daemons.address(0);
    let id = session(at, 600_000).await;
    post(at, "/v1/locks/a/acquire", json!({ "session": id })).await.is(200);
    let member = daemons.all[0].member();
    let identity = ClientIdentity { number: 7, proof: Proof([7; 16]) };
    assert!(member.attach(identity, Arc::new(Panics)));
    let session = SessionId { client: identity.number, number: 1 };
    member.handle_client_message(
        session,
        ToMember::KeepAlive { sent_ns: 1, first: true, settled: 1, generation: None },
    );
    for path in ["/healthz", "/readyz"] {
        let unwell = get(at, path).await.is(503);
        let message = unwell["message"].as_str().expect("a sentence");
        assert!(message.contains("has stopped") && message.contains("injected by the test"), "{message}");
    }
    let refused = post(at, "/v1/locks/b/acquire", json!({})).await.is(503);
    assert!(
        refused["message"].as_str().is_some_and(|message| message.contains("injected by the test")),
        "{refused}"
    );
    let alive = post(at, &format!("/v1/sessions/{id}/keep-alive"), json!({})).await.is(200);
    assert_eq!(
        (&alive["valid_for_ms"], alive["lost"].as_array().map(Vec::len)),
        (&json!(null), Some(1)),
        "{alive}"
    );
    // The binary then exits with an error, and is restarted.
    let ending = soon("the end", daemons.all[0].ends()).await;
    assert!(matches!(&ending, Ending::Stopped(why) if why.contains("injected by the test")), "{ending:?}");
    let place = log.lines(&["ERROR", "panicked", "failures.rs:", "injected by the test"]);
    assert!(!place.is_empty(), "the log does not contain where it panicked");
    assert!(!log.lines(&["ERROR", "the member stops"]).is_empty());
}
