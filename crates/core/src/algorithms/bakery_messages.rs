//! # Lamport's bakery, by messages
//!
//! Leslie Lamport: *A New Solution of Dijkstra's Concurrent Programming Problem*. Communications of the ACM 17(8),
//! 1974, pages 453–455; here each process serves its own variables to the others by messages.
//!
//! **Idea.** A site takes a ticket larger than any that it sees, and then waits until no site with a smaller ticket is
//! left. Each site is the server of its own `choosing` and `number`. Waiting for a variable of another site is a query
//! that the owner answers once the condition holds.
//!
//! **Assumes** reliable channels in any order; no crashes.
//!
//! **Cost.** Three remote reads of two messages each: 6(N−1) messages and 6T at every load. From an exit to the next entry
//! T, if the next site has only TURN to wait for. With few sites it may still be at an earlier read: up to 5T, in the mean
//! 3T with 2 sites and 1.2T with 6.
//!
//! **Pitfalls.** Without `choosing`, a site that is slow to write its ticket is overlooked, and two enter. Tickets grow
//! without bound as long as there is always a site with a ticket.

use crate::mutex::{Channels, Cost, Family, LARGEST_NUMBER};
use crate::{
    About, ApplicationInput, Configure, Entered, Expected, Field, Inspect, InvariantViolated, Load,
    MessageKind, MessageKinds, MutualExclusion, Never, Out, PaperFigures, Phase, Protocol, Setup, SiteId,
    SiteSet, Stamp, Timestamp, Validate,
};
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A message between sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// A query for the receiver's number.
    ReadNumber,
    /// The answer: the sender's number, 0 for none.
    Number(u64),
    /// A query to be answered once the receiver is not choosing.
    AwaitChosen,
    /// The answer: the sender is not choosing.
    Chosen,
    /// A query to be answered once the receiver does not precede the sender's ticket, which has this number.
    AwaitTurn(u64),
    /// The answer: the sender does not precede that ticket.
    Turn,
}

impl MessageKinds for Message {
    const KINDS: &'static [MessageKind] = &[
        MessageKind::enter("READ-NUMBER"),
        MessageKind::enter("NUMBER"),
        MessageKind::enter("AWAIT-CHOSEN"),
        MessageKind::enter("CHOSEN"),
        MessageKind::enter("AWAIT-TURN"),
        MessageKind::enter("TURN"),
    ];

    fn kind(&self) -> usize {
        match self {
            Self::ReadNumber => 0,
            Self::Number(_) => 1,
            Self::AwaitChosen => 2,
            Self::Chosen => 3,
            Self::AwaitTurn(_) => 4,
            Self::Turn => 5,
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::KINDS[self.kind()].name;
        match self {
            Self::Number(number) | Self::AwaitTurn(number) => write!(f, "{name}({number})"),
            _ => f.write_str(name),
        }
    }
}

crate::rules! {
    /// The rules of the algorithm.
    pub enum Rule {
        /// The doorway.
        Chooses: "starts to choose and asks all other sites for their number",
        /// The doorway.
        Compares: "has one more number to compare with",
        /// The end of the doorway: all numbers are known.
        TakesTicket: "takes a number larger than all it has seen, and stops choosing",
        /// The first loop of the bakery.
        SeesChosen: "knows that the other site is not choosing, and asks whether it comes first",
        /// The second loop of the bakery.
        IsBefore: "does not wait for that site any more",
        /// All loops are over.
        Enters: "precedes all other sites: it enters",
        /// The site serves its variables.
        Answers: "answers at once",
        /// The site serves its variables.
        WillAnswer: "will answer when the variable has changed",
        /// The site leaves.
        Leaves: "gives up its ticket and answers the sites that wait for that",
    }
}

