//! One hostile tenant among ten: three daemons, ten tenants with a token each. Nine of them hold locks and take turns;
//! the tenth runs one attack after the other. The nine must lose no hold, mutual exclusion must be kept, and fences
//! must increase.
//!
//! ```sh
//! cargo test -p lockkeeper-daemon --test hostile_tenant                        # every attack, two seconds each
//! cargo test --release -p lockkeeper-daemon --test hostile_tenant -- --soak 5  # five minutes, checks latencies, too
//! ```
//!
//! Daemons and the attacker are separate processes. The attacker runs at the lowest priority, as if it had a machine of
//! its own: it uses only the time that the daemons spend on its requests, not the core on which they run.
//!
//! | module | contents |
//! |---|---|
//! | `cluster` | configuration and processes of the daemons |
//! | `tenants` | the nine tenants, and what they observed |
//! | `attacks` | the attacker's process |
//! | `client` | connections of the attacker: HTTP and the native protocol |

mod attacks;
mod client;
mod cluster;
mod tenants;

use attacks::Attack;
use cluster::Cluster;
use lockkeeper_testbed::options::Options;
use std::process::ExitCode;
use std::time::Duration;
use tenants::{Measured, Tenants};

/// Duration of each attack in the short form.
const SHORT: Duration = Duration::from_secs(2);
/// Maximum of the 99th percentile of a tenant's latency during an attack, as a multiple of that before.
const MOST_SLOWER: f64 = 3.0;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("daemon") => return cluster::daemon(&arguments[1..]),
        Some("attack") => return attacks::main(&arguments[1..]),
        // `cargo test` calls every test program with this option.
        Some("--list") => return ExitCode::SUCCESS,
        _ => {}
    }
    let options = Options::read(&arguments);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(judge(options))
}

async fn judge(options: Options) -> ExitCode {
    let directory = tempfile::tempdir().expect("a directory");
    let mut cluster = Cluster::start(directory.path());
    let tenants = Tenants::start(&cluster).await;
    let each = options.soak.map_or(SHORT, |soak| soak / (Attack::ALL.len() as u32 + 1));
    let mut rows = vec![phase("before", None, each, &tenants, &cluster).await];
    let mut failures = Vec::new();
    for attack in Attack::ALL {
        let acquisitions = tenants.acquisitions(&cluster).await;
        let attacker = cluster.attack(attack, each, &acquisitions);
        let row = phase(attack.name(), rows.first(), each, &tenants, &cluster).await;
        if let Err(why) = cluster::contained(attacker).await {
            failures.push(format!("{}: {why}", attack.name()));
        }
        failures.extend(tenants.failures().into_iter().map(|why| format!("{}: {why}", attack.name())));
        failures.extend(cluster.ended().into_iter().map(|why| format!("{}: {why}", attack.name())));
        rows.push(row);
    }
    failures.extend(tenants.finish().await);
    if options.soak.is_some() {
        failures.extend(too_slow(&rows));
    }
    for failure in &failures {
        eprintln!("FAILED {failure}");
    }
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The measurements of one attack.
struct Row {
    name: &'static str,
    measured: Measured,
}

async fn phase(
    name: &'static str,
    before: Option<&Row>,
    each: Duration,
    tenants: &Tenants,
    cluster: &Cluster,
) -> Row {
    tenants.begin();
    let mut resident = 0;
    let end = tokio::time::Instant::now() + each;
    while tokio::time::Instant::now() < end {
        resident = resident.max(cluster.resident());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let row = Row { name, measured: tenants.measured() };
    let Measured { entries, half, most, longest } = row.measured;
    let ratio = before.map_or(1.0, |before| most.as_secs_f64() / before.measured.most.as_secs_f64());
    println!(
        "{name:<20} {entries:>7} entries, p50 {half:>10.1?}, p99 {most:>10.1?} ({ratio:.1} x), longest {longest:>10.1?}, {resident:>5} MiB"
    );
    row
}

fn too_slow(rows: &[Row]) -> Vec<String> {
    let before = rows[0].measured.most.as_secs_f64();
    let slow = rows.iter().filter(|row| row.measured.most.as_secs_f64() > MOST_SLOWER * before);
    slow.map(|row| {
        format!("{}: p99 is {:?}, more than {MOST_SLOWER} times that before", row.name, row.measured.most)
    })
    .collect()
}
