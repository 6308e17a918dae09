//! The boundary to the states of the machines: outside, local states and messages are only numbers.
//!
//! Everything above this layer works on numbers and is compiled once for all systems. Local steps are computed
//! here, each once.

use super::machine::{Cause, Choice, Effect, Facts, Faults, Limits, Machines, Tallied};
use super::symmetry;
use crate::checker::explore::intern::Interner;
use crate::property::Property;
use foldhash::fast::FixedState;
use lockkeeper_core::{Sharing, SiteId, Stamp};
use smallvec::SmallVec;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
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
    fn step(&self, who: usize, local: u32, cause: StepCause) -> StepResult;
    /// The part of a machine's state that the properties depend on.
    fn facts(&self, who: usize, local: u32) -> Facts;
    /// Number of tokens in a message.
    fn tokens_in(&self, envelope: u32) -> u32;
    /// The index of the message's type.
    fn kind(&self, envelope: u32) -> usize;
    /// A machine's state after another has entered, excluding all others.
    fn outdate(&self, who: usize, local: u32) -> u32;
    /// The same for a message under way.
    fn outdate_envelope(&self, envelope: u32) -> u32;
    /// Visits the relative integers of a machine, and returns the number of the changed state; see
    /// [`super::shift`].
    fn numbers(&self, who: usize, local: u32, visit: &mut dyn FnMut(usize, &mut u64)) -> u32;
    /// The same for a message.
    fn numbers_in(&self, from: usize, envelope: u32, visit: &mut dyn FnMut(usize, &mut u64)) -> u32;
    /// Visits the times and tickets of a machine, and returns the number of the changed state; see
    /// [`super::symmetry`].
    fn stamps(&self, who: usize, local: u32, visit: &mut dyn FnMut(Stamp<'_>)) -> u32;
    /// The same for a message.
    fn stamps_in(&self, from: usize, envelope: u32, visit: &mut dyn FnMut(Stamp<'_>)) -> u32;
    /// The number of the same state at another machine: each machine `i` becomes machine `to[i]`.
    fn renamed(&self, who: usize, local: u32, to: &[usize]) -> u32;
    /// A hash of a machine's state that does not depend on the numbers of the machines.
    fn signature(&self, who: usize, local: u32) -> u64;
    /// The number of the state without the parts that matter only for further requests, if the machine makes none.
    fn settled(&self, who: usize, local: u32) -> u32;
    /// Whether a step was computed in which the machines are not alike; see [`super::symmetry`].
    fn is_refuted(&self) -> bool;
    /// The text of a message.
    fn text(&self, envelope: u32) -> String;
    /// The name of a machine.
    fn name(&self, who: usize) -> String;
    /// The text of a step that a machine takes without receiving a message.
    fn choice_text(&self, who: usize, code: u32) -> String;
}

/// The cause of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepCause {
    /// A choice of the machine itself, by its code.
    Choice(u32),
    /// The arrival of a message: sender, message.
    Message(usize, u32),
}

/// The result of a step.
#[derive(Clone, Debug)]
pub struct StepResult {
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
    /// Whether each step drops what no longer matters and rounds the clock; see [`super::symmetry`].
    simplifies: bool,
    refuted: AtomicBool,
    tables: Mutex<Tables<S>>,
}

struct Tables<S: Machines> {
    locals: Vec<Interner<S::Local>>,
    envelopes: Interner<S::Envelope>,
}

impl<S: Machines> Numbered<S> {
    /// A system with empty tables.
    pub fn new(system: S, simplifies: bool) -> Self {
        let locals = (0..system.machines()).map(|_| Interner::default()).collect();
        Self {
            system,
            simplifies,
            refuted: AtomicBool::new(false),
            tables: Mutex::new(Tables { locals, envelopes: Interner::default() }),
        }
    }

    fn tables(&self) -> MutexGuard<'_, Tables<S>> {
        self.tables.lock().expect("no worker panics")
    }

    fn local(&self, who: usize, local: u32) -> S::Local {
        self.tables().locals[who].get(local).clone()
    }

    fn envelope(&self, envelope: u32) -> S::Envelope {
        self.tables().envelopes.get(envelope).clone()
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
        let sent = sent
            .into_iter()
            .map(|sent| (sent.from, sent.to, tables.envelopes.number(sent.envelope)))
            .collect();
        (locals, sent)
    }

    fn choices(&self, who: usize, local: u32) -> SmallVec<[Choice; 4]> {
        self.system.choices(who, &self.local(who, local))
    }

    fn step(&self, who: usize, local: u32, cause: StepCause) -> StepResult {
        let before = self.local(who, local);
        let mut after = before.clone();
        let envelope;
        let cause = match cause {
            StepCause::Choice(code) => Cause::Choice(code),
            StepCause::Message(from, number) => {
                envelope = self.envelope(number);
                Cause::Message(from, &envelope)
            }
        };
        if self.simplifies && !symmetry::assumptions::hold(&self.system, who, &before, &cause) {
            self.refuted.store(true, Relaxed);
        }
        let step = self.system.step(who, &mut after, cause);
        let gained = self.system.facts(who, &after).tokens > self.system.facts(who, &before).tokens;
        let beyond = self.system.beyond(who, &after);
        if self.simplifies {
            self.system.settle(&mut after);
            self.system.stamps(&mut after, &mut symmetry::round);
        }
        let mut tables = self.tables();
        let sends = step
            .sends
            .into_iter()
            .map(|(to, envelope)| (to as u32, tables.envelopes.number(envelope)))
            .collect();
        StepResult { local: tables.locals[who].number(after), sends, effect: step.effect, gained, beyond }
    }

    fn facts(&self, who: usize, local: u32) -> Facts {
        self.system.facts(who, &self.local(who, local))
    }

    fn tokens_in(&self, envelope: u32) -> u32 {
        self.system.tokens_in(&self.envelope(envelope))
    }

    fn kind(&self, envelope: u32) -> usize {
        self.system.kind(&self.envelope(envelope))
    }

    fn outdate(&self, who: usize, local: u32) -> u32 {
        let mut older = self.local(who, local);
        self.system.outdate(&mut older);
        self.tables().locals[who].number(older)
    }

    fn outdate_envelope(&self, envelope: u32) -> u32 {
        let mut older = self.envelope(envelope);
        self.system.outdate_envelope(&mut older);
        self.tables().envelopes.number(older)
    }

    fn numbers(&self, who: usize, local: u32, visit: &mut dyn FnMut(usize, &mut u64)) -> u32 {
        let mut visited = self.local(who, local);
        self.system.numbers(&mut visited, visit);
        self.tables().locals[who].number(visited)
    }

    fn numbers_in(&self, from: usize, envelope: u32, visit: &mut dyn FnMut(usize, &mut u64)) -> u32 {
        let mut visited = self.envelope(envelope);
        self.system.numbers_in(from, &mut visited, visit);
        self.tables().envelopes.number(visited)
    }

    fn stamps(&self, who: usize, local: u32, visit: &mut dyn FnMut(Stamp<'_>)) -> u32 {
        let mut visited = self.local(who, local);
        self.system.stamps(&mut visited, visit);
        self.tables().locals[who].number(visited)
    }

    fn stamps_in(&self, from: usize, envelope: u32, visit: &mut dyn FnMut(Stamp<'_>)) -> u32 {
        let mut visited = self.envelope(envelope);
        self.system.stamps_in(from, &mut visited, visit);
        self.tables().envelopes.number(visited)
    }

    fn renamed(&self, who: usize, local: u32, to: &[usize]) -> u32 {
        let mut renamed = self.local(who, local);
        self.system.rename(&mut renamed, &|site| SiteId::new(to[site.index()]));
        self.tables().locals[to[who]].number(renamed)
    }

    fn signature(&self, who: usize, local: u32) -> u64 {
        // The machine itself becomes 0, and all others become 1.
        let mut alike = self.local(who, local);
        self.system.rename(&mut alike, &|site| SiteId::new(usize::from(site.index() != who)));
        FixedState::with_seed(0).hash_one(&alike)
    }

    fn settled(&self, who: usize, local: u32) -> u32 {
        let mut settled = self.local(who, local);
        self.system.settle(&mut settled);
        self.tables().locals[who].number(settled)
    }

    fn is_refuted(&self) -> bool {
        self.refuted.load(Relaxed)
    }

    fn text(&self, envelope: u32) -> String {
        self.system.text(&self.envelope(envelope))
    }

    fn name(&self, who: usize) -> String {
        self.system.name(who)
    }

    fn choice_text(&self, who: usize, code: u32) -> String {
        self.system.choice_text(who, code)
    }
}
