//! The sites of an election and their steps, without time.
//!
//! The simulator chooses the next event by virtual time; the checker tries every possibility.

use lockkeeper_core::election::Setup;
use lockkeeper_core::{Campaign, Elected, Election, Out, Protocol, Site, SiteId};
use std::error::Error;
use std::fmt;

/// The sites of an election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Electorate<E: Election> {
    pub(super) sites: Vec<Site<E>>,
    pub(super) up: Vec<bool>,
}

impl<E: Election> Electorate<E> {
    /// All sites are up and know the highest one as the leader.
    pub fn new(sites: usize, options: &E::Options, out: &mut Out<E>) -> Self {
        let leader = SiteId::all(sites).next_back();
        let setup = Setup { sites, leader, options: options.clone() };
        let start = |id| Site::new(id, out, |out| E::start(id, &setup, out));
        Self { sites: SiteId::all(sites).map(start).collect(), up: vec![true; sites] }
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
        self.protocol(site).leader()
    }

    /// The election's state at a site.
    pub fn protocol(&self, site: SiteId) -> &E {
        self.sites[site.index()].protocol()
    }

    /// A site starts an election, because the leader does not answer.
    pub fn campaign(&mut self, site: SiteId, out: &mut Out<E>) {
        self.sites[site.index()].input(Campaign, out);
    }

    /// A message arrives.
    pub fn deliver(&mut self, from: SiteId, to: SiteId, message: <E as Protocol>::Message, out: &mut Out<E>) {
        self.sites[to.index()].deliver(from, 0, message, out);
    }

    /// A timer of a site expires.
    pub fn timer(&mut self, site: SiteId, timer: <E as Protocol>::Timer, out: &mut Out<E>) {
        self.sites[site.index()].timer(timer, out);
    }

    /// A site's failure detector suspects another.
    pub fn suspect(&mut self, site: SiteId, suspect: SiteId, out: &mut Out<E>) {
        self.sites[site.index()].suspect(suspect, out);
    }

    /// A site crashes and loses its state.
    pub fn crash(&mut self, site: SiteId) {
        self.up[site.index()] = false;
    }

    /// A crashed site starts again with an initial state and does not know the leader.
    pub fn restart(&mut self, id: SiteId, options: &E::Options, out: &mut Out<E>) {
        let setup = Setup { sites: self.len(), leader: None, options: options.clone() };
        self.sites[id.index()] = Site::new(id, out, |out| E::start(id, &setup, out));
        self.up[id.index()] = true;
    }

    /// The violation in a step of a site: it becomes leader although a higher site is up.
    pub fn usurps(&self, site: SiteId, out: &Out<E>) -> Option<String> {
        let leads = out.outputs.contains(&Elected(site));
        let highest = self.live().next_back().filter(|&highest| leads && highest > site)?;
        Some(format!("{site} comes to lead although {highest} is up"))
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
