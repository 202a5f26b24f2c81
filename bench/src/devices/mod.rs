//! `bench devices`: how long ten thousand devices wait for the answers to their reports.
//!
//! Each is associated over TCP and sends one confirmed report a second; the gateway stores it
//! durably before it answers. The gateway has one core, the devices another: both are the binary
//! that users run, in processes of their own. In each round a bare loop has the disk too: what that
//! waits for, everybody has to.

mod bare;
pub(crate) mod drain;
pub(crate) mod sink;

use crate::binary;
use crate::process::{self, Histograms, resident_kib, text, until_listening};
use bare::Load;
use bench::{Bench, Options, Relation};
use gatewright_histogram::Histogram;
use nix::sys::resource::{Resource, getrlimit};
use serde_json::Value;
use sink::Sink;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Milliseconds that the slowest of a hundred answers may take.
const ACK_P99_MS: f64 = 50.0;
/// Devices; in a hurry fewer.
const DEVICES: (u64, u64) = (10_000, 2_000);
/// Seconds in which all of them associate, and those in which answers are timed.
const SETTLE: (u64, u64) = (40, 10);
const MEASURE: (u64, u64) = (30, 10);
/// Descriptors beside those of the devices.
const DESCRIPTORS_BESIDE: u64 = 512;
/// Octets that a stored report has at least: fewer written to the disk are no report's.
const STORED_OCTETS_LEAST: u64 = 256;
/// Of the reports that the devices say were answered, the share that must be in the gateway's tree: the two are not
/// counted at the same moment.
const IN_TREE_LEAST: f64 = 0.9;
/// How long the gateway may take to listen.
const STARTS_WITHIN: Duration = Duration::from_secs(20);

/// Messages that wait at the end beyond those of the middle: what a fortieth of a second brings.
const OUTBOX_GROWN: f64 = 100.0;

/// What a gateway is started with.
#[derive(Clone, Copy, Debug)]
struct Setting {
    /// The address of a CSE above.
    registrar: Option<SocketAddr>,
    /// Whether it goes on with the store that is there.
    keeps_store: bool,
    /// The processors that it may use.
    core: &'static str,
}

/// The database of the gateway.
fn store(folder: &Path) -> PathBuf {
    folder.join("devices.db")
}

/// The folder of the measurements, on a real file system: that for temporary files may be memory.
fn folder() -> Result<&'static Path, String> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/bench/devices"));
    fs::create_dir_all(folder).map_err(text)?;
    Ok(folder)
}

/// Removes what an earlier run has left.
fn clear(folder: &Path) {
    for end in ["", "-wal", "-shm", ".lock"] {
        let _ = fs::remove_file(format!("{}{end}", store(folder).display()));
    }
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(text)?;
    Ok(listener.local_addr().map_err(text)?.port())
}

/// A gateway that ends with the benchmark.
struct GatewayProcess(Child);

impl Drop for GatewayProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl GatewayProcess {
    fn start(binary: &Path, folder: &Path, port: u16, setting: &Setting) -> Result<Self, String> {
        if !setting.keeps_store {
            clear(folder);
        }
        let mut written = format!(
            "[gateway]\nname = \"bench-devices\"\n[devices]\nlisten = \"127.0.0.1:{port}\"\n\
             devices_max = 16384\n[cse]\nbase = \"cse-gw\"\nid = \"/gw\"\nadmin = \"CAdmin\"\n\
             store = \"{}\"\n",
            store(folder).display()
        );
        if let Some(registrar) = setting.registrar {
            let above = format!(
                "[cse.registrar]\nurl = \"http://{registrar}\"\nid = \"/id-in\"\n\
                 base = \"cse-in\"\n"
            );
            written.push_str(&above);
        }
        Self::run(binary, folder, &written, (setting.core, (Ipv4Addr::LOCALHOST, port).into()))
    }

