//! Writing of variable-length data, piece by piece, into lent octets.

use crate::Truncated;

/// Fills a slice from its front; a piece that does not fit is refused whole.
#[derive(Debug)]
pub struct Writer<'a> {
    octets: &'a mut [u8],
    len: usize,
}

impl<'a> Writer<'a> {
    /// Writes into `octets` from the first one on.
    pub const fn new(octets: &'a mut [u8]) -> Self {
        Self { octets, len: 0 }
    }

    /// Octets written.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is written.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Octets that still fit.
    pub const fn free(&self) -> usize {
        self.octets.len().saturating_sub(self.len)
    }

    /// Appends `piece`.
    ///
    /// # Errors
    ///
    /// [`Truncated`] if it does not fit; then nothing is written.
    pub fn put(&mut self, piece: &[u8]) -> Result<(), Truncated> {
        let needed = self.len.saturating_add(piece.len());
        let found = self.octets.len();
        let slot = self.octets.get_mut(self.len..needed).ok_or(Truncated { needed, found })?;
        slot.copy_from_slice(piece);
        self.len = needed;
        Ok(())
    }

    /// Appends one octet.
    ///
    /// # Errors
    ///
    /// [`Truncated`] if it does not fit.
    pub fn put_octet(&mut self, octet: u8) -> Result<(), Truncated> {
        self.put(&[octet])
    }

    /// Appends zeros until the length is a multiple of `multiple` octets.
    ///
    /// # Errors
    ///
    /// [`Truncated`] if they do not fit.
    pub fn pad(&mut self, multiple: usize) -> Result<(), Truncated> {
        while multiple > 0 && !self.len.is_multiple_of(multiple) {
            self.put_octet(0)?;
        }
        Ok(())
    }

    /// The written octets.
    pub fn written(&self) -> &[u8] {
        self.octets.get(..self.len).unwrap_or_default()
    }

    /// The written octets, for as long as the slice is lent.
    pub fn finish(self) -> &'a [u8] {
        self.octets.get(..self.len).unwrap_or_default()
    }
}
