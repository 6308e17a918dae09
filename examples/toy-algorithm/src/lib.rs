//! # The cloakroom: a toy algorithm
//!
//! **Idea.** There is one coat, a token, kept at S1, the cloakroom. A site that requests the critical section asks S1
//! for the coat, wears it inside, and brings it back.
//!
//! **Assumes** reliable channels in any order; no crashes.
//!
//! **Cost.** ASK, COAT and COAT again: 3(1−1/N) messages per entry, 2T(1−1/N) from an exit to the next entry.
//!
//! CONTRIBUTING.md walks through this file.

use lockkeeper_core::mutex::{Channels, Cost, Family, list};
use lockkeeper_core::{
    About, ApplicationInput, Configure, Entered, Expected, Field, Inspect, InvariantViolated, Load,
    MessageKind, MessageKinds, MutualExclusion, Never, Out, PaperFigures, Phase, Protocol, Setup, SiteId,
    Validate,
};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;

/// A message between sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// A request for the coat.
    Ask,
    /// The coat itself, the token.
    Coat,
}

impl MessageKinds for Message {
    const KINDS: &'static [MessageKind] = &[MessageKind::enter("ASK"), MessageKind::enter("COAT")];

    fn kind(&self) -> usize {
        *self as usize
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::KINDS[self.kind()].name)
    }
}

lockkeeper_core::rules! {
    /// The rules of the cloakroom.
    pub enum Rule {
        /// A site requests the critical section.
        Asks: "asks for the coat",
        /// The coat is here, or comes back.
        HandsOut: "hands the coat to the site that has waited longest",
        /// The coat is out.
        Notes: "has no coat to give and queues the request",
        /// The coat arrives.
        Enters: "puts the coat on and enters",
        /// The section is over.
        BringsBack: "brings the coat back",
    }
}

/// The state of one site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cloakroom {
    me: SiteId,
    phase: Phase,
    has_coat: bool,
    /// Only at S1: the waiting sites, longest wait first.
    queue: VecDeque<SiteId>,
}

const CLOAKROOM: SiteId = SiteId(0);

impl Cloakroom {
    fn hand_out(&mut self, out: &mut Out<Self>) {
        if self.has_coat
            && let Some(next) = self.queue.pop_front()
        {
            out.rule(Rule::HandsOut);
            self.has_coat = false;
            out.send(next, Message::Coat);
        }
    }
}

impl Protocol for Cloakroom {
    type Input = ApplicationInput;
    type Message = Message;
    type Output = Entered;
    type Timer = Never;
    type Rule = Rule;

    fn input(&mut self, input: ApplicationInput, out: &mut Out<Self>) {
        match input {
            ApplicationInput::Request(_) => {
                out.rule(Rule::Asks);
                self.phase = Phase::Waiting;
                out.send(CLOAKROOM, Message::Ask);
            }
            ApplicationInput::Release => {
                out.rule(Rule::BringsBack);
                self.phase = Phase::Idle;
                self.has_coat = false;
                out.send(CLOAKROOM, Message::Coat);
            }
        }
    }

    fn message(&mut self, from: SiteId, message: Message, out: &mut Out<Self>) {
        match message {
            Message::Ask => {
                self.queue.push_back(from);
                if !self.has_coat || self.phase == Phase::Inside {
                    out.rule(Rule::Notes);
                } else {
                    self.hand_out(out);
                }
            }
            Message::Coat => {
                self.has_coat = true;
                // At the cloakroom, the coat may also have been brought back. Then it goes to the next site in the queue.
                // S1 enters only with a coat that it has sent to itself.
                if self.phase == Phase::Waiting && (self.me != CLOAKROOM || from == CLOAKROOM) {
                    out.rule(Rule::Enters);
                    self.phase = Phase::Inside;
                    out.output(Entered);
                } else {
                    self.hand_out(out);
                }
            }
        }
    }

    fn timer(&mut self, timer: Never, _out: &mut Out<Self>) {
        match timer {}
    }

    fn fields(&self) -> Vec<Field> {
        let mut fields = vec![Field::new("state", self.phase)];
        if self.me == CLOAKROOM {
            fields.push(Field::new("waiting for the coat", list(&self.queue, "none")));
        }
        fields
    }

    fn waits_for(&self) -> Vec<SiteId> {
        if self.phase == Phase::Waiting { vec![CLOAKROOM] } else { Vec::new() }
    }
}

impl MutualExclusion for Cloakroom {
    const ABOUT: About = About {
        slug: "cloakroom",
        title: "The cloakroom",
        family: Family::Token,
        paper: "none: a toy",
        idea: "There is one coat; the site that wears it may enter.",
        channels: Channels::Any,
        perpetual: false,
        deadlock_free: true,
        cost: Cost {
            low: "3(1−1/N)",
            high: "3(1−1/N)",
            sync_delay: "2T(1−1/N)",
            client_delay: "mean 2T(1−1/N)",
        },
        crash: "of S1 or of the site that has the coat: all sites wait for ever",
        settings: &[],
    };

    fn start(me: SiteId, setup: &Setup<()>, _out: &mut Out<Self>) -> Self {
        let has_coat = match setup.holder() {
            Some(holder) => holder == me,
            None => me == CLOAKROOM,
        };
        Self { me, phase: setup.phase_of(me), has_coat, queue: VecDeque::new() }
    }
}

impl Configure for Cloakroom {
    type Options = ();
}

impl PaperFigures for Cloakroom {
    fn expected(_load: Load, sites: usize, _options: &()) -> Expected {
        let remote = 1.0 - 1.0 / sites as f64;
        Expected {
            messages_per_entry: Some(3.0 * remote),
            sync_delay: Some(2.0 * remote),
            client_delay: Some(2.0 * remote),
            ..Expected::default()
        }
    }
}

impl Inspect for Cloakroom {
    fn tokens(&self) -> u32 {
        self.has_coat.into()
    }

    fn tokens_in(message: &Message) -> u32 {
        (*message == Message::Coat).into()
    }

    fn invariant(&self) -> Result<(), InvariantViolated> {
        if self.phase == Phase::Inside && !self.has_coat {
            Err(InvariantViolated("inside without the coat"))
        } else {
            Ok(())
        }
    }
}

impl Validate for Cloakroom {}

#[cfg(test)]
mod tests {
    use super::Cloakroom;

    #[test]
    fn the_cloakroom_conforms() {
        lockkeeper_lab::conformance::<Cloakroom>();
    }
}
