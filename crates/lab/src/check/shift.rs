//! Numbers that only matter relative to each other, such as clocks: kept relative to the smallest of their kind.
//!
//! Clocks and sequence numbers grow for ever, and so no run would come back to a state where it has been. But two
//! states that differ only by the same amount in all clocks behave alike: of those, the one with the smallest is kept.

use super::intern::{Interner, Known, Memo};
use super::machine::Machines;
use super::net::Explorer;

/// By how much the numbers of each kind are lowered.
type Amounts = Vec<u64>;

/// What is known of the numbers in local states and channels.
#[derive(Debug, Default)]
pub struct Shifter {
    amounts: Interner<Amounts>,
    /// For each machine, and then for each channel.
    slots: Vec<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    /// For each content, the smallest number of each kind, and the largest of all.
    range: Known<(Amounts, u64)>,
    lowered: Memo,
}

impl Shifter {
    /// For so many machines with all their channels.
    pub fn new(machines: usize) -> Self {
        Self {
            amounts: Interner::default(),
            slots: (0..machines * machines).map(|_| Slot::default()).collect(),
        }
    }
}

/// The smallest number that is kept. Not 0, which some algorithms start with or mean something by.
const SMALLEST: u64 = 1;

impl<S: Machines> Explorer<'_, S> {
    /// Makes all numbers of the next state as small as they can be; tells whether one is still above the limit.
    pub(super) fn shift(&mut self) -> bool {
        let slots = self.machines * self.machines;
        let mut amounts = vec![u64::MAX; self.net.system.scales()];
        let mut largest = 0;
        for place in 0..slots {
            let content = self.next[place];
            self.measure(place, content);
            let (smallest, most) = self.shifter.slots[place].range.get(content).expect("measured just now");
            for (amount, &smallest) in amounts.iter_mut().zip(smallest) {
                *amount = smallest.min(*amount);
            }
            largest = most.max(&largest).to_owned();
        }
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
        self.net.system.limits().is_some_and(|limits| largest - lowest > limits.number)
    }

    fn measure(&mut self, place: usize, content: u32) {
        if self.shifter.slots[place].range.get(content).is_some() {
            return;
        }
        let mut smallest = vec![u64::MAX; self.net.system.scales()];
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
