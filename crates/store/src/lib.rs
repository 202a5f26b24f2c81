//! Database of a CSE: its persistent state and its audit log; and audit logs of others ([`AuditLog`]).
//!
//! [`Database::open`] reads the stored rows ([`Database::read`] only that, and
//! [`Database::open_reading`] one after the other); [`Database::reader`] reads single rows later; [`Database::start`]
//! returns a [`BatchWriter`], whose thread commits all queued batches as one transaction (SQLite,
//! write-ahead log, `synchronous=FULL`) and reports the number of the last batch on disk. Only the
//! CSE interprets the rows.
//!
//! A failed commit (a full disk, a damaged file) changes nothing. It is reported as
//! [`WriteReport::Failed`], every batch made before the failure was known is refused, and stored data
//! stay. On a full disk a reserve is let go ([`DiskSpace`]), in which deletions and audit entries are
//! stored; everything else is refused until there is room again.
#![forbid(unsafe_code)]

mod audit;
mod audit_log;
mod block_builder;
mod blocks;
mod checksum;
mod database;
mod error;
mod lock;
mod maintenance;
mod mover;
mod opening;
mod presence;
mod reader;
mod remembered;
mod reserve;
mod row_changes;
mod size_limit;
mod sqlite;
mod stored_rows;
mod writer;

pub use audit::{Outcomes, StoredEntry, Verified, last_entries, verify, verify_telling};
pub use audit_log::AuditLog;
pub use database::{Database, DatabaseOptions, Restored};
pub use error::StoreError;
pub use maintenance::{
    BadRow, BrokenAudit, Inspection, Salvaged, backup, inspect, quarantined, restore, salvage,
};
pub use reader::{ReadReport, RowReader};
pub use reserve::DiskSpace;
pub use stored_rows::{RestoredMarks, StoredRows};
pub use writer::{BatchWriter, Counters, Histograms, PACE, WriteReport};
