//! Built-in handlers: attachable from configuration and at run time.
//!
//! | handler | does | keys |
//! |---|---|---|
//! | `count` | counts packets and octets | |
//! | `drop` | takes the packets that match | `match` |
//! | [`Filter`] | lets packets pass or takes them, by rules in order | |
//! | `rate-limit` | lets so many packets pass a second | `rate`, `burst` |
//! | `mirror` | sends a copy by another link | `to` |
//! | `capture` | gives a copy to the control side | |
//! | [`HostHandler`] | carries packets between a link and the kernel beside it | |

mod filter;
mod fragments;
mod headers;
mod host;

pub use filter::{
    Among, Filter, FilterCounters, PortRange, PortRangeError, Rule, Selector, Subnet, Verdict,
};

pub use headers::has_ports;
pub use host::{HostHandler, HostPart};

use crate::{
    At, Context, Counter, Handler, PacketOctets, Side,
    bucket::{DriverBucket, SharedBucket},
};
use gatewright_packet::{Batch, LinkIndex, Packet, Parcel, Pool};
use gatewright_wire::{EtherType, Framing, IpProtocol};
use headers::{Headers, Visible};
use std::{
    net::IpAddr,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    time::Duration,
};

/// Counts packets and octets; clones read the same numbers.
#[derive(Clone, Debug, Default)]
pub struct Count {
    packets: Counter,
    octets: Counter,
}

impl Count {
    /// Counts in these counters.
    pub const fn new(packets: Counter, octets: Counter) -> Self {
        Self { packets, octets }
    }

    /// Packets counted.
    pub fn packets(&self) -> u64 {
        self.packets.get()
    }

    /// Their octets, from the position on.
    pub fn octets(&self) -> u64 {
        self.octets.get()
    }
}

impl Handler for Count {
    fn handle(&mut self, batch: &mut Batch, _: &mut Context<'_>) {
        self.packets.add(batch.len() as u64);
        self.octets.add(batch.iter().map(|packet| packet.len() as u64).sum());
    }

    fn another(&self) -> Option<Box<dyn Handler>> {
        Some(Box::new(Self { packets: self.packets.part(), octets: self.octets.part() }))
    }
}

/// A condition on packets: all given fields must match. Packets that are not IP match only the
/// empty condition.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Match {
    /// The subnet of the source: its address and prefix length.
    pub source: Option<(IpAddr, u8)>,
    /// The subnet of the destination.
    pub destination: Option<(IpAddr, u8)>,
    /// The upper-layer protocol, after all options and extension headers.
    pub protocol: Option<IpProtocol>,
    /// The destination port, of TCP, UDP, UDP-Lite or SCTP.
    pub port: Option<u16>,
}

impl Match {
    /// Whether `packet` matches; `framing` is its first header if it is a whole frame
    /// ([`Context::framing`]). A later fragment has no ports and matches none.
    pub fn matches(&self, packet: &Packet, framing: Option<Framing>) -> bool {
        if *self == Self::default() {
            return true;
        }
        let Some(headers) = Headers::read(ip_octets(packet, framing)) else { return false };
        let within = |(address, bits), ip| Subnet { address, bits }.contains(ip);
        let port = |port| matches!(headers.ports, Visible::Here(Some((_, own))) if own == port);
        self.source.is_none_or(|subnet| within(subnet, headers.from))
            && self.destination.is_none_or(|subnet| within(subnet, headers.to))
            && self.protocol.is_none_or(|wanted| headers.protocol == Visible::Here(wanted))
            && self.port.is_none_or(port)
    }
}

/// The octets of `packet` from its IP header on, behind all tags of a frame; none if a frame carries
/// no IP packet.
fn ip_octets(packet: &Packet, framing: Option<Framing>) -> &[u8] {
    let octets = packet.network_octets();
    framing.map_or(octets, |framing| framing.ip_packet(octets).unwrap_or_default())
}

/// A rate limiter: passes a number of packets per second, and drops the others.
///
/// The limiters of several workers share one bucket, used once for a batch.
#[derive(Clone, Debug)]
pub struct RateLimit(Arc<SharedBucket>);

impl RateLimit {
    /// A limiter to `per_second` packets per second with bursts of `burst`.
    pub fn new(per_second: u32, burst: u32) -> Self {
        Self(Arc::new(SharedBucket::new(per_second, burst)))
    }

