//! Errors of files and folders that a command reads or writes.

use std::io;
use std::path::{Path, PathBuf};

/// A file or a folder that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The underlying error.
        source: io::Error,
    },
    /// The entries of a folder cannot be read.
    #[error("cannot read the folder {path}: {source}")]
    ReadFolder {
        /// The path of the folder.
        path: PathBuf,
        /// The underlying error.
        source: io::Error,
    },
    /// A file, or the files of a folder, cannot be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file or the folder.
        path: PathBuf,
        /// The underlying error.
        source: io::Error,
    },
    /// A folder cannot be made.
    #[error("cannot make {path}: {source}")]
    MakeFolder {
        /// The path of the folder.
        path: PathBuf,
        /// The underlying error.
        source: io::Error,
    },
    /// The file of a trace cannot be written.
    #[error("{path}: {source}")]
    Trace {
        /// The path of the file.
        path: PathBuf,
        /// The underlying error.
        source: io::Error,
    },
}

impl FileError {
    /// Makes the error of a file that cannot be read.
    pub fn read(path: &Path) -> impl Fn(io::Error) -> Self {
        |source| Self::Read { path: path.into(), source }
    }

    /// Makes the error of a folder that cannot be read.
    pub fn read_folder(path: &Path) -> impl Fn(io::Error) -> Self {
        |source| Self::ReadFolder { path: path.into(), source }
    }

    /// Makes the error of a file that cannot be written.
    pub fn write(path: &Path) -> impl Fn(io::Error) -> Self {
        |source| Self::Write { path: path.into(), source }
    }

    /// Makes the error of a folder that cannot be made.
    pub fn make_folder(path: &Path) -> impl Fn(io::Error) -> Self {
        |source| Self::MakeFolder { path: path.into(), source }
    }

    /// Makes the error of a trace that cannot be written.
    pub fn trace(path: &Path) -> impl Fn(io::Error) -> Self {
        |source| Self::Trace { path: path.into(), source }
    }
}
