//! Passes the folder of the algorithms' source to the build scripts of crates that depend on this one: the lab generates
//! its mutants from it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::metadata=source={}/src", std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
}
