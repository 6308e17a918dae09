//! Global states: machines and their channels as rows of small integers.
//!
//! A global state has one integer for each machine, one for each channel, and one for the faults so far. A
//! machine's step depends only on its local state and its cause. There are few local states where there are
//! many global ones, so each local step is computed once and then looked up.
//!
//! Example: three machines have 3 + 6 slots. In `[4, 0, 2, 0, 7, 0, 0, 0, 0]`, machine 0 is in its local
//! state number 4, and the second channel (from 0 to 2) has the content number 7; content 0 is the empty
//! channel.

use super::kernel::{Kernel, Numbered, StepCause, StepResult, Traits};
use super::machine::{Choice, Facts, Fault, Machines, Violation};
use super::reduce::is_silent;
use super::seen::Seen;
use crate::checker::explore::intern::{Interner, Known, Memo};
use crate::checker::explore::{Goals, Model};
use crate::property::Property;
use smallvec::SmallVec;
use std::sync::{Mutex, MutexGuard};

/// A system of machines, ready for a search.
pub struct Net {
    /// The machines.
    pub kernel: Box<dyn Kernel>,
    /// Whether silent deliveries are deferred; see [`super::reduce`].
    pub reduced: bool,
    /// The maximum number of messages per entry, if it is checked with a counterexample. Each state then
    /// counts the messages that led to it in an additional last slot, so that the same state after more
    /// messages is a different state.
    pub most_messages: Option<u32>,
    /// The contents that each channel has had; in a net for the search by symmetry, all channels share the first table.
    pub(super) channels: Mutex<Vec<Interner<Vec<u32>>>>,
    /// Whether states are compared up to the names of the machines; see [`super::symmetry`].
    pub symmetric: bool,
}

impl Net {
    /// A system in its initial state.
    pub fn new<S: Machines + 'static>(system: S) -> Self {
        Self::of(system, false)
    }

    /// A system for the search by symmetry; see [`super::symmetry`].
    pub fn symmetric<S: Machines + 'static>(system: S) -> Self {
        Self { reduced: true, ..Self::of(system, true) }
    }

    fn of<S: Machines + 'static>(system: S, symmetric: bool) -> Self {
        let kernel = Numbered::new(system, symmetric);
        let machines = kernel.machines();
        let mut channels: Vec<Interner<Vec<u32>>> =
            (0..machines * (machines - 1)).map(|_| Interner::default()).collect();
        for channel in &mut channels {
            channel.number(Vec::new()); // The empty channel is number 0.
        }
        let channels = Mutex::new(channels);
        Self { kernel: Box::new(kernel), reduced: false, most_messages: None, channels, symmetric }
    }

    fn channels(&self) -> MutexGuard<'_, Vec<Interner<Vec<u32>>>> {
        self.channels.lock().expect("no worker panics")
    }

    pub(super) fn content(&self, place: usize, content: u32) -> Vec<u32> {
        self.channels()[self.table(place)].get(content).clone()
    }

    /// The number of a channel's content. The content of a channel that is not FIFO is a multiset, and is
    /// sorted first.
    pub(super) fn number(&self, place: usize, mut envelopes: Vec<u32>) -> u32 {
        if !self.kernel.traits().fifo {
            envelopes.sort_unstable();
        }
        self.channels()[self.table(place)].number(envelopes)
    }

    fn table(&self, place: usize) -> usize {
        if self.symmetric { 0 } else { place }
    }

    /// A step as a line of a scenario.
    pub fn describe(&self, action: &Action) -> String {
        let kernel = &self.kernel;
        let message = |verb: &str, from: usize, to: usize, envelope: u32| {
            format!("{verb} {}>{} {}", kernel.name(from), kernel.name(to), kernel.text(envelope))
        };
        match *action {
            Action::Deliver(from, to, envelope) => message("deliver", from, to, envelope),
            Action::Lose(from, to, envelope) => message("lose", from, to, envelope),
            Action::Duplicate(from, to, envelope) => message("duplicate", from, to, envelope),
            Action::Choice(who, choice) => kernel.choice_text(who, choice.code),
        }
    }

    /// Visits every relative integer of the local state or channel in a slot, and returns the number of the
    /// changed content.
    pub(super) fn visit_numbers(
        &self,
        slot: usize,
        content: u32,
        visit: &mut dyn FnMut(usize, &mut u64),
    ) -> u32 {
        let machines = self.kernel.machines();
        if slot < machines {
            return self.kernel.numbers(slot, content, visit);
        }
        let (place, from) = (slot - machines, (slot - machines) / (machines - 1));
        let envelopes = self.content(place, content);
        let visited =
            envelopes.into_iter().map(|envelope| self.kernel.numbers_in(from, envelope, visit)).collect();
        self.number(place, visited)
    }
}

