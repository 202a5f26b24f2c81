//! The control socket: a running gateway answers questions and takes handlers.
//!
//! A Unix socket that only its owner can open. A client sends one JSON object a line and gets one
//! JSON object a line back: `{"ok": …}` or `{"error": "…"}`. The error of a refused reload also
//! lists the refused changes: `"refused": [{"what":…,"how":…}]`, and whether a restart is needed:
//! `"restart": …`. A gateway that has too many clients answers `"busy": true`, and a client that asks
//! nothing while others wait is closed ([`RequestLines`], and `clients.rs`).
//!
//! | request | answer |
//! |---|---|
//! | `{"do":"status"}` | the gateway's [`Status`](gatewright_planes::Status), its handlers with their counts, its UDP gateways and other parts |
//! | `{"do":"measured-status","seconds":3}` | the same, with the time in each layer, which is measured until so long after the last such request |
//! | `{"do":"metrics"}` | the same as OpenMetrics text, in one string |
//! | `{"do":"events","since":7,"level":"warning"}` | `{"events":[`[`LogEntry`](crate::events::LogEntry)`],"missed":0,"run":"…"}`, of which `run` is another after each start; with `"follow":true` `{}`, then an event a line |
//! | `{"do":"set-log-level","level":"debug"}` | the same, without `do` |
//! | `{"do":"sojourn"}` | a [`Histogram`](gatewright_histogram::Histogram) of packets: `{"p50":ns,"p99":ns,"buckets":[[ns,packets],…],…}` |
//! | `{"do":"capture","at":"frame",…}` | `{}`, then a stream ([`CaptureStream`](crate::CaptureStream)) |
//! | `{"do":"trace","which":{"link":"lan"},…}` | a [`TraceAnswer`](crate::TraceAnswer), when a packet has come |
//! | `{"do":"trace-message","at":"gateway:NAME/HANDLER",…}` | a [`ConversationAnswer`](crate::ConversationAnswer), when a message has come |
//! | `{"do":"attach","handler":"count","at":"ether:ipv4",…}` | `{"id":1}` |
//! | `{"do":"attach","handler":"count","at":"gateway:NAME/HANDLER",…}` | `{"id":2}` |
//! | `{"do":"detach","id":1}` | `{"id":1}` |
//! | `{"do":"description"}` | `{"file":"/etc/gatewright.toml"}`, or null |
//! | `{"do":"reload","text":"[link.lan] …"}` | `{"changes":[{"what":…,"how":…}]}` |
//! | `{"do":"description-history"}` | `{"kept":[`[`KeptDescription`](crate::KeptDescription)`]}` |
//! | `{"do":"kept-description","number":7}` | `{"number":7,"text":"[link.lan] …"}` |
//! | `{"do":"kept-differences","number":7}` | `{"number":7,"changes":[{"what":…,"how":…}]}`, those of a return to it |
//! | `{"do":"roll-back","number":7}` | the same, those that were made |
//! | `{"do":"log-refused","why":"gateway.toml:2:1: …"}` | `{}` |
//! | `{"do":"show-hops","hops":[{"name":"mesh","median_ms":0.4,"budget_ms":20}]}` | `{}`; status and page show these delays from now on |
//! | `{"do":"mesh"}` | a [`MeshState`](gatewright_lsr::MeshState) |
//! | `{"do":"echo-mesh","node":"52:4a:…","class":2,"ttl":64}` | a [`MeshEcho`](gatewright_lsr::MeshEcho) |
//! | `{"do":"cut-mesh-link","link":"eth1","cut":true}` | the same, without `do` |
//! | `{"do":"upgrade-control","program":"/usr/bin/gatewright"}` | `{}`; then the program begins in this process |
//! | `{"do":"exchange-data-plane"}` | `{"before":4715,"process":4720,"ms":140,"frames":1200}` |
//! | `{"do":"routes"}` | `{"routes":[`[`RouteStatus`](gatewright_planes::RouteStatus)`]}` |
//! | `{"do":"set-link","name":"lan","up":false}` | the same, without `do` |
//! | `{"do":"neighbours"}` | `{"neighbours":[`[`NeighbourStatus`](gatewright_planes::NeighbourStatus)`]}` |
//! | `{"do":"add-neighbour","address":"192.0.2.9","mac":"02:…"}` | `{"neighbours":[…]}`, the one |
//! | `{"do":"remove-neighbour","address":"192.0.2.9"}` | the same, the one that is gone |
//! | `{"do":"flush-neighbours","link":"lan"}` | the same, those that were known |
//! | `{"do":"add-route","to":"default","via":"192.0.2.9"}` | `{"routes":[…]}`, the one |
//! | `{"do":"remove-route","to":"default"}` | `{"routes":[…]}`, those that were removed |

