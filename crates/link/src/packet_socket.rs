//! A packet socket with a receive ring.
//!
//! Frames arrive in a ring that is shared with the kernel and are copied into packets. They leave
//! by one `sendmmsg` a batch, past the queueing discipline; segments of one stream that follow one
//! another as one super-frame ([`crate::coalesce`]). For each frame the kernel tells whether
//! its checksum is partial, and how to segment a super-frame (`PACKET_VNET_HDR`). A VLAN tag, which
//! the kernel removes from every frame, is put back.

use crate::bpf::{self, ProgramType};
use crate::closing::Closing;
use crate::coalesce::Outgoing;
use crate::division::{Division, filter};
use crate::interface::Interface;
use crate::ring::{Outside, Ring, RingFrame};
use crate::socket::{self, Burst};
use crate::super_frame::{Next, SUPER_FRAME_MAX, SuperFrame, VIRTIO_LEN, Virtio, note_checksum};
use crate::{Framing, Link, LinkCounters, LinkInfo, LinkState, complete, nanos, pad};
use gatewright_packet::{BATCH_MAX, Batch, Checksum, LinkIndex, Packet, Pool};
use gatewright_wire::vlan::Vlan;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

// linux/if_packet.h, linux/if_ether.h.
pub(crate) const PACKET_ADD_MEMBERSHIP: libc::c_int = 1;
const PACKET_STATISTICS: libc::c_int = 6;
const PACKET_COPY_THRESH: libc::c_int = 7;
const PACKET_VERSION: libc::c_int = 10;
pub(crate) const PACKET_VNET_HDR: libc::c_int = 15;
const PACKET_FANOUT: libc::c_int = 18;
const PACKET_QDISC_BYPASS: libc::c_int = 20;
pub(crate) const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
const TPACKET_V2: i32 = 1;
pub(crate) const ETH_P_ALL: u16 = 3;

/// Octets before the packet: only Ethernet interfaces are opened as packet sockets.
const HEADER_LEN: usize = Framing::Ethernet.header_len();

/// Octets that super-frames may take in the socket's queue, and frames on their way out.
const SOCKET_BUFFER: i32 = 8 << 20;

/// The link over a packet socket.
pub(crate) struct PacketSocket {
    info: LinkInfo,
    index: LinkIndex,
    interface: Interface,
    pool: Rc<Pool>,
    ring: Ring,
    receiver: OwnedFd,
    sender: PacketSender,
    /// The super-frame that is being segmented.
    super_frame: SuperFrame,
    /// The buffer for a frame that fits into no slot.
    queued: Vec<u8>,
    counters: LinkCounters,
}

/// Options to open a packet socket, beside the interface's own properties.
pub(crate) struct PacketSocketOptions<'a> {
    pub(crate) index: LinkIndex,
    pub(crate) promiscuous: bool,
    /// Slots of the receive ring.
    pub(crate) slots: usize,
    /// Sockets among which the kernel divides flows.
    pub(crate) sockets: usize,
    /// The division of frames, where the link is shared with the kernel, and the VLANs whose frames
    /// are divided, too.
    pub(crate) division: Option<(&'a Division, &'a [u16])>,
}

/// A bound packet socket, which can be given to the thread that will use it.
pub(crate) struct Bound {
    index: LinkIndex,
    interface: Interface,
    ring: Ring,
    frame_len: usize,
    receiver: OwnedFd,
    sender: OwnedFd,
}

impl Bound {
    /// Octets of the largest frame of its ring.
    pub(crate) const fn frame_len(&self) -> usize {
        self.frame_len
    }

