//! Reassembly: honest and forged fragments of datagrams whose octets are known beforehand.

use super::{LAN, Links, PORT, WAN, own4, own6, station_of};
use gatewright_packet::LinkIndex;
use gatewright_wire::{
    Checksum, EtherType, IpProtocol, MacAddress,
    ethernet::EthernetFields,
    ipv4::{Ipv4, Ipv4Fields},
    ipv6::{FragmentFields, Ipv6Fields},
    udp::UdpFields,
};
use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

/// Octets of one event.
const EVENT: usize = 6;

/// Senders of each family, and datagrams of each.
const SENDERS: u8 = 4;
const DATAGRAMS: u8 = 4;

/// The port of the first sender.
const FROM: u16 = 5000;

/// Octets of the unit in which fragments begin (RFC 791 §3.2).
const UNIT: usize = 8;

/// A datagram: its family, sender and number decide all of its octets.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Model {
    is_v6: bool,
    sender: u8,
    number: u8,
}

impl Model {
    fn of(octet: u8) -> Self {
        let is_v6 = octet & 1 == 1;
        Self { is_v6, sender: octet >> 1 & (SENDERS - 1), number: octet >> 3 & (DATAGRAMS - 1) }
    }

    fn port(self) -> u16 {
        FROM + u16::from(self.sender)
    }

    fn ends(self) -> (IpAddr, IpAddr) {
        let last = 0x20 + self.sender;
        if self.is_v6 {
            let from = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, last.into());
            (from.into(), own6(LAN).into())
        } else {
            let [a, b, c, _] = own4(LAN).octets();
            (Ipv4Addr::new(a, b, c, last).into(), own4(LAN).into())
        }
    }

    fn payload(self) -> Vec<u8> {
        let seed = usize::from(self.sender) * 31 + usize::from(self.number) * 17;
        let len = 64 + 211 * usize::from(self.sender * DATAGRAMS + self.number);
        (0..len).map(|at| u8::try_from((at * 7 + seed) & 0xff).unwrap_or_default()).collect()
    }

    /// The datagram with its UDP header: over IPv6 it needs a checksum.
    fn datagram(self) -> Vec<u8> {
        let payload = self.payload();
        let length = u16::try_from(payload.len() + 8).unwrap_or_default();
        let header = |checksum| UdpFields {
            source_port: self.port(),
            destination_port: PORT,
            length,
            checksum,
        };
        let mut sum = match self.ends() {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                Checksum::pseudo_ipv4(from, to, IpProtocol::UDP, length)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                Checksum::pseudo_ipv6(from, to, IpProtocol::UDP, length.into())
            }
            _ => Checksum::new(),
        };
        sum.add(&header(0).emit());
        sum.add(&payload);
        [&header(sum.finish_udp()).emit()[..], &payload].concat()
    }

    /// A frame with the octets of a fragment.
    fn frame(self, piece: &Piece, link: LinkIndex) -> Vec<u8> {
        let (start, more) = (u16::try_from(piece.start / UNIT).unwrap_or_default(), piece.more);
        let (ether_type, packet) = match self.ends() {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let total = u16::try_from(Ipv4::LEN + piece.octets.len()).unwrap_or_default();
                let header = Ipv4Fields {
                    identification: self.number.into(),
                    flags: u8::from(more),
                    fragment_offset: start,
                    type_of_service: piece.ecn,
                    ..Ipv4Fields::new(IpProtocol::UDP, from, to, total)
                };
                let header = header.emit_with_checksum();
                (EtherType::IPV4, [&header[..], &piece.octets].concat())
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let length = u16::try_from(8 + piece.octets.len()).unwrap_or_default();
                let fragment = FragmentFields {
                    next_header: IpProtocol::UDP,
                    fragment_offset: start,
                    more_fragments: more,
                    identification: self.number.into(),
                };
                let mut header = Ipv6Fields::new(IpProtocol::FRAGMENT, from, to, length);
                header.traffic_class = piece.ecn;
                let parts = [&header.emit()[..], &fragment.emit(), &piece.octets];
                (EtherType::IPV6, parts.concat())
            }
            _ => return Vec::new(),
        };
        let source = MacAddress([2, 0, 0, 0, 9, self.sender]);
        let ethernet = EthernetFields { destination: station_of(link), source, ether_type };
        [&ethernet.emit()[..], &packet].concat()
    }
}

/// One fragment.
struct Piece {
    start: usize,
    octets: Vec<u8>,
    more: bool,
    ecn: u8,
}

/// Fragments in any order, overlapping, repeated, forged, by either link, at any times. Whatever is
/// delivered is one of the datagrams, octet for octet, unless its sender has forged a fragment.
pub fn reassembly(octets: &[u8]) {
    let Some(mut links) = Links::new() else { return };
    let mut forged = BTreeSet::new();
    let (events, _) = octets.as_chunks::<EVENT>();
    for &[which, start, len, how, pause, noise] in events {
        links.advance(Duration::from_millis(u64::from(pause).pow(2)));
        let model = Model::of(which);
        let datagram = model.datagram();
        // The highest bits choose a whole datagram, so that not all depends on luck.
        let whole = which >> 5 == 0b111;
        let start = if whole { 0 } else { usize::from(start) * UNIT };
        let len = if whole { datagram.len() } else { (usize::from(len) + 1) * UNIT };
        let end = (start + len.min(1448)).min(datagram.len());
        let Some(octets) = datagram.get(start..end) else { continue };
        let more = end < datagram.len();
        let mut piece = Piece { start, octets: octets.to_vec(), more, ecn: how >> 6 };
        if forge(&mut piece, how, noise) {
            forged.insert((model.is_v6, model.sender));
        }
        let link = if how & 0b1000 == 0 { LAN } else { WAN };
        links.receive(link, &model.frame(&piece, link));
        links.sent.clear();
        links.events.clear();
        judge(&links, &forged);
    }
    links.end();
}

/// Changes what the sender of a fragment says; whether it did.
fn forge(piece: &mut Piece, how: u8, noise: u8) -> bool {
    let mut is_forged = false;
    if how & 0b001 != 0
        && noise != 0
        && let Some(last) = piece.octets.last_mut()
    {
        *last ^= noise;
        is_forged = true;
    }
    if how & 0b010 != 0 {
        piece.more = !piece.more;
        is_forged = true;
    }
    if how & 0b100 != 0 {
        piece.start += usize::from(noise) * UNIT * 32;
        is_forged = true;
    }
    is_forged
}

fn judge(links: &Links, forged: &BTreeSet<(bool, u8)>) {
    for (from, octets) in links.delivered.try_iter() {
        let sender = u8::try_from(from.port().saturating_sub(FROM)).unwrap_or_default();
        let is_v6 = from.is_ipv6();
        if forged.contains(&(is_v6, sender)) {
            continue;
        }
        let is_one =
            (0..DATAGRAMS).any(|number| Model { is_v6, sender, number }.payload() == octets);
        assert!(is_one, "{} octets from {from} are none of its datagrams", octets.len());
    }
}
