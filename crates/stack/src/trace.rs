//! Trace of one packet through the graph: its places, the time at each, and its outcome.
//!
//! A traced packet passes each edge in a batch of its own, between those before and after it, so
//! that times and drops are its own. Other packets pay for the check for the mark. A trace
//! allocates, as nothing else does on a worker.

use crate::{
    At, AttachmentId, Reason, Side, VirtualLink, builtin::Match, reassembly::REASSEMBLY_FOR,
};
use gatewright_packet::{Batch, LinkIndex, Packet};
use gatewright_wire::Framing;
use std::{fmt, time::Duration};

/// The [`gatewright_packet::Meta::mark`] of a traced packet.
const MARK: u32 = 0x7472_6163;

/// Maximum steps of a trace: further ones are not recorded.
const STEPS_MAX: usize = 64;

/// How long to wait for a packet that a layer keeps, if it is no fragment: three solicitations to a silent neighbour, one
/// a second (RFC 4861 §10).
const KEPT_FOR: Duration = Duration::from_millis(3500);

/// A trace: the selection of a packet, and its steps.
pub struct Trace {
    link: Option<LinkIndex>,
    which: Match,
    clock: Box<dyn FnMut() -> Duration + Send>,
    /// When it found its packet.
    since: Option<Duration>,
    steps: Vec<TraceStep>,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.steps).finish()
    }
}

/// A traced packet at one place of the graph.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TraceStep {
    /// The position.
    pub at: At,
    /// Its direction.
    pub side: Side,
    /// The receiving layer; none for a device, or an edge without a receiver.
    pub layer: Option<&'static str>,
    /// The link that received it.
    pub ingress: LinkIndex,
    /// Its outgoing link, as far as known.
    pub egress: LinkIndex,
    /// The packet on arrival.
    pub octets: Vec<u8>,
    /// Its first header, if it is a whole frame.
    pub framing: Option<Framing>,
    /// The handlers at this place.
    pub handlers: Vec<AttachmentId>,
    /// The time in layer and handlers.
    pub took: Duration,
    /// Its outcome there.
    pub outcome: TraceOutcome,
    /// The reassembly of its datagram, if the layer took it as a fragment: at the end of the trace,
    /// or when the datagram went on.
    pub reassembly: Option<Reassembling>,
}

/// The reassembly of a datagram of which a traced packet is a fragment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Reassembling {
    /// Its state.
    pub state: ReassemblyState,
    /// Fragments that have come.
    pub fragments: usize,
    /// Octets of payload that they carry.
    pub octets: usize,
    /// Octets of the whole payload, once the last fragment has come.
    pub total: Option<usize>,
}

/// The state of a reassembly.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReassemblyState {
    /// It waits for further fragments.
    Waiting,
    /// All fragments have come; the datagram goes on as one packet.
    Complete,
    /// It was given up, and its fragments were dropped, for this reason.
    GivenUp(Reason),
}

/// The outcome of a packet at one place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TraceOutcome {
    /// It was passed on.
    Passed,
    /// It was given to the device.
    Sent,
    /// A handler took it.
    Taken(AttachmentId),
    /// It was dropped, for this reason.
    Dropped(&'static str),
    /// It resumes in the graph of the first worker.
    HandedOver,
    /// The layer keeps it: it is delivered or answered, or waits for something.
    Kept,
}

impl Trace {
    /// A trace of the next matching packet by `link`, or by any; `clock` measures the time at each
    /// place.
    pub fn new(
        link: Option<LinkIndex>,
        which: Match,
        clock: impl FnMut() -> Duration + Send + 'static,
    ) -> Self {
        Self { link, which, clock: Box::new(clock), since: None, steps: Vec::new() }
    }

    /// The steps so far; empty if no packet matched.
    pub fn steps(&self) -> &[TraceStep] {
        &self.steps
    }

    /// Marks the first selected packet, if none was found yet.
    pub(crate) fn choose(
        &mut self,
        (link, framing): (LinkIndex, Framing),
        virtual_links: &[VirtualLink],
        batch: &mut Batch,
        now: Duration,
    ) {
        if self.since.is_some() {
            return;
        }
        let own = virtual_links.iter().find(|own| Some(own.link) == self.link);
        let device = own.map(|own| own.below).or(self.link);
        if device.is_some_and(|meant| meant != link) {
            return;
        }
        let is_meant = |one: &Packet| {
            own.is_none_or(|own| own.carries(one.octets()))
                && self.which.matches(one, Some(framing))
        };
        if let Some(packet) = batch.iter_mut().find(|one| is_meant(one)) {
            packet.meta_mut().mark = MARK;
            self.since = Some(now);
        }
    }

    /// Whether the trace is complete.
    pub(crate) fn is_over(&self, now: Duration) -> bool {
        let (Some(since), Some(step)) = (self.since, self.steps.last()) else { return false };
        if step.outcome != TraceOutcome::Kept {
            return true;
        }
        match step.reassembly.map(|reassembly| reassembly.state) {
            // A fragment that came before it has begun the time; one second later it is over.
            Some(ReassemblyState::Waiting) => now > since + REASSEMBLY_FOR + Duration::from_secs(1),
            Some(_) => true,
            None => now >= since + KEPT_FOR,
        }
    }

    /// Notes the state of the reassembly for which the traced packet is kept.
    pub(crate) fn reassembling(&mut self, now: Reassembling) {
        if let Some(step) = self.steps.last_mut() {
            step.reassembly = Some(now);
        }
    }

    /// Marks a packet that continues the traced one.
    pub(crate) fn continue_with(packet: &mut Packet) {
        packet.meta_mut().mark = MARK;
    }

    pub(crate) fn is_traced(packet: &Packet) -> bool {
        packet.meta().mark == MARK
    }

    /// Removes the mark: packets are not traced on other workers.
    pub(crate) fn forget(packet: &mut Packet) {
        if Self::is_traced(packet) {
            packet.meta_mut().mark = 0;
        }
    }

    /// Records the arrival of a packet; [`Self::end`] adds its outcome.
    pub(crate) fn begin(&mut self, step: TraceStep) -> Duration {
        if self.steps.len() < STEPS_MAX {
            self.steps.push(step);
        }
        (self.clock)()
    }

    /// Records the outcome of the packet that arrived at `begun`.
    pub(crate) fn end(&mut self, begun: Duration) -> Option<&mut TraceStep> {
        let took = (self.clock)().saturating_sub(begun);
        let step = self.steps.last_mut()?;
        step.took = took;
        Some(step)
    }
}
