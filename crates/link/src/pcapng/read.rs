use super::{
    BYTE_ORDER, CaptureInterface, CapturedFrame, Direction, ENHANCED_PACKET, INTERFACE_DESCRIPTION,
    INTERFACES_MAX, InterfaceId, LINK_TYPE_ETHERNET, LINK_TYPE_IPV4, LINK_TYPE_IPV6,
    LINK_TYPE_RAW_IP, NANOS_PER_SECOND, OPTION_COMMENT, OPTION_END, OPTION_FCS_LEN,
    OPTION_INTERFACE_NAME, OPTION_OFFSET, OPTION_PACKET_FLAGS, OPTION_RESOLUTION, PACKET,
    SECTION_HEADER, SIMPLE_PACKET,
};
use crate::Framing;
use std::io::{self, Read as _};
use std::time::Duration;

/// Maximum octets of a block; Wireshark's own limit.
const BLOCK_LEN_MAX: u32 = 16 << 20;

// Classic pcap: the first word of a file, with time stamps in micro- or nanoseconds.
pub(super) const CLASSIC_MICROS: u32 = 0xa1b2_c3d4;
pub(super) const CLASSIC_NANOS: u32 = 0xa1b2_3c4d;

/// Why a capture file cannot be read further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It has another format.
    #[error("neither pcapng nor pcap: the file begins with {0:#010x}")]
    Unknown(u32),
    /// It is inconsistent.
    #[error("malformed capture file: {what} at octet {at}")]
    Malformed {
        /// The error.
        what: &'static str,
        /// Octets before the block or record.
        at: u64,
    },
    /// It ends in the middle of a block or record.
    #[error("the capture file ends inside of a block that begins at octet {at}")]
    Truncated {
        /// Octets before the block or record.
        at: u64,
    },
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads a capture file from its start, pcapng or classic pcap, in either byte order.
#[derive(Debug)]
pub struct CaptureReader<R> {
    input: R,
    /// Octets read before the current block.
    at: u64,
    is_big_endian: bool,
    format: Format,
    interfaces: Vec<CaptureInterface>,
    /// Interfaces of earlier sections.
    earlier: u32,
    block: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Format {
    Unknown,
    Pcapng,
    Classic,
}

/// The positions of a record's parts in the block.
struct Position {
    interface: InterfaceId,
    at: Duration,
    octets: (usize, usize),
    len: usize,
    direction: Option<Direction>,
    comment: (usize, usize),
}

impl Position {
    /// Removes a frame check sequence of `fcs_len` octets, as far as it was captured.
    fn without_fcs(&mut self, fcs_len: u8) {
        self.len = self.len.saturating_sub(fcs_len.into());
        let (from, to) = self.octets;
        self.octets = (from, to.min(from.saturating_add(self.len)));
    }
}

impl<R: io::Read> CaptureReader<R> {
    /// Creates a reader at the start of a file.
    pub fn new(input: R) -> Self {
        Self {
            input,
            at: 0,
            is_big_endian: false,
            format: Format::Unknown,
            interfaces: Vec::new(),
            earlier: 0,
            block: Vec::new(),
        }
    }

    /// The interfaces described so far.
    pub fn interfaces(&self) -> &[CaptureInterface] {
        &self.interfaces
    }

    /// The interface of a record.
    pub fn interface(&self, id: InterfaceId) -> Option<&CaptureInterface> {
        self.interfaces.get(usize::try_from(id.0).ok()?)
    }

    /// The next frame; `None` at the end of the file.
    ///
    /// # Errors
    ///
    /// [`ReadError`], after which the file cannot be read further.
    pub fn next_record(&mut self) -> Result<Option<CapturedFrame<'_>>, ReadError> {
        let Some(place) = self.next_place()? else { return Ok(None) };
        let slice = |(from, to): (usize, usize)| self.block.get(from..to).unwrap_or_default();
        Ok(Some(CapturedFrame {
            interface: place.interface,
            at: place.at,
            octets: slice(place.octets),
            len: place.len,
            direction: place.direction,
            comment: std::str::from_utf8(slice(place.comment)).unwrap_or_default(),
        }))
    }

    fn next_place(&mut self) -> Result<Option<Position>, ReadError> {
        loop {
            if self.format == Format::Classic {
                return self.classic_record();
            }
            let Some(kind) = self.next_block()? else { return Ok(None) };
            match kind {
                INTERFACE_DESCRIPTION => self.describe()?,
                ENHANCED_PACKET | PACKET => return self.packet(kind).map(Some),
                SIMPLE_PACKET => return self.simple().map(Some),
                _ => {}
            }
        }
    }

