//! Describes the steps of a cluster in sentences.

use super::tables::Tables;
use super::world::{Action, World};
use lockkeeper_core::MutualExclusion;
use lockkeeper_member::{Body, LockContent};

impl World {
    /// The sentence that describes an action in this state.
    pub fn sentence<P: MutualExclusion>(&self, action: Action, tables: &Tables<P>) -> String {
        let name = |who: usize| format!("M{}", who + 1);
        match action {
            Action::Time => format!("time passes: it is {}", self.rest.now + 1),
            Action::Deliver(frame) => {
                let frame = tables.frame(frame);
                let what = match &frame.body {
                    Body::Freeze { view, .. } => {
                        format!("is told by {} to freeze for epoch {}", frame.from, view.epoch)
                    }
                    Body::Report { epoch, chunk, .. } => {
                        let held = if chunk.items.is_empty() { "nothing" } else { "the lock" };
                        format!("hears from {}, for epoch {epoch}, that it holds {held}", frame.from)
                    }
                    Body::Start { epoch, .. } => {
                        format!("is told by {} that epoch {epoch} starts", frame.from)
                    }
                    Body::Link { epoch, packet } => {
                        let words = match packet.payload.as_ref().map(|(_, message)| &message.content) {
                            Some(LockContent::Algorithm(message)) => message.to_string(),
                            other => format!("{other:?}"),
                        };
                        format!("receives {words} from {} in epoch {epoch}", frame.from)
                    }
                    Body::Renew(_) => format!("is asked by {} for a lease", frame.from),
                    Body::Renewed { duration_ns, .. } => {
                        format!(
                            "hears from {} that its lease is {duration_ns} from when it asked",
                            frame.from
                        )
                    }
                    other => format!("receives {other:?}"),
                };
                format!("{} {what}", frame.to)
            }
            Action::Tell(who) => format!("{} hears what the voters have decided", name(who)),
            Action::TellLeader(who) => format!("{} hears that it leads", name(who)),
            Action::Ask(who) => format!("a client of {} asks for the lock", name(who)),
            Action::Release(who) => format!("the client of {} gives the lock back", name(who)),
            Action::Crash(who) => format!("{} crashes", name(who)),
            Action::Restart(who) => format!("{} begins another life", name(who)),
            Action::Sleep(who) => format!("{} stops for a while", name(who)),
            Action::Wake(who) => format!("{} goes on", name(who)),
            Action::Elect(who) => format!("the voters choose {} to lead", name(who)),
            Action::Confirm(who) => format!("a majority confirms that {} leads", name(who)),
            Action::Answer(who) => format!("{} hears that a majority has confirmed it", name(who)),
        }
    }
}
