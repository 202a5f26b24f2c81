//! A data plane in a process of its own between two kernels: it goes on without its control plane,
//! which adopts it; it runs again when it is killed; nothing is left in the end.
//!
//! This test is its own child: with [`SERVES`] in its environment it is the data plane, with
//! [`CONTROLS`] the control plane.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

#[expect(dead_code, reason = "this flow is bounded")]
mod numbered;

use gatewright_data::HandlerValue;
use gatewright_link::Backend;
use gatewright_packet::LinkIndex;
use gatewright_part::EventSink;
use gatewright_planes::{Placement, Planes, PlanesError, ProcessSetup, Setup};
use gatewright_stack::{At, Attachment, Place, builtin::Match};
use gatewright_testbed::{Namespace, Needs, Process, TwoSubnets, Veth, wait_until};
use gatewright_wire::EtherType;
use libtest_mimic::{Arguments, Failed, Trial};
use numbered::{Flight, Passed, Progress};
use std::{
    io::{BufRead, BufReader, ErrorKind, Write, stdin},
    net::{Ipv4Addr, UdpSocket},
    process::{ChildStdin, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    time::{Duration, Instant},
};

const SERVES: &str = "GATEWRIGHT_PLANES_TEST_SERVES";
const CONTROLS: &str = "GATEWRIGHT_PLANES_TEST_CONTROLS";
/// Milliseconds from when a control plane has found its data plane until it kills that; with 0 it is dead
/// before it is adopted.
const KILLS: &str = "GATEWRIGHT_PLANES_TEST_KILLS";
const KILLED_AFTER_MS: [u64; 6] = [0, 1, 3, 10, 30, 100];
const WITHIN: Duration = Duration::from_mins(1);
/// Datagrams after a kill, of which none may be lost.
const DATAGRAMS: u32 = 2000;
/// Datagrams that are sent before the first of them is read.
const AT_ONCE: u32 = 32;
/// Names of data planes, whose links are packet sockets, by AF_XDP, or by AF_XDP with drivers that
/// forward.
const PACKET_SOCKETS: &str = "sockets";
const XDP: &str = "xdp";
const DRIVERS: &str = "drivers";
/// As [`DRIVERS`], and a handler limits what passes.
const LIMITED: &str = "limited";
/// Datagrams that pass the limit by each control plane's handler, which has no rate: no clock decides.
const LIMIT: u32 = 20;
/// Control planes that adopt the data plane whose handler limits.
const ADOPTIONS: usize = 3;
/// Datagrams that drivers have dropped when it is certain that they limit.
const LIMITED_MIN: u64 = 200;
/// Time between two datagrams of a flow that is limited.
const LIMITED_EVERY: Duration = Duration::from_micros(50);
/// Datagrams between two kills.
const BETWEEN: u32 = 2000;
/// Datagrams on their way at once that each queue holds.
const HELD: u32 = 200;
/// Datagrams that are sent while there is no data plane.
const WAITING: u32 = 200;
/// Datagrams meanwhile for the gateway's own socket.
const OWN_WAITING: u32 = 20;
/// Deaths of the data plane: after five within a minute it is not started again.
const DEATHS: u32 = 3;
/// Time in which a process that is killed does nothing more.
const DEAD_WITHIN: Duration = Duration::from_millis(20);
const SOUTH: &str = "10.10.2.2:7100";
/// A socket of the gateway's own stack.
const OWN: &str = "10.10.1.1:7102";
/// Where a handler of the gateway drops what is sent.
const FORBIDDEN: (&str, u16) = ("10.10.2.2", 7101);

fn main() {
    if std::env::var_os(SERVES).is_some() {
        return gatewright_planes::serve_data_plane().unwrap();
    }
    if let Ok(name) = std::env::var(CONTROLS) {
        return control(&name);
    }
    let trial = |name: &str, test: fn() -> Result<(), Failed>, needs: Needs| match needs.missing() {
        None => Trial::test(name, test),
        Some(missing) => {
            Trial::test(format!("{name} (needs {missing})"), || Ok(())).with_ignored_flag(true)
        }
    };
    let drivers = || Needs::new().namespaces().program("ethtool").linux(6, 8);
    let trials = vec![
        trial(
            "a_data_plane_goes_on_without_its_control_plane_and_is_adopted",
            || goes_on(PACKET_SOCKETS),
            Needs::new().namespaces(),
        ),
        trial(
            "the_same_by_af_xdp",
            || goes_on(XDP),
            // Rings of a bound socket are mapped again.
            Needs::new().namespaces().linux(6, 4),
        ),
        trial("what_drivers_forward_goes_on_without_either_plane", drivers_go_on, drivers()),
        trial(
            "a_data_plane_that_dies_during_its_adoption_is_started_again",
            || dies_during_adoption(PACKET_SOCKETS),
            drivers(),
        ),
        trial("the_same_with_drivers_that_forward", || dies_during_adoption(DRIVERS), drivers()),
        trial("a_limit_of_drivers_holds_while_their_maps_are_exchanged", limit_holds, drivers()),
        trial(
            "socket_names_of_other_users_are_events",
            names_are_held,
            Needs::new().namespaces().program("python3"),
        ),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// The control plane: says what happens, and ends with its standard input.
fn control(name: &str) {
    let own = std::env::current_exe().unwrap().into_os_string();
    let mut setup = Setup::new(7);
    setup.waits = true;
    setup.process = Some(ProcessSetup {
        program: "env".into(),
        arguments: vec!["-u".into(), CONTROLS.into(), format!("{SERVES}=1").into(), own],
        name: name.to_owned(),
    });
    for (link, device, net) in [("lan", "g0", 1), ("wan", "g1", 2)] {
        let link = setup.link(link, device).address(Ipv4Addr::new(10, 10, net, 1), 24);
        match name {
            DRIVERS | LIMITED => link.backend(Backend::Xdp).forward_in_driver(),
            XDP => link.backend(Backend::Xdp),
            _ => link.backend(Backend::PacketSocket),
        };
    }
    let log = EventSink::new(|event| println!("event {}: {}", event.kind, event.text));
    match open(&setup, log) {
        Ok(planes) => {
            // As a gateway does: until then packets wait, and those of drivers go to the graph.
            planes.commit(planes.prepare(vec![handler(name)]).unwrap()).unwrap();
            let (socket, received) =
                (planes.sockets().bind(OWN.parse().unwrap()), AtomicU32::new(0));
            let socket = socket.unwrap();
            planes.begin().unwrap();
            println!("runs {} {}", planes.data_process().unwrap(), planes.is_adopted());
            socket.set_read_timeout(Some(Duration::from_millis(100)));
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        let came = socket.recv_from(&mut [0; 16]).is_ok();
                        received.fetch_add(u32::from(came), Ordering::Relaxed);
                    }
                });
                answer(&planes, &received);
                is_over.store(true, Ordering::Relaxed);
            });
            drop(planes);
            println!("ended");
        }
        Err(error) => println!("refused {error}"),
    }
}

