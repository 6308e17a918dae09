//! # Neilsen and Mizuno's algorithm
//!
//! Mitchell L. Neilsen, Masaaki Mizuno: *A DAG-Based Algorithm for Distributed Mutual Exclusion*. International
//! Conference on Distributed Computing Systems 1991, pages 354–360.
//!
//! **Idea.** Sites form a tree, as in Raymond's algorithm. A request follows the edges to the last requester and
//! reverses them. But the privilege does not go back along the tree: it is sent directly to the requester.
//!
//! **Assumes** reliable channels in any order; no crashes.
//!
//! **Cost.** On a star 3 messages at most: the same as a coordinator, at half its synchronization delay, T. Three
//! variables per site.
//!
//! **Pitfalls.** An edge is reversed towards the *neighbour* from which a request came, not towards its origin.

use crate::mutex::{Channels, Cost, Family, list};
use crate::settings::{OptionsError, Setting, Settings};
use crate::tree::Tree;
use crate::{
    About, ApplicationInput, Configure, Entered, Expected, Field, Inspect, InvariantViolated, Load,
    MessageKind, MessageKinds, MutualExclusion, Never, Out, PaperFigures, Phase, Protocol, Setup, SiteId,
    Validate,
};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A message between sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// This site requests the privilege.
    Request(SiteId),
    /// The privilege. Its holder may enter.
    Privilege,
}

impl MessageKinds for Message {
    const KINDS: &'static [MessageKind] = &[MessageKind::enter("REQUEST"), MessageKind::enter("PRIVILEGE")];

    fn kind(&self) -> usize {
        match self {
            Self::Request(_) => 0,
            Self::Privilege => 1,
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(site) => write!(f, "REQUEST({site})"),
            Self::Privilege => f.write_str("PRIVILEGE"),
        }
    }
}

crate::rules! {
    /// The rules of the algorithm.
    pub enum Rule {
        /// The site is no sink.
        Asks: "sends its request along the edge to the last requester, and becomes the last one itself",
        /// The privilege is here.
        Enters: "has the privilege: it enters",
        /// The site is no sink.
        Forwards: "passes the request on, and points its edge to where it came from",
        /// The site is a sink with the privilege, not inside.
        HandsOver: "has the privilege and does not need it: it sends it to the requester",
        /// The site is a sink that waits or is inside.
        Follows: "requested last itself: the requester follows it",
        /// The site leaves.
        PassesOn: "sends the privilege to the one that follows",
        /// The site leaves.
        Keeps: "keeps the privilege: no site follows",
    }
}

/// One site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NeilsenMizuno {
    me: SiteId,
    phase: Phase,
    /// The paper's HOLDING: the privilege is here and not in use.
    holding: bool,
    /// The paper's NEXT: the neighbour on the path to the last requester; `None` for a sink.
    next: Option<SiteId>,
    /// The paper's FOLLOW: the site that gets the privilege after this one.
    follow: Option<SiteId>,
}

impl NeilsenMizuno {
    fn enter(&mut self, out: &mut Out<Self>) {
        out.rule(Rule::Enters);
        self.holding = false;
        self.phase = Phase::Inside;
        out.output(Entered);
    }

    fn request(&mut self, neighbour: SiteId, asker: SiteId, out: &mut Out<Self>) {
        match self.next {
            Some(next) => {
                out.rule(Rule::Forwards);
                out.send(next, Message::Request(asker));
            }
            None if self.holding => {
                out.rule(Rule::HandsOver);
                self.holding = false;
                out.send(asker, Message::Privilege);
            }
            None => {
                out.rule(Rule::Follows);
                self.follow = Some(asker);
            }
        }
        self.next = Some(neighbour);
    }
}

impl Protocol for NeilsenMizuno {
    type Input = ApplicationInput;
    type Message = Message;
    type Output = Entered;
    type Timer = Never;
    type Rule = Rule;

    fn input(&mut self, input: ApplicationInput, out: &mut Out<Self>) {
        match input {
            ApplicationInput::Request(_) => match self.next.take() {
                None => self.enter(out),
                Some(next) => {
                    out.rule(Rule::Asks);
                    self.phase = Phase::Waiting;
                    out.send(next, Message::Request(self.me));
                }
            },
            ApplicationInput::Release => {
                self.phase = Phase::Idle;
                match self.follow.take() {
                    Some(follow) => {
                        out.rule(Rule::PassesOn);
                        out.send(follow, Message::Privilege);
                    }
                    None => {
                        out.rule(Rule::Keeps);
                        self.holding = true;
                    }
                }
            }
        }
    }

