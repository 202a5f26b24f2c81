//! What the server answers, whatever listener a request came by.

use crate::{
    access::{self, Arrival},
    answer::{self, PlainAnswer, WebAnswer, WebRefusal, json, secured, streamed, tag_of},
    counters::{WebCounters, count},
    page,
    probes::Readiness,
    query::Query,
    routes::{self, Endpoint, Found},
    stream::{StatusStream, VIEWERS_MAX},
};
use gatewright_gateway::{
    Gateway, LogLevel,
    api::StatusAnswer,
    metrics::{self, OPEN_METRICS},
};
use hyper::{
    Request, StatusCode,
    body::{Bytes, Incoming},
    header::{ALLOW, HeaderMap, HeaderName, RETRY_AFTER},
    http::request::Parts,
};
use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
    time::{Duration, Instant},
};
use tokio::sync::{Semaphore, watch};

/// Requests that ask the gateway or wait for it, at a time; others are told to come again.
const ASKING_MAX: usize = 16;

/// How long a status is answered again without asking the gateway: any number of clients costs the
/// gateway four a second at most.
const STATUS_FOR: Duration = Duration::from_millis(250);

/// The media type of Server-Sent Events.
const EVENT_STREAM: &str = "text/event-stream";

/// The last event that a client has (WHATWG HTML §9.2.3).
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Maximum events of one answer; a client asks for those after its last one.
const EVENTS_MAX: usize = 500;

/// State of the server that outlives its listeners.
#[derive(Debug)]
pub(crate) struct Site {
    gateway: OnceLock<Weak<Gateway>>,
    pub(crate) counters: WebCounters,
    pub(crate) stream: Arc<StatusStream>,
    asking: Semaphore,
    /// The last status, as JSON, and when it was asked for.
    status: Mutex<Option<(Instant, Bytes)>>,
}

impl Default for Site {
    fn default() -> Self {
        Self {
            gateway: OnceLock::new(),
            counters: WebCounters::default(),
            stream: Arc::default(),
            asking: Semaphore::new(ASKING_MAX),
            status: Mutex::default(),
        }
    }
}

impl Site {
    /// Begins to serve `gateway`; only the first one counts.
    pub(crate) fn serve(&self, gateway: &Arc<Gateway>) {
        self.gateway.get_or_init(|| Arc::downgrade(gateway));
    }

    /// The gateway, until it ends.
    fn gateway(&self) -> Result<Arc<Gateway>, String> {
        let gateway = self.gateway.get().and_then(Weak::upgrade);
        gateway.ok_or_else(|| "the gateway ends".to_owned())
    }