/// The handler of a gateway.
fn handler(name: &str) -> Placement {
    if name == LIMITED {
        let at = Attachment::new(At::EtherType(EtherType::IPV4), Place::Before);
        let at = Attachment { link: Some(LinkIndex(0)), ..at };
        return Placement::Described(at, HandlerValue::RateLimit { rate: 0, burst: LIMIT });
    }
    let which = Match { port: Some(FORBIDDEN.1), ..Match::default() };
    let at = Attachment::new(At::Frame, Place::Before);
    Placement::Described(at, HandlerValue::Drop { which })
}

/// Opens the planes, and kills the data plane that it finds if it is to ([`KILLS`]).
fn open(setup: &Setup, log: EventSink) -> Result<Planes, PlanesError> {
    let found = Planes::find(setup.process.as_ref().unwrap())?;
    let after = std::env::var(KILLS).ok().zip(found.as_ref());
    let Some((after, process)) = after.map(|(after, found)| (after, found.process())) else {
        return Planes::open_found(setup, found, log);
    };
    let kill = move || {
        let number = process.to_string();
        assert!(Command::new("kill").args(["-KILL", &number]).status().unwrap().success());
        let stat = || std::fs::read_to_string(format!("/proc/{number}/stat"));
        // One that nobody waits for is there by name only.
        let is_dead = || stat().is_ok_and(|stat| stat.contains(") Z ")) || stat().is_err();
        assert!(wait_until(WITHIN, is_dead));
    };
    match after.parse().unwrap() {
        0 => kill(),
        after => {
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(after));
                kill();
            });
        }
    }
    Planes::open_found(setup, found, log)
}

