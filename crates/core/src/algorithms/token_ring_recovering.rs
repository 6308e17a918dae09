//! # The token ring that recovers
//!
//! Le Lann's ring (see [`token_ring`](super::token_ring)) in which crashed sites are skipped and a lost token is
//! replaced, as van Steen and Tanenbaum, *Distributed Systems*, section 5.3, ask of the ring.
//!
//! **Idea.** A token belongs to an *epoch*, and a site refuses tokens of older epochs than its own. The predecessor of
//! a crashed site skips it and starts an epoch by sending WHO-HAS to all live sites. The site that has the token moves
//! it into the new epoch and answers so. If no site has it, no site will accept an older token, and the inquirer makes
//! a new one.
//!
//! **Assumes** reliable FIFO channels and a perfect failure detector: each crash is noticed, no live site is suspected,
//! and no message of a site that knows of a crash overtakes the notice of it. Any site may crash at any time and
//! restart without its state, as long as one stays up; a restarted site knows only how often it has restarted.
//!
//! **Cost.** That of the token ring; and for each crash, WHO-HAS and ANSWER with all others, 2(N−1) messages.
//!
//! **Why there are no two tokens.** An inquirer makes a token of epoch e only when each other site has entered e
//! without one and knows which sites are dead: a token in transit is of an older epoch, or was sent by a dead site, and
//! will be refused. A site that dies before it answers may have moved the token into e and passed it on; the inquirer
//! then starts again with a higher epoch. Two inquirers do no harm: sites that have entered the higher epoch refuse the
//! tokens of the lower one or move them into theirs. A restarted site may be unknown to the inquirer of an epoch. So it
//! declines tokens until every live site has sent it WELCOME, and so will include it in later inquiries, and until it
//! has then completed an epoch that it started itself.
//!
//! **Why the token is not lost for good.** Only the predecessor of a crashed site sends to it, and it inquires after it
//! has stopped sending. Of several inquirers the one with the highest epoch continues; if it crashes, the sites that
//! gave way to it, or refused a token of an older epoch than its own, inquire again.
//!
//! **Pitfalls.** With a detector that errs, the token of a slow site is made a second time, and two sites are inside. A
//! WELCOME may arrive after the site for which it was meant has crashed and restarted once more: it counts only for the
//! incarnation that sent the JOIN.

use crate::algorithms::token_ring::TokenRing;
use crate::mutex::{Channels, Cost, Family};
use crate::{
    About, ApplicationInput, Configure, Entered, Expected, Field, Inspect, InvariantViolated, Load,
    MessageKind, MessageKinds, MutualExclusion, Never, Out, PaperFigures, Phase, Protocol, Setup, SiteId,
    SiteSet, Timestamp, Validate,
};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A number and the site that chose it, so that no two sites start the same epoch.
pub type Epoch = Timestamp;

/// A message between sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// The token of this epoch. Its holder may enter.
    Token(Epoch),
    /// The sender starts this epoch and asks whether the receiver has the token.
    WhoHas(Epoch),
    /// The sender is in this epoch; the flag is set if the token of this epoch is or was there.
    Answer(Epoch, bool),
    /// The sender has restarted, for the given number of times, and has lost its state.
    Join(u32),
    /// The sender includes that incarnation of the receiver from now on; the epoch is the sender's.
    Welcome(u32, Epoch),
}

impl MessageKinds for Message {
    const KINDS: &'static [MessageKind] = &[
        MessageKind::enter("TOKEN"),
        MessageKind::enter("WHO-HAS"),
        MessageKind::enter("ANSWER"),
        MessageKind::enter("JOIN"),
        MessageKind::enter("WELCOME"),
    ];

    fn kind(&self) -> usize {
        match self {
            Self::Token(_) => 0,
            Self::WhoHas(_) => 1,
            Self::Answer(..) => 2,
            Self::Join(_) => 3,
            Self::Welcome(..) => 4,
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::KINDS[self.kind()].name)?;
        match self {
            Self::Token(epoch) | Self::WhoHas(epoch) => epoch.fmt(f),
            Self::Join(incarnation) => write!(f, "({incarnation})"),
            Self::Welcome(incarnation, epoch) => write!(f, "({incarnation}) {epoch}"),
            Self::Answer(epoch, had) => write!(f, "{epoch} {}", if *had { "yes" } else { "no" }),
        }
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
        /// An old token.
        Refuses: "refuses a token of an older epoch, or of a site that has crashed",
        /// The token may be an old one.
        Declines: "has not rejoined yet and declines the token",
        /// The successor has crashed, or the site has restarted.
        Asks: "starts a new epoch and asks all live sites for the token",
        /// A site that was asked has crashed or is in a higher epoch.
        AsksAgain: "cannot get an answer from every site: it asks again",
        /// The token is here and in use.
        TakesOver: "has the token and moves it into the new epoch",
        /// The token is elsewhere.
        Adopts: "enters the new epoch without a token",
        /// The inquirer's epoch is lower.
        Contradicts: "answers with the higher epoch that it is in",
        /// The inquirer has crashed since.
        TooLate: "is asked by a site that has crashed: it does not answer",
        /// A site has the token.
        Found: "learns that the token exists",
        /// No site has the token.
        Regenerates: "has an answer from all live sites that they do not have the token: it makes a new one",
        /// A site restarts.
        Joins: "has restarted and asks to rejoin",
        /// A restarted site asks to rejoin.
        Welcomes: "includes the site again",
        /// The WELCOME is for an earlier incarnation, or its sender has crashed since.
        OldWelcome: "ignores a welcome that arrives too late",
        /// Every live site has sent WELCOME.
        IsWelcome: "is included by all live sites",
    }
}

