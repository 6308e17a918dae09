//! A link between two members of one view, in both directions: exactly-once, in-order delivery.
//!
//! The network may lose, duplicate and reorder packets. A link exists as long as its view: sequence numbers start at
//! 0 in each epoch, and payloads that an old epoch left unacknowledged are dropped with it.

use alloc::collections::{BTreeMap, VecDeque};
use serde::{Deserialize, Serialize};

/// A packet: a numbered payload with a piggybacked acknowledgement, or an acknowledgement alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Packet<T> {
    /// Every payload with a lower number has arrived.
    pub acknowledged: u64,
    /// The payload and its sequence number, counted from 0.
    pub payload: Option<(u64, T)>,
}

/// When the receiver has to send an acknowledgement. A payload in the other direction carries one too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckTiming {
    /// No acknowledgement is due, or a timer for it is already set.
    None,
    /// After a delay, unless a payload carries it earlier.
    Soon,
    /// Now: the payload is a duplicate, so the sender waits for the acknowledgement; or many payloads are
    /// unacknowledged.
    AtOnce,
}

/// One end of a link: the sender's state and the receiver's state.
#[derive(Clone, Debug)]
pub(crate) struct Link<T> {
    /// Payloads sent and not acknowledged, with their sequence numbers.
    unacknowledged: VecDeque<(u64, T)>,
    /// Next sequence number to send again, while a retransmission is under way.
    resend_from: Option<u64>,
    next_to_send: u64,
    next_to_deliver: u64,
    /// Payloads that arrived out of order, or that wait for delivery in a later step.
    early: BTreeMap<u64, T>,
    /// Number of payloads that arrived since the last acknowledgement was sent, and the arrival of the first of them.
    owed: u32,
    owed_since_ns: u64,
    /// Whether a timer for the acknowledgement is set.
    ack_timer_set: bool,
    last_sent_ns: u64,
    /// When the other end last acknowledged a payload, or the first unacknowledged payload was sent.
    progress_ns: u64,
}

