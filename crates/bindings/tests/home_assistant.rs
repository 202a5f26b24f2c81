//! Devices as Home Assistant finds them, by Debian's mosquitto: what is announced and kept by the broker,
//! what is published, and what is said of a gateway that is gone. Without mosquitto they are skipped, and
//! say so.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod shared;

use core::time::Duration;
use gatewright_bindings::agents::{self, Run};
use gatewright_bindings::{cse, devices};
use gatewright_health::code::SystemId;
use gatewright_health::simulate::SimulationPlan;
use gatewright_health::specialisation::Specialisation;
use gatewright_onem2m::CseType;
use gatewright_onem2m::mqtt::{Input, MqttSession, MqttSettings, Output};
use libtest_mimic::{Arguments, Trial};
use serde_json::Value;
use shared::{Broker, PATIENCE, block_on, broker_program};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

const OXIMETER: SystemId = SystemId(*b"\x02TEST\0\0\x01");
const STATUS: &str = "ward/status";
const ASSOCIATED: &str = "ward/0254455354000001/associated";

fn main() -> ExitCode {
    let program = broker_program();
    let trial = |name: &str, run: fn(&'static str)| {
        Trial::test(name, move || {
            run(program.expect("there"));
            Ok(())
        })
        .with_ignored_flag(program.is_none())
    };
    let trials = vec![
        trial("devices_are_announced_and_their_readings_published", |program| {
            block_on(announced(program));
        }),
        trial("a_broker_that_has_forgotten_is_told_again", |program| block_on(forgotten(program))),
        trial("a_gateway_that_dies_is_unavailable", dies),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// A CSE with a listener for devices, which are announced at this broker.
struct Ward {
    cse: cse::RunningCse,
    devices: devices::RunningDevices,
}

impl Ward {
    async fn new(broker: &Broker) -> Self {
        let config = gatewright_onem2m::CseConfig::new(CseType::Middle, "/id-mn", "cse-mn");
        let cse = cse::start(cse::CseServerConfig::new(config)).await.unwrap();
        let mut config = devices::DevicesConfig::new(([127, 0, 0, 1], 0).into(), "cse-mn");
        config.home_assistant = Some(devices::HomeAssistantConfig {
            broker: format!("mqtt://127.0.0.1:{}", broker.port),
            prefix: "homeassistant".to_owned(),
            topic: "ward".to_owned(),
            tls: None,
        });
        let devices = devices::start(config, cse.engine().clone()).await.unwrap();
        Self { cse, devices }
    }

    /// Has an oximeter measure for a second.
    async fn measure(&self) {
        let kind = Specialisation::named("oximeter").unwrap();
        let period = Duration::from_millis(50);
        let plan = SimulationPlan { period, ..SimulationPlan::new(kind, OXIMETER, 1) };
        let (to, measuring) = (self.devices.address(), Duration::from_secs(1));
        let outcome = agents::run(Run { plan, to, measuring, patience: PATIENCE }).await;
        assert!(outcome.is_answered(), "{outcome:?}");
    }

    async fn stop(self) {
        self.devices.stop().await;
        self.cse.stop().await;
    }
}

/// Everything that is published at a broker, from now on and before, if the broker keeps it.
struct Subscriber {
    messages: mpsc::UnboundedReceiver<(String, String)>,
}

impl Subscriber {
    async fn new(broker: &Broker, client: &str) -> Self {
        let settings = MqttSettings {
            client: client.to_owned(),
            clean: true,
            keep_alive: Duration::from_mins(1),
            will: None,
            credentials: None,
            filters: vec!["#".to_owned()],
            packet_octets_max: 64 * 1024,
        };
        let mut stream = TcpStream::connect(("127.0.0.1", broker.port)).await.unwrap();
        let (told, messages) = mpsc::unbounded_channel();
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let start = Instant::now();
            let mut session = MqttSession::new(start.elapsed(), settings);
            let (mut ready, mut buffer) = (Some(ready), vec![0; 4096]);
            loop {
                while let Some(output) = session.poll_output() {
                    match output {
                        Output::Send(octets) => stream.write_all(&octets).await.unwrap(),
                        Output::Ready => drop(ready.take().unwrap().send(())),
                        Output::Arrived { topic, payload } => {
                            let payload = String::from_utf8(payload).unwrap();
                            if told.send((topic, payload)).is_err() {
                                return;
                            }
                        }
                        other => panic!("{other:?}"),
                    }
                }
                match stream.read(&mut buffer).await {
                    Ok(length @ 1..) => {
                        session.handle(start.elapsed(), Input::Octets(&buffer[..length]));
                    }
                    // The broker is stopped.
                    _ => return,
                }
            }
        });
        is_ready.await.unwrap();
        Self { messages }
    }

    /// Messages until one says `payload` at `topic`, that one included.
    async fn until(&mut self, topic: &str, payload: &str) -> Vec<(String, String)> {
        let mut all = Vec::new();
        loop {
            let next = tokio::time::timeout(PATIENCE, self.messages.recv()).await;
            let next = next.unwrap_or_else(|_| panic!("no {payload} at {topic}: {all:?}"));
            let message = next.unwrap_or_else(|| panic!("the broker has gone: {all:?}"));
            let is_last = message.0 == topic && message.1 == payload;
            all.push(message);
            if is_last {
                return all;
            }
        }
    }
}

