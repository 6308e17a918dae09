//! The simulated network: delays, losses, duplicates and partitions.

use crate::simulator::delay::{Delay, DelayError};
use crate::simulator::rng::{Purpose, Rng};
use crate::simulator::time::{Time, TimeError};
use lockkeeper_core::SiteId;
use std::collections::BTreeMap;
use std::fmt;

/// The behaviour of the network.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkSpec {
    /// The delay of messages.
    pub delay: Delay,
    /// Whether channels are FIFO.
    pub fifo: bool,
    /// The probability that a message is lost.
    pub loss: f64,
    /// The probability that a message is delivered twice.
    pub duplicate: f64,
    /// Links with a delay or loss of their own.
    pub links: Vec<Link>,
    /// Partitions between groups of sites.
    pub partitions: Vec<Partition>,
    /// The time that a site needs to process a message.
    pub service: Time,
    /// Sites with a processing time of their own.
    pub service_at: Vec<(SiteId, Time)>,
}

impl Default for NetworkSpec {
    fn default() -> Self {
        Self {
            delay: Delay::UNIT,
            fifo: true,
            loss: 0.0,
            duplicate: 0.0,
            links: Vec::new(),
            partitions: Vec::new(),
            service: Time::ZERO,
            service_at: Vec::new(),
        }
    }
}

impl NetworkSpec {
    /// Whether every message is delivered exactly once, as all papers of the field assume.
    pub fn is_reliable(&self) -> bool {
        self.loss == 0.0
            && self.duplicate == 0.0
            && self.partitions.is_empty()
            && self.links.iter().all(|link| link.loss == 0.0)
    }
}

/// A link with a delay or loss of its own: `1>2=constant:5` or `1>2=exponential:1,loss:0.1`.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// The sender.
    pub from: SiteId,
    /// The receiver.
    pub to: SiteId,
    /// The delay of messages on this link.
    pub delay: Delay,
    /// The probability that a message on this link is lost.
    pub loss: f64,
}

impl Link {
    /// Reads `FROM>TO=DELAY` or `FROM>TO=DELAY,loss:P`.
    pub fn parse(text: &str, processes: usize) -> Result<Self, NetworkError> {
        let wrong = || NetworkError::Link { text: text.into() };
        let (ends, what) = text.split_once('=').ok_or_else(wrong)?;
        let (from, to) = ends.split_once('>').ok_or_else(wrong)?;
        let (delay, loss) = match what.split_once(",loss:") {
            Some((delay, loss)) => (delay, parse_probability("a link's loss", loss)?),
            None => (what, 0.0),
        };
        Ok(Self { from: site(from, processes)?, to: site(to, processes)?, delay: Delay::parse(delay)?, loss })
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}>{}={}", self.from.number(), self.to.number(), self.delay)?;
        if self.loss > 0.0 { write!(f, ",loss:{}", self.loss) } else { Ok(()) }
    }
}

/// A partition between two groups of sites for some time: messages between them that are sent or that arrive
/// in that time are lost. A site in neither group reaches all others.
#[derive(Clone, Debug, PartialEq)]
pub struct Partition {
    /// One group.
    pub left: Vec<SiteId>,
    /// The other group.
    pub right: Vec<SiteId>,
    /// Whether only messages from left to right are lost.
    pub one_way: bool,
    /// The start of the partition.
    pub from: Time,
    /// The end of the partition.
    pub to: Time,
}

impl Partition {
    /// Reads `1,2|3,4,5@FROM..TO`. With `>` in place of `|`, only messages from left to right are lost.
    /// Without `..TO` the partition never ends.
    pub fn parse(text: &str, processes: usize) -> Result<Self, NetworkError> {
        let wrong = || NetworkError::Partition { text: text.into() };
        let (groups, times) = text.split_once('@').ok_or_else(wrong)?;
        let (left, right, one_way) = Self::parse_groups(groups, processes)?.ok_or_else(wrong)?;
        let (from, to) = parse_interval(times)?;
        Ok(Self { left, right, one_way, from, to })
    }

