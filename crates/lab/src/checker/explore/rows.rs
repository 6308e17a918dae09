//! Rows of bytes, all of the same length, in chunks that are never moved when rows are added.

/// Number of rows per chunk. Adding a row never copies earlier chunks, so there is never a second copy of all
/// rows in memory, as there is while a vector grows.
const TOGETHER: usize = 1 << 13;

/// Rows of the same length (possibly 0), numbered in the order of insertion.
#[derive(Debug)]
pub struct Rows {
    length: usize,
    chunks: Vec<Vec<u8>>,
}

impl Rows {
    /// An empty table of rows of `length` bytes.
    pub fn new(length: usize) -> Self {
        Self { length, chunks: Vec::new() }
    }

    /// The length of each row, in bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Adds a row.
    #[inline]
    pub fn push(&mut self, row: &[u8]) {
        debug_assert_eq!(row.len(), self.length);
        match self.chunks.last_mut() {
            _ if self.length == 0 => {}
            Some(chunk) if chunk.len() < TOGETHER * self.length => chunk.extend_from_slice(row),
            _ => self.begin_chunk(row),
        }
    }

    #[cold]
    fn begin_chunk(&mut self, row: &[u8]) {
        // The first chunk grows on demand: a small search does not fill it.
        let room = if self.chunks.is_empty() { 0 } else { TOGETHER * self.length };
        let mut chunk = Vec::with_capacity(room);
        chunk.extend_from_slice(row);
        self.chunks.push(chunk);
    }

    /// The row with this number.
    #[inline]
    pub fn get(&self, number: u32) -> &[u8] {
        if self.length == 0 {
            return &[];
        }
        let number = number as usize;
        &self.chunks[number / TOGETHER][number % TOGETHER * self.length..][..self.length]
    }

    /// The row with this number, mutable.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> &mut [u8] {
        if self.length == 0 {
            return &mut [];
        }
        let number = number as usize;
        &mut self.chunks[number / TOGETHER][number % TOGETHER * self.length..][..self.length]
    }

    /// The first byte of a row, if the row exists.
    #[inline]
    pub fn peek(&self, number: u32) -> Option<u8> {
        let number = number as usize;
        self.chunks.get(number / TOGETHER)?.get(number % TOGETHER * self.length).copied()
    }

    /// Rewrites every row with another length, one chunk at a time.
    pub fn rewrite(&mut self, length: usize, mut write: impl FnMut(&[u8], &mut Vec<u8>)) {
        for chunk in &mut self.chunks {
            let mut rewritten = Vec::with_capacity(chunk.capacity() / self.length * length);
            chunk.chunks_exact(self.length).for_each(|row| write(row, &mut rewritten));
            debug_assert_eq!(rewritten.len(), chunk.len() / self.length * length);
            *chunk = rewritten;
        }
        self.length = length;
    }

    /// The memory used, in bytes.
    pub fn bytes(&self) -> usize {
        self.chunks.iter().map(Vec::capacity).sum()
    }
}