mod roll_back;

pub use crate::clients::RequestLines;
pub use crate::status::{AttachedAnswer, StatusAnswer, UdpGatewayAnswer, status};
pub use roll_back::KeptDescription;

use crate::{
    CaptureRequest, DescriptionCause, Gateway, HopDelay, MessageTraceRequest, ReloadError,
    TraceRequest,
    capture::{LOOK, Live, has_closed},
    clients::{Client, Clients, ProcessId, SERVED_MAX, WAITING_MAX},
    credentials_folder,
    events::EventReader,
    gateway::about,
    listener::ListenerThread,
    socket_path::{SocketPath, bind, end_upgrade, is_upgrading},
    status::metrics,
    trace,
};
use gatewright_config::{self as config, Config, HandlerPlacement, HandlerSpec};
use gatewright_diagnostic::{Diagnostic, Severity, SourceId};
use gatewright_part::{Change, LogLevel};
use gatewright_planes::{Downtime, RouteOrder, RouteTarget};
use gatewright_stack::AttachmentId;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{
    fmt,
    io::{self, BufRead, BufReader, Write},
    net::IpAddr,
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// A request of a client.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ControlRequest {
    /// The gateway's status and counters.
    Status,
    /// The same, with the times of layers.
    MeasuredStatus {
        /// How long they are measured after this request.
        seconds: f64,
    },
    /// The status as OpenMetrics text.
    Metrics,
    /// Events that are in the log.
    Events {
        /// Only those after this number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<u64>,
        /// The least severe; all if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        level: Option<LogLevel>,
        /// Whether those that follow are sent, too, until the client closes.
        #[serde(default)]
        follow: bool,
    },
    /// Write events from another severity on, until the next reload.
    SetLogLevel {
        /// The least severe.
        level: LogLevel,
    },
    /// Sojourn times of packets, by bucket.
    Sojourn,
    /// Send the packets that pass a position.
    Capture(CaptureRequest),
    /// Trace one packet.
    Trace(TraceRequest),
    /// Record the conversation of one message of a program.
    TraceMessage(MessageTraceRequest),
    /// Attach a handler.
    Attach(Box<HandlerSpec>),
    /// Detach a handler.
    Detach {
        /// Its id.
        id: u32,
    },
    /// Show the file of the description.
    Description,
    /// Take a new description.
    Reload {
        /// Its text.
        text: String,
        /// The folder to which its programs' files are relative; by default that of the gateway's
        /// own description.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        folder: Option<PathBuf>,
    },
    /// List the descriptions that were taken.
    DescriptionHistory,
    /// Show the text of one of them.
    KeptDescription {
        /// Its number.
        number: u64,
    },
    /// Compare one of them with what runs.
    KeptDifferences {
        /// Its number.
        number: u64,
    },
    /// Take one of them again.
    RollBack {
        /// Its number.
        number: u64,
    },
    /// Log that a new description was refused before it was sent.
    LogRefused {
        /// The first error with its place.
        why: String,
    },
    /// Show delays of hops, which somebody outside measures, beside their budgets.
    ShowHops {
        /// The hops; they replace those before.
        hops: Vec<HopDelay>,
    },
    /// The state of the mesh's node.
    Mesh,
    /// Ask a node of the mesh for an answer.
    EchoMesh {
        /// The link-layer address of its mesh interface.
        node: String,
        /// The class of traffic whose path is taken.
        class: u8,
        /// Links to the relay that answers; beyond the node's, the node itself does.
        ttl: u8,
    },
    /// Cut a link of the mesh, or heal it.
    CutMeshLink {
        /// Its interface.
        link: String,
        /// Whether it is cut.
        cut: bool,
    },
    /// Go on as another program, in the same process, if its `run` begins on trial.
    UpgradeControl {
        /// The program.
        program: PathBuf,
    },
    /// Exchange the data plane's process for another.
    ExchangeDataPlane,
    /// Take a link down, or up again.
    SetLink {
        /// Its name.
        name: String,
        /// Whether the link is up: it receives and sends frames.
        up: bool,
    },
    /// List the known neighbours.
    Neighbours,
    /// Set a neighbour.
    AddNeighbour {
        /// Its address.
        address: IpAddr,
        /// Its link-layer address.
        mac: String,
        /// The link; found by the address if not given.
        link: Option<String>,
    },
    /// Forget a neighbour.
    RemoveNeighbour {
        /// Its address.
        address: IpAddr,
        /// The link; found by the address if not given.
        link: Option<String>,
    },
    /// Forget all learnt neighbours.
    FlushNeighbours {
        /// Only of this link.
        link: Option<String>,
    },
    /// List the routes in force.
    Routes,
    /// Add a route.
    AddRoute {
        /// `default`, an address or a network.
        to: String,
        /// The next hop.
        via: Option<IpAddr>,
        /// The link.
        link: Option<String>,
    },
    /// Remove a route.
    RemoveRoute {
        /// `default`, an address or a network.
        to: String,
    },
}

