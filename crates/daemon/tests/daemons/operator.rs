//! The operator, as a process: changes the settings of the whole cluster.

use lockkeeper::cluster::Operator;
use std::process::ExitCode;
use std::time::Duration;

/// The name of the operator's token.
pub const NAME: &str = "operator";

/// Timeout for one daemon to carry out the change.
const ANSWER: Duration = Duration::from_secs(60);

/// `operator URL NAME=VALUE…`: ends once the daemon has a view with these settings.
pub fn main(arguments: &[String]) -> ExitCode {
    let Some((url, changes)) = arguments.split_first() else { return ExitCode::FAILURE };
    let pair = |change: &String| change.split_once('=').map(|(name, value)| (name.into(), value.into()));
    let Some(changes) = changes.iter().map(pair).collect::<Option<Vec<(String, String)>>>() else {
        return ExitCode::FAILURE;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let changed = runtime.expect("a runtime").block_on(async {
        let change = async { Operator::open(url).await?.set(changes).await };
        tokio::time::timeout(ANSWER, change).await
    });
    match changed {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            eprintln!("the settings do not change: {error}");
            ExitCode::from(3)
        }
        Err(_) => {
            eprintln!("the settings do not change within {ANSWER:?}");
            ExitCode::from(4)
        }
    }
}
