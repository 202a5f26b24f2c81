//! Partial checksums: a TCP, UDP or SCTP checksum that the sender left to its device.
//!
//! A kernel that sends over a link with checksum offload (veth, virtio, TAP) writes only the sum of
//! the pseudo-header into the field, folded and *not* complemented. It relies on the device for the
//! rest. Where we are the device, [`complete`] does it. SCTP has no pseudo-header; its kernel
//! leaves the field zero.
//!
//! AF_XDP does not mark these frames. [`is_partial`] decides by the field itself. A frame whose
//! complete checksum equals that sum by chance comes out of [`complete`] unchanged, if it is valid;
//! a corrupted one passes as valid once in 2¹⁶ times. So it is used only on links that can carry
//! partial checksums.

use crate::{Checksum, framing::TAGS_MAX};

pub use crate::framing::Framing;

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

/// Whether the frame is an unfragmented TCP or UDP packet whose checksum field holds the folded,
/// uncomplemented sum of its pseudo-header, or an SCTP packet whose checksum field is zero.
pub fn is_partial(octets: &[u8], framing: Framing) -> bool {
    let Some(transport) = locate(octets, framing) else { return false };
    let field = octets.get(transport.field..).unwrap_or_default();
    if transport.protocol == SCTP {
        return field.starts_with(&[0; 4]);
    }
    field.first_chunk().is_some_and(|&sum| u16::from_be_bytes(sum) == transport.pseudo_header)
}

/// Computes the TCP, UDP or SCTP checksum of the frame over all covered octets, and writes it.
/// Returns whether there was one to compute (an unfragmented packet that is all there).
pub fn complete(octets: &mut [u8], framing: Framing) -> bool {
    let Some(transport) = locate(octets, framing) else { return false };
    if transport.protocol == SCTP {
        return complete_sctp(octets, &transport);
    }
    complete_from(
        octets,
        transport.start,
        transport.field,
        transport.end,
        Some(transport.pseudo_header),
        transport.protocol == UDP,
    )
}

/// Computes the checksum over `start..end`, in which the field at `field` holds the folded sum of
/// the pseudo-header already; returns whether the positions lie within the frame.
///
/// For packets whose field position is given by a device (`csum_start`, `csum_offset` of virtio).
pub fn complete_at(octets: &mut [u8], start: usize, field: usize) -> bool {
    let end = octets.len();
    complete_from(octets, start, field, end, None, true)
}

/// `pseudo_header` replaces what the field holds; `None` keeps it in the sum.
fn complete_from(
    octets: &mut [u8],
    start: usize,
    field: usize,
    end: usize,
    pseudo_header: Option<u16>,
    zero_is_none: bool,
) -> bool {
    if let Some(sum) = pseudo_header {
        let Some(place) = octets.get_mut(field..).and_then(|rest| rest.first_chunk_mut()) else {
            return false;
        };
        *place = sum.to_be_bytes();
    }
    let Some(covered) = octets.get(start..end) else { return false };
    let mut checksum = Checksum::new();
    checksum.add(covered);
    // RFC 768: "If the computed checksum is zero, it is transmitted as all ones."
    let checksum = if zero_is_none { checksum.finish_udp() } else { checksum.finish() };
    let Some(place) = octets.get_mut(field..).and_then(|rest| rest.first_chunk_mut()) else {
        return false;
    };
    *place = checksum.to_be_bytes();
    true
}

/// The folded, uncomplemented sum of the pseudo-header of an IP packet's transport, as a kernel
/// leaves it in a partial checksum; and where the field is. `None` unless the packet is
/// unfragmented TCP or UDP.
pub fn pseudo_header(octets: &[u8], framing: Framing) -> Option<(usize, u16)> {
    let transport = locate(octets, framing).filter(|transport| transport.protocol != SCTP)?;
    Some((transport.field, transport.pseudo_header))
}

/// The position of the checksum field of an unfragmented TCP, UDP or SCTP packet.
pub fn field(octets: &[u8], framing: Framing) -> Option<usize> {
    locate(octets, framing).map(|transport| transport.field)
}

/// The CRC32c of an SCTP packet, with the field taken as zero (RFC 9260 §6.8 and appendix A).
fn complete_sctp(octets: &mut [u8], transport: &TransportOffset) -> bool {
    let Some(packet) = octets.get_mut(transport.start..transport.end) else { return false };
    let at = transport.field - transport.start;
    let Some(place) = packet.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) else {
        return false;
    };
    *place = [0; 4];
    let checksum = crc32c(packet);
    if let Some(place) = packet.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *place = checksum.to_le_bytes();
    }
    true
}

