//! Address prefixes in policies (m2m:ipv4, m2m:ipv6; TS-0004 §6.3.5.27): one address, or all with
//! the same first bits.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// All addresses of a family with the same first bits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Prefix {
    /// The address and how many of its bits count, 0 to 32.
    V4(u32, u32),
    /// The same, 0 to 128.
    V6(u128, u32),
}

impl Prefix {
    /// Reads an IPv4 address in dotted decimal, perhaps with a CIDR suffix (RFC 4632 §3.1).
    pub(crate) fn parse_v4(text: &str) -> Option<Self> {
        let (address, length) = split(text, u32::BITS)?;
        Some(Self::V4(address.parse::<Ipv4Addr>().ok()?.to_bits(), length))
    }

    /// Reads an IPv6 address (RFC 5952), perhaps with the length of a prefix. One that stands for
    /// an IPv4 address is none: no request comes from there that does not come from that.
    pub(crate) fn parse_v6(text: &str) -> Option<Self> {
        let (address, length) = split(text, u128::BITS)?;
        let address: Ipv6Addr = address.parse().ok()?;
        address.to_ipv4_mapped().is_none().then_some(Self::V6(address.to_bits(), length))
    }

    /// Whether the address is one of them. An IPv4 address is the same however a socket shows it
    /// (RFC 4291 §2.5.5.2).
    pub(crate) fn contains(self, address: IpAddr) -> bool {
        match (self, address.to_canonical()) {
            (Self::V4(bits, length), IpAddr::V4(address)) => {
                // A shift by all bits is none: the mask of no bits.
                let mask = u32::MAX.checked_shl(u32::BITS - length).unwrap_or(0);
                (bits ^ address.to_bits()) & mask == 0
            }
            (Self::V6(bits, length), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(u128::BITS - length).unwrap_or(0);
                (bits ^ address.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

/// The peer of an address: for IPv6 its /64 network, since a host may use any number of addresses
/// there.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            const HIGH: u128 = !0 << 64;
            Ipv6Addr::from_bits(address.to_bits() & HIGH).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

/// An address and the length behind its slash: all bits without one.
fn split(text: &str, bits: u32) -> Option<(&str, u32)> {
    let Some((address, length)) = text.split_once('/') else {
        return Some((text, bits));
    };
    // Digits alone, and no zero before another.
    let is_number = length.bytes().all(|octet| octet.is_ascii_digit())
        && (length == "0" || !length.starts_with('0'));
    let length = is_number.then(|| length.parse().ok())??;
    (length <= bits).then_some((address, length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Option<Prefix> {
        Prefix::parse_v4(text).or_else(|| Prefix::parse_v6(text))
    }

    /// RFC 4632 §3.1 and RFC 4291 §2.3 give the first and the last address of each block.
    #[test]
    fn a_block_ends_where_its_bits_do() {
        for (block, inside, outside) in [
            ("192.168.99.0/24", ["192.168.99.0", "192.168.99.255"], "192.168.100.0"),
            ("172.16.0.0/12", ["172.16.0.0", "172.31.255.255"], "172.32.0.0"),
            ("10.24.32.7", ["10.24.32.7", "::ffff:10.24.32.7"], "10.24.32.8"),
            ("0.0.0.0/0", ["0.0.0.0", "255.255.255.255"], "::1"),
            ("192.168.99.7/24", ["192.168.99.1", "192.168.99.9"], "192.168.98.7"),
            ("2001:db8:0:cd30::/60", ["2001:db8:0:cd30::", "2001:db8:0:cd3f::1"], "2001:db8::cd30"),
            ("2001:db8::1", ["2001:db8::1", "2001:DB8:0:0::1"], "2001:db8::2"),
            ("::/0", ["::", "ffff::"], "10.0.0.1"),
        ] {
            let prefix = read(block).unwrap();
            for address in inside {
                assert!(prefix.contains(address.parse().unwrap()), "{address} in {block}");
            }
            assert!(!prefix.contains(outside.parse().unwrap()), "{outside} in {block}");
        }
        assert!(!read("::/0").unwrap().contains("::ffff:10.0.0.1".parse().unwrap()));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "/",
            "1.2.3",
            "1.2.3.4.5",
            "1.2.3.256",
            "01.2.3.4",
            "1.2.3.4/33",
            "1.2.3.4/",
            "1.2.3.4/+8",
            "1.2.3.4/08",
            "1.2.3.4/8/8",
            "1.2.3.4/99999999999",
            " 1.2.3.4",
            "1.2.3.*",
            "::/129",
            "fe80::1%eth0",
            "[::1]",
            ":::",
            "::ffff:1.2.3.4",
            "::ffff:1.2.3.0/120",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(Prefix::parse_v4("::1"), None);
        assert_eq!(Prefix::parse_v6("1.2.3.4"), None);
    }

    proptest! {
        /// An address is in a block exactly if both, written in binary digits, begin alike.
        #[test]
        fn membership_is_a_common_beginning(
            (block, address, length) in (any::<u32>(), any::<u32>(), 0_usize..=32),
            (wide, far, long) in (any::<u128>(), any::<u128>(), 0_usize..=128),
            near in any::<bool>(),
        ) {
            let address = if near { block ^ (address >> length.min(31)) } else { address };
            let written = format!("{}/{length}", Ipv4Addr::from_bits(block));
            let expected = format!("{block:032b}")[..length] == format!("{address:032b}")[..length];
            let found = Prefix::parse_v4(&written).unwrap().contains(Ipv4Addr::from_bits(address).into());
            prop_assert_eq!(found, expected, "{} {}", written, Ipv4Addr::from_bits(address));
            let far = if near { wide ^ (far >> long.min(127)) } else { far };
            let (wide, far) = (wide | 1 << 127, far | 1 << 126);
            let written = format!("{}/{long}", Ipv6Addr::from_bits(wide));
            let expected = format!("{wide:0128b}")[..long] == format!("{far:0128b}")[..long];
            let found = Prefix::parse_v6(&written).unwrap().contains(Ipv6Addr::from_bits(far).into());
            prop_assert_eq!(found, expected, "{} {}", written, Ipv6Addr::from_bits(far));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9a-f:./ ]{0,50}") {
            let _read = read(&text);
        }
    }
}
