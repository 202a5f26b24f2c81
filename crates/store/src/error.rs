//! Why a database cannot be opened or read.

use std::io;
use std::path::PathBuf;

/// Why the database cannot be opened or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process has it open.
    #[error("{} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// A folder stands where the database should be.
    #[error("{} is a folder, and a database is a file: the one that `store` of [cse] names", .0.display())]
    Folder(PathBuf),
    /// The folder of a database that is to be created does not exist.
    #[error(
        "there is no folder {} for {}: make it (`mkdir -p`) for the user that the gateway runs as, or \
         name a file elsewhere",
        folder.display(),
        path.display()
    )]
    NoFolder {
        /// The database.
        path: PathBuf,
        /// Its folder.
        folder: PathBuf,
    },
    /// The file has several names, and its write-ahead log goes by one of them.
    #[error(
        "{} has {names} names (hard links), and its write-ahead log goes by one of them: remove the others, or copy the file",
        path.display()
    )]
    Linked {
        /// The file.
        path: PathBuf,
        /// How many names it has.
        names: u64,
    },
    /// The database is gone, and a file that belongs to it remains.
    #[error(
        "{} is missing or empty, but {} remains: put the database back, or move that file away to \
         start with an empty one",
        path.display(),
        orphan.display()
    )]
    Orphan {
        /// The database.
        path: PathBuf,
        /// The file that remains.
        orphan: PathBuf,
    },
    /// The file belongs to another program.
    #[error("{} is no database of a CSE", .0.display())]
    Foreign(PathBuf),
    /// The file was written by a later version.
    #[error("{} has version {found} of the tables, and this program supports version {known}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// This program's version.
        known: i64,
    },
    /// SQLite can only read the file.
    #[error(
        "{} can be read but not written: octet 18 of its header, the write version, is damaged or of a \
         later SQLite, or its file system is read-only",
        .0.display()
    )]
    ReadOnly(PathBuf),
    /// The disk has no room to open the database, or to create one with its reserve.
    #[error(
        "{}: the disk is full: {} KiB are free, and {} KiB are needed; make room there, or put the \
         database elsewhere",
        path.display(),
        free / 1024,
        needed.div_ceil(1024)
    )]
    NoRoom {
        /// The database.
        path: PathBuf,
        /// Octets that are needed.
        needed: u64,
        /// Octets that are free.
        free: u64,
    },
    /// A file that would be written is there already.
    #[error("{} exists already, and is not overwritten: move it away first", .0.display())]
    Exists(PathBuf),
    /// A file that was given as a backup cannot be read as one.
    #[error("{} cannot be read as a backup: {source}", path.display())]
    Backup {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: rusqlite::Error,
    },
    /// A backup is damaged.
    #[error("{} is damaged: `gatewright store verify` shows what is wrong with it", .0.display())]
    Unsound(PathBuf),
    /// The audit log of a backup is broken, and nothing else.
    #[error(
        "entries of the audit log in {} are missing or changed, and nothing else is wrong with it: \
         `--broken-audit` restores it nevertheless, as it is after a salvage",
        .0.display()
    )]
    AuditBroken(PathBuf),
    /// The lock file cannot be created.
    #[error("the lock {} cannot be taken: {source}", path.display())]
    Lock {
        /// The lock.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file does not exist or cannot be accessed.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The process may not write files as large as the database's.
    #[error(
        "{} cannot be written: this process may write files of at most {octets} octets: `ulimit -f \
         unlimited`, or `LimitFSIZE=infinity` in the service",
        path.display()
    )]
    SizeLimit {
        /// The file.
        path: PathBuf,
        /// The limit (`RLIMIT_FSIZE`).
        octets: u64,
    },
    /// The system gives no thread to read it.
    #[error("no thread to read the database: {0}")]
    Thread(#[source] io::Error),
    /// The database fails: damaged, unreadable, or the disk is full.
    #[error("error of the database: {0}")]
    Database(#[from] rusqlite::Error),
}

impl StoreError {
    /// The exit code of a program that ends for this (`sysexits.h`), where the cause has one: 75 for a
    /// database in use, 77 for a missing right, 69 for what the system does not allow, and for a folder
    /// that does not exist: what it is on may be mounted later.
    pub fn exit_code(&self) -> Option<u8> {
        match self {
            Self::InUse(_) => Some(75),
            Self::SizeLimit { .. } | Self::NoRoom { .. } | Self::NoFolder { .. } => Some(69),
            Self::Lock { source, .. } | Self::File { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => Some(77),
                io::ErrorKind::ReadOnlyFilesystem => Some(69),
                _ => None,
            },
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_has_an_exit_code_is_told_apart() {
        let lock =
            |kind: io::ErrorKind| StoreError::Lock { path: "a.lock".into(), source: kind.into() };
        for (error, code) in [
            (StoreError::InUse("a".into()), Some(75)),
            (lock(io::ErrorKind::PermissionDenied), Some(77)),
            (lock(io::ErrorKind::ReadOnlyFilesystem), Some(69)),
            (lock(io::ErrorKind::NotFound), None),
            (StoreError::SizeLimit { path: "a".into(), octets: 0 }, Some(69)),
            (StoreError::NoFolder { path: "a/b".into(), folder: "a".into() }, Some(69)),
            (StoreError::Foreign("a".into()), None),
        ] {
            assert_eq!(error.exit_code(), code, "{error}");
        }
        assert!(lock(io::ErrorKind::ReadOnlyFilesystem).to_string().contains("ead-only"));
    }
}
