//! The cost of TLS for one client: pairs of acquire and release, on Redis and on etcd, without and with TLS in turn.
//!
//! ```sh
//! cargo bench -p lockkeeper --all-features --bench tls
//! ```

use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testbed::certificates::Certificates;
use lockkeeper_testbed::servers::{self, LocalServer};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The number of measurements of each kind. The plain server and the one with TLS take turns, so that both see the same
/// machine.
const ROUNDS: usize = 7;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let (certificates, data) = (Certificates::new(), tempfile::tempdir().unwrap());
        let ca = certificates.authority().display().to_string();
        println!(
            "one client, medians of {ROUNDS} rounds in turn; µs for acquire and release, and for opening\n"
        );
        println!("| | plaintext | TLS | ratio | open, plaintext | open, TLS |\n|---|---|---|---|---|---|");
        if let Some(program) = servers::program("redis-server", &[], "redis-server") {
            let start = |tls: bool| redis(&program, &certificates, tls);
            let (plain, tls) = (start(false), start(true));
            let url = format!("rediss://localhost:{}?ca={ca}", tls.port());
            compare("Redis", 2000, &format!("redis://localhost:{}", plain.port()), &url).await;
        }
        if let Some(program) = servers::program("etcd", &[], "etcd-server") {
            let start = |tls: bool| etcd(&program, &certificates, data.path(), tls);
            let (plain, tls) = (start(false), start(true));
            let url = format!("etcds://localhost:{}?ca={ca}", tls.port());
            compare("etcd", 200, &format!("etcd://localhost:{}", plain.port()), &url).await;
        }
    });
}

/// A server without persistence: only the way to it is measured.
fn redis(program: &Path, certificates: &Certificates, tls: bool) -> LocalServer {
    let (program, own) = (program.to_owned(), certificates.server());
    let ca = certificates.authority().to_owned();
    LocalServer::start(move |port| {
        let (plain, secure) = if tls { (0, port) } else { (port, 0) };
        let mut command = Command::new(&program);
        command.args(["--bind", "127.0.0.1", "::1", "--save", "", "--appendonly", "no"]);
        command.args(["--port", &plain.to_string(), "--tls-port", &secure.to_string()]);
        command.arg("--tls-cert-file").arg(&own.certificate).arg("--tls-key-file").arg(&own.key);
        command.arg("--tls-ca-cert-file").arg(&ca).args(["--tls-auth-clients", "no"]);
        command
    })
}

/// A server that writes to the disk, as etcd always does.
fn etcd(program: &Path, certificates: &Certificates, data: &Path, tls: bool) -> LocalServer {
    let (program, own) = (program.to_owned(), certificates.server());
    let data = data.join(if tls { "etcd-tls" } else { "etcd" });
    LocalServer::start(move |port| {
        let clients = format!("{}://127.0.0.1:{port}", if tls { "https" } else { "http" });
        let mut command = Command::new(&program);
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", "http://127.0.0.1:0", "--log-level", "error"]);
        if tls {
            command.arg("--cert-file").arg(&own.certificate).arg("--key-file").arg(&own.key);
        }
        command.arg("--data-dir").arg(&data);
        command
    })
}

async fn compare(what: &str, pairs: u32, plain: &str, tls: &str) {
    let (mut plain_rounds, mut tls_rounds) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plain_rounds.push(measure(plain, pairs).await);
        tls_rounds.push(measure(tls, pairs).await);
    }
    let median = |rounds: &[(f64, f64)], opening: bool| {
        let mut all: Vec<f64> = rounds.iter().map(|it| if opening { it.1 } else { it.0 }).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let (a, b) = (median(&plain_rounds, false), median(&tls_rounds, false));
    let (c, d) = (median(&plain_rounds, true), median(&tls_rounds, true));
    println!("| {what} | {a:.0} | {b:.0} | {:.2} | {c:.0} | {d:.0} |", b / a);
}

/// Microseconds for each pair of acquire and release, and for opening.
async fn measure(url: &str, pairs: u32) -> (f64, f64) {
    let (locks, opening) = loop {
        let start = Instant::now();
        match Lockkeeper::open(url).await {
            Ok(locks) => break (locks, start.elapsed()),
            // The server may still be starting.
            Err(Error::Unavailable { .. }) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(error) => panic!("{error}"),
        }
    };
    let start = Instant::now();
    for _ in 0..pairs {
        locks.mutex("bench").acquire().await.unwrap().release().await.unwrap();
    }
    (start.elapsed().as_secs_f64() * 1e6 / f64::from(pairs), opening.as_secs_f64() * 1e6)
}
