//! Mutual exclusion algorithms as machines of the checker.

use super::entering::no_larger_fence;
use super::machine::{
    Cause, Choice, Effect, Entry, Facts, Fault, Faults, Limits, Machines, Sent, Step, Tallied, Violation,
};
use crate::algorithm::{Actions, Configured, Event, Message, State, Timer};
use crate::property::{Names, Property};
use lockkeeper_core::protocol::TimerChange;
use lockkeeper_core::{ApplicationInput, Entered, Holder, Mode, Phase, Setup, Sharing, SiteId, Stamp};
use smallvec::SmallVec;
use std::sync::Arc;

/// The bounds of runs with unlimited requests. Beyond them, undelivered messages only pile up.
pub const FOREVER: Limits = Limits { in_flight: 3, number: 24 };

/// A system of sites that run one algorithm.
#[derive(Clone)]
pub struct Sites {
    /// The algorithm.
    pub algorithm: Arc<dyn Configured>,
    /// The initial configuration.
    pub setup: Setup<()>,
    /// Number of requests of each site. `None`: without limit.
    pub requests: Option<u8>,
    /// Whether the channels are FIFO.
    pub fifo: bool,
    /// The maximum number of faults of each kind in a run.
    pub faults: Faults,
    /// The only property to check. `None`: all properties.
    pub only: Option<Property>,
}

/// The local state of one site in the checker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Local {
    /// The site; `None` after a crash.
    site: Option<Arc<dyn State>>,
    phase: Phase,
    /// Number of its requests so far, if requests are limited.
    asked: u8,
    mode: Mode,
    /// The largest fence that the site knows. Fences grow without bound, but only their order relative to the
    /// latest entry that excluded all others decides whether they rise. That entry counts as 0, and
    /// everything before it as -1.
    fence: i8,
    /// Number of its restarts.
    incarnation: u8,
    timers: SmallVec<[Timer; 1]>,
    suspected: u32,
}

/// A message in the checker, with the sender's fence clock.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Envelope {
    /// The message.
    pub message: Message,
    /// The sender's fence, relative to the latest entry that excluded all others.
    pub fence: i8,
}

/// A step that a site can take without receiving a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnStep {
    /// Request to enter, in a mode.
    Request(Mode),
    /// Leave the critical section.
    Exit,
    /// Crash.
    Crash,
    /// Start again with an initial state after a crash.
    Restart,
    /// Lose its state while idle.
    Forget,
    /// Suspect another site.
    Suspect(SiteId),
    /// Handle the expiry of a timer, by its index.
    Timer(usize),
}

impl OwnStep {
    fn code(self) -> u32 {
        match self {
            Self::Request(Mode::Exclusive) => 0,
            Self::Request(Mode::Shared) => 5,
            Self::Exit => 1,
            Self::Crash => 2,
            Self::Restart => 3,
            Self::Forget => 4,
            Self::Suspect(site) => 0x100 + site.0,
            Self::Timer(which) => 0x10_000 + which as u32,
        }
    }

    /// The step with this code.
    pub fn of(code: u32) -> Self {
        match code {
            0 => Self::Request(Mode::Exclusive),
            5 => Self::Request(Mode::Shared),
            1 => Self::Exit,
            2 => Self::Crash,
            3 => Self::Restart,
            4 => Self::Forget,
            0x100..0x10_000 => Self::Suspect(SiteId(code - 0x100)),
            _ => Self::Timer(code as usize - 0x10_000),
        }
    }
}

impl Sites {
    /// A site in its initial state.
    fn new_site(&self, id: SiteId) -> (Local, Actions<Entered>) {
        let (site, actions) = self.algorithm.start(id, 0, &self.setup);
        let mut local = Local {
            site: Some(site),
            phase: self.setup.phase_of(id),
            asked: 0,
            mode: self.setup.mode_of(id).unwrap_or_default(),
            fence: self.first_fence(id),
            incarnation: 0,
            timers: SmallVec::new(),
            suspected: 0,
        };
        local.arm(&actions);
        (local, actions)
    }

