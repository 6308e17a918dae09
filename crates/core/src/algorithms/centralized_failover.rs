//! # The centralized coordinator, with failover
//!
//! Told in outline by the textbooks (Coulouris et al., *Distributed Systems*, sections 15.2 and 15.3): the coordinator is
//! elected, and when it dies a new one rebuilds from its clients what the old one knew.
//!
//! **Idea.** As `centralized`, until the coordinator is suspected. Then the sites elect another, which asks everybody with
//! INQUIRE who is inside and who waits, and grants nothing until every survivor has answered with STATUS. Each
//! coordinator has a *term*; a site that has answered in one term takes no grant of an earlier one.
//!
//! **Assumes** FIFO channels, a failure detector that suspects every crashed process and no other, and the bounded delays
//! that the election assumes. One crash at a time, the next only after the failover.
//!
//! **Cost.** While nothing fails, that of `centralized`: 3 messages per entry, no heartbeats of its own. A failover costs
//! an election and an INQUIRE and a STATUS for each survivor.
//!
//! **Pitfalls.** A new coordinator that forgets to queue those who wait leaves them waiting for ever; one that does not
//! wait for all answers lets a second site in beside the holder; without terms, so does a late grant of the old one. What
//! a site sent before it died may arrive after its death was noticed, and must not put it back into the queue; and a
//! site that was once suspected may be back, and inside: a new coordinator gives it time to answer. And the limit that no care removes: a site that is slow or cut off and not dead looks dead. If it is inside, the new
//! coordinator lets a second one in. Only a majority that stands behind the new coordinator could tell it that it may.

use super::failover_messages::{Message, Term, Timer};
use crate::election::TIMEOUT_MILLI_T;
use crate::elections::elector::{self, Choice, Elector, Electorate, Event};
use crate::mutex::{Channels, Cost, Family, LARGEST_NUMBER, Setting, Settings, list, parse_site};
use crate::{
    About, Ask, Entered, Expected, Field, Load, MutualExclusion, Out, Phase, Protocol, Setup, SiteId, SiteSet,
};
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
crate::rules! {
    /// The rules of the algorithm.
    pub enum Rule {
        /// A site wants in.
        Asks: "asks the coordinator",
        /// The section is free.
        Grants: "finds the section free and grants it",
        /// The section is taken, or not everybody has answered yet.
        Queues: "queues the request",
        /// The answer to a site.
        Enters: "has the grant and enters",
        /// A site leaves.
        Leaves: "gives the section back to the coordinator",
        /// The queue is empty.
        Rests: "takes the section back; nobody waits for it",
        /// The coordinator is suspected, or somebody else has started.
        Elects: "takes part in the election of a coordinator",
        /// It is elected.
        TakesOver: "is elected, and asks everybody who is inside and who waits",
        /// A coordinator asks.
        Answers: "tells the coordinator where it stands, and follows it from now on",
        /// All survivors have answered.
        Resumes: "has heard from everybody that is up, and may grant again",
        /// A grant of a term that is over.
        Refuses: "refuses a grant that is not of its coordinator's term, or that it did not ask for",
        /// A client is suspected.
        CountsOut: "counts out a site that has crashed",
        /// Somebody has a higher term.
        Renews: "hears of a later term than its own and asks again in one later still",
        /// Somebody asks in another term.
        Corrects: "asks a site that speaks of another term where it stands",
    }
}

/// Who coordinates at first, and how the next is found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// One of the sites; `None` for a process apart.
    pub coordinator: Option<SiteId>,
    /// Which election.
    pub election: Choice,
}

/// One process of the system.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CentralizedFailover {
    me: SiteId,
    processes: usize,
    phase: Phase,
    /// The latest term in which this process has answered.
    term: Term,
    /// Who has ever been suspected; it may be back.
    suspected: SiteSet,
    elector: Elector,
    /// Only at the coordinator.
    desk: Option<Desk>,
}

/// What the coordinator keeps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Desk {
    term: Term,
    holder: Option<SiteId>,
    queue: VecDeque<SiteId>,
    /// Who has not answered yet; while there is anybody, nothing is granted.
    awaited: SiteSet,
    /// Who is held for dead until it answers this question: what it said before may have been under way when it died.
    counted_out: Vec<(SiteId, u32)>,
    questions: u32,
}

impl Desk {
    fn new(term: Term, holder: Option<SiteId>, awaited: SiteSet) -> Self {
        Self { term, holder, queue: VecDeque::new(), awaited, counted_out: Vec::new(), questions: 0 }
    }

