//! Normalisation of integers that matter only relative to each other, such as clocks.
//!
//! Clocks and sequence numbers grow without bound, so no run would return to an earlier state. But two states
//! in which all clocks differ by the same amount behave alike. Of those, the search keeps the one whose
//! smallest clock is 1.
//!
//! Example: clocks 7 and 9 and a message with timestamp 8 become 1, 3 and 2.

use super::net::Explorer;
use crate::checker::explore::intern::{Interner, Known, Memo};

/// The amount by which the integers of each kind are lowered.
type Amounts = Vec<u64>;

/// Memo tables of the ranges and the lowered forms of local states and channels.
#[derive(Debug, Default)]
pub struct Shifter {
    amounts: Interner<Amounts>,
    /// One slot for each machine, then one for each channel.
    slots: Vec<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    /// For each content, the smallest integer of each kind, and the largest of all.
    range: Known<(Amounts, u64)>,
    lowered: Memo,
}

impl Shifter {
    /// Tables for `machines` machines and all their channels.
    pub fn new(machines: usize) -> Self {
        Self {
            amounts: Interner::default(),
            slots: (0..machines * machines).map(|_| Slot::default()).collect(),
        }
    }
}

/// The smallest integer after normalisation. Not 0, which some algorithms start with or give a meaning.
const SMALLEST: u64 = 1;

impl Explorer<'_> {
    /// Lowers all relative integers of the next state as far as possible. Returns whether one still exceeds
    /// the limit.
    pub(super) fn shift(&mut self) -> bool {
        let slots = self.machines * self.machines;
        let mut amounts = vec![u64::MAX; self.traits.scales];
        let mut largest = 0;
        for place in 0..slots {
            let content = self.next[place];
            self.measure(place, content);
            let (smallest, most) = self.shifter.slots[place].range.get(content).expect("measured above");
            for (amount, &smallest) in amounts.iter_mut().zip(smallest) {
                *amount = smallest.min(*amount);
            }
            largest = most.max(&largest).to_owned();
        }
        // `u64::MAX` means that no integer of this kind occurs.
        for amount in &mut amounts {
            *amount = if *amount == u64::MAX { 0 } else { amount.saturating_sub(SMALLEST) };
        }
        let lowest = amounts.iter().copied().min().unwrap_or(0);
        if amounts.iter().any(|&amount| amount > 0) {
            let number = self.shifter.amounts.number(amounts);
            for place in 0..slots {
                self.next[place] = self.lower(place, self.next[place], number);
            }
        }
        self.traits.limits.is_some_and(|limits| largest - lowest > limits.number)
    }

    fn measure(&mut self, place: usize, content: u32) {
        if self.shifter.slots[place].range.get(content).is_some() {
            return;
        }
        let mut smallest = vec![u64::MAX; self.traits.scales];
        let mut largest = 0;
        self.net.visit_numbers(place, content, &mut |kind, number| {
            smallest[kind] = smallest[kind].min(*number);
            largest = largest.max(*number);
        });
        self.shifter.slots[place].range.insert(content, (smallest, largest));
    }

    fn lower(&mut self, place: usize, content: u32, number: u32) -> u32 {
        if let Some(lowered) = self.shifter.slots[place].lowered.get(content, number) {
            return lowered;
        }
        let amounts = self.shifter.amounts.get(number);
        let lowered = self.net.visit_numbers(place, content, &mut |kind, number| {
            *number = number.saturating_sub(amounts[kind]);
        });
        self.shifter.slots[place].lowered.insert(content, number, lowered);
        lowered
    }
}
