//! The links and routes of a description, as a part of its gateway.

use crate::{
    RunError, by_command::KeptByCommand, capture_paths::check_written, difference, host_interface,
};
use gatewright_config::{self as config, Config, codes};
use gatewright_diagnostic::Diagnostic;
use gatewright_link::{
    Backend, CaptureConfig, Chance, DpdkConfig, Framing, Impairment, LinkConfig, MemoryConfig,
    TapConfig, WITHOUT_DPDK, capture_framing, pcapng::Speed,
};
use gatewright_packet::{LinkAddress, LinkIndex};
use gatewright_part::{Change, EventSink, Part, Staged, Unable};
use gatewright_planes::{
    DeviceSetup, Exchanged, LinkSetup, Pace, Planes, PlanesError, ProcessSetup, ReopenedLink,
    ReportRoute, RouteTo, Setup, StaticNeighbour, StaticRoute,
};
use gatewright_stack::{Advertise, LinkTag, VirtualLink, VlanTag, WeightedHop};
use gatewright_tables::Prefix;
use std::{
    collections::BTreeMap,
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The planes of a description, and the places of its links.
#[derive(Clone)]
pub struct Links(Arc<Inner>);

struct Inner {
    planes: Planes,
    /// Names by place; places without a link have no name.
    names: Mutex<Vec<String>>,
    /// The links that do not forward, by the description in force ([`Config::not_forwarding`]).
    not_forwarding: Mutex<Vec<String>>,
    /// The links and routes in force. What was read of a capture file that may be gone since is here.
    setup: Mutex<Setup>,
    /// The seed of all randomness.
    seed: u64,
    /// What the control plane before had set by command, if its data plane was adopted.
    kept: KeptByCommand,
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Links").field(&self.0.planes).finish()
    }
}

impl Links {
    /// Opens the links and routes of `config`, whose events are logged by `log`. The workers run in
    /// `process`, if it is given; one that runs without a control plane is adopted.
    pub(crate) fn open(
        config: &Config,
        seed: u64,
        process: Option<ProcessSetup>,
        log: EventSink,
    ) -> Result<Self, RunError> {
        let found = process.as_ref().map(Planes::find).transpose()?.flatten();
        let names = match &found {
            Some(found) => places_in(&found.link_names(), config).map_err(|name| {
                let what = format!("no place for the link {name}");
                PlanesError::OtherDataPlane { process: found.process(), what }
            })?,
            None => first_names(config),
        };
        let mut setup = setup(config, &names, seed)?;
        setup.process = process;
        let memo = found.as_ref().map_or("", |found| found.memo());
        let kept = KeptByCommand::read(memo, &names);
        setup.routes_by_command.clone_from(&kept.routes);
        let planes = Planes::open_found(&setup, found, log)?;
        let neighbours = &setup.static_neighbours;
        planes.exchange_neighbours(&[], neighbours).map_err(RunError::Neighbour)?;
        let (names, setup) = (Mutex::new(names), Mutex::new(setup));
        let not_forwarding = Mutex::new(config.not_forwarding());
        let links = Self(Arc::new(Inner { planes, names, not_forwarding, setup, seed, kept }));
        links.furnish_hosts(None, config)?;
        Ok(links)
    }

    /// Gives the kernel's interfaces beside the links of `new` the addresses of these, in place of
    /// those of `old`.
    fn furnish_hosts(&self, old: Option<&Config>, new: &Config) -> Result<(), RunError> {
        for link in new.links.iter().filter(|link| link.exclusive) {
            let Some(host) = &link.host else { continue };
            let name = &link.name.value;
            let failed = |source| RunError::Host { name: name.clone(), source };
            let index = link_of(&self.names(), name).unwrap_or(LinkIndex::NONE);
            let Some(mac) = self.planes().ethernet_address(index) else { continue };
            let before = old.and_then(|old| old.links.iter().find(|known| known.name == link.name));
            let same = before.filter(|before| before.host == link.host);
            host_interface::furnish(
                host,
                mac,
                (same.map_or(&[], |link| &link.addresses), &link.addresses),
            )
            .map_err(failed)?;
        }
        Ok(())
    }

