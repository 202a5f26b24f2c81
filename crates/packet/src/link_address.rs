//! Link-layer addresses.

use std::{fmt, str::FromStr};

/// A link-layer address of any width in use: 6 octets on Ethernet, 8 (extended, an EUI-64) or 2
/// (short) on IEEE 802.15.4, none on a link of two ends.
///
/// The octets beyond the width are zero, so equal addresses have equal octets. Its text form is
/// pairs of hexadecimal digits with `:` between them, `none` without octets.
#[derive(Clone, Copy, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(C)]
pub struct LinkAddress {
    octets: [u8; Self::WIDTH_MAX],
    width: u8,
}

impl LinkAddress {
    /// Octets of the widest address.
    pub const WIDTH_MAX: usize = EXTENDED;

    /// No address: the link has none, or it is not known.
    pub const NONE: Self = Self { octets: [0; Self::WIDTH_MAX], width: 0 };

    /// An Ethernet address (EUI-48).
    pub const fn ethernet(octets: [u8; ETHERNET]) -> Self {
        let mut address = Self { width: 6, ..Self::NONE };
        let [place @ .., _, _] = &mut address.octets;
        *place = octets;
        address
    }

    /// The extended address of an IEEE 802.15.4 device (EUI-64), most significant octet first.
    pub const fn extended(octets: [u8; EXTENDED]) -> Self {
        Self { octets, width: 8 }
    }

    /// The short address of an IEEE 802.15.4 device in its network, most significant octet first.
    pub const fn short([high, low]: [u8; SHORT]) -> Self {
        Self { octets: [high, low, 0, 0, 0, 0, 0, 0], width: 2 }
    }

    /// The address of these octets; `None` if no link has addresses of this width.
    pub fn new(octets: &[u8]) -> Option<Self> {
        match octets.len() {
            0 => Some(Self::NONE),
            SHORT => octets.try_into().ok().map(Self::short),
            ETHERNET => octets.try_into().ok().map(Self::ethernet),
            EXTENDED => octets.try_into().ok().map(Self::extended),
            _ => None,
        }
    }

    /// The octets in the order of transmission; none without an address.
    pub fn octets(&self) -> &[u8] {
        self.octets.get(..self.width()).unwrap_or_default()
    }

    /// Its number of octets: 0, 2, 6 or 8.
    pub fn width(self) -> usize {
        usize::from(self.width)
    }

    /// Whether there is no address.
    pub const fn is_none(self) -> bool {
        self.width == 0
    }

    /// The octets of an Ethernet address; `None` for other widths.
    pub const fn to_ethernet(self) -> Option<[u8; ETHERNET]> {
        let [octets @ .., _, _] = self.octets;
        if self.width == 6 { Some(octets) } else { None }
    }

    /// This address, or `other` if it is none.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        if self.is_none() { other } else { self }
    }

    /// Whether stations of a link on which this is an address may have `other`: links have addresses
    /// of one width, those of IEEE 802.15.4 extended and short ones.
    pub const fn shares_links_with(self, other: Self) -> bool {
        matches!((self.width, other.width), (2 | 8, 2 | 8) | (6, 6))
    }

    /// Whether it is the address of one station: no group's, not broadcast, not reserved.
    ///
    /// An EUI of zeros is no station's. The short address zero is: coordinators have it.
    pub const fn is_unicast(self) -> bool {
        match (self.width, self.octets) {
            // 0xfffe stands for a device without a short address, 0xffff for all devices (IEEE
            // 802.15.4 §7.2.2); groups begin with the bits 100 (RFC 4944 §9).
            (2, [0xff, 0xfe | 0xff, ..]) => false,
            (2, [first, ..]) => first >> 5 != 0b100,
            // The group bit (IEEE 802 §8.2.2); all ones has it, too.
            (6 | 8, [first, ..]) => first & 1 == 0 && u64::from_be_bytes(self.octets) != 0,
            _ => false,
        }
    }

    /// The interface identifier made from the address (RFC 4291 appendix A); `None` without one.
    ///
    /// That of a short address has zero in the place of the network's identifier, and its
    /// universal bit is zero (RFC 4944 §6): the form that RFC 6282 §3.2.2 leaves out of packets.
    pub const fn interface_identifier(self) -> Option<[u8; 8]> {
        match (self.width, self.octets) {
            (2, [high, low, ..]) => Some([0, 0, 0, 0xff, 0xfe, 0, high, low]),
            (6, [first, o2, o3, d1, d2, d3, ..]) => {
                Some([first ^ UNIVERSAL, o2, o3, 0xff, 0xfe, d1, d2, d3])
            }
            (8, mut octets) => {
                let [first, ..] = &mut octets;
                *first ^= UNIVERSAL;
                Some(octets)
            }
            _ => None,
        }
    }
}

impl fmt::Display for LinkAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((first, rest)) = self.octets().split_first() else { return f.write_str("none") };
        write!(f, "{first:02x}")?;
        rest.iter().try_for_each(|octet| write!(f, ":{octet:02x}"))
    }
}

impl fmt::Debug for LinkAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no link-layer address.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not two, six or eight pairs of hexadecimal digits with colons between them")]
pub struct NotALinkAddress;

impl FromStr for LinkAddress {
    type Err = NotALinkAddress;

