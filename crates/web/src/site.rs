//! What the server answers, whatever listener a request came by.

use crate::{
    access::{self, Arrival, ProbeCause},
    answer::{self, PlainAnswer, WebAnswer, WebRefusal, json, secured, streamed, tag_of},
    audit::{AuditedChange, WebAudit},
    change_requests::ChangeRequest,
    counters::{WebCounters, count},
    openapi, page,
    places::ConnectionPlace,
    precondition::SeenVersions,
    probes::Readiness,
    query::Query,
    reads::LoggedReads,
    routes::{self, Endpoint, Found, WebRoute},
    session::{Authenticator, Caller, ShownBy},
    stream::{StatusStream, StreamRefusal},
    tokens::AccessRole,
    turns::{CallerTurn, Turns},
};
use gatewright_config::Web;
use gatewright_gateway::{
    Gateway, LogEvent, LogLevel,
    api::StatusAnswer,
    metrics::{self, OPEN_METRICS},
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::{
    Request, StatusCode,
    body::{Bytes, Incoming},
    header::{
        ALLOW, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, SET_COOKIE,
        WWW_AUTHENTICATE,
    },
    http::request::Parts,
};
use serde::{Deserialize, de::DeserializeOwned};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak},
    time::{Duration, Instant, SystemTime},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// How long a status is answered again without asking the gateway: any number of clients costs the
/// gateway four a second at most.
const STATUS_FOR: Duration = Duration::from_millis(250);

/// Traces and taps at a time; each waits on a thread for its packets.
pub(crate) const TRACES_MAX: usize = 2;

/// How often a running trace is looked at for whether its caller's token is still there.
const LOOK_AFTER: Duration = Duration::from_millis(250);

/// The media type of Server-Sent Events.
pub(crate) const EVENT_STREAM: &str = "text/event-stream";

/// The last event that a client has (WHATWG HTML §9.2.3).
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Maximum events of one answer; a client asks for those after its last one.
const EVENTS_MAX: usize = 500;

/// Maximum octets of a request's body.
const BODY_MAX: usize = 16 * 1024;

/// How long a body may take.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// Maximum characters of what a request is about, in the audit log and in events.
pub(crate) const ABOUT_MAX: usize = 256;

/// The body of a request for a session.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewSession {
    token: String,
}

/// A request that was admitted.
pub(crate) struct Asked<'a> {
    pub(crate) head: &'a Parts,
    pub(crate) arrival: &'a Arrival,
    pub(crate) caller: Caller,
    /// The change that it makes, if that is logged.
    pub(crate) audited: Option<AuditedChange>,
    /// What the change is about.
    pub(crate) about: OnceLock<String>,
    /// Set if it has turned out that nothing was changed.
    without_effect: OnceLock<()>,
    stop: watch::Receiver<bool>,
}

impl Asked<'_> {
    /// Notes for the audit log what the request is about, which it says once.
    pub(crate) fn concerns(&self, what: &str) {
        let _first = self.about.set(what.chars().take(ABOUT_MAX).collect());
    }

    /// The versions that the caller has seen, as the field If-Match says it; `at` is where versions are.
    ///
    /// # Errors
    ///
    /// As of [`SeenVersions::read`].
    pub(crate) fn versions_seen(&self, at: &str) -> Result<SeenVersions, WebRefusal> {
        SeenVersions::read(&self.head.headers, at)
    }

    /// Notes that the request has changed nothing, so that the audit log gets no entry.
    fn changes_nothing(&self) {
        let _first = self.without_effect.set(());
    }
}

/// A status as JSON, with its entity tag.
#[derive(Clone, Debug)]
struct KnownStatus {
    asked_at: Instant,
    octets: Bytes,
    etag: HeaderValue,
}

/// State of the server that outlives its listeners.
#[derive(Debug)]
pub(crate) struct Site {
    gateway: OnceLock<Weak<Gateway>>,
    pub(crate) counters: WebCounters,
    pub(crate) stream: Arc<StatusStream>,
    pub(crate) authenticator: Authenticator,
    /// Turns of requests that ask the gateway or wait for it.
    turns: Turns,
    /// Reads of values that were logged.
    pub(crate) reads: LoggedReads,
    /// Traces and taps under way.
    tracing: Arc<Semaphore>,
    /// The folder of the delay lab's reports.
    reports: RwLock<Option<PathBuf>>,
    /// The log of changes.
    audit: RwLock<Option<Arc<WebAudit>>>,
    /// The last status as JSON.
    status: Mutex<Option<KnownStatus>>,
}

