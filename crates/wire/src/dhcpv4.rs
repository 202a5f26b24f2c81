//! Dynamic host configuration (RFC 2131) and its options (RFC 2132, RFC 3442).

use crate::{OptionError, Truncated, Writer, header, numbers::numbers};
use core::net::Ipv4Addr;

header! {
    /// A message without its options (RFC 2131 §2); seconds since the client began.
    Dhcpv4 = r"
   0                   1                   2                   3
   0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |     op (1)    |   htype (1)   |   hlen (1)    |   hops (1)    |
   +---------------+---------------+---------------+---------------+
   |                            xid (4)                            |
   +-------------------------------+-------------------------------+
   |           secs (2)            |           flags (2)           |
   +-------------------------------+-------------------------------+
   |                          ciaddr  (4)                          |
   +---------------------------------------------------------------+
   |                          yiaddr  (4)                          |
   +---------------------------------------------------------------+
   |                          siaddr  (4)                          |
   +---------------------------------------------------------------+
   |                          giaddr  (4)                          |
   +---------------------------------------------------------------+
   |                                                               |
   |                          chaddr  (16)                         |
   |                                                               |
   |                                                               |
   +---------------------------------------------------------------+
   |                                                               |
   |                          sname   (64)                         |
   +---------------------------------------------------------------+
   |                                                               |
   |                          file    (128)                        |
   +---------------------------------------------------------------+
   |                                                               |
   |                          options (variable)                   |
   +---------------------------------------------------------------+
    " where op: Operation, ciaddr: Ipv4Addr, yiaddr: Ipv4Addr, siaddr: Ipv4Addr, giaddr: Ipv4Addr,
        chaddr: octets
}

numbers! {
    /// The direction of the message.
    Operation(u8) {
        BOOT_REQUEST = 1, "BOOTREQUEST";
        BOOT_REPLY = 2, "BOOTREPLY";
    }

    /// The type of the message (RFC 2132 §9.6).
    DhcpType(u8) {
        DISCOVER = 1, "DHCPDISCOVER";
        OFFER = 2, "DHCPOFFER";
        REQUEST = 3, "DHCPREQUEST";
        DECLINE = 4, "DHCPDECLINE";
        ACK = 5, "DHCPACK";
        NAK = 6, "DHCPNAK";
        RELEASE = 7, "DHCPRELEASE";
        INFORM = 8, "DHCPINFORM";
    }
}

/// Hardware type of Ethernet.
pub const HARDWARE_ETHERNET: u8 = 1;

/// The flag of clients that can only receive broadcast answers (RFC 2131 §2).
pub const FLAG_BROADCAST: u16 = 0x8000;

/// The magic cookie before the options (RFC 2131 §3).
pub const MAGIC_COOKIE: [u8; 4] = [99, 130, 83, 99];

/// Octets of the shortest message: older relays and servers drop shorter ones (RFC 1542 §2.1).
pub const MESSAGE_LEN_MIN: usize = 300;

/// Octets of the options that every client takes: a message of 576 with its IP and UDP headers
/// (RFC 2131 §2).
pub const OPTIONS_LEN_MIN: usize = 312;

