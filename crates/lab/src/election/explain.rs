//! An explanation of an election: the header of its source file, and a small run of it.

use super::{ElectionSpec, algorithm, trace};
use crate::comparison::explain::{Header, Tale};
use crate::simulator::runner::Error;
use crate::simulator::spec::{Action, Scripted};
use crate::simulator::time::Time;
use crate::trace::Story;
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
    pub tale: Tale,
}

/// Explains an election; `None` if there is no election with this name.
pub fn explain(slug: &str) -> Result<Option<Explanation>, Error> {
    let Some(entry) = registry::find_election(slug) else { return Ok(None) };
    let algorithm = algorithm::find(slug).expect("every entry of the registry is an election");
    let messages = algorithm.words().iter().map(|word| word.name).collect();
    let rules = (0..).map_while(|index| algorithm.rule(index)).collect();
    let (about, header) = (entry.about, Header::parse(entry.source));
    Ok(Some(Explanation { about, header, messages, rules, tale: tale(slug)? }))
}

/// Four sites; the leader crashes, and the lowest site detects it.
fn tale(slug: &str) -> Result<Tale, Error> {
    let mut spec = ElectionSpec::new(slug, 4);
    spec.system.script.push(Scripted { at: Time::UNIT, action: Action::Crash(SiteId::new(3)) });
    spec.initiators.push((SiteId::new(0), Time::UNIT));
    let mut story = Story::default();
    let report = trace(&spec, 1, &mut story)?;
    let leaders: Vec<&str> = report.leaders.keys().map(String::as_str).collect();
    Ok(Tale {
        title: "The leader dies, and the lowest of four sites notices".into(),
        about: String::new(),
        lines: story.lines,
        ending: format!("{} leads; {} messages.", leaders.join(", "), report.messages),
        draw: format!("{} --trace {slug}.svg", spec.command(1)),
    })
}