    /// A holder at the start counts as an entry before all others.
    fn first_fence(&self, id: SiteId) -> i8 {
        let excluded = |holder: &Holder| self.outdates(holder.mode);
        match self.setup.mode_of(id) {
            Some(mode) => i8::from(!self.outdates(mode)),
            None => -i8::from(self.setup.holders.iter().any(excluded)),
        }
    }

    /// Whether an entry in this mode excludes all others.
    fn outdates(&self, mode: Mode) -> bool {
        self.sharing().conflict(mode, Mode::Shared)
    }

    /// A site that starts again with an initial state, as [`World::restart`](crate::simulator::world::World::restart)
    /// does it.
    fn made_anew(&self, id: SiteId, asked: u8, incarnation: u8) -> (Local, Actions<Entered>) {
        let (site, actions) = self.algorithm.start(id, incarnation.into(), &self.setup);
        let mut local = Local {
            site: Some(site),
            phase: Phase::Idle,
            asked,
            mode: Mode::default(),
            fence: -1,
            incarnation,
            timers: SmallVec::new(),
            suspected: 0,
        };
        local.arm(&actions);
        (local, actions)
    }

    fn own(&self, who: usize, local: &mut Local, own: OwnStep) -> Actions<Entered> {
        let me = SiteId::new(who);
        let processes = self.machines();
        match own {
            OwnStep::Crash => {
                local.site = None;
                local.phase = Phase::Idle;
                local.fence = -1;
                local.timers.clear();
                Actions::none()
            }
            OwnStep::Restart | OwnStep::Forget => {
                let actions;
                (*local, actions) = self.made_anew(me, local.asked, local.incarnation + 1);
                actions
            }
            OwnStep::Request(mode) => {
                local.phase = Phase::Waiting;
                local.mode = mode;
                local.asked += u8::from(self.requests.is_some());
                local.step(processes, &Event::Input(ApplicationInput::Request(mode)))
            }
            OwnStep::Exit => {
                local.phase = Phase::Idle;
                local.mode = Mode::Exclusive;
                local.step(processes, &Event::Input(ApplicationInput::Release))
            }
            OwnStep::Suspect(other) => {
                let before = local.site.clone();
                let actions = local.step(processes, &Event::Suspect(other));
                let ignored = before == local.site && actions.sends.is_empty() && actions.outputs.is_empty();
                if !ignored {
                    local.suspected |= 1 << other.index();
                }
                actions
            }
            OwnStep::Timer(which) => {
                let timer = local.timers.remove(which);
                local.step(processes, &Event::Timer(timer))
            }
        }
    }
}

impl Local {
    /// A step of the algorithm. A crashed site does nothing.
    fn step(&mut self, processes: usize, event: &Event<ApplicationInput>) -> Actions<Entered> {
        let Some(site) = &self.site else { return Actions::none() };
        let (after, actions) = site.step(processes, event);
        self.site = Some(after);
        actions
    }

    fn arm(&mut self, actions: &Actions<Entered>) {
        for change in &actions.timers {
            let (TimerChange::Arm { timer, .. } | TimerChange::Disarm { timer }) = change;
            self.timers.retain(|armed| armed != timer);
            if matches!(change, TimerChange::Arm { .. }) {
                self.timers.push(timer.clone());
            }
        }
        self.timers.sort();
    }

