//! Access control: tokens, stored as hashes, each with permissions on the locks of given prefixes.
//!
//! ```toml
//! [[token]]
//! name = "ci"
//! sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
//! acquire = ["ci/"]          # prefixes of lock names; "" is every lock
//! observe = [""]
//! admin = []
//! expires = 2027-01-01       # optional
//! ```
//!
//! The file is read again when it changes. Open connections follow the change through their
//! [`Credential`](crate::credential::Credential): they get the token's new rights, or are closed.

use crate::rights::Action;
use lockkeeper_member::{BadText, check_name};
use lockkeeper_text::Printable;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::SystemTime;
use subtle::ConstantTimeEq;
use time::error::ComponentRange;
use time::{Date, Month, OffsetDateTime, UtcOffset};
use tokio::sync::watch;

/// A permission of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Permission {
    /// Acquire and hold locks.
    Acquire,
    /// See holders and waiters.
    Observe,
    /// Release locks of other clients by force; remove members.
    Admin,
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Acquire => "acquire",
            Self::Observe => "observe",
            Self::Admin => "admin",
        })
    }
}

/// The reason for a refusal, with the permission that is missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// The token is missing, unknown or expired. Only the audit log distinguishes these cases.
    #[error("a valid token is needed")]
    NoToken,
    /// The token does not have the permission.
    #[error("the token `{who}` does not allow `{permission}` on `{name}`")]
    NotAllowed {
        /// The name of the token.
        who: Arc<str>,
        /// The missing permission.
        permission: Permission,
        /// The name of the lock.
        name: String,
    },
    /// A token without `acquire` requested a session.
    #[error("the token `{who}` may not acquire any lock, so it gets no session: give it `acquire` prefixes")]
    HoldsNothing {
        /// The name of the token.
        who: Arc<str>,
    },
}

/// The reason why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenFileError {
    /// The file cannot be read, or other users can change it.
    #[error("cannot read the tokens in {path}: {source}")]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system, or the problem of the file's mode.
        source: std::io::Error,
    },
    /// The text of the file is invalid.
    #[error("{path}: {source}")]
    InFile {
        /// The path of the file.
        path: PathBuf,
        /// The error of the text.
        source: Box<TokenFileError>,
    },
    /// The text is not TOML, or has an unknown key or a value of another type.
    #[error(transparent)]
    Syntax(Box<toml::de::Error>),
    /// The name of a token is invalid.
    #[error("the name of the token `{}`: {source}", Printable(.name))]
    Name {
        /// The invalid name.
        name: String,
        /// The underlying error.
        source: BadText,
    },
    /// The hash of a token is not a SHA-256.
    #[error("the token `{name}` has no SHA-256 of 64 hexadecimal digits; `lockkeeper token` makes one")]
    Hash {
        /// The token's name.
        name: String,
    },
    /// The date on which a token expires is invalid.
    #[error("the token `{name}`: {source}")]
    Expiry {
        /// The token's name.
        name: String,
        /// The error of the date.
        source: ExpiryError,
    },
    /// Two tokens have the same hash.
    #[error("the token `{name}` has the SHA-256 of another one: remove one of them")]
    SameHash {
        /// The name of the second one.
        name: String,
    },
    /// Two tokens have the same name.
    #[error("two tokens have the name `{name}`: give each of them a name of its own")]
    SameName {
        /// The name of both tokens.
        name: String,
    },
}

/// The reason why the date on which a token expires is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpiryError {
    /// The value is a time of day without a date.
    #[error("`expires` needs a date, as 2027-01-31 or 2027-01-31T12:00:00Z")]
    NoDate,
    /// The calendar has no such date.
    #[error(transparent)]
    Range(#[from] ComponentRange),
}

/// An authenticated caller, or any caller where no tokens are needed. A principal is identified by the name
/// of its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal(Arc<TokenGrants>);

#[derive(Debug, PartialEq, Eq)]
struct TokenGrants {
    name: Arc<str>,
    /// The hash of the token; `None` where no tokens are needed.
    hash: Option<[u8; 32]>,
    acquire: Vec<String>,
    observe: Vec<String>,
    admin: Vec<String>,
    expires: Option<SystemTime>,
}

