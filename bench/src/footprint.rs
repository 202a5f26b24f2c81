//! `bench footprint`: how soon a gateway carries its first packet, and what it takes when idle, before
//! and after it was asked and pinged a thousand times.

use crate::binary;
use crate::process::{anonymous_kib, resident_kib, text};
use bench::{Bench, Options, Relation};
use gatewright_testbed::{Namespace, Needs, Process, TestbedError, Veth};
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Between two datagrams of the sender.
const EVERY: Duration = Duration::from_micros(100);
/// A gateway that has carried nothing by then does not work.
const FIRST_WITHIN: Duration = Duration::from_secs(10);
/// How long the gateway is left alone, once with and once without being counted.
const SETTLE: Duration = Duration::from_millis(500);
const IDLE: Duration = Duration::from_secs(10);
/// Octets of the gateway's slab: 8192 chunks of 2048.
const SLAB_KIB: f64 = 16.0 * 1024.0;

const GATEWAY_MAC: &str = "02:00:00:00:01:01";
pub(crate) const RECEIVER: &str = "10.72.2.2:9000";

/// How links are opened, as the description says it, and the figures' names.
const MODES: [(&str, &str, [&str; 4]); 2] = [
    (
        "packet",
        "packet socket",
        ["first_packet_ms", "idle_rss_mib", "idle_cpu_pct", "idle_rss_used_mib"],
    ),
    (
        "xdp",
        "AF_XDP native, copy",
        ["first_packet_xdp_ms", "idle_rss_xdp_mib", "idle_cpu_xdp_pct", "idle_rss_used_xdp_mib"],
    ),
];

/// Commands at the control socket, and pings, before the memory is looked at again.
const COMMANDS: usize = 1000;
/// The commands, in turns, each a line as the command line sends it.
const COMMAND_LINES: [&[u8]; 2] = [b"{\"do\":\"status\"}\n", b"{\"do\":\"metrics\"}\n"];

const PROMISES: [(&str, f64); 6] = [
    ("binary_mb", 12.0),
    ("first_packet_ms", 20.0),
    ("first_packet_xdp_ms", 60.0),
    ("idle_rss_mib", 12.0),
    ("idle_rss_used_mib", 12.0),
    ("idle_cpu_pct", 1.0),
];

/// Sender, gateway and receiver on two cables.
pub(crate) struct TestNetwork {
    pub(crate) sender: Namespace,
    pub(crate) gateway: Namespace,
    pub(crate) receiver: Namespace,
    _cables: [Veth; 2],
}

impl TestNetwork {
    pub(crate) fn new() -> Result<Self, TestbedError> {
        let [sender, gateway, receiver] = [Namespace::new()?, Namespace::new()?, Namespace::new()?];
        let lan = Veth::pair(&sender, "s0", &gateway, "g0")?;
        let wan = Veth::pair(&receiver, "r0", &gateway, "g1")?;
        lan.b.set_mac(GATEWAY_MAC)?;
        lan.a.add_address("10.72.1.2/24")?;
        wan.a.add_address("10.72.2.2/24")?;
        for end in [&lan.a, &lan.b, &wan.a, &wan.b] {
            end.disable_ipv6()?;
        }
        lan.up()?;
        wan.up()?;
        let known = ["lladdr", GATEWAY_MAC, "dev", "s0", "nud", "permanent"];
        sender.ip(&[&["neigh", "add", "10.72.1.1"][..], &known].concat())?;
        sender.add_route("10.72.2.0/24", "10.72.1.1")?;
        Ok(Self { sender, gateway, receiver, _cables: [lan, wan] })
    }

    /// Has the cables suit drivers that forward: datagrams of sockets leave with whole checksums, and
    /// the receiver's end takes redirected frames.
    pub(crate) fn suit_drivers(&self) -> Result<(), TestbedError> {
        for (namespace, end, set) in
            [(&self.sender, "s0", ["tx", "off"]), (&self.receiver, "r0", ["gro", "on"])]
        {
            namespace.command("ethtool").args(["-K", end]).args(set).run()?;
        }
        Ok(())
    }

