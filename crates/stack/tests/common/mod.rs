//! A gateway of two links in memory: frames in, frames out, time as the test says.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail loudly, and no test needs all of this"
)]

pub mod ipv6;

use gatewright_packet::{
    BATCH_MAX, Batch, CHUNK_SIZE, CHUNK_SIZE_DATAGRAM, LinkAddress, LinkIndex, Pool,
};
use gatewright_stack::{
    Address, AddressState, At, Event, Graph, Host, IcmpCounts, Interface, NodeIndex, Plan, Sockets,
    Suite, SuiteLink, Wake, assemble,
};
use gatewright_wire::{
    EtherType, IpProtocol, MacAddress, arp::ArpFields, ethernet::EthernetFields, ipv4::Ipv4Fields,
};
use std::{net::Ipv4Addr, rc::Rc, sync::Arc, time::Duration};

pub const LAN: LinkIndex = LinkIndex(0);
pub const WAN: LinkIndex = LinkIndex(1);
pub const LAN_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 0x10]);
pub const WAN_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 0x20]);
pub const LAN_IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub const WAN_IP: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
/// A host on the LAN.
pub const A: (MacAddress, Ipv4Addr) =
    (MacAddress([2, 0, 0, 0, 0, 0xa]), Ipv4Addr::new(10, 0, 0, 2));
/// A host on the WAN.
pub const B: (MacAddress, Ipv4Addr) =
    (MacAddress([2, 0, 0, 0, 0, 0xb]), Ipv4Addr::new(10, 0, 1, 2));

/// Chunks for frames.
const FRAMES: usize = 2048;

pub type Frame = (LinkIndex, Vec<u8>);

pub struct Gateway {
    pub host: Host,
    pub graph: Graph,
    pub plan: Plan,
    pub ipv4: NodeIndex,
    pub ipv6: NodeIndex,
    pub sockets: Sockets,
    pub now: Duration,
}

/// Nobody is woken: the test looks by itself.
struct Asleep;

impl Wake for Asleep {
    fn wake(&self) {}
}

pub fn address(ip: Ipv4Addr, prefix_len: u8) -> Address {
    Address { ip: ip.into(), prefix_len, state: AddressState::Preferred }
}

pub fn interface(link: LinkIndex, mac: MacAddress, addresses: Vec<Address>) -> Interface {
    let (name, mtu) = (format!("link{link}"), 1500);
    Interface {
        link,
        name,
        link_address: LinkAddress::ethernet(mac.0),
        mtu,
        addresses,
        up: true,
        forwarding: true,
        ..Interface::default()
    }
}

impl Gateway {
    /// Two Ethernet links, whose neighbours A and B are known.
    pub fn new() -> Self {
        let mut this = Self::cold();
        this.introduce(LAN, LAN_MAC, LAN_IP, A);
        this.introduce(WAN, WAN_MAC, WAN_IP, B);
        this
    }

    /// Two Ethernet links that know no neighbour.
    pub fn cold() -> Self {
        Self::of_frames(FRAMES)
    }

    /// As [`Self::cold`], with so many chunks for frames.
    pub fn of_frames(frames: usize) -> Self {
        let links = [SuiteLink::Ethernet(LAN), SuiteLink::Ethernet(WAN)];
        let mut this = Self::with_frames(frames, &links, |_| {});
        let lan = interface(LAN, LAN_MAC, vec![address(LAN_IP, 24)]);
        let wan = interface(WAN, WAN_MAC, vec![address(WAN_IP, 24)]);
        this.host.add_interface(lan).unwrap();
        this.host.add_interface(wan).unwrap();
        this.tick(10); // The addresses are probed and announced.
        this
    }

    pub fn of(links: &[SuiteLink], change: impl FnOnce(&mut Suite)) -> Self {
        Self::with_frames(FRAMES, links, change)
    }

    fn with_frames(frames: usize, links: &[SuiteLink], change: impl FnOnce(&mut Suite)) -> Self {
        let mut suite = assemble(links, Arc::new(Asleep), 42);
        change(&mut suite);
        let Suite { plan, layers, ipv4, ipv6, sockets, .. } = suite;
        let host = Host::new(1000).unwrap();
        let frames = Rc::new(Pool::new(frames, CHUNK_SIZE).unwrap());
        let datagrams = Rc::new(Pool::new(64, CHUNK_SIZE_DATAGRAM).unwrap());
        let graph = Graph::new(layers, plan.wire(&[]).unwrap(), host.view(), frames, datagrams);
        Self { host, graph, plan, ipv4, ipv6, sockets, now: Duration::ZERO }
    }

    /// The host `who` asks for our address `ip`, and is answered.
    pub fn introduce(
        &mut self,
        link: LinkIndex,
        mac: MacAddress,
        ip: Ipv4Addr,
        who: (MacAddress, Ipv4Addr),
    ) {
        let request = ArpFields::request(who.0, who.1, ip);
        let answers = self
            .receive(link, &[ether(MacAddress::BROADCAST, who.0, EtherType::ARP, &request.emit())]);
        let answer = ether(who.0, mac, EtherType::ARP, &request.reply(mac).emit());
        assert_eq!(answers, [(link, answer)]);
    }

