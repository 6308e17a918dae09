//! The part of a visit that takes the lessons.

use crate::visits::Visit;
use serde_json::json;

impl Visit {
    /// Waits until a lesson is shown.
    fn lesson(&self, shown: &str) {
        let condition = format!("document.querySelector('#lesson')?.dataset.shown === {}", json!(shown));
        self.browser.wait("the lesson is shown", &condition);
    }

    /// Takes both lessons, with every control.
    pub(crate) fn lessons(&self) {
        let text = "return document.querySelector('#lesson').textContent";
        self.go("#lessons");
        self.lesson("flp rounds 12");
        assert!(self.browser.text(text).contains("8,856 configurations"));
        self.browser.picture("18-lesson-flp");
        self.browser.click("#more-steps");
        self.lesson("flp rounds 24");
        let steps = "return document.querySelectorAll('.adversary > li').length";
        assert_eq!(self.browser.run(steps), json!(24));
        assert_eq!(
            self.browser.run("return document.querySelectorAll('.adversary .wrong').length"),
            json!(0)
        );
        let choose = |name: &str, value: &str| {
            self.browser.run(&format!(
                "const s = document.querySelector('[name={name}]'); s.value = {}; \
                 s.dispatchEvent(new Event('change'))",
                json!(value)
            ));
        };
        choose("protocol", "wait-for-all");
        self.lesson("flp wait-for-all 0");
        assert!(self.browser.text(text).contains("it blocks"));

        choose("lesson", "causality");
        self.lesson("causality lamport-two-requests  ");
        choose("event", "S2:2");
        self.lesson("causality lamport-two-requests S2:2 ");
        assert!(self.browser.text(text).contains("Happened before it: S1:1, S2:1"));
        self.browser.run("document.querySelector('[name=cut]').value = 'S2=2'");
        self.browser.click("#judge");
        self.lesson("causality lamport-two-requests S2:2 S2=2");
        assert!(self.browser.text(text).contains("The cut is inconsistent"));
        self.browser.wait(
            "the diagram is drawn",
            "document.querySelector('.history').complete && document.querySelector('.history').naturalWidth > 0",
        );
        self.browser.picture("19-lesson-causality");
        choose("figure", "raymond-tree");
        self.lesson("causality raymond-tree  ");
    }
}
