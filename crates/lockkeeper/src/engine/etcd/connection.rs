//! Connections to the servers of an etcd cluster: one HTTP/2 connection to each, balanced by tonic, and the token of
//! an authenticated user.

use crate::engine::tls::{Tls, host_name};
use lockkeeper_etcd_api::etcdserverpb::AuthenticateRequest;
use lockkeeper_etcd_api::etcdserverpb::auth_client::AuthClient;
use std::sync::{Arc, RwLock};
use std::time::Duration;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};

/// The time limit for connecting to one server.
const CONNECT: Duration = Duration::from_secs(2);
/// The interval between pings. A server that does not reply to a ping within `PING_TIMEOUT` is considered dead, and
/// watches on its connection end. etcd closes the connection of a client that pings more often than every 5 s.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// The transport of the generated clients.
pub(super) type Service = InterceptedService<Channel, Headers>;

type Token = MetadataValue<Ascii>;

/// The connections to all servers. A request goes to one of the connected servers.
pub(super) struct Connection {
    channel: Channel,
    user: Option<(String, String)>,
    headers: Headers,
    /// Held while a token is requested, so that concurrent requests with an expired token authenticate once.
    authenticating: tokio::sync::Mutex<()>,
}

/// Adds etcd's metadata to every request.
#[derive(Clone, Default)]
pub(super) struct Headers {
    token: Arc<RwLock<Option<Token>>>,
}

impl Headers {
    fn token(&self) -> Option<Token> {
        self.token.read().unwrap_or_else(|e| e.into_inner()).clone()
    }
}

impl Interceptor for Headers {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        // With this header, a server that is cut off from its cluster returns an error instead of leaving watches
        // without events.
        request.metadata_mut().insert("hasleader", Token::from_static("true"));
        if let Some(token) = self.token() {
            request.metadata_mut().insert("token", token);
        }
        Ok(request)
    }
}

impl Connection {
    /// Prepares connections to `host:port` addresses; they are opened on first use. Fails if a host is not an address
    /// of a server.
    pub fn new(
        hosts: &[String],
        user: Option<(String, String)>,
        tls: Option<&Tls>,
    ) -> Result<Connection, tonic::transport::Error> {
        let endpoint = |host: &String| {
            let endpoint = match tls {
                None => Endpoint::from_shared(format!("http://{host}"))?,
                Some(tls) => {
                    Endpoint::from_shared(format!("https://{host}"))?.tls_config(settings(tls, host))?
                }
            };
            Ok(endpoint
                .connect_timeout(CONNECT)
                .http2_keep_alive_interval(PING_INTERVAL)
                .keep_alive_timeout(PING_TIMEOUT)
                .keep_alive_while_idle(true))
        };
        let endpoints = hosts.iter().map(endpoint).collect::<Result<Vec<_>, tonic::transport::Error>>()?;
        let channel = Channel::balance_list(endpoints.into_iter());
        let authenticating = tokio::sync::Mutex::default();
        Ok(Connection { channel, user, headers: Headers::default(), authenticating })
    }

    fn service(&self) -> Service {
        InterceptedService::new(self.channel.clone(), self.headers.clone())
    }

    /// Sends one request, and repeats it with a new token if the server rejects the current one.
    pub async fn call<T, F>(&self, send: impl Fn(Service) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let token = self.headers.token();
        match send(self.service()).await {
            Err(status) if self.user.is_some() && rejects_token(&status) => {
                self.authenticate(token).await?;
                send(self.service()).await
            }
            answer => answer,
        }
    }

    /// Requests a token for the user of the URL, if it names one, unless another request has replaced `stale` meanwhile.
    pub async fn authenticate(&self, stale: Option<Token>) -> Result<(), Status> {
        let Some((name, password)) = self.user.clone() else { return Ok(()) };
        let _authenticating = self.authenticating.lock().await;
        if self.headers.token() != stale {
            return Ok(());
        }
        // Sent without the token: etcd would reject the request for a new token because of the old one.
        let mut auth = AuthClient::new(self.channel.clone());
        let reply = auth.authenticate(AuthenticateRequest { name, password }).await?.into_inner();
        let token = reply.token.parse().map_err(|_| Status::internal("the token is no text"))?;
        *self.headers.token.write().unwrap_or_else(|e| e.into_inner()) = Some(token);
        Ok(())
    }
}

/// The settings of TLS for one server. The client's certificate is for the transport alone: etcd takes the common name of
/// a certificate for a user only if the request has no token.
fn settings(tls: &Tls, host: &str) -> ClientTlsConfig {
    let roots = tls.roots.roots.iter().cloned();
    // The limit for connections does not include the handshake.
    let settings = ClientTlsConfig::new().timeout(CONNECT).domain_name(host_name(host)).trust_anchors(roots);
    match &tls.identity {
        None => settings,
        Some(own) => settings.identity(Identity::from_pem(&own.certificate, &own.key)),
    }
}

/// Whether the server rejects the token: it has expired, or the server has restarted.
fn rejects_token(status: &Status) -> bool {
    match status.code() {
        Code::Unauthenticated => true,
        // Some services of etcd drop the code and keep the message.
        Code::Unknown => status.message() == "etcdserver: invalid auth token",
        _ => false,
    }
}
