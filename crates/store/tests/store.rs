//! What is committed comes back; what is refused changes nothing.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_onem2m::audit::{AuditContent, AuditEntry, AuditedRequest, End};
use gatewright_onem2m::{Batch, Damage, Operation, ReadId, Request, RowChange, Status};
use gatewright_store::{
    BatchWriter, Database, DatabaseOptions, StoreError, WriteReport, last_entries, verify,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("store-{name}"));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("cse.db")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn start(database: Database) -> (BatchWriter, Receiver<WriteReport>) {
    let (sender, receiver) = channel();
    let writer = database.start(move |report| drop(sender.send(report))).unwrap();
    (writer, receiver)
}

fn put(number: u64, seq: u64, body: &str) -> Batch {
    let records = vec![RowChange::Put { seq, body: body.into() }];
    Batch {
        number,
        epoch: 0,
        next_seq: seq + 1,
        records,
        entries: Vec::new(),
        clock: None,
        remembered: None,
    }
}

fn wait(reports: &Receiver<WriteReport>) -> WriteReport {
    reports.recv_timeout(Duration::from_mins(1)).unwrap()
}

/// Waits until the batch `number` is known to be stored.
fn wait_for(reports: &Receiver<WriteReport>, number: u64) {
    loop {
        match wait(reports) {
            WriteReport::Committed(reached) if reached >= number => return,
            WriteReport::Committed(_) | WriteReport::Short(_) => {}
            WriteReport::Failed { cause, .. } => panic!("{cause}"),
        }
    }
}

fn bodies(path: &Path) -> Vec<(u64, String)> {
    let (_, restored) = Database::open(path, &DatabaseOptions::default()).unwrap();
    restored.rows.into_iter().map(|(seq, body)| (seq, body.to_string())).collect()
}

#[test]
fn clocks_that_are_noted_are_read_back_first() {
    let place = Place::new("clocks");
    let (database, _) = Database::open(&place.file(), &DatabaseOptions::default()).unwrap();
    let (writer, reports) = start(database);
    for (number, clock) in [(1, Some("first")), (2, Some("second")), (3, None)] {
        let clock = clock.map(std::sync::Arc::from);
        writer.push(Batch { clock, ..put(number, number, "row") }).unwrap();
    }
    drop(writer);
    assert!(reports.iter().all(|report| matches!(report, WriteReport::Committed(_))));
    let rows = Database::read(&place.file()).unwrap().rows;
    assert_eq!((rows.len(), &rows[0]), (4, &(0, "second".into())));
}

#[test]
fn requests_that_are_remembered_are_read_back_behind_the_clocks() {
    let place = Place::new("remembered");
    for run in 0..2 {
        let (database, _) = Database::open(&place.file(), &DatabaseOptions::default()).unwrap();
        let (writer, reports) = start(database);
        for number in 1..4 {
            let remembered = Some(format!("line {run} {number}").into());
            let clock = Some("clocks".into());
            writer.push(Batch { clock, remembered, ..put(number, number, "row") }).unwrap();
        }
        drop(writer);
        assert!(reports.iter().all(|report| matches!(report, WriteReport::Committed(_))));
    }
    let rows = Database::read(&place.file()).unwrap().rows;
    let beside: Vec<&str> = rows.iter().filter(|row| row.0 == 0).map(|row| &*row.1).collect();
    let expected =
        ["clocks", "line 0 1", "line 0 2", "line 0 3", "line 1 1", "line 1 2", "line 1 3"];
    assert_eq!(beside, expected);
    assert!(rows.is_sorted_by_key(|row| row.0));
}

