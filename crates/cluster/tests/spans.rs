//! The tracing spans of an acquire. This test has a process of its own, because `tracing` caches for all threads
//! whether a callsite is enabled.

mod support;

use std::sync::{Arc, Mutex};
use support::{Cluster, hold};

/// The log output, in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn an_acquire_is_a_span_with_the_messages_that_it_cost() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::DEBUG);
    let subscriber = subscriber.with_writer(move || writer.clone()).finish();
    // The whole test runs on one thread.
    let _here = tracing::subscriber::set_default(subscriber);
    let cluster = Cluster::start(3).await;
    cluster.all_in_view().await;
    for place in 0..3 {
        hold(cluster.member(place), "traced").await.release().await.expect("held");
    }
    let log = String::from_utf8(log.0.lock().expect("no panic").clone()).expect("text");
    let spans: Vec<&str> = log.lines().filter(|line| line.contains("acquire{lock=traced")).collect();
    for words in ["sends lock=traced kind=\"REQUEST\"", "receives lock=traced kind=\"TOKEN\"", "answered"] {
        assert!(spans.iter().any(|line| line.contains(words)), "{words}: {spans:#?}");
    }
}
