//! Rows of an earlier run, read one after the other.

use crate::database::{has_checksums, stored_row, to_row_id};
use crate::error::StoreError;
use crate::remembered;
use rusqlite::Connection;
use std::collections::VecDeque;
use std::sync::Arc;

/// Rows that are read at a time.
const ROWS_READ: u32 = 1_024;

/// Rows of an earlier run, one after the other: they need not all be in memory at once.
///
/// Begins with the clocks and the remembered requests. Ends early if the database fails, which
/// [`Self::end`] tells.
#[derive(Debug)]
pub struct StoredRows {
    connection: Connection,
    /// Rows that were read and not yet taken; at the start, the clocks and what is remembered.
    read: VecDeque<(u64, Arc<str>)>,
    /// The number of the last row that was read; `None` when all were.
    last: Option<u64>,
    end: Result<RestoredMarks, StoreError>,
}

/// Marks that [`StoredRows`] found beside the rows.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct RestoredMarks {
    /// Rows whose checksum is wrong; their bodies are empty.
    pub damaged: Vec<u64>,
    /// Numbers of remembered transactions that cannot be read.
    pub remembered_damaged: Vec<u64>,
}

impl StoredRows {
    pub(crate) fn new(connection: Connection) -> Result<Self, StoreError> {
        let recalled = remembered::read(&connection)?;
        let marks =
            RestoredMarks { remembered_damaged: recalled.unreadable, ..RestoredMarks::default() };
        let mut rows = Self { connection, read: VecDeque::new(), last: None, end: Ok(marks) };
        rows.read_from(0, 1)?;
        // Behind the clocks and before all else.
        let clocks = rows.read.partition_point(|(seq, _)| *seq == 0);
        let others = rows.read.split_off(clocks);
        rows.read.extend(recalled.rows);
        rows.read.extend(others);
        Ok(rows)
    }

    /// The damage found, once all rows were read.
    ///
    /// # Errors
    ///
    /// Why not all rows could be read.
    pub fn end(self) -> Result<RestoredMarks, StoreError> {
        self.end
    }

    /// Reads rows from the number `first` on.
    fn read_from(&mut self, first: u64, most: u32) -> Result<(), StoreError> {
        let Self { connection, read, last, end } = self;
        let sum = if has_checksums(connection)? { "sum" } else { "NULL" };
        let some =
            format!("SELECT seq, body, {sum} FROM row WHERE seq >= ?1 ORDER BY seq LIMIT ?2");
        let mut some = connection.prepare_cached(&some)?;
        let mut found = some.query((to_row_id(first), most))?;
        *last = None;
        while let Some(row) = found.next()? {
            let (seq, body) = stored_row(row)?;
            if body.is_none()
                && let Ok(marks) = end
            {
                marks.damaged.push(seq);
            }
            read.push_back((seq, body.unwrap_or_default()));
            *last = Some(seq);
        }
        Ok(())
    }
}

impl Iterator for StoredRows {
    type Item = (u64, Arc<str>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.read.is_empty()
            && let Some(last) = self.last
            && let Err(error) = self.read_from(last.saturating_add(1), ROWS_READ)
        {
            (self.last, self.end) = (None, Err(error));
            self.read.clear();
        }
        self.read.pop_front()
    }
}