    /// Records the effects of a step other than its messages: updates timers, records entries, checks the
    /// site's invariant.
    fn after(&mut self, me: SiteId, sharing: Sharing, actions: &Actions<Entered>, effect: &mut Effect) {
        self.arm(actions);
        if actions.raises_fence {
            // The site continues after another that may have entered unobserved, and raises its fences above
            // that one's.
            self.fence = self.fence.max(0);
            effect.skipped_fences = true;
        }
        for rule in &actions.rules {
            effect.rules |= 1 << rule;
        }
        let wrong = |property, what: String| Some(Violation { property, sites: vec![me], what });
        for _ in &actions.outputs {
            if self.phase != Phase::Waiting {
                effect.wrong = wrong(Property::Invariant, format!("{me} enters without a request"));
            } else if self.fence < 0 {
                effect.wrong = Some(no_larger_fence(me));
            }
            self.phase = Phase::Inside;
            effect.entered = Some(Entry { mode: self.mode, fence: self.fence });
            // An entry that excludes all others is the new reference point, 0. A reader gets a fence above the
            // largest that it knew: after a writer (0), the first reader has 1, and one that knows of it 2.
            if sharing.conflict(self.mode, Mode::Shared) {
                self.fence = 0;
            } else if sharing.conflict(self.mode, Mode::Exclusive) {
                self.fence = self.fence.saturating_add(1);
            }
        }
        if effect.wrong.is_none()
            && let Some(Err(broken)) = self.site.as_ref().map(|site| site.invariant())
        {
            effect.wrong = wrong(Property::Invariant, format!("{me}: {broken}"));
        }
    }
}

impl Machines for Sites {
    type Local = Local;
    type Envelope = Envelope;

    fn machines(&self) -> usize {
        self.setup.sites + self.algorithm.helpers()
    }

    fn fifo(&self) -> bool {
        self.fifo
    }

    fn faults(&self) -> Faults {
        self.faults
    }

    fn only(&self) -> Option<Property> {
        self.only
    }

    fn sharing(&self) -> Sharing {
        self.algorithm.sharing()
    }

    fn tallied(&self) -> Tallied {
        Tallied {
            messages: self.requests.is_some() && !self.algorithm.algorithm().about().perpetual,
            bypass: true,
        }
    }

    fn start(&self) -> (Vec<Local>, Vec<Sent<Envelope>>) {
        let mut sends = Vec::new();
        let locals = (0..self.machines()).map(|from| {
            let (local, actions) = self.new_site(SiteId::new(from));
            sends.extend(actions.sends.into_iter().map(|(to, message)| Sent {
                from,
                to: to.index(),
                envelope: Envelope { message, fence: local.fence },
            }));
            local
        });
        (locals.collect(), sends)
    }

    fn choices(&self, who: usize, local: &Local) -> SmallVec<[Choice; 4]> {
        let mut choices = SmallVec::new();
        let mut may = |own: OwnStep, fault: Option<Fault>| {
            let free = matches!(own, OwnStep::Request(_));
            choices.push(Choice { fault, free, ..Choice::plain(own.code()) });
        };
        if local.site.is_none() {
            may(OwnStep::Restart, Some(Fault::Restart));
            return choices;
        }
        let may_ask = who < self.setup.sites && self.requests.is_none_or(|most| local.asked < most);
        match local.phase {
            Phase::Idle if may_ask => {
                let sharing = self.sharing();
                for mode in Mode::ALL.into_iter().filter(|&mode| sharing.knows(mode)) {
                    may(OwnStep::Request(mode), None);
                }
            }
            Phase::Inside => may(OwnStep::Exit, None),
            _ => {}
        }
        for which in 0..local.timers.len() {
            may(OwnStep::Timer(which), None);
        }
        may(OwnStep::Crash, Some(Fault::Crash));
        if local.phase == Phase::Idle {
            may(OwnStep::Forget, Some(Fault::Forget));
        }
        for other in (0..self.machines()).filter(|&other| other != who && local.suspected >> other & 1 == 0) {
            let code = OwnStep::Suspect(SiteId::new(other)).code();
            choices.push(Choice { suspects: Some(other), ..Choice::plain(code) });
        }
        choices
    }

    fn step(&self, who: usize, local: &mut Local, cause: Cause<'_, Envelope>) -> Step<Envelope> {
        let mut effect = Effect::default();
        let actions = match cause {
            Cause::Choice(code) => {
                let own = OwnStep::of(code);
                effect.asked = matches!(own, OwnStep::Request(_));
                effect.exited = own == OwnStep::Exit;
                effect.crashed = own == OwnStep::Crash;
                self.own(who, local, own)
            }
            Cause::Message(from, envelope) => {
                local.fence = local.fence.max(envelope.fence);
                local.step(self.machines(), &Event::Message(SiteId::new(from), envelope.message.clone()))
            }
        };
        local.after(SiteId::new(who), self.sharing(), &actions, &mut effect);
        let fence = local.fence;
        let sends = actions.sends.into_iter().map(|(to, message)| (to.index(), Envelope { message, fence }));
        Step { sends: sends.collect(), effect }
    }