/// One site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BakeryMessages {
    me: SiteId,
    phase: Phase,
    choosing: bool,
    /// The ticket; 0 for none.
    number: u64,
    /// The largest number seen in the doorway.
    largest: u64,
    /// In the doorway, the sites whose number is not known yet; after it, the sites that may precede this one.
    missing: SiteSet,
    /// The sites to answer when this site is not choosing.
    await_chosen: SiteSet,
    /// The tickets to answer when this site does not precede them.
    await_turn: BTreeSet<Timestamp>,
}

impl BakeryMessages {
    /// Whether this site has no ticket, or its ticket comes after the other one.
    fn is_not_before(&self, other: Timestamp) -> bool {
        self.number == 0 || other < Timestamp { time: self.number, site: self.me }
    }

    fn take_ticket_if_all_seen(&mut self, out: &mut Out<Self>) {
        if !self.missing.is_empty() {
            return;
        }
        out.rule(Rule::TakesTicket);
        self.number = self.largest + 1;
        self.choosing = false;
        for site in self.await_chosen.iter() {
            out.send(site, Message::Chosen);
        }
        self.await_chosen.clear();
        self.missing.extend(out.others());
        out.broadcast(Message::AwaitChosen);
        self.enter_if_first(out);
    }

    fn enter_if_first(&mut self, out: &mut Out<Self>) {
        if self.missing.is_empty() {
            out.rule(Rule::Enters);
            self.phase = Phase::Inside;
            out.output(Entered);
        }
    }
}

impl Protocol for BakeryMessages {
    type Input = ApplicationInput;
    type Message = Message;
    type Output = Entered;
    type Timer = Never;
    type Rule = Rule;

    fn input(&mut self, input: ApplicationInput, out: &mut Out<Self>) {
        match input {
            ApplicationInput::Request(_) => {
                out.rule(Rule::Chooses);
                self.phase = Phase::Waiting;
                self.choosing = true;
                self.largest = 0;
                self.missing.extend(out.others());
                out.broadcast(Message::ReadNumber);
                self.take_ticket_if_all_seen(out);
            }
            ApplicationInput::Release => {
                out.rule(Rule::Leaves);
                self.phase = Phase::Idle;
                self.number = 0;
                for waiting in core::mem::take(&mut self.await_turn) {
                    out.send(waiting.site, Message::Turn);
                }
            }
        }
    }

    fn message(&mut self, from: SiteId, message: Message, out: &mut Out<Self>) {
        match message {
            Message::ReadNumber => {
                out.rule(Rule::Answers);
                out.send(from, Message::Number(self.number));
            }
            Message::Number(number) => {
                out.rule(Rule::Compares);
                self.largest = number.max(self.largest);
                self.missing.remove(from);
                self.take_ticket_if_all_seen(out);
            }
            Message::AwaitChosen if self.choosing => {
                out.rule(Rule::WillAnswer);
                self.await_chosen.insert(from);
            }
            Message::AwaitChosen => {
                out.rule(Rule::Answers);
                out.send(from, Message::Chosen);
            }
            Message::Chosen => {
                out.rule(Rule::SeesChosen);
                out.send(from, Message::AwaitTurn(self.number));
            }
            Message::AwaitTurn(number) => {
                let ticket = Timestamp { time: number, site: from };
                if self.is_not_before(ticket) {
                    out.rule(Rule::Answers);
                    out.send(from, Message::Turn);
                } else {
                    out.rule(Rule::WillAnswer);
                    self.await_turn.insert(ticket);
                }
            }
            Message::Turn => {
                out.rule(Rule::IsBefore);
                self.missing.remove(from);
                self.enter_if_first(out);
            }
        }
    }

    fn timer(&mut self, timer: Never, _out: &mut Out<Self>) {
        match timer {}
    }

    fn fields(&self) -> Vec<Field> {
        vec![
            Field::new("state", self.phase),
            Field::new("choosing", self.choosing),
            Field::new("number", self.number),
            Field::new("waits for", &self.missing),
        ]
    }

    fn waits_for(&self) -> Vec<SiteId> {
        self.missing.iter().collect()
    }
}

