//! Finding, making and vetting the state directory.

use crate::{Error, Result};
use rustix::fs::{self, AtFlags, Mode, OFlags};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// `$XDG_STATE_HOME/lockkeeper`, or `~/.local/state/lockkeeper`.
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

/// Makes the directory if it is missing (for its user alone), vets it, and opens it.
pub(super) fn open(path: &Path) -> Result<(PathBuf, OwnedFd)> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|e| Error::io("make the directory", path, e))?;
    let path = path.canonicalize().map_err(|e| Error::io("resolve", path, e))?;
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let fd = fs::open(&path, flags, Mode::empty()).map_err(|e| Error::io("open the directory", &path, e))?;
    vet(&path)?;
    refuse_network_file_system(&path, &fd)?;
    for part in ["locks", "live"] {
        match fs::mkdirat(&fd, part, Mode::RWXU) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(e) => return Err(Error::io("make the directory", path.join(part), e)),
        }
        // A symbolic link here could lead our writes elsewhere.
        let stat = fs::statat(&fd, part, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|e| Error::io("look at", path.join(part), e))?;
        if fs::FileType::from_raw_mode(stat.st_mode) != fs::FileType::Directory {
            return Err(Error::Damaged {
                path: path.join(part),
                reason: "it should be a directory; use another state directory".into(),
            });
        }
    }
    Ok((path, fd))
}

/// Refuses a directory in which another user could put, replace or remove files.
fn vet(path: &Path) -> Result<()> {
    let me = rustix::process::geteuid().as_raw();
    let my_group = rustix::process::getegid().as_raw();
    let unsafe_because = |reason: String| Error::UnsafeDirectory { path: path.to_owned(), reason };
    for (depth, ancestor) in path.ancestors().enumerate() {
        let meta = std::fs::metadata(ancestor).map_err(|e| Error::io("look at", ancestor, e))?;
        let (mode, shown) = (meta.mode(), ancestor.display());
        if meta.uid() != me && meta.uid() != 0 {
            return Err(unsafe_because(format!(
                "{shown} belongs to user {}; use a directory of your own",
                meta.uid()
            )));
        }
        // Under a sticky directory, such as /tmp, nobody else can rename or remove what is ours.
        let sticky_above = depth > 0 && mode & 0o1000 != 0;
        let group_can = mode & 0o020 != 0 && (depth == 0 || (meta.gid() != my_group && meta.gid() != 0));
        if (mode & 0o002 != 0 || group_can) && !sticky_above {
            return Err(unsafe_because(format!(
                "other users can write to {shown} (mode {:04o}); `chmod go-w` it or use another",
                mode & 0o7777
            )));
        }
    }
    Ok(())
}

/// The FIFOs that say who lives do not reach across machines.
fn refuse_network_file_system(path: &Path, fd: &OwnedFd) -> Result<()> {
    // From linux/magic.h.
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
