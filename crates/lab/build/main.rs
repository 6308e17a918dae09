//! Generates the mutants: the source of the algorithms with one guard changed.
//!
//! Since a mutant is generated from the source of its twin, it differs from the twin by nothing but that
//! guard.

use lockkeeper_core::registry;
use std::fmt::Write as _;

mod changes;
mod election_changes;

use changes::{CHANGES, Change};
use election_changes::{ELECTION_CHANGES, FAILOVER_CHANGES};

/// The source of the algorithms of a family.
#[derive(Clone, Copy)]
struct Family {
    /// The module of `lockkeeper_core` that contains their files.
    folder: &'static str,
    source: fn(&str) -> Option<&'static str>,
}

const ALGORITHMS: Family =
    Family { folder: "algorithms", source: |slug| registry::find(slug).map(|entry| entry.source) };
const ELECTIONS: Family =
    Family { folder: "elections", source: |slug| registry::find_election(slug).map(|entry| entry.source) };

fn main() {
    println!("cargo::rerun-if-changed=build");
    write("mutants.rs", ALGORITHMS, CHANGES);
    write("failover_mutants.rs", ALGORITHMS, FAILOVER_CHANGES);
    write("election_mutants.rs", ELECTIONS, ELECTION_CHANGES);
}

/// Writes a file with the mutants of a list, the list, and a function that visits one of them with its twin.
fn write(file: &str, family: Family, changes: &[Change]) {
    let mut modules = String::new();
    let mut list = String::from("/// All mutants.\npub const ALL: &[Mutant] = &[\n");
    let mut visit = String::new();
    for change in changes {
        let module = change.name.replace('-', "_");
        let twin = format!("lockkeeper_core::{}::{}::{}", family.folder, change.module, change.protocol);
        let _ = writeln!(
            modules,
            "pub mod {module} {{\n//! Mutant: {}.\n{}}}\n",
            change.story,
            spoiled(family, change)
        );
        let _ = writeln!(
            list,
            "Mutant {{ name: {:?}, twin: {twin}::ABOUT.slug, breaks: Property::{}, story: {:?} }},",
            change.name, change.breaks, change.story
        );
        let _ = writeln!(
            visit,
            "{:?} => Some(visitor.visit::<{module}::{}, {twin}>()),",
            change.name, change.protocol
        );
    }
    let text = format!(
        "{modules}\n{list}];\n\n/// Calls a visitor with a mutant and its twin; `None` if there is no such mutant.\n\
         pub fn visit<V: Visitor>(name: &str, visitor: V) -> Option<V::Output> {{\nmatch name {{\n{visit}_ => None,\n}}\n}}\n"
    );
    let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(std::path::Path::new(&out).join(file), text).expect("the build directory is writable");
}

fn spoiled(family: Family, change: &Change) -> String {
    let slug = change.module.replace('_', "-");
    let source = (family.source)(&slug)
        .unwrap_or_else(|| panic!("{}: there is no algorithm in the file {}.rs", change.name, change.module));
    let found = source.matches(change.from).count();
    assert!(
        found == 1,
        "{}: the text '{}' occurs {found} times in {}.rs but must occur exactly once; \
         if the algorithm has changed, change build/changes.rs with it",
        change.name,
        change.from,
        change.module
    );
    // The header of the algorithm's file does not apply to the mutant.
    let body: Vec<&str> = source.lines().filter(|line| !line.starts_with("//!")).collect();
    body.join("\n")
        .replace(change.from, change.to)
        .replace("use crate::", "use lockkeeper_core::")
        .replace("crate::rules!", "lockkeeper_core::rules!")
        .replace("crate::mutex::list", "lockkeeper_core::mutex::list")
        .replace("use alloc::", "use std::")
        .replace("super::", &format!("lockkeeper_core::{}::", family.folder))
}