impl MutualExclusion for BakeryMessages {
    const ABOUT: About = About {
        slug: "bakery-messages",
        title: "Lamport's bakery, by messages",
        family: Family::Permission,
        paper: "Lamport, A New Solution of Dijkstra's Concurrent Programming Problem, CACM 1974",
        idea: "A site takes a ticket larger than any that it sees, and lets all sites with a smaller ticket go first.",
        channels: Channels::Any,
        perpetual: false,
        deadlock_free: true,
        cost: Cost {
            low: "6(N−1)",
            high: "6(N−1)",
            sync_delay: "T at high load with many sites; up to 5T with few",
            client_delay: "6T",
        },
        crash: "of any site: all sites wait for its answers for ever",
        settings: &[],
    };

    fn start(me: SiteId, setup: &Setup<()>, _out: &mut Out<Self>) -> Self {
        Self {
            me,
            phase: setup.phase_of(me),
            choosing: false,
            number: u64::from(setup.holder() == Some(me)),
            largest: 0,
            missing: SiteSet::none(setup.sites),
            await_chosen: SiteSet::none(setup.sites),
            await_turn: BTreeSet::new(),
        }
    }
}

impl Configure for BakeryMessages {
    type Options = ();
}

impl PaperFigures for BakeryMessages {
    fn most_messages(sites: usize, _options: &()) -> Option<usize> {
        Some(6 * (sites - 1))
    }

    fn expected(_load: Load, sites: usize, _options: &()) -> Expected {
        let alone = sites == 1;
        Expected {
            messages_per_entry: Some(6.0 * (sites as f64 - 1.0)),
            sync_delay: None,
            client_delay: Some(if alone { 0.0 } else { 6.0 }),
            ..Expected::default()
        }
    }
}

impl Inspect for BakeryMessages {
    fn is_symmetric() -> bool {
        true
    }

    fn stamps(&mut self, visit: &mut dyn FnMut(Stamp<'_>)) {
        if self.choosing {
            visit(Stamp::Clock(&mut self.largest));
        } else {
            self.largest = 0;
        }
        if self.number > 0 {
            visit(Stamp::Request(&mut self.number, self.me));
        }
        // The order of the tickets stays the same, but a set does not let its elements change.
        let mut tickets: Vec<Timestamp> = core::mem::take(&mut self.await_turn).into_iter().collect();
        for ticket in &mut tickets {
            visit(Stamp::Request(&mut ticket.time, ticket.site));
        }
        self.await_turn = tickets.into_iter().collect();
    }

    fn stamps_in(from: SiteId, message: &mut Message, visit: &mut dyn FnMut(Stamp<'_>)) {
        match message {
            Message::Number(number) => visit(Stamp::Bound(number)),
            Message::AwaitTurn(number) => visit(Stamp::Request(number, from)),
            Message::ReadNumber | Message::AwaitChosen | Message::Chosen | Message::Turn => {}
        }
    }

    fn rename(&mut self, to: &dyn Fn(SiteId) -> SiteId) {
        self.me = to(self.me);
        self.missing = self.missing.renamed(to);
        self.await_chosen = self.await_chosen.renamed(to);
        let tickets = core::mem::take(&mut self.await_turn).into_iter();
        self.await_turn = tickets.map(|ticket| Timestamp { site: to(ticket.site), ..ticket }).collect();
    }

    fn invariant(&self) -> Result<(), InvariantViolated> {
        if self.phase == Phase::Inside && self.number == 0 {
            Err(InvariantViolated("inside without a ticket"))
        } else {
            Ok(())
        }
    }
}

impl Validate for BakeryMessages {
    fn is_well_formed(message: &Message, _sites: usize) -> bool {
        !matches!(message, Message::Number(number) | Message::AwaitTurn(number) if *number > LARGEST_NUMBER)
    }

    fn is_expected(&self, from: SiteId, message: &Message) -> bool {
        // A site has one ticket, and waits for the answer before it takes another.
        !matches!(message, Message::AwaitTurn(_))
            || self.await_turn.iter().all(|waiting| waiting.site != from)
    }
}
