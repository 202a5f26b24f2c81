//! A hostile neighbour beside a working gateway: without a certificate and without a right it says
//! whatever it likes, over every binding in the clear.
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
use gatewright_onem2m::{CseType, Operation, Request, ResourceType, Status};
use serde_json::json;
use std::time::Instant;
use tokio::task::JoinHandle;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);
const DEVICE: SystemId = SystemId([2, b'B', b'A', b'C', b'K', 0, 0, 1]);
const ADDRESS: &str = "device://024241434b000001";
const PULSE: &str = "cse-gw/phd-024241434b000001";

/// A gateway in the clear without an administrator, and a device that reports to it.
struct Ward {
    gateway: cse::RunningCse,
    devices: devices::RunningDevices,
    device: JoinHandle<agents::Outcome>,
}

async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A device that reports five times a second.
fn run_to(devices: &devices::RunningDevices) -> Run {
    let plan = SimulationPlan {
        period: Duration::from_millis(200),
        ..SimulationPlan::new(&OXIMETER, DEVICE, 1)
    };
    let (to, measuring) = (devices.address(), Duration::from_mins(5));
    Run { plan, to, measuring, patience: PATIENCE }
}

impl Ward {
    async fn new() -> Self {
        let machine = gatewright_onem2m::CseConfig::new(CseType::Middle, "/gw", "cse-gw");
        let mut config = cse::CseServerConfig::new(machine);
        config.cse.audit = gatewright_onem2m::audit::Audit::Strict;
        let anywhere = vec![([127, 0, 0, 1], 0).into()];
        config.listen.clone_from(&anywhere);
        config.listen_coap.clone_from(&anywhere);
        config.listen_ws = anywhere;
        let gateway = cse::start(config).await.unwrap();
        let mut config = devices::DevicesConfig::new(([127, 0, 0, 1], 0).into(), "cse-gw");
        config.operators = vec!["CNurse".to_owned()];
        let devices = devices::start(config, gateway.engine().clone()).await.unwrap();
        let device = tokio::spawn(agents::run(run_to(&devices)));
        let ward = Self { gateway, devices, device };
        wait_until("the device reports", || ward.devices.counters().readings > 0).await;
        ward
    }

    fn urls(&self) -> [String; 3] {
        [
            format!("http://{}", self.gateway.addresses()[0]),
            format!("coap://{}", self.gateway.coap_addresses().next().unwrap()),
            format!("ws://{}", self.gateway.ws_addresses()[0]),
        ]
    }

    fn counter(&self, name: &str) -> u64 {
        self.gateway.counters().iter().find(|(known, _)| *known == name).unwrap().1
    }

    /// Whether readings still arrive.
    async fn works_on(&self) {
        let before = self.devices.counters().readings;
        wait_until("the device reports on", || self.devices.counters().readings > before).await;
    }

    async fn stop(self) {
        self.device.abort();
        self.devices.stop().await;
        self.gateway.stop().await;
    }
}

/// The CSE-ID stands in every URL: it is no password.
#[tokio::test]
async fn the_cses_own_name_opens_nothing() {
    let ward = Ward::new().await;
    for url in ward.urls() {
        for from in ["/gw", "//gatewright.invalid/gw", "/gw/"] {
            let client = Client::new(url.as_str(), from, format!("{from}-"));
            for to in ["cse-gw", PULSE, "cse-gw?fu=1&ty=4"] {
                let answer = client.get(to).await.unwrap();
                let denied = Status::OriginatorHasNoPrivilege;
                assert_eq!(answer.status, denied, "{to} at {url} as {from}: {answer:?}");
            }
            let policy = r#"{"m2m:acp":{"pv":{"acr":[{"acor":["all"],"acop":63}]},
                "pvs":{"acr":[{"acor":["all"],"acop":63}]}}}"#;
            let made =
                client.create("cse-gw", ResourceType::AccessControlPolicy, policy).await.unwrap();
            assert_eq!(made.status, Status::OriginatorHasNoPrivilege, "{made:?}");
            let gone = client.delete(PULSE).await.unwrap();
            assert_eq!(gone.status, Status::OriginatorHasNoPrivilege, "{gone:?}");
        }
    }
    assert_eq!(ward.counter("posed_as_us"), 3 * 3 * 5);
    ward.works_on().await;
    ward.stop().await;
}

