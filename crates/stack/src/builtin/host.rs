//! The kernel as a second host at the addresses of an exclusive link.
//!
//! The kernel has a TAP interface with the link's hardware address and IP addresses. It gets what
//! our stack has no use for, and copies of what concerns both. What it sends leaves by the link as
//! it is, so that peers see one host.

use crate::{Context, Counter, Handler};
use gatewright_packet::{Batch, LinkIndex, Packet};
use gatewright_wire::{EtherType, IpProtocol, ethernet::Ethernet};

/// Packets that a [`HostHandler`] carries between a link and the kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HostPart {
    /// Packets for this host that our stack has no use for go to the kernel.
    Deliver,
    /// The kernel gets copies of what concerns it and our stack: answers to its questions about
    /// neighbours, ICMP messages about its packets, datagrams to groups.
    Copy,
    /// The kernel's frames leave by the link.
    Send,
}

/// Carries packets between a link and the kernel's interface beside it, which has the link's
/// hardware address.
#[derive(Debug)]
pub struct HostHandler {
    part: HostPart,
    to: LinkIndex,
    missed: Counter,
}

impl HostHandler {
    /// Carries `part` of the packets to the link `to`, and counts in `missed` those that were not
    /// carried, as no chunk was free or too many came at once.
    pub const fn new(part: HostPart, to: LinkIndex, missed: Counter) -> Self {
        Self { part, to, missed }
    }

    fn send(&self, frame: Packet, context: &mut Context<'_>) {
        if context.send(self.to, frame).is_err() {
            self.missed.add(1);
        }
    }

    /// Sends a packet for this host to the kernel, in a frame to its interface.
    fn deliver(&self, mut packet: Packet, context: &mut Context<'_>) {
        packet.restore_network();
        let is_ipv6 = packet.octets().first().is_some_and(|octet| octet >> 4 == 6);
        let ether_type = if is_ipv6 { EtherType::IPV6 } else { EtherType::IPV4 };
        let own = context.link_address(packet.meta().ingress);
        let mac = own.octets().iter().fold(0, |number, octet| number << 8 | u64::from(*octet));
        // As from our end of the TAP: the kernel answers by its own neighbours.
        let headers = [(ether_type.0.into(), 2), (mac ^ 1, MAC_LEN), (mac, MAC_LEN)];
        let done = headers.into_iter().all(|(number, len): (u64, usize)| {
            let octets = number.to_be_bytes();
            octets.get(octets.len() - len..).is_some_and(|part| packet.prepend(part).is_ok())
        });
        if done {
            self.send(packet, context);
        } else {
            self.missed.add(1);
        }
    }
}

impl Handler for HostHandler {
    fn handle(&mut self, batch: &mut Batch, context: &mut Context<'_>) {
        match self.part {
            HostPart::Deliver => {
                for packet in batch.drain() {
                    self.deliver(packet, context);
                }
            }
            HostPart::Send => {
                for frame in batch.drain() {
                    self.send(frame, context);
                }
            }
            HostPart::Copy => {
                for frame in batch.iter().filter(|frame| concerns_both(frame.octets())) {
                    match context.frames().packet_of(frame.octets()) {
                        Some(mut copy) => {
                            copy.meta_mut().checksum = frame.meta().checksum;
                            self.send(copy, context);
                        }
                        None => self.missed.add(1),
                    }
                }
            }
        }
    }

    fn another(&self) -> Option<Box<dyn Handler>> {
        Some(Box::new(Self { part: self.part, to: self.to, missed: self.missed.part() }))
    }
}

/// Octets of a hardware address.
const MAC_LEN: usize = 6;
/// The bit of a group in a hardware address's first octet (IEEE 802 §8.2).
const GROUP: u8 = 0x01;
/// The operation of an ARP reply (RFC 826).
const ARP_REPLY: [u8; 2] = [0, 2];
/// Echo reply, destination unreachable, time exceeded, parameter problem (RFC 792).
const ICMPV4: [u8; 4] = [0, 3, 11, 12];
/// Errors, echo reply (RFC 4443), neighbour advertisement (RFC 4861 §4.4).
const ICMPV6: [u8; 6] = [1, 2, 3, 4, 129, 136];

/// Whether a frame concerns the kernel beside our stack: answers to questions about neighbours,
/// ICMP messages about packets, datagrams to groups.
fn concerns_both(frame: &[u8]) -> bool {
    let octet = |at: usize| frame.get(at).copied();
    let is_group = octet(0).is_some_and(|first| first & GROUP != 0);
    let Some(&[high, low]) = frame.get(12..Ethernet::LEN).and_then(|type_of| type_of.as_array())
    else {
        return false;
    };
    match EtherType(u16::from_be_bytes([high, low])) {
        EtherType::ARP => !is_group && frame.get(20..22) == Some(&ARP_REPLY),
        EtherType::IPV4 => match octet(23).map(IpProtocol) {
            Some(IpProtocol::UDP) => is_group,
            Some(IpProtocol::ICMPV4) => {
                // The header's length in words of 32 bits (RFC 791 §3.1).
                let header = octet(Ethernet::LEN).map_or(0, |first| usize::from(first & 0xf) * 4);
                octet(Ethernet::LEN + header).is_some_and(|of| ICMPV4.contains(&of))
            }
            _ => false,
        },
        EtherType::IPV6 => match octet(20).map(IpProtocol) {
            Some(IpProtocol::UDP) => is_group,
            // The IPv6 header has 40 octets (RFC 8200 §3).
            Some(IpProtocol::ICMPV6) => {
                octet(Ethernet::LEN + 40).is_some_and(|of| ICMPV6.contains(&of))
            }
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame with these octets at these places.
    fn frame(octets: &[(usize, u8)]) -> Vec<u8> {
        let mut frame = vec![0; 64];
        for (at, octet) in octets {
            frame[*at] = *octet;
        }
        frame
    }

    /// RFC 826: the reply is the kernel's, the question stays ours. RFC 792, 4443, 4861: what is
    /// about packets of either.
    #[test]
    fn the_kernel_gets_copies_of_answers_only() {
        let arp = |operation| frame(&[(12, 8), (13, 6), (21, operation)]);
        assert!(concerns_both(&arp(2)) && !concerns_both(&arp(1)));
        let icmp = |of| frame(&[(12, 8), (14, 0x45), (23, 1), (34, of)]);
        assert!(concerns_both(&icmp(3)) && concerns_both(&icmp(0)) && !concerns_both(&icmp(8)));
        let icmpv6 = |of| frame(&[(12, 0x86), (13, 0xdd), (20, 58), (54, of)]);
        assert!(concerns_both(&icmpv6(136)) && concerns_both(&icmpv6(2)));
        assert!(!concerns_both(&icmpv6(135)) && !concerns_both(&icmpv6(128)));
        let udp = |group| frame(&[(0, group), (12, 8), (14, 0x45), (23, 17)]);
        assert!(concerns_both(&udp(1)) && !concerns_both(&udp(0)));
        for length in 0..60 {
            concerns_both(&icmp(3)[..length]);
        }
    }
}
