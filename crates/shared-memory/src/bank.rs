//! The bank: ATMs that deposit into one account, without a lock and with each of the locks.
//!
//! A deposit reads the balance, adds to it, and writes it back. Of two that overlap, one is lost: [`interleave`] shows
//! it step by step, [`without_lock`] with real threads; [`with_lock`] shows that a lock prevents it, and measures the
//! cost.

use crate::{
    Algorithm, Bakery, BlackWhiteBakery, Clh, Dijkstra, EisenbergMcGuire, Filter, Mcs, Mutex, MutexGuard,
    Peterson, Semaphore, Slot, Szymanski, TestAndSet, Ticket, sync::Padded,
};
use serde::Serialize;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// The initial balance of the account, in dollars.
pub const START: u64 = 1_000;
/// The deposit at each of the two ATMs of the example, in dollars.
pub const DEPOSIT: u64 = 10_000;
/// The name of `std::sync::Mutex` among the locks.
pub const STD: &str = "std-mutex";

/// One step of an ATM of the example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The number of the ATM, from 1.
    pub atm: usize,
    /// The description of the step.
    pub what: String,
    /// The balance after the step, in dollars.
    pub balance: u64,
}

/// Deposits [`DEPOSIT`] at each ATM. The ATMs take their steps in the order of `schedule`: each reads the balance the
/// first time it is named, adds the second time, and writes the third.
pub fn interleave(schedule: &[usize]) -> Vec<Step> {
    let atms = schedule.iter().max().map_or(0, |&last| last + 1);
    let mut balance = START;
    // The number of steps that each ATM has taken, and the amount that it has read or computed.
    let mut local = vec![(0, 0); atms];
    let step = |&atm: &usize| {
        let (taken, amount) = &mut local[atm];
        *taken += 1;
        let what = match *taken {
            1 => {
                *amount = balance;
                format!("reads ${}", dollars(balance))
            }
            2 => {
                *amount += DEPOSIT;
                format!("adds ${}: ${}", dollars(DEPOSIT), dollars(*amount))
            }
            3 => {
                balance = *amount;
                format!("writes ${}", dollars(balance))
            }
            _ => "has nothing left to do".to_string(),
        };
        Step { atm: atm + 1, what, balance }
    };
    schedule.iter().map(step).collect()
}

/// The schedule in which two ATMs read before either writes.
pub const BOTH_READ_FIRST: [usize; 6] = [0, 1, 0, 1, 0, 1];

/// Formats an amount with thousands separators, such as `21,000`.
pub fn dollars(amount: u64) -> String {
    let digits = amount.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The number of ATMs and of deposits of one dollar.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The number of threads; at least one.
    pub atms: usize,
    /// The total number of deposits, or the least number if `at_least` is not zero.
    pub deposits: u64,
    /// The least duration of a run: the ATMs make further deposits until it is over.
    pub at_least: Duration,
}

/// The result of a [`Plan`].
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The name of the lock; `None` without a lock.
    pub lock: Option<&'static str>,
    /// The number of deposits made.
    pub deposits: u64,
    /// The balance that the account should have, in dollars.
    pub expected: u64,
    /// The balance that it has.
    pub balance: u64,
    /// The duration of the run.
    pub seconds: f64,
    /// The share of that duration in which all ATMs were at work: between the last start and the first end.
    pub overlap: f64,
    /// Deposits per second.
    pub per_second: f64,
    /// The number of deposits of each ATM.
    pub by_atm: Vec<u64>,
    /// Jain's index of these: 1 if all made the same number, 1/N if one made them all.
    pub jain: f64,
    /// The most deposits that other ATMs made while one waited for its own.
    pub longest_wait: u64,
}

