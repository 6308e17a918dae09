//! A user's visit to the page: every tab is opened and used.

use crate::browser::Browser;
use lockkeeper_core::registry;
use lockkeeper_lab::Scenario;
use lockkeeper_lab::checker::counterexamples;
use lockkeeper_lab::simulator::figures;
use serde_json::json;

const END: char = '\u{e010}';
const HOME: char = '\u{e011}';
const LEFT: char = '\u{e012}';
const RIGHT: char = '\u{e014}';

/// The text of the panel with all sites' states.
const STATES: &str = "return [...document.querySelectorAll('.card')].map(card => card.innerText.replace(/\\n(request|exit|crash|recover|timer).*/gs, '')).join('\\n')";

#[test]
fn user_visits_every_tab() {
    let Some(browser) = Browser::start() else { return };
    let port = crate::serve();
    let visit = Visit { browser, home: format!("http://127.0.0.1:{port}/") };
    for (name, act) in [
        ("open", Visit::open as fn(&Visit)),
        ("run each algorithm", Visit::run_each_algorithm),
        ("step", Visit::step),
        ("elections", Visit::elections),
        ("see faults", Visit::faults),
        ("ten thousand events", Visit::ten_thousand_events),
        ("drive", Visit::drive_into_the_deadlock),
        ("figures", Visit::every_figure),
        ("gallery", Visit::every_failure),
        ("check", Visit::check),
        ("compare", Visit::compare),
        ("dark", Visit::dark),
        ("damaged links", Visit::damaged_links),
    ] {
        println!("{name}");
        act(&visit);
        visit.browser.check_console(name);
    }
}

struct Visit {
    browser: Browser,
    home: String,
}

impl Visit {
    /// Opens a tab of the page and waits for its run.
    fn go(&self, hash: &str) {
        self.browser.go("about:blank");
        self.browser.go(&format!("{}{hash}", self.home));
        self.browser.wait("the page is ready", "document.body.dataset.ready");
        if hash != "#compare" {
            self.browser.wait("a run is shown", "document.querySelector('.player').dataset.loaded");
        }
    }

    fn loaded(&self) -> u64 {
        self.browser
            .run("return Number(document.querySelector('.player').dataset.loaded)")
            .as_u64()
            .unwrap_or(0)
    }

    /// Performs an action and waits until another run is shown.
    fn and_wait(&self, act: impl FnOnce()) {
        let before = self.loaded();
        act();
        let more = format!("Number(document.querySelector('.player').dataset.loaded) > {before}");
        self.browser.wait("another run is shown", &more);
        assert_eq!(self.browser.errors(), "");
    }

    fn counter(&self) -> String {
        self.browser.text("return document.querySelector('#counter').textContent")
    }

    fn sentence(&self) -> String {
        self.browser.text("return document.querySelector('#sentence').textContent")
    }

    fn verdict(&self) -> String {
        self.browser.text("return document.querySelector('#verdict').textContent")
    }

    fn open(&self) {
        self.go("");
        assert_eq!(self.browser.text("return document.title"), "Lockkeeper lab");
        assert_eq!(self.browser.run("return document.querySelectorAll('#hint p').length"), json!(3));
        self.browser.picture("1-open");
        self.browser.click("#hint button");
        self.go("");
        assert_eq!(self.browser.run("return document.querySelector('#hint').hidden"), json!(true));
        let outside = "return performance.getEntriesByType('resource').filter(e => !e.name.startsWith(location.origin) && !e.name.startsWith('blob:')).length";
        assert_eq!(self.browser.run(outside), json!(0), "everything comes from this server");
    }

    fn run_each_algorithm(&self) {
        self.go("#run");
        for entry in registry::ALL {
            let slug = entry.about.slug;
            let choose = format!(
                "const s = document.querySelector('#run-form select[name=algorithm]'); s.value = {}; s.dispatchEvent(new Event('change'))",
                json!(slug)
            );
            self.and_wait(|| {
                self.browser.run(&choose);
            });
            self.browser.press(END);
            let states = self.browser.text(STATES);
            assert!(states.contains("S1") && states.contains("S4"), "{slug}: {states}");
            let printed = ["{", "}", "Some(", "None", "::"].iter().find(|sign| states.contains(**sign));
            assert!(printed.is_none(), "{slug} shows debug output: {states}");
            assert!(!self.counter().starts_with("0 /"), "{slug}: {}", self.counter());
            assert!(
                entry.about.deadlock_free != self.verdict().contains("Deadlock"),
                "{slug}: {}",
                self.verdict()
            );
            if ["maekawa", "suzuki-kasami", "raymond", "readers-writers"].contains(&slug) {
                self.browser.picture(&format!("run-{slug}"));
            }
        }
    }