/// Says how many datagrams its socket has received, how many packets drivers have dropped and forwarded and
/// how many others there were, and which process the data plane is, whenever a line asks for it.
fn answer(planes: &Planes, received: &AtomicU32) {
    for line in stdin().lines() {
        line.unwrap();
        let links = planes.status().unwrap().links;
        let counts = links.iter().flat_map(|link| &link.in_driver);
        let sum = |by_driver| {
            let of = counts.clone().filter(|count| (count.outcome == "forwarded") == by_driver);
            of.map(|count| count.packets).sum::<u64>()
        };
        let [forwarded, up] = [true, false].map(sum);
        println!("received {}", received.load(Ordering::Relaxed));
        let dropped = counts.clone().filter(|count| count.outcome == "dropped");
        println!("dropped {}", dropped.map(|count| count.packets).sum::<u64>());
        println!("forwarded {forwarded} {up} {}", planes.data_process().unwrap());
    }
}

/// A control plane in a process of its own.
struct Control {
    process: Process,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Control {
    fn start(middle: &Namespace, name: &str) -> Result<Self, Failed> {
        Self::start_killing(middle, name, None)
    }

    /// One that kills the data plane that it finds, after so many milliseconds.
    fn start_killing(
        middle: &Namespace,
        name: &str,
        after_ms: Option<u64>,
    ) -> Result<Self, Failed> {
        let own = std::env::current_exe()?;
        let mut command = middle.command(own.to_str().ok_or("no name")?).env(CONTROLS, name);
        if let Some(after) = after_ms {
            command = command.env(KILLS, after.to_string());
        }
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = process.stdin().ok_or("no input")?;
        let output = BufReader::new(process.stdout().ok_or("no output")?);
        Ok(Self { process, input, output })
    }

    /// What it says next that begins so, without that.
    fn says(&mut self, beginning: &str) -> Result<String, Failed> {
        let mut said = Vec::new();
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line)? == 0 {
                return Err(format!("it has ended without `{beginning}`, with {said:?}").into());
            }
            if let Some(rest) = line.trim().strip_prefix(beginning) {
                return Ok(rest.trim().to_owned());
            }
            said.push(line.trim().to_owned());
        }
    }

    /// Packets that drivers have forwarded by the maps of this control plane, those that went to the
    /// graph, and the data plane's process.
    fn forwarded(&mut self) -> Result<(u64, u64, u32), Failed> {
        writeln!(self.input)?;
        let said = self.says("forwarded ")?;
        let [forwarded, up, process] = said.split(' ').collect::<Vec<_>>()[..] else {
            return Err(said.into());
        };
        Ok((forwarded.parse()?, up.parse()?, process.parse()?))
    }

    /// Datagrams that its socket has received.
    fn received(&mut self) -> Result<u32, Failed> {
        writeln!(self.input)?;
        Ok(self.says("received ")?.parse()?)
    }

    /// Packets that drivers have dropped by the maps of this control plane.
    fn dropped(&mut self) -> Result<u64, Failed> {
        writeln!(self.input)?;
        Ok(self.says("dropped ")?.parse()?)
    }

    /// The data plane's process, and whether it was adopted.
    fn runs(&mut self) -> Result<(u32, bool), Failed> {
        let said = self.says("runs ")?;
        let (process, adopted) = said.split_once(' ').ok_or("two words")?;
        Ok((process.parse()?, adopted == "true"))
    }
}

/// A sender in one kernel, and receivers in another: of what passes, and of what must not.
struct Flow {
    sender: UdpSocket,
    receiver: UdpSocket,
    forbidden: UdpSocket,
    next: u32,
}

