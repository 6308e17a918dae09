//! The interface between an algorithm and whoever runs it.
//!
//! A [`Protocol`] is one site's half of a distributed algorithm; its value is the site's whole state.
//! Four events can happen to it, one method each, and all it can do in return is to write into an
//! [`Out`]. No method blocks, fails or looks at anything but its arguments.
//!
//! # What a driver must do
//! 1. Call one method per event, one event at a time for each site.
//! 2. After each call, deliver messages that the site sent to itself BEFORE anything else happens at that
//!    site ([`Site`](crate::Site) does this); they are not network messages and are not counted.
//! 3. Then take everything out of the [`Out`]: the messages to the network, the timers, the outputs.
//! 4. Deliver each message at most once, and exactly once where the paper assumes reliable channels. In
//!    order between each pair of sites where [`About::channels`](crate::About) says so.
//! 5. Fire an armed timer once, no earlier than asked; never fire one that was disarmed or armed anew.
//! 6. Not call `input` with a request while an earlier one is unanswered or its grant unreleased: a site
//!    asks once at a time, as in the papers; further requests queue in the driver.

use crate::SiteId;
use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::{Debug, Display};
use core::hash::Hash;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What crosses a boundary: compared and hashed by the checker, encoded by the cluster, printed in traces.
pub trait Value: Clone + Debug + Ord + Hash + Serialize + DeserializeOwned + Send + Sync + 'static {}
impl<T: Clone + Debug + Ord + Hash + Serialize + DeserializeOwned + Send + Sync + 'static> Value for T {}

/// One site's half of one distributed algorithm. `Self` is the site's whole state.
pub trait Protocol: Clone + Debug + Eq + Hash + Send + Sync + 'static {
    /// What the application asks for.
    type Input: Value;
    /// What sites say to each other, under the paper's own names. `Display` writes it as the paper would.
    type Message: Value + Vocabulary + Display;
    /// What the application learns.
    type Output: Value;
    /// What the site wants to be woken for; [`Never`] where the paper has no timeouts.
    type Timer: Value;
    /// The rules of the algorithm, named as they fire.
    type Rule: Rules;

    /// The application asks for something.
    fn input(&mut self, input: Self::Input, out: &mut Out<Self>);

    /// A message arrives.
    fn message(&mut self, from: SiteId, message: Self::Message, out: &mut Out<Self>);

    /// A timer that this site armed has run out.
    fn timer(&mut self, timer: Self::Timer, out: &mut Out<Self>);

    /// The failure detector suspects that `site` has crashed. It may be wrong.
    fn suspect(&mut self, _site: SiteId, _out: &mut Out<Self>) {}

    /// The state in the paper's words, for people.
    fn fields(&self) -> Vec<Field>;

    /// Where the site's pointer of the paper leads, for a drawing of the tree; `None` where there is no tree, and at its
    /// root.
    fn points_to(&self) -> Option<SiteId> {
        None
    }

    /// Whose votes this site needs, where the paper has quorums, for a drawing of them.
    fn quorum(&self) -> &[SiteId] {
        &[]
    }

    /// Whom this site cannot go on without, for the report of a deadlock.
    fn waits_for(&self) -> Vec<SiteId> {
        Vec::new()
    }
}

/// One named part of a site's state, in the paper's words: `queue: (1, S1), (2, S3)`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Field {
    /// What the paper calls it.
    pub name: &'static str,
    /// Its value, written for a person.
    pub value: String,
}

impl Field {
    /// A field with a value that knows how to be read.
    pub fn new(name: &'static str, value: impl ToString) -> Self {
        Self { name, value: value.to_string() }
    }
}

/// The uninhabited type: the timer of a protocol that has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, serde::Deserialize)]
pub enum Never {}

/// The timer of a protocol whose only question to time is whether it has waited too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, serde::Deserialize)]
pub struct Timeout;

/// Why a message is sent: to get somebody in, or to say that somebody is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Asks for or gives the right to enter: REQUEST, REPLY, TOKEN.
    Enter,
    /// Only tells that the critical section is free: RELEASE.
    Exit,
}

/// A message's name in the paper, and what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// The paper's name, in capitals.
    pub name: &'static str,
    /// What it is for.
    pub purpose: Purpose,
}

impl Word {
    /// A message that asks for or gives the right to enter.
    pub const fn enter(name: &'static str) -> Self {
        Self { name, purpose: Purpose::Enter }
    }

    /// A message that only tells of an exit.
    pub const fn exit(name: &'static str) -> Self {
        Self { name, purpose: Purpose::Exit }
    }
}

