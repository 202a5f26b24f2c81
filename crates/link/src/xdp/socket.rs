//! An AF_XDP socket on one receive queue: its four rings, and the chunks in them.

use super::lent::{Lent, Use};
use super::pieces::{GOES_ON, Pieces};
use super::ring::{Consumer, Descriptor, Offsets, Producer};
use crate::socket::while_busy;
use crate::{LinkCounters, socket};
use gatewright_packet::{Batch, Packet, Pool, SlabShape};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

// linux/if_xdp.h.
const SOL_XDP: libc::c_int = 283;
const XDP_MMAP_OFFSETS: libc::c_int = 1;
const XDP_RX_RING: libc::c_int = 2;
const XDP_TX_RING: libc::c_int = 3;
const XDP_UMEM_REG: libc::c_int = 4;
const XDP_UMEM_FILL_RING: libc::c_int = 5;
const XDP_UMEM_COMPLETION_RING: libc::c_int = 6;
const XDP_STATISTICS: libc::c_int = 7;
const XDP_OPTIONS: libc::c_int = 8;
/// Maximum frames that one call of the kernel sends, since Linux 6.18.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
const RECEIVE_OFFSET: i64 = 0;
const TRANSMIT_OFFSET: i64 = 0x8000_0000;
const FILL_OFFSET: i64 = 0x1_0000_0000;
const COMPLETION_OFFSET: i64 = 0x1_8000_0000;
const BIND_SHARED: u16 = 1 << 0;
const BIND_COPY: u16 = 1 << 1;
const BIND_NEED_WAKEUP: u16 = 1 << 3;
const BIND_SEVERAL_BUFFERS: u16 = 1 << 4;

/// Octets that may be queued for sending. The default throttles a veth to a tenth.
const SEND_BUFFER: i32 = 16 << 20;

/// How long the kernel may have chunks between two rings: a burst that is being received, or frames
/// that wait to be sent.
const SETTLED_WITHIN: Duration = Duration::from_millis(100);
const SETTLED_LOOK: Duration = Duration::from_micros(200);

/// Maximum calls of the kernel to send one burst.
const KICKS_MAX: u32 = 8;

/// The socket that registered a slab with the kernel: the first registers it once, and the others
/// refer to it.
pub(crate) type Registered = Weak<OwnedFd>;

/// An AF_XDP socket.
pub(super) struct XdpSocket {
    /// Before `lent`: chunks go home when the kernel has released them.
    part: KernelPart,
    lent: Lent,
    /// Joins pieces where the kernel's buffers are not the slab's.
    pieces: Option<Pieces>,
    /// Chunks that the receive side of the kernel holds.
    filled: u32,
    /// The last statistics read: overruns, empty fill rings, refusals.
    statistics: [u64; 3],
}

/// The part of a socket that the kernel knows. Any thread may open and close it.
pub(super) struct KernelPart {
    fd: Option<Arc<OwnedFd>>,
    fill: Producer<u64>,
    completion: Consumer<u64>,
    receive: Consumer<Descriptor>,
    transmit: Producer<Descriptor>,
    /// Target number of chunks in the fill ring.
    fill_target: u32,
    /// Entries of each ring.
    entries: u32,
    pub(super) is_zero_copy: bool,
    /// Chunks that an earlier process has lent to the kernel.
    lent_before: LentBefore,
    statistics: [u64; 3],
    /// The last field: dropped when the rings are unmapped.
    release: Release,
}

/// Positions of the chunks that the kernel has of a socket.
#[derive(Debug, Default)]
pub(super) struct LentBefore {
    /// For frames to come, and with frames that were not read.
    receive: Vec<u64>,
    /// With frames to send, and with frames that were sent.
    transmit: Vec<u64>,
}

impl LentBefore {
    pub(super) fn all(&self) -> impl Iterator<Item = u64> {
        self.receive.iter().chain(&self.transmit).copied()
    }
}

/// Says, when it is dropped, whether the kernel has released the chunks of a socket.
struct Release {
    kernel: Arc<Use>,
    is_due: bool,
}

impl Drop for Release {
    fn drop(&mut self) {
        self.kernel.end(self.is_due);
    }
}