    /// Opens the requested number of sockets; just one if they cannot form a group.
    ///
    /// No socket receives before all exist, so that no flow moves from one to the next.
    pub(crate) fn group(
        mtu: usize,
        interface: Interface,
        options: &PacketSocketOptions<'_>,
    ) -> io::Result<Vec<Self>> {
        if options.sockets <= 1 {
            return Ok(vec![Self::new(mtu, interface, options)?]);
        }
        let open = || Self::new(mtu, interface.again()?, options);
        let mut all = thread::scope(|scope| -> io::Result<Vec<Self>> {
            let threads: Vec<_> = (0..options.sockets).map(|_| scope.spawn(open)).collect();
            let joined = threads.into_iter().map(|thread| match thread.join() {
                Ok(bound) => bound,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            joined.collect()
        })?;
        if join_group(&all).is_err() {
            // Before Linux 6.14 an interface that is down takes none.
            all.truncate(1);
        }
        for bound in &all {
            let fd = bound.receiver.as_fd();
            match options.division {
                Some(division) => take_only_ours(fd, division)?,
                None => socket::take_everything(fd)?,
            }
        }
        Ok(all)
    }

    /// Sockets that another process has opened: the receiving and the sending one of each.
    pub(crate) fn of_held(
        index: LinkIndex,
        interface: Interface,
        [receiver, sender]: [OwnedFd; 2],
        (slots, frame_len): (usize, usize),
    ) -> io::Result<Self> {
        let ring = Ring::of_held(receiver.as_fd(), slots, frame_len)?;
        Ok(Self { index, interface, ring, frame_len, receiver, sender })
    }

    /// Its descriptors, in the order of [`Self::of_held`].
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.receiver.as_fd(), self.sender.as_fd()]
    }

    /// Opens the sockets. The kernel takes several milliseconds to give one a ring: it waits until
    /// no processor is in the middle of a frame.
    fn new(
        mtu: usize,
        interface: Interface,
        options: &PacketSocketOptions<'_>,
    ) -> io::Result<Self> {
        let receiver = socket::open(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
        let fd = receiver.as_fd();
        let set = |name, value: i32| socket::set_option(fd, libc::SOL_PACKET, name, &value);
        set(PACKET_VERSION, TPACKET_V2)?;
        set(PACKET_VNET_HDR, 1)?;
        // Any value but zero: a frame that fits into no slot waits in the socket's queue.
        set(PACKET_COPY_THRESH, 1)?;
        set(PACKET_IGNORE_OUTGOING, 1)?;
        socket::set_buffer(fd, [libc::SO_RCVBUFFORCE, libc::SO_RCVBUF], SOCKET_BUFFER)?;
        let frame_len = mtu + HEADER_LEN;
        let ring = Ring::new(fd, options.slots, frame_len)?;
        if options.promiscuous {
            join_promiscuous(fd, interface.index)?;
        }
        if options.sockets > 1 {
            socket::take_nothing(fd)?;
        } else if let Some(division) = options.division {
            take_only_ours(fd, division)?;
        }
        let sender = sending_socket(interface.index)?;
        socket::bind_packet(fd, interface.index, ETH_P_ALL)?;
        Ok(Self { index: options.index, interface, ring, frame_len, receiver, sender })
    }
}

impl PacketSocket {
    pub(crate) fn new(info: LinkInfo, bound: Bound, pool: Rc<Pool>) -> Self {
        let Bound { index, interface, ring, receiver, sender, .. } = bound;
        Self {
            info,
            index,
            interface,
            pool,
            ring,
            receiver,
            sender: PacketSender::over(sender),
            super_frame: SuperFrame::new(Framing::Ethernet),
            queued: vec![0; VIRTIO_LEN + SUPER_FRAME_MAX],
            counters: LinkCounters::default(),
        }
    }

    /// Takes the next frame out of the ring.
    fn next_frame(&mut self) -> Next {
        self.ring.find();
        let taken = match self.ring.peek() {
            None => return Next::Nothing,
            Some(Err(Outside)) => {
                self.counters.receive_malformed += 1;
                None
            }
            Some(Ok(slot)) => {
                let mut taker = Taker {
                    pool: &self.pool,
                    counters: &mut self.counters,
                    super_frame: &mut self.super_frame,
                };
                if slot.is_queued {
                    taker.take_queued(self.receiver.as_fd(), &mut self.queued, &slot)
                } else {
                    taker.take_slot(&slot)
                }
            }
        };
        self.ring.release();
        taken.map_or(Next::NoPacket, Next::Packet)
    }
}

impl Link for PacketSocket {
    fn info(&self) -> &LinkInfo {
        &self.info
    }