/// The kinds of messages of a protocol.
pub trait Vocabulary {
    /// Every kind, in the order of the paper.
    const WORDS: &'static [Word];

    /// This message's position in [`Self::WORDS`].
    fn word(&self) -> usize;
}

/// The rules of an algorithm; made by [`rules!`](crate::rules).
pub trait Rules: Copy + Eq + Debug + Send + Sync + 'static {
    /// Every rule, in the order of the paper.
    const ALL: &'static [Self];

    /// What the site does by this rule: the rest of a sentence that starts with the site's name.
    fn sentence(self) -> &'static str;

    /// This rule's position in [`Self::ALL`].
    fn index(self) -> usize;
}

/// Defines the rules of an algorithm. A step names the rules it follows with [`Out::rule`]; traces print
/// their sentences, the checker reports those that never fired.
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
            fn sentence(self) -> &'static str {
                match self { $(Self::$rule => $sentence,)+ }
            }
            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

/// What a step asks of its driver about time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimerChange<T> {
    /// Wake me for this after so long, in units of the mean message delay T. Replaces an earlier one.
    Arm {
        /// What for.
        timer: T,
        /// After how long, in thousandths of T.
        after_milli_t: u64,
    },
    /// Never mind.
    Disarm {
        /// What for.
        timer: T,
    },
}

/// What one step leaves behind. The driver owns it and uses it again for every step, so that steps
/// allocate nothing in the long run.
#[derive(Clone, Debug)]
pub struct Out<P: Protocol> {
    me: SiteId,
    processes: usize,
    /// Whether nobody wants to know which rules fired.
    quiet: bool,
    /// Messages for other sites, in the order sent.
    pub sends: Vec<(SiteId, P::Message)>,
    /// Messages of the site to itself.
    pub local: VecDeque<P::Message>,
    /// What the application learns.
    pub outputs: Vec<P::Output>,
    /// Timers armed and disarmed.
    pub timers: Vec<TimerChange<P::Timer>>,
    /// The rules that fired.
    pub rules: Vec<P::Rule>,
    /// How many fences must not be used, because somebody who cannot be asked any more may have used them.
    pub skipped_fences: u64,
    /// What the fences of later entries must exceed, beside all that is known; see [`Out::raise_fence`].
    pub fence_floor: u64,
}

impl<P: Protocol> Out<P> {
    /// An empty buffer for a system of so many processes.
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
        }
    }

    /// The same for a driver that does not ask which rules fired: nothing is noted of them.
    pub fn quiet(processes: usize) -> Self {
        Self { quiet: true, ..Self::new(processes) }
    }

    /// An empty buffer for a protocol that runs inside this one, at the same site.
    pub fn inner<Q: Protocol>(&self) -> Out<Q> {
        Out { me: self.me, quiet: self.quiet, ..Out::new(self.processes) }
    }

    /// The site that takes this step.
    pub fn me(&self) -> SiteId {
        self.me
    }

    /// Makes the buffer ready for a step of the given site. For drivers.
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

    /// Sends a message. One to the site itself arrives at once, before the site's next event.
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
        let me = self.me;
        SiteId::all(self.processes).filter(move |&site| site != me)
    }

    /// Sends a message to every other process.
    #[inline]
    pub fn broadcast(&mut self, message: P::Message) {
        let others = self.others();
        self.sends.extend(others.map(|to| (to, message.clone())));
    }

    /// Tells the application something.
    #[inline]
    pub fn output(&mut self, output: P::Output) {
        self.outputs.push(output);
    }

    /// Asks to be woken after so many thousandths of the mean message delay T.
    pub fn arm(&mut self, timer: P::Timer, after_milli_t: u64) {
        self.timers.push(TimerChange::Arm { timer, after_milli_t });
    }

    /// Takes back a wish to be woken.
    pub fn disarm(&mut self, timer: P::Timer) {
        self.timers.push(TimerChange::Disarm { timer });
    }

    /// Leaves out the next fence: a site that has died may have entered with it, and nobody else knows.
    pub fn skip_fence(&mut self) {
        self.skipped_fences += 1;
    }

    /// Makes the fences of later entries exceed this number. For a protocol that goes on without a crashed holder,
    /// from whose last entry nothing has travelled: who numbers such takeovers can keep their fences apart.
    pub fn raise_fence(&mut self, floor: u64) {
        self.fence_floor = floor;
    }

    /// Names the rule that this step follows.
    #[inline]
    pub fn rule(&mut self, rule: P::Rule) {
        if !self.quiet {
            self.rules.push(rule);
        }
    }
}
