//! TAP and TUN: an interface of the kernel whose other end is this link.
//!
//! The kernel is the peer here, like a host on a cable. We promise it to complete checksums and to
//! segment TCP, so its streams come in super-frames, and leave in them ([`crate::coalesce`]). The
//! interface goes when the link is closed. The device takes and gives one frame a call: no other
//! link calls the kernel once per frame.

use crate::closing::Closing;
use crate::coalesce::{Outgoing, OutgoingFrame};
use crate::interface::Interface;
use crate::socket::while_busy;
use crate::super_frame::{Next, SuperFrame, VIRTIO_LEN, Virtio, note_checksum};
use crate::{Framing, Link, LinkCounters, LinkInfo, LinkState, complete, nanos, socket};
use gatewright_packet::{BATCH_MAX, Batch, Checksum, LinkAddress, LinkIndex, Packet, Pool};
use gatewright_wire::MacAddress;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The device that creates such interfaces.
pub(crate) const DEVICE: &str = "/dev/net/tun";

/// A TAP or TUN device that has an interface.
pub(crate) struct TapDevice {
    file: File,
    /// The interface's name, perhaps chosen by the kernel.
    pub(crate) name: String,
    /// Its file, which another process may have, too; closed with the device.
    kept: Option<Arc<OwnedFd>>,
}

impl TapDevice {
    /// Creates the interface `name`; the kernel replaces `%d` in it.
    pub(crate) fn new(name: &str, framing: Framing) -> io::Result<Self> {
        // linux/if_tun.h: the peer's checksums are left to us, and the segmentation of TCP.
        const TUN_F_CSUM: libc::c_ulong = 0x01;
        const TUN_F_TSO4: libc::c_ulong = 0x02;
        const TUN_F_TSO6: libc::c_ulong = 0x04;
        const TUN_F_TSO_ECN: libc::c_ulong = 0x08;
        const OFFLOADS: libc::c_ulong = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(DEVICE)?;
        let kind = match framing {
            Framing::Ethernet => libc::IFF_TAP,
            Framing::Ip => libc::IFF_TUN,
        };
        let flags = kind | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        // One that a process has just let go of is there a moment longer.
        let name = while_busy(|| socket::tun_attach(file.as_fd(), name, flags))?;
        socket::tun_offload(file.as_fd(), OFFLOADS)?;
        Ok(Self { file, name, kept: None })
    }

    /// A device that another process has created, by its file.
    pub(crate) fn of_held(file: OwnedFd, name: String) -> Self {
        Self { file: file.into(), name, kept: None }
    }

    /// Its file, for another process.
    pub(crate) fn keep(&mut self) -> io::Result<Arc<OwnedFd>> {
        let file = Arc::new(self.file.as_fd().try_clone_to_owned()?);
        self.kept = Some(Arc::clone(&file));
        Ok(file)
    }
}

/// The address of our end, where `kernels` is that of the kernel's: it differs in one bit.
pub(crate) fn other_end(kernels: MacAddress) -> LinkAddress {
    let mut octets = kernels.octets();
    let [.., last] = &mut octets;
    *last ^= 1;
    LinkAddress::ethernet(octets)
}

/// The link over a TAP or TUN device.
pub(crate) struct Tap {
    info: LinkInfo,
    index: LinkIndex,
    interface: Interface,
    device: TapDevice,
    pool: Rc<Pool>,
    /// The super-frame that is being segmented; else memory for the next one.
    super_frame: SuperFrame,
    outgoing: Outgoing,
    counters: LinkCounters,
    /// Whether the device has reported that its interface is gone.
    has_gone: bool,
}

impl Tap {
    pub(crate) fn new(
        info: LinkInfo,
        index: LinkIndex,
        interface: Interface,
        device: TapDevice,
        pool: Rc<Pool>,
    ) -> Self {
        let framing = info.framing;
        Self {
            info,
            index,
            interface,
            device,
            pool,
            super_frame: SuperFrame::new(framing),
            outgoing: Outgoing::new(framing),
            counters: LinkCounters::default(),
            has_gone: false,
        }
    }
}