impl Run {
    fn new(lock: Option<&'static str>, balance: u64, seen: Vec<Seen>, took: Took) -> Self {
        let by_atm: Vec<u64> = seen.iter().map(|seen| seen.deposits).collect();
        let seconds = took.all.as_secs_f64();
        let deposits: u64 = by_atm.iter().sum();
        Self {
            lock,
            deposits,
            expected: START + deposits,
            balance,
            seconds,
            overlap: took.together.as_secs_f64() / seconds.max(1e-9),
            per_second: deposits as f64 / seconds.max(1e-9),
            jain: jain(&by_atm),
            by_atm,
            longest_wait: seen.iter().map(|seen| seen.longest_wait).max().unwrap_or(0),
        }
    }

    /// Whether no deposit is lost.
    pub fn right(&self) -> bool {
        self.balance == self.expected
    }
}

fn jain(counts: &[u64]) -> f64 {
    let sum: f64 = counts.iter().map(|&count| count as f64).sum();
    let squares: f64 = counts.iter().map(|&count| (count as f64) * (count as f64)).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (counts.len() as f64 * squares) }
}

/// The measurements of one ATM.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    deposits: u64,
    longest_wait: u64,
}

/// Reports the number of deposits in batches: reporting each of them would be a second point of contention.
struct Counter<'a> {
    progress: &'a AtomicU64,
    unreported: u64,
}

impl Counter<'_> {
    const EVERY: u64 = 1024;

    fn count(&mut self) {
        self.unreported += 1;
        if self.unreported == Self::EVERY {
            self.progress.fetch_add(std::mem::take(&mut self.unreported), Ordering::Relaxed);
        }
    }
}

impl Drop for Counter<'_> {
    fn drop(&mut self) {
        self.progress.fetch_add(self.unreported, Ordering::Relaxed);
    }
}

/// Without a lock, an ATM yields between its read and its write in one of this many deposits. Otherwise a thread makes
/// thousands of deposits before another gets to run at all, and the bug is seldom visible.
const YIELD_EVERY: u64 = 64;

/// Runs threads that read, add and write without a lock. The balance is an atomic, so that the result is wrong but not
/// undefined behaviour. Each ATM makes its share of the deposits.
pub fn without_lock(plan: Plan, progress: &AtomicU64) -> Run {
    let balance = AtomicU64::new(START);
    let share = |atm: usize| {
        let (atms, atm) = (plan.atms as u64, atm as u64);
        plan.deposits / atms + u64::from(atm < plan.deposits % atms)
    };
    let timer = Timer::new(plan.at_least);
    let (seen, took) = at_once((0..plan.atms).collect(), |atm| {
        let mut counter = Counter { progress, unreported: 0 };
        let mut made = 0;
        while made < share(atm) || !timer.is_over(made) {
            let amount = balance.load(Ordering::Relaxed);
            if made.is_multiple_of(YIELD_EVERY) {
                std::thread::yield_now();
            }
            balance.store(amount + 1, Ordering::Relaxed);
            made += 1;
            counter.count();
        }
        Seen { deposits: made, longest_wait: 0 }
    });
    Run::new(None, balance.into_inner(), seen, took)
}

/// Runs threads that deposit under the lock of this name in [`crate::ALL`], or [`STD`]; `None` if there is no such
/// lock.
pub fn with_lock(lock: &str, plan: Plan, progress: &AtomicU64) -> Option<Run> {
    let run = match lock {
        "dijkstra" => with_slots::<Dijkstra>,
        "eisenberg-mcguire" => with_slots::<EisenbergMcGuire>,
        "bakery" => with_slots::<Bakery>,
        "peterson" => with_slots::<Peterson>,
        "filter" => with_slots::<Filter>,
        "szymanski" => with_slots::<Szymanski>,
        "black-white-bakery" => with_slots::<BlackWhiteBakery>,
        "test-and-set" => with_slots::<TestAndSet>,
        "semaphore" => with_slots::<Semaphore>,
        "ticket" => with_slots::<Ticket>,
        "mcs" => with_slots::<Mcs>,
        "clh" => with_slots::<Clh>,
        STD => with_std,
        _ => return None,
    };
    Some(run(plan, progress))
}