    /// The same by a bucket from which drivers take tokens, too, for the packets that they forward.
    pub fn with_drivers(per_second: u32, burst: u32, bucket: DriverBucket) -> Self {
        Self(Arc::new(SharedBucket::with_drivers(per_second, burst, bucket)))
    }
}

impl Handler for RateLimit {
    fn handle(&mut self, batch: &mut Batch, context: &mut Context<'_>) {
        let mut pass = self.0.take(batch.len(), context.now());
        batch.retain(|_| {
            let passes = pass > 0;
            pass = pass.saturating_sub(1);
            passes
        });
    }

    fn another(&self) -> Option<Box<dyn Handler>> {
        Some(Box::new(self.clone()))
    }
}

/// Sends a copy of each frame by another link; meant for the position `frame`. A frame that begins
/// otherwise than those of the other link is not copied, and counted as missed.
#[derive(Clone, Debug)]
pub struct Mirror {
    to: LinkIndex,
    missed: Counter,
}

impl Mirror {
    /// Copies to the link `to`.
    pub fn new(to: LinkIndex) -> Self {
        Self::counting(to, Counter::default())
    }

    /// Copies to the link `to`, and counts in `missed` what it could not copy.
    pub const fn counting(to: LinkIndex, missed: Counter) -> Self {
        Self { to, missed }
    }

    /// Frames that were not copied because no chunk was free, or too many came at once.
    pub fn missed(&self) -> u64 {
        self.missed.get()
    }

    /// The counter behind [`Self::missed`], to be read while the mirror runs.
    pub fn missed_counter(&self) -> Counter {
        self.missed.clone()
    }
}

impl Handler for Mirror {
    fn handle(&mut self, batch: &mut Batch, context: &mut Context<'_>) {
        let is_alike =
            context.framing().is_none_or(|framing| framing == context.framing_of(self.to));
        for packet in &*batch {
            let copy = context.frames().packet_of(packet.octets()).filter(|_| is_alike);
            let sent = copy.is_some_and(|mut copy| {
                copy.meta_mut().checksum = packet.meta().checksum;
                context.send(self.to, copy).is_ok()
            });
            if !sent {
                self.missed.add(1);
            }
        }
    }

    fn another(&self) -> Option<Box<dyn Handler>> {
        Some(Box::new(Self { to: self.to, missed: self.missed.part() }))
    }
}

/// A captured packet, on its way to its writer.
#[derive(Debug)]
pub struct CapturedPacket {
    /// The number of its capture.
    pub capture: u64,
    /// A copy of the packet.
    pub octets: PacketOctets,
    /// Its first header.
    pub framing: Framing,
    /// When it passed, since the gateway's epoch.
    pub at: Duration,
    /// Its direction.
    pub side: Side,
    /// The link that received it if it travelled up, else its outgoing link, if it has one.
    pub link: LinkIndex,
}

/// Copies packets to the control side, never waiting for it.
///
/// Frames are copied whole. Packets above the network layer are copied from their IP header on, so
/// that a reader can parse them. A payload that is neither gets an Ethernet header with its type
/// and without addresses.
#[derive(Clone, Debug)]
pub struct Capture {
    number: u64,
    out: SyncSender<CapturedPacket>,
    missed: Counter,
    at: At,
    side: Side,
    which: Match,
}

/// Maximum captured packets queued for writing.
pub const CAPTURED_MAX: usize = 1024;

impl Capture {
    /// A handler for matching packets at `at` that travel to `side`, the receiver of its copies,
    /// and the counter of packets without room.
    pub fn new(at: At, side: Side, which: Match) -> (Self, Receiver<CapturedPacket>, Counter) {
        let (out, captured) = sync_channel(CAPTURED_MAX);
        let missed = Counter::default();
        (Self::sending((0, out), missed.clone(), (at, side), which), captured, missed)
    }

    /// A handler for matching packets at a position that travel to a side. It sends its copies by a
    /// channel, under the number of the capture, and counts in `missed` packets without room.
    pub fn sending(
        (number, out): (u64, SyncSender<CapturedPacket>),
        missed: Counter,
        (at, side): (At, Side),
        which: Match,
    ) -> Self {
        Self { number, out, missed, at, side, which }
    }

    /// The first header of packets captured at `at` that are no whole frames.
    pub const fn framing_at(at: At) -> Framing {
        match at {
            At::Frame => Framing::Ethernet,
            At::EtherType(ether) if !matches!(ether, EtherType::IPV4 | EtherType::IPV6) => {
                Framing::Ethernet
            }
            _ => Framing::Ip,
        }
    }

