//! The bytes of the store on disk. A change of `tests/golden/store.txt` raises [`FORMAT`].
//!
//! The values of the records, except for the identity and the seal, are pinned in `consensus`.

use super::testing::Disk;
use super::*;
use lockkeeper_testbed::every_variant;
use lockkeeper_testbed::golden::Golden;

fn records() -> Vec<(&'static str, Record)> {
    every_variant!(Record {
        "identity": Record::Identity => Record::Identity,
        "seal": Record::Seal => Record::Seal,
        "cluster": Record::Cluster => Record::Cluster,
        "vote": Record::Vote => Record::Vote,
        "committed": Record::Committed => Record::Committed,
        "purged": Record::Purged => Record::Purged,
        "snapshot": Record::Snapshot => Record::Snapshot,
    })
}

/// Every row of the database: its table, its key, and its bytes with the checksum.
#[test]
fn bytes_of_records_on_disk_do_not_change() {
    let mut golden = Golden::default();
    let me = MemberId(5);
    golden.text("file", FILE);
    golden.text("format", &FORMAT.to_string());
    let store = Store::open_on(Disk::new(), me).unwrap();
    for (_, record) in records() {
        let bytes = match record {
            Record::Identity => encode(&Identity { format: FORMAT, member: me, name: 0x0102_0304 }).unwrap(),
            // The store counts its writes in the seal.
            Record::Seal => continue,
            Record::Cluster | Record::Vote | Record::Committed | Record::Purged | Record::Snapshot => {
                encode(&format!("record {}", record as u8)).unwrap()
            }
        };
        store.write(&[Change::Put(record, bytes)]).unwrap();
    }
    store.write(&[Change::Entry(0x0708, encode(&"entry").unwrap())]).unwrap();
    let database = store.close().unwrap();
    let reading = database.begin_read().unwrap();
    let table = reading.open_table(TableDefinition::<u8, &[u8]>::new("records")).unwrap();
    let mut found = 0;
    for row in table.iter().unwrap() {
        let (key, bytes) = row.unwrap();
        let key = key.value();
        let (name, _) = records().into_iter().find(|(_, record)| *record as u8 == key).unwrap();
        golden.bytes(&format!("records {key} {name}"), bytes.value());
        found += 1;
    }
    assert_eq!(found, records().len());
    let log = reading.open_table(TableDefinition::<u64, &[u8]>::new("log")).unwrap();
    for row in log.iter().unwrap() {
        let (index, bytes) = row.unwrap();
        golden.bytes(&format!("log {}", index.value()), bytes.value());
    }
    golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/store.txt");
}
