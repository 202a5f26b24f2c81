//! A medium with ports.

use crate::{Chance, Random};
use gatewright_packet::{Batch, Pool};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    time::Duration,
};

/// Maximum ports of a segment.
pub const PORTS_MAX: usize = 1024;

/// Maximum addresses that a switch remembers; frames to unknown ones are flooded, as in a real one.
const ADDRESSES_MAX: usize = 4096;

/// Maximum octets of a frame: the largest IP datagram after an Ethernet header.
const FRAME_LEN_MAX: usize = 65_535 + 14;

/// A port of a segment, counted from 0.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PortIndex(pub u16);

/// The way a segment passes frames on.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Medium {
    /// One medium for all: every port in range of the sender receives a frame, and while one sends,
    /// the others wait. It is a hub, or, with deaf ports ([`Segment::set_hears`]), a radio.
    #[default]
    Shared,
    /// A line of its own for each port. A frame goes to the port where its Ethernet destination was
    /// last seen as a source. It goes to every port if the destination is unknown or a group.
    Switched,
}

/// Impairments of frames between two ports.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Impairment {
    /// Probability of loss.
    pub loss: Chance,
    /// Probability of duplication.
    pub duplicate: Chance,
    /// Probability that it is held back, so that others overtake it.
    pub reorder: Chance,
    /// How long it is held back then.
    pub reorder_by: Duration,
    /// Probability that one of its bits is flipped.
    pub corrupt: Chance,
    /// Added to the latency.
    pub delay: Duration,
    /// Added to the latency: a random time below this. It reorders, too, if frames follow closely.
    pub jitter: Duration,
}

/// Properties of a segment; the default is a perfect hub.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SegmentConfig {
    /// How frames are forwarded to the other ports.
    pub medium: Medium,
    /// Seed of every impairment.
    pub seed: u64,
    /// Bits a second; `None` takes no time. Of the whole medium if it is shared, of each port's
    /// line if it is switched.
    pub capacity: Option<u64>,
    /// Time from the end of transmission to the arrival.
    pub latency: Duration,
    /// The impairment of frames whose ports have none of their own ([`Segment::set_impairment`],
    /// [`Segment::add_port`]).
    pub impairment: Impairment,
    /// Maximum octets that wait for the medium (or for one port's line).
    pub backlog_octets_max: u64,
    /// Maximum frames on their way to one port, or waiting there to be received.
    pub queue_frames_max: usize,
}

impl Default for SegmentConfig {
    fn default() -> Self {
        Self {
            medium: Medium::Shared,
            seed: 0,
            capacity: None,
            latency: Duration::ZERO,
            impairment: Impairment::default(),
            // A thousand full frames: Linux's default transmission queue.
            backlog_octets_max: 1_500_000,
            queue_frames_max: 1024,
        }
    }
}

/// Counters of a segment since it was created.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SegmentCounters {
    /// Frames that ports have sent.
    pub sent: u64,
    /// Frames that ports have received; a flooded frame counts at each.
    pub delivered: u64,
    /// Frames that an impairment lost.
    pub lost: u64,
    /// Frames that an impairment repeated.
    pub duplicated: u64,
    /// Frames that an impairment held back.
    pub reordered: u64,
    /// Frames in which an impairment flipped a bit.
    pub corrupted: u64,
    /// Frames dropped because too many octets waited for the medium.
    pub backlog_full: u64,
    /// Frames dropped because too many were on their way to a port.
    pub queue_full: u64,
    /// Frames dropped because the sender or the receiver was down, or no such port.
    pub down: u64,
    /// Frames dropped because they were empty or longer than any frame can be.
    pub length: u64,
    /// Frames dropped because they do not fit into a packet of the receiver's pool.
    pub oversized: u64,
    /// Deliveries put off because the receiver's pool was empty.
    pub no_packet: u64,
}

/// Why a segment cannot be created or changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// A segment has another number of ports.
    #[error("a segment has 1 to {PORTS_MAX} ports, not {0}")]
    Ports(usize),
    /// A capacity of zero would never deliver.
    #[error("a segment without capacity delivers nothing; leave it out for an unlimited one")]
    Capacity,
}

