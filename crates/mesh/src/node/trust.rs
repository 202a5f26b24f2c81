//! Messages on their way out and in: authenticated, where the mesh is not open.

use super::MeshNode;
use super::broadcast::PARTS_MAX;
use crate::bridge::BridgePort;
use crate::edge::MeshOutput;
use crate::identity::NodeId;
use crate::layout::CommonHeader;
use crate::message::Message;
use crate::trust::{
    Authentication, HeardPeer, Medium, MessageEnds, MessageRole, SIGNATURE_BLOCK_LEN,
    SignatureScope, Verdict,
};
use core::time::Duration;
use gatewright_packet::{LinkAddress, LinkIndex};

/// Octets of a message with what authenticates it at the most: Ethernet's payload.
const MESSAGE_LEN_MAX: usize = 1_500;

/// Octets of the headers of a BROADCAST.
const BROADCAST_HEADERS_LEN: usize = CommonHeader::LEN + crate::layout::BroadcastHeader::LEN;

impl MeshNode {
    /// Octets of a packet for all nodes at the most.
    pub fn broadcast_max(&self) -> usize {
        PARTS_MAX * self.broadcast_part_max()
    }

    /// Octets of a packet that one BROADCAST carries at the most.
    pub(super) fn broadcast_part_max(&self) -> usize {
        MESSAGE_LEN_MAX - BROADCAST_HEADERS_LEN - self.authentication_len()
    }

    /// Octets that authentication adds to a message at the most.
    pub(super) fn authentication_len(&self) -> usize {
        self.authentication.as_ref().map_or(0, Authentication::added_max)
    }

    /// Sends an encoded message to a neighbour, or to all neighbours of a link.
    pub(super) fn transmit(
        &mut self,
        link: LinkIndex,
        to: Option<(LinkAddress, NodeId)>,
        mut octets: Vec<u8>,
    ) {
        if let Some(authentication) = &mut self.authentication {
            let from = self.near.properties(link).address;
            let role = crate::message::role(&octets);
            let ends = MessageEnds { from, to: to.map(|(_, node)| node) };
            authentication.seal(ends, role, &mut octets);
        }
        let to = to.map(|(address, _)| address);
        self.output(MeshOutput::Send { link, to, octets });
    }

    /// Whether a message comes from a node that may take part, and is new. A node that is not known
    /// yet is challenged, and a challenge is answered.
    pub(super) fn is_authentic(
        &mut self,
        now: Duration,
        (at, from): (HeardPeer, LinkAddress),
        octets: &[u8],
        message: &Message<'_>,
    ) -> bool {
        let own = self.settings.id;
        let Some(authentication) = &mut self.authentication else { return true };
        let said = message.said().filter(|_| authentication.membership().is_some());
        // What its origin has said is followed by its signature, which is part of the message here.
        let signature = if said.is_some() { SIGNATURE_BLOCK_LEN } else { 0 };
        let length = CommonHeader::split(octets).map_or(0, |(head, _)| head.length());
        let end = CommonHeader::LEN + usize::from(length);
        let parts = octets.split_at_checked(end + signature).unwrap_or((octets, &[]));
        let role = match *message {
            Message::Challenge(_) => MessageRole::Challenge,
            Message::ChallengeReply(nonce) => MessageRole::Reply(nonce),
            _ => MessageRole::Ordinary,
        };
        let verdict = authentication.judge(now, at, (from, own), parts, role);
        if let Message::Challenge(nonce) = *message
            && authentication.may_answer(now, at, verdict)
        {
            self.send_back(at, from, &Message::ChallengeReply(nonce));
        }
        match verdict {
            Verdict::Accepted => {
                let block = parts.0.get(end..).unwrap_or_default();
                return said.is_none_or(|(origin, said)| self.is_said(now, origin, said, block));
            }
            Verdict::Limited => self.counters.signatures_limited += 1,
            Verdict::Forged => self.counters.forged += 1,
            Verdict::Replayed => self.counters.replayed += 1,
            Verdict::Unknown(nonce) => {
                self.counters.unknown_index += 1;
                if let Some(nonce) = nonce {
                    self.counters.challenges += 1;
                    self.send_back(at, from, &Message::Challenge(nonce));
                }
            }
        }
        false
    }

