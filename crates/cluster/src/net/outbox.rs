//! What is under way to somebody: bytes that grow while others are written, and leave in one write after them.
//!
//! One pen writes to a connection, and lies here while nobody writes. Whoever has said something takes it, if it is here, and writes at once
//! what the connection takes without waiting: no other task has to be woken for that. What is left, and what others say who need not hurry, is written by
//! the connection's own task. Whoever has the pen goes on while there is something to write, so whoever does not find it need not wait.

use super::counters::Counters;
use super::records::{self, Kind};
use std::io;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use tokio::io::AsyncWrite;
use tokio::sync::Notify;

/// A buffer larger than this is given back once it is written.
const KEPT: usize = 1024 * 1024;

/// The writing half of a connection.
pub type Pen = Box<dyn AsyncWrite + Send + Unpin>;

/// Bytes for one connection, bounded.
#[derive(Default)]
pub struct Outbox {
    state: Mutex<State>,
    ready: Notify,
    /// Whether something was written lately.
    said: AtomicBool,
}

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    /// The last buffer that was written, empty.
    spare: Vec<u8>,
    limit: usize,
    /// What somebody has taken and not written.
    in_flight: usize,
    /// Something was written that the connection has not passed on.
    unflushed: bool,
    /// Why nothing more can be written to the connection.
    broken: Option<io::Error>,
    pen: Option<Pen>,
    /// Counts the connections: what was taken for one is not for the next.
    connection: u64,
}

/// Bytes to be written, and the means.
pub struct Taken {
    pub pen: Pen,
    pub bytes: Vec<u8>,
    connection: u64,
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
        Self { state: Mutex::new(State { limit, ..State::default() }), ..Self::default() }
    }

    /// There is a connection: takes at most `limit` bytes while it lasts, and `later` after it. What is there stays.
    pub fn connect(&self, pen: Pen, limit: usize, later: usize) -> Connected<'_> {
        let mut state = self.lock();
        (state.pen, state.limit) = (Some(pen), limit);
        Connected { outbox: self, later }
    }

    /// Appends a record whose bytes `write` appends, and calls the writer. Never waits.
    pub fn append(
        &self,
        kind: Kind,
        longest: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), NotTaken> {
        // Where something was ready before, somebody will write it.
        if self.put(kind, longest, write)? {
            self.ready.notify_one();
        }
        Ok(())
    }

    /// Appends a record that [`flush`](Self::flush) is going to write. Gives whether nothing was there before.
    pub fn put(
        &self,
        kind: Kind,
        longest: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<bool, NotTaken> {
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
        Ok(before == 0)
    }

    /// Writes what was put down, as far as the connection takes it at once; the writer is called for the rest.
    pub fn flush(&self, counters: &Counters) {
        while let Some(mut taken) = self.take() {
            let (written, flushed) = match taken.write_now() {
                Ok(written) => written,
                Err(error) => return self.broke(taken, error),
            };
            counters.bytes_out.add(written);
            counters.writes.count();
            taken.bytes.drain(..written);
            if !self.give_back(taken, flushed) {
                return self.ready.notify_one();
            }
        }
    }

    /// Waits until something is ready and nobody else writes, and takes all of it.
    pub async fn taken(&self) -> io::Result<Taken> {
        loop {
            if let Some(error) = self.lock().broken.take() {
                return Err(error);
            }
            match self.take() {
                Some(taken) => return Ok(taken),
                None => self.ready.notified().await,
            }
        }
    }

    /// The connection cannot be written to, and how much of it was is not known: its task has to end it.
    fn broke(&self, taken: Taken, error: io::Error) {
        let mut state = self.lock();
        if state.connection == taken.connection {
            state.broken = Some(error);
            self.ready.notify_one();
        }
    }

    fn take(&self) -> Option<Taken> {
        let mut state = self.lock();
        if state.bytes.is_empty() && !state.unflushed {
            return None;
        }
        let pen = state.pen.take()?;
        let spare = std::mem::take(&mut state.spare);
        let bytes = std::mem::replace(&mut state.bytes, spare);
        state.in_flight = bytes.len();
        Some(Taken { pen, bytes, connection: state.connection })
    }

    /// Puts the pen back, with the bytes that are not written; gives whether everything is.
    pub fn give_back(&self, taken: Taken, flushed: bool) -> bool {
        let Taken { pen, mut bytes, connection } = taken;
        let written = bytes.is_empty() && flushed;
        self.said.store(true, Ordering::Relaxed);
        let mut state = self.lock();
        if state.connection != connection {
            return true;
        }
        state.pen = Some(pen);
        state.in_flight = 0;
        state.unflushed = !flushed;
        if bytes.is_empty() {
            state.spare = if bytes.capacity() > KEPT { Vec::new() } else { bytes };
        } else {
            bytes.append(&mut state.bytes);
            state.bytes = bytes;
        }
        written
    }

    /// Whether something was written since the last time.
    pub fn has_said(&self) -> bool {
        self.said.swap(false, Ordering::Relaxed)
    }

    /// How many bytes are not written, and one if others are not passed on.
    pub fn under_way(&self) -> usize {
        let state = self.lock();
        state.bytes.len() + state.in_flight + usize::from(state.unflushed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // `write` is a guest. If it panics it leaves a record half written, which the receiver refuses: the connection begins anew.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Taken {
    /// Writes as much as goes without waiting; gives how much, and whether the connection has passed everything on.
    fn write_now(&mut self) -> io::Result<(usize, bool)> {
        // Whatever has to wait, the writer waits for: it asks again.
        let mut nobody = Context::from_waker(Waker::noop());
        let mut written = 0;
        while written < self.bytes.len() {
            match Pin::new(&mut self.pen).poll_write(&mut nobody, &self.bytes[written..])? {
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(more) => written += more,
                Poll::Pending => return Ok((written, false)),
            }
        }
        let flushed = Pin::new(&mut self.pen).poll_flush(&mut nobody)?;
        Ok((written, flushed.is_ready()))
    }
}

/// A connection for as long as it lasts. What is not written then is dropped, with the memory.
pub struct Connected<'a> {
    outbox: &'a Outbox,
    later: usize,
}

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        let mut state = self.outbox.lock();
        *state = State { limit: self.later, connection: state.connection + 1, ..State::default() };
    }
}
