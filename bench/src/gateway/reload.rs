//! Delay and loss of datagrams while reloads open and close another link, and how soon the page of
//! metrics comes meanwhile. The gateway is the command as users run it.

use super::Problems;
use super::world::{GATEWAY_CPU, SENDER_CPU, number, pin};
use crate::binary;
use crate::footprint::{RECEIVER, TestNetwork};
use crate::process::text;
use bench::{Bench, Relation};
use gatewright_histogram::Histogram;
use gatewright_testbed::{Process, Veth, wait_until};
use nix::cmsg_space;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, recvmsg, setsockopt,
    sockopt::{RcvBufForce, ReceiveTimestampns},
};
use nix::sys::time::TimeSpec;
use serde_json::json;
use std::fs;
use std::io::{self, BufRead, BufReader, IoSliceMut, Read, Write};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The promises, each at most this.
pub(super) const PROMISES: [(&str, f64); 3] = [
    ("reload_open_added_p99_ms", 2.0),
    ("reload_open_lost", 0.0),
    ("metrics_during_reload_ms", 50.0),
];

/// Datagrams that leave together, and how often: 100,000 a second.
const BURST: usize = 10;
const EVERY: Duration = Duration::from_micros(100);
/// A sender that is later than this does not make up for it.
const LATE: Duration = Duration::from_millis(5);
/// Octets of a datagram: its phase, when it was sent, and filling.
const PAYLOAD: usize = 64;

/// How long each phase takes.
const WARM_UP: Duration = Duration::from_millis(500);
const WINDOW: Duration = Duration::from_secs(2);
const WINDOW_QUICK: Duration = Duration::from_millis(600);
/// How long what is on its way has to arrive.
const DRAIN: Duration = Duration::from_millis(100);

/// The pause after each reload, and after each page.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a gateway has to come up, and to answer.
const WITHIN: Duration = Duration::from_secs(10);
/// Room for a second of datagrams: what the receiver has no time for is not lost by the gateway.
const RECEIVE_BUFFER: usize = 64 * 1024 * 1024;

/// Whether the page of metrics has the link that reloads open and close.
const THIRD: &str = "link=\"third\"";
/// Datagrams of a phase at least: a sender that is kept from its pace has nothing to lose.
const SENT_MIN: u64 = 1000;

/// The phases of a round; a datagram says in which it was sent.
const QUIET: usize = 1;
const RELOADS: usize = 2;
const PHASES: usize = 3;

pub(super) fn measure(bench: &mut Bench, problems: &Problems) {
    let binary = match binary() {
        Ok(binary) => binary,
        Err(why) => {
            for (key, bound) in PROMISES {
                bench.skip(key, Relation::AtMost, bound, &why);
            }
            return;
        }
    };
    let options = bench.options();
    let window = options.pick(WINDOW, WINDOW_QUICK);
    for _round in 0..options.rounds() {
        match round(&binary, window) {
            Ok(found) => found.tell(bench),
            Err(problem) => problems.borrow_mut().push(format!("reload: {problem}")),
        }
    }
    let [open, quiet] = ["reload_open_p99_ms", "reload_quiet_p99_ms"];
    bench.difference("reload_open_added_p99_ms", open, quiet);
    for (key, bound) in PROMISES {
        bench.promise(key, Relation::AtMost, bound);
    }
    bench.note(
        "reload: 100,000 datagrams a second, ten at a time, from a socket to the kernel's stamp at \
         the receiver, while reloads open and close a third link; the page is asked for meanwhile, \
         and the longest time counts",
    );
}

/// What a round found.
struct Round {
    delays: [Histogram; PHASES],
    sent: [u64; PHASES],
    reloads: usize,
    longest_page: Duration,
}

impl Round {
    fn tell(&self, bench: &mut Bench) {
        for (phase, p99, lost) in [
            (QUIET, "reload_quiet_p99_ms", "reload_quiet_lost"),
            (RELOADS, "reload_open_p99_ms", "reload_open_lost"),
        ] {
            let (Some(delays), Some(&sent)) = (self.delays.get(phase), self.sent.get(phase)) else {
                continue;
            };
            let within = delays.quantile(99, 100).unwrap_or_default();
            bench.sample(p99, "ms", Duration::from_nanos(within).as_secs_f64() * 1e3);
            bench.sample(lost, "datagrams", number(sent.saturating_sub(delays.count())));
        }
        bench.sample("metrics_during_reload_ms", "ms", self.longest_page.as_secs_f64() * 1e3);
        bench.sample("reload_open_reloads", "", number(self.reloads as u64));
    }
}

