//! When a node is due.

use super::establish::Unacknowledged;
use super::{Bridge, Broadcasts, Destination, Echoes, MeshNode, Recovery, Requests};
use crate::identity::NodeId;
use core::time::Duration;
use std::collections::BTreeMap;

impl MeshNode {
    /// Latest time of the next [`MeshInput::Tick`].
    pub fn poll_timeout(&self) -> Option<Duration> {
        let messages = |all: &BTreeMap<u32, Unacknowledged>| {
            all.values().map(|message| message.repeat_at).min()
        };
        let destinations = |all: &BTreeMap<NodeId, Destination>| {
            all.values().filter_map(Destination::poll_timeout).min()
        };
        let parts = [
            self.near.alive_due(),
            self.near.neighbours_due(self.settings.alive_missed_max),
            self.unacknowledged.due_at(messages),
            self.broadcasts.due_at(Broadcasts::poll_timeout),
            self.destinations.due_at(destinations),
            self.requests.due_at(Requests::poll_timeout),
            self.echoes.due_at(Echoes::poll_timeout),
            self.recovery.due_at(Recovery::poll_timeout),
            self.bridge.due_at(Bridge::poll_timeout),
            self.routing.poll_timeout(),
            self.sweep_at,
        ];
        parts.into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::BridgePort;
    use crate::edge::{
        LinkProperties, MeshInput, MeshOutput, MeshRouting, MeshSettings, PathClass,
    };
    use crate::message::Profile;
    use gatewright_packet::{LinkAddress, LinkIndex};
    use gatewright_wire::mpls::Label;
    use proptest::prelude::*;

    const LINKS: [LinkIndex; 2] = [LinkIndex(0), LinkIndex(1)];
    const PORT: BridgePort = BridgePort(0);

    fn address(index: usize) -> LinkAddress {
        LinkAddress::ethernet([2, 0, 0, 0, 0, u8::try_from(index).unwrap()])
    }

    fn link_up(link: LinkIndex, index: usize) -> MeshInput<'static> {
        let address = address(index);
        let properties = LinkProperties { address, ..LinkProperties::default() };
        MeshInput::LinkUp { link, properties }
    }

    fn node(index: usize, profile: Profile, routing: MeshRouting) -> MeshNode {
        let id = NodeId(u64::try_from(index).unwrap() + 1);
        let mut settings = MeshSettings::new(id, 1, profile);
        settings.routing = routing;
        settings.path_idle = Duration::from_secs(4);
        let mut node = MeshNode::new(settings);
        for link in LINKS {
            node.handle(Duration::ZERO, link_up(link, index));
        }
        node
    }

    /// The node's answer when everything is computed anew.
    fn anew(node: &mut MeshNode) -> Option<Duration> {
        // What is borrowed to be changed keeps no time.
        let _ = (&mut *node.near.links, &mut *node.near.all, &mut *node.unacknowledged);
        let _ = (&mut *node.destinations, &mut *node.requests, &mut *node.echoes);
        let _ = (&mut *node.recovery, &mut *node.bridge, &mut *node.broadcasts);
        node.poll_timeout()
    }

    /// One thing that happens: what, to which node, and a number for the rest.
    fn input(kind: u8, number: u16, index: usize) -> MeshInput<'static> {
        let link = LINKS[usize::from(number) % LINKS.len()];
        let destination = NodeId(u64::from(number % 5) + 1);
        match kind {
            0 => MeshInput::LinkDown { link },
            1 => link_up(link, index),
            2 => MeshInput::PortUp { port: PORT, address: address(index) },
            3 => MeshInput::PortDown { port: PORT },
            4 => MeshInput::Broadcast { from: None, packet: b"to all" },
            5 => MeshInput::Echo {
                token: crate::EchoToken(number.into()),
                destination,
                class: PathClass::BULK,
                ttl: 8,
            },
            6 => MeshInput::TimerLateness { p999: Duration::from_millis(number.into()) },
            7 => MeshInput::LabelRefused { label: Label(number.into()) },
            8 | 9 => MeshInput::Tick,
            _ => MeshInput::Packet { destination, class: PathClass::BULK, packet: b"packet" },
        }
    }

    /// Delivers what the nodes have sent, but for one frame of `lossy`.
    fn deliver(nodes: &mut [MeshNode], now: Duration, lossy: usize) {
        for round in 0..50 {
            let mut sent = Vec::new();
            for (index, node) in nodes.iter_mut().enumerate() {
                while let Some(output) = node.poll_output() {
                    match output {
                        MeshOutput::Send { link, to, octets } => {
                            sent.push((index, Some(link), to, octets));
                        }
                        MeshOutput::SendHello { to, octets, .. } => {
                            sent.push((index, None, to, octets));
                        }
                        _ => {}
                    }
                }
            }
            for (number, (from, link, to, octets)) in sent.into_iter().enumerate() {
                for (index, node) in nodes.iter_mut().enumerate() {
                    let is_lost = (number + round + index).is_multiple_of(lossy);
                    if index == from || is_lost || to.is_some_and(|to| to != address(index)) {
                        continue;
                    }
                    let (from, octets) = (address(from), &octets[..]);
                    node.handle(
                        now,
                        match link {
                            Some(link) => MeshInput::Received { link, from, octets },
                            None => MeshInput::PortHello { port: PORT, from, octets },
                        },
                    );
                    assert_eq!(node.poll_timeout(), anew(node));
                }
            }
        }
    }

    proptest! {
        /// Whatever happens, and with lost frames, what is kept is what is computed.
        #[test]
        fn the_kept_time_is_the_computed_one(
            steps in proptest::collection::vec((0_u8..14, 0_usize..3, any::<u16>()), 1..60),
            lossy in 2_usize..40,
            classic: bool,
            olsr: bool,
        ) {
            let profile = if classic { Profile::Classic } else { Profile::Default };
            let routing = if olsr { MeshRouting::Olsr } else { MeshRouting::OnDemand };
            let mut nodes: Vec<_> = (0..3).map(|index| node(index, profile, routing)).collect();
            let mut now = Duration::ZERO;
            for (kind, index, number) in steps {
                now += Duration::from_millis(u64::from(number) % 1_500);
                for node in &mut nodes {
                    if node.poll_timeout().is_some_and(|due| due <= now) {
                        node.handle(now, MeshInput::Tick);
                    }
                }
                nodes[index].handle(now, input(kind, number, index));
                prop_assert_eq!(nodes[index].poll_timeout(), anew(&mut nodes[index]));
                deliver(&mut nodes, now, lossy);
            }
        }
    }
}
