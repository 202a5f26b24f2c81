//! `bench web`: what a hundred viewers of the stream cost a gateway that forwards, how soon they see an
//! event, and how much memory they take.
//!
//! The gateway has one core, with its web interface; sender, receiver and viewers have the other. So
//! what they cost is taken from the data path.

use crate::binary;
use crate::footprint::{RECEIVER, TestNetwork};
use crate::gateway::world::{GATEWAY_CPU, SENDER_CPU, pin};
use crate::process::{anonymous_kib, processor, resident_kib, text};
use bench::{Bench, Options, Relation};
use gatewright_testbed::{Needs, Process, wait_until};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The promises: key, relation, bound.
const PROMISES: [(&str, Relation, f64); 4] = [
    ("web_viewers_pps_ratio", Relation::AtLeast, 0.99),
    ("web_viewers_cpu_pct", Relation::AtMost, 1.0),
    ("web_stream_p99_ms", Relation::AtMost, 200.0),
    ("web_rss_mib", Relation::AtMost, 6.0),
];

/// What two windows without viewers differ by: of which promise, its key, and its value if they do not.
const NOISES: [(&str, &str, f64); 2] = [
    ("web_viewers_pps_ratio", "web_viewers_pps_noise_ratio", 1.0),
    ("web_viewers_cpu_pct", "web_viewers_cpu_noise_pct", 0.0),
];

/// Viewers of the stream.
const VIEWERS: usize = 100;
/// How long each window takes, and how many pairs of them a round has.
const WINDOW: Duration = Duration::from_secs(2);
const WINDOW_QUICK: Duration = Duration::from_secs(1);
const PAIRS: usize = 3;
/// Events that are logged in a round: fewer of a kind than the log takes at once.
const EVENTS: usize = 15;
/// Between two of them.
const EVENT_EVERY: Duration = Duration::from_millis(60);
/// How long a gateway has to come up, viewers to have a snapshot, and events to come.
const WITHIN: Duration = Duration::from_secs(20);
/// How long a gateway is left alone before its memory is looked at.
const SETTLE: Duration = Duration::from_millis(500);
/// How long after its start: it lets go what only the start has used after five seconds, and with
/// viewers it would have that, too, if it was looked at before.
const SETTLE_START: Duration = Duration::from_secs(8);
/// The type of a snapshot in the stream.
const SNAPSHOT: &str = "event: snapshot\n";
/// What an event of this benchmark says before its number.
const MARK: &str = "bench-event-";

pub(crate) fn run(options: Options) -> Result<Bench, String> {
    let mut bench = Bench::new("web", options);
    if let Some(missing) = Needs::new().namespaces().missing() {
        for (key, relation, bound) in PROMISES {
            bench.skip(key, relation, bound, &missing.to_string());
        }
        return Ok(bench);
    }
    let binary = binary()?;
    let mut problems = Vec::new();
    for _round in 0..options.rounds() {
        let window = options.pick(WINDOW, WINDOW_QUICK);
        if let Err(problem) = round(&mut bench, &binary, window) {
            problems.push(problem);
        }
    }
    bench.ratio("web_viewers_pps_ratio", "viewed_pps", "quiet_pps");
    bench.ratio("web_viewers_pps_noise_ratio", "quiet_again_pps", "quiet_pps");
    bench.difference("web_viewers_cpu_pct", "viewed_cpu_pct", "quiet_cpu_pct");
    bench.difference("web_viewers_cpu_noise_pct", "quiet_again_cpu_pct", "quiet_cpu_pct");
    bench.difference("web_rss_mib", "viewed_rss_mib", "idle_rss_mib");
    bench.difference("web_anonymous_mib", "viewed_anonymous_mib", "idle_anonymous_mib");
    for (key, relation, bound) in PROMISES {
        let noise = NOISES.iter().find(|(of, ..)| *of == key);
        match noise {
            Some(&(_, noise, same)) => {
                bench.promise_beside_noise((key, relation, bound), (noise, same));
            }
            None => bench.promise(key, relation, bound),
        }
    }
    bench.note(
        "the gateway and its web interface share a core; sender, receiver and 100 viewers share the \
         other; windows with and without viewers alternate; the processor time is that at no load; \
         noise: the same of two windows without viewers, and what is nearer to its bound than that is \
         not judged; memory: eight seconds after the start, and when each viewer has its snapshot and \
         all events; anonymous: what of it is no file's; the viewers come by a Unix socket, without \
         TLS and without a token",
    );
    for problem in problems {
        bench.note(problem);
    }
    Ok(bench)
}