#[test]
fn what_is_committed_comes_back_in_order() {
    let place = Place::new("order");
    let (database, restored) = Database::open(&place.file(), &DatabaseOptions::default()).unwrap();
    assert_eq!((restored.rows.len(), restored.next_seq), (0, 1));
    let (writer, reports) = start(database);
    for seq in [3, 1, 2] {
        writer.push(put(seq, seq, &format!("body {seq}"))).unwrap();
    }
    let delete = vec![RowChange::Delete { seq: 2 }, RowChange::Put { seq: 1, body: "new".into() }];
    writer
        .push(Batch {
            number: 4,
            epoch: 0,
            next_seq: 9,
            records: delete,
            entries: Vec::new(),
            clock: None,
            remembered: None,
        })
        .unwrap();
    wait_for(&reports, 4);
    let (counters, histograms) = (writer.counters(), writer.histograms());
    assert_eq!((counters.batches, histograms.batches.sum(), histograms.waited.count()), (4, 4, 4));
    assert_eq!(histograms.batches.count(), counters.commits);
    assert_eq!(histograms.synchronised.count(), counters.commits);
    assert!(histograms.synchronised.largest() > 0, "a disk takes its time");
    drop(writer);
    let (_, restored) = Database::open(&place.file(), &DatabaseOptions::default()).unwrap();
    let rows: Vec<(u64, &str)> = restored.rows.iter().map(|(seq, body)| (*seq, &**body)).collect();
    assert_eq!(rows, [(1, "new"), (3, "body 3")]);
    assert_eq!(restored.next_seq, 9, "a number is not given twice, even of a deleted row");
}

/// Batches that nobody hurries for share transactions, and the first after a pause does not wait;
/// one that is hurried for takes all that wait with it.
#[test]
fn patient_batches_are_stored_in_few_transactions() {
    const BATCHES: u64 = 200;
    let place = Place::new("pace");
    let (database, _) = Database::open(&place.file(), &DatabaseOptions::default()).unwrap();
    let (writer, reports) = start(database);
    let began = std::time::Instant::now();
    for number in 1..=BATCHES {
        writer.push_patiently(put(number, number, "x")).unwrap();
        std::thread::sleep(Duration::from_micros(100));
    }
    wait_for(&reports, BATCHES);
    let most = began.elapsed().as_micros() / gatewright_store::PACE.as_micros() + 1;
    let commits = writer.counters().commits;
    assert!(u128::from(commits) <= most, "{commits} transactions, {most} at the most");
    // All that wait are written when the writer ends, however patient they are.
    writer.push_patiently(put(BATCHES + 1, BATCHES + 1, "y")).unwrap();
    writer.push(put(BATCHES + 2, BATCHES + 2, "z")).unwrap();
    wait_for(&reports, BATCHES + 2);
    writer.push_patiently(put(BATCHES + 3, BATCHES + 3, "last")).unwrap();
    drop(writer);
    assert_eq!(bodies(&place.file()).len() as u64, BATCHES + 3);
}

/// Rows are deleted together where their numbers follow each other: whatever the order of what was
/// put and deleted, the file has what a map would have.
#[test]
fn what_is_put_and_deleted_in_one_transaction_keeps_its_order() {
    const ROWS: u64 = 12;
    let place = Place::new("deleted");
    let (database, _) = Database::open(&place.file(), &DatabaseOptions::default()).unwrap();
    let (writer, reports) = start(database);
    let mut expected = BTreeMap::new();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut records = Vec::new();
    for number in 1..=400 {
        // xorshift64 (Marsaglia), so that it is the same each time.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let (seq, run) = (1 + random % ROWS, 1 + (random >> 32) % 4);
        if random & (1 << 20) == 0 {
            let body = format!("body {number}");
            records.push(RowChange::Put { seq, body: body.as_str().into() });
            expected.insert(seq, body);
        } else {
            records.extend((seq..seq + run).map(|seq| RowChange::Delete { seq }));
            expected.retain(|row, _| !(seq..seq + run).contains(row));
        }
        let records = core::mem::take(&mut records);
        writer
            .push(Batch {
                number,
                epoch: 0,
                next_seq: ROWS + 5,
                records,
                entries: Vec::new(),
                clock: None,
                remembered: None,
            })
            .unwrap();
    }
    wait_for(&reports, 400);
    drop(writer);
    assert_eq!(bodies(&place.file()), expected.into_iter().collect::<Vec<_>>());
}

