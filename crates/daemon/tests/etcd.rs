//! etcd's lock API: behaviour that is specific to the daemon (tokens, limits, locks shared with HTTP, calls that are
//! not served), and a program with the third-party crate `etcd-client` against etcd, one daemon, and a cluster.

mod support;

use lockkeeper_daemon::Limits;
use lockkeeper_etcd_api::etcdserverpb::auth_client::AuthClient;
use lockkeeper_etcd_api::etcdserverpb::kv_client::KvClient;
use lockkeeper_etcd_api::etcdserverpb::lease_client::LeaseClient;
use lockkeeper_etcd_api::etcdserverpb::{
    AuthenticateRequest, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseLeasesRequest, LeaseRevokeRequest,
    LeaseTimeToLiveRequest, RangeRequest, TxnRequest,
};
use lockkeeper_etcd_api::v3electionpb::election_client::ElectionClient;
use lockkeeper_etcd_api::v3electionpb::{
    CampaignRequest, LeaderKey, LeaderRequest, ProclaimRequest, ResignRequest,
};
use lockkeeper_etcd_api::v3lockpb::lock_client::LockClient;
use lockkeeper_etcd_api::v3lockpb::{LockRequest, LockResponse, UnlockRequest};
use serde_json::json;
use std::net::SocketAddr;
use std::process::Stdio;
use support::{Daemons, Plan, TOKENS, post, session, soon, until, waiters};
use tokio::net::TcpStream;
use tokio::process::Command;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

type Service = InterceptedService<Channel, Token>;

/// Adds a token to every request, if there is one.
#[derive(Clone)]
struct Token(Option<MetadataValue<Ascii>>);

impl Interceptor for Token {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("token", token.clone());
        }
        Ok(request)
    }
}

/// A client of one daemon.
#[derive(Clone)]
struct Client {
    store: KvClient<Service>,
    leases: LeaseClient<Service>,
    locks: LockClient<Service>,
    elections: ElectionClient<Service>,
}

async fn channel(address: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    endpoint.connect().await.expect("a connection")
}

async fn connect(address: SocketAddr) -> Client {
    Client::new(channel(address).await, Token(None))
}

/// Connects as etcd's clients do with a user and a password.
async fn connect_as(address: SocketAddr, name: &str, password: &str) -> Result<Client, Status> {
    let channel = channel(address).await;
    let request = AuthenticateRequest { name: name.into(), password: password.into() };
    let token = AuthClient::new(channel.clone()).authenticate(request).await?.into_inner().token;
    Ok(Client::new(channel, Token(Some(token.parse().expect("a token is plain text")))))
}

impl Client {
    fn new(channel: Channel, token: Token) -> Client {
        let service = InterceptedService::new(channel, token);
        Client {
            store: KvClient::new(service.clone()),
            leases: LeaseClient::new(service.clone()),
            locks: LockClient::new(service.clone()),
            elections: ElectionClient::new(service),
        }
    }

    /// Acquires a lock by a lease; 0: the daemon creates one.
    async fn lock(&mut self, name: impl Into<Vec<u8>>, lease: i64) -> Result<LockResponse, Status> {
        let request = LockRequest { name: name.into(), lease };
        Ok(self.locks.lock(request).await?.into_inner())
    }

    async fn unlock(&mut self, key: Vec<u8>) -> Result<(), Status> {
        self.locks.unlock(UnlockRequest { key }).await.map(drop)
    }

    /// Creates a lease with this id; 0: the daemon chooses.
    async fn grant(&mut self, ttl: i64, id: i64) -> Result<i64, Status> {
        Ok(self.leases.lease_grant(LeaseGrantRequest { ttl, id }).await?.into_inner().id)
    }

    async fn revoke(&mut self, id: i64) -> Result<(), Status> {
        self.leases.lease_revoke(LeaseRevokeRequest { id }).await.map(drop)
    }

    async fn leases(&mut self) -> Result<Vec<i64>, Status> {
        let listed = self.leases.lease_leases(LeaseLeasesRequest {}).await?.into_inner();
        Ok(listed.leases.into_iter().map(|lease| lease.id).collect())
    }

