//! Machines and their channels as rows of small numbers.
//!
//! A state of the whole is one number for each machine, one for each channel, and one for the faults so far. What a
//! machine does next depends on its own state and on what happens to it, and local states are few where states of
//! the whole are many: so each local step is taken once, and afterwards looked up.

use super::intern::{Interner, Known, Memo};
use super::machine::{Breach, Cause, Choice, Effect, Entry, Facts, Fault, Machines, Tallied};
use super::reduce::Sends;
use super::search::{Model, Next, Worker};
use crate::property::Property;
use lockkeeper_core::{Crowd, Mode, Sharing, SiteId};
use smallvec::SmallVec;
use std::sync::{Mutex, MutexGuard};

/// A system of machines, ready to be searched.
pub struct Net<S: Machines> {
    /// The system.
    pub system: S,
    /// Who can send to whom, if steps that commute are to be tried in one order only; see [`super::reduce`].
    pub sends: Option<Sends>,
    tables: Mutex<Tables<S>>,
}

/// Everything that has a number. Shared by the workers, who ask only for what they have not met before.
pub(super) struct Tables<S: Machines> {
    locals: Vec<Interner<S::Local>>,
    parcels: Interner<S::Parcel>,
    channels: Vec<Interner<Vec<u32>>>,
}

impl<S: Machines> Net<S> {
    /// A system at its start.
    pub fn new(system: S) -> Self {
        let machines = system.machines();
        let mut channels: Vec<Interner<Vec<u32>>> =
            (0..machines * (machines - 1)).map(|_| Interner::default()).collect();
        for channel in &mut channels {
            channel.number(Vec::new()); // The empty channel is number 0.
        }
        let locals = (0..machines).map(|_| Interner::default()).collect();
        Self {
            system,
            sends: None,
            tables: Mutex::new(Tables { locals, parcels: Interner::default(), channels }),
        }
    }

    fn tables(&self) -> MutexGuard<'_, Tables<S>> {
        self.tables.lock().expect("no worker panics")
    }

    /// A message by its number.
    pub fn parcel(&self, number: u32) -> S::Parcel {
        self.tables().parcels.get(number).clone()
    }

    /// The state of a machine in a state of the whole.
    pub fn local(&self, state: &[u32], who: usize) -> S::Local {
        self.tables().locals[who].get(state[who]).clone()
    }

    /// Visits every number of the local state or channel in a slot of a state, and returns the number of what it is then.
    pub(super) fn visit_numbers(
        &self,
        slot: usize,
        content: u32,
        visit: &mut dyn FnMut(usize, &mut u64),
    ) -> u32 {
        let machines = self.system.machines();
        let mut tables = self.tables();
        if slot < machines {
            let mut local = tables.locals[slot].get(content).clone();
            self.system.numbers(&mut local, visit);
            return tables.locals[slot].number(local);
        }
        let (place, from) = (slot - machines, (slot - machines) / (machines - 1));
        let mut parcels = tables.channels[place].get(content).clone();
        for number in &mut parcels {
            let mut parcel = tables.parcels.get(*number).clone();
            self.system.numbers_in(from, &mut parcel, visit);
            *number = tables.parcels.number(parcel);
        }
        if !self.system.fifo() {
            parcels.sort_unstable();
        }
        tables.channels[place].number(parcels)
    }

    /// How many different local states and messages were met.
    pub fn vocabulary(&self) -> (usize, usize) {
        let tables = self.tables();
        (tables.locals.iter().map(Interner::len).sum(), tables.parcels.len())
    }
}

/// The place of the channel from one machine to another among all channels.
#[inline]
pub(super) fn channel(machines: usize, from: usize, to: usize) -> usize {
    from * (machines - 1) + to - usize::from(to > from)
}

impl<S: Machines> Model for Net<S> {
    type Worker<'m>
        = Explorer<'m, S>
    where
        Self: 'm;

