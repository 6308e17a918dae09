//! Diagnosis: the risks of using a server for locks, each with advice.

use crate::engine::{self, EngineUrl};
use crate::{Error, Lockkeeper, Result};
use serde::Serialize;
use std::cmp::Ordering;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time limit for each operation of the trial: a lock of the diagnosis has no other users.
const TRIAL: Duration = Duration::from_secs(20);

/// A difference between two wall clocks from which on it is a finding.
pub(crate) const SKEW: Duration = Duration::from_secs(1);

/// How severe a [`Finding`] is. The greatest is the most severe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Severity {
    /// Worth knowing; no risk.
    Note,
    /// A failure of one machine, or a mistake of an operator, ends the service or all holds; or exclusion then depends
    /// on the resource's check of fences.
    Warning,
    /// Two clients can hold a lock at once in ordinary operation, or no client can use the locks.
    Critical,
}

impl Severity {
    /// Whether a finding of this severity is a risk.
    pub fn is_risk(self) -> bool {
        self > Severity::Note
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        })
    }
}

/// One result of a diagnosis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The severity.
    pub severity: Severity,
    /// The name of the check, which does not change between versions: `eviction`, `clock`.
    pub check: &'static str,
    /// The fact that was found, and its effect on locks.
    pub found: String,
    /// What to do about it. Empty for a note that needs nothing.
    pub advice: String,
}

impl Finding {
    pub(crate) fn new(
        severity: Severity,
        check: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Finding {
        Finding { severity, check, found: found.into(), advice: advice.into() }
    }
}

/// The findings about one server, from [`Lockkeeper::diagnose`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The engine's name, as in its URL.
    pub engine: &'static str,
    /// The findings, most severe first.
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    fn new(engine: &'static str, mut findings: Vec<Finding>) -> Diagnosis {
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        Diagnosis { engine, findings }
    }

    /// Whether a finding is a risk.
    pub fn has_risks(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity.is_risk())
    }
}

impl Lockkeeper {
    /// Checks what is risky about using this server for locks: permissions, by a trial with a lock of its own;
    /// persistence, replication and health, as far as the server shows them to this client; the clocks.
    ///
    /// The locks of other clients are not changed. A server that shows its settings to administrators only is diagnosed
    /// without them, with a note.
    pub async fn diagnose(&self) -> Result<Diagnosis> {
        let mut findings = self.trial().await;
        match self.dyn_engine().diagnose().await {
            Ok(found) => findings.extend(found),
            Err(error) => findings.push(refused("settings", "the server's settings cannot be read", &error)),
        }
        Ok(Diagnosis::new(self.engine(), findings))
    }

    /// Acquires, lists and releases a lock that only this diagnosis uses.
    async fn trial(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let name = format!("lockkeeper-doctor/{}-{nanos:x}", std::process::id());
        let request = self.mutex(&name).unfenced().metadata("purpose", "lockkeeper doctor");
        match tokio::time::timeout(TRIAL, request.acquire()).await {
            Ok(Ok(guard)) => {
                if let Err(error) = guard.release().await {
                    findings.push(refused("release", "a lock that was granted cannot be released", &error));
                }
            }
            Ok(Err(error)) => findings.push(refused("acquire", "a free lock cannot be acquired", &error)),
            Err(_) => findings.push(Finding::new(
                Severity::Critical,
                "acquire",
                format!("a free lock was not granted within {} s", TRIAL.as_secs()),
                "look at the server's load and health; other clients wait as long",
            )),
        }
        match tokio::time::timeout(TRIAL, self.list()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => findings.push(refused("list", "the locks cannot be listed", &error)),
            Err(_) => findings.push(Finding::new(
                Severity::Warning,
                "list",
                format!("the locks were not listed within {} s", TRIAL.as_secs()),
                "look at the server's load and health",
            )),
        }
        if self.capabilities().fence {
            return findings;
        }
        findings.push(Finding::new(
            Severity::Warning,
            "fences",
            "this engine has no fences: a paused holder whose lease has expired can write after the next one",
            "use it for work that may run twice; otherwise use an engine with fences",
        ));
        findings
    }
}

/// Opens the engine that a URL names, and [diagnoses](Lockkeeper::diagnose) it.
///
/// A server that rejects this client, or that cannot keep locks at all, is a finding here, while
/// [`Lockkeeper::open`] fails. A wrong URL and a server that cannot be reached are errors.
pub async fn diagnose(url: impl Into<EngineUrl>) -> Result<Diagnosis> {
    let url = url.into();
    match Lockkeeper::open(url.clone()).await {
        Ok(locks) => locks.diagnose().await,
        Err(error) => {
            let engine = url.scheme().and_then(engine::name_of_scheme).unwrap_or("unknown");
            match is_finding(&error) {
                true => Ok(Diagnosis::new(engine, vec![refused("open", "no lock can be used", &error)])),
                false => Err(error),
            }
        }
    }
}

