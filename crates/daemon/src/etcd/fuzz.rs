//! Entry points for fuzzing gRPC messages.

use super::pb::{etcdserverpb, v3electionpb, v3lockpb};
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
    key_of(bytes);
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
}