/// A running gateway with a web interface at a Unix socket, which is reached from any namespace.
struct WebGateway {
    process: Process,
    control: PathBuf,
    web: PathBuf,
    folder: PathBuf,
}

impl WebGateway {
    fn start(network: &TestNetwork, binary: &Path) -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("gatewright-web-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(text)?;
        let [file, control, web] =
            ["gateway.toml", "gateway.sock", "web.sock"].map(|name| folder.join(name));
        let link = |name: &str, device: &str, address: &str| {
            format!("[link.{name}]\ndevice = \"{device}\"\naddresses = [\"{address}\"]\n")
        };
        let description = format!(
            "[gateway]\nname = \"web\"\n[web]\nlisten = \"unix:{}\"\n{}{}",
            web.display(),
            link("lan", "g0", "10.72.1.1/24"),
            link("wan", "g1", "10.72.2.1/24")
        );
        fs::write(&file, description).map_err(text)?;
        let run = ["run".as_ref(), file.as_os_str(), "--socket".as_ref(), control.as_os_str()];
        let core = GATEWAY_CPU.to_string();
        let command = network.gateway.command("taskset").args(["-c", core.as_str()]).arg(binary);
        let log = fs::File::create(folder.join("log")).map_err(text)?;
        let command = command.args(run).stdout(log.try_clone().map_err(text)?).stderr(log);
        let process = command.spawn().map_err(text)?;
        let gateway = Self { process, control, web, folder };
        if wait_until(WITHIN, || UnixStream::connect(&gateway.web).is_ok()) {
            return Ok(gateway);
        }
        let said = fs::read_to_string(gateway.folder.join("log")).unwrap_or_default();
        gateway.end();
        Err(format!("the gateway does not come up: {said}"))
    }

    fn end(self) {
        self.process.kill();
        let _gone = fs::remove_dir_all(&self.folder);
    }

    fn id(&self) -> Result<u32, String> {
        self.process.id().ok_or_else(|| "the gateway has ended".to_owned())
    }

    /// Its resident memory in all, and what of it is no file's.
    fn memory_mib(&self, after: Duration) -> Result<[f64; 2], String> {
        sleep(after);
        let id = self.id()?;
        Ok([resident_kib(id)? / 1024.0, anonymous_kib(id)? / 1024.0])
    }

    /// Has the gateway log an event with this number.
    fn log(&self, number: usize) -> Result<(), String> {
        let mut stream = UnixStream::connect(&self.control).map_err(text)?;
        stream.set_read_timeout(Some(WITHIN)).map_err(text)?;
        let request = json!({ "do": "log-refused", "why": format!("{MARK}{number}") });
        writeln!(stream, "{request}").map_err(text)?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).map_err(text)?;
        if answer.starts_with("{\"ok\":") { Ok(()) } else { Err(answer) }
    }
}

/// Viewers of the stream, all read by one thread.
struct Viewers {
    streams: Vec<UnixStream>,
    /// What each has read of its last lines.
    rests: Vec<String>,
    /// Which have their snapshot.
    begun: Vec<bool>,
}