/// The index of the channel from one machine to another among all channels.
#[inline]
pub(super) fn channel(machines: usize, from: usize, to: usize) -> usize {
    from * (machines - 1) + to - usize::from(to > from)
}

impl Model for Net {
    type Worker<'m> = Explorer<'m>;

    fn slots(&self) -> usize {
        let machines = self.kernel.machines();
        let faults = usize::from(!self.kernel.traits().faults.none());
        machines * machines + faults + usize::from(self.most_messages.is_some())
    }

    fn tallies(&self) -> usize {
        let tallied = self.kernel.traits().tallied;
        let bypass = if tallied.bypass { self.kernel.machines() } else { 0 };
        bypass + usize::from(tallied.messages)
    }

    fn goals(&self) -> Goals {
        let asked = self.kernel.traits().only.is_none_or(|only| only == Property::NoStarvation);
        if asked { (1 << self.kernel.machines()) - 1 } else { 0 }
    }

    fn worker(&self) -> Explorer<'_> {
        Explorer::new(self)
    }
}

/// A step from one global state to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A machine takes a step of its own.
    Choice(usize, Choice),
    /// A message is delivered: sender, receiver, number of the message.
    Deliver(usize, usize, u32),
    /// A message is lost.
    Lose(usize, usize, u32),
    /// A message is delivered, and stays in its channel to be delivered again.
    Duplicate(usize, usize, u32),
}

/// The result of a local step.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub step: StepResult,
    /// The step changes nothing.
    pub idle: bool,
    /// The step affects only the machine itself and the receivers of its messages.
    pub plain: bool,
    /// The step is a delivery that affects only the machine itself, and is deferred; see [`super::reduce`].
    pub silent: bool,
}

#[derive(Default)]
pub(super) struct SiteCache {
    facts: Vec<Facts>,
    pub choices: Known<Box<[(Choice, u32)]>>,
    /// For each sender: from local state and message to outcome.
    pub deliveries: Vec<Memo>,
    pub outdated: Known<u32>,
}

#[derive(Default)]
pub(super) struct ChannelCache {
    /// For each content, the messages that can be delivered, each with the remaining content.
    heads: Known<SmallVec<[(u32, u32); 2]>>,
    pushed: Memo,
    too_long: Known<()>,
    pub outdated: Known<u32>,
    pub tokens: Known<u32>,
}

/// Expands states of a [`Net`].
pub struct Explorer<'m> {
    pub(super) net: &'m Net,
    pub(super) machines: usize,
    pub(super) traits: Traits,
    pub(super) sites: Vec<SiteCache>,
    pub(super) channels: Vec<ChannelCache>,
    pub(super) outcomes: Vec<Outcome>,
    pub(super) next: Vec<u32>,
    pub(super) next_tallies: Vec<u8>,
    pub(super) seen: Seen,
    pub(super) shifter: super::shift::Shifter,
    /// Whether the next state exceeds the limits.
    pub(super) too_far: bool,
    /// Buffers for the states that silent deliveries lead to, and for one of them.
    pub(super) reached: Vec<u32>,
    pub(super) here: Vec<u32>,
    /// Number of states that the expanded one represents, itself included.
    pub(super) stands_for: f64,
}

impl<'m> Explorer<'m> {
    pub(super) fn new(net: &'m Net) -> Self {
        let machines = net.kernel.machines();
        let site = || SiteCache {
            deliveries: (0..machines).map(|_| Memo::default()).collect(),
            ..SiteCache::default()
        };
        Self {
            net,
            machines,
            traits: net.kernel.traits(),
            sites: (0..machines).map(|_| site()).collect(),
            channels: (0..machines * (machines - 1)).map(|_| ChannelCache::default()).collect(),
            outcomes: Vec::new(),
            next: vec![0; net.slots()],
            next_tallies: vec![0; net.tallies()],
            seen: Seen::default(),
            shifter: super::shift::Shifter::new(machines),
            too_far: false,
            reached: Vec::new(),
            here: Vec::new(),
            stands_for: 1.0,
        }
    }

