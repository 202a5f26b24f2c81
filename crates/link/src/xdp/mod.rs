//! AF_XDP: frames go from the driver into our slab and back, past the kernel's stack.
//!
//! A program of six instructions, attached in the driver (native) or behind it (generic), hands
//! every frame to a socket whose memory is the slab. The attachment is a descriptor of ours, so it
//! ends with us, also by `kill -9`.
//!
//! Each worker with a share of an interface opens its own queues. The program, and the map from
//! queues to sockets, are common ([`Trunk`]).

mod lent;
mod passed;
mod pieces;
mod ring;
mod socket;

pub(crate) use passed::slab_before;
pub(crate) use socket::{Registered, has_frames_to_lend};

use crate::bpf::{self, AttachedProgram, BpfMap, BpfProgram, Hook, MapType, ProgramType, Tags};
use crate::btf;
use crate::closing::Closing;
use crate::division::{self, Division};
use crate::driver::{DriverForwarding, add_reports, forwarding_program};
use crate::interface::Interface;
use crate::packet_socket::{PacketSender, join_promiscuous, sending_socket};
use crate::share::{Common, Part, Share};
use crate::socket::while_busy;
use crate::{
    HeldDevice, HeldKind, Link, LinkCounters, LinkInfo, LinkState, Mode, complete, nanos, pad,
};
use gatewright_packet::{Batch, Checksum, LinkIndex, Pool, Slab, SlabShape};
use gatewright_wire::{MacAddress, partial, vlan::Vlan};
use gatewright_xdp::ForwardingMaps;
use lent::Lent;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use pieces::BUFFER_SIZE;
use socket::{KernelPart, LENT_LEAST, QueueAddress, TransmitRefused, XdpSocket};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The link over the AF_XDP sockets of an interface, one for each receive queue of its share.
pub(crate) struct Xdp {
    info: LinkInfo,
    index: LinkIndex,
    interface: Interface,
    /// In the order of their queues.
    sockets: Vec<XdpSocket>,
    /// Sends frames where none of its sockets is on a transmit queue.
    sender: Option<PacketSender>,
    /// The queue that is polled first the next time.
    turn: usize,
    /// Readable when one of several sockets is.
    any: Option<Epoll>,
    counters: LinkCounters,
}

/// Chunks that closed sockets had lent to the kernel.
pub(crate) struct LentChunks(Vec<Lent>);

impl LentChunks {
    /// Whether their sockets are closed.
    pub(crate) fn are_closed(&self) -> bool {
        self.0.iter().all(Lent::is_closed)
    }
}

/// The common state of all sockets of an interface.
pub(crate) struct Trunk {
    /// Detaches the program.
    attached: AttachedProgram,
    /// From receive queues to sockets.
    map: BpfMap,
    /// Keeps the interface promiscuous.
    promiscuous: Option<OwnedFd>,
    code: LinkCode,
    /// Receive queues of the interface.
    queues: u32,
    is_generic: bool,
    driver_forwarding: DriverForwarding,
    /// Why its driver sends on no reports of devices, if the kernel refuses the program.
    reports_refused: Option<String>,
}

/// What the program of a link is made of.
struct LinkCode {
    index: LinkIndex,
    tags: Tags,
    in_pieces: bool,
    division: Option<Arc<Division>>,
    /// The VLANs whose frames are divided, too.
    vlans: Vec<u16>,
}

/// Options to open an AF_XDP link, beside the interface's own properties.
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the link's own")]
pub(crate) struct XdpOptions {
    pub(crate) index: LinkIndex,
    pub(crate) promiscuous: bool,
    /// The VLANs whose frames are wanted.
    pub(crate) vlans: Vec<u16>,
    /// Entries of each ring, and chunks lent to the kernel.
    pub(crate) entries: u32,
    pub(crate) is_generic: bool,
    /// Our share of the interface's queues.
    pub(crate) share: Share,
    /// Frames are copied between the slab and buffers of the kernel's size, several for a large
    /// one.
    pub(crate) in_pieces: bool,
    /// The division of frames, where the link is shared with the kernel.
    pub(crate) division: Option<Arc<Division>>,
    /// Whether the driver is to forward.
    pub(crate) forwards: bool,
    /// The maps of forwarding in the driver; otherwise why there are none.
    pub(crate) forwarding: Result<Arc<ForwardingMaps>, String>,
}

