//! Checks over octets, computed octet by octet while a message arrives.

use gatewright_lang::ir::Checksum;

/// A running check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartialChecksum {
    by: Checksum,
    state: u32,
}

impl PartialChecksum {
    pub(crate) const fn new(by: Checksum) -> Self {
        let state = match by {
            Checksum::Crc16Modbus | Checksum::Crc16Ccitt => 0xffff,
            Checksum::Crc32 => u32::MAX,
            Checksum::Lrc => 0,
        };
        Self { by, state }
    }

    pub(crate) fn add(&mut self, octets: &[u8]) {
        for octet in octets {
            let octet = u32::from(*octet);
            self.state = match self.by {
                Checksum::Crc16Modbus => reflected(self.state ^ octet, 0xa001),
                Checksum::Crc32 => reflected(self.state ^ octet, 0xedb8_8320),
                Checksum::Crc16Ccitt => (0..8).fold(self.state ^ octet << 8, |sum, _| {
                    let shifted = sum << 1 & 0xffff;
                    if sum & 0x8000 == 0 { shifted } else { shifted ^ 0x1021 }
                }),
                Checksum::Lrc => self.state.wrapping_add(octet) & 0xff,
            };
        }
    }

    /// The check in wire format, in the first octets; see [`Checksum::octets`].
    pub(crate) fn octets(self) -> [u8; 4] {
        match self.by {
            Checksum::Crc16Modbus => self.state.to_le_bytes(),
            Checksum::Crc16Ccitt => (self.state << 16).to_be_bytes(),
            Checksum::Crc32 => (!self.state).to_le_bytes(),
            Checksum::Lrc => self.state.wrapping_neg().to_le_bytes(),
        }
    }
}

/// Computes eight steps of a reflected CRC.
fn reflected(state: u32, polynomial: u32) -> u32 {
    (0..8).fold(state, |sum, _| if sum & 1 == 1 { sum >> 1 ^ polynomial } else { sum >> 1 })
}
