//! Headers of 6LoWPAN: dispatch, mesh, fragments (RFC 4944) and the encodings of compressed headers
//! (RFC 6282). Compression itself belongs to the compressor, not to this module.

use crate::header;

/// The meaning of the first octet of a 6LoWPAN frame (RFC 4944 §5.1, RFC 6282 §3).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Dispatch {
    /// Not 6LoWPAN: `00xxxxxx`.
    NotLowpan,
    /// An IPv6 header as it is: `01000001`.
    Ipv6,
    /// [`Broadcast`], before another dispatch: `01010000`.
    Broadcast,
    /// [`Iphc`]: `011xxxxx`.
    Iphc,
    /// [`Mesh`], before another dispatch: `10xxxxxx`.
    Mesh,
    /// [`FirstFragment`], before another dispatch: `11000xxx`.
    FirstFragment,
    /// [`NextFragment`]: `11100xxx`.
    NextFragment,
    /// Anything else: deprecated (HC1), for experiments, or not assigned.
    Other(u8),
}

impl Dispatch {
    /// The octet of an uncompressed IPv6 header.
    pub const IPV6: u8 = 0b0100_0001;

    /// The dispatch of `octet`.
    pub const fn of(octet: u8) -> Self {
        match octet {
            0b0000_0000..=0b0011_1111 => Self::NotLowpan,
            Self::IPV6 => Self::Ipv6,
            0b0101_0000 => Self::Broadcast,
            0b0110_0000..=0b0111_1111 => Self::Iphc,
            0b1000_0000..=0b1011_1111 => Self::Mesh,
            0b1100_0000..=0b1100_0111 => Self::FirstFragment,
            0b1110_0000..=0b1110_0111 => Self::NextFragment,
            _ => Self::Other(octet),
        }
    }
}

header! {
    /// Mesh addressing (RFC 4944 §5.2), followed by the two addresses. Hops 15 mean that one more
    /// octet tells them.
    Mesh = r"
                        1                   2                   3
    0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |1 0|V|F|HopsLft| originator address, final address
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where pattern as dispatch, v as short_originator, f as short_final, hopslft as hops_left
}

header! {
    /// The first fragment (RFC 4944 §5.3); the size in octets of the whole datagram.
    FirstFragment = r"
                        1                   2                   3
    0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |1 1 0 0 0|    datagram_size    |         datagram_tag          |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where pattern as dispatch
}

header! {
    /// Any other fragment (RFC 4944 §5.3); the offset counts eight octets each.
    NextFragment = r"
                        1                   2                   3
    0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |1 1 1 0 0|    datagram_size    |         datagram_tag          |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |datagram_offset|
   +-+-+-+-+-+-+-+-+
    " where pattern as dispatch
}

header! {
    /// A broadcast's sequence number, behind the mesh header (RFC 4944 §11.1).
    Broadcast = r"
                        1
    0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |0|1|LOWPAN_BC0 |Sequence Number|
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where pattern as dispatch, lowpan_bc0 = 0x10
}

header! {
    /// A compressed IPv6 header (RFC 6282 §3.1.1): which fields follow, and in which form.
    Iphc = r"
      0                                       1
      0   1   2   3   4   5   6   7   8   9   0   1   2   3   4   5
    +---+---+---+---+---+---+---+---+---+---+---+---+---+---+---+---+
    | 0 | 1 | 1 |  TF   |NH | HLIM  |CID|SAC|  SAM  | M |DAC|  DAM  |
    +---+---+---+---+---+---+---+---+---+---+---+---+---+---+---+---+
    " where pattern as dispatch, tf as traffic_flow, nh as next_header_compressed,
        hlim as hop_limit, cid as context_identifiers, sac as source_by_context,
        sam as source_mode, m as multicast, dac as destination_by_context,
        dam as destination_mode
}

header! {
    /// Which contexts the addresses are compressed with (RFC 6282 §3.1.2).
    ContextIdentifiers = r"
      0   1   2   3   4   5   6   7
    +---+---+---+---+---+---+---+---+
    |      SCI      |      DCI      |
    +---+---+---+---+---+---+---+---+
    " where sci as source, dci as destination
}

header! {
    /// Traffic class and flow label where `traffic_flow` is 0 (RFC 6282 §3.2.1).
    TrafficFlow = r"
                        1                   2                   3
    0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |ECN|   DSCP    |  rsv  |             Flow Label                |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    "
}

header! {
    /// Flow label and congestion bits where `traffic_flow` is 1 (RFC 6282 §3.2.1).
    FlowLabel = r"
                        1                   2
    0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |ECN|rsv|             Flow Label                |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    "
}

header! {
    /// Traffic class where `traffic_flow` is 2 (RFC 6282 §3.2.1).
    TrafficClass = r"
    0 1 2 3 4 5 6 7
   +-+-+-+-+-+-+-+-+
   |ECN|   DSCP    |
   +-+-+-+-+-+-+-+-+
    "
}

header! {
    /// A compressed extension header (RFC 6282 §4.2).
    ExtensionEncoding = r"
      0   1   2   3   4   5   6   7
    +---+---+---+---+---+---+---+---+
    | 1 | 1 | 1 | 0 |    EID    |NH |
    +---+---+---+---+---+---+---+---+
    " where pattern as dispatch, eid as extension, nh as next_header_compressed
}

header! {
    /// A compressed UDP header (RFC 6282 §4.3.1).
    UdpEncoding = r"
      0   1   2   3   4   5   6   7
    +---+---+---+---+---+---+---+---+
    | 1 | 1 | 1 | 1 | 0 | C |   P   |
    +---+---+---+---+---+---+---+---+
    " where pattern as dispatch, c as checksum_elided, p as ports
}
