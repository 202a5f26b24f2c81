//! Whoever answers requests, whatever binding they came by.

use crate::engine::{Engine, Observing};
use crate::tls::Identity;
use gatewright_onem2m::{Refusal, Release, Request, Response, Status};
use std::net::IpAddr;
use std::sync::{Arc, Weak};

/// Answers requests.
pub(crate) trait Answers: Send + Sync + 'static {
    /// The answer to one that came from this address, if that is known.
    fn answer_to(
        &self,
        request: Request,
        from: Option<IpAddr>,
    ) -> impl Future<Output = Response> + Send;

    /// The answer to one.
    fn answer(&self, request: Request) -> impl Future<Output = Response> + Send {
        self.answer_to(request, None)
    }

    /// The answers to one that is to be answered again whenever the answer is another, if that is
    /// done here; else it is to be asked once.
    fn observe(self: &Arc<Self>, _request: &Request, _from: IpAddr) -> Option<Observing> {
        None
    }
}

/// Answers one peer, whose address is known.
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

/// Answers only what a peer asks as itself.
#[derive(Debug)]
pub(crate) struct Vouched<A> {
    pub(crate) answers: Arc<A>,
    pub(crate) identity: Identity,
    /// CSE-ID and provider of who answers.
    pub(crate) own: Arc<(String, String)>,
}

impl<A: Answers> Answers for Vouched<A> {
    async fn answer_to(&self, mut request: Request, from: Option<IpAddr>) -> Response {
        self.identity.vouch(&mut request, (&self.own.0, &self.own.1));
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

/// Who answers what comes over a connection that we made.
#[derive(Debug)]
pub(crate) enum Party {
    /// A client: nobody.
    Nobody,
    /// A CSE, as long as it runs.
    Cse(Weak<Engine>),
}

impl Party {
    /// The CSE, if it is one and runs.
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

/// The answer to a request that could not be read.
pub(crate) fn refuse(refusal: &Refusal, id: &str) -> Response {
    Response::refusing(refusal, id, Release::default())
}