    fn slots(&self) -> usize {
        let machines = self.system.machines();
        machines * machines + usize::from(!self.system.faults().none())
    }

    fn tallies(&self) -> usize {
        let tallied = self.system.tallied();
        let bypass = if tallied.bypass { self.system.machines() } else { 0 };
        bypass + usize::from(tallied.messages)
    }

    fn worker(&self) -> Explorer<'_, S> {
        Explorer::new(self)
    }
}

/// What leads from one state to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A machine does something of its own accord.
    Choice(usize, Choice),
    /// The message of that number is delivered, from one machine to another.
    Deliver(usize, usize, u32),
    /// It is lost.
    Lose(usize, usize, u32),
    /// It is delivered, and will be again.
    Duplicate(usize, usize, u32),
}

/// What a local step leads to.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub local: u32,
    pub sends: SmallVec<[(u32, u32); 4]>,
    pub effect: Effect,
    /// It changes nothing at all.
    pub idle: bool,
    /// Nothing about it concerns anybody but the machine itself and those it sends to.
    pub plain: bool,
    /// The machine has more tokens than before.
    pub gained: bool,
    /// The machine's state is beyond what is to be explored.
    pub beyond: bool,
}

/// What was seen at least once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Rules that fired, one bit each.
    pub rules: u128,
    /// Kinds of messages that were delivered, one bit each.
    pub words: u64,
    /// Machines that entered, one bit each.
    pub entered: u64,
    /// The largest number of others that entered while one waited.
    pub max_bypass: u8,
    /// The most messages that were sent by then, in any state; the largest number that can be kept means no end.
    pub max_messages: u8,
    /// The most messages, and the entries, of a run that came to its end: the dearest by messages per entry.
    pub dearest: Option<(u8, u32)>,
    /// States in which only some of the possible steps were tried.
    pub reduced: u64,
    /// States that were expanded.
    pub expanded: u64,
}

impl Seen {
    /// Adds what another worker saw.
    pub fn add(&mut self, other: &Self) {
        self.rules |= other.rules;
        self.words |= other.words;
        self.entered |= other.entered;
        self.max_bypass = self.max_bypass.max(other.max_bypass);
        self.max_messages = self.max_messages.max(other.max_messages);
        self.dearest = dearer(self.dearest, other.dearest);
        self.reduced += other.reduced;
        self.expanded += other.expanded;
    }
}

/// The breach of fences that do not rise.
pub(super) fn no_larger_fence(site: SiteId) -> Breach {
    let what = format!("{site} enters with a fence that is no larger than that of an entry before");
    Breach { property: Property::FenceMonotone, sites: vec![site], what }
}

fn dearer(left: Option<(u8, u32)>, right: Option<(u8, u32)>) -> Option<(u8, u32)> {
    let (Some((messages, entries)), Some((others, their_entries))) = (left, right) else {
        return left.or(right);
    };
    let more = u64::from(others) * u64::from(entries) > u64::from(messages) * u64::from(their_entries);
    if more { right } else { left }
}

#[derive(Default)]
pub(super) struct SiteCache {
    facts: Vec<Facts>,
    pub choices: Known<Box<[(Choice, u32)]>>,
    /// By sender: from local state and message to outcome.
    pub deliveries: Vec<Memo>,
    outdated: Known<u32>,
}

#[derive(Default)]
struct ChannelCache {
    /// For each content, what can be delivered and what is left then.
    heads: Known<SmallVec<[(u32, u32); 2]>>,
    pushed: Memo,
    too_long: Known<()>,
    outdated: Known<u32>,
    tokens: Known<u32>,
}

/// Expands states of a [`Net`].
pub struct Explorer<'m, S: Machines> {
    pub(super) net: &'m Net<S>,
    pub(super) machines: usize,
    pub(super) fifo: bool,
    scales: usize,
    sharing: Sharing,
    tallied: Tallied,
    faults: super::machine::Faults,
    pub(super) sites: Vec<SiteCache>,
    channels: Vec<ChannelCache>,
    pub(super) outcomes: Vec<Outcome>,
    pub(super) next: Vec<u32>,
    next_tallies: Vec<u8>,
    seen: Seen,
    pub(super) shifter: super::shift::Shifter,
    /// The next state is beyond the limits.
    too_far: bool,
}