    fn copy(&self, packet: &Packet, frames: &Pool) -> Option<Parcel> {
        let mut copy = frames.packet_of(packet.network_octets())?;
        if let At::EtherType(ether) = self.at
            && Self::framing_at(self.at) == Framing::Ethernet
        {
            let [high, low] = ether.0.to_be_bytes();
            copy.prepend(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low]).ok()?;
        }
        Some(copy.into_parcel())
    }

    fn link(&self, packet: &Packet) -> LinkIndex {
        let (ingress, egress) = (packet.meta().ingress, packet.meta().egress);
        match self.side {
            Side::Receive if ingress != LinkIndex::NONE => ingress,
            Side::Transmit if egress == LinkIndex::NONE => ingress,
            _ => egress,
        }
    }
}

impl Handler for Capture {
    fn handle(&mut self, batch: &mut Batch, context: &mut Context<'_>) {
        let framing = context.framing().unwrap_or(Self::framing_at(self.at));
        for packet in &*batch {
            if !self.which.matches(packet, context.framing()) {
                continue;
            }
            let (link, side, at) = (self.link(packet), self.side, context.now());
            let copy = self.copy(packet, context.frames());
            let capture = self.number;
            let captured = copy.map(|octets| {
                let octets = PacketOctets::Chunk(octets);
                CapturedPacket { capture, octets, framing, at, side, link }
            });
            if captured.is_none_or(|captured| self.out.try_send(captured).is_err()) {
                self.missed.add(1);
            }
        }
    }

