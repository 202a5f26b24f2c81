//! Routing daemons that are not ours (FRR) beside gateways that share their links with the kernel:
//! what the daemons learn is followed, and their own messages stay the kernel's.
//!
//! Four routers in a ring, two hosts:
//!
//! ```text
//!             +--- upper (ours) ---+
//! left --- west (FRR)          east (FRR) --- right
//!             +--- lower (ours) ---+
//! ```
//!
//! The kernels of *upper* and *lower* do not forward: whatever passes there, a gateway has
//! forwarded. The way by *lower* costs more.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail loudly"
)]

use gatewright_link::Backend;
use gatewright_planes::{Planes, Setup, Status};
use gatewright_stack::Route;
use gatewright_testbed::{Namespace, Needs, Process, Veth, wait_until};
use libtest_mimic::{Arguments, Failed, Trial};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use std::{fs, io};

/// Longer than a daemon takes for any change, on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);
/// Where Debian has the daemons.
const FOLDER: &str = "/usr/lib/frr";
/// The hosts at the right.
const RIGHT: &str = "10.4.0.2";
const RIGHT6: &str = "fd00:4::2";

/// A routing protocol: its daemons for both families, and their configuration.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Protocol {
    Ospf,
    Rip,
}

/// An interface of a router, and what a packet pays that leaves there.
#[derive(Clone, Copy)]
struct Port {
    name: &'static str,
    cost: u8,
}

/// A router's daemons. They end with it.
struct Daemons {
    routing: Vec<Process>,
    _zebra: Process,
    folder: Folder,
}

