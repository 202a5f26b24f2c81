//! Whether the files of an open database are still at their paths.
//!
//! SQLite goes on writing to a file that was removed or replaced, or to a write-ahead log that was:
//! everything committed then is lost with the process.

use crate::sqlite::beside;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A file, whatever its name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct FileNumber {
    device: u64,
    inode: u64,
}

/// The files of an open database, and whether one is missing.
#[derive(Debug)]
pub(crate) struct Presence {
    database: (PathBuf, Option<FileNumber>),
    /// The write-ahead log; it exists from the first transaction on.
    log: (PathBuf, Option<FileNumber>),
    /// What is missing, as text for operators.
    missing: Option<String>,
}

impl Presence {
    /// The files of the database at `path`, which is open.
    pub(crate) fn new(path: &Path) -> Self {
        let noted = |path: PathBuf| {
            let id = found(&path).ok();
            (path, id)
        };
        let (database, log) = (noted(path.to_owned()), noted(beside(path, "-wal")));
        Self { database, log, missing: None }
    }

    /// Looks at the files; returns what is missing.
    pub(crate) fn look(&mut self) -> Option<&str> {
        self.missing = is_missing(&mut self.database).or_else(|| is_missing(&mut self.log));
        self.missing()
    }

    /// What was missing at the last look.
    pub(crate) fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }
}

/// Device and inode of the file at a path.
fn found(path: &Path) -> io::Result<FileNumber> {
    path.metadata().map(|file| FileNumber { device: file.dev(), inode: file.ino() })
}

/// Why a file is not at its path, if it is not; it is noted if it was not there before.
fn is_missing((path, noted): &mut (PathBuf, Option<FileNumber>)) -> Option<String> {
    let name = path.display();
    match (found(path), *noted) {
        (Ok(id), Some(noted)) if id != noted => {
            Some(format!("{name} was replaced by another file while it was open"))
        }
        (Ok(id), _) => {
            *noted = Some(id);
            None
        }
        // What cannot be looked at may be there.
        (Err(error), Some(_)) if error.kind() == io::ErrorKind::NotFound => {
            Some(format!("{name} was removed or moved while it was open"))
        }
        (Err(_), _) => None,
    }
}
