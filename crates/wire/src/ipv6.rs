//! The Internet protocol, version 6, and its extension headers (RFC 8200).

mod upper;

pub use upper::{ChainError, HEADERS_MAX, UpperLayer};

use crate::{Checksum, IpProtocol, OptionError, Truncated, Writer, header};
use core::net::Ipv6Addr;

header! {
    /// The packet's header (RFC 8200 §3).
    Ipv6 = r"
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |Version| Traffic Class |           Flow Label                  |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |         Payload Length        |  Next Header  |   Hop Limit   |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                                                               |
    +                                                               +
    |                                                               |
    +                         Source Address                        +
    |                                                               |
    +                                                               +
    |                                                               |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                                                               |
    +                                                               +
    |                                                               |
    +                      Destination Address                      +
    |                                                               |
    +                                                               +
    |                                                               |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where version = 6, next_header: IpProtocol, source_address: Ipv6Addr,
        destination_address: Ipv6Addr
}

header! {
    /// Hop-by-hop (RFC 8200 §4.3) and destination options (§4.6): one shape.
    ExtensionOptions = r"
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |  Next Header  |  Hdr Ext Len  |                               |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+                               +
    |                                                               |
    .                                                               .
    .                            Options                            .
    .                                                               .
    |                                                               |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where next_header: IpProtocol, options: [hdr_ext_len * 8 + 6]
}

header! {
    /// Routing (RFC 8200 §4.4).
    Routing = r"
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |  Next Header  |  Hdr Ext Len  |  Routing Type | Segments Left |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                                                               |
    .                                                               .
    .                       type-specific data                      .
    .                                                               .
    |                                                               |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where next_header: IpProtocol, type_specific_data: [hdr_ext_len * 8 + 4]
}

header! {
    /// Fragment (RFC 8200 §4.5); the offset counts eight octets each.
    Fragment = r"
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |  Next Header  |   Reserved    |      Fragment Offset    |Res|M|
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                         Identification                        |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where next_header: IpProtocol, m as more_fragments
}

/// Octets of the smallest maximum transmission unit (RFC 8200 §5).
pub const MTU_MIN: usize = 1280;

/// Octets that one step of the fragment offset counts.
pub const FRAGMENT_UNIT: usize = 8;

impl Ipv6<'_> {
    /// The differentiated services code point (RFC 2474).
    pub const fn dscp(self) -> u8 {
        self.traffic_class() >> 2
    }

    /// The explicit congestion notification bits (RFC 3168).
    pub const fn ecn(self) -> u8 {
        self.traffic_class() & 0b11
    }

    /// The pseudo header of an upper-layer packet of `length` octets; `next_header` is that packet's
    /// protocol, not that of an extension header (RFC 8200 §8.1).
    #[inline]
    pub fn pseudo_header(self, next_header: IpProtocol, length: u32) -> Checksum {
        let (source, destination) = (self.source_address(), self.destination_address());
        Checksum::pseudo_ipv6(source, destination, next_header, length)
    }
}

impl Fragment<'_> {
    /// Octets of the fragmentable part before this fragment.
    pub const fn fragment_start(self) -> usize {
        self.fragment_offset() as usize * FRAGMENT_UNIT
    }
}

impl Ipv6Fields {
    /// A packet with hop limit 64 and no traffic class or flow label.
    pub const fn new(
        next_header: IpProtocol,
        source_address: Ipv6Addr,
        destination_address: Ipv6Addr,
        payload_length: u16,
    ) -> Self {
        Self {
            traffic_class: 0,
            flow_label: 0,
            payload_length,
            next_header,
            hop_limit: 64,
            source_address,
            destination_address,
        }
    }
}

/// One option of a hop-by-hop or destination options header (RFC 8200 §4.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Ipv6Option<'p> {
    /// One octet of padding.
    Pad1,
    /// Two and more octets of padding: their number without kind and length.
    PadN(u8),
    /// Routers must examine the packet although it is not for them (RFC 2711).
    RouterAlert(u16),
    /// Octets of a payload beyond 65535 (RFC 2675).
    JumboPayload(u32),
    /// Any other option.
    Other {
        /// The action if it is unknown, whether it may change in transit, and its number.
        kind: u8,
        /// The octets after the length.
        data: &'p [u8],
    },
}

