//! `lockkeeper compare`: the algorithms side by side, measured.

use super::election;
use super::flag_table::{self, Job, Jobs};
use super::lab_error::LabError;
use super::progress;
use super::sim::{AlgorithmError, known, settings};
use crate::exit::CliError;
use crate::file_error::FileError;
use crate::{exit, print_line};
use clap::Args;
use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement, Table, presets};
use lockkeeper_core::registry;
use lockkeeper_lab::comparison::table::{Comparison, Row, Sweep, fifo_word, number, page, plots};
use lockkeeper_lab::simulator::delay::Delay;
use lockkeeper_lab::simulator::network::parse_probability;
use lockkeeper_lab::simulator::spec::LoadSpec;
use lockkeeper_lab::{Error, Progress};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Compare algorithms: messages, delays, throughput, fairness, state, measured beside the papers' formulas
///
/// Prints one table for each load and number of sites; a run that deadlocks is reported in its row. The result
/// depends on the flags alone: the same command prints the same bytes on any number of cores.
#[derive(Args)]
#[command(after_help = "\
How to read it:
  messages    per entry, between different sites; = exactly the formula, ≈ within 2 %, ≠ off
  SD          synchronization delay: from an exit to the next entry while a site waits
  client      client delay: from a request to its entry without contention
  1/(SD+E)    the throughput that the measured SD allows, beside the measured entries per T; k/(SD+E) for k permits
  inside      the most sites inside at once
  bypass      the most entries of other sites during one site's wait
  busiest     messages sent or received per entry by the busiest process
  state       the largest state of a site, in bytes

At low load, requesters are drawn at random, so that formulas of means are met within 2 %. The load 'pairs' takes
each pair of one requester and the next exactly once, and meets exactly the formulas that depend only on this pair.

Examples:
  lockkeeper compare
  lockkeeper compare --algorithms lamport,ricart-agrawala,maekawa --sites 7,13,31 --load low
  lockkeeper compare --sites 3,7,13,31,57 --load low,high --plots plots --html compare.html
  lockkeeper compare --algorithms all --sites 9 --load poisson:0.05 --csv rows.csv
  lockkeeper compare --algorithms ricart-agrawala,k-mutual-exclusion --set k=3 --sites 9,18 --load high
  lockkeeper compare --algorithms ricart-agrawala,readers-writers --readers 0.9 --sites 9 --load high
  lockkeeper compare --elections --sites 4,7,16

Exit codes: 0 done, deadlocks and all; 64 wrong usage; 74 a file could not be written.")]
pub struct Compare {
    /// The algorithms, separated by commas, or all.
    #[arg(long, short, value_delimiter = ',', default_value = "all")]
    algorithms: Vec<String>,
    /// Compare elections instead: the cases whose cost the papers give, messages by name, bytes, time to agreement.
    #[arg(long)]
    elections: bool,
    /// The numbers of sites, separated by commas.
    #[arg(long, short = 'n', value_name = "N,…", value_delimiter = ',', default_value = "3,7,13,31,57")]
    sites: Vec<usize>,
    /// The loads, separated by commas: low, pairs, high, staggered, poisson:RATE (per site and T) or burst.
    #[arg(long, value_delimiter = ',', default_value = "low,high", value_parser = LoadSpec::parse)]
    load: Vec<LoadSpec>,
    /// The number of runs of each combination, with seeds from 1.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,
    /// The time that a site stays inside: a time, or a distribution such as exponential:0.1.
    #[arg(long, default_value = "0.1", value_parser = Delay::parse, allow_hyphen_values = true)]
    cs: Delay,
    /// A setting such as k=3, for the algorithms that support it.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// The share of shared requests, for the algorithms that support readers.
    #[arg(long, value_name = "SHARE", default_value = "0.5", value_parser = |text: &str| parse_probability("the share of readers", text), allow_hyphen_values = true)]
    readers: f64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Write one line for each row to a CSV file.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write plots to a directory, as SVG.
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Write tables and plots as one self-contained page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Jobs for Compare {
    const FLAGS: &'static [flag_table::Row] = flag_table::COMPARE;

    fn job(&self) -> Job {
        if self.elections { Job::Elections } else { Job::Algorithm }
    }
}

impl Compare {
    pub fn run(self) -> ExitCode {
        exit::code(self.compare().map(|()| ExitCode::SUCCESS))
    }

    fn compare(&self) -> Result<(), CliError> {
        if self.elections {
            return election::compare(&self.sites, self.json).map_err(failed);
        }
        let sweep = self.sweep()?;
        let wants_plots = self.plots.is_some() || self.html.is_some();
        let work = |progress: &Progress| -> Result<(Comparison, Vec<plots::Plot>), Error> {
            let comparison = sweep.run(progress)?;
            let plots = if wants_plots { plots::plots(&sweep, &comparison, progress)? } else { Vec::new() };
            Ok((comparison, plots))
        };
        let more = if wants_plots { plots::Study::entries(&sweep) } else { 0 };
        let (comparison, plots) =
            progress::bar(sweep.entries().saturating_add(more), work).map_err(failed)?;
        if let Some(path) = &self.csv {
            write(path, comparison.csv().as_bytes())?;
        }
        if let Some(directory) = &self.plots {
            std::fs::create_dir_all(directory).map_err(cannot_write(directory))?;
            for plot in &plots {
                write(&directory.join(format!("{}.svg", plot.name)), plot.svg.as_bytes())?;
            }
        }
        if let Some(path) = &self.html {
            write(path, page(&comparison, &plots).as_bytes())?;
        }
        if self.json {
            print_line!("{}", serde_json::to_string(&comparison).expect("a comparison is plain data"));
        } else {
            print(&comparison);
        }
        Ok(())
    }

