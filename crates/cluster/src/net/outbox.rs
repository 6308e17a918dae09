//! What is under way to somebody: bytes that grow while the writer writes, and leave in one write when it is done.

use super::records::{self, Kind};
use std::sync::Mutex;
use tokio::sync::Notify;

/// A buffer larger than this is given back once it is written.
const KEPT: usize = 1024 * 1024;

/// Bytes for one connection, bounded.
#[derive(Debug)]
pub struct Outbox {
    state: Mutex<State>,
    ready: Notify,
}

#[derive(Debug)]
struct State {
    bytes: Vec<u8>,
    /// What the writer has taken and not written.
    in_flight: usize,
    limit: usize,
}

/// Why a record was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// It is longer than any record may be.
    TooLong,
    /// Too much is under way already.
    Full,
}

impl Outbox {
    /// Takes at most `limit` bytes that are not written.
    pub fn new(limit: usize) -> Self {
        let state = State { bytes: Vec::new(), in_flight: 0, limit };
        Self { state: Mutex::new(state), ready: Notify::new() }
    }

    /// From now on takes at most `limit` bytes; what is there stays.
    pub fn set_limit(&self, limit: usize) {
        self.lock().limit = limit;
    }

    /// Appends a record whose bytes `write` appends. Never waits.
    pub fn append(
        &self,
        kind: Kind,
        longest: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), NotTaken> {
        let first = {
            let mut state = self.lock();
            let before = state.bytes.len();
            if before + state.in_flight >= state.limit {
                return Err(NotTaken::Full);
            }
            records::append(&mut state.bytes, kind, longest, write).ok_or(NotTaken::TooLong)?;
            if state.bytes.len() + state.in_flight > state.limit {
                state.bytes.truncate(before);
                return Err(NotTaken::Full);
            }
            before == 0
        };
        // Where something was ready before, the writer has been called and has not come yet.
        if first {
            self.ready.notify_one();
        }
        Ok(())
    }

    /// Waits until something is ready, and takes all of it in exchange for an empty buffer.
    pub async fn take(&self, written: &mut Vec<u8>) {
        written.clear();
        if written.capacity() > KEPT {
            *written = Vec::new();
        }
        loop {
            {
                let mut state = self.lock();
                state.in_flight = 0;
                if !state.bytes.is_empty() {
                    std::mem::swap(&mut state.bytes, written);
                    state.in_flight = written.len();
                    return;
                }
            }
            self.ready.notified().await;
        }
    }

    /// Drops everything that is not written, and the memory.
    pub fn clear(&self) {
        let mut state = self.lock();
        state.in_flight = 0;
        state.bytes = Vec::new();
    }

    /// How many bytes are not written.
    pub fn under_way(&self) -> usize {
        let state = self.lock();
        state.bytes.len() + state.in_flight
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // `write` is a guest. If it panics it leaves a record half written, which the receiver refuses: the connection begins anew.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
