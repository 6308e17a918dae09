//! The canonical form of a state.

use super::super::net::{Explorer, channel};
use super::{APART, HALF, just_after};
use crate::checker::explore::intern::{Interner, Known, Memo};
use lockkeeper_core::Stamp;
use smallvec::SmallVec;

/// Memo tables of the canonical forms of local states and channels.
pub(super) struct Canonical {
    /// The sets of requests that occur in states, numbered. A set has one bit for each multiple of [`HALF`].
    requests: Interner<u64>,
    machines: Vec<Machine>,
    channels: Channels,
    /// Buffers: the state with its requests renumbered, the best permutation of it so far, and a permutation.
    row: Vec<u32>,
    best: Vec<u32>,
    permuted: Vec<u32>,
    tallies: Vec<u8>,
}

#[derive(Default)]
struct Machine {
    /// The requests in each local state.
    requests: Known<u64>,
    /// The time of its own request, in units of [`HALF`], if messages are compared with it; otherwise 0.
    own: Known<u32>,
    /// The local state with requests renumbered.
    lowered: Memo,
    signatures: Known<u64>,
    /// The local state with machines renamed; the permutation is written as a number.
    renamed: Memo,
    raised: Memo,
    settled: Known<u32>,
}

#[derive(Default)]
struct Channels {
    requests: Known<u64>,
    lowered: Memo,
    later: Known<bool>,
    /// The ways to place a new request among the messages of a channel.
    placed: Vec<Known<Placements>>,
}

/// The contents of a channel after a new request of its receiver was placed among its messages; each with whether a
/// message is now later than the request, so that the sender's clock is, too.
type Placements = SmallVec<[(u32, bool); 2]>;

/// A permutation: machine `i` becomes machine `to[i]`.
type Permutation = SmallVec<[usize; super::MOST_MACHINES]>;

fn bit(time: u64) -> u64 {
    let place = time / HALF;
    assert!(place < 64, "at most 31 requests occur in a state");
    1 << place
}

/// Number of requests of a set with at most this time.
fn up_to(requests: u64, time: u64) -> u64 {
    let place = (time / HALF).min(63);
    u64::from((requests << (63 - place)).count_ones())
}

impl Canonical {
    pub fn new(machines: usize) -> Self {
        Self {
            requests: Interner::default(),
            machines: (0..machines).map(|_| Machine::default()).collect(),
            channels: Channels::default(),
            row: Vec::new(),
            best: Vec::new(),
            permuted: Vec::new(),
            tallies: Vec::new(),
        }
    }

    /// The set of requests that occur in a state.
    pub fn requests_in(&mut self, explorer: &Explorer<'_>, state: &[u32]) -> u64 {
        let machines = explorer.machines;
        let mut requests = 0;
        for (who, &local) in state[..machines].iter().enumerate() {
            let known = &mut self.machines[who].requests;
            requests |= match known.get(local) {
                Some(&known) => known,
                None => {
                    let mut found = 0;
                    explorer.net.kernel.stamps(who, local, &mut |stamp| found |= request_bit(&stamp));
                    *known.insert(local, found)
                }
            };
        }
        for place in 0..machines * (machines - 1) {
            requests |= self.requests_in_channel(explorer, place, state[machines + place]);
        }
        requests
    }

    fn requests_in_channel(&mut self, explorer: &Explorer<'_>, place: usize, content: u32) -> u64 {
        if content == 0 {
            return 0;
        }
        if let Some(&known) = self.channels.requests.get(content) {
            return known;
        }
        let mut found = 0;
        for envelope in explorer.net.content(place, content) {
            explorer
                .net
                .kernel
                .stamps_in(explorer.sender(place), envelope, &mut |stamp| found |= request_bit(&stamp));
        }
        *self.channels.requests.insert(content, found)
    }

    /// The time of the own request of a machine that compares messages with it, in units of [`HALF`]; otherwise 0.
    pub fn own_request(&mut self, explorer: &mut Explorer<'_>, who: usize, local: u32) -> u32 {
        if let Some(&own) = self.machines[who].own.get(local) {
            return own;
        }
        let facts = explorer.facts(who, local);
        let own = facts.timestamp.filter(|_| facts.waiting).map_or(0, |own| (own.time / HALF) as u32);
        *self.machines[who].own.insert(local, own)
    }

