//! Opening of links from their configuration, with the reason for each mode.

mod going_on;

use crate::claim::Claim;
use crate::division::Division;
use crate::exclusive::{KernelSilenced, drop_ours};
use crate::interface::{Interface, leaves_checksums};
use crate::made::{CaptureConfig, TapConfig};
use crate::open_error::OpenError;
use crate::packet_socket::{Bound, PacketSocketOptions, sending_socket};
use crate::share::{Common, Group, Known, Part, Share, Shares};
use crate::unbound::{Opened, UnboundDevice, UnboundLink};
use crate::xdp::{self, Registered, Unbound};
use crate::{
    DpdkConfig, DriverForwarding, Exclusive, Framing, HeldKind, KernelTables, Link, LinkInfo, Mode,
    OpenDevices,
};
use gatewright_packet::{LinkAddress, LinkIndex, Pool, SlabShape};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ScopedJoinHandle};

/// Default slots of a packet socket's receive ring: 1.7 MiB of the smallest, all of it resident.
/// With half as many, a gateway that does not always have a processor carries half as much.
const RING_SLOTS: usize = 1024;

/// Maximum entries of an AF_XDP ring.
const RING_ENTRIES_MAX: u32 = 1 << 15;

/// Octets before the packet in any frame of an interface.
pub(crate) const HEADER_LEN_MAX: usize = Framing::Ethernet.header_len_max();

/// The requested way to exchange frames with an interface.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Backend {
    /// The fastest that works; the link reports its choice and the reason.
    #[default]
    Auto,
    /// AF_XDP in the driver.
    Xdp,
    /// AF_XDP after the driver: for drivers that have no native mode.
    XdpGeneric,
    /// A packet socket.
    PacketSocket,
}

/// Configuration to open an interface of the kernel as a link.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LinkConfig {
    /// Its index in the gateway, stamped on received frames.
    pub index: LinkIndex,
    /// The name of the interface.
    pub interface: String,
    /// The way to exchange frames with it.
    pub backend: Backend,
    /// Whether the link is ours alone: the kernel's stack sees no received frames. Opening fails
    /// where this is impossible.
    pub exclusive: bool,
    /// Whether frames for other hosts are received, too.
    pub promiscuous: bool,
    /// The VLANs whose frames are wanted: then no mode that loses tags is used.
    pub vlans: Vec<u16>,
    /// Frames that the kernel's receive ring holds. Each costs a little more than the frame's
    /// octets (a packet socket: 1.6 KiB at an MTU of 1500), or a packet of the slab for each
    /// receive queue (AF_XDP).
    pub ring_slots: usize,
    /// The wanted share of its queues: openers of the same [`Shares`] open the others.
    pub share: Share,
    /// Whether its driver is to forward what is only forwarded.
    pub forwards_in_driver: bool,
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
            vlans: Vec::new(),
            ring_slots: RING_SLOTS,
            share: Share::WHOLE,
            forwards_in_driver: false,
        }
    }
}

/// Octets of the largest frame of an interface of the kernel, with room for two tags.
///
/// # Errors
///
/// [`OpenError`] if there is no such interface, or it cannot be queried.
pub fn frame_len_max(interface: &str) -> Result<usize, OpenError> {
    let ask = |source| OpenError::system(interface, "ask", "CAP_NET_ADMIN", source);
    let found = Interface::find(interface).map_err(ask)?;
    Ok(found.mtu().map_err(ask)? + HEADER_LEN_MAX)
}

/// Receive queues that an interface of the kernel has in use.
///
/// # Errors
///
/// [`OpenError`] if there is no such interface, or it cannot be queried.
pub fn receive_queues(interface: &str) -> Result<usize, OpenError> {
    let ask = |source| OpenError::system(interface, "ask", "CAP_NET_ADMIN", source);
    let queues = Interface::find(interface).map_err(ask)?.receive_queues();
    Ok(usize::try_from(queues).unwrap_or(usize::MAX))
}

/// Opens interfaces as links of one worker, whose packets come from one pool.
///
/// AF_XDP links of one opener register the pool's memory with the kernel once.
///
/// A clone is the same opener.
#[derive(Clone)]
pub struct Opener {
    preparer: Preparer,
    pool: Rc<Pool>,
}

