//! The way back: what an application of the infrastructure CSE asks of a device at the gateway, the
//! device's result being the answer.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use core::time::Duration;
use gatewright_bindings::agents::{self, Run};
use gatewright_bindings::client::Client;
use gatewright_bindings::{cse, devices};
use gatewright_health::code::SystemId;
use gatewright_health::simulate::SimulationPlan;
use gatewright_health::specialisation::OXIMETER;
use gatewright_onem2m::{CseType, Operation, Registrar, ResourceType, Response, Status};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Instant;
use tokio::task::JoinHandle;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);
const DEVICE: SystemId = SystemId([2, b'B', b'A', b'C', b'K', 0, 0, 1]);
const ENTITY: &str = "/id-mn/cse-mn/phd-024241434b000001";

/// An infrastructure CSE, a gateway that is registered there, and two applications.
struct World {
    upper: cse::RunningCse,
    gateway: cse::RunningCse,
    devices: devices::RunningDevices,
    /// An operator of the gateway's devices.
    nurse: Client,
    /// Nobody in particular.
    stranger: Client,
}

async fn listening(
    kind: CseType,
    id: &str,
    name: &str,
    above: Option<Registrar>,
) -> cse::RunningCse {
    let mut machine = gatewright_onem2m::CseConfig::new(kind, id, name);
    machine.admitted_cses = vec!["/id-mn".to_owned()];
    machine.registrar = above;
    let mut config = cse::CseServerConfig::new(machine);
    config.listen = vec![([127, 0, 0, 1], 0).into()];
    cse::start(config).await.unwrap()
}

async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

impl World {
    async fn new() -> Self {
        let upper = listening(CseType::Infrastructure, "/id-in", "cse-in", None).await;
        let url = format!("http://{}", upper.addresses()[0]);
        let (cse_id, name) = ("/id-in".to_owned(), "cse-in".to_owned());
        let above = Registrar { cse_id, name, url: url.clone() };
        let gateway = listening(CseType::Middle, "/id-mn", "cse-mn", Some(above)).await;
        wait_until("the gateway is registered", || gateway.engine().is_registered()).await;
        let mut config = devices::DevicesConfig::new(([127, 0, 0, 1], 0).into(), "cse-mn");
        config.operators = vec!["/id-in/CNurse".to_owned()];
        let devices = devices::start(config, gateway.engine().clone()).await.unwrap();
        let application = async |name: &str| {
            let client = Client::new(url.as_str(), name, format!("{name}-"));
            let content = json!({ "m2m:ae": { "api": "N1", "rr": false, "srv": ["4"] } });
            let made = client
                .create("cse-in", ResourceType::ApplicationEntity, &content.to_string())
                .await;
            assert!(made.unwrap().status.is_success());
            client
        };
        let (nurse, stranger) = (application("CNurse").await, application("CStranger").await);
        Self { upper, gateway, devices, nurse, stranger }
    }

    /// The device, reporting for so long.
    fn device(&self, measuring: Duration) -> JoinHandle<agents::Outcome> {
        let plan = SimulationPlan {
            period: Duration::from_millis(200),
            ..SimulationPlan::new(&OXIMETER, DEVICE, 1)
        };
        let to: SocketAddr = self.devices.address();
        tokio::spawn(agents::run(Run { plan, to, measuring, patience: PATIENCE }))
    }

    async fn present(&self) {
        wait_until("the device reports", || self.devices.counters().readings > 0).await;
    }

    async fn stop(self) {
        self.devices.stop().await;
        self.gateway.stop().await;
        self.upper.stop().await;
    }
}

/// Notifies the device's entity of a command; `until` is the request's expiration.
async fn ask(client: &Client, command: Value, until: Option<&str>) -> Response {
    let request = client.request(Operation::Notify, ENTITY).unwrap();
    let mut request = request.with_content(command.to_string());
    if let Some(until) = until {
        request.set("rqet", until).unwrap();
    }
    client.ask(&request).await.unwrap()
}

fn content(answer: &Response) -> Value {
    serde_json::from_str(answer.content.as_deref().unwrap_or("null")).unwrap()
}

