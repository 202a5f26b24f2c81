//! The upper layer after the chain of headers of an IPv6 packet.

use super::{Fragment, FragmentFields, Ipv6};
use crate::{IpProtocol, Truncated};

/// Maximum extension headers of a packet: every kind once, and destination options twice, is 7 (RFC
/// 8200 §4.1).
pub const HEADERS_MAX: usize = 8;

/// The end of an IPv6 packet's headers, where its upper layer begins (RFC 8200 §4, RFC 7045 §3).
///
/// The headers are skipped, not judged: the receiver of the packet decides which options are known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UpperLayer {
    /// The upper-layer protocol. In a later fragment, the first protocol of its packet's
    /// fragmentable part.
    pub protocol: IpProtocol,
    /// Octets before it, from the IPv6 header on.
    pub offset: usize,
    /// The fragment header, if the packet has one.
    pub fragment: Option<FragmentFields>,
}

/// Why the end of a chain of headers was not found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ChainError {
    /// The packet ends before its headers do.
    Truncated(Truncated),
    /// There are more than [`HEADERS_MAX`].
    TooLong,
    /// A fragment header follows a fragment header.
    Nested,
}

impl From<Truncated> for ChainError {
    fn from(truncated: Truncated) -> Self {
        Self::Truncated(truncated)
    }
}

impl core::fmt::Display for ChainError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Truncated(truncated) => truncated.fmt(f),
            Self::TooLong => write!(f, "more than {HEADERS_MAX} extension headers"),
            Self::Nested => f.write_str("a fragment header behind a fragment header"),
        }
    }
}

impl core::error::Error for ChainError {}

impl UpperLayer {
    /// Steps over the headers of the packet that `octets` begin with.
    ///
    /// # Errors
    ///
    /// [`ChainError`] gives the reason if the upper layer was not found.
    pub fn find(octets: &[u8]) -> Result<Self, ChainError> {
        let (ip, _) = Ipv6::split(octets)?;
        let mut upper = Self { protocol: ip.next_header(), offset: Ipv6::LEN, fragment: None };
        for _ in 0..HEADERS_MAX {
            let rest = octets.get(upper.offset..).unwrap_or_default();
            if upper.protocol == IpProtocol::FRAGMENT {
                let (fragment, _) = Fragment::split(rest)?;
                if upper.fragment.replace(fragment.fields()).is_some() {
                    return Err(ChainError::Nested);
                }
                upper.protocol = fragment.next_header();
                upper.offset += Fragment::LEN;
                if fragment.fragment_offset() != 0 {
                    return Ok(upper);
                }
                continue;
            }
            let Some((unit, more)) = unit_of(upper.protocol) else { return Ok(upper) };
            let found = rest.len();
            let &[next_header, len] = rest.first_chunk().ok_or(Truncated { needed: 2, found })?;
            let needed = (usize::from(len) + more) * unit;
            if found < needed {
                return Err(Truncated { needed, found }.into());
            }
            upper.protocol = IpProtocol(next_header);
            upper.offset += needed;
        }
        if upper.protocol.is_extension_header() { Err(ChainError::TooLong) } else { Ok(upper) }
    }

    /// Whether it is a later fragment, in which the upper layer does not begin.
    pub fn is_later_fragment(&self) -> bool {
        self.fragment.is_some_and(|fragment| fragment.fragment_offset != 0)
    }
}

impl IpProtocol {
    /// Whether it is an extension header of IPv6, after which the chain continues (RFC 7045 §3).
    pub const fn is_extension_header(self) -> bool {
        matches!(self, Self::FRAGMENT) || unit_of(self).is_some()
    }
}

/// Octets that the length field of an extension header counts, and how many of those it leaves out
/// (RFC 6564 §4; RFC 4302 §2.2 for the authentication header).
const fn unit_of(protocol: IpProtocol) -> Option<(usize, usize)> {
    match protocol {
        IpProtocol::HOP_BY_HOP
        | IpProtocol::ROUTING
        | IpProtocol::DESTINATION_OPTIONS
        | IpProtocol::MOBILITY
        | IpProtocol::HIP
        | IpProtocol::SHIM6 => Some((8, 1)),
        IpProtocol::AH => Some((4, 2)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipv6::Ipv6Fields;
    use core::net::Ipv6Addr;

    fn find(first: IpProtocol, headers: &[&[u8]]) -> Result<(u8, usize, bool), ChainError> {
        let any = Ipv6Addr::UNSPECIFIED;
        let payload = headers.concat();
        let packet = [&Ipv6Fields::new(first, any, any, 0).emit()[..], &payload].concat();
        let upper = UpperLayer::find(&packet)?;
        Ok((upper.protocol.0, upper.offset - Ipv6::LEN, upper.is_later_fragment()))
    }

    /// The order that RFC 8200 §4.1 recommends, and each header alone, cut short and repeated.
    #[test]
    fn the_upper_layer_is_found_behind_every_extension_header() {
        let options = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
        let long = |next: u8| [&[next, 1][..], &[0; 14]].concat();
        let fragment = |next: u8, offset: u8| [next, 0, 0, offset << 3, 0, 0, 0, 1];
        // RFC 4302 §2.2: a payload length of 4 is 24 octets.
        let ah = |next: u8| [&[next, 4][..], &[0; 22]].concat();
        let udp = [0; 8];
        let (hop, dst) = (IpProtocol::HOP_BY_HOP, IpProtocol::DESTINATION_OPTIONS);

        assert_eq!(find(IpProtocol::UDP, &[&udp]), Ok((17, 0, false)));
        let all: [&[u8]; 7] =
            [&options(60), &options(43), &long(44), &fragment(51, 0), &ah(60), &options(17), &udp];
        assert_eq!(find(hop, &all), Ok((17, 72, false)));
        for kind in
            [hop, IpProtocol::ROUTING, dst, IpProtocol(135), IpProtocol(139), IpProtocol(140)]
        {
            assert_eq!(find(kind, &[&long(58), &udp]), Ok((58, 16, false)), "{kind}");
            let truncated = find(kind, &[&long(58)[..15]]);
            assert!(matches!(truncated, Err(ChainError::Truncated(_))), "{kind}");
        }
        assert_eq!(find(IpProtocol::FRAGMENT, &[&fragment(60, 1), &udp]), Ok((60, 8, true)));
        let nested = find(IpProtocol::FRAGMENT, &[&fragment(44, 0), &fragment(17, 0)]);
        assert_eq!(nested, Err(ChainError::Nested));
        assert_eq!(find(dst, &[&options(60).repeat(7), &options(17)]), Ok((17, 64, false)));
        assert_eq!(find(dst, &[&options(60).repeat(9)]), Err(ChainError::TooLong));
        // Encrypted payload is the end of what can be seen (RFC 4303 §2).
        assert_eq!(find(IpProtocol::ESP, &[&udp]), Ok((50, 0, false)));
    }
}