    fn message(&mut self, from: SiteId, message: Message, out: &mut Out<Self>) {
        match message {
            Message::Request(asker) => self.request(from, asker, out),
            Message::Privilege => self.enter(out),
        }
    }

    fn timer(&mut self, timer: Never, _out: &mut Out<Self>) {
        match timer {}
    }

    fn fields(&self) -> Vec<Field> {
        vec![
            Field::new("state", self.phase),
            Field::new("HOLDING", self.holding),
            Field::new("NEXT", list(self.next, "nobody")),
            Field::new("FOLLOW", list(self.follow, "nobody")),
        ]
    }

    fn points_to(&self) -> Option<SiteId> {
        self.next
    }
}

impl MutualExclusion for NeilsenMizuno {
    const ABOUT: About = About {
        slug: "neilsen-mizuno",
        title: "Neilsen and Mizuno's DAG algorithm",
        family: Family::Token,
        paper: "Neilsen and Mizuno, A DAG-Based Algorithm for Distributed Mutual Exclusion, ICDCS 1991",
        idea: "A request follows a tree to the last requester; the privilege is sent directly to the new one.",
        channels: Channels::Any,
        perpetual: false,
        deadlock_free: true,
        cost: Cost {
            low: "on a star (N−1)(3N−2)/N²",
            high: "on a star 3−2/N",
            sync_delay: "T",
            client_delay: "T per message",
        },
        crash: "of the site with the privilege, or of one on the path of a request: the sites behind it wait for ever",
        settings: &[Setting {
            name: "tree",
            values: Tree::FORMS,
            default: "star",
            help: "how the sites are connected",
        }],
    };

    fn start(me: SiteId, setup: &Setup<Tree>, _out: &mut Out<Self>) -> Self {
        let root = setup.token_site();
        Self {
            me,
            phase: setup.phase_of(me),
            holding: me == root && setup.holder().is_none(),
            next: setup.options.towards(root, setup.sites)[me.index()],
            follow: None,
        }
    }

    fn is_wanted(&self) -> bool {
        self.follow.is_some()
    }
}

impl Configure for NeilsenMizuno {
    type Options = Tree;

    fn options(settings: &mut Settings, sites: usize) -> Result<Tree, OptionsError> {
        let text = settings.take("tree", String::from("star"), |text| Some(text.into()), Tree::FORMS)?;
        Ok(Tree::parse(&text, sites)?)
    }
}

impl PaperFigures for NeilsenMizuno {
    fn most_messages(_sites: usize, tree: &Tree) -> Option<usize> {
        // The longest path of a star has two edges, and the privilege comes back in one message.
        (*tree == Tree::Star).then_some(3)
    }

    fn expected(load: Load, sites: usize, tree: &Tree) -> Expected {
        let n = sites as f64;
        // The request follows the tree, and the privilege comes back in one message, unless it is here already.
        let low = tree.mean_distance(sites) + 1.0 - 1.0 / n;
        let high = (*tree == Tree::Star).then_some(if sites == 1 { 0.0 } else { 3.0 - 2.0 / n });
        Expected {
            messages_per_entry: if load == Load::Low { Some(low) } else { high },
            sync_delay: (sites > 1).then_some(1.0),
            client_delay: Some(low),
            ..Expected::default()
        }
    }
}

impl Inspect for NeilsenMizuno {
    fn tokens(&self) -> u32 {
        (self.holding || self.phase == Phase::Inside).into()
    }

    fn tokens_in(message: &Message) -> u32 {
        (*message == Message::Privilege).into()
    }

    fn invariant(&self) -> Result<(), InvariantViolated> {
        match self.phase {
            Phase::Idle if self.follow.is_some() => {
                Err(InvariantViolated("a site follows one that does not wait"))
            }
            Phase::Idle if self.next.is_none() && !self.holding => {
                Err(InvariantViolated("a sink, idle, and without the privilege"))
            }
            Phase::Inside | Phase::Waiting if self.holding => {
                Err(InvariantViolated("has the privilege unused while it waits or is inside"))
            }
            _ => Ok(()),
        }
    }
}

impl Validate for NeilsenMizuno {
    fn is_well_formed(message: &Message, sites: usize) -> bool {
        !matches!(message, Message::Request(asker) if asker.index() >= sites)
    }

    fn is_expected(&self, _from: SiteId, message: &Message) -> bool {
        // Every path ends at the last requester, so that a request never comes back.
        *message != Message::Request(self.me)
    }
}
