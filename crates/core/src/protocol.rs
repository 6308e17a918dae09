//! The interface between an algorithm and its driver.
//!
//! A [`Protocol`] is one site's part of a distributed algorithm; its value is the complete state of the site. There are
//! four kinds of events, with one method each, and a method acts only by writing into an [`Out`]. No method blocks,
//! fails or reads anything but its arguments.
//!
//! # Duties of a driver
//! 1. Call one method per event, one event at a time for each site.
//! 2. After each call, deliver the messages that the site sent to itself BEFORE any other event of that site
//!    ([`Site`](crate::Site) does this). They are not network messages and are not counted.
//! 3. Then take all actions out of the [`Out`]: the messages for the network, the timers, the outputs.
//! 4. Deliver each message at most once, and exactly once where the paper assumes reliable channels. Deliver in order
//!    between each pair of sites where [`About::channels`](crate::About) requires it.
//! 5. Fire an armed timer once, no earlier than requested. Never fire a timer that was disarmed or armed again.
//! 6. Do not call `input` with a request before the previous request is granted and released: a site has one
//!    request at a time, as in the papers. Further requests queue in the driver.

use crate::SiteId;
use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::{Debug, Display};
use core::hash::Hash;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A value that the checker compares and hashes, the cluster encodes and traces print.
pub trait Value: Clone + Debug + Ord + Hash + Serialize + DeserializeOwned + Send + Sync + 'static {}
impl<T: Clone + Debug + Ord + Hash + Serialize + DeserializeOwned + Send + Sync + 'static> Value for T {}

/// One site's part of a distributed algorithm. `Self` is the complete state of the site.
pub trait Protocol: Clone + Debug + Eq + Hash + Send + Sync + 'static {
    /// A request of the application.
    type Input: Value;
    /// A message between sites, under the name that the paper gives it. `Display` writes it in the paper's notation.
    type Message: Value + MessageKinds + Display;
    /// A result for the application.
    type Output: Value;
    /// A timer of the site; [`Never`] where the paper has no timeouts.
    type Timer: Value;
    /// A rule of the algorithm; a step reports the rules that it applies.
    type Rule: Rules;

    /// Handles a request of the application.
    fn input(&mut self, input: Self::Input, out: &mut Out<Self>);

    /// Handles a message.
    fn message(&mut self, from: SiteId, message: Self::Message, out: &mut Out<Self>);

    /// Handles the expiry of a timer that this site armed.
    fn timer(&mut self, timer: Self::Timer, out: &mut Out<Self>);

    /// Handles a suspicion of the failure detector that `site` has crashed. The detector may be wrong.
    fn suspect(&mut self, _site: SiteId, _out: &mut Out<Self>) {}

    /// The state under the paper's names, for display.
    fn fields(&self) -> Vec<Field>;

    /// The site to which this site's pointer leads, for a drawing of the tree. `None` at the root, and where the
    /// algorithm has no tree.
    fn points_to(&self) -> Option<SiteId> {
        None
    }

    /// The quorum of this site, for a drawing; empty where the algorithm has no quorums.
    fn quorum(&self) -> &[SiteId] {
        &[]
    }

    /// The sites from which this site needs a message before it can continue, for the report of a deadlock.
    fn waits_for(&self) -> Vec<SiteId> {
        Vec::new()
    }
}

/// One named part of a site's state, under the paper's name: `queue: (1, S1), (2, S3)`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Field {
    /// The paper's name.
    pub name: &'static str,
    /// The value, formatted for display.
    pub value: String,
}

impl Field {
    /// A field with the displayed form of `value`.
    pub fn new(name: &'static str, value: impl ToString) -> Self {
        Self { name, value: value.to_string() }
    }
}

/// The uninhabited type: the timer of a protocol that has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, serde::Deserialize)]
pub enum Never {}

/// The timer of a protocol with a single timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, serde::Deserialize)]
pub struct Timeout;

/// The purpose of a message: to bring about an entry or to report an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The message requests or grants an entry: REQUEST, REPLY, TOKEN.
    Enter,
    /// The message only reports that the critical section is free: RELEASE.
    Exit,
}

