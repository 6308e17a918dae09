//! Permits for building lists: a limited number at a time in total, and for each principal. Further requests wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Permits for building lists.
#[derive(Default)]
pub(crate) struct ListPermits {
    all: OnceLock<Arc<Semaphore>>,
    own: Mutex<HashMap<Arc<str>, Weak<Semaphore>>>,
}

/// The permit to build one list. Dropping it returns the permit.
pub(crate) struct ListPermit {
    _all: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
}

impl ListPermits {
    fn by_principal(&self) -> MutexGuard<'_, HashMap<Arc<str>, Weak<Semaphore>>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, who: &Arc<str>, most: usize) -> Arc<Semaphore> {
        let mut own = self.by_principal();
        if let Some(semaphore) = own.get(who).and_then(Weak::upgrade) {
            return semaphore;
        }
        own.retain(|_, semaphore| semaphore.strong_count() > 0);
        let semaphore = Arc::new(Semaphore::new(most.max(1)));
        own.insert(who.clone(), Arc::downgrade(&semaphore));
        semaphore
    }

    /// Waits for a permit of a principal, which may have `most_own` of all `most` permits at a time. The principal's own
    /// semaphore comes first, so that excess requests of one principal queue behind each other and do not occupy
    /// permits of others.
    pub async fn take(&self, who: &Arc<str>, most_own: usize, most: usize) -> ListPermit {
        let all = self.all.get_or_init(|| Arc::new(Semaphore::new(most.max(1)))).clone();
        let own = self.of(who, most_own).acquire_owned().await.expect("the semaphore is never closed");
        let all = all.acquire_owned().await.expect("the semaphore is never closed");
        ListPermit { _all: all, _own: own }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_stream::StreamExt;
    use tokio_stream::wrappers::ReceiverStream;

    #[tokio::test]
    async fn a_principal_with_many_lists_leaves_turns_to_others() {
        let permits = Arc::new(ListPermits::default());
        let (greedy, other): (Arc<str>, Arc<str>) = (Arc::from("greedy"), Arc::from("other"));
        let (sender, received) = tokio::sync::mpsc::channel(100);
        for _ in 0..50 {
            let (permits, greedy, sender) = (permits.clone(), greedy.clone(), sender.clone());
            tokio::spawn(async move { sender.send(permits.take(&greedy, 2, 4).await).await });
        }
        drop(sender);
        let mut received = ReceiverStream::new(received);
        let held = [received.next().await, received.next().await];
        tokio::task::yield_now().await;
        let others = [permits.take(&other, 2, 4).await, permits.take(&other, 2, 4).await];
        assert!(permits.by_principal().contains_key(&greedy));
        drop((held, others));
        assert_eq!(
            received
                .fold(0, |count, permit| {
                    drop(permit);
                    count + 1
                })
                .await,
            48,
            "every request gets a permit"
        );
    }
}
