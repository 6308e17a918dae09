//! # The token ring
//!
//! Gérard Le Lann: *Distributed Systems: Towards a Formal Approach*. IFIP Congress 1977, pages 155–160.
//! Described as the *perpetuum mobile* in van Steen and Tanenbaum, *Distributed Systems*, section 5.3.
//!
//! **Idea.** One token travels round a ring for ever. A site that has it may enter; a site that does not want to enter
//! passes it on.
//!
//! **Assumes** reliable channels (with one token, order does not matter); no crashes.
//!
//! **Cost.** One message per entry when all sites request, without bound when none does. The token that leaves at an exit
//! is the message that lets the next site enter: textbooks count it for the exit, the lab counts it for the entry. T from an exit to the next
//! entry when the neighbour waits, (N−1)T at most. About N·T/2 for a request at a random time.
//!
//! **Pitfalls.** An idle first holder must send the token off, or all other sites wait for ever. The only site of a
//! ring of one cannot pass the token on and keeps it.

use crate::mutex::{Channels, Cost, Family};
use crate::{
    About, ApplicationInput, Configure, Entered, Expected, Field, Inspect, InvariantViolated, Load,
    MessageKind, MessageKinds, MutualExclusion, Never, Out, PaperFigures, Phase, Protocol, Setup, SiteId,
    Validate,
};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A message to the next site on the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// The token: its holder may enter.
    Token,
}

impl MessageKinds for Message {
    const KINDS: &'static [MessageKind] = &[MessageKind::enter("TOKEN")];

    fn kind(&self) -> usize {
        0
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TOKEN")
    }
}

crate::rules! {
    /// The rules of the algorithm.
    pub enum Rule {
        /// The site waits passively.
        Awaits: "waits for the token to come round",
        /// The token has arrived.
        Enters: "has the token: it enters",
        /// The site has no request.
        Passes: "does not request: it passes the token on",
        /// The site leaves.
        Leaves: "leaves and passes the token on",
        /// A ring of one.
        Keeps: "is alone on the ring and keeps the token",
    }
}

/// One site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TokenRing {
    next: SiteId,
    phase: Phase,
    has_token: bool,
    alone: bool,
}

impl TokenRing {
    /// Enters with the token that is here, or passes it on.
    fn use_or_pass(&mut self, otherwise: Rule, out: &mut Out<Self>) {
        if self.phase == Phase::Waiting {
            out.rule(Rule::Enters);
            self.phase = Phase::Inside;
            out.output(Entered);
        } else if self.alone {
            out.rule(Rule::Keeps);
        } else {
            out.rule(otherwise);
            self.has_token = false;
            out.send(self.next, Message::Token);
        }
    }
}

impl Protocol for TokenRing {
    type Input = ApplicationInput;
    type Message = Message;
    type Output = Entered;
    type Timer = Never;
    type Rule = Rule;

    fn input(&mut self, input: ApplicationInput, out: &mut Out<Self>) {
        match input {
            ApplicationInput::Request(_) => {
                self.phase = Phase::Waiting;
                if self.has_token {
                    self.use_or_pass(Rule::Passes, out);
                } else {
                    out.rule(Rule::Awaits);
                }
            }
            ApplicationInput::Release => {
                self.phase = Phase::Idle;
                self.use_or_pass(Rule::Leaves, out);
            }
        }
    }

    fn message(&mut self, _from: SiteId, message: Message, out: &mut Out<Self>) {
        let Message::Token = message;
        self.has_token = true;
        // A second token violates the paper's assumptions. The one in use stays.
        if self.phase != Phase::Inside {
            self.use_or_pass(Rule::Passes, out);
        }
    }

    fn timer(&mut self, timer: Never, _out: &mut Out<Self>) {
        match timer {}
    }

    fn fields(&self) -> Vec<Field> {
        vec![
            Field::new("state", self.phase),
            Field::new("token", if self.has_token { "here" } else { "elsewhere" }),
        ]
    }
}

impl MutualExclusion for TokenRing {
    const ABOUT: About = About {
        slug: "token-ring",
        title: "Token ring",
        family: Family::Token,
        paper: "Le Lann, Distributed Systems: Towards a Formal Approach, IFIP Congress 1977",
        idea: "One token travels round a ring for ever; its holder may enter.",
        channels: Channels::Any,
        perpetual: true,
        deadlock_free: true,
        cost: Cost {
            low: "without bound: the token never rests",
            high: "1",
            sync_delay: "T at high load, at most (N−1)T",
            client_delay: "mean N·T/2",
        },
        crash: "of any site: the token is lost when it gets there, and all sites wait for ever",
        settings: &[],
    };

    fn start(me: SiteId, setup: &Setup<()>, out: &mut Out<Self>) -> Self {
        let mut site = Self {
            next: me.next_on_ring(setup.sites),
            phase: setup.phase_of(me),
            has_token: setup.token_site() == me,
            alone: setup.sites == 1,
        };
        if site.has_token && site.phase != Phase::Inside {
            site.use_or_pass(Rule::Passes, out);
        }
        site
    }
}

impl Configure for TokenRing {
    type Options = ();
}

impl PaperFigures for TokenRing {
    fn expected(load: Load, sites: usize, _options: &()) -> Expected {
        let alone = sites == 1;
        let high = load == Load::High;
        Expected {
            messages_per_entry: if alone { Some(0.0) } else { high.then_some(1.0) },
            sync_delay: (high && !alone).then_some(1.0),
            client_delay: Some(if alone { 0.0 } else { sites as f64 / 2.0 }),
            ..Expected::default()
        }
    }
}

impl Inspect for TokenRing {
    fn tokens(&self) -> u32 {
        self.has_token.into()
    }

    fn tokens_in(_message: &Message) -> u32 {
        1
    }

    fn invariant(&self) -> Result<(), InvariantViolated> {
        if self.phase == Phase::Inside && !self.has_token {
            Err(InvariantViolated("inside without the token"))
        } else {
            Ok(())
        }
    }
}

impl Validate for TokenRing {}
