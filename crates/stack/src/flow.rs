//! The flow of a frame, so that one worker has all of it.

use gatewright_tables::Flow;
use gatewright_wire::{
    Framing, IpProtocol,
    ipv4::Ipv4,
    ipv6::{Ipv6, Ipv6Fields},
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A number for the flow of a frame that begins as `framing` says: the same for all its frames, in
/// both directions. `None` if the frame carries no IP packet.
///
/// A flow has both addresses, the protocol, and both ports in common; ports are read in TCP, UDP
/// and UDP-Lite, directly after the IP header. Only the first fragment carries ports, so the
/// fragments of two hosts are a separate flow.
pub fn flow_of(frame: &[u8], framing: Framing) -> Option<u32> {
    flow_of_packet(framing.ip_packet(frame)?)
}

/// The same for an IP packet.
pub(crate) fn flow_of_packet(packet: &[u8]) -> Option<u32> {
    match packet.first()? >> 4 {
        4 => of_ipv4(packet),
        6 => of_ipv6(packet),
        _ => None,
    }
}

fn of_ipv4(packet: &[u8]) -> Option<u32> {
    let (ip, _) = Ipv4::split(packet).ok()?;
    let ends = [ip.source_address(), ip.destination_address()].map(|end| u64::from(end.to_bits()));
    Some(number(ends, ip.protocol(), ports_of_ipv4(ip, packet)))
}

fn of_ipv6(packet: &[u8]) -> Option<u32> {
    let (ip, payload) = Ipv6::split(packet).ok()?;
    let Ipv6Fields { source_address, destination_address, next_header, .. } = ip.fields();
    let ends = [source_address, destination_address].map(|end| {
        let octets = end.octets();
        let (halves, _) = octets.as_chunks();
        halves.iter().fold(0, |hash, &half| mixed(hash ^ u64::from_be_bytes(half)))
    });
    Some(number(ends, next_header, ports(next_header, payload)))
}

/// Both ports of a packet, source first; 0 where it has none, as in fragments.
fn ports_of_ipv4(ip: Ipv4<'_>, packet: &[u8]) -> [u8; 4] {
    let payload = packet.get(ip.header_len()..).filter(|_| !ip.is_fragment());
    ports(ip.protocol(), payload.unwrap_or_default())
}

fn ports(protocol: IpProtocol, payload: &[u8]) -> [u8; 4] {
    let with_ports = matches!(protocol, IpProtocol::TCP | IpProtocol::UDP | IpProtocol::UDP_LITE);
    payload.first_chunk().filter(|_| with_ports).copied().unwrap_or_default()
}

/// The number of the flow between two `ends`, in both directions.
fn number([from, to]: [u64; 2], protocol: IpProtocol, [a, b, c, d]: [u8; 4]) -> u32 {
    let [from_port, to_port] = [[a, b], [c, d]].map(|port| u64::from(u16::from_be_bytes(port)));
    // A sum is the same both ways; that of two numbers that are mixed is as good as one.
    let sum = mixed(from ^ (from_port << 40)).wrapping_add(mixed(to ^ (to_port << 40)));
    let high = mixed(sum ^ u64::from(protocol.0)) >> 32;
    u32::try_from(high).unwrap_or_default()
}

/// The flow of a packet in its direction: what all its packets have in common.
///
/// Ports are read where [`flow_of`] reads them; fragments of two hosts are a flow without ports.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FlowKey {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    /// Source, then destination, in network order.
    ports: [u8; 4],
}

impl FlowKey {
    /// The flow of an IP packet; `None` if it is none.
    pub fn of(packet: &[u8]) -> Option<Self> {
        if packet.first()? >> 4 == 4 {
            let (ip, _) = Ipv4::split(packet).ok()?;
            return Some(Self {
                source: ip.source_address().into(),
                destination: ip.destination_address().into(),
                protocol: ip.protocol().0,
                ports: ports_of_ipv4(ip, packet),
            });
        }
        let (ip, payload) = Ipv6::split(packet).ok()?;
        let Ipv6Fields { source_address, destination_address, next_header, .. } = ip.fields();
        Some(Self {
            source: source_address.into(),
            destination: destination_address.into(),
            protocol: next_header.0,
            ports: ports(next_header, payload),
        })
    }

