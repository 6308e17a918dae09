//! A headless Chromium for tests of pages, with one window of 1280×720, the resolution of a small projector.
//!
//! All operations wait for a condition, with a timeout so long that only a condition that never holds fails. They panic
//! on failure, as tests do.

use fantoccini::actions::{InputSource, KeyAction, KeyActions};
use fantoccini::elements::Element;
use fantoccini::wd::WebDriverCompatibleCommand;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use rustix::process::{Pid, Signal, getuid, kill_process_group};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

/// The timeout of every operation. No measurement depends on it.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The size of the page, without the bars of the window.
const VIEW: (u64, u64) = (1280, 720);
/// Flags that disable all that is not the page, and that allow the browser to run in containers with little shared
/// memory.
const FLAGS: [&str; 9] = [
    "--headless",
    "--hide-scrollbars",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
];

/// A browser with one window, and its driver. Dropping it ends both.
pub struct Browser {
    page: Client,
    pictures: PathBuf,
    driver: Child,
    _profile: TempDir,
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(TIMEOUT, future).await.unwrap_or_else(|_| panic!("timed out after {TIMEOUT:?}: {what}"))
}

impl Browser {
    /// Starts a browser that stores its screenshots in this folder. Returns `None`, with a message on standard error,
    /// if there is no driver on this machine.
    pub async fn start(pictures: PathBuf) -> Option<Self> {
        let mut driver = Command::new("chromedriver");
        driver.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        // A process group of its own, so that the browser that it starts can be ended with it.
        let Ok(mut driver) = driver.process_group(0).spawn() else {
            assert!(!getuid().is_root(), "chromedriver is missing, and scripts/test installs it as root");
            eprintln!("SKIPPED: the page in a browser (Debian: chromium, chromium-driver)");
            return None;
        };
        let mut lines = BufReader::new(driver.stdout.take().expect("standard output is piped")).lines();
        let port = soon("the driver prints its port", async {
            loop {
                let line = lines
                    .next_line()
                    .await
                    .expect("the driver's output can be read")
                    .expect("the driver prints its port");
                if let Some((_, port)) = line.split_once("started successfully on port ") {
                    return port.trim_end_matches('.').to_owned();
                }
            }
        });
        let port = port.await;
        let profile = tempfile::tempdir().expect("a temporary folder can be created");
        let mut flags: Vec<String> = FLAGS.map(String::from).into();
        flags.push(format!("--user-data-dir={}", profile.path().display()));
        if getuid().is_root() {
            flags.push("--no-sandbox".into());
        }
        let wanted = json!({
            "goog:chromeOptions": { "args": flags },
            "goog:loggingPrefs": { "browser": "ALL" },
            "timeouts": { "script": TIMEOUT.as_millis() as u64 },
        });
        let mut builder = ClientBuilder::new(HttpConnector::new());
        builder.capabilities(wanted.as_object().expect("an object").clone());
        let url = format!("http://127.0.0.1:{port}");
        let page = soon("the browser starts", builder.connect(&url)).await.expect("the browser starts");
        std::fs::create_dir_all(&pictures).expect("the folder of screenshots can be created");
        let browser = Self { page, pictures, driver, _profile: profile };
        browser.resize().await;
        Some(browser)
    }

    /// Sets the size of the window so that the page has the size [`VIEW`].
    async fn resize(&self) {
        let inside = self.run("return [innerWidth, innerHeight, outerWidth, outerHeight]").await;
        let size = |place: usize| inside[place].as_u64().expect("a size");
        let larger =
            |view, inside, outside| u32::try_from(view + size(outside) - size(inside)).expect("small");
        let (width, height) = (larger(VIEW.0, 0, 2), larger(VIEW.1, 1, 3));
        self.page.set_window_size(width, height).await.expect("the window can be resized");
        self.wait("the page has its size", &format!("innerWidth == {} && innerHeight == {}", VIEW.0, VIEW.1))
            .await;
    }

    /// Makes the page this wide, as on a phone or a tablet.
    pub async fn widen(&self, width: u32) {
        self.page.set_window_size(width, 844).await.expect("the window can be resized");
        self.wait("the page has its width", &format!("innerWidth == {width}")).await;
    }

    /// Opens an address.
    pub async fn go(&self, url: &str) {
        soon(url, self.page.goto(url)).await.expect(url);
    }