    /// Runs a description on `core`, until it listens at the address.
    fn run(
        binary: &Path,
        folder: &Path,
        written: &str,
        (core, address): (&str, SocketAddr),
    ) -> Result<Self, String> {
        let description = folder.join("devices.toml");
        fs::write(&description, written).map_err(text)?;
        let log_path = folder.join("devices.log");
        let log = fs::File::create(&log_path).map_err(text)?;
        let child = pinned(core, binary)
            .arg("run")
            .arg(&description)
            .arg("--socket")
            .arg(folder.join("devices.sock"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        let mut gateway = Self(child.map_err(text)?);
        until_listening(&mut gateway.0, address, &log_path, STARTS_WITHIN)?;
        Ok(gateway)
    }
}

impl GatewayProcess {
    /// Octets that it has had written to the disk so far.
    fn written(&self) -> Result<u64, String> {
        let counts = fs::read_to_string(format!("/proc/{}/io", self.0.id())).map_err(text)?;
        let octets = counts.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        let octets = octets.and_then(|octets| octets.parse().ok());
        octets.ok_or_else(|| "the kernel does not count what is written".to_owned())
    }

    /// What it says of itself.
    fn status(&mut self, binary: &Path, folder: &Path) -> Result<Value, String> {
        if let Ok(Some(ended)) = self.0.try_wait() {
            return Err(format!("the gateway has ended: {ended}"));
        }
        process::status(binary, &folder.join("devices.sock"))
    }

    /// A gauge of one of its parts.
    fn gauge(&mut self, binary: &Path, folder: &Path, name: &str) -> Result<f64, String> {
        let status = self.status(binary, folder)?;
        let parts = status.get("parts").and_then(Value::as_array).into_iter().flatten();
        let gauges = parts.filter_map(|part| part.get("gauges")?.as_array()).flatten();
        let mut values = gauges.filter(|gauge| gauge.get(0).and_then(Value::as_str) == Some(name));
        let value = values.next().and_then(|gauge| gauge.get(1)?.as_f64());
        value.ok_or_else(|| format!("there is no gauge {name}"))
    }

    /// How long what took so far: where late answers have waited.
    fn histograms(&mut self, binary: &Path, folder: &Path) -> Result<Histograms, String> {
        Ok(process::histograms(&self.status(binary, folder)?))
    }
}

/// The binary on one core.
fn pinned(core: &str, binary: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", core]).arg(binary);
    command
}

/// Whether gateway and devices can raise their limits to a descriptor for each device.
fn descriptors(devices: u64) -> Result<(), String> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(text)?;
    let needed = devices + DESCRIPTORS_BESIDE;
    if hard < needed {
        return Err(format!("{needed} descriptors are needed, {hard} allowed (`ulimit -Hn`)"));
    }
    Ok(())
}

/// Devices of a kind that report once a second after `settle` seconds, until the end of `seconds`.
fn simulate(
    mut command: Command,
    kind: &str,
    (devices, settle, seconds): (u64, u64, u64),
    port: u16,
) -> Result<Child, String> {
    command
        .args(["device", "simulate", "--json", "--kind", kind, "--rate", "1"])
        .args(["--count", &devices.to_string(), "--seconds", &seconds.to_string()])
        .args(["--settle", &settle.to_string(), "--patience", "60"])
        .args(["--to", &format!("127.0.0.1:{port}")])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(text)
}

fn round(bench: &mut Bench, binary: &Path, folder: &Path) -> Result<(), String> {
    let options = bench.options();
    let pick = |(full, quick)| options.pick(full, quick);
    let (devices, settle, measure) = (pick(DEVICES), pick(SETTLE), pick(MEASURE));
    let port = free_port()?;
    let setting = Setting { registrar: None, keeps_store: false, core: "0" };
    let mut gateway = GatewayProcess::start(binary, folder, port, &setting)?;
    let alone = resident_kib(gateway.0.id())?;
    let reports = (devices, settle, settle + measure);
    let simulation = simulate(pinned("1", binary), "scale", reports, port)?;
    std::thread::sleep(Duration::from_secs(settle));
    let before = gateway.histograms(binary, folder);
    // Sockets, tasks, associations and resources; what the kernel holds is not in it.
    let taken = resident_kib(gateway.0.id())? - alone;
    bench.sample("kib_per_device", "KiB", taken / f64::from(u32::try_from(devices).map_err(text)?));
    let written = gateway.written()?;
    let stored = gateway.gauge(binary, folder, "resources")?;
    let output = simulation.wait_with_output().map_err(text)?;
    let after = gateway.histograms(binary, folder);
    let written = gateway.written()?.saturating_sub(written);
    let stored = gateway.gauge(binary, folder, "resources")? - stored;
    drop(gateway);
    let answer: Value = serde_json::from_slice(&output.stdout).map_err(text)?;
    let number = |name: &str| answer.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN);
    if answer.get("passed") != Some(&Value::Bool(true)) {
        let (answered, measured) = (number("answered"), number("measured"));
        return Err(format!("{answered} of {measured} reports were answered"));
    }
    let octets = written / (devices * measure);
    if octets < STORED_OCTETS_LEAST || stored < IN_TREE_LEAST * number("noted") {
        let noted = number("noted");
        return Err(format!(
            "{noted} reports were answered, {octets} octets of each were written, and {stored} resources came"
        ));
    }
    let times = |at: usize| answer.pointer(&format!("/delay_ms/{at}")).and_then(Value::as_f64);
    for (at, key) in ["ack_p50_ms_10k", "ack_p99_ms_10k", "ack_longest_ms_10k"].iter().enumerate() {
        bench.sample(key, "ms", times(at).ok_or("the answer has no times")?);
    }
    // What the devices' own process is late by is theirs, and told apart.
    for (name, key) in [
        ("/late_ms/1", "made_late_p99_ms"),
        ("/late_ms/2", "made_late_longest_ms"),
        ("/delay_from_due_ms/1", "ack_from_due_p99_ms"),
    ] {
        let value = answer.pointer(name).and_then(Value::as_f64);
        bench.sample(key, "ms", value.ok_or("the answer has no times")?);
    }
    bench.sample("reports_per_s", "1/s", number("noted") / number("noted_seconds"));
    bench.sample("sent_again", "reports", number("repeated"));
    bench.sample("left_out", "reports", number("left_out"));
    for (name, now) in &after? {
        stage(bench, name, now, before.as_ref().ok().and_then(|before| before.get(name)));
    }
    bare(bench, folder, (devices, octets), measure)
}

