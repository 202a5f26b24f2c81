//! End of a request: the receiver of its answer, and its delivery.

use super::{AuditedRequest, Cse, Token, repeats};
use crate::answer_octets::{AnswerPeer, AnswersFull, Reservation, ReservedOctets};
use crate::primitive::{PartialContent, Release, Request, Response};
use crate::status::{Refusal, Status};
use core::cell::Cell;
use core::net::IpAddr;
use core::time::Duration;
use std::sync::Arc;

/// Time to retry when there is no room for an answer.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Receiver and context of an answer.
#[derive(Clone, Debug)]
pub(super) struct RequestContext {
    pub(super) whom: Recipient,
    pub(super) id: Arc<str>,
    pub(super) release: Release,
    /// Whether this process sent the request itself.
    pub(super) is_own: bool,
    /// Whether it is a later notification of an observer, not the answer to a request.
    pub(super) is_repeated: bool,
    /// Groups that the request has come through.
    pub(super) depth: usize,
    /// Number of the fan-out that it is a part of, the outermost of nested ones.
    pub(super) fan: Option<u64>,
    /// Whether a rule allowed a part of the request because of its address.
    pub(super) by_place: Cell<bool>,
    /// The originator.
    pub(super) from: Arc<str>,
    /// The address that it came from, if known.
    pub(super) source: Option<IpAddr>,
    /// The request's data for the audit log entry.
    pub(super) asked: Option<Arc<AuditedRequest>>,
    /// The batch being written when it arrived.
    pub(super) since: u64,
}

impl RequestContext {
    /// The sender of an outside `request`.
    pub(super) fn outside(
        token: Token,
        key: Option<repeats::RequestKey>,
        request: &Request,
    ) -> Self {
        let whom = Recipient::Outside(token, key);
        let (id, from) = (request.id.as_str().into(), request.from.as_str().into());
        Self {
            whom,
            id,
            release: request.release,
            is_own: false,
            is_repeated: false,
            depth: 0,
            fan: None,
            by_place: Cell::new(false),
            from,
            source: request.source,
            asked: None,
            since: 0,
        }
    }

    /// Adds the audit data, to be logged in the batch `since` or later.
    pub(super) fn noted(self, asked: Option<Arc<AuditedRequest>>, since: u64) -> Self {
        Self { asked, since, ..self }
    }
}

/// Receiver of an answer.
#[derive(Clone, Debug)]
pub(super) enum Recipient {
    /// An outside requester.
    Outside(Token, Option<repeats::RequestKey>),
    /// The fan-out with this number, of which the request is a member.
    Member(u64, usize),
    /// The request resource with this number, and these notification targets.
    Kept(u64, Arc<[String]>),
    /// None.
    Nobody,
}

/// Success of a request.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) status: Status,
    pub(super) content: Option<Arc<str>>,
    pub(super) location: Option<Arc<str>>,
    pub(super) partial: Option<PartialContent>,
    /// The content's octets, if they are reserved already.
    pub(super) reservation: Reservation,
}

impl Done {
    pub(super) fn new(status: Status) -> Self {
        let reservation = Reservation::default();
        Self { status, content: None, location: None, partial: None, reservation }
    }

    pub(super) fn with(status: Status, content: impl Into<Arc<str>>) -> Self {
        Self { content: Some(content.into()), ..Self::new(status) }
    }
}

impl Cse {
    pub(super) fn answer(&mut self, asker: &RequestContext, outcome: Result<Done, Refusal>) {
        let response = self.response_of(asker, outcome);
        self.deliver(asker, response);
    }

    pub(super) fn deliver(&mut self, asker: &RequestContext, response: Response) {
        self.note_place(asker);
        let (token, key) = match &asker.whom {
            Recipient::Outside(token, key) => (*token, *key),
            _ => return self.deliver_inside(asker, response),
        };
        let response = self.post_beside(token, response);
        let response = self.reserved(asker, response);
        self.note_answer(asker, &response);
        let limits = &self.config.limits;
        let also = key.map_or_else(Vec::new, |key| {
            self.repeats.answered(key, &response, self.moment, limits)
        });
        if let Some(key) = key {
            self.ledger.remember(key);
        }
        for repeated in also {
            // The message of a repetition: the first one's was posted, or is not to be.
            self.outbox.take_beside(repeated);
            self.ledger.respond(repeated, response.clone());
        }
        self.ledger.respond(token, response);
    }