    /// What leaves when `frames` come by `link`.
    pub fn receive(&mut self, link: LinkIndex, frames: &[Vec<u8>]) -> Vec<Frame> {
        let mut sent = Vec::new();
        let mut exit = |link: LinkIndex, batch: &mut Batch| {
            sent.extend(batch.drain().map(|packet| (link, packet.octets().to_vec())));
        };
        for frames in frames.chunks(BATCH_MAX) {
            let mut batch = Batch::default();
            for frame in frames {
                batch.push(self.graph.frames().packet_of(frame).unwrap()).unwrap();
            }
            self.graph.receive(link, &mut batch, self.now, &mut exit);
        }
        sent
    }

    /// What leaves when `seconds` have passed.
    pub fn tick(&mut self, seconds: u64) -> Vec<Frame> {
        let end = self.now + Duration::from_secs(seconds);
        let mut sent = Vec::new();
        let mut exit = |link: LinkIndex, batch: &mut Batch| {
            sent.extend(batch.drain().map(|packet| (link, packet.octets().to_vec())));
        };
        self.graph.handle_timeouts(self.now, &mut exit);
        let mut steps = 0;
        while let Some(due) = self.graph.poll_timeout().filter(|&due| due <= end) {
            steps += 1;
            assert!(steps < 100_000, "time stands still");
            self.now = self.now.max(due);
            self.graph.handle_timeouts(self.now, &mut exit);
        }
        self.now = end;
        sent
    }

    /// What leaves when the graph ends.
    pub fn end(&mut self) -> Vec<Frame> {
        let mut sent = Vec::new();
        self.graph.end(self.now, &mut |link: LinkIndex, batch: &mut Batch| {
            sent.extend(batch.drain().map(|packet| (link, packet.octets().to_vec())));
        });
        sent
    }

    /// What leaves when a layer of this host sends `packet`, its IPv4 header in front.
    pub fn transmit(&mut self, link: LinkIndex, packet: &[u8]) -> Vec<Frame> {
        self.transmit_by(self.ipv4, EtherType::IPV4, link, packet)
    }

    /// What leaves when a layer of this host sends `packet`, its IPv6 header in front.
    pub fn transmit6(&mut self, link: LinkIndex, packet: &[u8]) -> Vec<Frame> {
        self.transmit_by(self.ipv6, EtherType::IPV6, link, packet)
    }

    fn transmit_by(
        &mut self,
        network: NodeIndex,
        family: EtherType,
        link: LinkIndex,
        packet: &[u8],
    ) -> Vec<Frame> {
        let mut sent = Vec::new();
        let mut exit = |link: LinkIndex, batch: &mut Batch| {
            sent.extend(batch.drain().map(|packet| (link, packet.octets().to_vec())));
        };
        let mut batch = Batch::default();
        let pool = self.graph.frames().clone();
        let mut packet = pool.packet_of(packet).unwrap();
        packet.meta_mut().egress = link;
        batch.push(packet).unwrap();
        let at = At::Local(family);
        self.graph.transmit(network, at, &mut batch, self.now, &mut exit);
        sent
    }

    pub fn events(&mut self) -> Vec<Event> {
        self.graph.take_events().collect()
    }

    /// What was dropped, by layer and reason.
    pub fn drops(&self) -> Vec<(&'static str, &'static str, u64)> {
        let layers = self.plan.layers();
        let of = |(node, name, _)| {
            let drops = self.graph.drops_of(node).unwrap();
            drops.iter().map(|(reason, count)| (name, reason, count)).collect::<Vec<_>>()
        };
        layers.flat_map(of).collect()
    }

    /// Counts in the host's table from now on, from zero.
    pub fn count(&mut self) {
        let slots = self.host.counter_slots();
        self.graph.count_in(&slots, 0, &self.plan).unwrap();
    }

    /// ICMP messages since [`Self::count`], by name: received, sent, not sent because of the rate
    /// limit.
    pub fn icmp(&self) -> Vec<(&'static str, [u64; 3])> {
        let rows = IcmpCounts::of(&self.host.tables().counters.sums()).into_iter();
        rows.map(|row| (row.message, [row.received, row.sent, row.rate_limited])).collect()
    }

    /// Every chunk has come home.
    pub fn is_clean(&self) -> bool {
        self.graph.frames().available() == self.graph.frames().capacity()
    }
}

pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(octet).collect()
}

pub fn ether(to: MacAddress, from: MacAddress, ether_type: EtherType, payload: &[u8]) -> Vec<u8> {
    let header = EthernetFields { destination: to, source: from, ether_type }.emit();
    [&header[..], payload].concat()
}

/// An IPv4 packet with changes to its header.
pub fn ipv4(
    from: Ipv4Addr,
    to: Ipv4Addr,
    protocol: IpProtocol,
    payload: &[u8],
    change: impl FnOnce(&mut Ipv4Fields),
) -> Vec<u8> {
    let len = u16::try_from(20 + payload.len()).unwrap();
    let mut fields = Ipv4Fields::new(protocol, from, to, len);
    change(&mut fields);
    [&fields.emit_with_checksum()[..], payload].concat()
}

/// A frame from host A to the gateway with an IPv4 packet.
pub fn from_a(packet: &[u8]) -> Vec<u8> {
    ether(LAN_MAC, A.0, EtherType::IPV4, packet)
}
