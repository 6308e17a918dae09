//! `lockkeeper replay`: runs a counterexample or a saved trace in the simulator, step by step.

use super::lab_error::LabError;
use super::sim::Sim;
use crate::file_error::FileError;
use crate::{exit, print_line};
use clap::{Args, Parser};
use lockkeeper_lab::checker::counterexample::Counterexample;
use lockkeeper_lab::trace::{self, Columns, Record, Sink};
use lockkeeper_lab::{Ending, Error, Progress, RunSpec, Scenario, Time};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

/// Run a counterexample of 'check --trace', a scenario, or a trace of 'sim --trace FILE.jsonl' again, step by step
///
/// The first line of a saved trace has the command that made it; that run is repeated, printed, and compared with the
/// file line by line.
#[derive(Args)]
#[command(after_help = "\
Examples:
  lockkeeper check lamport --sites 2 --non-fifo --trace broken.scenario
  lockkeeper replay broken.scenario
  lockkeeper sim --algorithm raymond --sites 5 --entries 10 --trace run.jsonl && lockkeeper replay run.jsonl

Exit codes: 0 every property held, and a saved trace came out the same; 2 otherwise; 64 wrong usage.")]
pub struct Replay {
    /// A scenario, or a trace in JSON lines.
    file: PathBuf,
    /// Draw it, too.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl Replay {
    pub fn run(self) -> ExitCode {
        match self.replay() {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::from(exit::VIOLATED),
            Err(error) => error.of_any_file().report(),
        }
    }

    fn replay(&self) -> Result<bool, LabError> {
        match saved_command(&self.file)? {
            Some(command) => again(&self.file, &command),
            None => {
                let scenario = Scenario::open(&self.file.to_string_lossy())?;
                print_line!("{}\n{}\n", scenario.title, scenario.about);
                if let Some(path) = &self.svg {
                    draw(&scenario, path)?;
                }
                let run = scenario.run_spec();
                let ending = steps(&run, 1)?;
                diagram(&run, 1)?;
                for violation in &ending.violations {
                    print_line!("{violation}");
                }
                Ok(ending.held())
            }
        }
    }
}

/// The command in the first line of a saved trace; `None` if the file is not a trace.
fn saved_command(path: &Path) -> Result<Option<String>, LabError> {
    let cannot_read = |error| LabError::SavedTrace(FileError::read(path)(error));
    // The name may be that of a figure.
    if !path.exists() {
        return Ok(None);
    }
    let mut first = Vec::new();
    let mut file = BufReader::new(File::open(path).map_err(cannot_read)?);
    file.by_ref().take(1 << 16).read_until(b'\n', &mut first).map_err(cannot_read)?;
    let header: Option<serde_json::Value> = serde_json::from_slice(&first).ok();
    Ok(header.and_then(|header| Some(header.get("command")?.as_str()?.to_string())))
}

/// Repeats a saved run and compares it with the file.
fn again(path: &Path, command: &str) -> Result<bool, LabError> {
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        sim: Sim,
    }
    let words = shlex::split(command).filter(|words| words.starts_with(&["lockkeeper".into(), "sim".into()]));
    let words = words.ok_or_else(|| LabError::NoSimCommand { command: command.into() })?;
    let line = Line::try_parse_from(&words[1..]).map_err(LabError::OtherVersion)?;
    let (run, seed) = line.sim.spec_and_seed()?;
    print_line!("{command}\n");
    steps(&run, seed)?;
    let comparison = Comparison::with(path)?;
    write(&run, seed, "replay", Path::new("replay.jsonl"), Box::new(comparison.clone()))?;
    let differs = comparison.end().map_err(Error::Trace)?;
    match differs {
        None => print_line!("The saved trace came out the same, line by line."),
        Some(line) => {
            print_line!("The saved trace differs in line {line}: it was made by another version, or changed.")
        }
    }
    Ok(differs.is_none())
}

/// A writer that compares the written bytes with a file.
#[derive(Clone)]
struct Comparison(Rc<RefCell<Compared>>);

struct Compared {
    file: BufReader<File>,
    lines: usize,
    differs: bool,
}

impl Comparison {
    fn with(path: &Path) -> Result<Self, Error> {
        let file = BufReader::new(File::open(path).map_err(Error::Trace)?);
        Ok(Self(Rc::new(RefCell::new(Compared { file, lines: 1, differs: false }))))
    }

    /// The first line that differs. Call it after everything has been written.
    fn end(&self) -> io::Result<Option<usize>> {
        let mut compared = self.0.borrow_mut();
        let more = !compared.file.fill_buf()?.is_empty();
        Ok((compared.differs || more).then_some(compared.lines))
    }
}

impl Write for Comparison {
    fn write(&mut self, written: &[u8]) -> io::Result<usize> {
        let compared = &mut *self.0.borrow_mut();
        let mut saved = vec![0; written.len()];
        if !compared.differs {
            compared.differs = compared.file.read_exact(&mut saved).is_err() || saved != written;
            let same = saved.iter().zip(written).take_while(|(saved, written)| saved == written);
            compared.lines += same.filter(|(saved, _)| **saved == b'\n').count();
        }
        Ok(written.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Prints a run as numbered sentences.
fn steps(run: &RunSpec, seed: u64) -> Result<Ending, Error> {
    struct StepPrinter;
    impl Sink for StepPrinter {
        fn record(&mut self, record: &Record<'_>) -> io::Result<()> {
            print_line!("{:>4}. {}", record.number, trace::sentence(record));
            Ok(())
        }

        fn finish(&mut self, _end: Time) -> io::Result<()> {
            Ok(())
        }
    }
    let ending = run.trace(seed, &mut StepPrinter, &Progress::default())?;
    print_line!("");
    Ok(ending)
}

/// Draws a run as text.
fn diagram(run: &RunSpec, seed: u64) -> Result<(), Error> {
    let mut columns = Columns::new(run.names(), run.processes()?);
    run.trace(seed, &mut columns, &Progress::default())?;
    print_line!("{}\n", columns.lines.join("\n"));
    Ok(())
}

/// Draws a scenario to a file, in the format of its extension.
pub fn draw(scenario: &Scenario, path: &Path) -> Result<(), LabError> {
    let file = File::create(path).map_err(|error| LabError::Trace(FileError::trace(path)(error)))?;
    write(&scenario.run_spec(), 1, &scenario.title, path, Box::new(BufWriter::new(file)))
}

fn write(run: &RunSpec, seed: u64, title: &str, form: &Path, out: Box<dyn Write>) -> Result<(), LabError> {
    let mut sink = trace::sink_for(form, title, run.names(), run.processes()?, out)?;
    run.trace(seed, sink.as_mut(), &Progress::default())?;
    Ok(())
}

/// Prints and draws a counterexample.
pub fn print_counterexample(found: &Counterexample) {
    print_line!(
        "\n{}: {}. The shortest run:\n",
        capital(found.violation.property.violation_name()),
        found.violation.what
    );
    let Some(scenario) = &found.scenario else {
        return print_line!("{found}");
    };
    for (number, sentence) in found.story.iter().enumerate() {
        print_line!("{:>4}. {sentence}", number + 1);
    }
    print_line!("");
    let drawn = Scenario::parse("counterexample", scenario).map_err(LabError::from);
    if let Err(error) = drawn.and_then(|scenario| Ok(diagram(&scenario.run_spec(), 1)?)) {
        print_line!("({error})");
    }
    print_line!("--trace FILE.scenario writes it for 'lockkeeper replay', --svg FILE draws it.");
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
