//! The boundary to the states of the machines: outside, local states and messages are only numbers.
//!
//! Everything above this layer works on numbers and is compiled once for all systems. Local steps are computed
//! here, each once.

use super::machine::{Cause, Choice, Effect, Facts, Faults, Limits, Machines, Tallied};
use crate::checker::explore::intern::Interner;
use crate::property::Property;
use lockkeeper_core::Sharing;
use smallvec::SmallVec;
use std::sync::{Mutex, MutexGuard};

/// A system whose local states and messages are numbers. All workers share it, and call it only for steps
/// that they have not cached.
pub trait Kernel: Sync {
    /// Number of machines.
    fn machines(&self) -> usize;
    /// The constant properties of the system.
    fn traits(&self) -> Traits;
    /// The initial states of the machines and the messages that they have sent: sender, receiver, message.
    fn start(&self) -> (Vec<u32>, Vec<(usize, usize, u32)>);
    /// The steps that a machine can take without receiving a message.
    fn choices(&self, who: usize, local: u32) -> SmallVec<[Choice; 4]>;
    /// Computes a step.
    fn step(&self, who: usize, local: u32, why: Why) -> Stepped;
    /// The part of a machine's state that the properties depend on.
    fn facts(&self, who: usize, local: u32) -> Facts;
    /// Number of tokens in a message.
    fn tokens_in(&self, parcel: u32) -> u32;
    /// The index of the message's type.
    fn word(&self, parcel: u32) -> usize;
    /// A machine's state after another has entered, excluding all others.
    fn outdate(&self, who: usize, local: u32) -> u32;
    /// The same for a message under way.
    fn outdate_parcel(&self, parcel: u32) -> u32;
    /// Visits the relative integers of a machine, and returns the number of the changed state; see
    /// [`super::shift`].
    fn numbers(&self, who: usize, local: u32, visit: &mut dyn FnMut(usize, &mut u64)) -> u32;
    /// The same for a message.
    fn numbers_in(&self, from: usize, parcel: u32, visit: &mut dyn FnMut(usize, &mut u64)) -> u32;
    /// The text of a message.
    fn text(&self, parcel: u32) -> String;
    /// The name of a machine.
    fn name(&self, who: usize) -> String;
    /// The text of a step that a machine takes without receiving a message.
    fn choice_text(&self, who: usize, code: u32) -> String;
}

/// The cause of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A choice of the machine itself, by its code.
    Choice(u32),
    /// The arrival of a message: sender, message.
    Message(usize, u32),
}

/// The result of a step.
#[derive(Clone, Debug)]
pub struct Stepped {
    /// The machine's new state.
    pub local: u32,
    /// The messages sent: receiver, message.
    pub sends: SmallVec<[(u32, u32); 4]>,
    /// The other effects.
    pub effect: Effect,
    /// Whether the machine has more tokens than before.
    pub gained: bool,
    /// Whether the machine's state exceeds the bounds of the search.
    pub beyond: bool,
}

/// The properties of a system that are the same in all its states.
#[derive(Clone, Copy, Debug)]
pub struct Traits {
    /// Whether the channels are FIFO.
    pub fifo: bool,
    /// The modes that may be inside together.
    pub sharing: Sharing,
    /// Number of kinds of relative integers.
    pub scales: usize,
    /// The counters along runs.
    pub tallied: Tallied,
    /// The bounds that make an infinite search finite.
    pub limits: Option<Limits>,
    /// The maximum number of faults of each kind in a run.
    pub faults: Faults,
    /// The only property to check. `None`: all properties.
    pub only: Option<Property>,
}

/// A [`Kernel`] that numbers the local states and messages of a system.
pub struct Numbered<S: Machines> {
    system: S,
    tables: Mutex<Tables<S>>,
}

struct Tables<S: Machines> {
    locals: Vec<Interner<S::Local>>,
    parcels: Interner<S::Parcel>,
}

