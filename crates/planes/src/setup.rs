//! The setup of a gateway as values: `config` reads it from a file, and embedders write it.

use gatewright_data::{DataSetup, DeviceSetup, WorkerLink};
use gatewright_link::{Backend, LinkConfig};
use gatewright_packet::{LinkAddress, LinkIndex};
use gatewright_stack::{Advertise, NeighbourLimits, VirtualLink, WeightedHop};
use gatewright_tables::Prefix;
use std::{
    ffi::OsString,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

/// A gateway to be opened.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Its links, in the order of their indices.
    pub links: Vec<LinkSetup>,
    /// Its static routes.
    pub routes: Vec<StaticRoute>,
    /// Routes that were set by command under the control plane before, whose data plane is adopted.
    pub routes_by_command: Vec<StaticRoute>,
    /// Its static neighbours.
    pub static_neighbours: Vec<StaticNeighbour>,
    /// Threads that move packets, at most [`WORKERS_MAX`](crate::WORKERS_MAX); each has a slab and a graph of its own.
    pub workers: usize,
    /// The processor core of the control plane; each worker gets one of the others. The system
    /// places all threads if there is none.
    pub control_core: Option<usize>,
    /// How its workers wait.
    pub spin: Duration,
    /// Frames in the slab of each worker.
    pub frames: usize,
    /// Minimum octets of a chunk of the slab; links with larger frames enlarge it.
    pub chunk_size: usize,
    /// Limits of the neighbours of each link and family.
    pub neighbours: NeighbourLimits,
    /// Maximum routes of each family.
    pub routes_max: u32,
    /// Octets of the kernel's messages that may be queued, where links are shared with it.
    pub kernel_news_octets: usize,
    /// The seed of random numbers: identifications, jitter, secrets.
    pub seed: u64,
    /// Whether packets that arrive wait until [`Planes::begin`](crate::Planes::begin): handlers and
    /// sockets are attached before. Otherwise they are received as soon as all links are open.
    pub waits: bool,
    /// The process in which the workers run; this one if there is none.
    pub process: Option<ProcessSetup>,
    /// Reports of devices that drivers may send on, where links forward in their drivers.
    pub reports: Option<ReportRoute>,
}

/// Where reports of devices come in, and where they go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReportRoute {
    /// The address of this gateway to which devices send.
    pub listen: SocketAddr,
    /// The CoAP address of the CSE.
    pub cse: SocketAddr,
}

/// A neighbour that is neither resolved nor forgotten.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StaticNeighbour {
    /// The link.
    pub link: LinkIndex,
    /// Its address.
    pub address: IpAddr,
    /// Its link-layer address.
    pub station: LinkAddress,
}

/// A process of its own for the workers.
#[derive(Clone, Debug, Default)]
pub struct ProcessSetup {
    /// A program that calls [`serve_data_plane`](crate::serve_data_plane).
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The name by which a later control plane finds the process when this one has died. Without
    /// one the process ends with this one.
    pub name: String,
}

/// Least number of frames in the slab: the rings of six links, and the packets on the way.
const FRAMES: usize = 8192;

/// Frames beside those of the rings: packets on the way, and links that a reload adds.
const FRAMES_BESIDE: usize = 2048;

/// Default routes of each family: the whole Internet's. Room costs address space only.
const ROUTES_MAX: u32 = 1 << 20;

/// Default octets for the kernel's messages: some ten thousand changes of routes.
const KERNEL_NEWS_OCTETS: usize = 8 << 20;

/// Default polling time after the last frame: longer than the gap between the packets of a busy
/// flow, short enough not to be seen on an idle machine.
const SPIN: Duration = Duration::from_micros(50);

impl Setup {
    /// A gateway without links; `seed` is the start of all its randomness.
    pub const fn new(seed: u64) -> Self {
        Self {
            links: Vec::new(),
            routes: Vec::new(),
            routes_by_command: Vec::new(),
            static_neighbours: Vec::new(),
            workers: 1,
            control_core: None,
            spin: SPIN,
            frames: FRAMES,
            chunk_size: gatewright_packet::CHUNK_SIZE,
            neighbours: NeighbourLimits::DEFAULT,
            routes_max: ROUTES_MAX,
            kernel_news_octets: KERNEL_NEWS_OCTETS,
            seed,
            waits: false,
            process: None,
            reports: None,
        }
    }

    /// Adds a link on the interface `device`, and returns it for further settings.
    pub fn link(&mut self, name: &str, device: &str) -> &mut LinkSetup {
        let index = LinkIndex(u16::try_from(self.links.len()).unwrap_or(u16::MAX));
        let device = DeviceSetup::Interface(LinkConfig::new(index, device));
        self.links.push_mut(LinkSetup::new(name, device))
    }

    /// Adds the VLAN `id` of the link `below`, which was added before (IEEE 802.1Q): a link of its
    /// own. On a shared link it is shared: its host is the kernel's VLAN interface there.
    pub fn vlan(&mut self, name: &str, below: LinkIndex, id: u16) -> &mut LinkSetup {
        let link = LinkIndex(u16::try_from(self.links.len()).unwrap_or(u16::MAX));
        let mut is_shared = false;
        for other in &mut self.links {
            if let DeviceSetup::Interface(device) = &mut other.device
                && device.index == below
            {
                device.vlans.push(id);
                is_shared = !device.exclusive;
            }
        }
        let device = DeviceSetup::Virtual(VirtualLink::vlan(link, below, id, 0));
        let own = self.links.push_mut(LinkSetup::new(name, device));
        own.is_on_shared = is_shared;
        own
    }

