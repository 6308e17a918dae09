//! A headless Chromium, driven over WebDriver: JSON over HTTP, of which the tests need so little that they speak it themselves.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take before the tests give up; nothing is measured with it.
const PATIENCE: Duration = Duration::from_secs(120);

/// A question over HTTP; the answer's status and body.
pub fn ask(port: u16, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("somebody listens");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let status = line.split_whitespace().nth(1).and_then(|code| code.parse().ok()).expect("a status");
    let mut length = None;
    loop {
        line.clear();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok();
        }
    }
    let mut body = Vec::new();
    match length {
        Some(length) => reader.take(length).read_to_end(&mut body).unwrap(),
        None => reader.read_to_end(&mut body).unwrap(),
    };
    (status, String::from_utf8_lossy(&body).into_owned())
}

/// A browser with one window.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    screenshots: PathBuf,
    _profile: Profile,
}

/// A folder for the browser's own files.
struct Profile(PathBuf);

impl Drop for Profile {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Browser {
    /// Starts one; `None`, with a word about it, if there is none on this machine.
    pub fn start() -> Option<Self> {
        let started =
            Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let Ok(mut driver) = started else {
            assert!(!is_root(), "chromedriver is missing, and scripts/test installs it as root");
            eprintln!(
                "SKIPPED: the page in a browser; install the packages chromium and chromium-driver to run this test"
            );
            return None;
        };
        let mut lines = BufReader::new(driver.stdout.take().expect("it is piped")).lines();
        let port = lines.find_map(|line| {
            line.ok()?.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok()
        });
        let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let profile = Profile(target.join(format!("chromium-{}", std::process::id())));
        let screenshots = target.join("page");
        std::fs::create_dir_all(&screenshots).unwrap();
        let mut browser = Self {
            driver,
            port: port.expect("a port"),
            session: String::new(),
            screenshots,
            _profile: profile,
        };
        browser.open_window();
        Some(browser)
    }

