//! The largest file that the process may write (`RLIMIT_FSIZE`), as the cause of a failure.
//!
//! SQLite tells a write beyond it (EFBIG) as an I/O error or a full disk, as if the disk were at fault.

use crate::error::StoreError;
use crate::sqlite::beside;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use rusqlite::ErrorCode;
use std::path::Path;

/// Octets that a database and the files beside it grow by at most when it is opened.
const GROWTH_MAX: u64 = 1024 * 1024;

/// The limit in place of an error of SQLite about the database at `path`, if the limit explains it.
pub(crate) fn cause_of(error: StoreError, path: &Path) -> StoreError {
    let StoreError::Database(told) = &error else { return error };
    let is_write =
        matches!(told.sqlite_error_code(), Some(ErrorCode::SystemIoFailure | ErrorCode::DiskFull));
    let limit = getrlimit(Resource::RLIMIT_FSIZE).map_or(RLIM_INFINITY, |(soft, _)| soft);
    #[allow(clippy::useless_conversion, reason = "it is narrower on machines of 32 bits")]
    let octets = u64::from(limit);
    let files = [path.to_owned(), beside(path, "-wal"), beside(path, "-shm")];
    let largest = files.iter().filter_map(|file| file.metadata().ok()).map(|file| file.len()).max();
    if is_write && limit != RLIM_INFINITY && is_near(octets, largest.unwrap_or(0)) {
        return StoreError::SizeLimit { path: path.to_owned(), octets };
    }
    error
}

/// Whether a file of so many octets meets the limit when the database is opened.
const fn is_near(limit: u64, largest: u64) -> bool {
    limit < largest.saturating_add(GROWTH_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_far_above_the_files_is_no_cause() {
        assert!(is_near(0, 0) && is_near(4_096, 36_864));
        assert!(!is_near(1 << 30, 36_864));
        let foreign = StoreError::Foreign("a".into());
        assert!(matches!(cause_of(foreign, Path::new("a")), StoreError::Foreign(_)));
    }
}