    /// The time to live in the reply to a keep-alive; 0: there is no such lease.
    async fn keep_alive(&mut self, id: i64) -> Result<i64, Status> {
        let requests = tokio_stream::once(LeaseKeepAliveRequest { id });
        let mut replies = self.leases.lease_keep_alive(requests).await?.into_inner();
        Ok(replies.message().await?.expect("a reply").ttl)
    }

    async fn campaign(&mut self, name: &str, value: &str, lease: i64) -> Result<LeaderKey, Status> {
        let request = CampaignRequest { name: name.into(), lease, value: value.into() };
        Ok(self.elections.campaign(request).await?.into_inner().leader.expect("a leader"))
    }

    async fn leader(&mut self, name: &str) -> Result<Vec<u8>, Status> {
        let found = self.elections.leader(LeaderRequest { name: name.into() }).await?.into_inner();
        Ok(found.kv.expect("a leader").value)
    }

    async fn proclaim(&mut self, leader: Option<LeaderKey>, value: &str) -> Result<(), Status> {
        let request = ProclaimRequest { leader, value: value.into() };
        self.elections.proclaim(request).await.map(drop)
    }
}

fn revision(locked: &LockResponse) -> Option<i64> {
    locked.header.as_ref().map(|header| header.revision)
}

#[track_caller]
fn refused<T>(answer: Result<T, Status>) -> (Code, String) {
    match answer {
        Err(status) => (status.code(), status.message().to_owned()),
        Ok(_) => panic!("it was not refused"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_name_is_one_lock_for_all_protocols() {
    let daemons = Daemons::start(1).await;
    let at = daemons.address(0);
    let mut client = connect(at).await;
    let held = client.lock("a", 0).await.unwrap();
    post(at, "/v1/locks/a/acquire", json!({})).await.is(409);
    post(at, "/v1/locks/a/acquire", json!({ "mode": "shared" })).await.is(409);
    client.unlock(held.key.clone()).await.unwrap();
    let by_http = post(at, "/v1/locks/a/acquire", json!({})).await.is(200);
    assert!(by_http["fence"].as_i64() > revision(&held));
    let waiting = tokio::spawn({
        let mut client = client.clone();
        async move { client.lock("a", 0).await }
    });
    waiters(at, "a", 1).await;
    post(at, "/v1/locks/a/release", json!({ "hold": by_http["hold"] })).await.is(200);
    let next = soon("the lock", waiting).await.unwrap().unwrap();
    assert!(revision(&next) > by_http["fence"].as_i64());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_end_with_their_lease() {
    let daemons = Daemons::start(3).await;
    let (at, other) = (daemons.address(0), daemons.address(1));
    let (mut client, mut elsewhere) = (connect(at).await, connect(other).await);
    client.lock("a", 0).await.unwrap();
    for ttl in [60, 2] {
        let lease = elsewhere.grant(ttl, 0).await.unwrap();
        let waiting = tokio::spawn({
            let mut client = client.clone();
            async move { client.lock("a", lease).await }
        });
        if ttl == 60 {
            waiters(at, "a", 1).await;
            elsewhere.revoke(lease).await.unwrap();
        }
        let error = refused(soon("the end of the wait", waiting).await.unwrap());
        assert_eq!(error, (Code::NotFound, String::from("etcdserver: requested lease not found")));
        waiters(at, "a", 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forced_release_of_a_lock_ends_its_lease() {
    let daemons = Daemons::start(3).await;
    let (at, other) = (daemons.address(0), daemons.address(1));
    let mut client = connect(at).await;
    let lease = client.grant(60, 0).await.unwrap();
    for name in ["a", "b"] {
        client.lock(name, lease).await.unwrap();
    }
    assert!(client.keep_alive(lease).await.unwrap() > 0);
    post(other, "/v1/locks/a/force-release", json!({})).await.is(200);
    // The client has no other way to learn of the loss.
    let gone = async { while client.keep_alive(lease).await.unwrap() > 0 {} };
    soon("the end of the lease", gone).await;
    for name in ["a", "b"] {
        post(at, &format!("/v1/locks/{name}/acquire"), json!({ "wait_ms": 100_000 })).await.is(200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_end_with_their_daemon() {
    let mut daemons = Daemons::start(3).await;
    let mut client = connect(daemons.address(0)).await;
    let lease = connect(daemons.address(2)).await.grant(600, 0).await.unwrap();
    let own = client.grant(600, 0).await.unwrap();
    client.lock("a", lease).await.unwrap();
    daemons.kill(2).await;
    let next = soon("the next holder", client.lock("a", own)).await.unwrap();
    assert_eq!(next.key, format!("a/{own:x}").as_bytes());
    let (code, _) = refused(client.lock("b", lease).await);
    assert_eq!(code, Code::NotFound);
    assert_eq!(client.keep_alive(lease).await.unwrap(), 0);
    let left = client.leases.lease_time_to_live(LeaseTimeToLiveRequest { id: lease, keys: false }).await;
    assert_eq!(left.unwrap().into_inner().ttl, -1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_grants_of_one_lease_id_succeed_at_most_once() {
    let daemons = Daemons::start(3).await;
    let mut clients = Vec::new();
    for place in 0..3 {
        clients.push(connect(daemons.address(place)).await);
    }
    for number in 1..=20 {
        let asking: Vec<_> = clients
            .iter()
            .map(|client| {
                let mut client = client.clone();
                tokio::spawn(async move { client.grant(60, number).await })
            })
            .collect();
        let mut granted = 0;
        for one in asking {
            match soon("an answer", one).await.unwrap() {
                Ok(_) => granted += 1,
                Err(status) => assert_eq!(status.message(), "etcdserver: lease already exists"),
            }
        }
        assert!(granted <= 1, "{granted} leases of one number");
        let listed = clients[0].leases().await.unwrap();
        assert_eq!(listed.iter().filter(|lease| **lease == number).count(), granted);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unimplemented_calls_and_bad_names_are_rejected_with_a_message() {
    let daemons = Daemons::start(1).await;
    let mut client = connect(daemons.address(0)).await;
    for error in [
        refused(client.store.range(RangeRequest { key: "a".into(), limit: 2, ..Default::default() }).await),
        refused(client.store.txn(TxnRequest::default()).await),
    ] {
        assert_eq!(error.0, Code::Unimplemented);
        assert!(error.1.contains("this is lockkeeper, which is not a key-value store"), "{}", error.1);
    }
    for (name, part) in [("", "bad lock name"), ("a\n", "control character"), (&"x".repeat(513), "513 bytes")]
    {
        let (code, message) = refused(client.lock(name, 0).await);
        assert!(code == Code::InvalidArgument && message.contains(part), "{message}");
    }
    let (code, _) = refused(client.lock(vec![0xff], 0).await);
    assert_eq!(code, Code::InvalidArgument);
    assert_eq!(client.leases().await.unwrap().len(), 0, "rejected requests leave no lease");
    let (code, message) = refused(client.lock("x".repeat(70_000), 0).await);
    assert!(code == Code::ResourceExhausted && message.contains("at most 65536 bytes"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusal_names_the_limit() {
    let limits = Limits { sessions: 2, locks_per_session: 1, ..Limits::default() };
    let daemons = Daemons::start_with(1, Plan { limits, ..Plan::default() }).await;
    let mut client = connect(daemons.address(0)).await;
    let lease = client.grant(60, 0).await.unwrap();
    client.lock("a", lease).await.unwrap();
    let (code, message) = refused(client.lock("b", lease).await);
    assert!(code == Code::ResourceExhausted && message.contains("at most 1"), "{message}");
    client.grant(60, 0).await.unwrap();
    let (code, message) = refused(client.grant(60, 0).await);
    assert!(code == Code::ResourceExhausted && message.contains("at most 2"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_is_used_as_user_and_password() {
    let daemons = Daemons::start_with(3, Plan { tokens: Some(TOKENS), ..Plan::default() }).await;
    let at = daemons.address(0);
    assert_eq!(refused(connect(at).await.grant(60, 0).await).0, Code::Unauthenticated);
    for (name, password) in [("ci", "wrong"), ("root", "secret"), ("", "")] {
        let (_, message) = refused(connect_as(at, name, password).await);
        assert!(message.starts_with("etcdserver: authentication failed"), "{message}");
    }
    let mut ci = connect_as(at, "ci", "secret").await.unwrap();
    let mut root = connect_as(at, "root", "test").await.unwrap();
    let lease = ci.grant(60, 0).await.unwrap();
    ci.lock("ci/a", lease).await.unwrap();
    let error = refused(ci.lock("prod/a", lease).await);
    assert_eq!(error.0, Code::PermissionDenied);
    assert!(error.1.ends_with("the token `ci` does not allow `acquire` on `prod/a`"), "{}", error.1);
    assert_eq!(refused(ci.leader("prod/a").await).0, Code::PermissionDenied);
    // A lease may be used by the token that created it, and by one with `admin` on every lock.
    let others = root.grant(60, 0).await.unwrap();
    assert_eq!(refused(ci.revoke(others).await).0, Code::PermissionDenied);
    assert_eq!(refused(ci.lock("ci/b", others).await).0, Code::PermissionDenied);
    assert_eq!(ci.leases().await.unwrap(), [lease]);
    assert_eq!(root.leases().await.unwrap().len(), 2);
    root.revoke(lease).await.unwrap();
    until("refusals in the log", || async {
        daemons.audit().iter().filter(|line| line["what"] == "refuse" && line["by"] == "etcd").count() >= 6
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_leader_cannot_proclaim_or_resign() {
    let daemons = Daemons::start(1).await;
    let mut client = connect(daemons.address(0)).await;
    let lease = client.grant(60, 0).await.unwrap();
    let before = client.campaign("e", "one", lease).await.unwrap();
    client.unlock(before.key.clone()).await.unwrap();
    // The same lease leads again, under the same key, with another revision.
    let now = client.campaign("e", "two", lease).await.unwrap();
    assert!(now.key == before.key && now.rev > before.rev);
    assert_eq!(refused(client.proclaim(Some(before.clone()), "old").await).1, "election: not leader");
    client.elections.resign(ResignRequest { leader: Some(before) }).await.unwrap();
    assert_eq!(client.leader("e").await.unwrap(), b"two");
    assert_eq!(refused(client.proclaim(None, "x").await).1, "\"leader\" field must be provided");
    // An HTTP session is a lease, too.
    let id = session(daemons.address(0), 60_000).await;
    let number = i64::from_str_radix(&id, 16).unwrap();
    client.lock("by session", number).await.unwrap();
    post(daemons.address(0), "/v1/locks/by%20session/acquire", json!({})).await.is(409);
}

/// Runs `examples/etcd-client` against these servers. `scripts/test` builds it, where protoc is installed, and sets
/// the variable.
async fn flows(addresses: &[SocketAddr]) {
    let Some(program) = std::env::var_os("LOCKKEEPER_ETCD_FLOWS") else {
        return eprintln!(
            "SKIPPED: LOCKKEEPER_ETCD_FLOWS does not name the program built from examples/etcd-client"
        );
    };
    let mut program = Command::new(program);
    program.args(addresses.iter().map(ToString::to_string)).kill_on_drop(true);
    let done = soon("the flows", program.output()).await.expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(done.status.success(), "{addresses:?}:\n{}{}", text(&done.stdout), text(&done.stderr));
}

fn free() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], lockkeeper_testbed::ports::free().expect("a port")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_third_party_client_works_with_etcd_itself() {
    let directory = tempfile::tempdir().expect("a directory");
    let (client, peer) = (free(), free());
    let url = |address: SocketAddr| format!("http://{address}");
    let mut etcd = Command::new("etcd");
    etcd.arg("--data-dir").arg(directory.path()).args(["--listen-client-urls", &url(client)]);
    etcd.args(["--advertise-client-urls", &url(client), "--listen-peer-urls", &url(peer)]);
    etcd.args(["--initial-advertise-peer-urls", &url(peer)]);
    etcd.args(["--initial-cluster", &format!("default={}", url(peer))]);
    let started = etcd.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn();
    let Ok(_etcd) = started else {
        return eprintln!("SKIPPED: etcd is not installed (Debian: etcd-server)");
    };
    until("etcd listens", || async { TcpStream::connect(client).await.is_ok() }).await;
    flows(&[client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_third_party_client_works_with_one_daemon() {
    let daemons = Daemons::start(1).await;
    flows(&[daemons.address(0)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_third_party_client_works_with_every_member_of_a_cluster() {
    let daemons = Daemons::start(3).await;
    for place in 0..3 {
        flows(&[daemons.address(place)]).await;
    }
    // Locks and leases created at one member are used at another.
    flows(&[daemons.address(0), daemons.address(1)]).await;
    flows(&[daemons.address(2), daemons.address(0)]).await;
}