impl ControlRequest {
    /// Parses a client's line.
    ///
    /// # Errors
    ///
    /// If it is no request.
    pub fn parse(line: &str) -> serde_json::Result<Self> {
        serde_json::from_str(line)
    }
}

/// Maximum time for an answer: opening a link anew takes time.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// A control socket that is this process's, and at which no client is served yet; dropping it
/// removes the socket.
#[derive(Debug)]
pub struct ClaimedSocket {
    listener: Option<UnixListener>,
    place: SocketPath,
}

impl ClaimedSocket {
    /// Listens on the Unix socket `path`; clients that connect wait. A socket without a listener is
    /// replaced.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if another gateway answers there, `AlreadyExists` if `path` is not a socket; else
    /// the system's error.
    pub fn claim(path: &Path) -> io::Result<Self> {
        let (listener, place) = bind(path)?;
        Ok(Self { listener: Some(listener), place })
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// Serves the clients there.
    ///
    /// # Errors
    ///
    /// If the system gives no descriptor or no thread.
    pub fn serve(mut self, gateway: Arc<Gateway>) -> io::Result<ControlServer> {
        let listener = self.listener.take().ok_or(io::ErrorKind::NotConnected)?;
        let served = Arc::clone(&gateway);
        let clients = Clients::new(move |client| serve(client, &served))?;
        let accepting = clients.clone();
        let accept = move |listener: &UnixListener| accept(listener, &gateway, &accepting);
        let listener = Some(ListenerThread::start("api", listener, accept)?);
        end_upgrade(self.path());
        Ok(ControlServer { clients, listener, _socket: self })
    }
}

impl Drop for ClaimedSocket {
    fn drop(&mut self) {
        // The program that went on in this process ends, and no other does.
        end_upgrade(self.place.path());
    }
}

/// A control socket's server; dropping it ends it and removes the socket.
#[derive(Debug)]
pub struct ControlServer {
    clients: Clients,
    listener: Option<ListenerThread>,
    /// Removed last.
    _socket: ClaimedSocket,
}

impl ControlServer {
    /// Serves the control socket `path` for `gateway`.
    ///
    /// # Errors
    ///
    /// As [`ClaimedSocket::claim`] and [`ClaimedSocket::serve`].
    pub fn start(gateway: Arc<Gateway>, path: &Path) -> io::Result<Self> {
        ClaimedSocket::claim(path)?.serve(gateway)
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        drop(self.listener.take());
        self.clients.end();
    }
}

/// Accepts a client.
fn accept(listener: &UnixListener, gateway: &Arc<Gateway>, clients: &Clients) -> io::Result<()> {
    let (stream, _) = listener.accept()?;
    let process = ProcessId::of(&stream);
    if let Some(ProcessId(id)) = clients.admit(stream, process)? {
        let text = format!(
            "a client of process {id} is refused at the control socket, as {SERVED_MAX} are served \
             and {WAITING_MAX} wait"
        );
        gateway.events().log(about(LogLevel::Warning, "control-busy", text).with("process", id));
    }
    Ok(())
}

/// Serves one request of a client; returns whether it may send another.
fn serve(client: &mut Client, gateway: &Gateway) -> io::Result<bool> {
    let Some(line) = client.request()? else { return Ok(false) };
    let answer = match ControlRequest::parse(&line) {
        Ok(ControlRequest::Capture(request)) => {
            let live = client.begin_stream().map_err(Refused::busy);
            match live.and_then(|()| Ok(Live::start(gateway, &request)?)) {
                Ok(live) => {
                    client.answer(&json!({ "ok": {} }))?;
                    live.stream(client.stream()?, gateway)?;
                    return Ok(false);
                }
                Err(refused) => Err(refused),
            }
        }
        Ok(ControlRequest::Events { since, level, follow: true }) => match client.begin_stream() {
            Ok(()) => {
                let reader = gateway.events().reader(since, least(level));
                follow_events(client.stream()?, reader)?;
                return Ok(false);
            }
            Err(text) => Err(Refused::busy(text)),
        },
        // It may take long to come.
        Ok(ControlRequest::Trace(request)) => {
            client.begin_stream().map_err(Refused::busy).and_then(|()| {
                let told = trace::trace(gateway, &request, || !client.is_gone())?;
                serde_json::to_value(told).map_err(|error| error.to_string().into())
            })
        }
        Ok(ControlRequest::TraceMessage(request)) => {
            client.begin_stream().map_err(Refused::busy).and_then(|()| {
                let told = gateway.messages.trace(&request, &|| !client.is_gone())?;
                serde_json::to_value(told).map_err(|error| error.to_string().into())
            })
        }
        Ok(ControlRequest::UpgradeControl { program }) if gateway.may_upgrade() => {
            let tried = gateway.try_program(&program);
            client.answer(&json!({ "ok": { "refused": tried.as_ref().err() } }))?;
            if tried.is_ok() {
                gateway.upgrade(&program);
            }
            return Ok(true);
        }
        Ok(request) => answer(request, gateway),
        Err(error) => Err(error.to_string().into()),
    };
    client.answer(&match answer {
        Ok(value) => json!({ "ok": value }),
        Err(refused) if refused.is_plain() => json!({ "error": refused.error }),
        Err(refused) => json!(refused),
    })?;
    Ok(true)
}

/// The lowest severity of the requested events.
fn least(level: Option<LogLevel>) -> LogLevel {
    level.unwrap_or(LogLevel::Debug)
}

/// Sends events to a client, one JSON object a line, until it closes or the gateway ends.
fn follow_events(stream: &UnixStream, mut reader: EventReader) -> io::Result<()> {
    stream.set_read_timeout(Some(LOOK))?;
    let mut out = stream;
    writeln!(out, "{}", json!({ "ok": {} }))?;
    loop {
        let read = reader.read(FOLLOW_LOOK);
        if read.missed > 0 {
            writeln!(out, "{}", json!({ "missed": read.missed }))?;
        }
        for entry in &read.events {
            writeln!(out, "{}", serde_json::to_string(&**entry)?)?;
        }
        if read.ended || has_closed(stream)? {
            return Ok(());
        }
    }
}

/// Time after which a follower's connection is looked at.
const FOLLOW_LOOK: Duration = Duration::from_millis(500);

/// Why a gateway refuses a request.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Refused {
    /// Why, in words.
    pub error: String,
    /// The refused changes of a description, by key.
    #[serde(default)]
    pub refused: Vec<Change>,
    /// Whether a restarted gateway takes it.
    #[serde(default)]
    pub restart: bool,
    /// Whether the gateway only has too many clients now.
    #[serde(default)]
    pub busy: bool,
}

