//! Values as octets, for messages between processes: no pointer, no word size, nothing believed.
//!
//! Numbers have their highest octet first; sizes are 64 bits on every machine. A list begins with
//! its length, an enumeration with the number of its variant. What cannot be a value is refused.

mod datagram;
mod device;
mod network;
mod request;

pub(crate) use datagram::ApplicationSetup;

use gatewright_packet::{LinkAddress, LinkIndex};
use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// A value that travels as octets.
pub(crate) trait Plain: Sized {
    /// Appends its octets.
    fn put(&self, to: &mut Vec<u8>);

    /// Takes a value off the front of `from`; `None` if the octets are none.
    fn take(from: &mut &[u8]) -> Option<Self>;

    /// The value whose octets are all of `from`.
    fn of(mut from: &[u8]) -> Option<Self> {
        Self::take(&mut from).filter(|_| from.is_empty())
    }

    /// Its octets.
    fn octets(&self) -> Vec<u8> {
        let mut octets = Vec::new();
        self.put(&mut octets);
        octets
    }
}

/// Implements [`Plain`] for a structure of plain fields.
macro_rules! plain_struct {
    ($type:ty { $($field:ident),* $(,)? }) => {
        impl Plain for $type {
            fn put(&self, to: &mut Vec<u8>) {
                $(self.$field.put(to);)*
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                Some(Self { $($field: Plain::take(from)?),* })
            }
        }
    };
}

/// Implements [`Plain`] for an enumeration, whose variants have numbers. A variant without one is
/// sent as a number that nobody takes.
macro_rules! plain_enum {
    ($type:ty { $($number:literal => $variant:ident
        $(( $($unnamed:ident),* ))? $({ $($named:ident),* })?),* $(,)? }) => {
        impl Plain for $type {
            fn put(&self, to: &mut Vec<u8>) {
                match self {
                    $(Self::$variant $(( $($unnamed),* ))? $({ $($named),* })? => {
                        to.push($number);
                        $($($unnamed.put(to);)*)?
                        $($($named.put(to);)*)?
                    })*
                    #[allow(unreachable_patterns, reason = "other crates may add variants")]
                    _ => to.push(u8::MAX),
                }
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                Some(match u8::take(from)? {
                    $($number => Self::$variant
                        $(( $(taken!($unnamed, from)),* ))? $({ $($named: Plain::take(from)?),* })?,)*
                    _ => return None,
                })
            }
        }
    };
}

/// The next value, for a field without a name.
macro_rules! taken {
    ($field:ident, $from:ident) => {
        Plain::take($from)?
    };
}

/// Implements [`Plain`] for numbers, highest octet first; real ones as IEEE 754 has them.
macro_rules! plain_number {
    ($($type:ty),*) => {
        $(impl Plain for $type {
            fn put(&self, to: &mut Vec<u8>) {
                to.extend(self.to_be_bytes());
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                let (octets, rest) = from.split_first_chunk()?;
                *from = rest;
                Some(Self::from_be_bytes(*octets))
            }
        })*
    };
}

/// Implements [`Plain`] for a structure around one plain value.
macro_rules! plain_newtype {
    ($($type:path),* $(,)?) => {
        $(impl Plain for $type {
            fn put(&self, to: &mut Vec<u8>) {
                self.0.put(to);
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                Some($type(Plain::take(from)?))
            }
        })*
    };
}

pub(crate) use {plain_enum, plain_newtype, plain_struct, taken};

plain_number!(u8, u16, u32, u64, f64);
plain_newtype!(LinkIndex);

