//! Establishing a connection to another member: address, TLS, greeting.

use super::connection::{self, Connection};
use super::counters::{Counters, Refusal};
use super::hello::{self, Confirm, Hello, HelloRejection, HelloReply, Purpose, VERSIONS};
use super::outbox::Outbox;
use super::proof::{self, Side};
use super::records::{Incoming, Record, RecordHeader};
use super::tls::{Ready, Tls, TlsError};
use super::{Error, Limits, Unreachable};
use crate::join_token::JoinToken;
use lockkeeper_member::MemberId;
use rustls::pki_types::ServerName;
use std::net::SocketAddr;
use std::sync::RwLock;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// A member's identity and settings for outgoing connections.
#[derive(Debug)]
pub struct Dialler {
    pub(super) me: MemberId,
    pub(super) cluster: String,
    pub(super) token: JoinToken,
    pub(super) limits: Limits,
    insecure_no_tls: bool,
    tls: RwLock<Option<Ready>>,
}

/// The reason why no connection was established.
#[derive(Debug)]
pub(super) struct DialFailed {
    pub why: String,
    /// Set if one side rejected the other; `None` if the other side could not be reached.
    pub refusal: Option<Refusal>,
}

impl DialFailed {
    fn unreachable(why: impl ToString) -> Self {
        Self { why: why.to_string(), refusal: None }
    }

    fn refused(refusal: Refusal, why: impl ToString) -> Self {
        Self { why: why.to_string(), refusal: Some(refusal) }
    }
}

impl Dialler {
    /// Validates the settings and the certificates.
    pub fn new(
        me: MemberId,
        cluster: &str,
        token: JoinToken,
        tls: Option<&Tls>,
        insecure_no_tls: bool,
        limits: Limits,
    ) -> Result<Self, Error> {
        limits.check()?;
        if cluster.is_empty() || cluster.len() > hello::LONGEST_NAME {
            return Err(Error::ClusterName { longest: hello::LONGEST_NAME });
        }
        let tls = tls.map(|tls| Ready::new(tls, me)).transpose()?;
        let (cluster, tls) = (cluster.to_owned(), RwLock::new(tls));
        Ok(Self { me, cluster, token, limits, insecure_no_tls, tls })
    }

    /// Creates a dialler that claims to be `me`, without checking that its certificate names `me` and is valid.
    #[cfg(test)]
    pub(super) fn pretending(me: MemberId, cluster: &str, token: JoinToken, tls: &Tls) -> Self {
        let tls = Some(Ready::unchecked(tls).unwrap());
        let (cluster, tls) = (cluster.to_owned(), RwLock::new(tls));
        let limits = Limits::default();
        Self { me, cluster, token, limits, insecure_no_tls: false, tls }
    }

    /// Replaces the certificates for new connections.
    pub(super) fn reload_tls(&self, tls: &Tls) -> Result<(), Error> {
        let ready = Ready::new(tls, self.me)?;
        let mut present = self.tls.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        if present.is_none() {
            return Err(Error::Tls(TlsError::StartedWithout));
        }
        *present = Some(ready);
        Ok(())
    }

    pub(super) fn tls(&self) -> Option<Ready> {
        self.tls.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Whether connections to or from this address are allowed.
    pub(super) fn may_use(&self, address: &SocketAddr) -> bool {
        self.insecure_no_tls || address.ip().is_loopback() || self.tls().is_some()
    }

    /// Sends one query to the member that listens at an address.
    pub async fn query(
        &self,
        address: &str,
        query: &[u8],
        within: Duration,
        counters: &Counters,
    ) -> Result<Vec<u8>, Unreachable> {
        let result = timeout(within, self.query_at(address, query, counters)).await;
        result.unwrap_or_else(|_| Err(Unreachable(format!("no answer from {address} within {within:?}"))))
    }

    async fn query_at(
        &self,
        address: &str,
        query: &[u8],
        counters: &Counters,
    ) -> Result<Vec<u8>, Unreachable> {
        let failed = |why: &str| Unreachable(format!("cannot ask {address}: {why}"));
        let dialled = self.dial(address, None, Purpose::Queries).await;
        let Connection { reader, writer, .. } = dialled.map_err(|error| failed(&error.why))?;
        let (outbox, received) = (Outbox::new(self.limits.queue_bytes), AtomicBool::default());
        let _connected = outbox.connect(writer, self.limits.queue_bytes, 0);
        outbox
            .append(RecordHeader::Query(0), self.limits.frame_bytes, |out| out.extend(query))
            .map_err(|_| failed("the query is too long"))?;
        let mut reply = None;
        let mut incoming = Incoming::new(self.limits.frame_bytes);
        let take = |incoming: &mut Incoming| {
            while let Some(record) = incoming.next().map_err(connection::End::Malformed)? {
                match record {
                    Record::Reply(_, bytes) => reply = Some(Ok(bytes.to_vec())),
                    Record::Declined(_) => reply = Some(Err(failed("it has too many queries in progress"))),
                    Record::Ping => continue,
                    _ => return Err(connection::End::Misplaced("a frame or a query")),
                }
                return Err(connection::End::Closed);
            }
            Ok(())
        };
        let end = tokio::select! {
            end = connection::read(reader, &mut incoming, &received, counters, take) => end,
            end = connection::write(&outbox, counters) => end,
        };
        reply.unwrap_or_else(|| Err(failed(&end.to_string())))
    }

    /// Establishes a connection to the member `to`, or to any member that listens there, and completes the greeting.
    pub(super) async fn dial(
        &self,
        address: &str,
        to: Option<MemberId>,
        purpose: Purpose,
    ) -> Result<Connection, DialFailed> {
        let stream = timeout(self.limits.connect_within, self.connect(address)).await;
        let stream = stream.map_err(|_| {
            DialFailed::unreachable(format!("no connection within {:?}", self.limits.connect_within))
        })??;
        let greeted = timeout(self.limits.hello_within, self.greet(stream, to, purpose)).await;
        greeted.map_err(|_| {
            let why = format!("no greeting within {:?}", self.limits.hello_within);
            DialFailed::refused(Refusal::Slow, why)
        })?
    }

    /// Resolves and connects. Names are resolved at every attempt, since their addresses may change.
    async fn connect(&self, address: &str) -> Result<TcpStream, DialFailed> {
        let found = tokio::net::lookup_host(address).await;
        let found = found.map_err(|error| DialFailed::unreachable(format!("no such address: {error}")))?;
        let mut last = DialFailed::unreachable("this name has no address");
        for socket in found {
            if !self.may_use(&socket) {
                last = DialFailed::refused(
                    Refusal::TlsMismatch,
                    format!("{socket} is on another machine, and there is no TLS: configure certificates"),
                );
                continue;
            }
            match TcpStream::connect(socket).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = DialFailed::unreachable(error),
            }
        }
        Err(last)
    }