    /// Its source.
    pub const fn source(&self) -> IpAddr {
        self.source
    }

    /// Its destination.
    pub const fn destination(&self) -> IpAddr {
        self.destination
    }
}

/// The flow of an IP packet as groups of next hops tell flows apart ([`Flow`]); that of what is no IP
/// packet is as good as any.
///
/// SCTP has its ports where UDP has them (RFC 9260 §3.1).
pub(crate) fn group_flow(packet: &[u8]) -> Flow {
    let with_ports = |protocol| {
        [IpProtocol::TCP, IpProtocol::UDP, IpProtocol::UDP_LITE, IpProtocol::SCTP]
            .contains(&protocol)
    };
    // What is behind the packet's end, its link has padded.
    let ports = |protocol: IpProtocol, header_len: usize, len: usize| {
        let payload = packet.get(header_len..len.min(packet.len())).unwrap_or_default();
        let ports = payload.first_chunk().filter(|_| with_ports(protocol));
        ports.copied().map(u32::from_le_bytes)
    };
    if packet.first().is_some_and(|first| first >> 4 == 4)
        && let Ok((ip, _)) = Ipv4::split(packet)
    {
        let (protocol, len) = (ip.protocol(), usize::from(ip.total_length()));
        let rest = ports(protocol, ip.header_len(), len).filter(|_| !ip.is_fragment());
        let word = |address: Ipv4Addr| [u32::from_le_bytes(address.octets()), 0, 0, 0];
        return Flow {
            source: word(ip.source_address()),
            destination: word(ip.destination_address()),
            protocol: protocol.0,
            rest: rest.unwrap_or(0),
        };
    }
    let Ok((ip, _)) = Ipv6::split(packet) else { return Flow::default() };
    let (protocol, len) = (ip.next_header(), Ipv6::LEN + usize::from(ip.payload_length()));
    Flow {
        source: words(ip.source_address()),
        destination: words(ip.destination_address()),
        protocol: protocol.0,
        rest: ports(protocol, Ipv6::LEN, len).unwrap_or_else(|| ip.flow_label()),
    }
}

/// The words of an address in the order of the header.
fn words(address: Ipv6Addr) -> [u32; 4] {
    let octets = address.octets();
    let (words, _) = octets.as_chunks::<4>();
    let word = |at: usize| words.get(at).copied().map_or(0, u32::from_le_bytes);
    [word(0), word(1), word(2), word(3)]
}

