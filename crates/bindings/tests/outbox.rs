//! The way of readings to the CSE above: in order for each device, over its absence, over a full
//! disk, over a database whose log was cut, bounded by number and age.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

#[path = "shared/authority.rs"]
mod authority;
mod shared;

use authority::Authority;
use core::time::Duration;
use gatewright_bindings::agents::{self, Outcome, Run};
use gatewright_bindings::tls::Tls;
use gatewright_bindings::{cse, devices};
use gatewright_health::code::SystemId;
use gatewright_health::simulate::SimulationPlan;
use gatewright_health::specialisation::{SCALE, THERMOMETER};
use gatewright_onem2m::{CseType, Operation, Registrar, Request, ResourceType};
use gatewright_testbed::free_port;
use libtest_mimic::{Arguments, Trial};
use serde_json::Value;
use shared::{Broker, broker_program};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;
use tokio::runtime::Runtime;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a reading waits for the CSE above in these tests, if nothing else is said.
const KEEP: Duration = Duration::from_hours(1);

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let disk = if arguments.list { None } else { SmallDisk::mount() };
    let no_disk = disk.is_none() && !arguments.list;
    let broker = broker_program();
    let trials = vec![
        trial("readings_arrive_above_in_order_and_once_over_its_absence", || {
            block_on(absence(Way::Http));
        }),
        trial("readings_arrive_above_over_tls_that_asks_for_certificates", || {
            block_on(absence(Way::Https));
            block_on(absence(Way::Wss));
        }),
        trial("a_cse_above_that_has_too_much_to_do_gets_every_reading_all_the_same", || {
            block_on(busy_above(Way::Http));
        }),
        trial("so_does_one_that_is_asked_by_a_binding_without_words_for_that", || {
            block_on(busy_above(Way::Wss));
        }),
        trial("a_target_that_never_answers_holds_up_no_reading", || block_on(tarpit())),
        trial("direct_delivery_stores_nothing_here_and_loses_nothing", || {
            block_on(direct(Way::Http));
        }),
        trial("direct_delivery_goes_over_tls", || {
            block_on(direct(Way::Https));
            block_on(direct(Way::Wss));
        }),
        trial("direct_delivery_goes_by_a_broker", move || {
            let broker = Broker::start(broker.expect("there"));
            block_on(direct(Way::Mqtt(broker.port)));
        })
        .with_ignored_flag(broker.is_none()),
        trial("a_cse_above_that_lost_its_memory_gets_its_places_again", || {
            block_on(memory_lost(Way::Http, devices::Delivery::Durable(KEEP)));
            block_on(memory_lost(Way::Http, devices::Delivery::Direct));
        }),
        trial("so_does_one_that_knows_its_devices_by_the_gateways_certificate", || {
            block_on(memory_lost(Way::Https, devices::Delivery::Durable(KEEP)));
            block_on(memory_lost(Way::Https, devices::Delivery::Direct));
        }),
        trial("kinds_of_devices_are_delivered_each_its_own_way", || block_on(by_kind())),
        trial("a_full_outbox_refuses_no_reading_and_all_arrive_later", || {
            block_on(bounded_by_number());
        }),
        trial("what_has_waited_too_long_is_given_up_and_counted", || block_on(bounded_by_age())),
        trial("a_log_cut_anywhere_is_read_back_as_far_as_it_goes", || block_on(cut())),
        Trial::test("a_full_disk_refuses_politely_and_loses_nothing", move || {
            block_on(full(&disk.as_ref().expect("mounted").0));
            Ok(())
        })
        .with_ignored_flag(no_disk),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(name: &str, run: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        run();
        Ok(())
    })
}

fn block_on(future: impl Future<Output = ()>) {
    Runtime::new().unwrap().block_on(future);
}

fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn config(kind: CseType, id: &str, name: &str, store: Option<PathBuf>) -> cse::CseServerConfig {
    let mut machine = gatewright_onem2m::CseConfig::new(kind, id, name);
    machine.admin = Some("CAdmin".to_owned());
    let mut config = cse::CseServerConfig::new(machine);
    config.store = store;
    config
}

/// How the gateway and the CSE above speak; over TLS both show a certificate.
#[derive(Clone, Copy, Debug)]
enum Way {
    Http,
    Https,
    Wss,
    /// By the broker at this port.
    Mqtt(u16),
}