/// One option (RFC 2132).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum DhcpOption<'p> {
    /// Mask of the client's subnet.
    SubnetMask(Ipv4Addr),
    /// Routers of the subnet, the preferred one first.
    Routers(&'p [[u8; 4]]),
    /// Resolvers, the preferred one first.
    DomainNameServers(&'p [[u8; 4]]),
    /// The client's name.
    HostName(&'p [u8]),
    /// The domain that names are looked up in.
    DomainName(&'p [u8]),
    /// The largest packet of the link, in octets.
    InterfaceMtu(u16),
    /// The subnet's broadcast address.
    BroadcastAddress(Ipv4Addr),
    /// The address that the client requests.
    RequestedAddress(Ipv4Addr),
    /// Lease time in seconds, granted or requested.
    LeaseTime(u32),
    /// Whether *file* (1), *sname* (2) or both (3) hold options.
    Overload(u8),
    /// The message type, present in every message.
    MessageType(DhcpType),
    /// The server's address, which identifies the server.
    ServerIdentifier(Ipv4Addr),
    /// The options that the client requests.
    ParameterRequestList(&'p [u8]),
    /// The reason of a failure, for people.
    Message(&'p [u8]),
    /// Octets of the longest message that the client takes.
    MaximumMessageSize(u16),
    /// Seconds until the client asks its server again (T1).
    RenewalTime(u32),
    /// Seconds until the client asks any server (T2).
    RebindingTime(u32),
    /// The class of the client.
    VendorClass(&'p [u8]),
    /// The identifier of the client: a type and a value.
    ClientIdentifier(&'p [u8]),
    /// Routes: width of the prefix, its octets, router (RFC 3442).
    ClasslessRoutes(&'p [u8]),
    /// Any other option.
    Other {
        /// Its number.
        kind: u8,
        /// The octets after the length.
        data: &'p [u8],
    },
}

/// Declares the number of each option beside its variant, once for reading and writing.
macro_rules! kinds {
    ($($constant:ident = $number:literal $variant:ident;)*) => {
        impl DhcpOption<'_> {
            /// Fills up; has no length.
            pub const PAD: u8 = 0;
            /// Ends the list.
            pub const END: u8 = 255;
            $(#[doc = concat!("Number of [`", stringify!($variant), "`](Self::", stringify!($variant), ").")]
            pub const $constant: u8 = $number;)*

            /// The option's number.
            pub const fn kind(&self) -> u8 {
                match self {
                    $(Self::$variant(..) => Self::$constant,)*
                    Self::Other { kind, .. } => *kind,
                }
            }
        }
    };
}

kinds! {
    SUBNET_MASK = 1 SubnetMask;
    ROUTERS = 3 Routers;
    DOMAIN_NAME_SERVERS = 6 DomainNameServers;
    HOST_NAME = 12 HostName;
    DOMAIN_NAME = 15 DomainName;
    INTERFACE_MTU = 26 InterfaceMtu;
    BROADCAST_ADDRESS = 28 BroadcastAddress;
    REQUESTED_ADDRESS = 50 RequestedAddress;
    LEASE_TIME = 51 LeaseTime;
    OVERLOAD = 52 Overload;
    MESSAGE_TYPE = 53 MessageType;
    SERVER_IDENTIFIER = 54 ServerIdentifier;
    PARAMETER_REQUEST_LIST = 55 ParameterRequestList;
    MESSAGE = 56 Message;
    MAXIMUM_MESSAGE_SIZE = 57 MaximumMessageSize;
    RENEWAL_TIME = 58 RenewalTime;
    REBINDING_TIME = 59 RebindingTime;
    VENDOR_CLASS = 60 VendorClass;
    CLIENT_IDENTIFIER = 61 ClientIdentifier;
    CLASSLESS_ROUTES = 121 ClasslessRoutes;
}

impl<'p> DhcpOption<'p> {
    /// The option of this number with this data, which may come from several pieces (RFC 3396).
    ///
    /// # Errors
    ///
    /// [`OptionError::Length`] if its length is impossible.
    pub fn of(kind: u8, data: &'p [u8]) -> Result<Self, OptionError> {
        let bad = OptionError::Length { kind: u16::from(kind), length: data.len() };
        let octet = || data.first_chunk().filter(|_| data.len() == 1).map(|&[o]| o).ok_or(bad);
        let word = || data.try_into().map(u16::from_be_bytes).map_err(|_| bad);
        let long = || data.try_into().map(u32::from_be_bytes).map_err(|_| bad);
        let address = || data.try_into().map(Ipv4Addr::from_octets).map_err(|_| bad);
        let addresses = || match data.as_chunks() {
            (addresses @ [_, ..], []) => Ok(addresses),
            _ => Err(bad),
        };
        Ok(match kind {
            Self::SUBNET_MASK => Self::SubnetMask(address()?),
            Self::ROUTERS => Self::Routers(addresses()?),
            Self::DOMAIN_NAME_SERVERS => Self::DomainNameServers(addresses()?),
            Self::HOST_NAME => Self::HostName(data),
            Self::DOMAIN_NAME => Self::DomainName(data),
            Self::INTERFACE_MTU => Self::InterfaceMtu(word()?),
            Self::BROADCAST_ADDRESS => Self::BroadcastAddress(address()?),
            Self::REQUESTED_ADDRESS => Self::RequestedAddress(address()?),
            Self::LEASE_TIME => Self::LeaseTime(long()?),
            Self::OVERLOAD => Self::Overload(octet()?),
            Self::MESSAGE_TYPE => Self::MessageType(DhcpType(octet()?)),
            Self::SERVER_IDENTIFIER => Self::ServerIdentifier(address()?),
            Self::PARAMETER_REQUEST_LIST => Self::ParameterRequestList(data),
            Self::MESSAGE => Self::Message(data),
            Self::MAXIMUM_MESSAGE_SIZE => Self::MaximumMessageSize(word()?),
            Self::RENEWAL_TIME => Self::RenewalTime(long()?),
            Self::REBINDING_TIME => Self::RebindingTime(long()?),
            Self::VENDOR_CLASS => Self::VendorClass(data),
            Self::CLIENT_IDENTIFIER => Self::ClientIdentifier(data),
            Self::CLASSLESS_ROUTES => Self::ClasslessRoutes(data),
            _ => Self::Other { kind, data },
        })
    }

    /// Appends the option.
    ///
    /// # Errors
    ///
    /// [`Truncated`] if `writer` is full, or the data has more than 255 octets.
    pub fn emit(&self, writer: &mut Writer<'_>) -> Result<(), Truncated> {
        let kind = self.kind();
        match *self {
            Self::SubnetMask(address)
            | Self::BroadcastAddress(address)
            | Self::RequestedAddress(address)
            | Self::ServerIdentifier(address) => put(kind, &address.octets(), writer),
            Self::Routers(addresses) | Self::DomainNameServers(addresses) => {
                put(kind, addresses.as_flattened(), writer)
            }
            Self::InterfaceMtu(word) | Self::MaximumMessageSize(word) => {
                put(kind, &word.to_be_bytes(), writer)
            }
            Self::LeaseTime(long) | Self::RenewalTime(long) | Self::RebindingTime(long) => {
                put(kind, &long.to_be_bytes(), writer)
            }
            Self::Overload(octet) | Self::MessageType(DhcpType(octet)) => {
                put(kind, &[octet], writer)
            }
            Self::HostName(data)
            | Self::DomainName(data)
            | Self::ParameterRequestList(data)
            | Self::Message(data)
            | Self::VendorClass(data)
            | Self::ClientIdentifier(data)
            | Self::ClasslessRoutes(data)
            | Self::Other { data, .. } => put(kind, data, writer),
        }
    }
}

fn put(kind: u8, data: &[u8], writer: &mut Writer<'_>) -> Result<(), Truncated> {
    let (needed, found) = (data.len() + 2, writer.free());
    let length = u8::try_from(data.len()).map_err(|_| Truncated { needed, found: 0xff })?;
    if needed > found {
        return Err(Truncated { needed, found });
    }
    writer.put(&[kind, length])?;
    writer.put(data)
}

/// The options of a message, also those in *file* and *sname* where the message says so; ends at
/// the end or after the first error. An option in several pieces (RFC 3396) comes in pieces;
/// [`Self::pieces`] returns their raw data.
#[derive(Clone, Debug)]
pub struct DhcpOptions<'p> {
    rest: &'p [u8],
    header: Dhcpv4<'p>,
    /// The areas that still follow, as the overload option counts them.
    overload: u8,
    /// Whether *file* and *sname* are not yet begun: only here the overload option counts.
    in_message: bool,
}

/// Overload: *file* holds options.
const OVERLOAD_FILE: u8 = 1;

/// Overload: *sname* holds options.
const OVERLOAD_SNAME: u8 = 2;

/// Octets before *sname* and before *file*, and behind it.
const SNAME_AT: usize = 44;
const FILE_AT: usize = 108;

/// Reads a message: its fixed part and its options.
///
/// # Errors
///
/// [`Truncated`] if the fixed part is cut short, or no options with their magic cookie follow it.
pub fn read(message: &[u8]) -> Result<(Dhcpv4<'_>, DhcpOptions<'_>), Truncated> {
    let (header, rest) = Dhcpv4::split(message)?;
    let (needed, found) = (Dhcpv4::LEN + MAGIC_COOKIE.len(), message.len());
    let rest = rest.strip_prefix(&MAGIC_COOKIE).ok_or(Truncated { needed, found })?;
    Ok((header, DhcpOptions { rest, header, overload: 0, in_message: true }))
}

/// Writes a message: fixed part, magic cookie, options, end, and zeros up to the shortest message.
///
/// # Errors
///
/// [`Truncated`] if `octets` are too few.
pub fn write<'a>(
    octets: &'a mut [u8],
    fields: Dhcpv4Fields,
    options: &[DhcpOption<'_>],
) -> Result<&'a [u8], Truncated> {
    let mut writer = Writer::new(octets);
    writer.put(&fields.emit())?;
    writer.put(&MAGIC_COOKIE)?;
    for option in options {
        option.emit(&mut writer)?;
    }
    writer.put_octet(DhcpOption::END)?;
    while writer.len() < MESSAGE_LEN_MIN {
        writer.put_octet(DhcpOption::PAD)?;
    }
    Ok(writer.finish())
}

impl<'p> DhcpOptions<'p> {
    /// The message's type, if it has one: without it, it is BOOTP.
    pub fn message_type(&self) -> Option<DhcpType> {
        self.clone().find_map(|option| match option {
            Ok(DhcpOption::MessageType(message_type)) => Some(message_type),
            _ => None,
        })
    }

    /// Goes on in the next area, if there is one; each is read once.
    fn next_area(&mut self) -> bool {
        let octets = self.header.as_octets();
        let (area, done) = if self.overload & OVERLOAD_FILE != 0 {
            (octets.get(FILE_AT..), OVERLOAD_FILE)
        } else if self.overload & OVERLOAD_SNAME != 0 {
            (octets.get(SNAME_AT..FILE_AT), OVERLOAD_SNAME)
        } else {
            return false;
        };
        self.overload &= !done;
        self.in_message = false;
        self.rest = area.unwrap_or_default();
        true
    }

    /// Number and data of each piece of an option, in the order in which RFC 3396 §5 puts them
    /// together: those of the message, of *file*, of *sname*.
    pub fn pieces(self) -> DhcpPieces<'p> {
        DhcpPieces(self)
    }

    fn read(&mut self) -> Result<Option<(u8, &'p [u8])>, OptionError> {
        loop {
            match self.rest {
                [DhcpOption::PAD, rest @ ..] => self.rest = rest,
                [] | [DhcpOption::END, ..] => {
                    if !self.next_area() {
                        return Ok(None);
                    }
                }
                &[kind, ref rest @ ..] => return self.option(kind, rest).map(Some),
            }
        }
    }

    fn option(&mut self, kind: u8, rest: &'p [u8]) -> Result<(u8, &'p [u8]), OptionError> {
        let found = rest.len() + 1;
        let truncated = |needed| OptionError::Truncated { kind: u16::from(kind), needed, found };
        let (&length, rest) = rest.split_first().ok_or(truncated(2))?;
        let length = usize::from(length);
        let (data, rest) = rest.split_at_checked(length).ok_or(truncated(length + 2))?;
        self.rest = rest;
        if let (DhcpOption::OVERLOAD, [overload]) = (kind, data)
            && self.in_message
        {
            self.overload = overload & (OVERLOAD_FILE | OVERLOAD_SNAME);
        }
        Ok((kind, data))
    }

    fn end(&mut self) {
        self.rest = &[];
        self.overload = 0;
    }
}

/// The pieces of the options of a message; ends at the end or after the first error.
#[derive(Clone, Debug)]
pub struct DhcpPieces<'p>(DhcpOptions<'p>);

impl<'p> Iterator for DhcpPieces<'p> {
    type Item = Result<(u8, &'p [u8]), OptionError>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.0.read().transpose();
        if !matches!(read, Some(Ok(_))) {
            self.0.end();
        }
        read
    }
}

impl<'p> Iterator for DhcpOptions<'p> {
    type Item = Result<DhcpOption<'p>, OptionError>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read().transpose();
        let read = read.map(|piece| piece.and_then(|(kind, data)| DhcpOption::of(kind, data)));
        if !matches!(read, Some(Ok(_))) {
            self.end();
        }
        read
    }
}