/// A failed step, for the operator.
pub(crate) struct Failed {
    pub(crate) action: &'static str,
    pub(crate) source: io::Error,
}

impl Failed {
    /// Whether the driver refused the program because frames may be too long for it.
    pub(crate) fn is_mtu(&self, driver: &str) -> bool {
        driver == "veth" && self.source.raw_os_error() == Some(libc::ERANGE)
    }

    /// The reason in words.
    pub(crate) fn explain(&self, driver: &str) -> String {
        let Self { action, source } = self;
        if self.is_mtu(driver) {
            // Measured on Linux 6.18, with pages of 4 KiB.
            return "the MTU of the cable's other end is too large: veth allows 3498".to_owned();
        }
        format!("cannot {action}: {source}")
    }
}

fn failed(action: &'static str) -> impl FnOnce(io::Error) -> Failed {
    move |source| Failed { action, source }
}

impl Trunk {
    fn new(interface: &Interface, options: &XdpOptions, partial: bool) -> Result<Self, Failed> {
        let queues = interface.receive_queues();
        let map = BpfMap::new(MapType::Sockets, "sockets", 4, 4, queues)
            .map_err(failed("make a map of sockets"))?;
        // Before the sockets: a driver may rebuild its queues when a program comes.
        let (attached, tags, driver_forwarding) =
            attach_best(interface, options, partial, map.as_fd())?;
        let promiscuous = options.promiscuous.then(|| promiscuous(interface.index)).transpose();
        let code = LinkCode::new(options, tags);
        let add = |maps| code.add_reports(map.as_fd(), maps, partial).err();
        let is_active = driver_forwarding == DriverForwarding::Active;
        let maps = options.forwarding.as_ref().ok().filter(|_| is_active);
        let reports_refused = maps.and_then(add).map(|refused| refused.to_string());
        Ok(Self {
            attached,
            map,
            promiscuous: promiscuous.map_err(failed("make it promiscuous"))?,
            code,
            queues,
            is_generic: options.is_generic,
            driver_forwarding,
            reports_refused,
        })
    }

    /// The program that an earlier process has attached; `None` if the descriptors are not those of
    /// one, or the interface has another number of queues since.
    fn of_held(held: HeldDevice, interface: &Interface, options: &XdpOptions) -> Option<Self> {
        let HeldDevice { facts, descriptors } = held;
        let HeldKind::XdpProgram { tag_function, queues, is_generic, in_pieces } = facts.kind
        else {
            return None;
        };
        let has_its_queues = queues == interface.receive_queues();
        let mut all = descriptors.into_iter();
        let (attached, map, promiscuous) = (all.next()?, all.next()?, all.next());
        let is_promiscuous = promiscuous.is_some() == options.promiscuous;
        let is_meant = is_generic == options.is_generic && in_pieces == options.in_pieces;
        let tags = if tag_function == 0 { Tags::InFrame } else { Tags::TakenOut(tag_function) };
        (has_its_queues && is_promiscuous && is_meant).then(|| Self {
            attached: AttachedProgram::received(attached),
            map: BpfMap::received(map, 4, 4, queues),
            promiscuous,
            code: LinkCode::new(options, tags),
            queues,
            is_generic,
            driver_forwarding: facts.info.driver_forwarding,
            reports_refused: None,
        })
    }

    /// Descriptors of the program, the map and the socket that keeps the interface promiscuous.
    pub(crate) fn descriptors(&self) -> io::Result<Vec<OwnedFd>> {
        let promiscuous = self.promiscuous.as_ref().map(AsFd::as_fd);
        let all = [self.attached.as_fd(), self.map.as_fd()].into_iter().chain(promiscuous);
        all.map(|descriptor| descriptor.try_clone_to_owned()).collect()
    }

