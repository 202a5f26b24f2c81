//! Links: frames are received and sent in bursts.
//!
//! Every device is a [`Link`]: [`Link::receive`] fills a batch, [`Link::transmit`] empties one.
//! Frames live in the slab of the worker that owns the link ([`gatewright_packet::Pool`]); for
//! AF_XDP the kernel writes into the same memory. [`Opener::open`] chooses the device's mode and
//! gives the reason ([`LinkInfo::mode`], [`LinkInfo::why`]).
//!
//! | device | made by | frames are copied |
//! |---|---|---|
//! | AF_XDP | [`Opener`] | once each way, or never (zero-copy drivers) |
//! | packet socket | [`Opener`] | once each way |
//! | TAP, TUN | [`Opener::open_tap`] | once each way |
//! | capture files | [`Opener::open_capture`], [`pcapng::CaptureLink`] | once each way |
//! | port of DPDK, in a build with it | [`Opener::open_dpdk`] | once each way |
//! | port of a memory segment | [`Segments`], [`MemoryLink`] | once each way |
//!
//! A frame may arrive with a partial transport checksum ([`gatewright_wire::partial`]): virtual
//! links promise their peer a device that completes it. The link marks such a frame, and completes
//! the checksum at the latest when the frame is transmitted. No peer is ever reconfigured.
//!
//! Several workers may open a link. Each has a [`Share`] of its queues and sends by one of its own.
//!
//! All calls of a link come from the thread that owns its pool. None of them blocks, allocates
//! after start, or calls the kernel once per packet, except that TAP and TUN must call it per
//! packet.

mod bpf;
mod btf;
mod claim;
mod closing;
mod coalesce;
mod division;
mod dpdk;
mod driver;
mod exclusive;
mod frame_socket;
mod frame_tap;
mod held;
mod interface;
mod made;
mod memory;
mod nftables;
mod open;
mod open_error;
mod packet_socket;
mod pair;
mod path_mtu;
pub mod pcapng;
mod probe;
mod redirected;
mod returning;
mod ring;
mod share;
mod socket;
mod socket_name;
mod super_frame;
mod tap;
mod unbound;
mod xdp;

pub use claim::claim_name_holders;
pub use closing::{Closing, ClosingDevice, RemainingChunks};
pub use division::Division;
pub use dpdk::{DpdkConfig, WITHOUT_DPDK};
pub use driver::{DriverForwarding, DriverMaps, KernelTables};
pub use frame_socket::{FrameSelection, FrameSocket, OFFLOADS_LEN, without_offloads};
pub use frame_tap::FrameTap;
pub use held::{DeviceFacts, HeldDevice, HeldKind, OpenDevices};
pub use interface::InterfaceProperties;
pub use made::{CaptureConfig, TapConfig, capture_framing};
pub use memory::{MemoryConfig, MemoryLink, Segments, SharedSegment};
pub use open::{Backend, LinkConfig, Opener, Preparer, frame_len_max, receive_queues};
pub use open_error::OpenError;
pub use pair::{InterfaceNotices, InterfacePair};
pub use path_mtu::disregard_path_mtu;
pub use probe::{InterfaceDriver, LinkFacilities};
pub use redirected::{KernelPort, kernel_port};
pub use share::{Share, Shares};
pub use socket_name::{NameHolder, other_holders};
pub use unbound::UnboundLink;

/// How a segment in memory impairs frames.
pub use gatewright_sim::{Chance, Impairment};
pub use gatewright_wire::Framing;
/// The maps of forwarding in drivers, by which a process loads the programs of links.
pub use gatewright_xdp::{ForwardingMaps, program_clock};

use gatewright_packet::{Batch, Checksum, LinkAddress, LinkIndex, Packet};
use gatewright_wire::{MacAddress, partial};
use std::{fmt, os::fd::BorrowedFd, time::Duration};

/// A device that receives and sends frames in bursts.
pub trait Link {
    /// Its properties.
    fn info(&self) -> &LinkInfo;

