//! The checker: every reachable state of a small system, and the shortest way to whatever is wrong.
//!
//! ```
//! use lockkeeper_lab::check::{Question, check};
//!
//! let answer = check(&Question::new("ricart-agrawala", 2), |_| true).unwrap();
//! assert!(answer.is_verified());
//! assert_eq!(answer.max_messages_per_entry, Some(2.0)); // 2(N−1), in any run
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`store`] | the states seen so far, packed |
//! | [`search`] | breadth-first search over them, on all cores |
//! | [`machine`] | what can be searched: machines that exchange messages |
//! | [`net`], [`intern`] | such machines as rows of small numbers; each local step is taken once |
//! | [`reduce`] | not every order of steps that commute |
//! | [`shift`] | clocks that only matter relative to each other |
//! | [`liveness`] | runs that go round for ever while somebody waits |
//! | [`mutex`] | mutual exclusion algorithms as machines |
//! | [`counterexample`] | a run, told and drawn |

mod answer;
pub mod counterexample;
pub mod intern;
pub mod liveness;
pub mod machine;
pub mod mutex;
pub mod net;
pub mod reduce;
pub mod search;
pub mod shift;
pub mod store;

pub use answer::{Answer, Verdict};
pub use machine::{Fault, Faults};
pub use search::Sofar;

use crate::runner::{self, Error};
use crate::spec::Spec;
use counterexample::Counterexample;
use lockkeeper_core::mutex::Channels;
use lockkeeper_core::registry::Visitor;
use lockkeeper_core::{Holder, MutualExclusion, Setup};
use machine::Machines;
use mutex::Sites;
use net::{Action, Net, Seen};
use reduce::Sends;
use search::{Ended, Search, Witness};

/// The most processes that are checked: each state keeps a number for every channel.
pub const MOST_SITES: usize = 9;
/// The most requests of each site.
pub const MOST_REQUESTS: u8 = 15;

/// What is to be checked.
#[derive(Clone, Debug)]
pub struct Question {
    /// The algorithm, or a wrong-on-purpose variant.
    pub algorithm: String,
    /// How many sites may ask.
    pub sites: usize,
    /// The algorithm's own settings.
    pub settings: Vec<(String, String)>,
    /// How often each site asks; for ever if nothing is said.
    pub requests: Option<u8>,
    /// Whether channels keep their order; as the algorithm assumes if nothing is said.
    pub fifo: Option<bool>,
    /// Who is inside at the start.
    pub holders: Vec<Holder>,
    /// What may go wrong, and how often.
    pub faults: Faults,
    /// Whether every order of steps is tried, even of those that commute.
    pub full: bool,
    /// How many threads search.
    pub threads: usize,
}

impl Question {
    /// One request of each site, no faults.
    pub fn new(algorithm: &str, sites: usize) -> Self {
        Self {
            algorithm: algorithm.into(),
            sites,
            settings: Vec::new(),
            requests: Some(1),
            fifo: None,
            holders: Vec::new(),
            faults: Faults::default(),
            full: true,
            threads: 1,
        }
    }

    /// The same with so many requests.
    pub fn requests(mut self, requests: u8) -> Self {
        self.requests = Some(requests);
        self
    }

    fn check(&self) -> Result<(), String> {
        if !(1..=MOST_SITES).contains(&self.sites) {
            return Err(format!("the checker takes 1 to {MOST_SITES} sites, not {}", self.sites));
        }
        match self.requests {
            Some(requests) if !(1..=MOST_REQUESTS).contains(&requests) => {
                Err(format!("each site asks 1 to {MOST_REQUESTS} times, or for ever; not {requests} times"))
            }
            _ => Ok(()),
        }
    }
}

/// Searches every reachable state. `go_on` is told how far it is, and may end the search.
pub fn check(question: &Question, go_on: impl FnMut(Sofar) -> bool) -> Result<Answer, Error> {
    question.check().map_err(Error::Usage)?;
    runner::visit_named(&question.algorithm, Check { question, go_on })
        .ok_or_else(|| Error::Usage(format!("there is no algorithm '{}'", question.algorithm)))?
}

struct Check<'a, F> {
    question: &'a Question,
    go_on: F,
}

