//! A running gateway: a description with all its parts.

use crate::{
    Assembly, GatewayPrograms, NOT_IN_THIS_PROGRAM, RunError,
    balance::BalanceStatus,
    by_command::ByCommand,
    control::{ControlListeners, SocketPlace},
    delay_models::{DelayWatch, RelayDelay},
    descriptor_need,
    events::{EventLog, LogOptions, LogPart, Watcher},
    handlers::Handlers,
    hops::ShownHops,
    last_good::{DescriptionCause, LastGood},
    links::Links,
    messages::{ConversationAnswer, MessageTraceRequest, Messages},
    report_forwarder::{self, ReportForwarding},
    socket_path::{begin_upgrade, end_upgrade},
    status::{self, StatusAnswer},
    tcp_proxy::TcpProxies,
    trace::{self, TraceAnswer, TraceRequest},
    udp_gateways::UdpGateways,
};
use gatewright_config::{Config, Handler, MessageHandler, PlaneMode, ProxyTarget};
use gatewright_descriptors::Shortage;
use gatewright_diagnostic::Span;
use gatewright_lsr::MeshPart;
use gatewright_part::{
    ComponentError, LogEvent, LogLevel, NamedStatus, Part, PartStatus, ServiceParts, Sojourn,
};
use gatewright_planes::{Planes, PlanesError, ProcessSetup};
use std::{
    any::Any,
    ffi::OsString,
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

/// A running description: links, handlers, proxies, mesh, programs, devices and service entity, control
/// socket and metrics page, each a [`Part`].
#[derive(Debug)]
pub struct Gateway {
    /// Ended before what it reads.
    delays: Mutex<DelayWatch>,
    /// Ended before the planes, whose sockets they use.
    pub(crate) udp_gateways: UdpGateways,
    report_forwarding: ReportForwarding,
    pub(crate) messages: Messages,
    pub(crate) handlers: Handlers,
    pub(crate) links: Links,
    tcp_proxies: TcpProxies,
    pub(crate) mesh: MeshPart,
    programs: Arc<dyn GatewayPrograms>,
    services: ServiceParts,
    assembly: Assembly,
    control: ControlListeners,
    events: EventLog,
    /// Writes events, if this gateway writes them.
    log: Option<LogPart>,
    watcher: Mutex<Watcher>,
    /// The description in force. Every change to the gateway holds this lock; status needs no lock.
    in_force: Mutex<Config>,
    file: Option<String>,
    last_good: LastGood,
    /// Has another program go on in this process.
    upgrade: Option<ProgramExec>,
    /// What the data plane's process keeps of what was set by command.
    pub(crate) by_command: Mutex<Option<String>>,
    /// What somebody outside measures.
    pub(crate) hops: ShownHops,
}

/// Shows the operator a line on how something was started.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// Options to start a description.
pub struct StartOptions {
    /// The seed of all randomness.
    pub seed: u64,
    /// The description's file, which `reload` reads again, or its folder.
    pub file: Option<String>,
    /// Where each description that was taken is kept, for a later start.
    pub last_good: Option<PathBuf>,
    /// Why the description to start is the one kept there, and not the file's.
    pub fallback: Option<String>,
    /// The control socket, which overrides the description.
    pub socket: Option<PathBuf>,
    /// The control socket if neither the options nor the description names one.
    pub default_socket: PathBuf,
    /// Receives a line for each listener, and for the mode of each opened link.
    pub say: Say,
    /// Destination of events, in place of the description's.
    pub log: LogOptions,
    /// Has another program go on in this process.
    pub upgrade: Option<ProgramExec>,
    /// The program of the data plane's process; without one no description runs in
    /// `[planes] mode = "process"`.
    pub data_plane: Option<DataPlaneProgram>,
    /// Parts that the program adds, as by [`Gateway::with_part`].
    pub parts: Vec<Arc<dyn Part>>,
    /// The components of the program.
    pub assembly: Assembly,
}

/// Tries whether a program begins; otherwise returns why not, in words.
type TryProgram = dyn Fn(&Path) -> Result<(), String> + Send + Sync;

/// Has a program go on in this process, in place of this one.
#[derive(Clone)]
pub struct ProgramExec {
    /// Tries whether the program begins; otherwise returns why not, and nothing has changed.
    pub try_out: Arc<TryProgram>,
    /// Executes the program; returns why it does not go on.
    pub exec: Arc<dyn Fn(&Path) -> io::Error + Send + Sync>,
}

impl fmt::Debug for ProgramExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProgramExec")
    }
}

