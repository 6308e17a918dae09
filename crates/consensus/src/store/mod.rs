//! The storage of consensus on disk: the identity of the store, its vote, its log and its newest snapshot, in one file.
//!
//! - **A store has a name of its own**, 64 random bits that are on disk before any message contains them. A vote
//!   belongs to that name and not to the member: a member that comes back without its disk is another
//!   voter, and cannot vote twice in one term.
//! - **Every record has a checksum** over its key and its bytes, which is verified at every read.
//! - **Every change is committed twice**, the second time with only a new seal. A database with two commit slots falls
//!   back to the older slot when the newer one is damaged, and a single flipped bit in its header is enough for that.
//!   Then the older slot must have the same content, or a vote would be lost without notice.
//!
//! All functions here block; [`Store::run`] moves them off the async threads.

#[cfg(test)]
mod golden;
mod record;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub(crate) use record::Record;

use lockkeeper_member::MemberId;
use record::{check, sealed};
use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::ops::RangeBounds;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The version of the format on disk.
const FORMAT: u32 = 4;
const FILE: &str = "consensus.redb";
const RECORDS: TableDefinition<u8, &[u8]> = TableDefinition::new("records");
const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("log");

/// The reason why the store cannot be used, with advice.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum StoreError {
    /// Another process has opened the store.
    #[error(
        "{directory} is in use by another process: stop that one, or give this member a directory of its own"
    )]
    InUse {
        /// The folder of the store.
        directory: String,
    },
    /// The store was created by another member.
    #[error(
        "{directory} belongs to {owner}, and this is {me}: give this member its own directory, or start it as {owner}"
    )]
    OtherMember {
        /// The folder of the store.
        directory: String,
        /// The member that created it.
        owner: MemberId,
        /// The member that opens it.
        me: MemberId,
    },
    /// The store was written by another version of lockkeeper.
    #[error(
        "{directory} has format {found}, and this version of lockkeeper reads format {FORMAT}: start the version that wrote it"
    )]
    OtherFormat {
        /// The folder of the store.
        directory: String,
        /// The version of its format.
        found: u32,
    },
    /// A checksum or a record is wrong.
    #[error(
        "the store is damaged ({what}): move its directory away and start this member with an empty one; it joins the others again \
         as long as a majority of the voters has its disks"
    )]
    Damaged {
        /// The record, and the defect.
        what: String,
    },
    /// The operating system reports an error.
    #[error(
        "the store cannot be written or read ({what}): see to the disk (space, rights, errors), then start this member again"
    )]
    Disk {
        /// The text of the error.
        what: String,
    },
    /// The store has been closed.
    #[error("the store is closed")]
    Closed,
}

/// The identity of a store. Written once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    format: u32,
    member: MemberId,
    name: u64,
}

/// One change. Several changes in one write are atomic.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// Replaces a record.
    Put(Record, Vec<u8>),
    /// Writes the log entry at this index.
    Entry(u64, Vec<u8>),
    /// Removes the log entries from the first index to the second one, inclusive.
    Drop(u64, u64),
}

/// The store of one member. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    database: RwLock<Option<Database>>,
    name: u64,
    /// Number of commits over all starts.
    commits: AtomicU64,
}

impl Store {
    /// Opens the store in this directory, or creates one.
    pub fn open(directory: &Path, me: MemberId) -> Result<Self, StoreError> {
        let shown = directory.display().to_string();
        let disk = |error: std::io::Error| StoreError::Disk { what: format!("{shown}: {error}") };
        std::fs::create_dir_all(directory).map_err(disk)?;
        let database = Database::create(directory.join(FILE)).map_err(|error| opening(error, &shown))?;
        let store = Self::prepare(database, me, &shown)?;
        // A new file is durable only once its directory has been synced.
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(disk)?;
        Ok(store)
    }

    /// Like [`open`](Self::open), on another backend than a file.
    #[cfg(test)]
    pub fn open_on(backend: impl redb::StorageBackend, me: MemberId) -> Result<Self, StoreError> {
        let shown = "this store";
        let database =
            Database::builder().create_with_backend(backend).map_err(|error| opening(error, shown))?;
        Self::prepare(database, me, shown)
    }

    fn prepare(mut database: Database, me: MemberId, directory: &str) -> Result<Self, StoreError> {
        // Read and verify everything once: the store is small, and a damaged page is found here rather than in the
        // middle of an election. Falling back to the other commit slot loses nothing, since both have the same content.
        database.check_integrity().map_err(|error| opening(error, directory))?;
        let store = Self::of(database, 0, 0);
        let identity = match store.read::<Identity>(Record::Identity)? {
            Some(identity) => identity,
            None => store.make_identity(me)?,
        };
        if identity.format != FORMAT {
            let directory = directory.to_string();
            return Err(StoreError::OtherFormat { directory, found: identity.format });
        }
        if identity.member != me {
            let directory = directory.to_string();
            return Err(StoreError::OtherMember { directory, owner: identity.member, me });
        }
        store.seal()?;
        store.read_everything()?;
        let database = store.close().ok_or(StoreError::Closed)?;
        Ok(Self::of(database, identity.name, store.commits()))
    }

    fn of(database: Database, name: u64, commits: u64) -> Self {
        let (database, commits) = (RwLock::new(Some(database)), AtomicU64::new(commits));
        Self { inner: Arc::new(Inner { database, name, commits }) }
    }

    /// Number of commits over all starts. A disk that was restored from a backup has a lower number.
    pub fn commits(&self) -> u64 {
        self.inner.commits.load(Ordering::SeqCst)
    }

