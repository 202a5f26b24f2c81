//! Beside acmecse (PyPI), in both roles over HTTP, CoAP, MQTT (by Debian's mosquitto) and
//! WebSocket: our MN
//! at its IN, its MN at ours, requests sent on both ways.
//!
//! It is installed into a virtual environment below the target directory the first time, or
//! taken from `GATEWRIGHT_ACMECSE` (the path of its executable). Without Python or a registry
//! these tests are skipped, and say so.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use core::time::Duration;
use gatewright_bindings::client::Client;
use gatewright_bindings::cse::{Config, Running, start};
use gatewright_onem2m::{
    CseType, Kind, Letter, Operation, Registrar, Request, Response, Status, Timestamp,
};
use libtest_mimic::{Arguments, Trial};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

/// The version these tests were made against.
const PACKAGE: &str = "acmecse==2026.5.3";
/// Debian puts the broker beside the programs of the system.
const BROKERS: [&str; 2] = ["mosquitto", "/usr/sbin/mosquitto"];
/// How long the peer may take to come up, and a registration to come about.
const PATIENCE: Duration = Duration::from_secs(40);

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let program = if arguments.list { None } else { find() };
    let absent = program.is_none() && !arguments.list;
    let trial = |name: &str, run: fn(&Path)| {
        let program = program.clone();
        Trial::test(name, move || {
            run(program.as_deref().expect("installed"));
            Ok(())
        })
        .with_ignored_flag(absent)
    };
    let broker = BROKERS.into_iter().find(|program| {
        let mut command = Command::new(program);
        command.arg("-h").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    });
    let broker_trial = |name: &str, run: fn(&Path, u16)| {
        let program = program.clone();
        Trial::test(name, move || {
            let broker = Broker::start(broker.expect("there"));
            run(program.as_deref().expect("installed"), broker.port);
            Ok(())
        })
        .with_ignored_flag(absent || broker.is_none())
    };
    let trials = vec![
        trial("our_mn_registers_at_its_in_and_requests_go_both_ways", |program| {
            block_on(our_mn_at_its_in(program, Binding::Http));
        }),
        trial("its_mn_registers_at_our_in_and_requests_go_both_ways", |program| {
            block_on(its_mn_at_our_in(program, Binding::Http));
        }),
        trial("over_coap_our_mn_registers_at_its_in_and_requests_go_both_ways", |program| {
            block_on(our_mn_at_its_in(program, Binding::Coap));
        }),
        trial("over_coap_its_mn_registers_at_our_in_and_requests_go_both_ways", |program| {
            block_on(its_mn_at_our_in(program, Binding::Coap));
        }),
        broker_trial(
            "over_mqtt_our_mn_registers_at_its_in_and_requests_go_both_ways",
            |program, port| {
                block_on(our_mn_at_its_in(program, Binding::Mqtt(port)));
            },
        ),
        broker_trial(
            "over_mqtt_its_mn_registers_at_our_in_and_requests_go_both_ways",
            |program, port| {
                block_on(its_mn_at_our_in(program, Binding::Mqtt(port)));
            },
        ),
        trial("over_websocket_our_mn_registers_at_its_in_and_requests_go_both_ways", |program| {
            block_on(our_mn_at_its_in(program, Binding::Ws));
        }),
        trial("over_websocket_its_mn_registers_at_our_in_and_requests_go_both_ways", |program| {
            block_on(its_mn_at_our_in(program, Binding::Ws));
        }),
        trial("letters_posted_while_it_was_away_arrive_in_order", |program| {
            block_on(letters_to_its_in(program));
        }),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn block_on(future: impl Future<Output = ()>) {
    tokio::runtime::Runtime::new().unwrap().block_on(future);
}

/// The peer's executable, installed if that is possible.
fn find() -> Option<PathBuf> {
    if let Some(given) = std::env::var_os("GATEWRIGHT_ACMECSE") {
        return Some(given.into());
    }
    let venv = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("acme-venv");
    let program = venv.join("bin/acmecse");
    if program.exists() {
        return Some(program);
    }
    let done = |command: &mut Command| {
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    let made = done(Command::new("python3").args(["-m", "venv"]).arg(&venv));
    let pip = venv.join("bin/pip");
    let installed = made && done(Command::new(pip).args(["install", "--quiet", PACKAGE]));
    (installed && program.exists()).then_some(program)
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// How the two speak.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Binding {
    Http,
    Coap,
    Ws,
    /// By the broker at this port.
    Mqtt(u16),
}

impl Binding {
    fn scheme(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Coap => "coap",
            Self::Ws => "ws",
            Self::Mqtt(_) => "mqtt",
        }
    }

    /// The URL of a CSE for a client: at a broker it is named.
    fn at(self, url: &str, cse: &str) -> String {
        match self {
            Self::Http | Self::Coap | Self::Ws => url.to_owned(),
            Self::Mqtt(_) => format!("{url}/{cse}"),
        }
    }

    /// Whether acmecse sends a discovery on to another CSE: over MQTT it does so under a number that
    /// no operation has (`op` -2), and over CoAP not at all (2026.5.3).
    fn sends_discovery_on(self) -> bool {
        self == Self::Http
    }
}

/// A broker of its own for one test.
struct Broker {
    child: Child,
    port: u16,
}

impl Broker {
    fn start(program: &str) -> Self {
        let port = free_port();
        let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("acme-broker-{port}"));
        std::fs::write(&place, format!("listener {port} 127.0.0.1\nallow_anonymous true\n"))
            .unwrap();
        let mut command = Command::new(program);
        command.arg("-c").arg(place).stdin(Stdio::null());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { child, port }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running peer.
struct Acme {
    child: Child,
    url: String,
}

impl Acme {
    /// Starts one; it always listens for HTTP, by which it is known to be up.
    async fn start(program: &Path, kind: &str, binding: Binding, more: &str) -> Self {
        Self::start_at(program, (kind, free_port()), binding, more).await
    }

    async fn start_at(
        program: &Path,
        (kind, http): (&str, u16),
        binding: Binding,
        more: &str,
    ) -> Self {
        let scheme = binding.scheme();
        let place = format!("acme-{kind}-{scheme}-{http}");
        let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(place);
        std::fs::create_dir_all(&place).unwrap();
        let mut settings = settings(kind, http, more);
        let mut url = format!("http://127.0.0.1:{http}");
        let (mut coap, mut mqtt, mut ws) = ("--no-coap", "--no-mqtt", "--no-ws");
        match binding {
            Binding::Http => {}
            Binding::Coap => {
                let port = free_port();
                url = format!("coap://127.0.0.1:{port}");
                coap = "--coap";
                settings.push_str("[coap]\nenable=true\nlistenIF=127.0.0.1\n");
                settings.push_str(&["port=", &port.to_string(), "\naddress=", &url, "\n"].concat());
            }
            Binding::Ws => {
                let port = free_port();
                url = format!("ws://127.0.0.1:{port}");
                ws = "--ws";
                settings.push_str("[websocket]\nenable=true\nlistenIF=127.0.0.1\n");
                settings.push_str(&["port=", &port.to_string(), "\naddress=", &url, "\n"].concat());
            }
            Binding::Mqtt(port) => {
                url = format!("mqtt://127.0.0.1:{port}");
                mqtt = "--mqtt";
                settings.push_str("[mqtt]\nenable=true\nlistenIF=127.0.0.1\naddress=127.0.0.1\n");
                settings.push_str(&["port=", &port.to_string(), "\n"].concat());
            }
        }
        std::fs::write(place.join("acme.ini"), settings).unwrap();
        let child = Command::new(program)
            .arg("-dir")
            .arg(&place)
            .args(["--headless", "--db-type", "memory", "--log-level", "off"])
            .args([ws, mqtt, coap])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let acme = Self { child, url };
        for _ in 0..PATIENCE.as_millis() / 100 {
            if tokio::net::TcpStream::connect(("127.0.0.1", http)).await.is_ok() {
                return acme;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("acmecse does not listen on port {http}; run it without --headless to see why");
    }
}

impl Drop for Acme {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn settings(kind: &str, port: u16, more: &str) -> String {
    let role = kind.to_lowercase();
    format!(
        "[basic.config]\ncseType={kind}\ncseID=id-{role}\ncseName=cse-{role}\nadminID=CAdmin\n\
         networkInterface=127.0.0.1\ncseHost=127.0.0.1\nhttpPort={port}\ndatabaseType=memory\n\
         logLevel=off\nconsoleTheme=dark\nsecret=test\nserviceProviderID=//acme.example.com\n{more}"
    )
}

async fn ours(
    kind: CseType,
    (id, name): (&str, &str),
    binding: Binding,
    registrar: Option<Registrar>,
) -> Running {
    let mut cse = gatewright_onem2m::Config::new(kind, id, name);
    "//acme.example.com".clone_into(&mut cse.provider);
    cse.admin = Some("CAdmin".to_owned());
    cse.admitted_cses = vec!["/id-mn".to_owned()];
    cse.registrar = registrar;
    let mut config = Config::new(cse);
    let any = vec!["127.0.0.1:0".parse().unwrap()];
    match binding {
        Binding::Http => config.listen = any,
        Binding::Coap => config.listen_coap = any,
        Binding::Ws => config.listen_ws = any,
        Binding::Mqtt(port) => config.mqtt = Some(format!("mqtt://127.0.0.1:{port}")),
    }
    start(config).await.unwrap()
}

fn url(running: &Running, binding: Binding) -> String {
    let address = match binding {
        Binding::Http => running.addresses()[0],
        Binding::Coap => running.coap_addresses().next().unwrap(),
        Binding::Ws => running.ws_addresses()[0],
        Binding::Mqtt(port) => ([127, 0, 0, 1], port).into(),
    };
    format!("{}://{address}", binding.scheme())
}

/// Asks until the answer is good.
async fn wait_for(client: &Client, to: &str) -> Response {
    let mut last = None;
    for _ in 0..PATIENCE.as_millis() / 250 {
        // Over a broker nobody may be there yet to answer.
        match tokio::time::timeout(Duration::from_secs(2), client.get(to)).await {
            Ok(Ok(response)) if response.status == Status::Ok => return response,
            other => last = Some(other),
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    panic!("{to}: {last:?}");
}

/// Creates an AE with a container that everybody may use.
async fn public_container(client: &Client, base: &str) {
    let policy = r#"{"m2m:acp":{"rn":"p","pv":{"acr":[{"acor":["all"],"acop":63}]},
        "pvs":{"acr":[{"acor":["CAdmin"],"acop":63}]}}}"#;
    let made = client.create(base, Kind::AccessControlPolicy, policy).await.unwrap();
    assert_eq!(made.status, Status::Created, "{made:?}");
    let container = format!(r#"{{"m2m:cnt":{{"rn":"c","acpi":["{base}/p"]}}}}"#);
    let made = client.create(base, Kind::Container, &container).await.unwrap();
    assert_eq!(made.status, Status::Created, "{made:?}");
}

/// Creates and retrieves below the container `there` by way of `client`'s CSE; finds too, if that
/// CSE sends a discovery on.
async fn use_container(client: &Client, there: &str, finds: bool) {
    let content = r#"{"m2m:cin":{"rn":"i1","con":"96.50","cnf":"text/plain:0"}}"#;
    let made = client.create(there, Kind::ContentInstance, content).await.unwrap();
    assert_eq!(made.status, Status::Created, "{made:?}");
    let again = client.create(there, Kind::ContentInstance, content).await.unwrap();
    assert_eq!(again.status, Status::Conflict, "{again:?}");
    let latest = client.get(&format!("{there}/la")).await.unwrap();
    assert_eq!(latest.status, Status::Ok, "{latest:?}");
    assert!(latest.content.unwrap().contains("96.50"));
    if finds {
        let found = client.get(&format!("{there}?fu=1&ty=4")).await.unwrap();
        assert_eq!(found.status, Status::Ok, "{found:?}");
        assert!(found.content.unwrap().contains("/c/i1"));
    }
    let updated = client.update(there, r#"{"m2m:cnt":{"lbl":["seen"]}}"#).await.unwrap();
    assert_eq!(updated.status, Status::Updated, "{updated:?}");
    let deleted = client.delete(&format!("{there}/i1")).await.unwrap();
    assert_eq!(deleted.status, Status::Deleted, "{deleted:?}");
    let gone = client.get(&format!("{there}/i1")).await.unwrap();
    assert_eq!(gone.status, Status::NotFound, "{gone:?}");
}

async fn our_mn_at_its_in(program: &Path, binding: Binding) {
    let more = "[cse.registration]\nallowedCSROriginators=/id-mn\n";
    let acme = Acme::start(program, "IN", binding, more).await;
    let registrar =
        Registrar { cse_id: "/id-in".to_owned(), name: "cse-in".to_owned(), url: acme.url.clone() };
    let mn = ours(CseType::Middle, ("/id-mn", "cse-mn"), binding, Some(registrar)).await;
    let its_admin = Client::new(binding.at(&acme.url, "id-in"), "CAdmin", "i");
    let our_admin = Client::new(binding.at(&url(&mn, binding), "id-mn"), "CAdmin", "m");
    let entry = wait_for(&its_admin, "cse-in/id-mn").await;
    assert!(entry.content.unwrap().contains("\"csi\""));
    wait_for(&our_admin, "cse-mn/id-in").await;
    assert!(mn.engine().is_registered());
    public_container(&our_admin, "cse-mn").await;
    public_container(&its_admin, "cse-in").await;
    // Down: through it to us. Up: through us to it.
    use_container(&its_admin, "/id-mn/cse-mn/c", binding.sends_discovery_on()).await;
    use_container(&our_admin, "/id-in/cse-in/c", true).await;
    mn.stop().await;
}

async fn its_mn_at_our_in(program: &Path, binding: Binding) {
    let base = ours(CseType::Infrastructure, ("/id-in", "cse-in"), binding, None).await;
    let more = format!(
        "[cse.registrar]\naddress={}\ncseID=/id-in\nresourceName=cse-in\nINCSEcseID=/id-in\n",
        url(&base, binding)
    );
    let acme = Acme::start(program, "MN", binding, &more).await;
    let its_admin = Client::new(binding.at(&acme.url, "id-mn"), "CAdmin", "m");
    let our_admin = Client::new(binding.at(&url(&base, binding), "id-in"), "CAdmin", "i");
    wait_for(&our_admin, "cse-in/id-mn").await;
    // It always says that it can be reached over HTTP too; here it is not to be.
    let only = format!(r#"{{"m2m:csr":{{"poa":["{}"]}}}}"#, acme.url);
    let updated = our_admin.update("cse-in/id-mn", &only).await.unwrap();
    assert_eq!(updated.status, Status::Updated, "{updated:?}");
    public_container(&our_admin, "cse-in").await;
    public_container(&its_admin, "cse-mn").await;
    use_container(&our_admin, "/id-mn/cse-mn/c", true).await;
    use_container(&its_admin, "/id-in/cse-in/c", binding.sends_discovery_on()).await;
    base.stop().await;
}

/// What was posted while the IN was not there yet arrives when it is.
async fn letters_to_its_in(program: &Path) {
    let http = free_port();
    let mn = ours(CseType::Middle, ("/id-mn", "cse-mn"), Binding::Http, None).await;
    let target = format!("http://127.0.0.1:{http}");
    let mut waiting = Vec::new();
    // The first makes the container that the others go into: their order matters.
    let contents = (0..5).map(|number| {
        if number == 0 {
            return ("cse-in", Kind::Container, r#"{"m2m:cnt":{"rn":"c"}}"#.to_owned());
        }
        let content = format!(r#"{{"m2m:cin":{{"rn":"l{number}","con":"{number}"}}}}"#);
        ("cse-in/c", Kind::ContentInstance, content)
    });
    for (number, (to, kind, content)) in contents.enumerate() {
        let to = format!("/id-in/{to}");
        let request = Request::new(Operation::Create, to, "CAdmin", format!("letter{number}"));
        waiting.push(mn.engine().post(Letter {
            lane: "to-in".into(),
            target: target.clone(),
            request: request.creating(kind, content),
            until: Timestamp::MAX,
            batch: None,
        }));
    }
    for accepted in waiting {
        assert_eq!(accepted.await.unwrap().status, Status::Accepted);
    }
    let acme = Acme::start_at(program, ("IN", http), Binding::Http, "").await;
    let its_admin = Client::new(acme.url.as_str(), "CAdmin", "i");
    // It remembers what it did not find, so it is asked only when everything has arrived.
    for _ in 0..PATIENCE.as_millis() / 100 {
        if mn.engine().counters().delivered == 5 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let last = wait_for(&its_admin, "cse-in/c/l4").await;
    assert!(last.content.unwrap().contains("\"4\""));
    let all = its_admin.get("cse-in/c").await.unwrap().content.unwrap();
    let all: serde_json::Value = serde_json::from_str(&all).unwrap();
    assert_eq!(all["m2m:cnt"]["cni"], 4);
    mn.stop().await;
}
