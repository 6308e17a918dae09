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

use super::pb::mvccpb::KeyValue;
use super::pb::v3electionpb::election_server::Election;
use super::pb::v3electionpb::*;
use super::{Caller, Etcd, denied, lease_id, split, status, telling, text};
use crate::credential::Credential;
use crate::leases::{Fault, Granted, Hold, Op, Reply, Watch, Which};
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

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The fields of a leader key that identify a leadership.
struct Proof {
    lock: String,
    lease: i64,
    fence: u64,
}

impl Proof {
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
        let kv = KeyValue {
            key: hold.key(),
            create_revision: signed(hold.fence),
            mod_revision: signed(hold.revision),
            version: signed(hold.version),
            value: hold.value.clone(),
            lease: hold.lease.number(),
        };
        LeaderResponse { header: self.header(Some(hold.revision)), kv: Some(kv) }
    }

    async fn proclaim_as(&self, caller: &Caller, proof: Proof, value: Vec<u8>) -> Result<Hold, Status> {
        let Proof { lock, lease, fence } = proof;
        let set = Op::SetValue { which: Which::OnlyOn(lock.clone()), fence, value };
        let until = Instant::now() + self.0.shared.member.lease();
        loop {
            match self.0.leases.perform(&caller.asker, lease_id(lease)?, set.clone()).await {
                Ok(Reply::Set(hold)) => return Ok(hold),
                // The leader stays leader during a view change, and gets its revision in the next view.
                Err(Fault::Unavailable(_)) if Instant::now() < until => tokio::time::sleep(PAUSE).await,
                Ok(_) | Err(Fault::NoSuchLease(_)) => return Err(status(Fault::NotHeld(lock))),
                Err(fault) => return Err(status(fault)),
            }
        }
    }

    /// Sends every observed leader and each of its values, never twice and never an older one after a newer one.
    async fn tell_leaders(
        self,
        name: String,
        mut watch: Watch,
        mut credential: Credential,
        leaders: mpsc::Sender<Result<LeaderResponse, Status>>,
    ) {
        let mut told = None;
        let mut leader = self.0.leases.holders(&name).await.into_iter().next();
        loop {
            if let Some(hold) = &leader
                && told < Some((hold.fence, hold.version))
            {
                told = Some((hold.fence, hold.version));
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
        let Granted { hold, receipt } = self.hold(&caller, &lock, lease, value.clone()).await?;
        let (key, fence, lease) = (hold.key(), hold.fence, hold.lease.number());
        let mut revision = hold.revision;
        // The caller was the leader already, and now publishes another value.
        if hold.value != value {
            revision = self.proclaim_as(&caller, Proof { lock, lease, fence }, value).await?.revision;
        }
        let leader = LeaderKey { name, key, rev: signed(fence), lease };
        let answer = CampaignResponse { header: self.header(Some(revision)), leader: Some(leader) };
        Ok(telling(answer, receipt))
    }

    async fn proclaim(
        &self,
        request: Request<ProclaimRequest>,
    ) -> Result<Response<ProclaimResponse>, Status> {
        let caller = self.caller(&request)?;
        let ProclaimRequest { leader, value } = request.into_inner();
        let not_leader = || status(Fault::NotHeld(String::new()));
        let proof = Proof::of(leader)?.ok_or_else(not_leader)?;
        self.may(&caller, Action::Release, &proof.lock)?;
        let hold = self.proclaim_as(&caller, proof, value).await?;
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
        let place = self.0.place().map_err(status)?;
        let (watch, charge) = self.0.watch(&caller.account, vec![name.clone()]).map_err(status)?;
        let (etcd, credential) = (self.clone(), self.0.credential(&caller.who));
        tokio::spawn(async move {
            etcd.tell_leaders(name, watch, credential, leader).await;
            drop((place, charge));
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(leaders))))
    }

    async fn resign(&self, request: Request<ResignRequest>) -> Result<Response<ResignResponse>, Status> {
        let caller = self.caller(&request)?;
        // An outdated leader key is no error: its owner no longer leads, which is what it requests.
        let mut left = None;
        if let Some(Proof { lock, lease, fence }) = Proof::of(request.into_inner().leader)? {
            self.may(&caller, Action::Release, &lock)?;
            let release = Op::Release(Which::OnlyOn(lock), Some(fence));
            match self.0.leases.perform(&caller.asker, lease_id(lease)?, release).await {
                Ok(Reply::Released(revision)) => left = revision,
                Ok(_) | Err(Fault::NoSuchLease(_)) => {}
                Err(fault) => return Err(status(fault)),
            }
        }
        Ok(Response::new(ResignResponse { header: self.header(left) }))
    }
}
