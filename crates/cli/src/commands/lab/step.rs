//! `lockkeeper step`: drives an algorithm by hand from the keyboard, without a browser.
//!
//! As on the lab's page, a run is a scenario that grows by one line with each choice and is replayed from its start
//! each time. Undo removes the last line, and the written file can be run by 'replay'.

use super::lab_error::LabError;
use super::sim::{known, settings};
use crate::print_line;
use clap::Args;
use lockkeeper_core::{Mode, Phase, SiteId, registry};
use lockkeeper_lab::trace::SiteState;
use lockkeeper_lab::trace::recording::{self, Limits, Recording};
use lockkeeper_lab::{Error, Progress, Scenario};
use rustix::termios::{self, LocalModes, OptionalActions, Termios};
use std::fmt::Write as _;
use std::io::{IsTerminal, Read, Stdin};
use std::path::PathBuf;
use std::process::ExitCode;

/// Step through an algorithm by hand in the terminal: requests, deliveries of messages, crashes
#[derive(Args)]
#[command(after_help = "\
Each choice has a key. In addition, u undoes the last step, f shows or hides faults, w writes the run
as a scenario for 'lockkeeper replay', q quits.

Examples:
  lockkeeper step ricart-agrawala
  lockkeeper step maekawa-published --sites 3 --save deadlock.scenario
  lockkeeper step raymond --sites 7 --set tree=k-ary:2

In a browser instead: lockkeeper lab")]
pub struct Step {
    /// The algorithm.
    algorithm: String,
    /// The number of sites.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=30))]
    sites: u16,
    /// A setting of the algorithm; may be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Messages of one channel may overtake each other.
    #[arg(long)]
    non_fifo: bool,
    /// The file to which w writes the run.
    #[arg(long, value_name = "FILE", default_value = "run.scenario")]
    save: PathBuf,
}

const LIMITS: Limits = Limits { processes: 31, steps: 20_000, messages: 60_000 };
/// The keys for choices: all that have no other function.
const KEYS: &str = "123456789abcdeghijklmnoprstvxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

impl Step {
    pub fn run(self) -> ExitCode {
        match self.drive() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => error.of_any_file().report(),
        }
    }

    fn drive(&self) -> Result<(), LabError> {
        known(&self.algorithm)?;
        settings(&self.set)?;
        let shares = registry::sharing(&self.algorithm).is_some_and(|sharing| sharing.knows(Mode::Shared));
        let (heads, fifo) = (self.heads(), !self.non_fifo);
        let mut drive = Drive { heads, acts: Vec::new(), fifo, shares, faults: false };
        let mut keys = Keys::new();
        loop {
            let recording = drive.play()?;
            let choices = drive.choices(&recording);
            drive.show(&recording, &choices);
            match keys.next() {
                None | Some('q') => return Ok(()),
                Some('u') => drop(drive.acts.pop()),
                Some('f') => drive.faults = !drive.faults,
                Some('w') => {
                    std::fs::write(&self.save, drive.text()).map_err(Error::Trace)?;
                    print_line!("written to {}\n", self.save.display());
                }
                Some(key) => {
                    let chosen =
                        KEYS.chars().position(|known| known == key).and_then(|place| choices.get(place));
                    drive.acts.extend(chosen.cloned());
                }
            }
        }
    }

    fn heads(&self) -> String {
        let mut heads =
            format!("title: {0}, driven by hand\nalgorithm: {0}\nsites: {1}\n", self.algorithm, self.sites);
        for pair in &self.set {
            let _ = writeln!(heads, "set: {pair}");
        }
        let fifo = if self.non_fifo { "no" } else { "yes" };
        let _ = writeln!(heads, "fifo: {fifo}\ncs: by hand\ndelivery: by hand\ntimers: by hand\n");
        heads
    }
}

/// A run that is driven by hand.
struct Drive {
    heads: String,
    acts: Vec<String>,
    fifo: bool,
    /// Whether the algorithm supports shared requests.
    shares: bool,
    faults: bool,
}

impl Drive {
    fn text(&self) -> String {
        let acts = (1..).zip(&self.acts).map(|(time, act): (u32, _)| format!("{time} {act}\n"));
        format!("{}{}", self.heads, acts.collect::<String>())
    }

    fn play(&self) -> Result<Recording, LabError> {
        let scenario = Scenario::parse("run", &self.text())?;
        Ok(recording::record(&scenario.spec, 1, LIMITS, &Progress::default())?)
    }