/// An AE that is called like a device is none: neither readings nor commands are open to it.
#[tokio::test]
async fn who_is_called_like_a_device_is_none() {
    let ward = Ward::new().await;
    for url in ward.urls() {
        let impostor = Client::new(url.as_str(), "Cphd-impostor", "impostor-");
        let entity = r#"{"m2m:ae":{"api":"Nx","rr":false,"srv":["4"]}}"#;
        let made =
            impostor.create("cse-gw", ResourceType::ApplicationEntity, entity).await.unwrap();
        assert!(matches!(made.status, Status::Created | Status::OriginatorHasAlreadyRegistered));
        let denied = Status::OriginatorHasNoPrivilege;
        for place in [PULSE.to_owned(), format!("{PULSE}/spo2"), format!("{PULSE}/spo2/la")] {
            let answer = impostor.get(&place).await.unwrap();
            assert_eq!(answer.status, denied, "{place} at {url}: {answer:?}");
        }
        let command = r#"{"m2m:cin":{"con":{"command":"read"}}}"#;
        let commands = format!("{PULSE}/commands");
        let made =
            impostor.create(&commands, ResourceType::ContentInstance, command).await.unwrap();
        assert_eq!(made.status, denied, "{made:?}");
    }
    assert_eq!(ward.devices.counters().asked, 0);
    ward.works_on().await;
    ward.stop().await;
}

/// A gateway without operators that nobody has asked anything has refused nothing.
#[tokio::test]
async fn a_start_without_operators_is_refused_nothing() {
    let machine = gatewright_onem2m::CseConfig::new(CseType::Middle, "/gw", "cse-gw");
    let gateway = cse::start(cse::CseServerConfig::new(machine)).await.unwrap();
    let config = devices::DevicesConfig::new(([127, 0, 0, 1], 0).into(), "cse-gw");
    let devices = devices::start(config, gateway.engine().clone()).await.unwrap();
    let refused = gateway.counters().iter().find(|(name, _)| *name == "refused").unwrap().1;
    assert_eq!(refused, 0);
    devices.stop().await;
    gateway.stop().await;
}

/// Who is no operator any more when the gateway is started again has lost its rights.
#[tokio::test]
async fn operators_of_an_earlier_run_are_none() {
    let mut ward = Ward::new().await;
    let nurse = Client::new(ward.urls()[0].as_str(), "CNurse", "nurse-");
    let spo2 = format!("{PULSE}/spo2");
    assert_eq!(nurse.get(&spo2).await.unwrap().status, Status::Ok);
    ward.device.abort();
    ward.devices.stop().await;
    let config = devices::DevicesConfig::new(([127, 0, 0, 1], 0).into(), "cse-gw");
    ward.devices = devices::start(config, ward.gateway.engine().clone()).await.unwrap();
    let answer = nurse.get(&spo2).await.unwrap();
    assert_eq!(answer.status, Status::OriginatorHasNoPrivilege, "{answer:?}");
    // The device's places are its own as before.
    ward.device = tokio::spawn(agents::run(run_to(&ward.devices)));
    ward.works_on().await;
    ward.stop().await;
}

