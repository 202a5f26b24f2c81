//! CoAP requests of peers: checked, reassembled, answered at once or separately, and observed.

use super::blocks::{Key, Upload};
use super::endpoint::{Endpoint, Purpose, Timer};
use super::observers::Observer;
use super::{
    ANSWER_WITHIN, AskId, BLOCK_SIZE, CoapMessage, Head, OPTION_OCTETS_MAX, Output, empty,
};
use core::hash::Hasher;
use core::time::Duration;
use gatewright_wire::coap::{
    Block, Code, Message as Datagram, MessageType, OBSERVE_DEREGISTER, OBSERVE_REGISTER,
    OptionNumber,
};
use std::net::SocketAddr;

/// An unanswered request of a peer.
#[derive(Debug)]
pub(super) struct ServedRequest {
    pub(super) from: SocketAddr,
    pub(super) token: Vec<u8>,
    message_id: u16,
    confirmable: bool,
    /// Time at which it is acknowledged without a response.
    acknowledge_at: Option<Duration>,
    acknowledged: bool,
    /// The last block of its body, if that came in blocks.
    block1: Option<Block>,
    /// The requested block of the response.
    block2: Option<Block>,
    observes: bool,
    key: Key,
}

/// Response to a request that is not passed on.
struct Refusal {
    code: Code,
    block1: Option<Block>,
    /// Diagnostic payload (RFC 7252 §5.5.2); empty for none.
    diagnostic: String,
}

impl Refusal {
    const fn new(code: Code) -> Self {
        Self { code, block1: None, diagnostic: String::new() }
    }

    const fn with_block(code: Code, block1: Block) -> Self {
        Self { code, block1: Some(block1), diagnostic: String::new() }
    }

    /// "This response SHOULD include a diagnostic payload describing the unrecognized option(s)"
    /// (RFC 7252 §5.4.1).
    fn bad_option(number: OptionNumber, why: &str) -> Self {
        let diagnostic = format!("option {} {why}", number.0);
        Self { diagnostic, ..Self::new(Code::BAD_OPTION) }
    }
}

impl Endpoint {
    pub(super) fn take_request(&mut self, from: SocketAddr, datagram: &Datagram<'_>) {
        if !self.is_new(from, datagram) {
            return;
        }
        let mut message = CoapMessage::read(datagram);
        let observe = message.uint(OptionNumber::OBSERVE);
        let asked = ServedRequest {
            from,
            token: datagram.token().to_vec(),
            message_id: datagram.message_id(),
            confirmable: datagram.message_type() == MessageType::CONFIRMABLE,
            acknowledge_at: None,
            acknowledged: false,
            block1: message.block(OptionNumber::BLOCK1),
            block2: message.block(OptionNumber::BLOCK2),
            observes: observe == Some(OBSERVE_REGISTER.into()) && message.code == Code::GET,
            key: (from, self.cache_key(&message)),
        };
        if observe == Some(OBSERVE_DEREGISTER.into()) {
            self.forget_observer(from, &asked.token);
        }
        if let Err(refusal) = self.check(&asked, &mut message) {
            return self.refuse(&asked, &refusal);
        }
        if let Some(block) = asked.block2.filter(|block| block.number() > 0) {
            let age = self.limits.blocks_age;
            if let Some(whole) = self.downloads.take(&asked.key, self.now, age) {
                return self.answer(&asked, &whole);
            }
            // Whoever asks for the rest of what nobody remembers begins anew, unless asking
            // again changes nothing.
            if message.code != Code::GET {
                let refusal = Refusal::with_block(Code::REQUEST_ENTITY_INCOMPLETE, block);
                return self.refuse(&asked, &refusal);
            }
        }
        self.hand_on(asked, message);
    }

    /// Refuses a critical option that is there more often than it may be: "each supernumerary option
    /// occurrence that appears subsequently in the message MUST be treated like an unrecognized
    /// option" (RFC 7252 §5.4.5).
    fn check_repeated(&mut self, message: &CoapMessage) -> Result<(), Refusal> {
        let repeated = message.options.windows(2).find_map(|pair| match pair {
            [(one, _), (next, _)] if one == next && one.is_critical() && !one.is_repeatable() => {
                Some(*one)
            }
            _ => None,
        });
        let Some(number) = repeated else { return Ok(()) };
        self.counters.bad_options += 1;
        Err(Refusal::bad_option(number, "is given twice"))
    }

