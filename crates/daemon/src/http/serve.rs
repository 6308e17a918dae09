//! HTTP connections: HTTP/1 and HTTP/2 on one port, each within its limits.

use super::activity::{Activity, CHUNK_BYTES, ConnectionTimeouts, TrackedBody};
use crate::client_service::ClientService;
use crate::connection_limit::{ConnectionLimit, Idle};
use crate::listen::Listener;
use axum::Router;
use governor::DefaultDirectRateLimiter;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower_service::Service;

/// Maximum number of header lines of a request.
const MOST_HEADERS: usize = 64;
/// Maximum size of all header lines of a request together, in bytes.
const HEADER_BYTES: u32 = 16 << 10;
/// Maximum read buffer of an HTTP/1 connection, in bytes.
const BUFFER_BYTES: usize = 32 << 10;
/// Maximum number of concurrent requests of an HTTP/2 connection.
const MOST_STREAMS: u32 = 1000;
/// Interval of HTTP/2 pings, and timeout for their replies.
const PING: Duration = Duration::from_secs(10);
/// Maximum send buffer of an HTTP/2 stream, in bytes.
const UNSENT_BYTES: usize = CHUNK_BYTES;
/// Timeout for requests in progress once the daemon stops.
const GRACE: Duration = Duration::from_secs(2);

/// Properties of the connection of a request.
#[derive(Clone)]
pub(crate) struct Connection {
    /// The rate limiter of the connection.
    pub rate: Arc<DefaultDirectRateLimiter>,
    /// Whether the daemon listens on loopback only.
    pub loopback: bool,
    /// The client's address, if it came over the network.
    pub peer: Option<IpAddr>,
    /// Limits the number of watch streams.
    pub watches: Arc<Semaphore>,
}

impl Idle for Activity {
    fn idle_since(&self) -> Option<Instant> {
        Activity::idle_since(self)
    }

    fn close(&self) {
        Activity::close(self);
    }
}

/// Accepts and serves connections until `stop` resolves. After that, requests in progress have 2 s to finish.
pub async fn serve(
    mut listener: Listener,
    service: Arc<ClientService>,
    limit: Arc<ConnectionLimit>,
    stop: impl Future<Output = ()>,
) {
    let router = super::router(&service);
    let loopback = listener.address().is_some_and(|address| address.ip().is_loopback());
    let (stopping, _) = watch::channel(false);
    // Dropping this future drops the set, which aborts the connections.
    let mut connections = JoinSet::new();
    tokio::pin!(stop);
    loop {
        let (accepted, permit) = tokio::select! {
            accepted = listener.accept(&limit) => accepted,
            Some(_) = connections.join_next() => continue,
            () = &mut stop => break,
        };
        let (service, router, stops) = (service.clone(), router.clone(), stopping.subscribe());
        let activity = Activity::new();
        let idle: Arc<dyn Idle> = activity.clone();
        limit.may_close(Arc::downgrade(&idle));
        connections.spawn(async move {
            let (counted, peer) = (service.metrics.connection(), accepted.peer());
            match accepted.ready(service.context.limits.request_timeout()).await {
                Ok(stream) => {
                    let watches = Arc::new(Semaphore::new(service.context.limits.watches_per_connection));
                    let connection =
                        Connection { rate: Arc::new(service.new_rate()), loopback, peer, watches };
                    let handler = ConnectionHandler { router, connection, activity };
                    serve_connection(TokioIo::new(stream), handler, &service, stops).await
                }
                Err(error) => {
                    service.metrics.refuse("handshake");
                    tracing::debug!(why = error.to_string(), "a connection did not become ready");
                }
            }
            drop((counted, permit));
        });
    }
    drop(listener);
    stopping.send_replace(true);
    let _ = tokio::time::timeout(GRACE, async { while connections.join_next().await.is_some() {} }).await;
}

/// Serves one connection until its end.
async fn serve_connection<I>(
    stream: I,
    handler: ConnectionHandler,
    service: &ClientService,
    mut stops: watch::Receiver<bool>,
) where
    I: Read + Write + Unpin + Send + 'static,
{
    let limits = &service.context.limits;
    let timeouts = ConnectionTimeouts { request: limits.request_timeout(), idle: limits.idle_timeout() };
    let mut builder = Builder::new(TokioExecutor::new());
    let mut http1 = builder.http1();
    http1.timer(TokioTimer::new()).header_read_timeout(timeouts.request);
    http1.max_headers(MOST_HEADERS).max_buf_size(BUFFER_BYTES);
    let mut http2 = builder.http2();
    http2.timer(TokioTimer::new()).max_header_list_size(HEADER_BYTES);
    http2.max_concurrent_streams(MOST_STREAMS).keep_alive_interval(PING).keep_alive_timeout(PING);
    http2.max_send_buf_size(UNSENT_BYTES);
    let activity = handler.activity.clone();
    let serving = builder.serve_connection(stream, TowerToHyperService::new(handler));
    tokio::pin!(serving);
    let reason = tokio::select! {
        done = &mut serving => return end(done),
        reason = activity.ends(timeouts) => Some(reason),
        _ = stops.wait_for(|stops| *stops) => None,
    };
    match reason {
        // Graceful: a client that is about to send a request is notified that it must reconnect.
        None | Some("idle") => {
            serving.as_mut().graceful_shutdown();
            if let Ok(done) = tokio::time::timeout(GRACE, serving).await {
                end(done);
            }
        }
        Some(reason) => {
            service.metrics.refuse(reason);
            tracing::debug!(reason, "a connection was closed");
        }
    }
}

fn end(done: Result<(), Box<dyn std::error::Error + Send + Sync>>) {
    if let Err(error) = done {
        tracing::debug!(error, "a connection ended");
    }
}

/// Passes requests to the router, each with the properties of its connection, and tracks their replies.
#[derive(Clone)]
struct ConnectionHandler {
    router: Router,
    connection: Connection,
    activity: Arc<Activity>,
}

impl Service<Request<Incoming>> for ConnectionHandler {
    type Response = Response<TrackedBody>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(
        &mut self,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Self::Error>> {
        <Router as Service<Request<Incoming>>>::poll_ready(&mut self.router, context)
    }

    fn call(&mut self, mut request: Request<Incoming>) -> Self::Future {
        let guard = self.activity.request();
        request.extensions_mut().insert(self.connection.clone());
        let is_read = request.method() == Method::GET;
        let (mut router, activity) = (self.router.clone(), self.activity.clone());
        Box::pin(async move {
            // Wait before the handler runs, so that no reply is built while the client does not read the earlier
            // ones.
            let read = if is_read { activity.read().await } else { None };
            let response = router.call(request).await?;
            Ok(response.map(|body| TrackedBody::new(body, guard, read)))
        })
    }
}
