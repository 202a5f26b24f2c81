//! The ward: three simulated devices, a CSE that keeps their readings, and a monitor.

use crate::{
    exit::{Exit, Failure},
    face::Face,
};
use anyhow::{Context, Result};
use gatewright_bindings::client::Client;
use gatewright_bindings::listen::Notifications;
use gatewright_bindings::{agents, cse, devices};
use gatewright_health::code::SystemId;
use gatewright_health::simulate::Plan;
use gatewright_health::specialisation::{ACTIVITY, DISPENSER, OXIMETER, Specialisation};
use gatewright_interwork::{Device, Mapping};
use gatewright_onem2m::{CseType, Operation, Request};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::time::timeout;

/// How long the devices measure unless told otherwise.
const SECONDS: u64 = 10;
/// At some ten values a second; the CSE names at most 10,000 instances when they are counted.
const SECONDS_MAX: u64 = 600;
/// How long devices and monitor may take to end after the last measurement.
const PATIENCE: Duration = Duration::from_secs(15);
const KINDS: [&Specialisation; 3] = [&OXIMETER, &DISPENSER, &ACTIVITY];
/// Name of the CSEBase.
const BASE: &str = "cse-ward";
/// The monitor, which sees everything.
const MONITOR: &str = "CMonitor";
const PICTURE: &str = "
    oximeter  ──┐
    dispenser ──┤ IEEE 11073, TCP ── gateway with its CSE ── oneM2M, HTTP ── monitor
    activity  ──┘
";

