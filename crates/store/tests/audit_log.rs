//! An audit log in a file of its own.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_store::{AuditLog, StoreError, last_entries, verify};
use std::{fs, path::PathBuf};

/// Room for many entries.
const ROOM: u64 = 1024 * 1024;

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("gw-audit-{name}-{}", std::process::id()));
        let _gone = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.join("audit.db")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

/// An entry of the form that a web interface writes.
fn entry(number: u64) -> String {
    format!("{{\"op\":\"Reload\",\"to\":\"/api/v1/reload\",\"fr\":\"ops{number}\",\"end\":200}}")
}

#[test]
fn a_changed_or_removed_entry_is_found() {
    let place = Place::new("change");
    let mut log = AuditLog::open(&place.file(), ROOM, &[]).unwrap();
    for number in 1..=4 {
        log.add(number, &entry(number)).unwrap();
    }
    assert_eq!(verify(&place.file()).unwrap().entries, 4, "while it is written");
    drop(log);
    // It goes on where it ended.
    let mut log = AuditLog::open(&place.file(), ROOM, &[]).unwrap();
    for (number, end) in [(5, "401"), (6, "409"), (7, "\"waits\"")] {
        log.add(number, &entry(number).replace("200", end)).unwrap();
    }
    drop(log);
    let sound = verify(&place.file()).unwrap();
    assert_eq!((sound.entries, sound.broken_at, sound.dropped), (7, None, 0));
    let outcomes = sound.outcomes;
    let counted = (outcomes.allowed, outcomes.denied, outcomes.failed, outcomes.waiting);
    assert_eq!(counted, (4, 1, 1, 1));
    let last = last_entries(&place.file(), 1).unwrap();
    assert_eq!((last[0].number, last[0].text_of("fr")), (7, Some("ops7")));
    let octets = fs::read(place.file()).unwrap();
    for (change, at) in [
        ("DELETE FROM audit WHERE number = 1", 2),
        ("DELETE FROM audit WHERE number = 4", 5),
        ("UPDATE audit SET entry = replace(entry, 'ops3', 'boss') WHERE number = 3", 3),
        ("UPDATE audit SET at = 9 WHERE number = 7", 7),
    ] {
        fs::write(place.file(), &octets).unwrap();
        let tampered = rusqlite::Connection::open(place.file()).unwrap();
        assert_eq!(tampered.execute(change, []).unwrap(), 1, "{change}");
        drop(tampered);
        assert_eq!(verify(&place.file()).unwrap().broken_at, Some(at), "{change}");
    }
}

#[test]
fn it_has_one_writer_and_no_entry_goes_to_a_file_without_a_name() {
    let place = Place::new("writer");
    let mut log = AuditLog::open(&place.file(), ROOM, &[]).unwrap();
    log.add(1, &entry(1)).unwrap();
    let second = AuditLog::open(&place.file(), ROOM, &[]);
    assert!(matches!(second, Err(StoreError::InUse(_))), "{second:?}");
    fs::rename(place.file(), place.0.join("moved.db")).unwrap();
    let refused = log.add(2, &entry(2)).unwrap_err().to_string();
    assert!(refused.contains("removed or moved"), "{refused}");
    // When it is back, an entry says how many are missing.
    assert!(log.add(3, &entry(3)).is_err());
    fs::rename(place.0.join("moved.db"), place.file()).unwrap();
    log.add(4, &entry(4)).unwrap();
    log.add(5, &entry(5)).unwrap();
    drop(log);
    let sound = verify(&place.file()).unwrap();
    assert_eq!((sound.entries, sound.broken_at, sound.lost), (4, None, 2));
    let ops = last_entries(&place.file(), 3).unwrap();
    let ops: Vec<_> = ops.iter().map(|entry| entry.text_of("op").unwrap()).collect();
    assert_eq!(ops, ["Lost", "Reload", "Reload"]);
    let nowhere =
        AuditLog::open(&place.0.join("none/audit.db"), ROOM, &[]).unwrap_err().to_string();
    assert!(
        nowhere.starts_with("there is no folder ") && nowhere.contains("none/audit.db"),
        "{nowhere}"
    );
    let other = Place::new("foreign");
    fs::write(other.file(), "text of another program, longer than a header of SQLite".repeat(9))
        .unwrap();
    assert!(AuditLog::open(&other.file(), ROOM, &[]).is_err());
}

#[test]
fn beyond_its_room_the_oldest_are_dropped_and_an_entry_says_so() {
    let place = Place::new("room");
    let mut log = AuditLog::open(&place.file(), 64 * 1024, &[]).unwrap();
    let mut number = 0;
    while log.dropped() == 0 {
        number += 1;
        log.add(number, &entry(number)).unwrap();
        assert!(number < 10_000, "it is bounded");
    }
    log.add(number + 1, &entry(number + 1)).unwrap();
    drop(log);
    let sound = verify(&place.file()).unwrap();
    assert_eq!((sound.broken_at, sound.dropped + sound.entries), (None, number + 2));
    assert!(fs::metadata(place.file()).unwrap().len() < 512 * 1024);
}

/// A flood of other entries does not push out those that are kept, and the chain holds.
#[test]
fn entries_of_kept_operations_outlast_a_flood_of_others() {
    let place = Place::new("kept");
    let mut log = AuditLog::open(&place.file(), 64 * 1024, &["Reload"]).unwrap();
    let other = |number: u64| entry(number).replace("Reload", "Trace");
    for number in 1..=3 {
        log.add(number, &entry(number)).unwrap();
    }
    let mut number = 3;
    // Until the whole room has been used more than once.
    while log.dropped() < 1_200 {
        number += 1;
        log.add(number, &other(number)).unwrap();
        assert!(number < 20_000, "it is bounded");
    }
    drop(log);
    assert_eq!(verify(&place.file()).unwrap().broken_at, None);
    let left = last_entries(&place.file(), 10_000).unwrap();
    let kept = left.iter().filter(|entry| entry.text_of("op") == Some("Reload"));
    let kept: Vec<_> = kept.map(|entry| entry.fields.clone().unwrap()).collect();
    assert_eq!(kept.len(), 3, "{kept:?}");
    for (number, entry) in (1..).zip(&kept) {
        assert_eq!(entry["fr"], format!("ops{number}"));
        assert_eq!(entry["kept"], serde_json::json!({ "number": number, "at_micros": number }));
    }
    assert!(fs::metadata(place.file()).unwrap().len() < 512 * 1024);
}

/// A flood of those that are kept is dropped as any other.
#[test]
fn kept_entries_make_room_too() {
    let place = Place::new("kept-flood");
    let mut log = AuditLog::open(&place.file(), 64 * 1024, &["Reload"]).unwrap();
    for number in 1..=1_500 {
        log.add(number, &entry(number)).unwrap();
    }
    drop(log);
    assert_eq!(verify(&place.file()).unwrap().broken_at, None);
    let last = last_entries(&place.file(), 1).unwrap();
    assert_eq!(last[0].text_of("fr"), Some("ops1500"));
    assert!(fs::metadata(place.file()).unwrap().len() < 512 * 1024);
}