/// A medium that joins ports, in virtual time.
#[derive(Debug)]
pub struct Segment {
    config: SegmentConfig,
    random: Random,
    ports: Vec<Port>,
    impairments: BTreeMap<(PortIndex, PortIndex), Impairment>,
    /// Pairs of sender and receiver that are out of range.
    deaf: BTreeSet<(PortIndex, PortIndex)>,
    /// The port where a switch has last seen each source address.
    seen: BTreeMap<[u8; 6], PortIndex>,
    /// When the shared medium is free again.
    free_at: Duration,
    /// Number of arrivals so far: frames with the same arrival time arrive in the order of sending.
    order: u64,
    /// Memory of frames that have been received, for the next ones.
    spare: Vec<Vec<u8>>,
    counters: SegmentCounters,
}

#[derive(Debug, Default)]
struct Port {
    down: bool,
    /// Whether it was removed: no frame goes there until it is added again.
    removed: bool,
    /// The impairment of the frames that it sends, and what decides it, if it has its own.
    own: Option<(Impairment, Random)>,
    /// When its own line is free again.
    free_at: Duration,
    arriving: BinaryHeap<Reverse<Arriving>>,
}

/// A frame on its way; the earliest is the smallest.
#[derive(Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Arriving {
    at: Duration,
    order: u64,
    frame: Vec<u8>,
}

impl Segment {
    /// A segment of `ports` ports, all of them up.
    ///
    /// # Errors
    ///
    /// [`SegmentError`] if there are no ports or too many, or the capacity is zero.
    pub fn new(ports: usize, config: SegmentConfig) -> Result<Self, SegmentError> {
        if !(1..=PORTS_MAX).contains(&ports) {
            return Err(SegmentError::Ports(ports));
        }
        let ports = (0..ports).map(|_| Port::default()).collect();
        Ok(Self { ports, ..Self::without_ports(config)? })
    }

    /// A segment whose ports are added one by one.
    ///
    /// # Errors
    ///
    /// [`SegmentError`] if the capacity is zero.
    pub fn without_ports(config: SegmentConfig) -> Result<Self, SegmentError> {
        if config.capacity == Some(0) {
            return Err(SegmentError::Capacity);
        }
        Ok(Self {
            config,
            random: Random::new(config.seed),
            ports: Vec::new(),
            impairments: BTreeMap::new(),
            deaf: BTreeSet::new(),
            seen: BTreeMap::new(),
            free_at: Duration::ZERO,
            order: 0,
            spare: Vec::new(),
            counters: SegmentCounters::default(),
        })
    }

    /// Adds a port, which is up. Frames that it sends have `impairment`, decided by `seed`,
    /// whatever other ports send.
    ///
    /// # Errors
    ///
    /// [`SegmentError::Ports`] if there are [`PORTS_MAX`] already.
    pub fn add_port(
        &mut self,
        impairment: Impairment,
        seed: u64,
    ) -> Result<PortIndex, SegmentError> {
        let free = self.ports.iter().position(|port| port.removed);
        let index = free.unwrap_or(self.ports.len());
        let port = u16::try_from(index).ok().filter(|_| index < PORTS_MAX);
        let port = port.ok_or(SegmentError::Ports(index.saturating_add(1)))?;
        let new = Port { own: Some((impairment, Random::new(seed))), ..Port::default() };
        match self.ports.get_mut(index) {
            Some(place) => *place = new,
            None => self.ports.push(new),
        }
        Ok(PortIndex(port))
    }

    /// Removes a port, and frees its number for another.
    pub fn remove_port(&mut self, port: PortIndex) {
        self.set_up(port, false);
        self.seen.retain(|_, seen| *seen != port);
        if let Some(port) = self.ports.get_mut(usize::from(port.0)) {
            port.removed = true;
        }
    }

    /// Its ports, in order.
    pub fn ports(&self) -> impl ExactSizeIterator<Item = PortIndex> + use<> {
        // At most PORTS_MAX, so nothing is cut off.
        (0..u16::try_from(self.ports.len()).unwrap_or(u16::MAX)).map(PortIndex)
    }