impl Refused {
    fn busy(error: String) -> Self {
        Self { error, busy: true, ..Self::default() }
    }

    /// Whether there is nothing to say but why.
    const fn is_plain(&self) -> bool {
        self.refused.is_empty() && !self.busy
    }
}

impl From<String> for Refused {
    fn from(error: String) -> Self {
        Self { error, ..Self::default() }
    }
}

impl From<ReloadError> for Refused {
    fn from(error: ReloadError) -> Self {
        let (refused, restart) = error.refused();
        Self { error: error.to_string(), refused, restart, busy: false }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)
    }
}

impl std::error::Error for Refused {}

/// Answers a request as the control socket does; not those that a connection itself carries.
///
/// # Errors
///
/// [`Refused`] in the gateway's words.
pub fn answer(request: ControlRequest, gateway: &Gateway) -> Result<serde_json::Value, Refused> {
    match request {
        ControlRequest::Capture(_) | ControlRequest::Trace(_) | ControlRequest::TraceMessage(_) => {
            Err("the connection itself carries this".to_owned().into())
        }
        ControlRequest::Attach(spec) => {
            let _in_force = gateway.in_force();
            let (placement, warnings) = placement_of(&spec, gateway)?;
            let id = match placement {
                HandlerPlacement::Messages(attach) => gateway.messages.attach(&attach, &spec),
                HandlerPlacement::Packets(attach) => gateway.handlers.attach(&attach, &spec),
            };
            let id = id.map_err(|error| error.to_string())?;
            gateway.keep_by_command();
            Ok(json!({ "id": id.0, "warnings": warnings }))
        }
        ControlRequest::Detach { id } => {
            let _in_force = gateway.in_force();
            let id_of = AttachmentId(id);
            let found = gateway.messages.detach(id_of)
                || gateway.handlers.detach(id_of).map_err(|error| error.to_string())?;
            if !found {
                return Err(format!("there is no handler {id}").into());
            }
            gateway.keep_by_command();
            Ok(json!({ "id": id }))
        }
        ControlRequest::Description => Ok(json!({ "file": gateway.file() })),
        ControlRequest::Reload { text, folder } => {
            let own = gateway.folder();
            let folder = folder.as_deref().or(own).unwrap_or(Path::new(""));
            let config = read(&text)?.with_files_in(folder, credentials_folder().as_deref());
            let changes = gateway.reload_text(&config, &text)?;
            // In another folder its paths would mean other files.
            if own.is_some_and(|own| std::fs::canonicalize(folder).is_ok_and(|it| it == own)) {
                gateway.keep_description(&text, DescriptionCause::Reload);
            }
            Ok(json!({ "changes": changes }))
        }
        ControlRequest::UpgradeControl { .. } => {
            Err("this gateway cannot go on as another program: its description came by \
                        standard input, or its data plane has no process of its own"
                .to_owned()
                .into())
        }
        ControlRequest::ExchangeDataPlane => {
            // No reload changes meanwhile what the other process is to have.
            let _in_force = gateway.in_force();
            let before = gateway.planes().data_process();
            let downtime = gateway.planes().exchange_data_plane();
            let Downtime { time, frames } = downtime.map_err(|error| error.to_string())?;
            let (process, ms) = (gateway.planes().data_process(), time.as_millis());
            Ok(json!({ "before": before, "process": process, "ms": ms, "frames": frames }))
        }
        ControlRequest::SetLink { name, up } => {
            let link = gateway.planes().link(&name)?;
            gateway.planes().set_link(link, up).map_err(|error| error.to_string())?;
            Ok(json!({ "name": name, "up": up }))
        }
        request @ (ControlRequest::SetLogLevel { .. }
        | ControlRequest::LogRefused { .. }
        | ControlRequest::Events { .. }) => log_answer(request, gateway),
        request @ (ControlRequest::Status
        | ControlRequest::MeasuredStatus { .. }
        | ControlRequest::Metrics
        | ControlRequest::ShowHops { .. }
        | ControlRequest::Sojourn) => status_answer(request, gateway),
        request => network_answer(request, gateway),
    }
}

