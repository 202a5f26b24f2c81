//! A gateway as its description says: links, routes, handlers, UDP gateways.

use crate::{
    handlers::{self, Made},
    messages::Messages,
    not_yet,
    part::{Part, Unable},
    recorder::Recorder,
    tcp_proxy::{Proxies, TcpProxySetup},
};
use gatewright_config::{self as config, Config};
use gatewright_link::{Backend, Framing, LinkConfig, TapConfig};
use gatewright_packet::LinkIndex;
use gatewright_planes::{
    DeviceSetup, LinkSetup, MergeLimit, Planes, PlanesError, RouteTo, Series, Setup, StaticRoute,
    UdpGateway, UdpGatewaySetup,
};
use gatewright_stack::{
    Advertise, Attachment, AttachmentId, Counter, Form, Route, VlanLink, builtin::Count,
};
use gatewright_tables::Prefix;
use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

/// Why a description cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A part of the description is not in this version.
    #[error("{0} is not in this version")]
    NotInThisVersion(String),
    /// The gateway cannot be opened.
    #[error(transparent)]
    Planes(Box<PlanesError>),
    /// A handler cannot be attached.
    #[error("handler {name}: {source}")]
    Attach {
        /// The handler.
        name: String,
        /// Why.
        source: Box<PlanesError>,
    },
    /// A handler cannot be attached at messages.
    #[error("{at}: {why}")]
    Messages {
        /// Where.
        at: String,
        /// Why, with what there is.
        why: String,
    },
    /// A UDP gateway cannot be started.
    #[error("udp_gateway.{name}: {source}")]
    UdpGateway {
        /// Its name.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// A TCP proxy cannot be started.
    #[error("tcp_proxy.{name}: {source}")]
    TcpProxy {
        /// Its name.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// A part that others run cannot be as described.
    #[error("{0}")]
    Part(Unable),
    /// The control socket or the metrics page cannot be served as described.
    #[error("[control]: {0}")]
    Control(String),
    /// A file cannot be written.
    #[error("cannot write {file}: {source}")]
    File {
        /// Its name.
        file: String,
        /// Why.
        source: io::Error,
    },
}

impl From<PlanesError> for RunError {
    fn from(source: PlanesError) -> Self {
        Self::Planes(Box::new(source))
    }
}

impl RunError {
    /// The exit code of a program that ends for this (`sysexits.h`).
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Planes(source) | Self::Attach { source, .. } => source.exit_code(),
            Self::NotInThisVersion(_) | Self::Messages { .. } => 78,
            Self::TcpProxy { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => 77,
            Self::UdpGateway { .. }
            | Self::TcpProxy { .. }
            | Self::Part(_)
            | Self::Control(_)
            | Self::File { .. } => 69,
        }
    }
}

/// A handler that comes with the house, as it runs.
#[derive(Clone, Debug)]
pub struct Attached {
    /// Its id, by which it is detached.
    pub id: AttachmentId,
    /// Its name: `count`, `drop` and so on.
    pub name: &'static str,
    /// Where it stands.
    pub attachment: Attachment,
    /// What it has counted, if it counts.
    pub count: Option<Count>,
    /// What it could not write or copy in time, if it can miss something.
    pub missed: Option<Counter>,
    /// What the description says of it; nothing if it was attached since.
    pub(crate) described: Option<config::Attach>,
}

/// A described gateway that runs.
#[derive(Debug)]
pub struct Configured {
    /// Ended before the gateway whose sockets they use.
    pub(crate) udp_gateways: Vec<(String, UdpGateway)>,
    pub(crate) attached: Vec<Attached>,
    pub(crate) recorders: Vec<(AttachmentId, Recorder)>,
    pub(crate) messages: Messages,
    pub(crate) names: Vec<String>,
    pub(crate) tcp_proxies: Proxies,
    parts: Vec<Part>,
    pub(crate) planes: Planes,
    /// The start of its randomness.
    pub(crate) seed: u64,
    /// The description as it is in force.
    pub(crate) config: Config,
    file: Option<String>,
    pub(crate) rim: Rim,
}

/// Whoever serves the control socket and the metrics page, asked to do it as another description
/// says; why not, in words for the operator.
pub type ServeControl = Box<dyn FnMut(&config::Control) -> Result<(), String> + Send>;

