//! What the log leads to: the newest view, and who has a vote.

use super::log::stops;
use super::teller::Teller;
use super::types::{Entry, LogId, Membership, SnapshotMeta, StoreName, Types};
use crate::store::{Change, Record, Store, StoreError, encode};
use lockkeeper_member::View;
use openraft::storage::RaftStateMachine;
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder, Snapshot, StorageError};
use serde::{Deserialize, Serialize};
use std::io::Cursor;
use std::sync::Arc;
use tokio::sync::Mutex;

/// The state, the same at whoever has applied the same entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    pub applied: Option<LogId>,
    pub membership: Membership,
    pub newest: View,
    /// The first view's epoch is above this.
    pub epoch_above: u64,
}

impl Default for State {
    fn default() -> Self {
        Self { applied: None, membership: Membership::default(), newest: View::none(), epoch_above: 0 }
    }
}

impl State {
    /// Applies an entry. Gives the view that it decides, if it decides one.
    fn apply(&mut self, entry: Entry) -> Option<View> {
        self.applied = Some(entry.log_id);
        match entry.payload {
            EntryPayload::Blank => None,
            EntryPayload::Normal(view) => self.propose(entry.log_id.leader_id.term, view),
            EntryPayload::Membership(membership) => {
                let wanted = membership.nodes().map(|(_, place)| place.epoch_above).max();
                self.epoch_above = self.epoch_above.max(wanted.unwrap_or(0));
                self.membership = Membership::new(Some(entry.log_id), membership);
                None
            }
        }
    }

    /// A proposal takes effect only if its epoch is the next and it was made in the term that it names. So an epoch has one view, and a
    /// leader of the past decides nothing.
    fn propose(&mut self, term: u64, mut view: View) -> Option<View> {
        if view.term != term || view.epoch != self.newest.epoch.checked_add(1)? {
            return None;
        }
        // After the loss of all disks, members count from one again, and the resources do not: the first view, and only that,
        // begins higher.
        if self.newest.epoch == 0 {
            view.epoch = view.epoch.max(self.epoch_above.checked_add(1)?);
            view.since.fill(view.epoch);
        }
        self.newest = view.clone();
        Some(view)
    }

    fn meta(&self) -> SnapshotMeta {
        let snapshot_id = self.applied.map_or(String::new(), |applied| applied.to_string());
        SnapshotMeta { last_log_id: self.applied, last_membership: self.membership.clone(), snapshot_id }
    }

    /// What another member sent, if it fits together.
    pub fn received(meta: &SnapshotMeta, bytes: &[u8]) -> Option<Self> {
        let state: Self = postcard::from_bytes(bytes).ok()?;
        (state.applied == meta.last_log_id && state.membership == meta.last_membership).then_some(state)
    }
}

/// The state machine. It lives in memory; what is on disk is its last snapshot, and the log from there.
pub(crate) struct Machine {
    kept: Kept,
    state: State,
    teller: Arc<Teller>,
}

impl Machine {
    pub fn new(store: Store, teller: Arc<Teller>) -> Result<Self, StoreError> {
        let state: State = store.read(Record::Snapshot)?.unwrap_or_default();
        teller.decided(&state.newest);
        Ok(Self { kept: Kept { store, order: Arc::default() }, state, teller })
    }
}

/// The snapshot on disk.
#[derive(Clone)]
struct Kept {
    store: Store,
    /// A snapshot may be built while another one arrives. One at a time: the log behind the newer one may be gone already.
    order: Arc<Mutex<()>>,
}

impl Kept {
    async fn read(&self) -> Result<Option<State>, StorageError<StoreName>> {
        self.store.run(|store| store.read(Record::Snapshot)).await.map_err(|error| stops(&error))
    }

