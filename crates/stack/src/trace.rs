//! One packet through the graph: where it came, how long each layer took, what became of it.
//!
//! While a packet is traced it passes each edge in a batch of its own, between those that came
//! before and after it, so that times and drops are its own. Others pay for the look whether they are
//! it. A trace allocates, as nothing else does on a worker.

use crate::{At, AttachmentId, Side, VlanLink, builtin::Match, vlan};
use gatewright_packet::{Batch, LinkIndex, Packet};
use std::{fmt, time::Duration};

/// What [`gatewright_packet::Meta::mark`] of a traced packet is.
const MARK: u32 = 0x7472_6163;

/// Steps of a trace at the most: further ones are not recorded.
const STEPS_MAX: usize = 64;

/// How long a packet that a layer keeps is waited for: three questions to a silent neighbour, one a
/// second (RFC 4861 §10).
const KEPT_FOR: Duration = Duration::from_millis(3500);

/// Octets of the link-layer header before the IP header of a whole frame.
const ETHERNET_LEN: usize = 14;

/// A trace: which packet, and what was seen of it.
pub struct Trace {
    link: Option<LinkIndex>,
    which: Match,
    clock: Box<dyn FnMut() -> Duration + Send>,
    /// Since when it has its packet.
    since: Option<Duration>,
    steps: Vec<Step>,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.steps).finish()
    }
}

/// A traced packet at one place of the graph.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Step {
    /// The position.
    pub at: At,
    /// Which way it travelled.
    pub side: Side,
    /// The layer that it came to; none for a device, or nobody.
    pub layer: Option<&'static str>,
    /// The link that it came by.
    pub ingress: LinkIndex,
    /// The link that it leaves by, as far as that is known.
    pub egress: LinkIndex,
    /// The packet as it came.
    pub octets: Vec<u8>,
    /// The handlers that stand there.
    pub handlers: Vec<AttachmentId>,
    /// How long layer and handlers took.
    pub took: Duration,
    /// What became of it.
    pub fate: Fate,
}

/// What became of a packet at one place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// It went on.
    Passed,
    /// It was given to the device.
    Sent,
    /// A handler took it.
    Taken(AttachmentId),
    /// It was dropped, for this reason.
    Dropped(&'static str),
    /// It goes on in the graph of the first worker.
    HandedOver,
    /// The layer has it: it is delivered or answered, or waits for something.
    Kept,
}

impl Trace {
    /// The next packet by `link`, or any, that matches; `clock` measures what each place takes.
    pub fn new(
        link: Option<LinkIndex>,
        which: Match,
        clock: impl FnMut() -> Duration + Send + 'static,
    ) -> Self {
        Self { link, which, clock: Box::new(clock), since: None, steps: Vec::new() }
    }

    /// What was seen; nothing if no packet matched.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Marks the first packet that is meant, if none was met yet.
    pub(crate) fn choose(
        &mut self,
        link: LinkIndex,
        vlans: &[VlanLink],
        batch: &mut Batch,
        now: Duration,
    ) {
        if self.since.is_some() {
            return;
        }
        let vlan = vlans.iter().find(|vlan| Some(vlan.link) == self.link);
        let device = vlan.map(|vlan| vlan.below).or(self.link);
        if device.is_some_and(|meant| meant != link) {
            return;
        }
        let is_meant = |one: &Packet| {
            vlan.is_none_or(|vlan| vlan::id_of(one.octets()) == Some(vlan.id))
                && self.which.matches(one, ETHERNET_LEN)
        };
        if let Some(packet) = batch.iter_mut().find(|one| is_meant(one)) {
            packet.meta_mut().mark = MARK;
            self.since = Some(now);
        }
    }

    /// Whether nothing more is to be seen.
    pub(crate) fn is_over(&self, now: Duration) -> bool {
        match (self.since, self.steps.last()) {
            (Some(since), Some(Step { fate: Fate::Kept, .. })) => now >= since + KEPT_FOR,
            (Some(_), Some(_)) => true,
            _ => false,
        }
    }

    pub(crate) fn is_traced(packet: &Packet) -> bool {
        packet.meta().mark == MARK
    }

    /// What goes on with another worker is followed no further.
    pub(crate) fn forget(packet: &mut Packet) {
        if Self::is_traced(packet) {
            packet.meta_mut().mark = 0;
        }
    }

    /// Records that a packet has come somewhere; its fate is told by [`Self::end`].
    pub(crate) fn begin(&mut self, step: Step) -> Duration {
        if self.steps.len() < STEPS_MAX {
            self.steps.push(step);
        }
        (self.clock)()
    }

    /// Records what became of the packet that began at `begun`.
    pub(crate) fn end(&mut self, begun: Duration) -> Option<&mut Step> {
        let took = (self.clock)().saturating_sub(begun);
        let step = self.steps.last_mut()?;
        step.took = took;
        Some(step)
    }
}
