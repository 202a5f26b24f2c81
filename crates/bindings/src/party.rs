//! The CSE as the one that answers requests.

use crate::answers::{Answers, Nobody};
use crate::engine::Engine;
use crate::observing::Observing;
use gatewright_onem2m::{Refusal, Request, Response, Status};
use std::net::IpAddr;
use std::sync::{Arc, Weak};

impl Answers for Engine {
    async fn answer_to(&self, mut request: Request, from: Option<IpAddr>) -> Response {
        request.source = from;
        let ticket = match self.quotas().admit(&request, from) {
            Ok(ticket) => ticket,
            Err(refusal) => {
                self.refused(&request);
                return refusal;
            }
        };
        // It is counted as open until it is answered.
        self.turns().take(&ticket.who, ticket.octets).await;
        let (id, release) = (request.id.clone(), request.release);
        self.receive(request).await.unwrap_or_else(|| {
            let refusal = Refusal::new(Status::InternalServerError, "this CSE is stopping");
            Response::refusing(&refusal, id, release)
        })
    }

    fn observe(self: &Arc<Self>, request: &Request, from: IpAddr) -> Option<Observing> {
        // What is refused is answered once, with the refusal.
        let _ticket = self.quotas().admit(request, Some(from)).ok()?;
        Some(Self::observe(self, Request { source: Some(from), ..request.clone() }))
    }
}

/// Entity that answers requests arriving over connections that this side opened.
#[derive(Debug)]
pub(crate) enum Party {
    /// A client, which answers none.
    Nobody,
    /// A CSE, while it runs.
    Cse(Weak<Engine>),
}

impl Party {
    /// The engine, if this is a running CSE.
    pub(crate) fn engine(&self) -> Option<Arc<Engine>> {
        match self {
            Self::Nobody => None,
            Self::Cse(engine) => engine.upgrade(),
        }
    }
}

impl Answers for Party {
    async fn answer_to(&self, request: Request, from: Option<IpAddr>) -> Response {
        match self.engine() {
            Some(engine) => engine.answer_to(request, from).await,
            None => Nobody.answer(request).await,
        }
    }
}
