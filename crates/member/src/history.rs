//! Recorded histories of consensus, checked against the contract between consensus and members.
//!
//! The model has one hidden state: the present term, its one leader, and the views decided so far. Members receive
//! events from that state, perhaps late. So a history is accepted if such a state can explain it:
//!
//! 1. A term has one leader. A process is reported to lead only while its term is the newest one that was reported to
//!    any member. A process that restarts has to be elected again; a new incarnation in the same process receives the
//!    report again.
//! 2. An epoch has one view. It was proposed in its own term, by the member that was reported to lead in that term.
//! 3. Each member receives views in order; it may skip some (a snapshot).
//! 4. A new leader has received the last view that any earlier leader got decided BEFORE it is reported to lead.
//! 5. A view is decided on top of the previous one: terms never fall from epoch to epoch.
//! 6. A confirmation request is answered once, to the member that made it in a term in which it was reported to lead;
//!    and no later term had been reported to any member when the request was made.

use crate::{MemberId, PortEvent, View};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

/// An event at a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryEvent {
    /// The process of the member starts or restarts.
    Begins,
    /// The member begins a new incarnation in the same process: all reports to it are repeated.
    NewIncarnation,
    /// The member proposes a view.
    Proposes(View),
    /// The member requests a confirmation that it still leads.
    RequestsConfirmation {
        /// The number of the request.
        number: u64,
        /// The term in which the member takes itself for the leader.
        term: u64,
    },
    /// Consensus reports an event to the member.
    Notified(PortEvent),
}

/// One line of a history. Lines are in the order of the events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRecord {
    /// The member at which the event happened.
    pub member: MemberId,
    /// The event at the member.
    pub event: HistoryEvent,
}

/// The first line of a history that the model cannot have produced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryError {
    /// The number of the line, from 0.
    pub line: usize,
    /// The line that breaks the rule.
    pub record: Box<HistoryRecord>,
    /// The rule that it breaks.
    pub violation: Violation,
}

impl fmt::Display for HistoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, {:?}: {}", self.line, self.record, self.violation)
    }
}

impl core::error::Error for HistoryError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.violation)
    }
}

/// The reason why the model cannot have produced an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A member is deposed that did not lead.
    DidNotLead,
    /// A member receives a view that is not newer than the one it knows.
    KnownEpoch {
        /// The newest epoch that the member knows.
        epoch: u64,
    },
    /// An epoch has two views.
    OtherView {
        /// The view of the epoch that was decided before.
        known: Box<View>,
    },
    /// A view is decided that was not proposed.
    NotProposed,
    /// A view is decided that was proposed by a member that did not lead in the view's term.
    ProposerDidNotLead {
        /// The member that proposed the view.
        by: MemberId,
    },
    /// Terms fall from one epoch to the next.
    TermsFall,
    /// A leader of a later term did not know the view when it began to lead.
    UnawareLeader {
        /// The member that was reported to lead.
        leader: MemberId,
        /// The term in which it was reported to lead.
        term: u64,
    },
    /// A member is reported to lead in a term that is not new.
    KnownTerm {
        /// The newest term.
        newest: u64,
    },
    /// A member is reported to lead before it has received the newest view.
    ViewNotReceived {
        /// The epoch of the newest view.
        epoch: u64,
    },
    /// A confirmation answers no open request.
    NotRequested,
    /// A member is confirmed that was not reported to lead in the term of its request.
    NotReportedToLead {
        /// The term of the request.
        term: u64,
    },
    /// A confirmation answers a request that was made after a later term was known.
    LaterTermKnown {
        /// The newest term when the request was made.
        known: u64,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DidNotLead => f.write_str("the member did not lead"),
            Self::KnownEpoch { epoch } => write!(f, "the member knew epoch {epoch} already"),
            Self::OtherView { known } => write!(f, "the epoch has another view, {known:?}"),
            Self::NotProposed => f.write_str("no member proposed it"),
            Self::ProposerDidNotLead { by } => write!(f, "{by} proposed it and did not lead in its term"),
            Self::TermsFall => f.write_str("a view of a lower epoch has a later term"),
            Self::UnawareLeader { leader, term } => {
                write!(f, "{leader} was reported to lead in term {term} without knowing it")
            }
            Self::KnownTerm { newest } => write!(f, "term {newest} was known already"),
            Self::ViewNotReceived { epoch } => {
                write!(f, "the member has not received the view of epoch {epoch}")
            }
            Self::NotRequested => f.write_str("this confirmation was not requested, or is answered already"),
            Self::NotReportedToLead { term } => {
                write!(f, "the member was not reported to lead in term {term}")
            }
            Self::LaterTermKnown { known } => write!(f, "term {known} was known before the request"),
        }
    }
}

