//! Requests that the server rejects, and jobs that end when their client disconnects.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The time after which the tests give up; it measures nothing.
const READ_TIMEOUT: Duration = Duration::from_secs(120);

/// Sends a raw HTTP request; returns the status and body of the response.
fn ask(port: u16, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
    stream.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let status = line.split_whitespace().nth(1).and_then(|code| code.parse().ok()).expect("a status");
    let mut length = None;
    loop {
        line.clear();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok();
        }
    }
    let mut body = Vec::new();
    match length {
        Some(length) => reader.take(length).read_to_end(&mut body).unwrap(),
        None => reader.read_to_end(&mut body).unwrap(),
    };
    (status, String::from_utf8_lossy(&body).into_owned())
}

fn get(port: u16, path: &str, headers: &str) -> (u16, String) {
    ask(port, &format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n"))
}

fn post(port: u16, path: &str, headers: &str, body: &str) -> (u16, String) {
    ask(port, &posting(path, headers, body))
}

fn posting(path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n{headers}\r\n{body}"
    )
}

fn host(port: u16) -> String {
    format!("Host: 127.0.0.1:{port}\r\n")
}

fn running(port: u16) -> u64 {
    let (_, body) = get(port, "/api/status", &host(port));
    let status: Value = serde_json::from_str(&body).expect("JSON");
    status["running"].as_u64().expect("a number")
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(120);
    while !condition() {
        assert!(Instant::now() < until, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A search that runs until its time limit.
fn endless() -> String {
    json!({ "algorithm": "maekawa", "sites": 5, "requests": 3, "fifo": null }).to_string()
}

#[test]
fn requests_of_other_origins_are_rejected() {
    let port = crate::serve();
    let (host, request) =
        (host(port), json!({ "scenario": "algorithm: lamport\nsites: 2\n0 S1 requests\n" }).to_string());
    assert_eq!(post(port, "/api/play", &host, &request).0, 200);
    let own = format!("{host}Origin: http://127.0.0.1:{port}\r\n");
    assert_eq!(post(port, "/api/play", &own, &request).0, 200);
    assert_eq!(post(port, "/api/play", &format!("{host}Origin: http://other.example\r\n"), &request).0, 403);
    assert_eq!(post(port, "/api/play", "Host: other.example\r\n", &request).0, 403);
    assert_eq!(get(port, "/", "Host: other.example\r\n").0, 403);
    assert_eq!(get(port, "/api/about", &format!("{host}Sec-Fetch-Site: cross-site\r\n")).0, 403);
    // A form of another page cannot send JSON without a preflight request, which is not answered.
    let plain = request.len();
    let form = format!(
        "POST /api/play HTTP/1.1\r\nConnection: close\r\n{host}Content-Type: text/plain\r\nContent-Length: {plain}\r\n\r\n{request}"
    );
    assert_eq!(ask(port, &form).0, 400);
}

#[test]
fn requests_above_the_limits_are_rejected() {
    let port = crate::serve();
    let send = |path: &str, request: Value| post(port, path, &host(port), &request.to_string());
    let (status, reply) =
        send("/api/play", json!({ "scenario": "algorithm: lamport\nsites: 5000\n0 S1 requests\n" }));
    assert_eq!((status, reply.contains("1 to 60 sites")), (400, true), "{reply}");
    let (status, reply) = send(
        "/api/compare",
        json!({ "algorithms": ["lamport"], "sites": [1000], "loads": ["low"], "seeds": 1, "cs": "1" }),
    );
    assert_eq!((status, reply.contains("at most 127 sites")), (400, true), "{reply}");
    let (status, reply) =
        send("/api/check", json!({ "algorithm": "nothing", "sites": 2, "requests": 1, "fifo": null }));
    assert_eq!((status, reply.contains("there is no algorithm 'nothing'")), (400, true), "{reply}");
    let (status, reply) = send("/api/flp", json!({ "protocol": "paxos", "steps": 3 }));
    assert_eq!((status, reply.contains("no protocol 'paxos'")), (400, true), "{reply}");
    let scenario = "algorithm: lamport\nsites: 2\n0 S1 requests\n";
    let (status, reply) = send("/api/causality", json!({ "scenario": scenario, "event": "S9:1", "cut": "" }));
    assert_eq!((status, reply.contains("no process 'S9'")), (400, true), "{reply}");
    let (status, reply) = send("/api/causality", json!({ "scenario": scenario, "event": "", "cut": "S1" }));
    assert_eq!((status, reply.contains("no part of a cut")), (400, true), "{reply}");
    let (status, _) = send("/api/play", json!({ "scenario": "# ".repeat(200_000) }));
    assert_eq!(status, 400);
    assert_eq!(get(port, "/../Cargo.toml", &host(port)).0, 404);
}

#[test]
fn closed_tab_stops_its_job() {
    let port = crate::serve();
    let mut tab = TcpStream::connect(("127.0.0.1", port)).unwrap();
    tab.write_all(posting("/api/check", &host(port), &endless()).as_bytes()).unwrap();
    // The first progress report has arrived.
    let mut first = [0; 16];
    tab.read_exact(&mut first).unwrap();
    wait_until("the search runs", || running(port) == 1);
    drop(tab);
    wait_until("the search has stopped", || running(port) == 0);
}

#[test]
fn number_of_concurrent_jobs_is_limited() {
    let port = crate::serve();
    let begin = || {
        let mut tab = TcpStream::connect(("127.0.0.1", port)).unwrap();
        tab.write_all(posting("/api/check", &host(port), &endless()).as_bytes()).unwrap();
        tab
    };
    let tabs: Vec<TcpStream> = (0..4).map(|_| begin()).collect();
    wait_until("four searches run", || running(port) == 4);
    let (status, reply) = post(port, "/api/check", &host(port), &endless());
    assert_eq!((status, reply.contains("close its tab")), (429, true), "{reply}");
    drop(tabs);
    wait_until("all have stopped", || running(port) == 0);
}
