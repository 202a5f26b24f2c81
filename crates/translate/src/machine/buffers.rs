//! Buffers that are lent while octets are pending.

use super::BUFFER_OCTETS;

/// How many unused buffers are kept: what a busy loop needs at once, in half a mebibyte.
const SPARE_MAX: usize = 64;

/// Buffers that nobody uses.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    spare: Vec<Vec<u8>>,
}

impl Pool {
    /// Makes an empty buffer fit for use, if it has no memory yet.
    fn equip(&mut self, buffer: &mut Vec<u8>) {
        if buffer.capacity() == 0 {
            *buffer = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(BUFFER_OCTETS));
        }
    }

    /// Appends octets to a buffer.
    pub(crate) fn append(&mut self, buffer: &mut Vec<u8>, octets: &[u8]) {
        if !octets.is_empty() {
            self.equip(buffer);
            buffer.extend_from_slice(octets);
        }
    }

    /// Takes a buffer's memory back if it is empty.
    pub(crate) fn reclaim(&mut self, buffer: &mut Vec<u8>) {
        if buffer.is_empty() && buffer.capacity() > 0 {
            let spare = core::mem::take(buffer);
            if self.spare.len() < SPARE_MAX && spare.capacity() <= 2 * BUFFER_OCTETS {
                self.spare.push(spare);
            }
        }
    }

    /// An empty buffer for something that passes.
    pub(crate) fn lend(&mut self) -> Vec<u8> {
        let mut buffer = Vec::new();
        self.equip(&mut buffer);
        buffer
    }

    /// Takes a lent buffer back.
    pub(crate) fn give_back(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        self.reclaim(&mut buffer);
    }
}

/// What waits to be sent.
#[derive(Debug, Default)]
pub(crate) struct Unsent {
    octets: Vec<u8>,
    /// How many of them are gone.
    gone: usize,
}

impl Unsent {
    pub(crate) fn octets(&self) -> &[u8] {
        self.octets.get(self.gone..).unwrap_or_default()
    }

    pub(crate) fn len(&self) -> usize {
        self.octets.len() - self.gone
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn append(&mut self, pool: &mut Pool, octets: &[u8]) {
        pool.append(&mut self.octets, octets);
    }

    /// The first octets are gone.
    pub(crate) fn advance(&mut self, pool: &mut Pool, octets: usize) {
        self.gone = self.gone.saturating_add(octets).min(self.octets.len());
        if self.is_empty() {
            self.octets.clear();
            self.gone = 0;
            pool.reclaim(&mut self.octets);
        } else if self.gone >= BUFFER_OCTETS {
            self.octets.drain(..self.gone);
            self.gone = 0;
        }
    }
}
