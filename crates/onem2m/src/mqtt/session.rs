//! One connection to a broker, from the first octet to its end.

use super::packet::{self, Packet, PacketError};
use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

/// Publications that may be unacknowledged at the same time.
const UNACKNOWLEDGED_MAX: usize = 1_024;
/// How long a broker may take to accept connection and subscriptions.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// Parameters of a connection.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MqttSettings {
    /// Client identifier at the broker; two connections with the same one end each other.
    pub client: String,
    /// Whether the broker drops the session when the connection ends.
    pub clean: bool,
    /// After so long without a word a ping is sent; half as long again without an answer is the
    /// end. Whole seconds count.
    pub keep_alive: Duration,
    /// What the broker publishes when the connection is lost.
    pub will: Option<MqttWill>,
    /// User and password, if the broker wants them.
    pub credentials: Option<(String, String)>,
    /// Topic filters to subscribe to; none if nothing is to be received.
    pub filters: Vec<String>,
    /// Octets of a packet that are taken. A longer publication is passed over and acknowledged.
    pub packet_octets_max: usize,
}

/// A last will (MQTT 3.1.1 §3.1.2.5): published at quality of service 1, and retained.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MqttWill {
    /// The topic.
    pub topic: String,
    /// The payload.
    pub payload: Vec<u8>,
}

/// Input to a session.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// Octets from the broker, in any split.
    Octets(&'a [u8]),
    /// This is to be published. Without a connection, or when too much is unacknowledged, it is
    /// dropped and counted: whoever waits for an answer asks again.
    Publish {
        /// The topic.
        topic: &'a str,
        /// The payload.
        payload: &'a [u8],
        /// Whether the broker keeps it for later subscribers.
        retain: bool,
    },
    /// The connection is to end.
    Leave,
    /// Only time has passed.
    Tick,
}

/// Output of a session.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Output {
    /// Send these octets.
    Send(Vec<u8>),
    /// Connected and subscribed.
    Ready,
    /// A received publication.
    Arrived {
        /// The topic.
        topic: String,
        /// The payload.
        payload: Vec<u8>,
    },
    /// A publication longer than [`MqttSettings::packet_octets_max`] was passed over.
    Oversized,
    /// Close the connection: nothing more comes.
    End(End),
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum End {
    /// This side ended it.
    #[error("left")]
    Left,
    /// The broker refused the connection (MQTT 3.1.1 §3.2.2.3).
    #[error("refused by the broker with code {0}")]
    Refused(u8),
    /// The broker refused a subscription.
    #[error("a subscription was refused by the broker")]
    SubscriptionRefused,
    /// The broker timed out.
    #[error("the broker is silent")]
    Silent,
    /// The broker sent malformed packets.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// A name or a filter is too long for the protocol: misuse.
    #[error("a name is too long for MQTT")]
    Misuse,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    Connecting,
    Subscribing,
    Ready,
    Ended,
}

/// An MQTT session over one connection.
#[derive(Debug)]
pub struct MqttSession {
    settings: MqttSettings,
    stage: Stage,
    received: Vec<u8>,
    /// Octets still to come of a publication that is passed over.
    passing: usize,
    outputs: VecDeque<Output>,
    next_id: u16,
    unacknowledged: BTreeSet<u16>,
    dropped: u64,
    /// When to send a ping, or to give up.
    due: Duration,
    /// Whether a ping is unanswered.
    pinged: bool,
}

impl MqttSession {
    /// A connection that begins at `now`: the transport is there, nothing was said.
    pub fn new(now: Duration, settings: MqttSettings) -> Self {
        let mut session = Self {
            stage: Stage::Connecting,
            received: Vec::new(),
            passing: 0,
            outputs: VecDeque::new(),
            next_id: 0,
            unacknowledged: BTreeSet::new(),
            dropped: 0,
            due: now.saturating_add(READY_WITHIN),
            pinged: false,
            settings,
        };
        let MqttSettings { client, clean, keep_alive, will, credentials, .. } = &session.settings;
        let keep_alive = u16::try_from(keep_alive.as_secs()).unwrap_or(u16::MAX);
        match packet::connect((client, *clean, keep_alive), will.as_ref(), credentials.as_ref()) {
            Some(octets) => session.outputs.push_back(Output::Send(octets)),
            None => session.end(End::Misuse),
        }
        session
    }

    /// Processes an input at `now`.
    pub fn handle(&mut self, now: Duration, input: Input<'_>) {
        if self.stage == Stage::Ended {
            return;
        }
        match input {
            Input::Octets(octets) => self.take(now, octets),
            Input::Publish { topic, payload, retain } => {
                self.publish(now, topic, (payload, retain));
            }
            Input::Leave => {
                self.outputs.push_back(Output::Send(packet::DISCONNECT.to_vec()));
                self.end(End::Left);
            }
            Input::Tick => {}
        }
        if now < self.due || self.stage == Stage::Ended {
            return;
        }
        if self.stage != Stage::Ready || self.pinged {
            self.end(End::Silent);
        } else {
            self.pinged = true;
            self.due = now.saturating_add(self.settings.keep_alive / 2);
            self.outputs.push_back(Output::Send(packet::PING.to_vec()));
        }
    }

