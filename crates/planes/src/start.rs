//! Start of a gateway from its setup: its host, its workers, and the kernel's follower.

use crate::{
    control::{Control, InGraph, Origin},
    cores,
    drivers::Drivers,
    error::PlanesError,
    kernel::{self, Kernel, News},
    limits, process,
    setup::{LinkSetup, Setup},
};
use gatewright_data::{
    self as data, Clock, DataError, DataPlane, DataSetup, DeviceSetup, EventQueue, FoundPlane,
    Opened, WORKERS_MAX,
};
use gatewright_link::{ForwardingMaps, Framing, KernelTables, LinkInfo, Mode};
use gatewright_packet::{LinkAddress, LinkIndex};
use gatewright_part::EventSink;
use gatewright_stack::{
    Address, AddressState, AttachmentId, Host, Interface, Plan, Sockets, VirtualLink, Wake,
};
use std::{
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
    time::Instant,
};

/// A gateway with running workers.
pub(crate) struct Started {
    pub(crate) control: Control,
    pub(crate) plane: DataPlane,
    pub(crate) events: EventQueue,
    pub(crate) sockets: Sockets,
    /// Receives the kernel's changes, where links are shared with it.
    pub(crate) news: Option<News>,
    /// Whether its data plane ran before.
    pub(crate) adopted: bool,
}

/// A data plane that runs, with its host, before that is furnished.
pub(crate) struct Begun {
    pub(crate) plane: DataPlane,
    pub(crate) host: Host,
    pub(crate) plan: Plan,
    pub(crate) sockets: Sockets,
    pub(crate) links: Vec<(LinkIndex, LinkInfo)>,
    pub(crate) events: EventQueue,
    /// What the control plane before has left, if the data plane was adopted.
    pub(crate) adopted: Option<Adopted>,
}

/// What an adopted data plane has of the control plane before.
pub(crate) struct Adopted {
    /// The first id that no handler has.
    pub(crate) next: AttachmentId,
    /// Links that a command has taken down.
    pub(crate) down: Vec<LinkIndex>,
}

/// Starts the workers on threads of this process.
fn begin(setup: &Setup, data: &DataSetup, tables: &KernelTables) -> Result<Begun, PlanesError> {
    let mut host = Host::with_random(setup.routes_max, seeds(setup.seed))?;
    let clock = Clock::Real(Instant::now());
    let started = data::start(data, &mut host, tables, clock)?;
    let data::Started { workers, opened, events } = started;
    let mut opened = opened.into_iter();
    let Opened { plan, sockets, mut links, .. } = opened.next().ok_or(DataError::Ended)?;
    links.extend(opened.flat_map(|other| other.links));
    let plane = DataPlane::Threads(workers);
    Ok(Begun { plane, host, plan, sockets, links, events, adopted: None })
}

/// Opens a gateway, with the data plane that was found running, if there is one.
pub(crate) fn start(
    setup: &Setup,
    found: Option<FoundPlane>,
    log: &EventSink,
) -> Result<Started, PlanesError> {
    let begun = Instant::now();
    if !(1..=WORKERS_MAX).contains(&setup.workers) {
        return Err(PlanesError::Workers(setup.workers));
    }
    // Before any thread starts: threads inherit the core.
    let data = setup.data(cores::bind(setup)?);
    limits::check(setup, data.chunk_size, log);
    let division = match found.as_ref().map(FoundPlane::division).transpose()?.flatten() {
        Some(found) => Some(Arc::new(found)),
        None => kernel::division(setup)?,
    };
    // Drivers of a data plane that was found know devices of another memory, which its worker has.
    let reports = setup.reports.filter(|_| found.is_none());
    let drivers = Drivers::of(setup, reports);
    let maps = Drivers::maps(drivers.as_ref());
    if let (Some(found), Some(Err(why))) = (&found, &drivers) {
        // Its drivers would forward by the routes of before for ever.
        let what = format!("programs that forward, for which there are no maps now: {why}");
        return Err(PlanesError::OtherDataPlane { process: found.process(), what });
    }
    let Begun { plane, mut host, plan, sockets, links, events, adopted } =
        if let Some(own) = &setup.process {
            let kernel = (division.as_deref(), maps.clone());
            process::begin(setup, own, (&data, kernel, found), log)?
        } else {
            let (division, forwarding) = (division.clone(), maps.clone().into());
            let tables = KernelTables { division, forwarding, ..KernelTables::default() };
            begin(setup, &data, &tables)?
        };
    let links = infos(setup, &links)?;
    furnish(&mut host, setup, &links)?;
    if let Some(reports) = drivers.as_ref().and_then(|it| it.as_ref().ok()?.reports()) {
        host.tables_mut().set_drivers(reports);
    }
    let names = setup.links.iter().map(|link| link.name.clone());
    let mut control = Control::new(host, plan, names.zip(links).collect());
    let news = division.map(|division| control.follow_kernel(setup, division, plane.port()));
    let news = news.transpose()?;
    plane.wake();
    control.mtu_caps = LinkSetup::mtu_caps(&setup.links);
    add_routes(&mut control, setup, log)?;
    let is_adopted = adopted.is_some();
    if is_adopted {
        control.kernel.as_ref().map_or(Ok(()), Kernel::forget_others)?;
    }
    if let Some(Ok(drivers)) = drivers {
        control.forward_in_drivers(drivers, InGraph::at_start(is_adopted, setup.waits));
    }
    if let Some(adopted) = adopted {
        go_on(&mut control, &plane, (adopted, maps.ok()))?;
        process::log_adopted(log, plane.process().unwrap_or(0), begun.elapsed());
    }
    Ok(Started { control, plane, events, sockets, news, adopted: is_adopted })
}

