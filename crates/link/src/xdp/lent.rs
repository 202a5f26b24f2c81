//! The chunks that a socket's rings hold.
#![expect(unsafe_code, reason = "a chunk that comes back from the kernel becomes a packet again")]

use gatewright_packet::{DATA_OFFSET, Packet, Pool};
use std::rc::Rc;

/// A pool, and which of its chunks are lent to the kernel by one socket.
pub(super) struct Lent {
    pool: Rc<Pool>,
    /// One bit a chunk.
    bits: Vec<u64>,
}

impl Lent {
    pub(super) fn new(pool: Rc<Pool>) -> Self {
        let bits = vec![0; pool.capacity().div_ceil(64)];
        Self { pool, bits }
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Lends a packet's chunk; where its octets begin, and how many they are. The packet must be
    /// one of the pool: another comes back.
    pub(super) fn lend(&mut self, packet: Packet) -> Result<(u64, u32), Packet> {
        if !packet.is_of(&self.pool) {
            return Err(packet);
        }
        let (address, len) = packet.into_raw();
        self.mark(address);
        Ok((address, len))
    }

    /// Takes a chunk back that the kernel has returned, as a packet of `len` octets at `address`.
    /// `None` if it was not lent, or they do not lie within it.
    pub(super) fn take(&mut self, address: u64, len: u32) -> Option<Packet> {
        let (word, bit) = self.place(address)?;
        if *word & bit == 0 {
            return None;
        }
        *word &= !bit;
        // SAFETY: the bit says that the chunk was given away by `into_raw` in `lend` and has not
        // come back since; the kernel has returned it, by our contract.
        let packet = unsafe { self.pool.packet_from_raw(address, len) };
        if packet.is_none() {
            // It stays lent, to come home with all others.
            self.mark(address);
        }
        packet
    }

    fn mark(&mut self, address: u64) {
        if let Some((word, bit)) = self.place(address) {
            *word |= bit;
        }
    }

    /// Takes every chunk back that is still lent. Only after the kernel has let go of them.
    pub(super) fn take_all(&mut self) {
        let chunk_size = self.pool.chunk_size();
        for chunk in 0..self.pool.capacity() {
            // Empty packets, dropped at once: their chunks go home.
            drop(self.take((chunk * chunk_size + DATA_OFFSET) as u64, 0));
        }
    }

    fn place(&mut self, address: u64) -> Option<(&mut u64, u64)> {
        let chunk = usize::try_from(address).ok()? / self.pool.chunk_size();
        Some((self.bits.get_mut(chunk / 64)?, 1 << (chunk % 64)))
    }
}