    /// Reads `1,2|3` or `1,2>3`; `None` if it has neither bar nor arrow.
    #[expect(clippy::type_complexity, reason = "a private step of two parsers")]
    pub(crate) fn parse_groups(
        text: &str,
        processes: usize,
    ) -> Result<Option<(Vec<SiteId>, Vec<SiteId>, bool)>, NetworkError> {
        let one_way = !text.contains('|');
        let Some((left, right)) = text.split_once(['|', '>']) else { return Ok(None) };
        let group = |text: &str| -> Result<Vec<SiteId>, NetworkError> {
            text.split(',').map(|number| site(number, processes)).collect()
        };
        let (left, right) = (group(left)?, group(right)?);
        match left.iter().find(|site| right.contains(site)) {
            Some(&site) => Err(NetworkError::BothSides { site, groups: text.into() }),
            None => Ok(Some((left, right, one_way))),
        }
    }

    fn cuts(&self, from: SiteId, to: SiteId, now: Time) -> bool {
        let forth = self.left.contains(&from) && self.right.contains(&to);
        let back = !self.one_way && self.right.contains(&from) && self.left.contains(&to);
        (self.from..self.to).contains(&now) && (forth || back)
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = |sites: &[SiteId]| {
            sites.iter().map(|site| site.number().to_string()).collect::<Vec<_>>().join(",")
        };
        let bar = if self.one_way { '>' } else { '|' };
        write!(f, "{}{bar}{}@{}..", group(&self.left), group(&self.right), self.from)?;
        if self.to == Time::NEVER { Ok(()) } else { write!(f, "{}", self.to) }
    }
}

/// Reads a site's number; the error names the valid range.
pub(crate) fn site(text: &str, processes: usize) -> Result<SiteId, NetworkError> {
    let text = text.trim();
    lockkeeper_core::mutex::parse_site(text, processes)
        .ok_or_else(|| NetworkError::UnknownSite { site: text.into(), processes })
}

/// Reads `FROM..TO` or `FROM..`.
pub(crate) fn parse_interval(text: &str) -> Result<(Time, Time), NetworkError> {
    let (from, to) = text.split_once("..").ok_or_else(|| NetworkError::Interval { text: text.into() })?;
    let from = Time::parse(from)?;
    let to = if to.trim().is_empty() { Time::NEVER } else { Time::parse(to)? };
    if from < to { Ok((from, to)) } else { Err(NetworkError::EmptyInterval { text: text.into() }) }
}

/// Reads a probability.
pub fn parse_probability(what: &'static str, text: &str) -> Result<f64, NetworkError> {
    match text.trim().parse::<f64>() {
        Ok(p) if (0.0..=1.0).contains(&p) => Ok(p),
        _ => Err(NetworkError::Probability { what, text: text.into() }),
    }
}

