//! Connections: HTTP/1 and HTTP/2 on one port, each within its limits.

use crate::front::Front;
use crate::listen::Listener;
use axum::Router;
use governor::DefaultDirectRateLimiter;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tower_service::Service;

/// Header lines of one request.
const MOST_HEADERS: usize = 64;
/// All header lines of one request together, in bytes.
const HEADER_BYTES: u32 = 16 << 10;
/// What one HTTP/1 connection may have read and not used, in bytes.
const BUFFER_BYTES: usize = 32 << 10;
/// Requests of one HTTP/2 connection that are answered at a time.
const MOST_STREAMS: u32 = 1000;
/// An HTTP/2 client that says nothing for so long is asked whether it is there, and has as long to answer.
const PING: Duration = Duration::from_secs(10);
/// What may wait to be sent on one HTTP/2 stream, in bytes.
const UNSENT_BYTES: usize = 64 << 10;
/// How long requests that are being answered may take once the daemon stops.
const GRACE: Duration = Duration::from_secs(2);

/// What is known of the connection of a request.
#[derive(Clone)]
pub(crate) struct Connection {
    /// How often it may ask.
    pub rate: Arc<DefaultDirectRateLimiter>,
    /// Whether only this machine can connect.
    pub loopback: bool,
    /// The client's address, if it came over the network.
    pub peer: Option<IpAddr>,
    /// Room for watch streams.
    pub watches: Arc<Semaphore>,
}

/// Serves everybody who comes, until `stop` resolves; then those who are being answered are let finish, for a moment.
pub async fn serve(
    mut listener: Listener,
    front: Arc<Front>,
    room: Arc<Semaphore>,
    stop: impl Future<Output = ()>,
) {
    let router = super::router(&front);
    let loopback = listener.address().is_some_and(|address| address.ip().is_loopback());
    let stopping = GracefulShutdown::new();
    // They end with this future, too.
    let mut connections = JoinSet::new();
    tokio::pin!(stop);
    loop {
        let (arrived, place) = tokio::select! {
            arrived = listener.accept(&room) => arrived,
            Some(_) = connections.join_next() => continue,
            () = &mut stop => break,
        };
        let (front, router, watcher) = (front.clone(), router.clone(), stopping.watcher());
        connections.spawn(async move {
            let (counted, peer) = (front.metrics.connection(), arrived.peer());
            match arrived.ready(front.shared.limits.patience()).await {
                Ok(stream) => {
                    let watches = Arc::new(Semaphore::new(front.shared.limits.watches_per_connection));
                    let connection = Connection { rate: Arc::new(front.new_rate()), loopback, peer, watches };
                    converse(TokioIo::new(stream), router, connection, &front, watcher).await
                }
                Err(why) => {
                    front.metrics.refuse("handshake");
                    tracing::debug!(why, "a connection did not become ready");
                }
            }
            drop((counted, place));
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(GRACE, stopping.shutdown()).await;
}

/// One connection, until its end.
async fn converse<I>(stream: I, router: Router, connection: Connection, front: &Front, watcher: Watcher)
where
    I: Read + Write + Unpin + Send + 'static,
{
    let patience = front.shared.limits.patience();
    let mut builder = Builder::new(TokioExecutor::new());
    let mut http1 = builder.http1();
    http1.timer(TokioTimer::new()).header_read_timeout(patience);
    http1.max_headers(MOST_HEADERS).max_buf_size(BUFFER_BYTES);
    let mut http2 = builder.http2();
    http2.timer(TokioTimer::new()).max_header_list_size(HEADER_BYTES);
    http2.max_concurrent_streams(MOST_STREAMS).keep_alive_interval(PING).keep_alive_timeout(PING);
    http2.max_send_buf_size(UNSENT_BYTES);
    let greeted = Arc::new((AtomicBool::new(false), Notify::new()));
    let service = Greeting { router, connection, greeted: greeted.clone() };
    let talk = builder.serve_connection(stream, TowerToHyperService::new(service));
    let talk = watcher.watch(talk);
    tokio::pin!(talk);
    // Which HTTP is spoken is found out from the first bytes, for which nobody else sets a limit.
    tokio::select! {
        done = &mut talk => return end(done),
        () = greeted.1.notified() => {}
        () = tokio::time::sleep(patience) => {
            if !greeted.0.load(Ordering::Relaxed) {
                return front.metrics.refuse("slow");
            }
        }
    }
    end(talk.await);
}

fn end(done: Result<(), Box<dyn std::error::Error + Send + Sync>>) {
    if let Err(error) = done {
        tracing::debug!(error, "a connection ended");
    }
}

/// Hands requests on, each with what is known of its connection.
#[derive(Clone)]
struct Greeting {
    router: Router,
    connection: Connection,
    greeted: Arc<(AtomicBool, Notify)>,
}

impl Service<Request<Incoming>> for Greeting {
    type Response = Response<axum::body::Body>;
    type Error = std::convert::Infallible;
    type Future = <Router as Service<Request<Incoming>>>::Future;

    fn poll_ready(
        &mut self,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Self::Error>> {
        <Router as Service<Request<Incoming>>>::poll_ready(&mut self.router, context)
    }

    fn call(&mut self, mut request: Request<Incoming>) -> Self::Future {
        if !self.greeted.0.swap(true, Ordering::Relaxed) {
            self.greeted.1.notify_one();
        }
        request.extensions_mut().insert(self.connection.clone());
        self.router.call(request)
    }
}
