//! `bench planes`: two planes as two processes of the binary, each killed while datagrams pass. What is
//! lost without a control plane, how long nothing passes without a data plane, how long an adoption
//! takes, and what both processes have in memory when idle.

mod arrivals;
mod routes;
mod under_load;

use self::arrivals::{Arrivals, p99};
use crate::binary;
use crate::footprint::{RECEIVER, TestNetwork};
use crate::process::{resident_kib, text};
use bench::{Bench, Options, Relation};
use gatewright_testbed::{Needs, Process, wait_until};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Datagrams a second while the control plane is killed.
const RATE: u64 = 100_000;
/// Datagrams sent at once, and those that may be on their way: fewer than any queue between holds.
const BURST: u64 = 32;
const WINDOW: u64 = 192;
/// Between two datagrams while the data plane is killed: the resolution of a gap.
const EVERY: Duration = Duration::from_millis(1);
/// How long the receiver waits for one more.
const PATIENCE: Duration = Duration::from_millis(50);
/// Between two kills.
const PAUSE: Duration = Duration::from_millis(700);
/// Kills of a data plane that one control plane is given: at five within a minute it gives up.
const KILLS_EACH: usize = 4;
const WITHIN: Duration = Duration::from_secs(20);
/// How long a gateway is left alone before its memory is looked at: some of it comes with the first
/// seconds.
const SETTLE: Duration = Duration::from_secs(8);

const PROMISES: [(&str, f64); 10] = [
    ("control_kills_lost", 0.0),
    ("control_kill_gap_ms", 50.0),
    ("data_kills_lost", 0.0),
    ("data_kills_lost_xdp", 0.0),
    ("data_kills_lost_driver", 0.0),
    ("data_kill_gap_ms", 300.0),
    ("data_kill_gap_xdp_ms", 300.0),
    ("data_kill_gap_driver_ms", 300.0),
    ("adopt_ms", 50.0),
    ("idle_rss_two_mib", 16.0),
];

/// The rate while the control plane is killed, to [`RATE`]: a data plane that stands still loses none,
/// as the sender waits for it.
const RATE_RATIO: (&str, f64) = ("control_kills_rate_ratio", 0.95);

/// Figures of kills of the data plane: the promised gap, each gap, and what was lost.
const GAPS: [&str; 3] = ["data_kill_gap_ms", "data_kill_each_ms", "data_kills_lost"];
const GAPS_XDP: [&str; 3] =
    ["data_kill_gap_xdp_ms", "data_kill_each_xdp_ms", "data_kills_lost_xdp"];

const GAPS_DRIVER: [&str; 3] =
    ["data_kill_gap_driver_ms", "data_kill_each_driver_ms", "data_kills_lost_driver"];

/// How links forward: the name of a folder, and the lines of each link.
type Way = (&'static str, &'static str);
const BY_PACKET: Way = ("packet", "mode = \"packet\"\n");
const BY_XDP: Way = ("xdp", "mode = \"xdp\"\n");
const BY_DRIVER: Way = ("driver", "mode = \"xdp\"\nforward = \"xdp\"\n");

/// Of the datagrams that are sent while drivers forward, the share that they must have forwarded.
const IN_DRIVER_LEAST: f64 = 0.9;

/// The binary with a description in a folder.
struct TwoPlanes<'a> {
    network: &'a TestNetwork,
    binary: &'a Path,
    folder: PathBuf,
}

impl<'a> TwoPlanes<'a> {
    fn new(
        network: &'a TestNetwork,
        binary: &'a Path,
        folder: &Path,
        (name, lines): Way,
    ) -> Result<Self, String> {
        let folder = folder.join(name);
        fs::create_dir_all(&folder).map_err(text)?;
        let link = |name: &str, device: &str, address: &str| {
            format!("[link.{name}]\ndevice = \"{device}\"\n{lines}addresses = [\"{address}\"]\n")
        };
        let links = link("lan", "g0", "10.72.1.1/24") + &link("wan", "g1", "10.72.2.1/24");
        let planes = "[planes]\nmode = \"process\"\n";
        fs::write(folder.join("gateway.toml"), format!("{planes}{links}")).map_err(text)?;
        Ok(Self { network, binary, folder })
    }

