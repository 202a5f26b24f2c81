//! Tests of the device listeners: locks of a report, delivery by a device's kind.

use super::associating::IN_WORK_MAX;
use super::*;
use gatewright_health::specialisation::{ACTIVITY, SCALE};
use std::sync::atomic::Ordering;

/// What all devices share is locked when they come, are asked something and go: not by a report,
/// however many of them there are.
#[tokio::test]
async fn a_report_takes_no_lock_that_all_devices_share() {
    use crate::agents::{self, Run};
    use gatewright_health::simulate::SimulationPlan;
    use gatewright_onem2m::CseType;
    let machine = gatewright_onem2m::CseConfig::new(CseType::Middle, "/id-mn", "cse-mn");
    let cse = crate::cse::start(crate::cse::CseServerConfig::new(machine)).await.unwrap();
    let config = DevicesConfig::new(([127, 0, 0, 1], 0).into(), "cse-mn");
    let running = start(config, cse.engine().clone()).await.unwrap();
    let shared = Arc::clone(&running.context.shared);
    let (period, measuring) = (Duration::from_millis(5), Duration::from_mins(1));
    let plan = SimulationPlan { period, ..SimulationPlan::new(&SCALE, SystemId([1; 8]), 1) };
    let run = Run { plan, to: running.address(), measuring, patience: measuring };
    let device = tokio::spawn(agents::run(run));
    let reports = || shared.shards.counters().reports;
    let reported = async |least| {
        while reports() < least {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    // It has associated, and has been asked what it is.
    reported(20).await;
    let before = shared.locked.load(Ordering::Relaxed);
    reported(60).await;
    assert_eq!(shared.locked.load(Ordering::Relaxed) - before, 0);
    device.abort();
    drop(shared);
    running.stop().await;
    cse.stop().await;
}

/// A device that has to wait for its turn associates when that comes, once.
#[tokio::test]
async fn an_association_waits_while_enough_are_in_work() {
    use crate::agents::{self, Run};
    use gatewright_health::simulate::SimulationPlan;
    use gatewright_onem2m::CseType;
    let machine = gatewright_onem2m::CseConfig::new(CseType::Middle, "/id-mn", "cse-mn");
    let cse = crate::cse::start(crate::cse::CseServerConfig::new(machine)).await.unwrap();
    let config = DevicesConfig::new(([127, 0, 0, 1], 0).into(), "cse-mn");
    let running = start(config, cse.engine().clone()).await.unwrap();
    let turns = Arc::clone(&running.context.shared.turns);
    let address = running.address().ip();
    let taken: Vec<_> = (0..IN_WORK_MAX).map(|_| turns.take(address).unwrap()).collect();
    let (period, patience) = (Duration::from_millis(5), Duration::from_mins(1));
    let plan = SimulationPlan { period, ..SimulationPlan::new(&SCALE, SystemId([1; 8]), 1) };
    let run = Run { plan, to: running.address(), measuring: period, patience };
    let device = tokio::spawn(agents::run(run));
    while running.counters().associations_waited == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(running.counters().associations, 0);
    drop(taken);
    assert!(device.await.unwrap().is_answered());
    let counters = running.counters();
    assert_eq!((counters.associations, counters.associations_waited), (1, 1));
    running.stop().await;
    cse.stop().await;
}

/// A kind that is not told yet may be one whose readings are stored here: they are.
#[test]
fn what_a_device_may_be_decides_until_it_has_said_it() {
    let keep = Delivery::Durable(Duration::from_hours(1));
    let above = Above {
        url: String::new(),
        base: String::new(),
        beyond: false,
        delivery: Delivery::Direct,
        kinds: BTreeMap::from([("scale".to_owned(), keep)]),
        coap: None,
    };
    let of = |kind: &gatewright_health::specialisation::Specialisation| {
        let configuration = kind.configuration().unwrap();
        Device::new(&Mapping::default(), "cse", SystemId([1; 8]), 1, &configuration)
    };
    assert_eq!(above.delivery(&of(&SCALE)), keep);
    // An extended configuration: any kind has it.
    let mut unknown = of(&ACTIVITY);
    assert_eq!(above.delivery(&unknown), keep);
    unknown.set_kind("activity");
    assert_eq!(above.delivery(&unknown), Delivery::Direct);
    let above = Above { kinds: BTreeMap::new(), ..above };
    assert_eq!(above.delivery(&of(&ACTIVITY)), Delivery::Direct);
}

/// Somebody may set policies on a device's resources that do not name it: the next start lets it in
/// again, and keeps those policies.
#[tokio::test]
async fn a_device_that_a_policy_leaves_out_is_let_in_by_the_next_start() {
    use crate::agents::{self, Run};
    use gatewright_health::simulate::SimulationPlan;
    use gatewright_onem2m::{CseType, Operation, Request, ResourceType, Status};
    let mut machine = gatewright_onem2m::CseConfig::new(CseType::Middle, "/id-mn", "cse-mn");
    machine.admin = Some("CAdmin".to_owned());
    let cse = crate::cse::start(crate::cse::CseServerConfig::new(machine)).await.unwrap();
    let engine = cse.engine();
    let config = DevicesConfig::new(([127, 0, 0, 1], 0).into(), "cse-mn");
    let (period, measuring) = (Duration::from_millis(5), Duration::from_millis(20));
    let run = async |running: &RunningDevices| {
        let plan = SimulationPlan { period, ..SimulationPlan::new(&SCALE, SystemId([1; 8]), 1) };
        let patience = Duration::from_secs(2);
        agents::run(Run { plan, to: running.address(), measuring, patience }).await;
        running.counters().readings
    };
    let running = start(config.clone(), Arc::clone(engine)).await.unwrap();
    assert!(run(&running).await > 0);
    running.stop().await;
    let policy = r#"{"m2m:acp":{"rn":"p","pv":{"acr":[{"acor":["CNurse"],"acop":2}]},
        "pvs":{"acr":[{"acor":["CAdmin"],"acop":63}]}}}"#;
    let entity = "cse-mn/phd-0101010101010101";
    let ask = async |request: Request| engine.ask(request).await.unwrap().status;
    let made = Request::new(Operation::Create, "cse-mn", "CAdmin", "1");
    assert_eq!(
        ask(made.creating(ResourceType::AccessControlPolicy, policy)).await,
        Status::Created
    );
    for (id, to, tag) in [("2", entity.to_owned(), "ae"), ("3", format!("{entity}/weight"), "cnt")]
    {
        let content = format!(r#"{{"m2m:{tag}":{{"acpi":["cse-mn/p"]}}}}"#);
        let update = Request::new(Operation::Update, to, "CAdmin", id).with_content(content);
        assert_eq!(ask(update).await, Status::Updated);
    }
    let running = start(config, Arc::clone(engine)).await.unwrap();
    assert!(run(&running).await > 0);
    let expected = ["cse-mn/p".to_owned(), format!("{entity}/device-itself")];
    assert_eq!(engine.policies_of(&format!("{entity}/weight")), expected);
    running.stop().await;
    cse.stop().await;
}

/// A device is silent when nothing came for as long as its kind's rule says, also after a restart,
/// and no longer when it reports or its AE is deleted.
#[tokio::test]
async fn a_device_that_does_not_report_is_silent() {
    use crate::agents::{self, Run};
    use gatewright_health::simulate::SimulationPlan;
    use gatewright_onem2m::{CseType, Status};
    let mut machine = gatewright_onem2m::CseConfig::new(CseType::Middle, "/id-mn", "cse-mn");
    machine.admin = Some("CAdmin".to_owned());
    let cse = crate::cse::start(crate::cse::CseServerConfig::new(machine)).await.unwrap();
    let mut config = DevicesConfig::new(([127, 0, 0, 1], 0).into(), "cse-mn");
    let rule = |after, kinds: &[&str]| SilentAfter {
        after,
        kinds: kinds.iter().map(|kind| (*kind).to_owned()).collect(),
    };
    let never = Duration::from_hours(1);
    config.silent = vec![rule(never, &["oximeter"]), rule(Duration::ZERO, &["scale"])];
    let running = start(config.clone(), cse.engine().clone()).await.unwrap();
    let (period, measuring) = (Duration::from_millis(5), Duration::from_millis(20));
    for (kind, id) in [(&SCALE, 1), (&gatewright_health::specialisation::OXIMETER, 2)] {
        let plan = SimulationPlan { period, ..SimulationPlan::new(kind, SystemId([id; 8]), 1) };
        let patience = Duration::from_mins(1);
        agents::run(Run { plan, to: running.address(), measuring, patience }).await;
    }
    let silent = |running: &RunningDevices| -> Vec<_> {
        running.silent().iter().map(|device| (device.system_id, device.kind)).collect()
    };
    let scale = SystemId([1; 8]);
    assert_eq!(silent(&running), [(scale, "scale")]);
    assert!(!running.is_unheard(scale));
    running.stop().await;

    // After a restart its time begins anew: the AE tells that there is such a device. What was silent
    // before still is.
    let running = start(config, cse.engine().clone()).await.unwrap();
    assert_eq!(silent(&running), [(scale, "scale")]);
    let oximeter = SystemId([2; 8]);
    assert!(running.is_unheard(scale) && running.is_unheard(oximeter));
    let plan = SimulationPlan { period, ..SimulationPlan::new(&SCALE, scale, 1) };
    let patience = Duration::from_mins(1);
    agents::run(Run { plan, to: running.address(), measuring, patience }).await;
    assert!(!running.is_unheard(scale) && running.is_unheard(oximeter));
    let to = "cse-mn/phd-0101010101010101";
    let delete =
        gatewright_onem2m::Request::new(gatewright_onem2m::Operation::Delete, to, "CAdmin", "1");
    assert_eq!(cse.engine().ask(delete).await.unwrap().status, Status::Deleted);
    assert_eq!((silent(&running), running.is_unheard(scale)), (Vec::new(), false));
    running.stop().await;
    cse.stop().await;
}

/// A report of which the CSE refuses one reading is rejected and comes again, under other numbers:
/// its other readings are not stored until all of them are.
#[tokio::test]
async fn a_report_refused_in_part_is_not_stored_in_part() {
    use crate::agents::{self, Run};
    use gatewright_health::simulate::SimulationPlan;
    use gatewright_health::specialisation::OXIMETER;
    use gatewright_onem2m::{CseType, Operation, Request, Status};
    let mut machine = gatewright_onem2m::CseConfig::new(CseType::Middle, "/id-mn", "cse-mn");
    machine.admin = Some("CAdmin".to_owned());
    let cse = crate::cse::start(crate::cse::CseServerConfig::new(machine)).await.unwrap();
    let engine = cse.engine();
    let mut config = DevicesConfig::new(([127, 0, 0, 1], 0).into(), "cse-mn");
    config.operators = vec!["CNurse".to_owned()];
    let running = start(config, Arc::clone(engine)).await.unwrap();
    let run = async |seed, patience| {
        let (period, measuring) = (Duration::from_millis(100), Duration::from_millis(700));
        let plan = SimulationPlan::new(&OXIMETER, SystemId([1; 8]), seed);
        // Each run is a day later.
        let plan = SimulationPlan { period, clock: plan.clock + seed * 8_640_000, ..plan };
        let patience = Duration::from_secs(patience);
        agents::run(Run { plan, to: running.address(), measuring, patience }).await;
    };
    let count = async |container: &str| {
        let to = format!("cse-mn/phd-0101010101010101/{container}");
        let retrieve = Request::new(Operation::Retrieve, to, "CAdmin", "count");
        let content = engine.ask(retrieve).await.unwrap().content.unwrap();
        let content: serde_json::Value = serde_json::from_str(&content).unwrap();
        content.pointer("/m2m:cnt/cni").unwrap().as_u64().unwrap()
    };
    run(1, 5).await;
    let before = count("pulse-rate").await;
    assert!(before > 0 && count("spo2").await == before);

    let bar = async |id: &str, policy: &str| {
        let content = format!(r#"{{"m2m:cnt":{{"acpi":["{policy}"]}}}}"#);
        let to = "cse-mn/phd-0101010101010101/spo2";
        let update = Request::new(Operation::Update, to, "CAdmin", id).with_content(content);
        assert_eq!(engine.ask(update).await.unwrap().status, Status::Updated);
    };
    bar("1", "cse-mn/operators").await;
    run(2, 2).await;
    assert!(running.counters().readings_refused > 0);
    assert_eq!((count("spo2").await, count("pulse-rate").await), (before, before));

    bar("2", "cse-mn/phd-0101010101010101/device-itself").await;
    run(3, 5).await;
    let after = count("pulse-rate").await;
    assert!(after > before && count("spo2").await == after);
    running.stop().await;
    cse.stop().await;
}
