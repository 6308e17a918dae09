//! Every algorithm has pseudo-code, and every rule of it has a line.

use lockkeeper_core::registry;
use lockkeeper_lab::checker::registers::{self, RegisterKind, Walk};
use lockkeeper_lab::pseudocode::Listing;
use lockkeeper_lab::simulator::figures;
use lockkeeper_lab::trace::recording::{Limits, record_run};
use lockkeeper_lab::{Progress, Scenario, algorithm, election};

const LIMITS: Limits = Limits { processes: 64, steps: 20_000, messages: 60_000 };

/// The rules without a line, and the messages that no line names.
fn missing(listing: &Listing, rules: &[&'static str], messages: &[&'static str]) -> Vec<&'static str> {
    let text = listing.lines.join("\n");
    let rules = rules.iter().filter(|rule| listing.lines_of(rule).is_empty());
    // An acknowledgement belongs to the transport, and no paper names it.
    let messages = messages.iter().filter(|name| !text.contains(**name) && **name != "ACK");
    rules.chain(messages).copied().collect()
}

#[test]
fn every_rule_of_every_algorithm_has_a_line() {
    let mut all = Vec::new();
    for entry in registry::ALL {
        let algorithm = algorithm::find(entry.about.slug).unwrap();
        let messages: Vec<&str> = algorithm.kinds().iter().map(|kind| kind.name).collect();
        let listing = Listing::of_algorithm(algorithm);
        all.push((entry.about.slug, missing(&listing, &algorithm.rules(), &messages), listing));
    }
    for entry in registry::ELECTIONS {
        let election = election::algorithm::find(entry.about.slug).unwrap();
        let rules: Vec<&str> = (0..).map_while(|rule| election.rule(rule)).collect();
        let messages: Vec<&str> = election.kinds().iter().map(|kind| kind.name).collect();
        let listing = Listing::of_election(election);
        all.push((entry.about.slug, missing(&listing, &rules, &messages), listing));
    }
    let incomplete: Vec<String> = all
        .iter()
        .filter(|(_, missing, listing)| !missing.is_empty() || !listing.unknown().is_empty())
        .map(|(slug, missing, listing)| {
            format!("{slug}: no line for {missing:?}; no rules {:?}", listing.unknown())
        })
        .collect();
    assert!(incomplete.is_empty(), "{}", incomplete.join("\n"));
}

#[test]
fn lines_are_short_enough_to_stand_beside_a_run() {
    for entry in registry::ALL {
        let listing = Listing::of_algorithm(algorithm::find(entry.about.slug).unwrap());
        assert!(listing.lines.len() <= 40, "{}", entry.about.slug);
        for line in &listing.lines {
            assert!(line.chars().count() <= 80 && !line.contains('@'), "{}: {line}", entry.about.slug);
        }
    }
}

/// A mutant is shown with the pseudo-code of the correct algorithm, whose rules it has.
#[test]
fn mutants_have_the_listing_of_their_twin() {
    let of = |name| Listing::of_algorithm(algorithm::find_with_mutants(name).unwrap());
    assert_eq!(of("lamport-without-l1"), of("lamport"));
}

#[test]
fn steps_of_every_figure_name_the_lines_that_they_execute() {
    for figure in figures::ALL {
        let run = Scenario::parse(figure.name, figure.text).unwrap().run_spec();
        let recording = record_run(&run, 1, LIMITS, &Progress::default()).unwrap();
        let fires = recording.steps.iter().flat_map(|step| &step.fires);
        assert!(fires.clone().count() > 1, "{}", figure.name);
        assert!(fires.clone().all(|line| *line < recording.code.len()), "{}", figure.name);
        // A step that gives a reason names the lines.
        for step in recording.steps.iter().filter(|step| step.say.contains(": it ")) {
            assert!(!step.fires.is_empty(), "{}: {}", figure.name, step.say);
        }
    }
}

#[test]
fn reply_at_once_fires_its_line() {
    let run = Scenario::open("ricart-agrawala-two-requests").unwrap().run_spec();
    let recording = record_run(&run, 1, LIMITS, &Progress::default()).unwrap();
    let step = recording
        .steps
        .iter()
        .find(|step| step.say.contains("does not request: it replies at once"))
        .unwrap();
    let lines: Vec<&str> = step.fires.iter().map(|line| recording.code[*line].trim()).collect();
    assert!(lines.contains(&"if not requesting: send REPLY to Si"), "{lines:?}");
}

/// The register of a step's sentence, without its index: `number` of `P1 reads number[2] = 0`.
fn register(step: &str) -> &str {
    let words: Vec<&str> = step.split(' ').collect();
    let verb = words.iter().position(|word| ["reads", "writes", "write", "written"].contains(word)).unwrap();
    // The registers of a tournament have the name of their node before that of the register.
    let name = words[verb + 1..].iter().find(|word| !["root", "lower"].contains(word)).unwrap();
    name.split('[').next().unwrap()
}

#[test]
fn every_step_on_registers_executes_a_line_with_its_register() {
    for about in &registers::ALL {
        for kind in [RegisterKind::Atomic, about.weakest] {
            for processes in [2, 3] {
                let mut walk = Walk::new(about.slug, processes, kind, None).unwrap();
                walk.in_turn();
                let listing = walk.listing();
                assert!(!listing.is_empty(), "{} has no pseudo-code", about.slug);
                if about.mutant_of.is_none() {
                    assert_eq!(listing.unknown(), [] as [&str; 0], "{}", about.slug);
                }
                for (number, step) in walk.story().iter().enumerate() {
                    let fires = walk.fires(number);
                    let lines: Vec<&str> = fires.iter().map(|line| listing.lines[*line]).collect();
                    let named = lines.iter().any(|line| line.contains(register(step)));
                    assert!(named, "{}: {step} executes {lines:?}", about.slug);
                }
            }
        }
    }
}

#[test]
fn an_undone_step_executes_no_line() {
    let mut walk = Walk::new("peterson", 2, RegisterKind::Atomic, None).unwrap();
    assert!(walk.take(0));
    assert_eq!(
        walk.fires(0).iter().map(|line| walk.listing().lines[*line].trim()).collect::<Vec<_>>(),
        ["flag[s] := true"]
    );
    walk.undo();
    assert!(walk.fires(0).is_empty());
}
