//! # The gate: exclusive, shared, or by permits, over any algorithm
//!
//! Kai Li, Paul Hudak: *Memory Coherence in Shared Virtual Memory Systems*. ACM Transactions on Computer Systems 7(4),
//! 1989, pages 321–359, keep the set of sites that have a copy of a page, and invalidate all copies before a write. The
//! gate does the same with the permission to enter, over any mutual exclusion algorithm.
//!
//! **Idea.** An exclusive holder stays in the section of the algorithm below. A site with a shared request, or a
//! request for one of k permits, enters that section only to *register*: it leaves at once, and from then on admits its
//! own holders without a message. The register travels with every message. An entry happens after the previous exit,
//! along messages, so that the site in the section knows every registration, under every algorithm. It *recalls* the
//! registrations that conflict with its request, and waits until their last holder has left. A recalled registration
//! admits no further holder.
//!
//! **Assumes** what the algorithm below assumes. A RECALL and its answer may overtake other messages.
//!
//! **Cost.** Exclusive: the messages of the algorithm below, and two for each site that has registered since the last
//! exclusive entry. Shared or by permit: nothing at a registered site; else the messages of the algorithm below, and
//! two for each registration to recall, where one kind follows another or the permits are used up. A lock that is only
//! used exclusively costs nothing more, on the wire or in memory.
//!
//! **Pitfalls.** A recall is for one registration: one that arrives late must not be applied to the next. A site must
//! keep and pass on the registrations of others even if it does not need them. Answering a recall while a holder is
//! inside, or admitting one more after the answer, lets conflicting holders in. Several sites may recall one: a
//! recaller that has got its permit elsewhere does not wait any more, but the next one does.

use super::gate_messages::{Content, Entry, GateRule, Message, Register, Rule};
use super::naimi_trehel::NaimiTrehel;
use crate::mutex::Cost;
use crate::settings::{OptionsError, Setting, Settings};
use crate::{
    About, ApplicationInput, Configure, Entered, Expected, Field, Holder, Inspect, InvariantViolated, Load,
    LockMode, Mode, MutualExclusion, Out, PaperFigures, Protocol, Setup, Sharing, SiteId, Validate,
};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The gate over Naimi and Tréhel's algorithm.
pub type SharedByToken = Gate<NaimiTrehel>;

/// One site: the state of the algorithm below, and the state for sharing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gate<P> {
    inner: P,
    /// `None` as long as this site knows of no shared use. A member may have millions of such locks.
    shared: Option<Box<Shared>>,
}

/// The relation of a site to the section of the algorithm below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Stage {
    /// Not in the section; the site may have requested it.
    #[default]
    Outside,
    /// In the section, waiting until no registration conflicts.
    Clearing,
    /// In the section, and inside as exclusive holder.
    Alone,
}

/// The state of a site for sharing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Shared {
    stage: Stage,
    /// The mode of the present request, or of the last one.
    mode: LockMode,
    register: Register,
    /// The number of holders inside under this site's own registration.
    used: u32,
    /// Whether the own registration is recalled and admits no further holder.
    recalled: bool,
    /// The sites to answer, each when fewer than this many units are left.
    recallers: Vec<(SiteId, u32)>,
    /// The sites that this site has recalled for its present request.
    asked: Vec<SiteId>,
}

impl Shared {
    /// The number of units that the holders of this site use.
    fn units_used(&self, mode: LockMode) -> u32 {
        if mode == LockMode::Shared { self.used.min(1) } else { self.used }
    }

    /// Whether one more holder fits under this site's own registration.
    fn has_room(&self, me: SiteId, mode: LockMode) -> bool {
        let fits = |own: &Entry| own.mode == mode && (mode == LockMode::Shared || self.used < own.units);
        !self.recalled && self.register.of(me).is_some_and(fits)
    }

    /// Closes this site's own registration: it admits no further holder, and its unused units are returned.
    fn give_up(&mut self, me: SiteId) {
        self.recalled = true;
        if let Some(&own) = self.register.of(me) {
            self.register.note(Entry { units: self.units_used(own.mode), ..own });
        }
    }