impl<S: Machines> Numbered<S> {
    /// A system with empty tables.
    pub fn new(system: S) -> Self {
        let locals = (0..system.machines()).map(|_| Interner::default()).collect();
        Self { system, tables: Mutex::new(Tables { locals, parcels: Interner::default() }) }
    }

    fn tables(&self) -> MutexGuard<'_, Tables<S>> {
        self.tables.lock().expect("no worker panics")
    }

    fn local(&self, who: usize, local: u32) -> S::Local {
        self.tables().locals[who].get(local).clone()
    }

    fn parcel(&self, parcel: u32) -> S::Parcel {
        self.tables().parcels.get(parcel).clone()
    }
}

impl<S: Machines> Kernel for Numbered<S> {
    fn machines(&self) -> usize {
        self.system.machines()
    }

    fn traits(&self) -> Traits {
        let system = &self.system;
        Traits {
            fifo: system.fifo(),
            sharing: system.sharing(),
            scales: system.scales(),
            tallied: system.tallied(),
            limits: system.limits(),
            faults: system.faults(),
            only: system.only(),
        }
    }

    fn start(&self) -> (Vec<u32>, Vec<(usize, usize, u32)>) {
        let (locals, sent) = self.system.start();
        let mut tables = self.tables();
        let locals =
            locals.into_iter().enumerate().map(|(who, local)| tables.locals[who].number(local)).collect();
        let sent =
            sent.into_iter().map(|sent| (sent.from, sent.to, tables.parcels.number(sent.parcel))).collect();
        (locals, sent)
    }

    fn choices(&self, who: usize, local: u32) -> SmallVec<[Choice; 4]> {
        self.system.choices(who, &self.local(who, local))
    }

    fn step(&self, who: usize, local: u32, why: Why) -> Stepped {
        let before = self.local(who, local);
        let mut after = before.clone();
        let step = match why {
            Why::Choice(code) => self.system.step(who, &mut after, Cause::Choice(code)),
            Why::Message(from, parcel) => {
                self.system.step(who, &mut after, Cause::Message(from, &self.parcel(parcel)))
            }
        };
        let gained = self.system.facts(who, &after).tokens > self.system.facts(who, &before).tokens;
        let beyond = self.system.beyond(who, &after);
        let mut tables = self.tables();
        let sends =
            step.sends.into_iter().map(|(to, parcel)| (to as u32, tables.parcels.number(parcel))).collect();
        Stepped { local: tables.locals[who].number(after), sends, effect: step.effect, gained, beyond }
    }

    fn facts(&self, who: usize, local: u32) -> Facts {
        self.system.facts(who, &self.local(who, local))
    }

    fn tokens_in(&self, parcel: u32) -> u32 {
        self.system.tokens_in(&self.parcel(parcel))
    }

    fn word(&self, parcel: u32) -> usize {
        self.system.word(&self.parcel(parcel))
    }

    fn outdate(&self, who: usize, local: u32) -> u32 {
        let mut older = self.local(who, local);
        self.system.outdate(&mut older);
        self.tables().locals[who].number(older)
    }

    fn outdate_parcel(&self, parcel: u32) -> u32 {
        let mut older = self.parcel(parcel);
        self.system.outdate_parcel(&mut older);
        self.tables().parcels.number(older)
    }

    fn numbers(&self, who: usize, local: u32, visit: &mut dyn FnMut(usize, &mut u64)) -> u32 {
        let mut visited = self.local(who, local);
        self.system.numbers(&mut visited, visit);
        self.tables().locals[who].number(visited)
    }

    fn numbers_in(&self, from: usize, parcel: u32, visit: &mut dyn FnMut(usize, &mut u64)) -> u32 {
        let mut visited = self.parcel(parcel);
        self.system.numbers_in(from, &mut visited, visit);
        self.tables().parcels.number(visited)
    }

    fn text(&self, parcel: u32) -> String {
        self.system.text(&self.parcel(parcel))
    }

    fn name(&self, who: usize) -> String {
        self.system.name(who)
    }

    fn choice_text(&self, who: usize, code: u32) -> String {
        self.system.choice_text(who, code)
    }
}
