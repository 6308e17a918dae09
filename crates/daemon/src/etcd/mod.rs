//! etcd's lock API: gRPC services `Lock`, `Lease` and `Election`, with etcd's semantics, and what the client-side recipes for
//! locks and elections need of `KV` and `Watch`.
//!
//! The definitions are in `crates/etcd-api`. A lease lives at one daemon. Locks have the same names as in all other
//! protocols, and the revision of a grant is its fence.

mod auth;
mod election;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod keys;
mod kv;
mod lease;
mod lock;
mod recipe;
mod watch;
mod watch_state;

use crate::access::{Denied, Principal};
use crate::client_service::ClientService;
use crate::http::Connection;
use crate::leases::{
    CallerIdentity, DeliveryReceipt, Granted, HoldRequest, LeaseError, LeaseId, LeaseTerms, PendingDelivery,
    Protocol, Slot,
};
use crate::rights::Action;
use axum::Router;
use axum::body::to_bytes;
use axum::extract::Request;
use lockkeeper_cluster::LockMode;
use lockkeeper_member::check_name;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tonic::{Code, Response, Status};

use lockkeeper_etcd_api as pb;
use pb::etcdserverpb::ResponseHeader;
use pb::etcdserverpb::auth_server::AuthServer;
use pb::etcdserverpb::kv_server::KvServer;
use pb::etcdserverpb::lease_server::LeaseServer;
use pb::etcdserverpb::watch_server::WatchServer;
use pb::v3electionpb::election_server::ElectionServer;
use pb::v3lockpb::lock_server::LockServer;

/// Time to live of a lease that is created for a single lock, in seconds.
const DEFAULT_TTL_S: u64 = 60;
/// Minimum time to live of a lease, in seconds.
const SHORTEST_TTL_S: i64 = 1;

/// The message for calls that are not served.
const SERVED: &str = "this is lockkeeper, which serves of etcd's API: v3lockpb.Lock (Lock, Unlock), etcdserverpb.Lease (LeaseGrant, LeaseRevoke, \
     LeaseKeepAlive, LeaseTimeToLive, LeaseLeases), v3electionpb.Election (Campaign, Proclaim, Leader, Observe, Resign), \
     etcdserverpb.Auth (Authenticate), and of etcdserverpb.KV (Range, Txn, DeleteRange) and etcdserverpb.Watch (Watch) the \
     requests that clients' recipes for locks and elections send";

/// The calls that are served.
pub const PATHS: [&str; 17] = [
    "/v3lockpb.Lock/Lock",
    "/v3lockpb.Lock/Unlock",
    "/etcdserverpb.Lease/LeaseGrant",
    "/etcdserverpb.Lease/LeaseRevoke",
    "/etcdserverpb.Lease/LeaseKeepAlive",
    "/etcdserverpb.Lease/LeaseTimeToLive",
    "/etcdserverpb.Lease/LeaseLeases",
    "/v3electionpb.Election/Campaign",
    "/v3electionpb.Election/Proclaim",
    "/v3electionpb.Election/Leader",
    "/v3electionpb.Election/Observe",
    "/v3electionpb.Election/Resign",
    "/etcdserverpb.Auth/Authenticate",
    "/etcdserverpb.KV/Range",
    "/etcdserverpb.KV/Txn",
    "/etcdserverpb.KV/DeleteRange",
    "/etcdserverpb.Watch/Watch",
];

/// The calls with a stream of requests.
const STREAMS: [&str; 2] = ["/etcdserverpb.Lease/LeaseKeepAlive", "/etcdserverpb.Watch/Watch"];
/// Size of the header of a gRPC message.
const FRAME_BYTES: usize = 5;

/// Admits a call: checks its path, and reads its body within limits of size and time.
pub(crate) async fn admit(service: &ClientService, request: Request) -> Result<Request, Status> {
    let path = request.uri().path();
    if !PATHS.contains(&path) {
        return Err(Status::unimplemented(SERVED));
    }
    if STREAMS.contains(&path) {
        return Ok(request);
    }
    let limits = &service.context.limits;
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, limits.request_bytes + FRAME_BYTES);
    let Ok(body) = tokio::time::timeout(limits.request_timeout(), body).await else {
        service.metrics.refuse("slow");
        let message = format!("the request did not arrive within {} ms", limits.request_timeout_ms);
        return Err(Status::deadline_exceeded(message));
    };
    let body = body.map_err(|_| {
        let message = format!("a request has at most {} bytes", limits.request_bytes);
        Status::resource_exhausted(message)
    })?;
    Ok(Request::from_parts(parts, body.into()))
}

