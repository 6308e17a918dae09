//! A run that shows a violation: as sentences, and as a scenario that the simulator replays.

use super::mutual_exclusion::machine::Violation;
use super::mutual_exclusion::net::{Action, Net};
use super::spec::CheckSpec;
use crate::checker::explore::Run;
use crate::simulator::runner::Progress;
use crate::simulator::scenario::Scenario;
use crate::trace::Story;
use crate::usage::UsageError;
use serde::{Serialize, Serializer};
use std::fmt::{self, Write as _};

/// A violation and a shortest run that shows it.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// The violation.
    pub violation: Violation,
    /// Number of steps of the run.
    pub steps: usize,
    /// If the run ends in a cycle: the number of steps before the cycle.
    pub cycle_after: Option<usize>,
    /// The run as a scenario for the simulator. `None` for registers, which have none.
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
        write!(f, "      {}", self.violation.what)
    }
}

/// How often the scenario repeats the cycle: once to show it, and once more to show that it returns to its
/// start.
const ROUNDS: usize = 2;

impl Counterexample {
    /// A counterexample whose sentences are those of the model. `described` has the sentences of each step of
    /// the run.
    pub(crate) fn described<A>(violation: Violation, run: &Run<A>, described: Vec<Vec<String>>) -> Self {
        let before_cycle = |after: usize| described[..after].iter().map(Vec::len).sum();
        let cycle_after = run.cycle_after.map(before_cycle);
        let story: Vec<String> = described.into_iter().flatten().collect();
        Self { violation, steps: story.len(), cycle_after, scenario: None, story }
    }

    /// A counterexample whose sentences are those of the simulator, which replays the run.
    pub(super) fn replayed(spec: &CheckSpec, net: &Net, violation: Violation, run: &Run<Action>) -> Self {
        let lines: Vec<String> = run.steps.iter().map(|step| net.describe(&step.action)).collect();
        let heading = heading(spec, false, net.kernel.traits().fifo, &violation);
        let scenario = scenario(heading, &lines, run.cycle_after);
        let story = replay(&scenario);
        Self {
            steps: run.steps.len(),
            cycle_after: run.cycle_after,
            scenario: Some(scenario),
            story,
            violation,
        }
    }

    /// The same run of an election with the sentences of the simulator. The model has described it by the lines of a
    /// scenario.
    pub(crate) fn replayed_election(self, spec: &CheckSpec, fifo: bool) -> Self {
        let scenario = scenario(heading(spec, true, fifo, &self.violation), &self.story, self.cycle_after);
        Self { story: replay(&scenario), scenario: Some(scenario), ..self }
    }
}

/// The sentences, from a replay in the simulator.
fn replay(scenario: &str) -> Vec<String> {
    let mut story = Story::default();
    let replayed = Scenario::parse("counterexample", scenario)
        .map_err(|error| UsageError::from(error).into())
        .and_then(|scenario| scenario.run_spec().trace(0, &mut story, &Progress::default()));
    match replayed {
        Ok(_) => story.lines.into_iter().map(|(_, sentence)| sentence).collect(),
        // Cannot happen for a run that the checker found. If it does, a report without sentences is
        // better than a panic.
        Err(error) => vec![format!("(the simulator rejects this run: {error})")],
    }
}

fn scenario(heading: String, lines: &[String], cycle_after: Option<usize>) -> String {
    let mut text = heading;
    let (before, cycle) = lines.split_at(cycle_after.unwrap_or(lines.len()));
    let cycles = (0..ROUNDS).flat_map(|_| cycle);
    for (time, line) in (1..).zip(before.iter().chain(cycles)) {
        if time == before.len() + 1 && !cycle.is_empty() {
            let _ = writeln!(text, "{time} say from here on it goes round and round");
        }
        let _ = writeln!(text, "{time} {line}");
    }
    text
}

fn heading(spec: &CheckSpec, election: bool, fifo: bool, violation: &Violation) -> String {
    let mut text = String::new();
    let mut put = |name: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(text, "{name}: {value}");
    };
    put(
        "title",
        &format!("{}, {} sites: {}", spec.algorithm, spec.sites, violation.property.violation_name()),
    );
    put("about", &violation.what);
    put(if election { "election" } else { "algorithm" }, &spec.algorithm);
    put("sites", &spec.sites);
    for (name, value) in &spec.settings {
        put("set", &format!("{name}={value}"));
    }
    put("fifo", &if fifo { "yes" } else { "no" });
    if !election {
        put("cs", &"by hand");
    }
    put("delivery", &"by hand");
    put("timers", &"by hand");
    if !spec.holders.is_empty() {
        put("holder", &lockkeeper_core::mutex::list(&spec.holders, ""));
    }
    text.push('\n');
    text
}