/// A program that runs the data plane of a gateway
/// ([`serve_data_plane`](gatewright_planes::serve_data_plane)).
#[derive(Clone, Debug)]
pub struct DataPlaneProgram {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

impl fmt::Debug for StartOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartOptions").field("file", &self.file).finish_non_exhaustive()
    }
}

/// Why a description does not start. Then no part of it runs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Links, handlers or proxies.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A component: programs, devices or the service entity.
    #[error(transparent)]
    Component(#[from] ComponentError),
    /// The control socket, the metrics page or a thread.
    #[error("{why}")]
    Control {
        /// Why, in words for the operator.
        why: String,
        /// The exit code.
        exit_code: u8,
    },
    /// The system allows fewer file descriptors than the description needs to run at all.
    #[error(
        "RLIMIT_NOFILE: this gateway needs at least {needed} file descriptors, and the hard limit is \
         {allowed}: raise it (`ulimit -Hn {needed}` as root, `LimitNOFILE={needed}` in a systemd \
         unit)",
        needed = _0.needed,
        allowed = _0.allowed
    )]
    Descriptors(Shortage),
}

impl StartError {
    /// The exit code of a program that ends for this (`sysexits.h`).
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Run(error) => error.exit_code(),
            Self::Component(error) => error.exit_code,
            Self::Control { exit_code, .. } => *exit_code,
            Self::Descriptors(_) => 69,
        }
    }

    /// The key of the description that cannot be applied, and why, if it is one key.
    pub fn refused(&self) -> Option<(&'static str, String)> {
        match self {
            Self::Run(RunError::NotInThisProgram(table)) => {
                Some((table, NOT_IN_THIS_PROGRAM.to_owned()))
            }
            Self::Run(RunError::Planes(error)) if matches!(**error, PlanesError::Cores { .. }) => {
                Some(("[planes] control_core", error.to_string()))
            }
            Self::Run(error @ RunError::File { .. }) => {
                Some(("[[attach]] file", error.to_string()))
            }
            Self::Component(error) => error.refused.clone(),
            _ => None,
        }
    }

    /// The place of that key in the text of `config`, if it is known.
    pub fn place_in(&self, config: &Config) -> Option<Span> {
        match self {
            Self::Run(RunError::Planes(error)) if matches!(**error, PlanesError::Cores { .. }) => {
                config.control_core.as_ref().map(|core| core.span)
            }
            Self::Run(RunError::File { file, .. }) => {
                let at_packets = config.attachments.iter().filter_map(|it| match &it.handler {
                    Handler::Capture { file } => Some(file),
                    _ => None,
                });
                let at_messages = config.message_attachments.iter();
                let at_messages = at_messages.filter_map(|it| match &it.handler {
                    MessageHandler::Capture { file } => Some(file),
                    _ => None,
                });
                let mut files = at_packets.chain(at_messages);
                files.find(|named| named.value == *file).map(|named| named.span)
            }
            _ => None,
        }
    }
}

