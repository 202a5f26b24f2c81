//! An audit log in a file of its own: of changes that are no requests of a CSE.
//!
//! The file is a database as a CSE's, in which only the audit log is written. So it is chained,
//! limited, locked, read and verified alike.

use crate::{
    audit,
    database::{Database, DatabaseOptions, pages_of},
    error::StoreError,
    presence::Presence,
};
use std::{
    io,
    path::{Path, PathBuf},
};

/// Pages of the write-ahead log after which SQLite moves them into the file.
const MOVED_PAGES: i64 = 32;

/// An open audit log; it has one writer.
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    database: Database,
    pages_max: i64,
}

impl AuditLog {
    /// Opens the log at `path`, or creates it; beyond `octets_max` its oldest entries are dropped.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; another program's file is not changed.
    pub fn open(path: &Path, octets_max: u64) -> Result<Self, StoreError> {
        let options = DatabaseOptions {
            octets_max: Some(0),
            audit_octets_max: octets_max,
            // Nothing here is deleted to make room.
            reserve_octets: 0,
            ..DatabaseOptions::default()
        };
        let mut database = Database::open_file(path, &options)?;
        // No thread moves it.
        database.connection.pragma_update(None, "wal_autocheckpoint", MOVED_PAGES)?;
        let opened = database.connection.path().map(PathBuf::from);
        database.presence = Some(Presence::new(opened.as_deref().unwrap_or(path)));
        Ok(Self { path: path.to_owned(), database, pages_max: pages_of(octets_max) })
    }

    /// Appends an entry, the text of a JSON object, at a time in microseconds since 1970. It is on
    /// the disk when this returns.
    ///
    /// # Errors
    ///
    /// [`StoreError::Database`] if it cannot be written; the log is as before then.
    /// [`StoreError::File`] if the file is not at its path any more: what is written to it would be
    /// lost with the process.
    pub fn add(&mut self, at_micros: u64, text: &str) -> Result<(), StoreError> {
        if let Some(missing) = self.database.look_for_files() {
            let source = io::Error::other(missing.to_owned());
            return Err(StoreError::File { path: self.path.clone(), source });
        }
        let transaction = self.database.connection.transaction()?;
        // Another writer, which the lock does not keep out if it is none of ours, may have added some.
        let dropped = self.database.chain.dropped;
        let mut before = audit::last(&transaction)?;
        before.dropped = dropped;
        let entries = std::iter::once((at_micros, text.to_owned()));
        let chain = audit::append(&transaction, &before, entries, self.pages_max)?;
        transaction.commit()?;
        self.database.chain = chain;
        Ok(())
    }

    /// Entries that were dropped to make room, since it was opened.
    pub const fn dropped(&self) -> u64 {
        self.database.chain.dropped
    }
}