    /// Checks a request and reassembles its body.
    fn check(&mut self, asked: &ServedRequest, message: &mut CoapMessage) -> Result<(), Refusal> {
        self.check_repeated(message)?;
        for (number, value) in &message.options {
            match *number {
                OptionNumber::PROXY_URI | OptionNumber::PROXY_SCHEME => {
                    return Err(Refusal::new(Code::PROXYING_NOT_SUPPORTED));
                }
                // One of a length that it cannot have is as good as unknown (RFC 7252 §5.4.3).
                OptionNumber::URI_HOST | OptionNumber::URI_PATH | OptionNumber::URI_QUERY
                    if value.len() > OPTION_OCTETS_MAX =>
                {
                    self.counters.bad_options += 1;
                    let why = format!("has {} octets of at most {OPTION_OCTETS_MAX}", value.len());
                    return Err(Refusal::bad_option(*number, &why));
                }
                OptionNumber::URI_HOST
                | OptionNumber::URI_PORT
                | OptionNumber::URI_PATH
                | OptionNumber::URI_QUERY
                | OptionNumber::ACCEPT
                | OptionNumber::BLOCK1
                | OptionNumber::BLOCK2 => {}
                number if number.is_critical() && !(self.understands)(number) => {
                    self.counters.bad_options += 1;
                    return Err(Refusal::bad_option(number, "is critical and not recognised"));
                }
                _ => {}
            }
        }
        let has = |number| message.value(number).is_some();
        let garbled = (has(OptionNumber::BLOCK1) && asked.block1.is_none())
            || (has(OptionNumber::BLOCK2) && asked.block2.is_none());
        if garbled {
            return Err(Refusal::new(Code::BAD_REQUEST));
        }
        let by_peer = self.asked_by.get(&asked.from).copied().unwrap_or_default();
        if self.asked.len() >= self.limits.asked || by_peer >= self.limits.asked_per_peer {
            self.counters.asked_full += 1;
            return Err(Refusal::new(Code::SERVICE_UNAVAILABLE));
        }
        let Some(block) = asked.block1 else {
            return Ok(());
        };
        let bounds = (self.now, &self.limits, &mut self.counters);
        match self.uploads.take(asked.key, block, &message.payload, bounds) {
            Upload::Whole(body) => {
                message.payload = body;
                Ok(())
            }
            Upload::Continue => Err(Refusal::with_block(Code::CONTINUE, block)),
            Upload::Refused(code) => Err(Refusal::with_block(code, block)),
        }
    }

    fn hand_on(&mut self, mut asked: ServedRequest, mut message: CoapMessage) {
        self.asks += 1;
        let id = AskId(self.asks);
        if asked.confirmable {
            let due = self.now.saturating_add(ANSWER_WITHIN);
            asked.acknowledge_at = Some(due);
            self.set_timer(due, Timer::Acknowledge(id));
        }
        message.options.retain(|(number, _)| {
            !matches!(
                *number,
                OptionNumber::BLOCK1
                    | OptionNumber::BLOCK2
                    | OptionNumber::SIZE1
                    | OptionNumber::SIZE2
                    | OptionNumber::OBSERVE
            )
        });
        self.counters.asked += 1;
        *self.asked_by.entry(asked.from).or_default() += 1;
        let (from, observes) = (asked.from, asked.observes);
        self.asked.insert(id, asked);
        self.say(Output::Asked { id, from, message, observes });
    }

    /// Acknowledges a request whose response takes longer (RFC 7252 §5.2.2).
    pub(super) fn acknowledge_first(&mut self, id: AskId) {
        let Some(asked) = self.asked.get_mut(&id) else {
            return;
        };
        asked.acknowledge_at = None;
        asked.acknowledged = true;
        let (from, message_id) = (asked.from, asked.message_id);
        self.reply(from, message_id, empty(MessageType::ACKNOWLEDGEMENT, message_id));
    }

