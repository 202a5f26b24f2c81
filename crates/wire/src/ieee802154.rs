//! The MAC header of IEEE 802.15.4 (2015 edition, §7.2), in little endian.
//!
//! Its length depends on its first two octets, so it is read by hand: [`Mac::split`] takes addresses
//! and security header off the front, [`MacFields::emit`] writes a header without security.

use crate::{Truncated, Writer, header, numbers::numbers};

numbers! {
    /// The type of a frame (§7.2.2.2).
    FrameType(u8) {
        BEACON = 0, "beacon";
        DATA = 1, "data";
        ACKNOWLEDGMENT = 2, "acknowledgment";
        COMMAND = 3, "command";
    }

    /// The edition whose rules a frame follows (§7.2.2.10).
    FrameVersion(u8) {
        V2003 = 0, "2003";
        V2006 = 1, "2006";
        V2015 = 2, "2015";
    }
}

/// Octets of the longest frame, its check sequence included (§10.1, `aMaxPhyPacketSize`).
pub const FRAME_LEN_MAX: usize = 127;

header! {
    /// The frame check sequence at the end of every frame (§7.2.11), least significant octet first.
    /// The standard prints no diagram in this form: this one is drawn here.
    Fcs = r"
    0                   1
    0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |             Check             |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where check: octets, trailer
}

impl Fcs<'_> {
    /// Whether it is the check sequence of `frame`, the octets before it.
    pub fn is_right(self, frame: &[u8]) -> bool {
        u16::from_le_bytes(self.check()) == crc(frame)
    }
}

impl FcsFields {
    /// The check sequence of `frame`.
    pub fn of(frame: &[u8]) -> Self {
        Self { check: crc(frame).to_le_bytes() }
    }
}

/// The cyclic redundancy check of ITU-T (§7.2.11): x^16 + x^12 + x^5 + 1, from zero, the least
/// significant bit of each octet first.
pub fn crc(frame: &[u8]) -> u16 {
    /// The polynomial with its bits in that order.
    const POLYNOMIAL: u16 = 0x8408;
    frame.iter().fold(0, |crc, &octet| {
        (0..8).fold(crc ^ u16::from(octet), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 }
        })
    })
}

/// The identifier of all networks.
pub const PAN_BROADCAST: u16 = 0xffff;

/// An address of a device; the extended one is the EUI-64 as it is written, most significant octet
/// first, whatever its order on the air.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum StationAddress {
    /// No address: that of the coordinator, or none at all.
    #[default]
    None,
    /// A short address, valid in one network.
    Short(u16),
    /// The EUI-64.
    Extended([u8; 8]),
}

impl StationAddress {
    /// All devices.
    pub const BROADCAST: Self = Self::Short(0xffff);

    /// The addressing mode of the frame control field (§7.2.2.9).
    const fn mode(self) -> u16 {
        match self {
            Self::None => 0,
            Self::Short(_) => 2,
            Self::Extended(_) => 3,
        }
    }
}

/// Bits of the frame control field (§7.2.2).
mod control {
    pub(super) const SECURITY: u16 = 1 << 3;
    pub(super) const PENDING: u16 = 1 << 4;
    pub(super) const ACK_REQUEST: u16 = 1 << 5;
    pub(super) const PAN_COMPRESSION: u16 = 1 << 6;
    pub(super) const SEQUENCE_SUPPRESSION: u16 = 1 << 8;
    pub(super) const IE_PRESENT: u16 = 1 << 9;
    pub(super) const TYPE: u16 = 0b111;
    pub(super) const DESTINATION_SHIFT: u16 = 10;
    pub(super) const VERSION_SHIFT: u16 = 12;
    pub(super) const SOURCE_SHIFT: u16 = 14;
}