    fn step(&self) {
        self.go("#run");
        assert!(self.counter().starts_with("0 /"), "{}", self.counter());
        self.browser.click("#forward");
        assert!(
            self.counter().starts_with("1 /") && self.sentence().contains("wants to enter"),
            "{}",
            self.sentence()
        );
        self.browser.press(RIGHT);
        self.browser.press(RIGHT);
        self.browser.press(LEFT);
        assert!(self.counter().starts_with("2 /"), "{}", self.counter());
        self.browser.press(END);
        let last = self.counter();
        assert!(self.verdict().contains("every property held"), "{}", self.verdict());
        self.browser.press(HOME);
        assert!(self.counter().starts_with("0 /"));
        self.browser.run("const s = document.querySelector('#speed'); s.value = '25'");
        self.browser.press(' ');
        self.browser.wait(
            "it has played to its end",
            &format!("document.querySelector('#counter').textContent === {}", json!(last)),
        );
        // The link contains everything that the run depends on.
        self.browser.click("#link");
        self.browser.wait("the link is in the address", "location.hash.startsWith('#run=')");
        self.go(&self.browser.text("return location.hash"));
        self.browser.press(END);
        assert_eq!(self.counter(), last);
        // A selected site is highlighted in every view.
        self.browser.click(".card[data-site=S2]");
        self.browser
            .wait("S2 is marked", "document.querySelector('.node.selected')?.textContent.includes('S2')");
    }

    fn elections(&self) {
        self.go("#run");
        let fill = "const f = document.querySelector('#run-form'); f.elements.algorithm.value = 'bully'; f.elements.sites.value = 5; \
            f.elements.crash.value = '5@1'; f.elements.initiators.value = '1; 2';";
        self.browser.run(fill);
        self.and_wait(|| {
            self.browser.run("document.querySelector('#run-form').requestSubmit()");
        });
        self.browser.press(END);
        assert!(self.verdict().contains("S4 leads"), "{}", self.verdict());
        self.browser
            .wait("S4 is shown as the leader", "document.querySelector('.card[data-site=S4] .badge.inside')");
        self.browser.picture("13-election");
    }

    fn faults(&self) {
        self.go("#run");
        let fill = "const f = document.querySelector('#run-form'); f.querySelector('details').open = true; \
            f.elements.algorithm.value = 'centralized-failover'; f.elements.crash.value = '4@3'; \
            f.elements.partition.value = '1|2,3@14..20'; f.elements.detector.value = 'perfect'; f.elements.sites.value = 4;";
        self.browser.run(fill);
        self.and_wait(|| {
            self.browser.run("document.querySelector('#run-form').requestSubmit()");
        });
        self.browser.press(END);
        let crashed = "document.querySelectorAll('.badge.crashed').length === 1";
        self.browser.wait("one site is shown as crashed", crashed);
        self.browser.picture("2-faults");
        self.browser.run("document.querySelector('#run-form').elements.delay.value = 'matrix:/etc/hostname'; document.querySelector('#run-form').requestSubmit()");
        self.browser
            .wait("it says what is wrong", "document.querySelector('.error').textContent.includes('matrix')");
        self.browser.check_is_bad_request();
    }

    fn ten_thousand_events(&self) {
        self.go("#run");
        self.and_wait(|| {
            let fill = "const f = document.querySelector('#run-form'); f.elements.sites.value = 9; f.elements.entries.value = 1100; f.requestSubmit()";
            self.browser.run(fill);
        });
        let steps =
            self.browser.run("return Number(document.querySelector('#scrub').max)").as_u64().unwrap_or(0);
        assert!(steps > 10_000, "{steps}");
        self.browser.press(END);
        assert!(self.counter().starts_with(&format!("{steps} / {steps}")), "{}", self.counter());
        self.browser.press('0');
        self.browser.picture("3-ten-thousand-events");
    }

