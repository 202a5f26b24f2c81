//! The typed description, valid by construction.

use crate::Prefix;
use crate::balance::{Balance, BalancedFlow, ProxyTarget, TcpProxy};
pub use crate::devices::{
    Delivery, DeviceMap, DeviceView, Devices, DevicesTls, SilentAfter, SystemIdField,
};
use crate::difference::WrittenValues;
pub use crate::home_assistant::HomeAssistant;
pub use crate::listen::{Listen, Web, WebTls};
pub use crate::located::Located;
use crate::log::Log;
pub use crate::mesh::{Mesh, MeshProfile, MeshRouting, MeshTunnel};
use crate::messages::AttachMessages;
use crate::values::credential;
use gatewright_diagnostic::Span;
pub use gatewright_stack::builtin::HostPart;
use gatewright_stack::builtin::{Rule, Verdict};
pub(crate) use gatewright_stack::{At, Place, Side};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

/// Maximum number of workers of a gateway: then each polls 15 rings from others.
pub const WORKERS_MAX: u16 = 16;

/// A whole description, in the order of the text.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Config {
    /// `[gateway] name`; default `gatewright`.
    pub name: String,
    /// `[planes] data_cores`: threads that move packets; default 1.
    pub workers: u16,
    /// `[planes] mode`: where these threads run.
    pub plane_mode: PlaneMode,
    /// `[planes] control_core`: the processor core of the control plane, if given.
    pub control_core: Option<Located<u16>>,
    /// `[gateway] neighbours_max`: neighbours of each link and family, if given.
    pub neighbours_max: Option<u32>,
    /// `[gateway] routes_max`: routes of each family, if given.
    pub routes_max: Option<u32>,
    /// `[link.NAME]`: at least one, unless there are devices, a service entity, a program or a TCP
    /// proxy.
    pub links: Vec<Link>,
    /// `[[route]]`.
    pub routes: Vec<Route>,
    /// `[[neighbour]]`.
    pub neighbours: Vec<StaticNeighbour>,
    /// `[[attach]]`.
    pub attachments: Vec<Attach>,
    /// `[[attach]]` at message positions.
    pub message_attachments: Vec<AttachMessages>,
    /// `[udp_gateway.NAME]`.
    pub udp_gateways: Vec<UdpGateway>,
    /// `[tcp_proxy.NAME]`.
    pub tcp_proxies: Vec<TcpProxy>,
    /// `[balance.NAME]`.
    pub balances: Vec<Balance>,
    /// `[control]`.
    pub control: Control,
    /// `[web]`.
    pub web: Option<Web>,
    /// `[log]`.
    pub log: Log,
    /// `[[program]]`.
    pub programs: Vec<Program>,
    /// `[devices]`.
    pub devices: Option<Devices>,
    /// `[cse]`.
    pub cse: Option<Cse>,
    /// `[mesh]`.
    pub mesh: Option<Mesh>,
    /// What the text gives to keys of tables that exist once or have names, to tell differences by key.
    pub written: WrittenValues,
}

impl Config {
    /// The links whose packets for other hosts are not forwarded (`forwarding = false`), in a gateway with
    /// links in several networks.
    pub fn not_forwarding(&self) -> Vec<String> {
        let in_networks = self.links.iter().filter(|link| link.is_in_network());
        if in_networks.clone().count() < 2 {
            return Vec::new();
        }
        in_networks.filter(|link| !link.forwarding).map(|link| link.name.value.clone()).collect()
    }

    /// Maximum octets of devices' readings that wait for the registrar, and of notifications that wait
    /// for others.
    pub fn waiting_octets(&self) -> (u64, u64) {
        let store = self.cse.as_ref().and_then(|cse| cse.store_mib);
        let share = store.map(|mib| u64::from(mib) * MIB / STORE_SHARE);
        let most = WAITING_OCTETS.min(share.unwrap_or(WAITING_OCTETS));
        let given = self.devices.as_ref().and_then(|devices| devices.waiting_mib);
        (given.map_or(most, |mib| u64::from(mib) * MIB), most)
    }

