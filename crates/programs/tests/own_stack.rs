//! Programs over the gateway's own stack: their peers are kernels in other namespaces.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_config::{Config, LogFormat, parse};
use gatewright_diagnostic::{SourceId, Sources};
use gatewright_edge::conformance::{self, Peer};
use gatewright_gateway::{Assembly, DataPlaneProgram, Gateway, LogOptions, StartOptions};
use gatewright_lang::compile_importing;
use gatewright_programs::{StackNetwork, component, import, stack_findings};
use gatewright_testbed::{Namespace, Needs, Veth, wait_until};
use libtest_mimic::{Arguments, Failed, Trial};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Generous: nothing here takes as long unless it never comes.
const LIMIT: Duration = Duration::from_secs(30);

/// The gateway's own address, and that of its peer.
const OWN: &str = "10.10.1.1";
const PEER: &str = "10.10.1.2";

fn example(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/gateways")).join(name)
}

/// A host in the north, and the namespace of the gateway, on one cable.
fn hosts() -> Result<[Namespace; 2], Failed> {
    let [north, middle] = [(); 2].map(|()| Namespace::new().unwrap());
    let lan = Veth::pair(&north, "n0", &middle, "g0")?;
    lan.a.add_address(&format!("{PEER}/24"))?;
    lan.up()?;
    // Groups leave by the cable.
    north.ip(&["route", "add", "239.255.0.0/16", "dev", "n0"])?;
    middle.ip(&["link", "set", "lo", "up"])?;
    Ok([north, middle])
}

/// A gateway whose only link is exclusive, with `more` in its description.
fn description(more: &str) -> Config {
    let text = format!(
        "[link.lan]\nmode = \"packet\"\ndevice = \"g0\"\naddresses = [\"{OWN}/24\"]\n{more}\n"
    );
    let parsed = parse(SourceId::default(), &text);
    let findings: Vec<_> = parsed.diagnostics.iter().map(|it| it.message.clone()).collect();
    parsed.config.unwrap_or_else(|| panic!("{findings:?}"))
}

/// With it in its environment this test is the data plane of another one.
const SERVES: &str = "GATEWRIGHT_OWN_STACK_SERVES";

/// Where the data plane runs.
#[derive(Clone, Copy, Debug)]
enum PlaneMode {
    Threads,
    Process,
}

/// Gateways with programs.
const ASSEMBLY: Assembly = Assembly { services: None, programs: Some(component), web: false };

/// Control sockets so far.
static SOCKETS: AtomicU32 = AtomicU32::new(0);

/// A running gateway; in mode process this test is the program of its data plane, too.
fn open(config: &Config, mode: PlaneMode) -> Running {
    let PlaneMode::Process = mode else {
        return Running(Arc::new(Gateway::open(config, 7, ASSEMBLY).unwrap()));
    };
    let number = SOCKETS.fetch_add(1, Ordering::Relaxed);
    let socket = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("own-stack-{number}"));
    let own = std::env::current_exe().unwrap().into_os_string();
    let options = StartOptions {
        seed: 7,
        file: None,
        last_good: None,
        fallback: None,
        socket: Some(socket.clone()),
        default_socket: socket,
        say: Arc::new(|_| {}),
        log: LogOptions { format: Some(LogFormat::None), ..LogOptions::default() },
        upgrade: None,
        data_plane: Some(DataPlaneProgram {
            program: "env".into(),
            arguments: vec![format!("{SERVES}=1").into(), own],
        }),
        parts: Vec::new(),
        assembly: ASSEMBLY,
    };
    let config = Config { plane_mode: gatewright_config::PlaneMode::Process, ..config.clone() };
    Running(Gateway::start(&config, options).unwrap())
}

/// A gateway that ends with its test, and its data plane with it.
struct Running(Arc<Gateway>);

impl Deref for Running {
    type Target = Gateway;

    fn deref(&self) -> &Gateway {
        &self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Its control socket holds the gateway until then.
        let _status = self.0.stop();
    }
}

fn program(file: &Path, keys: &str) -> String {
    format!("[[program]]\nfile = \"{}\"\n{keys}\n", file.display())
}

/// Waits until the gateway has its address and answers.
fn reaches(north: &Namespace) {
    let ping = || north.command("ping").args(["-n", "-q", "-c1", "-W1", OWN]).output().unwrap();
    assert!(wait_until(LIMIT, || ping().status.success()));
}

/// A socket of the kernel that waits for datagrams for a limited time.
fn kernel_peer(address: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket
}

