//! The table of a link.

use super::{Form, RATE_MAX, Shape, Table, key};
use crate::WORKERS_MAX;

/// Minimum MTU of IPv4 (RFC 791 §3.2).
const MTU_MIN: i64 = 68;
/// Maximum octets of an IPv4 packet (RFC 791 §3.1).
const MTU_MAX: i64 = 65_535;
/// The largest identifier of a VLAN: 4095 is reserved (IEEE 802.1Q table 9-2).
const VLAN_ID_MAX: i64 = 4094;
/// Maximum time that a worker may spin, in microseconds; longer only wastes processor time.
const SPIN_US_MAX: i64 = 1_000_000;
/// Seconds between two router advertisements (MaxRtrAdvInterval, RFC 4861 §6.2.1).
const ADVERTISE_S: (i64, i64) = (4, 1800);
/// Maximum time that hosts may use a router, in seconds (AdvDefaultLifetime, RFC 4861 §6.2.1).
const ROUTER_S_MAX: i64 = 9000;
/// Maximum number of addresses of a link.
const ADDRESSES_MAX: usize = 32;
/// Maximum delay and jitter of a segment, in microseconds: a minute.
const DELAY_US_MAX: i64 = 60_000_000;
/// All frames, in parts of a million.
const MILLION: i64 = 1_000_000;

/// How a link exchanges frames.
const MODES: &[&str] =
    &["auto", "xdp", "xdp-generic", "packet", "dpdk", "tap", "tun", "pcapng", "segment"];
/// Where packets that are only forwarded are forwarded.
const FORWARD: &[&str] = &["graph", "xdp"];
/// Paces of a replay, beside a number of frames each second.
const PACES: &[&str] = &["captured", "fastest"];

/// Kinds of links, for the keys that only some have.
const INTERFACE: &[&str] = &["interface"];
const VLAN: &[&str] = &["vlan"];
const PCAPNG: &[&str] = &["pcapng"];
const SEGMENT: &[&str] = &["segment"];
const DPDK: &[&str] = &["dpdk"];
/// Links over devices that other machines are connected to.
const WIRED: &[&str] = &["interface", "dpdk"];
/// Links that are an interface of the kernel.
const WITH_INTERFACE: &[&str] = &["interface", "tap", "tun"];
/// Links that are not tagged frames of another.
const PHYSICAL: &[&str] = &["interface", "dpdk", "tap", "tun", "pcapng", "segment"];
/// Links with a link-layer address of their own.
const WITH_ADDRESS: &[&str] = &["interface", "dpdk", "tap", "pcapng", "segment"];
/// Links whose stations assign addresses to each other.
const CONFIGURED: &[&str] = &["interface", "dpdk", "tap", "segment", "vlan"];

/// The kind of a link: `vlan`, or else what its mode opens; none if there is no such mode.
pub(crate) fn kind_of_link(is_virtual: bool, mode: &str) -> Option<&'static str> {
    const MADE: [&str; 5] = ["dpdk", "tap", "tun", "pcapng", "segment"];
    if is_virtual {
        return Some("vlan");
    }
    let made = MADE.into_iter().find(|made| *made == mode);
    made.or_else(|| MODES.contains(&mode).then_some("interface"))
}

