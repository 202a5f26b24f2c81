//! A link layer of one's own in place of Ethernet: a point-to-point line whose frames are a packet
//! behind its EtherType, two octets. The rest of the suite stays as it is.
//!
//! `cargo run -p gatewright-stack --example own_layer`: the links are in memory, nothing is needed.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use gatewright_packet::{Arrival, Batch, CHUNK_SIZE, CHUNK_SIZE_DATAGRAM, LinkIndex, Pool};
use gatewright_stack::{
    Address, AddressState, At, Graph, Host, Interface, Layer, Out, Reason, Suite, SuiteLink,
    UNCLAIMED, Wake, assemble,
};
use gatewright_wire::{EtherType, IpProtocol, ipv4::Ipv4Fields};
use std::{error::Error, net::Ipv4Addr, rc::Rc, sync::Arc, time::Duration};

/// The frame is shorter than its header, or the packet has no room for one.
const NO_HEADER: Reason = Reason("no-header");

/// The line between two stations: whoever sends, the other one is meant.
#[derive(Debug)]
struct Line(LinkIndex);

impl Layer for Line {
    fn name(&self) -> &'static str {
        "line"
    }

    fn receive(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        for mut packet in batch.drain() {
            let Some(header) = packet.octets().first_chunk::<2>() else {
                out.drop(NO_HEADER, packet);
                continue;
            };
            let ether_type = EtherType(u16::from_be_bytes(*header));
            packet.strip(header.len());
            let meta = packet.meta_mut();
            (meta.ingress, meta.arrival, meta.ether_type) =
                (self.0, Arrival::Unicast, ether_type.0);
            out.push_or_drop(At::EtherType(ether_type), packet);
        }
    }

    fn transmit(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        for mut packet in batch.drain() {
            let ether_type = packet.meta().ether_type.to_be_bytes();
            if packet.prepend(&ether_type).is_err() {
                out.drop(NO_HEADER, packet);
            } else if let Err(packet) = out.push_down(self.0, packet) {
                out.drop(UNCLAIMED, packet);
            }
        }
    }
}

/// Nobody waits: the example looks by itself.
struct Asleep;

impl Wake for Asleep {
    fn wake(&self) {}
}

/// A frame with the link that it leaves by.
pub(crate) type Frame = (LinkIndex, Vec<u8>);

/// What a gateway between two lines, 10.0.0.0/24 and 10.0.1.0/24, sends when `frame` comes by the
/// first.
pub(crate) fn forward(frame: &[u8]) -> Result<Vec<Frame>, Box<dyn Error>> {
    let links = [LinkIndex(0), LinkIndex(1)];
    let suite = assemble(&links.map(SuiteLink::Ethernet), Arc::new(Asleep), 1);
    let Suite { plan, mut layers, .. } = suite;
    // The layers that stand on one link are the link layers.
    for ((.., link), layer) in plan.layers().zip(&mut layers) {
        if let Some(link) = link {
            *layer = Box::new(Line(link));
        }
    }
    let mut host = Host::new(16)?;
    for link in links {
        let [low, _] = link.0.to_le_bytes();
        let (ip, state) = (Ipv4Addr::new(10, 0, low, 1).into(), AddressState::Preferred);
        let addresses = vec![Address { ip, prefix_len: 24, state }];
        let (mtu, up, forwarding) = (1500, true, true);
        let interface = Interface { link, mtu, up, forwarding, addresses, ..Interface::default() };
        host.add_interface(interface)?;
    }
    let frames = Rc::new(Pool::new(64, CHUNK_SIZE)?);
    let datagrams = Rc::new(Pool::new(4, CHUNK_SIZE_DATAGRAM)?);
    let mut graph = Graph::new(layers, plan.wire(&[])?, host.view(), frames, datagrams);
    let mut batch = Batch::default();
    let packet = graph.frames().packet_of(frame).ok_or("the frame is larger than a chunk")?;
    batch.push(packet).map_err(|_| "an empty batch is full")?;
    let mut sent = Vec::new();
    let mut exit = |link, batch: &mut Batch| {
        sent.extend(batch.drain().map(|packet| (link, packet.octets().to_vec())));
    };
    graph.receive(links[0], &mut batch, Duration::ZERO, &mut exit);
    Ok(sent)
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let (from, to) = (Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 1, 2));
    let packet = Ipv4Fields::new(IpProtocol::UDP, from, to, 20).emit_with_checksum();
    let frame = [&EtherType::IPV4.0.to_be_bytes()[..], &packet].concat();
    for (link, frame) in forward(&frame)? {
        println!("link {link}: {frame:02x?}");
    }
    Ok(())
}
