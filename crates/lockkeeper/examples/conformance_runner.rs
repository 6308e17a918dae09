//! The library's runner for the conformance suite of clients (`clients/conformance`): commands in, results out, as JSON
//! lines. The suite starts it; it is of no use alone.

use lockkeeper::{Acquire, DetachedHold, Error, Guard, HoldState, Leadership, Lockkeeper};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;

/// The kind of an error, as the scenarios name it, and its message.
type Failure = (&'static str, String);

/// The clients, the holds and the waiting requests.
#[derive(Default)]
struct Runner {
    clients: Mutex<HashMap<String, Result<Lockkeeper, Failure>>>,
    holds: Mutex<HashMap<String, Arc<Guard>>>,
    /// The holds that were released, and whether they were lost before.
    ended: Mutex<HashMap<String, bool>>,
    cancels: Mutex<HashMap<u64, oneshot::Sender<()>>>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let runner = Arc::new(Runner::default());
    for line in std::io::stdin().lock().lines() {
        let command: Value = serde_json::from_str(&line?)?;
        let runner = runner.clone();
        let (cancel, cancelled) = oneshot::channel();
        lock(&runner.cancels).insert(command["id"].as_u64().unwrap_or(0), cancel);
        runtime.spawn(async move {
            let result = tokio::select! {
                result = runner.run(&command) => result,
                Ok(()) = cancelled => Err(("cancelled", String::from("the request was dropped"))),
            };
            write(&match result {
                Ok(ok) => json!({"id": command["id"], "ok": ok}),
                Err((error, message)) => json!({"id": command["id"], "error": error, "message": message}),
            });
        });
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn write(message: &Value) {
    let mut output = std::io::stdout().lock();
    // The suite has ended if it does not read.
    let _ = writeln!(output, "{message}").and_then(|()| output.flush());
}

fn failure(error: Error) -> Failure {
    let message = error.to_string();
    let kind = match error {
        Error::Lost { .. } => "lost",
        Error::Unauthenticated { .. } | Error::PermissionDenied { .. } => "refused",
        Error::Unavailable { .. } if message.contains("certificate") || message.contains("TLS") => "tls",
        Error::Unavailable { .. } => "unreachable",
        _ => "other",
    };
    (kind, message)
}

fn text<'a>(command: &'a Value, field: &str) -> &'a str {
    command[field].as_str().unwrap_or_default()
}

fn ttl(command: &Value) -> Duration {
    Duration::from_millis(command["ttl_ms"].as_u64().unwrap_or(30_000))
}

fn state_of(guard: &Guard) -> Value {
    // After the loss is reported, a guard is valid for the time that is left to stop. For the suite it is lost then.
    let lost = matches!(guard.state(), HoldState::Lost(_)) || !guard.is_valid();
    let valid_for = if lost { Duration::ZERO } else { guard.valid_for() };
    let valid_for_ms = u64::try_from(valid_for.as_millis()).unwrap_or(u64::MAX);
    let fence = guard.fence().map(|fence| fence.to_string());
    json!({"valid": !lost, "valid_for_ms": valid_for_ms, "lost": lost, "fence": fence})
}

fn detached_state(hold: &DetachedHold) -> Value {
    let left_ms = u64::try_from(hold.left.as_millis()).unwrap_or(u64::MAX);
    let fence = hold.fence.map(|fence| fence.to_string());
    json!({"found": true, "owner": hold.owner, "fence": fence, "left_ms": left_ms})
}

impl Runner {
    async fn run(&self, command: &Value) -> Result<Value, Failure> {
        let hold = text(command, "hold");
        match text(command, "do") {
            "open" => self.open(command).await,
            "acquire" => {
                let guard = self.acquire(command).await?;
                Ok(self.keep(hold, guard))
            }
            "try" => match self.request(command)?.try_acquire().await.map_err(failure)? {
                Some(guard) => {
                    let mut state = self.keep(hold, guard);
                    state["acquired"] = json!(true);
                    Ok(state)
                }
                None => Ok(json!({"acquired": false})),
            },
            "cancel" => {
                let cancel = lock(&self.cancels).remove(&command["request"].as_u64().unwrap_or(0));
                // The request may have ended before.
                let _ = cancel.map(|cancel| cancel.send(()));
                Ok(json!({}))
            }
            "release" => self.release(hold).await,
            "state" => Ok(match self.hold(hold) {
                Some(guard) => state_of(&guard),
                None => json!({"valid": false, "valid_for_ms": 0, "lost": lock(&self.ended).get(hold)}),
            }),
            "lost" => {
                let guard = self.hold(hold).ok_or(("other", String::from("no such hold")))?;
                let loss = guard.lost().await;
                let mut state = state_of(&guard);
                state["reason"] = json!(loss.to_string());
                Ok(state)
            }
            "work" => {
                let guard = self.acquire(command).await?;
                write(&json!({"id": command["id"], "event": "entered"}));
                guard.lost().await;
                guard.release().await.map_err(failure)?;
                Ok(json!({}))
            }
            "observe" => self.observe(command).await,
            "hold_as" => self.hold_as(command).await,
            "detached" => {
                let (client, name) = (self.client(command)?, text(command, "lock"));
                let found = client.detached(name, text(command, "owner")).await.map_err(failure)?;
                Ok(found.as_ref().map_or(json!({"found": false}), detached_state))
            }
            "release_as" => {
                let (client, name) = (self.client(command)?, text(command, "lock"));
                let released = client.release_as(name, text(command, "owner")).await.map_err(failure)?;
                Ok(json!({"released": released}))
            }
            "jump" => {
                lockkeeper::jump_lease_clock(Duration::from_secs(command["seconds"].as_u64().unwrap_or(0)));
                // The state just after it: before the client notices.
                let guard = self.hold(hold).ok_or(("other", String::from("no such hold")))?;
                Ok(state_of(&guard))
            }
            unknown => Err(("other", format!("no such command: {unknown}"))),
        }
    }

    fn hold(&self, name: &str) -> Option<Arc<Guard>> {
        lock(&self.holds).get(name).cloned()
    }

    fn keep(&self, name: &str, guard: Guard) -> Value {
        let state = state_of(&guard);
        lock(&self.holds).insert(name.to_owned(), Arc::new(guard));
        lock(&self.ended).remove(name);
        state
    }

    async fn open(&self, command: &Value) -> Result<Value, Failure> {
        let addresses: Vec<&str> =
            command["native"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let token = command["token"].as_str().map(|token| format!("token:{token}@")).unwrap_or_default();
        let mut url = format!("lockkeeper://{token}{}?in-order", addresses.join(","));
        if command["tls"] == json!(true) {
            for option in ["ca", "cert", "key"] {
                if let Some(file) = command[option].as_str() {
                    url.push_str(&format!("&{option}={file}"));
                }
            }
        }
        let opened = Lockkeeper::open(url.as_str()).await.map_err(failure);
        let result = opened.as_ref().map(|_| json!({})).map_err(Clone::clone);
        lock(&self.clients).insert(text(command, "client").to_owned(), opened);
        result
    }

    /// The client that `open` has made, or the error with which that failed.
    fn client(&self, command: &Value) -> Result<Lockkeeper, Failure> {
        match lock(&self.clients).get(text(command, "client")) {
            Some(client) => client.clone(),
            None => Err(("other", String::from("no such client"))),
        }
    }

    fn request(&self, command: &Value) -> Result<Acquire, Failure> {
        let (client, name) = (self.client(command)?, text(command, "lock"));
        let permits =
            command["permits"].as_u64().and_then(|permits| u32::try_from(permits).ok()).unwrap_or(1);
        Ok(match text(command, "mode") {
            "shared" => client.shared(name),
            "permit" => client.semaphore(name, permits),
            _ => client.mutex(name),
        }
        .ttl(ttl(command)))
    }

    async fn acquire(&self, command: &Value) -> Result<Guard, Failure> {
        let wait = command["wait_ms"].as_u64().map(Duration::from_millis);
        if text(command, "mode") == "leader" {
            let election = self.client(command)?.election(text(command, "lock")).ttl(ttl(command));
            let elected = election.campaign(text(command, "value")).elected().await;
            return elected.map(Leadership::into_guard).map_err(failure);
        }
        let request = self.request(command)?;
        match wait {
            None => request.acquire().await.map_err(failure),
            Some(wait) => {
                let guard = request.acquire_within(wait).await.map_err(failure)?;
                guard.ok_or(("busy", String::from("it was not free in time")))
            }
        }
    }

    async fn hold_as(&self, command: &Value) -> Result<Value, Failure> {
        let lasts = Duration::from_millis(command["for_ms"].as_u64().unwrap_or(0));
        let request = self.request(command)?.hold_as(text(command, "owner"), lasts);
        let hold = match command["wait_ms"].as_u64().map(Duration::from_millis) {
            None => Some(request.acquire().await.map_err(failure)?),
            Some(wait) => request.acquire_within(wait).await.map_err(failure)?,
        };
        hold.as_ref().map(detached_state).ok_or(("busy", String::from("it was not free in time")))
    }

    async fn release(&self, name: &str) -> Result<Value, Failure> {
        let Some(guard) = lock(&self.holds).remove(name) else { return Ok(json!({"held": false})) };
        let guard = Arc::into_inner(guard).ok_or(("other", String::from("the hold is in use")))?;
        let lost = match guard.release().await {
            Ok(()) => false,
            Err(Error::Lost { .. }) => true,
            Err(error) => return Err(failure(error)),
        };
        lock(&self.ended).insert(name.to_owned(), lost);
        Ok(json!({"held": !lost}))
    }

    /// Waits until the leader of an election has the value; without a value: until there is no leader.
    async fn observe(&self, command: &Value) -> Result<Value, Failure> {
        let election = self.client(command)?.election(text(command, "lock"));
        let mut observer = election.observe().await.map_err(failure)?;
        loop {
            let leader = observer.next().await.map_err(failure)?;
            if leader.as_ref().map(|leader| leader.value.as_str()) == command["value"].as_str() {
                let fence = leader.and_then(|leader| leader.fence).map(|fence| fence.to_string());
                return Ok(json!({"value": command["value"], "fence": fence}));
            }
        }
    }
}
