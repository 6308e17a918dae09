//! `v3electionpb.Election`: the holder of a lock is the leader, and publishes a value.
//!
//! # Revisions
//! A client may use any revision in a reply as a fencing token, so all of them are fences of the lock. The create
//! revision is the fence of the grant. Each proclamation draws a further fence (`HoldGuard::draw_fence`), which becomes
//! the modification revision and the revision of the header. A drawn fence is above all fences drawn before and below
//! the fence of the next holder. Over all leaders of an election, each new leader and each proclamation thus has a
//! higher revision than everything before it:
//!
//! ```text
//! A campaigns    create 7, mod 7
//! A proclaims    create 7, mod 8
//! A resigns, B campaigns    create 9 or more
//! ```

use super::kv::held_key;
use super::pb::v3electionpb::election_server::Election;
use super::pb::v3electionpb::*;
use super::{Caller, Etcd, denied, lease_id, signed, split, status, text, with_receipt};
use crate::credential::Credential;
use crate::leases::{Granted, Hold, HoldRef, LeaseError, LeaseOperation, OperationReply, Watch};
use crate::rights::Action;
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// Pause before a proclamation is repeated during a view change.
const PAUSE: Duration = Duration::from_millis(20);

type Leaders = Pin<Box<dyn tokio_stream::Stream<Item = Result<LeaderResponse, Status>> + Send>>;

/// The fields of a leader key that identify a leadership.
pub(super) struct LeadershipKey {
    pub lock: String,
    pub lease: i64,
    pub fence: u64,
}

impl LeadershipKey {
    fn of(leader: Option<LeaderKey>) -> Result<Option<Self>, Status> {
        let missing = || Status::unknown("\"leader\" field must be provided");
        let LeaderKey { name, key, rev, lease } = leader.ok_or_else(missing)?;
        let lock = text(name)?;
        let names = split(&key).is_some_and(|(name, of)| name == lock && of.number() == lease);
        Ok(u64::try_from(rev).ok().filter(|_| names).map(|fence| Self { lock, lease, fence }))
    }
}

impl Etcd {
    fn leader_response(&self, hold: &Hold) -> LeaderResponse {
        let kv = Some(held_key(hold, hold.key()));
        LeaderResponse { header: self.header(Some(hold.revision)), kv }
    }

    async fn proclaim_as(&self, caller: &Caller, key: LeadershipKey, value: Vec<u8>) -> Result<Hold, Status> {
        let not_leader = status(LeaseError::NotHeld(key.lock.clone()));
        self.set_value(caller, key, value).await?.ok_or(not_leader)
    }

    /// Changes the value of a hold; `None` if there is no such hold.
    pub(super) async fn set_value(
        &self,
        caller: &Caller,
        key: LeadershipKey,
        value: Vec<u8>,
    ) -> Result<Option<Hold>, Status> {
        let LeadershipKey { lock, lease, fence } = key;
        let set = LeaseOperation::SetValue { which: HoldRef::OnlyOn(lock), fence, value };
        let until = Instant::now() + self.0.context.member.lease();
        loop {
            match self.0.leases.perform(&caller.identity, lease_id(lease)?, set.clone()).await {
                Ok(OperationReply::Set(hold)) => return Ok(Some(hold)),
                // The leader stays leader during a view change, and gets its revision in the next view.
                Err(LeaseError::Unavailable(_)) if Instant::now() < until => tokio::time::sleep(PAUSE).await,
                Ok(_) | Err(LeaseError::NoSuchLease(_) | LeaseError::NotHeld(_)) => return Ok(None),
                Err(error) => return Err(status(error)),
            }
        }
    }

    /// Sends every observed leader and each of its values, never twice and never an older one after a newer one.
    async fn send_leaders(
        self,
        name: String,
        mut watch: Watch,
        mut credential: Credential,
        leaders: mpsc::Sender<Result<LeaderResponse, Status>>,
    ) {
        let mut sent = None;
        let mut leader = self.0.leases.holders(&name).await.into_iter().next();
        loop {
            if let Some(hold) = &leader
                && sent < Some((hold.fence, hold.version))
            {
                sent = Some((hold.fence, hold.version));
                if leaders.send(Ok(self.leader_response(hold))).await.is_err() {
                    return;
                }
            }
            tokio::select! {
                more = watch.holds_changed() => if !more { return },
                () = leaders.closed() => return,
                refused = credential.denied(Action::See, &name) => {
                    let _ = leaders.send(Err(denied(refused))).await;
                    return;
                }
            }
            leader = watch.leader(&name);
        }
    }
}