impl core::error::Error for Violation {}

/// Checks whether the model can have produced this history. The error names the first line that it cannot have
/// produced, and the reason.
pub fn accepts(history: &[HistoryRecord]) -> Result<(), HistoryError> {
    let mut state = ModelState::default();
    for (line, record) in history.iter().enumerate() {
        state.line(record).map_err(|violation| HistoryError {
            line,
            record: Box::new(record.clone()),
            violation,
        })?;
    }
    Ok(())
}

/// The hidden state that the lines so far imply.
#[derive(Default)]
struct ModelState {
    /// The member that was reported to lead in each term, and the newest epoch that it knew then.
    leaders: BTreeMap<u64, (MemberId, u64)>,
    proposed: Vec<(MemberId, View)>,
    decided: BTreeMap<u64, View>,
    members: BTreeMap<MemberId, Seen>,
}

/// The state of one process.
#[derive(Default)]
struct Seen {
    epoch: u64,
    leading: Option<u64>,
    /// The newest term in which this process, in any incarnation of its member, was reported to lead.
    led: Option<u64>,
    /// Each open confirmation request: its term, and the newest term that any member knew when it was made.
    confirmations: BTreeMap<u64, (u64, u64)>,
}

impl ModelState {
    /// Checks one line against the state, and updates the state.
    fn line(&mut self, line: &HistoryRecord) -> Result<(), Violation> {
        let member = line.member;
        match &line.event {
            HistoryEvent::Begins => {
                self.members.insert(member, Seen::default());
                Ok(())
            }
            HistoryEvent::NewIncarnation => {
                let led = self.seen(member).led;
                self.members.insert(member, Seen { led, ..Seen::default() });
                Ok(())
            }
            HistoryEvent::Proposes(view) => {
                self.proposed.push((member, view.clone()));
                Ok(())
            }
            HistoryEvent::RequestsConfirmation { number, term } => {
                let newest = self.newest_term();
                self.seen(member).confirmations.insert(*number, (*term, newest));
                Ok(())
            }
            HistoryEvent::Notified(PortEvent::Decided { view, .. }) => self.decided(member, view),
            HistoryEvent::Notified(PortEvent::Leading { term }) => self.leading(member, *term),
            HistoryEvent::Notified(PortEvent::Deposed) => match self.seen(member).leading.take() {
                Some(_) => Ok(()),
                None => Err(Violation::DidNotLead),
            },
            HistoryEvent::Notified(PortEvent::Confirmed { number }) => self.confirmed(member, *number),
            // The answers to writes are checked by the table's own tests.
            HistoryEvent::Notified(PortEvent::Leader(_) | PortEvent::Written { .. }) => Ok(()),
        }
    }

    fn seen(&mut self, member: MemberId) -> &mut Seen {
        self.members.entry(member).or_default()
    }

    /// The newest term that was reported to any member, by a leader or a view.
    fn newest_term(&self) -> u64 {
        let led = self.leaders.last_key_value().map_or(0, |(&term, _)| term);
        let decided = self.decided.last_key_value().map_or(0, |(_, view)| view.term);
        led.max(decided)
    }

