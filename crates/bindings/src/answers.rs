//! Traits and adapters that answer requests, independent of the binding.

use crate::engine::{Engine, Observing};
use crate::tls::Identity;
use gatewright_onem2m::{Refusal, Release, Request, Response, Status};
use std::net::IpAddr;
use std::sync::{Arc, Weak};

/// Answers requests.
pub(crate) trait Answers: Send + Sync + 'static {
    /// Answers a request from this address, if the address is known.
    fn answer_to(
        &self,
        request: Request,
        from: Option<IpAddr>,
    ) -> impl Future<Output = Response> + Send;

    /// Answers a request.
    fn answer(&self, request: Request) -> impl Future<Output = Response> + Send {
        self.answer_to(request, None)
    }

    /// Answers a request now and after each change, if this implementation can observe; `None`
    /// means that the caller asks once.
    fn observe(self: &Arc<Self>, _request: &Request, _from: IpAddr) -> Option<Observing> {
        None
    }
}

/// Answers requests of one peer whose address is known.
#[derive(Debug)]
pub(crate) struct At<A> {
    pub(crate) answers: Arc<A>,
    pub(crate) address: IpAddr,
}

impl<A: Answers> Answers for At<A> {
    async fn answer_to(&self, request: Request, from: Option<IpAddr>) -> Response {
        self.answers.answer_to(request, from.or(Some(self.address))).await
    }
}

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
        // Counted as open until it is answered.
        let _ticket = ticket;
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

/// Answers requests of one peer, each checked against its certificate.
#[derive(Debug)]
pub(crate) struct Authenticated<A> {
    pub(crate) answers: Arc<A>,
    pub(crate) identity: Identity,
    /// CSE-ID and service provider of the answering CSE.
    pub(crate) own: Arc<(String, String)>,
}

impl<A: Answers> Answers for Authenticated<A> {
    async fn answer_to(&self, mut request: Request, from: Option<IpAddr>) -> Response {
        self.identity.authenticate(&mut request, (&self.own.0, &self.own.1));
        self.answers.answer_to(request, from).await
    }
}

/// A client takes no requests.
#[derive(Debug)]
pub(crate) struct Nobody;

impl Answers for Nobody {
    async fn answer_to(&self, request: Request, _: Option<IpAddr>) -> Response {
        let refusal = Refusal::new(Status::OperationNotAllowed, "no requests are taken here");
        Response::refusing(&refusal, request.id, request.release)
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

/// Response to a request that could not be parsed.
pub(crate) fn refuse(refusal: &Refusal, id: &str) -> Response {
    Response::refusing(refusal, id, Release::default())
}
