//! The cost of idle sessions for a daemon: processor time while nothing happens, and the latency of another session's
//! requests meanwhile.
//!
//! ```sh
//! cargo bench -p lockkeeper-daemon --bench idle_sessions              # 0, 10,000 and 100,000 sessions
//! cargo bench -p lockkeeper-daemon --bench idle_sessions -- 1000      # another number
//! ```
//!
//! Each session holds a lock, and its hold is watched, as the daemon does for an HTTP session. The member is alone in
//! its cluster and in this process, so that only its own ticks and its clients take its time. A request waits for the
//! step in progress: the longest request bounds the longest step.

use lockkeeper_cluster::{Config, Member};
use std::time::{Duration, Instant};

/// Duration of the measurement for each number of sessions.
const FOR: Duration = Duration::from_secs(10);

fn main() {
    let given = std::env::args().skip(1).find_map(|word| word.parse().ok());
    let counts = given.map_or(vec![0, 10_000, 100_000], |count: usize| vec![count]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    println!("sessions  core used  acquire and release: median     99 %  longest   lost");
    for count in counts {
        runtime.block_on(measure(count));
    }
}

async fn measure(count: usize) {
    let data = tempfile::tempdir().unwrap();
    let member = Member::start(Config::alone(data.path())).await.unwrap();
    member.ready().await.unwrap();
    let mut guards = Vec::with_capacity(count);
    for number in 0..count {
        let owner = member.new_owner();
        let guard = owner.mutex(format!("idle/{number}")).acquire().await.unwrap();
        let watched = tokio::spawn(guard.losing());
        guards.push((owner, guard, watched));
    }
    let (began, used) = (Instant::now(), processor_time());
    let mut times = Vec::new();
    while began.elapsed() < FOR {
        let asked = Instant::now();
        member.mutex("busy").acquire().await.unwrap().release().await.unwrap();
        times.push(asked.elapsed());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let used = (processor_time() - used) / began.elapsed().as_secs_f64();
    let lost = guards.iter().filter(|(_, guard, _)| !guard.is_valid()).count();
    times.sort();
    let us = |place: usize| format!("{} µs", times[place.min(times.len() - 1)].as_micros());
    println!(
        "{count:8}  {:7.1} % {:>28} {:>10} {:>9} {lost:6}",
        used * 100.0,
        us(times.len() / 2),
        us(times.len() * 99 / 100),
        us(times.len())
    );
    for (_, guard, watched) in guards {
        watched.abort();
        drop(guard);
    }
    member.stop().await;
}

/// Processor time that this process has used, in seconds.
fn processor_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // Fields after the process name, which is in parentheses: user and system time are the 14th and the 15th of all.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: f64 = fields[11..13].iter().map(|field| field.parse::<f64>().unwrap()).sum();
    ticks / 100.0
}