/// The Castagnoli polynomial, lowest bit first (RFC 9260, appendix A). Bit by bit: SCTP without its
/// checksum is too rare on a gateway to keep a table warm for.
fn crc32c(octets: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let next = |crc: u32, &octet: &u8| {
        (0..8).fold(crc ^ u32::from(octet), |crc, _| {
            (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 }
        })
    };
    !octets.iter().fold(u32::MAX, next)
}

/// The position of a packet's transport header.
struct TransportOffset {
    protocol: u8,
    start: usize,
    end: usize,
    field: usize,
    pseudo_header: u16,
}

fn locate(octets: &[u8], framing: Framing) -> Option<TransportOffset> {
    let start = match framing {
        Framing::Ethernet => network_start(octets)?,
        Framing::Ip => 0,
    };
    let packet = octets.get(start..)?;
    match packet.first()? >> 4 {
        4 => locate_ipv4(packet, start),
        6 => locate_ipv6(packet, start),
        _ => None,
    }
}

/// The position of the IP header in an Ethernet frame, after at most two VLAN tags.
pub fn network_start(frame: &[u8]) -> Option<usize> {
    let mut at = 12;
    for _ in 0..=TAGS_MAX {
        match u16::from_be_bytes(*frame.get(at..)?.first_chunk()?) {
            0x0800 | 0x86dd => return Some(at + 2),
            // 802.1Q and 802.1ad tags.
            0x8100 | 0x88a8 => at += 4,
            _ => return None,
        }
    }
    None
}

fn locate_ipv4(packet: &[u8], offset: usize) -> Option<TransportOffset> {
    let header: &[u8; 20] = packet.first_chunk()?;
    let [first, _, len_1, len_2, _, _, fragment_1, fragment_2, _, protocol, _, _, addresses @ ..] =
        header;
    let header_len = usize::from(first & 0x0f) * 4;
    let len = usize::from(u16::from_be_bytes([*len_1, *len_2]));
    // More fragments, or an offset: only the first fragment has the field, and none has all of
    // what it covers.
    let fragment = u16::from_be_bytes([*fragment_1, *fragment_2]) & 0x3fff;
    if fragment != 0 || header_len < 20 {
        return None;
    }
    transport(packet, offset, header_len, len, *protocol, addresses)
}

fn locate_ipv6(packet: &[u8], offset: usize) -> Option<TransportOffset> {
    const HEADERS_MAX: usize = 8;
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const DESTINATION: u8 = 60;
    let header: &[u8; 40] = packet.first_chunk()?;
    let [_, _, _, _, len_1, len_2, next, _, addresses @ ..] = header;
    let end = 40 + usize::from(u16::from_be_bytes([*len_1, *len_2]));
    let (mut next, mut start) = (*next, 40);
    for _ in 0..HEADERS_MAX {
        let extension: &[u8; 4] = match next {
            TCP | UDP | SCTP => return transport(packet, offset, start, end, next, addresses),
            HOP_BY_HOP | ROUTING | DESTINATION => packet.get(start..)?.first_chunk()?,
            _ => return None,
        };
        let [following, len, _, segments_left] = *extension;
        // On its way the pseudo-header has the last address of the route, not this destination.
        if next == ROUTING && segments_left != 0 {
            return None;
        }
        (next, start) = (following, start + 8 + usize::from(len) * 8);
    }
    None
}

fn transport(
    packet: &[u8],
    offset: usize,
    start: usize,
    end: usize,
    protocol: u8,
    addresses: &[u8],
) -> Option<TransportOffset> {
    let (header_len, field) = match protocol {
        TCP => (20, 16),
        UDP => (8, 6),
        SCTP => (12, 8),
        _ => return None,
    };
    let len = end.checked_sub(start).filter(|&len| len >= header_len)?;
    if end > packet.len() {
        return None;
    }
    let mut sum = Checksum::new();
    sum.add(addresses);
    sum.add(&u32::try_from(len).ok()?.to_be_bytes());
    sum.add_word(u16::from(protocol));
    Some(TransportOffset {
        protocol,
        start: offset + start,
        end: offset + end,
        field: offset + start + field,
        pseudo_header: sum.sum(),
    })
}
