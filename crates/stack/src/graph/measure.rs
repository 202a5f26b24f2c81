//! How long layers and handlers take, measured while somebody asks.
//!
//! One run of the graph in [`SAMPLE_EVERY`] is measured: two looks at the clock for each place that
//! a batch passes. While nothing is measured, a batch pays for the check that nothing is.

use super::{EdgeIndex, Exit, Floor, Graph};
use crate::{
    AttachmentId, EdgeTarget, Wiring,
    wiring::{Edge, NodeIndex},
};
use gatewright_packet::Batch;
use std::{fmt, time::Duration};

/// Time between two measured runs: at most a thousand a second, some twenty places each, cost a
/// worker a thousandth of its time.
pub const SAMPLE_EVERY: Duration = Duration::from_millis(1);

/// Pairs of looks at the clock of which the shortest is what a look takes.
const CLOCK_LOOKS: u32 = 16;

/// The time that measured packets took at one place: a sum over batches.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TimeSum {
    /// Packets.
    pub packets: u64,
    /// Nanoseconds for all of them, without those of looking at the clock.
    pub ns: u64,
}

impl TimeSum {
    /// Adds what was measured elsewhere at the same place.
    pub const fn add(&mut self, more: Self) {
        self.packets = self.packets.wrapping_add(more.packets);
        self.ns = self.ns.wrapping_add(more.ns);
    }
}

/// Times in the measured runs of a graph, since the measurement began.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct GraphTimes {
    /// The measured runs.
    pub runs: u64,
    /// The time behind each way of the plan, in their order: that of its layer, or of handing frames
    /// to its device.
    pub ways: Vec<TimeSum>,
    /// The time in each layer, in their order, on ways that only a handler opened too.
    pub layers: Vec<TimeSum>,
    /// The time in each handler.
    pub handlers: Vec<(AttachmentId, TimeSum)>,
}

impl GraphTimes {
    /// Adds what another worker measured in its graph of the same plan.
    pub fn add(&mut self, more: &Self) {
        self.runs += more.runs;
        for (all, more) in [(&mut self.ways, &more.ways), (&mut self.layers, &more.layers)] {
            all.resize(all.len().max(more.len()), TimeSum::default());
            for (sum, more) in all.iter_mut().zip(more) {
                sum.add(*more);
            }
        }
        for (id, more) in &more.handlers {
            add_to(&mut self.handlers, *id, *more);
        }
    }
}

fn add_to(handlers: &mut Vec<(AttachmentId, TimeSum)>, id: AttachmentId, more: TimeSum) {
    match handlers.iter_mut().find(|(known, _)| *known == id) {
        Some((_, sum)) => sum.add(more),
        None => handlers.push((id, more)),
    }
}

/// The clock of a measurement.
pub type MeasureClock = Box<dyn FnMut() -> Duration + Send>;

/// A measurement that runs.
pub(super) struct Measurement {
    clock: MeasureClock,
    /// What one look at the clock takes.
    look: Duration,
    /// When it ends, unless somebody asks again.
    until: Duration,
    /// The earliest time of the next measured run.
    next: Duration,
    /// Whether the current run is measured, and whether it has passed a place yet.
    runs_now: bool,
    has_passed: bool,
    times: GraphTimes,
}

impl fmt::Debug for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Measurement({} runs)", self.times.runs)
    }
}

impl Measurement {
    fn new(mut clock: MeasureClock, (ways, layers): (usize, usize), until: Duration) -> Self {
        let mut look = || {
            let before = clock();
            clock().saturating_sub(before)
        };
        let look = (0..CLOCK_LOOKS).map(|_| look()).min().unwrap_or_default();
        let times = GraphTimes {
            ways: vec![TimeSum::default(); ways],
            layers: vec![TimeSum::default(); layers],
            ..GraphTimes::default()
        };
        let next = Duration::ZERO;
        Self { clock, look, until, next, runs_now: false, has_passed: false, times }
    }

    /// What `packets` took since `since`, and the time now.
    fn took(&mut self, packets: usize, since: Duration) -> (TimeSum, Duration) {
        let now = (self.clock)();
        let ns = now.saturating_sub(since).saturating_sub(self.look).as_nanos();
        let ns = u64::try_from(ns).unwrap_or(u64::MAX);
        (TimeSum { packets: packets as u64, ns }, now)
    }

    /// A batch comes to a place: the run counts, once.
    fn pass(&mut self, now: Duration) {
        if !std::mem::replace(&mut self.has_passed, true) {
            self.times.runs += 1;
            self.next = now + SAMPLE_EVERY;
        }
    }

    fn add(&mut self, way: EdgeIndex, to: EdgeTarget, more: TimeSum) {
        if let Some(sum) = self.times.ways.get_mut(way.index()) {
            sum.add(more);
        }
        if let EdgeTarget::Layer(NodeIndex(node)) = to
            && let Some(sum) = self.times.layers.get_mut(usize::from(node))
        {
            sum.add(more);
        }
    }
}

impl Graph {
    /// Measures until `until`, by `clock` if nothing is measured yet; returns what was measured so
    /// far.
    pub fn measure(&mut self, until: Duration, clock: MeasureClock) -> GraphTimes {
        let (ways, layers) = (self.wiring.ways, self.floor.nodes.len());
        let begin = || Measurement::new(clock, (ways, layers), until);
        let measurement = self.floor.measurement.get_or_insert_with(|| Box::new(begin()));
        measurement.until = measurement.until.max(until);
        measurement.times.clone()
    }

    /// Whether it measures: until a run after the end of the last order.
    pub const fn is_measuring(&self) -> bool {
        self.floor.measurement.is_some()
    }
}

impl Floor {
    /// Decides whether the run that begins at `now` is measured, and ends a measurement that is over.
    #[cold]
    pub(super) fn sample(&mut self, now: Duration) {
        self.measurement.take_if(|measurement| now >= measurement.until);
        if let Some(measurement) = &mut self.measurement {
            measurement.runs_now = now >= measurement.next;
            measurement.has_passed = false;
        }
        self.watch();
    }

    /// Whether the current run is measured.
    pub(super) fn measures_run(&self) -> bool {
        self.measurement.as_ref().is_some_and(|measurement| measurement.runs_now)
    }

    /// As [`Self::pass`], with a look at the clock between two places.
    #[inline(never)]
    pub(super) fn pass_measured(
        &mut self,
        wiring: &Wiring,
        (way, edge): (EdgeIndex, &Edge),
        batch: &mut Batch,
        now: Duration,
        exit: &mut impl Exit,
    ) {
        // Outside, so that the layers can be called meanwhile.
        let Some(mut measurement) = self.measurement.take() else { return };
        measurement.pass(now);
        let mut since = (measurement.clock)();
        for post in &edge.posts {
            let packets = batch.len();
            self.hand(wiring, (*post, edge.framing), edge.binding.side, batch, now);
            self.send_past(&wiring.virtual_links, exit);
            let took;
            (took, since) = measurement.took(packets, since);
            add_to(&mut measurement.times.handlers, post.id, took);
            if batch.is_empty() {
                break;
            }
        }
        let packets = batch.len();
        if packets > 0 {
            self.deliver(wiring, edge, batch, now, exit);
            let (took, _) = measurement.took(packets, since);
            measurement.add(way, edge.binding.to, took);
        }
        self.measurement = Some(measurement);
    }
}