impl Tap {
    /// Takes the next frame from the kernel.
    fn read(&mut self) -> Next {
        // All that a packet holds: the MTU may have been raised since it was asked for.
        let room = self.pool.packet_len_max();
        let Some(mut packet) = self.pool.packet() else {
            self.counters.receive_no_packet += 1;
            return Next::Nothing;
        };
        let Ok(octets) = packet.extend_back(room) else { return Next::Nothing };
        let mut header = [0; VIRTIO_LEN];
        // What fits into no packet is the tail of a super-frame, and stays where it is read to.
        let tail = self.super_frame.tail(room);
        let parts =
            &mut [IoSliceMut::new(&mut header), IoSliceMut::new(octets), IoSliceMut::new(tail)];
        let read = match self.device.file.read_vectored(parts) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Next::NoPacket,
            Err(error) => {
                self.has_gone |= error.raw_os_error() == Some(libc::EBADFD);
                return Next::Nothing;
            }
        };
        let Some(len) = read.checked_sub(VIRTIO_LEN).filter(|&len| len > 0) else {
            self.counters.receive_malformed += 1;
            return Next::NoPacket;
        };
        packet.truncate(len);
        let virtio = Virtio::parse(header, 0);
        if virtio.cut.is_some() {
            if self.super_frame.begin_with_tail(packet.octets(), len, virtio) {
                self.counters.super_frames += 1;
            } else {
                self.counters.receive_malformed += 1;
                self.super_frame.discard();
            }
            return Next::NoPacket;
        }
        if len > room {
            self.counters.receive_oversized += 1;
            return Next::NoPacket;
        }
        if let Some(place) = virtio.checksum {
            note_checksum(&mut packet, self.info.framing, place, &mut self.counters);
        }
        Next::Packet(packet)
    }

    /// Gives a frame, which carries the first of `packets`, to the kernel.
    fn write(&mut self, frame: &OutgoingFrame, packets: &[Packet]) -> io::Result<()> {
        // A head, and the rest of each packet.
        let mut parts = [IoSlice::new(&[]); BATCH_MAX + 1];
        let (mut count, mut len) = (0, 0);
        for (slot, part) in parts.iter_mut().zip(frame.parts(packets)) {
            *slot = IoSlice::new(part);
            (count, len) = (count + 1, len + part.len());
        }
        let written = self.device.file.write_vectored(parts.get(..count).unwrap_or_default())?;
        debug_assert_eq!(written, len, "a frame is all or none");
        Ok(())
    }

    /// Counts a frame of `packets` that the kernel did not take; returns whether its segments are to
    /// be tried.
    fn refused(&mut self, error: &io::Error, packets: usize) -> bool {
        let counter = match error.raw_os_error() {
            // The interface is down (EIO), or has gone (EBADFD).
            Some(libc::EIO | libc::EBADFD | libc::ENETDOWN) => &mut self.counters.transmit_down,
            _ if packets > 1 => return true,
            Some(libc::EINVAL) => &mut self.counters.transmit_length,
            _ => &mut self.counters.transmit_full,
        };
        *counter += packets as u64;
        false
    }
}

impl Link for Tap {
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
                self.read()
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
        let len_max = self.info.mtu + self.info.framing.header_len_max();
        batch.retain(|packet| {
            let fits = (1..=len_max).contains(&packet.len());
            self.counters.transmit_length += u64::from(!fits);
            fits
        });
        self.outgoing.plan(batch.iter().as_slice());
        let (mut at, mut packet) = (0, 0);
        while let Some(&frame) = self.outgoing.frames().get(at) {
            if let (1, Some(single)) = (frame.packets, batch.iter_mut().nth(packet)) {
                complete(single, self.info.framing, &mut self.counters);
            }
            let own = batch.iter().as_slice().get(packet..).unwrap_or_default();
            match self.write(&frame, own) {
                Ok(()) => {
                    self.outgoing.taken(at);
                    let octets: usize = own.iter().take(frame.packets).map(Packet::len).sum();
                    self.counters.sent_octets += octets as u64;
                    self.counters.sent += frame.packets as u64;
                    self.counters.super_frames_sent += u64::from(frame.packets > 1);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    if self.refused(&error, frame.packets) {
                        self.outgoing.split(at);
                        continue;
                    }
                }
            }
            (at, packet) = (at + 1, packet + frame.packets);
        }
        batch.clear();
    }

    fn counted(&self) -> LinkCounters {
        self.counters
    }

    fn state(&mut self) -> LinkState {
        let state = self.interface.state();
        if state != LinkState::Gone {
            let room = self.pool.packet_len_max();
            self.follow_device(room.saturating_sub(self.info.framing.header_len_max()));
        }
        state
    }

    fn follow_device(&mut self, mtu_max: usize) {
        let own = self.info.link_address;
        self.interface.follow(&mut self.info, mtu_max);
        self.info.link_address = match self.interface.mac() {
            Ok(Some(kernels)) => other_end(kernels),
            _ => own,
        };
    }

    fn close(self: Box<Self>) -> Closing {
        Closing::new((self.device, self.interface))
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        // A device without an interface counts as readable for ever.
        (!self.has_gone).then(|| self.device.file.as_fd())
    }
}
