//! The Internet control message protocol for IPv6 (RFC 4443; its diagrams are unverified text).

use crate::{header, numbers::numbers};

numbers! {
    /// The type of an ICMPv6 message (IANA ICMPv6 type numbers).
    Icmpv6Type(u8) {
        DESTINATION_UNREACHABLE = 1, "destination unreachable";
        PACKET_TOO_BIG = 2, "packet too big";
        TIME_EXCEEDED = 3, "time exceeded";
        PARAMETER_PROBLEM = 4, "parameter problem";
        ECHO_REQUEST = 128, "echo request";
        ECHO_REPLY = 129, "echo reply";
        MULTICAST_LISTENER_QUERY = 130, "multicast listener query";
        MULTICAST_LISTENER_REPORT = 131, "multicast listener report";
        MULTICAST_LISTENER_DONE = 132, "multicast listener done";
        ROUTER_SOLICITATION = 133, "router solicitation";
        ROUTER_ADVERTISEMENT = 134, "router advertisement";
        NEIGHBOR_SOLICITATION = 135, "neighbor solicitation";
        NEIGHBOR_ADVERTISEMENT = 136, "neighbor advertisement";
        REDIRECT = 137, "redirect";
        MULTICAST_LISTENER_REPORT_V2 = 143, "multicast listener report v2";
        RPL_CONTROL = 155, "RPL control";
        DUPLICATE_ADDRESS_REQUEST = 157, "duplicate address request";
        DUPLICATE_ADDRESS_CONFIRMATION = 158, "duplicate address confirmation";
    }
}

impl Icmpv6Type {
    /// Whether the message reports an error: the types below 128 do (RFC 4443 §2.1).
    pub const fn is_error(self) -> bool {
        self.0 < 128
    }
}

/// Codes of *destination unreachable* (RFC 4443 §3.1).
pub mod unreachable {
    /// No route.
    pub const NO_ROUTE: u8 = 0;
    /// Refused by a filter.
    pub const PROHIBITED: u8 = 1;
    /// The destination is beyond the scope of the source address.
    pub const BEYOND_SCOPE: u8 = 2;
    /// No answer to address resolution.
    pub const ADDRESS: u8 = 3;
    /// No such port here.
    pub const PORT: u8 = 4;
    /// The source address is refused by a policy.
    pub const SOURCE_POLICY: u8 = 5;
    /// The route refuses.
    pub const REJECTED_ROUTE: u8 = 6;
}

/// Codes of *time exceeded* (RFC 4443 §3.3).
pub mod exceeded {
    /// The hop limit ran out on the way.
    pub const IN_TRANSIT: u8 = 0;
    /// Fragments did not arrive in time.
    pub const REASSEMBLY: u8 = 1;
}

/// Codes of *parameter problem* (RFC 4443 §3.4, RFC 7112 §6).
pub mod parameter {
    /// A field has an invalid value.
    pub const ERRONEOUS_FIELD: u8 = 0;
    /// The next header is unknown here.
    pub const UNRECOGNIZED_NEXT_HEADER: u8 = 1;
    /// The option is unknown here.
    pub const UNRECOGNIZED_OPTION: u8 = 2;
    /// The first fragment does not hold the whole header chain.
    pub const INCOMPLETE_CHAIN: u8 = 3;
}

/// Octets of the largest error message, IPv6 header included: the smallest MTU (RFC 4443 §2.4 (c)).
pub const ERROR_LEN_MAX: usize = crate::ipv6::MTU_MIN;

header! {
    /// The header common to all messages (RFC 4443 §2.1).
    Icmpv6 = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Type      |     Code      |          Checksum             |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                                                               |
    +                         Message Body                          +
    |                                                               |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where type as kind: Icmpv6Type, checksum: checksum, message_body: rest
}

header! {
    /// Destination unreachable (§3.1) and time exceeded (§3.3).
    Unused = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Type      |     Code      |          Checksum             |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                             Unused                            |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    ~                    As much of invoking packet                 ~
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where type as kind: Icmpv6Type, checksum: checksum
}

header! {
    /// Packet too big (§3.2); MTU in octets.
    PacketTooBig = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Type      |     Code      |          Checksum             |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                              MTU                              |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    ~                    As much of invoking packet                 ~
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where type as kind: Icmpv6Type, checksum: checksum
}

header! {
    /// Parameter problem (§3.4).
    ParameterProblem = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Type      |     Code      |          Checksum             |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                            Pointer                            |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    ~                    As much of invoking packet                 ~
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where type as kind: Icmpv6Type, checksum: checksum
}

header! {
    /// Echo request (§4.1) and reply (§4.2).
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
    " where type as kind: Icmpv6Type, checksum: checksum
}
