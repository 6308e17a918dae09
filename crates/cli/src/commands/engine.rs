//! The choice of an engine: `--on`, then `LOCKKEEPER_URL`, then the configuration file, then this machine. Commands
//! for operators (`members`, `status`, `release`, `leave`) use the same sources, but only URLs of daemons.

use lockkeeper::cluster::Operator;
use lockkeeper::{EngineUrl, Error, Lockkeeper};
use std::path::PathBuf;

/// The environment variables for the URL of the engine, and for the token of a daemon.
pub const URL: &str = "LOCKKEEPER_URL";
pub const TOKEN: &str = "LOCKKEEPER_TOKEN";
/// Set for the commands of `lockkeeper run` if [`URL`] was removed from their environment.
pub const URL_REMOVED: &str = "LOCKKEEPER_URL_REMOVED";

/// The option shared by all commands that use locks.
#[derive(clap::Args, Default)]
pub struct On {
    /// Engine to use [default: $LOCKKEEPER_URL, then `url` in the configuration file, then file:]
    #[arg(long = "on", value_name = "URL", global = true)]
    url: Option<EngineUrl>,
}

/// The option shared by all commands for operators, which need a daemon.
#[derive(clap::Args)]
pub struct OnDaemon {
    /// Daemon to use [default: $LOCKKEEPER_URL, then `url` in the configuration file, then lockkeeper:]
    #[arg(long = "on", value_name = "URL")]
    url: Option<EngineUrl>,
}

impl OnDaemon {
    /// The option for a command that works on any engine, too.
    pub fn any_engine(self) -> On {
        On { url: self.url }
    }

    /// Connects to the daemon on this machine, unless a URL is configured.
    ///
    /// A configured URL of another engine is an error and not a reason to fall back to the local daemon: an operator
    /// who means another system must not stop this daemon or revoke its locks.
    pub async fn open(self) -> Result<Operator, Error> {
        let configured = On { url: self.url }.configured()?;
        let Some((url, source)) = configured else { return Operator::open("lockkeeper:").await };
        Operator::open(&url).await.map_err(|error| match error {
            Error::BadUrl { url, reason } => {
                Error::BadUrl { url, reason: format!("{reason} (from {source})") }
            }
            other => other,
        })
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    url: Option<String>,
}

impl On {
    pub async fn open(self) -> Result<Lockkeeper, Error> {
        Lockkeeper::open(self.resolve()?).await
    }

    /// The URL of the engine.
    pub fn resolve(self) -> Result<EngineUrl, Error> {
        Ok(self.configured()?.map_or_else(|| "file:".into(), |(url, _)| url))
    }

    /// The URL from the command line, the environment or the configuration file, and its source.
    fn configured(self) -> Result<Option<(EngineUrl, &'static str)>, Error> {
        if let Some(url) = self.url {
            return Ok(Some((url, "--on")));
        }
        if let Some(url) = std::env::var(URL).ok().filter(|url| !url.is_empty()) {
            return Ok(Some((url.into(), URL)));
        }
        if std::env::var_os(URL_REMOVED).is_some() {
            return Err(Error::BadOption(format!(
                "`lockkeeper run` has removed {URL} from this environment, and another engine would have other locks: \
                 name one with --on, or give --keep-credentials to the outer `lockkeeper run`"
            )));
        }
        Ok(from_config()?.map(|url| (url.into(), "the configuration file")))
    }
}

/// The path of the configuration file: `$XDG_CONFIG_HOME/lockkeeper/config.toml`, or below `~/.config`.
fn config_path() -> Option<PathBuf> {
    Some(user_directory("XDG_CONFIG_HOME", ".config")?.join("lockkeeper/config.toml"))
}

/// The user's directory for one purpose: the value of the variable, or a directory at home.
pub fn user_directory(variable: &str, at_home: &str) -> Option<PathBuf> {
    let absolute = |variable| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(variable).or_else(|| Some(absolute("HOME")?.join(at_home)))
}

fn from_config() -> Result<Option<String>, Error> {
    let Some(path) = config_path() else { return Ok(None) };
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Error::Io { action: "read", path, source }),
    };
    match toml::from_str::<Config>(&text) {
        Ok(config) => Ok(config.url),
        Err(e) => Err(Error::BadOption(format!("{}: {}", path.display(), lockkeeper::redact(e.message())))),
    }
}

/// Runs a future on a current-thread runtime: it starts quickly, and one thread is enough to wait for locks and
/// children.
pub fn block_on<T>(future: impl Future<Output = T>) -> std::io::Result<T> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future))
}
