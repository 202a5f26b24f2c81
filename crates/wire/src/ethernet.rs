//! Ethernet II (IEEE 802.3; IPv4 in it by RFC 894, IPv6 by RFC 2464).

use crate::{EtherType, header};

header! {
    /// The frame's header. The standard prints no diagram: this one is drawn here.
    Ethernet = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                          Destination                          |
    +                               +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                               |                               |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+            Source             +
    |                                                               |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |           Ether Type          |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where destination: MacAddress, source: MacAddress, ether_type: EtherType
}

/// Octets of the shortest frame without its check sequence; shorter ones are padded (IEEE 802.3).
pub const FRAME_LEN_MIN: usize = 60;

/// Smallest type value of the type field; smaller values are the length of an 802.2 frame.
pub const ETHER_TYPE_MIN: u16 = 0x0600;

impl Ethernet<'_> {
    /// Whether the type field is the length of an 802.2 (LLC) frame.
    pub const fn is_llc(self) -> bool {
        self.ether_type().0 < ETHER_TYPE_MIN
    }
}
