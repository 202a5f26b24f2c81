//! A link over a port of a medium in memory.

use crate::{Exclusive, Framing, Link, LinkCounters, LinkInfo, LinkState, Mode, complete, nanos};
use gatewright_packet::{Batch, LinkIndex, Pool};
use gatewright_sim::{PortIndex, Segment};
use gatewright_wire::MacAddress;
use std::{cell::RefCell, os::fd::BorrowedFd, rc::Rc, time::Duration};

/// A segment whose ports belong to links of one thread.
pub type SharedSegment = Rc<RefCell<Segment>>;

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
}

impl MemoryLink {
    /// Octets of an Ethernet header with one tag (802.1Q).
    const HEADER_LEN: usize = 18;

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
            mac: Some(mac),
            mtu,
            partial_checksums: false,
            exclusive: Exclusive::Ours,
            driver: String::new(),
            kernel_index: 0,
            queues: Vec::new(),
            receivers: 1,
        };
        Self { info, index, segment, port, pool, counters: LinkCounters::default(), up: true }
    }

    /// Takes the link up or down.
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
        let received = self.segment.borrow_mut().receive(now, self.port, &self.pool, batch);
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
        for mut packet in batch.drain() {
            if packet.is_empty() || packet.len() > self.info.mtu + Self::HEADER_LEN {
                self.counters.transmit_length += 1;
                continue;
            }
            complete(&mut packet, self.info.framing, &mut self.counters);
            self.counters.sent += 1;
            self.counters.sent_octets += packet.len() as u64;
            segment.send(now, self.port, packet.octets());
        }
    }

    fn counters(&mut self) -> LinkCounters {
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