    /// Reads a block into memory, without its type and lengths; returns its type. `None` at the
    /// end.
    fn next_block(&mut self) -> Result<Option<u32>, ReadError> {
        let mut head = [0; 8];
        if !self.fill(&mut head)? {
            return Ok(None);
        }
        let [k_1, k_2, k_3, k_4, length @ ..] = head;
        let kind = [k_1, k_2, k_3, k_4];
        // The type of a section header reads the same in both byte orders; what follows it tells.
        if u32::from_le_bytes(kind) == SECTION_HEADER {
            return self.begin_section(length).map(Some);
        }
        if self.format == Format::Unknown {
            return self.begin_classic(kind, length).map(|()| Some(SECTION_HEADER));
        }
        let len = self.word(length);
        self.read_body(len, 12)?;
        Ok(Some(self.word(kind)))
    }

    fn begin_section(&mut self, length: [u8; 4]) -> Result<u32, ReadError> {
        const MAJOR_VERSION: u16 = 1;
        let mut order = [0; 4];
        if !self.fill(&mut order)? {
            return Err(ReadError::Truncated { at: self.at });
        }
        self.is_big_endian = match BYTE_ORDER {
            order_mark if order_mark == u32::from_le_bytes(order) => false,
            order_mark if order_mark == u32::from_be_bytes(order) => true,
            _ => return Err(self.malformed("a section without its byte order")),
        };
        self.format = Format::Pcapng;
        self.earlier = u32::try_from(self.interfaces.len()).unwrap_or(u32::MAX);
        let at = self.at;
        let len = self.word(length);
        self.read_body(len, 16)?;
        match self.block.first_chunk() {
            Some(&[m_1, m_2]) if self.half([m_1, m_2]) == MAJOR_VERSION => Ok(SECTION_HEADER),
            _ => Err(ReadError::Malformed { what: "a section of a version that is not 1", at }),
        }
    }

    /// Reads the rest of a block of `len` octets, of which `apart` are the lengths, the type and
    /// the octets already read.
    fn read_body(&mut self, len: u32, apart: u32) -> Result<(), ReadError> {
        if len < apart || len > BLOCK_LEN_MAX || !len.is_multiple_of(4) {
            return Err(self.malformed("a block of impossible length"));
        }
        self.read_exactly(len - apart)?;
        let mut repeated = [0; 4];
        if !self.fill(&mut repeated)? {
            return Err(ReadError::Truncated { at: self.at });
        }
        if self.word(repeated) != len {
            return Err(self.malformed("two lengths of a block that differ"));
        }
        self.at += u64::from(len);
        Ok(())
    }

    /// Reads `len` octets as the block. Memory grows only as octets arrive.
    fn read_exactly(&mut self, len: u32) -> Result<(), ReadError> {
        self.block.clear();
        let read = self.input.by_ref().take(u64::from(len)).read_to_end(&mut self.block)?;
        if read as u64 != u64::from(len) {
            return Err(ReadError::Truncated { at: self.at });
        }
        Ok(())
    }