    pub(crate) const fn held_kind(&self) -> HeldKind {
        let tag_function = match self.code.tags {
            Tags::InFrame => 0,
            Tags::TakenOut(function) => function,
        };
        let (queues, is_generic, in_pieces) = (self.queues, self.is_generic, self.code.in_pieces);
        HeldKind::XdpProgram { tag_function, queues, is_generic, in_pieces }
    }

    /// Has the driver forward by other maps, if it forwards; by none if the program with these is
    /// refused.
    pub(crate) fn exchange_maps(
        &self,
        info: &LinkInfo,
        maps: &Arc<ForwardingMaps>,
    ) -> io::Result<()> {
        if self.driver_forwarding != DriverForwarding::Active {
            return Ok(());
        }
        let interface = Interface::find(&info.name)?;
        let mac = interface.mac()?.unwrap_or(MacAddress::ZERO);
        let load = |forwarding| {
            let program = self.code.load((mac, interface.index), self.map.as_fd(), forwarding);
            program.map_err(|failed| io::Error::other(failed.explain(&info.driver)))
        };
        let refused = match load(Some((maps, info.partial_checksums))) {
            Ok(program) => {
                // Where it is refused, it was from the start, and the worker has the reports.
                let _refused =
                    self.code.add_reports(self.map.as_fd(), maps, info.partial_checksums);
                return self.attached.exchange(&program);
            }
            Err(refused) => refused,
        };
        // Routes of before would stay in force for ever.
        self.attached.exchange(&load(None)?)?;
        Err(refused)
    }

    /// `options` as the first share has found them.
    pub(crate) fn options(&self, options: XdpOptions) -> XdpOptions {
        XdpOptions { in_pieces: self.code.in_pieces, is_generic: self.is_generic, ..options }
    }
}

impl LinkCode {
    fn new(options: &XdpOptions, tags: Tags) -> Self {
        let (index, in_pieces) = (options.index, options.in_pieces);
        let (division, vlans) = (options.division.clone(), options.vlans.clone());
        Self { index, tags, in_pieces, division, vlans }
    }

    /// Loads the program that redirects to the sockets in `map`, for an interface with this address
    /// and index; `forwarding` puts a program in front of it, for frames that may have partial
    /// checksums.
    fn load(
        &self,
        (mac, interface_index): (MacAddress, u32),
        map: BorrowedFd<'_>,
        forwarding: Option<(&Arc<ForwardingMaps>, bool)>,
    ) -> Result<BpfProgram, Failed> {
        let bound_to = if self.tags == Tags::InFrame { 0 } else { interface_index };
        let program = match &self.division {
            Some(division) => {
                let division = (division.fd(), self.vlans.as_slice());
                division::in_driver(map, division, mac, self.tags)
            }
            None => bpf::redirect_all(map, self.tags),
        };
        let kind = if self.in_pieces { ProgramType::XdpInPieces } else { ProgramType::Xdp };
        let (program, action) = if let Some((maps, partial)) = forwarding {
            let at = (self.tags, bound_to);
            let program = forwarding_program(maps, self.index, partial, at, &program);
            (program, "load the program that forwards")
        } else {
            let program = bpf::load(kind, "gw_redirect", &program, bound_to);
            (program, "load the program that redirects")
        };
        program.map_err(failed(action))
    }

    /// Puts the program behind the one that forwards that sends on reports of devices. A shared link has
    /// none: the kernel may have a socket at their port.
    fn add_reports(
        &self,
        map: BorrowedFd<'_>,
        maps: &Arc<ForwardingMaps>,
        partial: bool,
    ) -> io::Result<()> {
        if self.division.is_some() {
            return Ok(());
        }
        add_reports(maps, self.index, partial, &bpf::redirect_all(map, Tags::InFrame))
    }
}

