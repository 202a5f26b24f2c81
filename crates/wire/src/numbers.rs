//! Numbers assigned by IANA and IEEE, each kind a type of its own.

use core::fmt;

/// Declares tuple structs over a number, with a constant and a name for each assigned value.
macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident($ty:ty) {
        $($constant:ident = $value:literal, $text:literal;)*
    })*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub struct $name(pub $ty);

        impl $name {
            $(#[doc = concat!($text, ".")]
            pub const $constant: Self = Self($value);)*

            /// The assigned name of the number, if it has a constant here.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }

        impl From<$ty> for $name {
            fn from(number: $ty) -> Self {
                Self(number)
            }
        }

        impl From<$name> for $ty {
            fn from(number: $name) -> Self {
                number.0
            }
        }

        impl ::core::fmt::Display for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "{:#x}", self.0),
                }
            }
        }

        impl ::core::fmt::LowerHex for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::LowerHex::fmt(&self.0, f)
            }
        })*
    };
}
pub(crate) use numbers;

numbers! {
    /// The payload type of an Ethernet frame (IEEE registration authority).
    EtherType(u16) {
        IPV4 = 0x0800, "IPv4";
        ARP = 0x0806, "ARP";
        VLAN = 0x8100, "802.1Q";
        IPV6 = 0x86dd, "IPv6";
        MPLS = 0x8847, "MPLS";
        MPLS_MULTICAST = 0x8848, "MPLS multicast";
        SERVICE_VLAN = 0x88a8, "802.1ad";
        IEEE802154 = 0x809a, "IEEE 802.15.4";
        LLDP = 0x88cc, "LLDP";
        EXPERIMENTAL_1 = 0x88b5, "local experimental 1";
        EXPERIMENTAL_2 = 0x88b6, "local experimental 2";
        LOWPAN = 0xa0ed, "6LoWPAN";
    }

    /// The protocol in an IPv4 packet or an IPv6 header chain (IANA protocol numbers).
    IpProtocol(u8) {
        HOP_BY_HOP = 0, "IPv6 hop-by-hop options";
        ICMPV4 = 1, "ICMP";
        IGMP = 2, "IGMP";
        IPV4 = 4, "IPv4";
        TCP = 6, "TCP";
        UDP = 17, "UDP";
        IPV6 = 41, "IPv6";
        ROUTING = 43, "IPv6 routing header";
        FRAGMENT = 44, "IPv6 fragment header";
        GRE = 47, "GRE";
        ESP = 50, "ESP";
        AH = 51, "AH";
        ICMPV6 = 58, "ICMPv6";
        NO_NEXT_HEADER = 59, "IPv6 no next header";
        DESTINATION_OPTIONS = 60, "IPv6 destination options";
        SCTP = 132, "SCTP";
        MOBILITY = 135, "IPv6 mobility header";
        UDP_LITE = 136, "UDP-Lite";
        MPLS = 137, "MPLS-in-IP";
        HIP = 139, "Host Identity Protocol";
        SHIM6 = 140, "Shim6";
    }

    /// A port of UDP or TCP (IANA service names).
    Port(u16) {
        DNS = 53, "DNS";
        DHCP_SERVER = 67, "DHCP server";
        DHCP_CLIENT = 68, "DHCP client";
        HTTP = 80, "HTTP";
        MDNS = 5353, "multicast DNS";
        COAP = 5683, "CoAP";
        COAPS = 5684, "CoAP over DTLS";
        MPLS_UDP = 6635, "MPLS-in-UDP";
        ZEP = 17754, "ZEP";
    }
}

/// A 48-bit link-layer address (IEEE 802).
#[derive(Clone, Copy, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// All stations.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// No address yet.
    pub const ZERO: Self = Self([0; 6]);

    /// The address in these octets.
    pub const fn from_octets(octets: [u8; 6]) -> Self {
        Self(octets)
    }

    /// The octets in the order of transmission.
    pub const fn octets(self) -> [u8; 6] {
        self.0
    }

    /// Whether it is a group address, broadcast included.
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 0x01 != 0
    }

    /// Whether it is the broadcast address.
    pub const fn is_broadcast(self) -> bool {
        matches!(self, Self::BROADCAST)
    }

    /// Whether it is a unicast address.
    pub const fn is_unicast(self) -> bool {
        !self.is_multicast()
    }

    /// Whether it is locally administered, not assigned by the maker of the device.
    pub const fn is_local(self) -> bool {
        self.0[0] & 0x02 != 0
    }

    /// The group address of an IPv4 multicast group (RFC 1112 §6.4).
    pub const fn of_ipv4_multicast(group: core::net::Ipv4Addr) -> Self {
        let [_, b, c, d] = group.octets();
        Self([0x01, 0x00, 0x5e, b & 0x7f, c, d])
    }

    /// The group address of an IPv6 multicast group (RFC 2464 §7).
    pub const fn of_ipv6_multicast(group: core::net::Ipv6Addr) -> Self {
        let [.., a, b, c, d] = group.octets();
        Self([0x33, 0x33, a, b, c, d])
    }

    /// The interface identifier made from the address (RFC 4291, appendix A).
    pub const fn interface_identifier(self) -> [u8; 8] {
        let [a, b, c, d, e, f] = self.0;
        [a ^ 0x02, b, c, 0xff, 0xfe, d, e, f]
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no MAC address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NotAMacAddress;

impl fmt::Display for NotAMacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not six pairs of hexadecimal digits with colons between them")
    }
}

impl core::error::Error for NotAMacAddress {}

impl core::str::FromStr for MacAddress {
    type Err = NotAMacAddress;

    /// Reads six pairs of hexadecimal digits with `:` between them.
    fn from_str(text: &str) -> Result<Self, NotAMacAddress> {
        let mut octets = [0; 6];
        let mut pairs = text.split(':');
        for octet in &mut octets {
            let pair = pairs.next().filter(|pair| is_pair(pair)).ok_or(NotAMacAddress)?;
            *octet = u8::from_str_radix(pair, 16).map_err(|_| NotAMacAddress)?;
        }
        if pairs.next().is_some() { Err(NotAMacAddress) } else { Ok(Self(octets)) }
    }
}

/// Two hexadecimal digits; the standard library would also read a sign.
fn is_pair(text: &str) -> bool {
    text.len() == 2 && text.bytes().all(|digit| digit.is_ascii_hexdigit())
}
