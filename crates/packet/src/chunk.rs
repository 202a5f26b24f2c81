//! One packet: the only handle of its chunk.
#![expect(unsafe_code, reason = "a packet is a raw chunk of the slab; 8 octets instead of 40")]

use crate::{
    Meta, Pool,
    pool::{CHUNK_GRAIN, Home},
};
use std::{fmt, marker::PhantomData, ptr::NonNull};

/// The bit of [`Head::received_ns`] that says that the packet is with another worker than its
/// pool's; as a time it would be 292 years.
const ABROAD: u64 = 1 << 63;

/// The metadata of a chunk; each chunk has one, beside the slab.
///
/// Not in the chunk: chunks begin 2048 octets apart, so that lines at their fronts share two sets of
/// a processor's first cache, which holds no batch of them.
#[repr(align(64))]
pub(crate) struct Head {
    /// The pool it belongs to, which outlives every packet.
    pub(crate) home: NonNull<Home>,
    /// The packet's first octet, in its chunk.
    pub(crate) first: NonNull<u8>,
    /// When the link received it, in nanoseconds; [`ABROAD`] is set while it is with another worker.
    pub(crate) received_ns: u64,
    /// Octets of the packet; on the return list, the next chunk of it.
    pub(crate) len: u32,
    /// The packet's metadata.
    pub(crate) meta: Meta,
}

// One cache line: whoever touches a packet pays for one, and has all of it.
const _: () = assert!(size_of::<Head>() == 64);

/// A packet would grow beyond the end of its chunk.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{needed} octets do not fit into the {free} that are free in the packet's chunk")]
pub struct NoRoom {
    /// Octets asked for.
    pub needed: usize,
    /// Octets that were free.
    pub free: usize,
}

/// One packet in the slab: a frame, or its rest after layers have stripped headers.
///
/// Dropping it gives its chunk back to the pool.
pub struct Packet {
    head: NonNull<Head>,
    /// The pool's free list is not shared between threads.
    _one_worker: PhantomData<*mut ()>,
}

impl Packet {
    /// Takes the chunk whose head is written at `head`.
    ///
    /// # Safety
    ///
    /// `head` is that of a chunk that no other packet and no kernel ring holds, its fields are
    /// initialised, `len` octets from `first` on lie within the chunk, and its home lives.
    pub(crate) const unsafe fn take(head: NonNull<Head>) -> Self {
        Self { head, _one_worker: PhantomData }
    }

    fn head(&self) -> &Head {
        // SAFETY: by `take`, the head is initialised and only this handle reaches it.
        unsafe { self.head.as_ref() }
    }

    fn head_mut(&mut self) -> &mut Head {
        // SAFETY: as for `head`; `&mut self` makes the access exclusive.
        unsafe { self.head.as_mut() }
    }

    fn home(&self) -> &Home {
        // SAFETY: a home outlives its packets (`Home`).
        unsafe { self.head().home.as_ref() }
    }

    fn chunk_size(&self) -> usize {
        self.home().chunk_size
    }

    /// Octets of its chunk before it.
    fn front(&self) -> usize {
        let chunk = self.home().chunk(self.head);
        self.head().first.as_ptr() as usize - chunk.as_ptr() as usize
    }

    /// Octets of the packet.
    pub fn len(&self) -> usize {
        self.head().len as usize
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.head().len == 0
    }

    /// The packet's octets.
    pub fn octets(&self) -> &[u8] {
        // SAFETY: the octets lie within the chunk, which is mapped, zeroed at first, and held by
        // this handle alone.
        unsafe { std::slice::from_raw_parts(self.head().first.as_ptr(), self.len()) }
    }