impl Flow {
    /// Whether a datagram comes through now.
    fn passes(&mut self) -> bool {
        self.send() && self.take(Duration::from_millis(50)).is_some()
    }

    fn send(&mut self) -> bool {
        self.next += 1;
        self.sender.send_to(&self.next.to_be_bytes(), SOUTH).is_ok()
    }

    fn send_own(&self) -> bool {
        self.sender.send_to(b"own", OWN).is_ok()
    }

    fn send_forbidden(&self) -> bool {
        self.sender.send_to(b"forbidden", FORBIDDEN).is_ok()
    }

    /// Runs something while forbidden datagrams are sent.
    fn while_forbidden<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let running = scope.spawn(run);
            while !running.is_finished() {
                self.send_forbidden();
                std::thread::sleep(Duration::from_micros(500));
            }
            running.join().unwrap()
        })
    }

    /// No forbidden datagram has come until now.
    fn nothing_forbidden_came(&self) {
        self.forbidden.set_nonblocking(true).unwrap();
        let came = std::iter::from_fn(|| self.forbidden.recv(&mut [0; 16]).ok()).count();
        assert_eq!(came, 0, "datagrams that a handler drops");
    }

    fn take(&self, patience: Duration) -> Option<u32> {
        self.receiver.set_read_timeout(Some(patience)).unwrap();
        let mut octets = [0; 4];
        match self.receiver.recv(&mut octets) {
            Ok(_) => Some(u32::from_be_bytes(octets)),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Sends so many, one after the other; returns how many came.
    fn pass(&mut self, datagrams: u32) -> u32 {
        while self.take(Duration::from_millis(20)).is_some() {}
        let (mut came, mut sent, first) = (0, 0, self.next);
        while sent < datagrams {
            // So few on their way fit into every queue between.
            for _ in 0..AT_ONCE.min(datagrams - sent) {
                self.send();
                sent += 1;
            }
            while came < sent {
                match self.take(Duration::from_secs(2)) {
                    Some(number) if number > first => came += 1,
                    // One from before.
                    Some(_) => {}
                    None => return came,
                }
            }
        }
        came
    }
}

/// Sends a signal to a process, whose number is one of the namespace's own.
fn signal(middle: &Namespace, signal: &str, process: u32) -> Result<bool, Failed> {
    let number = process.to_string();
    Ok(middle
        .command("kill")
        .args([signal, &number])
        .stderr(Stdio::null())
        .output()?
        .status
        .success())
}

/// The data plane dies and is started again: what was sent meanwhile waits in its sockets, which control
/// holds, and the next one knows its neighbours.
fn data_plane_dies(
    middle: &Namespace,
    control: &mut Control,
    flow: &mut Flow,
) -> Result<(), Failed> {
    let had = control.received()?;
    let (.., data) = control.forwarded()?;
    let died = Instant::now();
    assert!(signal(middle, "-KILL", data)?);
    std::thread::sleep(DEAD_WITHIN);
    let sent: u32 = (0..WAITING).map(|_| u32::from(flow.send_forbidden() && flow.send())).sum();
    assert!((0..OWN_WAITING).all(|_| flow.send_own()));
    let came = (0..sent).map_while(|_| flow.take(WITHIN)).count();
    assert_eq!((sent, came), (WAITING, usize::try_from(WAITING)?));
    control.says("event data-plane-died")?;
    let again = control.says("event data-plane-restarted: ")?;
    assert!(wait_until(WITHIN, || flow.passes()), "it forwards again");
    println!("{again}; a datagram passed after {:?}", died.elapsed());
    flow.nothing_forbidden_came();
    let all = || control.received().is_ok_and(|came| came == had + OWN_WAITING);
    assert!(wait_until(WITHIN, all), "{:?} of {OWN_WAITING} and {had}", control.received());
    assert_eq!(flow.pass(DATAGRAMS), DATAGRAMS);
    Ok(())
}

fn goes_on(name: &str) -> Result<(), Failed> {
    let [north, middle, south] = [(); 3].map(|()| Namespace::new().unwrap());
    let lan = Veth::pair(&north, "n0", &middle, "g0")?;
    let wan = Veth::pair(&middle, "g1", &south, "s0")?;
    lan.a.add_address("10.10.1.2/24")?;
    wan.b.add_address("10.10.2.2/24")?;
    lan.up()?;
    wan.up()?;
    north.add_route("default", "10.10.1.1")?;
    south.add_route("default", "10.10.2.1")?;
    let sender = north.run(|| UdpSocket::bind("10.10.1.2:0"))??;
    let receiver = south.run(|| UdpSocket::bind(SOUTH))??;
    let forbidden = south.run(|| UdpSocket::bind(FORBIDDEN))??;
    let mut flow = Flow { sender, receiver, forbidden, next: 0 };

    let mut first = Control::start(&middle, name)?;
    let (data, adopted) = flow.while_forbidden(|| first.runs().unwrap());
    flow.nothing_forbidden_came();
    assert!(!adopted && wait_until(WITHIN, || flow.passes()), "it forwards");
    let mut second = Control::start(&middle, name)?;
    let refused = second.says("refused ")?;
    let why = format!("the data plane (process {data}) has a control plane already (process ");
    assert!(refused.starts_with(&why) && refused.ends_with("` ends both"), "{refused}");

    // Control dies: nothing is lost.
    first.process.kill();
    assert_eq!(flow.pass(DATAGRAMS), DATAGRAMS, "while nobody controls it");
    let mut next = Control::start(&middle, name)?;
    assert_eq!(next.runs()?, (data, true), "the same process, adopted");
    assert_eq!(flow.pass(DATAGRAMS), DATAGRAMS, "after the adoption");

    for _ in 0..DEATHS {
        data_plane_dies(&middle, &mut next, &mut flow)?;
    }

    // Both end together.
    drop(next.input);
    let mut output = next.output;
    let mut rest = String::new();
    while !rest.contains("ended") {
        assert!(output.read_line(&mut rest)? > 0, "it ends");
    }
    let mut last = Control::start(&middle, name)?;
    let (fresh, adopted) = last.runs()?;
    assert!(!adopted, "nothing was left to be adopted");
    drop(last.input);
    let is_gone = || signal(&middle, "-0", fresh).is_ok_and(|there| !there);
    assert!(wait_until(WITHIN, is_gone), "no process is left");
    Ok(())
}

/// A data plane is killed from when its next control plane has found it until that has begun: another one
/// is started, and what a handler drops is dropped meanwhile.
fn dies_during_adoption(name: &str) -> Result<(), Failed> {
    let hosts = TwoSubnets::with_queues(1)?;
    for (host, end) in [(&hosts.north, "n0"), (&hosts.south, "s0")] {
        // Checksums are complete, as on a cable between machines.
        host.command("ethtool").args(["-K", end, "tx", "off"]).run()?;
    }
    let sender = hosts.north.run(|| UdpSocket::bind("10.10.1.2:0"))??;
    let receiver = hosts.south.run(|| UdpSocket::bind(SOUTH))??;
    let forbidden = hosts.south.run(|| UdpSocket::bind(FORBIDDEN))??;
    let mut flow = Flow { sender, receiver, forbidden, next: 0 };
    let mut control = Control::start(&hosts.middle, name)?;
    let (mut data, _) = control.runs()?;
    assert!(wait_until(WITHIN, || flow.passes()), "it forwards");
    for after in KILLED_AFTER_MS {
        control.process.kill();
        control = Control::start_killing(&hosts.middle, name, Some(after))?;
        let (process, adopted) = flow.while_forbidden(|| control.runs())?;
        assert!(adopted, "{after} ms: its tables are");
        let mut now = process;
        let is_another = || {
            now = control.forwarded().map_or(now, |(.., process)| process);
            now != data
        };
        assert!(wait_until(WITHIN, is_another), "{after} ms: another one is started");
        assert!(wait_until(WITHIN, || flow.passes()), "{after} ms: it forwards again");
        flow.nothing_forbidden_came();
        data = now;
    }
    drop(control.input);
    let is_gone = || signal(&hosts.middle, "-0", data).is_ok_and(|there| !there);
    assert!(wait_until(WITHIN, is_gone), "no process is left");
    Ok(())
}

/// Drivers and the graph limit a flow together while one control plane after the other adopts the data
/// plane: each one's handler lets its burst pass, and nothing more passes meanwhile.
fn limit_holds() -> Result<(), Failed> {
    let hosts = TwoSubnets::with_queues(1)?;
    for (host, end) in [(&hosts.north, "n0"), (&hosts.south, "s0")] {
        // Checksums are complete, as on a cable between machines.
        host.command("ethtool").args(["-K", end, "tx", "off"]).run()?;
    }
    let sender = hosts.north.run(|| UdpSocket::bind("10.10.1.2:0"))??;
    let receiver = hosts.south.run(|| UdpSocket::bind(SOUTH))??;
    receiver.set_nonblocking(true)?;
    let came = || std::iter::from_fn(|| receiver.recv(&mut [0; 16]).ok()).count();
    let mut control = Control::start(&hosts.middle, LIMITED)?;
    let (data, _) = control.runs()?;
    let (limit, is_over) = (usize::try_from(LIMIT)?, AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _refused = sender.send_to(b"limited", SOUTH);
                std::thread::sleep(LIMITED_EVERY);
            }
        });
        let _ends = Ends(&is_over);
        for adoption in 0..=ADOPTIONS {
            if adoption > 0 {
                control.process.kill();
                control = Control::start(&hosts.middle, LIMITED)?;
                assert_eq!(control.runs()?, (data, true), "the same process, adopted");
            }
            let by_drivers = || control.dropped().is_ok_and(|packets| packets > LIMITED_MIN);
            assert!(wait_until(WITHIN, by_drivers), "{adoption}: drivers limit");
            let came = came();
            assert!((1..=limit).contains(&came), "{came} passed with adoption {adoption}");
        }
        Ok(())
    })
}