impl Default for Site {
    fn default() -> Self {
        Self {
            gateway: OnceLock::new(),
            counters: WebCounters::default(),
            stream: Arc::default(),
            authenticator: Authenticator::default(),
            turns: Turns::default(),
            reads: LoggedReads::default(),
            tracing: Arc::new(Semaphore::new(TRACES_MAX)),
            reports: RwLock::default(),
            audit: RwLock::default(),
            status: Mutex::default(),
        }
    }
}

impl Site {
    /// Begins to serve `gateway`; only the first one counts.
    pub(crate) fn serve(&self, gateway: &Arc<Gateway>) {
        self.gateway.get_or_init(|| Arc::downgrade(gateway));
    }

    /// Takes what a description says of callers and of what is shown.
    pub(crate) fn configure(&self, web: Option<&Web>, audit: Option<Arc<WebAudit>>) {
        self.authenticator.configure(web.and_then(|web| web.tokens.as_deref()));
        let reports = web.and_then(|web| web.reports.as_ref()).map(PathBuf::from);
        *self.reports.write().unwrap_or_else(PoisonError::into_inner) = reports;
        *self.audit.write().unwrap_or_else(PoisonError::into_inner) = audit;
    }

    /// The log of changes, if there is one.
    pub(crate) fn audit(&self) -> Option<Arc<WebAudit>> {
        self.audit.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The folder of the delay lab's reports, if one is shown.
    pub(crate) fn reports(&self) -> Option<PathBuf> {
        self.reports.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The gateway, until it ends.
    pub(crate) fn gateway(&self) -> Result<Arc<Gateway>, String> {
        let gateway = self.gateway.get().and_then(Weak::upgrade);
        gateway.ok_or_else(|| "the gateway ends".to_owned())
    }

    /// Answers a request that came by `arrival`; streams end when `stop` is set.
    pub(crate) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        (arrival, place, stop): (Arrival, Arc<ConnectionPlace>, watch::Receiver<bool>),
    ) -> WebAnswer {
        count(&self.counters.requests);
        let (head, body) = request.into_parts();
        let answered = self.dispatch(&head, body, (arrival, &place, stop)).await;
        secured(answered.unwrap_or_else(WebAnswer::from), SystemTime::now())
    }

    async fn dispatch(
        self: &Arc<Self>,
        head: &Parts,
        body: Incoming,
        (arrival, place, stop): (Arrival, &ConnectionPlace, watch::Receiver<bool>),
    ) -> Result<WebAnswer, WebRefusal> {
        let headers = &head.headers;
        let (method, path) = (head.method.as_str(), head.uri.path());
        let found = routes::find(method, path);
        let is_file = matches!(found, Found::Nothing) && page::is_file(path);
        access::check(&arrival, &head.uri, (headers, is_file), &self.counters)?;
        if let Some(cause) = arrival.probe {
            self.check_probe(cause, &found)?;
        }
        let route = match found {
            Found::Route(route) => route,
            Found::OtherMethod(methods) => return Err(other_method(&methods)),
            Found::Nothing => return self.file(method, path, headers),
        };
        // Whatever the caller shows, also while no token can be checked.
        if route.endpoint == Endpoint::Live {
            return Ok(live());
        }
        // Whatever the caller shows of an earlier session.
        if route.endpoint == Endpoint::BeginSession {
            return self.begin_session(&arrival, headers, body).await;
        }
        let caller = self.authenticator.caller(&arrival, headers)?;
        if caller.shown != ShownBy::Nothing
            && let Some(role) = caller.role
        {
            place.is_known(&caller.name, role)?;
        }
        self.admit(&caller, route)?;
        if route.is_change() {
            access::check_change(&caller, headers, &self.counters)?;
        }
        if caller.role < Some(AccessRole::Operator) {
            // A connection with many requests lets others ask in between.
            tokio::task::yield_now().await;
        }
        let audited = self.audit().filter(|_| route.is_change() && caller.role.is_some());
        let audited = audited
            .map(|log| AuditedChange::new(log, (route.endpoint, route.path), (&caller, &arrival)));
        let (about, without_effect) = (OnceLock::new(), OnceLock::new());
        let asked = Asked { head, arrival: &arrival, caller, audited, about, without_effect, stop };
        let answered = self.endpoint(route.endpoint, &asked, body).await;
        let is_begun = answered.is_ok() || !route.endpoint.is_begun_by_answer();
        if let Some(change) = &asked.audited
            && is_begun
            && asked.without_effect.get().is_none()
        {
            let status = answered.as_ref().map_or_else(|it| it.status, WebAnswer::status);
            self.end_change(change, asked.about.get().map(String::as_str), status).await;
        }
        answered
    }

    /// Refuses everything but `/livez` to a probe.
    fn check_probe(&self, cause: ProbeCause, found: &Found) -> Result<(), WebRefusal> {
        if matches!(found, Found::Route(route) if route.endpoint == Endpoint::Live) {
            return Ok(());
        }
        let (counter, why) = match cause {
            ProbeCause::Descriptors => (
                &self.counters.descriptors_refused,
                "the process has no descriptor left for this request: only /livez is answered",
            ),
            ProbeCause::Connections => (
                &self.counters.connections_refused,
                "known callers have all connections: close some, or come again later; only /livez \
                 is answered",
            ),
        };
        count(counter);
        Err(WebRefusal::unavailable(why).with(RETRY_AFTER, "1"))
    }

    /// Checks that a caller has the role that a route needs.
    fn admit(&self, caller: &Caller, route: &WebRoute) -> Result<(), WebRefusal> {
        let Some(needed) = route.role.filter(|needed| caller.role < Some(*needed)) else {
            return Ok(());
        };
        count(&self.authenticator.counters.roles_refused);
        Err(if caller.role.is_none() {
            let why = format!(
                "this needs a token of role {needed}: `gatewright web token add` makes one; send it \
                 as Authorization: Bearer TOKEN, or to /api/v1/session"
            );
            WebRefusal::new(StatusCode::UNAUTHORIZED, why).with(WWW_AUTHENTICATE, "Bearer")
        } else {
            let why = format!("this needs the role {needed}: show a token that has it");
            WebRefusal::new(StatusCode::FORBIDDEN, why)
        })
    }

    /// Begins a session with the token in the body.
    async fn begin_session(
        &self,
        arrival: &Arrival,
        headers: &HeaderMap,
        body: Incoming,
    ) -> Result<WebAnswer, WebRefusal> {
        let NewSession { token } = read_json(headers, body).await?;
        let (known, cookie) = self.authenticator.begin(arrival, &token)?;
        if let Some(log) = self.audit() {
            let caller = Caller::known(known.clone(), ShownBy::Token);
            let what = (Endpoint::BeginSession, "/api/v1/session");
            let change = AuditedChange::new(log, what, (&caller, arrival));
            self.end_change(&change, None, StatusCode::OK).await;
        }
        let text = format!("{} begins a session as {}", known.name, known.role);
        self.log("web-session", text, (&known.name, known.role, arrival));
        let mut answer = json(StatusCode::OK, &serde_json::json!({ "role": known.role }));
        answer.headers_mut().insert(SET_COOKIE, cookie);
        Ok(answer)
    }

    /// Logs what a caller changes, or looks at beyond counters.
    pub(crate) fn log_change(&self, asked: &Asked<'_>, kind: &'static str, text: String) {
        let role = asked.caller.role.unwrap_or(AccessRole::Viewer);
        self.log(kind, text, (&asked.caller.name, role, asked.arrival));
    }

    /// Logs what a caller does.
    fn log(
        &self,
        kind: &'static str,
        text: String,
        (name, role, arrival): (&str, AccessRole, &Arrival),
    ) {
        let Ok(gateway) = self.gateway() else { return };
        let event = LogEvent::new(LogLevel::Info, "web", kind, text).with("by", name);
        let event = event.with("role", role);
        gateway.events().log(match arrival.peer {
            Some(address) => event.with("address", address),
            None => event,
        });
    }

    /// A file of the page.
    fn file(&self, method: &str, path: &str, headers: &HeaderMap) -> Result<WebAnswer, WebRefusal> {
        let Some(answer) = page::answer(path, headers) else {
            count(&self.counters.paths_unknown);
            let why = "nothing is at this path: /api/v1/openapi.json describes what there is";
            return Err(WebRefusal::not_found(why));
        };
        let is_read = ["GET", "HEAD"].contains(&method);
        if is_read { Ok(answer) } else { Err(other_method("GET, HEAD")) }
    }

    async fn endpoint(
        self: &Arc<Self>,
        endpoint: Endpoint,
        asked: &Asked<'_>,
        body: Incoming,
    ) -> Result<WebAnswer, WebRefusal> {
        let Asked { head, arrival, caller, .. } = asked;
        let (headers, uri) = (&head.headers, &head.uri);
        let _turn = if endpoint.asks() { Some(self.turn(caller).await?) } else { None };
        match endpoint {
            Endpoint::BeginSession => self.begin_session(arrival, headers, body).await,
            Endpoint::Trace => self.trace(asked, body).await,
            Endpoint::Tap => self.tap(asked, body).await,
            Endpoint::MeshTrace => self.mesh_trace(asked, body).await,
            Endpoint::Session => {
                let tokens = self.authenticator.has_tokens();
                let document = serde_json::json!({ "role": caller.role, "tokens": tokens });
                Ok(json(StatusCode::OK, &document))
            }
            Endpoint::EndSession => {
                let (cookie, has_ended) = self.authenticator.end(arrival, headers)?;
                if !has_ended {
                    asked.changes_nothing();
                }
                let mut answer = json(StatusCode::OK, &serde_json::json!({ "role": null }));
                answer.headers_mut().insert(SET_COOKIE, cookie);
                Ok(answer)
            }
            // `dispatch` answers it before anybody is asked who they are.
            Endpoint::Live => Ok(live()),
            Endpoint::Ready => self.ready(caller.role.is_some()).await,
            Endpoint::Metrics => {
                let text = self.ask(|gateway| Ok(metrics::text(&gateway.status()?))).await?;
                Ok(PlainAnswer::new(OPEN_METRICS, text).finish(headers))
            }
            Endpoint::Status => {
                let KnownStatus { octets, etag, .. } = self.status(caller).await?;
                let plain = PlainAnswer::new(answer::JSON, octets).cache("no-cache").etag(etag);
                Ok(plain.finish(headers))
            }
            Endpoint::Stream => self.begin_stream(asked),
            Endpoint::Events => self.events(uri.query()),
            Endpoint::OpenApi => {
                let octets = openapi::document().to_string();
                let etag = tag_of(octets.as_bytes());
                let plain = PlainAnswer::new(answer::JSON, octets).cache("no-cache").etag(etag);
                Ok(plain.finish(headers))
            }
            Endpoint::Graph => self.graph().await,
            Endpoint::Mesh => self.mesh(headers).await,
            Endpoint::Devices => self.devices(asked).await,
            Endpoint::Resources => self.resources(asked).await,
            Endpoint::Config => self.description(asked).await,
            Endpoint::Reload => self.reload(asked).await,
            Endpoint::History => self.description_history(headers).await,
            Endpoint::Differences => self.kept_differences(uri.query()).await,
            Endpoint::RollBack => self.roll_back(asked, body).await,
            Endpoint::LabReports => self.lab_reports().await,
            Endpoint::LabReport => self.lab_report(asked).await,
            Endpoint::Routes => self.routes(uri.query()).await,
            Endpoint::Neighbours => self.neighbours(uri.query()).await,
            other => {
                // `dispatch` has found it in the table of routes, so it has an answer.
                let change = ChangeRequest::of(other).ok_or_else(|| other_method("none"))?;
                self.change(change, asked, body).await
            }
        }
    }

    /// Begins a stream, after the event that the client had last.
    fn begin_stream(self: &Arc<Self>, asked: &Asked<'_>) -> Result<WebAnswer, WebRefusal> {
        let gateway = self.gateway().map_err(WebRefusal::unavailable)?;
        let last = asked.head.headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok());
        let viewer = self.stream.view(&gateway, &asked.caller, last).map_err(|error| {
            let is_full = matches!(error, StreamRefusal::TooMany(..));
            let refusal = WebRefusal::unavailable(error.to_string());
            if is_full { refusal.with(RETRY_AFTER, "10") } else { refusal }
        })?;
        let (site, caller) = (Arc::downgrade(self), asked.caller.clone());
        let is_admitted = move || {
            let site = site.upgrade();
            site.is_some_and(|site| site.authenticator.still_admits(&caller))
        };
        Ok(streamed(EVENT_STREAM, viewer.frames(asked.stop.clone(), is_admitted)))
    }

