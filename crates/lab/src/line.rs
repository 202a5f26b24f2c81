//! The delay line: a link of a given capacity, latency, jitter and loss between two cables.

use crate::clock;
use crate::processor::pin;
use gatewright_config::LinkShape;
use gatewright_link::{Backend, Link, LinkConfig, Opener};
use gatewright_packet::{Batch, CHUNK_SIZE, LinkIndex, Packet, Pool};
use gatewright_sim::Random;
use gatewright_testbed::{Namespace, TestInterface, TestbedError, Veth};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

/// Frames on the way in one direction; more are lost, as in a full queue.
const FRAMES_MAX: usize = 1000;
/// Chunks of the slab: both receive rings and both directions.
const CHUNKS: usize = 8192;
/// Octets that a frame takes on the wire beside those of the frame (IEEE 802.3: preamble, FCS, gap).
pub(crate) const WIRE_OCTETS: u32 = 24;

/// A delay line between two interfaces of a namespace of its own; it ends when dropped.
#[derive(Debug)]
pub struct DelayLine {
    stop: Arc<AtomicBool>,
    late_ns_max: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

#[expect(clippy::needless_pass_by_value, reason = "stands where `map_err` wants it")]
fn text(error: TestbedError) -> String {
    error.to_string()
}

impl DelayLine {
    /// Lays a cable with a delay line between two hosts; returns its ends, which are named as given,
    /// down and without addresses.
    ///
    /// # Errors
    ///
    /// What the system refuses, in its words.
    pub fn lay(
        (left, left_name): (&Namespace, &str),
        (right, right_name): (&Namespace, &str),
        shape: LinkShape,
        seed: u64,
    ) -> Result<(Self, [TestInterface; 2]), String> {
        let between = Namespace::new().map_err(text)?;
        let near = Veth::pair(left, left_name, &between, "near").map_err(text)?;
        let far = Veth::pair(&between, "far", right, right_name).map_err(text)?;
        for end in [&near.b, &far.a] {
            end.disable_ipv6().map_err(text)?;
        }
        near.up().and_then(|()| far.up()).map_err(text)?;
        let (processor, _) = crate::processor::seats();
        let line = Self::start(&between, ["near", "far"], shape, seed, processor)?;
        Ok((line, [near.a, far.b]))
    }

    /// Starts it between the interfaces `near` and `far` of `namespace`.
    fn start(
        namespace: &Namespace,
        [near, far]: [&str; 2],
        shape: LinkShape,
        seed: u64,
        processor: usize,
    ) -> Result<Self, String> {
        let stop = Arc::new(AtomicBool::new(false));
        let late_ns_max = Arc::new(AtomicU64::new(0));
        let (told, late) = (Arc::clone(&stop), Arc::clone(&late_ns_max));
        let (tell, ready) = channel();
        let (namespace, names) = (namespace.clone(), [near.to_owned(), far.to_owned()]);
        let body = move || {
            let inside = || {
                pin(processor);
                let links = open(&names);
                let opened = links.as_ref().map(drop).map_err(Clone::clone);
                // Who waited may have given up.
                let _ = tell.send(opened);
                if let Ok(links) = links {
                    carry(links, shape, seed, &told, &late);
                }
            };
            // A namespace that cannot be entered is told by the channel's end.
            let _ = namespace.run(inside);
        };
        let thread = std::thread::Builder::new().name("delay-line".to_owned()).spawn(body);
        let thread = Some(thread.map_err(|error| error.to_string())?);
        let line = Self { stop, late_ns_max, thread };
        let lost = || Err("the delay line's thread ended".to_owned());
        ready.recv().unwrap_or_else(|_| lost()).map(|()| line)
    }

    /// How late, at the most, a frame left.
    pub(crate) fn late_max(&self) -> Duration {
        Duration::from_nanos(self.late_ns_max.load(Ordering::Relaxed))
    }
}

impl Drop for DelayLine {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // What it lost shows as loss.
            let _ = thread.join();
        }
    }
}

type Pair = [Box<dyn Link>; 2];

fn open(names: &[String; 2]) -> Result<Pair, String> {
    let pool = Rc::new(Pool::new(CHUNKS, CHUNK_SIZE).map_err(|error| error.to_string())?);
    let opener = Opener::new(pool);
    let one = |at: u16, name: &str| {
        let mut config = LinkConfig::new(LinkIndex(at), name);
        config.backend = Backend::PacketSocket;
        config.promiscuous = true;
        opener.open(&config).map_err(|error| error.to_string())
    };
    let [near, far] = names;
    Ok([one(0, near)?, one(1, far)?])
}

