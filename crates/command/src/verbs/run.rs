//! `gatewright run`: the gateway of a description.

mod choice;
mod trial;

use crate::{
    data_plane,
    description::{Description, refusal, refusal_at, refusals},
    exit::{Exit, Failure},
    face::Face,
    lines,
    notify::{ServiceState, Watchdog, notify},
    signals::{SignalRequest, Signals, on_stop},
    socket,
};
use anyhow::{Context, Result};
use choice::Choice;
use gatewright_config::{Config, LogFormat, LogLevel, redacted, without_values};
use gatewright_descriptors::require;
use gatewright_diagnostic::{Diagnostic, Severity, SourceId};
use gatewright_gateway::{
    DataPlaneProgram, DescriptionCause, Gateway, LogOptions, Part, ProgramExec, ServedPart,
    StartError, StartOptions,
};
use gatewright_planes::{
    SETTLED_AFTER, inherited_sockets, keep_inherited_sockets, release_start_pages,
};
use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Read},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

/// The shape of its answer.
pub const JSON: &str = "the gateway's status when it ends, as `gatewright status --json`";

/// Runs the gateway that FILE describes, until it is interrupted.
///
/// All links are opened before the first packet is forwarded: a gateway runs completely or not at
/// all. Prints the mode of each link and the reason for it. `[devices]`, `[cse]` and `[[program]]`
/// run with or without links; without links no privilege is needed. The commands `gatewright
/// status`, `attach`, `reload` and others use the gateway's control socket. Events are logged;
/// `gatewright events` shows them. SIGHUP reads the description again, as `reload` does.
///
/// With `[planes] mode = "process"` packets are moved by a process of its own, which forwards on
/// when this one dies. Run again, this finds it and continues. SIGTERM ends both.
#[derive(Debug, clap::Args)]
pub struct Run {
    /// Gateway description in TOML; of a folder, its `gateway.toml` and `conf.d/*.toml`.
    #[arg(value_name = "FILE")]
    file: String,
    /// Keeps each description that it takes in this file, and starts from it if the one in FILE is
    /// refused; `gatewright status` and the event `last-good` say so.
    #[arg(long, value_name = "FILE")]
    last_good: Option<PathBuf>,
    /// Stop after this time.
    #[arg(long, value_name = "SECONDS")]
    stop_after: Option<u64>,
    /// Path of the control socket, instead of the description's or the default.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Format of events, instead of `[log] format` in the description: text, json, journal, none.
    #[arg(long, value_name = "FORMAT")]
    log: Option<LogFormat>,
    /// The lowest severity of events, instead of `[log] level` in the description: error, warning,
    /// info, debug.
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<LogLevel>,
}

impl Run {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// As [`Verbs::run`](crate::Verbs::run).
    pub fn run(self, face: Face) -> Result<Exit> {
        // First of all: until then their numbers are nobody's.
        inherited_sockets();
        // Fewer are too few for any description, and for reading it.
        require(DESCRIPTORS_MIN).map_err(|short| failure(&StartError::Descriptors(short)))?;
        let last_good = self.last_good.as_deref();
        if last_good.is_some_and(|copy| is_part_of(copy, &self.file)) {
            let message =
                "--last-good FILE is the description itself: name another file for the copy";
            return Err(Failure::new(Exit::Usage, message.to_owned()).into());
        }
        let Some(choice) = Choice::of(&self.file, last_good, face)? else {
            return Ok(Exit::Configuration);
        };
        if trial::is_asked() {
            trial::pass(&mut io::stdout())?;
            return Ok(Exit::Success);
        }
        let signals = Signals::hold()?;
        lines::queue()?;
        let Started { choice, gateway, web } = self.start(choice, face)?;
        let (tell, asked) = mpsc::channel();
        signals.tell(tell)?;
        let end = self
            .stop_after
            .and_then(|after| Instant::now().checked_add(Duration::from_secs(after)));
        // Without it the gateway does as well, and is larger.
        let _released = release_start_pages();
        let warned = warnings(&choice.read.findings);
        let mut reloading = Reloading { face, file: &self.file, warned };
        notify(ServiceState::Ready);
        reloading.obey(&asked, end, &gateway);
        notify(ServiceState::Stopping);
        // Its clients hold the gateway while they ask it.
        if let Some(web) = &web {
            web.end();
        }
        let status = gateway.stop().map_err(anyhow::Error::msg)?;
        drop(gateway);
        face.answer_within(ANSWERED_WITHIN, &status, || super::status::summary(&status))?;
        Ok(Exit::Success)
    }
}

/// Whether `copy` is the description at `file`, or in the folder of its further files.
fn is_part_of(copy: &Path, file: &str) -> bool {
    let same = |one: &Path, other: &Path| {
        fs::canonicalize(one).is_ok_and(|one| fs::canonicalize(other).is_ok_and(|it| it == one))
    };
    let file = Path::new(file);
    let folder = copy.parent().filter(|it| !it.as_os_str().is_empty());
    let folder = folder.unwrap_or_else(|| Path::new("."));
    same(copy, file) || same(copy, &file.join("gateway.toml")) || same(folder, &file.join("conf.d"))
}

