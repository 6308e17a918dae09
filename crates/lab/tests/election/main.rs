//! Elections: costs, properties and mutants.

mod costs;
mod every_run;
mod figures;
mod raft;
mod rings;
mod runs;
mod variants;

use lockkeeper_core::SiteId;
use lockkeeper_lab::Time;
use lockkeeper_lab::election::ElectionSpec;
use lockkeeper_lab::simulator::spec::{Action, Scripted};

fn site(number: usize) -> SiteId {
    SiteId::new(number - 1)
}

fn t(time: f64) -> Time {
    Time::from_t(time).unwrap()
}

/// An election that these sites start at these times.
fn election(name: &str, sites: usize, initiators: &[(usize, f64)]) -> ElectionSpec {
    let mut spec = ElectionSpec::new(name, sites);
    spec.initiators = initiators.iter().map(|&(number, at)| (site(number), t(at))).collect();
    spec
}

fn at(spec: &mut ElectionSpec, time: f64, action: Action) {
    spec.system.script.push(Scripted { at: t(time), action });
    spec.system.script.sort_by_key(|scripted| scripted.at);
}
