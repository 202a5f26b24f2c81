//! Messages on their way out and in: authenticated, where the mesh is not open.

use super::MeshNode;
use super::broadcast::PARTS_MAX;
use crate::edge::{Adjacency, MeshOutput};
use crate::identity::NodeId;
use crate::layout::CommonHeader;
use crate::message::Message;
use crate::trust::{AUTHENTICATION_LEN, MessageEnds, MessageRole, Verdict};
use core::time::Duration;
use gatewright_packet::{LinkAddress, LinkIndex};

/// Octets of a message with what authenticates it at the most: Ethernet's payload.
const MESSAGE_LEN_MAX: usize = 1_500;

/// Octets of the headers of a BROADCAST.
const BROADCAST_HEADERS_LEN: usize = CommonHeader::LEN + crate::layout::BroadcastHeader::LEN;

impl MeshNode {
    /// Octets of a packet for all nodes at the most.
    pub const fn broadcast_max(&self) -> usize {
        PARTS_MAX * self.broadcast_part_max()
    }

    /// Octets of a packet that one BROADCAST carries at the most.
    pub(super) const fn broadcast_part_max(&self) -> usize {
        let authentication = if self.authentication.is_some() { AUTHENTICATION_LEN } else { 0 };
        MESSAGE_LEN_MAX - BROADCAST_HEADERS_LEN - authentication
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
            authentication.seal(MessageEnds { from, to: to.map(|(_, node)| node) }, &mut octets);
        }
        let to = to.map(|(address, _)| address);
        self.output(MeshOutput::Send { link, to, octets });
    }

    /// Whether a message comes from a node that may take part, and is new. A node that is not known
    /// yet is challenged, and a challenge is answered.
    pub(super) fn is_authentic(
        &mut self,
        now: Duration,
        (at, from): (Adjacency, LinkAddress),
        octets: &[u8],
        message: &Message<'_>,
    ) -> bool {
        let own = self.settings.id;
        let Some(authentication) = &mut self.authentication else { return true };
        let length = CommonHeader::split(octets).map_or(0, |(head, _)| head.length());
        let end = CommonHeader::LEN + usize::from(length);
        let parts = octets.split_at_checked(end).unwrap_or((octets, &[]));
        let role = match *message {
            Message::Challenge(_) => MessageRole::Challenge,
            Message::ChallengeReply(nonce) => MessageRole::Reply(nonce),
            _ => MessageRole::Ordinary,
        };
        let verdict = authentication.judge(now, at, (from, own), parts, role);
        let is_fresh = !matches!(verdict, Verdict::Forged | Verdict::Replayed);
        if let Message::Challenge(nonce) = *message
            && is_fresh
            && authentication.may_challenge(now)
        {
            self.send(at.link, Some((from, at.node)), &Message::ChallengeReply(nonce));
        }
        match verdict {
            Verdict::Accepted => return true,
            Verdict::Forged => self.counters.forged += 1,
            Verdict::Replayed => self.counters.replayed += 1,
            Verdict::Unknown(nonce) => {
                self.counters.unknown_index += 1;
                if let Some(nonce) = nonce {
                    self.counters.challenges += 1;
                    self.send(at.link, Some((from, at.node)), &Message::Challenge(nonce));
                }
            }
        }
        false
    }
}
