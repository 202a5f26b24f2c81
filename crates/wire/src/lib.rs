//! Views and builders of packet headers, Ethernet and 802.15.4 to MPLS, UDP, TCP and CoAP; checksums.
//!
//! [`header!`](gatewright_wire_macros::header) generates most headers from the diagram of their
//! RFC, which stands in the source as it is printed. Each has four parts, here for
//! [`Udp`](udp::Udp):
//!
//! - `Udp<'p>`, a view: `Udp::split(octets)` takes it off the front, `source_port()` reads a field;
//! - `UdpMut<'p>`, the same to write: `set_source_port(53)`;
//! - `UdpFields`, plain values: `fields.emit()` gives the octets, `udp.fields()` the values;
//! - `Udp::LEN` in octets and `Udp::FIELDS`, the place of each field.
//!
//! Nothing here allocates, and nothing panics whatever the octets are: a view is based on an array
//! whose length the compiler knows, and every iterator over options ends at the first error.
//!
//! ```
//! use gatewright_wire::udp::{Udp, UdpFields};
//!
//! let fields = UdpFields { source_port: 5683, destination_port: 53, length: 9, checksum: 0 };
//! let mut datagram = fields.emit().to_vec();
//! datagram.push(b'!');
//! let (udp, payload) = Udp::split(&datagram)?;
//! assert_eq!((udp.destination_port(), payload), (53, b"!".as_slice()));
//! # Ok::<(), gatewright_wire::Truncated>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![allow(clippy::many_single_char_names, reason = "the octets of a number, in order")]

// What `header!` writes names this crate from outside.
extern crate self as gatewright_wire;

pub mod arp;
pub mod checksum;
pub mod coap;
pub mod dhcpv4;
pub mod ethernet;
mod framing;
pub mod icmpv4;
pub mod icmpv6;
pub mod ieee802154;
pub mod igmp;
pub mod ipv4;
pub mod ipv6;
pub mod lowpan;
pub mod mld;
pub mod mpls;
pub mod ndp;
mod numbers;
mod option;
pub mod partial;
pub mod tcp;
pub mod udp;
pub mod vlan;
mod writer;

pub use checksum::Checksum;
pub use framing::Framing;
pub use gatewright_wire_macros::header;
pub use numbers::{EtherType, IpProtocol, MacAddress, NotAMacAddress, Port};
pub use option::OptionError;
pub use writer::Writer;

use core::fmt;

/// The octets end too early: truncated by the peer or on the way, or the header counts fewer octets
/// than its own fixed part.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Truncated {
    /// Octets needed.
    pub needed: usize,
    /// Octets found.
    pub found: usize,
}

impl fmt::Display for Truncated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} octets where {} are needed", self.found, self.needed)
    }
}

impl core::error::Error for Truncated {}

/// The position of a field in its header.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Field {
    /// Its name, as the getter's.
    pub name: &'static str,
    /// Bits before it.
    pub offset: u32,
    /// Bits of it.
    pub width: u32,
}

impl Field {
    /// The number that the field holds in `header`, the header's own octets; `None` if the header
    /// is too short or the field is wider than 64 bits.
    pub fn read(self, header: &[u8]) -> Option<u64> {
        if self.width > u64::BITS {
            return None;
        }
        let end = self.offset.checked_add(self.width)?;
        (self.offset..end).try_fold(0, |value, bit| {
            let octet = header.get(usize::try_from(bit / 8).ok()?)?;
            Some(value << 1 | u64::from(octet >> (7 - bit % 8) & 1))
        })
    }
}
