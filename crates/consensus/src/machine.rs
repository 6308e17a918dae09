//! The Raft state machine: the newest view, the recorded holds and the membership.

use super::event_queue::EventSender;
use super::log::stops;
use super::state::{Effect, State};
use super::types::{Entry, LogId, Membership, SnapshotMeta, StoreName, Types};
use crate::store::{Change, Record, Store, StoreError, encode};
use lockkeeper_member::{MemberId, RecordOutcome};
use openraft::storage::RaftStateMachine;
use openraft::{OptionalSend, RaftSnapshotBuilder, Snapshot, StorageError};
use std::io::Cursor;
use std::sync::Arc;
use tokio::sync::Mutex;

/// The state machine. It is in memory; its last snapshot and the log from there on are on disk.
pub(crate) struct Machine {
    me: MemberId,
    stored: StoredSnapshot,
    state: State,
    events: Arc<EventSender>,
}

impl Machine {
    pub fn new(store: Store, me: MemberId, events: Arc<EventSender>) -> Result<Self, StoreError> {
        let state: State = store.read(Record::Snapshot)?.unwrap_or_default();
        events.table_changed(&state.holds);
        events.decided(&state.newest, Vec::new());
        Ok(Self { me, stored: StoredSnapshot { store, order: Arc::default() }, state, events })
    }
}

/// The snapshot on disk.
#[derive(Clone)]
struct StoredSnapshot {
    store: Store,
    /// Serialises writes: a snapshot may be built while another one arrives. The older one must not replace the newer
    /// one, since the log entries between them may have been purged already.
    order: Arc<Mutex<()>>,
}

impl StoredSnapshot {
    async fn read(&self) -> Result<Option<State>, StorageError<StoreName>> {
        self.store.run(|store| store.read(Record::Snapshot)).await.map_err(|error| stops(&error))
    }

    /// Stores the snapshot of this state, unless a newer one is stored.
    async fn write_if_newer(&self, state: &State) -> Result<Vec<u8>, StorageError<StoreName>> {
        let _order = self.order.lock().await;
        let bytes = encode(state).map_err(|error| stops(&error))?;
        if self.read().await?.is_none_or(|stored| stored.applied < state.applied) {
            let change = Change::Put(Record::Snapshot, bytes.clone());
            self.store.run(move |store| store.write(&[change])).await.map_err(|error| stops(&error))?;
        }
        Ok(bytes)
    }
}

/// Builds a snapshot of a state.
pub(crate) struct Builder {
    stored: StoredSnapshot,
    state: State,
}

impl RaftSnapshotBuilder<Types> for Builder {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>, StorageError<StoreName>> {
        let bytes = self.stored.write_if_newer(&self.state).await?;
        Ok(Snapshot { meta: self.state.meta(), snapshot: Box::new(Cursor::new(bytes)) })
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, Membership), StorageError<StoreName>> {
        Ok((self.state.applied, self.state.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Vec<RecordOutcome>>, StorageError<StoreName>>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut applied = Vec::new();
        for entry in entries {
            let mut outcomes = Vec::new();
            match self.state.apply(entry) {
                Effect::None => {}
                Effect::Decided(view) => {
                    // Only the coordinator of a view needs the holds that other members adopt.
                    let coordinates = view.coordinator.id == self.me;
                    let adopted = if coordinates { self.state.holds.adopted() } else { Vec::new() };
                    self.events.decided(&view, adopted);
                }
                Effect::Written(written) => {
                    self.events.table_changed(&self.state.holds);
                    outcomes = written;
                }
            }
            applied.push(outcomes);
        }
        Ok(applied)
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder { stored: self.stored.clone(), state: self.state.clone() }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>, StorageError<StoreName>> {
        Ok(Box::new(Cursor::new(Vec::new())))
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), StorageError<StoreName>> {
        let what = "a snapshot from another member is inconsistent".to_string();
        let state = State::received(meta, &snapshot.into_inner())
            .ok_or_else(|| stops(&StoreError::Damaged { what }))?;
        self.stored.write_if_newer(&state).await?;
        self.events.table_changed(&state.holds);
        self.events.decided(&state.newest, Vec::new());
        self.state = state;
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types>>, StorageError<StoreName>> {
        let Some(state) = self.stored.read().await? else { return Ok(None) };
        let bytes = encode(&state).map_err(|error| stops(&error))?;
        Ok(Some(Snapshot { meta: state.meta(), snapshot: Box::new(Cursor::new(bytes)) }))
    }
}
