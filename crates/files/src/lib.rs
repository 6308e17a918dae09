//! Files that hold secrets or decide about access, read only if no other user can read or change them.
//!
//! | function | for | refuses |
//! |---|---|---|
//! | [`read_secret`] | private keys, tokens | a file that another user can read or change |
//! | [`read_trusted`] | the file of token hashes | a file that another user can change |
//!
//! The rule for secrets is PostgreSQL's: a file of this process's user has mode 0600 or less; a file of root may also be read by its group,
//! since that is how systems hand secrets to a service. Pipes and other special files have no mode that matters, and are read as they are.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The reason why a file is not protected from other users. Errors of kind [`ErrorKind::PermissionDenied`] contain it
/// ([`Error::get_ref`]), unless they are from the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unprotected {
    /// A secret belongs to another user, who could change it.
    Owner {
        /// The user that owns the file.
        owner: u32,
        /// The user of this process.
        me: u32,
    },
    /// Other users can read or change a secret.
    Secret {
        /// The file's mode.
        mode: u32,
    },
    /// Other users can change a file that decides about access.
    Trusted {
        /// The file's mode.
        mode: u32,
    },
}

impl fmt::Display for Unprotected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner { owner, me } => write!(
                f,
                "it belongs to user {owner}, who could change it; make it a file of user {me}, or of root"
            ),
            Self::Secret { mode } => {
                write!(
                    f,
                    "other users can read or change this secret (mode {mode:04o}); run `chmod 600` on it"
                )
            }
            Self::Trusted { mode } => {
                write!(f, "other users can change it (mode {mode:04o}); run `chmod go-w` on it")
            }
        }
    }
}

impl std::error::Error for Unprotected {}

/// Permissions of the group and of others.
const GROUP_AND_OTHERS: u32 = 0o077;
/// Permission bits that a secret owned by root must not have. The group may read it.
const ALL_BUT_GROUP_READ: u32 = 0o037;
/// Writing by the group and by others.
const GROUP_AND_OTHERS_WRITE: u32 = 0o022;

/// Reads a private key or a token. The error names the file's problem and the `chmod` that solves it, but not the file.
pub fn read_secret(path: &Path) -> Result<Vec<u8>> {
    read_checked(path, |metadata| {
        let (owner, me) = (metadata.uid(), rustix::process::geteuid().as_raw());
        if owner != me && owner != 0 {
            return Err(Unprotected::Owner { owner, me });
        }
        let denied = if owner == me { GROUP_AND_OTHERS } else { ALL_BUT_GROUP_READ };
        match metadata.mode() & denied {
            0 => Ok(()),
            _ => Err(Unprotected::Secret { mode: metadata.mode() & 0o7777 }),
        }
    })
}

/// [`read_secret`], as text without white space around it.
pub fn read_secret_text(path: &Path) -> Result<String> {
    let text = String::from_utf8(read_secret(path)?);
    let text = text.map_err(|_| Error::new(ErrorKind::InvalidData, "it is not UTF-8"))?;
    Ok(text.trim().to_owned())
}

/// Reads a file that decides who may do what. It may be readable by all users, but only its owner may change it.
pub fn read_trusted(path: &Path) -> Result<String> {
    let bytes = read_checked(path, |metadata| match metadata.mode() & GROUP_AND_OTHERS_WRITE {
        0 => Ok(()),
        _ => Err(Unprotected::Trusted { mode: metadata.mode() & 0o7777 }),
    })?;
    String::from_utf8(bytes).map_err(|_| Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
}

/// The check concerns the file that was opened: another one cannot take its place in between.
fn read_checked(
    path: &Path,
    check: impl FnOnce(&Metadata) -> std::result::Result<(), Unprotected>,
) -> Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() {
        check(&metadata).map_err(|reason| Error::new(ErrorKind::PermissionDenied, reason))?;
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown};

    /// A file with this mode, and of this user if one is given.
    fn file(mode: u32, owner: Option<u32>) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "secret\n").unwrap();
        std::fs::set_permissions(file.path(), PermissionsExt::from_mode(mode)).unwrap();
        if let Some(owner) = owner {
            chown(file.path(), Some(owner), None).unwrap();
        }
        file
    }

    #[test]
    fn secrets_that_others_can_read_are_refused_with_the_chmod_that_helps() {
        for mode in [0o600, 0o400] {
            assert_eq!(read_secret_text(file(mode, None).path()).unwrap(), "secret");
        }
        for mode in [0o640, 0o604, 0o644, 0o620, 0o602, 0o660, 0o666] {
            let error = read_secret(file(mode, None).path()).unwrap_err().to_string();
            assert!(error.contains("chmod 600") && error.contains(&format!("{mode:04o}")), "{error}");
        }
    }

    #[test]
    fn secrets_of_another_user_are_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let error = read_secret(file(0o600, Some(65534)).path()).unwrap_err().to_string();
        assert!(error.contains("belongs to user 65534"), "{error}");
    }

    #[test]
    fn files_that_decide_about_access_may_be_read_by_others_but_not_changed() {
        for mode in [0o600, 0o640, 0o644] {
            assert_eq!(read_trusted(file(mode, None).path()).unwrap(), "secret\n");
        }
        for mode in [0o664, 0o646, 0o622, 0o666] {
            let error = read_trusted(file(mode, None).path()).unwrap_err();
            let reason = error.get_ref().and_then(|reason| reason.downcast_ref());
            assert_eq!(reason, Some(&Unprotected::Trusted { mode }));
            assert!(error.to_string().contains("chmod go-w"), "{error}");
        }
    }

    #[test]
    fn pipes_are_read_whatever_their_mode() {
        assert_eq!(read_secret(Path::new("/dev/null")).unwrap(), b"");
    }
}