    /// Kept events, the oldest first.
    fn events(&self, query: Option<&str>) -> Result<WebAnswer, WebRefusal> {
        let query = Query::parse(query, &["after", "level"])?;
        let after: Option<u64> = query.value("after", "the number of an event")?;
        let level: Option<LogLevel> = query.value("level", "error, warning, info or debug")?;
        let log = self.gateway().map_err(WebRefusal::unavailable)?.events().clone();
        let read = log.reader(after, level.unwrap_or(LogLevel::Debug)).read(Duration::ZERO);
        let events: Vec<_> = read.events.iter().take(EVENTS_MAX).map(|entry| &**entry).collect();
        let document = serde_json::json!({
            "events": events,
            "missed": read.missed,
            "run": log.run(),
        });
        Ok(json(StatusCode::OK, &document))
    }

    /// The readiness; with its causes for those who may see names.
    async fn ready(self: &Arc<Self>, is_told: bool) -> Result<WebAnswer, WebRefusal> {
        let readiness = self.ask(|gateway| Ok(Readiness::of(&gateway.status()))).await;
        let readiness = match readiness {
            Ok(readiness) => readiness,
            Err(refusal) => Readiness::of(&Err(refusal.why)),
        };
        let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        if !is_told {
            return Ok(json(status, &serde_json::json!({ "ready": readiness.ready })));
        }
        Ok(json(status, &readiness))
    }

