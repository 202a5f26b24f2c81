//! `gatewright run`: the gateway of a description.

use crate::{
    data_plane,
    description::{Description, refusal, refusals},
    exit::{Exit, Failure},
    face::Face,
    lines,
    notify::{ServiceState, notify},
    signals::{SignalRequest, Signals, on_stop},
    socket,
};
use anyhow::{Context, Result};
use gatewright_config::{LogFormat, LogLevel};
use gatewright_descriptors::require;
use gatewright_diagnostic::{Diagnostic, Severity};
use gatewright_gateway::{
    DataPlaneProgram, Gateway, LogOptions, ProgramExec, StartError, StartOptions,
};
use gatewright_planes::release_start_pages;
use gatewright_web::{WebError, WebPart};
use std::{
    collections::BTreeSet,
    fs::File,
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

pub(super) const JSON: &str = "the gateway's status when it ends, as `gatewright status --json`";

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
pub(crate) struct Run {
    /// Gateway description in TOML.
    #[arg(value_name = "FILE")]
    file: String,
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
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        // Fewer are too few for any description, and for reading it.
        require(DESCRIPTORS_MIN).map_err(|short| failure(&StartError::Descriptors(short)))?;
        let read = Description::load(&self.file)?;
        face.findings(&read.findings, &read.sources);
        let Some(config) = read.config else { return Ok(Exit::Configuration) };
        let signals = Signals::hold()?;
        lines::queue()?;
        let log = LogOptions {
            format: self.log,
            level: self.log_level,
            default_format: face.is_json().then_some(LogFormat::Json),
        };
        // Events say the same, and every line is to be JSON.
        let is_json = log.format_for(config.log) == LogFormat::Json;
        let web = WebPart::default();
        let options = StartOptions {
            seed: seed()?,
            // Standard input cannot be read a second time.
            file: std::fs::canonicalize(&self.file)
                .ok()
                .map(|file| file.to_string_lossy().into_owned()),
            socket: self.socket,
            default_socket: socket::default_path(&config.name),
            say: Arc::new(move |line| {
                if !is_json {
                    face.note(line);
                }
            }),
            log,
            upgrade: Some(ProgramExec(Arc::new(|program: &Path| {
                // All descriptors close then, as when this process dies: the data plane goes on.
                Command::new(program).args(std::env::args_os().skip(1)).exec()
            }))),
            data_plane: Some(DataPlaneProgram {
                // As it is now, even if the file is exchanged meanwhile.
                program: "/proc/self/exe".into(),
                arguments: vec![data_plane::WORD.into()],
            }),
            parts: vec![Arc::new(web.clone())],
        };
        let gateway = match Gateway::start(&config, options) {
            Ok(gateway) => gateway,
            Err(error) => {
                if let Some((key, why)) = error.refused() {
                    face.findings(&[refusal(&read.sources, key, &why, false)], &read.sources);
                }
                return Err(failure(&error).into());
            }
        };
        match web.serve(&gateway, &config) {
            Ok(Some(url)) if !is_json => face.note(&format!("web: {url}")),
            Ok(_) => {}
            Err(error) => return Err(refused_web(&gateway, &error).into()),
        }
        let (tell, asked) = mpsc::channel();
        signals.tell(tell)?;
        let end = self
            .stop_after
            .and_then(|after| Instant::now().checked_add(Duration::from_secs(after)));
        // Without it the gateway does as well, and is larger.
        let _released = release_start_pages();
        let mut reloading = Reloading { face, file: &self.file, warned: warnings(&read.findings) };
        notify(ServiceState::Ready);
        reloading.obey(&asked, end, &gateway);
        notify(ServiceState::Stopping);
        // Its clients hold the gateway while they ask it.
        web.end();
        let status = gateway.stop().map_err(anyhow::Error::msg)?;
        drop(gateway);
        face.answer_within(ANSWERED_WITHIN, &status, || super::status::summary(&status))?;
        Ok(Exit::Success)
    }
}

/// File descriptors that every gateway needs.
const DESCRIPTORS_MIN: u64 = 42;
/// How long the status may take to be written at the end.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// The start of all randomness, from the system.
pub(super) fn seed() -> Result<u64> {
    let mut octets = [0; 8];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut octets))
        .context("/dev/urandom")?;
    Ok(u64::from_be_bytes(octets))
}

/// Receives interrupts, once for the process.
pub(super) fn stopped() -> Result<mpsc::Receiver<()>> {
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
        loop {
            let asked = match end {
                None => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(end) => asked.recv_timeout(end.saturating_duration_since(Instant::now())),
            };
            match asked {
                Ok(SignalRequest::Reload) => self.reload(gateway),
                Ok(SignalRequest::Stop) | Err(_) => return,
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
        let mut read = match Description::load(file) {
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
            Ok(changes) if changes.is_empty() => face.note("SIGHUP: nothing is changed"),
            Ok(changes) => {
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

/// Ends a gateway whose web interface cannot listen: it runs completely or not at all.
fn refused_web(gateway: &Gateway, error: &WebError) -> Failure {
    let _status = gateway.stop();
    let exit = match error.source.kind() {
        io::ErrorKind::AddrInUse => Exit::Busy,
        io::ErrorKind::PermissionDenied => Exit::Permission,
        _ => Exit::Unavailable,
    };
    Failure::new(exit, error.to_string())
}

/// A gateway's failure with its exit code.
fn failure(error: &StartError) -> Failure {
    Failure::new(Exit::of(error.exit_code()), error.to_string())
}