/// The reason why a part of the network's description cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// The text is not a link.
    #[error("a link is written FROM>TO=DELAY or FROM>TO=DELAY,loss:P, not '{text}'")]
    Link {
        /// The text.
        text: String,
    },
    /// The text is not a partition.
    #[error("a partition is written 1,2|3,4,5@FROM..TO (or 1,2>3,4,5@FROM..TO, one way), not '{text}'")]
    Partition {
        /// The text.
        text: String,
    },
    /// A site is in both groups of a partition.
    #[error("{site} is on both sides of the partition '{groups}'")]
    BothSides {
        /// The site.
        site: SiteId,
        /// The groups as given.
        groups: String,
    },
    /// There is no such site.
    #[error("there is no site '{site}': sites are numbered from 1 to {processes}")]
    UnknownSite {
        /// The site as given.
        site: String,
        /// The number of sites.
        processes: usize,
    },
    /// The text is not an interval of time.
    #[error("a stretch of time is written FROM..TO, not '{text}'")]
    Interval {
        /// The text.
        text: String,
    },
    /// An interval ends before it begins.
    #[error("the stretch of time {text} is empty")]
    EmptyInterval {
        /// The interval as given.
        text: String,
    },
    /// The text is not a probability.
    #[error("{what} is a probability between 0 and 1, not '{text}'")]
    Probability {
        /// The parameter.
        what: &'static str,
        /// The text.
        text: String,
    },
    /// A time is invalid.
    #[error(transparent)]
    Time(#[from] TimeError),
    /// A delay is invalid.
    #[error(transparent)]
    Delay(#[from] DelayError),
}

/// The network of one run.
#[derive(Clone, Debug)]
pub struct Network {
    spec: NetworkSpec,
    /// The partitions so far, open or ended.
    cuts: Vec<Partition>,
    links: BTreeMap<(SiteId, SiteId), (Delay, f64)>,
    /// The arrival time of the last message of each channel. Only kept if the delays alone do not preserve
    /// the order.
    last_arrival: Option<BTreeMap<(SiteId, SiteId), Time>>,
    perfect: bool,
    rng: Rng,
}

impl Network {
    /// The network of a run with the given seed, without partitions.
    pub fn new(spec: &NetworkSpec, seed: u64) -> Self {
        let links =
            spec.links.iter().map(|link| ((link.from, link.to), (link.delay.clone(), link.loss))).collect();
        let ordered = spec.delay.keeps_order() && spec.links.iter().all(|link| link.delay.keeps_order());
        Self {
            links,
            last_arrival: (spec.fifo && !ordered).then(BTreeMap::new),
            cuts: Vec::new(),
            perfect: spec.is_reliable(),
            rng: Rng::new(seed, Purpose::Network),
            spec: spec.clone(),
        }
    }

    /// Calls `arrives` with the time of each arrival of a message sent now: zero, one or two times.
    #[inline]
    pub fn send(&mut self, now: Time, from: SiteId, to: SiteId, mut arrives: impl FnMut(Time)) {
        let first = self.arrival(now, from, to);
        if self.perfect {
            return arrives(first);
        }
        let loss = self.links.get(&(from, to)).map_or(self.spec.loss, |(_, loss)| *loss);
        let lost = loss > 0.0 && self.rng.chance(loss);
        let doubled = self.spec.duplicate > 0.0 && self.rng.chance(self.spec.duplicate);
        if self.is_cut(from, to, now) {
            return;
        }
        if !lost {
            arrives(first);
        }
        if doubled {
            arrives(self.arrival(now, from, to));
        }
    }

    /// The arrival time of a message sent now.
    fn arrival(&mut self, now: Time, from: SiteId, to: SiteId) -> Time {
        let delay = match self.links.get(&(from, to)) {
            Some((delay, _)) => delay,
            None => &self.spec.delay,
        };
        let at = now + delay.draw(from.index(), to.index(), &mut self.rng);
        match &mut self.last_arrival {
            None => at,
            Some(last_arrival) => {
                let last = last_arrival.entry((from, to)).or_default();
                *last = at.max(*last);
                *last
            }
        }
    }

    /// Whether messages between two sites are lost now because of a partition.
    pub fn is_cut(&self, from: SiteId, to: SiteId, now: Time) -> bool {
        self.cuts.iter().any(|partition| partition.cuts(from, to, now))
    }

    /// Starts a partition; it lasts until [`Network::heal`].
    pub fn cut(&mut self, left: Vec<SiteId>, right: Vec<SiteId>, one_way: bool, now: Time) {
        self.perfect = false;
        self.cuts.push(Partition { left, right, one_way, from: now, to: Time::NEVER });
    }

    /// Ends the partitions between the same groups.
    pub fn heal(&mut self, left: &[SiteId], right: &[SiteId], now: Time) {
        for partition in &mut self.cuts {
            if partition.left == left && partition.right == right && partition.to > now {
                partition.to = now;
            }
        }
    }

    /// The time that a site needs to process a message.
    pub fn service(&self, site: SiteId) -> Time {
        let special = self.spec.service_at.iter().rev().find(|(at, _)| *at == site);
        special.map_or(self.spec.service, |(_, time)| *time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(network: &mut Network, now: Time, from: u32, to: u32) -> Vec<Time> {
        let mut all = Vec::new();
        network.send(now, SiteId(from), SiteId(to), |at| all.push(at));
        all
    }

    #[test]
    fn fifo_channels_never_reorder_and_others_do() {
        for fifo in [true, false] {
            let spec =
                NetworkSpec { delay: Delay::parse("exponential:1").unwrap(), fifo, ..Default::default() };
            let mut network = Network::new(&spec, 5);
            let mut last = Time::ZERO;
            let mut overtakes = 0;
            for step in 0..1000 {
                let at = arrivals(&mut network, Time::from_milli_t(step * 10), 0, 1)[0];
                overtakes += usize::from(at < last);
                last = last.max(at);
            }
            assert_eq!(overtakes > 0, !fifo);
        }
    }

    #[test]
    fn loss_and_duplication_occur_at_their_rates() {
        let spec = NetworkSpec { loss: 0.2, duplicate: 0.1, ..Default::default() };
        let mut network = Network::new(&spec, 5);
        let counts: Vec<usize> =
            (0..20_000).map(|_| arrivals(&mut network, Time::ZERO, 0, 1).len()).collect();
        let share = |n| counts.iter().filter(|&&count| count == n).count() as f64 / 20_000.0;
        assert!(
            (share(0) - 0.18).abs() < 0.02 && (share(2) - 0.08).abs() < 0.02,
            "{} {}",
            share(0),
            share(2)
        );
    }

    #[test]
    fn partition_drops_messages_while_it_lasts_and_only_in_its_direction() {
        let at = |t| Time::from_t(t).unwrap();
        for (text, forth, back) in [("1,2|3@1..2", 0, 0), ("1,2>3@1..2", 0, 1)] {
            let partition = Partition::parse(text, 4).unwrap();
            assert_eq!(partition.to_string(), text);
            let mut network = Network::new(&NetworkSpec::default(), 1);
            assert_eq!(arrivals(&mut network, at(0.5), 0, 2).len(), 1);
            network.cut(partition.left.clone(), partition.right.clone(), partition.one_way, at(1.0));
            assert_eq!(arrivals(&mut network, at(1.0), 0, 2).len(), forth);
            assert_eq!(arrivals(&mut network, at(1.0), 2, 1).len(), back);
            assert_eq!(arrivals(&mut network, at(1.0), 3, 2).len(), 1, "S4 is in neither group");
            network.heal(&partition.left, &partition.right, at(2.0));
            assert_eq!(arrivals(&mut network, at(2.0), 0, 2).len(), 1);
        }
    }

    #[test]
    fn link_has_its_own_delay_and_loss() {
        let link = Link::parse("1>2=constant:5,loss:0.5", 3).unwrap();
        assert_eq!(link.to_string(), "1>2=constant:5,loss:0.5");
        let mut network = Network::new(&NetworkSpec { links: vec![link], ..Default::default() }, 1);
        let slow: Vec<usize> = (0..1000).map(|_| arrivals(&mut network, Time::ZERO, 0, 1).len()).collect();
        assert!((400..600).contains(&slow.iter().sum::<usize>()));
        assert_eq!(arrivals(&mut network, Time::ZERO, 1, 0), [Time::UNIT]);
    }

    #[test]
    fn invalid_partitions_links_and_probabilities_are_rejected() {
        let partition = |text| Partition::parse(text, 3).unwrap_err();
        assert!(matches!(partition("1,9|2@0..1"), NetworkError::UnknownSite { site, .. } if site == "9"));
        assert!(matches!(partition("1,2|2@0..1"), NetworkError::BothSides { site: SiteId(1), .. }));
        assert!(matches!(partition("1|2@3..1"), NetworkError::EmptyInterval { .. }));
        assert!(matches!(partition("1|2"), NetworkError::Partition { .. }));
        assert!(matches!(Link::parse("1>2", 3), Err(NetworkError::Link { .. })));
        for text in ["1.5", "NaN"] {
            let error = parse_probability("the loss", text).unwrap_err();
            assert_eq!(error.to_string(), format!("the loss is a probability between 0 and 1, not '{text}'"));
        }
    }
}
