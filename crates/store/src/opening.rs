//! How a database file is opened: whose it is, for reading beside a CSE or without one, and of which
//! version.

use crate::error::StoreError;
use crate::lock::{Lock, refuse_orphans, share_lock};
use crate::sqlite::{APPLICATION_ID, SCHEMA_VERSION, beside};
use rusqlite::{Connection, OpenFlags};
use std::path::Path;

/// Owner of a file, unless it is another program's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Owner {
    /// None: the file is empty.
    Nobody,
    Ours,
}

/// Refuses a file that belongs to another program, before anything is written to it.
pub(crate) fn check_owner(connection: &Connection, path: &Path) -> Result<Owner, StoreError> {
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (owner, version) = (pragma("application_id")?, pragma("user_version")?);
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if owner == 0 && tables == 0 {
        return Ok(Owner::Nobody);
    }
    if owner != APPLICATION_ID {
        return Err(StoreError::Foreign(path.to_owned()));
    }
    if version > SCHEMA_VERSION {
        return Err(StoreError::Newer {
            path: path.to_owned(),
            found: version,
            known: SCHEMA_VERSION,
        });
    }
    Ok(Owner::Ours)
}

/// URI of a database that is not being changed, for SQLite, which then neither looks for a WAL nor
/// creates one.
fn immutable(path: &Path) -> String {
    let octets = path.as_os_str().as_encoded_bytes();
    let escaped = octets.iter().map(|octet| match octet {
        b'/' => "/".to_owned(),
        octet => format!("%{octet:02x}"),
    });
    format!("file:{}?immutable=1", escaped.collect::<String>())
}

/// Opens the database of a stopped CSE read-only, with the lock that keeps a CSE from starting
/// meanwhile.
pub(crate) fn open_stopped(path: &Path) -> Result<(Lock, Connection), StoreError> {
    refuse_orphans(path)?;
    let path =
        path.canonicalize().map_err(|source| StoreError::File { path: path.to_owned(), source })?;
    let lock = share_lock(&path)?;
    let mut flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let has_log = beside(&path, "-wal").metadata().is_ok_and(|log| log.len() > 0);
    let connection = if has_log {
        Connection::open_with_flags(&path, flags)?
    } else {
        flags |= OpenFlags::SQLITE_OPEN_URI;
        Connection::open_with_flags(immutable(&path), flags)?
    };
    Ok((lock, connection))
}

/// Opens a read-only connection. Beside a running CSE it shares the CSE's index of the write-ahead
/// log; otherwise nothing is written and no CSE starts until the connection is closed.
pub(crate) fn open_shared(path: &Path) -> Result<(Option<Lock>, Connection), StoreError> {
    match open_stopped(path) {
        Err(StoreError::InUse(_)) => {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            Ok((None, Connection::open_with_flags(path, flags)?))
        }
        opened => opened.map(|(lock, connection)| (Some(lock), connection)),
    }
}
