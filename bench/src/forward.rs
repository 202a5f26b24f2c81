//! `bench forward`: what a packet costs from Ethernet through IP and the router to Ethernet, in
//! memory: no device, no system call.

use bench::{Bench, Contestant, Numbers, Options, Relation, Yardstick, nanoseconds_each};
use gatewright_packet::{
    Batch, CHUNK_SIZE, CHUNK_SIZE_DATAGRAM, LinkAddress, LinkIndex, Packet, Pool,
};
use gatewright_stack::{
    Address, AddressState, At, Attachment, AttachmentId, Counter, Graph, Host, Interface, Place,
    Route, Side, SuiteLink, Swap, Wake, assemble, tap,
};
use gatewright_tables::Prefix;
use gatewright_wire::{
    EtherType, IpProtocol, MacAddress, ethernet::EthernetFields, ipv4::Ipv4Fields,
    ipv6::Ipv6Fields, udp::UdpFields,
};
use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const IN: LinkIndex = LinkIndex(0);
const OUT: LinkIndex = LinkIndex(1);
const OWN: [MacAddress; 2] = [MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2])];
const SENDER: MacAddress = MacAddress([2, 0, 0, 0, 1, 1]);

/// Packets that the graph takes at once.
const BATCH: usize = 32;
/// Flows: each another destination, source and port. The first number fits into the cache of
/// destinations, the second is beside it, the third beside every cache of the processor, too.
const FLOWS: usize = 4096;
const FLOWS_MANY: usize = 100_000;
const FLOWS_MOST: usize = 1_000_000;
/// Routes to those destinations, beyond so many gateways. The second number is beside the caches of
/// a core.
const ROUTES: u32 = 1024;
const ROUTES_MANY: u32 = 500_000;
const GATEWAYS: u8 = 64;
/// Octets of payload of each datagram.
const PAYLOAD: usize = 64;
/// Packets of a round at least: flows pass so often that it is these.
const PACKETS: usize = FLOWS * 64;
/// Packets that wait in a row, so that none is in a cache when its turn comes: 128 MiB of chunks.
const COLD: usize = 65_536;

/// Nobody waits.
struct Asleep;

impl Wake for Asleep {
    fn wake(&self) {}
}

/// What differs between the families.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Family {
    V4,
    V6,
}

impl Family {
    fn own(self, link: LinkIndex) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::from_bits(0x0a00_0001 | u32::from(link.0) << 16).into(),
            Self::V6 => Ipv6Addr::from_bits(0xfd00 << 112 | u128::from(link.0) << 64 | 1).into(),
        }
    }

    fn gateway(self, number: u8) -> IpAddr {
        let host = u32::from(number) + 2;
        match self.own(OUT) {
            IpAddr::V4(own) => Ipv4Addr::from_bits((own.to_bits() & !0xff) | host).into(),
            IpAddr::V6(own) => {
                Ipv6Addr::from_bits((own.to_bits() & !0xff) | u128::from(host)).into()
            }
        }
    }

    /// Bits of each of so many prefixes.
    fn prefix_len(self, routes: u32) -> u8 {
        match self {
            // 100.64.0.0/10 is shared address space (RFC 6598 §7): four million addresses, a /20
            // each. What is for benchmarks (RFC 2544 §C.2.2) has room for 131,072.
            Self::V4 if routes <= ROUTES => 20,
            // As many as need room beyond any such space.
            Self::V4 => 26,
            // 2001:2::/48 is for benchmarks (RFC 5180 §8); a /64 each.
            Self::V6 => 64,
        }
    }

    /// A destination inside of the route `number` of so many.
    fn destination(self, routes: u32, number: u32, noise: u32) -> IpAddr {
        let host_bits = 32_u8.saturating_sub(self.prefix_len(routes));
        match self {
            Self::V4 => {
                let start = if routes <= ROUTES { 0x6440_0000 } else { 0x6400_0000 };
                let host = noise & ((1 << host_bits) - 1);
                Ipv4Addr::from_bits(start + (number << host_bits) + host).into()
            }
            Self::V6 => Ipv6Addr::from_bits(
                0x2001_0002 << 96 | u128::from(number) << 64 | u128::from(noise),
            )
            .into(),
        }
    }

    fn frame(self, routes: u32, numbers: &mut Numbers) -> Vec<u8> {
        let below = usize::try_from(routes).unwrap_or(1);
        let number = u32::try_from(numbers.below(below)).unwrap_or(0);
        let noise = numbers.word();
        let udp_len = u16::try_from(8 + PAYLOAD).unwrap_or(0);
        let port = u16::try_from(noise >> 16).unwrap_or(0) | 1024;
        let udp = UdpFields {
            source_port: port,
            destination_port: 5683,
            length: udp_len,
            checksum: 0xffff,
        };
        let (ether_type, header) = match (self.own(IN), self.destination(routes, number, noise)) {
            (IpAddr::V4(own), IpAddr::V4(to)) => {
                let from =
                    Ipv4Addr::from_bits((own.to_bits() & !0xffff) | (noise & 0xfff) | 0x1000);
                let header = Ipv4Fields::new(IpProtocol::UDP, from, to, 20 + udp_len);
                (EtherType::IPV4, header.emit_with_checksum().to_vec())
            }
            (IpAddr::V6(own), IpAddr::V6(to)) => {
                let from = Ipv6Addr::from_bits(own.to_bits() | u128::from(noise) << 8);
                let header = Ipv6Fields::new(IpProtocol::UDP, from, to, udp_len);
                (EtherType::IPV6, header.emit().to_vec())
            }
            _ => (EtherType(0), Vec::new()),
        };
        let [first, _] = OWN;
        let ethernet = EthernetFields { destination: first, source: SENDER, ether_type };
        [&ethernet.emit()[..], &header, &udp.emit(), &[0x5a; PAYLOAD]].concat()
    }
}

