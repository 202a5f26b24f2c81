//! Medical device encoding rules (ISO/IEEE 11073-20601, annex F): big-endian integers, lists with
//! count and length, octet strings with a length.
//!
//! A cursor reads borrowed octets in place. Lists are checked once when they are read, so that
//! later iteration cannot fail.

/// Error of malformed octets: always the peer's fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// A field reaches past the end.
    #[error("{needed} octets announced, {found} there")]
    Truncated {
        /// Octets that the field needs.
        needed: usize,
        /// Octets that are left.
        found: usize,
    },
    /// Octets are left after the last field of a structure with a length.
    #[error("{count} octets behind the last field")]
    Trailing {
        /// Octets left.
        count: usize,
    },
    /// A choice that the standard does not define.
    #[error("choice {choice:#06x} is not defined")]
    UnknownChoice {
        /// The value met.
        choice: u16,
    },
    /// A system-id that is no EUI-64.
    #[error("system-id of {length} octets, not 8")]
    SystemId {
        /// Octets met.
        length: usize,
    },
}

/// The octets do not fit the 16-bit lengths of the encoding: the sender's fault, never the peer's.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("more than 65535 octets in one field")]
pub struct TooLong;

/// A cursor over borrowed octets.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Starts at the first of `octets`.
    pub const fn new(octets: &'a [u8]) -> Self {
        Self(octets)
    }

    /// The octets not read yet.
    pub const fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Whether everything has been read.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads `N` octets.
    ///
    /// # Errors
    ///
    /// [`Malformed::Truncated`] if fewer are left; so for every `take` below.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let Some((head, rest)) = self.0.split_first_chunk::<N>() else {
            return Err(Malformed::Truncated { needed: N, found: self.0.len() });
        };
        self.0 = rest;
        Ok(*head)
    }

    /// Reads an INT-U8.
    ///
    /// # Errors
    ///
    /// See [`array`](Self::array).
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_be_bytes)
    }

    /// Reads an INT-U16.
    ///
    /// # Errors
    ///
    /// See [`array`](Self::array).
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    /// Reads an INT-U32.
    ///
    /// # Errors
    ///
    /// See [`array`](Self::array).
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads `length` octets.
    ///
    /// # Errors
    ///
    /// See [`array`](Self::array).
    pub fn octets(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let Some((head, rest)) = self.0.split_at_checked(length) else {
            return Err(Malformed::Truncated { needed: length, found: self.0.len() });
        };
        self.0 = rest;
        Ok(head)
    }

    /// Reads an OCTET STRING or ANY: a 16-bit length and that many octets.
    ///
    /// # Errors
    ///
    /// See [`array`](Self::array).
    pub fn octet_string(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u16()?;
        self.octets(usize::from(length))
    }

    /// Reads a list: count, length, and elements of type `E` that fill the length exactly.
    ///
    /// # Errors
    ///
    /// What is wrong with the list or with one of its elements.
    pub fn list<E: Element<'a>>(&mut self) -> Result<List<'a, E>, Malformed> {
        let count = self.u16()?;
        let octets = self.octet_string()?;
        let mut walk = Self(octets);
        for _ in 0..count {
            E::take(&mut walk)?;
        }
        walk.finish()?;
        Ok(List { octets, count, element: core::marker::PhantomData })
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    ///
    /// [`Malformed::Trailing`] otherwise.
    pub const fn finish(self) -> Result<(), Malformed> {
        match self.0.len() {
            0 => Ok(()),
            count => Err(Malformed::Trailing { count }),
        }
    }
}

/// An element of a list.
pub trait Element<'a>: Sized {
    /// Takes one off the front.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed>;

    /// Appends it.
    fn put(&self, writer: &mut MderWriter);
}

impl Element<'_> for u16 {
    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        reader.u16()
    }

    fn put(&self, writer: &mut MderWriter) {
        writer.u16(*self);
    }
}

/// An octet string in a list, as grouped observations are.
impl<'a> Element<'a> for &'a [u8] {
    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        reader.octet_string()
    }

    fn put(&self, writer: &mut MderWriter) {
        writer.octet_string(self);
    }
}

/// A list whose elements have been checked: iterating cannot fail.
pub struct List<'a, E> {
    octets: &'a [u8],
    count: u16,
    element: core::marker::PhantomData<fn() -> E>,
}

impl<'a, E: Element<'a>> List<'a, E> {
    /// Number of elements.
    pub const fn len(&self) -> u16 {
        self.count
    }

    /// Whether there are no elements.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The elements from first to last.
    pub const fn iter(&self) -> Elements<'a, E> {
        Elements { reader: Reader(self.octets), element: core::marker::PhantomData }
    }

    /// Appends count, length and elements as received.
    pub fn put(&self, writer: &mut MderWriter) {
        writer.u16(self.count);
        writer.octet_string(self.octets);
    }
}

impl<E> Clone for List<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for List<'_, E> {}