    /// The coverage so far.
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// The sender of a channel.
    pub(super) fn sender(&self, place: usize) -> usize {
        place / (self.machines - 1)
    }

    /// The machines that wait in a global state, one bit each.
    pub(super) fn waiting(&mut self, state: &[u32]) -> Goals {
        (0..self.machines)
            .fold(0, |waiting, who| waiting | Goals::from(self.facts(who, state[who]).waiting) << who)
    }

    /// The facts of a machine in a local state.
    #[inline]
    pub(super) fn facts(&mut self, who: usize, local: u32) -> &Facts {
        if self.sites[who].facts.len() <= local as usize {
            self.learn(who, local);
        }
        &self.sites[who].facts[local as usize]
    }

    #[cold]
    fn learn(&mut self, who: usize, local: u32) {
        let site = &mut self.sites[who];
        for number in site.facts.len() as u32..=local {
            site.facts.push(self.net.kernel.facts(who, number));
        }
    }

    /// Number of steps that a machine can take without receiving a message.
    #[inline]
    pub(super) fn choices(&mut self, who: usize, local: u32) -> usize {
        match self.sites[who].choices.get(local) {
            Some(choices) => choices.len(),
            None => self.work_out_choices(who, local),
        }
    }

    #[cold]
    fn work_out_choices(&mut self, who: usize, local: u32) -> usize {
        let choices = self.net.kernel.choices(who, local);
        let worked_out: Box<[(Choice, u32)]> = choices
            .into_iter()
            .map(|choice| (choice, self.take_step(who, local, StepCause::Choice(choice.code))))
            .collect();
        self.sites[who].choices.insert(local, worked_out).len()
    }

    #[inline]
    pub(super) fn choice(&self, who: usize, local: u32, which: usize) -> (Choice, u32) {
        self.sites[who].choices.get(local).expect("worked out before")[which]
    }

    /// The outcome of a delivery.
    #[inline]
    pub(super) fn delivery(&mut self, from: usize, to: usize, local: u32, envelope: u32) -> u32 {
        if let Some(outcome) = self.sites[to].deliveries[from].get(local, envelope) {
            return outcome;
        }
        self.work_out_delivery(from, to, local, envelope)
    }

    #[cold]
    fn work_out_delivery(&mut self, from: usize, to: usize, local: u32, envelope: u32) -> u32 {
        let outcome = self.take_step(to, local, StepCause::Message(from, envelope));
        self.seen.kinds |= 1 << self.net.kernel.kind(envelope);
        self.seen.rules |= self.outcomes[outcome as usize].step.effect.rules;
        self.sites[to].deliveries[from].insert(local, envelope, outcome);
        outcome
    }

    fn take_step(&mut self, who: usize, local: u32, cause: StepCause) -> u32 {
        let step = self.net.kernel.step(who, local, cause);
        let own = matches!(cause, StepCause::Choice(_));
        let silent = match cause {
            // A delivery that moves a token is visible: tokens are counted.
            StepCause::Message(_, envelope)
                if self.net.reduced && self.net.kernel.tokens_in(envelope) == 0 =>
            {
                let before = self.facts(who, local).clone();
                let faults = self.traits.faults;
                is_silent(&step, &before, self.facts(who, step.local), faults)
            }
            _ => false,
        };
        let effect = &step.effect;
        let nothing = step.local == local && step.sends.is_empty();
        let idle = own && nothing && effect.wrong.is_none() && effect.entered.is_none();
        let plain = !effect.is_visible() && !effect.asked && !step.gained;
        self.outcomes.push(Outcome { step, idle, plain, silent });
        self.outcomes.len() as u32 - 1
    }

    /// Number of different messages that can be delivered from a channel.
    #[inline]
    pub(super) fn heads(&mut self, place: usize, content: u32) -> usize {
        match self.channels[place].heads.get(content) {
            Some(heads) => heads.len(),
            None => self.work_out_heads(place, content),
        }
    }