/// The action for an unknown option (RFC 8200 §4.2, the two highest bits).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unrecognized {
    /// Skip over it.
    Skip,
    /// Discard the packet.
    Discard,
    /// Discard it and send a parameter problem, code 2.
    Report,
    /// Discard it and send a parameter problem, code 2, unless the destination was multicast.
    ReportUnicast,
}

impl Ipv6Option<'_> {
    /// Kind of [`Pad1`](Self::Pad1).
    pub const PAD1: u8 = 0;
    /// Kind of [`PadN`](Self::PadN).
    pub const PAD_N: u8 = 1;
    /// Kind of [`RouterAlert`](Self::RouterAlert).
    pub const ROUTER_ALERT: u8 = 5;
    /// Kind of [`JumboPayload`](Self::JumboPayload).
    pub const JUMBO_PAYLOAD: u8 = 0xc2;

    /// The action of a node that does not know the kind.
    pub const fn unrecognized(kind: u8) -> Unrecognized {
        match kind >> 6 {
            0 => Unrecognized::Skip,
            1 => Unrecognized::Discard,
            2 => Unrecognized::Report,
            _ => Unrecognized::ReportUnicast,
        }
    }

    /// Whether the data may change on the way.
    pub const fn may_change(kind: u8) -> bool {
        kind & 0x20 != 0
    }

    /// Appends the option; the caller ensures its alignment.
    ///
    /// # Errors
    ///
    /// [`Truncated`] if `writer` is full, or the data is longer than 255 octets.
    pub fn emit(self, writer: &mut Writer<'_>) -> Result<(), Truncated> {
        match self {
            Self::Pad1 => writer.put_octet(Self::PAD1),
            Self::PadN(length) => {
                writer.put(&[Self::PAD_N, length])?;
                (0..length).try_for_each(|_| writer.put_octet(0))
            }
            Self::RouterAlert(value) => {
                let [high, low] = value.to_be_bytes();
                writer.put(&[Self::ROUTER_ALERT, 2, high, low])
            }
            Self::JumboPayload(length) => {
                let [a, b, c, d] = length.to_be_bytes();
                writer.put(&[Self::JUMBO_PAYLOAD, 4, a, b, c, d])
            }
            Self::Other { kind, data } => {
                let (needed, found) = (data.len(), usize::from(u8::MAX));
                let length = u8::try_from(needed).map_err(|_| Truncated { needed, found })?;
                writer.put(&[kind, length])?;
                writer.put(data)
            }
        }
    }
}

/// The options of an extension header, padding included; ends at the end or after the first error.
#[derive(Clone, Debug)]
pub struct Ipv6Options<'p> {
    rest: &'p [u8],
}

impl<'p> Ipv6Options<'p> {
    /// Reads `options`, as [`ExtensionOptions::options`] gives them.
    pub const fn new(options: &'p [u8]) -> Self {
        Self { rest: options }
    }

    /// Octets not yet read, from which the position of an option follows.
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    fn read(&mut self) -> Result<Option<Ipv6Option<'p>>, OptionError> {
        let Some((&kind, rest)) = self.rest.split_first() else { return Ok(None) };
        if kind == Ipv6Option::PAD1 {
            self.rest = rest;
            return Ok(Some(Ipv6Option::Pad1));
        }
        let found = self.rest.len();
        let truncated = |needed| OptionError::Truncated { kind: u16::from(kind), needed, found };
        let (&length, rest) = rest.split_first().ok_or(truncated(2))?;
        let data = rest.split_at_checked(usize::from(length));
        let (data, rest) = data.ok_or(truncated(usize::from(length) + 2))?;
        self.rest = rest;
        let bad = OptionError::Length { kind: u16::from(kind), length: usize::from(length) };
        Ok(Some(match kind {
            Ipv6Option::PAD_N => Ipv6Option::PadN(length),
            Ipv6Option::ROUTER_ALERT => {
                Ipv6Option::RouterAlert(u16::from_be_bytes(data.try_into().map_err(|_| bad)?))
            }
            Ipv6Option::JUMBO_PAYLOAD => {
                Ipv6Option::JumboPayload(u32::from_be_bytes(data.try_into().map_err(|_| bad)?))
            }
            _ => Ipv6Option::Other { kind, data },
        }))
    }
}

impl<'p> Iterator for Ipv6Options<'p> {
    type Item = Result<Ipv6Option<'p>, OptionError>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read().transpose();
        if !matches!(read, Some(Ok(_))) {
            self.rest = &[];
        }
        read
    }
}