#[tonic::async_trait]
impl Election for Etcd {
    async fn campaign(
        &self,
        request: Request<CampaignRequest>,
    ) -> Result<Response<CampaignResponse>, Status> {
        let caller = self.caller(&request)?;
        let CampaignRequest { name, lease, value } = request.into_inner();
        let lock = text(name.clone())?;
        self.may(&caller, Action::Acquire, &lock)?;
        let Granted { hold, receipt } = self.acquire_hold(&caller, &lock, lease, value.clone()).await?;
        let (key, fence, lease) = (hold.key(), hold.fence, hold.lease.number());
        let mut revision = hold.revision;
        // The caller was the leader already, and now publishes another value.
        if hold.value != value {
            revision = self.proclaim_as(&caller, LeadershipKey { lock, lease, fence }, value).await?.revision;
        }
        let leader = LeaderKey { name, key, rev: signed(fence), lease };
        let reply = CampaignResponse { header: self.header(Some(revision)), leader: Some(leader) };
        Ok(with_receipt(reply, receipt))
    }

    async fn proclaim(
        &self,
        request: Request<ProclaimRequest>,
    ) -> Result<Response<ProclaimResponse>, Status> {
        let caller = self.caller(&request)?;
        let ProclaimRequest { leader, value } = request.into_inner();
        let not_leader = || status(LeaseError::NotHeld(String::new()));
        let key = LeadershipKey::of(leader)?.ok_or_else(not_leader)?;
        self.may(&caller, Action::Release, &key.lock)?;
        let hold = self.proclaim_as(&caller, key, value).await?;
        Ok(Response::new(ProclaimResponse { header: self.header(Some(hold.revision)) }))
    }

    async fn leader(&self, request: Request<LeaderRequest>) -> Result<Response<LeaderResponse>, Status> {
        let caller = self.caller(&request)?;
        let name = text(request.into_inner().name)?;
        self.may(&caller, Action::See, &name)?;
        let leader = self.0.leases.holders(&name).await.into_iter().next();
        let leader = leader.ok_or_else(|| Status::unknown("election: no leader"))?;
        Ok(Response::new(self.leader_response(&leader)))
    }

    type ObserveStream = Leaders;

    async fn observe(&self, request: Request<LeaderRequest>) -> Result<Response<Leaders>, Status> {
        let caller = self.caller(&request)?;
        let name = text(request.into_inner().name)?;
        self.may(&caller, Action::See, &name)?;
        let (leader, leaders) = mpsc::channel(1);
        let permit = self.0.request_permit().map_err(status)?;
        let (watch, charge) = self.0.watch(&caller.account, vec![name.clone()]).map_err(status)?;
        let (etcd, credential) = (self.clone(), self.0.credential(&caller.who));
        tokio::spawn(async move {
            etcd.send_leaders(name, watch, credential, leader).await;
            drop((permit, charge));
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(leaders))))
    }

    async fn resign(&self, request: Request<ResignRequest>) -> Result<Response<ResignResponse>, Status> {
        let caller = self.caller(&request)?;
        // An outdated leader key is no error: its owner no longer leads, which is what it requests.
        let mut left = None;
        if let Some(LeadershipKey { lock, lease, fence }) = LeadershipKey::of(request.into_inner().leader)? {
            self.may(&caller, Action::Release, &lock)?;
            let release = LeaseOperation::Release(HoldRef::OnlyOn(lock), Some(fence));
            match self.0.leases.perform(&caller.identity, lease_id(lease)?, release).await {
                Ok(OperationReply::Released(revision)) => left = revision,
                Ok(_) | Err(LeaseError::NoSuchLease(_)) => {}
                Err(error) => return Err(status(error)),
            }
        }
        Ok(Response::new(ResignResponse { header: self.header(left) }))
    }
}
