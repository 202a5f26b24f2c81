//! A record, and how it is read during a write.
//!
//! Each record has a version word before it: odd while the writer is inside. A reader copies the
//! words and compares the version before and after. It tries a bounded number of times: a writer
//! that died inside leaves the version odd until the next writer repairs it.

use crate::sync::{AtomicU32, Ordering, fence};

/// Maximum tries of a reader to read a record between two writes.
#[cfg(not(loom))]
const TRIES: u32 = 256;
/// Loom can check a few, and more only repeat them.
#[cfg(loom)]
const TRIES: u32 = 2;

/// A plain value of a fixed number of 32-bit words, the same on every machine.
///
/// Words hold numbers, so the octet order of the machine plays no part in one region; two machines
/// never share one.
pub trait Record: Copy {
    /// Name and layout version, as in `"neighbour/1"`: a reader checks it on attaching, so it
    /// changes whenever the words do.
    const NAME: &'static str;
    /// `[u32; N]`.
    type Words: RecordWords;
    /// The value as words.
    fn to_words(&self) -> Self::Words;
    /// The value in the words; `None` if they are no value of this kind.
    fn from_words(words: Self::Words) -> Option<Self>;
}

/// An array of words; implemented for every `[u32; N]`.
pub trait RecordWords: AsRef<[u32]> + AsMut<[u32]> + Copy {
    /// How many there are.
    const LEN: usize;
    /// All zero.
    const ZERO: Self;
}

impl<const N: usize> RecordWords for [u32; N] {
    const LEN: usize = N;
    const ZERO: Self = [0; N];
}

/// Why an existing record cannot be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The writer is inside of the record, or died there: try later.
    #[error("the record was being written during {TRIES} reads in a row")]
    Unsettled,
    /// The words are no value of this kind: the writer's layout differs.
    #[error("the words are not a {record}")]
    Malformed {
        /// Name of the kind.
        record: &'static str,
    },
}

/// The result of `copy` on the words after the version in `cell`, all from one write.
#[inline]
pub(crate) fn read<T>(
    cell: &[AtomicU32],
    copy: impl Fn(&[AtomicU32]) -> T,
) -> Result<T, ReadError> {
    let Some((version, words)) = cell.split_first() else { return Err(ReadError::Unsettled) };
    for _ in 0..TRIES {
        let before = version.load(Ordering::Acquire);
        if before.is_multiple_of(2) {
            let copied = copy(words);
            fence(Ordering::Acquire);
            if version.load(Ordering::Relaxed) == before {
                return Ok(copied);
            }
        }
        wait_a_moment();
    }
    Err(ReadError::Unsettled)
}

/// Copies as many words as `W` has, and returns the rest.
#[inline]
pub(crate) fn copy_words<W: RecordWords>(words: &[AtomicU32]) -> (W, &[AtomicU32]) {
    let mut copy = W::ZERO;
    let (here, left) = words.split_at_checked(W::LEN).unwrap_or((&[], &[]));
    for (place, word) in copy.as_mut().iter_mut().zip(here) {
        *place = word.load(Ordering::Relaxed);
    }
    (copy, left)
}

/// Writes the words behind the version in `cell`; only the one writer calls this.
pub(crate) fn write(cell: &[AtomicU32], values: impl Iterator<Item = u32>) {
    let Some((version, words)) = cell.split_first() else { return };
    // A writer that died inside has left an odd version, which serves as well as a new one.
    let odd = version.load(Ordering::Relaxed) | 1;
    version.store(odd, Ordering::Relaxed);
    // No word is stored before the version is odd.
    fence(Ordering::Release);
    // Iterated from inside: a chain of values is one loop for each of its parts then.
    let mut words = words.iter();
    values.for_each(|value| {
        if let Some(word) = words.next() {
            word.store(value, Ordering::Relaxed);
        }
    });
    version.store(odd.wrapping_add(1), Ordering::Release);
}

/// Whether a writer died inside of `cell`; only for a new writer, while no other writes.
pub(crate) fn is_torn(cell: &[AtomicU32]) -> bool {
    cell.first().is_some_and(|version| version.load(Ordering::Relaxed) % 2 == 1)
}

#[cfg(not(loom))]
fn wait_a_moment() {
    std::hint::spin_loop();
}

#[cfg(loom)]
fn wait_a_moment() {
    loom::thread::yield_now();
}
