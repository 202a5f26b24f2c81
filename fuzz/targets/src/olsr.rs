//! Routers of OLSR.

use core::time::Duration;
use gatewright_mesh::olsr::message::{OlsrMessage, OlsrPacket};
use gatewright_mesh::olsr::{OlsrInput, OlsrNode, OlsrSettings};
use gatewright_packet::LinkIndex;

/// A router that receives packets from two neighbours, with hysteresis and without. Each piece of
/// the input begins with a neighbour and what the link layer says of it, the milliseconds that pass, and the octets of its packet.
pub fn olsr(octets: &[u8]) {
    for hysteresis in [false, true] {
        let settings = OlsrSettings::new([10, 0, 0, 1].into(), 1);
        let mut node = OlsrNode::new(OlsrSettings { hysteresis, ..settings });
        let link = LinkIndex(0);
        let mut now = Duration::ZERO;
        node.handle(now, OlsrInput::InterfaceUp { link, address: [10, 0, 0, 1].into() });
        let mut rest = octets;
        while let Some((&[who, passes, len], after)) = rest.split_first_chunk() {
            let (packet, after) = after.split_at(usize::from(len).min(after.len()));
            rest = after;
            now += Duration::from_millis(u64::from(passes) * 100);
            let from = [10, 0, 0, 2 + (who & 1)].into();
            node.handle(now, OlsrInput::Received { link, from, octets: packet });
            // The link layer loses a neighbour, and finds it.
            match who >> 6 {
                1 => node.handle(now, OlsrInput::LinkLost { link, address: from }),
                2 => node.handle(now, OlsrInput::LinkFound { link, address: from }),
                _ => {}
            }
            node.handle(now, OlsrInput::Tick);
            for to in node.routes().keys().map(|to| to.address) {
                let around = node.route_avoiding(now, to, &[from]);
                assert!(around.is_none_or(|route| route.next_hop != from));
            }
            while node.poll_output().is_some() {}
            assert!(node.poll_timeout().is_some_and(|at| at > now));
            for (to, route) in node.routes() {
                assert!(route.hops > 0 && to.address != node.main_address());
            }
        }
    }
    if let Ok(packet) = OlsrPacket::decode(octets) {
        let whole: Vec<u8> = packet.messages.iter().flat_map(OlsrMessage::encode).collect();
        let again = OlsrPacket::encode(packet.sequence, &whole);
        assert_eq!(OlsrPacket::decode(&again), Ok(packet));
    }
}
