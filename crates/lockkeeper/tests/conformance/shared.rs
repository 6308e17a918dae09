//! Servers that several tests use at the same time, because their start takes long.

use std::ops::Deref;
use std::sync::{Arc, Mutex, Weak, mpsc};

/// Servers that are started for the first of several tests, and end with the last one.
pub struct Shared<T>(Mutex<(Weak<T>, Weak<mpsc::Sender<()>>)>);

/// The use of shared servers by one test.
pub struct Used<T> {
    servers: Arc<T>,
    /// The servers end with the thread that has started them. It waits for the end of this.
    _used: Arc<mpsc::Sender<()>>,
}

impl<T: Send + Sync + 'static> Shared<T> {
    pub const fn new() -> Shared<T> {
        Shared(Mutex::new((Weak::new(), Weak::new())))
    }

    /// The servers, which are started if no other test uses them; `None` if they cannot be started here.
    pub async fn get(&'static self, start: fn() -> Option<T>) -> Option<Used<T>> {
        tokio::task::spawn_blocking(move || {
            let mut shared = self.0.lock().unwrap_or_else(|e| e.into_inner());
            if let (Some(servers), Some(used)) = (shared.0.upgrade(), shared.1.upgrade()) {
                return Some(Used { servers, _used: used });
            }
            let (used, ends) = mpsc::channel::<()>();
            let (started, servers) = mpsc::channel();
            std::thread::spawn(move || {
                started.send(start().map(Arc::new)).unwrap();
                let _ = ends.recv();
            });
            let (servers, used) = (servers.recv().expect("they start")?, Arc::new(used));
            *shared = (Arc::downgrade(&servers), Arc::downgrade(&used));
            Some(Used { servers, _used: used })
        })
        .await
        .expect("they start")
    }
}

impl<T> Deref for Used<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.servers
    }
}
