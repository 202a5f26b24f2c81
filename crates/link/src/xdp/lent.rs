//! Chunks that a socket's rings hold.
#![expect(unsafe_code, reason = "a chunk that comes back from the kernel becomes a packet again")]

use gatewright_packet::{DATA_OFFSET, Packet, Pool};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Whether the kernel may still use chunks that a socket has lent it.
#[derive(Default)]
pub(super) struct Use(AtomicU8);

impl Use {
    const OPEN: u8 = 0;
    const RELEASED: u8 = 1;
    const KEPT: u8 = 2;

    /// The socket is closed; the kernel has released the chunks, or a driver may write into them a
    /// moment longer.
    pub(super) fn end(&self, released: bool) {
        self.0.store(if released { Self::RELEASED } else { Self::KEPT }, Ordering::Release);
    }

    fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire) != Self::OPEN
    }

    fn is_released(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::RELEASED
    }
}

/// A pool, and the set of its chunks that one socket has lent to the kernel.
///
/// When it is dropped, they go home if the kernel has released them. Otherwise they stay lent for
/// as long as the pool lives.
pub(super) struct Lent {
    pool: Rc<Pool>,
    /// One bit a chunk.
    bits: Vec<u64>,
    kernel: Arc<Use>,
}

impl Lent {
    /// No chunk yet; `kernel` says when the kernel has released those to come.
    pub(super) fn new(pool: Rc<Pool>, kernel: Arc<Use>) -> Self {
        let bits = vec![0; pool.capacity().div_ceil(64)];
        Self { pool, bits, kernel }
    }

    /// Whether the socket is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.kernel.is_over()
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Lends a packet's chunk; returns the position and number of its octets. A packet of another
    /// pool is returned.
    pub(super) fn lend(&mut self, packet: Packet) -> Result<(u64, u32), Packet> {
        if !packet.is_of(&self.pool) {
            return Err(packet);
        }
        let (address, len) = packet.into_raw();
        self.mark(address);
        Ok((address, len))
    }

    /// Goes on with a chunk at this position that an earlier process has lent.
    pub(super) fn go_on(&mut self, address: u64) {
        if self.pool.give_up_lent(address) {
            self.mark(address);
        }
    }

    /// Takes back a chunk that the kernel has returned, as a packet of `len` octets at `address`.
    /// `None` if it was not lent, or the octets are not within it.
    pub(super) fn take(&mut self, address: u64, len: u32) -> Option<Packet> {
        let (word, bit) = self.place(address)?;
        if *word & bit == 0 {
            return None;
        }
        *word &= !bit;
        // SAFETY: the bit says that the chunk was given away, by `into_raw` in `lend` or by the pool in
        // `go_on`, and has not come back since; the kernel has returned it, by our contract.
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

    /// Takes back every lent chunk, which the kernel has released.
    fn take_all(&mut self) {
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

impl Drop for Lent {
    fn drop(&mut self) {
        if self.kernel.is_released() {
            self.take_all();
        }
    }
}