impl Gateway {
    /// Runs the description `config`, all of it or nothing, with the components of `assembly` and
    /// without control socket and metrics page. Its events are written nowhere; [`Self::events`] has them. `seed` begins all
    /// randomness.
    ///
    /// # Errors
    ///
    /// [`StartError`] names what failed.
    pub fn open(config: &Config, seed: u64, assembly: Assembly) -> Result<Self, StartError> {
        descriptor_need::allow(config).map_err(StartError::Descriptors)?;
        let process = process(config, None, "")?;
        let log = (EventLog::default(), None);
        let gateway = Self::begin(config, (seed, process, assembly), None, &|_| {}, log)?;
        gateway.log_start(config);
        Ok(gateway)
    }

    /// Runs the description `config`: all of it, or nothing.
    ///
    /// # Errors
    ///
    /// [`StartError`] names what failed.
    pub fn start(config: &Config, options: StartOptions) -> Result<Arc<Self>, StartError> {
        let StartOptions { seed, file, socket, default_socket, say, log, .. } = options;
        let StartOptions { last_good, fallback, upgrade, data_plane, parts, assembly, .. } =
            options;
        let place = SocketPlace { named: socket, default: default_socket };
        let name = format!("{}-{:016x}", config.name, place.number(&config.control));
        // First of all: a gateway that runs is the cause of what would fail beside it.
        let socket = place.claim(&config.control)?;
        descriptor_need::allow(config).map_err(StartError::Descriptors)?;
        let process = process(config, data_plane, &name)?;
        let events = EventLog::default();
        let writer = LogPart::start(&events, log, config.log).map_err(|error| in_words(&error))?;
        let log = (events, Some(writer));
        let mut gateway = Self::begin(config, (seed, process, assembly), file, &*say, log)?;
        gateway.upgrade = upgrade;
        gateway.last_good = LastGood::new(last_good, fallback);
        let gateway = Arc::new(parts.into_iter().fold(gateway, Self::with_part));
        gateway.control.serve(say, socket, &config.control, &gateway)?;
        gateway.log_start(config);
        Ok(gateway)
    }

    fn log_start(&self, config: &Config) {
        self.events.log(about(LogLevel::Info, "started", format!("{} runs", config.name)));
        if let Some(why) = self.fallback() {
            let text = format!(
                "the description is refused, and the last good one runs in its place: {why}; correct \
                 it and `gatewright reload`"
            );
            self.events.log(about(LogLevel::Error, "last-good", text));
        }
    }

    /// Why the gateway runs from the last good description instead of its file's, if it does.
    pub fn fallback(&self) -> Option<String> {
        self.last_good.fallback()
    }

    /// Keeps `text`, the description in force, for a start whose own description is refused, and in
    /// the history with the time and `cause`.
    pub fn keep_description(&self, text: &str, cause: DescriptionCause) {
        if let Err(error) = self.last_good.keep(text, cause, SystemTime::now()) {
            let text = format!(
                "the description in force is not kept: {error}; a start with a wrong description has \
                 an older one, or none, to fall back to"
            );
            self.events.log(about(LogLevel::Warning, "last-good-not-kept", text));
        }
    }

    /// The descriptions that the gateway has taken.
    pub(crate) fn last_good(&self) -> &LastGood {
        &self.last_good
    }

    /// The folder to which paths in the description are relative, if it has a file.
    pub fn folder(&self) -> Option<&Path> {
        let file = Path::new(self.file.as_deref()?);
        if file.is_dir() { Some(file) } else { file.parent() }
    }

    /// Sets the lowest severity of written events until the next reload; returns whether this gateway
    /// writes any.
    pub(crate) fn set_log_level(&self, level: LogLevel) -> bool {
        if let Some(log) = &self.log {
            log.set_level(level);
            let text = format!("events are written from level {level} on, until a reload");
            self.events.log(about(LogLevel::Info, "log-level", text).with("level", level));
        }
        self.log.is_some()
    }