/// The header of a frame without security, as plain data.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct MacFields {
    /// The type of the frame.
    pub frame_type: FrameType,
    /// Whether the sender has more for the receiver.
    pub pending: bool,
    /// Whether the receiver is to acknowledge.
    pub ack_request: bool,
    /// Which edition's rules it follows; those of 2015 are written like those of 2006.
    pub version: FrameVersion,
    /// The number that the acknowledgment repeats.
    pub sequence_number: Option<u8>,
    /// The receiver's network.
    pub destination_pan: Option<u16>,
    /// The receiver.
    pub destination: StationAddress,
    /// The source PAN identifier, if it is present.
    pub source_pan: Option<u16>,
    /// The sender.
    pub source: StationAddress,
}

/// The header of a frame, read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Mac<'p> {
    /// The header's fields except its security.
    pub fields: MacFields,
    /// The auxiliary security header (§9.4): security level, counter, key identifier.
    pub security: Option<&'p [u8]>,
    /// Whether information elements follow the header (§7.4).
    pub has_information_elements: bool,
}

/// Why a frame's header cannot be read.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum MacError {
    /// The frame ends inside the header: malformed by the peer.
    Truncated(Truncated),
    /// The reserved addressing mode 1: malformed by the peer.
    ReservedAddressing,
    /// A frame type or version without support here: 4 and above, 3.
    Unsupported,
}

impl core::fmt::Display for MacError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Truncated(truncated) => core::fmt::Display::fmt(truncated, f),
            Self::ReservedAddressing => f.write_str("reserved addressing mode 1"),
            Self::Unsupported => f.write_str("frame type or version that is not read"),
        }
    }
}

impl core::error::Error for MacError {}

impl From<Truncated> for MacError {
    fn from(truncated: Truncated) -> Self {
        Self::Truncated(truncated)
    }
}

/// Which network identifiers a header has (§7.2.2.6): the receiver's, the sender's.
fn pans(version: FrameVersion, compressed: bool, destination: u16, source: u16) -> (bool, bool) {
    let extended = StationAddress::Extended([0; 8]).mode();
    if version != FrameVersion::V2015 {
        // One identifier is left out if both addresses are there and in one network.
        return (destination != 0, source != 0 && !(compressed && destination != 0));
    }
    // Table 7-2 of the 2015 edition.
    match (destination != 0, source != 0) {
        (false, false) => (compressed, false),
        (true, false) => (!compressed, false),
        (false, true) => (false, !compressed),
        (true, true) if destination == extended && source == extended => (!compressed, false),
        (true, true) => (true, !compressed),
    }
}

impl<'p> Mac<'p> {
    /// Takes the header off the front of `frame`, whose check sequence is already taken off.
    ///
    /// # Errors
    ///
    /// [`MacError`] if the header is malformed or of an unsupported kind.
    pub fn split(frame: &'p [u8]) -> Result<(Self, &'p [u8]), MacError> {
        let mut reader = AddressReader { rest: frame };
        let control = u16::from_le_bytes(reader.take()?);
        let [low, high] = control.to_le_bytes();
        let frame_type = FrameType(low & 0b111);
        let version = FrameVersion(high >> 4 & 0b11);
        if frame_type > FrameType::COMMAND || version > FrameVersion::V2015 {
            return Err(MacError::Unsupported);
        }
        let has = |bit: u16| control & bit != 0;
        let newest = version == FrameVersion::V2015;
        let suppressed = newest && has(control::SEQUENCE_SUPPRESSION);
        let sequence_number = if suppressed { None } else { Some(reader.octet()?) };
        let destination_mode = control >> control::DESTINATION_SHIFT & 0b11;
        let source_mode = control >> control::SOURCE_SHIFT & 0b11;
        let (to, from) =
            pans(version, has(control::PAN_COMPRESSION), destination_mode, source_mode);
        let destination_pan = reader.pan(to)?;
        let destination = reader.address(destination_mode)?;
        let source_pan = reader.pan(from)?;
        let source = reader.address(source_mode)?;
        let security = if has(control::SECURITY) { Some(reader.security()?) } else { None };
        let fields = MacFields {
            frame_type,
            pending: has(control::PENDING),
            ack_request: has(control::ACK_REQUEST),
            version,
            sequence_number,
            destination_pan,
            destination,
            source_pan,
            source,
        };
        let has_information_elements = newest && has(control::IE_PRESENT);
        Ok((Self { fields, security, has_information_elements }, reader.rest))
    }
}

