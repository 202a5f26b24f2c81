//! `bench stall`: how long devices wait for their acknowledgements while applications search the
//! whole tree of the same CSE.
//!
//! Fifty devices report once a second. Four AEs ask without a pause for discoveries that visit every
//! resource (by label, by an attribute of the content) and for containers with 10,000 instances.

mod history;

use crate::binary;
use crate::process::{resident_kib, text, until_listening};
use bench::{Bench, Options, Relation};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Milliseconds that the slowest of a hundred acknowledgements may take meanwhile.
const STALL_P99_MS: f64 = 20.0;
/// Milliseconds of one retrieval with 10,000 instances, alone.
const RCN4_MS: f64 = 40.0;
/// Resources that the gateway admits.
const RESOURCES_MAX: u64 = 20_000_000;
/// Resources; in a hurry fewer.
const RESOURCES: (u64, u64) = (1_000_000, 100_000);
/// Instances of each container.
const FAMILY: u64 = 10_000;
/// One in so many instances has a label.
const LABELLED: u64 = 100;
const DEVICES: u64 = 50;
/// Seconds in which the devices associate, and those in which acknowledgements are timed.
const SETTLE: u64 = 2;
const MEASURE: (u64, u64) = (20, 8);
/// AEs that search.
const SEARCHERS: usize = 4;
/// Connections that fill the tree.
const FILLERS: usize = 16;
/// How long the gateway may take to listen, and a search to be answered.
const STARTS_WITHIN: Duration = Duration::from_mins(1);
const ANSWER_WITHIN: Duration = Duration::from_mins(3);
/// Searches timed alone, of each kind.
const ALONE: usize = 3;

/// What the AEs ask for, each with the figure of its duration alone.
const SEARCHES: [(&str, &str); 3] = [
    ("lbl_ms", "/cse-in/archive?fu=1&lbl=bed:none"),
    ("atr_ms", "/cse-in/archive?fu=1&atr=con,none*"),
    ("rcn4_10k_ms", "/cse-in/archive/s0?rcn=4"),
];

