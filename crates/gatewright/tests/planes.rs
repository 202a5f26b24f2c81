//! Two planes as two processes of one binary, between kernels: each is killed while the other goes
//! on, and nothing is left in the end.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

#[path = "planes/kept.rs"]
mod kept;
mod running;
mod trials;
#[path = "planes/upgrades.rs"]
mod upgrades;

use gatewright_testbed::{Namespace, Needs, Process, Veth, wait_until};
use running::{Said, WITHIN, ping};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    fs,
    net::{SocketAddr, UdpSocket},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::Duration,
};

/// The host behind `wan`, the gateway's address towards the other, and one that a reload adds.
const SOUTH: &str = "10.10.2.2";
const NEAR: &str = "10.10.1.1";
const LATER: &str = "10.10.1.9";

/// Kills of a plane at random points, unless [`KILLS`] says otherwise.
const KILLS_DEFAULT: u32 = 50;
const KILLS: &str = "GATEWRIGHT_PLANE_KILLS";

fn main() {
    let needs = Needs::new().namespaces().program("ping").program("tshark");
    let tests: [(&str, fn()); 17] = [
        ("udp_gateways_go_on_without_control", udp_gateways_go_on_without_control),
        ("clients_keep_their_relays_without_control", clients_keep_their_relays_without_control),
        ("clients_of_a_relay_that_is_gone_go_to_another_one", clients_leave_a_relay),
        ("flows_of_a_route_keep_their_next_hops", flows_keep_their_next_hops),
        ("flows_of_a_next_hop_that_is_gone_go_to_another_one", flows_leave_a_next_hop),
        ("a_description_that_changed_meanwhile_is_taken", a_changed_description_is_taken),
        ("what_was_set_by_command_goes_on", kept::what_was_set_by_command_goes_on),
        ("a_link_that_was_set_down_stays_down", kept::set_down),
        ("a_capture_of_the_description_goes_on", kept::captures_go_on),
        ("a_data_plane_that_is_given_up_is_no_ready_gateway", kept::given_up),
        ("shared_links_go_on_and_follow_the_kernel_again", shared_links_go_on),
        ("an_upgrade_under_traffic_loses_what_it_says", upgraded),
        ("an_upgrade_with_a_wrong_description_changes_nothing", wrong_descriptions),
        ("a_program_that_ends_at_once_is_refused", upgrades::programs_that_end_at_once),
        (
            "a_program_that_ends_in_the_place_of_the_old_one_is_told",
            upgrades::programs_that_end_in_its_place,
        ),
        ("an_order_that_a_data_plane_is_late_for_is_withdrawn", orders_are_withdrawn),
        ("kills_at_random_points_leave_nothing", kills_at_random_points_leave_nothing),
    ];
    trials::run(&needs, tests)
}

/// Two hosts with a place for a gateway between them.
struct World {
    north: Namespace,
    middle: Namespace,
    south: Namespace,
    links: [Veth; 2],
    folder: PathBuf,
}

impl World {
    fn new(name: &str) -> Self {
        let [north, middle, south] = [(); 3].map(|()| Namespace::new().unwrap());
        let lan = Veth::pair(&north, "n0", &middle, "g0").unwrap();
        let wan = Veth::pair(&middle, "g1", &south, "s0").unwrap();
        lan.a.add_address("10.10.1.2/24").unwrap();
        wan.b.add_address("10.10.2.2/24").unwrap();
        lan.up().unwrap();
        wan.up().unwrap();
        north.add_route("default", NEAR).unwrap();
        south.add_route("default", "10.10.2.1").unwrap();
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("planes-{name}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Self { north, middle, south, links: [lan, wan], folder }
    }

    fn describe(&self, more: &str) {
        let text = format!(
            "[planes]\nmode = \"process\"\n\
             [link.lan]\ndevice = \"g0\"\nmode = \"packet\"\naddresses = [\"{NEAR}/24\"]\n\
             [link.wan]\ndevice = \"g1\"\nmode = \"packet\"\naddresses = [\"10.10.2.1/24\"]\n\
             {more}"
        );
        fs::write(self.folder.join("gateway.toml"), text).unwrap();
    }

    /// `gatewright run`, without waiting for it.
    fn run(&self) -> Process {
        let said = fs::OpenOptions::new().create(true).append(true).open(self.folder.join("said"));
        self.middle
            .command(env!("CARGO_BIN_EXE_gatewright"))
            .arg("run")
            .arg(self.folder.join("gateway.toml"))
            .arg("--socket")
            .arg(self.folder.join("s"))
            .stdout(Stdio::null())
            .stderr(said.unwrap())
            .spawn()
            .unwrap()
    }

    /// As [`Self::run`], once it answers.
    fn start(&self) -> Process {
        let process = self.run();
        assert!(wait_until(WITHIN, || self.ask(&["status"]).code == Some(0)), "{}", self.said());
        process
    }

    fn said(&self) -> String {
        fs::read_to_string(self.folder.join("said")).unwrap_or_default()
    }

    fn ask(&self, arguments: &[&str]) -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gatewright"));
        command.args(arguments).arg("--socket").arg(self.folder.join("s"));
        command.stdin(Stdio::null()).output().unwrap().into()
    }

