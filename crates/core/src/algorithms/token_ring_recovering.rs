//! # The token ring that recovers
//!
//! Le Lann's ring (see [`token_ring`](super::token_ring)) with a ring that closes over crashed members and a token that is
//! made anew when it is lost: what van Steen and Tanenbaum, *Distributed Systems*, section 5.3, ask of the ring.
//!
//! **Idea.** A token belongs to an *epoch*, and a site refuses tokens of older epochs than its own. The site before a
//! crashed one closes the ring and starts an epoch by asking all who live WHO-HAS the token. Whoever has it takes it over
//! into the new epoch and says so; if nobody has, no older token will be accepted anywhere, and the asker makes a new one.
//!
//! **Assumes** reliable FIFO channels and a perfect failure detector: each crash is noticed, nobody who lives is
//! suspected, and no message of a site that knows of a crash overtakes the notice of it. Any site may crash at any time, and
//! come back from scratch, as long as one stays up; it remembers nothing but how often it has.
//!
//! **Cost.** That of the token ring; and for each crash, WHO-HAS and ANSWER with all others, 2(N−1) messages.
//!
//! **Why there are no two tokens.** An asker makes a token of epoch e only when each other site has entered e without
//! one, and knows who is dead: tokens that travel are of older epochs, or were sent by the dead, and will be refused. A site that dies before it answers may have taken the token over into e and passed it on: the
//! asker then starts again with a higher epoch. Two askers do no
//! harm: the lower epoch's tokens are refused, or taken over, by those who have entered the higher one. A site that comes
//! back may be missing in somebody's epoch. So it declines tokens until everybody alive has bidden it WELCOME, and so
//! will ask it, and then has entered an epoch that it started itself.
//!
//! **Why the token is not lost for good.** Only the site before a crashed one sends there, and it asks after it has
//! stopped sending. Of several askers the one with the highest epoch goes on; if it crashes, those that gave way to it, or
//! refused a token for its sake, ask again.
//!
//! **Pitfalls.** Under a detector that errs, the token of a site that is only slow is made a second time, and two are
//! inside. A WELCOME may come when the site it was meant for has crashed and come back once more: it counts only for
//! the life that asked for it.

use crate::algorithms::token_ring::TokenRing;
use crate::mutex::{Channels, Cost, Family};
use crate::{
    About, Ask, Entered, Expected, Field, Load, MutualExclusion, Never, Out, Phase, Protocol, Setup, SiteId,
    SiteSet, Timestamp, Vocabulary, Word,
};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A number and who chose it: no two sites start the same epoch.
pub type Epoch = Timestamp;

/// What sites say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// Whoever has it may enter.
    Token(Epoch),
    /// A new epoch starts: is the token with you?
    WhoHas(Epoch),
    /// I am in this epoch, and have or have not had its token.
    Answer(Epoch, bool),
    /// I am back, and know nothing but how often I have been.
    Join(u32),
    /// I count on you again, in this life of yours; this is my epoch.
    Welcome(u32, Epoch),
}

impl Vocabulary for Message {
    const WORDS: &'static [Word] = &[
        Word::enter("TOKEN"),
        Word::enter("WHO-HAS"),
        Word::enter("ANSWER"),
        Word::enter("JOIN"),
        Word::enter("WELCOME"),
    ];

    fn word(&self) -> usize {
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
        f.write_str(Self::WORDS[self.word()].name)?;
        match self {
            Self::Token(epoch) | Self::WhoHas(epoch) => epoch.fmt(f),
            Self::Join(life) => write!(f, "({life})"),
            Self::Welcome(life, epoch) => write!(f, "({life}) {epoch}"),
            Self::Answer(epoch, had) => write!(f, "{epoch} {}", if *had { "yes" } else { "no" }),
        }
    }
}

