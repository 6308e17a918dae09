//! Peers that are malicious, faulty or misconfigured.

use super::*;
use crate::net::Error;
use crate::net::counters::Refusal;
use crate::net::hello::{self, Hello, HelloRejection, HelloReply, Purpose};
use crate::net::records::{self, RecordHeader};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn hello_to(to: MemberId, from: u32) -> Hello {
    Hello {
        oldest: *hello::VERSIONS.start(),
        newest: *hello::VERSIONS.end(),
        cluster: "canal".into(),
        from: Some(MemberId(from)),
        to: Some(to),
        purpose: Purpose::Link,
    }
}

/// A peer whose messages are written by hand.
struct RawPeer {
    stream: TcpStream,
}

impl RawPeer {
    async fn dial(node: &Node) -> Self {
        Self { stream: TcpStream::connect(node.listens()).await.unwrap() }
    }

    async fn send(&mut self, bytes: &[u8]) {
        // The other side may have closed already; `sees_the_end` checks that.
        let _ = self.stream.write_all(bytes).await;
    }

    async fn greet(node: &Node, hello: &Hello) -> (Self, HelloReply) {
        let mut peer = Self::dial(node).await;
        let reply = greet_by_hand(&mut peer.stream, hello).await;
        (peer, reply)
    }

    async fn link(node: &Node, from: u32) -> Self {
        let (peer, reply) = Self::greet(node, &hello_to(node.net.shared.me, from)).await;
        assert!(matches!(reply, HelloReply::Welcome { .. }), "{reply:?}");
        peer
    }

    async fn frame(&mut self, text: &str) {
        let mut bytes = Vec::new();
        records::append(&mut bytes, RecordHeader::Frame, 1 << 20, |out| out.extend(text.as_bytes())).unwrap();
        self.send(&bytes).await;
    }

    /// Waits until the other side has closed the connection.
    async fn sees_the_end(mut self) {
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(TIMEOUT, self.stream.read_to_end(&mut rest)).await;
        // Closed in order, or reset because bytes were unread.
        let _ = closed.expect("the other side was to close");
    }
}

async fn refused(node: &Node, why: Refusal) {
    until(why.label(), || node.net.counters().refused(why) == 1).await;
}

#[tokio::test]
async fn mismatched_greeting_is_rejected_with_the_reason() {
    let a = start(settings(A)).await;
    let of = async |change: fn(&mut Hello)| {
        let mut hello = hello_to(A, 2);
        change(&mut hello);
        let (peer, reply) = RawPeer::greet(&a, &hello).await;
        peer.sees_the_end().await;
        reply
    };
    let cluster = of(|hello| hello.cluster = "river".into()).await;
    assert_eq!(cluster, HelloReply::Refused(HelloRejection::Cluster("canal".into())));
    assert_eq!(of(|hello| hello.to = Some(B)).await, HelloReply::Refused(HelloRejection::Member(A)));
    let version = of(|hello| (hello.oldest, hello.newest) = (900, 901)).await;
    assert!(matches!(version, HelloReply::Refused(HelloRejection::Version { .. })), "{version:?}");
    assert_eq!(of(|hello| hello.from = None).await, HelloReply::Refused(HelloRejection::Sender));
    assert_eq!(of(|hello| hello.from = Some(A)).await, HelloReply::Refused(HelloRejection::Sender));
    assert_eq!(a.net.counters().refused(Refusal::Hello), 5);
}

#[tokio::test]
async fn rejected_dialler_gets_the_reason_and_backs_off() {
    let a = start(settings(A)).await;
    let b = start(Settings { cluster: "river".into(), ..settings(B) }).await;
    a.dial(B, b.address());
    until("refused", || a.net.counters().refused(Refusal::Hello) > 0).await;
    let asked = a.net.query(B, "", b"who".to_vec(), TIMEOUT).await.unwrap_err();
    assert!(asked.0.contains("it belongs to the cluster \"river\""), "{asked}");
    assert!(b.seen.frames().is_empty());
}

#[tokio::test]
async fn another_member_at_the_address_gets_no_frames() {
    let (a, b) = (start(settings(A)).await, start(settings(B)).await);
    a.dial(MemberId(3), b.address());
    a.send(MemberId(3), "a secret");
    until("refused", || a.net.counters().refused(Refusal::Hello) > 0).await;
    assert!(b.seen.frames().is_empty());
}

#[tokio::test]
async fn other_protocols_are_rejected() {
    let a = start(settings(A)).await;
    let mut peer = RawPeer::dial(&a).await;
    peer.send(b"GET / HTTP/1.1\r\nhost: lockkeeper\r\n\r\n").await;
    peer.sees_the_end().await;
    refused(&a, Refusal::Hello).await;
}

