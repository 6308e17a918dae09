use super::testing::Disk;
use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

const ME: MemberId = MemberId(1);

fn put(record: Record, value: u64) -> Change {
    Change::Put(record, encode(&value).unwrap())
}

fn entry(index: u64) -> Change {
    Change::Entry(index, encode(&format!("entry {index}")).unwrap())
}

/// The content of a store, except for its seal.
type StoreContent = (u64, Option<u64>, Vec<(u64, String)>);

fn content(store: &Store) -> Result<StoreContent, StoreError> {
    Ok((store.name(), store.read(Record::Vote)?, store.entries(..)?))
}

fn filled(disk: &Disk) -> (Store, StoreContent) {
    let store = Store::open_on(disk.clone(), ME).unwrap();
    for index in 0..20 {
        store.write(&[put(Record::Vote, 100 + index), entry(index)]).unwrap();
    }
    store.write(&[Change::Drop(0, 4), Change::Drop(18, u64::MAX)]).unwrap();
    store.write(&[put(Record::Vote, 777)]).unwrap();
    let content = content(&store).unwrap();
    (store, content)
}

#[test]
fn content_of_a_store_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), ME).unwrap();
    store.write(&[put(Record::Vote, 3), entry(0), entry(1), entry(2)]).unwrap();
    store.write(&[Change::Drop(2, 2)]).unwrap();
    let before = content(&store).unwrap();
    assert_eq!(before.2, [(0, "entry 0".to_string()), (1, "entry 1".to_string())]);
    assert_eq!(store.last_index().unwrap(), Some(1));
    drop(store);
    assert_eq!(content(&Store::open(directory.path(), ME).unwrap()).unwrap(), before);
}

#[test]
fn two_processes_cannot_open_one_store() {
    let directory = tempfile::tempdir().unwrap();
    let first = Store::open(directory.path(), ME).unwrap();
    let refused = Store::open(directory.path(), ME).unwrap_err();
    assert!(matches!(refused, StoreError::InUse { .. }), "{refused}");
    // A closed store releases the file, even if handles remain.
    first.close();
    Store::open(directory.path(), ME).unwrap();
    assert_eq!(first.last_index(), Err(StoreError::Closed));
}

#[test]
fn the_store_of_another_member_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    drop(Store::open(directory.path(), ME).unwrap());
    let refused = Store::open(directory.path(), MemberId(2)).unwrap_err();
    assert!(refused.to_string().contains("belongs to M1, and this is M2"), "{refused}");
}

#[test]
fn another_format_is_refused() {
    let disk = Disk::new();
    let store = Store::open_on(disk.clone(), ME).unwrap();
    let other = Identity { format: FORMAT + 1, member: ME, name: store.name() };
    store.write(&[Change::Put(Record::Identity, encode(&other).unwrap())]).unwrap();
    drop(store);
    let refused = Store::open_on(disk, ME).unwrap_err();
    assert!(matches!(refused, StoreError::OtherFormat { found, .. } if found == FORMAT + 1), "{refused}");
}

#[test]
fn a_new_disk_is_a_new_store() {
    let [one, other] = [Disk::new(), Disk::new()].map(|disk| Store::open_on(disk, ME).unwrap().name());
    assert_ne!(one, other);
}

#[test]
fn record_at_the_wrong_key_is_detected_as_damage() {
    let bytes = sealed(Record::Vote.key(), b"vote");
    assert_eq!(check(Record::Vote.key(), &bytes).unwrap(), b"vote");
    assert!(check(Record::Purged.key(), &bytes).is_err());
    assert!(check(record::entry_key(3), &bytes).is_err());
    assert!(check(Record::Vote.key(), &bytes[..3]).is_err());
}

/// Opens a damaged disk. It must be rejected, or have the right content. (The database may also panic, which
/// [`Store::run`] turns into an error.)
fn is_refused_or_right(damaged: Vec<u8>, right: &StoreContent, how: &str) -> bool {
    let read = || Store::open_on(Disk::with(damaged), ME).and_then(|store| content(&store));
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(content)) => {
            assert_eq!(content, *right, "{how}: silently wrong");
            false
        }
        Ok(Err(_)) | Err(_) => true,
    }
}

/// Flips one bit at a time: each one of the header, and a sample of the rest.
fn flip_bits(bytes: &[u8], right: &StoreContent, how: &str) -> usize {
    let places = (0..512).chain((512..bytes.len()).step_by(bytes.len() / 800));
    let flip = |at: usize| {
        let mut damaged = bytes.to_vec();
        damaged[at] ^= 1 << (at % 8);
        is_refused_or_right(damaged, right, &format!("{how}, bit {} of byte {at}", at % 8))
    };
    places.filter(|&at| bytes[at] != 0 || at < 512).filter(|&at| flip(at)).count()
}

#[test]
fn a_flipped_bit_is_never_silently_wrong() {
    let disk = Disk::new();
    let (store, right) = filled(&disk);
    let cut = disk.contents();
    drop(store);
    let closed = disk.contents();
    assert!(flip_bits(&cut, &right, "after a power cut") > 20);
    assert!(flip_bits(&closed, &right, "after an orderly stop") > 20);
}

#[test]
fn every_bit_of_the_byte_that_names_the_commit_slot_may_flip() {
    let disk = Disk::new();
    let (store, right) = filled(&disk);
    let cut = disk.contents();
    drop(store);
    for (how, bytes) in [("power cut", cut), ("stopped", disk.contents())] {
        for at in 0..64 {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                is_refused_or_right(damaged, &right, &format!("{how}, bit {bit} of byte {at}"));
            }
        }
    }
}

#[test]
fn a_torn_tail_is_refused() {
    let disk = Disk::new();
    let (store, right) = filled(&disk);
    let bytes = disk.contents();
    drop(store);
    for keep in [bytes.len() - 1, bytes.len() / 2, 4096, 100] {
        assert!(is_refused_or_right(bytes[..keep].to_vec(), &right, &format!("{keep} bytes kept")), "{keep}");
    }
}

/// Wherever the disk becomes full, no acknowledged change is lost, and the store works again once there is
/// space.
#[test]
fn a_full_disk_loses_nothing_that_was_acknowledged() {
    let mut refused = 0;
    for space in (0..60_000).step_by(997) {
        let disk = Disk::new();
        let store = Store::open_on(disk.clone(), ME).unwrap();
        store.write(&[put(Record::Vote, 0)]).unwrap();
        disk.set_space(space);
        let mut acknowledged = 0;
        for vote in 1..=10 {
            match store.write(&[put(Record::Vote, vote), entry(vote)]) {
                Ok(()) => acknowledged = vote,
                Err(error) => {
                    assert!(matches!(error, StoreError::Disk { .. }), "{error}");
                    refused += 1;
                    break;
                }
            }
        }
        let name = store.name();
        drop(store);
        disk.set_space(u64::MAX);
        let store = Store::open_on(disk, ME).unwrap();
        assert_eq!(store.name(), name);
        let vote: u64 = store.read(Record::Vote).unwrap().unwrap();
        assert!(vote == acknowledged || vote == acknowledged + 1, "{vote} instead of {acknowledged}");
        store.write(&[put(Record::Vote, 99)]).unwrap();
    }
    assert!(refused > 5, "the disk was hardly ever full: {refused}");
}
