//! Notification server for an application that subscribes.

use crate::accept::{Admission, Peers, UNAVAILABLE};
use crate::http::connection::{self, Endings, Patience};
use crate::http::message::{accepted, read_request, request_id, write_response};
use crate::tasks::spawn;
use core::convert::Infallible;
use gatewright_onem2m::{Operation, Refusal, Release, Request, Response, Status};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Bytes, Incoming};
use serde_json::Value;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// Notifications queued; beyond, the sender is told to retry.
const WAITING_MAX: usize = 1_024;
/// Octets of one message at most.
const OCTETS_MAX: usize = 4 * 1024 * 1024;

/// Default limit on connections: each may have a head of 64 KiB and a message of 4 MiB in progress,
/// all of them together 260 MiB at the worst.
pub const CONNECTIONS_MAX: usize = 64;
/// One address may have this fraction of them, so that one peer does not lock out all others.
const SHARE: usize = 4;

/// A server that receives notifications. It accepts every subscription, and listens as long as it
/// exists.
#[derive(Debug)]
pub struct Notifications {
    address: SocketAddr,
    arrived: mpsc::Receiver<Value>,
    admission: Admission,
    task: JoinHandle<()>,
}

impl Notifications {
    /// Listens at `address`; port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound.
    pub async fn listen(address: SocketAddr) -> io::Result<Self> {
        Self::listen_for(address, CONNECTIONS_MAX).await
    }

    /// As [`listen`](Self::listen), with this limit on connections and a quarter of it per address.
    /// Further ones get HTTP 503 and are [counted](Self::refused).
    ///
    /// # Errors
    ///
    /// If the address cannot be bound.
    pub async fn listen_for(address: SocketAddr, connections_max: usize) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (sender, arrived) = mpsc::channel(WAITING_MAX);
        let peers = Arc::new(Peers::new(connections_max.div_ceil(SHARE)));
        let admission = Admission::new(connections_max, &peers);
        let task = spawn(accept(listener, admission.clone(), sender));
        Ok(Self { address, arrived, admission, task })
    }

    /// Refused connections.
    pub fn refused(&self) -> u64 {
        self.admission.refused()
    }

    /// Its URL, for use as notification target (nu).
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next notification: the content of one `m2m:sgn`, batches split. It never returns `None`
    /// while this exists.
    pub async fn next(&mut self) -> Option<Value> {
        self.arrived.recv().await
    }
}

impl Drop for Notifications {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, admission: Admission, sender: mpsc::Sender<Value>) {
    // Its connections end with it.
    let (_stay, stop) = watch::channel(false);
    let endings = Arc::<Endings>::default();
    let serve = |stream, _| {
        let sender = sender.clone();
        let answer = move |message| answer(message, sender.clone());
        let patience = (Patience::default(), Arc::clone(&endings));
        connection::serve(stream, patience, answer, stop.clone())
    };
    admission.run((listener, UNAVAILABLE), stop.clone(), serve).await;
}

async fn answer(
    message: hyper::Request<Incoming>,
    sender: mpsc::Sender<Value>,
) -> Result<hyper::Response<Bytes>, Infallible> {
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

/// Queues the notifications of one request, all of them or none.
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
