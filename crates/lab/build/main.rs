//! Writes the wrong-on-purpose variants: the text of the real algorithms with one guard changed.
//!
//! Made from the very text of the algorithms, a variant can differ from its twin by nothing but that guard.

use std::fmt::Write as _;

mod changes;

use changes::{CHANGES, Change};

fn main() {
    println!("cargo::rerun-if-changed=build");
    let mut modules = String::new();
    let mut list = String::from("/// Every variant.\npub const ALL: &[Mutant] = &[\n");
    let mut visit = String::new();
    for change in CHANGES {
        let module = change.name.replace('-', "_");
        let _ = writeln!(
            modules,
            "pub mod {module} {{\n//! Wrong on purpose: {}.\n{}}}\n",
            change.story,
            spoiled(change)
        );
        let _ = writeln!(
            list,
            "Mutant {{ name: {:?}, twin: lockkeeper_core::algorithms::{}::{}::ABOUT.slug, breaks: Property::{}, story: {:?} }},",
            change.name, change.module, change.protocol, change.breaks, change.story
        );
        let _ = writeln!(
            visit,
            "{:?} => Some(visitor.visit::<{module}::{}, lockkeeper_core::algorithms::{}::{}>()),",
            change.name, change.protocol, change.module, change.protocol
        );
    }
    let text = format!(
        "{modules}\n{list}];\n\n/// Does something with a variant and its twin; `None` if there is no such variant.\n\
         pub fn visit<V: Visitor>(name: &str, visitor: V) -> Option<V::Output> {{\nmatch name {{\n{visit}_ => None,\n}}\n}}\n"
    );
    let out = std::env::var_os("OUT_DIR").expect("cargo says where to write");
    std::fs::write(std::path::Path::new(&out).join("mutants.rs"), text)
        .expect("the build directory can be written");
}

fn spoiled(change: &Change) -> String {
    let slug = change.module.replace('_', "-");
    let entry = lockkeeper_core::registry::find(&slug)
        .unwrap_or_else(|| panic!("{}: there is no algorithm in the file {}.rs", change.name, change.module));
    let found = entry.source.matches(change.from).count();
    assert!(
        found == 1,
        "{}: the text '{}' stands {found} times in {}.rs and must stand exactly once; \
         if the algorithm has changed, change build/changes.rs with it",
        change.name,
        change.from,
        change.module
    );
    // The real file's header would not be true of the variant.
    let body: Vec<&str> = entry.source.lines().filter(|line| !line.starts_with("//!")).collect();
    body.join("\n")
        .replace(change.from, change.to)
        .replace("use crate::", "use lockkeeper_core::")
        .replace("use alloc::", "use std::")
        .replace("crate::rules!", "lockkeeper_core::rules!")
        .replace("super::", "lockkeeper_core::algorithms::")
}
