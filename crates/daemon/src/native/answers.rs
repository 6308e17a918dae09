//! Answers to a client's questions.

use super::NATIVE;
use super::clients::Client;
use crate::front::Front;
use crate::listing;
use crate::rights::Action;
use crate::shared::Shared;
use lockkeeper_cluster::MemberId;
use lockkeeper_member::check_name;
use lockkeeper_wire::{Answer, Ask, FromDaemon};
use std::sync::Arc;
use tokio::task::JoinSet;

/// How many questions of one connection are being answered at a time.
const MOST_AT_ONCE: usize = 64;

/// The questions of one connection. They end with it.
pub(super) struct Answers {
    tasks: JoinSet<()>,
    watches: bool,
}

impl Answers {
    pub fn new() -> Self {
        Self { tasks: JoinSet::new(), watches: false }
    }

    /// Answers a question, in time.
    pub fn begin(&mut self, front: Arc<Front>, client: Arc<Client>, number: u64, ask: Ask) {
        while self.tasks.try_join_next().is_some() {}
        if self.tasks.len() >= MOST_AT_ONCE {
            let why = format!("at most {MOST_AT_ONCE} questions are answered at a time");
            return client.tell(FromDaemon::Answer(number, Answer::Refused(why)));
        }
        if let Ask::Watch = ask {
            client.tell(FromDaemon::Answer(number, Answer::Done));
            if !std::mem::replace(&mut self.watches, true) {
                self.tasks.spawn(watch(front, client));
            }
            return;
        }
        self.tasks.spawn(async move {
            let answer = answer(&front.shared, &client, ask).await.unwrap_or_else(Answer::Refused);
            client.tell(FromDaemon::Answer(number, answer));
        });
    }
}

/// Tells of changes at any member.
async fn watch(front: Arc<Front>, client: Arc<Client>) {
    let mut watch = front.leases.watch("");
    while watch.changed().await {
        client.tell(FromDaemon::Changed);
    }
}

async fn answer(shared: &Shared, client: &Client, ask: Ask) -> Result<Answer, String> {
    let who = &client.principal();
    let may =
        |action, name: &str| shared.check(NATIVE, who, action, name).map_err(|denied| denied.to_string());
    let is_name = |name: &str| check_name(name).map_err(|why| format!("bad lock name: {why}"));
    let failed = |error: lockkeeper_cluster::Error| error.to_string();
    Ok(match ask {
        Ask::Locks(name) => {
            name.as_deref().map_or(Ok(()), is_name)?;
            let lines = listing::locks(&shared.member, name.as_deref()).await.map_err(failed)?;
            Answer::Locks(lines.into_iter().filter(|line| who.sees(&line.name)).collect())
        }
        Ask::Watch => Answer::Done,
        Ask::Cluster => {
            may(Action::Cluster, "")?;
            Answer::Cluster(listing::cluster(&shared.member))
        }
        Ask::ForceRelease(name) => {
            is_name(&name)?;
            may(Action::ForceRelease, &name)?;
            let released = shared.release_by_force(NATIVE, who, &name, None).await.map_err(failed)?;
            Answer::Released(released.len() as u32)
        }
        Ask::Why(name) => {
            is_name(&name)?;
            may(Action::See, &name)?;
            Answer::Why(listing::why(&shared.member, &name, |lock| who.sees(lock)).await.map_err(failed)?)
        }
        Ask::Remove(id) => {
            may(Action::RemoveMember, "")?;
            shared.member.remove(MemberId(id)).await.map_err(failed)?;
            Answer::Done
        }
        Ask::Set(changes) => {
            may(Action::ChangeSettings, "")?;
            shared.member.change_settings(&changes).await.map_err(|error| match error {
                lockkeeper_cluster::Error::BadOption(why) => why,
                other => other.to_string(),
            })?;
            Answer::Done
        }
        Ask::Leave => {
            may(Action::Leave, "")?;
            shared.leave.notify_one();
            Answer::Done
        }
    })
}
