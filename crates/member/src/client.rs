//! The client's half of a session: when it may use what it holds.

use crate::kept::Kept;
use crate::{Birth, Ended, Fence, Flaw, SessionId, ToClient, ToMember, Wish};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// For how long after it was granted a client may keep what it does not use. Whoever else wants it is heard earlier, unless the lock's
/// algorithm cannot tell: so this bounds how long others wait for nothing.
pub const KEPT_NS: u64 = 10_000_000;

/// Where an acquisition stands, as its client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Asked for.
    Waiting(Wish),
    /// Held, with this fence; usable only while the session's lease runs.
    Held(Option<Fence>),
    /// Held still, with this fence used last, and used by nobody.
    Kept(Option<Fence>),
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
    /// How many of them have ended since the last keep-alive.
    ended: u64,
    next: u64,
    /// What the member lets this client enter again by itself.
    kept: BTreeMap<u64, Kept>,
    /// For how long: [`KEPT_NS`], but the lab has its own idea of time.
    pub kept_ns: u64,
    /// Wrong on purpose, for the lab.
    pub flaw: Option<Flaw>,
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
            ended: 0,
            next: 0,
            kept: BTreeMap::new(),
            kept_ns: KEPT_NS,
            flaw: None,
        }
    }

    /// The session that follows a lost one: what waited waits on, under the same numbers, to be asked for in the same order. What
    /// was held is lost.
    pub fn again(&self, id: SessionId) -> Self {
        let waiting =
            self.acquisitions.iter().filter(|(_, progress)| matches!(progress, Progress::Waiting(_)));
        let acquisitions = waiting.map(|(&number, progress)| (number, progress.clone())).collect();
        Self { acquisitions, next: self.next, kept_ns: self.kept_ns, flaw: self.flaw, ..Self::new(id) }
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

    /// Whether the session's lease has expired; otherwise a lost session is one that its member does not know.
    pub(crate) fn has_expired(&self, now: u64) -> bool {
        self.alive && now >= self.lease_until_ns
    }

    /// Whether an acquisition is not over.
    pub(crate) fn is_busy(&self) -> bool {
        self.acquisitions.values().any(|progress| !matches!(progress, Progress::Over(_)))
    }

    /// Whether something is held, or given back and not answered yet.
    pub(crate) fn is_used(&self) -> bool {
        let used = |progress: &Progress| matches!(progress, Progress::Held(_) | Progress::Leaving);
        self.acquisitions.values().any(used)
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
        self.kept.remove(&number);
        if let Some(progress @ (Progress::Waiting(_) | Progress::Held(_) | Progress::Kept(_))) =
            self.acquisitions.get_mut(&number)
        {
            *progress = Progress::Leaving;
        }
    }

    /// Uses it no more, for the moment: where the member lets the client, it keeps it, and there is nothing to be said now; the driver
    /// [stops keeping](Self::stop_keeping) it, at once if somebody waits and nobody has entered again. Otherwise it is to be
    /// [released](Self::release).
    pub fn put_down(&mut self, now: u64, number: u64) -> bool {
        let Some(kept) = self.kept.get(&number) else { return false };
        let Some(progress) = self.acquisitions.get_mut(&number) else { return false };
        let Progress::Held(fence) = *progress else { return false };
        let keeps = kept.may_go_on(now) && !self.lost && now < self.lease_until_ns;
        if keeps {
            *progress = Progress::Kept(fence);
        }
        keeps
    }

    /// Enters again what is kept and nobody uses, without a word to the member: gives the number of the acquisition, which is
    /// [held](Progress::Held) again, with the fence that follows. `None` if such a wish has to be asked for.
    pub fn enter_again(&mut self, now: u64, wish: &Wish) -> Option<u64> {
        if self.kept.is_empty() || self.lost || now >= self.lease_until_ns {
            return None;
        }
        let (&number, kept) = self.kept.iter_mut().find(|(number, kept)| {
            kept.is_for(wish) && matches!(self.acquisitions.get(number), Some(Progress::Kept(_)))
        })?;
        let progress = self.acquisitions.get_mut(&number)?;
        let Progress::Kept(fence) = *progress else { return None };
        let fence = kept.enter(now, fence, &wish.tag)?;
        *progress = Progress::Held(fence);
        Some(number)
    }

    /// How many more entries a grant allowed, and how many of them were made by now.
    pub fn entries(&self, number: u64) -> (u32, u32) {
        self.kept.get(&number).map_or((0, 0), Kept::entries)
    }

    /// Whether somebody waits for what is kept.
    pub fn is_brief(&self, number: u64) -> bool {
        self.kept.get(&number).is_some_and(|kept| kept.brief)
    }

    /// When to [stop keeping](Self::stop_keeping) the next of what is kept: at once if others wait and it is unused.
    pub fn keeps_until_ns(&self) -> Option<u64> {
        let until = |(number, kept): (&u64, &Kept)| {
            let unused = || matches!(self.acquisitions.get(number), Some(Progress::Kept(_)));
            if kept.brief && unused() { 0 } else { kept.until_ns }
        };
        self.kept.iter().map(until).min()
    }

    /// Keeps nothing any more whose time is over; nothing at all at [`u64::MAX`]. Gives what is to be said.
    pub fn stop_keeping(&mut self, now: u64) -> Vec<ToMember> {
        if self.kept.is_empty() {
            return Vec::new();
        }
        let unused = |number: &u64| matches!(self.acquisitions.get(number), Some(Progress::Kept(_)));
        let over = |(number, kept): &(&u64, &Kept)| now >= kept.until_ns || (kept.brief && unused(number));
        let over: Vec<u64> = self.kept.iter().filter(over).map(|(&number, _)| number).collect();
        over.into_iter().filter_map(|number| self.keep_no_more(number)).collect()
    }

    /// Gives it back if nobody uses it; otherwise whoever does is the last one.
    fn keep_no_more(&mut self, number: u64) -> Option<ToMember> {
        match *self.acquisitions.get(&number)? {
            Progress::Kept(_) => {
                self.release(number);
                Some(ToMember::Release { number })
            }
            Progress::Held(fence) => {
                let tag = self.kept.remove(&number).map(Kept::into_tag).unwrap_or_default();
                Some(ToMember::InUse { number, fence, tag })
            }
            _ => None,
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
        // A client may hold a million locks, and says this often.
        if core::mem::take(&mut self.ended) > 0 {
            self.acquisitions.retain(|_, progress| !matches!(progress, Progress::Over(_)));
        }
        ToMember::KeepAlive { sent_ns: now, first: !self.alive, settled: self.settle() }
    }

    /// What to send now: a keep-alive, and everything that is not answered yet.
    pub fn say(&mut self, now: u64) -> Vec<ToMember> {
        let mut said = Vec::from([self.keep_alive(now)]);
        let settled = self.settle();
        said.extend(self.acquisitions.iter().filter_map(|(&number, progress)| match progress {
            Progress::Waiting(wish) => Some(ToMember::Acquire { number, settled, wish: wish.clone() }),
            Progress::Leaving => Some(ToMember::Release { number }),
            Progress::Held(_) | Progress::Kept(_) | Progress::Over(_) => None,
        }));
        said
    }

    /// The member answers. A grant is worth nothing unless the lease runs when it arrives. Gives what is to be said to that at once.
    pub fn hear(&mut self, now: u64, said: ToClient) -> Option<ToMember> {
        if self.is_lost(now) {
            return None;
        }
        // Another birth knows nothing of what this one was granted.
        if let ToClient::Alive { birth, .. } | ToClient::Granted { birth, .. } = said
            && *self.birth.get_or_insert(birth) != birth
        {
            self.lost = true;
            return None;
        }
        match said {
            ToClient::Alive { sent_ns, duration_ns, revoked, .. } => {
                self.alive = true;
                for number in revoked {
                    self.release(number);
                }
                let from_arrival = self.flaw == Some(Flaw::ClientLeaseFromArrival);
                let from = if from_arrival { now } else { sent_ns.min(now) };
                self.lease_until_ns = self.lease_until_ns.max(from.saturating_add(duration_ns));
            }
            ToClient::Granted { number, fence, more, brief, .. } => {
                if let Some(progress @ Progress::Waiting(_)) = self.acquisitions.get_mut(&number) {
                    let granted = core::mem::replace(progress, Progress::Held(fence));
                    if let (Progress::Waiting(wish), 1..) = (granted, more) {
                        let for_ever = self.flaw == Some(Flaw::KeptForEver);
                        let kept_ns = if for_ever { u64::MAX } else { self.kept_ns };
                        self.kept.insert(number, Kept::new(wish, more, brief, now.saturating_add(kept_ns)));
                    }
                }
            }
            ToClient::Wanted { number } => return self.is_wanted(number),
            ToClient::Ended { number, how: Ended::Revoked } => match self.acquisitions.get(&number) {
                Some(Progress::Held(_) | Progress::Kept(_) | Progress::Waiting(_)) => self.release(number),
                Some(_) => self.over(number, Ended::Revoked),
                None => {}
            },
            ToClient::Ended { number, how } => self.over(number, how),
            ToClient::NoSession => self.lost |= self.alive,
        }
        None
    }

    fn over(&mut self, number: u64, how: Ended) {
        self.kept.remove(&number);
        if let Some(progress) = self.acquisitions.get_mut(&number) {
            *progress = Progress::Over(how);
            self.ended += 1;
        }
    }

    /// Somebody else waits for what this client may keep.
    fn is_wanted(&mut self, number: u64) -> Option<ToMember> {
        let keeps = self.flaw == Some(Flaw::KeptForEver) || !self.kept.contains_key(&number);
        if keeps { None } else { self.keep_no_more(number) }
    }
}
