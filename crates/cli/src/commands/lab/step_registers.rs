//! `lockkeeper step` for algorithms for shared registers: each step is one access, chosen by its key.

use super::lab_error::LabError;
use super::run_text::print_code;
use super::step::{KEYS, Keys};
use crate::print_line;
use lockkeeper_lab::Error;
use lockkeeper_lab::checker::registers::{Choice, Walk};
use std::path::Path;

/// The maximum number of steps of a run.
const MOST_STEPS: usize = 20_000;

/// Lets the user choose each step of a run, and writes it to a file on request.
pub fn drive(mut walk: Walk, save: &Path) -> Result<(), LabError> {
    let mut keys = Keys::new();
    // Whether the whole pseudo-code is shown.
    let mut code = false;
    loop {
        let choices = walk.choices();
        show(&walk, &choices, code);
        match keys.next() {
            None | Some('q') => return Ok(()),
            Some('u') => walk.undo(),
            Some('p') => code = !code,
            Some('w') => {
                std::fs::write(save, text(&walk)).map_err(Error::Trace)?;
                print_line!("written to {}\n", save.display());
            }
            Some(key) => {
                let chosen = KEYS.chars().position(|known| known == key);
                if walk.story().len() >= MOST_STEPS {
                    print_line!("a run has at most {MOST_STEPS} steps: undo some with u\n");
                } else if let Some(chosen) = chosen {
                    walk.take(chosen);
                }
            }
        }
    }
}

/// The run as text, one step a line.
fn text(walk: &Walk) -> String {
    let steps = walk.story().iter().enumerate().map(|(number, step)| format!("{:>4}. {step}\n", number + 1));
    format!("{}, driven by hand\n{}", walk.about().slug, steps.collect::<String>())
}

fn name(process: usize) -> String {
    format!("P{}", process + 1)
}

fn show(walk: &Walk, choices: &[Choice], code: bool) {
    print_line!("── step {} {}", walk.story().len(), "─".repeat(60));
    for register in walk.registers() {
        let writers: Vec<String> = register.writers.into_iter().map(name).collect();
        let value = register.value.unwrap_or_else(|| "undefined".into());
        let written = if writers.is_empty() {
            String::new()
        } else {
            format!("  being written by {}", writers.join(", "))
        };
        print_line!("  {:<14} {value}{written}", register.name);
    }
    let sections: Vec<String> = walk
        .sections()
        .iter()
        .enumerate()
        .map(|(process, section)| format!("{} {section}", name(process)))
        .collect();
    print_line!("\n  {}", sections.join(" · "));
    let fires = walk.story().len().checked_sub(1).map_or(&[][..], |last| walk.fires(last));
    if let Some(step) = walk.story().last() {
        print_line!("\n{step}");
        for &line in fires.iter().filter(|_| !code) {
            print_line!("  ▶ {}", walk.listing().lines[line].trim_start());
        }
    }
    if code {
        print_line!("");
        print_code(&walk.listing().lines, fires);
    }
    if let Some(inside) = walk.inside_together() {
        let names: Vec<String> = inside.into_iter().map(name).collect();
        print_line!("\nmutual exclusion is violated: {} are both inside", names.join(" and "));
    }
    print_line!("");
    for (key, choice) in KEYS.chars().zip(choices) {
        let beyond = if choice.beyond { " (above the highest ticket: see --tickets)" } else { "" };
        print_line!("  {key}  {}{beyond}", choice.what);
    }
    if choices.len() > KEYS.len() {
        print_line!("     … and {} more, for which there are no keys", choices.len() - KEYS.len());
    }
    let shown = if code { "hide" } else { "show" };
    print_line!("  u undo   p {shown} the pseudo-code   w write   q quit\n");
}