/// The router for the services.
pub(crate) fn router(service: &Arc<ClientService>) -> Router {
    let etcd = Etcd(service.clone());
    let longest = service.context.limits.request_bytes;
    let lock = LockServer::new(etcd.clone()).max_decoding_message_size(longest);
    let lease = LeaseServer::new(etcd.clone()).max_decoding_message_size(longest);
    let election = ElectionServer::new(etcd.clone()).max_decoding_message_size(longest);
    let kv = KvServer::new(etcd.clone()).max_decoding_message_size(longest);
    let watch = WatchServer::new(etcd.clone()).max_decoding_message_size(longest);
    let auth = AuthServer::new(etcd).max_decoding_message_size(longest);
    Router::new()
        .route_service("/v3lockpb.Lock/{method}", lock)
        .route_service("/etcdserverpb.Lease/{method}", lease)
        .route_service("/v3electionpb.Election/{method}", election)
        .route_service("/etcdserverpb.Auth/{method}", auth)
        .route_service("/etcdserverpb.KV/{method}", kv)
        .route_service("/etcdserverpb.Watch/{method}", watch)
}

/// The implementation of all services.
#[derive(Clone)]
struct Etcd(Arc<ClientService>);

/// The authenticated caller of a call.
struct Caller {
    who: Principal,
    /// The name under which quotas count its usage.
    account: Arc<str>,
    identity: CallerIdentity,
    trace: String,
}

impl Etcd {
    fn caller<T>(&self, request: &tonic::Request<T>) -> Result<Caller, Status> {
        let metadata = request.metadata();
        let peer = request.extensions().get::<Connection>().and_then(|connection| connection.peer);
        let text = |key| metadata.get(key).and_then(|value| value.to_str().ok());
        let bearer = text("authorization").map(|value| value.strip_prefix("Bearer ").unwrap_or(value));
        let who = self.0.authenticate(Protocol::Etcd, text("token").or(bearer)).map_err(denied)?;
        let account = self.0.account(&who, peer);
        self.0.check_rate(&account).map_err(status)?;
        let identity = self.0.identity(Protocol::Etcd, &who, &account);
        let trace = crate::trace::Trace::of(text("traceparent")).id();
        Ok(Caller { who, account, identity, trace })
    }

    fn may(&self, caller: &Caller, action: Action, lock: &str) -> Result<(), Status> {
        self.0.check(Protocol::Etcd, &caller.who, action, lock).map_err(denied)
    }

    /// The header of a reply. Revisions never decrease; that of a grant is exactly its fence.
    fn header(&self, revision: Option<u64>) -> Option<ResponseHeader> {
        let member = &self.0.context.member;
        let revision = revision.map(|revision| i64::try_from(revision).unwrap_or(i64::MAX));
        let before = self.0.revision.fetch_max(revision.unwrap_or(0), Ordering::Relaxed);
        Some(ResponseHeader {
            cluster_id: cluster_id(&member.config().cluster),
            member_id: u64::from(member.id().0),
            revision: revision.unwrap_or(before),
            raft_term: member.voters().term,
        })
    }

    /// A request for a lock, of which the lease has one hold.
    fn hold_request(&self, caller: &Caller, lock: &str) -> HoldRequest {
        HoldRequest {
            lock: String::from(lock),
            slot: Slot::Only,
            mode: LockMode::Exclusive,
            timeout: None,
            purpose: String::new(),
            value: Vec::new(),
            trace: caller.trace.clone(),
            lasts: None,
        }
    }

