//! Readings as a CSE may have them, read back for exports.

use gatewright_health::code::SystemId;
use gatewright_interwork::Mapping;
use gatewright_interwork::device::ObjectContainer;
use gatewright_interwork::fhir::{self, Context, Description};
use gatewright_interwork::stored::{self, Stored};
use serde_json::Value;

/// Lines of text: an object's labels, parted by spaces; then readings, each a name, a space and its
/// content.
pub fn stored(octets: &[u8]) {
    let text = String::from_utf8_lossy(octets);
    let mapping = Mapping::default();
    let mut lines = text.lines();
    let labels: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let id = stored::system_id(&labels).unwrap_or(SystemId([0; 8]));
    let _kind = stored::kind(&labels);
    let Some(place) = ObjectContainer::stored(&mapping, "place", "cse-mn/device/place", &labels)
    else {
        return;
    };
    let mut readings = Vec::new();
    for line in lines {
        let (name, content) = line.split_once(' ').unwrap_or((line, "null"));
        let content = serde_json::from_str(content).unwrap_or_else(|_| Value::from(content));
        is_json(&fhir::described(id, &Description::stored(&mapping, &content)).resource);
        readings.extend(Stored::read(&mapping, &place, name, &content));
    }
    let all = readings.len();
    let groups = stored::together(&place, readings);
    assert_eq!(groups.iter().map(Vec::len).sum::<usize>(), all, "a reading is lost");
    for group in groups {
        let Some(first) = group.first() else { continue };
        let context = Context {
            subject: "Patient/1",
            patient: "1",
            device: "Device/1",
            gateway: None,
            coincident: None,
            offset_minutes: 0,
            received: first.received,
        };
        let observations: Vec<_> = group.iter().map(Stored::observation).collect();
        if let Some(made) = fhir::observation(&mapping, &context, id, &place, &observations) {
            is_json(&made.resource);
        }
    }
}

fn is_json(text: &str) {
    let read: Result<Value, _> = serde_json::from_str(text);
    assert!(read.is_ok(), "no JSON: {text}");
}