/// The announcements among messages, by topic.
fn announcements(messages: &[(String, String)]) -> BTreeMap<String, Value> {
    let of = messages.iter().filter(|(topic, _)| topic.starts_with("homeassistant/"));
    of.map(|(topic, text)| (topic.clone(), serde_json::from_str(text).unwrap())).collect()
}

async fn announced(program: &str) {
    let broker = Broker::start(program);
    let mut first = Subscriber::new(&broker, "first").await;
    let ward = Ward::new(&broker).await;
    let before = first.until(STATUS, "online").await;
    assert_eq!(before.len(), 1, "{before:?}");
    ward.measure().await;
    let messages = first.until(ASSOCIATED, "OFF").await;
    let documents = announcements(&messages);
    let sensors: Vec<_> =
        documents.iter().filter(|(topic, _)| topic.contains("/sensor/")).collect();
    assert!(sensors.len() >= 2, "saturation and pulse: {documents:?}");
    let units: Vec<_> = sensors.iter().map(|(_, it)| &it["unit_of_measurement"]).collect();
    assert!(units.iter().any(|it| *it == "%") && units.iter().any(|it| *it == "bpm"), "{units:?}");
    for (topic, document) in &documents {
        assert_eq!(document["availability_topic"], STATUS);
        let id = document["unique_id"].as_str().unwrap();
        assert!(topic.ends_with(&format!("/{id}/config")), "{topic}");
        let state = document["state_topic"].as_str().unwrap();
        assert!(messages.iter().any(|(topic, _)| topic == state), "{state} has a state");
    }
    for (topic, document) in sensors {
        let state = document["state_topic"].as_str().unwrap();
        let states: Vec<_> = messages.iter().filter(|(topic, _)| topic == state).collect();
        assert!(states.iter().all(|(_, it)| it.parse::<f64>().is_ok()), "{states:?}");
        let first = messages.iter().position(|(it, _)| it == topic);
        let stated = messages.iter().position(|(it, _)| it == state);
        assert!(first < stated, "announced before the first state");
    }
    // Who comes later finds what is announced, and no reading.
    let mut later = Subscriber::new(&broker, "later").await;
    ward.stop().await;
    let kept = later.until(STATUS, "offline").await;
    assert_eq!(
        announcements(&kept).keys().collect::<Vec<_>>(),
        documents.keys().collect::<Vec<_>>()
    );
    let others = kept.iter().filter(|(topic, _)| !topic.starts_with("homeassistant/"));
    for (topic, payload) in others {
        assert!([STATUS, ASSOCIATED].contains(&topic.as_str()), "{topic} {payload} was kept");
    }
}

async fn forgotten(program: &str) {
    let mut broker = Broker::start(program);
    let mut first = Subscriber::new(&broker, "first").await;
    let ward = Ward::new(&broker).await;
    ward.measure().await;
    let documents = announcements(&first.until(ASSOCIATED, "OFF").await);
    broker.kill();
    broker.again(program);
    let mut second = Subscriber::new(&broker, "second").await;
    let told = second.until(ASSOCIATED, "OFF").await;
    let mut again = announcements(&told);
    while again.len() < documents.len() {
        let next = tokio::time::timeout(PATIENCE, second.messages.recv()).await.unwrap().unwrap();
        again.extend(announcements(&[next]));
    }
    assert_eq!(again, documents);
    ward.stop().await;
}

/// A process that is killed closes its connections without a word, as a runtime does that is dropped.
fn dies(program: &'static str) {
    let broker = Broker::start(program);
    let observer = tokio::runtime::Runtime::new().unwrap();
    let mut observing = observer.block_on(Subscriber::new(&broker, "observer"));
    let gateway = tokio::runtime::Runtime::new().unwrap();
    let ward = gateway.block_on(Ward::new(&broker));
    observer.block_on(observing.until(STATUS, "online"));
    gateway.shutdown_background();
    let told = observer.block_on(observing.until(STATUS, "offline"));
    assert_eq!(told.len(), 1, "{told:?}");
    drop(ward);
}