    fn begin(
        config: &Config,
        (seed, process, assembly): (u64, Option<ProcessSetup>, Assembly),
        file: Option<String>,
        say: &dyn Fn(&str),
        (events, log): (EventLog, Option<LogPart>),
    ) -> Result<Self, StartError> {
        if let Some(table) = assembly.lacks(config).next() {
            return Err(RunError::NotInThisProgram(table).into());
        }
        let links = Links::open(config, seed, process, events.sink())?;
        let handlers = Handlers::start(&links, config, events.sink())?;
        let udp_gateways = UdpGateways::start(&links, config)?;
        let tcp_proxies = TcpProxies::start(config, events.sink())?;
        let mesh = MeshPart::start(config, seed, events.sink()).map_err(RunError::from)?;
        let own_stack = report_forwarder::own_stack(&links, config);
        let services = assembly.start_services(config, own_stack)?;
        let report_forwarding = ReportForwarding::start(&links, config)?;
        for part in &services.parts {
            for line in said_at_start(part.name(), part.tell().words) {
                say(&line);
            }
            part.start_events().into_iter().for_each(|event| events.log(event));
        }
        let programs = assembly.start_programs(&links, config, seed, events.sink())?;
        programs.notes().iter().for_each(|note| say(note));
        let messages = Messages::start(&links, &programs, config)?;
        messages.go_on(&events.sink());
        say_links(say, config, &links)?;
        links.planes().begin().map_err(RunError::from)?;
        let watched = watched_parts(&services.parts, &udp_gateways, &handlers);
        let watcher =
            Mutex::new(Watcher::start(&watched, &events).map_err(|error| in_words(&error))?);
        let read = sojourns_of(&links, &tcp_proxies, &programs);
        let delays = DelayWatch::start(read, config.workers, &events);
        let delays = Mutex::new(delays.map_err(|error| in_words(&error))?);
        let by_command = Mutex::new(Some(links.kept_by_command().memo.clone()));
        let this = Self {
            delays,
            udp_gateways,
            report_forwarding,
            messages,
            handlers,
            links,
            tcp_proxies,
            mesh,
            programs,
            services,
            assembly,
            control: ControlListeners::default(),
            events,
            log,
            watcher,
            in_force: Mutex::new(config.clone()),
            file,
            last_good: LastGood::default(),
            upgrade: None,
            by_command,
            hops: ShownHops::default(),
        };
        this.keep_by_command();
        Ok(this)
    }

    /// The description in force. While it is held, no other thread changes the gateway.
    pub(crate) fn in_force(&self) -> MutexGuard<'_, Config> {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The parts in the order in which they stage a description. Programs precede the handlers at
    /// their messages, and these the handlers at packets, as all take ids from one sequence. Links
    /// precede the parts that use their sockets. Parts that fail quickly come early. The mesh is last:
    /// its node ends for the next one, so no part may refuse the description afterwards.
    pub(crate) fn stage_order(&self) -> Vec<&dyn Part> {
        let services = self.services.parts.iter().map(|part| &**part);
        let own: [&dyn Part; 7] = [
            &*self.programs,
            &self.messages,
            &self.handlers,
            &self.links,
            &self.udp_gateways,
            &self.tcp_proxies,
            &self.control,
        ];
        let mesh: &dyn Part = &self.mesh;
        services.chain(own).chain(self.log_part()).chain([mesh]).collect()
    }

    /// The parts in the order of a description.
    pub(crate) fn told_order(&self) -> Vec<&dyn Part> {
        let own: [&dyn Part; 9] = [
            &self.links,
            &self.handlers,
            &self.messages,
            &self.udp_gateways,
            &self.report_forwarding,
            &self.tcp_proxies,
            &self.mesh,
            &self.control,
            &*self.programs,
        ];
        let services = self.services.parts.iter().rev().map(|part| &**part);
        own.into_iter().chain(services).chain(self.log_part()).collect()
    }

    fn log_part(&self) -> Option<&dyn Part> {
        self.log.as_ref().map(|part| -> &dyn Part { part })
    }

