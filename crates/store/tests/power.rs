//! Loss of power at random moments, and flipped bits.
//!
//! The child is this same program: it commits numbered batches and says each number that is on disk.
//! It is stopped in the middle, its files are copied and changed as a loss of power may leave them:
//! the last transaction of the write-ahead log (WAL), if it is not acknowledged, is cut or torn
//! anywhere; pages that were moved into the database since the last copy, of the same WAL, are new,
//! old or torn. What is opened then is the state after some batch, whole, and not before the last
//! that was acknowledged.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a test may fail loudly"
)]

use gatewright_onem2m::{Batch, RecordBlock, RowChange};
use gatewright_store::{Database, DatabaseOptions, StoreError, WriteReport, inspect};
use libtest_mimic::{Arguments, Trial};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Says to this program that it is the child, and where its database lies.
const CHILD: &str = "GATEWRIGHT_POWER_CHILD";
/// Times that the child is stopped.
const STOPS: usize = 8;
/// States that a loss of power may leave, tried for each of them.
const VARIANTS: usize = 6;
/// Rows that are kept: each batch adds one and deletes the one that is so much older.
const KEPT: u64 = 400;
/// Batches that the child has not acknowledged at once.
const AT_ONCE: u64 = 8;
/// Octets of a page (SQLite's default).
const PAGE: usize = 4_096;
/// Octets that a disk writes whole.
const SECTOR: usize = 512;
/// Octets of a WAL's header and of a frame's (SQLite, "WAL-mode file format").
const WAL_HEADER: usize = 32;
const FRAME_HEADER: usize = 24;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_mins(1);

fn main() -> ExitCode {
    if let Some(path) = std::env::var_os(CHILD) {
        child(Path::new(&path));
        return ExitCode::SUCCESS;
    }
    let trials = vec![
        Trial::test("acknowledged_batches_survive_a_loss_of_power", || {
            lose_power();
            Ok(())
        }),
        Trial::test("a_flipped_bit_is_found", || {
            flip_bits();
            Ok(())
        }),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Numbers that look random: xorshift64 (Marsaglia 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(end.max(1)).unwrap()).unwrap()
    }
}

/// The seed of a run, which is printed.
fn seed() -> u64 {
    let given = std::env::var("GATEWRIGHT_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| u64::from(std::process::id()) * 0x9e37_79b9 + 1);
    eprintln!("GATEWRIGHT_SEED={seed}");
    seed
}

fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// The number of the row that the batch of this number writes: blocks of records are made often.
const fn row(number: u64) -> u64 {
    number * 8
}

/// The row that the batch of this number writes: an instance, whose record a block has.
fn body(number: u64) -> Arc<str> {
    let length = usize::try_from(number * 7_919 % 1_500).unwrap();
    let seq = row(number);
    format!(
        "{{\"m2m:cin\":{{\"ri\":\"cin{seq:x}\",\"rn\":\"cin_{seq:x}\",\"pi\":\"cnt1\",\"ty\":4,\
         \"ct\":\"20261124T060000\",\"lt\":\"20261124T060000\",\"et\":\"20991124T060000\",\
         \"con\":\"{number}:{}\"}}}}",
        "x".repeat(length)
    )
    .into()
}

fn batch(number: u64) -> Batch {
    let mut records = vec![RowChange::Put { seq: row(number), body: body(number) }];
    let gone = number.checked_sub(KEPT).filter(|gone| *gone > 0);
    records.extend(gone.map(|gone| RowChange::Delete { seq: row(gone) }));
    Batch {
        number,
        epoch: 0,
        next_seq: row(number) + 1,
        records,
        entries: Vec::new(),
        clock: None,
        remembered: None,
    }
}

/// The last batch of a state, which must be whole; 0 without any.
fn last_batch(rows: &[(u64, Arc<str>)]) -> u64 {
    let Some(&(last, _)) = rows.last() else { return 0 };
    let last = last / row(1);
    let kept = (last + 1).saturating_sub(KEPT).max(1)..=last;
    let expected: Vec<_> = kept.map(|it| (row(it), body(it))).collect();
    assert!(rows == expected, "the state of batch {last} is not whole");
    last
}

fn child(path: &Path) {
    let (database, _) = Database::open(path, &DatabaseOptions::default()).unwrap();
    let (sender, reports) = channel();
    let writer = database.start(move |report| drop(sender.send(report))).unwrap();
    let mut out = std::io::stdout().lock();
    let (mut pushed, mut stored) = (0, 0);
    loop {
        while pushed - stored < AT_ONCE {
            pushed += 1;
            writer.push(batch(pushed)).unwrap();
        }
        match reports.recv_timeout(PATIENCE).unwrap() {
            WriteReport::Committed(number) => stored = number,
            other => panic!("{other:?}"),
        }
        writeln!(out, "{stored}").unwrap();
        out.flush().unwrap();
    }
}

/// A child and the last number that it has said.
struct Writing {
    child: Child,
    said: Arc<AtomicU64>,
}

impl Writing {
    fn begin(path: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut child = command.env(CHILD, path).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = Arc::new(AtomicU64::new(0));
        let ours = Arc::clone(&said);
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                ours.store(line.parse().unwrap(), Ordering::SeqCst);
            }
        });
        Self { child, said }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    /// Stops it; returns the last number that it has said.
    fn stop(&self) -> u64 {
        self.signal(Signal::SIGSTOP);
        let stat = format!("/proc/{}/task", self.child.id());
        let is_stopped = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap();
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
        };
        // Every thread, the one that moves the WAL too.
        while !std::fs::read_dir(&stat).unwrap().all(|task| is_stopped(task.unwrap())) {
            thread::sleep(Duration::from_millis(1));
        }
        // What it has said is in the pipe.
        thread::sleep(Duration::from_millis(20));
        self.said.load(Ordering::SeqCst)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Files of a database.