/// A folder that goes with its value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> io::Result<Self> {
        let path =
            std::env::temp_dir().join(format!("gatewright-frr-{name}-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // It lies in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Protocol {
    /// The daemons, each with its configuration for a router of this number.
    fn daemons(self, number: u8, ports: &[Port]) -> [(&'static str, String); 2] {
        let mut texts = [String::new(), String::new()];
        for port in ports {
            let (name, cost) = (port.name, port.cost);
            let [text, text6] = &mut texts;
            match self {
                // A neighbour is dead after a second without a word.
                Self::Ospf => {
                    writeln!(
                        text,
                        "interface {name}\n ip ospf area 0\n ip ospf network point-to-point\n \
                         ip ospf cost {cost}\n ip ospf dead-interval minimal hello-multiplier 4\n!"
                    )
                    .unwrap();
                    writeln!(
                        text6,
                        "interface {name}\n ipv6 ospf6 area 0\n ipv6 ospf6 network point-to-point\n \
                         ipv6 ospf6 cost {cost}\n ipv6 ospf6 hello-interval 1\n \
                         ipv6 ospf6 dead-interval 3\n!"
                    )
                    .unwrap();
                }
                Self::Rip => {}
            }
        }
        let [text, text6] = texts;
        match self {
            Self::Ospf => [
                (
                    "ospfd",
                    format!(
                        "{text}router ospf\n ospf router-id 10.0.0.{number}\n timers throttle spf 10 50 200\n"
                    ),
                ),
                (
                    "ospf6d",
                    format!(
                        "{text6}router ospf6\n ospf6 router-id 10.0.0.{number}\n timers throttle spf 10 50 200\n"
                    ),
                ),
            ],
            Self::Rip => {
                let list = |direction: &str, port: &Port| match port.cost {
                    1 => String::new(),
                    cost => format!(" offset-list any {direction} {cost} {}\n", port.name),
                };
                let (mut networks, mut offsets) = (String::new(), String::new());
                for port in ports {
                    writeln!(networks, " network {}", port.name).unwrap();
                    offsets.push_str(&list("out", port));
                }
                // The least that it takes.
                let timers = " timers basic 5 15 5\n";
                [
                    (
                        "ripd",
                        format!(
                            "access-list any permit any\nrouter rip\n{networks}{offsets}{timers}"
                        ),
                    ),
                    (
                        "ripngd",
                        format!(
                            "ipv6 access-list any permit any\nrouter ripng\n{networks}{offsets}{timers}"
                        ),
                    ),
                ]
            }
        }
    }
}

impl Daemons {
    /// Starts them in `namespace`.
    fn start(
        protocol: Protocol,
        namespace: &Namespace,
        test: &str,
        number: u8,
        ports: &[Port],
    ) -> Result<Self, Failed> {
        let folder = Folder::new(&format!("{test}-{number}"))?;
        let path = folder.0.clone();
        // They give up root, and keep their sockets there.
        let owner = fs::read_to_string("/etc/passwd")?
            .lines()
            .find_map(|line| line.strip_prefix("frr:")?.split(':').nth(1)?.parse().ok());
        chown(&path, owner, None)?;
        let start = |daemon: &str, text: &str| -> Result<Process, Failed> {
            let file = path.join(format!("{daemon}.conf"));
            fs::write(&file, text)?;
            let log = fs::File::create(path.join(format!("{daemon}.log")))?;
            let program = format!("{FOLDER}/{daemon}");
            let command = namespace.command(&program).args(["-u", "frr", "-g", "frr"]);
            let command = command.args(["-A", "127.0.0.1", "-P", "0", "-f"]).arg(&file);
            let command = command.arg("-i").arg(path.join(format!("{daemon}.pid")));
            let command = command.arg("-z").arg(path.join("zserv.api"));
            let command = command.arg("--vty_socket").arg(&path).stdin(Stdio::null());
            Ok(command.stdout(log.try_clone()?).stderr(log).spawn()?)
        };
        let zebra = start("zebra", &format!("hostname r{number}\n"))?;
        if !wait_until(PATIENCE, || path.join("zserv.api").exists()) {
            return Err(format!("zebra does not start: {}", said(&path)).into());
        }
        let routing = protocol
            .daemons(number, ports)
            .into_iter()
            .map(|(daemon, text)| start(daemon, &text))
            .collect::<Result<_, Failed>>()?;
        Ok(Self { routing, _zebra: zebra, folder })
    }
}

/// What daemons have written.
fn said(folder: &Path) -> String {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let logs = files.filter(|file| file.path().extension().is_some_and(|it| it == "log"));
    logs.filter_map(|file| fs::read_to_string(file.path()).ok()).collect()
}

/// A router of ours: the kernel with daemons, and a gateway that forwards.
struct OurRouter {
    planes: Planes,
    namespace: Namespace,
}

impl OurRouter {
    fn open(namespace: &Namespace, names: [&str; 2], backend: Backend) -> Result<Self, Failed> {
        let planes = namespace.run(|| {
            let mut setup = Setup::new(7);
            for name in names {
                setup.link(name, name).backend(backend).shared();
            }
            Planes::open(&setup)
        })??;
        Ok(Self { planes, namespace: namespace.clone() })
    }

    fn status(&self) -> Status {
        let mut status = None;
        wait_until(PATIENCE, || {
            status = self.planes.status().ok();
            status.is_some()
        });
        status.unwrap()
    }

    /// Frames that its links have received or sent.
    fn frames(&self, which: &str) -> u64 {
        let counters = self.status().links.into_iter().flat_map(|link| link.counters);
        counters.filter(|(name, _)| *name == which).map(|(_, count)| count).sum()
    }

    /// Packets that its kernel has forwarded.
    fn forwarded_by_kernel(&self) -> Result<u64, Failed> {
        let kernel = &self.namespace;
        Ok(kernel.counter("IpForwDatagrams")? + kernel.counter("Ip6OutForwDatagrams")?)
    }

    /// Routes of daemons in the kernel that lead elsewhere here, or are missing.
    fn differences(&self) -> Result<Vec<String>, Failed> {
        let listed = self.namespace.ip(&["-4", "route", "show"])?;
        let view = self.planes.change_host(|host| host.view());
        let differs = |line: &&str| {
            let mut words = line.split_whitespace();
            let prefix = words.next().unwrap_or_default();
            let address: Ipv4Addr = prefix.split('/').next().unwrap_or_default().parse().unwrap();
            let via = line.split(" via ").nth(1).and_then(|rest| rest.split(' ').next());
            let via: Option<IpAddr> = via.map(|via| via.parse().unwrap());
            // An address of the destination's subnet.
            let inside = Ipv4Addr::from_bits(address.to_bits() | 2);
            match view.route4(inside) {
                Route::Via { gateway, .. } => Some(gateway) != via,
                _ => via.is_some(),
            }
        };
        Ok(listed
            .lines()
            .filter(|line| line.contains(" proto "))
            .filter(differs)
            .map(str::to_owned)
            .collect())
    }
}

struct Ring {
    left: Namespace,
    upper: OurRouter,
    lower: OurRouter,
    /// Their daemons; those of *upper* are the second.
    daemons: Vec<Daemons>,
    /// The pair between *upper* and *east*.
    cut: Veth,
    _others: Vec<Veth>,
}

impl Ring {
    fn new(test: &str, protocol: Protocol, backend: Backend) -> Result<Self, Failed> {
        let all = (0..6).map(|_| Namespace::new()).collect::<Result<Vec<_>, _>>()?;
        let [left, west, upper, lower, east, right] = all.as_slice() else { unreachable!() };
        for kernel in &all {
            kernel.sysctl("net.ipv6.conf.default.dad_transmits", "0")?;
        }
        for kernel in [west, east] {
            kernel.sysctl("net.ipv4.ip_forward", "1")?;
            kernel.sysctl("net.ipv6.conf.all.forwarding", "1")?;
        }
        let mut pairs = Vec::new();
        for (number, a, names, b) in [
            (1, left, ["l0", "h1"], west),
            (12, west, ["u2", "u1"], upper),
            (13, west, ["w3", "w1"], lower),
            (24, upper, ["u4", "e2"], east),
            (34, lower, ["w4", "e3"], east),
            (4, east, ["h4", "r0"], right),
        ] {
            let pair = Veth::pair(a, names[0], b, names[1])?;
            // The hosts have the second address of their subnet.
            let [first, second] = if number == 1 { [2, 1] } else { [1, 2] };
            for (end, last) in [(&pair.a, first), (&pair.b, second)] {
                end.add_address(&format!("10.{number}.0.{last}/24"))?;
                end.add_address(&format!("fd00:{number}::{last}/64"))?;
            }
            pair.up()?;
            pairs.push(pair);
        }
        for (host, via, via6) in [(left, "10.1.0.1", "fd00:1::1"), (right, "10.4.0.1", "fd00:4::1")]
        {
            host.add_route("default", via)?;
            host.add_route("default", via6)?;
        }
        let cut = pairs.remove(3);
        let gateway = |at: &Namespace, names| OurRouter::open(at, names, backend);
        let (above, below) = (gateway(upper, ["u1", "u4"])?, gateway(lower, ["w1", "w4"])?);
        let port = |name, cost| Port { name, cost };
        let mut daemons = Vec::new();
        for (number, namespace, ports) in [
            (1, west, &[port("h1", 1), port("u2", 1), port("w3", 5)][..]),
            (2, upper, &[port("u1", 1), port("u4", 1)]),
            (3, lower, &[port("w1", 5), port("w4", 5)]),
            (4, east, &[port("h4", 1), port("e2", 1), port("e3", 5)]),
        ] {
            daemons.push(Daemons::start(protocol, namespace, test, number, ports)?);
        }
        let left = left.clone();
        Ok(Self { left, upper: above, lower: below, daemons, cut, _others: pairs })
    }

    fn pings(&self, target: &str) -> bool {
        let ping = self.left.command("ping").args(["-n", "-q", "-c1", "-W0.3", target]);
        ping.output().is_ok_and(|out| out.status.success())
    }

    /// Waits until both families reach the right by way of `router`; returns how long it took.
    fn until_by(&self, what: &str, router: &OurRouter) -> Result<Duration, Failed> {
        let began = Instant::now();
        for target in [RIGHT, RIGHT6] {
            let passes = || {
                let before = router.frames("sent");
                // There and back.
                self.pings(target) && router.frames("sent") >= before + 2
            };
            if !wait_until(PATIENCE, passes) {
                return Err(format!("{what}, to {target}: {}", self.said()).into());
            }
        }
        Ok(began.elapsed())
    }

    /// Waits until the tables of both gateways are their kernels'.
    fn until_tables_agree(&self) -> Result<(), Failed> {
        for router in [&self.upper, &self.lower] {
            if !wait_until(PATIENCE, || router.differences().is_ok_and(|it| it.is_empty())) {
                return Err(format!("differ: {:?}", router.differences()?).into());
            }
        }
        Ok(())
    }

    fn said(&self) -> String {
        let routers = [&self.upper, &self.lower].map(|it| {
            let routes = it.namespace.ip(&["route"]).unwrap_or_default();
            let routes6 = it.namespace.ip(&["-6", "route"]).unwrap_or_default();
            let kernel = it.planes.status().map(|status| status.kernel);
            format!("{routes}{routes6}{kernel:?}")
        });
        let logs: String = self.daemons.iter().map(|it| said(&it.folder.0)).collect();
        format!("{}\n{logs}", routers.join("\n"))
    }
}

/// Neighbours come up over our links; what the daemons learn is followed; a cut link and a daemon
/// that is killed are routed around, and a link that is back is used again.
fn routes_of_daemons_are_followed(
    test: &str,
    protocol: Protocol,
    backend: Backend,
) -> Result<(), Failed> {
    let mut ring = Ring::new(test, protocol, backend)?;
    ring.until_by("at first", &ring.upper)?;
    ring.until_tables_agree()?;
    // East ends the link: upper's daemon sees that its carrier is gone.
    ring.cut.b.down()?;
    let cut = ring.until_by("a link that is cut", &ring.lower)?;
    ring.cut.b.up()?;
    let healed = ring.until_by("a link that is back", &ring.upper)?;
    ring.until_tables_agree()?;
    if protocol == Protocol::Ospf {
        // RIP takes a quarter of a minute to miss it.
        kill_daemons_of_upper(test, &mut ring)?;
    }
    for router in [&ring.upper, &ring.lower] {
        let kernel = router.forwarded_by_kernel()?;
        if kernel != 0 {
            return Err(format!("the kernel forwarded {kernel}: {}", ring.said()).into());
        }
    }
    println!("{test}: around a cut in {cut:.1?}, back in {healed:.1?}");
    Ok(())
}

/// Neighbours miss the daemons, and go around; our tables stay the kernel's.
fn kill_daemons_of_upper(test: &str, ring: &mut Ring) -> Result<(), Failed> {
    let [_, daemons, ..] = ring.daemons.as_mut_slice() else { unreachable!() };
    for daemon in daemons.routing.drain(..) {
        daemon.kill();
    }
    let killed = ring.until_by("a daemon that is killed", &ring.lower)?;
    println!("{test}: around a killed daemon in {killed:.1?}");
    ring.until_tables_agree()
}

/// The paper's table of which plane takes what, for what the kernel has: routing protocols, ARP,
/// neighbour discovery, and echo requests to the router itself pass the data plane by; a packet in
/// transit passes the kernel by.
fn each_plane_takes_its_own(
    test: &str,
    protocol: Protocol,
    backend: Backend,
) -> Result<(), Failed> {
    let ring = Ring::new(test, protocol, backend)?;
    ring.until_by("at first", &ring.upper)?;
    let upper = &ring.upper;
    let kernel = &upper.namespace;
    let taken = |what: &str, action: &dyn Fn() -> Result<bool, Failed>| {
        let (frames, packets) = (upper.frames("received"), kernel.counter("IpInReceives")?);
        if !action()? {
            return Err(Failed::from(format!("{what}: {}", ring.said())));
        }
        Ok((upper.frames("received") - frames, kernel.counter("IpInReceives")? - packets))
    };
    // Nobody sends anything but the daemons: hello messages or updates of at least three seconds.
    let (ours, kernels) = taken("a routing protocol", &|| {
        let began = kernel.counter("IpInReceives")?;
        Ok(wait_until(PATIENCE, || {
            kernel.counter("IpInReceives").is_ok_and(|now| now >= began + 6)
        }))
    })?;
    assert!(ours == 0 && kernels >= 6, "{protocol:?}: {ours} by the data plane, {kernels}");
    let (ours, kernels) = taken("an echo request to the router", &|| Ok(ring.pings("10.12.0.2")))?;
    assert!(ours == 0 && kernels >= 1, "echo: {ours} by the data plane, {kernels}");
    let (ours, _) = taken("address resolution", &|| {
        kernel.ip(&["neighbour", "flush", "dev", "u1"])?;
        Ok(ring.pings("10.12.0.2") && ring.pings("fd00:12::2"))
    })?;
    assert_eq!(ours, 0, "address resolution");
    let delivered = kernel.counter("IpInDelivers")?;
    let (ours, _) = taken("transit", &|| Ok((0..5).all(|_| ring.pings(RIGHT))))?;
    // Ten frames, there and back; an echo request that waited for a neighbour may be repeated.
    assert!(ours >= 10, "transit: {ours} by the data plane, {delivered} delivered before");
    assert_eq!(upper.forwarded_by_kernel()?, 0, "forwarded by the kernel");
    Ok(())
}

type Check = fn(&str, Protocol, Backend) -> Result<(), Failed>;

fn main() {
    let arguments = Arguments::from_args();
    let missing = |backend, protocol| {
        let needs = Needs::new().namespaces().program("ping").program("/usr/lib/frr/zebra");
        let needs = match protocol {
            Protocol::Ospf => needs.program("/usr/lib/frr/ospfd").program("/usr/lib/frr/ospf6d"),
            Protocol::Rip => needs.program("/usr/lib/frr/ripd").program("/usr/lib/frr/ripngd"),
        };
        // Beside a packet socket a program at the kernel's ingress drops what is ours (tcx).
        if backend == Backend::PacketSocket { needs.linux(6, 6) } else { needs }.missing()
    };
    let (followed, taken): (Check, Check) =
        (routes_of_daemons_are_followed, each_plane_takes_its_own);
    let trials = [
        ("ospf_xdp_followed", followed, Protocol::Ospf, Backend::Xdp),
        ("ospf_packet_socket_followed", followed, Protocol::Ospf, Backend::PacketSocket),
        ("rip_xdp_followed", followed, Protocol::Rip, Backend::Xdp),
        ("ospf_xdp_taken", taken, Protocol::Ospf, Backend::Xdp),
        ("rip_packet_socket_taken", taken, Protocol::Rip, Backend::PacketSocket),
    ];
    let trials = trials.into_iter().map(|(name, check, protocol, backend)| {
        match missing(backend, protocol) {
            None => Trial::test(name, move || check(name, protocol, backend)),
            Some(missing) => {
                let name = format!("{name} (needs {missing})");
                Trial::test(name, || Ok(())).with_ignored_flag(true)
            }
        }
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}
