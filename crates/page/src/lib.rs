//! The lab's page: the simulator and the checker of `lockkeeper-lab`, in a browser on the same machine.
//!
//! The server keeps nothing: each question comes with all that its answer depends on, and the same question has the same
//! answer. A run is sent as a whole, and the page goes through it back and forth; a run that a person drives by hand is a
//! scenario that grows by a line with each click, and is played from its start each time.
//!
//! | module | what it holds |
//! |---|---|
//! | `files` | the page itself, part of the binary |
//! | `guard` | who may ask: pages of this server, on this machine |
//! | `work` | how long and how much at once; a closed tab stops its work |
//! | `wishes` | what a page may ask for, and its limits |
//! | `answers` | the answers |

mod answers;
mod files;
mod guard;
mod wishes;
mod work;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::TcpListener;
use work::Desk;

/// The longest question, in bytes. A scenario of some thousand lines fits.
const LONGEST_QUESTION: usize = 256 << 10;

/// The page's server, ready to serve.
#[derive(Debug)]
pub struct Page {
    listener: TcpListener,
    address: SocketAddr,
}

impl Page {
    /// Listens on a port of this machine alone; 0 takes any that is free.
    pub async fn listen(port: u16) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// What to type into a browser.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Serves for ever.
    pub async fn serve(self) -> std::io::Result<()> {
        axum::serve(self.listener, routes(self.address.port())).await
    }
}

fn routes(port: u16) -> Router {
    Router::new()
        .route("/api/about", get(answers::about))
        .route("/api/status", get(answers::status))
        .route("/api/run", post(answers::run))
        .route("/api/play", post(answers::play))
        .route("/api/check", post(answers::check))
        .route("/api/compare", post(answers::compare))
        .route("/api/gallery/{name}", get(answers::exhibit))
        .fallback(files::serve)
        .layer(DefaultBodyLimit::max(LONGEST_QUESTION))
        .layer(axum::middleware::from_fn_with_state(guard::Door { port }, guard::check))
        .with_state(Desk::default())
}
