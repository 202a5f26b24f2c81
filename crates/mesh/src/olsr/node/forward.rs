//! Messages of others: which are sent on (RFC 3626 §3.4.1), after a jitter and several in a packet.

use super::OlsrNode;
use crate::olsr::message::{OlsrHead, OlsrMessage};
use crate::olsr::sets::{DUPLICATES_MAX, SeenMessage};
use core::time::Duration;
use gatewright_packet::LinkIndex;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// How long a message is remembered (`DUP_HOLD_TIME`, RFC 3626 §18.3).
const SEEN_HOLD: Duration = Duration::from_secs(30);

/// Octets of messages that wait to be sent on at the most.
const QUEUE_OCTETS_MAX: usize = 65_536;

/// Messages that wait to be sent on.
#[derive(Clone, Debug, Default)]
pub(super) struct ForwardQueue {
    messages: Vec<Vec<u8>>,
    octets: usize,
    at: Option<Duration>,
}

impl ForwardQueue {
    /// When they are sent; `None` if there are none.
    pub(super) const fn due(&self) -> Option<Duration> {
        self.at
    }
}

impl OlsrNode {
    /// The default forwarding algorithm for a message that came from `from` on `link`.
    pub(super) fn forward(
        &mut self,
        now: Duration,
        link: LinkIndex,
        from: Ipv4Addr,
        message: &OlsrMessage<'_>,
    ) {
        // 1. "the sender interface address ... not detected to be in the symmetric 1-hop
        // neighborhood of the node"
        if !self.sets.is_symmetric(now, from) {
            self.counters.stranger += 1;
            return;
        }
        let OlsrHead { originator, sequence, .. } = message.head;
        // 2. and 3.: considered unless sent on before, or received on this interface before
        let known = self.sets.seen.get(&(originator, sequence));
        if known.is_some_and(|seen| seen.retransmitted || seen.links.contains(&link)) {
            return;
        }
        if known.is_none() && self.sets.seen.len() >= DUPLICATES_MAX {
            self.counters.duplicates_full += 1;
            return;
        }
        // 4. "If the sender interface address is an interface address of an MPR selector"
        let selected =
            self.sets.links.iter().any(|((_, at), tuple)| {
                *at == from && self.sets.selectors.contains_key(&tuple.main)
            });
        let retransmits = selected && message.head.ttl > 1;
        // 5. The duplicate tuple.
        let until = now + SEEN_HOLD;
        let seen = self.sets.seen.entry((originator, sequence)).or_insert_with(|| SeenMessage {
            until,
            retransmitted: false,
            links: BTreeSet::new(),
        });
        seen.until = until;
        seen.retransmitted |= retransmits;
        seen.links.insert(link);
        self.ends_at(until);
        if retransmits {
            self.queue(now, message);
        }
    }

    /// 6. to 8.: one hop less to go, one more made; on all interfaces.
    fn queue(&mut self, now: Duration, message: &OlsrMessage<'_>) {
        let OlsrHead { ttl, hops, .. } = message.head;
        let head =
            OlsrHead { ttl: ttl.saturating_sub(1), hops: hops.saturating_add(1), ..message.head };
        let octets = OlsrMessage { head, body: message.body }.encode();
        if self.forward.octets + octets.len() > QUEUE_OCTETS_MAX {
            self.counters.forward_full += 1;
            return;
        }
        self.counters.forwarded += 1;
        self.forward.octets += octets.len();
        self.forward.messages.push(octets);
        if self.forward.at.is_none() {
            self.forward.at = Some(now + self.random.time_below(self.settings.jitter_max()));
        }
    }

    /// Sends what has waited long enough.
    pub(super) fn send_forwarded(&mut self, now: Duration) {
        if self.forward.at.is_none_or(|at| at > now) {
            return;
        }
        let queue = core::mem::take(&mut self.forward);
        let most = self.settings.packet_octets_max;
        let mut packets: Vec<Vec<u8>> = Vec::new();
        for message in queue.messages {
            match packets.last_mut() {
                Some(packet) if packet.len() + message.len() <= most => {
                    packet.extend(message);
                }
                _ => packets.push(message),
            }
        }
        let links: Vec<LinkIndex> = self.interfaces.keys().copied().collect();
        for packet in packets {
            for link in &links {
                self.send_packet(*link, &packet);
            }
        }
    }
}
