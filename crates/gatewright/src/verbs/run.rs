//! `gatewright run`: the gateway of a description.

use crate::{
    description::{Description, refusal, refusals},
    exit::{Exit, Failure},
    face::Face,
    programs::Programs,
    rim::{Retired, Rim},
    signals::{Asked, Signals},
};
use anyhow::{Context, Result};
use gatewright_bindings::services::{self, Difference, ServiceError, Services};
use gatewright_config::Config;
use gatewright_gateway::{
    Change, Configured, Part, PartHistogram, ProgramHandlers, RunError, Told, Unable, Undo, api,
};
use gatewright_planes::release_start_pages;
use std::{
    fs::File,
    io::Read,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

pub(super) const JSON: &str = "the gateway's status when it ends, as `gatewright status --json`";

/// Runs the gateway that FILE describes, until it is interrupted.
///
/// Every link is opened before the first packet is forwarded: a gateway runs whole or not at all.
/// Says loudly which mode each link got and why. `[devices]`, `[cse]` and `[[program]]` run beside the links, or
/// without any: then no privilege is needed. While it runs, `gatewright status`, `attach`,
/// `reload` and others reach it by its control socket. SIGHUP takes the description anew, as `reload`
/// does.
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
        let signals = Signals::hold()?;
        let mut gateway = Configured::open(&config, seed()?).map_err(|error| failure(&error))?;
        // Standard input cannot be read a second time.
        if let Ok(file) = std::fs::canonicalize(&self.file) {
            gateway.set_file(file.to_string_lossy().into_owned());
        }
        let services = match serve(face, &config, &mut gateway) {
            Ok(services) => services,
            Err(error) => {
                let (key, why) = error.key();
                let refused = [refusal(&read.sources, key, &why, false)];
                face.findings(&refused, &read.sources);
                return Err(Failure::new(Exit::Unavailable, error.to_string()).into());
            }
        };
        // The gateway attaches to them for as long as they are here.
        let (programs, _handlers) = run_programs(face, &config, &mut gateway)?;
        for link in gateway.planes().status()?.links {
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
        let (tell, heard) = mpsc::channel();
        signals.tell(tell.clone(), Heard::Asked)?;
        let rim = Rim::serve(face, self.socket, &config, &gateway)?;
        lock(&gateway).on_control(rim.on_reload(tell));
        let end = self
            .stop_after
            .and_then(|after| Instant::now().checked_add(Duration::from_secs(after)));
        // Without it the gateway does as well, and is larger.
        let _released = release_start_pages();
        obey(face, &heard, end, &self.file, &gateway);
        // Control socket and metrics page end, and with them who asks there.
        let ended = lock(&gateway).end_control();
        drop(ended);
        let status = {
            let gateway = lock(&gateway);
            api::status(&gateway).map_err(anyhow::Error::msg)?
        };
        drop(gateway);
        programs.stop();
        if let Some(services) = services {
            services.stop();
        }
        face.answer(&status, || super::status::summary(&status))?;
        Ok(Exit::Success)
    }
}

/// What a service tells of itself, if it is there.
type Tell = fn(&Services) -> Option<services::Told>;
/// What of a service's table is another.
type Differ = fn(&Config, &Config) -> Vec<Difference>;

/// Whether the files of a service's certificates hold others than it uses.
type Renewed = fn(&Services, &Config) -> bool;

/// Starts the service entity and the listener for devices, if the description asks for them, and
/// has the gateway tell of them.
fn serve(
    face: Face,
    config: &Config,
    gateway: &mut Configured,
) -> Result<Option<Arc<Services>>, ServiceError> {
    let Some(services) = Services::start(config)? else { return Ok(None) };
    let parts: [(&str, Tell, Differ, Renewed); 2] = [
        (
            "cse",
            |it| Some(it.cse_told()),
            Services::cse_differences,
            Services::cse_certificates_differ,
        ),
        (
            "devices",
            Services::devices_told,
            Services::devices_differences,
            Services::devices_certificates_differ,
        ),
    ];
    for (name, tell, differ, renewed) in parts {
        let Some(told) = tell(&services) else { continue };
        let words: Vec<_> = told.words.iter().map(|(_, said)| said.as_str()).collect();
        face.note(&format!("{name}: {}", words.join(", ")));
        let [weak, asked, taker] = [(); 3].map(|()| Arc::downgrade(&services));
        let part = Part::new(name, move || {
            weak.upgrade().and_then(|services| tell(&services)).map(part_told).unwrap_or_default()
        });
        let differences = move |old: &Config, new: &Config| {
            let change = |it: Difference| {
                let made = if it.restart { Change::restart } else { Change::new };
                made(it.key, it.how)
            };
            let mut told: Vec<_> = differ(old, new).into_iter().map(change).collect();
            // What the files hold is no text of the description.
            if told.is_empty() && asked.upgrade().is_some_and(|services| renewed(&services, new)) {
                let how = "what its files of certificates hold changed";
                told.push(Change::new(format!("[{name}.tls]"), how));
            }
            told
        };
        // One of the parts takes all, as they hang together.
        let take = move |config: &Config| match taker.upgrade() {
            Some(services) if name == "cse" => services.take(config).map_err(|error| {
                let (key, why) = error.key();
                Unable { key: Some(key.to_owned()), why }
            }),
            _ => Ok(Box::new(|| {}) as Undo),
        };
        gateway.add_part(part.exchanging(differences, take));
    }
    Ok(Some(services))
}