/// A gateway with devices and a CSE; it ends with the benchmark.
struct Gateway {
    child: Child,
    http: SocketAddr,
    devices: SocketAddr,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Gateway {
    fn start(binary: &Path, folder: &Path, store: &Path) -> Result<Self, String> {
        let (http, devices) = (free_address()?, free_address()?);
        let description = folder.join("stall.toml");
        let written = format!(
            "[gateway]\nname = \"bench-stall\"\n[devices]\nlisten = \"{devices}\"\n\
             [cse]\nbase = \"cse-in\"\nid = \"/id-in\"\ntype = \"infrastructure\"\n\
             admin = \"CAdmin\"\nhttp = \"{http}\"\nresources_max = {RESOURCES_MAX}\n\
             branch_max = {RESOURCES_MAX}\nstore = {:?}\n",
            store.display().to_string()
        );
        fs::write(&description, written).map_err(text)?;
        let log_path = folder.join("stall.log");
        let log = fs::File::create(&log_path).map_err(text)?;
        let child = Command::new("taskset")
            .args(["-c", "0"])
            .arg(binary)
            .arg("run")
            .arg(&description)
            .arg("--socket")
            .arg(folder.join("stall.sock"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        let mut gateway = Self { child: child.map_err(text)?, http, devices };
        for address in [http, devices] {
            until_listening(&mut gateway.child, address, &log_path, STARTS_WITHIN)?;
        }
        Ok(gateway)
    }

    fn client(&self, from: &str) -> Result<StallClient, String> {
        StallClient::open(self.http, from)
    }

    /// A policy that lets everybody search, a container for each family, and the AEs.
    fn lay_out(&self, families: u64) -> Result<(), String> {
        let mut admin = self.client("CAdmin")?;
        let policy = r#"{"m2m:acp":{"rn":"all","pv":{"acr":[{"acor":["all"],"acop":34}]},
            "pvs":{"acr":[{"acor":["CAdmin"],"acop":63}]}}}"#;
        admin.create("/cse-in", 1, policy)?;
        let container =
            |name: &str| format!(r#"{{"m2m:cnt":{{"rn":"{name}","acpi":["cse-in/all"]}}}}"#);
        admin.create("/cse-in", 3, &container("archive"))?;
        for family in 0..families {
            admin.create("/cse-in/archive", 3, &container(&format!("s{family}")))?;
        }
        for number in 0..SEARCHERS {
            let from = format!("Cview{number}");
            let entity = r#"{"m2m:ae":{"api":"Nbench","rr":false,"srv":["4"]}}"#;
            self.client(&from)?.create("/cse-in", 2, entity)?;
        }
        Ok(())
    }

    /// Checks that each family has so many instances: nothing was left out to be quicker.
    fn check(&self, families: u64, each: u64) -> Result<(), String> {
        let mut admin = self.client("CAdmin")?;
        for family in 0..families {
            let path = format!("/cse-in/archive/s{family}");
            let (status, container) = admin.exchange("GET", &path, "", "")?;
            let container: Value = serde_json::from_slice(&container).map_err(text)?;
            let instances = container.pointer("/m2m:cnt/cni").and_then(Value::as_u64);
            if (status, instances) != (200, Some(each)) {
                return Err(format!("{path} after a restart: {status}, {instances:?} instances"));
            }
        }
        Ok(())
    }

    /// Fills the families with instances.
    fn fill(&self, instances: u64) -> Result<(), String> {
        let next = AtomicU64::new(0);
        let filler = || {
            let mut admin = self.client("CAdmin")?;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= instances {
                    return Ok(());
                }
                let labels = match number % LABELLED {
                    0 => format!(r#""lbl":["bed:{}"],"#, number % 7),
                    _ => String::new(),
                };
                let content = format!(r#"{{"m2m:cin":{{{labels}"con":"{number} 97.5 72"}}}}"#);
                admin.create(&format!("/cse-in/archive/s{}", number / FAMILY), 4, &content)?;
            }
        };
        thread::scope(|scope| {
            let fillers: Vec<_> = (0..FILLERS).map(|_| scope.spawn(filler)).collect();
            let joined =
                fillers.into_iter().map(|it| it.join().map_err(|_| "a panic".to_owned())?);
            joined.collect()
        })
    }

    /// Times of the acknowledgements (median, 99th of a hundred, longest) in milliseconds, and the
    /// reports that were not acknowledged.
    fn reports(&self, binary: &Path, seconds: u64, seed: u64) -> Result<([f64; 3], f64), String> {
        let [count, all, settle] = [DEVICES, SETTLE + seconds, SETTLE].map(|it| it.to_string());
        let output = Command::new("taskset")
            .args(["-c", "1"])
            .arg(binary)
            .args(["device", "simulate", "--json", "--kind", "oximeter", "--rate", "1"])
            .args(["--count", &count, "--seconds", &all, "--settle", &settle, "--patience", "60"])
            .args(["--seed", &seed.to_string(), "--to", &self.devices.to_string()])
            .stderr(Stdio::null())
            .output()
            .map_err(text)?;
        let answer: Value = serde_json::from_slice(&output.stdout).map_err(text)?;
        let number = |at: &str| answer.pointer(at).and_then(Value::as_f64);
        let none = "the answer of the devices has no times";
        let mut times = [0.0; 3];
        for (at, time) in times.iter_mut().enumerate() {
            *time = number(&format!("/delay_ms/{at}")).ok_or(none)?;
        }
        let missing = number("/measured").zip(number("/answered"));
        let (measured, answered) = missing.ok_or(none)?;
        Ok((times, measured - answered))
    }
}

/// One connection of one originator.
struct StallClient {
    stream: BufReader<TcpStream>,
    from: String,
    number: u64,
}

impl StallClient {
    fn open(address: SocketAddr, from: &str) -> Result<Self, String> {
        let stream = TcpStream::connect(address).map_err(text)?;
        stream.set_nodelay(true).map_err(text)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN)).map_err(text)?;
        Ok(Self { stream: BufReader::new(stream), from: from.to_owned(), number: 0 })
    }

    fn create(&mut self, path: &str, kind: u16, content: &str) -> Result<(), String> {
        let more = format!("Content-Type: application/json;ty={kind}\r\n");
        let status = self.ask("POST", &format!("{path}?rcn=0"), &more, content)?;
        if status == 201 { Ok(()) } else { Err(format!("{path}: created with {status}")) }
    }

    /// The status of the answer, once all of it is here.
    fn ask(&mut self, method: &str, path: &str, more: &str, content: &str) -> Result<u16, String> {
        self.exchange(method, path, more, content).map(|(status, _)| status)
    }

    /// The status of the answer, and its content.
    fn exchange(
        &mut self,
        method: &str,
        path: &str,
        more: &str,
        content: &str,
    ) -> Result<(u16, Vec<u8>), String> {
        self.number += 1;
        // In one piece: the peer waits for the rest of none.
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nX-M2M-Origin: {}\r\nX-M2M-RVI: 4\r\n\
             X-M2M-RI: {}\r\n{more}Content-Length: {}\r\n\r\n{content}",
            self.from,
            self.number,
            content.len()
        );
        self.stream.get_mut().write_all(request.as_bytes()).map_err(text)?;
        let mut line = String::new();
        self.stream.read_line(&mut line).map_err(text)?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| format!("no answer: {line}"))?;
        let mut octets = 0;
        loop {
            line.clear();
            self.stream.read_line(&mut line).map_err(text)?;
            let Some((name, value)) = line.split_once(':') else { break };
            if name.eq_ignore_ascii_case("content-length") {
                octets = value.trim().parse().map_err(text)?;
            }
        }
        let mut content = Vec::with_capacity(usize::try_from(octets).map_err(text)?);
        (&mut self.stream).take(octets).read_to_end(&mut content).map_err(text)?;
        Ok((status, content))
    }
}