impl<E> Default for List<'_, E> {
    fn default() -> Self {
        Self { octets: &[], count: 0, element: core::marker::PhantomData }
    }
}

impl<E> PartialEq for List<'_, E> {
    fn eq(&self, other: &Self) -> bool {
        self.count == other.count && self.octets == other.octets
    }
}

impl<E> Eq for List<'_, E> {}

impl<'a, E: Element<'a> + core::fmt::Debug> core::fmt::Debug for List<'a, E> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, E: Element<'a>> IntoIterator for List<'a, E> {
    type Item = E;
    type IntoIter = Elements<'a, E>;

    fn into_iter(self) -> Elements<'a, E> {
        self.iter()
    }
}

impl<'a, E: Element<'a>> IntoIterator for &List<'a, E> {
    type Item = E;
    type IntoIter = Elements<'a, E>;

    fn into_iter(self) -> Elements<'a, E> {
        self.iter()
    }
}

/// The elements of a [`List`].
#[derive(Debug)]
pub struct Elements<'a, E> {
    reader: Reader<'a>,
    element: core::marker::PhantomData<fn() -> E>,
}

impl<E> Clone for Elements<'_, E> {
    fn clone(&self) -> Self {
        Self { reader: self.reader, element: core::marker::PhantomData }
    }
}

impl<'a, E: Element<'a>> Iterator for Elements<'a, E> {
    type Item = E;

    fn next(&mut self) -> Option<E> {
        if self.reader.is_empty() {
            return None;
        }
        let element = E::take(&mut self.reader);
        debug_assert!(element.is_ok(), "Reader::list walked these octets");
        element.ok()
    }
}

/// Encoder whose lengths are filled in afterwards.
///
/// A length that does not fit its 16 bits is remembered and reported by [`finish`](Self::finish),
/// so that encoding code has the order of the format.
#[derive(Debug, Default)]
pub struct MderWriter {
    octets: Vec<u8>,
    too_long: bool,
}

impl MderWriter {
    /// Creates an empty writer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends an INT-U8.
    pub fn u8(&mut self, value: u8) {
        self.octets.push(value);
    }

    /// Appends an INT-U16.
    pub fn u16(&mut self, value: u16) {
        self.octets.extend(value.to_be_bytes());
    }

    /// Appends an INT-U32.
    pub fn u32(&mut self, value: u32) {
        self.octets.extend(value.to_be_bytes());
    }

    /// Appends octets as they are.
    pub fn octets(&mut self, octets: &[u8]) {
        self.octets.extend_from_slice(octets);
    }

    /// Appends an OCTET STRING or ANY.
    pub fn octet_string(&mut self, octets: &[u8]) {
        self.sized(|writer| writer.octets(octets));
    }

    /// Appends a 16-bit length and the output of `body`.
    pub fn sized(&mut self, body: impl FnOnce(&mut Self)) {
        let start = self.octets.len();
        self.u16(0);
        body(self);
        let length = self.octets.len() - start - size_of::<u16>();
        let length = u16::try_from(length).unwrap_or_else(|_| {
            self.too_long = true;
            u16::MAX
        });
        if let Some(field) = self.octets.get_mut(start..start + size_of::<u16>()) {
            field.copy_from_slice(&length.to_be_bytes());
        }
    }

    /// Appends a list: count, length, elements.
    pub fn list<'a, E: Element<'a>>(&mut self, elements: &[E]) {
        let count = u16::try_from(elements.len()).unwrap_or_else(|_| {
            self.too_long = true;
            u16::MAX
        });
        self.u16(count);
        self.sized(|writer| {
            for element in elements {
                element.put(writer);
            }
        });
    }

    /// The octets written.
    ///
    /// # Errors
    ///
    /// [`TooLong`] if a length did not fit.
    pub fn finish(self) -> Result<Vec<u8>, TooLong> {
        if self.too_long { Err(TooLong) } else { Ok(self.octets) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_must_end_where_its_elements_end() {
        let cases: [(&str, &[u8], Result<u16, Malformed>); 5] = [
            ("exact", &[0, 2, 0, 4, 0, 1, 0, 2], Ok(2)),
            ("empty", &[0, 0, 0, 0], Ok(0)),
            ("one short", &[0, 2, 0, 2, 0, 1], Err(Malformed::Truncated { needed: 2, found: 0 })),
            ("one left", &[0, 1, 0, 4, 0, 1, 0, 2], Err(Malformed::Trailing { count: 2 })),
            ("cut", &[0, 2, 0, 4, 0, 1], Err(Malformed::Truncated { needed: 4, found: 2 })),
        ];
        for (name, octets, expected) in cases {
            assert_eq!(
                Reader::new(octets).list::<u16>().map(|list| list.len()),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn a_length_past_16_bits_is_told_at_the_end() {
        let mut writer = MderWriter::new();
        writer.octet_string(&vec![0; 65_536]);
        assert_eq!(writer.finish(), Err(TooLong));
    }
}
