use super::*;
use crate::engine::Engine;
use crate::services::{Services, parts};
use gatewright_config::Config;
use gatewright_diagnostic::SourceId;
use gatewright_onem2m::{Operation, Request, ResourceType, Response, Status};
use gatewright_part::Part;
use gatewright_testbed::free_port;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// The disk's mark raises; a quarter more must be free before the alarm may be cleared.
#[test]
fn a_short_disk_and_a_filling_outbox_have_two_thresholds() {
    let room = |free| {
        let mut space = DiskSpace::default();
        (space.free, space.low, space.is_low) = (Some(free * MIB), 100 * MIB, free < 100);
        disk(space).map(|seen| seen.is_raising)
    };
    assert_eq!([99, 100, 124, 125].map(room), [Some(true), Some(false), Some(false), None]);
    // And so does the limit on the database, though the disk has room.
    let left = |kib: u64| {
        let mut space = DiskSpace::default();
        (space.rows_free, space.rows_low) = (Some(kib * 1024), 128 * 1024);
        short(space).map(|seen| seen.is_raising)
    };
    assert_eq!(
        [0, 127, 128, 159, 160].map(left),
        [Some(true), Some(true), Some(false), Some(false), None]
    );
    let waiting = |waiting| outbox(((waiting, 1_000), 0), 80).map(|seen| seen.is_raising);
    assert_eq!(
        [800, 799, 401, 400, 0].map(waiting),
        [Some(true), Some(false), Some(false), None, None]
    );
    // Readings beyond the outbox: it was full a moment ago.
    assert_eq!(outbox(((10, 1_000), 1), 80).map(|seen| seen.is_raising), Some(true));
}

/// A gateway with operators and a certificate.
struct Gateway {
    folder: PathBuf,
    config: Config,
}

