//! The client of a cluster: one link at a time for what is new, and older ones for as long as something is held through them.

use super::address::Daemons;
use super::link::{Asked, Link, NoMore, Outcome, Wishing};
use super::stream::{Connected, NotConnected, Who, connect};
use lockkeeper_member::SessionId;
use lockkeeper_wire::{Answer, Ask, FromDaemon, Refusal, Welcome};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

/// How long a daemon may take to answer a connection.
const CONNECT: Duration = Duration::from_secs(2);
/// For how long daemons are tried before those who wait are told that there is none: at least so long, and so many leases. After the
/// crash of a member nobody is let in until its lease is over and the others have agreed on a view without it.
const PATIENCE: Duration = Duration::from_secs(6);
const PATIENCE_IN_LEASES: u32 = 5;
/// Between two rounds of trying all daemons.
const PAUSE: Duration = Duration::from_millis(50);

/// The client of a cluster.
pub(super) struct Client {
    daemons: Daemons,
    /// The same over all connections.
    who: Who,
    current: Mutex<Current>,
    /// How long a lease is, in nanoseconds, as the last daemon said.
    lease_ns: AtomicU64,
    /// Counts what the daemon tells of changes, and the moments in which some may have been missed.
    pub changes: watch::Sender<u64>,
}

struct Current {
    link: Arc<Link>,
    sessions: u64,
    /// With whom to try first.
    address: usize,
    watches: bool,
}

