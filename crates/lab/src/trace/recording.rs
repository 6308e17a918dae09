//! A recording of a run: every step, every message, and the state of every site after each step, so that a
//! user can move through the run in both directions.

use crate::election::ElectionSpec;
use crate::pseudocode::Listing;
use crate::simulator::run_spec::{Ending, RunSpec, RunViolation};
use crate::simulator::runner::{Error, Progress};
use crate::simulator::spec::{Action, Spec};
use crate::simulator::time::Time;
use crate::trace::{EventKind, Held, Record, Sink, SiteState, Stage, sentence};
use crate::usage::UsageError;
use lockkeeper_core::SiteId;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// The limits of a recording.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum number of processes.
    pub processes: usize,
    /// The maximum number of steps; a longer run is cut off.
    pub steps: usize,
    /// The maximum number of messages; a run that sends more is cut off.
    pub messages: usize,
}

/// A recorded run. The names of the fields are those of its JSON form.
#[derive(Clone, Debug, Serialize)]
pub struct Recording {
    /// The command that reproduces the run; empty if only its scenario does.
    pub command: String,
    /// Number of sites that may request.
    pub sites: usize,
    /// The display names of the processes.
    pub names: Vec<String>,
    /// The steps. The first one is the start.
    pub steps: Vec<Step>,
    /// The messages sent.
    pub messages: Vec<Message>,
    /// For each process, its states, each with the step from which it applies.
    pub states: Vec<Vec<(usize, SiteState)>>,
    /// The partitions.
    pub cuts: Vec<Cut>,
    /// The messages under way at the end that wait to be delivered by hand, oldest first.
    pub held: Vec<Held>,
    /// The duration of the run.
    pub end: Time,
    /// Whether the run is longer than the recording.
    pub cut_off: bool,
    /// Whether the run is an election. In that case the sites that consider themselves the leader count as
    /// inside.
    pub election: bool,
    /// The violations; empty if the run was cut off.
    pub wrong: Vec<RunViolation>,
    /// A short summary.
    pub summary: String,
    /// The lines of the algorithm's pseudo-code; empty if it has none.
    pub code: Vec<&'static str>,
}

/// A step: the events at one site at one instant.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// The time.
    pub at: Time,
    /// The site. `None` for a change of the network or a remark.
    pub site: Option<SiteId>,
    /// The kinds of its events: `request`, `enter`, `exit`, `receive`, …
    pub kinds: Vec<&'static str>,
    /// The events in sentences.
    pub say: String,
    /// The lines of the pseudo-code that it executes, counted from 0.
    pub fires: Vec<usize>,
}

impl Step {
    /// A step with one event.
    pub(crate) fn new(at: Time, site: Option<SiteId>, kind: &'static str, say: String) -> Self {
        Self { at, site, kinds: vec![kind], say, fires: Vec::new() }
    }
}

/// A message.
#[derive(Clone, Debug, Serialize)]
pub struct Message {
    /// The sender.
    pub from: SiteId,
    /// The receiver.
    pub to: SiteId,
    /// The text of the message.
    pub text: String,
    /// The step in which it was sent.
    pub sent: usize,
    /// The step in which it arrived or was lost. `None` if it is still under way.
    pub ended: Option<usize>,
    /// Whether it was lost.
    pub lost: bool,
}

/// A partition.
#[derive(Clone, Debug, Serialize)]
pub struct Cut {
    /// The sites on one side.
    pub left: Vec<SiteId>,
    /// The sites on the other side.
    pub right: Vec<SiteId>,
    /// Whether only messages from left to right are lost.
    pub one_way: bool,
    /// The start of the partition.
    pub from: Time,
    /// Its end. `None` if it does not end.
    pub to: Option<Time>,
}

/// Runs a spec once and records it.
pub fn record(spec: &Spec, seed: u64, limits: Limits, progress: &Progress) -> Result<Recording, Error> {
    record_run(&RunSpec::MutualExclusion(spec.clone()), seed, limits, progress)
}

