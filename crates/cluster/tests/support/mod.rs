//! Clusters for tests: members in one process, over real sockets and real disks.

#![allow(dead_code, reason = "each test uses what it needs of it")]

use lockkeeper_cluster::{Config, HoldGuard, JoinToken, Member, MemberId, Times};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;
use tempfile::TempDir;

/// Timeout that is much longer than any correct operation, so that it fails only if something never happens.
pub const LONG: Duration = Duration::from_secs(120);

pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.unwrap_or_else(|_| panic!("{what}: nothing after {LONG:?}"))
}

pub struct Cluster {
    pub configs: Vec<Config>,
    pub members: Vec<Option<Member>>,
    _directory: TempDir,
}

impl Cluster {
    pub async fn start(count: u32) -> Self {
        Self::start_with(count, |_| {}).await
    }

    pub async fn start_with(count: u32, change: impl Fn(&mut Config)) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        // All ports are chosen before one is used, so that they are different.
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let sockets: Vec<TcpListener> =
            (0..count).map(|_| TcpListener::bind(any).expect("a free port")).collect();
        let addresses: Vec<SocketAddr> =
            sockets.iter().map(|socket| socket.local_addr().expect("bound")).collect();
        drop(sockets);
        let all_members = (1..).map(MemberId).zip(addresses.iter().map(ToString::to_string)).collect();
        let join_token = JoinToken::random().expect("random");
        let config = |(number, &listen): (usize, &SocketAddr)| {
            let data = directory.path().join(number.to_string());
            let mut config = Config::new(MemberId(number as u32 + 1), listen, data);
            config.first_members = Clone::clone(&all_members);
            config.join_token = Some(join_token.clone());
            // Processes on a loaded machine may pause for long, and these tests do not measure speed.
            config.times = Times::default().times(4);
            change(&mut config);
            config
        };
        let configs: Vec<Config> = addresses.iter().enumerate().map(config).collect();
        let mut cluster = Self { members: vec![None; configs.len()], configs, _directory: directory };
        for place in 0..cluster.configs.len() {
            cluster.up(place).await;
        }
        for place in 0..cluster.configs.len() {
            soon("ready", cluster.member(place).ready()).await.expect("it serves");
        }
        cluster
    }

    pub async fn up(&mut self, place: usize) {
        let member = Member::start(self.configs[place].clone()).await.expect("it starts");
        self.members[place] = Some(member);
    }

    pub async fn down(&mut self, place: usize) {
        self.members[place].take().expect("it runs").stop().await;
    }

    pub fn member(&self, place: usize) -> &Member {
        self.members[place].as_ref().expect("it runs")
    }

    pub async fn all_in_view(&self) {
        let count = self.members.iter().flatten().count();
        for member in self.members.iter().flatten() {
            let mut changes = member.status_changes();
            let joined = async {
                while member.status().view.is_none_or(|view| view.members.len() != count) {
                    changes.changed().await.expect("it lives");
                }
            };
            soon("all members in the view", joined).await;
        }
    }
}

pub async fn hold(member: &Member, name: &str) -> HoldGuard {
    soon(name, member.mutex(name).acquire()).await.expect("granted")
}