fn north_peer(north: &Namespace, port: u16) -> UdpSocket {
    north.run(|| kernel_peer(SocketAddr::new(PEER.parse().unwrap(), port))).unwrap()
}

/// The stack's sockets keep the contract that the kernel's keep.
fn the_stack_conforms(mode: PlaneMode) -> Result<(), Failed> {
    let [north, middle] = hosts()?;
    let gateway = middle.run(|| open(&description(""), mode))?;
    let over_stack = StackNetwork::new(gateway.planes(), vec!["conformance".to_owned()]);
    middle.run(|| conformance::waiting(&over_stack))??;
    reaches(&north);
    let mut peer = north_peer(&north, 7_000);
    let any_port = SocketAddr::new(OWN.parse().unwrap(), 0);
    middle.run(|| conformance::datagrams(&over_stack, any_port, &mut peer))??;
    Ok(())
}

/// A Modbus device on the loopback interface of the gateway's namespace: every register holds its
/// number and 218.
fn modbus() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || serve_modbus(stream.unwrap()));
        }
    });
    address
}

fn serve_modbus(mut stream: TcpStream) {
    let mut query = [0; 12];
    while stream.read_exact(&mut query).is_ok() {
        let value = u16::from_be_bytes([query[8], query[9]]) + 218;
        let reply = [&query[..4], &[0, 5, 1, 3, 2], &value.to_be_bytes()].concat();
        // Whoever asked may have gone.
        if stream.write_all(&reply).is_err() {
            return;
        }
    }
}

/// CoAP over the gateway's own stack, Modbus over the kernel's TCP: a shipped program with a role
/// on each side. A reload with another address for the stack's role takes it there.
fn a_shipped_program_runs_over_the_stack(mode: PlaneMode) -> Result<(), Failed> {
    let [north, middle] = hosts()?;
    let device = middle.run(modbus)?;
    let meant = |port: u16| {
        let keys =
            format!("at = [\"things={OWN}:{port}\", \"device={device}\"]\nstack = [\"things\"]");
        description(&program(&example("coap_to_modbus.gate"), &keys))
    };
    let gateway = middle.run(|| open(&meant(5_683), mode))?;
    reaches(&north);
    let mut peer = north_peer(&north, 7_000);
    let mut ask = |id: u8, port: u16| {
        // RFC 7252 §3: confirmable GET of "registers" and "40"; repeated as §4.2 says.
        let ask = [&[0x40, 1, 0x12, id, 0xb9], &b"registers"[..], &[2], b"40"].concat();
        let things = SocketAddr::new(OWN.parse().unwrap(), port);
        peer.send_to(&ask, things).unwrap();
        assert_eq!(
            peer.receive().unwrap(),
            // Acknowledgement, 2.05, content format 0, "258".
            ([&[0x60, 0x45, 0x12, id, 0xc0, 0xff], &b"258"[..]].concat(), things)
        );
    };
    (0..100).for_each(|id| ask(id, 5_683));
    middle.run(|| gateway.reload(&meant(5_684)))??;
    (100..110).for_each(|id| ask(id, 5_684));
    // The kernel has no socket there: the gateway's own stack is the host on this link.
    let kernel = middle.run(|| fs::read_to_string("/proc/thread-self/net/udp"))??;
    assert!(!kernel.contains(":1633") && !kernel.contains(":1634"), "{kernel}");
    let told = gateway.status()?.parts.into_iter().find(|part| part.name == "programs").unwrap();
    let program = told.told.words.iter().map(|(_, words)| words.as_str()).collect::<String>();
    assert!(program.contains(&format!("things at {OWN}:5684 (own stack)")), "{program}");
    Ok(())
}

const GROUP: &str = r#"
message echo {
    view question = datagram, at most 64 octets { id: private u16; text: rest }
    view answer = datagram, at most 64 octets { id: private u16; text: rest }
}

protocol echo = udp, async multicast {
    message echo
    connections at most 100
    request question { otherwise -> ask }
    response answer
    flow by id
    sending question { id = fresh }
    sending answer to question { id = request.id }
    malformed -> ignore
    failed -> ignore
    full -> ignore
    allow amplification
}

gateway passes {
    role here = echo server at "239.255.0.1:7001"
    role there = echo client to "239.255.0.2:7002"

    on ask(question) {
        let answer = send question(text: question.text) to there within 5 seconds else fail
        return answer(text: answer.text)
    }
}
"#;