    fn start(&self, binary: &Path, folder: &Path, mode: &str) -> Result<Process, String> {
        let description = folder.join(format!("footprint-{mode}.toml"));
        let socket = folder.join(format!("footprint-{mode}.sock"));
        let link = |name: &str, device: &str, address: &str| {
            format!(
                "[link.{name}]\ndevice = \"{device}\"\nmode = \"{mode}\"\n\
                 addresses = [\"{address}\"]\n"
            )
        };
        let links = link("lan", "g0", "10.72.1.1/24") + &link("wan", "g1", "10.72.2.1/24");
        let head = format!("[gateway]\nname = \"footprint-{mode}\"\n");
        fs::write(&description, head + &links).map_err(text)?;
        let run = [Path::new("run"), &description, Path::new("--socket"), &socket];
        let command = self.gateway.command(&binary.to_string_lossy()).args(run);
        let log = fs::File::create(folder.join(format!("footprint-{mode}.log"))).map_err(text)?;
        command.stdout(Stdio::null()).stderr(log).spawn().map_err(text)
    }

    /// Asks the gateway at its control socket, and pings it from the sender, a thousand times each.
    fn is_used(&self, folder: &Path, mode: &str) -> Result<(), String> {
        let socket = folder.join(format!("footprint-{mode}.sock"));
        for line in COMMAND_LINES.iter().cycle().take(COMMANDS) {
            let mut stream = UnixStream::connect(&socket).map_err(text)?;
            stream.write_all(line).map_err(text)?;
            let mut answer = String::new();
            BufReader::new(stream).read_line(&mut answer).map_err(text)?;
            if !answer.starts_with("{\"ok\":") {
                return Err(format!("the gateway says {answer}"));
            }
        }
        let count = COMMANDS.to_string();
        let pings = ["-n", "-q", "-i", "0.001", "-c", &count, "10.72.1.1"];
        let said = self.sender.command("ping").args(pings).output().map_err(text)?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let is_whole = said.contains(&format!("{count} received"));
        if is_whole { Ok(()) } else { Err(format!("pings are lost: {said}")) }
    }

    /// Starts a gateway while datagrams are sent without a pause; the gateway, and the milliseconds
    /// from its start to the first datagram at the receiver.
    fn first_packet(
        &self,
        binary: &Path,
        folder: &Path,
        mode: &str,
    ) -> Result<(Process, f64), String> {
        let listener = self.receiver.run(|| UdpSocket::bind(RECEIVER)).map_err(text)?;
        let listener = listener.map_err(text)?;
        listener.set_read_timeout(Some(FIRST_WITHIN)).map_err(text)?;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sends = scope.spawn(|| self.sender.run(|| send(&stop)));
            sleep(Duration::from_millis(20));
            let start = Instant::now();
            let gateway = self.start(binary, folder, mode);
            let first = listener.recv(&mut [0; 64]).map(|_| start.elapsed());
            stop.store(true, Ordering::Relaxed);
            sends.join().map_err(|_| "the sender panicked")?.map_err(text)?.map_err(text)?;
            let first = first.map_err(|error| format!("nothing came through: {error}"))?;
            Ok((gateway?, first.as_secs_f64() * 1e3))
        })
    }
}

fn send(stop: &AtomicBool) -> std::io::Result<()> {
    let socket = UdpSocket::bind("10.72.1.2:0")?;
    while !stop.load(Ordering::Relaxed) {
        match socket.send_to(&[0x5a; 18], RECEIVER) {
            Err(error) if error.kind() != ErrorKind::ConnectionRefused => return Err(error),
            _ => sleep(EVERY),
        }
    }
    Ok(())
}

/// Resident memory in MiB. By AF_XDP the kernel pins the whole slab, which is then left out; by
/// packet sockets what is resident of it counts, so the figure is an upper bound.
fn resident(id: u32, mode: &str) -> Result<f64, String> {
    let slab = if mode == "xdp" { SLAB_KIB } else { 0.0 };
    Ok((resident_kib(id)? - slab) / 1024.0)
}

