//! Simulated devices on loopback, a listener and a CSE: what was answered is what is stored.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use core::time::Duration;
use gatewright_bindings::agents::{self, Outcome, Run};
use gatewright_bindings::{cse, devices};
use gatewright_health::agent::{self, Agent};
use gatewright_health::apdu::{AbortReason, Apdu, ReleaseReason};
use gatewright_health::code::{DataRequestId, Handle, InvokeId, SystemId, Type, event};
use gatewright_health::data::{DataApdu, DataMessage, EventReport};
use gatewright_health::report::{FixedObservation, encode_scan};
use gatewright_health::simulate::{Faults, SimulationPlan};
use gatewright_health::specialisation::{self, Specialisation};
use gatewright_interwork::Mapping;
use gatewright_interwork::mapping::{ObjectMatch, Rule};
use gatewright_onem2m::{CseType, Operation, Request, ResourceType};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

async fn wait_until(mut is_so: impl FnMut() -> bool, why: impl Fn() -> String) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{}", why());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A CSE and its listener.
struct Ward {
    cse: cse::RunningCse,
    devices: devices::RunningDevices,
}

async fn ward(change: impl FnOnce(&mut devices::DevicesConfig)) -> Ward {
    ward_with(|_| (), change).await
}

async fn ward_with(
    change_cse: impl FnOnce(&mut gatewright_onem2m::CseConfig),
    change: impl FnOnce(&mut devices::DevicesConfig),
) -> Ward {
    let mut config = gatewright_onem2m::CseConfig::new(CseType::Middle, "/id-mn", "cse-mn");
    config.admin = Some("CAdmin".to_owned());
    change_cse(&mut config);
    let cse = cse::start(cse::CseServerConfig::new(config)).await.unwrap();
    let mut config = devices::DevicesConfig::new(([127, 0, 0, 1], 0).into(), "cse-mn");
    change(&mut config);
    let devices = devices::start(config, cse.engine().clone()).await.unwrap();
    Ward { cse, devices }
}

impl Ward {
    /// The names of all instances, as discovery tells them.
    async fn names(&self) -> Vec<String> {
        let mut request = Request::new(Operation::Retrieve, "cse-mn", "CAdmin", "discovery");
        for (name, value) in [("fu", "1"), ("ty", "4")] {
            request.set(name, value).unwrap();
        }
        let answer = self.cse.engine().ask(request).await.unwrap();
        assert!(answer.status.is_success(), "{answer:?}");
        let content: Value = serde_json::from_str(answer.content.as_deref().unwrap()).unwrap();
        let list = content["m2m:uril"].as_array().unwrap();
        let uris = list.iter().map(|uri| uri.as_str().unwrap().to_owned());
        // What a device says of itself is no reading.
        uris.filter(|uri| !uri.contains("/about/")).collect()
    }

    /// Waits until its counters say so.
    async fn counts(&self, is_so: impl Fn(&devices::Counters) -> bool) {
        let counters = || self.devices.counters();
        wait_until(|| is_so(&counters()), || format!("{:?}", counters())).await;
    }

    async fn stop(self) {
        self.devices.stop().await;
        self.cse.stop().await;
    }
}

fn system(number: u8) -> SystemId {
    SystemId([2, b'T', b'E', b'S', b'T', 0, 0, number])
}

fn device(kind: &'static Specialisation, number: u8, faults: Faults) -> SimulationPlan {
    let period = Duration::from_millis(50);
    SimulationPlan { period, faults, ..SimulationPlan::new(kind, system(number), number.into()) }
}

/// Has these devices measure for a second and a half, at the same time.
async fn measure(to: SocketAddr, plans: Vec<SimulationPlan>) -> Vec<Outcome> {
    let (measuring, patience) = (Duration::from_millis(1_500), PATIENCE);
    let runs = plans.into_iter().map(|plan| agents::run(Run { plan, to, measuring, patience }));
    let runs: Vec<_> = runs.map(tokio::spawn).collect();
    let mut outcomes = Vec::new();
    for run in runs {
        outcomes.push(run.await.unwrap());
    }
    outcomes
}