    /// Sends a message to the sender of another one, where that has arrived.
    fn send_back(&mut self, at: HeardPeer, from: LinkAddress, message: &Message<'_>) {
        let to = Some((from, at.node));
        match at.medium {
            Medium::Link(link) => self.send(link, to, message),
            Medium::Port(port) => self.send_on_port(port, to, message),
        }
    }

    /// Sends a message on the segment of a bridge port, to one port there or to all.
    pub(super) fn send_on_port(
        &mut self,
        port: BridgePort,
        to: Option<(LinkAddress, NodeId)>,
        message: &Message<'_>,
    ) {
        let Some(from) = self.bridge.address(port) else { return };
        let (_, mut octets) = self.encode(message);
        if let Some(authentication) = &mut self.authentication {
            let ends = MessageEnds { from, to: to.map(|(_, node)| node) };
            authentication.seal(ends, crate::message::role(&octets), &mut octets);
        }
        let to = to.map(|(address, _)| address);
        self.output(MeshOutput::SendHello { port, to, octets });
    }

    /// Whether an origin has said what a neighbour passes on; then its signature is passed on, too.
    fn is_said(&mut self, now: Duration, origin: NodeId, said: Vec<u8>, block: &[u8]) -> bool {
        let Some(authentication) = &mut self.authentication else { return true };
        match authentication.judge_origin(now, origin, &said, block) {
            Verdict::Accepted => {
                self.passing = Some((said, block.to_vec()));
                return true;
            }
            Verdict::Limited => self.counters.signatures_limited += 1,
            _ => self.counters.unsigned += 1,
        }
        false
    }

