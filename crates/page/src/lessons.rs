//! The lessons of the page: the impossibility of consensus, and happened-before with its clocks.

use crate::requests::{PlayRequest, RequestError};
use lockkeeper_lab::causality::drawing::{Marks, draw};
use lockkeeper_lab::causality::{Cut, History, Relation};
use lockkeeper_lab::flp::{self, PROTOCOLS};
use lockkeeper_lab::trace::clocks::ClockUpdate;
use serde::Deserialize;
use serde_json::{Value, json};

/// The maximum number of steps of the adversary's run.
const MOST_STEPS: usize = 400;
/// The maximum number of events of a drawn history.
const MOST_EVENTS: usize = 400;

/// The lesson about one protocol, as for `lockkeeper flp`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlpRequest {
    protocol: String,
    steps: usize,
}

impl FlpRequest {
    /// The sections of the lesson, and the first steps of the run without a decision.
    pub fn lesson(&self) -> Result<Value, RequestError> {
        let lesson = flp::lesson(&self.protocol)
            .ok_or_else(|| RequestError::UnknownProtocol { protocol: self.protocol.clone() })?
            .map_err(RequestError::from)?;
        let (inputs, steps) = match lesson.adversary() {
            Some((inputs, run)) => (Some(inputs), run.take(self.steps.min(MOST_STEPS)).collect()),
            None => (None, Vec::new()),
        };
        Ok(json!({
            "protocols": PROTOCOLS, "sections": lesson.sections(), "inputs": inputs, "steps": steps,
        }))
    }
}

/// A history of a scenario, as for `lockkeeper causality`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CausalityRequest {
    scenario: String,
    /// The event whose past and future are shown; empty for none.
    event: String,
    /// The cut to judge; empty for none.
    cut: String,
}

impl CausalityRequest {
    /// The diagram and what it shows.
    pub fn lesson(&self) -> Result<Value, RequestError> {
        let scenario = PlayRequest::new(&self.scenario).scenario()?;
        let history = History::of_run(&scenario.run_spec(), 1)?;
        if history.events.len() > MOST_EVENTS {
            return Err(RequestError::Events { most: MOST_EVENTS });
        }
        let stamps = history.stamps(ClockUpdate::Maximum);
        let event = match self.event.trim() {
            "" => None,
            text => Some(history.find(text)?),
        };
        let cut = match self.cut.trim() {
            "" => None,
            text => {
                let cut = Cut::parse(&history, text)?;
                Some((cut.judge(&history), cut))
            }
        };
        let marks = Marks { event, cut: cut.as_ref().map(|(verdict, cut)| (cut, verdict)) };
        let clocks = history.clock_sentences(&stamps);
        let relations = event.map(|event| {
            json!({
                "say": history.events[event].say,
                "before": history.related(event, Relation::Before),
                "after": history.related(event, Relation::After),
                "concurrent": history.related(event, Relation::Concurrent),
            })
        });
        Ok(json!({
            "title": scenario.title,
            "svg": draw(&history, &stamps, &scenario.title, marks),
            "events": (0..history.events.len()).map(|event| history.name(event)).collect::<Vec<_>>(),
            "clocks": [clocks.counts, clocks.lamport, clocks.vector],
            "relations": relations,
            "cut": cut.map(|(verdict, _)| json!({
                "consistent": verdict.is_consistent(), "sentences": history.cut_sentences(&verdict),
            })),
        }))
    }
}