    /// The local state after its clock has advanced to a time.
    pub fn raised(&mut self, explorer: &Explorer<'_>, who: usize, local: u32, time: u64) -> u32 {
        let raised = &mut self.machines[who].raised;
        if let Some(known) = raised.get(local, time as u32) {
            return known;
        }
        let to = explorer.net.kernel.stamps(who, local, &mut |stamp| {
            if let Stamp::Clock(clock) = stamp {
                *clock = time.max(*clock);
            }
        });
        raised.insert(local, time as u32, to);
        to
    }

    /// The same for a machine that takes no step at that moment.
    pub fn raised_at_rest(&mut self, explorer: &Explorer<'_>, who: usize, local: u32, time: u64) -> u32 {
        let raised = self.raised(explorer, who, local, time);
        if let Some(&known) = self.machines[who].settled.get(raised) {
            return known;
        }
        let settled = explorer.net.kernel.settled(who, raised);
        *self.machines[who].settled.insert(raised, settled)
    }

    /// Whether a channel contains messages that are compared with the receiver's own request.
    fn has_later(&mut self, explorer: &Explorer<'_>, place: usize, content: u32) -> bool {
        if content == 0 {
            return false;
        }
        if let Some(&known) = self.channels.later.get(content) {
            return known;
        }
        let mut found = false;
        for envelope in explorer.net.content(place, content) {
            let kernel = &explorer.net.kernel;
            kernel.stamps_in(explorer.sender(place), envelope, &mut |stamp| {
                found |= matches!(stamp, Stamp::Message(_))
            });
        }
        *self.channels.later.insert(content, found)
    }

    /// The ways to place a new request, with this time, of a channel's receiver among the messages of the channel. On a
    /// FIFO channel times rise, so that the later messages are the last ones, and those before them are earlier.
    ///
    /// Example: RELEASE and then REQUEST(16) are under way to S2, which requests at 12. RELEASE is earlier than that, or
    /// later; REQUEST(16) is later in any case.
    pub fn placements(
        &mut self,
        explorer: &Explorer<'_>,
        place: usize,
        content: u32,
        time: u64,
    ) -> Placements {
        if !self.has_later(explorer, place, content) {
            return SmallVec::from_iter([(content, false)]);
        }
        let row = (time / HALF) as usize;
        if self.channels.placed.len() <= row {
            self.channels.placed.resize_with(row + 1, Known::default);
        }
        if let Some(known) = self.channels.placed[row].get(content) {
            return known.clone();
        }
        let envelopes = explorer.net.content(place, content);
        let kernel = &explorer.net.kernel;
        let mut placements = Placements::new();
        for first in 0..=envelopes.len() {
            // The messages from `first` on are later than the request.
            let (mut possible, mut raises) = (true, false);
            let placed = envelopes.iter().enumerate().map(|(position, &envelope)| {
                kernel.stamps_in(explorer.sender(place), envelope, &mut |stamp| match stamp {
                    Stamp::Request(other, _) => possible &= (*other > time) == (position >= first),
                    Stamp::Message(message) => {
                        *message = if position >= first { just_after(time) } else { 0 };
                        raises |= position >= first;
                    }
                    Stamp::Clock(_) | Stamp::Bound(_) => {}
                })
            });
            let placed = placed.collect();
            if possible {
                placements.push((explorer.net.number(place, placed), raises));
            }
        }
        self.channels.placed[row].insert(content, placements).clone()
    }

    /// Passes the canonical form of a state and its tallies to `then`.
    pub fn form(
        &mut self,
        explorer: &mut Explorer<'_>,
        state: &[u32],
        tallies: &[u8],
        then: impl FnOnce(&[u32], &[u8]),
    ) {
        self.renumber(explorer, state);
        let mut order = self.order(explorer);
        let mut best = None;
        self.permute(explorer, &mut order, 0, &mut best);
        let to = best.expect("there is at least one permutation");
        self.tallies.clear();
        self.tallies.extend_from_slice(tallies);
        if explorer.traits.tallied.bypass {
            for (who, &to) in to.iter().enumerate() {
                self.tallies[to] = tallies[who];
            }
        }
        then(&self.best, &self.tallies);
    }