    /// This description, with relative paths of programs, of their parameter files, of the capture
    /// files of links, of databases, of reports, of the certificates' files and of Unix sockets
    /// resolved in `folder`.
    ///
    /// `credential:NAME` as a parameter file, or as a file of certificates and keys, is the file NAME in
    /// `credentials`, where a service manager puts what it hands over (systemd.exec(5),
    /// `LoadCredential=`); without that, in the folder `credentials` of `folder`.
    #[must_use]
    pub fn with_files_in(mut self, folder: &Path, credentials: Option<&Path>) -> Self {
        let credentials = credentials.map_or_else(|| folder.join("credentials"), Path::to_owned);
        let resolve = |file: &mut String| {
            let credential = credential(file).map(|name| credentials.join(name));
            let path = credential.unwrap_or_else(|| folder.join(&*file));
            *file = path.to_string_lossy().into_owned();
        };
        let beside = |file: &mut String| {
            *file = folder.join(&*file).to_string_lossy().into_owned();
        };
        for link in &mut self.links {
            let Device::Pcapng { read, write, .. } = &mut link.device else { continue };
            [read, write].into_iter().flatten().for_each(|file| beside(&mut file.value));
        }
        for program in &mut self.programs {
            beside(&mut program.file.value);
            program.set_file.iter_mut().for_each(|(_, file)| resolve(file));
        }
        if let Some(tls) = self.devices.as_mut().and_then(|devices| devices.tls.as_mut()) {
            let files = [&mut tls.certificate, &mut tls.key, &mut tls.authorities];
            files.into_iter().chain(&mut tls.crl).chain(&mut tls.ocsp_response).for_each(resolve);
        }
        if let Some(Mesh { key_file, members_file, .. }) = &mut self.mesh {
            [key_file, members_file].into_iter().flatten().for_each(resolve);
        }
        if let Some(cse) = &mut self.cse {
            cse.store.iter_mut().for_each(beside);
            if let Some(tls) = &mut cse.tls {
                let files = [&mut tls.certificate, &mut tls.key, &mut tls.authorities];
                let others = tls.crl.iter_mut().chain(&mut tls.ocsp_response);
                files.into_iter().chain(others).for_each(resolve);
            }
        }
        self.control.socket.iter_mut().for_each(beside);
        let metrics = self.control.metrics.as_mut();
        let listen = self.web.as_mut().map(|web| &mut web.listen);
        for listen in metrics.into_iter().chain(listen) {
            if let Listen::Unix(path) = &mut listen.value {
                beside(path);
            }
        }
        if let Some(Web { tokens, audit, reports, tls, .. }) = &mut self.web {
            tokens.iter_mut().for_each(resolve);
            audit.iter_mut().chain(reports).for_each(beside);
            if let Some(WebTls { certificate, key, authorities }) = tls {
                [certificate, key].into_iter().chain(authorities).for_each(resolve);
            }
        }
        self
    }
}

const MIB: u64 = 1024 * 1024;
/// Octets of readings that wait for the registrar, if no bound is given.
const WAITING_OCTETS: u64 = 128 * MIB;
/// Part of the store's bound that those of readings take at most then, and those of notifications.
const STORE_SHARE: u64 = 16;

/// Where the data plane runs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum PlaneMode {
    /// As threads of the control plane's process.
    #[default]
    Threads,
    /// As a process of its own.
    Process,
}

/// A network link.
#[derive(Clone, Debug, Eq, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the description")]
pub struct Link {
    /// NAME of `[link.NAME]`, unique.
    pub name: Located<String>,
    /// Its device.
    pub device: Device,
    /// Whether only our stack is the host there; otherwise the kernel is. A virtual link is as the link
    /// below.
    pub exclusive: bool,
    /// MTU in octets; default is the device's own.
    pub mtu: Option<u32>,
    /// Our addresses there, each with its network; none on a shared link.
    pub addresses: Vec<Located<Prefix>>,
    /// Whether DHCP requests an IPv4 address.
    pub dhcp: bool,
    /// Whether IPv6 addresses are configured from router advertisements.
    pub autoconfigure: bool,
    /// Our hardware address; default is the device's own.
    pub mac: Option<[u8; 6]>,
    /// Whether frames for other hosts are received too.
    pub promiscuous: bool,
    /// Whether packets that arrive there for other hosts are forwarded.
    pub forwarding: bool,
    /// Whether its driver forwards them where it can, before the graph has them.
    pub forwards_in_driver: bool,
    /// Its router advertisements; none unless given.
    pub advertise: Option<Advertise>,
    /// How long a worker polls for the next frame before it sleeps.
    pub spin: Duration,
    /// Number of workers that receive from it; default is as many as possible.
    pub queues: Option<u16>,
    /// The TAP interface by which the kernel is reached at its addresses; none unless given. The
    /// description has the link `NAME.host` for it.
    pub host: Option<Located<String>>,
}

