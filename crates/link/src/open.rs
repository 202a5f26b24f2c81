//! From a description of a link to the link, and to the reason for its mode.

use crate::division::Division;
use crate::exclusive::{KernelSilenced, NotSilenced, drop_ours};
use crate::interface::Interface;
use crate::packet_socket::{Bound, Options, PacketSocket};
use crate::returning::Returning;
use crate::tap::{self, Device, Tap};
use crate::xdp::{self, Registered, Xdp};
use crate::{Exclusive, Framing, Link, LinkInfo, Mode};
use gatewright_packet::{LinkIndex, Pool};
use gatewright_wire::MacAddress;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};

/// Slots of a packet socket's receive ring, unless configured: 2 MiB of the smallest.
const RING_SLOTS: usize = 1024;

/// Entries of an AF_XDP ring at the most.
const RING_ENTRIES_MAX: u32 = 1 << 15;

/// Octets of an Ethernet header with two tags.
const HEADER_LEN_MAX: usize = 22;

/// How frames are to be exchanged with an interface.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Backend {
    /// The fastest that works; the link says which one that is, and why.
    #[default]
    Auto,
    /// AF_XDP in the driver.
    Xdp,
    /// AF_XDP behind the driver: for drivers that have no native mode.
    XdpGeneric,
    /// A packet socket.
    PacketSocket,
}

/// An interface of the kernel that is to be opened as a link.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LinkConfig {
    /// Its index in the gateway, stamped on what it receives.
    pub index: LinkIndex,
    /// The name of the interface.
    pub interface: String,
    /// How frames are to be exchanged with it.
    pub backend: Backend,
    /// The link is ours alone: the kernel's stack sees nothing of what arrives. Opening fails where
    /// that cannot be had.
    pub exclusive: bool,
    /// Frames for other hosts are received, too.
    pub promiscuous: bool,
    /// Frames that the kernel keeps for us until we take them. Each costs the next power of two
    /// above the frame's octets (a packet socket: 2 KiB at an MTU of 1500), or a packet of the slab
    /// for each receive queue (AF_XDP).
    pub ring_slots: usize,
}

impl LinkConfig {
    /// The interface `name` as link `index`: automatic, exclusive, and not promiscuous.
    pub fn new(index: LinkIndex, name: &str) -> Self {
        Self {
            index,
            interface: name.to_owned(),
            backend: Backend::Auto,
            exclusive: true,
            promiscuous: false,
            ring_slots: RING_SLOTS,
        }
    }
}

/// A TAP or TUN interface that is to be made, with a link as its other end.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TapConfig {
    /// The link's index in the gateway, stamped on what it receives.
    pub index: LinkIndex,
    /// The name of the interface; the kernel replaces `%d` in it by a number.
    pub interface: String,
    /// Ethernet for TAP, IP for TUN.
    pub framing: Framing,
    /// Octets of a packet without its link-layer header, at the most.
    pub mtu: usize,
    /// The kernel's end is taken up, too. Addresses are given to it by whoever wants them.
    pub up: bool,
}

/// Why a link cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The interface is not there.
    #[error("there is no interface {name}")]
    NoDevice {
        /// Its name.
        name: String,
    },
    /// The process may not do what is needed.
    #[error("no permission to {action} on {name}: {capability} is needed")]
    Permission {
        /// The interface.
        name: String,
        /// What was tried.
        action: &'static str,
        /// The capability that permits it.
        capability: &'static str,
    },
    /// The interface's frames do not begin with an Ethernet header.
    #[error("{name} is not an Ethernet interface")]
    NotEthernet {
        /// The interface.
        name: String,
    },
    /// The slab's packets are too small for the interface's frames.
    #[error(
        "{name} has frames of {needed} octets (MTU {mtu}), but a packet of the slab holds {found}"
    )]
    Chunk {
        /// The interface.
        name: String,
        /// Its MTU.
        mtu: usize,
        /// Octets of its frames at the most.
        needed: usize,
        /// Octets of a packet at the most.
        found: usize,
    },
    /// What was asked for cannot serve this link.
    #[error("{name}: {reason}")]
    Unsupported {
        /// The interface.
        name: String,
        /// Why it cannot, in words for the operator.
        reason: String,
    },
    /// The link was to be exclusive, but the kernel's stack would answer or forward what arrives.
    #[error("{name} cannot be exclusive: the kernel would speak, for {reason}; {how}")]
    Audible {
        /// The interface.
        name: String,
        /// Why the kernel is not silent by itself.
        reason: String,
        /// Why it cannot be cut off.
        how: String,
        /// Whether only a right is missing.
        is_permission: bool,
    },
    /// The kernel refused.
    #[error("cannot {action} on {name}: {source}")]
    System {
        /// The interface.
        name: String,
        /// What was tried.
        action: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}

