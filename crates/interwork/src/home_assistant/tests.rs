//! What is announced, against the rules of Home Assistant's documentation.

use super::*;
use std::collections::BTreeSet;

const OXIMETER: SystemId = SystemId([2, 0x47, 0, 1, 0, 0, 0, 1]);

fn announcer() -> Announcer {
    let settings = AnnouncerSettings {
        prefix: "homeassistant".to_owned(),
        topic: "gatewright".to_owned(),
        version: "1".to_owned(),
    };
    Announcer::new(settings, &Mapping::default())
}

/// An announcer that has announced the association of the device.
fn associated() -> Announcer {
    let mut announcer = announcer();
    announcer.associated(OXIMETER, "pulse-oximeter", true);
    assert_eq!(outputs(&mut announcer).len(), 2);
    announcer
}

fn reading(container: &str, content: Value) -> DeliveredReading {
    let (system_id, kind) = (OXIMETER, "pulse-oximeter");
    DeliveredReading { system_id, kind, container: container.to_owned(), content }
}

fn outputs(announcer: &mut Announcer) -> Vec<Publication> {
    std::iter::from_fn(|| announcer.poll_output()).collect()
}

/// The document of an announcement, whose topic has the form that the documentation gives.
fn document(publication: &Publication) -> Value {
    assert!(publication.retain, "announcements are retained: {publication:?}");
    let levels: Vec<_> = publication.topic.split('/').collect();
    let [prefix, component, object, "config"] = levels[..] else { panic!("{publication:?}") };
    assert!(prefix == "homeassistant" && ["sensor", "binary_sensor"].contains(&component));
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || it == b'_' || it == b'-';
    assert!(object.bytes().all(is_plain), "{object}");
    let document: Value = serde_json::from_str(&publication.payload).unwrap();
    assert_eq!(document["unique_id"], object);
    for needed in ["name", "state_topic", "availability_topic"] {
        assert!(document[needed].as_str().is_some_and(|it| !it.is_empty()), "{needed}: {document}");
    }
    assert!(document["device"]["identifiers"][0].is_string(), "{document}");
    document
}

#[test]
fn a_quantity_is_announced_once_and_then_only_its_states_are_published() {
    let mut announcer = announcer();
    announcer.associated(OXIMETER, "pulse-oximeter", true);
    let first = outputs(&mut announcer);
    assert_eq!(first.len(), 2);
    assert_eq!(document(&first[0])["device_class"], "connectivity");
    assert_eq!((first[1].payload.as_str(), first[1].retain), ("ON", true));
    assert_eq!(document(&first[0])["state_topic"], first[1].topic.as_str());
    let content = json!({ "value": "97", "unit": "%", "name": "MDC_PULS_OXIM_SAT_O2" });
    announcer.heard(&reading("spo2", content.clone()));
    let second = outputs(&mut announcer);
    let announced = document(&second[0]);
    assert_eq!(announced["name"], "Oxygen saturation");
    assert_eq!(announced["unit_of_measurement"], "%");
    assert_eq!(announced["state_class"], "measurement");
    assert_eq!(announced.get("device_class"), None);
    assert_eq!(announced["state_topic"], second[1].topic.as_str());
    assert_eq!((second[1].payload.as_str(), second[1].retain), ("97", false));
    assert!(!second[0].payload.contains("97"), "no value is in an announcement");
    announcer.heard(&reading("spo2", content));
    assert_eq!(outputs(&mut announcer).len(), 1);
    announcer.associated(OXIMETER, "pulse-oximeter", false);
    assert_eq!(outputs(&mut announcer)[0].payload, "OFF");
    // After the broker was away, everything is announced again, and no old value is published.
    announcer.connected();
    let again = outputs(&mut announcer);
    let topics: BTreeSet<_> = again.iter().map(|it| it.topic.as_str()).collect();
    assert!(again.iter().all(|it| it.retain) && topics.contains("gatewright/status"), "{topics:?}");
    assert!(topics.contains(second[0].topic.as_str()), "{topics:?}");
}

/// A reload may want announcements of devices that have associated before.
#[test]
fn a_reading_of_a_device_without_a_known_association_announces_the_association() {
    let mut announcer = announcer();
    announcer.heard(&reading("spo2", json!({ "value": "97" })));
    let all = outputs(&mut announcer);
    assert_eq!(document(&all[0])["device_class"], "connectivity");
    assert_eq!(document(&all[0])["state_topic"], all[1].topic.as_str());
    assert_eq!(all[1].payload, "ON");
    assert_eq!(document(&all[2])["state_topic"], all[3].topic.as_str());
    announcer.associated(OXIMETER, "pulse-oximeter", false);
    assert_eq!(outputs(&mut announcer)[0].payload, "OFF");
}

