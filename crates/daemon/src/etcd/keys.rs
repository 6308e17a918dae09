//! Keys and revisions of etcd's client-side recipes.
//!
//! | key | meaning |
//! |---|---|
//! | the lock's name, a slash, and the lease in hexadecimal digits (node's client: in decimal digits) | a hold of the lock by the lease, or its place in the queue |
//! | the lock's name, a slash, a ticket in hexadecimal digits, and `.turn` | a gate |
//! | any other key | a bare key: a lock with the whole key as its name |
//!
//! A lease that waits has a **ticket**, a number that is no fence. It stands where etcd has the create revision of the
//! waiter's key. The key that a waiter waits for is a **gate**: it exists while the ticket waits, and it is "deleted" when
//! the lock is granted. So the order of grants is the daemon's, and no number that a client can take for a fence is given
//! before the grant.

use crate::leases::LeaseId;

/// Set in every ticket. The fence of a view reaches it in the year 2058 at the earliest: epochs begin at the seconds since
/// 2024 and are shifted by 32 bits.
const TICKET_BIT: i64 = 1 << 62;
/// Ends the key of a gate.
const GATE_SUFFIX: &str = ".turn";

/// The number of a place in the queue of a lock: the bit above all fences, and the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket(LeaseId);

impl Ticket {
    /// The ticket of a lease; `None` if the id of the lease has no room for the bit.
    pub fn of(lease: LeaseId) -> Option<Self> {
        (lease.number() < TICKET_BIT).then_some(Self(lease))
    }

    /// The ticket with this number; `None` for other numbers, such as fences.
    pub fn from_number(number: i64) -> Option<Self> {
        (number > TICKET_BIT).then(|| LeaseId::new(number ^ TICKET_BIT).map(Self)).flatten()
    }

    pub fn number(self) -> i64 {
        self.0.number() | TICKET_BIT
    }

    pub fn lease(self) -> LeaseId {
        self.0
    }

    /// The key of its gate for a lock.
    pub fn gate(self, lock: &str) -> Vec<u8> {
        format!("{lock}/{:x}{GATE_SUFFIX}", self.number()).into_bytes()
    }
}

/// Splits the key of a gate into the lock and the ticket.
pub(super) fn parse_gate(key: &[u8]) -> Option<(&str, Ticket)> {
    let (lock, number) = std::str::from_utf8(key).ok()?.strip_suffix(GATE_SUFFIX)?.rsplit_once('/')?;
    let number: LeaseId = number.parse().ok()?;
    Some((lock, Ticket::from_number(number.number())?))
}

/// The lock of a key that ends with this lease; `None` for other keys.
pub(super) fn lock_by_lease(key: &[u8], lease: LeaseId) -> Option<&str> {
    let (lock, digits) = std::str::from_utf8(key).ok()?.rsplit_once('/')?;
    (digits == lease.to_string() || digits == lease.number().to_string()).then_some(lock)
}

/// The locks and leases that a key may mean: its last part in hexadecimal digits, then in decimal ones.
pub(super) fn entries_of(key: &[u8]) -> Vec<(&str, LeaseId)> {
    let Some((lock, digits)) = std::str::from_utf8(key).ok().and_then(|key| key.rsplit_once('/')) else {
        return Vec::new();
    };
    let canonical = |lease: &LeaseId| lease.number().to_string() == digits;
    let decimal = digits.parse().ok().and_then(LeaseId::new).filter(canonical);
    let mut leases: Vec<LeaseId> = digits.parse().into_iter().chain(decimal).collect();
    leases.dedup();
    leases.into_iter().map(|lease| (lock, lease)).collect()
}

/// The lock whose keys are in this range: from the lock's name and a slash to the end of that prefix. Node's client begins
/// one byte later.
pub(super) fn lock_of_prefix<'a>(key: &'a [u8], range_end: &[u8]) -> Option<&'a [u8]> {
    let lock = key.strip_suffix(b"\0").unwrap_or(key).strip_suffix(b"/")?;
    // The byte after the slash is '0'.
    (range_end.split_last() == Some((&b'0', lock))).then_some(lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(number: i64) -> LeaseId {
        LeaseId::new(number).unwrap()
    }

    #[test]
    fn ticket_names_its_lease_and_is_above_all_fences_of_this_century() {
        let ticket = Ticket::of(lease(0x1_8000_0001)).unwrap();
        assert_eq!(Ticket::from_number(ticket.number()), Some(ticket));
        assert_eq!(ticket.lease(), lease(0x1_8000_0001));
        // Epochs are seconds since 2024; this one is 30 years later.
        let fence = lockkeeper_session::Fence::new(30 * 365 * 86_400, u64::from(u32::MAX)).unwrap();
        let fence = i64::try_from(fence.number()).unwrap();
        assert!(ticket.number() > fence);
        assert_eq!(Ticket::from_number(fence), None);
        assert_eq!(Ticket::from_number(TICKET_BIT), None, "there is no lease 0");
        assert_eq!(Ticket::of(lease(1 << 62)), None, "no room for the bit");
    }

    #[test]
    fn gate_parses_back_and_other_keys_are_no_gates() {
        let ticket = Ticket::of(lease(0xab)).unwrap();
        assert_eq!(ticket.gate("a/b"), b"a/b/40000000000000ab.turn");
        assert_eq!(parse_gate(&ticket.gate("a/b")), Some(("a/b", ticket)));
        for key in ["a/b", "a/ab.turn", "40000000000000ab.turn", "a/x0000000000000ab.turn", ".turn", ""] {
            assert_eq!(parse_gate(key.as_bytes()), None, "{key}");
        }
    }

    #[test]
    fn keys_name_their_lease_in_hexadecimal_or_decimal_digits() {
        assert_eq!(lock_by_lease(b"a/b/ff", lease(255)), Some("a/b"));
        assert_eq!(lock_by_lease(b"a/b/255", lease(255)), Some("a/b"));
        for key in ["a/0ff", "a/FF", "a/fe", "ff", "a/ff/"] {
            assert_eq!(lock_by_lease(key.as_bytes(), lease(255)), None, "{key}");
        }
        assert_eq!(entries_of(b"a/10"), [("a", lease(16)), ("a", lease(10))]);
        assert_eq!(entries_of(b"a/7"), [("a", lease(7))]);
        assert_eq!(entries_of(b"a/ff"), [("a", lease(255))]);
        for key in ["a/x", "a/", "a", "a/+7", "a/-7", "a/0"] {
            assert_eq!(entries_of(key.as_bytes()), [], "{key}");
        }
    }

    #[test]
    fn prefix_of_a_lock_is_its_name_with_a_slash() {
        assert_eq!(lock_of_prefix(b"a/", b"a0"), Some(&b"a"[..]));
        assert_eq!(lock_of_prefix(b"a/\0", b"a0"), Some(&b"a"[..]));
        assert_eq!(lock_of_prefix(b"/", b"0"), Some(&b""[..]));
        for (key, end) in [(&b"a"[..], &b"b"[..]), (b"a/", b"a1"), (b"a/", b"b0"), (b"a/", b""), (b"", b"\0")]
        {
            assert_eq!(lock_of_prefix(key, end), None, "{key:?} {end:?}");
        }
    }
}
