//! Tests of the page with a real server and a real browser.

mod browser;
mod gallery;
mod lessons;
mod limits;
mod recordings;
mod visits;

use lockkeeper_page::Page;

/// Serves the page from a thread of its own while the tests run; returns its port.
fn serve() -> u16 {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let page = Page::listen(0).await.expect("a free port");
            sender.send(page.url()).expect("the test waits for it");
            page.serve().await
        })
    });
    let url = receiver.recv().expect("it listens");
    url.trim_end_matches('/').rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port")
}