/// Who asks again as soon as it is answered shares transactions with the others that do, and who
/// asks alone waits for nobody.
#[test]
fn hurried_batches_are_stored_with_those_that_came_with_them_before() {
    const AT_ONCE: u64 = 16;
    const ROUNDS: u64 = 50;
    let place = Place::new("gather");
    let (database, _) = Database::open(&place.file(), &DatabaseOptions::default()).unwrap();
    let (writer, reports) = start(database);
    for round in 0..ROUNDS {
        let last = (round + 1) * AT_ONCE;
        for number in round * AT_ONCE + 1..=last {
            writer.push(put(number, number, "x")).unwrap();
        }
        wait_for(&reports, last);
    }
    let counters = writer.counters();
    assert_eq!(counters.batches, ROUNDS * AT_ONCE);
    assert!(counters.commits < counters.batches, "{counters:?}");
    // Alone, after many: the first may wait a moment for the others, in vain.
    for number in ROUNDS * AT_ONCE + 1..=ROUNDS * AT_ONCE + 3 {
        writer.push(put(number, number, "y")).unwrap();
        wait_for(&reports, number);
    }
    drop(writer);
    assert_eq!(bodies(&place.file()).len() as u64, ROUNDS * AT_ONCE + 3);
}

/// Of a database that nobody writes, an audit log is verified without a file beside it, so it may lie on
/// a medium that is only read; beside a CSE that writes it is verified as it grows.
#[test]
fn an_audit_log_is_verified_without_writing() {
    let place = Place::new("verified");
    let (database, _) = Database::open(&place.file(), &DatabaseOptions::default()).unwrap();
    let (writer, reports) = start(database);
    writer.push(noted(1, 1, "x")).unwrap();
    wait_for(&reports, 1);
    assert_eq!(verify(&place.file()).unwrap().entries, 1, "while it is written");
    drop(writer);
    let before = files(&place.0);
    assert_eq!(verify(&place.file()).unwrap().entries, 1);
    assert_eq!(files(&place.0), before, "nothing was made, and nothing written");
}

/// SQLite is built with what `.cargo/config.toml` gives it: without, each commit is by `fsync`, and
/// waits for the journal of the file system too.
#[test]
fn sqlite_has_been_told_of_fdatasync() {
    let place = Place::new("flags");
    let memory = rusqlite::Connection::open(place.file()).unwrap();
    let used = "SELECT sqlite_compileoption_used('DEFAULT_MEMSTATUS=0')";
    let used: bool = memory.query_row(used, [], |row| row.get(0)).unwrap();
    assert!(used, "the flags of one line come together, and this is the one that SQLite tells of");
    // Of the other it does not tell, and who watches calls of the system needs a right: so it is looked
    // whether it stands in the line, with which SQLite is built anew when it changes.
    let line = option_env!("LIBSQLITE3_FLAGS").unwrap_or_default();
    assert!(line.split_whitespace().any(|flag| flag == "-DHAVE_FDATASYNC=1"), "{line}");
}

#[test]
fn a_database_has_one_writer() {
    let place = Place::new("lock");
    let first = Database::open(&place.file(), &DatabaseOptions::default()).unwrap();
    let second = Database::open(&place.file(), &DatabaseOptions::default());
    assert!(matches!(second, Err(StoreError::InUse(_))), "{second:?}");
    drop(first);
    assert!(Database::open(&place.file(), &DatabaseOptions::default()).is_ok());
}

/// A file is locked, and not its name; one with two names would have two write-ahead logs.
#[test]
fn a_database_has_one_writer_by_whatever_name() {
    let place = Place::new("names");
    let (first, link) = (place.file(), place.0.join("link.db"));
    // The link is there before the database is.
    std::os::unix::fs::symlink("cse.db", &link).unwrap();
    let by_link = Database::open(&link, &DatabaseOptions::default()).unwrap();
    let second = Database::open(&first, &DatabaseOptions::default());
    assert!(matches!(second, Err(StoreError::InUse(_))), "{second:?}");
    let second = Database::open(&link, &DatabaseOptions::default());
    assert!(matches!(second, Err(StoreError::InUse(_))), "{second:?}");
    assert!(!place.0.join("link.db.lock").exists());
    let hard = place.0.join("hard.db");
    std::fs::hard_link(&first, &hard).unwrap();
    let is_refused = |error: Option<StoreError>| match error {
        Some(StoreError::Linked { names, .. }) => assert_eq!(names, 2),
        other => panic!("{other:?}"),
    };
    let options = DatabaseOptions::default();
    is_refused(Database::open(&hard, &options).err());
    is_refused(Database::read(&hard).err());
    is_refused(gatewright_store::inspect(&hard).err());
    is_refused(gatewright_store::backup(&hard, &place.0.join("copy.db")).err());
    is_refused(gatewright_store::salvage(&hard, &place.0.join("copy.db")).err());
    is_refused(verify(&hard).err());
    drop(by_link);
    is_refused(Database::open(&first, &options).err());
    std::fs::remove_file(&hard).unwrap();
    drop(Database::open(&first, &options).unwrap());
    // The lock is the file's: under another name it is found again.
    let held = std::fs::File::open(&first).unwrap();
    held.lock().unwrap();
    std::fs::rename(&first, &hard).unwrap();
    let moved = Database::open(&hard, &options);
    assert!(matches!(moved, Err(StoreError::InUse(_))), "{moved:?}");
    drop(held);
    assert!(Database::open(&hard, &options).is_ok());
}

