//! Longest-prefix match for both families: a compressed trie that readers walk without a lock.
//!
//! An address's first 12 or 18 bits index a *direct table*. Each of its entries holds the best
//! route of those bits and leads to [cells](cell) of six bits each. A cell's elements are found by
//! counting bits, as in the tree bitmap of Eatherton, Varghese and Dittia (2004). No value is
//! copied down into the cells, so a change costs only the cells on its own way; ways without a fork
//! are skipped.
//!
//! # How readers and the writer meet
//!
//! The writer never changes a cell that a reader can reach. It builds the changed way beside the
//! old one and links it by storing one word of the direct table. A rebuild happens in the other of
//! two halves and is linked by storing the root. Old cells are reused only after the area's
//! *generation* has changed. A reader compares the generation before and after its walk, and walks
//! again if it changed. Readers and writer never wait for each other. A writer that dies at any
//! instant leaves the last linked routes in force.
//!
//! # Bounds
//!
//! A half has room for `routes_max` routes in any arrangement (see [`half_words`]); only the used
//! part ever costs memory. [`RoutesWriter::insert`] refuses further ones.

mod arena;
mod cell;
mod lookup;
mod prefix;
mod trie;
mod writer;

pub use prefix::{Family, Prefix, PrefixError, PrefixKey};
pub use writer::{RoutesFull, RoutesStats, RoutesWriter};

use crate::memory::Words;
use crate::sync::{AtomicU32, Ordering, fence};
use cell::{CELL_WORDS, CellView, CellWords};
use lookup::{LANES, Processor};
use std::marker::PhantomData;

/// Word that moves before old cells are used again.
pub(crate) const GENERATION: usize = 0;
/// Word that says where the direct table begins, and in its low bits how many bits index it.
pub(crate) const ROOT: usize = 1;
/// Word that moves after every change of what a lookup may find.
pub(crate) const CHANGES: usize = 2;
/// Words before the first half, a cache line.
pub(crate) const AREA_HEADER: u32 = 16;
/// The bits of the root that hold the number of bits; the direct table is aligned to clear them.
const ROOT_BITS: u32 = 0x1f;
/// Words of an entry of the direct table: the cell below (0: none), the value.
pub(crate) const ENTRY_WORDS: u32 = 2;

/// Words that `routes_max` routes need besides the direct table, however they lie, for each route.
///
/// A set of R prefixes makes at most R tails, R - 1 branches that fork, as many skips before them,
/// and R results: 25 words a route. Rounding a piece up to the next size costs less than half more.
const WORDS_A_ROUTE: u32 = 38;

/// Maximum repeated walks of a reader because the writer reused old cells meanwhile.
///
/// The generation moves at most once in dozens of changes, so even the second walk is rare.
#[cfg(not(loom))]
const WALKS: u32 = 8;
/// Few are enough for loom to go through, and more only repeat them.
#[cfg(loom)]
const WALKS: u32 = 2;

/// A place in the table of next hops.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct HopIndex(
    /// The index; `u32::MAX` is not available and taken as one less.
    pub u32,
);

/// Why a lookup has no next hop. Each is an outcome to count, not an error.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Miss {
    /// No prefix of the table matches the address.
    #[error("no route")]
    NoRoute,
    /// The writer reused old cells during each of several walks: try later.
    #[error("routes changed during {WALKS} lookups in a row")]
    Unsettled,
}

/// The size of a route area.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Shape {
    /// Routes that always fit.
    pub(crate) routes_max: u32,
    /// Bits of the direct table, with few routes and with many.
    pub(crate) direct_bits: [u8; 2],
    /// Routes up to which there are few.
    pub(crate) few: usize,
}

impl Shape {
    /// The shape that a family has.
    pub(crate) fn of<A: Family>(routes_max: u32) -> Self {
        Self { routes_max, direct_bits: A::DIRECT_BITS, few: A::DIRECT_FEW }
    }

    /// Bits of the direct table that suit `routes`.
    pub(crate) fn bits_for(self, routes: usize) -> u8 {
        let [small, large] = self.direct_bits;
        if routes <= self.few { small } else { large }
    }

    /// Words of one half.
    pub(crate) fn half_words(self) -> Option<u32> {
        let bits = self.bits_for(usize::try_from(self.routes_max).ok()?);
        let direct = ENTRY_WORDS.checked_shl(bits.into())?;
        let cells = self.routes_max.checked_mul(WORDS_A_ROUTE)?.checked_add(CELL_WORDS * 16)?;
        direct.checked_add(cells)?.checked_next_multiple_of(ROOT_BITS + 1)
    }

    /// Words of the whole area, or nothing if an offset could not address them.
    pub(crate) fn words(self) -> Option<u32> {
        self.half_words()?.checked_mul(2)?.checked_add(2 * AREA_HEADER)
    }
}