/// Whether a failure to open an engine is a property of a server that was reached.
fn is_finding(error: &Error) -> bool {
    #[cfg(feature = "postgres")]
    if engine::postgres::is_shared_pool(error) {
        return true;
    }
    !error.is_usage() && !matches!(error, Error::Unavailable { .. } | Error::Io { .. })
}

/// The finding for an operation that the server rejected.
fn refused(check: &'static str, what: &str, error: &Error) -> Finding {
    let advice = match error {
        Error::PermissionDenied { .. } => "give this user the right that the message names",
        Error::Unauthenticated { .. } => {
            "name a user that the server knows, with its password, token or certificate"
        }
        Error::LimitExceeded { .. } => "raise the limit, or use fewer clients",
        _ => "correct what the message names",
    };
    Finding::new(Severity::Critical, check, format!("{what}: {error}"), advice)
}

/// A reading of this machine's wall clock, before a server is asked for its own.
#[allow(dead_code, reason = "for the engines with servers")]
#[derive(Clone, Copy)]
pub(crate) struct ClockCheck {
    before: Duration,
}

#[allow(dead_code, reason = "for the engines with servers")]
impl ClockCheck {
    pub fn start() -> ClockCheck {
        ClockCheck { before: wall_clock() }
    }

    /// The difference between the server's clock and this machine's, as far as it is certain: the server read its clock
    /// between `start` and now.
    pub fn difference(self, server: Duration) -> (Duration, Ordering) {
        difference(self.before, server, wall_clock())
    }

    /// The finding if the clocks differ by more than [`SKEW`]. `effect` is what this means for the locks of this engine.
    pub fn finding(self, server: Duration, severity: Severity, effect: &str) -> Option<Finding> {
        let (skew, order) = self.difference(server);
        let side = if order == Ordering::Greater { "ahead of" } else { "behind" };
        (skew >= SKEW).then(|| {
            let found =
                format!("the server's clock is {:.1} s {side} this machine's; {effect}", skew.as_secs_f64());
            Finding::new(
                severity,
                "clock",
                found,
                "synchronize both clocks with NTP, by slewing rather than by steps",
            )
        })
    }
}

fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn difference(before: Duration, server: Duration, after: Duration) -> (Duration, Ordering) {
    if server < before {
        (before - server, Ordering::Less)
    } else if server > after {
        (server.saturating_sub(after), Ordering::Greater)
    } else {
        (Duration::ZERO, Ordering::Equal)
    }
}

/// The finding about the number of voting servers of a system that decides by majority.
#[allow(dead_code, reason = "for the engines that decide by majority")]
pub(crate) fn majority(what: &str, voters: usize) -> Option<Finding> {
    let advice = "use three servers on three machines; five survive two crashes";
    match voters {
        0 => None,
        1 => Some(Finding::new(
            Severity::Warning,
            "size",
            format!(
                "{what} has one server: its crash ends the service, and the loss of its disk all holds and fences"
            ),
            advice,
        )),
        2 => Some(Finding::new(
            Severity::Warning,
            "size",
            format!(
                "{what} has two servers: the crash of either ends the service, so two fail more often than one"
            ),
            advice,
        )),
        even if even % 2 == 0 => Some(Finding::new(
            Severity::Note,
            "size",
            format!("{what} has {even} servers, and survives as many crashes as {}", even - 1),
            "an odd number costs less",
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_ordered_by_severity_and_notes_are_no_risks() {
        let finding = |severity, check| Finding::new(severity, check, "found", "advice");
        let note = Diagnosis::new("file", vec![finding(Severity::Note, "a")]);
        assert!(!note.has_risks());
        let all = vec![
            finding(Severity::Note, "a"),
            finding(Severity::Critical, "b"),
            finding(Severity::Warning, "c"),
            finding(Severity::Critical, "d"),
        ];
        let diagnosis = Diagnosis::new("redis", all);
        let checks: Vec<&str> = diagnosis.findings.iter().map(|finding| finding.check).collect();
        assert_eq!(checks, ["b", "d", "c", "a"]);
        assert!(diagnosis.has_risks());
        let json = serde_json::to_value(&diagnosis).unwrap();
        assert_eq!(json["findings"][0]["severity"], "critical");
    }

    #[test]
    fn a_clock_differs_only_by_what_the_round_trip_does_not_explain() {
        let seconds = Duration::from_secs;
        assert_eq!(difference(seconds(10), seconds(11), seconds(12)), (Duration::ZERO, Ordering::Equal));
        assert_eq!(difference(seconds(10), seconds(5), seconds(12)), (seconds(5), Ordering::Less));
        assert_eq!(difference(seconds(10), seconds(17), seconds(12)), (seconds(5), Ordering::Greater));
    }

    #[test]
    fn one_two_and_even_numbers_of_servers_are_reported() {
        let severity = |voters| majority("it", voters).map(|finding| finding.severity);
        assert_eq!(
            [1, 2, 3, 4, 5].map(severity),
            [Some(Severity::Warning), Some(Severity::Warning), None, Some(Severity::Note), None]
        );
    }
}