#[tokio::test]
async fn connection_without_a_greeting_in_time_is_closed() {
    let mut hurried = settings(A);
    hurried.limits.hello_within = Duration::from_millis(20);
    let a = start(hurried).await;
    let mut peer = RawPeer::dial(&a).await;
    peer.send(&hello::MAGIC[..3]).await;
    peer.sees_the_end().await;
    refused(&a, Refusal::Slow).await;
}

#[tokio::test]
async fn announced_length_beyond_the_limit_ends_the_connection() {
    let a = start(settings(A)).await;
    let mut peer = RawPeer::link(&a, 2).await;
    peer.send(&(1_u32 << 30).to_le_bytes()).await;
    peer.sees_the_end().await;
    refused(&a, Refusal::TooLong).await;
}

#[tokio::test]
async fn malformed_record_ends_the_connection() {
    let a = start(settings(A)).await;
    let mut peer = RawPeer::link(&a, 2).await;
    peer.frame("before").await;
    peer.send(&[1, 0, 0, 0, 200]).await;
    peer.sees_the_end().await;
    refused(&a, Refusal::Malformed).await;
    assert_eq!(a.seen.texts(), ["before"]);
}

#[tokio::test]
async fn unsolicited_answers_and_frames_outside_a_link_end_the_connection() {
    let a = start(settings(A)).await;
    let mut answer = Vec::new();
    records::append(&mut answer, RecordHeader::Reply(3), 10, |_| ()).unwrap();
    let mut peer = RawPeer::link(&a, 2).await;
    peer.send(&answer).await;
    peer.sees_the_end().await;

    let (mut peer, _) = RawPeer::greet(&a, &Hello { purpose: Purpose::Queries, ..hello_to(A, 2) }).await;
    peer.frame("beside").await;
    peer.sees_the_end().await;
    until("both refused", || a.net.counters().refused(Refusal::Malformed) == 2).await;
    assert!(a.seen.frames().is_empty());
}

#[tokio::test]
async fn rejected_frame_is_counted_and_the_next_one_is_accepted() {
    let a = start(settings(A)).await;
    let mut peer = RawPeer::link(&a, 2).await;
    peer.frame("!").await;
    peer.frame("sense").await;
    until("the next", || a.seen.texts() == ["sense"]).await;
    assert_eq!(a.net.counters().refused(Refusal::Frame), 1);
}

#[tokio::test]
async fn random_bytes_after_the_greeting_do_no_harm() {
    let a = start(settings(A)).await;
    let mut random = 88172645463325252_u64;
    for _ in 0..200 {
        let mut peer = RawPeer::link(&a, 2).await;
        let bytes: Vec<u8> = (0..300)
            .map(|_| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random as u8
            })
            .collect();
        peer.send(&bytes).await;
    }
    let mut peer = RawPeer::link(&a, 3).await;
    peer.frame("alive").await;
    until("alive", || a.seen.texts().last().is_some_and(|last| last == "alive")).await;
}

#[tokio::test]
async fn newer_connection_replaces_the_older_one() {
    let a = start(settings(A)).await;
    let mut older = RawPeer::link(&a, 2).await;
    older.frame("old").await;
    until("the first", || a.seen.texts() == ["old"]).await;
    let mut newer = RawPeer::link(&a, 2).await;
    newer.frame("new").await;
    until("the second", || a.seen.texts() == ["old", "new"]).await;
    older.frame("late").await;
    older.sees_the_end().await;
    newer.frame("newer").await;
    until("the third", || a.seen.texts().len() == 3).await;
    assert_eq!(a.seen.texts(), ["old", "new", "newer"]);
    until("counted", || a.net.counters().replaced.get() == 1).await;
}

/// Frames that the older connection has received but not handled yet are ignored, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn frames_of_a_replaced_connection_are_ignored() {
    let a = start(settings(A)).await;
    let mut older = RawPeer::link(&a, 2).await;
    let _newer = RawPeer::link(&a, 2).await;
    older.frame("too late").await;
    older.sees_the_end().await;
    assert!(a.seen.frames().is_empty());
}