    /// The planes.
    pub fn planes(&self) -> &Planes {
        &self.0.planes
    }

    /// What the control plane before had set by command, if its data plane was adopted.
    pub(crate) fn kept_by_command(&self) -> &KeptByCommand {
        &self.0.kept
    }

    /// Starts a data plane that was given up again, for a reload to `new`; the change to report.
    pub(crate) fn start_again(&self, new: &Config) -> Result<Option<Change>, Unable> {
        if !self.planes().is_given_up() {
            return Ok(None);
        }
        let names = self.places(new).map_err(|name| format!("link {name}: no place is free"))?;
        let now = setup(new, &names, self.0.seed)?;
        let started = self.planes().start_again(&now).map_err(RunError::from);
        started.map_err(|why| format!("the data plane does not start again: {why}"))?;
        let process = self.planes().data_process().unwrap_or(0);
        let how = format!("started again after it was given up, as process {process}");
        Ok(Some(Change::new("data plane", how)))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn setup(&self) -> MutexGuard<'_, Setup> {
        self.0.setup.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The links that do not forward, in a gateway with links in several networks.
    pub(crate) fn not_forwarding(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.not_forwarding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of the links, in the order of their places.
    pub(crate) fn names(&self) -> Vec<String> {
        self.lock().clone()
    }

    /// The names of the links by place when `config` is in force: remaining links keep their
    /// places, and new ones get a free place. Else the name of a link that gets none.
    pub(crate) fn places(&self, config: &Config) -> Result<Vec<String>, String> {
        places_in(&self.names(), config)
    }
}

/// The names of the links of `config` in its order, and places for those that come later.
fn first_names(config: &Config) -> Vec<String> {
    let mut names: Vec<String> = config.links.iter().map(|link| link.name.value.clone()).collect();
    names.extend((0..SPARE_PLACES).map(|_| String::new()));
    names
}

/// As [`Links::places`], among places whose links have been `before`.
fn places_in(before: &[String], config: &Config) -> Result<Vec<String>, String> {
    let stays = |name: &String| config.links.iter().any(|link| link.name.value == *name);
    let mut names: Vec<String> = (before.iter())
        .map(|name| if stays(name) { name.clone() } else { String::new() })
        .collect();
    let come = config.links.iter().map(|link| &link.name.value);
    for name in come.filter(|name| !before.contains(name)) {
        let Some(place) = names.iter_mut().find(|place| place.is_empty()) else {
            return Err(name.clone());
        };
        place.clone_from(name);
    }
    Ok(names)
}

impl Part for Links {
    fn name(&self) -> &'static str {
        "links"
    }

    fn differences(&self, old: &Config, new: &Config) -> Vec<Change> {
        let mut changes = difference::links(old, new);
        if let Err(name) = self.places(new) {
            let how = "added, and no further link fits beside those of the start";
            changes.push(Change::restart(format!("link {name}"), how));
        }
        changes
    }

    fn stage(&self, old: &Config, new: &Config) -> Result<Box<dyn Staged>, Unable> {
        let names = self.places(new).map_err(|name| format!("link {name}: no place is free"))?;
        let then = self.setup().clone();
        let now = setup(new, &names, self.0.seed)?;
        let exchanged = self.planes().exchange(&then, &now).map_err(RunError::from)?;
        let neighbours = (&then.static_neighbours, &now.static_neighbours);
        if let Err(why) = self.planes().exchange_neighbours(neighbours.0, neighbours.1) {
            self.planes().undo(exchanged);
            return Err(RunError::Neighbour(why).into());
        }
        let before = then.static_neighbours;
        let configs = (old.clone(), new.clone());
        let links = self.clone();
        Ok(Box::new(StagedLinks { links, exchanged, before, names, setup: now, configs }))
    }
}

/// Exchanged links and routes.
struct StagedLinks {
    links: Links,
    exchanged: Exchanged,
    /// The static neighbours in force before.
    before: Vec<StaticNeighbour>,
    names: Vec<String>,
    setup: Setup,
    configs: (Config, Config),
}

impl Staged for StagedLinks {
    fn commit(self: Box<Self>) -> Result<Vec<Change>, Unable> {
        let pace = Pace { spin: self.setup.spin };
        *self.links.lock() = self.names;
        *self.links.setup() = self.setup;
        let (old, new) = &self.configs;
        *self.links.not_forwarding() = new.not_forwarding();
        self.links.planes().set_pace(pace).map_err(RunError::from)?;
        self.links.furnish_hosts(Some(old), new)?;
        // All parts have staged the description: handlers and addresses are there.
        self.links.planes().begin().map_err(RunError::from)?;
        Ok(self.exchanged.reopened().iter().map(reopened).collect())
    }

