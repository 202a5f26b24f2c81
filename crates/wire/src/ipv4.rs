//! The Internet protocol, version 4 (RFC 791).

use crate::{
    Checksum, IpProtocol, OptionError, Truncated, Writer, header, option::split_counting_all,
};
use core::net::Ipv4Addr;

header! {
    /// The datagram's header (RFC 791 §3.1).
    Ipv4 = r"
    0                   1                   2                   3
    0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |Version|  IHL  |Type of Service|          Total Length         |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |         Identification        |Flags|      Fragment Offset    |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |  Time to Live |    Protocol   |         Header Checksum       |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |                       Source Address                          |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |                    Destination Address                        |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |                    Options                    |    Padding    |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where version = 4, protocol: IpProtocol, header_checksum: checksum,
        source_address: Ipv4Addr, destination_address: Ipv4Addr, options: [ihl * 4 - 20]
}

/// Octets of the longest header, options included.
pub const HEADER_LEN_MAX: usize = 60;

/// Octets of the longest option list.
pub const OPTIONS_LEN_MAX: usize = HEADER_LEN_MAX - Ipv4::LEN;

/// Octets that every host can receive, after reassembly (RFC 791 §3.1).
pub const DATAGRAM_LEN_MIN: usize = 576;

/// Octets of the smallest maximum transmission unit (RFC 791 §3.2).
pub const MTU_MIN: usize = 68;

/// Octets that one step of the fragment offset counts.
pub const FRAGMENT_UNIT: usize = 8;

impl Ipv4<'_> {
    /// The flag that forbids fragmentation (DF), in [`flags`](Self::flags).
    pub const DONT_FRAGMENT: u8 = 0b010;

    /// The flag of all fragments but the last (MF), in [`flags`](Self::flags).
    pub const MORE_FRAGMENTS: u8 = 0b001;

    /// Octets of header and options.
    pub const fn header_len(self) -> usize {
        self.ihl() as usize * 4
    }

    /// Whether it must not be fragmented.
    pub const fn dont_fragment(self) -> bool {
        self.flags() & Self::DONT_FRAGMENT != 0
    }

    /// Whether fragments follow this one.
    pub const fn more_fragments(self) -> bool {
        self.flags() & Self::MORE_FRAGMENTS != 0
    }

    /// Whether it is one of several fragments.
    pub const fn is_fragment(self) -> bool {
        self.more_fragments() || self.fragment_offset() != 0
    }

    /// Octets of the whole datagram before this fragment.
    pub const fn fragment_start(self) -> usize {
        self.fragment_offset() as usize * FRAGMENT_UNIT
    }

    /// The differentiated services code point (RFC 2474).
    pub const fn dscp(self) -> u8 {
        self.type_of_service() >> 2
    }

    /// The explicit congestion notification bits (RFC 3168).
    pub const fn ecn(self) -> u8 {
        self.type_of_service() & 0b11
    }

    /// Whether the header checksum is right; `options` as [`Ipv4::options`] gives them.
    #[inline]
    pub fn is_checksum_valid(self, options: &[u8]) -> bool {
        let mut checksum = Checksum::new();
        checksum.add(self.as_octets());
        checksum.add(options);
        checksum.is_valid()
    }

    /// The pseudo header of what the datagram carries; `length` in octets of that.
    #[inline]
    pub fn pseudo_header(self, length: u16) -> Checksum {
        let (source, destination) = (self.source_address(), self.destination_address());
        Checksum::pseudo_ipv4(source, destination, self.protocol(), length)
    }
}

impl Ipv4Fields {
    /// A datagram without options: header length set, hop count 64, everything else zero; the
    /// checksum is set by [`emit_with_checksum`](Self::emit_with_checksum).
    pub const fn new(
        protocol: IpProtocol,
        source_address: Ipv4Addr,
        destination_address: Ipv4Addr,
        total_length: u16,
    ) -> Self {
        Self {
            ihl: 5,
            type_of_service: 0,
            total_length,
            identification: 0,
            flags: 0,
            fragment_offset: 0,
            time_to_live: 64,
            protocol,
            header_checksum: 0,
            source_address,
            destination_address,
        }
    }

    /// The header of a datagram without options, its checksum computed.
    #[inline]
    pub fn emit_with_checksum(self) -> [u8; Ipv4::LEN] {
        self.emit_with_options(&[])
    }

    /// The header's fixed part, its checksum computed over itself and `options`, which the caller
    /// puts behind it and has counted in `ihl`.
    #[inline]
    pub fn emit_with_options(mut self, options: &[u8]) -> [u8; Ipv4::LEN] {
        self.header_checksum = 0;
        let mut checksum = Checksum::new();
        checksum.add(&self.emit());
        checksum.add(options);
        self.header_checksum = checksum.finish();
        self.emit()
    }
}

impl Ipv4Mut<'_> {
    /// Decrements the time to live and updates the checksum (RFC 1624); `false` if it was zero.
    #[inline]
    pub fn spend_hop(&mut self) -> bool {
        let (before, checksum) = (self.view().time_to_live(), self.view().header_checksum());
        if before == 0 {
            return false;
        }
        self.set_time_to_live(before - 1);
        // The header's sum is less by 0x0100, so its complement is more; a carry goes around, and
        // so does 0xffff, which no header's checksum is (RFC 1624 §3).
        let (sum, carry) = checksum.overflowing_add(0x0100);
        self.set_header_checksum(sum.wrapping_add(u16::from(carry || sum == u16::MAX)));
        true
    }
}

