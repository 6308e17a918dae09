//! `lockkeeper token`: a new token, and the line that lets it in.

use crate::exit;
use std::fmt::Write;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// Make a token, and the line in a daemon's file of tokens that says what it allows
///
/// The token itself is printed once and kept nowhere: the file has its hash alone. Daemons read a changed file by themselves.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  lockkeeper token ci --acquire ci/ --observe '' --file tokens.toml")]
pub struct Token {
    /// What to call it in logs
    name: String,
    /// Locks that it may hold, by the beginning of their names; '' is every lock
    #[arg(long, value_name = "PREFIX")]
    acquire: Vec<String>,
    /// Locks that it may look at
    #[arg(long, value_name = "PREFIX")]
    observe: Vec<String>,
    /// Locks that it may take away from others; '' also for leaving and removing members
    #[arg(long, value_name = "PREFIX")]
    admin: Vec<String>,
    /// For how many days it is valid [default: for ever]
    #[arg(long)]
    days: Option<u32>,
    /// Append the line to this file instead of printing it
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Token {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        if self.acquire.is_empty() && self.observe.is_empty() && self.admin.is_empty() {
            let error = "a token that allows nothing is of no use: say --acquire, --observe or --admin with a prefix, '' for every lock";
            return exit::complain(exit::USAGE, &error);
        }
        let (secret, line) = match make(&self.name, &self.acquire, &self.observe, &self.admin, self.days) {
            Ok(made) => made,
            Err(error) => return exit::complain(exit::CANNOT_RUN, &error),
        };
        match &self.file {
            None => crate::say!("{line}"),
            Some(path) => {
                use std::os::unix::fs::OpenOptionsExt;
                let file = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path);
                let written = file.and_then(|mut file| file.write_all(format!("\n{line}").as_bytes()));
                if let Err(error) = written {
                    return exit::complain(exit::IO, &format!("cannot write {}: {error}", path.display()));
                }
            }
        }
        eprintln!("The token, which is not kept anywhere (LOCKKEEPER_TOKEN, or `Authorization: Bearer`):");
        crate::say!("{secret}");
        ExitCode::SUCCESS
    }
}

/// A token, and its line.
pub(super) fn make(
    name: &str,
    acquire: &[String],
    observe: &[String],
    admin: &[String],
    days: Option<u32>,
) -> Result<(String, String), String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| format!("the system gives no random numbers: {error}"))?;
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
