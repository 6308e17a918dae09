//! Incoming connections: which ones are accepted, and the dispatch of their records.

use super::connection::{self, Connection, End};
use super::counters::Refusal;
use super::hello::{self, Confirm, GreetingError, Hello, HelloRejection, HelloReply, Purpose};
use super::outbox::{NotTaken, Outbox};
use super::pending_connections::{PendingConnection, PendingConnections};
use super::proof::{self, Side};
use super::records::{Incoming, Record, RecordHeader};
use super::{Limits, NetState};
use lockkeeper_member::MemberId;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info, warn};

/// The first byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 0x16;
/// A query takes one permit, and one more for every so many bytes: many small queries may be in progress, or few large
/// ones.
const BYTES_PER_PERMIT: usize = 256 * 1024;

/// The incoming connections. Members have slots of their own, which unauthenticated connections cannot occupy.
pub(super) struct Inbound {
    members: Arc<Semaphore>,
    pending: Arc<PendingConnections>,
    links: Mutex<BTreeMap<MemberId, Arc<Gate>>>,
}

impl Inbound {
    pub fn new(limits: &Limits) -> Self {
        Self {
            members: Arc::new(Semaphore::new(limits.connections)),
            pending: PendingConnections::new(limits.unauthenticated),
            links: Mutex::new(BTreeMap::new()),
        }
    }

    /// Number of connections that have not yet proved that they come from a member.
    #[cfg(test)]
    pub fn pending(&self) -> usize {
        self.pending.count()
    }

    fn links(&self) -> MutexGuard<'_, BTreeMap<MemberId, Arc<Gate>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the newest link of a member, which replaces an older one. Once this returns, no more frames are
    /// accepted over the older one.
    fn enter(&self, member: MemberId) -> Arc<Gate> {
        let gate = Arc::new(Gate::default());
        let older = self.links().insert(member, gate.clone());
        if let Some(older) = older {
            older.shut();
        }
        gate
    }

    /// Unregisters a link, unless a newer one has replaced it.
    fn leave(&self, member: MemberId, gate: &Arc<Gate>) {
        let mut links = self.links();
        if links.get(&member).is_some_and(|present| Arc::ptr_eq(present, gate)) {
            links.remove(&member);
        }
    }
}

/// Accepts frames until it is shut. Shutting waits for the batch that is being handled.
#[derive(Debug, Default)]
struct Gate {
    shut: Mutex<bool>,
    shut_notice: Notify,
}

impl Gate {
    fn shut(&self) {
        *self.shut.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shut_notice.notify_one();
    }

    fn pass<T>(&self, batch: impl FnOnce() -> Result<T, End>) -> Result<T, End> {
        let shut = self.shut.lock().unwrap_or_else(PoisonError::into_inner);
        if *shut {
            return Err(End::Replaced);
        }
        batch()
    }
}

/// Accepts connections until the network stops.
pub(super) async fn accept(shared: Arc<NetState>, listener: TcpListener) {
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Usually the process is out of file descriptors. Other connections may release some.
                warn!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (pending, evicted) = shared.inbound.pending.register(address.ip());
        shared.tasks.spawn(serve(shared.clone(), stream, address, pending, evicted));
    }
}

async fn serve(
    shared: Arc<NetState>,
    stream: TcpStream,
    address: SocketAddr,
    pending: PendingConnection,
    evicted: oneshot::Receiver<()>,
) {
    let within = shared.dialler.limits.hello_within;
    let greeted = tokio::select! {
        greeted = timeout(within, greet(&shared, stream, address)) => greeted.unwrap_or_else(|_| {
            Err(rejected(Refusal::Slow, format!("no greeting within {within:?}")))
        }),
        _ = evicted => Err(rejected(Refusal::Busy, "replaced by newer connections before its greeting was complete")),
    };
    let admitted = greeted.and_then(|greeted| {
        let permit = shared.inbound.members.clone().try_acquire_owned();
        permit
            .map(|permit| (greeted, permit))
            .map_err(|_| rejected(Refusal::Busy, "too many connections of members"))
    });
    drop(pending);
    match admitted {
        Ok(((connection, hello, from), _place)) => {
            serve_records(&shared, connection, hello, from, address).await
        }
        Err(RejectedConnection { refusal, why }) => {
            shared.counters.refuse(refusal);
            let reason = refusal.label();
            // Any process on the network can cause these as often as it likes, so they are always counted but logged
            // only at debug level.
            if matches!(refusal, Refusal::Slow | Refusal::Busy) {
                debug!(%address, reason, "connection refused: {why}");
            } else {
                warn!(%address, reason, "connection refused: {why}");
            }
        }
    }
}

/// The reason why a connection is rejected before any record is read.
struct RejectedConnection {
    refusal: Refusal,
    why: String,
}

fn rejected(refusal: Refusal, why: impl ToString) -> RejectedConnection {
    RejectedConnection { refusal, why: why.to_string() }
}