    /// Starts the replay of a capture file, which waits until the whole gateway is ready. Frames of
    /// all other links come from the start.
    fn begin(&mut self) {}

    /// Adds frames that have arrived to `batch`, as many as there is room for, and returns their
    /// number. Each is stamped with `now`, the link's index and the state of its checksum.
    ///
    /// `now` is the time since an epoch of the caller's choice.
    fn receive(&mut self, now: Duration, batch: &mut Batch) -> usize;

    /// Sends every frame of `batch`, which is empty afterwards. Partial checksums are completed.
    ///
    /// Frames that the device cannot take are dropped and counted.
    fn transmit(&mut self, now: Duration, batch: &mut Batch);

    /// Counters since the link was opened, including those of the kernel, which is asked.
    fn counters(&mut self) -> LinkCounters {
        self.counted()
    }

    /// Counters since the link was opened; those of the kernel as they were at the last
    /// [`Self::counters`]. It asks nobody.
    fn counted(&self) -> LinkCounters;

    /// Whether the device exists and can carry frames. It asks the kernel: call it some times a
    /// second, not per batch. A device that has returned is opened on another thread meanwhile.
    fn state(&mut self) -> LinkState;

    /// Takes changes made to the device from outside into its properties: link-layer address and
    /// MTU, up to `mtu_max` octets. Asks the kernel, as [`Self::state`] does.
    fn follow_device(&mut self, _mtu_max: usize) {}

    /// Takes the link apart to close it: the kernel takes milliseconds for its half, which another
    /// thread may drop.
    fn close(self: Box<Self>) -> Closing {
        drop(self);
        Closing::default()
    }

    /// The descriptor to sleep on: it is readable when frames have arrived. Ask for it anew each
    /// time: a device that has come back has a new one, and one that has gone has none.
    fn poll_fd(&self) -> Option<BorrowedFd<'_>>;

    /// When the next frame arrives by the link's own clock, if known; such a link's descriptor is
    /// not used for sleeping.
    fn poll_timeout(&self) -> Option<Duration> {
        None
    }
}

/// The way frames are exchanged with a device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Mode {
    /// AF_XDP in the driver, which writes into our slab itself.
    XdpZeroCopy,
    /// AF_XDP in the driver; the kernel copies between the driver's memory and our slab.
    XdpCopy,
    /// AF_XDP after the driver, with a copy.
    XdpGeneric,
    /// A packet socket with a receive ring that is shared with the kernel.
    PacketSocket,
    /// A TAP device: the kernel is the host at the other end of the cable.
    Tap,
    /// A TUN device: as TAP, without a link layer.
    Tun,
    /// Capture files.
    CaptureFile,
    /// A port of DPDK.
    Dpdk,
    /// A port of a medium in memory.
    Memory,
    /// No device: frames of a lower link that carry a tag.
    Virtual,
    /// No device: another worker has the link, or none has come yet.
    NoDevice,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::XdpZeroCopy => "AF_XDP native, zero-copy",
            Self::XdpCopy => "AF_XDP native, copy",
            Self::XdpGeneric => "AF_XDP generic",
            Self::PacketSocket => "packet socket",
            Self::Tap => "TAP",
            Self::Tun => "TUN",
            Self::CaptureFile => "capture file",
            Self::Dpdk => "DPDK",
            Self::Memory => "memory",
            Self::Virtual => "virtual link",
            Self::NoDevice => "no device",
        })
    }
}

/// Properties of a link, decided when it was opened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LinkInfo {
    /// The name of its interface or file.
    pub name: String,
    /// The way frames are exchanged.
    pub mode: Mode,
    /// Why this mode was chosen, in words for the operator.
    pub why: String,
    /// The header at the front of its frames.
    pub framing: Framing,
    /// Its link-layer address, if it has one.
    pub link_address: LinkAddress,
    /// Maximum octets of a packet without its link-layer header.
    pub mtu: usize,
    /// Whether frames may arrive with a partial checksum.
    pub partial_checksums: bool,
    /// Whether the kernel is kept from the frames of this link, and how.
    pub exclusive: Exclusive,
    /// The driver of its interface, empty if there is none.
    pub driver: String,
    /// The index of its interface in the kernel, 0 if it has none.
    pub kernel_index: u32,
    /// The receive queues of this [`Share`]: of the device, or of the sockets among which the
    /// kernel divides frames. Empty for a link without queues.
    pub queues: Vec<u32>,
    /// Shares of the link that have a queue.
    pub receivers: usize,
    /// Whether its driver forwards what is only forwarded.
    pub driver_forwarding: DriverForwarding,
}

