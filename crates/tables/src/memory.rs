//! A run of shared 32-bit words.
//!
//! All code above sees words and offsets only, so a table looks the same in any memory.
#![expect(unsafe_code, reason = "words live behind a pointer that outlasts every borrow of them")]

use crate::sync::AtomicU32;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
#[cfg(not(loom))]
use std::sync::atomic::AtomicU64;

/// Octets of a large page on the machines that have them.
#[cfg(not(loom))]
const LARGE_PAGE_OCTETS: usize = 2 << 20;

/// Octets of the largest ordinary page of any machine that Linux runs on.
#[cfg(not(loom))]
const PAGE_OCTETS_MAX: usize = 64 << 10;

/// The owner of the words; frees them when the last [`Words`] is gone.
enum Backing {
    /// Memory of this process alone.
    Boxed(#[expect(dead_code, reason = "kept for its drop")] Box<[AtomicU32]>),
    /// A mapping of this process alone.
    #[cfg(not(loom))]
    Reserved(#[expect(dead_code, reason = "kept for its drop")] crate::mapping::Mapping),
    /// A mapping of a descriptor, shared with its other holders.
    #[cfg(not(loom))]
    Mapped(#[expect(dead_code, reason = "kept for its drop")] crate::mapping::Mapping),
}

/// A run of words that many threads, and perhaps processes, access at once.
#[derive(Clone)]
pub(crate) struct Words {
    first: NonNull<AtomicU32>,
    len: usize,
    /// Keeps `first..first + len` alive.
    backing: Arc<Backing>,
}

// SAFETY: the words are atomics, which any thread may load and store, and `backing` keeps them
// mapped for as long as any clone lives, on whichever thread it is dropped.
unsafe impl Send for Words {}
// SAFETY: as for `Send`; a shared `Words` gives out nothing but shared atomics.
unsafe impl Sync for Words {}

impl Words {
    /// `len` words of this process, all zero.
    pub(crate) fn zeroed(len: usize) -> Self {
        let boxed: Box<[AtomicU32]> = zeroed_box(len);
        // A slice's pointer is never null, so the dangling one stands for nothing but a formality.
        let first = NonNull::new(boxed.as_ptr().cast_mut()).unwrap_or(NonNull::dangling());
        Self { first, len, backing: Arc::new(Backing::Boxed(boxed)) }
    }

    /// `len` words of this process, all zero, that cost no memory until they are touched.
    ///
    /// # Errors
    ///
    /// The system's error if it has no address space for them.
    #[cfg(not(loom))]
    pub(crate) fn reserved(len: usize) -> std::io::Result<Self> {
        let mapping = crate::mapping::Mapping::anonymous(len)?;
        let first = mapping.words();
        Ok(Self { first, len, backing: Arc::new(Backing::Reserved(mapping)) })
    }

    /// Loom's words lie one by one.
    #[cfg(loom)]
    pub(crate) fn reserved(len: usize) -> std::io::Result<Self> {
        Ok(Self::zeroed(len))
    }

    /// The words of a mapping.
    #[cfg(not(loom))]
    pub(crate) fn mapped(mapping: crate::mapping::Mapping) -> Self {
        let (first, len) = (mapping.words(), mapping.len());
        Self { first, len, backing: Arc::new(Backing::Mapped(mapping)) }
    }

    /// `len` of these words from `start` on, or `None` if they reach past the end.
    pub(crate) fn part(&self, start: usize, len: usize) -> Option<Self> {
        let first = NonNull::from(self.all().get(start..start.checked_add(len)?)?).cast();
        Some(Self { first, len, backing: Arc::clone(&self.backing) })
    }

    /// Requests large pages for `len` words from `start` on, where the system has them: a walk over
    /// megabytes otherwise waits for address translation more than for the data.
    #[cfg(not(loom))]
    pub(crate) fn prefer_large_pages(&self, start: usize, len: usize) {
        let Some(part) = start.checked_add(len).and_then(|end| self.all().get(start..end)) else {
            return;
        };
        let octets = size_of_val(part);
        let before = part.as_ptr().cast::<u8>().align_offset(LARGE_PAGE_OCTETS);
        let whole = octets.saturating_sub(before) / LARGE_PAGE_OCTETS * LARGE_PAGE_OCTETS;
        if whole > 0 {
            let first = part.as_ptr().cast::<u8>().wrapping_add(before).cast_mut();
            // SAFETY: `first..first + whole` lies inside of `part`, which stays mapped; the advice
            // changes the size of the pages and nothing that can be read or written. A refusal
            // costs speed only.
            unsafe { libc::madvise(first.cast(), whole, libc::MADV_HUGEPAGE) };
        }
    }

    /// Gives back the memory behind `len` words from `start` on, which read as zero from now on.
    ///
    /// The first and the last words, which share a page with others, may stay as they are.
    #[cfg(not(loom))]
    pub(crate) fn discard(&self, start: usize, len: usize) {
        let Some(part) = start.checked_add(len).and_then(|end| self.all().get(start..end)) else {
            return;
        };
        let octets = size_of_val(part);
        let before = part.as_ptr().cast::<u8>().align_offset(PAGE_OCTETS_MAX);
        let whole = octets.saturating_sub(before) / PAGE_OCTETS_MAX * PAGE_OCTETS_MAX;
        if whole > 0 {
            let advice = match *self.backing {
                Backing::Boxed(_) | Backing::Reserved(_) => libc::MADV_DONTNEED,
                Backing::Mapped(_) => libc::MADV_REMOVE,
            };
            let first = part.as_ptr().cast::<u8>().wrapping_add(before).cast_mut();
            // SAFETY: `first..first + whole` lies inside of `part`, which stays mapped and becomes
            // zero: for private memory because it is anonymous, for shared memory because a hole
            // is made in its file. Zero is a value of every word, and words are only read as
            // atomics. A refusal leaves everything as it is.
            unsafe { libc::madvise(first.cast(), whole, advice) };
        }
    }

    /// Loom's words stay.
    #[cfg(loom)]
    pub(crate) fn discard(&self, _start: usize, _len: usize) {}

    /// Loom's words lie one by one.
    #[cfg(loom)]
    pub(crate) fn prefer_large_pages(&self, _start: usize, _len: usize) {}

    /// The two words at `start` as one number; `None` if they reach past the end, or are not
    /// aligned as a number of 64 bits.
    ///
    /// Words that are used as a number are never used as words.
    #[cfg(not(loom))]
    #[inline]
    #[expect(clippy::cast_ptr_alignment, reason = "the alignment is checked before it is used")]
    pub(crate) fn number(&self, start: usize) -> Option<&AtomicU64> {
        let two = self.all().get(start..start.checked_add(2)?)?.as_ptr().cast::<AtomicU64>();
        // SAFETY: `two` points at eight initialised octets of the mapping that `self` keeps, and is
        // aligned if it is used. Every value of them is a number. The rule above keeps accesses of
        // another size away. In memory that is mapped for reading the number is only loaded, by an
        // instruction that stores nothing on each machine that we build for (`ldrexd` on ARMv7).
        two.is_aligned().then(|| unsafe { &*two })
    }

    /// These words as a histogram; `None` if they are too few, or not aligned as numbers of 64 bits.
    ///
    /// Words that are used as a histogram are never used as words.
    #[cfg(not(loom))]
    #[inline]
    #[expect(clippy::cast_ptr_alignment, reason = "the alignment is checked before it is used")]
    pub(crate) fn histogram(&self) -> Option<&gatewright_histogram::SharedHistogram> {
        let all = self.all();
        let histogram = all.as_ptr().cast::<gatewright_histogram::SharedHistogram>();
        let fits = size_of_val(all) >= size_of::<gatewright_histogram::SharedHistogram>();
        // SAFETY: `histogram` points at as many initialised octets of the mapping that `self` keeps
        // as the record has, and is aligned if it is used. The record is numbers of 64 bits that are
        // atomics (`repr(transparent)`), and every value of these is one. The rule above keeps
        // accesses of another size away.
        (fits && histogram.is_aligned()).then(|| unsafe { &*histogram })
    }

    /// All of them.
    #[inline]
    pub(crate) fn all(&self) -> &[AtomicU32] {
        // SAFETY: `first` points at `len` words inside of `backing` (each constructor takes both
        // from the same slice or mapping, and `part` from a checked subslice); `backing` lives at
        // least as long as `self`; the words are only ever used through shared references.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

/// The owner of a number of 64 bits, which neither moves nor ends before it.
#[cfg(not(loom))]
pub(crate) trait Keeper: Send + Sync {
    /// The number, always the same.
    fn number(&self) -> &AtomicU64;
}

/// A number of 64 bits, one pointer away, with its owner; clones are the same number.
#[cfg(not(loom))]
pub(crate) struct Number<K> {
    first: NonNull<AtomicU64>,
    keeper: Arc<K>,
}

// SAFETY: the number is an atomic, which any thread may load and store, and `keeper`, which any
// thread may drop, keeps it in its place for as long as any clone lives.
#[cfg(not(loom))]
unsafe impl<K: Keeper> Send for Number<K> {}
// SAFETY: as for `Send`; a shared `Number` gives out shared atomics and a shared keeper.
#[cfg(not(loom))]
unsafe impl<K: Keeper> Sync for Number<K> {}

#[cfg(not(loom))]
impl<K> Clone for Number<K> {
    fn clone(&self) -> Self {
        Self { first: self.first, keeper: Arc::clone(&self.keeper) }
    }
}

#[cfg(not(loom))]
impl<K: Keeper> Number<K> {
    /// The number of `keeper`.
    pub(crate) fn of(keeper: Arc<K>) -> Self {
        Self { first: NonNull::from(keeper.number()), keeper }
    }

    /// The number itself.
    #[inline]
    pub(crate) fn get(&self) -> &AtomicU64 {
        // SAFETY: `first` is that of a reference into `keeper`, which stays where it is inside of
        // its `Arc` and, by its trait, keeps the number in its place; `self` keeps it.
        unsafe { self.first.as_ref() }
    }

    /// The owner.
    pub(crate) fn keeper(&self) -> &K {
        &self.keeper
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Words").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Zeroed words that cost no memory until they are touched.
#[cfg(not(loom))]
fn zeroed_box(len: usize) -> Box<[AtomicU32]> {
    // `Vec` of plain zeroes comes from the allocator's zeroed pages; collecting atomics one by one
    // would touch every page of a table that may stay almost empty.
    let plain: Box<[u32]> = vec![0_u32; len].into_boxed_slice();
    let raw = Box::into_raw(plain) as *mut [AtomicU32];
    // SAFETY: `AtomicU32` has the size, alignment and bit validity of `u32` ("Same representation
    // as u32", std), and `raw` comes from a box of the same length and layout.
    unsafe { Box::from_raw(raw) }
}

/// Under loom an atomic is an object of its scheduler, made one by one.
#[cfg(loom)]
fn zeroed_box(len: usize) -> Box<[AtomicU32]> {
    (0..len).map(|_| AtomicU32::new(0)).collect()
}

/// A number of 64 bits as two words, the higher first.
pub(crate) fn halves(value: u64) -> [u32; 2] {
    const LOW: u64 = u32::MAX as u64;
    [value >> u32::BITS, value & LOW].map(|half| u32::try_from(half).unwrap_or(0))
}

/// Words in memory shared by a descriptor: with another process, or with a program in the kernel (a
/// BPF array that may be mapped).
#[cfg(not(loom))]
#[derive(Clone, Debug)]
pub struct SharedWords(pub(crate) Words);

#[cfg(not(loom))]
impl SharedWords {
    /// Maps the first `len` words behind `descriptor`, to be read and written.
    ///
    /// The memory must never become shorter, as is so for the memory of a BPF map.
    ///
    /// # Errors
    ///
    /// The system's error if it refuses the mapping.
    pub fn map(descriptor: impl std::os::fd::AsFd, len: usize) -> std::io::Result<Self> {
        let file = std::fs::File::from(descriptor.as_fd().try_clone_to_owned()?);
        let mapping = crate::mapping::Mapping::new(&file, len, crate::mapping::Access::Write)?;
        Ok(Self(Words::mapped(mapping)))
    }

    /// `len` private words, all zero: for tests, and where no other process shares them.
    pub fn private(len: usize) -> Self {
        Self(Words::zeroed(len))
    }

    /// All of them.
    #[inline]
    pub fn all(&self) -> &[AtomicU32] {
        self.0.all()
    }

    /// The two words at `start` as one number; `None` if they reach past the end, or are not
    /// aligned as a number of 64 bits.
    ///
    /// Words that are used as a number are never used as words.
    #[inline]
    pub fn number(&self, start: usize) -> Option<&AtomicU64> {
        self.0.number(start)
    }
}
