//! The event queue: events ordered by time, and by insertion where times are equal.

use crate::simulator::time::Time;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A queue of future events.
///
/// Events that are added in the order of their times (with constant delays, nearly all) go to a FIFO lane at
/// constant cost; the others go to a heap. Both have the same order, so callers cannot observe the split.
#[derive(Clone, Debug)]
pub struct Queue<E> {
    lane: VecDeque<Item<E>>,
    heap: BinaryHeap<Reverse<Item<E>>>,
    added: u64,
}

#[derive(Clone, Debug)]
struct Item<E> {
    at: Time,
    order: u64,
    event: E,
}

impl<E> Item<E> {
    fn key(&self) -> (Time, u64) {
        (self.at, self.order)
    }
}

impl<E> PartialEq for Item<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl<E> Eq for Item<E> {}
impl<E> PartialOrd for Item<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Item<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self { lane: VecDeque::new(), heap: BinaryHeap::new(), added: 0 }
    }
}

impl<E> Queue<E> {
    /// Adds an event.
    #[inline]
    pub fn push(&mut self, at: Time, event: E) {
        let item = Item { at, order: self.added, event };
        self.added += 1;
        if self.lane.back().is_none_or(|last| last.at <= at) {
            self.lane.push_back(item);
        } else {
            self.heap.push(Reverse(item));
        }
    }

    /// Removes the next event.
    #[inline]
    pub fn pop(&mut self) -> Option<(Time, E)> {
        let from_lane = match (self.lane.front(), self.heap.peek()) {
            (Some(lane), Some(Reverse(heap))) => lane.key() < heap.key(),
            (Some(_), None) => true,
            (None, _) => false,
        };
        let item = if from_lane { self.lane.pop_front()? } else { self.heap.pop()?.0 };
        Some((item.at, item.event))
    }

    /// All pending events, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &E> {
        self.lane.iter().chain(self.heap.iter().map(|Reverse(item)| item)).map(|item| &item.event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulator::rng::{Purpose, Rng};

    #[test]
    fn events_are_ordered_by_time_and_then_by_insertion() {
        let mut rng = Rng::new(1, Purpose::Network);
        let mut queue = Queue::default();
        let mut added: Vec<(Time, usize)> = Vec::new();
        let mut popped = Vec::new();
        let mut now = Time::ZERO;
        for number in 0..5_000 {
            let at = now + Time::from_ticks(rng.below(20) as u64);
            added.push((at, number));
            queue.push(at, number);
            if rng.chance(0.4) {
                let (time, event) = queue.pop().unwrap();
                now = time;
                popped.push((time, event));
            }
        }
        while let Some(next) = queue.pop() {
            popped.push(next);
        }
        added.sort();
        assert_eq!(popped, added);
    }
}
