//! Where the types of an algorithm end: its local states and messages, known outside by their numbers only.
//!
//! Everything above works on numbers and is compiled once, for all algorithms; local steps are taken here, each once.

use super::intern::Interner;
use super::machine::{Cause, Choice, Effect, Facts, Faults, Limits, Machines, Tallied};
use crate::property::Property;
use lockkeeper_core::Sharing;
use smallvec::SmallVec;
use std::sync::{Mutex, MutexGuard};

/// A system whose local states and messages are numbers. Shared by the workers, who ask only for what they have not met
/// before.
pub trait Kernel: Sync {
    /// How many machines there are.
    fn machines(&self) -> usize;
    /// What is the same all the time.
    fn traits(&self) -> Traits;
    /// The machines at the start, and what they have sent by then: from, to, message.
    fn start(&self) -> (Vec<u32>, Vec<(usize, usize, u32)>);
    /// What a machine can do of its own accord.
    fn choices(&self, who: usize, local: u32) -> SmallVec<[Choice; 4]>;
    /// Takes a step.
    fn step(&self, who: usize, local: u32, why: Why) -> Stepped;
    /// What others need to know of a machine.
    fn facts(&self, who: usize, local: u32) -> Facts;
    /// How many tokens travel in a message.
    fn tokens_in(&self, parcel: u32) -> u32;
    /// What kind of message it is.
    fn word(&self, parcel: u32) -> usize;
    /// A machine's state after another has entered, excluding all others.
    fn outdate(&self, who: usize, local: u32) -> u32;
    /// The same for a message under way.
    fn outdate_parcel(&self, parcel: u32) -> u32;
    /// Visits the numbers of a machine that only matter relative to others, and returns what it is then.
    fn numbers(&self, who: usize, local: u32, visit: &mut dyn FnMut(usize, &mut u64)) -> u32;
    /// The same for a message.
    fn numbers_in(&self, from: usize, parcel: u32, visit: &mut dyn FnMut(usize, &mut u64)) -> u32;
    /// What a message says.
    fn text(&self, parcel: u32) -> String;
}

/// Why a step is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Of the machine's own accord: the code of a choice.
    Choice(u32),
    /// A message arrives: from whom, and which.
    Message(usize, u32),
}

/// What a step leads to.
#[derive(Clone, Debug)]
pub struct Stepped {
    /// The machine's state.
    pub local: u32,
    /// What it sent: to whom, and which message.
    pub sends: SmallVec<[(u32, u32); 4]>,
    /// What it did.
    pub effect: Effect,
    /// The machine has more tokens than before.
    pub gained: bool,
    /// The machine's state is beyond what is to be explored.
    pub beyond: bool,
}

/// What is the same in all states of a system.
#[derive(Clone, Copy, Debug)]
pub struct Traits {
    /// Whether messages of one channel arrive in the order sent.
    pub fifo: bool,
    /// Who may be inside together.
    pub sharing: Sharing,
    /// How many kinds of numbers only matter relative to each other.
    pub scales: usize,
    /// What is counted along the runs.
    pub tallied: Tallied,
    /// What keeps the search finite.
    pub limits: Option<Limits>,
    /// What may go wrong, and how often.
    pub faults: Faults,
    /// The only property that is asked about; all of them if nothing is said.
    pub only: Option<Property>,
}

/// A system with numbers for its local states and messages.
pub struct Numbered<S: Machines> {
    system: S,
    tables: Mutex<Tables<S>>,
}

struct Tables<S: Machines> {
    locals: Vec<Interner<S::Local>>,
    parcels: Interner<S::Parcel>,
}

impl<S: Machines> Numbered<S> {
    /// A system, nothing of which has a number yet.
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
}