    /// The sites whose registrations conflict with the present request, each with whether all of its units do.
    fn in_the_way(&self) -> Vec<(SiteId, bool)> {
        let mode = self.mode;
        let registered = || self.register.iter().filter(|entry| entry.units > 0);
        let of_another_kind = |entry: &&Entry| mode == LockMode::Exclusive || entry.mode != mode;
        let others: Vec<_> = registered().filter(of_another_kind).map(|entry| (entry.site, true)).collect();
        let LockMode::Permit { of: permits } = mode else { return others };
        // Example: of 3 permits, S1 is registered for 2 and S2 for 1. A request of S3 recalls both, and continues when
        // one unit is free; it does not need all of them.
        let taken: u64 = registered().map(|entry| u64::from(entry.units)).sum();
        if !others.is_empty() || taken < u64::from(permits) {
            return others;
        }
        registered().map(|entry| (entry.site, false)).collect()
    }
}

impl<P: MutualExclusion> Gate<P> {
    /// The initial state of one site. `inside` lists the holders at the start: site, mode and number. The setup is that
    /// of the algorithm below; its holders are ignored.
    pub fn begin(
        me: SiteId,
        mut setup: Setup<P::Options>,
        inside: &[(SiteId, LockMode, u32)],
        out: &mut Out<Self>,
    ) -> Self {
        let is_exclusive = |(_, mode, _): &&(SiteId, LockMode, u32)| *mode == LockMode::Exclusive;
        setup.holders =
            inside.iter().filter(is_exclusive).map(|&(site, ..)| Holder::exclusive(site)).collect();
        let mut below = out.inner();
        let inner = P::start(me, &setup, &mut below);
        let mut gate = Self { inner, shared: None };
        for &(site, mode, count) in inside.iter().filter(|(_, mode, _)| *mode != LockMode::Exclusive) {
            let shared = gate.shared.get_or_insert_default();
            let units = if mode == LockMode::Shared { count.min(1) } else { count };
            shared.register.note(Entry { site, version: 1, mode, units });
            if site == me {
                shared.used = count;
                shared.mode = mode;
            }
        }
        gate.settle(&mut below, out);
        gate
    }

    /// Requests for a client of this site. One request at a time, and none while this site has an exclusive holder.
    pub fn request(&mut self, mode: LockMode, out: &mut Out<Self>) {
        if mode != LockMode::Exclusive {
            self.shared.get_or_insert_default();
        }
        if let Some(shared) = &mut self.shared {
            shared.mode = mode;
            if shared.has_room(out.me(), mode) {
                out.rule(Rule::gate(GateRule::EntersRegistered));
                shared.used += 1;
                return out.output(Entered);
            }
        }
        self.below(out, |inner, out| inner.input(ApplicationInput::Request(Mode::Exclusive), out));
    }

    /// Releases a hold of this mode.
    pub fn release(&mut self, mode: LockMode, out: &mut Out<Self>) {
        match &mut self.shared {
            Some(shared) if mode != LockMode::Exclusive => {
                shared.used = shared.used.saturating_sub(1);
                if shared.recalled {
                    shared.give_up(out.me());
                    if self.answer_recallers(out) {
                        out.rule(Rule::gate(GateRule::Answers));
                    }
                    self.clear(out);
                }
            }
            shared => {
                if let Some(shared) = shared {
                    shared.stage = Stage::Outside;
                }
                self.below(out, |inner, out| inner.input(ApplicationInput::Release, out));
            }
        }
    }

    /// Runs a step of the algorithm below, and delivers its messages to itself.
    fn below(&mut self, out: &mut Out<Self>, act: impl FnOnce(&mut P, &mut Out<P>)) {
        let mut below = out.inner();
        act(&mut self.inner, &mut below);
        self.settle(&mut below, out);
    }

    fn settle(&mut self, below: &mut Out<P>, out: &mut Out<Self>) {
        while let Some(message) = below.local.pop_front() {
            self.inner.message(out.me(), message, below);
        }
        for (to, message) in below.sends.drain(..) {
            self.send(to, Content::Inner(message), out);
        }
        out.timers.append(&mut below.timers);
        out.rules.extend(below.rules.drain(..).map(Rule::<P::Rule>::inner));
        out.skipped_fences += below.skipped_fences;
        out.fence_floor = out.fence_floor.max(below.fence_floor);
        if !below.outputs.is_empty() {
            self.arrive(out);
        }
    }

    fn send(&self, to: SiteId, content: Content<P::Message>, out: &mut Out<Self>) {
        let register = self.shared.as_ref().map(|shared| shared.register.clone()).unwrap_or_default();
        out.send(to, Message { register, content });
    }

