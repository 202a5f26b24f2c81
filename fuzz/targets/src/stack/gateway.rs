//! The whole stack as a machine: any frames, on either of two links, at any times.

use gatewright_packet::{Batch, CHUNK_SIZE, CHUNK_SIZE_DATAGRAM, LinkIndex, Pool};
use gatewright_stack::{
    Address, AddressState, Graph, Host, Interface, Suite, SuiteLink, Wake, assemble, flow_of,
};
use gatewright_wire::MacAddress;
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

/// Chunks of the slab: what floods may hold, and room to go on.
const FRAMES: usize = 2048;

/// Whoever drives the fuzzed stack never sleeps.
struct Awake;

impl Wake for Awake {
    fn wake(&self) {}
}

/// Frames to a gateway with two links: each is a link and a pause (one octet), a length (one octet,
/// times four), and octets. A frame to the gateway's own station is made of every frame, so that
/// the fuzzer need not guess its address. At the end nothing may be lost that was not counted: all
/// chunks are home or wait within their bounds.
pub fn gateway(octets: &[u8]) {
    let Some(mut graph) = build() else { return };
    let mut now = Duration::from_secs(1);
    let mut exit = |_: LinkIndex, batch: &mut Batch| batch.clear();
    let mut rest = octets;
    while let Some((&[link_and_pause, quarter], behind)) = rest.split_first_chunk() {
        let len = (usize::from(quarter) * 4).min(behind.len());
        let (frame, behind) = behind.split_at(len);
        rest = behind;
        let link = LinkIndex(u16::from(link_and_pause & 1));
        now += Duration::from_millis(u64::from(link_and_pause >> 1).pow(2));
        let mut batch = Batch::default();
        let Some(mut packet) = graph.frames().packet_of(frame) else { break };
        if let Some(station) = packet.octets_mut().first_chunk_mut() {
            *station = station_of(link).0;
        }
        packet.meta_mut().ingress = link;
        // By this several workers would divide the frames.
        let _flow = flow_of(packet.octets());
        drop(batch.push(packet));
        graph.receive(link, &mut batch, now, &mut exit);
        if graph.poll_timeout().is_some_and(|at| at <= now) {
            graph.handle_timeouts(now, &mut exit);
        }
        graph.take_events().for_each(drop);
    }
    // Reassembly and neighbour caches hold at most their bounds; everything else is home.
    let held = graph.frames().capacity() - graph.frames().available();
    assert!(held <= FRAMES / 2 + 512, "{held} chunks are held");
}

fn station_of(link: LinkIndex) -> MacAddress {
    let [_, last] = link.0.to_be_bytes();
    MacAddress([2, 0, 0, 0, 0, last])
}

fn build() -> Option<Graph> {
    let links = [LinkIndex(0), LinkIndex(1)];
    let Suite { plan, layers, .. } = assemble(&links.map(SuiteLink::Ethernet), Arc::new(Awake), 1);
    let mut host = Host::new(64).ok()?;
    for link in links {
        let subnet = link.0 + 1;
        let [_, low] = subnet.to_be_bytes();
        let address =
            |ip: IpAddr, prefix_len| Address { ip, prefix_len, state: AddressState::Preferred };
        let addresses = vec![
            address(Ipv4Addr::new(10, 0, low, 1).into(), 24),
            address(Ipv6Addr::new(0xfd00, subnet, 0, 0, 0, 0, 0, 1).into(), 64),
            address(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, subnet).into(), 64),
        ];
        host.add_interface(Interface {
            name: format!("link{}", link.0),
            mac: station_of(link),
            mtu: 1500 - 100 * u32::from(link.0),
            addresses,
            link,
            promiscuous: false,
            up: true,
            forwarding: true,
            advertise: None,
            autoconfigure: link.0 == 0,
            dhcp: link.0 == 0,
            shared: false,
        })
        .ok()?;
    }
    let wiring = plan.wire(&[]).ok()?;
    let frames = Rc::new(Pool::new(FRAMES, CHUNK_SIZE).ok()?);
    let datagrams = Rc::new(Pool::new(8, CHUNK_SIZE_DATAGRAM).ok()?);
    Some(Graph::new(layers, wiring, host.view(), frames, datagrams))
}