    fn sweep(&self) -> Result<Sweep, LabError> {
        Ok(Sweep {
            algorithms: algorithms(&self.algorithms)?,
            sites: once(&self.sites),
            loads: once(&self.load),
            seeds: self.seeds,
            cs: self.cs.clone(),
            settings: settings(&self.set)?,
            readers: self.readers,
        })
    }
}

/// The items without repetitions, in the order given.
fn once<T: PartialEq + Copy>(given: &[T]) -> Vec<T> {
    let mut once = Vec::new();
    for &item in given {
        if !once.contains(&item) {
            once.push(item);
        }
    }
    once
}

/// The algorithms that a list names; `all` means all of them.
pub fn algorithms(names: &[String]) -> Result<Vec<String>, AlgorithmError> {
    let mut slugs: Vec<String> = Vec::new();
    for name in names {
        let named: Vec<&str> = match name.as_str() {
            "all" => registry::ALL.iter().map(|entry| entry.about.slug).collect(),
            slug => {
                known(slug)?;
                vec![slug]
            }
        };
        for slug in named {
            if !slugs.iter().any(|known| known == slug) {
                slugs.push(slug.into());
            }
        }
    }
    Ok(slugs)
}

fn failed(error: Error) -> CliError {
    LabError::from(error).of_any_file()
}

fn cannot_write(path: &Path) -> impl Fn(std::io::Error) -> CliError {
    |error| CliError::io(FileError::write(path)(error))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    std::fs::write(path, bytes).map_err(cannot_write(path))
}

fn table(header: &[&str], left: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().map(|text| Cell::new(text).add_attribute(Attribute::Bold)));
    for index in (0..header.len()).filter(|index| !left.contains(index)) {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn print(comparison: &Comparison) {
    for load in &comparison.loads {
        print_overview(comparison, load);
    }
    for load in &comparison.loads {
        for &sites in &comparison.sites {
            print_details(comparison, load, sites);
        }
    }
    print_needs(comparison);
    for note in &comparison.footnotes {
        let text = format!("{}. {}", note.number, note.text);
        super::explain::hanging("", &text);
    }
}

fn print_overview(comparison: &Comparison, load: &str) {
    print_line!("messages per entry, {load} load  (= exactly the formula, ≈ within 2 %, ≠ off)\n");
    let sizes: Vec<String> = comparison.sites.iter().map(|sites| format!("N = {sites}")).collect();
    let header: Vec<&str> = ["", "formula"].into_iter().chain(sizes.iter().map(String::as_str)).collect();
    let mut table = table(&header, &[0, 1]);
    for algorithm in comparison.algorithms() {
        let rows: Vec<&Row> =
            comparison.sites.iter().filter_map(|&sites| comparison.row(algorithm, load, sites)).collect();
        let formula = rows.first().map_or("", |row| row.formula);
        let name = format!("{algorithm}{}", comparison.marks(algorithm));
        let cells = rows.iter().map(|row| match row.trouble {
            Some(_) => row.verdict.to_string(),
            None => format!("{} {:1}", number(row.messages_per_entry, 2), row.verdict.mark()),
        });
        table.add_row([name, formula.to_string()].into_iter().chain(cells));
    }
    print_line!("{}\n", table.trim_fmt());
}

fn print_details(comparison: &Comparison, load: &str, sites: usize) {
    print_line!("{sites} sites, {load} load; times in T, E = {}\n", comparison.cs);
    let mut table = table(
        &[
            "",
            "messages",
            "formula",
            "verdict",
            "to enter",
            "on exit",
            "SD",
            "paper",
            "client",
            "paper",
            "per T",
            comparison.bound_title(),
            "inside",
            "Jain",
            "bypass",
            "busiest",
            "state",
        ],
        &[0, 3],
    );
    let mut troubles = Vec::new();
    for row in comparison.table(load, sites) {
        let name = format!("{}{}", row.algorithm, comparison.marks(&row.algorithm));
        if let Some(trouble) = &row.trouble {
            troubles
                .push(format!("{}: {}\n  see it again: {}", row.algorithm, trouble.what, trouble.reproduce));
            let nothing = std::iter::repeat_n("–".to_string(), 13);
            let start = [name, "–".into(), number(row.formula_value, 3), row.verdict.to_string()];
            table.add_row(start.into_iter().chain(nothing));
            continue;
        }
        table.add_row([
            name,
            number(row.messages_per_entry, 3),
            number(row.formula_value, 3),
            row.verdict.to_string(),
            number(row.to_enter, 2),
            number(row.on_exit, 2),
            number(row.sync_delay, 3),
            row.stated_sync_delay(),
            number(row.client_delay, 3),
            number(row.client_delay_formula, 3),
            number(row.throughput, 4),
            number(row.throughput_bound, 4),
            row.max_inside.to_string(),
            number(row.jain, 4),
            row.max_bypass.to_string(),
            number(row.busiest_site, 2),
            row.state_bytes.map_or("–".into(), |state| format!("{} B", state.max)),
        ]);
    }
    print_line!("{}\n", table.trim_fmt());
    for trouble in troubles {
        print_line!("{trouble}\n");
    }
}

fn print_needs(comparison: &Comparison) {
    let mut table = table(&["", "family", "FIFO needed", "a crash"], &[0, 1, 2, 3]);
    for about in comparison.algorithms().into_iter().filter_map(registry::find).map(|entry| entry.about) {
        table.add_row([about.slug, &about.family.to_string(), fifo_word(about.channels), about.crash]);
    }
    print_line!("{}\n", table.trim_fmt());
}
