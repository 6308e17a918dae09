//! The sites of an election and their steps, without time.
//!
//! The simulator chooses the next event by virtual time; the checker tries every possibility.

use super::algorithm::{ConfiguredElection, Voter};
use crate::algorithm::{Actions, Event};
use crate::property::Property;
use lockkeeper_core::election::Winner;
use lockkeeper_core::{Campaign, Elected, SiteId};
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// The sites of an election.
#[derive(Clone)]
pub struct Electorate {
    pub(super) sites: Vec<Arc<dyn Voter>>,
    pub(super) up: Vec<bool>,
    /// The leader of each term so far, where any site may win; otherwise empty.
    pub(super) leaders: Vec<(u64, SiteId)>,
    pub(super) winner: Winner,
    /// The seed of the sites' random choices.
    pub(super) seed: u64,
}

impl Electorate {
    /// All sites are up and know the highest one as the leader.
    pub fn new(election: &dyn ConfiguredElection, sites: usize, seed: u64) -> Self {
        let leader = SiteId::all(sites).next_back();
        let start = |id| election.start(id, sites, leader, seed).0;
        let winner = election.algorithm().about().winner;
        let sites: Vec<_> = SiteId::all(sites).map(start).collect();
        let first =
            leader.filter(|_| winner == Winner::Any).map(|leader| (sites[leader.index()].term(), leader));
        Self { up: vec![true; sites.len()], sites, leaders: first.into_iter().collect(), winner, seed }
    }

    /// Number of sites, up or not.
    pub fn len(&self) -> usize {
        self.sites.len()
    }

    /// Whether there is no site.
    pub fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }

    /// Whether a site is up.
    pub fn is_up(&self, site: SiteId) -> bool {
        self.up[site.index()]
    }

    /// The sites that are up.
    pub fn live(&self) -> impl DoubleEndedIterator<Item = SiteId> + '_ {
        SiteId::all(self.len()).filter(|&site| self.is_up(site))
    }

    /// The leader that a site knows.
    pub fn leader_at(&self, site: SiteId) -> Option<SiteId> {
        self.state(site).leader()
    }

    /// The state of a site.
    pub fn state(&self, site: SiteId) -> &dyn Voter {
        &*self.sites[site.index()]
    }

    /// A site takes a step. [`Campaign`] means that it starts an election, because the leader does not answer.
    pub fn step(&mut self, site: SiteId, event: &Event<Campaign>) -> Actions<Elected> {
        let (after, actions) = self.state(site).step(self.len(), event);
        self.sites[site.index()] = after;
        actions
    }

    /// A site crashes and loses its state.
    pub fn crash(&mut self, site: SiteId) {
        self.up[site.index()] = false;
    }

    /// A crashed site starts again and does not know the leader. It has what the paper keeps on stable storage.
    pub fn restart(&mut self, election: &dyn ConfiguredElection, id: SiteId) -> Actions<Elected> {
        let (site, actions) = election.restart(self.state(id), id, self.len(), self.seed);
        self.sites[id.index()] = site;
        self.up[id.index()] = true;
        actions
    }

    /// The violation in a step of a site: it becomes leader although a higher site is up; or, where any site may win,
    /// although another site has led in the same term.
    pub fn leader_violation(
        &mut self,
        site: SiteId,
        actions: &Actions<Elected>,
    ) -> Option<(Property, String)> {
        if !actions.outputs.contains(&Elected(site)) {
            return None;
        }
        match self.winner {
            Winner::Highest => {
                let highest = self.live().next_back().filter(|&highest| highest > site)?;
                Some((Property::HighestLeads, format!("{site} comes to lead although {highest} is up")))
            }
            Winner::Any => {
                let term = self.state(site).term();
                let other = self.leaders.iter().find(|(led, leader)| *led == term && *leader != site);
                let wrong =
                    other.map(|(_, other)| format!("{site} comes to lead in term {term}, as {other} did"));
                self.leaders.push((term, site));
                self.leaders.sort_unstable();
                self.leaders.dedup();
                wrong.map(|wrong| (Property::OneLeader, wrong))
            }
        }
    }

    /// The leader, if all sites that are up agree on it and it is up.
    pub fn agreement(&self) -> Result<SiteId, Disagreement> {
        let mut beliefs = self.live().map(|site| self.leader_at(site));
        let Some(first) = beliefs.next() else { return Err(Disagreement::NoSiteUp) };
        match first {
            Some(leader) if self.is_up(leader) && beliefs.all(|belief| belief == first) => Ok(leader),
            _ => Err(Disagreement::Beliefs(self.beliefs())),
        }
    }

    /// The sites that are up, grouped by the leader that they know.
    fn beliefs(&self) -> Vec<Belief> {
        let mut beliefs: Vec<Belief> = Vec::new();
        for site in self.live() {
            let leader = self.leader_at(site);
            match beliefs.iter_mut().find(|belief| belief.leader == leader) {
                Some(belief) => belief.sites.push(site),
                None => {
                    let leader_is_up = leader.is_some_and(|leader| self.is_up(leader));
                    beliefs.push(Belief { sites: vec![site], leader, leader_is_up });
                }
            }
        }
        beliefs
    }
}

/// The reason why there is no leader that all sites agree on: `S1, S2 follow S6, which is down; S5 knows no leader`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disagreement {
    /// No site is up.
    NoSiteUp,
    /// The sites that are up know different leaders, none, or one that is down.
    Beliefs(Vec<Belief>),
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSiteUp => f.write_str("no site is up"),
            Self::Beliefs(beliefs) => {
                let beliefs: Vec<String> = beliefs.iter().map(ToString::to_string).collect();
                f.write_str(&beliefs.join("; "))
            }
        }
    }
}

impl Error for Disagreement {}

/// Sites that know the same leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Belief {
    /// The sites.
    pub sites: Vec<SiteId>,
    /// The leader that they know, if any.
    pub leader: Option<SiteId>,
    /// Whether that leader is up.
    pub leader_is_up: bool,
}

impl fmt::Display for Belief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sites = lockkeeper_core::mutex::list(&self.sites, "");
        let s = if self.sites.len() == 1 { "s" } else { "" };
        match self.leader {
            None => write!(f, "{sites} know{s} no leader"),
            Some(leader) if self.leader_is_up => write!(f, "{sites} follow{s} {leader}"),
            Some(leader) => write!(f, "{sites} follow{s} {leader}, which is down"),
        }
    }
}
