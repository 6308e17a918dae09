//! One site without its type: the checker stores its state and steps it alone, and traces show it.
//!
//! A state never changes: a step makes a new one. So the copies that a search makes share it.

use super::value::{Message, Timer};
use lockkeeper_core::protocol::TimerChange;
use lockkeeper_core::{
    ApplicationInput, Entered, Field, InvariantViolated, MessageKinds, MutualExclusion, Out, Protocol, Site,
    SiteId, Stamp, Timestamp,
};
use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The state of one site: the algorithm's state and the fence clock.
pub trait State: Any + Send + Sync {
    /// Whether a site of the same algorithm has the same state.
    fn equals(&self, other: &dyn State) -> bool;

    /// Feeds the algorithm's state to a hasher, without the fence clock.
    fn hash_into(&self, hasher: &mut dyn Hasher);

    /// The state after one step in a system of this many processes, and the actions of the step.
    fn step(&self, processes: usize, event: &Event<ApplicationInput>) -> (Arc<dyn State>, Actions<Entered>);

    /// The state under the paper's names; see [`Protocol::fields`].
    fn fields(&self) -> Vec<Field>;

    /// The target of the site's pointer; see [`Protocol::points_to`].
    fn points_to(&self) -> Option<SiteId>;

    /// The site's quorum; see [`Protocol::quorum`].
    fn quorum(&self) -> &[SiteId];

    /// The sites that it waits for; see [`Protocol::waits_for`].
    fn waits_for(&self) -> Vec<SiteId>;

    /// The timestamp of its request; see [`lockkeeper_core::Inspect::timestamp`].
    fn timestamp(&self) -> Option<Timestamp>;

    /// Number of tokens at the site.
    fn tokens(&self) -> u32;

    /// Checks the algorithm's own invariant.
    fn invariant(&self) -> Result<(), InvariantViolated>;

    /// The state after a visit of its relative integers; see [`lockkeeper_core::Inspect::numbers`].
    fn numbers(&self, visit: &mut dyn FnMut(usize, &mut u64)) -> Arc<dyn State>;