/// Answers a request about the gateway's state and counters.
fn status_answer(request: ControlRequest, gateway: &Gateway) -> Result<serde_json::Value, Refused> {
    let value = match request {
        ControlRequest::Metrics => serde_json::to_value(metrics(gateway)?),
        ControlRequest::Sojourn => serde_json::to_value(gateway.planes().sojourn()),
        ControlRequest::MeasuredStatus { seconds } => {
            serde_json::to_value(gateway.measured_status(seconds)?)
        }
        ControlRequest::ShowHops { hops } => {
            gateway.hops.show(hops)?;
            Ok(json!({}))
        }
        _ => serde_json::to_value(status(gateway)?),
    };
    value.map_err(|error| error.to_string().into())
}

/// Answers a request about the event log.
fn log_answer(request: ControlRequest, gateway: &Gateway) -> Result<serde_json::Value, Refused> {
    match request {
        ControlRequest::Events { since, level, .. } => {
            let read = gateway.events().reader(since, least(level)).read(Duration::ZERO);
            let events: Vec<_> = read.events.iter().map(|entry| &**entry).collect();
            Ok(json!({ "events": events, "missed": read.missed, "run": gateway.events().run() }))
        }
        ControlRequest::LogRefused { why } => {
            gateway.log_refused(&why);
            Ok(json!({}))
        }
        ControlRequest::SetLogLevel { level } if gateway.set_log_level(level) => {
            Ok(json!({ "level": level }))
        }
        _ => Err("this gateway writes no events".to_owned().into()),
    }
}

