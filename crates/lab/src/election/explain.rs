//! An explanation of an election: the header of its source file, and a small run of it.

use super::{ElectionSpec, algorithm};
use crate::comparison::explain::{AnnotatedRun, Header};
use crate::simulator::run_spec::RunSpec;
use crate::simulator::runner::Error;
use crate::simulator::spec::{Action, Scripted};
use crate::simulator::time::Time;
use lockkeeper_core::election::About;
use lockkeeper_core::{SiteId, registry};

/// The explanation of an election.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// Its entry in the registry.
    pub about: &'static About,
    /// The header of its file.
    pub header: Header,
    /// The names of its messages.
    pub messages: Vec<&'static str>,
    /// Its rules. Each is the rest of a sentence that starts with the site's name.
    pub rules: Vec<&'static str>,
    /// A small run.
    pub run: AnnotatedRun,
}

/// Explains an election; `None` if there is no election with this name.
pub fn explain(slug: &str) -> Result<Option<Explanation>, Error> {
    let Some(entry) = registry::find_election(slug) else { return Ok(None) };
    let algorithm = algorithm::find(slug).expect("every entry of the registry is an election");
    let messages = algorithm.kinds().iter().map(|kind| kind.name).collect();
    let rules = (0..).map_while(|index| algorithm.rule(index)).collect();
    let (about, header) = (entry.about, Header::parse(entry.source));
    Ok(Some(Explanation {
        about,
        header,
        messages,
        rules,
        run: annotated_run(slug, about.survives_crashes)?,
    }))
}

/// Four sites; the leader crashes, if the election survives that, and the lowest site starts an election.
fn annotated_run(slug: &str, survives_crashes: bool) -> Result<AnnotatedRun, Error> {
    let mut spec = ElectionSpec::new(slug, 4);
    spec.initiators.push((SiteId::new(0), Time::UNIT));
    let title = if survives_crashes {
        spec.system.script.push(Scripted { at: Time::UNIT, action: Action::Crash(SiteId::new(3)) });
        "The leader dies, and the lowest of four sites notices"
    } else {
        "The lowest of four sites starts an election"
    };
    AnnotatedRun::of(title.into(), String::new(), &RunSpec::Election(spec))
}
