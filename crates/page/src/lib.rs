//! The lab's web page: the simulator and the checker of `lockkeeper-lab`, in a browser on the same machine.
//!
//! The server is stateless: each request contains everything that its answer depends on, and equal requests
//! have equal answers. A run is sent as a whole, and the page moves through it in both directions. A run that
//! the user drives by hand is a scenario that grows by a line with each click, and is replayed from its start
//! each time.
//!
//! | module | contents |
//! |---|---|
//! | `files` | the files of the page, compiled into the binary |
//! | `origin` | access control: only pages of this server, on this machine |
//! | `jobs` | jobs: limits on time and concurrency; a closed tab stops its job |
//! | `requests` | the requests of a page, and their limits |
//! | `handlers` | the request handlers |
//! | `lessons` | the lessons on consensus and happened-before |

mod files;
mod handlers;
mod jobs;
mod lessons;
mod origin;
mod requests;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use jobs::Jobs;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::TcpListener;

/// The maximum size of a request, in bytes. A scenario of some thousand lines fits.
const MOST_REQUEST_BYTES: usize = 256 << 10;

/// The server of the page.
#[derive(Debug)]
pub struct Page {
    listener: TcpListener,
    address: SocketAddr,
}

impl Page {
    /// Listens on a port of the loopback interface; 0 selects a free one.
    pub async fn listen(port: u16) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// The URL of the page.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Serves requests for ever.
    pub async fn serve(self) -> std::io::Result<()> {
        axum::serve(self.listener, routes(self.address.port())).await
    }
}

fn routes(port: u16) -> Router {
    Router::new()
        .route("/api/about", get(handlers::about))
        .route("/api/status", get(handlers::status))
        .route("/api/run", post(handlers::run))
        .route("/api/play", post(handlers::play))
        .route("/api/quiz", post(handlers::question))
        .route("/api/quiz/grade", post(handlers::grade))
        .route("/api/flp", post(handlers::flp))
        .route("/api/causality", post(handlers::causality))
        .route("/api/check", post(handlers::check))
        .route("/api/compare", post(handlers::compare))
        .route("/api/gallery/{name}", get(handlers::counterexample))
        .fallback(files::serve)
        .layer(DefaultBodyLimit::max(MOST_REQUEST_BYTES))
        .layer(axum::middleware::from_fn_with_state(origin::OriginCheck { port }, origin::check))
        .with_state(Jobs::default())
}
