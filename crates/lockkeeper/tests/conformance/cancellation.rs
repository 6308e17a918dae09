//! Futures and guards that are dropped at any point.

use crate::backend::{Backend, open, until};
use lockkeeper::{Guard, Lockkeeper};
use std::task::Poll;

/// Polls a future at most this number of times, then drops it. Returns `None` if it was not ready.
pub async fn dropped_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = Box::pin(future);
    let mut left = polls;
    std::future::poll_fn(move |cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Waits until the lock is free and has no waiters.
async fn becomes_free(locks: &Lockkeeper, name: &str) {
    until(|| async { locks.mutex(name).try_acquire().await.unwrap().is_some() }).await;
    if locks.capabilities().waiters {
        until(|| async { locks.inspect(name).await.unwrap().waiters.is_empty() }).await;
    }
}

pub async fn an_acquire_can_be_dropped_at_every_await(backend: &dyn Backend) {
    let locks = open(backend).await;
    for contended in [false, true] {
        let mut polls = 0;
        loop {
            let holder = match contended {
                true => Some(locks.mutex("a").acquire().await.unwrap()),
                false => None,
            };
            // The holder releases while the other client waits, so that later polls are reached too.
            let leaves = tokio::spawn(async move {
                tokio::task::yield_now().await;
                if let Some(holder) = holder {
                    holder.release().await.unwrap();
                }
            });
            let guard: Option<Guard> =
                dropped_after(polls, locks.mutex("a").acquire()).await.map(|guard| guard.unwrap());
            leaves.await.unwrap();
            let done = guard.is_some();
            drop(guard);
            becomes_free(&locks, "a").await;
            // The number of polls depends on timing: continue some way beyond the first success.
            if done && polls > 12 {
                break;
            }
            polls += 1;
        }
    }
}

pub async fn an_aborted_task_gives_its_lock_up(backend: &dyn Backend) {
    let locks = open(backend).await;
    for _ in 0..10 {
        let (inside, entered) = tokio::sync::oneshot::channel();
        let task = tokio::spawn({
            let locks = locks.clone();
            async move {
                let _guard = locks.mutex("a").acquire().await.unwrap();
                inside.send(()).unwrap();
                std::future::pending::<()>().await;
            }
        });
        entered.await.unwrap();
        task.abort();
        becomes_free(&locks, "a").await;
    }
}

pub async fn a_guard_dropped_without_its_runtime_gives_the_lock_up(backend: &dyn Backend) {
    let url = backend.url();
    let acquired = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let guard = runtime.block_on(async {
            let locks = Lockkeeper::open(&url).await.unwrap();
            locks.mutex("a").ttl(std::time::Duration::from_secs(2)).acquire().await.unwrap()
        });
        drop(runtime);
        drop(guard);
    });
    tokio::task::spawn_blocking(move || acquired.join().expect("dropping must not panic")).await.unwrap();
    becomes_free(&open(backend).await, "a").await;
}
