//! Output files that replace nothing.

use crate::exit::{Exit, Failure};
use std::{
    fs::{self, OpenOptions},
    io::{ErrorKind, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// Permissions of a file that its owner alone can read.
pub const OWNER_ONLY: u32 = 0o600;

/// Permissions of any new file, before the process's mask.
pub const FOR_ALL: u32 = 0o666;

/// Writes a new file with these permissions, wholly or not at all: what the user wrote is never
/// replaced, and a part of a file would be in the way of the next try.
///
/// # Errors
///
/// A [`Failure`] that names the file.
pub fn write_new(path: &Path, octets: &[u8], mode: u32) -> Result<(), Failure> {
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = file.and_then(|mut file| {
        file.write_all(octets).and_then(|()| file.sync_all()).inspect_err(|_| {
            // The error of the write is what the user has to know.
            let _left = fs::remove_file(path);
        })
    });
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => is_there(path),
        _ => Failure::file(&path.to_string_lossy(), &error),
    })
}

/// What is said of a file that would be replaced.
pub fn is_there(path: &Path) -> Failure {
    let message = format!("{} is there already and is not replaced", path.display());
    Failure::new(Exit::Negative, message)
}