/// What the devices measured is what is stored, by number and by name.
async fn proof(ward: &Ward, outcomes: &[Outcome]) {
    for outcome in outcomes {
        assert!(outcome.is_answered(), "{outcome:?} {:?}", ward.devices.counters());
    }
    let sent: u64 = outcomes.iter().map(|one| one.counters.acknowledged_values).sum();
    let names = ward.names().await;
    let distinct: BTreeSet<_> = names.iter().collect();
    assert_eq!(names.len() as u64, sent, "{:?}", ward.devices.counters());
    assert_eq!(distinct.len(), names.len());
    assert_eq!(ward.devices.counters().readings, sent);
}

#[tokio::test]
async fn every_kind_of_device_is_stored_once_and_answered() {
    let ward = ward(|_| ()).await;
    let plans = (1..).zip(specialisation::ALL);
    let plans = plans.map(|(number, kind)| device(kind, number, Faults::NONE)).collect();
    let outcomes = measure(ward.devices.address(), plans).await;
    proof(&ward, &outcomes).await;
    let counters = ward.devices.counters();
    assert_eq!(counters.associations, specialisation::ALL.len() as u64);
    assert_eq!((counters.reports_not_stored, counters.malformed), (0, 0), "{counters:?}");
    // The answer to a release leaves before the device is struck off.
    wait_until(|| ward.devices.devices() == 0, || "they are struck off".to_owned()).await;
    ward.stop().await;
}

