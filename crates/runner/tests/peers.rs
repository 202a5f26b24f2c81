//! The example gateways against peers that are not ours: postfix's smtp-source and smtp-sink,
//! swaks, curl, mosquitto, libcoap. Each test has a namespace of its own; what a machine lacks is skipped by name.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    dead_code,
    unreachable_pub,
    reason = "a test may fail loudly, and uses its part of what the tests share"
)]

mod common;

use common::back_end::{self, BackEnd, Gateway};
use common::{Client, LIMIT, device, example, program, python_with, script};
use gatewright_runner::{Runner, RunnerOptions};
use gatewright_testbed::{Namespace, Needs, Process, wait_until};
use libtest_mimic::{Arguments, Trial};
use std::fs;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The package of a Modbus server.
const PYMODBUS: &str = "pymodbus==3.16.1";
const SINK: u16 = 2525;
const RELAY: u16 = 2526;
const WEB: u16 = 8080;

fn main() {
    let sink = || Needs::new().namespaces().program("smtp-sink");
    let coap = || Needs::new().namespaces().program("coap-client-notls");
    let natively = [
        trial("what_arrives_is_what_was_sent", &sink(), what_arrives_is_what_was_sent),
        trial("refusals_are_passed_on", &sink(), refusals_are_passed_on),
        trial("a_sink_that_drops_is_told", &sink(), a_sink_that_drops_is_told),
        trial(
            "a_coap_resource_is_subscribed_to_over_mqtt",
            &mqtt().program("coap-server-notls").program("coap-client-notls"),
            a_coap_resource_is_subscribed_to_over_mqtt,
        ),
    ];
    let trials = [
        ("every_message_arrives", sink().program("smtp-source"), every_message_arrives as fn(_)),
        ("mail_passes_the_tunnel", sink().program("smtp-source"), mail_passes_the_tunnel),
        ("a_post_becomes_a_mail", sink().program("curl"), a_post_becomes_a_mail),
        ("a_refused_mail_is_refused_over_http", sink().program("swaks"), tunnel_refuses),
        ("a_register_is_published_to_a_broker", mqtt(), a_register_is_published_to_a_broker),
        ("a_register_is_read_over_coap", coap(), a_register_is_read_over_coap),
        (
            "a_broker_s_topic_is_observed_over_coap",
            mqtt().program("coap-client-notls"),
            a_broker_s_topic_is_observed_over_coap,
        ),
        (
            "all_that_is_put_at_once_is_published",
            mqtt().program("stdbuf"),
            all_that_is_put_at_once_is_published,
        ),
    ];
    let trials = trials.iter().flat_map(|(name, needs, test)| BackEnd::trials(name, needs, *test));
    let registers = python_trial("a_register_of_pymodbus_is_read", PYMODBUS, |python| {
        a_register_of_pymodbus_is_read(python);
    });
    let trials = natively.into_iter().chain(trials).chain([registers]);
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}

/// A test with a peer of PyPI.
fn python_trial(name: &str, package: &'static str, test: fn(&str)) -> Trial {
    let needs = Needs::new().namespaces().program("python3").missing().is_none();
    let python = if needs { python_with(package) } else { None };
    let missing = python.is_none();
    back_end::trial(name, missing, move || test(python.unwrap_or_default().to_str().unwrap()))
}

fn mqtt() -> Needs {
    let needs = Needs::new().namespaces().program("mosquitto");
    needs.program("mosquitto_sub").program("mosquitto_pub")
}

fn trial(name: &str, needs: &Needs, test: fn()) -> Trial {
    back_end::trial(name, needs.clone().missing().is_some(), test)
}