/// The web interface of a gateway, if the program has one.
type WebInterface = Option<Arc<dyn ServedPart>>;

fn web_of(face: Face) -> WebInterface {
    face.program().web.map(|web| web())
}

/// A gateway that runs, with the description that was chosen.
struct Started {
    choice: Choice,
    gateway: Arc<Gateway>,
    web: WebInterface,
}

impl Run {
    /// Starts what was chosen, or the last good description if that does not start.
    fn start(&self, choice: Choice, face: Face) -> Result<Started> {
        let web = web_of(face);
        let refused = match self.start_one(&choice, &web, face)? {
            Ok(gateway) => return self.started(Started { choice, gateway, web }, face),
            Err(error) => error,
        };
        if let Some((key, why)) = refused.refused() {
            let sources = &choice.read.sources;
            let place = choice.read.config.as_ref().and_then(|config| refused.place_in(config));
            let finding = place.map_or_else(
                || refusal(sources, key, &why, false),
                |place| refusal_at(place, key, &why, false),
            );
            face.findings(&[finding], sources);
        }
        let of_description = matches!(refused, StartError::Run(_) | StartError::Component(_));
        if of_description && choice.fallback.is_none() {
            // Status and events have it: no value of the description is in it.
            let why = without_values(&refused.to_string(), &redacted(choice.text()).removed);
            let path = self.last_good.as_deref();
            let other = Choice::last_good(&self.file, path, why, face);
            if let Some(other) = other.filter(|other| other.text() != choice.text()) {
                let web = web_of(face);
                let gateway =
                    self.start_one(&other, &web, face)?.map_err(|error| failure(&error))?;
                return self.started(Started { choice: other, gateway, web }, face);
            }
        }
        Err(failure(&refused).into())
    }

    /// Starts one description.
    fn start_one(
        &self,
        choice: &Choice,
        web: &WebInterface,
        face: Face,
    ) -> Result<std::result::Result<Arc<Gateway>, StartError>> {
        let Some(config) = &choice.read.config else { anyhow::bail!("the description has errors") };
        let mut options = self.options(config, face)?;
        options.fallback.clone_from(&choice.fallback);
        options.parts = web.iter().map(|web| -> Arc<dyn Part> { Arc::clone(web) as _ }).collect();
        Ok(Gateway::start(config, options))
    }

    /// Serves the web of a gateway that was started, and keeps its description.
    fn started(&self, started: Started, face: Face) -> Result<Started> {
        let Started { choice, gateway, web } = &started;
        let Some(config) = &choice.read.config else { return Ok(started) };
        let served = web.as_ref().map(|web| web.serve(gateway, config)).transpose();
        match served.map(Option::flatten) {
            Ok(Some(url)) if !self.logs_json(config, face) => face.note(&format!("web: {url}")),
            Ok(_) => {}
            Err(error) => {
                // It runs completely or not at all.
                let _status = gateway.stop();
                let sources = &choice.read.sources;
                if let Some((key, why)) = &error.refused {
                    face.findings(&[refusal(sources, key, why, false)], sources);
                }
                return Err(Failure::new(Exit::of(error.exit_code), error.to_string()).into());
            }
        }
        // The last good one is kept already, and becomes the one in force of the history.
        gateway.keep_description(choice.text(), DescriptionCause::Start);
        Ok(started)
    }

    /// Where events are written, as the command line says it.
    fn log_options(&self, face: Face) -> LogOptions {
        LogOptions {
            format: self.log,
            level: self.log_level,
            default_format: face.is_json().then_some(LogFormat::Json),
        }
    }

    /// Whether events say what happens, and every line is to be JSON.
    fn logs_json(&self, config: &Config, face: Face) -> bool {
        self.log_options(face).format_for(config.log) == LogFormat::Json
    }

    fn options(&self, config: &Config, face: Face) -> Result<StartOptions> {
        let is_json = self.logs_json(config, face);
        Ok(StartOptions {
            seed: seed()?,
            // Standard input cannot be read a second time.
            file: fs::canonicalize(&self.file).ok().map(|file| file.to_string_lossy().into_owned()),
            last_good: self.last_good.clone(),
            fallback: None,
            socket: self.socket.clone(),
            default_socket: socket::default_path(&config.name),
            say: Arc::new(move |line| {
                if !is_json {
                    face.note(line);
                }
            }),
            log: self.log_options(face),
            upgrade: Some(ProgramExec {
                try_out: Arc::new(trial::try_out),
                exec: Arc::new(|program: &Path| {
                    // All descriptors close then, as when this process dies: the data plane goes on.
                    // But those that the service manager has passed, whose variables it finds, too.
                    if let Err(error) = keep_inherited_sockets(true) {
                        return error;
                    }
                    let error = Command::new(program).args(std::env::args_os().skip(1)).exec();
                    // Programs that this one starts from now on do not get them.
                    keep_inherited_sockets(false).err().unwrap_or(error)
                }),
            }),
            data_plane: Some(DataPlaneProgram {
                // As it is now, even if the file is exchanged meanwhile.
                program: "/proc/self/exe".into(),
                arguments: vec![data_plane::WORD.into()],
            }),
            parts: Vec::new(),
            assembly: face.program().assembly,
        })
    }
}