/// Answers a request about neighbours, routes and the mesh, or one about kept descriptions.
fn network_answer(
    request: ControlRequest,
    gateway: &Gateway,
) -> Result<serde_json::Value, Refused> {
    let value = match request {
        ControlRequest::Mesh => serde_json::to_value(gateway.mesh.state()?),
        ControlRequest::EchoMesh { node, class, ttl } => {
            serde_json::to_value(gateway.mesh.echo(&node, class, ttl)?)
        }
        ControlRequest::CutMeshLink { link, cut } => {
            gateway.mesh.cut(&link, cut)?;
            Ok(json!({ "link": link, "cut": cut }))
        }
        ControlRequest::Neighbours => Ok(json!({ "neighbours": gateway.planes().neighbours()? })),
        ControlRequest::AddNeighbour { address, mac, link } => {
            let added = gateway.planes().add_neighbour(address, &mac, link.as_deref())?;
            Ok(json!({ "neighbours": [added] }))
        }
        ControlRequest::RemoveNeighbour { address, link } => {
            let gone = gateway.planes().remove_neighbour(address, link.as_deref())?;
            Ok(json!({ "neighbours": [gone] }))
        }
        ControlRequest::FlushNeighbours { link } => {
            Ok(json!({ "neighbours": gateway.planes().flush_neighbours(link.as_deref())? }))
        }
        ControlRequest::Routes => Ok(json!({ "routes": gateway.planes().routes() })),
        ControlRequest::AddRoute { to, via, link } => {
            let order = RouteOrder { to: RouteTarget::parse(&to)?, via, link };
            let added = gateway.planes().add_route(&order)?;
            gateway.keep_by_command();
            Ok(json!({ "routes": [added] }))
        }
        ControlRequest::RemoveRoute { to } => {
            let removed = gateway.planes().remove_route(RouteTarget::parse(&to)?)?;
            gateway.keep_by_command();
            Ok(json!({ "routes": removed }))
        }
        request => return roll_back::answer(&request, gateway),
    };
    value.map_err(|error| error.to_string().into())
}

/// Parses a description; its sender has already shown any error at its place.
pub(crate) fn read(text: &str) -> Result<Config, String> {
    let parsed = config::parse(SourceId::default(), text);
    let errors = parsed.diagnostics.iter().filter(|found| found.severity == Severity::Error);
    let errors: Vec<_> = errors.map(|found| found.message.as_str()).collect();
    match parsed.config {
        Some(config) if errors.is_empty() => Ok(config),
        _ => Err(format!("nothing is changed: {}", errors.join("; "))),
    }
}