/// Router advertisements on a link (RFC 4861 §6.2.1), beside the networks of its addresses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Advertise {
    /// Maximum time between two advertisements.
    pub interval: Duration,
    /// How long hosts may use this router; zero if they may not.
    pub lifetime: Duration,
    /// Hop limit that hosts start with; 0 leaves it to them.
    pub hop_limit: u8,
    /// Whether the link's MTU is advertised.
    pub mtu: bool,
}

impl Link {
    /// Whether it is not in the text: the kernel's interface beside another link, for its `host`.
    pub fn is_derived(&self) -> bool {
        // A name in a description has no dot.
        self.name.value.contains('.')
    }

    /// Whether it has addresses, is given some, or has those of the kernel.
    fn is_in_network(&self) -> bool {
        !self.addresses.is_empty() || self.dhcp || self.autoconfigure || self.is_shared()
    }

    /// Whether the kernel is the host there.
    pub const fn is_shared(&self) -> bool {
        !self.exclusive && matches!(self.device, Device::Interface { .. } | Device::Virtual { .. })
    }

    /// Whether the kernel may have an interface beside it, for its `host`.
    pub(crate) const fn may_have_host(&self) -> bool {
        self.exclusive && matches!(self.device, Device::Interface { .. } | Device::Dpdk { .. })
    }

    /// The link that carries its tagged frames, if it is virtual.
    pub const fn below(&self) -> Option<&Located<String>> {
        match &self.device {
            Device::Virtual { on, .. } => Some(on),
            _ => None,
        }
    }

    /// Whether it gets addresses at run time that the description does not contain.
    pub const fn is_dynamic(&self) -> bool {
        !self.exclusive || self.dhcp || self.autoconfigure
    }
}

/// Device of a link.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Device {
    /// A kernel interface.
    Interface {
        /// Its name; default is the link's name.
        name: Located<String>,
        /// How the interface is opened.
        mode: Mode,
    },
    /// A TAP interface (Ethernet frames) created by the gateway.
    Tap {
        /// Its name.
        name: Located<String>,
    },
    /// A TUN interface (IP packets) created by the gateway.
    Tun {
        /// Its name.
        name: Located<String>,
    },
    /// Capture files; one of the two at least.
    Pcapng {
        /// Path of the file whose frames arrive.
        read: Option<Located<String>>,
        /// Path of the file that takes the frames that leave.
        write: Option<Located<String>>,
        /// How fast `read` is replayed.
        pace: ReplayPace,
    },
    /// A port of DPDK.
    Dpdk {
        /// Its device: a driver with a number and its arguments, or a PCI address.
        port: Located<String>,
    },
    /// A port of a shared medium in memory.
    Segment {
        /// Links with the same name share the medium.
        name: Located<String>,
        /// The impairment of the frames that the link sends.
        impairment: SegmentImpairment,
    },
    /// A virtual link: frames of another link with a tag.
    Virtual {
        /// Name of that link.
        on: Located<String>,
        /// What marks its frames.
        tag: VirtualTag,
    },
}

/// The tag of a virtual link's frames.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum VirtualTag {
    /// The tag of a VLAN (IEEE 802.1Q).
    Vlan {
        /// Its identifier, 1 to 4094.
        id: Located<u16>,
        /// Priority of transmitted frames, 0 to 7.
        priority: u8,
    },
}

impl fmt::Display for VirtualTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vlan { id, .. } => write!(f, "VLAN {}", id.value),
        }
    }
}

/// The pace at which a capture file is replayed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ReplayPace {
    /// As it was recorded.
    #[default]
    Captured,
    /// As fast as frames are taken.
    Fastest,
    /// So many frames each second.
    FramesPerSecond(NonZeroU32),
}

/// Impairment of one link's frames by a segment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SegmentImpairment {
    /// The time that they take.
    pub delay: Duration,
    /// A random time below this is added.
    pub jitter: Duration,
    /// How many of a million are lost.
    pub loss_per_million: u32,
    /// The start of all randomness, if given.
    pub seed: Option<u64>,
}