/// Where the halves begin: the first multiple of the root's alignment after the header.
pub(crate) fn half_start(shape: Shape, half: Half) -> u32 {
    let start = AREA_HEADER.next_multiple_of(ROOT_BITS + 1);
    match half {
        Half::First => start,
        Half::Second => start + shape.half_words().unwrap_or(0),
    }
}

/// One of the two places where a trie can be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Half {
    First,
    Second,
}

/// A reader of the routes of family `A`; clones read the same routes.
///
/// ```
/// use gatewright_tables::{HopIndex, Miss, RoutesWriter};
/// use std::net::Ipv4Addr;
///
/// let mut writer = RoutesWriter::<Ipv4Addr>::in_memory(1000)?;
/// let routes = writer.reader();
/// writer.insert("10.0.0.0/8".parse()?, HopIndex(1))?;
/// writer.insert("10.1.0.0/16".parse()?, HopIndex(2))?;
/// assert_eq!(routes.lookup(Ipv4Addr::new(10, 1, 2, 3)), Ok(HopIndex(2)));
/// assert_eq!(routes.lookup(Ipv4Addr::new(10, 2, 2, 3)), Ok(HopIndex(1)));
/// assert_eq!(routes.lookup(Ipv4Addr::new(11, 0, 0, 1)), Err(Miss::NoRoute));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Routes<A> {
    words: Words,
    processor: Processor,
    family: PhantomData<fn() -> A>,
}

impl<A> Clone for Routes<A> {
    fn clone(&self) -> Self {
        Self { words: self.words.clone(), ..*self }
    }
}

impl<A: Family> Routes<A> {
    /// Reads the area in `words`.
    pub(crate) fn new(words: Words) -> Self {
        Self { words, processor: Processor::detect(), family: PhantomData }
    }

    /// A number that changes after every change: a lookup made after reading it stays valid as long
    /// as the number stays.
    ///
    /// For readers that cache results. It wraps around after 2^32 changes.
    #[inline]
    pub fn changes(&self) -> u32 {
        load(self.words.all(), CHANGES, Ordering::Acquire)
    }

    /// The next hop of the longest prefix that matches `address`.
    ///
    /// Takes no lock and never waits. The result was right at some instant of the call.
    ///
    /// # Errors
    ///
    /// [`Miss`] says why there is none.
    #[inline]
    pub fn lookup(&self, address: A) -> Result<HopIndex, Miss> {
        let words = self.words.all();
        let key = address.to_key();
        let value = settled(words, || self.processor.walk(words, key)).ok_or(Miss::Unsettled)?;
        value.checked_sub(1).map(HopIndex).ok_or(Miss::NoRoute)
    }

    /// Looks many addresses up at once and writes each result to the same place in `hops`.
    ///
    /// With more routes than a core's cache holds this takes about half the time of as many calls
    /// of [`Self::lookup`], as the walks wait for memory together. What is beyond the shorter of
    /// the two slices is left alone.
    pub fn lookup_batch(&self, addresses: &[A], hops: &mut [Result<HopIndex, Miss>]) {
        let words = self.words.all();
        let mut keys = [A::Key::default(); LANES];
        let mut values = [0; LANES];
        for (addresses, hops) in addresses.chunks(LANES).zip(hops.chunks_mut(LANES)) {
            for (key, address) in keys.iter_mut().zip(addresses) {
                *key = address.to_key();
            }
            let keys = keys.get(..addresses.len()).unwrap_or(&keys);
            let settled =
                settled(words, || self.processor.walk_abreast(words, keys, &mut values)).is_some();
            for (hop, value) in hops.iter_mut().zip(values.iter().take(keys.len())) {
                *hop = match value.checked_sub(1) {
                    _ if !settled => Err(Miss::Unsettled),
                    Some(index) => Ok(HopIndex(index)),
                    None => Err(Miss::NoRoute),
                };
            }
        }
    }
}

/// The result of `walk`, once no old cells were reused during it.
#[inline]
fn settled<T>(words: &[AtomicU32], mut walk: impl FnMut() -> T) -> Option<T> {
    for _ in 0..WALKS {
        let before = load(words, GENERATION, Ordering::Acquire);
        let found = walk();
        fence(Ordering::Acquire);
        if before == load(words, GENERATION, Ordering::Relaxed) {
            return Some(found);
        }
    }
    None
}

/// The cell at `at`; nothing for 0, which stands for none, or past the end.
#[inline]
pub(crate) fn view(words: &[AtomicU32], at: u32) -> Option<CellView<'_>> {
    if at == 0 {
        return None;
    }
    let cell: &CellWords = words.get(index(at)..)?.first_chunk()?;
    Some(CellView(cell))
}

#[inline]
fn load(words: &[AtomicU32], at: usize, order: Ordering) -> u32 {
    words.get(at).map_or(0, |word| word.load(order))
}

/// An offset as an index; past every end where a word is wider than an index.
#[inline]
pub(crate) fn index(offset: u32) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}
