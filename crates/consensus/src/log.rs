//! The vote and the log, in the store.

use super::locked;
use super::types::{Entry, LogId, StoreName, Types, Vote};
use crate::store::{Change, Record, Store, StoreError, encode};
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{AnyError, LogState, OptionalSend, RaftLogReader, StorageError, StorageIOError};
use std::fmt::Debug;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, Mutex};

/// The log of one store. Votes and entries are on disk before they are acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    store: Store,
    /// The last entry known to be committed. It is written with the next change; its only purpose is a faster restart.
    committed: Arc<Mutex<Option<LogId>>>,
}

impl Log {
    pub fn new(store: Store) -> Result<Self, StoreError> {
        let committed = store.read(Record::Committed)?;
        Ok(Self { store, committed: Arc::new(Mutex::new(committed)) })
    }

    /// Whether the log has never had an entry. Then this store is part of no decision of any cluster.
    pub fn is_blank(store: &Store) -> Result<bool, StoreError> {
        Ok(store.last_index()?.is_none() && store.read::<LogId>(Record::Purged)?.is_none())
    }

    async fn write(&self, mut changes: Vec<Change>) -> Result<(), StoreError> {
        let committed = *locked(&self.committed);
        if let Some(committed) = committed {
            changes.push(Change::Put(Record::Committed, encode(&committed)?));
        }
        self.store.run(move |store| store.write(&changes)).await
    }

    /// Writes everything that is only in memory.
    pub async fn flush(&self) -> Result<(), StoreError> {
        self.write(Vec::new()).await
    }
}

/// Converts an error of the store for the library, which stops on the first one.
pub(crate) fn stops(error: &StoreError) -> StorageError<StoreName> {
    StorageIOError::write(AnyError::new(error)).into()
}

impl RaftLogReader<Types> for Log {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry>, StorageError<StoreName>> {
        let range = (range.start_bound().cloned(), range.end_bound().cloned());
        if let (Bound::Included(from), Bound::Excluded(to)) = range
            && from >= to
        {
            return Ok(Vec::new());
        }
        let found = self.store.run(move |store| store.entries::<Entry>(range)).await;
        Ok(found.map_err(|error| stops(&error))?.into_iter().map(|(_, entry)| entry).collect())
    }
}

impl RaftLogStorage<Types> for Log {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError<StoreName>> {
        let read = |store: &Store| {
            let purged: Option<LogId> = store.read(Record::Purged)?;
            let Some(last) = store.last_index()? else { return Ok((purged, purged)) };
            let last = store.entries::<Entry>(last..=last)?.pop().map(|(_, entry)| entry.log_id);
            Ok((purged, last.max(purged)))
        };
        let (last_purged_log_id, last_log_id) = self.store.run(read).await.map_err(|error| stops(&error))?;
        Ok(LogState { last_purged_log_id, last_log_id })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError<StoreName>> {
        let vote = encode(vote).map_err(|error| stops(&error))?;
        self.write(vec![Change::Put(Record::Vote, vote)]).await.map_err(|error| stops(&error))
    }

    /// Reads the vote, once at the start. A store that led until it stopped does not lead any more: the library would
    /// resume in the same term, and observers of terms could not see that another leader was active in between.
    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError<StoreName>> {
        let vote: Option<Vote> =
            self.store.run(|store| store.read(Record::Vote)).await.map_err(|error| stops(&error))?;
        let me = Some(self.store.name());
        Ok(vote.map(|vote| Vote { committed: vote.committed && vote.leader_id.voted_for != me, ..vote }))
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), StorageError<StoreName>> {
        *locked(&self.committed) = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, StorageError<StoreName>> {
        Ok(*locked(&self.committed))
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: LogFlushed<Types>,
    ) -> Result<(), StorageError<StoreName>>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let encoded = entries.into_iter().map(|entry| Ok(Change::Entry(entry.log_id.index, encode(&entry)?)));
        let written = match encoded.collect::<Result<Vec<Change>, StoreError>>() {
            Ok(changes) => self.write(changes).await,
            Err(error) => Err(error),
        };
        match written {
            Ok(()) => {
                callback.log_io_completed(Ok(()));
                Ok(())
            }
            Err(error) => {
                callback.log_io_completed(Err(std::io::Error::other(error.clone())));
                Err(stops(&error))
            }
        }
    }

    async fn truncate(&mut self, log_id: LogId) -> Result<(), StorageError<StoreName>> {
        self.write(vec![Change::Drop(log_id.index, u64::MAX)]).await.map_err(|error| stops(&error))
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), StorageError<StoreName>> {
        let purged = encode(&log_id).map_err(|error| stops(&error))?;
        let changes = vec![Change::Put(Record::Purged, purged), Change::Drop(0, log_id.index)];
        self.write(changes).await.map_err(|error| stops(&error))
    }
}