/// One option (RFC 791 §3.1, RFC 2113).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Ipv4Option<'p> {
    /// Does nothing; fills up to a boundary.
    NoOperation,
    /// Routers must examine the packet although it is not for them (RFC 2113).
    RouterAlert(u16),
    /// The recorded route.
    RecordRoute(AddressList<'p>),
    /// The route to follow, with other hops allowed between.
    LooseSourceRoute(AddressList<'p>),
    /// The route to follow strictly.
    StrictSourceRoute(AddressList<'p>),
    /// Any other option: its whole kind octet and its data.
    Other {
        /// Copied flag, class and number.
        kind: u8,
        /// The octets after the length.
        data: &'p [u8],
    },
}

/// The data of an option that lists addresses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AddressList<'p> {
    /// Octet of the option, counted from 1, where the next address is taken or put.
    pub pointer: u8,
    /// The list, four octets each.
    pub addresses: &'p [[u8; 4]],
}

impl Ipv4Option<'_> {
    /// Kind of the end of the list.
    pub const END: u8 = 0;
    /// Kind of [`NoOperation`](Self::NoOperation).
    pub const NO_OPERATION: u8 = 1;
    /// Kind of [`RecordRoute`](Self::RecordRoute).
    pub const RECORD_ROUTE: u8 = 7;
    /// Kind of [`LooseSourceRoute`](Self::LooseSourceRoute).
    pub const LOOSE_SOURCE_ROUTE: u8 = 131;
    /// Kind of [`StrictSourceRoute`](Self::StrictSourceRoute).
    pub const STRICT_SOURCE_ROUTE: u8 = 137;
    /// Kind of [`RouterAlert`](Self::RouterAlert).
    pub const ROUTER_ALERT: u8 = 148;

    /// Whether options of this kind go into every fragment, not only into the first (RFC 791 §3.1).
    pub const fn is_copied(kind: u8) -> bool {
        kind & 0x80 != 0
    }

    /// Appends the option.
    ///
    /// # Errors
    ///
    /// [`Truncated`] if `writer` is full; what an option may hold at most is 255 octets.
    pub fn emit(self, writer: &mut Writer<'_>) -> Result<(), Truncated> {
        match self {
            Self::NoOperation => writer.put_octet(Self::NO_OPERATION),
            Self::RouterAlert(value) => {
                let [high, low] = value.to_be_bytes();
                writer.put(&[Self::ROUTER_ALERT, 4, high, low])
            }
            Self::RecordRoute(route) => route.emit(Self::RECORD_ROUTE, writer),
            Self::LooseSourceRoute(route) => route.emit(Self::LOOSE_SOURCE_ROUTE, writer),
            Self::StrictSourceRoute(route) => route.emit(Self::STRICT_SOURCE_ROUTE, writer),
            Self::Other { kind, data } => {
                writer.put(&[kind, octet_count(data.len(), 2)?])?;
                writer.put(data)
            }
        }
    }
}

/// Octets of an option with its head, if one octet can count them.
fn octet_count(data: usize, head: usize) -> Result<u8, Truncated> {
    let needed = data.saturating_add(head);
    u8::try_from(needed).map_err(|_| Truncated { needed, found: usize::from(u8::MAX) })
}

impl AddressList<'_> {
    fn emit(self, kind: u8, writer: &mut Writer<'_>) -> Result<(), Truncated> {
        let addresses = self.addresses.as_flattened();
        writer.put(&[kind, octet_count(addresses.len(), 3)?, self.pointer])?;
        writer.put(addresses)
    }
}

/// The options of a header, in order; ends at the end of the list or after the first error.
#[derive(Clone, Debug)]
pub struct Ipv4Options<'p> {
    rest: &'p [u8],
}

impl<'p> Ipv4Options<'p> {
    /// Reads `options`, as [`Ipv4::options`] gives them.
    pub const fn new(options: &'p [u8]) -> Self {
        Self { rest: options }
    }

    fn read(&mut self) -> Result<Option<Ipv4Option<'p>>, OptionError> {
        match self.rest {
            [] | [Ipv4Option::END, ..] => return Ok(None),
            [Ipv4Option::NO_OPERATION, rest @ ..] => {
                self.rest = rest;
                return Ok(Some(Ipv4Option::NoOperation));
            }
            _ => {}
        }
        let Some((kind, data, rest)) = split_counting_all(self.rest)? else { return Ok(None) };
        self.rest = rest;
        let bad = OptionError::Length { kind: u16::from(kind), length: data.len() + 2 };
        let route = || {
            let (&pointer, addresses) = data.split_first().ok_or(bad)?;
            let (addresses, []) = addresses.as_chunks() else { return Err(bad) };
            Ok(AddressList { pointer, addresses })
        };
        Ok(Some(match kind {
            Ipv4Option::RECORD_ROUTE => Ipv4Option::RecordRoute(route()?),
            Ipv4Option::LOOSE_SOURCE_ROUTE => Ipv4Option::LooseSourceRoute(route()?),
            Ipv4Option::STRICT_SOURCE_ROUTE => Ipv4Option::StrictSourceRoute(route()?),
            Ipv4Option::ROUTER_ALERT => {
                Ipv4Option::RouterAlert(u16::from_be_bytes(data.try_into().map_err(|_| bad)?))
            }
            _ => Ipv4Option::Other { kind, data },
        }))
    }
}

impl<'p> Iterator for Ipv4Options<'p> {
    type Item = Result<Ipv4Option<'p>, OptionError>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read().transpose();
        if !matches!(read, Some(Ok(_))) {
            self.rest = &[];
        }
        read
    }
}
