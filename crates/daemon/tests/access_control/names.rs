//! Every protocol accepts the same names and tags.

use super::native::Client;
use super::{ROOT, start_with_long_leases, with};
use crate::support::get;
use lockkeeper_etcd_api::v3lockpb::LockRequest;
use lockkeeper_etcd_api::v3lockpb::lock_client::LockClient;
use lockkeeper_session::protocol::{DaemonQuery, DaemonReply, FromDaemon, Refusal};
use lockkeeper_session::{LockName, Tag, ToClient, ToMember};
use serde_json::json;
use tonic::Code;

const BAD: [&str; 6] = ["", "a\0b", "a\nb", "\x1b[31mred", "a\u{9b}31m", "a\u{7f}"];

fn percent(name: &str) -> String {
    name.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_with_control_characters_or_of_a_wrong_length_are_refused_by_every_protocol() {
    let daemons = start_with_long_leases(1).await;
    let at = daemons.address(0);
    let mut native = Client::connect(daemons.native(0), 3, ROOT).await.expect("welcome");
    native.open().await;
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{at}")).expect("an address");
    let mut etcd = LockClient::new(channel.connect().await.expect("a connection"));
    let long = "x".repeat(513);
    for (number, name) in (1..).zip(BAD.into_iter().chain([long.as_str()])) {
        native.keep_alive(false).await;
        native.request(number, name).await;
        let refused = loop {
            match native.next().await {
                Some(FromDaemon::Session(_, ToClient::Alive { .. })) => {}
                other => break other,
            }
        };
        let Some(FromDaemon::Refuse { number: of, why: Refusal::Because(why), .. }) = refused else {
            panic!("{name:?}: {refused:?}");
        };
        assert!(of == number && why.starts_with("bad lock name: "), "{name:?}: {why}");
        for ask in [
            DaemonQuery::ForceRelease(name.into()),
            DaemonQuery::Why(name.into()),
            DaemonQuery::Locks(Some(name.into())),
        ] {
            assert!(matches!(native.ask(ask).await, DaemonReply::Refused(_)), "{name:?}");
        }
        let mut request = tonic::Request::new(LockRequest { name: name.into(), lease: 0 });
        request.metadata_mut().insert("token", ROOT.parse().expect("text"));
        assert_eq!(etcd.lock(request).await.expect_err("refused").code(), Code::InvalidArgument, "{name:?}");
        if !name.is_empty() {
            let path = format!("/v1/locks/{}", percent(name));
            let refused = with(ROOT, at, "POST", &format!("{path}/acquire"), Some(json!({}))).await.is(422);
            assert!(
                refused["message"].as_str().is_some_and(|why| why.starts_with("bad lock name: ")),
                "{refused}"
            );
            with(ROOT, at, "POST", &format!("{path}/force-release"), Some(json!({}))).await.is(422);
            with(ROOT, at, "GET", &path, None).await.is(422);
        }
    }
    let longest = "x".repeat(512);
    native.acquire(100, &longest).await;
    assert_eq!(daemons.all[0].member().table().len(), 1);
    assert_eq!(get(at, "/healthz").await.text, "ok\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_and_purposes_with_control_characters_are_refused_by_every_protocol() {
    let daemons = start_with_long_leases(1).await;
    let at = daemons.address(0);
    for text in ["\x1b]0;owned\x07", "a\nb", "a\0", "\u{85}"] {
        for key in ["owner", "purpose"] {
            with(ROOT, at, "POST", "/v1/locks/x/acquire", Some(json!({ key: text }))).await.is(422);
        }
        with(ROOT, at, "POST", "/v1/sessions", Some(json!({ "owner": text }))).await.is(422);
    }
    let mut native = Client::connect(daemons.native(0), 3, ROOT).await.expect("welcome");
    native.open().await;
    let tags = [("\x1b[2J", ""), ("", "a\r\nb")];
    for (number, (owner, purpose)) in (1..).zip(tags) {
        let mut request = lockkeeper_session::LockRequest::exclusive(LockName::new("x"));
        request.tag = Tag { owner: owner.into(), purpose: purpose.into() };
        native.send_to_member(ToMember::Acquire { number, settled: 1, request }).await;
        let refused = native.next().await;
        assert!(
            matches!(&refused, Some(FromDaemon::Refuse { number: of, .. }) if *of == number),
            "{owner:?} {purpose:?}: {refused:?}"
        );
    }
    assert!(daemons.all[0].member().table().is_empty(), "nothing is held");
}
