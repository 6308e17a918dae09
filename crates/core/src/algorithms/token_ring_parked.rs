//! # The parked token ring
//!
//! A variant of Le Lann's ring (see [`token_ring`](super::token_ring)) in which the token rests where it was
//! last used. No paper of its own; the usual remedy for the idle traffic of the perpetual ring.
//!
//! **Idea.** A requesting site sends a REQUEST round the ring until it meets the token. The token then follows the ring
//! until every site in its list of requesters has had it, and rests again.
//!
//! **Assumes** reliable channels in any order; no crashes.
//!
//! **Cost.** 0 for the site where the token rests, else N: the request and the token together go once round.
//! Nothing while no site requests. From an exit to the next entry T when the neighbour waits and the token knows of it,
//! (N−1)T at most if it knows of the waiting site; less than N·T if that site's request is still on its way.
//!
//! **Pitfalls.** Only the token's site may consume a REQUEST. If waiting sites consumed the requests that pass them,
//! then on channels that reorder two of them could consume each other's request while the token rests elsewhere. A site
//! may be served before its REQUEST has found the token. The REQUEST then sends the token to a site that does not
//! request, which removes itself from the list.

use crate::mutex::{Channels, Cost, Family, list};
use crate::{
    About, ApplicationInput, Configure, Entered, Expected, Field, Inspect, InvariantViolated, Load,
    MessageKind, MessageKinds, MutualExclusion, Never, Out, PaperFigures, Phase, Protocol, Setup, SiteId,
    Validate,
};
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A message to the next site on the ring.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// This site requests the token.
    Request(SiteId),
    /// The token, with the sites known to request it. Its holder may enter.
    Token(BTreeSet<SiteId>),
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
            Self::Request(site) => write!(f, "REQUEST({site})"),
            Self::Token(wanted) => write!(f, "TOKEN({})", list(wanted, "")),
        }
    }
}

crate::rules! {
    /// The rules of the algorithm.
    pub enum Rule {
        /// The token is elsewhere.
        Asks: "sends its request round the ring",
        /// The token is here.
        Enters: "has the token: it enters",
        /// On the way to the token.
        Forwards: "does not have the token: it passes the request on",
        /// The request came back to a site that has been served.
        Drops: "has been served in the meantime and drops its own request",
        /// A request reaches the token.
        Notes: "has the token and notes the request",
        /// The token leaves.
        Passes: "passes the token on towards its requesters",
        /// The token stays.
        Parks: "keeps the token: no site is known to request it",
    }
}

/// One site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TokenRingParked {
    me: SiteId,
    next: SiteId,
    phase: Phase,
    /// The token, with the sites known to request it; `None` if it is elsewhere.
    token: Option<BTreeSet<SiteId>>,
}

impl TokenRingParked {
    /// Passes the token on if it is here, not in use and requested.
    fn pass_if_wanted(&mut self, out: &mut Out<Self>) {
        if self.phase == Phase::Inside {
            return;
        }
        match self.token.take_if(|wanted| !wanted.is_empty()) {
            Some(wanted) => {
                out.rule(Rule::Passes);
                out.send(self.next, Message::Token(wanted));
            }
            None => out.rule(Rule::Parks),
        }
    }

    fn enter(&mut self, out: &mut Out<Self>) {
        out.rule(Rule::Enters);
        self.phase = Phase::Inside;
        out.output(Entered);
    }

    fn request(&mut self, site: SiteId, out: &mut Out<Self>) {
        if site == self.me && self.phase != Phase::Waiting {
            out.rule(Rule::Drops);
        } else if let Some(wanted) = &mut self.token {
            out.rule(Rule::Notes);
            wanted.insert(site);
            self.pass_if_wanted(out);
        } else {
            out.rule(Rule::Forwards);
            out.send(self.next, Message::Request(site));
        }
    }
}

impl Protocol for TokenRingParked {
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
                out.send(self.next, Message::Request(self.me));
            }
            ApplicationInput::Release => {
                self.phase = Phase::Idle;
                self.pass_if_wanted(out);
            }
        }
    }

    fn message(&mut self, _from: SiteId, message: Message, out: &mut Out<Self>) {
        match message {
            Message::Request(site) => self.request(site, out),
            Message::Token(mut wanted) => {
                wanted.remove(&self.me);
                self.token = Some(wanted);
                if self.phase == Phase::Waiting {
                    self.enter(out);
                } else {
                    self.pass_if_wanted(out);
                }
            }
        }
    }

    fn timer(&mut self, timer: Never, _out: &mut Out<Self>) {
        match timer {}
    }

    fn fields(&self) -> Vec<Field> {
        let token = if self.token.is_some() { "here" } else { "elsewhere" };
        let mut fields = vec![Field::new("state", self.phase), Field::new("token", token)];
        if let Some(wanted) = &self.token {
            fields.push(Field::new("wanted by", list(wanted, "nobody")));
        }
        fields
    }
}

impl MutualExclusion for TokenRingParked {
    const ABOUT: About = About {
        slug: "token-ring-parked",
        title: "Parked token ring",
        family: Family::Token,
        paper: "a variant of Le Lann's ring, IFIP Congress 1977",
        idea: "The token rests where it was last used; a request goes round the ring until it meets it.",
        channels: Channels::Any,
        perpetual: false,
        deadlock_free: true,
        cost: Cost {
            low: "0 or N, mean N−1",
            high: "as it comes out: measured, no formula",
            sync_delay: "T at high load; below N·T at light load, where requests are still on their way",
            client_delay: "0 or N·T, mean (N−1)T",
        },
        crash: "of any site: requests or the token are lost when they get there, and all sites wait for ever",
        settings: &[],
    };

    fn start(me: SiteId, setup: &Setup<()>, _out: &mut Out<Self>) -> Self {
        Self {
            me,
            next: me.next_on_ring(setup.sites),
            phase: setup.phase_of(me),
            token: (setup.token_site() == me).then(BTreeSet::new),
        }
    }

    fn is_wanted(&self) -> bool {
        self.token.as_ref().is_some_and(|wanted| !wanted.is_empty())
    }
}

impl Configure for TokenRingParked {
    type Options = ();
}

impl PaperFigures for TokenRingParked {
    fn expected(load: Load, sites: usize, _options: &()) -> Expected {
        let mean = sites as f64 - 1.0;
        Expected {
            messages_per_entry: (load == Load::Low || sites == 1).then_some(mean),
            sync_delay: None,
            client_delay: Some(mean),
            ..Expected::default()
        }
    }
}

impl Inspect for TokenRingParked {
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
            (Some(wanted), Phase::Idle) if !wanted.is_empty() => {
                Err(InvariantViolated("the token rests although a site requests it"))
            }
            _ => Ok(()),
        }
    }
}

impl Validate for TokenRingParked {
    fn is_well_formed(message: &Message, sites: usize) -> bool {
        match message {
            Message::Request(site) => site.index() < sites,
            Message::Token(wanted) => wanted.iter().all(|site| site.index() < sites),
        }
    }
}
