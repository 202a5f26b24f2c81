//! The Internet control message protocol (RFC 792; router discovery RFC 1256, MTU RFC 1191).

use crate::{header, numbers::numbers};

numbers! {
    /// The type of an ICMP message (IANA ICMP type numbers).
    Icmpv4Type(u8) {
        ECHO_REPLY = 0, "echo reply";
        DESTINATION_UNREACHABLE = 3, "destination unreachable";
        SOURCE_QUENCH = 4, "source quench";
        REDIRECT = 5, "redirect";
        ECHO_REQUEST = 8, "echo request";
        ROUTER_ADVERTISEMENT = 9, "router advertisement";
        ROUTER_SOLICITATION = 10, "router solicitation";
        TIME_EXCEEDED = 11, "time exceeded";
        PARAMETER_PROBLEM = 12, "parameter problem";
        TIMESTAMP = 13, "timestamp";
        TIMESTAMP_REPLY = 14, "timestamp reply";
    }
}

impl Icmpv4Type {
    /// Whether the message reports an error: no error is ever sent about it (RFC 1122 §3.2.2).
    pub const fn is_error(self) -> bool {
        matches!(
            self,
            Self::DESTINATION_UNREACHABLE
                | Self::SOURCE_QUENCH
                | Self::REDIRECT
                | Self::TIME_EXCEEDED
                | Self::PARAMETER_PROBLEM
        )
    }
}

/// Codes of *destination unreachable* (RFC 792, RFC 1122 §3.2.2.1, RFC 1812 §5.2.7.1).
pub mod unreachable {
    /// No route.
    pub const NETWORK: u8 = 0;
    /// No answer to address resolution.
    pub const HOST: u8 = 1;
    /// No such protocol here.
    pub const PROTOCOL: u8 = 2;
    /// No such port here.
    pub const PORT: u8 = 3;
    /// Larger than the next link takes, and not to be fragmented.
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// The source route failed.
    pub const SOURCE_ROUTE: u8 = 5;
    /// Refused by a filter.
    pub const PROHIBITED: u8 = 13;
}

/// Codes of *time exceeded*.
pub mod exceeded {
    /// The hop count ran out on the way.
    pub const IN_TRANSIT: u8 = 0;
    /// Fragments did not arrive in time.
    pub const REASSEMBLY: u8 = 1;
}

/// Octets of the offending datagram's data that an error message carries at least (RFC 792).
pub const ORIGINAL_DATA_LEN_MIN: usize = 8;

/// Octets of the largest error message that a router sends (RFC 1812 §4.3.2.3).
pub const ERROR_LEN_MAX: usize = 576;

header! {
    /// The header common to all messages. RFC 792 draws each message whole: this one is drawn here.
    Icmpv4 = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Type      |     Code      |          Checksum             |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                         Rest of Header                        |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where type as kind: Icmpv4Type, checksum: checksum, rest_of_header: octets
}

header! {
    /// Destination unreachable and time exceeded (RFC 792).
    Unused = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Type      |     Code      |          Checksum             |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                             unused                            |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |      Internet Header + 64 bits of Original Data Datagram      |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where type as kind: Icmpv4Type, checksum: checksum,
        "Internet Header + 64 bits of Original Data Datagram" as original: rest
}

header! {
    /// Destination unreachable, *fragmentation needed* (RFC 1191 §4; unverified text).
    FragmentationNeeded = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Type      |     Code      |          Checksum             |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |           unused = 0          |         Next-Hop MTU          |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |      Internet Header + 64 bits of Original Data Datagram      |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where type as kind: Icmpv4Type, checksum: checksum, unused: reserved,
        "Internet Header + 64 bits of Original Data Datagram" as original: rest
}

header! {
    /// Parameter problem (RFC 792).
    ParameterProblem = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Type      |     Code      |          Checksum             |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |    Pointer    |                   unused                      |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |      Internet Header + 64 bits of Original Data Datagram      |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where type as kind: Icmpv4Type, checksum: checksum,
        "Internet Header + 64 bits of Original Data Datagram" as original: rest
}

header! {
    /// Redirect (RFC 792).
    Redirect = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Type      |     Code      |          Checksum             |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                 Gateway Internet Address                      |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |      Internet Header + 64 bits of Original Data Datagram      |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where type as kind: Icmpv4Type, checksum: checksum,
        gateway_internet_address as gateway: Ipv4Addr,
        "Internet Header + 64 bits of Original Data Datagram" as original: rest
}

header! {
    /// Echo request and reply (RFC 792).
    Echo = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Type      |     Code      |          Checksum             |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |           Identifier          |        Sequence Number        |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Data ...
    +-+-+-+-+-
    " where type as kind: Icmpv4Type, checksum: checksum
}

header! {
    /// Timestamp request and reply (RFC 792); times in milliseconds since midnight UTC.
    Timestamp = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Type      |      Code     |          Checksum             |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |           Identifier          |        Sequence Number        |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Originate Timestamp                                       |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Receive Timestamp                                         |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Transmit Timestamp                                        |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where type as kind: Icmpv4Type, checksum: checksum
}

header! {
    /// Router advertisement (RFC 1256 §3; unverified text); lifetime in seconds.
    RouterAdvertisement = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Type      |     Code      |          Checksum             |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |   Num Addrs   |Addr Entry Size|           Lifetime            |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    ~                       Router Addresses                        ~
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where type as kind: Icmpv4Type, checksum: checksum,
        router_addresses: [num_addrs * addr_entry_size * 4]
}

header! {
    /// One router of an advertisement (RFC 1256 §3; unverified text); the preference is a signed number.
    RouterAddress = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                         Router Address                        |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                        Preference Level                       |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where router_address: Ipv4Addr
}

header! {
    /// Router solicitation (RFC 1256 §3; unverified text).
    RouterSolicitation = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Type      |     Code      |          Checksum             |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                            Reserved                           |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where type as kind: Icmpv4Type, checksum: checksum
}
