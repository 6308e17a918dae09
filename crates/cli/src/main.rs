//! The binary `lockkeeper`. Everything is in the library.

/// mimalloc, because glibc's allocator merges freed blocks in one go: with 10⁶ holds a single step of a member took
/// 100 ms. The other commands are short, and glibc's allocator starts faster.
#[cfg(any(feature = "daemon", feature = "lab"))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    lockkeeper_cli::main()
}