/// Every file of a folder with what is in it.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read(path).unwrap())
    });
    files.collect()
}

/// What was stored, before and after the log was moved into the file; nothing beside it is needed,
/// made or changed.
#[test]
fn reading_back_writes_nothing() {
    let place = Place::new("read back #1?");
    let (database, _) = Database::open(&place.file(), &DatabaseOptions::default()).unwrap();
    let (writer, reports) = start(database);
    writer.push(put(1, 7, "body")).unwrap();
    wait_for(&reports, 1);
    let busy = Database::read(&place.file());
    assert!(matches!(busy, Err(StoreError::InUse(_))), "{busy:?}");
    // As a CSE that was killed has left it: a file and a log.
    let killed = Place::new("read-killed");
    for name in ["cse.db", "cse.db-wal"] {
        std::fs::copy(place.0.join(name), killed.0.join(name)).unwrap();
    }
    drop(writer);
    for place in [&place, &killed] {
        let _ = std::fs::remove_file(place.0.join("cse.db.lock"));
        let before = files(&place.0);
        let restored = Database::read(&place.file()).unwrap();
        assert_eq!(restored.rows, [(7, "body".into())]);
        let mut after = files(&place.0);
        after.remove("cse.db-shm");
        assert_eq!(after, before);
    }
    let names: Vec<_> = files(&place.0).into_keys().collect();
    assert_eq!(names, ["cse.db", "cse.db.reserve"], "without a log there is no index of it");
    let empty = Place::new("read-empty");
    std::fs::write(empty.file(), "").unwrap();
    assert_eq!(Database::read(&empty.file()).unwrap().rows, []);
    assert_eq!(files(&empty.0), [("cse.db".to_owned(), Vec::new())].into());
    let missing = Database::read(&empty.0.join("missing.db"));
    assert!(matches!(missing, Err(StoreError::File { .. })), "{missing:?}");
}

#[test]
fn a_file_of_another_program_is_not_touched() {
    let place = Place::new("foreign");
    let other = rusqlite::Connection::open(place.file()).unwrap();
    other.execute_batch("CREATE TABLE theirs (x)").unwrap();
    drop(other);
    let before = std::fs::read(place.file()).unwrap();
    let opened = Database::open(&place.file(), &DatabaseOptions::default());
    assert!(matches!(opened, Err(StoreError::Foreign(_))), "{opened:?}");
    assert_eq!(std::fs::read(place.file()).unwrap(), before);
    std::fs::write(place.file(), [7; 4096]).unwrap();
    let opened = Database::open(&place.file(), &DatabaseOptions::default());
    assert!(matches!(opened, Err(StoreError::Database(_))), "{opened:?}");
}

#[test]
fn a_full_store_refuses_and_keeps_what_it_has() {
    let place = Place::new("full");
    let mut options = DatabaseOptions::default();
    options.octets_max = Some(64 * 1024);
    let (database, _) = Database::open(&place.file(), &options).unwrap();
    let (writer, reports) = start(database);
    let mut stored = 0;
    let refused = loop {
        let number = stored + 1;
        writer.push(put(number, number, &"x".repeat(4_000))).unwrap();
        match wait(&reports) {
            WriteReport::Committed(number) => stored = number,
            WriteReport::Failed { number, .. } => break number,
            WriteReport::Short(_) => {}
        }
    };
    assert!(stored > 3);
    assert_eq!(refused, stored + 1);
    // Made before its maker heard of the failure: refused without a word.
    writer.push(put(refused + 1, 900, "stale")).unwrap();
    // Made after: room is made first.
    let records = vec![RowChange::Delete { seq: 1 }];
    let number = refused + 2;
    writer
        .push(Batch {
            number,
            epoch: 1,
            next_seq: 901,
            records,
            entries: Vec::new(),
            clock: None,
            remembered: None,
        })
        .unwrap();
    assert_eq!(wait(&reports), WriteReport::Committed(number));
    assert_eq!((writer.counters().failures, writer.counters().stale), (1, 1));
    drop(writer);
    let rows = bodies(&place.file());
    let kept: Vec<u64> = rows.iter().map(|(seq, _)| *seq).collect();
    assert_eq!(kept, (2..=stored).collect::<Vec<u64>>());
}

