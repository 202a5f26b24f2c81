//! Whoever answers requests, whatever binding they came by.

use crate::engine::Engine;
use gatewright_onem2m::{Refusal, Release, Request, Response, Status};

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

/// The answer to a request that could not be read.
pub(crate) fn refuse(refusal: &Refusal, id: &str) -> Response {
    Response::refusing(refusal, id, Release::default())
}
