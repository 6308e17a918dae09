//! Clients: each wants one lock after another, holds it for a while, and uses it only while its lease runs.

use super::spec::{ClusterSpec, MS};
use lockkeeper_lab::rng::Rng;
use lockkeeper_member::{Claim, ClientSession, Ended, Flaw, LockName, Progress, SessionId, Wish};

/// What a client does with its wish.
#[derive(Clone, Debug)]
pub struct Errand {
    /// What it wants.
    pub wish: Wish,
    /// Since when, whatever sessions it took.
    pub since_ns: u64,
    /// The number of the acquisition in the present session.
    pub number: u64,
    /// Since when it holds, and until when it means to.
    pub inside: Option<(u64, u64)>,
    /// When it gives up, if it does.
    pub gives_up_ns: Option<u64>,
    /// When it asks again, after its member had no room for the lock.
    pub asks_again_ns: Option<u64>,
}

/// A client.
#[derive(Clone, Debug)]
pub struct Client {
    /// Its session.
    pub session: ClientSession,
    /// With which member.
    pub member: usize,
    /// What it is about.
    pub errand: Option<Errand>,
    /// When it wants something next.
    pub next_wish_ns: u64,
    /// When it last heard anything of its member.
    pub heard_ns: u64,
    /// Whether its next wake is planned, and when.
    pub wake_ns: u64,
    number: u64,
    sessions: u64,
    /// What it wanted last: often it wants the same again.
    last: Option<Wish>,
    flaw: Option<Flaw>,
    rng: Rng,
}

/// For how long clients keep what they do not use: as long as they take between two wishes, so that they often enter again.
const KEPT_NS: u64 = 300 * MS;

/// What a client's look at its own affairs came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing new.
    Waits,
    /// It has something to say to its member.
    Speaks,
    /// It is inside, from now on.
    Enters,
    /// It has left by itself.
    Leaves,
    /// Its session is gone, and it begins another one; whether something was held is told.
    LosesSession { held: bool },
}

impl Client {
    /// A client at some member.
    pub fn new(number: u64, spec: &ClusterSpec, mut rng: Rng, flaw: Option<Flaw>) -> Self {
        let member = rng.below(spec.members);
        let next_wish_ns = 500 * MS + rng.below(1_500 * MS as usize) as u64;
        Self {
            session: session(number, 0, flaw),
            member,
            errand: None,
            next_wish_ns,
            heard_ns: 0,
            wake_ns: 0,
            number,
            sessions: 0,
            last: None,
            flaw,
            rng,
        }
    }

    /// Begins another session, at this member or another.
    pub fn new_session(&mut self, now: u64, members: usize) {
        self.sessions += 1;
        self.session = session(self.number, self.sessions, self.flaw);
        if self.rng.chance(0.7) {
            self.member = self.rng.below(members);
        }
        self.heard_ns = now;
        if let Some(errand) = &mut self.errand {
            errand.inside = None;
            errand.number = self.session.acquire(errand.wish.clone());
        }
    }

    /// Looks after its own affairs, at this true time and this reading of its clock.
    pub fn step(&mut self, now: u64, clock: u64, spec: &ClusterSpec) -> Step {
        let held = self.errand.as_ref().is_some_and(|errand| errand.inside.is_some());
        if self.session.is_lost(clock) || now > self.heard_ns + 2_000 * MS {
            return Step::LosesSession { held };
        }
        if self.errand.is_none() && now >= self.next_wish_ns {
            self.errand = Some(self.errand(now, clock, spec));
            return Step::Speaks;
        }
        // What is given back is said until it is answered; who is inside only matters to people.
        if !self.session.stop_keeping(clock).is_empty() {
            return Step::Speaks;
        }
        let Some(errand) = &mut self.errand else { return Step::Waits };
        match (self.session.progress(errand.number), errand.inside) {
            (Some(Progress::Held(_)), Some((_, until))) if now >= until => {
                if !self.session.put_down(clock, errand.number) {
                    self.session.release(errand.number);
                }
                self.done(now);
                Step::Leaves
            }
            (Some(Progress::Held(_)), None) if self.session.may_use(clock, errand.number) => {
                // Most stay for a moment, some for longer than a lease; after the faults nobody keeps the others waiting for long.
                let long = self.rng.chance(0.15) && now < spec.chaos_ns;
                let mean = if long { 1_500.0 } else { 80.0 };
                let stay = (self.rng.exponential(mean * MS as f64) as u64).min(4_000 * MS);
                errand.inside = Some((now, now + stay));
                Step::Enters
            }
            (Some(Progress::Waiting(_)), _) if errand.gives_up_ns.is_some_and(|at| now >= at) => {
                self.session.release(errand.number);
                self.done(now);
                Step::Speaks
            }
            (Some(Progress::Over(Ended::Full { .. })), _) => match errand.asks_again_ns.take() {
                None => {
                    errand.asks_again_ns = Some(now + 100 * MS);
                    Step::Waits
                }
                Some(at) if now < at => {
                    errand.asks_again_ns = Some(at);
                    Step::Waits
                }
                Some(_) => {
                    errand.number = self.session.acquire(errand.wish.clone());
                    Step::Speaks
                }
            },
            (Some(Progress::Leaving | Progress::Over(_)) | None, _) => {
                self.done(now);
                Step::Leaves
            }
            _ => Step::Waits,
        }
    }

