//! Lines on standard error, written without waiting for a slow reader.
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

/// Time that the end of the process waits for unwritten lines.
const SETTLES_WITHIN: Duration = Duration::from_secs(2);

/// Interval between two checks.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The queue, once [`queue`] was called.
static QUEUE: OnceLock<SyncSender<String>> = OnceLock::new();
/// Lines queued and not written.
static UNWRITTEN: AtomicUsize = AtomicUsize::new(0);
/// Lines lost since the last written line.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Starts a thread that writes all further lines.
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

/// Waits until queued lines are written, up to a limit.
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
