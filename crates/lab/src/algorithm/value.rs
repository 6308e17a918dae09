//! Messages and timers without their types, for drivers that store them one by one.
//!
//! Equality, order and hash of a value are those of the algorithm's own type, so that a search has the same states in
//! the same order as one that is compiled for the type. A value never changes, so that its copies share it.

use crate::simulator::observer::encoded_size;
use lockkeeper_core::MessageKinds;
use std::any::Any;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A message or a timer of an algorithm. Only values of one type are compared with each other.
pub struct Value<V: ?Sized>(Arc<V>);

/// A message.
pub type Message = Value<dyn AnyMessage>;

/// A timer.
pub type Timer = Value<dyn AnyTimer>;

/// The operations on every value.
pub trait AnyValue: Any + Send + Sync {
    /// The value with a type that can be found out.
    fn as_any(&self) -> &dyn Any;

    /// The order of the values of this type.
    fn compare(&self, other: &dyn Any) -> Ordering;

    /// Feeds the value to a hasher.
    fn hash_into(&self, hasher: &mut dyn Hasher);
}

/// A message of an algorithm.
pub trait AnyMessage: AnyValue + fmt::Display {
    /// The index of the message's type.
    fn kind(&self) -> usize;

    /// The size of the message in a compact binary encoding.
    fn bytes(&self) -> u64;
}

/// A timer of an algorithm.
pub trait AnyTimer: AnyValue {}

impl<T: lockkeeper_core::Value> AnyValue for T {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn compare(&self, other: &dyn Any) -> Ordering {
        self.cmp(typed(other))
    }

    fn hash_into(&self, mut hasher: &mut dyn Hasher) {
        self.hash(&mut hasher);
    }
}

impl<M: lockkeeper_core::Value + MessageKinds + fmt::Display> AnyMessage for M {
    fn kind(&self) -> usize {
        MessageKinds::kind(self)
    }

    fn bytes(&self) -> u64 {
        encoded_size(self)
    }
}

impl<T: lockkeeper_core::Value> AnyTimer for T {}

fn typed<T: Any>(value: &dyn Any) -> &T {
    value.downcast_ref().expect("a value of the same algorithm")
}

impl<V: AnyValue + ?Sized> Value<V> {
    /// The value as one of its type.
    ///
    /// # Panics
    /// If the value belongs to another algorithm.
    pub(crate) fn typed<T: Any>(&self) -> &T {
        typed(self.0.as_any())
    }
}

impl Message {
    pub(crate) fn new(message: impl lockkeeper_core::Value + MessageKinds + fmt::Display) -> Self {
        Self(Arc::new(message))
    }

    /// The index of the message's type.
    pub fn kind(&self) -> usize {
        self.0.kind()
    }

    /// The size of the message in a compact binary encoding.
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}

impl Timer {
    pub(crate) fn new(timer: impl lockkeeper_core::Value) -> Self {
        Self(Arc::new(timer))
    }
}

impl<V: ?Sized> Clone for Value<V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<V: AnyValue + ?Sized> PartialEq for Value<V> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<V: AnyValue + ?Sized> Eq for Value<V> {}

impl<V: AnyValue + ?Sized> PartialOrd for Value<V> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<V: AnyValue + ?Sized> Ord for Value<V> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.compare(other.0.as_any())
    }
}

impl<V: AnyValue + ?Sized> Hash for Value<V> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash_into(state);
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("timer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_core::algorithms::ricart_agrawala as ra;
    use std::hash::{BuildHasher, RandomState};

    #[test]
    fn messages_are_equal_ordered_hashed_and_displayed_as_their_type_is() {
        let messages = [ra::Message::Request(2), ra::Message::Request(7), ra::Message::Reply];
        let hasher = RandomState::new();
        for one in messages {
            for other in messages {
                let (erased, others) = (Message::new(one), Message::new(other));
                assert_eq!(erased.cmp(&others), one.cmp(&other));
                assert_eq!(erased == others, one == other);
                assert_eq!(hasher.hash_one(&erased), hasher.hash_one(one));
                assert_eq!(erased.to_string(), one.to_string());
                assert_eq!(erased.kind(), MessageKinds::kind(&one));
            }
        }
    }
}
