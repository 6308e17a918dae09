//! Elections by etcd's API: all revisions in replies to an earlier leader are below those to a later one, so that a
//! client may use any of them as a fencing token.

mod support;

use lockkeeper_etcd_api::etcdserverpb::{LeaseGrantRequest, LeaseGrantResponse};
use lockkeeper_etcd_api::v3electionpb::{
    CampaignRequest, CampaignResponse, LeaderKey, LeaderRequest, LeaderResponse, ProclaimRequest,
    ProclaimResponse, ResignRequest, ResignResponse,
};
use std::net::SocketAddr;
use support::{Daemons, soon};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

struct Client(Grpc<Channel>);

impl Client {
    async fn connect(to: SocketAddr) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{to}")).expect("an address");
        Self(Grpc::new(soon("a connection", endpoint.connect()).await.expect("it serves")))
    }

    async fn call<Q, A>(&mut self, path: &'static str, question: Q) -> Result<A, Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        self.0.ready().await.expect("it serves");
        let (path, codec) = (PathAndQuery::from_static(path), ProstCodec::<Q, A>::default());
        let answer = soon("an answer", self.0.unary(Request::new(question), path, codec)).await;
        answer.map(tonic::Response::into_inner)
    }

    async fn lease(&mut self) -> i64 {
        let asked = LeaseGrantRequest { ttl: 600, id: 0 };
        let granted: LeaseGrantResponse =
            self.call("/etcdserverpb.Lease/LeaseGrant", asked).await.expect("granted");
        granted.id
    }

    async fn campaign(&mut self, lease: i64, value: &str) -> CampaignResponse {
        let asked = CampaignRequest { name: b"e".into(), lease, value: value.into() };
        self.call("/v3electionpb.Election/Campaign", asked).await.expect("elected")
    }

    async fn proclaim(&mut self, leader: &LeaderKey, value: &str) -> Result<ProclaimResponse, Status> {
        let asked = ProclaimRequest { leader: Some(leader.clone()), value: value.into() };
        self.call("/v3electionpb.Election/Proclaim", asked).await
    }

    async fn leader(&mut self) -> LeaderResponse {
        self.call("/v3electionpb.Election/Leader", LeaderRequest { name: b"e".into() })
            .await
            .expect("a leader")
    }

    async fn resign(&mut self, leader: LeaderKey) -> ResignResponse {
        self.call("/v3electionpb.Election/Resign", ResignRequest { leader: Some(leader) })
            .await
            .expect("resigned")
    }
}

fn revision(header: Option<lockkeeper_etcd_api::etcdserverpb::ResponseHeader>) -> i64 {
    header.expect("a header").revision
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revisions_rise_over_all_leaders_and_all_proclamations() {
    let daemons = Daemons::start(3).await;
    let mut clients = Vec::new();
    for place in 0..3 {
        clients.push(Client::connect(daemons.address(place)).await);
    }
    let mut highest = 0;
    for term in 0..6 {
        let client = &mut clients[term % 3];
        let lease = client.lease().await;
        let won = client.campaign(lease, "0").await;
        let leader = won.leader.expect("the leader's key");
        // Every revision of this term is above every revision of the term before.
        let before = highest;
        let mut next = |revision: i64| {
            assert!(revision > highest && revision > before, "{revision} after {highest}");
            highest = revision;
        };
        next(revision(won.header));
        assert!(leader.rev > before);
        for number in 1..=200 {
            let value = number.to_string();
            let proclaimed = client.proclaim(&leader, &value).await.expect("it leads");
            let proclaimed = revision(proclaimed.header);
            next(proclaimed);
            if number % 50 == 0 {
                let response = client.leader().await;
                let kv = response.kv.expect("a leader");
                assert_eq!((kv.value.as_slice(), kv.version), (value.as_bytes(), number + 1));
                assert_eq!((revision(response.header), kv.mod_revision), (proclaimed, proclaimed));
                assert!(kv.create_revision == leader.rev && kv.create_revision > before, "{kv:?}");
            }
        }
        // Campaigning again as the leader is a proclamation.
        next(revision(client.campaign(lease, "again").await.header));
        let resigned = revision(client.resign(leader.clone()).await.header);
        assert!(resigned <= highest, "{resigned}: the next leader's first revision may be {}", highest + 1);
        let stale = client.proclaim(&leader, "stale").await.expect_err("it does not lead");
        assert_eq!(stale.message(), "election: not leader");
    }
}