impl<'m, S: Machines> Explorer<'m, S> {
    fn new(net: &'m Net<S>) -> Self {
        let machines = net.system.machines();
        let site = || SiteCache {
            deliveries: (0..machines).map(|_| Memo::default()).collect(),
            ..SiteCache::default()
        };
        Self {
            net,
            machines,
            fifo: net.system.fifo(),
            scales: net.system.scales(),
            sharing: net.system.sharing(),
            tallied: net.system.tallied(),
            faults: net.system.faults(),
            sites: (0..machines).map(|_| site()).collect(),
            channels: (0..machines * (machines - 1)).map(|_| ChannelCache::default()).collect(),
            outcomes: Vec::new(),
            next: vec![0; net.slots()],
            next_tallies: vec![0; net.tallies()],
            seen: Seen::default(),
            shifter: super::shift::Shifter::new(machines),
            too_far: false,
        }
    }

    /// What was seen so far.
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// Who waits in a state of the whole, one bit each.
    pub fn waiting(&mut self, state: &[u32]) -> u16 {
        (0..self.machines)
            .fold(0, |waiting, who| waiting | u16::from(self.facts(who, state[who]).waiting) << who)
    }

    /// What is known of a machine in a state of the whole.
    #[inline]
    pub(super) fn facts(&mut self, who: usize, local: u32) -> &Facts {
        if self.sites[who].facts.len() <= local as usize {
            self.learn(who, local);
        }
        &self.sites[who].facts[local as usize]
    }

    #[cold]
    fn learn(&mut self, who: usize, local: u32) {
        let tables = self.net.tables();
        let site = &mut self.sites[who];
        for number in site.facts.len() as u32..=local {
            let local = tables.locals[who].get(number);
            site.facts.push(self.net.system.facts(who, local));
        }
    }

    /// What a machine can do of its own accord: how many things.
    #[inline]
    pub(super) fn choices(&mut self, who: usize, local: u32) -> usize {
        match self.sites[who].choices.get(local) {
            Some(choices) => choices.len(),
            None => self.work_out_choices(who, local),
        }
    }

    #[cold]
    fn work_out_choices(&mut self, who: usize, local: u32) -> usize {
        let before = self.net.tables().locals[who].get(local).clone();
        let choices = self.net.system.choices(who, &before);
        let worked_out: Box<[(Choice, u32)]> = choices
            .into_iter()
            .map(|choice| (choice, self.take_step(who, local, &before, Cause::Choice(choice.code))))
            .collect();
        self.sites[who].choices.insert(local, worked_out).len()
    }

    #[inline]
    pub(super) fn choice(&self, who: usize, local: u32, which: usize) -> (Choice, u32) {
        self.sites[who].choices.get(local).expect("worked out before")[which]
    }

    /// What a delivery leads to.
    #[inline]
    pub(super) fn delivery(&mut self, from: usize, to: usize, local: u32, parcel: u32) -> u32 {
        if let Some(outcome) = self.sites[to].deliveries[from].get(local, parcel) {
            return outcome;
        }
        self.work_out_delivery(from, to, local, parcel)
    }

    #[cold]
    fn work_out_delivery(&mut self, from: usize, to: usize, local: u32, parcel: u32) -> u32 {
        let (before, message) = {
            let tables = self.net.tables();
            (tables.locals[to].get(local).clone(), tables.parcels.get(parcel).clone())
        };
        let outcome = self.take_step(to, local, &before, Cause::Message(from, &message));
        self.seen.words |= 1 << self.net.system.word(&message);
        self.seen.rules |= self.outcomes[outcome as usize].effect.rules;
        self.sites[to].deliveries[from].insert(local, parcel, outcome);
        outcome
    }

