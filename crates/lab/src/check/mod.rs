//! The model checker: visits every reachable state of a small system and reports a shortest run to a
//! violation.
//!
//! ```
//! use lockkeeper_lab::check::{Question, check};
//!
//! let answer = check(&Question::new("ricart-agrawala", 2), |_| true).unwrap();
//! assert!(answer.is_verified());
//! assert_eq!(answer.max_messages_per_entry, Some(2.0)); // 2(N−1), in any run
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`store`], [`rows`] | packed storage of the visited states |
//! | [`search`] | breadth-first search, on one or several threads |
//! | [`machine`] | the interface of a checked system: machines that exchange messages |
//! | [`kernel`], [`intern`] | interning: local states and messages as small integers, each local step computed once |
//! | [`net`] | global states: machines and channels as rows of integers |
//! | [`seen`] | coverage and maxima of a search |
//! | [`reduce`] | partial-order reduction |
//! | [`shift`] | normalisation of clocks and sequence numbers |
//! | [`liveness`] | starvation: fair cycles in which a machine waits |
//! | [`mutex`] | mutual exclusion algorithms as machines |
//! | [`counterexample`] | a violating run as sentences and as a scenario |
//! | [`gallery`] | the mutants and wrong circumstances that the checker must catch |

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

/// The maximum number of processes (sites and helpers): each state stores one integer per channel.
pub const MOST_SITES: usize = 9;
/// The maximum number of requests per site.
pub const MOST_REQUESTS: u8 = 15;

/// The system to check, and the options of the check.
#[derive(Clone, Debug)]
pub struct Question {
    /// The name of the algorithm or of a mutant.
    pub algorithm: String,
    /// Number of sites that may request.
    pub sites: usize,
    /// The algorithm's own settings.
    pub settings: Vec<(String, String)>,
    /// Number of requests of each site. `None`: without limit.
    pub requests: Option<u8>,
    /// Whether channels are FIFO. `None`: as the algorithm assumes.
    pub fifo: Option<bool>,
    /// The sites inside the critical section at the start, with their modes.
    pub holders: Vec<Holder>,
    /// The maximum number of faults of each kind in a run.
    pub faults: Faults,
    /// The only property to check: the search continues past violations of the others. `None`: all
    /// properties.
    pub only: Option<Property>,
    /// Whether to explore all interleavings, without partial-order reduction; see [`reduce`].
    pub full: bool,
    /// Number of search threads.
    pub threads: usize,
}

impl Question {
    /// A question with one request per site and no faults.
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

    /// Sets the number of requests per site.
    pub fn requests(mut self, requests: u8) -> Self {
        self.requests = Some(requests);
        self
    }

    fn check(&self) -> Result<(), String> {
        if !(1..=MOST_SITES).contains(&self.sites) {
            return Err(format!("the checker takes 1 to {MOST_SITES} sites, not {}", self.sites));
        }
        match self.requests {
            Some(requests) if !(1..=MOST_REQUESTS).contains(&requests) => Err(format!(
                "each site makes 1 to {MOST_REQUESTS} requests, or an unlimited number; not {requests}"
            )),
            _ => Ok(()),
        }
    }
}

/// Searches every reachable state. `go_on` is called with the progress at intervals; the search stops when it
/// returns `false`.
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

/// Runs the search, and a second one where that is necessary. The code is the same for all algorithms.
struct Checker<'a> {
    question: &'a Question,
    perpetual: bool,
    /// The paper's bound on messages per entry, if there is one and it is checked.
    most_messages: Option<u32>,
    fresh: &'a dyn Fn() -> Net,
    go_on: &'a mut dyn FnMut(Sofar) -> bool,
}

/// The result of one search.
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
        // With limited requests and no perpetual token, runs normally end, and no cycle has to be found: the
        // search may be reduced and use several threads. Otherwise the search for cycles needs the full graph,
        // in the numbering of one thread.
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
        // The second search explores every interleaving on one thread: its counterexample is a shortest one
        // and always the same, and its graph can be searched for cycles.
        let mut full = (self.fresh)();
        full.most_messages = self.most_messages.filter(|_| too_dear);
        let again = self.search(&full, 1);
        // A violation remains a violation if the budget of the second search ends before it finds a run.
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
            witness.run = None; // The run lacks the silent deliveries, so it cannot be replayed.
        }
        let mut seen = Seen::default();
        for worker in search.workers() {
            seen.add(worker.seen());
        }
        // If the number of messages is bounded, every run ends: an infinite run would send infinitely many
        // messages.
        let ends = net.kernel.traits().tallied.messages && seen.max_messages < u8::MAX;
        // A cycle has to be a run of the system; with deferred silent deliveries it is not one.
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
