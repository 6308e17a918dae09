//! The state directory: its default path, its creation and its security checks.

use crate::{Error, Result};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Flags to open a directory, or a symbolic link itself, without reading it.
const FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The limit on symbolic links, the same as that of Linux for one path.
const LINKS_MAX: usize = 40;

/// The default directory: `$XDG_STATE_HOME/lockkeeper`, or `~/.local/state/lockkeeper`.
pub(crate) fn default_directory() -> Result<PathBuf> {
    let absolute = |variable| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    match state {
        Some(state) => Ok(state.join("lockkeeper")),
        None => Err(Error::BadUrl {
            url: "file:".into(),
            reason: "neither XDG_STATE_HOME nor HOME is set, so there is no default directory; \
                     name one, as in file:///var/lib/locks"
                .into(),
        }),
    }
}

/// Creates the directory if it is missing (accessible to its user only), checks it, and opens it.
pub(super) fn open(path: &Path) -> Result<(PathBuf, OwnedFd)> {
    let walked = Walk::along(path, true)?;
    walked.vet(false)?;
    let Walked { path, fd, .. } = walked.last();
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let fd =
        fs::openat(fd, ".", flags, Mode::empty()).map_err(|e| Error::io("open the directory", path, e))?;
    refuse_network_file_system(path, &fd)?;
    for part in ["locks", "live"] {
        // A symbolic link here could redirect our writes.
        let look = || fs::statat(&fd, part, AtFlags::SYMLINK_NOFOLLOW);
        let stat = match look() {
            Err(Errno::NOENT) => match fs::mkdirat(&fd, part, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => look(),
                Err(e) => return Err(Error::io("make the directory", path.join(part), e)),
            },
            other => other,
        };
        let stat = stat.map_err(|e| Error::io("look at", path.join(part), e))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Err(Error::Damaged {
                path: path.join(part),
                reason: "it should be a directory; use another state directory".into(),
            });
        }
        refuse_other_owner(&path.join(part), stat.st_uid)?;
    }
    Ok((path.clone(), fd))
}

/// Checks and opens an existing directory that several users share. Its owner is root or this process's user, and it is
/// sticky, so that no user can remove or rename the files of another.
pub(super) fn open_shared(path: &Path) -> Result<(PathBuf, OwnedFd)> {
    let walked = Walk::along(path, false)?;
    let Walked { path, fd, stat } = walked.last();
    // Before the general checks, whose advice is for a directory of one user.
    let (mode, shown) = (stat.st_mode, path.display());
    if mode & 0o022 == 0 || mode & 0o1000 == 0 {
        return Err(Error::UnsafeDirectory {
            path: path.clone(),
            reason: format!(
                "with `?shared`, it must be writable for several users and sticky, and has mode {:04o}; \
                 `chmod 1777 {shown}` shares it with all users, `chgrp GROUP {shown}; chmod 1770 {shown}` with a group",
                mode & 0o7777
            ),
        });
    }
    walked.vet(true)?;
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let fd =
        fs::openat(fd, ".", flags, Mode::empty()).map_err(|e| Error::io("open the directory", path, e))?;
    refuse_network_file_system(path, &fd)?;
    Ok((path.clone(), fd))
}

/// Rejects a file that belongs neither to this process's user nor to root.
pub(super) fn refuse_other_owner(path: &Path, owner: u32) -> Result<()> {
    match owner == 0 || owner == rustix::process::geteuid().as_raw() {
        true => Ok(()),
        false => Err(Error::UnsafeDirectory {
            path: path.to_owned(),
            reason: format!(
                "it belongs to user {owner}, who could change the locks; use a directory of your own"
            ),
        }),
    }
}

/// The directories from the root to one directory, each opened in its parent. No other user can replace one of them
/// unnoticed: the checks use the opened descriptors, not the paths, which may lead to another directory later.
struct Walk {
    opened: Vec<Walked>,
    /// The remaining components of the path, next one first.
    left: VecDeque<OsString>,
    links: usize,
    /// Whether missing directories are created.
    create: bool,
}

struct Walked {
    path: PathBuf,
    fd: OwnedFd,
    stat: Stat,
}

impl Walk {
    /// Walks along an absolute path, and creates missing directories if `create`. Symbolic links are followed if they belong to
    /// this process's user or to root: where `fs.protected_symlinks` is 0, another user's link in /tmp could redirect
    /// our writes.
    fn along(path: &Path, create: bool) -> Result<Walk> {
        let mut walk = Walk { opened: Vec::new(), left: VecDeque::new(), links: 0, create };
        walk.restart(path)?;
        while let Some(name) = walk.left.pop_front() {
            match name.as_bytes() {
                b"." => {}
                b".." if walk.opened.len() == 1 => {}
                b".." => drop(walk.opened.pop()),
                _ => walk.enter(&name)?,
            }
        }
        Ok(walk)
    }

