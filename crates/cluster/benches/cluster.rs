//! What an entry costs: `cargo bench -p lockkeeper-cluster`.
use lockkeeper_cluster::{Config, Member};
use std::time::Instant;
fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let directory = tempfile::tempdir().expect("a directory");
        let member = Member::start(Config::alone(directory.path())).await.expect("it starts");
        member.ready().await.expect("it serves");
        for _ in 0..5 {
            let began = Instant::now();
            let n = 200_000;
            for _ in 0..n {
                let guard = member.mutex("orders/42").acquire().await.expect("free");
                guard.release().await.expect("held");
            }
            println!("{:.0} acquire+release per second", f64::from(n) / began.elapsed().as_secs_f64());
            tokio::task::yield_now().await;
        }
    });
}
