//! `lockkeeper completions` and `lockkeeper man`: generated from the same definitions as `--help`.

use crate::exit;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print completions for a shell
#[derive(clap::Args)]
pub struct Completions {
    shell: clap_complete::Shell,
}

/// Write the man pages to a directory, which is created if needed
#[derive(clap::Args)]
pub struct Man {
    directory: PathBuf,
}

/// Prints the completions for a shell.
pub fn completions(args: &Completions, mut cli: clap::Command) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut cli, "lockkeeper", &mut script);
    // A closed pipe is not an error.
    let _ = std::io::stdout().write_all(&script);
    ExitCode::SUCCESS
}

/// Writes `lockkeeper.1`, `lockkeeper-run.1` and so on.
pub fn man(args: &Man, cli: clap::Command) -> ExitCode {
    let written = std::fs::create_dir_all(&args.directory)
        .and_then(|()| clap_mangen::generate_to(cli, &args.directory));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lockkeeper: cannot write man pages to {}: {error}", args.directory.display());
            ExitCode::from(exit::CANNOT_RUN)
        }
    }
}
