//! Other processes: this test binary, started again, which executes commands from its standard input.

use crate::backend::{PAUSE, is_of_a_failover, open_url};
use crate::oracle::Log;
use lockkeeper::{Error, Fence, Guard, Lockkeeper};
use std::io::{BufRead, Write};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// A process that holds and waits for locks. Killed with SIGKILL when dropped.
pub struct Worker {
    pub child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    pub fn start(url: &str) -> Worker {
        Self::start_with(url, &[])
    }

    /// Starts a worker with additional variables in its environment.
    pub fn start_with(url: &str, environment: &[(&str, &str)]) -> Worker {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "worker::worker_process", "--ignored", "--nocapture"])
            .env("LOCKKEEPER_TEST_WORKER", url)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        Worker { child, stdin, stdout }
    }

    /// Whether a process with these variables in its environment acquires a lock.
    #[allow(dead_code, reason = "for engines with credentials")]
    pub async fn acquires(url: &str, environment: &[(&str, &str)]) -> bool {
        let mut worker = Self::start_with(url, environment);
        let acquired = worker.ask("lock 2000 a").await.starts_with("held ");
        if acquired {
            worker.ask("unlock").await;
        }
        acquired
    }

    /// Sends a command.
    pub async fn send(&mut self, command: &str) {
        self.stdin.write_all(format!("{command}\n").as_bytes()).await.unwrap();
    }

    /// The next reply; libtest's own lines are skipped.
    pub async fn answer(&mut self) -> String {
        while let Some(line) = self.stdout.next_line().await.unwrap() {
            if let Some((_, answer)) = line.split_once("@@ ") {
                return answer.to_owned();
            }
        }
        panic!("the worker ended");
    }

    pub async fn ask(&mut self, command: &str) -> String {
        self.send(command).await;
        self.answer().await
    }

    pub fn pid(&self) -> u32 {
        self.child.id().expect("not waited for yet")
    }

    /// Sends a signal by name, with kill(1).
    pub async fn signal(&self, signal: &str) {
        let status =
            Command::new("kill").args(["-s", signal, &self.pid().to_string()]).status().await.unwrap();
        assert!(status.success());
    }

    /// Closes its input, and waits until it has ended by itself.
    pub async fn end(mut self) {
        drop(self.stdin);
        assert!(self.child.wait().await.unwrap().success());
    }

    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

fn reply(answer: &str) {
    // libtest may have left its own line unfinished; `@@ ` marks the beginning of ours.
    println!("@@ {answer}");
    std::io::stdout().flush().unwrap();
}

/// The body of the other process; it is of use only if a [`Worker`] started it.
#[test]
#[ignore = "started by other tests as a process of its own"]
fn worker_process() {
    let url = std::env::var("LOCKKEEPER_TEST_WORKER").expect("only workers run this");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let locks = runtime.block_on(open_url(&url));
    let mut guards: Vec<Guard> = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["lock", ttl_ms, name] => {
                let request = locks.mutex(name).ttl(Duration::from_millis(ttl_ms.parse().unwrap()));
                let guard = runtime.block_on(request.acquire()).unwrap();
                reply(&format!("held {}", guard.fence().map_or(0, Fence::get)));
                guards.push(guard);
            }
            ["keep", ttl_ms, at_least_ms, name] => {
                let [ttl, at_least] =
                    [ttl_ms, at_least_ms].map(|ms| Duration::from_millis(ms.parse().unwrap()));
                let request = locks.mutex(name).ttl(ttl).at_least(at_least);
                guards.push(runtime.block_on(request.acquire()).unwrap());
                reply("held");
            }
            ["hold", owner, lasts_ms, name] => {
                let lasts = Duration::from_millis(lasts_ms.parse().unwrap());
                let hold = runtime.block_on(locks.mutex(name).hold_as(owner, lasts).acquire()).unwrap();
                reply(&format!("held {}", hold.fence.map_or(0, Fence::get)));
            }
            ["permit", ttl_ms, of, name] => {
                let request = locks.semaphore(name, of.parse().unwrap());
                let request = request.ttl(Duration::from_millis(ttl_ms.parse().unwrap()));
                guards.push(runtime.block_on(request.acquire()).unwrap());
                reply("held");
            }
            ["valid"] => reply(&format!("valid {}", guards[0].is_valid())),
            ["lost"] => reply(&format!("lost {}", runtime.block_on(guards[0].lost()))),
            ["unlock"] => {
                runtime.block_on(guards.pop().expect("a lock is held").release()).unwrap();
                reply("unlocked");
            }
            [how @ ("loop" | "persist"), ttl_ms, tasks, rounds, linger_us, name, log] => {
                let ttl = Duration::from_millis(ttl_ms.parse().unwrap());
                let linger = Duration::from_micros(linger_us.parse().unwrap());
                runtime.block_on(enter_often(
                    &locks,
                    how == "persist",
                    ttl,
                    tasks.parse().unwrap(),
                    rounds.parse().unwrap(),
                    linger,
                    name,
                    log,
                ));
                reply("done");
            }
            _ => panic!("unknown command {line:?}"),
        }
    }
}

/// Tasks that enter one lock again and again. If they `persist`, they log their requests, and repeat those that failed
/// because a server died.
#[allow(clippy::too_many_arguments, reason = "the words of one command")]
async fn enter_often(
    locks: &Lockkeeper,
    persist: bool,
    ttl: Duration,
    tasks: usize,
    rounds: usize,
    linger: Duration,
    name: &str,
    log: &str,
) {
    let excused = move |error: &Error| persist && is_of_a_failover(error);
    let spawned: Vec<_> = (0..tasks)
        .map(|task| {
            let (locks, name, log) = (locks.clone(), name.to_owned(), log.to_owned());
            tokio::spawn(async move {
                let (mut log, who) = (Log::open(log.as_ref()), format!("{}.{task}", std::process::id()));
                let mut entries = 0;
                while entries < rounds {
                    if persist {
                        log.write("request", &who, None);
                    }
                    let guard = match locks.mutex(name.as_str()).ttl(ttl).acquire().await {
                        Ok(guard) => guard,
                        Err(error) if excused(&error) => {
                            tokio::time::sleep(PAUSE).await;
                            continue;
                        }
                        Err(error) => panic!("{error}"),
                    };
                    entries += 1;
                    if hold(&guard, linger, &mut log, &who).await {
                        // On a machine too slow to renew in time, the hold can be lost between its last line and its
                        // release.
                        match guard.release().await {
                            Ok(()) | Err(Error::Lost { .. }) => {}
                            Err(error) if excused(&error) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            })
        })
        .collect();
    for task in spawned {
        task.await.unwrap();
    }
}

/// Writes lines while it holds the lock, and the last one before the release; or, on a machine too slow to renew in
/// time, a line about the loss: then the line before may have been written too late.
pub async fn hold(guard: &Guard, linger: Duration, log: &mut Log, who: &str) -> bool {
    for event in ["enter", "inside", "inside", "inside", "exit"] {
        if event == "inside" {
            tokio::time::sleep(linger).await;
        }
        log.write(event, who, guard.fence());
        if !guard.is_valid() {
            log.write("lost", who, guard.fence());
            return false;
        }
    }
    true
}