/// The CSE above, at a port of its own.
struct Upper {
    way: Way,
    store: PathBuf,
    port: u16,
    /// Its certificate, and the gateway's.
    tls: Option<[Tls; 2]>,
    /// What it lets one peer ask.
    quota: cse::Quota,
    running: Option<cse::RunningCse>,
}

impl Upper {
    fn away(place: &Path, way: Way) -> Self {
        let tls = matches!(way, Way::Https | Way::Wss).then(|| {
            let authority = Authority::new(&place.file_name().unwrap().to_string_lossy());
            ["id-in", "id-mn"].map(|id| authority.certify(id, &[&format!("m2m://sp.example/{id}")]))
        });
        let (store, port, quota) = (place.join("in.db"), free_port(), cse::Quota::default());
        Self { way, store, port, tls, quota, running: None }
    }

    async fn start(&mut self) {
        self.running = Some(cse::start(self.config()).await.unwrap());
    }

    fn config(&self) -> cse::CseServerConfig {
        let store = Some(self.store.clone());
        let mut config = config(CseType::Infrastructure, "/id-in", "cse-in", store);
        "//sp.example".clone_into(&mut config.cse.provider);
        config.cse.admitted_cses = vec!["/id-mn".to_owned()];
        config.tls = self.tls.as_ref().map(|[above, _]| above.clone());
        config.quota = self.quota;
        let at = vec![([127, 0, 0, 1], self.port).into()];
        match self.way {
            Way::Http => config.listen = at,
            Way::Https => config.listen_tls = at,
            Way::Wss => config.listen_wss = at,
            Way::Mqtt(_) => config.mqtt = Some(self.url()),
        }
        config
    }

    fn url(&self) -> String {
        match self.way {
            Way::Http => format!("http://127.0.0.1:{}", self.port),
            Way::Https => format!("https://127.0.0.1:{}", self.port),
            Way::Wss => format!("wss://127.0.0.1:{}", self.port),
            Way::Mqtt(port) => format!("mqtt://127.0.0.1:{port}"),
        }
    }

    /// The configuration of a gateway below it.
    fn gateway(&self, store: Option<PathBuf>) -> cse::CseServerConfig {
        let mut config = config(CseType::Middle, "/id-mn", "cse-mn", store);
        "//sp.example".clone_into(&mut config.cse.provider);
        config.tls = self.tls.as_ref().map(|[_, below]| below.clone());
        config.cse.registrar = Some(Registrar {
            cse_id: "/id-in".to_owned(),
            name: "cse-in".to_owned(),
            url: self.url(),
        });
        config
    }

    async fn stop(&mut self) {
        self.running.take().unwrap().stop().await;
    }

    /// Takes its database away while it is stopped; the names of the instances that were in it.
    async fn forget(&self) -> Vec<String> {
        let kept = self.store.with_extension("kept");
        for end in ["", "-wal", "-shm"] {
            let [from, to] = [&self.store, &kept].map(|path| format!("{}{end}", path.display()));
            let _ = std::fs::rename(from, to);
        }
        let config = config(CseType::Infrastructure, "/id-in", "cse-in", Some(kept));
        let before = cse::start(config).await.unwrap();
        let names = names(&before, "cse-in").await;
        before.stop().await;
        names
    }

    fn above(&self, delivery: devices::Delivery) -> devices::Above {
        let (url, kinds) = (self.url(), std::collections::BTreeMap::new());
        devices::Above {
            url,
            base: "/id-in/cse-in".to_owned(),
            beyond: false,
            delivery,
            kinds,
            coap: None,
        }
    }

    async fn names(&self) -> Vec<String> {
        names(self.running.as_ref().unwrap(), "cse-in").await
    }
}

/// The gateway: a CSE and its listener.
struct Gateway {
    cse: cse::RunningCse,
    devices: devices::RunningDevices,
}

impl Gateway {
    async fn start(config: cse::CseServerConfig, above: devices::Above) -> Self {
        let cse = cse::start(config).await.unwrap();
        let mut config = devices::DevicesConfig::new(([127, 0, 0, 1], 0).into(), "cse-mn");
        config.above = Some(above);
        let devices = devices::start(config, cse.engine().clone()).await.unwrap();
        Self { cse, devices }
    }

    fn to(&self) -> SocketAddr {
        self.devices.address()
    }

    async fn emptied(&self) {
        wait_until("every message arrives", || self.cse.engine().messages_waiting() == 0).await;
    }

    async fn stop(self) {
        self.devices.stop().await;
        self.cse.stop().await;
    }
}

