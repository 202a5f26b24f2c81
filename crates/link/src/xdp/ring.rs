//! One ring shared with the kernel: we are its producer or its consumer.
#![expect(unsafe_code, reason = "AF_XDP rings are memory that the kernel reads and writes, too")]

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// The positions of a ring's parts in its mapping (`struct xdp_ring_offset`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Offsets {
    pub(super) producer: u64,
    pub(super) consumer: u64,
    pub(super) entries: u64,
    pub(super) flags: u64,
}

/// An entry of a ring.
///
/// # Safety
///
/// A plain value, for which all bit patterns are valid, in the kernel's layout.
pub(super) unsafe trait Entry: Copy {}

// SAFETY: the fill and completion rings carry addresses.
unsafe impl Entry for u64 {}

/// `struct xdp_desc`: a frame in the slab.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Descriptor {
    pub(super) address: u64,
    pub(super) len: u32,
    pub(super) options: u32,
}

// SAFETY: three integers without padding, as in linux/if_xdp.h.
unsafe impl Entry for Descriptor {}

/// A mapped ring, whichever side of it is ours.
struct RingMapping<T> {
    base: NonNull<u8>,
    len: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    /// Entries of the ring, a power of two, less one.
    mask: u32,
    _owned: PhantomData<T>,
}

// SAFETY: the mapping belongs to the ring alone, and no thread but the ring's owner looks at it.
unsafe impl<T: Entry + Send> Send for RingMapping<T> {}

impl<T: Entry> RingMapping<T> {
    /// Maps the ring of `size` entries that `fd` has at `page_offset`.
    fn new(fd: BorrowedFd<'_>, page_offset: i64, offsets: Offsets, size: u32) -> io::Result<Self> {
        let outside = || io::Error::other("the kernel's ring lies outside of its mapping");
        let at = |offset: u64| usize::try_from(offset).map_err(|_| outside());
        let (entries, size_octets) = (at(offsets.entries)?, size as usize * size_of::<T>());
        let len = entries + size_octets;
        let places = [at(offsets.producer)?, at(offsets.consumer)?, at(offsets.flags)?];
        if !size.is_power_of_two() || places.iter().any(|place| place + 4 > len) {
            return Err(outside());
        }
        let [producer, consumer, flags] = places;
        // SAFETY: a new mapping of the socket's ring touches no memory that exists.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_raw_fd(),
                page_offset,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::<u8>::new(base.cast()).ok_or_else(outside)?;
        // SAFETY: the places were compared with the mapping's length; the kernel aligns them.
        unsafe {
            Ok(Self {
                base,
                len,
                producer: base.add(producer).cast(),
                consumer: base.add(consumer).cast(),
                flags: base.add(flags).cast(),
                entries: base.add(entries).cast(),
                mask: size - 1,
                _owned: PhantomData,
            })
        }
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: it lies in the mapping, which lives as long as `self`.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    fn needs_wakeup(&self) -> bool {
        const XDP_RING_NEED_WAKEUP: u32 = 1;
        // SAFETY: as above.
        let flags = unsafe { self.flags.as_ref() };
        flags.load(Ordering::Relaxed) & XDP_RING_NEED_WAKEUP != 0
    }

    /// The entries from one running number up to another.
    ///
    /// # Errors
    ///
    /// If these cannot be numbers of a ring of this size.
    fn entries(&self, from: u32, to: u32) -> io::Result<Vec<T>> {
        let count = to.wrapping_sub(from);
        if count > self.mask + 1 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // SAFETY: each lies within the ring; any bits are an entry.
        let entry = |number| unsafe { self.entry(from.wrapping_add(number)).read_volatile() };
        Ok((0..count).map(entry).collect())
    }

    /// The place of an entry, by its running number.
    fn entry(&self, number: u32) -> NonNull<T> {
        // SAFETY: the mask keeps it within the ring, which lies in the mapping.
        unsafe { self.entries.add((number & self.mask) as usize) }
    }
}

impl<T> Drop for RingMapping<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, unmapped only here.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A ring into which we write: fill, transmit.
pub(super) struct Producer<T> {
    ring: RingMapping<T>,
    /// The number of the next entry that is written.
    next: u32,
    /// The kernel's counter when it was last read.
    consumed: u32,
}

impl<T: Entry> Producer<T> {
    pub(super) fn new(
        fd: BorrowedFd<'_>,
        page_offset: i64,
        offsets: Offsets,
        size: u32,
    ) -> io::Result<Self> {
        let ring = RingMapping::new(fd, page_offset, offsets, size)?;
        // The ring of an earlier process goes on where that one was; a new one begins at 0.
        let next = ring.producer().load(Ordering::Acquire);
        let consumed = ring.consumer().load(Ordering::Acquire);
        Ok(Self { ring, next, consumed })
    }