    /// Checks rules 2 to 5 for a view that a member receives.
    fn decided(&mut self, member: MemberId, view: &View) -> Result<(), Violation> {
        let seen = self.seen(member);
        if view.epoch <= seen.epoch {
            return Err(Violation::KnownEpoch { epoch: seen.epoch });
        }
        seen.epoch = view.epoch;
        if let Some(known) = self.decided.get(&view.epoch) {
            return if known == view {
                Ok(())
            } else {
                Err(Violation::OtherView { known: Box::new(known.clone()) })
            };
        }
        let Some((by, _)) = self.proposed.iter().find(|(_, proposed)| proposed == view) else {
            return Err(Violation::NotProposed);
        };
        if self.leaders.get(&view.term).is_none_or(|(leader, _)| leader != by) {
            return Err(Violation::ProposerDidNotLead { by: *by });
        }
        let before = self.decided.range(..view.epoch).next_back();
        let after = self.decided.range(view.epoch..).next();
        if before.is_some_and(|(_, before)| before.term > view.term)
            || after.is_some_and(|(_, after)| after.term < view.term)
        {
            return Err(Violation::TermsFall);
        }
        // A leader of a later term must have known the view when it began to lead.
        let unaware = self.leaders.range(view.term + 1..).find(|(_, (_, knew))| *knew < view.epoch);
        if let Some((&term, &(leader, _))) = unaware {
            return Err(Violation::UnawareLeader { leader, term });
        }
        self.decided.insert(view.epoch, view.clone());
        Ok(())
    }

    /// Checks rules 1 and 4 for a member that is reported to lead.
    fn leading(&mut self, member: MemberId, term: u64) -> Result<(), Violation> {
        let newest = self.newest_term();
        let last = self.decided.last_key_value().map_or(0, |(&epoch, _)| epoch);
        let seen = self.seen(member);
        let again = seen.leading.is_none() && seen.led == Some(term) && term == newest;
        if term <= newest && !again {
            return Err(Violation::KnownTerm { newest });
        }
        // A new incarnation may not have received the views of its own term yet; it must know all others.
        if seen.epoch < last && !again {
            return Err(Violation::ViewNotReceived { epoch: last });
        }
        seen.leading = Some(term);
        seen.led = Some(term);
        let knew = seen.epoch;
        self.leaders.entry(term).or_insert((member, knew));
        Ok(())
    }

