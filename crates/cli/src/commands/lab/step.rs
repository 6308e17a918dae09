//! `lockkeeper step`: drives an algorithm by hand from the keyboard, without a browser.
//!
//! As on the lab's page, a run is a scenario that grows by one line with each choice and is replayed from its start
//! each time. Undo removes the last line, and the written file can be run by 'replay'.

use super::check::register_kind;
use super::lab_error::LabError;
use super::run_text::{print_code, state_line};
use super::sim::{known, settings};
use super::step_registers;
use crate::print_line;
use clap::Args;
use lockkeeper_core::{Mode, Phase, SiteId, registry};
use lockkeeper_lab::checker::registers::Walk;
use lockkeeper_lab::checker::{CheckSpecError, ModelKind};
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
Each choice has a key. In addition, u undoes the last step, f shows or hides faults, p shows or hides
the pseudo-code, in which ▶ marks the lines that the last step executed, w writes the run as a scenario
for 'lockkeeper replay', q quits.

Examples:
  lockkeeper step ricart-agrawala
  lockkeeper step maekawa-basic --sites 3 --save deadlock.scenario
  lockkeeper step raymond --sites 7 --set tree=k-ary:2
  lockkeeper step bully --sites 4       # an election: crash the leader, let a site miss it
  lockkeeper step bakery --sites 2 --safe-registers   # threads and registers; a read flickers as you choose

In a browser instead: lockkeeper lab")]
pub struct Step {
    /// The algorithm, an election, or an algorithm for shared registers.
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
    /// Algorithms for shared registers: use safe registers. You choose what a read returns that overlaps a write.
    #[arg(long)]
    safe_registers: bool,
    /// The same with regular registers: such a read returns the value before the write or the one being written.
    #[arg(long, conflicts_with = "safe_registers")]
    regular_registers: bool,
    /// The highest ticket of the bakery. [default: 4]
    #[arg(long, value_name = "N")]
    tickets: Option<u8>,
    /// The file to which w writes the run.
    #[arg(long, value_name = "FILE", default_value = "run.scenario")]
    save: PathBuf,
}

const LIMITS: Limits = Limits { processes: 31, steps: 20_000, messages: 60_000 };
/// The keys for choices: all that have no other function.
pub const KEYS: &str = "123456789abcdeghijklmnorstvxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