/// Oximeters, two values a report, and a CSE above that takes everything: its level at the end is to
/// be no higher than in the middle.
fn forwarding(bench: &mut Bench, binary: &Path, folder: &Path) -> Result<(), String> {
    let options = bench.options();
    let sink = Sink::start()?;
    let (settle, measure) = (options.pick(SETTLE.0, SETTLE.1), options.pick(MEASURE.0, MEASURE.1));
    let reports = (options.pick(DEVICES.0, DEVICES.1), settle, measure);
    let answered = || sink.answered();
    let load = ForwardedLoad { name: "forwarding", ending: "_10k", reports };
    let during = forward_to(bench, (binary, folder), sink.address, load, answered);
    let ((before, spent_before), (after, spent)) = during?;
    if after == before {
        return Err("forwarding: nothing was sent to the CSE above".to_owned());
    }
    let number = |count: u64| u32::try_from(count).map(f64::from).map_err(text);
    let seconds = number(measure.saturating_sub(1))?;
    bench.sample("forwarded_per_s", "1/s", number(after - before)? / seconds);
    let spent = spent.saturating_sub(spent_before).as_secs_f64();
    bench.sample("sink_cpu_pct", "%", 100.0 * spent / seconds);
    Ok(())
}

/// The same with a quarter of the devices and a gateway of ours above, which stores what it is sent
/// before it answers. It shares both cores, and the disk, too.
fn forwarding_to_own(bench: &mut Bench, binary: &Path, folder: &Path) -> Result<(), String> {
    let options = bench.options();
    let (settle, measure) = (options.pick(SETTLE.0, SETTLE.1), options.pick(MEASURE.0, MEASURE.1));
    let reports = (options.pick(DEVICES.0, DEVICES.1) / 4, settle, measure);
    let port = free_port()?;
    let above_folder = folder.join("above");
    fs::create_dir_all(&above_folder).map_err(text)?;
    let own = format!(
        "[gateway]\nname = \"bench-above\"\n[cse]\nbase = \"cse-in\"\nid = \"/id-in\"\n\
         admin = \"CAdmin\"\nadmit = [\"/gw\"]\nhttp = \"127.0.0.1:{port}\"\nstore = \"{}\"\n",
        store(&above_folder).display()
    );
    let mut above = GatewayProcess::run(
        binary,
        &above_folder,
        &own,
        ("0,1", (Ipv4Addr::LOCALHOST, port).into()),
    )?;
    let above_of = (Ipv4Addr::LOCALHOST, port).into();
    let stored = || ();
    let load = ForwardedLoad { name: "own_above", ending: "", reports };
    forward_to(bench, (binary, folder), above_of, load, stored)?;
    let instances = above.gauge(binary, &above_folder, "resources")?;
    bench.sample("own_above_resources", "resources", instances);
    Ok(())
}

