//! The kernel as a second host at the addresses of an exclusive link.
//!
//! The kernel has a TAP interface with the link's hardware address and IP addresses. It gets what
//! our stack has no use for, and copies of what concerns both. What it sends leaves by the link as
//! it is, so that peers see one host. Beside links shared with the kernel, what comes by those for
//! the link's addresses is handled in the same way.

use crate::{Context, Counter, Handler};
use gatewright_packet::{Batch, LinkIndex, Packet};
use gatewright_wire::{EtherType, IpProtocol, ethernet::Ethernet};
use std::net::IpAddr;

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

    /// The hardware addresses of our end of the TAP and of the kernel's, which differ in their last
    /// bit. The kernel's is the address of the link beside it, which packets of other links, those
    /// shared with the kernel, did not come by.
    fn ends(&self, packet: &Packet, context: &Context<'_>) -> [[u8; MAC_LEN]; 2] {
        let ingress = packet.meta().ingress;
        let other_end = |mut end: [u8; MAC_LEN]| {
            let [.., last] = &mut end;
            *last ^= 1;
            end
        };
        let address = |link| context.link_address(link).to_ethernet().unwrap_or_default();
        if context.host.is_some_and(|host| host.is_shared(ingress)) {
            let own = address(self.to);
            [own, other_end(own)]
        } else {
            let kernels = address(ingress);
            [other_end(kernels), kernels]
        }
    }

    /// Sends the kernel a copy of a frame to its interface. One with an IP packet `for_host` may have
    /// come by a shared link, whose address is another.
    fn copy(&self, frame: &Packet, for_host: bool, context: &mut Context<'_>) {
        let [_, kernels] = self.ends(frame, context);
        let Some(mut copy) = context.frames().packet_of(frame.octets()) else {
            self.missed.add(1);
            return;
        };
        copy.meta_mut().checksum = frame.meta().checksum;
        if let Some(to) = copy.octets_mut().first_chunk_mut().filter(|_| for_host) {
            *to = kernels;
        }
        self.send(copy, context);
    }

    /// Sends a packet for this host to the kernel, in a frame to its interface.
    fn deliver(&self, mut packet: Packet, context: &mut Context<'_>) {
        packet.restore_network();
        let is_ipv6 = packet.octets().first().is_some_and(|octet| octet >> 4 == 6);
        let ether_type = if is_ipv6 { EtherType::IPV6 } else { EtherType::IPV4 };
        let [own, kernels] = self
            .ends(&packet, context)
            .map(|end| end.iter().fold(0, |number, octet| number << 8 | u64::from(*octet)));
        // As from our end of the TAP: the kernel answers by its own neighbours.
        let headers = [(ether_type.0.into(), 2), (own, MAC_LEN), (kernels, MAC_LEN)];
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
                    // What is only forwarded, the kernel would forward once more.
                    let to = one_destination(frame.octets());
                    if !to.is_some_and(|to| context.is_forwarded(to)) {
                        self.copy(frame, to.is_some(), context);
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

/// The address that a frame's IP packet is for; none if it is for a group of stations, or no IP packet.
fn one_destination(frame: &[u8]) -> Option<IpAddr> {
    // Both headers have the destination at their end (RFC 791 §3.1, RFC 8200 §3).
    let (destination4, destination6) = (frame.get(30..34), frame.get(38..54));
    let is_group = frame.first().is_some_and(|first| first & GROUP != 0);
    let ether_type = EtherType(u16::from_be_bytes(*frame.get(12..14)?.as_array()?));
    match ether_type {
        _ if is_group => None,
        EtherType::IPV4 => Some(IpAddr::from(*destination4?.as_array::<4>()?)),
        EtherType::IPV6 => Some(IpAddr::from(*destination6?.as_array::<16>()?)),
        _ => None,
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
            one_destination(&icmp(3)[..length]);
        }
    }

    #[test]
    fn the_destination_of_one_host_is_read_from_its_frame() {
        let v4 = frame(&[(12, 8), (30, 192), (32, 2), (33, 1)]);
        assert_eq!(one_destination(&v4), Some("192.0.2.1".parse().unwrap()));
        let v6 = frame(&[(12, 0x86), (13, 0xdd), (38, 0x20), (53, 9)]);
        assert_eq!(one_destination(&v6), Some("2000::9".parse().unwrap()));
        let arp = frame(&[(12, 8), (13, 6)]);
        let group = frame(&[(0, GROUP), (12, 8)]);
        assert!(one_destination(&arp).is_none() && one_destination(&group).is_none());
    }
}