/// What users map comes first, and views show the latest values (TS-0023) to whoever may read.
/// In a full tree a device that was here before is admitted again, as its resources are there; its
/// newest readings take the places of its oldest. A device that is new has no room.
#[tokio::test]
async fn a_known_device_returns_to_a_full_tree() {
    let ward = ward_with(|cse| cse.limits.resources = 200, |_| ()).await;
    let to = ward.devices.address();
    let plan = |number| device(specialisation::ALL[0], number, Faults::NONE);
    let first = measure(to, vec![plan(1)]).await;
    proof(&ward, &first).await;
    let engine = ward.cse.engine();
    for number in 0.. {
        let name = format!("filler-{number}");
        let content = format!(r#"{{"m2m:cnt":{{"rn":"{name}"}}}}"#);
        let request = Request::new(Operation::Create, "cse-mn", "CAdmin", name)
            .creating(ResourceType::Container, content);
        if !engine.ask(request).await.unwrap().status.is_success() {
            break;
        }
        assert!(number < 200, "the tree has a bound");
    }
    let before = ward.devices.counters();
    let again = measure(to, vec![plan(1)]).await;
    assert!(again[0].is_answered(), "{again:?}");
    let (names, after) = (ward.names().await, ward.devices.counters());
    assert_eq!(after.associations, before.associations + 1, "{after:?}");
    assert!(after.readings > before.readings && !names.is_empty(), "{after:?}");
    assert_eq!(after.reports_not_stored, 0, "{after:?}");
    let stranger = measure(to, vec![plan(2)]).await;
    assert!(!stranger[0].is_answered(), "{stranger:?}");
    ward.stop().await;
}

#[tokio::test]
async fn objects_become_what_users_say_and_show_it() {
    let when = ObjectMatch { kind: Some(Type::new(2, 18_458)), ..ObjectMatch::default() };
    let mapped = Rule {
        when,
        container: "beats".to_owned(),
        labels: vec!["ward".to_owned()],
        ..Rule::default()
    };
    let ward = ward(|config| {
        config.mapping = Mapping::default();
        config.mapping.rules.insert(0, mapped);
        config.operators = vec!["CNurse".to_owned()];
    })
    .await;
    let plans = vec![device(&specialisation::OXIMETER, 1, Faults::NONE)];
    let outcomes = measure(ward.devices.address(), plans).await;
    proof(&ward, &outcomes).await;
    let device = format!("cse-mn/phd-{}", system(1));
    let get = async |from: &str, path: &str| -> Value {
        let to = format!("{device}/{path}");
        let request = Request::new(Operation::Retrieve, to, from, format!("{from}{path}"));
        let answer = ward.cse.engine().ask(request).await.unwrap();
        serde_json::from_str(answer.content.as_deref().unwrap_or("null")).unwrap()
    };
    let labels = &get("CAdmin", "beats").await["m2m:cnt"]["lbl"];
    assert!(labels.as_array().unwrap().contains(&"ward".into()), "{labels}");
    let latest = get("CNurse", "spo2/la").await["m2m:cin"]["con"]["value"].clone();
    let latest: f64 = latest.as_str().unwrap().parse().unwrap();
    // The last report's view is made after its readings were stored.
    for _ in 0..300 {
        let view = get("CNurse", "spo2-view").await;
        if view["cod:oximr"]["oxySn"].as_f64() == Some(latest.round()) {
            assert_eq!(view["cod:oximr"]["cnd"], "org.onem2m.common.moduleclass.oximeter");
            return ward.stop().await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{latest}: {}", get("CNurse", "spo2-view").await);
}

#[tokio::test]
async fn sloppy_devices_lose_nothing() {
    let ward = ward(|_| ()).await;
    let mut outcomes = Vec::new();
    let mut numbers = 1..;
    // A fault shows when its turn comes: on a machine that has little time, in a later round.
    for _ in 0..20 {
        let plans = numbers.by_ref().zip(Faults::NAMES);
        let plans =
            plans.map(|(number, (_, fault))| device(&specialisation::OXIMETER, number, fault));
        outcomes.extend(measure(ward.devices.address(), plans.collect()).await);
        let counters = ward.devices.counters();
        if counters.malformed > 0 && counters.unknown_handles > 0 && counters.trailing > 0 {
            break;
        }
    }
    proof(&ward, &outcomes).await;
    let counters = ward.devices.counters();
    assert!(counters.malformed > 0 && counters.unknown_handles > 0, "{counters:?}");
    assert!(counters.trailing > 0, "{counters:?}");
    ward.stop().await;
}

#[tokio::test]
async fn a_stranger_is_refused_and_stores_nothing() {
    let ward = ward(|config| config.admitted = Some(BTreeSet::from([system(1)]))).await;
    let plans = [1, 2].map(|number| device(&specialisation::SCALE, number, Faults::NONE));
    let (measuring, patience) = (Duration::from_millis(300), PATIENCE);
    let to = ward.devices.address();
    let [known, stranger] = plans.map(|plan| Run { plan, to, measuring, patience });
    // It tries for as long as the one that is known reports, and a moment longer.
    let brief = Duration::from_millis(700);
    let stranger = tokio::spawn(agents::run(Run { patience: brief, ..stranger }));
    let (known, stranger) = (agents::run(known).await, stranger.await.unwrap());
    assert!(!stranger.is_answered() && stranger.counters.acknowledged == 0, "{stranger:?}");
    proof(&ward, &[known]).await;
    ward.stop().await;
}

#[tokio::test]
async fn the_last_association_of_a_system_id_wins() {
    let ward = ward(|_| ()).await;
    let to = ward.devices.address();
    let plan = device(&specialisation::OXIMETER, 1, Faults::NONE);
    let (long, short) = (Duration::from_mins(1), Duration::from_millis(400));
    let first = tokio::spawn(agents::run(Run { plan, to, measuring: long, patience: short }));
    ward.counts(|counters| counters.readings > 0).await;
    let second = agents::run(Run { plan, to, measuring: short, patience: long }).await;
    assert!(ward.devices.counters().displaced >= 1, "{:?}", ward.devices.counters());
    assert!(second.counters.acknowledged > 0, "{second:?}");
    first.abort();
    ward.stop().await;
}

/// What a device without a clock says to associate; its configuration is a standard one.
fn association(device: SystemId) -> Vec<u8> {
    let oximeter = &specialisation::OXIMETER;
    let mut agent = Agent::new(agent::AgentSettings {
        system_id: device,
        configurations: vec![(oximeter.config, oximeter.octets().unwrap())],
        attributes: Vec::new(),
        segments: Vec::new(),
        scanners: Vec::new(),
        clock: None,
    });
    agent.handle(Duration::ZERO, agent::Input::Connected);
    agent.handle(Duration::ZERO, agent::Input::Associate);
    let Some(agent::Output::Send(octets)) = agent.poll_output() else { panic!("no request") };
    octets
}

/// A confirmed report of the oxygen saturation, without a time.
fn report(invoke_id: u16, number: u16, percent: u8) -> Vec<u8> {
    observed(invoke_id, number, &[0, percent], &[])
}

/// A confirmed report of these octets of the oxygen saturation, and octets behind its list.
fn observed(invoke_id: u16, number: u16, octets: &[u8], behind: &[u8]) -> Vec<u8> {
    let observation = FixedObservation { handle: Handle(1), octets };
    let mut info = encode_scan(DataRequestId::AGENT_INITIATED, number, &[observation]).unwrap();
    info.extend(behind);
    let (handle, event) = (Handle::MDS, event::SCAN_FIXED);
    let report = EventReport { handle, time: u32::MAX, event, info: &info };
    let message = DataMessage::ConfirmedEventReport(report);
    Apdu::Prst(DataApdu { invoke_id: InvokeId(invoke_id), message }).encode().unwrap()
}

/// A manager that stalled: the device has given up, associated again and sent its report once more
/// before anything of it was read. What it measured next is another reading, though of the same
/// value.
#[tokio::test]
async fn a_report_sent_again_after_a_stall_is_stored_once() {
    let ward = ward(|_| ()).await;
    let gives_up = Apdu::Abrt(AbortReason::RESPONSE_TIMEOUT).encode().unwrap();
    let said = [
        association(system(1)),
        report(1, 1, 97),
        report(2, 2, 97),
        // The answer to its second report has not come.
        gives_up,
        association(system(1)),
        report(3, 1, 97),
        report(4, 2, 97),
        Apdu::Rlrq(ReleaseReason::NORMAL).encode().unwrap(),
    ];
    let mut device = TcpStream::connect(ward.devices.address()).unwrap();
    device.write_all(&said.concat()).unwrap();
    ward.counts(|counters| counters.reports == 4).await;
    assert_eq!(ward.names().await.len(), 3, "{:?}", ward.devices.counters());
    assert_eq!(ward.devices.counters().reports_repeated, 1);
    ward.stop().await;
}

/// Takes one APDU off a connection.
fn answer(device: &mut TcpStream) -> Vec<u8> {
    let mut octets = vec![0; 4];
    device.set_read_timeout(Some(PATIENCE)).unwrap();
    device.read_exact(&mut octets).unwrap();
    let length = usize::from(u16::from_be_bytes([octets[2], octets[3]]));
    octets.resize(4 + length, 0);
    device.read_exact(&mut octets[4..]).unwrap();
    octets
}

/// The answer to the operation `invoke_id`: everything else is passed over.
fn answer_to(device: &mut TcpStream, invoke_id: u16) -> Vec<u8> {
    loop {
        let octets = answer(device);
        let is_answer = matches!(octets.get(8), Some(2..=4));
        if octets[0] == 0xE7 && octets[6..8] == invoke_id.to_be_bytes() && is_answer {
            return octets;
        }
    }
}

/// An agent in the field appends two octets to its list: its readings are stored all the same. An
/// observation that is shorter than its map says nothing: the device keeps it, and is told why.
#[tokio::test]
async fn reports_longer_or_shorter_than_they_say_are_not_lost() {
    let ward = ward(|_| ()).await;
    let to = ward.devices.address();
    let said = [
        association(system(1)),
        observed(1, 1, &[0, 97], &[0, 0]),
        observed(2, 2, &[0], &[]),
        observed(3, 3, &[0, 98], &[]),
    ];
    let answers = tokio::task::spawn_blocking(move || {
        let mut device = TcpStream::connect(to).unwrap();
        device.write_all(&said.concat()).unwrap();
        [1, 2, 3].map(|invoke_id| answer_to(&mut device, invoke_id))
    });
    let [padded, cut, plain] = answers.await.unwrap();
    // rors-cmip-confirmed-event-report; rorj with badly-structured-apdu (2).
    assert_eq!((&padded[8..10], &plain[8..10]), (&[2, 1][..], &[2, 1][..]));
    assert_eq!(cut[8..], [4, 0, 0, 2, 0, 2]);
    assert_eq!(ward.names().await.len(), 2);
    let counters = ward.devices.counters();
    assert_eq!((counters.reports_padded, counters.cut, counters.trailing), (1, 1, 0));
    assert_eq!(counters.reports_not_stored, 1);
    ward.stop().await;
}

/// A scale with the extended configuration 4002, which here is an activity monitor's: it is a scale,
/// as its list of specialisations says. With another configuration the AE is something else.
#[tokio::test]
async fn a_kind_is_what_the_device_says_and_follows_its_configuration() {
    let ward = ward(|_| ()).await;
    let to = format!("cse-mn/phd-{}", system(1));
    let labels = async |id: &str| -> String {
        let request = Request::new(Operation::Retrieve, &*to, "CAdmin", id);
        let answer = ward.cse.engine().ask(request).await.unwrap();
        let content: Value = serde_json::from_str(answer.content.as_deref().unwrap()).unwrap();
        let entity = &content["m2m:ae"];
        let labels = entity["lbl"].as_array().unwrap();
        let kinds = labels.iter().filter(|label| label.as_str().unwrap().starts_with("kind:"));
        let kinds: Vec<_> = kinds.map(|label| label.as_str().unwrap().to_owned()).collect();
        format!("{} {}", entity["apn"].as_str().unwrap(), kinds.join(" "))
    };
    let extended = specialisation::ACTIVITY.config;
    let scale = Specialisation { config: extended, ..specialisation::SCALE };
    let scale: &'static Specialisation = Box::leak(Box::new(scale));
    for (id, kind, expected) in [
        ("1", scale, "scale kind:scale"),
        ("2", &specialisation::THERMOMETER, "thermometer kind:thermometer"),
        ("3", &specialisation::SCALE, "scale kind:scale"),
    ] {
        let outcomes = measure(ward.devices.address(), vec![device(kind, 1, Faults::NONE)]).await;
        assert!(outcomes[0].is_answered(), "{outcomes:?}");
        assert_eq!(labels(id).await, expected);
    }
    ward.stop().await;
}

/// What is no APDU ends its own connection with an abort, and disturbs nobody else.
#[tokio::test]
async fn what_is_no_device_is_hung_up_on() {
    let ward = ward(|config| config.connections_max = 2).await;
    let to = ward.devices.address();
    let hang = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut said = Vec::new();
        // The end may come as a reset: our request was not read to its end.
        let _ = stream.read_to_end(&mut said);
        said
    });
    let plan = device(&specialisation::THERMOMETER, 1, Faults::NONE);
    let outcomes = measure(to, vec![plan]).await;
    let said = hang.await.unwrap();
    assert!(said.is_empty() || said.starts_with(&[0xE6, 0x00]), "{said:?}");
    proof(&ward, &outcomes).await;
    assert_eq!(ward.devices.counters().malformed, 1);
    ward.stop().await;
}

/// Silent connections of one address, twice as many as devices may associate, keep out no device of
/// another: the oldest silent one gives way, and a device that is associated never does.
#[tokio::test]
async fn silent_connections_keep_out_no_device() {
    const MOST: usize = 20;
    let ward = ward(|config| config.connections_max = MOST).await;
    let to = ward.devices.address();
    let silent = tokio::task::spawn_blocking(move || {
        let socket = |_| {
            let socket = TcpStream::connect(to).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        };
        (0..2 * MOST).map(socket).collect::<Vec<_>>()
    })
    .await
    .unwrap();
    ward.counts(|counters| counters.connections_evicted >= MOST as u64).await;
    let polite = device(&specialisation::THERMOMETER, 1, Faults::NONE);
    let outcomes = measure(to, vec![polite]).await;
    assert!(outcomes[0].is_answered(), "{outcomes:?}");
    proof(&ward, &outcomes).await;
    let counters = ward.devices.counters();
    assert_eq!((counters.connections_refused, counters.connections_idle), (0, 0), "{counters:?}");
    drop(silent);
    ward.stop().await;
}

/// Datagrams: who is associated is in the AE table; anybody else is dropped, counted, and answered
/// by nothing.
#[tokio::test]
async fn datagrams_of_devices_are_taken_and_those_of_strangers_dropped() {
    let ward = ward(|config| config.datagrams = Some(([127, 0, 0, 1], 0).into())).await;
    let to = ward.devices.datagrams().unwrap();
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    // A presentation APDU, an abort, nothing at all.
    for octets in [&[0xE7, 0x00, 0x00, 0x02, 0x00, 0x00][..], &[0xE6, 0, 0, 2, 0, 0], &[]] {
        stranger.send_to(octets, to).unwrap();
    }
    ward.counts(|counters| counters.strangers >= 3).await;
    let entities = ward.devices.entities();
    let (measuring, patience) = (Duration::from_secs(3), PATIENCE);
    let runs = [specialisation::OXIMETER, specialisation::SCALE];
    let runs: Vec<_> = (1..)
        .zip(&runs)
        .map(|(number, kind)| {
            let known = Specialisation::named(kind.name).unwrap();
            let plan = device(known, number, Faults::NONE);
            tokio::spawn(agents::run_datagrams(Run { plan, to, measuring, patience }))
        })
        .collect();
    // 8: operating.
    let both = || entities.iter().flatten().filter(|(_, entity)| entity.state == 8).count() == 2;
    wait_until(both, || format!("{:?}", ward.devices.counters())).await;
    let table: Vec<_> = entities.iter().map(Result::unwrap).collect();
    let scale = table.iter().find(|(_, entity)| entity.system_id == system(2).0).unwrap().1;
    assert_eq!((scale.configuration, scale.state), (1500, 8), "{scale:?}");
    // Body weight, 2:57664.
    assert_eq!(scale.kinds[0], 0x0002_E140, "{scale:?}");
    let mut outcomes = Vec::new();
    for run in runs {
        outcomes.push(run.await.unwrap());
    }
    proof(&ward, &outcomes).await;
    let mut silence = [0; 16];
    stranger.set_nonblocking(true).unwrap();
    assert!(stranger.recv(&mut silence).is_err(), "{silence:?}");
    wait_until(|| entities.is_empty(), || "they are struck off".to_owned()).await;
    ward.stop().await;
}

/// What has come of APDUs that are not whole counts for its address, as bodies of requests do: who
/// has too much is closed, and a device that reports is not disturbed.
#[tokio::test]
async fn one_address_has_so_many_octets_of_unfinished_apdus() {
    let mut config = gatewright_onem2m::CseConfig::new(CseType::Middle, "/id-mn", "cse-mn");
    config.admin = Some("CAdmin".to_owned());
    let mut config = cse::CseServerConfig::new(config);
    config.quota.octets = 100_000;
    let cse = cse::start(config).await.unwrap();
    let config = devices::DevicesConfig::new(([127, 0, 0, 1], 0).into(), "cse-mn");
    let devices = devices::start(config, cse.engine().clone()).await.unwrap();
    let ward = Ward { cse, devices };
    // An association request that announces 60,000 octets more, of which the last never comes.
    let mut begun = vec![0xE2, 0, 0xEA, 0x60];
    begun.resize(60_000, 0);
    let (to, count) = (ward.devices.address(), 4);
    let connections = tokio::task::spawn_blocking(move || {
        let begin = |_| {
            let mut stream = TcpStream::connect(to).unwrap();
            // One that is closed under way has had too much.
            let _ = stream.write_all(&begun);
            stream
        };
        (0..count).map(begin).collect::<Vec<_>>()
    });
    let connections = connections.await.unwrap();
    ward.counts(|counters| counters.octets_full >= 2).await;
    let scale = device(&specialisation::SCALE, 1, Faults::NONE);
    let outcomes = measure(ward.devices.address(), vec![scale]).await;
    proof(&ward, &outcomes).await;
    drop(connections);
    ward.stop().await;
}

/// Who begins an APDU and never ends it, or says nothing, is let go before it has associated; of one
/// address there are no more than may be.
#[tokio::test]
async fn a_connection_without_an_association_ends() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let ward = ward(|config| {
        config.manager.idle = Duration::from_millis(100);
        config.connections_per_peer_max = 2;
    })
    .await;
    // ISO/IEEE 11073-20601: the head of an association request of 50 octets, and no more of it.
    for said in [&[0xE2, 0x00, 0x00, 0x32, 0x80][..], &[]] {
        let before = ward.devices.counters().connections_idle;
        let mut stream = tokio::net::TcpStream::connect(ward.devices.address()).await.unwrap();
        stream.write_all(said).await.unwrap();
        let mut told = Vec::new();
        let closed = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut told)).await;
        closed.expect("closed in time").unwrap();
        ward.counts(|counters| counters.connections_idle == before + 1).await;
    }
    assert_eq!(ward.devices.counters().connections_refused, 0);
    let mut streams = Vec::new();
    for _ in 0..20 {
        streams.push(tokio::net::TcpStream::connect(ward.devices.address()).await.unwrap());
    }
    ward.counts(|counters| counters.connections_refused > 0).await;
    drop(streams);
    ward.devices.stop().await;
    ward.cse.stop().await;
}