/// A kind of message: its name in the paper and its purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageKind {
    /// The paper's name, in capitals.
    pub name: &'static str,
    /// The purpose of the message.
    pub purpose: Purpose,
}

impl MessageKind {
    /// A message that requests or grants an entry.
    pub const fn enter(name: &'static str) -> Self {
        Self { name, purpose: Purpose::Enter }
    }

    /// A message that only reports an exit.
    pub const fn exit(name: &'static str) -> Self {
        Self { name, purpose: Purpose::Exit }
    }
}

/// The kinds of messages of a protocol.
pub trait MessageKinds {
    /// Every kind, in the order of the paper.
    const KINDS: &'static [MessageKind];

    /// This message's position in [`Self::KINDS`].
    fn kind(&self) -> usize;
}

/// The rules of an algorithm; made by [`rules!`](crate::rules).
pub trait Rules: Copy + Eq + Debug + Send + Sync + 'static {
    /// Every rule, in the order of the paper.
    const ALL: &'static [Self];

    /// The rule's name, unique in its algorithm: `Asks`.
    fn name(self) -> &'static str;

    /// The effect of this rule: the rest of a sentence that starts with the site's name.
    fn sentence(self) -> &'static str;

    /// This rule's position in [`Self::ALL`].
    fn index(self) -> usize;
}

/// Defines the rules of an algorithm. A step reports the rules that it applies with [`Out::rule`]. Traces print the
/// sentences of the rules; the checker lists those that never fired.
///
/// ```
/// lockkeeper_core::rules! {
///     /// The rules of a toy.
///     pub enum Rule {
///         /// Section 1 of its paper.
///         Asks: "asks the keeper",
///     }
/// }
/// use lockkeeper_core::Rules;
/// assert_eq!(Rule::Asks.name(), "Asks");
/// assert_eq!(Rule::Asks.sentence(), "asks the keeper");
/// ```
#[macro_export]
macro_rules! rules {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$rule_meta:meta])* $rule:ident: $sentence:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$rule_meta])* $rule,)+ }

        impl $crate::Rules for $name {
            const ALL: &'static [Self] = &[$(Self::$rule,)+];
            fn name(self) -> &'static str {
                match self { $(Self::$rule => stringify!($rule),)+ }
            }
            fn sentence(self) -> &'static str {
                match self { $(Self::$rule => $sentence,)+ }
            }
            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

/// A change of a timer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimerChange<T> {
    /// Arm a timer. Replaces an earlier one that is equal.
    Arm {
        /// The timer.
        timer: T,
        /// The delay in thousandths of T, the mean message delay.
        after_milli_t: u64,
    },
    /// Disarm a timer.
    Disarm {
        /// The timer.
        timer: T,
    },
}

/// The actions of one step. The driver owns the buffer and reuses it for every step, so that steps do not allocate once
/// the buffer has grown.
#[derive(Clone, Debug)]
pub struct Out<P: Protocol> {
    me: SiteId,
    processes: usize,
    /// Whether to drop the names of the rules that fire.
    quiet: bool,
    /// Messages for other sites, in the order sent.
    pub sends: Vec<(SiteId, P::Message)>,
    /// Messages of the site to itself.
    pub local: VecDeque<P::Message>,
    /// Results for the application.
    pub outputs: Vec<P::Output>,
    /// Timers armed and disarmed.
    pub timers: Vec<TimerChange<P::Timer>>,
    /// The rules that fired, as positions in [`Rules::ALL`].
    pub rules: Vec<usize>,
    /// The number of fences to skip, because a crashed site may have used them.
    pub skipped_fences: u64,
    /// A lower bound for the fences of later entries, in addition to the fence clock; see [`Out::raise_fence`].
    pub fence_floor: u64,
    /// A lower bound for the times of the site's later requests, set by the driver; see [`Out::known_time`].
    pub known_time: u64,
}

