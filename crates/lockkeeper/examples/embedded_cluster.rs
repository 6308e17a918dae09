//! A lock cluster of three members in one program, without any server. In a real system, each of three processes starts
//! one member.
//!
//! ```sh
//! cargo run -p lockkeeper --features member --example embedded_cluster
//! ```
//!
//! The program crashes one member, and the two others go on.

use lockkeeper::fence::Fenced;
use lockkeeper::member::{Config, JoinToken, Member, MemberId};
use std::collections::BTreeMap;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;

/// The configurations of three members on loopback, with the same secret.
fn configurations(data: &Path) -> Result<Vec<Config>, Box<dyn Error>> {
    // All ports are reserved before one is used, so that they differ.
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let reserved: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind(any)).collect::<Result<_, _>>()?;
    let addresses: Vec<SocketAddr> =
        reserved.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?;
    let members: BTreeMap<MemberId, String> =
        (1..).map(MemberId).zip(addresses.iter().map(ToString::to_string)).collect();
    // In a real system: a file that only the members can read.
    let token = JoinToken::random()?;
    let configuration = |(id, listen): (u32, &SocketAddr)| {
        let mut config = Config::new(MemberId(id), *listen, data.join(id.to_string()));
        config.first_members = members.clone();
        config.join_token = Some(token.clone());
        config
    };
    Ok((1..).zip(&addresses).map(configuration).collect())
}

/// Adds 1 to a number that all members change, under the lock. A write with a fence below an earlier one is rejected.
async fn increment(member: &Member, number: &Fenced<u64>) -> Result<(), Box<dyn Error>> {
    let guard = member.locks().mutex("number").acquire().await?;
    let fence = guard.fence().ok_or("a cluster has fences")?;
    let before = number.read(|number| *number);
    tokio::task::yield_now().await;
    number.write(fence, |number| *number = before + 1)?;
    Ok(guard.release().await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let mut members = Vec::new();
    for config in configurations(directory.path())? {
        members.push(Member::start(config).await?);
    }
    for member in &members {
        member.ready().await?;
    }
    println!("3 members serve");

    let number = Fenced::new(0);
    for _ in 0..10 {
        let all = (
            increment(&members[0], &number),
            increment(&members[1], &number),
            increment(&members[2], &number),
        );
        let (one, two, three) = tokio::join!(all.0, all.1, all.2);
        one?;
        two?;
        three?;
    }
    println!("30 increments by 3 members: {}", number.read(|number| *number));

    // The crash of a member, as far as one process can have it: nothing is handed over.
    drop(members.remove(0));
    for member in &members {
        increment(member, &number).await?;
    }
    println!("2 more after a crash: {}", number.read(|number| *number));
    for member in members {
        member.stop().await;
    }
    Ok(())
}
