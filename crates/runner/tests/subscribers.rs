//! Subscribers of MQTT at a CoAP server: mosquitto's clients, `mqtt_to_coap` run natively, as C and
//! as Java, libcoap's server. What a machine lacks is skipped by name.
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

use common::LIMIT;
use common::back_end::BackEnd;
use gatewright_testbed::{Namespace, Needs, Process, wait_until};
use libtest_mimic::Arguments;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// The gateway's port.
const MQTT: u16 = 1883;

fn main() {
    let needs = Needs::new().namespaces().program("coap-server-notls");
    let needs = needs.program("coap-client-notls").program("stdbuf");
    let needs = needs.program("mosquitto_sub").program("mosquitto_pub");
    let name = "subscribers_hear_what_they_asked_for";
    let trials = BackEnd::trials(name, &needs, subscribers_are_served);
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit();
}

fn subscribers_are_served(back_end: BackEnd) {
    let net = Namespace::new().unwrap();
    let gateway = back_end.run(&net, "mqtt_to_coap.gate", 1, &[]);
    subscribers_hear_what_they_asked_for(&net, &format!("{back_end:?}"));
    let Some(runner) = gateway.runner() else { return };
    for (name, handled) in &runner.report().handlers {
        assert_eq!(handled.failed, 0, "{name}");
    }
}

/// A client that runs until it is dropped, and the file with what it says.
struct Subscriber {
    file: PathBuf,
    _client: Process,
}

impl Subscriber {
    fn start(net: &Namespace, file: &Path, filters: &[&str]) -> Self {
        let (out, errors) = (fs::File::create(file).unwrap(), Stdio::null());
        // Each line at once: what it says of a SUBACK would wait for the next message else.
        let client = net.command("stdbuf").args(["-oL", "mosquitto_sub", "-d", "-v"]);
        let client = client.args(filters);
        let client = client.stdout(out).stderr(errors).spawn().unwrap();
        Self { file: file.to_owned(), _client: client }
    }

    /// What it was told so far, as `TOPIC VALUE`, sorted.
    fn values(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.file).unwrap();
        let of_client = |line: &&str| line.starts_with("Client") || line.starts_with("Subscribed");
        let mut values: Vec<String> =
            text.lines().filter(|line| !of_client(line)).map(str::to_owned).collect();
        values.sort();
        values
    }

    /// Waits for a line.
    fn says(&self, line: &str) {
        let text = || fs::read_to_string(&self.file).unwrap();
        let said = wait_until(LIMIT, || text().lines().any(|of| of == line));
        assert!(said, "`{line}` is not in\n{}", text());
    }
}

fn subscribers_hear_what_they_asked_for(net: &Namespace, name: &str) {
    let server = net.command("coap-server-notls").args(["-A", "127.0.0.1", "-d", "10"]);
    let _server = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = |of: &str| folder.join(format!("subscribers-{name}-{of}"));
    let listens = || net.run(|| TcpStream::connect(("127.0.0.1", MQTT)).is_ok()).unwrap();
    assert!(wait_until(LIMIT, listens));
    let clock = || {
        let time = ["-B", "90", "coap://127.0.0.1/time"];
        net.command("coap-client-notls").args(time).run().is_ok_and(|time| time.contains(':'))
    };
    assert!(wait_until(LIMIT, clock));
    // The server makes a resource of each path; a value that was not put is not acknowledged.
    let publish = |topic: &str, value: &str| {
        let what = ["-q", "1", "-t", topic, "-m", value];
        net.command("mosquitto_pub").args(what).run().unwrap();
    };
    publish("x/one", "1");
    publish("x/two", "2");
    publish("y/two", "3");

    let several =
        Subscriber::start(net, &file("several"), &["-t", "x/one", "-t", "gone", "-t", "x/two"]);
    several.says("Subscribed (mid: 1): 0, 128, 0");
    assert_eq!(several.values(), ["x/one 1", "x/two 2"]);
    publish("x/two", "22");
    several.says("x/two 22");

    let wild = Subscriber::start(net, &file("wild"), &["-t", "x/+", "-t", "+/two", "-t", "z/#"]);
    wild.says("Subscribed (mid: 1): 0, 0, 128");
    assert_eq!(wild.values(), ["x/one 1", "x/two 22", "x/two 22", "y/two 3"]);
    publish("y/two", "33");
    wild.says("y/two 33");
    publish("x/one", "11");
    wild.says("x/one 11");
    several.says("x/one 11");

    // What is observed already is granted at once, so the client's goodbye comes behind it.
    let filters = ["-t", "x/one", "-t", "x/+", "-t", "x/two", "-U", "x/one", "-U", "x/+"];
    let few = Subscriber::start(net, &file("few"), &filters);
    few.says("Subscribed (mid: 1): 0, 0, 0");
    let text = || fs::read_to_string(&few.file).unwrap();
    assert!(wait_until(LIMIT, || text().matches("received UNSUBACK").count() == 2), "{}", text());
    publish("x/one", "12");
    publish("x/two", "23");
    few.says("x/two 23");
    several.says("x/one 12");
    assert!(!few.values().contains(&"x/one 12".to_owned()), "{}", text());
    assert!(!few.values().is_empty());
}
