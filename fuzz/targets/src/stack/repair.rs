//! Repairs what a mutation breaks first and every layer checks first: versions, lengths and
//! checksums. Without it a mutated frame is dropped where it enters.

use gatewright_wire::{
    Checksum, EtherType, IpProtocol, checksum,
    ipv4::Ipv4Mut,
    ipv6::{Ipv6, Ipv6Mut, UpperLayer},
    udp::Udp,
};

/// Octets of an Ethernet header, and of a tag.
const ETHERNET: usize = 14;
const TAG: usize = 4;

/// The beginning of an ARP message for IPv4 over Ethernet (RFC 826).
const ARP: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// The octets of a DHCP message's transaction in its datagram, behind the UDP header.
const DHCP_XID: core::ops::Range<usize> = 12..16;

/// The destination of the IP packet in a frame: the octets of its address.
pub(super) fn destination(frame: &[u8]) -> Option<&[u8]> {
    let (ether_type, at) = payload(frame)?;
    match ether_type {
        EtherType::IPV4 => frame.get(at + 16..at + 20),
        EtherType::IPV6 => frame.get(at + 24..at + 40),
        _ => None,
    }
}

/// Repairs a frame; a DHCP answer becomes one of the transaction `xid`.
pub(super) fn repair(frame: &mut [u8], xid: [u8; 4]) {
    let Some((ether_type, at)) = payload(frame) else { return };
    let Some(packet) = frame.get_mut(at..) else { return };
    // Whatever cannot be repaired stays as it is: that, too, is to be survived.
    let _left = match ether_type {
        EtherType::ARP => packet.get_mut(..ARP.len()).map(|head| head.copy_from_slice(&ARP)),
        EtherType::IPV4 => ipv4(packet, xid),
        EtherType::IPV6 => ipv6(packet),
        _ => None,
    };
}

/// The type and place of a frame's payload, behind at most two tags.
fn payload(frame: &[u8]) -> Option<(EtherType, usize)> {
    let mut at = ETHERNET;
    loop {
        let &[high, low] = frame.get(at - 2..at)?.first_chunk()?;
        let ether_type = EtherType(u16::from_be_bytes([high, low]));
        if ether_type != EtherType::VLAN || at > ETHERNET + TAG {
            return Some((ether_type, at));
        }
        at += TAG;
    }
}

/// A length that is there, or else all that is there.
fn fitting(length: u16, least: usize, available: usize) -> Option<u16> {
    let fits = (least..=available).contains(&usize::from(length));
    if fits { Some(length) } else { u16::try_from(available).ok() }
}

fn ipv4(packet: &mut [u8], xid: [u8; 4]) -> Option<()> {
    let available = packet.len();
    let words = (packet.first()? & 0xf).clamp(5, 15);
    let words = words.min(u8::try_from(available / 4).unwrap_or(15));
    *packet.first_mut()? = 0x40 | words;
    let header_len = usize::from(words) * 4;
    let mut header = Ipv4Mut::of(packet.first_chunk_mut()?);
    let total = fitting(header.view().total_length(), header_len, available)?;
    header.set_total_length(total);
    let view = header.view();
    let (is_fragment, protocol) = (view.is_fragment(), view.protocol());
    let length = total.checked_sub(u16::from(words) * 4)?;
    let pseudo = view.pseudo_header(length);
    header.set_header_checksum(0);
    let sum = checksum::of(packet.get(..header_len)?);
    Ipv4Mut::of(packet.first_chunk_mut()?).set_header_checksum(sum);
    if is_fragment {
        return None;
    }
    let payload = packet.get_mut(header_len..usize::from(total))?;
    upper(protocol, payload, |_| pseudo, Some(xid))
}

fn ipv6(packet: &mut [u8]) -> Option<()> {
    let available = packet.len().checked_sub(Ipv6::LEN)?;
    *packet.first_mut()? = 0x60 | packet.first()? & 0xf;
    let mut header = Ipv6Mut::of(packet.first_chunk_mut()?);
    let length = fitting(header.view().payload_length(), 1, available)?;
    header.set_payload_length(length);
    let packet = packet.get_mut(..Ipv6::LEN + usize::from(length))?;
    let found = UpperLayer::find(packet).ok()?;
    if found.fragment.is_some_and(|of| of.more_fragments || of.fragment_offset != 0) {
        return None;
    }
    let (head, payload) = packet.split_at_mut_checked(found.offset)?;
    let (ip, _) = Ipv6::split(head).ok()?;
    upper(found.protocol, payload, |length| ip.pseudo_header(found.protocol, length.into()), None)
}

/// Repairs the upper layer; only over IPv4 there is a DHCP transaction, and a UDP datagram may have
/// no checksum.
fn upper(
    protocol: IpProtocol,
    payload: &mut [u8],
    pseudo: impl Fn(u16) -> Checksum,
    xid: Option<[u8; 4]>,
) -> Option<()> {
    let available = payload.len();
    let whole = u16::try_from(available).ok()?;
    match protocol {
        IpProtocol::UDP => {
            let (udp, _) = Udp::split(payload).ok()?;
            let length = fitting(udp.length(), Udp::LEN, available)?;
            let (none, to_client) = (udp.checksum() == 0, udp.destination_port() == 68);
            payload.get_mut(4..6)?.copy_from_slice(&length.to_be_bytes());
            if to_client && let (Some(xid), Some(field)) = (xid, payload.get_mut(DHCP_XID)) {
                field.copy_from_slice(&xid);
            }
            let payload = payload.get_mut(..usize::from(length))?;
            let pseudo = pseudo(length);
            // RFC 768: zero is none. Datagrams of an odd length get one, so that both occur.
            let stays = xid.is_some() && none && length % 2 == 0;
            if stays { None } else { sum_into(payload, 6, pseudo) }
        }
        IpProtocol::TCP => sum_into(payload, 16, pseudo(whole)),
        IpProtocol::ICMPV6 => sum_into(payload, 2, pseudo(whole)),
        IpProtocol::ICMPV4 | IpProtocol::IGMP => sum_into(payload, 2, Checksum::new()),
        _ => None,
    }
}

/// Writes the checksum of `octets` at `at` among them.
fn sum_into(octets: &mut [u8], at: usize, mut sum: Checksum) -> Option<()> {
    octets.get_mut(at..at + 2)?.fill(0);
    sum.add(octets);
    let sum = sum.finish_udp().to_be_bytes();
    octets.get_mut(at..at + 2)?.copy_from_slice(&sum);
    Some(())
}
