//! The handlers of the page's HTTP requests.

use crate::jobs::{Jobs, Refusal};
use crate::lessons::{CausalityRequest, FlpRequest};
use crate::requests::{
    self, AnswerRequest, CheckRequest, CompareRequest, PlayRequest, QuestionRequest, RequestError, RunRequest,
};
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use lockkeeper_core::registry;
use lockkeeper_lab::checker::counterexamples;
use lockkeeper_lab::checker::{self, CheckReport};
use lockkeeper_lab::comparison::table::{Comparison, Sweep, plots};
use lockkeeper_lab::quiz::{Grade, Question};
use lockkeeper_lab::simulator::figures;
use lockkeeper_lab::trace::recording::{self, Recording};
use lockkeeper_lab::{Progress, Scenario, mutants};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;

type RequestBody<T> = Result<Json<T>, JsonRejection>;

fn parsed<T>(body: RequestBody<T>) -> Result<T, Refusal> {
    body.map(|Json(request)| request).map_err(|error| Refusal::usage(error.body_text()))
}

/// A recorded run for the player.
#[derive(Debug, Serialize)]
pub struct RecordedRun {
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
            let parsed = Scenario::parse(figure.name, figure.text);
            let (title, about) = parsed.map(|parsed| (parsed.title, parsed.about)).unwrap_or_default();
            json!({ "name": figure.name, "title": title, "about": about, "text": figure.text })
        })
        .collect();
    let variants: Vec<Value> = mutants::ALL
        .iter()
        .map(|mutant| json!({ "name": mutant.name, "twin": mutant.twin, "story": mutant.story }))
        .chain(mutants::election::ALL.iter().map(|mutant| {
            json!({ "name": mutant.name, "twin": mutant.twin, "story": mutant.story, "election": true })
        }))
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
pub async fn status(State(jobs): State<Jobs>) -> Json<Value> {
    Json(json!({ "running": jobs.running() }))
}

/// Runs an algorithm or an election with flags.
pub async fn run(
    State(jobs): State<Jobs>,
    body: RequestBody<RunRequest>,
) -> Result<Json<RecordedRun>, Refusal> {
    let request = parsed(body)?;
    let run = move |progress: &Progress| {
        if let Some(spec) = request.election()? {
            let recording = recording::record_election(&spec, request.seed, requests::RUN)?;
            let title =
                format!("{}, {} sites, seed {}", spec.system.algorithm, spec.system.sites, request.seed);
            return Ok(RecordedRun { title, about: String::new(), scenario: None, recording });
        }
        let spec = request.spec()?;
        let recording = recording::record(&spec, request.seed, requests::RUN, progress)?;
        let title =
            format!("{}, {} sites, {} load, seed {}", spec.algorithm, spec.sites, spec.load, request.seed);
        Ok(RecordedRun { title, about: String::new(), scenario: None, recording })
    };
    Ok(Json(jobs.run(requests::RUN_TIME, run).await?))
}

/// Runs a scenario.
pub async fn play(
    State(jobs): State<Jobs>,
    body: RequestBody<PlayRequest>,
) -> Result<Json<RecordedRun>, Refusal> {
    let request = parsed(body)?;
    let run = move |progress: &Progress| record_scenario(&request, progress);
    Ok(Json(jobs.run(requests::RUN_TIME, run).await?))
}

fn record_scenario(request: &PlayRequest, progress: &Progress) -> Result<RecordedRun, RequestError> {
    let scenario = request.scenario()?;
    let mut recording = recording::record_run(&scenario.run_spec(), 1, requests::RUN, progress)?;
    // The scenario is not a file on this machine; the page offers its text instead of a command.
    recording.command.clear();
    Ok(RecordedRun {
        title: scenario.title,
        about: scenario.about,
        scenario: Some(request.text().into()),
        recording,
    })
}

/// The exercise with a seed and a number.
pub async fn question(
    State(jobs): State<Jobs>,
    body: RequestBody<QuestionRequest>,
) -> Result<Json<Question>, Refusal> {
    let request = parsed(body)?;
    let run = move |_: &Progress| Ok(request.exercise()?.question);
    Ok(Json(jobs.run(requests::RUN_TIME, run).await?))
}

