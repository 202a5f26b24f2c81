//! Outgoing CoAP requests: one at a time to each peer, in blocks if they are large, with the
//! reassembly of responses in blocks.

use super::endpoint::{Endpoint, Purpose, Timer, Token};
use super::{BLOCK_SIZE, CoapMessage, Failure, NSTART, Output, RequestId};
use core::time::Duration;
use gatewright_wire::coap::{Block, Code, OptionNumber};
use std::net::SocketAddr;

/// An unanswered outgoing request.
#[derive(Debug)]
pub(super) struct Asking {
    to: SocketAddr,
    pub(super) token: Token,
    message: CoapMessage,
    /// Octets of each block of the body.
    block_size: usize,
    /// Octets of the body that the peer has.
    offset: usize,
    /// The message in flight.
    flying: Option<u16>,
    /// Whether it counts among those that are neither acknowledged nor answered.
    outstanding: bool,
    unanswered_at: Option<Duration>,
    /// The partial response in blocks, and the next block.
    partial: Option<(CoapMessage, Block)>,
}

impl Endpoint {
    pub(super) fn ask(&mut self, id: RequestId, to: SocketAddr, message: CoapMessage) {
        let full = self.asking.len() >= self.limits.requests || self.asking.contains_key(&id);
        if full || self.peer(to).is_none() {
            self.counters.requests_full += 1;
            self.say(Output::Answered { id, answer: Err(Failure::Full) });
            return;
        }
        let token = self.draw().to_be_bytes();
        let asking = Asking {
            to,
            token,
            message,
            block_size: BLOCK_SIZE,
            offset: 0,
            flying: None,
            outstanding: false,
            unanswered_at: None,
            partial: None,
        };
        self.asking.insert(id, asking);
        self.tokens.insert((to, token), id);
        if let Some(peer) = self.peer(to) {
            peer.waiting.push_back(id);
        }
        self.start_next(to);
    }

    /// Sends queued requests to this peer, within the limits and the pace.
    pub(super) fn start_next(&mut self, to: SocketAddr) {
        let now = self.now;
        while let Some(peer) = self.peer(to).filter(|peer| peer.outstanding < NSTART) {
            if let (Some(due), false) = (peer.pace.wait(now), peer.waiting.is_empty()) {
                self.counters.paced += 1;
                self.set_timer(due, Timer::Next(to));
                return;
            }
            let Some(id) = peer.waiting.pop_front() else {
                return;
            };
            if let Some(asking) = self.asking.get_mut(&id) {
                asking.outstanding = true;
                peer_counts(self, to, 1);
                self.send_part(id);
            }
        }
    }

    /// Sends the request or its next block, or requests the next block of its response.
    fn send_part(&mut self, id: RequestId) {
        let Some(asking) = self.asking.get_mut(&id) else {
            return;
        };
        let (to, token) = (asking.to, asking.token);
        let mut more = Vec::new();
        let mut part: &[u8] = &[];
        let body = asking.message.payload.as_slice();
        if let Some((_, wanted)) = &asking.partial {
            more.push((OptionNumber::BLOCK2, wanted.value()));
        } else if body.len() <= asking.block_size {
            part = body;
        } else {
            let end = asking.offset.saturating_add(asking.block_size).min(body.len());
            part = body.get(asking.offset..end).unwrap_or_default();
            let number = u32::try_from(asking.offset / asking.block_size).unwrap_or(u32::MAX);
            let Some(block) = Block::new(number, end < body.len(), asking.block_size) else {
                return self.finish(id, Err(Failure::Options));
            };
            more.push((OptionNumber::BLOCK1, block.value()));
            more.push((OptionNumber::SIZE1, u32::try_from(body.len()).unwrap_or(u32::MAX)));
        }
        let part = part.to_vec();
        // Only options and code are copied: the body stays where it is.
        let mut head = CoapMessage::new(asking.message.code);
        head.options.clone_from(&asking.message.options);
        match self.launch(to, Purpose::Request(id), &token, (&head, &more, &part)) {
            Ok(message_id) => {
                if let Some(asking) = self.asking.get_mut(&id) {
                    asking.flying = Some(message_id);
                }
            }
            Err(failure) => self.finish(id, Err(failure)),
        }
    }

    /// Handles an acknowledgement without response: the next request may be sent meanwhile.
    pub(super) fn request_acknowledged(&mut self, id: RequestId) {
        let due = self.now.saturating_add(self.limits.answer_within);
        let Some(asking) = self.asking.get_mut(&id) else {
            return;
        };
        asking.flying = None;
        asking.unanswered_at = Some(due);
        let (to, counted) = (asking.to, core::mem::take(&mut asking.outstanding));
        self.set_timer(due, Timer::Unanswered(id));
        if counted {
            peer_counts(self, to, -1);
        }
        self.start_next(to);
    }