#[test]
fn too_many_waiting_batches_come_back() {
    let (database, _) = {
        let mut options = DatabaseOptions::default();
        options.batches_max = 0;
        Database::in_memory(&options).unwrap()
    };
    let (writer, _) = start(database);
    let batch = put(1, 1, "x");
    assert_eq!(writer.push(batch.clone()), Err(batch));
}

/// A log cut short anywhere, as a crash of the machine may leave it: what was committed before
/// the cut is there, in order, and nothing else.
#[test]
fn a_truncated_log_gives_a_prefix() {
    let place = Place::new("truncated");
    let (database, _) = Database::open(&place.file(), &DatabaseOptions::default()).unwrap();
    let (writer, reports) = start(database);
    for number in 1..=20 {
        writer.push(put(number, number, &format!("body {number}"))).unwrap();
        wait_for(&reports, number);
    }
    let log = place.0.join("cse.db-wal");
    let (file_octets, log_octets) =
        (std::fs::read(place.file()).unwrap(), std::fs::read(&log).unwrap());
    drop(writer);
    let mut lengths = Vec::new();
    for cut in (0..=log_octets.len()).step_by(1_500) {
        let copy = Place::new("truncated-copy");
        std::fs::write(copy.file(), &file_octets).unwrap();
        std::fs::write(copy.0.join("cse.db-wal"), &log_octets[..cut]).unwrap();
        match Database::open(&copy.file(), &DatabaseOptions::default()) {
            Ok((_, restored)) => {
                for (at, (seq, body)) in restored.rows.iter().enumerate() {
                    assert_eq!((*seq, &**body), (at as u64 + 1, &*format!("body {}", at + 1)));
                }
                lengths.push(restored.rows.len());
            }
            Err(error) => panic!("cut at {cut}: {error}"),
        }
    }
    assert!(lengths.is_sorted(), "{lengths:?}");
    assert_eq!(lengths.first(), Some(&0));
    assert!(lengths.last().is_some_and(|&length| length >= 19), "{lengths:?}");
}

#[test]
fn a_truncated_file_is_refused_and_left_alone() {
    let place = Place::new("damaged");
    let (database, _) = Database::open(&place.file(), &DatabaseOptions::default()).unwrap();
    let (writer, reports) = start(database);
    for number in 1..=50 {
        writer.push(put(number, number, &"x".repeat(1_000))).unwrap();
    }
    wait_for(&reports, 50);
    drop(writer);
    let octets = std::fs::read(place.file()).unwrap();
    let half = &octets[..octets.len() / 2];
    std::fs::write(place.file(), half).unwrap();
    let opened = Database::open(&place.file(), &DatabaseOptions::default());
    assert!(matches!(opened, Err(StoreError::Database(_))), "{opened:?}");
    assert!(std::fs::read(place.file()).unwrap().len() >= half.len());
}

/// A batch with an entry of its own, and a row if `seq` is not zero.
fn noted(number: u64, seq: u64, to: &str) -> Batch {
    let asked = AuditedRequest::new(&Request::new(Operation::Retrieve, to, "Ca", "1")).into();
    let end = End::Answered(Status::Ok);
    let said = AuditContent::Ended { asked, end, later: false, made: None };
    let mut batch = put(number, seq, "x");
    if seq == 0 {
        batch.records.clear();
    }
    Batch { entries: vec![AuditEntry { at_micros: number, said }], ..batch }
}