    /// Handles the entry into the section below.
    fn arrive(&mut self, out: &mut Out<Self>) {
        match &mut self.shared {
            None => self.enter_alone(out),
            Some(shared) if shared.stage == Stage::Outside => {
                shared.stage = Stage::Clearing;
                self.clear(out);
            }
            // Only a message that no correct site sends can make this site enter the section twice.
            Some(_) => {}
        }
    }

    /// In the section: enters if no registration conflicts, otherwise recalls the conflicting ones.
    fn clear(&mut self, out: &mut Out<Self>) {
        let me = out.me();
        let Some(shared) = self.shared.as_mut().filter(|shared| shared.stage == Stage::Clearing) else {
            return;
        };
        let mut in_the_way = shared.in_the_way();
        if in_the_way.iter().any(|(site, _)| *site == me) {
            shared.give_up(me);
            in_the_way = shared.in_the_way();
        }
        if in_the_way.is_empty() {
            shared.asked.clear();
            return if shared.mode == LockMode::Exclusive {
                self.enter_alone(out)
            } else {
                self.register(out)
            };
        }
        in_the_way.retain(|(site, _)| *site != me && !shared.asked.contains(site));
        if in_the_way.is_empty() {
            return;
        }
        out.rule(Rule::gate(GateRule::Recalls));
        shared.asked.extend(in_the_way.iter().map(|(site, _)| *site));
        for (site, all) in in_the_way {
            self.send(site, Content::Recall { all }, out);
        }
    }

    fn enter_alone(&mut self, out: &mut Out<Self>) {
        out.rule(Rule::gate(GateRule::EntersAlone));
        if let Some(shared) = &mut self.shared {
            shared.stage = Stage::Alone;
        }
        out.output(Entered);
    }

    /// Registers this site, enters under the registration, and leaves the section.
    fn register(&mut self, out: &mut Out<Self>) {
        let Some(shared) = &mut self.shared else { return };
        out.rule(Rule::gate(GateRule::Registers));
        let (site, mode) = (out.me(), shared.mode);
        let version = shared.register.of(site).map_or(1, |own| own.version + 1);
        shared.used += 1;
        shared.recalled = false;
        // The sites that recalled the previous registration have left the section since.
        shared.recallers.clear();
        shared.register.note(Entry { site, version, mode, units: shared.units_used(mode) });
        shared.stage = Stage::Outside;
        out.output(Entered);
        self.below(out, |inner, out| inner.input(ApplicationInput::Release, out));
    }

    /// Stores the registrations of other sites from a message. Of its own registration this site has the latest state.
    fn merge(&mut self, register: &Register, me: SiteId) {
        for &entry in register.iter().filter(|entry| entry.site != me) {
            self.shared.get_or_insert_default().register.note(entry);
        }
    }

    /// Handles a recall of this site's registration: the recaller waits until fewer units are left.
    fn recalled(&mut self, from: SiteId, registration: Option<Entry>, all: bool, out: &mut Out<Self>) {
        let me = out.me();
        let Some(shared) = &mut self.shared else { return };
        // A site that recalled an earlier registration does not wait any more: it left the section before this one was
        // made.
        let is_present = |registration: &Entry| {
            shared.register.of(me).is_some_and(|own| own.version == registration.version)
        };
        let Some(registration) = registration.filter(is_present) else { return };
        shared.give_up(me);
        let too_many = if all { 1 } else { registration.units };
        match shared.recallers.iter_mut().find(|(site, _)| *site == from) {
            Some((_, before)) => *before = too_many.min(*before),
            None => shared.recallers.push((from, too_many)),
        }
        let later = shared.used >= too_many;
        out.rule(Rule::gate(if later { GateRule::AnswersLater } else { GateRule::AnswersAtOnce }));
        self.answer_recallers(out);
    }

    /// Answers the recallers that wait for fewer units than are left now. Returns whether there were any.
    fn answer_recallers(&mut self, out: &mut Out<Self>) -> bool {
        let Some(shared) = &mut self.shared else { return false };
        let left = shared.register.of(out.me()).map_or(0, |own| own.units);
        let answered: Vec<SiteId> =
            shared.recallers.extract_if(.., |(_, too_many)| left < *too_many).map(|(site, _)| site).collect();
        for &site in &answered {
            self.send(site, Content::Cleared, out);
        }
        !answered.is_empty()
    }
}

