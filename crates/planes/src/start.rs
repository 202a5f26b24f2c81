//! From a description to running threads: links are opened on the worker, where their frames live.

use crate::{
    control::{Control, Origin},
    gateway::GatewayError,
    kernel::{self, News, follow},
    neighbours::Neighbourhood,
    setup::{DeviceSetup, LinkSetup, Setup},
    sojourn::Sojourn,
    worker::{Command, Pace, Waker, Worker},
};
use gatewright_link::{Division, Link, LinkInfo, OpenError, Opener};
use gatewright_packet::{CHUNK_SIZE_DATAGRAM, Pool};
use gatewright_stack::{
    Address, AddressState, Drops, Event, Graph, Host, Interface, LinkNeighbours, Plan, Sockets,
    Suite, SuiteLink, View, Wake, assemble,
};
use gatewright_tables::{
    Map, MapWriter,
    records::{Neighbour, NeighbourKey},
};
use gatewright_wire::MacAddress;
use std::{
    net::{IpAddr, Ipv6Addr},
    rc::Rc,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread::JoinHandle,
    time::Instant,
};

/// Chunks for whole datagrams: reassembled ones, and copies for sockets.
const DATAGRAMS: usize = 64;

/// Events that wait for the control side at the most.
const EVENTS_MAX: usize = 1024;

/// A gateway whose worker runs.
pub(crate) struct Started {
    pub(crate) control: Control,
    pub(crate) commands: Sender<Command>,
    pub(crate) events: Receiver<Event>,
    pub(crate) waker: Arc<Waker>,
    pub(crate) sojourn: Arc<Sojourn>,
    pub(crate) sockets: Sockets,
    pub(crate) worker: JoinHandle<()>,
    /// What the kernel changes is heard here, where links are shared with it.
    pub(crate) news: Option<News>,
}

/// What the worker tells when its links are open.
struct Opened {
    plan: Plan,
    sockets: Sockets,
    links: Vec<LinkInfo>,
    drops: Vec<Drops>,
    graph_drops: Drops,
}

/// What the worker is given.
struct Order {
    setup: Setup,
    view: View,
    learnt: Option<MapWriter<NeighbourKey, Neighbour>>,
    permanent: Map<NeighbourKey, Neighbour>,
    division: Option<Arc<Division>>,
    commands: Receiver<Command>,
    events: SyncSender<Event>,
    waker: Arc<Waker>,
    sojourn: Arc<Sojourn>,
    opened: SyncSender<Result<Opened, GatewayError>>,
}

/// Opens a gateway.
pub(crate) fn start(setup: &Setup) -> Result<Started, GatewayError> {
    refuse_mixed(setup)?;
    let mut host = Host::with_random(setup.routes_max, seeds(setup.seed))?;
    let division = kernel::division(setup)?;
    let waker = Arc::new(Waker::new().map_err(|errno| GatewayError::System {
        action: "make an eventfd",
        source: errno.into(),
    })?);
    let sojourn = Arc::new(Sojourn::default());
    let (commands, orders) = channel();
    let (events, learnt) = sync_channel(EVENTS_MAX);
    let (opened, answer) = sync_channel(1);
    let order = Order {
        setup: setup.clone(),
        view: host.view(),
        learnt: host.take_neighbours(),
        permanent: host.tables().permanent,
        division: division.clone(),
        commands: orders,
        events,
        waker: Arc::clone(&waker),
        sojourn: Arc::clone(&sojourn),
        opened,
    };
    let worker = std::thread::Builder::new()
        .name("worker".to_owned())
        .spawn(move || work(order))
        .map_err(|source| GatewayError::System { action: "start a thread", source })?;
    let Opened { plan, sockets, links, drops, graph_drops } =
        answer.recv().map_err(|_| GatewayError::Ended)??;
    furnish(&mut host, setup, &links)?;
    let followed = division.map(|division| follow(setup, division, &mut host, commands.clone()));
    let (kernel, news) = followed.transpose()?.unzip();
    waker.wake();
    let names = setup.links.iter().map(|link| link.name.clone());
    let links = names.zip(links).collect();
    let mut control = Control::new(host, plan, links, drops, graph_drops);
    control.kernel = kernel;
    for route in &setup.routes {
        control.add_static(*route, Origin::Configured)?;
    }
    Ok(Started { control, commands, events: learnt, waker, sojourn, sockets, worker, news })
}

/// Two numbers for the tables, neither of which tells the layers' randomness, which begins with
/// `seed` itself.
const fn seeds(seed: u64) -> [u64; 2] {
    // Odd constants of SplitMix64 (Steele, Lea, Flood 2014): each number of 64 bits becomes another.
    [seed.wrapping_mul(0xbf58_476d_1ce4_e5b9), seed.wrapping_mul(0x94d0_49bb_1331_11eb)]
}

/// Refuses links that are shared with the kernel beside others.
fn refuse_mixed(setup: &Setup) -> Result<(), GatewayError> {
    let shared = setup.links.iter().find(|link| link.is_shared());
    let other = setup.links.iter().find(|link| !link.is_shared());
    if let (Some(shared), Some(other)) = (shared, other) {
        let (shared, other) = (shared.name.clone(), other.name.clone());
        return Err(GatewayError::Mixed { shared, other });
    }
    Ok(())
}

