//! Turns for making lists: a few at a time for all principals, and fewer for each of them. Further ones wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Turns for making lists.
#[derive(Default)]
pub(crate) struct Turns {
    all: OnceLock<Arc<Semaphore>>,
    own: Mutex<HashMap<Arc<str>, Weak<Semaphore>>>,
}

/// A turn, until it is dropped.
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

    /// The next turn of a principal, which has `most_own` of `most` at a time. First its own: what one principal asks for too often waits
    /// behind its other requests, and takes no place of the others.
    pub async fn take(&self, who: &Arc<str>, most_own: usize, most: usize) -> Turn {
        let all = self.all.get_or_init(|| Arc::new(Semaphore::new(most.max(1)))).clone();
        let own = self.of(who, most_own).acquire_owned().await.expect("nobody closes it");
        let all = all.acquire_owned().await.expect("nobody closes it");
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
            "each has its turn"
        );
    }
}