    /// Performs one step by hand.
    fn act(&self, line: &str) {
        self.and_wait(|| self.browser.click(&format!("[data-act='{line}']")));
    }

    fn drive_into_the_deadlock(&self) {
        self.go("#drive");
        for site in ["S1", "S2", "S3"] {
            self.act(&format!("{site} requests"));
        }
        self.browser.picture("4-drive");
        for link in ["S1>S2", "S2>S3", "S3>S1"] {
            assert!(!self.verdict().contains("Deadlock"), "{}", self.verdict());
            self.act(&format!("deliver {link} REQUEST"));
        }
        assert!(self.verdict().contains("Deadlock"), "{}", self.verdict());
        self.browser.picture("5-deadlock");
        self.and_wait(|| self.browser.click("#undo"));
        assert!(!self.verdict().contains("Deadlock"), "{}", self.verdict());
        self.and_wait(|| self.browser.click("#redo"));
        assert!(self.verdict().contains("Deadlock"), "{}", self.verdict());
        let (states, link) = (self.browser.text(STATES), self.browser.text("return location.hash"));
        self.check_export();
        self.check_lecture(&states);
        // The link contains the whole run.
        self.go(&link);
        assert_eq!(self.browser.text(STATES), states);
        assert!(self.verdict().contains("Deadlock"), "{}", self.verdict());
        self.break_things();
    }

    /// The saved scenario shows the same violation in the simulator.
    fn check_export(&self) {
        let text = self.saved("#export");
        let scenario = Scenario::parse("saved", &text).expect("the simulator accepts it");
        let report = lockkeeper_lab::simulate(&scenario.spec, 1, 1, &Default::default()).expect("it runs");
        assert_eq!(report.properties.deadlock, "found", "{text}");
    }

    /// The content of the file that a button offers for download.
    fn saved(&self, selector: &str) -> String {
        self.browser.run(
            "window.saved = null; window.make ??= URL.createObjectURL; \
             URL.createObjectURL = (blob) => { window.saved = blob; return window.make.call(URL, blob); }",
        );
        self.browser.click(selector);
        self.browser.wait("something is saved", "window.saved");
        self.browser.text("return window.saved.text()")
    }

    /// A saved page shows the same without a server.
    fn check_lecture(&self, states: &str) {
        let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("page/lecture.html");
        std::fs::write(&file, self.saved("#lecture")).unwrap();
        self.browser.go(&format!("file://{}", file.display()));
        self.browser.wait("the saved run is shown", "document.querySelector('.player').dataset.loaded");
        self.browser.press(END);
        assert_eq!(self.browser.text(STATES), states);
        self.browser.picture("6-saved-page");
    }

    /// Messages are lost, sites crash, links are cut.
    fn break_things(&self) {
        self.and_wait(|| self.browser.click("#start-over"));
        self.act("S1 requests");
        self.act("lose S1>S2 REQUEST");
        assert!(self.sentence().contains("is lost"), "{}", self.sentence());
        self.act("crash S2");
        assert!(self.sentence().contains("S2 crashes"), "{}", self.sentence());
        self.act("recover S2");
        self.and_wait(|| self.browser.click("#cut"));
        assert!(self.sentence().contains("is cut"), "{}", self.sentence());
        // A step after going back continues from there.
        for _ in 0..4 {
            self.browser.press(LEFT);
        }
        self.act("deliver S1>S2 REQUEST");
        assert!(self.counter().starts_with("2 / 2"), "{}", self.counter());
        // A click on a site in the map requests or leaves.
        self.and_wait(|| self.browser.click(".node:nth-child(3)"));
        assert!(self.sentence().contains("S3 wants to enter"), "{}", self.sentence());
    }