#[derive(Clone)]
struct Files {
    database: Vec<u8>,
    wal: Vec<u8>,
    /// Octets of the WAL that may have been moved: they were synchronised before.
    moved: usize,
}

impl Files {
    fn read(path: &Path) -> Self {
        let wal = std::fs::read(path.with_extension("db-wal")).unwrap_or_default();
        // `nBackfillAttempted` of the WAL's index, in frames (SQLite, walIndex).
        let index = std::fs::read(path.with_extension("db-shm")).unwrap_or_default();
        let frames = index.get(128..132).map_or(0, |it| u32::from_ne_bytes(it.try_into().unwrap()));
        let moved = WAL_HEADER + usize::try_from(frames).unwrap() * (FRAME_HEADER + PAGE);
        Self { database: std::fs::read(path).unwrap(), wal, moved }
    }

    fn write(&self, path: &Path) {
        let _ = std::fs::remove_file(path.with_extension("db-shm"));
        std::fs::write(path, &self.database).unwrap();
        std::fs::write(path.with_extension("db-wal"), &self.wal).unwrap();
    }

    /// The number of the WAL: it changes when it begins anew.
    fn salts(&self) -> Option<&[u8]> {
        self.wal.get(16..24)
    }

    /// Where the last transactions of the WAL begin and end: of the last whole one, and of the rest.
    fn last_transaction(&self) -> Option<(usize, usize)> {
        let salts = self.salts()?;
        let frames = self.wal.get(WAL_HEADER..)?.chunks_exact(FRAME_HEADER + PAGE);
        let of_this = frames.take_while(|frame| &frame[8..16] == salts);
        let (mut begin, mut end) = (WAL_HEADER, WAL_HEADER);
        for (at, frame) in of_this.enumerate() {
            if frame[4..8] != [0; 4] {
                begin = end;
                end = WAL_HEADER + (at + 1) * (FRAME_HEADER + PAGE);
            }
        }
        Some((begin, end))
    }

    /// Pages that were written since `before` are new, old, or torn between two sectors.
    fn mix(&mut self, before: &Self, random: &mut Random) {
        for (page, old) in self.database.chunks_mut(PAGE).zip(before.database.chunks(PAGE)) {
            let torn = random.below(PAGE / SECTOR) * SECTOR;
            match random.below(3) {
                0 => page.copy_from_slice(old),
                1 => page[torn..].copy_from_slice(&old[torn..]),
                _ => {}
            }
        }
    }

    /// The WAL is lost or torn somewhere behind `from`.
    fn cut(&mut self, from: usize, random: &mut Random) {
        let at = from + random.below(self.wal.len().saturating_sub(from));
        if random.below(2) == 0 {
            self.wal.truncate(at);
        } else {
            let sector = at / SECTOR * SECTOR;
            let end = (sector + SECTOR).min(self.wal.len());
            self.wal[sector.max(from)..end].fill(0xa5);
        }
    }
}