/// An interface's queue, and the number of ring entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueAddress {
    pub(super) interface_index: u32,
    pub(super) queue: u32,
    pub(super) entries: u32,
    /// Frames to lend to it.
    pub(super) lent: u32,
    /// Whether the driver's own memory must not be used, as generic attachment requires.
    pub(super) copy: bool,
    /// Whether frames may be in several buffers.
    pub(super) in_pieces: bool,
}

impl KernelPart {
    /// Opens a socket whose chunks are those of the slab `slab`.
    pub(super) fn open(
        place: QueueAddress,
        slab: SlabShape,
        registered: &mut Registered,
    ) -> io::Result<Self> {
        if let Some(owner) = registered.upgrade()
            && let Ok(socket) = Self::open_with(place, slab, Some(&owner))
        {
            return Ok(socket);
        }
        // The first of its slab, or one whose driver cannot share with it.
        let socket = Self::open_with(place, slab, None)?;
        *registered = socket.fd.as_ref().map(Arc::downgrade).unwrap_or_default();
        Ok(socket)
    }

    fn open_with(
        place: QueueAddress,
        slab: SlabShape,
        owner: Option<&OwnedFd>,
    ) -> io::Result<Self> {
        let fd = socket::open(libc::AF_XDP, libc::SOCK_RAW, 0)?;
        let at = fd.as_fd();
        socket::set_option(at, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER)?;
        if owner.is_none() {
            register(at, slab)?;
        }
        let entries = place.entries.next_power_of_two();
        for ring in [XDP_UMEM_FILL_RING, XDP_UMEM_COMPLETION_RING, XDP_RX_RING, XDP_TX_RING] {
            socket::set_option(at, SOL_XDP, ring, &entries)?;
        }
        let mut part = Self::over(fd, (entries, place.lent))?;
        let Some(fd) = &part.fd else { return Ok(part) };
        let at = fd.as_fd();
        bind(at, place, owner.map(AsFd::as_fd))?;
        // An older kernel sends 32 a call; the burst is then sent in more calls.
        let _ = socket::set_option(at, SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &entries.min(BURST));
        part.is_zero_copy = is_zero_copy(at);
        Ok(part)
    }

    /// Maps the rings of a socket.
    fn over(fd: OwnedFd, (entries, lent): (u32, u32)) -> io::Result<Self> {
        let at = fd.as_fd();
        let [receive, transmit, fill, completion] = offsets(at)?;
        Ok(Self {
            fill: Producer::new(at, FILL_OFFSET, fill, entries)?,
            completion: Consumer::new(at, COMPLETION_OFFSET, completion, entries)?,
            receive: Consumer::new(at, RECEIVE_OFFSET, receive, entries)?,
            transmit: Producer::new(at, TRANSMIT_OFFSET, transmit, entries)?,
            fd: Some(Arc::new(fd)),
            fill_target: lent,
            entries,
            is_zero_copy: false,
            lent_before: LentBefore::default(),
            statistics: [0; 3],
            release: Release { kernel: Arc::default(), is_due: false },
        })
    }

    /// Goes on with a socket of an earlier process, bound and with its rings of `entries` entries, to
    /// which frames of the slab are copied.
    ///
    /// # Errors
    ///
    /// The system's error; Linux before 6.4 maps no rings of a bound socket. An error, too, if the
    /// kernel has chunks that its rings do not tell.
    pub(super) fn go_on(fd: OwnedFd, entries: u32, lent: u32) -> io::Result<Self> {
        let mut part = Self::over(fd, (entries, lent))?;
        part.lent_before = part.lent_to_kernel()?;
        part.statistics = part.read_statistics().unwrap_or_default();
        Ok(part)
    }

    /// The chunks that the kernel has, once none is between two rings.
    fn lent_to_kernel(&self) -> io::Result<LentBefore> {
        let until = Instant::now() + SETTLED_WITHIN;
        loop {
            // The kernel moves chunks from the fill ring to the receive ring, and from the transmit
            // to the completion ring: read in this order, no chunk is missed.
            let (filled, mut receive) = self.fill.kernel_side()?;
            let (received, unread) = self.receive.kernel_side()?;
            let (taken, transmit) = self.transmit.kernel_side()?;
            let (sent, completed) = self.completion.kernel_side()?;
            if filled == received && taken == sent {
                receive.extend(unread.into_iter().map(|frame| frame.address));
                let mut transmit: Vec<u64> = transmit.iter().map(|frame| frame.address).collect();
                transmit.extend(completed);
                return Ok(LentBefore { receive, transmit });
            }
            if Instant::now() > until {
                return Err(io::Error::other("the kernel has frames that no ring tells"));
            }
            std::thread::sleep(SETTLED_LOOK);
        }
    }