/// The handler that a request describes, with what is warned of; or all findings against it.
fn placement_of(
    spec: &HandlerSpec,
    gateway: &Gateway,
) -> Result<(HandlerPlacement, Vec<String>), String> {
    let names = gateway.links.names();
    let (placement, warnings) = spec.read_with_warnings(&names).map_err(|findings| {
        let refusing = findings.iter().filter(|found| found.severity == Severity::Error);
        refusing.map(in_one_line).collect::<Vec<_>>().join("; ")
    })?;
    let is_of_packets = matches!(placement, HandlerPlacement::Packets(_));
    if is_of_packets && names.iter().all(String::is_empty) {
        return Err(format!("nothing passes at `{}`: the gateway has no links", spec.at));
    }
    Ok((placement, warnings.iter().map(in_one_line).collect()))
}

/// A finding without an excerpt of the text.
fn in_one_line(found: &Diagnostic) -> String {
    let label = Some(&found.primary.text).filter(|text| !text.is_empty());
    let more = label.into_iter().chain(&found.help).map(|text| format!("; {text}"));
    format!("{}: {}{}", found.code, found.message, more.collect::<String>())
}

/// Sends a request to the gateway behind the control socket `path`.
///
/// # Errors
///
/// The system's error if nobody answers there, `UnexpectedEof` if the gateway ends before it
/// answers, `TimedOut` if it takes too long; with a [`Refused`], in the gateway's own words,
/// `ResourceBusy` if it has too many clients or is being upgraded, and `InvalidData` if it refuses.
pub fn ask(path: &Path, request: &ControlRequest) -> io::Result<serde_json::Value> {
    begin(path, request).map(|(_, answer)| answer)
}

/// Requests the stream of events ([`ControlRequest::Events`]); returns the connection, which
/// carries one JSON object a line for each event.
///
/// # Errors
///
/// As [`ask`].
pub fn follow(path: &Path, request: &ControlRequest) -> io::Result<BufReader<UnixStream>> {
    let (stream, _) = begin(path, request)?;
    stream.get_ref().set_read_timeout(None)?;
    Ok(stream)
}

/// As [`ask`]; returns the connection too, on which more may follow.
pub(crate) fn begin(
    path: &Path,
    request: &ControlRequest,
) -> io::Result<(BufReader<UnixStream>, serde_json::Value)> {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    // It may begin or end meanwhile.
    let was_upgrading = is_upgrading(path);
    converse(path, request).map_err(|error| match error.kind() {
        BrokenPipe | ConnectionRefused | ConnectionReset | NotFound | UnexpectedEof
            if was_upgrading || is_upgrading(path) =>
        {
            io::Error::new(io::ErrorKind::ResourceBusy, "the gateway is being upgraded")
        }
        _ => error,
    })
}

/// As [`begin`]; of a gateway that is being upgraded there is nobody.
fn converse(
    path: &Path,
    request: &ControlRequest,
) -> io::Result<(BufReader<UnixStream>, serde_json::Value)> {
    let mut stream = UnixStream::connect(path)?;
    // What is to be traced may take its time to come.
    let waits = matches!(request, ControlRequest::Trace(_) | ControlRequest::TraceMessage(_));
    let patience = if waits { None } else { Some(ANSWER_WITHIN) };
    stream.set_read_timeout(patience)?;
    // A gateway that is busy says so and closes without reading anything.
    let sent = writeln!(stream, "{}", serde_json::to_string(request)?);
    let mut line = String::new();
    let mut stream = BufReader::new(stream);
    let read = stream.read_line(&mut line).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    });
    if let (0, sent) = (read?, sent) {
        return Err(sent.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()));
    }
    let mut answer: serde_json::Value = serde_json::from_str(&line)?;
    if let Some(value) = answer.get_mut("ok") {
        return Ok((stream, value.take()));
    }
    let refused: Refused = serde_json::from_value(answer).unwrap_or_default();
    let silent = refused.error.is_empty();
    let refused = if silent { "no answer".to_owned().into() } else { refused };
    let busy = io::ErrorKind::ResourceBusy;
    Err(io::Error::new(if refused.busy { busy } else { io::ErrorKind::InvalidData }, refused))
}
