//! The code in `generated/` is what the definitions in `proto/` give.

use std::path::Path;

/// The generated files, one for each package of etcd's API.
const FILES: [&str; 4] = ["etcdserverpb.rs", "mvccpb.rs", "v3electionpb.rs", "v3lockpb.rs"];

/// Generates the code. protox parses the definitions, so that no protoc is needed.
fn generate(into: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let files = protox::compile(["v3lock.proto", "v3election.proto"], [proto])?;
    tonic_prost_build::configure()
        .client_mod_attribute(".", r#"#[cfg(feature = "client")]"#)
        .server_mod_attribute(".", r#"#[cfg(feature = "server")]"#)
        .build_transport(false)
        .emit_rerun_if_changed(false)
        .out_dir(into)
        .compile_fds(files)?;
    Ok(())
}

#[test]
fn the_generated_code_is_current() {
    let folder = tempfile::tempdir().expect("a folder");
    generate(folder.path()).expect("the definitions compile");
    let mut written: Vec<String> = std::fs::read_dir(folder.path())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    written.sort();
    assert_eq!(written, FILES);
    for file in FILES {
        let new = std::fs::read_to_string(folder.path().join(file)).expect("generated");
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("generated").join(file);
        if std::env::var_os("LOCKKEEPER_BLESS").is_some() {
            std::fs::write(&kept, &new).expect("written");
        }
        let old = std::fs::read_to_string(&kept).unwrap_or_default();
        assert!(
            old == new,
            "generated/{file} is not what proto/ gives: write it with\n\
             LOCKKEEPER_BLESS=1 cargo test -p lockkeeper-etcd-api --test generated"
        );
    }
}
