//! One member and its clients, as a process.

use lockkeeper_cluster::{Config, HoldGuard, JoinToken, Member, MemberId, Times};
use lockkeeper_testbed::history::{HistoryWriter, HoldEvent, HoldRecord, LockMode, now_ns};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Number of locks that the clients share.
const LOCKS: u64 = 3;
/// Number of clients of each member.
const CLIENTS: u64 = 3;

struct Clients {
    member: Member,
    id: u32,
    holds: AtomicU64,
    writer: Mutex<HistoryWriter>,
}

impl Clients {
    fn log(&self, hold: u64, guard: &HoldGuard, what: HoldEvent) {
        let (who, lock, fence) = (format!("M{}", self.id), guard.name().into(), guard.fence());
        let line = HoldRecord { who, hold, lock, how: LockMode::Exclusive, fence, at_ns: now_ns(), what };
        self.writer.lock().expect("no holder of this lock panics").write(&line);
    }

    /// Records that the client is inside, if it is. The clock is read first, so that the recorded time is never too
    /// long.
    fn record_entry(&self, hold: u64, guard: &HoldGuard) -> bool {
        let until_ns = now_ns() + u64::try_from(guard.valid_for().as_nanos()).unwrap_or(0);
        let valid = guard.is_valid();
        if valid {
            self.log(hold, guard, HoldEvent::Inside { until_ns });
        }
        valid
    }

    /// Acquires and releases the shared locks in random order.
    async fn take_turns(&self, mut random: u64) {
        loop {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let lock = format!("shared-{}", (random >> 33) % LOCKS);
            let asked = self.member.mutex(lock).acquire_within(Duration::from_secs(20)).await;
            let Ok(Some(guard)) = asked else { continue };
            let hold = self.holds.fetch_add(1, Ordering::Relaxed);
            let mut valid = self.record_entry(hold, &guard);
            tokio::time::sleep(Duration::from_millis((random >> 40) % 12)).await;
            valid = valid && self.record_entry(hold, &guard);
            self.log(hold, &guard, if valid { HoldEvent::Leaves } else { HoldEvent::Lost });
            drop(guard);
            tokio::time::sleep(Duration::from_millis((random >> 50) % 5)).await;
        }
    }

    /// Holds one lock for as long as possible.
    async fn hold_on(&self) {
        loop {
            let Ok(guard) = self.member.mutex(format!("held-by-{}", self.id)).acquire().await else {
                continue;
            };
            let hold = self.holds.fetch_add(1, Ordering::Relaxed);
            loop {
                if !self.record_entry(hold, &guard) {
                    break;
                }
                let soon = tokio::time::sleep(Duration::from_millis(50));
                tokio::select! {
                    _ = guard.lost() => break,
                    () = soon => {}
                }
            }
            self.log(hold, &guard, HoldEvent::Lost);
        }
    }
}

/// `node ID LISTEN ADVERTISE DATA RECORDS SEED ID=ADDRESS...`
pub fn main(arguments: &[String]) -> ExitCode {
    let [id, listen, advertise, data, history, seed, members @ ..] = arguments else {
        return ExitCode::FAILURE;
    };
    let id: u32 = id.parse().expect("a number");
    let seed: u64 = seed.parse().expect("a number");
    let listen: SocketAddr = listen.parse().expect("an address");
    let mut config = Config::new(MemberId(id), listen, PathBuf::from(data));
    for member in members {
        let (id, address) = member.split_once('=').expect("ID=ADDRESS");
        config.first_members.insert(MemberId(id.parse().expect("a number")), address.into());
    }
    config.advertise = Some(advertise.clone());
    // The token is the same for all processes of all runs: no other process is on these hosts.
    let join_token = JoinToken::parse(&format!("lkjoin_{}", "7e".repeat(32)));
    config.join_token = Some(join_token.expect("a token"));
    config.insecure_no_tls = true;
    // Longer than the defaults, since many processes share few cores here.
    config.times = Times::default().times(2);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let member = match Member::start(config).await {
            Ok(member) => member,
            Err(error) => {
                eprintln!("M{id}: {error}");
                return ExitCode::FAILURE;
            }
        };
        let writer = Mutex::new(HistoryWriter::create(&PathBuf::from(history)));
        let clients = Arc::new(Clients { member, id, holds: AtomicU64::new(0), writer });
        for client in 0..CLIENTS {
            let clients = clients.clone();
            tokio::spawn(async move { clients.take_turns(seed.wrapping_mul(31).wrapping_add(client)).await });
        }
        tokio::spawn({
            let clients = clients.clone();
            async move { clients.hold_on().await }
        });
        // Runs until the process is killed, or until the member stops, for instance because of a full disk.
        let mut changes = clients.member.status_changes();
        loop {
            if let Some(why) = clients.member.status().stopped {
                eprintln!("M{id} stops: {why}");
                return ExitCode::from(3);
            }
            if changes.changed().await.is_err() {
                return ExitCode::FAILURE;
            }
        }
    })
}
