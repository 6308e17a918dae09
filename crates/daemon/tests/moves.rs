//! A client whose connection breaks asks elsewhere for what it waits for, and leaves nothing behind where it asked before.

use lockkeeper::Lockkeeper;
use lockkeeper_cluster::Times;
use lockkeeper_daemon::{Config, Daemon, MemberConfig, MemberId};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Far longer than anything takes, so that only what never happens is a failure.
const LONG: Duration = Duration::from_secs(120);

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.unwrap_or_else(|_| panic!("{what}: nothing after {LONG:?}"))
}

/// A way to the daemon that can be closed, and opened again.
struct Way {
    address: SocketAddr,
    open: Arc<watch::Sender<bool>>,
    passing: Arc<watch::Sender<usize>>,
}

impl Way {
    async fn to(daemon: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (open, passing) = (Arc::new(watch::Sender::new(true)), Arc::new(watch::Sender::new(0)));
        let (opened, passes) = (open.clone(), passing.clone());
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut closed = opened.subscribe();
                if !*closed.borrow() {
                    continue;
                }
                let passes = passes.clone();
                tokio::spawn(async move {
                    let Ok(mut onward) = TcpStream::connect(daemon).await else { return };
                    passes.send_modify(|count| *count += 1);
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut onward) => {}
                        _ = closed.wait_for(|open| !open) => {}
                    }
                    passes.send_modify(|count| *count -= 1);
                });
            }
        });
        Self { address, open, passing }
    }

    async fn has(&self, connections: usize) {
        let mut passing = self.passing.subscribe();
        soon("connections", passing.wait_for(|count| *count == connections)).await.expect("it lives");
    }
}

/// Two daemons of one cluster.
async fn two_daemons(folder: &Path) -> [Daemon; 2] {
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let sockets = [any; 2].map(|any| std::net::TcpListener::bind(any).expect("a free port"));
    let addresses = sockets.each_ref().map(|socket| socket.local_addr().expect("bound"));
    drop(sockets);
    let start = async |id: u32| {
        let listen = addresses[id as usize - 1];
        let mut member = MemberConfig::new(MemberId(id), listen, folder.join(id.to_string()));
        member.first_members = [1, 2].map(|id| (MemberId(id), addresses[id as usize - 1].to_string())).into();
        // A connection is away for a moment only, on a slow machine too.
        member.times = Times::default().times(10);
        let mut config = Config::of(member, any, any);
        config.http = None;
        Daemon::start(config).await.expect("it starts")
    };
    let (one, two) = tokio::join!(start(1), start(2));
    for daemon in [&one, &two] {
        soon("a daemon that serves", daemon.member().ready()).await.expect("it lives");
    }
    [one, two]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_asked_for_elsewhere_is_wanted_no_more_where_it_was_asked_for_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let daemons = two_daemons(folder.path()).await;
    let [one, two] = daemons.each_ref().map(|daemon| daemon.addresses().clients.expect("it serves clients"));
    let other =
        soon("a connection", Lockkeeper::open(&format!("lockkeeper://{two}"))).await.expect("it serves");
    let in_the_way = other.mutex("wanted").acquire().await.expect("it is free");

    // Somebody who holds one lock, so that it comes back to the same daemon, and waits for another.
    let (first, second) = (Way::to(one).await, Way::to(two).await);
    let url = format!("lockkeeper://{},{}?in-order", first.address, second.address);
    let client = soon("a connection", Lockkeeper::open(&url)).await.expect("it serves");
    first.has(1).await;
    let held = client.mutex("held").acquire().await.expect("it is free");
    let waits = tokio::spawn(client.mutex("wanted").acquire());
    let waiting_once = async || {
        let seen = async {
            while other.inspect("wanted").await.expect("an answer").waiters.len() != 1 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        soon("one waiter", seen).await;
    };
    waiting_once().await;
    first.open.send_replace(false);
    // It waits by the second way, and comes back by the first one for what it holds.
    second.has(1).await;
    first.open.send_replace(true);
    first.has(1).await;
    waiting_once().await;
    in_the_way.release().await.expect("it was held");
    let wanted = soon("the wait", waits).await.expect("no panic").expect("it is free");
    wanted.release().await.expect("it was held");
    held.release().await.expect("it was held, or is lost");
    // Nobody was granted what nobody waits for, and a connection that is of no more use ends.
    let again = soon("the lock", other.mutex("wanted").acquire()).await.expect("it is free");
    again.release().await.expect("it was held");
    first.has(0).await;
}