    /// Keeps this state, unless a newer one is kept.
    async fn keep(&self, state: &State) -> Result<Vec<u8>, StorageError<StoreName>> {
        let _order = self.order.lock().await;
        let bytes = encode(state).map_err(|error| stops(&error))?;
        if self.read().await?.is_none_or(|kept| kept.applied < state.applied) {
            let change = Change::Put(Record::Snapshot, bytes.clone());
            self.store.run(move |store| store.write(&[change])).await.map_err(|error| stops(&error))?;
        }
        Ok(bytes)
    }
}

/// Makes a snapshot of a state.
pub(crate) struct Builder {
    kept: Kept,
    state: State,
}

impl RaftSnapshotBuilder<Types> for Builder {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>, StorageError<StoreName>> {
        let bytes = self.kept.keep(&self.state).await?;
        Ok(Snapshot { meta: self.state.meta(), snapshot: Box::new(Cursor::new(bytes)) })
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, Membership), StorageError<StoreName>> {
        Ok((self.state.applied, self.state.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<()>, StorageError<StoreName>>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut applied = Vec::new();
        for entry in entries {
            if let Some(view) = self.state.apply(entry) {
                self.teller.decided(&view);
            }
            applied.push(());
        }
        Ok(applied)
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder { kept: self.kept.clone(), state: self.state.clone() }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>, StorageError<StoreName>> {
        Ok(Box::new(Cursor::new(Vec::new())))
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), StorageError<StoreName>> {
        let what = "a snapshot from another member does not fit together".to_string();
        let state = State::received(meta, &snapshot.into_inner())
            .ok_or_else(|| stops(&StoreError::Damaged { what }))?;
        self.kept.keep(&state).await?;
        self.teller.decided(&state.newest);
        self.state = state;
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types>>, StorageError<StoreName>> {
        let Some(state) = self.kept.read().await? else { return Ok(None) };
        let bytes = encode(&state).map_err(|error| stops(&error))?;
        Ok(Some(Snapshot { meta: state.meta(), snapshot: Box::new(Cursor::new(bytes)) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_member::{MemberId, Node};
    use openraft::CommittedLeaderId;

    fn view(epoch: u64, term: u64) -> View {
        let me = Node { id: MemberId(1), incarnation: 7 };
        View { epoch, members: vec![me], since: vec![epoch], coordinator: me, term, missing: Vec::new() }
    }

    fn entry(term: u64, index: u64, payload: EntryPayload<Types>) -> Entry {
        Entry { log_id: LogId::new(CommittedLeaderId::new(term, 0), index), payload }
    }

    #[test]
    fn only_the_next_epoch_in_its_own_term_takes_effect() {
        let mut state = State::default();
        let mut propose =
            |index, term, proposed| state.apply(entry(term, index, EntryPayload::Normal(proposed)));
        assert_eq!(propose(1, 3, view(1, 3)), Some(view(1, 3)));
        assert_eq!(propose(2, 3, view(1, 3)), None, "the epoch is taken");
        assert_eq!(propose(3, 3, view(3, 3)), None, "an epoch is left out");
        assert_eq!(propose(4, 4, view(2, 3)), None, "a proposal of an old term");
        assert_eq!(propose(5, 4, view(2, 4)), Some(view(2, 4)));
        assert_eq!(state.newest, view(2, 4));
    }

    #[test]
    fn epochs_begin_where_the_operator_wants_and_only_once() {
        let place = |epoch_above| super::super::types::Place { epoch_above, ..Default::default() };
        let members = |above| {
            let nodes = std::collections::BTreeMap::from([(5, place(above))]);
            EntryPayload::Membership(openraft::Membership::new(vec![[5].into()], nodes))
        };
        let mut state = State::default();
        state.apply(entry(0, 0, members(41)));
        let first = state.apply(entry(1, 1, EntryPayload::Normal(view(1, 1)))).unwrap();
        assert_eq!((first.epoch, first.since), (42, vec![42]));
        state.apply(entry(1, 2, members(90)));
        assert_eq!(state.apply(entry(1, 3, EntryPayload::Normal(view(43, 1)))).unwrap().epoch, 43);
    }
}