    /// Answers a request.
    pub(crate) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        (arrival, stop): (Arrival, watch::Receiver<bool>),
    ) -> WebAnswer {
        count(&self.counters.requests);
        let (head, _body) = request.into_parts();
        let answered = self.dispatch(&head, (arrival, stop)).await;
        secured(answered.unwrap_or_else(WebAnswer::from))
    }

    async fn dispatch(
        self: &Arc<Self>,
        head: &Parts,
        (arrival, stop): (Arrival, watch::Receiver<bool>),
    ) -> Result<WebAnswer, WebRefusal> {
        access::check(arrival, &head.uri, &head.headers, &self.counters)?;
        let (method, path) = (head.method.as_str(), head.uri.path());
        match routes::find(method, path) {
            Found::Route(route) => self.endpoint(route.endpoint, head, stop).await,
            Found::OtherMethod(methods) => Err(other_method(methods)),
            Found::Nothing => self.file(method, path, &head.headers),
        }
    }

    /// A file of the page.
    fn file(&self, method: &str, path: &str, headers: &HeaderMap) -> Result<WebAnswer, WebRefusal> {
        let Some(answer) = page::answer(path, headers) else {
            count(&self.counters.paths_unknown);
            let why = "nothing is at this path: /api/v1/openapi.json describes what there is";
            return Err(WebRefusal::new(StatusCode::NOT_FOUND, why));
        };
        let is_read = ["GET", "HEAD"].contains(&method);
        if is_read { Ok(answer) } else { Err(other_method("GET, HEAD")) }
    }

    async fn endpoint(
        self: &Arc<Self>,
        endpoint: Endpoint,
        Parts { headers, uri, .. }: &Parts,
        stop: watch::Receiver<bool>,
    ) -> Result<WebAnswer, WebRefusal> {
        match endpoint {
            Endpoint::Live => Ok(json(StatusCode::OK, &serde_json::json!({ "live": true }))),
            Endpoint::Ready => self.ready().await,
            Endpoint::Metrics => {
                let text = self.ask(|gateway| Ok(metrics::text(&gateway.status()?))).await?;
                Ok(PlainAnswer::new(OPEN_METRICS, text).finish(headers))
            }
            Endpoint::Status => {
                let octets = self.status().await?;
                let etag = tag_of(&octets);
                let plain = PlainAnswer::new(answer::JSON, octets).cache("no-cache").etag(etag);
                Ok(plain.finish(headers))
            }
            Endpoint::Stream => self.begin_stream(headers, stop),
            Endpoint::Events => self.events(uri.query()),
        }
    }

    /// Begins a stream, after the event that the client had last.
    fn begin_stream(
        &self,
        headers: &HeaderMap,
        stop: watch::Receiver<bool>,
    ) -> Result<WebAnswer, WebRefusal> {
        let unavailable = |why: String| WebRefusal::new(StatusCode::SERVICE_UNAVAILABLE, why);
        let gateway = self.gateway().map_err(unavailable)?;
        let last = headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok());
        let viewer = self.stream.view(&gateway, last);
        let viewer = viewer.map_err(|error| unavailable(format!("no sampler: {error}")))?;
        let Some(viewer) = viewer else {
            let why = format!("{VIEWERS_MAX} streams are open: close some, or come again later");
            return Err(unavailable(why).with(RETRY_AFTER, "10"));
        };
        Ok(streamed(EVENT_STREAM, viewer.frames(stop)))
    }

    /// Kept events, the oldest first.
    fn events(&self, query: Option<&str>) -> Result<WebAnswer, WebRefusal> {
        let query = Query::parse(query, &["after", "level"])?;
        let after: Option<u64> = query.value("after", "the number of an event")?;
        let level: Option<LogLevel> = query.value("level", "error, warning, info or debug")?;
        let mut reader = {
            let gateway = self.gateway();
            let unavailable = |why| WebRefusal::new(StatusCode::SERVICE_UNAVAILABLE, why);
            let gateway = gateway.map_err(unavailable)?;
            gateway.events().reader(after, level.unwrap_or(LogLevel::Debug))
        };
        let read = reader.read(Duration::ZERO);
        let events: Vec<_> = read.events.iter().take(EVENTS_MAX).map(|entry| &**entry).collect();
        let document = serde_json::json!({ "events": events, "missed": read.missed });
        Ok(json(StatusCode::OK, &document))
    }

    async fn ready(self: &Arc<Self>) -> Result<WebAnswer, WebRefusal> {
        let readiness = self.ask(|gateway| Ok(Readiness::of(&gateway.status()))).await;
        let readiness = match readiness {
            Ok(readiness) => readiness,
            // It may be busy with others, and be ready.
            Err(refusal) if refusal.field.is_some() => return Err(refusal),
            Err(refusal) => Readiness::of(&Err(refusal.why)),
        };
        let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        Ok(json(status, &readiness))
    }

    /// The status as JSON, at most [`STATUS_FOR`] old.
    async fn status(self: &Arc<Self>) -> Result<Bytes, WebRefusal> {
        let site = Arc::clone(self);
        self.ask(move |gateway| {
            // Of several at the same time, one asks and the others wait for what it gets.
            let mut last = site.status.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((when, octets)) = &*last
                && when.elapsed() < STATUS_FOR
            {
                return Ok(octets.clone());
            }
            let status: StatusAnswer = gateway.status()?;
            let octets = serde_json::to_vec(&status).map_err(|error| error.to_string())?;
            let octets = Bytes::from(octets);
            *last = Some((Instant::now(), octets.clone()));
            Ok(octets)
        })
        .await
    }

    /// Asks the gateway on a thread that may wait for it.
    async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        question: impl FnOnce(&Gateway) -> Result<T, String> + Send + 'static,
    ) -> Result<T, WebRefusal> {
        let Ok(_permit) = self.asking.try_acquire() else {
            count(&self.counters.busy_refused);
            let why = format!("{ASKING_MAX} requests wait for the gateway: ask again in a second");
            let refusal = WebRefusal::new(StatusCode::SERVICE_UNAVAILABLE, why);
            return Err(refusal.with(RETRY_AFTER, "1"));
        };
        let gateway = self.gateway();
        let asked = tokio::task::spawn_blocking(move || question(&*gateway?)).await;
        let answer = asked.unwrap_or_else(|error| Err(error.to_string()));
        answer.map_err(|why| WebRefusal::new(StatusCode::SERVICE_UNAVAILABLE, why))
    }
}

/// The refusal of a method, with those that the path has (RFC 9110 §15.5.6).
fn other_method(methods: &'static str) -> WebRefusal {
    let why = format!("this path has no such method: it has {methods}");
    WebRefusal::new(StatusCode::METHOD_NOT_ALLOWED, why).with(ALLOW, methods)
}
