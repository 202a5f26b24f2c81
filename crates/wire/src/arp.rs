//! The address resolution protocol, for IPv4 over Ethernet (RFC 826; conflicts: RFC 5227).

use crate::{EtherType, MacAddress, header, numbers::numbers};
use core::net::Ipv4Addr;

header! {
    /// A request or a reply. RFC 826 lists the fields without a diagram: this one is drawn here, for
    /// the one pair of address types that is in use.
    Arp = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |         Hardware Type         |         Protocol Type         |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |Hardware Length|Protocol Length|           Operation           |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                        Sender Hardware                        |
    +                               +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                               |        Sender Protocol        |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |          (continued)          |                               |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+        Target Hardware        +
    |                                                               |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                        Target Protocol                        |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where hardware_type = 1, protocol_type = 0x0800, hardware_length = 6, protocol_length = 4,
        operation: Operation, sender_hardware: MacAddress, sender_protocol: Ipv4Addr,
        target_hardware: MacAddress, target_protocol: Ipv4Addr
}

numbers! {
    /// The operation of an ARP message.
    Operation(u16) {
        REQUEST = 1, "request";
        REPLY = 2, "reply";
    }
}

/// The type of Ethernet frames that carry ARP.
pub const ETHER_TYPE: EtherType = EtherType::ARP;

impl Arp<'_> {
    /// Whether it probes an address before its sender uses it (RFC 5227 §2.1.1).
    pub const fn is_probe(self) -> bool {
        self.operation().0 == Operation::REQUEST.0 && self.sender_protocol().is_unspecified()
    }

    /// Whether it announces the sender's own address: gratuitous ARP (RFC 5227 §2.3).
    pub const fn is_announcement(self) -> bool {
        self.sender_protocol().to_bits() == self.target_protocol().to_bits()
    }
}

impl ArpFields {
    /// A request to the holder of `target`.
    pub const fn request(hardware: MacAddress, protocol: Ipv4Addr, target: Ipv4Addr) -> Self {
        Self {
            operation: Operation::REQUEST,
            sender_hardware: hardware,
            sender_protocol: protocol,
            target_hardware: MacAddress::ZERO,
            target_protocol: target,
        }
    }

    /// The reply to this message by the station `hardware` that holds the requested address.
    #[must_use]
    pub const fn reply(self, hardware: MacAddress) -> Self {
        Self {
            operation: Operation::REPLY,
            sender_hardware: hardware,
            sender_protocol: self.target_protocol,
            target_hardware: self.sender_hardware,
            target_protocol: self.sender_protocol,
        }
    }
}
