//! Splits a field at octets: the basis of every language's accessors.

use crate::layout::Field;

/// The part of a field in one octet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OctetPart {
    /// Index of the header's octet.
    pub(crate) octet: u32,
    /// Bits of the value right of this part.
    pub(crate) below: u32,
    /// Bits of the octet right of this part.
    pub(crate) up: u32,
    /// The part's bits in the octet.
    pub(crate) mask: u8,
}

impl OctetPart {
    /// Whether the part is the whole octet.
    pub(crate) fn is_whole(self) -> bool {
        self.mask == u8::MAX
    }
}

/// The parts of a field, the most significant one first.
pub(crate) fn pieces(field: &Field) -> Vec<OctetPart> {
    let end = field.offset + field.width;
    let (first, count) = octets_of(field);
    let piece = |octet: u32| {
        let (low, high) = (field.offset.max(octet * 8), end.min(octet * 8 + 8));
        let up = octet * 8 + 8 - high;
        let mask = u8::try_from(ones(high - low) << up).unwrap_or(u8::MAX);
        OctetPart { octet, below: end - high, up, mask }
    };
    (first..first + count).map(piece).collect()
}

/// The first octet and the number of octets that contain bits of the field.
pub(crate) fn octets_of(field: &Field) -> (u32, u32) {
    let first = field.offset / 8;
    (first, (field.offset + field.width).div_ceil(8) - first)
}

/// A number of `width` one bits.
pub(crate) fn ones(width: u32) -> u128 {
    u128::MAX.checked_shr(128_u32.saturating_sub(width)).unwrap_or(0)
}

/// `NeighborSolicitation` to `neighbor_solicitation`; `Ipv4` stays one word.
pub(crate) fn snake(name: &str) -> String {
    let mut snake = String::new();
    let mut previous = '_';
    for c in name.chars() {
        if c.is_ascii_uppercase() && previous.is_ascii_lowercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
        previous = c;
    }
    snake
}

/// `source_port` to `sourcePort`.
pub(crate) fn camel(name: &str) -> String {
    let mut words = name.split('_').filter(|word| !word.is_empty());
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let (first, rest) = word.split_at_checked(1).unwrap_or((word, ""));
        camel.push_str(&first.to_ascii_uppercase());
        camel.push_str(rest);
    }
    camel
}

/// `version` to `VERSION`, distinct from the constants that every header has.
pub(crate) fn constant(name: &str) -> String {
    match name {
        "len" | "fields" | "checksum_at" => format!("{}_", name.to_uppercase()),
        _ => name.to_uppercase(),
    }
}
