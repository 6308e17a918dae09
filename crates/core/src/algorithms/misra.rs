//! # Misra's ping-pong tokens
//!
//! Jayadev Misra: *Detecting Termination of Distributed Computations Using Markers*. Second ACM Symposium on Principles
//! of Distributed Computing, 1983, pages 290–294; the recovery of a lost token is its application to the ring.
//!
//! **Idea.** Two tokens go round the ring in the same direction: PING admits to the critical section, and PONG only
//! watches it. Both carry one number, which changes whenever they meet. A site remembers the last token that it has
//! seen. If a token returns to a site that has seen nothing else since, with the number unchanged, it has gone round
//! without meeting the other one: the other one is lost, and the site makes it anew.
//!
//! **Assumes** a ring in one direction with FIFO channels, so that no token overtakes the other but at a site; no
//! crashes. A message may be lost, as long as the two tokens are not lost both before the first loss is detected. No
//! timeout and no bound on delays is needed.
//!
//! **Cost.** 1 PING per entry when all sites request, and 1 + E/T PONG, where E is the time inside; without bound when
//! no site does. T from an exit to the next entry when the neighbour waits. A lost token is replaced after at most two
//! rounds of the other one.
//!
//! **Pitfalls.** The number must change at every meeting. PONG passes a site inside and comes round while PING is still
//! there; with the same number it would be taken as the proof of a loss, and two sites would be inside. A site must
//! remember both tokens, for the same reason.

use crate::algorithms::token_ring::TokenRing;
use crate::mutex::{Channels, Cost, Family, LARGEST_NUMBER};
use crate::{
    About, ApplicationInput, Configure, Entered, Expected, Field, Inspect, InvariantViolated, Load,
    MessageKind, MessageKinds, MutualExclusion, Never, Out, PaperFigures, Phase, Protocol, Setup, SiteId,
    Validate,
};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A message to the next site on the ring: a token with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// The token whose holder may enter.
    Ping(u64),
    /// The token that watches the other one. The paper gives it the negative number.
    Pong(u64),
}

impl Message {
    /// The number of the token.
    pub fn number(&mut self) -> &mut u64 {
        let (Self::Ping(number) | Self::Pong(number)) = self;
        number
    }
}

impl MessageKinds for Message {
    const KINDS: &'static [MessageKind] = &[MessageKind::enter("PING"), MessageKind::enter("PONG")];

    fn kind(&self) -> usize {
        usize::from(matches!(self, Self::Pong(_)))
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ping(number) => write!(f, "PING({number})"),
            Self::Pong(number) => write!(f, "PONG(−{number})"),
        }
    }
}

crate::rules! {
    /// The rules of the algorithm.
    pub enum Rule {
        /// The site waits passively.
        Awaits: "waits for PING to come round",
        /// PING has arrived.
        Enters: "has PING: it enters",
        /// The site has no request.
        Passes: "does not request: it passes PING on",
        /// The site leaves.
        Leaves: "leaves and passes PING on",
        /// A ring of one.
        Keeps: "is alone on the ring and keeps PING",
        /// PONG has arrived, and PING is elsewhere.
        PassesPong: "notes the number of PONG and passes it on",
        /// PONG reaches the site inside.
        Meets: "has both tokens: it raises their number and passes PONG on",
        /// PING has gone round without meeting PONG.
        MakesPong: "has seen no PONG since PING was here with the same number: it makes PONG anew",
        /// PONG has gone round without meeting PING.
        MakesPing: "has seen no PING since PONG was here with the same number: it makes PING anew",
    }
}

/// One site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Misra {
    next: SiteId,
    phase: Phase,
    alone: bool,
    /// The number of PING, if it is here.
    ping: Option<u64>,
    /// The paper's `m`: the last token that was here, with the number that it had on arrival.
    last: Option<Message>,
}

impl Misra {
    /// Enters with the PING that is here, or passes it on.
    fn use_or_pass(&mut self, otherwise: Rule, out: &mut Out<Self>) {
        let Some(number) = self.ping else { return };
        if self.phase == Phase::Waiting {
            out.rule(Rule::Enters);
            self.phase = Phase::Inside;
            out.output(Entered);
        } else if self.alone {
            out.rule(Rule::Keeps);
        } else {
            out.rule(otherwise);
            self.ping = None;
            out.send(self.next, Message::Ping(number));
        }
    }

    fn ping(&mut self, number: u64, out: &mut Out<Self>) {
        let pong_is_lost = self.last.replace(Message::Ping(number)) == Some(Message::Ping(number));
        if pong_is_lost {
            out.rule(Rule::MakesPong);
            out.send(self.next, Message::Pong(number + 1));
        }
        self.ping = Some(number + u64::from(pong_is_lost));
        self.use_or_pass(Rule::Passes, out);
    }