    fn make_identity(&self, member: MemberId) -> Result<Identity, StoreError> {
        let random = getrandom::u64()
            .map_err(|error| StoreError::Disk { what: format!("no random numbers to name it: {error}") })?;
        // The name 0 is reserved for "no store".
        let identity = Identity { format: FORMAT, member, name: random.max(1) };
        self.write(&[Change::Put(Record::Identity, encode(&identity)?)])?;
        Ok(identity)
    }

    /// The store's own name, which no other store ever has.
    pub fn name(&self) -> u64 {
        self.inner.name
    }

    /// Runs blocking work on a thread that may block.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let store = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&store)).await;
        done.unwrap_or_else(|error| Err(StoreError::Damaged { what: format!("reading it failed: {error}") }))
    }

    /// Reads a record. `None` if it was never written.
    pub fn read<T: DeserializeOwned>(&self, record: Record) -> Result<Option<T>, StoreError> {
        self.with(|database| {
            let reading = database.begin_read().map_err(failed)?;
            let table = match reading.open_table(RECORDS) {
                Ok(table) => table,
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
                Err(error) => return Err(failed(error)),
            };
            let Some(stored) = table.get(record as u8).map_err(failed)? else { return Ok(None) };
            decode(check(record.key(), stored.value())?, record.name()).map(Some)
        })
    }

    /// The entries of the log in this range, with their indexes.
    pub fn entries<T: DeserializeOwned>(
        &self,
        range: impl RangeBounds<u64>,
    ) -> Result<Vec<(u64, T)>, StoreError> {
        self.with(|database| {
            let reading = database.begin_read().map_err(failed)?;
            let table = match reading.open_table(LOG) {
                Ok(table) => table,
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                Err(error) => return Err(failed(error)),
            };
            let mut entries = Vec::new();
            for found in table.range(range).map_err(failed)? {
                let (index, stored) = found.map_err(failed)?;
                let index = index.value();
                entries.push((index, decode(check(record::entry_key(index), stored.value())?, "an entry")?));
            }
            Ok(entries)
        })
    }

    /// The index of the last entry of the log.
    pub fn last_index(&self) -> Result<Option<u64>, StoreError> {
        self.with(|database| {
            let reading = database.begin_read().map_err(failed)?;
            match reading.open_table(LOG) {
                Ok(table) => Ok(table.last().map_err(failed)?.map(|(index, _)| index.value())),
                Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
                Err(error) => Err(failed(error)),
            }
        })
    }

    /// Applies these changes atomically. They are on disk when this returns.
    pub fn write(&self, changes: &[Change]) -> Result<(), StoreError> {
        self.commit(changes)?;
        self.seal()
    }

    fn commit(&self, changes: &[Change]) -> Result<(), StoreError> {
        self.with(|database| {
            let writing = database.begin_write().map_err(failed)?;
            {
                let mut records = writing.open_table(RECORDS).map_err(failed)?;
                let mut log = writing.open_table(LOG).map_err(failed)?;
                for change in changes {
                    match change {
                        Change::Put(record, bytes) => {
                            let bytes = sealed(record.key(), bytes);
                            records.insert(*record as u8, bytes.as_slice()).map_err(failed)?;
                        }
                        Change::Entry(index, bytes) => {
                            let bytes = sealed(record::entry_key(*index), bytes);
                            log.insert(index, bytes.as_slice()).map_err(failed)?;
                        }
                        Change::Drop(from, to) => log.retain_in(*from..=*to, |_, _| false).map_err(failed)?,
                    }
                }
            }
            writing.commit().map_err(failed)
        })
    }

    /// Commits once more, so that both commit slots have the same content except for the seal's number.
    fn seal(&self) -> Result<(), StoreError> {
        let last: u64 = self.read(Record::Seal)?.unwrap_or(0);
        let next = last.wrapping_add(1);
        self.commit(&[Change::Put(Record::Seal, encode(&next)?)])?;
        self.inner.commits.fetch_max(next, Ordering::SeqCst);
        Ok(())
    }

    /// Reads everything, which verifies every checksum.
    fn read_everything(&self) -> Result<(), StoreError> {
        self.with(|database| {
            let reading = database.begin_read().map_err(failed)?;
            let records = reading.open_table(RECORDS).map_err(failed)?;
            for found in records.iter().map_err(failed)? {
                let (key, stored) = found.map_err(failed)?;
                check(record::record_key(key.value()), stored.value())?;
            }
            let log = reading.open_table(LOG).map_err(failed)?;
            for found in log.iter().map_err(failed)? {
                let (index, stored) = found.map_err(failed)?;
                check(record::entry_key(index.value()), stored.value())?;
            }
            Ok(())
        })
    }

    /// Closes the file, so that another process can open it. All later operations fail.
    pub fn close(&self) -> Option<Database> {
        self.inner.database.write().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn with<T>(&self, work: impl FnOnce(&Database) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let database = self.inner.database.read().unwrap_or_else(PoisonError::into_inner);
        work(database.as_ref().ok_or(StoreError::Closed)?)
    }
}

/// Encodes a value for the disk.
pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, StoreError> {
    postcard::to_stdvec(value)
        .map_err(|error| StoreError::Damaged { what: format!("cannot be encoded: {error}") })
}

fn decode<T: DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T, StoreError> {
    postcard::from_bytes(bytes)
        .map_err(|error| StoreError::Damaged { what: format!("{what} cannot be read: {error}") })
}

fn opening(error: DatabaseError, directory: &str) -> StoreError {
    match error {
        DatabaseError::DatabaseAlreadyOpen => StoreError::InUse { directory: directory.to_string() },
        error => failed(error),
    }
}

fn failed(error: impl Into<redb::Error>) -> StoreError {
    match error.into() {
        redb::Error::Corrupted(what) => StoreError::Damaged { what },
        error => StoreError::Disk { what: error.to_string() },
    }
}
