//! Reading a file of lines while another process appends to it.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// The position in such a file.
#[derive(Debug, Default)]
pub struct LineFollower {
    read: u64,
    /// The last line, if it is not complete yet.
    rest: Vec<u8>,
}

impl LineFollower {
    /// The complete lines that are new since the last call; none if the file does not exist yet.
    pub fn new_lines(&mut self, path: &Path) -> Vec<Vec<u8>> {
        let Ok(mut file) = File::open(path) else { return Vec::new() };
        file.seek(SeekFrom::Start(self.read)).expect("the file can be positioned");
        self.read += file.read_to_end(&mut self.rest).expect("the file can be read") as u64;
        let whole = self.rest.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let text: Vec<u8> = self.rest.drain(..whole).collect();
        let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        lines.map(<[u8]>::to_vec).collect()
    }
}
