//! Generates Rust code from the definitions in `proto/`. protox parses them, so that the build needs no protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["proto/v3lock.proto", "proto/v3election.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .build_client(cfg!(feature = "client"))
        .build_server(cfg!(feature = "server"))
        .build_transport(false)
        .compile_fds(files)?;
    Ok(())
}
