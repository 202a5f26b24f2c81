//! Gateways as Java: what they read and write is what the native reader and writer read and write,
//! at every split point; they do what their `test` blocks say, and whatever happens, what the
//! native machine does; and one speaks SLP and SSDP over groups, and HTTP, by sockets.
//!
//! All programs are compiled by one run of the compiler, and played by one process for messages and
//! one for machines. Without a JDK they are skipped tests, by name.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub,
    reason = "a test may fail loudly"
)]

mod build;
mod cases;
mod gateways;
mod happenings;
mod peers;

use build::is_there;
use build::java::SHORT_LIVED;
use cases::{cases, compare};
use gateways::{GATEWAYS, Poverty, agree, program, strangers, transcripts, turns, without_memory};
use gatewright_emit::java_package;
use gatewright_testbed::{Namespace, Needs};
use libtest_mimic::{Arguments, Failed, Trial};
use peers::Gateway;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

fn main() {
    let missing = !["javac", "java"].into_iter().all(is_there);
    let trial = |title: String, run: fn(&str) -> Result<(), Failed>, name: &'static str| {
        Trial::test(title, move || run(name)).with_ignored_flag(missing)
    };
    let mut trials = vec![Trial::test("messages", messages).with_ignored_flag(missing)];
    trials.push(Trial::test("buffers", buffers).with_ignored_flag(missing));
    let no_groups = missing || Needs::new().namespaces().missing().is_some();
    trials.push(Trial::test("groups", groups).with_ignored_flag(no_groups));
    trials.extend(GATEWAYS.map(|name| trial(format!("java::{name}"), played, name)));
    trials.extend(GATEWAYS.map(|name| trial(format!("events::{name}"), agreed, name)));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Every program, compiled once, strictest warnings on; the folder of the classes.
static CLASSES: LazyLock<Result<PathBuf, String>> =
    LazyLock::new(|| classes().map_err(|why| why.message().unwrap_or_default().to_owned()));

fn classes() -> Result<PathBuf, Failed> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("java");
    let programs: Vec<_> = [cases::program()].into_iter().chain(GATEWAYS.map(program)).collect();
    build::java::classes(&folder, &programs)
}

/// What runs the driver.
fn driver() -> Result<Command, Failed> {
    let classes = CLASSES.as_ref().map_err(|why| Failed::from(why.as_str()))?;
    Ok(build::java::driver(classes))
}

fn messages() -> Result<(), Failed> {
    let (program, _) = cases::program();
    compare(driver()?.arg("cases").arg(java_package(&program)), &cases(&program))
}

/// The process of all machines, one after the other.
static MACHINES: Mutex<Option<Gateway>> = Mutex::new(None);

/// Plays a program in the process of all machines; what it keeps is a failure.
fn with(name: &str, run: impl FnOnce(&mut Gateway) -> Result<(), Failed>) -> Result<(), Failed> {
    let mut machines = MACHINES.lock().unwrap_or_else(PoisonError::into_inner);
    if machines.is_none() {
        *machines = Some(Gateway::start(driver()?)?);
    }
    let gateway = machines.as_mut().unwrap();
    gateway.tell(&format!("program {}", java_package(&program(name).0)))?;
    run(gateway)?;
    let kept = gateway.tell("free")?;
    if kept.is_empty() { Ok(()) } else { Err(kept.join("\n").into()) }
}

fn played(name: &str) -> Result<(), Failed> {
    with(name, |gateway| {
        let (program, _) = program(name);
        if name == "smtp_relay" {
            turns(gateway)?;
        }
        if name == "finder" {
            strangers(gateway, &program)?;
        }
        transcripts(gateway, &program, true)
    })
}

fn agreed(name: &str) -> Result<(), Failed> {
    with(name, |gateway| {
        let (program, _) = program(name);
        agree(gateway, name, &program)?;
        without_memory(gateway, &program, Poverty::Lasts)
    })
}