/// One site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TokenRingRecovering {
    me: SiteId,
    sites: usize,
    phase: Phase,
    /// The sites known to have crashed and not to have rejoined.
    dead: SiteSet,
    epoch: Epoch,
    /// Whether the token of this epoch is known to exist: it is or was here, or an answer reported it.
    had_token: bool,
    has_token: bool,
    /// The sites whose answers are missing, while this site inquires for the token.
    asking: Option<SiteSet>,
    /// Whether this site relies on the site that started its epoch: it gave way to its inquiry, or refused an older
    /// token.
    trusting: bool,
    /// The number of restarts of this site.
    incarnation: u32,
    /// Whether this site has restarted and not yet learned from all live sites that they are in its epoch.
    returning: bool,
    /// The sites whose WELCOME is missing. Until all have arrived, this site must not inquire.
    joining: SiteSet,
}

impl TokenRingRecovering {
    fn fresh(me: SiteId, setup: &Setup<()>) -> Self {
        Self {
            me,
            sites: setup.sites,
            phase: Phase::Idle,
            dead: SiteSet::none(setup.sites),
            epoch: Epoch { time: 0, site: SiteId(0) },
            had_token: false,
            has_token: false,
            asking: None,
            trusting: false,
            incarnation: 0,
            returning: false,
            joining: SiteSet::none(setup.sites),
        }
    }

    /// The next live site on the ring; the site itself if it is the only one.
    fn next(&self) -> SiteId {
        let mut next = self.me.next_on_ring(self.sites);
        while self.dead.contains(next) {
            next = next.next_on_ring(self.sites);
        }
        next
    }

    /// A lower bound for the fences of a token made in this epoch. It is above the fences of all older epochs, because
    /// each epoch uses fewer than 2³², and no site can see it before all live sites have entered the epoch.
    fn first_fence(&self) -> u64 {
        // With 3 sites: epoch (1, S1) starts at 3 · 2³², (1, S2) at 4 · 2³², (1, S3) at 5 · 2³², (2, S1) at 6 · 2³².
        (self.epoch.time * self.sites as u64 + self.epoch.site.index() as u64) << 32
    }

    fn adopt(&mut self, epoch: Epoch) {
        if epoch > self.epoch {
            self.epoch = epoch;
            self.had_token = self.has_token;
            self.trusting |= self.asking.take().is_some();
        }
    }

    /// If the token is here and not in use, enters or passes it on.
    fn use_or_pass(&mut self, otherwise: Rule, out: &mut Out<Self>) {
        if !self.has_token || self.phase == Phase::Inside {
            return;
        }
        if self.phase == Phase::Waiting {
            out.rule(Rule::Enters);
            self.phase = Phase::Inside;
            out.output(Entered);
        } else if self.next() == self.me {
            out.rule(Rule::Keeps);
        } else {
            out.rule(otherwise);
            self.has_token = false;
            out.send(self.next(), Message::Token(self.epoch));
        }
    }

