//! The rows of an earlier run come one after the other as they come at once.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use gatewright_onem2m::{Batch, RowChange, StoredItem};
use gatewright_store::{Database, DatabaseOptions};
use std::path::PathBuf;

const ROWS: u64 = 3_000;

#[test]
fn rows_of_an_earlier_run_are_taken_one_after_the_other() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("store-stored-rows");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let (file, options) = (folder.join("cse.db"), DatabaseOptions::default());
    let writer = Database::open(&file, &options).unwrap().0.start(|_| {}).unwrap();
    let row = |seq: u64| RowChange::Put { seq: seq * 2, body: format!("{{\"row\":{seq}}}").into() };
    let batch = Batch {
        number: 1,
        epoch: 0,
        next_seq: 3 * ROWS,
        records: (1..=ROWS).map(row).collect(),
        entries: Vec::new(),
        clock: Some("{\"_k\":{}}".into()),
        remembered: None,
    };
    writer.push(batch).unwrap();
    // It writes what is queued before it ends.
    drop(writer);
    let (database, at_once) = Database::open(&file, &options).unwrap();
    drop(database);
    assert_eq!(at_once.rows.len(), 3_001);
    let (database, mut rows, next_seq) = Database::open_reading(&file, &options).unwrap();
    let expected: Vec<_> = at_once.rows.into_iter().map(StoredItem::from).collect();
    assert_eq!(rows.by_ref().collect::<Vec<_>>(), expected);
    assert_eq!(next_seq, at_once.next_seq);
    assert_eq!(rows.end().unwrap().damaged, Vec::<u64>::new());
    drop(database);
    let _ = std::fs::remove_dir_all(&folder);
}