/// Runs an election once and records it.
pub fn record_election(spec: &ElectionSpec, seed: u64, limits: Limits) -> Result<Recording, Error> {
    record_run(&RunSpec::Election(spec.clone()), seed, limits, &Progress::default())
}

/// Runs a run of either kind once and records it.
pub fn record_run(run: &RunSpec, seed: u64, limits: Limits, progress: &Progress) -> Result<Recording, Error> {
    let mut recorder = Recorder::new(run, limits)?;
    let ended = run.trace(seed, &mut recorder, progress);
    let mut recording = recorder.recording;
    (recording.election, recording.command) = (run.is_election(), run.command(seed));
    match ended {
        // A run that was cut off has no result.
        Ok(_) | Err(Error::Interrupted) if recording.cut_off => {}
        Ok(Ending { violations, summary }) => {
            (recording.wrong, recording.summary) = (violations, summary);
        }
        Err(error) => return Err(error),
    }
    Ok(recording)
}

impl Recording {
    /// The recording as it was after a step: without later steps, states, messages and results.
    pub fn until(&self, step: usize) -> Self {
        let mut part = self.clone();
        part.steps.truncate(step + 1);
        part.end = part.steps.last().map_or(Time::ZERO, |last| last.at);
        part.messages.retain(|message| message.sent <= step);
        for message in part.messages.iter_mut().filter(|message| message.ended > Some(step)) {
            (message.ended, message.lost) = (None, false);
        }
        for states in &mut part.states {
            states.retain(|(since, _)| *since <= step);
        }
        part.cuts.retain(|cut| cut.from <= part.end);
        (part.wrong, part.summary, part.cut_off) = (Vec::new(), String::new(), false);
        part
    }

    /// An empty recording for processes with these names, to be filled by the caller.
    pub fn of(names: Vec<String>) -> Self {
        Self {
            command: String::new(),
            sites: names.len(),
            steps: Vec::new(),
            messages: Vec::new(),
            states: vec![Vec::new(); names.len()],
            cuts: Vec::new(),
            held: Vec::new(),
            end: Time::ZERO,
            cut_off: false,
            election: false,
            wrong: Vec::new(),
            summary: String::new(),
            code: Vec::new(),
            names,
        }
    }
}

/// The partitions of a script.
fn cuts(spec: &Spec) -> Vec<Cut> {
    let mut cuts: Vec<Cut> = Vec::new();
    for scripted in spec.whole_script() {
        match scripted.action {
            Action::Cut(left, right, one_way) => {
                cuts.push(Cut { left, right, one_way, from: scripted.at, to: None });
            }
            Action::Heal(left, right) => {
                let ends = |cut: &&mut Cut| cut.to.is_none() && cut.left == left && cut.right == right;
                if let Some(cut) = cuts.iter_mut().find(ends) {
                    cut.to = Some(scripted.at);
                }
            }
            _ => {}
        }
    }
    cuts
}

/// A sink that writes a recording.
struct Recorder {
    recording: Recording,
    limits: Limits,
    by_hand: bool,
    /// The current step.
    step: Option<Step>,
    /// The sites whose state the step may have changed; if that is unknown, `all_touched` is set.
    touched: BTreeSet<SiteId>,
    all_touched: bool,
    /// The index of each message in the recording, by its number in the trace.
    places: BTreeMap<u64, usize>,
    listing: Listing,
}

impl Recorder {
    fn new(run: &RunSpec, limits: Limits) -> Result<Self, Error> {
        let (spec, processes) = (run.system(), run.processes()?);
        if processes > limits.processes {
            return Err(UsageError::RecordedProcesses { most: limits.processes, processes }.into());
        }
        let names = run.names();
        let called = SiteId::all(processes).map(|site| names.of(site).to_string()).collect();
        let listing = run.listing().unwrap_or_default();
        let mut recording = Recording { sites: spec.sites, cuts: cuts(spec), ..Recording::of(called) };
        recording.code.clone_from(&listing.lines);
        Ok(Self {
            recording,
            limits,
            by_hand: spec.by_hand,
            step: Some(Step::new(Time::ZERO, None, "start", String::new())),
            touched: BTreeSet::new(),
            all_touched: true,
            places: BTreeMap::new(),
            listing,
        })
    }

