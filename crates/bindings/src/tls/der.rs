//! Elements of DER (X.690 §8 and §10), read in place.

use gatewright_onem2m::Timestamp;

/// Tags (X.690 §8.1.2).
pub(super) const BOOLEAN: u8 = 0x01;
pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OBJECT_IDENTIFIER: u8 = 0x06;
pub(super) const ENUMERATED: u8 = 0x0a;
pub(super) const UTC_TIME: u8 = 0x17;
pub(super) const GENERALIZED_TIME: u8 = 0x18;
pub(super) const SEQUENCE: u8 = 0x30;
/// Explicit tags of context, constructed: `[0]`, `[1]`, `[2]`.
pub(super) const EXPLICIT_0: u8 = 0xa0;
pub(super) const EXPLICIT_1: u8 = 0xa1;
pub(super) const EXPLICIT_2: u8 = 0xa2;

/// The first element: its tag, its content, and what follows it.
pub(super) fn element(octets: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = octets.split_first_chunk()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        let length = length.iter().try_fold(0_usize, |length, &octet| {
            Some(length.checked_mul(256)?.saturating_add(usize::from(octet)))
        })?;
        (length, rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// Reads elements one after the other.
#[derive(Clone, Copy)]
pub(super) struct Elements<'octets>(pub(super) &'octets [u8]);

impl<'octets> Elements<'octets> {
    /// The content of the next element if it has this tag; otherwise it stays.
    pub(super) fn take(&mut self, tag: u8) -> Option<&'octets [u8]> {
        let (found, content, rest) = element(self.0)?;
        if found != tag {
            return None;
        }
        self.0 = rest;
        Some(content)
    }

    /// The content of the last element, which must have this tag.
    pub(super) fn last(&mut self, tag: u8) -> Option<&'octets [u8]> {
        self.take(tag).filter(|_| self.0.is_empty())
    }

    /// The content of the last element if it has this tag, or `[]` if there is none.
    pub(super) fn last_or_none(&mut self, tag: u8) -> Option<&'octets [u8]> {
        if self.0.is_empty() { Some(&[]) } else { self.last(tag) }
    }

    /// The next element with its tag and length.
    pub(super) fn whole(&mut self) -> Option<&'octets [u8]> {
        let (_, _, rest) = element(self.0)?;
        let (whole, rest) = self.0.split_at_checked(self.0.len().checked_sub(rest.len())?)?;
        self.0 = rest;
        Some(whole)
    }
}

/// An element as it is written.
pub(super) fn written(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let mut octets = vec![tag];
    if let Ok(short @ 0..0x80) = u8::try_from(content.len()) {
        octets.push(short);
    } else {
        let length: Vec<u8> = length.iter().copied().skip_while(|&octet| octet == 0).collect();
        octets.push(0x80 | u8::try_from(length.len()).unwrap_or(u8::MAX));
        octets.extend(length);
    }
    octets.extend(content);
    octets
}

/// A `GeneralizedTime` as RFC 5280 §4.1.2.5.2 has it: `YYYYMMDDHHMMSSZ`.
pub(super) fn generalized_time(content: &[u8]) -> Option<Timestamp> {
    let digits = core::str::from_utf8(content).ok()?.strip_suffix('Z')?;
    let (date, time) = digits.split_at_checked(8)?;
    Timestamp::parse(&format!("{date}T{time}"))
}
