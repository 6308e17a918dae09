//! The greeting. The dialler sends its member id and its range of versions; the listener replies with its own, or with
//! a reason to reject; the dialler confirms. The proofs that go with it are in `proof`.
//!
//! ```text
//! "lockkeep" | length: u16, little endian | a Hello, a HelloReply or a Confirm in postcard; later versions may append more
//! ```
//!
//! Hello and HelloReply change only by appending, so that members of any two versions can reject each other with a reason.
//! Version 3 appends a nonce to Hello, and a nonce and a proof to Welcome.

use lockkeeper_member::MemberId;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::RangeInclusive;
use tokio::io::{AsyncRead, AsyncReadExt};

/// The supported versions of the protocol between members. Since version 3 both sides prove that they have the join
/// token. Version 5 names the operator of a revocation, and shows deadlines and jeopardy of holds in replies to queries.
pub const VERSIONS: RangeInclusive<u16> = 5..=5;
/// Maximum length of a cluster's name, in bytes.
pub const LONGEST_NAME: usize = 255;

pub const MAGIC: &[u8; 8] = b"lockkeep";
const LONGEST: usize = 512;

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// Frames and queries of one member to another. There is one such connection in each direction.
    Link,
    /// Queries only, for first contacts.
    Queries,
}

/// The first message of the dialler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The oldest version that it supports.
    pub oldest: u16,
    /// The newest version that it supports.
    pub newest: u16,
    /// The name of its cluster.
    pub cluster: String,
    /// The member that dials. `None` is rejected: only members connect here.
    pub from: Option<MemberId>,
    /// The expected listener. `None` accepts any member.
    pub to: Option<MemberId>,
    /// The purpose of the connection.
    pub purpose: Purpose,
}

/// The reply of the listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HelloReply {
    /// The greeting is accepted.
    Welcome {
        /// The version to use.
        version: u16,
        /// The listener's member id.
        member: MemberId,
    },
    /// The greeting is rejected.
    Refused(HelloRejection),
}

/// The reason why a greeting is rejected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HelloRejection {
    /// There is no common version. The fields are the versions of the sender.
    Version { oldest: u16, newest: u16 },
    /// The sender is a member of another cluster.
    Cluster(String),
    /// The sender is another member than expected.
    Member(MemberId),
    /// The certificate does not name the member that presented it.
    Certificate,
    /// The connection is not from a member, or is a link from this member to itself.
    Sender,
    /// There are too many connections.
    Busy,
    /// The proof was not made with this cluster's join token.
    Token,
}

/// The dialler's second message, after the listener's welcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Confirm {
    /// The dialler's proof that it has the join token.
    Proof([u8; 32]),
    /// The dialler refuses the listener.
    Refused(HelloRejection),
}

impl fmt::Display for HelloRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { oldest, newest } => write!(
                f,
                "it speaks versions {oldest} to {newest}, and this one {} to {}: upgrade one release at a time",
                VERSIONS.start(),
                VERSIONS.end()
            ),
            Self::Cluster(name) => write!(f, "it belongs to the cluster {name:?}: check the address"),
            Self::Member(id) => write!(f, "{id} answers there: check the address"),
            Self::Certificate => {
                f.write_str("the certificate shown does not name the member that shows it: check which files are configured")
            }
            Self::Sender => {
                f.write_str("connections must come from another member: check that no two members have the same number")
            }
            Self::Busy => f.write_str("it has too many connections"),
            Self::Token => f.write_str(
                "the two members have different join tokens: give every member of the cluster the same file (`join_token`, \
                 --join-token)",
            ),
        }
    }
}

