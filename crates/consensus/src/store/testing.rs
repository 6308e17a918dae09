//! Disks in memory for tests, with flipped bits and limited space.

use redb::StorageBackend;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A disk in memory. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// Number of bytes that can still be written.
    space: Arc<AtomicU64>,
}

impl Disk {
    pub fn new() -> Self {
        Self::with(Vec::new())
    }

    pub fn with(bytes: Vec<u8>) -> Self {
        Self { bytes: Arc::new(Mutex::new(bytes)), space: Arc::new(AtomicU64::new(u64::MAX)) }
    }

    /// The present content, as a power cut would leave it.
    pub fn contents(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().clone()
    }

    /// Limits the number of bytes that can be written from now on.
    pub fn set_space(&self, bytes: u64) {
        self.space.store(bytes, Ordering::SeqCst);
    }

    fn take(&self, bytes: usize) -> io::Result<()> {
        let take = |left: u64| left.checked_sub(bytes as u64);
        match self.space.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take) {
            Ok(_) => Ok(()),
            Err(_) => Err(io::Error::from(io::ErrorKind::StorageFull)),
        }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().unwrap().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let bytes = self.bytes.lock().unwrap();
        let start = offset as usize;
        let found = bytes.get(start..start + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut bytes = self.bytes.lock().unwrap();
        self.take((len as usize).saturating_sub(bytes.len()))?;
        bytes.resize(len as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.take(data.len())?;
        let mut bytes = self.bytes.lock().unwrap();
        let start = offset as usize;
        let place = bytes.get_mut(start..start + data.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        place.copy_from_slice(data);
        Ok(())
    }
}
