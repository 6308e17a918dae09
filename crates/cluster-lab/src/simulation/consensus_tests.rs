//! Tests that the checker of consensus histories accepts all histories of the model.

use super::consensus::{Consensus, ConsensusEvent, Reach};
use lockkeeper_lab::simulator::rng::{Purpose, Rng};
use lockkeeper_member::history::{HistoryEvent, HistoryRecord, accepts};
use lockkeeper_member::{MemberId, Node, PortEvent, PortRequest, View};
use std::collections::{BTreeMap, BTreeSet};

fn view(epoch: u64, by: u32, term: u64) -> View {
    let node = Node { id: MemberId(by), incarnation: 1 };
    View::of_one(epoch, term, node)
}

fn line(member: u32, what: HistoryEvent) -> HistoryRecord {
    HistoryRecord { member: MemberId(member), event: what }
}

fn notified(member: u32, event: PortEvent) -> HistoryRecord {
    line(member, HistoryEvent::Notified(event))
}

/// Five machines, some of which are cut off from the others.
struct Cut(BTreeSet<usize>);

impl Reach for Cut {
    fn awake(&self, _: usize) -> bool {
        true
    }

    fn linked(&self, one: usize, other: usize) -> bool {
        self.0.contains(&one) == self.0.contains(&other)
    }
}

/// Records a run of the model alone. Each machine proposes views and confirms its term while it takes itself for the
/// leader.
fn record(seed: u64) -> Vec<HistoryRecord> {
    let mut rng = Rng::new(seed, Purpose::Faults);
    let mut model = Consensus::new(5, Rng::new(seed, Purpose::Consensus));
    model.late = true;
    let (mut history, mut notifications, mut later) =
        (Vec::new(), Vec::new(), vec![(0, ConsensusEvent::CheckMajority)]);
    let mut queue: BTreeMap<(u64, u64), ConsensusEvent> = BTreeMap::new();
    let mut known = [(0, None); 5];
    let mut cut = Cut(BTreeSet::new());
    let (mut count, mut now) = (0, 0);
    for step in 0..4000 {
        for (delay, what) in later.drain(..) {
            count += 1;
            queue.insert((now + delay, count), what);
        }
        let Some(((at, _), what)) = queue.pop_first() else { break };
        now = at;
        model.happens(now, what, &cut, &mut later, &mut notifications);
        for (machine, event) in notifications.drain(..) {
            match &event {
                PortEvent::Decided { view, .. } => known[machine].0 = view.epoch,
                PortEvent::Leading { term } => known[machine].1 = Some(*term),
                PortEvent::Deposed => known[machine].1 = None,
                _ => {}
            }
            history.push(notified(machine as u32 + 1, event));
        }
        if step % 97 == 0 {
            cut.0 = (0..5).filter(|_| rng.chance(0.3)).collect();
        }
        let machine = rng.below(5);
        let (epoch, Some(term)): (u64, Option<u64>) = known[machine] else { continue };
        let member = machine as u32 + 1;
        let proposal = view(epoch + 1, member, term);
        history.push(line(member, HistoryEvent::Proposes(proposal.clone())));
        model.request(machine, PortRequest::Propose(proposal), &cut, &mut later);
        history.push(line(member, HistoryEvent::RequestsConfirmation { number: step, term }));
        model.request(machine, PortRequest::Confirm { number: step, term }, &cut, &mut later);
    }
    history
}

#[test]
fn the_models_own_histories_are_accepted() {
    let (mut decided, mut confirmed) = (0, 0);
    for seed in 0..40 {
        let history = record(seed);
        accepts(&history).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        let count = |event: fn(&PortEvent) -> bool| {
            history
                .iter()
                .filter(
                    |line| matches!(&line.event, HistoryEvent::Notified(notification) if event(notification)),
                )
                .count()
        };
        decided += count(|event| matches!(event, PortEvent::Decided { .. }));
        confirmed += count(|event| matches!(event, PortEvent::Confirmed { .. }));
    }
    assert!(decided > 1000 && confirmed > 1000, "{decided} decided, {confirmed} confirmed");
}
