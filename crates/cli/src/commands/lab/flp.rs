//! `lockkeeper flp`: why no protocol guarantees consensus with one crash.

use super::explain::hanging;
use crate::exit::CliError;
use crate::print_line;
use clap::Args;
use clap::builder::PossibleValuesParser;
use lockkeeper_lab::flp::{AdversaryStep, Lesson, PROTOCOLS, lesson};
use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;

/// The number of steps of the run without a decision if there is no terminal to ask for more.
const STEPS: usize = 12;

/// Show why no protocol guarantees consensus if one process may crash (Fischer, Lynch, Paterson)
///
/// Explores every configuration of two small protocols of three processes, and labels each 0-valent, 1-valent or
/// bivalent. The protocol wait-for-all always decides, but one crash blocks it. The protocol rounds is not blocked, but
/// an adversary that only delays messages keeps it from deciding for as long as you like: the command takes the
/// adversary's steps one by one and names the lemma that each step uses.
#[derive(Args)]
#[command(after_help = "\
On a terminal, each press of Enter takes one step of the adversary, and q ends the run.

Examples:
  lockkeeper flp
  lockkeeper flp --protocol rounds --steps 40
  lockkeeper flp --protocol wait-for-all    # every configuration is univalent, and one crash blocks

Exit codes: 0 done; 64 wrong usage.")]
pub struct Flp {
    /// Show this protocol only.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(PROTOCOLS))]
    protocol: Option<String>,
    /// Take this number of steps of the adversary without waiting for Enter. [default without a terminal: 12]
    #[arg(long, value_name = "N")]
    steps: Option<usize>,
}

impl Flp {
    pub fn run(self) -> ExitCode {
        for name in PROTOCOLS.iter().filter(|name| self.protocol.as_deref().is_none_or(|only| only == **name))
        {
            match lesson(name).expect("a protocol of the list") {
                Ok(lesson) => self.show(&*lesson),
                Err(error) => return CliError::usage(error).report(),
            }
        }
        ExitCode::SUCCESS
    }

    fn show(&self, lesson: &dyn Lesson) {
        for section in lesson.sections() {
            print_line!("{}\n{}", section.title, "─".repeat(section.title.chars().count()));
            for line in &section.lines {
                hanging("  · ", line);
            }
            print_line!("");
        }
        let Some((inputs, run)) = lesson.adversary() else {
            print_line!(
                "No configuration is bivalent, so that an adversary can delay this protocol only by a crash.\n"
            );
            return;
        };
        print_line!(
            "A run without a decision, with the inputs {inputs}: every message is received eventually\n"
        );
        let asks = self.steps.is_none() && std::io::stdin().is_terminal();
        let most = if asks { usize::MAX } else { self.steps.unwrap_or(STEPS) };
        for step in run.take(most) {
            print_step(&step);
            if asks && !goes_on() {
                break;
            }
        }
    }
}

fn print_step(step: &AdversaryStep) {
    print_line!("step {}, turn of {}: {} → {}", step.number, step.turn, step.event, step.valence);
    hanging(&format!("  lemma {}: ", step.lemma), &step.why);
    for (process, state) in (1..).zip(&step.states) {
        print_line!("    S{process}  {state}");
    }
    hanging("    under way: ", &step.under_way.join(", "));
    if let Some(earlier) = step.same_as {
        let text = format!(
            "Apart from the numbers of rounds, this is the configuration after step {earlier}: the steps since then \
             can be repeated for ever without a decision."
        );
        hanging("  ", &text);
    }
    print_line!("");
}

/// Waits for Enter; returns `false` at the end of the input or after q.
fn goes_on() -> bool {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    matches!(read, Ok(bytes) if bytes > 0) && line.trim() != "q"
}