impl<P: MutualExclusion> Protocol for Gate<P> {
    type Input = ApplicationInput;
    type Message = Message<P::Message>;
    type Output = Entered;
    type Timer = P::Timer;
    type Rule = Rule<P::Rule>;

    fn input(&mut self, input: ApplicationInput, out: &mut Out<Self>) {
        match (input, self.shared.as_ref().map_or(LockMode::Exclusive, |shared| shared.mode)) {
            (ApplicationInput::Release, mode) => self.release(mode, out),
            (ApplicationInput::Request(Mode::Shared), _) => self.request(LockMode::Shared, out),
            // In a semaphore, every request is for one of the same number of permits.
            (ApplicationInput::Request(Mode::Exclusive), mode @ LockMode::Permit { .. }) => {
                self.request(mode, out)
            }
            (ApplicationInput::Request(Mode::Exclusive), _) => self.request(LockMode::Exclusive, out),
        }
    }

    fn message(&mut self, from: SiteId, message: Self::Message, out: &mut Out<Self>) {
        let Message { register, content } = message;
        self.merge(&register, out.me());
        match content {
            Content::Inner(message) => self.below(out, |inner, out| inner.message(from, message, out)),
            Content::Recall { all } => self.recalled(from, register.of(out.me()).copied(), all, out),
            Content::Cleared => {}
        }
        self.clear(out);
    }

    fn timer(&mut self, timer: P::Timer, out: &mut Out<Self>) {
        self.below(out, |inner, out| inner.timer(timer, out));
    }

    fn suspect(&mut self, site: SiteId, out: &mut Out<Self>) {
        self.below(out, |inner, out| inner.suspect(site, out));
    }

    fn fields(&self) -> Vec<Field> {
        let mut fields = self.inner.fields();
        if let Some(shared) = &self.shared {
            fields.push(Field::new("registered", &shared.register));
            fields.push(Field::new("inside here", shared.used));
            fields.push(Field::new("recalled", if shared.recalled { "yes" } else { "no" }));
        }
        fields
    }

    fn points_to(&self) -> Option<SiteId> {
        self.inner.points_to()
    }

    fn quorum(&self) -> &[SiteId] {
        self.inner.quorum()
    }

    fn waits_for(&self) -> Vec<SiteId> {
        match &self.shared {
            Some(shared) if shared.stage == Stage::Clearing => {
                shared.in_the_way().into_iter().map(|(site, _)| site).collect()
            }
            _ => self.inner.waits_for(),
        }
    }
}

/// The options of the gate and of the algorithm below.
#[derive(Clone, Debug, Default)]
pub struct Options<O> {
    /// The number of permits of a semaphore; `None` for a readers-writers lock.
    pub permits: Option<u32>,
    /// The options of the algorithm below.
    pub inner: O,
}

impl<P: MutualExclusion> MutualExclusion for Gate<P> {
    const ABOUT: About = About {
        slug: "gate",
        title: "The gate: exclusive, shared, or by permits",
        family: P::ABOUT.family,
        paper: "after Li and Hudak, Memory Coherence in Shared Virtual Memory Systems, TOCS 1989",
        idea: "A site with a shared request registers in the section of a mutex and then admits its own holders; \
               an exclusive holder keeps that section, and recalls all registrations first.",
        channels: P::ABOUT.channels,
        perpetual: P::ABOUT.perpetual,
        deadlock_free: P::ABOUT.deadlock_free,
        cost: Cost {
            low: "of the algorithm below, and 2 for each registration to recall; 0 at a registered site",
            high: "at most 2(N−1) more than the algorithm below",
            sync_delay: "T, or 2T where registrations are recalled",
            client_delay: "of the algorithm below, and 2T where registrations are recalled",
        },
        crash: "of a registered site: a site that recalls it waits for ever; else as the algorithm below",
        settings: &[Setting {
            name: "permits",
            values: "none or a number from 1",
            default: "none",
            help: "the number of permits; none makes the lock one for readers and writers",
        }],
    };

    fn helpers(options: &Self::Options) -> usize {
        P::helpers(&options.inner)
    }

    fn sharing(options: &Self::Options) -> Sharing {
        options.permits.map_or(Sharing::ReadersWriters, |permits| Sharing::Semaphore(permits as usize))
    }