    fn undo(self: Box<Self>) {
        let planes = self.links.planes();
        // What was there a moment ago fits.
        let _fits = planes.exchange_neighbours(&self.setup.static_neighbours, &self.before);
        planes.undo(self.exchanged);
    }
}

/// The change to report for a link that was opened.
fn reopened(link: &ReopenedLink) -> Change {
    let (mode, why) = (&link.info.mode, &link.info.why);
    let how = if link.is_new {
        format!("opened by {mode}, {why}")
    } else {
        let pause = link.pause.as_millis();
        format!("opened anew by {mode}, {why}; it took no frames for at most {pause} ms")
    };
    Change::new(format!("link {}", link.name), how)
}

/// The link of a name. Places without a link have none.
pub(crate) fn link_of(names: &[String], name: &str) -> Option<LinkIndex> {
    let index = names.iter().position(|known| known == name && !name.is_empty())?;
    u16::try_from(index).ok().map(LinkIndex)
}

/// Octets of a packet over Ethernet (RFC 894).
const ETHERNET_MTU: usize = 1500;

/// What the planes of `config` are started with, for a question about it.
pub(crate) fn setup_of(config: &Config) -> Result<Setup, RunError> {
    setup(config, &first_names(config), 0)
}

/// The setup of the planes for `config`, with links at the places `names`.
fn setup(config: &Config, names: &[String], seed: u64) -> Result<Setup, RunError> {
    let mut setup = Setup::new(seed);
    setup.waits = true;
    setup.workers = usize::from(config.workers).max(1);
    setup.control_core = config.control_core.as_ref().map(|core| core.value.into());
    if let Some(most) = config.neighbours_max {
        setup.neighbours.neighbours = most;
    }
    if let Some(most) = config.routes_max {
        setup.routes_max = most;
    }
    if let Some(spin) = config.links.iter().map(|link| link.spin).max() {
        setup.spin = spin;
    }
    setup.links = link_setups(config, names)?;
    setup.routes = static_routes(config, names)?;
    setup.static_neighbours = static_neighbours(config, names);
    setup.reports = report_route(config);
    Ok(setup)
}

/// The way of devices' reports in the data plane: from their port of the own stack to the CoAP address of
/// the CSE above.
pub(crate) fn report_route(config: &Config) -> Option<ReportRoute> {
    let listen = config.devices.as_ref()?.stack.as_ref()?.value;
    let cse = config.cse.as_ref()?.registrar.as_ref()?.coap.as_ref()?.value;
    Some(ReportRoute { listen, cse })
}

/// Places for links that are added while the gateway runs: each has its layers from the start. The
/// kernel's follower knows shared links from the start, so these are exclusive.
const SPARE_PLACES: usize = 4;

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

/// The static neighbours of a description, whose links `check` has found.
fn static_neighbours(config: &Config, names: &[String]) -> Vec<StaticNeighbour> {
    let one = |neighbour: &config::StaticNeighbour| {
        let link = link_of(names, &neighbour.link.as_ref()?.value)?;
        let (address, station) = (neighbour.address.value, LinkAddress::ethernet(neighbour.mac));
        Some(StaticNeighbour { link, address, station })
    };
    config.neighbours.iter().filter_map(one).collect()
}

/// The routes of a description: among several for the same destinations, those with the lowest
/// metric, of which each flow keeps one next hop.
fn static_routes(config: &Config, names: &[String]) -> Result<Vec<StaticRoute>, RunError> {
    let mut routes: Vec<StaticRoute> = Vec::new();
    let (mut metrics, mut places) = (BTreeMap::new(), BTreeMap::new());
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
        let hop = WeightedHop { link, gateway: via, weight: route.weight };
        let to = match to.address() {
            IpAddr::V4(ip) => Prefix::new(ip, to.length()).map(RouteTo::V4),
            IpAddr::V6(ip) => Prefix::new(ip, to.length()).map(RouteTo::V6),
        };
        // `check` has refused prefixes that are too long.
        let Ok(to) = to else { continue };
        if *metrics.entry(to).or_insert(route.metric) != route.metric {
            continue;
        }
        if let Some(known) = places.get(&to).and_then(|place: &usize| routes.get_mut(*place)) {
            known.hops.push(hop);
        } else {
            places.insert(to, routes.len());
            routes.push(StaticRoute { to, hops: vec![hop] });
        }
    }
    Ok(routes)
}