pub(crate) static LINK: Table = Table {
    name: "[link.NAME]",
    doc: "A link: a device that receives and sends frames.",
    keys: &[
        key(
            "device",
            Shape::Text(Form::Interface),
            "The kernel's interface, or the one to create (tap, tun); NAME if not given.",
        )
        .of_device(WITH_INTERFACE),
        key(
            "mode",
            Shape::Choice(MODES),
            "The device: auto is the fastest of xdp, xdp-generic and packet that works; \
             these open an interface of the kernel. dpdk opens a port of DPDK, in a program \
             that was built with it. tap and tun create one, for Ethernet \
             frames or IP packets. pcapng reads and writes capture files. segment is a \
             medium in memory.",
        )
        .of_device(PHYSICAL)
        .or("auto"),
        key(
            "exclusive",
            Shape::Flag,
            "Whether the host on the link is the gateway's stack (true, the default) or \
             the kernel.",
        )
        .only(INTERFACE)
        .or("true"),
        key("mtu", Shape::Number(MTU_MIN, MTU_MAX), "The MTU: the largest packet in octets.")
            .such_as("1500"),
        key(
            "addresses",
            Shape::List(Form::AddressOfNetwork, ADDRESSES_MAX),
            "The link's IPv4 and IPv6 addresses with prefix lengths.",
        ),
        key("dhcp", Shape::Flag, "Whether DHCP assigns an IPv4 address.")
            .only(CONFIGURED)
            .or("false"),
        key(
            "autoconfigure",
            Shape::Flag,
            "Whether IPv6 addresses are formed from router advertisements (SLAAC).",
        )
        .only(CONFIGURED)
        .or("false"),
        key(
            "forwarding",
            Shape::Flag,
            "Whether packets received there for other hosts are forwarded (true, the \
             default).",
        )
        .or("true"),
        key(
            "advertise",
            Shape::Table(&ADVERTISE),
            "IPv6 router advertisements; none if not given, {} for the defaults.",
        )
        .only(CONFIGURED),
        key("mac", Shape::Text(Form::Mac), "The link's MAC address; the device's if not given.")
            .only(WITH_ADDRESS),
        key("promiscuous", Shape::Flag, "Whether frames for other stations are received, too.")
            .only(WIRED)
            .or("false"),
        key(
            "forward",
            Shape::Choice(FORWARD),
            "Where packets received there that are only forwarded are forwarded: by the graph, \
             or in the driver by an XDP program, which needs AF_XDP in the driver (mode auto or \
             xdp). What it does not forward goes to the graph.",
        )
        .of_device(INTERFACE)
        .or("graph"),
        key(
            "spin_us",
            Shape::Number(0, SPIN_US_MAX),
            "Microseconds that a worker polls for the next frame before it sleeps.",
        )
        .such_as("50")
        .only(PHYSICAL),
        key(
            "queues",
            Shape::Number(1, WORKERS_MAX as i64),
            "Number of workers that receive from the link, each by its own queues. If not \
             given, all workers, but no more than the device has queues; mode packet may \
             have more.",
        )
        .such_as("2")
        .only(INTERFACE),
        key(
            "host",
            Shape::Text(Form::Interface),
            "The TAP interface to create for this machine's own programs: they receive \
             what arrives for the link's addresses and the gateway's stack does not use.",
        )
        .only(WIRED),
        key(
            "vlan",
            Shape::Number(1, VLAN_ID_MAX),
            "The VLAN identifier (IEEE 802.1Q): the frames of another link with this tag.",
        )
        .such_as("100")
        .of_device(VLAN),
        key("on", Shape::Text(Form::Name), "The link below, which carries the tagged frames.")
            .of_device(VLAN),
        key(
            "priority",
            Shape::Number(0, 7),
            "The priority in the tags of transmitted frames; 0 if not given.",
        )
        .of_device(VLAN),
        key(
            "read",
            Shape::Text(Form::Any("in.pcapng")),
            "pcapng: the capture file to replay, pcapng or pcap, of Ethernet or raw IP. \
             Its path, as that of `write`, is relative to the folder of the description.",
        )
        .of_device(PCAPNG),
        key(
            "write",
            Shape::Text(Form::Any("out.pcapng")),
            "pcapng: the capture file for transmitted frames.",
        )
        .of_device(PCAPNG),
        key(
            "pace",
            Shape::ChoiceOrNumber(PACES, 1, RATE_MAX),
            "pcapng: the speed of the replay: captured (as recorded, the default), \
             fastest, or frames per second.",
        )
        .of_device(PCAPNG),
        key(
            "port",
            Shape::Text(Form::DpdkPort),
            "dpdk: the device as DPDK names it: a driver with a number and its arguments, or a \
             PCI address.",
        )
        .of_device(DPDK),
        key(
            "segment",
            Shape::Text(Form::Name),
            "segment: the name of the medium; links of this gateway with the same name \
             are connected.",
        )
        .of_device(SEGMENT),
        key(
            "delay_us",
            Shape::Number(0, DELAY_US_MAX),
            "segment: delay of frames that this link sends, in microseconds; 0 if not \
             given.",
        )
        .of_device(SEGMENT),
        key(
            "jitter_us",
            Shape::Number(0, DELAY_US_MAX),
            "segment: maximum random addition to each frame's delay, in microseconds.",
        )
        .such_as("1000")
        .of_device(SEGMENT),
        key(
            "loss_per_million",
            Shape::Number(0, MILLION),
            "segment: random loss of frames that this link sends, in parts per million.",
        )
        .such_as("1000")
        .of_device(SEGMENT),
        key(
            "seed",
            Shape::Number(0, i64::MAX),
            "segment: the seed of jitter and loss; the same seed loses the same frames.",
        )
        .such_as("7")
        .of_device(SEGMENT),
    ],
};

static ADVERTISE: Table = Table {
    name: "advertise",
    doc: "Router advertisements for a link's IPv6 networks.",
    keys: &[
        key(
            "interval_s",
            Shape::Number(ADVERTISE_S.0, ADVERTISE_S.1),
            "Maximum time between two advertisements, in seconds; 600 if not given.",
        ),
        key(
            "lifetime_s",
            Shape::Number(0, ROUTER_S_MAX),
            "Time that hosts may use this router, in seconds: three intervals if not \
             given, 0 for not at all.",
        )
        .such_as("1800"),
        key(
            "hop_limit",
            Shape::Number(0, 255),
            "The initial hop limit of hosts; 64 if not given, 0 for the host's own.",
        ),
        key("mtu", Shape::Flag, "Whether the link's MTU is advertised (true, the default).")
            .such_as("1500"),
    ],
};
