//! Generates the mutants: the source of the algorithms with one guard changed.
//!
//! Since a mutant is generated from the source of its twin, it differs from the twin by nothing but that
//! guard.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

mod changes;
mod election_changes;

use changes::{CHANGES, Change};
use election_changes::{ELECTION_CHANGES, FAILOVER_CHANGES};

/// A family of algorithms.
#[derive(Clone, Copy)]
enum Family {
    MutualExclusion,
    Elections,
}

impl Family {
    /// The module of `lockkeeper_core` that contains their files.
    fn folder(self) -> &'static str {
        match self {
            Self::MutualExclusion => "algorithms",
            Self::Elections => "elections",
        }
    }

    /// The source text of the algorithm in this module.
    fn source(self, module: &str) -> std::io::Result<String> {
        let core = PathBuf::from(environment("DEP_LOCKKEEPER_CORE_SOURCE"));
        std::fs::read_to_string(core.join(self.folder()).join(module).with_extension("rs"))
    }
}

/// A variable that cargo sets for build scripts.
fn environment(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn main() {
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed={}", environment("DEP_LOCKKEEPER_CORE_SOURCE"));
    write("mutants.rs", Family::MutualExclusion, CHANGES);
    write("failover_mutants.rs", Family::MutualExclusion, FAILOVER_CHANGES);
    write("election_mutants.rs", Family::Elections, ELECTION_CHANGES);
}

/// Writes a file with the mutants of a list, and the list.
fn write(file: &str, family: Family, changes: &[Change]) {
    let (mut modules, mut list) = (String::new(), String::new());
    for change in changes {
        let Change { name, protocol, breaks, story, .. } = change;
        let module = name.replace('-', "_");
        let twin = format!("lockkeeper_core::{}::{}::{protocol}", family.folder(), change.module);
        let source = spoiled(family, change);
        let _ = writeln!(modules, "mod {module} {{\n//! Mutant: {story}.\n{source}}}\n");
        let _ = writeln!(
            list,
            "Mutant {{ name: {name:?}, algorithm: algorithm::of::<{module}::{protocol}>(), \
             twin: {twin}::ABOUT.slug, breaks: Property::{breaks}, story: {story:?} }},"
        );
    }
    let text = format!("{modules}\n/// All mutants.\npub const ALL: &[Mutant] = &[\n{list}];\n");
    std::fs::write(Path::new(&environment("OUT_DIR")).join(file), text)
        .expect("the build directory is writable");
}

/// The text of the twin with one guard changed. Its messages, timers, rules and options are those of the twin itself,
/// so that they are not compiled again.
fn spoiled(family: Family, change: &Change) -> String {
    let source = family
        .source(change.module)
        .unwrap_or_else(|error| panic!("{}: {}.rs: {error}", change.name, change.module));
    let (shared, own): (Vec<Item>, Vec<Item>) = items(&source).into_iter().partition(Item::is_shared);
    let own: Vec<&str> = own.iter().map(|item| item.text.as_str()).collect();
    let body = own.concat();
    let found = body.matches(change.from).count();
    assert!(
        found == 1,
        "{}: the text '{}' occurs {found} times in {}.rs but must occur exactly once; \
         if the algorithm has changed, change build/changes.rs with it",
        change.name,
        change.from,
        change.module
    );
    let body = body
        .replace(change.from, change.to)
        .replace("use crate::", "use lockkeeper_core::")
        .replace("crate::mutex::list", "lockkeeper_core::mutex::list")
        .replace("use alloc::", "use std::")
        .replace("super::", &format!("lockkeeper_core::{}::", family.folder()));
    let mut names: Vec<&str> = shared.iter().map(|item| item.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let twin = format!("lockkeeper_core::{}::{}", family.folder(), change.module);
    format!(
        "#![allow(unused_imports, dead_code, reason = \"some of it is used only by the twin\")]\nuse {twin}::{{{}}};\n{body}",
        names.join(", ")
    )
}

/// A top-level item of a source file.
#[derive(Default)]
struct Item {
    text: String,
    /// The name of the type that it defines or implements a trait for.
    name: String,
}

impl Item {
    fn is_shared(&self) -> bool {
        ["Token", "Message", "Body", "Lot", "Order", "Role", "Timer", "Rule", "Options"]
            .contains(&self.name.as_str())
    }
}

/// The items of a source file that is formatted by rustfmt, without the header.
fn items(source: &str) -> Vec<Item> {
    let mut items = vec![Item::default()];
    for line in source.lines().filter(|line| !line.starts_with("//!")) {
        let item = items.last_mut().expect("there is always a last item");
        item.text += line;
        item.text.push('\n');
        if item.name.is_empty() {
            item.name = defined(line).into();
        }
        // An item ends with a line that closes it, or is a single line.
        let at_the_margin = !line.starts_with([' ', '/', '#']);
        if line.starts_with(['}', ']', ')']) || (at_the_margin && line.ends_with([';', '}'])) {
            items.push(Item::default());
        }
    }
    items
}

/// The name of the type that an item with this first line defines or implements a trait for; empty if there is none,
/// or if the type has parameters.
fn defined(line: &str) -> &str {
    let starts = ["pub enum ", "pub struct ", "    pub enum ", "impl "];
    let Some(rest) = starts.iter().find_map(|start| line.strip_prefix(start)) else { return "" };
    let rest = rest.split_once(" for ").map_or(rest, |(_, after)| after);
    rest.split_once([' ', ';']).map_or("", |(name, _)| name)
}