    /// The number of entries that the kernel has consumed since the ring was made, and those that it
    /// has not.
    pub(super) fn kernel_side(&self) -> io::Result<(u32, Vec<T>)> {
        let consumed = self.ring.consumer().load(Ordering::Acquire);
        Ok((consumed, self.ring.entries(consumed, self.next)?))
    }

    /// Entries that can be written now, by the kernel's current counter.
    pub(super) fn room(&mut self) -> u32 {
        self.consumed = self.ring.consumer().load(Ordering::Acquire);
        (self.ring.mask + 1).wrapping_sub(self.next.wrapping_sub(self.consumed))
    }

    /// Whether an entry can be written now. The kernel's counter is read only if the ring was full
    /// at the last reading.
    pub(super) fn has_room(&mut self) -> bool {
        self.next.wrapping_sub(self.consumed) <= self.ring.mask || self.room() > 0
    }

    /// Writes an entry; returns whether there was room. The kernel sees it after [`Self::submit`].
    pub(super) fn push(&mut self, entry: T) -> bool {
        if !self.has_room() {
            return false;
        }
        // SAFETY: the entry is within the ring, and the kernel has consumed what it held before.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Publishes pushed entries to the kernel.
    pub(super) fn submit(&self) {
        // Release: the entries are written before they are counted.
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// Entries that the kernel has not consumed.
    pub(super) fn waiting(&mut self) -> u32 {
        self.ring.mask + 1 - self.room()
    }

    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// A ring that we read: receive, completion.
pub(super) struct Consumer<T> {
    ring: RingMapping<T>,
    /// The number of the next entry that is read.
    next: u32,
    /// The kernel's counter when it was last read.
    produced: u32,
}

impl<T: Entry> Consumer<T> {
    pub(super) fn new(
        fd: BorrowedFd<'_>,
        page_offset: i64,
        offsets: Offsets,
        size: u32,
    ) -> io::Result<Self> {
        let ring = RingMapping::new(fd, page_offset, offsets, size)?;
        // As of a producer.
        let next = ring.consumer().load(Ordering::Acquire);
        Ok(Self { ring, next, produced: next })
    }

    /// The number of entries that the kernel has produced since the ring was made, and those that
    /// were not read.
    pub(super) fn kernel_side(&self) -> io::Result<(u32, Vec<T>)> {
        let produced = self.ring.producer().load(Ordering::Acquire);
        Ok((produced, self.ring.entries(self.next, produced)?))
    }

    /// Reads the next entry, if there is one. The kernel gets its place back after
    /// [`Self::release`].
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.next == self.produced {
            // Acquire: what was written before it was counted is to be seen after.
            self.produced = self.ring.producer().load(Ordering::Acquire);
            if self.next == self.produced {
                return None;
            }
        }
        // SAFETY: the entry is within the ring, written by the kernel before it was counted, and
        // not written again before it is released.
        let entry = unsafe { self.ring.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Gives the places of read entries back.
    pub(super) fn release(&self) {
        // Release: we have read the entries before the kernel may write them again.
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}
