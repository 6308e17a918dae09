//! A handler of an HTTP service that changes an order under a lock, and writes with the lock's fence.
//!
//! ```sh
//! cargo run -p lockkeeper --example axum_handler [URL]
//! ```
//!
//! The lock makes the read, the decision and the write one step, also if other machines serve the same orders. The fence
//! covers what the lock cannot: a handler that is paused for longer than its lease, and then writes. Here the store is a
//! map in memory; in SQL it is the condition of [`lockkeeper::fence::sql`].
//!
//! Without arguments the program serves on loopback, sends itself requests, and ends.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use lockkeeper::fence::{Fence, FenceChecker, Stale};
use lockkeeper::{Guard, Lockkeeper};
use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// An order in the store: its state, and the highest fence that has written it.
#[derive(Default)]
struct Order {
    parts: u32,
    fences: FenceChecker,
}

/// The store. It checks the fence and writes in one step.
#[derive(Default)]
struct Store(Mutex<HashMap<String, Order>>);

impl Store {
    fn parts(&self, order: &str) -> u32 {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).get(order).map_or(0, |order| order.parts)
    }

    fn write(&self, order: &str, parts: u32, fence: Fence) -> Result<(), Stale> {
        let mut orders = self.0.lock().unwrap_or_else(|e| e.into_inner());
        let order = orders.entry(order.into()).or_default();
        order.fences.check(fence)?;
        order.parts = parts;
        Ok(())
    }
}

#[derive(Clone)]
struct Service {
    locks: Lockkeeper,
    store: Arc<Store>,
}

/// Adds a part to an order. The answer is the number of parts.
async fn add_part(State(service): State<Service>, Path(order): Path<String>) -> (StatusCode, String) {
    let request = service.locks.mutex(format!("orders/{order}")).metadata("handler", "add_part");
    let guard = match request.acquire_within(Duration::from_secs(5)).await {
        Ok(Some(guard)) => guard,
        Ok(None) => return (StatusCode::SERVICE_UNAVAILABLE, "the order is in use; try again\n".into()),
        Err(error) if error.is_usage() => return (StatusCode::BAD_REQUEST, format!("{error}\n")),
        Err(error) => return (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
    };
    let (status, answer) = change(&service.store, &order, &guard).await;
    // The change is stored. A failure to release only lets the next request wait for the lease.
    let _ = guard.release().await;
    (status, answer)
}

async fn change(store: &Store, order: &str, guard: &Guard) -> (StatusCode, String) {
    let parts = store.parts(order) + 1;
    // A decision that takes a while: without the lock, another request would read the same number.
    tokio::time::sleep(Duration::from_millis(2)).await;
    let Some(fence) = guard.fence() else {
        return (StatusCode::INTERNAL_SERVER_ERROR, "this engine has no fences\n".into());
    };
    match store.write(order, parts, fence) {
        Ok(()) => (StatusCode::OK, format!("{parts}\n")),
        Err(stale) => (StatusCode::CONFLICT, format!("{stale}\n")),
    }
}

/// A request, without a library for HTTP. Returns the status line.
async fn request(server: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(server).await?;
    let text =
        format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(text.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let url = std::env::args().nth(1).unwrap_or_else(|| format!("file://{}", directory.path().display()));
    let service = Service { locks: Lockkeeper::open(url.as_str()).await?, store: Arc::default() };
    let store = service.store.clone();
    let router = Router::new().route("/orders/{order}/parts", post(add_part)).with_state(service.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(async move { axum::serve(listener, router).await });

    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..8 {
        requests.spawn(request(address, "/orders/42/parts"));
    }
    let mut good = 0;
    while let Some(answer) = requests.join_next().await {
        good += u32::from(answer??.contains(" 200 "));
    }
    println!("{good} of 8 requests at once: order 42 has {} parts", store.parts("42"));

    // A handler that was paused after its lease had ended: its write comes after that of the next holder.
    let paused = service.locks.mutex("orders/7").acquire().await?;
    let old = paused.fence().ok_or("this engine has fences")?;
    paused.release().await?;
    println!("order 7: {}", request(address, "/orders/7/parts").await?);
    match store.write("7", 100, old) {
        Err(stale) => println!("the paused handler is rejected: {stale}"),
        Ok(()) => return Err("a stale write was accepted".into()),
    }
    server.abort();
    Ok(())
}
