//! `gatewright demo story`: a reading's way through all systems in one description: an oximeter over UDP,
//! a mesh whose path is cut, a gateway of two planes, its CSE, the CSE above, a monitor; an alarm leaves
//! as mail through a program.

mod monitor;
mod network;
mod peers;

use super::CheckAnswer;
use anyhow::Result;
use gatewright_command::{
    exit::{Exit, Failure},
    face::Face,
};
use gatewright_gateway::HopDelay;
use gatewright_testbed::{Process, wait_until};
use monitor::ReadingMonitor;
use network::{DEVICES, MONITOR, Member, StoryNetwork, WITHIN, text};
use peers::{MailSink, PageProxy, post};
use serde::Serialize;
use serde_json::Value;
use std::{
    collections::BTreeSet,
    process::Stdio,
    thread::sleep,
    time::{Duration, Instant},
};

/// Default duration of measuring, and its bounds; ten reports a second.
const SECONDS: u64 = 8;
const SECONDS_MAX: u64 = 40;
/// Reports a second.
const RATE: &str = "10";
/// A saturation of oxygen below this many percent is an alarm; the simulated patient's wanders about 97.
const ALARM_BELOW: f64 = 97.5;
/// The device's readings that are subscribed to.
const MEASURED: [&str; 2] = ["spo2", "pulse-rate"];
/// The device, by the system-id that the simulator gives its first one.
const DEVICE: &str = "phd-0247000100000001";

/// A hop of a reading: its budget, and how its delay is measured. Delays are medians, so that one
/// moment of a busy machine is not a fault.
struct Hop {
    name: &'static str,
    budget_ms: f64,
    /// By the gateway's status, or otherwise.
    measure_ms: fn(&StoryDemo, &Value) -> Result<f64, String>,
}

/// The hops, in the order of a reading's way.
const HOPS: [Hop; 5] = [
    Hop { name: "mesh, there and back", budget_ms: 20.0, measure_ms: StoryDemo::mesh_ms },
    Hop { name: "gateway, until stored", budget_ms: 150.0, measure_ms: StoryDemo::stored_ms },
    Hop { name: "data plane", budget_ms: 5.0, measure_ms: StoryDemo::plane_ms },
    Hop { name: "gateway to IN-CSE", budget_ms: 500.0, measure_ms: StoryDemo::above_ms },
    Hop { name: "IN-CSE to monitor", budget_ms: 500.0, measure_ms: StoryDemo::monitor_ms },
];

/// How often the page is shown the delays of the hops: more often would delay what is measured.
const SHOWN_EVERY: Duration = Duration::from_secs(2);

const PICTURE: &str = "
                 ┌── b ──┐
    oximeter ─ a ┤ mesh  ├ gateway: MN-CSE ─ data plane ── IN-CSE ─ monitor
       UDP       └───────┘    │ program                      HTTP
                  cut         └─ data plane ── SMTP ── mail
";

#[derive(Serialize)]
struct StoryReport {
    demo: &'static str,
    page: String,
    checks: Vec<CheckAnswer>,
    sent: u64,
    stored: usize,
    received: usize,
    twice: usize,
    mails: usize,
    /// The delay of each hop at the end, beside its budget.
    hops: Vec<HopDelay>,
    passed: bool,
}

/// The running story.
struct StoryDemo {
    network: StoryNetwork,
    monitor: ReadingMonitor,
    mails: MailSink,
    page: PageProxy,
    seconds: u64,
    /// Names of readings that were stored before the monitor subscribed.
    before: BTreeSet<String>,
    /// What the oximeter says at its end.
    device: Value,
    stored: Vec<String>,
    /// The last delay of each hop.
    hops: Vec<HopDelay>,
}

type Outcome = Result<String, String>;
type Check = fn(&mut StoryDemo) -> Outcome;

