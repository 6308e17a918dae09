//! The pseudo-code of the algorithms, in the terms of their papers, with the rules that each line belongs to.
//!
//! The listings are text files in `pseudocode`, one for each algorithm. A line ends with the names of the rules of the
//! algorithm's source that execute it:
//!
//! ```text
//! on REQUEST(ts, j):
//!     if not requesting and not inside: send REPLY to Sj      @RepliesIdle
//! ```
//!
//! A step of a run reports the rules that fired, so that the lines that it executed can be marked.

use crate::algorithm::Algorithm;
use crate::election::algorithm::ElectionAlgorithm;
use std::collections::BTreeMap;

/// The sign before the name of a rule.
const RULE: char = '@';

macro_rules! listings {
    ($($slug:literal: $($file:literal),+;)+) => {
        /// The texts of the listings, by the slug of the algorithm.
        const TEXTS: &[(&str, &[&str])] = &[
            $(($slug, &[$(include_str!(concat!("../pseudocode/", $file, ".txt"))),+]),)+
        ];
    };
}

listings! {
    "centralized": "centralized";
    "centralized-failover": "centralized-failover";
    "lamport": "lamport";
    "lamport-suppressed": "lamport";
    "ricart-agrawala": "ricart-agrawala";
    "roucairol-carvalho": "roucairol-carvalho";
    "lodha-kshemkalyani": "lodha-kshemkalyani";
    "k-mutual-exclusion": "k-mutual-exclusion";
    "readers-writers": "readers-writers";
    "bakery-messages": "bakery-messages";
    "token-ring": "token-ring";
    "token-ring-parked": "token-ring-parked";
    "token-ring-recovering": "token-ring-recovering";
    "misra-ping-pong": "misra-ping-pong";
    "suzuki-kasami": "suzuki-kasami";
    "raymond": "raymond";
    "naimi-trehel": "naimi-trehel";
    "neilsen-mizuno": "neilsen-mizuno";
    "gate": "gate", "naimi-trehel";
    "maekawa": "maekawa";
    "maekawa-1985": "maekawa";
    "maekawa-basic": "maekawa-basic";
    "majority": "maekawa";
    "tree-quorum": "maekawa";
    "bully": "bully";
    "ring-election": "ring-election";
    "chang-roberts": "chang-roberts";
    "hirschberg-sinclair": "hirschberg-sinclair";
    "itai-rodeh": "itai-rodeh";
    "raft": "raft";
    "dijkstra": "dijkstra";
    "eisenberg-mcguire": "eisenberg-mcguire";
    "bakery": "bakery";
    "black-white-bakery": "black-white-bakery";
    "peterson": "peterson";
    "filter": "filter";
    "szymanski": "szymanski";
    "ticket": "ticket";
    "mcs": "mcs";
    "clh": "clh";
}

/// The pseudo-code of an algorithm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The lines.
    pub lines: Vec<&'static str>,
    /// For each rule, given by its sentence, the lines that it executes.
    by_rule: BTreeMap<&'static str, Vec<usize>>,
    /// The rules named in the text that the algorithm does not have.
    unknown: Vec<&'static str>,
}

impl Listing {
    /// The listing of a mutual exclusion algorithm; of a mutant, that of the correct algorithm.
    pub fn of_algorithm(algorithm: &dyn Algorithm) -> Self {
        let rules = (0..).map_while(|rule| Some((algorithm.rule_name(rule)?, algorithm.rule(rule)?)));
        Self::of(algorithm.about().slug, &rules.collect())
    }

    /// The listing of an election; of a mutant, that of the correct election.
    pub fn of_election(election: &dyn ElectionAlgorithm) -> Self {
        let rules = (0..).map_while(|rule| Some((election.rule_name(rule)?, election.rule(rule)?)));
        Self::of(election.about().slug, &rules.collect())
    }

    /// The listing of an algorithm for shared registers, whose lines have these names.
    pub(crate) fn of_program(slug: &str, lines: impl Iterator<Item = &'static str>) -> Self {
        Self::of(slug, &lines.map(|line| (line, line)).collect())
    }

    /// Parses the listing of an algorithm, whose rules are given as their sentences by their names.
    fn of(slug: &str, rules: &BTreeMap<&'static str, &'static str>) -> Self {
        let texts = TEXTS.iter().find(|(known, _)| *known == slug).map_or(&[][..], |(_, texts)| texts);
        let mut listing = Self::default();
        for line in texts.iter().flat_map(|text| text.lines()) {
            let (text, names) = line.split_at(line.find(RULE).unwrap_or(line.len()));
            for name in names.split([RULE, ' ']).filter(|name| !name.is_empty()) {
                match rules.get(name) {
                    Some(sentence) => {
                        listing.by_rule.entry(sentence).or_default().push(listing.lines.len());
                    }
                    None => listing.unknown.push(name),
                }
            }
            listing.lines.push(text.trim_end());
        }
        listing
    }

    /// The lines that a rule executes, counted from 0. The rule is given by its sentence, as in traces.
    pub fn lines_of(&self, rule: &str) -> &[usize] {
        self.by_rule.get(rule).map_or(&[], Vec::as_slice)
    }

    /// Whether the algorithm has no listing.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The rules named in the text that the algorithm does not have. A test expects none.
    pub fn unknown(&self) -> &[&'static str] {
        &self.unknown
    }
}