/// The sockets of an AF_XDP link, not yet given to their worker.
pub(crate) struct Unbound {
    pub(crate) info: LinkInfo,
    index: LinkIndex,
    interface: Interface,
    sockets: Vec<KernelPart>,
    /// The buffers of frames in pieces; otherwise the worker's own slab has them.
    buffers: Option<Slab>,
    any: Option<Epoll>,
    sender: Option<OwnedFd>,
}

/// An AF_XDP link, and the common state of its shares.
pub(crate) type Opened = (Unbound, Arc<Common>);

impl Unbound {
    /// Opens the first share of an interface, or all of it.
    pub(crate) fn open(
        mut info: LinkInfo,
        interface: Interface,
        options: &XdpOptions,
        slab: SlabShape,
        registered: &mut Registered,
    ) -> Result<Opened, (Interface, Failed)> {
        let partial = info.partial_checksums;
        let opened = Trunk::new(&interface, options, partial).and_then(|trunk| {
            let branch = Branch::open(&interface, options, &trunk, (slab, None), registered)?;
            Ok((trunk, branch))
        });
        let (trunk, branch) = match opened {
            Ok(opened) => opened,
            Err(failed) => return Err((interface, failed)),
        };
        if trunk.code.tags == Tags::InFrame && interface.takes_tags_out() {
            info.why += "; a VLAN tag that its driver takes out of a frame is lost";
        }
        if options.in_pieces {
            info.why += "; frames above a page come in several buffers, and are copied into one";
        }
        if let Some(refused) = &trunk.reports_refused {
            info.why += "; reports of devices are the worker's: ";
            info.why += refused;
        }
        let is_zero_copy = branch.sockets.iter().any(|socket| socket.is_zero_copy);
        info.mode = match (options.is_generic, is_zero_copy) {
            (true, _) => Mode::XdpGeneric,
            (false, true) => Mode::XdpZeroCopy,
            (false, false) => Mode::XdpCopy,
        };
        info.driver_forwarding = trunk.driver_forwarding.clone();
        info.receivers = usize::try_from(trunk.queues).map_or(1, |n| n.min(options.share.of));
        let common = Common::new(info, Part::Xdp(trunk));
        Ok((branch.unbound(&common.info, interface, options), common))
    }

    /// Opens the first share of an interface, or all of it, behind the program that an earlier
    /// process has attached, with the sockets of that one if it has any.
    pub(crate) fn go_on(
        (held, sockets): (HeldDevice, Option<HeldDevice>),
        interface: Interface,
        options: &XdpOptions,
        slab: SlabShape,
        registered: &mut Registered,
    ) -> Result<Opened, Failed> {
        let info = held.facts.info.clone();
        let lost = || Failed {
            action: "go on with the program of the process before",
            source: io::Error::other("it is not that of the interface as it is now"),
        };
        let trunk = Trunk::of_held(held, &interface, options).ok_or_else(lost)?;
        let branch = Branch::open(&interface, options, &trunk, (slab, sockets), registered)?;
        let common = Common::new(info, Part::Xdp(trunk));
        Ok((branch.unbound(&common.info, interface, options), common))
    }

    /// Opens a further share of an interface, already opened as `trunk`; with the sockets of an
    /// earlier process if there are any.
    pub(crate) fn join(
        (info, trunk): (&LinkInfo, &Trunk),
        interface: Interface,
        options: &XdpOptions,
        slab: (SlabShape, Option<HeldDevice>),
        registered: &mut Registered,
    ) -> Result<Self, Failed> {
        let branch = Branch::open(&interface, options, trunk, slab, registered)?;
        Ok(branch.unbound(info, interface, options))
    }

