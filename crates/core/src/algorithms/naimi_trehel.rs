//! # Naimi and Tréhel's path reversal
//!
//! Mohamed Naimi, Michel Tréhel, André Arnold: *A log(N) Distributed Mutual Exclusion Algorithm Based on Path
//! Reversal*. Journal of Parallel and Distributed Computing 34(1), 1996, pages 1–13.
//!
//! **Idea.** Each site remembers the last requester that it knows. A request follows these pointers to the actual last
//! requester, and every site on its path now points to the new requester, which gets the token from its predecessor.
//!
//! **Assumes** reliable channels in any order; no crashes.
//!
//! **Cost.** H(N−1) messages on average at low load, about ln N; T from an exit to the next entry; two pointers per
//! site.
//!
//! **Pitfalls.** LAST becomes the requester *after* the request has been forwarded along it. A request is queued in
//! NEXT when the site is waiting *or* inside. A duplicate breaks the algorithm.

use crate::mutex::{Channels, Cost, Family, list};
use crate::{
    About, ApplicationInput, Configure, Entered, Expected, Field, Inspect, InvariantViolated, Load,
    MessageKind, MessageKinds, MutualExclusion, Never, Out, PaperFigures, Phase, Protocol, Setup, SiteId,
    Validate,
};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A message between sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// This site requests the token.
    Request(SiteId),
    /// The token. Its holder may enter.
    Token,
}

impl MessageKinds for Message {
    const KINDS: &'static [MessageKind] = &[MessageKind::enter("REQUEST"), MessageKind::enter("TOKEN")];

    fn kind(&self) -> usize {
        match self {
            Self::Request(_) => 0,
            Self::Token => 1,
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(site) => write!(f, "REQUEST({site})"),
            Self::Token => f.write_str("TOKEN"),
        }
    }
}

crate::rules! {
    /// The rules of the algorithm.
    pub enum Rule {
        /// The site is not the last requester.
        Asks: "asks the site that it believes to have requested last",
        /// The token is here.
        Enters: "has the token: it enters",
        /// The request goes on, and the path is reversed.
        Forwards: "passes the request on, and takes the requester for the last one from now on",
        /// The end of the path, idle.
        HandsOver: "has the token and does not need it: it sends it to the requester",
        /// The end of the path, busy.
        Follows: "requested last itself: the requester comes next after it",
        /// The site leaves.
        PassesOn: "sends the token to the one that comes next",
        /// The site leaves.
        Keeps: "keeps the token: no site comes next",
    }
}

/// One site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NaimiTrehel {
    me: SiteId,
    phase: Phase,
    has_token: bool,
    /// The last requester as far as the site knows; `None` if it is the site itself.
    last: Option<SiteId>,
    next: Option<SiteId>,
}

impl NaimiTrehel {
    fn enter(&mut self, out: &mut Out<Self>) {
        out.rule(Rule::Enters);
        self.phase = Phase::Inside;
        out.output(Entered);
    }

    fn send_token(&mut self, to: SiteId, out: &mut Out<Self>) {
        self.has_token = false;
        out.send(to, Message::Token);
    }

    fn request(&mut self, asker: SiteId, out: &mut Out<Self>) {
        // Example: S1 is the last requester and inside; S2 and S3 point to it.
        //   S3 requests          S3 becomes the last one (LAST = None) and sends REQUEST(S3) to S1
        //   S1 receives it       NEXT of S1 becomes S3, LAST of S1 becomes S3
        //   S2 requests later    REQUEST(S2) goes to S1, which forwards it to S3 and now points to S2
        match self.last {
            Some(last) => {
                out.rule(Rule::Forwards);
                out.send(last, Message::Request(asker));
            }
            None if self.phase == Phase::Idle => {
                out.rule(Rule::HandsOver);
                self.send_token(asker, out);
            }
            None => {
                out.rule(Rule::Follows);
                self.next = Some(asker);
            }
        }
        self.last = Some(asker);
    }
}

impl Protocol for NaimiTrehel {
    type Input = ApplicationInput;
    type Message = Message;
    type Output = Entered;
    type Timer = Never;
    type Rule = Rule;

