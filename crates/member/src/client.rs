//! The client's half of a session: when it may use what it holds.

use crate::{Birth, Ended, Fence, SessionId, ToClient, ToMember, Wish};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Where an acquisition stands, as its client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Asked for.
    Waiting(Wish),
    /// Held, with this fence; usable only while the session's lease runs.
    Held(Option<Fence>),
    /// Given back, or given up, and not answered yet.
    Leaving,
    /// Over.
    Over(Ended),
}

/// A client's session, as the client keeps it: a pure state machine beside [`Member`](crate::Member). Its driver sends what it is given,
/// and may send all of it again at any time.
#[derive(Clone, Debug)]
pub struct ClientSession {
    id: SessionId,
    /// Which birth of the session this is, once the member has said so; and whether it has promised anything.
    birth: Option<Birth>,
    alive: bool,
    /// Until then, on the client's own clock, it may use what it holds.
    lease_until_ns: u64,
    lost: bool,
    acquisitions: BTreeMap<u64, Progress>,
    next: u64,
    /// Wrong on purpose, for the lab: counts the lease from the answer's arrival.
    pub from_arrival: bool,
}

impl ClientSession {
    /// A new session; the id is never used twice.
    pub fn new(id: SessionId) -> Self {
        Self {
            id,
            birth: None,
            alive: false,
            lease_until_ns: 0,
            lost: false,
            acquisitions: BTreeMap::new(),
            next: 0,
            from_arrival: false,
        }
    }

    /// The session that follows a lost one: what waited waits on, under the same numbers, to be asked for in the same order. What
    /// was held is lost.
    pub fn again(&self, id: SessionId) -> Self {
        let waiting =
            self.acquisitions.iter().filter(|(_, progress)| matches!(progress, Progress::Waiting(_)));
        let acquisitions = waiting.map(|(&number, progress)| (number, progress.clone())).collect();
        Self { acquisitions, next: self.next, from_arrival: self.from_arrival, ..Self::new(id) }
    }

    /// What is waited for, in the order of asking.
    pub fn wishes(&self) -> Vec<(u64, Wish)> {
        let wish = |(&number, progress): (&u64, &Progress)| match progress {
            Progress::Waiting(wish) => Some((number, wish.clone())),
            _ => None,
        };
        self.acquisitions.iter().filter_map(wish).collect()
    }

    /// Until when, on the client's own clock, it may use what it holds, if nothing is renewed.
    pub fn lease_until_ns(&self) -> u64 {
        if self.lost { 0 } else { self.lease_until_ns }
    }

    /// Its id.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Whether the session is over: its lease ran out, or its member does not know it. It never comes back; open another one.
    pub fn is_lost(&mut self, now: u64) -> bool {
        self.lost |= self.alive && now >= self.lease_until_ns;
        self.lost
    }

    /// Whether its member has ever promised anything.
    pub fn is_alive(&self) -> bool {
        self.alive
    }

    /// Whether the acquisition may be used at this moment.
    pub fn may_use(&self, now: u64, number: u64) -> bool {
        let held = matches!(self.acquisitions.get(&number), Some(Progress::Held(_)));
        held && !self.lost && now < self.lease_until_ns
    }

    /// Where an acquisition stands.
    pub fn progress(&self, number: u64) -> Option<&Progress> {
        self.acquisitions.get(&number)
    }

    /// Wants a lock: gives the number of the acquisition.
    pub fn acquire(&mut self, wish: Wish) -> u64 {
        self.next += 1;
        self.acquisitions.insert(self.next, Progress::Waiting(wish));
        self.next
    }

    /// Uses it no more, or does not want it any more.
    pub fn release(&mut self, number: u64) {
        if let Some(progress @ (Progress::Waiting(_) | Progress::Held(_))) =
            self.acquisitions.get_mut(&number)
        {
            *progress = Progress::Leaving;
        }
    }

    /// The client has heard how every acquisition below this number ended. Forgets them.
    pub fn settle(&mut self) -> u64 {
        while let Some(first) = self.acquisitions.first_entry()
            && matches!(first.get(), Progress::Over(_))
        {
            first.remove();
        }
        self.acquisitions.first_key_value().map_or(self.next + 1, |(&number, _)| number)
    }

    /// The keep-alive to send now.
    pub fn keep_alive(&mut self, now: u64) -> ToMember {
        self.acquisitions.retain(|_, progress| !matches!(progress, Progress::Over(_)));
        ToMember::KeepAlive { sent_ns: now, first: !self.alive, settled: self.settle() }
    }

    /// What to send now: a keep-alive, and everything that is not answered yet.
    pub fn say(&mut self, now: u64) -> Vec<ToMember> {
        let mut said = Vec::from([self.keep_alive(now)]);
        let settled = self.settle();
        said.extend(self.acquisitions.iter().filter_map(|(&number, progress)| match progress {
            Progress::Waiting(wish) => Some(ToMember::Acquire { number, settled, wish: wish.clone() }),
            Progress::Leaving => Some(ToMember::Release { number }),
            Progress::Held(_) | Progress::Over(_) => None,
        }));
        said
    }

    /// The member answers. A grant is worth nothing unless the lease runs when it arrives.
    pub fn hear(&mut self, now: u64, said: ToClient) {
        if self.is_lost(now) {
            return;
        }
        // Another birth knows nothing of what this one was granted.
        if let ToClient::Alive { birth, .. } | ToClient::Granted { birth, .. } = said
            && *self.birth.get_or_insert(birth) != birth
        {
            self.lost = true;
            return;
        }
        match said {
            ToClient::Alive { sent_ns, duration_ns, revoked, .. } => {
                self.alive = true;
                for number in revoked {
                    self.release(number);
                }
                let from = if self.from_arrival { now } else { sent_ns.min(now) };
                self.lease_until_ns = self.lease_until_ns.max(from.saturating_add(duration_ns));
            }
            ToClient::Granted { number, fence, .. } => {
                if let Some(progress @ Progress::Waiting(_)) = self.acquisitions.get_mut(&number) {
                    *progress = Progress::Held(fence);
                }
            }
            ToClient::Ended { number, how: Ended::Revoked } => match self.acquisitions.get_mut(&number) {
                Some(progress @ (Progress::Held(_) | Progress::Waiting(_))) => *progress = Progress::Leaving,
                Some(progress) => *progress = Progress::Over(Ended::Revoked),
                None => {}
            },
            ToClient::Ended { number, how } => {
                if let Some(progress) = self.acquisitions.get_mut(&number) {
                    *progress = Progress::Over(how);
                }
            }
            ToClient::NoSession => self.lost |= self.alive,
        }
    }
}