impl Principal {
    /// The principal of every caller where no tokens are needed.
    pub(crate) fn anonymous() -> Self {
        let all = || vec![String::new()];
        let name = Arc::from("anybody");
        Self(Arc::new(TokenGrants {
            name,
            hash: None,
            acquire: all(),
            observe: all(),
            admin: all(),
            expires: None,
        }))
    }

    /// A principal for the documentation, with the given permissions, each on the locks of a prefix.
    pub(crate) fn example(permissions: &[(Permission, &str)]) -> Self {
        let of = |wanted| {
            let prefixes = permissions.iter().filter(|(permission, _)| *permission == wanted);
            prefixes.map(|(_, prefix)| String::from(*prefix)).collect()
        };
        let (acquire, observe) = (of(Permission::Acquire), of(Permission::Observe));
        let (name, admin) = (Arc::from("example"), of(Permission::Admin));
        Self(Arc::new(TokenGrants { name, hash: None, acquire, observe, admin, expires: None }))
    }

    /// The name of its token, for logs.
    pub fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// The prefixes of the lock names on which it has this permission.
    pub fn prefixes(&self, permission: Permission) -> &[String] {
        match permission {
            Permission::Acquire => &self.0.acquire,
            Permission::Observe => &self.0.observe,
            Permission::Admin => &self.0.admin,
        }
    }

    fn has_expired(&self, now: SystemTime) -> bool {
        self.0.expires.is_some_and(|at| now >= at)
    }

    /// Checks that the token has not expired.
    pub fn check_valid(&self) -> Result<(), Denied> {
        if self.has_expired(SystemTime::now()) { Err(Denied::NoToken) } else { Ok(()) }
    }

    /// Checks that it has this permission on a lock. The empty name stands for all locks: only the prefix
    /// `""` covers it.
    pub fn check(&self, permission: Permission, name: &str) -> Result<(), Denied> {
        let prefixes = self.prefixes(permission);
        self.check_valid()?;
        if prefixes.iter().any(|prefix| name.starts_with(prefix.as_str())) {
            return Ok(());
        }
        Err(Denied::NotAllowed { who: self.0.name.clone(), permission, name: name.into() })
    }

    /// The prefixes of the locks that it may see, restricted to names with this prefix. No prefix in the
    /// result covers another.
    pub fn scope(&self, prefix: &str) -> Vec<String> {
        // Example: a token with `acquire = ["ci/"]` has scope ["ci/"] for the prefix "", and ["ci/build/"]
        // for "ci/build/".
        let allowed = self.0.observe.iter().chain(&self.0.acquire);
        without_covered(allowed.filter_map(|allowed| match () {
            () if allowed.starts_with(prefix) => Some(allowed.clone()),
            () if prefix.starts_with(allowed.as_str()) => Some(String::from(prefix)),
            () => None,
        }))
    }

    /// Checks that it may acquire any lock at all. A session is of no use to a principal that may not.
    pub fn check_holds(&self) -> Result<(), Denied> {
        if self.0.acquire.is_empty() {
            return Err(Denied::HoldsNothing { who: self.0.name.clone() });
        }
        Ok(())
    }

    /// Whether it may see this lock. `acquire` includes the right to see.
    pub fn sees(&self, name: &str) -> bool {
        Action::See.check(self, name).is_ok()
    }