    /// Whether another program can go on in this process: the data plane goes on meanwhile, and the
    /// description can be read again.
    pub(crate) fn may_upgrade(&self) -> bool {
        self.upgrade.is_some() && self.file.is_some() && self.planes().data_process().is_some()
    }

    /// Tries whether another program begins as this one has, in a process of its own.
    ///
    /// # Errors
    ///
    /// How it has ended instead, in words.
    pub(crate) fn try_program(&self, program: &Path) -> Result<(), String> {
        let tried = self.upgrade.as_ref().map_or(Ok(()), |upgrade| (upgrade.try_out)(program));
        if let Err(why) = &tried {
            self.log_not_upgraded(program, why);
        }
        tried
    }

    fn log_not_upgraded(&self, program: &Path, why: &dyn fmt::Display) {
        let text = format!("{} does not go on in this process: {why}", program.display());
        self.events.log(about(LogLevel::Error, "upgrade-failed", text));
    }

    /// Has a program go on in this process; returns only if it does not.
    pub(crate) fn upgrade(&self, program: &Path) {
        let Some(upgrade) = &self.upgrade else { return };
        // A reload ends before it, or does not begin.
        let _in_force = self.in_force();
        let text = format!("{} goes on in this process", program.display());
        self.events.log(about(LogLevel::Info, "upgrade", text));
        let socket = self.control.path();
        // Clients are told that it is busy while nobody listens.
        if let Some(path) = &socket {
            begin_upgrade(path);
        }
        let error = (upgrade.exec)(program);
        if let Some(path) = &socket {
            end_upgrade(path);
        }
        self.log_not_upgraded(program, &error);
    }

    /// Has the data plane's process keep what is set by command now, for a control plane that adopts
    /// it. Called after each change.
    pub(crate) fn keep_by_command(&self) {
        if self.planes().data_process().is_none() {
            return;
        }
        // Held until it is kept: of two changes at once the later one stays.
        let mut kept = self.by_command.lock().unwrap_or_else(PoisonError::into_inner);
        let at_packets = self.handlers.attached().into_iter().filter_map(|one| one.spec);
        let at_messages = self.messages.attached().into_iter().filter_map(|one| one.spec);
        let handlers = at_packets.chain(at_messages).collect();
        let memo = ByCommand { routes: self.planes().command_routes(), handlers }.memo();
        if kept.as_ref() == Some(&memo) {
            return;
        }
        match self.planes().keep_memo(&memo) {
            Ok(()) => *kept = Some(memo),
            Err(error) => {
                // Passed again at the next change, even if that leads back to what was kept before.
                *kept = None;
                let text = format!(
                    "what was set by command is not kept for a control plane after this one: {error}"
                );
                self.events.log(about(LogLevel::Warning, "by-command-not-kept", text));
            }
        }
    }

    /// The event log.
    pub const fn events(&self) -> &EventLog {
        &self.events
    }

    /// The reports of its parts, without those that have nothing to report.
    pub(crate) fn parts_told(&self) -> Vec<NamedStatus> {
        let [proxies, mesh, forwarding, programs]: [&dyn Part; 4] =
            [&self.tcp_proxies, &self.mesh, &self.report_forwarding, &*self.programs];
        let services = self.services.parts.iter().map(|part| &**part);
        let told = [proxies, mesh].into_iter().chain(services).chain([forwarding, programs]);
        let told = told.map(|part| NamedStatus { name: part.name(), told: part.tell() });
        told.filter(|part| part.told != PartStatus::default()).collect()
    }

    /// Its balances.
    pub(crate) fn balances(&self) -> Vec<BalanceStatus> {
        let mut balances = self.tcp_proxies.balances();
        balances.extend(self.udp_gateways.balances());
        balances.extend(self.handlers.balances());
        balances
    }

    /// The delay models of its relays, and how many relays have none as there are too many.
    pub(crate) fn delays(&self) -> (Vec<RelayDelay>, u64) {
        self.delays.lock().unwrap_or_else(PoisonError::into_inner).delays()
    }

