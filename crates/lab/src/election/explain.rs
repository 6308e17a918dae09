//! An election explained from what its own file says, and a small run of it.

use super::{ElectionSpec, trace};
use crate::explain::{Header, Tale};
use crate::runner::Error;
use crate::spec::{Action, Scripted};
use crate::time::Time;
use crate::trace::Story;
use lockkeeper_core::election::About;
use lockkeeper_core::registry::{self, ElectionVisitor};
use lockkeeper_core::{Election, Protocol, Rules, SiteId, Vocabulary};

/// Everything there is to tell about an election.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// What the registry says.
    pub about: &'static About,
    /// What its file says.
    pub header: Header,
    /// The names of its messages.
    pub messages: Vec<&'static str>,
    /// Its rules, each the rest of a sentence that starts with the site's name.
    pub rules: Vec<&'static str>,
    /// A small run.
    pub tale: Tale,
}

/// Explains an election; `None` if there is none of that name.
pub fn explain(slug: &str) -> Result<Option<Explanation>, Error> {
    let Some(entry) = registry::find_election(slug) else { return Ok(None) };
    let (messages, rules) = registry::visit_election(slug, Words).unwrap_or_default();
    let (about, header) = (entry.about, Header::parse(entry.source));
    Ok(Some(Explanation { about, header, messages, rules, tale: tale(slug)? }))
}

struct Words;

impl ElectionVisitor for Words {
    type Output = (Vec<&'static str>, Vec<&'static str>);

    fn visit<E: Election>(self) -> Self::Output {
        let words = <E as Protocol>::Message::WORDS.iter().map(|word| word.name).collect();
        (words, <E as Protocol>::Rule::ALL.iter().map(|rule| rule.sentence()).collect())
    }
}

/// Four sites, of which the leader dies and the lowest notices.
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
