//! Rows of bytes, all of the same length, in memory that is never copied to make room for more.

/// So many rows stand side by side. What is there stays where it is when more rows come: at no time is there a second copy
/// of everything, as there is while a vector grows.
const TOGETHER: usize = 1 << 13;

/// Rows of the same length, possibly none, numbered in the order in which they came.
#[derive(Debug)]
pub struct Rows {
    length: usize,
    chunks: Vec<Vec<u8>>,
}

impl Rows {
    /// No rows yet.
    pub fn new(length: usize) -> Self {
        Self { length, chunks: Vec::new() }
    }

    /// How long each is.
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
        // A small search does not need even one whole chunk.
        let room = if self.chunks.is_empty() { 0 } else { TOGETHER * self.length };
        let mut chunk = Vec::with_capacity(room);
        chunk.extend_from_slice(row);
        self.chunks.push(chunk);
    }

    /// The row of that number.
    #[inline]
    pub fn get(&self, number: u32) -> &[u8] {
        if self.length == 0 {
            return &[];
        }
        let number = number as usize;
        &self.chunks[number / TOGETHER][number % TOGETHER * self.length..][..self.length]
    }

    /// The row of that number, to be changed.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> &mut [u8] {
        if self.length == 0 {
            return &mut [];
        }
        let number = number as usize;
        &mut self.chunks[number / TOGETHER][number % TOGETHER * self.length..][..self.length]
    }

    /// The first byte of a row, if there is such a row.
    #[inline]
    pub fn peek(&self, number: u32) -> Option<u8> {
        let number = number as usize;
        self.chunks.get(number / TOGETHER)?.get(number % TOGETHER * self.length).copied()
    }

    /// Writes every row anew with another length, a chunk at a time.
    pub fn rewrite(&mut self, length: usize, mut write: impl FnMut(&[u8], &mut Vec<u8>)) {
        for chunk in &mut self.chunks {
            let mut rewritten = Vec::with_capacity(chunk.capacity() / self.length * length);
            chunk.chunks_exact(self.length).for_each(|row| write(row, &mut rewritten));
            debug_assert_eq!(rewritten.len(), chunk.len() / self.length * length);
            *chunk = rewritten;
        }
        self.length = length;
    }

    /// How much memory they take.
    pub fn bytes(&self) -> usize {
        self.chunks.iter().map(Vec::capacity).sum()
    }
}
