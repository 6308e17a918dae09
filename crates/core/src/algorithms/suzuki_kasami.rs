//! # Suzuki and Kasami's broadcast algorithm
//!
//! Ichiro Suzuki, Tadao Kasami: *A Distributed Mutual Exclusion Algorithm*. ACM Transactions on Computer Systems 3(4),
//! 1985, pages 344–349.
//!
//! **Idea.** The site that has the token may enter. A site without it broadcasts a numbered REQUEST. The token carries
//! the number of each site's last served request, so that its holder can distinguish a new request from an old one, and
//! a queue of waiting sites.
//!
//! **Assumes** reliable channels in any order; no crashes.
//!
//! **Cost.** 0 where the token is, else N: N−1 REQUEST and the TOKEN. T from an exit to the next entry.
//!
//! **Pitfalls.** A request is outstanding only if RN\[j\] = LN\[j\] + 1 exactly: a REQUEST that arrives long after it
//! was served must not move the token. The queue is first in first out. The token is never sent while its holder is
//! inside.

use crate::mutex::{Channels, Cost, Family, LARGEST_NUMBER, list};
use crate::{
    About, ApplicationInput, Configure, Entered, Expected, Field, Inspect, InvariantViolated, Load,
    MessageKind, MessageKinds, MutualExclusion, Never, Out, PaperFigures, Phase, Protocol, Setup, SiteId,
    Validate,
};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// The contents of the token.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Token {
    /// The paper's LN: the number of each site's last served request.
    pub served: Vec<u64>,
    /// The paper's Q: the waiting sites, in order.
    pub queue: VecDeque<SiteId>,
}

/// A message between sites.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// The sender requests the token. The value is the number of the request, counted per site.
    Request(u64),
    /// The token. Its holder may enter.
    Token(Box<Token>),
}

impl MessageKinds for Message {
    const KINDS: &'static [MessageKind] = &[MessageKind::enter("REQUEST"), MessageKind::enter("TOKEN")];

    fn kind(&self) -> usize {
        match self {
            Self::Request(_) => 0,
            Self::Token(_) => 1,
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(number) => write!(f, "REQUEST({number})"),
            Self::Token(token) => write!(f, "TOKEN({})", list(&token.queue, "")),
        }
    }
}

crate::rules! {
    /// The rules of the algorithm.
    pub enum Rule {
        /// The token is elsewhere.
        Asks: "asks all other sites for the token",
        /// The token is here.
        Enters: "has the token: it enters",
        /// An outstanding request reaches an idle token.
        HandsOver: "has the token and does not need it: it sends it to the requester",
        /// The request has been served already.
        Outdated: "has the token, but that request has been served already",
        /// The site has no idle token.
        Notes: "notes the request",
        /// The site leaves.
        PassesOn: "adds the waiting sites to the token's queue and sends it to the first",
        /// No site waits.
        Keeps: "keeps the token: no site waits for it",
    }
}

/// One site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SuzukiKasami {
    me: SiteId,
    phase: Phase,
    /// The paper's RN: the highest request number received from each site.
    requested: Vec<u64>,
    token: Option<Box<Token>>,
}

impl SuzukiKasami {
    fn enter(&mut self, out: &mut Out<Self>) {
        out.rule(Rule::Enters);
        self.phase = Phase::Inside;
        out.output(Entered);
    }

    fn request(&mut self, from: SiteId, number: u64, out: &mut Out<Self>) {
        let seen = &mut self.requested[from.index()];
        *seen = number.max(*seen);
        let seen = *seen;
        if self.phase != Phase::Idle || self.token.is_none() {
            return out.rule(Rule::Notes);
        }
        // RN[j] = LN[j] + 1: the request is outstanding. RN[j] = LN[j]: it has been served, and this copy of it is
        // late.
        match self.token.take_if(|token| seen == token.served[from.index()] + 1) {
            Some(token) => {
                out.rule(Rule::HandsOver);
                out.send(from, Message::Token(token));
            }
            None => out.rule(Rule::Outdated),
        }
    }

    fn release(&mut self, out: &mut Out<Self>) {
        self.phase = Phase::Idle;
        let Some(mut token) = self.token.take() else { return };
        token.served[self.me.index()] = self.requested[self.me.index()];
        for site in SiteId::all(self.requested.len()) {
            // With LN = [2, 5, 0] and RN = [2, 6, 1], S2 (6 = 5 + 1) and S3 (1 = 0 + 1) are waiting and S1 is not.
            let outstanding = self.requested[site.index()] == token.served[site.index()] + 1;
            if outstanding && !token.queue.contains(&site) {
                token.queue.push_back(site);
            }
        }
        match token.queue.pop_front() {
            Some(next) => {
                out.rule(Rule::PassesOn);
                out.send(next, Message::Token(token));
            }
            None => {
                out.rule(Rule::Keeps);
                self.token = Some(token);
            }
        }
    }
}

impl Protocol for SuzukiKasami {
    type Input = ApplicationInput;
    type Message = Message;
    type Output = Entered;
    type Timer = Never;
    type Rule = Rule;