    /// Checks rule 6 for a confirmation.
    fn confirmed(&mut self, member: MemberId, number: u64) -> Result<(), Violation> {
        let Some((term, known)) = self.seen(member).confirmations.remove(&number) else {
            return Err(Violation::NotRequested);
        };
        if self.leaders.get(&term).is_none_or(|(leader, _)| *leader != member) {
            return Err(Violation::NotReportedToLead { term });
        }
        if known > term {
            return Err(Violation::LaterTermKnown { known });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Node;
    use alloc::vec;

    fn view(epoch: u64, by: u32, term: u64) -> View {
        let node = Node { id: MemberId(by), incarnation: 1 };
        View::of_one(epoch, term, node)
    }

    fn decided(epoch: u64, by: u32, term: u64) -> PortEvent {
        PortEvent::Decided { view: view(epoch, by, term), adopted: Vec::new() }
    }

    fn line(member: u32, event: HistoryEvent) -> HistoryRecord {
        HistoryRecord { member: MemberId(member), event }
    }

    fn notified(member: u32, event: PortEvent) -> HistoryRecord {
        line(member, HistoryEvent::Notified(event))
    }

    /// Member 1 leads, gets a view decided and is confirmed; then member 2 leads and gets the next one decided.
    fn good() -> Vec<HistoryRecord> {
        vec![
            line(1, HistoryEvent::Begins),
            line(2, HistoryEvent::Begins),
            notified(1, PortEvent::Leading { term: 1 }),
            line(1, HistoryEvent::Proposes(view(1, 1, 1))),
            line(1, HistoryEvent::RequestsConfirmation { number: 1, term: 1 }),
            notified(1, decided(1, 1, 1)),
            notified(2, decided(1, 1, 1)),
            notified(1, PortEvent::Confirmed { number: 1 }),
            notified(2, PortEvent::Leading { term: 3 }),
            line(2, HistoryEvent::Proposes(view(2, 2, 3))),
            notified(2, decided(2, 2, 3)),
            notified(1, PortEvent::Deposed),
            notified(1, decided(2, 2, 3)),
        ]
    }

    #[test]
    fn forged_histories_are_refused() {
        assert_eq!(accepts(&good()), Ok(()));
        let mut again = good();
        again.push(line(2, HistoryEvent::NewIncarnation));
        again.push(notified(2, decided(2, 2, 3)));
        again.push(notified(2, PortEvent::Leading { term: 3 }));
        assert_eq!(accepts(&again), Ok(()));
        let refused = |violation: Violation, forge: &dyn Fn(&mut Vec<HistoryRecord>)| {
            let mut forged = good();
            forge(&mut forged);
            let refused = accepts(&forged).expect_err("the history is forged");
            assert_eq!(refused.violation, violation, "{refused}");
            assert_eq!(*refused.record, forged[refused.line], "{refused}");
        };
        let end = |event: PortEvent| {
            move |history: &mut Vec<HistoryRecord>| history.push(notified(1, event.clone()))
        };
        refused(Violation::KnownTerm { newest: 3 }, &end(PortEvent::Leading { term: 3 }));
        refused(Violation::KnownTerm { newest: 3 }, &end(PortEvent::Leading { term: 2 }));
        refused(Violation::DidNotLead, &end(PortEvent::Deposed));
        refused(Violation::NotRequested, &end(PortEvent::Confirmed { number: 1 }));
        refused(Violation::KnownEpoch { epoch: 2 }, &end(decided(1, 1, 1)));
        refused(Violation::NotProposed, &end(decided(3, 2, 3)));
        refused(Violation::OtherView { known: Box::new(view(2, 2, 3)) }, &|history| {
            history[12] = notified(1, decided(2, 1, 1))
        });
        refused(Violation::ProposerDidNotLead { by: MemberId(1) }, &|history| {
            history.push(line(1, HistoryEvent::Proposes(view(3, 1, 4))));
            history.push(notified(1, decided(3, 1, 4)));
        });
        refused(Violation::ViewNotReceived { epoch: 1 }, &|history| drop(history.remove(6)));
        refused(Violation::UnawareLeader { leader: MemberId(2), term: 3 }, &|history| {
            // A proposal of the old leader takes effect after the new one began to lead.
            history.insert(8, line(1, HistoryEvent::Proposes(view(2, 1, 1))));
            history.truncate(10);
            history.push(notified(1, decided(2, 1, 1)));
        });
        refused(Violation::LaterTermKnown { known: 3 }, &|history| {
            history.insert(9, line(1, HistoryEvent::RequestsConfirmation { number: 2, term: 1 }));
            history.insert(10, notified(1, PortEvent::Confirmed { number: 2 }));
        });
        refused(Violation::NotReportedToLead { term: 2 }, &|history| {
            history.insert(4, line(1, HistoryEvent::RequestsConfirmation { number: 9, term: 2 }));
            history.insert(5, notified(1, PortEvent::Confirmed { number: 9 }));
        });
        refused(Violation::KnownTerm { newest: 3 }, &|history| {
            // After a restart, the process is reported to lead in its old term without an election.
            history.push(line(2, HistoryEvent::Begins));
            history.push(notified(2, decided(2, 2, 3)));
            history.push(notified(2, PortEvent::Leading { term: 3 }));
        });
    }
}
