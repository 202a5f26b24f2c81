//! A link over a port of a medium in memory.

use crate::{Exclusive, Framing, Link, LinkCounters, LinkInfo, LinkState, Mode, OpenError};
use crate::{complete, local_address, nanos};
use gatewright_packet::{Batch, LinkAddress, LinkIndex, Pool};
use gatewright_sim::{
    Impairment, PortIndex, Segment, SegmentConfig, SegmentCounters, SegmentError,
};
use gatewright_wire::{MacAddress, vlan::Vlan};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    os::fd::BorrowedFd,
    rc::{Rc, Weak},
    time::Duration,
};

/// A segment whose ports belong to links of one thread.
pub type SharedSegment = Rc<RefCell<Segment>>;

/// Configuration of a link over a port of a segment in memory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MemoryConfig {
    /// The link's index in the gateway, stamped on received frames.
    pub index: LinkIndex,
    /// The link's name.
    pub name: String,
    /// The name of the segment: links of one [`Segments`] with the same name receive each other's
    /// frames.
    pub segment: String,
    /// The impairment of the frames that the link sends.
    pub impairment: Impairment,
    /// Seed of the impairment.
    pub seed: u64,
    /// Maximum octets of a packet without its link-layer header.
    pub mtu: usize,
}

/// The segments to which the links of one worker belong, by name. A segment begins with its first
/// link and ends with its last one.
///
/// A clone has the same segments.
#[derive(Clone, Debug, Default)]
pub struct Segments(Rc<RefCell<BTreeMap<String, Weak<RefCell<Segment>>>>>);

impl Segments {
    /// Opens a port of a segment as a link, whose packets come from `pool`.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if the pool's packets are too small, or the segment has no port left.
    pub fn open(&self, config: &MemoryConfig, pool: &Rc<Pool>) -> Result<MemoryLink, OpenError> {
        let MemoryConfig { index, name, segment, impairment, seed, mtu } = config;
        let (mtu, found) = (*mtu, pool.packet_len_max());
        let needed = mtu + Framing::Ethernet.header_len_max();
        if needed > found {
            return Err(OpenError::Chunk { name: name.clone(), mtu, needed, found });
        }
        let failed = |error: SegmentError| OpenError::Unsupported {
            name: name.clone(),
            reason: error.to_string(),
        };
        let mut segments = self.0.borrow_mut();
        let known = segments.get(segment).and_then(Weak::upgrade);
        let medium = if let Some(medium) = known {
            medium
        } else {
            let medium = Segment::without_ports(SegmentConfig::default()).map_err(failed)?;
            let medium: SharedSegment = Rc::new(RefCell::new(medium));
            segments.retain(|_, other| other.strong_count() > 0);
            segments.insert(segment.clone(), Rc::downgrade(&medium));
            medium
        };
        let port = medium.borrow_mut().add_port(*impairment, *seed).map_err(failed)?;
        let mac = local_address(*index);
        let link = MemoryLink::new(*index, name, mac, mtu, (medium, port), Rc::clone(pool));
        Ok(link.owning_port(format!("port {} of segment {segment}", port.0)))
    }
}

/// The link over one port of a [`Segment`].
#[derive(Debug)]
pub struct MemoryLink {
    info: LinkInfo,
    index: LinkIndex,
    segment: SharedSegment,
    port: PortIndex,
    pool: Rc<Pool>,
    counters: LinkCounters,
    up: bool,
    /// Whether the port ends with the link.
    owns_port: bool,
}

/// Octets before the packet in a frame with one tag (IEEE 802.1Q).
const HEADER_LEN: usize = Framing::Ethernet.header_len() + Vlan::LEN;

impl MemoryLink {
    /// The link over `port` of `segment`, whose frames begin with an Ethernet header and go into
    /// packets of `pool`.
    pub fn new(
        index: LinkIndex,
        name: &str,
        mac: MacAddress,
        mtu: usize,
        (segment, port): (SharedSegment, PortIndex),
        pool: Rc<Pool>,
    ) -> Self {
        let info = LinkInfo {
            name: name.to_owned(),
            mode: Mode::Memory,
            why: format!("port {} of a segment in memory", port.0),
            framing: Framing::Ethernet,
            link_address: LinkAddress::ethernet(mac.0),
            mtu,
            partial_checksums: false,
            exclusive: Exclusive::Ours,
            driver: String::new(),
            kernel_index: 0,
            queues: Vec::new(),
            receivers: 1,
            driver_forwarding: crate::DriverForwarding::NotAsked,
        };
        Self {
            info,
            index,
            segment,
            port,
            pool,
            counters: LinkCounters::default(),
            up: true,
            owns_port: false,
        }
    }

    /// Removes the port with the link; `why` is told to the operator.
    #[must_use]
    fn owning_port(mut self, why: String) -> Self {
        (self.info.why, self.owns_port) = (why, true);
        self
    }

    /// Sets the link up or down.
    pub fn set_up(&mut self, up: bool) {
        self.up = up;
        self.segment.borrow_mut().set_up(self.port, up);
    }
}

impl Link for MemoryLink {
    fn info(&self) -> &LinkInfo {
        &self.info
    }

    fn receive(&mut self, now: Duration, batch: &mut Batch) -> usize {
        let before = batch.len();
        let mut segment = self.segment.borrow_mut();
        let old = *segment.counters();
        let received = segment.receive(now, self.port, &self.pool, batch);
        let new = segment.counters();
        self.counters.receive_no_packet += new.no_packet - old.no_packet;
        self.counters.receive_oversized += new.oversized - old.oversized;
        for packet in batch.iter_mut().skip(before) {
            packet.set_received_ns(nanos(now));
            packet.meta_mut().ingress = self.index;
            self.counters.received += 1;
            self.counters.received_octets += packet.len() as u64;
        }
        received
    }

    fn transmit(&mut self, now: Duration, batch: &mut Batch) {
        let mut segment = self.segment.borrow_mut();
        let old = *segment.counters();
        for mut packet in batch.drain() {
            if packet.is_empty() || packet.len() > self.info.mtu + HEADER_LEN {
                self.counters.transmit_length += 1;
                continue;
            }
            complete(&mut packet, self.info.framing, &mut self.counters);
            self.counters.sent += 1;
            self.counters.sent_octets += packet.len() as u64;
            segment.send(now, self.port, packet.octets());
        }
        let new = segment.counters();
        let full = |counters: &SegmentCounters| counters.backlog_full + counters.queue_full;
        self.counters.transmit_full += full(new) - full(&old);
        self.counters.transmit_lost += new.lost - old.lost;
    }

    fn counted(&self) -> LinkCounters {
        self.counters
    }

    fn state(&mut self) -> LinkState {
        if self.up { LinkState::Up } else { LinkState::Down }
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn poll_timeout(&self) -> Option<Duration> {
        self.segment.borrow().port_timeout(self.port)
    }
}

impl Drop for MemoryLink {
    fn drop(&mut self) {
        if self.owns_port {
            self.segment.borrow_mut().remove_port(self.port);
        }
    }
}
