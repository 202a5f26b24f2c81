//! TAP and TUN: an interface of the kernel whose other end is this link.
//!
//! The kernel is the peer here, like a host on a cable. We promise it to complete checksums, but
//! not to segment super-frames, so it sends none. The interface goes when the link is closed. The
//! device takes and gives one frame a call: no other link calls the kernel once per frame.

use crate::closing::Closing;
use crate::interface::Interface;
use crate::super_frame::{VIRTIO_LEN, Virtio, note_checksum};
use crate::{Framing, Link, LinkCounters, LinkInfo, LinkState, complete, nanos, socket};
use gatewright_packet::{Batch, Checksum, LinkAddress, LinkIndex, Pool};
use gatewright_wire::MacAddress;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::rc::Rc;
use std::time::Duration;

/// The device that creates such interfaces.
pub(crate) const DEVICE: &str = "/dev/net/tun";

/// A TAP or TUN device that has an interface.
pub(crate) struct TapDevice {
    file: File,
    /// The interface's name, perhaps chosen by the kernel.
    pub(crate) name: String,
}

impl TapDevice {
    /// Creates the interface `name`; the kernel replaces `%d` in it.
    pub(crate) fn new(name: &str, framing: Framing) -> io::Result<Self> {
        // linux/if_tun.h: only the peer's checksums are left to us.
        const TUN_F_CSUM: libc::c_ulong = 1;
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
        let name = socket::tun_attach(file.as_fd(), name, flags)?;
        socket::tun_offload(file.as_fd(), TUN_F_CSUM)?;
        Ok(Self { file, name })
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
        Self {
            info,
            index,
            interface,
            device,
            pool,
            counters: LinkCounters::default(),
            has_gone: false,
        }
    }
}

impl Link for Tap {
    fn info(&self) -> &LinkInfo {
        &self.info
    }

    fn receive(&mut self, now: Duration, batch: &mut Batch) -> usize {
        let before = batch.len();
        // All that a packet holds: the MTU may have been raised since it was asked for.
        let room = self.pool.packet_len_max();
        while batch.room() > 0 {
            let Some(mut packet) = self.pool.packet() else {
                self.counters.receive_no_packet += 1;
                break;
            };
            let Ok(octets) = packet.extend_back(room) else { break };
            let mut header = [0; VIRTIO_LEN];
            let parts = &mut [IoSliceMut::new(&mut header), IoSliceMut::new(octets)];
            let read = match self.device.file.read_vectored(parts) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.has_gone |= error.raw_os_error() == Some(libc::EBADFD);
                    break;
                }
            };
            let Some(len) = read.checked_sub(VIRTIO_LEN).filter(|&len| len > 0) else {
                self.counters.receive_malformed += 1;
                continue;
            };
            packet.truncate(len);
            let virtio = Virtio::parse(header, 0);
            if virtio.cut.is_some() {
                self.counters.receive_malformed += 1;
                continue;
            }
            if let Some(place) = virtio.checksum {
                note_checksum(&mut packet, self.info.framing, place, &mut self.counters);
            }
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
        for mut packet in batch.drain() {
            if !(1..=len_max).contains(&packet.len()) {
                self.counters.transmit_length += 1;
                continue;
            }
            complete(&mut packet, self.info.framing, &mut self.counters);
            let parts = [IoSlice::new(&[0; VIRTIO_LEN]), IoSlice::new(packet.octets())];
            match self.device.file.write_vectored(&parts) {
                Ok(written) => {
                    debug_assert_eq!(written, VIRTIO_LEN + packet.len(), "a frame is all or none");
                    self.counters.sent += 1;
                    self.counters.sent_octets += packet.len() as u64;
                }
                Err(error) => match error.raw_os_error() {
                    // The interface is down (EIO), or has gone (EBADFD).
                    Some(libc::EIO | libc::EBADFD | libc::ENETDOWN) => {
                        self.counters.transmit_down += 1;
                    }
                    Some(libc::EINVAL) => self.counters.transmit_length += 1,
                    _ => self.counters.transmit_full += 1,
                },
            }
        }
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
