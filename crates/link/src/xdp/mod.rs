//! AF_XDP: frames go from the driver into our slab and back, past the kernel's stack.
//!
//! A program of six instructions, attached in the driver (native) or behind it (generic), hands
//! every frame to a socket whose memory is the slab. The attachment is a descriptor of ours, so it
//! ends with us, also by `kill -9`.

mod lent;
mod ring;
mod socket;

pub(crate) use socket::Registered;

use crate::bpf::{self, Hook, Kind, Tags};
use crate::btf;
use crate::division::{self, Division};
use crate::interface::Interface;
use crate::packet_socket::join_promiscuous;
use crate::{Link, LinkCounters, LinkInfo, LinkState, Mode, complete, nanos, pad};
use gatewright_packet::{Batch, Checksum, LinkIndex, Pool};
use gatewright_wire::{MacAddress, partial};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use socket::{Place, Refused, Socket, while_busy};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Octets of an Ethernet header, and of a tag in it.
const ETHERNET_LEN: usize = 14;
const TAG_LEN: usize = 4;

/// The link over the AF_XDP sockets of an interface, one a receive queue.
pub(crate) struct Xdp {
    info: LinkInfo,
    index: LinkIndex,
    interface: Interface,
    /// Detaches the program; dropped before the socket it fills.
    attached: Option<OwnedFd>,
    /// By the number of their queue; there is at least one.
    sockets: Vec<Socket>,
    /// The queue that is looked at first the next time.
    turn: usize,
    /// Readable when one of several sockets is.
    any: Option<Epoll>,
    /// Keeps the interface promiscuous.
    _promiscuous: Option<OwnedFd>,
    counters: LinkCounters,
}

/// What an AF_XDP link is opened with, beside what the interface itself says.
pub(crate) struct Options {
    pub(crate) index: LinkIndex,
    pub(crate) promiscuous: bool,
    /// Entries of each ring, and chunks lent to the kernel.
    pub(crate) entries: u32,
    pub(crate) is_generic: bool,
    /// Receive queues of the interface.
    pub(crate) queues: u32,
    /// What is ours, where the link is shared with the kernel.
    pub(crate) division: Option<Arc<Division>>,
}

/// What failed, for the operator.
pub(crate) struct Failed {
    pub(crate) action: &'static str,
    pub(crate) source: io::Error,
}

