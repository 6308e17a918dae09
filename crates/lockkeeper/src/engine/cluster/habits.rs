//! Which locks this client wants again and again: those it asks to keep for a while.
//!
//! A lock that is asked for once is given back when it is released, and others see it free. One that is asked for again within moments
//! is worth keeping: then only every so many entries cost a message.

use lockkeeper_member::{KEPT_NS, LockName};
use std::collections::BTreeMap;

/// How many more entries are asked for at first, and at most.
const FIRST: u32 = 16;
const MOST: u32 = 1024;
/// So many locks are remembered, and those of the last moments.
const REMEMBERED: usize = 64;

/// What was given back lately.
#[derive(Default)]
pub(super) struct Habits(BTreeMap<LockName, Habit>);

struct Habit {
    left_ns: u64,
    more: u32,
}

impl Habits {
    /// How many more entries to ask for.
    pub fn more(&self, now: u64, lock: &LockName) -> u32 {
        let lately = |habit: &&Habit| now < habit.left_ns.saturating_add(KEPT_NS);
        self.0.get(lock).filter(lately).map_or(0, |habit| habit.more)
    }

    /// Somebody has left; so many more entries were allowed, and so many of them made by now.
    pub fn left(&mut self, now: u64, lock: &LockName, allowed: u32, made: u32) {
        let more = match allowed {
            0 => FIRST,
            _ if made == allowed => allowed.saturating_mul(2).min(MOST),
            _ => (made * 2).clamp(FIRST, MOST),
        };
        if let Some(habit) = self.0.get_mut(lock) {
            *habit = Habit { left_ns: now, more };
            return;
        }
        if self.0.len() >= REMEMBERED {
            self.0.retain(|_, habit| now < habit.left_ns.saturating_add(KEPT_NS));
        }
        if self.0.len() < REMEMBERED {
            self.0.insert(lock.clone(), Habit { left_ns: now, more });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_again_and_again_is_kept_for_longer_and_longer() {
        let (mut habits, lock) = (Habits::default(), LockName::new("m"));
        assert_eq!(habits.more(0, &lock), 0);
        habits.left(0, &lock, 0, 0);
        assert_eq!(habits.more(KEPT_NS - 1, &lock), FIRST);
        assert_eq!(habits.more(KEPT_NS, &lock), 0);
        habits.left(0, &lock, 64, 64);
        assert_eq!(habits.more(1, &lock), 128);
        habits.left(0, &lock, MOST, MOST);
        assert_eq!(habits.more(1, &lock), MOST);
        habits.left(0, &lock, MOST, 3);
        assert_eq!(habits.more(1, &lock), FIRST);
    }

    #[test]
    fn few_are_remembered() {
        let mut habits = Habits::default();
        for n in 0..1000 {
            habits.left(n, &LockName::new(format!("{n}")), 0, 0);
        }
        assert!(habits.0.len() <= REMEMBERED);
        habits.left(1 << 40, &LockName::new("late"), 0, 0);
        assert_eq!(habits.0.len(), 1);
    }
}
