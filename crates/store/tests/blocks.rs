//! Blocks of records: a start finds what it would find in the rows, whatever happened to them.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_onem2m::{
    Batch, Cse, CseConfig, CseType, Damage, RecordBlock, RowChange, StoredItem, Unreadable,
};
use gatewright_store::{
    BatchWriter, Database, DatabaseOptions, WriteReport, backup, inspect, salvage,
};
use proptest::prelude::*;
use rusqlite::{Connection, params};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("blocks-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("cse.db")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const TIMES: &str = "\"ct\":\"20261124T060000,000001\",\"lt\":\"20261124T060000,000001\",\
                     \"et\":\"20991124T060000,000000\"";
/// Numbers of the CSEBase, and of its containers.
const BASE: u64 = 1;
const CONTAINERS: [u64; 3] = [2, 3, 4];

fn base() -> Arc<str> {
    format!(
        "{{\"m2m:cb\":{{\"ri\":\"id-in\",\"rn\":\"cse-in\",\"pi\":\"\",\"ty\":5,{TIMES},\
         \"csi\":\"/id-in\",\"cst\":1,\"srt\":[1]}}}}"
    )
    .into()
}

fn container(seq: u64) -> Arc<str> {
    format!(
        "{{\"m2m:cnt\":{{\"ri\":\"cnt{seq:x}\",\"rn\":\"c{seq}\",\"pi\":\"id-in\",\"ty\":3,{TIMES},\
         \"st\":0}},\"_o\":\"CAdmin\"}}"
    )
    .into()
}

fn instance(seq: u64) -> Arc<str> {
    let container = CONTAINERS[usize::try_from(seq % 3).unwrap()];
    // Some are found by a label, so that they are single rows.
    let labels = if seq.is_multiple_of(97) { ",\"lbl\":[\"x\"]" } else { "" };
    let name = if seq.is_multiple_of(2) { format!("n{seq}") } else { format!("cin_{seq:x}") };
    format!(
        "{{\"m2m:cin\":{{\"ri\":\"cin{seq:x}\",\"rn\":\"{name}\",\"pi\":\"cnt{container:x}\",\"ty\":4,\
         {TIMES},\"st\":{seq},\"cs\":1{labels},\"con\":\"1\"}}}}"
    )
    .into()
}

/// A database with a writer.
struct Open {
    writer: BatchWriter,
    reports: Receiver<WriteReport>,
    number: u64,
    next_seq: u64,
}

impl Open {
    fn new(path: &Path) -> Self {
        let (database, rows, next_seq) =
            Database::open_reading(path, &DatabaseOptions::default()).unwrap();
        let mut rows = rows;
        let _all = rows.by_ref().count();
        let mut database = database;
        database.make_blocks_anew(rows.end().unwrap().blocks_damaged);
        let (sender, reports) = channel();
        let writer = database.start(move |report| drop(sender.send(report))).unwrap();
        Self { writer, reports, number: 0, next_seq }
    }

    fn store(&mut self, records: Vec<RowChange>) {
        let last = records.iter().map(|record| match record {
            RowChange::Put { seq, .. } | RowChange::Delete { seq } => *seq,
        });
        self.next_seq = self.next_seq.max(last.max().unwrap_or(0) + 1);
        self.number += 1;
        let batch = Batch {
            number: self.number,
            epoch: 0,
            next_seq: self.next_seq,
            records,
            entries: Vec::new(),
            clock: Some("{\"_k\":{}}".into()),
            remembered: None,
        };
        self.writer.push(batch).unwrap();
        let reached = self.reports.recv_timeout(Duration::from_mins(1)).unwrap();
        assert_eq!(reached, WriteReport::Committed(self.number));
    }

    /// Waits until this many blocks are written.
    fn wait_for_blocks(&self, blocks: u64) {
        let patience = Instant::now();
        while self.writer.counters().blocks < blocks {
            assert!(patience.elapsed() < Duration::from_mins(1), "{:?}", self.writer.counters());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn put(seq: u64, body: Arc<str>) -> RowChange {
    RowChange::Put { seq, body }
}

/// The resources that every other is below, and instances up to a number, in batches.
fn fill(open: &mut Open, instances: std::ops::Range<u64>) {
    if instances.start <= 5 {
        let mut first = vec![put(BASE, base())];
        first.extend(CONTAINERS.map(|seq| put(seq, container(seq))));
        open.store(first);
    }
    let all: Vec<u64> = instances.collect();
    for some in all.chunks(500) {
        open.store(some.iter().map(|&seq| put(seq, instance(seq))).collect());
    }
}

/// What a start finds: rows, and numbers with records; and what it reports.
fn found(path: &Path) -> (BTreeMap<u64, Option<Arc<str>>>, usize) {
    let (database, mut rows, _) =
        Database::open_reading(path, &DatabaseOptions::default()).unwrap();
    let mut found = BTreeMap::new();
    for item in rows.by_ref() {
        match item {
            StoredItem::Row(0, _) => {}
            StoredItem::Row(seq, body) => {
                assert!(found.insert(seq, Some(body)).is_none(), "row {seq} twice");
            }
            StoredItem::Records(block) => {
                for (seq, _) in block.summaries() {
                    assert!(found.insert(seq, None).is_none(), "record {seq} twice");
                }
            }
        }
    }
    let marks = rows.end().unwrap();
    drop(database);
    (found, marks.blocks_damaged.len())
}

fn rows(path: &Path) -> BTreeMap<u64, Arc<str>> {
    let restored = Database::read(path).unwrap();
    restored.rows.into_iter().filter(|(seq, _)| *seq > 0).collect()
}

/// Checks that a start finds every row once, and that verification agrees; how many have records.
fn check(path: &Path) -> usize {
    let (found, _) = found(path);
    let rows = rows(path);
    assert!(found.keys().eq(rows.keys()), "a start finds other rows");
    for (seq, body) in &found {
        assert!(body.as_ref().is_none_or(|body| *body == rows[seq]), "row {seq}");
    }
    let inspected = inspect(path).unwrap();
    assert_eq!(inspected.structure, Vec::<String>::new());
    found.values().filter(|body| body.is_none()).count()
}

/// A CSE with what the database has: resources, paged out ones, and unreadable rows.
fn opened(path: &Path) -> (usize, usize, Vec<Unreadable>) {
    let (database, mut rows, next_seq) =
        Database::open_reading(path, &DatabaseOptions::default()).unwrap();
    let mut config = CseConfig::new(CseType::Infrastructure, "/id-in", "cse-in");
    config.limits.resident_octets = Some(0);
    config.limits.resources = 1_000_000;
    let now = Duration::from_hours(498_750);
    let (cse, unreadable) = Cse::open_stored(config, now, rows.by_ref(), next_seq).unwrap();
    drop((rows.end().unwrap(), database));
    (cse.resources(), cse.instances_paged_out(), unreadable)
}

#[test]
fn a_start_reads_blocks_single_rows_and_the_rest() {
    let place = Place::new("start");
    let mut open = Open::new(&place.file());
    fill(&mut open, 5..10_000);
    open.wait_for_blocks(2);
    drop(open);
    // 8,192 numbers are covered: without the clocks, the CSEBase, containers, and every 97th.
    let labelled = (5..8_192).filter(|seq: &u64| seq.is_multiple_of(97)).count();
    assert_eq!(check(&place.file()), 8_192 - 5 - labelled);
    let (resources, paged, unreadable) = opened(&place.file());
    assert_eq!((resources, unreadable), (9_999, Vec::new()));
    assert!(paged > 9_000, "{paged}");
}

/// What is deleted, changed or written anew below the covered number, in one transaction or several.
#[test]
fn what_is_changed_behind_a_block_is_changed_for_a_start() {
    let place = Place::new("changed");
    let mut open = Open::new(&place.file());
    fill(&mut open, 5..9_000);
    open.wait_for_blocks(2);
    let delete = |seq| RowChange::Delete { seq };
    open.store((100..200).map(delete).collect());
    open.store(vec![delete(4_095), delete(4_096), delete(300), put(300, instance(300))]);
    open.store(vec![put(2, container(2)), put(500, instance(500)), delete(500)]);
    // Rows with a number that was given out before, but not stored.
    open.store(vec![put(150, instance(150)), delete(151)]);
    drop(open);
    check(&place.file());
    let (resources, _, unreadable) = opened(&place.file());
    assert_eq!((resources, unreadable), (8_999 - 100 - 2 - 1 + 1, Vec::new()));
    // All of a block: its record is gone with the last one.
    let mut open = Open::new(&place.file());
    open.store((5..4_096).map(delete).collect());
    drop(open);
    check(&place.file());
    let connection = Connection::open(place.file()).unwrap();
    let blocks = "SELECT count(*) FROM block";
    assert_eq!(connection.query_row(blocks, [], |row| row.get::<_, i64>(0)), Ok(1));
}

/// Records whose container is gone are reported as its rows are.
#[test]
fn records_without_their_container_are_unreadable() {
    let place = Place::new("orphans");
    let mut open = Open::new(&place.file());
    fill(&mut open, 5..4_200);
    open.wait_for_blocks(1);
    drop(open);
    let connection = Connection::open(place.file()).unwrap();
    connection.execute("UPDATE row SET body = '{' WHERE seq = 2", []).unwrap();
    drop(connection);
    let (resources, _, unreadable) = opened(&place.file());
    let of_two = (5..4_200).filter(|seq| seq % 3 == 0).count();
    assert_eq!((resources, unreadable.len()), (4_199 - 1 - of_two, of_two + 1));
    let parents = unreadable.iter().filter(|it| it.damage == Damage::Parent("cnt2".into()));
    assert_eq!(parents.count(), of_two);
}

/// A damaged block is left out, its rows are read, and it is made anew.
#[test]
fn damaged_blocks_fall_back_to_their_rows_and_are_made_anew() {
    for damage in [
        "UPDATE block SET records = zeroblob(64) WHERE first = 4096",
        "UPDATE block SET sum = sum + 1 WHERE first = 4096",
        "DELETE FROM block WHERE first = 4096",
        "UPDATE present SET bits = zeroblob(512) WHERE first = 4096",
        "UPDATE present SET bits = x'00' WHERE first = 4096",
        "DELETE FROM present WHERE first = 4096",
    ] {
        let place = Place::new("damaged");
        let mut open = Open::new(&place.file());
        fill(&mut open, 5..9_000);
        open.wait_for_blocks(2);
        drop(open);
        let connection = Connection::open(place.file()).unwrap();
        assert_eq!(connection.execute(damage, []), Ok(1), "{damage}");
        drop(connection);
        assert_eq!(found(&place.file()).1, 1, "{damage}");
        assert!(!inspect(&place.file()).unwrap().is_sound(), "{damage}");
        assert_eq!(opened(&place.file()).0, 8_999, "{damage}");
        let mut open = Open::new(&place.file());
        open.store(vec![RowChange::Delete { seq: 5_000 }]);
        open.wait_for_blocks(1);
        open.store(vec![RowChange::Delete { seq: 5_001 }]);
        drop(open);
        check(&place.file());
        assert_eq!(found(&place.file()).1, 0, "{damage}");
    }
}

/// Hashes of names with another key are of no use.
#[test]
fn a_lost_key_falls_back_to_the_rows() {
    let place = Place::new("key");
    let mut open = Open::new(&place.file());
    fill(&mut open, 5..9_000);
    open.wait_for_blocks(2);
    drop(open);
    let connection = Connection::open(place.file()).unwrap();
    connection.execute("DELETE FROM mark WHERE name = 'name_key_0'", []).unwrap();
    drop(connection);
    assert_eq!(opened(&place.file()).0, 8_999);
    let open = Open::new(&place.file());
    open.wait_for_blocks(2);
    drop(open);
    check(&place.file());
    assert_eq!(found(&place.file()).1, 0);
}

/// A database of version 2 has no blocks; they are made while the gateway runs.
#[test]
fn a_database_of_an_earlier_version_gets_its_blocks() {
    let place = Place::new("earlier");
    let connection = Connection::open(place.file()).unwrap();
    let tables = "
        PRAGMA application_id = 0x47576373; PRAGMA user_version = 2;
        CREATE TABLE row (seq INTEGER PRIMARY KEY, body TEXT NOT NULL, sum INTEGER) STRICT;
        CREATE TABLE mark (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;
        INSERT INTO mark VALUES ('next', 13000);
    ";
    connection.execute_batch(tables).unwrap();
    let one = "INSERT INTO row (seq, body, sum) VALUES (?1, ?2, NULL)";
    let mut rows = vec![(BASE, base())];
    rows.extend(CONTAINERS.map(|seq| (seq, container(seq))));
    rows.extend((5..12_900).map(|seq| (seq, instance(seq))));
    connection.execute_batch("BEGIN").unwrap();
    for (seq, body) in rows {
        connection
            .prepare_cached(one)
            .unwrap()
            .execute(params![i64::try_from(seq).unwrap(), &*body])
            .unwrap();
    }
    connection.execute_batch("COMMIT").unwrap();
    drop(connection);
    assert_eq!(opened(&place.file()).0, 12_899);
    let open = Open::new(&place.file());
    open.wait_for_blocks(3);
    drop(open);
    assert!(check(&place.file()) > 12_000);
    assert_eq!(opened(&place.file()).0, 12_899);
}

#[test]
fn a_backup_has_the_blocks_and_a_salvage_makes_them_anew() {
    let place = Place::new("copies");
    let mut open = Open::new(&place.file());
    fill(&mut open, 5..9_000);
    open.wait_for_blocks(2);
    let copy = place.0.join("copy.db");
    assert!(backup(&place.file(), &copy).unwrap().is_sound());
    assert!(check(&copy) > 8_000);
    drop(open);
    let saved = place.0.join("saved.db");
    assert_eq!(salvage(&place.file(), &saved).unwrap().rows, 9_000);
    assert_eq!(check(&saved), 0);
    let open = Open::new(&saved);
    open.wait_for_blocks(2);
    drop(open);
    assert!(check(&saved) > 8_000);
}

#[derive(Clone, Debug)]
enum Step {
    /// So many instances are created.
    Create(u64),
    /// Instances from this part of the numbers on are deleted, in steps.
    Delete(u64, u64, u64),
    /// One is written anew.
    Put(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1_u64..4_000).prop_map(Step::Create),
        4 => (0_u64..1_000, 1_u64..2_000, 1_u64..4).prop_map(|(at, count, by)| Step::Delete(at, count, by)),
        2 => (0_u64..1_000).prop_map(Step::Put),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// Blocks are made while rows come and go; whenever it ends, a start finds every row once.
    #[test]
    fn a_start_finds_every_row_once(steps in prop::collection::vec(step(), 1..12)) {
        let place = Place::new("random");
        let mut open = Open::new(&place.file());
        fill(&mut open, 5..RecordBlock::NUMBERS);
        for step in steps {
            let all = open.next_seq;
            match step {
                Step::Create(count) => fill(&mut open, all.max(6)..all.max(6) + count),
                Step::Delete(at, count, by) => {
                    let from = 5 + (all - 5) * at / 1_000;
                    let rows = (from..all).step_by(usize::try_from(by).unwrap());
                    let rows = rows.take(usize::try_from(count).unwrap());
                    open.store(rows.map(|seq| RowChange::Delete { seq }).collect());
                }
                Step::Put(at) => {
                    let seq = 5 + (all - 6) * at / 1_000;
                    open.store(vec![put(seq, instance(seq))]);
                }
                Step::Restart => {
                    drop(open);
                    check(&place.file());
                    open = Open::new(&place.file());
                }
            }
        }
        drop(open);
        check(&place.file());
    }
}