    /// The counters so far.
    pub fn counters(&self) -> &SegmentCounters {
        &self.counters
    }

    /// Sets the impairment of frames from one port to another, in this direction only.
    pub fn set_impairment(&mut self, from: PortIndex, to: PortIndex, impairment: Impairment) {
        self.impairments.insert((from, to), impairment);
    }

    /// Sets whether frames of `from` reach `to`, in this direction only: the radio's neighbour
    /// filter.
    pub fn set_hears(&mut self, from: PortIndex, to: PortIndex, hears: bool) {
        if hears {
            self.deaf.remove(&(from, to));
        } else {
            self.deaf.insert((from, to));
        }
    }

    /// Sets a port up or down. A port that is down neither sends nor receives, and frames on their
    /// way to it are lost.
    pub fn set_up(&mut self, port: PortIndex, up: bool) {
        let Some(port) = self.ports.get_mut(usize::from(port.0)) else { return };
        port.down = !up;
        if port.down {
            let lost = port.arriving.drain().map(|Reverse(arriving)| arriving.frame);
            let before = self.spare.len();
            self.spare.extend(lost);
            self.counters.down += u64::try_from(self.spare.len() - before).unwrap_or_default();
        }
    }

    /// Sends `frame` from a port.
    pub fn send(&mut self, now: Duration, from: PortIndex, frame: &[u8]) {
        self.counters.sent += 1;
        if frame.is_empty() || frame.len() > FRAME_LEN_MAX {
            self.counters.length += 1;
            return;
        }
        let Some(sender) = self.ports.get_mut(usize::from(from.0)).filter(|port| !port.down) else {
            self.counters.down += 1;
            return;
        };
        let line = match self.config.medium {
            Medium::Shared => &mut self.free_at,
            Medium::Switched => &mut sender.free_at,
        };
        let Some(sent_at) = occupy(&self.config, line, now, frame.len()) else {
            self.counters.backlog_full += 1;
            return;
        };
        if let Some(only) = self.learn(from, frame) {
            if only != from {
                self.carry(sent_at, from, only, frame);
            }
            return;
        }
        for to in self.ports() {
            if to != from {
                self.carry(sent_at, from, to, frame);
            }
        }
    }

    /// Takes the frames that have arrived at a port by `now` into `batch`, as packets of `pool`;
    /// returns their number.
    pub fn receive(
        &mut self,
        now: Duration,
        port: PortIndex,
        pool: &Pool,
        batch: &mut Batch,
    ) -> usize {
        let Some(port) = self.ports.get_mut(usize::from(port.0)) else { return 0 };
        let mut received = 0;
        while batch.room() > 0 && port.arriving.peek().is_some_and(|Reverse(next)| next.at <= now) {
            let Some(mut packet) = pool.packet() else {
                self.counters.no_packet += 1;
                break;
            };
            let Some(Reverse(arrived)) = port.arriving.pop() else { break };
            if packet.append(&arrived.frame).is_err() {
                self.counters.oversized += 1;
            } else if batch.push(packet).is_ok() {
                self.counters.delivered += 1;
                received += 1;
            }
            self.spare.push(arrived.frame);
        }
        received
    }

