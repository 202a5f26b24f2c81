//! What authentication costs: a message from one node to another one, with a MAC and without.

use bench::{Bench, Contestant, nanoseconds_each};
use gatewright_mesh::{
    LinkProperties, MeshInput, MeshKeys, MeshNode, MeshOutput, MeshSettings, MeshTrust, NodeId,
    Profile,
};
use gatewright_packet::{LinkAddress, LinkIndex};
use std::time::Duration;

const MESSAGES: usize = 20_000;
/// A broadcast that hosts send often: an ARP request, padded.
const PACKET: [u8; 60] = [0; 60];
const LINK: LinkIndex = LinkIndex(0);

/// Two nodes that have heard each other.
struct Neighbours {
    nodes: [MeshNode; 2],
    now: Duration,
}

fn address(node: usize) -> LinkAddress {
    LinkAddress::ethernet([2, 0, 0, 0, 0, u8::from(node == 1)])
}

impl Neighbours {
    fn new(trust: &MeshTrust) -> Self {
        let node = |number: usize| {
            let id = NodeId(1 + u64::from(number == 1));
            let mut settings = MeshSettings::new(id, 1, Profile::Default);
            settings.trust = trust.clone();
            let mut node = MeshNode::new(settings);
            let properties =
                LinkProperties { address: address(number), ..LinkProperties::default() };
            node.handle(Duration::ZERO, MeshInput::LinkUp { link: LINK, properties });
            node
        };
        let mut this = Self { nodes: [node(0), node(1)], now: Duration::ZERO };
        for _ in 0..50 {
            this.now += Duration::from_millis(100);
            for node in &mut this.nodes {
                node.handle(this.now, MeshInput::Tick);
            }
            this.exchange();
        }
        this
    }

    /// Delivers what the nodes have sent, until nobody sends any more; the packets delivered.
    fn exchange(&mut self) -> usize {
        let mut delivered = 0;
        loop {
            let mut sent = false;
            for from in 0..2 {
                let [first, second] = &mut self.nodes;
                let (own, other) = if from == 0 { (first, second) } else { (second, first) };
                while let Some(output) = own.poll_output() {
                    if let MeshOutput::Send { octets, .. } = &output {
                        let (from, octets) = (address(from), octets.as_slice());
                        other.handle(self.now, MeshInput::Received { link: LINK, from, octets });
                        sent = true;
                    }
                    delivered += usize::from(matches!(output, MeshOutput::Deliver { .. }));
                }
            }
            if !sent {
                return delivered;
            }
        }
    }

    /// Nanoseconds of a message: made, sent, received and delivered.
    fn message_ns(&mut self) -> f64 {
        nanoseconds_each(MESSAGES, || {
            let mut delivered = 0;
            for _ in 0..MESSAGES {
                self.nodes[0].handle(self.now, MeshInput::Broadcast { packet: &PACKET });
                delivered += self.exchange();
            }
            assert_eq!(delivered, MESSAGES, "a message was not accepted");
        })
    }
}

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let keys = MeshKeys::parse(&"5a".repeat(32)).map_err(|error| error.to_string())?;
    let mut open = Neighbours::new(&MeshTrust::Open);
    let mut psk = Neighbours::new(&MeshTrust::Psk(keys));
    bench.interleave(vec![
        Contestant::new("message_open_ns", "ns", || open.message_ns()),
        Contestant::new("message_psk_ns", "ns", || psk.message_ns()),
    ]);
    bench.difference("message_mac_ns", "message_psk_ns", "message_open_ns");
    bench.note(
        "message_mac_ns: what trust = \"psk\" adds to a message of 100 octets at its sender and its \
         receiver together; no bound",
    );
    Ok(())
}