    /// Frames that the links' rings may hold.
    fn frames_of_rings(&self) -> usize {
        let slots = self.links.iter().map(|link| match &link.device {
            DeviceSetup::Interface(config) => config.ring_slots,
            _ => 0,
        });
        slots.fold(0, usize::saturating_add)
    }

    /// The part that concerns the workers, which run on these cores.
    pub(crate) fn data(&self, cores: Vec<usize>) -> DataSetup {
        DataSetup {
            links: self.links.iter().map(LinkSetup::worker_link).collect(),
            workers: self.workers,
            spin: self.spin,
            frames: self.frames.max(self.frames_of_rings().saturating_add(FRAMES_BESIDE)),
            chunk_size: self.chunk_size,
            cores,
            neighbours: self.neighbours,
            seed: self.seed,
            waits: self.waits,
        }
    }

    /// Adds a route by one next hop, or by several, of which each flow keeps one.
    #[must_use]
    pub fn route(mut self, to: RouteTo, hops: Vec<WeightedHop>) -> Self {
        self.routes.push(StaticRoute { to, hops });
        self
    }
}

/// A link to be opened.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent setting of the link")]
pub struct LinkSetup {
    /// Its name in the gateway.
    pub name: String,
    /// The device and how to open it.
    pub device: DeviceSetup,
    /// Its link-layer address, if it differs from the device's.
    pub link_address: LinkAddress,
    /// Its addresses with their prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Maximum octets of a packet, if less than the device's.
    pub mtu: Option<u32>,
    /// Whether packets that arrive here for other hosts are forwarded.
    pub forwarding: bool,
    /// Its router advertisements to hosts.
    pub advertise: Option<Advertise>,
    /// Whether it configures itself from router advertisements.
    pub autoconfigure: bool,
    /// Whether it asks a DHCP server for an IPv4 address.
    pub dhcp: bool,
    /// Maximum number of workers that receive from it, each by its own queues; by default the
    /// number of workers. Only packet sockets can exceed the queues of the device, and only if it
    /// is given.
    pub queues: Option<usize>,
    /// Whether it is a virtual link on one that is shared with the kernel.
    pub is_on_shared: bool,
}

impl LinkSetup {
    /// The MTU limits of those of `links` that have one.
    pub(crate) fn mtu_caps(links: &[Self]) -> Vec<(LinkIndex, u32)> {
        links.iter().filter_map(|link| Some((link.device.index(), link.mtu?))).collect()
    }

    /// A link that forwards, without addresses.
    pub fn new(name: &str, device: DeviceSetup) -> Self {
        Self {
            name: name.to_owned(),
            device,
            link_address: LinkAddress::NONE,
            addresses: Vec::new(),
            mtu: None,
            forwarding: true,
            advertise: None,
            autoconfigure: false,
            dhcp: false,
            queues: None,
            is_on_shared: false,
        }
    }

    /// A place for a link that is added while the gateway runs.
    pub fn spare(index: LinkIndex) -> Self {
        Self::new("", DeviceSetup::Spare(index))
    }

    /// Whether it is a place without a link.
    pub(crate) const fn is_spare(&self) -> bool {
        matches!(self.device, DeviceSetup::Spare(_))
    }

    /// The part that concerns the workers.
    pub(crate) fn worker_link(&self) -> WorkerLink {
        WorkerLink { name: self.name.clone(), device: self.device.clone(), queues: self.queues }
    }

    /// Adds an address with the bits of its subnet.
    pub fn address(&mut self, ip: impl Into<IpAddr>, prefix_len: u8) -> &mut Self {
        self.addresses.push((ip.into(), prefix_len));
        self
    }

    /// Shares the interface with the kernel, which remains the host there. Its addresses, routes
    /// and neighbours are followed, and only packets to be forwarded come here.
    pub fn shared(&mut self) -> &mut Self {
        if let DeviceSetup::Interface(device) = &mut self.device {
            device.exclusive = false;
        }
        self
    }

    /// Has its driver forward what is only forwarded, where it can; handlers, captures and traces
    /// at transit packets bring these to the graph as long as they are there.
    pub fn forward_in_driver(&mut self) -> &mut Self {
        if let DeviceSetup::Interface(device) = &mut self.device {
            device.forwards_in_driver = true;
        }
        self
    }

    /// Whether it is shared with the kernel.
    pub const fn is_shared(&self) -> bool {
        self.is_on_shared
            || matches!(self.device, DeviceSetup::Interface(LinkConfig { exclusive: false, .. }))
    }

    /// Exchanges frames with an interface of the kernel by `backend`.
    pub fn backend(&mut self, backend: Backend) -> &mut Self {
        if let DeviceSetup::Interface(device) = &mut self.device {
            device.backend = backend;
        }
        self
    }
}

/// The destinations of a static route.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum RouteTo {
    /// IPv4 destinations.
    V4(Prefix<Ipv4Addr>),
    /// IPv6 destinations.
    V6(Prefix<Ipv6Addr>),
}

impl fmt::Display for RouteTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(to) => write!(f, "{}/{}", to.address(), to.len()),
            Self::V6(to) => write!(f, "{}/{}", to.address(), to.len()),
        }
    }
}

/// A route from the user.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StaticRoute {
    /// Destinations.
    pub to: RouteTo,
    /// The next hops to them: one, or several of which each flow keeps one.
    pub hops: Vec<WeightedHop>,
}