/// Operators read readings, subscribe to them and send commands. No reading is theirs to make or to
/// remove.
#[tokio::test]
async fn operators_read_and_ask_and_change_no_reading() {
    let ward = Ward::new().await;
    let nurse = Client::new(ward.urls()[0].as_str(), "CNurse", "nurse-");
    let entity = r#"{"m2m:ae":{"rn":"CNurse","api":"N1","rr":false,"srv":["4"]}}"#;
    let made = nurse.create("cse-gw", ResourceType::ApplicationEntity, entity).await.unwrap();
    assert_eq!(made.status, Status::Created, "{made:?}");
    let spo2 = format!("{PULSE}/spo2");
    for readable in [PULSE.to_owned(), spo2.clone(), format!("{spo2}/la"), format!("{PULSE}?fu=1")]
    {
        let answer = nurse.get(&readable).await.unwrap();
        assert_eq!(answer.status, Status::Ok, "{readable}: {answer:?}");
    }
    let found = nurse.get(&format!("{spo2}?fu=1&ty=4&lim=1")).await.unwrap();
    assert!(found.content.unwrap().contains("spo2/"));
    // To her own AE, which fetches notifications by its polling channel: nobody has to answer.
    let channel = r#"{"m2m:pch":{}}"#;
    let made = nurse.create("cse-gw/CNurse", ResourceType::PollingChannel, channel).await.unwrap();
    assert_eq!(made.status, Status::Created, "{made:?}");
    let made = nurse.subscribe(&spo2, "hers", "CNurse", &[3]).await.unwrap();
    assert_eq!(made.status, Status::Created, "{made:?}");
    let gone = nurse.delete(&format!("{spo2}/hers")).await.unwrap();
    assert_eq!(gone.status, Status::Deleted, "{gone:?}");
    let commands = format!("{PULSE}/commands");
    let command = r#"{"m2m:cin":{"rn":"one","con":{"command":"read"}}}"#;
    let made = nurse.create(&commands, ResourceType::ContentInstance, command).await.unwrap();
    assert_eq!(made.status, Status::Created, "{made:?}");
    wait_until("the device is asked", || ward.devices.counters().asked_answered > 0).await;
    let denied = Status::OriginatorHasNoPrivilege;
    let latest = nurse.get(&format!("{spo2}/la?rcn=1")).await.unwrap().content.unwrap();
    let latest: serde_json::Value = serde_json::from_str(&latest).unwrap();
    let latest = format!("{spo2}/{}", latest["m2m:cin"]["rn"].as_str().unwrap());
    for place in
        [PULSE.to_owned(), spo2.clone(), latest, format!("{commands}/one"), commands.clone()]
    {
        let answer = nurse.delete(&place).await.unwrap();
        assert_eq!(answer.status, denied, "{place}: {answer:?}");
    }
    let false_one = r#"{"m2m:cin":{"con":{"value":"99"}}}"#;
    for place in [spo2.clone(), format!("{PULSE}/results"), format!("{PULSE}/about")] {
        let answer = nurse.create(&place, ResourceType::ContentInstance, false_one).await.unwrap();
        assert_eq!(answer.status, denied, "{place}: {answer:?}");
    }
    for (place, what) in [(PULSE, "ae"), (&spo2, "cnt"), (&commands, "cnt")] {
        let made = nurse.create(place, ResourceType::Container, r#"{"m2m:cnt":{}}"#).await.unwrap();
        assert_eq!(made.status, denied, "{place}: {made:?}");
        for attributes in [json!({ "lbl": ["x"] }), json!({ "acpi": [] })] {
            let update = json!({ format!("m2m:{what}"): attributes }).to_string();
            let answer = nurse.update(place, &update).await.unwrap();
            assert_eq!(answer.status, denied, "{place} {update}: {answer:?}");
        }
    }
    for policy in ["cse-gw/operators", "cse-gw/operators-commands"] {
        assert_eq!(nurse.delete(policy).await.unwrap().status, denied, "{policy}");
    }
    ward.works_on().await;
    ward.stop().await;
}

/// Whoever replaces a device's policies, of a container or of its AE, is told which device cannot
/// write what any more, and why: once, however often the device tries.
#[tokio::test]
async fn a_device_that_a_policy_cuts_off_is_named() {
    let mut ward = Ward::new().await;
    let engine = ward.gateway.engine().clone();
    let ask = async |request: Request| {
        let answer = engine.ask(request).await.unwrap();
        assert!(answer.status.is_success(), "{answer:?}");
    };
    let own = json!({ "acr": [{ "acor": ["/gw"], "acop": 63 }] });
    let policy = json!({ "m2m:acp": { "rn": "other", "pv": own, "pvs": own } }).to_string();
    let made = Request::new(Operation::Create, "cse-gw", "/gw", "other");
    ask(made.creating(ResourceType::AccessControlPolicy, policy)).await;
    let spo2 = format!("{PULSE}/spo2");
    for (place, tag) in [(spo2.as_str(), "m2m:cnt"), (PULSE, "m2m:ae")] {
        let put = |acpi: &[&str], id: &str| {
            let content = json!({ tag: { "acpi": acpi } }).to_string();
            Request::new(Operation::Update, place, "/gw", format!("{tag}{id}"))
                .with_content(content)
        };
        assert!(ward.devices.refusals().is_empty());
        ask(put(&["cse-gw/other"], "put")).await;
        if place == PULSE {
            ward.device.abort();
            ward.device = tokio::spawn(agents::run(run_to(&ward.devices)));
        }
        let mut events = Vec::new();
        wait_until("the refusal is told", || {
            events.extend(ward.devices.refusals());
            !events.is_empty()
        })
        .await;
        let event = &events[0];
        assert_eq!(event.kind, "device-refused");
        let fields = [
            ("device", "024241434b000001".to_owned()),
            ("resource", place.to_owned()),
            ("status", "4103".to_owned()),
        ];
        assert_eq!(event.fields, fields, "{event:?}");
        assert!(event.text.contains("does not let Cphd-024241434b000001"), "{event:?}");
        if place == PULSE {
            wait_until("registrations fail", || ward.devices.counters().registrations_failed > 0)
                .await;
        } else {
            let before = ward.devices.counters().reports_not_stored;
            wait_until("it is refused again", || {
                ward.devices.counters().reports_not_stored > before + 1
            })
            .await;
        }
        let itself = format!("{PULSE}/device-itself");
        ask(put(&["cse-gw/operators", &itself], "back")).await;
        ward.works_on().await;
        events.extend(ward.devices.refusals());
        assert_eq!(events.iter().filter(|one| one.fields == fields).count(), 1, "{events:?}");
    }
    ward.stop().await;
}

/// Everything that could lead to a device past its AE, tried by an AE that anybody may register.
#[tokio::test]
async fn a_neighbour_gets_nothing_of_a_device() {
    let ward = Ward::new().await;
    for (number, url) in ward.urls().into_iter().enumerate() {
        let name = format!("Cevil{number}");
        let evil = Client::new(url.as_str(), name.as_str(), format!("{name}-"));
        let entity = |poa: &str| {
            json!({ "m2m:ae": { "rn": name, "api": "Nx", "rr": true, "srv": ["4"], "poa": [poa] } })
                .to_string()
        };
        let made =
            evil.create("cse-gw", ResourceType::ApplicationEntity, &entity(ADDRESS)).await.unwrap();
        assert_eq!(made.status, Status::BadRequest, "{made:?}");
        let there = "http://192.0.2.1";
        let made =
            evil.create("cse-gw", ResourceType::ApplicationEntity, &entity(there)).await.unwrap();
        assert_eq!(made.status, Status::Created, "{made:?}");
        let own = format!("cse-gw/{name}");
        let poa = json!({ "m2m:ae": { "poa": [ADDRESS] } }).to_string();
        assert_eq!(evil.update(&own, &poa).await.unwrap().status, Status::BadRequest);
        let container = r#"{"m2m:cnt":{"rn":"c"}}"#;
        evil.create(&own, ResourceType::Container, container).await.unwrap();
        let own = format!("{own}/c");
        for (target, status) in [
            (ADDRESS, Status::BadRequest),
            (PULSE, Status::SubscriptionCreatorHasNoPrivilege),
            ("Cphd-024241434b000001", Status::SubscriptionCreatorHasNoPrivilege),
        ] {
            let made = evil.subscribe(&own, "s", target, &[3]).await.unwrap();
            assert_eq!(made.status, status, "{target}: {made:?}");
        }
        let command = json!({ "m2m:cin": { "rn": "one", "con": { "command": "read" } } });
        evil.create(&own, ResourceType::ContentInstance, &command.to_string()).await.unwrap();
        let mut later = evil.request(Operation::Retrieve, &own).unwrap();
        later.set("rt", "2").unwrap();
        later.set("rtu", ADDRESS).unwrap();
        let status = evil.ask(&later).await.unwrap().status;
        assert_eq!(status, Status::BadRequest, "{url}");
        let asked = evil.request(Operation::Notify, PULSE).unwrap();
        let asked = asked.with_content(r#"{"command":"read"}"#);
        let answer = evil.ask(&asked).await.unwrap();
        assert_eq!(answer.status, Status::OriginatorHasNoPrivilege, "{answer:?}");
    }
    assert_eq!(ward.devices.counters().asked, 0);
    let nurse = Client::new(ward.urls()[0].as_str(), "CNurse", "nurse-");
    let results = nurse.get(&format!("{PULSE}/results?fu=1&ty=4")).await.unwrap();
    assert_eq!(results.content.as_deref(), Some(r#"{"m2m:uril":[]}"#));
    let asked = nurse.request(Operation::Notify, PULSE).unwrap();
    let answer = nurse.ask(&asked.with_content(r#"{"command":"read"}"#)).await.unwrap();
    assert_eq!(answer.status, Status::Ok, "{answer:?}");
    ward.works_on().await;
    ward.stop().await;
}

/// An AE from an older store may have a device's name or AE-ID: the event names it.
#[tokio::test]
async fn an_ae_with_the_name_or_ae_id_of_a_device_is_named() {
    let ward = Ward::new().await;
    for (number, from, name, told) in [
        (2, "Cbob", "phd-024241434b000002", "its name phd-024241434b000002 is that of the AE Cbob"),
        (3, "Cphd-024241434b000003", "x", "is that of the AE x of somebody else"),
    ] {
        let content = json!({ "m2m:ae": { "rn": name, "api": "Nx", "rr": false, "srv": ["4"] } });
        let made = Request::new(Operation::Create, "cse-gw", from, "squat")
            .creating(ResourceType::ApplicationEntity, content.to_string());
        assert_eq!(ward.gateway.engine().ask(made).await.unwrap().status, Status::Created);
        let mut run = run_to(&ward.devices);
        run.plan.system_id = SystemId([2, b'B', b'A', b'C', b'K', 0, 0, number]);
        let device = tokio::spawn(agents::run(run));
        let mut events = Vec::new();
        wait_until("the refusal is told", || {
            events.extend(ward.devices.refusals());
            !events.is_empty()
        })
        .await;
        assert!(events[0].text.contains(told), "{events:?}");
        device.abort();
    }
    ward.works_on().await;
    ward.stop().await;
}