    /// Its descriptor, and what another process has to know to go on with it; `None` if none can.
    pub(super) fn to_keep(&self) -> Option<(Arc<OwnedFd>, u32, u32)> {
        let fd = self.fd.as_ref()?;
        // A driver that writes into chunks itself has some that no ring tells.
        if self.is_zero_copy {
            return None;
        }
        let [.., fill, _] = offsets(fd.as_fd()).ok()?;
        // Linux before 6.4 maps no rings of a bound socket.
        Producer::<u64>::new(fd.as_fd(), FILL_OFFSET, fill, self.entries).ok()?;
        Some((Arc::clone(fd), self.entries, self.fill_target))
    }

    /// The positions of the chunks that an earlier process has lent to the kernel.
    pub(super) const fn lent_before(&self) -> &LentBefore {
        &self.lent_before
    }

    /// The socket, for others of its slab.
    pub(super) fn registered(&self) -> Registered {
        self.fd.as_ref().map(Arc::downgrade).unwrap_or_default()
    }

    /// The kernel's counts: overruns, empty fill rings, refusals.
    fn read_statistics(&self) -> Option<[u64; 3]> {
        // struct xdp_statistics: dropped (also for an empty fill ring), two kinds of invalid
        // descriptors, ring full, and how often the fill and the transmit ring were found empty.
        let mut statistics = [0_u64; 6];
        let fd = self.fd.as_ref()?;
        socket::get_option(fd.as_fd(), SOL_XDP, XDP_STATISTICS, &mut statistics).ok()?;
        let [dropped, receive_invalid, transmit_invalid, receive_full, fill_empty, _] = statistics;
        Some([dropped + receive_full, fill_empty, receive_invalid + transmit_invalid])
    }

    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(|fd| fd.as_fd())
    }

    /// Lends the kernel chunks of `pool`, the slab for which the socket was opened. With `frames`,
    /// the chunks hold copies of those frames.
    pub(super) fn with_pool(mut self, pool: Rc<Pool>, frames: Option<&Rc<Pool>>) -> XdpSocket {
        let mut lent = Lent::new(pool, Arc::clone(&self.release.kernel));
        let pieces = frames.map(|frames| Pieces::new(Rc::clone(frames)));
        let before = std::mem::take(&mut self.lent_before);
        before.all().for_each(|position| lent.go_on(position));
        let filled = u32::try_from(before.receive.len()).unwrap_or(u32::MAX);
        let statistics = self.statistics;
        let mut socket = XdpSocket { part: self, lent, pieces, filled, statistics };
        socket.refill();
        socket
    }
}

/// Frames that a link lends at the least.
pub(crate) const LENT_LEAST: u32 = 64;

/// Frames that may be lent to the kernel now: an eighth of the slab is kept for packets on the way,
/// or nothing could be sent once many links have filled their rings.
fn frames_to_lend(pool: &Pool) -> usize {
    pool.available().saturating_sub(pool.capacity() / 8)
}

/// Whether there are frames for one more link.
pub(crate) fn has_frames_to_lend(pool: &Pool) -> bool {
    frames_to_lend(pool) >= LENT_LEAST as usize
}

impl Drop for KernelPart {
    fn drop(&mut self) {
        let was_last = self.fd.take().is_none_or(|fd| Arc::into_inner(fd).is_some());
        // With the socket closed and unmapped the kernel copies into no chunk any more. A driver
        // that writes into them itself stops a moment later: then they stay lent.
        self.release.is_due = was_last && !self.is_zero_copy;
    }
}

