//! What a description says, typed: it cannot be wrong any more.

use crate::Prefix;
use crate::messages::AttachMessages;
use gatewright_diagnostic::Span;
use gatewright_stack::At;
use gatewright_stack::builtin::{Rule, Verdict};
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

/// A value with the place where the user wrote it, for findings that come later: a device that is
/// not there, a program that does not compile.
///
/// Two are equal if their values are, wherever they stand: a description with one more line at its
/// head says the same.
#[derive(Clone, Debug, Eq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Where it stands.
    pub span: Span,
}

impl<T: PartialEq> PartialEq for Located<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T> Deref for Located<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// Workers of a gateway at the most: with so many, each looks at 15 rings from others.
pub const WORKERS_MAX: u16 = 16;

/// A whole description, in the order in which it was written.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Config {
    /// `[gateway] name`; `gatewright` if none is given.
    pub name: String,
    /// `[gateway] workers`: threads that move packets, 1 if none is given.
    pub workers: u16,
    /// `[gateway] neighbours_max`: neighbours of each link and family, if it says how many.
    pub neighbours_max: Option<u32>,
    /// `[gateway] routes_max`: routes of each family, if it says how many.
    pub routes_max: Option<u32>,
    /// `[link.NAME]`: at least one, unless it has devices or a service entity.
    pub links: Vec<Link>,
    /// `[[route]]`.
    pub routes: Vec<Route>,
    /// `[[attach]]`.
    pub attachments: Vec<Attach>,
    /// `[[attach]]` at messages of gateway programs.
    pub message_attachments: Vec<AttachMessages>,
    /// `[udp_gateway.NAME]`.
    pub udp_gateways: Vec<UdpGateway>,
    /// `[tcp_proxy.NAME]`.
    pub tcp_proxies: Vec<TcpProxy>,
    /// `[control]`.
    pub control: Control,
    /// `[[program]]`.
    pub programs: Vec<Program>,
    /// `[devices]`.
    pub devices: Option<Devices>,
    /// `[cse]`.
    pub cse: Option<Cse>,
}

impl Config {
    /// This description, with files of programs and of their parameters that are written as
    /// relative paths in `folder`.
    #[must_use]
    pub fn with_programs_in(mut self, folder: &Path) -> Self {
        for program in &mut self.programs {
            program.file.value = folder.join(&program.file.value).to_string_lossy().into_owned();
            for (_, file) in &mut program.set_file {
                *file = folder.join(&*file).to_string_lossy().into_owned();
            }
        }
        self
    }
}

/// A link.
#[derive(Clone, Debug, Eq, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the description")]
pub struct Link {
    /// NAME of `[link.NAME]`, unique.
    pub name: Located<String>,
    /// What it is made of.
    pub device: Device,
    /// Whether our stack alone is the host there; otherwise the kernel is.
    pub exclusive: bool,
    /// The largest packet in octets; the device's own if none is given.
    pub mtu: Option<u32>,
    /// Our addresses there, each with its network; none on a shared link.
    pub addresses: Vec<Located<Prefix>>,
    /// Whether an IPv4 address is asked for by DHCP.
    pub dhcp: bool,
    /// Whether IPv6 addresses are made of what routers announce.
    pub autoconfigure: bool,
    /// Our hardware address; the device's own if none is given.
    pub mac: Option<[u8; 6]>,
    /// Whether frames for others are taken, too.
    pub promiscuous: bool,
    /// Whether packets that arrive there for others are sent on.
    pub forwarding: bool,
    /// What it tells hosts there as a router; nothing if none is given.
    pub advertise: Option<Advertise>,
    /// How long a worker looks for the next frame before it sleeps.
    pub spin: Duration,
    /// How many workers receive by it; as many as can if none is given.
    pub queues: Option<u16>,
}

/// What a router advertises on a link (RFC 4861 §6.2.1), beside the networks of its addresses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Advertise {
    /// The longest time between two advertisements.
    pub interval: Duration,
    /// How long hosts may use this router; zero if they may not.
    pub lifetime: Duration,
    /// The hop limit that hosts should start with; 0 leaves it to them.
    pub hop_limit: u8,
    /// Whether the link's MTU is told.
    pub mtu: bool,
}

impl Link {
    /// The link whose frames carry its tags, if it is a VLAN.
    pub const fn below(&self) -> Option<&Located<String>> {
        match &self.device {
            Device::Vlan { on, .. } => Some(on),
            _ => None,
        }
    }

