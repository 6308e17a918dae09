//! A run that shows a violation: as sentences, and as a scenario that the simulator replays.

use super::mutual_exclusion::machine::Breach;
use super::mutual_exclusion::net::{Action, Net};
use super::spec::CheckSpec;
use crate::checker::explore::Run;
use crate::simulator::runner::{self, Progress};
use crate::simulator::scenario::Scenario;
use crate::trace::Story;
use crate::usage::UsageError;
use serde::{Serialize, Serializer};
use std::fmt::{self, Write as _};

/// A violation and a shortest run that shows it.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// The violation.
    pub breach: Breach,
    /// Number of steps of the run.
    pub steps: usize,
    /// If the run ends in a cycle: the number of steps before the cycle.
    pub cycle_after: Option<usize>,
    /// The run as a scenario for the simulator. `None` for elections and registers, which have none.
    pub scenario: Option<String>,
    /// The run in sentences, one for each step.
    pub story: Vec<String>,
}

impl Serialize for Counterexample {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(&self.story)
    }
}

/// The steps, numbered, and the violation.
impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, sentence) in self.story.iter().enumerate() {
            if self.cycle_after == Some(index) && self.scenario.is_none() {
                writeln!(f, "      and then, again and again:")?;
            }
            writeln!(f, "{:>4}. {sentence}", index + 1)?;
        }
        write!(f, "      {}", self.breach.what)
    }
}

/// How often the scenario repeats the cycle: once to show it, and once more to show that it returns to its
/// start.
const ROUNDS: usize = 2;

impl Counterexample {
    /// A counterexample whose sentences are those of the model. `described` has the sentences of each step of
    /// the run.
    pub(crate) fn described<A>(breach: Breach, run: &Run<A>, described: Vec<Vec<String>>) -> Self {
        let before_cycle = |after: usize| described[..after].iter().map(Vec::len).sum();
        let cycle_after = run.cycle_after.map(before_cycle);
        let story: Vec<String> = described.into_iter().flatten().collect();
        Self { breach, steps: story.len(), cycle_after, scenario: None, story }
    }

    /// A counterexample whose sentences are those of the simulator, which replays the run.
    pub(super) fn replayed(spec: &CheckSpec, net: &Net, breach: Breach, run: &Run<Action>) -> Self {
        let scenario = scenario(spec, net, &breach, run);
        let story = replay(&scenario);
        Self { steps: run.steps.len(), cycle_after: run.cycle_after, scenario: Some(scenario), story, breach }
    }
}

/// The sentences, from a replay in the simulator.
fn replay(scenario: &str) -> Vec<String> {
    let mut story = Story::default();
    let replayed = Scenario::parse("counterexample", scenario)
        .map_err(|error| UsageError::from(error).into())
        .and_then(|scenario| runner::trace(&scenario.spec, 0, &mut story, &Progress::default()));
    match replayed {
        Ok(_) => story.lines.into_iter().map(|(_, sentence)| sentence).collect(),
        // Cannot happen for a run that the checker found. If it does, a report without sentences is
        // better than a panic.
        Err(error) => vec![format!("(the simulator rejects this run: {error})")],
    }
}

fn scenario(spec: &CheckSpec, net: &Net, breach: &Breach, run: &Run<Action>) -> String {
    let mut text = heading(spec, net.kernel.traits().fifo, breach);
    let (before, cycle) = run.steps.split_at(run.cycle_after.unwrap_or(run.steps.len()));
    let cycles = (0..ROUNDS).flat_map(|_| cycle);
    for (time, step) in (1..).zip(before.iter().chain(cycles)) {
        if time == before.len() + 1 && !cycle.is_empty() {
            let _ = writeln!(text, "{time} say from here on it goes round and round");
        }
        let _ = writeln!(text, "{time} {}", net.describe(&step.action));
    }
    text
}

fn heading(spec: &CheckSpec, fifo: bool, breach: &Breach) -> String {
    let mut text = String::new();
    let mut put = |name: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(text, "{name}: {value}");
    };
    put("title", &format!("{}, {} sites: {}", spec.algorithm, spec.sites, breach.property.breach()));
    put("about", &breach.what);
    put("algorithm", &spec.algorithm);
    put("sites", &spec.sites);
    for (name, value) in &spec.settings {
        put("set", &format!("{name}={value}"));
    }
    put("fifo", &if fifo { "yes" } else { "no" });
    put("cs", &"by hand");
    put("delivery", &"by hand");
    put("timers", &"by hand");
    if !spec.holders.is_empty() {
        put("holder", &lockkeeper_core::mutex::list(&spec.holders, ""));
    }
    text.push('\n');
    text
}
