use super::{
    BYTE_ORDER, CapturedFrame, Direction, ENHANCED_PACKET, INTERFACE_DESCRIPTION, InterfaceId,
    LINK_TYPE_ETHERNET, LINK_TYPE_RAW_IP, OPTION_APPLICATION, OPTION_COMMENT, OPTION_END,
    OPTION_INTERFACE_NAME, OPTION_PACKET_FLAGS, OPTION_RESOLUTION, SECTION_HEADER,
};
use crate::Framing;
use std::io;

/// Writes a capture file in pcapng, little-endian, block by block: the file is complete after each
/// block.
#[derive(Debug)]
pub struct PcapngWriter<W> {
    out: W,
    interfaces: u32,
    /// The block under construction.
    block: Vec<u8>,
}

impl<W: io::Write> PcapngWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    ///
    /// The error of `out`, here and in the other methods.
    pub fn new(out: W) -> io::Result<Self> {
        let mut writer = Self { out, interfaces: 0, block: Vec::new() };
        writer.begin(SECTION_HEADER);
        writer.put(&BYTE_ORDER.to_le_bytes());
        // Version 1.0, and a section of unknown length.
        writer.put(&1_u16.to_le_bytes());
        writer.put(&0_u16.to_le_bytes());
        writer.put(&u64::MAX.to_le_bytes());
        writer.option(OPTION_APPLICATION, b"gatewright");
        writer.end()?;
        Ok(writer)
    }

    /// Describes a further interface, whose frames can be written from then on.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn add_interface(&mut self, name: &str, framing: Framing) -> io::Result<InterfaceId> {
        const NANOSECONDS: u8 = 9;
        let link_type = match framing {
            Framing::Ethernet => LINK_TYPE_ETHERNET,
            Framing::Ip => LINK_TYPE_RAW_IP,
        };
        self.begin(INTERFACE_DESCRIPTION);
        self.put(&link_type.to_le_bytes());
        self.put(&[0; 2]);
        // No limit on the octets of a frame.
        self.put(&[0; 4]);
        self.option(OPTION_INTERFACE_NAME, name.as_bytes());
        self.option(OPTION_RESOLUTION, &[NANOSECONDS]);
        self.end()?;
        let id = InterfaceId(self.interfaces);
        self.interfaces = self.interfaces.saturating_add(1);
        Ok(id)
    }

    /// Writes a frame; a comment of more than 65,535 octets is truncated.
    ///
    /// # Errors
    ///
    /// As [`Self::new`]; also for an interface that was not described.
    pub fn write(&mut self, record: &CapturedFrame<'_>) -> io::Result<()> {
        if record.interface.0 >= self.interfaces {
            let said = format!("interface {} was not described", record.interface.0);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, said));
        }
        let length = |len| u32::try_from(len).map_err(|_| io::Error::other("a frame above 4 GiB"));
        let (captured, len) = (length(record.octets.len())?, length(record.len)?);
        let at = u64::try_from(record.at.as_nanos()).unwrap_or(u64::MAX).to_le_bytes();
        let (low, high) = at.split_at(4);
        self.begin(ENHANCED_PACKET);
        self.put(&record.interface.0.to_le_bytes());
        self.put(high);
        self.put(low);
        self.put(&captured.to_le_bytes());
        self.put(&len.to_le_bytes());
        self.put(record.octets);
        self.pad();
        if let Some(direction) = record.direction {
            let flags: u32 = match direction {
                Direction::Inbound => 1,
                Direction::Outbound => 2,
            };
            self.option(OPTION_PACKET_FLAGS, &flags.to_le_bytes());
        }
        if !record.comment.is_empty() {
            self.option(OPTION_COMMENT, record.comment.as_bytes());
        }
        self.end()
    }

    /// Flushes the underlying writer.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// The underlying writer, in place.
    pub const fn out(&self) -> &W {
        &self.out
    }

    /// The underlying writer.
    pub fn into_inner(self) -> W {
        self.out
    }

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.put(&kind.to_le_bytes());
        // The length of the block is known at its end.
        self.put(&[0; 4]);
    }

    fn put(&mut self, octets: &[u8]) {
        self.block.extend_from_slice(octets);
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        let len = u16::try_from(value.len()).unwrap_or(u16::MAX);
        self.put(&code.to_le_bytes());
        self.put(&len.to_le_bytes());
        self.put(value.get(..usize::from(len)).unwrap_or_default());
        self.pad();
    }

    fn end(&mut self) -> io::Result<()> {
        self.option(OPTION_END, &[]);
        let len = u32::try_from(self.block.len() + 4)
            .map_err(|_| io::Error::other("a block above 4 GiB"))?;
        self.put(&len.to_le_bytes());
        if let Some(place) = self.block.get_mut(4..).and_then(|rest| rest.first_chunk_mut()) {
            *place = len.to_le_bytes();
        }
        self.out.write_all(&self.block)
    }
}