/// "Device class" of the documentation of sensors: which units each allows.
#[test]
fn a_device_class_has_one_of_its_units() {
    let allowed: [(&str, &[&str]); 6] = [
        ("temperature", &["°C", "°F", "K"]),
        ("pressure", &["cbar", "bar", "hPa", "mmHg", "inHg", "kPa", "mbar", "Pa", "psi"]),
        ("weight", &["kg", "g", "mg", "µg", "oz", "lb", "st"]),
        ("distance", &["km", "m", "cm", "mm", "mi", "nmi", "yd", "in", "ft"]),
        ("duration", &["d", "h", "min", "s", "ms", "µs"]),
        ("blood_glucose_concentration", &["mg/dL", "mmol/L"]),
    ];
    for (_, unit, class) in UNITS {
        let Some(class) = class else { continue };
        let (_, units) = allowed.iter().find(|(known, _)| known == class).unwrap();
        assert!(units.contains(unit), "{class} allows no {unit}");
    }
    let class = |name, unit| described("c", Some(name), Some(unit), true).1.class;
    assert_eq!(class("MDC_CONC_GLU_ISF", "mg/dL"), Some("blood_glucose_concentration"));
    assert_eq!(class("MDC_CONC_CHOL", "mg/dL"), None);
}

#[test]
fn the_values_of_a_compound_are_entities_of_their_own() {
    let mut announcer = associated();
    for (name, value) in [("SYS", "120"), ("DIA", "80"), ("MEAN", "93")] {
        let name = format!("MDC_PRESS_BLD_NONINV_{name}");
        let content = json!({ "value": value, "unit": "mm[Hg]", "name": name });
        announcer.heard(&reading("blood-pressure", content));
    }
    let all = outputs(&mut announcer);
    let documents: Vec<_> = all.iter().filter(|it| it.retain).map(document).collect();
    let names: BTreeSet<_> = documents.iter().map(|it| it["unique_id"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 3);
    assert!(documents.iter().all(|it| it["device_class"] == "pressure"), "{documents:?}");
    assert!(documents.iter().all(|it| it["unit_of_measurement"] == "mmHg"), "{documents:?}");
}

#[test]
fn what_is_no_state_is_counted_and_nothing_is_without_bound() {
    let mut announcer = associated();
    for value in [json!(null), json!({}), json!([1]), json!(""), json!("a\nb")] {
        announcer.heard(&reading("x", json!({ "value": value })));
    }
    assert_eq!((announcer.counters.unstated, outputs(&mut announcer).len()), (5, 0));
    announcer.heard(&reading("x", json!({ "value": "1" })));
    announcer.heard(&reading("x", json!({ "value": "NaN" })));
    assert_eq!(announcer.counters.unstated, 6, "no number of an entity with numbers");
    announcer.heard(&reading("text", json!({ "value": "ä".repeat(400), "unit": "kg" })));
    let all = outputs(&mut announcer);
    assert_eq!(all[3].payload.chars().count(), STATE_MAX);
    assert_eq!(document(&all[2]).get("unit_of_measurement"), None, "a text has no unit");
    for number in 0..100 {
        announcer.heard(&reading(&format!("<script>/+#{number}"), json!({ "value": "1" })));
    }
    let all = outputs(&mut announcer);
    assert!(all.iter().all(|it| !it.topic.contains(['+', '#', '<'])));
    assert_eq!(announcer.counters.full, 100 - (ENTITIES_MAX as u64 - 2));
    for number in 0..=DEVICES_MAX as u64 {
        announcer.associated(SystemId(number.to_be_bytes()), "pulse-oximeter", true);
    }
    assert_eq!(announcer.devices.len(), DEVICES_MAX);
    for _ in 0..2 * WAITING_MAX {
        announcer.heard(&reading("x", json!({ "value": "1" })));
    }
    assert!(announcer.counters.dropped > 0);
    assert!(announcer.outputs.len() <= WAITING_MAX + DEVICES_MAX * (ENTITIES_MAX + 2));
}

#[test]
fn retained_publications_that_change_while_the_broker_acknowledges_nothing_replace_each_other() {
    let mut announcer = associated();
    for round in 0..2 * WAITING_MAX {
        let unit = if round % 2 == 0 { "kg" } else { "[lb_av]" };
        announcer.heard(&reading("weight", json!({ "value": "70", "unit": unit })));
        announcer.associated(OXIMETER, "weighing-scale", round % 2 == 0);
    }
    assert!(announcer.outputs.len() <= WAITING_MAX + 3, "{}", announcer.outputs.len());
    assert!(announcer.counters.dropped > 0);
    let all = outputs(&mut announcer);
    let of = |end: &str| all.iter().rev().find(|it| it.retain && it.topic.ends_with(end)).unwrap();
    assert_eq!(document(of("weight/config"))["unit_of_measurement"], "lb");
    assert_eq!(of("/associated").payload, "OFF");
}
