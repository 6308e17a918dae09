//! # Raymond's tree algorithm
//!
//! Kerry Raymond: *A Tree-Based Algorithm for Distributed Mutual Exclusion*. ACM Transactions on Computer Systems 7(1),
//! 1989, pages 61–77.
//!
//! **Idea.** Sites form a tree, and each points to the neighbour on whose side the privilege is. A site sends that
//! neighbour one REQUEST, for itself and for all neighbours that asked it. The privilege comes back along the same
//! path, and the pointers are reversed.
//!
//! **Assumes** reliable channels in any order; no crashes.
//!
//! **Cost.** Twice the distance to the privilege: on a star 4(N−1)²/N² on average at low load. At high load about 4
//! messages for every N.
//!
//! **Pitfalls.** When the privilege leaves, ASKED must be reset, and if the queue is not empty a REQUEST follows
//! directly behind it. A site that serves itself first starves its neighbours.

use crate::mutex::{Channels, Cost, Family, list};
use crate::settings::{OptionsError, Setting, Settings};
use crate::tree::Tree;
use crate::{
    About, ApplicationInput, Configure, Entered, Expected, Field, Inspect, InvariantViolated, Load,
    MessageKind, MessageKinds, MutualExclusion, Never, Out, PaperFigures, Phase, Protocol, Setup, SiteId,
    Validate,
};
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A message between neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// The sender requests the privilege.
    Request,
    /// The sender passes the privilege.
    Privilege,
}

impl MessageKinds for Message {
    const KINDS: &'static [MessageKind] = &[MessageKind::enter("REQUEST"), MessageKind::enter("PRIVILEGE")];

    fn kind(&self) -> usize {
        *self as usize
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::KINDS[self.kind()].name)
    }
}

crate::rules! {
    /// The rules of the algorithm.
    pub enum Rule {
        /// The paper's procedure MAKE_REQUEST.
        Asks: "asks the neighbour on the side of the privilege",
        /// MAKE_REQUEST has been called before.
        HasAsked: "has asked already and queues the request",
        /// Procedure ASSIGN_PRIVILEGE, for itself.
        Enters: "has the privilege and is first in its own queue: it enters",
        /// Procedure ASSIGN_PRIVILEGE, for a neighbour.
        Passes: "sends the privilege to the first in its queue and points there",
    }
}

/// One site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Raymond {
    me: SiteId,
    phase: Phase,
    /// The paper's HOLDER: the neighbour on the side of the privilege, or the site itself.
    holder: SiteId,
    /// The paper's REQUEST_Q: neighbours, and the site itself.
    queue: VecDeque<SiteId>,
    asked: bool,
}

impl Raymond {
    fn assign_privilege(&mut self, out: &mut Out<Self>) {
        if self.holder != self.me || self.phase == Phase::Inside {
            return;
        }
        let Some(next) = self.queue.pop_front() else { return };
        self.holder = next;
        self.asked = false;
        if next == self.me {
            out.rule(Rule::Enters);
            self.phase = Phase::Inside;
            out.output(Entered);
        } else {
            out.rule(Rule::Passes);
            out.send(next, Message::Privilege);
        }
    }

    fn make_request(&mut self, out: &mut Out<Self>) {
        if self.holder == self.me || self.queue.is_empty() {
            return;
        }
        // Example: the queue of S2 is S3, S2. One REQUEST is sent for both. When the privilege arrives, S2 passes it to
        // S3 and sends REQUEST behind it for itself.
        if self.asked {
            out.rule(Rule::HasAsked);
        } else {
            out.rule(Rule::Asks);
            self.asked = true;
            out.send(self.holder, Message::Request);
        }
    }
}

impl Protocol for Raymond {
    type Input = ApplicationInput;
    type Message = Message;
    type Output = Entered;
    type Timer = Never;
    type Rule = Rule;

    fn input(&mut self, input: ApplicationInput, out: &mut Out<Self>) {
        match input {
            ApplicationInput::Request(_) => {
                self.phase = Phase::Waiting;
                self.queue.push_back(self.me);
            }
            ApplicationInput::Release => self.phase = Phase::Idle,
        }
        self.assign_privilege(out);
        self.make_request(out);
    }

