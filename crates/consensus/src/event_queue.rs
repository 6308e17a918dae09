//! Sends events to the member in a consistent order.

use super::locked;
use lockkeeper_member::{HoldRecord, HoldTable, MemberId, Node, PortEvent, RecordOutcome, View};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;

/// The callback for events. One task calls it, one event at a time, without locks, so it may call consensus.
pub type EventCallback = Arc<dyn Fn(PortEvent) + Send + Sync>;

/// The sender of events to the member, which remembers what it has sent. All events pass through here: views come in
/// order, and a confirmation never follows the event that ends its term.
pub(crate) struct EventSender {
    sent: Mutex<SentEvents>,
    /// Number of earlier incarnations of the member. Each incarnation must get all current facts, but no answers to
    /// queries of an earlier one.
    incarnations: Arc<AtomicU64>,
    /// The queue of events, each with its incarnation; `None` ends it.
    queue: mpsc::UnboundedSender<Option<(u64, PortEvent)>>,
    /// Number of records in the table of recorded holds, and their size in bytes, for display.
    records: AtomicUsize,
    record_bytes: AtomicUsize,
}

struct SentEvents {
    newest: View,
    leader: Option<MemberId>,
    leading: Option<u64>,
    /// A term in which this process led when the member began a new incarnation. It may have ended since.
    unconfirmed: Option<u64>,
}

/// The receiving end of the queue, which calls the callback.
pub(crate) struct EventDelivery {
    callback: EventCallback,
    incarnations: Arc<AtomicU64>,
    queue: mpsc::UnboundedReceiver<Option<(u64, PortEvent)>>,
}

impl EventDelivery {
    /// Runs until the end of the queue.
    pub async fn run(mut self) {
        while let Some(Some((incarnation, event))) = self.queue.recv().await {
            if incarnation == self.incarnations.load(Ordering::SeqCst) {
                (self.callback)(event);
            }
        }
    }
}

impl EventSender {
    pub fn new(callback: EventCallback) -> (Self, EventDelivery) {
        let sent = SentEvents { newest: View::none(), leader: None, leading: None, unconfirmed: None };
        let incarnations = Arc::new(AtomicU64::new(0));
        let (sender, queue) = mpsc::unbounded_channel();
        let events = Self {
            sent: Mutex::new(sent),
            incarnations: incarnations.clone(),
            queue: sender,
            records: AtomicUsize::new(0),
            record_bytes: AtomicUsize::new(0),
        };
        (events, EventDelivery { callback, incarnations, queue })
    }

    /// Queues an event. It is called with `sent` locked, so that the events are in the order in which they became true.
    fn send(&self, event: PortEvent) {
        let _ = self.queue.send(Some((self.incarnation(), event)));
    }

    /// Ends the queue.
    pub fn end(&self) {
        let _ = self.queue.send(None);
    }

    /// Notes the size of the table of recorded holds.
    pub fn table_changed(&self, table: &HoldTable) {
        self.records.store(table.records().len(), Ordering::Relaxed);
        self.record_bytes.store(table.bytes(), Ordering::Relaxed);
    }

    /// The number of records in the table of recorded holds, and their size in bytes.
    pub fn table_size(&self) -> (usize, usize) {
        (self.records.load(Ordering::Relaxed), self.record_bytes.load(Ordering::Relaxed))
    }

    /// Reports a decided view.
    pub fn decided(&self, view: &View, adopted: Vec<HoldRecord>) {
        let mut sent = locked(&self.sent);
        if view.epoch > sent.newest.epoch {
            sent.newest = view.clone();
            self.send(PortEvent::Decided { view: view.clone(), adopted });
        }
    }

    /// Reports the leader, and the term in which this process leads if an entry of that term is applied.
    pub fn leadership(&self, leader: Option<MemberId>, leading: Option<u64>) {
        let mut sent = locked(&self.sent);
        sent.unconfirmed = sent.unconfirmed.filter(|&term| leading == Some(term));
        // An unsure term is reported by `leadership_confirmed`, once it is confirmed.
        let leading = leading.filter(|_| sent.unconfirmed.is_none());
        if sent.leading.is_some() && sent.leading != leading {
            sent.leading = None;
            self.send(PortEvent::Deposed);
        }
        if sent.leader != leader {
            sent.leader = leader;
            self.send(PortEvent::Leader(leader));
        }
        if let Some(term) = leading.filter(|_| sent.leading != leading) {
            sent.leading = leading;
            self.send(PortEvent::Leading { term });
        }
    }

    /// The current incarnation of the member.
    pub fn incarnation(&self) -> u64 {
        self.incarnations.load(Ordering::SeqCst)
    }

    /// Reports that a majority has confirmed that this process leads in this term, in answer to a query of this
    /// incarnation.
    pub fn confirmed(&self, incarnation: u64, query: u64, term: u64) {
        let sent = locked(&self.sent);
        if sent.leading == Some(term) && self.incarnation() == incarnation {
            self.send(PortEvent::Confirmed { number: query });
        }
    }

    /// Reports the outcomes of a write of this incarnation.
    pub fn written(&self, incarnation: u64, home: Node, sequence: u64, outcomes: Vec<RecordOutcome>) {
        let _sent = locked(&self.sent);
        if self.incarnation() == incarnation {
            self.send(PortEvent::Written { home, sequence, outcomes });
        }
    }

    /// Repeats everything for a new incarnation of the member. Returns the incarnation, and a term that must be
    /// confirmed before it is reported: the known one may be outdated.
    pub fn repeat_all(&self) -> (u64, Option<u64>) {
        let mut sent = locked(&self.sent);
        self.incarnations.fetch_add(1, Ordering::SeqCst);
        if sent.newest.epoch > 0 {
            // A new incarnation does not coordinate a view that was decided before it began.
            self.send(PortEvent::Decided { view: sent.newest.clone(), adopted: Vec::new() });
        }
        self.send(PortEvent::Leader(sent.leader));
        sent.unconfirmed = sent.leading.take().or(sent.unconfirmed);
        (self.incarnation(), sent.unconfirmed)
    }

    /// Reports leadership in this term, which a majority has confirmed since this incarnation began.
    pub fn leadership_confirmed(&self, incarnation: u64, term: u64) {
        let mut sent = locked(&self.sent);
        if sent.unconfirmed == Some(term) && self.incarnation() == incarnation {
            sent.unconfirmed = None;
            sent.leading = Some(term);
            self.send(PortEvent::Leading { term });
        }
    }

    /// The newest view.
    pub fn newest(&self) -> View {
        locked(&self.sent).newest.clone()
    }
}