/// A gateway of two links whose neighbours are known, and frames that want to cross it.
struct TwoLinks {
    graph: Graph,
    frames: Vec<Vec<u8>>,
    now: Duration,
    /// Keeps the routes' memory alive.
    _host: Host,
}

fn interface(family: Family, link: LinkIndex, mac: MacAddress) -> Interface {
    let ip = family.own(link);
    let prefix_len = if ip.is_ipv4() { 16 } else { 64 };
    Interface {
        link,
        name: format!("link{}", link.0),
        link_address: LinkAddress::ethernet(mac.0),
        mtu: 1500,
        addresses: vec![Address { ip, prefix_len, state: AddressState::Preferred }],
        up: true,
        forwarding: true,
        ..Interface::default()
    }
}

fn host(family: Family, routes: u32) -> Result<Host, String> {
    let mut host = Host::new(2 * routes + 4096).map_err(|error| error.to_string())?;
    for (link, mac) in [IN, OUT].into_iter().zip(OWN) {
        let added = host.add_interface(interface(family, link, mac));
        added.map_err(|error| error.to_string())?;
    }
    let len = family.prefix_len(routes);
    for number in 0..routes {
        let gateway = family.gateway(u8::try_from(number % u32::from(GATEWAYS)).unwrap_or(0));
        let route = Route::Via { link: OUT, gateway };
        let added = match family.destination(routes, number, 0) {
            IpAddr::V4(to) => host.add_route(prefix(to, len)?, route),
            IpAddr::V6(to) => host.add_route6(prefix(to, len)?, route),
        };
        added.map_err(|error| error.to_string())?;
    }
    Ok(host)
}

fn prefix<A: gatewright_tables::Family>(address: A, len: u8) -> Result<Prefix<A>, String> {
    Prefix::new(address, len).map_err(|error| error.to_string())
}

