//! A client of etcd's API: a lease at one daemon, and a new one at another daemon when that fails.

use super::{ANSWER, Daemons, LockClient, Validity, WAIT};
use lockkeeper_daemon::HTTP_PORT;
use lockkeeper_etcd_api as pb;
use lockkeeper_testbed::history::{LockMode, now_ns};
use pb::etcdserverpb::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
};
use pb::v3lockpb::{LockRequest, LockResponse, UnlockRequest, UnlockResponse};
use std::time::Duration;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

/// The pause before a failed renewal is repeated.
const PAUSE: Duration = Duration::from_millis(50);

pub struct Etcd {
    daemons: Daemons,
    authority: Certificate,
    ttl: Duration,
    /// The index of the current daemon.
    at: usize,
    connection: Option<(Grpc<Channel>, i64)>,
}

/// A hold at the client, with what the client needs to release it.
pub struct Held {
    lease: i64,
    key: Vec<u8>,
    fence: u64,
}

fn text_of(error: impl std::fmt::Display) -> String {
    error.to_string()
}

async fn in_time<T>(within: Duration, answer: impl Future<Output = Result<T, Status>>) -> Result<T, String> {
    timeout(within, answer).await.map_err(|_| String::from("no answer"))?.map_err(text_of)
}

impl Etcd {
    pub fn new(daemons: &Daemons, ttl: Duration) -> Self {
        let pem = std::fs::read(&daemons.authority).expect("the test wrote it");
        Self { daemons: daemons.clone(), authority: Certificate::from_pem(pem), ttl, at: 0, connection: None }
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let token = self.daemons.token.parse().expect("it is plain text");
        request.metadata_mut().insert("token", token);
        request
    }

    async fn unary<Q, A>(&self, grpc: &Grpc<Channel>, path: &'static str, message: Q) -> Result<A, Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut grpc = grpc.clone();
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = PathAndQuery::from_static(path);
        let answer = grpc.unary(self.request(message), path, ProstCodec::default()).await?;
        Ok(answer.into_inner())
    }

    /// A connection to the current daemon.
    async fn dial(&self) -> Result<Grpc<Channel>, String> {
        let uri = format!("https://{}:{HTTP_PORT}", self.daemons.addresses[self.at]);
        let tls = ClientTlsConfig::new().ca_certificate(self.authority.clone());
        let endpoint = Endpoint::from_shared(uri).and_then(|endpoint| endpoint.tls_config(tls));
        let endpoint = endpoint.map_err(text_of)?.connect_timeout(ANSWER);
        let channel = timeout(ANSWER, endpoint.connect()).await.map_err(text_of)?.map_err(text_of)?;
        Ok(Grpc::new(channel))
    }

    /// A connection with a lease.
    async fn connect(&mut self) -> Result<(Grpc<Channel>, i64), String> {
        if let Some(connection) = &self.connection {
            return Ok(connection.clone());
        }
        let grpc = self.dial().await?;
        let wanted = LeaseGrantRequest { ttl: self.ttl.as_secs() as i64, id: 0 };
        let granted = self.unary(&grpc, "/etcdserverpb.Lease/LeaseGrant", wanted);
        let granted: LeaseGrantResponse = in_time(ANSWER, granted).await?;
        Ok(self.connection.insert((grpc, granted.id)).clone())
    }

    /// Whether the lease exists.
    async fn keep_alive(&self, grpc: &Grpc<Channel>, lease: i64) -> Result<bool, String> {
        let answer = async {
            let mut grpc = grpc.clone();
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let signs = self.request(tokio_stream::once(LeaseKeepAliveRequest { id: lease }));
            let path = PathAndQuery::from_static("/etcdserverpb.Lease/LeaseKeepAlive");
            let codec = ProstCodec::<_, LeaseKeepAliveResponse>::default();
            let mut answers = grpc.streaming(signs, path, codec).await?.into_inner();
            answers.message().await
        };
        let alive = in_time(ANSWER, answer).await?.ok_or("no answer")?;
        Ok(alive.ttl > 0)
    }

    /// Renews a lease through the current daemon; returns whether the lease exists.
    async fn renew(&mut self, lease: i64) -> Result<bool, String> {
        let grpc = match &self.connection {
            Some((grpc, at)) if *at == lease => grpc.clone(),
            _ => {
                let grpc = self.dial().await?;
                self.connection.insert((grpc, lease)).0.clone()
            }
        };
        self.keep_alive(&grpc, lease).await
    }

    async fn try_acquire(&mut self, lock: &str) -> Result<Held, String> {
        let (grpc, lease) = self.connect().await?;
        let wanted = LockRequest { name: lock.into(), lease };
        let locked = self.unary(&grpc, "/v3lockpb.Lock/Lock", wanted);
        let alive = async {
            loop {
                tokio::time::sleep(super::TTL / 4).await;
                match self.keep_alive(&grpc, lease).await {
                    Ok(true) => {}
                    Ok(false) => return String::from("the lease is over"),
                    Err(why) => return why,
                }
            }
        };
        let locked: LockResponse = tokio::select! {
            locked = in_time(WAIT, locked) => locked?,
            why = alive => return Err(why),
        };
        let fence = locked.header.map_or(0, |header| header.revision.unsigned_abs());
        Ok(Held { lease, key: locked.key, fence })
    }

    /// Switches to the next daemon.
    fn move_on(&mut self) {
        self.connection = None;
        self.at = (self.at + 1) % self.daemons.addresses.len();
    }
}

impl LockClient for Etcd {
    type Held = Held;

    async fn acquire(&mut self, lock: &str, how: LockMode) -> Result<Held, String> {
        assert_eq!(how, LockMode::Exclusive, "etcd's API knows nothing else");
        let held = self.try_acquire(lock).await;
        if held.is_err() {
            self.move_on();
        }
        held
    }

    fn fence(held: &Held) -> u64 {
        held.fence
    }

    /// A keep-alive only shows that the lease existed when the request was sent: before its holds are recorded, its time
    /// to live is no promise about them. Beyond that only the revision protects.
    async fn validity(&mut self, held: &Held) -> Validity {
        // Any daemon renews the lease, so a client repeats a renewal at the next one: a daemon that has left refuses
        // connections, and one whose member has no lease while the view changes asks for a repetition.
        let until_ns = now_ns() + ANSWER.as_nanos() as u64;
        while now_ns() < until_ns {
            let sent_ns = now_ns();
            match self.renew(held.lease).await {
                Ok(true) => return Validity::UntilNs(sent_ns),
                Ok(false) => return Validity::Lost,
                Err(_) => self.move_on(),
            }
            tokio::time::sleep(PAUSE).await;
        }
        Validity::AsBefore
    }

    async fn switch_daemon(&mut self) {
        self.move_on();
    }

    async fn release(&mut self, held: Held) {
        let Some((grpc, _)) = self.connection.clone() else { return };
        let unlocked = self.unary(&grpc, "/v3lockpb.Lock/Unlock", UnlockRequest { key: held.key });
        let unlocked: Result<UnlockResponse, String> = in_time(ANSWER, unlocked).await;
        if unlocked.is_err() {
            self.move_on();
        }
    }
}
