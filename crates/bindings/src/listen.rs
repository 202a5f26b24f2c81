//! Where notifications arrive: a small server for an application that subscribes.

use crate::http::connection::{self, Patience};
use crate::http::message::{accepted, read_request, request_id, write_response};
use core::convert::Infallible;
use core::time::Duration;
use gatewright_onem2m::{Operation, Refusal, Release, Request, Response, Status};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use serde_json::Value;
use std::io;
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// Notifications that wait to be taken; beyond, the sender is told to come again.
const WAITING_MAX: usize = 1_024;
/// Octets of one message.
const OCTETS_MAX: usize = 4 * 1024 * 1024;

/// A server that takes notifications. It agrees to every subscription, and listens as long as
/// it exists.
#[derive(Debug)]
pub struct Notifications {
    address: SocketAddr,
    arrived: mpsc::Receiver<Value>,
    task: JoinHandle<()>,
}

impl Notifications {
    /// Listens at `address`; port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// If the address cannot be listened on.
    pub async fn listen(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (sender, arrived) = mpsc::channel(WAITING_MAX);
        let task = tokio::spawn(accept(listener, sender));
        Ok(Self { address, arrived, task })
    }

    /// What to give as notification target (nu).
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next notification: the content of one `m2m:sgn`, batches taken apart. `None` never
    /// comes while this exists.
    pub async fn next(&mut self) -> Option<Value> {
        self.arrived.recv().await
    }
}

impl Drop for Notifications {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, sender: mpsc::Sender<Value>) {
    // Its connections end with it.
    let (_stay, stop) = watch::channel(false);
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let sender = sender.clone();
        let answer = move |message| answer(message, sender.clone());
        tokio::spawn(connection::serve(stream, Patience::default(), answer, stop.clone()));
    }
}

async fn answer(
    message: hyper::Request<Incoming>,
    sender: mpsc::Sender<Value>,
) -> Result<hyper::Response<Full<Bytes>>, Infallible> {
    let (head, body) = message.into_parts();
    let body = Limited::new(body, OCTETS_MAX).collect().await;
    let outcome = match body {
        Ok(body) => read_request(&head, &body.to_bytes()).and_then(|it| take(&it, &sender)),
        Err(error) => Err(Refusal::bad(error.to_string())),
    };
    let id = request_id(&head.headers);
    let response = match outcome {
        Ok(release) => Response::new(Status::Ok, id, release),
        Err(refusal) => Response::refusing(&refusal, id, Release::default()),
    };
    Ok(write_response(response, accepted(&head.headers)))
}

/// Takes the notifications of one request, all of them or none.
fn take(request: &Request, sender: &mpsc::Sender<Value>) -> Result<Release, Refusal> {
    if request.operation != Operation::Notify {
        return Err(Refusal::new(Status::OperationNotAllowed, "only notifications are taken here"));
    }
    let content = request.content.as_deref().unwrap_or_default();
    let content: Value =
        serde_json::from_str(content).map_err(|error| Refusal::bad(error.to_string()))?;
    let single = content.get("m2m:sgn").map(core::slice::from_ref);
    let batch = content.get("m2m:agn").and_then(|batch| batch.get("m2m:sgn"));
    let list = single.or_else(|| batch.and_then(Value::as_array).map(Vec::as_slice));
    let list = list.ok_or_else(|| Refusal::bad("no m2m:sgn"))?;
    let told: Vec<&Value> = list.iter().filter(|one| one.get("vrq").is_none()).collect();
    let places = sender.try_reserve_many(told.len()).map_err(|_| {
        // The sender keeps it and comes again.
        Refusal::new(Status::InternalServerError, "too many notifications wait here")
    })?;
    for (place, notification) in places.zip(told) {
        place.send(notification.clone());
    }
    Ok(request.release)
}