    /// Waits for a lock by the given lease, or by a new one if it is 0.
    async fn acquire_hold(
        &self,
        caller: &Caller,
        name: &str,
        lease: i64,
        value: Vec<u8>,
    ) -> Result<Granted, Status> {
        let request = HoldRequest { value, ..self.hold_request(caller, name) };
        let holding = async {
            if lease == 0 {
                let terms = terms(caller, Duration::from_secs(DEFAULT_TTL_S));
                return self.0.leases.acquire_alone(&caller.identity, terms, request).await.map_err(status);
            }
            self.0.leases.acquire(&caller.identity, lease_id(lease)?, request).await.map_err(status)
        };
        let mut credential = self.0.credential(&caller.who);
        tokio::select! {
            held = holding => held,
            // The token may be removed during the wait.
            refused = credential.denied(Action::Acquire, name) => Err(denied(refused)),
        }
    }
}

/// The id of a cluster: the first eight bytes of the SHA-256 of its name. Daemons of all versions compute the same id.
fn cluster_id(name: &str) -> u64 {
    let hash: [u8; 32] = Sha256::digest(name.as_bytes()).into();
    u64::from_be_bytes(*hash.first_chunk().expect("a hash has 32 bytes"))
}

/// A reply that contains a hold, with the receipt for it.
fn with_receipt<T>(reply: T, receipt: DeliveryReceipt) -> Response<T> {
    let mut response = Response::new(reply);
    response.extensions_mut().insert(PendingDelivery::new(receipt));
    response
}

fn terms(caller: &Caller, ttl: Duration) -> LeaseTerms {
    LeaseTerms {
        ttl,
        owner: caller.identity.token_name.clone(),
        one_hold: false,
        ends_with_loss: true,
        detached: false,
    }
}

/// Parses the id of a lease. Ids below 1 belong to no lease.
fn lease_id(number: i64) -> Result<LeaseId, Status> {
    LeaseId::new(number).ok_or_else(no_such_lease)
}

/// A number in etcd's API.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn no_such_lease() -> Status {
    Status::not_found("etcdserver: requested lease not found")
}

/// Parses the name of a lock, with the same rules as in the other protocols.
fn text(name: Vec<u8>) -> Result<String, Status> {
    let name =
        String::from_utf8(name).map_err(|_| Status::invalid_argument("the name of a lock must be UTF-8"))?;
    check_name(&name).map_err(|why| Status::invalid_argument(format!("bad lock name: {why}")))?;
    Ok(name)
}

/// Splits a key into lock and lease; `None` for other keys.
fn split(key: &[u8]) -> Option<(&str, LeaseId)> {
    let (name, lease) = std::str::from_utf8(key).ok()?.rsplit_once('/')?;
    Some((name, lease.parse().ok()?))
}

fn denied(denied: Denied) -> Status {
    match denied {
        Denied::NoToken => Status::unauthenticated("etcdserver: invalid auth token"),
        denied => Status::permission_denied(format!("etcdserver: permission denied: {denied}")),
    }
}

/// Converts an error to a status, with etcd's own message where it has one.
pub(crate) fn status(error: LeaseError) -> Status {
    match error {
        LeaseError::NoSuchLease(_) | LeaseError::LeaseEnded(..) => no_such_lease(),
        LeaseError::LeaseExists(_) => Status::failed_precondition("etcdserver: lease already exists"),
        LeaseError::TtlTooLong { .. } => {
            Status::out_of_range(format!("etcdserver: too large lease TTL: {error}"))
        }
        LeaseError::NotHeld(_) => Status::unknown("election: not leader"),
        LeaseError::WrongOwner(_) => {
            Status::permission_denied(format!("etcdserver: permission denied: {error}"))
        }
        error => {
            let code = match &error {
                LeaseError::Invalid(_) => Code::InvalidArgument,
                LeaseError::LimitExceeded { .. } => Code::ResourceExhausted,
                LeaseError::Busy(_) | LeaseError::Withdrawn(_) => Code::Aborted,
                _ => Code::Unavailable,
            };
            Status::new(code, error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_id_is_the_same_in_all_versions() {
        // Computed by another implementation: `printf canal | sha256sum | cut -c 1-16`.
        assert_eq!(cluster_id("canal"), 0x1501_284e_7c84_72b9);
        assert_eq!(cluster_id("lockkeeper"), 0xec23_94cf_20e0_51e6);
    }
}