    /// The state after a visit of its times and tickets; see [`lockkeeper_core::Inspect::stamps`].
    fn stamps(&self, visit: &mut dyn FnMut(Stamp<'_>)) -> Arc<dyn State>;

    /// The state with other site numbers; see [`lockkeeper_core::Inspect::rename`].
    fn renamed(&self, to: &dyn Fn(SiteId) -> SiteId) -> Arc<dyn State>;

    /// The state of a site that makes no further request; see
    /// [`lockkeeper_core::Inspect::make_no_further_request`].
    fn without_further_requests(&self) -> Arc<dyn State>;

    /// The fence clock.
    fn fence(&self) -> u64;
}

/// The cause of a step.
#[derive(Clone, Debug)]
pub enum Event<I> {
    /// The application has a request.
    Input(I),
    /// A message arrives from a site. It brings no fence clock: the checker counts fences itself.
    Message(SiteId, Message),
    /// A timer expires.
    Timer(Timer),
    /// The failure detector suspects a site.
    Suspect(SiteId),
}

/// The actions of one step.
#[derive(Clone, Debug)]
pub struct Actions<O> {
    /// Messages for other sites, in the order sent.
    pub sends: Vec<(SiteId, Message)>,
    /// Timers armed and disarmed.
    pub timers: Vec<TimerChange<Timer>>,
    /// Results for the application.
    pub outputs: Vec<O>,
    /// The indices of the rules that fired.
    pub rules: Vec<usize>,
    /// Whether the site raises its fences above those of a site that may have entered unobserved.
    pub raises_fence: bool,
}

impl<O> Actions<O> {
    /// The actions of a step that does nothing.
    pub fn none() -> Self {
        Self {
            sends: Vec::new(),
            timers: Vec::new(),
            outputs: Vec::new(),
            rules: Vec::new(),
            raises_fence: false,
        }
    }
}

/// The actions that a step has written.
pub(crate) fn actions<P: Protocol>(out: &mut Out<P>) -> Actions<P::Output> {
    Actions {
        sends: erased(&mut out.sends),
        timers: erased_timers(&mut out.timers),
        outputs: std::mem::take(&mut out.outputs),
        rules: std::mem::take(&mut out.rules),
        raises_fence: out.skipped_fences > 0 || out.fence_floor > 0,
    }
}

fn erased<M>(sends: &mut Vec<(SiteId, M)>) -> Vec<(SiteId, Message)>
where
    M: lockkeeper_core::Value + MessageKinds + fmt::Display,
{
    sends.drain(..).map(|(to, message)| (to, Message::new(message))).collect()
}

fn erased_timers<T: lockkeeper_core::Value>(changes: &mut Vec<TimerChange<T>>) -> Vec<TimerChange<Timer>> {
    let erase = |change| match change {
        TimerChange::Arm { timer, after_milli_t } => {
            TimerChange::Arm { timer: Timer::new(timer), after_milli_t }
        }
        TimerChange::Disarm { timer } => TimerChange::Disarm { timer: Timer::new(timer) },
    };
    changes.drain(..).map(erase).collect()
}

/// A site after one step, and the actions of the step.
pub(crate) fn stepped<P: Protocol>(
    site: &Site<P>,
    processes: usize,
    event: &Event<P::Input>,
) -> (Site<P>, Actions<P::Output>) {
    let mut site = site.clone();
    let mut out = Out::new(processes);
    match event {
        Event::Input(input) => site.input(input.clone(), &mut out),
        Event::Message(from, message) => {
            site.deliver(*from, 0, message.typed::<P::Message>().clone(), &mut out);
        }
        Event::Timer(timer) => site.timer(timer.typed::<P::Timer>().clone(), &mut out),
        Event::Suspect(suspect) => site.suspect(*suspect, &mut out),
    }
    (site, actions(&mut out))
}

impl<P: MutualExclusion> State for Site<P> {
    fn equals(&self, other: &dyn State) -> bool {
        let other: &dyn Any = other;
        other.downcast_ref() == Some(self)
    }

    fn hash_into(&self, mut hasher: &mut dyn Hasher) {
        self.protocol().hash(&mut hasher);
    }

    fn step(&self, processes: usize, event: &Event<ApplicationInput>) -> (Arc<dyn State>, Actions<Entered>) {
        let (site, actions) = stepped(self, processes, event);
        (Arc::new(site), actions)
    }

    fn fields(&self) -> Vec<Field> {
        self.protocol().fields()
    }

    fn points_to(&self) -> Option<SiteId> {
        self.protocol().points_to()
    }

    fn quorum(&self) -> &[SiteId] {
        self.protocol().quorum()
    }

    fn waits_for(&self) -> Vec<SiteId> {
        self.protocol().waits_for()
    }

    fn timestamp(&self) -> Option<Timestamp> {
        self.protocol().timestamp()
    }

    fn tokens(&self) -> u32 {
        self.protocol().tokens()
    }

    fn invariant(&self) -> Result<(), InvariantViolated> {
        self.protocol().invariant()
    }

    fn numbers(&self, visit: &mut dyn FnMut(usize, &mut u64)) -> Arc<dyn State> {
        let mut site = self.clone();
        site.protocol_mut().numbers(visit);
        Arc::new(site)
    }

    fn stamps(&self, visit: &mut dyn FnMut(Stamp<'_>)) -> Arc<dyn State> {
        let mut site = self.clone();
        site.protocol_mut().stamps(visit);
        Arc::new(site)
    }

    fn renamed(&self, to: &dyn Fn(SiteId) -> SiteId) -> Arc<dyn State> {
        let mut site = self.clone();
        site.rename(to);
        Arc::new(site)
    }

    fn without_further_requests(&self) -> Arc<dyn State> {
        let mut site = self.clone();
        site.protocol_mut().make_no_further_request();
        Arc::new(site)
    }

    fn fence(&self) -> u64 {
        Site::fence(self)
    }
}

impl PartialEq for dyn State {
    fn eq(&self, other: &Self) -> bool {
        self.equals(other)
    }
}

impl Eq for dyn State {}

impl Hash for dyn State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash_into(state);
    }
}

impl fmt::Debug for dyn State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.fields();
        f.debug_map().entries(fields.iter().map(|field| (field.name, &field.value))).finish()
    }
}