/// Visibility of a link's received frames to the kernel's own stack.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Exclusive {
    /// The kernel sees every frame, too.
    Shared,
    /// The kernel is the host, and has every frame except those that are only forwarded. These come
    /// only here, by a program that ends with us.
    Divided,
    /// The kernel drops every frame after we have received it, by a table or a program that ends
    /// with us.
    Dropped,
    /// The kernel's driver hands every frame to us and none to its stack, by a program that ends
    /// with us.
    Redirected,
    /// The kernel sees every frame, too, but has no address on any interface and does not forward:
    /// it is silent until it gets an address.
    Unaddressed,
    /// The kernel never had a part in this link.
    Ours,
}

impl fmt::Display for Exclusive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shared => "shared with the kernel's stack",
            Self::Divided => "shared, the kernel has all but what is forwarded",
            Self::Dropped => "exclusive, the kernel drops behind it",
            Self::Redirected => "exclusive, the driver hands all to it",
            Self::Unaddressed => "exclusive, the kernel having no address",
            Self::Ours => "exclusive",
        })
    }
}

impl fmt::Display for LinkInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, mode, why, mtu, exclusive, driver_forwarding, .. } = self;
        write!(f, "{name}: {mode} ({why}), MTU {mtu}, {exclusive}")?;
        match driver_forwarding {
            DriverForwarding::NotAsked => Ok(()),
            forwarding => write!(f, ", forwards {forwarding}"),
        }
    }
}

/// Operational state of a link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LinkState {
    /// It can carry frames.
    Up,
    /// It exists but is administratively down, or without a carrier.
    Down,
    /// Its device has gone, and the link is silent. A link from [`Opener::open`] looks for the
    /// device at each request of its state, and opens it when it returns. The link's properties
    /// ([`Link::info`]) may have changed then. A TAP device or a port of DPDK does not return.
    Gone,
    /// Its capture file is replayed to its end, and no more frames come.
    Ended,
}

impl fmt::Display for LinkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Gone => "gone",
            Self::Ended => "ended",
        })
    }
}

/// Counters of a link since it was opened. Octets count whole frames.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LinkCounters {
    /// Frames received.
    pub received: u64,
    /// Their octets.
    pub received_octets: u64,
    /// Frames handed to the device.
    pub sent: u64,
    /// Their octets.
    pub sent_octets: u64,
    /// Frames that the kernel, or a driver of DPDK, dropped because we did not take them in time.
    pub receive_overrun: u64,
    /// Frames dropped because the pool had no packet left.
    pub receive_no_packet: u64,
    /// Frames dropped because they do not fit into a packet.
    pub receive_oversized: u64,
    /// Frames dropped because the kernel's description of them is invalid.
    pub receive_malformed: u64,
    /// Frames that arrived with a partial checksum.
    pub partial: u64,
    /// Checksums completed by this link.
    pub completed: u64,
    /// Frames larger than the MTU that arrived and were cut into segments.
    pub super_frames: u64,
    /// Frames larger than the MTU that were sent, merged from segments of one stream.
    pub super_frames_sent: u64,
    /// Frames dropped because the device's queue was full.
    pub transmit_full: u64,
    /// Frames dropped because they are longer than the device takes, or empty.
    pub transmit_length: u64,
    /// Frames dropped because the device was down or gone.
    pub transmit_down: u64,
    /// Frames that the impairment of a segment in memory lost, once for each port.
    pub transmit_lost: u64,
    /// Number of times that the kernel had a frame and found no chunk of ours to receive it into
    /// (AF_XDP).
    pub fill_empty: u64,
    /// Frames that the kernel refused to send, or chunks that it refused to receive into (AF_XDP);
    /// frames that a driver of DPDK took and could not send.
    pub kernel_refused: u64,
}