    fn start(me: SiteId, setup: &Setup<Self::Options>, out: &mut Out<Self>) -> Self {
        let plain = setup.options.permits.map_or(LockMode::Exclusive, |of| LockMode::Permit { of });
        let mode = |holder: &Holder| if holder.mode == Mode::Shared { LockMode::Shared } else { plain };
        let inside: Vec<_> = setup.holders.iter().map(|holder| (holder.site, mode(holder), 1)).collect();
        let below = Setup { home: setup.home, ..Setup::new(setup.sites, setup.options.inner.clone()) };
        let mut gate = Self::begin(me, below, &inside, out);
        if plain != LockMode::Exclusive {
            gate.shared.get_or_insert_default().mode = plain;
        }
        gate
    }

    fn is_wanted(&self) -> bool {
        self.inner.is_wanted()
    }
}

impl<P: MutualExclusion> Configure for Gate<P> {
    type Options = Options<P::Options>;

    fn options(settings: &mut Settings, sites: usize) -> Result<Self::Options, OptionsError> {
        let read = |text: &str| match text.parse() {
            _ if text == "none" => Some(None),
            Ok(permits) if LockMode::Permit { of: permits }.is_possible() => Some(Some(permits)),
            _ => None,
        };
        let permits = settings.take("permits", None, read, "none or a number from 1 to 1048576")?;
        Ok(Options { permits, inner: P::options(settings, sites)? })
    }
}

impl<P: MutualExclusion> PaperFigures for Gate<P> {
    fn most_messages(sites: usize, options: &Self::Options) -> Option<usize> {
        P::most_messages(sites, &options.inner).map(|most| most + 2 * (sites - 1))
    }

    fn expected(_load: Load, _sites: usize, _options: &Self::Options) -> Expected {
        // The cost depends on which sites are registered.
        Expected::default()
    }

    fn unreachable_labels(options: &Self::Options) -> &'static [&'static str] {
        const NO_EXCLUSIVE_ENTRY: &[&str] =
            &["has the section, and no site is registered: it enters, and keeps the section until it leaves"];
        if options.permits.is_none() { P::unreachable_labels(&options.inner) } else { NO_EXCLUSIVE_ENTRY }
    }
}

impl<P: MutualExclusion> Inspect for Gate<P> {
    fn scales(sites: usize) -> usize {
        2 * P::scales(sites).max(sites)
    }

    fn numbers(&mut self, visit: &mut dyn FnMut(usize, &mut u64)) {
        self.inner.numbers(&mut |kind, number| visit(2 * kind, number));
        if let Some(shared) = &mut self.shared {
            shared.register.versions(&mut |site, version| visit(2 * site.index() + 1, version));
        }
    }

    fn numbers_in(from: SiteId, message: &mut Self::Message, visit: &mut dyn FnMut(usize, &mut u64)) {
        if let Content::Inner(message) = &mut message.content {
            P::numbers_in(from, message, &mut |kind, number| visit(2 * kind, number));
        }
        message.register.versions(&mut |site, version| visit(2 * site.index() + 1, version));
    }

    fn tokens(&self) -> u32 {
        self.inner.tokens()
    }

    fn tokens_in(message: &Self::Message) -> u32 {
        if let Content::Inner(message) = &message.content { P::tokens_in(message) } else { 0 }
    }

    fn invariant(&self) -> Result<(), InvariantViolated> {
        self.inner.invariant()?;
        let Some(shared) = &self.shared else { return Ok(()) };
        if shared.stage == Stage::Alone && shared.register.iter().any(|entry| entry.units > 0) {
            return Err(InvariantViolated("exclusive holder although a site is registered"));
        }
        if !shared.recalled && !shared.recallers.is_empty() {
            return Err(InvariantViolated(
                "a recaller waits for an answer of a registration that is not recalled",
            ));
        }
        Ok(())
    }
}

impl<P: MutualExclusion> Validate for Gate<P> {
    fn is_well_formed(message: &Self::Message, sites: usize) -> bool {
        let inner = if let Content::Inner(message) = &message.content {
            P::is_well_formed(message, sites)
        } else {
            true
        };
        inner && message.register.is_plausible(sites)
    }

    fn is_expected(&self, from: SiteId, message: &Self::Message) -> bool {
        if let Content::Inner(message) = &message.content {
            self.inner.is_expected(from, message)
        } else {
            true
        }
    }
}
