//! A run that shows a violation: as sentences, and as a scenario that the simulator replays.

use super::Question;
use super::liveness::Lasso;
use super::machine::Breach;
use super::mutex::Own;
use super::net::{Action, Net};
use crate::property::{Names, Property};
use crate::runner::{self, Progress};
use crate::scenario::Scenario;
use crate::trace::Story;
use lockkeeper_core::{Mode, SiteId};
use serde::{Serialize, Serializer};
use std::fmt::Write as _;

/// A violation and a shortest run that shows it.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// The violation.
    pub breach: Breach,
    /// Number of steps of the run.
    pub steps: usize,
    /// If the run ends in a cycle: the number of steps before the cycle.
    pub circle_after: Option<usize>,
    /// The run as a scenario.
    pub scenario: String,
    /// The run in sentences, one for each step.
    pub story: Vec<String>,
}

impl Serialize for Counterexample {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(&self.story)
    }
}

impl Lasso {
    /// The violation that it shows.
    pub fn breach(&self) -> Breach {
        let victim = SiteId::new(self.victim);
        let what = format!("{victim} waits for ever while the others enter again and again");
        Breach { property: Property::NoStarvation, sites: vec![victim], what }
    }
}

/// How often the scenario repeats the cycle: once to show it, and once more to show that it returns to its
/// start.
const ROUNDS: usize = 2;

impl Counterexample {
    pub(super) fn new(
        question: &Question,
        net: &Net,
        breach: Breach,
        run: &[Action],
        circle: &[Action],
    ) -> Self {
        let mut text = heading(question, net.kernel.traits().fifo, &breach);
        let names = Names { sites: question.sites };
        let circles = (0..ROUNDS).flat_map(|_| circle);
        for (time, action) in (1..).zip(run.iter().chain(circles)) {
            if time == run.len() + 1 && !circle.is_empty() {
                let _ = writeln!(text, "{time} say from here on it goes round and round");
            }
            let _ = writeln!(text, "{time} {}", line(net, names, action));
        }
        let mut counterexample = Self {
            steps: run.len() + circle.len(),
            circle_after: (!circle.is_empty()).then_some(run.len()),
            story: Vec::new(),
            scenario: text,
            breach,
        };
        counterexample.story = counterexample.tell();
        counterexample
    }

    /// The sentences, from a replay in the simulator.
    fn tell(&self) -> Vec<String> {
        let mut story = Story::default();
        let told = Scenario::parse("counterexample", &self.scenario)
            .map_err(runner::Error::Usage)
            .and_then(|scenario| runner::trace(&scenario.spec, 0, &mut story, &Progress::default()));
        match told {
            Ok(_) => story.lines.into_iter().map(|(_, sentence)| sentence).collect(),
            // Cannot happen for a run that the checker found. If it does, a report without sentences is
            // better than a panic.
            Err(error) => vec![format!("(the simulator rejects this run: {error})")],
        }
    }
}

fn heading(question: &Question, fifo: bool, breach: &Breach) -> String {
    let mut text = String::new();
    let mut put = |name: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(text, "{name}: {value}");
    };
    put("title", &format!("{}, {} sites: {}", question.algorithm, question.sites, breach.property.breach()));
    put("about", &breach.what);
    put("algorithm", &question.algorithm);
    put("sites", &question.sites);
    for (name, value) in &question.settings {
        put("set", &format!("{name}={value}"));
    }
    put("fifo", &if fifo { "yes" } else { "no" });
    put("cs", &"by hand");
    put("delivery", &"by hand");
    put("timers", &"by hand");
    if !question.holders.is_empty() {
        put("holder", &lockkeeper_core::mutex::list(&question.holders, ""));
    }
    text.push('\n');
    text
}

/// A step as a line of a scenario.
fn line(net: &Net, names: Names, action: &Action) -> String {
    let name = |who: usize| names.of(SiteId::new(who));
    let message = |verb: &str, from: usize, to: usize, parcel: u32| {
        format!("{verb} {}>{} {}", name(from), name(to), net.kernel.text(parcel))
    };
    match *action {
        Action::Deliver(from, to, parcel) => message("deliver", from, to, parcel),
        Action::Lose(from, to, parcel) => message("lose", from, to, parcel),
        Action::Duplicate(from, to, parcel) => message("duplicate", from, to, parcel),
        Action::Choice(who, choice) => {
            let site = name(who);
            match Own::of(choice.code) {
                Own::Request(Mode::Exclusive) => format!("{site} requests"),
                Own::Request(Mode::Shared) => format!("{site} requests shared"),
                Own::Exit => format!("{site} exits"),
                Own::Crash => format!("crash {site}"),
                Own::Restart => format!("recover {site}"),
                Own::Forget => format!("{site} forgets"),
                Own::Suspect(other) => format!("{site} suspects {}", names.of(other)),
                Own::Timer(which) => format!("{site} wakes {}", which + 1),
            }
        }
    }
}
