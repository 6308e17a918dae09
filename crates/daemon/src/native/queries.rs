//! Replies to the queries of a client.

use super::NATIVE;
use super::clients::Client;
use super::detached;
use crate::access::{Denied, Principal};
use crate::client_service::ClientService;
use crate::leases::{LeaseError, Watch};
use crate::listing;
use crate::quotas::Charge;
use crate::rights::Action;
use crate::snapshots::Snapshot;
use lockkeeper_cluster::MemberId;
use lockkeeper_member::{BadText, check_name};
use lockkeeper_session::protocol::{
    DaemonQuery, DaemonReply, FromDaemon, LONGEST_FROM_DAEMON, LockLine, ParticipantLine,
};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

/// Maximum number of queries of one connection in progress.
const MOST_IN_PROGRESS: usize = 64;

/// Approximate maximum size of a page of a list, in bytes.
const PAGE_BYTES: usize = 1 << 20;

/// The queries of one connection. Dropping this aborts them.
pub(super) struct Queries {
    tasks: JoinSet<()>,
    watches: bool,
    /// The requests for detached holds in progress, by the number of the query.
    holds: HashMap<u64, AbortHandle>,
}

impl Queries {
    pub fn new() -> Self {
        Self { tasks: JoinSet::new(), watches: false, holds: HashMap::new() }
    }

    /// Ends a request for a detached hold, and answers it. A hold that was granted and not reported is given up.
    pub fn cancel(&mut self, client: &Client, number: u64) {
        if let Some(task) = self.holds.remove(&number).filter(|task| !task.is_finished()) {
            task.abort();
            client.send(FromDaemon::Reply(number, DaemonReply::Refused(String::from("it was cancelled"))));
        }
    }

    /// Starts notifying the client of changes.
    fn watch(&mut self, service: Arc<ClientService>, client: Arc<Client>) -> Result<(), LeaseError> {
        let (watch, charge) = service.watch(client.account(), client.principal().scope(""))?;
        self.watches = true;
        self.tasks.spawn(notify_changes(client, watch, charge));
        Ok(())
    }

    /// Starts answering a query. The reply follows asynchronously.
    pub fn begin(&mut self, service: Arc<ClientService>, client: Arc<Client>, number: u64, ask: DaemonQuery) {
        while self.tasks.try_join_next().is_some() {}
        if self.tasks.len() >= MOST_IN_PROGRESS {
            let why = format!("at most {MOST_IN_PROGRESS} queries of one connection are answered at a time");
            return client.send(FromDaemon::Reply(number, DaemonReply::Refused(why)));
        }
        match ask {
            DaemonQuery::Watch => {
                let began = if self.watches { Ok(()) } else { self.watch(service, client.clone()) };
                let answer = began
                    .map_or_else(|error| DaemonReply::Refused(error.to_string()), |()| DaemonReply::Done);
                client.send(FromDaemon::Reply(number, answer));
            }
            DaemonQuery::Locks(None) => {
                self.tasks.spawn(list(service, client, number, ListQuery::All));
            }
            DaemonQuery::LocksPage { prefix, after, limit } => {
                self.tasks.spawn(list(service, client, number, ListQuery::Page { prefix, after, limit }));
            }
            DaemonQuery::HoldAs(request) => {
                self.holds.retain(|_, task| !task.is_finished());
                let task = self.tasks.spawn(detached::hold_as(service, client, number, request));
                self.holds.insert(number, task);
            }
            ask => {
                self.tasks.spawn(async move {
                    let answer = reply_to(&service, &client, ask).await;
                    let answer = answer.unwrap_or_else(|error| DaemonReply::Refused(error.to_string()));
                    client.send(FromDaemon::Reply(number, answer));
                });
            }
        }
    }
}

/// Notifies the client of changes, at any member, of locks that it may see.
async fn notify_changes(client: Arc<Client>, mut watch: Watch, _charge: Charge) {
    while watch.next_batch(1).await.is_some() {
        client.send(FromDaemon::Changed);
        // Changes in quick succession cause a single notification.
        watch.skip();
    }
    // The watch was too far behind and has missed changes.
    client.send(FromDaemon::Changed);
}

/// A requested list.
enum ListQuery {
    /// All locks in one reply.
    All,
    Page {
        prefix: String,
        after: Option<String>,
        limit: u32,
    },
}

/// Replies with a list, which the worker thread builds. The client's next list waits until this one has been sent.
async fn list(service: Arc<ClientService>, client: Arc<Client>, number: u64, query: ListQuery) {
    let refuse = |why: String| client.send(FromDaemon::Reply(number, DaemonReply::Refused(why)));
    let after = if let ListQuery::Page { after, .. } = &query { after.clone() } else { None };
    let asked = Instant::now();
    let list_permit = match service.list_permit(client.account()).await {
        Ok(list_permit) => list_permit,
        Err(error) => return refuse(error.to_string()),
    };
    let snapshot = match service.snapshots.page(after.as_deref(), asked).await {
        Ok(snapshot) => snapshot,
        Err(error) => return refuse(error.to_string()),
    };
    let who = client.principal();
    let make = move || {
        let answer = match query {
            ListQuery::All => all(&snapshot, &who),
            ListQuery::Page { prefix, after, limit } => {
                page(&snapshot, &who.scope(&prefix), after.as_deref(), limit)
            }
        };
        let mut frame = Vec::new();
        lockkeeper_session::protocol::encode(&FromDaemon::Reply(number, answer), &mut frame);
        frame
    };
    match service.snapshots.worker().run(make).await {
        Some(frame) => {
            service.metrics().listed(frame.len());
            client.send_frame(frame, list_permit);
        }
        None => refuse(String::from("the list of locks could not be made; try again")),
    }
}