impl Client {
    /// A client, connected.
    pub async fn open(daemons: Daemons, for_locks: bool) -> Result<Arc<Client>, String> {
        let number = random()?;
        // Clients spread over the daemons, unless told otherwise.
        let spread = (number % daemons.addresses.len() as u64) as usize;
        let address = if daemons.in_order { 0 } else { spread };
        let link = Link::new(SessionId { client: number, number: 1 }, daemons.keep);
        let current = Current { link: link.clone(), sessions: 1, address, watches: false };
        let (current, changes) = (Mutex::new(current), watch::Sender::new(0));
        let (who, lease_ns) = (Who { client: number, for_locks }, AtomicU64::new(0));
        let client = Arc::new(Client { daemons, who, current, lease_ns, changes });
        match client.reach(address).await {
            Ok((connected, address)) => {
                client.lock().address = address;
                link.connected(connected.welcome.clone());
                tokio::spawn(run(Arc::downgrade(&client), link, Some((connected, address))));
                Ok(client)
            }
            Err(why) => Err(why),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Connects to one of the daemons, this one first.
    async fn reach(&self, first: usize) -> Result<(Connected, usize), String> {
        let (count, began) = (self.daemons.addresses.len(), Instant::now());
        loop {
            let mut whys = Vec::new();
            for n in 0..count {
                let index = (first + n) % count;
                let address = &self.daemons.addresses[index];
                match connect(&self.daemons, address, self.who, CONNECT).await {
                    Ok(connected) => {
                        self.lease_ns.store(connected.welcome.lease_ns, Ordering::Relaxed);
                        return Ok((connected, index));
                    }
                    Err(NotConnected::Refused(why)) => return Err(why),
                    Err(NotConnected::Unreachable(why)) => whys.push(why),
                }
            }
            let lease = Duration::from_nanos(self.lease_ns.load(Ordering::Relaxed));
            if began.elapsed() > PATIENCE.max(lease.saturating_mul(PATIENCE_IN_LEASES)) {
                return Err(format!("no daemon can be reached: {}", whys.join("; ")));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Asks for a lock, through whichever link is the present one.
    pub fn ask(self: &Arc<Client>, mut wishing: Wishing) {
        loop {
            match self.link().ask(wishing) {
                None => return,
                Some(again) => wishing = again,
            }
        }
    }

    /// The present link; a new one if that takes no more wishes.
    pub fn link(self: &Arc<Client>) -> Arc<Link> {
        let mut current = self.lock();
        if current.link.is_retired() {
            self.renew(&mut current);
        }
        current.link.clone()
    }

    fn renew(self: &Arc<Client>, current: &mut Current) {
        current.sessions += 1;
        let id = SessionId { client: self.who.client, number: current.sessions };
        current.link = Link::new(id, self.daemons.keep);
        if current.watches {
            current.link.question(Asked { ask: Ask::Watch, told: oneshot::channel().0 });
        }
        tokio::spawn(run(Arc::downgrade(self), current.link.clone(), None));
    }

    /// A link is of no more use for new wishes: those who wait there are asked for elsewhere, in order, with whom to try first.
    fn move_on(self: &Arc<Client>, from: &Arc<Link>, first: usize) {
        let mut current = self.lock();
        let (wishing, asked) = (from.retire(), from.take_asked());
        if Arc::ptr_eq(&current.link, from) {
            current.address = first % self.daemons.addresses.len();
            self.renew(&mut current);
        }
        drop(current);
        self.changes.send_modify(|changes| *changes += 1);
        for wishing in wishing {
            self.ask(wishing);
        }
        for asked in asked {
            self.put(asked);
        }
    }

    /// Asks a daemon something, through whichever link is the present one.
    fn put(self: &Arc<Client>, mut asked: Asked) {
        while let Some(again) = self.link().question(asked) {
            asked = again;
        }
    }

    /// Asks a daemon; again, if it goes away meanwhile.
    pub async fn question(self: &Arc<Client>, ask: Ask) -> Result<Answer, String> {
        let (told, hears) = oneshot::channel();
        self.put(Asked { ask, told });
        hears.await.map_err(|_| String::from("no daemon can be reached"))
    }

    /// From now on, changes are told.
    pub async fn watch(self: &Arc<Client>) -> Result<watch::Receiver<u64>, String> {
        let receiver = self.changes.subscribe();
        let began = std::mem::replace(&mut self.lock().watches, true);
        if !began {
            self.question(Ask::Watch).await?;
        }
        Ok(receiver)
    }

    /// How long a hold lasts without a keep-alive, as the last daemon announced.
    pub fn lease(&self) -> Duration {
        Duration::from_nanos(self.lease_ns.load(Ordering::Relaxed))
    }

    /// What the present daemon said of itself, if there is one now.
    pub fn welcome(&self) -> Option<Welcome> {
        self.lock().link.welcome()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.lock().link.close();
    }
}

fn random() -> Result<u64, String> {
    getrandom::u64().map_err(|error| format!("the system gives no random numbers: {error}"))
}

/// Carries a link until it is over.
async fn run(client: Weak<Client>, link: Arc<Link>, mut connected: Option<(Connected, usize)>) {
    loop {
        let (stands, address) = match connected.take() {
            Some(connected) => connected,
            None => {
                let Some(client) = client.upgrade() else { return link.end("nobody uses it any more") };
                let first = client.lock().address;
                match client.reach(first).await {
                    Ok(connected) => connected,
                    Err(why) => return give_up(&link, &why),
                }
            }
        };
        if let Some(client) = client.upgrade() {
            client.lock().address = address;
        }
        link.connected(stands.welcome.clone());
        let why = talk(&client, &link, stands, address).await;
        link.disconnected();
        let Some(client) = client.upgrade() else { return link.end("nobody uses it any more") };
        match why {
            Broken::Over(why) => {
                client.move_on(&link, address);
                return link.end(&why);
            }
            Broken::Refused(why) => {
                link.end("the daemon does not serve the session");
                for wishing in link.retire() {
                    let _ = wishing.told.send(Outcome::Refused(why.clone()));
                }
                return;
            }
            Broken::Connection(why) => match again(&client, &link, address, &why).await {
                Some(stands) => connected = Some((stands, address)),
                None => return,
            },
        }
    }
}

/// Nobody can be reached: those who wait are told.
fn give_up(link: &Link, why: &str) {
    link.end(why);
    for wishing in link.retire() {
        let _ = wishing.told.send(Outcome::Unreachable(why.into()));
    }
    link.take_asked();
}

/// A connection broke. The same daemon knows the session: it is tried first. If it does not answer at once, those who wait go
/// elsewhere, and it is tried on for as long as something is held there.
async fn again(client: &Arc<Client>, link: &Arc<Link>, address: usize, why: &str) -> Option<Connected> {
    let mut moved = false;
    loop {
        let daemon = &client.daemons.addresses[address];
        match connect(&client.daemons, daemon, client.who, CONNECT).await {
            Ok(connected) => return Some(connected),
            Err(_) if !moved => {
                client.move_on(link, address + 1);
                moved = true;
            }
            Err(_) => {}
        }
        if !link.is_used() || !link.keep_alive() {
            link.end(&format!("the connection to {daemon} broke: {why}"));
            return None;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

enum Broken {
    /// The link is over.
    Over(String),
    /// The link is over, and another one would come to no other end: those who wait are told.
    Refused(Refusal),
    /// Only the connection is.
    Connection(String),
}

/// Carries words in both directions until the connection breaks or the link is over.
async fn talk(client: &Weak<Client>, link: &Arc<Link>, connected: Connected, address: usize) -> Broken {
    let Connected { mut stream, mut frames, welcome } = connected;
    let mut keep_alive =
        tokio::time::interval(Duration::from_nanos(welcome.lease_ns / 5).max(Duration::from_millis(5)));
    keep_alive.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut bytes = Vec::new();
    loop {
        let keeps_for = link.look_after_kept();
        link.take_unsent(&mut bytes);
        if !bytes.is_empty() {
            let written = async {
                stream.write_all(&bytes).await?;
                stream.flush().await
            };
            if let Err(error) = written.await {
                return Broken::Connection(error.to_string());
            }
        }
        if link.is_over() {
            return Broken::Over(String::from("it was closed"));
        }
        if link.is_retired() && !link.is_used() {
            link.close();
            continue;
        }
        tokio::select! {
            () = link.wake.notified() => {}
            () = tokio::time::sleep(keeps_for.unwrap_or_default()), if keeps_for.is_some() => {}
            _ = keep_alive.tick() => {
                if !link.keep_alive() {
                    return Broken::Over(String::from("its lease ran out unrenewed"));
                }
            }
            read = stream.read_buf(&mut frames.arrived) => {
                match read {
                    Ok(0) => return Broken::Connection(String::from("the daemon closed it")),
                    Ok(_) => {}
                    Err(error) => return Broken::Connection(error.to_string()),
                }
                loop {
                    let said = match frames.take() {
                        Ok(Some(said)) => said,
                        Ok(None) => break,
                        Err(error) => return Broken::Connection(error.to_string()),
                    };
                    if let FromDaemon::Changed = said
                        && let Some(client) = client.upgrade()
                    {
                        client.changes.send_modify(|changes| *changes += 1);
                    }
                    match link.hear(said) {
                        Ok(()) => {}
                        Err(NoMore::Lost(why)) => return Broken::Over(why),
                        Err(NoMore::Refused(why)) => return Broken::Refused(why),
                        Err(NoMore::Leaving) => {
                            if let Some(client) = client.upgrade() {
                                client.move_on(link, address + 1);
                            }
                        }
                    }
                }
            }
        }
    }
}