/// The reason why a greeting could not be read.
#[derive(Debug, thiserror::Error)]
pub enum GreetingError {
    /// The other side uses another protocol.
    #[error("this is not a greeting of Lockkeeper")]
    Foreign,
    /// The greeting cannot be decoded.
    #[error("the greeting cannot be read")]
    Malformed,
    /// The connection broke.
    #[error(transparent)]
    Broken(#[from] std::io::Error),
}

/// The newest version that both sides support.
pub fn common_version(oldest: u16, newest: u16) -> Option<u16> {
    let version = newest.min(*VERSIONS.end());
    (version >= oldest && version >= *VERSIONS.start()).then_some(version)
}

/// Encodes the body of a message of the greeting, without the data that versions append to it.
pub fn body(greeting: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(greeting).expect("a greeting is plain data")
}

/// Adds the header to a body.
pub fn frame(body: &[u8]) -> Vec<u8> {
    let length =
        u16::try_from(body.len()).expect("a cluster's name is short, which was checked at the start");
    [&MAGIC[..], &length.to_le_bytes(), body].concat()
}

/// Encodes a message of the greeting, with its header.
pub fn encode(greeting: &impl Serialize) -> Vec<u8> {
    frame(&body(greeting))
}

/// Reads a message of the greeting, and no bytes beyond it.
pub async fn read<T: for<'a> Deserialize<'a>>(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<T, GreetingError> {
    decode(&read_body(stream).await?)
}

/// Reads the body of a message of the greeting, and no bytes beyond it.
pub async fn read_body(stream: &mut (impl AsyncRead + Unpin)) -> Result<Vec<u8>, GreetingError> {
    let mut head = [0; MAGIC.len() + 2];
    stream.read_exact(&mut head).await?;
    let mut body = vec![0; body_length(&head)?];
    stream.read_exact(&mut body).await?;
    Ok(body)
}

/// Decodes the header. Returns the length of the body.
pub fn body_length(head: &[u8; 10]) -> Result<usize, GreetingError> {
    let Some(length) = head.strip_prefix(MAGIC) else { return Err(GreetingError::Foreign) };
    let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
    if length > LONGEST {
        return Err(GreetingError::Malformed);
    }
    Ok(length)
}

/// Decodes the body of a greeting.
pub fn decode<T: for<'a> Deserialize<'a>>(body: &[u8]) -> Result<T, GreetingError> {
    decode_with_rest(body).map(|(greeting, _)| greeting)
}

/// Decodes the body of a greeting. Also returns the data that a version has appended to it.
pub fn decode_with_rest<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<(T, &'a [u8]), GreetingError> {
    postcard::take_from_bytes(body).map_err(|_| GreetingError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        let (from, to) = (Some(MemberId(1)), Some(MemberId(2)));
        Hello { oldest: 1, newest: 3, cluster: "canal".into(), from, to, purpose: Purpose::Link }
    }

    #[tokio::test]
    async fn greeting_of_a_later_version_may_append_data() {
        let mut bytes = encode(&hello());
        bytes.extend(b"more");
        let length = u16::try_from(bytes.len() - 10).unwrap();
        bytes[8..10].copy_from_slice(&length.to_le_bytes());
        let read: Hello = read(&mut &bytes[..]).await.unwrap();
        assert_eq!(read, hello());
    }

    #[tokio::test]
    async fn bytes_that_are_no_greeting_are_rejected() {
        let of = async |bytes: &[u8]| read::<Hello>(&mut &bytes[..]).await.unwrap_err();
        assert!(matches!(of(b"GET / HTTP/1.1\r\n\r\n").await, GreetingError::Foreign));
        assert!(matches!(of(b"lockkeep\xff\xff").await, GreetingError::Malformed));
        assert!(matches!(of(b"lockkeep\x01\x00\x01").await, GreetingError::Malformed));
        assert!(matches!(of(b"lockkeep\x09\x00\x01").await, GreetingError::Broken(_)));
    }

    #[test]
    fn newest_common_version_is_chosen() {
        let (oldest, newest) = (*VERSIONS.start(), *VERSIONS.end());
        assert_eq!(common_version(oldest, newest), Some(newest));
        assert_eq!(common_version(newest, newest + 5), Some(newest));
        assert_eq!(common_version(newest + 1, newest + 5), None);
        assert_eq!(common_version(0, oldest - 1), None);
        assert_eq!(common_version(u16::MAX, 0), None);
    }
}