    fn another(&self) -> Option<Box<dyn Handler>> {
        Some(Box::new(Self { missed: self.missed.part(), ..self.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_packet::CHUNK_SIZE;

    /// A DNS query of 192.0.2.7 port 5300 to 198.51.100.53 port 53, and the same over IPv6 from
    /// 2001:db8::7 to 2001:db8:1::53, IP header first.
    const QUERY4: &str = "4500001c00010000401100 00c0000207c6336435 14b4003500080000";
    const QUERY6: &str = "6000000000081140 20010db8000000000000000000000007 \
                          20010db8000100000000000000000053 14b4003500080000";

    fn octets(hex: &str) -> Vec<u8> {
        let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
        digits.chunks(2).map(|two| u8::try_from(two[0] * 16 + two[1]).unwrap()).collect()
    }

    fn run(handler: &mut impl Handler, pool: &Pool, packets: &[&str]) -> (usize, Vec<LinkIndex>) {
        let mut batch = Batch::default();
        for packet in packets {
            batch.push(pool.packet_of(&octets(packet)).unwrap()).unwrap();
        }
        let mut sent = Vec::new();
        let mut context = Context {
            now: Duration::ZERO,
            frames: pool,
            sent: &mut sent,
            framing: None,
            framings: &[],
            host: None,
            lost: None,
        };
        handler.handle(&mut batch, &mut context);
        (batch.len(), sent.into_iter().map(|(link, _)| link).collect())
    }

    #[test]
    fn a_match_holds_when_all_that_is_given_holds() {
        let pool = Pool::new(8, CHUNK_SIZE).unwrap();
        let subnet = |text: &str, bits| Some((text.parse().unwrap(), bits));
        let any = Match::default();
        let cases = [
            (any, true, true),
            (Match { source: subnet("192.0.2.0", 24), ..any }, true, false),
            (Match { source: subnet("192.0.3.0", 24), ..any }, false, false),
            (Match { destination: subnet("2001:db8:1::", 48), ..any }, false, true),
            (Match { destination: subnet("::", 0), ..any }, false, true),
            (Match { protocol: Some(IpProtocol::UDP), ..any }, true, true),
            (Match { protocol: Some(IpProtocol::TCP), ..any }, false, false),
            (Match { port: Some(53), ..any }, true, true),
            (Match { port: Some(5300), ..any }, false, false),
            (Match { port: Some(54), ..any }, false, false),
            (Match { port: Some(53), source: subnet("10.0.0.0", 8), ..any }, false, false),
        ];
        for (which, first, second) in cases {
            let mut handler = Filter::dropping(which);
            assert_eq!(run(&mut handler, &pool, &[QUERY4]).0 == 0, first, "{which:?}");
            assert_eq!(run(&mut handler, &pool, &[QUERY6]).0 == 0, second, "{which:?}");
        }
        let mut handler = Filter::dropping(Match { port: Some(53), ..any });
        for malformed in ["", "45", "60", "ff", "4f00001c000100004011"] {
            assert_eq!(run(&mut handler, &pool, &[malformed]).0, 1, "{malformed}");
        }
    }

    #[test]
    fn a_filter_of_another_worker_counts_with_the_first() {
        let pool = Pool::new(8, CHUNK_SIZE).unwrap();
        let mut filter = Filter::dropping(Match { port: Some(53), ..Match::default() });
        let counters = filter.counters();
        let mut batch = Batch::default();
        batch.push(pool.packet_of(&octets(QUERY6)).unwrap()).unwrap();
        let mut sent = Vec::new();
        let mut context = Context {
            now: Duration::ZERO,
            frames: &pool,
            sent: &mut sent,
            framing: None,
            framings: &[],
            host: None,
            lost: None,
        };
        filter.another().unwrap().handle(&mut batch, &mut context);
        assert_eq!((batch.len(), run(&mut filter, &pool, &[QUERY4]).0), (0, 0));
        assert_eq!(counters.rules[0].get(), 2);
    }

    #[test]
    fn packets_and_octets_are_counted() {
        let pool = Pool::new(8, CHUNK_SIZE).unwrap();
        let count = Count::default();
        assert_eq!(run(&mut count.clone(), &pool, &[QUERY4, QUERY6]).0, 2);
        assert_eq!((count.packets(), count.octets()), (2, 28 + 48));
    }

    #[test]
    fn a_mirror_copies_and_counts_what_it_misses() {
        let pool = Pool::new(3, CHUNK_SIZE).unwrap();
        let mirror = Mirror::new(LinkIndex(5));
        let (passed, copies) = run(&mut mirror.clone(), &pool, &[QUERY4, QUERY6]);
        assert_eq!((passed, copies, mirror.missed()), (2, vec![LinkIndex(5)], 1));
    }

    #[test]
    fn a_limit_takes_what_is_too_much() {
        let pool = Pool::new(8, CHUNK_SIZE).unwrap();
        assert_eq!(run(&mut RateLimit::new(1, 2), &pool, &[QUERY4; 5]).0, 2);
    }

    #[test]
    fn a_handler_of_another_worker_limits_and_counts_with_the_first() {
        let pool = Pool::new(8, CHUNK_SIZE).unwrap();
        let handle = |handler: &mut dyn Handler, packets: usize| {
            let mut batch = Batch::default();
            for _ in 0..packets {
                batch.push(pool.packet_of(&octets(QUERY4)).unwrap()).unwrap();
            }
            let mut sent = Vec::new();
            let mut context = Context {
                now: Duration::ZERO,
                frames: &pool,
                sent: &mut sent,
                framing: None,
                framings: &[],
                host: None,
                lost: None,
            };
            handler.handle(&mut batch, &mut context);
            batch.len()
        };
        let mut limit = RateLimit::new(1, 5);
        let mut another = limit.another().unwrap();
        assert_eq!([handle(&mut limit, 3), handle(another.as_mut(), 3)], [3, 2]);
        let mut count = Count::default();
        let mut another = count.another().unwrap();
        handle(another.as_mut(), 2);
        handle(&mut count, 1);
        assert_eq!((count.packets(), count.octets()), (3, 84));
    }

    #[test]
    fn a_capture_holds_the_octets_as_they_passed() {
        let pool = Pool::new(8, CHUNK_SIZE).unwrap();
        let which =
            Match { destination: Some(("2001:db8:1::".parse().unwrap(), 48)), ..Match::default() };
        let at = At::EtherType(EtherType::IPV6);
        let (mut capture, captured, missed) = Capture::new(at, Side::Receive, which);
        assert_eq!(run(&mut capture, &pool, &[QUERY6, QUERY4]).0, 2);
        let packet = captured.try_recv().unwrap().octets.read(<[u8]>::to_vec);
        assert_eq!((packet, missed.get()), (octets(QUERY6), 0));
        assert!(captured.try_recv().is_err(), "the other one does not match");
    }

    #[test]
    fn what_is_neither_frame_nor_ip_is_captured_behind_a_header_with_its_type() {
        let pool = Pool::new(8, CHUNK_SIZE).unwrap();
        let at = At::EtherType(EtherType::ARP);
        let (mut capture, captured, _) = Capture::new(at, Side::Transmit, Match::default());
        run(&mut capture, &pool, &["0001 0800"]);
        let packet = captured.try_recv().unwrap().octets.read(<[u8]>::to_vec);
        assert_eq!(packet, [&[0; 12], &[8, 6, 0, 1, 8, 0][..]].concat());
    }
}
