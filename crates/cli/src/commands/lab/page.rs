//! `lockkeeper lab`: serves the lab's page.

use crate::exit::CliError;
use crate::print_line;
use clap::Args;
use lockkeeper_page::Page;
use std::io::ErrorKind;
use std::process::{Command, ExitCode, Stdio};

/// Serve the lab's page: watch algorithms run, step through them, drive them by hand, inject faults
///
/// The page is served on loopback to this machine alone, and is self-contained: it needs no network and no other
/// files.
#[derive(Args)]
#[command(after_help = "\
Examples:
  lockkeeper lab
  lockkeeper lab --no-open --port 0      # any free port; prints the address

In a terminal instead: lockkeeper step ricart-agrawala")]
pub struct Lab {
    /// The port on 127.0.0.1; 0 selects any free port.
    #[arg(long, default_value_t = 7480)]
    port: u16,
    /// Only print the address.
    #[arg(long)]
    no_open: bool,
}

impl Lab {
    pub fn run(self) -> ExitCode {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        match runtime.and_then(|runtime| runtime.block_on(self.serve())) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                CliError::io(PageError::PortInUse { port: self.port }).report()
            }
            Err(error) => CliError::io(PageError::Serve(error)).report(),
        }
    }

    async fn serve(&self) -> std::io::Result<()> {
        let page = Page::listen(self.port).await?;
        let url = page.url();
        print_line!("{url}");
        if !self.no_open && !open(&url) {
            eprintln!("no browser could be started: open the address yourself");
        }
        page.serve().await
    }
}

/// The reason why the page cannot be served.
#[derive(Debug, thiserror::Error)]
enum PageError {
    /// Another process listens on the port.
    #[error("port {port} is in use: choose another with --port, or 0 for any")]
    PortInUse {
        /// The port.
        port: u16,
    },
    /// The server cannot be started, or has failed.
    #[error("cannot serve the page: {0}")]
    Serve(#[source] std::io::Error),
}

/// Opens an address in the user's browser.
fn open(url: &str) -> bool {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut browser = Command::new(program);
    browser.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    browser.spawn().is_ok()
}
