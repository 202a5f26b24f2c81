//! Traces of packets and of messages of programs: one after the other, each as an event.

use crate::{
    answer::{WebAnswer, WebRefusal, streamed},
    site::{Asked, EVENT_STREAM, Site, read_json},
    translation,
};
use futures_util::stream::unfold;
use gatewright_gateway::{Gateway, MessageTraceRequest, TraceRequest, Which};
use hyper::body::{Bytes, Incoming};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Maximum packets of one trace.
const TRACED_MAX: u32 = 16;

/// Maximum seconds to wait for each.
const TRACE_SECONDS_MAX: f64 = 60.0;

/// The body of a request for a trace.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewTrace {
    /// A position of messages, `gateway:NAME/HANDLER`; packets if it is not given.
    #[serde(default)]
    position: Option<String>,
    /// Which packets.
    #[serde(default)]
    which: Which,
    /// How many.
    #[serde(default = "one")]
    count: u32,
    /// How long to wait for each.
    #[serde(default = "ten")]
    seconds: f64,
}

const fn one() -> u32 {
    1
}

const fn ten() -> f64 {
    10.0
}

impl Site {
    /// Traces packets or a message; each is an event of the answer.
    pub(crate) async fn trace(
        self: &Arc<Self>,
        asked: &Asked<'_>,
        body: Incoming,
    ) -> Result<WebAnswer, WebRefusal> {
        let request: NewTrace = read_json(&asked.head.headers, body).await?;
        let is_right = (1..=TRACED_MAX).contains(&request.count)
            && (0.0..=TRACE_SECONDS_MAX).contains(&request.seconds);
        if !is_right {
            let why = format!("count is 1 to {TRACED_MAX}, seconds at most {TRACE_SECONDS_MAX}");
            return Err(WebRefusal::bad_request(why));
        }
        if let Some(link) = request.which.link.clone() {
            let known = self.ask(move |gateway| Ok(gateway.planes().link(&link).map(|_| ())));
            known.await?.map_err(WebRefusal::not_found)?;
        }
        request.which.matching().map_err(WebRefusal::bad_request)?;
        let permit = self.trace_place()?;
        if let Some(at) = request.position.clone() {
            // One of no time finds out whether there is such a position.
            let look = MessageTraceRequest { at, seconds: Some(0.0) };
            let found =
                move |gateway: &Gateway| Ok(gateway.trace_message(&look, || true).map(drop));
            self.ask(found).await?.map_err(WebRefusal::bad_request)?;
        }
        let what = request.position.as_deref().unwrap_or("packets").to_owned();
        self.log_change(asked, "web-trace", format!("{} traces {what}", asked.caller.name));
        asked.concerns(&what);
        let (site, request) = (Arc::clone(self), Arc::new(request));
        let begin = (0, Some((site, request, Arc::new(permit), asked.caller.clone())));
        let events = unfold(begin, |(number, state)| async move {
            let (site, request, permit, caller) = state?;
            let (asked, held) = (Arc::clone(&request), Arc::clone(&permit));
            // Dropped with this future, which goes when the client does.
            let wanted = Arc::new(());
            let is_wanted = Arc::downgrade(&wanted);
            let run = move |gateway: &Gateway| {
                let traced = asked.run(gateway, || is_wanted.strong_count() > 0);
                drop(held);
                traced
            };
            let traced = tokio::select! {
                traced = site.ask(run) => traced,
                () = site.until_refused(&caller) => return None,
            };
            drop(wanted);
            let (kind, data) = match traced {
                Ok(traced) => ("trace", traced),
                Err(refusal) => ("error", json!({ "error": refusal.why })),
            };
            let is_last = kind == "error" || number + 1 >= request.count;
            let end = if is_last { "event: end\ndata: {}\n\n" } else { "" };
            let event = Bytes::from(format!("id: {number}\nevent: {kind}\ndata: {data}\n\n{end}"));
            let next = (!is_last).then_some((site, request, permit, caller));
            Some((event, (number + 1, next)))
        });
        Ok(streamed(EVENT_STREAM, events))
    }
}

impl NewTrace {
    /// Traces one packet, or one message, while `is_wanted`.
    fn run(&self, gateway: &Gateway, is_wanted: impl Fn() -> bool) -> Result<Value, String> {
        let seconds = Some(self.seconds);
        if let Some(at) = &self.position {
            let request = MessageTraceRequest { at: at.clone(), seconds };
            return translation::document(gateway.trace_message(&request, is_wanted)?);
        }
        let request =
            TraceRequest { which: self.which.clone(), seconds, ..TraceRequest::default() };
        gateway.trace(&request, is_wanted).map(|traced| json!(traced))
    }
}
