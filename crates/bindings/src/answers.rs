//! Whoever answers requests, whatever binding they came by.

use crate::engine::Engine;
use gatewright_onem2m::{Refusal, Release, Request, Response, Status};
use std::sync::Weak;

/// Answers requests.
pub(crate) trait Answers: Send + Sync + 'static {
    /// The answer to one.
    fn answer(&self, request: Request) -> impl Future<Output = Response> + Send;
}

impl Answers for Engine {
    async fn answer(&self, request: Request) -> Response {
        let (id, release) = (request.id.clone(), request.release);
        self.ask(request).await.unwrap_or_else(|| {
            let refusal = Refusal::new(Status::InternalServerError, "this CSE is stopping");
            Response::refusing(&refusal, id, release)
        })
    }
}

/// A client takes no requests.
#[derive(Debug)]
pub(crate) struct Nobody;

impl Answers for Nobody {
    async fn answer(&self, request: Request) -> Response {
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

impl Answers for Party {
    async fn answer(&self, request: Request) -> Response {
        let engine = match self {
            Self::Nobody => None,
            Self::Cse(engine) => engine.upgrade(),
        };
        match engine {
            Some(engine) => Answers::answer(&*engine, request).await,
            None => Nobody.answer(request).await,
        }
    }
}

/// The answer to a request that could not be read.
pub(crate) fn refuse(refusal: &Refusal, id: &str) -> Response {
    Response::refusing(refusal, id, Release::default())
}
