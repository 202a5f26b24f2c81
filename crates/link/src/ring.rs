//! The receive ring of a packet socket: slots in memory shared with the kernel.
//!
//! The ring has version 2, not 3: a slot of version 2 can be read as soon as its frame is there. In
//! version 3 the kernel hands out blocks of slots, when they are full or after a timer of at least
//! one millisecond. A gateway that forwards a single packet would wait for that timer.
#![expect(unsafe_code, reason = "the kernel writes into the mapped ring")]

use crate::socket;
use crate::super_frame::VIRTIO_LEN;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

// linux/if_packet.h.
const PACKET_RX_RING: libc::c_int = 5;
const STATUS_KERNEL: u32 = 0;
const STATUS_USER: u32 = 1 << 0;
const STATUS_COPY: u32 = 1 << 1;
const STATUS_VLAN_VALID: u32 = 1 << 4;
const STATUS_VLAN_TPID_VALID: u32 = 1 << 6;
/// 802.1Q.
const TPID_DEFAULT: u16 = 0x8100;

/// Octets that the kernel uses before a frame: `tpacket2_hdr`, `sockaddr_ll`, alignment, the virtio
/// header.
const SLOT_OVERHEAD: usize = 96;

/// Minimum octets that the kernel allocates at once.
const BLOCK_LEN: usize = 32_768;

/// Each slot begins at its own cache line: the kernel writes one slot while we read the previous
/// one.
const SLOT_GRAIN: usize = 64;

/// `struct tpacket2_hdr`.
#[repr(C)]
struct SlotHeader {
    status: AtomicU32,
    len: u32,
    captured: u32,
    mac: u16,
    net: u16,
    seconds: u32,
    nanoseconds: u32,
    vlan_tci: u16,
    vlan_tpid: u16,
    padding: [u8; 4],
}

/// A ring of equal slots, in equal blocks; the remainder at the end of a block holds no slot.
#[derive(Debug)]
pub(crate) struct Ring {
    base: NonNull<u8>,
    /// Octets of the mapping, of a block, and of a slot.
    len: usize,
    block_len: usize,
    slot_len: usize,
    /// Where the next slot begins, and where its block ends, at least a slot after that.
    next: usize,
    block_end: usize,
    /// Whether the next slot is not known yet: another process has used the ring.
    is_lost: bool,
}

/// The division of a ring's memory.
#[derive(Clone, Copy, Debug)]
struct RingLayout {
    blocks: usize,
    block_len: usize,
    slot_len: usize,
}

impl RingLayout {
    /// About `slots` slots, each for a frame of `frame_len` octets.
    fn new(slots: usize, frame_len: usize) -> Self {
        let slot_len = (frame_len + SLOT_OVERHEAD).next_multiple_of(SLOT_GRAIN);
        let block_len = BLOCK_LEN.max(slot_len.next_power_of_two());
        let blocks = slots.div_ceil(block_len / slot_len).max(1);
        Self { blocks, block_len, slot_len }
    }
}

// SAFETY: the mapping belongs to the ring alone, and no thread but the ring's owner looks at it.
unsafe impl Send for Ring {}

/// A frame that has arrived in a slot, or is to be fetched from the socket.
#[derive(Debug)]
pub(crate) struct RingFrame<'a> {
    /// Its octets, truncated at the slot's end.
    pub(crate) frame: &'a [u8],
    /// Octets of the whole frame.
    pub(crate) len: usize,
    /// Whether the whole frame is in the socket's queue, because it does not fit into a slot.
    pub(crate) is_queued: bool,
    /// The kernel's description of its checksum and size.
    pub(crate) virtio: [u8; VIRTIO_LEN],
    /// The tag that the kernel removed from it, as on the wire.
    pub(crate) tag: Option<[u8; 4]>,
}

impl Ring {
    /// Gives `fd` a ring of about `slots` slots, each for a frame of `frame_len` octets, and maps
    /// it.
    pub(crate) fn new(fd: BorrowedFd<'_>, slots: usize, frame_len: usize) -> io::Result<Self> {
        let layout = RingLayout::new(slots, frame_len);
        let RingLayout { blocks, block_len, slot_len } = layout;
        // struct tpacket_req: block size and number, frame size and number.
        let request = [block_len, blocks, slot_len, blocks * (block_len / slot_len)];
        let request = request.map(|value| u32::try_from(value).unwrap_or(u32::MAX));
        socket::set_option(fd, libc::SOL_PACKET, PACKET_RX_RING, &request)?;
        Self::map(fd, layout)
    }

    /// Maps the ring that another process has given `fd`, with the same numbers. Which slot is next
    /// shows when a frame is there.
    pub(crate) fn of_held(fd: BorrowedFd<'_>, slots: usize, frame_len: usize) -> io::Result<Self> {
        let mut ring = Self::map(fd, RingLayout::new(slots, frame_len))?;
        ring.is_lost = true;
        Ok(ring)
    }