/// The mode in which a kernel interface is opened.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mode {
    /// The fastest mode that works.
    #[default]
    Auto,
    /// AF_XDP in native mode, in the driver.
    Xdp,
    /// AF_XDP in generic mode, behind the driver.
    XdpGeneric,
    /// A packet socket.
    Packet,
}

/// A static route.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Route {
    /// Destination network; every bit after the prefix is 0.
    pub to: Located<Prefix>,
    /// The next hop; none if the destinations are neighbours themselves.
    pub via: Option<Located<IpAddr>>,
    /// The link: the given one, or the one whose network contains the next hop. Always set in a
    /// valid description.
    pub link: Option<Located<String>>,
    /// Metric: the route with the lowest is used. Several of one metric are next hops of which each
    /// flow keeps one.
    pub metric: u32,
    /// Its share of the flows among those of one metric.
    pub weight: u16,
    /// Next hops that share its flows; `via` is the first of them then.
    pub balance: Option<BalancedFlow>,
}

/// A neighbour that is neither asked for nor forgotten.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StaticNeighbour {
    /// Its address.
    pub address: Located<IpAddr>,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// The link: the given one, or the one whose network contains the address. Always set in a valid
    /// description.
    pub link: Option<Located<String>>,
}

/// A handler attached to a position of the graph.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Attach {
    /// The handler.
    pub handler: Handler,
    /// The position.
    pub at: Located<At>,
    /// Direction of the packets.
    pub side: Side,
    /// Its place at the position.
    pub place: Place,
    /// The link; all links unless given.
    pub link: Option<Located<String>>,
}

/// Handlers for packets.
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
    /// Drops matching packets.
    Drop {
        /// The conditions; without any, everything is dropped.
        matching: Match,
    },
    /// Accepts or drops packets, by rules in order.
    Filter {
        /// The rules: the first that matches decides.
        rules: Vec<Rule>,
        /// The verdict on a packet that no rule matches.
        default: Verdict,
    },
    /// Sends a copy of each packet out of another link.
    Mirror {
        /// Name of that link.
        to: Located<String>,
    },
    /// Gives packets of a route the next hop of their flow ([`Route::balance`]).
    NextHops {
        /// The route's destinations.
        to: Prefix,
        /// The next hops; the first one is that of the route.
        balance: Balance,
        /// What each flow is admitted for.
        flow: BalancedFlow,
    },
    /// Connects a link with the kernel's interface beside it ([`Link::host`]).
    Host {
        /// What it carries.
        part: HostPart,
        /// Name of the link that it sends to.
        to: Located<String>,
    },
    /// Drops packets above a rate.
    RateLimit {
        /// Packets per second.
        rate: u32,
        /// Size of a burst after a pause.
        burst: u32,
    },
}

impl Handler {
    /// Whether it was written as a handler, and does not stand for a key of a link or a route.
    pub const fn is_written(&self) -> bool {
        !matches!(self, Self::Host { .. } | Self::NextHops { .. })
    }

    /// Its name, as `handler` says it; one that stands for another key has another.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Capture { .. } => "capture",
            Self::Drop { .. } => "drop",
            Self::Filter { .. } => "filter",
            Self::Mirror { .. } => "mirror",
            Self::Host { .. } => "host",
            Self::NextHops { .. } => "next-hops",
            Self::RateLimit { .. } => "rate-limit",
        }
    }
}

/// Which packets match: those that agree with every given condition.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Match {
    /// Source network.
    pub source: Option<Prefix>,
    /// Destination network.
    pub destination: Option<Prefix>,
    /// IP protocol.
    pub protocol: Option<u8>,
    /// Destination port of UDP or TCP.
    pub port: Option<u16>,
}

/// A relay of UDP datagrams between two links.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UdpGateway {
    /// NAME of `[udp_gateway.NAME]`, unique.
    pub name: Located<String>,
    /// Name of the link that it listens on.
    pub link: Located<String>,
    /// The address that it listens at; all addresses of the link unless given.
    pub address: Option<Located<IpAddr>>,
    /// The port that it listens at.
    pub port: Located<u16>,
    /// The address that it forwards to, or relays that share the clients.
    pub target: ProxyTarget,
    /// How much it merges into one datagram.
    pub merge: Merge,
    /// Format that separates the parts of a merged datagram.
    pub series: Series,
    /// Maximum number of concurrent clients whose answers are carried back.
    pub clients_max: u16,
}