/// An empty folder, which no other test has.
fn folder(name: &str) -> PathBuf {
    static FOLDERS: AtomicUsize = AtomicUsize::new(0);
    let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
    let folder = format!("peers-{name}-{number}");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(folder);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A namespace with a sink in it, which keeps each mail as a file in `folder` if it is asked to.
struct World {
    net: Namespace,
    folder: PathBuf,
    _sink: Process,
}

impl World {
    fn new(name: &str, options: &[&str]) -> Self {
        Self::within(folder(name), options)
    }

    fn within(folder: PathBuf, options: &[&str]) -> Self {
        // The sink gives its rights up, and writes all the same.
        fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let net = Namespace::new().unwrap();
        let printed = fs::File::create(folder.join("counts")).unwrap();
        let sink =
            net.command("smtp-sink").args(["-c", "-u", "nobody", "-m", "4000"]).args(options);
        let sink = sink.args([&format!("127.0.0.1:{SINK}"), "256"]).stdout(printed);
        let sink = sink.stderr(Stdio::null()).spawn().unwrap();
        let world = Self { net, folder, _sink: sink };
        assert!(wait_until(LIMIT, || {
            world.net.run(|| TcpStream::connect(("127.0.0.1", SINK)).is_ok()).unwrap()
        }));
        world
    }

    /// Runs an example in here.
    fn run(&self, back_end: BackEnd, name: &str, loops: usize, at: &[(&str, u16)]) -> Gateway {
        let at: Vec<(&str, String)> =
            at.iter().map(|(role, port)| (*role, format!("127.0.0.1:{port}"))).collect();
        let at: Vec<(&str, &str)> = at.iter().map(|(role, at)| (*role, at.as_str())).collect();
        back_end.run(&self.net, name, loops, &at)
    }

    fn relay(&self, back_end: BackEnd) -> Gateway {
        self.run(back_end, "smtp_relay.gate", 2, &[("inside", RELAY), ("next", SINK)])
    }

    fn tunnel(&self, back_end: BackEnd) -> [Gateway; 2] {
        [
            self.run(back_end, "smtp_to_http.gate", 1, &[("mail", RELAY), ("web", WEB)]),
            self.run(back_end, "http_to_smtp.gate", 1, &[("web", WEB), ("next", SINK)]),
        ]
    }

    fn client(&self) -> Client {
        let to = SocketAddr::from(([127, 0, 0, 1], RELAY));
        self.net.run(|| Client::connect(to)).unwrap()
    }

    /// Runs a program to its end and returns what it wrote, on both streams.
    fn program(&self, name: &str, arguments: &[&str]) -> (bool, String) {
        let output = self.net.command(name).args(arguments).stdin(Stdio::null()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    fn source(&self, arguments: &[&str]) {
        let letter = ["-f", "a@example.com", "-t", "b@example.com"];
        let to = format!("127.0.0.1:{RELAY}");
        let (passed, said) =
            self.program("smtp-source", &[arguments, &letter[..], &[to.as_str()]].concat());
        assert!(passed, "{said}");
    }

    /// Messages that the sink has counted.
    fn counted(&self) -> u64 {
        let printed = fs::read_to_string(self.folder.join("counts")).unwrap();
        let (whole, _) = printed.rsplit_once('\r').unwrap_or_default();
        whole.rsplit_once("mesg=").map_or(0, |(_, count)| count.trim().parse().unwrap())
    }

    /// The mails that the sink has kept.
    fn kept(&self) -> Vec<String> {
        let files = fs::read_dir(&self.folder).unwrap().map(|entry| entry.unwrap().path());
        let mails = files.filter(|file| file.file_name().is_some_and(|name| name != "counts"));
        mails.map(|file| String::from_utf8(fs::read(file).unwrap()).unwrap()).collect()
    }

    fn keeping(name: &str) -> Self {
        let folder = folder(name);
        let files = format!("{}/%H%M%S.", folder.display());
        Self::within(folder, &["-d", &files])
    }
}

fn every_message_arrives(back_end: BackEnd) {
    let world = World::new("arrive", &[]);
    let relay = world.relay(back_end);
    world.source(&["-s", "1", "-m", "20", "-l", "10240"]);
    world.source(&["-s", "10", "-m", "200", "-l", "10240"]);
    world.source(&["-d", "-s", "10", "-m", "200", "-l", "10240"]);
    world.source(&["-s", "4", "-m", "8", "-l", "1000000"]);
    assert!(wait_until(LIMIT, || world.counted() == 428), "{}", world.counted());
    let Some(relay) = relay.runner() else { return };
    let handled = || relay.report().handlers["inside.data"].clone();
    assert!(wait_until(LIMIT, || handled().finished == 428), "{:?}", handled());
    assert_eq!((handled().started, handled().failed), (428, 0));
}

/// Dots, empty lines, octets above 127 and a line that ends in the middle of a buffer.
fn what_arrives_is_what_was_sent() {
    let world = World::keeping("same");
    let _relay = world.relay(BackEnd::Native);
    let long = "x".repeat(998);
    let lines = ["..", "...two", "", "caf\u{e9}", &long, "last"];
    let body = lines.join("\r\n");
    for times in [1, 50] {
        let body = vec![body.clone(); times].join("\r\n");
        assert!(world.client().mail(&body).starts_with("250"));
    }
    assert!(wait_until(LIMIT, || world.kept().len() == 2));
    // The sink takes the dots off again and ends lines as files do.
    let wanted = lines.map(|line| line.strip_prefix('.').unwrap_or(line)).join("\n");
    for mail in world.kept() {
        assert!(mail.contains("X-Mail-Args: <a@x>") && mail.contains("X-Rcpt-Args: <b@y>"));
        let found = mail.matches(&wanted).count();
        assert!([1, 50].contains(&found), "{found} times in {mail:.3000}");
    }
}

/// smtp-sink's fault flags: hard and soft refusals of each command reach the sender as they are.
fn refusals_are_passed_on() {
    for (flag, code) in [("-f", "500"), ("-r", "450")] {
        for refused in ["MAIL", "RCPT", "DATA", "."] {
            let world = World::new("refuse", &[flag, refused]);
            let _relay = world.relay(BackEnd::Native);
            let mut client = world.client();
            let said = client.mail("hello");
            let refusal = said.split_whitespace().next().unwrap();
            // The sink has texts and codes of its own for each command.
            assert_eq!(&refusal[..1], &code[..1], "{flag} {refused}: {said}");
            // The sink answers before it counts.
            let wanted = u64::from(refused == ".");
            let counted = wait_until(LIMIT, || world.counted() == wanted);
            assert!(counted, "{flag} {refused}: {}", world.counted());
            assert!(client.say("QUIT").starts_with("221"), "{flag} {refused}");
        }
    }
}

/// The sink says 421 and hangs up (`-Q`), or just hangs up (`-q`).
fn a_sink_that_drops_is_told() {
    for (flag, codes) in [("-Q", ["421", "451"]), ("-q", ["451", "451"])] {
        for refused in ["MAIL", "RCPT", "DATA", "."] {
            let world = World::new("drop", &[flag, refused]);
            let _relay = world.relay(BackEnd::Native);
            let mut client = world.client();
            let said = client.mail("hello");
            assert!(codes.contains(&&said[..3]), "{flag} {refused}: {said}");
            assert!(client.say("QUIT").starts_with("221"), "{flag} {refused}");
        }
    }
}

fn mail_passes_the_tunnel(back_end: BackEnd) {
    let world = World::new("tunnel", &[]);
    let _gateways = world.tunnel(back_end);
    world.source(&["-s", "1", "-m", "10", "-l", "10240"]);
    world.source(&["-s", "10", "-m", "100", "-l", "10240"]);
    world.source(&["-d", "-s", "5", "-m", "50", "-l", "10240"]);
    world.source(&["-s", "2", "-m", "4", "-l", "3000000"]);
    assert!(wait_until(LIMIT, || world.counted() == 164), "{}", world.counted());
}

/// curl posts, with a length and in chunks; the sink keeps what it got.
fn a_post_becomes_a_mail(back_end: BackEnd) {
    let world = World::keeping("post");
    let _gateway = world.run(back_end, "http_to_smtp.gate", 1, &[("web", WEB), ("next", SINK)]);
    let url = format!("http://127.0.0.1:{WEB}/mail");
    let post = |more: &[&str]| {
        let always =
            ["-sS", "-H", "X-Rcpt-To: <b@y>", "--data-binary", "Subject: x\r\n\r\n.hello\r\n"];
        let status = ["-w", " %{http_code}", &url];
        world.program("curl", &[&always[..], more, &status[..]].concat()).1
    };
    let chunked = ["-H", "Transfer-Encoding: chunked", "-H", "X-Mail-From: <a@x>"];
    assert_eq!(post(&["-H", "X-Mail-From: <a@x>"]), " 200");
    assert_eq!(post(&chunked), " 200");
    assert_eq!(post(&[]), " 400");
    assert!(wait_until(LIMIT, || world.kept().len() == 2), "{:?}", world.kept());
    for mail in world.kept() {
        assert!(mail.contains("X-Mail-Args: <a@x>") && mail.contains("\n\n.hello\n"), "{mail}");
    }
    // What is larger than curl sends without leave, 1 MiB: it would wait a minute for it.
    let large = folder("large").join("post");
    fs::write(&large, "Subject: x\r\n\r\n".to_owned() + &"m\r\n".repeat(700_000)).unwrap();
    let large = format!("@{}", large.to_str().unwrap());
    let wait = ["-D", "-", "--expect100-timeout", "60", "--data-binary", &large];
    let from = ["-H", "X-Mail-From: <a@x>", "-H", "X-Rcpt-To: <b@y>"];
    let status = ["-sS", "-w", " %{http_code}", &url];
    let (_, said) = world.program("curl", &[&wait[..], &from, &status].concat());
    assert!(said.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK"), "{said}");
    assert!(said.ends_with(" 200"), "{said}");
    // What is no POST, and what is no HTTP.
    let (_, said) = world.program("curl", &["-sS", "-w", " %{http_code}", &url]);
    assert_eq!(said, " 405");
}

/// A mail that the far server refuses is refused to its sender, with the right kind of code.
fn tunnel_refuses(back_end: BackEnd) {
    for (flag, code) in [("-f", "554"), ("-r", "451")] {
        let world = World::new("tunnel-refuse", &[flag, "RCPT"]);
        let _gateways = world.tunnel(back_end);
        let server = format!("127.0.0.1:{RELAY}");
        let (passed, said) = world.program(
            "swaks",
            &["--server", &server, "--from", "a@example.com", "--to", "b@example.com"],
        );
        assert!(!passed && said.contains(&format!("<** {code} ")), "{said}");
    }
}

/// Modbus is polled, MQTT published: mosquitto takes the session, and a subscriber gets the values.
fn a_register_is_published_to_a_broker(back_end: BackEnd) {
    let net = Namespace::new().unwrap();
    let _broker = broker(&net);
    let device = net.run(device).unwrap();
    // Five seconds are long for a test.
    let text = fs::read_to_string(example("modbus_to_mqtt.gate")).unwrap();
    let often = text.replace("every 5 seconds", "every 50 ms");
    let at = [("device", &*device.to_string()), ("broker", "127.0.0.1:1883")];
    let _gateway = back_end.run_text(&net, ("often.gate", &often), 1, &at);
    let three = ["-h", "127.0.0.1", "-t", "plant/register/40", "-C", "3", "-W", "120"];
    let said = net.command("mosquitto_sub").args(three).output().unwrap();
    // The device gives the register's number plus 218.
    let complaint = String::from_utf8_lossy(&said.stderr);
    assert_eq!(String::from_utf8_lossy(&said.stdout), "258\n258\n258\n", "{complaint}");
}

/// pymodbus is the device: its registers are read, and what it refuses is refused.
fn a_register_of_pymodbus_is_read(python: &str) {
    const DEVICE: u16 = 502;
    let net = Namespace::new().unwrap();
    let port = DEVICE.to_string();
    let device = net.command(python).args([script("registers.py").as_str(), &port]);
    let _device = device.stderr(Stdio::null()).spawn().unwrap();
    let listens = || net.run(|| TcpStream::connect(("127.0.0.1", DEVICE)).is_ok()).unwrap();
    assert!(wait_until(LIMIT, listens));
    let options = RunnerOptions { loops: 1, ..RunnerOptions::default() };
    let gateway = program("coap_to_modbus.gate");
    let _gateway = net.run(|| Runner::start(&gateway, options)).unwrap().unwrap();
    let asker = net.run(|| UdpSocket::bind("127.0.0.1:0")).unwrap().unwrap();
    asker.set_read_timeout(Some(LIMIT)).unwrap();
    let ask = |id: u8, register: &str| {
        // RFC 7252 §3: confirmable GET of "registers" and the number.
        let mut octets = vec![0x40, 1, 0, id, 0xb9];
        octets.extend(b"registers");
        octets.push(u8::try_from(register.len()).unwrap());
        octets.extend(register.as_bytes());
        asker.send_to(&octets, ("127.0.0.1", 5683)).unwrap();
        let mut answer = [0; 100];
        let length = asker.recv(&mut answer).unwrap();
        answer[1..length].to_vec()
    };
    for (id, register) in [(1, 0_u16), (2, 40), (3, 99)] {
        let said = ask(id, &register.to_string());
        let value = (register + 218).to_string();
        assert_eq!((said[0], said[2]), (0x45, id), "{said:?}");
        assert!(said.ends_with(value.as_bytes()), "{said:?}");
    }
    // Illegal data address: 5.02.
    assert_eq!(ask(4, "100"), [0xa2, 0, 4]);
}

/// libcoap asks; the answer has the register's value, or says that there is none.
fn a_register_is_read_over_coap(back_end: BackEnd) {
    let net = Namespace::new().unwrap();
    let device = net.run(device).unwrap();
    let at = [("device", &*device.to_string())];
    let _gateway = back_end.run(&net, "coap_to_modbus.gate", 2, &at);
    let ask = |path: &str| {
        let url = format!("coap://127.0.0.1/{path}");
        let said = net.command("coap-client-notls").args(["-B", "90", &url]).output().unwrap();
        let said = [said.stdout, said.stderr].concat();
        String::from_utf8_lossy(&said).into_owned()
    };
    assert_eq!(ask("registers/40").trim(), "258");
    assert!(ask("nothing").contains("4.04"), "{}", ask("nothing"));
}

/// A broker of its own in a namespace.
fn broker(net: &Namespace) -> Process {
    const BROKER: u16 = 1883;
    let broker = net.command("mosquitto").args(["-p", &BROKER.to_string()]);
    let broker = broker.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let listens = || net.run(|| TcpStream::connect(("127.0.0.1", BROKER)).is_ok()).unwrap();
    assert!(wait_until(LIMIT, listens));
    broker
}

/// Runs a program to its end; what it wrote, on both streams.
fn said(net: &Namespace, name: &str, arguments: &[&str]) -> String {
    let output = net.command(name).args(arguments).stdin(Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// libcoap observes, mosquitto publishes; what libcoap puts arrives at a subscriber of mosquitto.
fn a_broker_s_topic_is_observed_over_coap(back_end: BackEnd) {
    const URL: &str = "coap://127.0.0.1/house/cellar";
    let net = Namespace::new().unwrap();
    let _broker = broker(&net);
    let text = fs::read_to_string(example("coap_to_mqtt.gate")).unwrap();
    let soon = text.replace("every 5 seconds", "every 50 ms");
    let gateway = back_end.run_text(&net, ("soon.gate", &soon), 2, &[]);
    let loops = gateway.runner().map_or(1, Runner::loops);
    assert_eq!(loops, 1, "observers and the feed are in one place");
    let publish = |value: &str| said(&net, "mosquitto_pub", &["-t", "house/cellar", "-m", value]);
    let get = || said(&net, "coap-client-notls", &["-B", "90", URL]).trim().to_owned();
    // As soon as the feed is there, what is published is known.
    let known = || {
        publish("19");
        get() == "19"
    };
    assert!(wait_until(LIMIT, known));
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let folder = folder.join(format!("peers-observed-{back_end:?}"));
    let observed = fs::File::create(&folder).unwrap();
    let observe = net.command("coap-client-notls").args(["-w", "-s", "600", URL]);
    let _observer = observe.stdout(observed).stderr(Stdio::null()).spawn().unwrap();
    // A state may be told more than once: "19" was published until the feed was there.
    let lines = || {
        let text = fs::read_to_string(&folder).unwrap();
        let mut states = text.lines().map(str::to_owned).collect::<Vec<_>>();
        states.dedup();
        states
    };
    assert!(wait_until(LIMIT, || lines() == ["19"]), "{:?}", lines());
    publish("20");
    assert!(wait_until(LIMIT, || lines() == ["19", "20"]), "{:?}", lines());
    // From one CoAP client to another one, through the broker.
    let put = folder.with_extension("put");
    fs::write(&put, "21").unwrap();
    said(&net, "coap-client-notls", &["-m", "put", "-f", put.to_str().unwrap(), URL]);
    assert!(wait_until(LIMIT, || lines() == ["19", "20", "21"]), "{:?}", lines());
    assert_eq!(get(), "21");
}

/// Many put something at once; a subscriber of mosquitto gets all of it, in the order of each
/// sender's own requests.
fn all_that_is_put_at_once_is_published(back_end: BackEnd) {
    const AT_ONCE: u16 = 200;
    let net = Namespace::new().unwrap();
    let _broker = broker(&net);
    let gateway = back_end.run(&net, "coap_to_mqtt.gate", 2, &[]);
    let name = format!("peers-put-{back_end:?}");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let heard = fs::File::create(&folder).unwrap();
    let all = AT_ONCE.to_string();
    // Each line at once: what it says of its SUBACK would wait for the next message else.
    let subscriber = net.command("stdbuf").args(["-oL", "mosquitto_sub", "-d", "-F", "heard %p"]);
    let subscriber = subscriber.args(["-t", "put", "-C", &all]).stdout(heard).spawn().unwrap();
    let said = || fs::read_to_string(&folder).unwrap();
    assert!(wait_until(LIMIT, || said().contains("received SUBACK")), "{}", said());
    let sender = net.run(|| UdpSocket::bind("127.0.0.1:0")).unwrap().unwrap();
    sender.set_read_timeout(Some(LIMIT)).unwrap();
    for number in 0..AT_ONCE {
        // RFC 7252 §3: confirmable PUT of "put" and the number.
        let [high, low] = number.to_be_bytes();
        let head = [0x40, 3, high, low, 0xb3, b'p', b'u', b't', 0xff];
        let octets = [&head[..], number.to_string().as_bytes()].concat();
        sender.send_to(&octets, ("127.0.0.1", 5683)).unwrap();
    }
    for _answer in 0..AT_ONCE {
        let mut octets = [0; 100];
        let length = sender.recv(&mut octets).unwrap();
        // RFC 7252 §5.9.1.4: changed.
        assert_eq!(octets[1], 0x44, "{:?}", &octets[..length]);
    }
    assert!(subscriber.wait().unwrap().success());
    let heard = said();
    let heard: Vec<&str> = heard.lines().filter_map(|line| line.strip_prefix("heard ")).collect();
    let wanted: Vec<String> = (0..AT_ONCE).map(|number| number.to_string()).collect();
    assert_eq!(heard, wanted);
    if let Some(runner) = gateway.runner() {
        assert_eq!(runner.report().counters["no_room"], 0);
    }
}

/// mosquitto's clients subscribe to libcoap's clock, which notifies every second.
fn a_coap_resource_is_subscribed_to_over_mqtt() {
    let net = Namespace::new().unwrap();
    let things = net.command("coap-server-notls").args(["-A", "127.0.0.1", "-d", "10"]);
    let _things = things.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let get = |path: &str| {
        let url = format!("coap://127.0.0.1/{path}");
        said(&net, "coap-client-notls", &["-B", "90", &url]).trim().to_owned()
    };
    // A clock, and not a complaint that nobody is there.
    assert!(wait_until(LIMIT, || get("time").matches(':').count() == 2), "{}", get("time"));
    let program = program("mqtt_to_coap.gate");
    let gateway = net.run(|| Runner::start(&program, RunnerOptions::default())).unwrap().unwrap();
    let listens = || net.run(|| TcpStream::connect(("127.0.0.1", 1883)).is_ok()).unwrap();
    assert!(wait_until(LIMIT, listens));
    let three = ["-t", "time", "-C", "3", "-W", "120"];
    let one = net.command("mosquitto_sub").args(three).stdout(Stdio::piped()).spawn().unwrap();
    let other = said(&net, "mosquitto_sub", &three);
    assert_eq!(other.lines().count(), 3, "{other}");
    drop(one);
    // Both were told, and the thing was asked once for each time that nobody listened.
    let handled = &gateway.report().handlers["things.notified"];
    assert!(handled.finished >= 2 && handled.failed == 0, "{handled:?}");
    assert!(said(&net, "mosquitto_sub", &["-t", "no/+", "-W", "120"]).contains("denied"));
    assert!(said(&net, "mosquitto_sub", &["-t", "nothing", "-W", "120"]).contains("denied"));
    said(&net, "mosquitto_pub", &["-t", "example_data", "-m", "hello", "-q", "1"]);
    assert_eq!(get("example_data"), "hello");
}