    fn pong(&mut self, number: u64, out: &mut Out<Self>) {
        // Example: S2 is inside with PING(3). PONG(−3) arrives, both become 4, and PONG(−4) goes on. Wherever PONG(−3)
        // was before, PONG(−4) is not taken for it, so no site believes PING to be lost while S2 is inside.
        let last = self.last.replace(Message::Pong(number));
        let number = if self.ping.is_some() {
            out.rule(Rule::Meets);
            self.ping = Some(number + 1);
            number + 1
        } else if last == Some(Message::Pong(number)) {
            out.rule(Rule::MakesPing);
            self.ping = Some(number + 1);
            number + 1
        } else {
            out.rule(Rule::PassesPong);
            number
        };
        if self.phase != Phase::Inside {
            self.use_or_pass(Rule::Passes, out);
        }
        out.send(self.next, Message::Pong(number));
    }
}

impl Protocol for Misra {
    type Input = ApplicationInput;
    type Message = Message;
    type Output = Entered;
    type Timer = Never;
    type Rule = Rule;

    fn input(&mut self, input: ApplicationInput, out: &mut Out<Self>) {
        match input {
            ApplicationInput::Request(_) => {
                self.phase = Phase::Waiting;
                if self.ping.is_none() {
                    out.rule(Rule::Awaits);
                }
                self.use_or_pass(Rule::Passes, out);
            }
            ApplicationInput::Release => {
                self.phase = Phase::Idle;
                self.use_or_pass(Rule::Leaves, out);
            }
        }
    }

    fn message(&mut self, _from: SiteId, message: Message, out: &mut Out<Self>) {
        match message {
            // A second PING violates the paper's assumptions. The one in use stays.
            Message::Ping(_) if self.ping.is_some() => out.send(self.next, message),
            Message::Ping(number) => self.ping(number, out),
            Message::Pong(number) => self.pong(number, out),
        }
    }

    fn timer(&mut self, timer: Never, _out: &mut Out<Self>) {
        match timer {}
    }

    fn fields(&self) -> Vec<Field> {
        vec![
            Field::new("state", self.phase),
            Field::new("PING", crate::mutex::list(self.ping, "elsewhere")),
            Field::new("m", crate::mutex::list(self.last, "none")),
        ]
    }
}

impl MutualExclusion for Misra {
    const ABOUT: About = About {
        slug: "misra-ping-pong",
        title: "Misra's ping-pong tokens",
        family: Family::Token,
        paper: "Misra, Detecting Termination of Distributed Computations Using Markers, PODC 1983",
        idea: "Two tokens go round a ring and detect each other's loss: a token that comes round without having met the other replaces it.",
        channels: Channels::Fifo,
        perpetual: true,
        deadlock_free: true,
        cost: Cost { high: "1 PING and 1 + E/T PONG, for a time E inside", ..TokenRing::ABOUT.cost },
        crash: "of any site: the ring is broken, and all sites wait for ever; of a channel that loses one of the tokens: the other one replaces it",
        settings: &[],
    };

    const SURVIVES_A_LOSS: bool = true;

    fn start(me: SiteId, setup: &Setup<()>, out: &mut Out<Self>) -> Self {
        let mut site = Self {
            next: me.next_on_ring(setup.sites),
            phase: setup.phase_of(me),
            alone: setup.sites == 1,
            ping: (setup.token_site() == me).then_some(1),
            last: None,
        };
        if site.ping.is_some() && !site.alone {
            if site.phase != Phase::Inside {
                site.use_or_pass(Rule::Passes, out);
            }
            out.send(site.next, Message::Pong(1));
        }
        site
    }
}

impl Configure for Misra {
    type Options = ();
}

impl PaperFigures for Misra {
    fn expected(load: Load, sites: usize, _options: &()) -> Expected {
        let ring = TokenRing::expected(load, sites, &());
        // The number of PONG per entry depends on the time inside.
        Expected { messages_per_entry: ring.messages_per_entry.filter(|_| sites == 1), ..ring }
    }
}

impl Inspect for Misra {
    fn scales(_sites: usize) -> usize {
        1
    }

    fn numbers(&mut self, visit: &mut dyn FnMut(usize, &mut u64)) {
        if let Some(number) = &mut self.ping {
            visit(0, number);
        }
        if let Some(last) = &mut self.last {
            visit(0, last.number());
        }
    }

    fn numbers_in(_from: SiteId, message: &mut Message, visit: &mut dyn FnMut(usize, &mut u64)) {
        visit(0, message.number());
    }

    fn tokens(&self) -> u32 {
        self.ping.is_some().into()
    }

    fn tokens_in(message: &Message) -> u32 {
        matches!(message, Message::Ping(_)).into()
    }

    fn invariant(&self) -> Result<(), InvariantViolated> {
        if self.phase == Phase::Inside && self.ping.is_none() {
            Err(InvariantViolated("inside without PING"))
        } else {
            Ok(())
        }
    }
}

impl Validate for Misra {
    fn is_well_formed(message: &Message, _sites: usize) -> bool {
        *message.clone().number() <= LARGEST_NUMBER
    }
}