/// The verdict on an answer to an exercise.
pub async fn grade(
    State(jobs): State<Jobs>,
    body: RequestBody<AnswerRequest>,
) -> Result<Json<Grade>, Refusal> {
    let request = parsed(body)?;
    let run = move |_: &Progress| request.grade();
    Ok(Json(jobs.run(requests::RUN_TIME, run).await?))
}

/// The lesson on the impossibility of consensus.
pub async fn flp(State(jobs): State<Jobs>, body: RequestBody<FlpRequest>) -> Result<Json<Value>, Refusal> {
    let request = parsed(body)?;
    let run = move |_: &Progress| request.lesson();
    Ok(Json(jobs.run(requests::RUN_TIME, run).await?))
}

/// The lesson on happened-before.
pub async fn causality(
    State(jobs): State<Jobs>,
    body: RequestBody<CausalityRequest>,
) -> Result<Json<Value>, Refusal> {
    let request = parsed(body)?;
    let run = move |_: &Progress| request.lesson();
    Ok(Json(jobs.run(requests::RUN_TIME, run).await?))
}

/// Runs a check; streams the counts until it ends.
pub async fn check(State(jobs): State<Jobs>, body: RequestBody<CheckRequest>) -> Result<Response, Refusal> {
    let spec = parsed(body)?.spec().map_err(Refusal::usage)?;
    jobs.stream(requests::CHECK_TIME, move |reports| {
        let mut report_is_due = reports.timer();
        let report = checker::check(&spec, |progress| {
            if report_is_due() {
                reports.send(&json!({ "sofar": {
                    "distinct": progress.distinct, "generated": progress.generated, "depth": progress.depth
                }}));
            }
            progress.distinct < requests::CHECK_STATES && reports.should_continue()
        });
        Ok(json!({ "answer": check_reply(&report?) }))
    })
}

fn check_reply(report: &CheckReport) -> Value {
    let scenario = report.counterexample.as_ref().and_then(|found| found.scenario.as_ref());
    let breach = report.counterexample.as_ref().map(|found| found.violation.property.violation_name());
    let mut value = serde_json::to_value(report).unwrap_or_default();
    if let Some(object) = value.as_object_mut() {
        object.insert("scenario".into(), json!(scenario));
        object.insert("breach".into(), json!(breach));
    }
    value
}

/// Runs a comparison; streams its progress until it ends.
pub async fn compare(
    State(jobs): State<Jobs>,
    body: RequestBody<CompareRequest>,
) -> Result<Response, Refusal> {
    let sweep = parsed(body)?.sweep().map_err(Refusal::usage)?;
    jobs.stream(requests::COMPARE_TIME, move |reports| {
        let total = sweep.entries().saturating_add(plots::Study::entries(&sweep));
        let progress = reports.progress.clone();
        let sofar =
            || json!({ "sofar": { "entries": progress.entries.load(Ordering::Relaxed), "of": total } });
        reports.send_while(sofar, || comparison_reply(&sweep, &reports.progress))
    })
}

fn comparison_reply(sweep: &Sweep, progress: &Progress) -> Result<Value, RequestError> {
    let comparison: Comparison = sweep.run(progress)?;
    let plots = plots::plots(sweep, &comparison, progress)?;
    let plots: Vec<Value> = plots
        .iter()
        .map(|plot| json!({ "name": plot.name, "caption": plot.caption, "svg": plot.svg }))
        .collect();
    Ok(json!({ "comparison": comparison, "csv": comparison.csv(), "plots": plots }))
}

/// A known counterexample with its recorded run.
pub async fn counterexample(
    State(jobs): State<Jobs>,
    Path(name): Path<String>,
) -> Result<Json<Value>, Refusal> {
    let failure = counterexamples::find(&name)
        .ok_or_else(|| Refusal::usage(format!("there is no '{name}' in the gallery")))?;
    let shown = move |progress: &Progress| {
        let run = match failure.scenario() {
            Some(text) => json!(record_scenario(&PlayRequest::new(text), progress)?),
            None => json!({
                "title": failure.title, "about": failure.story, "scenario": null, "recording": failure.recording(),
            }),
        };
        Ok(json!({ "failure": failure, "film": run }))
    };
    Ok(Json(jobs.run(requests::RUN_TIME, shown).await?))
}
