//! Coverage of a search, and the maxima of its counters.

/// Coverage and maxima.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// Rules that fired, one bit each.
    pub rules: u128,
    /// Message types that were delivered, one bit each.
    pub kinds: u64,
    /// Machines that entered, one bit each.
    pub entered: u64,
    /// The maximum number of entries of others during one wait.
    pub max_bypass: u8,
    /// The maximum number of messages sent on a run to any state; `u8::MAX` means unbounded.
    pub max_messages: u8,
    /// Messages and entries of the complete run with the most messages per entry.
    pub dearest: Option<(u8, u32)>,
    /// Number of states that the expanded ones represent; see [`super::reduce`].
    pub stood_for: f64,
    /// Number of expanded states.
    pub expanded: u64,
}

impl Seen {
    /// Merges the coverage of another worker.
    pub fn add(&mut self, other: &Self) {
        self.rules |= other.rules;
        self.kinds |= other.kinds;
        self.entered |= other.entered;
        self.max_bypass = self.max_bypass.max(other.max_bypass);
        self.max_messages = self.max_messages.max(other.max_messages);
        self.dearest = dearer(self.dearest, other.dearest);
        self.stood_for += other.stood_for;
        self.expanded += other.expanded;
    }
}

impl Seen {
    /// Whether a complete run took more than `most` messages per entry.
    pub fn costs_more_than(&self, most: u32) -> bool {
        self.dearest
            .is_some_and(|(messages, entries)| messages < u8::MAX && u32::from(messages) > most * entries)
    }
}

/// Of two runs, the one with more messages per entry.
///
/// Fractions are compared by cross-multiplication: 5/2 exceeds 7/3, because 5·3 exceeds 7·2.
pub(super) fn dearer(left: Option<(u8, u32)>, right: Option<(u8, u32)>) -> Option<(u8, u32)> {
    let (Some((messages, entries)), Some((others, their_entries))) = (left, right) else {
        return left.or(right);
    };
    let more = u64::from(others) * u64::from(entries) > u64::from(messages) * u64::from(their_entries);
    if more { right } else { left }
}
