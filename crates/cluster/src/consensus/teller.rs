//! Tells the member what it must know, in an order that makes sense.

use super::locked;
use lockkeeper_member::{MemberId, PortEvent, View};
use std::sync::{Arc, Mutex, MutexGuard};

/// Takes what consensus tells. Must not block, nor call consensus.
pub(crate) type Tell = Arc<dyn Fn(PortEvent) + Send + Sync>;

/// What the member was told last. Everything goes through here, one at a time: views come in order, and a confirmation never after the
/// news that the term is over.
pub(crate) struct Teller {
    tell: Tell,
    told: Mutex<Told>,
}

struct Told {
    newest: View,
    leader: Option<MemberId>,
    leading: Option<u64>,
    /// A term in which this process led when the member began another life, and perhaps leads still.
    unsure: Option<u64>,
    /// How many lives of the member there were before this one. Each counts its questions anew.
    lives: u64,
}

impl Teller {
    pub fn new(tell: Tell) -> Self {
        let told = Told { newest: View::none(), leader: None, leading: None, unsure: None, lives: 0 };
        Self { tell, told: Mutex::new(told) }
    }

    /// A view is decided.
    pub fn decided(&self, view: &View) {
        let mut told = self.told();
        if view.epoch > told.newest.epoch {
            told.newest = view.clone();
            (self.tell)(PortEvent::Decided(view.clone()));
        }
    }

    /// Where the leader is believed to be, and the term in which this process leads, if it does and an entry of that term is applied.
    pub fn leadership(&self, leader: Option<MemberId>, leading: Option<u64>) {
        let mut told = self.told();
        told.unsure = told.unsure.filter(|&term| leading == Some(term));
        // Told once it is certain: by `still_leading`.
        let leading = leading.filter(|_| told.unsure.is_none());
        if told.leading.is_some() && told.leading != leading {
            told.leading = None;
            (self.tell)(PortEvent::Deposed);
        }
        if told.leader != leader {
            told.leader = leader;
            (self.tell)(PortEvent::Leader(leader));
        }
        if let Some(term) = leading.filter(|_| told.leading != leading) {
            told.leading = leading;
            (self.tell)(PortEvent::Leading { term });
        }
    }

    /// Which life of the member it is that asks something now.
    pub fn life(&self) -> u64 {
        self.told().lives
    }

    /// A majority has confirmed that this process leads in this term, as this life of the member asked.
    pub fn confirmed(&self, life: u64, question: u64, term: u64) {
        let told = self.told();
        if told.leading == Some(term) && told.lives == life {
            (self.tell)(PortEvent::Confirmed { question });
        }
    }

    /// Everything once more, for a new life of the member, who knows nothing. Gives the life, and the term that must be confirmed before it is
    /// told of that: the news may be old.
    pub fn again(&self) -> (u64, Option<u64>) {
        let mut told = self.told();
        told.lives += 1;
        if told.newest.epoch > 0 {
            (self.tell)(PortEvent::Decided(told.newest.clone()));
        }
        (self.tell)(PortEvent::Leader(told.leader));
        told.unsure = told.leading.take().or(told.unsure);
        (told.lives, told.unsure)
    }

    /// A majority has confirmed, since this life began, that this process leads in this term.
    pub fn still_leading(&self, life: u64, term: u64) {
        let mut told = self.told();
        if told.unsure == Some(term) && told.lives == life {
            told.unsure = None;
            told.leading = Some(term);
            (self.tell)(PortEvent::Leading { term });
        }
    }

    /// The newest view.
    pub fn newest(&self) -> View {
        self.told().newest.clone()
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        locked(&self.told)
    }
}