    fn facts(&self, _who: usize, local: &Local) -> Facts {
        let waiting = local.phase == Phase::Waiting;
        let served = local.asked - u8::from(waiting && self.requests.is_some());
        let site = local.site.as_ref();
        let ordered = self.algorithm.algorithm().in_timestamp_order();
        Facts {
            waiting,
            inside: local.phase == Phase::Inside,
            mode: local.mode,
            fence: local.fence,
            down: site.is_none(),
            timestamp: site.filter(|_| ordered).and_then(|site| site.timestamp()),
            tokens: site.map_or(0, |site| site.tokens()),
            entries: u32::from(served),
        }
    }

    fn scales(&self) -> usize {
        let algorithm = self.algorithm.algorithm();
        // With a limited number of requests, only the numbers of an algorithm that never rests grow without bound.
        let unbounded = self.requests.is_none() || algorithm.about().perpetual;
        if unbounded { algorithm.scales(self.setup.sites) } else { 0 }
    }

    fn numbers(&self, local: &mut Local, visit: &mut dyn FnMut(usize, &mut u64)) {
        if let Some(site) = &mut local.site {
            *site = site.numbers(visit);
        }
    }

    fn numbers_in(&self, from: usize, envelope: &mut Envelope, visit: &mut dyn FnMut(usize, &mut u64)) {
        envelope.message = self.algorithm.numbers_in(SiteId::new(from), &envelope.message, visit);
    }

    fn stamps(&self, local: &mut Local, visit: &mut dyn FnMut(Stamp<'_>)) {
        if let Some(site) = &mut local.site {
            *site = site.stamps(visit);
        }
    }

    fn stamps_in(&self, from: usize, envelope: &mut Envelope, visit: &mut dyn FnMut(Stamp<'_>)) {
        envelope.message = self.algorithm.stamps_in(SiteId::new(from), &envelope.message, visit);
    }

    fn rename(&self, local: &mut Local, to: &dyn Fn(SiteId) -> SiteId) {
        if let Some(site) = &mut local.site {
            *site = site.renamed(to);
        }
    }

    fn settle(&self, local: &mut Local) {
        if let Some(site) = &mut local.site
            && self.requests.is_some_and(|most| local.asked >= most)
        {
            *site = site.without_further_requests();
        }
    }

    fn limits(&self) -> Option<Limits> {
        self.requests.is_none().then_some(FOREVER)
    }

    fn tokens_in(&self, envelope: &Envelope) -> u32 {
        self.algorithm.tokens_in(&envelope.message)
    }

    fn text(&self, envelope: &Envelope) -> String {
        envelope.message.to_string()
    }

    fn name(&self, who: usize) -> String {
        Names { sites: self.setup.sites }.of(SiteId::new(who)).to_string()
    }

    /// The step as a line of a scenario.
    fn choice_text(&self, who: usize, code: u32) -> String {
        let site = self.name(who);
        match OwnStep::of(code) {
            OwnStep::Request(Mode::Exclusive) => format!("{site} requests"),
            OwnStep::Request(Mode::Shared) => format!("{site} requests shared"),
            OwnStep::Exit => format!("{site} exits"),
            OwnStep::Crash => format!("crash {site}"),
            OwnStep::Restart => format!("recover {site}"),
            OwnStep::Forget => format!("{site} forgets"),
            OwnStep::Suspect(other) => format!("{site} suspects {}", self.name(other.index())),
            OwnStep::Timer(which) => format!("{site} wakes {}", which + 1),
        }
    }

    fn kind(&self, envelope: &Envelope) -> usize {
        envelope.message.kind()
    }

    fn outdate(&self, local: &mut Local) {
        local.fence = -1;
    }

    fn outdate_envelope(&self, envelope: &mut Envelope) {
        envelope.fence = -1;
    }
}
