//! # The centralized coordinator, with failover
//!
//! Outlined in the textbooks (Coulouris et al., *Distributed Systems*, sections 15.2 and 15.3): the coordinator is
//! elected, and when it dies a new one rebuilds the state of the old one from the answers of the sites.
//!
//! **Idea.** As `centralized`, until the coordinator is suspected. Then the sites elect another one. It sends INQUIRE
//! to all sites to learn which of them is inside and which wait, and grants nothing until every survivor has answered
//! with STATUS. Each coordinator has a *term*; a site that has answered in one term accepts no grant of an earlier one.
//!
//! **Assumes** FIFO channels, a failure detector that suspects every crashed process and no other, and the bounded
//! delays that the election assumes. One crash at a time, the next only after the failover.
//!
//! **Cost.** While nothing fails, that of `centralized`: 3 messages per entry, no heartbeats of its own. A failover
//! costs an election and an INQUIRE and a STATUS for each survivor.
//!
//! **Pitfalls.** A new coordinator that does not queue the waiting sites leaves them waiting for ever. One that does
//! not wait for all answers admits a second site beside the holder; without terms, so does a late grant of the old one.
//! A message that a site sent before it died may arrive after its death was noticed, and must not put the site back
//! into the queue. A site that was once suspected may be back, and inside: a new coordinator gives it time to answer.
//! One limit remains: a site that is slow or cut off looks dead. If it is inside, the new coordinator admits a second
//! one. Only the consent of a majority could show the new coordinator that it may grant.

use super::failover_messages::{Message, Term, Timer};
use crate::election::TIMEOUT_MILLI_T;
use crate::elections::elector::{self, Choice, Elector, Electorate, Event};
use crate::mutex::{Channels, Cost, Family, LARGEST_NUMBER, list, parse_site};
use crate::settings::{OptionsError, Setting, Settings};
use crate::{
    About, ApplicationInput, Configure, Entered, Expected, Field, Inspect, InvariantViolated, Load,
    MutualExclusion, Out, PaperFigures, Phase, Protocol, Setup, SiteId, SiteSet, Validate,
};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
crate::rules! {
    /// The rules of the algorithm.
    pub enum Rule {
        /// A site requests.
        Asks: "asks the coordinator",
        /// The section is free.
        Grants: "finds the section free and grants it",
        /// The section is taken, or some site has not answered yet.
        Queues: "queues the request",
        /// The grant arrives at the site.
        Enters: "has the grant and enters",
        /// A site leaves.
        Leaves: "gives the section back to the coordinator",
        /// The queue is empty.
        Rests: "takes the section back; no site waits for it",
        /// The coordinator is suspected, or another site has started an election.
        Elects: "takes part in the election of a coordinator",
        /// The process is elected.
        TakesOver: "is elected, and asks all sites which is inside and which wait",
        /// A coordinator inquires.
        Answers: "reports its state to the coordinator, and follows it from now on",
        /// All survivors have answered.
        Resumes: "has an answer from every site that is up, and may grant again",
        /// A grant of a term that is over.
        Refuses: "refuses a grant that is not of its coordinator's term, or that it did not ask for",
        /// A site is suspected.
        CountsOut: "excludes a site that has crashed",
        /// A site answers with a higher term.
        Renews: "learns of a later term than its own and asks again in a higher one",
        /// A site sends a message of another term.
        Corrects: "asks a site that is in another term for its state",
    }
}

/// The first coordinator, and the election that finds the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The first coordinator; `None` for a separate process.
    pub coordinator: Option<SiteId>,
    /// The election that finds the next coordinator.
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
    /// The sites that have ever been suspected. Some of them may be back.
    suspected: SiteSet,
    elector: Elector,
    /// The coordinator's state; `None` at other processes.
    coordinating: Option<CoordinatorState>,
}

/// The coordinator's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CoordinatorState {
    term: Term,
    holder: Option<SiteId>,
    queue: VecDeque<SiteId>,
    /// The sites that have not answered yet. While there are any, nothing is granted.
    awaited: SiteSet,
    /// Suspected sites, each with the number of the INQUIRE that it has to answer. Until it does, the coordinator
    /// ignores the site, because its earlier messages may have been in transit when it died.
    excluded: Vec<(SiteId, u32)>,
    questions: u32,
}

impl CoordinatorState {
    fn new(term: Term, holder: Option<SiteId>, awaited: SiteSet) -> Self {
        Self { term, holder, queue: VecDeque::new(), awaited, excluded: Vec::new(), questions: 0 }
    }

    fn is_excluded(&self, site: SiteId) -> bool {
        self.excluded.iter().any(|(other, _)| *other == site)
    }