    fn message(&mut self, from: SiteId, message: Message, out: &mut Out<Self>) {
        match message {
            Message::Request => self.queue.push_back(from),
            Message::Privilege => self.holder = self.me,
        }
        self.assign_privilege(out);
        self.make_request(out);
    }

    fn timer(&mut self, timer: Never, _out: &mut Out<Self>) {
        match timer {}
    }

    fn fields(&self) -> Vec<Field> {
        vec![
            Field::new("state", self.phase),
            Field::new("HOLDER", self.holder),
            Field::new("REQUEST_Q", list(&self.queue, "empty")),
            Field::new("ASKED", self.asked),
        ]
    }

    fn points_to(&self) -> Option<SiteId> {
        (self.holder != self.me).then_some(self.holder)
    }

    fn waits_for(&self) -> Vec<SiteId> {
        if self.queue.is_empty() || self.holder == self.me { Vec::new() } else { vec![self.holder] }
    }
}

impl MutualExclusion for Raymond {
    const ABOUT: About = About {
        slug: "raymond",
        title: "Raymond's tree algorithm",
        family: Family::Token,
        paper: "Raymond, A Tree-Based Algorithm for Distributed Mutual Exclusion, ACM TOCS 1989",
        idea: "Each site points to the neighbour on whose side the privilege is, and sends requests only to it.",
        channels: Channels::Any,
        perpetual: false,
        deadlock_free: true,
        cost: Cost {
            low: "2 × mean distance; on a star 4(N−1)²/N²",
            high: "on a star 4(1−1/N)",
            sync_delay: "on a star 2T(1−1/N) at high load",
            client_delay: "2T × mean distance",
        },
        crash: "of the site with the privilege, or of one on the path to it: all sites behind it wait for ever",
        settings: &[Setting {
            name: "tree",
            values: Tree::FORMS,
            default: "star",
            help: "how the sites are connected",
        }],
    };

    fn start(me: SiteId, setup: &Setup<Tree>, _out: &mut Out<Self>) -> Self {
        let towards = setup.options.towards(setup.token_site(), setup.sites);
        Self {
            me,
            phase: setup.phase_of(me),
            holder: towards[me.index()].unwrap_or(me),
            queue: VecDeque::new(),
            asked: false,
        }
    }

    fn is_wanted(&self) -> bool {
        !self.queue.is_empty()
    }
}

impl Configure for Raymond {
    type Options = Tree;

    fn options(settings: &mut Settings, sites: usize) -> Result<Tree, OptionsError> {
        let text = settings.take("tree", String::from("star"), |text| Some(text.into()), Tree::FORMS)?;
        Ok(Tree::parse(&text, sites)?)
    }
}

impl PaperFigures for Raymond {
    fn most_messages(_sites: usize, tree: &Tree) -> Option<usize> {
        // The request and the privilege each follow the tree, and the longest path of a star has two edges.
        (*tree == Tree::Star).then_some(4)
    }

    fn expected(load: Load, sites: usize, tree: &Tree) -> Expected {
        let low = 2.0 * tree.mean_distance(sites);
        // At high load the privilege visits the leaves of a star in turn. Other trees have no formula here.
        let remote = (*tree == Tree::Star).then(|| 1.0 - 1.0 / sites as f64);
        Expected {
            messages_per_entry: if load == Load::Low { Some(low) } else { remote.map(|remote| 4.0 * remote) },
            sync_delay: remote.filter(|_| sites > 1).map(|remote| 2.0 * remote),
            client_delay: Some(low),
            ..Expected::default()
        }
    }
}

impl Inspect for Raymond {
    fn tokens(&self) -> u32 {
        (self.holder == self.me).into()
    }

    fn tokens_in(message: &Message) -> u32 {
        (*message == Message::Privilege).into()
    }

    fn invariant(&self) -> Result<(), InvariantViolated> {
        if self.phase == Phase::Inside && self.holder != self.me {
            return Err(InvariantViolated("inside without the privilege"));
        }
        if self.holder != self.me && !self.queue.is_empty() && !self.asked {
            return Err(InvariantViolated("a request is queued although none was sent"));
        }
        Ok(())
    }
}

impl Validate for Raymond {
    fn is_expected(&self, from: SiteId, message: &Message) -> bool {
        // A neighbour sends one REQUEST and then waits for the privilege.
        *message != Message::Request || !self.queue.contains(&from)
    }
}