    async fn greet(
        &self,
        stream: TcpStream,
        to: Option<MemberId>,
        purpose: Purpose,
    ) -> Result<Connection, DialFailed> {
        // Records are batched before they are written, so every write should leave at once.
        stream.set_nodelay(true).map_err(DialFailed::unreachable)?;
        let mut connection = match self.tls() {
            None => Connection::plain(stream),
            Some(tls) => {
                let any_member = ServerName::try_from("member.lockkeeper").expect("this is a name");
                let dialled = TlsConnector::from(tls.client).connect(any_member, stream).await;
                let stream = dialled.map_err(|error| {
                    DialFailed::refused(Refusal::Handshake, format!("no TLS with it: {error}"))
                })?;
                Connection::tls(stream.into())
            }
        };
        self.exchange_greetings(&mut connection, to, purpose).await?;
        Ok(connection)
    }

    /// Sends the greeting and checks the reply: the other side must be the expected member, be named in its
    /// certificate, and prove that it has the join token. Nothing but the greeting is sent before that.
    async fn exchange_greetings(
        &self,
        connection: &mut Connection,
        to: Option<MemberId>,
        purpose: Purpose,
    ) -> Result<(), DialFailed> {
        let (oldest, newest) = (*VERSIONS.start(), *VERSIONS.end());
        let hello = Hello { oldest, newest, cluster: self.cluster.clone(), from: Some(self.me), to, purpose };
        let sent = proof::hello_body(&hello).map_err(DialFailed::unreachable)?;
        connection.send(&hello::frame(&sent)).await.map_err(DialFailed::unreachable)?;
        let unintelligible = |error| match error {
            hello::GreetingError::Broken(error) => DialFailed::unreachable(format!(
                "it broke off the greeting ({error}): see its log for the reason, such as TLS on one side only"
            )),
            error => DialFailed::refused(Refusal::Hello, error),
        };
        let body = hello::read_body(&mut connection.reader).await.map_err(unintelligible)?;
        let (reply, proved) = proof::read_reply(sent, &body).map_err(unintelligible)?;
        match reply {
            HelloReply::Refused(why) => return Err(DialFailed::refused(Refusal::Hello, why)),
            HelloReply::Welcome { member, .. } if to.is_some_and(|to| to != member) => {
                return Err(DialFailed::refused(Refusal::Hello, HelloRejection::Member(member)));
            }
            HelloReply::Welcome { member, .. } if !connection.can_be(member) => {
                let why =
                    format!("it claims to be {member}, and its certificate names another member or none");
                return Err(DialFailed::refused(Refusal::Identity, why));
            }
            HelloReply::Welcome { version, .. } if !VERSIONS.contains(&version) => {
                let why = format!("it chose the unsupported version {version}");
                return Err(DialFailed::refused(Refusal::Hello, why));
            }
            HelloReply::Welcome { .. } => {}
        }
        match proved {
            Some((transcript, proof)) if transcript.verify(&self.token, Side::Listener, &proof) => {
                let own = Confirm::Proof(transcript.prove(&self.token, Side::Dialler));
                connection.send(&hello::encode(&own)).await.map_err(DialFailed::unreachable)
            }
            _ => {
                // The listener may have disconnected already.
                let _ = connection.send(&hello::encode(&Confirm::Refused(HelloRejection::Token))).await;
                Err(DialFailed::refused(Refusal::Token, HelloRejection::Token))
            }
        }
    }
}