    /// When the next frame arrives at any port: there is nothing to receive before.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.ports.iter().filter_map(Port::next_at).min()
    }

    /// When the next frame arrives at one port.
    pub fn port_timeout(&self, port: PortIndex) -> Option<Duration> {
        self.ports.get(usize::from(port.0)).and_then(Port::next_at)
    }

    /// The port to which a switch sends the frame: `None` means all.
    fn learn(&mut self, from: PortIndex, frame: &[u8]) -> Option<PortIndex> {
        const GROUP: u8 = 1;
        if self.config.medium != Medium::Switched {
            return None;
        }
        let (&destination, rest) = frame.split_first_chunk::<6>()?;
        let &source = rest.first_chunk::<6>()?;
        let is_group = |[first, ..]: [u8; 6]| first & GROUP != 0;
        let room = self.seen.len() < ADDRESSES_MAX || self.seen.contains_key(&source);
        if room && !is_group(source) {
            self.seen.insert(source, from);
        }
        self.seen.get(&destination).copied().filter(|_| !is_group(destination))
    }

    /// The impairment of frames from one port to another.
    fn impairment(&self, from: PortIndex, to: PortIndex) -> Impairment {
        let of_pair = self.impairments.get(&(from, to)).copied();
        let own = || self.ports.get(usize::from(from.0))?.own.as_ref();
        let of_port = || own().map(|(impairment, _)| *impairment);
        of_pair.or_else(of_port).unwrap_or(self.config.impairment)
    }

    /// The random state that decides the impairments of frames from a port.
    fn random(&mut self, from: PortIndex) -> &mut Random {
        match self.ports.get_mut(usize::from(from.0)).and_then(|port| port.own.as_mut()) {
            Some((_, random)) => random,
            None => &mut self.random,
        }
    }

    /// Delivers a frame from one port to another, unless an impairment prevents it.
    fn carry(&mut self, sent_at: Duration, from: PortIndex, to: PortIndex, frame: &[u8]) {
        let is_removed = self.ports.get(usize::from(to.0)).is_none_or(|port| port.removed);
        if is_removed || self.deaf.contains(&(from, to)) {
            return;
        }
        let impairment = self.impairment(from, to);
        if self.random(from).happens(impairment.loss) {
            self.counters.lost += 1;
            return;
        }
        let copies = if self.random(from).happens(impairment.duplicate) { 2 } else { 1 };
        self.counters.duplicated += copies - 1;
        for _ in 0..copies {
            let jitter = self.random(from).time_below(impairment.jitter);
            let latency = self.config.latency.saturating_add(impairment.delay);
            let mut at = sent_at.saturating_add(latency).saturating_add(jitter);
            if self.random(from).happens(impairment.reorder) {
                self.counters.reordered += 1;
                at = at.saturating_add(impairment.reorder_by);
            }
            let flips = self.random(from).happens(impairment.corrupt);
            self.enqueue(at, (from, to), frame, flips);
        }
    }

    fn enqueue(
        &mut self,
        at: Duration,
        (from, to): (PortIndex, PortIndex),
        frame: &[u8],
        flips: bool,
    ) {
        let Some(port) = self.ports.get_mut(usize::from(to.0)).filter(|port| !port.down) else {
            self.counters.down += 1;
            return;
        };
        if port.arriving.len() >= self.config.queue_frames_max {
            self.counters.queue_full += 1;
            return;
        }
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(frame);
        if flips {
            self.counters.corrupted += 1;
            let bits = u64::try_from(copy.len() * 8).unwrap_or_default();
            let bit = usize::try_from(self.random(from).below(bits)).unwrap_or_default();
            if let Some(octet) = copy.get_mut(bit / 8) {
                *octet ^= 1 << (bit % 8);
            }
        }
        self.order += 1;
        let arriving = Arriving { at, order: self.order, frame: copy };
        if let Some(port) = self.ports.get_mut(usize::from(to.0)) {
            port.arriving.push(Reverse(arriving));
        }
    }
}

impl Port {
    fn next_at(&self) -> Option<Duration> {
        self.arriving.peek().map(|Reverse(arriving)| arriving.at)
    }
}

/// Occupies the line for the time of `len` octets, and returns the end of that time; `None` if too
/// much waits already.
fn occupy(
    config: &SegmentConfig,
    free_at: &mut Duration,
    now: Duration,
    len: usize,
) -> Option<Duration> {
    const NANOS_PER_SECOND: u128 = 1_000_000_000;
    let Some(capacity) = config.capacity else { return Some(now) };
    let waits = free_at.saturating_sub(now).as_nanos();
    let waiting_octets = waits.saturating_mul(u128::from(capacity)) / 8 / NANOS_PER_SECOND;
    if waiting_octets > u128::from(config.backlog_octets_max) {
        return None;
    }
    let bits = u128::try_from(len).unwrap_or_default() * 8;
    let nanos = (bits * NANOS_PER_SECOND).div_ceil(u128::from(capacity));
    let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
    *free_at = now.max(*free_at).saturating_add(Duration::from_nanos(nanos));
    Some(*free_at)
}
