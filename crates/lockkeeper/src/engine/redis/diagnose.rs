//! The diagnosis of a Redis server: its persistence, eviction, replication and clock.

use super::server::Server;
use crate::diagnose::{ClockCheck, Finding, Severity, majority};
use crate::{Error, Result};
use Severity::{Critical, Note, Warning};
use std::collections::HashMap;
use std::time::Duration;

/// The settings of a server, as far as this client may read them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Settings {
    /// From `INFO`, by field.
    info: HashMap<String, String>,
    /// From `CONFIG GET`; `None` if the client may not read it.
    config: Option<HashMap<String, String>>,
}

impl Settings {
    fn info(&self, field: &str) -> Option<&str> {
        self.info.get(field).map(String::as_str)
    }

    fn config(&self, name: &str) -> Option<&str> {
        self.config.as_ref()?.get(name).map(String::as_str)
    }
}

/// The findings about one server.
pub(super) async fn server(server: &Server) -> Result<Vec<Finding>> {
    let mut findings: Vec<Finding> = clock(server).await?.into_iter().collect();
    let info = match server.command::<String>(redis::cmd("INFO").arg("everything")).await {
        Ok(info) => info,
        Err(Error::PermissionDenied { .. }) => {
            findings.push(unreadable("INFO"));
            return Ok(findings);
        }
        Err(error) => return Err(error),
    };
    let mut config = HashMap::new();
    let mut readable = true;
    for name in ["appendonly", "appendfsync", "save", "maxmemory", "maxmemory-policy"] {
        match server.command::<Vec<(String, String)>>(redis::cmd("CONFIG").arg("GET").arg(name)).await {
            Ok(values) => config.extend(values),
            Err(_) => readable = false,
        }
    }
    if !readable {
        findings.push(unreadable("CONFIG GET"));
    }
    let settings = Settings { info: parse_info(&info), config: readable.then_some(config) };
    findings.extend(persistence(&settings));
    findings.extend(eviction(&settings));
    findings.extend(replication(&settings));
    Ok(findings)
}

/// The findings about the independent servers of Redlock. Each names its server.
pub(super) async fn servers(all: &[Server]) -> Result<Vec<Finding>> {
    let mut findings: Vec<Finding> = majority("this Redlock", all.len()).into_iter().collect();
    for one in all {
        let address = one.place();
        match server(one).await {
            // That each server is alone is the idea of Redlock.
            Ok(found) => findings.extend(
                found
                    .into_iter()
                    .filter(|finding| finding.check != "replication")
                    .map(|finding| Finding { found: format!("{address}: {}", finding.found), ..finding }),
            ),
            Err(error) => findings.push(Finding::new(
                Warning,
                "health",
                format!("{address} does not take part: {error}"),
                "repair this server: fewer crashes are survived without it",
            )),
        }
    }
    Ok(findings)
}

fn unreadable(command: &str) -> Finding {
    Finding::new(
        Note,
        "settings",
        format!("this user may not run {command}: some settings were not checked"),
        "run the diagnosis as a user with this right",
    )
}

async fn clock(server: &Server) -> Result<Option<Finding>> {
    let check = ClockCheck::start();
    let (seconds, micros) = match server.command::<(u64, u64)>(&redis::cmd("TIME")).await {
        Ok(time) => time,
        Err(Error::PermissionDenied { .. }) => return Ok(Some(unreadable("TIME"))),
        Err(error) => return Err(error),
    };
    let time = Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros));
    Ok(check.finding(
        time,
        Warning,
        "leases end by the server's clock: if it is corrected by a step forward, a lease ends early, and two clients \
         hold the lock",
    ))
}

/// Parses the lines `field:value` of `INFO`.
fn parse_info(text: &str) -> HashMap<String, String> {
    let field = |line: &str| line.split_once(':').map(|(field, value)| (field.into(), value.trim().into()));
    text.lines().filter_map(field).collect()
}

