//! Describes the steps of a cluster in sentences.

use super::tables::Tables;
use super::world::{Action, World};
use lockkeeper_core::MutualExclusion;
use lockkeeper_member::{Body, LockContent, RecordChange, ToClient};

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
                        format!("receives the freeze for epoch {} from {}", view.epoch, frame.from)
                    }
                    Body::Report { epoch, chunk, .. } => {
                        let held = if chunk.items.is_empty() { "nothing" } else { "the lock" };
                        format!("receives the report for epoch {epoch} from {}: it holds {held}", frame.from)
                    }
                    Body::Start { epoch, .. } => {
                        format!("receives the start of epoch {epoch} from {}", frame.from)
                    }
                    Body::Link { epoch, packet } => {
                        let content = match packet.payload.as_ref().map(|(_, message)| &message.content) {
                            Some(LockContent::Algorithm(message)) => message.to_string(),
                            other => format!("{other:?}"),
                        };
                        format!("receives {content} from {} in epoch {epoch}", frame.from)
                    }
                    Body::Renew(_) => format!("receives a request for a lease from {}", frame.from),
                    Body::Renewed { duration_ns, .. } => {
                        format!(
                            "receives a lease of {duration_ns} from {}, counted from its request",
                            frame.from
                        )
                    }
                    other => format!("receives {other:?}"),
                };
                format!("{} {what}", frame.to)
            }
            Action::Notify(who) => format!("{} learns what the voters have decided", name(who)),
            Action::NotifyLeader(who) => format!("{} learns that it leads", name(who)),
            Action::Request(who) => format!("a client of {} requests the lock", name(who)),
            Action::Release(who) => format!("the client of {} releases the lock", name(who)),
            Action::Crash(who) => format!("{} crashes", name(who)),
            Action::Restart(who) => format!("{} starts again, as a new incarnation", name(who)),
            Action::Sleep(who) => format!("{} pauses", name(who)),
            Action::Wake(who) => format!("{} continues", name(who)),
            Action::Elect(who) => format!("the voters choose {} to lead", name(who)),
            Action::Confirm(who) => format!("a majority confirms that {} leads", name(who)),
            Action::Leave(who) => format!("{} begins to leave", name(who)),
            Action::Apply(write) => {
                let write = tables.write(write);
                let changes = write.changes.iter().map(|change| match change {
                    RecordChange::Record(_) => "the record of the hold",
                    RecordChange::End(_) => "the end of the record",
                });
                let changes: Vec<&str> = changes.collect();
                format!("the log takes {} from {}", changes.join(" and "), write.home)
            }
            Action::Contact(who) => format!("the holder sends its messages to {}", name(who)),
            Action::HolderReceives(from, message) => {
                let message = match tables.message_to_holder(message) {
                    ToClient::Alive { duration_ns, recorded: Some(_), .. } => {
                        format!("a lease of {duration_ns} and the promise of its recorded hold")
                    }
                    ToClient::Alive { duration_ns, .. } => format!("a lease of {duration_ns}"),
                    ToClient::Recorded { .. } => "that its hold is recorded".into(),
                    ToClient::Resumed { held, .. } if held.is_empty() => {
                        "that another member has its session, without the hold".into()
                    }
                    ToClient::Resumed { .. } => "that another member has its session and its hold".into(),
                    other => format!("{other:?}"),
                };
                format!("the holder receives from {}: {message}", name(from))
            }
            Action::GiveBack => "the holder releases the lock".into(),
            Action::Answer(who) => format!("{} learns that a majority has confirmed it", name(who)),
        }
    }
}