fn with_slots<A: Algorithm>(plan: Plan, progress: &AtomicU64) -> Run {
    let bank = Mutex::<A, _>::new(plan.atms, Account::default());
    let tills = (0..plan.atms).map(|_| bank.slot().expect("as many slots as ATMs")).collect();
    let (seen, took) = deposit(plan, tills, progress);
    Run::new(Some(A::ABOUT.slug), bank.into_inner().balance, seen, took)
}

fn with_std(plan: Plan, progress: &AtomicU64) -> Run {
    let bank = std::sync::Mutex::new(Account::default());
    let (seen, took) = deposit(plan, vec![&bank; plan.atms], progress);
    let account = bank.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    Run::new(Some(STD), account.balance, seen, took)
}

/// The account, and the number of deposits made.
struct Account {
    balance: u64,
    made: u64,
}

impl Default for Account {
    fn default() -> Self {
        Self { balance: START, made: 0 }
    }
}

/// The access of an ATM to the account.
trait Till: Send {
    fn inside<R>(&mut self, f: impl FnOnce(&mut Account) -> R) -> R;
}

impl<A: Algorithm> Till for Slot<'_, A, Account> {
    fn inside<R>(&mut self, f: impl FnOnce(&mut Account) -> R) -> R {
        let mut account: MutexGuard<'_, A, Account> = self.lock();
        f(&mut account)
    }
}