    fn enter(&mut self, from: SiteId, out: &mut Out<CentralizedFailover>) {
        // A site that saw the coordinator change may send the same request twice.
        if self.holder == Some(from) || self.queue.contains(&from) || self.is_excluded(from) {
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

    /// Handles the answer of a site that is in the coordinator's term.
    fn status(&mut self, from: SiteId, question: u32, phase: Phase, out: &mut Out<CentralizedFailover>) {
        self.excluded.retain(|&(site, asked)| site != from || question < asked);
        if self.is_excluded(from) {
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

    /// Handles that a process has answered, or will never answer.
    fn no_longer_awaits(&mut self, site: SiteId, out: &mut Out<CentralizedFailover>) {
        if self.awaited.remove(site) && self.awaited.is_empty() {
            self.resume(out);
        }
    }

    fn resume(&mut self, out: &mut Out<CentralizedFailover>) {
        out.rule(Rule::Resumes);
        // The old coordinator may have been inside itself, or may have granted to a site that has died as well.
        out.skip_fence();
        self.grant_next(out);
    }

    fn exclude(&mut self, crashed: SiteId, out: &mut Out<CentralizedFailover>) {
        out.rule(Rule::CountsOut);
        self.queue.retain(|&site| site != crashed);
        if self.holder == Some(crashed) {
            out.skip_fence();
            self.released(out);
        }
        self.no_longer_awaits(crashed, out);
        // The site may only have been slow. Then it answers, and its request is queued again.
        self.questions += 1;
        self.excluded.retain(|(site, _)| *site != crashed);
        self.excluded.push((crashed, self.questions));
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
            Self { me, processes, phase: setup.phase_of(me), term, suspected, elector, coordinating: None };
        process.react(elected, out);
        process
    }

    /// Takes over if this process is elected.
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
        let mut state = CoordinatorState::new(self.term, mine(Phase::Inside), awaited);
        state.queue.extend(mine(Phase::Waiting));
        out.broadcast(Message::Inquire(self.term, state.questions));
        out.arm(Timer::Answers, TIMEOUT_MILLI_T);
        if state.awaited.is_empty() {
            state.resume(out);
        }
        self.coordinating = Some(state);
    }

    fn inquired(&mut self, from: SiteId, term: Term, question: u32, out: &mut Out<Self>) {
        if term > self.term {
            self.term = term;
            self.coordinating = None;
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

    /// Handles a message to the coordinator.
    fn handle_as_coordinator(&mut self, from: SiteId, message: Message, out: &mut Out<Self>) {
        let Some(state) = &mut self.coordinating else { return };
        match message {
            Message::Enter(term) if term == state.term => state.enter(from, out),
            Message::Released(term) if term == state.term && state.holder == Some(from) => {
                state.released(out)
            }
            Message::Status(term, question, phase) if term == state.term => {
                state.status(from, question, phase, out)
            }
            Message::Status(term, ..) if term > state.term => {
                out.rule(Rule::Renews);
                self.take_over(term.number + 1, out);
            }
            Message::Enter(term) | Message::Released(term) if term != state.term => {
                out.rule(Rule::Corrects);
                out.send(from, Message::Inquire(state.term, state.questions));
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
    type Input = ApplicationInput;
    type Message = Message;
    type Output = Entered;
    type Timer = Timer;
    type Rule = Rule;

    fn input(&mut self, input: ApplicationInput, out: &mut Out<Self>) {
        let (phase, rule, message) = match input {
            ApplicationInput::Request(_) => (Phase::Waiting, Rule::Asks, Message::Enter(self.term)),
            ApplicationInput::Release => (Phase::Idle, Rule::Leaves, Message::Released(self.term)),
        };
        out.rule(rule);
        self.phase = phase;
        // A process that has come back does not know the coordinator. The next one to be elected will send INQUIRE to
        // it.
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
                self.handle_as_coordinator(from, message, out)
            }
        }
    }

    fn timer(&mut self, timer: Timer, out: &mut Out<Self>) {
        match (timer, &mut self.coordinating) {
            (Timer::Election(timer), _) => {
                let elected = self.elector.handle(Event::Timer(timer), out);
                self.react(elected, out);
            }
            (Timer::Answers, Some(state)) => {
                for site in
                    self.suspected.iter().filter(|&site| state.awaited.contains(site)).collect::<Vec<_>>()
                {
                    state.exclude(site, out);
                }
            }
            (Timer::Answers, None) => {}
        }
    }

    fn suspect(&mut self, site: SiteId, out: &mut Out<Self>) {
        self.suspected.insert(site);
        if let Some(state) = &mut self.coordinating {
            state.exclude(site, out);
        }
        let elected = self.elector.handle(Event::Suspicion(site), out);
        self.react(elected, out);
    }

    fn fields(&self) -> Vec<Field> {
        let mut fields = vec![Field::new("state", self.phase), Field::new("term", self.term)];
        if let Some(state) = &self.coordinating {
            fields.push(Field::new("holder", list(state.holder, "nobody")));
            fields.push(Field::new("queue", list(&state.queue, "empty")));
            fields.push(Field::new("awaits", &state.awaited));
        }
        fields
    }

    fn waits_for(&self) -> Vec<SiteId> {
        match &self.coordinating {
            Some(state) if !state.awaited.is_empty() => state.awaited.iter().collect(),
            Some(state) if !state.queue.is_empty() => state.holder.into_iter().collect(),
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
        idea: "A coordinator that is elected: when it dies, the next one asks the survivors which holds and \
               which wait.",
        channels: Channels::Fifo,
        perpetual: false,
        deadlock_free: true,
        cost: Cost {
            low: "3; 3(1−1/N) with the coordinator among the sites",
            high: "3; 3(1−1/N) with the coordinator among the sites",
            sync_delay: "2T; 2T(1−1/N) with the coordinator among the sites",
            client_delay: "2T; mean 2T(1−1/N) with the coordinator among the sites",
        },
        crash: "with a failure detector, of any process: the others continue; wrong suspicion of a site \
                inside: two inside",
        settings: &[
            Setting {
                name: "coordinator",
                values: "apart or a site's number",
                default: "apart",
                help: "which process keeps the queue at first: a separate one that never requests, or one of the sites",
            },
            Setting {
                name: "election",
                values: "bully or ring",
                default: "bully",
                help: "how the next coordinator is found",
            },
        ],
    };

    fn helpers(options: &Options) -> usize {
        usize::from(options.coordinator.is_none())
    }

    fn start(me: SiteId, setup: &Setup<Options>, out: &mut Out<Self>) -> Self {
        let coordinator = setup.options.coordinator.unwrap_or(SiteId::new(setup.sites));
        let term = Term { number: 1, coordinator };
        let mut process = Self::new(me, setup, term, out);
        if me == coordinator {
            let awaited = SiteSet::none(process.processes);
            process.coordinating = Some(CoordinatorState::new(term, setup.holder(), awaited));
        }
        process
    }

    fn restart(me: SiteId, _incarnation: u32, setup: &Setup<Options>, out: &mut Out<Self>) -> Self {
        Self::new(me, setup, Term { number: 0, coordinator: me }, out)
    }
}

impl Configure for CentralizedFailover {
    type Options = Options;

    fn options(settings: &mut Settings, sites: usize) -> Result<Options, OptionsError> {
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
}

impl PaperFigures for CentralizedFailover {
    fn expected(_load: Load, sites: usize, options: &Options) -> Expected {
        // The share of entries of other sites than the coordinator.
        let remote = if options.coordinator.is_some() { 1.0 - 1.0 / sites as f64 } else { 1.0 };
        Expected {
            messages_per_entry: Some(3.0 * remote),
            sync_delay: Some(2.0 * remote),
            client_delay: Some(2.0 * remote),
            ..Expected::default()
        }
    }

    /// The messages and rules that occur only after a crash.
    fn unreachable_labels(_options: &Options) -> &'static [&'static str] {
        &[
            "INQUIRE",
            "STATUS",
            "ELECTION",
            "OK",
            "COORDINATOR",
            "ACK",
            "takes part in the election of a coordinator",
            "is elected, and asks all sites which is inside and which wait",
            "reports its state to the coordinator, and follows it from now on",
            "has an answer from every site that is up, and may grant again",
            "refuses a grant that is not of its coordinator's term, or that it did not ask for",
            "excludes a site that has crashed",
            "learns of a later term than its own and asks again in a higher one",
            "asks a site that is in another term for its state",
        ]
    }
}

impl Inspect for CentralizedFailover {
    fn invariant(&self) -> Result<(), InvariantViolated> {
        match &self.coordinating {
            Some(state) if state.holder.is_none() && state.awaited.is_empty() && !state.queue.is_empty() => {
                Err(InvariantViolated("the section is free although the queue is not empty"))
            }
            Some(state) if state.term != self.term => {
                Err(InvariantViolated("the coordinator follows another one"))
            }
            _ => Ok(()),
        }
    }
}

impl Validate for CentralizedFailover {
    fn is_well_formed(message: &Message, sites: usize) -> bool {
        let (Message::Enter(term)
        | Message::Granted(term)
        | Message::Released(term)
        | Message::Inquire(term, _)
        | Message::Status(term, ..)) = message
        else {
            // Drivers that call this have views instead of a failure detector, so that elections do not occur.
            return false;
        };
        term.number <= LARGEST_NUMBER && term.coordinator.index() < sites
    }
}