    fn map(fd: BorrowedFd<'_>, layout: RingLayout) -> io::Result<Self> {
        let RingLayout { blocks, block_len, slot_len } = layout;
        let len = blocks * block_len;
        // SAFETY: a new mapping of the socket's ring touches no memory that exists.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at zero"))?;
        let (next, block_end) = (0, block_len);
        Ok(Self { base, len, block_len, slot_len, next, block_end, is_lost: false })
    }

    fn header(&self) -> &SlotHeader {
        self.header_at(self.next)
    }

    /// The header of the slot that begins at `place`, which is one where a slot does.
    fn header_at(&self, place: usize) -> &SlotHeader {
        // SAFETY: the slot ends within its block, so it is mapped; slots are aligned to 64 octets;
        // any bits are a header, and the kernel writes it only while the status is its own.
        unsafe { self.base.add(place).cast().as_ref() }
    }

    /// Finds the oldest frame after another process has used the ring: the first of those that lie
    /// one behind the other, and the one that came first if the ring is full of them.
    ///
    /// The kernel fills slots in their order. A frame that a second processor is just writing before
    /// others comes when the ring has gone round.
    pub(crate) fn find(&mut self) {
        if !self.is_lost {
            return;
        }
        let mut oldest: Option<([u32; 2], usize, usize)> = None;
        // The last slot comes before the first.
        let mut follows = self.has_frame(self.last_slot());
        let is_full = follows && self.slots().all(|(place, _)| self.has_frame(place));
        for (place, block_end) in self.slots() {
            let has_frame = self.has_frame(place);
            if has_frame && (!follows || is_full) {
                let header = self.header_at(place);
                let came = [header.seconds, header.nanoseconds];
                if oldest.is_none_or(|(before, ..)| came < before) {
                    oldest = Some((came, place, block_end));
                }
            }
            follows = has_frame;
        }
        if let Some((_, place, block_end)) = oldest {
            (self.next, self.block_end, self.is_lost) = (place, block_end, false);
        }
    }

    fn has_frame(&self, place: usize) -> bool {
        self.header_at(place).status.load(Ordering::Acquire) & STATUS_USER != 0
    }

    /// Where each slot begins, and where its block ends.
    fn slots(&self) -> impl Iterator<Item = (usize, usize)> {
        let (slot_len, block_len) = (self.slot_len, self.block_len);
        let of_block = block_len / slot_len;
        let in_block = move |block: usize| {
            (0..of_block).map(move |slot| (block + slot * slot_len, block + block_len))
        };
        (0..self.len).step_by(block_len).flat_map(in_block)
    }

    fn last_slot(&self) -> usize {
        self.len - self.block_len + (self.block_len / self.slot_len - 1) * self.slot_len
    }

    /// The oldest frame that has not been released, if there is one. `Err` if the kernel's
    /// description of it points outside of its slot.
    pub(crate) fn peek(&self) -> Option<Result<RingFrame<'_>, Outside>> {
        if self.is_lost {
            return None;
        }
        let header = self.header();
        // Acquire: what the kernel wrote before the status is to be seen after it.
        let status = header.status.load(Ordering::Acquire);
        (status & STATUS_USER != 0).then(|| self.slot(header, status))
    }

    fn slot(&self, header: &SlotHeader, status: u32) -> Result<RingFrame<'_>, Outside> {
        let first = usize::from(header.mac);
        let captured = usize::try_from(header.captured).map_err(|_| Outside)?;
        // SAFETY: the slot is mapped, and ours until it is released.
        let slot = unsafe {
            let start = self.base.add(self.next);
            std::slice::from_raw_parts(start.as_ptr(), self.slot_len)
        };
        let frame = slot.get(first..).and_then(|rest| rest.get(..captured)).ok_or(Outside)?;
        let virtio = slot.get(..first).and_then(<[u8]>::last_chunk).ok_or(Outside)?;
        let tag = (status & STATUS_VLAN_VALID != 0).then(|| {
            let has_tpid = status & STATUS_VLAN_TPID_VALID != 0;
            let tpid = if has_tpid { header.vlan_tpid } else { TPID_DEFAULT };
            let ([a, b], [c, d]) = (tpid.to_be_bytes(), header.vlan_tci.to_be_bytes());
            [a, b, c, d]
        });
        let len = usize::try_from(header.len).map_err(|_| Outside)?;
        Ok(RingFrame { frame, len, is_queued: status & STATUS_COPY != 0, virtio: *virtio, tag })
    }

    /// Gives the oldest slot back to the kernel.
    pub(crate) fn release(&mut self) {
        // Release: what we read of the slot was read before it is the kernel's again.
        self.header().status.store(STATUS_KERNEL, Ordering::Release);
        self.next += self.slot_len;
        if self.next + self.slot_len > self.block_end {
            self.next = if self.block_end == self.len { 0 } else { self.block_end };
            self.block_end = self.next + self.block_len;
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, unmapped only here.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A frame's description points outside of its slot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Outside;

const _: () = assert!(size_of::<SlotHeader>() == 32);
