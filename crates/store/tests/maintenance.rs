//! Inspection, backup, restoring and salvage of a database, and what a damaged row does.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_onem2m::audit::Audit;
use gatewright_onem2m::{
    Batch, Cse, CseConfig, CseType, Input, Operation, Output, Request, ResourceType, Token,
};
use gatewright_store::{
    BatchWriter, BrokenAudit, Database, DatabaseOptions, StoreError, WriteReport, backup, inspect,
    quarantined, restore, salvage, verify,
};
use rusqlite::Connection;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::Duration;

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("store-care-{name}"));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("cse.db")
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A CSE with so many contentInstances, written to a database.
struct Ward {
    cse: Cse,
    writer: BatchWriter,
    reports: std::sync::mpsc::Receiver<WriteReport>,
    asked: u64,
}

impl Ward {
    fn new(place: &Place) -> Self {
        Self::with_audit(place, Audit::Off)
    }

    fn with_audit(place: &Place, audit: Audit) -> Self {
        let (database, restored) =
            Database::open(&place.file(), &DatabaseOptions::default()).unwrap();
        let mut config = CseConfig::new(CseType::Infrastructure, "/id-in", "cse-in");
        config.admin = Some("CAdmin".to_owned());
        config.audit = audit;
        let (cse, unreadable) =
            Cse::open(config, Duration::ZERO, restored.rows, restored.next_seq).unwrap();
        assert_eq!(unreadable, []);
        let (sender, reports) = channel();
        let writer = database.start(move |report| drop(sender.send(report))).unwrap();
        let mut ward = Self { cse, writer, reports, asked: 0 };
        ward.store();
        ward
    }

