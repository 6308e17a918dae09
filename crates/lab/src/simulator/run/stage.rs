//! The visible state of a run between two of its events.

use super::{Flight, Sim};
use crate::trace::{Held, SiteState, Stage};
use lockkeeper_core::{Phase, SiteId};

impl Sim<'_> {
    /// Passes the state of the sites to the tracer; `false` if the tracer ends the run.
    #[inline]
    pub(super) fn show(&mut self) -> bool {
        if self.tracer.is_none() {
            return true;
        }
        let Some(mut tracer) = self.tracer.take() else { return true };
        let goes_on = tracer.look(self);
        self.tracer = Some(tracer);
        goes_on
    }
}

impl Stage for Sim<'_> {
    fn site(&self, site: SiteId) -> SiteState {
        let (state, up) = (self.world.state(site), self.world.is_up(site));
        SiteState {
            phase: self.world.phase(site),
            mode: self.world.mode(site),
            up,
            paused: self.paused[site.index()].is_some(),
            tokens: if up { state.tokens() } else { 0 },
            timers: self.world.armed(site).len(),
            fields: if up { state.fields() } else { Vec::new() },
            points_to: state.points_to().filter(|_| up),
            waits_for: if up && self.world.phase(site) == Phase::Waiting {
                state.waits_for()
            } else {
                Vec::new()
            },
            quorum: state.quorum().to_vec(),
        }
    }

    fn held(&self) -> Vec<Held> {
        let held = |&place: &usize| {
            let Flight { from, to, message, .. } = self.flights[place];
            Held { from, to, text: self.world.message(message).to_string() }
        };
        self.held.iter().map(held).collect()
    }
}