fn persistence(settings: &Settings) -> Option<Finding> {
    let appends = match (settings.config("appendonly"), settings.info("aof_enabled")) {
        (Some(value), _) => value == "yes",
        (None, Some(value)) => value == "1",
        (None, None) => return None,
    };
    let loses = "all holds, and other clients are granted the locks at once";
    let advice = "set `appendonly yes` and `appendfsync always`, and let resources check fences";
    match (appends, settings.config("appendfsync"), settings.config("save")) {
        (false, _, Some("")) => Some(Finding::new(
            Critical,
            "persistence",
            format!("nothing is stored on disk (`appendonly no`, no `save`): a restart loses {loses}"),
            advice,
        )),
        (false, ..) => Some(Finding::new(
            Critical,
            "persistence",
            format!(
                "only snapshots are stored (`appendonly no`): a crash loses {loses}, if they began after the last one"
            ),
            advice,
        )),
        (true, Some("always"), _) => None,
        (true, Some(when), _) => {
            let time = if when == "no" { "some seconds" } else { "the last second" };
            Some(Finding::new(
                Warning,
                "persistence",
                format!("`appendfsync {when}`: a crash of the machine loses the holds of {time}"),
                "set `appendfsync always`, or let resources check fences",
            ))
        }
        (true, None, _) => None,
    }
}

fn eviction(settings: &Settings) -> Option<Finding> {
    let policy = settings.config("maxmemory-policy").or_else(|| settings.info("maxmemory_policy"))?;
    if policy == "noeviction" {
        return None;
    }
    let limited = settings.config("maxmemory").or_else(|| settings.info("maxmemory")) != Some("0");
    let advice = "set `maxmemory-policy noeviction`, or give the locks a server of their own";
    Some(match limited {
        true => Finding::new(
            Critical,
            "eviction",
            format!(
                "`maxmemory-policy {policy}`: when its memory is full, the server deletes keys, locks among them, \
                     although they are held"
            ),
            advice,
        ),
        false => Finding::new(
            Warning,
            "eviction",
            format!(
                "`maxmemory-policy {policy}`: once `maxmemory` is set, the server deletes locks that are held; now \
                     its memory has no limit"
            ),
            advice,
        ),
    })
}

fn replication(settings: &Settings) -> Option<Finding> {
    let replicas: u64 = settings.info("connected_slaves")?.parse().ok()?;
    Some(match replicas {
        0 => Finding::new(
            Warning,
            "replication",
            "this is one server without replicas: while it is down, no lock can be acquired, and holds end with their \
             leases",
            "accept it, or use a system that decides by majority: lockkeeper, etcd, ZooKeeper",
        ),
        _ => Finding::new(
            Warning,
            "replication",
            format!(
                "{replicas} replicas follow asynchronously: a failover can lose a hold that was just granted, and a \
                     second client is then granted the lock"
            ),
            "let resources check fences",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(config: &[(&str, &str)], info: &str) -> Settings {
        let config = config.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Settings { info: parse_info(info), config: Some(config) }
    }

    #[test]
    fn persistence_is_judged_by_what_a_crash_loses() {
        let severity =
            |config: &[(&str, &str)]| persistence(&settings(config, "")).map(|finding| finding.severity);
        assert_eq!(
            severity(&[("appendonly", "no"), ("appendfsync", "always"), ("save", "")]),
            Some(Critical)
        );
        assert_eq!(severity(&[("appendonly", "no"), ("save", "60 1")]), Some(Critical));
        assert_eq!(severity(&[("appendonly", "yes"), ("appendfsync", "everysec")]), Some(Warning));
        assert_eq!(severity(&[("appendonly", "yes"), ("appendfsync", "no")]), Some(Warning));
        assert_eq!(severity(&[("appendonly", "yes"), ("appendfsync", "always"), ("save", "")]), None);
        // Without `CONFIG GET`.
        let info = Settings { info: parse_info("aof_enabled:0\r\n"), config: None };
        assert_eq!(persistence(&info).map(|finding| finding.severity), Some(Critical));
    }

    #[test]
    fn eviction_matters_once_memory_is_limited() {
        let severity = |policy: &str, maxmemory: &str| {
            let config = [("maxmemory-policy", policy), ("maxmemory", maxmemory)];
            eviction(&settings(&config, "")).map(|finding| finding.severity)
        };
        assert_eq!(severity("noeviction", "100"), None);
        assert_eq!(severity("allkeys-lru", "100"), Some(Critical));
        assert_eq!(severity("volatile-ttl", "0"), Some(Warning));
        let info =
            Settings { info: parse_info("maxmemory:100\r\nmaxmemory_policy:allkeys-lfu\r\n"), config: None };
        assert_eq!(eviction(&info).map(|finding| finding.severity), Some(Critical));
    }
}
