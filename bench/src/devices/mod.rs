//! `bench devices`: how long ten thousand devices wait for the answers to their reports.
//!
//! Each is associated over TCP and sends one confirmed report a second; the gateway stores it
//! durably before it answers. The gateway has one core, the devices another: both are the binary
//! that users run, in processes of their own. In each round a bare loop has the disk too: what that
//! waits for, everybody has to.

mod bare;

use crate::binary;
use crate::process::text;
use bare::Load;
use bench::{Bench, Options, Relation};
use nix::sys::resource::{Resource, getrlimit};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Milliseconds that the slowest of a hundred answers may take.
const ACK_P99_MS: f64 = 50.0;
/// Devices; in a hurry fewer.
const DEVICES: (u64, u64) = (10_000, 2_000);
/// Seconds in which all of them associate, and those in which answers are timed.
const SETTLE: (u64, u64) = (40, 10);
const MEASURE: (u64, u64) = (30, 10);
/// Descriptors beside those of the devices.
const DESCRIPTORS_BESIDE: u64 = 512;
/// How long the gateway may take to listen.
const STARTS_WITHIN: Duration = Duration::from_secs(20);

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
    fn start(binary: &Path, folder: &Path, port: u16) -> Result<Self, String> {
        let description = folder.join("devices.toml");
        let store = folder.join("devices.db");
        for end in ["", "-wal", "-shm", ".lock"] {
            // Nothing of an earlier run.
            let _ = fs::remove_file(format!("{}{end}", store.display()));
        }
        let written = format!(
            "[gateway]\nname = \"bench-devices\"\n[devices]\nlisten = \"127.0.0.1:{port}\"\n\
             devices_max = 16384\n[cse]\nbase = \"cse-gw\"\nid = \"/gw\"\nadmin = \"CAdmin\"\n\
             store = \"{}\"\n",
            store.display()
        );
        fs::write(&description, written).map_err(text)?;
        let log = fs::File::create(folder.join("devices.log")).map_err(text)?;
        let child = pinned("0", binary)
            .arg("run")
            .arg(&description)
            .arg("--socket")
            .arg(folder.join("devices.sock"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        let gateway = Self(child.map_err(text)?);
        let end = Instant::now() + STARTS_WITHIN;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if Instant::now() > end {
                return Err("the gateway does not listen".to_owned());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(gateway)
    }
}

/// Histograms of a gateway's parts by their names.
type Histograms = BTreeMap<String, Vec<u64>>;

impl GatewayProcess {
    /// Octets that it has had written to the disk so far.
    fn written(&self) -> Result<u64, String> {
        let counts = fs::read_to_string(format!("/proc/{}/io", self.0.id())).map_err(text)?;
        let octets = counts.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        let octets = octets.and_then(|octets| octets.parse().ok());
        octets.ok_or_else(|| "the kernel does not count what is written".to_owned())
    }

    /// How long what took so far: where late answers have waited.
    fn histograms(&mut self, binary: &Path, folder: &Path) -> Result<Histograms, String> {
        if let Ok(Some(ended)) = self.0.try_wait() {
            return Err(format!("the gateway has ended: {ended}"));
        }
        let mut status = Command::new(binary);
        status.args(["status", "--json", "--socket"]).arg(folder.join("devices.sock"));
        let output = status.stderr(Stdio::null()).output().map_err(text)?;
        let status: Value = serde_json::from_slice(&output.stdout).map_err(text)?;
        let parts = status.get("parts").and_then(Value::as_array).into_iter().flatten();
        let of_part = |part: &Value| part.get("histograms").and_then(Value::as_array).cloned();
        let histogram = |histogram: Value| {
            let name = histogram.get("name")?.as_str()?.to_owned();
            let counts = histogram.get("counts")?.as_array()?.iter().filter_map(Value::as_u64);
            Some((name, counts.collect()))
        };
        Ok(parts.filter_map(of_part).flatten().filter_map(histogram).collect())
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

fn round(bench: &mut Bench, binary: &Path, folder: &Path) -> Result<(), String> {
    let options = bench.options();
    let pick = |(full, quick)| options.pick(full, quick);
    let (devices, settle, measure) = (pick(DEVICES), pick(SETTLE), pick(MEASURE));
    let listener = TcpListener::bind("127.0.0.1:0").map_err(text)?;
    let port = listener.local_addr().map_err(text)?.port();
    drop(listener);
    let mut gateway = GatewayProcess::start(binary, folder, port)?;
    let [count, seconds] = [devices, settle + measure].map(|number| number.to_string());
    let simulation = pinned("1", binary)
        .args(["device", "simulate", "--json", "--kind", "scale", "--rate", "1"])
        .args(["--count", &count, "--seconds", &seconds, "--settle", &settle.to_string()])
        .args(["--patience", "60", "--to", &format!("127.0.0.1:{port}")])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(text)?;
    std::thread::sleep(Duration::from_secs(settle));
    let before = gateway.histograms(binary, folder);
    let written = gateway.written()?;
    let output = simulation.wait_with_output().map_err(text)?;
    let after = gateway.histograms(binary, folder);
    let written = gateway.written()?.saturating_sub(written);
    drop(gateway);
    let answer: Value = serde_json::from_slice(&output.stdout).map_err(text)?;
    let number = |name: &str| answer.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN);
    if answer.get("passed") != Some(&Value::Bool(true)) {
        let (answered, measured) = (number("answered"), number("measured"));
        return Err(format!("{answered} of {measured} reports were answered"));
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
    for (name, counts) in &after? {
        let earlier = before.as_ref().ok().and_then(|before| before.get(name));
        stage(bench, name, counts, earlier.map_or(&[], Vec::as_slice));
    }
    bare(bench, folder, (devices, written / (devices * measure)), measure)
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

/// Within what 99 of 100 values of a histogram lie that came since `earlier`: a power of two above.
fn stage(bench: &mut Bench, name: &str, counts: &[u64], earlier: &[u64]) {
    let earlier = earlier.iter().copied().chain(std::iter::repeat(0));
    let new: Vec<u64> = counts.iter().zip(earlier).map(|(now, was)| now - was).collect();
    let wanted = (new.iter().sum::<u64>() * 99).div_ceil(100);
    let mut seen = 0;
    let within = (0..).zip(&new).find(|(_, count)| {
        seen += **count;
        seen >= wanted
    });
    let Some((entry, _)) = within.filter(|_| wanted > 0) else { return };
    let within = 2_f64.powi(entry);
    match name.strip_suffix("_us") {
        Some(name) => bench.sample(&format!("{name}_p99_ms"), "ms", within / 1e3),
        None => bench.sample(&format!("{name}_p99"), "", within),
    }
}

pub(crate) fn run(options: Options) -> Result<Bench, String> {
    let mut bench = Bench::new("devices", options);
    let skip = |bench: &mut Bench, why: &str| {
        bench.skip("ack_p99_ms_10k", Relation::AtMost, ACK_P99_MS, why);
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
    // A real file system: the folder for temporary files may be memory.
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/bench/devices"));
    fs::create_dir_all(folder).map_err(text)?;
    for _round in 0..options.pick(3, 1) {
        if let Err(problem) = round(&mut bench, &binary, folder) {
            bench.note(problem);
        }
    }
    fs::remove_dir_all(folder).map_err(text)?;
    bench.ratio("ack_p99_vs_bare", "ack_p99_ms_10k", "bare_p99_ms_10k");
    if options.quick {
        skip(&mut bench, "in a hurry there are 2,000 devices, not 10,000");
    } else {
        bench.promise("ack_p99_ms_10k", Relation::AtMost, ACK_P99_MS);
    }
    bench.note(
        "each device one confirmed report a second over TCP, stored with FULL synchronisation \
         before it is answered; the gateway on core 0, the devices on core 1; bare: as many octets \
         appended to a file and synchronised every 4 ms, for as long, when the gateway has ended",
    );
    Ok(bench)
}
