//! Exercises made from random runs.

use super::{Draft, Key, LIMITS};
use crate::checker::{self, Fault, gallery};
use crate::property::Property;
use crate::simulator::rng::Rng;
use crate::simulator::runner::{self, Error, Progress};
use crate::simulator::scenario::Scenario;
use crate::simulator::spec::{LoadSpec, Spec};
use crate::trace::recording::{Recording, record_run};
use crate::usage::UsageError;
use lockkeeper_core::{Phase, SiteId, registry};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The algorithms of the exercises: those in which a handful of sites leaves little to chance.
const ALGORITHMS: [&str; 10] = [
    "centralized",
    "lamport",
    "ricart-agrawala",
    "roucairol-carvalho",
    "suzuki-kasami",
    "raymond",
    "naimi-trehel",
    "neilsen-mizuno",
    "token-ring-parked",
    "maekawa",
];

/// A random system with requests at random times.
struct Drawn {
    algorithm: &'static str,
    sites: usize,
    /// The sites that request, with their times in halves of T.
    requests: Vec<(usize, usize)>,
}

impl Drawn {
    fn new(rng: &mut Rng, requesters: usize) -> Self {
        let algorithm = *rng.pick(&ALGORITHMS);
        let sites = 3 + rng.below(2);
        let mut idle: Vec<usize> = (0..sites).collect();
        let mut requests = Vec::new();
        for _ in 0..requesters.min(sites) {
            let site = idle.remove(rng.below(idle.len()));
            requests.push((rng.below(4), site));
        }
        requests.sort_unstable();
        Self { algorithm, sites, requests }
    }

    fn events(&self) -> Vec<String> {
        let time = |halves: usize| if halves.is_multiple_of(2) { "" } else { ".5" };
        let event =
            |&(at, site): &(usize, usize)| format!("{}{} {} requests", at / 2, time(at), SiteId::new(site));
        self.requests.iter().map(event).collect()
    }

    /// The text of the scenario.
    fn text(&self) -> String {
        let mut text = format!(
            "title: {0} with {1} sites\nalgorithm: {0}\nsites: {1}\ncs: 1\n\n",
            self.algorithm, self.sites
        );
        for event in self.events() {
            let _ = writeln!(text, "{event}");
        }
        text
    }

    /// The system and its requests, for the reader.
    fn given(&self) -> Vec<String> {
        let mut given = vec![
            system(self.algorithm, self.sites),
            "A message takes 1 T, and a site stays inside for 1 T.".into(),
        ];
        let requests = self.events().into_iter().map(|event| match event.split_once(' ') {
            Some((time, event)) => format!("At {time} T, {event}."),
            None => event,
        });
        given.extend(requests);
        given
    }

    fn record(&self) -> Result<Recording, Error> {
        recorded(&self.text())
    }

    /// The command that shows the run.
    fn command(&self) -> String {
        format!("lockkeeper scenarios run.scenario, with run.scenario:\n{}", self.text())
    }
}

/// An algorithm in a sentence: `Maekawa's algorithm, 4 sites. A site needs …`
fn system(algorithm: &str, sites: usize) -> String {
    match registry::find(algorithm) {
        Some(entry) => format!("{} ({algorithm}), {sites} sites. {}", entry.about.title, entry.about.idea),
        None => format!("{algorithm}, {sites} sites."),
    }
}

fn recorded(scenario: &str) -> Result<Recording, Error> {
    let scenario = Scenario::parse("exercise", scenario).map_err(UsageError::from)?;
    let mut recording = record_run(&scenario.run_spec(), 1, LIMITS, &Progress::default())?;
    recording.command.clear();
    Ok(recording)
}

/// The numbered sentences of a run.
fn story(recording: &Recording) -> Vec<String> {
    let steps = recording.steps.iter().filter(|step| !step.say.is_empty());
    steps.map(|step| format!("{} T: {}", step.at, step.say)).collect()
}

/// How many messages does this run take?
pub(super) fn messages_of_a_run(rng: &mut Rng) -> Result<Option<Draft>, Error> {
    let requesters = 1 + rng.below(2);
    let drawn = Drawn::new(rng, requesters);
    let recording = drawn.record()?;
    let text = "How many messages are sent until all have entered and left?".to_string();
    Ok(Some(Draft {
        given: drawn.given(),
        because: story(&recording),
        command: drawn.command(),
        recording: Some(recording.clone()),
        ..Draft::number("messages", text, recording.messages.len() as u64)
    }))
}

