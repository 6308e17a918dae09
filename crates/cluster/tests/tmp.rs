use lockkeeper_cluster::{Config, Member};
#[tokio::test]
async fn x() {
    let directory = tempfile::tempdir().expect("a directory");
    let member = Member::start(Config::alone(directory.path())).await.expect("it starts");
    member.ready().await.expect("it serves");
    let m = member.clone();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(std::time::Duration::from_millis(500));
            println!("{:?}", m.standing().lease);
        }
    });
    for i in 0..2000000 {
        let guard = match tokio::time::timeout(
            std::time::Duration::from_secs(3),
            member.mutex("orders/42").acquire(),
        )
        .await
        {
            Ok(g) => g.unwrap(),
            Err(_) => {
                println!("stuck at {i}: {:?}", member.survey().await);
                return;
            }
        };
        if let Err(e) = guard.release().await {
            println!("{i} {e}");
        }
    }
}