#[tokio::test]
async fn the_devices_result_is_the_answer() {
    let world = World::new().await;
    let run = world.device(Duration::from_mins(5));
    world.present().await;
    let answer = ask(&world.nurse, json!({ "command": "read" }), None).await;
    assert_eq!(answer.status, Status::Ok, "{answer:?}");
    let read = content(&answer);
    assert_eq!(read["handle"], 0);
    assert!(read["attributes"].as_object().unwrap().len() >= 2, "{read}");
    for command in [json!("read"), json!({ "command": "set-clock" })] {
        let answer = ask(&world.nurse, command.clone(), None).await;
        assert_eq!(answer.status, Status::Ok, "{command}: {answer:?}");
    }
    let answer = ask(&world.nurse, json!({ "command": "request-data" }), None).await;
    assert_eq!(answer.status, Status::Ok, "{answer:?}");
    // The oximeter has no store: it says so itself.
    let clear = json!({ "command": "clear-store", "handle": 256 });
    let answer = ask(&world.nurse, clear, None).await;
    assert_eq!(answer.status, Status::OperationDeniedByRemoteEntity, "{answer:?}");
    let answer = ask(&world.nurse, json!({ "command": "dance" }), None).await;
    assert_eq!(answer.status, Status::NotImplemented, "{answer:?}");
    let answer = ask(&world.nurse, json!({ "command": "clear-store" }), None).await;
    assert_eq!(answer.status, Status::InsufficientArguments, "{answer:?}");
    let answer = ask(&world.stranger, json!({ "command": "read" }), None).await;
    assert_eq!(answer.status, Status::OriginatorHasNoPrivilege, "{answer:?}");
    assert_eq!(world.devices.counters().asked_answered, 5);
    run.abort();
    world.stop().await;
}

#[tokio::test]
async fn a_device_that_is_away_is_not_reachable_or_waited_for() {
    let world = World::new().await;
    let brief = world.device(Duration::from_millis(300));
    assert!(brief.await.unwrap().is_answered());
    wait_until("it is gone", || world.devices.devices() == 0).await;
    let read = json!({ "command": "read" });
    let answer = ask(&world.nurse, read.clone(), None).await;
    assert_eq!(answer.status, Status::TargetNotReachable, "{answer:?}");
    let begun = Instant::now();
    let answer = ask(&world.nurse, read.clone(), Some("PT1S")).await;
    assert_eq!(answer.status, Status::TargetNotReachable, "{answer:?}");
    assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
    let waiting = ask(&world.nurse, read, Some("PT60S"));
    let waited = || world.devices.counters().asked_waited >= 2;
    let (answer, run) = tokio::join!(waiting, async {
        wait_until("a request waits", waited).await;
        Some(world.device(Duration::from_mins(5)))
    });
    assert_eq!(answer.status, Status::Ok, "{answer:?}");
    assert_eq!(content(&answer)["status"], 2000);
    run.unwrap().abort();
    world.stop().await;
}

#[tokio::test]
async fn a_command_written_down_is_answered_under_its_name() {
    let world = World::new().await;
    let brief = world.device(Duration::from_millis(300));
    assert!(brief.await.unwrap().is_answered());
    wait_until("it is gone", || world.devices.devices() == 0).await;
    // It waits with the service entity, whose outbox comes again.
    let commands = format!("{ENTITY}/commands");
    for (name, command) in [("one", json!({ "command": "battery" })), ("two", json!("dance"))] {
        let content = json!({ "m2m:cin": { "rn": name, "con": command } }).to_string();
        let made =
            world.nurse.create(&commands, ResourceType::ContentInstance, &content).await.unwrap();
        assert_eq!(made.status, Status::Created, "{made:?}");
    }
    let content_of = json!({ "m2m:cin": { "con": "read" } }).to_string();
    let denied = world.stranger.create(&commands, ResourceType::ContentInstance, &content_of).await;
    assert_eq!(denied.unwrap().status, Status::OriginatorHasNoPrivilege);
    let run = world.device(Duration::from_mins(5));
    for (name, status) in [("one", 2000), ("two", 5001)] {
        let path = format!("{ENTITY}/results/{name}");
        let end = Instant::now() + PATIENCE;
        let result = loop {
            let answer = world.nurse.get(&path).await.unwrap();
            if answer.status.is_success() {
                break content(&answer);
            }
            assert!(Instant::now() < end, "{name}: {answer:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        assert_eq!(result["m2m:cin"]["con"]["status"], status, "{result}");
    }
    run.abort();
    world.stop().await;
}
