//! Happened-before against logical clocks, on the figures and on random histories; wrong updates of clocks.

use lockkeeper_core::SiteId;
use lockkeeper_lab::causality::{Cut, History, Relation};
use lockkeeper_lab::simulator::figures;
use lockkeeper_lab::trace::clocks::ClockUpdate;
use lockkeeper_lab::{Scenario, Time};

/// A generator of random numbers with fixed results.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// A random history: processes take local steps, send, and receive any message under way, in any order.
fn random_history(seed: u64) -> History {
    let mut random = Random(seed);
    let processes = 2 + random.below(4);
    let mut history = History::new(SiteId::all(processes).map(|site| site.to_string()).collect());
    let mut under_way: Vec<usize> = Vec::new();
    for _ in 0..30 {
        let receives = match random.below(3) {
            0 if !under_way.is_empty() => Some(under_way.swap_remove(random.below(under_way.len()))),
            _ => None,
        };
        let site = receives
            .map_or_else(|| SiteId::new(random.below(processes)), |message| history.messages[message].to);
        let event = history.add(site, Time::ZERO, String::new(), receives);
        if random.below(2) == 0 {
            let to = SiteId::new((site.index() + 1 + random.below(processes - 1)) % processes);
            under_way.push(history.send(event, to, "m".into()));
        }
    }
    history
}

/// The histories of all figures, and random ones.
fn histories() -> Vec<History> {
    let of_figure = |figure: &figures::Figure| {
        let scenario = Scenario::parse(figure.name, figure.text).unwrap();
        History::of_run(&scenario.run_spec(), 1).unwrap()
    };
    figures::ALL.iter().map(of_figure).chain((1..200).map(random_history)).collect()
}

/// Happened-before by its definition: the transitive closure of process order and messages.
fn closure(history: &History) -> Vec<Vec<bool>> {
    let events = history.events.len();
    let mut before = vec![vec![false; events]; events];
    for (place, event) in history.events.iter().enumerate() {
        for (earlier, other) in history.events.iter().enumerate() {
            before[earlier][place] |= other.site == event.site && other.number < event.number;
        }
    }
    for message in &history.messages {
        message.received.iter().for_each(|received| before[message.sent][*received] = true);
    }
    for middle in 0..events {
        let later = before[middle].clone();
        for row in before.iter_mut().filter(|row| row[middle]) {
            row.iter_mut().zip(&later).for_each(|(mine, theirs)| *mine |= theirs);
        }
    }
    before
}

#[test]
fn happened_before_is_the_transitive_closure_of_process_order_and_messages() {
    for history in (1..100).map(random_history) {
        let closure = closure(&history);
        for (one, row) in closure.iter().enumerate() {
            for (other, before) in row.iter().enumerate() {
                assert_eq!(history.happened_before(one, other), *before);
            }
        }
    }
}

#[test]
fn vector_clocks_are_exactly_happened_before_and_lamport_clocks_follow_it() {
    for history in histories() {
        let stamps = history.stamps(ClockUpdate::Maximum);
        assert_eq!(history.misfit(&stamps), None);
        for one in 0..history.events.len() {
            for other in 0..history.events.len() {
                let before = history.happened_before(one, other);
                assert_eq!(before, stamps[one].is_before(&stamps[other]));
                assert!(!before || stamps[one].lamport < stamps[other].lamport);
            }
        }
    }
}

/// Mutants: a receipt that forgets the maximum, in both directions.
#[test]
fn a_receipt_that_forgets_the_maximum_is_caught() {
    for update in [ClockUpdate::TakesOver, ClockUpdate::Ignores] {
        let caught =
            histories().iter().filter(|history| history.misfit(&history.stamps(update)).is_some()).count();
        assert!(caught > 100, "{update:?}: {caught}");
        let figure = Scenario::open("lamport-two-requests").unwrap();
        let history = History::of_run(&figure.run_spec(), 1).unwrap();
        if update == ClockUpdate::Ignores {
            assert!(history.misfit(&history.stamps(update)).is_some());
        }
    }
}

#[test]
fn a_cut_is_consistent_by_messages_exactly_if_it_is_by_vector_clocks() {
    let (mut consistent, mut inconsistent) = (0, 0);
    for (seed, history) in (1..).zip(histories()) {
        let stamps = history.stamps(ClockUpdate::Maximum);
        let mut random = Random(seed);
        for _ in 0..20 {
            let sites = SiteId::all(history.names.len());
            let cut = Cut { events: sites.map(|site| random.below(history.events_of(site) + 1)).collect() };
            let verdict = cut.judge(&history).is_consistent();
            assert_eq!(verdict, cut.is_consistent(&history, &stamps), "{cut:?}");
            *(if verdict { &mut consistent } else { &mut inconsistent }) += 1;
        }
    }
    assert!(consistent > 300 && inconsistent > 300, "{consistent} and {inconsistent}");
}

#[test]
fn events_and_cuts_are_read_from_text() {
    let figure = Scenario::open("lamport-two-requests").unwrap();
    let history = History::of_run(&figure.run_spec(), 1).unwrap();
    let event = history.find("S2:3").unwrap();
    assert_eq!((history.name(event).as_str(), history.events[event].number), ("S2:3", 3));
    assert_eq!(history.relation(event, event), Relation::Same);
    assert_eq!(Cut::parse(&history, "S1=2, S3=1").unwrap().events, [2, 0, 1]);
    for wrong in ["S2", "S9:1", "S2:99", "S2:x", "S2:0"] {
        assert!(history.find(wrong).is_err(), "{wrong}");
    }
    for wrong in ["S2", "S9=1", "S2=99", "S2=x", ""] {
        assert!(Cut::parse(&history, wrong).is_err(), "{wrong}");
    }
}

#[test]
fn the_clocks_of_a_history_are_those_of_the_trace() {
    // `trace.jsonl` is written by the tracer of the simulator; the history computes its clocks from the messages alone.
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("causality.jsonl");
    for name in ["lamport-two-requests", "maekawa-inquire", "bully-crash-during-election"] {
        let run = Scenario::open(name).unwrap().run_spec();
        let file = Box::new(std::fs::File::create(&folder).unwrap());
        let processes = run.processes().unwrap();
        let mut sink = lockkeeper_lab::trace::sink_for(&folder, name, run.names(), processes, file).unwrap();
        run.trace(1, sink.as_mut(), &lockkeeper_lab::Progress::default()).unwrap();
        drop(sink);
        let written = std::fs::read_to_string(&folder).unwrap();
        let lines = written.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let events = lines.filter(|line| {
            line.get("vector").is_some() && !matches!(line["event"].as_str(), Some("lost" | "say"))
        });
        let traced: Vec<(u64, Vec<u32>)> = events
            .map(|line| {
                let vector = line["vector"].as_array().unwrap().iter();
                (
                    line["lamport"].as_u64().unwrap(),
                    vector.map(|part| part.as_u64().unwrap() as u32).collect(),
                )
            })
            .collect();
        let history = History::of_run(&run, 1).unwrap();
        let stamps = history.stamps(ClockUpdate::Maximum);
        let own: Vec<(u64, Vec<u32>)> =
            stamps.into_iter().map(|stamp| (stamp.lamport, stamp.vector)).collect();
        assert_eq!(own, traced, "{name}");
    }
}