crate::rules! {
    /// The rules of the algorithm.
    pub enum Rule {
        /// The site waits passively.
        Awaits: "waits for the token to come round",
        /// The token is here.
        Enters: "has the token: it enters",
        /// Nobody here wants in.
        Passes: "does not want in: it passes the token on",
        /// The section is over.
        Leaves: "leaves and passes the token on",
        /// A ring of one.
        Keeps: "is alone on the ring and keeps the token",
        /// An old token.
        Refuses: "refuses a token of an older epoch, or of a site that has crashed",
        /// It may be an old one.
        Declines: "is not back yet and declines the token",
        /// The next on the ring is dead, or the site is new.
        Asks: "starts a new epoch and asks all who live for the token",
        /// Somebody asked is dead or knows a higher epoch.
        AsksAgain: "cannot get an answer from everybody: it asks again",
        /// The token is here and in use.
        TakesOver: "has the token and takes it over into the new epoch",
        /// The token is elsewhere.
        Adopts: "enters the new epoch without a token",
        /// The asker is behind.
        Contradicts: "knows of a higher epoch and says so",
        /// The asker has crashed since.
        TooLate: "is asked by a site that has crashed: there is nobody to answer",
        /// Somebody has it.
        Found: "hears that the token exists",
        /// Nobody has it.
        Regenerates: "has heard from all who live that the token is lost: it makes a new one",
        /// A site comes back.
        Joins: "is back and asks to be counted on",
        /// A site is welcomed.
        Welcomes: "counts on the site again",
        /// Meant for an earlier life, or from a site that has crashed since.
        OldWelcome: "has no use for so late a welcome",
        /// Everybody alive has said so.
        IsWelcome: "is counted on by all who live",
    }
}

