//! Histories of consensus as members see it, and whether the model of consensus could have produced one.
//!
//! The model has one hidden state: the present term, its one leader, and the views decided so far. What members see is told from that state, perhaps late.
//! So a history is accepted if such a state could have stood behind it:
//!
//! 1. A term has one leader, and somebody is told that it leads only while its term is the newest that anybody was told of. A process that
//!    starts again has to be elected again; a new life in the same process is told again.
//! 2. An epoch has one view. It was proposed, in the term that it names, by whoever was told to lead in that term.
//! 3. Each member is told of views in order; it may skip some (a snapshot).
//! 4. Whoever is told that it leads has been told before of the last view that any earlier leader got decided.
//! 5. A view is decided on top of the one before: terms never fall from epoch to epoch.
//! 6. A question is answered once, to who asked it in a term in which it was told to lead; and no later term was known to
//!    anybody when it was asked.

use crate::{MemberId, PortEvent, View};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// What happened at a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// Its process starts, or starts again.
    Begins,
    /// The member begins another life in the same process: it must be told everything again.
    LivesAgain,
    /// It asks for a view to be decided.
    Proposes(View),
    /// It asks whether it still leads.
    Asks {
        /// The number of the question.
        question: u64,
        /// The term in which it believes to lead.
        term: u64,
    },
    /// Consensus tells it something.
    Told(PortEvent),
}

/// One line of a history. Lines stand in the order in which they happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Where.
    pub member: MemberId,
    /// What.
    pub what: Happened,
}

/// Whether the model could have produced this history; if not, the first line that it could not, and why.
pub fn accepts(history: &[Line]) -> Result<(), String> {
    let mut behind = Behind::default();
    for (number, line) in history.iter().enumerate() {
        behind.line(line).map_err(|why| format!("line {number}, {line:?}: {why}"))?;
    }
    Ok(())
}

/// What must stand behind the lines so far.
#[derive(Default)]
struct Behind {
    /// Who was told to lead in each term, and the newest epoch that it knew then.
    leaders: BTreeMap<u64, (MemberId, u64)>,
    proposed: Vec<(MemberId, View)>,
    decided: BTreeMap<u64, View>,
    members: BTreeMap<MemberId, Seen>,
}

/// What one process knows.
#[derive(Default)]
struct Seen {
    epoch: u64,
    leading: Option<u64>,
    /// The last term in which this process, in any life of its member, was told to lead.
    led: Option<u64>,
    /// Each open question: its term, and the newest term that anybody knew of when it was asked.
    questions: BTreeMap<u64, (u64, u64)>,
}

impl Behind {
    fn line(&mut self, line: &Line) -> Result<(), String> {
        let member = line.member;
        match &line.what {
            Happened::Begins => {
                self.members.insert(member, Seen::default());
                Ok(())
            }
            Happened::LivesAgain => {
                let led = self.seen(member).led;
                self.members.insert(member, Seen { led, ..Seen::default() });
                Ok(())
            }
            Happened::Proposes(view) => {
                self.proposed.push((member, view.clone()));
                Ok(())
            }
            Happened::Asks { question, term } => {
                let newest = self.newest_term();
                self.seen(member).questions.insert(*question, (*term, newest));
                Ok(())
            }
            Happened::Told(PortEvent::Decided(view)) => self.decided(member, view),
            Happened::Told(PortEvent::Leading { term }) => self.leading(member, *term),
            Happened::Told(PortEvent::Deposed) => match self.seen(member).leading.take() {
                Some(_) => Ok(()),
                None => Err("it did not lead".to_string()),
            },
            Happened::Told(PortEvent::Confirmed { question }) => self.confirmed(member, *question),
            Happened::Told(PortEvent::Leader(_)) => Ok(()),
        }
    }

    fn seen(&mut self, member: MemberId) -> &mut Seen {
        self.members.entry(member).or_default()
    }

    /// The newest term that anybody was told of, as a leader or by a view.
    fn newest_term(&self) -> u64 {
        let led = self.leaders.last_key_value().map_or(0, |(&term, _)| term);
        let decided = self.decided.last_key_value().map_or(0, |(_, view)| view.term);
        led.max(decided)
    }

    fn decided(&mut self, member: MemberId, view: &View) -> Result<(), String> {
        let seen = self.seen(member);
        if view.epoch <= seen.epoch {
            return Err(format!("it knew epoch {} already", seen.epoch));
        }
        seen.epoch = view.epoch;
        if let Some(known) = self.decided.get(&view.epoch) {
            return if known == view {
                Ok(())
            } else {
                Err(format!("the epoch has another view, {known:?}"))
            };
        }
        let Some((by, _)) = self.proposed.iter().find(|(_, proposed)| proposed == view) else {
            return Err("nobody proposed it".to_string());
        };
        if self.leaders.get(&view.term).is_none_or(|(leader, _)| leader != by) {
            return Err(format!("{by} proposed it and did not lead in its term"));
        }
        let before = self.decided.range(..view.epoch).next_back();
        let after = self.decided.range(view.epoch..).next();
        if before.is_some_and(|(_, before)| before.term > view.term)
            || after.is_some_and(|(_, after)| after.term < view.term)
        {
            return Err("a view of a later term came before it".to_string());
        }
        // Whoever was told to lead later had to know it then.
        let unaware = self.leaders.range(view.term + 1..).find(|(_, (_, knew))| *knew < view.epoch);
        if let Some((term, (leader, _))) = unaware {
            return Err(format!("{leader} was told to lead in term {term} without knowing it"));
        }
        self.decided.insert(view.epoch, view.clone());
        Ok(())
    }

