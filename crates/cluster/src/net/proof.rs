//! Proofs in the greeting that both sides have the cluster's join token, without sending it.
//!
//! ```text
//! dialler                                                listener
//!    │ ── Hello, nonce ─────────────────────────────────────▶ │
//!    │ ◀─ Welcome, nonce, HMAC("listener", both messages) ─── │
//!    │ ── Confirm: HMAC("dialler", both messages) ──────────▶ │   frames and queries are read only after this
//! ```
//!
//! The messages contain both nonces, both member ids, the cluster's name, the version and the purpose, so a proof is of
//! no use on another connection. The labels differ, so a proof of one side is not valid for the other.

use super::hello::{self, GreetingError, Hello, HelloReply};
use crate::join_token::JoinToken;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Length of a nonce, in bytes.
const NONCE: usize = 32;
/// A proof: an HMAC-SHA256.
pub(super) type Proof = [u8; 32];

/// The side of a connection that makes a proof.
#[derive(Clone, Copy)]
pub(super) enum Side {
    Dialler,
    Listener,
}

impl Side {
    fn label(self) -> &'static [u8] {
        match self {
            Self::Dialler => b"lockkeeper greeting 3, dialler",
            Self::Listener => b"lockkeeper greeting 3, listener",
        }
    }
}

/// The first two messages of a greeting, which the proofs cover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Transcript {
    /// The dialler's message with its nonce.
    pub(super) hello: Vec<u8>,
    /// The listener's message with its nonce, without its proof.
    pub(super) welcome: Vec<u8>,
}

impl Transcript {
    fn mac(&self, token: &JoinToken, side: Side) -> Hmac<Sha256> {
        let mut mac =
            <Hmac<Sha256> as KeyInit>::new_from_slice(token.key()).expect("HMAC takes keys of any length");
        // Each part is preceded by its length, so that no two transcripts have the same bytes.
        for part in [side.label(), &self.hello, &self.welcome] {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac
    }

    pub fn prove(&self, token: &JoinToken, side: Side) -> Proof {
        self.mac(token, side).finalize().into_bytes().into()
    }

    /// Verifies a proof in constant time.
    pub fn verify(&self, token: &JoinToken, side: Side, proof: &Proof) -> bool {
        self.mac(token, side).verify_slice(proof).is_ok()
    }
}

fn nonce() -> std::io::Result<[u8; NONCE]> {
    let mut nonce = [0; NONCE];
    getrandom::fill(&mut nonce).map_err(std::io::Error::other)?;
    Ok(nonce)
}

/// Creates the body of the dialler's first message, with a new nonce.
pub(super) fn hello_body(hello: &Hello) -> std::io::Result<Vec<u8>> {
    Ok([hello::body(hello), nonce()?.to_vec()].concat())
}

/// Decodes the dialler's first message. Also returns whether it has a nonce: a message of an earlier version has none,
/// and can be decoded but not accepted.
pub(super) fn read_hello(body: &[u8]) -> Result<(Hello, bool), GreetingError> {
    let (hello, rest) = hello::decode_with_rest(body)?;
    Ok((hello, rest.len() >= NONCE))
}

/// Creates the listener's welcome: the body of its message with a new nonce and its proof, and the transcript that the
/// dialler must prove next.
pub(super) fn welcome_body(
    token: &JoinToken,
    hello: Vec<u8>,
    reply: &HelloReply,
) -> std::io::Result<(Vec<u8>, Transcript)> {
    let welcome = [hello::body(reply), nonce()?.to_vec()].concat();
    let transcript = Transcript { hello, welcome };
    let proof = transcript.prove(token, Side::Listener);
    Ok(([&transcript.welcome[..], &proof].concat(), transcript))
}

/// Decodes the listener's reply. A welcome comes with its proof and the transcript.
pub(super) fn read_reply(
    hello: Vec<u8>,
    body: &[u8],
) -> Result<(HelloReply, Option<(Transcript, Proof)>), GreetingError> {
    let (reply, rest) = hello::decode_with_rest(body)?;
    if matches!(reply, HelloReply::Refused(_)) {
        return Ok((reply, None));
    }
    let proof = rest.get(NONCE..).and_then(|rest| rest.first_chunk()).ok_or(GreetingError::Malformed)?;
    let welcome = body[..body.len() - rest.len() + NONCE].to_vec();
    Ok((reply, Some((Transcript { hello, welcome }, *proof))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::hello::Purpose;
    use lockkeeper_member::MemberId;

    fn hello() -> Hello {
        let (from, to) = (Some(MemberId(1)), Some(MemberId(2)));
        Hello { oldest: 3, newest: 3, cluster: "canal".into(), from, to, purpose: Purpose::Link }
    }

    fn token(byte: u8) -> JoinToken {
        JoinToken::parse(&format!("lkjoin_{}", format!("{byte:02x}").repeat(32))).unwrap()
    }

    #[test]
    fn both_sides_prove_the_same_token_over_the_same_messages() {
        let sent = hello_body(&hello()).unwrap();
        assert!(matches!(read_hello(&sent), Ok((read, true)) if read == hello()));
        let reply = HelloReply::Welcome { version: 3, member: MemberId(2) };
        let (body, at_listener) = welcome_body(&token(1), sent.clone(), &reply).unwrap();
        let (read, proved) = read_reply(sent, &body).unwrap();
        let (at_dialler, proof) = proved.unwrap();
        assert_eq!((read, &at_dialler), (reply, &at_listener));
        assert!(at_dialler.verify(&token(1), Side::Listener, &proof));
        assert!(!at_dialler.verify(&token(2), Side::Listener, &proof), "another token");
        assert!(!at_listener.verify(&token(1), Side::Dialler, &proof), "the listener's own proof, sent back");
        let proof = at_dialler.prove(&token(1), Side::Dialler);
        assert!(at_listener.verify(&token(1), Side::Dialler, &proof));
        let later = Transcript { welcome: [&at_listener.welcome[..], b"x"].concat(), ..at_listener };
        assert!(!later.verify(&token(1), Side::Dialler, &proof), "other messages");
    }

    /// These bytes are a contract between members of different releases.
    #[test]
    fn the_bytes_of_a_greeting_and_its_proofs_are_those_of_version_3() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let sent = hello::body(&hello());
        assert_eq!(hex(&sent), "03030563616e616c0101010200");
        assert_eq!(hex(&hello::frame(&sent)), format!("6c6f636b6b6565700d00{}", hex(&sent)));
        let reply = hello::body(&HelloReply::Welcome { version: 3, member: MemberId(2) });
        assert_eq!(hex(&reply), "000302");
        let transcript = Transcript {
            hello: [&sent[..], &[0x11; NONCE]].concat(),
            welcome: [&reply[..], &[0x22; NONCE]].concat(),
        };
        let (dialler, listener) = GOLDEN_PROOFS;
        assert_eq!(hex(&transcript.prove(&token(7), Side::Dialler)), dialler);
        assert_eq!(hex(&transcript.prove(&token(7), Side::Listener)), listener);
        assert_eq!(hex(&hello::body(&hello::Confirm::Proof([0xab; 32]))), format!("00{}", "ab".repeat(32)));
        assert_eq!(hex(&hello::body(&hello::Confirm::Refused(hello::HelloRejection::Token))), "0106");
    }

    /// Computed by another implementation of HMAC-SHA256.
    const GOLDEN_PROOFS: (&str, &str) = (
        "d6f656230df6f8e3ea5d117387997fc2b3b0c59d685bf8e29cc99c2d0566d093",
        "fe0018b0d6312d7591d454b906f88b1276d4182cfacdb9432327bc7993f74de3",
    );
}
