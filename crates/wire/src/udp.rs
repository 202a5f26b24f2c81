//! The user datagram protocol (RFC 768).

use crate::header;

header! {
    /// The datagram's header (RFC 768, "Format").
    Udp = r"
                  0      7 8     15 16    23 24    31
                 +--------+--------+--------+--------+
                 |     Source      |   Destination   |
                 |      Port       |      Port       |
                 +--------+--------+--------+--------+
                 |                 |                 |
                 |     Length      |    Checksum     |
                 +--------+--------+--------+--------+
                 |
                 |          data octets ...
                 +---------------- ...
    " where checksum: checksum
}
