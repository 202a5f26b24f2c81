//! Sets of octets.

/// A set of octets, one bit each.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Octets {
    low: u128,
    high: u128,
}

impl Octets {
    /// Every octet.
    pub(super) const fn all() -> Self {
        Self { low: u128::MAX, high: u128::MAX }
    }

    /// These octets.
    pub(super) fn of(octets: impl IntoIterator<Item = u8>) -> Self {
        let mut set = Self::default();
        for octet in octets {
            let bit = 1_u128 << (octet % 128);
            if octet < 128 {
                set.low |= bit;
            } else {
                set.high |= bit;
            }
        }
        set
    }

    /// The octets for which `holds` holds.
    pub(super) fn where_(holds: impl Fn(u8) -> bool) -> Self {
        Self::of((0..=u8::MAX).filter(|octet| holds(*octet)))
    }

    /// Removes the octets for which `holds` does not hold.
    pub(super) fn keep(&mut self, holds: impl Fn(u8) -> bool) {
        *self = self.and(Self::where_(holds));
    }

    /// The intersection.
    pub(super) const fn and(self, other: Self) -> Self {
        Self { low: self.low & other.low, high: self.high & other.high }
    }

    /// The union.
    pub(super) const fn or(self, other: Self) -> Self {
        Self { low: self.low | other.low, high: self.high | other.high }
    }

    /// Whether an octet is in both.
    pub(super) const fn meets(self, other: Self) -> bool {
        let Self { low, high } = self.and(other);
        low | high != 0
    }

    fn contains(self, octet: u8) -> bool {
        self.meets(Self::of([octet]))
    }

    /// One of them in readable form: a mark or letter if there is one, otherwise hexadecimal.
    pub(super) fn shown(self) -> String {
        if self == Self::all() {
            return "any octet".to_owned();
        }
        let marks = (b'!'..=b'~').filter(|octet| !octet.is_ascii_alphanumeric());
        let others = (b'a'..=b'z').chain(b'A'..=b'Z').chain(b'0'..=b'9').chain(*b" ");
        match others.clone().chain(marks).find(|octet| self.contains(*octet)) {
            Some(b' ') => "a space".to_owned(),
            Some(octet) => format!("`{}`", char::from(octet)),
            None => match (0..=u8::MAX).find(|octet| self.contains(*octet)) {
                Some(octet) => format!("x\"{octet:02x}\""),
                None => "nothing".to_owned(),
            },
        }
    }
}