    /// Writes the state with the requests at 8, 16, … to `row`.
    fn renumber(&mut self, explorer: &mut Explorer<'_>, state: &[u32]) {
        let machines = explorer.machines;
        let requests = self.requests_in(explorer, state);
        let number = self.requests.number(requests);
        self.row.clear();
        self.row.extend_from_slice(state);
        for (who, &local) in state[..machines].iter().enumerate() {
            self.row[who] = self.lowered(explorer, who, local, requests, number);
        }
        for from in 0..machines {
            for to in (0..machines).filter(|&to| to != from) {
                let place = channel(machines, from, to);
                let content = state[machines + place];
                if content != 0 {
                    let own = self.own_request(explorer, to, state[to]);
                    let lowered = self.lowered_channel(explorer, place, content, own, requests, number);
                    self.row[machines + place] = lowered;
                }
            }
        }
    }

    fn lowered(
        &mut self,
        explorer: &Explorer<'_>,
        who: usize,
        local: u32,
        requests: u64,
        number: u32,
    ) -> u32 {
        let table = &mut self.machines[who].lowered;
        if let Some(known) = table.get(local, number) {
            return known;
        }
        let lowered = explorer.net.kernel.stamps(who, local, &mut |stamp| lower(stamp, requests, 0));
        table.insert(local, number, lowered);
        lowered
    }

    fn lowered_channel(
        &mut self,
        explorer: &Explorer<'_>,
        place: usize,
        content: u32,
        own: u32,
        requests: u64,
        number: u32,
    ) -> u32 {
        let key = number << 6 | own;
        if let Some(known) = self.channels.lowered.get(content, key) {
            return known;
        }
        let own = u64::from(own) * HALF;
        let envelopes = explorer.net.content(place, content);
        let lowered = envelopes
            .into_iter()
            .map(|envelope| {
                explorer
                    .net
                    .kernel
                    .stamps_in(explorer.sender(place), envelope, &mut |stamp| lower(stamp, requests, own))
            })
            .collect();
        let lowered = explorer.net.number(place, lowered);
        self.channels.lowered.insert(content, key, lowered);
        lowered
    }

    /// The machines in the order of their signatures. A signature is the same under all names of the machines.
    fn order(&mut self, explorer: &Explorer<'_>) -> SmallVec<[(u64, usize); super::MOST_MACHINES]> {
        let machines = explorer.machines;
        let mut own: SmallVec<[u64; super::MOST_MACHINES]> = SmallVec::new();
        for who in 0..machines {
            let local = self.row[who];
            let known = &mut self.machines[who].signatures;
            own.push(match known.get(local) {
                Some(&known) => known,
                None => *known.insert(local, explorer.net.kernel.signature(who, local)),
            });
        }
        let content = |from, to| u64::from(self.row[machines + channel(machines, from, to)]);
        let mut order: SmallVec<[(u64, usize); super::MOST_MACHINES]> = SmallVec::new();
        for who in 0..machines {
            let others = (0..machines).filter(|&other| other != who);
            let around = others.fold(0_u64, |sum, other| {
                sum.wrapping_add(mixed(own[other] ^ mixed(content(who, other) << 32 | content(other, who))))
            });
            order.push((mixed(own[who].wrapping_add(around)), who));
        }
        order.sort_unstable();
        order
    }

    /// Tries every order of machines with equal signatures, from the place `placed` on; keeps the smallest state.
    fn permute(
        &mut self,
        explorer: &Explorer<'_>,
        order: &mut [(u64, usize)],
        placed: usize,
        best: &mut Option<Permutation>,
    ) {
        if placed == order.len() {
            let mut to = Permutation::from_elem(0, order.len());
            order.iter().enumerate().for_each(|(place, &(_, who))| to[who] = place);
            return self.consider(explorer, to, best);
        }
        let signature = order[placed].0;
        for at in placed..order.len() {
            if order[at].0 == signature {
                order.swap(placed, at);
                self.permute(explorer, order, placed + 1, best);
                order.swap(placed, at);
            }
        }
    }

