//! [`Daemon`]: a member, and everything that serves its clients.

use crate::access::Access;
use crate::audit::Audit;
use crate::config::Config;
use crate::front::Front;
use crate::listen::Listener;
use crate::native::{self, Clients};
use crate::room::{self, Room};
use crate::shared::Shared;
use crate::upkeep::{Certificates, look_around};
use lockkeeper_cluster::Member;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// A daemon at work.
pub struct Daemon {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
    http: Option<Http>,
    addresses: Addresses,
    leave_patience: Duration,
    _threads: MemberThreads,
}

/// The threads of the member: what renews leases, counts time and talks to other members has them for itself, so that nothing that
/// clients ask for delays it.
struct MemberThreads(tokio::runtime::Handle, Option<tokio::runtime::Runtime>);

impl MemberThreads {
    fn start() -> Result<Self, String> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).thread_name("member").enable_all().build();
        let runtime = runtime.map_err(|error| format!("cannot start the threads of the member: {error}"))?;
        let handle = runtime.handle().clone();
        Ok(Self(handle, Some(runtime)))
    }
}

impl Drop for MemberThreads {
    fn drop(&mut self) {
        // A runtime must not be dropped where it could block.
        if let Some(runtime) = self.1.take() {
            runtime.shutdown_background();
        }
    }
}

/// Why a daemon is to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// An operator wants it to leave.
    ToldToLeave,
    /// Its member cannot go on, and why.
    Stopped(String),
}

/// Where a daemon is reached.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// By members, if it listens for them.
    pub members: Option<SocketAddr>,
    /// By clients of the native protocol.
    pub clients: Option<SocketAddr>,
    /// By HTTP and gRPC.
    pub http: Option<SocketAddr>,
}

impl Daemon {
    /// Starts everything. Clients can connect as soon as this returns; they are let in when the member [serves](Member::ready).
    pub async fn start(config: Config) -> Result<Self, String> {
        Self::starting(config).await
    }

    /// Boxed by a function that is not async: what an async function does is compiled in every crate that awaits it, and this is
    /// the whole daemon.
    fn starting(config: Config) -> Pin<Box<dyn Future<Output = Result<Self, String>> + Send>> {
        Box::pin(async move {
            config.check()?;
            let access = match &config.tokens {
                None => Access::open(),
                Some(file) => Access::of_file(file)?,
            };
            let audit = match &config.audit {
                None => Audit::none(),
                Some(file) => Audit::to_file(config.member.id.0, file, config.limits.rotation())?,
            };
            let tls = config.client_tls.as_ref().map(Certificates::read).transpose()?;
            let threads = MemberThreads::start()?;
            let starting = threads.0.spawn(Member::start(config.member.clone())).await;
            let member = starting.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
            let shared = Arc::new(Shared::new(member, access, audit, config.limits.clone()));
            let front = Front::new(shared.clone())?;
            let clients = Arc::new(Clients::new(front.clone()));
            let both = config.http.is_some() && (config.clients.is_some() || config.socket.is_some());
            let [for_http, for_native] = Room::two(room::connections(config.limits.connections)?, both);
            let mut tasks = JoinSet::new();
            let mut addresses = Addresses { members: shared.member.address(), clients: None, http: None };
            if let Some(address) = config.clients {
                let listener = Listener::tcp(address, tls.as_ref().map(|tls| tls.native.clone())).await?;
                addresses.clients = listener.address();
                tasks.spawn(serve_native(listener, clients.clone(), for_native.clone()));
            }
            if let Some(path) = &config.socket {
                tasks.spawn(serve_native(Listener::unix(path)?, clients.clone(), for_native));
            }
            let http = match config.http {
                None => None,
                Some(address) => {
                    let listener = Listener::tcp(address, tls.as_ref().map(|tls| tls.http.clone())).await?;
                    addresses.http = listener.address();
                    Some(Http::start(listener, front, for_http))
                }
            };
            tasks.spawn(look_around(shared.clone(), clients, tls));
            let leave_patience = config.leave_patience;
            Ok(Self { shared, tasks, http, addresses, leave_patience, _threads: threads })
        })
    }

    /// Where it is reached.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Its member.
    pub fn member(&self) -> &Member {
        &self.shared.member
    }

    /// Resolves when an operator has told the daemon to leave, or when its member has stopped.
    pub async fn ends(&self) -> Ending {
        let mut standings = self.shared.member.standings();
        loop {
            if let Some(why) = self.shared.member.standing().stopped {
                return Ending::Stopped(why);
            }
            tokio::select! {
                () = self.shared.leave.notified() => return Ending::ToldToLeave,
                changed = standings.changed() => {
                    if changed.is_err() {
                        return Ending::Stopped(String::from("its member is gone"));
                    }
                }
            }
        }
    }

    /// Ends in order: lets nobody in any more, waits for those who hold locks, for as long as it was told, and leaves the
    /// cluster, so that nobody waits for it.
    pub async fn leave(mut self) {
        // Without a majority nobody can leave in order: all the others may have left before.
        let longest = self.leave_patience + self.shared.member.lease() * 4;
        let left = self.shared.member.clone().leave(self.leave_patience);
        if tokio::time::timeout(longest, left).await.is_err() {
            tracing::warn!("ends without having left: there is no majority, and others wait for its lease");
            self.shared.member.clone().stop().await;
        }
        if let Some(http) = self.http.take() {
            http.finish().await;
        }
        self.tasks.shutdown().await;
    }

    /// Ends at once, as a crash does.
    pub async fn stop(mut self) {
        drop(self.http.take());
        self.tasks.shutdown().await;
        self.shared.member.clone().stop().await;
    }
}

/// HTTP and gRPC, while they are served.
struct Http {
    stop: oneshot::Sender<()>,
    serving: JoinSet<()>,
}

impl Http {
    fn start(listener: Listener, front: Arc<Front>, room: Arc<Room>) -> Self {
        let (stop, stopped) = oneshot::channel();
        let mut serving = JoinSet::new();
        serving.spawn(crate::http::serve(listener, front, room, async { drop(stopped.await) }));
        Self { stop, serving }
    }

    /// Lets those finish who are being answered.
    async fn finish(mut self) {
        drop(self.stop);
        while self.serving.join_next().await.is_some() {}
    }
}

async fn serve_native(mut listener: Listener, clients: Arc<Clients>, room: Arc<Room>) {
    let within = clients.shared().limits.patience();
    let mut connections = JoinSet::new();
    loop {
        let (arrived, place) = tokio::select! {
            arrived = listener.accept(&room) => arrived,
            // Ended ones are not kept.
            Some(_) = connections.join_next() => continue,
        };
        let clients = clients.clone();
        connections.spawn(async move {
            let _place = place;
            let peer = arrived.peer();
            let served = match arrived.ready(within).await {
                Ok(stream) => native::serve(clients, stream, peer).await,
                Err(why) => Err(why),
            };
            if let Err(why) = served {
                tracing::debug!(why, "a client's connection ended");
            }
        });
    }
}
