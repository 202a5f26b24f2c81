//! `gatewright run`: the gateway of a description.

use crate::{
    description::{Description, NamedProgram},
    exit::{Exit, Failure},
    face::Face,
    programs::Programs,
    socket,
};
use anyhow::{Context, Result};
use gatewright_bindings::services::{self, Services};
use gatewright_config::{Config, Control, Listen};
use gatewright_planes::{
    Configured, Part, RunError, Told,
    api::{self, Server},
    metrics::MetricsServer,
};
use std::{
    fs::File,
    io::Read,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, mpsc},
    time::Duration,
};

pub(super) const JSON: &str = "the gateway's status when it ends, as `gatewright status --json`";

/// Runs the gateway that FILE describes, until it is interrupted.
///
/// Every link is opened before the first packet is forwarded: a gateway runs whole or not at all.
/// Says loudly which mode each link got and why. `[devices]`, `[cse]` and `[[program]]` run beside the links, or
/// without any: then no privilege is needed. While it runs, `gatewright status`, `attach`,
/// `reload` and others reach it by its control socket.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// Gateway description in TOML.
    #[arg(value_name = "FILE")]
    file: String,
    /// Stop by itself after this long.
    #[arg(long, value_name = "SECONDS")]
    stop_after: Option<u64>,
    /// Path of the control socket, instead of the description's or the default.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl Run {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        let read = Description::load(&self.file)?;
        face.findings(&read.findings, &read.sources);
        let Some(config) = read.config else { return Ok(Exit::Configuration) };
        let path = self.socket.or_else(|| config.control.socket.as_ref().map(PathBuf::from));
        let path = path.unwrap_or_else(|| socket::default_path(&config.name));
        let mut gateway = Configured::open(&config, seed()?).map_err(|error| failure(&error))?;
        // Standard input cannot be read a second time.
        if let Ok(file) = std::fs::canonicalize(&self.file) {
            gateway.set_file(file.to_string_lossy().into_owned());
        }
        let services = serve(face, &config, &mut gateway)?;
        let programs = run_programs(face, &read.programs, &mut gateway)?;
        for link in gateway.gateway().status()?.links {
            face.note(&format!(
                "link {}: {} by {}, {}; {}; MTU {}, {}",
                link.name,
                link.device,
                link.mode,
                link.why,
                link.kernel,
                link.mtu,
                link.addresses.join(", ")
            ));
        }
        for relay in &config.tcp_proxies {
            let (name, to) = (&relay.name.value, relay.forward.value);
            face.note(&format!("tcp_proxy {name}: relays {} to {to}", relay.listen.value));
        }
        let gateway = Arc::new(Mutex::new(gateway));
        let server = Server::start(Arc::clone(&gateway), &path).map_err(|error| {
            Failure::new(Exit::Unavailable, format!("control socket {}: {error}", path.display()))
        })?;
        face.note(&format!("control socket: {}", path.display()));
        let metrics = serve_metrics(face, &config.control, &gateway)?;
        wait(self.stop_after.map(Duration::from_secs))?;
        drop((server, metrics));
        let status = {
            let gateway = gateway.lock().unwrap_or_else(PoisonError::into_inner);
            api::status(&gateway).map_err(anyhow::Error::msg)?
        };
        drop(gateway);
        if let Some(programs) = programs.and_then(Arc::into_inner) {
            programs.stop();
        }
        if let Some(services) = services {
            services.stop();
        }
        face.answer(&status, || super::status::summary(&status))?;
        Ok(Exit::Success)
    }
}

/// Starts the service entity and the listener for devices, if the description asks for them, and
/// has the gateway tell of them.
fn serve(
    face: Face,
    config: &Config,
    gateway: &mut Configured,
) -> Result<Option<Arc<Services>>, Failure> {
    let started = Services::start(config)
        .map_err(|error| Failure::new(Exit::Unavailable, error.to_string()))?;
    let Some(services) = started else { return Ok(None) };
    for (name, tell) in [
        ("cse", (|it| Some(it.cse_told())) as fn(&Services) -> Option<services::Told>),
        ("devices", Services::devices_told),
    ] {
        let Some(told) = tell(&services) else { continue };
        let words: Vec<_> = told.words.iter().map(|(_, said)| said.as_str()).collect();
        face.note(&format!("{name}: {}", words.join(", ")));
        let services = Arc::downgrade(&services);
        gateway.add_part(Part::new(name, move || {
            let told = services.upgrade().and_then(|services| tell(&services)).unwrap_or_default();
            Told { words: told.words, gauges: told.gauges, counters: told.counters }
        }));
    }
    Ok(Some(services))
}

/// Starts the programs, if the description names any, and has the gateway tell of them.
fn run_programs(
    face: Face,
    named: &[NamedProgram],
    gateway: &mut Configured,
) -> Result<Option<Arc<Programs>>> {
    let programs = Programs::start(named, seed()?)?;
    if programs.is_empty() {
        return Ok(None);
    }
    for note in programs.notes() {
        face.note(&note);
    }
    let programs = Arc::new(programs);
    let told = Arc::downgrade(&programs);
    gateway.add_part(Part::new("programs", move || {
        told.upgrade().map(|programs| programs.told()).unwrap_or_default()
    }));
    Ok(Some(programs))
}

/// The metrics page, if the description asks for one.
fn serve_metrics(
    face: Face,
    control: &Control,
    gateway: &Arc<Mutex<Configured>>,
) -> Result<Option<MetricsServer>, Failure> {
    let Some(listen) = &control.metrics else { return Ok(None) };
    let place = match &listen.value {
        Listen::Tcp(address) => format!("http://{address}/metrics"),
        Listen::Unix(path) => format!("/metrics at unix:{path}"),
    };
    let server = MetricsServer::start(Arc::clone(gateway), &listen.value)
        .map_err(|error| Failure::new(Exit::Unavailable, format!("metrics {place}: {error}")))?;
    face.note(&format!("metrics: {place}"));
    Ok(Some(server))
}

/// The start of all randomness, from the system.
pub(super) fn seed() -> Result<u64> {
    let mut octets = [0; 8];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut octets))
        .context("/dev/urandom")?;
    Ok(u64::from_be_bytes(octets))
}

/// Hears of an interrupt, once for the process.
pub(super) fn stopped() -> Result<mpsc::Receiver<()>> {
    let (stop, stopped) = mpsc::channel();
    ctrlc::set_handler(move || {
        // The second signal finds nobody listening, which is as good.
        let _ended = stop.send(());
    })?;
    Ok(stopped)
}

/// Waits for an interrupt, or for the time to pass.
fn wait(limit: Option<Duration>) -> Result<()> {
    let stopped = stopped()?;
    match limit {
        None => stopped.recv()?,
        // Either way it is time to stop.
        Some(limit) => drop(stopped.recv_timeout(limit)),
    }
    Ok(())
}

/// A gateway's failure with its exit code.
pub(super) fn failure(error: &RunError) -> Failure {
    let exit = match error.exit_code() {
        77 => Exit::Permission,
        78 => Exit::Configuration,
        _ => Exit::Unavailable,
    };
    Failure::new(exit, error.to_string())
}
