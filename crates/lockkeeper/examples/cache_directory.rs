//! Readers and writers of a cache directory: readers share it, and a writer that replaces several files is alone.
//!
//! ```sh
//! cargo run -p lockkeeper --example cache_directory [URL]
//! ```
//!
//! The two files of an entry must fit each other. Without the lock, a reader can find a new `data` with an old `length`.

use lockkeeper::Lockkeeper;
use std::error::Error;
use std::path::{Path, PathBuf};

const READERS: u32 = 4;
const READS: u32 = 25;
const WRITES: usize = 10;

/// Replaces both files. The lock is held during both writes.
async fn write(locks: &Lockkeeper, cache: &Path, version: usize) -> Result<(), Box<dyn Error + Send + Sync>> {
    let guard = locks.mutex("cache").acquire().await?;
    std::fs::write(cache.join("data"), "x".repeat(version))?;
    tokio::task::yield_now().await;
    std::fs::write(cache.join("length"), version.to_string())?;
    guard.release().await?;
    Ok(())
}

/// Reads both files. Other readers may do so at the same time.
async fn read(locks: &Lockkeeper, cache: &Path) -> Result<bool, Box<dyn Error + Send + Sync>> {
    let guard = locks.shared("cache").acquire().await?;
    let data = std::fs::read_to_string(cache.join("data"))?;
    tokio::task::yield_now().await;
    let length: usize = std::fs::read_to_string(cache.join("length"))?.parse()?;
    guard.release().await?;
    Ok(data.len() == length)
}

async fn reader(locks: Lockkeeper, cache: PathBuf) -> Result<u32, Box<dyn Error + Send + Sync>> {
    let mut whole = 0;
    for _ in 0..READS {
        whole += u32::from(read(&locks, &cache).await?);
    }
    Ok(whole)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let directory = tempfile::tempdir()?;
    let (cache, state) = (directory.path().join("cache"), directory.path().join("locks"));
    let url = std::env::args().nth(1).unwrap_or_else(|| format!("file://{}", state.display()));
    std::fs::create_dir(&cache)?;
    let locks = Lockkeeper::open(url.as_str()).await?;
    write(&locks, &cache, 1).await?;

    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..READERS {
        readers.spawn(reader(Lockkeeper::open(url.as_str()).await?, cache.clone()));
    }
    for version in 2..=WRITES {
        write(&locks, &cache, version).await?;
    }
    let mut whole = 0;
    while let Some(reader) = readers.join_next().await {
        whole += reader??;
    }
    let all = READERS * READS;
    println!("{whole} of {all} reads found files that fit each other, beside {WRITES} writes");
    match whole == all {
        true => Ok(()),
        false => Err("a reader found files of two versions".into()),
    }
}