    /// Starts a control plane, and waits until it answers.
    fn start(&self) -> Result<Process, String> {
        let log = fs::File::create(self.folder.join("log")).map_err(text)?;
        let command = self.network.gateway.command(&self.binary.to_string_lossy());
        let process = command
            .arg("run")
            .arg(self.folder.join("gateway.toml"))
            .arg("--socket")
            .arg(self.folder.join("socket"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(text)?;
        if wait_until(WITHIN, || self.status().is_ok()) { Ok(process) } else { Err(self.log()) }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    fn status(&self) -> Result<Value, String> {
        let mut stream = UnixStream::connect(self.folder.join("socket")).map_err(text)?;
        stream.write_all(b"{\"do\":\"status\"}\n").map_err(text)?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).map_err(text)?;
        let answer: Value = serde_json::from_str(&answer).map_err(text)?;
        answer.get("ok").cloned().ok_or_else(|| answer.to_string())
    }

    /// The data plane's process, by its number in the gateway's namespace.
    fn data(&self) -> Result<u64, String> {
        let status = self.status()?;
        let data = status.pointer("/planes/data").and_then(Value::as_u64);
        data.ok_or_else(|| "no process of its own".to_owned())
    }

    /// Packets that drivers have forwarded so far.
    fn in_drivers(&self) -> Result<u64, String> {
        let status = self.status()?;
        let links = status.get("links").and_then(Value::as_array).into_iter().flatten();
        let counts = links.filter_map(|link| link.get("in_driver")?.as_array()).flatten();
        let forwarded = counts.filter(|count| count.get("outcome") == Some(&"forwarded".into()));
        Ok(forwarded.filter_map(|count| count.get("packets")?.as_u64()).sum())
    }

    /// Kills the data plane that runs.
    fn kill_data(&self) -> Result<(), String> {
        let number = self.data()?.to_string();
        let kill = self.network.gateway.command("kill").args(["-KILL", &number]).output();
        kill.map_err(text).map(drop)
    }

    /// The milliseconds that the last start took to adopt the data plane.
    fn adopted_within(&self) -> Result<f64, String> {
        let told = || {
            let log = self.log();
            let (us, _) = log.split_once(", within ")?.1.split_once(' ')?;
            us.parse::<f64>().ok()
        };
        // The log is written beside the answers at the control socket, and may come after them.
        wait_until(WITHIN, || told().is_some());
        told().map(|us| us / 1e3).ok_or_else(|| format!("nothing was adopted:\n{}", self.log()))
    }
}

/// A sender and a receiver on both sides of the gateway.
struct Ends {
    sender: UdpSocket,
    receiver: UdpSocket,
}

impl Ends {
    fn new(network: &TestNetwork) -> Result<Self, String> {
        let open = |at: &'static str| move || UdpSocket::bind(at);
        let sender = network.sender.run(open("10.72.1.2:0")).map_err(text)?.map_err(text)?;
        let receiver = network.receiver.run(open(RECEIVER)).map_err(text)?.map_err(text)?;
        receiver.set_read_timeout(Some(PATIENCE)).map_err(text)?;
        Ok(Self { sender, receiver })
    }

    fn await_first(&self) -> Result<(), String> {
        let passes = || {
            // The first ones wait for the neighbour, or find no gateway.
            let _refused = self.sender.send_to(&[0], RECEIVER);
            self.receiver.recv(&mut [0; 64]).is_ok()
        };
        if !wait_until(WITHIN, passes) {
            return Err("nothing comes through".to_owned());
        }
        while self.receiver.recv(&mut [0; 64]).is_ok() {}
        Ok(())
    }
}

/// Datagrams sent and lost while `kills` happen, at most [`WINDOW`] on their way, and the rate.
fn lost_while(
    ends: &Ends,
    kills: impl FnOnce(&Arrivals) -> Result<(), String>,
) -> Result<(u64, u64, f64), String> {
    let (sent, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let received = Arrivals::begin();
    let began = Instant::now();
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                received.note(ends.receiver.recv(&mut [0; 64]).is_ok());
            }
        });
        scope.spawn(|| send_at_rate(ends, began, (&sent, &received), &over));
        let done = kills(&received);
        let elapsed = began.elapsed().as_secs_f64();
        let rest = || received.count() >= sent.load(Ordering::Acquire);
        // The sender ends first, by what it is due.
        over.store(true, Ordering::Release);
        wait_until(Duration::from_millis(20), rest);
        done.map(|()| elapsed)
    })?;
    // What was on its way when the receiver ended.
    while ends.receiver.recv(&mut [0; 64]).is_ok() {
        received.note(true);
    }
    let (sent, received) = (sent.into_inner(), received.count());
    let lost = sent.saturating_sub(received);
    #[expect(clippy::cast_precision_loss, reason = "some million datagrams")]
    let rate = sent as f64 / done;
    Ok((sent, lost, rate))
}