    fn receive(&mut self, now: Duration, batch: &mut Batch) -> usize {
        let before = batch.len();
        while batch.room() > 0 {
            let next = if self.super_frame.is_left() {
                let segment = self.super_frame.next_packet(&self.pool, &mut self.counters);
                segment.map_or(Next::NoPacket, Next::Packet)
            } else {
                self.next_frame()
            };
            let mut packet = match next {
                Next::Packet(packet) => packet,
                Next::NoPacket => continue,
                Next::Nothing => break,
            };
            packet.set_received_ns(nanos(now));
            packet.meta_mut().ingress = self.index;
            self.counters.partial += u64::from(packet.meta().checksum == Checksum::Partial);
            self.counters.received += 1;
            self.counters.received_octets += packet.len() as u64;
            // The loop's condition left room for it.
            let _ = batch.push(packet);
        }
        batch.len() - before
    }

    fn transmit(&mut self, _now: Duration, batch: &mut Batch) {
        self.sender.send(batch, self.info.mtu, &mut self.counters);
    }

    fn counters(&mut self) -> LinkCounters {
        // struct tpacket_stats: frames and drops since the last time this was asked.
        let mut statistics = [0_u32; 2];
        let fd = self.receiver.as_fd();
        let asked = socket::get_option(fd, libc::SOL_PACKET, PACKET_STATISTICS, &mut statistics);
        if let (Ok(_), [_, drops]) = (asked, statistics) {
            self.counters.receive_overrun += u64::from(drops);
        }
        self.counters
    }

    fn counted(&self) -> LinkCounters {
        self.counters
    }

    fn state(&mut self) -> LinkState {
        self.interface.state()
    }

    fn follow_device(&mut self, mtu_max: usize) {
        self.interface.follow(&mut self.info, mtu_max);
    }

    fn close(self: Box<Self>) -> Closing {
        let Self { ring, receiver, sender, interface, .. } = *self;
        Closing::new((ring, receiver, sender.into_socket(), interface))
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        // The device going down left an error, which `state` tells better.
        socket::clear_error(self.receiver.as_fd());
        Some(self.receiver.as_fd())
    }
}

/// The parts needed to make a packet from a slot.
struct Taker<'a> {
    pool: &'a Pool,
    counters: &'a mut LinkCounters,
    super_frame: &'a mut SuperFrame,
}

impl Taker<'_> {
    fn take_slot(&mut self, slot: &RingFrame<'_>) -> Option<Packet> {
        if slot.frame.len() < slot.len {
            // It was too long for its slot, and the socket's queue had no room for it.
            self.counters.receive_overrun += 1;
            return None;
        }
        self.take(slot.frame, slot.virtio, slot.tag)
    }

    fn take_queued(
        &mut self,
        fd: BorrowedFd<'_>,
        queued: &mut [u8],
        slot: &RingFrame<'_>,
    ) -> Option<Packet> {
        let message = match socket::receive(fd, queued) {
            Ok(len) => queued.get(..len).unwrap_or_default(),
            Err(_) => &[],
        };
        let Some((&virtio, frame)) = message.split_first_chunk() else {
            self.counters.receive_malformed += 1;
            return None;
        };
        self.take(frame, virtio, slot.tag)
    }

    /// Makes a packet from a frame, or begins to segment it.
    fn take(
        &mut self,
        frame: &[u8],
        virtio: [u8; VIRTIO_LEN],
        tag: Option<[u8; Vlan::LEN]>,
    ) -> Option<Packet> {
        const ADDRESSES_LEN: usize = 12;
        let virtio = Virtio::parse(virtio, tag.map_or(0, |tag| tag.len()));
        let tag = tag.as_ref().map_or(&[][..], |tag| tag);
        let Some((addresses, rest)) = frame.split_at_checked(ADDRESSES_LEN) else {
            self.counters.receive_malformed += 1;
            return None;
        };
        if virtio.cut.is_some() {
            if self.super_frame.begin(&[addresses, tag, rest], virtio) {
                self.counters.super_frames += 1;
            } else {
                self.counters.receive_malformed += 1;
                self.super_frame.discard();
            }
            return None;
        }
        if frame.len() + tag.len() > self.pool.packet_len_max() {
            self.counters.receive_oversized += 1;
            return None;
        }
        let Some(mut packet) = self.pool.packet() else {
            self.counters.receive_no_packet += 1;
            return None;
        };
        for piece in [addresses, tag, rest] {
            // It fits: the length was compared above.
            packet.append(piece).ok()?;
        }
        if let Some(checksum) = virtio.checksum {
            note_checksum(&mut packet, Framing::Ethernet, checksum, self.counters);
        }
        Some(packet)
    }
}