impl<P: Protocol> Out<P> {
    /// An empty buffer for a system of this many processes.
    pub fn new(processes: usize) -> Self {
        Self {
            me: SiteId(0),
            processes,
            quiet: false,
            sends: Vec::new(),
            local: VecDeque::new(),
            outputs: Vec::new(),
            timers: Vec::new(),
            rules: Vec::new(),
            skipped_fences: 0,
            fence_floor: 0,
            known_time: 0,
        }
    }

    /// An empty buffer for a driver that does not need the rules that fired.
    pub fn quiet(processes: usize) -> Self {
        Self { quiet: true, ..Self::new(processes) }
    }

    /// An empty buffer for a protocol that is embedded in this one, at the same site.
    pub fn inner<Q: Protocol>(&self) -> Out<Q> {
        Out { me: self.me, quiet: self.quiet, known_time: self.known_time, ..Out::new(self.processes) }
    }

    /// A time that the driver has learned with the messages of the lock, such as its fence clock; 0 if the driver has no
    /// such clock. A site whose messages carry no times back to it takes later times for its requests, so that it does
    /// not overtake requests of sites that know of more:
    ///
    /// ```text
    /// S1 learns only of the requests of its own quorum: its clock is 3
    /// S9 has seen 900 requests, and waits with (901, S9)
    /// S1 requests with (4, S1), (5, S1), …: 897 times before S9. With the fence clock, 900 by now, it is (901, S1) once.
    /// ```
    pub fn known_time(&self) -> u64 {
        self.known_time
    }

    /// The site that takes this step.
    pub fn me(&self) -> SiteId {
        self.me
    }

    /// Clears the buffer for a step of the given site. Called by drivers.
    pub fn begin(&mut self, me: SiteId) {
        self.me = me;
        self.skipped_fences = 0;
        self.sends.clear();
        self.local.clear();
        self.outputs.clear();
        self.timers.clear();
        self.rules.clear();
        self.fence_floor = 0;
    }

    /// Sends a message. A message to the site itself is delivered before the site's next event.
    #[inline]
    pub fn send(&mut self, to: SiteId, message: P::Message) {
        if to == self.me {
            self.local.push_back(message);
        } else {
            self.sends.push((to, message));
        }
    }

    /// Every process but the one that takes this step.
    pub fn others(&self) -> impl Iterator<Item = SiteId> + use<P> {
        others(self.me, self.processes)
    }

    /// Sends a message to every other process.
    #[inline]
    pub fn broadcast(&mut self, message: P::Message) {
        send_to(others(self.me, self.processes), &message, &mut self.sends);
    }

    /// Emits a result for the application.
    #[inline]
    pub fn output(&mut self, output: P::Output) {
        self.outputs.push(output);
    }

    /// Arms a timer to fire after this many thousandths of T, the mean message delay.
    pub fn arm(&mut self, timer: P::Timer, after_milli_t: u64) {
        self.timers.push(TimerChange::Arm { timer, after_milli_t });
    }

    /// Disarms a timer.
    pub fn disarm(&mut self, timer: P::Timer) {
        self.timers.push(TimerChange::Disarm { timer });
    }

    /// Skips the next fence: a crashed site may have entered with it without any other site knowing.
    pub fn skip_fence(&mut self) {
        self.skipped_fences += 1;
    }

    /// Makes the fences of later entries exceed `floor`. For a protocol that continues without a crashed holder, whose
    /// last fence has reached no other site: if takeovers are numbered, each of them can have its own range of fences.
    pub fn raise_fence(&mut self, floor: u64) {
        self.fence_floor = floor;
    }

    /// Reports the rule that this step applies.
    #[inline]
    pub fn rule(&mut self, rule: P::Rule) {
        if !self.quiet {
            self.rules.push(rule.index());
        }
    }
}

// These two do not depend on the protocol, so that protocols with the same messages share their code.

fn others(me: SiteId, processes: usize) -> impl Iterator<Item = SiteId> {
    SiteId::all(processes).filter(move |&site| site != me)
}

fn send_to<M: Clone>(sites: impl Iterator<Item = SiteId>, message: &M, sends: &mut Vec<(SiteId, M)>) {
    sends.extend(sites.map(|to| (to, message.clone())));
}