    /// The status as JSON, at most [`STATUS_FOR`] old.
    async fn status(self: &Arc<Self>, caller: &Caller) -> Result<KnownStatus, WebRefusal> {
        let is_new = |last: &KnownStatus| last.asked_at.elapsed() < STATUS_FOR;
        // Whoever asks the gateway holds the lock meanwhile.
        let known = self.status.try_lock().ok().and_then(|last| last.clone());
        if let Some(known) = known.filter(is_new) {
            return Ok(known);
        }
        let _turn = self.turn(caller).await?;
        let site = Arc::clone(self);
        self.ask(move |gateway| {
            // Of several at the same time, one asks and the others wait for what it gets.
            let mut last = site.status.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = last.as_ref().filter(|last| is_new(last)) {
                return Ok(known.clone());
            }
            let status: StatusAnswer = gateway.status()?;
            let octets = serde_json::to_vec(&status).map_err(|error| error.to_string())?;
            let etag = tag_of(&octets);
            let known = KnownStatus { asked_at: Instant::now(), octets: octets.into(), etag };
            Ok(last.insert(known).clone())
        })
        .await
    }

    /// A place among the traces and taps under way, until it is dropped.
    ///
    /// # Errors
    ///
    /// 409 if there are as many as may be.
    pub(crate) fn trace_place(&self) -> Result<OwnedSemaphorePermit, WebRefusal> {
        Arc::clone(&self.tracing).try_acquire_owned().map_err(|_| {
            let why = "traces are under way: come again when one has ended";
            WebRefusal::new(StatusCode::CONFLICT, why)
        })
    }

