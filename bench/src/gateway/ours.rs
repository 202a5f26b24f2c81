//! The contestants of Gatewright: the gateway as users run it, and a relay as a layer of its own.

use super::world::{LOCAL, OWN_IP, OWN_MAC, RECEIVER_MAC, REMOTE};
use gatewright_link::{Backend, Link, LinkConfig, Mode, Opener};
use gatewright_packet::{Batch, CHUNK_SIZE, CHUNK_SIZE_DATAGRAM, LinkIndex, Pool};
use gatewright_planes::{Gateway, Series, Setup, UdpGateway, UdpGatewaySetup};
use gatewright_stack::{
    Address, AddressState, At, Binding, Graph, Host, Interface, Layer, Out, Side, Suite, SuiteLink,
    Target, Wake, assemble,
};
use gatewright_wire::{
    Checksum, EtherType, IpProtocol,
    ipv4::{Ipv4, Ipv4Fields},
    udp::{Udp, UdpFields, UdpMut},
};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LINKS: [LinkIndex; 2] = [LinkIndex(0), LinkIndex(1)];
/// Packets of the worker's slab.
const PACKETS: usize = 16_384;

/// Works as Gatewright's own gateway on g0 and g1, as users run it, until `stop`: a router, and
/// with `series` a UDP gateway. Refuses to run with its links in another mode than `wanted`.
pub(crate) fn gateway(
    (backend, wanted): (Backend, Mode),
    spin: Option<Duration>,
    series: Option<Series>,
    stop: &AtomicBool,
) -> Result<(), String> {
    let mut setup = Setup::new(42);
    for (name, ip) in ["g0", "g1"].into_iter().zip(OWN_IP) {
        setup.link(name, name).backend(backend).address(ip, 24);
    }
    setup.spin = spin.unwrap_or(setup.spin);
    let gateway = Gateway::open(&setup).map_err(|error| error.to_string())?;
    let relay = series.map(|series| {
        let setup = UdpGatewaySetup { listen: LOCAL.into(), server: REMOTE.into(), series };
        UdpGateway::start(gateway.sockets(), setup).map_err(|error| error.to_string())
    });
    let _relay = relay.transpose()?;
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let status = gateway.status().map_err(|error| error.to_string())?;
    match status.links.iter().find(|link| link.mode != wanted.to_string()) {
        Some(link) => Err(format!("wanted {wanted}, got {}", link.mode)),
        None => Ok(()),
    }
}

/// Nobody sleeps.
struct Awake;

impl Wake for Awake {
    fn wake(&self) {}
}

/// Sends every datagram on to [`REMOTE`], with new headers: what a relay of sockets does, as a
/// layer above UDP.
struct RelayLayer;

impl Layer for RelayLayer {
    fn name(&self) -> &'static str {
        "relay"
    }

    fn receive(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        for mut packet in batch.drain() {
            let length = u16::try_from(packet.len() + Udp::LEN).unwrap_or(u16::MAX);
            let udp = UdpFields {
                source_port: LOCAL.port(),
                destination_port: REMOTE.port(),
                length,
                checksum: 0,
            };
            let [_, own] = OWN_IP;
            let ip = Ipv4Fields::new(IpProtocol::UDP, own, *REMOTE.ip(), length + 20);
            if packet.prepend(&udp.emit()).is_err() {
                continue;
            }
            let mut sum = Checksum::pseudo_ipv4(own, *REMOTE.ip(), IpProtocol::UDP, length);
            sum.add(packet.octets());
            if let Some(header) = packet.octets_mut().first_chunk_mut() {
                UdpMut::of(header).set_checksum(sum.finish_udp());
            }
            let header: [u8; Ipv4::LEN] = ip.emit();
            packet.meta_mut().egress = LinkIndex::NONE;
            if packet.prepend(&header).is_ok() {
                out.push_or_drop(At::Local(EtherType::IPV4), packet);
            }
        }
    }

    fn transmit(&mut self, _: &mut Batch, _: &mut Out<'_>) {}
}

/// Binds the relay to its port.
fn add_relay(suite: &mut Suite) {
    let relay = suite.plan.add(RelayLayer.name(), None);
    suite.layers.push(Box::new(RelayLayer));
    let port = At::UdpPort(LOCAL.port());
    let ways = [
        (suite.udp, port, Side::Receive, relay),
        (relay, At::Local(EtherType::IPV4), Side::Transmit, suite.ipv4),
    ];
    for (from, at, side, to) in ways {
        let to = Target::Layer(to);
        suite.plan.bind(Binding { from: Some(from), at, side, link: None, to });
    }
}

fn graph(pool: &Rc<Pool>) -> Result<(Graph, Host), String> {
    let mut suite = assemble(&LINKS.map(SuiteLink::Ethernet), Arc::new(Awake), 42);
    add_relay(&mut suite);
    let [_, out] = LINKS;
    for cache in suite.neighbours.iter().filter(|cache| cache.link == out) {
        cache.v4.lock().set_permanent((*REMOTE.ip()).into(), RECEIVER_MAC);
    }
    let mut host = Host::new(1024).map_err(|error| error.to_string())?;
    for ((link, mac), ip) in LINKS.into_iter().zip(OWN_MAC).zip(OWN_IP) {
        let address = Address { ip: ip.into(), prefix_len: 24, state: AddressState::Preferred };
        let added = host.add_interface(Interface {
            link,
            name: format!("g{}", link.0),
            mac,
            mtu: 1500,
            addresses: vec![address],
            up: true,
            forwarding: true,
            ..Interface::default()
        });
        added.map_err(|error| error.to_string())?;
    }
    let datagrams = Pool::new(16, CHUNK_SIZE_DATAGRAM).map_err(|error| error.to_string())?;
    let wiring = suite.plan.wire(&[]).map_err(|error| error.to_string())?;
    let graph = Graph::new(suite.layers, wiring, host.view(), pool.clone(), Rc::new(datagrams));
    Ok((graph, host))
}

/// Works as a relay inside of the graph on g0 and g1 until `stop`: what an own layer above UDP can
/// do, on one worker that never sleeps.
pub(crate) fn layer(backend: Backend, wanted: Mode, stop: &AtomicBool) -> Result<(), String> {
    let pool = Rc::new(Pool::new(PACKETS, CHUNK_SIZE).map_err(|error| error.to_string())?);
    let (mut graph, _host) = graph(&pool)?;
    let opener = Opener::new(pool);
    let mut links: Vec<Box<dyn Link>> = Vec::new();
    for index in LINKS {
        let config = LinkConfig { backend, ..LinkConfig::new(index, &format!("g{}", index.0)) };
        let link = opener.open(&config).map_err(|error| error.to_string())?;
        if link.info().mode != wanted {
            return Err(format!("wanted {wanted}, got {}", link.info().mode));
        }
        links.push(link);
    }
    let start = Instant::now();
    let mut batch = Batch::default();
    while !stop.load(Ordering::Relaxed) {
        let now = start.elapsed();
        for (index, at) in LINKS.into_iter().zip(0..) {
            let Some(link) = links.get_mut(at) else { continue };
            if link.receive(now, &mut batch) == 0 {
                continue;
            }
            graph.receive(index, &mut batch, now, &mut |to: LinkIndex, sent: &mut Batch| {
                if let Some(link) = links.get_mut(usize::from(to.0)) {
                    link.transmit(now, sent);
                }
            });
        }
    }
    let received: u64 = links.iter_mut().map(|link| link.counters().received).sum();
    if received == 0 { Err("the links received nothing".to_owned()) } else { Ok(()) }
}