impl Failed {
    /// Whether the driver refused the program because frames may be longer than it can show it.
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

impl Xdp {
    pub(crate) fn open(
        mut info: LinkInfo,
        interface: Interface,
        options: &Options,
        pool: &Rc<Pool>,
        registered: &mut Registered,
    ) -> Result<Self, (Interface, Failed)> {
        let parts = open_parts(&interface, options, pool, registered);
        let Parts { attached, sockets, any, promiscuous, tags } = match parts {
            Ok(parts) => parts,
            Err(failed) => return Err((interface, failed)),
        };
        if tags == Tags::InFrame && interface.takes_tags_out() {
            info.why += "; a VLAN tag that its driver takes out of a frame is lost";
        }
        let is_zero_copy = sockets.iter().any(|socket| socket.is_zero_copy);
        info.mode = match (options.is_generic, is_zero_copy) {
            (true, _) => Mode::XdpGeneric,
            (false, true) => Mode::XdpZeroCopy,
            (false, false) => Mode::XdpCopy,
        };
        Ok(Self {
            info,
            index: options.index,
            interface,
            attached: Some(attached),
            sockets,
            turn: 0,
            any,
            _promiscuous: promiscuous,
            counters: LinkCounters::default(),
        })
    }
}

/// What a link stands on.
struct Parts {
    attached: OwnedFd,
    sockets: Vec<Socket>,
    any: Option<Epoll>,
    promiscuous: Option<OwnedFd>,
    tags: Tags,
}

fn open_parts(
    interface: &Interface,
    options: &Options,
    pool: &Rc<Pool>,
    registered: &mut Registered,
) -> Result<Parts, Failed> {
    let map = bpf::socket_map(options.queues).map_err(failed("make a map of sockets"))?;
    // Before the sockets: a driver may rebuild its queues when a program comes.
    let (attached, tags) = attach(interface, options, map.as_fd())?;
    let mut sockets = Vec::new();
    for queue in 0..options.queues {
        let place = Place {
            interface_index: interface.index,
            queue,
            entries: options.entries,
            copy: options.is_generic,
        };
        let socket = Socket::open(place, Rc::clone(pool), registered);
        sockets.push(socket.map_err(failed("open an AF_XDP socket"))?);
    }
    let promiscuous = options.promiscuous.then(|| promiscuous(interface.index)).transpose();
    let promiscuous = promiscuous.map_err(failed("make it promiscuous"))?;
    let any = (options.queues > 1).then(|| any_of(&sockets)).transpose();
    let any = any.map_err(failed("wait for several sockets"))?;
    for (queue, socket) in (0..).zip(&sockets) {
        let Some(fd) = socket.fd() else { continue };
        bpf::set_socket(map.as_fd(), queue, fd).map_err(failed("redirect to the socket"))?;
    }
    Ok(Parts { attached, sockets, any, promiscuous, tags })
}

/// Attaches the program that redirects, one that sees tags that were taken out if the kernel can
/// have it.
fn attach(
    interface: &Interface,
    options: &Options,
    map: BorrowedFd<'_>,
) -> Result<(OwnedFd, Tags), Failed> {
    let hook = if options.is_generic { Hook::XdpGeneric } else { Hook::XdpNative };
    let mac = interface.mac().map_err(failed("ask for its address"))?.unwrap_or(MacAddress::ZERO);
    let try_with = |tags: Tags| {
        let bound_to = if tags == Tags::InFrame { 0 } else { interface.index };
        let program = match &options.division {
            Some(division) => division::in_driver(map, division.fd(), mac, tags),
            None => bpf::redirect_all(map, tags),
        };
        let program = bpf::load(Kind::Xdp, "gw_redirect", &program, bound_to);
        let program = program.map_err(failed("load the program that redirects"))?;
        let attached = while_busy(|| bpf::attach(program.as_fd(), interface.index, hook));
        attached.map_err(failed("attach the program that redirects"))
    };
    // Behind the driver no program learns of a tag that was taken out.
    let function = if options.is_generic { None } else { tag_function() };
    if let Some(tags) = function.map(Tags::TakenOut)
        && let Ok(attached) = try_with(tags)
    {
        return Ok((attached, tags));
    }
    if options.division.is_some() && interface.takes_tags_out() {
        // Without its tag a frame of a VLAN would look as if it were ours.
        let action = "tell frames of VLANs from others, as its driver takes the tags out";
        return Err(Failed { action, source: io::ErrorKind::Unsupported.into() });
    }
    try_with(Tags::InFrame).map(|attached| (attached, Tags::InFrame))
}

/// The number of the kernel's function that tells a tag (Linux 6.8).
fn tag_function() -> Option<u32> {
    // The same for as long as the machine runs, and some milliseconds to find.
    static FOUND: OnceLock<Option<u32>> = OnceLock::new();
    let find = || btf::function_id(&std::fs::read(btf::KERNEL).ok()?, bpf::TAG_FUNCTION);
    *FOUND.get_or_init(find)
}

/// A descriptor that is readable when one of the sockets is.
fn any_of(sockets: &[Socket]) -> io::Result<Epoll> {
    let any = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    for fd in sockets.iter().filter_map(Socket::fd) {
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

impl Drop for Xdp {
    fn drop(&mut self) {
        // No frame may be on its way into a socket that is being closed.
        self.attached = None;
    }
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
        let len_max = self.info.mtu + ETHERNET_LEN + TAG_LEN;
        // One queue is enough to send by: all of them are ours, and this keeps the order.
        let Some(socket) = self.sockets.first_mut() else { return };
        for mut packet in batch.drain() {
            if !(ETHERNET_LEN..=len_max).contains(&packet.len()) {
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
                Err(Refused::Full | Refused::NoPacket) => self.counters.transmit_full += 1,
            }
        }
        socket.flush();
    }

    fn counters(&mut self) -> LinkCounters {
        self.counters.receive_overrun += self.sockets.iter_mut().map(Socket::dropped).sum::<u64>();
        self.counters
    }

    fn state(&mut self) -> LinkState {
        self.interface.state()
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.any {
            Some(any) => Some(any.0.as_fd()),
            None => self.sockets.first().and_then(Socket::fd),
        }
    }
}