    fn input(&mut self, input: ApplicationInput, out: &mut Out<Self>) {
        match input {
            ApplicationInput::Request(_) if self.token.is_some() => self.enter(out),
            ApplicationInput::Request(_) => {
                out.rule(Rule::Asks);
                self.phase = Phase::Waiting;
                let number = &mut self.requested[self.me.index()];
                *number += 1;
                out.broadcast(Message::Request(*number));
            }
            ApplicationInput::Release => self.release(out),
        }
    }

    fn message(&mut self, from: SiteId, message: Message, out: &mut Out<Self>) {
        match message {
            Message::Request(number) => self.request(from, number, out),
            Message::Token(token) => {
                self.token = Some(token);
                self.enter(out);
            }
        }
    }

    fn timer(&mut self, timer: Never, _out: &mut Out<Self>) {
        match timer {}
    }

    fn fields(&self) -> Vec<Field> {
        let mut fields = vec![Field::new("state", self.phase), Field::new("RN", list(&self.requested, ""))];
        if let Some(token) = &self.token {
            fields.push(Field::new("token's LN", list(&token.served, "")));
            fields.push(Field::new("token's Q", list(&token.queue, "empty")));
        }
        fields
    }
}

impl MutualExclusion for SuzukiKasami {
    const ABOUT: About = About {
        slug: "suzuki-kasami",
        title: "Suzuki and Kasami's broadcast algorithm",
        family: Family::Token,
        paper: "Suzuki and Kasami, A Distributed Mutual Exclusion Algorithm, ACM TOCS 1985",
        idea: "A site without the token requests it from all others; the token itself carries the queue.",
        channels: Channels::Any,
        perpetual: false,
        deadlock_free: true,
        cost: Cost {
            low: "0 or N, mean N−1",
            high: "N",
            sync_delay: "T",
            client_delay: "0 or 2T, mean 2T(1−1/N)",
        },
        crash: "of the site with the token: all sites wait for ever; of another site: nothing until the \
                token goes there",
        settings: &[],
    };

    fn start(me: SiteId, setup: &Setup<()>, _out: &mut Out<Self>) -> Self {
        let numbers = vec![0; setup.sites];
        let token = Box::new(Token { served: numbers.clone(), queue: VecDeque::new() });
        Self {
            me,
            phase: setup.phase_of(me),
            requested: numbers,
            token: (setup.token_site() == me).then_some(token),
        }
    }

    fn is_wanted(&self) -> bool {
        let Some(token) = &self.token else { return false };
        let mut others = (0..self.requested.len()).filter(|&site| site != self.me.index());
        !token.queue.is_empty() || others.any(|site| self.requested[site] > token.served[site])
    }
}

impl Configure for SuzukiKasami {
    type Options = ();
}

impl PaperFigures for SuzukiKasami {
    fn most_messages(sites: usize, _options: &()) -> Option<usize> {
        Some(sites)
    }

    fn expected(load: Load, sites: usize, _options: &()) -> Expected {
        let n = sites as f64;
        let alone = sites == 1;
        Expected {
            messages_per_entry: Some(if load == Load::High && !alone { n } else { n - 1.0 }),
            sync_delay: (!alone).then_some(1.0),
            client_delay: Some(2.0 * (1.0 - 1.0 / n)),
            ..Expected::default()
        }
    }
}

impl Inspect for SuzukiKasami {
    fn scales(sites: usize) -> usize {
        // One scale for the requests of each site.
        sites
    }

    fn numbers(&mut self, visit: &mut dyn FnMut(usize, &mut u64)) {
        let served = self.token.iter_mut().flat_map(|token| token.served.iter_mut().enumerate());
        for (site, number) in self.requested.iter_mut().enumerate().chain(served) {
            visit(site, number);
        }
    }

    fn numbers_in(from: SiteId, message: &mut Message, visit: &mut dyn FnMut(usize, &mut u64)) {
        match message {
            Message::Request(number) => visit(from.index(), number),
            Message::Token(token) => {
                for (site, number) in token.served.iter_mut().enumerate() {
                    visit(site, number);
                }
            }
        }
    }

    fn tokens(&self) -> u32 {
        self.token.is_some().into()
    }

    fn tokens_in(message: &Message) -> u32 {
        matches!(message, Message::Token(_)).into()
    }

    fn invariant(&self) -> Result<(), InvariantViolated> {
        match (&self.token, self.phase) {
            (None, Phase::Inside) => Err(InvariantViolated("inside without the token")),
            (Some(_), Phase::Waiting) => Err(InvariantViolated("has the token and waits")),
            (Some(token), Phase::Idle) if !token.queue.is_empty() => {
                Err(InvariantViolated("the token rests although its queue is not empty"))
            }
            _ => Ok(()),
        }
    }
}

impl Validate for SuzukiKasami {
    fn is_well_formed(message: &Message, sites: usize) -> bool {
        match message {
            Message::Request(number) => *number <= LARGEST_NUMBER,
            Message::Token(token) => {
                token.served.len() <= sites
                    && token.served.iter().all(|&number| number <= LARGEST_NUMBER)
                    && token.queue.len() <= sites
                    && token.queue.iter().all(|site| site.index() < sites)
            }
        }
    }

    fn is_expected(&self, _from: SiteId, message: &Message) -> bool {
        !matches!(message, Message::Token(token) if token.served.len() != self.requested.len())
    }
}
