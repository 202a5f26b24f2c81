//! Parses addresses, prefixes, hardware addresses and positions.

use gatewright_stack::At;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address with the length of its network's prefix.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// An address with a prefix length in bits; `None` if the family has no such length.
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        (length <= bits(address)).then_some(Self { address, length })
    }

    /// Parses `ADDRESS/LENGTH`.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let plain = length.len() <= 3 && length.bytes().all(|octet| octet.is_ascii_digit());
        Self::new(address.parse().ok()?, length.parse().ok().filter(|_| plain)?)
    }

    /// The address as written.
    pub const fn address(self) -> IpAddr {
        self.address
    }

    /// Prefix length in bits.
    pub const fn length(self) -> u8 {
        self.length
    }

    /// The same network with every bit after the prefix 0.
    #[must_use]
    pub fn network(self) -> Self {
        let address = match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.length)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.length)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
            }
        };
        Self { address, ..self }
    }

    /// Whether `address` is in this network.
    pub fn contains(self, address: IpAddr) -> bool {
        bits(address) == bits(self.address) && Self { address, ..self }.network() == self.network()
    }

    /// Whether any address is in both networks.
    pub fn overlaps(self, other: Self) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }

    /// Whether the address is the network's own or its broadcast address (RFC 1122 §3.2.1.3); a
    /// prefix of 31 bits has neither (RFC 3021 §2.1), nor has IPv6.
    pub fn is_network_or_broadcast(self) -> bool {
        let IpAddr::V4(address) = self.address else { return false };
        let host = u32::MAX.checked_shr(u32::from(self.length)).unwrap_or(0);
        self.length <= 30 && [0, host].contains(&(address.to_bits() & host))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

const fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// Whether a host on a link can have the address.
pub(crate) fn is_host_address(address: IpAddr) -> bool {
    let broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    !(address.is_unspecified()
        || address.is_loopback()
        || address.is_multicast()
        || broadcast
        || mapped(address).is_some())
}

/// The IPv4 address that an IPv6 one stands for (RFC 4291 §2.5.5.2): no packet has that.
pub(crate) fn mapped(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V6(address) => address.to_ipv4_mapped(),
        IpAddr::V4(_) => None,
    }
}

/// Whether the address is in fe80::/10 (RFC 4291 §2.5.6).
pub(crate) fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Parses a host's hardware address, `02:00:00:00:00:01`; group addresses are refused.
pub(crate) fn mac(text: &str) -> Option<[u8; 6]> {
    /// The group bit of the first octet (IEEE 802 §8.2).
    const GROUP: u8 = 0x01;
    let mut octets = [0; 6];
    let mut parts = text.split(':');
    for octet in &mut octets {
        let is_hex = |part: &&str| part.bytes().all(|digit| digit.is_ascii_hexdigit());
        let part = parts.next().filter(|part| part.len() == 2).filter(is_hex)?;
        *octet = u8::from_str_radix(part, 16).ok()?;
    }
    let usable = octets != [0; 6] && octets.first().is_some_and(|first| first & GROUP == 0);
    (parts.next().is_none() && usable).then_some(octets)
}

/// The named positions, for "did you mean".
pub(crate) fn position_names() -> Vec<String> {
    At::names().collect()
}

/// Parses a position.
pub(crate) fn position(text: &str) -> Option<At> {
    text.parse().ok()
}

/// Parses an IP protocol, by name or number.
pub(crate) fn protocol(text: &str) -> Option<u8> {
    gatewright_stack::ip_protocol(text).ok().map(|protocol| protocol.0)
}

/// The names of IP protocols.
pub(crate) fn protocol_names() -> impl Iterator<Item = &'static str> {
    gatewright_stack::ip_protocol_names()
}