/// A connection has a buffer while octets of it are pending, two pages at most, and else none.
fn buffers() -> Result<(), Failed> {
    with("smtp_relay", |gateway| {
        let lent = |gateway: &mut Gateway, wanted: std::ops::RangeInclusive<u64>| {
            let told = gateway.tell("lent")?.concat();
            let lent = told.strip_prefix("lent ").and_then(|lent| lent.parse().ok());
            let fits = lent.is_some_and(|lent| wanted.contains(&lent));
            if fits { Ok(()) } else { Err(Failed::from(format!("{told}, not {wanted:?}"))) }
        };
        gateway.tell("new")?;
        let mut conns = Vec::new();
        for _ in 0..10 {
            let told = gateway.tell("accept 0")?;
            conns.extend(
                told.iter().filter_map(|line| line.strip_prefix("conn ")?.parse::<u64>().ok()),
            );
        }
        assert_eq!(conns.len(), 10);
        lent(gateway, 0..=0)?;
        for conn in &conns {
            gateway.tell(&format!("octets {conn} 48454c"))?;
        }
        lent(gateway, 1..=10 * 8_192)?;
        for conn in &conns {
            gateway.tell(&format!("octets {conn} 4f20780d0a"))?;
        }
        lent(gateway, 0..=0)
    })
}

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The address of everybody.
const HERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const PAGES: u16 = 8200;
const FIND: &[u8] = b"\x02\x01\0\x004 \0\0\0\0\x124\0\x02en\0\0\0\x13service:MediaServer\
    \0\x07DEFAULT\0\0\0\0";
const FOUND: &[u8] = b"\x02\x02\0\0H\0\0\0\0\0\x124\0\x02en\0\0\0\x01\0\x01,\0.\
    service:MediaServer:http://192.0.2.1:8200/page\0";

/// SLP asks a group, SSDP asks another one, HTTP says where the page is.
fn groups() -> Result<(), Failed> {
    let net = Namespace::new()?;
    // Groups need an interface, and a way out over it.
    for arguments in [
        "link add lan0 type veth peer name lan1",
        "address add 192.0.2.1/24 dev lan0",
        "link set lan0 up",
        "link set lan1 up",
        "route add default dev lan0",
    ] {
        net.ip(&arguments.split(' ').collect::<Vec<_>>())?;
    }
    let classes = CLASSES.as_ref().map_err(|why| Failed::from(why.as_str()))?;
    let java = net.command("java").args(SHORT_LIVED).arg("-cp").arg(classes);
    let mut java = java.arg("slp_upnp.Gateway").stderr(Stdio::piped()).spawn()?;
    let mut told = BufReader::new(java.stderr().unwrap()).lines().map_while(Result::ok);
    if !told.any(|line| line.ends_with("ready")) {
        return Err("the gateway did not start".into());
    }
    let found = net.run(ask)??;
    if found == FOUND { Ok(()) } else { Err(found.escape_ascii().to_string().into()) }
}

/// What who asks by SLP gets, with a device and its page that are ours.
fn ask() -> std::io::Result<Vec<u8>> {
    let group = Ipv4Addr::new(239, 255, 255, 250);
    let device = UdpSocket::bind((group, 1900))?;
    device.join_multicast_v4(&group, &HERE)?;
    let pages = TcpListener::bind((HERE, PAGES))?;
    let agent = UdpSocket::bind((HERE, 0))?;
    device.set_read_timeout(Some(PATIENCE))?;
    agent.set_read_timeout(Some(PATIENCE))?;
    agent.send_to(FIND, SocketAddr::from(([239, 255, 255, 253], 427)))?;
    let mut octets = [0; 2_048];
    let (length, gateway) = device.recv_from(&mut octets)?;
    assert!(octets[..length].starts_with(b"M-SEARCH * HTTP/1.1\r\n"));
    let answer = "HTTP/1.1 200 OK\r\nEXT:\r\nLOCATION: http://192.0.2.1:8200/rootDesc.xml\r\n\
                  ST: urn:schemas-upnp-org:device:MediaServer:1\r\nUSN: uuid:1\r\n\r\n";
    device.send_to(answer.as_bytes(), gateway)?;
    let (mut page, _) = pages.accept()?;
    let length = page.read(&mut octets)?;
    assert!(octets[..length].starts_with(b"GET /rootDesc.xml HTTP/1.0\r\n"));
    let text = "<presentationURL>/page</presentationURL>";
    write!(page, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len())?;
    let length = agent.recv(&mut octets)?;
    Ok(octets[..length].to_vec())
}
