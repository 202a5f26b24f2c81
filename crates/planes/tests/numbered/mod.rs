//! Numbered datagrams of one flow, sent by one kernel and received by another.

use gatewright_testbed::wait_until;
use libtest_mimic::Failed;
use nix::sys::socket::{setsockopt, sockopt};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Datagrams a second, where the machine has the time.
pub(crate) const RATE: u32 = 100_000;
/// Datagrams that are sent at a time.
const BURST: u32 = 20;
/// A sender that did not get to run makes good so much of it, and no more: what would not fit into
/// the kernels' queues at once.
const BEHIND_MAX: Duration = Duration::from_millis(2);
/// Octets of a receive buffer: all that a machine that is busy with much else may leave waiting.
const RECEIVE_BUFFER: usize = 256 << 20;
/// How often a receiver looks whether it may end.
const LOOK: Duration = Duration::from_millis(100);

/// What was sent and received up to now.
#[derive(Default)]
pub(crate) struct Progress {
    sent: AtomicU32,
    received: AtomicU32,
    is_sent: AtomicBool,
    is_over: AtomicBool,
}

/// Ends both threads, whatever became of the one between.
struct Ends<'a>(&'a Progress);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.is_sent.store(true, Ordering::Release);
        self.0.is_over.store(true, Ordering::Release);
    }
}

impl Progress {
    /// Waits until so many more have been sent.
    pub(crate) fn wait_for_more(&self, more: u32, within: Duration) -> bool {
        let end = self.sent.load(Ordering::Acquire) + more;
        wait_until(within, || self.sent.load(Ordering::Acquire) >= end)
    }
}

/// What became of a flow.
pub(crate) struct Passed {
    /// Numbers from 0 on that were sent.
    pub(crate) sent: u32,
    /// How many were sent a second.
    pub(crate) rate: f64,
    /// The numbers that came, in their order.
    pub(crate) numbers: Vec<u32>,
}

/// How many may be on their way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Flight {
    /// As many as the rate brings: queues on the way may overflow.
    Any,
    /// So many that each queue on the way holds them: nobody has a reason to drop one.
    AtMost(u32),
}

/// Sends numbers by a connected socket while `meanwhile` runs, and receives them until `is_all` says
/// of how many were sent and received that nothing more is to come, or `within` has passed.
pub(crate) fn pass(
    sender: &UdpSocket,
    receiver: &UdpSocket,
    (flight, within): (Flight, Duration),
    meanwhile: impl FnOnce(&Progress) -> Result<(), Failed>,
    is_all: impl Fn(u32, u32) -> bool,
) -> Result<Passed, Failed> {
    setsockopt(receiver, sockopt::RcvBufForce, &RECEIVE_BUFFER)?;
    receiver.set_read_timeout(Some(LOOK))?;
    let progress = Progress::default();
    thread::scope(|scope| {
        let ends = Ends(&progress);
        let reader = scope.spawn(|| receive(receiver, &progress));
        let writer = scope.spawn(|| send(sender, &progress, (flight, within)));
        let done = meanwhile(&progress);
        progress.is_sent.store(true, Ordering::Release);
        let rate = writer.join().map_err(|_| "the sender failed")??;
        let sent = progress.sent.load(Ordering::Acquire);
        wait_until(within, || is_all(sent, progress.received.load(Ordering::Acquire)));
        drop(ends);
        let numbers = reader.join().map_err(|_| "the receiver failed")??;
        done.map(|()| Passed { sent, rate, numbers })
    })
}

/// Sends until it is told to end; how many a second.
fn send(
    sender: &UdpSocket,
    progress: &Progress,
    (flight, within): (Flight, Duration),
) -> std::io::Result<f64> {
    let start = Instant::now();
    let (mut number, mut due) = (0, start);
    while !progress.is_sent.load(Ordering::Acquire) {
        let now = Instant::now();
        thread::sleep(due.saturating_duration_since(now));
        if let Flight::AtMost(most) = flight {
            // One that is lost stays on its way for ever.
            let flown = || number + BURST - progress.received.load(Ordering::Acquire);
            if !wait_until(within, || flown() <= most) {
                break;
            }
        }
        due = due.max(now.checked_sub(BEHIND_MAX).unwrap_or(now))
            + BURST * Duration::from_secs(1) / RATE;
        for _ in 0..BURST {
            sender.send(&u32::to_be_bytes(number))?;
            number += 1;
        }
        progress.sent.store(number, Ordering::Release);
    }
    Ok(f64::from(number) / start.elapsed().as_secs_f64())
}

/// Receives until it is told to end, and nothing comes any more.
fn receive(receiver: &UdpSocket, progress: &Progress) -> std::io::Result<Vec<u32>> {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    let (mut numbers, mut octets) = (Vec::new(), [0; 4]);
    loop {
        let is_over = progress.is_over.load(Ordering::Acquire);
        match receiver.recv(&mut octets) {
            Ok(_) => {
                numbers.push(u32::from_be_bytes(octets));
                progress.received.fetch_add(1, Ordering::Release);
            }
            // The process was stopped and goes on: nothing is known of what waits.
            Err(error) if error.kind() == Interrupted => {}
            Err(error) if !matches!(error.kind(), TimedOut | WouldBlock) => return Err(error),
            Err(_) if is_over => return Ok(numbers),
            Err(_) => {}
        }
    }
}
