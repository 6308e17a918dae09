//! Long lists as chunks: a report or a start may list a million locks, which no frame can carry.
//!
//! The receiver requests the list from a certain chunk on and gets up to `WINDOW` chunks. A request for the next
//! ones acknowledges those before; a repeated request recovers lost ones. A list is complete once all of its chunks
//! have arrived. Chunks are reference-counted, so no step copies a list.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Number of chunks that are sent in answer to one request.
pub(crate) const WINDOW: u32 = 16;

/// The most chunks of a list: a longer one is invalid.
const MOST_CHUNKS: u32 = 1 << 16;

/// One chunk of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk<T> {
    /// The number of the chunk, counted from 0.
    pub number: u32,
    /// The number of chunks of the list: at least one, also for an empty list.
    pub of: u32,
    /// The items of this chunk.
    pub items: Arc<[T]>,
}

/// An immutable list in chunks. Clones share the items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkedList<T> {
    chunks: Vec<Arc<[T]>>,
    len: usize,
}

impl<T> Default for ChunkedList<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }
}

impl<T> ChunkedList<T> {
    /// A list of these chunks.
    pub(crate) fn of(chunks: Vec<Arc<[T]>>) -> Self {
        let len = chunks.iter().map(|chunk| chunk.len()).sum();
        Self { chunks, len }
    }

    /// Number of items in all chunks.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the list has no items.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Iterates over all items, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// The number of chunks.
    pub(crate) fn count(&self) -> u32 {
        self.chunks.len() as u32
    }

    /// One chunk, as it is sent.
    pub(crate) fn chunk(&self, number: u32) -> Option<Chunk<T>> {
        let items = self.chunks.get(number as usize)?.clone();
        Some(Chunk { number, of: self.count(), items })
    }

    /// The item with this index in this chunk.
    pub(crate) fn at(&self, chunk: u32, place: u32) -> Option<&T> {
        self.chunks.get(chunk as usize)?.get(place as usize)
    }

    pub(crate) fn into_chunks(self) -> Vec<Arc<[T]>> {
        self.chunks
    }
}

/// A list under construction, divided into chunks on the way.
#[derive(Clone, Debug)]
pub(crate) struct ChunkedListBuilder<T> {
    chunks: Vec<Arc<[T]>>,
    /// The last chunk, which is not full yet, and its approximate size in bytes.
    open: Vec<T>,
    size: usize,
}

impl<T> Default for ChunkedListBuilder<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), open: Vec::new(), size: 0 }
    }
}

impl<T> ChunkedListBuilder<T> {
    /// Adds an item of about `bytes` bytes. Chunks have about `chunk_bytes` bytes.
    pub fn push(&mut self, item: T, bytes: usize, chunk_bytes: usize) {
        if self.size > 0 && self.size + bytes > chunk_bytes {
            self.chunks.push(core::mem::take(&mut self.open).into());
            self.size = 0;
        }
        self.size += bytes;
        self.open.push(item);
    }

    /// The complete list: at least one chunk, also if it is empty.
    pub fn finish(mut self) -> ChunkedList<T> {
        self.chunks.push(self.open.into());
        ChunkedList::of(self.chunks)
    }
}

/// The reassembly of a list from its chunks.
#[derive(Clone, Debug)]
pub(crate) struct Reassembly<T> {
    chunks: Vec<Arc<[T]>>,
    of: Option<u32>,
    /// Chunks that arrived out of order.
    early: BTreeMap<u32, Arc<[T]>>,
    /// Whether a chunk has arrived since the last call of [`Self::is_stuck`].
    moves: bool,
}

impl<T> Default for Reassembly<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), of: None, early: BTreeMap::new(), moves: false }
    }
}

impl<T> Reassembly<T> {
    /// Handles a chunk. Returns whether to request more chunks from the sender.
    pub fn take(&mut self, chunk: Chunk<T>) -> bool {
        let of = *self.of.get_or_insert(chunk.of);
        let expected = chunk.of == of && chunk.number < of && of <= MOST_CHUNKS;
        if !expected || self.is_complete() || chunk.number >= self.next().saturating_add(WINDOW) {
            return false;
        }
        let before = self.next();
        if chunk.number < before {
            // The sender repeats the first chunk if it does not know how much has arrived.
            return chunk.number == 0;
        }
        self.early.insert(chunk.number, chunk.items);
        while let Some(items) = self.early.remove(&self.next()) {
            self.chunks.push(items);
            self.moves = true;
        }
        // The last chunk of a window is here: request the next window.
        !self.is_complete() && before / WINDOW < self.next() / WINDOW
    }

    /// The first chunk that is missing.
    pub fn next(&self) -> u32 {
        self.chunks.len() as u32
    }

    /// Whether all chunks have arrived.
    pub fn is_complete(&self) -> bool {
        self.of == Some(self.next())
    }

    /// Takes the items that have arrived in order.
    pub fn items(&mut self) -> ChunkedList<T> {
        ChunkedList::of(core::mem::take(&mut self.chunks))
    }

    /// Whether the list is incomplete and no chunk has arrived since the last call.
    pub fn is_stuck(&mut self) -> bool {
        let moves = core::mem::take(&mut self.moves);
        self.of.is_some() && !self.is_complete() && !moves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(list: &[u32]) -> ChunkedList<u32> {
        let mut builder = ChunkedListBuilder::default();
        list.iter().for_each(|&item| builder.push(item, 4, 10));
        builder.finish()
    }

    #[test]
    fn a_list_is_reassembled_from_chunks_in_any_order_with_losses() {
        let list: Vec<u32> = (0..100).collect();
        let items = cut(&list);
        assert!(items.iter().eq(&list) && items.len() == 100);
        let mut reassembly = Reassembly::default();
        let mut asked = 0;
        while !reassembly.is_complete() {
            let first = reassembly.next();
            asked += 1;
            let mut chunks: Vec<_> =
                (first..first + WINDOW).filter_map(|number| items.chunk(number)).collect();
            assert!(chunks.iter().all(|chunk| chunk.items.len() <= 2));
            chunks.reverse();
            // One chunk of every other window is lost.
            if asked % 2 == 0 {
                chunks.pop();
            }
            for chunk in chunks {
                reassembly.take(chunk.clone());
                reassembly.take(chunk);
            }
        }
        assert_eq!(reassembly.items(), items);
        assert!(asked > 4, "50 chunks, 16 in a window");
    }

    #[test]
    fn an_empty_list_has_one_chunk_and_invalid_chunks_are_ignored() {
        let mut reassembly = Reassembly::<u32>::default();
        reassembly.take(cut(&[]).chunk(0).expect("one chunk"));
        assert!(reassembly.is_complete() && reassembly.items().is_empty());
        let mut reassembly = Reassembly::default();
        for (number, of) in [(0, 1 << 30), (5, 5), (9, 1 << 30)] {
            assert!(!reassembly.take(Chunk { number, of, items: Arc::from([1]) }));
        }
        assert!(!reassembly.is_complete() && reassembly.items().is_empty());
    }
}