/// A running gateway and its two sockets.
struct RunningGateway {
    process: Process,
    socket: PathBuf,
    page: PathBuf,
    /// The description with the third link, and that without it.
    descriptions: [String; 2],
}

fn round(binary: &Path, window: Duration) -> Result<Round, String> {
    let network = TestNetwork::new().map_err(text)?;
    let third = Veth::pair(&network.receiver, "x0", &network.gateway, "g2").map_err(text)?;
    third.up().map_err(text)?;
    let folder = std::env::temp_dir().join(format!("gatewright-reload-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(text)?;
    let gateway = start(&network, binary, &folder)?;
    let found = run(&network, &gateway, window);
    gateway.process.kill();
    fs::remove_dir_all(&folder).map_err(text)?;
    found
}

fn start(network: &TestNetwork, binary: &Path, folder: &Path) -> Result<RunningGateway, String> {
    let (file, socket, page) =
        (folder.join("gateway.toml"), folder.join("gateway.sock"), folder.join("metrics.sock"));
    let link = |name: &str, device: &str, address: &str| {
        format!(
            "[link.{name}]\ndevice = \"{device}\"\nmode = \"xdp\"\naddresses = [\"{address}\"]\n"
        )
    };
    let two = format!(
        "[gateway]\nname = \"reload\"\n[control]\nmetrics = \"unix:{}\"\n{}{}",
        page.display(),
        link("lan", "g0", "10.72.1.1/24"),
        link("wan", "g1", "10.72.2.1/24")
    );
    let three = format!("{two}{}", link("third", "g2", "10.72.3.1/24"));
    fs::write(&file, &two).map_err(text)?;
    let run = ["run".as_ref(), file.as_os_str(), "--socket".as_ref(), socket.as_os_str()];
    let core = GATEWAY_CPU.to_string();
    let command = network.gateway.command("taskset").args(["-c", core.as_str()]).arg(binary);
    let log = fs::File::create(folder.join("log")).map_err(text)?;
    let process = command.args(run).stdout(log.try_clone().map_err(text)?).stderr(log);
    let process = process.spawn().map_err(text)?;
    let gateway = RunningGateway { process, socket, page, descriptions: [three, two] };
    if wait_until(WITHIN, || gateway.page().is_ok()) {
        return Ok(gateway);
    }
    let said = fs::read_to_string(folder.join("log")).unwrap_or_default();
    gateway.process.kill();
    Err(format!("the gateway does not come up: {said}"))
}

impl RunningGateway {
    /// The page of metrics, and how long it takes.
    fn page(&self) -> Result<(String, Duration), String> {
        let asked = Instant::now();
        let mut stream = UnixStream::connect(&self.page).map_err(text)?;
        stream.set_read_timeout(Some(WITHIN)).map_err(text)?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: gateway\r\n\r\n").map_err(text)?;
        let mut page = String::new();
        stream.read_to_string(&mut page).map_err(text)?;
        if page.ends_with("# EOF\n") { Ok((page, asked.elapsed())) } else { Err(page) }
    }

    fn reload(&self, description: &str) -> Result<(), String> {
        let mut stream = UnixStream::connect(&self.socket).map_err(text)?;
        stream.set_read_timeout(Some(WITHIN)).map_err(text)?;
        let request = json!({ "do": "reload", "text": description });
        writeln!(stream, "{request}").map_err(text)?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).map_err(text)?;
        if answer.starts_with("{\"ok\":") { Ok(()) } else { Err(answer) }
    }

    /// Reloads by turns until `end`; how often.
    fn reload_until(&self, end: Instant) -> Result<usize, String> {
        let mut reloads = 0;
        // An even number: the third link is closed at the end.
        while Instant::now() < end {
            for (description, is_open) in self.descriptions.iter().zip([true, false]) {
                self.reload(description)?;
                reloads += 1;
                sleep(PAUSE);
                if self.page()?.0.contains(THIRD) != is_open {
                    let not = if is_open { " not" } else { "" };
                    return Err(format!("the third link is{not} there after a reload"));
                }
            }
        }
        Ok(reloads)
    }

    /// Asks for the page until `end`; the longest time.
    fn pages_until(&self, end: Instant) -> Result<Duration, String> {
        let mut longest = Duration::ZERO;
        while Instant::now() < end {
            longest = longest.max(self.page()?.1);
            sleep(PAUSE);
        }
        Ok(longest)
    }
}

/// The quiet phase, then that with reloads.
fn run(network: &TestNetwork, gateway: &RunningGateway, window: Duration) -> Result<Round, String> {
    let (phase, is_over) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let sent: [AtomicU64; PHASES] = std::array::from_fn(|_| AtomicU64::new(0));
    let socket = network.receiver.run(receiver).map_err(text)?.map_err(text)?;
    let (delays, reloads, longest_page) = std::thread::scope(|scope| {
        let receives = scope.spawn(|| pin(SENDER_CPU).and_then(|()| receive(&socket, &is_over)));
        let sends = scope.spawn(|| {
            network.sender.run(|| pin(SENDER_CPU).and_then(|()| send(&phase, &sent).map_err(text)))
        });
        sleep(WARM_UP);
        phase.store(QUIET, Ordering::SeqCst);
        sleep(window);
        phase.store(RELOADS, Ordering::SeqCst);
        let end = Instant::now() + window;
        let pages = scope.spawn(move || gateway.pages_until(end));
        let reloads = gateway.reload_until(end);
        let longest = pages.join().map_err(|_| "the reader of pages panicked".to_owned());
        phase.store(PHASES, Ordering::SeqCst);
        let sent = sends.join().map_err(|_| "the sender panicked".to_owned());
        sleep(DRAIN);
        is_over.store(1, Ordering::SeqCst);
        let delays = receives.join().map_err(|_| "the receiver panicked".to_owned())??;
        sent?.map_err(text)??;
        Ok::<_, String>((delays, reloads?, longest??))
    })?;
    let sent = sent.map(AtomicU64::into_inner);
    if let Some(few) =
        [QUIET, RELOADS].iter().filter_map(|at| sent.get(*at)).find(|it| **it < SENT_MIN)
    {
        return Err(format!("only {few} datagrams were sent in a phase"));
    }
    Ok(Round { delays, sent, reloads, longest_page })
}

/// The receiver's socket, with the kernel's stamps.
fn receiver() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(RECEIVER)?;
    setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER)?;
    setsockopt(&socket, ReceiveTimestampns, &true)?;
    socket.set_read_timeout(Some(PAUSE))?;
    Ok(socket)
}