impl LinkCounters {
    /// The counters by name.
    pub const fn named(self) -> [(&'static str, u64); 18] {
        [
            ("received", self.received),
            ("received_octets", self.received_octets),
            ("sent", self.sent),
            ("sent_octets", self.sent_octets),
            ("receive_overrun", self.receive_overrun),
            ("receive_no_packet", self.receive_no_packet),
            ("receive_oversized", self.receive_oversized),
            ("receive_malformed", self.receive_malformed),
            ("partial_checksums", self.partial),
            ("checksums_completed", self.completed),
            ("super_frames", self.super_frames),
            ("super_frames_sent", self.super_frames_sent),
            ("transmit_full", self.transmit_full),
            ("transmit_length", self.transmit_length),
            ("transmit_down", self.transmit_down),
            ("transmit_lost", self.transmit_lost),
            ("fill_empty", self.fill_empty),
            ("kernel_refused", self.kernel_refused),
        ]
    }

    /// The sums of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            received: self.received + other.received,
            received_octets: self.received_octets + other.received_octets,
            sent: self.sent + other.sent,
            sent_octets: self.sent_octets + other.sent_octets,
            receive_overrun: self.receive_overrun + other.receive_overrun,
            receive_no_packet: self.receive_no_packet + other.receive_no_packet,
            receive_oversized: self.receive_oversized + other.receive_oversized,
            receive_malformed: self.receive_malformed + other.receive_malformed,
            partial: self.partial + other.partial,
            completed: self.completed + other.completed,
            super_frames: self.super_frames + other.super_frames,
            super_frames_sent: self.super_frames_sent + other.super_frames_sent,
            transmit_full: self.transmit_full + other.transmit_full,
            transmit_length: self.transmit_length + other.transmit_length,
            transmit_down: self.transmit_down + other.transmit_down,
            transmit_lost: self.transmit_lost + other.transmit_lost,
            fill_empty: self.fill_empty + other.fill_empty,
            kernel_refused: self.kernel_refused + other.kernel_refused,
        }
    }
}

/// Completes the partial checksum of a packet before it is sent.
pub(crate) fn complete(packet: &mut Packet, framing: Framing, counters: &mut LinkCounters) {
    if packet.meta().checksum == Checksum::Partial
        && partial::complete(packet.octets_mut(), framing)
    {
        packet.meta_mut().checksum = Checksum::Complete;
        counters.completed += 1;
    }
}

/// Minimum octets of an Ethernet frame, without its check sequence (IEEE 802.3 §3.2.8, RFC 894: "If
/// necessary, the data field should be padded (with octets of zero)").
const FRAME_LEN_MIN: usize = 60;

/// Pads a frame to the minimum length. Hardware drivers do so themselves, virtual ones do not.
/// Memory after the end of a short frame must not leave.
pub(crate) fn pad(packet: &mut Packet) {
    const ZEROS: [u8; FRAME_LEN_MIN] = [0; FRAME_LEN_MIN];
    let missing = FRAME_LEN_MIN.saturating_sub(packet.len());
    if let Some(zeros @ [_, ..]) = ZEROS.get(..missing) {
        // A chunk has room for more than the least.
        let _room = packet.append(zeros);
    }
}

/// The link-layer address of a link without a device: of its own, by its index, and marked as
/// locally administered (IEEE 802 §8.4).
pub(crate) const fn local_address(LinkIndex(index): LinkIndex) -> MacAddress {
    let [high, low] = index.to_be_bytes();
    MacAddress([0x02, b'g', b'w', 0, high, low])
}

/// The unit of frames' stamps: whole nanoseconds.
pub(crate) fn nanos(now: Duration) -> u64 {
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