/// AEs that search until it is enough.
struct Searchers {
    enough: AtomicBool,
    answered: AtomicU64,
    refused: AtomicU64,
}

impl Searchers {
    const fn new() -> Self {
        Self {
            enough: AtomicBool::new(false),
            answered: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// The loop of one AE; its connection is shut down when it is enough.
    fn search(&self, mut client: StallClient, first: usize) {
        for (_, path) in SEARCHES.iter().cycle().skip(first) {
            let status = client.ask("GET", path, "", "");
            if self.enough.load(Ordering::Relaxed) {
                return;
            }
            let good = matches!(status, Ok(200));
            let counter = if good { &self.answered } else { &self.refused };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The devices' times while the AEs search.
fn searched(
    bench: &mut Bench,
    gateway: &Gateway,
    binary: &Path,
    seconds: u64,
    seed: u64,
) -> Result<(), String> {
    let searchers = Searchers::new();
    let mut clients = Vec::new();
    let mut streams = Vec::new();
    for number in 0..SEARCHERS {
        let client = gateway.client(&format!("Cview{number}"))?;
        streams.push(client.stream.get_ref().try_clone().map_err(text)?);
        clients.push(client);
    }
    let started = Instant::now();
    let (times, missing) = thread::scope(|scope| {
        for (number, client) in clients.into_iter().enumerate() {
            let searchers = &searchers;
            scope.spawn(move || searchers.search(client, number % SEARCHES.len()));
        }
        let times = gateway.reports(binary, seconds, seed);
        searchers.enough.store(true, Ordering::Relaxed);
        for stream in streams {
            // It may have ended by itself.
            let _ = stream.shutdown(Shutdown::Both);
        }
        times
    })?;
    let elapsed = started.elapsed().as_secs_f64();
    for (time, key) in times.into_iter().zip(["stall_p50_ms", "stall_p99_ms", "stall_longest_ms"]) {
        bench.sample(key, "ms", time);
    }
    let count = |counter: &AtomicU64| {
        f64::from(u32::try_from(counter.load(Ordering::Relaxed)).unwrap_or(u32::MAX))
    };
    bench.sample("reports_unanswered", "reports", missing);
    bench.sample("searches_per_s", "/s", count(&searchers.answered) / elapsed);
    bench.sample("searches_refused", "searches", count(&searchers.refused));
    Ok(())
}

fn measure(bench: &mut Bench, binary: &Path, folder: &Path) -> Result<(), String> {
    let resources = bench.options().pick(RESOURCES.0, RESOURCES.1);
    let seconds = bench.options().pick(MEASURE.0, MEASURE.1);
    let gateway = Gateway::start(binary, folder, &store(folder))?;
    let families = resources / FAMILY;
    gateway.lay_out(families)?;
    gateway.fill(families * FAMILY)?;
    bench.sample("rss_mib", "MiB", resident_kib(gateway.child.id())? / 1024.0);
    let mut client = gateway.client("Cview0")?;
    for _round in 0..ALONE {
        for (key, path) in SEARCHES {
            let started = Instant::now();
            let status = client.ask("GET", path, "", "")?;
            if status != 200 {
                return Err(format!("{path}: {status}"));
            }
            bench.sample(key, "ms", started.elapsed().as_secs_f64() * 1e3);
        }
    }
    for round in 0..bench.options().pick(3, 1) {
        let ([_, calm, _], missing) = gateway.reports(binary, seconds, 2 * round + 1)?;
        bench.sample("calm_p99_ms", "ms", calm);
        if missing > 0.0 {
            return Err(format!("{missing} reports were not answered without searches"));
        }
        searched(bench, &gateway, binary, seconds, 2 * round + 2)?;
    }
    drop(gateway);
    restarted(bench, binary, folder, families)?;
    history::measure(bench, binary, folder)
}

/// Starts the killed gateway again: the time until its first answer, and its memory then.
fn restarted(bench: &mut Bench, binary: &Path, folder: &Path, families: u64) -> Result<(), String> {
    let began = Instant::now();
    let gateway = Gateway::start(binary, folder, &store(folder))?;
    let path = "/cse-in/archive/s0/la";
    let status = gateway.client("Cview0")?.ask("GET", path, "", "")?;
    bench.sample("restart_first_answer_ms", "ms", began.elapsed().as_secs_f64() * 1e3);
    if status != 200 {
        return Err(format!("{path} after a restart: {status}"));
    }
    bench.sample("rss_restarted_mib", "MiB", resident_kib(gateway.child.id())? / 1024.0);
    gateway.check(families, FAMILY)
}

fn store(folder: &Path) -> PathBuf {
    folder.join("stall.db")
}

fn free_address() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(text)?;
    listener.local_addr().map_err(text)
}

pub(crate) fn run(options: Options) -> Result<Bench, String> {
    let mut bench = Bench::new("stall", options);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    if cores < 2 {
        let why = "gateway and devices need a core each";
        bench.skip("stall_p99_ms", Relation::AtMost, STALL_P99_MS, why);
        return Ok(bench);
    }
    let binary = binary()?;
    // A real file system: the folder for temporary files may be memory.
    let bench_folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/bench"));
    let folder = bench_folder.join(format!("stall-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(text)?;
    let measured = measure(&mut bench, &binary, &folder);
    fs::remove_dir_all(&folder).map_err(text)?;
    measured?;
    let sizes = ("1,000,000 resources", "100,000");
    bench.promise_in_full(("stall_p99_ms", Relation::AtMost, STALL_P99_MS), sizes);
    bench.promise("reports_unanswered", Relation::AtMost, 0.0);
    bench.promise("rcn4_10k_ms", Relation::AtMost, RCN4_MS);
    let restart = ("restart_first_answer_ms", Relation::AtMost, history::FIRST_ANSWER_MS);
    bench.promise_in_full(restart, sizes);
    history::promise(&mut bench);
    bench.note(
        "restart_first_answer_ms counts from the start of the process after kill -9; \
         history_first_answer_ms the same with 10,000,000 instances with given names in 100 \
         containers, which were written into the database without a gateway; 50 devices report once a second, stored with FULL synchronisation before they are \
         answered, while 4 AEs ask without a pause for discoveries over all resources (lbl, atr; \
         nothing matches) and for 10,000 instances (rcn=4); calm: the same without the AEs; the \
         gateway on core 0, the devices on core 1",
    );
    Ok(bench)
}