impl Step {
    pub fn run(self) -> ExitCode {
        match self.drive() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => error.of_any_file().report(),
        }
    }

    fn drive(&self) -> Result<(), LabError> {
        if ModelKind::of(&self.algorithm) == Some(ModelKind::Registers) {
            return self.drive_registers();
        }
        let election = registry::find_election(&self.algorithm).is_some();
        if !election {
            known(&self.algorithm)?;
        }
        if let Some((option, _)) = self.register_options().into_iter().find(|(_, given)| *given) {
            let kind = if election { ModelKind::Election } else { ModelKind::MutualExclusion };
            return Err(self.does_not_apply(option, kind));
        }
        settings(&self.set)?;
        let shares = registry::sharing(&self.algorithm).is_some_and(|sharing| sharing.knows(Mode::Shared));
        let (heads, fifo) = (self.heads(election), !self.non_fifo);
        let mut drive = Drive { heads, acts: Vec::new(), fifo, shares, faults: election, code: false };
        let mut keys = Keys::new();
        loop {
            let recording = drive.play()?;
            let choices = drive.choices(&recording);
            drive.show(&recording, &choices);
            match keys.next() {
                None | Some('q') => return Ok(()),
                Some('u') => drop(drive.acts.pop()),
                Some('f') => drive.faults = !drive.faults,
                Some('p') => drive.code = !drive.code,
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

    /// The options for algorithms for shared registers, and whether they are given.
    fn register_options(&self) -> [(&'static str, bool); 3] {
        [
            ("safe-registers", self.safe_registers),
            ("regular-registers", self.regular_registers),
            ("tickets", self.tickets.is_some()),
        ]
    }

    fn does_not_apply(&self, option: &'static str, kind: ModelKind) -> LabError {
        LabError::parameter(CheckSpecError::Option { option, algorithm: self.algorithm.clone(), kind })
    }

    fn drive_registers(&self) -> Result<(), LabError> {
        let options = [("set", !self.set.is_empty()), ("non-fifo", self.non_fifo)];
        if let Some((option, _)) = options.into_iter().find(|(_, given)| *given) {
            return Err(self.does_not_apply(option, ModelKind::Registers));
        }
        let kind = register_kind(self.safe_registers, self.regular_registers);
        let walk = Walk::new(&self.algorithm, self.sites.into(), kind, self.tickets)?;
        step_registers::drive(walk, &self.save)
    }

    fn heads(&self, election: bool) -> String {
        let kind = if election { "election" } else { "algorithm" };
        let mut heads =
            format!("title: {0}, driven by hand\n{kind}: {0}\nsites: {1}\n", self.algorithm, self.sites);
        for pair in &self.set {
            let _ = writeln!(heads, "set: {pair}");
        }
        let fifo = if self.non_fifo { "no" } else { "yes" };
        let _ = writeln!(heads, "fifo: {fifo}\ndelivery: by hand\ntimers: by hand");
        heads + if election { "\n" } else { "cs: by hand\n\n" }
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
    /// Whether the whole pseudo-code is shown.
    code: bool,
}

impl Drive {
    fn text(&self) -> String {
        let acts = (1..).zip(&self.acts).map(|(time, act): (u32, _)| format!("{time} {act}\n"));
        format!("{}{}", self.heads, acts.collect::<String>())
    }

    fn play(&self) -> Result<Recording, LabError> {
        let scenario = Scenario::parse("run", &self.text())?;
        Ok(recording::record_run(&scenario.run_spec(), 1, LIMITS, &Progress::default())?)
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
            if recording.election {
                choices.extend(election_choices(recording, site, state));
            } else {
                choices.extend(self.own_choices(name(site), state, site.index() < recording.sites));
            }
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
            print_line!("{}", state_line(recording, site, state));
        }
        if let Some(step) = recording.steps.last().filter(|step| !step.say.is_empty()) {
            print_line!("\n{}", step.say);
            if self.code {
                print_line!("");
                print_code(&recording.code, &step.fires);
            } else {
                for &line in &step.fires {
                    print_line!("  ▶ {}", recording.code[line].trim_start());
                }
            }
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
        let code = if self.code { "hide" } else { "show" };
        print_line!("  u undo   f {faults} faults   p {code} the pseudo-code   w write   q quit\n");
    }
}

/// The steps of a site of an election, apart from the messages that it receives: it misses the leader, a timer
/// expires, or it suspects a site that has crashed.
fn election_choices(recording: &Recording, site: SiteId, state: &SiteState) -> Vec<String> {
    if !state.up {
        return Vec::new();
    }
    let name = |site: SiteId| &recording.names[site.index()];
    let mut choices = vec![format!("{} campaigns", name(site))];
    choices.extend((1..=state.timers).map(|which| format!("{} wakes {which}", name(site))));
    let crashed = last_states(recording).filter(|(_, other)| !other.up);
    choices.extend(crashed.map(|(other, _)| format!("{} suspects {}", name(site), name(other))));
    choices
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
        // An election offers the suspicion of a crashed site without the faults.
        let suspects = |other: SiteId, state: &SiteState| other != site && (state.up || !recording.election);
        let others =
            last_states(recording).filter(|(other, state)| suspects(*other, state)).map(|(other, _)| other);
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
pub struct Keys {
    input: Stdin,
    before: Option<Termios>,
}

impl Keys {
    pub fn new() -> Self {
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
    pub fn next(&mut self) -> Option<char> {
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
