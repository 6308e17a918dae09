//! A leader that hands over in order: it finishes the work in hand, resigns, and the next candidate leads at once.
//!
//! ```sh
//! cargo run -p lockkeeper --example leader_handover [URL]
//! ```

use lockkeeper::{Election, Lockkeeper};
use std::error::Error;
use tokio::sync::oneshot;

/// A candidate that leads until it is stopped, or until its leadership is lost.
async fn candidate(
    election: Election,
    name: &str,
    mut stop: oneshot::Receiver<()>,
) -> lockkeeper::Result<()> {
    let leadership = election.campaign(name).elected().await?;
    println!("{name} leads");
    let mut items = 0;
    loop {
        tokio::select! {
            biased;
            // Another candidate may lead soon: stop at once, without a resignation.
            loss = leadership.lost() => {
                println!("{name} has lost the leadership: {loss}");
                return Ok(());
            }
            // A planned end: the item in hand is finished already.
            _ = &mut stop => break,
            () = work_on_an_item(&mut items) => {}
        }
    }
    println!("{name} has finished its work, and resigns");
    leadership.resign().await
}

/// One item of the leader's work, which is never interrupted by a planned end.
async fn work_on_an_item(items: &mut u32) {
    *items += 1;
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let url = std::env::args().nth(1).unwrap_or_else(|| format!("file://{}", directory.path().display()));
    let locks = Lockkeeper::open(url.as_str()).await?;
    let election = locks.election("scheduler");
    let mut observer = election.observe().await?;

    let (stop_anna, stopped) = oneshot::channel();
    let anna = tokio::spawn(candidate(election.clone(), "anna", stopped));
    while observer.next().await?.is_none_or(|leader| leader.value != "anna") {}
    let (stop_bert, stopped) = oneshot::channel();
    let bert = tokio::spawn(candidate(election.clone(), "bert", stopped));

    let _ = stop_anna.send(());
    anna.await??;
    loop {
        if let Some(leader) = observer.next().await?
            && leader.value == "bert"
        {
            println!("observers see bert");
            break;
        }
    }
    let _ = stop_bert.send(());
    bert.await??;
    Ok(())
}