impl OpenError {
    /// The exit code of a program that ends for this: 77 for a missing permission, 69 for a missing
    /// or unfit device (`sysexits.h`).
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Permission { .. } | Self::Audible { is_permission: true, .. } => 77,
            _ => 69,
        }
    }

    fn of_xdp(name: &str, driver: &str, failed: xdp::Failed) -> Self {
        if failed.is_mtu(driver) {
            let reason = failed.explain(driver);
            return Self::Unsupported { name: name.to_owned(), reason };
        }
        Self::system(name, failed.action, "CAP_BPF and CAP_NET_ADMIN", failed.source)
    }

    fn audible(name: &str, NotSilenced { source, reason }: &NotSilenced) -> Self {
        let is_permission = source.kind() == io::ErrorKind::PermissionDenied;
        let how = if is_permission {
            "CAP_BPF and CAP_NET_ADMIN are needed to cut it off".to_owned()
        } else {
            format!("it cannot be cut off (Linux 6.6 can): {source}")
        };
        Self::Audible { name: name.to_owned(), reason: reason.clone(), how, is_permission }
    }

    fn system(
        name: &str,
        action: &'static str,
        capability: &'static str,
        source: io::Error,
    ) -> Self {
        let name = name.to_owned();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::Permission { name, action, capability },
            Some(libc::ENODEV | libc::ENXIO) => Self::NoDevice { name },
            _ => Self::System { name, action, source },
        }
    }
}

/// Opens interfaces as links of one worker, whose packets are those of one pool.
///
/// AF_XDP links of one opener register the pool's memory with the kernel once.
///
/// A clone is the same opener.
#[derive(Clone)]
pub struct Opener {
    pool: Rc<Pool>,
    registered: Rc<RefCell<Registered>>,
    division: Option<Arc<Division>>,
}

impl Opener {
    /// For links whose packets are those of `pool`.
    pub fn new(pool: Rc<Pool>) -> Self {
        Self { pool, registered: Rc::default(), division: None }
    }

    /// Divides the traffic of links that are not exclusive with the kernel, as `division` says;
    /// without it such a link has a copy of everything that the kernel has.
    #[must_use]
    pub fn divided(mut self, division: Arc<Division>) -> Self {
        self.division = Some(division);
        self
    }

    /// The packets' pool.
    pub fn pool(&self) -> &Rc<Pool> {
        &self.pool
    }

    /// Opens an interface as a link.
    ///
    /// # Errors
    ///
    /// [`OpenError`] names what is missing. A link opens whole or not at all: an exclusive one that
    /// could not keep the kernel away is not opened.
    pub fn open(&self, config: &LinkConfig) -> Result<Box<dyn Link>, OpenError> {
        Ok(self.returning(config, self.reopen(config)?))
    }

    /// Opens an interface as a link that ends with its device.
    pub(crate) fn reopen(&self, config: &LinkConfig) -> Result<Box<dyn Link>, OpenError> {
        match self.begin(config)? {
            Begun::Link(link) => Ok(link),
            Begun::PacketSocket(wanted) => Ok(wanted.prepare(config)?.into_link(&self.pool)),
        }
    }

    fn returning(&self, config: &LinkConfig, link: Box<dyn Link>) -> Box<dyn Link> {
        Box::new(Returning::new(self.clone(), config.clone(), link))
    }