    /// Renames the machines; keeps the result if it is the smallest so far.
    fn consider(&mut self, explorer: &Explorer<'_>, to: Permutation, best: &mut Option<Permutation>) {
        let machines = explorer.machines;
        self.permuted.clear();
        self.permuted.extend_from_slice(&self.row);
        if to.iter().enumerate().any(|(from, &to)| from != to) {
            for who in 0..machines {
                self.permuted[to[who]] = self.renamed(explorer, who, self.row[who], &to);
            }
            for from in 0..machines {
                for other in (0..machines).filter(|&other| other != from) {
                    self.permuted[machines + channel(machines, to[from], to[other])] =
                        self.row[machines + channel(machines, from, other)];
                }
            }
        }
        if best.is_none() || self.permuted < self.best {
            std::mem::swap(&mut self.permuted, &mut self.best);
            *best = Some(to);
        }
    }

    fn renamed(&mut self, explorer: &Explorer<'_>, who: usize, local: u32, to: &[usize]) -> u32 {
        let code = to.iter().enumerate().fold(0, |code, (who, &to)| code | (to as u32) << (4 * who));
        if let Some(known) = self.machines[who].renamed.get(local, code) {
            return known;
        }
        let renamed = explorer.net.kernel.renamed(who, local, to);
        self.machines[who].renamed.insert(local, code, renamed);
        renamed
    }
}

fn request_bit(stamp: &Stamp<'_>) -> u64 {
    match stamp {
        Stamp::Request(time, _) => bit(**time),
        Stamp::Clock(_) | Stamp::Bound(_) | Stamp::Message(_) => 0,
    }
}

/// Renumbers a time so that the requests of a set become 8, 16, … `own` is the time of the receiver's own request, if
/// messages are compared with it; otherwise 0.
fn lower(stamp: Stamp<'_>, requests: u64, own: u64) {
    match stamp {
        Stamp::Request(time, _) => *time = APART * up_to(requests, *time),
        Stamp::Clock(time) | Stamp::Bound(time) => *time = just_after(APART * up_to(requests, *time)),
        Stamp::Message(time) if own > 0 && *time > own => *time = just_after(APART * up_to(requests, own)),
        Stamp::Message(time) => *time = 0,
    }
}

/// A number whose bits all depend on all bits of the argument (the finaliser of MurmurHash3).
fn mixed(mut number: u64) -> u64 {
    number = (number ^ number >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    number = (number ^ number >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    number ^ number >> 33
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_core::SiteId;

    fn lowered(requests: &[u64], own: u64, stamp: fn(&mut u64) -> Stamp<'_>, mut time: u64) -> u64 {
        let requests = requests.iter().fold(0, |set, &time| set | bit(time));
        lower(stamp(&mut time), requests, own);
        time
    }

    #[test]
    fn requests_are_renumbered_in_their_order() {
        let requests = [8, 20, 24];
        let found = requests.map(|time| lowered(&requests, 0, |time| Stamp::Request(time, SiteId(0)), time));
        assert_eq!(found, [8, 16, 24]);
    }

    #[test]
    fn a_clock_is_just_after_the_last_request_that_precedes_it() {
        // The request with time 16 has gone.
        for (clock, expected) in [(1, 1), (9, 9), (13, 9), (17, 9), (25, 17)] {
            assert_eq!(lowered(&[8, 24], 0, |time| Stamp::Clock(time), clock), expected, "{clock}");
        }
    }

    #[test]
    fn a_message_is_later_than_its_receivers_request_or_has_no_time() {
        for (own, time, expected) in [(16, 18, 17), (16, 10, 0), (0, 18, 0)] {
            assert_eq!(lowered(&[8, 16], own, |time| Stamp::Message(time), time), expected);
        }
    }
}