/// Which site enters next?
pub(super) fn next_to_enter(rng: &mut Rng) -> Result<Option<Draft>, Error> {
    let drawn = Drawn::new(rng, 3);
    let recording = drawn.record()?;
    let enters = |step: &usize| recording.steps[*step].kinds.contains(&"enter");
    let waiting = |step: usize| {
        let at = |states: &[(usize, crate::trace::SiteState)]| {
            states.iter().rev().find(|(since, _)| *since <= step).map(|(_, state)| state.phase)
        };
        recording.states.iter().filter(|states| at(states) == Some(Phase::Waiting)).count()
    };
    // Steps after which two sites wait, and a step other than the very next one is the entry.
    let moments: Vec<(usize, usize)> = (1..recording.steps.len())
        .filter(|&step| waiting(step) >= 2)
        .filter_map(|step| Some((step, (step + 1..recording.steps.len()).find(enters)?)))
        .filter(|(step, entry)| entry - step > 1)
        .collect();
    if moments.is_empty() {
        return Ok(None);
    }
    let &(step, entry) = rng.pick(&moments);
    let Some(site) = recording.steps[entry].site else { return Ok(None) };
    let shown = recording.until(step);
    let choices = recording.names[..drawn.sites].to_vec();
    let text = "Which site enters next?".to_string();
    let mut given = drawn.given();
    given.push("So far:".into());
    given.extend(story(&shown));
    Ok(Some(Draft {
        given,
        shown: Some(shown),
        because: story(&recording).split_off(step.min(recording.steps.len() - 1)),
        command: drawn.command(),
        recording: Some(recording.clone()),
        ..Draft::choice("next entry", text, choices, site.index())
    }))
}

/// Which of the messages under way may arrive now?
pub(super) fn may_arrive_next(rng: &mut Rng) -> Result<Option<Draft>, Error> {
    let sites = 3;
    let mut text = format!(
        "title: lamport with {sites} sites, driven by hand\nalgorithm: lamport\nsites: {sites}\nfifo: yes\n\
         cs: by hand\ndelivery: by hand\n\n"
    );
    let mut recording = recorded(&text)?;
    for time in 1..=5 + rng.below(6) {
        let choices = steps_by_hand(&recording);
        if choices.is_empty() {
            break;
        }
        let _ = writeln!(text, "{time} {}", rng.pick(&choices));
        recording = recorded(&text)?;
    }
    let held = &recording.held;
    let first = |place: usize| {
        held[..place].iter().all(|earlier| (earlier.from, earlier.to) != (held[place].from, held[place].to))
    };
    let key: BTreeSet<usize> = (0..held.len()).filter(|&place| first(place)).collect();
    if !(3..=7).contains(&held.len()) || key.len() == held.len() {
        return Ok(None);
    }
    let name = |site: SiteId| &recording.names[site.index()];
    let choices: Vec<String> = held
        .iter()
        .map(|held| format!("{} from {} to {}", held.text, name(held.from), name(held.to)))
        .collect();
    let mut because = vec![
        "On a FIFO channel a message arrives after all that were sent before it from the same site to the same site."
            .to_string(),
    ];
    because.extend((0..held.len()).filter(|place| !key.contains(place)).filter_map(|place| {
        let earlier = held[..place]
            .iter()
            .find(|earlier| (earlier.from, earlier.to) == (held[place].from, held[place].to))?;
        Some(format!("{} has to wait for {}.", choices[place], earlier.text))
    }));
    let mut given = vec![system("lamport", sites), "Channels are FIFO. So far:".into()];
    given.extend(story(&recording));
    Ok(Some(Draft {
        given,
        shown: Some(recording.clone()),
        several: true,
        key: Key::Choices(key),
        because,
        command: format!("lockkeeper step lamport --sites {sites}"),
        recording: Some(recording.clone()),
        ..Draft::choice(
            "next message",
            "Which of these messages may arrive now? Name all.".into(),
            choices,
            0,
        )
    }))
}

