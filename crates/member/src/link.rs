//! One direction-pair between two members inside one view: exactly once, in order.
//!
//! The network below may lose, repeat and reorder. A link lives as long as its view: sequence numbers start again with
//! each epoch, and what an old epoch left unacknowledged dies with it.

use alloc::collections::{BTreeMap, VecDeque};
use serde::{Deserialize, Serialize};

/// What travels: a numbered payload, or an acknowledgement alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Packet<T> {
    /// Everything below this number has arrived here.
    pub acknowledged: u64,
    /// The payload and its number, counted from 0.
    pub payload: Option<(u64, T)>,
}

/// Whether what arrived is to be acknowledged. The next payload in the other direction does it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is not, or somebody will do it.
    None,
    /// After a while, unless something else is said before.
    Soon,
    /// It came twice: the other end waits for it. Or there are many.
    AtOnce,
}

/// Both halves of a link, as one end keeps them.
#[derive(Clone, Debug)]
pub(crate) struct Link<T> {
    /// Sent and not acknowledged, with the time of the last sending.
    unacknowledged: VecDeque<(u64, T)>,
    /// Everything from this number on is being sent again.
    resend_from: Option<u64>,
    next_to_send: u64,
    next_to_deliver: u64,
    /// Arrived ahead of their turn.
    early: BTreeMap<u64, T>,
    /// How many payloads have arrived since the other end was told last, and when the first of them did.
    owed: u32,
    owed_since_ns: u64,
    /// Somebody will look whether something is owed.
    looked_after: bool,
    last_sent_ns: u64,
    /// When the other end last made progress, or had nothing to make progress with.
    progress_ns: u64,
}

impl<T: Clone> Link<T> {
    /// How far ahead of its turn a payload may arrive: a limit on what a broken peer can make us keep. What is left out was not
    /// acknowledged, and comes again.
    const MOST_EARLY: u64 = 1 << 10;
    /// So many payloads are not acknowledged together.
    const MOST_OWED: u32 = 64;

    pub fn new(now: u64) -> Self {
        Self {
            unacknowledged: VecDeque::new(),
            resend_from: None,
            next_to_send: 0,
            next_to_deliver: 0,
            early: BTreeMap::new(),
            owed: 0,
            owed_since_ns: now,
            looked_after: false,
            last_sent_ns: now,
            progress_ns: now,
        }
    }

    /// A payload to be sent, as the packet that carries it.
    pub fn send(&mut self, now: u64, payload: T) -> Packet<T> {
        let number = self.next_to_send;
        self.next_to_send += 1;
        if self.unacknowledged.is_empty() {
            self.progress_ns = now;
            self.last_sent_ns = now;
        }
        self.unacknowledged.push_back((number, payload.clone()));
        self.owed = 0;
        Packet { acknowledged: self.next_to_deliver, payload: Some((number, payload)) }
    }

    /// Takes a packet in; gives what may be delivered now, in order, at most so much, and whether an acknowledgement is due.
    pub fn receive(&mut self, now: u64, packet: Packet<T>, most: usize, deliver: &mut VecDeque<T>) -> Answer {
        // Nobody can have what was not sent.
        if packet.acknowledged > self.next_to_send {
            return Answer::None;
        }
        while self.unacknowledged.front().is_some_and(|&(number, _)| number < packet.acknowledged) {
            self.unacknowledged.pop_front();
            self.progress_ns = now;
        }
        let Some((number, payload)) = packet.payload else { return Answer::None };
        let repeated = number < self.next_to_deliver;
        let window = self.next_to_deliver..self.next_to_deliver + Self::MOST_EARLY;
        if window.contains(&number) {
            self.early.insert(number, payload);
            self.deliver(most, deliver);
        }
        if self.owed == 0 {
            self.owed_since_ns = now;
        }
        self.owed += 1;
        if repeated || self.owed >= Self::MOST_OWED {
            return Answer::AtOnce;
        }
        // Where much is said, one look for many payloads is enough.
        if core::mem::replace(&mut self.looked_after, true) { Answer::None } else { Answer::Soon }
    }

    fn deliver(&mut self, most: usize, deliver: &mut VecDeque<T>) {
        for _ in 0..most {
            let Some(payload) = self.early.remove(&self.next_to_deliver) else { return };
            self.next_to_deliver += 1;
            deliver.push_back(payload);
        }
    }

    /// Whether something can be delivered that was left for later. It is not acknowledged yet.
    pub fn is_ready(&self) -> bool {
        self.early.contains_key(&self.next_to_deliver)
    }

    /// Gives at most so much of what was left for later.
    pub fn go_on_delivering(&mut self, now: u64, most: usize, deliver: &mut VecDeque<T>) {
        self.deliver(most, deliver);
        if self.owed == 0 {
            self.owed_since_ns = now;
        }
        self.owed = self.owed.saturating_add(1);
    }

    /// Somebody looks whether something is owed: gives when it has waited for long enough. Before that, somebody must look again then.
    pub fn acknowledges_at(&mut self, now: u64, wait_ns: u64) -> Option<u64> {
        let at = self.owed_since_ns + wait_ns;
        self.looked_after = self.owed > 0 && at > now;
        (self.owed > 0).then_some(at)
    }

    /// Whether the other end waits for an acknowledgement.
    pub fn owes(&self) -> bool {
        self.owed > 0
    }

    /// Takes a packet for delivered that was dropped: the flaw of that name.
    pub fn pretend(&mut self, packet: &Packet<T>) {
        if let Some((number, _)) = &packet.payload {
            self.next_to_deliver = self.next_to_deliver.max(number + 1);
        }
    }

