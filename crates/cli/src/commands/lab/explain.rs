//! `lockkeeper explain`: one algorithm, from its idea to a run described step by step.

use super::run_text::{line_numbers, print_code};
use super::{explain_registers, sim::known};
use crate::exit::CliError;
use crate::print_line;
use clap::Args;
use lockkeeper_core::settings::Setting;
use lockkeeper_lab::comparison::explain::{AnnotatedRun, Explanation, Header, explain};
use lockkeeper_lab::election::explain::{self as election, explain as explain_election};
use std::process::ExitCode;

/// The width at which lines are wrapped.
const WIDTH: usize = 100;

/// Explain an algorithm: idea, messages, cost, assumptions, pitfalls, rules, pseudo-code, and a small run step by step
#[derive(Args)]
#[command(after_help = "\
Examples:
  lockkeeper explain ricart-agrawala
  lockkeeper explain maekawa-basic
  lockkeeper explain bakery             threads and registers instead of messages
  lockkeeper algorithms                 the list of algorithms")]
pub struct Explain {
    /// The algorithm; 'lockkeeper algorithms' lists them.
    algorithm: String,
}

impl Explain {
    pub fn run(self) -> ExitCode {
        if let Ok(Some(explanation)) = explain_election(&self.algorithm) {
            print_election(&explanation);
            return ExitCode::SUCCESS;
        }
        if explain_registers::explain(&self.algorithm) {
            return ExitCode::SUCCESS;
        }
        if let Err(error) = known(&self.algorithm) {
            return CliError::usage(error).report();
        }
        match explain(&self.algorithm) {
            Ok(explanation) => {
                print_algorithm(&explanation);
                ExitCode::SUCCESS
            }
            Err(error) => CliError::usage(error).report(),
        }
    }
}

fn print_algorithm(explanation: &Explanation) {
    let about = explanation.about;
    print_header(about.title, about.slug, &about.family.to_string(), &explanation.header);
    print_line!("\nMessages");
    for kind in &explanation.messages {
        print_line!("  {:<12} {}", kind.name, if kind.only_on_exit { "on exit" } else { "to enter" });
    }
    let cost = &about.cost;
    print_line!("\nCost, with N sites and T the delay of a message");
    for (name, formula) in [
        ("messages per entry, low load", cost.low),
        ("messages per entry, high load", cost.high),
        ("synchronization delay", cost.sync_delay),
        ("client delay", cost.client_delay),
        ("channels", &about.channels.to_string()),
        ("a crash", about.crash),
    ] {
        hanging(&format!("  {name:<30}"), formula);
    }
    print_settings(about.settings);
    print_rules(&explanation.rules);
    print_run(&explanation.run);
    print_line!("Measure it:  lockkeeper compare --algorithms {} --sites 3,7,13 --load low,high", about.slug);
}

fn print_election(explanation: &election::Explanation) {
    let about = explanation.about;
    print_header(about.title, about.slug, "election", &explanation.header);
    print_line!("\nMessages\n  {}", explanation.messages.join(", "));
    print_line!("\nCost, with N sites of which the highest is dead");
    for (name, text) in [("best", about.best), ("worst", about.worst), ("a crash", about.crash)] {
        hanging(&format!("  {name:<30}"), text);
    }
    print_settings(about.settings);
    print_rules(&explanation.rules);
    print_run(&explanation.run);
    print_line!("Measure it:  lockkeeper compare --elections --sites 3,7,13");
}

pub fn print_header(title: &str, slug: &str, family: &str, header: &Header) {
    print_line!("{title}  ({slug}, {family})\n{}\n", "═".repeat(title.chars().count()));
    paragraph("", &header.paper);
    for (name, text) in &header.sections {
        print_line!("");
        paragraph(&format!("{name}. "), text);
    }
    for note in &header.notes {
        print_line!("");
        paragraph("", note);
    }
}

fn print_settings(settings: &[Setting]) {
    for setting in settings {
        let text = format!("{} ({}; default {})", setting.help, setting.values, setting.default);
        hanging(&format!("  {:<30}", format!("--set {}=", setting.name)), &text);
    }
}

fn print_rules(rules: &[&str]) {
    print_line!("\nRules: a site …");
    for rule in rules {
        hanging("  · ", rule);
    }
}

fn print_run(run: &AnnotatedRun) {
    if !run.code.is_empty() {
        print_line!("\nPseudo-code\n");
        print_code(&run.code, &[]);
    }
    print_line!("\nA small run: {}", run.title);
    if !run.code.is_empty() {
        print_line!("In brackets: the lines of the pseudo-code that the step executed.");
    }
    if !run.about.is_empty() {
        paragraph("", &run.about);
    }
    print_line!("");
    let width = run.steps.iter().map(|step| step.at.to_string().len()).max().unwrap_or(0);
    for (number, step) in run.steps.iter().enumerate() {
        let text = format!("{}{}", step.say, line_numbers(&step.fires));
        hanging(&format!("{:>3}. {:>width$} T  ", number + 1, step.at.to_string()), &text);
    }
    print_line!("");
    paragraph("", &run.ending);
    print_line!("\nDraw it:     {}", run.draw);
}

/// Prints wrapped text, whose first line starts with `start`.
fn paragraph(start: &str, text: &str) {
    wrap(start, "", text);
}

/// The same, with the later lines indented by the length of `start`.
pub fn hanging(start: &str, text: &str) {
    wrap(start, &" ".repeat(start.chars().count()), text);
}

fn wrap(start: &str, indent: &str, text: &str) {
    let mut line = start.to_string();
    let mut begun = false;
    for word in text.split_whitespace() {
        if begun && line.chars().count() + 1 + word.chars().count() > WIDTH {
            print_line!("{line}");
            line = indent.to_string();
            begun = false;
        }
        if begun {
            line.push(' ');
        }
        line.push_str(word);
        begun = true;
    }
    print_line!("{line}");
}