/// Maximum number of clients of a UDP gateway: each has one of the 4096 sockets of the gateway's
/// stack.
pub const UDP_CLIENTS_MAX: u16 = 3000;

/// Limits on what is merged into one datagram.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Merge {
    /// Each datagram separately.
    #[default]
    Off,
    /// Up to this many octets of payload.
    Octets(u16),
    /// As much as the path MTU allows.
    PathMtu,
}

/// Format that separates the parts of a merged datagram.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Series {
    /// Not at all: the payloads follow one another without separators.
    #[default]
    Plain,
    /// Each is preceded by its length.
    Merge,
    /// Splits datagrams that the other end merged.
    Split,
}

/// Control access to the running gateway.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Control {
    /// Path of the control socket; default is that of the command line.
    pub socket: Option<String>,
    /// Where metrics are served; nowhere unless given.
    pub metrics: Option<Located<Listen>>,
}

/// A program in the gateway language.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Program {
    /// Path of the file as written, relative to the description.
    pub file: Located<String>,
    /// Addresses of roles that replace the program's: name and `host:port`.
    pub at: Vec<(String, String)>,
    /// Roles whose sockets are those of the gateway's own stack; the others use the kernel's.
    pub stack: Vec<Located<String>>,
    /// Parameters with their values.
    pub set: Vec<(String, String)>,
    /// Parameters, each with the environment variable that holds its value.
    pub set_env: Vec<(String, String)>,
    /// Parameters, each with the file that holds its value.
    pub set_file: Vec<(String, String)>,
    /// The names in these lists as written, each with its key.
    pub(crate) written: Vec<(&'static str, Located<String>)>,
}

impl Program {
    /// The place of the entry for `name` in one of the lists `keys`; of the file if there is none.
    pub fn place_of(&self, keys: &[&str], name: &str) -> Span {
        // Of one that is set twice, the second is the one too many.
        let entry = self.written.iter().rfind(|(key, of)| keys.contains(key) && of.value == name);
        entry.map_or(self.file.span, |(_, of)| of.span)
    }
}

/// The gateway's own oneM2M service entity.
#[expect(clippy::struct_excessive_bools, reason = "each is a key of its own")]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cse {
    /// Name of its base resource.
    pub base: Located<String>,
    /// Its CSE-ID, beginning with `/`.
    pub id: String,
    /// Address of its HTTP listener.
    pub http: Option<Located<SocketAddr>>,
    /// Address of its CoAP listener.
    pub coap: Option<Located<SocketAddr>>,
    /// Address of its WebSocket listener.
    pub ws: Option<Located<SocketAddr>>,
    /// URL of the MQTT broker for its requests, optionally with a password.
    pub mqtt: Option<String>,
    /// Path of its database; in memory unless given.
    pub store: Option<String>,
    /// Maximum size of the database, in MiB.
    pub store_mib: Option<u32>,
    /// Room kept on the disk for deletions and the audit log, in MiB; 0 keeps none.
    pub reserve_mib: Option<u32>,
    /// Memory for whole instances, in MiB; older ones are read from the database.
    pub memory_mib: Option<u32>,
    /// Maximum number of resources.
    pub resources_max: Option<u32>,
    /// Maximum number of resources of one AE or CSE; a quarter of all unless given.
    pub branch_max: Option<u32>,
    /// Maximum number of instances of a container that sets none.
    pub instances_max: Option<u32>,
    /// Whether it is the root of a service provider's tree instead of a gateway's.
    pub infrastructure: bool,
    /// The originator with all privileges.
    pub admin: Option<String>,
    /// CSE-IDs that may register.
    pub admit: Vec<String>,
    /// Patterns of the AE-IDs that those CSEs may register by their certificates.
    pub admit_devices: Option<Vec<String>>,
    /// Patterns of AEs registered without a certificate, each with the CSE that takes them over:
    /// `/gw/Cphd-*`.
    pub adopt_devices: Vec<String>,
    /// CSEs beyond the registered ones, each after the CSE through which it is reached: `/gw/ward`.
    pub admit_beyond: Vec<String>,
    /// Whether the audit log records each request and its outcome.
    pub audit: bool,
    /// Maximum size of the audit log, in MiB.
    pub audit_mib: Option<u32>,
    /// Whether a request that cannot be recorded is refused.
    pub audit_strict: bool,
    /// URLs at which other CSEs reach it; those of its listeners and broker if there is none.
    pub points_of_access: Vec<String>,
    /// Whether peers may have requests sent to this machine's own addresses.
    pub reach_own: bool,
    /// The only networks to which peers may have requests sent; all if there is none.
    pub reach_only: Vec<Prefix>,
    /// Networks to which peers may not have requests sent.
    pub reach_not: Vec<Prefix>,
    /// Limits for one peer.
    pub peer: PeerBounds,
    /// Domain of its service provider.
    pub provider: Option<String>,
    /// TLS with certificates on both sides.
    pub tls: Option<CseTls>,
    /// The CSE above it.
    pub registrar: Option<Registrar>,
    /// When operators are alarmed.
    pub alarms: CseAlarms,
}

