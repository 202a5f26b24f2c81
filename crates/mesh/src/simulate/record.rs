//! Messages that the nodes of a simulated mesh send, kept for a comparison with those of real nodes.

use super::world::MeshWorld;

/// Messages that are kept.
const KEPT_MAX: usize = 100_000;

/// A message that a node has put on a link.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SentMessage {
    /// The sender.
    pub from: usize,
    /// The node at the other end of the link.
    pub to: usize,
    /// The message without its Ethernet header.
    pub octets: Vec<u8>,
}

impl MeshWorld {
    /// Keeps the messages that are sent from now on, the first 100,000, whether they arrive or not; those of a
    /// world on the air are not kept.
    pub fn record_messages(&mut self) {
        self.record = Some(Vec::new());
    }

    /// The messages kept, in the order of sending.
    pub fn messages(&self) -> &[SentMessage] {
        self.record.as_deref().unwrap_or_default()
    }

    /// Keeps a message that a node sends at one of its ports.
    pub(super) fn record_message(&mut self, (from, port): (usize, usize), octets: &[u8]) {
        let Some(record) = self.record.as_mut().filter(|record| record.len() < KEPT_MAX) else {
            return;
        };
        let port = self.hosts.get(from).and_then(|host| host.ports.get(port));
        if let Some(to) = port.map(|port| port.peer) {
            record.push(SentMessage { from, to, octets: octets.to_vec() });
        }
    }
}