/// The steps that are possible in a run that is driven by hand.
fn steps_by_hand(recording: &Recording) -> Vec<String> {
    let name = |site: SiteId| &recording.names[site.index()];
    let mut steps = Vec::new();
    for (place, held) in recording.held.iter().enumerate() {
        let before = &recording.held[..place];
        if before.iter().all(|earlier| (earlier.from, earlier.to) != (held.from, held.to)) {
            steps.push(format!("deliver {}>{} {}", name(held.from), name(held.to), held.text));
        }
    }
    for (site, states) in SiteId::all(recording.states.len()).zip(&recording.states) {
        match states.last().map(|(_, state)| state.phase) {
            Some(Phase::Idle) => steps.push(format!("{} requests", name(site))),
            Some(Phase::Inside) => steps.push(format!("{} exits", name(site))),
            _ => {}
        }
    }
    steps
}

/// The maximum number of states of a search for one exercise.
const MOST_STATES: u64 = 20_000;

/// The faults of the systems in which mutants are searched for.
const FAULTS: [(Fault, &str); 4] = [
    (Fault::Crash, "One site may crash at any time."),
    (Fault::Restart, "A crashed site may start again without its state."),
    (Fault::Forget, "One idle site may lose its state at any time."),
    (Fault::Suspicion, "One site that is up may be suspected of having crashed."),
];

/// What does the checker find if this guard is changed?
pub(super) fn what_breaks(rng: &mut Rng) -> Result<Option<Draft>, Error> {
    const ASKED: [Property; 3] = [Property::MutualExclusion, Property::NoDeadlock, Property::NoStarvation];
    let exhibits = gallery::all();
    let exhibit = rng.pick(&exhibits);
    for spec in exhibit.systems.iter().take(3) {
        let report = checker::check(spec, |progress| progress.distinct < MOST_STATES)?;
        if !report.complete {
            return Ok(None);
        }
        let Some(found) = report.counterexample else { continue };
        let Some(right) = ASKED.iter().position(|asked| *asked == found.violation.property) else {
            return Ok(None);
        };
        let mut choices: Vec<String> =
            ASKED.iter().map(|property| property.violation_name().to_string()).collect();
        choices.push("nothing: every property still holds".into());
        let requests = match spec.requests {
            None => "that request again and again".into(),
            Some(1) => "that request once each".into(),
            Some(times) => format!("that request {times} times each"),
        };
        let recording = found.scenario.as_deref().map(recorded).transpose()?;
        let mut given =
            vec![system(exhibit.twin, spec.sites), format!("One thing is different: {}.", exhibit.story)];
        for (fault, sentence) in FAULTS {
            if spec.faults.of(fault) > 0 {
                given.push(sentence.into());
            }
        }
        return Ok(Some(Draft {
            given,
            because: found.story.clone().into_iter().chain([format!("{}.", found.violation.what)]).collect(),
            command: format!("lockkeeper check {} --sites {}", spec.algorithm, spec.sites),
            recording,
            ..Draft::choice(
                "changed guard",
                format!(
                    "With {} sites {requests}, what is the first violation that a search of all runs finds?",
                    spec.sites
                ),
                choices,
                right,
            )
        }));
    }
    Ok(None)
}

/// How many messages does one entry cost?
pub(super) fn cost(rng: &mut Rng) -> Result<Option<Draft>, Error> {
    let algorithm = *rng.pick(&ALGORITHMS);
    let sites = *rng.pick(&[3, 4, 5, 7, 9]);
    let (load, name) = *rng.pick(&[
        (LoadSpec::Pairs, "low load: one request at a time"),
        (LoadSpec::High, "high load: every site requests again as soon as it has left"),
    ]);
    let mut spec = Spec::new(algorithm, sites);
    (spec.load, spec.entries) = (load, (sites * sites * 4) as u64);
    let report = runner::simulate(&spec, 1, 1, &Progress::default())?;
    let Some(measured) = report.messages_per_entry.filter(|cost| cost.fract() == 0.0) else {
        return Ok(None);
    };
    let formula = registry::find(algorithm).map_or("", |entry| match load {
        LoadSpec::High => entry.about.cost.high,
        _ => entry.about.cost.low,
    });
    let counted = report.by_message.iter().filter(|(_, count)| **count > 0);
    let per_entry = counted
        .map(|(name, count)| format!("{name}: {} per entry", *count as f64 / report.entries.max(1) as f64));
    let mut because =
        vec![format!("The paper's formula is {formula}. Measured over {} entries:", report.entries)];
    because.extend(per_entry);
    Ok(Some(Draft {
        given: vec![system(algorithm, sites), format!("At {name}.")],
        because,
        command: spec.command(1),
        ..Draft::number("cost", "How many messages does one entry cost?".into(), measured as u64)
    }))
}
