//! The names of nodes: see the parent module.

use super::detached::LiveHold;
use crate::LockName;
use crate::engine::request_queue::{QueuedRequest, RequestQueue, escaped};
use crate::info::LockMode;

/// The reason why ZooKeeper would reject the path of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PathError {
    #[error("its path is longer than 512 bytes")]
    TooLong,
    #[error("its path has an empty, `.` or `..` component")]
    Component,
}

/// The path of all locks of an engine.
pub(super) struct Root(String);

impl Root {
    /// Checks the path of a URL.
    pub fn new(path: &str) -> Result<Root, PathError> {
        let mut parts = path.split('/').skip(1);
        match path {
            "" => Ok(Root("/lockkeeper".into())),
            _ if path.len() > 512 => Err(PathError::TooLong),
            _ if parts.any(|part| matches!(part, "" | "." | "..")) => Err(PathError::Component),
            _ => Ok(Root(path.into())),
        }
    }

    pub fn path(&self) -> &str {
        &self.0
    }

    pub fn of(&self, name: &LockName) -> LockNode {
        self.child(&escaped(name.as_str()))
    }

    /// The lock whose node has this name.
    pub fn child(&self, node: &str) -> LockNode {
        LockNode(format!("{}/{node}", self.0))
    }
}

/// The node of one lock.
#[derive(Clone)]
pub(super) struct LockNode(String);

impl LockNode {
    pub fn path(&self) -> &str {
        &self.0
    }

    pub fn child(&self, name: &str) -> String {
        format!("{}/{name}", self.0)
    }
}

/// The name of an acquisition's node, up to the number that ZooKeeper appends.
pub(super) fn prefix(mode: LockMode, holder: &str) -> String {
    format!("{}.{}-", letter(mode), escaped(holder))
}

fn letter(mode: LockMode) -> char {
    match mode {
        LockMode::Exclusive => 'x',
        LockMode::Shared => 's',
        LockMode::Permit { .. } => 'p',
    }
}

/// The name of the node of an owner's detached hold.
pub(super) fn detached(mode: LockMode, owner: &str) -> String {
    format!("d{}.{}", letter(mode), escaped(owner))
}

/// Whether this is the name of a detached hold's node.
pub(super) fn is_detached(child: &str) -> bool {
    matches!(child.split_once('.'), Some(("dx" | "ds" | "dp", _)))
}

/// Whether this is the name of the node of this owner's detached hold.
pub(super) fn is_detached_for(child: &str, owner: &str) -> bool {
    is_detached(child) && child.split_once('.').is_some_and(|(_, name)| name == escaped(owner))
}

/// The type of lock, as data of the lock's node.
pub(super) fn lock_data(mode: LockMode) -> String {
    match mode {
        LockMode::Exclusive | LockMode::Shared => "m".into(),
        LockMode::Permit { of } => format!("p{of}"),
    }
}

/// The inverse of [`lock_data`]; any mutex is `Exclusive`.
pub(super) fn lock_mode(data: &[u8]) -> Option<LockMode> {
    match std::str::from_utf8(data).ok()? {
        "m" => Some(LockMode::Exclusive),
        permits => Some(LockMode::Permit { of: permits.strip_prefix('p')?.parse().ok()? }),
    }
}

