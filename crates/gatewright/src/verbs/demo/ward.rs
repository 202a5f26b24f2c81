//! The ward: three simulated devices, a gateway, the central CSE, and a monitor that watches.

mod central;
mod screen;

use anyhow::{Context, Result};
use central::{Central, CentralAddress, free_port};
use gatewright_bindings::agents;
use gatewright_bindings::listen::Notifications;
use gatewright_bindings::services::Services;
use gatewright_bindings::tasks::{block_on, spawn};
use gatewright_command::{
    exit::{Exit, Failure},
    face::Face,
};
use gatewright_config::parse;
use gatewright_diagnostic::SourceId;
use gatewright_health::code::SystemId;
use gatewright_health::simulate::SimulationPlan;
use gatewright_health::specialisation::{ACTIVITY, DISPENSER, OXIMETER, Specialisation};
use gatewright_interwork::{Device, Mapping};
use screen::{Screen, Ward};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};
use tokio::task::JoinHandle;

/// Default duration of measuring.
const SECONDS: u64 = 12;
/// At some ten values a second; a CSE names at most 10,000 instances when they are counted.
const SECONDS_MAX: u64 = 600;
/// How long devices and monitor may take to end after the last measurement.
const PATIENCE: Duration = Duration::from_secs(30);
/// Interval between two drawings of the screen.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const KINDS: [&Specialisation; 3] = [&OXIMETER, &DISPENSER, &ACTIVITY];
/// The gateway's CSE.
const GATEWAY: &str = "/ward";
const PICTURE: &str = "
    oximeter  ──┐               gateway                 central
    dispenser ──┤ IEEE 11073 ── MN-CSE, ── oneM2M ───── IN-CSE ── notifications ── monitor
    activity  ──┘               outbox      HTTP        a process of its own
";

/// The user's options.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) seconds: Option<u64>,
    /// URL of another IN-CSE, its CSEBase, and who may subscribe there.
    pub(super) in_cse: Option<String>,
    pub(super) in_base: String,
    pub(super) originator: String,
}

/// A patient's device.
#[derive(Clone, Debug)]
struct Bed {
    number: usize,
    kind: &'static str,
    system_id: String,
    /// Names of the measured quantities, by handle.
    places: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
struct WardReport {
    demo: &'static str,
    in_cse: String,
    /// Times that the central CSE was killed.
    kills: u32,
    devices: Vec<DeviceAnswer>,
    /// Readings that waited in the gateway at the same time, at the most.
    waited: usize,
    sent: u64,
    stored: usize,
    received: usize,
    twice: usize,
    /// Notifications that came once more, and were known by their name.
    notified_again: usize,
    passed: bool,
}

#[derive(Debug, Serialize)]
struct DeviceAnswer {
    kind: &'static str,
    measured: u64,
    answered: u64,
    values: u64,
    passed: bool,
}

/// The running demo.
struct Scene {
    central: Option<Central>,
    place: CentralAddress,
    services: std::sync::Arc<Services>,
    monitor: Notifications,
    screen: Screen,
    /// The devices' system-ids.
    systems: Vec<String>,
    runs: Vec<JoinHandle<agents::Outcome>>,
    started: Instant,
    measuring: Duration,
    kills: u32,
    is_down: bool,
    waited: usize,
}

/// A folder that is removed at the end of the demo.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is the system's to clean.
        let _left = fs::remove_dir_all(&self.0);
    }
}