    /// The kind and descriptors of what another process may hold of its sockets; `None` if none can go
    /// on with them. `memory` is that of the slab.
    pub(crate) fn to_keep(
        &self,
        slab: SlabShape,
        memory: &Arc<OwnedFd>,
    ) -> Option<(HeldKind, Vec<Arc<OwnedFd>>)> {
        if self.buffers.is_some() || self.sockets.len() > passed::SOCKETS_MAX {
            return None;
        }
        let kept: Vec<_> = self.sockets.iter().map(KernelPart::to_keep).collect::<Option<_>>()?;
        let &(_, entries, lent) = kept.first()?;
        let number = |size: usize| u32::try_from(size).ok();
        let (chunks, chunk_size) = (number(slab.chunks)?, number(slab.chunk_size)?);
        let sockets = number(kept.len())?;
        let kind = HeldKind::XdpSockets { sockets, entries, lent, chunks, chunk_size };
        let all = [Arc::clone(memory)].into_iter().chain(kept.into_iter().map(|(fd, ..)| fd));
        Some((kind, all.collect()))
    }

    pub(crate) const fn info(&self) -> &LinkInfo {
        &self.info
    }

    /// The link of the worker whose frames live in `pool`.
    /// Whether the kernel is lent frames of the worker, not buffers of its own.
    pub(crate) const fn lends_frames(&self) -> bool {
        self.buffers.is_none()
    }

    pub(crate) fn bind(self, pool: &Rc<Pool>) -> Xdp {
        let Self { info, index, interface, sockets, buffers, any, sender } = self;
        let buffers = buffers.map(|slab| Rc::new(Pool::over(slab)));
        let frames = buffers.as_ref().map(|_| pool);
        let chunks = buffers.as_ref().unwrap_or(pool);
        let bind = |socket: KernelPart| socket.with_pool(Rc::clone(chunks), frames);
        Xdp {
            info,
            index,
            interface,
            sockets: sockets.into_iter().map(bind).collect(),
            sender: sender.map(PacketSender::over),
            turn: 0,
            any,
            counters: LinkCounters::default(),
        }
    }
}

/// The base of a share of a link.
struct Branch {
    /// The queues of its sockets.
    queues: Vec<u32>,
    sockets: Vec<KernelPart>,
    buffers: Option<Slab>,
    any: Option<Epoll>,
    sender: Option<OwnedFd>,
}

impl Branch {
    fn open(
        interface: &Interface,
        options: &XdpOptions,
        trunk: &Trunk,
        (slab, held): (SlabShape, Option<HeldDevice>),
        registered: &mut Registered,
    ) -> Result<Self, Failed> {
        let queues = options.share.queues(trunk.queues);
        let (sockets, buffers) = if let Some(held) = held {
            let sockets = passed::go_on(held, queues.len());
            let sockets =
                sockets.map_err(failed("go on with the sockets of the process before"))?;
            *registered = sockets.first().map(KernelPart::registered).unwrap_or_default();
            (sockets, None)
        } else if options.in_pieces {
            let lent = usize::try_from(options.entries).unwrap_or(usize::MAX);
            let buffers = Slab::new(lent.saturating_mul(queues.len() + 1), BUFFER_SIZE);
            let buffers = buffers.map_err(io::Error::other);
            let buffers = buffers.map_err(failed("have memory for its frames"))?;
            let registered = &mut Registered::default();
            let shape = buffers.shape();
            (open_sockets(interface, options, &queues, shape, registered)?, Some(buffers))
        } else {
            (open_sockets(interface, options, &queues, slab, registered)?, None)
        };
        let any = (sockets.len() > 1).then(|| any_of(&sockets)).transpose();
        let any = any.map_err(failed("wait for several sockets"))?;
        let sends = queues.first().is_some_and(|&first| first < interface.transmit_queues());
        let sender = (!sends).then(|| sending_socket(interface.index)).transpose();
        let sender = sender.map_err(failed("open a socket to send by"))?;
        for (&queue, socket) in queues.iter().zip(&sockets) {
            let Some(fd) = socket.fd() else { continue };
            let set = trunk.map.set(&queue.to_ne_bytes(), &fd.as_raw_fd().to_ne_bytes());
            set.map_err(failed("redirect to the socket"))?;
        }
        Ok(Self { queues, sockets, buffers, any, sender })
    }

    fn unbound(self, info: &LinkInfo, interface: Interface, options: &XdpOptions) -> Unbound {
        let Self { queues, sockets, buffers, any, sender } = self;
        let info = LinkInfo { queues, ..info.clone() };
        Unbound { info, index: options.index, interface, sockets, buffers, any, sender }
    }
}

