//! `docs/security.md` contains the table of rights that the daemon enforces, and the table covers everything that the
//! daemon serves.

use super::start;
use crate::support::get;
use lockkeeper_daemon::{ETCD_PATHS, rights_table};
use std::collections::BTreeSet;
use std::path::Path;

const BEGINS: &str = "<!-- The table is generated: see crates/daemon/src/rights.rs. -->\n";
const ENDS: &str = "<!-- End of the generated table. -->";

/// `LOCKKEEPER_WRITE_DOCS=1 cargo test -p lockkeeper-daemon --test access document` writes the table into the document.
#[test]
fn document_has_the_table_of_rights_that_is_enforced() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let text = std::fs::read_to_string(&path).expect("the document");
    let (before, rest) = text.split_once(BEGINS).expect("the beginning of the table");
    let (found, after) = rest.split_once(ENDS).expect("the end of the table");
    if found != rights_table() && std::env::var_os("LOCKKEEPER_WRITE_DOCS").is_some() {
        let text = format!("{before}{BEGINS}{}{ENDS}{after}", rights_table());
        return std::fs::write(&path, text).expect("written");
    }
    assert_eq!(
        found,
        rights_table(),
        "docs/security.md is out of date: run this test with LOCKKEEPER_WRITE_DOCS=1"
    );
}

/// The entries of one column of the table.
fn column(number: usize) -> BTreeSet<String> {
    let table = rights_table();
    let cells = table.lines().skip(2).filter_map(|line| line.split('|').nth(number));
    let names = cells.flat_map(|cell| cell.split(','));
    names.map(|name| name.trim().trim_matches('`').to_string()).filter(|name| name != "–").collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn table_of_rights_names_everything_that_is_served() {
    let daemons = start(1).await;
    let document = get(daemons.address(0), "/openapi.json").await.is(200);
    let paths = document["paths"].as_object().expect("paths").iter();
    let served: BTreeSet<String> = paths
        .flat_map(|(path, operations)| {
            let methods = operations.as_object().expect("operations").keys();
            methods.map(move |method| format!("{} {path}", method.to_uppercase()))
        })
        .collect();
    let mut named = column(3);
    assert!(named.remove("GET /metrics (with a token)"));
    assert_eq!(named, served);
    let calls = ETCD_PATHS.iter().map(|path| path.split_once('.').expect("a package").1.to_string());
    assert_eq!(column(4), calls.collect());
}