impl Viewers {
    fn begin(gateway: &WebGateway) -> Result<Self, String> {
        let streams: Result<Vec<_>, String> = (0..VIEWERS)
            .map(|_| {
                let mut stream = UnixStream::connect(&gateway.web).map_err(text)?;
                let request = b"GET /api/v1/stream HTTP/1.1\r\nHost: gateway\r\n\r\n";
                stream.write_all(request).map_err(text)?;
                stream.set_nonblocking(true).map_err(text)?;
                Ok(stream)
            })
            .collect();
        let mut viewers = Self {
            streams: streams?,
            rests: vec![String::new(); VIEWERS],
            begun: vec![false; VIEWERS],
        };
        let began = Instant::now();
        while viewers.begun.contains(&false) {
            if began.elapsed() > WITHIN {
                let begun = viewers.begun.iter().filter(|begun| **begun).count();
                return Err(format!("only {begun} viewers have a snapshot"));
            }
            viewers.read(&mut |_| ())?;
        }
        Ok(viewers)
    }

    /// Reads what is there; tells the number of each event of this benchmark.
    fn read(&mut self, met: &mut impl FnMut(usize)) -> Result<(), String> {
        let mut fds: Vec<_> =
            self.streams.iter().map(|it| PollFd::new(it.as_fd(), PollFlags::POLLIN)).collect();
        poll(&mut fds, PollTimeout::from(20_u8)).map_err(text)?;
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        let mut octets = vec![0; 256 * 1024];
        let all = self.streams.iter_mut().zip(&mut self.rests).zip(&mut self.begun).zip(ready);
        for (((stream, rest), begun), _) in all.filter(|(_, is_ready)| *is_ready) {
            match stream.read(&mut octets) {
                Ok(0) => return Err("the gateway ended a stream".to_owned()),
                Ok(count) => {
                    let read = octets.get(..count).unwrap_or_default();
                    rest.push_str(&String::from_utf8_lossy(read));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error.to_string()),
            }
            let Some(end) = rest.rfind('\n') else { continue };
            let lines: String = rest.drain(..=end).collect();
            *begun |= lines.contains(SNAPSHOT);
            for line in lines.lines().filter(|line| line.starts_with("data: ")) {
                let number = line.split(MARK).nth(1).unwrap_or_default();
                let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
                // A snapshot has events, too: only those of this round's numbers are told.
                if let Ok(number) = digits.parse() {
                    met(number);
                }
            }
        }
        Ok(())
    }
}

/// How long events take to each viewer, in milliseconds.
fn latencies(gateway: &WebGateway, viewers: &mut Viewers) -> Result<Vec<f64>, String> {
    let mut logged: Vec<Instant> = Vec::new();
    let mut found = Vec::new();
    let began = Instant::now();
    while found.len() < EVENTS * VIEWERS {
        if began.elapsed() > WITHIN {
            return Err(format!("only {} of {} events came", found.len(), EVENTS * VIEWERS));
        }
        let is_due = logged.last().is_none_or(|last| last.elapsed() >= EVENT_EVERY);
        if is_due && logged.len() < EVENTS {
            logged.push(Instant::now());
            gateway.log(logged.len() - 1)?;
        }
        viewers.read(&mut |number| {
            let took = logged.get(number).map(Instant::elapsed);
            found.extend(took.map(|took| took.as_secs_f64() * 1e3));
        })?;
    }
    Ok(found)
}

/// Datagrams a second at the receiver in a window; viewers, if any, are read meanwhile.
fn rate(
    arrived: &AtomicU64,
    window: Duration,
    mut viewers: Option<&mut Viewers>,
) -> Result<f64, String> {
    let (began, before) = (Instant::now(), arrived.load(Ordering::Relaxed));
    while began.elapsed() < window {
        match &mut viewers {
            Some(viewers) => viewers.read(&mut |_| ())?,
            None => sleep(Duration::from_millis(20)),
        }
    }
    let arrived = arrived.load(Ordering::Relaxed) - before;
    Ok(f64::from(u32::try_from(arrived).unwrap_or(u32::MAX)) / began.elapsed().as_secs_f64())
}