impl Gateway {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("alarms-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let [https, devices] = [(); 2].map(|()| free_port());
        let text = format!(
            "[cse]\nbase = \"gw\"\nid = \"/gw\"\nstore = \"a.db\"\nadmin = \"CAdmin\"\n\
             [cse.tls]\nhttps = \"127.0.0.1:{https}\"\ncertificate = \"a.pem\"\nkey = \"a.key\"\n\
             authorities = \"ca.pem\"\n\
             [devices]\nlisten = \"127.0.0.1:{devices}\"\noperators = [\"CNurse\"]\n"
        );
        let parsed = gatewright_config::parse(SourceId::default(), &text);
        let config = parsed.config.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics));
        Self { config: config.with_files_in(&folder, None), folder }
    }

    /// A certificate that ends in so many days; its authority ends much later.
    fn certify(&self, days: u32) {
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let write =
            |name: &str, text: String| std::fs::write(self.folder.join(name), text).unwrap();
        write("ca.pem", authority.self_signed(&key).unwrap().pem());
        let issuer = Issuer::new(authority, key);
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.not_after = (SystemTime::now() + DAY * days + DAY / 2).into();
        let key = KeyPair::generate().unwrap();
        write("a.pem", params.signed_by(&key, &issuer).unwrap().pem());
        write("a.key", key.serialize_pem());
    }

    fn start(&self) -> (Arc<Services>, Vec<Arc<dyn Part>>) {
        let services = Services::start(&self.config).unwrap().unwrap();
        (Arc::clone(&services), parts(Some(services)))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn stop((services, parts): (Arc<Services>, Vec<Arc<dyn Part>>)) {
    drop(services);
    for part in parts {
        part.stop();
    }
}

fn ask(services: &Services, request: Request) -> Response {
    let engine: &Arc<Engine> = services.cse().engine();
    let asked = engine.receive(request);
    services.runtime.block_on(asked).unwrap()
}

fn kinds(events: &[LogEvent]) -> Vec<String> {
    let kind = |event: &LogEvent| format!("{} {} {}", event.level, event.kind, event.fields[0].1);
    events.iter().map(kind).collect()
}

/// The content of the latest instance, as the operator sees it.
fn latest((services, parts): &(Arc<Services>, Vec<Arc<dyn Part>>)) -> Option<Value> {
    let id = format!("la-{:?}", Instant::now());
    let answer = ask(services, Request::new(Operation::Retrieve, "gw/alarms/la", "CNurse", id));
    let events = parts[0].new_events();
    assert!(events.is_empty(), "{events:?}");
    let content: Value = serde_json::from_str(&answer.content?).unwrap();
    Some(content["m2m:cin"]["con"].clone())
}

/// The first latest instance with this state.
fn until_latest(gateway: &(Arc<Services>, Vec<Arc<dyn Part>>), state: &str) -> Value {
    let patience = Instant::now();
    loop {
        if let Some(found) = latest(gateway).filter(|found| found["state"] == state) {
            return found;
        }
        assert!(patience.elapsed() < Duration::from_secs(30), "no {state} instance");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_operator_reads_and_subscribes_to_alarms_which_restarts_do_not_repeat() {
    let gateway = Gateway::new("read");
    gateway.certify(20);
    let first = gateway.start();
    assert_eq!(kinds(&first.1[0].new_events()), ["warning certificate-ending raised"]);
    let raised = until_latest(&first, "raised");
    assert_eq!(
        (&raised["name"], &raised["level"]),
        (&"certificate-ending".into(), &"warning".into())
    );
    let file = gateway.folder.join("a.pem").display().to_string();
    assert_eq!(raised["subject"], file);
    assert!(raised["detail"].as_str().unwrap().contains("ends in 20 days"), "{raised}");
    assert_eq!(raised["raised"].as_array().unwrap().len(), 1);
    // The metric has it, and those that are not raised.
    let alarms = first.1[0].tell().alarms;
    let of = |name| alarms.iter().find(|alarm| alarm.name == name).map(|alarm| alarm.raised);
    assert_eq!((of("certificate-ending"), of("disk-short").is_some()), (Some(1), true));
    // What it is about is a member of its own, not a part of a text.
    let ending = alarms.iter().find(|alarm| alarm.name == "certificate-ending").unwrap();
    let subjects: Vec<_> = ending.subjects.iter().map(|it| it.subject.as_str()).collect();
    assert_eq!(subjects, [file.as_str()]);
    assert_eq!(Value::from(ending.subjects[0].since.as_str()), raised["since"]);
    let subscription = r#"{"m2m:sub":{"nu":["CNurse"],"enc":{"net":[3]}}}"#;
    let subscribe = Request::new(Operation::Create, "gw/alarms", "CNurse", "subscribe")
        .creating(ResourceType::Subscription, subscription);
    assert_eq!(ask(&first.0, subscribe).status, Status::Created);
    // Operators read; who is none does not.
    let forge = Request::new(Operation::Create, "gw/alarms", "CNurse", "forge")
        .creating(ResourceType::ContentInstance, r#"{"m2m:cin":{"con":"x"}}"#);
    assert_eq!(ask(&first.0, forge).status, Status::OriginatorHasNoPrivilege);
    let other = Request::new(Operation::Retrieve, "gw/alarms/la", "COther", "other");
    assert_eq!(ask(&first.0, other).status, Status::OriginatorHasNoPrivilege);
    stop(first);

    let second = gateway.start();
    assert!(second.1[0].new_events().is_empty());
    assert_eq!(latest(&second).unwrap(), raised);
    stop(second);

    // More urgent, with the same beginning; then renewed.
    gateway.certify(6);
    let third = gateway.start();
    assert_eq!(kinds(&third.1[0].new_events()), ["error certificate-ending raised"]);
    stop(third);
    gateway.certify(60);
    let fourth = gateway.start();
    assert_eq!(kinds(&fourth.1[0].new_events()), ["info certificate-ending cleared"]);
    let cleared = until_latest(&fourth, "cleared");
    assert_eq!((&cleared["since"], &cleared["raised"]), (&raised["since"], &Value::Array(vec![])));
    stop(fourth);
}

/// A resource of that name from before is not written into, and its AE is named; the log has the
/// alarm all the same.
#[test]
fn a_resource_of_somebody_else_with_the_name_is_left_alone() {
    let gateway = Gateway::new("foreign");
    gateway.certify(60);
    let before = gateway.start();
    let delete = Request::new(Operation::Delete, "gw/alarms", "CAdmin", "delete");
    assert_eq!(ask(&before.0, delete).status, Status::Deleted);
    let entity = |name: &str, from: &str| {
        let content = json!({ "m2m:ae": { "rn": name, "api": "Nx", "rr": false, "srv": ["4"] } });
        Request::new(Operation::Create, "gw", from, format!("{name}-{from}"))
            .creating(ResourceType::ApplicationEntity, content.to_string())
    };
    // From outside, neither its name nor a device's name or AE-ID is to be had.
    for (name, from, refused) in [
        ("alarms", "Cbob", Status::Conflict),
        ("phd-0247000300000001", "Cbob", Status::Conflict),
        ("bob", "Cphd-0247000300000001", Status::OriginatorHasNoPrivilege),
    ] {
        assert_eq!(ask(&before.0, entity(name, from)).status, refused, "{name} {from}");
    }
    assert_eq!(ask(&before.0, entity("bob", "Cbob")).status, Status::Created);
    // As an earlier version left it.
    let own = before.0.cse().engine().ask(entity("alarms", "Csquatter"));
    assert_eq!(before.0.runtime.block_on(own).unwrap().status, Status::Created);
    stop(before);
    gateway.certify(20);
    let after = gateway.start();
    assert_eq!(after.1[0].new_events().len(), 1);
    let words = after.1[0].tell().words;
    let told = words.iter().find(|(name, _)| *name == "alarms").map(|(_, told)| told.as_str());
    assert!(told.is_some_and(|told| told.contains("the AE Csquatter")), "{words:?}");
    let id = "look";
    let look = Request::new(Operation::Retrieve, "gw/alarms/la", "CAdmin", id);
    assert_eq!(ask(&after.0, look).status, Status::NotFound);
    stop(after);
    assert!(Path::new(&gateway.folder).exists());
}

/// What is lost with the process is refused, and an operator is told why.
#[test]
fn a_database_that_is_removed_raises_an_alarm_and_refuses_what_would_be_lost() {
    let gateway = Gateway::new("removed");
    gateway.certify(60);
    let running = gateway.start();
    assert!(running.1[0].new_events().is_empty());
    let make = |id: &str| {
        let request = Request::new(Operation::Create, "gw", "CAdmin", id)
            .creating(ResourceType::Container, "{\"m2m:cnt\":{}}");
        ask(&running.0, request).status
    };
    assert_eq!(make("1"), Status::Created);
    let store = gateway.folder.join("a.db");
    std::fs::rename(&store, gateway.folder.join("b.db")).unwrap();
    assert_eq!(make("2"), Status::InternalServerError);
    let events = running.1[0].new_events();
    let told = kinds(&events);
    assert!(told.contains(&"error database-missing raised".to_owned()), "{told:?}");
    assert!(events.iter().any(|event| event.text.contains("a.db was removed")), "{events:?}");
    std::fs::rename(gateway.folder.join("b.db"), &store).unwrap();
    // What was made before a failure was known is refused with it: the alarm is stored, too.
    let patience = Instant::now();
    while make(&format!("3-{:?}", Instant::now())) != Status::Created {
        assert!(patience.elapsed() < Duration::from_secs(30), "not stored again");
    }
    let told = kinds(&running.1[0].new_events());
    assert!(told.contains(&"info database-missing cleared".to_owned()), "{told:?}");
    stop(running);
}
