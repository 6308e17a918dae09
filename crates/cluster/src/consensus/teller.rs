//! Tells the member what it must know, in an order that makes sense.

use super::locked;
use lockkeeper_member::{MemberId, PortEvent, View};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;

/// Takes what consensus tells. Called by one task, one event after the other, with no lock held: it may call consensus.
pub(crate) type Tell = Arc<dyn Fn(PortEvent) + Send + Sync>;

/// What the member was told last. Everything goes through here: views come in order, and a confirmation never after the news that
/// the term is over.
pub(crate) struct Teller {
    told: Mutex<Told>,
    /// How many lives of the member there were before this one. Each must be told everything, and nothing that the last one asked.
    lives: Arc<AtomicU64>,
    /// News under way, with the life that they are for; `None` is the last.
    news: mpsc::UnboundedSender<Option<(u64, PortEvent)>>,
}

struct Told {
    newest: View,
    leader: Option<MemberId>,
    leading: Option<u64>,
    /// A term in which this process led when the member began another life, and perhaps leads still.
    unsure: Option<u64>,
}

/// The other end: hands over the news.
pub(crate) struct Messenger {
    tell: Tell,
    lives: Arc<AtomicU64>,
    news: mpsc::UnboundedReceiver<Option<(u64, PortEvent)>>,
}

impl Messenger {
    /// Runs until the teller says that there will be no more.
    pub async fn run(mut self) {
        while let Some(Some((life, event))) = self.news.recv().await {
            if life == self.lives.load(Ordering::SeqCst) {
                (self.tell)(event);
            }
        }
    }
}

impl Teller {
    pub fn new(tell: Tell) -> (Self, Messenger) {
        let told = Told { newest: View::none(), leader: None, leading: None, unsure: None };
        let lives = Arc::new(AtomicU64::new(0));
        let (sender, news) = mpsc::unbounded_channel();
        let teller = Self { told: Mutex::new(told), lives: lives.clone(), news: sender };
        (teller, Messenger { tell, lives, news })
    }

    /// Called with `told` locked, so that news are sent in the order in which they became true.
    fn send(&self, event: PortEvent) {
        let _ = self.news.send(Some((self.life(), event)));
    }

    /// There will be no more news.
    pub fn end(&self) {
        let _ = self.news.send(None);
    }

    /// A view is decided.
    pub fn decided(&self, view: &View) {
        let mut told = locked(&self.told);
        if view.epoch > told.newest.epoch {
            told.newest = view.clone();
            self.send(PortEvent::Decided(view.clone()));
        }
    }

    /// Where the leader is believed to be, and the term in which this process leads, if it does and an entry of that term is applied.
    pub fn leadership(&self, leader: Option<MemberId>, leading: Option<u64>) {
        let mut told = locked(&self.told);
        told.unsure = told.unsure.filter(|&term| leading == Some(term));
        // Told once it is certain: by `still_leading`.
        let leading = leading.filter(|_| told.unsure.is_none());
        if told.leading.is_some() && told.leading != leading {
            told.leading = None;
            self.send(PortEvent::Deposed);
        }
        if told.leader != leader {
            told.leader = leader;
            self.send(PortEvent::Leader(leader));
        }
        if let Some(term) = leading.filter(|_| told.leading != leading) {
            told.leading = leading;
            self.send(PortEvent::Leading { term });
        }
    }

    /// Which life of the member it is that asks something now.
    pub fn life(&self) -> u64 {
        self.lives.load(Ordering::SeqCst)
    }

    /// A majority has confirmed that this process leads in this term, as this life of the member asked.
    pub fn confirmed(&self, life: u64, question: u64, term: u64) {
        let told = locked(&self.told);
        if told.leading == Some(term) && self.life() == life {
            self.send(PortEvent::Confirmed { question });
        }
    }

    /// Everything once more, for a new life of the member, who knows nothing. Gives the life, and the term that must be confirmed before it is
    /// told of that: the news may be old.
    pub fn again(&self) -> (u64, Option<u64>) {
        let mut told = locked(&self.told);
        self.lives.fetch_add(1, Ordering::SeqCst);
        if told.newest.epoch > 0 {
            self.send(PortEvent::Decided(told.newest.clone()));
        }
        self.send(PortEvent::Leader(told.leader));
        told.unsure = told.leading.take().or(told.unsure);
        (self.life(), told.unsure)
    }

    /// A majority has confirmed, since this life began, that this process leads in this term.
    pub fn still_leading(&self, life: u64, term: u64) {
        let mut told = locked(&self.told);
        if told.unsure == Some(term) && self.life() == life {
            told.unsure = None;
            told.leading = Some(term);
            self.send(PortEvent::Leading { term });
        }
    }

    /// The newest view.
    pub fn newest(&self) -> View {
        locked(&self.told).newest.clone()
    }
}