impl XdpSocket {
    /// Separates what the kernel takes its time to close from the chunks lent to it.
    pub(super) fn into_parts(self) -> (KernelPart, Lent) {
        (self.part, self.lent)
    }

    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.part.fd()
    }

    /// Lends the kernel chunks up to the target number.
    fn refill(&mut self) {
        if self.filled >= self.part.fill_target {
            return;
        }
        let mut pushed = false;
        let mut spare = frames_to_lend(self.lent.pool());
        while self.filled < self.part.fill_target && spare > 0 && self.part.fill.has_room() {
            spare -= 1;
            let Some(packet) = self.lent.pool().packet() else { break };
            // A packet of the pool is never refused, and there is room for it.
            let Ok((address, _)) = self.lent.lend(packet) else { break };
            self.part.fill.push(address);
            self.filled += 1;
            pushed = true;
        }
        if pushed {
            self.part.fill.submit();
        }
    }

    /// Takes received frames into `batch`.
    pub(super) fn receive(&mut self, batch: &mut Batch, counters: &mut LinkCounters) {
        let before = batch.len();
        self.complete();
        while batch.room() > 0 {
            let Some(descriptor) = self.part.receive.pop() else { break };
            self.filled = self.filled.saturating_sub(1);
            let goes_on = descriptor.options & GOES_ON != 0;
            let Some(packet) = self.lent.take(descriptor.address, descriptor.len) else {
                counters.receive_malformed += 1;
                self.pieces.iter_mut().for_each(|pieces| pieces.lose(goes_on));
                continue;
            };
            let whole = match &mut self.pieces {
                Some(pieces) => pieces.add(packet.octets(), goes_on, counters),
                None => Some(packet),
            };
            // The loop's condition left room for it.
            let _ = whole.map(|packet| batch.push(packet));
        }
        if batch.len() > before || self.filled < self.part.fill_target {
            self.part.receive.release();
            self.refill();
        }
        if batch.len() == before && self.part.fill.needs_wakeup() {
            self.wake_receive();
        }
        // A burst that the device could not take at once.
        if self.part.transmit.waiting() > 0 {
            self.kick();
        }
    }

    /// Puts a frame into the transmit ring, copied if it is not of our pool; returns whether there
    /// was room. It leaves with the next [`Self::flush`].
    pub(super) fn push(&mut self, packet: Packet) -> Result<(), TransmitRefused> {
        if let Some(mut pieces) = self.pieces.take() {
            let pushed = self.push_in_pieces(packet.octets(), pieces.room());
            self.pieces = Some(pieces);
            return pushed;
        }
        if !self.part.transmit.has_room() {
            return Err(TransmitRefused::Full);
        }
        let (address, len) = match self.lent.lend(packet) {
            Ok(lent) => lent,
            Err(foreign) => {
                let copy = self.lent.pool().packet_of(foreign.octets());
                let copy = copy.ok_or(TransmitRefused::NoPacket)?;
                self.lent.lend(copy).map_err(|_| TransmitRefused::NoPacket)?
            }
        };
        // There was room above.
        self.part.transmit.push(Descriptor { address, len, options: 0 });
        Ok(())
    }

    /// Copies a frame into as many buffers as it needs; all of it or nothing.
    fn push_in_pieces(
        &mut self,
        frame: &[u8],
        buffers: &mut Vec<Packet>,
    ) -> Result<(), TransmitRefused> {
        let pieces = frame.chunks(self.lent.pool().packet_len_max());
        if usize::try_from(self.part.transmit.room()).is_ok_and(|room| room < pieces.len()) {
            return Err(TransmitRefused::Full);
        }
        let mut left = pieces.len();
        buffers.extend(pieces.map_while(|piece| self.lent.pool().packet_of(piece)));
        if buffers.len() < left {
            buffers.clear();
            return Err(TransmitRefused::NoPacket);
        }
        for buffer in buffers.drain(..) {
            left -= 1;
            // A packet of the pool is never refused, and there was room for all of them.
            let (address, len) = self.lent.lend(buffer).map_err(|_| TransmitRefused::NoPacket)?;
            let options = if left > 0 { GOES_ON } else { 0 };
            self.part.transmit.push(Descriptor { address, len, options });
        }
        Ok(())
    }

    /// Makes the kernel send pushed frames.
    pub(super) fn flush(&mut self) {
        self.part.transmit.submit();
        self.kick();
        self.complete();
    }

    /// Takes back the chunks whose frames have left.
    fn complete(&mut self) {
        let mut any = false;
        while let Some(address) = self.part.completion.pop() {
            drop(self.lent.take(address, 0));
            any = true;
        }
        if any {
            self.part.completion.release();
        }
    }

    fn kick(&mut self) {
        let Some(fd) = self.part.fd.clone() else { return };
        if !self.part.transmit.needs_wakeup() {
            return;
        }
        for _ in 0..KICKS_MAX {
            match socket::send_nothing(fd.as_fd()) {
                Ok(()) if self.part.transmit.waiting() == 0 => return,
                Ok(()) => {}
                Err(error) => match error.raw_os_error() {
                    // It sends a limited number of frames a call and says so.
                    Some(libc::EAGAIN | libc::EINTR) if self.part.transmit.waiting() > 0 => {}
                    _ => return,
                },
            }
            self.complete();
        }
    }

    fn wake_receive(&self) {
        if let Some(fd) = &self.part.fd {
            // Only to have the driver look at the fill ring; it has nothing to say.
            let _ = socket::receive(fd.as_fd(), &mut []);
        }
    }

    /// Adds the kernel's counts since the last call.
    pub(super) fn count(&mut self, counters: &mut LinkCounters) {
        let Some(now) = self.part.read_statistics() else { return };
        let before = std::mem::replace(&mut self.statistics, now);
        let [overrun, fill_empty, refused] = now;
        let [overrun_before, fill_empty_before, refused_before] = before;
        counters.receive_overrun += overrun.saturating_sub(overrun_before);
        counters.fill_empty += fill_empty.saturating_sub(fill_empty_before);
        counters.kernel_refused += refused.saturating_sub(refused_before);
    }
}