#[test]
fn the_audit_chain_shows_any_change() {
    let place = Place::new("audit");
    let (database, _) = Database::open(&place.file(), &DatabaseOptions::default()).unwrap();
    let (writer, reports) = start(database);
    for number in 1..=5 {
        writer.push(noted(number, number, &format!("x{number}"))).unwrap();
        wait_for(&reports, number);
    }
    drop(writer);
    let sound = verify(&place.file()).unwrap();
    assert_eq!((sound.entries, sound.broken_at), (5, None));
    // Goes on where it ended after a restart.
    let (database, _) = Database::open(&place.file(), &DatabaseOptions::default()).unwrap();
    let (writer, _) = start(database);
    writer.push(noted(1, 0, "x")).unwrap();
    drop(writer);
    assert_eq!(verify(&place.file()).unwrap().entries, 6);
    let last = last_entries(&place.file(), 2).unwrap();
    let told: Vec<_> = last.iter().map(|it| (it.number, it.text_of("to"))).collect();
    assert_eq!(told, [(5, Some("x5")), (6, Some("x"))]);
    for (change, at) in [
        ("UPDATE audit SET entry = replace(entry, 'Ca', 'Cz') WHERE number = 3", 3),
        ("UPDATE audit SET at = 9 WHERE number = 2", 2),
        ("DELETE FROM audit WHERE number = 1", 2),
    ] {
        let tampered = rusqlite::Connection::open(place.file()).unwrap();
        tampered.execute(change, []).unwrap();
        drop(tampered);
        assert_eq!(verify(&place.file()).unwrap().broken_at, Some(at), "{change}");
    }
}

/// What a transaction could not store, no entry says, but the next one says how much that was.
#[test]
fn an_entry_is_stored_with_its_rows_or_not_at_all() {
    let place = Place::new("audit-whole");
    let mut options = DatabaseOptions::default();
    options.octets_max = Some(256 * 1024);
    let (database, _) = Database::open(&place.file(), &options).unwrap();
    let (writer, reports) = start(database);
    let large = |number| {
        let records = vec![RowChange::Put { seq: number, body: "x".repeat(16 * 1024).into() }];
        Batch { records, ..noted(number, 0, "x") }
    };
    let mut number = 0;
    let failed = loop {
        number += 1;
        writer.push(large(number)).unwrap();
        match wait(&reports) {
            WriteReport::Committed(_) => assert!(number < 1_000, "it is bounded"),
            WriteReport::Failed { number, .. } => break number,
            WriteReport::Short(_) => {}
        }
    };
    let counters = writer.counters();
    assert_eq!((counters.audited, counters.audit_lost), (failed - 1, 1));
    let verified = verify(&place.file()).unwrap();
    assert_eq!((verified.entries, verified.broken_at), (failed - 1, None));
    for _ in 0..2 {
        number += 1;
        let after = Batch { epoch: 1, ..noted(number, 0, "x") };
        writer.push(after).unwrap();
        assert_eq!(wait(&reports), WriteReport::Committed(number));
    }
    drop(writer);
    let verified = verify(&place.file()).unwrap();
    assert_eq!((verified.entries, verified.lost, verified.broken_at), (failed + 2, 1, None));
    assert_eq!(bodies(&place.file()).len() as u64, failed - 1);
}

/// A tool that writes into the open database takes the next numbers: the CSE goes on behind them, and
/// the chain shows what was put in.
#[test]
fn another_writers_rows_do_not_stop_the_store() {
    let place = Place::new("intruder");
    let (database, _) = Database::open(&place.file(), &DatabaseOptions::default()).unwrap();
    let (writer, reports) = start(database);
    let remembering = |number: u64| Batch {
        remembered: Some(format!("{{\"n\":{number}}}").into()),
        ..noted(number, number, "x")
    };
    writer.push(remembering(1)).unwrap();
    wait_for(&reports, 1);
    let intruder = rusqlite::Connection::open(place.file()).unwrap();
    intruder
        .execute_batch(
            "INSERT INTO audit (number, at, entry, chain) VALUES (2, 0, '{}', zeroblob(32));
             INSERT INTO remembered (number, line, sum) VALUES (2, '{}', 0);",
        )
        .unwrap();
    drop(intruder);
    for number in 2..5 {
        writer.push(remembering(number)).unwrap();
        wait_for(&reports, number);
    }
    let counters = writer.counters();
    assert_eq!((counters.intrusions, counters.failures, counters.audited), (1, 0, 4));
    drop(writer);
    assert_eq!(verify(&place.file()).unwrap().broken_at, Some(2));
}