    #[cold]
    fn work_out_heads(&mut self, place: usize, content: u32) -> usize {
        let envelopes = self.net.content(place, content);
        let mut heads = SmallVec::new();
        for (position, &envelope) in envelopes.iter().enumerate() {
            // In a multiset, equal messages are adjacent; delivering one of them is enough.
            if position > 0 && (self.traits.fifo || envelopes[position - 1] == envelope) {
                continue;
            }
            let mut rest = envelopes.clone();
            rest.remove(position);
            heads.push((envelope, self.net.number(place, rest)));
        }
        self.channels[place].heads.insert(content, heads).len()
    }

    #[inline]
    pub(super) fn head(&self, place: usize, content: u32, which: usize) -> (u32, u32) {
        self.channels[place].heads.get(content).expect("worked out before")[which]
    }

    #[inline]
    pub(super) fn push(&mut self, place: usize, content: u32, envelope: u32) -> u32 {
        if let Some(content) = self.channels[place].pushed.get(content, envelope) {
            return content;
        }
        self.work_out_push(place, content, envelope)
    }

    #[cold]
    fn work_out_push(&mut self, place: usize, content: u32, envelope: u32) -> u32 {
        let mut envelopes = self.net.content(place, content);
        envelopes.push(envelope);
        let too_long = self.traits.limits.is_some_and(|limits| envelopes.len() > limits.in_flight);
        let longer = self.net.number(place, envelopes);
        self.channels[place].pushed.insert(content, envelope, longer);
        if too_long {
            self.channels[place].too_long.insert(longer, ());
        }
        longer
    }

    /// Takes a step in a global state; writes the result to `next` and `next_tallies`.
    #[inline]
    pub(super) fn apply(
        &mut self,
        state: &[u32],
        tallies: &[u8],
        who: usize,
        outcome: u32,
        popped: Option<(usize, u32)>,
    ) -> Option<Violation> {
        let machines = self.machines;
        self.next.copy_from_slice(state);
        self.next_tallies.copy_from_slice(tallies);
        self.too_far = false;
        let Outcome { step: StepResult { local, gained, .. }, plain, .. } = self.outcomes[outcome as usize];
        self.next[who] = local;
        if let Some((place, rest)) = popped {
            self.next[machines + place] = rest;
        }
        // The effects on others come before the messages: a crash empties the channels to the machine.
        let violation = if plain { None } else { self.announce(state, who, outcome) };
        self.send(who, outcome);
        if self.traits.scales > 0 {
            self.too_far |= self.shift();
        }
        let violation = if gained { violation.or_else(|| self.count_tokens()) } else { violation };
        violation.filter(|violation| self.traits.only.is_none_or(|only| only == violation.property))
    }

    fn send(&mut self, who: usize, outcome: u32) {
        let machines = self.machines;
        let may_be_down = self.traits.faults.of(Fault::Crash) > 0;
        let sends = self.outcomes[outcome as usize].step.sends.len();
        if self.traits.tallied.messages
            && let Some(messages) = self.next_tallies.last_mut()
        {
            *messages = messages.saturating_add(sends as u8);
            self.seen.max_messages = self.seen.max_messages.max(*messages);
        }
        if self.net.most_messages.is_some()
            && let Some(messages) = self.next.last_mut()
        {
            *messages += sends as u32;
        }
        for which in 0..sends {
            let (to, envelope) = self.outcomes[outcome as usize].step.sends[which];
            if may_be_down && self.facts(to as usize, self.next[to as usize]).down {
                continue;
            }
            let place = channel(machines, who, to as usize);
            let content = self.push(place, self.next[machines + place], envelope);
            self.too_far |= self.channels[place].too_long.get(content).is_some();
            self.next[machines + place] = content;
        }
    }

    /// The fault slot after another fault of this kind; `None` if the budget is used up. The slot has four
    /// bits per kind.
    pub(super) fn spend(&self, state: &[u32], fault: Fault) -> Option<u32> {
        let place = self.machines * self.machines;
        let spent = *state.get(place)?;
        let shift = 4 * fault as u32;
        let times = spent >> shift & 0xF;
        (times < u32::from(self.traits.faults.of(fault))).then_some(spent + (1 << shift))
    }
}
