//! For tests of pages: a headless Chromium with one window of 1280×720, that of a small projector.
//!
//! Everything waits for a condition, for so long at most that only what never happens is a failure; then it panics, as tests do.

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

/// How long anything may take before the tests give up; nothing is measured with it.
const PATIENCE: Duration = Duration::from_secs(120);
/// What is seen of a page, without the window's own bars.
const VIEW: (u64, u64) = (1280, 720);
/// Flags with which the browser sees nothing but the page, and runs where there is little memory to be shared, as in containers.
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

/// A browser with one window, and the program that drives it. Both end with it.
pub struct Browser {
    page: Client,
    pictures: PathBuf,
    driver: Child,
    _profile: TempDir,
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("it did not happen that {what}"))
}

impl Browser {
    /// Starts one that keeps its pictures in this folder; `None`, with a word about it, if there is none on this machine.
    pub async fn start(pictures: PathBuf) -> Option<Self> {
        let mut driver = Command::new("chromedriver");
        driver.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        // A group of its own, so that whatever it starts can be ended with it.
        let Ok(mut driver) = driver.process_group(0).spawn() else {
            assert!(!getuid().is_root(), "chromedriver is missing, and scripts/test installs it as root");
            eprintln!("SKIPPED: the page in a browser (Debian: chromium, chromium-driver)");
            return None;
        };
        let mut lines = BufReader::new(driver.stdout.take().expect("it is piped")).lines();
        let port = soon("the driver says its port", async {
            loop {
                let line = lines.next_line().await.expect("it can be read").expect("it says its port");
                if let Some((_, port)) = line.split_once("started successfully on port ") {
                    return port.trim_end_matches('.').to_owned();
                }
            }
        });
        let port = port.await;
        let profile = tempfile::tempdir().expect("a folder");
        let mut flags: Vec<String> = FLAGS.map(String::from).into();
        flags.push(format!("--user-data-dir={}", profile.path().display()));
        if getuid().is_root() {
            flags.push("--no-sandbox".into());
        }
        let wanted = json!({
            "goog:chromeOptions": { "args": flags },
            "goog:loggingPrefs": { "browser": "ALL" },
            "timeouts": { "script": PATIENCE.as_millis() as u64 },
        });
        let mut builder = ClientBuilder::new(HttpConnector::new());
        builder.capabilities(wanted.as_object().expect("an object").clone());
        let url = format!("http://127.0.0.1:{port}");
        let page = soon("the browser starts", builder.connect(&url)).await.expect("it starts");
        std::fs::create_dir_all(&pictures).expect("a folder");
        let browser = Self { page, pictures, driver, _profile: profile };
        browser.resize().await;
        Some(browser)
    }

    /// Makes the window as large as it takes for the page to be seen in the right size.
    async fn resize(&self) {
        let inside = self.run("return [innerWidth, innerHeight, outerWidth, outerHeight]").await;
        let size = |place: usize| inside[place].as_u64().expect("a size");
        let larger =
            |view, inside, outside| u32::try_from(view + size(outside) - size(inside)).expect("small");
        let (width, height) = (larger(VIEW.0, 0, 2), larger(VIEW.1, 1, 3));
        self.page.set_window_size(width, height).await.expect("there is room");
        self.wait("the page has its size", &format!("innerWidth == {} && innerHeight == {}", VIEW.0, VIEW.1))
            .await;
    }

    /// Goes to an address.
    pub async fn go(&self, url: &str) {
        soon(url, self.page.goto(url)).await.expect(url);
    }

    /// Goes there again.
    pub async fn refresh(&self) {
        soon("the page opens again", self.page.refresh()).await.expect("it opens again");
    }

    /// Runs a script in the page; its answer, or what its promise comes to.
    pub async fn run(&self, script: &str) -> Value {
        soon(script, self.page.execute(script, Vec::new())).await.expect("the script runs")
    }

    /// Waits until a script's answer is true.
    pub async fn wait(&self, what: &str, condition: &str) {
        let happens = async {
            while self.run(&format!("return Boolean({condition})")).await != json!(true) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        if timeout(PATIENCE, happens).await.is_err() {
            self.picture("gave-up").await;
            panic!("it did not happen that {what}; errors shown: {}", self.errors().await);
        }
    }

    /// What the page tells a person to be wrong.
    pub async fn errors(&self) -> String {
        let errors = "return [...document.querySelectorAll('.error')].map(e => e.textContent).join(' ')";
        self.run(errors).await.as_str().unwrap_or_default().into()
    }

    /// What somebody reads there.
    pub async fn text(&self, selector: &str) -> String {
        // It may be drawn anew in the middle of the question.
        match self.page.find(Locator::Css(selector)).await {
            Ok(element) => element.text().await.unwrap_or_default(),
            Err(_) => String::new(),
        }
    }

    /// Waits until somebody reads this there.
    pub async fn reads(&self, selector: &str, text: &str) {
        let reads = async {
            while !self.text(selector).await.contains(text) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let found = timeout(PATIENCE, reads).await;
        assert!(found.is_ok(), "{selector} never says `{text}`, but `{}`", self.text(selector).await);
    }

    /// Whether there is such a thing.
    pub async fn is_there(&self, selector: &str) -> bool {
        !self.page.find_all(Locator::Css(selector)).await.expect("an answer").is_empty()
    }

    /// Clicks on something, as a mouse would: it must be in view and not covered. It may be drawn anew meanwhile.
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
        let found = self.page.wait().at_most(PATIENCE).for_element(Locator::Css(selector)).await;
        found.unwrap_or_else(|error| panic!("there is no {selector}: {error}"))
    }

    /// Types into a field.
    pub async fn type_into(&self, selector: &str, text: &str) {
        self.find(selector).await.send_keys(text).await.expect("it can be typed");
    }

    /// Presses a key, by its letter in WebDriver.
    pub async fn press(&self, key: char) {
        let press = KeyActions::new("keys".into()).then(KeyAction::Down { value: key });
        let press = press.then(KeyAction::Up { value: key });
        soon("a key is pressed", self.page.perform_actions(press)).await.expect("a keyboard");
    }

    /// Keeps a picture of the window for people to look at.
    pub async fn picture(&self, name: &str) {
        // Whatever glides has come to rest after so many frames.
        self.run("return new Promise(done => { let left = 45; (function next() { left-- ? requestAnimationFrame(next) : done() })() })").await;
        let bytes = soon("a picture", self.page.screenshot()).await.expect("a picture");
        std::fs::write(self.pictures.join(format!("{name}.png")), bytes).expect("written");
    }

    /// What has gone wrong in the page's scripts since the last time, and what its policy has blocked.
    pub async fn complaints(&self) -> Vec<String> {
        let log = soon("the log", self.page.issue_cmd(ReadLog)).await.expect("a log");
        let lines = log.as_array().expect("a list").iter();
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

/// Asks for what scripts have written on the console: a command that Chromium's driver adds to the standard's.
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
