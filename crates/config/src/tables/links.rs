//! The table of a link.

use super::{Form, RATE_MAX, Shape, Table, key, or};
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
pub(crate) const MODES: &[&str] =
    &["auto", "xdp", "xdp-generic", "packet", "tap", "tun", "pcapng", "segment"];
/// Paces of a replay, beside a number of frames each second.
const PACES: &[&str] = &["captured", "fastest"];

pub(super) static LINK: Table = Table {
    name: "[link.NAME]",
    doc: "A link: where frames come from and go to.",
    keys: &[
        key(
            "device",
            Shape::Text(Form::Interface),
            "The interface of the kernel, or the one to make (tap, tun); NAME if not given.",
        ),
        or(
            "auto",
            key(
                "mode",
                Shape::Choice(MODES),
                "How frames are exchanged: auto takes the fastest that works, xdp, xdp-generic and \
             packet open an interface; tap and tun make one, of Ethernet frames or of IP packets; \
             pcapng reads and writes capture files; segment is a medium in memory.",
            ),
        ),
        or(
            "true",
            key(
                "exclusive",
                Shape::Flag,
                "Whether our stack alone is the host there (true, the default), or the kernel is.",
            ),
        ),
        key("mtu", Shape::Number(MTU_MIN, MTU_MAX), "The largest packet in octets."),
        key(
            "addresses",
            Shape::List(Form::AddressOfNetwork, ADDRESSES_MAX),
            "Our addresses with their prefix lengths, IPv4 and IPv6.",
        ),
        or("false", key("dhcp", Shape::Flag, "Whether an IPv4 address is asked for by DHCP.")),
        or(
            "false",
            key(
                "autoconfigure",
                Shape::Flag,
                "Whether IPv6 addresses are made of what routers announce.",
            ),
        ),
        or(
            "true",
            key(
                "forwarding",
                Shape::Flag,
                "Whether packets that arrive there for others are sent on (true, the default).",
            ),
        ),
        key(
            "advertise",
            Shape::Table(&ADVERTISE),
            "What hosts there are told as a router (IPv6); nothing if not given, {} for the usual.",
        ),
        key("mac", Shape::Text(Form::Mac), "Our hardware address; the device's if not given."),
        or("false", key("promiscuous", Shape::Flag, "Whether frames for others are taken, too.")),
        key(
            "spin_us",
            Shape::Number(0, SPIN_US_MAX),
            "Microseconds that a worker looks for the next frame before it sleeps.",
        ),
        key(
            "queues",
            Shape::Number(1, WORKERS_MAX as i64),
            "How many workers receive by the link, each by queues of its own: as many as there are, \
             and as its device has, if not given; by mode packet also more than that.",
        ),
        key(
            "host",
            Shape::Text(Form::Interface),
            "The TAP interface to make for this machine's own programs: at the link's addresses they \
             get what our stack has no use for.",
        ),
        key(
            "vlan",
            Shape::Number(1, VLAN_ID_MAX),
            "The identifier of a VLAN (IEEE 802.1Q): this link is what carries its tag on another.",
        ),
        key("on", Shape::Text(Form::Name), "The link that carries the tags of `vlan`."),
        key(
            "priority",
            Shape::Number(0, 7),
            "The priority in the tags of the frames that are sent by a VLAN (0 if not given).",
        ),
        key(
            "read",
            Shape::Text(Form::Any("in.pcapng")),
            "pcapng: the capture file whose frames arrive, pcapng or pcap, of Ethernet or raw IP; \
             relative to the folder of the description, as `write`.",
        ),
        key(
            "write",
            Shape::Text(Form::Any("out.pcapng")),
            "pcapng: the capture file for frames that leave.",
        ),
        key(
            "pace",
            Shape::ChoiceOrNumber(PACES, 1, RATE_MAX),
            "pcapng: how fast `read` is replayed: captured (as recorded, the default), fastest, or \
             a number of frames each second.",
        ),
        key(
            "segment",
            Shape::Text(Form::Name),
            "segment: the medium by name; links of this gateway that name it hear each other.",
        ),
        key(
            "delay_us",
            Shape::Number(0, DELAY_US_MAX),
            "segment: microseconds that the frames take that this link sends (0 if not given).",
        ),
        key(
            "jitter_us",
            Shape::Number(0, DELAY_US_MAX),
            "segment: a random time below this is added to the delay of each frame.",
        ),
        key(
            "loss_per_million",
            Shape::Number(0, MILLION),
            "segment: how many of a million frames that this link sends are lost, at random.",
        ),
        key(
            "seed",
            Shape::Number(0, i64::MAX),
            "segment: the start of jitter and loss; the same seed loses the same frames.",
        ),
    ],
};

static ADVERTISE: Table = Table {
    name: "advertise",
    doc: "What hosts on a link are told as by a router: its IPv6 networks, and these.",
    keys: &[
        key(
            "interval_s",
            Shape::Number(ADVERTISE_S.0, ADVERTISE_S.1),
            "The longest time between two advertisements in seconds (600 if not given).",
        ),
        key(
            "lifetime_s",
            Shape::Number(0, ROUTER_S_MAX),
            "How long hosts may use this router, in seconds: three intervals if not given, 0 for \
             not at all.",
        ),
        key(
            "hop_limit",
            Shape::Number(0, 255),
            "The hop limit that hosts start with (64 if not given), 0 to leave it to them.",
        ),
        key("mtu", Shape::Flag, "Whether the link's MTU is told (true, the default)."),
    ],
};
