//! Leader election: the leader is whoever holds a lock, and says something about itself.

use crate::engine::Changes;
use crate::{Fence, Guard, LockName, Lockkeeper, Participant, Result};
use std::time::Duration;
use tokio::time::Instant;

/// The metadata key of a candidate's value.
const VALUE: &str = "value";

/// An election, by name. It is a lock of that name: `locks` shows leader and candidates.
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

    /// How long leadership survives without renewal, on engines where holds expire.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Stands for election with a value that observers will see, such as an address.
    pub fn campaign(&self, value: impl Into<String>) -> Candidate {
        Candidate { election: self.clone(), value: value.into() }
    }

    /// Follows who leads. The first answer is who leads now.
    pub async fn observe(&self) -> Result<Observer> {
        self.check()?;
        let name = LockName::new(self.name.as_str())?;
        let changes = self.locks.changes(&name).await?;
        Ok(Observer { locks: self.locks.clone(), name, changes, last: None })
    }

    /// Who leads now.
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

/// A candidacy, not yet begun.
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

    /// Waits until elected.
    pub async fn elected(self) -> Result<Leadership> {
        Ok(Leadership { guard: self.request()?.acquire().await? })
    }

    /// Waits until elected or the deadline passed.
    pub async fn elected_by(self, deadline: Instant) -> Result<Option<Leadership>> {
        Ok(self.request()?.acquire_by(deadline).await?.map(|guard| Leadership { guard }))
    }
}

/// Being the leader, until resigned, dropped or lost. Everything a [`Guard`] offers is there.
#[derive(Debug)]
#[must_use = "dropping it resigns"]
pub struct Leadership {
    guard: Guard,
}

impl Leadership {
    /// The hold itself.
    pub fn into_guard(self) -> Guard {
        self.guard
    }

    /// Lets the next candidate lead, and waits until that is so.
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

/// Who leads, as observers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// What it campaigned with.
    pub value: String,
    /// Its fence; it rises with every change of leader.
    pub fence: Option<Fence>,
    /// Who it is and since when.
    pub participant: Participant,
}

impl From<Participant> for Leader {
    fn from(participant: Participant) -> Leader {
        let value = participant.tag.metadata.get(VALUE).cloned().unwrap_or_default();
        Leader { value, fence: participant.fence, participant }
    }
}

/// Follows the changes of an election. Quick changes in between may be skipped; the latest one never is.
pub struct Observer {
    locks: Lockkeeper,
    name: LockName,
    changes: Box<dyn Changes>,
    /// The answer given last; the inner `None` is "nobody leads".
    last: Option<Option<Leader>>,
}

impl Observer {
    /// Resolves with the leader when it is another one than last time; `None` if nobody leads.
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