/// Sends [`RATE`] datagrams a second until it is over, as long as few enough are on their way.
fn send_at_rate(
    ends: &Ends,
    began: Instant,
    (sent, received): (&AtomicU64, &Arrivals),
    over: &AtomicBool,
) {
    // What is taken for lost, so that the others go on.
    let mut given_up = 0;
    let mut since = Instant::now();
    while !over.load(Ordering::Acquire) {
        let so_far = sent.load(Ordering::Relaxed);
        let waiting = so_far - received.count().min(so_far) - given_up;
        let due = began.elapsed().as_micros() * u128::from(RATE) / 1_000_000;
        if waiting + BURST > WINDOW || u128::from(so_far) > due {
            if since.elapsed() > Duration::from_secs(1) {
                given_up += waiting;
                since = Instant::now();
            }
            sleep(Duration::from_micros(50));
            continue;
        }
        since = Instant::now();
        for _ in 0..BURST {
            if ends.sender.send_to(&[0x5a; 18], RECEIVER).is_ok() {
                sent.fetch_add(1, Ordering::Release);
            }
        }
    }
}

/// The longest time in which nothing arrived while the data plane is killed once, in milliseconds, and
/// the datagrams that were sent and that never came.
fn gap(planes: &TwoPlanes<'_>, ends: &Ends) -> Result<(f64, u64, u64), String> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sends = scope.spawn(|| {
            let mut sent = 0;
            while !over.load(Ordering::Acquire) {
                sent += u64::from(ends.sender.send_to(&[0x5a; 18], RECEIVER).is_ok());
                sleep(EVERY);
            }
            sent
        });
        let receives = scope.spawn(|| {
            let (mut longest, mut last, mut came) = (Duration::ZERO, Instant::now(), 0);
            loop {
                let is_last = over.load(Ordering::Acquire);
                if ends.receiver.recv(&mut [0; 64]).is_ok() {
                    came += 1;
                    longest = longest.max(last.elapsed());
                    last = Instant::now();
                } else if is_last {
                    return (longest, last, came);
                }
            }
        });
        sleep(Duration::from_millis(100));
        let killed = planes.kill_data();
        sleep(PAUSE);
        let ended = Instant::now();
        over.store(true, Ordering::Release);
        let sent = sends.join().map_err(|_| "the sender panicked")?;
        let (longest, last, came) = receives.join().map_err(|_| "the receiver panicked")?;
        // One that has not ended counts, what follows the last datagram does not.
        let longest = longest.max(ended.saturating_duration_since(last));
        killed.map(|()| (longest.as_secs_f64() * 1e3, sent, sent.saturating_sub(came)))
    })
}

fn control_kills(bench: &mut Bench, planes: &TwoPlanes<'_>, kills: usize) -> Result<(), String> {
    let ends = Ends::new(planes.network)?;
    let first = planes.start()?;
    ends.await_first()?;
    let mut control = Some(first);
    let (mut adopted, mut gaps) = (Vec::new(), Vec::new());
    let (sent, lost, rate) = lost_while(&ends, |arrivals| {
        sleep(PAUSE);
        for _ in 0..kills {
            // What was before is of no kill.
            arrivals.take_longest();
            if let Some(process) = control.take() {
                process.kill();
            }
            sleep(Duration::from_millis(100));
            control = Some(planes.start()?);
            adopted.push(planes.adopted_within()?);
            sleep(PAUSE);
            gaps.push(arrivals.take_longest().as_secs_f64() * 1e3);
        }
        Ok(())
    })?;
    #[expect(clippy::cast_precision_loss, reason = "a few")]
    bench.sample("control_kills_lost", "datagrams", lost as f64);
    #[expect(clippy::cast_precision_loss, reason = "the wanted rate")]
    bench.sample(RATE_RATIO.0, "ratio", rate / RATE as f64);
    for ms in adopted {
        bench.sample("adopt_ms", "ms", ms);
    }
    for &gap in &gaps {
        bench.sample("control_kill_each_ms", "ms", gap);
    }
    bench.sample("control_kill_gap_ms", "ms", p99(gaps).ok_or("no control plane was killed")?);
    bench.note(format!("{kills} kills of control: {sent} datagrams at {rate:.0} a second"));
    end(planes, control)
}

fn end(planes: &TwoPlanes<'_>, control: Option<Process>) -> Result<(), String> {
    let Some(process) = control else { return Ok(()) };
    process.terminate().map_err(text)?;
    process.wait().map_err(text)?;
    if planes.status().is_ok() { Err("the gateway has not ended".to_owned()) } else { Ok(()) }
}

