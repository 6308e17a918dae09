//! # The centralized coordinator
//!
//! The oldest algorithm, without a paper of its own; described in every textbook (Coulouris et al., *Distributed
//! Systems*, section 15.2; van Steen and Tanenbaum, *Distributed Systems*, section 5.3).
//!
//! **Idea.** One process, the coordinator, keeps the queue. A site requests with ENTER, enters on GRANTED, and returns
//! the section with RELEASED. A request that arrives while the section is taken waits in the queue, first come first
//! served. Optionally the coordinator answers it with DENIED, so that the site knows that it is queued.
//!
//! **Assumes** reliable channels in any order, no crashes. The coordinator is either a separate process or one of
//! the sites, whose own messages to the coordinator then cost nothing.
//!
//! **Cost.** ENTER, GRANTED, RELEASED: 3 messages per entry, 4 with DENIED for each request that is queued; 2T from
//! an exit to the next entry. With the coordinator among the sites, one entry in N costs nothing.
//!
//! **Pitfalls.** Granting to the latest request first starves the others without any deadlock. On channels that
//! reorder, a site's next ENTER may overtake its RELEASED: the coordinator puts it into the queue like any other.

use crate::mutex::{Channels, Cost, Family, list, parse_site};
use crate::settings::{OptionsError, Setting, Settings};
use crate::{
    About, ApplicationInput, Configure, Entered, Expected, Field, Inspect, InvariantViolated, Load,
    MessageKind, MessageKinds, MutualExclusion, Never, Out, PaperFigures, Phase, Protocol, Setup, SiteId,
    Validate,
};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A message between a site and the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// A site requests to enter.
    Enter,
    /// The coordinator grants the request.
    Granted,
    /// The coordinator has queued the request.
    Denied,
    /// A site has left.
    Released,
}

impl MessageKinds for Message {
    const KINDS: &'static [MessageKind] = &[
        MessageKind::enter("ENTER"),
        MessageKind::enter("GRANTED"),
        MessageKind::enter("DENIED"),
        MessageKind::exit("RELEASED"),
    ];

    fn kind(&self) -> usize {
        *self as usize
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::KINDS[self.kind()].name)
    }
}

crate::rules! {
    /// The rules of the algorithm.
    pub enum Rule {
        /// A site requests.
        Asks: "asks the coordinator",
        /// The section is free.
        Grants: "finds the section free and grants it",
        /// The section is taken.
        Queues: "finds the section taken and queues the request",
        /// The grant arrives at the site.
        Enters: "has the grant and enters",
        /// The coordinator reports that it has queued the request. Only with the option DENIED.
        LearnsToWait: "learns that it has to wait",
        /// A site leaves.
        Leaves: "gives the section back to the coordinator",
        /// The queue is not empty.
        GrantsNext: "takes the section back and grants it to the first in the queue",
        /// The queue is empty.
        Rests: "takes the section back; no site waits for it",
    }
}

/// The choice of the coordinator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The coordinating site; `None` for a separate process.
    pub coordinator: Option<SiteId>,
    /// Whether the coordinator answers a queued request with DENIED.
    pub denied: bool,
}

/// One process of the system.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Centralized {
    coordinator: SiteId,
    denied: bool,
    phase: Phase,
    /// The coordinator's state; `None` at other processes.
    coordinating: Option<CoordinatorState>,
}

/// The coordinator's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CoordinatorState {
    holder: Option<SiteId>,
    queue: VecDeque<SiteId>,
}

impl CoordinatorState {
    fn enter(&mut self, from: SiteId, denied: bool, out: &mut Out<Centralized>) {
        if self.holder.is_none() {
            out.rule(Rule::Grants);
            self.holder = Some(from);
            out.send(from, Message::Granted);
        } else {
            out.rule(Rule::Queues);
            self.queue.push_back(from);
            if denied {
                out.send(from, Message::Denied);
            }
        }
    }

    fn released(&mut self, out: &mut Out<Centralized>) {
        self.holder = self.queue.pop_front();
        match self.holder {
            Some(next) => {
                out.rule(Rule::GrantsNext);
                out.send(next, Message::Granted);
            }
            None => out.rule(Rule::Rests),
        }
    }
}

impl Protocol for Centralized {
    type Input = ApplicationInput;
    type Message = Message;
    type Output = Entered;
    type Timer = Never;
    type Rule = Rule;

    fn input(&mut self, input: ApplicationInput, out: &mut Out<Self>) {
        match input {
            ApplicationInput::Request(_) => {
                out.rule(Rule::Asks);
                self.phase = Phase::Waiting;
                out.send(self.coordinator, Message::Enter);
            }
            ApplicationInput::Release => {
                out.rule(Rule::Leaves);
                self.phase = Phase::Idle;
                out.send(self.coordinator, Message::Released);
            }
        }
    }

