//! kill -9 at ten points, and a disk that is really full.
//!
//! The child is this same program: it runs a CSE over a store, creates named contentInstances
//! and says each name only when its answer came out. It is killed in the middle, started again,
//! and asked to create everything that was not acknowledged; in the end the set of names
//! acknowledged equals the set stored, each once.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test may fail loudly"
)]

use gatewright_onem2m::audit::Audit;
use gatewright_onem2m::{
    Cse, CseConfig, CseType, Input, Operation, Output, Request, ResourceType, Token,
};
use gatewright_store::{Database, DatabaseOptions, StoreError, WriteReport};
use libtest_mimic::{Arguments, Trial};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, SystemTime};

/// Says to this program that it is the child, and where its database lies.
const CHILD: &str = "GATEWRIGHT_STORE_CHILD";
/// Names that each round creates.
const NAMES: usize = 4_000;
/// Times that the child is killed.
const KILLS: usize = 10;
/// Names that a child gets at the least: more than are acknowledged before it is killed.
const NAMES_MIN: usize = 500;
/// Set for a child that is killed.
const STAY: &str = "GATEWRIGHT_STORE_STAY";
/// Set for a child that fills its disk with instances of [`LARGE`] octets.
const FILL: &str = "GATEWRIGHT_STORE_FILL";
/// Octets of a large instance, whose commits are large: many are in one.
const LARGE: usize = 100_000;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_mins(1);
/// Requests that the child keeps unanswered at once.
const AT_ONCE: usize = 32;