    pub fn acknowledgement(&mut self) -> Packet<T> {
        self.owed = 0;
        Packet { acknowledged: self.next_to_deliver, payload: None }
    }

    /// From now on everything is sent again that has waited for so long for its acknowledgement; tells whether there is anything.
    pub fn resend(&mut self, now: u64, after_ns: u64) -> bool {
        if !self.unacknowledged.is_empty() && now >= self.last_sent_ns + after_ns {
            self.last_sent_ns = now;
            self.resend_from = Some(0);
        }
        self.resends()
    }

    /// Whether something is being sent again.
    pub fn resends(&self) -> bool {
        self.resend_from.is_some()
    }

    /// The next packets that are sent again, at most so many.
    pub fn go_on_resending(&mut self, most: usize) -> impl Iterator<Item = Packet<T>> + '_ {
        let first = self.unacknowledged.front().map_or(self.next_to_send, |&(number, _)| number);
        let skipped = self.resend_from.map(|from| from.saturating_sub(first) as usize);
        let skipped = skipped.unwrap_or(self.unacknowledged.len()).min(self.unacknowledged.len());
        let again = most.min(self.unacknowledged.len() - skipped);
        let all = skipped + again == self.unacknowledged.len();
        self.resend_from = self.resend_from.map(|_| first + (skipped + again) as u64).filter(|_| !all);
        if again > 0 {
            self.owed = 0;
        }
        let acknowledged = self.next_to_deliver;
        let packet = move |(number, payload): &(u64, T)| Packet {
            acknowledged,
            payload: Some((*number, payload.clone())),
        };
        self.unacknowledged.iter().skip(skipped).take(again).map(packet)
    }

    /// What is left of a link whose view is over.
    pub fn into_unacknowledged(self) -> VecDeque<(u64, T)> {
        self.unacknowledged
    }

    /// Whether something has been waiting for its acknowledgement for so long that the link must be cut.
    pub fn is_stuck(&self, now: u64, after_ns: u64) -> bool {
        !self.unacknowledged.is_empty() && now >= self.progress_ns + after_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn take(link: &mut Link<u32>, packet: Packet<u32>) -> Vec<u32> {
        let mut delivered = VecDeque::new();
        link.receive(0, packet, usize::MAX, &mut delivered);
        delivered.into()
    }

    #[test]
    fn what_is_said_anyway_acknowledges() {
        let (mut a, mut b) = (Link::new(0), Link::new(0));
        let first = a.send(0, 10);
        assert_eq!(b.receive(0, first.clone(), usize::MAX, &mut VecDeque::new()), Answer::Soon);
        assert!(b.owes());
        assert_eq!(b.receive(0, first, usize::MAX, &mut VecDeque::new()), Answer::AtOnce, "it came twice");
        let reply = b.send(0, 1);
        assert!(!b.owes());
        assert_eq!(a.receive(0, reply, usize::MAX, &mut VecDeque::new()), Answer::Soon);
        assert!(!a.resend(5, 5), "what was sent is acknowledged");
        let many = (0..Link::<u32>::MOST_OWED).map(|n| a.send(0, n)).collect::<Vec<_>>();
        let answers: Vec<_> =
            many.into_iter().map(|packet| b.receive(0, packet, usize::MAX, &mut VecDeque::new())).collect();
        assert_eq!(answers.iter().filter(|answer| **answer != Answer::None).count(), 1);
        assert_eq!(answers.last(), Some(&Answer::AtOnce));
    }

    #[test]
    fn one_look_is_enough_for_many_payloads() {
        let (mut a, mut b) = (Link::new(0), Link::new(0));
        let mut receive =
            |b: &mut Link<u32>, now| b.receive(now, a.send(now, 1), usize::MAX, &mut VecDeque::new());
        assert_eq!(receive(&mut b, 0), Answer::Soon);
        b.send(1, 2);
        assert_eq!(receive(&mut b, 3), Answer::None, "somebody looks anyway");
        assert_eq!(b.acknowledges_at(12, 12), Some(15), "it has not waited for long");
        assert_eq!(receive(&mut b, 14), Answer::None);
        assert_eq!(b.acknowledges_at(15, 12), Some(15));
        b.acknowledgement();
        assert_eq!(receive(&mut b, 16), Answer::Soon, "nobody looked any more");
        b.send(17, 2);
        assert_eq!(b.acknowledges_at(28, 12), None);
    }

    #[test]
    fn lost_repeated_and_reordered_packets_are_delivered_once_and_in_order() {
        let (mut a, mut b) = (Link::new(0), Link::new(0));
        let first = a.send(0, 10);
        let second = a.send(0, 20);
        assert_eq!(take(&mut b, second.clone()), []);
        assert_eq!(take(&mut b, second), []);
        assert!(a.resend(5, 5));
        assert_eq!((a.go_on_resending(1).count(), a.go_on_resending(5).count(), a.resends()), (1, 1, false));
        let mut one = VecDeque::new();
        b.clone().receive(5, first.clone(), 1, &mut one);
        assert_eq!(one, [10], "the rest is left for later");
        assert_eq!(take(&mut b, first.clone()), [10, 20]);
        assert_eq!(take(&mut b, first), []);
        assert!(a.is_stuck(9, 9));
        a.receive(9, b.acknowledgement(), usize::MAX, &mut VecDeque::new());
        assert!(!a.resend(50, 5));
        assert!(!a.is_stuck(100, 9));
    }
}
