//! The trie's node: eight words, half a cache line, alike in both families.
//!
//! ```text
//!           word 0        1      2      3      4       5       6         7
//! branch  00|short high, low   exact high, low   external high, low   children  results
//! tail    10|     len,  hop      0      0      key (four words, the whole address)
//! skip    11|     len,  next     0      0      key (four words, the whole address)
//! ```
//!
//! A *branch* at depth `d` stands for the prefixes that end in the next six bits. `short` has a bit
//! for each prefix of one to five of them, in heap order; `exact` one for each of six; their values
//! lie in the words from `results` on, in the order of the bits. `external` has a bit for each
//! group of longer prefixes; their cells follow each other from `children` on. A *tail* is a
//! prefix alone below its parent. A *skip* leads to the branch at depth `len`, if the address
//! begins with `key`, past bits in which nothing ends and nothing parts.
//!
//! The same set of prefixes always makes the same cells, independent of the order of changes.

use super::prefix::PrefixKey;
use crate::memory::halves;
use crate::sync::{AtomicU32, Ordering};

/// Words of a cell.
pub(crate) const CELL_WORDS: u32 = 8;

/// Bits that a branch decides.
pub(crate) const STRIDE: u8 = 6;

/// Cells on the longest way down: 22 strides of six bits, each perhaps after a skip.
pub(crate) const CELLS_ON_A_WAY: u8 = 48;

const KIND: u32 = 0xc000_0000;
pub(crate) const TAIL: u32 = 0x8000_0000;
pub(crate) const SKIP: u32 = 0xc000_0000;

/// A cell as the writer handles it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Cell<K> {
    Branch(Branch),
    Tail(Tail<K>),
    Skip(Skip<K>),
}

/// Six bits of the way.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Branch {
    /// Prefixes of one to five bits, by [`short_index`].
    pub(crate) short: u64,
    /// Prefixes of six bits, by their value.
    pub(crate) exact: u64,
    /// Cells one level down, by the six bits that lead there.
    pub(crate) external: u64,
    /// The position of those cells.
    pub(crate) children: u32,
    /// The position of the prefixes' values.
    pub(crate) results: u32,
}

/// One prefix with nothing beside or below it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Tail<K> {
    pub(crate) key: K,
    pub(crate) len: u8,
    pub(crate) hop: u32,
}

/// A way without a fork up to the branch at depth `len`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Skip<K> {
    pub(crate) key: K,
    pub(crate) len: u8,
    pub(crate) next: u32,
}

/// The bit of the prefix of `len` (1 to 5) bits whose value is `bits`.
pub(crate) const fn short_index(len: u8, bits: u32) -> u32 {
    (1 << len) + bits - 2
}

/// For each six bits, the `short` bits of their own first one to five.
const ANCESTORS: [u64; 64] = ancestors();

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which checks it")]
const fn ancestors() -> [u64; 64] {
    let mut masks = [0; 64];
    let mut slot = 0_usize;
    let mut value = 0_u32;
    while slot < masks.len() {
        let mut len = 1;
        while len < STRIDE {
            masks[slot] |= 1 << short_index(len, value >> (STRIDE - len));
            len += 1;
        }
        slot += 1;
        value += 1;
    }
    masks
}

impl Branch {
    /// The index of the longest prefix of these six bits among the results.
    #[inline]
    pub(crate) fn longest(&self, slot: u32) -> Option<u32> {
        let bit = 1_u64 << slot;
        if self.exact & bit != 0 {
            return Some(self.short.count_ones() + (self.exact & (bit - 1)).count_ones());
        }
        let index = usize::try_from(slot).unwrap_or(usize::MAX);
        let matching = self.short & ANCESTORS.get(index).copied().unwrap_or(0);
        let longest = matching.checked_ilog2()?;
        Some((self.short & ((1 << longest) - 1)).count_ones())
    }