    /// Whether it gets addresses at run time that the description does not tell.
    pub const fn is_dynamic(&self) -> bool {
        !self.exclusive || self.dhcp || self.autoconfigure
    }
}

/// What a link is made of.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Device {
    /// An interface of the kernel.
    Interface {
        /// Its name; that of the link if none is given.
        name: Located<String>,
        /// How it is opened.
        mode: Mode,
    },
    /// A TAP interface (Ethernet frames) that the gateway makes.
    Tap {
        /// Its name.
        name: Located<String>,
    },
    /// A TUN interface (IP packets) that the gateway makes.
    Tun {
        /// Its name.
        name: Located<String>,
    },
    /// Frames of a capture file, replayed.
    Pcapng {
        /// Path of the file.
        file: Located<String>,
    },
    /// A port of a shared medium in memory.
    Segment {
        /// Links with the same name share the medium.
        name: Located<String>,
    },
    /// A VLAN of another link (IEEE 802.1Q).
    Vlan {
        /// Name of that link.
        on: Located<String>,
        /// Its identifier, 1 to 4094.
        id: Located<u16>,
        /// The priority of the frames that we send, 0 to 7.
        priority: u8,
    },
}

/// How an interface of the kernel is opened.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mode {
    /// The fastest that works.
    #[default]
    Auto,
    /// AF_XDP in the driver.
    Xdp,
    /// AF_XDP behind the driver.
    XdpGeneric,
    /// Packet socket.
    Packet,
}

/// A static route.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Route {
    /// The destinations; every bit behind the prefix is 0.
    pub to: Located<Prefix>,
    /// The neighbour; none if the destinations are neighbours themselves.
    pub via: Option<Located<IpAddr>>,
    /// The link; given, or the one whose network has the neighbour. Always there if nothing refuses
    /// the description.
    pub link: Option<Located<String>>,
    /// Of several routes the one with the lowest is used.
    pub metric: u32,
}

/// A handler at a position of the graph.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Attach {
    /// What it does.
    pub handler: Handler,
    /// The position.
    pub at: Located<At>,
    /// Which way the packets travel.
    pub side: Side,
    /// Where it stands there.
    pub place: Place,
    /// The link; all if none is given.
    pub link: Option<Located<String>>,
}

/// What an attached handler does.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Handler {
    /// Counts packets and octets.
    Count,
    /// Writes packets to a pcapng file.
    Capture {
        /// Path of the file.
        file: Located<String>,
    },
    /// Drops what matches.
    Drop {
        /// What is dropped; everything if it asks for nothing.
        matching: Match,
    },
    /// Lets packets pass or takes them, by rules in order.
    Filter {
        /// The rules: the first that fits decides.
        rules: Vec<Rule>,
        /// What becomes of a packet that no rule fits.
        default: Verdict,
    },
    /// Sends a copy of each packet by another link.
    Mirror {
        /// Name of that link.
        to: Located<String>,
    },
    /// Drops what comes faster than a rate.
    RateLimit {
        /// Packets each second.
        rate: u32,
        /// Packets at once after a pause.
        burst: u32,
    },
}

/// Which packets are meant: those that agree with everything that is given.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Match {
    /// Network of the sender.
    pub source: Option<Prefix>,
    /// Network of the receiver.
    pub destination: Option<Prefix>,
    /// IP protocol.
    pub protocol: Option<u8>,
    /// Destination port of UDP or TCP.
    pub port: Option<u16>,
}

/// Which way a packet travels.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Side {
    /// From a link up.
    #[default]
    Receive,
    /// Down to a link.
    Transmit,
}

/// Where a handler stands, seen from the layer that the position leads to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// Before the layer.
    Before,
    /// Instead of the layer.
    Instead,
    /// Behind the layer.
    After,
    /// Beside it, looking only.
    Tap,
}

/// A relay of UDP datagrams between two links.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UdpGateway {
    /// NAME of `[udp_gateway.NAME]`, unique.
    pub name: Located<String>,
    /// Name of the link that it listens on.
    pub link: Located<String>,
    /// The address that it listens at; all of the link's if none is given.
    pub address: Option<Located<IpAddr>>,
    /// The port that it listens at.
    pub port: Located<u16>,
    /// Where it sends to.
    pub forward: Located<SocketAddr>,
    /// How much it puts into one datagram.
    pub merge: Merge,
    /// How the pieces of a merged datagram are found again.
    pub series: Series,
    /// Clients at once at the most, whose answers are carried back.
    pub clients_max: u16,
}