    /// Reloads the page.
    pub async fn refresh(&self) {
        soon("the page reloads", self.page.refresh()).await.expect("the page reloads");
    }

    /// Runs a script in the page. Returns its result, or the result of the promise that it returns.
    pub async fn run(&self, script: &str) -> Value {
        soon(script, self.page.execute(script, Vec::new())).await.expect("the script runs")
    }

    /// Waits until a condition, given as a script expression, holds. `what` describes it for the error.
    pub async fn wait(&self, what: &str, condition: &str) {
        let happens = async {
            while self.run(&format!("return Boolean({condition})")).await != json!(true) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        if timeout(TIMEOUT, happens).await.is_err() {
            self.picture("gave-up").await;
            panic!("timed out after {TIMEOUT:?}: {what}; errors on the page: {}", self.errors().await);
        }
    }

    /// The error messages that the page shows.
    pub async fn errors(&self) -> String {
        let errors = "return [...document.querySelectorAll('.error')].map(e => e.textContent).join(' ')";
        self.run(errors).await.as_str().unwrap_or_default().into()
    }

    /// The visible text of an element; empty if there is none.
    pub async fn text(&self, selector: &str) -> String {
        // The element may be redrawn between the two commands.
        match self.page.find(Locator::Css(selector)).await {
            Ok(element) => element.text().await.unwrap_or_default(),
            Err(_) => String::new(),
        }
    }

    /// Waits until an element shows this text.
    pub async fn reads(&self, selector: &str, text: &str) {
        let reads = async {
            while !self.text(selector).await.contains(text) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let found = timeout(TIMEOUT, reads).await;
        assert!(found.is_ok(), "{selector} does not show `{text}` but `{}`", self.text(selector).await);
    }

    /// Whether an element exists.
    pub async fn is_there(&self, selector: &str) -> bool {
        !self.page.find_all(Locator::Css(selector)).await.expect("the driver answers").is_empty()
    }

    /// Clicks an element as a mouse does: it must be visible and not covered. Retries if the element is redrawn.
    pub async fn click(&self, selector: &str) {
        let clicks = async {
            loop {
                match self.find(selector).await.click().await {
                    Ok(()) => return,
                    Err(error) if error.is_stale_element_reference() => {}
                    Err(error) => panic!("{selector} cannot be clicked: {error}"),
                }
            }
        };
        soon(selector, clicks).await;
    }

    async fn find(&self, selector: &str) -> Element {
        let found = self.page.wait().at_most(TIMEOUT).for_element(Locator::Css(selector)).await;
        found.unwrap_or_else(|error| panic!("there is no {selector}: {error}"))
    }

    /// Types into a field.
    pub async fn type_into(&self, selector: &str, text: &str) {
        self.find(selector).await.send_keys(text).await.expect("the field accepts text");
    }

    /// Presses a key, given by its WebDriver code.
    pub async fn press(&self, key: char) {
        let press = KeyActions::new("keys".into()).then(KeyAction::Down { value: key });
        let press = press.then(KeyAction::Up { value: key });
        soon("a key is pressed", self.page.perform_actions(press)).await.expect("the driver has a keyboard");
    }

    /// Stores a screenshot of the window.
    pub async fn picture(&self, name: &str) {
        // Animations have ended after this many frames.
        self.run("return new Promise(done => { let left = 45; (function next() { left-- ? requestAnimationFrame(next) : done() })() })").await;
        let bytes = soon("the screenshot", self.page.screenshot()).await.expect("the screenshot");
        std::fs::write(self.pictures.join(format!("{name}.png")), bytes)
            .expect("the screenshot can be written");
    }

    /// The errors of the page's scripts since the last call, including violations of its content security policy.
    pub async fn complaints(&self) -> Vec<String> {
        let log = soon("the console log", self.page.issue_cmd(ReadLog))
            .await
            .expect("the driver returns the console log");
        let lines = log.as_array().expect("the console log is a list").iter();
        let severe = lines.filter(|line| line["level"] == "SEVERE");
        severe.map(|line| line["message"].as_str().unwrap_or_default().into()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if let Some(group) = self.driver.id().and_then(|id| Pid::from_raw(id as i32)) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// The command that reads the console log, an extension of Chromium's driver.
#[derive(Debug)]
struct ReadLog;

impl WebDriverCompatibleCommand for ReadLog {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/se/log", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _url: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(json!({ "type": "browser" }).to_string()))
    }
}
