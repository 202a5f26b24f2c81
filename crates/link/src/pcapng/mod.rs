//! Capture files: written as pcapng, read as pcapng or classic pcap.
//!
//! The format is draft-ietf-opsawg-pcapng; the classic one is draft-ietf-opsawg-pcap. Only the
//! blocks that a gateway needs are written: one section, interfaces with their names, enhanced
//! packet blocks with direction and comment, nanoseconds throughout. The reader skips all other
//! blocks.

pub mod file;
mod link;
mod read;
mod write;

pub use link::{CaptureLink, Speed};
pub use read::{CaptureReader, ReadError};
pub use write::PcapngWriter;

use crate::Framing;
use std::time::Duration;

/// The number of an interface of a capture file, in the order of description.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct InterfaceId(pub u32);

/// The direction of a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Direction {
    /// It was received.
    Inbound,
    /// It was sent.
    Outbound,
}

/// An interface of a capture file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CaptureInterface {
    /// Its name, empty if the file has none.
    pub name: String,
    /// The header at the front of its frames; `None` if it is neither Ethernet nor IP.
    pub framing: Option<Framing>,
    /// Units of its time stamps in a second.
    pub(crate) units: u64,
    /// Seconds to be added to its time stamps (`if_tsoffset`, a signed number).
    pub(crate) offset_s: i64,
    /// Maximum octets captured of a frame; 0 for all (`if_snaplen`).
    pub(crate) snap_len: u32,
    /// Octets of the frame check sequence at the end of each frame, which belong to no record.
    pub(crate) fcs_len: u8,
}

/// A frame of a capture file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CapturedFrame<'a> {
    /// The interface that saw it.
    pub interface: InterfaceId,
    /// The time, since 1970.
    pub at: Duration,
    /// Its octets, as far as they were captured.
    pub octets: &'a [u8],
    /// Its octets on the wire.
    pub len: usize,
    /// Its direction, if known.
    pub direction: Option<Direction>,
    /// A comment on it; empty for none.
    pub comment: &'a str,
}

// Block types (draft-ietf-opsawg-pcapng §4).
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const PACKET: u32 = 2; // obsolete (appendix A), and still in files
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;

// Options (§3.5, §4.2, §4.3).
const OPTION_END: u16 = 0;
const OPTION_COMMENT: u16 = 1;
const OPTION_INTERFACE_NAME: u16 = 2;
const OPTION_PACKET_FLAGS: u16 = 2;
const OPTION_APPLICATION: u16 = 4;
const OPTION_RESOLUTION: u16 = 9;
const OPTION_FCS_LEN: u16 = 13;
const OPTION_OFFSET: u16 = 14;

/// Link types (draft-ietf-opsawg-pcaplinktype).
const LINK_TYPE_ETHERNET: u16 = 1;
const LINK_TYPE_RAW_IP: u16 = 101;
const LINK_TYPE_IPV4: u16 = 228;
const LINK_TYPE_IPV6: u16 = 229;

/// Maximum interfaces of a file.
const INTERFACES_MAX: usize = 4096;

const NANOS_PER_SECOND: u64 = 1_000_000_000;
