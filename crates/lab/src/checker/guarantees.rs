//! The guarantees of a mutual exclusion algorithm, and the report on whether it keeps them.

use super::SearchResult;
use super::counterexample::Counterexample;
use super::mutual_exclusion::net::Net;
use super::mutual_exclusion::seen::Seen;
use super::report::{CheckReport, Verdict, rounded};
use super::spec::{CheckSpec, ModelKind};
use crate::algorithm::Configured;
use crate::checker::explore::{Ended, FoundViolation};
use crate::property::Property;
use lockkeeper_core::SiteId;

/// The guarantees of an algorithm, and its rules and messages.
pub(super) struct Guarantees {
    timestamp_order: bool,
    most_messages: Option<usize>,
    rules: Vec<&'static str>,
    kinds: Vec<&'static str>,
    unreachable: &'static [&'static str],
}

impl Guarantees {
    /// The guarantees of an algorithm in the system of the spec.
    pub fn by(configured: &dyn Configured, spec: &CheckSpec) -> Self {
        let algorithm = configured.algorithm();
        Self {
            timestamp_order: algorithm.in_timestamp_order(),
            // A site that starts inside sends without a request, and faults cost messages of their own.
            most_messages: configured
                .most_messages(spec.sites)
                .filter(|_| spec.holders.is_empty() && spec.faults.none()),
            rules: algorithm.rules(),
            kinds: algorithm.kinds().iter().map(|kind| kind.name).collect(),
            unreachable: configured.unreachable_labels(),
        }
    }

    /// The bound on messages per entry, if it is checked.
    pub fn most_messages(&self, spec: &CheckSpec) -> Option<u32> {
        let asked = spec.only.is_none_or(|only| only == Property::MessageBound);
        self.most_messages.filter(|_| asked).and_then(|most| most.try_into().ok())
    }

    /// The report of a check, from the result of a search.
    pub fn report(&self, spec: &CheckSpec, net: &Net, searched: SearchResult) -> CheckReport {
        let mut report = self.counts(spec, net, &searched);
        match &searched.violation {
            Some(FoundViolation { violation, run }) => {
                report.violate(violation.property);
                report.wrong = Some(violation.what.clone());
                let found =
                    run.as_ref().map(|run| Counterexample::replayed(spec, net, violation.clone(), run));
                report.counterexample = found;
            }
            None => self.judge(&mut report, spec, &searched),
        }
        report
    }

    /// A report with the counts of a search, and without verdicts.
    fn counts(&self, spec: &CheckSpec, net: &Net, searched: &SearchResult) -> CheckReport {
        let SearchResult { seen, progress, .. } = searched;
        let fifo = net.kernel.traits().fifo;
        let mut report = CheckReport::new(spec, ModelKind::MutualExclusion, system(spec, fifo), *progress);
        let unchecked = [
            (Property::TimestampOrder, self.timestamp_order),
            (Property::MessageBound, self.most_messages(spec).is_some()),
        ];
        report.properties.retain(|property, _| !unchecked.contains(&(*property, false)));
        CheckReport {
            requests: spec.requests,
            fifo: Some(fifo),
            complete: searched.ended != Ended::Stopped,
            bounded: searched.cut > 0,
            cut: searched.cut,
            symmetry: net.symmetric,
            reduction: (net.reduced && !net.symmetric)
                .then(|| rounded(seen.stood_for / seen.expanded.max(1) as f64)),
            max_bypass: (seen.max_bypass < u8::MAX).then_some(seen.max_bypass),
            max_messages_per_entry: seen
                .dearest
                .filter(|(messages, _)| *messages < u8::MAX)
                .map(|(messages, entries)| f64::from(messages) / f64::from(entries)),
            ..report
        }
    }

    /// Sets the verdicts after a search that found no violation.
    fn judge(&self, report: &mut CheckReport, spec: &CheckSpec, searched: &SearchResult) {
        report.never_fired = self.never(spec, &searched.seen);
        if !report.complete {
            return;
        }
        for (property, verdict) in &mut report.properties {
            *verdict = match property {
                Property::NoStarvation if !searched.looked_for_starvation => Verdict::Unknown,
                Property::MessageBound => match (report.max_messages_per_entry, self.most_messages) {
                    (Some(most), Some(bound)) if most > bound as f64 => Verdict::Violated,
                    (Some(_), _) => Verdict::Holds,
                    (None, _) => Verdict::Unknown,
                },
                _ => Verdict::Holds,
            };
        }
    }

    /// Rules, messages and entries that never occurred although they can. A property was not tested where
    /// they matter.
    fn never(&self, spec: &CheckSpec, seen: &Seen) -> Vec<String> {
        let missing = |names: &[&'static str], bits: u128| -> Vec<&'static str> {
            let names = names.iter().enumerate().filter(|(index, _)| bits >> index & 1 == 0);
            names.map(|(_, name)| *name).filter(|name| !self.unreachable.contains(name)).collect()
        };
        let sites = (0..spec.sites).filter(|who| seen.entered >> who & 1 == 0);
        let entered = sites.map(|who| format!("{} enters", SiteId::new(who)));
        let kinds =
            missing(&self.kinds, seen.kinds.into()).into_iter().map(|kind| format!("{kind} is delivered"));
        let rules = missing(&self.rules, seen.rules).into_iter().map(|rule| format!("a site {rule}"));
        entered.chain(kinds).chain(rules).collect()
    }
}

/// The system in words: `3 sites, each asks once, FIFO channels`.
fn system(spec: &CheckSpec, fifo: bool) -> String {
    let asks = match spec.requests {
        Some(1) => "each asks once".into(),
        Some(requests) => format!("each asks {requests} times"),
        None => "each asks again and again".to_string(),
    };
    let order = if fifo { "FIFO channels" } else { "channels that may reorder" };
    format!("{} sites, {asks}, {order}", spec.sites)
}
