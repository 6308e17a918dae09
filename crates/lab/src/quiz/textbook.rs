//! The questions that lectures ask, each answered by a run.

use super::{Draft, Key, LIMITS};
use crate::checker::{self, CheckSpec};
use crate::simulator::rng::Rng;
use crate::simulator::runner::{self, Error, Progress};
use crate::simulator::scenario::Scenario;
use crate::simulator::spec::{LoadSpec, Spec};
use crate::trace::recording::{Recording, record_run};
use crate::usage::UsageError;
use std::collections::BTreeSet;

const TOPIC: &str = "textbook";

/// All questions of this file.
const QUESTIONS: [fn() -> Result<Draft, Error>; 9] = [
    two_deposits,
    processes_do_not_fail,
    ordering_of_the_ring,
    bandwidth_of_the_ring,
    ordering_of_the_coordinator,
    must_the_reply_be_sent,
    acknowledgement_kept_until_the_release,
    crash_during_an_election,
    election_in_a_partition,
];

/// One of the questions.
pub(super) fn question(rng: &mut Rng) -> Result<Option<Draft>, Error> {
    rng.pick(&QUESTIONS)().map(Some)
}

/// The recorded run of a figure, with the command that shows it.
fn figure(name: &str) -> Result<(Recording, String), Error> {
    let scenario = Scenario::open(name).map_err(UsageError::from)?;
    let recording = record_run(&scenario.run_spec(), 1, LIMITS, &Progress::default())?;
    Ok((recording, format!("lockkeeper scenarios {name}")))
}

/// The index of the first choice for which the condition holds, where the last choice is for all other cases.
fn which(conditions: &[bool]) -> usize {
    conditions.iter().position(|holds| *holds).unwrap_or(conditions.len())
}

