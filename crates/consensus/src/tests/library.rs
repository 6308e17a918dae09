//! The Raft library's own conformance tests for log stores and state machines.

use super::super::*;
use openraft::StorageError;
use openraft::testing::{StoreBuilder, Suite};
use types::Types;

struct Stores;

impl StoreBuilder<Types, Log, Machine> for Stores {
    async fn build(&self) -> Result<((), Log, Machine), StorageError<StoreName>> {
        let store = Store::open_on(crate::store::testing::Disk::new(), MemberId(1)).unwrap();
        let events = Arc::new(EventSender::new(Arc::new(|_| {})).0);
        Ok(((), Log::new(store.clone()).unwrap(), Machine::new(store, MemberId(1), events).unwrap()))
    }
}

#[test]
fn the_library_accepts_log_and_machine() {
    Suite::test_all(Stores).unwrap();
}
