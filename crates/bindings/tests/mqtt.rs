//! Over MQTT, by Debian's mosquitto: our client at our CSE, two of our CSEs, and a broker that goes
//! away for a while. Without mosquitto in the path they are skipped, and say so.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_bindings::client::Client;
use gatewright_bindings::cse::{Config, Running, start};
use gatewright_onem2m::{CseType, Kind, Registrar, Response, Serialisation, Status};
use libtest_mimic::{Arguments, Trial};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

/// Debian puts it beside the programs of the system.
const BROKERS: [&str; 2] = ["mosquitto", "/usr/sbin/mosquitto"];
/// How long anything may take to come about.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    // It prints its usage and ends, if it is there.
    let works = |program: &&str| {
        let mut command = Command::new(program);
        command.arg("-h").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    };
    let program = BROKERS.into_iter().find(works);
    let trial = |name: &str, run: fn(&'static str)| {
        Trial::test(name, move || {
            run(program.expect("there"));
            Ok(())
        })
        .with_ignored_flag(program.is_none())
    };
    let trials = vec![
        trial("our_client_at_our_cse", |program| block_on(ours_at_ours(program))),
        trial("requests_between_two_of_ours_go_both_ways", |program| block_on(chain(program))),
        trial("a_broker_that_was_away_is_found_again", |program| block_on(outage(program))),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn block_on(future: impl Future<Output = ()>) {
    tokio::runtime::Runtime::new().unwrap().block_on(future);
}

/// A running broker.
struct Broker {
    child: Child,
    port: u16,
    folder: PathBuf,
}

impl Broker {
    fn start(program: &str, name: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("mqtt-{name}"));
        std::fs::create_dir_all(&folder).unwrap();
        let settings = format!("listener {port} 127.0.0.1\nallow_anonymous true\n");
        std::fs::write(folder.join("broker.conf"), settings).unwrap();
        let child = spawn(program, &folder);
        let broker = Self { child, port, folder };
        broker.wait();
        broker
    }

    fn wait(&self) {
        for _ in 0..PATIENCE.as_millis() / 20 {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the broker does not listen");
    }

    fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.port)
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn again(&mut self, program: &str) {
        self.child = spawn(program, &self.folder);
        self.wait();
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(program: &str, folder: &Path) -> Child {
    let mut command = Command::new(program);
    command.arg("-c").arg(folder.join("broker.conf")).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

async fn cse(
    kind: CseType,
    (id, name): (&str, &str),
    broker: &Broker,
    more: impl FnOnce(&mut gatewright_onem2m::Config),
) -> Running {
    let mut cse = gatewright_onem2m::Config::new(kind, id, name);
    cse.admin = Some("CAdmin".to_owned());
    more(&mut cse);
    let mut config = Config::new(cse);
    config.mqtt = Some(broker.url());
    start(config).await.unwrap()
}

/// A value of so many characters.
fn long(length: usize) -> String {
    (0..length).map(|at| char::from(b'a' + u8::try_from(at % 26).unwrap())).collect()
}

/// Asks until the answer is good: a request may go while the CSE is not connected.
async fn wait_for(client: &Client, to: &str) -> Response {
    let mut last = None;
    for _ in 0..PATIENCE.as_millis() / 250 {
        let asked = tokio::time::timeout(Duration::from_secs(1), client.get(to)).await;
        match asked {
            Ok(Ok(response)) if response.status == Status::Ok => return response,
            other => last = Some(other),
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    panic!("{to}: {last:?}");
}

/// Every operation, small and large, in both serialisations.
async fn ours_at_ours(program: &str) {
    let broker = Broker::start(program, "ours");
    let running = cse(CseType::Infrastructure, ("/id-in", "cse-in"), &broker, |_| {}).await;
    for serialisation in [Serialisation::Json, Serialisation::Cbor] {
        let prefix = format!("{serialisation:?}");
        let client = Client::new(format!("{}/id-in", broker.url()), "CAdmin", &*prefix);
        let client = client.writing(serialisation);
        wait_for(&client, "cse-in").await;
        let container = format!(r#"{{"m2m:cnt":{{"rn":"{prefix}"}}}}"#);
        let made = client.create("cse-in", Kind::Container, &container).await.unwrap();
        assert_eq!(made.status, Status::Created, "{made:?}");
        let to = format!("cse-in/{prefix}");
        for length in [1, 100_000] {
            let value = long(length);
            let content = format!(r#"{{"m2m:cin":{{"rn":"i{length}","con":"{value}"}}}}"#);
            let made = client.create(&to, Kind::ContentInstance, &content).await.unwrap();
            assert_eq!(made.status, Status::Created, "{length}: {made:?}");
            let again = client.create(&to, Kind::ContentInstance, &content).await.unwrap();
            assert_eq!(again.status, Status::Conflict);
            let read = client.get(&format!("{to}/la")).await.unwrap();
            let read: serde_json::Value = serde_json::from_str(&read.content.unwrap()).unwrap();
            assert_eq!(read["m2m:cin"]["con"], value);
        }
        let found = client.get(&format!("{to}?fu=1&ty=4&lim=1")).await.unwrap();
        assert!(found.cut_at.is_some() && found.content.unwrap().contains("/i1"));
        let updated = client.update(&to, r#"{"m2m:cnt":{"lbl":["x"]}}"#).await.unwrap();
        assert_eq!(updated.status, Status::Updated);
        assert_eq!(client.delete(&to).await.unwrap().status, Status::Deleted);
        assert_eq!(client.get(&to).await.unwrap().status, Status::NotFound);
    }
    running.stop().await;
}

/// An MN registers at an IN over the broker; requests are sent on in both directions.
async fn chain(program: &str) {
    let broker = Broker::start(program, "chain");
    let upper = cse(CseType::Infrastructure, ("/id-in", "cse-in"), &broker, |cse| {
        cse.admitted_cses = vec!["/id-mn".to_owned()];
    });
    let upper = upper.await;
    let registrar =
        Registrar { cse_id: "/id-in".to_owned(), name: "cse-in".to_owned(), url: broker.url() };
    let lower = cse(CseType::Middle, ("/id-mn", "cse-mn"), &broker, |cse| {
        cse.registrar = Some(registrar);
    });
    let lower = lower.await;
    let above = Client::new(format!("{}/id-in", broker.url()), "CAdmin", "a");
    let below = Client::new(format!("{}/id-mn", broker.url()), "CAdmin", "b");
    wait_for(&above, "cse-in/id-mn").await;
    wait_for(&below, "cse-mn/id-in").await;
    for (client, near) in [(&above, "cse-in"), (&below, "cse-mn")] {
        let policy = r#"{"m2m:acp":{"rn":"p","pv":{"acr":[{"acor":["all"],"acop":63}]},
            "pvs":{"acr":[{"acor":["CAdmin"],"acop":63}]}}}"#;
        let made = client.create(near, Kind::AccessControlPolicy, policy).await.unwrap();
        assert_eq!(made.status, Status::Created, "{made:?}");
        let container = format!(r#"{{"m2m:cnt":{{"rn":"c","acpi":["{near}/p"]}}}}"#);
        let made = client.create(near, Kind::Container, &container).await.unwrap();
        assert_eq!(made.status, Status::Created, "{made:?}");
    }
    for (client, far) in [(&above, "/id-mn/cse-mn/c"), (&below, "/id-in/cse-in/c")] {
        let content = r#"{"m2m:cin":{"rn":"i","con":"96.50"}}"#;
        let made = client.create(far, Kind::ContentInstance, content).await.unwrap();
        assert_eq!(made.status, Status::Created, "{made:?}");
        let found = client.get(&format!("{far}?fu=1&ty=4")).await.unwrap();
        assert!(found.content.unwrap().contains("/c/i"));
    }
    lower.stop().await;
    upper.stop().await;
}

async fn outage(program: &str) {
    let mut broker = Broker::start(program, "outage");
    let running = cse(CseType::Infrastructure, ("/id-in", "cse-in"), &broker, |_| {}).await;
    let client = Client::new(format!("{}/id-in", broker.url()), "CAdmin", "o");
    wait_for(&client, "cse-in").await;
    broker.kill();
    let refused = tokio::time::timeout(PATIENCE, client.get("cse-in")).await.unwrap();
    assert!(refused.is_err(), "{refused:?}");
    broker.again(program);
    wait_for(&client, "cse-in").await;
    let counters = running.counters();
    let count = |name: &str| counters.iter().find(|(known, _)| *known == name).unwrap().1;
    assert!(count("mqtt_connections") >= 2);
    running.stop().await;
}