    fn input(&mut self, input: ApplicationInput, out: &mut Out<Self>) {
        match input {
            ApplicationInput::Request(_) => match self.last.take() {
                None => self.enter(out),
                Some(last) => {
                    out.rule(Rule::Asks);
                    self.phase = Phase::Waiting;
                    out.send(last, Message::Request(self.me));
                }
            },
            ApplicationInput::Release => {
                self.phase = Phase::Idle;
                match self.next.take() {
                    Some(next) => {
                        out.rule(Rule::PassesOn);
                        self.send_token(next, out);
                    }
                    None => out.rule(Rule::Keeps),
                }
            }
        }
    }

    fn message(&mut self, _from: SiteId, message: Message, out: &mut Out<Self>) {
        match message {
            Message::Request(asker) => self.request(asker, out),
            Message::Token => {
                self.has_token = true;
                self.enter(out);
            }
        }
    }

    fn timer(&mut self, timer: Never, _out: &mut Out<Self>) {
        match timer {}
    }

    fn fields(&self) -> Vec<Field> {
        vec![
            Field::new("state", self.phase),
            Field::new("token", if self.has_token { "here" } else { "elsewhere" }),
            Field::new("LAST", list(self.last, "itself")),
            Field::new("NEXT", list(self.next, "nobody")),
        ]
    }

    fn points_to(&self) -> Option<SiteId> {
        self.last
    }
}

impl MutualExclusion for NaimiTrehel {
    const ABOUT: About = About {
        slug: "naimi-trehel",
        title: "Naimi and Tréhel's path reversal",
        family: Family::Token,
        paper: "Naimi, Tréhel and Arnold, A log(N) Distributed Mutual Exclusion Algorithm Based on Path Reversal, JPDC 1996",
        idea: "A request follows pointers to the last requester, and each site on its path then points to the new one.",
        channels: Channels::Any,
        perpetual: false,
        deadlock_free: true,
        cost: Cost {
            low: "mean H(N−1) = 1 + 1/2 + … + 1/(N−1), about ln N",
            high: "(4N−2)/(N+1)",
            sync_delay: "T",
            client_delay: "T per message of the path, and T for the token",
        },
        crash: "of the site with the token, or of one on the path of a request: the sites behind it wait for ever",
        settings: &[],
    };

    fn start(me: SiteId, setup: &Setup<()>, _out: &mut Out<Self>) -> Self {
        let root = setup.token_site();
        Self {
            me,
            phase: setup.phase_of(me),
            has_token: me == root,
            last: (me != root).then_some(root),
            next: None,
        }
    }

    fn is_wanted(&self) -> bool {
        self.next.is_some()
    }
}

impl Configure for NaimiTrehel {
    type Options = ();
}

impl PaperFigures for NaimiTrehel {
    fn most_messages(sites: usize, _options: &()) -> Option<usize> {
        Some(sites)
    }

    fn expected(load: Load, sites: usize, _options: &()) -> Expected {
        let harmonic: f64 = (1..sites).map(|k| 1.0 / k as f64).sum();
        let n = sites as f64;
        let high = if sites == 1 { 0.0 } else { (4.0 * n - 2.0) / (n + 1.0) };
        Expected {
            messages_per_entry: Some(if load == Load::Low { harmonic } else { high }),
            sync_delay: (sites > 1).then_some(1.0),
            client_delay: None,
            ..Expected::default()
        }
    }
}

impl Inspect for NaimiTrehel {
    fn tokens(&self) -> u32 {
        self.has_token.into()
    }

    fn tokens_in(message: &Message) -> u32 {
        (*message == Message::Token).into()
    }

    fn invariant(&self) -> Result<(), InvariantViolated> {
        match self.phase {
            Phase::Inside if !self.has_token => Err(InvariantViolated("inside without the token")),
            Phase::Idle if self.next.is_some() => {
                Err(InvariantViolated("a site comes next after one that does not wait"))
            }
            Phase::Idle if self.last.is_none() && !self.has_token => {
                Err(InvariantViolated("the last requester, idle, and without the token"))
            }
            _ => Ok(()),
        }
    }
}

impl Validate for NaimiTrehel {
    fn is_well_formed(message: &Message, sites: usize) -> bool {
        !matches!(message, Message::Request(asker) if asker.index() >= sites)
    }

    fn is_expected(&self, _from: SiteId, message: &Message) -> bool {
        // Every path ends at the last requester. A request that came back to its requester would circulate for ever.
        *message != Message::Request(self.me)
    }
}