    fn take_step(&mut self, who: usize, number: u32, before: &S::Local, cause: Cause<'_, S::Parcel>) -> u32 {
        let mut local = before.clone();
        let own = matches!(cause, Cause::Choice(_));
        let system = &self.net.system;
        let step = system.step(who, &mut local, cause);
        let beyond = system.beyond(who, &local);
        let gained = system.facts(who, &local).tokens > system.facts(who, before).tokens;
        let mut tables = self.net.tables();
        let sends = step
            .sends
            .into_iter()
            .map(|(to, parcel)| (to as u32, tables.parcels.number(parcel)))
            .collect::<SmallVec<_>>();
        let local = tables.locals[who].number(local);
        let effect = step.effect;
        let idle =
            own && local == number && sends.is_empty() && effect.wrong.is_none() && effect.entered.is_none();
        let plain = !effect.is_visible() && !effect.asked && !gained;
        self.outcomes.push(Outcome { local, sends, effect, idle, plain, gained, beyond });
        self.outcomes.len() as u32 - 1
    }

    /// What can be delivered from a channel: how many different things.
    #[inline]
    pub(super) fn heads(&mut self, place: usize, content: u32) -> usize {
        match self.channels[place].heads.get(content) {
            Some(heads) => heads.len(),
            None => self.work_out_heads(place, content),
        }
    }

    #[cold]
    fn work_out_heads(&mut self, place: usize, content: u32) -> usize {
        let mut tables = self.net.tables();
        let parcels = tables.channels[place].get(content).clone();
        let mut heads = SmallVec::new();
        for (position, &parcel) in parcels.iter().enumerate() {
            // In a bag, equal messages stand side by side; one of them is enough.
            if position > 0 && (self.fifo || parcels[position - 1] == parcel) {
                continue;
            }
            let mut rest = parcels.clone();
            rest.remove(position);
            heads.push((parcel, tables.channels[place].number(rest)));
        }
        self.channels[place].heads.insert(content, heads).len()
    }

    #[inline]
    pub(super) fn head(&self, place: usize, content: u32, which: usize) -> (u32, u32) {
        self.channels[place].heads.get(content).expect("worked out before")[which]
    }

    #[inline]
    fn push(&mut self, place: usize, content: u32, parcel: u32) -> u32 {
        if let Some(content) = self.channels[place].pushed.get(content, parcel) {
            return content;
        }
        self.work_out_push(place, content, parcel)
    }

    #[cold]
    fn work_out_push(&mut self, place: usize, content: u32, parcel: u32) -> u32 {
        let mut tables = self.net.tables();
        let mut parcels = tables.channels[place].get(content).clone();
        let position =
            if self.fifo { parcels.len() } else { parcels.partition_point(|&other| other < parcel) };
        parcels.insert(position, parcel);
        let too_long = self.net.system.limits().is_some_and(|limits| parcels.len() > limits.in_flight);
        let longer = tables.channels[place].number(parcels);
        self.channels[place].pushed.insert(content, parcel, longer);
        if too_long {
            self.channels[place].too_long.insert(longer, ());
        }
        longer
    }

    /// Takes a step in a state of the whole; what comes of it stands in `next` and `next_tallies`.
    #[inline]
    fn apply(
        &mut self,
        state: &[u32],
        tallies: &[u8],
        who: usize,
        outcome: u32,
        popped: Option<(usize, u32)>,
    ) -> Option<Breach> {
        let machines = self.machines;
        self.next.copy_from_slice(state);
        self.next_tallies.copy_from_slice(tallies);
        self.too_far = false;
        let Outcome { local, plain, gained, .. } = self.outcomes[outcome as usize];
        self.next[who] = local;
        if let Some((place, rest)) = popped {
            self.next[machines + place] = rest;
        }
        let breach = if plain { None } else { self.announce(state, who, outcome) };
        self.send(who, outcome);
        if self.scales > 0 {
            self.too_far |= self.shift();
        }
        if gained { breach.or_else(|| self.count_tokens()) } else { breach }
    }

