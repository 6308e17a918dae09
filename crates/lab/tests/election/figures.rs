//! Elections as scenarios: the figures, and runs that are driven by hand.

use lockkeeper_lab::checker::{self, CheckSpec, Fault, Faults};
use lockkeeper_lab::trace::recording::{Limits, Recording, record_run};
use lockkeeper_lab::{Progress, Scenario};

const LIMITS: Limits = Limits { processes: 64, steps: 20_000, messages: 60_000 };

fn played(scenario: &Scenario) -> Recording {
    record_run(&scenario.run_spec(), 1, LIMITS, &Progress::default()).unwrap()
}

fn run(text: &str) -> Recording {
    played(&Scenario::parse("test", text).unwrap())
}

#[test]
fn figures_end_as_their_titles_say() {
    for (name, summary) in [
        // S2 asks three sites, S3 two, S4 one; three OKs; three COORDINATORs.
        ("bully-leader-crashes", "S4 leads; 12 messages"),
        ("bully-concurrent-initiators", "S3 leads; 11 messages"),
        ("bully-crash-during-election", "S2 leads; 16 messages"),
        ("bully-leader-returns", "S5 leads; 8 messages"),
        ("ring-election-leader-crashes", "S4 leads; 18 messages"),
        ("ring-election-concurrent-initiators", "S4 leads; 36 messages"),
        ("ring-election-crash-during-election", "S3 leads; 33 messages"),
        ("chang-roberts-two-candidates", "S4 leads; 24 messages"),
        ("itai-rodeh-draws-again", "S1 leads; 25 messages"),
        ("raft-split-vote", "S1 leads; 25 messages"),
        ("hirschberg-sinclair-phases", "S5 leads; 51 messages"),
    ] {
        let recording = played(&Scenario::open(name).unwrap());
        assert_eq!(recording.summary, summary, "{name}");
        assert!(recording.wrong.is_empty(), "{name}: {:?}", recording.wrong);
    }
    let cut = played(&Scenario::open("bully-cut-in-two").unwrap());
    let wrong: Vec<&str> = cut.wrong.iter().map(|violation| violation.name.as_str()).collect();
    assert_eq!(wrong, ["two leaders", "no agreement"]);
}

const BY_HAND: &str = "delivery: by hand\ntimers: by hand\n";

#[test]
fn election_is_driven_by_hand_to_its_leader() {
    let text = format!(
        "election: bully\nsites: 3\n{BY_HAND}\n1 crash S3\n2 S1 campaigns\n3 deliver S1>S2 ELECTION\n\
         4 deliver S2>S1 OK\n5 S2 wakes 1\n6 deliver S2>S1 COORDINATOR\n7 S2 wakes 1\n8 S1 suspects S3\n\
         9 S2 suspects S3\n"
    );
    let recording = run(&text);
    assert!(recording.election && recording.wrong.is_empty(), "{:?}", recording.wrong);
    assert_eq!(recording.summary, "S2 leads; 5 messages");
    // Only the messages to the crashed leader are left.
    assert!(recording.held.iter().all(|held| held.to.number() == 3), "{:?}", recording.held);
}

/// A run that is driven by hand is judged when it has come to rest, and not while a site has still to notice a crash.
#[test]
fn agreement_is_judged_at_rest() {
    let crash = format!("election: bully\nsites: 3\n{BY_HAND}\n1 crash S3\n");
    assert!(run(&crash).wrong.is_empty(), "S1 and S2 have not noticed it");
    let all = format!("{crash}2 S1 suspects S3\n3 S2 suspects S3\n");
    assert!(run(&all).wrong.is_empty(), "their elections are under way");
    let wrongly = format!("election: bully\nsites: 3\n{BY_HAND}\n1 S1 campaigns\n2 S1 wakes 1\n");
    let recording = run(&wrongly);
    assert_eq!(recording.wrong.len(), 1, "{:?}", recording.wrong);
    assert_eq!(recording.wrong[0].what, "S1 comes to lead although S3 is up");
}

#[test]
fn messages_are_lost_duplicated_and_delayed_as_the_script_says() {
    let by_hand = format!(
        "election: bully\nsites: 2\n{BY_HAND}\n1 S1 campaigns\n2 duplicate S1>S2 ELECTION\n3 deliver S1>S2 ELECTION\n\
         4 lose S2>S1 OK\n5 deliver S2>S1 OK\n6 deliver S2>S1 OK\n7 S1 wakes 5\n"
    );
    let says: Vec<String> = run(&by_hand).steps.into_iter().map(|step| step.say).collect();
    assert!(says.iter().any(|say| say.contains("OK from S2 to S1 is lost")), "{says:#?}");
    assert!(
        says.iter().any(|say| say.contains("(there is no OK from S2 to S1 under way to deliver)")),
        "{says:#?}"
    );
    assert!(says.iter().any(|say| say.contains("(S1 has no such timer armed)")), "{says:#?}");
    // By delay: the OK takes longer than the timeout, so that S1 leads although S2 is up.
    let slow = "election: bully\nsites: 2\n\n0 slow S2>S1 OK 9\n0 lose S2>S1 COORDINATOR\n1 S1 campaigns\n";
    assert!(run(slow).wrong.iter().any(|violation| violation.name == "two leaders"));
}

/// The checker's runs of elections are scenarios, and the simulator repeats them.
#[test]
fn counterexamples_are_scenarios_that_show_the_same_violation() {
    let one_crash = Faults::default().with(Fault::Crash, 1);
    for spec in [
        CheckSpec { partition: true, ..CheckSpec::new("bully", 3) },
        CheckSpec { short_timeouts: true, ..CheckSpec::new("bully", 3) },
        CheckSpec { short_timeouts: true, ..CheckSpec::new("chang-roberts", 3) },
        CheckSpec { faults: one_crash, partition: true, ..CheckSpec::new("ring-election", 3) },
    ] {
        let found = checker::check(&spec, |_| true).unwrap().counterexample;
        let found = found.unwrap_or_else(|| panic!("{} is violated", spec.algorithm));
        let text = found.scenario.as_deref().expect("elections have scenarios");
        let recording = run(text);
        let shown = recording.wrong.iter().any(|shown| shown.what == found.violation.what);
        assert!(shown, "{text}\n{:?}\n{:?}", found.violation, recording.wrong);
        assert!(!found.story.is_empty() && found.steps > 0);
    }
}