/// Opens a socket for each of `queues`, whose buffers are the chunks of `slab`.
fn open_sockets(
    interface: &Interface,
    options: &XdpOptions,
    queues: &[u32],
    slab: SlabShape,
    registered: &mut Registered,
) -> Result<Vec<KernelPart>, Failed> {
    let open = |&queue| {
        let place = QueueAddress {
            interface_index: interface.index,
            queue,
            entries: options.entries,
            lent: if options.in_pieces { options.entries } else { lent_each(options, queues) },
            copy: options.is_generic,
            in_pieces: options.in_pieces,
        };
        let socket = KernelPart::open(place, slab, registered);
        socket.map_err(failed("open an AF_XDP socket"))
    };
    queues.iter().map(open).collect()
}

/// Frames lent by each queue: all queues of a link together have those of one ring.
fn lent_each(options: &XdpOptions, queues: &[u32]) -> u32 {
    let queues = u32::try_from(queues.len()).unwrap_or(u32::MAX);
    (options.entries / queues.max(1)).max(LENT_LEAST.min(options.entries))
}

/// Attaches the redirecting program, behind one that forwards in the driver if that is asked for
/// and possible.
fn attach_best(
    interface: &Interface,
    options: &XdpOptions,
    partial: bool,
    map: BorrowedFd<'_>,
) -> Result<(AttachedProgram, Tags, DriverForwarding), Failed> {
    let refused = |reason: &str| DriverForwarding::refused(options.forwards, reason);
    let why_not = match &options.forwarding {
        _ if options.is_generic => refused("the generic mode is behind the driver"),
        _ if options.in_pieces => refused("its frames come in several buffers"),
        _ if !options.forwards => DriverForwarding::NotAsked,
        Err(why_not) => refused(why_not),
        Ok(maps) => match attach(interface, options, map, Some((maps, partial))) {
            Ok((attached, tags)) => return Ok((attached, tags, DriverForwarding::Active)),
            Err(failed) => refused(&failed.explain(&interface.driver())),
        },
    };
    attach(interface, options, map, None).map(|(attached, tags)| (attached, tags, why_not))
}

/// Attaches the redirecting program, with access to removed tags if the kernel allows it;
/// `forwarding` puts a program in front of it, for frames that may have partial checksums.
fn attach(
    interface: &Interface,
    options: &XdpOptions,
    map: BorrowedFd<'_>,
    forwarding: Option<(&Arc<ForwardingMaps>, bool)>,
) -> Result<(AttachedProgram, Tags), Failed> {
    let hook = if options.is_generic { Hook::XdpGeneric } else { Hook::XdpNative };
    let mac = interface.mac().map_err(failed("ask for its address"))?.unwrap_or(MacAddress::ZERO);
    let try_with = |tags: Tags| {
        let code = LinkCode::new(options, tags);
        let program = code.load((mac, interface.index), map, forwarding)?;
        let attached = while_busy(|| program.attach(interface.index, hook));
        attached.map_err(failed("attach the program that redirects"))
    };
    // Behind the driver no program learns of a tag that was taken out.
    let function = if options.is_generic { None } else { tag_function() };
    if let Some(tags) = function.map(Tags::TakenOut)
        && let Ok(attached) = try_with(tags)
    {
        return Ok((attached, tags));
    }
    let needs_tags =
        options.division.is_some() || !options.vlans.is_empty() || forwarding.is_some();
    if needs_tags && interface.takes_tags_out() {
        // Without its tag a frame of a VLAN would look as if it were ours.
        let action = "see the tags of VLANs, which its driver takes out (Linux 6.8 tells them, with \
                      net.core.bpf_jit_harden below 2)";
        return Err(Failed { action, source: io::ErrorKind::Unsupported.into() });
    }
    try_with(Tags::InFrame).map(|attached| (attached, Tags::InFrame))
}

