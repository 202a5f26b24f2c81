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
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a test may fail loudly, and says what it met"
)]

mod shared;

use core::time::Duration;
use gatewright_bindings::client::Client;
use gatewright_bindings::cse::RunningCse;
use gatewright_onem2m::{
    CseType, Operation, OutboxMessage, Registrar, Request, ResourceType, Status,
};
use gatewright_testbed::{free_port, python_program};
use libtest_mimic::{Arguments, Trial};
use shared::{
    Binding, Broker, PATIENCE, block_on, broker_program, public_container, use_container, wait_for,
};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

/// The version these tests were made against.
const PACKAGE: &str = "acmecse==2026.5.3";
fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // One after the other: a peer that was away comes back to a port that no other test has taken.
    arguments.test_threads = Some(1);
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
    let broker = broker_program();
    let broker_trial = |name: &str, run: fn(&Path, Binding)| {
        let program = program.clone();
        Trial::test(name, move || {
            let broker = Broker::start(broker.expect("there"));
            run(program.as_deref().expect("installed"), broker.binding());
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
            |program, binding| {
                block_on(our_mn_at_its_in(program, binding));
            },
        ),
        broker_trial(
            "over_mqtt_its_mn_registers_at_our_in_and_requests_go_both_ways",
            |program, binding| {
                block_on(its_mn_at_our_in(program, binding));
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
        trial("a_geo_query_finds_the_same_at_both", |program| {
            block_on(geo_queries_at_both(program));
        }),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The peer's executable, installed if that is possible.
fn find() -> Option<PathBuf> {
    if let Some(given) = std::env::var_os("GATEWRIGHT_ACMECSE") {
        return Some(given.into());
    }
    let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).join("acme-venv");
    python_program(&venv, PACKAGE, "acmecse")
}

/// Whether acmecse sends a discovery on to another CSE: over MQTT it does so under a number that
/// no operation has (`op` -2), and over CoAP not at all (2026.5.3).
fn sends_discovery_on(binding: Binding) -> bool {
    binding == Binding::Http
}

/// A running peer.
struct Acme {
    child: Child,
    url: String,
}

impl Acme {
    /// Starts one and waits until it says that it has started. Before, nothing is asked of it: a
    /// request that comes while it starts may leave it without one of its bindings, or end it. One
    /// that ends by itself is started again, at another port, thrice at the most.
    async fn start(program: &Path, kind: &str, binding: Binding, more: &str) -> Self {
        let mut ended = Vec::new();
        for _ in 0..3 {
            let (place, arguments, url) = configure(kind, binding, more);
            let told = place.join("output");
            let output = std::fs::File::create(&told).unwrap();
            let child = Command::new(program)
                .arg("-dir")
                .arg(&place)
                .args(["--headless", "--db-type", "memory", "--log-level", "off"])
                .args(arguments)
                .env("PYTHONUNBUFFERED", "1")
                .stdin(Stdio::null())
                .stdout(output.try_clone().unwrap())
                .stderr(output)
                .spawn()
                .unwrap();
            let mut acme = Self { child, url };
            match acme.ended_before_it_started(&told).await {
                None => {
                    for how in ended {
                        println!("acmecse ended while it started, {how}");
                    }
                    return acme;
                }
                Some(how) => ended.push(how),
            }
        }
        panic!("acmecse ended while it started: {ended:?}");
    }

    /// Waits until it has started, or has ended: how, and what it said.
    async fn ended_before_it_started(&mut self, told: &Path) -> Option<String> {
        let mut said = String::new();
        for _ in 0..PATIENCE.as_millis() / 100 {
            let ended = self.child.try_wait().unwrap();
            said = std::fs::read_to_string(told).unwrap();
            if let Some(status) = ended {
                return Some(format!("{status}: {said}"));
            }
            if said.contains("CSE started") {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("acmecse does not start: {said}");
    }
}

impl Drop for Acme {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes the settings of one: their folder, the arguments for its bindings, and the URL at which
/// it is to be reached.
fn configure(kind: &str, binding: Binding, more: &str) -> (PathBuf, [&'static str; 3], String) {
    let http = free_port();
    let place = format!("acme-{kind}-{}-{http}", binding.scheme());
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
    (place, [ws, mqtt, coap], url)
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
    names: (&str, &str),
    binding: Binding,
    registrar: Option<Registrar>,
) -> RunningCse {
    let with = binding.cse(kind, names, |cse| {
        "//acme.example.com".clone_into(&mut cse.provider);
        cse.admitted_cses = vec!["/id-mn".to_owned()];
        cse.registrar = registrar;
    });
    with.await
}

async fn our_mn_at_its_in(program: &Path, binding: Binding) {
    let more = "[cse.registration]\nallowedCSROriginators=/id-mn\n";
    let acme = Acme::start(program, "IN", binding, more).await;
    let registrar =
        Registrar { cse_id: "/id-in".to_owned(), name: "cse-in".to_owned(), url: acme.url.clone() };
    let mn = ours(CseType::Middle, ("/id-mn", "cse-mn"), binding, Some(registrar)).await;
    let its_admin = Client::new(binding.at(&acme.url, "id-in"), "CAdmin", "i");
    let our_admin = binding.admin_of(&mn, "m");
    let entry = wait_for(&its_admin, "cse-in/id-mn").await;
    assert!(entry.content.unwrap().contains("\"csi\""));
    wait_for(&our_admin, "cse-mn/id-in").await;
    assert!(mn.engine().is_registered());
    public_container(&our_admin, "cse-mn").await;
    public_container(&its_admin, "cse-in").await;
    // Down: through it to us. Up: through us to it.
    use_container(&its_admin, "/id-mn/cse-mn/c", sends_discovery_on(binding)).await;
    use_container(&our_admin, "/id-in/cse-in/c", true).await;
    announce((&our_admin, "cse-mn"), "/id-in", (&its_admin, "cse-in")).await;
    mn.stop().await;
}

async fn its_mn_at_our_in(program: &Path, binding: Binding) {
    let base = ours(CseType::Infrastructure, ("/id-in", "cse-in"), binding, None).await;
    let more = format!(
        "[cse.registrar]\naddress={}\ncseID=/id-in\nresourceName=cse-in\nINCSEcseID=/id-in\n",
        binding.url(&base)
    );
    let acme = Acme::start(program, "MN", binding, &more).await;
    let its_admin = Client::new(binding.at(&acme.url, "id-mn"), "CAdmin", "m");
    let our_admin = binding.admin_of(&base, "i");
    wait_for(&our_admin, "cse-in/id-mn").await;
    wait_for_its_entry(&its_admin).await;
    // It always says that it can be reached over HTTP too; here it is not to be.
    let only = format!(r#"{{"m2m:csr":{{"poa":["{}"]}}}}"#, acme.url);
    let updated = our_admin.update("cse-in/id-mn", &only).await.unwrap();
    assert_eq!(updated.status, Status::Updated, "{updated:?}");
    public_container(&our_admin, "cse-in").await;
    public_container(&its_admin, "cse-mn").await;
    use_container(&our_admin, "/id-mn/cse-mn/c", true).await;
    use_container(&its_admin, "/id-in/cse-in/c", sends_discovery_on(binding)).await;
    if binding == Binding::Http {
        announce((&its_admin, "cse-mn"), "/id-in", (&our_admin, "cse-in")).await;
    }
    base.stop().await;
}

/// What one says of a container of its own at another: it is found there with what is announced of
/// it, follows the original, and goes with it.
async fn announce((here, base): (&Client, &str), to: &str, (there, above): (&Client, &str)) {
    let content =
        format!(r#"{{"m2m:cnt":{{"rn":"told","lbl":["l"],"mni":3,"at":["{to}"],"aa":["mni"]}}}}"#);
    let made = here.create(base, ResourceType::Container, &content).await.unwrap();
    assert_eq!(made.status, Status::Created, "{made:?}");
    let made: serde_json::Value = serde_json::from_str(&made.content.unwrap()).unwrap();
    let link = format!("/id-mn/{}", made["m2m:cnt"]["ri"].as_str().unwrap());
    let all = format!("{above}?fu=1&ty=10003");
    let place = settled(async || found(there, &all).await.pop()).await;
    let announced = settled(async || {
        let content = there.get(&place).await.unwrap().content?;
        let announced: serde_json::Value = serde_json::from_str(&content).unwrap();
        Some(announced["m2m:cntA"].clone()).filter(serde_json::Value::is_object)
    })
    .await;
    assert_eq!((&announced["lnk"], &announced["mni"]), (&link.into(), &3.into()), "{announced}");
    assert_eq!(announced["lbl"], serde_json::json!(["l"]));
    let original = format!("{base}/told");
    let changed = here.update(&original, r#"{"m2m:cnt":{"mni":5}}"#).await.unwrap();
    assert_eq!(changed.status, Status::Updated, "{changed:?}");
    settled(async || {
        let content = there.get(&place).await.unwrap().content?;
        content.replace(' ', "").contains("\"mni\":5").then_some(())
    })
    .await;
    assert_eq!(here.delete(&original).await.unwrap().status, Status::Deleted);
    settled(async || found(there, &all).await.is_empty().then_some(())).await;
}

/// The addresses of a discovery.
async fn found(client: &Client, to: &str) -> Vec<String> {
    let content = client.get(to).await.unwrap().content.unwrap_or_default();
    let value: serde_json::Value = serde_json::from_str(&content).unwrap_or_default();
    serde_json::from_value(value["m2m:uril"].clone()).unwrap_or_default()
}

/// What comes about in the end.
async fn settled<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..PATIENCE.as_millis() / 100 {
        if let Some(it) = look().await {
            return it;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("it does not come about");
}

/// Waits until it has noted its registration itself, which it does after ours: only then it sends
/// requests on. It is asked by discovery, as it remembers resources that it did not find.
async fn wait_for_its_entry(its_admin: &Client) {
    for _ in 0..PATIENCE.as_millis() / 100 {
        let found = its_admin.get("cse-mn?fu=1&ty=16").await.unwrap();
        if found.content.is_some_and(|found| found.contains("cse-mn/")) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("it does not know that it is registered");
}

/// Forwards connections to a port of this machine to another address, until the test ends.
fn forward(port: u16, to: String) {
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let copy = |mut from: TcpStream, mut to: TcpStream| {
        // Whoever ends, ends both.
        let _ended = std::io::copy(&mut from, &mut to);
        let _ended = to.shutdown(Shutdown::Write);
    };
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let far = TcpStream::connect(&to).unwrap();
            let (back, there) = (far.try_clone().unwrap(), near.try_clone().unwrap());
            std::thread::spawn(move || copy(near, far));
            std::thread::spawn(move || copy(back, there));
        }
    });
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
            return ("cse-in", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#.to_owned());
        }
        let content = format!(r#"{{"m2m:cin":{{"rn":"l{number}","con":"{number}"}}}}"#);
        ("cse-in/c", ResourceType::ContentInstance, content)
    });
    for (number, (to, kind, content)) in contents.enumerate() {
        let to = format!("/id-in/{to}");
        let request = Request::new(Operation::Create, to, "CAdmin", format!("letter{number}"));
        waiting.push(mn.engine().post(OutboxMessage {
            queue: "to-in".into(),
            target: target.as_str().into(),
            request: request.creating(kind, content).into(),
            keep: None,
            batch: None,
        }));
    }
    for accepted in waiting {
        assert_eq!(accepted.await.unwrap().status, Status::Accepted);
    }
    // It answers 4.04 before it has its CSEBase, which is an answer: the letters reach it only when
    // it has started.
    let acme = Acme::start(program, "IN", Binding::Http, "").await;
    let its_admin = Client::new(acme.url.as_str(), "CAdmin", "i");
    wait_for(&its_admin, "cse-in").await;
    forward(http, acme.url.trim_start_matches("http://").to_owned());
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

/// A geometry of each type, in the form that acmecse reads: every coordinate has a decimal point,
/// a polygon is one ring. Some lie within others, some touch, some only meet, one is far away.
const GEOMETRIES: [(u8, &str); 9] = [
    (1, "[1.0,1.0]"),
    (1, "[4.0,2.0]"),
    (2, "[[0.0,1.0],[4.0,1.0]]"),
    (2, "[[1.0,1.0],[2.0,1.0]]"),
    (3, "[[0.0,0.0],[4.0,0.0],[4.0,4.0],[0.0,4.0],[0.0,0.0]]"),
    (3, "[[3.0,0.5],[6.0,0.5],[6.0,2.5],[3.0,2.5],[3.0,0.5]]"),
    (4, "[[1.0,1.0],[4.0,2.0]]"),
    (5, "[[[0.0,1.0],[2.0,1.0]],[[2.0,1.0],[5.0,1.0]]]"),
    (
        6,
        "[[[0.0,0.0],[2.0,0.0],[2.0,2.0],[0.0,2.0],[0.0,0.0]],\
         [[9.0,9.0],[8.0,9.0],[9.0,8.0],[9.0,9.0]]]",
    ),
];

/// Containers with locations at both, and the same questions to both: each of the geometries as
/// what is asked about, by each of the three functions.
async fn geo_queries_at_both(program: &Path) {
    let acme = Acme::start(program, "IN", Binding::Http, "").await;
    let its = Client::new(acme.url.as_str(), "CAdmin", "g");
    wait_for(&its, "cse-in").await;
    let base = Binding::Http.infrastructure().await;
    let ours = Binding::Http.admin_of(&base, "g");
    for client in [&its, &ours] {
        for (number, (kind, coordinates)) in GEOMETRIES.into_iter().enumerate() {
            let location = serde_json::json!({ "typ": kind, "crd": coordinates });
            let content = format!(r#"{{"m2m:cnt":{{"rn":"p{number}","loc":{location}}}}}"#);
            let made = client.create("cse-in", ResourceType::Container, &content).await.unwrap();
            assert_eq!(made.status, Status::Created, "{made:?}");
        }
    }
    let mut matches = [0; 3];
    for (kind, coordinates) in GEOMETRIES {
        for function in 1..=3 {
            let query = format!("cse-in?fu=1&gmty={kind}&geom={coordinates}&gsf={function}");
            let (mut expected, mut answered) =
                (found(&its, &query).await, found(&ours, &query).await);
            expected.sort();
            answered.sort();
            assert_eq!(answered, expected, "{query}");
            matches[function - 1] += expected.len();
        }
    }
    assert!(matches.into_iter().all(|count| count >= GEOMETRIES.len()), "{matches:?}");
    for incomplete in ["gmty=1", "gsf=1", "geom=[1.0,1.0]", "gmty=1&gsf=1"] {
        for client in [&its, &ours] {
            let refused = client.get(&format!("cse-in?fu=1&{incomplete}")).await.unwrap();
            assert_eq!(refused.status, Status::BadRequest, "{incomplete}");
        }
    }
    base.stop().await;
}