async fn greet(
    shared: &NetState,
    stream: TcpStream,
    address: SocketAddr,
) -> Result<(Connection, Hello, MemberId), RejectedConnection> {
    let broken = |error: std::io::Error| rejected(Refusal::Hello, format!("it broke off: {error}"));
    if !shared.dialler.may_use(&address) {
        return Err(rejected(Refusal::TlsMismatch, "it comes from another machine, and there is no TLS"));
    }
    stream.set_nodelay(true).map_err(broken)?;
    let mut first = [0];
    stream.peek(&mut first).await.map_err(broken)?;
    let mut connection = match (shared.dialler.tls(), first[0] == TLS_HANDSHAKE) {
        (None, false) => Connection::plain(stream),
        (Some(tls), true) => {
            let accepted = TlsAcceptor::from(tls.server).accept(stream).await;
            let stream = accepted.map_err(|error| {
                rejected(Refusal::Handshake, format!("the TLS handshake failed: {error}"))
            })?;
            Connection::tls(stream.into())
        }
        (None, true) => {
            let why = "it speaks TLS, and this member was started without: give this one certificates";
            return Err(rejected(Refusal::TlsMismatch, why));
        }
        (Some(_), false) => {
            let why = "it does not speak TLS, and this member requires it: give the other one certificates";
            return Err(rejected(Refusal::TlsMismatch, why));
        }
    };
    let unintelligible = |error| match error {
        GreetingError::Broken(error) => broken(error),
        error => rejected(Refusal::Hello, error),
    };
    let body = hello::read_body(&mut connection.reader).await.map_err(unintelligible)?;
    let (hello, has_nonce) = proof::read_hello(&body).map_err(unintelligible)?;
    let (version, from) = match check_greeting(shared, &hello, &connection) {
        Ok(checked) => checked,
        Err((reason, rejected)) => {
            // The dialler may have disconnected already.
            let _ = connection.send(&hello::encode(&HelloReply::Refused(reason))).await;
            return Err(rejected);
        }
    };
    if !has_nonce {
        return Err(rejected(Refusal::Hello, "its greeting has no nonce"));
    }
    let reply = HelloReply::Welcome { version, member: shared.me };
    let token = &shared.dialler.token;
    let (welcome, transcript) = proof::welcome_body(token, body, &reply).map_err(broken)?;
    connection.send(&hello::frame(&welcome)).await.map_err(broken)?;
    match hello::read(&mut connection.reader).await.map_err(unintelligible)? {
        Confirm::Proof(proof) if transcript.verify(token, Side::Dialler, &proof) => {
            Ok((connection, hello, from))
        }
        Confirm::Proof(_) => {
            Err(rejected(Refusal::Token, format!("{from} did not prove that it has the join token")))
        }
        Confirm::Refused(HelloRejection::Token) => {
            Err(rejected(Refusal::Token, format!("{from}: {}", HelloRejection::Token)))
        }
        Confirm::Refused(why) => Err(rejected(Refusal::Hello, format!("{from} refuses this member: {why}"))),
    }
}

/// Checks a greeting. Returns the version to use and the member that dials; or the reason for the other side, and the
/// one for this side's log.
fn check_greeting(
    shared: &NetState,
    hello: &Hello,
    connection: &Connection,
) -> Result<(u16, MemberId), (HelloRejection, RejectedConnection)> {
    let me = shared.me;
    let no = |refusal, why: HelloRejection, text: String| Err((why, rejected(refusal, text)));
    let claimed = hello.from.map_or("a process that is no member".to_owned(), |id| id.to_string());
    if hello.cluster != shared.dialler.cluster {
        let text = format!("{claimed} belongs to the cluster {:?}", hello.cluster);
        return no(Refusal::Hello, HelloRejection::Cluster(shared.dialler.cluster.clone()), text);
    }
    if hello.to.is_some_and(|to| to != me) {
        return no(
            Refusal::Hello,
            HelloRejection::Member(me),
            format!("{claimed} looks for another member here"),
        );
    }
    let Some(version) = hello::common_version(hello.oldest, hello.newest) else {
        let (oldest, newest) = (*hello::VERSIONS.start(), *hello::VERSIONS.end());
        let text = format!("{claimed} speaks versions {} to {} only", hello.oldest, hello.newest);
        return no(Refusal::Hello, HelloRejection::Version { oldest, newest }, text);
    };
    // Queries may change the membership, so they must come from members, too.
    let Some(from) = hello.from.filter(|&from| from != me || hello.purpose == Purpose::Queries) else {
        return no(Refusal::Hello, HelloRejection::Sender, format!("{claimed} is not another member"));
    };
    if !connection.can_be(from) {
        let text = format!("it claims to be {claimed}, and its certificate names another member or none");
        return no(Refusal::Identity, HelloRejection::Certificate, text);
    }
    if shared.inbound.members.available_permits() == 0 {
        return no(Refusal::Busy, HelloRejection::Busy, String::from("too many connections of members"));
    }
    Ok((version, from))
}

