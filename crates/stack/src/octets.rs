//! Octets of a packet on their way to another thread.

use gatewright_packet::Parcel;

/// The octets of a packet that leaves its worker.
#[derive(Debug)]
pub enum PacketOctets {
    /// In their chunk of the worker's slab, which returns when they were read.
    Chunk(Parcel),
    /// A copy, as from another process.
    Copied(Vec<u8>),
}

impl PacketOctets {
    /// The octets.
    pub fn octets(&self) -> &[u8] {
        match self {
            Self::Chunk(parcel) => parcel.octets(),
            Self::Copied(octets) => octets,
        }
    }

    /// Reads them, and gives their chunk back.
    pub fn read<R>(self, read: impl FnOnce(&[u8]) -> R) -> R {
        read(self.octets())
    }
}
