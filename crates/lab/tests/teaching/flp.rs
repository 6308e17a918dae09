//! The lesson on the impossibility of consensus, and protocols that are wrong on purpose.

use lockkeeper_lab::flp::explore::{Graph, Valence, all_inputs};
use lockkeeper_lab::flp::protocol::{ConfigurationOf, Protocol, Value, apply, decisions, initial};
use lockkeeper_lab::flp::rounds::{self, Rounds};
use lockkeeper_lab::flp::wait_for_all::WaitForAll;
use lockkeeper_lab::flp::{PROTOCOLS, lesson};
use std::cell::Cell;

const MOST: usize = 100_000;

fn valences<P: Protocol>(graph: &Graph<P>) -> Vec<Valence> {
    all_inputs().map(|inputs| graph.valence(&initial(&graph.protocol, inputs))).collect()
}

#[test]
fn rounds_are_safe_and_not_blocked_and_all_three_lemmas_hold() {
    let graph = Graph::explore(Rounds::default(), MOST).unwrap();
    assert_eq!(graph.len(), 8_856);
    let counts = [Valence::Univalent(0), Valence::Univalent(1), Valence::Bivalent, Valence::Undecided];
    assert_eq!(counts.map(|valence| graph.count(valence)), [3_219, 3_219, 2_418, 0]);
    assert_eq!(graph.disagreement(), None);
    assert_eq!(graph.blocked(), (0, None));
    assert_eq!(graph.commutes(), Ok(54_944));
    let valences = valences(&graph);
    assert_eq!((valences[0], valences[7]), (Valence::Univalent(0), Valence::Univalent(1)));
    assert!(valences[1..7].iter().all(|valence| *valence == Valence::Bivalent));
    assert_eq!(graph.stays_bivalent(), Ok(17_396));
}

#[test]
fn waiting_for_all_is_univalent_and_blocked_by_one_crash() {
    let graph = Graph::explore(WaitForAll, MOST).unwrap();
    assert_eq!(graph.count(Valence::Bivalent), 0);
    assert_eq!(graph.disagreement(), None);
    assert!(graph.commutes().is_ok());
    let start = initial(&graph.protocol, [0, 1, 1]);
    assert_eq!(graph.valence(&start), Valence::Univalent(1));
    assert!((0..3).all(|process| !graph.decides_without(&start, process)));
    assert!(graph.blocked().0 > 0);
}

#[test]
fn the_labels_agree_with_random_runs() {
    let graph = Graph::explore(Rounds::default(), MOST).unwrap();
    let mut random = 1_u64;
    for _ in 0..300 {
        for inputs in all_inputs() {
            let mut now = initial(&graph.protocol, inputs);
            let mut passed = vec![graph.valence(&now)];
            while decisions(&graph.protocol, &now) == 0 && passed.len() < 200 {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let event = now.buffer[(random >> 33) as usize % now.buffer.len()];
                now = apply(&graph.protocol, &now, event);
                passed.push(graph.valence(&now));
            }
            for value in [0, 1] {
                if decisions(&graph.protocol, &now) == 1 << value {
                    let contrary = Valence::Univalent(1 - value);
                    assert!(!passed.contains(&contrary), "{inputs:?} decided {value} after {passed:?}");
                }
            }
        }
    }
}

#[test]
fn the_adversary_delivers_every_message_and_never_lets_a_process_decide() {
    let lesson = lesson("rounds").unwrap().unwrap();
    let (_, run) = lesson.adversary().unwrap();
    let steps: Vec<_> = run.take(600).collect();
    assert_eq!(steps.len(), 600);
    for step in &steps {
        assert_eq!(step.valence, "bivalent", "step {}", step.number);
        assert!(step.states.iter().all(|state| !state.contains("decided")), "step {}", step.number);
    }
    // Each message is received, or stale, within a few turns.
    for (first, later) in steps.iter().zip(&steps[40..]) {
        let kept = first.under_way.iter().find(|message| later.under_way.contains(message));
        assert_eq!(kept, None, "since step {}", first.number);
    }
    // Each process takes steps, and the run is in the same configuration again and again.
    for turn in ["S1", "S2", "S3"] {
        assert!(steps.iter().filter(|step| step.event.starts_with(turn)).count() > 100, "{turn}");
    }
    assert!(steps.iter().any(|step| step.same_as.is_some()));
    assert!(steps.iter().any(|step| step.event.contains("receives") && step.lemma == 3));
}

#[test]
fn every_protocol_of_the_list_has_a_lesson() {
    for name in PROTOCOLS {
        let lesson = lesson(name).unwrap().unwrap();
        assert_eq!(lesson.sections().len(), 4);
    }
    assert!(lesson("no-such-protocol").is_none());
}

/// Mutant: a process decides as soon as it sees one proposal.
#[test]
fn a_decision_on_one_proposal_violates_agreement() {
    let graph = Graph::explore(Rounds { decides_on_one_proposal: true }, MOST).unwrap();
    let found: &ConfigurationOf<Rounds> = graph.disagreement().expect("it is wrong");
    assert_eq!(decisions(&graph.protocol, found), 3);
}

/// Mutant: the processes share a counter, so that a step is not a function of the state and the message alone.
#[derive(Default)]
struct SharedCounter {
    rounds: Rounds,
    counter: Cell<u8>,
}

impl Protocol for SharedCounter {
    type State = rounds::State;
    type Message = rounds::Message;

    fn name(&self) -> &'static str {
        "shared-counter"
    }

    fn rules(&self) -> &'static [&'static str] {
        &[]
    }

    fn initial(&self, input: Value) -> rounds::State {
        self.rounds.initial(input)
    }

    fn start(&self, me: usize, state: &mut rounds::State) -> Vec<rounds::Message> {
        self.counter.set((self.counter.get() + 1) % 3);
        let vote = u8::from(self.counter.get() == 1);
        *state = self.rounds.initial(vote);
        self.rounds.start(me, state)
    }

    fn receive(
        &self,
        me: usize,
        state: &mut rounds::State,
        from: usize,
        message: rounds::Message,
    ) -> Vec<rounds::Message> {
        self.rounds.receive(me, state, from, message)
    }

    fn has_started(&self, state: &rounds::State) -> bool {
        self.rounds.has_started(state)
    }

    fn decision(&self, state: &rounds::State) -> Option<Value> {
        self.rounds.decision(state)
    }

    fn is_stale(&self, state: &rounds::State, message: rounds::Message) -> bool {
        self.rounds.is_stale(state, message)
    }

    fn describe(&self, state: &rounds::State) -> String {
        self.rounds.describe(state)
    }

    fn round(&self, state: &rounds::State) -> Option<u32> {
        self.rounds.round(state)
    }

    fn rebase(&self, state: &mut rounds::State, rounds: u32) {
        self.rounds.rebase(state, rounds);
    }

    fn rebase_message(&self, message: rounds::Message, rounds: u32) -> rounds::Message {
        self.rounds.rebase_message(message, rounds)
    }
}

#[test]
fn steps_that_share_a_counter_do_not_commute() {
    let graph = Graph::explore(SharedCounter::default(), MOST).unwrap();
    assert!(graph.commutes().is_err());
}