    /// What a step is to the others, and what is wrong with it.
    fn announce(&mut self, state: &[u32], who: usize, outcome: u32) -> Option<Breach> {
        let machines = self.machines;
        let effect = &self.outcomes[outcome as usize].effect;
        let (entered, asked, crashed) = (effect.entered, effect.asked, effect.crashed);
        let wrong = effect.wrong.clone();
        if crashed {
            for from in (0..machines).filter(|&from| from != who) {
                self.next[machines + channel(machines, from, who)] = 0;
            }
        }
        if asked && self.tallied.bypass {
            self.next_tallies[who] = 0;
        }
        match entered {
            Some(entry) => wrong.or(self.enters(state, who, entry)),
            None => wrong,
        }
    }

    fn send(&mut self, who: usize, outcome: u32) {
        let machines = self.machines;
        let may_be_down = self.faults.of(Fault::Crash) > 0;
        let sends = self.outcomes[outcome as usize].sends.len();
        if self.tallied.messages
            && let Some(messages) = self.next_tallies.last_mut()
        {
            *messages = messages.saturating_add(sends as u8);
            self.seen.max_messages = self.seen.max_messages.max(*messages);
        }
        for which in 0..sends {
            let (to, parcel) = self.outcomes[outcome as usize].sends[which];
            if may_be_down && self.facts(to as usize, self.next[to as usize]).down {
                continue;
            }
            let place = channel(machines, who, to as usize);
            let content = self.push(place, self.next[machines + place], parcel);
            self.too_far |= self.channels[place].too_long.get(content).is_some();
            self.next[machines + place] = content;
        }
    }

    /// A machine enters: checks that it may, counts whom it passes, and tells everybody.
    fn enters(&mut self, state: &[u32], who: usize, entry: Entry) -> Option<Breach> {
        self.seen.entered |= 1 << who;
        let me = SiteId::new(who);
        let sharing = self.sharing;
        let own = self.facts(who, self.next[who]).timestamp;
        let (mut inside, mut holders) = (Crowd::default(), Vec::new());
        let mut breach = None;
        for other in (0..self.machines).filter(|&other| other != who) {
            let name = SiteId::new(other);
            let Facts { waiting, inside: is_inside, mode, fence, timestamp, .. } =
                *self.facts(other, state[other]);
            if is_inside {
                inside.add(mode);
                holders.push(name);
            }
            if sharing.conflict(entry.mode, mode) && fence > entry.fence {
                breach = breach.or_else(|| Some(no_larger_fence(me)));
            }
            if waiting && sharing.compete(entry.mode, mode) {
                self.pass(other);
            }
            if waiting
                && sharing.conflict(entry.mode, mode)
                && let (Some(own), Some(theirs)) = (own, timestamp)
                && theirs < own
            {
                let what = format!("{me} enters with {own} while {name} waits with {theirs}");
                let sites = vec![me, name];
                breach = breach.or(Some(Breach { property: Property::TimestampOrder, sites, what }));
            }
        }
        if sharing.conflict(entry.mode, Mode::Shared) {
            self.outdate_others(who);
        }
        if sharing.admits(inside, entry.mode) {
            return breach;
        }
        let what =
            format!("{me} enters while {} is inside", lockkeeper_core::mutex::list(&holders, "nobody"));
        holders.push(me);
        Some(Breach { property: Property::MutualExclusion, sites: holders, what })
    }

    /// What all others know of fences, and what messages tell of them, is from before now.
    fn outdate_others(&mut self, who: usize) {
        let machines = self.machines;
        for other in (0..machines).filter(|&other| other != who) {
            self.next[other] = self.outdate(other, self.next[other]);
        }
        for place in 0..machines * (machines - 1) {
            self.next[machines + place] = self.outdate_channel(place, self.next[machines + place]);
        }
    }

