//! An audit log in a file of its own: of changes that are no requests of a CSE.
//!
//! The file is a database as a CSE's, in which only the audit log is written. So it is chained,
//! limited, locked, read and verified alike.

use crate::{
    audit::{self, AuditLimits},
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
    limits: AuditLimits<'static>,
    /// Entries that could not be written, of which the log says nothing yet.
    lost: u64,
}

impl AuditLog {
    /// Opens the log at `path`, or creates it; beyond `octets_max` its oldest entries are dropped, and
    /// those of the operations `kept` among them stored again, as long as they are not most of it.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; another program's file is not changed.
    pub fn open(
        path: &Path,
        octets_max: u64,
        kept: &'static [&'static str],
    ) -> Result<Self, StoreError> {
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
        let limits = AuditLimits { pages_max: pages_of(octets_max), kept };
        Ok(Self { path: path.to_owned(), database, limits, lost: 0 })
    }

    /// Appends an entry, the text of a JSON object, at a time in microseconds since 1970. It is on
    /// the disk when this returns. Before it comes an entry that counts those that could not be
    /// written since the last one.
    ///
    /// # Errors
    ///
    /// [`StoreError::Database`] if it cannot be written; the log is as before then, and the entry is
    /// counted. [`StoreError::File`] if the file is not at its path any more: what is written to it
    /// would be lost with the process.
    pub fn add(&mut self, at_micros: u64, text: &str) -> Result<(), StoreError> {
        let added = self.append(at_micros, text);
        self.lost = if added.is_ok() { 0 } else { self.lost.saturating_add(1) };
        added
    }

    fn append(&mut self, at_micros: u64, text: &str) -> Result<(), StoreError> {
        if let Some(missing) = self.database.look_for_files() {
            let source = io::Error::other(missing.to_owned());
            return Err(StoreError::File { path: self.path.clone(), source });
        }
        let transaction = self.database.connection.transaction()?;
        // Another writer, which the lock does not keep out if it is none of ours, may have added some.
        let dropped = self.database.chain.dropped;
        let mut before = audit::last(&transaction)?;
        before.dropped = dropped;
        let lost = (self.lost > 0).then(|| audit::about_lost(self.lost));
        let entries = lost.into_iter().chain(std::iter::once(text.to_owned()));
        let entries = entries.map(|text| (at_micros, text));
        let chain = audit::append(&transaction, &before, entries, self.limits)?;
        transaction.commit()?;
        self.database.chain = chain;
        Ok(())
    }

    /// Whether the last entry could not be written.
    pub const fn is_failing(&self) -> bool {
        self.lost > 0
    }

    /// Entries that were dropped to make room, since it was opened.
    pub const fn dropped(&self) -> u64 {
        self.database.chain.dropped
    }
}