/// The entries of earlier databases are lines, chained alike: they go on to hold.
#[test]
fn a_log_of_lines_goes_on_with_objects() {
    use sha2::{Digest, Sha256};
    let place = Place::new("audit-lines");
    drop(Database::open(&place.file(), &DatabaseOptions::default()).unwrap());
    let connection = rusqlite::Connection::open(place.file()).unwrap();
    let mut head = [0_u8; 32];
    for (number, line) in [(1_i64, "Retrieve x by Ca: 2000"), (2, "Create x by Cb: 4103")] {
        let mut hash = Sha256::new();
        hash.update(head);
        hash.update(number.to_be_bytes());
        hash.update(7_i64.to_be_bytes());
        hash.update(line);
        head = hash.finalize().into();
        let values = rusqlite::params![number, 7, line, head];
        connection.execute("INSERT INTO audit VALUES (?1, ?2, ?3, ?4)", values).unwrap();
    }
    drop(connection);
    let (database, _) = Database::open(&place.file(), &DatabaseOptions::default()).unwrap();
    let (writer, _reports) = start(database);
    writer.push(noted(1, 1, "x")).unwrap();
    drop(writer);
    let verified = verify(&place.file()).unwrap();
    assert_eq!((verified.entries, verified.broken_at), (3, None));
    assert_eq!((verified.outcomes.allowed, verified.outcomes.denied), (2, 1));
}

/// However long its entries are, however many come at once and from however large a log it goes on, the
/// log keeps to its bound, and says what it has dropped.
#[test]
fn a_log_that_is_full_drops_its_oldest_entries_and_holds() {
    // What cannot be seen is written as six octets, so that an entry takes a page of its own.
    for (name, flood) in [("x".repeat(300), 6_000), ("\u{1}".repeat(512), 2_000)] {
        let place = Place::new("audit-bound");
        let mut options = DatabaseOptions::default();
        let (mut number, mut dropped) = (0, 0);
        for octets_max in [1024 * 1024, 256 * 1024, 256 * 1024] {
            options.audit_octets_max = octets_max;
            let (database, _) = Database::open(&place.file(), &options).unwrap();
            let (writer, reports) = start(database);
            let last = number + flood;
            while number < last {
                number += 1;
                writer.push(noted(number, 0, &name)).unwrap();
            }
            wait_for(&reports, number);
            dropped += writer.counters().audit_dropped;
            drop(writer);
            let verified = verify(&place.file()).unwrap();
            assert_eq!((verified.broken_at, verified.dropped), (None, dropped));
            assert!(dropped > 0 && verified.entries > 20, "{verified:?}");
            assert!(audit_octets(&place) <= i64::try_from(octets_max).unwrap());
        }
        // The first file was the largest: a bound, and what is written before room is made.
        assert!(place.file().metadata().unwrap().len() < 1536 * 1024);
    }
}

fn audit_octets(place: &Place) -> i64 {
    let connection = rusqlite::Connection::open(place.file()).unwrap();
    let octets = "SELECT sum(pgsize) FROM dbstat WHERE name = 'audit'";
    connection.query_row(octets, [], |row| row.get(0)).unwrap()
}

/// In a log that has dropped entries a change is found wherever it is.
#[test]
fn a_log_that_has_dropped_entries_shows_any_change() {
    let place = Place::new("audit-dropped");
    let mut options = DatabaseOptions::default();
    options.audit_octets_max = 128 * 1024;
    let (database, _) = Database::open(&place.file(), &options).unwrap();
    let (writer, reports) = start(database);
    let mut number = 0;
    while writer.counters().audit_dropped == 0 {
        number += 1;
        writer.push(noted(number, 0, "x")).unwrap();
        wait_for(&reports, number);
    }
    for _ in 0..5 {
        number += 1;
        writer.push(noted(number, 0, "x")).unwrap();
    }
    wait_for(&reports, number);
    drop(writer);
    let sound = verify(&place.file()).unwrap();
    let (first, last) = (sound.dropped + 1, sound.dropped + sound.entries);
    assert_eq!((sound.broken_at, last), (None, number + 1), "one entry tells of those dropped");
    let octets = std::fs::read(place.file()).unwrap();
    for (change, at) in [
        (format!("DELETE FROM audit WHERE number = {first}"), first + 1),
        (format!("DELETE FROM audit WHERE number < {}", first + 9), first + 9),
        (format!("DELETE FROM audit WHERE number = {}", first + 9), first + 10),
        (format!("UPDATE audit SET at = 9 WHERE number = {first}"), first),
        ("DELETE FROM audit WHERE entry LIKE '%Dropped%'".to_owned(), first),
        (
            "UPDATE audit SET entry = replace(entry, '\"hash\":\"', '\"hash\":\"0')".to_owned(),
            first,
        ),
        (
            format!("UPDATE audit SET entry = replace(entry, 'Ca', 'Cz') WHERE number = {last}"),
            last,
        ),
    ] {
        std::fs::write(place.file(), &octets).unwrap();
        let tampered = rusqlite::Connection::open(place.file()).unwrap();
        assert!(tampered.execute(&change, []).unwrap() > 0, "{change}");
        drop(tampered);
        assert_eq!(verify(&place.file()).unwrap().broken_at, Some(at), "{change}");
    }
}

