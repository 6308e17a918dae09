//! Serves the page alone: quicker to build than the whole command.

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok()).unwrap_or(0);
    let page = lockkeeper_page::Page::listen(port).await?;
    println!("{}", page.url());
    page.serve().await
}