/// The server is a member of a group, which the kernel's host asks; the client asks another, of
/// which that host is a member.
fn groups_are_heard_and_asked_over_the_stack(mode: PlaneMode) -> Result<(), Failed> {
    let [north, middle] = hosts()?;
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("own_stack_group.gate");
    fs::write(&file, GROUP)?;
    let config = description(&program(&file, "stack = [\"here\", \"there\"]"));
    let _gateway = middle.run(|| open(&config, mode))?;
    reaches(&north);
    north.run(|| {
        let interface: Ipv4Addr = PEER.parse().unwrap();
        let mut far = kernel_peer("0.0.0.0:7002".parse().unwrap());
        far.join_multicast_v4(&[239, 255, 0, 2].into(), &interface).unwrap();
        let mut near = kernel_peer(SocketAddr::new(interface.into(), 0));
        near.send_to(b"\x01\x02ab", "239.255.0.1:7001").unwrap();
        let (question, from) = far.receive().unwrap();
        assert_eq!(from.ip(), OWN.parse::<Ipv4Addr>().unwrap());
        let text = &question[2..];
        far.send_to(&[&question[..2], text, text].concat(), from).unwrap();
        let (answer, from) = near.receive().unwrap();
        assert_eq!(
            (&answer[..], from),
            (&b"\x01\x02abab"[..], format!("{OWN}:7001").parse().unwrap())
        );
    })?;
    Ok(())
}

/// What the stack cannot have is found before anything runs, at its place: the role's name and why.
fn what_the_stack_cannot_have_is_refused() {
    let file = example("coap_to_modbus.gate");
    let text = fs::read_to_string(&file).unwrap();
    let mut sources = Sources::of(file.display().to_string(), text);
    let compiled = compile_importing(&mut sources, SourceId::default(), import);
    let compiled = compiled.program.unwrap();
    let findings = |keys: &str, link: &str| -> Vec<(String, String)> {
        let text = format!("[link.lan]\ndevice = \"g0\"\n{link}\n{}", program(&file, keys));
        let config = parse(SourceId::default(), &text).config.unwrap();
        let found = stack_findings(&compiled, &config.programs[0], &config).into_iter();
        found.map(|(span, why)| (text[span.start..span.end].to_owned(), why)).collect()
    };
    let (lan, shared) = ("addresses = [\"10.10.1.1/24\"]", "exclusive = false");
    let own = "at = [\"things=10.10.1.1:5683\"]\nstack = [\"things\"]";
    let any = "at = [\"things=0.0.0.0:5683\"]\nstack = [\"things\"]";
    assert_eq!((findings(own, lan), findings(any, lan)), (vec![], vec![]));
    for (role, link, why) in [
        ("stranger", lan, "the program has no such role"),
        ("device", lan, "it is a role of TCP, which the stack does not have yet"),
        ("things", lan, "127.0.0.1 is no address of an exclusive link"),
        ("things", shared, "no link is exclusive, so the stack is no host"),
    ] {
        let quoted = format!("\"{role}\"");
        let why = format!("`{role}` over the gateway's own stack: {why}");
        assert_eq!(findings(&format!("stack = [{quoted}]"), link), [(quoted, why)]);
    }
}

type InMode = fn(PlaneMode) -> Result<(), Failed>;

fn main() {
    if std::env::var_os(SERVES).is_some() {
        return gatewright_planes::serve_data_plane().unwrap();
    }
    let missing = Needs::new().namespaces().program("ping").missing();
    let in_namespaces = |name: &str, test: InMode, mode: PlaneMode| match &missing {
        None => Trial::test(name, move || test(mode)),
        Some(missing) => {
            Trial::test(format!("{name} (needs {missing})"), || Ok(())).with_ignored_flag(true)
        }
    };
    let tests: [(&str, InMode); 3] = [
        ("the_stack_conforms", the_stack_conforms),
        ("a_shipped_program_runs_over_the_stack", a_shipped_program_runs_over_the_stack),
        ("groups_are_heard_and_asked_over_the_stack", groups_are_heard_and_asked_over_the_stack),
    ];
    let modes = [("threads", PlaneMode::Threads), ("process", PlaneMode::Process)];
    let mut trials: Vec<_> = modes
        .into_iter()
        .flat_map(|(word, mode)| {
            tests.map(|(name, test)| in_namespaces(&format!("{word}::{name}"), test, mode))
        })
        .collect();
    trials.push(Trial::test("what_the_stack_cannot_have_is_refused", || {
        what_the_stack_cannot_have_is_refused();
        Ok(())
    }));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
