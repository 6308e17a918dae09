//! Leader election: the leader is the holder of a lock, and its metadata has the value that it campaigned with.

use crate::engine::Changes;
use crate::{Fence, Guard, LockName, Lockkeeper, Participant, Result};
use std::time::{Duration, Instant};

/// The metadata key of a candidate's value.
const VALUE: &str = "value";

/// An election, identified by its name. It is a lock of that name: `locks` shows the leader and the candidates.
#[derive(Clone, Debug)]
pub struct Election {
    locks: Lockkeeper,
    name: String,
    ttl: Option<Duration>,
}

impl Election {
    pub(crate) fn new(locks: Lockkeeper, name: String) -> Election {
        Election { locks, name, ttl: None }
    }

    /// Sets how long leadership survives without renewal, on engines where holds expire.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Creates a candidate with a value that observers see, such as an address.
    pub fn campaign(&self, value: impl Into<String>) -> Candidate {
        Candidate { election: self.clone(), value: value.into() }
    }

    /// Observes the election. The first result of [`Observer::next`] is the current leader.
    pub async fn observe(&self) -> Result<Observer> {
        self.check()?;
        let name = LockName::new(self.name.as_str())?;
        let changes = self.locks.changes(&name).await?;
        Ok(Observer { locks: self.locks.clone(), name, changes, last: None })
    }

    /// The current leader.
    pub async fn leader(&self) -> Result<Option<Leader>> {
        self.check()?;
        Ok(self.locks.inspect(self.name.as_str()).await?.holders.into_iter().next().map(Leader::from))
    }

    fn check(&self) -> Result<()> {
        match self.locks.capabilities().election {
            true => Ok(()),
            false => Err(self.locks.not_supported("elections")),
        }
    }
}

/// A candidate whose request has not been sent yet.
#[derive(Clone, Debug)]
#[must_use = "a candidacy does nothing until awaited"]
pub struct Candidate {
    election: Election,
    value: String,
}

impl Candidate {
    fn request(self) -> Result<crate::Acquire> {
        self.election.check()?;
        let request = self.election.locks.mutex(self.election.name).metadata(VALUE, self.value);
        Ok(match self.election.ttl {
            Some(ttl) => request.ttl(ttl),
            None => request,
        })
    }

    /// Waits until this candidate is elected.
    pub async fn elected(self) -> Result<Leadership> {
        Ok(Leadership { guard: self.request()?.acquire().await? })
    }

    /// Waits until this candidate is elected; `None` if the deadline passes first.
    pub async fn elected_by(self, deadline: Instant) -> Result<Option<Leadership>> {
        Ok(self.request()?.acquire_by(deadline).await?.map(|guard| Leadership { guard }))
    }
}

/// The leadership, until it is resigned, dropped or lost. It dereferences to its [`Guard`].
#[derive(Debug)]
#[must_use = "dropping it resigns"]
pub struct Leadership {
    guard: Guard,
}

impl Leadership {
    /// Converts the leadership into its guard.
    pub fn into_guard(self) -> Guard {
        self.guard
    }

    /// Resigns, so that the next candidate can lead, and waits until the release is confirmed.
    pub async fn resign(self) -> Result<()> {
        self.guard.release().await
    }
}

impl std::ops::Deref for Leadership {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

/// The leader as observers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The value that it campaigned with.
    pub value: String,
    /// The leader's fence. It rises with every change of leader.
    pub fence: Option<Fence>,
    /// The holder: its tag and the time of its election.
    pub participant: Participant,
}

impl From<Participant> for Leader {
    fn from(participant: Participant) -> Leader {
        let value = participant.tag.metadata.get(VALUE).cloned().unwrap_or_default();
        Leader { value, fence: participant.fence, participant }
    }
}

/// Follows the changes of an election. It may skip changes in quick succession, but never the latest one.
pub struct Observer {
    locks: Lockkeeper,
    name: LockName,
    changes: Box<dyn Changes>,
    /// The result returned last; the inner `None` means that there is no leader.
    last: Option<Option<Leader>>,
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer").field("name", &self.name).field("last", &self.last).finish_non_exhaustive()
    }
}

impl Observer {
    /// Resolves with the new leader when the leader has changed since the last result; `None` if there is no leader.
    pub async fn next(&mut self) -> Result<Option<Leader>> {
        loop {
            let now =
                self.locks.inspect(self.name.as_str()).await?.holders.into_iter().next().map(Leader::from);
            if self.last.as_ref() != Some(&now) {
                self.last = Some(now.clone());
                return Ok(now);
            }
            self.changes.next().await?;
        }
    }
}
