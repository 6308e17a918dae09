//! A client of the JSON API: a session at one daemon, and a new one at another daemon when that fails.

use super::{ANSWER, Daemons, LockClient, Validity, WAIT};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use lockkeeper_daemon::HTTP_PORT;
use lockkeeper_testbed::history::{LockMode, now_ns};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

pub struct Http {
    daemons: Daemons,
    tls: TlsConnector,
    /// The index of the current daemon.
    at: usize,
    connection: Option<SendRequest<Full<Bytes>>>,
    ttl: Duration,
    session: Option<String>,
}

/// A hold at the client, with what the client needs to release it.
pub struct Held {
    lock: String,
    hold: String,
    session: String,
    fence: u64,
}

impl Http {
    pub fn new(daemons: &Daemons, ttl: Duration) -> Self {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(&daemons.authority).expect("the test wrote it");
        roots.add(authority).expect("the test wrote it");
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("ring has them")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let tls = TlsConnector::from(Arc::new(tls));
        Self { daemons: daemons.clone(), tls, at: 0, connection: None, ttl, session: None }
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let host = &self.daemons.addresses[self.at];
        let name = ServerName::try_from(host.clone()).expect("an address");
        let stream =
            TcpStream::connect((host.as_str(), HTTP_PORT)).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let stream = self.tls.connect(name, stream).await.map_err(|error| error.to_string())?;
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        Ok(sender)
    }

    /// Sends a request and returns the response, if it is a success.
    async fn ask(
        &mut self,
        method: Method,
        path: &str,
        body: Value,
        within: Duration,
    ) -> Result<Value, String> {
        let asking = async {
            let mut sender = match self.connection.take() {
                Some(sender) if !sender.is_closed() => sender,
                _ => self.connect().await?,
            };
            let request = Request::builder()
                .method(method)
                .uri(path)
                .header("host", &self.daemons.addresses[self.at])
                .header("authorization", format!("Bearer {}", self.daemons.token))
                .header("content-type", "application/json")
                .body(Full::from(body.to_string()))
                .expect("a request");
            let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
            let status = answer.status();
            let body = answer.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
            // The connection can be used again only after a complete response.
            self.connection = Some(sender);
            let reply: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
            if status.is_success() { Ok(reply) } else { Err(format!("{status}: {reply}")) }
        };
        timeout(within, asking).await.unwrap_or_else(|_| Err(String::from("no answer")))
    }

    async fn session(&mut self) -> Result<String, String> {
        if let Some(session) = &self.session {
            return Ok(session.clone());
        }
        let ttl = json!({ "ttl_ms": self.ttl.as_millis() as u64 });
        let made = self.ask(Method::POST, "/v1/sessions", ttl, ANSWER).await?;
        let session = made["session"].as_str().ok_or("no session in the answer")?;
        Ok(self.session.insert(session.to_owned()).clone())
    }

    async fn try_acquire(&mut self, lock: &str, how: LockMode) -> Result<Held, String> {
        let session = self.session().await?;
        let wait_ms = (super::TTL / 2).as_millis() as u64;
        let mut body = json!({ "session": session, "wait_ms": wait_ms });
        match how {
            LockMode::Exclusive => body["mode"] = "exclusive".into(),
            LockMode::Shared => body["mode"] = "shared".into(),
            LockMode::Permit { of: permits } => {
                (body["mode"], body["permits"]) = ("permit".into(), permits.into())
            }
        }
        let path = format!("/v1/locks/{}/acquire", lock.replace('/', "%2F"));
        let held = self.ask(Method::POST, &path, body, WAIT).await?;
        let (hold, fence) = (held["hold"].as_str(), held["fence"].as_u64());
        let (hold, fence) = hold.zip(fence).ok_or("no hold in the answer")?;
        Ok(Held { lock: lock.to_owned(), hold: hold.to_owned(), session, fence })
    }

    /// Switches to the next daemon.
    fn move_on(&mut self) {
        (self.connection, self.session) = (None, None);
        self.at = (self.at + 1) % self.daemons.addresses.len();
    }
}

impl LockClient for Http {
    type Held = Held;

    fn can(&self, _how: LockMode) -> bool {
        true
    }

    async fn acquire(&mut self, lock: &str, how: LockMode) -> Result<Held, String> {
        let held = self.try_acquire(lock, how).await;
        if held.is_err() {
            self.move_on();
        }
        held
    }

    fn fence(held: &Held) -> u64 {
        held.fence
    }

    /// The promise in a response counts from the time of the request.
    async fn validity(&mut self, held: &Held) -> Validity {
        let sent_ns = now_ns();
        let path = format!("/v1/sessions/{}/keep-alive", held.session);
        let alive = match self.ask(Method::POST, &path, json!({}), ANSWER).await {
            Ok(alive) => alive,
            Err(why) => {
                self.move_on();
                return if why.contains("no_such_session") { Validity::Lost } else { Validity::AsBefore };
            }
        };
        let lost =
            alive["lost"].as_array().is_none_or(|lost| lost.iter().any(|lost| lost["hold"] == *held.hold));
        match alive["valid_for_ms"].as_u64() {
            Some(valid_for_ms) if !lost => Validity::UntilNs(sent_ns + valid_for_ms * 1_000_000),
            _ => Validity::Lost,
        }
    }

    async fn switch_daemon(&mut self) {
        self.move_on();
    }

    async fn release(&mut self, held: Held) {
        let path = format!("/v1/locks/{}/release", held.lock.replace('/', "%2F"));
        if self.ask(Method::POST, &path, json!({ "hold": held.hold }), ANSWER).await.is_err() {
            self.move_on();
        }
    }
}