fn lose_power() {
    let (place, seed) = (scratch("power"), seed());
    let mut random = Random(seed);
    let writing = Writing::begin(&place.join("cse.db"));
    let copy = place.join("copy.db");
    let open = |files: &Files| {
        files.write(&copy);
        let (database, restored) = Database::open(&copy, &DatabaseOptions::default()).unwrap();
        drop(database);
        assert_eq!(restored.damaged, [0; 0]);
        // The blocks of records say what the rows say.
        assert_eq!(inspect(&copy).unwrap().structure, Vec::<String>::new());
        last_batch(&restored.rows)
    };
    let mut before: Option<Files> = None;
    let (mut cuts, mut mixtures, mut said) = (0, 0, 0);
    // Their blocks cover most rows that are kept.
    assert!(RecordBlock::NUMBERS / row(1) > KEPT);
    for stop in 0..STOPS {
        thread::sleep(Duration::from_millis(100 + u64::try_from(random.below(300)).unwrap()));
        said = writing.stop();
        let files = Files::read(&place.join("cse.db"));
        let whole = open(&files);
        assert!(whole >= said, "stop {stop}: {said} was acknowledged, {whole} is there");
        for variant in 0..VARIANTS {
            let mut files = files.clone();
            let is_open = whole > said;
            if let Some((begin, end)) = files.last_transaction() {
                // One that is acknowledged is on disk.
                let from = if is_open { begin.max(files.moved) } else { end };
                files.cut(from, &mut random);
                cuts += 1;
            }
            if let Some(before) = before.as_ref().filter(|it| it.salts() == files.salts()) {
                files.mix(before, &mut random);
                mixtures += 1;
            }
            let found = open(&files);
            assert!(found >= said, "stop {stop}.{variant}: {said} acknowledged, {found} there");
        }
        before = Some(files);
        writing.signal(Signal::SIGCONT);
    }
    eprintln!("{said} batches, {cuts} logs cut, {mixtures} databases mixed");
    assert!(said > KEPT && cuts > 0);
    drop(writing);
    std::fs::remove_dir_all(place).unwrap();
}

/// A bit of the database flips: nothing is read as what it is not, or verification says so.
fn flip_bits() {
    const FLIPS: usize = 300;
    let (place, mut random) = (scratch("flips"), Random(seed()));
    let path = place.join("cse.db");
    let (database, _) = Database::open(&path, &DatabaseOptions::default()).unwrap();
    let writer = database.start(|_| {}).unwrap();
    (1..=KEPT / 4).for_each(|number| writer.push(batch(number)).unwrap());
    drop(writer);
    let expected: BTreeMap<_, _> =
        (1..=KEPT / 4).map(|number| (row(number), body(number))).collect();
    let whole = Files::read(&path);
    let (mut named, mut harmless) = (0, 0);
    for _ in 0..FLIPS {
        let mut files = whole.clone();
        let at = random.below(files.database.len());
        files.database[at] ^= 1 << random.below(8);
        files.write(&path);
        let restored = match Database::read(&path) {
            Ok(restored) => restored,
            Err(StoreError::Foreign(_) | StoreError::Newer { .. } | StoreError::Database(_)) => {
                named += 1;
                continue;
            }
            Err(other) => panic!("{other}"),
        };
        let served = restored.rows.iter().filter(|row| !restored.damaged.contains(&row.0));
        let served: BTreeMap<_, _> = served.cloned().collect();
        let is_same = served == expected;
        let found = inspect(&path);
        let is_named = !restored.damaged.is_empty()
            || found.is_err()
            || found.is_ok_and(|found| !found.structure.is_empty() || !found.gaps.is_empty());
        assert!(is_same || is_named, "octet {at}: rows differ, and nothing is said of it");
        for (seq, text) in served {
            assert_eq!(Some(&text), expected.get(&seq), "octet {at}: what is served was written");
        }
        *(if is_named { &mut named } else { &mut harmless }) += 1;
    }
    eprintln!("{FLIPS} bits flipped: {named} found, {harmless} without effect");
    std::fs::remove_dir_all(place).unwrap();
}