    /// Handles a response, one block of it, or the request for the next block.
    pub(super) fn take_answer(&mut self, id: RequestId, answer: CoapMessage) {
        let most = self.limits.body_octets;
        let Some(asking) = self.asking.get_mut(&id) else {
            return;
        };
        let (to, flying) = (asking.to, asking.flying.take());
        let unanswered_at = asking.unanswered_at.take();
        let step = asking.step(answer, most);
        // An answer by a message of its own acknowledges the request too (RFC 7252 §5.2.2).
        if let Some(flying) = flying {
            self.land(to, flying);
        }
        if let Some(due) = unanswered_at {
            self.clear_timer(due, Timer::Unanswered(id));
        }
        match step {
            NextAction::Next => self.send_part(id),
            NextAction::Done(answer) => self.finish(id, answer),
        }
    }

    /// Removes a request and reports its result.
    pub(super) fn finish(&mut self, id: RequestId, answer: Result<CoapMessage, Failure>) {
        if self.asking.contains_key(&id) {
            self.say(Output::Answered { id, answer });
        }
        self.forget_request(id);
    }

    pub(super) fn forget_request(&mut self, id: RequestId) {
        let Some(asking) = self.asking.remove(&id) else {
            return;
        };
        self.tokens.remove(&(asking.to, asking.token));
        if let Some(flying) = asking.flying {
            self.land(asking.to, flying);
        }
        if let Some(due) = asking.unanswered_at {
            self.clear_timer(due, Timer::Unanswered(id));
        }
        if asking.outstanding {
            peer_counts(self, asking.to, -1);
        } else if let Some(peer) = self.peer(asking.to) {
            peer.waiting.retain(|&waiting| waiting != id);
        }
        self.start_next(asking.to);
    }
}

fn peer_counts(endpoint: &mut Endpoint, to: SocketAddr, change: isize) {
    if let Some(peer) = endpoint.peer(to) {
        peer.outstanding = peer.outstanding.saturating_add_signed(change);
    }
}

/// Next step after a response.
enum NextAction {
    /// Another message is to be sent.
    Next,
    /// The response is complete, or unobtainable.
    Done(Result<CoapMessage, Failure>),
}

impl Asking {
    fn step(&mut self, answer: CoapMessage, most: usize) -> NextAction {
        if let Some(block) = answer.block(OptionNumber::BLOCK1)
            && self.partial.is_none()
            && self.message.payload.len() > self.block_size
        {
            if answer.code == Code::CONTINUE {
                return self.continue_request(block);
            }
            // RFC 7959 §2.9.3: too large, and a hint at which size is not.
            let smaller = block.size() < self.block_size && self.offset == 0;
            if answer.code == Code::REQUEST_ENTITY_TOO_LARGE && smaller {
                self.block_size = block.size();
                return NextAction::Next;
            }
        }
        match answer.block(OptionNumber::BLOCK2) {
            Some(block) => self.gather_answer(answer, block, most),
            None if self.partial.is_some() && answer.code.class() == 2 => {
                NextAction::Done(Err(Failure::Blocks))
            }
            None => NextAction::Done(Ok(without_blocks(answer))),
        }
    }

    /// The peer has a block and wants the next, perhaps in smaller pieces (RFC 7959 §2.5).
    fn continue_request(&mut self, block: Block) -> NextAction {
        if block.offset() != self.offset {
            return NextAction::Done(Err(Failure::Blocks));
        }
        self.offset += self.block_size;
        self.block_size = self.block_size.min(block.size());
        if self.offset >= self.message.payload.len() {
            return NextAction::Done(Err(Failure::Blocks));
        }
        NextAction::Next
    }

    fn gather_answer(&mut self, answer: CoapMessage, block: Block, most: usize) -> NextAction {
        let (mut whole, more) = match self.partial.take() {
            None => {
                let payload = answer.payload;
                (CoapMessage { payload: Vec::new(), ..answer }, payload)
            }
            Some((whole, _)) => {
                let same = whole.value(OptionNumber::ETAG) == answer.value(OptionNumber::ETAG);
                if !same || whole.code != answer.code {
                    return NextAction::Done(Err(Failure::Blocks));
                }
                (whole, answer.payload)
            }
        };
        let fits = block.offset() == whole.payload.len();
        if !fits || (block.more() && more.len() != block.size()) {
            return NextAction::Done(Err(Failure::Blocks));
        }
        whole.payload.extend_from_slice(&more);
        if whole.payload.len() > most {
            return NextAction::Done(Err(Failure::TooLarge(most)));
        }
        if !block.more() {
            return NextAction::Done(Ok(without_blocks(whole)));
        }
        match Block::new(block.number() + 1, false, block.size()) {
            Some(next) => {
                self.partial = Some((whole, next));
                NextAction::Next
            }
            None => NextAction::Done(Err(Failure::Blocks)),
        }
    }
}

/// A response without its block options.
fn without_blocks(mut answer: CoapMessage) -> CoapMessage {
    answer.options.retain(|(number, _)| {
        !matches!(
            *number,
            OptionNumber::BLOCK1 | OptionNumber::BLOCK2 | OptionNumber::SIZE1 | OptionNumber::SIZE2
        )
    });
    answer
}