fn main() -> ExitCode {
    if let Some(path) = std::env::var_os(CHILD) {
        if std::env::var_os(FILL).is_some() {
            fill(Path::new(&path));
        } else {
            child(Path::new(&path));
        }
        return ExitCode::SUCCESS;
    }
    let arguments = Arguments::from_args();
    let small_disk = SmallDisk::mount("small-disk", 2);
    let reserved_disk = SmallDisk::mount("reserved-disk", 10);
    let large_disk = SmallDisk::mount("large-disk", 24);
    let created_disk = SmallDisk::mount("created-disk", 12);
    let no_disk =
        [&small_disk, &reserved_disk, &large_disk, &created_disk].iter().any(|disk| disk.is_none());
    let trials = vec![
        Trial::test("acknowledged_equals_stored_over_kill_9", || {
            kill_9();
            Ok(())
        }),
        Trial::test("a_full_disk_refuses_and_keeps_what_it_has", move || {
            full_disk(small_disk.as_ref().expect("mounted"));
            Ok(())
        })
        .with_ignored_flag(no_disk),
        Trial::test("a_full_disk_stores_deletions_and_the_audit_log", move || {
            reserved(reserved_disk.as_ref().expect("mounted"));
            Ok(())
        })
        .with_ignored_flag(no_disk),
        Trial::test("no_database_is_created_on_a_full_disk", move || {
            created(created_disk.as_ref().expect("mounted"));
            Ok(())
        })
        .with_ignored_flag(no_disk),
        Trial::test("a_disk_filled_by_large_instances_takes_deletions_after_kill_9", move || {
            filled_and_killed(large_disk.as_ref().expect("mounted"));
            Ok(())
        })
        .with_ignored_flag(no_disk),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// A CSE, its store, and the names whose creation is not yet answered.
struct Running {
    cse: Cse,
    writer: gatewright_store::BatchWriter,
    reports: std::sync::mpsc::Receiver<WriteReport>,
    asked: BTreeMap<Token, String>,
    next: u64,
    /// What the store has last said of its room.
    is_short: bool,
}

impl Running {
    fn open(path: &Path, options: &DatabaseOptions) -> Self {
        Self::with_audit(path, options, Audit::Off)
    }

    fn with_audit(path: &Path, options: &DatabaseOptions, audit: Audit) -> Self {
        let (database, restored) = Database::open(path, options).unwrap();
        let mut config = CseConfig::new(CseType::Middle, "/id-mn", "cse-mn");
        config.admin = Some("CAdmin".to_owned());
        config.audit = audit;
        let (cse, unreadable) = Cse::open(config, now(), restored.rows, restored.next_seq).unwrap();
        assert_eq!(unreadable, []);
        let (sender, reports) = channel();
        let writer = database.start(move |report| drop(sender.send(report))).unwrap();
        let asked = BTreeMap::new();
        let mut running = Self { cse, writer, reports, asked, next: 0, is_short: false };
        running.ask("container", "cse-mn", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
        while !running.asked.is_empty() {
            running.wait();
        }
        running
    }

    fn ask(&mut self, name: &str, to: &str, kind: ResourceType, content: &str) {
        self.next += 1;
        let token = Token(self.next);
        self.asked.insert(token, name.to_owned());
        let request = Request::new(Operation::Create, to, "CAdmin", format!("{}", self.next))
            .creating(kind, content);
        self.cse.handle(now(), Input::Request { token, request });
    }

    /// The status of the answer to a request.
    fn status(&mut self, operation: Operation, to: &str) -> u16 {
        self.next += 1;
        let token = Token(self.next);
        self.asked.insert(token, to.to_owned());
        let request = Request::new(operation, to, "CAdmin", format!("{}", self.next));
        self.cse.handle(now(), Input::Request { token, request });
        loop {
            if let Some((_, status)) = self.wait().pop() {
                return status;
            }
        }
    }

    /// The status of the answer to the creation of an instance.
    fn created(&mut self, name: &str) -> u16 {
        self.create(name);
        loop {
            if let Some((_, status)) = self.wait().pop() {
                return status;
            }
        }
    }

    /// Waits until the store says that it has room, or that it has none.
    fn wait_for_room(&mut self, is_short: bool) {
        while self.is_short != is_short {
            assert_eq!(self.wait(), []);
        }
    }

    fn create(&mut self, name: &str) {
        let content = format!(r#"{{"m2m:cin":{{"rn":"{name}","con":"{name}"}}}}"#);
        self.ask(name, "cse-mn/c", ResourceType::ContentInstance, &content);
    }

    /// Hands on what the machine wants stored; the names answered, with their status.
    fn drain(&mut self) -> Vec<(String, u16)> {
        let mut answered = Vec::new();
        while let Some(output) = self.cse.poll_output() {
            match output {
                Output::Store(batch) => self.writer.push(batch).unwrap(),
                Output::Respond { token, response } => {
                    let name = self.asked.remove(&token).unwrap();
                    answered.push((name, response.status.number()));
                }
                other => panic!("{other:?}"),
            }
        }
        answered
    }

    /// Waits for one report of the writer.
    fn wait(&mut self) -> Vec<(String, u16)> {
        let mut answered = self.drain();
        if !answered.is_empty() {
            return answered;
        }
        match self.reports.recv_timeout(PATIENCE).unwrap() {
            WriteReport::Committed(number) => self.cse.handle(now(), Input::Committed(number)),
            WriteReport::Failed { number, .. } => self.cse.handle(now(), Input::Failed(number)),
            WriteReport::Short(is_short) => {
                self.is_short = is_short;
                self.cse.handle(now(), Input::Short(is_short));
            }
        }
        answered.append(&mut self.drain());
        answered
    }
}

/// Creates the names that come in on standard input, and says those that are stored.
fn child(path: &Path) {
    let mut running = Running::open(path, &DatabaseOptions::default());
    let names: Vec<String> = std::io::stdin().lock().lines().map(Result::unwrap).collect();
    let mut names = names.iter();
    let mut out = std::io::stdout().lock();
    loop {
        while running.asked.len() < AT_ONCE
            && let Some(name) = names.next()
        {
            running.create(name);
        }
        if running.asked.is_empty() {
            if std::env::var_os(STAY).is_some() {
                // It is to be killed, however far it came until then.
                std::thread::sleep(PATIENCE);
            }
            return;
        }
        for (name, status) in running.wait() {
            assert!(matches!(status, 2001 | 4105), "{name}: {status}");
            writeln!(out, "{name}").unwrap();
        }
        out.flush().unwrap();
    }
}

fn spawn(path: &Path, names: &BTreeSet<String>, stays: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(CHILD, path).stdin(Stdio::piped()).stdout(Stdio::piped());
    if stays {
        command.env(STAY, "1");
    }
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let text: String = names.iter().flat_map(|name| [name, "\n"]).collect();
    std::thread::spawn(move || input.write_all(text.as_bytes()));
    child
}

fn kill_9() {
    let place = scratch("kill-9");
    let path = place.join("cse.db");
    let mut names = (0..).map(|number| format!("n{number:05}"));
    let mut wanted: BTreeSet<String> = names.by_ref().take(NAMES).collect();
    let mut acknowledged = BTreeSet::new();
    for round in 0..=KILLS {
        // While we have no time to read it may come far ahead of us, even to the end.
        wanted.extend(names.by_ref().take(NAMES_MIN.saturating_sub(wanted.len())));
        let mut child = spawn(&path, &wanted, round < KILLS);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // A different point each time: in the first commits, between, and in the middle.
        let kill_after = if round < KILLS { 1 + round * 37 } else { usize::MAX };
        for (count, name) in lines.map_while(Result::ok).enumerate() {
            if count == kill_after {
                child.kill().unwrap();
            }
            assert!(wanted.remove(&name), "{name} was acknowledged before");
            acknowledged.insert(name);
        }
        let status = child.wait().unwrap();
        assert_eq!(status.success(), round == KILLS, "round {round}: {status}");
    }
    assert!(wanted.is_empty(), "{} were never acknowledged", wanted.len());
    let mut stored = Vec::new();
    let (database, restored) = Database::open(&path, &DatabaseOptions::default()).unwrap();
    for (_, body) in &restored.rows {
        if body.starts_with(r#"{"m2m:cin""#) {
            let name = body.split(r#""rn":""#).nth(1).unwrap().split('"').next().unwrap();
            stored.push(name.to_owned());
        }
    }
    drop(database);
    let set: BTreeSet<String> = stored.iter().cloned().collect();
    assert_eq!(stored.len(), set.len(), "each once");
    assert_eq!(set, acknowledged);
    std::fs::remove_dir_all(place).unwrap();
}

/// A file system of some megabytes; mounting one needs root.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(name: &str, mib: u32) -> Option<Self> {
        let path = scratch(name);
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "gatewright-test"])
            .arg(&path)
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success()).then_some(Self(path))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn full_disk(disk: &SmallDisk) {
    let path = disk.0.join("cse.db");
    let mut running = Running::open(&path, &DatabaseOptions::default());
    let mut acknowledged = BTreeSet::new();
    let mut refused = 0;
    for number in 0..10_000 {
        running.create(&format!("n{number}"));
        while !running.asked.is_empty() {
            for (name, status) in running.wait() {
                match status {
                    2001 => drop(acknowledged.insert(name)),
                    5000 => refused += 1,
                    other => panic!("{name}: {other}"),
                }
            }
        }
        if refused == 3 {
            break;
        }
    }
    assert_eq!(refused, 3, "the disk filled");
    assert!(acknowledged.len() > 100);
    assert_eq!(running.cse.resources(), acknowledged.len() + 2);
    drop(running);
    // What was acknowledged is there, and reading it back needs no room.
    let reopened = Running::open(&path, &DatabaseOptions::default());
    assert_eq!(reopened.cse.resources(), acknowledged.len() + 2);
}

/// A database whose reserve has no room is not created: it would take deletions only. Without a
/// reserve a full disk is named as such. When there is room, either is created.
fn created(disk: &SmallDisk) {
    let filler = disk.0.join("filler");
    let files = || {
        let names = std::fs::read_dir(&disk.0).unwrap().map(|file| file.unwrap().file_name());
        names.filter(|name| name != "filler").collect::<Vec<_>>()
    };
    let open = |name: &str, reserve_octets| {
        let mut options = DatabaseOptions::default();
        options.reserve_octets = reserve_octets;
        Database::open(&disk.0.join(name), &options).map(drop)
    };
    std::fs::write(&filler, vec![7; 10 * 1024 * 1024]).unwrap();
    let refused = open("reserved.db", 2 * 1024 * 1024).unwrap_err();
    assert!(matches!(refused, StoreError::NoRoom { .. }), "{refused}");
    let said = refused.to_string();
    assert!(said.contains("the disk is full: 2048 KiB are free, and 3072 KiB"), "{said}");
    assert_eq!(files(), [""; 0], "nothing of it is there");
    let mut file = std::fs::File::options().append(true).open(&filler).unwrap();
    for left in [0_usize, 16, 64] {
        // As much as there is room for.
        while file.write(&[7; 4096]).is_ok() {}
        file.set_len(file.metadata().unwrap().len() - u64::try_from(left * 1024).unwrap()).unwrap();
        let refused = open(&format!("bare{left}.db"), 0).unwrap_err();
        assert!(matches!(refused, StoreError::NoRoom { .. }), "{left}: {refused}");
    }
    // An open file has its room still.
    drop(file);
    std::fs::remove_file(&filler).unwrap();
    for (name, octets) in
        [("reserved.db", 2 * 1024 * 1024), ("bare0.db", 0), ("bare16.db", 0), ("bare64.db", 0)]
    {
        assert!(open(name, octets).is_ok(), "{name}");
    }
}

/// Nothing is created on a full disk, but deletions and audited retrievals go on, for few failed
/// commits. When there is room again, everything is as before.
fn reserved(disk: &SmallDisk) {
    let (path, filler) = (disk.0.join("cse.db"), disk.0.join("filler"));
    let reserve = disk.0.join("cse.db.reserve");
    let mut options = DatabaseOptions::default();
    options.reserve_octets = 2 * 1024 * 1024;
    std::fs::write(&filler, vec![7; 5 * 1024 * 1024]).unwrap();
    let mut running = Running::with_audit(&path, &options, Audit::Strict);
    assert_eq!(running.writer.disk_space().reserve, options.reserve_octets);
    assert_eq!(reserve.metadata().unwrap().len(), options.reserve_octets);
    let mut stored = 0;
    while running.created(&format!("n{stored}")) == 2001 {
        stored += 1;
        assert!(stored < 100_000, "the disk fills");
    }
    running.wait_for_room(true);
    let disk_space = running.writer.disk_space();
    assert!(
        disk_space.is_short && disk_space.is_low && disk_space.reserve == 0 && !reserve.exists(),
        "{disk_space:?}"
    );
    for number in 0..200 {
        assert_eq!(running.status(Operation::Delete, &format!("cse-mn/c/n{number}")), 2002);
        assert_eq!(running.status(Operation::Retrieve, "cse-mn/c/la"), 2000);
        assert_eq!(running.created(&format!("m{number}")), 5000);
    }
    let failures = running.writer.counters().failures;
    assert!(failures < 5, "{failures} commits failed");
    assert!(running.cse.counters().disk_full >= 199);
    // Somebody makes room.
    std::fs::remove_file(&filler).unwrap();
    running.wait_for_room(false);
    assert_eq!(reserve.metadata().unwrap().len(), options.reserve_octets);
    assert_eq!(running.created("again"), 2001);
    // The database fills the disk itself, and its deletions are the only room.
    while running.created(&format!("n{stored}")) == 2001 {
        stored += 1;
        assert!(stored < 200_000, "the disk fills");
    }
    running.wait_for_room(true);
    assert_eq!(running.status(Operation::Delete, "cse-mn/c"), 2002);
    running.wait_for_room(false);
    running.ask("container", "cse-mn", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
    while !running.asked.is_empty() {
        running.wait();
    }
    assert_eq!(running.created("last"), 2001);
    drop(running);
    let reopened = Running::open(&path, &options);
    assert_eq!(reopened.cse.resources(), 3, "base, container, instance");
    drop(reopened);
    assert_eq!(gatewright_store::verify(&path).unwrap().broken_at, None);
}

/// Creates large instances, many at once, until the disk is full, deletes one, and says what it
/// did; it is killed then.
fn fill(path: &Path) {
    let mut running = Running::with_audit(path, &DatabaseOptions::default(), Audit::Strict);
    let mut out = std::io::stdout().lock();
    let con = "x".repeat(LARGE);
    let (mut next, mut refused) = (0, 0);
    while refused < 3 * AT_ONCE {
        while running.asked.len() < AT_ONCE {
            let name = format!("n{next}");
            let content = format!(r#"{{"m2m:cin":{{"rn":"{name}","con":"{con}"}}}}"#);
            running.ask(&name, "cse-mn/c", ResourceType::ContentInstance, &content);
            next += 1;
        }
        for (name, status) in running.wait() {
            match status {
                2001 => writeln!(out, "{name}").unwrap(),
                _ => refused += 1,
            }
        }
    }
    while !running.asked.is_empty() {
        running.wait();
    }
    writeln!(out, "deleted {}", running.status(Operation::Delete, "cse-mn/c/n0")).unwrap();
    writeln!(out, "room {:?} {:?}", running.writer.disk_space(), running.writer.counters())
        .unwrap();
    out.flush().unwrap();
    std::thread::sleep(PATIENCE);
}

/// Large commits do not use up the reserve: deletions go on, also after kill -9, and lost is nothing.
/// When as much is deleted as the reserve is large, creations go on.
fn filled_and_killed(disk: &SmallDisk) {
    let path = disk.0.join("cse.db");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(CHILD, &path)
        .env(FILL, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut stored = Vec::new();
    let (mut deleted, mut told) = (String::new(), String::new());
    for line in lines.map_while(Result::ok) {
        if let Some(disk_space) = line.strip_prefix("room ") {
            disk_space.clone_into(&mut told);
            child.kill().unwrap();
        } else if line.starts_with("deleted ") {
            deleted = line;
        } else {
            stored.push(line);
        }
    }
    child.wait().unwrap();
    assert_eq!(deleted, "deleted 2002", "{} stored; {told}", stored.len());
    assert!(stored.len() > 100, "{} stored; {told}", stored.len());
    let options = DatabaseOptions::default();
    let mut running = Running::with_audit(&path, &options, Audit::Strict);
    assert_eq!(running.cse.resources(), stored.len() - 1 + 2, "base and container; {told}");
    for name in &stored[1..60] {
        let status = running.status(Operation::Delete, &format!("cse-mn/c/{name}"));
        assert_eq!(status, 2002, "{name}: {:?}", running.writer.disk_space());
    }
    running.wait_for_room(false);
    assert_eq!(running.created("again"), 2001);
    drop(running);
    assert!(gatewright_store::inspect(&path).unwrap().is_sound());
}
