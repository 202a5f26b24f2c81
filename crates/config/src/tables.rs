//! Every table and key of a description, as data for the checks and the schema.

mod balance;
mod links;
mod services;

pub(crate) use links::{LINK, kind_of_link};

use crate::log::{FORMATS, LEVELS};
use crate::{UDP_CLIENTS_MAX, WORKERS_MAX};
use balance::{BALANCE, FLOW_KEY};
use services::{CSE, DEVICES};

/// A table: `[name]`.
#[derive(Debug)]
pub(crate) struct Table {
    /// Its header, as the user writes it.
    pub(crate) name: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) keys: &'static [Key],
}

/// A key of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) shape: Shape,
    pub(crate) required: bool,
    /// Whether a changed value takes effect only after a restart.
    pub(crate) fixed: bool,
    /// The value if the key is not given, for differences.
    pub(crate) default: Option<&'static str>,
    /// A value as an example, where neither the default nor the form is one.
    pub(crate) example: Option<&'static str>,
    /// Kinds of the table that have the key: kinds of a link ([`kind_of_link`]), or handlers; all if
    /// empty.
    pub(crate) kinds: &'static [&'static str],
    /// Whether it says which device is behind a link, so that a change opens the device anew.
    pub(crate) of_device: bool,
}

/// Type of a key's value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// A string.
    Text(Form),
    /// `true` or `false`.
    Flag,
    /// A whole number in this range, both ends included.
    Number(i64, i64),
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// One of a few words, or a whole number in a range.
    ChoiceOrNumber(&'static [&'static str], i64, i64),
    /// A list of strings, with this maximum length.
    List(Form, usize),
    /// A table.
    Table(&'static Table),
    /// Tables with names that the user chooses, with this maximum number.
    Named(&'static Table, usize),
    /// An array of tables, with this maximum length.
    Many(&'static Table, usize),
}

/// Required form of a string.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Form {
    /// Any text but the empty one; with an example.
    Any(&'static str),
    /// A path, or `credential:NAME`; with an example.
    File(&'static str),
    /// A name in the description.
    Name,
    /// A name of a kernel interface.
    Interface,
    /// `192.0.2.1`.
    Address,
    /// `192.0.2.1/24`.
    AddressOfNetwork,
    /// `192.0.2.0/24`.
    Network,
    /// `192.0.2.0/24` or `default`.
    Destination,
    /// `net_af_packet0,iface=eth0`, or `0000:03:00.0`.
    DpdkPort,
    /// `02:00:00:00:00:01`.
    Mac,
    /// `ether:ipv4`.
    Position,
    /// `127.0.0.1:80`.
    Socket,
    /// `127.0.0.1:80` or `unix:PATH`.
    Listen,
    /// `udp`, or a number.
    Protocol,
    /// `NAME.gate`.
    Program,
    /// `/NAME`.
    CseId,
    /// `Cphd-*`.
    AeIds,
    /// `/NAME/Cphd-*`.
    AeIdsOfCse,
    /// `/NAME/OTHER`.
    CseBeyond,
    /// `/NAME/BASE`, and the address of a resource below it.
    Place,
    /// `http://127.0.0.1:8080`.
    Url,
    /// `mqtt://127.0.0.1:1883`.
    Broker,
    /// A device's EUI-64, 16 hexadecimal digits.
    SystemId,
    /// A kind of devices.
    DeviceKind,
    /// `ROLE=HOST:PORT`.
    Role,
    RoleAddress,
    /// `NAME=VALUE` for a parameter; with an example.
    Setting(&'static str),
    /// `NAME=FILE` for a parameter, FILE being a path or `credential:NAME`; with an example.
    FileSetting(&'static str),
    /// `NAME=VALUE`.
    Field,
    /// `5683`, or `1024-65535`.
    Ports,
}

const fn key(name: &'static str, shape: Shape, doc: &'static str) -> Key {
    let (kinds, default): (&[_], _) = (&[], None);
    let (required, fixed, example, of_device) = (false, false, None, false);
    Key { name, doc, shape, required, fixed, default, example, kinds, of_device }
}

const fn required(name: &'static str, shape: Shape, doc: &'static str) -> Key {
    Key { required: true, ..key(name, shape, doc) }
}

impl Key {
    /// The value if the key is not given.
    const fn or(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }

    /// A value as an example.
    const fn such_as(self, example: &'static str) -> Self {
        Self { example: Some(example), ..self }
    }

    /// A value of the key that is likely to be meant: its example, or its default, also if only its
    /// description states that (`168 if not given`).
    pub(crate) fn usual(&self) -> Option<&'static str> {
        let stated = || {
            let (before, _) = self.doc.split_once(" if not given")?;
            let word = before.split_whitespace().next_back()?;
            word.contains(|letter: char| letter.is_ascii_digit()).then_some(word)
        };
        self.example.or(self.default).or_else(stated)
    }

    /// A key whose changed value takes effect only after a restart.
    const fn fixed(self) -> Self {
        Self { fixed: true, ..self }
    }

    /// A key that only some kinds of its table have.
    const fn only(self, kinds: &'static [&'static str]) -> Self {
        Self { kinds, ..self }
    }

    /// As [`Key::only`], a key that says which device is behind a link.
    const fn of_device(self, kinds: &'static [&'static str]) -> Self {
        Self { kinds, of_device: true, ..self }
    }
}

/// Maximum number of links of a gateway: a worker polls each of them between two batches, and each
/// Ethernet link takes a dozen of a wiring's 4096 edges.
pub(crate) const LINKS_MAX: usize = 64;
/// Maximum number of tables of one kind.
const TABLES_MAX: usize = 4096;
/// Maximum number of static routes in a text, whose length bounds them before; `routes_max` bounds those
/// in force.
const ROUTES_TEXT_MAX: usize = 65_536;
/// Maximum number of static neighbours: half of the table of permanent ones, as commands set some.
const NEIGHBOURS_SET_MAX: usize = 512;
/// Minimum and maximum octets of a merged datagram (RFC 768, RFC 791 §3.1).
const MERGE: (i64, i64) = (64, 65_507);
/// Maximum number of connections of a TCP proxy: each takes two descriptors and 32 KiB.
const CONNECTIONS_MAX: i64 = 100_000;
/// Maximum of a TCP proxy's timeouts, in seconds: a week.
const SECONDS_MAX: i64 = 604_800;
/// Maximum number of neighbours of a link: those of a /14, or a table of 40 MiB.
const NEIGHBOURS_MAX: i64 = 262_144;
/// Maximum number of routes of a family: four times those of the whole Internet.
const ROUTES_MAX: i64 = 1 << 22;
/// Maximum number of rules of a filter: a packet is tested against each until one matches.
const RULES_MAX: usize = 256;
/// Maximum number of networks, protocols or ports of a rule.
const VALUES_MAX: usize = 64;
/// Maximum rate of a limiter, in packets per second.
const RATE_MAX: i64 = 1_000_000_000;
/// Maximum number of packets of a burst.
const BURST_MAX: i64 = 1_000_000;

const PORT: Shape = Shape::Number(1, 65_535);
const NETWORKS: Shape = Shape::List(Form::Network, VALUES_MAX);
const PROTOCOLS: Shape = Shape::List(Form::Protocol, VALUES_MAX);
const PORT_RANGES: Shape = Shape::List(Form::Ports, VALUES_MAX);

pub(crate) const HANDLERS: &[&str] =
    &["count", "capture", "drop", "filter", "mirror", "rate-limit"];
pub(crate) const VERDICTS: &[&str] = &["accept", "drop"];
pub(crate) const PLACES: &[&str] = &["before", "instead", "after", "tap"];
pub(crate) const SIDES: &[&str] = &["receive", "transmit"];
pub(crate) const PLANE_MODES: &[&str] = &["threads", "process"];
/// The highest number of a processor core (`CPU_SETSIZE`).
const CORE_MAX: i64 = 1023;
pub(crate) const SERIES: &[&str] = &["plain", "merge", "split"];
pub(crate) const MERGES: &[&str] = &["off", "mtu"];
/// Maximum number of addresses of a program's roles.
const ROLES_MAX: usize = 64;

/// Maximum number of links of a node of the mesh.
const MESH_LINKS_MAX: usize = 16;
const MESH_PROFILES: &[&str] = &["default", "classic"];
const MESH_ROUTINGS: &[&str] = &["on-demand", "olsr"];
const MESH_TRUSTS: &[&str] = &["open", "psk", "pki"];

/// Maximum number of a program's parameters set in one way.
const SETTINGS_MAX: usize = 64;
/// Maximum number of fields in a message condition: more than any protocol's module has.
const FIELDS_MAX: usize = 16;

/// Tables of which each is a gateway by itself; the others belong to one of these.
pub(crate) const RUNNING: [&str; 6] = ["link", "devices", "cse", "program", "tcp_proxy", "mesh"];

pub(crate) static ROOT: Table = Table {
    name: "description",
    doc: "A gateway.",
    keys: &[
        key("gateway", Shape::Table(&GATEWAY), "The gateway itself."),
        key("planes", Shape::Table(&PLANES), "What moves packets, and what controls it."),
        key("link", Shape::Named(&LINK, LINKS_MAX), "Links, by name."),
        key("route", Shape::Many(&ROUTE, ROUTES_TEXT_MAX), "Static routes."),
        key("neighbour", Shape::Many(&NEIGHBOUR, NEIGHBOURS_SET_MAX), "Static neighbours."),
        key("attach", Shape::Many(&ATTACH, TABLES_MAX), "Handlers at positions of the graph."),
        key("udp_gateway", Shape::Named(&UDP_GATEWAY, TABLES_MAX), "Relays of UDP datagrams."),
        key("tcp_proxy", Shape::Named(&TCP_PROXY, TABLES_MAX), "Relays of TCP connections."),
        key("balance", Shape::Named(&BALANCE, TABLES_MAX), "Relays that share flows."),
        key("control", Shape::Table(&CONTROL), "How the running gateway is reached."),
        key("web", Shape::Table(&WEB), "The gateway's web interface."),
        key("log", Shape::Table(&LOG), "Where the running gateway writes its events."),
        key("program", Shape::Many(&PROGRAM, TABLES_MAX), "Programs in the gateway language."),
        key("devices", Shape::Table(&DEVICES), "IEEE 11073 devices."),
        key("cse", Shape::Table(&CSE), "The gateway's own oneM2M service entity."),
        key("mesh", Shape::Table(&MESH), "The node of the label-switched mesh."),
    ],
};

static MESH: Table = Table {
    name: "[mesh]",
    doc: "The node of the label-switched mesh: all nodes are one Ethernet network.",
    keys: &[
        key(
            "interface",
            Shape::Text(Form::Interface),
            "The interface by which this host uses the mesh; mesh0 if not given. Its peer has the \
             same name and a `p`.",
        )
        .or("mesh0"),
        required(
            "links",
            Shape::List(Form::Interface, MESH_LINKS_MAX),
            "Interfaces that lead to other nodes; they need no addresses.",
        ),
        key(
            "ports",
            Shape::List(Form::Interface, MESH_LINKS_MAX),
            "Interfaces whose stations take part in the mesh without its protocol, as behind a bridge. \
             Of several nodes on one segment one forwards, and another one takes over when it is gone. \
             They need no addresses.",
        ),
        key(
            "tunnel",
            Shape::Named(&MESH_TUNNEL, MESH_LINKS_MAX),
            "Links to other sites over UDP, by the name of the interface that each makes.",
        ),
        key(
            "profile",
            Shape::Choice(MESH_PROFILES),
            "The protocol, the same for all nodes: default, or classic for the Lilith paper's.",
        )
        .or("default"),
        key(
            "routing",
            Shape::Choice(MESH_ROUTINGS),
            "How routes are found, before paths are made along them: on-demand when somebody sends, or by              olsr (RFC 3626), whose nodes tell each other of their links all the time.",
        )
        .or("on-demand"),
        key(
            "trust",
            Shape::Choice(MESH_TRUSTS),
            "Who may join: open lets everybody who can send on a link, psk every node with a key of \
             key_file, pki every node whose own key members_file admits.",
        )
        .or("open"),
        key(
            "key_file",
            Shape::Text(Form::File("mesh.key")),
            "With psk, the file of the keys that all nodes have, each 32 octets in hexadecimal digits \
             on a line of its own: the node sends with the first, and accepts each of up to four. With \
             pki, the file of the node's own key, as `gatewright mesh key new` writes it. Only its \
             owner may read it. A relative path starts in the description's folder.",
        ),
        key(
            "members_file",
            Shape::Text(Form::File("members")),
            "With pki, the file that says who may join: `authority`, `member` or `revoked` and a public \
             key on each line. An authority admits by certificates; a revoked key is out. A relative \
             path starts in the description's folder.",
        ),
    ],
};

static MESH_TUNNEL: Table = Table {
    name: "[mesh.tunnel.NAME]",
    doc: "A link of the mesh to another site: its frames travel as UDP datagrams.",
    keys: &[
        required("local", Shape::Text(Form::Socket), "Own address and port.")
            .such_as("192.0.2.1:6087"),
        required(
            "remote",
            Shape::Text(Form::Socket),
            "Address and port of the node at the other end.",
        )
        .such_as("198.51.100.2:6087"),
    ],
};

static GATEWAY: Table = Table {
    name: "[gateway]",
    doc: "The gateway itself.",
    keys: &[
        key("name", Shape::Text(Form::Name), "Its name in status, metrics and captures.")
            .fixed()
            .or("gatewright"),
        key(
            "workers",
            Shape::Number(1, WORKERS_MAX as i64),
            "The former name of [planes] data_cores.",
        )
        .such_as("2")
        .fixed()
        .or("1"),
        key(
            "neighbours_max",
            Shape::Number(16, NEIGHBOURS_MAX),
            "Maximum number of neighbours of each link and family; 131072 if not given. \
             Each takes 150 octets.",
        )
        .fixed(),
        key(
            "routes_max",
            Shape::Number(16, ROUTES_MAX),
            "Maximum number of routes of each family; 1048576 if not given. Each takes \
             some 30 octets.",
        )
        .fixed(),
    ],
};

static PLANES: Table = Table {
    name: "[planes]",
    doc: "The data plane, which moves packets, and the control plane, which does everything else.",
    keys: &[
        key(
            "mode",
            Shape::Choice(PLANE_MODES),
            "Where the data plane runs: as threads of this process, or as a process of its own, \
             which forwards on while the control plane is away. threads if not given.",
        )
        .fixed()
        .or("threads"),
        key(
            "data_cores",
            Shape::Number(1, WORKERS_MAX as i64),
            "Threads that forward packets; 1 if not given. All packets of a flow use the \
             same one.",
        )
        .fixed()
        .or("1"),
        key(
            "control_core",
            Shape::Number(0, CORE_MAX),
            "The processor core of the control plane. Each thread that forwards packets gets one \
             of the others for itself. If not given, the system places all threads.",
        )
        .such_as("0")
        .fixed(),
    ],
};

static NEIGHBOUR: Table = Table {
    name: "[[neighbour]]",
    doc: "A static neighbour: a station whose link-layer address is neither asked for nor forgotten.",
    keys: &[
        required("address", Shape::Text(Form::Address), "Its IPv4 or IPv6 address."),
        required("mac", Shape::Text(Form::Mac), "Its MAC address."),
        key("link", Shape::Text(Form::Name), "The link; found by `address` if not given."),
    ],
};

/// The largest weight of a next hop, as in the kernel's routes.
const ROUTE_WEIGHT_MAX: u16 = 256;

static ROUTE: Table = Table {
    name: "[[route]]",
    doc: "A static route.",
    keys: &[
        required("to", Shape::Text(Form::Destination), "The destination network, or default."),
        key("via", Shape::Text(Form::Address), "The next hop."),
        key(
            "balance",
            Shape::Text(Form::Name),
            "NAME of a [balance.NAME] whose relays are the next hops, in place of `via`; with `flow`.",
        ),
        FLOW_KEY,
        key("link", Shape::Text(Form::Name), "The link; found by `via` if not given."),
        key(
            "metric",
            Shape::Number(0, u32::MAX as i64),
            "The lowest metric wins among routes to the same destination. Routes of one metric are \
             next hops of which each flow keeps one.",
        )
        .such_as("100"),
        key(
            "weight",
            Shape::Number(1, ROUTE_WEIGHT_MAX as i64),
            "Its share of the flows among next hops of one metric.",
        )
        .such_as("2")
        .or("1"),
    ],
};

/// Handlers that have keys of their own.
const CAPTURE: &[&str] = &["capture"];
const DROP: &[&str] = &["drop"];
const FILTER: &[&str] = &["filter"];
const MIRROR: &[&str] = &["mirror"];
const RATE_LIMIT: &[&str] = &["rate-limit"];

pub(crate) static ATTACH: Table = Table {
    name: "[[attach]]",
    doc: "A handler at a position of the graph.",
    keys: &[
        required("handler", Shape::Choice(HANDLERS), "What it does."),
        required(
            "at",
            Shape::Text(Form::Position),
            "The position in the graph, or at a program's messages: gateway:NAME/HANDLER.",
        ),
        key(
            "place",
            Shape::Choice(PLACES),
            "Before, instead of or after the layer, or as a tap, which only reads.",
        ),
        key("side", Shape::Choice(SIDES), "The direction: received or transmitted packets."),
        key("link", Shape::Text(Form::Name), "Only packets of this link; all if not given."),
        key(
            "file",
            Shape::Text(Form::Any("lan.pcapng")),
            "capture: the pcapng file that it writes.",
        )
        .only(CAPTURE),
        key("match", Shape::Table(&MATCH), "drop: the packets to drop; all if not given.")
            .only(DROP),
        key(
            "rules",
            Shape::Many(&RULE, RULES_MAX),
            "filter: the rules; the first that matches decides.",
        )
        .only(FILTER),
        key(
            "default",
            Shape::Choice(VERDICTS),
            "filter: the verdict on packets that no rule matches; accept if not given.",
        )
        .only(FILTER),
        key("to", Shape::Text(Form::Name), "mirror: the link that sends the copies.").only(MIRROR),
        key("rate", Shape::Number(1, RATE_MAX), "rate-limit: packets per second.")
            .such_as("1000")
            .only(RATE_LIMIT),
        key("burst", Shape::Number(1, BURST_MAX), "rate-limit: packets that may arrive at once.")
            .such_as("64")
            .only(RATE_LIMIT),
    ],
};

static RULE: Table = Table {
    name: "rules",
    doc: "A rule of a filter: the verdict on packets that match all conditions.",
    keys: &[
        required("verdict", Shape::Choice(VERDICTS), "The verdict on matching packets."),
        key("source", NETWORKS, "Source networks."),
        key("not_source", NETWORKS, "The source is in none of these networks."),
        key("destination", NETWORKS, "Destination networks."),
        key("not_destination", NETWORKS, "The destination is in none of these networks."),
        key(
            "protocol",
            PROTOCOLS,
            "Upper-layer protocols, by number or by a name that GW0106 lists.",
        ),
        key("not_protocol", PROTOCOLS, "The upper-layer protocol is none of these."),
        key("source_port", PORT_RANGES, "Source ports of TCP, UDP or SCTP, or ranges of them."),
        key("not_source_port", PORT_RANGES, "The source port is none of these."),
        key("destination_port", PORT_RANGES, "Destination ports, or ranges of them."),
        key("not_destination_port", PORT_RANGES, "The destination port is none of these."),
    ],
};

static MATCH: Table = Table {
    name: "match",
    doc: "Conditions on packets; all must hold.",
    keys: &[
        key("source", Shape::Text(Form::Network), "Source network."),
        key("destination", Shape::Text(Form::Network), "Destination network."),
        key(
            "protocol",
            Shape::Text(Form::Protocol),
            "IP protocol, by number or by a name that GW0106 lists.",
        ),
        key("port", PORT, "Destination port of UDP or TCP.").such_as("53"),
        key(
            "fields",
            Shape::List(Form::Field, FIELDS_MAX),
            "Of messages: fields and their values, as NAME=VALUE.",
        ),
    ],
};

static UDP_GATEWAY: Table = Table {
    name: "[udp_gateway.NAME]",
    doc: "A relay of UDP datagrams between two links; it can merge small ones.",
    keys: &[
        required("listen", Shape::Table(&LISTEN), "Where it listens."),
        key("forward", Shape::Table(&FORWARD), "Where it sends to."),
        key("balance", Shape::Text(Form::Name), "In place of that: relays that share the clients."),
        FLOW_KEY,
        key(
            "merge",
            Shape::ChoiceOrNumber(MERGES, MERGE.0, MERGE.1),
            "Maximum size of a merged datagram: off, octets, or mtu for the path MTU.",
        ),
        key(
            "series",
            Shape::Choice(SERIES),
            "How merged datagrams are separated: plain not at all, merge adds lengths, \
             split separates.",
        ),
        key(
            "clients_max",
            Shape::Number(1, UDP_CLIENTS_MAX as i64),
            "Maximum number of clients; 1024 if not given. Datagrams of others are \
             dropped and counted.",
        ),
    ],
};

static TCP_PROXY: Table = Table {
    name: "[tcp_proxy.NAME]",
    doc: "A relay of TCP connections over the kernel's sockets; it needs no link.",
    keys: &[
        required(
            "listen",
            Shape::Text(Form::Socket),
            "Where it listens, an address of the kernel; [::] accepts both families.",
        )
        .such_as("127.0.0.1:8080"),
        key("forward", Shape::Table(&FORWARD), "The server."),
        key("balance", Shape::Text(Form::Name), "In place of a server: relays that share flows."),
        FLOW_KEY,
        key(
            "connections_max",
            Shape::Number(1, CONNECTIONS_MAX),
            "Maximum number of connections; 512 if not given. Others are closed.",
        ),
        key(
            "idle_s",
            Shape::Number(1, SECONDS_MAX),
            "Seconds after which an idle connection is closed; 300 if not given.",
        ),
        key(
            "connect_s",
            Shape::Number(1, SECONDS_MAX),
            "Seconds to wait for the server to accept; 10 if not given.",
        ),
    ],
};

static LISTEN: Table = Table {
    name: "listen",
    doc: "Where a relay listens.",
    keys: &[
        required("link", Shape::Text(Form::Name), "The link."),
        key("address", Shape::Text(Form::Address), "An address of the link; all if not given."),
        required("port", PORT, "The port.").such_as("6000"),
    ],
};

static FORWARD: Table = Table {
    name: "forward",
    doc: "Where a relay sends to.",
    keys: &[
        required("address", Shape::Text(Form::Address), "The receiver's address."),
        required("port", PORT, "The receiver's port.").such_as("8080"),
    ],
};

static LOG: Table = Table {
    name: "[log]",
    doc: "Where the running gateway writes its events; `gatewright events` shows them all.",
    keys: &[
        key(
            "format",
            Shape::Choice(FORMATS),
            "text or json, on standard error; journal; none. If not given, journal where \
             standard error is connected to it, else text.",
        ),
        key(
            "level",
            Shape::Choice(LEVELS),
            "The lowest severity that is written; info if not given.",
        ),
    ],
};

static CONTROL: Table = Table {
    name: "[control]",
    doc: "How the running gateway is reached.",
    keys: &[
        key(
            "socket",
            Shape::Text(Form::Any("/run/gatewright/ward.sock")),
            "Path of the control socket, relative to the description's folder.",
        ),
        key(
            "metrics",
            Shape::Text(Form::Listen),
            "Where metrics are served: 127.0.0.1:9464 or unix:PATH, relative to the description's \
             folder; nowhere if not given.",
        ),
    ],
};

static WEB: Table = Table {
    name: "[web]",
    doc: "The web interface: a page, an API, and a stream of status and events. Without this table \
          nothing listens.",
    keys: &[
        key(
            "listen",
            Shape::Text(Form::Listen),
            "Where it listens: an address with a port, or unix:PATH, relative to the description's \
             folder; 127.0.0.1:8787 if not given. Any address but loopback needs `tls`, and `tokens` or `tls.authorities`.",
        )
        .or("127.0.0.1:8787"),
        key(
            "tokens",
            Shape::Text(Form::File("/etc/gatewright/web-tokens")),
            "Path of the file of tokens, which `gatewright web token` writes. If not given, \
             everybody on this machine may look, and nobody may do more.",
        ),
        key(
            "audit",
            Shape::Text(Form::Any("/var/lib/gatewright/web-audit.db")),
            "Path of the database in which every change that a caller makes is logged, with its \
             token or certificate; `gatewright web audit` reads it. Relative to the description.",
        ),
        key(
            "reports",
            Shape::Text(Form::Any("/var/lib/gatewright/reports")),
            "Path of a folder with reports of `gatewright lab run`, which the page lists and opens; \
             relative to the description.",
        ),
        key("tls", Shape::Table(&WEB_TLS), "TLS 1.3."),
    ],
};

static WEB_TLS: Table = Table {
    name: "[web.tls]",
    doc: "TLS of the web interface.",
    keys: &[
        required(
            "certificate",
            Shape::Text(Form::File("/etc/gatewright/web.pem")),
            "Path of its certificate, followed by the intermediate ones.",
        ),
        required(
            "key",
            Shape::Text(Form::File("/etc/gatewright/web.key")),
            "Path of the certificate's key.",
        ),
        key(
            "authorities",
            Shape::Text(Form::File("/etc/gatewright/clients.pem")),
            "Path of the authorities whose certificates clients may show in place of a token.",
        ),
    ],
};

static PROGRAM: Table = Table {
    name: "[[program]]",
    doc: "A program in the gateway language.",
    keys: &[
        required(
            "file",
            Shape::Text(Form::Program),
            "Path of the .gate file, relative to the description.",
        ),
        key(
            "at",
            Shape::List(Form::RoleAddress, ROLES_MAX),
            "Addresses of roles in place of the program's own, each as ROLE=HOST:PORT.",
        ),
        key(
            "stack",
            Shape::List(Form::Role, ROLES_MAX),
            "UDP roles that use the gateway's own stack on its exclusive links, not the \
             kernel's.",
        ),
        key(
            "set",
            Shape::List(Form::Setting("host=192.0.2.1"), SETTINGS_MAX),
            "Parameters of the program, each as NAME=VALUE.",
        ),
        key(
            "set_env",
            Shape::List(Form::Setting("password=SMTP_PASSWORD"), SETTINGS_MAX),
            "Parameters read from environment variables, each as NAME=VARIABLE.",
        ),
        key(
            "set_file",
            Shape::List(Form::FileSetting("password=/etc/gatewright/password"), SETTINGS_MAX),
            "Parameters read from files, each as NAME=FILE; a final line break is \
             removed.",
        ),
    ],
};
