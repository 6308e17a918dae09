//! What happened in a search at least once, and the largest of what was counted.

/// What was seen at least once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// States in which only some of the possible steps were tried.
    pub reduced: u64,
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
        self.reduced += other.reduced;
        self.expanded += other.expanded;
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