/// Device kinds by name (IEEE 11073-104zz), and `device` for all others.
pub const DEVICE_KINDS: [&str; 22] = [
    "oximeter",
    "spot-oximeter",
    "blood-pressure",
    "thermometer",
    "scale",
    "glucose",
    "dispenser",
    "activity",
    "ecg",
    "inr",
    "insulin-pump",
    "body-composition",
    "peak-flow",
    "urine-analyser",
    "sleep-apnoea",
    "continuous-glucose",
    "power-status",
    "respiration-rate",
    "strength",
    "living-hub",
    "generic",
    "device",
];

/// Maximum octets of a port of DPDK with its arguments.
const DPDK_PORT_LEN_MAX: usize = 128;
/// Maximum octets of the name of a driver of DPDK after `net_`, and digits of its number.
const DPDK_DRIVER_LEN_MAX: (usize, usize) = (32, 3);

/// Whether a text names a port of DPDK: `net_DRIVER` with a number, or a PCI address, and arguments
/// `,KEY=VALUE`.
pub(crate) fn is_dpdk_port(text: &str) -> bool {
    let mut parts = text.split(',');
    let device = parts.next().unwrap_or_default();
    let is_argument = |argument: &str| {
        let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
        let any = |c: char| c.is_ascii_alphanumeric() || "_.:/-".contains(c);
        argument.split_once('=').is_some_and(|(key, value)| {
            !key.is_empty() && !value.is_empty() && key.chars().all(lower) && value.chars().all(any)
        })
    };
    text.len() <= DPDK_PORT_LEN_MAX
        && (is_dpdk_driver(device) || is_pci_address(device))
        && parts.all(is_argument)
}

fn is_dpdk_driver(text: &str) -> bool {
    let (len_max, digits_max) = DPDK_DRIVER_LEN_MAX;
    text.strip_prefix("net_").is_some_and(|rest| {
        let name = rest.trim_end_matches(|c: char| c.is_ascii_digit());
        (1..=len_max).contains(&name.len())
            && (1..=digits_max).contains(&(rest.len() - name.len()))
            && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
    })
}

/// Whether a text is a PCI address: a domain, a bus, a device and a function.
fn is_pci_address(text: &str) -> bool {
    let hexadecimal = |text: &str, len: usize| {
        let is_digit = |octet: u8| octet.is_ascii_digit() || (b'a'..=b'f').contains(&octet);
        text.len() == len && text.bytes().all(is_digit)
    };
    let Some((place, function)) = text.rsplit_once('.') else { return false };
    let is_place = match *place.split(':').collect::<Vec<_>>() {
        [domain, bus, device] => {
            hexadecimal(domain, 4) && hexadecimal(bus, 2) && hexadecimal(device, 2)
        }
        _ => false,
    };
    is_place && matches!(function.as_bytes(), [b'0'..=b'7'])
}

/// Parses a device's EUI-64, written as 16 hexadecimal digits.
pub(crate) fn system_id(text: &str) -> Option<[u8; 8]> {
    let is_hex = text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| u64::from_str_radix(text, 16).ok().map(u64::to_be_bytes)).flatten()
}

/// Parses `NAME=VALUE`: a field of a message and its required value, or a parameter of a program
/// and its value.
pub(crate) fn field(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    let mut octets = name.bytes();
    let begins = octets.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_');
    let right = begins && octets.all(|octet| octet.is_ascii_alphanumeric() || octet == b'_');
    right.then(|| (name.to_owned(), value.to_owned()))
}

/// What stands before the name of a credential in place of a path.
const CREDENTIAL: &str = "credential:";

/// The name of the credential that stands in place of a path: that of a file in one folder, which no
/// such name leaves.
pub(crate) fn credential(text: &str) -> Option<&str> {
    let name = text.strip_prefix(CREDENTIAL)?;
    (!matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])).then_some(name)
}

/// Whether a text can stand where a path or a credential does.
pub(crate) fn is_file(text: &str) -> bool {
    !text.starts_with(CREDENTIAL) || credential(text).is_some()
}