/// One direction: frames that wait until they are due.
#[derive(Debug)]
struct Way {
    shape: LinkShape,
    random: Random,
    /// When the wire is free.
    free_at: u64,
    waiting: VecDeque<(u64, Packet)>,
}

impl Way {
    fn new(shape: LinkShape, seed: u64) -> Self {
        Self { shape, random: Random::new(seed), free_at: 0, waiting: VecDeque::new() }
    }

    /// Takes a frame that arrived at `now`. Frames keep their order.
    fn take(&mut self, frame: Packet, now: u64) {
        let lost = self.random.below(1_000_000) < millionths(self.shape.loss_pct / 100.0);
        if lost || self.waiting.len() >= FRAMES_MAX {
            return;
        }
        let octets = u64::try_from(frame.len()).unwrap_or(0) + u64::from(WIRE_OCTETS);
        let bits_ns = octets * 8 * 1000;
        let occupied = match millionths(self.shape.capacity_mbps) {
            0 => 0,
            // Bits over megabits a second are microseconds.
            capacity => bits_ns.saturating_mul(1_000_000) / capacity,
        };
        self.free_at = self.free_at.max(now) + occupied;
        let jitter = self.random.below(u64::from(self.shape.jitter_us) * 1000 + 1);
        let due = self.free_at + u64::from(self.shape.latency_us) * 1000 + jitter;
        let last = self.waiting.back().map_or(0, |(due, _)| *due);
        self.waiting.push_back((due.max(last), frame));
    }

    /// When the next frame is due.
    fn next(&self) -> Option<u64> {
        self.waiting.front().map(|(due, _)| *due)
    }

    /// Moves frames that are due into the batch; returns how late the latest of them is.
    fn release(&mut self, now: u64, batch: &mut Batch) -> u64 {
        let mut late = 0;
        while batch.room() > 0 && self.next().is_some_and(|due| due <= now) {
            let Some((due, frame)) = self.waiting.pop_front() else { break };
            late = late.max(now - due);
            // There is room.
            let _ = batch.push(frame);
        }
        late
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "experiments bound shapes to positive numbers of at most six digits"
)]
fn millionths(value: f64) -> u64 {
    (value * 1e6) as u64
}

/// A wait that is shorter is spun: sleeping takes longer.
const SPIN_BELOW_NS: u64 = 60_000;
/// The longest sleep: who sends a frame then waits for it at most so long.
const SLEEP_NS: u64 = 50_000;

fn carry(mut links: Pair, shape: LinkShape, seed: u64, stop: &AtomicBool, late_max: &AtomicU64) {
    let mut ways = [Way::new(shape, seed), Way::new(shape, seed + 1)];
    let mut batch = Batch::default();
    while !stop.load(Ordering::Relaxed) {
        let now = clock::now();
        let ([near, far], [there, back]) = (&mut links, &mut ways);
        let moved = pass(there, near.as_mut(), far.as_mut(), now, &mut batch, late_max)
            | pass(back, far.as_mut(), near.as_mut(), now, &mut batch, late_max);
        if !moved {
            rest(ways.iter().filter_map(Way::next).min());
        }
    }
}

/// One turn of one direction; returns whether a frame moved.
fn pass(
    way: &mut Way,
    from: &mut dyn Link,
    to: &mut dyn Link,
    now: u64,
    batch: &mut Batch,
    late_max: &AtomicU64,
) -> bool {
    let received = from.receive(Duration::from_nanos(now), batch);
    for frame in batch.drain() {
        way.take(frame, now);
    }
    let late = way.release(clock::now(), batch);
    let sent = !batch.is_empty();
    if sent {
        to.transmit(Duration::from_nanos(now), batch);
        late_max.fetch_max(late, Ordering::Relaxed);
    }
    received > 0 || sent
}

/// Waits for the next frame that is due, or for one to arrive.
fn rest(due: Option<u64>) {
    let now = clock::now();
    match due {
        Some(due) if due <= now + SPIN_BELOW_NS => clock::spin(due.saturating_sub(now)),
        Some(due) => clock::sleep_until(now + (due - now - SPIN_BELOW_NS).min(SLEEP_NS)),
        None => clock::sleep_until(now + SLEEP_NS),
    }
}
