//! Readings of devices that the data plane sends to a CSE: devices, gateway and CSE in a namespace
//! each, the gateway as two processes of which one is killed.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod trials;

use gatewright_testbed::{Namespace, Needs, Process, Veth, wait_until};
use serde_json::Value;
use std::{
    fs,
    io::{Read, Write},
    net::{TcpStream, UdpSocket},
    path::PathBuf,
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

/// Generous: nothing here takes as long unless it never comes.
const WITHIN: Duration = Duration::from_mins(1);

/// The CSE's address over a cable between the kernels.
const CSE_HTTP: &str = "10.10.3.2:8080";

/// The address of the gateway's own CSE.
const GATEWAY_HTTP: &str = "127.0.0.1:8080";

/// A network that is a cable: its first addresses without the last number, and the prefix length.
#[derive(Clone, Copy)]
struct Net(&'static str, u8);

/// Devices and gateway, gateway and CSE.
const LAN: [Net; 2] = [Net("10.10.1.", 24), Net("fd10:1::", 64)];
const WAN: [Net; 2] = [Net("10.10.2.", 24), Net("fd10:2::", 64)];

impl Net {
    fn address(self, host: u8) -> String {
        format!("{}{host}", self.0)
    }

    fn prefix(self, host: u8) -> String {
        format!("{}/{}", self.address(host), self.1)
    }

    fn port(self, host: u8, port: u16) -> String {
        let address = self.address(host);
        if self.1 == 64 { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
    }
}

/// Requests to CSEs so far.
static REQUESTS: AtomicU32 = AtomicU32::new(0);

const BINARY: &str = env!("CARGO_BIN_EXE_gatewright");

fn main() {
    let needs = Needs::new().namespaces();
    let tests: [(&str, fn()); 4] = [
        ("readings_arrive_by_the_data_plane", readings_arrive),
        ("confirmed_reports_are_answered_by_the_data_plane", confirmed_reports),
        ("readings_go_on_without_a_control_plane", readings_go_on),
        ("a_cse_that_lost_its_places_gets_them_again", places_again),
    ];
    trials::run(&needs, tests)
}

struct World {
    north: Namespace,
    middle: Namespace,
    south: Namespace,
    _links: [Veth; 3],
    folder: PathBuf,
    lan: Net,
}

impl World {
    fn new(name: &str, planes: &str, content: &str, [lan, wan]: [Net; 2]) -> Self {
        let [north, middle, south] = [(); 3].map(|()| Namespace::new().unwrap());
        let below = Veth::pair(&north, "n0", &middle, "g0").unwrap();
        let above = Veth::pair(&middle, "g1", &south, "s0").unwrap();
        let beside = Veth::pair(&middle, "m0", &south, "s1").unwrap();
        below.a.add_address(&lan.prefix(2)).unwrap();
        above.b.add_address(&wan.prefix(2)).unwrap();
        beside.a.add_address("10.10.3.1/24").unwrap();
        beside.b.add_address("10.10.3.2/24").unwrap();
        for link in [&below, &above, &beside] {
            link.up().unwrap();
        }
        for place in [&middle, &south] {
            place.ip(&["link", "set", "lo", "up"]).unwrap();
        }
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("direct-{name}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let (manager, cse_coap) = (lan.port(1, 6024), wan.port(2, 5683));
        let (lan_own, wan_own) = (lan.prefix(1), wan.prefix(1));
        let gateway = format!(
            "[planes]\nmode = \"{planes}\"\n\
             [link.lan]\ndevice = \"g0\"\nmode = \"packet\"\naddresses = [\"{lan_own}\"]\n\
             [link.wan]\ndevice = \"g1\"\nmode = \"packet\"\naddresses = [\"{wan_own}\"]\n\
             [devices]\nlisten = \"127.0.0.1:6024\"\nstack = \"{manager}\"\ndelivery = \"direct\"\n\
             [cse]\nbase = \"cse-gw\"\nid = \"/gw\"\nadmin = \"CAdmin\"\nhttp = \"{GATEWAY_HTTP}\"\n\
             store = \"gateway.db\"\n\
             [cse.registrar]\nurl = \"http://{CSE_HTTP}\"\nid = \"/id-in\"\nbase = \"cse-in\"\n\
             coap = \"{cse_coap}\"\ncoap_content = \"{content}\"\n"
        );
        fs::write(folder.join("gateway.toml"), gateway).unwrap();
        let cse = format!(
            "[gateway]\nname = \"above\"\n[cse]\nbase = \"cse-in\"\nid = \"/id-in\"\n\
             type = \"infrastructure\"\nadmin = \"CAdmin\"\nadmit = [\"/gw\"]\n\
             http = \"{CSE_HTTP}\"\ncoap = \"{cse_coap}\"\ninstances_max = 100000\n"
        );
        fs::write(folder.join("cse.toml"), cse).unwrap();
        Self { north, middle, south, _links: [below, above, beside], folder, lan }
    }

    /// `gatewright run` of one of the two descriptions, once it answers.
    fn start(&self, place: &Namespace, name: &str) -> Process {
        let path = |end: &str| self.folder.join(format!("{name}.{end}"));
        let said = fs::OpenOptions::new().create(true).append(true).open(path("said")).unwrap();
        let command = place.command(BINARY).arg("run").arg(path("toml"));
        let command = command.arg("--socket").arg(path("s"));
        let process = command.stdout(Stdio::null()).stderr(said).spawn().unwrap();
        assert!(wait_until(WITHIN, || self.status(name).is_some()), "{}", self.said(name));
        process
    }

    fn said(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(format!("{name}.said"))).unwrap_or_default()
    }

    fn status(&self, name: &str) -> Option<Value> {
        let mut command = Command::new(BINARY);
        command.args(["status", "--json", "--socket"]).arg(self.folder.join(format!("{name}.s")));
        let answer = command.stdin(Stdio::null()).output().unwrap();
        answer.status.success().then(|| serde_json::from_slice(&answer.stdout).unwrap())
    }

    /// A number that a part of the gateway reports.
    fn number(&self, part: &str, name: &str) -> u64 {
        let status = self.status("gateway").unwrap_or_else(|| panic!("{}", self.said("gateway")));
        let part = status["parts"].as_array().unwrap().iter().find(|it| it["name"] == part);
        let counters = part.unwrap()["counters"].as_array().unwrap().iter();
        let pair = counters.clone().find(|it| it[0] == name);
        pair.unwrap_or_else(|| panic!("no {name}: {status}"))[1].as_u64().unwrap()
    }

    fn forwarded(&self, name: &str) -> u64 {
        self.number("report_forwarder", name)
    }

    /// Devices that report without waiting for answers.
    fn devices(&self, kind: &str, rate: u32) -> Process {
        self.simulated(kind, rate, &["--faults", "unconfirmed"])
    }

    /// Devices, with further options.
    fn simulated(&self, kind: &str, rate: u32, options: &[&str]) -> Process {
        let command = self.north.command(BINARY);
        let command = command.args(["device", "simulate", "--udp"]).args(options);
        let manager = self.lan.port(1, 6024);
        let command = command.args(["--to", &manager, "--kind", kind, "--count", "3"]);
        let rate = rate.to_string();
        let command = command.args(["--seconds", "600", "--rate", rate.as_str()]);
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    }

    /// A retrieval from the CSE above.
    fn get(&self, path: &str) -> Value {
        get(&self.south, CSE_HTTP, path, "CAdmin")
    }

    /// A retrieval from the gateway's own CSE.
    fn get_here(&self, path: &str, from: &str) -> Value {
        get(&self.middle, GATEWAY_HTTP, path, from)
    }

    /// The gateway has the latest readings of a container of the CSE above, the same as that CSE.
    fn check_latest_here(&self, container: &str) {
        let here = container.replacen("cse-in", "cse-gw", 1);
        let latest = || self.get_here(&format!("/{here}/la"), "CAdmin")["m2m:cin"].clone();
        let first = latest();
        let shown = || format!("{container}: {first} {}", self.said("gateway"));
        assert!(first["rn"].is_string(), "{}", shown());
        // Every reading is readable, not only the first.
        assert!(wait_until(WITHIN, || latest()["rn"] != first["rn"]), "{}", shown());
        let above = || self.get(&format!("/{container}/{}", first["rn"].as_str().unwrap()));
        // Its message may still be under way.
        assert!(wait_until(WITHIN, || above()["m2m:cin"]["con"].is_object()), "{}", shown());
        assert_eq!(above()["m2m:cin"]["con"], first["con"], "{}", shown());
    }

    /// Addresses of the containers with readings at the CSE above.
    fn containers(&self) -> Vec<String> {
        let found = self.get("/cse-in?fu=1&ty=3");
        let all = found["m2m:uril"].as_array().cloned().unwrap_or_default();
        let all = all.iter().map(|it| it.as_str().unwrap().to_owned());
        all.filter(|it| it.contains("phd-") && it.matches('/').count() == 2).collect()
    }

    /// Readings that the CSE above has.
    fn readings(&self) -> u64 {
        let containers = self.containers();
        let count = |at: &String| self.get(&format!("/{at}"))["m2m:cnt"]["cni"].as_u64();
        containers.iter().filter_map(count).sum()
    }
}

/// A retrieval from a CSE.
fn get(place: &Namespace, cse: &str, path: &str, from: &str) -> Value {
    // No request is a repetition of an earlier one.
    let id = REQUESTS.fetch_add(1, Ordering::Relaxed);
    let answer = place.run(|| {
        let mut stream = TcpStream::connect(cse).unwrap();
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {cse}\r\nX-M2M-Origin: {from}\r\nX-M2M-RI: {id}\r\n\
             X-M2M-RVI: 4\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    let answer = answer.unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    serde_json::from_str(body).unwrap_or(Value::Null)
}

/// JSON and CBOR, on threads and in a process: what arrives is what the control plane would have sent.
fn readings_arrive() {
    for (planes, content, family) in [("process", "cbor", 0), ("threads", "json", 1)] {
        let world = World::new(planes, planes, content, [LAN[family], WAN[family]]);
        let above = world.start(&world.south, "cse");
        let gateway = world.start(&world.middle, "gateway");
        let devices = world.devices("oximeter", 20);
        let is_forwarded = || world.forwarded("reports") >= 60;
        let shown = || format!("{:?} {}", world.status("gateway"), world.said("gateway"));
        assert!(wait_until(WITHIN, is_forwarded), "{}", shown());
        assert_eq!(world.forwarded("refused"), 0, "{}", shown());
        assert_eq!(world.forwarded("not_sent"), 0);
        // One each, and another for a device with many reports before its first plan.
        assert!(world.number("devices", "plans") >= 3, "{}", shown());
        // Each report became a request for each of its two objects.
        let (reports, requests) = (world.forwarded("reports"), world.forwarded("requests"));
        assert!(requests >= 2 * reports - 2, "{reports} {requests}");
        assert!(wait_until(WITHIN, || world.forwarded("created") >= 100), "{}", shown());
        // The last one looks like one of the first, which the control plane has sent.
        let container = &world.containers()[0];
        let latest = world.get(&format!("/{container}/la"))["m2m:cin"].clone();
        let oldest = world.get(&format!("/{container}/ol"))["m2m:cin"].clone();
        let members = |it: &Value| -> Vec<String> {
            it["con"].as_object().unwrap().keys().cloned().collect()
        };
        assert_eq!(members(&latest), members(&oldest), "{latest} {oldest}");
        for key in ["unit", "unitCode", "type", "name"] {
            assert_eq!(latest["con"][key], oldest["con"][key], "{latest} {oldest}");
        }
        assert_ne!(latest["rn"], oldest["rn"]);
        // It is readable here, too, for who may read it; nobody else has it stored.
        let here = container.replacen("cse-in", "cse-gw", 1);
        let denied = world.get_here(&format!("/{here}/la"), "CNobody");
        assert_eq!(denied["m2m:cin"], Value::Null, "{denied}");
        let stored = world.get_here(&format!("/{here}"), "CAdmin")["m2m:cnt"]["cni"].clone();
        assert_eq!(stored, 0, "{}", shown());
        world.check_latest_here(container);
        // A report of an address that is not associated goes nowhere.
        let forged = world.north.run(|| UdpSocket::bind(world.lan.port(2, 0))).unwrap();
        let forged = forged.unwrap();
        let strangers = world.forwarded("strangers");
        forged.send_to(&[0xE7, 0, 0, 2, 0, 0], world.lan.port(1, 6024)).unwrap();
        assert!(wait_until(WITHIN, || world.forwarded("strangers") > strangers), "{}", shown());
        devices.kill();
        gateway.terminate().unwrap();
        above.terminate().unwrap();
    }
}

/// Devices of one family and a CSE of the other: the data plane answers a confirmed report when the CSE
/// has its readings, and rejects it when the CSE is gone.
fn confirmed_reports() {
    // Codes, flags, durations and times: the paper's other two kinds of device.
    for (kind, [lan, wan]) in [("activity", [0, 1]), ("dispenser", [1, 0])] {
        let world = World::new(kind, "process", "cbor", [LAN[lan], WAN[wan]]);
        let above = world.start(&world.south, "cse");
        let gateway = world.start(&world.middle, "gateway");
        // While an IPv6 address is checked for duplicates, no Linux neighbour answers it.
        let address = WAN[wan].address(1);
        let ping = || world.south.command("ping").args(["-c", "1", "-W", "1", &address]).output();
        assert!(wait_until(WITHIN, || ping().unwrap().status.success()), "{address}");
        let devices = world.simulated(kind, 20, &[]);
        let shown = || format!("{:?} {}", world.status("gateway"), world.said("gateway"));
        assert!(wait_until(WITHIN, || world.forwarded("answered") >= 60), "{}", shown());
        assert_eq!(world.forwarded("refused"), 0, "{}", shown());
        assert!(world.readings() >= 60, "{}", shown());
        // A device keeps what is rejected; a slow CSE may have caused that, too.
        let rejected = world.forwarded("rejected");
        above.kill();
        assert!(wait_until(WITHIN, || world.forwarded("rejected") > rejected), "{}", shown());
        assert!(world.forwarded("sent_again") >= 1, "{}", shown());
        devices.kill();
        gateway.terminate().unwrap();
    }
}

/// Control is killed, and the next one adopts the associations.
fn readings_go_on() {
    let world = World::new("killed", "process", "cbor", [LAN[0], WAN[0]]);
    let above = world.start(&world.south, "cse");
    let first = world.start(&world.middle, "gateway");
    let devices = world.devices("oximeter", 20);
    // One that has no plan yet would meet the next control plane as a stranger.
    let all_planned = || world.number("devices", "plans") >= 3 && world.forwarded("reports") >= 30;
    assert!(wait_until(WITHIN, all_planned), "{}", world.said("gateway"));
    let data = world.status("gateway").unwrap()["planes"]["data"].clone();
    first.kill();
    let before = world.readings();
    let go_on = || world.readings() >= before + 60;
    assert!(wait_until(WITHIN, go_on), "without a control plane: {before} {}", world.readings());
    let second = world.start(&world.middle, "gateway");
    let planes = world.status("gateway").unwrap()["planes"].clone();
    assert_eq!((&planes["adopted"], &planes["data"]), (&Value::Bool(true), &data));
    let (before, plans) = (world.forwarded("reports"), world.number("devices", "plans"));
    assert!(wait_until(WITHIN, || world.forwarded("reports") >= before + 30));
    assert_eq!((plans, world.number("devices", "plans")), (0, 0), "associations are kept");
    // It has no session of them, and reads their readings out of the table.
    world.check_latest_here(&world.containers()[0]);
    // The data plane dies: the next one reads the plans, and goes on with the numbers.
    let (before, refused) = (world.forwarded("created"), world.forwarded("refused"));
    let killed = world.middle.command("kill").args(["-KILL", &data.to_string()]).output().unwrap();
    assert!(killed.status.success());
    assert!(wait_until(WITHIN, || {
        let status = world.status("gateway");
        status.is_some_and(|it| it["planes"]["data"] != data)
    }));
    let readings = world.readings();
    assert!(wait_until(WITHIN, || world.readings() >= readings + 30), "{before} {refused}");
    assert_eq!(world.forwarded("refused"), 0, "no name is given twice");
    devices.kill();
    second.terminate().unwrap();
    above.terminate().unwrap();
}

/// The CSE above begins anew, without its AEs: the control plane makes them again, and the data plane
/// goes on.
fn places_again() {
    let world = World::new("places", "process", "json", [LAN[0], WAN[0]]);
    let above = world.start(&world.south, "cse");
    let gateway = world.start(&world.middle, "gateway");
    let devices = world.devices("oximeter", 20);
    assert!(wait_until(WITHIN, || world.forwarded("created") >= 60), "{}", world.said("gateway"));
    above.kill();
    thread::sleep(Duration::from_millis(200));
    let above = world.start(&world.south, "cse");
    let plans = world.number("devices", "plans");
    let again = || world.number("devices", "plans") > plans;
    let shown = || format!("{:?} {}", world.status("gateway"), world.said("gateway"));
    assert!(wait_until(WITHIN, again), "{}", shown());
    let created = world.forwarded("created");
    assert!(wait_until(WITHIN, || world.forwarded("created") >= created + 60), "{}", shown());
    devices.kill();
    gateway.terminate().unwrap();
    above.terminate().unwrap();
}
