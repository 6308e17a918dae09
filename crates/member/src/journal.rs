//! A journal of the locks that have changed, so that a driver can forward the changes of a table instead of the whole
//! table.

use crate::member::Member;
use crate::session::Stage;
use crate::table::LockId;
use crate::{Bugs, LockName, LockStatus, SessionId};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use lockkeeper_core::MutualExclusion;

/// Number of changes that a journal keeps. A reader that is further behind reads the whole table again.
const MOST: usize = 1 << 16;

/// Approximate limit of a row, in bytes: a lock with a long queue may change often.
const ROW_BYTES: usize = 64 << 10;

/// The names of the locks whose holders or waiters may have changed, in the order of the changes. Each change has a
/// number.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    /// The number of the first change in `names`.
    first: u64,
    names: VecDeque<LockName>,
}

impl Journal {
    /// The number of the next change.
    fn next(&self) -> u64 {
        self.first + self.names.len() as u64
    }

    /// Appends a change, and drops the oldest one if the journal is full.
    fn add(&mut self, name: &LockName) {
        if self.names.len() == MOST {
            self.names.pop_front();
            self.first += 1;
        }
        self.names.push_back(name.clone());
    }
}

impl<P: MutualExclusion, B: Bugs> Member<P, B> {
    /// Begins to record changes; the first one gets the number `first`. Earlier changes are unknown.
    pub fn begin_journal(&mut self, first: u64) {
        self.journal.get_or_insert_with(|| Journal { first, names: VecDeque::new() });
    }

    /// The number of the next change; `None` while no journal is kept.
    pub fn next_change(&self) -> Option<u64> {
        self.journal.as_ref().map(Journal::next)
    }

    /// The present state of the locks that have changed from number `from` on, at most `most` changes; and the number
    /// of the next change to read. `None` if the journal does not go back that far.
    pub fn changes(&self, now: u64, from: u64, most: usize) -> Option<(Vec<LockStatus>, u64)> {
        let journal = self.journal.as_ref()?;
        let skip = usize::try_from(from.checked_sub(journal.first)?).ok()?;
        if skip > journal.names.len() {
            return None;
        }
        let some = || journal.names.iter().skip(skip).take(most);
        let names: BTreeSet<&LockName> = some().collect();
        let rows = names.into_iter().map(|name| self.status_of(now, name, ROW_BYTES)).collect();
        Some((rows, from + some().count() as u64))
    }

    /// Records that the locks which a session holds are shown in another way: its client has come back.
    pub(crate) fn note_changes_of(&mut self, session: SessionId) {
        if self.journal.is_none() {
            return;
        }
        let Some(session) = self.sessions.get(&session) else { return };
        let held = session.acquisitions.values().filter_map(|stage| match stage {
            Stage::Held(lock) => Some(*lock),
            _ => None,
        });
        let held: Vec<LockId> = held.take(self.config.slice()).collect();
        self.spend(held.len());
        held.into_iter().for_each(|lock| self.note_change(lock));
    }

    /// Records that the holders or waiters of a lock may have changed.
    pub(crate) fn note_change(&mut self, id: LockId) {
        if let Some(journal) = &mut self.journal {
            let lock = self.locks.get(id);
            if lock.active.is_some() {
                journal.add(&lock.name);
            }
        }
    }
}