/// Devices that report to a gateway with a CSE above.
#[derive(Clone, Copy, Debug)]
struct ForwardedLoad {
    /// What its figures begin with.
    name: &'static str,
    /// What the figures of acknowledgements end with: the number of devices, where it is promised.
    ending: &'static str,
    /// Devices, seconds until their reports are timed, and seconds in which they are.
    reports: (u64, u64, u64),
}

/// Lets devices report to a gateway that has a CSE above; what `look` told when the reports that are
/// timed began, and when the last ones came.
fn forward_to<L>(
    bench: &mut Bench,
    (binary, folder): (&Path, &Path),
    above: SocketAddr,
    load: ForwardedLoad,
    look: impl Fn() -> L,
) -> Result<(L, L), String> {
    let ForwardedLoad { name, ending, reports: (devices, settle, measure) } = load;
    let port = free_port()?;
    let setting = Setting { registrar: Some(above), keeps_store: false, core: "0,1" };
    let mut gateway = GatewayProcess::start(binary, folder, port, &setting)?;
    let reports = (devices, settle, settle + measure);
    let simulation = simulate(pinned("0,1", binary), "oximeter", reports, port)?;
    std::thread::sleep(Duration::from_secs(settle));
    let before = look();
    let stages = gateway.histograms(binary, folder)?;
    let level = gateway.gauge(binary, folder, "messages_waiting")?;
    std::thread::sleep(Duration::from_secs(measure).saturating_sub(Duration::from_secs(1)));
    let after = look();
    let level_after = gateway.gauge(binary, folder, "messages_waiting")?;
    let backlogs = gateway.gauge(binary, folder, "containers_backlogged")?;
    let stages_after = gateway.histograms(binary, folder)?;
    let output = simulation.wait_with_output().map_err(text)?;
    drop(gateway);
    let answer: Value = serde_json::from_slice(&output.stdout).map_err(text)?;
    let of_answer = |at: &str| {
        let value = answer.pointer(at).and_then(Value::as_f64);
        value.ok_or_else(|| format!("the devices tell no {at}"))
    };
    for (at, key) in ["ack_p50_ms", "ack_p99_ms", "ack_longest_ms"].iter().enumerate() {
        bench.sample(
            &format!("{name}_{key}{ending}"),
            "ms",
            of_answer(&format!("/delay_ms/{at}"))?,
        );
    }
    bench.sample(&format!("{name}_left_out"), "reports", of_answer("/left_out")?);
    for (key, value) in [("begin", level), ("end", level_after), ("grown", level_after - level)] {
        bench.sample(&format!("{name}_outbox_{key}"), "messages", value);
    }
    bench.sample(&format!("{name}_containers_backlogged_end"), "containers", backlogs);
    for (stage_name, now) in &stages_after {
        stage(bench, &format!("{name}_{stage_name}"), now, stages.get(stage_name));
    }
    Ok((before, after))
}