    /// The packet's octets, to change in place.
    pub fn octets_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `octets`; `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.head().first.as_ptr(), self.len()) }
    }

    /// Its metadata.
    pub fn meta(&self) -> &Meta {
        &self.head().meta
    }

    /// Its metadata, to change.
    pub fn meta_mut(&mut self) -> &mut Meta {
        &mut self.head_mut().meta
    }

    /// When its link received it: nanoseconds of the worker's clock, 0 for a packet made here.
    pub fn received_ns(&self) -> u64 {
        self.head().received_ns & !ABROAD
    }

    /// Sets when its link received it.
    pub fn set_received_ns(&mut self, now_ns: u64) {
        let head = self.head_mut();
        head.received_ns = (head.received_ns & ABROAD) | (now_ns & !ABROAD);
    }

    /// Free octets before it.
    pub fn headroom(&self) -> usize {
        self.front()
    }

    /// Free octets after it.
    pub fn tailroom(&self) -> usize {
        self.chunk_size() - self.front() - self.len()
    }

    /// Strips `octets` off the front; a packet shorter than that becomes empty.
    pub fn strip(&mut self, octets: usize) {
        let octets = octets.min(self.len());
        let head = self.head_mut();
        // SAFETY: not more than the packet has.
        head.first = unsafe { head.first.add(octets) };
        head.len -= narrow(octets);
    }

    /// Strips `octets` off the end; a packet shorter than that becomes empty.
    pub fn strip_trailer(&mut self, octets: usize) {
        self.truncate(self.len().saturating_sub(octets));
    }

    /// Cuts the packet to `len` octets, if it is longer.
    pub fn truncate(&mut self, len: usize) {
        let len = narrow(len.min(self.len()));
        self.head_mut().len = len;
    }

    /// Marks the packet's start as its network header, for [`Self::restore_network`].
    pub fn mark_network(&mut self) {
        let front = u16::try_from(self.front()).unwrap_or_default();
        self.head_mut().meta.network = front;
    }

    /// Grows the packet back to the position of [`Self::mark_network`], so that the stripped
    /// network header is in front again. Nothing happens if the packet begins there or before it.
    pub fn restore_network(&mut self) {
        if let Some(grown) = self.stripped_since_mark() {
            let head = self.head_mut();
            // SAFETY: the mark lies in the chunk, so many octets in front of the packet.
            head.first = unsafe { head.first.sub(grown) };
            head.len += narrow(grown);
        }
    }

    /// Octets between the mark and the packet, if there is one in front of it.
    fn stripped_since_mark(&self) -> Option<usize> {
        let mark = usize::from(self.meta().network);
        if mark == 0 { None } else { self.front().checked_sub(mark) }
    }

    /// The packet from its network header on, if [`Self::mark_network`] has marked one and layers
    /// have stripped since then; otherwise the packet as it is.
    pub fn network_octets(&self) -> &[u8] {
        let stripped = self.stripped_since_mark().unwrap_or(0);
        // SAFETY: the mark lies in the chunk, so many octets in front of the packet, and all octets
        // from there to the packet's end are held by this handle alone.
        unsafe {
            let first = self.head().first.sub(stripped);
            std::slice::from_raw_parts(first.as_ptr(), stripped + self.len())
        }
    }

    /// Puts `header` in front.
    ///
    /// # Errors
    ///
    /// [`NoRoom`] if the headroom is smaller; the packet is as it was.
    pub fn prepend(&mut self, header: &[u8]) -> Result<(), NoRoom> {
        self.extend_front(header.len())?.copy_from_slice(header);
        Ok(())
    }

    /// Grows the packet by `octets` in front and returns them to be written: they hold old data,
    /// such as a header stripped before.
    ///
    /// # Errors
    ///
    /// [`NoRoom`] if the headroom is smaller; the packet is as it was.
    pub fn extend_front(&mut self, octets: usize) -> Result<&mut [u8], NoRoom> {
        // Chunks begin at multiples of the grain: so many octets of this one are in front at the least.
        let near = self.head().first.as_ptr() as usize % CHUNK_GRAIN;
        if octets > near {
            let free = self.headroom();
            if octets > free {
                return Err(NoRoom { needed: octets, free });
            }
        }
        let head = self.head_mut();
        // SAFETY: so many are free in front, in the same chunk.
        head.first = unsafe { head.first.sub(octets) };
        head.len += narrow(octets);
        Ok(self.octets_mut().split_at_mut(octets).0)
    }

    /// Appends `trailer`.
    ///
    /// # Errors
    ///
    /// [`NoRoom`] if the tailroom is smaller; the packet is as it was.
    pub fn append(&mut self, trailer: &[u8]) -> Result<(), NoRoom> {
        self.extend_back(trailer.len())?.copy_from_slice(trailer);
        Ok(())
    }

    /// Grows the packet by `octets` at its end and returns them to be written.
    ///
    /// # Errors
    ///
    /// [`NoRoom`] if the tailroom is smaller; the packet is as it was.
    pub fn extend_back(&mut self, octets: usize) -> Result<&mut [u8], NoRoom> {
        let free = self.tailroom();
        if octets > free {
            return Err(NoRoom { needed: octets, free });
        }
        let before = self.len();
        self.head_mut().len += narrow(octets);
        Ok(self.octets_mut().split_at_mut(before).1)
    }

    /// Whether its chunk belongs to `pool`: a link sends only chunks of the slab that it shares
    /// with the kernel.
    pub fn is_of(&self, pool: &Pool) -> bool {
        self.head().home == pool.home
    }

    /// Whether it is, or was, with another worker than its pool's: its chunk holds a frame, but no
    /// link of this worker shares it with the kernel.
    pub fn is_abroad(&self) -> bool {
        self.head().received_ns & ABROAD != 0
    }

    /// Makes it a parcel for another worker.
    pub fn into_parcel(mut self) -> Parcel {
        self.head_mut().received_ns |= ABROAD;
        Parcel(self)
    }

    /// Releases ownership of the chunk without returning it to the pool, as for a kernel ring;
    /// returns the position and number of its octets in the region.
    pub fn into_raw(self) -> (u64, u32) {
        let slab = self.home().region.base().as_ptr() as usize;
        let raw = ((self.head().first.as_ptr() as usize - slab) as u64, self.head().len);
        std::mem::forget(self);
        raw
    }
}

/// A length within a chunk: chunks are far below 4 GiB, so nothing is lost.
#[expect(clippy::cast_possible_truncation, reason = "bounded by the chunk size, checked in Pool")]
const fn narrow(octets: usize) -> u32 {
    octets as u32
}

impl Drop for Packet {
    fn drop(&mut self) {
        // SAFETY: a home outlives its packets, and this handle was the chunk's only one.
        unsafe {
            let home = self.head().home;
            if self.head().received_ns & ABROAD != 0 {
                home.as_ref().put_from_abroad(self.head);
            } else {
                home.as_ref().put(self.head);
            }
        }
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packet({} octets, {:?})", self.len(), self.meta())
    }
}

/// A packet on its way to another worker.
#[derive(Debug)]
pub struct Parcel(Packet);

// SAFETY: a parcel's chunk is marked as abroad, so that dropping it from any thread uses only the
// pool's lock-free return list; everything else of it is reached through this one handle.
unsafe impl Send for Parcel {}

impl Parcel {
    /// Its octets.
    pub fn octets(&self) -> &[u8] {
        self.0.octets()
    }

    /// Makes it a packet of the worker that holds it.
    pub fn into_packet(self) -> Packet {
        self.0
    }
}