/// Adds the routes of the description, and those that were set by command under the control plane
/// before.
fn add_routes(control: &mut Control, setup: &Setup, log: &EventSink) -> Result<(), PlanesError> {
    for route in &setup.routes {
        control.add_static(route.clone(), Origin::Configured)?;
    }
    for route in &setup.routes_by_command {
        // It fitted beside the routes of before.
        if let Err(error) = control.add_static(route.clone(), Origin::Command) {
            process::log_dropped(log, route.to, error);
        }
    }
    Ok(())
}

/// Puts the host in force at a data plane that was adopted, whose drivers forward by other `maps` from
/// now on: until here its workers had what the control plane before this one had set.
fn go_on(
    control: &mut Control,
    plane: &DataPlane,
    (Adopted { next, down }, maps): (Adopted, Option<Arc<ForwardingMaps>>),
) -> Result<(), PlanesError> {
    control.begin_ids(next);
    control.go_on_down(&down);
    // Programs of before read maps that nobody writes any more.
    maps.map_or(Ok(()), |maps| plane.exchange_maps(&maps))?;
    control.host.release();
    plane.wake();
    Ok(())
}

/// Two seeds for the tables; neither reveals the layers' randomness, which begins with `seed`
/// itself.
pub(crate) const fn seeds(seed: u64) -> [u64; 2] {
    // Odd constants of SplitMix64 (Steele, Lea, Flood 2014): each number of 64 bits becomes another.
    [seed.wrapping_mul(0xbf58_476d_1ce4_e5b9), seed.wrapping_mul(0x94d0_49bb_1331_11eb)]
}

/// The properties of a virtual link on the link `below`, which was opened as `device`.
fn virtual_info(own: VirtualLink, below: &LinkSetup, device: &LinkInfo) -> LinkInfo {
    let why = format!("{} on {}", own.tag, below.name);
    let link_address = below.link_address.or(device.link_address);
    LinkInfo { mode: Mode::Virtual, why, link_address, kernel_index: 0, ..device.clone() }
}

/// The properties of all links in order: the opened devices, and the virtual links on them.
fn infos(setup: &Setup, opened: &[(LinkIndex, LinkInfo)]) -> Result<Vec<LinkInfo>, PlanesError> {
    let device = |link| opened.iter().find(|(known, _)| *known == link).map(|(_, info)| info);
    let info = |link: &LinkSetup| {
        let DeviceSetup::Virtual(own) = link.device else {
            return device(link.device.index()).cloned().ok_or_else(|| DataError::Ended.into());
        };
        let below = setup.links.iter().find(|below| below.device.index() == own.below);
        match below.zip(device(own.below)) {
            Some((below, device)) if device.framing == Framing::Ethernet => {
                Ok(virtual_info(own, below, device))
            }
            _ => Err(PlanesError::NoTags { name: link.name.clone() }),
        }
    };
    setup.links.iter().map(info).collect()
}

/// Gives the host its interfaces and addresses.
fn furnish(host: &mut Host, setup: &Setup, infos: &[LinkInfo]) -> Result<(), PlanesError> {
    for (link, info) in setup.links.iter().zip(infos).filter(|(link, _)| !link.is_spare()) {
        host.add_interface(interface(link, info))?;
    }
    Ok(())
}

/// A link as the network layers see it.
pub(crate) fn interface(link: &LinkSetup, info: &LinkInfo) -> Interface {
    let link_address = link.link_address.or(info.link_address);
    let device_mtu = u32::try_from(info.mtu).unwrap_or(u32::MAX);
    let configured = |&(ip, prefix_len): &(IpAddr, u8)| Address {
        ip,
        prefix_len,
        // Used at once, while neighbours are asked whether they have it too: transit does not wait
        // for address probing.
        state: AddressState::Preferred,
    };
    let mut addresses: Vec<Address> = link.addresses.iter().map(configured).collect();
    let has_link_local = addresses
        .iter()
        .any(|address| matches!(address.ip, IpAddr::V6(ip) if ip.is_unicast_link_local()));
    // A link without link-layer addresses has nothing to make one of.
    if let Some(ip) = link_local(link_address)
        && !link.is_shared()
        && !has_link_local
    {
        let ip = ip.into();
        addresses.push(Address { ip, prefix_len: 64, state: AddressState::Preferred });
    }
    Interface {
        link: link.device.index(),
        name: link.name.clone(),
        link_address,
        mtu: link.mtu.map_or(device_mtu, |mtu| mtu.min(device_mtu)),
        addresses,
        up: true,
        promiscuous: link.device.promiscuous(),
        forwarding: link.forwarding,
        advertise: link.advertise.clone(),
        autoconfigure: link.autoconfigure,
        dhcp: link.dhcp,
        shared: link.is_shared(),
    }
}

/// The link-local address formed from a link-layer address (RFC 4291 §2.5.6 and appendix A, RFC 2464
/// §5, RFC 4944 §7).
fn link_local(address: LinkAddress) -> Option<Ipv6Addr> {
    let interface = u64::from_be_bytes(address.interface_identifier()?);
    Some(Ipv6Addr::from_bits(0xfe80_u128 << 112 | u128::from(interface)))
}