    fn pass(&mut self, waiting: usize) {
        if self.tallied.bypass {
            let tally = &mut self.next_tallies[waiting];
            *tally = tally.saturating_add(1);
            self.seen.max_bypass = self.seen.max_bypass.max(*tally);
        }
    }

    fn outdate(&mut self, who: usize, local: u32) -> u32 {
        if let Some(&older) = self.sites[who].outdated.get(local) {
            return older;
        }
        let mut tables = self.net.tables();
        let mut older = tables.locals[who].get(local).clone();
        self.net.system.outdate(&mut older);
        *self.sites[who].outdated.insert(local, tables.locals[who].number(older))
    }

    fn outdate_channel(&mut self, place: usize, content: u32) -> u32 {
        if let Some(&older) = self.channels[place].outdated.get(content) {
            return older;
        }
        let mut tables = self.net.tables();
        let parcels = tables.channels[place].get(content).clone();
        let mut older: Vec<u32> = parcels
            .into_iter()
            .map(|parcel| {
                let mut parcel = tables.parcels.get(parcel).clone();
                self.net.system.outdate_parcel(&mut parcel);
                tables.parcels.number(parcel)
            })
            .collect();
        if !self.fifo {
            older.sort_unstable();
        }
        *self.channels[place].outdated.insert(content, tables.channels[place].number(older))
    }

    fn count_tokens(&mut self) -> Option<Breach> {
        let machines = self.machines;
        let mut tokens = 0;
        for who in 0..machines {
            tokens += self.facts(who, self.next[who]).tokens;
        }
        for place in 0..machines * (machines - 1) {
            tokens += self.tokens_in_channel(place, self.next[machines + place]);
        }
        (tokens > 1).then(|| Breach {
            property: Property::Invariant,
            sites: Vec::new(),
            what: format!("there are {tokens} tokens"),
        })
    }

    fn tokens_in_channel(&mut self, place: usize, content: u32) -> u32 {
        if let Some(&tokens) = self.channels[place].tokens.get(content) {
            return tokens;
        }
        let tables = self.net.tables();
        let parcels = tables.channels[place].get(content);
        let tokens =
            parcels.iter().map(|&parcel| self.net.system.tokens_in(tables.parcels.get(parcel))).sum();
        *self.channels[place].tokens.insert(content, tokens)
    }

    /// Whether another fault of this kind may happen; the state with it counted.
    fn spend(&self, state: &[u32], fault: Fault) -> Option<u32> {
        let place = self.machines * self.machines;
        let spent = *state.get(place)?;
        let shift = 4 * fault as u32;
        let times = spent >> shift & 0xF;
        (times < u32::from(self.faults.of(fault))).then_some(spent + (1 << shift))
    }

    /// What is wrong with a state in which nothing can happen.
    fn at_the_end(&mut self, state: &[u32], tallies: &[u8]) -> Option<Breach> {
        let mut waiting = Vec::new();
        let mut entries = 0;
        for who in 0..self.machines {
            let facts = self.facts(who, state[who]);
            entries += facts.entries;
            if facts.waiting {
                waiting.push(SiteId::new(who));
            }
        }
        if !waiting.is_empty() {
            let names = lockkeeper_core::mutex::list(&waiting, "");
            let what = format!("nothing can happen any more, and {names} waits");
            return Some(Breach { property: Property::NoDeadlock, sites: waiting, what });
        }
        if entries > 0 && self.tallied.messages {
            let run = tallies.last().map(|&messages| (messages, entries));
            self.seen.dearest = dearer(self.seen.dearest, run);
        }
        None
    }
}