    fn open_window(&mut self) {
        let mut flags = vec![
            "--headless".to_string(),
            "--window-size=1280,720".into(),
            "--disable-gpu".into(),
            "--disable-quic".into(),
            "--no-first-run".into(),
            "--disable-background-networking".into(),
            "--disable-component-update".into(),
            "--disable-sync".into(),
            // Containers have little of it.
            "--disable-dev-shm-usage".into(),
            "--hide-scrollbars".into(),
            format!("--user-data-dir={}", self._profile.0.display()),
        ];
        if is_root() {
            flags.push("--no-sandbox".into());
        }
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": flags },
            "goog:loggingPrefs": { "browser": "ALL" },
            "timeouts": { "script": 120_000 },
        }}});
        let answer = self.command("POST", "/session", &wanted);
        self.session = answer["sessionId"].as_str().expect("a session").into();
        // What is seen of the page, without the window's own bars: that of a small projector.
        let view = json!({ "width": 1280, "height": 720, "deviceScaleFactor": 1, "mobile": false });
        let command = json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": view });
        self.in_session("POST", "/goog/cdp/execute", &command);
    }

    fn command(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if method == "GET" { String::new() } else { body.to_string() };
        let (port, length) = (self.port, body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        let (status, answer) = ask(port, &request);
        let mut answer: Value = serde_json::from_str(&answer).expect("the driver speaks JSON");
        assert_eq!(status, 200, "{path}: {}", answer["value"]["message"]);
        answer["value"].take()
    }

    fn in_session(&self, method: &str, path: &str, body: &Value) -> Value {
        self.command(method, &format!("/session/{}{path}", self.session), body)
    }

    /// Goes to an address.
    pub fn go(&self, url: &str) {
        self.in_session("POST", "/url", &json!({ "url": url }));
    }

    /// Runs a script in the page; its answer, or what its promise comes to.
    pub fn run(&self, script: &str) -> Value {
        self.in_session("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// A script's answer as text.
    pub fn text(&self, script: &str) -> String {
        self.run(script).as_str().unwrap_or_default().to_string()
    }

    /// Waits until a script's answer is true.
    pub fn wait(&self, what: &str, condition: &str) {
        let until = Instant::now() + PATIENCE;
        while self.run(&format!("return Boolean({condition})")) != json!(true) {
            if Instant::now() >= until {
                self.picture("gave-up");
                panic!("it did not happen that {what}; errors shown: {}", self.errors());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What the page tells a person to be wrong.
    pub fn errors(&self) -> String {
        self.text("return [...document.querySelectorAll('.error')].map(e => e.textContent).join(' ')")
    }

    /// Clicks on something, as a mouse would: it must be in view and not covered.
    pub fn click(&self, selector: &str) {
        self.wait(&format!("there is {selector}"), &format!("document.querySelector({})", json!(selector)));
        let found =
            self.in_session("POST", "/element", &json!({ "using": "css selector", "value": selector }));
        let id = found
            .as_object()
            .and_then(|found| found.values().next())
            .and_then(Value::as_str)
            .expect("an element");
        self.in_session("POST", &format!("/element/{id}/click"), &json!({}));
    }

    /// Presses a key, by its name in WebDriver.
    pub fn press(&self, key: &str) {
        let actions = json!({ "actions": [{ "type": "key", "id": "keys",
            "actions": [{ "type": "keyDown", "value": key }, { "type": "keyUp", "value": key }] }] });
        self.in_session("POST", "/actions", &actions);
    }

    /// Keeps a picture of the window for people to look at.
    pub fn picture(&self, name: &str) {
        // Whatever glides has come to rest after so many frames.
        self.run("return new Promise(done => { let left = 45; (function next() { left-- ? requestAnimationFrame(next) : done() })() })");
        let picture = self.in_session("GET", "/screenshot", &Value::Null);
        let bytes = decode(picture.as_str().expect("a picture"));
        std::fs::write(self.screenshots.join(format!("{name}.png")), bytes).unwrap();
    }

    /// After a question that the server has to refuse: nothing but that refusal has been complained about.
    pub fn check_is_bad_request(&self) {
        let lines = self.in_session("POST", "/se/log", &json!({ "type": "browser" }));
        let others = lines.as_array().expect("a list").iter().filter(|line| {
            line["level"] == "SEVERE"
                && !line["message"].as_str().is_some_and(|text| text.contains("status of 400"))
        });
        assert_eq!(others.collect::<Vec<_>>(), Vec::<&Value>::new());
    }

    /// Nothing has gone wrong in the page's scripts, and nothing was blocked by its policy.
    pub fn check_console(&self, what: &str) {
        let lines = self.in_session("POST", "/se/log", &json!({ "type": "browser" }));
        let severe: Vec<&Value> =
            lines.as_array().expect("a list").iter().filter(|line| line["level"] == "SEVERE").collect();
        assert!(severe.is_empty(), "{what}: {severe:#?}");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends with its session; nobody minds what is answered.
        let goodbye = format!(
            "DELETE /session/{} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
            self.session
        );
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
            let _ = stream.write_all(goodbye.as_bytes());
            let _ = stream.read(&mut [0]);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.starts_with("Uid:\t0\t"))
}

/// Reads Base64.
fn decode(text: &str) -> Vec<u8> {
    let digit = |letter: u8| match letter {
        b'A'..=b'Z' => Some(u32::from(letter - b'A')),
        b'a'..=b'z' => Some(u32::from(letter - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(letter - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Vec<u32> = text.bytes().filter_map(digit).collect();
    digits
        .chunks(4)
        .flat_map(|four| {
            let number = four.iter().fold(0, |number, digit| number << 6 | digit) << (6 * (4 - four.len()));
            number.to_be_bytes().into_iter().skip(1).take(four.len() - 1).collect::<Vec<u8>>()
        })
        .collect()
}