    fn leading(&mut self, member: MemberId, term: u64) -> Result<(), String> {
        let newest = self.newest_term();
        let last = self.decided.last_key_value().map_or(0, |(&epoch, _)| epoch);
        let seen = self.seen(member);
        let again = seen.leading.is_none() && seen.led == Some(term) && term == newest;
        if term <= newest && !again {
            return Err(format!("term {newest} was known already"));
        }
        // Views of its own term may be under way to a new life; all others must be known.
        if seen.epoch < last && !again {
            return Err(format!("it has not been told of epoch {last}"));
        }
        seen.leading = Some(term);
        seen.led = Some(term);
        let knew = seen.epoch;
        self.leaders.entry(term).or_insert((member, knew));
        Ok(())
    }

    fn confirmed(&mut self, member: MemberId, question: u64) -> Result<(), String> {
        let Some((term, known)) = self.seen(member).questions.remove(&question) else {
            return Err("that was not asked, or is answered already".to_string());
        };
        if self.leaders.get(&term).is_none_or(|(leader, _)| *leader != member) {
            return Err(format!("it was not told to lead in term {term}"));
        }
        if known > term {
            return Err(format!("term {known} was known before it was asked"));
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

    fn line(member: u32, what: Happened) -> Line {
        Line { member: MemberId(member), what }
    }

    fn told(member: u32, event: PortEvent) -> Line {
        line(member, Happened::Told(event))
    }

    /// One leads, gets a view decided and is confirmed; then two leads and gets the next one decided.
    fn good() -> Vec<Line> {
        vec![
            line(1, Happened::Begins),
            line(2, Happened::Begins),
            told(1, PortEvent::Leading { term: 1 }),
            line(1, Happened::Proposes(view(1, 1, 1))),
            line(1, Happened::Asks { question: 1, term: 1 }),
            told(1, PortEvent::Decided(view(1, 1, 1))),
            told(2, PortEvent::Decided(view(1, 1, 1))),
            told(1, PortEvent::Confirmed { question: 1 }),
            told(2, PortEvent::Leading { term: 3 }),
            line(2, Happened::Proposes(view(2, 2, 3))),
            told(2, PortEvent::Decided(view(2, 2, 3))),
            told(1, PortEvent::Deposed),
            told(1, PortEvent::Decided(view(2, 2, 3))),
        ]
    }

    #[test]
    fn forged_histories_are_refused() {
        assert_eq!(accepts(&good()), Ok(()));
        let mut again = good();
        again.push(line(2, Happened::LivesAgain));
        again.push(told(2, PortEvent::Decided(view(2, 2, 3))));
        again.push(told(2, PortEvent::Leading { term: 3 }));
        assert_eq!(accepts(&again), Ok(()));
        let refused = |why: &str, forge: &dyn Fn(&mut Vec<Line>)| {
            let mut forged = good();
            forge(&mut forged);
            let said = accepts(&forged).expect_err(why);
            assert!(said.contains(why), "{said} instead of: {why}");
        };
        let end = |event: PortEvent| move |history: &mut Vec<Line>| history.push(told(1, event.clone()));
        refused("was known already", &end(PortEvent::Leading { term: 3 }));
        refused("was known already", &end(PortEvent::Leading { term: 2 }));
        refused("it did not lead", &end(PortEvent::Deposed));
        refused("answered already", &end(PortEvent::Confirmed { question: 1 }));
        refused("knew epoch 2 already", &end(PortEvent::Decided(view(1, 1, 1))));
        refused("nobody proposed it", &end(PortEvent::Decided(view(3, 2, 3))));
        refused("has another view", &|history| history[12] = told(1, PortEvent::Decided(view(2, 1, 1))));
        refused("did not lead in its term", &|history| {
            history.push(line(1, Happened::Proposes(view(3, 1, 4))));
            history.push(told(1, PortEvent::Decided(view(3, 1, 4))));
        });
        refused("has not been told of epoch 1", &|history| drop(history.remove(6)));
        refused("without knowing it", &|history| {
            // A proposal of the old leader takes effect behind the new one's back.
            history.insert(8, line(1, Happened::Proposes(view(2, 1, 1))));
            history.truncate(10);
            history.push(told(1, PortEvent::Decided(view(2, 1, 1))));
        });
        refused("was known before it was asked", &|history| {
            history.insert(9, line(1, Happened::Asks { question: 2, term: 1 }));
            history.insert(10, told(1, PortEvent::Confirmed { question: 2 }));
        });
        refused("was not told to lead in term 2", &|history| {
            history.insert(4, line(1, Happened::Asks { question: 9, term: 2 }));
            history.insert(5, told(1, PortEvent::Confirmed { question: 9 }));
        });
        refused("was known already", &|history| {
            // Started again, it leads on as if nothing had happened.
            history.push(line(2, Happened::Begins));
            history.push(told(2, PortEvent::Decided(view(2, 2, 3))));
            history.push(told(2, PortEvent::Leading { term: 3 }));
        });
    }
}
