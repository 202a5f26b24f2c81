//! The chain of extension headers of a packet for this host (RFC 8200 §4).

use crate::IcmpError;
use gatewright_wire::{
    IpProtocol,
    ipv6::{
        ExtensionOptions, Fragment, HEADERS_MAX, Ipv6, Ipv6Option, Ipv6Options, Routing,
        Unrecognized,
    },
    tcp::Tcp,
    udp::Udp,
};

/// The position of the walk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Chain {
    /// The header at this position.
    pub(super) next_header: IpProtocol,
    /// Octets before it, from the IPv6 header on.
    pub(super) offset: usize,
    /// The octet that names it.
    pub(super) next_header_at: usize,
}

/// The result of the walk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ChainStep {
    /// The upper-layer header, or an unknown one.
    Upper(Chain),
    /// A fragment header, `offset` octets from the beginning.
    Fragment(Chain),
    /// An ICMP error is called for.
    Problem {
        /// Which.
        cause: IcmpError,
        /// The octet at fault.
        pointer: u32,
        /// Not for packets to a group.
        quiet_for_groups: bool,
    },
    /// An option says to discard the packet.
    Discard,
    /// Too many headers.
    TooLong,
    /// A header is cut short.
    Truncated,
}

/// Position of the next-header field in the IPv6 header.
const NEXT_HEADER_AT: usize = 6;

/// Walks the headers of a whole packet, IPv6 header first.
pub(super) fn walk(octets: &[u8]) -> ChainStep {
    let Ok((ip, _)) = Ipv6::split(octets) else { return ChainStep::Truncated };
    let (next_header, offset, next_header_at) = (ip.next_header(), Ipv6::LEN, NEXT_HEADER_AT);
    walk_from(octets, Chain { next_header, offset, next_header_at })
}

/// Whether the first fragment of a packet, whose fragment header is at `fragment`, has all of the
/// packet's headers, the upper layer's included (RFC 7112 §3).
pub(super) fn is_complete(octets: &[u8], fragment: Chain) -> bool {
    let rest = octets.get(fragment.offset..).unwrap_or_default();
    let Ok((header, _)) = Fragment::split(rest) else { return false };
    let (next_header, next_header_at) = (header.next_header(), fragment.offset);
    let offset = fragment.offset + Fragment::LEN;
    match walk_from(octets, Chain { next_header, offset, next_header_at }) {
        ChainStep::Upper(upper) => octets.len() >= upper.offset + header_len(upper.next_header),
        // What is wrong beside is told when the packet is whole.
        step => step != ChainStep::Truncated,
    }
}

/// Minimum octets of an upper-layer header.
const fn header_len(protocol: IpProtocol) -> usize {
    match protocol {
        IpProtocol::NO_NEXT_HEADER => 0,
        IpProtocol::TCP => Tcp::LEN,
        IpProtocol::UDP | IpProtocol::UDP_LITE | IpProtocol::ICMPV6 => Udp::LEN,
        _ => 1,
    }
}

fn walk_from(octets: &[u8], mut chain: Chain) -> ChainStep {
    for _ in 0..HEADERS_MAX {
        let rest = octets.get(chain.offset..).unwrap_or_default();
        let next = match chain.next_header {
            // RFC 8200 §4.1: hop-by-hop options stand only immediately after the IPv6 header.
            IpProtocol::HOP_BY_HOP if chain.offset != Ipv6::LEN => {
                return problem(IcmpError::ProtocolUnreachable, chain.next_header_at);
            }
            IpProtocol::HOP_BY_HOP | IpProtocol::DESTINATION_OPTIONS => options(rest, chain),
            IpProtocol::ROUTING => routing(rest, chain),
            IpProtocol::FRAGMENT => {
                return match Fragment::split(rest) {
                    Ok(_) => ChainStep::Fragment(chain),
                    Err(_) => ChainStep::Truncated,
                };
            }
            _ => return ChainStep::Upper(chain),
        };
        match next {
            Ok(next) => chain = next,
            Err(step) => return step,
        }
    }
    ChainStep::TooLong
}

fn problem(cause: IcmpError, pointer: usize) -> ChainStep {
    let pointer = u32::try_from(pointer).unwrap_or(u32::MAX);
    ChainStep::Problem { cause, pointer, quiet_for_groups: false }
}

/// Reads the options of a header; an unknown option's kind determines the action.
fn options(rest: &[u8], chain: Chain) -> Result<Chain, ChainStep> {
    let (header, behind) = ExtensionOptions::split(rest).map_err(|_| ChainStep::Truncated)?;
    let (octets, _) = header.options(behind).map_err(|_| ChainStep::Truncated)?;
    let mut options = Ipv6Options::new(octets);
    loop {
        let before = options.remaining();
        let pointer = chain.offset + ExtensionOptions::LEN + (octets.len() - before);
        match options.next() {
            None => break,
            Some(Err(_)) => return Err(problem(IcmpError::BadHeader, pointer)),
            Some(Ok(Ipv6Option::Other { kind, .. })) => unrecognized(kind, pointer)?,
            // Jumbograms are not supported: the option is treated as one that is not known.
            Some(Ok(Ipv6Option::JumboPayload(_))) => {
                unrecognized(Ipv6Option::JUMBO_PAYLOAD, pointer)?;
            }
            Some(Ok(_)) => {}
        }
    }
    Ok(Chain {
        next_header: header.next_header(),
        offset: chain.offset + ExtensionOptions::LEN + octets.len(),
        next_header_at: chain.offset,
    })
}

/// RFC 8200 §4.2: the highest two bits of an option's kind say what to do if it is not known.
fn unrecognized(kind: u8, pointer: usize) -> Result<(), ChainStep> {
    let pointer = u32::try_from(pointer).unwrap_or(u32::MAX);
    let report = |quiet_for_groups| ChainStep::Problem {
        cause: IcmpError::BadOption,
        pointer,
        quiet_for_groups,
    };
    match Ipv6Option::unrecognized(kind) {
        Unrecognized::Skip => Ok(()),
        Unrecognized::Discard => Err(ChainStep::Discard),
        Unrecognized::Report => Err(report(false)),
        Unrecognized::ReportUnicast => Err(report(true)),
    }
}

/// RFC 8200 §4.4: a routing header that is not known is skipped if nothing of it is left to do.
/// Type 0 is not known any more (RFC 5095).
fn routing(rest: &[u8], chain: Chain) -> Result<Chain, ChainStep> {
    /// Position of the routing type in the header.
    const ROUTING_TYPE_AT: usize = 2;
    let (header, behind) = Routing::split(rest).map_err(|_| ChainStep::Truncated)?;
    let (data, _) = header.type_specific_data(behind).map_err(|_| ChainStep::Truncated)?;
    if header.segments_left() > 0 {
        return Err(problem(IcmpError::BadHeader, chain.offset + ROUTING_TYPE_AT));
    }
    Ok(Chain {
        next_header: header.next_header(),
        offset: chain.offset + Routing::LEN + data.len(),
        next_header_at: chain.offset,
    })
}