#[tokio::test]
async fn connections_of_members_and_strangers_have_separate_limits() {
    let mut few = settings(A);
    few.limits.connections = 3;
    few.limits.unauthenticated = 1;
    let a = start(few).await;
    let stranger = RawPeer::dial(&a).await;
    until("the only stranger", || a.net.shared.inbound.pending() == 1).await;
    let newer = RawPeer::dial(&a).await;
    stranger.sees_the_end().await;
    refused(&a, Refusal::Busy).await;
    drop(newer);
    until("no stranger", || a.net.shared.inbound.pending() == 0).await;

    let mut links = Vec::new();
    for member in 2..5 {
        links.push(RawPeer::link(&a, member).await);
        until("greeted", || a.net.shared.inbound.pending() == 0).await;
    }
    let (peer, reply) = RawPeer::greet(&a, &hello_to(A, 5)).await;
    assert_eq!(reply, HelloReply::Refused(HelloRejection::Busy));
    peer.sees_the_end().await;
    assert_eq!(a.net.counters().refused(Refusal::Busy), 2);
    links[0].frame("those inside go on").await;
    until("a frame", || a.seen.texts() == ["those inside go on"]).await;
}

/// The peer completes the greeting and then never reads.
#[tokio::test]
async fn memory_for_a_peer_that_does_not_read_is_bounded() {
    let mut small = settings(A);
    small.limits.queue_bytes = 1 << 20;
    small.limits.frame_bytes = 1 << 16;
    let a = start(small).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    a.dial(B, listener.local_addr().unwrap());
    let (mut silent, _) = listener.accept().await.unwrap();
    welcome_by_hand(&mut silent, B, &token()).await.unwrap();
    a.connected_to(B).await;
    // First the system's own buffers fill up, then the queue.
    until("frames are dropped", || {
        a.net.send(B, |out| out.extend([1; 60_000]));
        a.net.counters().dropped.get() > 100
    })
    .await;
    assert!(a.net.unsent() <= 1 << 20, "{} bytes wait", a.net.unsent());
    assert!(a.net.is_connected(B));
}

/// The peer completes the greeting and then sends nothing, as if its machine had lost power.
#[tokio::test]
async fn a_half_open_connection_is_noticed_on_both_sides() {
    let mut alert = settings(A);
    alert.limits.ping_every = Duration::from_millis(10);
    alert.limits.silence = Duration::from_millis(50);
    let a = start(alert).await;

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    a.dial(B, listener.local_addr().unwrap());
    let (mut gone, _) = listener.accept().await.unwrap();
    welcome_by_hand(&mut gone, B, &token()).await.unwrap();
    until("the dialler notices", || a.net.counters().silent.get() >= 1).await;

    let peer = RawPeer::link(&a, 3).await;
    peer.sees_the_end().await;
}

/// Both sides send pings, so that silence shows a failure.
#[tokio::test]
async fn idle_connection_is_kept_alive_by_pings() {
    let (a, b) = pair(|settings| {
        settings.limits.ping_every = Duration::from_millis(10);
    })
    .await;
    let before = (a.net.counters().bytes_in.get(), b.net.counters().bytes_in.get());
    until("pings both ways", || {
        a.net.counters().bytes_in.get() > before.0 + 50 && b.net.counters().bytes_in.get() > before.1 + 50
    })
    .await;
    assert_eq!(a.net.counters().connects.get(), 1);
    assert_eq!(b.net.counters().connects.get(), 1);
    assert_eq!(a.net.counters().frames_out.get(), 0);
}

#[tokio::test]
async fn without_tls_only_loopback_is_used_unless_insecure_no_tls_is_set() {
    let everywhere = Some(SocketAddr::from(([0, 0, 0, 0], 0)));
    let handler = Arc::new(Recorder::default());
    let open = Settings { listen: everywhere, ..settings(A) };
    let refused = Net::start(open.clone(), handler.clone()).await.err().unwrap();
    assert!(matches!(refused, Error::PlainBeyondLoopback(_)));
    assert!(refused.to_string().contains("insecure_no_tls"), "{refused}");
    let asked_for = Settings { insecure_no_tls: true, ..open };
    Net::start(asked_for, handler).await.unwrap().stop().await;

    let a = start(settings(A)).await;
    // An address reserved for documentation: no process is there, and no connection must be attempted.
    a.dial(B, "192.0.2.1:7000");
    until("refused", || a.net.counters().refused(Refusal::TlsMismatch) > 0).await;
}

#[tokio::test]
async fn limits_that_cannot_work_are_refused() {
    let of = async |change: fn(&mut Settings)| {
        let mut settings = settings(A);
        change(&mut settings);
        Net::start(settings, Arc::new(Recorder::default())).await.err().unwrap().to_string()
    };
    assert!(of(|settings| settings.limits.silence = Duration::ZERO).await.contains("silence"));
    assert!(of(|settings| settings.limits.queue_bytes = 0).await.contains("does not fit into a queue"));
    assert!(of(|settings| settings.cluster = String::new()).await.contains("a cluster's name"));
}
