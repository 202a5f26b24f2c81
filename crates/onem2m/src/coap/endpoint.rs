//! CoAP endpoint: datagrams in and out, messages in flight, and retransmission.

use super::asking::Asking;
use super::blocks::{Downloads, Uploads};
use super::observers::Observers;
use super::pace::Pace;
use super::repeats::{RefusedMessage, Repeats};
use super::serving::ServedRequest;
use super::{
    ACK_RANDOM_HALVES, ACK_TIMEOUT, AskId, CoapMessage, Counters, EXCHANGE_LIFETIME, Failure, Head,
    Input, Limits, MAX_RETRANSMIT, NON_LIFETIME, Output, RequestId, empty,
};
use core::hash::Hasher;
use core::time::Duration;
use gatewright_wire::coap::{
    Coap, CoapError, Code, Message as Datagram, MessageType, OptionNumber, TOKEN_LEN_MAX,
};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::DefaultHasher;
use std::net::SocketAddr;

/// Shortest interval between searches for unused peers.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// Octets of a message's header (RFC 7252 §3).
const HEADER_OCTETS: usize = 4;
/// Bits of its first octet that are the length of the token.
const TOKEN_LENGTH_MASK: u8 = 0x0f;

/// Token of an outgoing request.
pub(super) type Token = [u8; TOKEN_LEN_MAX];

/// Endpoint of one UDP socket: server and client at once.
#[derive(Debug)]
pub struct Endpoint {
    pub(super) limits: Limits,
    pub(super) understands: fn(OptionNumber) -> bool,
    secret: [u64; 2],
    drawn: u64,
    pub(super) now: Duration,
    peers: HashMap<SocketAddr, Peer>,
    swept: Duration,
    flights: HashMap<(SocketAddr, u16), Flight>,
    pub(super) asking: HashMap<RequestId, Asking>,
    pub(super) tokens: HashMap<(SocketAddr, Token), RequestId>,
    pub(super) asked: HashMap<AskId, ServedRequest>,
    pub(super) asked_by: HashMap<SocketAddr, usize>,
    pub(super) asks: u64,
    pub(super) observers: Observers,
    pub(super) repeats: Repeats,
    pub(super) uploads: Uploads,
    pub(super) downloads: Downloads,
    timers: BTreeSet<(Duration, Timer)>,
    outputs: VecDeque<Output>,
    pub(super) counters: Counters,
}

/// A peer that receives confirmable messages.
#[derive(Debug)]
pub(super) struct Peer {
    message_id: u16,
    pub(super) pace: Pace,
    used: Duration,
    /// Outgoing requests neither acknowledged nor answered.
    pub(super) outstanding: usize,
    pub(super) waiting: VecDeque<RequestId>,
}

/// An unacknowledged confirmable message.
#[derive(Debug)]
struct Flight {
    octets: Vec<u8>,
    sent: u32,
    timeout: Duration,
    due: Duration,
    purpose: Purpose,
}

/// Purpose of a confirmable message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    Request(RequestId),
    Response,
    Notification(AskId),
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Timer {
    /// Retransmit a message.
    Resend(SocketAddr, u16),
    /// Acknowledge a request whose response takes longer.
    Acknowledge(AskId),
    /// An acknowledged request timed out.
    Unanswered(RequestId),
    /// Send the next request to this peer.
    Next(SocketAddr),
}

impl Endpoint {
    /// Creates an endpoint that supports the critical options for which `understands` is true,
    /// beside its own. `secret` makes its tokens hard to guess; draw a new one for each endpoint.
    pub fn new(limits: Limits, understands: fn(OptionNumber) -> bool, secret: [u64; 2]) -> Self {
        Self {
            limits,
            understands,
            secret,
            drawn: 0,
            now: Duration::ZERO,
            peers: HashMap::new(),
            swept: Duration::ZERO,
            flights: HashMap::new(),
            asking: HashMap::new(),
            tokens: HashMap::new(),
            asked: HashMap::new(),
            asked_by: HashMap::new(),
            asks: 0,
            observers: Observers::default(),
            repeats: Repeats::default(),
            uploads: Uploads::default(),
            downloads: Downloads::default(),
            timers: BTreeSet::new(),
            outputs: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Processes an input at `now`, counted from any fixed epoch.
    pub fn handle(&mut self, now: Duration, input: Input<'_>) {
        self.now = now.max(self.now);
        match input {
            Input::Datagram { from, octets } => self.take_datagram(from, octets),
            Input::Request { id, to, message } => self.ask(id, to, message),
            Input::Cancel(id) => self.forget_request(id),
            Input::Respond { id, message } => self.respond(id, message),
            Input::Notify { id, message } => self.notify(id, message),
            Input::Undelivered { to, quoted } => self.take_undelivered(to, quoted),
            Input::Tick => {}
        }
        self.run_timers();
    }

    /// The next output, if there is one.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Latest time of the next [`Input::Tick`].
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.timers.first().map(|&(due, _)| due)
    }

    /// Counters so far.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(super) fn say(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    pub(super) fn send(&mut self, to: SocketAddr, octets: Vec<u8>) {
        self.counters.sent += 1;
        self.say(Output::Send { to, octets });
    }