/// As [`ServeControl`], if somebody does.
#[derive(Default)]
pub(crate) struct Rim(Option<ServeControl>);

impl fmt::Debug for Rim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rim").field(&self.0.is_some()).finish()
    }
}

impl Rim {
    /// Has it served as `control` says.
    pub(crate) fn serve(&mut self, control: &config::Control) -> Result<(), RunError> {
        match &mut self.0 {
            Some(serve) => serve(control).map_err(RunError::Control),
            None => Err(RunError::Control("nobody serves it here".to_owned())),
        }
    }
}

impl Configured {
    /// Opens the gateway that `config` describes; `seed` begins all its randomness.
    ///
    /// # Errors
    ///
    /// [`RunError`] names the part that failed; then nothing runs.
    pub fn open(config: &Config, seed: u64) -> Result<Self, RunError> {
        refuse_what_is_not_there(config)?;
        let mut names: Vec<String> =
            config.links.iter().map(|link| link.name.value.clone()).collect();
        if takes_links(config) {
            names.extend((0..SPARE_PLACES).map(|_| String::new()));
        }
        let planes = Planes::open(&setup(config, &names, seed)?)?;
        let mut configured = Self {
            udp_gateways: Vec::new(),
            attached: Vec::new(),
            recorders: Vec::new(),
            messages: Messages::default(),
            names,
            tcp_proxies: Proxies::default(),
            parts: Vec::new(),
            planes,
            seed,
            config: config.clone(),
            file: None,
            rim: Rim::default(),
        };
        for attach in &config.attachments {
            configured.attach(attach)?;
            if let Some(attached) = configured.attached.last_mut() {
                attached.described = Some(attach.clone());
            }
        }
        for relay in &config.udp_gateways {
            configured.relay(relay)?;
        }
        for proxy in &config.tcp_proxies {
            configured.proxy(proxy)?;
        }
        let proxies = configured.tcp_proxies.part();
        configured.add_part(proxies);
        Ok(configured)
    }

    /// Starts a TCP proxy.
    pub(crate) fn proxy(&self, proxy: &config::TcpProxy) -> Result<(), RunError> {
        let setup = TcpProxySetup {
            listen: proxy.listen.value,
            server: proxy.forward.value,
            connections_max: proxy.connections_max,
            idle: proxy.idle,
            connect: proxy.connect,
        };
        let name = proxy.name.value.clone();
        let started = self.tcp_proxies.start(&name, setup);
        started.map_err(|source| RunError::TcpProxy { name, source })
    }

    /// Takes in a part that others run: it is asked for status and metrics.
    pub fn add_part(&mut self, part: Part) {
        self.parts.push(part);
    }

    /// The parts that others run.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The gateway.
    pub const fn planes(&self) -> &Planes {
        &self.planes
    }

    /// Remembers the file of the description, which `reload` reads again.
    pub fn set_file(&mut self, file: String) {
        self.file = Some(file);
    }

