//! A process of clients, as the bench sees it.

use crate::job::{Figures, Go, Job, Said};
use crate::process::Tether;
use crate::trouble::Trouble;
use serde::Serialize;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// How long a process may take beyond what it was told; only one that is stuck reaches it.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a killed process may take to be gone.
const GONE: Duration = Duration::from_secs(2);

/// A process of clients. Killed when dropped.
pub struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Starts one, and tells it what to do.
    pub async fn start(program: &Path, tether: &Tether, job: &Job) -> Result<Worker, String> {
        let mut words = tether.0.iter();
        let mut command = Command::new(words.next().map_or(program.as_os_str(), |first| first.as_ref()));
        command.args(words);
        if !tether.0.is_empty() {
            command.arg(program);
        }
        command.args(["bench", "client"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        let cannot = |error: std::io::Error| format!("cannot start a client: {error}");
        let mut child = command.spawn().map_err(cannot)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(String::from("a client started without its pipes"));
        };
        let output = BufReader::new(output).lines();
        let mut worker = Worker { child, input: Some(input), output };
        worker.tell(job).await?;
        Ok(worker)
    }

    async fn tell(&mut self, what: &impl Serialize) -> Result<(), String> {
        let line = serde_json::to_string(what).expect("plain data") + "\n";
        let Some(input) = &mut self.input else { return Err(String::from("a client was told to end")) };
        // One that ended before it read this says why on its output.
        let _ = input.write_all(line.as_bytes()).await;
        Ok(())
    }

    async fn hear(&mut self, within: Duration) -> Result<Said, Trouble> {
        let line = match tokio::time::timeout(within, self.output.next_line()).await {
            Ok(Ok(Some(line))) => line,
            Ok(_) => return Err(Trouble::Failed(String::from("a client ended without a word"))),
            Err(_) => return Err(Trouble::Failed(format!("a client said nothing for {within:?}"))),
        };
        match serde_json::from_str(&line) {
            Ok(Said::Failed { why, violation: false }) => Err(Trouble::Failed(why)),
            Ok(Said::Failed { why, violation: true }) => {
                // Whoever called knows which engine and workload this was.
                Err(Trouble::Violated { engine: String::new(), workload: String::new(), what: why })
            }
            Ok(said) => Ok(said),
            Err(error) => Err(Trouble::Failed(format!("a client said what makes no sense: {error}"))),
        }
    }

    /// Returns when its clients are connected and warm.
    pub async fn ready(&mut self) -> Result<(), Trouble> {
        match self.hear(PATIENCE).await? {
            Said::Ready => Ok(()),
            other => Err(Trouble::Failed(format!("a client said {other:?} in place of being ready"))),
        }
    }

    /// Tells it when to begin.
    pub async fn go(&mut self, go: &Go) -> Result<(), String> {
        self.tell(go).await
    }

    /// What it has measured, which takes so long.
    pub async fn done(&mut self, seconds: f64) -> Result<Figures, Trouble> {
        match self.hear(PATIENCE + Duration::from_secs_f64(seconds)).await? {
            Said::Done(figures) => Ok(*figures),
            other => Err(Trouble::Failed(format!("a client said {other:?} in place of its figures"))),
        }
    }

    /// Lets it disconnect and end.
    pub async fn end(mut self) {
        drop(self.input.take());
        // Whether it ends well makes no difference to what it measured.
        let _ = tokio::time::timeout(GONE, self.child.wait()).await;
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.start_kill();
        let began = Instant::now();
        while began.elapsed() < GONE && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Client;
    use crate::workload::Workload;

    /// A process that says this and ends.
    async fn says(what: &str) -> Trouble {
        let tether = Tether(vec!["sh".into(), "-c".into(), format!("echo '{what}'")]);
        let job = Job {
            client: Client::File,
            servers: Vec::new(),
            workload: Workload::W1,
            clients: vec![0],
            warm_up_s: 0.0,
            seconds: 0.0,
            pause_ms: 0,
            oracle: None,
            fenced: false,
            member: None,
        };
        let mut worker = Worker::start(Path::new("client"), &tether, &job).await.unwrap();
        worker.ready().await.unwrap_err()
    }

    #[tokio::test]
    async fn what_a_client_saw_is_told_apart() {
        let violation = says(r#"{"failed":{"why":"two were inside","violation":true}}"#).await;
        assert!(matches!(violation, Trouble::Violated { what, .. } if what == "two were inside"));
        let failure = says(r#"{"failed":{"why":"the server is gone","violation":false}}"#).await;
        assert!(matches!(failure, Trouble::Failed(why) if why == "the server is gone"));
        assert!(says("hello").await.to_string().contains("makes no sense"));
    }
}
