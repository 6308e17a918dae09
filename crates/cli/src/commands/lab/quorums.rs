//! `lockkeeper quorums`: prints quorums, and which of Maekawa's conditions they meet.

use crate::exit::{BoxError, CliError};
use crate::file_error::FileError;
use crate::print_line;
use clap::Args;
use lockkeeper_core::SiteId;
use lockkeeper_core::mutex::{list, parse_site};
use lockkeeper_core::quorum::{Construction, Coterie};
use lockkeeper_lab::quorum_systems::availability::{self, Availability};
use lockkeeper_lab::quorum_systems::load::{self, Load};
use lockkeeper_lab::quorum_systems::plots::{SEED, plots};
use lockkeeper_lab::quorum_systems::{MOST_QUORUMS, QuorumSystem};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The limit on sites, to keep the lists readable.
const MOST_SITES: usize = 2_000;
/// The limit on the length of a file, in bytes.
const LONGEST: u64 = 16 << 20;

/// Print quorums, which of Maekawa's conditions they meet, their load and their availability
///
/// M1: any two quorums share a site. M2: a site is in its own quorum. M3: all quorums have the same size. M4: every
/// site is in the same number of quorums. Mutual exclusion needs M1 alone; the others make the work even.
///
/// Load: the share of all entries in which the busiest site takes part, under the best choice among the quorums (Naor
/// and Wool). Failure probability: that no quorum is left if each site has failed with probability p.
#[derive(Args)]
#[command(after_help = "\
A file has one set a line, the first for S1: site numbers separated by commas or blanks. # starts a comment.

Examples:
  lockkeeper quorums --sites 13 --construction plane
  lockkeeper quorums --sites 10 --construction grid --json
  lockkeeper quorums --construction my-sets.txt
  lockkeeper quorums --sites 15 --construction tree --whole
  lockkeeper quorums --sites 13 --construction plane --plots plots
  lockkeeper sim --algorithm maekawa --sites 10 --set quorums=grid

Exit codes: 0 any two sets share a site; 2 two sets of the file do not; 64 wrong usage.")]
pub struct Quorums {
    /// The number of sites; for a file, by default the number of its sets.
    #[arg(long, short = 'n', value_name = "N")]
    sites: Option<usize>,
    /// The construction: plane, grid, majority, tree, best (a plane where there is one, else a grid), or a file.
    #[arg(long, value_name = "HOW", default_value = "best")]
    construction: String,
    /// Analyse all quorums of the construction, not only one for each site: every majority, and every quorum of a tree
    /// in which the two subtrees replace a failed node.
    #[arg(long)]
    whole: bool,
    /// Also draw load and availability of all constructions side by side, as SVG files in this folder.
    #[arg(long, value_name = "FOLDER")]
    plots: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The output of `--json`.
#[derive(Serialize)]
struct CoterieReport<'a> {
    construction: &'a str,
    sites: usize,
    quorums: Vec<Vec<usize>>,
    m1: bool,
    m2: bool,
    m3: bool,
    m4: bool,
    /// The load; `None` if it is not computed for so many sites.
    load: Option<f64>,
    /// Whether the load is certified by equal bounds.
    load_exact: Option<bool>,
    /// The failure probability for some probabilities of a failed site; empty if it is not computed for so many sites.
    failure: Vec<FailureReport>,
    /// The number of random sets of each size, if the failure probability is an estimate.
    samples: Option<u32>,
}

/// A failure probability in the output of `--json`.
#[derive(Serialize)]
struct FailureReport {
    p: f64,
    failure: f64,
    error: f64,
}

/// The probabilities of a failed site in the output.
const FAILED: [f64; 6] = [0.01, 0.05, 0.1, 0.2, 0.3, 0.5];

impl Quorums {
    pub fn run(self) -> ExitCode {
        let coterie = match self.coterie() {
            Ok(coterie) => coterie,
            Err(error) => return CliError::usage(error).report(),
        };
        let system = match self.system(&coterie) {
            Ok(system) => system,
            Err(error) => return CliError::usage(error).report(),
        };
        let apart = coterie.m1().err();
        // Sets of which two do not intersect are no quorums: their load means nothing.
        let load = if apart.is_none() { system.load() } else { None };
        let availability = if apart.is_none() { system.availability(SEED) } else { None };
        let failure = |measured: &Availability| {
            let at = |p| {
                let probability = measured.failure(p);
                FailureReport { p, failure: probability.value, error: probability.error }
            };
            FAILED.map(at).into()
        };
        let report = CoterieReport {
            construction: &self.construction,
            sites: coterie.quorums.len(),
            quorums: coterie
                .quorums
                .iter()
                .map(|set| set.iter().map(|site| site.number()).collect())
                .collect(),
            m1: apart.is_none(),
            m2: coterie.m2(),
            m3: coterie.m3(),
            m4: coterie.m4(),
            load: load.as_ref().map(Load::value),
            load_exact: load.as_ref().map(Load::is_exact),
            failure: availability.as_ref().map(failure).unwrap_or_default(),
            samples: availability.as_ref().and_then(|measured| measured.samples),
        };
        if let Some(folder) = &self.plots
            && let Err(error) = draw(folder, report.sites)
        {
            return CliError::io(error).report();
        }
        if self.json {
            print_line!("{}", serde_json::to_string(&report).expect("numbers are plain data"));
        } else {
            print(&coterie, &report);
            print_analysis(&system, &report, load.as_ref());
        }
        match apart {
            None => ExitCode::SUCCESS,
            Some((a, b)) => {
                let set =
                    |site: SiteId| format!("{{{}}} of {site}", list(&coterie.quorums[site.index()], ""));
                CliError::Violated(QuorumError::Disjoint { one: set(a), other: set(b) }.into()).report()
            }
        }
    }

