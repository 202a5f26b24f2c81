//! Packets that travel together.

use crate::Packet;

/// Maximum packets of a batch.
pub const BATCH_MAX: usize = 64;

/// Up to [`BATCH_MAX`] packets that a layer handles in one call.
///
/// Its memory is allocated with the first packet and kept.
#[derive(Debug, Default)]
pub struct Batch(Vec<Packet>);

impl Batch {
    /// Adds a packet at the end.
    ///
    /// # Errors
    ///
    /// Returns the packet if the batch is full.
    #[inline]
    pub fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        if self.0.len() >= BATCH_MAX {
            return Err(packet);
        }
        if self.0.capacity() == 0 {
            self.0.reserve_exact(BATCH_MAX);
        }
        self.0.push(packet);
        Ok(())
    }

    /// Takes the last packet.
    pub fn pop(&mut self) -> Option<Packet> {
        self.0.pop()
    }

    /// Takes all packets in order; the batch is empty afterwards and keeps its memory.
    pub fn drain(&mut self) -> impl ExactSizeIterator<Item = Packet> + '_ {
        self.0.drain(..)
    }

    /// Takes as many of `packets` as fit, from its front.
    #[inline]
    pub fn fill_from(&mut self, packets: &mut Vec<Packet>) {
        if self.0.is_empty() && packets.len() <= BATCH_MAX {
            // No packet is moved: both exchange their memory.
            return std::mem::swap(&mut self.0, packets);
        }
        let room = self.room().min(packets.len());
        self.0.extend(packets.drain(..room));
    }

    /// Appends all packets to `packets`.
    #[inline]
    pub fn append_to(&mut self, packets: &mut Vec<Packet>) {
        if packets.is_empty() {
            return std::mem::swap(&mut self.0, packets);
        }
        packets.append(&mut self.0);
    }

    /// The packets in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Packet> {
        self.0.iter()
    }

    /// The packets in order, to change in place.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, Packet> {
        self.0.iter_mut()
    }

    /// Keeps the packets for which `keep` holds; the others return to their pools.
    pub fn retain(&mut self, mut keep: impl FnMut(&mut Packet) -> bool) {
        self.0.retain_mut(|packet| keep(packet));
    }

    /// Packets in it.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Packets that still fit.
    pub fn room(&self) -> usize {
        BATCH_MAX - self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all packets to their pools.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl<'a> IntoIterator for &'a Batch {
    type Item = &'a Packet;
    type IntoIter = std::slice::Iter<'a, Packet>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut Batch {
    type Item = &'a mut Packet;
    type IntoIter = std::slice::IterMut<'a, Packet>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}