/// Whether a text is a name that a role of a program can have.
pub(crate) fn is_role(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && text.chars().all(word)
}

/// Parses `ROLE=HOST:PORT`: a role of a program and its address.
pub(crate) fn role_address(text: &str) -> Option<(String, String)> {
    let (role, address) = text.split_once('=')?;
    let (host, port) = address.rsplit_once(':')?;
    let reached = !host.is_empty() && port.parse::<u16>().is_ok();
    (is_role(role) && reached).then(|| (role.to_owned(), address.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_of_dpdk_is_a_driver_or_a_pci_address() {
        let long = format!("net_ring0,a={}", "x".repeat(DPDK_PORT_LEN_MAX));
        for (text, is_port) in [
            ("net_af_packet0,iface=eth0", true),
            ("net_af_xdp12,iface=wlp2s0.7,start_queue=0", true),
            ("net_tap0", true),
            ("net_pcap0,rx_pcap=/tmp/a.pcap", true),
            ("0000:03:00.0", true),
            ("0000:03:00.7,a=b", true),
            ("03:00.0", false),
            ("net_tap", false),
            ("net_0", false),
            ("net_tap1234", false),
            ("crypto_null0", false),
            ("net_af_packet0,iface", false),
            ("net_af_packet0,iface=", false),
            ("net_af_packet0,iface=a b", false),
            ("net_af_packet0,,iface=a", false),
            ("net_tap0 -m 4", false),
            ("0000:03:00.8", false),
            ("0000:03:00", false),
            ("eth0", false),
            (long.as_str(), false),
        ] {
            assert_eq!(is_dpdk_port(text), is_port, "{text}");
        }
    }

    #[test]
    fn a_prefix_knows_its_network() {
        let prefix = |text| Prefix::parse(text).unwrap();
        for (text, network) in [
            ("192.0.2.7/24", "192.0.2.0/24"),
            ("192.0.2.7/32", "192.0.2.7/32"),
            ("192.0.2.7/0", "0.0.0.0/0"),
            ("2001:db8::1/64", "2001:db8::/64"),
            ("2001:db8::1/0", "::/0"),
            ("2001:db8::1/128", "2001:db8::1/128"),
        ] {
            assert_eq!(prefix(text).network().to_string(), network);
            assert!(prefix(text).contains(prefix(text).address()));
        }
        assert!(prefix("10.0.0.0/8").overlaps(prefix("10.1.0.0/16")));
        assert!(prefix("10.1.0.0/16").overlaps(prefix("10.0.0.0/8")));
        assert!(!prefix("10.1.0.0/16").overlaps(prefix("10.2.0.0/16")));
        assert!(!prefix("0.0.0.0/0").overlaps(prefix("::/0")));
        for text in ["192.0.2.1", "192.0.2.1/33", "::1/129", "192.0.2.1/", "192.0.2.1/+8", "a/8"] {
            assert_eq!(Prefix::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_ends_of_a_network_are_no_hosts() {
        for (text, end) in [
            ("192.0.2.0/24", true),
            ("192.0.2.255/24", true),
            ("192.0.2.255/23", false),
            ("192.0.2.0/31", false),
            ("192.0.2.0/32", false),
            ("2001:db8::/64", false),
        ] {
            assert_eq!(Prefix::parse(text).unwrap().is_network_or_broadcast(), end, "{text}");
        }
    }

    #[test]
    fn a_hardware_address_names_one_host() {
        assert_eq!(mac("02:00:00:00:00:0a"), Some([2, 0, 0, 0, 0, 10]));
        for text in [
            "01:00:00:00:00:01",
            "ff:ff:ff:ff:ff:ff",
            "00:00:00:00:00:00",
            "02:00:00:00:00",
            "02:00:00:00:00:01:02",
            "2:0:0:0:0:1",
            "02-00-00-00-00-01",
            "",
        ] {
            assert_eq!(mac(text), None, "{text}");
        }
    }
}
