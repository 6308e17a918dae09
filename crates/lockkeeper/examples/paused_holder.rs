//! Demonstrates a fence: a holder is paused, another client gets the lock, and the first one's late write is
//! rejected.
//!
//! ```sh
//! cargo run -p lockkeeper --example paused_holder
//! ```
//!
//! On the `file` engine holds never expire, so the pause alone is harmless there. On every engine with a server, the
//! hold can expire during the pause. Here an operator removes the holder's queue entry by hand, to the same effect.

use lockkeeper::Lockkeeper;
use lockkeeper::fence::Fenced;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let locks = Lockkeeper::open(&format!("file://{}", dir.path().display())).await?;
    let account = Fenced::new(100);

    let paused = locks.mutex("account").metadata("who", "A").acquire().await?;
    let fence_of_a = paused.fence().ok_or("this engine has fences")?;
    println!("A enters with fence {fence_of_a} and reads a balance of {}", account.read(|b| *b));
    println!("A is paused: a long collection of garbage, a suspended laptop, a stopped virtual machine");

    // The lease of A ends, and the lock is granted to the next client.
    std::fs::remove_file(dir.path().join("locks/account"))?;

    let next = locks.mutex("account").metadata("who", "B").acquire().await?;
    let fence_of_b = next.fence().ok_or("this engine has fences")?;
    account.write(fence_of_b, |balance| *balance -= 30)?;
    println!("B enters with fence {fence_of_b} and withdraws 30: {} left", account.read(|b| *b));
    next.release().await?;

    println!("A wakes up, still believing that it holds the lock, and withdraws 30 of the 100 that it saw");
    match account.write(fence_of_a, |balance| *balance = 70) {
        Err(stale) => println!("A is rejected: {stale}"),
        Ok(()) => return Err("a stale write was accepted".into()),
    }
    println!("The balance is still {}: B's withdrawal is not lost", account.read(|b| *b));
    Ok(())
}