    pub(super) fn respond(&mut self, id: AskId, mut message: CoapMessage) {
        let Some(asked) = self.asked.remove(&id) else {
            return;
        };
        if let Some(due) = asked.acknowledge_at {
            self.clear_timer(due, Timer::Acknowledge(id));
        }
        if let Some(count) = self.asked_by.get_mut(&asked.from) {
            *count -= 1;
            if *count == 0 {
                self.asked_by.remove(&asked.from);
            }
        }
        let grants = message.value(OptionNumber::OBSERVE).is_some();
        message.options.retain(|(number, _)| *number != OptionNumber::OBSERVE);
        if grants && asked.observes && message.code.class() == 2 {
            if let Some(sequence) = self.observe(id, &asked) {
                message.put_uint(OptionNumber::OBSERVE, written(sequence).into());
            } else {
                self.say(Output::Unobserved(id));
            }
        }
        self.answer(&asked, &message);
    }

    fn refuse(&mut self, asked: &ServedRequest, refusal: &Refusal) {
        let mut more = Vec::new();
        if let Some(block) = refusal.block1 {
            more.push((OptionNumber::BLOCK1, block.value()));
        }
        let diagnostic = refusal.diagnostic.as_bytes();
        self.send_answer(asked, (&CoapMessage::new(refusal.code), &more, diagnostic));
    }

    /// Answers with the requested block, and keeps the rest for further ones.
    fn answer(&mut self, asked: &ServedRequest, message: &CoapMessage) {
        let mut more = Vec::new();
        if let Some(block) = asked.block1 {
            more.push((OptionNumber::BLOCK1, block.value()));
        }
        let size = asked.block2.map_or(BLOCK_SIZE, Block::size);
        let number = asked.block2.map_or(0, Block::number);
        if message.payload.len() <= size && number == 0 {
            return self.send_answer(asked, (message, &more, &message.payload));
        }
        let Some((block, part)) = cut(&message.payload, number, size) else {
            return self.refuse(asked, &Refusal::new(Code::BAD_REQUEST));
        };
        let message = self.tagged(message);
        more.push((OptionNumber::BLOCK2, block.value()));
        if number == 0 {
            let whole = u32::try_from(message.payload.len()).unwrap_or(u32::MAX);
            more.push((OptionNumber::SIZE2, whole));
        }
        self.send_answer(asked, (&message, &more, part));
        if block.more() {
            let bounds = (self.now, &self.limits, &mut self.counters);
            self.downloads.keep(asked.key, message, bounds);
        }
    }

    /// The message with an ETag of its body, which shows the peer that all blocks belong together
    /// (RFC 7959 §2.4).
    fn tagged(&self, message: &CoapMessage) -> CoapMessage {
        let mut message = message.clone();
        if message.value(OptionNumber::ETAG).is_none() {
            let mut hasher = self.keyed_hasher();
            hasher.write(&message.payload);
            message.put(OptionNumber::ETAG, hasher.finish().to_be_bytes());
        }
        message
    }

    fn send_answer(
        &mut self,
        asked: &ServedRequest,
        content: (&CoapMessage, &[(OptionNumber, u32)], &[u8]),
    ) {
        let (message, more, payload) = content;
        let (to, token) = (asked.from, asked.token.as_slice());
        if asked.acknowledged {
            // Not written: its options fit no datagram, and the peer will give up by itself.
            let _ = self.launch(to, Purpose::Response, token, content);
            return;
        }
        let (message_type, id) = if asked.confirmable {
            (MessageType::ACKNOWLEDGEMENT, asked.message_id)
        } else {
            (MessageType::NON_CONFIRMABLE, self.next_id(to))
        };
        if let Some(octets) = message.write(Head { message_type, id, token }, more, payload) {
            self.reply(to, asked.message_id, octets);
        }
    }

    /// Hash that distinguishes requests of one peer (RFC 7252 §5.6, RFC 7959 §2.4).
    fn cache_key(&self, message: &CoapMessage) -> u64 {
        let mut hasher = self.keyed_hasher();
        hasher.write_u8(message.code.0);
        for (number, value) in &message.options {
            let apart = matches!(
                *number,
                OptionNumber::BLOCK1 | OptionNumber::BLOCK2 | OptionNumber::OBSERVE
            );
            if !apart && !number.is_no_cache_key() {
                hasher.write_u16(number.0);
                hasher.write_usize(value.len());
                hasher.write(value);
            }
        }
        hasher.finish()
    }

