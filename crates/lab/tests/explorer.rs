//! The explorer on small graphs that are written down by hand: shortest runs, limits, and fair cycles.

use lockkeeper_lab::checker::explore::{
    Ended, Fairness, FoundViolation, Goals, Model, Next, Run, Search, SearchLimits, Step, Worker, cycles,
};

/// A graph whose states are numbers. The first state is 0.
#[derive(Clone)]
struct Graph {
    /// The steps: from, to, and the fair action that the step takes.
    steps: Vec<(u32, u32, Option<u64>)>,
    /// The states in which a property is violated, with the number of the property.
    wrong: Vec<(u32, u8)>,
    /// The states in which the goal is not pending.
    reached: Vec<u32>,
    fairness: Fairness,
}

impl Graph {
    fn new(steps: &[(u32, u32, Option<u64>)]) -> Self {
        Self { steps: steps.to_vec(), wrong: Vec::new(), reached: Vec::new(), fairness: Fairness::Weak }
    }
}

impl Model for Graph {
    type Worker<'m> = Walker<'m>;

    fn slots(&self) -> usize {
        1
    }

    fn goals(&self) -> Goals {
        1
    }

    fn fairness(&self) -> Fairness {
        self.fairness
    }

    fn worker(&self) -> Walker<'_> {
        Walker(self)
    }
}

struct Walker<'m>(&'m Graph);

impl Worker for Walker<'_> {
    /// The index of the step in the graph.
    type Action = usize;
    type Violation = u8;
    type Property = u8;

    fn start(&mut self, found: &mut impl FnMut(&[u32])) {
        found(&[0]);
    }

    fn expand(
        &mut self,
        state: &[u32],
        _tallies: &[u8],
        found: &mut impl FnMut(Next<'_, usize, u8>),
    ) -> Option<u8> {
        for (action, &(from, to, _)) in self.0.steps.iter().enumerate() {
            if from == state[0] {
                found(Next { action, state: &[to], tallies: &[], violation: None, beyond: false });
            }
        }
        self.0.wrong.iter().find(|(wrong, _)| *wrong == state[0]).map(|(_, property)| *property)
    }

    fn property(violation: &u8) -> u8 {
        *violation
    }

    fn describe(&mut self, from: &[u32], action: &usize) -> Vec<String> {
        vec![format!("{} to {}", from[0], self.0.steps[*action].1)]
    }

    fn pending(&mut self, state: &[u32]) -> Goals {
        Goals::from(!self.0.reached.contains(&state[0]))
    }

    fn fair_action(&self, action: &usize) -> Option<u64> {
        self.0.steps[*action].2
    }

    fn unreached(&self, _goal: usize) -> u8 {
        9
    }
}

/// The steps of a run as `from, to`, and the number of steps before its cycle.
type Path = (Vec<(u32, u32)>, Option<usize>);

fn path(graph: &Graph, run: &Run<usize>) -> Path {
    let step = |step: &Step<usize>| (step.from[0], graph.steps[step.action].1);
    (run.steps.iter().map(step).collect(), run.cycle_after)
}

fn cycle(graph: &Graph) -> Option<Path> {
    let mut search = Search::new(graph, 1);
    assert_eq!(search.run(SearchLimits::NONE, |_| true), Ended::All);
    let found = cycles::search(&mut search).pop()?;
    assert_eq!(found.violation, 9);
    Some(path(graph, &found.run.expect("one thread searched")))
}

#[test]
fn the_run_to_a_violation_is_a_shortest_one_and_is_described() {
    // 0 → 1 → 2 → 3 and 0 → 4 → 3; 3 violates property 5.
    let graph = Graph {
        wrong: vec![(3, 5)],
        ..Graph::new(&[(0, 1, None), (1, 2, None), (2, 3, None), (0, 4, None), (4, 3, None)])
    };
    let mut search = Search::new(&graph, 1);
    assert_eq!(search.run(SearchLimits::NONE, |_| true), Ended::Violated);
    let FoundViolation { violation, run } = search.violations().pop().expect("a violation");
    let run = run.expect("one thread searched");
    assert_eq!((violation, path(&graph, &run)), (5, (vec![(0, 4), (4, 3)], None)));
    assert_eq!(search.describe(&run).concat(), ["0 to 4", "4 to 3"]);
}

