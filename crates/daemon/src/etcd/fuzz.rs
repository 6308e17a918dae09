//! Entry points for fuzzing gRPC messages.

use super::keys::{entries_of, parse_gate};
use super::pb::{etcdserverpb, v3electionpb, v3lockpb};
use super::recipe::{self, Read, Transaction};
use super::{lease_id, split, text};
use prost::Message;

/// Decodes a message as every kind of request, and parses the names, keys and ids in it.
pub(crate) fn message(bytes: &[u8]) {
    if let Some(v3lockpb::LockRequest { name, lease }) = decode(bytes) {
        let _ = (text(name), lease_id(lease));
    }
    if let Some(v3lockpb::UnlockRequest { key }) = decode(bytes) {
        key_of(&key);
    }
    if let Some(etcdserverpb::LeaseGrantRequest { id, .. }) = decode(bytes) {
        let _ = lease_id(id);
    }
    if let Some(v3electionpb::CampaignRequest { name, lease, .. }) = decode(bytes) {
        let _ = (text(name), lease_id(lease));
    }
    if let Some(v3electionpb::ProclaimRequest { leader: Some(leader), .. }) = decode(bytes) {
        key_of(&leader.key);
    }
    if let Some(v3electionpb::ResignRequest { leader: Some(leader) }) = decode(bytes) {
        key_of(&leader.key);
    }
    decode::<v3electionpb::LeaderRequest>(bytes);
    decode::<etcdserverpb::LeaseRevokeRequest>(bytes);
    decode::<etcdserverpb::LeaseKeepAliveRequest>(bytes);
    decode::<etcdserverpb::LeaseTimeToLiveRequest>(bytes);
    decode::<etcdserverpb::LeaseLeasesRequest>(bytes);
    decode::<etcdserverpb::AuthenticateRequest>(bytes);
    recipes(bytes);
    key_of(bytes);
}

/// Decodes a message as every request of the client-side recipes, and recognizes its shape.
fn recipes(bytes: &[u8]) {
    if let Some(request) = decode::<etcdserverpb::TxnRequest>(bytes) {
        match recipe::transaction(request) {
            Ok(
                Transaction::Enqueue { at, .. }
                | Transaction::Campaign { at, .. }
                | Transaction::Proclaim { at, .. },
            ) => {
                let entries = entries_of(&at.key);
                assert!(entries.contains(&(at.lock.as_str(), at.lease)), "{at:?} is not found by its key");
            }
            Ok(Transaction::Try { key, .. } | Transaction::ReleaseByValue { key, .. }) => drop(text(key)),
            Ok(Transaction::Resign { key, .. }) => key_of(&key),
            Err(refused) => assert!(!refused.message().is_empty()),
        }
    }
    if let Some(Ok(read)) = decode::<etcdserverpb::RangeRequest>(bytes).map(recipe::read) {
        match read {
            Read::Key(key) => key_of(&key),
            Read::First(lock) | Read::Before(lock, _) => drop(text(lock)),
        }
    }
    if let Some(Ok(key)) = decode::<etcdserverpb::DeleteRangeRequest>(bytes).map(recipe::delete) {
        key_of(&key);
    }
    if let Some(etcdserverpb::WatchRequest {
        request_union: Some(etcdserverpb::watch_request::RequestUnion::CreateRequest(create)),
    }) = decode(bytes)
    {
        assert!(recipe::watch(&create).is_ok_and(|watch| watch.start >= 0) || !create.range_end.is_empty());
    }
}

/// Decodes a message, and checks that encoding and decoding it again yields the same message.
fn decode<M: Message + Default + PartialEq + std::fmt::Debug>(bytes: &[u8]) -> Option<M> {
    let message = M::decode(bytes).ok()?;
    assert_eq!(M::decode(&message.encode_to_vec()[..]).ok().as_ref(), Some(&message));
    Some(message)
}

fn key_of(key: &[u8]) {
    if let Some((name, _)) = split(key) {
        assert!(key.starts_with(name.as_bytes()));
    }
    if let Some((lock, ticket)) = parse_gate(key) {
        // Other digits of the same number are no other gate.
        assert_eq!(parse_gate(&ticket.gate(lock)), Some((lock, ticket)));
    }
}