    fn done(&mut self, now: u64) {
        self.errand = None;
        // Some want more at once, which is when they may enter again while others wait.
        let at_once = self.rng.chance(0.2);
        self.next_wish_ns = if at_once { now } else { now + self.rng.exponential(150.0 * MS as f64) as u64 };
    }

    fn errand(&mut self, now: u64, clock: u64, spec: &ClusterSpec) -> Errand {
        let again = self.last.take().filter(|_| self.rng.chance(0.4));
        let wish = again.unwrap_or_else(|| self.wish(spec));
        self.last = Some(wish.clone());
        let gives_up_ns = self.rng.chance(0.05).then(|| now + self.rng.below(600 * MS as usize) as u64);
        let kept = self.session.enter_again(clock, &wish);
        let number = kept.unwrap_or_else(|| self.session.acquire(wish.clone()));
        Errand { wish, since_ns: now, number, inside: None, gives_up_ns, asks_again_ns: None }
    }

    fn wish(&mut self, spec: &ClusterSpec) -> Wish {
        let rng = &mut self.rng;
        if spec.jobs > 0 && rng.chance(0.6) {
            return Wish::of(LockName::new(format!("job-{}", rng.below(spec.jobs))));
        }
        let place = rng.below(spec.mutexes + 2);
        // One name is one lock: each of them is wanted in every way, mostly in one.
        let (name, mostly) = match place.checked_sub(spec.mutexes) {
            None => (format!("mutex-{place}"), Claim::Alone),
            Some(0) => ("book".into(), Claim::Shared),
            Some(_) => ("seats".into(), Claim::Permit(2)),
        };
        let claim = match rng.below(10) {
            0 => Claim::Permit(2),
            1 => Claim::Shared,
            2 => Claim::Alone,
            3 if place > spec.mutexes => Claim::Permit(3),
            _ => mostly,
        };
        let mut wish = Wish { claim, ..Wish::of(LockName::new(name)) };
        match rng.below(20) {
            0 => wish.patience_ns = Some(0),
            1 => wish.patience_ns = Some(rng.below(800 * MS as usize) as u64),
            2 => wish.longest_hold_ns = Some(rng.below(100 * MS as usize) as u64),
            _ => {}
        }
        if rng.chance(0.5) {
            wish.more = 1 + rng.below(4) as u32;
        }
        wish
    }

    /// When to look again.
    pub fn next_look(&self, now: u64) -> u64 {
        let beat = now + 150 * MS;
        match &self.errand {
            None => beat.min(self.next_wish_ns),
            Some(errand) => match (errand.inside, errand.gives_up_ns) {
                (Some((_, until)), _) => beat.min(until),
                (None, Some(at)) => beat.min(at.max(now + MS)),
                (None, None) => beat,
            },
        }
    }
}

fn session(client: u64, number: u64, flaw: Option<Flaw>) -> ClientSession {
    let mut session = ClientSession::new(SessionId { client, number });
    session.kept_ns = KEPT_NS;
    session.flaw = flaw;
    session
}