fn choices(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

/// "What's wrong?" with two deposits at once: every interleaving of two programs of three steps is run.
fn two_deposits() -> Result<Draft, Error> {
    const START: u64 = 1_000;
    const DEPOSIT: u64 = 10_000;
    let mut finals: BTreeSet<u64> = BTreeSet::new();
    // A bit for each of six steps: the machine that takes it. Each machine takes three.
    for order in (0_u32..1 << 6).filter(|order| order.count_ones() == 3) {
        let (mut account, mut read, mut step) = (START, [0; 2], [0; 2]);
        for place in 0..6 {
            let machine = (order >> place & 1) as usize;
            match step[machine] {
                0 => read[machine] = account,
                1 => read[machine] += DEPOSIT,
                _ => account = read[machine],
            }
            step[machine] += 1;
        }
        finals.insert(account);
    }
    let amounts = [START, START + DEPOSIT, START + 2 * DEPOSIT, START + 3 * DEPOSIT];
    let key = (0..amounts.len()).filter(|&at| finals.contains(&amounts[at])).collect();
    let (recording, command) = figure("two-atms")?;
    Ok(Draft {
        given: vec![
            "An account has 1000. Two cash machines deposit 10000 each at the same time.".into(),
            "Each reads the amount, adds 10000 to what it has read, and writes the sum.".into(),
        ],
        several: true,
        key: Key::Choices(key),
        because: vec![
            "All 20 orders of the six steps were run.".into(),
            "If both read before either writes, one deposit is lost: that is what is wrong. With mutual exclusion \
             the second machine reads after the first has written."
                .into(),
        ],
        command,
        recording: Some(recording),
        ..Draft::choice(
            TOPIC,
            "What's wrong? Without mutual exclusion, which amounts can be in the account at the end? Name all.".into(),
            amounts.iter().map(ToString::to_string).collect(),
            0,
        )
    })
}

fn processes_do_not_fail() -> Result<Draft, Error> {
    let (recording, command) = figure("ricart-agrawala-crash")?;
    let is = |name: &str| recording.wrong.iter().any(|violation| violation.name == name);
    let right = which(&[is("deadlock"), is("mutual exclusion violated")]);
    Ok(Draft {
        given: vec![
            "Ricart and Agrawala's algorithm assumes that processes do not fail.".into(),
            "S3 neither requests nor is inside, and crashes. Then S1 and S2 request.".into(),
        ],
        because: recording.wrong.iter().map(ToString::to_string).collect(),
        command,
        recording: Some(recording),
        ..Draft::choice(
            TOPIC,
            "Processes do not fail. Why is that assumed: what happens here?".into(),
            choices(&[
                "S1 and S2 wait for ever",
                "S1 and S2 are inside together",
                "S1 and S2 enter, one by one",
            ]),
            right,
        )
    })
}

fn ordering_of_the_ring() -> Result<Draft, Error> {
    let mut spec = Spec::new("token-ring", 5);
    spec.load = LoadSpec::Poisson(0.1);
    let report = runner::simulate(&spec, 1, 1, &Progress::default())?;
    let passed = report.fairness.timestamp_inversions;
    Ok(Draft {
        given: vec!["Token ring: the token goes round, and a site that wants to enter waits for it.".into()],
        because: vec![format!(
            "In {} entries of a run, {passed} times a site entered while an earlier request waited: the ring serves in \
             the order of the sites.",
            report.entries
        )],
        command: spec.command(1),
        ..Draft::choice(
            TOPIC,
            "Safety holds, and liveness. Ordering: are requests served in the order in which they are made?"
                .into(),
            choices(&["yes", "no"]),
            usize::from(passed > 0),
        )
    })
}

fn bandwidth_of_the_ring() -> Result<Draft, Error> {
    let mut spec = Spec::new("token-ring", 8);
    spec.load = LoadSpec::Low;
    spec.entries = 100;
    let idle = runner::simulate(&spec, 1, 1, &Progress::default())?.idle_messages;
    Ok(Draft {
        given: vec!["A token ring of 8 sites in which no site wants to enter. A message takes 1 T.".into()],
        because: vec![format!(
            "Measured, in messages per T while no site waits or is inside: {}. The token never rests.",
            (idle * 100.0).round() / 100.0
        )],
        command: spec.command(1),
        ..Draft::number(TOPIC, "Bandwidth: how many messages are sent per T?".into(), idle.round() as u64)
    })
}

fn ordering_of_the_coordinator() -> Result<Draft, Error> {
    let (recording, command) = figure("centralized-order")?;
    let first = recording.steps.iter().find(|step| step.kinds.contains(&"enter"));
    let right = first.and_then(|step| step.site).map_or(0, |site| site.index());
    Ok(Draft {
        given: vec![
            "A coordinator serves first come, first served.".into(),
            "S1 requests at 0 T, and its ENTER takes 3 T. S2 requests at 1 T, and its ENTER takes 1 T."
                .into(),
        ],
        because: vec![
            "The order is that of arrival at the coordinator, not that in which the sites request.".into(),
        ],
        command,
        recording: Some(recording),
        ..Draft::choice(
            TOPIC,
            "Safety, liveness, ordering: which site enters first?".into(),
            choices(&["S1", "S2"]),
            right,
        )
    })
}

fn must_the_reply_be_sent() -> Result<Draft, Error> {
    let report = checker::check(&CheckSpec::new("lamport-suppressed", 3), |_| true)?;
    Ok(Draft {
        given: vec![
            "Lamport's algorithm. A site receives a REQUEST while its own, later request is on its way to the sender."
                .into(),
            "It sends no REPLY, because its REQUEST has a timestamp that is large enough.".into(),
        ],
        because: vec![format!(
            "The checker visits all {} states of three sites: {}.",
            report.distinct,
            if report.is_verified() { "every property holds" } else { "a property is violated" }
        )],
        command: "lockkeeper check lamport-suppressed --sites 3".into(),
        ..Draft::choice(
            TOPIC,
            "Do we really have to send a timestamped REPLY here?".into(),
            choices(&["yes: without it, two can be inside", "yes: without it, sites can wait for ever", "no"]),
            if report.is_verified() { 2 } else { 0 },
        )
    })
}

fn acknowledgement_kept_until_the_release() -> Result<Draft, Error> {
    let spec = Spec::new("ricart-agrawala", 6);
    let report = runner::simulate(&spec, 1, 1, &Progress::default())?;
    let measured = report.messages_per_entry.unwrap_or_default();
    Ok(Draft {
        given: vec![
            "Lamport's algorithm costs 3(N−1) messages per entry. Now a site keeps its REPLY while it waits with an \
             earlier request or is inside, and sends it when it leaves, in place of RELEASE."
                .into(),
            "There are 6 sites.".into(),
        ],
        because: vec![format!(
            "This is Ricart and Agrawala's algorithm: N−1 REQUEST and N−1 REPLY. Measured over {} entries: {measured}.",
            report.entries
        )],
        command: spec.command(1),
        ..Draft::number(TOPIC, "How many messages does one entry cost?".into(), measured.round() as u64)
    })
}

/// The choice of the leader at the end of an election of four sites.
fn leader(recording: &Recording) -> Option<usize> {
    let leads = |site: &usize| recording.summary.starts_with(&format!("S{} leads", site + 1));
    (0..4).find(leads)
}

fn crash_during_an_election() -> Result<Draft, Error> {
    let (recording, command) = figure("bully-crash-during-election")?;
    let right = leader(&recording).unwrap_or(4);
    Ok(Draft {
        given: vec![
            "Bully, four sites. S4, the leader, has crashed, and S1 holds an election.".into(),
            "S3 answers OK to S1 and S2, and crashes before it announces itself.".into(),
        ],
        because: vec![
            "S1 and S2 have got OK and wait for COORDINATOR. When none comes, they ask again.".into(),
            format!("{}.", recording.summary),
        ],
        command,
        recording: Some(recording),
        ..Draft::choice(
            TOPIC,
            "What happens if a process crashes during an election: which site leads at the end?".into(),
            choices(&["S1", "S2", "S3", "S4", "no site: they wait for ever"]),
            right,
        )
    })
}

fn election_in_a_partition() -> Result<Draft, Error> {
    let (recording, command) = figure("bully-cut-in-two")?;
    let leaders = recording.states.iter().filter_map(|states| states.last());
    let leaders = leaders.filter(|(_, state)| state.phase == lockkeeper_core::Phase::Inside).count();
    Ok(Draft {
        given: vec![
            "Bully, five sites, S5 leads. The network is cut: S1 and S2 on one side, S3, S4 and S5 on the other.".into(),
            "S1 misses the leader and holds an election.".into(),
        ],
        because: recording.wrong.iter().map(ToString::to_string).collect(),
        command,
        recording: Some(recording),
        ..Draft::number(
            TOPIC,
            "What happens in a network partition: how many leaders are there at the end?".into(),
            leaders as u64,
        )
    })
}