impl<T: Clone> Link<T> {
    /// Receive window, in payloads: bounds the memory that a faulty peer can make this member use. A payload outside
    /// of the window is not acknowledged, so the peer sends it again.
    const MOST_EARLY: u64 = 1 << 10;
    /// Number of unacknowledged payloads that causes an acknowledgement at once.
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
            ack_timer_set: false,
            last_sent_ns: now,
            progress_ns: now,
        }
    }

    /// Assigns the next sequence number to a payload and returns the packet that carries it.
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

    /// Handles a packet. Moves up to `most` payloads that are next in order to `deliver`, and returns when to
    /// acknowledge.
    pub fn receive(
        &mut self,
        now: u64,
        packet: Packet<T>,
        most: usize,
        deliver: &mut VecDeque<T>,
    ) -> AckTiming {
        // An acknowledgement of payloads that were never sent is invalid.
        if packet.acknowledged > self.next_to_send {
            return AckTiming::None;
        }
        while self.unacknowledged.front().is_some_and(|&(number, _)| number < packet.acknowledged) {
            self.unacknowledged.pop_front();
            self.progress_ns = now;
        }
        let Some((number, payload)) = packet.payload else { return AckTiming::None };
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
            return AckTiming::AtOnce;
        }
        // Under load, one timer serves many payloads.
        if core::mem::replace(&mut self.ack_timer_set, true) { AckTiming::None } else { AckTiming::Soon }
    }

    /// Moves up to `most` payloads that are next in order to `deliver`.
    fn deliver(&mut self, most: usize, deliver: &mut VecDeque<T>) {
        for _ in 0..most {
            let Some(payload) = self.early.remove(&self.next_to_deliver) else { return };
            self.next_to_deliver += 1;
            deliver.push_back(payload);
        }
    }

    /// Whether a payload is next in order and was left for a later step. It is not acknowledged yet.
    pub fn is_ready(&self) -> bool {
        self.early.contains_key(&self.next_to_deliver)
    }

    /// Delivers up to `most` of the payloads that were left for a later step.
    pub fn continue_delivering(&mut self, now: u64, most: usize, deliver: &mut VecDeque<T>) {
        self.deliver(most, deliver);
        if self.owed == 0 {
            self.owed_since_ns = now;
        }
        self.owed = self.owed.saturating_add(1);
    }

    /// Called when the acknowledgement timer expires. Returns the time at which the acknowledgement is due; if that
    /// is in the future, the caller sets the timer again. `None` if nothing has to be acknowledged.
    pub fn acknowledges_at(&mut self, now: u64, wait_ns: u64) -> Option<u64> {
        let at = self.owed_since_ns + wait_ns;
        self.ack_timer_set = self.owed > 0 && at > now;
        (self.owed > 0).then_some(at)
    }

    /// Whether payloads have arrived that were not acknowledged.
    pub fn has_unacknowledged_arrivals(&self) -> bool {
        self.owed > 0
    }

    /// Treats a dropped packet as delivered (a bug switch).
    pub fn pretend(&mut self, packet: &Packet<T>) {
        if let Some((number, _)) = &packet.payload {
            self.next_to_deliver = self.next_to_deliver.max(number + 1);
        }
    }

    /// A packet that only acknowledges.
    pub fn acknowledgement(&mut self) -> Packet<T> {
        self.owed = 0;
        Packet { acknowledged: self.next_to_deliver, payload: None }
    }

    /// Begins a retransmission if payloads are unacknowledged and nothing was sent for `after_ns`. Returns whether a
    /// retransmission is under way.
    pub fn resend(&mut self, now: u64, after_ns: u64) -> bool {
        if !self.unacknowledged.is_empty() && now >= self.last_sent_ns + after_ns {
            self.last_sent_ns = now;
            self.resend_from = Some(0);
        }
        self.resends()
    }

    /// Whether a retransmission is under way.
    pub fn resends(&self) -> bool {
        self.resend_from.is_some()
    }

    /// The next packets of the retransmission, at most `most`.
    pub fn continue_resending(&mut self, most: usize) -> impl Iterator<Item = Packet<T>> + '_ {
        // Payloads may have been acknowledged since the last step: `resend_from` can lie before `first`, or there is
        // no payload left.
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

    /// The unacknowledged payloads of a link whose view has ended.
    pub fn into_unacknowledged(self) -> VecDeque<(u64, T)> {
        self.unacknowledged
    }

    /// Whether the other end has acknowledged nothing for `after_ns` although payloads are outstanding.
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
    fn payloads_carry_acknowledgements() {
        let (mut a, mut b) = (Link::new(0), Link::new(0));
        let first = a.send(0, 10);
        assert_eq!(b.receive(0, first.clone(), usize::MAX, &mut VecDeque::new()), AckTiming::Soon);
        assert!(b.has_unacknowledged_arrivals());
        assert_eq!(
            b.receive(0, first, usize::MAX, &mut VecDeque::new()),
            AckTiming::AtOnce,
            "the payload is a duplicate"
        );
        let reply = b.send(0, 1);
        assert!(!b.has_unacknowledged_arrivals());
        assert_eq!(a.receive(0, reply, usize::MAX, &mut VecDeque::new()), AckTiming::Soon);
        assert!(!a.resend(5, 5), "the reply acknowledged every payload");
        let many = (0..Link::<u32>::MOST_OWED).map(|n| a.send(0, n)).collect::<Vec<_>>();
        let answers: Vec<_> =
            many.into_iter().map(|packet| b.receive(0, packet, usize::MAX, &mut VecDeque::new())).collect();
        assert_eq!(answers.iter().filter(|answer| **answer != AckTiming::None).count(), 1);
        assert_eq!(answers.last(), Some(&AckTiming::AtOnce));
    }

    #[test]
    fn one_acknowledgement_timer_serves_many_payloads() {
        let (mut a, mut b) = (Link::new(0), Link::new(0));
        let mut receive =
            |b: &mut Link<u32>, now| b.receive(now, a.send(now, 1), usize::MAX, &mut VecDeque::new());
        assert_eq!(receive(&mut b, 0), AckTiming::Soon);
        b.send(1, 2);
        assert_eq!(receive(&mut b, 3), AckTiming::None, "the timer is already set");
        assert_eq!(b.acknowledges_at(12, 12), Some(15), "the payload arrived after the last acknowledgement");
        assert_eq!(receive(&mut b, 14), AckTiming::None);
        assert_eq!(b.acknowledges_at(15, 12), Some(15));
        b.acknowledgement();
        assert_eq!(receive(&mut b, 16), AckTiming::Soon, "the timer has expired");
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
        assert_eq!(
            (a.continue_resending(1).count(), a.continue_resending(5).count(), a.resends()),
            (1, 1, false)
        );
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
