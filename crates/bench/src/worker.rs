//! A process of clients, seen from the bench.

use crate::error::BenchError;
use crate::job::{Figures, Job, StartSignal, WorkerMessage};
use crate::process::PdeathsigPrefix;
use serde::Serialize;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Time that a process may take beyond its job; only a stuck process reaches it.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Time that a killed process may take to end.
const GONE: Duration = Duration::from_secs(2);

/// A process of clients. Killed when dropped.
pub struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

/// The reason why a process of clients has no measurements.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The process cannot be started.
    #[error("cannot start a client: {0}")]
    CannotStart(#[source] std::io::Error),
    /// The process has no input or no output.
    #[error("a client started without its pipes")]
    NoPipes,
    /// A message is to be sent to a process whose input is closed already.
    #[error("the input of this client is closed already")]
    InputClosed,
    /// The process ended without a message.
    #[error("a client ended without a message")]
    Ended,
    /// The process sent no message in time.
    #[error("a client sent nothing for {within:?}")]
    Silent {
        /// The time that it had.
        within: Duration,
    },
    /// The process reports that it failed.
    #[error("{why}")]
    Failed {
        /// The reason that it reports.
        why: String,
    },
    /// The process sent a line that is not a message.
    #[error("a client sent an invalid message: {0}")]
    InvalidMessage(#[source] serde_json::Error),
    /// The process sent another message than that it is ready.
    #[error("a client sent {message:?} instead of being ready")]
    NotReady {
        /// The message that the process sent.
        message: WorkerMessage,
    },
    /// The process sent another message than its measurements.
    #[error("a client sent {message:?} instead of its figures")]
    NoFigures {
        /// The message that the process sent.
        message: WorkerMessage,
    },
}

impl Worker {
    /// Starts a process and sends it its job.
    pub async fn start(
        program: &Path,
        pdeathsig_prefix: &PdeathsigPrefix,
        job: &Job,
    ) -> Result<Worker, WorkerError> {
        let mut words = pdeathsig_prefix.0.iter();
        let mut command = Command::new(words.next().map_or(program.as_os_str(), |first| first.as_ref()));
        command.args(words);
        if !pdeathsig_prefix.0.is_empty() {
            command.arg(program);
        }
        command.args(["bench", "client"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        let mut child = command.spawn().map_err(WorkerError::CannotStart)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(WorkerError::NoPipes);
        };
        let output = BufReader::new(output).lines();
        let mut worker = Worker { child, input: Some(input), output };
        worker.send(job).await?;
        Ok(worker)
    }

    async fn send(&mut self, what: &impl Serialize) -> Result<(), WorkerError> {
        let line = serde_json::to_string(what).expect("plain data") + "\n";
        let Some(input) = &mut self.input else {
            return Err(WorkerError::InputClosed);
        };
        // A process that ended before it read this reports the reason on its output.
        let _ = input.write_all(line.as_bytes()).await;
        Ok(())
    }

    async fn receive(&mut self, within: Duration) -> Result<WorkerMessage, BenchError> {
        let line = match tokio::time::timeout(within, self.output.next_line()).await {
            Ok(Ok(Some(line))) => line,
            Ok(_) => return Err(WorkerError::Ended.into()),
            Err(_) => return Err(WorkerError::Silent { within }.into()),
        };
        match serde_json::from_str(&line) {
            Ok(WorkerMessage::Failed { why, violation: false }) => Err(WorkerError::Failed { why }.into()),
            Ok(WorkerMessage::Failed { why, violation: true }) => {
                // The caller adds the engine and workload.
                Err(BenchError::Violated { engine: String::new(), workload: String::new(), what: why })
            }
            Ok(message) => Ok(message),
            Err(error) => Err(WorkerError::InvalidMessage(error).into()),
        }
    }

    /// Waits until its clients are connected and warmed up.
    pub async fn ready(&mut self) -> Result<(), BenchError> {
        match self.receive(TIMEOUT).await? {
            WorkerMessage::Ready => Ok(()),
            message => Err(WorkerError::NotReady { message }.into()),
        }
    }

    /// Sends it the start time.
    pub async fn go(&mut self, go: &StartSignal) -> Result<(), WorkerError> {
        self.send(go).await
    }

    /// Waits for its measurements, which take `seconds`.
    pub async fn done(&mut self, seconds: f64) -> Result<Figures, BenchError> {
        match self.receive(TIMEOUT + Duration::from_secs_f64(seconds)).await? {
            WorkerMessage::Done(figures) => Ok(*figures),
            message => Err(WorkerError::NoFigures { message }.into()),
        }
    }

    /// Lets it disconnect and end.
    pub async fn end(mut self) {
        drop(self.input.take());
        // Its exit status has no influence on its measurements.
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

    /// The error for a process that writes this line and ends.
    async fn error_of(what: &str) -> BenchError {
        let pdeathsig_prefix = PdeathsigPrefix(vec!["sh".into(), "-c".into(), format!("echo '{what}'")]);
        let job = Job {
            client: Client::File,
            servers: Vec::new(),
            workload: Workload::W1,
            clients: vec![0],
            warm_up_s: 0.0,
            seconds: 0.0,
            pause_ms: 0,
            exclusion_folder: None,
            fenced: false,
            member: None,
        };
        let mut worker = Worker::start(Path::new("client"), &pdeathsig_prefix, &job).await.unwrap();
        worker.ready().await.unwrap_err()
    }

    #[tokio::test]
    async fn violations_failures_and_invalid_messages_are_distinguished() {
        let violation = error_of(r#"{"failed":{"why":"two were inside","violation":true}}"#).await;
        assert!(matches!(violation, BenchError::Violated { what, .. } if what == "two were inside"));
        let failure = error_of(r#"{"failed":{"why":"the server is gone","violation":false}}"#).await;
        assert!(matches!(
            failure,
            BenchError::Worker(WorkerError::Failed { why }) if why == "the server is gone"
        ));
        let invalid = error_of("hello").await;
        assert!(matches!(invalid, BenchError::Worker(WorkerError::InvalidMessage(_))), "{invalid:?}");
        let early = error_of(
            r#"{"done":{"turns":[],"acquire":[],"release":[],"cpu_s":0,"checked":0,"messages":null}}"#,
        );
        assert!(matches!(
            early.await,
            BenchError::Worker(WorkerError::NotReady { message: WorkerMessage::Done(_) })
        ));
    }
}
