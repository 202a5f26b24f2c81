//! Moves the write-ahead log (WAL) into the database file, on its own thread beside the commits.
//!
//! SQLite would do it within the commit that makes the WAL too long, so that every request waiting
//! for a commit would wait for megabytes to be written and synchronised. Here the committing thread
//! moves only the rest: what it has written since the mover began its last pass.

use rusqlite::{Connection, OpenFlags};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Passes of one turn: while the first synchronises the accumulated pages, commits go on, and the
/// second has less to do.
const PASSES: usize = 2;

/// State of the WAL after a move.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Log {
    /// Pages in the WAL.
    pub(crate) pages: i64,
    /// Pages of it that are moved.
    pub(crate) moved: i64,
}

impl Log {
    /// Moves as much as is possible without blocking a commit.
    pub(crate) fn move_now(connection: &Connection) -> rusqlite::Result<Self> {
        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
            Ok(Self { pages: row.get(1)?, moved: row.get(2)? })
        })
    }
}

/// Result of one turn.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Done {
    /// The WAL afterwards.
    pub(crate) log: Log,
    /// Duration of each pass.
    pub(crate) passes: Vec<Duration>,
}

/// State of the mover.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Turn {
    Rests,
    Asked,
    Moves,
    /// It has finished a turn, and its result was not read yet.
    Done(Done),
    Ends,
}

#[derive(Debug)]
struct MoverState {
    turn: Mutex<Turn>,
    changed: Condvar,
}

impl MoverState {
    /// A poisoned lock is safe here: a turn is replaced as a whole.
    fn lock(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while `so` holds; returns the turn.
    fn wait(&self, so: impl Fn(&Turn) -> bool) -> MutexGuard<'_, Turn> {
        let turn = self.lock();
        let waited = self.changed.wait_while(turn, |turn| so(turn));
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the turn, unless the mover is ending.
    fn set(&self, to: Turn) {
        let mut turn = self.lock();
        if *turn != Turn::Ends {
            *turn = to;
        }
        drop(turn);
        self.changed.notify_all();
    }
}

/// The moving thread. Dropping it waits for its present turn.
#[derive(Debug)]
pub(crate) struct Mover {
    shared: Arc<MoverState>,
    thread: Option<JoinHandle<()>>,
}

impl Mover {
    /// Starts a mover with its own connection to the database at `path`, which is `file`.
    ///
    /// No other descriptor of that file may be closed while a connection is open, this one
    /// included: its locks would be released (POSIX, `fcntl`).
    pub(crate) fn start(path: &Path, file: Arc<File>) -> io::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(io::Error::other)?;
        let shared =
            Arc::new(MoverState { turn: Mutex::new(Turn::Rests), changed: Condvar::new() });
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("store-log".to_owned())
            .spawn(move || run(&connection, &file, &theirs))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Starts a turn if the mover is idle; returns whether it did.
    pub(crate) fn ask(&self) -> bool {
        let rests = *self.shared.lock() == Turn::Rests;
        if rests {
            self.shared.set(Turn::Asked);
        }
        rests
    }

    /// The result of the last turn, once.
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

fn run(connection: &Connection, file: &File, shared: &MoverState) {
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