/// Ends a thread, whatever became of the one beside it.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Another user takes the names of a link's claim and of a data plane: both are told with their owner, once
/// each, and the gateway runs.
fn names_are_held() -> Result<(), Failed> {
    const LISTENS: &str = "import os, socket, sys\n\
         index = socket.if_nametoindex('g0')\n\
         os.setgid(65534)\n\
         os.setuid(65534)\n\
         all = []\n\
         for name in ('gatewright/link/%d' % index, 'gatewright-data/sockets/0'):\n\
         \x20 it = socket.socket(socket.AF_UNIX)\n\
         \x20 it.bind('\\0' + name)\n\
         \x20 it.listen(5)\n\
         \x20 all.append(it)\n\
         print(os.getpid(), index, flush=True)\n\
         sys.stdin.read()\n";
    let hosts = TwoSubnets::with_queues(1)?;
    let command = hosts.middle.command("python3").args(["-c", LISTENS]);
    let mut other = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let _input = other.stdin().ok_or("no input")?;
    let mut line = String::new();
    BufReader::new(other.stdout().ok_or("no output")?).read_line(&mut line)?;
    let (process, index) = line.trim().split_once(' ').ok_or("two numbers")?;
    let mut control = Control::start(&hosts.middle, PACKET_SOCKETS)?;
    for name in ["gatewright-data/sockets/0".to_owned(), format!("gatewright/link/{index}")] {
        let told = control.says("event name-held: ")?;
        let owner = format!("user 65534 (process {process}) has the socket name @{name}: ");
        assert!(told.starts_with(&owner), "{told}");
    }
    assert!(!control.runs()?.1);
    drop(control.input);
    let mut rest = String::new();
    while !rest.contains("ended") {
        assert!(control.output.read_line(&mut rest)? > 0, "it ends");
    }
    assert!(!rest.contains("name-held"), "{rest}");
    Ok(())
}