/// The last parts of the addresses of all instances, in the order of their creation.
async fn names(cse: &cse::RunningCse, base: &str) -> Vec<String> {
    // What a device says of itself is no reading.
    named(cse, base, "4").await.into_iter().filter(|name| !name.ends_with("-about")).collect()
}

/// The same of resources of this type.
async fn named(cse: &cse::RunningCse, base: &str, kind: &str) -> Vec<String> {
    static ASKED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let id = ASKED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let mut request = Request::new(Operation::Retrieve, base, "CAdmin", format!("names-{id}"));
    for (name, value) in [("fu", "1"), ("ty", kind)] {
        request.set(name, value).unwrap();
    }
    let answer = cse.engine().ask(request).await.unwrap();
    assert!(answer.status.is_success(), "{answer:?}");
    let content: Value = serde_json::from_str(answer.content.as_deref().unwrap()).unwrap();
    let list = content["m2m:uril"].as_array().unwrap();
    let name = |uri: &Value| uri.as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    list.iter().map(name).collect()
}

/// Both kinds say when they measured: what they report again, because its answer was late or lost, is
/// known by that.
fn plan(number: u8, period_ms: u64) -> SimulationPlan {
    let kind = if number.is_multiple_of(2) { &SCALE } else { &THERMOMETER };
    let system_id = SystemId([2, b'O', b'U', b'T', 0, 0, 0, number]);
    SimulationPlan {
        period: Duration::from_millis(period_ms),
        ..SimulationPlan::new(kind, system_id, number.into())
    }
}

fn run(
    plan: SimulationPlan,
    to: SocketAddr,
    measuring_ms: u64,
) -> tokio::task::JoinHandle<Outcome> {
    let measuring = Duration::from_millis(measuring_ms);
    tokio::spawn(agents::run(Run { plan, to, measuring, patience: PATIENCE }))
}

/// Devices at work.
struct Group {
    to: SocketAddr,
    period_ms: u64,
    /// The number of the next one.
    next: u8,
    runs: Vec<tokio::task::JoinHandle<Outcome>>,
}

impl Group {
    fn new(gateway: &Gateway, period_ms: u64) -> Self {
        Self { to: gateway.to(), period_ms, next: 1, runs: Vec::new() }
    }

    /// Has so many more report for so long.
    fn join(&mut self, devices: u8, measuring_ms: u64) {
        for number in self.next..self.next + devices {
            self.runs.push(run(plan(number, self.period_ms), self.to, measuring_ms));
        }
        self.next += devices;
    }

