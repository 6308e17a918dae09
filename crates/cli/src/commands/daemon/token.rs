//! `lockkeeper token`: creates a token, and its entry in the file of tokens.

use crate::exit::{self, CliError};
use crate::file_error::FileError;
use std::fmt::Write;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// Create a token, and the entry in a daemon's file of tokens that defines its permissions
///
/// The token itself is printed once and not stored: the file has only its hash. Daemons reload a changed file by
/// themselves.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  lockkeeper token ci --acquire ci/ --observe '' --file tokens.toml")]
pub struct Token {
    /// The name of the token in logs
    name: String,
    /// Prefixes of the names of locks that it may acquire; '' is every lock
    #[arg(long, value_name = "PREFIX")]
    acquire: Vec<String>,
    /// Prefixes of the names of locks that it may inspect
    #[arg(long, value_name = "PREFIX")]
    observe: Vec<String>,
    /// Prefixes of the names of locks that it may revoke; '' also permits leaving and removing members
    #[arg(long, value_name = "PREFIX")]
    admin: Vec<String>,
    /// The validity in days [default: forever]
    #[arg(long)]
    days: Option<u32>,
    /// Append the entry to this file instead of printing it
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Token {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        exit::code(self.create())
    }

    fn create(self) -> Result<ExitCode, CliError> {
        if self.acquire.is_empty() && self.observe.is_empty() && self.admin.is_empty() {
            return Err(CliError::usage(TokenError::PermitsNothing));
        }
        let (secret, line) = make(&self.name, &self.acquire, &self.observe, &self.admin, self.days)
            .map_err(CliError::cannot_run)?;
        match &self.file {
            None => crate::print_line!("{line}"),
            Some(path) => {
                use std::os::unix::fs::OpenOptionsExt;
                let file = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path);
                let written = file.and_then(|mut file| file.write_all(format!("\n{line}").as_bytes()));
                written.map_err(|error| CliError::io(FileError::write(path)(error)))?;
            }
        }
        eprintln!("The token, which is not stored anywhere (LOCKKEEPER_TOKEN, or `Authorization: Bearer`):");
        crate::print_line!("{secret}");
        Ok(ExitCode::SUCCESS)
    }
}

/// The reason why a token cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// No permission was given.
    #[error("the token would permit nothing: add --acquire, --observe or --admin with a prefix, '' for all")]
    PermitsNothing,
    /// The system's random number generator failed.
    #[error("the system gives no random numbers: {0}")]
    Random(#[source] getrandom::Error),
}

/// Creates a token, and its entry for the file of tokens.
pub(super) fn make(
    name: &str,
    acquire: &[String],
    observe: &[String],
    admin: &[String],
    days: Option<u32>,
) -> Result<(String, String), TokenError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(TokenError::Random)?;
    let hex = |bytes: &[u8]| {
        bytes.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    };
    let secret = format!("lk_{}", hex(&bytes));
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let list =
        |prefixes: &[String]| prefixes.iter().map(|prefix| quoted(prefix)).collect::<Vec<_>>().join(", ");
    let mut line = format!(
        "[[token]]\nname = {}\nsha256 = \"{}\"\n",
        quoted(name),
        hex(&lockkeeper_daemon::hash(&secret))
    );
    for (word, prefixes) in [("acquire", acquire), ("observe", observe), ("admin", admin)] {
        if !prefixes.is_empty() {
            let _ = writeln!(line, "{word} = [{}]", list(prefixes));
        }
    }
    if let Some(days) = days {
        let at = SystemTime::now() + Duration::from_secs(u64::from(days) * 24 * 60 * 60);
        let _ = writeln!(line, "expires = {}", lockkeeper_daemon::date(at));
    }
    Ok((secret, line))
}