impl Plain for usize {
    fn put(&self, to: &mut Vec<u8>) {
        (*self as u64).put(to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Self::try_from(u64::take(from)?).ok()
    }
}

impl Plain for bool {
    fn put(&self, to: &mut Vec<u8>) {
        u8::from(*self).put(to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        match u8::take(from)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Plain for () {
    fn put(&self, _: &mut Vec<u8>) {}

    fn take(_: &mut &[u8]) -> Option<Self> {
        Some(())
    }
}

impl Plain for Duration {
    fn put(&self, to: &mut Vec<u8>) {
        self.as_secs().put(to);
        self.subsec_nanos().put(to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let (seconds, nanoseconds) = (u64::take(from)?, u32::take(from)?);
        (nanoseconds < 1_000_000_000).then(|| Self::new(seconds, nanoseconds))
    }
}

/// Maximum octets that are reserved for a list before its elements are there.
const RESERVED_MAX: usize = 4096;

impl<T: Plain> Plain for Vec<T> {
    fn put(&self, to: &mut Vec<u8>) {
        self.len().put(to);
        for one in self {
            one.put(to);
        }
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let len = usize::take(from)?;
        // A length alone reserves nothing: the elements have to come.
        let mut all = Self::with_capacity(len.min(RESERVED_MAX / size_of::<T>().max(1)));
        for _ in 0..len {
            // Elements without octets would come for ever.
            if from.is_empty() {
                return None;
            }
            all.push(T::take(from)?);
        }
        Some(all)
    }
}

impl<T: Plain> Plain for Option<T> {
    fn put(&self, to: &mut Vec<u8>) {
        self.is_some().put(to);
        if let Some(value) = self {
            value.put(to);
        }
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Some(if bool::take(from)? { Some(T::take(from)?) } else { None })
    }
}

impl<T: Plain> Plain for Box<T> {
    fn put(&self, to: &mut Vec<u8>) {
        (**self).put(to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        T::take(from).map(Self::new)
    }
}

impl<A: Plain, B: Plain> Plain for (A, B) {
    fn put(&self, to: &mut Vec<u8>) {
        self.0.put(to);
        self.1.put(to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Some((A::take(from)?, B::take(from)?))
    }
}

impl Plain for String {
    fn put(&self, to: &mut Vec<u8>) {
        self.len().put(to);
        to.extend(self.as_bytes());
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let len = usize::take(from)?;
        let (text, rest) = from.split_at_checked(len)?;
        *from = rest;
        Self::from_utf8(text.to_vec()).ok()
    }
}

impl Plain for PathBuf {
    fn put(&self, to: &mut Vec<u8>) {
        use std::os::unix::ffi::OsStrExt;
        self.as_os_str().as_bytes().to_vec().put(to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        use std::os::unix::ffi::OsStringExt;
        Some(std::ffi::OsString::from_vec(Vec::take(from)?).into())
    }
}

impl Plain for Ipv4Addr {
    fn put(&self, to: &mut Vec<u8>) {
        self.to_bits().put(to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        u32::take(from).map(Self::from_bits)
    }
}

impl Plain for Ipv6Addr {
    fn put(&self, to: &mut Vec<u8>) {
        to.extend(self.octets());
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let (octets, rest) = from.split_first_chunk::<16>()?;
        *from = rest;
        Some(Self::from(*octets))
    }
}

plain_enum!(IpAddr { 4 => V4(address), 6 => V6(address) });

impl Plain for LinkAddress {
    fn put(&self, to: &mut Vec<u8>) {
        self.octets().to_vec().put(to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Self::new(&Vec::take(from)?)
    }
}

/// Maximum texts of [`static_text`]: names of layers and reasons of drops, of which a program has
/// fewer.
const TEXTS_MAX: usize = 1024;

/// A text that lives as long as the program, as names of layers and reasons do in the process that
/// they come from. A process that invents names gets `other` beyond [`TEXTS_MAX`].
fn static_text(text: &str) -> &'static str {
    static TEXTS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    // A poisoned lock is safe here: the set stays consistent.
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = texts.get(text) {
        return known;
    }
    if texts.len() >= TEXTS_MAX {
        return "other";
    }
    let text: &'static str = Box::leak(text.to_owned().into_boxed_str());
    texts.insert(text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::{PortAnswer, PortRequest};
    use gatewright_stack::Event;
    use proptest::prelude::*;

    #[test]
    fn numbers_have_the_highest_octet_first_and_sizes_64_bits() {
        assert_eq!(0x0102_u16.octets(), [1, 2]);
        assert_eq!(3_usize.octets(), [0, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(String::from("ab").octets(), [0, 0, 0, 0, 0, 0, 0, 2, b'a', b'b']);
        assert_eq!(Some(true).octets(), [1, 1]);
    }

    #[test]
    fn what_is_too_short_too_long_or_out_of_range_is_refused() {
        assert_eq!(u32::of(&[1, 2, 3]), None);
        assert_eq!(u8::of(&[1, 2]), None);
        assert_eq!(bool::of(&[2]), None);
        assert_eq!(String::of(&[0, 0, 0, 0, 0, 0, 0, 1, 0xff]), None, "no UTF-8");
        assert_eq!(Vec::<u8>::of(&[0xff; 9]), None, "a length that nothing follows");
        assert_eq!(Vec::<()>::of(&[0xff; 8]), None);
        assert_eq!(Duration::of(&[0xff; 12]), None);
        assert_eq!(LinkAddress::of(&vec![1_u8; 3].octets()), None, "no such width");
    }

    #[test]
    fn texts_are_kept_once() {
        let one = static_text("a-reason-of-this-test");
        let same = String::from("a-reason-of-this-test");
        assert!(std::ptr::eq(one, static_text(&same)));
    }

    proptest! {
        /// Octets of another process are a value or refused; nothing else happens.
        #[test]
        fn any_octets_are_a_value_or_refused(octets in prop::collection::vec(any::<u8>(), 0..200)) {
            let _value = PortRequest::of(&octets);
            let _value = PortAnswer::of(&octets);
            let _value = Event::of(&octets);
        }
    }
}