    /// Adds a part that an embedder runs: it stages descriptions after devices and service entity.
    #[must_use]
    pub fn with_part(mut self, part: Arc<dyn Part>) -> Self {
        self.services.parts.push(part);
        let watched = watched_parts(&self.services.parts, &self.udp_gateways, &self.handlers);
        match Watcher::start(&watched, &self.events) {
            Ok(watcher) => self.watcher = Mutex::new(watcher),
            Err(error) => {
                let text = format!("no thread watches the parts: {error}");
                self.events.log(about(LogLevel::Error, "no-thread", text));
            }
        }
        self
    }

    /// The planes, for handlers and sockets of an embedder.
    pub fn planes(&self) -> &Planes {
        self.links.planes()
    }

    /// The service entity, if one runs, for requests without a socket.
    pub fn service_entity(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.services.entity.as_ref()?.upgrade()
    }

    /// The table of `config` that this program does not run, if there is one.
    pub(crate) fn lacks(&self, config: &Config) -> Option<&'static str> {
        self.assembly.lacks(config).next()
    }

    /// Traces one packet; waits until it has come, while `is_wanted`, which is asked now and then.
    ///
    /// # Errors
    ///
    /// In words, if there can be no such packet.
    pub fn trace(
        &self,
        request: &TraceRequest,
        is_wanted: impl Fn() -> bool,
    ) -> Result<TraceAnswer, String> {
        trace::trace(self, request, is_wanted)
    }

    /// Records the conversation of one message of a program; waits as [`Self::trace`] does.
    ///
    /// # Errors
    ///
    /// In words, if there can be no such message.
    pub fn trace_message(
        &self,
        request: &MessageTraceRequest,
        is_wanted: impl Fn() -> bool,
    ) -> Result<ConversationAnswer, String> {
        self.messages.trace(request, &is_wanted)
    }

    /// The file of the description, if there is one.
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }

    /// The gateway's status and counters. It waits for no reload.
    ///
    /// # Errors
    ///
    /// In words, if its workers have ended.
    pub fn status(&self) -> Result<StatusAnswer, String> {
        status::status(self)
    }

    /// As [`Self::status`], with the times of layers, ways and handlers, which are measured until
    /// `seconds` after the last call.
    ///
    /// # Errors
    ///
    /// As [`Self::status`].
    pub fn measured_status(&self, seconds: f64) -> Result<StatusAnswer, String> {
        status::measured_status(self, seconds)
    }

    /// Ends everything and returns the last status and counters. Control socket and metrics page
    /// end first, with their clients.
    ///
    /// # Errors
    ///
    /// In words, if its workers had ended before.
    pub fn stop(&self) -> Result<StatusAnswer, String> {
        self.control.stop();
        self.watcher.lock().unwrap_or_else(PoisonError::into_inner).stop();
        self.delays.lock().unwrap_or_else(PoisonError::into_inner).stop();
        let status = self.status();
        self.events.log(about(LogLevel::Info, "stopped", "the gateway ends"));
        self.told_order().into_iter().for_each(Part::stop);
        status
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.told_order().into_iter().for_each(Part::stop);
    }
}

/// Where the service manager has put what it hands over, if it has (systemd.exec(5),
/// `LoadCredential=`).
pub fn credentials_folder() -> Option<PathBuf> {
    std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from)
}

/// Reads the sojourn times of packets, proxies and programs.
fn sojourns_of(
    links: &Links,
    proxies: &TcpProxies,
    programs: &Arc<dyn GatewayPrograms>,
) -> impl Fn() -> Vec<Sojourn> + Send + 'static {
    let (links, proxies, programs) = (links.clone(), proxies.clone(), Arc::clone(programs));
    move || {
        let times = links.planes().sojourn();
        let packets = Sojourn { mode: "graph", times, ..Sojourn::default() };
        let told = [proxies.tell(), programs.tell()];
        std::iter::once(packets).chain(told.into_iter().flat_map(|part| part.sojourns)).collect()
    }
}

