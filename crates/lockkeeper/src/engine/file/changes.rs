//! A watch on queues: inotify reports edits, the holders' FIFOs report deaths.

use super::queue::Key;
use super::store::Store;
use crate::engine::{BoxFuture, Changes};
use crate::{Error, Result};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A watch on one lock, or on all locks.
pub(super) struct FileChanges {
    store: Arc<Store>,
    key: Option<Key>,
    inotify: AsyncFd<OwnedFd>,
}

impl FileChanges {
    pub fn watch(store: &Arc<Store>, key: Option<Key>) -> Result<FileChanges> {
        let locks = store.files.path("locks");
        let open = || -> std::io::Result<AsyncFd<OwnedFd>> {
            let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            inotify::add_watch(&fd, &locks, WatchFlags::MOVED_TO | WatchFlags::DELETE)?;
            super::live::register(fd, Interest::READABLE)
        };
        let inotify = open().map_err(|e| Error::io("watch", &locks, e))?;
        Ok(FileChanges { store: store.clone(), key, inotify })
    }

    /// Resolves on the first edit of a watched queue.
    async fn edited(&self) -> std::io::Result<()> {
        loop {
            let mut ready = self.inotify.readable().await?;
            let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
            let mut reader = inotify::Reader::new(self.inotify.get_ref(), &mut buffer);
            let mut ours = false;
            loop {
                match reader.next() {
                    Ok(event) => {
                        // An event without a name: the event queue overflowed, so any queue may have changed.
                        let name = event.file_name().map(|name| name.to_bytes());
                        ours |= match (&self.key, name) {
                            (Some(key), Some(name)) => key.0.as_bytes() == name,
                            _ => true,
                        };
                    }
                    Err(rustix::io::Errno::AGAIN) => break ready.clear_ready(),
                    Err(rustix::io::Errno::INTR) => {}
                    Err(e) => return Err(e.into()),
                }
            }
            if ours {
                return Ok(());
            }
        }
    }

    /// Resolves when one of the current holders dies.
    async fn holder_died(&self) -> Result<()> {
        let mut watches = Vec::new();
        let keys = match &self.key {
            Some(key) => vec![key.clone()],
            None => self.store.edit().await?.keys()?,
        };
        for key in keys {
            for entry in self.store.load(&key, "")?.entries.iter().filter(|entry| entry.held.is_some()) {
                match self.store.watch(entry)? {
                    Some(watch) => watches.push(Box::pin(watch.fired())),
                    None => return Ok(()),
                }
            }
        }
        let died = std::future::poll_fn(|cx| {
            let ready = watches.iter_mut().map(|watch| watch.as_mut().poll(cx)).find(|poll| poll.is_ready());
            ready.unwrap_or(std::task::Poll::Pending)
        });
        died.await.map_err(|e| Error::io("watch", self.store.files.path("live"), e))
    }
}

impl Changes for FileChanges {
    fn next(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            tokio::select! {
                edited = self.edited() => {
                    edited.map_err(|e| Error::io("watch", self.store.files.path("locks"), e))
                }
                died = self.holder_died() => died,
            }
        })
    }
}