/// A full log refuses no rows, and full rows no entries.
#[test]
fn rows_and_log_have_room_of_their_own() {
    let place = Place::new("audit-apart");
    let mut options = DatabaseOptions::default();
    (options.octets_max, options.audit_octets_max) = (Some(512 * 1024), 512 * 1024);
    let (database, _) = Database::open(&place.file(), &options).unwrap();
    let (writer, reports) = start(database);
    let mut number = 0;
    let flood = |number: &mut u64, epoch| {
        let until = writer.counters().audit_dropped + 1_000;
        while writer.counters().audit_dropped < until {
            *number += 1;
            writer.push(Batch { epoch, ..noted(*number, 0, &"x".repeat(400)) }).unwrap();
            wait_for(&reports, *number);
        }
    };
    flood(&mut number, 0);
    let mut rows = 0;
    let refused = loop {
        number += 1;
        let body = "x".repeat(4_000).into();
        let records = vec![RowChange::Put { seq: number, body }];
        writer.push(Batch { records, ..noted(number, 0, "row") }).unwrap();
        match wait(&reports) {
            WriteReport::Committed(_) => rows += 1,
            WriteReport::Failed { number, .. } => break number,
            WriteReport::Short(_) => {}
        }
        assert!(rows < 1_000, "they are bounded");
    };
    assert_eq!(refused, number);
    // Of 128 pages, each row takes one, and the ends of tables some.
    assert!((110..=128).contains(&rows), "{rows} rows");
    flood(&mut number, 1);
    drop(writer);
    assert_eq!(verify(&place.file()).unwrap().broken_at, None);
    assert_eq!(bodies(&place.file()).len(), rows);
}

/// A batch of rows.
fn rows(of: impl IntoIterator<Item = (u64, String)>) -> Batch {
    let mut batch = put(1, 0, "");
    let row = |(seq, body): (u64, String)| RowChange::Put { seq, body: body.into() };
    batch.records = of.into_iter().map(row).collect();
    batch.next_seq = 10_000;
    batch
}

/// A reader sees what is committed, tells what is damaged and what is not there.
#[test]
fn rows_are_read_beside_the_commits() {
    let place = Place::new("reader");
    let (database, _) = Database::open(&place.file(), &DatabaseOptions::default()).unwrap();
    let (sender, reads) = channel();
    let reader = database.reader(move |report| drop(sender.send(report))).unwrap();
    let reader = reader.expect("a file has a reader");
    let (writer, reports) = start(database);
    writer.push(rows((1..=3).map(|seq| (seq, format!("{{\"row\":{seq}}}"))))).unwrap();
    wait_for(&reports, 1);
    // One row is changed by somebody else.
    let other = rusqlite::Connection::open(place.file()).unwrap();
    other.execute("UPDATE row SET body = '{\"row\":9}' WHERE seq = 2", []).unwrap();
    drop(other);
    assert!(reader.read(ReadId(7), vec![1, 2, 3, 4]));
    let (id, read) = reads.recv_timeout(Duration::from_mins(1)).unwrap();
    let expected = vec![
        (1, Ok("{\"row\":1}".into())),
        (2, Err(Damage::Checksum)),
        (3, Ok("{\"row\":3}".into())),
        (4, Err(Damage::Missing)),
    ];
    assert_eq!((id, read), (ReadId(7), Ok(expected)));
}