/// An event of the gateway itself.
pub(crate) fn about(level: LogLevel, kind: &'static str, text: impl Into<String>) -> LogEvent {
    LogEvent::new(level, "gateway", kind, text)
}

/// The process in which the data plane of `config` runs, found by `name`; `None` if it runs here. A
/// gateway without links moves no packets.
fn process(
    config: &Config,
    program: Option<DataPlaneProgram>,
    name: &str,
) -> Result<Option<ProcessSetup>, StartError> {
    if config.plane_mode == PlaneMode::Threads || config.links.is_empty() {
        return Ok(None);
    }
    let Some(DataPlaneProgram { program, arguments }) = program else {
        return Err(RunError::NoDataPlane.into());
    };
    Ok(Some(ProcessSetup { program, arguments, name: name.to_owned() }))
}

/// Words of a part that are no warnings.
const STATES: [&str; 4] =
    ["listens_at", "registration", "restart", "closes_when_devices_have_gone"];

/// The lines that tell a part's words at the start: its state in one line, and each warning in one of
/// its own.
fn said_at_start(part: &str, words: Vec<(&'static str, String)>) -> Vec<String> {
    let (states, warnings): (Vec<_>, Vec<_>) =
        words.into_iter().partition(|(name, _)| STATES.contains(name));
    let states: Vec<_> = states.into_iter().map(|(_, said)| said).collect();
    let state = (!states.is_empty()).then(|| format!("{part}: {}", states.join(", ")));
    let warnings = warnings.into_iter().map(|(_, said)| format!("warning: {part}: {said}"));
    state.into_iter().chain(warnings).collect()
}

/// The parts whose reports may have values to watch.
fn watched_parts(
    services: &[Arc<dyn Part>],
    udp: &UdpGateways,
    handlers: &Handlers,
) -> Vec<Arc<dyn Part>> {
    let own: [Arc<dyn Part>; 2] = [Arc::new(udp.clone()), Arc::new(handlers.clone())];
    services.iter().cloned().chain(own).collect()
}

/// Why the log or the watcher cannot start.
fn in_words(error: &io::Error) -> StartError {
    StartError::Control { why: format!("cannot start a thread: {error}"), exit_code: 69 }
}

/// Reports the mode of each link, and why it was chosen.
fn say_links(say: &dyn Fn(&str), config: &Config, links: &Links) -> Result<(), RunError> {
    for link in links.planes().status()?.links {
        let (name, device, mode, why) = (link.name, link.device, link.mode, link.why);
        let (kernel, mtu, addresses) = (link.kernel, link.mtu, link.addresses.join(", "));
        say(&format!("link {name}: {device} by {mode}, {why}; {kernel}; MTU {mtu}, {addresses}"));
    }
    for relay in &config.tcp_proxies {
        let name = &relay.name.value;
        let to = match &relay.target {
            ProxyTarget::Server(server) => server.value.to_string(),
            ProxyTarget::Balance(flow) => format!("balance {}", flow.balance.value),
        };
        say(&format!("tcp_proxy {name}: relays {} to {to}", relay.listen.value));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_at_the_start_are_lines_of_their_own() {
        let words = vec![
            ("listens_at", "http://127.0.0.1:8080".to_owned()),
            ("connections", "4352 descriptors are needed and 1024 allowed".to_owned()),
            ("registration", "not yet at /in http://192.0.2.1".to_owned()),
        ];
        let lines = [
            "cse: http://127.0.0.1:8080, not yet at /in http://192.0.2.1",
            "warning: cse: 4352 descriptors are needed and 1024 allowed",
        ];
        assert_eq!(said_at_start("cse", words), lines);
        assert_eq!(said_at_start("cse", Vec::new()), Vec::<String>::new());
    }
}