/// The worker's thread: opens everything, says so, and runs.
fn work(order: Order) {
    let Order {
        setup,
        view,
        learnt,
        permanent,
        division,
        commands,
        events,
        waker,
        sojourn,
        opened,
    } = order;
    let (Parts { links, opener, graph, neighbours }, told) =
        match build(&setup, view, division, &waker) {
            Ok(built) => built,
            Err(error) => {
                // The other side waits for just this.
                let _gone = opened.send(Err(error));
                return;
            }
        };
    if opened.send(Ok(told)).is_err() {
        return;
    }
    drop(opened);
    let pace = Pace { spin: setup.spin };
    let epoch = Instant::now();
    let up = vec![true; links.len()];
    let (closed, drops) = (vec![false; links.len()], graph.drops());
    let worker = Worker {
        links,
        opener,
        graph,
        neighbours: Neighbourhood::new(neighbours, learnt, permanent),
        epoch,
        pace,
        commands,
        events,
        waker,
        sojourn,
        up,
        tracing: None,
        closed,
        drops,
    };
    worker.run();
}

/// What the worker works with.
struct Parts {
    links: Vec<Box<dyn Link>>,
    opener: Opener,
    graph: Graph,
    neighbours: Vec<LinkNeighbours>,
}

/// Opens a link.
pub(crate) fn open(opener: &Opener, device: &DeviceSetup) -> Result<Box<dyn Link>, OpenError> {
    match device {
        DeviceSetup::Interface(device) => opener.open(device),
        DeviceSetup::Tap(device) => opener.open_tap(device),
    }
}

fn build(
    setup: &Setup,
    view: View,
    division: Option<Arc<Division>>,
    waker: &Arc<Waker>,
) -> Result<(Parts, Opened), GatewayError> {
    let frames = Rc::new(Pool::new(setup.frames, setup.chunk_size)?);
    let datagrams = Rc::new(Pool::new(DATAGRAMS, CHUNK_SIZE_DATAGRAM)?);
    let opener = Opener::new(Rc::clone(&frames));
    let opener = match division {
        Some(division) => opener.divided(division),
        None => opener,
    };
    let mut links = Vec::new();
    for link in &setup.links {
        let opened = open(&opener, &link.device);
        links
            .push(opened.map_err(|source| GatewayError::Link { name: link.name.clone(), source })?);
    }
    let indices: Vec<_> =
        setup.links.iter().map(|link| SuiteLink::Ethernet(link.device.index())).collect();
    let wake: Arc<dyn Wake> = Arc::<Waker>::clone(waker);
    let Suite { plan, layers, sockets, neighbours, .. } = assemble(&indices, wake, setup.seed);
    let wiring = plan.wire(&[])?;
    let graph = Graph::new(layers, wiring, view, frames, datagrams);
    let drops = plan.layers().filter_map(|(node, ..)| graph.drops_of(node)).collect();
    let infos = links.iter().map(|link| link.info().clone()).collect();
    let graph_drops = graph.drops();
    let opened = Opened { plan, sockets, links: infos, drops, graph_drops };
    Ok((Parts { links, opener, graph, neighbours }, opened))
}

/// Gives the host its interfaces and addresses.
fn furnish(host: &mut Host, setup: &Setup, infos: &[LinkInfo]) -> Result<(), GatewayError> {
    for (link, info) in setup.links.iter().zip(infos) {
        host.add_interface(interface(link, info))?;
    }
    Ok(())
}

/// What the network layers see of a link.
pub(crate) fn interface(link: &LinkSetup, info: &LinkInfo) -> Interface {
    let mac = link.mac.or(info.mac).unwrap_or(MacAddress::ZERO);
    let device_mtu = u32::try_from(info.mtu).unwrap_or(u32::MAX);
    let configured = |&(ip, prefix_len): &(IpAddr, u8)| Address {
        ip,
        prefix_len,
        // Used at once, while neighbours are asked whether they have it too: transit does not wait
        // for address probing.
        state: AddressState::Preferred,
    };
    let mut addresses: Vec<Address> = link.addresses.iter().map(configured).collect();
    if !link.is_shared()
        && !addresses
            .iter()
            .any(|address| matches!(address.ip, IpAddr::V6(ip) if ip.is_unicast_link_local()))
    {
        let ip = link_local(mac).into();
        addresses.push(Address { ip, prefix_len: 64, state: AddressState::Preferred });
    }
    Interface {
        link: link.device.index(),
        name: link.name.clone(),
        mac,
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

/// The link-local address made of a hardware address (RFC 4291 appendix A, RFC 2464 §5).
fn link_local(mac: MacAddress) -> Ipv6Addr {
    let interface = u64::from_be_bytes(mac.interface_identifier());
    Ipv6Addr::from_bits(0xfe80_u128 << 112 | u128::from(interface))
}
