//! A synchronous interface to the browser.

use lockkeeper_browser::Browser as Window;
use serde_json::Value;
use std::path::Path;
use tokio::runtime::Runtime;

/// A browser with one window.
pub struct Browser {
    window: Window,
    runtime: Runtime,
}

impl Browser {
    /// Starts a browser, if one is installed.
    pub fn start() -> Option<Self> {
        let runtime = Runtime::new().expect("a runtime");
        let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page");
        let window = runtime.block_on(Window::start(pictures))?;
        Some(Self { window, runtime })
    }

    pub fn go(&self, url: &str) {
        self.runtime.block_on(self.window.go(url));
    }

    pub fn run(&self, script: &str) -> Value {
        self.runtime.block_on(self.window.run(script))
    }

    /// The result of a script as text.
    pub fn text(&self, script: &str) -> String {
        self.run(script).as_str().unwrap_or_default().to_string()
    }

    pub fn wait(&self, what: &str, condition: &str) {
        self.runtime.block_on(self.window.wait(what, condition));
    }

    pub fn errors(&self) -> String {
        self.runtime.block_on(self.window.errors())
    }

    pub fn click(&self, selector: &str) {
        self.runtime.block_on(self.window.click(selector));
    }

    pub fn press(&self, key: char) {
        self.runtime.block_on(self.window.press(key));
    }

    pub fn widen(&self, width: u32) {
        self.runtime.block_on(self.window.widen(width));
    }

    pub fn picture(&self, name: &str) {
        self.runtime.block_on(self.window.picture(name));
    }

    /// After a request that the server has to reject: the console contains only that rejection.
    pub fn check_is_bad_request(&self) {
        let complaints = self.runtime.block_on(self.window.complaints());
        assert!(complaints.iter().all(|line| line.contains("status of 400")), "{complaints:#?}");
    }

    /// The scripts of the page have reported no error, and its content security policy has blocked nothing.
    pub fn check_console(&self, what: &str) {
        let complaints = self.runtime.block_on(self.window.complaints());
        assert!(complaints.is_empty(), "{what}: {complaints:#?}");
    }
}
