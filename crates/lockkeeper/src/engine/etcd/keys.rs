//! The names of keys: see the parent module.

use super::server::unavailable;
use crate::engine::request_queue::{QueuedRequest, RequestQueue, escaped};
use crate::info::LockMode;
use crate::{LockName, Result};
use lockkeeper_etcd_api::mvccpb::KeyValue;

/// All keys from `start` up to, but not including, `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub start: String,
    pub end: String,
}

impl Range {
    /// Everything below a path, which ends with a slash: the next character after `/` is `0`.
    fn below(path: &str) -> Range {
        let end = path.strip_suffix('/').map(|path| format!("{path}0"));
        Range { start: path.into(), end: end.unwrap_or_default() }
    }
}

impl From<&str> for Range {
    /// The range of a single key.
    fn from(key: &str) -> Range {
        Range { start: key.into(), end: format!("{key}\0") }
    }
}

/// The path of all locks of an engine.
pub(super) struct Root(String);

impl Root {
    /// Returns `None` if the path is too long to leave room for names.
    pub fn new(path: &str) -> Option<Root> {
        match path.len() {
            0 => Some(Root("/lockkeeper/".into())),
            1..=512 => Some(Root(format!("{path}/"))),
            _ => None,
        }
    }

    pub fn all(&self) -> Range {
        Range::below(&self.0)
    }

    pub fn of(&self, name: &LockName) -> LockKeys {
        LockKeys(format!("{}{}/", self.0, escaped(name.as_str())))
    }

    /// The key that leads to the detached hold of an owner. No lock has it: a dot in a name is escaped.
    pub fn owner(&self, name: &LockName, owner: &str) -> String {
        format!("{}.as/{}/{}", self.0, escaped(name.as_str()), escaped(owner))
    }
}

/// The keys of one lock.
#[derive(Clone)]
pub(super) struct LockKeys(String);

impl LockKeys {
    pub fn all(&self) -> Range {
        Range::below(&self.0)
    }

    /// The key of one acquisition.
    pub fn own(&self, mode: LockMode, holder: &str) -> String {
        let holder = escaped(holder);
        match mode {
            LockMode::Exclusive => format!("{}m/x.{holder}", self.0),
            LockMode::Shared => format!("{}m/s.{holder}", self.0),
            LockMode::Permit { of } => format!("{}p{of}/{holder}", self.0),
        }
    }

    /// The keys of all requests for the same type of lock.
    pub fn same_mode(&self, mode: LockMode) -> Range {
        match mode {
            LockMode::Exclusive | LockMode::Shared => Range::below(&format!("{}m/", self.0)),
            LockMode::Permit { of } => Range::below(&format!("{}p{of}/", self.0)),
        }
    }

    /// The ranges that must be empty for the name to be this type of lock: before and after [`Self::same_mode`].
    pub fn other_modes(&self, mode: LockMode) -> [Range; 2] {
        let (all, same) = (self.all(), self.same_mode(mode));
        [Range { start: all.start, end: same.start }, Range { start: same.end, end: all.end }]
    }

    /// The queue that these keys form. A foreign key is an error, as guessing its meaning would be unsafe.
    pub fn queue(&self, found: &[KeyValue]) -> Result<RequestQueue> {
        let request = |kv: &KeyValue| {
            let id = std::str::from_utf8(&kv.key).ok()?;
            let mode = mode_of(id.strip_prefix(&self.0)?)?;
            Some(QueuedRequest { id: id.into(), number: kv.create_revision, mode })
        };
        let foreign = |kv: &KeyValue| {
            let key = String::from_utf8_lossy(&kv.key);
            unavailable(format!(
                "the key {key:?} is not Lockkeeper's; delete it or name another path in the URL"
            ))
        };
        let requests = found.iter().map(|kv| request(kv).ok_or_else(|| foreign(kv)));
        Ok(RequestQueue::new(requests.collect::<Result<_>>()?))
    }
}

fn mode_of(below: &str) -> Option<LockMode> {
    let (lock, request) = below.split_once('/')?;
    match (lock, request.split_at_checked(2)) {
        ("m", Some(("x.", _))) => Some(LockMode::Exclusive),
        ("m", Some(("s.", _))) => Some(LockMode::Shared),
        _ => Some(LockMode::Permit { of: lock.strip_prefix('p')?.parse().ok()? }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_testbed::every_variant;
    use lockkeeper_testbed::golden::Golden;

    fn contains(range: &Range, key: &str) -> bool {
        range.start.as_str() <= key && key < range.end.as_str()
    }

    #[test]
    fn each_mode_is_in_its_range_and_in_no_other() {
        let keys = Root::new("").unwrap().of(&LockName::new("a/b").unwrap());
        let modes =
            [LockMode::Exclusive, LockMode::Shared, LockMode::Permit { of: 3 }, LockMode::Permit { of: 30 }];
        for mode in modes {
            let own = keys.own(mode, "host/1/x.0");
            assert_eq!(own.strip_prefix("/lockkeeper/a%2Fb/").and_then(mode_of), Some(mode));
            for other in modes {
                let same = mode.same_lock_as(other);
                assert_eq!(contains(&keys.same_mode(other), &own), same, "{mode} {other}");
                let conflicts = keys.other_modes(other).iter().any(|range| contains(range, &own));
                assert_eq!(conflicts, !same, "{mode} {other}");
            }
        }
    }

    #[test]
    fn keys_of_different_locks_are_disjoint() {
        let root = Root::new("/team").unwrap();
        let of = |name: &str| root.of(&LockName::new(name).unwrap());
        for (name, other) in [("a", "a/m"), ("a", "a0"), ("a", "a/"), ("..", "a")] {
            assert!(!contains(&of(name).all(), &of(other).own(LockMode::Exclusive, "h")), "{name} {other}");
            assert!(contains(&root.all(), &of(other).own(LockMode::Exclusive, "h")));
        }
        assert!(Root::new(&"x".repeat(513)).is_none());
        for name in [".as", ".as/a", "a", "."] {
            let owner = root.owner(&LockName::new("a").unwrap(), "web-3");
            assert_eq!(owner, "/team/.as/a/web-3");
            assert!(!contains(&of(name).all(), &owner), "{name}");
        }
    }

    /// Clients of different versions use the keys of one server.
    #[test]
    fn names_of_keys_do_not_change() {
        let mut golden = Golden::default();
        let modes = every_variant!(LockMode {
            "exclusive": LockMode::Exclusive => LockMode::Exclusive,
            "shared": LockMode::Shared => LockMode::Shared,
            "permit": LockMode::Permit { .. } => LockMode::Permit { of: 3 },
        });
        for (root, path) in [("default", ""), ("path", "/team")] {
            let (keys, name) = (Root::new(path).unwrap(), LockName::new("a/b").unwrap());
            for (mode_name, mode) in &modes {
                golden.text(&format!("{root} {mode_name}"), &keys.of(&name).own(*mode, "host/1/x.0"));
            }
            golden.text(&format!("{root} owner"), &keys.owner(&name, "web.3"));
        }
        golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/etcd-keys.txt");
    }
}