impl Till for &std::sync::Mutex<Account> {
    fn inside<R>(&mut self, f: impl FnOnce(&mut Account) -> R) -> R {
        f(&mut self.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

/// Deposits until all deposits of the plan are made. The share of each ATM depends on the lock.
fn deposit(plan: Plan, tills: Vec<impl Till>, progress: &AtomicU64) -> (Vec<Seen>, Took) {
    let made = Padded(AtomicU64::new(0));
    let timer = Timer::new(plan.at_least);
    at_once(tills, |mut till| {
        let mut counter = Counter { progress, unreported: 0 };
        let mut seen = Seen::default();
        loop {
            let before = made.0.load(Ordering::Relaxed);
            let others = till.inside(|account| {
                let others = account.made - before;
                if account.made >= plan.deposits && timer.is_over(account.made) {
                    return None;
                }
                account.balance += 1;
                account.made += 1;
                made.0.store(account.made, Ordering::Relaxed);
                Some(others)
            });
            let Some(others) = others else { return seen };
            seen.deposits += 1;
            seen.longest_wait = seen.longest_wait.max(others);
            counter.count();
        }
    })
}

/// The least duration of a run.
struct Timer {
    /// The time of the first call of [`is_over`](Self::is_over): the threads may have waited long for each other before.
    started: OnceLock<Instant>,
    at_least: Duration,
    is_over: AtomicBool,
}

impl Timer {
    /// The clock is read after this many deposits.
    const EVERY: u64 = 64;

    fn new(at_least: Duration) -> Self {
        Self { started: OnceLock::new(), at_least, is_over: AtomicBool::new(at_least.is_zero()) }
    }

    /// Whether the duration is over, after `made` deposits.
    fn is_over(&self, made: u64) -> bool {
        if made.is_multiple_of(Self::EVERY)
            && self.started.get_or_init(Instant::now).elapsed() >= self.at_least
        {
            self.is_over.store(true, Ordering::Relaxed);
        }
        self.is_over.load(Ordering::Relaxed)
    }
}

/// The times of a run of several threads.
#[derive(Clone, Copy, Debug)]
struct Took {
    /// From the first start to the last end.
    all: Duration,
    /// From the last start to the first end: all threads are at work.
    together: Duration,
}

/// Runs `work` on one thread for each item, all from the same moment on.
fn at_once<W: Send, R: Send>(items: Vec<W>, work: impl Fn(W) -> R + Sync) -> (Vec<R>, Took) {
    let missing = AtomicUsize::new(items.len());
    let (missing, work) = (&missing, &work);
    let run = move |one: W| {
        missing.fetch_sub(1, Ordering::Relaxed);
        // Polls instead of sleeping at a barrier, where the first thread to wake may be done before the next one wakes.
        while missing.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        let started = Instant::now();
        (work(one), started, Instant::now())
    };
    let all: Vec<(R, Instant, Instant)> = std::thread::scope(|scope| {
        let threads: Vec<_> = items.into_iter().map(|one| scope.spawn(move || run(one))).collect();
        let join = |thread: ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    });
    let starts = || all.iter().map(|(_, started, _)| *started);
    let ends = || all.iter().map(|(.., ended)| *ended);
    let between = |from: Option<Instant>, to: Option<Instant>| {
        from.zip(to).map_or(Duration::ZERO, |(from, to)| to.saturating_duration_since(from))
    };
    let took =
        Took { all: between(starts().min(), ends().max()), together: between(starts().max(), ends().min()) };
    (all.into_iter().map(|(seen, ..)| seen).collect(), took)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn two_atms_that_read_before_either_writes_lose_a_deposit() {
        let steps = interleave(&BOTH_READ_FIRST);
        let descriptions: Vec<String> =
            steps.iter().map(|step| format!("ATM {} {}", step.atm, step.what)).collect();
        let expected = [
            "ATM 1 reads $1,000",
            "ATM 2 reads $1,000",
            "ATM 1 adds $10,000: $11,000",
            "ATM 2 adds $10,000: $11,000",
            "ATM 1 writes $11,000",
            "ATM 2 writes $11,000",
        ];
        assert_eq!(descriptions, expected);
        assert_eq!(steps.last().unwrap().balance, 11_000);
        assert_eq!(interleave(&[0, 0, 0, 1, 1, 1]).last().unwrap().balance, 21_000, "one after the other");
    }

    #[test]
    fn every_lock_keeps_every_deposit() {
        let deposits = if cfg!(miri) { 50 } else { 5_000 };
        let plan = Plan { atms: 3, deposits, at_least: Duration::ZERO };
        for lock in crate::ALL.iter().map(|about| about.slug).chain([STD]) {
            let progress = AtomicU64::new(0);
            let run = with_lock(lock, plan, &progress).expect(lock);
            assert_eq!((run.lock, run.balance), (Some(lock), START + deposits), "{lock}");
            assert_eq!(run.by_atm.iter().sum::<u64>(), deposits, "{lock}");
            assert_eq!(progress.into_inner(), deposits, "{lock}");
            assert!(run.right() && run.jain > 0.33 && run.jain <= 1.0 + 1e-9, "{run:?}");
        }
        assert!(with_lock("bakeri", plan, &AtomicU64::new(0)).is_none());
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri's clock is too slow for it")]
    fn a_least_duration_is_kept_and_all_deposits_are_counted() {
        let plan = Plan { atms: 2, deposits: 10, at_least: Duration::from_millis(20) };
        let without = without_lock(plan, &AtomicU64::new(0));
        let with = with_lock("bakery", plan, &AtomicU64::new(0)).expect("bakery");
        for run in [&without, &with] {
            assert!(run.seconds >= 0.02 && run.deposits > 10, "{run:?}");
            assert_eq!(run.by_atm.iter().sum::<u64>(), run.deposits);
            assert!((0.0..=1.0).contains(&run.overlap), "{run:?}");
        }
        assert!(with.right(), "{with:?}");
    }

    #[test]
    fn without_a_lock_the_balance_never_exceeds_the_deposits() {
        let plan = Plan { atms: 3, deposits: if cfg!(miri) { 50 } else { 5_000 }, at_least: Duration::ZERO };
        let run = without_lock(plan, &AtomicU64::new(0));
        assert!(run.balance > START && run.balance <= run.expected, "{run:?}");
        assert_eq!(run.by_atm.iter().sum::<u64>(), plan.deposits);
        let alone = without_lock(Plan { atms: 1, ..plan }, &AtomicU64::new(0));
        assert!(alone.right(), "a single ATM cannot lose a deposit");
    }

    #[test]
    fn amounts_have_thousands_separators() {
        assert_eq!(
            [0, 999, 1_000, 21_000, 1_234_567].map(dollars),
            ["0", "999", "1,000", "21,000", "1,234,567"]
        );
    }
}