/// Approximate size of a lock in a reply, in bytes.
fn bytes_of(line: &LockLine) -> usize {
    let party = |line: &ParticipantLine| 64 + line.acquisition.len() + line.owner.len() + line.purpose.len();
    16 + line.name.len() + line.holders.iter().chain(&line.waiters).map(party).sum::<usize>()
}

/// All locks that the client may see, if they fit into one reply.
fn all(snapshot: &Snapshot, who: &Principal) -> DaemonReply {
    let ranges = snapshot.ranges(&who.scope(""), None);
    let count: usize = ranges.iter().map(ExactSizeIterator::len).sum();
    let (mut lines, mut bytes) = (Vec::new(), 0);
    for lock in ranges.into_iter().flat_map(|range| &snapshot.locks[range]) {
        let line = lock.line();
        bytes += bytes_of(&line);
        if bytes > LONGEST_FROM_DAEMON / 2 {
            break;
        }
        lines.push(line);
    }
    if lines.len() < count || snapshot.until().is_some() {
        let all = count as u64 + snapshot.left_out;
        return DaemonReply::Refused(format!(
            "the list has about {all} locks, too many for one reply: request it page by page"
        ));
    }
    DaemonReply::Locks(lines)
}

/// A page of the locks with these prefixes.
fn page(snapshot: &Snapshot, scope: &[String], after: Option<&str>, limit: u32) -> DaemonReply {
    let ranges = snapshot.ranges(scope, after);
    let mut left = ranges.iter().map(|range| range.len() as u64).sum::<u64>();
    let (mut locks, mut bytes) = (Vec::new(), 0);
    for lock in ranges.into_iter().flat_map(|range| &snapshot.locks[range]).take(limit.max(1) as usize) {
        let line = lock.line();
        bytes += bytes_of(&line);
        // A page has at least one lock, so that the client makes progress.
        if bytes > PAGE_BYTES && !locks.is_empty() {
            break;
        }
        left -= 1;
        locks.push(line);
    }
    let last = locks.last().map(|line: &LockLine| line.name.clone()).filter(|_| left > 0);
    let next = last.or_else(|| snapshot.until().map(ToString::to_string));
    DaemonReply::LocksPage { locks, next, left_out: left + snapshot.left_out }
}

/// The reason why a query is not answered.
#[derive(Debug, thiserror::Error)]
enum QueryError {
    #[error("bad lock name: {0}")]
    Name(#[source] BadText),
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error(transparent)]
    Cluster(#[from] lockkeeper_cluster::Error),
    #[error(transparent)]
    Lease(#[from] LeaseError),
}

async fn reply_to(
    service: &ClientService,
    client: &Client,
    ask: DaemonQuery,
) -> Result<DaemonReply, QueryError> {
    let (context, who) = (&service.context, &client.principal());
    let may = |action, name: &str| context.check(NATIVE, who, action, name);
    let is_name = |name: &str| check_name(name).map_err(QueryError::Name);
    Ok(match ask {
        DaemonQuery::Locks(Some(name)) if who.sees(&name) => {
            is_name(&name)?;
            let lock = listing::read_lock(&context.member, &name).await?;
            DaemonReply::Locks((!lock.is_empty()).then(|| lock.line()).into_iter().collect())
        }
        DaemonQuery::Locks(_) => DaemonReply::Locks(Vec::new()),
        // Handled in `begin`.
        DaemonQuery::Watch | DaemonQuery::LocksPage { .. } | DaemonQuery::HoldAs(_) => DaemonReply::Done,
        DaemonQuery::Detached { lock, owner, command } => {
            is_name(&lock)?;
            may(detached::action(&command), &lock)?;
            detached::command(service, client, &lock, &owner, command).await?
        }
        DaemonQuery::Cluster => {
            may(Action::Cluster, "")?;
            DaemonReply::Cluster(listing::cluster(&context.member))
        }
        DaemonQuery::ForceRelease(name) => {
            is_name(&name)?;
            may(Action::ForceRelease, &name)?;
            let released = context.release_by_force(NATIVE, who, &name, None).await?;
            DaemonReply::Released(released.len() as u32)
        }
        DaemonQuery::Why(name) => {
            is_name(&name)?;
            may(Action::See, &name)?;
            let _permit = service.list_permit(client.account()).await?;
            DaemonReply::Why(listing::why(&service.snapshots, &name, who).await?)
        }
        DaemonQuery::Remove(id) => {
            may(Action::RemoveMember, "")?;
            context.member.remove(MemberId(id)).await?;
            DaemonReply::Done
        }
        DaemonQuery::Set(changes) => {
            may(Action::ChangeSettings, "")?;
            match context.member.change_settings(&changes).await {
                Ok(_) => DaemonReply::Done,
                Err(lockkeeper_cluster::Error::BadOption(why)) => DaemonReply::Invalid(why.to_string()),
                Err(error) => return Err(error.into()),
            }
        }
        DaemonQuery::Leave => {
            may(Action::Leave, "")?;
            context.leave.notify_one();
            DaemonReply::Done
        }
    })
}
