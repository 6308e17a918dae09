//! [`probe`]: queries all daemons of a cluster once, concurrently, for their readiness.

use super::address::{Address, Daemons};
use super::client::random;
use super::stream::{ClientIdentity, ConnectError, Connected, connect};
use crate::Result;
use crate::engine::EngineUrl;
use lockkeeper_session::protocol::{ClusterLine, DaemonQuery, DaemonReply, FromDaemon, Secret, ToDaemon};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The time limit for the reply of a daemon.
const WITHIN: Duration = Duration::from_secs(1);

/// The reason why a daemon did not report its readiness.
#[derive(Debug, thiserror::Error)]
enum ProbeError {
    #[error("{address} does not answer within {} s", WITHIN.as_secs())]
    Timeout { address: String },
    #[error("the system gives no random numbers: {0}")]
    Random(#[from] getrandom::Error),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("{address} closed the connection")]
    Closed { address: String },
}

/// Queries all daemons that a `lockkeeper://` URL names whether they grant locks now. Returns as soon as one of them
/// does; otherwise, after at most one second, the reasons of all daemons.
pub async fn probe(url: impl Into<EngineUrl>) -> Result<std::result::Result<(), Vec<String>>> {
    let daemons = Arc::new(Daemons::parse(&url.into())?);
    let mut asking = JoinSet::new();
    for address in &daemons.addresses {
        let (daemons, address) = (daemons.clone(), address.clone());
        asking.spawn(async move {
            let query = timeout(WITHIN, ask(&daemons, &address)).await;
            query.unwrap_or_else(|_| Err(ProbeError::Timeout { address: address.to_string() }))
        });
    }
    let mut reasons = Vec::new();
    while let Some(query) = asking.join_next().await {
        match query {
            Ok(Ok(line)) if line.serves => return Ok(Ok(())),
            Ok(Ok(line)) => {
                let unknown = || format!("member {} grants no locks now", line.member);
                reasons.push(line.trouble.clone().unwrap_or_else(unknown));
            }
            Ok(Err(error)) => reasons.push(error.to_string()),
            Err(failed) => reasons.push(failed.to_string()),
        }
    }
    reasons.sort();
    Ok(Err(reasons))
}

async fn ask(daemons: &Daemons, address: &Address) -> std::result::Result<ClusterLine, ProbeError> {
    let identity = ClientIdentity { secret: Secret::new(random()?), for_locks: false };
    let Connected { mut stream, mut frames, .. } = connect(daemons, address, identity, WITHIN).await?;
    let gone = |source| ConnectError::Broken { address: address.to_string(), source };
    let malformed = |source| ConnectError::Malformed { address: address.to_string(), source };
    let mut bytes = Vec::new();
    lockkeeper_session::protocol::encode(&ToDaemon::Query(1, DaemonQuery::Cluster), &mut bytes);
    stream.write_all(&bytes).await.map_err(gone)?;
    stream.flush().await.map_err(gone)?;
    loop {
        while let Some(message) = frames.take().map_err(malformed)? {
            if let FromDaemon::Reply(1, DaemonReply::Cluster(line)) = message {
                return Ok(line);
            }
        }
        if stream.read_buf(&mut frames.arrived).await.map_err(gone)? == 0 {
            return Err(ProbeError::Closed { address: address.to_string() });
        }
    }
}