impl Opener {
    /// Creates an opener for links whose packets come from `pool`.
    pub fn new(pool: Rc<Pool>) -> Self {
        Self { preparer: Preparer::new(&pool), pool }
    }

    /// Opens shares of links beside the other openers of `shares`, which belong to other workers.
    #[must_use]
    pub fn beside(mut self, shares: Shares) -> Self {
        self.preparer.shares = shares;
        self
    }

    /// Divides the traffic of non-exclusive links with the kernel, as `division` says. Without it
    /// such a link receives a copy of all the kernel's frames.
    #[must_use]
    pub fn divided(mut self, division: Arc<Division>) -> Self {
        self.preparer.tables.division = Some(division);
        self
    }

    /// Opens links over the kernel's tables of their gateway: as [`Self::divided`], and with
    /// forwarding in the driver where a link's configuration asks for it.
    #[must_use]
    pub fn with_tables(mut self, tables: KernelTables) -> Self {
        self.preparer.tables = tables;
        self
    }

    /// The packets' pool.
    pub fn pool(&self) -> &Rc<Pool> {
        &self.pool
    }

    /// The part that opens devices, for another thread.
    pub fn preparer(&self) -> Preparer {
        self.preparer.clone()
    }

    /// Opens an interface as a link.
    ///
    /// # Errors
    ///
    /// [`OpenError`] names what is missing. A link opens whole or not at all: an exclusive link
    /// that could not keep the kernel away is not opened.
    pub fn open(&self, config: &LinkConfig) -> Result<Box<dyn Link>, OpenError> {
        self.preparer.prepare(config)?.bind(&self.pool)
    }

    /// Opens several interfaces as links, in order, faster than one by one: the kernel spends its
    /// milliseconds on their packet sockets at the same time.
    ///
    /// # Errors
    ///
    /// As [`Self::open`], for the first that fails, with its index: all of them open, or none.
    pub fn open_all(
        &self,
        configs: &[LinkConfig],
    ) -> Result<Vec<Box<dyn Link>>, (LinkIndex, OpenError)> {
        let prepared = self.preparer.prepare_all(configs)?;
        let bind = |(link, config): (UnboundLink, &LinkConfig)| {
            link.bind(&self.pool).map_err(|error| (config.index, error))
        };
        prepared.into_iter().zip(configs).map(bind).collect()
    }

    /// Creates a TAP or TUN interface, with the link as its other end.
    ///
    /// # Errors
    ///
    /// [`OpenError`] names what is missing.
    pub fn open_tap(&self, config: &TapConfig) -> Result<Box<dyn Link>, OpenError> {
        self.preparer.prepare_tap(config)?.bind(&self.pool)
    }

    /// Opens capture files as a link. The replay begins with [`Link::begin`].
    ///
    /// # Errors
    ///
    /// [`OpenError`] names the file.
    pub fn open_capture(&self, config: &CaptureConfig) -> Result<Box<dyn Link>, OpenError> {
        self.preparer.prepare_capture(config)?.bind(&self.pool)
    }

    /// Opens a port of DPDK as a link. The first starts DPDK in this process.
    ///
    /// # Errors
    ///
    /// [`OpenError`] names what is missing: [`OpenError::Unsupported`] in a build without DPDK, or
    /// if DPDK does not open the port.
    pub fn open_dpdk(&self, config: &DpdkConfig) -> Result<Box<dyn Link>, OpenError> {
        self.preparer.prepare_dpdk(config)?.bind(&self.pool)
    }
}

/// Opens devices for one worker on any thread: the worker only binds them to its slab.
///
/// A clone is the same preparer.
#[derive(Clone)]
pub struct Preparer {
    slab: SlabShape,
    /// The slab's memory, if another process may have it, too.
    memory: Option<Arc<OwnedFd>>,
    registered: Arc<Mutex<Registered>>,
    tables: KernelTables,
    shares: Shares,
}