    /// The possible next steps, as lines of a scenario.
    fn choices(&self, recording: &Recording) -> Vec<String> {
        let name = |site: SiteId| &recording.names[site.index()];
        let mut choices = Vec::new();
        for (place, held) in recording.held.iter().enumerate() {
            let before = &recording.held[..place];
            let comes_later = before.iter().any(|other| (other.from, other.to) == (held.from, held.to));
            if !(self.fifo && comes_later) {
                choices.push(format!("deliver {}>{} {}", name(held.from), name(held.to), held.text));
            }
        }
        for (site, state) in last_states(recording) {
            choices.extend(self.own_choices(name(site), state, site.index() < recording.sites));
        }
        if self.faults {
            choices.extend(faults(recording));
        }
        choices
    }

    /// The steps that a site can take on its own.
    fn own_choices(&self, name: &str, state: &SiteState, asks: bool) -> Vec<String> {
        let mut choices = Vec::new();
        if state.up && asks && state.phase == Phase::Idle {
            choices.push(format!("{name} requests"));
            choices.extend(self.shares.then(|| format!("{name} requests shared")));
        }
        if state.phase == Phase::Inside {
            choices.push(format!("{name} exits"));
        }
        choices.extend((1..=state.timers).map(|which| format!("{name} wakes {which}")));
        choices
    }

    fn show(&self, recording: &Recording, choices: &[String]) {
        print_line!("── step {} {}", self.acts.len(), "─".repeat(60));
        for (site, state) in last_states(recording) {
            let fields = state.fields.iter().filter(|field| field.name != "state");
            let values: Vec<String> =
                fields.map(|field| format!("{}: {}", field.name, field.value)).collect();
            let stands = if state.up { state.phase.to_string() } else { "crashed".into() };
            print_line!("{:>4} {stands:<8} {}", recording.names[site.index()], values.join(" · "));
        }
        if let Some(step) = recording.steps.last().filter(|step| !step.say.is_empty()) {
            print_line!("\n{}", step.say);
        }
        for wrong in &recording.wrong {
            print_line!("\n{wrong}");
        }
        print_line!("");
        for (key, choice) in KEYS.chars().zip(choices) {
            print_line!("  {key}  {choice}");
        }
        if choices.len() > KEYS.len() {
            print_line!(
                "     … and {} more, for which there are no keys",
                choices.len() - KEYS.chars().count()
            );
        }
        let faults = if self.faults { "hide" } else { "show" };
        print_line!("  u undo   f {faults} faults   w write   q quit\n");
    }
}

/// The possible faults: crashes, losses, and suspicions, right or wrong.
fn faults(recording: &Recording) -> Vec<String> {
    let name = |site: SiteId| &recording.names[site.index()];
    let mut faults = Vec::new();
    for held in &recording.held {
        faults.push(format!("lose {}>{} {}", name(held.from), name(held.to), held.text));
    }
    for (site, state) in last_states(recording) {
        faults.push(format!("{} {}", if state.up { "crash" } else { "recover" }, name(site)));
    }
    for (site, _) in last_states(recording).filter(|(_, state)| state.up) {
        let others = last_states(recording).map(|(other, _)| other).filter(|other| *other != site);
        faults.extend(others.map(|other| format!("{} suspects {}", name(site), name(other))));
    }
    faults
}

/// The last state of every process.
fn last_states(recording: &Recording) -> impl Iterator<Item = (SiteId, &SiteState)> {
    let all = SiteId::all(recording.states.len()).zip(&recording.states);
    all.filter_map(|(site, states)| Some((site, &states.last()?.1)))
}

/// Key presses: from a terminal, without waiting for the end of a line; or from a file, one letter each.
struct Keys {
    input: Stdin,
    before: Option<Termios>,
}

impl Keys {
    fn new() -> Self {
        let input = std::io::stdin();
        let before = if input.is_terminal() { termios::tcgetattr(&input).ok() } else { None };
        if let Some(before) = &before {
            let mut raw = before.clone();
            raw.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            // If this fails, keys arrive line by line, which is still usable.
            let _ = termios::tcsetattr(&input, OptionalActions::Now, &raw);
        }
        Self { input, before }
    }

    /// The next key that is a letter or a digit; `None` at the end.
    fn next(&mut self) -> Option<char> {
        let mut byte = [0];
        while self.input.lock().read(&mut byte).ok()? == 1 {
            if byte[0].is_ascii_alphanumeric() {
                return Some(char::from(byte[0]));
            }
        }
        None
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = termios::tcsetattr(&self.input, OptionalActions::Now, before);
        }
    }
}