/// Clients of a UDP gateway at the most: each has one of the 4096 sockets of the gateway's stack.
pub const UDP_CLIENTS_MAX: u16 = 3000;

/// A relay of TCP connections over the kernel's sockets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TcpProxy {
    /// NAME of `[tcp_proxy.NAME]`, unique.
    pub name: Located<String>,
    /// Where it listens.
    pub listen: Located<SocketAddr>,
    /// The server.
    pub forward: Located<SocketAddr>,
    /// Connections at once at the most.
    pub connections_max: usize,
    /// How long a connection may carry nothing.
    pub idle: Duration,
    /// How long the server may take to accept.
    pub connect: Duration,
}

/// How much is put into one datagram.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Merge {
    /// Each datagram alone.
    #[default]
    Off,
    /// Up to this many octets of payload.
    Octets(u16),
    /// As much as the path takes.
    PathMtu,
}

/// How the pieces of a merged datagram are found again.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Series {
    /// Not at all: the payloads stand one behind the other.
    #[default]
    Plain,
    /// Each is preceded by its length.
    Merge,
    /// Takes apart what the other end merged.
    Split,
}

/// How the running gateway is reached.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Control {
    /// Path of the control socket; the default of the command line if none is given.
    pub socket: Option<String>,
    /// Where metrics are served; nowhere if none is given.
    pub metrics: Option<Located<Listen>>,
}

/// A place to listen at.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Listen {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(String),
}

/// A program in the gateway language.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Program {
    /// Path of the file, as written: relative to the description.
    pub file: Located<String>,
    /// Where roles listen or connect instead of what the program says: name and `host:port`.
    pub at: Vec<(String, String)>,
    /// Parameters, each with its value.
    pub set: Vec<(String, String)>,
    /// Parameters, each with the variable of the environment that holds its value.
    pub set_env: Vec<(String, String)>,
    /// Parameters, each with the file that holds its value.
    pub set_file: Vec<(String, String)>,
}

/// IEEE 11073 devices that associate with this gateway.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Devices {
    /// Where the manager listens.
    pub listen: Located<SocketAddr>,
    /// Where it takes datagrams.
    pub udp: Option<Located<SocketAddr>>,
    /// Where it takes devices that show a certificate.
    pub tls: Option<DevicesTls>,
    /// How readings are delivered.
    pub delivery: Delivery,
    /// Kinds of devices whose readings are sent on at once, whatever [`delivery`](Self::delivery)
    /// says.
    pub direct: Vec<String>,
    /// Kinds of devices whose readings are stored first, whatever else is said.
    pub durable: Vec<String>,
    /// Associations at once.
    pub devices_max: u32,
    /// Connections of one address at once; as many as of all, if `None`.
    pub peer_connections: Option<u32>,
    /// System-ids of the devices that may associate; all if none is given.
    pub admit: Vec<[u8; 8]>,
    /// AE-IDs that may read what devices report and ask them something.
    pub operators: Vec<String>,
    /// How long a reading waits for the registrar.
    pub keep: Duration,
    /// Readings of one device that wait for the registrar.
    pub waiting_max: u32,
    /// Readings of all devices that wait for the registrar.
    pub waiting_total: u32,
    /// Whether the known kinds of devices get their views (TS-0023).
    pub views: bool,
    /// What becomes what, before what is known by itself.
    pub maps: Vec<DeviceMap>,
}

/// What an object of a device becomes; what is not given fits all.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeviceMap {
    /// The container.
    pub container: String,
    /// Partition and code of what is measured (IEEE 11073-10101).
    pub measured: Option<(u16, u16)>,
    /// Code of the unit.
    pub unit: Option<u16>,
    /// Labels of the container.
    pub labels: Vec<String>,
    /// Instances that the container keeps.
    pub instances: Option<u32>,
    /// Its code in FHIR.
    pub loinc: Option<String>,
    /// A flexContainer that shows the latest value as a whole number.
    pub view: Option<DeviceView>,
}