    fn is_counted_out(&self, site: SiteId) -> bool {
        self.counted_out.iter().any(|(other, _)| *other == site)
    }

    fn enter(&mut self, from: SiteId, out: &mut Out<CentralizedFailover>) {
        // What a site asks twice because the coordinator changed is asked once.
        if self.holder == Some(from) || self.queue.contains(&from) || self.is_counted_out(from) {
            return;
        }
        self.queue.push_back(from);
        if self.holder.is_some() || !self.awaited.is_empty() {
            out.rule(Rule::Queues);
        }
        self.grant_next(out);
    }

    fn released(&mut self, out: &mut Out<CentralizedFailover>) {
        self.holder = None;
        if self.queue.is_empty() {
            out.rule(Rule::Rests);
        }
        self.grant_next(out);
    }

    fn grant_next(&mut self, out: &mut Out<CentralizedFailover>) {
        if self.holder.is_none() && self.awaited.is_empty() {
            self.holder = self.queue.pop_front();
            if let Some(next) = self.holder {
                out.rule(Rule::Grants);
                out.send(next, Message::Granted(self.term));
            }
        }
    }

    /// A site stands so, in the coordinator's term.
    fn status(&mut self, from: SiteId, question: u32, phase: Phase, out: &mut Out<CentralizedFailover>) {
        self.counted_out.retain(|&(site, asked)| site != from || question < asked);
        if self.is_counted_out(from) {
            return;
        }
        match phase {
            Phase::Waiting => self.enter(from, out),
            Phase::Inside => self.holder = Some(from),
            Phase::Idle if self.holder == Some(from) => self.released(out),
            Phase::Idle => {}
        }
        self.no_longer_awaits(from, out);
    }

    /// A process has answered, or never will.
    fn no_longer_awaits(&mut self, site: SiteId, out: &mut Out<CentralizedFailover>) {
        if self.awaited.remove(site) && self.awaited.is_empty() {
            self.resume(out);
        }
    }

    fn resume(&mut self, out: &mut Out<CentralizedFailover>) {
        out.rule(Rule::Resumes);
        // The old coordinator may have been inside itself, or have let in somebody who has died as well.
        out.skip_fence();
        self.grant_next(out);
    }

    fn count_out(&mut self, crashed: SiteId, out: &mut Out<CentralizedFailover>) {
        out.rule(Rule::CountsOut);
        self.queue.retain(|&site| site != crashed);
        if self.holder == Some(crashed) {
            out.skip_fence();
            self.released(out);
        }
        self.no_longer_awaits(crashed, out);
        // It may only have been slow: then it answers, and is queued again.
        self.questions += 1;
        self.counted_out.retain(|(site, _)| *site != crashed);
        self.counted_out.push((crashed, self.questions));
        out.send(crashed, Message::Inquire(self.term, self.questions));
    }
}

impl CentralizedFailover {
    fn new(me: SiteId, setup: &Setup<Options>, term: Term, out: &mut Out<Self>) -> Self {
        let processes = setup.sites + Self::helpers(&setup.options);
        let leader = (term.number > 0).then_some(term.coordinator);
        let (elector, elected) = Elector::start(setup.options.election, me, processes, leader, out);
        let suspected = SiteSet::none(processes);
        let mut process =
            Self { me, processes, phase: setup.phase_of(me), term, suspected, elector, desk: None };
        process.react(elected, out);
        process
    }

    /// Does what an election's outcome wants done.
    fn react(&mut self, elected: Option<SiteId>, out: &mut Out<Self>) {
        if elected == Some(self.me) {
            out.rule(Rule::TakesOver);
            self.take_over(self.term.number + 1, out);
        }
    }

    fn take_over(&mut self, number: u64, out: &mut Out<Self>) {
        self.term = Term { number, coordinator: self.me };
        let mine = |phase| (self.phase == phase).then_some(self.me);
        let awaited = SiteSet::all_but(self.processes, self.me);
        let mut desk = Desk::new(self.term, mine(Phase::Inside), awaited);
        desk.queue.extend(mine(Phase::Waiting));
        out.broadcast(Message::Inquire(self.term, desk.questions));
        out.arm(Timer::Answers, TIMEOUT_MILLI_T);
        if desk.awaited.is_empty() {
            desk.resume(out);
        }
        self.desk = Some(desk);
    }

    fn inquired(&mut self, from: SiteId, term: Term, question: u32, out: &mut Out<Self>) {
        if term > self.term {
            self.term = term;
            self.desk = None;
        }
        out.rule(Rule::Answers);
        out.send(from, Message::Status(self.term, question, self.phase));
    }