/// What a service tells, in the words of the planes.
fn part_told(told: services::Told) -> Told {
    let histograms = told.histograms.into_iter().map(|(name, it)| PartHistogram {
        name,
        counts: it.counts().to_vec(),
        sum: it.sum(),
        largest: it.largest(),
    });
    Told {
        words: told.words,
        gauges: told.gauges,
        counters: told.counters,
        histograms: histograms.collect(),
        ..Told::default()
    }
}

/// Starts the programs that the description names, and has the gateway tell of them; a reload may
/// bring others.
fn run_programs(
    face: Face,
    config: &Config,
    gateway: &mut Configured,
) -> Result<(Programs, Arc<dyn ProgramHandlers>)> {
    let programs = Programs::start(&config.programs, seed()?)?;
    for note in programs.notes() {
        face.note(&note);
    }
    let [told, known, taker] = [(); 3].map(|()| programs.clone());
    let part = Part::new("programs", move || told.told());
    gateway.add_part(part.exchanging(
        move |_, new| known.differences(&new.programs),
        move |new| Ok(taker.exchange(&new.programs)?),
    ));
    let handlers: Arc<dyn ProgramHandlers> = Arc::new(programs.clone());
    gateway.set_programs(&handlers).map_err(|error| failure(&error))?;
    Ok((programs, handlers))
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

/// What the main thread hears.
enum Heard {
    Asked(Asked),
    /// To be dropped here, where nothing is locked.
    Retired(#[expect(dead_code, reason = "it is only to be dropped")] Retired),
}

impl From<Retired> for Heard {
    fn from(retired: Retired) -> Self {
        Self::Retired(retired)
    }
}

fn lock(gateway: &Mutex<Configured>) -> MutexGuard<'_, Configured> {
    gateway.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does what signals ask until one asks to end, or it is time.
fn obey(
    face: Face,
    heard: &mpsc::Receiver<Heard>,
    end: Option<Instant>,
    file: &str,
    gateway: &Mutex<Configured>,
) {
    loop {
        let heard = match end {
            None => heard.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(end) => heard.recv_timeout(end.saturating_duration_since(Instant::now())),
        };
        match heard {
            Ok(Heard::Asked(Asked::Reload)) => reload(face, file, gateway),
            Ok(Heard::Retired(_)) => {}
            Ok(Heard::Asked(Asked::Stop)) | Err(_) => return,
        }
    }
}

/// Takes the description as it is now; what is wrong with it changes nothing.
fn reload(face: Face, file: &str, gateway: &Mutex<Configured>) {
    if file == "-" {
        face.note("SIGHUP: the description came by standard input: nothing is changed");
        return;
    }
    let read = match Description::load(file) {
        Ok(read) => read,
        Err(error) => return face.note(&format!("SIGHUP: {error}: nothing is changed")),
    };
    face.findings(&read.findings, &read.sources);
    let Some(config) = read.config else {
        return face.note(&format!("SIGHUP: {file}: nothing is changed"));
    };
    match lock(gateway).reload(&config) {
        Ok(changes) if changes.is_empty() => face.note("SIGHUP: nothing is changed"),
        Ok(changes) => changes.iter().for_each(|change| face.note(&format!("SIGHUP: {change}"))),
        Err(error) => {
            let (refused, restart) = error.refused();
            face.findings(&refusals(&read.sources, &refused, restart), &read.sources);
            face.note(&format!("SIGHUP: {error}"));
        }
    }
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