    /// Reads two, six or eight pairs of hexadecimal digits with `:` between them.
    fn from_str(text: &str) -> Result<Self, NotALinkAddress> {
        let mut octets = [0; Self::WIDTH_MAX];
        let mut width = 0;
        for pair in text.split(':') {
            // The standard library would also read a sign.
            let is_pair = pair.len() == 2 && pair.bytes().all(|digit| digit.is_ascii_hexdigit());
            let octet = u8::from_str_radix(pair, 16).ok().filter(|_| is_pair);
            *octets.get_mut(width).ok_or(NotALinkAddress)? = octet.ok_or(NotALinkAddress)?;
            width += 1;
        }
        octets.get(..width).and_then(Self::new).ok_or(NotALinkAddress)
    }
}

/// Octets of a short address (IEEE 802.15.4 §7.2.2).
const SHORT: usize = 2;

/// Octets of an EUI-48.
const ETHERNET: usize = 6;

/// Octets of an EUI-64.
const EXTENDED: usize = 8;

/// The bit of an EUI that tells local administration; inverted in interface identifiers.
const UNIVERSAL: u8 = 0x02;

#[cfg(test)]
mod tests {
    use super::*;

    /// Nine octets: it fits where an IP address does, and has no padding to be copied unset.
    #[test]
    fn it_takes_nine_octets_without_padding() {
        assert_eq!((size_of::<LinkAddress>(), align_of::<LinkAddress>()), (9, 1));
    }

    #[test]
    fn texts_are_read_as_they_are_written() {
        let cases: [(&str, &[u8]); 3] = [
            ("be:ef", &[0xbe, 0xef]),
            ("02:00:5e:10:00:01", &[2, 0, 0x5e, 0x10, 0, 1]),
            ("02:12:4b:00:14:b5:d9:b2", &[2, 0x12, 0x4b, 0, 0x14, 0xb5, 0xd9, 0xb2]),
        ];
        for (text, octets) in cases {
            let address = LinkAddress::new(octets).unwrap();
            assert_eq!((address.octets(), address.width()), (octets, octets.len()));
            assert_eq!((address.to_string(), text.parse()), (text.to_owned(), Ok(address)));
        }
        let none = LinkAddress::NONE;
        assert_eq!((none.to_string(), none.octets().len()), ("none".to_owned(), 0));
        for wrong in [
            "",
            "none",
            "02",
            "02:00:00",
            "2:0",
            "+2:00",
            "02:00:00:00:00",
            "02:00:00:00:00:00:00",
            "02:00:00:00:00:00:00:00:00",
            "02-00-00-00-00-01",
            "02:00:00:00:00:0g",
        ] {
            assert_eq!(wrong.parse::<LinkAddress>(), Err(NotALinkAddress), "{wrong}");
        }
        for width in [1, 3, 4, 5, 7, 9] {
            assert_eq!(LinkAddress::new(&vec![0; width]), None, "{width} octets");
        }
    }

    #[test]
    fn stations_are_told_from_groups() {
        for (text, is_unicast) in [
            ("02:00:00:00:00:01", true),
            ("00:00:00:00:00:00", false),
            ("ff:ff:ff:ff:ff:ff", false),
            ("01:00:5e:00:00:01", false),
            ("33:33:00:00:00:01", false),
            ("00:12:4b:00:14:b5:d9:b2", true),
            ("01:12:4b:00:14:b5:d9:b2", false),
            ("00:00:00:00:00:00:00:00", false),
            ("ff:ff:ff:ff:ff:ff:ff:ff", false),
            ("00:00", true),
            ("12:34", true),
            // RFC 4944 §9: "100" and 13 bits of the group.
            ("80:01", false),
            ("9f:ff", false),
            ("a0:00", true),
            ("ff:fe", false),
            ("ff:ff", false),
        ] {
            let address: LinkAddress = text.parse().unwrap();
            assert_eq!(address.is_unicast(), is_unicast, "{text}");
        }
        assert!(!LinkAddress::NONE.is_unicast());
    }

    #[test]
    fn links_have_addresses_of_one_kind() {
        let ethernet = LinkAddress::ethernet([2, 0, 0, 0, 0, 1]);
        let extended = LinkAddress::extended([2, 0, 0, 0, 0, 0, 0, 1]);
        let short = LinkAddress::short([0, 1]);
        assert!(extended.shares_links_with(short) && short.shares_links_with(extended));
        for one in [ethernet, extended, short] {
            assert!(one.shares_links_with(one), "{one}");
            assert!(!one.shares_links_with(LinkAddress::NONE), "{one}");
            assert_eq!(one.shares_links_with(ethernet), one == ethernet, "{one}");
            assert_eq!((LinkAddress::NONE.or(one), one.or(ethernet)), (one, one));
        }
        assert!(!LinkAddress::NONE.shares_links_with(LinkAddress::NONE));
    }

    /// The first from RFC 2464 §4, where the universal bit of an address that the maker has
    /// assigned becomes one; the second as RFC 4291 appendix A, "Links or Nodes with IEEE EUI-64
    /// Identifiers"; the third as RFC 4944 §6 and RFC 6282 §3.2.2.
    #[test]
    fn interface_identifiers_follow_from_addresses() {
        for (text, identifier) in [
            ("34:56:78:9a:bc:de", 0x3656_78ff_fe9a_bcde_u64),
            ("00:12:4b:00:14:b5:d9:b2", 0x0212_4b00_14b5_d9b2),
            ("be:ef", 0x0000_00ff_fe00_beef),
        ] {
            let address: LinkAddress = text.parse().unwrap();
            let found = address.interface_identifier().map(u64::from_be_bytes);
            assert_eq!(found, Some(identifier), "{text}");
        }
        assert_eq!(LinkAddress::NONE.interface_identifier(), None);
    }
}
