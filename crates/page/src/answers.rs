//! The handlers of the page's HTTP requests.

use crate::wishes::{self, CheckWish, CompareWish, PlayWish, RunWish};
use crate::work::{Desk, Refusal};
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use lockkeeper_core::registry;
use lockkeeper_lab::check::{self, CheckReport};
use lockkeeper_lab::compare::{Comparison, Sweep, plots};
use lockkeeper_lab::recording::{self, Recording};
use lockkeeper_lab::{Progress, Scenario, counterexamples, figures, mutants};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;

type Asked<T> = Result<Json<T>, JsonRejection>;

fn wish<T>(asked: Asked<T>) -> Result<T, Refusal> {
    asked.map(|Json(wish)| wish).map_err(|error| Refusal::usage(error.body_text()))
}

/// A recorded run for the player.
#[derive(Debug, Serialize)]
pub struct Film {
    title: String,
    about: String,
    /// The scenario text for `lockkeeper sim --scenario` and `replay`; `None` for a run with flags.
    scenario: Option<String>,
    recording: Recording,
}

/// The algorithms, elections, figures, mutants and counterexamples that the page offers.
pub async fn about() -> Json<Value> {
    let algorithms: Vec<Value> = registry::ALL
        .iter()
        .map(|entry| {
            let shares = registry::sharing(entry.about.slug)
                .is_some_and(|sharing| sharing.knows(lockkeeper_core::Mode::Shared));
            json!({ "about": entry.about, "shares": shares })
        })
        .collect();
    let figures: Vec<Value> = figures::ALL
        .iter()
        .map(|figure| {
            let told = Scenario::parse(figure.name, figure.text);
            let (title, about) = told.map(|told| (told.title, told.about)).unwrap_or_default();
            json!({ "name": figure.name, "title": title, "about": about, "text": figure.text })
        })
        .collect();
    let variants: Vec<Value> = mutants::ALL
        .iter()
        .map(|mutant| json!({ "name": mutant.name, "twin": mutant.twin, "story": mutant.story }))
        .collect();
    Json(json!({
        "algorithms": algorithms,
        "elections": registry::ELECTIONS.iter().map(|entry| entry.about).collect::<Vec<_>>(),
        "figures": figures,
        "variants": variants,
        "gallery": counterexamples::ALL,
        "version": env!("CARGO_PKG_VERSION"),
    }))
}

/// Number of running jobs.
pub async fn status(State(desk): State<Desk>) -> Json<Value> {
    Json(json!({ "running": desk.busy() }))
}

/// Runs an algorithm or an election with flags.
pub async fn run(State(desk): State<Desk>, asked: Asked<RunWish>) -> Result<Json<Film>, Refusal> {
    let wish = wish(asked)?;
    let film = move |progress: &Progress| {
        if let Some(spec) = wish.election()? {
            let recording = recording::record_election(&spec, wish.seed, wishes::RUN).map_err(told)?;
            let title = format!("{}, {} sites, seed {}", spec.system.algorithm, spec.system.sites, wish.seed);
            return Ok(Film { title, about: String::new(), scenario: None, recording });
        }
        let spec = wish.spec()?;
        let recording = recording::record(&spec, wish.seed, wishes::RUN, progress).map_err(told)?;
        let title =
            format!("{}, {} sites, {} load, seed {}", spec.algorithm, spec.sites, spec.load, wish.seed);
        Ok(Film { title, about: String::new(), scenario: None, recording })
    };
    Ok(Json(desk.whole(wishes::RUN_TIME, film).await?))
}

/// Runs a scenario.
pub async fn play(State(desk): State<Desk>, asked: Asked<PlayWish>) -> Result<Json<Film>, Refusal> {
    let wish = wish(asked)?;
    let film = move |progress: &Progress| played(&wish, progress);
    Ok(Json(desk.whole(wishes::RUN_TIME, film).await?))
}

fn played(wish: &PlayWish, progress: &Progress) -> Result<Film, String> {
    let scenario = wish.scenario()?;
    let mut recording = recording::record(&scenario.spec, 1, wishes::RUN, progress).map_err(told)?;
    // The scenario is not a file on this machine; the page offers its text instead of a command.
    recording.command.clear();
    Ok(Film { title: scenario.title, about: scenario.about, scenario: Some(wish.text().into()), recording })
}

/// Runs a check; streams the counts until it ends.
pub async fn check(State(desk): State<Desk>, asked: Asked<CheckWish>) -> Result<Response, Refusal> {
    let spec = wish(asked)?.spec().map_err(Refusal::usage)?;
    desk.lines(wishes::CHECK_TIME, move |teller| {
        let mut due = teller.now_and_then();
        let report = check::check(&spec, |progress| {
            if due() {
                teller.tell(&json!({ "sofar": {
                    "distinct": progress.distinct, "generated": progress.generated, "depth": progress.depth
                }}));
            }
            progress.distinct < wishes::CHECK_STATES && teller.goes_on()
        });
        Ok(json!({ "answer": answered(&report.map_err(told)?) }))
    })
}

fn answered(report: &CheckReport) -> Value {
    let scenario = report.counterexample.as_ref().and_then(|found| found.scenario.as_ref());
    let breach = report.counterexample.as_ref().map(|found| found.breach.property.breach());
    let mut value = serde_json::to_value(report).unwrap_or_default();
    if let Some(object) = value.as_object_mut() {
        object.insert("scenario".into(), json!(scenario));
        object.insert("breach".into(), json!(breach));
    }
    value
}

/// Runs a comparison; streams its progress until it ends.
pub async fn compare(State(desk): State<Desk>, asked: Asked<CompareWish>) -> Result<Response, Refusal> {
    let sweep = wish(asked)?.sweep().map_err(Refusal::usage)?;
    desk.lines(wishes::COMPARE_TIME, move |teller| {
        let total = sweep.entries().saturating_add(plots::Study::entries(&sweep));
        let progress = teller.progress.clone();
        let sofar =
            || json!({ "sofar": { "entries": progress.entries.load(Ordering::Relaxed), "of": total } });
        teller.watch(sofar, || compared(&sweep, &teller.progress))
    })
}

fn compared(sweep: &Sweep, progress: &Progress) -> Result<Value, String> {
    let comparison: Comparison = sweep.run(progress).map_err(told)?;
    let plots = plots::plots(sweep, &comparison, progress).map_err(told)?;
    let plots: Vec<Value> = plots
        .iter()
        .map(|plot| json!({ "name": plot.name, "caption": plot.caption, "svg": plot.svg }))
        .collect();
    Ok(json!({ "comparison": comparison, "csv": comparison.csv(), "plots": plots }))
}

/// A known counterexample with its recorded run.
pub async fn exhibit(State(desk): State<Desk>, Path(name): Path<String>) -> Result<Json<Value>, Refusal> {
    let failure = counterexamples::find(&name)
        .ok_or_else(|| Refusal::usage(format!("there is no '{name}' in the gallery")))?;
    let shown = move |progress: &Progress| {
        let film = match failure.scenario() {
            Some(text) => json!(played(&PlayWish::new(text), progress)?),
            None => json!({
                "title": failure.title, "about": failure.story, "scenario": null, "recording": failure.told(),
            }),
        };
        Ok(json!({ "failure": failure, "film": film }))
    };
    Ok(Json(desk.whole(wishes::RUN_TIME, shown).await?))
}

fn told(error: lockkeeper_lab::Error) -> String {
    error.to_string()
}