    /// Whether it may see all locks whose names begin with this text and a slash. Metrics count these locks
    /// together.
    pub(crate) fn sees_all_below(&self, text: &str) -> bool {
        Action::MetricsOfLocks.check(self, &format!("{text}/")).is_ok()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenFile {
    #[serde(default)]
    token: Vec<TokenEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenEntry {
    name: String,
    sha256: String,
    #[serde(default)]
    acquire: Vec<String>,
    #[serde(default)]
    observe: Vec<String>,
    #[serde(default)]
    admin: Vec<String>,
    expires: Option<toml::value::Datetime>,
}

/// The tokens of a file, by name.
pub(crate) type Tokens = HashMap<Arc<str>, Principal>;

/// All tokens of a daemon. Without a token file, every caller may do everything.
pub struct Access {
    file: Option<PathBuf>,
    tokens: RwLock<Tokens>,
    anonymous: Principal,
    /// Incremented when the file has been read again or a token has expired.
    changes: watch::Sender<usize>,
}

impl Access {
    /// Access without tokens: every caller may do everything.
    pub fn open() -> Self {
        let changes = watch::Sender::new(0);
        Self { file: None, tokens: RwLock::default(), anonymous: Principal::anonymous(), changes }
    }

    /// Access for the tokens of a file only.
    pub fn of_file(file: impl Into<PathBuf>) -> Result<Self, TokenFileError> {
        let file = file.into();
        let tokens = RwLock::new(read(&file)?);
        Ok(Self { file: Some(file), tokens, ..Self::open() })
    }

    /// Whether callers need a token.
    pub fn needs_token(&self) -> bool {
        self.file.is_some()
    }

    /// Reads the token file again. A file that cannot be read or parsed changes nothing.
    pub fn reload(&self) -> Result<(), TokenFileError> {
        if let Some(file) = &self.file {
            let tokens = read(file)?;
            *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = tokens;
            self.changes.send_modify(|changes| *changes += 1);
        }
        Ok(())
    }

    /// Number of tokens; 0 where none is needed.
    pub(crate) fn count(&self) -> usize {
        self.tokens().len()
    }

    fn tokens(&self) -> RwLockReadGuard<'_, Tokens> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies the receivers of [`changes`](Self::changes) if a token has expired between `before` and
    /// `now`. Called periodically.
    pub fn notify_expired(&self, before: SystemTime, now: SystemTime) {
        if self.tokens().values().any(|who| who.has_expired(now) && !who.has_expired(before)) {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }

    /// A receiver that is notified when the rights of some principal may have changed.
    pub fn changes(&self) -> watch::Receiver<usize> {
        self.changes.subscribe()
    }

    /// The same principal with the current rights of its token; an error if the token was removed, replaced
    /// or has expired.
    pub fn current(&self, who: &Principal) -> Result<Principal, Denied> {
        let now = self.named(who.name())?;
        if now.0.hash == who.0.hash { Ok(now) } else { Err(Denied::NoToken) }
    }

    /// The principal with this name; an error if there is no such token or it has expired.
    pub fn named(&self, name: &str) -> Result<Principal, Denied> {
        if !self.needs_token() {
            return Ok(self.anonymous.clone());
        }
        let who = self.tokens().get(name).cloned().ok_or(Denied::NoToken)?;
        who.check_valid()?;
        Ok(who)
    }

    /// The token file, which the caller watches for changes.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The principal of a token that a caller presents.
    pub fn authenticate(&self, token: Option<&str>) -> Result<Principal, Denied> {
        if !self.needs_token() {
            return Ok(self.anonymous.clone());
        }
        let hash = hash(token.ok_or(Denied::NoToken)?);
        // Compare with every token, each in constant time, so that timing does not reveal a match.
        let mut found = None;
        for who in self.tokens().values() {
            if who.0.hash.is_some_and(|of| bool::from(of.ct_eq(&hash))) {
                found = Some(who.clone());
            }
        }
        let who = found.ok_or(Denied::NoToken)?;
        who.check_valid()?;
        Ok(who)
    }
}

/// Whether a name begins with one of these prefixes.
pub(crate) fn covers(prefixes: &[String], name: &str) -> bool {
    prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()))
}

/// The same prefixes, sorted, without those that are covered by another prefix of the list.
pub(crate) fn without_covered(prefixes: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = prefixes.collect();
    all.sort_unstable();
    // In sorted order, a prefix precedes everything that it covers: "a", "a/b", "ab", "b" becomes "a", "b".
    let mut without_covered: Vec<String> = Vec::new();
    for prefix in all {
        if !without_covered.last().is_some_and(|last| prefix.starts_with(last.as_str())) {
            without_covered.push(prefix);
        }
    }
    without_covered
}

/// The SHA-256 of a token, as the token file stores it.
pub fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn read(file: &Path) -> Result<Tokens, TokenFileError> {
    let text = lockkeeper_files::read_trusted(file)
        .map_err(|source| TokenFileError::Read { path: file.to_path_buf(), source })?;
    parse(&text).map_err(|error| TokenFileError::InFile { path: file.to_path_buf(), source: Box::new(error) })
}

pub(crate) fn parse(text: &str) -> Result<Tokens, TokenFileError> {
    let file: TokenFile = toml::from_str(text).map_err(|error| TokenFileError::Syntax(Box::new(error)))?;
    let (mut tokens, mut hashes) = (Tokens::new(), HashSet::new());
    for line in file.token {
        let name = line.name.clone();
        check_name(&name).map_err(|source| TokenFileError::Name { name: name.clone(), source })?;
        let hash = hex(&line.sha256).ok_or_else(|| TokenFileError::Hash { name: name.clone() })?;
        let expires = line.expires.map(|at| instant(&at)).transpose();
        let expires = expires.map_err(|source| TokenFileError::Expiry { name: name.clone(), source })?;
        if !hashes.insert(hash) {
            return Err(TokenFileError::SameHash { name });
        }
        let who = Principal(Arc::new(TokenGrants {
            name: line.name.into(),
            hash: Some(hash),
            acquire: line.acquire,
            observe: line.observe,
            admin: line.admin,
            expires,
        }));
        // Sessions belong to a token's name: two tokens with one name could use each other's sessions.
        if tokens.insert(who.name().clone(), who).is_some() {
            return Err(TokenFileError::SameName { name });
        }
    }
    Ok(tokens)
}

fn hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

/// The point in time of a date, or of a date and time; UTC if it has no offset.
fn instant(at: &toml::value::Datetime) -> Result<SystemTime, ExpiryError> {
    let date = at.date.ok_or(ExpiryError::NoDate)?;
    let (hour, minute, second) =
        at.time.map_or((0, 0, 0), |time| (time.hour, time.minute, time.second.unwrap_or(0)));
    let minutes = match at.offset {
        Some(toml::value::Offset::Custom { minutes }) => i32::from(minutes),
        _ => 0,
    };
    let moment = || {
        let month = Month::try_from(date.month)?;
        let date = Date::from_calendar_date(i32::from(date.year), month, date.day)?;
        let offset = UtcOffset::from_whole_seconds(minutes * 60)?;
        Ok::<_, ComponentRange>(date.with_hms(hour, minute, second)?.assume_offset(offset))
    };
    Ok(SystemTime::from(moment()?))
}

/// The UTC date of a point in time, in the format of the token file.
pub fn date(at: SystemTime) -> String {
    OffsetDateTime::from(at).date().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        [[token]]
        name = "ci"
        sha256 = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"  # of "secret"
        acquire = ["ci/"]
        [[token]]
        name = "old"
        sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"  # of "test"
        admin = [""]
        expires = 2001-09-09T01:46:40Z
    "#;

    fn access() -> Access {
        Access { file: Some("tokens".into()), tokens: RwLock::new(parse(FILE).unwrap()), ..Access::open() }
    }

    #[test]
    fn token_permits_only_its_prefixes() {
        let access = access();
        let ci = access.authenticate(Some("secret")).unwrap();
        assert_eq!(&**ci.name(), "ci");
        assert_eq!(ci.check(Permission::Acquire, "ci/build"), Ok(()));
        assert!(ci.sees("ci/build") && !ci.sees("c"));
        let denied = ci.check(Permission::Acquire, "prod/db").unwrap_err();
        assert_eq!(denied.to_string(), "the token `ci` does not allow `acquire` on `prod/db`");
        assert!(ci.check(Permission::Admin, "ci/build").is_err());
    }

    #[test]
    fn scope_is_restricted_to_the_requested_prefix() {
        let ci = access().authenticate(Some("secret")).unwrap();
        assert_eq!(ci.scope(""), ["ci/"]);
        assert_eq!(ci.scope("ci/build/"), ["ci/build/"]);
        assert_eq!(ci.scope("prod/"), [""; 0]);
        assert_eq!(Principal::anonymous().scope("x"), ["x"]);
        assert_eq!(without_covered(["b", "a/b", "a", "ab"].map(String::from).into_iter()), ["a", "b"]);
    }

    #[test]
    fn unknown_missing_and_expired_tokens_are_refused_with_one_error() {
        let access = access();
        for token in [None, Some(""), Some("secret "), Some("test")] {
            assert_eq!(access.authenticate(token).unwrap_err(), Denied::NoToken, "{token:?}");
        }
        assert!(Access::open().authenticate(None).unwrap().check(Permission::Admin, "x").is_ok());
    }

    #[test]
    fn a_file_of_tokens_that_others_can_change_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), FILE).unwrap();
        std::fs::set_permissions(file.path(), PermissionsExt::from_mode(0o644)).unwrap();
        let access = Access::of_file(file.path()).unwrap();
        std::fs::write(file.path(), "").unwrap();
        for mode in [0o664, 0o646] {
            std::fs::set_permissions(file.path(), PermissionsExt::from_mode(mode)).unwrap();
            let error = access.reload().unwrap_err();
            assert!(matches!(error, TokenFileError::Read { .. }), "{error}");
            assert!(error.to_string().contains("chmod go-w"), "{error}");
            assert!(Access::of_file(file.path()).is_err());
        }
        assert!(access.authenticate(Some("secret")).is_ok(), "the previous tokens remain valid");
    }

    #[test]
    fn parse_error_of_token_file_names_the_place() {
        for (text, part) in [
            ("[[token]]\nname = 1", "line 2"),
            ("[[token]]\nname = \"a\"\nsha256 = \"12\"", "the token `a` has no SHA-256"),
            ("[[token]]\nname = \"a\"\nsha = \"12\"", "unknown field `sha`"),
            ("[[token]]\nname = \"\"\nsha256 = \"12\"", "the name of the token ``: it is empty"),
            (
                "[[token]]\nname = \"a\\u001b\"\nsha256 = \"12\"",
                "`a\\u{1b}`: it contains the control character",
            ),
        ] {
            let error = parse(text).err().unwrap().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn two_tokens_of_one_name_or_one_secret_are_refused() {
        let token = |name: &str, digit: &str| {
            format!("[[token]]\nname = \"{name}\"\nsha256 = \"{}\"\n", digit.repeat(64))
        };
        let error = |text: String| parse(&text).err().unwrap().to_string();
        let twice = error(token("a", "1") + &token("b", "2") + &token("a", "3"));
        assert_eq!(twice, "two tokens have the name `a`: give each of them a name of its own");
        let same = error(token("a", "1") + &token("b", "1"));
        assert_eq!(same, "the token `b` has the SHA-256 of another one: remove one of them");
        assert_eq!(parse(&(token("a", "1") + &token("b", "2"))).unwrap().len(), 2);
    }

    #[test]
    fn principal_has_the_rights_that_its_token_has_now() {
        let access = access();
        let ci = access.authenticate(Some("secret")).unwrap();
        assert_eq!(access.current(&ci), Ok(ci.clone()));
        let set = |text: &str| *access.tokens.write().unwrap() = parse(text).unwrap();
        set(&FILE.replace("acquire = [\"ci/\"]", "acquire = [\"ci/build/\"]"));
        let now = access.current(&ci).unwrap();
        assert!(now != ci && now.check(Permission::Acquire, "ci/other").is_err());
        // A token with the same name and another secret is another token.
        set(&FILE.replace("2bb8", "2bb9"));
        assert_eq!(access.current(&ci), Err(Denied::NoToken));
        assert!(access.named("ci").is_ok());
        set("");
        assert_eq!(access.current(&ci), Err(Denied::NoToken));
        assert_eq!(access.named("ci"), Err(Denied::NoToken));
    }

    #[test]
    fn token_expiry_is_notified_once() {
        let access = access();
        let changes = access.changes();
        let at = |seconds| SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        access.notify_expired(at(999_999_998), at(999_999_999));
        assert!(!changes.has_changed().unwrap());
        access.notify_expired(at(999_999_999), at(1_000_000_000));
        assert!(changes.has_changed().unwrap());
        let after = access.changes();
        access.notify_expired(at(1_000_000_000), at(1_000_000_001));
        assert!(!after.has_changed().unwrap());
    }

    #[test]
    fn dates_are_parsed_and_formatted() {
        let at = |text: &str| instant(&text.parse().unwrap()).unwrap();
        let seconds = |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        assert_eq!(seconds(at("2001-09-09T01:46:40Z")), 1_000_000_000);
        assert_eq!(seconds(at("2001-09-09T03:46:40+02:00")), 1_000_000_000);
        for day in ["1970-01-01", "1999-12-31", "2000-02-29", "2000-03-01", "2026-11-15", "2100-02-28"] {
            assert_eq!(date(at(day)), day);
        }
    }
}