/// Processor time of a gateway in a window, of one processor's; viewers, if any, are read meanwhile.
fn processor_pct(
    gateway: &WebGateway,
    window: Duration,
    viewers: Option<&mut Viewers>,
) -> Result<f64, String> {
    let (began, before) = (Instant::now(), processor(gateway.id()?)?);
    rate(&AtomicU64::new(0), window, viewers)?;
    let spent = processor(gateway.id()?)?.saturating_sub(before);
    Ok(100.0 * spent.as_secs_f64() / began.elapsed().as_secs_f64())
}

fn round(bench: &mut Bench, binary: &Path, window: Duration) -> Result<(), String> {
    let network = TestNetwork::new().map_err(text)?;
    let gateway = WebGateway::start(&network, binary)?;
    let found = measure(bench, &network, &gateway, window);
    gateway.end();
    found
}

fn measure(
    bench: &mut Bench,
    network: &TestNetwork,
    gateway: &WebGateway,
    window: Duration,
) -> Result<(), String> {
    let [idle, anonymous] = gateway.memory_mib(SETTLE_START)?;
    bench.sample("idle_rss_mib", "MiB", idle);
    bench.sample("idle_anonymous_mib", "MiB", anonymous);
    bench.sample("quiet_cpu_pct", "%", processor_pct(gateway, window, None)?);
    bench.sample("quiet_again_cpu_pct", "%", processor_pct(gateway, window, None)?);
    let mut viewers = Viewers::begin(gateway)?;
    bench.sample("viewed_cpu_pct", "%", processor_pct(gateway, window, Some(&mut viewers))?);
    let mut found = latencies(gateway, &mut viewers)?;
    found.sort_by(f64::total_cmp);
    let p99 = found.get(found.len() * 99 / 100).copied().unwrap_or(f64::INFINITY);
    bench.sample("web_stream_p99_ms", "ms", p99);
    let [viewed, anonymous] = gateway.memory_mib(SETTLE)?;
    bench.sample("viewed_rss_mib", "MiB", viewed);
    bench.sample("viewed_anonymous_mib", "MiB", anonymous);
    drop(viewers);
    let (arrived, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let socket = network.receiver.run(|| UdpSocket::bind(RECEIVER)).map_err(text)?.map_err(text)?;
    socket.set_read_timeout(Some(Duration::from_millis(50))).map_err(text)?;
    std::thread::scope(|scope| {
        let receives = scope.spawn(|| pin(SENDER_CPU).map(|()| receive(&socket, &arrived, &stop)));
        let sends = scope.spawn(|| network.sender.run(|| pin(SENDER_CPU).map(|()| send(&stop))));
        sleep(SETTLE);
        let rates = (0..PAIRS).try_for_each(|_| {
            let quiet = rate(&arrived, window, None)?;
            if quiet == 0.0 {
                return Err("no datagram arrives through the gateway".to_owned());
            }
            bench.sample("quiet_pps", "packets/s", quiet);
            bench.sample("quiet_again_pps", "packets/s", rate(&arrived, window, None)?);
            let mut viewers = Viewers::begin(gateway)?;
            bench.sample("viewed_pps", "packets/s", rate(&arrived, window, Some(&mut viewers))?);
            Ok::<_, String>(())
        });
        stop.store(true, Ordering::Relaxed);
        receives.join().map_err(|_| "the receiver panicked")??;
        sends.join().map_err(|_| "the sender panicked")?.map_err(text)???;
        rates
    })
}

/// Sends without a pause.
fn send(stop: &AtomicBool) -> Result<(), String> {
    let socket = UdpSocket::bind("10.72.1.2:0").map_err(text)?;
    while !stop.load(Ordering::Relaxed) {
        // A full queue is a reason to go on.
        let _sent = socket.send_to(&[0x5a; 18], RECEIVER);
    }
    Ok(())
}

fn receive(socket: &UdpSocket, arrived: &AtomicU64, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        if socket.recv(&mut [0; 64]).is_ok() {
            arrived.fetch_add(1, Ordering::Relaxed);
        }
    }
}