    fn granted(&mut self, from: SiteId, term: Term, out: &mut Out<Self>) {
        if term == self.term && self.phase == Phase::Waiting {
            out.rule(Rule::Enters);
            self.phase = Phase::Inside;
            out.output(Entered);
        } else {
            out.rule(Rule::Refuses);
            if self.phase != Phase::Inside {
                out.send(from, Message::Released(term));
            }
        }
    }

    /// A message to the coordinator arrives.
    fn at_the_desk(&mut self, from: SiteId, message: Message, out: &mut Out<Self>) {
        let Some(desk) = &mut self.desk else { return };
        match message {
            Message::Enter(term) if term == desk.term => desk.enter(from, out),
            Message::Released(term) if term == desk.term && desk.holder == Some(from) => desk.released(out),
            Message::Status(term, question, phase) if term == desk.term => {
                desk.status(from, question, phase, out)
            }
            Message::Status(term, ..) if term > desk.term => {
                out.rule(Rule::Renews);
                self.take_over(term.number + 1, out);
            }
            Message::Enter(term) | Message::Released(term) if term != desk.term => {
                out.rule(Rule::Corrects);
                out.send(from, Message::Inquire(desk.term, desk.questions));
            }
            _ => {}
        }
    }
}

impl Electorate for CentralizedFailover {
    fn wrap(message: elector::Message) -> Message {
        Message::Election(message)
    }

    fn wrap_timer(timer: elector::Timer) -> Timer {
        Timer::Election(timer)
    }
}

impl Protocol for CentralizedFailover {
    type Input = Ask;
    type Message = Message;
    type Output = Entered;
    type Timer = Timer;
    type Rule = Rule;

    fn input(&mut self, ask: Ask, out: &mut Out<Self>) {
        let (phase, rule, message) = match ask {
            Ask::Request(_) => (Phase::Waiting, Rule::Asks, Message::Enter(self.term)),
            Ask::Release => (Phase::Idle, Rule::Leaves, Message::Released(self.term)),
        };
        out.rule(rule);
        self.phase = phase;
        // A process that has come back knows no coordinator; the one that is elected will ask it.
        if self.term.number > 0 {
            out.send(self.term.coordinator, message);
        }
    }

    fn message(&mut self, from: SiteId, message: Message, out: &mut Out<Self>) {
        match message {
            Message::Granted(term) => self.granted(from, term, out),
            Message::Inquire(term, question) => self.inquired(from, term, question, out),
            Message::Election(message) => {
                out.rule(Rule::Elects);
                let elected = self.elector.handle(Event::Message(from, message), out);
                self.react(elected, out);
            }
            Message::Enter(_) | Message::Released(_) | Message::Status(..) => {
                self.at_the_desk(from, message, out)
            }
        }
    }

    fn timer(&mut self, timer: Timer, out: &mut Out<Self>) {
        match (timer, &mut self.desk) {
            (Timer::Election(timer), _) => {
                let elected = self.elector.handle(Event::Timer(timer), out);
                self.react(elected, out);
            }
            (Timer::Answers, Some(desk)) => {
                for site in
                    self.suspected.iter().filter(|&site| desk.awaited.contains(site)).collect::<Vec<_>>()
                {
                    desk.count_out(site, out);
                }
            }
            (Timer::Answers, None) => {}
        }
    }

    fn suspect(&mut self, site: SiteId, out: &mut Out<Self>) {
        self.suspected.insert(site);
        if let Some(desk) = &mut self.desk {
            desk.count_out(site, out);
        }
        let elected = self.elector.handle(Event::Suspicion(site), out);
        self.react(elected, out);
    }

    fn fields(&self) -> Vec<Field> {
        let mut fields = vec![Field::new("state", self.phase), Field::new("term", self.term)];
        if let Some(desk) = &self.desk {
            fields.push(Field::new("holder", list(desk.holder, "nobody")));
            fields.push(Field::new("queue", list(&desk.queue, "empty")));
            fields.push(Field::new("awaits", &desk.awaited));
        }
        fields
    }

    fn waits_for(&self) -> Vec<SiteId> {
        match &self.desk {
            Some(desk) if !desk.awaited.is_empty() => desk.awaited.iter().collect(),
            Some(desk) if !desk.queue.is_empty() => desk.holder.into_iter().collect(),
            None if self.phase == Phase::Waiting && self.term.number > 0 => vec![self.term.coordinator],
            _ => Vec::new(),
        }
    }
}

