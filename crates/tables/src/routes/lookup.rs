//! The walk from an address to its value, for one address or for many in parallel.
//!
//! A table of a million routes does not fit a core's own cache, so a walk waits for memory two or
//! three times. Many walks in parallel wait together. Each round first loads one word of every
//! lane's next cell, none depending on another, and only then decides anything.
//!
//! Cells may be rewritten during a walk. The caller then discards the result; the walk only has to
//! end and stay inside.
#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "calls code for instructions that the processor was asked about")
)]
#![expect(clippy::inline_always, reason = "so that the walk is compiled for those instructions")]

use super::cell::{CELL_WORDS, CELLS_ON_A_WAY, CellView, SKIP, STRIDE, TAIL};
use super::prefix::PrefixKey;
use super::{ENTRY_WORDS, ROOT, ROOT_BITS, index, load, view};
use crate::sync::{AtomicU32, Ordering};

/// Walks abreast: enough to have a miss of each on its way, few enough for the first-level cache.
pub(crate) const LANES: usize = 32;

/// The features of the processor; detected once, when a reader is created.
///
/// A value with `true` in it proves that the features exist, so only [`Self::detect`] creates one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Processor {
    #[cfg(target_arch = "x86_64")]
    counts_bits: bool,
}

impl Processor {
    /// Whether the processor has a bit-count instruction: every x86-64 since 2013 has, but a
    /// compiler for all of them needs a dozen steps.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn detect() -> Self {
        let counts_bits = is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2");
        Self { counts_bits }
    }

    /// On other architectures the compiler knows the best way.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn detect() -> Self {
        Self {}
    }

    /// The value of the longest prefix of `key`, 0 for none.
    #[inline]
    pub(crate) fn walk<K: PrefixKey>(self, words: &[AtomicU32], key: K) -> u32 {
        #[cfg(target_arch = "x86_64")]
        if self.counts_bits {
            // SAFETY: `detect` has asked the processor for each feature that this is compiled with.
            return unsafe { counting::walk(words, key) };
        }
        walk_one(words, key)
    }

    /// The values of the longest prefixes of at most [`LANES`] `keys`.
    #[inline]
    pub(crate) fn walk_abreast<K: PrefixKey>(
        self,
        words: &[AtomicU32],
        keys: &[K],
        values: &mut [u32; LANES],
    ) {
        #[cfg(target_arch = "x86_64")]
        if self.counts_bits {
            // SAFETY: as for `walk`.
            return unsafe { counting::walk_abreast(words, keys, values) };
        }
        walk_many(words, keys, values);
    }
}

/// The same code, compiled for processors that count bits.
#[cfg(target_arch = "x86_64")]
mod counting {
    use super::{AtomicU32, LANES, PrefixKey};

    #[target_feature(enable = "popcnt,lzcnt,bmi1,bmi2")]
    #[inline]
    pub(super) fn walk<K: PrefixKey>(words: &[AtomicU32], key: K) -> u32 {
        super::walk_one(words, key)
    }

    #[target_feature(enable = "popcnt,lzcnt,bmi1,bmi2")]
    pub(super) fn walk_abreast<K: PrefixKey>(
        words: &[AtomicU32],
        keys: &[K],
        values: &mut [u32; LANES],
    ) {
        super::walk_many(words, keys, values);
    }
}

/// The position of a walk.
#[derive(Clone, Copy, Default)]
struct Stand {
    /// The next cell; 0 when there is none.
    at: u32,
    /// The word with the best value so far.
    best: u32,
    /// Bits behind.
    depth: u8,
}

#[inline(always)]
fn walk_one<K: PrefixKey>(words: &[AtomicU32], key: K) -> u32 {
    let Some(root) = Root::of(words) else { return 0 };
    let mut stand = root.enter(words, key);
    for _ in 0..CELLS_ON_A_WAY {
        let Some(cell) = view(words, stand.at) else { break };
        stand.step(cell, key);
    }
    load(words, index(stand.best), Ordering::Relaxed)
}

#[inline(always)]
fn walk_many<K: PrefixKey>(words: &[AtomicU32], keys: &[K], values: &mut [u32; LANES]) {
    values.fill(0);
    let Some(root) = Root::of(words) else { return };
    let mut stands = [Stand::default(); LANES];
    for (stand, &key) in stands.iter_mut().zip(keys) {
        *stand = root.enter(words, key);
    }
    for _ in 0..CELLS_ON_A_WAY {
        let mut touched = 0;
        for stand in &stands {
            touched |= load(words, index(stand.at), Ordering::Relaxed);
        }
        // The loads above fetch every lane's cell at once; this keeps them from being left out.
        std::hint::black_box(touched);
        let mut walking = false;
        for (stand, &key) in stands.iter_mut().zip(keys) {
            if let Some(cell) = view(words, stand.at) {
                stand.step(cell, key);
                walking |= stand.at != 0;
            }
        }
        if !walking {
            break;
        }
    }
    for (value, stand) in values.iter_mut().zip(&stands).take(keys.len()) {
        *value = load(words, index(stand.best), Ordering::Relaxed);
    }
}

/// The direct table that is linked.
#[derive(Clone, Copy)]
struct Root {
    table: u32,
    bits: u8,
}

impl Root {
    /// Nothing before the first route was linked.
    #[inline(always)]
    fn of(words: &[AtomicU32]) -> Option<Self> {
        let root = load(words, ROOT, Ordering::Acquire);
        let [.., bits] = (root & ROOT_BITS).to_be_bytes();
        (bits != 0).then_some(Self { table: root & !ROOT_BITS, bits })
    }

    #[inline(always)]
    fn enter<K: PrefixKey>(self, words: &[AtomicU32], key: K) -> Stand {
        let entry = self.table.wrapping_add(ENTRY_WORDS * key.bits(0, self.bits));
        // Acquires all that the writer put down before it linked the cell.
        let at = load(words, index(entry), Ordering::Acquire);
        Stand { at, best: entry.wrapping_add(1), depth: self.bits }
    }
}

impl Stand {
    /// Takes one cell: improves `best`, and leaves 0 in `at` when it was the last.
    #[inline(always)]
    fn step<K: PrefixKey>(&mut self, cell: CellView<'_>, key: K) {
        match cell.kind() {
            TAIL => {
                if key.common(cell.key()) >= cell.len() {
                    self.best = self.at.wrapping_add(1);
                }
                self.at = 0;
            }
            SKIP => {
                let goes_on = key.common(cell.key()) >= cell.len();
                self.at = if goes_on { cell.value() } else { 0 };
                self.depth = cell.len();
            }
            _ => {
                let branch = cell.branch();
                let slot = key.bits(self.depth, STRIDE);
                if let Some(result) = branch.longest(slot) {
                    self.best = branch.results.wrapping_add(result);
                }
                self.at = branch
                    .child(slot)
                    .map_or(0, |child| branch.children.wrapping_add(child * CELL_WORDS));
                self.depth = self.depth.saturating_add(STRIDE);
            }
        }
    }
}
