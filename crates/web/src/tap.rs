//! A live tap: packets at one position of the graph, as events while they pass.

use crate::{
    answer::{WebAnswer, WebRefusal, streamed},
    site::{Asked, EVENT_STREAM, Site, read_json},
};
use futures_util::stream::unfold;
use gatewright_gateway::{CaptureRequest, Gateway, TappedPacket, Which};
use hyper::body::{Bytes, Incoming};
use serde::Deserialize;
use serde_json::json;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tokio::sync::{
    mpsc::{Sender, channel, error::TrySendError},
    oneshot,
};

/// Maximum packets of a tap.
const PACKETS_MAX: u64 = 1000;

/// Maximum seconds of a tap.
const SECONDS_MAX: f64 = 60.0;

/// Maximum packets on their way to the client: of a client that reads more slowly they are missed.
const WAITING_MAX: usize = 256;

/// The body of a request for a tap.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewTap {
    /// The position.
    at: String,
    /// The direction; both if it is not given.
    side: Option<String>,
    /// Which packets.
    #[serde(default)]
    which: Which,
    /// How many.
    #[serde(default = "most")]
    count: u64,
    /// For how long.
    #[serde(default = "longest")]
    seconds: f64,
}

const fn most() -> u64 {
    PACKETS_MAX
}

const fn longest() -> f64 {
    SECONDS_MAX
}

impl Site {
    /// Shows packets at a position while they pass.
    pub(crate) async fn tap(
        self: &Arc<Self>,
        asked: &Asked<'_>,
        body: Incoming,
    ) -> Result<WebAnswer, WebRefusal> {
        let tap: NewTap = read_json(&asked.head.headers, body).await?;
        let is_right =
            (1..=PACKETS_MAX).contains(&tap.count) && (0.0..=SECONDS_MAX).contains(&tap.seconds);
        if !is_right {
            let why = format!("count is 1 to {PACKETS_MAX}, seconds at most {SECONDS_MAX}");
            return Err(WebRefusal::bad_request(why));
        }
        let gateway = self.gateway().map_err(WebRefusal::unavailable)?;
        let permit = self.trace_place()?;
        asked.concerns(&tap.at);
        let text = format!("{} taps {}", asked.caller.name, tap.at);
        let (sender, receiver) = channel(WAITING_MAX);
        let (begins, begun) = oneshot::channel();
        let (site, caller) = (Arc::clone(self), asked.caller.clone());
        // Beside the answer: it ends at the next look when the client or its token is gone.
        tokio::task::spawn_blocking(move || {
            let goes_on = || !sender.is_closed() && site.authenticator.still_admits(&caller);
            tap.run(&gateway, (&sender, begins), goes_on);
            drop(permit);
        });
        if let Ok(Err(why)) = begun.await {
            return Err(WebRefusal::bad_request(why));
        }
        self.log_change(asked, "web-trace", text);
        let events = unfold(receiver, |mut receiver| async move {
            let event = receiver.recv().await?;
            Some((event, receiver))
        });
        Ok(streamed(EVENT_STREAM, events))
    }
}

impl NewTap {
    /// Sends each packet as an event, and the end, as long as `goes_on`; `begins` is told first whether
    /// there can be such packets.
    fn run(
        self,
        gateway: &Gateway,
        (sender, begins): (&Sender<Bytes>, oneshot::Sender<Result<(), String>>),
        goes_on: impl Fn() -> bool,
    ) {
        let request = CaptureRequest {
            at: Some(self.at),
            side: self.side,
            which: self.which,
            count: Some(self.count),
            seconds: Some(self.seconds),
        };
        let left_out = AtomicU64::new(0);
        let mut begins = Some(begins);
        let mut begin = |begun| {
            // The client may be gone.
            let _gone = begins.take().map(|begins| begins.send(begun));
        };
        let take = |packet: Option<TappedPacket>| {
            begin(Ok(()));
            if !goes_on() {
                return false;
            }
            let Some(packet) = packet else { return true };
            match sender.try_send(stream_message("packet", &json!(packet))) {
                Ok(()) => true,
                Err(TrySendError::Full(_)) => {
                    left_out.fetch_add(1, Ordering::Relaxed);
                    true
                }
                Err(TrySendError::Closed(_)) => false,
            }
        };
        let end = gateway.tap(&request, take);
        begin(end.as_ref().map(|_| ()).map_err(Clone::clone));
        let end = end.map(|end| {
            let left_out = left_out.load(Ordering::Relaxed);
            json!({
                "packets": end.packets.saturating_sub(left_out),
                "missed": end.missed.saturating_add(left_out),
            })
        });
        let last = match end {
            Ok(end) => stream_message("end", &end),
            Err(why) => stream_message("error", &json!({ "error": why })),
        };
        // The client may be gone.
        let _gone = sender.blocking_send(last);
    }
}

/// A message of the stream: a server-sent event.
fn stream_message(kind: &str, data: &serde_json::Value) -> Bytes {
    Bytes::from(format!("event: {kind}\ndata: {data}\n\n"))
}