fn data_kills(
    bench: &mut Bench,
    planes: &TwoPlanes<'_>,
    ([key, each, lost_key], kills): ([&str; 3], usize),
) -> Result<(), String> {
    let ends = Ends::new(planes.network)?;
    let (mut gaps, mut all, mut lost, mut in_drivers) = (Vec::new(), 0, 0, 0);
    for left in (0..kills).step_by(KILLS_EACH) {
        let control = planes.start()?;
        for _ in 0..KILLS_EACH.min(kills - left) {
            ends.await_first()?;
            let (gap, sent, missing) = gap(planes, &ends)?;
            bench.sample(each, "ms", gap);
            gaps.push(gap);
            (all, lost) = (all + sent, lost + missing);
        }
        in_drivers += planes.in_drivers()?;
        end(planes, Some(control))?;
    }
    #[expect(clippy::cast_precision_loss, reason = "some hundred thousand")]
    if key == GAPS_DRIVER[0] && (in_drivers as f64) < IN_DRIVER_LEAST * all as f64 {
        return Err(format!("drivers forwarded {in_drivers} of {all} datagrams"));
    }
    bench.sample(key, "ms", p99(gaps).ok_or("no data plane was killed")?);
    #[expect(clippy::cast_precision_loss, reason = "a few")]
    bench.sample(lost_key, "datagrams", lost as f64);
    Ok(())
}

/// Resident memory of both processes.
fn memory(bench: &mut Bench, planes: &TwoPlanes<'_>) -> Result<(), String> {
    let control = planes.start()?;
    sleep(SETTLE);
    let id = control.id().ok_or("the gateway has ended")?;
    // The data plane's number out here: the child of the control plane.
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).map_err(text)?;
    let mut all = children.split_whitespace().filter_map(|child| child.parse().ok());
    let data: u32 = all.next().ok_or("the control plane has no child")?;
    let [own, datas] = [resident_kib(id)? / 1024.0, resident_kib(data)? / 1024.0];
    bench.sample("idle_rss_two_mib", "MiB", own + datas);
    bench.sample("idle_rss_control_mib", "MiB", own);
    bench.sample("idle_rss_data_mib", "MiB", datas);
    end(planes, Some(control))
}

pub(crate) fn run(options: Options) -> Result<Bench, String> {
    let mut bench = Bench::new("planes", options);
    let missing =
        Needs::new().namespaces().program("ethtool").missing().map(|missing| missing.to_string());
    let binary = match missing.map_or_else(binary, Err) {
        Ok(binary) => binary,
        Err(why) => {
            for (key, bound) in PROMISES {
                bench.skip(key, Relation::AtMost, bound, &why);
            }
            bench.skip(RATE_RATIO.0, Relation::AtLeast, RATE_RATIO.1, &why);
            routes::skip(&mut bench, &why);
            under_load::skip(&mut bench, &why);
            return Ok(bench);
        }
    };
    let network = TestNetwork::new().map_err(text)?;
    let folder = std::env::temp_dir().join(format!("gatewright-planes-{}", std::process::id()));
    let by_packet = TwoPlanes::new(&network, &binary, &folder, BY_PACKET)?;
    let by_xdp = TwoPlanes::new(&network, &binary, &folder, BY_XDP)?;
    let by_driver = TwoPlanes::new(&network, &binary, &folder, BY_DRIVER)?;
    let kills = if options.quick { 10 } else { 100 };
    let results = [
        control_kills(&mut bench, &by_packet, kills),
        data_kills(&mut bench, &by_packet, (GAPS, kills)),
        data_kills(&mut bench, &by_xdp, (GAPS_XDP, kills)),
        network.suit_drivers().map_err(text),
        data_kills(&mut bench, &by_driver, (GAPS_DRIVER, kills)),
        memory(&mut bench, &by_packet),
        routes::measure(&mut bench),
        under_load::measure(&mut bench),
    ];
    fs::remove_dir_all(&folder).map_err(text)?;
    for problem in results.into_iter().filter_map(Result::err) {
        bench.note(problem);
    }
    for (key, bound) in PROMISES {
        bench.promise(key, Relation::AtMost, bound);
    }
    bench.promise(RATE_RATIO.0, Relation::AtLeast, RATE_RATIO.1);
    routes::promise(&mut bench);
    under_load::promise(&mut bench);
    bench.note(
        "control_kills_lost: at most 192 datagrams are on their way, fewer than any queue holds, so that \
         a data plane which stands still loses none: the rate and the gap tell of it; adoption: from \
         the look for the data plane until routes are in force, without the start of the process",
    );
    bench.note(
        "data_kills_lost: datagrams of all kills that never came, by packet sockets, by AF_XDP (xdp) and \
         forwarded in drivers (driver); of those that arrive without a data plane, 1024 wait at each link",
    );
    bench.note(
        "gap: the longest time without an arrival, at 100,000 datagrams a second from a kill of the \
         control plane to the next, and of the data plane with one datagram sent every ms; promised is the \
         99th of a hundred kills, or the largest of fewer; each: the gaps themselves",
    );
    Ok(bench)
}