impl TwoLinks {
    fn new(family: Family, tapped: bool, flows: usize, routes: u32) -> Result<Self, String> {
        let links = [SuiteLink::Ethernet(IN), SuiteLink::Ethernet(OUT)];
        let suite = assemble(&links, Arc::new(Asleep), 42);
        for cache in suite.neighbours.iter().filter(|cache| cache.link == OUT) {
            let of_family = if family == Family::V4 { &cache.v4 } else { &cache.v6 };
            for number in 0..GATEWAYS {
                let station = LinkAddress::ethernet([2, 0, 0, 0, 2, number]);
                of_family.borrow_mut().set_permanent(family.gateway(number), station);
            }
        }
        let host = host(family, routes)?;
        let frames = Pool::new(COLD + 1024, CHUNK_SIZE).map_err(|error| error.to_string())?;
        let datagrams = Pool::new(16, CHUNK_SIZE_DATAGRAM).map_err(|error| error.to_string())?;
        let wiring = suite.plan.wire(&[]).map_err(|error| error.to_string())?;
        let (frames, datagrams) = (Rc::new(frames), Rc::new(datagrams));
        let mut graph = Graph::new(suite.layers, wiring, host.view(), frames, datagrams);
        if tapped {
            let id = AttachmentId(1);
            let at =
                At::EtherType(if family == Family::V4 { EtherType::IPV4 } else { EtherType::IPV6 });
            let attachment = Attachment { at, side: Side::Receive, place: Place::Tap, link: None };
            let wiring = suite.plan.wire(&[(id, attachment)]).map_err(|error| error.to_string())?;
            let handler = tap(look_at_each());
            let handlers = vec![(id, handler, Counter::default())];
            drop(graph.swap(Swap { wiring, handlers }));
        }
        let mut numbers = Numbers(9);
        let frames = (0..flows).map(|_| family.frame(routes, &mut numbers)).collect();
        let mut world = Self { graph, frames, now: Duration::from_secs(1), _host: host };
        world.settle();
        world.check(family)?;
        Ok(world)
    }

    /// Lets the layers say what they say at the beginning.
    fn settle(&mut self) {
        for _second in 0..8 {
            self.now += Duration::from_secs(1);
            self.graph.handle_timeouts(self.now, &mut |_, _: &mut Batch| {});
        }
    }

    fn batches(&self, frames: &[Vec<u8>]) -> Batch {
        let mut batch = Batch::default();
        for frame in frames {
            if let Some(packet) = self.graph.frames().packet_of(frame) {
                drop(batch.push(packet));
            }
        }
        batch
    }

    /// Every frame of one pass comes out at the other link, one hop older, to the right station:
    /// otherwise nothing was measured.
    fn check(&mut self, family: Family) -> Result<(), String> {
        let mut sent: Vec<(LinkIndex, Vec<u8>)> = Vec::new();
        for frames in self.frames.clone().chunks(BATCH) {
            let mut batch = self.batches(frames);
            self.graph.receive(IN, &mut batch, self.now, &mut |link, batch: &mut Batch| {
                sent.extend(batch.drain().map(|packet| (link, packet.octets().to_vec())));
            });
        }
        let hops_at = if family == Family::V4 { 14 + 8 } else { 14 + 7 };
        let right = |(link, frame): &(LinkIndex, Vec<u8>)| {
            *link == OUT && frame.starts_with(&[2, 0, 0, 0, 2]) && frame.get(hops_at) == Some(&63)
        };
        let flows = self.frames.len();
        if sent.len() == flows && sent.iter().all(right) {
            return Ok(());
        }
        let drops: Vec<_> = self.graph.drops().iter().collect();
        Err(format!("{} of {flows} frames were forwarded rightly; {drops:?}", sent.len()))
    }

    /// Nanoseconds a packet, its frame written anew before.
    fn forward(&mut self) -> f64 {
        let frames = std::mem::take(&mut self.frames);
        let passes = passes(frames.len());
        let each = nanoseconds_each(frames.len() * passes, || {
            for _pass in 0..passes {
                for frames in frames.chunks(BATCH) {
                    let mut batch = self.batches(frames);
                    self.graph.receive(IN, &mut batch, self.now, &mut |_, _: &mut Batch| {});
                }
            }
        });
        self.frames = frames;
        each
    }

    /// Nanoseconds to write the frame and give its chunk back, and nothing else.
    fn floor(&self) -> f64 {
        let passes = passes(self.frames.len());
        nanoseconds_each(self.frames.len() * passes, || {
            for _pass in 0..passes {
                for frames in self.frames.chunks(BATCH) {
                    drop(std::hint::black_box(self.batches(frames)));
                }
            }
        })
    }

    /// Nanoseconds a packet that was written long ago.
    fn cold(&mut self) -> f64 {
        let (frames, pool) = (self.frames.iter().cycle().take(COLD), self.graph.frames());
        let mut waiting: Vec<Packet> = frames.filter_map(|frame| pool.packet_of(frame)).collect();
        nanoseconds_each(COLD, || {
            let mut batch = Batch::default();
            while !waiting.is_empty() {
                let rest = waiting.split_off(waiting.len().saturating_sub(BATCH));
                for packet in rest {
                    drop(batch.push(packet));
                }
                self.graph.receive(IN, &mut batch, self.now, &mut |_, _: &mut Batch| {});
            }
        })
    }
}

