//! Connections that come: who may, and what is done with what they say.

use super::connection::{self, Connection, End};
use super::counters::Refusal;
use super::hello::{self, Hello, Purpose, Reply, Unintelligible, Why};
use super::outbox::{NotTaken, Outbox};
use super::records::{Incoming, Kind, Record};
use super::{Limits, Shared};
use lockkeeper_member::MemberId;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info, warn};

/// The first byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 0x16;
/// A question takes one permit, and one more for every so many bytes: many small ones may be under way, or few large ones.
const BYTES_PER_PERMIT: usize = 256 * 1024;

/// Who is connected to us.
pub(super) struct Inbound {
    connections: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
    links: Mutex<BTreeMap<MemberId, Arc<Gate>>>,
}

impl Inbound {
    pub fn new(limits: &Limits) -> Self {
        Self {
            connections: Arc::new(Semaphore::new(limits.connections)),
            strangers: Arc::new(Semaphore::new(limits.strangers)),
            links: Mutex::new(BTreeMap::new()),
        }
    }

    /// How many more may come before one of those that have not greeted has.
    #[cfg(test)]
    pub fn strangers(&self) -> usize {
        self.strangers.available_permits()
    }

    fn links(&self) -> MutexGuard<'_, BTreeMap<MemberId, Arc<Gate>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest link of a member is the one that counts. Once this returns, nothing comes through the older one any more.
    fn enter(&self, member: MemberId) -> Arc<Gate> {
        let gate = Arc::new(Gate::default());
        let older = self.links().insert(member, gate.clone());
        if let Some(older) = older {
            older.shut();
        }
        gate
    }

    fn leave(&self, member: MemberId, gate: &Arc<Gate>) {
        let mut links = self.links();
        if links.get(&member).is_some_and(|present| Arc::ptr_eq(present, gate)) {
            links.remove(&member);
        }
    }
}

/// Lets frames through until it is shut; shutting waits for the batch that is passing.
#[derive(Debug, Default)]
struct Gate {
    shut: Mutex<bool>,
    told: Notify,
}

impl Gate {
    fn shut(&self) {
        *self.shut.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.told.notify_one();
    }

    fn pass<T>(&self, batch: impl FnOnce() -> Result<T, End>) -> Result<T, End> {
        let shut = self.shut.lock().unwrap_or_else(PoisonError::into_inner);
        if *shut {
            return Err(End::Replaced);
        }
        batch()
    }
}

/// Accepts for ever.
pub(super) async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, mostly: others may free some.
                warn!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let inbound = &shared.inbound;
        let place = inbound.connections.clone().try_acquire_owned();
        let stranger = inbound.strangers.clone().try_acquire_owned();
        let (Ok(place), Ok(stranger)) = (place, stranger) else {
            shared.counters.refuse(Refusal::Busy);
            debug!(%address, "too many connections: refused");
            continue;
        };
        shared.tasks.spawn(serve(shared.clone(), stream, address, place, stranger));
    }
}

async fn serve(
    shared: Arc<Shared>,
    stream: TcpStream,
    address: SocketAddr,
    _place: OwnedSemaphorePermit,
    stranger: OwnedSemaphorePermit,
) {
    let within = shared.caller.limits.hello_within;
    let greeted = timeout(within, greet(&shared, stream, address)).await;
    let greeted = greeted.unwrap_or_else(|_| {
        Err(Refused { refusal: Refusal::Slow, why: format!("no greeting within {within:?}") })
    });
    drop(stranger);
    match greeted {
        Ok((connection, hello)) => converse(&shared, connection, hello, address).await,
        Err(Refused { refusal, why }) => {
            shared.counters.refuse(refusal);
            warn!(%address, reason = refusal.label(), "connection refused: {why}");
        }
    }
}

/// Why a connection is refused before anything is said on it.
struct Refused {
    refusal: Refusal,
    why: String,
}

fn refused(refusal: Refusal, why: impl ToString) -> Refused {
    Refused { refusal, why: why.to_string() }
}

