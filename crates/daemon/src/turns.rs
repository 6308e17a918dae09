//! Turns for building lists: a limited number at a time in total, and for each principal. Further requests wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Turns for building lists.
#[derive(Default)]
pub(crate) struct Turns {
    all: OnceLock<Arc<Semaphore>>,
    own: Mutex<HashMap<Arc<str>, Weak<Semaphore>>>,
}

/// A turn. Dropping it ends the turn.
pub(crate) struct Turn {
    _all: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
}

impl Turns {
    fn own(&self) -> MutexGuard<'_, HashMap<Arc<str>, Weak<Semaphore>>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, who: &Arc<str>, most: usize) -> Arc<Semaphore> {
        let mut own = self.own();
        if let Some(semaphore) = own.get(who).and_then(Weak::upgrade) {
            return semaphore;
        }
        own.retain(|_, semaphore| semaphore.strong_count() > 0);
        let semaphore = Arc::new(Semaphore::new(most.max(1)));
        own.insert(who.clone(), Arc::downgrade(&semaphore));
        semaphore
    }

    /// Waits for a turn of a principal, which may have `most_own` of all `most` turns at a time. The principal's own
    /// semaphore comes first, so that excess requests of one principal queue behind each other and do not occupy
    /// turns of others.
    pub async fn take(&self, who: &Arc<str>, most_own: usize, most: usize) -> Turn {
        let all = self.all.get_or_init(|| Arc::new(Semaphore::new(most.max(1)))).clone();
        let own = self.of(who, most_own).acquire_owned().await.expect("the semaphore is never closed");
        let all = all.acquire_owned().await.expect("the semaphore is never closed");
        Turn { _all: all, _own: own }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_stream::StreamExt;
    use tokio_stream::wrappers::ReceiverStream;

    #[tokio::test]
    async fn a_principal_with_many_lists_leaves_turns_to_others() {
        let turns = Arc::new(Turns::default());
        let (greedy, other): (Arc<str>, Arc<str>) = (Arc::from("greedy"), Arc::from("other"));
        let (taken, told) = tokio::sync::mpsc::channel(100);
        for _ in 0..50 {
            let (turns, greedy, taken) = (turns.clone(), greedy.clone(), taken.clone());
            tokio::spawn(async move { taken.send(turns.take(&greedy, 2, 4).await).await });
        }
        drop(taken);
        let mut told = ReceiverStream::new(told);
        let held = [told.next().await, told.next().await];
        tokio::task::yield_now().await;
        let others = [turns.take(&other, 2, 4).await, turns.take(&other, 2, 4).await];
        assert!(turns.own().contains_key(&greedy));
        drop((held, others));
        assert_eq!(
            told.fold(0, |count, turn| {
                drop(turn);
                count + 1
            })
            .await,
            48,
            "every request gets a turn"
        );
    }
}
