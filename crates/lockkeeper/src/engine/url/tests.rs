use super::*;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// A timeout that only a stuck engine reaches.
const TIMEOUT: Duration = Duration::from_secs(120);

fn shown(url: &str) -> String {
    EngineUrl::from(url).to_string()
}

#[test]
fn addresses_and_harmless_options_are_shown() {
    for url in [
        "",
        "file:",
        "file:///var/lib/locks",
        "gopher://x",
        "lockkeeper:",
        "lockkeeper:///run/lockkeeper/socket",
        "lockkeeper://a,b:7421?ca=/etc/ca.pem&in-order&insecure-no-tls&token-file=/run/token",
        "postgres://h/db?sslmode=require&target_session_attrs=read-write&sslrootcert=/etc/ca.pem",
        "rediss://h?ca=/etc/ca.pem&cert=/etc/c.pem&key=/etc/c.key&password-file=/run/password",
        "redis://a:1,b:2?unfenced",
        "zookeeper://[::1]:2181,h_1.example/team/x",
    ] {
        assert_eq!(shown(url), url);
    }
    assert_eq!(shown("redis://u:secret@h:1/0"), "redis://***@h:1/0");
    assert_eq!(shown("postgres://h/db?password=x&dbname=y"), "postgres://h/db?password=***&dbname=y");
    assert_eq!(shown("redis://h\u{1b}[2J"), "redis://***");
    assert_eq!(format!("{:?}", EngineUrl::from("redis://u:secret@h")), "EngineUrl(\"redis://***@h\")");
}

/// The parts after the scheme. `s3c` and `r3t` are the halves of the secret; 127.0.0.1:1 refuses connections.
const MALFORMED: [&str; 40] = [
    "://u:s3cr3t@127.0.0.1:1",
    "://u:s3c/r3t@127.0.0.1:1",
    "://u:s3c?r3t@127.0.0.1:1",
    "://u:s3c#r3t@127.0.0.1:1",
    "://u:s3c@r3t@127.0.0.1:1",
    "://u:s3c r3t@127.0.0.1:1",
    "://u:s3c\nr3t@127.0.0.1:1",
    "://u:s3c%zzr3t@127.0.0.1:1",
    "://u:s3c[r3t@127.0.0.1:1",
    "://u:s3c/r3t@127.0.0.1:1/0",
    "://u:s3c/r@3t/r3t@127.0.0.1:1",
    "://u:s3c://r3t@127.0.0.1:1",
    "://u:12/s3cr3t@127.0.0.1:x",
    "://u:12?s3cr3t@127.0.0.1:1",
    "://s3cr3t@127.0.0.1:1",
    "://:s3cr3t@127.0.0.1:1",
    "://s3cr3t:@127.0.0.1:1",
    "://u:s3cr3t@",
    "://u:s3cr3t@127.0.0.1:s3cr3t",
    "://u:s3cr3t@127.0.0.1:99999",
    "://u:s3cr3t@127.0.0.1:1,,",
    "://u:s3cr3t",
    "://u:s3c/r3t",
    "://token:s3cr3t/",
    "://u:s3cr3t%40127.0.0.1:1",
    "://127.0.0.1:1?s3cr3t",
    "://127.0.0.1:1?s3cr3t=",
    "://127.0.0.1:1?token=s3cr3t",
    "://127.0.0.1:1?password=s3cr3t",
    "://127.0.0.1:1?PASSWORD=s3cr3t",
    "://127.0.0.1:1/0?password=s3c/r3t@x",
    "://127.0.0.1:1/db?sslmode=x;password=s3cr3t",
    "://127.0.0.1:1?ca=s3cr3t",
    "://127.0.0.1:1?token-file=s3cr3t",
    "://127.0.0.1:1?ca=/nowhere&cert=s3cr3t&key=s3cr3t",
    "://127.0.0.1:1#s3cr3t",
    ":u:s3cr3t@127.0.0.1:1",
    ":/u:s3cr3t@127.0.0.1:1",
    ":///u:s3cr3t@127.0.0.1:1",
    ":password=s3cr3t host=127.0.0.1",
];

const SCHEMES: [&str; 18] = [
    "cluster",
    "etcd",
    "etcd+tls",
    "etcds",
    "file",
    "gopher",
    "http",
    "lockkeeper",
    "mariadb",
    "mysql",
    "postgres",
    "postgresql",
    "redis",
    "redis-cluster",
    "redis-sentinel",
    "rediss",
    "zookeeper",
    "zookeeper+tls",
];

