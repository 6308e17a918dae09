//! `lockkeeper cluster set`: changes settings of a running cluster.

use crate::commands::engine::OnDaemon;
use crate::commands::operator::query;
use crate::exit::CliError;
use lockkeeper::Error;
use lockkeeper_cluster::ClusterSettings;
use std::process::ExitCode;

/// The reason why settings were rejected.
#[derive(Debug, thiserror::Error)]
enum SettingError {
    /// A setting has no value.
    #[error("`{change}` is not NAME=VALUE, such as lease=2s or algorithm=raymond")]
    NotASetting {
        /// The setting as given.
        change: String,
    },
    /// The cluster rejects new settings.
    #[error(
        "the cluster rejects {changes}: {why}; nothing was changed, and `lockkeeper cluster set` shows the settings"
    )]
    Rejected {
        /// The settings as given.
        changes: String,
        /// The reason that the cluster reports.
        why: String,
    },
}

/// Changes the cluster's settings, and prints them.
pub fn set(changes: &[String], on: OnDaemon) -> Result<ExitCode, CliError> {
    let changes = changes.iter().map(|change| setting(change)).collect::<Result<Vec<_>, _>>();
    let changes = changes.map_err(CliError::usage)?;
    // A value that no cluster can parse is a mistake in the command; the leader rejects a value that its cluster
    // cannot use.
    lockkeeper_cluster::settings::change(&ClusterSettings::default(), &changes).map_err(CliError::usage)?;
    let requested: Vec<String> = changes.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let result = query(on, async |operator| {
        if !changes.is_empty() {
            operator.set(changes).await?;
        }
        operator.cluster().await
    });
    let line = result.map_err(|error| match error {
        CliError::Lock(Error::BadOption(why)) if !requested.is_empty() => {
            CliError::usage(SettingError::Rejected { changes: requested.join(" "), why })
        }
        other => other,
    })?;
    line.settings.iter().for_each(|(name, value)| crate::print_line!("{name}={value}"));
    Ok(ExitCode::SUCCESS)
}

/// Parses a setting as `NAME=VALUE`.
fn setting(change: &str) -> Result<(String, String), SettingError> {
    let (name, value) = change
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| SettingError::NotASetting { change: change.into() })?;
    Ok((name.to_owned(), value.to_owned()))
}