    /// Registers an observer and returns its first number; `None` if there is no room.
    fn observe(&mut self, id: AskId, asked: &ServedRequest) -> Option<u64> {
        let before = self.forget_observer(asked.from, &asked.token);
        let Ok(displaced) = self.observers.room_for(asked.from, &self.limits) else {
            self.counters.observers_full += 1;
            return None;
        };
        if let Some(displaced) = displaced {
            self.counters.observers_displaced += 1;
            self.unobserve(displaced);
        }
        let sequence = next_sequence(before, self.now);
        let observer = Observer {
            from: asked.from,
            token: asked.token.clone(),
            key: asked.key,
            size: asked.block2.map_or(BLOCK_SIZE, Block::size),
            sequence,
            flight: None,
            next: None,
        };
        self.observers.add(id, observer);
        Some(sequence)
    }

    /// Removes the observer with this token; returns its last number.
    fn forget_observer(&mut self, from: SocketAddr, token: &[u8]) -> Option<u64> {
        let (id, sequence) = self.observers.find(from, token)?;
        self.unobserve(id);
        Some(sequence)
    }

    /// Ends an observation, and what is on its way for it.
    pub(super) fn unobserve(&mut self, id: AskId) {
        if let Some(observer) = self.observers.remove(id) {
            if let Some(flight) = observer.flight {
                self.recall(observer.from, flight, id);
            }
            self.say(Output::Unobserved(id));
        }
    }

    pub(super) fn notify(&mut self, id: AskId, message: CoapMessage) {
        let Some(observer) = self.observers.get_mut(id) else {
            return;
        };
        if observer.flight.is_some() {
            observer.next = Some(message);
            return;
        }
        observer.sequence = next_sequence(Some(observer.sequence), self.now);
        let sequence = written(observer.sequence);
        let (to, token, key, size) =
            (observer.from, observer.token.clone(), observer.key, observer.size);
        let last = message.code.class() != 2;
        let mut more = Vec::new();
        if !last {
            more.push((OptionNumber::OBSERVE, sequence));
        }
        let mut message = message;
        message.options.retain(|(number, _)| *number != OptionNumber::OBSERVE);
        let mut part = message.payload.clone();
        if part.len() > size
            && let Some((block, first)) = cut(&message.payload, 0, size)
        {
            part = first.to_vec();
            message = self.tagged(&message);
            more.push((OptionNumber::BLOCK2, block.value()));
            let bounds = (self.now, &self.limits, &mut self.counters);
            self.downloads.keep(key, message.clone(), bounds);
        }
        self.counters.notifications += 1;
        if last {
            self.observers.remove(id);
        }
        let sent = self.launch(to, Purpose::Notification(id), &token, (&message, &more, &part));
        match (sent, self.observers.get_mut(id)) {
            (Ok(flight), Some(observer)) => observer.flight = Some(flight),
            (Err(_), Some(_)) => self.unobserve(id),
            // It was the last one.
            (_, None) => {}
        }
    }

    /// Handles an acknowledged notification: its observer is there, and may have the next one.
    pub(super) fn notification_arrived(&mut self, id: AskId) {
        let Some(observer) = self.observers.confirm(id) else {
            return;
        };
        match observer.next.take() {
            Some(message) => self.notify(id, message),
            None => self.say(Output::Acknowledged(id)),
        }
    }
}

/// The number of a notification: greater than the one before, and at least the time in
/// milliseconds, so that an observer with a token forgotten here does not take it for outdated (RFC
/// 7641 §4.4).
fn next_sequence(before: Option<u64>, now: Duration) -> u64 {
    let clock = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    before.map_or(clock, |before| clock.max(before.saturating_add(1)))
}

/// The transmitted 24 bits of a notification's number (RFC 7641 §3.4).
fn written(sequence: u64) -> u32 {
    u32::try_from(sequence & 0x00ff_ffff).unwrap_or_default()
}

/// Block `number` of a body in blocks of `size`; `None` after its end.
fn cut(body: &[u8], number: u32, size: usize) -> Option<(Block, &[u8])> {
    let offset = usize::try_from(number).ok()?.checked_mul(size)?;
    let end = offset.saturating_add(size).min(body.len());
    let part = body.get(offset..end).filter(|part| !part.is_empty())?;
    Some((Block::new(number, end < body.len(), size)?, part))
}