    /// Opens several interfaces as links, in their order, faster than one by one: the kernel takes
    /// its milliseconds for their packet sockets at the same time.
    ///
    /// # Errors
    ///
    /// As [`Self::open`], for the first that fails: all of them open, or none.
    pub fn open_all(&self, configs: &[LinkConfig]) -> Result<Vec<Box<dyn Link>>, OpenError> {
        let begun: Result<Vec<_>, _> = configs.iter().map(|config| self.begin(config)).collect();
        let begun = begun?;
        thread::scope(|scope| {
            let opening: Vec<_> = begun
                .into_iter()
                .zip(configs)
                .map(|(begun, config)| match begun {
                    Begun::Link(link) => Opening::Done(link),
                    Begun::PacketSocket(wanted) => {
                        Opening::Thread(scope.spawn(move || wanted.prepare(config)))
                    }
                })
                .collect();
            let links = opening
                .into_iter()
                .zip(configs)
                .map(|(opening, config)| Ok(self.returning(config, opening.finish(&self.pool)?)));
            links.collect()
        })
    }

    /// Opens the link, unless it is to be a packet socket.
    fn begin(&self, config: &LinkConfig) -> Result<Begun, OpenError> {
        let name = config.interface.as_str();
        let (info, interface) = self.look(name)?;
        match config.backend {
            Backend::PacketSocket => {
                let info = LinkInfo { why: "as configured".to_owned(), ..info };
                Ok(Begun::PacketSocket(self.wanted(info, interface)))
            }
            Backend::Xdp | Backend::XdpGeneric => {
                self.xdp_fits(config, &info, &interface)
                    .map_err(|reason| OpenError::Unsupported { name: name.to_owned(), reason })?;
                let info = LinkInfo { why: "as configured".to_owned(), ..info };
                let is_generic = config.backend == Backend::XdpGeneric;
                let link = self.open_xdp(config, info, interface, is_generic);
                let link = link.map_err(|(interface, failed)| {
                    OpenError::of_xdp(name, &interface.driver(), failed)
                })?;
                Ok(Begun::Link(Box::new(link)))
            }
            Backend::Auto => Ok(self.begin_best(config, info, interface)),
        }
    }

    /// AF_XDP in the driver if that works, otherwise a packet socket that says why.
    fn begin_best(&self, config: &LinkConfig, info: LinkInfo, interface: Interface) -> Begun {
        let (interface, reason) = if let Err(reason) = self.xdp_fits(config, &info, &interface) {
            (interface, reason)
        } else {
            let why = format!("the fastest that {} offers", driver_of(&info));
            let xdp = LinkInfo { why, ..info.clone() };
            match self.open_xdp(config, xdp, interface, false) {
                Ok(link) => return Begun::Link(Box::new(link)),
                Err((interface, failed)) => (interface, failed.explain(&info.driver)),
            }
        };
        let info = LinkInfo { why: format!("not AF_XDP: {reason}"), ..info };
        Begun::PacketSocket(self.wanted(info, interface))
    }

    fn wanted(&self, info: LinkInfo, interface: Interface) -> Wanted {
        Wanted { info, interface, division: self.division.clone() }
    }

    /// Makes a TAP or TUN interface, of which the link is the other end.
    ///
    /// # Errors
    ///
    /// [`OpenError`] names what is missing.
    pub fn open_tap(&self, config: &TapConfig) -> Result<Box<dyn Link>, OpenError> {
        const CAPABILITY: &str = "CAP_NET_ADMIN";
        let device = Device::new(&config.interface, config.framing).map_err(|source| {
            if source.kind() == io::ErrorKind::NotFound {
                return OpenError::NoDevice { name: tap::DEVICE.to_owned() };
            }
            OpenError::system(&config.interface, "make a TAP or TUN device", CAPABILITY, source)
        })?;
        let name = device.name.clone();
        let set = |source| OpenError::system(&name, "set the MTU", CAPABILITY, source);
        let interface = Interface::find(&name).map_err(set)?;
        interface.set_mtu(config.mtu).map_err(set)?;
        if config.up {
            let set = |source| OpenError::system(&name, "take up", CAPABILITY, source);
            interface.set_up().map_err(set)?;
        }
        let (mtu, found) = (config.mtu, self.pool.packet_len_max());
        let needed = mtu + HEADER_LEN_MAX;
        if needed > found {
            return Err(OpenError::Chunk { name, mtu, needed, found });
        }
        // The kernel's end has an address of its own; ours differs in one bit.
        let mac = interface
            .mac()
            .ok()
            .flatten()
            .map(|MacAddress([a, b, c, d, e, f])| MacAddress([a, b, c, d, e, f ^ 1]));
        let info = LinkInfo {
            name,
            mode: match config.framing {
                Framing::Ethernet => Mode::Tap,
                Framing::Ip => Mode::Tun,
            },
            why: "as configured".to_owned(),
            framing: config.framing,
            mac,
            mtu,
            partial_checksums: true,
            exclusive: Exclusive::Ours,
            driver: interface.driver(),
            kernel_index: interface.index,
        };
        Ok(Box::new(Tap::new(info, config.index, interface, device, Rc::clone(&self.pool))))
    }