    /// The signature of the origin of a message: the own one, or the one with which it came.
    pub(super) fn origin_signature(&mut self, message: &Message<'_>) -> Vec<u8> {
        let membership = self.authentication.as_ref().and_then(Authentication::membership);
        let Some((own, (origin, said))) = membership.zip(message.said()) else { return Vec::new() };
        if origin == self.settings.id {
            return own.sign(SignatureScope::Origin, &[&said]);
        }
        match &self.passing {
            Some((passing, block)) if *passing == said => block.clone(),
            // Nobody accepts it: no step of the machine says later what others have said.
            _ => {
                self.counters.unsigned += 1;
                Vec::new()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::{LinkProperties, MeshInput, MeshSettings, PathClass};
    use crate::identity::{PathId, Reason};
    use crate::message::{Profile, RouteReply, Sender};
    use crate::trust::{MeshMembers, MeshNodeKey, MeshTrust};
    use gatewright_wire::mpls::Label;

    const LINK: LinkIndex = LinkIndex(0);

    fn address(index: usize) -> LinkAddress {
        LinkAddress::ethernet([2, 0, 0, 0, 0, u8::try_from(index).unwrap()])
    }

    fn key(index: usize) -> MeshNodeKey {
        MeshNodeKey::of_seed([u8::try_from(index).unwrap(); 32]).unwrap()
    }

    /// Members on one segment that have heard each other.
    fn members(count: usize) -> Vec<MeshNode> {
        let listed = (0..count).map(|index| key(index).public()).collect();
        let members = MeshMembers { listed, ..MeshMembers::default() };
        let node = |index| {
            let mut settings = MeshSettings::new(NodeId(0), 1, Profile::Default);
            settings.trust = MeshTrust::Pki(Box::new((key(index), members.clone())));
            let mut node = MeshNode::new(settings);
            let address = address(index);
            let properties = LinkProperties { address, ..LinkProperties::default() };
            node.handle(Duration::ZERO, MeshInput::LinkUp { link: LINK, properties });
            node
        };
        let mut nodes: Vec<_> = (0..count).map(node).collect();
        for second in 1..8 {
            let now = Duration::from_secs(second);
            for node in &mut nodes {
                node.handle(now, MeshInput::Tick);
            }
            settle(&mut nodes, now);
        }
        nodes
    }

    /// Delivers everything; the messages that a node has sent, in order.
    fn settle(nodes: &mut [MeshNode], now: Duration) -> Vec<(usize, Vec<u8>)> {
        let mut all = Vec::new();
        loop {
            let mut sent = Vec::new();
            for (index, node) in nodes.iter_mut().enumerate() {
                while let Some(output) = node.poll_output() {
                    if let MeshOutput::Send { to, octets, .. } = output {
                        sent.push((index, to, octets));
                    }
                }
            }
            if sent.is_empty() {
                return all;
            }
            for (from, to, octets) in sent {
                for other in (0..nodes.len()).filter(|&other| other != from) {
                    if to.is_none_or(|to| to == address(other)) {
                        let (from, octets) = (address(from), &octets[..]);
                        nodes[other].handle(now, MeshInput::Received { link: LINK, from, octets });
                    }
                }
                all.push((from, octets));
            }
        }
    }

    /// A message of member 1 for member 0 with a right trailer, and a signature behind what it says.
    fn sealed(liar: &mut MeshNode, message: &Message<'_>, to: NodeId, block: &[u8]) -> Vec<u8> {
        let sender = Sender { node: liar.id(), epoch: 1, sequence: 9_999 };
        let mut octets = message.encode(sender, Profile::Default);
        octets.extend(block);
        let ends = MessageEnds { from: address(1), to: Some(to) };
        let authentication = liar.authentication.as_mut().unwrap();
        authentication.seal(ends, MessageRole::Ordinary, &mut octets);
        octets
    }

    /// Member 1 is between the others: it can neither answer for member 2, nor change what that has
    /// answered, nor report in its name. Its own trailer is right each time.
    #[test]
    fn a_member_cannot_speak_for_another() {
        let now = Duration::from_secs(8);
        let mut nodes = members(3);
        let [own, between, target] = [0, 1, 2].map(|index| nodes[index].id());
        let (class, packet): (_, &[u8]) = (PathClass::BULK, b"packet");
        nodes[0].handle(now, MeshInput::Packet { destination: target, class, packet });
        let sent = settle(&mut nodes, now);
        let is_reply = |(from, octets): &&(usize, Vec<u8>)| *from == 2 && octets[1] == 3;
        let octets = &sent.iter().find(is_reply).unwrap().1;
        let Ok((_, Message::Reply(said))) = Message::decode(octets, Profile::Default) else {
            panic!("no reply")
        };
        let end = CommonHeader::LEN + usize::from(u16::from_be_bytes([octets[2], octets[3]]));
        let of_target = octets[end..end + SIGNATURE_BLOCK_LEN].to_vec();

        let mut liar = nodes.remove(1);
        let reply = |number, cost| {
            let path = PathId { origin: own, target, number };
            let (label, record) = (Label(100), vec![between]);
            Message::Reply(RouteReply { path, label, position: 0, cost, record, ..said.clone() })
        };
        let invented = reply(said.path.number + 1, said.cost);
        let PathId { number, .. } = said.path;
        let path = PathId { origin: own, target, number };
        let error = Message::PathEnd { path, reporter: target, reason: Reason::SILENT };
        let sign = |liar: &MeshNode, message: &Message<'_>| {
            let membership = liar.authentication.as_ref().and_then(Authentication::membership);
            let said = message.said().unwrap().1;
            membership.unwrap().sign(SignatureScope::Origin, &[&said])
        };
        let (of_liar, none) = (sign(&liar, &invented), vec![0; SIGNATURE_BLOCK_LEN]);
        let cheaper = reply(number, 0);
        let error_of_liar = sign(&liar, &error);
        let lies = [
            (&invented, &of_target, "another's signature of something else"),
            (&invented, &of_liar, "the own signature"),
            (&invented, &none, "no signature"),
            (&cheaper, &of_target, "a cheaper path"),
            (&error, &error_of_liar, "an error in another's name"),
        ];
        let labels = nodes[0].labels().count();
        for (count, (message, block, what)) in (1..).zip(lies) {
            let octets = sealed(&mut liar, message, own, block);
            let from = address(1);
            nodes[0].handle(now, MeshInput::Received { link: LINK, from, octets: &octets });
            let counters = nodes[0].counters();
            assert_eq!((counters.unsigned, counters.forged), (count, 0), "{what}");
        }
        assert_eq!(nodes[0].labels().count(), labels);
        assert!(nodes[0].paths().any(|known| known == path));
    }
}
