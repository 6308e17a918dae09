//! What happened in a search at least once, and the largest of what was counted.

/// What was seen at least once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// Rules that fired, one bit each.
    pub rules: u128,
    /// Kinds of messages that were delivered, one bit each.
    pub words: u64,
    /// Machines that entered, one bit each.
    pub entered: u64,
    /// The largest number of others that entered while one waited.
    pub max_bypass: u8,
    /// The most messages that were sent by then, in any state; the largest number that can be kept means no end.
    pub max_messages: u8,
    /// The most messages, and the entries, of a run that came to its end: the dearest by messages per entry.
    pub dearest: Option<(u8, u32)>,
    /// How many states those that were expanded stand for; see [`super::reduce`].
    pub stood_for: f64,
    /// States that were expanded.
    pub expanded: u64,
}

impl Seen {
    /// Adds what another worker saw.
    pub fn add(&mut self, other: &Self) {
        self.rules |= other.rules;
        self.words |= other.words;
        self.entered |= other.entered;
        self.max_bypass = self.max_bypass.max(other.max_bypass);
        self.max_messages = self.max_messages.max(other.max_messages);
        self.dearest = dearer(self.dearest, other.dearest);
        self.stood_for += other.stood_for;
        self.expanded += other.expanded;
    }
}

impl Seen {
    /// Whether some run that came to its end took more messages for each entry.
    pub fn costs_more_than(&self, most: u32) -> bool {
        self.dearest
            .is_some_and(|(messages, entries)| messages < u8::MAX && u32::from(messages) > most * entries)
    }
}

/// Of two runs, the one that took more messages per entry.
pub(super) fn dearer(left: Option<(u8, u32)>, right: Option<(u8, u32)>) -> Option<(u8, u32)> {
    let (Some((messages, entries)), Some((others, their_entries))) = (left, right) else {
        return left.or(right);
    };
    let more = u64::from(others) * u64::from(entries) > u64::from(messages) * u64::from(their_entries);
    if more { right } else { left }
}
