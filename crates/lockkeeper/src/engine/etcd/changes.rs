//! Watching a range of keys for the eyes of people and observers.

use super::keys::Range;
use super::server::{Read, Server, unavailable};
use crate::Result;
use crate::engine::{BoxFuture, Changes};
use etcd_client::{WatchOptions, WatchStream};
use std::sync::Arc;
use std::time::Duration;

const RECONNECT: Duration = Duration::from_secs(5);

pub(super) struct EtcdChanges {
    server: Arc<Server>,
    range: Range,
    /// All changes before this revision were told.
    next_revision: i64,
    stream: Option<WatchStream>,
}

impl EtcdChanges {
    pub async fn watch(server: Arc<Server>, range: Range) -> Result<EtcdChanges> {
        let revision = server.scan(range.clone(), Read::Keys).await?.revision;
        Ok(EtcdChanges { server, range, next_revision: revision + 1, stream: None })
    }

    /// True when something happened, false if the stream has to be made anew.
    async fn read(&mut self) -> Result<bool> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let options = WatchOptions::new()
                    .with_range(self.range.end.as_str())
                    .with_start_revision(self.next_revision);
                let stream = self.server.watch(RECONNECT, &self.range.start, options).await?;
                self.stream.insert(stream)
            }
        };
        match stream.message().await {
            Ok(Some(message)) if message.canceled() => {
                self.stream = None;
                match message.compact_revision() {
                    0 => return Err(unavailable(format!("the watch ended: {}", message.cancel_reason()))),
                    // What happened in between is forgotten: look again, and go on from there.
                    compacted => self.next_revision = compacted.max(self.next_revision),
                }
                Ok(true)
            }
            Ok(Some(message)) => {
                if let Some(last) = message.events().iter().filter_map(|event| event.kv()).next_back() {
                    self.next_revision = last.mod_revision() + 1;
                }
                Ok(!message.events().is_empty())
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
                    // The server may be restarting; opening the next stream is tried for a while.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
            Ok(())
        })
    }
}