impl Preparer {
    fn new(pool: &Pool) -> Self {
        let (registered, tables, shares) =
            (Arc::default(), KernelTables::default(), Shares::default());
        Self { slab: pool.shape(), memory: pool.memory(), registered, tables, shares }
    }

    pub(crate) const fn slab(&self) -> SlabShape {
        self.slab
    }

    fn registered(&self) -> MutexGuard<'_, Registered> {
        // A poisoned lock is safe here: a socket that is gone is registered anew.
        self.registered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens an interface for a link.
    ///
    /// # Errors
    ///
    /// As [`Opener::open`].
    pub fn prepare(&self, config: &LinkConfig) -> Result<UnboundLink, OpenError> {
        let mut known = self.shares.lock();
        let claim = claim(config, &known)?;
        let opened = match self.begin(config, &known)? {
            Begun::Link(opened) => opened,
            Begun::PacketSocket(wanted) => {
                wanted.prepare(config)?.into_link(config, self.devices())?
            }
        };
        publish(&mut known, config, &opened, claim);
        Ok(UnboundLink::returning(self.clone(), config.clone(), opened))
    }

    /// Finds out, as far as is known before opening it, whether an interface can be opened for a
    /// link. Nothing is opened.
    ///
    /// # Errors
    ///
    /// As [`Opener::open`], if there is no such interface or it does not have the wanted mode.
    pub fn check(&self, config: &LinkConfig) -> Result<(), OpenError> {
        let (info, interface) = self.look(&config.interface)?;
        let name = || config.interface.clone();
        match config.backend {
            Backend::Xdp | Backend::XdpGeneric => self
                .xdp_fits(config, &info, &interface)
                .map_err(|reason| OpenError::Unsupported { name: name(), reason }),
            Backend::PacketSocket | Backend::Auto => Ok(()),
        }
    }

    /// Opens several interfaces for links, in order.
    ///
    /// # Errors
    ///
    /// As [`Opener::open_all`].
    pub fn prepare_all(
        &self,
        configs: &[LinkConfig],
    ) -> Result<Vec<UnboundLink>, (LinkIndex, OpenError)> {
        let of = |config: &LinkConfig| {
            let index = config.index;
            move |error| (index, error)
        };
        let mut known = self.shares.lock();
        let claims = configs.iter().map(|config| claim(config, &known).map_err(of(config)));
        let claims = claims.collect::<Result<Vec<_>, _>>()?;
        let begun = configs.iter().map(|config| self.begin(config, &known).map_err(of(config)));
        let begun = begun.collect::<Result<Vec<_>, _>>()?;
        thread::scope(|scope| {
            let opening: Vec<_> = begun
                .into_iter()
                .zip(configs)
                .map(|(begun, config)| match begun {
                    Begun::Link(opened) => Opening::Done(Box::new(opened)),
                    Begun::PacketSocket(wanted) => {
                        Opening::Thread(scope.spawn(move || wanted.prepare(config)))
                    }
                })
                .collect();
            let links = opening.into_iter().zip(configs).zip(claims);
            let links = links.map(|((opening, config), claim)| {
                let opened = opening.finish(config, self.devices()).map_err(of(config))?;
                publish(&mut known, config, &opened, claim);
                Ok(UnboundLink::returning(self.clone(), config.clone(), opened))
            });
            links.collect()
        })
    }