    fn token(&mut self, from: SiteId, epoch: Epoch, out: &mut Out<Self>) {
        if self.returning {
            out.rule(Rule::Declines);
            self.adopt(epoch);
            return self.ask(Rule::AsksAgain, out);
        }
        if epoch < self.epoch || self.dead.contains(from) {
            out.rule(Rule::Refuses);
            // The site that started this epoch makes a new token, if it stays up until all answers have arrived.
            self.trusting |= !self.had_token;
            if self.dead.contains(self.epoch.site) {
                self.ask_again_without(self.epoch.site, out);
            }
            return;
        }
        self.adopt(epoch);
        // An inquiry for the token ends here: it is found.
        self.asking = None;
        self.trusting = false;
        self.had_token = true;
        self.has_token = true;
        self.use_or_pass(Rule::Passes, out);
    }

    /// Sends WHO-HAS to all live sites, unless the token is here.
    fn ask(&mut self, rule: Rule, out: &mut Out<Self>) {
        if self.has_token || !self.joining.is_empty() {
            self.asking = None;
            return;
        }
        out.rule(rule);
        self.adopt(Epoch { time: self.epoch.time + 1, site: self.me });
        let mut others = SiteSet::none(self.sites);
        others.extend(out.others().filter(|&site| !self.dead.contains(site)));
        for site in others.iter() {
            out.send(site, Message::WhoHas(self.epoch));
        }
        self.asking = Some(others);
        self.trusting = false;
        self.conclude(out);
    }

    /// Ends the inquiry when all answers are in, and makes a new token if no site has one.
    fn conclude(&mut self, out: &mut Out<Self>) {
        if self.asking.take_if(|missing| missing.is_empty()).is_none() {
            return;
        }
        self.returning = false;
        if self.had_token {
            return out.rule(Rule::Found);
        }
        out.rule(Rule::Regenerates);
        out.raise_fence(self.first_fence());
        self.had_token = true;
        self.has_token = true;
        self.use_or_pass(Rule::Passes, out);
    }

    fn who_has(&mut self, asker: SiteId, epoch: Epoch, out: &mut Out<Self>) {
        if self.dead.contains(asker) {
            return out.rule(Rule::TooLate);
        }
        if epoch < self.epoch {
            out.rule(Rule::Contradicts);
        } else {
            out.rule(if self.has_token { Rule::TakesOver } else { Rule::Adopts });
            self.adopt(epoch);
        }
        out.send(asker, Message::Answer(self.epoch, self.had_token));
    }

    fn answer(&mut self, from: SiteId, epoch: Epoch, had_token: bool, out: &mut Out<Self>) {
        let Some(missing) = &mut self.asking else { return };
        if epoch > self.epoch {
            self.adopt(epoch);
            self.ask(Rule::AsksAgain, out);
        } else if epoch == self.epoch {
            missing.remove(from);
            self.had_token |= had_token;
            self.conclude(out);
        }
    }

    /// Handles the crash of a site, which may restart. If it was asked, its answer is void; if this site relied on its
    /// inquiry, this site must inquire again.
    fn ask_again_without(&mut self, site: SiteId, out: &mut Out<Self>) {
        let asked = self.asking.as_ref().is_some_and(|missing| missing.contains(site));
        if asked || self.trusting && self.epoch.site == site {
            self.ask(Rule::AsksAgain, out);
        }
    }

    fn join(&mut self, site: SiteId, incarnation: u32, out: &mut Out<Self>) {
        out.rule(Rule::Welcomes);
        self.dead.remove(site);
        out.send(site, Message::Welcome(incarnation, self.epoch));
        self.ask_again_without(site, out);
        // If this site is restarting as well, the JOIN counts as a WELCOME: a restarted site starts by including all
        // others.
        self.welcomed(site, out);
        // This site may have been alone and kept the token until now.
        self.use_or_pass(Rule::Passes, out);
    }

    fn welcomed(&mut self, by: SiteId, out: &mut Out<Self>) {
        if self.joining.remove(by) && self.joining.is_empty() {
            out.rule(Rule::IsWelcome);
            self.ask(Rule::Asks, out);
        }
    }
}

impl Protocol for TokenRingRecovering {
    type Input = ApplicationInput;
    type Message = Message;
    type Output = Entered;
    type Timer = Never;
    type Rule = Rule;

