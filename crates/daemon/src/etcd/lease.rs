//! `etcdserverpb.Lease`.

use super::pb::etcdserverpb::lease_server::Lease;
use super::pb::etcdserverpb::*;
use super::{Caller, Etcd, SHORTEST_TTL_S, denied, lease_id, status, terms};
use crate::leases::{LeaseError, LeaseId, LeaseOperation, LeaseState, OperationReply, key};
use crate::rights::Action;
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

type ReplyStream<T> = Pin<Box<dyn tokio_stream::Stream<Item = Result<T, Status>> + Send>>;

impl Etcd {
    async fn lease_state(
        &self,
        caller: &Caller,
        lease: LeaseId,
        op: LeaseOperation,
    ) -> Result<Option<LeaseState>, Status> {
        self.may(caller, Action::UseSession, "")?;
        match self.0.leases.perform(&caller.identity, lease, op).await {
            Ok(OperationReply::Status(state)) => Ok(Some(state)),
            Ok(_) | Err(LeaseError::NoSuchLease(_)) => Ok(None),
            Err(error) => Err(status(error)),
        }
    }

    /// Handles one keep-alive. As in etcd, the reply for an unknown lease has a time to live of 0.
    async fn keep_alive(&self, caller: &Caller, id: i64) -> Result<LeaseKeepAliveResponse, Status> {
        let state = match LeaseId::new(id) {
            Some(lease) => self.lease_state(caller, lease, LeaseOperation::KeepAlive).await?,
            None => None,
        };
        let ttl = state.map_or(0, |state| promised(&state));
        Ok(LeaseKeepAliveResponse { header: self.header(None), id, ttl })
    }
}

/// The time to live in the reply to a keep-alive, in seconds: that of the lease, or the time for which its holds are
/// protected even if their daemon dies, rounded up. That is shorter at first, until the holds are recorded, and if the time
/// to live exceeds what the cluster promises. A client that receives a shorter time sends its next keep-alive sooner.
fn promised(state: &LeaseState) -> i64 {
    let round_up = |time: Duration| seconds(time + Duration::from_nanos(999_999_999)).max(SHORTEST_TTL_S);
    state.valid_for.map_or(i64::MAX, round_up).min(seconds(state.ttl))
}

fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

#[tonic::async_trait]
impl Lease for Etcd {
    async fn lease_grant(
        &self,
        request: Request<LeaseGrantRequest>,
    ) -> Result<Response<LeaseGrantResponse>, Status> {
        let caller = self.caller(&request)?;
        self.may(&caller, Action::NewSession, "")?;
        let LeaseGrantRequest { ttl, id } = request.into_inner();
        let chosen = match id {
            0 => None,
            id => Some(LeaseId::new(id).ok_or_else(|| {
                Status::invalid_argument("the number of a lease must be above 0; 0 lets the server choose")
            })?),
        };
        let ttl = Duration::from_secs(ttl.max(SHORTEST_TTL_S).unsigned_abs());
        let granted = self.0.leases.grant(caller.identity.clone(), chosen, terms(&caller, ttl)).await;
        let id = granted.map_err(status)?.number();
        let (header, ttl, error) = (self.header(None), seconds(ttl), String::new());
        Ok(Response::new(LeaseGrantResponse { header, id, ttl, error }))
    }

    async fn lease_revoke(
        &self,
        request: Request<LeaseRevokeRequest>,
    ) -> Result<Response<LeaseRevokeResponse>, Status> {
        let caller = self.caller(&request)?;
        self.may(&caller, Action::UseSession, "")?;
        let lease = lease_id(request.into_inner().id)?;
        self.0.leases.perform(&caller.identity, lease, LeaseOperation::Revoke).await.map_err(status)?;
        Ok(Response::new(LeaseRevokeResponse { header: self.header(None) }))
    }

    type LeaseKeepAliveStream = ReplyStream<LeaseKeepAliveResponse>;

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let caller = self.caller(&request)?;
        let (etcd, permit) = (self.clone(), self.0.request_permit().map_err(status)?);
        let mut signs = request.into_inner();
        // A capacity of 1: the requests of a client that does not read its replies are not read either.
        let (reply, answers) = mpsc::channel(1);
        tokio::spawn(async move {
            let listen = async {
                while let Ok(Some(sign)) = signs.message().await {
                    if let Err(error) = etcd.0.check_rate(&caller.account) {
                        let _ = reply.send(Err(status(error))).await;
                        return;
                    }
                    let alive = etcd.keep_alive(&caller, sign.id).await;
                    if reply.send(alive).await.is_err() {
                        return;
                    }
                }
            };
            let mut credential = etcd.0.credential(&caller.who);
            let gone = async {
                loop {
                    if let Err(refused) = credential.changed().await {
                        return refused;
                    }
                }
            };
            tokio::select! {
                () = listen => {}
                () = reply.closed() => {}
                // The token was removed or has expired.
                refused = gone => drop(reply.send(Err(denied(refused))).await),
            }
            drop(permit);
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<LeaseTimeToLiveRequest>,
    ) -> Result<Response<LeaseTimeToLiveResponse>, Status> {
        let caller = self.caller(&request)?;
        let LeaseTimeToLiveRequest { id, keys } = request.into_inner();
        let state = match LeaseId::new(id) {
            Some(lease) => self.lease_state(&caller, lease, LeaseOperation::TimeToLive).await?,
            None => None,
        };
        let mut reply =
            LeaseTimeToLiveResponse { header: self.header(None), id, ttl: -1, ..Default::default() };
        if let Some(state) = state {
            reply.ttl = seconds(state.left);
            reply.granted_ttl = seconds(state.ttl);
            if keys {
                let bare = |lock: &str| state.holds.iter().any(|hold| hold.bare && hold.lock == lock);
                let key =
                    |lock: &String| if bare(lock) { lock.clone().into() } else { key(lock, state.lease) };
                reply.keys = state.locks.iter().map(key).collect();
                reply.keys.sort_unstable();
            }
        }
        Ok(Response::new(reply))
    }

    async fn lease_leases(
        &self,
        request: Request<LeaseLeasesRequest>,
    ) -> Result<Response<LeaseLeasesResponse>, Status> {
        let caller = self.caller(&request)?;
        let _permit = self.0.list_permit(&caller.account).await.map_err(status)?;
        let list = self.0.leases.list().await;
        let visible = list.into_iter().filter(|summary| {
            let own = caller.identity.admin || summary.token_name == caller.identity.token_name;
            own || summary.locks.iter().any(|lock| caller.who.sees(lock))
        });
        let leases = visible.map(|summary| LeaseStatus { id: summary.lease.number() }).collect();
        Ok(Response::new(LeaseLeasesResponse { header: self.header(None), leases }))
    }
}