    /// Opens the link, unless it is to be a packet socket.
    fn begin(&self, config: &LinkConfig, known: &Known) -> Result<Begun, OpenError> {
        let name = config.interface.as_str();
        let (info, interface) = self.look(name)?;
        if config.share.of > 1
            && let Some(common) = known.find(config.index, name, interface.index)?
        {
            return self.join(config, common, interface).map(Begun::Link);
        }
        let is_whole = |kind: &HeldKind| {
            matches!(kind, HeldKind::XdpProgram { .. } | HeldKind::PacketSockets { .. })
        };
        // Another interface under the name of the one of before is opened as any other.
        if let Some(held) = self.devices().take(config.index, Share::WHOLE, is_whole)
            && held.facts.info.kernel_index == interface.index
        {
            return self.go_on(config, held, &info, interface).map(Begun::Link);
        }
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
                let opened = self.open_xdp(config, info, interface, is_generic);
                let (link, common) = opened.map_err(|(interface, failed)| {
                    OpenError::of_xdp(name, &interface.driver(), failed)
                })?;
                let device = UnboundDevice::Xdp(Box::new(link));
                Ok(Begun::Link(Opened { device, common }))
            }
            Backend::Auto => Ok(self.begin_best(config, info, interface)),
        }
    }

    pub(crate) const fn devices(&self) -> &OpenDevices {
        &self.tables.devices
    }

    /// Opens a share of a link of which other workers have opened theirs.
    fn join(
        &self,
        config: &LinkConfig,
        common: Arc<Common>,
        interface: Interface,
    ) -> Result<Opened, OpenError> {
        let name = config.interface.as_str();
        let device = match &common.part {
            Part::Xdp(trunk) => {
                let options = trunk.options(self.options(config, false, false));
                let mut registered = self.registered();
                let trunk = (&common.info, trunk);
                let slab = (self.slab, self.held_sockets(config));
                let link = Unbound::join(trunk, interface, &options, slab, &mut registered);
                let driver = &common.info.driver;
                let link = link.map_err(|failed| OpenError::of_xdp(name, driver, failed))?;
                self.note_sockets(config, &link);
                UnboundDevice::Xdp(Box::new(link))
            }
            Part::PacketSocket(group) => share_of(&common.info, group, interface, config)?,
        };
        Ok(Opened { device, common })
    }

    /// Uses AF_XDP in the driver if that works, otherwise a packet socket that gives the reason.
    fn begin_best(&self, config: &LinkConfig, info: LinkInfo, interface: Interface) -> Begun {
        let (interface, reason) = if let Err(reason) = self.xdp_fits(config, &info, &interface) {
            (interface, reason)
        } else {
            let why = format!("the fastest that {} offers", driver_of(&info));
            let xdp = LinkInfo { why, ..info.clone() };
            match self.open_xdp(config, xdp, interface, false) {
                Ok((link, common)) => {
                    let device = UnboundDevice::Xdp(Box::new(link));
                    return Begun::Link(Opened { device, common });
                }
                Err((interface, failed)) => (interface, failed.explain(&info.driver)),
            }
        };
        let info = LinkInfo { why: format!("not AF_XDP: {reason}"), ..info };
        Begun::PacketSocket(self.wanted(info, interface))
    }

    fn wanted(&self, info: LinkInfo, interface: Interface) -> Wanted {
        Wanted { info, interface, division: self.tables.division.clone() }
    }

    /// The properties that the interface reports.
    fn look(&self, name: &str) -> Result<(LinkInfo, Interface), OpenError> {
        let ask = |source| OpenError::system(name, "ask", "CAP_NET_ADMIN", source);
        let interface = Interface::find(name).map_err(ask)?;
        let mtu = interface.mtu().map_err(ask)?;
        let Some(mac) = interface.mac().map_err(ask)? else {
            return Err(OpenError::NotEthernet { name: name.to_owned() });
        };
        let (needed, found) = (mtu + HEADER_LEN_MAX, self.slab.packet_len_max());
        if needed > found {
            return Err(OpenError::Chunk { name: name.to_owned(), mtu, needed, found });
        }
        let info = LinkInfo {
            name: name.to_owned(),
            mode: Mode::PacketSocket,
            why: String::new(),
            framing: Framing::Ethernet,
            link_address: LinkAddress::ethernet(mac.0),
            mtu,
            partial_checksums: true,
            exclusive: Exclusive::Shared,
            driver: interface.driver(),
            kernel_index: interface.index,
            queues: vec![0],
            receivers: 1,
            driver_forwarding: DriverForwarding::NotAsked,
        };
        Ok((info, interface))
    }

    /// Whether AF_XDP can serve this link, as far as known before trying; if not, why.
    fn xdp_fits(
        &self,
        config: &LinkConfig,
        info: &LinkInfo,
        interface: &Interface,
    ) -> Result<(), String> {
        if !config.exclusive && self.tables.division.is_none() {
            return Err("the link is shared with the kernel, and every frame would be taken \
                        from it"
                .to_owned());
        }
        let queues = config.share.queues(interface.receive_queues()).len();
        let lent = config.ring_slots.saturating_mul(queues);
        if self.is_registrable() && lent > self.slab.chunks {
            let found = self.slab.chunks;
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

    /// Whether the kernel can write received frames directly into the slab's chunks.
    fn is_registrable(&self) -> bool {
        const CHUNK_SIZES: [usize; 2] = [2048, 4096];
        CHUNK_SIZES.contains(&self.slab.chunk_size)
    }

    /// Opens AF_XDP with the slab's own chunks if they and the driver allow it. Otherwise it uses
    /// the link's own buffers, several for a large frame.
    fn open_xdp(
        &self,
        config: &LinkConfig,
        info: LinkInfo,
        interface: Interface,
        is_generic: bool,
    ) -> Result<xdp::Opened, (Interface, xdp::Failed)> {
        if !self.is_registrable() {
            return self.open_xdp_as(config, info, interface, is_generic, true);
        }
        match self.open_xdp_as(config, info.clone(), interface, is_generic, false) {
            Err((interface, failed)) if failed.is_mtu(&info.driver) => self
                .open_xdp_as(config, info, interface, is_generic, true)
                // An older kernel has no such buffers: what it said first is the reason.
                .map_err(|(interface, _)| (interface, failed)),
            opened => opened,
        }
    }

    fn open_xdp_as(
        &self,
        config: &LinkConfig,
        info: LinkInfo,
        interface: Interface,
        is_generic: bool,
        in_pieces: bool,
    ) -> Result<xdp::Opened, (Interface, xdp::Failed)> {
        let options = self.options(config, is_generic, in_pieces);
        let exclusive =
            if options.division.is_some() { Exclusive::Divided } else { Exclusive::Redirected };
        let partial_checksums = leaves_checksums(&info.driver) || is_generic;
        let info = LinkInfo { partial_checksums, exclusive, ..info };
        let again = match interface.again() {
            Ok(again) => again,
            Err(source) => return Err((interface, xdp::Failed { action: "ask for it", source })),
        };
        let opened = Unbound::open(info, interface, &options, self.slab, &mut self.registered())?;
        self.note(config, &options, opened).map_err(|failed| (again, failed))
    }

    fn options(&self, config: &LinkConfig, is_generic: bool, in_pieces: bool) -> xdp::XdpOptions {
        xdp::XdpOptions {
            index: config.index,
            promiscuous: config.promiscuous,
            vlans: config.vlans.clone(),
            entries: u32::try_from(config.ring_slots).unwrap_or(u32::MAX).min(RING_ENTRIES_MAX),
            is_generic,
            share: config.share,
            in_pieces,
            division: if config.exclusive { None } else { self.tables.division.clone() },
            forwards: config.forwards_in_driver,
            forwarding: self.tables.forwarding.get(),
        }
    }
}

/// Claims the interface of an exclusive link, unless another of its shares has.
fn claim(config: &LinkConfig, known: &Known) -> Result<Option<Claim>, OpenError> {
    // An interface that is not there is told by who opens it.
    let Ok(interface) = Interface::find(&config.interface) else { return Ok(None) };
    let is_first = known.find(config.index, &config.interface, interface.index)?.is_none();
    if !config.exclusive || !is_first {
        return Ok(None);
    }
    Claim::take(interface.index)
        .map_err(|by| OpenError::Claimed { name: config.interface.clone(), by })
}

/// Publishes an opened link to other openers, if it is one share of several.
fn publish(known: &mut Known, config: &LinkConfig, opened: &Opened, claim: Option<Claim>) {
    if let Some(claim) = claim {
        opened.common.hold(claim);
    }
    if config.share.of > 1 {
        known.set(config.index, &config.interface, &opened.common);
    }
}

/// The share of a packet socket: one of the sockets of its group, or a share that only sends if
/// none is left.
fn share_of(
    info: &LinkInfo,
    group: &Group,
    interface: Interface,
    config: &LinkConfig,
) -> Result<UnboundDevice, OpenError> {
    let queue = u32::try_from(config.share.number).unwrap_or(u32::MAX);
    if let Some(bound) = group.take(config.share) {
        let info = LinkInfo { queues: vec![queue], ..info.clone() };
        return Ok(UnboundDevice::PacketSocket { info, bound });
    }
    let info = LinkInfo { queues: Vec::new(), ..info.clone() };
    let socket = sending_socket(interface.index).map_err(|source| {
        OpenError::system(&config.interface, "open a packet socket", "CAP_NET_RAW", source)
    })?;
    Ok(UnboundDevice::SendOnly { info, interface, socket })
}

/// The stage that opening a link has reached.
enum Begun {
    Link(Opened),
    PacketSocket(Wanted),
}

/// A link that is being opened.
enum Opening<'scope> {
    Done(Box<Opened>),
    Thread(ScopedJoinHandle<'scope, Result<GroupSockets, OpenError>>),
}

impl Opening<'_> {
    fn finish(self, config: &LinkConfig, devices: &OpenDevices) -> Result<Opened, OpenError> {
        match self {
            Self::Done(opened) => Ok(*opened),
            Self::Thread(thread) => match thread.join() {
                Ok(prepared) => prepared?.into_link(config, devices),
                Err(panic) => std::panic::resume_unwind(panic),
            },
        }
    }
}