#[derive(Debug, Serialize)]
struct Answer {
    demo: &'static str,
    devices: Vec<DeviceAnswer>,
    sent: u64,
    stored: usize,
    received: usize,
    twice: usize,
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

/// What the monitor has received.
struct Screen {
    face: Face,
    names: Vec<String>,
}

/// Shows the ward and proves that what was sent is what was stored and received.
pub(super) fn run(seconds: Option<u64>, face: Face) -> Result<Exit> {
    let seconds = seconds.unwrap_or(SECONDS);
    if !(1..=SECONDS_MAX).contains(&seconds) {
        let message = format!("the ward measures from 1 to {SECONDS_MAX} seconds, not {seconds}");
        return Err(Failure::new(Exit::Usage, message).into());
    }
    face.note(PICTURE);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let answer = runtime.block_on(show(Duration::from_secs(seconds), face))?;
    face.answer(&answer, || answer.text())?;
    Ok(if answer.passed { Exit::Success } else { Exit::Negative })
}

async fn show(measuring: Duration, face: Face) -> Result<Answer> {
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut config = gatewright_onem2m::Config::new(CseType::Middle, "/id-ward", BASE);
    config.admin = Some(MONITOR.to_owned());
    let mut config = cse::Config::new(config);
    config.listen = vec![here];
    let cse = cse::start(config).await?;
    let listener = devices::start(devices::Config::new(here, BASE), cse.engine().clone()).await?;
    let mut monitor = Notifications::listen(here).await?;
    subscribe(&cse, &monitor.url()).await?;
    let runs: Vec<_> = (0..)
        .zip(KINDS)
        .map(|(bed, kind)| {
            let (plan, to) = (Plan::new(kind, system(bed), bed.into()), listener.address());
            tokio::spawn(agents::run(agents::Run { plan, to, measuring, patience: PATIENCE }))
        })
        .collect();
    let mut screen = Screen { face, names: Vec::new() };
    let mut answers = Vec::new();
    for (kind, mut run) in KINDS.into_iter().zip(runs) {
        let outcome = loop {
            tokio::select! {
                Some(notification) = monitor.next() => screen.show(&notification),
                outcome = &mut run => break outcome?,
            }
        };
        answers.push(DeviceAnswer {
            kind: kind.name,
            measured: outcome.counters.measured,
            answered: outcome.counters.acknowledged,
            values: outcome.counters.acknowledged_values,
            passed: outcome.is_answered(),
        });
    }
    let sent: u64 = answers.iter().map(|answer| answer.values).sum();
    // What is stored is on its way to the monitor.
    while u64::try_from(screen.names.len()).is_ok_and(|received| received < sent)
        && let Ok(Some(notification)) = timeout(PATIENCE, monitor.next()).await
    {
        screen.show(&notification);
    }
    let stored = stored(&cse).await?;
    listener.stop().await;
    cse.stop().await;
    Ok(Answer::new(answers, sent, &stored, &screen.names))
}

/// Who lies in this bed: a locally administered EUI-64.
const fn system(bed: u8) -> SystemId {
    SystemId([0x02, b'G', b'W', b'W', b'A', b'R', b'D', bed])
}

/// Makes the places of the readings before the devices come, and has the monitor told of each.
async fn subscribe(cse: &cse::Running, target: &str) -> Result<()> {
    let mapping = Mapping::default();
    let address = cse.addresses().first().context("the CSE listens nowhere")?;
    let client = Client::new(format!("http://{address}"), MONITOR, "monitor-");
    for (bed, kind) in (0..).zip(KINDS) {
        let configuration = kind.configuration().context("a kind without configuration")?;
        let device = Device::new(&mapping, BASE, system(bed), 0, &configuration);
        for request in device.registration(&mapping) {
            let answer = cse.engine().ask(request).await.context("no answer")?;
            anyhow::ensure!(answer.status.is_success(), "not registered: {answer:?}");
        }
        for place in device.places() {
            let answer = client.subscribe(&place.address, "monitor", target, &[3]).await?;
            anyhow::ensure!(answer.status.is_success(), "not subscribed: {answer:?}");
        }
    }
    Ok(())
}

/// The names of all instances, as discovery tells them.
async fn stored(cse: &cse::Running) -> Result<Vec<String>> {
    let mut request = Request::new(Operation::Retrieve, BASE, MONITOR, "stored");
    for (name, value) in [("fu", "1"), ("ty", "4")] {
        request.set(name, value)?;
    }
    let answer = cse.engine().ask(request).await.context("no answer")?;
    anyhow::ensure!(answer.status.is_success(), "not discovered: {answer:?}");
    let content: Value = serde_json::from_str(answer.content.as_deref().unwrap_or_default())?;
    let list = content.get("m2m:uril").and_then(Value::as_array);
    let name = |uri: &str| uri.rsplit('/').next().unwrap_or_default().to_owned();
    Ok(list.into_iter().flatten().filter_map(Value::as_str).map(name).collect())
}

impl Screen {
    fn show(&mut self, notification: &Value) {
        let Some(instance) = notification.pointer("/nev/rep/m2m:cin") else { return };
        let name = instance.get("rn").and_then(Value::as_str).unwrap_or_default();
        let kind = (0..).zip(KINDS).find(|(bed, _)| name.starts_with(&system(*bed).to_string()));
        let kind = kind.map_or("?", |(_, kind)| kind.name);
        let told = |member| {
            let value = instance.get("con").and_then(|content| content.get(member));
            value.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        };
        let what = told("name").or_else(|| told("type")).unwrap_or_default();
        let (value, unit) = (told("value").unwrap_or_default(), told("unit").unwrap_or_default());
        self.face.note(&format!("{kind:<10} {what:<44} {value:>8} {unit}"));
        self.names.push(name.to_owned());
    }
}

impl Answer {
    fn new(devices: Vec<DeviceAnswer>, sent: u64, stored: &[String], received: &[String]) -> Self {
        let [names, seen] = [stored, received].map(|list| list.iter().collect::<BTreeSet<_>>());
        let twice = stored.len() - names.len() + received.len() - seen.len();
        let is_equal = u64::try_from(names.len()).is_ok_and(|stored| stored == sent);
        let answered = devices.iter().all(|device| device.passed);
        Self {
            demo: "ward",
            devices,
            sent,
            stored: stored.len(),
            received: received.len(),
            twice,
            passed: answered && is_equal && twice == 0 && names == seen,
        }
    }

    fn text(&self) -> String {
        let Self { sent, stored, received, twice, passed, .. } = self;
        let verdict = if *passed { "nothing lost, nothing twice" } else { "NOT the same" };
        format!(
            "{verdict}: {sent} values sent, {stored} stored, {received} received, {twice} twice"
        )
    }
}