    /// A new one with a container of so many instances.
    fn with_instances(place: &Place, count: usize) -> Self {
        let mut ward = Self::new(place);
        ward.create("cse-in", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
        ward.instances(count);
        ward
    }

    fn instances(&mut self, count: usize) {
        for number in 0..count {
            let name = format!("n{}-{number}", self.asked);
            let content = format!(r#"{{"m2m:cin":{{"rn":"{name}","con":"{}"}}}}"#, "x".repeat(300));
            self.create("cse-in/c", ResourceType::ContentInstance, &content);
        }
    }

    fn create(&mut self, to: &str, kind: ResourceType, content: &str) {
        self.asked += 1;
        let id = format!("r{}", self.asked);
        let request = Request::new(Operation::Create, to, "CAdmin", id).creating(kind, content);
        self.cse.handle(
            Duration::ZERO,
            Input::Own { token: Token(self.asked), request: request.into() },
        );
        self.store();
    }

    fn store(&mut self) {
        let mut last = None;
        while let Some(output) = self.cse.poll_output() {
            if let Output::Store(batch) = output {
                let Batch { number, .. } = batch;
                self.writer.push(batch).unwrap();
                last = Some(number);
            }
        }
        while let Some(number) = last {
            match self.reports.recv_timeout(Duration::from_mins(1)).unwrap() {
                WriteReport::Committed(reached) if reached >= number => last = None,
                WriteReport::Committed(_) | WriteReport::Short(_) => {}
                WriteReport::Failed { cause, .. } => panic!("{cause}"),
            }
        }
    }
}

fn resources(path: &std::path::Path) -> u64 {
    let found = inspect(path).unwrap();
    assert!(found.is_sound(), "{found:?}");
    found.resources
}

#[test]
fn a_backup_is_made_while_a_cse_runs_and_can_be_restored() {
    let place = Place::new("backup");
    let mut ward = Ward::with_instances(&place, 20);
    let copy = place.beside("backup.db");
    let found = backup(&place.file(), &copy).unwrap();
    assert!(found.is_sound(), "{found:?}");
    assert_eq!((found.resources, found.unchecked), (22, 0));
    // Readings are their owner's: neither the files of a CSE that runs nor a copy are others' to read.
    for file in std::fs::read_dir(copy.parent().unwrap()).unwrap().map(Result::unwrap) {
        let others = file.metadata().unwrap().permissions().mode() & 0o077;
        assert_eq!(others, 0, "{}: {others:o}", file.path().display());
    }
    assert!(matches!(backup(&place.file(), &copy), Err(StoreError::Exists(_))), "it exists");
    // The copy is of one moment, and the CSE goes on.
    ward.instances(5);
    assert!(matches!(
        restore(&copy, &place.file(), BrokenAudit::Refused),
        Err(StoreError::InUse(_))
    ));
    drop(ward);
    assert_eq!((resources(&copy), resources(&place.file())), (22, 27));
    let kept = restore(&copy, &place.file(), BrokenAudit::Refused).unwrap().unwrap();
    assert_eq!((resources(&place.file()), resources(&kept)), (22, 27));
    // And goes on from there.
    let mut ward = Ward::new(&place);
    ward.instances(1);
    drop(ward);
    assert_eq!(resources(&place.file()), 23);
}

/// The sixth instance's content is another, as a disk that lies would have it.
fn change_a_row(place: &Place) -> u64 {
    let connection = Connection::open(place.file()).unwrap();
    let row: i64 = connection
        .query_row(
            "SELECT seq FROM row WHERE body LIKE '{\"m2m:cin\"%' LIMIT 1 OFFSET 5",
            [],
            |row| row.get(0),
        )
        .unwrap();
    let changed = "UPDATE row SET body = replace(body, 'xxx', 'xyx') WHERE seq = ?1";
    assert_eq!(connection.execute(changed, [row]).unwrap(), 1);
    u64::try_from(row).unwrap()
}

#[test]
fn a_changed_row_is_noticed_by_its_checksum_and_left_out() {
    let place = Place::new("checksum");
    drop(Ward::with_instances(&place, 10));
    let row = change_a_row(&place);
    let found = inspect(&place.file()).unwrap();
    assert!(!found.is_sound());
    assert_eq!((found.resources, found.bad.len()), (11, 1));
    assert_eq!((found.bad[0].row, &*found.bad[0].why), (row, "its checksum is wrong"));
    let bad = quarantined(&place.file()).unwrap();
    assert!(bad[0].body.contains("xyx"), "its text is there for who can judge it");
    let restored = Database::read(&place.file()).unwrap();
    assert_eq!(restored.damaged, [row]);
    assert!(restored.rows.contains(&(row, "".into())));
    // No backup of it is restored.
    let copy = place.beside("backup.db");
    assert!(!backup(&place.file(), &copy).unwrap().is_sound());
    let other = place.beside("other.db");
    assert!(matches!(restore(&copy, &other, BrokenAudit::Refused), Err(StoreError::Unsound(_))));
    assert!(!other.exists());
}

/// A CSEBase that is damaged is named, and salvage saves the rest for who has another one.
#[test]
fn a_damaged_base_is_named() {
    let place = Place::new("base");
    drop(Ward::with_instances(&place, 3));
    let connection = Connection::open(place.file()).unwrap();
    connection
        .execute(
            "UPDATE row SET body = replace(body, 'cse-in', 'cse-xx') WHERE body LIKE '%m2m:cb\"%'",
            [],
        )
        .unwrap();
    drop(connection);
    let found = inspect(&place.file()).unwrap();
    let why = found.refused.unwrap();
    assert!(why.contains("no row is a readable CSEBase; row 1:"), "{why}");
    assert_eq!(&*found.bad[0].why, "its checksum is wrong");
}

/// Pages of octets from elsewhere in the middle of the file: what is on the others is saved.
#[test]
fn salvage_saves_what_is_on_sound_pages() {
    const PAGE: usize = 4_096;
    let place = Place::new("salvage");
    drop(Ward::with_instances(&place, 2_000));
    let before = resources(&place.file());
    // Leaves of the table of rows: those with instances.
    let mut octets = std::fs::read(place.file()).unwrap();
    let leaves: Vec<usize> = (1..octets.len() / PAGE)
        .filter(|page| {
            let page = &octets[page * PAGE..(page + 1) * PAGE];
            page[0] == 0x0d && page.windows(7).any(|part| part == b"m2m:cin")
        })
        .collect();
    assert!(leaves.len() > 50, "{}", leaves.len());
    for at in [leaves[10], leaves[11], leaves[40]] {
        octets[at * PAGE..(at + 1) * PAGE].fill(0xa5);
    }
    std::fs::write(place.file(), &octets).unwrap();
    let found = inspect(&place.file()).unwrap();
    assert!(!found.structure.is_empty() && !found.gaps.is_empty());
    let saved = place.beside("saved.db");
    let done = salvage(&place.file(), &saved).unwrap();
    assert_eq!(done.gaps.len(), 2, "{:?}", done.gaps);
    let lost: u64 = done.gaps.iter().map(|(first, last)| last - first + 1).sum();
    assert_eq!(resources(&saved) + lost, before, "nothing else is missing");
    assert!(lost < 60, "three pages of some ten rows each: {lost}");
    assert_eq!(std::fs::read(place.file()).unwrap(), octets, "the damaged file is not changed");
}

/// A file that was cut in its middle, between two pages or within one: what is before the cut is saved,
/// and nothing that was not there.
#[test]
fn salvage_saves_what_a_file_cut_short_still_has() {
    const PAGE: usize = 4_096;
    let place = Place::new("cut");
    drop(Ward::with_instances(&place, 600));
    let rows: BTreeSet<_> = Database::read(&place.file()).unwrap().rows.into_iter().collect();
    // Number 0 is the clocks' and the remembered requests'.
    let resources = rows.iter().filter(|(seq, _)| *seq > 0).count() as u64;
    let whole = std::fs::read(place.file()).unwrap();
    // SQLite's file format, 1.3.7: the header counts the pages; the file may be longer.
    let pages = u32::from_be_bytes(whole[28..32].try_into().unwrap()) as usize;
    for cut in [pages / 2 * PAGE, pages / 2 * PAGE + 1_000, (pages - 1) * PAGE + 1_000] {
        std::fs::write(place.file(), &whole[..cut]).unwrap();
        let saved = place.beside("saved.db");
        let done = salvage(&place.file(), &saved).unwrap();
        assert!(done.rows * 3 > resources, "{} rows of {resources}", done.rows);
        let found = inspect(&saved).unwrap();
        assert!(found.is_sound(), "{found:?}");
        for row in Database::read(&saved).unwrap().rows {
            assert!(rows.contains(&row), "{row:?}");
        }
        assert_eq!(std::fs::read(place.file()).unwrap(), whole[..cut], "the file is not changed");
        std::fs::remove_file(saved).unwrap();
    }
}

/// One octet of an audit entry is no text any more: verification names the entry, and salvage saves
/// all the others.
#[test]
fn a_damaged_audit_entry_is_named_and_the_rest_is_saved() {
    let place = Place::new("entry");
    let mut ward = Ward::with_audit(&place, Audit::Strict);
    ward.create("cse-in", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
    ward.instances(10);
    drop(ward);
    let before = inspect(&place.file()).unwrap();
    let connection = Connection::open(place.file()).unwrap();
    let entries: i64 =
        connection.query_row("SELECT count(*) FROM audit", [], |row| row.get(0)).unwrap();
    let entries = u64::try_from(entries).unwrap();
    let mut text: Vec<u8> = connection
        .query_row("SELECT CAST(entry AS BLOB) FROM audit WHERE number = 5", [], |row| row.get(0))
        .unwrap();
    text[3] ^= 0x80;
    let change = "UPDATE audit SET entry = CAST(?1 AS TEXT) WHERE number = 5";
    assert_eq!(connection.execute(change, [text]).unwrap(), 1);
    drop(connection);
    assert_eq!(inspect(&place.file()).unwrap().audit_broken_at, Some(5));
    let saved = place.beside("saved.db");
    let done = salvage(&place.file(), &saved).unwrap();
    assert_eq!((done.rows, done.entries), (before.rows, entries - 1));
    assert_eq!(done.bad_entries, [(5, 5)]);
    let found = inspect(&saved).unwrap();
    assert_eq!((found.resources, found.bad.len()), (before.resources, 0));
    assert_eq!(found.audit_broken_at, Some(6), "the entry before it is missing");
    // The names of the unfinished file are gone.
    let mut names: Vec<_> = std::fs::read_dir(&place.0)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("saved"))
        .collect();
    names.sort();
    assert_eq!(names, ["saved.db"]);
    // It is restored for who says that he knows.
    let other = place.beside("other.db");
    let refused = restore(&saved, &other, BrokenAudit::Refused);
    assert!(matches!(refused, Err(StoreError::AuditBroken(_))), "{refused:?}");
    assert!(!other.exists());
    assert_eq!(restore(&saved, &other, BrokenAudit::Taken).unwrap(), None);
    assert_eq!(inspect(&other).unwrap().resources, before.resources);
}

/// A remembered request that is no text, no JSON or not as it was written is named. A start leaves it
/// out, and goes on.
#[test]
fn a_damaged_line_of_remembered_requests_is_named_and_left_out() {
    let place = Place::new("remembered");
    drop(Ward::with_instances(&place, 3));
    assert!(inspect(&place.file()).unwrap().is_sound());
    for (text, sum) in [("CAST(x'7b80' AS TEXT)", "NULL"), ("'{\"broken'", "NULL"), ("'{}'", "7")] {
        let connection = Connection::open(place.file()).unwrap();
        let put = "INSERT OR REPLACE INTO remembered (number, line, sum)";
        connection.execute(&format!("{put} VALUES (77, {text}, {sum})"), []).unwrap();
        drop(connection);
        let (database, restored) =
            Database::open(&place.file(), &DatabaseOptions::default()).unwrap();
        assert_eq!(restored.remembered_damaged, [77]);
        drop(database);
        assert_eq!(Database::read(&place.file()).unwrap().remembered_damaged, [77]);
        let found = inspect(&place.file()).unwrap();
        assert_eq!(found.structure, ["line 77 of remembered: not readable"]);
        assert!(!backup(&place.file(), &place.beside("copy.db")).unwrap().is_sound());
        std::fs::remove_file(place.beside("copy.db")).unwrap();
    }
}

/// Of two files it is said which one is at fault.
#[test]
fn a_bad_backup_is_blamed_and_not_the_database() {
    let place = Place::new("blame");
    drop(Ward::with_instances(&place, 3));
    let bad = place.beside("bad.db");
    std::fs::write(&bad, "this is no database at all, however long it may be".repeat(100)).unwrap();
    let error = restore(&bad, &place.file(), BrokenAudit::Refused).unwrap_err().to_string();
    assert!(error.starts_with(&bad.display().to_string()), "{error}");
    let error = backup(&place.file(), &bad).unwrap_err().to_string();
    let expected = "exists already, and is not overwritten: move it away first";
    assert_eq!(error, format!("{} {expected}", bad.display()));
}

/// A table of remembered requests of before their checksums gets them.
#[test]
fn remembered_requests_of_an_earlier_version_are_taken_over() {
    let place = Place::new("remembered-before");
    drop(Ward::with_instances(&place, 2));
    let connection = Connection::open(place.file()).unwrap();
    let before = "UPDATE remembered SET sum = 1; ALTER TABLE remembered DROP COLUMN sum;";
    connection.execute_batch(before).unwrap();
    let lines: i64 =
        connection.query_row("SELECT count(*) FROM remembered", [], |row| row.get(0)).unwrap();
    drop(connection);
    assert!(lines > 0);
    assert!(inspect(&place.file()).unwrap().is_sound());
    let mut ward = Ward::new(&place);
    ward.instances(1);
    drop(ward);
    assert!(inspect(&place.file()).unwrap().is_sound());
}

/// A salvage that fails leaves no file, and can be repeated.
#[test]
fn a_salvage_that_fails_leaves_nothing() {
    let place = Place::new("fails");
    drop(Ward::with_instances(&place, 3));
    let saved = place.beside("saved.db");
    // Where its lock should be is a folder.
    let obstacle = place.beside("saved.db.salvaging.lock");
    std::fs::create_dir(&obstacle).unwrap();
    assert!(matches!(salvage(&place.file(), &saved), Err(StoreError::Lock { .. })));
    assert!(!saved.exists() && !place.beside("saved.db.salvaging").exists());
    std::fs::remove_dir(&obstacle).unwrap();
    assert_eq!(salvage(&place.file(), &saved).unwrap().bad_entries, []);
    assert_eq!(resources(&saved), 5);
}

/// A database of version 1 is converted when a CSE opens it, and a copy of it is kept.
#[test]
fn a_store_of_an_earlier_version_is_converted_and_a_copy_is_kept() {
    let place = Place::new("convert");
    drop(Ward::with_instances(&place, 4));
    let connection = Connection::open(place.file()).unwrap();
    connection.execute_batch("ALTER TABLE row DROP COLUMN sum; PRAGMA user_version = 1;").unwrap();
    drop(connection);
    // Who only reads changes nothing.
    let found = inspect(&place.file()).unwrap();
    assert_eq!((found.version, found.resources, found.is_sound()), (1, 6, true));
    assert_eq!(found.unchecked, found.rows);
    assert_eq!(Database::read(&place.file()).unwrap().damaged, [0; 0]);
    let mut ward = Ward::new(&place);
    ward.instances(1);
    drop(ward);
    let found = inspect(&place.file()).unwrap();
    assert_eq!((found.version, found.resources, found.is_sound()), (3, 7, true));
    assert!(found.unchecked > 0 && found.unchecked < found.rows);
    let copy = inspect(&place.beside("cse.db.version-1")).unwrap();
    assert_eq!((copy.version, copy.resources), (1, 6));
}

/// A database that was moved away without its log: an empty one in its place would destroy the log
/// (<https://sqlite.org/wal.html#the_wal_file>: part of the database's state). A reserve has no content.
#[test]
fn what_remains_of_a_database_that_is_gone_is_kept() {
    let place = Place::new("orphans");
    let orphan = place.beside("cse.db-wal");
    std::fs::write(&orphan, "commits").unwrap();
    let opened = Database::open(&place.file(), &DatabaseOptions::default()).map(drop);
    for refused in [opened, verify(&place.file()).map(drop)] {
        let Err(StoreError::Orphan { orphan: named, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(named, orphan);
    }
    assert_eq!(std::fs::read_to_string(&orphan).unwrap(), "commits");
    assert_eq!(std::fs::read_dir(&place.0).unwrap().count(), 1, "nothing is created");
    std::fs::rename(&orphan, place.beside("cse.db.reserve")).unwrap();
    Database::open(&place.file(), &DatabaseOptions::default()).unwrap();
}

/// A database that was emptied is not taken for a new one; an empty file alone is new to a CSE, but
/// not sound.
#[test]
fn an_emptied_database_is_not_taken_for_a_new_one() {
    let place = Place::new("emptied");
    drop(Ward::with_instances(&place, 1));
    let reserve = place.beside("cse.db.reserve");
    assert!(reserve.exists());
    std::fs::File::create(place.file()).unwrap();
    let opened = Database::open(&place.file(), &DatabaseOptions::default()).map(drop);
    for refused in [opened, inspect(&place.file()).map(drop)] {
        let Err(StoreError::Orphan { orphan, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(orphan, reserve);
    }
    std::fs::remove_file(&reserve).unwrap();
    let found = inspect(&place.file()).unwrap();
    assert!(!found.is_sound() && found.structure[0].contains("empty"), "{found:?}");
    Database::open(&place.file(), &DatabaseOptions::default()).unwrap();
}

/// SQLite opens a file of a later write version read-only, and says so at the first change only.
#[test]
fn a_database_that_cannot_be_written_is_refused() {
    let place = Place::new("read-only");
    drop(Ward::with_instances(&place, 1));
    let mut octets = std::fs::read(place.file()).unwrap();
    octets[18] = 9;
    std::fs::write(place.file(), octets).unwrap();
    let opened = Database::open(&place.file(), &DatabaseOptions::default()).map(drop);
    assert!(matches!(opened, Err(StoreError::ReadOnly(_))), "{opened:?}");
    let found = inspect(&place.file()).unwrap();
    assert!(!found.is_sound() && found.structure[0].contains("octet 18"), "{found:?}");
}

/// Whoever can open the lock could keep every CSE from starting; one of an earlier version is closed
/// to others.
#[test]
fn the_files_beside_a_database_are_their_owners() {
    let place = Place::new("modes");
    for end in [".lock", ".reserve"] {
        let path = place.beside(&format!("cse.db{end}"));
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    let ward = Ward::with_instances(&place, 1);
    for end in [".lock", ".reserve"] {
        let mode = std::fs::metadata(place.beside(&format!("cse.db{end}"))).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600, "{end}");
    }
    drop(ward);
}
