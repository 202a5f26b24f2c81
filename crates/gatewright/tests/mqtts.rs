//! `mqtts://` in a description, by Debian's mosquitto: readings go to the CSE above through a broker
//! that shows a certificate and wants one. Without mosquitto in the path it is skipped, and says so.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod common;

use common::{Daemon, WITHIN, folder, gatewright};
use gatewright_testbed::{free_port, wait_until};
use libtest_mimic::{Arguments, Trial};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::Value;
use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

/// Debian puts the broker beside the programs of the system.
const BROKERS: [&str; 2] = ["mosquitto", "/usr/sbin/mosquitto"];

fn main() -> ExitCode {
    let runs = |program: &&&str| {
        let mut help = Command::new(program);
        help.arg("-h").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    };
    let program = BROKERS.iter().find(runs).copied();
    let trial = Trial::test("readings_go_above_by_a_broker_with_a_certificate", move || {
        by_broker(program.expect("there"));
        Ok(())
    });
    let trials = vec![trial.with_ignored_flag(program.is_none())];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// An authority `name`-authority.pem, and a certificate of it for each of these: a name of files and
/// of a host.
fn certify(folder: &Path, name: &str, of: &[(&str, &str)]) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Whoever has the name of its issuer is taken for its own.
    params.distinguished_name.push(DnType::CommonName, format!("authority {name}"));
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap();
    fs::write(folder.join(format!("{name}-authority.pem")), authority.pem()).unwrap();
    let issuer = Issuer::new(params, key);
    for (file, host) in of {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![(*host).to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, *file);
        let certificate = params.signed_by(&key, &issuer).unwrap();
        fs::write(folder.join(format!("{file}.pem")), certificate.pem()).unwrap();
        fs::write(folder.join(format!("{file}.key")), key.serialize_pem()).unwrap();
    }
}

/// A broker, killed if the test ends.
struct Broker(Child, u16);

impl Broker {
    fn start(program: &str, folder: &Path, certificate: &str) -> Self {
        let port = free_port();
        let file = |end: &str| folder.join(end).display().to_string();
        let settings = format!(
            "listener {port} 127.0.0.1\nallow_anonymous true\nrequire_certificate true\n\
             cafile {}\ncertfile {}\nkeyfile {}\n",
            file("ours-authority.pem"),
            file(&format!("{certificate}.pem")),
            file(&format!("{certificate}.key"))
        );
        let conf = folder.join(format!("{certificate}.conf"));
        // Started as root it goes on as another user, who may not look here.
        fs::write(&conf, format!("user root\n{settings}")).unwrap();
        let said = fs::File::create(folder.join(format!("{certificate}.said"))).unwrap();
        let mut command = Command::new(program);
        let child = command.arg("-c").arg(conf).stdout(Stdio::null()).stderr(said).spawn();
        let broker = Self(child.unwrap(), port);
        let listens = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        assert!(wait_until(WITHIN, listens), "the broker does not listen");
        broker
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// `[cse.tls]` with files of a folder.
fn tls(folder: &Path, name: &str, authority: &str) -> String {
    let file = |end: String| folder.join(end).display().to_string();
    format!(
        "[cse.tls]\ncertificate = \"{}\"\nkey = \"{}\"\nauthorities = \"{}\"\n",
        file(format!("{name}.pem")),
        file(format!("{name}.key")),
        file(format!("{authority}-authority.pem"))
    )
}

/// A part's words of this name.
fn words(daemon: &Daemon, name: &str) -> Vec<String> {
    let status = daemon.ask(&["status", "--json"]).json();
    let parts = status["parts"].as_array().unwrap().iter();
    let words = parts.flat_map(|part| part["words"].as_array().unwrap().clone());
    words.filter(|it| it[0] == name).map(|it| it[1].as_str().unwrap().to_owned()).collect()
}

fn gauge(daemon: &Daemon, name: &str) -> u64 {
    let status = daemon.ask(&["status", "--json"]).json();
    let parts = status["parts"].as_array().unwrap().iter();
    let mut gauges = parts.flat_map(|part| part["gauges"].as_array().unwrap().clone());
    gauges.find(|it| it[0] == name).unwrap()[1].as_u64().unwrap()
}

fn by_broker(program: &str) {
    let certificates = folder("mqtts");
    let hosts = [("broker", "127.0.0.1"), ("elsewhere", "broker.example"), ("gw", "127.0.0.1")];
    certify(&certificates, "ours", &hosts);
    certify(&certificates, "theirs", &[("stranger", "127.0.0.1")]);
    let broker = Broker::start(program, &certificates, "broker");
    let at = |port: u16| format!("mqtts://127.0.0.1:{port}");
    let upper = format!(
        "[gateway]\nname = \"above\"\n[cse]\nbase = \"cse-in\"\nid = \"/id-in\"\n\
         type = \"infrastructure\"\nadmin = \"CAdmin\"\nadmit = [\"/gw\"]\nmqtt = \"{}\"\n{}",
        at(broker.1),
        tls(&certificates, "gw", "ours")
    );
    let upper = Daemon::start(folder("mqtts-above"), &upper);
    let listen = free_port();
    let lower = |port: u16, tls: &str| {
        format!(
            "[gateway]\nname = \"below\"\n[devices]\nlisten = \"127.0.0.1:{listen}\"\n[cse]\n\
             base = \"cse-gw\"\nid = \"/gw\"\nadmin = \"CAdmin\"\n{tls}[cse.registrar]\n\
             url = \"{}\"\nid = \"/id-in\"\nbase = \"cse-in\"\n",
            at(port)
        )
    };
    let below =
        Daemon::start(folder("mqtts-below"), &lower(broker.1, &tls(&certificates, "gw", "ours")));
    let arguments = "device simulate --json --kind thermometer --count 2 --rate 5 --seconds 1 --to";
    let to = format!("127.0.0.1:{listen}");
    let arguments: Vec<&str> = arguments.split(' ').chain([to.as_str()]).collect();
    let answer: Value = gatewright(&arguments).json();
    assert_eq!(answer["passed"], true, "{answer}");
    let arrived = || gauge(&below, "messages_waiting") == 0;
    assert!(wait_until(WITHIN, arrived), "{:?} {:?}", words(&below, "broker"), upper.said());
    let readings = answer["values"].as_u64().unwrap();
    assert!(gauge(&upper, "resources") > readings, "they are there");
    assert_eq!(words(&below, "broker"), [""; 0]);
    drop(below);

    // Whoever is not who the URL says, or not known, is named with what is wrong.
    let elsewhere = Broker::start(program, &certificates, "elsewhere");
    for (name, port, tls, expected) in [
        ("other", elsewhere.1, tls(&certificates, "gw", "ours"), "for another name than 127.0.0.1"),
        (
            "unknown",
            broker.1,
            tls(&certificates, "gw", "theirs"),
            "of an authority that is not in [cse.tls] authorities",
        ),
        (
            "stranger",
            broker.1,
            tls(&certificates, "stranger", "ours"),
            "it does not take the certificate of [cse.tls]",
        ),
    ] {
        let below = Daemon::start(folder(&format!("mqtts-{name}")), &lower(port, &tls));
        let told = || words(&below, "broker").join("; ");
        let start = format!("{} is not connected: ", at(port));
        let is_named = || told().starts_with(&start) && told().contains(expected);
        assert!(wait_until(WITHIN, is_named), "{name}: {}", told());
    }
}
