//! The setup of the data plane as values.

use gatewright_link::{CaptureConfig, DpdkConfig, Framing, LinkConfig, MemoryConfig, TapConfig};
use gatewright_packet::LinkIndex;
use gatewright_stack::{NeighbourLimits, SuiteLink, VirtualLink};
use std::time::Duration;

/// Maximum workers of a gateway.
pub const WORKERS_MAX: usize = gatewright_config::WORKERS_MAX as usize;

/// The workers to be started, and their links.
#[derive(Clone, Debug)]
pub struct DataSetup {
    /// The links, in the order of their indices.
    pub links: Vec<WorkerLink>,
    /// Workers, 1 to [`WORKERS_MAX`]; each has a slab and a graph of its own.
    pub workers: usize,
    /// How long a worker polls after the last frame before it sleeps.
    pub spin: Duration,
    /// Frames in the slab of each worker.
    pub frames: usize,
    /// Minimum octets of a chunk of the slab; links with larger frames enlarge it.
    pub chunk_size: usize,
    /// The processor core of each worker; the system places workers without one.
    pub cores: Vec<usize>,
    /// Limits of the neighbours of each link and family.
    pub neighbours: NeighbourLimits,
    /// The seed of random numbers: identifications, jitter, secrets.
    pub seed: u64,
    /// Whether frames that arrive wait in their devices until
    /// [`PortRequest::Receive`](crate::PortRequest::Receive). Otherwise they are received as soon as
    /// all links are open, when no handler stands yet.
    pub waits: bool,
}

/// A link as the workers see it: without addresses.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WorkerLink {
    /// Its name in the gateway.
    pub name: String,
    /// The device and how to open it.
    pub device: DeviceSetup,
    /// Maximum number of workers that receive from it, each by its own queues; by default the
    /// number of workers. Only packet sockets can exceed the queues of the device, and only if it
    /// is given.
    pub queues: Option<usize>,
}

/// The kind of device behind a link.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DeviceSetup {
    /// An interface of the kernel.
    Interface(LinkConfig),
    /// A TAP or TUN interface that the gateway creates.
    Tap(TapConfig),
    /// Capture files: one whose frames arrive, one that takes those that leave.
    Capture(CaptureConfig),
    /// A port of DPDK.
    Dpdk(DpdkConfig),
    /// A port of a segment in memory.
    Segment(MemoryConfig),
    /// Frames of another link with a tag.
    Virtual(VirtualLink),
    /// No device: a place for a link that is added while the gateway runs.
    Spare(LinkIndex),
}

impl DeviceSetup {
    /// Its index in the gateway.
    pub const fn index(&self) -> LinkIndex {
        match self {
            Self::Interface(device) => device.index,
            Self::Tap(device) => device.index,
            Self::Capture(device) => device.index,
            Self::Dpdk(device) => device.index,
            Self::Segment(device) => device.index,
            Self::Virtual(device) => device.link,
            Self::Spare(index) => *index,
        }
    }

    /// Whether it is opened as a device: a virtual link comes and goes with the link below it.
    pub const fn is_device(&self) -> bool {
        !matches!(self, Self::Virtual(_))
    }

    /// The first header of its frames.
    pub const fn framing(&self) -> Framing {
        match self {
            Self::Tap(device) => device.framing,
            Self::Capture(device) => device.framing,
            Self::Interface(_)
            | Self::Dpdk(_)
            | Self::Segment(_)
            | Self::Virtual(_)
            | Self::Spare(_) => Framing::Ethernet,
        }
    }

    /// Its kind in the standard assembly of layers, with its link layer.
    pub const fn in_suite(&self) -> SuiteLink {
        match (self, self.framing()) {
            (Self::Virtual(own), _) => SuiteLink::Virtual(*own),
            (_, Framing::Ethernet) => SuiteLink::Ethernet(self.index()),
            (_, Framing::Ip) => SuiteLink::RawIp(self.index()),
        }
    }

    /// The link after which its shares are dealt to workers. The links of a segment meet in one
    /// worker's memory: all of them are the first worker's, as the first link is.
    pub(crate) const fn dealt_as(&self) -> LinkIndex {
        match self {
            Self::Segment(_) => LinkIndex(0),
            _ => self.index(),
        }
    }

    /// The name of its interface, if it is one of the kernel's.
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::Interface(device) => Some(&device.interface),
            Self::Tap(_)
            | Self::Capture(_)
            | Self::Dpdk(_)
            | Self::Segment(_)
            | Self::Virtual(_)
            | Self::Spare(_) => None,
        }
    }

    /// Whether its driver is to forward what is only forwarded.
    pub const fn forwards_in_driver(&self) -> bool {
        matches!(self, Self::Interface(LinkConfig { forwards_in_driver: true, .. }))
    }

    /// Whether frames for other hosts are received, too.
    pub const fn promiscuous(&self) -> bool {
        matches!(
            self,
            Self::Interface(LinkConfig { promiscuous: true, .. })
                | Self::Dpdk(DpdkConfig { promiscuous: true, .. })
        )
    }
}