/// The socket that sends frames. It receives nothing.
pub(crate) struct PacketSender {
    socket: OwnedFd,
    burst: Burst,
    /// The batch that is being sent.
    outgoing: Outgoing,
}

/// A packet socket that only sends.
pub(crate) fn sending_socket(interface_index: u32) -> io::Result<OwnedFd> {
    let socket = socket::open(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
    let fd = socket.as_fd();
    socket::set_option(fd, libc::SOL_PACKET, PACKET_QDISC_BYPASS, &1_i32)?;
    socket::set_option(fd, libc::SOL_PACKET, PACKET_VNET_HDR, &1_i32)?;
    socket::set_buffer(fd, [libc::SO_SNDBUFFORCE, libc::SO_SNDBUF], SOCKET_BUFFER)?;
    socket::bind_packet(fd, interface_index, 0)?;
    Ok(socket)
}

impl PacketSender {
    /// Sends by `socket`.
    pub(crate) fn over(socket: OwnedFd) -> Self {
        let outgoing = Outgoing::new(Framing::Ethernet);
        Self { socket, burst: Burst::new(BATCH_MAX), outgoing }
    }

    pub(crate) fn into_socket(self) -> OwnedFd {
        self.socket
    }

    /// Sends the frames that the device takes, and drops the rest with a count.
    pub(crate) fn send(&mut self, batch: &mut Batch, mtu: usize, counters: &mut LinkCounters) {
        batch.retain(|packet| {
            let fits = (HEADER_LEN..=frame_len_max(packet.octets(), mtu)).contains(&packet.len());
            counters.transmit_length += u64::from(!fits);
            fits
        });
        self.outgoing.plan(batch.iter().as_slice());
        let mut at = 0;
        for frame in self.outgoing.frames() {
            if frame.packets == 1 {
                ready(batch, at..at + 1, counters);
            }
            at += frame.packets;
        }
        let (mut frame, mut packet) = (0, 0);
        while let Some(frames) = self.outgoing.frames().get(frame..).filter(|rest| !rest.is_empty())
        {
            let packets = batch.iter().as_slice();
            let mut at = packet;
            let parts = frames.iter().map(|frame| {
                let own = packets.get(at..).unwrap_or_default();
                at += frame.packets;
                frame.parts(own)
            });
            match self.burst.send(self.socket.as_fd(), parts) {
                Ok(0) => break,
                Ok(sent) => {
                    for gone in frames.iter().take(sent) {
                        let own = packets.iter().skip(packet).take(gone.packets);
                        counters.sent_octets += own.map(Packet::len).sum::<usize>() as u64;
                        counters.sent += gone.packets as u64;
                        counters.super_frames_sent += u64::from(gone.packets > 1);
                        packet += gone.packets;
                    }
                    (frame..frame + sent).for_each(|gone| self.outgoing.taken(gone));
                    frame += sent;
                }
                Err(error) => {
                    let packets = self.refuse(&error, frame, packet, batch, counters);
                    (frame, packet) = (frame + usize::from(packets > 0), packet + packets);
                }
            }
        }
        batch.clear();
    }

    /// Handles the refusal of a frame; returns how many of its packets are given up, if not all are
    /// tried again.
    fn refuse(
        &mut self,
        error: &io::Error,
        frame: usize,
        packet: usize,
        batch: &mut Batch,
        counters: &mut LinkCounters,
    ) -> usize {
        let count = self.outgoing.frames().get(frame).map_or(1, |frame| frame.packets);
        let left = (batch.len() - packet) as u64;
        match error.raw_os_error() {
            Some(libc::EINTR) => return 0,
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => counters.transmit_down += left,
            _ if count > 1 => {
                self.outgoing.split(frame);
                ready(batch, packet..packet + count, counters);
                return 0;
            }
            // This one is refused for itself; the others may go.
            Some(libc::EMSGSIZE) => {
                counters.transmit_length += 1;
                return 1;
            }
            _ => counters.transmit_full += left,
        }
        self.outgoing.truncate(frame);
        count
    }
}

/// Makes packets ready to leave one by one.
fn ready(batch: &mut Batch, packets: std::ops::Range<usize>, counters: &mut LinkCounters) {
    for packet in batch.iter_mut().skip(packets.start).take(packets.len()) {
        complete(packet, Framing::Ethernet, counters);
        pad(packet);
    }
}

/// Maximum octets of a frame: a tag does not count against the MTU.
pub(crate) fn frame_len_max(frame: &[u8], mtu: usize) -> usize {
    let is_tagged = frame.get(12..).is_some_and(|rest| rest.starts_with(&[0x81, 0x00]));
    mtu + HEADER_LEN + if is_tagged { Vlan::LEN } else { 0 }
}

/// Makes the kernel divide received frames among sockets, by addresses and ports, the same both
/// ways. Fragments are divided by addresses only and stay fragments: reassembly
/// (`PACKET_FANOUT_FLAG_DEFRAG`) would forward a datagram other than the one that was sent.
fn join_group(sockets: &[Bound]) -> io::Result<()> {
    const HASH: u32 = 0;
    const UNIQUE_ID: u32 = 0x2000;
    const IGNORE_OUTGOING: u32 = 0x4000;
    let mut group = (HASH | UNIQUE_ID | IGNORE_OUTGOING) << 16;
    for bound in sockets {
        let fd = bound.receiver.as_fd();
        socket::set_option(fd, libc::SOL_PACKET, PACKET_FANOUT, &group)?;
        // The first has a number of its own; it tells that with the kind and the flags.
        socket::get_option(fd, libc::SOL_PACKET, PACKET_FANOUT, &mut group)?;
    }
    Ok(())
}

/// A share of a link without a receiving socket: it only sends.
pub(crate) struct SendOnly {
    info: LinkInfo,
    interface: Interface,
    sender: PacketSender,
    counters: LinkCounters,
}

impl SendOnly {
    pub(crate) fn new(info: LinkInfo, interface: Interface, socket: OwnedFd) -> Self {
        let sender = PacketSender::over(socket);
        Self { info, interface, sender, counters: LinkCounters::default() }
    }
}

impl Link for SendOnly {
    fn info(&self) -> &LinkInfo {
        &self.info
    }

    fn receive(&mut self, _: Duration, _: &mut Batch) -> usize {
        0
    }

    fn transmit(&mut self, _: Duration, batch: &mut Batch) {
        self.sender.send(batch, self.info.mtu, &mut self.counters);
    }

    fn counted(&self) -> LinkCounters {
        self.counters
    }

    fn state(&mut self) -> LinkState {
        self.interface.state()
    }

    fn follow_device(&mut self, mtu_max: usize) {
        self.interface.follow(&mut self.info, mtu_max);
    }

    fn close(self: Box<Self>) -> Closing {
        Closing::new((self.sender.into_socket(), self.interface))
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Restricts the socket to frames that the division marks as ours.
fn take_only_ours(fd: BorrowedFd<'_>, (division, vlans): (&Division, &[u16])) -> io::Result<()> {
    let code = filter(division.fd(), vlans);
    let program = bpf::load(ProgramType::Filter, "gw_filter", &code, 0)?;
    socket::set_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, &program.as_fd().as_raw_fd())
}

/// Makes the interface receive every frame, until the socket is closed.
pub(crate) fn join_promiscuous(fd: BorrowedFd<'_>, interface_index: u32) -> io::Result<()> {
    const PACKET_MR_PROMISC: u32 = 1;
    // struct packet_mreq: the index, type and length in 16 bits each, an address of 8 octets.
    let [type_1, type_2, ..] = PACKET_MR_PROMISC.to_le_bytes();
    let kind = u16::from_le_bytes([type_1, type_2]).to_ne_bytes();
    let mut request = [0_u8; 16];
    for (to, from) in request.iter_mut().zip(interface_index.to_ne_bytes().into_iter().chain(kind))
    {
        *to = from;
    }
    socket::set_option(fd, libc::SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request)
}