    /// Fills `octets`; returns whether there were any left.
    fn fill(&mut self, octets: &mut [u8]) -> Result<bool, ReadError> {
        let mut filled = 0;
        while let Some(rest) = octets.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.input.read(rest) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(ReadError::Truncated { at: self.at }),
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    fn describe(&mut self) -> Result<(), ReadError> {
        if self.interfaces.len() >= INTERFACES_MAX {
            return Err(self.malformed("too many interfaces"));
        }
        let Some(&[l_1, l_2, _, _, snap_len @ ..]) = self.block.first_chunk::<8>() else {
            return Err(self.malformed("an interface that is too short"));
        };
        let mut interface = CaptureInterface {
            name: String::new(),
            framing: framing(self.half([l_1, l_2])),
            // §4.2: "If this option is not present, a resolution of 10^-6 is assumed".
            units: 1_000_000,
            offset_s: 0,
            snap_len: self.word(snap_len),
            fcs_len: 0,
        };
        let mut at = 8;
        while let Some((code, from, to)) = self.option_at(&mut at) {
            let value = self.block.get(from..to).unwrap_or_default();
            match (code, value) {
                (OPTION_INTERFACE_NAME, name) => {
                    interface.name = String::from_utf8_lossy(name).into_owned();
                }
                (OPTION_RESOLUTION, &[resolution]) => {
                    interface.units = units(resolution)
                        .ok_or_else(|| self.malformed("time stamps finer than 64 bits hold"))?;
                }
                (OPTION_OFFSET, offset) => {
                    let seconds = offset.first_chunk().map(|&octets| self.double(octets));
                    interface.offset_s = seconds.unwrap_or_default().cast_signed();
                }
                // In bits (§4.2).
                (OPTION_FCS_LEN, &[bits]) => interface.fcs_len = bits.div_ceil(8),
                _ => {}
            }
        }
        self.interfaces.push(interface);
        Ok(())
    }

    /// Parses an enhanced packet block (§4.3), or its predecessor (appendix A), which has 16 bits
    /// for the interface, and 16 for the number of packets lost since the one before.
    fn packet(&self, kind: u32) -> Result<Position, ReadError> {
        const HEADER_LEN: usize = 20;
        let Some(header) = self.block.first_chunk::<HEADER_LEN>() else {
            return Err(self.malformed("a packet that is too short"));
        };
        let (words, _) = header.as_chunks::<4>();
        let word = |number| words.get(number).map_or(0, |&word| self.word(word));
        let [interface, high, low, captured, len] = [0, 1, 2, 3, 4].map(word);
        let interface = match header {
            &[i_1, i_2, ..] if kind == PACKET => u32::from(self.half([i_1, i_2])),
            _ => interface,
        };
        let id = InterfaceId(self.earlier.saturating_add(interface));
        let Some(interface) = self.interface(id) else {
            return Err(self.malformed("a packet of an interface that was not described"));
        };
        let end = self.packet_end(HEADER_LEN, captured)?;
        let mut place = Position {
            interface: id,
            at: time(u64::from(high) << 32 | u64::from(low), interface),
            octets: (HEADER_LEN, end),
            len: usize::try_from(len).unwrap_or(usize::MAX),
            direction: None,
            comment: (0, 0),
        };
        let mut fcs_len = interface.fcs_len;
        let mut at = end.next_multiple_of(4);
        while let Some((code, from, to)) = self.option_at(&mut at) {
            match code {
                OPTION_COMMENT => place.comment = (from, to),
                OPTION_PACKET_FLAGS => {
                    let flags = self.block.get(from..to).and_then(|value| value.first_chunk());
                    let flags = flags.map_or(0, |&flags| self.word(flags));
                    place.direction = match flags & 3 {
                        1 => Some(Direction::Inbound),
                        2 => Some(Direction::Outbound),
                        _ => None,
                    };
                    // Bits 5 to 8, in octets: overrides what the interface says, unless it is 0.
                    match flags >> 5 & 0xf {
                        0 => {}
                        octets => fcs_len = u8::try_from(octets).unwrap_or(0),
                    }
                }
                _ => {}
            }
        }
        place.without_fcs(fcs_len);
        Ok(place)
    }

    /// Parses a packet without a time stamp, of the section's first interface (§4.4).
    fn simple(&self) -> Result<Position, ReadError> {
        const HEADER_LEN: usize = 4;
        let Some(&len) = self.block.first_chunk() else {
            return Err(self.malformed("a packet that is too short"));
        };
        let id = InterfaceId(self.earlier);
        let Some(interface) = self.interface(id) else {
            return Err(self.malformed("a packet of an interface that was not described"));
        };
        let len = usize::try_from(self.word(len)).unwrap_or(usize::MAX);
        // "The minimum of the Original Packet Length and the SnapLen": the rest is padding.
        let snap_len = match interface.snap_len {
            0 => usize::MAX,
            octets => usize::try_from(octets).unwrap_or(usize::MAX),
        };
        let captured = len.min(snap_len).min(self.block.len() - HEADER_LEN);
        let mut place = Position {
            interface: id,
            at: Duration::ZERO,
            octets: (HEADER_LEN, HEADER_LEN + captured),
            len,
            direction: None,
            comment: (0, 0),
        };
        place.without_fcs(interface.fcs_len);
        Ok(place)
    }

    fn packet_end(&self, header_len: usize, captured: u32) -> Result<usize, ReadError> {
        let end = usize::try_from(captured).ok().and_then(|len| len.checked_add(header_len));
        end.filter(|&end| end <= self.block.len())
            .ok_or_else(|| self.malformed("a packet that is longer than its block"))
    }

    /// The option at `at` (code, beginning and end of its value); advances `at`.
    fn option_at(&self, at: &mut usize) -> Option<(u16, usize, usize)> {
        let &[c_1, c_2, l_1, l_2] = self.block.get(*at..)?.first_chunk()?;
        let (code, len) = (self.half([c_1, c_2]), usize::from(self.half([l_1, l_2])));
        let (from, to) = (*at + 4, *at + 4 + len);
        if code == OPTION_END || to > self.block.len() {
            return None;
        }
        *at = to.next_multiple_of(4);
        Some((code, from, to))
    }

    /// Parses the header of a classic file, of which two words have been read.
    fn begin_classic(&mut self, magic: [u8; 4], version: [u8; 4]) -> Result<(), ReadError> {
        // 2.4 is the only one whose lengths are in this order (draft-ietf-opsawg-pcap §4).
        const VERSION: (u16, u16) = (2, 4);
        const HEADER_LEN: u32 = 24;
        let units = |word| match word {
            CLASSIC_MICROS => Some(1_000_000),
            CLASSIC_NANOS => Some(NANOS_PER_SECOND),
            _ => None,
        };
        let little = u32::from_le_bytes(magic);
        let found = units(little).map(|units| (false, units));
        let found = found.or_else(|| units(u32::from_be_bytes(magic)).map(|units| (true, units)));
        let Some((is_big_endian, units)) = found else { return Err(ReadError::Unknown(little)) };
        self.is_big_endian = is_big_endian;
        let [major_1, major_2, minor_1, minor_2] = version;
        if (self.half([major_1, major_2]), self.half([minor_1, minor_2])) != VERSION {
            return Err(self.malformed("a version that is not 2.4"));
        }
        self.read_exactly(HEADER_LEN - 8)?;
        let link_type = self.block.last_chunk().map_or(0, |&word| self.word(word));
        let framing = u16::try_from(link_type & 0xffff).ok().and_then(framing);
        // The four upper bits count the frame check sequence in units of two octets, if the bit P
        // says so (draft-ietf-opsawg-pcap §4).
        let has_fcs = link_type & 1 << 26 != 0;
        let fcs_len = if has_fcs { u8::try_from(link_type >> 28 << 1).unwrap_or(0) } else { 0 };
        // The file's own limit is no part of what a record says.
        let (name, offset_s, snap_len) = (String::new(), 0, 0);
        self.interfaces.push(CaptureInterface {
            name,
            framing,
            units,
            offset_s,
            snap_len,
            fcs_len,
        });
        self.format = Format::Classic;
        self.at += u64::from(HEADER_LEN);
        Ok(())
    }

    fn classic_record(&mut self) -> Result<Option<Position>, ReadError> {
        let mut header = [0; 16];
        if !self.fill(&mut header)? {
            return Ok(None);
        }
        let (words, _) = header.as_chunks::<4>();
        let words = [0, 1, 2, 3].map(|number| words.get(number).map_or(0, |&word| self.word(word)));
        let [seconds, fraction, captured, len] = words;
        if captured > BLOCK_LEN_MAX {
            return Err(self.malformed("a packet of impossible length"));
        }
        self.read_exactly(captured)?;
        self.at += 16 + u64::from(captured);
        let interface = self.interfaces.first();
        let (units, fcs_len) = interface.map_or((1, 0), |it| (it.units, it.fcs_len));
        let nanos = u64::from(fraction) * (NANOS_PER_SECOND / units);
        let mut place = Position {
            interface: InterfaceId(0),
            at: Duration::from_secs(u64::from(seconds)) + Duration::from_nanos(nanos),
            octets: (0, self.block.len()),
            len: usize::try_from(len).unwrap_or(usize::MAX),
            direction: None,
            comment: (0, 0),
        };
        place.without_fcs(fcs_len);
        Ok(Some(place))
    }

    fn malformed(&self, what: &'static str) -> ReadError {
        ReadError::Malformed { what, at: self.at }
    }

    fn half(&self, octets: [u8; 2]) -> u16 {
        if self.is_big_endian { u16::from_be_bytes(octets) } else { u16::from_le_bytes(octets) }
    }

    fn word(&self, octets: [u8; 4]) -> u32 {
        if self.is_big_endian { u32::from_be_bytes(octets) } else { u32::from_le_bytes(octets) }
    }

    fn double(&self, octets: [u8; 8]) -> u64 {
        if self.is_big_endian { u64::from_be_bytes(octets) } else { u64::from_le_bytes(octets) }
    }
}

fn framing(link_type: u16) -> Option<Framing> {
    match link_type {
        LINK_TYPE_ETHERNET => Some(Framing::Ethernet),
        LINK_TYPE_RAW_IP | LINK_TYPE_IPV4 | LINK_TYPE_IPV6 => Some(Framing::Ip),
        _ => None,
    }
}

/// Units in a second (§4.2, `if_tsresol`): a negative power of 10, or of 2 if the high bit is set.
fn units(resolution: u8) -> Option<u64> {
    const POWER_OF_TWO: u8 = 0x80;
    let exponent = u32::from(resolution & !POWER_OF_TWO);
    let base: u64 = if resolution & POWER_OF_TWO == 0 { 10 } else { 2 };
    base.checked_pow(exponent)
}

fn time(stamp: u64, interface: &CaptureInterface) -> Duration {
    let (seconds, rest) = (stamp / interface.units, stamp % interface.units);
    let nanos = u128::from(rest) * u128::from(NANOS_PER_SECOND) / u128::from(interface.units);
    let nanos = u64::try_from(nanos).unwrap_or_default();
    Duration::from_secs(seconds.saturating_add_signed(interface.offset_s))
        .saturating_add(Duration::from_nanos(nanos))
}
