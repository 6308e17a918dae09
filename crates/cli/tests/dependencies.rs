//! Checks of the dependencies: every package comes from a registry with a checksum, under a licence that permits
//! distribution, and none needs protoc.

use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

/// The accepted licences; an expression with OR needs only one of them.
const LICENCES: [&str; 13] = [
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSL-1.0",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "0BSD",
    "Unicode-3.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "Unlicense",
];

/// Exceptions for packages that only tests use, which are not shipped: package, licence, and our dependency that
/// needs it.
const OF_TESTS: [(&str, &str, &str); 1] = [("webdriver", "MPL-2.0", "fantoccini")];

/// Generators of code from .proto files, which run protoc or take long to compile.
const GENERATORS: [&str; 8] = [
    "grpcio-compiler",
    "prost-build",
    "protobuf-codegen",
    "protobuf-src",
    "protoc-bin-vendored",
    "protox",
    "tonic-build",
    "tonic-prost-build",
];

fn packages() -> Vec<Value> {
    metadata()["packages"].as_array().expect("a list of packages").clone()
}

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--all-features"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo writes JSON")
}

/// Whether a licence expression can be satisfied: each part joined by AND needs one accepted alternative.
fn allowed(expression: &str) -> bool {
    let plain = expression.replace(['(', ')'], "").replace('/', " OR ");
    plain.split(" AND ").all(|part| part.split(" OR ").any(|licence| LICENCES.contains(&licence.trim())))
}

/// Whether our packages need a package only for tests: directly, or through a package that is only for tests.
fn is_of_tests(packages: &[Value], name: &str) -> bool {
    let ours = packages.iter().filter(|package| package["source"].is_null());
    let mut needs = ours
        .flat_map(|package| {
            let needs = package["dependencies"].as_array().into_iter().flatten();
            needs.map(|needed| (package["name"].as_str().unwrap_or_default(), needed))
        })
        .filter(|(_, needed)| needed["name"] == name)
        .peekable();
    needs.peek().is_some() && needs.all(|(by, needed)| needed["kind"] == "dev" || is_of_tests(packages, by))
}

#[test]
fn every_dependency_comes_from_a_registry_under_a_known_licence() {
    let packages = packages();
    let ours = packages.iter().filter(|package| package["source"].is_null()).count();
    assert!(ours >= 5 && packages.len() > ours, "the list must hold our crates and others");
    let mut wrong = BTreeSet::new();
    for package in packages.iter().filter(|package| !package["source"].is_null()) {
        let name = package["name"].as_str().unwrap_or_default();
        if !package["source"].as_str().is_some_and(|source| source.starts_with("registry+")) {
            wrong.insert(format!("{name} does not come from a registry"));
        }
        let licence = package["license"].as_str().unwrap_or("none");
        let of_tests = OF_TESTS
            .iter()
            .any(|&(package, under, by)| (package, under) == (name, licence) && is_of_tests(&packages, by));
        if !allowed(licence) && !of_tests {
            wrong.insert(format!("{name} has the licence {licence}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Checks every package of the workspace, with all features: `cargo build` must work without protoc, and generates no
/// code from .proto files.
#[test]
fn no_build_script_needs_protoc() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("a list of packages");
    let name = |id: &Value| &packages.iter().find(|package| package["id"] == *id).expect("a package")["name"];
    let (mut scripts, mut wrong) = (0, Vec::new());
    for node in metadata["resolve"]["nodes"].as_array().expect("a graph") {
        let for_building = |needed: &&Value| {
            let kinds = needed["dep_kinds"].as_array().expect("a list of kinds");
            kinds.iter().any(|kind| kind["kind"] == "build")
        };
        let needs = node["deps"].as_array().expect("a list of dependencies").iter().filter(for_building);
        for needed in needs.map(|needed| name(&needed["pkg"])) {
            scripts += 1;
            // A generator may need another one for its own build.
            if GENERATORS.iter().any(|generator| needed == generator)
                && !GENERATORS.iter().any(|it| name(&node["id"]) == it)
            {
                wrong.push(format!("the build script of {} uses {needed}", name(&node["id"])));
            }
        }
    }
    assert!(scripts > 0, "some build scripts have dependencies");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn licence_expressions_are_understood() {
    for (expression, expected) in [
        ("MIT OR Apache-2.0", true),
        ("MIT/Apache-2.0", true),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("GPL-3.0-only", false),
        ("MIT AND GPL-3.0-only", false),
        ("none", false),
    ] {
        assert_eq!(allowed(expression), expected, "{expression}");
    }
}