    /// The octets of an answer that is still to be rendered, for its peer. This process reads its
    /// own answers, and what is kept has bounds of its own.
    ///
    /// # Errors
    ///
    /// 5000 with the time to retry if the peer has too many that it does not read, or all have.
    pub(super) fn reserve(
        &mut self,
        asker: &RequestContext,
        octets: usize,
    ) -> Result<Option<ReservedOctets>, Refusal> {
        if asker.is_own || matches!(asker.whom, Recipient::Kept(..) | Recipient::Nobody) {
            return Ok(None);
        }
        let peer = AnswerPeer::new(asker.source, &asker.from);
        let mut reserved = ReservedOctets::new(self.answers.clone(), peer);
        let full = match reserved.reserve(octets, &self.config.limits) {
            Ok(()) => return Ok(Some(reserved)),
            Err(full) => full,
        };
        Err(self.no_room_for_answer(full))
    }

    pub(super) fn no_room_for_answer(&mut self, full: AnswersFull) -> Refusal {
        let words = match full {
            AnswersFull::OfPeer => {
                self.counters.answers_of_one_full += 1;
                "too many octets of answers are not read yet"
            }
            AnswersFull::OfAll => {
                self.counters.answers_full += 1;
                "too many octets of others' answers are not read yet"
            }
        };
        // No oneM2M status says *busy*: see `Response::retry_after`.
        let refusal = Refusal::new(Status::InternalServerError, words);
        Refusal { retry_after: Some(AGAIN_AFTER), ..refusal }
    }

    /// An answer with its octets reserved; without room for them a refusal, or without its content
    /// if something was done.
    fn reserved(&mut self, asker: &RequestContext, response: Response) -> Response {
        let octets = response.content.as_ref().map_or(0, |content| content.len());
        // Refusals are short, and who is refused for want of room is to be told.
        if octets == 0 || response.reservation.is_some() || !response.status.is_success() {
            return response;
        }
        match self.reserve(asker, octets) {
            Ok(reserved) => {
                let reservation = reserved.map(Reservation::from).unwrap_or_default();
                Response { reservation, ..response }
            }
            Err(refusal) if response.status == Status::Ok => {
                // What was fetched is for another time.
                if let Recipient::Outside(token, _) = asker.whom {
                    self.take_back(token);
                }
                Response::refusing(&refusal, response.id, response.release)
            }
            Err(_) => Response { content: None, ..response },
        }
    }

    /// Octets of the answers that are not read yet, and the most that ever were.
    pub fn unread_octets(&self) -> (usize, usize) {
        self.answers.held()
    }

    /// Delivers the answer of a member request, or of one that was accepted before.
    fn deliver_inside(&mut self, asker: &RequestContext, response: Response) {
        self.note_answer(asker, &response);
        match &asker.whom {
            Recipient::Member(fan, at) => self.member_answered(*fan, *at, response),
            Recipient::Kept(seq, targets) => {
                let response = self.fit_to_keep(response);
                self.keep_answer(*seq, targets, &response);
            }
            Recipient::Outside(..) | Recipient::Nobody => {}
        }
    }

    /// An answer that is kept is no larger than any other resource.
    fn fit_to_keep(&mut self, response: Response) -> Response {
        let octets = response.content.as_ref().map_or(0, |content| content.len());
        if octets <= self.config.limits.content_octets {
            return response;
        }
        self.counters.content_too_large += 1;
        let words = format!("{octets} octets are too many for an answer that is kept");
        let refusal = Refusal::new(Status::NotAcceptable, words);
        Response::refusing(&refusal, response.id, response.release)
    }

    pub(super) fn response_of(
        &mut self,
        asker: &RequestContext,
        outcome: Result<Done, Refusal>,
    ) -> Response {
        let (id, release) = (Arc::clone(&asker.id), asker.release);
        match outcome {
            Ok(done) => {
                self.counters.succeeded += 1;
                let mut response = Response::new(done.status, id, release);
                response.content = done.content;
                response.location = done.location;
                response.partial = done.partial;
                response.reservation = done.reservation;
                response
            }
            Err(mut refusal) => {
                self.counters.refused += 1;
                if refusal.status == Status::OriginatorHasNoPrivilege {
                    self.counters.denied += 1;
                    // The request may have come through others, and each may refuse it.
                    refusal.debug = format!("{}: {}", self.config.cse_id, refusal.debug).into();
                }
                // What is refused may be refused because of what is not stored yet: a name that
                // is taken must be taken for good before anyone is told.
                self.ledger.see_all();
                Response::refusing(&refusal, id, release)
            }
        }
    }
}