    fn coterie(&self) -> Result<Coterie, QuorumError> {
        let construction = match self.construction.as_str() {
            "best" => Construction::Best,
            "plane" => Construction::Plane,
            "grid" => Construction::Grid,
            "majority" => Construction::Majority,
            "tree" => Construction::Tree,
            file => return self.read(file),
        };
        let sites = self.sites.ok_or(QuorumError::NoSites)?;
        within_bounds(sites)?;
        construction.check(sites).map_err(|error| QuorumError::Construction(error.into()))?;
        Ok(Coterie::new(&construction, sites))
    }

    /// The quorums whose load and availability are computed.
    fn system(&self, coterie: &Coterie) -> Result<QuorumSystem, QuorumError> {
        if !self.whole {
            return Ok(QuorumSystem::of_coterie(coterie));
        }
        let construction = match self.construction.as_str() {
            "majority" => Construction::Majority,
            "tree" => Construction::Tree,
            _ => return Err(QuorumError::NoWhole { construction: self.construction.clone() }),
        };
        let sites = coterie.quorums.len();
        QuorumSystem::whole(&construction, sites).ok_or(QuorumError::TooMany { sites })
    }

    fn read(&self, file: &str) -> Result<Coterie, QuorumError> {
        let cannot_read = |source| QuorumError::Read { file: file.into(), source };
        if std::fs::metadata(file).map_err(cannot_read)?.len() > LONGEST {
            return Err(QuorumError::TooLarge { file: file.into() });
        }
        let text = std::fs::read_to_string(file).map_err(cannot_read)?;
        parse(&text, self.sites)
            .map_err(|error| QuorumError::Sets { file: file.into(), source: Box::new(error) })
    }
}

/// The reason why there are no quorums, or none that intersect.
#[derive(Debug, thiserror::Error)]
enum QuorumError {
    /// A construction was given without a number of sites.
    #[error("say how many sites there are, as in --sites 13")]
    NoSites,
    /// There are no sites, or too many.
    #[error("quorums are printed for 1 to {MOST_SITES} sites, and {sites} were asked for")]
    OutOfBounds {
        /// The number of sites.
        sites: usize,
    },
    /// The whole system of a construction that has no more quorums than sites was requested.
    #[error("--whole applies to majority and tree; the quorums of '{construction}' are the printed ones")]
    NoWhole {
        /// The construction.
        construction: String,
    },
    /// The whole system has too many quorums.
    #[error(
        "the whole system of {sites} sites has more than {MOST_QUORUMS} quorums: use fewer sites, or leave --whole out"
    )]
    TooMany {
        /// The number of sites.
        sites: usize,
    },
    /// The construction does not exist for this number of sites.
    #[error("{0}")]
    Construction(#[source] BoxError),
    /// The file of sets cannot be read.
    #[error(
        "cannot read '{file}': {source}; a construction is plane, grid, majority, tree, best or a file of sets"
    )]
    Read {
        /// The file.
        file: String,
        /// The reason.
        source: std::io::Error,
    },
    /// The file of sets exceeds the limit.
    #[error("the file {file} is larger than 16 MiB")]
    TooLarge {
        /// The file.
        file: String,
    },
    /// The sets of a file are wrong.
    #[error("{file}: {source}")]
    Sets {
        /// The file.
        file: String,
        /// The error in its text.
        source: Box<QuorumError>,
    },
    /// The number of sets is not that of the sites.
    #[error("{sets} sets are given for {sites} sites; each site needs one")]
    Count {
        /// The number of sets.
        sets: usize,
        /// The number of sites.
        sites: usize,
    },
    /// A set contains a site that does not exist.
    #[error("line {line}: there is no site '{word}': sites are numbered from 1 to {sites}")]
    NoSite {
        /// The number of the line.
        line: usize,
        /// The site as given.
        word: String,
        /// The number of sites.
        sites: usize,
    },
    /// A set contains no site.
    #[error("line {line}: a set needs at least one site")]
    EmptySet {
        /// The number of the line.
        line: usize,
    },
    /// Two quorums have no site in common.
    #[error(
        "M1 does not hold: the quorums {one} and {other} share no site, so that both could enter at once"
    )]
    Disjoint {
        /// The first quorum and its site.
        one: String,
        /// The second quorum and its site.
        other: String,
    },
}

fn within_bounds(sites: usize) -> Result<(), QuorumError> {
    if (1..=MOST_SITES).contains(&sites) { Ok(()) } else { Err(QuorumError::OutOfBounds { sites }) }
}