impl MacFields {
    /// Appends the header in the format of 2003 and 2006: with a sequence number (zero if there is
    /// none), and with the sender's network left out if it is the receiver's or not told.
    ///
    /// # Errors
    ///
    /// [`Truncated`] if `writer` is full; 23 octets suffice.
    pub fn emit(&self, writer: &mut Writer<'_>) -> Result<(), Truncated> {
        let both = self.destination != StationAddress::None && self.source != StationAddress::None;
        let same = self.source_pan.is_none() || self.source_pan == self.destination_pan;
        let compressed = both && same;
        let version = u16::from(self.version != FrameVersion::V2003);
        let bit = |set: bool, bit: u16| if set { bit } else { 0 };
        let control = u16::from(self.frame_type.0) & control::TYPE
            | bit(self.pending, control::PENDING)
            | bit(self.ack_request, control::ACK_REQUEST)
            | bit(compressed, control::PAN_COMPRESSION)
            | self.destination.mode() << control::DESTINATION_SHIFT
            | version << control::VERSION_SHIFT
            | self.source.mode() << control::SOURCE_SHIFT;
        writer.put(&control.to_le_bytes())?;
        writer.put_octet(self.sequence_number.unwrap_or(0))?;
        if self.destination != StationAddress::None {
            put_pan(self.destination_pan, writer)?;
        }
        put_address(self.destination, writer)?;
        if self.source != StationAddress::None && !compressed {
            put_pan(self.source_pan, writer)?;
        }
        put_address(self.source, writer)
    }
}

fn put_pan(pan: Option<u16>, writer: &mut Writer<'_>) -> Result<(), Truncated> {
    writer.put(&pan.unwrap_or(PAN_BROADCAST).to_le_bytes())
}

fn put_address(address: StationAddress, writer: &mut Writer<'_>) -> Result<(), Truncated> {
    match address {
        StationAddress::None => Ok(()),
        StationAddress::Short(address) => writer.put(&address.to_le_bytes()),
        StationAddress::Extended(mut octets) => {
            octets.reverse();
            writer.put(&octets)
        }
    }
}

struct AddressReader<'p> {
    rest: &'p [u8],
}

impl<'p> AddressReader<'p> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Truncated> {
        let found = self.rest.len();
        let (&octets, rest) =
            self.rest.split_first_chunk().ok_or(Truncated { needed: N, found })?;
        self.rest = rest;
        Ok(octets)
    }

    fn octet(&mut self) -> Result<u8, Truncated> {
        self.take().map(|[octet]| octet)
    }

    fn pan(&mut self, present: bool) -> Result<Option<u16>, Truncated> {
        if present { self.take().map(u16::from_le_bytes).map(Some) } else { Ok(None) }
    }

    fn address(&mut self, mode: u16) -> Result<StationAddress, MacError> {
        match mode {
            0 => Ok(StationAddress::None),
            2 => Ok(StationAddress::Short(u16::from_le_bytes(self.take()?))),
            3 => {
                let mut octets: [u8; 8] = self.take()?;
                octets.reverse();
                Ok(StationAddress::Extended(octets))
            }
            _ => Err(MacError::ReservedAddressing),
        }
    }

    /// The auxiliary security header: control, frame counter unless suppressed, key identifier by
    /// its mode (§9.4.1).
    fn security(&mut self) -> Result<&'p [u8], Truncated> {
        let all = self.rest;
        let control = all.first().copied().ok_or(Truncated { needed: 1, found: 0 })?;
        let counter = if control & 0x20 == 0 { 4 } else { 0 };
        let key = match control >> 3 & 0b11 {
            0 => 0,
            1 => 1,
            2 => 5,
            _ => 9,
        };
        let needed = 1 + counter + key;
        let truncated = Truncated { needed, found: all.len() };
        let (security, rest) = all.split_at_checked(needed).ok_or(truncated)?;
        self.rest = rest;
        Ok(security)
    }
}