const CHECKS: [(&str, Check); 12] = [
    ("four gateways run", StoryDemo::gateways_run),
    ("the oximeter associates", StoryDemo::device_associates),
    ("the monitor subscribes", StoryDemo::monitor_subscribes),
    ("it reports, a cable is cut", StoryDemo::path_is_cut),
    ("each reading arrives once", StoryDemo::once_each),
    ("an alarm leaves as mail", StoryDemo::alarm_leaves),
    ("delay: mesh, there and back", |story| story.delay(0)),
    ("delay: gateway, until stored", |story| story.delay(1)),
    ("delay: data plane", |story| story.delay(2)),
    ("delay: gateway to IN-CSE", |story| story.delay(3)),
    ("delay: IN-CSE to monitor", |story| story.delay(4)),
    ("all of it ends", StoryDemo::ends),
];

/// The member at `path` as a number.
fn number(value: &Value, path: &str) -> Result<f64, String> {
    value.pointer(path).and_then(Value::as_f64).ok_or_else(|| format!("no {path}"))
}

impl Hop {
    /// The hop before anything is measured.
    fn unmeasured(&self) -> HopDelay {
        HopDelay { name: self.name.to_owned(), median_ms: None, budget_ms: self.budget_ms }
    }
}

impl StoryDemo {
    fn build(seconds: u64) -> Result<Self> {
        let network = StoryNetwork::build()?;
        let mails = MailSink::start(&network)?;
        let page = PageProxy::start(network.folder.join(network::PAGE))?;
        Ok(Self {
            network,
            monitor: ReadingMonitor::default(),
            mails,
            page,
            seconds,
            before: BTreeSet::new(),
            device: Value::Null,
            stored: Vec::new(),
            hops: HOPS.iter().map(Hop::unmeasured).collect(),
        })
    }

    fn gateways_run(&mut self) -> Outcome {
        let began = Instant::now();
        self.network.start()?;
        let heard = self.network.neighbours()?;
        if !wait_until(WITHIN, || self.page.is_ready().unwrap_or(false)) {
            return Err("the gateway's page does not say that it is ready".to_owned());
        }
        let status = self.network.status(Member::Gateway)?;
        let planes = |of: &str| number(&status, &format!("/planes/{of}"));
        let (control, data) = (planes("control")?, planes("data")?);
        let ms = began.elapsed().as_millis();
        Ok(format!("{ms} ms; mesh of {heard} links, control is process {control}, data {data}"))
    }

    /// The oximeter for some seconds.
    fn simulate(&self, seconds: u64) -> Result<Process, String> {
        let seconds = seconds.to_string();
        let arguments = ["device", "simulate", "--udp", "--kind", "oximeter", "--json"];
        let times = ["--to", DEVICES, "--rate", RATE, "--seconds", &seconds];
        let command = self.network.command(Member::Ward, &[&arguments[..], &times].concat())?;
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(text)
    }

    /// What the oximeter says when it ends.
    fn outcome(process: Process) -> Result<Value, String> {
        let output = process.wait_with_output().map_err(text)?;
        let said = String::from_utf8_lossy(&output.stdout);
        let outcome: Value = serde_json::from_str(&said).map_err(|_| said.into_owned())?;
        Ok(outcome)
    }

    fn device_associates(&mut self) -> Outcome {
        let outcome = Self::outcome(self.simulate(1)?)?;
        let values = outcome.get("values").and_then(Value::as_u64);
        let values = usize::try_from(values.ok_or_else(|| outcome.to_string())?).map_err(text)?;
        let has_arrived = || self.network.stored().is_ok_and(|all| all.len() >= values);
        if !wait_until(WITHIN, has_arrived) {
            return Err(format!("not all of {values} values have arrived"));
        }
        self.before = self.network.stored()?.into_iter().collect();
        Ok(format!("over the mesh; {values} first values are at the IN-CSE"))
    }

    fn monitor_subscribes(&mut self) -> Outcome {
        for measured in MEASURED {
            let address = format!("/id-in/cse-in/{DEVICE}/{measured}");
            let arguments = ["cse", "subscribe", &address, "--events", "3", "--json"];
            let to = ["--url", network::ABOVE, "--as", MONITOR];
            let command = self.network.command(Member::Above, &[&arguments[..], &to].concat())?;
            let command = command.stdout(Stdio::piped()).stderr(Stdio::null());
            self.monitor.listen(command.spawn().map_err(text)?)?;
        }
        let all = || self.network.found("23").is_ok_and(|found| found.len() == MEASURED.len());
        if wait_until(WITHIN, all) {
            Ok(format!("to {}, at the IN-CSE", MEASURED.join(" and ")))
        } else {
            Err("the IN-CSE has no subscriptions".to_owned())
        }
    }