/// Frames of a burst.
const BURST: u32 = 64;

/// Why a frame was not put into the transmit ring.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum TransmitRefused {
    /// The ring is full.
    Full,
    /// It would have to be copied, and the pool is empty.
    NoPacket,
}

fn register(fd: BorrowedFd<'_>, slab: SlabShape) -> io::Result<()> {
    let chunk = slab.chunk_size as u64;
    // struct xdp_umem_reg: address and length in 64 bits each, then chunk size, headroom, flags and
    // metadata in 32 bits each; only the first of the four is not zero.
    let chunk = if cfg!(target_endian = "little") { chunk } else { chunk << 32 };
    let request = [slab.address as u64, slab.len as u64, chunk, 0];
    socket::set_option(fd, SOL_XDP, XDP_UMEM_REG, &request)
}

/// The positions of the parts of the receive, transmit, fill and completion rings.
fn offsets(fd: BorrowedFd<'_>) -> io::Result<[Offsets; 4]> {
    let mut words = [0_u64; 16];
    let len = socket::get_option(fd, SOL_XDP, XDP_MMAP_OFFSETS, &mut words)?;
    if len != size_of_val(&words) {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    let (rings, _) = words.as_chunks::<4>();
    let [receive, transmit, fill, completion] = rings else {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    };
    Ok([receive, transmit, fill, completion].map(|&[producer, consumer, entries, flags]| Offsets {
        producer,
        consumer,
        entries,
        flags,
    }))
}

/// Binds the socket to its queue, as soon as that is free.
fn bind(fd: BorrowedFd<'_>, place: QueueAddress, owner: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let several = if place.in_pieces { BIND_SEVERAL_BUFFERS } else { 0 };
    let flags = match owner {
        // Copy mode, wake-ups and several buffers are the owner's.
        Some(_) => BIND_SHARED,
        None if place.copy => BIND_COPY | BIND_NEED_WAKEUP | several,
        None => BIND_NEED_WAKEUP | several,
    };
    let owner = owner.map_or(0, |owner| owner.as_raw_fd().cast_unsigned());
    while_busy(|| socket::bind_xdp(fd, flags, place.interface_index, place.queue, owner))
}

fn is_zero_copy(fd: BorrowedFd<'_>) -> bool {
    const XDP_OPTIONS_ZEROCOPY: u32 = 1;
    let mut options = 0_u32;
    let asked = socket::get_option(fd, SOL_XDP, XDP_OPTIONS, &mut options);
    // What cannot be asked is taken for the more careful answer.
    asked.is_err() || options & XDP_OPTIONS_ZEROCOPY != 0
}
