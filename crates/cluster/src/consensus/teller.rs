//! Sends events to the member in a consistent order.

use super::locked;
use lockkeeper_member::{MemberId, PortEvent, View};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;

/// The callback for events. One task calls it, one event at a time, without locks, so it may call consensus.
pub(crate) type Tell = Arc<dyn Fn(PortEvent) + Send + Sync>;

/// The sender of events to the member, which remembers what it has sent. All events pass through here: views come in
/// order, and a confirmation never follows the event that ends its term.
pub(crate) struct Teller {
    told: Mutex<Told>,
    /// Number of earlier incarnations of the member. Each incarnation must get all current facts, but no answers to
    /// queries of an earlier one.
    lives: Arc<AtomicU64>,
    /// The queue of events, each with its incarnation; `None` ends it.
    news: mpsc::UnboundedSender<Option<(u64, PortEvent)>>,
}

struct Told {
    newest: View,
    leader: Option<MemberId>,
    leading: Option<u64>,
    /// A term in which this process led when the member began a new incarnation. It may have ended since.
    unsure: Option<u64>,
}

/// The receiving end of the queue, which calls the callback.
pub(crate) struct Messenger {
    tell: Tell,
    lives: Arc<AtomicU64>,
    news: mpsc::UnboundedReceiver<Option<(u64, PortEvent)>>,
}

impl Messenger {
    /// Runs until the end of the queue.
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

    /// Queues an event. It is called with `told` locked, so that the events are in the order in which they became true.
    fn send(&self, event: PortEvent) {
        let _ = self.news.send(Some((self.life(), event)));
    }

    /// Ends the queue.
    pub fn end(&self) {
        let _ = self.news.send(None);
    }

    /// Reports a decided view.
    pub fn decided(&self, view: &View) {
        let mut told = locked(&self.told);
        if view.epoch > told.newest.epoch {
            told.newest = view.clone();
            self.send(PortEvent::Decided(view.clone()));
        }
    }

    /// Reports the leader, and the term in which this process leads if an entry of that term is applied.
    pub fn leadership(&self, leader: Option<MemberId>, leading: Option<u64>) {
        let mut told = locked(&self.told);
        told.unsure = told.unsure.filter(|&term| leading == Some(term));
        // An unsure term is reported by `still_leading`, once it is confirmed.
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

    /// The current incarnation of the member.
    pub fn life(&self) -> u64 {
        self.lives.load(Ordering::SeqCst)
    }

    /// Reports that a majority has confirmed that this process leads in this term, in answer to a query of this
    /// incarnation.
    pub fn confirmed(&self, life: u64, question: u64, term: u64) {
        let told = locked(&self.told);
        if told.leading == Some(term) && self.life() == life {
            self.send(PortEvent::Confirmed { number: question });
        }
    }

    /// Repeats everything for a new incarnation of the member. Returns the incarnation, and a term that must be
    /// confirmed before it is reported: the known one may be outdated.
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

    /// Reports leadership in this term, which a majority has confirmed since this incarnation began.
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