    fn path_is_cut(&mut self) -> Outcome {
        let device = self.simulate(self.seconds)?;
        let half = Duration::from_secs(self.seconds) / 2;
        self.show_hops_for(half)?;
        let before = self.network.path()?;
        self.network.cut(&before)?;
        self.show_hops_for(half)?;
        self.device = Self::outcome(device)?;
        let after = self.network.path()?;
        let of = |name: &str| number(&self.device, &format!("/{name}"));
        let (measured, answered) = (of("measured")?, of("answered")?);
        let longest = of("delay_ms/2")?;
        let said = format!(
            "{answered} of {measured} reports acknowledged, by {before}, then by {after}; the longest \
             took {longest:.0} ms"
        );
        let all = measured > 0.0 && (measured - answered).abs() < 0.5;
        if all && before != after { Ok(said) } else { Err(said) }
    }

    /// Values that the oximeter sent and the gateway acknowledged.
    fn sent(&self) -> u64 {
        self.device.get("values").and_then(Value::as_u64).unwrap_or_default()
    }

    fn once_each(&mut self) -> Outcome {
        let sent = usize::try_from(self.sent()).unwrap_or(usize::MAX);
        let is_new = |name: &String| !self.before.contains(name);
        let has_all = || {
            let stored = self.network.stored().unwrap_or_default();
            stored.iter().filter(|name| is_new(name)).count() >= sent
                && self.monitor.names().len() >= sent
        };
        wait_until(WITHIN, has_all);
        self.stored = self.network.stored()?.into_iter().filter(is_new).collect();
        let names: BTreeSet<String> = self.stored.iter().cloned().collect();
        let received = self.monitor.names();
        let (stored, twice) = (names.len(), self.stored.len() - names.len());
        let again = self.monitor.again();
        let said = format!(
            "{sent} values sent, {stored} stored, {} received, {twice} twice; {again} notified again",
            received.len()
        );
        let good = sent > 0 && stored == sent && twice == 0 && received == names;
        if good { Ok(said) } else { Err(said) }
    }

    fn alarm_leaves(&mut self) -> Outcome {
        let Some(value) = self.monitor.lowest("MDC_PULS_OXIM_SAT_O2") else {
            return Err("no saturation was received".to_owned());
        };
        if value >= ALARM_BELOW {
            return Err(format!("no value below {ALARM_BELOW} %: {value} is the lowest"));
        }
        let body = format!("Subject: alarm\r\n\r\nSpO2 {value} % is below {ALARM_BELOW} %\r\n");
        let answer = post(&self.network, &body)?;
        let words = format!("SpO2 {value} %");
        let has_come = || self.mails.all().iter().any(|mail| mail.contains(&words));
        if wait_until(WITHIN, has_come) {
            Ok(format!("SpO2 {value} % < {ALARM_BELOW}; the program answered {answer}"))
        } else {
            Err(format!("no mail has come; the program answered {answer}"))
        }
    }

    /// Measures the hops and shows the page what is known, for some time. The mesh is measured at its
    /// begin only: echoes go by a program of their own.
    fn show_hops_for(&mut self, time: Duration) -> Result<(), String> {
        let end = Instant::now() + time;
        let mut first = 0;
        loop {
            let next = Instant::now() + SHOWN_EVERY;
            let status = self.network.status(Member::Gateway)?;
            for index in first..HOPS.len() {
                // Of some there is nothing to measure at first, and while a path is cut.
                let _later = self.measure(index, &status);
            }
            first = 1;
            self.network.show_hops(&self.hops)?;
            sleep(next.min(end).saturating_duration_since(Instant::now()));
            if Instant::now() >= end {
                return Ok(());
            }
        }
    }

    /// Measures one hop.
    fn measure(&mut self, index: usize, status: &Value) -> Result<HopDelay, String> {
        let hop = HOPS.get(index).ok_or("no such hop")?;
        let median_ms = (hop.measure_ms)(self, status)?;
        let now = HopDelay { median_ms: Some(median_ms), ..hop.unmeasured() };
        if let Some(known) = self.hops.get_mut(index) {
            *known = now.clone();
        }
        Ok(now)
    }