impl<F: FnMut(Sofar) -> bool> Visitor for Check<'_, F> {
    type Output = Result<Answer, Error>;

    fn visit<P: MutualExclusion>(self) -> Self::Output {
        let Self { question, go_on } = self;
        let mut spec = Spec::new(&question.algorithm, question.sites);
        spec.settings.clone_from(&question.settings);
        spec.holders.clone_from(&question.holders);
        let options = runner::check::<P>(&spec)?;
        let processes = question.sites + P::helpers(&options);
        if processes > MOST_SITES {
            return Err(Error::Usage(format!("the checker takes at most {MOST_SITES} processes")));
        }
        let sites = Sites::<P> {
            setup: Setup { holders: question.holders.clone(), ..Setup::new(question.sites, options) },
            requests: question.requests,
            fifo: question.fifo.unwrap_or(P::ABOUT.channels == Channels::Fifo),
            faults: question.faults,
        };
        Ok(Checker { question, sites, go_on }.run())
    }
}

struct Checker<'a, P: MutualExclusion, F> {
    question: &'a Question,
    sites: Sites<P>,
    go_on: F,
}

/// What one search came to.
struct Searched {
    ended: Ended<Action, machine::Breach>,
    sofar: Sofar,
    seen: Seen,
    bounded: bool,
    lasso: Option<liveness::Lasso>,
    looked_for_starvation: bool,
}

impl<P: MutualExclusion, F: FnMut(Sofar) -> bool> Checker<'_, P, F> {
    fn run(mut self) -> Answer {
        let reducible = !self.question.full
            && self.question.faults.none()
            && self.question.requests.is_some()
            && !P::ABOUT.perpetual;
        let mut net = Net::new(self.sites.clone());
        if reducible {
            self.learn_who_sends(&mut net);
        }
        let threads =
            if self.question.requests.is_none() || P::ABOUT.perpetual { 1 } else { self.question.threads };
        let mut searched = self.search(&net, threads, u64::MAX);
        if let Ended::Wrong(_) = searched.ended
            && (reducible || threads > 1)
        {
            // Again, with every order and one thread, no deeper than before: for a shortest run, always the same.
            net = Net::new(self.sites.clone());
            searched = self.search(&net, 1, searched.sofar.depth + 1);
        }
        self.answer(&net, searched)
    }

    /// Searches again and again, until it is known who can send to whom.
    fn learn_who_sends(&mut self, net: &mut Net<Sites<P>>) {
        net.sends = Some(Sends::default());
        loop {
            let known = net.sends.as_ref().map_or(0, Sends::steps);
            let mut search = Search::new(&*net, self.question.threads);
            let ended = search.run(u64::MAX, &mut self.go_on);
            let machines = self.sites.machines();
            let mut steps = vec![Vec::new(); machines];
            for worker in search.workers() {
                for (all, more) in steps.iter_mut().zip(worker.local_steps()) {
                    all.extend(more);
                }
            }
            let sends = Sends::new(&steps);
            let done = sends.steps() == known || !matches!(ended, Ended::All);
            net.sends = Some(sends);
            if done {
                return;
            }
        }
    }

    fn search(&mut self, net: &Net<Sites<P>>, threads: usize, deepest: u64) -> Searched {
        let mut search = Search::new(net, threads);
        let ended = search.run(deepest, &mut self.go_on);
        let mut seen = Seen::default();
        for worker in search.workers() {
            seen.add(worker.seen());
        }
        // A run that ends has a last message; where the number of messages has an end, so have all runs.
        let ends = net.system.tallied().messages && seen.max_messages < u8::MAX;
        let looks = matches!(ended, Ended::All) && !ends && threads == 1;
        let lasso = if looks { liveness::starvation(&mut search, net) } else { None };
        Searched {
            sofar: search.sofar(),
            bounded: search.is_bounded(),
            ended,
            seen,
            lasso,
            looked_for_starvation: ends || looks,
        }
    }

    fn answer(self, net: &Net<Sites<P>>, searched: Searched) -> Answer {
        let mut answer = Answer::new::<P>(self.question, &self.sites, &searched.seen, searched.sofar);
        answer.complete = !matches!(searched.ended, Ended::Stopped);
        answer.bounded = searched.bounded;
        let (breach, run, circle) = match (&searched.ended, &searched.lasso) {
            (Ended::Wrong(Some(Witness { breach, run })), _) => (breach.clone(), run.clone(), Vec::new()),
            (_, Some(lasso)) => (lasso.breach(), lasso.stem.clone(), lasso.circle.clone()),
            _ => {
                answer.judge::<P>(&self.sites, &searched.seen, searched.looked_for_starvation);
                return answer;
            }
        };
        answer.violated(&breach);
        let story = Counterexample::new::<P>(self.question, &self.sites, net, breach, &run, &circle);
        answer.counterexample = Some(story);
        answer
    }
}