    /// The file of the description, if there is one.
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }

    /// Says who serves the control socket and the metrics page: a reload that changes `[control]`
    /// asks there.
    pub fn on_control(&mut self, serve: ServeControl) {
        self.rim = Rim(Some(serve));
    }

    /// Takes back who serves the control socket and the metrics page: to be dropped where this
    /// gateway is not locked.
    pub fn end_control(&mut self) -> Option<ServeControl> {
        self.rim.0.take()
    }

    /// The names of its links, in the order of their indices.
    pub fn link_names(&self) -> &[String] {
        &self.names
    }

    /// The handlers that came from the description or were attached since.
    pub fn attached(&self) -> &[Attached] {
        &self.attached
    }

    /// The UDP gateways by name.
    pub fn udp_gateways(&self) -> &[(String, UdpGateway)] {
        &self.udp_gateways
    }

    /// Attaches a handler that comes with the house, without losing a packet.
    ///
    /// # Errors
    ///
    /// [`RunError`] if nothing passes where it was to stand, or its file cannot be written.
    pub fn attach(&mut self, attach: &config::Attach) -> Result<AttachmentId, RunError> {
        let Made { name, attachment, handler, count, missed, recorder } =
            handlers::make(attach, &self.names)?;
        let attach_error =
            |source| RunError::Attach { name: name.to_owned(), source: Box::new(source) };
        let id = self.planes.attach(attachment, handler).map_err(attach_error)?;
        self.recorders.extend(recorder.map(|recorder| (id, recorder)));
        self.attached.push(Attached { id, name, attachment, count, missed, described: None });
        Ok(id)
    }

    /// Detaches a handler; whether there was one of this id.
    ///
    /// # Errors
    ///
    /// [`RunError`] if the worker has ended.
    pub fn detach(&mut self, id: AttachmentId) -> Result<bool, RunError> {
        if self.detach_messages(id) {
            return Ok(true);
        }
        let found = self.planes.detach(id)?.is_some();
        self.attached.retain(|attached| attached.id != id);
        // The handler is gone, so its recorder writes what waits and ends.
        self.recorders.retain(|(other, _)| *other != id);
        Ok(found)
    }

    /// The link of a name.
    pub fn link(&self, name: &str) -> Option<LinkIndex> {
        handlers::link_of(&self.names, name)
    }

    /// Takes a link down, or up again: nothing comes and nothing leaves there, and its routes make
    /// room for others. Its device stays open, and as it is.
    ///
    /// # Errors
    ///
    /// Why it cannot be, in words for the operator.
    pub fn set_link(&self, name: &str, up: bool) -> Result<(), String> {
        let link = self.planes.link(name)?;
        self.planes.set_link(link, up).map_err(|error| error.to_string())
    }

    /// Starts a UDP gateway.
    pub(crate) fn relay(&mut self, relay: &config::UdpGateway) -> Result<(), RunError> {
        let server = relay.forward.value;
        let any: IpAddr = if server.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        let ip = relay.address.as_ref().map_or(any, |address| address.value);
        let limit = match relay.merge {
            config::Merge::Off => None,
            config::Merge::Octets(octets) => Some(MergeLimit::Octets(octets.into())),
            config::Merge::PathMtu => Some(MergeLimit::PathMtu),
        };
        let series = match (relay.series, limit) {
            (config::Series::Split, _) => Series::Split,
            (_, None) => Series::Plain,
            (config::Series::Plain, Some(limit)) => Series::Merge(Form::Plain, limit),
            (config::Series::Merge, Some(limit)) => Series::Merge(Form::Prefixed, limit),
        };
        let listen = SocketAddr::new(ip, relay.port.value);
        let started =
            UdpGateway::start(self.planes.sockets(), UdpGatewaySetup { listen, server, series });
        let name = relay.name.value.clone();
        match started {
            Ok(started) => self.udp_gateways.push((name, started)),
            Err(source) => return Err(RunError::UdpGateway { name, source }),
        }
        Ok(())
    }
}

/// Octets of a packet over Ethernet (RFC 894).
const ETHERNET_MTU: usize = 1500;

/// Refuses what this version does not run.
pub(crate) fn refuse_what_is_not_there(config: &Config) -> Result<(), RunError> {
    match not_yet::asked(config).into_iter().next() {
        Some((_, what)) => Err(RunError::NotInThisVersion(what)),
        None => Ok(()),
    }
}

/// What `config` says of the planes, whose links are at the places `names`.
pub(crate) fn setup(config: &Config, names: &[String], seed: u64) -> Result<Setup, RunError> {
    let mut setup = Setup::new(seed);
    setup.workers = usize::from(config.workers).max(1);
    if let Some(spin) = config.links.iter().map(|link| link.spin).max() {
        setup.spin = spin;
    }
    setup.links = link_setups(config, names)?;
    setup.routes = static_routes(config, names)?;
    Ok(setup)
}

/// Places for links that come while the gateway runs: each has its layers from the start.
const SPARE_PLACES: usize = 4;

/// Whether links may come and go while a gateway of this description runs: those that are shared are
/// known to the kernel's follower from the start.
pub(crate) fn takes_links(config: &Config) -> bool {
    config.links.iter().all(|link| link.exclusive)
}

/// The links at the places `names`, in their order.
fn link_setups(config: &Config, names: &[String]) -> Result<Vec<LinkSetup>, RunError> {
    let setup = |(index, name): (LinkIndex, &String)| {
        let link = config.links.iter().find(|link| link.name.value == *name);
        link.map_or_else(
            || Ok(LinkSetup::spare(index)),
            |link| link_setup(index, link, config, names),
        )
    };
    (0..).map(LinkIndex).zip(names).map(setup).collect()
}