    /// Waits until something is so. How much devices report in a time is up to the machine: where
    /// all of them are done before, others come.
    async fn report_until(&mut self, what: &str, mut is_so: impl FnMut() -> bool) {
        let end = Instant::now() + PATIENCE * 2;
        while !is_so() {
            assert!(Instant::now() < end, "{what}");
            if self.runs.iter().all(tokio::task::JoinHandle::is_finished) {
                self.join(2, 300);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Waits for devices; the values that were answered.
async fn answered(runs: Vec<tokio::task::JoinHandle<Outcome>>) -> usize {
    let mut values = 0;
    for run in runs {
        let outcome = run.await.unwrap();
        assert!(outcome.is_answered(), "{outcome:?}");
        values += outcome.counters.acknowledged_values;
    }
    usize::try_from(values).unwrap()
}

fn set(names: &[String]) -> BTreeSet<&String> {
    let set: BTreeSet<_> = names.iter().collect();
    assert_eq!(set.len(), names.len(), "each once");
    set
}

/// One container's readings come in the order of their reports: `SYSTEM-EPOCH-NUMBER-HANDLE`, where
/// the epoch is the device's time or, if it tells none, its association's.
fn in_order(names: &[String]) {
    let mut last = std::collections::BTreeMap::new();
    for name in names {
        let parts: Vec<&str> = name.split('-').collect();
        let report: (u64, u64) = (parts[1].parse().unwrap(), parts[2].parse().unwrap());
        let before = last.insert((parts[0], parts[3]), report);
        assert!(before.is_none_or(|before| before < report), "{name} came after {before:?}");
    }
}

async fn absence(way: Way) {
    let place = scratch(&format!("outbox-absence-{way:?}"));
    let mut upper = Upper::away(&place, way);
    let config = upper.gateway(Some(place.join("mn.db")));
    let above = upper.above(devices::Delivery::Durable(KEEP));
    let gateway = Gateway::start(config.clone(), above.clone()).await;
    // It is away when the devices come, comes, goes, and comes again.
    let mut devices = Group::new(&gateway, 30);
    devices.join(4, 2_500);
    let readings = || gateway.devices.counters().readings;
    devices.report_until("readings while it is away", || readings() > 20).await;
    upper.start().await;
    let delivered = || gateway.cse.engine().counters().delivered;
    devices.report_until("messages arrive", || delivered() > 20).await;
    upper.stop().await;
    devices.report_until("messages wait", || gateway.cse.engine().messages_waiting() > 0).await;
    let values = answered(devices.runs).await;
    let here = names(&gateway.cse, "cse-mn").await;
    assert_eq!(here.len(), values);
    assert!(gateway.cse.engine().messages_waiting() > 0, "some wait");
    // The gateway ends and begins again with what waits.
    gateway.stop().await;
    let gateway = Gateway::start(config, above).await;
    upper.start().await;
    gateway.emptied().await;
    let there = upper.names().await;
    assert_eq!(set(&there), set(&here));
    in_order(&there);
    assert_eq!(gateway.cse.engine().counters().messages_refused, 0);
    gateway.stop().await;
    upper.stop().await;
}

/// The CSE above takes one request in a second of this gateway at first: what it turns away it
/// gets later.
async fn busy_above(way: Way) {
    let place = scratch(&format!("outbox-busy-{way:?}"));
    let mut upper = Upper::away(&place, way);
    upper.quota.rate = Some(1);
    upper.start().await;
    let config = upper.gateway(Some(place.join("mn.db")));
    let gateway = Gateway::start(config, upper.above(devices::Delivery::Durable(KEEP))).await;
    let mut devices = Group::new(&gateway, 50);
    devices.join(3, 1_000);
    let running = upper.running.as_ref().unwrap();
    let too_often = || counter(running, "peer_requests_too_often");
    let readings = || gateway.devices.counters().readings;
    devices
        .report_until("readings come and messages are turned away", || {
            readings() > 20 && too_often() > 5
        })
        .await;
    let values = answered(devices.runs).await;
    running.reconfigure(cse::CseServerConfig { quota: cse::Quota::default(), ..upper.config() });
    gateway.emptied().await;
    let (here, there) = (names(&gateway.cse, "cse-mn").await, upper.names().await);
    assert_eq!(here.len(), values);
    assert_eq!(set(&there), set(&here));
    in_order(&there);
    let counters = gateway.cse.engine().counters();
    assert_eq!((counters.messages_refused, counters.readings_refused_above), (0, 0));
    gateway.stop().await;
    upper.stop().await;
}

/// An AE whose address takes connections and never says a word is notified, over and over: the
/// readings of devices are stored and arrive above all the same.
async fn tarpit() {
    let place = scratch("outbox-tarpit");
    let mut upper = Upper::away(&place, Way::Http);
    upper.start().await;
    let config = upper.gateway(None);
    let gateway = Gateway::start(config, upper.above(devices::Delivery::Durable(KEEP))).await;
    // The kernel takes connections, and nobody ever asks for them.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let entity = format!(
        r#"{{"m2m:ae":{{"rn":"evil","api":"Nx","rr":true,"srv":["4"],"poa":["http://{}"]}}}}"#,
        silent.local_addr().unwrap()
    );
    let ask = |request: Request| gateway.cse.engine().ask(request);
    let made = Request::new(Operation::Create, "cse-mn", "Cevil", "evil")
        .creating(ResourceType::ApplicationEntity, entity);
    assert!(ask(made).await.unwrap().status.is_success());
    let notify = |number: usize, expires: &str| {
        let id = format!("told-{number}");
        let mut request = Request::new(Operation::Notify, "cse-mn/evil", "Cevil", id);
        request.set("rqet", expires).unwrap();
        drop(ask(request.with_content(r#"{"m2m:sgn":{"nev":{"rep":{}},"sur":"x"}}"#)));
    };
    // More than anything had places for, whose originator does not hurry or does.
    for number in 0..300 {
        notify(number, if number % 2 == 0 { "60000" } else { "30000" });
    }
    for number in 300..600 {
        notify(number, "9000");
    }
    let values = answered(vec![run(plan(1, 50), gateway.to(), 1_000)]).await;
    gateway.emptied().await;
    assert_eq!(upper.names().await.len(), values);
    gateway.stop().await;
    upper.stop().await;
}

fn counter(cse: &cse::RunningCse, name: &str) -> u64 {
    cse.counters().into_iter().find(|(known, _)| *known == name).unwrap().1
}

async fn direct(way: Way) {
    let place = scratch(&format!("outbox-direct-{way:?}"));
    let mut upper = Upper::away(&place, way);
    let config = upper.gateway(None);
    let gateway = Gateway::start(config, upper.above(devices::Delivery::Direct)).await;
    let runs: Vec<_> = (1..=2).map(|number| run(plan(number, 50), gateway.to(), 1_500)).collect();
    wait_until("a registration fails", || gateway.devices.counters().registrations_failed > 0)
        .await;
    upper.start().await;
    let values = answered(runs).await;
    assert_eq!(names(&gateway.cse, "cse-mn").await, [""; 0]);
    assert_eq!(set(&upper.names().await).len(), values);
    assert_eq!(gateway.devices.counters().direct, values as u64);
    gateway.stop().await;
    upper.stop().await;
}

/// The CSE above begins anew with an empty database, in the middle: what had arrived is its own
/// loss, everything else arrives, once.
async fn memory_lost(way: Way, delivery: devices::Delivery) {
    let place = scratch(&format!("outbox-memory-{way:?}"));
    let mut upper = Upper::away(&place, way);
    upper.start().await;
    let gateway = Gateway::start(upper.gateway(None), upper.above(delivery)).await;
    let mut devices = Group::new(&gateway, 50);
    devices.join(2, 4_000);
    let arrived = || gateway.cse.engine().counters().delivered + gateway.devices.counters().direct;
    devices.report_until("readings arrive", || arrived() > 20).await;
    upper.stop().await;
    let before = upper.forget().await;
    let already = arrived();
    upper.start().await;
    devices.report_until("more arrive", || arrived() > already + 30).await;
    let values = answered(devices.runs).await;
    gateway.emptied().await;
    let there = upper.names().await;
    assert_eq!(set(&there).len(), there.len());
    let all: BTreeSet<&String> = set(&before).union(&set(&there)).copied().collect();
    assert_eq!(all.len(), values, "{:?}", gateway.devices.counters());
    assert!(there.len() > 20, "{}", there.len());
    let counters = gateway.devices.counters();
    assert!(counters.places_again >= 2, "{counters:?}");
    assert_eq!(gateway.cse.engine().counters().messages_refused, 0);
    gateway.stop().await;
    upper.stop().await;
}

/// Thermometers are sent on at once and stored nowhere here; scales are stored first.
async fn by_kind() {
    let place = scratch("outbox-kinds");
    let mut upper = Upper::away(&place, Way::Http);
    upper.start().await;
    let config = config(CseType::Middle, "/id-mn", "cse-mn", None);
    let mut above = upper.above(devices::Delivery::Durable(KEEP));
    above.kinds.insert("thermometer".to_owned(), devices::Delivery::Direct);
    let gateway = Gateway::start(config, above).await;
    let runs = (1..=2).map(|number| run(plan(number, 50), gateway.to(), 1_000)).collect();
    let values = answered(runs).await;
    gateway.emptied().await;
    let (here, there) = (names(&gateway.cse, "cse-mn").await, upper.names().await);
    assert_eq!(there.len(), values);
    let scale = plan(2, 50).system_id.to_string();
    let of_scale = there.iter().filter(|name| name.starts_with(&scale));
    assert_eq!(set(&here), of_scale.collect(), "what is durable, and only that");
    let direct = gateway.devices.counters().direct;
    assert_eq!(here.len() + usize::try_from(direct).unwrap(), values);
    assert!(direct > 0 && !here.is_empty());
    gateway.stop().await;
    upper.stop().await;
}

async fn bounded_by_number() {
    let place = scratch("outbox-number");
    let mut upper = Upper::away(&place, Way::Http);
    let mut config = config(CseType::Middle, "/id-mn", "cse-mn", None);
    config.cse.limits.messages_waiting_total = 20;
    let gateway = Gateway::start(config, upper.above(devices::Delivery::Durable(KEEP))).await;
    let mut devices = Group::new(&gateway, 30);
    devices.join(1, 1_500);
    let beyond = || gateway.cse.engine().counters().readings_backlogged;
    devices.report_until("the outbox is full", || beyond() > 20).await;
    assert!(gateway.cse.engine().messages_waiting() <= 100, "memory is bounded");
    assert_eq!(gateway.devices.counters().reports_not_stored, 0);
    upper.start().await;
    let values = answered(devices.runs).await;
    gateway.emptied().await;
    wait_until("no backlog is left", || gateway.cse.engine().backlogs() == 0).await;
    let (here, there) = (names(&gateway.cse, "cse-mn").await, upper.names().await);
    assert_eq!(set(&there), set(&here));
    assert_eq!(there.len(), values);
    in_order(&there);
    gateway.stop().await;
    upper.stop().await;
}

async fn bounded_by_age() {
    let place = scratch("outbox-age");
    let mut upper = Upper::away(&place, Way::Http);
    let config = config(CseType::Middle, "/id-mn", "cse-mn", None);
    let keep = Duration::from_millis(700);
    let gateway = Gateway::start(config, upper.above(devices::Delivery::Durable(keep))).await;
    let values = answered(vec![run(plan(1, 50), gateway.to(), 500)]).await;
    let aged = || gateway.cse.engine().counters().messages_aged;
    wait_until("all are too old", || aged() == values as u64).await;
    upper.start().await;
    gateway.emptied().await;
    assert_eq!(upper.names().await, [""; 0]);
    assert_eq!(names(&gateway.cse, "cse-mn").await.len(), values, "they are still here");
    gateway.stop().await;
    upper.stop().await;
}

/// Copies the database as it lies on disk while it is written, cuts the log, and opens the copy:
/// it begins, has no row that is half of one, and its messages are those of its readings.
async fn cut() {
    let place = scratch("outbox-cut");
    let upper = Upper::away(&place, Way::Http);
    let path = place.join("mn.db");
    let config = config(CseType::Middle, "/id-mn", "cse-mn", Some(path.clone()));
    let above = upper.above(devices::Delivery::Durable(KEEP));
    let gateway = Gateway::start(config.clone(), above).await;
    let mut devices = Group::new(&gateway, 20);
    devices.join(1, 1_000);
    let readings = || gateway.devices.counters().readings;
    devices.report_until("there are readings", || readings() > 30).await;
    answered(devices.runs).await;
    let log = std::fs::read(place.join("mn.db-wal")).unwrap();
    let file = std::fs::read(&path).unwrap();
    gateway.stop().await;
    let mut seen = BTreeSet::new();
    for part in 0..=12 {
        let copy = place.join(format!("copy-{part}.db"));
        std::fs::write(&copy, &file).unwrap();
        // Not at the bounds of pages.
        let length = (log.len() * part / 12).saturating_sub(part * 7);
        std::fs::write(copy.with_extension("db-wal"), &log[..length]).unwrap();
        let copied = cse::CseServerConfig { store: Some(copy), ..config.clone() };
        let running = cse::start(copied).await.unwrap();
        assert_eq!(running.unreadable(), [], "{length} of {} octets", log.len());
        let readings = names(&running, "cse-mn").await.len();
        // A message for each instance, beside those for the device and its places.
        let mut resources = 0;
        for kind in ["2", "3", "4"] {
            resources += named(&running, "cse-mn", kind).await.len();
        }
        assert_eq!(running.engine().messages_waiting(), resources, "{length} octets");
        seen.insert(readings);
        running.stop().await;
    }
    assert!(seen.len() > 5, "{seen:?}");
}

/// A file system of two megabytes; mounting one needs root.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let path = scratch("outbox-disk");
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m", "gatewright-test"])
            .arg(&path)
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success()).then_some(Self(path))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

async fn full(disk: &Path) {
    let place = scratch("outbox-full");
    let mut upper = Upper::away(&place, Way::Http);
    let ballast = disk.join("ballast");
    std::fs::write(&ballast, vec![0; 1_400_000]).unwrap();
    let config = config(CseType::Middle, "/id-mn", "cse-mn", Some(disk.join("mn.db")));
    let gateway = Gateway::start(config, upper.above(devices::Delivery::Durable(KEEP))).await;
    let mut devices = Group::new(&gateway, 20);
    devices.join(3, 3_000);
    let refused = || gateway.devices.counters().reports_not_stored;
    devices.report_until("the disk is full", || refused() > 3).await;
    let kept = gateway.cse.engine().resources();
    assert!(kept > 20, "it keeps what it has: {kept} resources");
    // Room comes back, and with it the devices' readings.
    std::fs::remove_file(ballast).unwrap();
    upper.start().await;
    let values = answered(devices.runs).await;
    gateway.emptied().await;
    let (here, there) = (names(&gateway.cse, "cse-mn").await, upper.names().await);
    assert_eq!(set(&there), set(&here));
    assert_eq!(there.len(), values);
    gateway.stop().await;
    upper.stop().await;
}
