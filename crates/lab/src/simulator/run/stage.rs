//! The visible state of a run between two of its events.

use super::Sim;
use crate::trace::{Held, SiteState, Stage};
use lockkeeper_core::{MutualExclusion, Phase, SiteId};

impl<P: MutualExclusion> Sim<'_, P> {
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

impl<P: MutualExclusion> Stage for Sim<'_, P> {
    fn site(&self, site: SiteId) -> SiteState {
        let (protocol, up) = (self.world.protocol(site), self.world.is_up(site));
        SiteState {
            phase: self.world.phase(site),
            mode: self.world.mode(site),
            up,
            paused: self.paused[site.index()].is_some(),
            tokens: if up { protocol.tokens() } else { 0 },
            timers: self.timers[site.index()].len(),
            fields: if up { protocol.fields() } else { Vec::new() },
            points_to: protocol.points_to().filter(|_| up),
            waits_for: if up && self.world.phase(site) == Phase::Waiting {
                protocol.waits_for()
            } else {
                Vec::new()
            },
            quorum: protocol.quorum().to_vec(),
        }
    }

    fn held(&self) -> Vec<Held> {
        let held = |&place: &usize| {
            let envelope = &self.flights[place].envelope;
            Held { from: envelope.from, to: envelope.to, text: envelope.message.to_string() }
        };
        self.held.iter().map(held).collect()
    }
}