/// Runs the ward, and compares sent readings with stored and received ones.
pub(super) fn run(wish: &Wish, face: Face) -> Result<Exit> {
    let seconds = wish.seconds.unwrap_or(SECONDS);
    if !(1..=SECONDS_MAX).contains(&seconds) {
        let message = format!("the ward measures from 1 to {SECONDS_MAX} seconds, not {seconds}");
        return Err(Failure::new(Exit::Usage, message).into());
    }
    face.note(PICTURE);
    let folder =
        Folder(std::env::temp_dir().join(format!("gatewright-ward-{}", std::process::id())));
    fs::create_dir_all(&folder.0)?;
    let (mut central, place) = match &wish.in_cse {
        None => {
            let (central, place) = Central::describe(&folder.0, GATEWAY)?;
            (Some(central), place)
        }
        Some(url) => (None, elsewhere(url, wish)?),
    };
    if let Some(central) = &mut central {
        central.start()?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    block_on(&runtime, place.answers())?;
    let services = gateway(&folder.0, &place)?;
    let scene = block_on(&runtime, Scene::set(face, central, place, services, seconds))?;
    let answer = block_on(&runtime, scene.play())?;
    face.answer(&answer, || answer.text())?;
    Ok(if answer.passed { Exit::Success } else { Exit::Negative })
}

/// The address of a CSE that the user named.
fn elsewhere(url: &str, wish: &Wish) -> Result<CentralAddress, Failure> {
    let parts = wish.in_base.rsplit_once('/').filter(|(id, _)| id.starts_with('/'));
    let (id, base) = parts.ok_or_else(|| {
        let message = format!("--in-base {}: not like /id-in/cse-in", wish.in_base);
        Failure::new(Exit::Usage, message)
    })?;
    let (url, originator) = (url.trim_end_matches('/').to_owned(), wish.originator.clone());
    Ok(CentralAddress { url, id: id.to_owned(), base: base.to_owned(), originator })
}

/// The gateway, by a description like any other.
fn gateway(folder: &std::path::Path, above: &CentralAddress) -> Result<std::sync::Arc<Services>> {
    let [devices, http] = [free_port()?, free_port()?];
    let text = format!(
        "[devices]\nlisten = \"127.0.0.1:{devices}\"\n[cse]\nbase = \"cse-ward\"\n\
         id = \"{GATEWAY}\"\nhttp = \"127.0.0.1:{http}\"\nstore = '{}'\n[cse.registrar]\n\
         url = \"{}\"\nid = \"{}\"\nbase = \"{}\"\n",
        folder.join("ward.db").display(),
        above.url,
        above.id,
        above.base
    );
    let parsed = parse(SourceId::default(), &text);
    let told = parsed.diagnostics.first().map(|finding| finding.message.clone());
    let wrong = || Failure::new(Exit::Usage, told.unwrap_or_default());
    let config = parsed.config.ok_or_else(wrong)?;
    Services::start(&config)?.context("the description has a CSE")
}

/// A number of this run, so that its names differ from those of earlier runs.
fn run_number() -> [u8; 4] {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mixed = now.as_secs().wrapping_mul(0x9E37_79B9) ^ u64::from(std::process::id());
    let [a, b, c, d, ..] = mixed.to_le_bytes();
    [a, b, c, d]
}

/// The system-id of a bed's device: a locally administered EUI-64.
fn system([a, b, c, d]: [u8; 4], bed: usize) -> SystemId {
    SystemId([0x02, b'G', b'W', a, b, c, d, u8::try_from(bed).unwrap_or_default()])
}

impl Scene {
    /// Creates the containers of the readings, subscribes the monitor to each, and starts the
    /// devices.
    async fn set(
        face: Face,
        central: Option<Central>,
        place: CentralAddress,
        services: std::sync::Arc<Services>,
        seconds: u64,
    ) -> Result<Self> {
        let monitor = Notifications::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
        let to = services.devices().context("no listener for devices")?.address();
        let client = place.client(&format!("monitor-{}-", std::process::id()));
        let (mapping, base) = (Mapping::default(), place.address());
        let measuring = Duration::from_secs(seconds);
        let run_number = run_number();
        let (mut beds, mut runs) = (Vec::new(), Vec::new());
        for (number, kind) in (1..).zip(KINDS) {
            let configuration = kind.configuration().context("a kind without configuration")?;
            let system_id = system(run_number, number);
            let device = Device::new(&mapping, &base, system_id, 0, &configuration);
            for request in device.registration(&mapping) {
                let answer = client.ask(&request).await?;
                anyhow::ensure!(answer.status.is_success(), "not registered: {answer:?}");
            }
            for place in device.places() {
                let answer =
                    client.subscribe(&place.address, "monitor", &monitor.url(), &[3]).await?;
                anyhow::ensure!(answer.status.is_success(), "not subscribed: {answer:?}");
            }
            let named = device.places().iter();
            beds.push(Bed {
                number,
                kind: kind.name,
                system_id: system_id.to_string(),
                places: named.map(|it| (it.handle.to_string(), it.name.clone())).collect(),
            });
            let plan = SimulationPlan::new(kind, system_id, u64::try_from(number)?);
            let run = agents::Run { plan, to, measuring, patience: PATIENCE };
            runs.push(spawn(agents::run(run)));
        }
        let screen = Screen::new(face, &beds);
        let systems = beds.into_iter().map(|bed| bed.system_id).collect();
        let started = Instant::now();
        let (kills, is_down, waited) = (0, false, 0);
        Ok(Self {
            central,
            place,
            services,
            monitor,
            screen,
            systems,
            runs,
            started,
            measuring,
            kills,
            is_down,
            waited,
        })
    }

    /// Runs until the devices have finished and all readings have arrived.
    async fn play(mut self) -> Result<WardReport> {
        let mut look = tokio::time::interval(LOOK_EVERY);
        let end = self.started + self.measuring + PATIENCE;
        let mut devices = Vec::new();
        let mut sent = 0;
        while Instant::now() < end {
            tokio::select! {
                Some(notification) = self.monitor.next() => self.screen.take(&notification),
                _ = look.tick() => self.look()?,
            }
            if devices.is_empty() && self.runs.iter().all(JoinHandle::is_finished) {
                devices = self.outcomes().await?;
                sent = devices.iter().map(|device| device.values).sum();
            }
            let received = u64::try_from(self.screen.names().len())?;
            let all_arrived =
                received >= sent && self.services.cse().engine().messages_waiting() == 0;
            if !devices.is_empty() && all_arrived {
                break;
            }
        }
        self.look()?;
        if devices.is_empty() {
            devices = self.outcomes().await?;
        }
        let stored = self.stored().await?;
        let answer = self.answer(devices, &stored);
        let Self { services, central, .. } = self;
        // It blocks until everything is on disk.
        tokio::task::spawn_blocking(move || services.stop()).await?;
        drop(central);
        Ok(answer)
    }

    /// Draws the screen, and kills and restarts the central CSE on schedule.
    fn look(&mut self) -> Result<()> {
        let elapsed = self.started.elapsed();
        if let Some(central) = &mut self.central {
            if self.kills == 0 && elapsed > self.measuring / 3 {
                central.kill()?;
                (self.kills, self.is_down) = (1, true);
                self.screen.event("the central CSE is killed (-9); the gateway keeps the readings");
            }
            // Where the machine has little time, devices may be late: one reading has to wait.
            let has_waited = self.waited > 0 || elapsed > self.measuring + PATIENCE / 2;
            if self.is_down && elapsed > self.measuring * 2 / 3 && has_waited {
                central.start()?;
                self.is_down = false;
                let waiting = self.services.cse().engine().messages_waiting();
                self.screen.event(&format!("it is started again; {waiting} readings wait for it"));
            }
        }
        let waiting = self.services.cse().engine().messages_waiting();
        self.waited = self.waited.max(waiting);
        self.screen.draw(&Ward {
            seconds: elapsed.as_secs(),
            devices: self
                .services
                .devices()
                .map_or(0, gatewright_bindings::devices::RunningDevices::devices),
            waiting,
            central: if self.is_down { "DOWN" } else { "up  " },
        });
        Ok(())
    }

    /// The devices' final reports.
    async fn outcomes(&mut self) -> Result<Vec<DeviceAnswer>> {
        let mut devices = Vec::new();
        for (kind, run) in KINDS.into_iter().zip(std::mem::take(&mut self.runs)) {
            let outcome = run.await?;
            devices.push(DeviceAnswer {
                kind: kind.name,
                measured: outcome.counters.measured,
                answered: outcome.counters.acknowledged,
                values: outcome.counters.acknowledged_values,
                passed: outcome.is_answered(),
            });
        }
        Ok(devices)
    }

    /// The names of this run's instances at the central CSE, as discovery tells them.
    async fn stored(&self) -> Result<Vec<String>> {
        let client = self.place.client(&format!("stored-{}-", std::process::id()));
        let answer = client.get(&format!("{}?fu=1&ty=4", self.place.address())).await?;
        anyhow::ensure!(answer.status.is_success(), "not discovered: {answer:?}");
        let content: Value = serde_json::from_str(answer.content.as_deref().unwrap_or_default())?;
        let list = content.get("m2m:uril").and_then(Value::as_array);
        let names = list.into_iter().flatten().filter_map(Value::as_str);
        let names = names.filter_map(|uri| uri.rsplit('/').next());
        let is_ours =
            |name: &&str| self.systems.iter().any(|system| name.starts_with(system.as_str()));
        // What a device says of itself is no reading.
        let readings = names.filter(is_ours).filter(|name| !name.ends_with("-about"));
        Ok(readings.map(str::to_owned).collect())
    }

    fn answer(&self, devices: Vec<DeviceAnswer>, stored: &[String]) -> WardReport {
        let sent: u64 = devices.iter().map(|device| device.values).sum();
        let names: BTreeSet<String> = stored.iter().cloned().collect();
        let twice = stored.len() - names.len();
        let is_equal = u64::try_from(names.len()).is_ok_and(|stored| stored == sent);
        let answered = devices.iter().all(|device| device.passed);
        WardReport {
            demo: "ward",
            in_cse: self.place.url.clone(),
            kills: self.kills,
            devices,
            waited: self.waited,
            sent,
            stored: stored.len(),
            received: self.screen.names().len(),
            twice,
            notified_again: self.screen.again(),
            passed: answered && is_equal && twice == 0 && names == *self.screen.names(),
        }
    }
}

impl WardReport {
    fn text(&self) -> String {
        let Self { sent, stored, received, twice, kills, waited, passed, .. } = self;
        let verdict = if *passed { "nothing lost, nothing twice" } else { "NOT the same" };
        format!(
            "{verdict}: {sent} values sent, {stored} stored, {received} received, {twice} twice; \
             central killed {kills} times, {waited} readings waited at the most"
        )
    }
}