/// The same octets for as many reports a second, with nothing around them.
fn bare(
    bench: &mut Bench,
    folder: &Path,
    (rate, octets): (u64, u64),
    seconds: u64,
) -> Result<(), String> {
    let load = Load { rate, octets: usize::try_from(octets).map_err(text)? };
    let waits = load.run(folder, Duration::from_secs(seconds))?;
    for (percent, key) in
        [(50, "bare_p50_ms_10k"), (99, "bare_p99_ms_10k"), (100, "bare_longest_ms_10k")]
    {
        bench.sample(key, "ms", waits.percentile_ms(percent).ok_or("nothing was written")?);
    }
    bench.sample("disk_octets_a_report", "octets", f64::from(u32::try_from(octets).map_err(text)?));
    Ok(())
}

/// Of the values of a histogram that came since `earlier`: what 99 of 100 do not exceed, and the
/// longest.
fn stage(bench: &mut Bench, name: &str, now: &Histogram, earlier: Option<&Histogram>) {
    let new = earlier.map_or_else(|| now.clone(), |earlier| now.since(earlier));
    for (part, key) in [(99, "p99"), (100, "longest")] {
        let Some(within) = new.quantile(part, 100) else { return };
        #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a run need no 64 bits")]
        let within = within as f64;
        match name.strip_suffix("_ns") {
            Some(name) => bench.sample(&format!("{name}_{key}_ms"), "ms", within / 1e6),
            None => bench.sample(&format!("{name}_{key}"), "", within),
        }
    }
}

/// The times that are promised of all devices.
const ACKNOWLEDGED: [&str; 3] =
    ["ack_p99_ms_10k", "forwarding_ack_p99_ms_10k", "own_above_ack_p99_ms"];

pub(crate) fn run(options: Options) -> Result<Bench, String> {
    let mut bench = Bench::new("devices", options);
    let skip = |bench: &mut Bench, why: &str| {
        for key in ACKNOWLEDGED {
            bench.skip(key, Relation::AtMost, ACK_P99_MS, why);
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores < 2 {
        skip(&mut bench, "gateway and devices need a core each");
        return Ok(bench);
    }
    if let Err(why) = descriptors(options.pick(DEVICES.0, DEVICES.1)) {
        skip(&mut bench, &why);
        return Ok(bench);
    }
    let binary = binary()?;
    let folder = folder()?;
    for _round in 0..options.pick(3, 1) {
        if let Err(problem) = round(&mut bench, &binary, folder) {
            bench.note(problem);
        }
    }
    for _round in 0..options.pick(3, 1) {
        for forwards in [forwarding, forwarding_to_own] {
            if let Err(problem) = forwards(&mut bench, &binary, folder) {
                bench.note(problem);
            }
        }
    }
    fs::remove_dir_all(folder).map_err(text)?;
    bench.promise("left_out", Relation::AtMost, 0.0);
    bench.promise("forwarding_left_out", Relation::AtMost, 0.0);
    bench.promise("forwarding_outbox_grown", Relation::AtMost, OUTBOX_GROWN);
    bench.promise("own_above_left_out", Relation::AtMost, 0.0);
    bench.promise("own_above_outbox_grown", Relation::AtMost, OUTBOX_GROWN);
    bench.note(
        "forwarding: oximeters, two values a report, and a CSE above that answers 2001 and stores \
         nothing, in this process; gateway, devices and it share both cores. own_above: a quarter as \
         many, and a gateway of ours above, which stores what it is sent on the same disk",
    );
    bench.ratio("ack_p99_vs_bare", "ack_p99_ms_10k", "bare_p99_ms_10k");
    if options.quick {
        skip(&mut bench, "in a hurry there are 2,000 devices, not 10,000");
    } else {
        for key in ACKNOWLEDGED {
            bench.promise(key, Relation::AtMost, ACK_P99_MS);
        }
    }
    bench.note(
        "each device one confirmed report a second over TCP, stored with FULL synchronisation \
         before it is answered; the gateway on core 0, the devices on core 1; bare: as many octets \
         appended to a file and synchronised every 4 ms, for as long, when the gateway has ended",
    );
    Ok(bench)
}
