//! A user's visit to the page: every tab is opened and used.

use crate::browser::Browser;
use lockkeeper_core::registry;
use lockkeeper_lab::Scenario;
use lockkeeper_lab::checker::counterexamples;
use lockkeeper_lab::quiz::Exercise;
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
        ("quiz", Visit::quiz),
        ("lessons", Visit::lessons),
        ("damaged links", Visit::damaged_links),
        ("narrow screens", Visit::narrow_screens),
    ] {
        println!("{name}");
        act(&visit);
        visit.browser.check_console(name);
    }
}

/// A visit to the page at an address.
pub(crate) struct Visit {
    pub(crate) browser: Browser,
    home: String,
}

impl Visit {
    /// Opens a tab of the page and waits for its run.
    pub(crate) fn go(&self, hash: &str) {
        self.browser.go("about:blank");
        self.browser.go(&format!("{}{hash}", self.home));
        self.browser.wait("the page is ready", "document.body.dataset.ready");
        if hash != "#compare" && !hash.starts_with("#lessons") {
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
            // The schedules in which Maekawa's algorithm of 1985 deadlocks are rare, and this one is not among them.
            let deadlocks = !entry.about.deadlock_free && slug != "maekawa-1985";
            assert!(deadlocks == self.verdict().contains("Deadlock"), "{slug}: {}", self.verdict());
            if ["maekawa", "suzuki-kasami", "raymond", "readers-writers"].contains(&slug) {
                self.browser.picture(&format!("run-{slug}"));
            }
        }
    }

    fn step(&self) {
        self.go("#run");
        self.finished_at_first();
        self.browser.press(HOME);
        assert!(self.counter().starts_with("0 /"), "{}", self.counter());
        self.browser.click("#forward");
        assert!(
            self.counter().starts_with("1 /") && self.sentence().contains("wants to enter"),
            "{}",
            self.sentence()
        );
        // The lines of pseudo-code that the step executes are marked.
        let fires =
            "return [...document.querySelectorAll('.code li.fires')].map(line => line.textContent).join()";
        assert!(
            self.browser.text(fires).contains("send REQUEST(our_seq, i)"),
            "{}",
            self.browser.text(fires)
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

    /// The first view is a finished run: at its last step, with its verdict.
    fn finished_at_first(&self) {
        let counter = self.counter();
        let (step, last) = counter.split_once(" / ").expect("a step of several");
        assert!(last.starts_with(step) && step != "0", "{counter}");
        assert!(self.verdict().contains("every property held"), "{}", self.verdict());
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
        self.drive_an_election();
    }

    /// The leader crashes, S1 misses it, and S2 leads, each by a click.
    fn drive_an_election(&self) {
        self.go("#drive");
        self.and_wait(|| {
            self.browser.run(
                "const f = document.querySelector('#drive-form'); f.elements.algorithm.value = 'bully'; f.elements.sites.value = 3; \
                 f.requestSubmit()",
            );
        });
        for act in ["crash S3", "S1 campaigns", "deliver S1>S2 ELECTION", "deliver S2>S1 OK", "S2 wakes 1"] {
            self.act(act);
        }
        self.act("deliver S2>S1 COORDINATOR");
        assert!(self.sentence().contains("S1 takes S2 for the leader"), "{}", self.sentence());
        self.browser.picture("14-drive-election");
        let link = self.browser.text("return location.hash");
        let states = self.browser.text(STATES);
        self.go(&link);
        assert_eq!(self.browser.text(STATES), states);
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
        // The counterexample of the former values is gone.
        let blank = "return document.querySelector('.player').classList.contains('blank')";
        assert_eq!(self.browser.run(blank), json!(true));
        self.no_stale_verdict();
        self.check_an_election();
    }

    /// A change of any value removes the verdict.
    fn no_stale_verdict(&self) {
        let change = "const f = document.querySelector('#check-form'); f.elements.sites.value = 3; \
                      f.elements.sites.dispatchEvent(new Event('input', { bubbles: true }))";
        self.browser.run(change);
        assert_eq!(self.browser.run("return document.querySelectorAll('tr.holds').length"), json!(0));
        assert_eq!(self.browser.text("return document.querySelector('#live').textContent"), "");
        assert_eq!(self.browser.run("return Boolean(document.querySelector('#stale'))"), json!(true));
    }

    fn check_an_election(&self) {
        self.and_wait(|| {
            self.browser.run(
                "const f = document.querySelector('#check-form'); f.elements.algorithm.value = 'bully'; \
                 f.elements.partition.checked = true; f.requestSubmit()",
            );
        });
        self.browser.press(END);
        assert!(self.verdict().contains("S1 comes to lead although S3 is up"), "{}", self.verdict());
        self.browser.picture("15-check-election");
    }

    fn quiz(&self) {
        self.browser.go("about:blank");
        // Number 1 of seed 3 has a run; the player shows it only up to the question.
        let number = (1..=12)
            .find(|&number| Exercise::new(3, number).unwrap().question.topic == "next entry")
            .expect("one of each kind among twelve");
        let exercise = Exercise::new(3, number).unwrap();
        self.go(&format!("#quiz=3.{number}"));
        let shown = exercise.question.recording.as_ref().expect("it has a run").steps.len() - 1;
        assert!(self.counter().starts_with(&format!("{shown} / {shown}")), "{}", self.counter());
        self.browser.picture("16-quiz");
        let right = exercise.key().to_string();
        self.and_wait(|| {
            self.browser.run(&format!(
                "document.querySelector('#quiz-form [value={right}]').checked = true; \
                 document.querySelector('#quiz-form').requestSubmit()"
            ));
        });
        assert!(self.browser.text("return document.querySelector('#grade').textContent").contains("✓ Right"));
        assert_eq!(self.browser.text("return document.querySelector('#score').textContent"), "1 of 1 right");
        self.browser.picture("17-graded");
        self.browser.click("#next-question");
        let next = format!("document.querySelector('#quiz h3')?.textContent.startsWith('{}.')", number + 1);
        self.browser.wait("the next question is asked", &next);
        self.browser.click("#give-up");
        self.browser.wait(
            "its answer is shown",
            "document.querySelector('#grade')?.textContent.includes('The answer is')",
        );
        assert_eq!(self.browser.text("return document.querySelector('#score').textContent"), "1 of 2 right");
    }

    /// On phones and tablets nothing is wider than the screen, the run comes first, and its parts can be read.
    fn narrow_screens(&self) {
        for width in [390, 768] {
            self.browser.widen(width);
            for hash in ["#run", "#drive", "#figure=raymond-tree", "#break=maekawa-triangle", "#check"] {
                self.go(hash);
                let wide = self.browser.run("return document.documentElement.scrollWidth - innerWidth");
                assert_eq!(wide, json!(0), "{hash} at {width}");
                let above = "return document.querySelector('.diagram-frame').getBoundingClientRect().top \
                             < document.querySelector('#panel').getBoundingClientRect().top";
                assert_eq!(self.browser.run(above), json!(true), "{hash} at {width}: the run comes first");
                let height = "return document.querySelector('.diagram').getBoundingClientRect().height";
                assert!(self.browser.run(height).as_f64() > Some(180.0), "{hash} at {width}");
                self.browser.picture(&format!("narrow-{width}-{}", &hash[1..4]));
            }
        }
        self.browser.widen(1280);
        // The plots of a comparison use the whole width, so that their text is at least 11 pixels high.
        self.compare();
        let scale = "return document.querySelector('.plot img').clientWidth / document.querySelector('.plot img').naturalWidth";
        assert!(self.browser.run(scale).as_f64() > Some(0.74), "{}", self.browser.run(scale));
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
