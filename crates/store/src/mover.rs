//! Moves the write-ahead log into the file, on a thread of its own: commits go on meanwhile.
//!
//! SQLite would do it within the commit that makes the log too long, and everything that waits for
//! a commit would wait for megabytes to be written and synchronised. Here only the rest is left to
//! the thread that commits: what it has written itself since the mover began its last pass.

use rusqlite::{Connection, OpenFlags};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Passes of one turn: while the first synchronises what has gathered, commits go on, and the second
/// has less to do.
const PASSES: usize = 2;

/// What the log came to when it was moved.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Log {
    /// Pages in it.
    pub(crate) pages: i64,
    /// Those of them that the file has.
    pub(crate) moved: i64,
}

impl Log {
    /// Moves as much as can be moved without anyone waiting.
    pub(crate) fn move_now(connection: &Connection) -> rusqlite::Result<Self> {
        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
            Ok(Self { pages: row.get(1)?, moved: row.get(2)? })
        })
    }
}

/// What one turn came to.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Done {
    /// The log behind it.
    pub(crate) log: Log,
    /// How long each pass took.
    pub(crate) passes: Vec<Duration>,
}

/// Where the mover is.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Turn {
    Rests,
    Asked,
    Moves,
    /// It has moved what there was; nobody has looked yet.
    Done(Done),
    Ends,
}

#[derive(Debug)]
struct Shared {
    turn: Mutex<Turn>,
    changed: Condvar,
}

impl Shared {
    /// A turn is whole, whatever has happened to who held it.
    fn lock(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits as long as `so`; the turn then.
    fn wait(&self, so: impl Fn(&Turn) -> bool) -> MutexGuard<'_, Turn> {
        let turn = self.lock();
        let waited = self.changed.wait_while(turn, |turn| so(turn));
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a turn, unless the end has come.
    fn set(&self, to: Turn) {
        let mut turn = self.lock();
        if *turn != Turn::Ends {
            *turn = to;
        }
        drop(turn);
        self.changed.notify_all();
    }
}

/// The thread that moves. Dropped, it finishes what it is at.
#[derive(Debug)]
pub(crate) struct Mover {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Mover {
    /// A mover with a connection of its own to the database at `path`, which is `file`.
    ///
    /// No other descriptor of that file may be closed as long as a connection is open, this one
    /// included: its locks would go with it (POSIX, `fcntl`).
    pub(crate) fn start(path: &Path, file: Arc<File>) -> io::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(io::Error::other)?;
        let shared = Arc::new(Shared { turn: Mutex::new(Turn::Rests), changed: Condvar::new() });
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("store-log".to_owned())
            .spawn(move || run(&connection, &file, &theirs))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Has it move what is in the log, if it rests; whether it does.
    pub(crate) fn ask(&self) -> bool {
        let rests = *self.shared.lock() == Turn::Rests;
        if rests {
            self.shared.set(Turn::Asked);
        }
        rests
    }

    /// What it has moved, told once.
    pub(crate) fn take(&self) -> Option<Done> {
        let mut turn = self.shared.lock();
        let done = match &mut *turn {
            Turn::Done(done) => core::mem::take(done),
            _ => return None,
        };
        *turn = Turn::Rests;
        Some(done)
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.shared.set(Turn::Ends);
        if let Some(thread) = self.thread.take() {
            // A panic on the thread has been printed; what it left is moved at the next start.
            let _ = thread.join();
        }
    }
}

fn run(connection: &Connection, file: &File, shared: &Shared) {
    loop {
        let mut turn = shared.wait(|turn| matches!(turn, Turn::Rests | Turn::Done(_)));
        if *turn == Turn::Ends {
            return;
        }
        *turn = Turn::Moves;
        drop(turn);
        let mut done = Done::default();
        for _pass in 0..PASSES {
            let began = Instant::now();
            // What could not be moved stays in the log: a full disk shows itself at the next commit.
            done.log = Log::move_now(connection).unwrap_or_default();
            // SQLite synchronises the file only when nothing is left in the log, which would be
            // within a commit. Whether it succeeds is asked then.
            let _ = file.sync_data();
            done.passes.push(began.elapsed());
        }
        shared.set(Turn::Done(done));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Generous: a machine that takes longer to move a few pages does not work.
    const WITHIN: Duration = Duration::from_secs(30);

    /// What is committed while the mover moves is not lost, and the log begins anew behind it.
    #[test]
    fn the_log_begins_anew_when_mover_and_writer_have_moved_it() {
        let name = format!("gatewright-mover-{}.db", std::process::id());
        let path = std::env::temp_dir().join(name);
        let writer = Connection::open(&path).unwrap();
        writer
            .execute_batch(
                "PRAGMA journal_mode = wal; PRAGMA wal_autocheckpoint = 0;
                 CREATE TABLE row (seq INTEGER PRIMARY KEY, body TEXT NOT NULL);",
            )
            .unwrap();
        let put = |seq: i64| {
            let put = "INSERT INTO row VALUES (?1, ?2)";
            writer.execute(put, (seq, "x".repeat(4_000))).unwrap();
        };
        (0..100).for_each(put);
        let file = Arc::new(File::open(&path).unwrap());
        let mover = Mover::start(&path, Arc::clone(&file)).unwrap();
        assert_eq!(mover.take(), None);
        assert!(mover.ask());
        let until = Instant::now() + WITHIN;
        let mut seq = 100;
        let log = loop {
            put(seq);
            seq += 1;
            if let Some(done) = mover.take() {
                break done.log;
            }
            assert!(Instant::now() < until, "nothing was moved");
        };
        assert!(log.moved >= 100, "{log:?}");
        put(seq);
        let rest = Log::move_now(&writer).unwrap();
        assert_eq!(rest.moved, rest.pages);
        put(seq + 1);
        let anew = Log::move_now(&writer).unwrap();
        assert!(anew.pages < 10, "{anew:?}");
        let rows: i64 = writer.query_row("SELECT count(*) FROM row", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, seq + 2);
        drop(mover);
        drop(writer);
        drop(file);
        std::fs::remove_file(path).unwrap();
    }
}
