//! The checker stateright finds the same number of states in the same models.

use lockkeeper_checker_models::lamport_mutex::LamportMutex;
use lockkeeper_checker_models::stateright_model::Spec;
use lockkeeper_core::mutex::Channels;
use lockkeeper_core::{Mode, Setup, Sharing, registry};
use lockkeeper_lab::algorithm;
use lockkeeper_lab::checker::mutual_exclusion::machine::{Cause, Entry, Faults, Machines};
use lockkeeper_lab::checker::mutual_exclusion::mutex::Sites;
use lockkeeper_lab::checker::{CheckSpec, check};
use stateright::{Checker, Model, Property};
use std::fmt::Debug;

/// A system of machines as a stateright model, without packing, interning or caching.
struct Plain<S>(S);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State<L, M> {
    locals: Vec<L>,
    /// The channels from each machine to each.
    channels: Vec<Vec<Vec<M>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Choice(usize, u32),
    Deliver(usize, usize, usize),
}

impl<S> Plain<S>
where
    S: Machines,
{
    fn push(&self, channel: &mut Vec<S::Envelope>, envelope: S::Envelope) {
        channel.push(envelope);
        if !self.0.fifo() {
            channel.sort();
        }
    }

    fn entered(&self, state: &mut State<S::Local, S::Envelope>, who: usize, entry: Entry) {
        if !self.0.sharing().conflict(entry.mode, Mode::Shared) {
            return;
        }
        for (other, local) in state.locals.iter_mut().enumerate() {
            if other != who {
                self.0.outdate(local);
            }
        }
        for channel in state.channels.iter_mut().flatten() {
            channel.iter_mut().for_each(|envelope| self.0.outdate_envelope(envelope));
            if !self.0.fifo() {
                channel.sort();
            }
        }
    }
}

impl<S> Model for Plain<S>
where
    S: Machines,
    S::Local: Debug,
    S::Envelope: Debug,
{
    type State = State<S::Local, S::Envelope>;
    type Action = Action;

    fn init_states(&self) -> Vec<Self::State> {
        let machines = self.0.machines();
        let (locals, sent) = self.0.start();
        let mut state = State { locals, channels: vec![vec![Vec::new(); machines]; machines] };
        for sent in sent {
            self.push(&mut state.channels[sent.from][sent.to], sent.envelope);
        }
        vec![state]
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<Action>) {
        for (who, local) in state.locals.iter().enumerate() {
            let choices = self.0.choices(who, local).into_iter();
            let plain = choices.filter(|choice| choice.fault.is_none() && choice.suspects.is_none());
            actions.extend(plain.map(|choice| Action::Choice(who, choice.code)));
            for from in 0..self.0.machines() {
                let waiting = state.channels[from][who].len();
                let deliverable = if self.0.fifo() { waiting.min(1) } else { waiting };
                actions.extend((0..deliverable).map(|place| Action::Deliver(from, who, place)));
            }
        }
    }

    fn next_state(&self, state: &Self::State, action: Action) -> Option<Self::State> {
        let mut next = state.clone();
        let (who, step) = match action {
            Action::Choice(who, code) => (who, self.0.step(who, &mut next.locals[who], Cause::Choice(code))),
            Action::Deliver(from, who, place) => {
                let envelope = next.channels[from][who].remove(place);
                (who, self.0.step(who, &mut next.locals[who], Cause::Message(from, &envelope)))
            }
        };
        if let Some(entry) = step.effect.entered {
            self.entered(&mut next, who, entry);
        }
        for (to, envelope) in step.sends {
            self.push(&mut next.channels[who][to], envelope);
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("one at a time", |plain: &Self, state: &Self::State| {
            let inside =
                (0..).zip(&state.locals).filter(|(who, local)| plain.0.facts(*who, local).inside).count();
            plain.0.sharing() != Sharing::Mutex || inside <= 1
        })]
    }
}

/// The number of states that this checker and stateright find.
fn counts(slug: &str, sites: usize, requests: u8) -> (u64, u64) {
    let algorithm = algorithm::find(slug).expect("the slug is of the registry");
    let system = Sites {
        algorithm: algorithm.with_defaults(),
        setup: Setup::new(sites, ()),
        requests: Some(requests),
        fifo: algorithm.about().channels == Channels::Fifo,
        faults: Faults::default(),
        only: None,
    };
    let theirs = Plain(system).checker().spawn_bfs().join();
    theirs.assert_properties();
    let spec = CheckSpec { full: true, ..CheckSpec::new(slug, sites).requests(requests) };
    let ours = check(&spec, |_| true).unwrap();
    assert!(ours.is_verified(), "{ours:?}");
    (ours.distinct, theirs.unique_state_count() as u64)
}

#[test]
fn stateright_counts_the_same_states_for_every_algorithm_with_two_sites() {
    // The numbers of an algorithm that never rests grow without bound, and stateright does not renumber them.
    let is_finite = |slug| algorithm::find(slug).is_some_and(|found| found.scales(2) == 0);
    let abouts = registry::ALL.iter().map(|entry| entry.about).filter(|about| about.deadlock_free);
    for about in abouts.filter(|about| !about.perpetual || is_finite(about.slug)) {
        let (ours, theirs) = counts(about.slug, 2, 2);
        assert_eq!(ours, theirs, "{}", about.slug);
    }
}

#[test]
fn stateright_counts_the_same_states_for_some_algorithms_with_three_sites() {
    for slug in ["ricart-agrawala", "maekawa", "suzuki-kasami", "naimi-trehel", "raymond", "readers-writers"]
    {
        let (ours, theirs) = counts(slug, 3, 1);
        assert_eq!(ours, theirs, "{slug}");
    }
}

#[test]
fn stateright_counts_the_same_states_for_the_published_specification() {
    let theirs = Spec(LamportMutex { processes: 3, max_clock: 3 }).checker().spawn_bfs().join();
    theirs.assert_properties();
    assert_eq!(theirs.unique_state_count(), 10_209);
}
