//! The operator's page in a real browser, against real members.
//!
//! Screenshots are written to the folder for temporary files of the tests: `target/tmp/page`.

mod support;

use lockkeeper_browser::Browser;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use support::{Daemons, LONG, Plan, TOKENS, ask, get, request, soon};
use tokio::time::timeout;

async fn show_token(browser: &Browser, token: &str) {
    browser.type_into("#token", token).await;
    browser.click("#access button").await;
}

/// Acquires a lock with the token that may do everything.
async fn acquire(at: SocketAddr, path: &str, owner: &str, wait_ms: u64) -> Value {
    acquire_for(at, path, owner, "to test", wait_ms).await
}

async fn acquire_for(at: SocketAddr, path: &str, owner: &str, purpose: &str, wait_ms: u64) -> Value {
    let body = json!({ "owner": owner, "purpose": purpose, "wait_ms": wait_ms, "ttl_ms": 600_000 });
    let mut acquire = request("POST", &format!("/v1/locks/{path}/acquire"), Some(&body));
    acquire.headers_mut().insert("authorization", "Bearer test".parse().expect("a header"));
    soon(path, ask(at, acquire)).await.is(200)
}

const HOSTILE_PURPOSES: [&str; 6] = [
    r#"{"pid":1,"host":{"toString":1,"valueOf":1},"metadata":{}}"#,
    r#"{"pid":1,"host":"h","metadata":{"command":{"toString":null,"valueOf":null}}}"#,
    r#"{"pid":1,"host":"h","metadata":{"command":["<img src=x>"],"purpose":{"toString":[]}}}"#,
    r#"{"pid":1e999,"host":[[]],"metadata":null,"__proto__":{"toString":1}}"#,
    r#"{"pid":1,"metadata":7}"#,
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_looks_at_a_cluster_and_takes_a_lock_away() {
    // A browser that hangs would never reply.
    timeout(5 * LONG, visit()).await.expect("the browser answers");
}

async fn visit() {
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page");
    let Some(browser) = Browser::start(pictures).await else { return };
    let plan = Plan { tokens: Some(TOKENS), ..Plan::default() };
    let mut daemons = Daemons::start_with(3, plan).await;
    let (at, other) = (daemons.address(0), daemons.address(1));
    browser.go(&format!("http://{at}/")).await;

    // Without a token, nothing is shown. An error about a wrong token appears where it was typed.
    browser.reads("#who", "A valid token is needed").await;
    show_token(&browser, "wrong").await;
    browser.reads("#who", "A valid token is needed").await;
    browser.reads("#none", "to those who have a token").await;
    browser.picture("1-no-token").await;

    // A token that may only observe.
    acquire(at, "ci%2Fbuild", "alice", 0).await;
    let waits = tokio::spawn(acquire(other, "ci%2Fbuild", "bob", 600_000));
    show_token(&browser, "secret").await;
    browser.reads("#who", "ci: looks on").await;
    browser.reads("[data-name='ci/build'] td:nth-child(2)", "alice").await;
    browser.reads("[data-name='ci/build'] td:nth-child(3)", "bob").await;
    assert!(!browser.is_there("[data-key^='take']").await, "it may not release locks by force");

    // A token with all rights sees all locks, and their names are shown as text.
    acquire(other, "%3Cimg%20src%3Dx%20onerror%3Dalert%281%29%3E", "<b>mallory</b>", 0).await;
    show_token(&browser, "test").await;
    browser.reads("#who", "root").await;
    browser.reads("#rows", "<img src=x onerror=alert(1)>").await;
    browser.reads("#rows", "<b>mallory</b>").await;
    assert!(!browser.is_there("#rows img, #rows b").await, "text of clients is not interpreted as HTML");

    // A purpose that resembles that of the Rust library, with objects in it that cannot be converted to text, does
    // not blank the page.
    for (number, purpose) in HOSTILE_PURPOSES.iter().enumerate() {
        acquire_for(at, &format!("hostile-{number}"), "mallory", purpose, 0).await;
    }
    acquire(at, "last", "carol", 0).await;
    browser.reads("[data-name='last'] td:nth-child(2)", "carol").await;
    for number in 0..HOSTILE_PURPOSES.len() {
        browser.reads(&format!("[data-name='hostile-{number}'] td:nth-child(2)"), "member 1").await;
    }
    browser.reads("#members", "127.0.0.1").await;
    browser.reads("#view", "3 of 3 members").await;
    browser.reads("[data-number='views']", "Views started").await;
    browser.click("[data-key='why ci/build']").await;
    browser.reads("[data-name='ci/build'] .why", "waits for “ci/build”").await;
    browser.picture("2-locks").await;
    browser.click("#hide-hint").await;
    browser.click("#theme option[value='dark']").await;
    browser.picture("3-dark").await;

    // A forced release, after a confirmation.
    let take = "[data-key^='take ci/build']";
    browser.click(take).await;
    browser.reads("#take", "Take “ci/build” away?").await;
    browser.picture("4-take").await;
    browser.click("#take-no").await;
    browser.reads("[data-name='ci/build'] td:nth-child(2)", "alice").await;
    browser.click(take).await;
    browser.click("#take-yes").await;
    browser.reads("#events", "“ci/build” was taken away from alice").await;
    waits.await.expect("bob has it");
    browser.reads("[data-name='ci/build'] td:nth-child(2)", "bob").await;

    // With the keyboard alone: the focus stays where it was, and Escape cancels.
    browser.run("document.querySelector(\"[data-key^='take ci/build']\").focus()").await;
    browser.press('\u{e007}').await;
    browser.reads("#take", "bob").await;
    assert_eq!(browser.run("return document.activeElement.id").await, "take-no");
    browser.press('\u{e00c}').await;
    browser.wait("the dialog is closed", "!document.querySelector('#take').open").await;

    // A member dies.
    daemons.kill(2).await;
    browser.reads("[data-member='3']", "✕ no").await;
    browser.reads("#events", "has members 1, 2").await;
    browser.picture("5-a-member-dies").await;

    // The token was in the memory of the tab only.
    browser.refresh().await;
    browser.reads("#who", "A valid token is needed").await;
    assert_eq!(
        browser.run("return localStorage.length + sessionStorage.length + document.cookie.length").await,
        0
    );

    // The daemon itself dies.
    show_token(&browser, "test").await;
    browser.reads("#state", "serves").await;
    daemons.kill(0).await;
    browser.reads("#state", "not reached").await;
    browser.reads("#alert", "cannot be reached").await;
    browser.picture("6-the-daemon-dies").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_is_complete_and_cross_origin_requests_are_rejected() {
    let daemons = Daemons::start(1).await;
    let at = daemons.address(0);
    let page = get(at, "/").await;
    assert_eq!((page.status.as_u16(), page.headers["x-frame-options"].as_bytes()), (200, &b"DENY"[..]));
    let policy = page.headers["content-security-policy"].to_str().expect("text");
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self';") && !policy.contains("unsafe"),
        "{policy}"
    );
    // Every file that the page refers to is served, and there are no references to other origins.
    let scripts = ["page.js", "api.js", "locks.js", "numbers.js", "dom.js"];
    let mut all = page.text.clone();
    for name in scripts.into_iter().chain(["page.css", "icon.svg"]) {
        let file = get(at, &format!("/page/{name}")).await;
        assert_eq!(file.status, 200, "{name}");
        all += &file.text;
    }
    let beyond = all.split("http").skip(1).filter(|rest| rest.starts_with("://") || rest.starts_with("s://"));
    assert!(
        beyond.clone().all(|rest| rest.starts_with("://www.w3.org/2000/svg")),
        "{:?}",
        beyond.collect::<Vec<_>>()
    );
    get(at, "/page/none.js").await.is(404);
    // Requests of a page of another origin.
    let body = json!({});
    for (name, value, status) in [
        ("origin", String::from("http://evil.example"), 403),
        ("origin", String::from("null"), 403),
        ("origin", String::from("http://localhost"), 200),
        ("host", format!("evil.example:{}", at.port()), 421),
        ("host", format!("127.0.0.1:{}", at.port()), 200),
        ("host", String::from("evil example"), 421),
        ("sec-fetch-site", String::from("cross-site"), 403),
        ("sec-fetch-site", String::from("same-site"), 403),
        ("sec-fetch-site", String::from("same-origin"), 200),
    ] {
        let mut asked = request("POST", "/v1/locks/a/force-release", Some(&body));
        asked.headers_mut().insert(name, value.parse().expect("a header"));
        let answer = soon("an answer", ask(at, asked)).await;
        assert_eq!(answer.status, status, "{name}: {value}: {answer:?}");
    }
    // Browsers must not guess the type of a response, and other origins must not include it.
    for path in ["/v1/locks", "/v1/status", "/metrics", "/healthz", "/openapi.json", "/nothing", "/"] {
        let answer = get(at, path).await;
        assert_eq!(answer.headers["x-content-type-options"], "nosniff", "{path}");
        assert_eq!(answer.headers["cross-origin-resource-policy"], "same-origin", "{path}");
    }
}
