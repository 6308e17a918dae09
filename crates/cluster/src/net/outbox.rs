//! The buffer of outgoing bytes of a connection: it grows while earlier bytes are being written, and leaves in one
//! write after them.
//!
//! A connection has one writer ([`Writer`]), which is stored here while it is not in use. A sender that finds it takes it
//! and writes inline as much as the connection accepts without blocking, so that no task has to be woken. The
//! connection's own task writes the rest, and records that are not urgent. The task or thread that has the writer
//! continues while bytes are pending, so a sender that does not find it need not wait.

use super::counters::Counters;
use super::records::{self, RecordHeader};
use std::io;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use tokio::io::AsyncWrite;
use tokio::sync::Notify;

/// A buffer larger than this is freed once it has been written.
const LARGEST_KEPT_BUFFER: usize = 1024 * 1024;

/// The write half of a connection.
pub type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// The bounded buffer of one connection.
#[derive(Default)]
pub struct Outbox {
    state: Mutex<State>,
    ready: Notify,
    /// Whether something was written since the last check.
    wrote: AtomicBool,
}

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    /// The buffer of the last write, emptied for reuse.
    spare: Vec<u8>,
    limit: usize,
    /// Number of bytes that have been taken and are not written.
    in_flight: usize,
    /// Whether bytes were written that the connection has not flushed.
    unflushed: bool,
    /// The error after which nothing more can be written to the connection.
    broken: Option<io::Error>,
    writer: Option<Writer>,
    /// Number of the connection. Bytes that were taken for one connection must not be returned to the next.
    connection: u64,
}

/// Bytes to write, together with the writer.
pub struct TakenBytes {
    pub writer: Writer,
    pub bytes: Vec<u8>,
    connection: u64,
}

/// The reason why a record was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// The record is longer than the limit.
    TooLong,
    /// The buffer is full.
    Full,
}

impl Outbox {
    /// Creates a buffer of at most `limit` unwritten bytes.
    pub fn new(limit: usize) -> Self {
        Self { state: Mutex::new(State { limit, ..State::default() }), ..Self::default() }
    }

    /// Attaches a connection. The limit is `limit` bytes while it lasts, and `later` afterwards. Pending bytes remain.
    pub fn connect(&self, writer: Writer, limit: usize, later: usize) -> Connected<'_> {
        let mut state = self.lock();
        (state.writer, state.limit) = (Some(writer), limit);
        Connected { outbox: self, later }
    }

    /// Appends a record, whose bytes `write` appends, and wakes the writing task. Never blocks.
    pub fn append(
        &self,
        kind: RecordHeader,
        longest: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), NotTaken> {
        // If bytes were pending before, their writer (a flush or the writing task) writes this record as well.
        if self.put(kind, longest, write)? {
            self.ready.notify_one();
        }
        Ok(())
    }

    /// Appends a record that the next [`flush`](Self::flush) writes. Returns whether the buffer was empty before.
    pub fn put(
        &self,
        kind: RecordHeader,
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

    /// Writes pending bytes, as far as the connection accepts them without blocking. Wakes the writing task for the
    /// rest.
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

    /// Waits until bytes are pending and the writer is available, and takes both.
    pub async fn taken(&self) -> io::Result<TakenBytes> {
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

    /// Marks the connection as broken. It is not known how much was written, so the connection's task has to close it.
    fn broke(&self, taken: TakenBytes, error: io::Error) {
        let mut state = self.lock();
        if state.connection == taken.connection {
            state.broken = Some(error);
            self.ready.notify_one();
        }
    }

    fn take(&self) -> Option<TakenBytes> {
        let mut state = self.lock();
        if state.bytes.is_empty() && !state.unflushed {
            return None;
        }
        let writer = state.writer.take()?;
        let spare = std::mem::take(&mut state.spare);
        let bytes = std::mem::replace(&mut state.bytes, spare);
        state.in_flight = bytes.len();
        Some(TakenBytes { writer, bytes, connection: state.connection })
    }

    /// Puts the writer and the unwritten bytes back. Returns `true` if everything has been written.
    pub fn give_back(&self, taken: TakenBytes, flushed: bool) -> bool {
        let TakenBytes { writer, mut bytes, connection } = taken;
        let written = bytes.is_empty() && flushed;
        self.wrote.store(true, Ordering::Relaxed);
        let mut state = self.lock();
        if state.connection != connection {
            return true;
        }
        state.writer = Some(writer);
        state.in_flight = 0;
        state.unflushed = !flushed;
        if bytes.is_empty() {
            state.spare = if bytes.capacity() > LARGEST_KEPT_BUFFER { Vec::new() } else { bytes };
        } else {
            bytes.append(&mut state.bytes);
            state.bytes = bytes;
        }
        written
    }

    /// Whether something was written since the last call.
    pub fn has_written(&self) -> bool {
        self.wrote.swap(false, Ordering::Relaxed)
    }

    /// Number of unwritten bytes, plus one if written bytes have not been flushed.
    pub fn pending_bytes(&self) -> usize {
        let state = self.lock();
        state.bytes.len() + state.in_flight + usize::from(state.unflushed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // If `write`, the closure of a caller, panics, the record is incomplete. The receiver rejects it and closes the
        // connection, so ignoring the poison is safe.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl TakenBytes {
    /// Writes as much as possible without blocking. Returns the number of bytes, and whether the connection has flushed
    /// all of them.
    fn write_now(&mut self) -> io::Result<(usize, bool)> {
        // No waker is needed: if the connection is not ready, the writing task polls it again.
        let mut context = Context::from_waker(Waker::noop());
        let mut written = 0;
        while written < self.bytes.len() {
            match Pin::new(&mut self.writer).poll_write(&mut context, &self.bytes[written..])? {
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(more) => written += more,
                Poll::Pending => return Ok((written, false)),
            }
        }
        let flushed = Pin::new(&mut self.writer).poll_flush(&mut context)?;
        Ok((written, flushed.is_ready()))
    }
}

/// An attached connection. Dropping it discards the unwritten bytes and frees their memory.
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