/// Reads and answers all records of an accepted connection.
async fn serve_records(
    shared: &Arc<NetState>,
    connection: Connection,
    hello: Hello,
    from: MemberId,
    address: SocketAddr,
) {
    let (limits, counters) = (&shared.dialler.limits, &shared.counters);
    let link = (hello.purpose == Purpose::Link).then_some(from);
    let gate = link.map_or_else(Arc::default, |member| shared.inbound.enter(member));
    if let Some(member) = link {
        info!(peer = %member, %address, "it has connected");
        shared.peer_connected(member);
    }
    let dispatcher = RecordDispatcher {
        shared,
        from,
        link,
        replies: Arc::new(Outbox::new(limits.queue_bytes)),
        permits: Arc::new(Semaphore::new(limits.queries)),
    };
    let (received, mut incoming, mut warned) =
        (AtomicBool::default(), Incoming::new(limits.frame_bytes), false);
    let _connected = dispatcher.replies.connect(connection.writer, limits.queue_bytes, 0);
    let batch = |incoming: &mut Incoming| gate.pass(|| dispatcher.take(incoming, &mut warned));
    let end = tokio::select! {
        end = connection::read(connection.reader, &mut incoming, &received, counters, batch) => end,
        end = connection::write(&dispatcher.replies, counters) => end,
        end = connection::keep_alive(&dispatcher.replies, &received, limits) => end,
        () = gate.shut_notice.notified() => End::Replaced,
    };
    end.count(counters);
    match &end {
        End::Malformed(_) | End::Misplaced(_) => {
            warn!(peer = %from, %address, "connection refused: {end}");
        }
        _ => debug!(peer = %from, %address, "connection ended: {end}"),
    }
    if let Some(member) = link {
        shared.inbound.leave(member, &gate);
    }
}

/// The dispatcher of the records of one connection.
struct RecordDispatcher<'a> {
    shared: &'a Arc<NetState>,
    from: MemberId,
    /// The member whose link this is, if it is one. Only links carry frames.
    link: Option<MemberId>,
    replies: Arc<Outbox>,
    permits: Arc<Semaphore>,
}

impl RecordDispatcher<'_> {
    /// Dispatches all records that have arrived. Nothing in here blocks, since a member never stops reading.
    fn take(&self, incoming: &mut Incoming, warned: &mut bool) -> Result<(), End> {
        let mut frames = 0;
        let read = self.take_all(incoming, &mut frames, warned);
        if frames > 0 {
            self.shared.counters.frames_in.add(frames);
            self.shared.handler.batch_done();
        }
        read
    }

    fn take_all(&self, incoming: &mut Incoming, frames: &mut usize, warned: &mut bool) -> Result<(), End> {
        while let Some(record) = incoming.next().map_err(End::Malformed)? {
            match (record, self.link) {
                (Record::Ping, _) => {}
                (Record::Frame(bytes), Some(member)) => {
                    *frames += 1;
                    if let Err(why) = self.shared.handler.frame(member, bytes) {
                        self.shared.counters.refuse(Refusal::Frame);
                        // Log only the first one of a connection. The counter includes all of them.
                        if !std::mem::replace(warned, true) {
                            warn!(peer = %member, "frame refused: {why}");
                        }
                    }
                }
                (Record::Query(number, bytes), _) => self.handle_query(number, bytes),
                (Record::Frame(_), None) => return Err(End::Misplaced("a frame")),
                (Record::Reply(..) | Record::Declined(_), _) => {
                    return Err(End::Misplaced("an answer"));
                }
            }
        }
        Ok(())
    }

    fn handle_query(&self, number: u64, bytes: &[u8]) {
        // Example: a query of 600 KiB takes 1 + 2 = 3 permits.
        let permits = u32::try_from(1 + bytes.len() / BYTES_PER_PERMIT).unwrap_or(u32::MAX);
        let Ok(permit) = self.permits.clone().try_acquire_many_owned(permits) else {
            self.shared.counters.refuse(Refusal::Query);
            // If there is no room for this record either, the sender of the query runs into its timeout.
            let _ = self.replies.append(RecordHeader::Declined(number), 0, |_| ());
            return;
        };
        let reply = self.shared.handler.handle_query(self.from, bytes.to_vec());
        let (replies, longest) = (self.replies.clone(), self.shared.dialler.limits.frame_bytes);
        self.shared.tasks.spawn(async move {
            let reply = reply.await;
            drop(permit);
            match replies.append(RecordHeader::Reply(number), longest, |out| out.extend(reply)) {
                Ok(()) => {}
                Err(NotTaken::Full) => debug!("an answer was dropped: too much is under way"),
                Err(NotTaken::TooLong) => {
                    warn!("an answer was longer than the limit");
                    let _ = replies.append(RecordHeader::Declined(number), 0, |_| ());
                }
            }
        });
    }
}