    /// The next output, if there is one.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Latest time of the next [`Input::Tick`].
    pub fn poll_timeout(&self) -> Option<Duration> {
        (self.stage != Stage::Ended).then_some(self.due)
    }

    /// Publications dropped because there was no connection or too many were unacknowledged.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    fn end(&mut self, end: End) {
        self.stage = Stage::Ended;
        self.received = Vec::new();
        self.outputs.push_back(Output::End(end));
    }

    fn take(&mut self, now: Duration, octets: &[u8]) {
        let passed = self.passing.min(octets.len());
        self.passing -= passed;
        self.received.extend_from_slice(octets.get(passed..).unwrap_or_default());
        let mut at = 0;
        while self.stage != Stage::Ended {
            let rest = self.received.get(at..).unwrap_or_default();
            match packet::read(rest, self.settings.packet_octets_max) {
                Ok(Some((length, packet))) => {
                    at += length;
                    self.take_packet(now, packet);
                }
                Ok(None) => break,
                Err(error) => self.end(End::Packet(error)),
            }
        }
        self.passing += at.saturating_sub(self.received.len());
        self.received.drain(..at.min(self.received.len()));
    }

    fn take_packet(&mut self, now: Duration, packet: Packet) {
        if self.stage == Stage::Ready {
            // Any word of the broker shows that it is there.
            self.pinged = false;
            self.due = now.saturating_add(self.settings.keep_alive);
        }
        match (self.stage, packet) {
            (Stage::Connecting, Packet::ConnectAck(0)) if self.settings.filters.is_empty() => {
                self.begin(now);
            }
            (Stage::Connecting, Packet::ConnectAck(0)) => {
                self.stage = Stage::Subscribing;
                let id = self.draw_id();
                match packet::subscribe(id, &self.settings.filters) {
                    Some(octets) => self.outputs.push_back(Output::Send(octets)),
                    None => self.end(End::Misuse),
                }
            }
            (Stage::Connecting, Packet::ConnectAck(code)) => self.end(End::Refused(code)),
            (Stage::Subscribing, Packet::SubscribeAck(codes)) => {
                let all = codes.len() == self.settings.filters.len();
                if !all || codes.iter().any(|&code| code >= 0x80) {
                    return self.end(End::SubscriptionRefused);
                }
                self.begin(now);
            }
            (Stage::Ready, Packet::PublishAck(id)) => {
                self.unacknowledged.remove(&id);
            }
            // What was kept for us may come before our subscriptions are confirmed.
            (Stage::Subscribing | Stage::Ready, Packet::Publish { topic, payload, id }) => {
                if let Some(id) = id {
                    self.outputs.push_back(Output::Send(packet::publish_ack(id)));
                }
                self.outputs.push_back(Output::Arrived { topic, payload });
            }
            (Stage::Subscribing | Stage::Ready, Packet::Oversized { id }) => {
                if let Some(id) = id {
                    self.outputs.push_back(Output::Send(packet::publish_ack(id)));
                }
                self.outputs.push_back(Output::Oversized);
            }
            (Stage::Ready, Packet::Pong) | (Stage::Subscribing, Packet::PublishAck(_)) => {}
            (_, Packet::ConnectAck(_)) => self.end(End::Packet(PacketError::Unexpected(2))),
            (_, Packet::SubscribeAck(_)) => self.end(End::Packet(PacketError::Unexpected(9))),
            (_, Packet::Publish { .. } | Packet::Oversized { .. }) => {
                self.end(End::Packet(PacketError::Unexpected(3)));
            }
            (_, Packet::PublishAck(_)) => self.end(End::Packet(PacketError::Unexpected(4))),
            (_, Packet::Pong) => self.end(End::Packet(PacketError::Unexpected(13))),
        }
    }

    fn begin(&mut self, now: Duration) {
        self.stage = Stage::Ready;
        self.due = now.saturating_add(self.settings.keep_alive);
        self.outputs.push_back(Output::Ready);
    }

    /// Whether a publication is taken now.
    pub fn can_publish(&self) -> bool {
        self.stage == Stage::Ready && self.unacknowledged.len() < UNACKNOWLEDGED_MAX
    }

    fn publish(&mut self, now: Duration, topic: &str, (payload, retain): (&[u8], bool)) {
        if !self.can_publish() {
            self.dropped += 1;
            return;
        }
        let id = self.draw_id();
        match packet::publish(id, topic, payload, retain) {
            Some(octets) => {
                self.unacknowledged.insert(id);
                self.outputs.push_back(Output::Send(octets));
                // A ping is due only when nothing else was said.
                if !self.pinged {
                    self.due = now.saturating_add(self.settings.keep_alive);
                }
            }
            None => self.dropped += 1,
        }
    }

    /// A packet identifier that is not in use; never 0 (MQTT 3.1.1 §2.3.1).
    fn draw_id(&mut self) -> u16 {
        loop {
            self.next_id = self.next_id.wrapping_add(1).max(1);
            if !self.unacknowledged.contains(&self.next_id) {
                return self.next_id;
            }
        }
    }
}