/// How often so many flows pass in a round.
fn passes(flows: usize) -> usize {
    PACKETS.div_ceil(flows.max(1))
}

/// A tap that reads an octet of each packet: of the header that it stands before.
fn look_at_each() -> impl FnMut(&Batch) + Send {
    let seen = Arc::new(AtomicUsize::new(0));
    move |batch| {
        let octet = |packet: &Packet| packet.octets().first().copied().unwrap_or(0);
        let sum = batch.iter().map(|packet| usize::from(octet(packet))).sum();
        seen.fetch_add(sum, Ordering::Relaxed);
    }
}

/// The same with more flows than the cache of destinations has room for.
fn many_flows(bench: &mut Bench) -> Result<(), String> {
    for (flows, routes, key, all, floor) in [
        (FLOWS_MANY, ROUTES, "ipv4_100k_flows_ns", "ipv4_100k_flows_all_ns", "floor_100k_flows_ns"),
        (FLOWS_MOST, ROUTES, "ipv4_1m_flows_ns", "ipv4_1m_flows_all_ns", "floor_1m_flows_ns"),
        (
            FLOWS_MOST,
            ROUTES_MANY,
            "ipv4_1m_flows_500k_routes_ns",
            "ipv4_1m_flows_500k_routes_all_ns",
            "floor_1m_flows_500k_routes_ns",
        ),
    ] {
        let world = RefCell::new(TwoLinks::new(Family::V4, false, flows, routes)?);
        bench.interleave(vec![
            Contestant::new(floor, "ns", || world.borrow().floor()),
            Contestant::new(all, "ns", || world.borrow_mut().forward()),
        ]);
        bench.difference(key, all, floor);
    }
    Ok(())
}

pub(crate) fn run(options: Options) -> Result<Bench, String> {
    let mut bench = Bench::new("forward", options);
    let [v4, v4_tapped] = [false, true]
        .map(|tapped| TwoLinks::new(Family::V4, tapped, FLOWS, ROUTES).map(RefCell::new));
    let (v4, tapped, v6) =
        (v4?, v4_tapped?, RefCell::new(TwoLinks::new(Family::V6, false, FLOWS, ROUTES)?));
    bench.interleave(vec![
        Contestant::new("floor_ns", "ns", || v4.borrow().floor()),
        Contestant::new("ipv4_all_ns", "ns", || v4.borrow_mut().forward()),
        Contestant::new("ipv4_tapped_all_ns", "ns", || tapped.borrow_mut().forward()),
        Contestant::new("floor6_ns", "ns", || v6.borrow().floor()),
        Contestant::new("ipv6_all_ns", "ns", || v6.borrow_mut().forward()),
        Contestant::new("ipv4_cold_ns", "ns", || v4.borrow_mut().cold()),
        Contestant::new("ipv6_cold_ns", "ns", || v6.borrow_mut().cold()),
    ]);
    bench.difference("ipv4_ns", "ipv4_all_ns", "floor_ns");
    bench.difference("ipv6_ns", "ipv6_all_ns", "floor6_ns");
    bench.difference("tap_ns", "ipv4_tapped_all_ns", "ipv4_all_ns");
    many_flows(&mut bench)?;
    for key in [
        "ipv4_cold_ns",
        "ipv6_cold_ns",
        "ipv4_100k_flows_ns",
        "ipv4_1m_flows_ns",
        "ipv4_1m_flows_500k_routes_ns",
    ] {
        bench.normalise(key, Yardstick::Memory);
    }
    bench.promise("ipv4_ns", Relation::AtMost, 25.0);
    bench.promise("ipv6_ns", Relation::AtMost, 30.0);
    bench.promise("tap_ns", Relation::AtMost, 2.0);
    bench.note(format!(
        "per packet, batches of {BATCH}, {FLOWS} flows and {ROUTES} routes unless a figure names another number, {GATEWAYS} gateways"
    ));
    bench.note("the floor writes each frame anew and gives its chunk back; ipv4_ns, ipv6_ns and tap_ns are differences inside of a round");
    bench.note("the tap of tap_ns reads an octet of each packet");
    bench.note(format!("cold: {COLD} frames written before the first of them is forwarded"));
    Ok(bench)
}