/// Parses a file with one set per line.
fn parse(text: &str, sites: Option<usize>) -> Result<Coterie, QuorumError> {
    let lines: Vec<(usize, &str)> = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.split('#').next().unwrap_or("").trim()))
        .filter(|(_, line)| !line.is_empty())
        .collect();
    let sites = sites.unwrap_or(lines.len());
    within_bounds(sites)?;
    if lines.len() != sites {
        return Err(QuorumError::Count { sets: lines.len(), sites });
    }
    let set = |(number, text): (usize, &str)| {
        let words = text.split([',', ' ', '\t']).filter(|word| !word.is_empty());
        let site = |word: &str| {
            parse_site(word, sites).ok_or_else(|| QuorumError::NoSite {
                line: number,
                word: word.into(),
                sites,
            })
        };
        let mut set: Vec<SiteId> = words.map(site).collect::<Result<_, _>>()?;
        set.sort();
        set.dedup();
        if set.is_empty() { Err(QuorumError::EmptySet { line: number }) } else { Ok(set) }
    };
    Ok(Coterie { quorums: lines.into_iter().map(set).collect::<Result<_, _>>()? })
}

fn print(coterie: &Coterie, report: &CoterieReport<'_>) {
    print_line!("{} quorums, {}\n", report.sites, report.construction);
    print_line!("{}", coterie.to_string().trim_end());
    let sizes = || coterie.quorums.iter().map(Vec::len);
    let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
    let k = if least == most { format!("K = {least}") } else { format!("K from {least} to {most}") };
    let yes = |holds: bool| if holds { "yes" } else { "no" };
    print_line!("\nM1  any two share a site                  {}", yes(report.m1));
    print_line!("M2  a site is in its own                  {}", yes(report.m2));
    print_line!("M3  all have the same size                {}, {k}", yes(report.m3));
    print_line!("M4  every site is in equally many         {}", yes(report.m4));
    print_line!(
        "\nan entry without contention costs {:.2} messages: 3(K−1) on average",
        3.0 * coterie.mean_others()
    );
}

/// Prints load and availability.
fn print_analysis(system: &QuorumSystem, report: &CoterieReport<'_>, load: Option<&Load>) {
    let (quorums, sites) = (system.quorums().len(), system.sites());
    print_line!("\nload and availability (Naor and Wool), of {quorums} different quorums\n");
    match load {
        _ if !report.m1 => print_line!("  none: two of the sets share no site"),
        Some(load) => {
            let fraction = load.fraction().map(|(a, b)| format!("{a}/{b} = ")).unwrap_or_default();
            let exact = if load.is_exact() { "exact".into() } else { format!("at least {:.4}", load.lower) };
            print_line!("  load                 {fraction}{:.4} ({exact})", load.value());
            print_line!("  the bound 1/√N       {:.4}", 1.0 / (sites as f64).sqrt());
        }
        None => print_line!(
            "  load                 not computed for {sites} sites without symmetry: at most {}",
            load::MOST_SITES
        ),
    }
    if report.failure.is_empty() && report.m1 {
        print_line!(
            "  failure probability  not computed for {sites} sites: at most {}",
            availability::MOST_ESTIMATED
        );
    }
    for FailureReport { p, failure, error } in &report.failure {
        let error = if *error > 0.0 { format!(" ± {error:.4}") } else { String::new() };
        print_line!("  failure at p = {p:<4}  {failure:.6}{error}");
    }
    match report.samples {
        Some(samples) => {
            print_line!("  estimated from {samples} random sets of each size, seed {SEED}, ± 95 %")
        }
        None if report.failure.is_empty() => {}
        None => print_line!("  exact: all 2^{sites} sets of sites were counted"),
    }
}

/// Draws the plots into a folder.
fn draw(folder: &Path, sites: usize) -> Result<(), FileError> {
    std::fs::create_dir_all(folder).map_err(FileError::make_folder(folder))?;
    for plot in plots(sites) {
        let file = folder.join(format!("{}.svg", plot.name));
        std::fs::write(&file, plot.svg).map_err(FileError::write(&file))?;
        eprintln!("written: {}", file.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_file_of_sets_is_read_with_commas_blanks_and_comments() {
        let coterie = parse("# a triangle\n1,2\n2 3  # S2's own\n\n3, 1\n", None).unwrap();
        assert_eq!(coterie.to_string(), "S1: S1, S2\nS2: S2, S3\nS3: S1, S3\n");
        assert!(coterie.m1().is_ok());
    }

    #[test]
    fn parse_errors_name_the_line() {
        let cases = [
            ("1,2\n2,9\n", None, "line 2: there is no site '9'"),
            ("1,2\nx\n", None, "line 2: there is no site 'x'"),
            ("1\n1\n", Some(3), "2 sets are given for 3 sites"),
            (",\n", None, "line 1: a set needs at least one site"),
            ("", None, "1 to 2000 sites"),
        ];
        for (text, sites, expected) in cases {
            let report = parse(text, sites).unwrap_err();
            assert!(report.to_string().contains(expected), "{report}");
        }
    }
}