/// The queue that the children of a lock's node form; `None` if one of them is foreign. The detached holds come first,
/// each in place of its ephemeral node.
///
/// The numbers wrap around after 2³¹ children; by then the container has been removed many times, unless there was a
/// waiter all the time.
pub(super) fn queue(lock: LockMode, children: &[String], detached: &[LiveHold]) -> Option<RequestQueue> {
    let holds = (i64::MIN..).zip(detached).map(|(number, hold)| QueuedRequest {
        id: hold.id.clone(),
        number,
        mode: hold.mode,
    });
    let counts =
        |child: &&String| !is_detached(child) && !detached.iter().any(|hold| child.starts_with(&hold.prefix));
    let request = |child: &String| {
        let mode = match (child.split_once('.')?.0, lock) {
            ("x", _) => LockMode::Exclusive,
            ("s", _) => LockMode::Shared,
            ("p", LockMode::Permit { of }) => LockMode::Permit { of },
            // A request for another semaphore, which is about to detect that and to leave.
            ("p", _) => LockMode::Permit { of: 1 },
            _ => return None,
        };
        let number = child.rsplit_once('-')?.1.parse().ok()?;
        Some(QueuedRequest { id: child.clone(), number, mode })
    };
    let mut requests: Vec<QueuedRequest> = holds.collect();
    requests.extend(children.iter().filter(counts).map(request).collect::<Option<Vec<_>>>()?);
    Some(RequestQueue::new(requests))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_testbed::every_variant;
    use lockkeeper_testbed::golden::Golden;

    #[test]
    fn children_are_ordered_by_sequence_number() {
        let permit = LockMode::Permit { of: 3 };
        let children: Vec<String> =
            [(LockMode::Shared, 12), (LockMode::Exclusive, 9), (LockMode::Shared, 10)]
                .map(|(mode, number)| format!("{}{number:010}", prefix(mode, "host-1/2/x.0")))
                .to_vec();
        let queue = queue(LockMode::Exclusive, &children, &[]).unwrap();
        let modes: Vec<LockMode> = queue.requests().iter().map(|request| request.mode).collect();
        assert_eq!(modes, [LockMode::Exclusive, LockMode::Shared, LockMode::Shared]);
        assert_eq!(queue.requests()[0].id, children[1]);
        let permits = [format!("{}0000000001", prefix(permit, "h"))];
        assert_eq!(super::queue(permit, &permits, &[]).unwrap().requests()[0].mode, permit);
        for strange in ["", "x", "x.", "x.h-", "q.h-1", "x.h-y"] {
            assert_eq!(super::queue(permit, &[strange.to_owned()], &[]), None, "{strange:?}");
        }
    }

    #[test]
    fn names_of_detached_holds_are_recognized_by_their_owner() {
        for (mode, name) in [
            (LockMode::Exclusive, "dx.web-3%2E%2F"),
            (LockMode::Shared, "ds.web-3%2E%2F"),
            (LockMode::Permit { of: 3 }, "dp.web-3%2E%2F"),
        ] {
            assert_eq!(detached(mode, "web-3./"), name);
            assert!(is_detached_for(name, "web-3./") && !is_detached_for(name, "web-3"));
            // As versions of this engine that do not know detached holds see it.
            assert!(!["x", "s", "p"].contains(&name.split_once('.').unwrap().0));
        }
        assert!(!is_detached(&format!("{}0000000001", prefix(LockMode::Exclusive, "dx.a"))));
    }

    #[test]
    fn the_mode_of_a_lock_is_read_back() {
        for mode in [LockMode::Exclusive, LockMode::Permit { of: 1 }, LockMode::Permit { of: u32::MAX }] {
            assert_eq!(lock_mode(lock_data(mode).as_bytes()), Some(mode));
        }
        for strange in [&b""[..], b"x", b"p", b"p-1", b"p99999999999", b"\xff"] {
            assert_eq!(lock_mode(strange), None);
        }
    }

    #[test]
    fn paths_that_zookeeper_rejects_are_errors() {
        assert_eq!(Root::new("/a/b").unwrap().of(&LockName::new("../x").unwrap()).path(), "/a/b/%2E%2E%2Fx");
        assert_eq!(Root::new("").unwrap().path(), "/lockkeeper");
        for bad in ["/a//b", "/../b", "/a/."] {
            assert_eq!(Root::new(bad).err(), Some(PathError::Component), "{bad}");
        }
        assert_eq!(Root::new(&"/x".repeat(400)).err(), Some(PathError::TooLong));
    }

    /// Clients of different versions use the nodes of one ensemble.
    #[test]
    fn names_of_nodes_do_not_change() {
        let mut golden = Golden::default();
        let name = LockName::new("a/b").unwrap();
        for (root, path) in [("default", ""), ("path", "/team")] {
            golden.text(&format!("{root} lock"), Root::new(path).unwrap().of(&name).path());
        }
        let modes = every_variant!(LockMode {
            "exclusive": LockMode::Exclusive => LockMode::Exclusive,
            "shared": LockMode::Shared => LockMode::Shared,
            "permit": LockMode::Permit { .. } => LockMode::Permit { of: 3 },
        });
        for (name, mode) in modes {
            golden.text(&format!("{name} data-of-lock"), &lock_data(mode));
            golden.text(&format!("{name} request"), &prefix(mode, "host/1/x.0"));
            golden.text(&format!("{name} detached"), &detached(mode, "web.3"));
        }
        golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/zookeeper-nodes.txt");
    }
}