    fn message(&mut self, from: SiteId, message: Message, out: &mut Out<Self>) {
        match (message, &mut self.coordinating) {
            (Message::Enter, Some(state)) => state.enter(from, self.denied, out),
            // Only the holder can release. RELEASED from another site is a duplicate or was sent to the wrong process.
            (Message::Released, Some(state)) if state.holder == Some(from) => state.released(out),
            (Message::Granted, _) if self.phase == Phase::Waiting => {
                out.rule(Rule::Enters);
                self.phase = Phase::Inside;
                out.output(Entered);
            }
            // On channels that reorder it may arrive after the grant. It changes no state either way.
            (Message::Denied, _) => out.rule(Rule::LearnsToWait),
            _ => {}
        }
    }

    fn timer(&mut self, timer: Never, _out: &mut Out<Self>) {
        match timer {}
    }

    fn fields(&self) -> Vec<Field> {
        let mut fields = vec![Field::new("state", self.phase)];
        if let Some(state) = &self.coordinating {
            fields.push(Field::new("holder", list(state.holder, "nobody")));
            fields.push(Field::new("queue", list(&state.queue, "empty")));
        }
        fields
    }

    fn waits_for(&self) -> Vec<SiteId> {
        match &self.coordinating {
            Some(state) if !state.queue.is_empty() => state.holder.into_iter().collect(),
            None if self.phase == Phase::Waiting => vec![self.coordinator],
            _ => Vec::new(),
        }
    }
}

impl MutualExclusion for Centralized {
    const ABOUT: About = About {
        slug: "centralized",
        title: "Centralized coordinator",
        family: Family::Coordinator,
        paper: "Coulouris et al., Distributed Systems, section 15.2",
        idea: "One process keeps the queue: sites request from it, enter when it grants, and return the section to it.",
        channels: Channels::Any,
        perpetual: false,
        deadlock_free: true,
        cost: Cost {
            low: "3; 3(1−1/N) with the coordinator among the sites",
            high: "3, with DENIED 4; times (1−1/N) with the coordinator among the sites",
            sync_delay: "2T; 2T(1−1/N) with the coordinator among the sites",
            client_delay: "2T; mean 2T(1−1/N) with the coordinator among the sites",
        },
        crash: "of the coordinator, the holder or a site in the queue: all sites wait for ever; of an idle \
                site: nothing",
        settings: &[
            Setting {
                name: "coordinator",
                values: "apart or a site's number",
                default: "apart",
                help: "which process keeps the queue: a separate one that never requests, or one of the sites",
            },
            Setting {
                name: "denied",
                values: "yes or no",
                default: "no",
                help: "whether the coordinator answers a queued request with DENIED",
            },
        ],
    };

    fn helpers(options: &Options) -> usize {
        usize::from(options.coordinator.is_none())
    }

    fn start(me: SiteId, setup: &Setup<Options>, _out: &mut Out<Self>) -> Self {
        let coordinator = setup.options.coordinator.unwrap_or(SiteId::new(setup.sites));
        let state = CoordinatorState { holder: setup.holder(), queue: VecDeque::new() };
        Self {
            coordinator,
            denied: setup.options.denied,
            phase: setup.phase_of(me),
            coordinating: (me == coordinator).then_some(state),
        }
    }
}

impl Configure for Centralized {
    type Options = Options;

    fn options(settings: &mut Settings, sites: usize) -> Result<Options, OptionsError> {
        let coordinator = |text: &str| match text {
            "apart" => Some(None),
            number => parse_site(number, sites).map(Some),
        };
        let yes_or_no = |text: &str| match text {
            "yes" | "true" => Some(true),
            "no" | "false" => Some(false),
            _ => None,
        };
        Ok(Options {
            coordinator: settings.take(
                "coordinator",
                None,
                coordinator,
                "'apart' or the number of a site of the system",
            )?,
            denied: settings.take("denied", false, yes_or_no, "yes or no")?,
        })
    }
}

impl PaperFigures for Centralized {
    fn most_messages(_sites: usize, options: &Options) -> Option<usize> {
        Some(if options.denied { 4 } else { 3 })
    }

    fn expected(load: Load, sites: usize, options: &Options) -> Expected {
        // The share of entries of other sites than the coordinator.
        let remote = if options.coordinator.is_some() { 1.0 - 1.0 / sites as f64 } else { 1.0 };
        // A system of one site never finds the section taken.
        let denied = load == Load::High && options.denied && sites > 1;
        Expected {
            messages_per_entry: Some(if denied { 4.0 } else { 3.0 } * remote),
            sync_delay: Some(2.0 * remote),
            client_delay: Some(2.0 * remote),
            ..Expected::default()
        }
    }

    fn unreachable_labels(options: &Options) -> &'static [&'static str] {
        if options.denied { &[] } else { &["DENIED", "learns that it has to wait"] }
    }
}

impl Inspect for Centralized {
    fn invariant(&self) -> Result<(), InvariantViolated> {
        match &self.coordinating {
            Some(state) if state.holder.is_none() && !state.queue.is_empty() => {
                Err(InvariantViolated("the section is free although the queue is not empty"))
            }
            _ => Ok(()),
        }
    }
}

impl Validate for Centralized {
    fn is_expected(&self, from: SiteId, message: &Message) -> bool {
        // A site has one request at a time, and releases before it requests again.
        let known = |state: &CoordinatorState| state.holder == Some(from) || state.queue.contains(&from);
        *message != Message::Enter || !self.coordinating.as_ref().is_some_and(known)
    }
}
