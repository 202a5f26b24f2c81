//! Lines for standard error from a process that must not wait for who reads them.
//!
//! A thread writes them from a bounded queue. What finds the queue full is lost and counted, and
//! the next line that is written says how many were.

use std::{
    io::Write,
    sync::{
        OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{Builder, sleep},
    time::{Duration, Instant},
};

/// Lines that wait to be written.
const LINES_MAX: usize = 1_024;

/// How long the end of the process waits for lines that are not written.
const SETTLES_WITHIN: Duration = Duration::from_secs(2);

/// Pause between two looks whether they are.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The queue, once it is wanted.
static QUEUE: OnceLock<SyncSender<String>> = OnceLock::new();
/// Lines queued and not written.
static UNWRITTEN: AtomicUsize = AtomicUsize::new(0);
/// Lines lost since one was written.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Has lines written by a thread of their own from now on.
///
/// # Errors
///
/// If the system gives no thread.
pub(crate) fn queue() -> std::io::Result<()> {
    let (sender, lines) = sync_channel(LINES_MAX);
    if QUEUE.set(sender).is_ok() {
        Builder::new().name("lines".to_owned()).spawn(move || write_all(&lines))?;
    }
    Ok(())
}

/// Writes a line on standard error, or queues it. Where that is closed, there is nobody to tell.
pub(crate) fn say(text: &str) {
    let Some(queue) = QUEUE.get() else { return write(text) };
    UNWRITTEN.fetch_add(1, Ordering::SeqCst);
    if queue.try_send(text.to_owned()).is_err() {
        UNWRITTEN.fetch_sub(1, Ordering::SeqCst);
        LOST.fetch_add(1, Ordering::SeqCst);
    }
}

/// Waits until queued lines are written, but not for long.
pub(crate) fn settle() {
    let end = Instant::now() + SETTLES_WITHIN;
    while UNWRITTEN.load(Ordering::SeqCst) > 0 && Instant::now() < end {
        sleep(LOOK_EVERY);
    }
}

fn write_all(lines: &Receiver<String>) {
    for line in lines {
        let lost = LOST.swap(0, Ordering::SeqCst);
        if lost > 0 {
            write(&format!("{lost} lines are lost, as nobody read standard error"));
        }
        write(&line);
        UNWRITTEN.fetch_sub(1, Ordering::SeqCst);
    }
}

fn write(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
