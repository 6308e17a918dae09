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
//! | [`store`], [`rows`] | the states seen so far, packed |
//! | [`search`] | breadth-first search over them, on all cores |
//! | [`machine`] | what can be searched: machines that exchange messages |
//! | [`kernel`], [`intern`] | their states and messages as small numbers; each local step is taken once |
//! | [`net`] | such machines with their channels as rows of numbers |
//! | [`seen`] | what happened at least once |
//! | [`reduce`] | not every order of steps that commute |
//! | [`shift`] | clocks that only matter relative to each other |
//! | [`liveness`] | runs that go round for ever while somebody waits |
//! | [`mutex`] | mutual exclusion algorithms as machines |
//! | [`counterexample`] | a run, told and drawn |
//! | [`gallery`] | what must be caught |

mod answer;
pub mod counterexample;
mod entering;
mod expand;
pub mod gallery;
pub mod intern;
pub mod kernel;
pub mod liveness;
pub mod machine;
pub mod mutex;
pub mod net;
pub mod reduce;
pub mod rows;
pub mod search;
pub mod seen;
pub mod shift;
pub mod store;

use answer::Promised;
pub use answer::{Answer, Verdict};
pub use machine::{Fault, Faults};
pub use search::Sofar;

use crate::property::Property;
use crate::runner::{self, Error};
use crate::spec::Spec;
use lockkeeper_core::mutex::Channels;
use lockkeeper_core::registry::Visitor;
use lockkeeper_core::{Holder, MutualExclusion, Setup};
use mutex::Sites;
use net::{Action, Net};
use search::{Ended, Search};
use seen::Seen;

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
    /// The only property that is asked about: a search goes on where another does not hold. All if nothing is said.
    pub only: Option<Property>,
    /// Whether every order of steps is tried, even of those that commute; see [`reduce`].
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
            only: None,
            full: false,
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
pub fn check(question: &Question, mut go_on: impl FnMut(Sofar) -> bool) -> Result<Answer, Error> {
    question.check().map_err(Error::Usage)?;
    runner::visit_named(&question.algorithm, Check { question, go_on: &mut go_on })
        .ok_or_else(|| Error::Usage(format!("there is no algorithm '{}'", question.algorithm)))?
}

struct Check<'a> {
    question: &'a Question,
    go_on: &'a mut dyn FnMut(Sofar) -> bool,
}

impl Visitor for Check<'_> {
    type Output = Result<Answer, Error>;

    fn visit<P: MutualExclusion>(self) -> Self::Output {
        let Self { question, go_on } = self;
        let mut spec = Spec::new(&question.algorithm, question.sites);
        spec.settings.clone_from(&question.settings);
        spec.holders.clone_from(&question.holders);
        let options = runner::check::<P>(&spec)?;
        if question.sites + P::helpers(&options) > MOST_SITES {
            return Err(Error::Usage(format!("the checker takes at most {MOST_SITES} processes")));
        }
        let sites = Sites::<P> {
            setup: Setup { holders: question.holders.clone(), ..Setup::new(question.sites, options) },
            requests: question.requests,
            fifo: question.fifo.unwrap_or(P::ABOUT.channels == Channels::Fifo),
            faults: question.faults,
            only: question.only,
        };
        let fresh = || Net::new(sites.clone());
        let promised = Promised::by::<P>(question, &sites.setup.options);
        let most_messages = promised.most_messages(question);
        let checker =
            Checker { question, perpetual: P::ABOUT.perpetual, most_messages, fresh: &fresh, go_on };
        let (net, searched) = checker.run();
        Ok(promised.answer(question, &net, &searched))
    }
}

/// Searches, again where that is needed. The same for all algorithms.
struct Checker<'a> {
    question: &'a Question,
    perpetual: bool,
    /// The most messages for each entry, where the paper says so.
    most_messages: Option<u32>,
    fresh: &'a dyn Fn() -> Net,
    go_on: &'a mut dyn FnMut(Sofar) -> bool,
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

impl Checker<'_> {
    fn run(mut self) -> (Net, Searched) {
        let question = self.question;
        let ends = question.requests.is_some() && !self.perpetual;
        let threads = if ends { question.threads } else { 1 };
        let mut net = (self.fresh)();
        net.reduced = ends && !question.full;
        let searched = self.search(&net, threads);
        let wrong = matches!(searched.ended, Ended::Wrong(_));
        let all = matches!(searched.ended, Ended::All);
        let open = all && !searched.looked_for_starvation && self.asks_about_starvation();
        let too_dear = all && self.most_messages.is_some_and(|most| searched.seen.costs_more_than(most));
        if !too_dear && !((wrong || open) && (net.reduced || threads > 1)) {
            return (net, searched);
        }
        // Again, with every order and one thread: for a shortest run, always the same; or to look for circles.
        let mut full = (self.fresh)();
        full.most_messages = self.most_messages.filter(|_| too_dear);
        let again = self.search(&full, 1);
        // What is wrong is wrong, even if the budget does not suffice to show a run.
        let stopped = matches!(again.ended, Ended::Stopped);
        if stopped && (wrong || too_dear) { (net, searched) } else { (full, again) }
    }

    fn asks_about_starvation(&self) -> bool {
        self.question.only.is_none_or(|only| only == Property::NoStarvation)
    }

    fn search(&mut self, net: &Net, threads: usize) -> Searched {
        let mut search = Search::new(net, threads);
        let mut ended = search.run(u64::MAX, &mut self.go_on);
        if let Ended::Wrong(witness) = &mut ended
            && net.reduced
        {
            witness.run = None; // It lacks the silent deliveries.
        }
        let mut seen = Seen::default();
        for worker in search.workers() {
            seen.add(worker.seen());
        }
        // A run that ends has a last message; where the number of messages has an end, so have all runs.
        let ends = net.kernel.traits().tallied.messages && seen.max_messages < u8::MAX;
        // A circle has to be a run: with silent deliveries put off, it is none.
        let looks = self.asks_about_starvation()
            && matches!(ended, Ended::All)
            && !ends
            && threads == 1
            && !net.reduced;
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
}