/// A bijective mix whose upper half depends on all bits (SplitMix64, Steele, Lea, Flood 2014).
const fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Headers of UDP from 192.0.2.7 port 5300 to 198.51.100.53 port 53, and the way back; the same
    /// over IPv6, and in a frame with a VLAN tag.
    const STATIONS: &str = "020000000001020000000002";
    const ASKED: &str = "4500001c00010000401100 00c0000207c6336435 14b4003500080000";
    const ANSWERED: &str = "4500001c00090000401100 00c6336435c0000207 003514b400080000";
    const ASKED6: &str = "6000000000081140 20010db8000000000000000000000007 \
                          20010db8000100000000000000000053 14b4003500080000";
    const ANSWERED6: &str = "6000000000081140 20010db8000100000000000000000053 \
                             20010db8000000000000000000000007 003514b400080000";

    fn octets(hex: &[&str]) -> Vec<u8> {
        let hex = hex.concat();
        let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
        digits.chunks(2).map(|two| u8::try_from(two[0] * 16 + two[1]).unwrap()).collect()
    }

    fn ethernet(hex: &[&str]) -> Option<u32> {
        flow_of(&octets(hex), Framing::Ethernet)
    }

    #[test]
    fn both_ways_are_one_flow_behind_tags_too() {
        for (asked, answered, kind) in [(ASKED, ANSWERED, "0800"), (ASKED6, ANSWERED6, "86dd")] {
            let flow = ethernet(&[STATIONS, kind, asked]);
            assert!(flow.is_some());
            assert_eq!(flow, ethernet(&[STATIONS, kind, answered]));
            let tagged = octets(&[STATIONS, "8100 002a", kind, asked]);
            assert_eq!(flow, flow_of(&tagged, Framing::Ethernet));
            let twice = octets(&[STATIONS, "88a8 0007 8100 002a", kind, asked]);
            assert_eq!(flow, flow_of(&twice, Framing::Ethernet));
            assert_eq!(flow, flow_of(&octets(&[asked]), Framing::Ip), "without a link layer");
        }
        assert_eq!(ethernet(&[STATIONS, "0806", "0001080006040001"]), None);
    }

    #[test]
    fn a_flow_in_one_direction_is_another_than_its_answers() {
        for (asked, answered) in [(ASKED, ANSWERED), (ASKED6, ANSWERED6)] {
            let [asked, answered] = [asked, answered].map(|ip| octets(&[ip]));
            let key = FlowKey::of(&asked).unwrap();
            assert_ne!(Some(key), FlowKey::of(&answered));
            assert_eq!(Some(key), FlowKey::of(&[asked.clone(), vec![1; 9]].concat()));
            let mut other = asked.clone();
            let port = asked.len() - 5;
            other[port] ^= 1;
            assert_ne!(Some(key), FlowKey::of(&other), "another port");
            for len in 0..asked.len() {
                let _either = FlowKey::of(&asked[..len]);
            }
        }
        // Only the first of two fragments has ports.
        let first = "4500001c00012000401100 00c0000207c6336435 14b4003500080000";
        let second = "4500001c00010001401100 00c0000207c6336435 ffffffffffffffff";
        let [first, second] = [first, second].map(|ip| FlowKey::of(&octets(&[ip])));
        assert!(first.is_some() && first == second);
        assert_eq!(first.unwrap().destination(), IpAddr::from([198, 51, 100, 53]));
    }

    #[test]
    fn fragments_stay_together_although_only_the_first_has_ports() {
        let first = "4500001c00012000401100 00c0000207c6336435 14b4003500080000";
        let second = "4500001c00010001401100 00c0000207c6336435 ffffffffffffffff";
        let [first, second] = [first, second].map(|ip| ethernet(&[STATIONS, "0800", ip]));
        assert!(first.is_some());
        assert_eq!(first, second);
    }

    #[test]
    fn flows_are_spread_evenly_over_any_number_of_workers() {
        let flow = |port: u16, host: u8| {
            let mut frame = octets(&[STATIONS, "0800", ASKED]);
            frame[33] = host;
            frame[34..36].copy_from_slice(&port.to_be_bytes());
            flow_of(&frame, Framing::Ethernet).unwrap()
        };
        for workers in 2..=8 {
            let [mut by_port, mut by_host] = [[0; 8]; 2];
            for number in 0..=255_u8 {
                let place = |flow| usize::try_from(flow % workers).unwrap();
                by_port[place(flow(5000 + u16::from(number), 1))] += 1;
                by_host[place(flow(5000, number))] += 1;
            }
            let even = 256 / workers;
            for share in [by_port, by_host].iter().flat_map(|all| all.iter().take(workers as usize))
            {
                assert!(
                    (even / 2..=even * 2).contains(share),
                    "{workers}: {by_port:?} {by_host:?}"
                );
            }
        }
    }

    #[test]
    fn what_is_cut_short_has_a_flow_or_none() {
        for ip in [ASKED, ASKED6] {
            for kind in ["0800", "86dd", "8100"] {
                let frame = octets(&[STATIONS, kind, ip]);
                for len in 0..frame.len() {
                    let _either = flow_of(&frame[..len], Framing::Ethernet);
                    let _either = flow_of(&frame[..len], Framing::Ip);
                }
            }
        }
    }
}