/// Waits until what passes while `more` waits goes by drivers: what the graph has on its way is lost
/// with it.
fn go_by_drivers(
    control: &mut Control,
    more: &impl Fn() -> Result<(), &'static str>,
) -> Result<(), Failed> {
    let began = Instant::now();
    loop {
        let (_, before, _) = control.forwarded()?;
        more()?;
        let (_, up, _) = control.forwarded()?;
        // Frames that are no datagrams of ours go up at any time.
        if up - before < u64::from(BETWEEN) / 10 {
            return Ok(());
        }
        if began.elapsed() > WITHIN {
            return Err(format!("{} of some {BETWEEN} go by the graph", up - before).into());
        }
    }
}

/// Both planes are killed in turn while numbered datagrams pass by the drivers, at the end until the data
/// plane is given up: none is lost, and none comes twice.
fn drivers_go_on() -> Result<(), Failed> {
    let hosts = TwoSubnets::with_queues(1)?;
    for (host, end) in [(&hosts.north, "n0"), (&hosts.south, "s0")] {
        // Checksums are complete, as on a cable between machines.
        host.command("ethtool").args(["-K", end, "tx", "off"]).run()?;
    }
    let sender = hosts.north.run(|| UdpSocket::bind("10.10.1.2:0"))??;
    sender.connect(SOUTH)?;
    let receiver = hosts.south.run(|| UdpSocket::bind(SOUTH))??;
    let forbidden = hosts.south.run(|| UdpSocket::bind(FORBIDDEN))??;
    let (own, its) = (sender.try_clone()?, receiver.try_clone()?);
    let mut flow = Flow { sender: own, receiver: its, forbidden, next: 0 };
    let mut control = Control::start(&hosts.middle, DRIVERS)?;
    let (mut data, _) = flow.while_forbidden(|| control.runs().unwrap());
    flow.nothing_forbidden_came();
    let by_drivers = |control: &mut Control, flow: &mut Flow| {
        let (before, ..) = control.forwarded().unwrap();
        flow.passes() && control.forwarded().unwrap().0 > before
    };
    assert!(wait_until(WITHIN, || by_drivers(&mut control, &mut flow)), "drivers forward");
    flow.pass(0);
    let mut now = Some(control);
    let kills = |progress: &Progress| {
        let more =
            || progress.wait_for_more(BETWEEN, WITHIN).then_some(()).ok_or("it stands still");
        let by_drivers = |control: &mut Control| go_by_drivers(control, &more);
        for _ in 0..3 {
            let mut control = now.take().ok_or("no control plane")?;
            by_drivers(&mut control)?;
            assert!(signal(&hosts.middle, "-KILL", data)?);
            println!("{}", control.says("event data-plane-restarted: ")?);
            more()?;
            let (.., process) = control.forwarded()?;
            control.process.kill();
            more()?;
            let mut control = Control::start(&hosts.middle, DRIVERS)?;
            let (next, adopted) = control.runs()?;
            assert!(adopted && next == process && next != data, "{process} {next} {data}");
            data = next;
            now = Some(control);
        }
        let control = now.as_mut().ok_or("no control plane")?;
        for death in 1..=5 {
            by_drivers(control)?;
            assert!(signal(&hosts.middle, "-KILL", data)?);
            if death < 5 {
                println!("{}", control.says("event data-plane-restarted: ")?);
                (.., data) = control.forwarded()?;
            }
        }
        println!("{}", control.says("event data-plane-given-up: ")?);
        more()?;
        Ok(())
    };
    let limits = (Flight::AtMost(HELD), WITHIN);
    let Passed { sent, rate, numbers } =
        numbered::pass(&sender, &receiver, limits, kills, |sent, received| sent == received)?;
    let mut once = numbers.clone();
    once.sort_unstable();
    once.dedup();
    println!("{sent} sent, {rate:.0} a second, {} came, {} once", numbers.len(), once.len());
    assert_eq!(once.len(), numbers.len(), "none comes twice");
    assert_eq!(u32::try_from(once.len())?, sent, "none is lost");
    drop(now.map(|control| control.input));
    let links = || hosts.middle.ip(&["-d", "link", "show"]);
    let is_clean = || links().is_ok_and(|links| !links.contains("prog/xdp"));
    assert!(wait_until(WITHIN, is_clean), "{}", links()?);
    Ok(())
}