    /// Waits for a turn of a caller.
    async fn turn(&self, caller: &Caller) -> Result<CallerTurn, WebRefusal> {
        let turn = self.turns.turn(caller).await;
        turn.inspect_err(|_| count(&self.counters.busy_refused))
    }

    /// Waits until a caller is no longer admitted, as its token is removed.
    pub(crate) async fn until_refused(&self, caller: &Caller) {
        while self.authenticator.still_admits(caller) {
            tokio::time::sleep(LOOK_AFTER).await;
        }
    }

    /// Asks the gateway on a thread that may wait for it.
    pub(crate) async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        question: impl FnOnce(&Gateway) -> Result<T, String> + Send + 'static,
    ) -> Result<T, WebRefusal> {
        let gateway = self.gateway();
        let asked = tokio::task::spawn_blocking(move || question(&*gateway?)).await;
        let answer = asked.unwrap_or_else(|error| Err(error.to_string()));
        answer.map_err(WebRefusal::unavailable)
    }
}

/// The answer of a process that runs.
fn live() -> WebAnswer {
    json(StatusCode::OK, &serde_json::json!({ "live": true }))
}

/// The refusal of a method, with those that the path has (RFC 9110 §15.5.6).
fn other_method(methods: &str) -> WebRefusal {
    let why = format!("this path has no such method: it has {methods}");
    WebRefusal::new(StatusCode::METHOD_NOT_ALLOWED, why).with(ALLOW, methods)
}

/// Reads a request's body as JSON. Only a body that says so is read: a form of another page cannot.
pub(crate) async fn read_json<T: DeserializeOwned>(
    headers: &HeaderMap,
    body: Incoming,
) -> Result<T, WebRefusal> {
    let refuse = |status, why: &str| WebRefusal::new(status, why);
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().map(str::trim) != Some(answer::JSON) {
        let why = "the body is to be JSON: Content-Type: application/json";
        return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    let collected = tokio::time::timeout(BODY_WITHIN, Limited::new(body, BODY_MAX).collect()).await;
    let Ok(collected) = collected else {
        return Err(refuse(StatusCode::REQUEST_TIMEOUT, "the body did not come in time"));
    };
    let octets = collected.map_err(|error| {
        if error.is::<LengthLimitError>() {
            refuse(StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 16 KiB")
        } else {
            refuse(StatusCode::BAD_REQUEST, "the body was broken off")
        }
    })?;
    serde_json::from_slice(&octets.to_bytes())
        .map_err(|error| refuse(StatusCode::BAD_REQUEST, &format!("the body: {error}")))
}
