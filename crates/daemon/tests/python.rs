//! Python clients: ours, one generated with grpcio, and schemathesis, which tests what the OpenAPI document allows
//! and forbids.
//!
//! The last two need third-party packages, which `scripts/python-clients` installs; `LOCKKEEPER_VENV` is their
//! location.

mod support;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use support::{Daemons, LONG, get, until};
use tokio::net::TcpStream;
use tokio::process::Command;

fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Runs a program to its end, which may take a while; one that hangs is killed.
async fn run(program: &mut Command) {
    let running = program.stdin(Stdio::null()).kill_on_drop(true).output();
    let done = tokio::time::timeout(5 * LONG, running).await.expect("it ends").expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    println!("{}{}", text(&done.stdout), text(&done.stderr));
    assert!(done.status.success(), "{program:?} failed");
}

fn venv() -> Option<PathBuf> {
    let venv = std::env::var_os("LOCKKEEPER_VENV");
    if venv.is_none() {
        eprintln!(
            "SKIPPED: grpcio and schemathesis are not there; scripts/python-clients gets them and runs this"
        );
    }
    venv.map(PathBuf::from)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_client_passes_its_tests() {
    if Command::new("python3").arg("--version").output().await.is_err() {
        return eprintln!("SKIPPED: there is no python3");
    }
    for count in [1, 3] {
        let daemons = Daemons::start(count).await;
        let urls: Vec<String> =
            (0..daemons.all.len()).map(|place| format!("http://{}", daemons.address(place))).collect();
        for tests in ["test_client.py", "test_aio.py", "test_lease.py"] {
            let mut python = Command::new("python3");
            python.arg("-B").arg(folder("../../clients/python/tests").join(tests));
            python
                .env("LOCKKEEPER_URL", urls.join(","))
                .env("PYTHONPATH", folder("../../clients/python/src"));
            run(&mut python).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpcio_client_works_with_daemon_and_etcd() {
    let Some(venv) = venv() else { return };
    let made = tempfile::tempdir().expect("a folder");
    let definitions = folder("../etcd-api/proto");
    let out = |what: &str| format!("--{what}_out={}", made.path().display());
    let mut compiler = Command::new(venv.join("bin/python"));
    compiler.args(["-m", "grpc_tools.protoc"]).arg(format!("-I{}", definitions.display()));
    compiler.args([out("python"), out("grpc_python")]).args(["rpc.proto", "kv.proto", "v3lock.proto"]);
    run(&mut compiler).await;
    let flows = async |addresses: &[SocketAddr]| {
        let mut script = Command::new(venv.join("bin/python"));
        script.arg("-B").arg(folder("tests/python/etcd_grpc.py")).arg(made.path());
        run(script.args(addresses.iter().map(ToString::to_string))).await;
    };
    let one = Daemons::start(1).await;
    flows(&[one.address(0)]).await;
    let three = Daemons::start(3).await;
    flows(&[three.address(1)]).await;
    flows(&[three.address(0), three.address(2)]).await;
    // Also against etcd, to show that the client tests etcd's behaviour.
    let directory = tempfile::tempdir().expect("a directory");
    let free = || SocketAddr::from(([127, 0, 0, 1], lockkeeper_testbed::ports::free().expect("a port")));
    let (client, peer) = (free(), free());
    let (client_url, peer_url) = (format!("http://{client}"), format!("http://{peer}"));
    let mut etcd = Command::new("etcd");
    etcd.arg("--data-dir").arg(directory.path());
    etcd.args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url]);
    etcd.args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url]);
    etcd.arg(format!("--initial-cluster=default={peer_url}"));
    let started = etcd.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn();
    let Ok(_etcd) = started else { return eprintln!("SKIPPED: etcd is not installed (Debian: etcd-server)") };
    until("etcd listens", || async { TcpStream::connect(client).await.is_ok() }).await;
    flows(&[client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schemathesis_finds_nothing() {
    let Some(venv) = venv() else { return };
    let daemons = Daemons::start(1).await;
    let url = format!("http://{}", daemons.address(0));
    let here = folder("tests/python");
    let mut schemathesis = Command::new(venv.join("bin/schemathesis"));
    schemathesis.arg("--config-file").arg(here.join("schemathesis.toml"));
    schemathesis.args(["run", &format!("{url}/openapi.json"), "--url", &url]);
    // A stream of events has no end, which is not a fault.
    schemathesis.args(["--exclude-path", "/v1/watch"]);
    // The same requests in each run.
    schemathesis.arg("--generation-deterministic");
    schemathesis.env("SCHEMATHESIS_HOOKS", "hooks").env("PYTHONPATH", here);
    // Keep the files that it writes out of the repository.
    schemathesis.current_dir(daemons.directory.path());
    schemathesis.env("NO_COLOR", "1").env("PYTHONDONTWRITEBYTECODE", "1");
    run(&mut schemathesis).await;
    get(daemons.address(0), "/v1/status").await.is(200);
}