    fn input(&mut self, input: ApplicationInput, out: &mut Out<Self>) {
        match input {
            ApplicationInput::Request(_) => {
                self.phase = Phase::Waiting;
                if !self.has_token {
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

    fn message(&mut self, from: SiteId, message: Message, out: &mut Out<Self>) {
        match message {
            Message::Token(epoch) => self.token(from, epoch, out),
            Message::WhoHas(epoch) => self.who_has(from, epoch, out),
            Message::Answer(epoch, had_token) => self.answer(from, epoch, had_token, out),
            Message::Join(incarnation) => self.join(from, incarnation, out),
            Message::Welcome(incarnation, epoch)
                if incarnation == self.incarnation && self.joining.contains(from) =>
            {
                self.adopt(epoch);
                self.welcomed(from, out);
            }
            Message::Welcome(..) => out.rule(Rule::OldWelcome),
        }
    }

    fn timer(&mut self, timer: Never, _out: &mut Out<Self>) {
        match timer {}
    }

    fn suspect(&mut self, site: SiteId, out: &mut Out<Self>) {
        let was_next = self.next() == site;
        if self.dead.insert(site) && was_next {
            self.ask(Rule::Asks, out);
        } else {
            self.ask_again_without(site, out);
        }
        self.welcomed(site, out);
    }

    fn fields(&self) -> Vec<Field> {
        let mut fields = vec![
            Field::new("state", self.phase),
            Field::new("token", if self.has_token { "here" } else { "elsewhere" }),
            Field::new("epoch", self.epoch),
            Field::new("known dead", &self.dead),
        ];
        fields.extend(self.asking.as_ref().map(|missing| Field::new("answers missing", missing)));
        if self.returning {
            fields.push(Field::new("welcomes missing", &self.joining));
        }
        fields
    }

    fn waits_for(&self) -> Vec<SiteId> {
        let missing = self.asking.as_ref().unwrap_or(&self.joining);
        missing.iter().collect()
    }
}

impl MutualExclusion for TokenRingRecovering {
    const ABOUT: About = About {
        slug: "token-ring-recovering",
        title: "Token ring that recovers",
        family: Family::Token,
        paper: "a variant of Le Lann's ring, IFIP Congress 1977; van Steen and Tanenbaum, Distributed Systems, section 5.3",
        idea: "A token ring that skips crashed sites and replaces a lost token, in a new epoch.",
        channels: Channels::Fifo,
        perpetual: true,
        deadlock_free: true,
        cost: Cost { high: "1; 2(N−1) more for each crash", ..TokenRing::ABOUT.cost },
        crash: "of any sites but one: the others continue, if each crash is noticed and no live site is suspected",
        settings: &[],
    };

    const SURVIVES_CRASHES: bool = true;

    fn start(me: SiteId, setup: &Setup<()>, out: &mut Out<Self>) -> Self {
        let mut site = Self { phase: setup.phase_of(me), ..Self::fresh(me, setup) };
        site.has_token = setup.token_site() == me;
        site.had_token = site.has_token;
        site.use_or_pass(Rule::Passes, out);
        site
    }

    fn restart(me: SiteId, incarnation: u32, setup: &Setup<()>, out: &mut Out<Self>) -> Self {
        let mut site = Self { returning: true, incarnation, ..Self::fresh(me, setup) };
        out.rule(Rule::Joins);
        out.broadcast(Message::Join(incarnation));
        site.joining.extend(SiteId::all(setup.sites));
        // The site needs no WELCOME from itself.
        site.welcomed(me, out);
        site
    }
}

impl Configure for TokenRingRecovering {
    type Options = ();
}

impl PaperFigures for TokenRingRecovering {
    fn expected(load: Load, sites: usize, _options: &()) -> Expected {
        TokenRing::expected(load, sites, &())
    }
}

impl Inspect for TokenRingRecovering {
    /// Counts only tokens at sites. A token of an older epoch may still be in transit, and will be refused.
    fn tokens(&self) -> u32 {
        self.has_token.into()
    }

    fn invariant(&self) -> Result<(), InvariantViolated> {
        if self.phase == Phase::Inside && !self.has_token {
            return Err(InvariantViolated("inside without the token"));
        }
        if self.has_token && self.asking.is_some() {
            return Err(InvariantViolated("inquires for a token that is here"));
        }
        if self.has_token && self.returning {
            return Err(InvariantViolated("has the token before it has rejoined"));
        }
        if self.has_token && !self.had_token {
            return Err(InvariantViolated("has a token of an older epoch"));
        }
        Ok(())
    }
}

impl Validate for TokenRingRecovering {
    fn is_well_formed(message: &Message, sites: usize) -> bool {
        // The fences of an epoch are computed from these numbers and must fit into 64 bits.
        let fits =
            |epoch: &Epoch| epoch.site.index() < sites && epoch.time.saturating_mul(sites as u64) < 1 << 31;
        match message {
            Message::Token(epoch) | Message::WhoHas(epoch) => fits(epoch),
            Message::Answer(epoch, _) | Message::Welcome(_, epoch) => fits(epoch),
            Message::Join(_) => true,
        }
    }
}