/// File descriptors that every gateway needs.
const DESCRIPTORS_MIN: u64 = 42;
/// How long the status may take to be written at the end.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// The start of all randomness, from the system.
///
/// # Errors
///
/// If the system gives none.
pub fn seed() -> Result<u64> {
    let mut octets = [0; 8];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut octets))
        .context("/dev/urandom")?;
    Ok(u64::from_be_bytes(octets))
}

/// Receives interrupts, once for the process.
///
/// # Errors
///
/// If the system gives no thread for it.
pub fn stopped() -> Result<mpsc::Receiver<()>> {
    let (stop, stopped) = mpsc::channel();
    on_stop(move || {
        // The second signal finds nobody listening, which is as good.
        let _ended = stop.send(());
    })?;
    Ok(stopped)
}

/// State kept between two reloads by signal.
struct Reloading<'a> {
    face: Face,
    file: &'a str,
    /// The warnings about the description as it was read last: they are not repeated.
    warned: BTreeSet<String>,
}

impl Reloading<'_> {
    /// Does what signals ask until one asks to end, or it is time.
    fn obey(
        &mut self,
        asked: &mpsc::Receiver<SignalRequest>,
        end: Option<Instant>,
        gateway: &Gateway,
    ) {
        let mut watchdog = Watchdog::of_process(Instant::now());
        let mut settled = Instant::now().checked_add(SETTLED_AFTER);
        loop {
            let wake = [end, settled, watchdog.map(|watchdog| watchdog.next)];
            let wake = wake.into_iter().flatten().min();
            let asked = match wake {
                None => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(wake) => asked.recv_timeout(wake.saturating_duration_since(Instant::now())),
            };
            let now = Instant::now();
            if asked == Err(RecvTimeoutError::Timeout) && settled.is_some_and(|at| now >= at) {
                // As after the start: of what it touches later much is used once, too.
                let _released = release_start_pages();
                settled = None;
                continue;
            }
            match (asked, &mut watchdog) {
                (Ok(SignalRequest::Reload), _) => self.reload(gateway),
                (Err(RecvTimeoutError::Timeout), Some(watchdog))
                    if end.is_none_or(|end| now < end) =>
                {
                    // Workers that have ended, or a lock that nobody gives back, do not answer.
                    watchdog.tell(now, gateway.status().is_ok());
                }
                (Ok(SignalRequest::Stop) | Err(_), _) => return,
            }
        }
    }

    /// Takes the description as it is now; what is wrong with it changes nothing.
    fn reload(&mut self, gateway: &Gateway) {
        let (face, file) = (self.face, self.file);
        if file == "-" {
            face.note("SIGHUP: the description came by standard input: nothing is changed");
            return;
        }
        let mut read = match Description::load(face.program(), file) {
            Ok(read) => read,
            Err(error) => {
                gateway.log_refused(&error.to_string());
                return face.note(&format!("SIGHUP: {error}: nothing is changed"));
            }
        };
        let warned = std::mem::replace(&mut self.warned, warnings(&read.findings));
        read.findings.retain(|found| !warned.contains(&in_short(found)));
        face.findings(&read.findings, &read.sources);
        let Some(config) = read.config else {
            gateway.log_refused(&read.first_error());
            return face.note(&format!("SIGHUP: {file}: nothing is changed"));
        };
        match gateway.reload(&config) {
            Ok(changes) => {
                let text = read.sources.get(SourceId::default()).text();
                gateway.keep_description(text, DescriptionCause::Reload);
                if changes.is_empty() {
                    face.note("SIGHUP: nothing is changed");
                }
                for change in &changes {
                    face.note(&format!("SIGHUP: {change}"));
                }
            }
            Err(error) => {
                let (refused, restart) = error.refused();
                face.findings(&refusals(&read.sources, &refused, restart), &read.sources);
                face.note(&format!("SIGHUP: {error}"));
            }
        }
    }
}

/// The warnings among findings.
fn warnings(findings: &[Diagnostic]) -> BTreeSet<String> {
    let warnings = findings.iter().filter(|found| found.severity != Severity::Error);
    warnings.map(in_short).collect()
}

/// A finding without its place, which moves with every line before it.
fn in_short(found: &Diagnostic) -> String {
    format!("{}: {}", found.code, found.message)
}

/// A gateway's failure with its exit code.
fn failure(error: &StartError) -> Failure {
    Failure::new(Exit::of(error.exit_code()), error.to_string())
}
