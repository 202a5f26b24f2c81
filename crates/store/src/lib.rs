//! The one database: what a CSE must not forget, and who did what.
//!
//! [`Database::open`] reads the stored rows back ([`Database::read`] does no more than that);
//! [`Database::start`] gives a [`Writer`], whose
//! thread commits whatever is queued as one transaction (SQLite, write-ahead log,
//! `synchronous=FULL`) and reports the number of the last batch that is on disk. Nothing else
//! here knows what the rows mean.
//!
//! A commit that fails (a full disk, a damaged file) changes nothing: it is reported as
//! [`Report::Failed`], every batch made before the failure was heard of is refused, and what was
//! stored stays.
#![forbid(unsafe_code)]

mod audit;
mod database;
mod histogram;
mod mover;
mod remembered;
mod writer;

pub use audit::{Outcomes, Told, Verified, last_entries, verify, verify_telling};
pub use database::{Database, Options, Restored, StoreError};
pub use histogram::{HISTOGRAM_ENTRIES, Histogram};
pub use writer::{Counters, Histograms, PACE, Report, Writer};
