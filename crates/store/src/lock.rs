//! Locks that keep a database with one writer, whatever name it is opened by.
//!
//! Two locks are held: one of a file beside the database, which is there before the database is and
//! while a restore replaces it, and one of the database file itself, which has no name and so holds
//! for a file that was moved or mounted elsewhere. Both are of flock(2), which the locks of SQLite
//! (POSIX, `fcntl`) do not touch. But those are released when any descriptor of the file is closed
//! in the process: the database file is opened only while no connection is open, which the first
//! lock says, and closed after the connection.

use crate::error::StoreError;
use crate::sqlite::beside;
use std::fs::{File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Read and write for the owner, nothing for anybody else: a database has readings of patients. SQLite
/// gives its log and its index the mode of the database.
pub(crate) const OWNER_ONLY: u32 = 0o600;

/// Locks of a database. They are to be dropped after its connections.
#[derive(Debug)]
pub(crate) struct Lock {
    /// The database file; `None` if it does not exist yet.
    pub(crate) file: Option<Arc<File>>,
    /// The file beside it; `None` if a reader has found none.
    _beside: Option<File>,
}

/// The path that a symbolic link leads to, by which SQLite names the write-ahead log; any other path
/// as it is.
pub(crate) fn resolve(path: &Path) -> Result<PathBuf, StoreError> {
    if !path.is_symlink() {
        return Ok(path.to_owned());
    }
    let file_error = |source| StoreError::File { path: path.to_owned(), source };
    match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Where it leads to is known once there is a file.
            let mut options = File::options();
            options.create(true).append(true).mode(OWNER_ONLY).open(path).map_err(file_error)?;
            path.canonicalize().map_err(file_error)
        }
        resolved => resolved.map_err(file_error),
    }
}

/// A writer's action if there is no database.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Absent {
    /// It creates the file, so that it is locked before SQLite opens it.
    Create,
    /// It creates none.
    Leave,
}

/// Locks the database at a resolved path for a writer.
pub(crate) fn lock(path: &Path, absent: Absent) -> Result<Lock, StoreError> {
    let name = beside(path, ".lock");
    let beside = open_own(&name);
    let beside = beside.map_err(|source| StoreError::Lock { path: name.clone(), source })?;
    judge(beside.try_lock(), path, &name)?;
    refuse_links(path)?;
    let mut options = File::options();
    options.read(true).write(true).truncate(false).create(absent == Absent::Create);
    options.mode(OWNER_ONLY);
    let file = match options.open(path) {
        Ok(file) => Some(Arc::new(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(source) => return Err(StoreError::File { path: path.to_owned(), source }),
    };
    if let Some(file) = &file {
        judge(file.try_lock(), path, path)?;
    }
    Ok(Lock { file, _beside: Some(beside) })
}

/// Opens a file beside the database for writing, and creates it if it does not exist. Only the owner
/// may open it: whoever can open a lock can hold it.
pub(crate) fn open_own(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    let file = options.create(true).truncate(false).write(true).mode(OWNER_ONLY).open(path)?;
    // One of an earlier version was open to everybody.
    if file.metadata()?.mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(OWNER_ONLY))?;
    }
    Ok(file)
}

/// Locks the database at a resolved path for a reader, which keeps writers out; a file beside it is
/// not created if there has never been one.
pub(crate) fn share_lock(path: &Path) -> Result<Lock, StoreError> {
    let name = beside(path, ".lock");
    let beside = match File::open(&name) {
        Ok(beside) => Some(beside),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(source) => return Err(StoreError::Lock { path: name, source }),
    };
    // The links first: beside a running CSE, too, the reader would look for another log.
    refuse_links(path)?;
    if let Some(beside) = &beside {
        judge(beside.try_lock_shared(), path, &name)?;
    }
    let file =
        File::open(path).map_err(|source| StoreError::File { path: path.to_owned(), source })?;
    judge(file.try_lock_shared(), path, path)?;
    Ok(Lock { file: Some(Arc::new(file)), _beside: beside })
}

/// Refuses a write-ahead log with content whose database is gone: SQLite would create an empty database
/// and delete the log, which has the latest commits. A reserve without a database has nothing to
/// lose; beside an empty file it says that this had been a database.
pub(crate) fn refuse_orphans(path: &Path) -> Result<(), StoreError> {
    let database = path.metadata().map(|file| file.len());
    let is_gone = database.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let log = beside(path, "-wal");
    // A database with a log has at least the page that says so.
    let is_empty = is_gone || database.is_ok_and(|octets| octets == 0);
    if is_empty && log.metadata().is_ok_and(|log| log.len() > 0) {
        return Err(StoreError::Orphan { path: path.to_owned(), orphan: log });
    }
    let reserve = beside(path, ".reserve");
    if is_empty && !is_gone && reserve.exists() {
        return Err(StoreError::Orphan { path: path.to_owned(), orphan: reserve });
    }
    Ok(())
}

/// Refuses a path whose folder does not exist: nothing beside the database could be created either, and
/// the error would name that.
pub(crate) fn refuse_missing_folder(path: &Path) -> Result<(), StoreError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let found = folder.map_or(Ok(()), |folder| folder.metadata().map(drop));
    let is_missing = found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    match folder.filter(|_| is_missing) {
        Some(folder) => {
            Err(StoreError::NoFolder { path: path.to_owned(), folder: folder.to_owned() })
        }
        None => Ok(()),
    }
}

/// Refuses a folder, and a file with several names: two processes that open it by different names
/// would have two write-ahead logs of one file.
fn refuse_links(path: &Path) -> Result<(), StoreError> {
    match path.metadata().map(|file| (file.is_dir(), file.nlink())) {
        Ok((true, _)) => Err(StoreError::Folder(path.to_owned())),
        Ok((false, names)) if names > 1 => Err(StoreError::Linked { path: path.to_owned(), names }),
        _ => Ok(()),
    }
}

/// The error of a lock of `locked` for the database at `path`.
fn judge(taken: Result<(), TryLockError>, path: &Path, locked: &Path) -> Result<(), StoreError> {
    taken.map_err(|error| match error {
        TryLockError::WouldBlock => StoreError::InUse(path.to_owned()),
        TryLockError::Error(source) => StoreError::Lock { path: locked.to_owned(), source },
    })
}
