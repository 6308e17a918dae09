//! Every result depends only on its inputs and a seed.

use lockkeeper_core::mutex::Family;
use lockkeeper_core::registry;
use lockkeeper_lab::property::Names;
use lockkeeper_lab::simulator::delay::Delay;
use lockkeeper_lab::simulator::spec::{DetectorSpec, LoadSpec};
use lockkeeper_lab::{Progress, Spec, processes, simulate, trace, trace_run};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// An in-memory file that can still be read after the sink has taken it.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A spec in which everything that can be random is random.
fn eventful(algorithm: &str) -> Spec {
    let mut spec = Spec::new(algorithm, 5);
    spec.load = LoadSpec::Poisson(0.3);
    spec.entries = 60;
    spec.network.delay = Delay::parse("lognormal:1,0.7").unwrap();
    // A ring whose token is lost or duplicated runs for ever.
    if registry::find(algorithm).unwrap().about.family != Family::Token {
        spec.network.duplicate = 0.01;
        spec.network.loss = 0.001;
    }
    spec.network.fifo = false;
    spec.cs = Some(Delay::parse("exponential:0.5").unwrap());
    spec.detector = DetectorSpec::False(0.05);
    spec
}

fn traced(spec: &Spec, seed: u64, file: &str) -> String {
    let out = Shared::default();
    let processes = processes(spec).unwrap();
    let names = Names { sites: spec.sites };
    let mut sink = trace::sink_for(Path::new(file), "t", names, processes, Box::new(out.clone())).unwrap();
    trace_run(spec, seed, sink.as_mut(), &Progress::default()).unwrap();
    drop(sink);
    let bytes = out.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

const FORMS: [&str; 5] = ["a.jsonl", "a.shiviz", "a.perfetto.json", "a.mmd", "a.svg"];

#[test]
fn same_seed_yields_identical_traces_and_another_seed_different_ones() {
    for entry in registry::ALL {
        let spec = eventful(entry.about.slug);
        for form in FORMS {
            assert_eq!(traced(&spec, 7, form), traced(&spec, 7, form), "{} {form}", entry.about.slug);
        }
        assert_ne!(traced(&spec, 7, FORMS[0]), traced(&spec, 8, FORMS[0]), "{}", entry.about.slug);
    }
}

#[test]
fn report_does_not_depend_on_the_number_of_threads() {
    let spec = eventful("ricart-agrawala");
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let report = pool.install(|| simulate(&spec, 1, 12, &Progress::default()).unwrap());
        serde_json::to_string(&report).unwrap()
    };
    assert_eq!(on(1), on(4));
}

#[test]
fn tracing_does_not_change_the_report() {
    let spec = eventful("lamport");
    let plain = simulate(&spec, 3, 1, &Progress::default()).unwrap();
    let mut story = trace::Story::default();
    let traced = trace_run(&spec, 3, &mut story, &Progress::default()).unwrap();
    assert_eq!(serde_json::to_string(&plain).unwrap(), serde_json::to_string(&traced).unwrap());
}

/// Pins one run. A change here changes the meaning of every recorded seed, and needs a reason.
#[test]
fn seed_yields_the_pinned_run() {
    let mut spec = Spec::new("ricart-agrawala", 4);
    spec.entries = 100;
    spec.network.delay = Delay::parse("exponential:1").unwrap();
    let report = simulate(&spec, 42, 1, &Progress::default()).unwrap();
    let fingerprint = (report.events, report.virtual_time.ticks(), report.messages);
    assert_eq!(fingerprint, (888, 158_859_377_965, 599));
}

#[test]
fn every_trace_format_is_well_formed() {
    let spec = eventful("lamport");
    let lines = traced(&spec, 1, "a.jsonl");
    let header: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(
        header["command"],
        spec.command(1),
        "the first line contains the command that reproduces the trace"
    );
    let mut clocks = [0u64; 5];
    for line in lines.lines().skip(1) {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        let vector: Vec<u64> = serde_json::from_value(event["vector"].clone()).unwrap();
        let site: usize = event["site"].as_str().unwrap()[1..].parse().unwrap();
        if event["event"] != "lost" && event["event"] != "say" {
            clocks[site - 1] += 1;
            assert_eq!(
                vector[site - 1],
                clocks[site - 1],
                "each event of a site increments its own component once: {line}"
            );
        }
        assert!(event["lamport"].as_u64().unwrap() >= vector[site - 1]);
    }
    assert!(lines.lines().count() > 500);

    let document: serde_json::Value = serde_json::from_str(&traced(&spec, 1, "a.perfetto.json")).unwrap();
    let events = document["traceEvents"].as_array().unwrap();
    let count = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    assert!(count("X") > 100 && count("s") > 100 && count("f") > 100);

    let shiviz = traced(&spec, 1, "a.shiviz");
    let pairs: Vec<&str> = shiviz.lines().skip(2).collect();
    for pair in pairs.chunks(2) {
        let (host, clock) = pair[1].split_once(' ').unwrap();
        let clock: serde_json::Value = serde_json::from_str(clock).unwrap();
        assert!(clock[host].as_u64().unwrap() > 0, "{pair:?}");
    }

    let mermaid = traced(&spec, 1, "a.mmd");
    assert!(mermaid.starts_with("sequenceDiagram\n    participant S1\n"));
    assert!(mermaid.matches("->>").count() > 100);

    let svg = traced(&spec, 1, "a.svg");
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    assert_eq!(svg.matches("<g>").count(), svg.matches("</g>").count());
}