    /// The delay of a hop against its budget.
    fn delay(&mut self, index: usize) -> Outcome {
        let status = self.network.status(Member::Gateway)?;
        let hop = self.measure(index, &status)?;
        self.network.show_hops(&self.hops)?;
        let (median, budget) = (hop.median_ms.unwrap_or_default(), hop.budget_ms);
        let said = format!("median {median:.2} ms, at most {budget:.0}");
        if hop.is_late() { Err(said) } else { Ok(said) }
    }

    fn mesh_ms(&self, _: &Value) -> Result<f64, String> {
        Ok(self.network.mesh_ping()? / 1e3)
    }

    fn stored_ms(_: &Self, status: &Value) -> Result<f64, String> {
        let parts = status.get("parts").and_then(Value::as_array);
        let histograms = parts.into_iter().flatten().filter_map(|part| part.get("histograms"));
        let mut all = histograms.filter_map(Value::as_array).flatten();
        let report = all.find(|one| one.get("name").is_some_and(|name| name == "report_ns"));
        Ok(number(report.ok_or("no histogram of reports")?, "/p50")? / 1e6)
    }

    fn plane_ms(_: &Self, status: &Value) -> Result<f64, String> {
        let all = status.get("sojourn").and_then(Value::as_array);
        let graph = all.into_iter().flatten().find(|one| one.get("relay").is_none());
        Ok(number(graph.ok_or("no delays of packets")?, "/p50")? / 1e6)
    }

    fn above_ms(&self, _: &Value) -> Result<f64, String> {
        Ok(self.monitor.medians_ms().ok_or("nothing was received")?.0)
    }

    fn monitor_ms(&self, _: &Value) -> Result<f64, String> {
        Ok(self.monitor.medians_ms().ok_or("nothing was received")?.1)
    }

    fn ends(&mut self) -> Outcome {
        self.monitor.end()?;
        self.network.end()?;
        Ok("the gateways end by SIGTERM; namespaces and files go with this program".to_owned())
    }
}

/// Tells the story.
pub(super) fn run(seconds: Option<u64>, face: Face) -> Result<Exit> {
    let seconds = seconds.unwrap_or(SECONDS);
    if !(2..=SECONDS_MAX).contains(&seconds) {
        let message = format!("the story measures from 2 to {SECONDS_MAX} seconds, not {seconds}");
        return Err(Failure::new(Exit::Usage, message).into());
    }
    face.note(PICTURE);
    let mut story = StoryDemo::build(seconds)?;
    let page = story.page.url();
    face.note(&format!("the gateway's page, while the story lasts: {page}\n"));
    let mut checks = Vec::new();
    for (name, check) in CHECKS {
        let start = Instant::now();
        checks.push(CheckAnswer::show(face, name, start, check(&mut story)));
    }
    let (names, passed) = (story.monitor.names(), checks.iter().all(|check| check.passed));
    let unique: BTreeSet<&String> = story.stored.iter().collect();
    let answer = StoryReport {
        demo: "story",
        page,
        sent: story.sent(),
        stored: unique.len(),
        received: names.len(),
        twice: story.stored.len() - unique.len(),
        mails: story.mails.all().len(),
        hops: story.hops.clone(),
        checks,
        passed,
    };
    face.answer(&answer, || answer.text())?;
    Ok(if passed { Exit::Success } else { Exit::Negative })
}

impl StoryReport {
    fn text(&self) -> String {
        let Self { sent, stored, received, twice, mails, .. } = self;
        let good = self.checks.iter().filter(|check| check.passed).count();
        let hops = self.hops.iter().map(|HopDelay { name, median_ms, budget_ms }| {
            let median = median_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2}"));
            format!("{name:<24}{median:>8} ms of {budget_ms:.0} ms\n")
        });
        let hops: String = hops.collect();
        format!(
            "{hops}{sent} values sent, {stored} stored, {received} received, {twice} twice, {mails} mail; \
             {good} of {} checks passed",
            self.checks.len()
        )
    }
}