/// A flexContainer with one whole number (TS-0023).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeviceView {
    /// Its short name with its namespace.
    pub name: String,
    /// Its containerDefinition.
    pub definition: String,
    /// The attribute.
    pub attribute: String,
}

/// Devices that show a certificate; files in PEM.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DevicesTls {
    /// Where they connect.
    pub listen: Located<SocketAddr>,
    /// The manager's certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
    /// Whose certificates are taken.
    pub authorities: String,
    /// Where a device's certificate says its system-id; they are not compared, if `None`.
    pub system_id: Option<SystemIdField>,
}

/// Where a device's certificate says its system-id: a subject alternative name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SystemIdField {
    /// Of type URI: `urn:dev:mac:0247000100000001` (RFC 9039 §4.1).
    Uri,
    /// Of type DNS: its first label, `0247000100000001.devices.example.com`.
    Dns,
}

/// How readings are delivered.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Delivery {
    /// Stored before they are acknowledged, and sent until they are accepted.
    #[default]
    Durable,
    /// Sent on at once, without a store.
    Direct,
}

/// The gateway's own oneM2M service entity.
#[expect(clippy::struct_excessive_bools, reason = "each is a key of its own")]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cse {
    /// Name of its base resource.
    pub base: Located<String>,
    /// Its identifier, with `/` in front.
    pub id: String,
    /// Where it answers HTTP.
    pub http: Option<Located<SocketAddr>>,
    /// Where it answers CoAP.
    pub coap: Option<Located<SocketAddr>>,
    /// Where it answers WebSocket.
    pub ws: Option<Located<SocketAddr>>,
    /// URL of the broker that it takes MQTT requests from, perhaps with a password.
    pub mqtt: Option<String>,
    /// Path of its database; in memory if none is given.
    pub store: Option<String>,
    /// What the database may grow to, in MiB.
    pub store_mib: Option<u32>,
    /// Whether it is the root of a service provider's tree, and not a gateway's.
    pub infrastructure: bool,
    /// The originator that may do everything.
    pub admin: Option<String>,
    /// Identifiers of the CSEs that may register.
    pub admit: Vec<String>,
    /// Patterns of the AE-IDs that those may register by their certificates.
    pub admit_devices: Option<Vec<String>>,
    /// AEs that no certificate brought, each with the CSE that takes it over: `/gw/Cphd-*`.
    pub adopt_devices: Vec<String>,
    /// CSEs beyond those that register, each behind the one by which it comes: `/gw/ward`.
    pub admit_beyond: Vec<String>,
    /// Whether each request and how it ended is noted in the audit log.
    pub audit: bool,
    /// What the audit log may grow to, in MiB.
    pub audit_mib: Option<u32>,
    /// Whether a request that cannot be noted is refused.
    pub audit_strict: bool,
    /// Whether peers may have this machine's own addresses asked.
    pub reach_own: bool,
    /// What one peer may ask.
    pub peer: PeerBounds,
    /// Domain of its service provider.
    pub provider: Option<String>,
    /// TLS with certificates on both sides.
    pub tls: Option<CseTls>,
    /// The CSE above.
    pub registrar: Option<Registrar>,
}

/// What one peer of the service entity may ask; what is not given is the entity's default.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PeerBounds {
    /// Requests in a second; any number, if `None`.
    pub rate: Option<u32>,
    /// Requests that are not answered, at the same time.
    pub requests: Option<u32>,
    /// Content in those and in what is still arriving, in MiB.
    pub mib: Option<u32>,
    /// The same of all peers together.
    pub mib_of_all: Option<u32>,
    /// Connections of one address at the same time.
    pub connections: Option<u32>,
}

/// TLS of the service entity: as a server where it listens, and as a client.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CseTls {
    /// Where it answers HTTP.
    pub https: Option<Located<SocketAddr>>,
    /// Where it answers WebSocket.
    pub wss: Option<Located<SocketAddr>>,
    /// Path of its certificate.
    pub certificate: String,
    /// Path of the certificate's key.
    pub key: String,
    /// Path of the authorities whose certificates are taken.
    pub authorities: String,
}

/// The CSE above: where this one registers, and where readings are sent on to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Registrar {
    /// Where it answers, without a path.
    pub url: String,
    /// Its identifier, with `/` in front.
    pub id: String,
    /// Name of its base resource.
    pub base: String,
    /// The place at a CSE beyond it that readings go to, if not to it.
    pub readings: Option<String>,
}
