//! The comparison: the papers' figures, identical output for every number of threads, and rows that report
//! failures.

use lockkeeper_core::registry;
use lockkeeper_lab::comparison::properties::{Answer, ComparedProperty, properties};
use lockkeeper_lab::comparison::table::{Comparison, Sweep, Verdict, page, plots};
use lockkeeper_lab::simulator::spec::LoadSpec;
use lockkeeper_lab::trace::Story;
use lockkeeper_lab::{Progress, Scenario};

fn sweep(algorithms: &[&str], sites: &[usize], loads: &[LoadSpec]) -> Sweep {
    Sweep {
        algorithms: algorithms.iter().map(ToString::to_string).collect(),
        sites: sites.to_vec(),
        loads: loads.to_vec(),
        seeds: 2,
        ..Sweep::all()
    }
}

fn run(sweep: &Sweep) -> Comparison {
    sweep.run(&Progress::default()).expect("the sweep is valid")
}

#[test]
fn every_formula_is_met_exactly_or_within_two_percent() {
    let all = Sweep { sites: vec![3, 7, 13], ..Sweep::all() };
    let comparison = run(&all);
    assert_eq!(comparison.rows.len(), registry::ALL.len() * 3 * 2);
    for row in &comparison.rows {
        assert_ne!(
            row.verdict,
            Verdict::Off,
            "{}, {} sites, {} load: {:?} measured, {:?} by the paper",
            row.algorithm,
            row.sites,
            row.load,
            row.messages_per_entry,
            row.formula_value
        );
    }
    let exact = |slug: &str, load: &str| comparison.row(slug, load, 13).map(|row| row.verdict);
    for slug in ["centralized", "lamport", "ricart-agrawala"] {
        assert_eq!(exact(slug, "low"), Some(Verdict::Exact), "{slug}");
        assert_eq!(exact(slug, "high"), Some(Verdict::Exact), "{slug}");
    }
}

#[test]
fn load_pairs_makes_means_exact() {
    let comparison =
        run(&sweep(&["suzuki-kasami", "raymond", "token-ring-parked"], &[3, 7, 13], &[LoadSpec::Pairs]));
    assert!(comparison.rows.iter().all(|row| row.verdict == Verdict::Exact), "{:#?}", comparison.rows);
}

#[test]
fn row_of_a_deadlocking_algorithm_reports_the_deadlock_and_its_command() {
    let comparison = run(&sweep(&["maekawa-basic", "maekawa"], &[3], &[LoadSpec::High]));
    let row = comparison.row("maekawa-basic", "high", 3).unwrap();
    assert_eq!(row.verdict, Verdict::Deadlocks);
    let trouble = row.trouble.as_ref().unwrap();
    assert!(trouble.what.contains("deadlock"), "{}", trouble.what);
    assert!(trouble.reproduce.starts_with("lockkeeper sim --algorithm maekawa-basic --sites 3"));
    assert!(comparison.row("maekawa", "high", 3).unwrap().trouble.is_none());
}

#[test]
fn footnotes_contain_the_measured_values() {
    let rows =
        run(&sweep(&["lamport", "ricart-agrawala", "token-ring"], &[9], &[LoadSpec::Low, LoadSpec::High]));
    let notes: Vec<&str> = rows.footnotes.iter().map(|note| note.text.as_str()).collect();
    assert!(notes[0].contains("1 T with lamport and 9 sites"), "{}", notes[0]);
    assert!(
        notes[1].contains("measured 16 with 9 sites, 0 of them only to announce an exit"),
        "{}",
        notes[1]
    );
    assert!(notes[2].contains("that costs 1 messages per T, measured with 9 sites"), "{}", notes[2]);
    assert_eq!(rows.marks("ricart-agrawala"), "¹,²");
    assert!(run(&sweep(&["raymond"], &[3], &[LoadSpec::Low])).footnotes.is_empty());
}

/// All output of `compare` as one text.
fn everything(threads: usize) -> String {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
    pool.install(|| {
        let slugs = ["centralized", "maekawa-basic", "naimi-trehel", "lamport"];
        let sweep = sweep(&slugs, &[3, 5], &[LoadSpec::Low, LoadSpec::High]);
        let comparison = run(&sweep);
        let plots = plots::plots(&sweep, &comparison, &Progress::default()).unwrap();
        let json = serde_json::to_string(&comparison).unwrap();
        json + &comparison.csv() + &page(&comparison, &plots)
    })
}

