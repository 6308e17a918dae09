//! Connections that have not proved that they belong to the cluster.

use super::*;
use crate::net::counters::Refusal;
use crate::net::hello::Purpose;
use crate::net::records::{self, RecordHeader};
use rcgen::CertificateParams;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

fn hello_from(from: Option<MemberId>, purpose: Purpose) -> Hello {
    let (oldest, newest) = (*hello::VERSIONS.start(), *hello::VERSIONS.end());
    Hello { oldest, newest, cluster: "canal".into(), from, to: Some(A), purpose }
}

/// Sends a greeting without a proof, then one record regardless of the reply; reads until the other side closes.
async fn intrude(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    hello: &Hello,
    kind: RecordHeader,
) -> Option<HelloReply> {
    stream.write_all(&hello::encode(hello)).await.unwrap();
    stream.flush().await.unwrap();
    let reply = hello::read(&mut stream).await.ok();
    let mut record = Vec::new();
    records::append(&mut record, kind, 100, |out| out.extend(b"Remove 3")).unwrap();
    // Longer than a proof, so that the other side has enough bytes to read.
    let _ = stream.write_all(&record.repeat(20)).await;
    let _ = stream.flush().await;
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await;
    assert!(closed.is_ok(), "the connection was to be closed");
    reply
}

#[tokio::test]
async fn a_peer_without_the_join_token_is_refused_on_loopback_without_tls() {
    let a = start(settings(A)).await;
    for (purpose, kind) in [(Purpose::Link, RecordHeader::Frame), (Purpose::Queries, RecordHeader::Query(1))]
    {
        let stream = TcpStream::connect(a.listens()).await.unwrap();
        intrude(stream, &hello_from(Some(B), purpose), kind).await;
    }
    assert_eq!(a.seen.texts(), [""; 0]);
    assert_eq!(a.seen.queries.load(SeqCst), 0);
}

/// Both members are correct, but one has the token file of another cluster.
#[tokio::test]
async fn members_with_different_join_tokens_refuse_each_other_with_the_reason() {
    let a = start(settings(A)).await;
    let b = start(Settings { token: JoinToken::random().unwrap(), ..settings(B) }).await;
    b.dial(A, a.address());
    b.send(A, "a secret");
    until("refused by the listener", || a.net.counters().refused(Refusal::Token) > 0).await;
    until("refused by the dialler", || b.net.counters().refused(Refusal::Token) > 0).await;
    let error = b.net.query(A, "", b"who".to_vec(), TIMEOUT).await.unwrap_err();
    assert!(error.0.contains("different join tokens"), "{error}");
    assert!(a.seen.frames().is_empty());
}

/// A process without the token listens at the former address of a member.
#[tokio::test]
async fn a_listener_without_the_join_token_gets_no_frames_and_no_proof() {
    let a = start(settings(A)).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    a.dial(B, listener.local_addr().unwrap());
    a.send(B, "a secret");
    let (mut stream, _) = listener.accept().await.unwrap();
    let last = welcome_by_hand(&mut stream, B, &JoinToken::random().unwrap()).await;
    assert_eq!(last, Some(Confirm::Refused(hello::HelloRejection::Token)));
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(rest.is_empty(), "{rest:?}");
    assert_eq!(a.net.counters().connects.get(), 0);
}

/// A process without the token replays to a member the greeting that it has recorded.
#[tokio::test]
async fn a_recorded_greeting_is_of_no_use_later() {
    let a = start(settings(A)).await;
    let hello = proof::hello_body(&hello_from(Some(B), Purpose::Link)).unwrap();
    let mut confirmed = None;
    for _ in 0..2 {
        let mut stream = TcpStream::connect(a.listens()).await.unwrap();
        stream.write_all(&hello::frame(&hello)).await.unwrap();
        let body = hello::read_body(&mut stream).await.unwrap();
        let (_, proved) = proof::read_reply(hello.clone(), &body).unwrap();
        let honest = || Confirm::Proof(proved.unwrap().0.prove(&token(), Side::Dialler));
        let confirm = confirmed.clone().unwrap_or_else(honest);
        stream.write_all(&hello::encode(&confirm)).await.unwrap();
        if confirmed.replace(confirm).is_some() {
            let mut rest = Vec::new();
            let closed = tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut rest)).await;
            closed.expect("the repeated greeting was to be refused").ok();
        } else {
            let mut ping = [0];
            stream.read_exact(&mut ping).await.expect("the first one is let in");
        }
    }
    until("refused", || a.net.counters().refused(Refusal::Token) == 1).await;
}

#[tokio::test]
async fn a_member_that_does_not_listen_reaches_others_and_cannot_be_reached() {
    let a = start(settings(A)).await;
    let b = start(Settings { listen: None, ..settings(B) }).await;
    assert_eq!(b.net.address(), None);
    b.dial(A, a.address());
    b.connected_to(A).await;
}

/// The certificate is valid and from the cluster's authority, like that of a client.
#[tokio::test]
async fn queries_of_a_certificate_that_names_no_member_are_rejected() {
    let authority = Authority::create(10).unwrap();
    let a = start(Settings { tls: Some(issued(&authority, A)), ..settings(A) }).await;
    let params = CertificateParams::new([String::from("client.example")]).unwrap();
    let client = with(&authority, &authority.sign(params).unwrap());
    let connector =
        tokio_rustls::TlsConnector::from(crate::net::tls::Ready::unchecked(&client).unwrap().client);
    for from in [None, Some(B)] {
        let stream = TcpStream::connect(a.listens()).await.unwrap();
        let name = rustls::pki_types::ServerName::try_from("member.lockkeeper").unwrap();
        let stream = connector.connect(name, stream).await.unwrap();
        let reply = intrude(stream, &hello_from(from, Purpose::Queries), RecordHeader::Query(1)).await;
        assert!(matches!(reply, Some(HelloReply::Refused(_))), "{from:?}: {reply:?}");
    }
    assert_eq!(a.seen.queries.load(SeqCst), 0);
}

#[tokio::test]
async fn silent_connections_do_not_keep_a_member_out() {
    let mut slow = settings(A);
    // Longer than this test: the silent connections do not close by themselves.
    slow.limits.hello_within = TIMEOUT * 10;
    let a = start(slow).await;
    let mut silent = Vec::new();
    for _ in 0..2 * a.net.shared.dialler.limits.unauthenticated + 6 {
        silent.push(TcpStream::connect(a.listens()).await.unwrap());
    }
    let b = start(settings(B)).await;
    b.dial(A, a.address());
    b.connected_to(A).await;
    b.send(A, "let in");
    until("a frame", || a.seen.texts() == ["let in"]).await;
    assert!(a.net.counters().refused(Refusal::Busy) > 0);
}