    /// What the interface says about itself.
    fn look(&self, name: &str) -> Result<(LinkInfo, Interface), OpenError> {
        let ask = |source| OpenError::system(name, "ask", "CAP_NET_ADMIN", source);
        let interface = Interface::find(name).map_err(ask)?;
        let mtu = interface.mtu().map_err(ask)?;
        let Some(mac) = interface.mac().map_err(ask)? else {
            return Err(OpenError::NotEthernet { name: name.to_owned() });
        };
        let (needed, found) = (mtu + HEADER_LEN_MAX, self.pool.packet_len_max());
        if needed > found {
            return Err(OpenError::Chunk { name: name.to_owned(), mtu, needed, found });
        }
        let info = LinkInfo {
            name: name.to_owned(),
            mode: Mode::PacketSocket,
            why: String::new(),
            framing: Framing::Ethernet,
            mac: Some(mac),
            mtu,
            partial_checksums: true,
            exclusive: Exclusive::Shared,
            driver: interface.driver(),
            kernel_index: interface.index,
        };
        Ok((info, interface))
    }

    /// Whether AF_XDP can serve this link, as far as can be told before trying; if not, why.
    fn xdp_fits(
        &self,
        config: &LinkConfig,
        info: &LinkInfo,
        interface: &Interface,
    ) -> Result<(), String> {
        const CHUNK_SIZES: [usize; 2] = [2048, 4096];
        if !config.exclusive && self.division.is_none() {
            return Err("the link is shared with the kernel, and every frame would be taken \
                        from it"
                .to_owned());
        }
        let chunk_size = self.pool.chunk_size();
        if !CHUNK_SIZES.contains(&chunk_size) {
            return Err(format!("the slab's chunks have {chunk_size} octets, not 2048 or 4096"));
        }
        let queues = interface.receive_queues();
        let lent = config.ring_slots.saturating_mul(usize::try_from(queues).unwrap_or(usize::MAX));
        if lent > self.pool.capacity() {
            let found = self.pool.capacity();
            return Err(format!(
                "{queues} receive queues need {lent} packets, the slab has {found}"
            ));
        }
        if config.backend == Backend::XdpGeneric {
            if info.driver == "veth" {
                return Err("on veth the generic mode loses the peer's super-frames; the native \
                            mode has the peer cut them"
                    .to_owned());
            }
            if interface.receives_super_frames() {
                return Err("generic receive offload (GRO or LRO) is on, and frames would be \
                            lost; switch it off, or use the native mode"
                    .to_owned());
            }
        }
        Ok(())
    }

    fn open_xdp(
        &self,
        config: &LinkConfig,
        info: LinkInfo,
        interface: Interface,
        is_generic: bool,
    ) -> Result<Xdp, (Interface, xdp::Failed)> {
        // Drivers whose peer is a kernel that leaves checksums to them.
        const VIRTUAL: [&str; 3] = ["veth", "virtio_net", "tun"];
        let options = xdp::Options {
            index: config.index,
            promiscuous: config.promiscuous,
            entries: u32::try_from(config.ring_slots).unwrap_or(u32::MAX).min(RING_ENTRIES_MAX),
            is_generic,
            queues: interface.receive_queues(),
            division: if config.exclusive { None } else { self.division.clone() },
        };
        let exclusive =
            if options.division.is_some() { Exclusive::Divided } else { Exclusive::Redirected };
        let partial_checksums = VIRTUAL.contains(&info.driver.as_str()) || is_generic;
        let info = LinkInfo { partial_checksums, exclusive, ..info };
        let mut registered = self.registered.borrow_mut();
        Xdp::open(info, interface, &options, &self.pool, &mut registered)
    }
}

