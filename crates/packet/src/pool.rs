//! The chunks of a slab and their owners.
#![expect(unsafe_code, reason = "the free list hands out raw chunks; see `Packet`")]

use crate::{
    CHUNK_SIZE_DATAGRAM, DATA_OFFSET, LinkIndex, Meta, Packet, TAILROOM, chunk::Head,
    region::Region,
};
use std::{
    cell::{Cell, RefCell, UnsafeCell},
    io,
    os::fd::OwnedFd,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

/// No chunk: the end of the return list.
const END: u32 = u32::MAX;

/// Chunk sizes are powers of two where AF_XDP is to use them; all are multiples of this.
pub(crate) const CHUNK_GRAIN: usize = 2048;

/// The common state of a pool and its packets. It lives until both are gone.
pub(crate) struct Home {
    pub(crate) region: Region,
    /// The chunks' heads, in their order.
    heads: Region,
    pub(crate) chunk_size: usize,
    chunks: u32,
    /// Indices of free chunks; only the owning worker touches it.
    free: UnsafeCell<Vec<u32>>,
    /// Head of the list of chunks returned by other workers.
    returned: AtomicU32,
    /// Requests that found no chunk.
    exhausted: Cell<u64>,
    /// Chunks that the kernel has of a pool before, in order.
    lent: RefCell<Vec<u32>>,
}

impl Home {
    fn head(&self, index: u32) -> NonNull<Head> {
        // SAFETY: indices come from `free`, so the head lies within its region.
        unsafe { self.heads.base().cast().add(index as usize) }
    }

    /// The chunk number of a head.
    fn index(&self, head: NonNull<Head>) -> usize {
        (head.as_ptr() as usize - self.heads.base().as_ptr() as usize) / size_of::<Head>()
    }

    /// The chunk of a head.
    #[inline]
    pub(crate) fn chunk(&self, head: NonNull<Head>) -> NonNull<u8> {
        // SAFETY: there are as many chunks as heads.
        unsafe { self.region.base().add(self.index(head) * self.chunk_size) }
    }

    /// Takes a chunk back on the worker that owns the pool.
    ///
    /// # Safety
    ///
    /// The chunk is this pool's, nobody else holds it, and this is the owning worker.
    pub(crate) unsafe fn put(&self, head: NonNull<Head>) {
        // SAFETY: only the owning worker is here, and no reference into `free` outlives a call.
        // The push never allocates: `free` was made with room for every chunk.
        unsafe { (*self.free.get()).push(narrow(self.index(head))) };
    }

    /// Takes a chunk back from any thread.
    ///
    /// # Safety
    ///
    /// The chunk is this pool's and nobody else holds it.
    pub(crate) unsafe fn put_from_abroad(&self, head: NonNull<Head>) {
        let index = narrow(self.index(head));
        let mut first = self.returned.load(Ordering::Relaxed);
        loop {
            // SAFETY: the chunk is held by the caller alone until the exchange succeeds.
            unsafe { (*head.as_ptr()).len = first };
            match self.returned.compare_exchange_weak(
                first,
                index,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// Moves chunks returned by other workers to the free list.
    fn collect(&self, free: &mut Vec<u32>) {
        // The whole list is taken at once, so that no chunk can come back in between (no ABA).
        let mut index = self.returned.swap(END, Ordering::Acquire);
        while index != END {
            free.push(index);
            // SAFETY: the chunk is on the list, so nobody holds it and its head is initialised.
            index = unsafe { self.head(index).as_ref().len };
        }
    }
}

/// The index of a chunk: there are at most [`CHUNKS_MAX`].
#[expect(clippy::cast_possible_truncation, reason = "bounded by the shape of the pool")]
const fn narrow(index: usize) -> u32 {
    index as u32
}

/// Why a pool cannot be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The sizes are invalid for a slab.
    #[error(
        "a slab of {chunks} chunks of {chunk_size} octets cannot be: chunks are multiples of 2048 up to {CHUNK_SIZE_DATAGRAM}, at least one and at most {CHUNKS_MAX}"
    )]
    Shape {
        /// Chunks asked for.
        chunks: usize,
        /// Octets of each.
        chunk_size: usize,
    },
    /// The kernel gave no memory.
    #[error("no memory for a slab of {octets} octets")]
    Memory {
        /// Octets asked for.
        octets: usize,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// Maximum chunks of a pool: 2 GiB of the smallest.
const CHUNKS_MAX: usize = 1 << 20;

/// The memory of a pool, on its way to the worker that makes a [`Pool`] of it.
#[derive(Debug)]
pub struct Slab {
    region: Region,
    heads: Region,
    chunk_size: usize,
    chunks: u32,
    /// Chunks that are not free at first.
    lent: Vec<u32>,
}

impl Slab {
    /// Maps `chunks` chunks of `chunk_size` octets; pages are taken when first written.
    ///
    /// # Errors
    ///
    /// [`PoolError::Shape`] for invalid sizes, [`PoolError::Memory`] if the kernel refuses.
    pub fn new(chunks: usize, chunk_size: usize) -> Result<Self, PoolError> {
        Self::map((chunks, chunk_size), Region::map)
    }

    /// The same in memory that another process may map by its descriptor, to go on with the chunks that
    /// the kernel has been lent.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn shared(chunks: usize, chunk_size: usize) -> Result<Self, PoolError> {
        Self::map((chunks, chunk_size), Region::shared)
    }

    /// The slab of a process that has ended, of which the kernel still has the chunks at the positions
    /// `lent`: they are no free ones of the pool, until the kernel returns them.
    ///
    /// # Errors
    ///
    /// As [`Self::new`], and [`PoolError::Memory`] if the memory is not that of such a slab.
    pub fn of_memory(
        memory: OwnedFd,
        (chunks, chunk_size): (usize, usize),
        lent: impl IntoIterator<Item = u64>,
    ) -> Result<Self, PoolError> {
        let map = |octets| Region::of_file(octets, memory);
        let slab = Self::map((chunks, chunk_size), map)?;
        let chunk = |position: u64| -> Option<u32> {
            u32::try_from(usize::try_from(position).ok()? / chunk_size).ok()
        };
        let mut lent: Vec<u32> = lent.into_iter().filter_map(chunk).collect();
        lent.sort_unstable();
        lent.dedup();
        Ok(Self { lent, ..slab })
    }

    fn map(
        (chunks, chunk_size): (usize, usize),
        frames: impl FnOnce(usize) -> io::Result<Region>,
    ) -> Result<Self, PoolError> {
        let shape = PoolError::Shape { chunks, chunk_size };
        let fits = (CHUNK_GRAIN..=CHUNK_SIZE_DATAGRAM).contains(&chunk_size)
            && chunk_size.is_multiple_of(CHUNK_GRAIN)
            && (1..=CHUNKS_MAX).contains(&chunks);
        let Some(count) = u32::try_from(chunks).ok().filter(|_| fits) else { return Err(shape) };
        let memory = |octets| move |source| PoolError::Memory { octets, source };
        let (octets, head_octets) = (chunks * chunk_size, chunks * size_of::<Head>());
        let region = frames(octets).map_err(memory(octets))?;
        let heads = Region::map(head_octets).map_err(memory(head_octets))?;
        Ok(Self { region, heads, chunk_size, chunks: count, lent: Vec::new() })
    }

    /// Its place and division.
    pub fn shape(&self) -> SlabShape {
        SlabShape::new(&self.region, self.chunk_size, self.chunks)
    }
}

/// Address, length and chunk size of a slab, for registration with the kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SlabShape {
    /// The address of its first octet.
    pub address: usize,
    /// Its octets.
    pub len: usize,
    /// Octets of a chunk.
    pub chunk_size: usize,
    /// Its chunks.
    pub chunks: usize,
}

impl SlabShape {
    fn new(region: &Region, chunk_size: usize, chunks: u32) -> Self {
        let address = region.base().as_ptr() as usize;
        Self { address, len: region.len(), chunk_size, chunks: chunks as usize }
    }

    /// Maximum octets of a packet, with the promised tailroom.
    pub const fn packet_len_max(&self) -> usize {
        self.chunk_size - DATA_OFFSET - TAILROOM
    }
}

/// A slab of equal chunks, and the worker's right to allocate them.
///
/// Neither `Send` nor `Sync`: it is created on the worker that uses it.
#[derive(Debug)]
pub struct Pool {
    pub(crate) home: NonNull<Home>,
}

impl Pool {
    /// Maps `chunks` chunks of `chunk_size` octets; pages are taken when first written.
    ///
    /// # Errors
    ///
    /// As [`Slab::new`].
    pub fn new(chunks: usize, chunk_size: usize) -> Result<Self, PoolError> {
        Slab::new(chunks, chunk_size).map(Self::over)
    }

    /// The pool of a slab's chunks, on the worker that uses it.
    pub fn over(slab: Slab) -> Self {
        let Slab { region, heads, chunk_size, chunks, lent } = slab;
        let is_free = |chunk: &u32| lent.binary_search(chunk).is_err();
        // Handed out from the end: the lowest chunks first. With room for all of them.
        let mut free = Vec::with_capacity(chunks as usize);
        free.extend((0..chunks).rev().filter(is_free));
        let free = UnsafeCell::new(free);
        let returned = AtomicU32::new(END);
        let exhausted = Cell::new(0);
        let lent = RefCell::new(lent);
        let home = Home { region, heads, chunk_size, chunks, free, returned, exhausted, lent };
        Self { home: NonNull::from(Box::leak(Box::new(home))) }
    }

    /// Octets of the smallest chunks that hold packets of `len` octets, with the promised tailroom:
    /// powers of two as far as AF_XDP can use them as they are.
    pub fn chunk_size_for(len: usize) -> usize {
        (len + DATA_OFFSET + TAILROOM).next_multiple_of(CHUNK_GRAIN)
    }

    fn home(&self) -> &Home {
        // SAFETY: the home is freed only by `Drop` of the pool.
        unsafe { self.home.as_ref() }
    }

    /// An empty packet that begins at [`DATA_OFFSET`]; `None` and a count if every chunk is in use.
    pub fn packet(&self) -> Option<Packet> {
        let home = self.home();
        // SAFETY: a pool is not `Send` nor `Sync`: this is the owning worker, and no other
        // reference into `free` exists during the call.
        let free = unsafe { &mut *home.free.get() };
        if free.is_empty() {
            home.collect(free);
        }
        let Some(index) = free.pop() else {
            home.exhausted.set(home.exhausted.get() + 1);
            return None;
        };
        Some(self.packet_at(index, DATA_OFFSET, 0))
    }

    /// A packet with a copy of `octets`; `None` if every chunk is in use or they do not fit.
    pub fn packet_of(&self, octets: &[u8]) -> Option<Packet> {
        let mut packet = self.packet()?;
        packet.append(octets).ok()?;
        Some(packet)
    }

    /// Takes a chunk back from a kernel ring as a packet of `len` octets at `address` of the
    /// region, with new metadata.
    ///
    /// `None` if they lie outside of a chunk: the ring is shared memory and is not trusted.
    ///
    /// # Safety
    ///
    /// The chunk was given away by [`Packet::into_raw`] and the kernel has returned it.
    pub unsafe fn packet_from_raw(&self, address: u64, len: u32) -> Option<Packet> {
        let home = self.home();
        let (address, len) = (usize::try_from(address).ok()?, usize::try_from(len).ok()?);
        let (index, front) = (address / home.chunk_size, address % home.chunk_size);
        let index = u32::try_from(index).ok().filter(|&index| index < home.chunks)?;
        if front + len > home.chunk_size {
            return None;
        }
        Some(self.packet_at(index, front, len))
    }

    fn packet_at(&self, index: u32, front: usize, len: usize) -> Packet {
        let home = self.home();
        let head = home.head(index);
        // SAFETY: the chunk is nobody's: it came off the free list or back from the kernel; `front`
        // lies within it.
        unsafe {
            head.write(Head {
                home: self.home,
                first: home.chunk(head).add(front),
                received_ns: 0,
                len: narrow(len),
                meta: Meta { ingress: LinkIndex::NONE, egress: LinkIndex::NONE, ..Meta::default() },
            });
            Packet::take(head)
        }
    }

    /// Hands over the right to the chunk at `address`, if the kernel has had it since before this pool
    /// ([`Slab::of_memory`]); returns whether it did. The chunk then counts as given away by
    /// [`Packet::into_raw`].
    pub fn give_up_lent(&self, address: u64) -> bool {
        let home = self.home();
        let index = usize::try_from(address).ok().map(|address| address / home.chunk_size);
        let Some(index) = index.and_then(|index| u32::try_from(index).ok()) else { return false };
        let mut lent = home.lent.borrow_mut();
        let place = lent.binary_search(&index);
        place.is_ok_and(|place| lent.remove(place) == index)
    }

    /// The descriptor of its slab's memory, if another process may map it.
    pub fn memory(&self) -> Option<Arc<OwnedFd>> {
        self.home().region.file().cloned()
    }

    /// Free chunks.
    pub fn available(&self) -> usize {
        let home = self.home();
        // SAFETY: as in `packet`.
        let free = unsafe { &mut *home.free.get() };
        home.collect(free);
        free.len()
    }

    /// Chunks of the slab.
    pub fn capacity(&self) -> usize {
        self.home().chunks as usize
    }

    /// Octets of a chunk.
    pub fn chunk_size(&self) -> usize {
        self.home().chunk_size
    }

    /// Maximum octets of a packet of this pool, with the promised tailroom.
    pub fn packet_len_max(&self) -> usize {
        self.chunk_size() - DATA_OFFSET - TAILROOM
    }

    /// Number of requests when every chunk was in use.
    pub fn exhausted(&self) -> u64 {
        self.home().exhausted.get()
    }

    /// The place of its slab in memory and its division.
    pub fn shape(&self) -> SlabShape {
        let home = self.home();
        SlabShape::new(&home.region, home.chunk_size, home.chunks)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // With packets or kernel rings still holding chunks the home stays: a leak of one slab at
        // the end of a worker, instead of a packet without memory.
        if self.available() == self.capacity() {
            // SAFETY: every chunk is home, so no packet can reach the home; it was leaked by `new`.
            drop(unsafe { Box::from_raw(self.home.as_ptr()) });
        }
    }
}

const _: () = assert!(DATA_OFFSET >= crate::HEADROOM);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CHUNK_SIZE;

    /// A process that goes on with the slab of one before finds its frames, and gives no chunk away that the
    /// kernel has.
    #[test]
    fn a_slab_goes_on_in_another_pool() {
        const CHUNKS: usize = 8;
        let before = Pool::over(Slab::shared(CHUNKS, CHUNK_SIZE).unwrap());
        let lent: Vec<u64> =
            (0..3).map(|number| before.packet_of(&[number; 60]).unwrap().into_raw().0).collect();
        let memory = before.memory().unwrap().try_clone().unwrap();
        let slab = Slab::of_memory(memory, (CHUNKS, CHUNK_SIZE), lent.iter().copied()).unwrap();
        let pool = Pool::over(slab);
        assert_eq!(pool.available(), CHUNKS - lent.len());
        let free: Vec<Packet> = std::iter::from_fn(|| pool.packet()).collect();
        assert_eq!(free.len(), CHUNKS - lent.len());
        for (number, address) in (0..).zip(&lent) {
            assert!(pool.give_up_lent(*address) && !pool.give_up_lent(*address));
            // SAFETY: the pool has given the chunk away, once.
            let packet = unsafe { pool.packet_from_raw(*address, 60) }.unwrap();
            assert_eq!(packet.octets(), &[number; 60]);
        }
        drop(free);
        assert_eq!(pool.available(), CHUNKS);
        assert!(!pool.give_up_lent(u64::MAX));
    }

    #[test]
    fn other_memory_is_no_slab() {
        let other = || {
            let pool = Pool::over(Slab::shared(4, CHUNK_SIZE).unwrap());
            pool.memory().unwrap().try_clone().unwrap()
        };
        assert!(Slab::of_memory(other(), (4, CHUNK_SIZE), []).is_ok());
        assert!(Slab::of_memory(other(), (5, CHUNK_SIZE), []).is_err());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(Slab::of_memory(file.into(), (4, CHUNK_SIZE), []).is_err());
    }
}