    pub(super) fn set_timer(&mut self, due: Duration, timer: Timer) {
        self.timers.insert((due, timer));
    }

    pub(super) fn clear_timer(&mut self, due: Duration, timer: Timer) {
        self.timers.remove(&(due, timer));
    }

    /// A number that cannot be guessed without the secret.
    pub(super) fn draw(&mut self) -> u64 {
        self.drawn += 1;
        let mut hasher = self.keyed_hasher();
        hasher.write_u64(self.drawn);
        hasher.finish()
    }

    pub(super) fn keyed_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        for word in self.secret {
            hasher.write_u64(word);
        }
        hasher
    }

    /// The peer's entry; `None` if too many are remembered.
    pub(super) fn peer(&mut self, address: SocketAddr) -> Option<&mut Peer> {
        if !self.peers.contains_key(&address) {
            if self.peers.len() >= self.limits.peers {
                self.sweep_peers();
            }
            if self.peers.len() >= self.limits.peers {
                self.counters.peers_full += 1;
                return None;
            }
            let [high, low, ..] = self.draw().to_be_bytes();
            let message_id = u16::from_be_bytes([high, low]);
            let (used, waiting) = (self.now, VecDeque::new());
            let pace = Pace::default();
            self.peers.insert(address, Peer { message_id, pace, used, outstanding: 0, waiting });
        }
        let peer = self.peers.get_mut(&address)?;
        peer.used = self.now;
        Some(peer)
    }

    fn sweep_peers(&mut self) {
        if self.swept.saturating_add(SWEEP_EVERY) > self.now && self.swept != Duration::ZERO {
            return;
        }
        self.swept = self.now;
        let now = self.now;
        self.peers.retain(|_, peer| {
            let busy = peer.outstanding > 0 || !peer.waiting.is_empty();
            busy || peer.used.saturating_add(EXCHANGE_LIFETIME) > now
        });
    }

    /// The identifier of the next message to a peer: one more than the last, so that with [`Pace`]
    /// none comes again before the peer has forgotten it (RFC 7252 §4.4).
    pub(super) fn next_id(&mut self, to: SocketAddr) -> u16 {
        let now = self.now;
        if let Some(peer) = self.peer(to) {
            peer.pace.spend(now);
            peer.message_id = peer.message_id.wrapping_add(1);
            return peer.message_id;
        }
        let [high, low, ..] = self.draw().to_be_bytes();
        u16::from_be_bytes([high, low])
    }

    /// Sends a confirmable message and retransmits it until it is acknowledged.
    ///
    /// # Errors
    ///
    /// [`Failure::Options`] if it fits no datagram.
    pub(super) fn launch(
        &mut self,
        to: SocketAddr,
        purpose: Purpose,
        token: &[u8],
        (message, more, payload): (&CoapMessage, &[(OptionNumber, u32)], &[u8]),
    ) -> Result<u16, Failure> {
        let id = self.next_id(to);
        let head = Head { message_type: MessageType::CONFIRMABLE, id, token };
        let octets = message.write(head, more, payload).ok_or(Failure::Options)?;
        let timeout = self.first_timeout();
        let due = self.now.saturating_add(timeout);
        self.send(to, octets.clone());
        self.set_timer(due, Timer::Resend(to, id));
        let flight = Flight { octets, sent: 1, timeout, due, purpose };
        if let Some(older) = self.flights.insert((to, id), flight) {
            // The identifiers have gone round while this one was never acknowledged.
            self.clear_timer(older.due, Timer::Resend(to, id));
            self.lose(older.purpose);
        }
        Ok(id)
    }

    /// "A random duration (often not an integral number of seconds) between ACK_TIMEOUT and
    /// (ACK_TIMEOUT * ACK_RANDOM_FACTOR)" (RFC 7252 §4.2).
    fn first_timeout(&mut self) -> Duration {
        let spread = ACK_TIMEOUT * (ACK_RANDOM_HALVES - 2) / 2;
        let [high, low, ..] = self.draw().to_be_bytes();
        ACK_TIMEOUT + spread * u32::from(u16::from_be_bytes([high, low])) / u32::from(u16::MAX)
    }

    /// Removes a message in flight; returns its purpose.
    pub(super) fn land(&mut self, to: SocketAddr, id: u16) -> Option<Purpose> {
        let flight = self.flights.remove(&(to, id))?;
        self.clear_timer(flight.due, Timer::Resend(to, id));
        Some(flight.purpose)
    }

    /// Stops the retransmission of a notification, if it is still that of this observer.
    pub(super) fn recall(&mut self, to: SocketAddr, id: u16, observer: AskId) {
        let purpose = self.flights.get(&(to, id)).map(|flight| flight.purpose);
        if matches!(purpose, Some(Purpose::Notification(whose)) if whose == observer) {
            self.land(to, id);
        }
    }

    fn run_timers(&mut self) {
        while let Some(&(due, timer)) = self.timers.first() {
            if due > self.now {
                return;
            }
            self.timers.remove(&(due, timer));
            match timer {
                Timer::Resend(to, id) => self.resend(to, id),
                Timer::Acknowledge(id) => self.acknowledge_first(id),
                Timer::Unanswered(id) => self.finish(id, Err(Failure::Unanswered)),
                Timer::Next(to) => self.start_next(to),
            }
        }
    }

    fn resend(&mut self, to: SocketAddr, id: u16) {
        let Some(flight) = self.flights.get_mut(&(to, id)) else {
            return;
        };
        if flight.sent > MAX_RETRANSMIT {
            let purpose = flight.purpose;
            self.flights.remove(&(to, id));
            self.counters.unacknowledged += 1;
            self.lose(purpose);
            return;
        }
        flight.sent += 1;
        flight.timeout = flight.timeout.saturating_mul(2);
        flight.due = self.now.saturating_add(flight.timeout);
        let (due, octets, purpose) = (flight.due, flight.octets.clone(), flight.purpose);
        if let Purpose::Notification(observer) = purpose {
            self.observers.retransmitted(observer);
        }
        self.set_timer(due, Timer::Resend(to, id));
        self.counters.retransmitted += 1;
        self.send(to, octets);
    }

    fn lose(&mut self, purpose: Purpose) {
        match purpose {
            Purpose::Request(id) => self.finish(id, Err(Failure::Unacknowledged)),
            Purpose::Response => {}
            Purpose::Notification(id) => self.unobserve(id),
        }
    }

    /// Ends an observation whose notification cannot be delivered. "To mitigate potential spoofing
    /// attacks, implementations SHOULD take care to check the information about the original datagram
    /// in the ICMP message, including port numbers and CoAP header information such as message type and
    /// code, Message ID, and Token; if this is not possible […], ICMP errors SHOULD be ignored" (RFC
    /// 7252 §4.2). So all that is quoted has to be what was sent, with the header and the token at least.
    fn take_undelivered(&mut self, to: SocketAddr, quoted: &[u8]) {
        let Some(&[_, _, high, low]) = quoted.first_chunk::<HEADER_OCTETS>() else { return };
        let id = u16::from_be_bytes([high, low]);
        let Some(flight) = self.flights.get(&(to, id)) else { return };
        let Purpose::Notification(observer) = flight.purpose else { return };
        let token = flight.octets.first().map_or(0, |first| usize::from(first & TOKEN_LENGTH_MASK));
        let quoted = quoted.get(..flight.octets.len()).unwrap_or(quoted);
        if quoted.len() < HEADER_OCTETS + token || !flight.octets.starts_with(quoted) {
            return;
        }
        self.counters.observers_unreachable += 1;
        self.land(to, id);
        self.unobserve(observer);
    }

    fn take_datagram(&mut self, from: SocketAddr, octets: &[u8]) {
        self.counters.received += 1;
        let message = match Datagram::parse(octets) {
            Ok(message) => message,
            Err(error) => return self.refuse_malformed(from, octets, error),
        };
        let id = message.message_id();
        let confirmable = match message.message_type() {
            MessageType::ACKNOWLEDGEMENT => return self.take_acknowledgement(from, &message),
            MessageType::RESET => return self.take_reset(from, id),
            other => other == MessageType::CONFIRMABLE,
        };
        let code = message.code();
        if code.is_request() {
            self.take_request(from, &message);
        } else if code.is_response() {
            self.take_separate_response(from, &message);
        } else {
            // A confirmable empty message is a ping (RFC 7252 §4.3); the other codes are reserved.
            self.counters.malformed += u64::from(code != Code::EMPTY);
            if confirmable {
                self.send(from, empty(MessageType::RESET, id));
            }
        }
    }

    /// "A recipient MUST either acknowledge … or reject it": what is confirmable and malformed is
    /// reset (RFC 7252 §4.2); another version is ignored silently (§3).
    fn refuse_malformed(&mut self, from: SocketAddr, octets: &[u8], error: CoapError) {
        self.counters.malformed += 1;
        if let (Ok((header, _)), false) =
            (Coap::split(octets), matches!(error, CoapError::Version(_)))
            && header.message_type() == MessageType::CONFIRMABLE
        {
            self.send(from, empty(MessageType::RESET, header.message_id()));
        }
    }

    fn take_acknowledgement(&mut self, from: SocketAddr, message: &Datagram<'_>) {
        let id = message.message_id();
        let Some(flight) = self.flights.get(&(from, id)) else {
            // A second acknowledgement of something that was sent twice.
            self.counters.duplicates += 1;
            return;
        };
        let request = match flight.purpose {
            Purpose::Request(request) => request,
            Purpose::Response | Purpose::Notification(_) => {
                if let Some(Purpose::Notification(observer)) = self.land(from, id) {
                    self.notification_arrived(observer);
                }
                return;
            }
        };
        if message.code() == Code::EMPTY {
            self.land(from, id);
            self.request_acknowledged(request);
            return;
        }
        let token = self.asking.get(&request).map(|asking| asking.token);
        if !message.code().is_response()
            || token.as_ref().map(<[u8; 8]>::as_slice) != Some(message.token())
        {
            self.counters.stray_answers += 1;
            return;
        }
        self.land(from, id);
        self.take_answer(request, CoapMessage::read(message));
    }

    fn take_reset(&mut self, from: SocketAddr, id: u16) {
        match self.land(from, id) {
            Some(Purpose::Request(request)) => self.finish(request, Err(Failure::Reset)),
            Some(Purpose::Notification(observer)) => self.unobserve(observer),
            Some(Purpose::Response) | None => {}
        }
    }

    /// Whether a message is new; a duplicate gets the earlier reply.
    pub(super) fn is_new(&mut self, from: SocketAddr, message: &Datagram<'_>) -> bool {
        let id = message.message_id();
        let confirmable = message.message_type() == MessageType::CONFIRMABLE;
        let lifetime = if confirmable { EXCHANGE_LIFETIME } else { NON_LIFETIME };
        let bounds = (&self.limits, &mut self.counters);
        match self.repeats.note((from, id), self.now, lifetime, bounds) {
            RefusedMessage::New => true,
            RefusedMessage::Repeated(reply) => {
                self.counters.duplicates += 1;
                if let (Some(reply), true) = (reply, confirmable) {
                    self.send(from, reply);
                }
                false
            }
        }
    }

    /// Replies to a message, now and to each duplicate.
    pub(super) fn reply(&mut self, to: SocketAddr, id: u16, octets: Vec<u8>) {
        self.repeats.reply((to, id), &octets);
        self.send(to, octets);
    }

    fn take_separate_response(&mut self, from: SocketAddr, message: &Datagram<'_>) {
        if !self.is_new(from, message) {
            return;
        }
        let id = message.message_id();
        let token = Token::try_from(message.token()).ok();
        let request = token.and_then(|token| self.tokens.get(&(from, token)).copied());
        if message.message_type() == MessageType::CONFIRMABLE {
            let kind =
                if request.is_some() { MessageType::ACKNOWLEDGEMENT } else { MessageType::RESET };
            self.reply(from, id, empty(kind, id));
        }
        match request {
            Some(request) => self.take_answer(request, CoapMessage::read(message)),
            None => self.counters.stray_answers += 1,
        }
    }
}