/// One site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TokenRingRecovering {
    me: SiteId,
    sites: usize,
    phase: Phase,
    /// Those known to have crashed and not to be back.
    dead: SiteSet,
    epoch: Epoch,
    /// Whether the token of this epoch is known to exist: it is or has been here, or somebody said so.
    had_token: bool,
    has_token: bool,
    /// Whose answers are missing, while this site asks for the token.
    asking: Option<SiteSet>,
    /// Whether this site relies on whoever started its epoch: it has stopped asking in favour of it, or refused a token.
    trusting: bool,
    /// How often this site has come back.
    life: u32,
    /// Whether this site has come back from a crash, and not yet heard from all who live that they are in its epoch.
    returning: bool,
    /// Whose welcome is missing, before it may ask them.
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
            life: 0,
            returning: false,
            joining: SiteSet::none(setup.sites),
        }
    }

    /// The next on the ring who lives: the site itself if nobody else does.
    fn next(&self) -> SiteId {
        let mut next = self.me.next_on_ring(self.sites);
        while self.dead.contains(next) {
            next = next.next_on_ring(self.sites);
        }
        next
    }

    /// Below the fences of a token made in this epoch, and above those of all older ones: of each epoch's there are
    /// fewer than 2³². Nobody can have seen them before all who live have entered the epoch.
    fn first_fence(&self) -> u64 {
        (self.epoch.time * self.sites as u64 + self.epoch.site.index() as u64) << 32
    }

    fn adopt(&mut self, epoch: Epoch) {
        if epoch > self.epoch {
            self.epoch = epoch;
            self.had_token = self.has_token;
            self.trusting |= self.asking.take().is_some();
        }
    }

    /// If the token is here and this site may use it: uses it or passes it on.
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
            // Whoever started this epoch makes a new one, if it lives to see everybody's answer.
            self.trusting |= !self.had_token;
            if self.dead.contains(self.epoch.site) {
                self.ask_again_without(self.epoch.site, out);
            }
            return;
        }
        self.adopt(epoch);
        // Whoever asks for it has found it.
        self.asking = None;
        self.trusting = false;
        self.had_token = true;
        self.has_token = true;
        self.use_or_pass(Rule::Passes, out);
    }

    /// Asks everybody alive for the token, unless it is here.
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

    /// If everybody has answered and nobody has the token, makes a new one.
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

    /// A site has crashed, perhaps to come back: if it was asked, what it answers is worth nothing, and if it asked in
    /// this site's stead, this site must ask again.
    fn ask_again_without(&mut self, site: SiteId, out: &mut Out<Self>) {
        let asked = self.asking.as_ref().is_some_and(|missing| missing.contains(site));
        if asked || self.trusting && self.epoch.site == site {
            self.ask(Rule::AsksAgain, out);
        }
    }

    fn join(&mut self, site: SiteId, life: u32, out: &mut Out<Self>) {
        out.rule(Rule::Welcomes);
        self.dead.remove(site);
        out.send(site, Message::Welcome(life, self.epoch));
        self.ask_again_without(site, out);
        // Both are coming back: the other starts by counting on everybody.
        self.welcomed(site, out);
        // Perhaps this site was alone so far.
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
    type Input = Ask;
    type Message = Message;
    type Output = Entered;
    type Timer = Never;
    type Rule = Rule;

    fn input(&mut self, ask: Ask, out: &mut Out<Self>) {
        match ask {
            Ask::Request(_) => {
                self.phase = Phase::Waiting;
                if !self.has_token {
                    out.rule(Rule::Awaits);
                }
                self.use_or_pass(Rule::Passes, out);
            }
            Ask::Release => {
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
            Message::Join(life) => self.join(from, life, out),
            Message::Welcome(life, epoch) if life == self.life && self.joining.contains(from) => {
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
        idea: "A token ring that closes over crashed members and makes a lost token anew, in a new epoch.",
        channels: Channels::Fifo,
        perpetual: true,
        deadlock_free: true,
        cost: Cost { high: "1; 2(N−1) more for each crash", ..TokenRing::ABOUT.cost },
        crash: "of any sites but one: the others go on, if each crash is noticed and nothing else is taken for one",
        settings: &[],
    };

    const SURVIVES_CRASHES: bool = true;

    type Options = ();

    fn start(me: SiteId, setup: &Setup<()>, out: &mut Out<Self>) -> Self {
        let mut site = Self { phase: setup.phase_of(me), ..Self::fresh(me, setup) };
        site.has_token = setup.token_site() == me;
        site.had_token = site.has_token;
        site.use_or_pass(Rule::Passes, out);
        site
    }

    fn restart(me: SiteId, life: u32, setup: &Setup<()>, out: &mut Out<Self>) -> Self {
        let mut site = Self { returning: true, life, ..Self::fresh(me, setup) };
        out.rule(Rule::Joins);
        out.broadcast(Message::Join(life));
        site.joining.extend(SiteId::all(setup.sites));
        // Of itself it can be sure.
        site.welcomed(me, out);
        site
    }

    fn expected(load: Load, sites: usize, _options: &()) -> Expected {
        TokenRing::expected(load, sites, &())
    }

    /// Only tokens at sites count: one of an older epoch may still travel, to be refused.
    fn tokens(&self) -> u32 {
        self.has_token.into()
    }

    fn plausible(message: &Message, sites: usize) -> bool {
        // What the fences of an epoch are made of must fit into them.
        let fits =
            |epoch: &Epoch| epoch.site.index() < sites && epoch.time.saturating_mul(sites as u64) < 1 << 31;
        match message {
            Message::Token(epoch) | Message::WhoHas(epoch) => fits(epoch),
            Message::Answer(epoch, _) | Message::Welcome(_, epoch) => fits(epoch),
            Message::Join(_) => true,
        }
    }

    fn invariant(&self) -> Result<(), &'static str> {
        if self.phase == Phase::Inside && !self.has_token {
            return Err("inside without the token");
        }
        if self.has_token && self.asking.is_some() {
            return Err("asks for a token that is here");
        }
        if self.has_token && self.returning {
            return Err("has the token before it is back");
        }
        if self.has_token && !self.had_token {
            return Err("has a token of an older epoch");
        }
        Ok(())
    }
}