/// Thresholds of the service entity's alarms.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CseAlarms {
    /// Readings that wait for the registrar, in percent of their limit.
    pub outbox_percent: u32,
    /// Days before the end of a certificate; never if 0.
    pub certificate_days: u32,
    /// Days before that end at which the alarm is an error.
    pub certificate_days_urgent: u32,
}

impl Default for CseAlarms {
    fn default() -> Self {
        Self { outbox_percent: 80, certificate_days: 30, certificate_days_urgent: 7 }
    }
}

/// Limits for one peer of the service entity; a limit that is not given has the entity's default.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PeerBounds {
    /// Requests per second; unlimited if `None`.
    pub rate: Option<u32>,
    /// Maximum number of concurrent unanswered requests.
    pub requests: Option<u32>,
    /// Content of those requests and of requests still arriving, in MiB.
    pub mib: Option<u32>,
    /// The same for all peers together.
    pub mib_of_all: Option<u32>,
    /// Content of answers that are not read yet, in MiB.
    pub answers_mib: Option<u32>,
    /// The same for all peers together.
    pub answers_mib_of_all: Option<u32>,
    /// Maximum number of concurrent connections of one address.
    pub connections: Option<u32>,
}

/// TLS of the service entity, as a server and as a client.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CseTls {
    /// Address of its HTTPS listener.
    pub https: Option<Located<SocketAddr>>,
    /// Address of its secure WebSocket listener.
    pub wss: Option<Located<SocketAddr>>,
    /// Path of its certificate.
    pub certificate: String,
    /// Path of the certificate's key.
    pub key: String,
    /// Path of the authorities whose certificates are accepted.
    pub authorities: String,
    /// Path of their lists of revoked certificates; with `None`, none is revoked.
    pub crl: Option<String>,
    /// Path of the OCSP response about its certificate, which it staples as a server.
    pub ocsp_response: Option<String>,
    /// Whether servers must staple an OCSP response.
    pub ocsp_required: bool,
}

/// The CSE above it: this one registers there, and sends readings there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Registrar {
    /// Its URL, without a path.
    pub url: String,
    /// Its CSE-ID, beginning with `/`.
    pub id: String,
    /// Name of its base resource.
    pub base: String,
    /// Target of readings at a CSE beyond it, if it is not the target itself.
    pub readings: Option<String>,
    /// Its CoAP address over the gateway's links, to which the data plane sends readings.
    pub coap: Option<Located<SocketAddr>>,
    /// Whether the data plane sends them in JSON, not in CBOR.
    pub coap_json: bool,
}

#[cfg(test)]
mod tests {
    use crate::parse;
    use gatewright_diagnostic::SourceId;

    /// One link is in no other network to forward to; the kernel's interface beside a link is no link of
    /// its own.
    #[test]
    fn links_that_do_not_forward_are_named_beside_another_network() {
        let lan =
            "[link.lan]\naddresses = [\"192.0.2.1/24\"]\nforwarding = false\nhost = \"tap0\"\n";
        let not_forwarding = |more: &str| {
            let parsed = parse(SourceId::default(), &format!("{lan}{more}"));
            parsed.config.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics)).not_forwarding()
        };
        assert_eq!(not_forwarding(""), [""; 0]);
        assert_eq!(not_forwarding("[link.wan]\n"), [""; 0], "without an address");
        assert_eq!(not_forwarding("[link.wan]\ndhcp = true\n"), ["lan"]);
        assert_eq!(not_forwarding("[link.wan]\nexclusive = false\n"), ["lan"]);
        let both = "[link.wan]\naddresses = [\"198.51.100.1/24\"]\nforwarding = false\n";
        assert_eq!(not_forwarding(both), ["lan", "wan"]);
    }
}