fn assert_hidden(url: &str, text: &str) {
    assert!(!text.contains("s3c") && !text.contains("r3t"), "{url:?} is shown: {text}");
}

#[test]
fn malformed_urls_are_shown_without_their_secret() {
    let schemes = SCHEMES.iter().flat_map(|scheme| MALFORMED.map(|rest| format!("{scheme}{rest}")));
    let others = ["s3cr3t", "s3cr3t:x", "u:s3cr3t@h", "s3cr3t@h", "//u:s3cr3t@h", "redis ://u:s3cr3t@h"];
    for url in schemes.chain(others.map(String::from)) {
        let text = EngineUrl::from(&url);
        assert_hidden(&url, &format!("{text} {text:?}"));
        // In a text, a URL is found by its `//`, by `user:password@`, or by the scheme of an engine.
        let known = super::super::SCHEMES.iter().any(|(known, _)| url.starts_with(&format!("{known}:")));
        if known || url.contains("://") {
            assert_hidden(&url, &redact(&format!("unexpected argument '{url}' found\n\nUsage: x")));
        }
    }
    let usage = "unexpected argument 'x' found; see file:///var/lib/locks, lockkeeper: and --on <URL>";
    assert_eq!(redact(usage), usage);
}

/// Each URL leads to an error of an engine or of an operator's command: in its parser, or when 127.0.0.1:1 refuses
/// the connection.
#[tokio::test]
async fn errors_of_all_engines_about_malformed_urls_do_not_show_the_secret() {
    let mut attempts = JoinSet::new();
    let urls = SCHEMES.iter().flat_map(|scheme| MALFORMED.map(|rest| format!("{scheme}{rest}")));
    // `file:/…` and `file:///…` are valid paths, and opening them would create their directories.
    for url in urls.filter(|url| !url.starts_with("file:/u") && !url.starts_with("file:///")) {
        let opened = url.clone();
        attempts.spawn(async move {
            let failed = timeout(TIMEOUT, crate::Lockkeeper::open(&opened)).await.map(Result::err);
            (opened, failed.expect("engines give up"))
        });
        #[cfg(feature = "cluster")]
        attempts.spawn(async move {
            let failed = timeout(TIMEOUT, crate::cluster::Operator::open(&url)).await.map(Result::err);
            let probed = crate::cluster::probe(&url).await;
            assert_hidden(&url, &format!("{probed:?}"));
            (url, failed.expect("clients give up"))
        });
    }
    while let Some(attempt) = attempts.join_next().await {
        let (url, failed) = attempt.unwrap();
        let error = failed.unwrap_or_else(|| panic!("{url:?} was accepted"));
        assert_hidden(&url, &format!("{error} {error:?}"));
    }
}

#[test]
fn an_at_sign_after_the_host_is_refused_before_anything_is_sent() {
    for url in [
        "redis://u:12/x@h",
        "redis://u:12?x@h",
        "postgres://u:12#x@h/db",
        "lockkeeper://a?ca=/x@y",
        "lockkeeper:///u:x@h",
    ] {
        let error = EngineUrl::from(url).refuse_ambiguous().unwrap_err().to_string();
        assert!(error.contains("%2F"), "{error}");
    }
    for url in [
        "redis://u:p@h/0",
        "redis://u:a@b@h",
        "file:///a@b",
        "lockkeeper:///run/lockkeeper@1/socket",
        "lockkeeper://a?ca=/x%40y",
        "nonsense",
    ] {
        assert!(EngineUrl::from(url).refuse_ambiguous().is_ok(), "{url}");
    }
}

#[test]
fn tokens_are_hidden_wherever_they_are() {
    let token = format!("lk_{}", "0123456789abcdef".repeat(4));
    for url in [
        format!("lockkeeper://{token}"),
        format!("lockkeeper://{token}:7421"),
        format!("lockkeeper://h/{token}"),
        format!("lockkeeper:///run/{token}"),
        format!("lockkeeper://h?ca=/{token}"),
        format!("file:///{token}"),
        token.clone(),
    ] {
        assert!(!shown(&url).contains("0123456789"), "{}", shown(&url));
        assert!(!redact(&format!("found `{url}`")).contains("0123456789"));
    }
    assert!(redact("lk_abc is short").contains("lk_abc"));
}
