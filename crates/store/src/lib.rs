//! Database of a CSE: its persistent state and its audit log.
//!
//! [`Database::open`] reads the stored rows ([`Database::read`] only that); [`Database::start`]
//! returns a [`Writer`], whose thread commits all queued batches as one transaction (SQLite,
//! write-ahead log, `synchronous=FULL`) and reports the number of the last batch on disk. Only the
//! CSE interprets the rows.
//!
//! A failed commit (a full disk, a damaged file) changes nothing. It is reported as
//! [`Report::Failed`], every batch made before the failure was known is refused, and stored data
//! stay. On a full disk a reserve is let go ([`DiskSpace`]), in which deletions and audit entries are
//! stored; everything else is refused until there is room again.
#![forbid(unsafe_code)]

mod audit;
mod checksum;
mod database;
mod lock;
mod maintenance;
mod mover;
mod remembered;
mod reserve;
mod writer;

pub use audit::{Outcomes, StoredEntry, Verified, last_entries, verify, verify_telling};
pub use database::{Database, DatabaseOptions, Restored, StoreError};
pub use maintenance::{
    BadRow, Inspection, Salvaged, backup, inspect, quarantined, restore, salvage,
};
pub use reserve::DiskSpace;
pub use writer::{Counters, Histograms, PACE, Report, Writer};