    /// The index of the child to which these six bits lead.
    #[inline]
    pub(crate) fn child(&self, slot: u32) -> Option<u32> {
        let bit = 1_u64 << slot;
        (self.external & bit != 0).then(|| (self.external & (bit - 1)).count_ones())
    }

    /// The number of prefixes that end here.
    pub(crate) fn results_len(&self) -> u32 {
        self.short.count_ones() + self.exact.count_ones()
    }

    /// The number of cells below.
    pub(crate) fn children_len(&self) -> u32 {
        self.external.count_ones()
    }
}

/// The words of a cell in shared memory.
pub(crate) type CellWords = [AtomicU32; CELL_WORDS as usize];

/// A cell where it lies, each word loaded when it is needed.
///
/// Plain loads are enough: every word reachable from the direct table's entry was written before
/// the one acquiring load of that entry.
#[derive(Clone, Copy)]
pub(crate) struct CellView<'words>(pub(crate) &'words CellWords);

impl CellView<'_> {
    /// The first word's kind, with 0 for a branch.
    #[inline]
    pub(crate) fn kind(self) -> u32 {
        self.word0() & KIND
    }

    /// Length of a tail or a skip.
    #[inline]
    pub(crate) fn len(self) -> u8 {
        let [.., len] = self.word0().to_be_bytes();
        len
    }

    /// Value of a tail, next cell of a skip.
    #[inline]
    pub(crate) fn value(self) -> u32 {
        let [_, value, ..] = self.0;
        value.load(Ordering::Relaxed)
    }

    /// Key of a tail or a skip.
    #[inline]
    pub(crate) fn key<K: PrefixKey>(self) -> K {
        let [_, _, _, _, key @ ..] = self.0;
        K::from_words(key.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }

    /// The whole of a branch.
    #[inline]
    pub(crate) fn branch(self) -> Branch {
        let [short @ .., _, _, _, _, _, _] = self.0;
        let [_, _, exact @ .., _, _, _, _] = self.0;
        let [_, _, _, _, external @ .., _, _] = self.0;
        let [.., children, results] = self.0;
        Branch {
            short: join(short),
            exact: join(exact),
            external: join(external),
            children: children.load(Ordering::Relaxed),
            results: results.load(Ordering::Relaxed),
        }
    }

    /// The cell as the writer handles it.
    pub(crate) fn cell<K: PrefixKey>(self) -> Cell<K> {
        let (key, len, value) = (self.key(), self.len(), self.value());
        match self.kind() {
            TAIL => Cell::Tail(Tail { key, len, hop: value }),
            SKIP => Cell::Skip(Skip { key, len, next: value }),
            _ => Cell::Branch(self.branch()),
        }
    }

    #[inline]
    fn word0(self) -> u32 {
        let [first, ..] = self.0;
        first.load(Ordering::Relaxed)
    }
}

impl<K: PrefixKey> Cell<K> {
    /// The cell as it lies in memory.
    pub(crate) fn to_words(self) -> [u32; CELL_WORDS as usize] {
        let leaf = |kind: u32, len: u8, value: u32, key: K| {
            let [a, b, c, d] = key.to_words();
            [kind | u32::from(len), value, 0, 0, a, b, c, d]
        };
        match self {
            Self::Tail(tail) => leaf(TAIL, tail.len, tail.hop, tail.key),
            Self::Skip(skip) => leaf(SKIP, skip.len, skip.next, skip.key),
            Self::Branch(branch) => {
                let [short, short_low] = halves(branch.short);
                let [exact, exact_low] = halves(branch.exact);
                let [external, external_low] = halves(branch.external);
                let Branch { children, results, .. } = branch;
                [short, short_low, exact, exact_low, external, external_low, children, results]
            }
        }
    }
}

#[inline]
fn join([high, low]: &[AtomicU32; 2]) -> u64 {
    let [high, low] = [high, low].map(|word| u64::from(word.load(Ordering::Relaxed)));
    high << u32::BITS | low
}