/// A link that is to become a packet socket.
struct Wanted {
    info: LinkInfo,
    interface: Interface,
    division: Option<Arc<Division>>,
}

/// Packet sockets that have not yet been given to their workers.
struct GroupSockets {
    info: LinkInfo,
    interface: Interface,
    bound: Vec<Bound>,
    silenced: Option<KernelSilenced>,
}

impl Wanted {
    /// Opens the socket, and at the same time cuts the kernel's stack off if requested.
    fn prepare(self, config: &LinkConfig) -> Result<GroupSockets, OpenError> {
        let Self { mut info, interface, division } = self;
        let (name, index) = (config.interface.as_str(), interface.index);
        let division = division.as_deref().filter(|_| !config.exclusive);
        let options = PacketSocketOptions {
            index: config.index,
            promiscuous: config.promiscuous,
            slots: config.ring_slots,
            sockets: config.share.of,
            division: division.map(|division| (division, config.vlans.as_slice())),
        };
        let sender = interface
            .again()
            .map_err(|source| OpenError::system(name, "ask", "CAP_NET_ADMIN", source))?;
        // Before the socket takes anything: what both took, both would forward.
        let divided = division.map(|division| drop_ours(index, (division, &config.vlans)));
        let divided = divided.transpose();
        let divided = divided.map_err(|source| not_divided(name, &source))?;
        let (bound, silenced) = thread::scope(|scope| {
            let silencing =
                config.exclusive.then(|| scope.spawn(move || KernelSilenced::new(name, index)));
            let bound = Bound::group(info.mtu, interface, &options);
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
        info.driver_forwarding =
            DriverForwarding::refused(config.forwards_in_driver, "a packet socket has no program");
        info.exclusive = silenced.as_ref().map_or(Exclusive::Shared, |silenced| silenced.how);
        info.receivers = bound.len();
        if bound.len() < config.share.of {
            info.why += "; one socket only, as an interface that is down takes no group of them";
        }
        Ok(GroupSockets { info, interface: sender, bound, silenced })
    }
}

/// The error of a link that cannot be divided with the kernel. It is not opened, as both would
/// forward.
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

impl GroupSockets {
    fn into_link(self, config: &LinkConfig, devices: &OpenDevices) -> Result<Opened, OpenError> {
        let kept = self.to_keep(config, devices).map_err(|source| {
            OpenError::system(&config.interface, "share what is open", "CAP_NET_RAW", source)
        })?;
        let Self { info, interface, bound, silenced } = self;
        let group = Group::new(bound, silenced);
        let device = share_of(&info, &group, interface, config)?;
        let common = Common::new(info, Part::PacketSocket(group));
        if let Some((facts, kept)) = kept {
            common.keep(devices, facts, kept);
        }
        Ok(Opened { device, common })
    }
}

fn driver_of(info: &LinkInfo) -> &str {
    if info.driver.is_empty() { "the driver" } else { &info.driver }
}