    /// The number of the current step.
    fn now(&self) -> usize {
        self.recording.steps.len()
    }

    fn keep_messages(&mut self, record: &Record<'_>) {
        let sent = self.now();
        for (id, message) in (record.first_id..).zip(record.sends) {
            self.places.insert(id, self.recording.messages.len());
            let text = message.message.to_string();
            let (from, to) = (record.site, message.to);
            self.recording.messages.push(Message { from, to, text, sent, ended: None, lost: false });
        }
        let (EventKind::Receive { id, .. } | EventKind::Lost { id, .. }) = record.what else { return };
        let Some(&place) = self.places.get(&id) else { return };
        let lost = matches!(record.what, EventKind::Lost { .. });
        let message = &mut self.recording.messages[place];
        if message.ended.is_none() {
            (message.ended, message.lost) = (Some(sent), lost);
        } else {
            // The message is delivered a second time.
            let again = Message { ended: Some(sent), lost, ..message.clone() };
            self.recording.messages.push(again);
        }
    }
}

impl Sink for Recorder {
    fn command(&mut self, command: &str) -> io::Result<()> {
        self.recording.command = command.into();
        Ok(())
    }

    fn record(&mut self, record: &Record<'_>) -> io::Result<()> {
        self.keep_messages(record);
        let remark = matches!(record.what, EventKind::Remark { .. });
        self.all_touched |= remark;
        if !remark {
            self.touched.insert(record.site);
        }
        let (kind, say) = (kind_name(&record.what), sentence(record));
        let step = match &mut self.step {
            Some(step) => {
                step.kinds.push(kind);
                if !step.say.is_empty() {
                    step.say.push(' ');
                }
                step.say += &say;
                step
            }
            None => self.step.insert(Step::new(record.at, None, kind, say)),
        };
        step.site = if remark { step.site } else { Some(record.site) };
        step.fires.extend(record.why.iter().flat_map(|rule| self.listing.lines_of(rule)));
        Ok(())
    }

    fn look(&mut self, stage: &dyn Stage) -> bool {
        let Some(step) = self.step.take() else { return true };
        let now = self.now();
        let all = SiteId::all(self.recording.states.len());
        for site in all.filter(|site| self.all_touched || self.touched.contains(site)) {
            let states = &mut self.recording.states[site.index()];
            let state = stage.site(site);
            if states.last().is_none_or(|(_, before)| *before != state) {
                states.push((now, state));
            }
        }
        if self.by_hand {
            self.recording.held = stage.held();
        }
        self.recording.end = step.at;
        self.recording.steps.push(step);
        self.touched.clear();
        self.all_touched = false;
        let room = now + 1 < self.limits.steps && self.recording.messages.len() < self.limits.messages;
        self.recording.cut_off |= !room;
        room
    }

    fn finish(&mut self, end: Time) -> io::Result<()> {
        self.recording.end = end;
        Ok(())
    }
}

/// The name of an event's kind.
fn kind_name(what: &EventKind<'_>) -> &'static str {
    match what {
        EventKind::Start => "start",
        EventKind::Request { .. } => "request",
        EventKind::Enter { .. } => "enter",
        EventKind::Exit => "exit",
        EventKind::Campaign => "campaign",
        EventKind::Elected { .. } => "elected",
        EventKind::Receive { .. } => "receive",
        EventKind::Lost { .. } => "lost",
        EventKind::Crash => "crash",
        EventKind::Recover => "recover",
        EventKind::Pause => "pause",
        EventKind::Resume => "resume",
        EventKind::Suspect { .. } => "suspect",
        EventKind::Timer => "timer",
        EventKind::Remark { .. } => "say",
    }
}
