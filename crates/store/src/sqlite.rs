//! What all readers and writers of the database file share: its versions, names, and how a row is
//! read.

use crate::checksum::of_row;
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// "GWcs" in ASCII: identifies the file (SQLite, `PRAGMA application_id`).
pub(crate) const APPLICATION_ID: i64 = 0x4757_6373;

/// Version of the tables below; version 1 had no checksums of rows, version 2 no blocks of records.
pub(crate) const SCHEMA_VERSION: i64 = 3;

/// Pages in use: rows, audit log, and their inner pages.
pub(crate) fn used_pages(connection: &Connection) -> rusqlite::Result<i64> {
    let read =
        |pragma: &str| connection.prepare_cached(pragma)?.query_row([], |row| row.get::<_, i64>(0));
    Ok(read("PRAGMA page_count")? - read("PRAGMA freelist_count")?)
}

/// Row numbers count creations; 2⁶³ of them are out of reach.
pub(crate) fn to_row_id(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}

/// Number and body of a row; no body if it is damaged.
pub(crate) fn stored_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<(u64, Option<Arc<str>>)> {
    let seq = u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0);
    // What is no text has been damaged, too.
    let body = row.get_ref(1)?.as_str().ok();
    let sum: Option<i64> = row.get(2)?;
    let body = body.filter(|body| sum.is_none_or(|sum| sum == of_row(seq, body)));
    Ok((seq, body.map(Arc::from)))
}

/// Whether rows have checksums: those of an earlier version have none.
pub(crate) fn has_checksums(connection: &Connection) -> rusqlite::Result<bool> {
    has_column(connection, "row", "sum")
}

/// Whether a table has this column.
pub(crate) fn has_column(
    connection: &Connection,
    table: &str,
    column: &str,
) -> rusqlite::Result<bool> {
    let known = "SELECT count(*) FROM pragma_table_info(?1) WHERE name = ?2";
    connection.query_row(known, [table, column], |row| row.get::<_, i64>(0)).map(|count| count > 0)
}

/// The path of the database with this suffix.
pub(crate) fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}
