//! Traits and adapters that answer requests, independent of the binding.

use crate::observing::Observing;
use crate::tls::Identity;
use gatewright_onem2m::{Refusal, Release, Request, Response, Status};
use std::net::IpAddr;
use std::sync::Arc;

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

/// Response to a request that could not be parsed.
pub(crate) fn refuse(refusal: &Refusal, id: &str) -> Response {
    Response::refusing(refusal, id, Release::default())
}
