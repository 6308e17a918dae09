//! [`Daemon`]: a member and the listeners that serve its clients.

use crate::access::{Access, TokenFileError};
use crate::audit::Audit;
use crate::client_service::ClientService;
use crate::config::{Config, ConfigError};
use crate::connection_limit::{self, ConnectionLimit, TooFewFiles};
use crate::context::DaemonContext;
use crate::listen::{ListenError, Listener};
use crate::maintenance::{Certificates, run_maintenance};
use crate::native::{self, Clients};
use crate::tls::ClientTlsError;
use lockkeeper_cluster::Member;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// A running daemon.
pub struct Daemon {
    context: Arc<DaemonContext>,
    tasks: JoinSet<()>,
    http: Option<Http>,
    addresses: Addresses,
    leave_timeout: Duration,
    _threads: MemberThreads,
}

/// The reason why a daemon does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The token file cannot be used.
    #[error(transparent)]
    Tokens(#[from] TokenFileError),
    /// The audit log cannot be written.
    #[error("cannot write the audit log {path}: {source}")]
    Audit {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The certificates for clients cannot be used.
    #[error(transparent)]
    ClientTls(#[from] ClientTlsError),
    /// The threads of the member cannot be started.
    #[error("cannot start the threads of the member: {0}")]
    MemberThreads(#[source] io::Error),
    /// The thread that builds lists cannot be started.
    #[error("cannot start the thread for lists: {0}")]
    ListThread(#[source] io::Error),
    /// The member does not start.
    #[error(transparent)]
    Member(#[from] lockkeeper_cluster::Error),
    /// The task that starts the member panicked.
    #[error(transparent)]
    Panicked(#[from] tokio::task::JoinError),
    /// The limit of open files is too low.
    #[error(transparent)]
    OpenFiles(#[from] TooFewFiles),
    /// An address or a socket for clients is not available.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// The threads of the member. Lease renewal, timers and the traffic between members have a runtime of their
/// own, so that the work for clients cannot delay them.
struct MemberThreads(tokio::runtime::Handle, Option<tokio::runtime::Runtime>);

impl MemberThreads {
    fn start() -> io::Result<Self> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).thread_name("member").enable_all().build()?;
        let handle = runtime.handle().clone();
        Ok(Self(handle, Some(runtime)))
    }
}

impl Drop for MemberThreads {
    fn drop(&mut self) {
        // Dropping a runtime waits for its blocking tasks and panics in an async context; a background
        // shutdown does not wait.
        if let Some(runtime) = self.1.take() {
            runtime.shutdown_background();
        }
    }
}

/// The reason why a daemon must end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// An operator requested that the daemon leave its cluster.
    LeaveRequested,
    /// The member has stopped, with the reason.
    Stopped(String),
}

/// The addresses on which a daemon listens.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// For other members, if it listens for them.
    pub members: Option<SocketAddr>,
    /// For clients of the native protocol.
    pub clients: Option<SocketAddr>,
    /// For HTTP and gRPC.
    pub http: Option<SocketAddr>,
}

impl Daemon {
    /// Starts the member and the listeners. Clients can connect as soon as this returns; their requests are
    /// granted once the member [serves](Member::ready).
    pub async fn start(config: Config) -> Result<Self, StartError> {
        Self::starting(config).await
    }

    /// Returns a boxed future from a function that is not async. The body of an async function is compiled
    /// again in every crate that awaits it, and this body instantiates the whole daemon.
    fn starting(config: Config) -> Pin<Box<dyn Future<Output = Result<Self, StartError>> + Send>> {
        Box::pin(async move {
            config.check()?;
            let access = match &config.tokens {
                None => Access::open(),
                Some(file) => Access::of_file(file)?,
            };
            let audit = match &config.audit {
                None => Audit::none(),
                Some(file) => Audit::to_file(config.member.id.0, file, config.limits.rotation())
                    .map_err(|source| StartError::Audit { path: file.clone(), source })?,
            };
            let tls = config.client_tls.as_ref().map(Certificates::read).transpose()?;
            let threads = MemberThreads::start().map_err(StartError::MemberThreads)?;
            let member = threads.0.spawn(Member::start(config.member.clone())).await??;
            let context = Arc::new(DaemonContext::new(member, access, audit, config.limits.clone()));
            let service = ClientService::new(context.clone()).map_err(StartError::ListThread)?;
            let clients = Arc::new(Clients::new(service.clone()));
            let both = config.http.is_some() && (config.clients.is_some() || config.socket.is_some());
            let [for_http, for_native] = ConnectionLimit::for_two_protocols(
                connection_limit::usable_connections(config.limits.connections)?,
                both,
            );
            let mut tasks = JoinSet::new();
            let mut addresses = Addresses { members: context.member.address(), clients: None, http: None };
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
                    Some(Http::start(listener, service, for_http))
                }
            };
            tasks.spawn(run_maintenance(context.clone(), clients, tls));
            let leave_timeout = config.leave_timeout;
            Ok(Self { context, tasks, http, addresses, leave_timeout, _threads: threads })
        })
    }

    /// The addresses on which the daemon listens.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// The daemon's member.
    pub fn member(&self) -> &Member {
        &self.context.member
    }

    /// Resolves when an operator has requested the departure of the daemon, or when its member has stopped.
    pub async fn ends(&self) -> Ending {
        let mut standings = self.context.member.status_changes();
        loop {
            if let Some(why) = self.context.member.status().stopped {
                return Ending::Stopped(why);
            }
            tokio::select! {
                () = self.context.leave.notified() => return Ending::LeaveRequested,
                changed = standings.changed() => {
                    if changed.is_err() {
                        return Ending::Stopped(String::from("its member has stopped"));
                    }
                }
            }
        }
    }

    /// Leaves the cluster and ends. The daemon stops granting locks and records the holds of its clients, which other
    /// members adopt. It waits for holds that cannot be recorded, for at most the configured time. Then it leaves, so
    /// that the other members do not have to wait for its lease to expire.
    pub async fn leave(mut self) {
        // Leaving needs a majority. There may be none, for example when all other members have left already.
        let longest = self.leave_timeout + self.context.member.lease() * 4;
        let left = self.context.member.clone().leave(self.leave_timeout);
        if tokio::time::timeout(longest, left).await.is_err() {
            tracing::warn!(
                "stops without having left: there is no majority; the other members wait until its lease expires"
            );
            self.context.member.clone().stop().await;
        }
        if let Some(http) = self.http.take() {
            http.finish().await;
        }
        self.tasks.shutdown().await;
    }

    /// Ends at once, as in a crash: the other members wait until its lease has expired.
    pub async fn stop(mut self) {
        // The member first: nothing that ends below releases a lock any more.
        self.context.member.clone().stop().await;
        drop(self.http.take());
        self.tasks.shutdown().await;
    }
}

/// The HTTP and gRPC server.
struct Http {
    stop: oneshot::Sender<()>,
    serving: JoinSet<()>,
}

impl Http {
    fn start(listener: Listener, service: Arc<ClientService>, limit: Arc<ConnectionLimit>) -> Self {
        let (stop, stopped) = oneshot::channel();
        let mut serving = JoinSet::new();
        serving.spawn(crate::http::serve(listener, service, limit, async { drop(stopped.await) }));
        Self { stop, serving }
    }

    /// Stops accepting connections and waits for the requests in progress.
    async fn finish(mut self) {
        drop(self.stop);
        while self.serving.join_next().await.is_some() {}
    }
}

async fn serve_native(mut listener: Listener, clients: Arc<Clients>, limit: Arc<ConnectionLimit>) {
    let within = clients.context().limits.request_timeout();
    let mut connections = JoinSet::new();
    loop {
        let (accepted, permit) = tokio::select! {
            accepted = listener.accept(&limit) => accepted,
            // Reap the tasks of connections that have ended.
            Some(_) = connections.join_next() => continue,
        };
        let clients = clients.clone();
        connections.spawn(async move {
            let _permit = permit;
            let peer = accepted.peer();
            let served = match accepted.ready(within).await {
                Ok(stream) => native::serve(clients, stream, peer).await,
                Err(error) => Err(error.into()),
            };
            if let Err(error) = served {
                tracing::debug!(why = error.to_string(), "a client's connection ended");
            }
        });
    }
}