/// The kernel's setting for hardening compiled programs; 2 is for those of every user.
const HARDEN: &str = "/proc/sys/net/core/bpf_jit_harden";

/// The number of the kernel's function that reports a tag (Linux 6.8); none where the kernel hardens
/// compiled programs: it moves each of them to other memory then, and a program that calls the
/// function must not move (`with_room` of `gatewright_xdp::program`).
fn tag_function() -> Option<u32> {
    // The same for as long as the machine runs, and some milliseconds to find.
    static FOUND: OnceLock<Option<u32>> = OnceLock::new();
    let is_hardened = || std::fs::read(HARDEN).is_ok_and(|level| level.trim_ascii() == b"2");
    let find = || btf::function_id(&std::fs::read(btf::KERNEL).ok()?, bpf::TAG_FUNCTION);
    if is_hardened() { None } else { *FOUND.get_or_init(find) }
}

/// A descriptor that is readable when one of the sockets is.
fn any_of(sockets: &[KernelPart]) -> io::Result<Epoll> {
    let any = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    for fd in sockets.iter().filter_map(KernelPart::fd) {
        any.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
    }
    Ok(any)
}

/// A packet socket that receives nothing, but keeps the interface promiscuous while it is open.
fn promiscuous(interface_index: u32) -> io::Result<OwnedFd> {
    let socket = crate::socket::open(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
    join_promiscuous(socket.as_fd(), interface_index)?;
    Ok(socket)
}

impl Link for Xdp {
    fn info(&self) -> &LinkInfo {
        &self.info
    }

    fn receive(&mut self, now: Duration, batch: &mut Batch) -> usize {
        let before = batch.len();
        for turn in 0..self.sockets.len() {
            let number = (self.turn + turn) % self.sockets.len();
            if let Some(socket) = self.sockets.get_mut(number) {
                socket.receive(batch, &mut self.counters);
            }
        }
        self.turn = self.turn.wrapping_add(1);
        for packet in batch.iter_mut().skip(before) {
            packet.set_received_ns(nanos(now));
            packet.meta_mut().ingress = self.index;
            self.counters.received += 1;
            self.counters.received_octets += packet.len() as u64;
            if self.info.partial_checksums
                && partial::is_partial(packet.octets(), self.info.framing)
            {
                packet.meta_mut().checksum = Checksum::Partial;
                self.counters.partial += 1;
            }
        }
        batch.len() - before
    }

    fn transmit(&mut self, _now: Duration, batch: &mut Batch) {
        if let Some(sender) = &mut self.sender {
            sender.send(batch, self.info.mtu, &mut self.counters);
            return;
        }
        let header_len = self.info.framing.header_len();
        let len_max = self.info.mtu + header_len + Vlan::LEN;
        // One of its queues is enough to send by, and keeps the order.
        let Some(socket) = self.sockets.first_mut() else { return };
        for mut packet in batch.drain() {
            if !(header_len..=len_max).contains(&packet.len()) {
                self.counters.transmit_length += 1;
                continue;
            }
            complete(&mut packet, self.info.framing, &mut self.counters);
            pad(&mut packet);
            let octets = packet.len() as u64;
            match socket.push(packet) {
                Ok(()) => {
                    self.counters.sent += 1;
                    self.counters.sent_octets += octets;
                }
                Err(TransmitRefused::Full | TransmitRefused::NoPacket) => {
                    self.counters.transmit_full += 1;
                }
            }
        }
        socket.flush();
    }

    fn counters(&mut self) -> LinkCounters {
        for socket in &mut self.sockets {
            socket.count(&mut self.counters);
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
        let Self { interface, sockets, sender, any, .. } = *self;
        let sender = sender.map(PacketSender::into_socket);
        let (parts, lent): (Vec<_>, Vec<_>) =
            sockets.into_iter().map(XdpSocket::into_parts).unzip();
        Closing::new((parts, any, sender, interface)).with_chunks(LentChunks(lent))
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.any {
            Some(any) => Some(any.0.as_fd()),
            None => self.sockets.first().and_then(XdpSocket::fd),
        }
    }
}