async fn greet(
    shared: &Shared,
    stream: TcpStream,
    address: SocketAddr,
) -> Result<(Connection, Hello), Refused> {
    let broken = |error: std::io::Error| refused(Refusal::Hello, format!("it broke off: {error}"));
    if !shared.caller.may_use(&address) {
        return Err(refused(Refusal::TlsMismatch, "it comes from beyond this machine, and there is no TLS"));
    }
    stream.set_nodelay(true).map_err(broken)?;
    let mut first = [0];
    stream.peek(&mut first).await.map_err(broken)?;
    let mut connection = match (shared.caller.tls(), first[0] == TLS_HANDSHAKE) {
        (None, false) => Connection::plain(stream),
        (Some(tls), true) => {
            let accepted = TlsAcceptor::from(tls.server).accept(stream).await;
            let stream = accepted
                .map_err(|error| refused(Refusal::Handshake, format!("the TLS handshake failed: {error}")))?;
            Connection::tls(stream.into())
        }
        (None, true) => {
            let why = "it speaks TLS, and this member was started without: give this one certificates";
            return Err(refused(Refusal::TlsMismatch, why));
        }
        (Some(_), false) => {
            let why = "it does not speak TLS, and this member requires it: give the other one certificates";
            return Err(refused(Refusal::TlsMismatch, why));
        }
    };
    let hello: Hello = hello::read(&mut connection.reader).await.map_err(|error| match error {
        Unintelligible::Broken(error) => broken(error),
        error => refused(Refusal::Hello, error),
    })?;
    let (reply, verdict) = judge(shared, &hello, &connection);
    // Whoever is refused may have gone already.
    let said = connection.say(&hello::encode(&reply)).await;
    verdict?;
    said.map_err(broken)?;
    Ok((connection, hello))
}

/// What to answer, and what to make of it.
fn judge(shared: &Shared, hello: &Hello, connection: &Connection) -> (Reply, Result<(), Refused>) {
    let me = shared.me;
    let no = |refusal, why: Why, text: String| (Reply::Refused(why), Err(refused(refusal, text)));
    let claimed = hello.from.map_or("a tool".to_owned(), |id| id.to_string());
    if hello.cluster != shared.caller.cluster {
        let text = format!("{claimed} belongs to the cluster {:?}", hello.cluster);
        return no(Refusal::Hello, Why::Cluster(shared.caller.cluster.clone()), text);
    }
    if hello.to.is_some_and(|to| to != me) {
        return no(Refusal::Hello, Why::Member(me), format!("{claimed} looks for another member here"));
    }
    let Some(version) = hello::common_version(hello.oldest, hello.newest) else {
        let (oldest, newest) = (*hello::VERSIONS.start(), *hello::VERSIONS.end());
        let text = format!("{claimed} speaks versions {} to {} only", hello.oldest, hello.newest);
        return no(Refusal::Hello, Why::Version { oldest, newest }, text);
    };
    if hello.from.is_some_and(|from| !connection.can_be(from)) {
        let text = format!("it says that it is {claimed}, and its certificate does not");
        return no(Refusal::Identity, Why::Certificate, text);
    }
    let sender_ok = match hello.purpose {
        Purpose::Link => hello.from.is_some_and(|from| from != me),
        Purpose::Questions => true,
    };
    if !sender_ok {
        let text = format!("{claimed} wants a link, and is not another member");
        return no(Refusal::Hello, Why::Sender, text);
    }
    (Reply::Welcome { version, member: me }, Ok(()))
}