#[test]
fn a_search_for_every_property_reports_the_first_violation_of_each() {
    let graph = Graph {
        wrong: vec![(1, 5), (2, 5), (3, 6)],
        ..Graph::new(&[(0, 1, None), (1, 2, None), (2, 3, None)])
    };
    let mut search = Search::new(&graph, 1).every_property();
    assert_eq!(search.run(SearchLimits::NONE, |_| true), Ended::All);
    let lengths =
        |found: FoundViolation<usize, u8>| (found.violation, found.run.expect("one thread").steps.len());
    let found: Vec<(u8, usize)> = search.violations().into_iter().map(lengths).collect();
    assert_eq!(found, [(5, 1), (6, 3)]);
    let mut threads = Search::new(&graph, 2).every_property();
    assert_eq!(threads.run(SearchLimits::NONE, |_| true), Ended::All);
    assert!(threads.violations().iter().all(|found| found.run.is_none()));
}

#[test]
fn limits_on_states_depth_and_memory_stop_a_search() {
    let steps: Vec<_> = (0..1_000).map(|state| (state, state + 1, None)).collect();
    let graph = Graph::new(&steps);
    let explored = |limits| {
        let mut search = Search::new(&graph, 1);
        let ended = search.run(limits, |_| true);
        (ended, search.progress().distinct)
    };
    assert_eq!(explored(SearchLimits::NONE), (Ended::All, 1_001));
    assert_eq!(explored(SearchLimits::states(10)), (Ended::Stopped, 11));
    assert_eq!(explored(SearchLimits { depth: 4, ..SearchLimits::NONE }), (Ended::Stopped, 5));
    let (ended, distinct) = explored(SearchLimits { bytes: 0, ..SearchLimits::NONE });
    assert_eq!((ended, distinct), (Ended::Stopped, 2));
}

#[test]
fn a_cycle_that_omits_a_step_that_stays_possible_is_not_fair() {
    // In 0 and 1, a step with fair action 7 leads to 2, where the goal is reached. The cycle 0 → 1 → 0 never takes it.
    let steps = [(0, 1, Some(1)), (1, 0, Some(2)), (0, 2, Some(7)), (1, 2, Some(7))];
    assert_eq!(cycle(&Graph { reached: vec![2], ..Graph::new(&steps) }), None);
    // Without the step from 1, the fair action does not stay possible: the cycle is fair in the weak sense only.
    let weak = Graph { reached: vec![2], ..Graph::new(&steps[..3]) };
    assert_eq!(cycle(&weak), Some((vec![(0, 1), (1, 0)], Some(0))));
    assert_eq!(cycle(&Graph { fairness: Fairness::EveryStep, ..weak }), None);
}

#[test]
fn a_cycle_performs_every_duty_that_stays_possible() {
    // Both fair actions are possible in 1 and 2, and taken on different cycles: 1 → 2 → 1 and 1 → 3 → 1.
    let steps = [
        (0, 1, None),
        (1, 2, Some(1)),
        (2, 1, Some(1)),
        (1, 3, Some(2)),
        (2, 3, Some(2)),
        (3, 1, Some(1)),
        (3, 1, Some(2)),
    ];
    let (steps, cycle_after) = cycle(&Graph::new(&steps)).expect("a fair cycle");
    assert_eq!((steps, cycle_after), (vec![(0, 1), (1, 2), (2, 3), (3, 1)], Some(1)));
}

#[test]
fn if_every_step_is_required_a_cycle_contains_every_required_step_from_its_states() {
    // From 0, fair action 7 leads to the goal: the component of 0, 1 and 2 is left. From 4, only a step that is not
    // required leads out of the component of 4 and 5.
    let steps = [(0, 1, Some(1)), (1, 0, None), (1, 2, Some(2)), (2, 1, Some(3)), (0, 3, Some(7))];
    let graph = Graph { reached: vec![3], fairness: Fairness::EveryStep, ..Graph::new(&steps) };
    assert_eq!(cycle(&graph), None);
    let more = [(0, 4, None), (4, 5, Some(1)), (5, 4, Some(2)), (4, 3, None)];
    let graph = Graph { steps: [&steps[..], &more].concat(), ..graph };
    assert_eq!(cycle(&graph), Some((vec![(0, 4), (4, 5), (5, 4)], Some(1))));
}

#[test]
fn a_run_that_ends_is_not_a_cycle() {
    assert_eq!(cycle(&Graph::new(&[(0, 1, Some(1)), (0, 2, Some(2)), (1, 2, Some(1))])), None);
}