/// The routes that a description has: of several for the same destinations, the one with the lowest
/// metric.
fn static_routes(config: &Config, names: &[String]) -> Result<Vec<StaticRoute>, RunError> {
    let mut routes: Vec<StaticRoute> = Vec::new();
    let mut described: Vec<_> = config.routes.iter().collect();
    described.sort_by_key(|route| route.metric);
    for route in described {
        let link = route.link.as_ref().and_then(|name| names.iter().position(|n| *n == name.value));
        let link = link.and_then(|index| u16::try_from(index).ok()).map(LinkIndex);
        let Some(link) = link else {
            return Err(RunError::NotInThisVersion("a route that names no link".to_owned()));
        };
        let via = route.via.as_ref().map(|via| via.value);
        let to = route.to.value;
        let kind = via.map_or(Route::Connected(link), |gateway| Route::Via { link, gateway });
        let to = match to.address() {
            IpAddr::V4(ip) => Prefix::new(ip, to.length()).map(RouteTo::V4),
            IpAddr::V6(ip) => Prefix::new(ip, to.length()).map(RouteTo::V6),
        };
        // `check` has refused prefixes that are too long.
        let Ok(to) = to else { continue };
        if routes.iter().all(|better| better.to != to) {
            routes.push(StaticRoute { to, route: kind });
        }
    }
    Ok(routes)
}

/// A link as its description says, among the others of `config`, whose indices are in the order of
/// `names`.
fn link_setup(
    index: LinkIndex,
    link: &config::Link,
    config: &Config,
    names: &[String],
) -> Result<LinkSetup, RunError> {
    let (mut mtu, mut mac) = (link.mtu, link.mac);
    let tap = |name: &str, framing| {
        let mtu = mtu.and_then(|mtu| usize::try_from(mtu).ok()).unwrap_or(ETHERNET_MTU);
        DeviceSetup::Tap(TapConfig { index, interface: name.to_owned(), framing, mtu, up: true })
    };
    let device = match &link.device {
        config::Device::Interface { name, mode } => {
            let mut device = LinkConfig::new(index, &name.value);
            device.promiscuous = link.promiscuous;
            device.exclusive = link.exclusive;
            device.tagged = config
                .links
                .iter()
                .any(|vlan| vlan.below().is_some_and(|below| below.value == link.name.value));
            device.backend = match mode {
                config::Mode::Auto => Backend::Auto,
                config::Mode::Xdp => Backend::Xdp,
                config::Mode::XdpGeneric => Backend::XdpGeneric,
                config::Mode::Packet => Backend::PacketSocket,
            };
            DeviceSetup::Interface(device)
        }
        config::Device::Tap { name } => tap(&name.value, Framing::Ethernet),
        config::Device::Vlan { on, id, priority } => {
            let below = config.links.iter().find(|below| below.name.value == on.value);
            // A VLAN has the address and, unless it says less, the MTU of the link below.
            mtu = mtu.or(below.and_then(|below| below.mtu));
            mac = below.and_then(|below| below.mac);
            let below = handlers::link_of(names, on).unwrap_or(LinkIndex::NONE);
            DeviceSetup::Vlan(VlanLink { link: index, below, id: id.value, priority: *priority })
        }
        _ => {
            let what = format!("link.{}: this kind of device under `run`", link.name.value);
            return Err(RunError::NotInThisVersion(what));
        }
    };
    let mut setup = LinkSetup::new(&link.name.value, device);
    setup.mtu = mtu;
    setup.dhcp = link.dhcp;
    setup.autoconfigure = link.autoconfigure;
    setup.forwarding = link.forwarding;
    setup.advertise = link.advertise.map(|told| Advertise {
        interval: told.interval,
        lifetime: told.lifetime,
        hop_limit: told.hop_limit,
        mtu: told.mtu,
    });
    setup.queues = link.queues.map(usize::from);
    setup.mac = mac.map(gatewright_wire::MacAddress);
    let pair = |address: &config::Located<config::Prefix>| {
        (address.value.address(), address.value.length())
    };
    setup.addresses = link.addresses.iter().map(pair).collect();
    Ok(setup)
}

/// How long a recorder may take to write what waits when its handler is gone.
pub(crate) const RECORDER_ENDS_WITHIN: Duration = Duration::from_secs(2);