    /// What the gateway says of its planes.
    fn planes(&self) -> Value {
        self.ask(&["status", "--json"]).json()["planes"].clone()
    }

    fn passes(&self, to: &str) -> bool {
        ping(&self.north, &["-c1", "-W1", to])
    }

    fn await_passes(&self, to: &str) {
        let said = || self.said() + &self.ask(&["status"]).out;
        assert!(wait_until(WITHIN, || self.passes(to)), "{to}: {}", said());
    }

    /// The processes of the binary in the gateway's place.
    fn processes(&self) -> Vec<String> {
        self.processes_of(env!("CARGO_BIN_EXE_gatewright"))
    }

    fn processes_of(&self, program: &str) -> Vec<String> {
        // `/proc` is the machine's: other tests run the same binary in places of their own.
        let list = "here=$(readlink /proc/self/ns/pid); for it in /proc/[0-9]*; do \
                    [ \"$(readlink $it/exe)\" = \"$0\" ] && [ \"$(readlink $it/ns/pid)\" = \"$here\" ] && \
                    echo ${it#/proc/}; done; true";
        let told = self.middle.command("sh").args(["-c", list, program]);
        let told = told.output().unwrap();
        String::from_utf8(told.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    /// The processes, and what has been said.
    fn shown(&self) -> String {
        let show = "ps -eLo pid,tid,ppid,stat,wchan:32,comm,args";
        let told = self.middle.command("sh").args(["-c", show]).output().unwrap();
        String::from_utf8_lossy(&told.stdout).into_owned() + &self.said()
    }

    /// `gatewright upgrade`, where the gateway's processes have their numbers.
    fn upgrade(&self, program: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gatewright"));
        command.args(["upgrade", program, "--json", "--socket"]).arg(self.folder.join("s"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn kill(&self, process: &str) {
        self.signal("-KILL", process);
    }

    fn signal(&self, signal: &str, process: &str) {
        // It may have ended.
        let _gone =
            self.middle.command("kill").args([signal, process]).stderr(Stdio::null()).output();
    }

    /// Ends the gateway, and waits until nothing of it is left.
    fn end(&self, gateway: &Process) {
        gateway.terminate().unwrap();
        let is_gone = || self.processes().is_empty();
        assert!(wait_until(WITHIN, is_gone), "{:?}: {}", self.processes(), self.said());
        let links = self.middle.ip(&["-d", "link", "show"]).unwrap();
        assert!(!links.contains("prog/xdp") && !links.contains("gw-"), "{links}");
    }
}

/// A socket that waits for a limited time.
fn socket(place: &Namespace, at: &str) -> UdpSocket {
    let socket = place.run(|| UdpSocket::bind(at)).unwrap().unwrap();
    socket.set_read_timeout(Some(WITHIN)).unwrap();
    socket
}

const RELAY: &str = "[udp_gateway.coap]\nlisten = { link = \"lan\", port = 5000 }\n\
                     forward = { address = \"10.10.2.2\", port = 7000 }\n";

/// A client keeps its socket towards the server: while there is no control plane, and after the next
/// one has begun.
fn udp_gateways_go_on_without_control() {
    let world = World::new("udp");
    world.describe(RELAY);
    let first = world.start();
    world.await_passes(SOUTH);
    let (client, server) =
        (socket(&world.north, "10.10.1.2:0"), socket(&world.south, "10.10.2.2:7000"));
    let relayed = |what: &[u8]| -> SocketAddr {
        client.send_to(what, (NEAR, 5000)).unwrap();
        let mut octets = [0; 64];
        let (len, from) = server.recv_from(&mut octets).unwrap();
        assert_eq!(&octets[..len], what);
        server.send_to(b"back", from).unwrap();
        assert_eq!(client.recv_from(&mut octets).unwrap().0, 4);
        from
    };
    let before = relayed(b"one");
    first.kill();
    assert_eq!(relayed(b"two"), before, "without a control plane");
    let second = world.start();
    assert_eq!(world.planes()["adopted"], true);
    assert_eq!(relayed(b"three"), before, "with the next one");
    let told = world.ask(&["status", "--json"]).json();
    let relay = &told["udp_gateways"][0];
    assert_eq!([&relay["received"], &relay["sent"], &relay["returned"]], [3, 3, 3], "{relay}");
    // Another server is another gateway, and this one has one client.
    world.describe(&(RELAY.replace("7000", "7001") + "clients_max = 1\n"));
    let other = socket(&world.south, "10.10.2.2:7001");
    world.ask(&["reload", world.folder.join("gateway.toml").to_str().unwrap()]).text();
    // `reload` has answered: it relays to the new server, and no longer to the old one.
    client.send_to(b"new", (NEAR, 5000)).unwrap();
    assert_eq!(other.recv_from(&mut [0; 64]).unwrap().0, 3, "{}", world.said());
    socket(&world.north, "10.10.1.2:0").send_to(b"refused", (NEAR, 5000)).unwrap();
    let is_event = || world.ask(&["events", "--json"]).out.contains("datagrams-refused");
    assert!(wait_until(WITHIN, is_event), "{}", world.said());
    server.set_nonblocking(true).unwrap();
    assert!(server.recv_from(&mut [0; 64]).is_err(), "the old server hears no more");
    other.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let arrives = |what: &[u8]| {
        client.send_to(what, (NEAR, 5000)).unwrap();
        other.recv_from(&mut [0; 64]).is_ok_and(|(len, _)| len == what.len())
    };
    // The data plane dies: the next one has the gateway, too.
    world.kill(&world.planes()["data"].to_string());
    assert!(wait_until(WITHIN, || arrives(b"fifth")), "{}", world.said());
    world.end(&second);
}

/// M/M/1 with 1,000 packets a second keeps 6 ms for 95 % of the packets up to a load of 0.52, as in
/// the tests of `gatewright-delay`: 5 clients of 100 packets a second.
const BALANCED: &str = "[udp_gateway.coap]\nlisten = { link = \"lan\", port = 5000 }\n\
                        balance = \"relays\"\n\
                        flow = { rate = 100, octets = 100, within_us = 6000 }\n\
                        [balance.relays]\n\
                        [[balance.relays.relay]]\naddress = \"10.10.2.2\"\nport = 7000\n\
                        fixed_ns = 1_000_000\n";

/// The data plane admits clients: those that have a relay keep it, and who was refused is counted,
/// when the control plane has gone and when the next one has begun.
fn clients_keep_their_relays_without_control() {
    let world = World::new("udp-balance");
    world.describe(BALANCED);
    let first = world.start();
    world.await_passes(SOUTH);
    let server = socket(&world.south, "10.10.2.2:7000");
    let client = || socket(&world.north, "10.10.1.2:0");
    let relayed = |client: &UdpSocket, what: &[u8]| {
        client.send_to(what, (NEAR, 5000)).unwrap();
        let mut octets = [0; 64];
        let (len, from) = server.recv_from(&mut octets).unwrap();
        assert_eq!(&octets[..len], what);
        server.send_to(b"back", from).unwrap();
        assert_eq!(client.recv_from(&mut octets).unwrap().0, 4);
    };
    let clients: Vec<_> = (0..5).map(|_| client()).collect();
    // Who sends again after an answer stays for two minutes.
    for what in [b"one", b"two"] {
        for client in &clients {
            relayed(client, what);
        }
    }
    client().send_to(b"refused", (NEAR, 5000)).unwrap();
    relayed(&clients[0], b"after");
    let told = || world.ask(&["status", "--json"]).json();
    let is_told = |told: &Value| {
        let balance = &told["balances"][0];
        assert_eq!(balance["relays"][0]["flows"], 5, "{balance}");
        assert_eq!([&balance["admitted"], &balance["refused"]["late"]], [5, 1], "{balance}");
        assert_eq!(told["udp_gateways"][0]["lost"], 1, "{told}");
    };
    is_told(&told());
    assert!(wait_until(WITHIN, || world.ask(&["events", "--json"]).out.contains("flow-refused")));
    first.kill();
    relayed(&clients[1], b"alone");
    let second = world.start();
    assert_eq!(world.planes()["adopted"], true);
    relayed(&clients[2], b"three");
    is_told(&told());
    world.end(&second);
}

/// The kernel's ICMP error says that a relay has no socket: its clients go to the other one. Once
/// it has one again, a client goes there, and its answer brings the relay back.
fn clients_leave_a_relay() {
    let world = World::new("relay-gone");
    let second = "[[balance.relays.relay]]\naddress = \"10.10.2.2\"\nport = 7001\n\
                  fixed_ns = 1_000_000\n";
    world.describe(&format!("{BALANCED}{second}"));
    let gateway = world.start();
    world.await_passes(SOUTH);
    let relays = [7000, 7001].map(|port| socket(&world.south, &format!("10.10.2.2:{port}")));
    for relay in &relays {
        relay.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    }
    // Whether a datagram of the client reaches the relay, which answers it.
    let relayed = |client: &UdpSocket, relay: &UdpSocket| {
        client.send_to(b"one", (NEAR, 5000)).unwrap();
        let mut octets = [0; 64];
        let Ok((_, from)) = relay.recv_from(&mut octets) else { return false };
        relay.send_to(b"back", from).unwrap();
        client.recv_from(&mut octets).is_ok()
    };
    let clients: Vec<_> = (0..2).map(|_| socket(&world.north, "10.10.1.2:0")).collect();
    let pairs = [(&clients[0], &relays[0]), (&clients[1], &relays[1])];
    assert!(pairs.iter().all(|(client, relay)| relayed(client, relay)), "{}", world.said());
    let [stays, gone] = relays;
    drop(gone);
    assert!(wait_until(WITHIN, || relayed(&clients[1], &stays)), "{}", world.said());
    let status = || world.ask(&["status", "--json"]).json()["balances"][0].clone();
    assert_eq!(status()["relays"][1]["reachability"], json!({"left_out": true, "unreachable": 1}));
    let events = || world.ask(&["events", "--json"]).out;
    assert!(wait_until(WITHIN, || events().contains("\"relay-left-out\"")), "{}", world.said());

    let back = socket(&world.south, "10.10.2.2:7001");
    back.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let tries = || relayed(&socket(&world.north, "10.10.1.2:0"), &back);
    assert!(wait_until(WITHIN, tries), "{}", status());
    assert_eq!(status()["relays"][1]["reachability"]["left_out"], false);
    assert!(wait_until(WITHIN, || events().contains("\"relay-back\"")), "{}", world.said());
    world.end(&gateway);
}

/// A route to the network of `south` by two next hops, each of which carries five flows as in
/// [`BALANCED`]. The second one is a station that is not there.
const NEXT_HOPS: &str = "[[route]]\nto = \"198.51.100.0/24\"\nbalance = \"hops\"\n\
                         flow = { rate = 100, octets = 100, within_us = 6000 }\n\
                         [[neighbour]]\naddress = \"10.10.2.9\"\nmac = \"02:00:00:00:00:09\"\n\
                         [balance.hops]\n\
                         [[balance.hops.relay]]\naddress = \"10.10.2.2\"\nfixed_ns = 1_000_000\n\
                         [[balance.hops.relay]]\naddress = \"10.10.2.9\"\nfixed_ns = 1_000_000\n";

/// Each flow goes to one next hop, where its bound is kept, also while the control plane is away, and
/// what would be late is refused. Only packets to the first next hop arrive.
fn flows_keep_their_next_hops() {
    let world = World::new("next-hops");
    world.describe(NEXT_HOPS);
    world.links[1].b.add_address("198.51.100.1/24").unwrap();
    let first = world.start();
    world.await_passes(SOUTH);
    let server = socket(&world.south, "198.51.100.1:7000");
    server.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let clients: Vec<_> = (0..12).map(|_| socket(&world.north, "10.10.1.2:0")).collect();
    // The ports of those that are heard when all have sent.
    let heard = || {
        for client in &clients {
            client.send_to(b"one", "198.51.100.1:7000").unwrap();
        }
        let mut ports = BTreeSet::new();
        let mut octets = [0; 64];
        let all = wait_until(WITHIN, || {
            while let Ok((_, from)) = server.recv_from(&mut octets) {
                ports.insert(from.port());
            }
            ports.len() == 5
        });
        assert!(all, "{ports:?}: {}", world.said() + &world.ask(&["status"]).out);
        ports
    };
    let ports = heard();
    assert_eq!(heard(), ports, "each flow keeps its next hop");
    let status = || world.ask(&["status", "--json"]).json();
    let is_refused = || status()["balances"][0]["refused"]["late"] == 4;
    assert!(wait_until(WITHIN, is_refused), "two flows, twice: {}", status()["balances"]);
    let told = status();
    let balance = &told["balances"][0];
    let flows = |at: usize| balance["relays"][at]["flows"].clone();
    assert_eq!((flows(0), flows(1)), (5.into(), 5.into()), "{balance}");
    assert_eq!((&balance["name"], &balance["admitted"]), (&"hops".into(), &10.into()));
    assert!(wait_until(WITHIN, || world.ask(&["events", "--json"]).out.contains("flow-refused")));
    assert!(world.passes(SOUTH), "other routes are as they were");
    first.kill();
    assert_eq!(heard(), ports, "the data plane goes on alone");
    let second = world.start();
    world.end(&second);
}

/// Nobody tells the link-layer address of the second next hop: its flows arrive by the first one.
fn flows_leave_a_next_hop() {
    let world = World::new("next-hop-gone");
    let neighbour = "[[neighbour]]\naddress = \"10.10.2.9\"\nmac = \"02:00:00:00:00:09\"\n";
    world.describe(&NEXT_HOPS.replace(neighbour, ""));
    world.links[1].b.add_address("198.51.100.1/24").unwrap();
    let gateway = world.start();
    world.await_passes(SOUTH);
    let server = socket(&world.south, "198.51.100.1:7000");
    server.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let clients: Vec<_> = (0..4).map(|_| socket(&world.north, "10.10.1.2:0")).collect();
    // All arrive together, once two of them have been lost.
    let all_arrive = || {
        for client in &clients {
            client.send_to(b"one", "198.51.100.1:7000").unwrap();
        }
        let mut octets = [0; 64];
        let mut ports = BTreeSet::new();
        while let Ok((_, from)) = server.recv_from(&mut octets) {
            ports.insert(from.port());
        }
        ports.len() == clients.len()
    };
    assert!(!all_arrive(), "two have the other next hop");
    assert!(wait_until(WITHIN, all_arrive), "{}", world.said() + &world.ask(&["status"]).out);
    let relays = world.ask(&["status", "--json"]).json()["balances"][0]["relays"].clone();
    assert_eq!(relays[0]["reachability"], json!({"left_out": false, "unreachable": 0}));
    assert!(relays[1]["reachability"]["unreachable"].as_u64().unwrap() >= 1, "{relays}");
    assert!(wait_until(WITHIN, || world.ask(&["events", "--json"]).out.contains("relay-left-out")));
    world.end(&gateway);
}

/// Addresses, handlers and links of the new description are there, those of the old one are not.
fn a_changed_description_is_taken() {
    let world = World::new("changed");
    let count = "[[attach]]\nhandler = \"count\"\nat = \"ether:ipv4\"\n";
    let capture = world.folder.join("lan.pcapng");
    let captures = format!(
        "[[attach]]\nhandler = \"capture\"\nat = \"frame\"\nplace = \"tap\"\nlink = \"lan\"\n\
         file = \"{}\"\n",
        capture.display()
    );
    world.describe(&format!("{count}{captures}"));
    let first = world.start();
    world.await_passes(SOUTH);
    let data = world.planes()["data"].clone();
    first.kill();
    let text = fs::read_to_string(world.folder.join("gateway.toml")).unwrap();
    let drop = "[[attach]]\nhandler = \"drop\"\nat = \"ether:ipv4\"\n\
                match = { destination = \"10.10.2.0/24\" }\n";
    let text = text.replace(count, drop).replace("1.1/24\"", &format!("1.1/24\", \"{LATER}/24\""));
    fs::write(world.folder.join("gateway.toml"), text).unwrap();
    assert!(world.passes(SOUTH), "by the handlers of before");
    let second = world.start();
    assert_eq!(world.planes()["data"], data, "{}", world.said());
    world.await_passes(LATER);
    assert!(!world.passes(SOUTH), "it is dropped now");
    let attached = world.ask(&["status", "--json"]).json()["attached"].clone();
    let handlers: Vec<_> = attached.as_array().unwrap().iter().map(|one| &one["handler"]).collect();
    assert_eq!(handlers, ["drop", "capture"]);
    // A second one beside a living one changes nothing.
    let third = world.run().wait().unwrap();
    assert_eq!(third.code(), Some(69), "{}", world.said());
    world.await_passes(LATER);
    // What cannot be taken is refused with its process, and the data plane goes on.
    second.kill();
    let text = fs::read_to_string(world.folder.join("gateway.toml")).unwrap();
    let other = text.replace("[planes]\n", "[planes]\ndata_cores = 2\n");
    fs::write(world.folder.join("gateway.toml"), other).unwrap();
    assert_eq!(world.run().wait().unwrap().code(), Some(69));
    assert!(world.said().contains("runs with another number of data cores"), "{}", world.said());
    assert!(world.passes(LATER));
    fs::write(world.folder.join("gateway.toml"), text).unwrap();
    let last = world.start();
    assert_eq!(world.planes()["data"], data);
    world.await_passes(LATER);
    world.end(&last);
    let read =
        Command::new("tshark").arg("-r").arg(&capture).args(["-Y", "icmp"]).output().unwrap();
    assert!(read.status.success() && !read.stdout.is_empty(), "the capture is read");
}

/// The kernel is the host; what it learns while there is no control plane is followed afterwards.
fn shared_links_go_on() {
    let world = World::new("shared");
    for (link, address) in [("g0", "10.10.1.1/24"), ("g1", "10.10.2.1/24")] {
        world.middle.ip(&["address", "add", address, "dev", link]).unwrap();
    }
    // Without the gateway nobody forwards.
    world.middle.sysctl("net.ipv4.ip_forward", "0").unwrap();
    let text = "[planes]\nmode = \"process\"\n\
                [link.lan]\ndevice = \"g0\"\nmode = \"packet\"\nexclusive = false\n\
                [link.wan]\ndevice = \"g1\"\nmode = \"packet\"\nexclusive = false\n";
    fs::write(world.folder.join("gateway.toml"), text).unwrap();
    let first = world.start();
    world.await_passes(SOUTH);
    first.kill();
    assert!(world.passes(SOUTH), "without a control plane");
    // Two networks come and go meanwhile.
    world.south.ip(&["address", "add", "10.10.7.2/24", "dev", "s0"]).unwrap();
    world.middle.ip(&["route", "add", "10.10.7.0/24", "via", SOUTH]).unwrap();
    let second = world.start();
    assert_eq!(world.planes()["adopted"], true);
    world.await_passes("10.10.7.2");
    world.await_passes(SOUTH);
    let forwarded =
        |world: &World| world.ask(&["status", "--json"]).json()["kernel"]["forwarded"].clone();
    let with = forwarded(&world).as_u64().unwrap();
    second.kill();
    world.middle.ip(&["route", "del", "10.10.7.0/24"]).unwrap();
    let third = world.start();
    assert_eq!(forwarded(&world).as_u64().unwrap(), with - 1);
    assert!(!world.passes("10.10.7.2"), "the kernel does not know it either");
    world.await_passes(SOUTH);
    // The data plane dies: the next one divides the links by the same table.
    world.kill(&world.planes()["data"].to_string());
    world.await_passes(SOUTH);
    world.end(&third);
}

fn another_version_is_refused(world: &World) {
    let other = world.folder.join("other");
    fs::write(&other, "#!/bin/sh\necho '{\"planes\": \"0, tables 0\"}'\n").unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
    let refused = Said::from(world.upgrade(other.to_str().unwrap()).output().unwrap());
    assert_eq!(refused.code, Some(1), "{}", refused.out);
    assert!(refused.out.contains("does not fit: its planes are of version 0, tables 0"));
}

/// Another file with the same program takes over, one plane after the other, while datagrams pass at a
/// thousand a second. A program of another version changes nothing.
fn upgraded() {
    let world = World::new("upgraded");
    world.describe(RELAY);
    let process = world.start();
    world.await_passes(SOUTH);
    let before = world.planes();
    another_version_is_refused(&world);
    assert_eq!(world.planes(), before, "nothing is taken over");
    let new = world.folder.join("gatewright");
    fs::copy(env!("CARGO_BIN_EXE_gatewright"), &new).unwrap();
    let (sender, receiver) =
        (socket(&world.north, "10.10.1.2:0"), socket(&world.south, "10.10.2.2:7100"));
    receiver.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let (ended, arrived) = (AtomicBool::new(false), AtomicU32::new(0));
    let (sent, said) = thread::scope(|threads| {
        threads.spawn(|| {
            while receiver.recv_from(&mut [0; 64]).is_ok() {
                arrived.fetch_add(1, Ordering::Relaxed);
            }
        });
        let sending = threads.spawn(|| {
            let mut sent = 0_u32;
            while !ended.load(Ordering::Relaxed) {
                sent += u32::from(sender.send_to(b"one of many", "10.10.2.2:7100").is_ok());
                thread::sleep(Duration::from_millis(1));
            }
            sent
        });
        let asking = threads.spawn(|| {
            let mut codes = BTreeSet::new();
            while !ended.load(Ordering::Relaxed) {
                codes.insert(world.ask(&["status"]).code);
            }
            codes
        });
        thread::sleep(Duration::from_millis(200));
        let said = Said::from(world.upgrade(new.to_str().unwrap()).output().unwrap());
        thread::sleep(Duration::from_millis(200));
        ended.store(true, Ordering::Relaxed);
        let codes = asking.join().unwrap();
        // Done, or busy: never as if no gateway ran.
        assert!(codes.is_subset(&BTreeSet::from([Some(0), Some(75)])), "{codes:?}");
        (sending.join().unwrap(), said)
    });
    assert_eq!(said.code, Some(0), "{}{}", said.err, world.said());
    let told: Value = serde_json::from_str(&said.out).unwrap();
    let after = world.planes();
    assert_eq!(told["program"], new.to_str().unwrap());
    assert_eq!(
        (&after["control"], &told["control"]["process"]),
        (&before["control"], &before["control"])
    );
    assert_eq!(
        (&told["data"]["before"], &told["data"]["process"]),
        (&before["data"], &after["data"])
    );
    assert_ne!(before["data"], after["data"]);
    assert_eq!(after["adopted"], false, "control itself has started it");
    let (lost, frames) =
        (sent - arrived.load(Ordering::Relaxed), told["data"]["frames"].as_u64().unwrap());
    println!("{told}: {lost} of {sent} datagrams lost");
    // The next one has an empty queue, and asks for its neighbours anew.
    assert!(u64::from(lost) <= frames + QUEUES, "{lost} lost, {frames} said");
    // Multicast for others is dropped at any time.
    let dropped = told["control"]["lost"].as_u64().unwrap();
    assert!(dropped < 32, "while control was exchanged: {told}");
    assert_eq!(world.processes_of(new.to_str().unwrap()).len(), 2);
    world.await_passes(SOUTH);
    process.terminate().unwrap();
    let is_gone = || world.processes_of(new.to_str().unwrap()).is_empty();
    assert!(wait_until(WITHIN, is_gone), "{}", world.shown());
}

/// A description that cannot be read or that a running gateway cannot take ends nothing; what it can
/// take is in force after an upgrade.
fn wrong_descriptions() {
    let world = World::new("wrong");
    world.describe("");
    let process = world.start();
    world.await_passes(SOUTH);
    let before = world.planes();
    let file = world.folder.join("gateway.toml");
    let text = fs::read_to_string(&file).unwrap();
    let new = world.folder.join("gatewright");
    fs::copy(env!("CARGO_BIN_EXE_gatewright"), &new).unwrap();
    let upgrade = || Said::from(world.upgrade(new.to_str().unwrap()).output().unwrap());
    let wrong = [
        Some(format!("{text}garbage = [\n")),
        Some(text.replace("[planes]\n", "[planes]\ndata_cores = 2\n")),
        Some(text.replace("\"g1\"", "\"no-device\"")),
        None,
    ];
    for wrong in wrong {
        match &wrong {
            Some(text) => fs::write(&file, text).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        let refused = upgrade();
        assert_eq!(refused.code, Some(78), "{wrong:?}: {}{}", refused.out, refused.err);
        assert!(refused.out.contains("nothing is changed"), "{wrong:?}: {}", refused.out);
        assert_eq!(world.planes(), before, "{wrong:?}");
        assert!(world.passes(SOUTH), "{wrong:?}");
    }
    fs::write(&file, text.replace("1.1/24\"", &format!("1.1/24\", \"{LATER}/24\""))).unwrap();
    let said = upgrade();
    assert_eq!(said.code, Some(0), "{}{}{}", said.out, said.err, world.said());
    world.await_passes(LATER);
    // The data plane has the program's name, not that of the link by which it was started.
    let processes = world.processes_of(new.to_str().unwrap());
    assert_eq!(processes.len(), 2, "{}", world.shown());
    for process in processes {
        let told = |what: &str| {
            let path = format!("/proc/{process}/{what}");
            world.middle.command("cat").arg(path).output().unwrap().stdout
        };
        assert_eq!(told("comm"), b"gatewright\n");
        assert!(told("cmdline").starts_with(new.as_os_str().as_encoded_bytes()));
    }
    process.terminate().unwrap();
    let is_gone = || world.processes_of(new.to_str().unwrap()).is_empty();
    assert!(wait_until(WITHIN, is_gone), "{}", world.shown());
}

/// A link that was to be set down while the data plane stood still is up when it goes on, and in the
/// next one, as `status` says.
fn orders_are_withdrawn() {
    let world = World::new("withdrawn");
    world.describe("");
    let process = world.start();
    world.await_passes(SOUTH);
    let data = world.planes()["data"].to_string();
    world.signal("-STOP", &data);
    let refused = world.ask(&["link", "down", "lan"]);
    world.signal("-CONT", &data);
    assert_ne!(refused.code, Some(0), "{}", refused.out);
    let is_up = || world.ask(&["status", "--json"]).json()["links"][0]["state"] == "up";
    // It has executed all orders when it answers.
    assert!(wait_until(WITHIN, is_up), "{}", world.ask(&["status"]).out);
    world.await_passes(SOUTH);
    world.kill(&data);
    let comes = || world.planes()["data"].as_u64().is_some_and(|it| it.to_string() != data);
    assert!(wait_until(WITHIN, comes), "{}", world.said());
    world.await_passes(SOUTH);
    assert_eq!(world.planes()["adopted"], false);
    // One that is executed stays in force.
    world.ask(&["link", "down", "lan"]).text();
    assert!(!world.passes(SOUTH) && !is_up());
    world.end(&process);
}

/// Datagrams that wait in a data plane at its end, or for a neighbour after the next one's beginning.
const QUEUES: u64 = 512;

/// Numbers from a seed (Marsaglia, Xorshift RNGs, 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Control is killed while it starts, adopts or reloads, and the data plane while it runs. The next
/// `run` continues each time, and in the end there is no process, program or interface.
fn kills_at_random_points_leave_nothing() {
    let kills = std::env::var(KILLS).ok().and_then(|text| text.parse().ok());
    let kills = kills.unwrap_or(KILLS_DEFAULT);
    let seed = u64::from(std::process::id()) << 20 | 1;
    println!("seed {seed}, {kills} kills");
    let (world, mut random) = (World::new("kills"), Random(seed));
    let descriptions =
        [String::new(), format!("[link.tap]\nmode = \"tap\"\ndevice = \"gw-tap\"\n{RELAY}")];
    let mut adopted = 0;
    for kill in 0..kills {
        world.describe(&descriptions[(kill % 2) as usize]);
        let pause =
            |random: &mut Random, limit| thread::sleep(Duration::from_micros(random.below(limit)));
        match random.below(4) {
            // While it starts or adopts.
            0 => {
                let process = world.run();
                pause(&mut random, 300_000);
                process.kill();
            }
            // While it takes a description.
            1 => {
                let process = world.start();
                world.describe(&descriptions[((kill + 1) % 2) as usize]);
                process.hang_up().unwrap();
                pause(&mut random, 50_000);
                process.kill();
            }
            // While another program takes over, one plane after the other.
            2 => {
                let process = world.start();
                let mut upgrade = world.upgrade(env!("CARGO_BIN_EXE_gatewright"));
                let mut upgrade = upgrade.stderr(Stdio::null()).spawn().unwrap();
                pause(&mut random, 400_000);
                process.kill();
                let _refused = upgrade.kill();
                upgrade.wait().unwrap();
            }
            // The data plane, and control a moment later: it may just start the next one.
            _ => {
                let process = world.start();
                world.kill(&world.planes()["data"].to_string());
                pause(&mut random, 100_000);
                process.kill();
            }
        }
        if kill % 5 == 4 {
            let process = world.start();
            adopted += u32::from(world.planes()["adopted"] == true);
            world.await_passes(SOUTH);
            let are_two = || world.processes().len() == 2;
            assert!(wait_until(Duration::from_secs(5), are_two), "{}", world.shown());
            process.kill();
        }
    }
    println!("{adopted} adopted");
    let last = world.start();
    world.await_passes(SOUTH);
    world.end(&last);
}