#[test]
fn output_does_not_depend_on_the_number_of_threads() {
    let one = everything(1);
    assert!(one.len() > 20_000);
    assert!(
        one == everything(2) && one == everything(5),
        "tables, plots and page must not depend on threads"
    );
}

#[test]
fn plots_are_complete_and_name_every_algorithm() {
    let sweep = sweep(&["ricart-agrawala", "maekawa", "maekawa-basic"], &[3, 7, 13], &[LoadSpec::Low]);
    let comparison = run(&sweep);
    let plots = plots::plots(&sweep, &comparison, &Progress::default()).unwrap();
    let names: Vec<&str> = plots.iter().map(|plot| plot.name.as_str()).collect();
    assert_eq!(names, ["messages-low", "throughput", "response", "fairness"]);
    for plot in &plots {
        assert!(plot.svg.starts_with("<svg ") && plot.svg.ends_with("</svg>\n"), "{}", plot.name);
        assert!(!plot.svg.contains("NaN") && !plot.svg.contains("inf"), "{}", plot.name);
        for slug in &sweep.algorithms {
            assert!(plot.svg.contains(slug.as_str()), "{} does not name {slug}", plot.name);
        }
    }
    assert!(plots[0].svg.contains("3√N = 2(N−1) at N = 4"));
    assert!(plots[1].svg.contains("not drawn"), "maekawa-basic deadlocks under load");
}

#[test]
fn plots_of_one_site_and_one_size_are_valid() {
    let sweep = sweep(&["lamport", "token-ring"], &[1], &[LoadSpec::Low, LoadSpec::High]);
    let plots = plots::plots(&sweep, &run(&sweep), &Progress::default()).unwrap();
    assert!(plots.iter().all(|plot| !plot.svg.contains("NaN") && !plot.svg.contains("inf")));
}

#[test]
fn table_of_properties_agrees_with_the_textbooks() {
    let slugs = ["centralized", "lamport", "ricart-agrawala", "token-ring", "maekawa-basic", "maekawa"];
    let found = properties(&slugs.map(String::from), &Progress::default()).unwrap();
    let answer = |slug: &str, compared: ComparedProperty| {
        let finding = found.iter().find(|finding| finding.algorithm == slug).unwrap();
        finding.answers.iter().find(|(asked, _)| *asked == compared).unwrap().1.clone()
    };
    let held = |slug, compared| matches!(answer(slug, compared), Answer::Held { .. });
    let broken = |slug, compared| matches!(answer(slug, compared), Answer::Broken { .. });
    for slug in slugs {
        assert!(held(slug, ComparedProperty::MutualExclusion), "{slug}");
        assert_eq!(held(slug, ComparedProperty::NoDeadlock), slug != "maekawa-basic", "{slug}");
        assert_eq!(held(slug, ComparedProperty::NoStarvation), slug != "maekawa-basic", "{slug}");
    }
    assert!(
        held("lamport", ComparedProperty::TimestampOrder) && held("lamport", ComparedProperty::CausalOrder)
    );
    assert!(broken("lamport", ComparedProperty::WithoutFifo));
    assert!(
        held("ricart-agrawala", ComparedProperty::TimestampOrder)
            && broken("ricart-agrawala", ComparedProperty::CausalOrder)
    );
    assert!(broken("token-ring", ComparedProperty::TimestampOrder));
    assert!(
        broken("centralized", ComparedProperty::TimestampOrder)
            && held("centralized", ComparedProperty::ArrivalOrder)
    );
    assert_eq!(answer("token-ring", ComparedProperty::ArrivalOrder), Answer::NotAsked);
}

#[test]
fn explanation_shows_a_figure_of_its_algorithm() {
    // `explain` shows it: it must parse, run, and be a run of that algorithm.
    for figure in lockkeeper_lab::simulator::figures::ALL {
        let scenario = Scenario::parse(figure.name, figure.text).unwrap();
        let name = &scenario.spec.algorithm;
        let known = if scenario.election {
            registry::find_election(name).is_some()
        } else {
            registry::find(name).is_some()
        };
        assert!(known, "{}", figure.name);
        let ran = scenario.run_spec().trace(1, &mut Story::default(), &Progress::default());
        assert!(ran.is_ok(), "{}", figure.name);
    }
}