/// Processor time of a process in clock ticks of 10 ms.
pub(crate) fn ticks(id: u32) -> Result<f64, String> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).map_err(text)?;
    // The name, in parentheses, may have spaces in it; utime and stime are the 14th and 15th field.
    let (_, after) = stat.rsplit_once(") ").ok_or("no such process")?;
    let mut fields = after.split(' ').skip(11).map(|field| field.parse::<u32>().ok());
    let spent = fields.next().flatten().zip(fields.next().flatten());
    spent.map(|(user, system)| f64::from(user + system)).ok_or_else(|| "no times".to_owned())
}

/// Megabytes of the command's binary without symbols.
fn binary_size(binary: &Path, folder: &Path) -> Result<f64, String> {
    let stripped = folder.join("stripped");
    let output = [Path::new("-o"), &stripped, binary];
    let status = Command::new("strip").args(output).status().map_err(text)?;
    if !status.success() {
        return Err(format!("strip: {status}"));
    }
    let octets = fs::metadata(&stripped).map_err(text)?.len();
    Ok(f64::from(u32::try_from(octets).unwrap_or(u32::MAX)) / 1e6)
}

fn round(
    bench: &mut Bench,
    world: &TestNetwork,
    (binary, folder): (&Path, &Path),
    (mode, called, [first_key, resident_key, processor_key, used_key]): (&str, &str, [&str; 4]),
) -> Result<(), String> {
    let (gateway, first) = world.first_packet(binary, folder, mode)?;
    let id = gateway.id().ok_or("the gateway has ended")?;
    sleep(SETTLE);
    let before = ticks(id)?;
    sleep(IDLE);
    let spent = (ticks(id)? - before) / IDLE.as_secs_f64();
    let log = fs::read_to_string(folder.join(format!("footprint-{mode}.log"))).map_err(text)?;
    if log.matches(called).count() < 2 {
        return Err(format!("the links are not both by {called}:\n{log}"));
    }
    bench.sample(first_key, "ms", first);
    bench.sample(resident_key, "MiB", resident(id, mode)?);
    let anonymous = format!("{mode}_idle_anonymous_mib");
    bench.sample(&anonymous, "MiB", anonymous_kib(id)? / 1024.0);
    // A tick is 10 ms, so ticks a second are per cent.
    bench.sample(processor_key, "%", spent);
    world.is_used(folder, mode)?;
    sleep(SETTLE);
    bench.sample(used_key, "MiB", resident(id, mode)?);
    gateway.kill();
    Ok(())
}

pub(crate) fn run(options: Options) -> Result<Bench, String> {
    let mut bench = Bench::new("footprint", options);
    let missing =
        Needs::new().namespaces().program("ping").missing().map(|missing| missing.to_string());
    let binary = missing.map_or_else(binary, Err);
    let binary = match binary {
        Ok(binary) => binary,
        Err(why) => {
            for (key, bound) in PROMISES {
                bench.skip(key, Relation::AtMost, bound, &why);
            }
            return Ok(bench);
        }
    };
    let world = TestNetwork::new().map_err(text)?;
    let folder = std::env::temp_dir().join(format!("gatewright-bench-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(text)?;
    let mut problems = Vec::new();
    match binary_size(&binary, &folder) {
        Ok(size) => bench.sample("binary_mb", "MB", size),
        Err(problem) => problems.push(problem),
    }
    for _round in 0..options.rounds() {
        for mode in MODES {
            if let Err(problem) = round(&mut bench, &world, (&binary, &folder), mode) {
                problems.push(format!("{}: {problem}", mode.0));
            }
        }
    }
    fs::remove_dir_all(&folder).map_err(text)?;
    for (key, bound) in PROMISES {
        bench.promise(key, Relation::AtMost, bound);
    }
    bench.note(
        "first packet: from the start of the process to the first datagram at the far end, one \
         sent every 100 us since before; the gateway asks for the receiver's address itself",
    );
    bench.note(
        "idle, two links: processor time of 10 s; resident memory by AF_XDP without the slab of \
         16 MiB, which is pinned, and by packet sockets with what is resident of it",
    );
    bench.note(
        "anonymous: without the pages of files; of the binary's, the more are resident the more the \
         page cache has",
    );
    bench.note("used: resident memory after 1,000 commands at the control socket and 1,000 pings");
    for problem in problems {
        bench.note(problem);
    }
    Ok(bench)
}