    fn last(&self) -> &Walked {
        self.opened.last().expect("the root is opened first, and never left")
    }

    /// Starts again at the root if the path is absolute, and puts its components before the remaining ones.
    fn restart(&mut self, path: &Path) -> Result<()> {
        if path.is_absolute() {
            let fd = fs::open("/", FLAGS, Mode::empty()).map_err(|e| Error::io("open", "/", e))?;
            let stat = fs::fstat(&fd).map_err(|e| Error::io("look at", "/", e))?;
            self.opened = vec![Walked { path: "/".into(), fd, stat }];
        }
        for component in path.components().rev() {
            match component {
                Component::RootDir | Component::Prefix(_) => {}
                other => self.left.push_front(other.as_os_str().into()),
            }
        }
        Ok(())
    }

    /// Descends from the last directory to one of its entries.
    fn enter(&mut self, name: &OsStr) -> Result<()> {
        let path = self.last().path.join(name);
        let open = || fs::openat(&self.last().fd, name, FLAGS, Mode::empty());
        let opened = match open() {
            Err(Errno::NOENT) if self.create => match fs::mkdirat(&self.last().fd, name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => open(),
                Err(e) => return Err(Error::io("make the directory", path, e)),
            },
            other => other,
        };
        let fd = opened.map_err(|e| Error::io("open the directory", &path, e))?;
        let stat = fs::fstat(&fd).map_err(|e| Error::io("look at", &path, e))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => self.opened.push(Walked { path, fd, stat }),
            FileType::Symlink => self.follow(&path, &fd, stat.st_uid)?,
            _ => return Err(Error::io("make the directory", path, Errno::NOTDIR)),
        }
        Ok(())
    }

    fn follow(&mut self, path: &Path, link: &OwnedFd, owner: u32) -> Result<()> {
        if owner != 0 && owner != rustix::process::geteuid().as_raw() {
            return Err(Error::UnsafeDirectory {
                path: path.to_owned(),
                reason: format!(
                    "it is a symbolic link of user {owner}, who could lead it elsewhere; name its target"
                ),
            });
        }
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Error::io("open the directory", path, Errno::LOOP));
        }
        let target = fs::readlinkat(link, "", Vec::new()).map_err(|e| Error::io("follow", path, e))?;
        self.restart(Path::new(OsStr::from_bytes(target.as_bytes())))
    }

    /// Rejects a directory in which another user could create, replace or remove files. The last one may be `shared`:
    /// others may then create files in it.
    fn vet(&self, shared: bool) -> Result<()> {
        let me = rustix::process::geteuid().as_raw();
        let my_group = rustix::process::getegid().as_raw();
        let unsafe_because =
            |reason: String| Error::UnsafeDirectory { path: self.last().path.clone(), reason };
        for (depth, Walked { path, stat, .. }) in self.opened.iter().rev().enumerate() {
            let (mode, shown) = (stat.st_mode, path.display());
            if stat.st_uid != me && stat.st_uid != 0 {
                return Err(unsafe_because(format!(
                    "{shown} belongs to user {}; use a directory of your own",
                    stat.st_uid
                )));
            }
            // Under a sticky directory, such as /tmp, other users cannot rename or remove our files.
            let sticky_above = (depth > 0 || shared) && mode & 0o1000 != 0;
            let group_can =
                mode & 0o020 != 0 && (depth == 0 || (stat.st_gid != my_group && stat.st_gid != 0));
            if (mode & 0o002 != 0 || group_can) && !sticky_above {
                return Err(unsafe_because(format!(
                    "other users can write to {shown} (mode {:04o}); `chmod go-w` it or use another",
                    mode & 0o7777
                )));
            }
        }
        Ok(())
    }
}

/// Rejects network file systems: the FIFOs that show which owners are alive do not work across machines.
fn refuse_network_file_system(path: &Path, fd: &OwnedFd) -> Result<()> {
    // The numbers are from linux/magic.h.
    const NETWORK: [(u32, &str); 8] = [
        (0x6969, "NFS"),
        (0x517b, "SMB"),
        (0xff53_4d42, "CIFS"),
        (0xfe53_4d42, "SMB2"),
        (0x0102_1997, "9P"),
        (0x00c3_6400, "Ceph"),
        (0x5346_414f, "AFS"),
        (0x0bd0_0bd0, "Lustre"),
    ];
    let stat = fs::fstatfs(fd).map_err(|e| Error::io("look at the file system of", path, e))?;
    match NETWORK.iter().find(|(magic, _)| i64::from(*magic) == stat.f_type as i64 & 0xffff_ffff) {
        None => Ok(()),
        Some((_, kind)) => Err(Error::UnsafeDirectory {
            path: path.to_owned(),
            reason: format!(
                "it is on {kind}, and file locks reach only one machine; \
                 use a local directory, or a server such as etcd://"
            ),
        }),
    }
}