    fn every_figure(&self) {
        self.go("#figure");
        for figure in figures::ALL {
            self.and_wait(|| self.browser.click(&format!("[data-name='{}']", figure.name)));
            self.browser.press(END);
            assert!(!self.counter().starts_with("0 /"), "{}: {}", figure.name, self.counter());
        }
        self.go("#figure=raymond-tree");
        // The pointers form one tree at every step, also while the privilege is under way and two sites point
        // at each other.
        let heights = "return new Set([...document.querySelectorAll('.node')].map(n => n.getAttribute('transform').split(' ')[1])).size";
        for step in 0..16 {
            assert!(self.browser.run(heights).as_u64() > Some(2), "step {step}");
            self.browser.press(RIGHT);
        }
        self.browser.press(END);
        self.browser.picture("7-figure");
        self.go("#figure=maekawa-seven");
        for _ in 0..6 {
            self.browser.press(RIGHT);
        }
        self.browser.wait("a quorum is marked", "document.querySelectorAll('.node.member').length === 3");
        self.browser.picture("8-quorum");
    }

    fn every_failure(&self) {
        self.go("#break");
        for (number, failure) in counterexamples::ALL.iter().enumerate() {
            if number > 0 {
                self.and_wait(|| self.browser.click(&format!("[data-name='{}']", failure.name)));
            }
            self.browser.press(END);
            assert!(
                self.browser.text("return document.querySelector('.why').textContent").contains(failure.why)
            );
            assert!(self.verdict().contains('✗'), "{}: {}", failure.name, self.verdict());
            self.browser.picture(&format!("break-{}", failure.name));
        }
        // A user can continue by hand where the checker stopped.
        self.go("#break=lamport-on-channels-that-reorder");
        self.browser.press(END);
        self.and_wait(|| self.browser.click("#take-over"));
        assert_eq!(self.browser.text("return document.body.dataset.tab"), "drive");
        self.act("S1 exits");
    }

    fn check(&self) {
        self.go("#check");
        self.browser.wait("there is a verdict", "document.querySelector('tr.violated')");
        self.browser.press(END);
        assert!(self.verdict().contains("Mutual exclusion violated"), "{}", self.verdict());
        self.browser.picture("9-check");
        self.browser.run(
            "const f = document.querySelector('#check-form'); f.elements.algorithm.value = 'ricart-agrawala'; f.elements.fifo.value = ''; \
             f.elements.requests.value = '2'; f.requestSubmit()",
        );
        self.browser.wait(
            "it is verified",
            "document.querySelectorAll('tr.holds').length >= 5 && !document.querySelector('tr.violated')",
        );
    }

    fn compare(&self) {
        self.go("#compare");
        self.browser.run(
            "const f = document.querySelector('#compare-form'); \
             for (const box of f.querySelectorAll('[name=algorithms]')) box.checked = ['ricart-agrawala', 'raymond'].includes(box.value); \
             f.elements.sites.value = '3, 7'; f.elements.seeds.value = 1; f.requestSubmit()",
        );
        self.browser.wait("the comparison is there", "document.querySelector('#comparison').dataset.done");
        assert_eq!(
            self.browser.run("return document.querySelectorAll('#comparison tbody tr').length"),
            json!(8)
        );
        self.browser.wait("the plots are drawn", "[...document.querySelectorAll('.plot img')].length >= 4 && [...document.querySelectorAll('.plot img')].every(i => i.complete && i.naturalWidth > 0)");
        self.browser.picture("10-compare");
        let table = self.saved("#csv");
        assert!(table.lines().count() == 9 && table.contains("raymond"), "{table}");
    }

    fn dark(&self) {
        self.go("#figure=naimi-trehel-path");
        self.browser.click("#theme");
        self.browser.press(RIGHT);
        self.browser.press(RIGHT);
        self.browser.press(RIGHT);
        self.browser.picture("11-dark");
        self.go("#check");
        self.browser.wait("there is a verdict", "document.querySelector('tr.violated')");
        self.browser.press(END);
        self.browser.picture("12-dark-check");
        self.browser.click("#theme");
    }

    fn damaged_links(&self) {
        for hash in
            ["#drive=%25%25", "#run=bm90aGluZw", "#drive=bm90aGluZw", "#break=nothing", "#figure=nothing"]
        {
            self.browser.go("about:blank");
            self.browser.go(&format!("{}{hash}", self.home));
            self.browser.wait(
                "an error is shown",
                "[...document.querySelectorAll('.error')].some(e => e.textContent.length > 10)",
            );
        }
        self.browser.check_is_bad_request();
    }
}