/// Everything that is said on a connection that was let in.
async fn converse(shared: &Arc<Shared>, connection: Connection, hello: Hello, address: SocketAddr) {
    let (limits, counters) = (&shared.caller.limits, &shared.counters);
    let link = hello.from.filter(|_| hello.purpose == Purpose::Link);
    let gate = link.map_or_else(Arc::default, |member| shared.inbound.enter(member));
    if let Some(member) = link {
        info!(peer = %member, %address, "it has connected");
        shared.heard(member);
    }
    let said = Said {
        shared,
        from: hello.from,
        link,
        answers: Arc::new(Outbox::new(limits.queue_bytes)),
        permits: Arc::new(Semaphore::new(limits.questions)),
    };
    let (heard, mut incoming, mut complained) =
        (AtomicBool::default(), Incoming::new(limits.frame_bytes), false);
    let _connected = said.answers.connect(connection.writer, limits.queue_bytes, 0);
    let batch = |incoming: &mut Incoming| gate.pass(|| said.take(incoming, &mut complained));
    let end = tokio::select! {
        end = connection::read(connection.reader, &mut incoming, &heard, counters, batch) => end,
        end = connection::write(&said.answers, counters) => end,
        end = connection::keep_alive(&said.answers, &heard, limits) => end,
        () = gate.told.notified() => End::Replaced,
    };
    end.count(counters);
    match &end {
        End::Malformed(_) | End::Misplaced(_) => {
            warn!(peer = ?hello.from, %address, "connection refused: {end}");
        }
        _ => debug!(peer = ?hello.from, %address, "connection ended: {end}"),
    }
    if let Some(member) = link {
        shared.inbound.leave(member, &gate);
    }
}

/// What comes over one connection.
struct Said<'a> {
    shared: &'a Arc<Shared>,
    from: Option<MemberId>,
    /// Whose link it is, if it is one: frames come over links only.
    link: Option<MemberId>,
    answers: Arc<Outbox>,
    permits: Arc<Semaphore>,
}

impl Said<'_> {
    /// Hands over every record that has come. Nothing in here waits: a member never stops reading from the others.
    fn take(&self, incoming: &mut Incoming, complained: &mut bool) -> Result<(), End> {
        let mut frames = 0;
        let read = self.take_all(incoming, &mut frames, complained);
        if frames > 0 {
            self.shared.counters.frames_in.add(frames);
            self.shared.handler.batch_done();
        }
        read
    }

    fn take_all(
        &self,
        incoming: &mut Incoming,
        frames: &mut usize,
        complained: &mut bool,
    ) -> Result<(), End> {
        while let Some(record) = incoming.next().map_err(End::Malformed)? {
            match (record, self.link) {
                (Record::Ping, _) => {}
                (Record::Frame(bytes), Some(member)) => {
                    *frames += 1;
                    if let Err(why) = self.shared.handler.frame(member, bytes) {
                        self.shared.counters.refuse(Refusal::Frame);
                        // Once for a connection is enough for people; the counter has them all.
                        if !std::mem::replace(complained, true) {
                            warn!(peer = %member, "frame refused: {why}");
                        }
                    }
                }
                (Record::Question(number, bytes), _) => self.question(number, bytes),
                (Record::Frame(_), None) => return Err(End::Misplaced("a frame")),
                (Record::Answer(..) | Record::Declined(_), _) => {
                    return Err(End::Misplaced("an answer"));
                }
            }
        }
        Ok(())
    }

    fn question(&self, number: u64, bytes: &[u8]) {
        let permits = u32::try_from(1 + bytes.len() / BYTES_PER_PERMIT).unwrap_or(u32::MAX);
        let Ok(permit) = self.permits.clone().try_acquire_many_owned(permits) else {
            self.shared.counters.refuse(Refusal::Question);
            // Where there is no room for this, whoever asks waits in vain for a while.
            let _ = self.answers.append(Kind::Declined(number), 0, |_| ());
            return;
        };
        let answer = self.shared.handler.question(self.from, bytes.to_vec());
        let (answers, longest) = (self.answers.clone(), self.shared.caller.limits.frame_bytes);
        self.shared.tasks.spawn(async move {
            let answer = answer.await;
            drop(permit);
            match answers.append(Kind::Answer(number), longest, |out| out.extend(answer)) {
                Ok(()) => {}
                Err(NotTaken::Full) => debug!("an answer was dropped: too much is under way"),
                Err(NotTaken::TooLong) => {
                    warn!("an answer was longer than the limit");
                    let _ = answers.append(Kind::Declined(number), 0, |_| ());
                }
            }
        });
    }
}