impl<S: Machines> Worker for Explorer<'_, S> {
    type Action = Action;
    type Breach = Breach;

    fn start(&mut self, found: &mut impl FnMut(&[u32])) {
        let (locals, sends) = self.net.system.start();
        let machines = self.machines;
        self.next.fill(0);
        for (who, local) in locals.into_iter().enumerate() {
            self.next[who] = self.net.tables().locals[who].number(local);
        }
        for send in sends {
            let parcel = self.net.tables().parcels.number(send.parcel);
            let place = channel(machines, send.from, send.to);
            self.next[machines + place] = self.push(place, self.next[machines + place], parcel);
        }
        found(&self.next);
    }

    fn expand(
        &mut self,
        state: &[u32],
        tallies: &[u8],
        found: &mut impl FnMut(Next<'_, Action, Breach>),
    ) -> Option<Breach> {
        self.seen.expanded += 1;
        let machines = self.machines;
        let tried = match &self.net.sends {
            Some(sends) => self.enough(sends, state),
            None => u64::MAX,
        };
        self.seen.reduced += u64::from(tried != u64::MAX);
        let mut stuck = true;
        for who in (0..machines).filter(|who| tried >> who & 1 == 1) {
            for which in 0..self.choices(who, state[who]) {
                let (choice, outcome) = self.choice(who, state[who], which);
                if self.outcomes[outcome as usize].idle {
                    continue;
                }
                let fault = match choice.suspects {
                    Some(other) if self.facts(other, state[other]).down => None,
                    Some(_) => Some(Fault::Suspicion),
                    None => choice.fault,
                };
                let spent = match fault {
                    Some(fault) => match self.spend(state, fault) {
                        None => continue,
                        spent => spent,
                    },
                    None => None,
                };
                stuck &= fault.is_some();
                self.seen.rules |= self.outcomes[outcome as usize].effect.rules;
                let breach = self.apply(state, tallies, who, outcome, None);
                if let Some(spent) = spent {
                    self.next[machines * machines] = spent;
                }
                let beyond = self.too_far || self.outcomes[outcome as usize].beyond;
                let (state, tallies) = (&*self.next, &*self.next_tallies);
                found(Next { action: Action::Choice(who, choice), state, tallies, breach, beyond });
            }
            for from in (0..machines).filter(|&from| from != who) {
                let place = channel(machines, from, who);
                let content = state[machines + place];
                if content == 0 {
                    continue;
                }
                stuck = false;
                for which in 0..self.heads(place, content) {
                    self.deliver(state, tallies, (from, who, which), found);
                }
            }
        }
        if stuck { self.at_the_end(state, tallies) } else { None }
    }
}

impl<S: Machines> Explorer<'_, S> {
    #[inline]
    fn deliver(
        &mut self,
        state: &[u32],
        tallies: &[u8],
        (from, to, which): (usize, usize, usize),
        found: &mut impl FnMut(Next<'_, Action, Breach>),
    ) {
        let machines = self.machines;
        let place = channel(machines, from, to);
        let content = state[machines + place];
        let (parcel, rest) = self.head(place, content, which);
        let outcome = self.delivery(from, to, state[to], parcel);
        let mut breach = self.apply(state, tallies, to, outcome, Some((place, rest)));
        let beyond = self.too_far || self.outcomes[outcome as usize].beyond;
        let action = Action::Deliver(from, to, parcel);
        found(Next { action, state: &self.next, tallies: &self.next_tallies, breach, beyond });
        if let Some(spent) = self.spend(state, Fault::Duplicate) {
            breach = self.apply(state, tallies, to, outcome, None);
            self.next[machines * machines] = spent;
            let action = Action::Duplicate(from, to, parcel);
            let beyond = self.too_far || self.outcomes[outcome as usize].beyond;
            found(Next { action, state: &self.next, tallies: &self.next_tallies, breach, beyond });
        }
        if let Some(spent) = self.spend(state, Fault::Loss) {
            self.next.copy_from_slice(state);
            self.next[machines + place] = rest;
            self.next[machines * machines] = spent;
            let action = Action::Lose(from, to, parcel);
            found(Next { action, state: &self.next, tallies, breach: None, beyond: false });
        }
    }
}