/// Sends at the pace until all phases are over.
fn send(phase: &AtomicUsize, sent: &[AtomicU64; PHASES]) -> io::Result<()> {
    let socket = UdpSocket::bind("10.72.1.2:0")?;
    let mut next = Instant::now();
    loop {
        let now = phase.load(Ordering::SeqCst);
        let Some(count) = sent.get(now) else { return Ok(()) };
        let number = now as u64;
        for _ in 0..BURST {
            let mut datagram = [0x5a; PAYLOAD];
            let head = number.to_be_bytes().into_iter().chain(real_time().to_be_bytes());
            datagram.iter_mut().zip(head).for_each(|(to, octet)| *to = octet);
            socket.send_to(&datagram, RECEIVER)?;
        }
        count.fetch_add(BURST as u64, Ordering::SeqCst);
        next += EVERY;
        let now = Instant::now();
        if next + LATE < now {
            next = now;
        }
        sleep(next.saturating_duration_since(now));
    }
}

/// Nanoseconds of the clock of the kernel's stamps.
fn real_time() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Delays of what arrives, by phase, until it is over and nothing more comes.
fn receive(socket: &UdpSocket, is_over: &AtomicUsize) -> Result<[Histogram; PHASES], String> {
    let mut delays: [Histogram; PHASES] = Default::default();
    let mut octets = [0; PAYLOAD];
    let mut space = cmsg_space!(TimeSpec);
    loop {
        let mut parts = [IoSliceMut::new(&mut octets)];
        let arrived =
            recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::empty());
        let stamp = match arrived {
            Ok(message) => message.cmsgs().map_err(text)?.find_map(|message| match message {
                ControlMessageOwned::ScmTimestampns(stamp) => Some(Duration::from(stamp)),
                _ => None,
            }),
            Err(nix::errno::Errno::EAGAIN) if is_over.load(Ordering::SeqCst) > 0 => {
                return Ok(delays);
            }
            Err(nix::errno::Errno::EAGAIN) => continue,
            Err(errno) => return Err(errno.to_string()),
        };
        let stamp = stamp.ok_or("the kernel gives no stamp")?;
        let ([phase, sent], _) =
            octets.as_chunks::<8>().0.split_first_chunk().ok_or("too short")?;
        let sent = Duration::from_nanos(u64::from_be_bytes(*sent));
        let phase = usize::try_from(u64::from_be_bytes(*phase)).unwrap_or(PHASES);
        if let Some(delays) = delays.get_mut(phase) {
            delays.add(stamp.saturating_sub(sent));
        }
    }
}