impl MutualExclusion for CentralizedFailover {
    const ABOUT: About = About {
        slug: "centralized-failover",
        title: "Centralized coordinator with failover",
        family: Family::Coordinator,
        paper: "Coulouris et al., Distributed Systems, sections 15.2 and 15.3",
        idea: "A coordinator that is elected: when it dies, the next one asks the survivors who holds and who waits.",
        channels: Channels::Fifo,
        perpetual: false,
        deadlock_free: true,
        cost: Cost {
            low: "3; 3(1−1/N) with the coordinator among the sites",
            high: "3; 3(1−1/N) with the coordinator among the sites",
            sync_delay: "2T; 2T(1−1/N) with the coordinator among the sites",
            client_delay: "2T; mean 2T(1−1/N) with the coordinator among the sites",
        },
        crash: "with a failure detector, of any process: the others go on; wrong suspicion of a site inside: two inside",
        settings: &[
            Setting {
                name: "coordinator",
                values: "apart or a site's number",
                default: "apart",
                help: "who keeps the queue at first: a process that never asks itself, or one of the sites",
            },
            Setting {
                name: "election",
                values: "bully or ring",
                default: "bully",
                help: "how the next coordinator is found",
            },
        ],
    };

    type Options = Options;

    fn options(settings: &mut Settings, sites: usize) -> Result<Options, String> {
        let coordinator = |text: &str| match text {
            "apart" => Some(None),
            number => parse_site(number, sites).map(Some),
        };
        let election = |text: &str| match text {
            "bully" => Some(Choice::Bully),
            "ring" => Some(Choice::Ring),
            _ => None,
        };
        let expected = "'apart' or the number of a site of the system";
        Ok(Options {
            coordinator: settings.take("coordinator", None, coordinator, expected)?,
            election: settings.take("election", Choice::Bully, election, "bully or ring")?,
        })
    }

    fn helpers(options: &Options) -> usize {
        usize::from(options.coordinator.is_none())
    }

    fn start(me: SiteId, setup: &Setup<Options>, out: &mut Out<Self>) -> Self {
        let coordinator = setup.options.coordinator.unwrap_or(SiteId::new(setup.sites));
        let term = Term { number: 1, coordinator };
        let mut process = Self::new(me, setup, term, out);
        if me == coordinator {
            let awaited = SiteSet::none(process.processes);
            process.desk = Some(Desk::new(term, setup.holder(), awaited));
        }
        process
    }

    fn restart(me: SiteId, _life: u32, setup: &Setup<Options>, out: &mut Out<Self>) -> Self {
        Self::new(me, setup, Term { number: 0, coordinator: me }, out)
    }

    fn expected(_load: Load, sites: usize, options: &Options) -> Expected {
        // The share of entries that are not the coordinator's own.
        let remote = if options.coordinator.is_some() { 1.0 - 1.0 / sites as f64 } else { 1.0 };
        Expected {
            messages_per_entry: Some(3.0 * remote),
            sync_delay: Some(2.0 * remote),
            client_delay: Some(2.0 * remote),
        }
    }

    /// All that a crash brings about.
    fn dormant(_options: &Options) -> &'static [&'static str] {
        &[
            "INQUIRE",
            "STATUS",
            "ELECTION",
            "OK",
            "COORDINATOR",
            "ACK",
            "takes part in the election of a coordinator",
            "is elected, and asks everybody who is inside and who waits",
            "tells the coordinator where it stands, and follows it from now on",
            "has heard from everybody that is up, and may grant again",
            "refuses a grant that is not of its coordinator's term, or that it did not ask for",
            "counts out a site that has crashed",
            "hears of a later term than its own and asks again in one later still",
            "asks a site that speaks of another term where it stands",
        ]
    }

    fn plausible(message: &Message, sites: usize) -> bool {
        let (Message::Enter(term)
        | Message::Granted(term)
        | Message::Released(term)
        | Message::Inquire(term, _)
        | Message::Status(term, ..)) = message
        else {
            // Drivers that ask have views instead of a failure detector: nobody is suspected there, and nobody elected.
            return false;
        };
        term.number <= LARGEST_NUMBER && term.coordinator.index() < sites
    }

    fn invariant(&self) -> Result<(), &'static str> {
        match &self.desk {
            Some(desk) if desk.holder.is_none() && desk.awaited.is_empty() && !desk.queue.is_empty() => {
                Err("the section is free and yet somebody is in the queue")
            }
            Some(desk) if desk.term != self.term => Err("the coordinator follows another one"),
            _ => Ok(()),
        }
    }
}