/// What opening a link has come to.
enum Begun {
    Link(Box<dyn Link>),
    PacketSocket(Wanted),
}

/// A link that is being opened.
enum Opening<'scope> {
    Done(Box<dyn Link>),
    Thread(ScopedJoinHandle<'scope, Result<Prepared, OpenError>>),
}

impl Opening<'_> {
    fn finish(self, pool: &Rc<Pool>) -> Result<Box<dyn Link>, OpenError> {
        match self {
            Self::Done(link) => Ok(link),
            Self::Thread(thread) => match thread.join() {
                Ok(prepared) => Ok(prepared?.into_link(pool)),
                Err(panic) => std::panic::resume_unwind(panic),
            },
        }
    }
}

/// A link that is to be a packet socket.
struct Wanted {
    info: LinkInfo,
    interface: Interface,
    division: Option<Arc<Division>>,
}

/// A packet socket that has still to be given to its worker.
struct Prepared {
    info: LinkInfo,
    bound: Bound,
    silenced: Option<KernelSilenced>,
}

impl Wanted {
    /// Opens the socket, and keeps the kernel's stack away at the same time if that is asked for.
    fn prepare(self, config: &LinkConfig) -> Result<Prepared, OpenError> {
        let Self { mut info, interface, division } = self;
        let (name, index) = (config.interface.as_str(), interface.index);
        let division = division.as_deref().filter(|_| !config.exclusive);
        let options = Options {
            index: config.index,
            promiscuous: config.promiscuous,
            slots: config.ring_slots,
            division,
        };
        // Before the socket takes anything: what both took, both would forward.
        let divided = division.map(|division| drop_ours(index, division)).transpose();
        let divided = divided.map_err(|source| not_divided(name, &source))?;
        let (bound, silenced) = thread::scope(|scope| {
            let silencing =
                config.exclusive.then(|| scope.spawn(move || KernelSilenced::new(name, index)));
            let bound = Bound::new(info.mtu, interface, &options);
            let silenced = silencing.map(|thread| match thread.join() {
                Ok(silenced) => silenced,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            (bound, silenced.transpose())
        });
        let bound = bound.map_err(|source| {
            OpenError::system(name, "open a packet socket", "CAP_NET_RAW", source)
        })?;
        let silenced = silenced.map_err(|audible| OpenError::audible(name, &audible))?;
        let silenced = silenced.or_else(|| divided.map(KernelSilenced::divided));
        info.mode = Mode::PacketSocket;
        info.exclusive = silenced.as_ref().map_or(Exclusive::Shared, |silenced| silenced.how);
        Ok(Prepared { info, bound, silenced })
    }
}

/// A link that cannot be divided with the kernel is not opened: both would forward.
fn not_divided(name: &str, source: &io::Error) -> OpenError {
    if source.kind() == io::ErrorKind::PermissionDenied {
        let action = "keep the kernel from what is forwarded here";
        let (name, capability) = (name.to_owned(), "CAP_BPF and CAP_NET_ADMIN");
        return OpenError::Permission { name, action, capability };
    }
    let reason = format!(
        "it cannot be shared by a packet socket, because the kernel cannot be kept from what is \
         forwarded here (Linux 6.6 can): {source}"
    );
    OpenError::Unsupported { name: name.to_owned(), reason }
}

impl Prepared {
    fn into_link(self, pool: &Rc<Pool>) -> Box<dyn Link> {
        let Self { info, bound, silenced } = self;
        Box::new(PacketSocket::new(info, bound, silenced, Rc::clone(pool)))
    }
}

fn driver_of(info: &LinkInfo) -> &str {
    if info.driver.is_empty() { "the driver" } else { &info.driver }
}