/// A link's setup among the others of `config`, whose indices are in the order of `names`.
fn link_setup(
    index: LinkIndex,
    link: &config::Link,
    config: &Config,
    names: &[String],
) -> Result<LinkSetup, RunError> {
    let (mut mtu, mut mac) = (link.mtu, link.mac);
    let device = match &link.device {
        config::Device::Interface { name, mode } => {
            DeviceSetup::Interface(interface(index, link, (&name.value, *mode), config))
        }
        config::Device::Tap { name } => tap(index, link, &name.value, Framing::Ethernet),
        config::Device::Tun { name } => tap(index, link, &name.value, Framing::Ip),
        config::Device::Pcapng { read, write, pace } => {
            check_written(link, config)?;
            DeviceSetup::Capture(capture(index, link, (read.as_ref(), write.as_ref()), *pace)?)
        }
        config::Device::Dpdk { port } => DeviceSetup::Dpdk(DpdkConfig {
            index,
            port: port.value.clone(),
            mtu: packet_len_max(link),
            promiscuous: link.promiscuous,
        }),
        config::Device::Segment { name, impairment } => {
            DeviceSetup::Segment(segment(index, link, &name.value, impairment))
        }
        config::Device::Virtual { on, tag } => {
            let below = config.links.iter().find(|below| below.name.value == on.value);
            // It has the address and, unless it says less, the MTU of the link below.
            mtu = mtu.or(below.and_then(|below| below.mtu));
            mac = below.and_then(|below| below.mac);
            let below = link_of(names, on).unwrap_or(LinkIndex::NONE);
            DeviceSetup::Virtual(VirtualLink { link: index, below, tag: link_tag(tag) })
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
    setup.is_on_shared = link.below().is_some() && link.is_shared();
    setup.link_address = mac.map_or(LinkAddress::NONE, LinkAddress::ethernet);
    let pair = |address: &config::Located<config::Prefix>| {
        (address.value.address(), address.value.length())
    };
    setup.addresses = link.addresses.iter().map(pair).collect();
    Ok(setup)
}

/// Capture files as a link.
fn capture(
    index: LinkIndex,
    link: &config::Link,
    (read, write): (Option<&config::Located<String>>, Option<&config::Located<String>>),
    pace: config::ReplayPace,
) -> Result<CaptureConfig, RunError> {
    let path = |file: &config::Located<String>| PathBuf::from(&file.value);
    let read = read.map(path);
    // What is only written is Ethernet, as most links are.
    let framing = read.as_deref().map(capture_framing).transpose();
    let framing = framing.map_err(|source| RunError::of_link(link, source))?;
    Ok(CaptureConfig {
        index,
        name: link.name.value.clone(),
        read,
        write: write.map(path),
        speed: speed(pace),
        framing: framing.unwrap_or_default(),
        mtu: packet_len_max(link),
    })
}

/// A port of a segment in memory.
fn segment(
    index: LinkIndex,
    link: &config::Link,
    name: &str,
    impairment: &config::SegmentImpairment,
) -> MemoryConfig {
    MemoryConfig {
        index,
        name: link.name.value.clone(),
        segment: name.to_owned(),
        impairment: Impairment {
            delay: impairment.delay,
            jitter: impairment.jitter,
            loss: Chance::per_million(impairment.loss_per_million),
            ..Impairment::default()
        },
        seed: impairment.seed.unwrap_or_else(|| index.0.into()),
        mtu: packet_len_max(link),
    }
}

/// What marks the frames of a virtual link.
const fn link_tag(tag: &config::VirtualTag) -> LinkTag {
    match tag {
        config::VirtualTag::Vlan { id, priority } => {
            LinkTag::Vlan(VlanTag { id: id.value, priority: *priority })
        }
    }
}

/// The VLANs on a link.
fn vlans_on(link: &config::Link, config: &Config) -> Vec<u16> {
    let id = |other: &config::Link| match &other.device {
        config::Device::Virtual { on, tag: config::VirtualTag::Vlan { id, .. } }
            if on.value == link.name.value =>
        {
            Some(id.value)
        }
        _ => None,
    };
    config.links.iter().filter_map(id).collect()
}

/// Configuration to open the kernel's interface of a link.
fn interface(
    index: LinkIndex,
    link: &config::Link,
    (name, mode): (&str, config::Mode),
    config: &Config,
) -> LinkConfig {
    let mut device = LinkConfig::new(index, name);
    device.promiscuous = link.promiscuous;
    device.exclusive = link.exclusive;
    device.forwards_in_driver = link.forwards_in_driver;
    device.vlans = vlans_on(link, config);
    device.backend = match mode {
        config::Mode::Auto => Backend::Auto,
        config::Mode::Xdp => Backend::Xdp,
        config::Mode::XdpGeneric => Backend::XdpGeneric,
        config::Mode::Packet => Backend::PacketSocket,
    };
    device
}

/// A TAP or TUN interface of the name `name`.
fn tap(index: LinkIndex, link: &config::Link, name: &str, framing: Framing) -> DeviceSetup {
    let (interface, mtu) = (name.to_owned(), packet_len_max(link));
    DeviceSetup::Tap(TapConfig { index, interface, framing, mtu, up: true })
}

/// Maximum octets of a packet of a link whose device has no MTU of its own.
fn packet_len_max(link: &config::Link) -> usize {
    link.mtu.and_then(|mtu| usize::try_from(mtu).ok()).unwrap_or(ETHERNET_MTU)
}

/// The replay speed of a pace.
const fn speed(pace: config::ReplayPace) -> Speed {
    match pace {
        config::ReplayPace::Captured => Speed::Captured,
        config::ReplayPace::Fastest => Speed::Unlimited,
        config::ReplayPace::FramesPerSecond(rate) => Speed::FramesPerSecond(rate),
    }
}

/// Findings about devices of `config` that this program cannot open: capture files that cannot be read,
/// whose paths `place` resolves, and ports of DPDK in a build without it.
pub fn unfit_devices(config: &Config, place: impl Fn(&str) -> String) -> Vec<Diagnostic> {
    let finding = |link: &config::Link| match &link.device {
        config::Device::Pcapng { read: Some(file), .. } => {
            let error = capture_framing(Path::new(&place(&file.value))).err()?;
            let finding = Diagnostic::error(&codes::NO_CAPTURE, file.span, error.to_string());
            Some(finding.help(
                "name a capture in the format pcapng or pcap; its path begins at the folder of the \
                 description",
            ))
        }
        config::Device::Dpdk { port } => WITHOUT_DPDK.map(|why| {
            let message = format!("`{}` is a port of DPDK", port.value);
            Diagnostic::error(&codes::WITHOUT_DPDK, port.span, message).help(why)
        }),
        _ => None,
    };
    config.links.iter().filter_map(finding).collect()
}
