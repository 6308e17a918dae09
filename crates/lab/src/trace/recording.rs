//! A recording of a run: every step, every message, and the state of every site after each step, so that a
//! user can move through the run in both directions.

use crate::Report;
use crate::election::{self, ElectionSpec};
use crate::property::Names;
use crate::simulator::runner::{self, Error, Progress};
use crate::simulator::spec::{Action, Spec};
use crate::simulator::time::Time;
use crate::trace::{Held, Record, Sink, SiteState, Stage, What, sentence};
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
    pub wrong: Vec<Wrong>,
    /// A short summary.
    pub summary: String,
}

/// A violation of a property.
#[derive(Clone, Debug, Serialize)]
pub struct Wrong {
    /// The time of the violation.
    pub at: Time,
    /// Its name, for example `deadlock`.
    pub breach: String,
    /// A sentence that describes it.
    pub what: String,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {} T: {}", self.breach, self.at, self.what)
    }
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
    let mut recorder = Recorder::new(spec, runner::processes(spec)?, limits)?;
    match runner::trace(spec, seed, &mut recorder, progress) {
        Ok(report) => recorder.recording.judge(&report),
        Err(Error::Interrupted) if recorder.recording.cut_off => {}
        Err(error) => return Err(error),
    }
    Ok(recorder.recording)
}

/// Runs an election once and records it.
pub fn record_election(spec: &ElectionSpec, seed: u64, limits: Limits) -> Result<Recording, Error> {
    let mut recorder = Recorder::new(&spec.system, spec.system.sites, limits)?;
    let report = election::trace(spec, seed, &mut recorder)?;
    let mut recording = recorder.recording;
    (recording.election, recording.command) = (true, spec.command(seed));
    if !recording.cut_off {
        let wrong = report.violations.iter().map(|found| &found.breach);
        recording.wrong = wrong
            .map(|breach| Wrong {
                at: breach.at,
                breach: breach.property.breach().into(),
                what: breach.what.clone(),
            })
            .collect();
        let leader =
            report.leaders.keys().next().map_or("no leader".into(), |leader| format!("{leader} leads"));
        recording.summary = format!("{leader}; {} messages", report.messages);
    }
    Ok(recording)
}

impl Recording {
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
            names,
        }
    }

    fn judge(&mut self, report: &Report) {
        let wrong = report.violations.iter().map(|found| &found.violation);
        self.wrong = wrong
            .map(|found| Wrong {
                at: found.at,
                breach: found.property.breach().into(),
                what: found.what.clone(),
            })
            .collect();
        let entries = if report.entries == 1 { "entry" } else { "entries" };
        self.summary = format!("{} {entries}, {} messages", report.entries, report.messages);
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
}

impl Recorder {
    fn new(spec: &Spec, processes: usize, limits: Limits) -> Result<Self, Error> {
        if processes > limits.processes {
            return Err(UsageError::RecordedProcesses { most: limits.processes, processes }.into());
        }
        let names = Names { sites: spec.sites };
        let start = Step { at: Time::ZERO, site: None, kinds: vec!["start"], say: String::new() };
        let called = SiteId::all(processes).map(|site| names.of(site).to_string()).collect();
        let recording = Recording { sites: spec.sites, cuts: cuts(spec), ..Recording::of(called) };
        Ok(Self {
            recording,
            limits,
            by_hand: spec.by_hand,
            step: Some(start),
            touched: BTreeSet::new(),
            all_touched: true,
            places: BTreeMap::new(),
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
        let (What::Receive { id, .. } | What::Lost { id, .. }) = record.what else { return };
        let Some(&place) = self.places.get(&id) else { return };
        let lost = matches!(record.what, What::Lost { .. });
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
        let remark = matches!(record.what, What::Say { .. });
        self.all_touched |= remark;
        if !remark {
            self.touched.insert(record.site);
        }
        let blank = || Step { at: record.at, site: None, kinds: Vec::new(), say: String::new() };
        let step = self.step.get_or_insert_with(blank);
        step.site = if remark { step.site } else { Some(record.site) };
        step.kinds.push(word(&record.what));
        if !step.say.is_empty() {
            step.say.push(' ');
        }
        step.say += &sentence(record);
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
fn word(what: &What<'_>) -> &'static str {
    match what {
        What::Start => "start",
        What::Request { .. } => "request",
        What::Enter { .. } => "enter",
        What::Exit => "exit",
        What::Campaign => "campaign",
        What::Elected { .. } => "elected",
        What::Receive { .. } => "receive",
        What::Lost { .. } => "lost",
        What::Crash => "crash",
        What::Recover => "recover",
        What::Pause => "pause",
        What::Resume => "resume",
        What::Suspect { .. } => "suspect",
        What::Timer => "timer",
        What::Say { .. } => "say",
    }
}
