//! A watch on a range of keys, for observers and displays.

use super::keys::Range;
use super::requests::{self, Read};
use super::server::{Server, unavailable};
use crate::Result;
use crate::engine::{BoxFuture, Changes};
use lockkeeper_etcd_api::etcdserverpb::WatchResponse;
use std::sync::Arc;
use std::time::Duration;
use tonic::Streaming;

const RECONNECT: Duration = Duration::from_secs(5);

pub(super) struct EtcdChanges {
    server: Arc<Server>,
    range: Range,
    /// All changes before this revision have been reported.
    next_revision: i64,
    stream: Option<Streaming<WatchResponse>>,
}

impl EtcdChanges {
    pub async fn watch(server: Arc<Server>, range: Range) -> Result<EtcdChanges> {
        let revision = server.scan(range.clone(), Read::Keys).await?.revision;
        Ok(EtcdChanges { server, range, next_revision: revision + 1, stream: None })
    }

    /// Returns true after a change, false if the stream has to be reopened.
    async fn read(&mut self) -> Result<bool> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let request = requests::changes(&self.range, self.next_revision);
                let stream = self.server.watch(RECONNECT, request).await?;
                self.stream.insert(stream)
            }
        };
        match stream.message().await {
            Ok(Some(message)) if message.canceled => {
                self.stream = None;
                match message.compact_revision {
                    0 => return Err(unavailable(format!("the watch ended: {}", message.cancel_reason))),
                    // The events in between were compacted: report a change, and continue from there.
                    compacted => self.next_revision = compacted.max(self.next_revision),
                }
                Ok(true)
            }
            Ok(Some(message)) => {
                if let Some(last) = message.events.iter().filter_map(|event| event.kv.as_ref()).next_back() {
                    self.next_revision = last.mod_revision + 1;
                }
                Ok(!message.events.is_empty())
            }
            Ok(None) | Err(_) => {
                self.stream = None;
                Ok(false)
            }
        }
    }
}

impl Changes for EtcdChanges {
    fn next(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            while !self.read().await? {
                if self.stream.is_none() {
                    // The server may be restarting; opening the next stream is retried for a while.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
            Ok(())
        })
    }
}
