//! [`JoinToken`]: the secret that all members of one cluster share.

use lockkeeper_files::Unprotected;
use std::fmt;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The prefix of every token, by which people and secret scanners recognise one.
const PREFIX: &str = "lkjoin_";
const BYTES: usize = 32;

/// The secret that all members of one cluster share. A process without it can neither join nor connect as a member.
///
/// As text it is `lkjoin_` and 64 hexadecimal digits. Files with it are readable only by their owner, or belong to root
/// and are readable by its group too.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken([u8; BYTES]);

/// The reason why there is no join token. No variant contains the text that was read, which may be a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinTokenError {
    /// The system's random number generator failed.
    #[error("the system has no random numbers: {0}")]
    Random(#[source] getrandom::Error),
    /// The text is not a token.
    #[error(
        "this is no join token: it must be `{PREFIX}` and {} hexadecimal digits, as `lockkeeper cluster init` and \
         `lockkeeper up --listen` write it",
        2 * BYTES
    )]
    Malformed,
    /// The text of a file is not a token.
    #[error("{path}: {}", Self::Malformed)]
    MalformedFile {
        /// The path of the file.
        path: PathBuf,
    },
    /// A file cannot be read.
    #[error("cannot read the join token in {path}: {source}")]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write a join token to {path}: {source}")]
    Write {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// Users other than the owner may read or write the file.
    #[error(
        "other users may read or write the join token in {path} (mode {mode:03o}): run `chmod 600 {path}`; if they \
         may have read it, make a new one for all members"
    )]
    NotSecret {
        /// The path of the file.
        path: PathBuf,
        /// The mode of the file.
        mode: u32,
    },
}

impl JoinToken {
    /// Creates a token from the system's random number generator.
    pub fn random() -> Result<Self, JoinTokenError> {
        let mut bytes = [0; BYTES];
        getrandom::fill(&mut bytes).map_err(JoinTokenError::Random)?;
        Ok(Self(bytes))
    }

    /// Parses a token. White space around it is ignored. The error does not contain the text, which may be a secret.
    pub fn parse(text: &str) -> Result<Self, JoinTokenError> {
        let digits = text.trim().strip_prefix(PREFIX).ok_or(JoinTokenError::Malformed)?;
        if digits.len() != 2 * BYTES || !digits.is_ascii() {
            return Err(JoinTokenError::Malformed);
        }
        let mut bytes = [0; BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| JoinTokenError::Malformed)?;
            // `from_str_radix` alone would also accept "+f".
            let digits = pair.bytes().all(|digit| digit.is_ascii_hexdigit());
            let parsed = u8::from_str_radix(pair, 16).ok().filter(|_| digits);
            *byte = parsed.ok_or(JoinTokenError::Malformed)?;
        }
        Ok(Self(bytes))
    }

    /// Reads the token from a file. Rejects a file that other users may read or write, by the rule for all secrets
    /// ([`lockkeeper_files::read_secret`]).
    pub fn read(path: &Path) -> Result<Self, JoinTokenError> {
        let text = lockkeeper_files::read_secret_text(path).map_err(|source| {
            let reason = source.get_ref().and_then(|reason| reason.downcast_ref::<Unprotected>());
            match reason {
                Some(&Unprotected::Secret { mode }) => {
                    JoinTokenError::NotSecret { path: path.to_path_buf(), mode }
                }
                _ => JoinTokenError::Read { path: path.to_path_buf(), source },
            }
        })?;
        Self::parse(&text).map_err(|error| match error {
            JoinTokenError::Malformed => JoinTokenError::MalformedFile { path: path.to_path_buf() },
            other => other,
        })
    }

    /// Reads the token from a file, or writes a new one there if the file does not exist.
    pub fn read_or_create(path: &Path) -> Result<Self, JoinTokenError> {
        match Self::random()?.save_new(path) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(source) => return Err(JoinTokenError::Write { path: path.to_path_buf(), source }),
        }
        Self::read(path)
    }

    /// Writes the token to a new file that only its owner may read. Fails if the file exists.
    pub fn save_new(&self, path: &Path) -> std::io::Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        writeln!(file, "{}", self.reveal())
    }

    /// The token as text, for a file.
    pub fn reveal(&self) -> String {
        let digits: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{PREFIX}{digits}")
    }

    /// The key for the proofs of the greeting.
    pub(crate) fn key(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for JoinToken {
    /// Hides the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinToken(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn a_token_is_read_as_it_was_written_and_is_never_shown_by_debug() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/join-token");
        let token = JoinToken::read_or_create(&path).unwrap();
        assert_eq!(JoinToken::read_or_create(&path).unwrap(), token);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(JoinToken::parse(&format!(" {}\n", token.reveal())).unwrap(), token);
        assert_ne!(JoinToken::random().unwrap(), token);
        assert!(!format!("{token:?}").contains(&token.reveal()[8..16]));
    }

    #[test]
    fn the_file_of_a_join_token_does_not_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("join-token");
        let token = JoinToken(std::array::from_fn(|place| place as u8));
        token.save_new(&path).unwrap();
        let mut golden = lockkeeper_testbed::golden::Golden::default();
        golden.text("text", std::fs::read_to_string(&path).unwrap().strip_suffix('\n').unwrap());
        golden.bytes("key", token.key());
        golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/join-token.txt");
        assert_eq!(JoinToken::read(&path).unwrap(), token);
    }

    #[test]
    fn a_file_that_others_may_read_is_refused_with_the_command_to_correct_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("join-token");
        JoinToken::random().unwrap().save_new(&path).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o644] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = JoinToken::read(&path).unwrap_err();
            assert!(
                matches!(error, JoinTokenError::NotSecret { mode: found, .. } if found == mode),
                "{error}"
            );
            let error = error.to_string();
            assert!(error.contains(&format!("chmod 600 {}", path.display())), "{error}");
            assert!(error.contains(&format!("mode {mode:o}")), "{error}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
        JoinToken::read(&path).unwrap();
    }

    #[test]
    fn text_that_is_no_token_is_refused_without_repeating_it() {
        let good = JoinToken([7; BYTES]).reveal();
        let signed = good.replace("07", "+7");
        for text in ["", "secret", &good[1..], &good[..70], &signed, &good.replace('7', "é"), "lkjoin_"] {
            let error = JoinToken::parse(text).unwrap_err().to_string();
            assert!(error.contains("cluster init"), "{error}");
            assert!(text.len() < 8 || !error.contains(text), "{error}");
        }
    }
}
