//! A database whose files are removed, moved or replaced while it is open acknowledges nothing.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_onem2m::{Batch, RowChange};
use gatewright_store::{BatchWriter, Database, DatabaseOptions, WriteReport};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("presence-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, end: &str) -> PathBuf {
        self.0.join(format!("cse.db{end}"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn start(path: &Path) -> (BatchWriter, Receiver<WriteReport>) {
    let (database, _) = Database::open(path, &DatabaseOptions::default()).unwrap();
    let (sender, receiver) = channel();
    (database.start(move |report| drop(sender.send(report))).unwrap(), receiver)
}

/// Stores a row in a batch of an epoch of its own; why it was refused, if it was.
fn store((writer, reports): &(BatchWriter, Receiver<WriteReport>), number: u64) -> Option<String> {
    let records = vec![RowChange::Put { seq: number, body: format!("row {number}").into() }];
    let batch = Batch {
        number,
        epoch: number,
        next_seq: number + 1,
        records,
        entries: Vec::new(),
        clock: None,
        remembered: None,
    };
    writer.push(batch).unwrap();
    loop {
        match reports.recv_timeout(Duration::from_mins(1)).unwrap() {
            WriteReport::Committed(reached) if reached >= number => return None,
            WriteReport::Failed { cause, .. } => return Some(cause),
            WriteReport::Committed(_) | WriteReport::Short(_) => {}
        }
    }
}

fn rows(path: &Path) -> Vec<u64> {
    let (_, restored) = Database::open(path, &DatabaseOptions::default()).unwrap();
    restored.rows.iter().map(|(seq, _)| *seq).collect()
}

#[test]
fn a_removed_database_or_log_acknowledges_nothing() {
    for end in ["", "-wal"] {
        let place = Place::new(&format!("removed{end}"));
        let open = start(&place.file(""));
        assert_eq!(store(&open, 1), None);
        assert_eq!(open.0.missing(), None);
        fs::remove_file(place.file(end)).unwrap();
        for number in 2..4 {
            let cause = store(&open, number).expect("refused");
            assert!(cause.contains(&format!("cse.db{end} was removed or moved")), "{cause}");
        }
        assert!(open.0.missing().is_some_and(|it| it.contains("was removed or moved")));
        drop(open);
        assert!(!place.file(end).exists(), "it is not made anew");
    }
}

/// Another gateway may have begun there: neither its database nor its log is touched.
#[test]
fn a_replaced_database_is_let_be() {
    let place = Place::new("replaced");
    let first = start(&place.file(""));
    assert_eq!(store(&first, 1), None);
    for end in ["", "-wal", "-shm", ".lock", ".reserve"] {
        let _ = fs::remove_file(place.file(end));
    }
    let second = start(&place.file(""));
    assert_eq!(store(&second, 7), None);
    let cause = store(&first, 2).expect("refused");
    assert!(cause.contains("was replaced by another file"), "{cause}");
    drop(first);
    assert_eq!(store(&second, 8), None);
    drop(second);
    assert_eq!(rows(&place.file("")), [7, 8]);
}

/// What was refused meanwhile is not there afterwards.
#[test]
fn a_database_that_is_put_back_goes_on() {
    let place = Place::new("back");
    let open = start(&place.file(""));
    assert_eq!(store(&open, 1), None);
    fs::rename(place.file(""), place.file(".moved")).unwrap();
    assert!(store(&open, 2).is_some());
    fs::rename(place.file(".moved"), place.file("")).unwrap();
    assert_eq!(store(&open, 3), None);
    assert_eq!(open.0.missing(), None);
    drop(open);
    assert_eq!(rows(&place.file("")), [1, 3]);
}

/// It is noticed without a commit, too.
#[test]
fn a_removed_database_is_noticed_while_nothing_is_stored() {
    let place = Place::new("idle");
    let open = start(&place.file(""));
    assert_eq!(store(&open, 1), None);
    fs::remove_file(place.file("")).unwrap();
    let patience = Instant::now();
    while open.0.missing().is_none() {
        assert!(patience.elapsed() < Duration::from_mins(1), "not noticed");
        std::thread::sleep(Duration::from_millis(20));
    }
}
