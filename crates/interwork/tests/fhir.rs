//! FHIR resources against examples of the HL7 guide and of those who follow it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail loudly"
)]

use gatewright_health::code::{DataRequestId, Handle, SystemId, attribute, class, event};
use gatewright_health::convert::{MeasurementStatus, Observation, Value as Measured, observe};
use gatewright_health::data::EventReport;
use gatewright_health::decimal::Number;
use gatewright_health::report::{FixedObservation, Report, encode_scan};
use gatewright_health::specialisation::{self, Specialisation};
use gatewright_health::time::AbsoluteTime;
use gatewright_interwork::fhir::{
    Context, Exported, coincident, device, gateway, observation, transaction,
};
use gatewright_interwork::{Device, Mapping};
use gatewright_onem2m::Timestamp;
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp::from_micros(1_795_266_000_000_000);

/// What a device of `kind` and `system_id` that reports `octets` for `handle` becomes, after
/// `change`.
fn exported(
    kind: &Specialisation,
    system_id: SystemId,
    context: &Context<'_>,
    (handle, octets): (u16, &[u8]),
    change: impl Fn(&mut Observation<'_>),
) -> Exported {
    let mapping = Mapping::default();
    let configuration = kind.configuration().unwrap();
    let resources = Device::new(&mapping, "cse-mn", system_id, 0, &configuration);
    let handle = Handle(handle);
    let fixed = [FixedObservation { handle, octets }];
    let info = encode_scan(DataRequestId::AGENT_INITIATED, 0, &fixed).unwrap();
    let report =
        EventReport { handle: Handle::MDS, time: 0, event: event::SCAN_FIXED, info: &info };
    let Ok(Report::Scan(scan)) = report.report() else { panic!() };
    let mut observations = Vec::new();
    observe(&configuration, Handle::MDS, &scan, |seen| observations.push(*seen));
    observations.iter_mut().for_each(change);
    let place = resources.place(handle).unwrap();
    observation(&mapping, context, system_id, place, &observations).unwrap()
}

fn parsed(exported: &Exported) -> Value {
    serde_json::from_str(&exported.resource).unwrap()
}

const CONTEXT: Context<'_> = Context {
    subject: "Patient/1",
    patient: "1",
    device: "Device/2",
    gateway: None,
    coincident: None,
    offset_minutes: 0,
    received: NOW,
};

/// A weight as a national core guide shows it: its identifier in full, and 74.0, not 74.
#[test]
fn a_weight_has_the_identifier_of_the_field() {
    let system_id = SystemId([0x60, 0x64, 0x05, 0xFF, 0xFE, 0xCF, 0xC6, 0x04]);
    let context = Context {
        subject: "Patient/Poul",
        patient: "3001749995-urn:oid:1.2.208.176.1.2",
        device: "Device/WeightScale.606405FFFECFC604",
        gateway: Some("Device/Telma.FEEDDADADEADBEEF"),
        coincident: Some("Observation/CoincidentTimeStamp.0123"),
        offset_minutes: 60,
        received: NOW,
    };
    let octets = [0xFF, 0x00, 0x02, 0xE4, 0x20, 0x23, 0x02, 0x21, 0x08, 0x36, 0x40, 0x00];
    let weight = exported(&specialisation::SCALE, system_id, &context, (1, &octets), |_| {});
    let identifier =
        "606405FFFECFC604-3001749995-urn:oid:1.2.208.176.1.2-188736-74.0-kg-20230221T083640.00";
    assert_eq!(weight.identifier, identifier);
    assert!(weight.resource.contains(r#""value":74.0,"#), "{}", weight.resource);
    assert_eq!(
        parsed(&weight),
        json!({
            "resourceType": "Observation",
            "meta": {"profile": ["http://hl7.org/fhir/uv/phd/StructureDefinition/PhdNumericObservation"]},
            "extension": [{
                "url": "http://hl7.org/fhir/StructureDefinition/observation-gatewayDevice",
                "valueReference": {"reference": "Device/Telma.FEEDDADADEADBEEF"},
            }],
            "identifier": [{"value": identifier}],
            "status": "final",
            "category": [
                {"coding": [{"system": "http://hl7.org/fhir/uv/phd/CodeSystem/PhdObservationCategories",
                    "code": "phd-observation"}]},
                {"coding": [{"system": "http://terminology.hl7.org/CodeSystem/observation-category",
                    "code": "vital-signs"}]},
            ],
            "code": {
                "coding": [
                    {"system": "urn:iso:std:iso:11073:10101", "code": "188736"},
                    {"system": "http://loinc.org", "code": "29463-7"},
                ],
                "text": "MDC_MASS_BODY_ACTUAL",
            },
            "subject": {"reference": "Patient/Poul"},
            "effectiveDateTime": "2023-02-21T08:36:40+01:00",
            // Without the unit in words there, which FHIR's profile of body weights wants.
            "valueQuantity": {
                "value": 74.0,
                "unit": "kg",
                "system": "http://unitsofmeasure.org",
                "code": "kg",
            },
            "device": {"reference": "Device/WeightScale.606405FFFECFC604"},
            "derivedFrom": [{"reference": "Observation/CoincidentTimeStamp.0123"}],
        })
    );
}

/// The guide's example of a pulse rate of spot modality.
#[test]
fn a_spot_measurement_says_so() {
    let system_id = SystemId([0x74, 0xE8, 0xFF, 0xFE, 0xFF, 0x05, 0x1C, 0x00]);
    let context = Context { offset_minutes: -300, ..CONTEXT };
    let octets = [0xF1, 0xE0, 0x20, 0x18, 0x11, 0x13, 0x17, 0x59, 0x02, 0x00];
    let kind = &specialisation::SPOT_OXIMETER;
    let pulse = exported(kind, system_id, &context, (10, &octets), |_| {});
    let identifier = "74E8FFFEFF051C00-1-149530-48.0-{beat}/min-20181113T175902.00-150588";
    assert_eq!(pulse.identifier, identifier);
    let resource = parsed(&pulse);
    assert_eq!(resource["effectiveDateTime"], "2018-11-13T17:59:02-05:00");
    assert_eq!(
        resource["code"]["coding"],
        json!([
            {"system": "urn:iso:std:iso:11073:10101", "code": "149530"},
            {"system": "http://loinc.org", "code": "8867-4"},
        ])
    );
    // FHIR's profile of heart rates (code 8867-4) fixes the code; the annotation is for reading.
    assert_eq!(resource["valueQuantity"]["code"], "/min");
    assert_eq!(resource["valueQuantity"]["unit"], "{beat}/min");
    let mdc = |code: &str| json!([{"system": "urn:iso:std:iso:11073:10101", "code": code}]);
    assert_eq!(resource["component"][0]["code"]["coding"], mdc("68193"));
    assert_eq!(resource["component"][0]["valueCodeableConcept"]["coding"], mdc("150588"));
}

#[test]
fn a_compound_has_components_and_no_value() {
    let octets = [0, 3, 0, 6, 0, 120, 0, 80, 0x07, 0xFF, 0x20, 0x26, 0x11, 0x21, 0x12, 0, 0, 0];
    let kind = &specialisation::BLOOD_PRESSURE;
    let pressure = exported(kind, SystemId([1; 8]), &CONTEXT, (1, &octets), |_| {});
    let resource = parsed(&pressure);
    assert_eq!(resource["code"]["coding"][0]["code"], "150020");
    assert_eq!(resource.get("valueQuantity"), None);
    let component = &resource["component"];
    assert_eq!(component[0]["code"]["coding"][0]["code"], "150021");
    assert_eq!(
        component[0]["valueQuantity"],
        json!(
        {"value": 120, "unit": "mm[Hg]", "system": "http://unitsofmeasure.org", "code": "mm[Hg]"})
    );
    assert_eq!(component[1]["valueQuantity"]["value"], 80);
    assert_eq!(component[2]["dataAbsentReason"]["coding"][0]["code"], "not-a-number");
    assert!(pressure.identifier.contains("-150020-120-80-NaN-mm[Hg]-20261121T120000.00"));
}

/// The guide's table of measurement status.
#[test]
fn the_status_is_told_where_the_guide_says() {
    let absent = |code: &str| {
        json!({"coding": [
        {"system": "http://terminology.hl7.org/CodeSystem/data-absent-reason", "code": code}]})
    };
    let interpreted = |code: &str| {
        json!([{"coding": [
        {"system": "http://hl7.org/fhir/uv/pocd/CodeSystem/measurement-status", "code": code}]}])
    };
    let cases = [
        (0x8000, "dataAbsentReason", absent("error")),
        (0x2000, "dataAbsentReason", absent("not-performed")),
        (0x0020, "dataAbsentReason", absent("temp-unknown")),
        (0x4000, "interpretation", interpreted("questionable")),
        (0x1000, "interpretation", interpreted("calibration-ongoing")),
        (0x0080, "interpretation", interpreted("validated-data")),
        (0x0040, "interpretation", interpreted("early-indication")),
        (0x0002, "interpretation", interpreted("in-alarm")),
        (0x0001, "interpretation", interpreted("alarm-inhibited")),
    ];
    for (bits, member, expected) in cases {
        let set = |observation: &mut Observation<'_>| observation.status = MeasurementStatus(bits);
        let kind = &specialisation::OXIMETER;
        let saturation = exported(kind, SystemId([1; 8]), &CONTEXT, (1, &[0, 97]), set);
        let resource = parsed(&saturation);
        assert_eq!(resource[member], expected, "{bits:#06x}");
        assert_eq!(resource.get("valueQuantity").is_none(), member == "dataAbsentReason");
        // No clock of the device: the time of reception, UTC.
        assert_eq!(resource["effectiveDateTime"], "2026-11-21T13:00:00Z");
    }
    for bits in [0x0800, 0x0400] {
        let set = |observation: &mut Observation<'_>| observation.status = MeasurementStatus(bits);
        let kind = &specialisation::OXIMETER;
        let saturation = exported(kind, SystemId([1; 8]), &CONTEXT, (1, &[0, 97]), set);
        assert_eq!(
            parsed(&saturation)["meta"]["security"],
            json!([
            {"system": "http://terminology.hl7.org/CodeSystem/v3-ActReason", "code": "HTEST"}])
        );
    }
}

#[test]
fn numbers_that_are_none_are_absent() {
    let cases = [
        (Number::NotANumber, "not-a-number"),
        (Number::PositiveInfinity, "positive-infinity"),
        (Number::NegativeInfinity, "negative-infinity"),
        (Number::NotAtThisResolution, "error"),
        (Number::Reserved, "error"),
    ];
    for (number, reason) in cases {
        let octets = number.to_sfloat().unwrap();
        let kind = &specialisation::OXIMETER;
        let saturation = exported(kind, SystemId([1; 8]), &CONTEXT, (1, &octets), |_| {});
        assert_eq!(parsed(&saturation)["dataAbsentReason"]["coding"][0]["code"], reason);
    }
}

/// An hour of activity is a period; flags that are set are components.
#[test]
fn periods_and_flags() {
    // 3600 as a FLOAT: 36 with two zeros.
    let octets = [0x03, 0xE9, 0x02, 0x00, 0x00, 0x24, 0x20, 0x26, 0x11, 0x21, 0x23, 0x30, 0, 0];
    let kind = &specialisation::ACTIVITY;
    let session = exported(kind, SystemId([1; 8]), &CONTEXT, (1, &octets), |_| {});
    assert_eq!(
        parsed(&session)["effectivePeriod"],
        json!({"start": "2026-11-21T23:30:00Z", "end": "2026-11-22T00:30:00Z"})
    );
    let octets = [0x80, 0x01, 0x20, 0x26, 0x11, 0x21, 0x12, 0, 0, 0];
    let kind = &specialisation::DISPENSER;
    let status = exported(kind, SystemId([1; 8]), &CONTEXT, (3, &octets), |_| {});
    let resource = parsed(&status);
    let codes: Vec<_> = resource["component"]
        .as_array()
        .unwrap()
        .iter()
        .map(|component| component["code"]["coding"][0]["code"].clone())
        .collect();
    assert_eq!(codes, ["8532994.0", "8532994.15"]);
    assert_eq!(resource["component"][0]["valueCodeableConcept"]["coding"][0]["code"], "Y");
    let text = |observation: &mut Observation<'_>| observation.value = Measured::Text(b"taken\0");
    let status = exported(kind, SystemId([1; 8]), &CONTEXT, (3, &octets), text);
    assert_eq!(parsed(&status)["valueString"], "taken");
}

/// A device as a national guide's example shows it.
#[test]
fn a_device_is_described() {
    let attributes = [
        (attribute::MODEL, b"\0\x06ProDoc\0\x0aSTM-1000A\0".to_vec()),
        (attribute::PRODUCTION, b"\0\x01\0\x0e\0\x01\0\0\0\x08DE124567".to_vec()),
        (attribute::SPECIALISATIONS, vec![0, 1, 0, 4, 0x10, 0x0F, 0, 2]),
    ];
    let system_id = SystemId([0x71, 0x10, 0x00, 0xFE, 0xFF, 0x5F, 0x49, 0xB0]);
    let scale = device(&Mapping::default(), system_id, &attributes);
    let mdc = |code: &str| json!([{"system": "urn:iso:std:iso:11073:10101", "code": code}]);
    assert_eq!(
        parsed(&scale),
        json!({
            "resourceType": "Device",
            "meta": {"profile": ["http://hl7.org/fhir/uv/phd/StructureDefinition/PhdDevice"]},
            "identifier": [{
                "type": {"coding": [{
                    "system": "http://hl7.org/fhir/uv/phd/CodeSystem/ContinuaDeviceIdentifiers",
                    "code": "SYSID",
                }]},
                "system": "urn:oid:1.2.840.10004.1.1.1.0.0.1.0.0.1.2680",
                "value": "71-10-00-FE-FF-5F-49-B0",
            }],
            "manufacturer": "ProDoc",
            "modelNumber": "STM-1000A",
            "serialNumber": "DE124567",
            "type": {"coding": mdc("65573"), "text": "MDC_MOC_VMS_MDS_SIMP"},
            "specialization": [{"systemType": {"coding": mdc("528399")}, "version": "2"}],
        })
    );
    check(&parsed(&scale), DEVICE_RULES);
    // A device that does not say what the profile wants does not claim it.
    let bare = parsed(&device(&Mapping::default(), system_id, &[]));
    assert_eq!((bare.get("manufacturer"), bare.get("meta")), (None, None));
}

/// A gateway and a clock as the guide's examples show them.
#[test]
fn a_gateway_and_a_clock() {
    let system_id = SystemId([0xEC, 0xDE, 0x3D, 0x4E, 0x58, 0x53, 0x2D, 0x31]);
    let resource = parsed(&gateway(system_id, "Gatewright", "gatewright", "1.0.0"));
    check(&resource, GATEWAY_RULES);
    assert_eq!(
        resource["meta"]["profile"],
        json!(["http://hl7.org/fhir/uv/phd/StructureDefinition/PhgDevice"])
    );
    assert_eq!(resource["identifier"][0]["value"], "EC-DE-3D-4E-58-53-2D-31");
    assert_eq!(resource["type"]["coding"][0]["code"], "531981");
    assert_eq!(resource["version"][0]["type"]["coding"][0]["code"], "531975");
    assert_eq!(resource["version"][0]["value"], "1.0.0");
    let clock = AbsoluteTime::new(2017, [12, 12, 9, 13, 39, 0]).unwrap();
    let gateway = Some("Device/3");
    let context = Context { offset_minutes: -300, gateway, ..CONTEXT };
    let resource = parsed(&coincident(&context, SystemId([1; 8]), clock).unwrap());
    check(&resource, CLOCK_RULES);
    assert_eq!(resource["code"]["coding"][0]["code"], "67975");
    assert_eq!(resource["valueDateTime"], "2017-12-12T09:13:39-05:00");
    assert_eq!(resource["effectiveDateTime"], "2026-11-21T13:00:00Z");
    assert_eq!(coincident(&context, SystemId([1; 8]), AbsoluteTime([0; 8])), None);
}

#[test]
fn a_transaction_creates_each_once() {
    let octets = [0, 97];
    let kind = &specialisation::OXIMETER;
    let saturation = exported(kind, SystemId([1; 8]), &CONTEXT, (1, &octets), |_| {});
    let device = device(&Mapping::default(), SystemId([1; 8]), &[]);
    let bundle: Value = serde_json::from_str(&transaction([&device, &saturation])).unwrap();
    assert_eq!(bundle["type"], "transaction");
    assert_eq!(
        bundle["entry"][0]["request"]["ifNoneExist"],
        "identifier=urn:oid:1.2.840.10004.1.1.1.0.0.1.0.0.1.2680|01-01-01-01-01-01-01-01"
    );
    assert_eq!(
        bundle["entry"][1]["request"],
        json!({"method": "POST", "url": "Observation",
        "ifNoneExist": "identifier=|0101010101010101-1-150456-97-%25-20261121T130000.00"})
    );
    assert_eq!(bundle["entry"][1]["resource"], parsed(&saturation));
}

/// What a profile of the guide wants at a path: the names of members, through all items of lists.
struct Rule {
    path: &'static str,
    /// How often it is there, at least and at most.
    count: [usize; 2],
    /// The text that one of them is.
    one_is: Option<&'static str>,
}

const fn rule(path: &'static str, count: [usize; 2]) -> Rule {
    Rule { path, count, one_is: None }
}

const fn fixed(path: &'static str, count: [usize; 2], one_is: &'static str) -> Rule {
    Rule { path, count, one_is: Some(one_is) }
}

const MANY: usize = usize::MAX;
const MDC: &str = "urn:iso:std:iso:11073:10101";
const GUIDE: &str = "http://hl7.org/fhir/uv/phd/CodeSystem/";
const IDENTIFIERS: &str = "http://hl7.org/fhir/uv/phd/CodeSystem/ContinuaDeviceIdentifiers";
const EUI64: &str = "urn:oid:1.2.840.10004.1.1.1.0.0.1.0.0.1.2680";

/// PhdBaseObservation (HL7 PHD implementation guide 2.0, structure definitions).
const OBSERVATION_RULES: &[Rule] = &[
    rule("meta.profile", [1, 1]),
    rule("extension", [0, 1]),
    rule("identifier", [1, 1]),
    rule("identifier.value", [1, 1]),
    rule("identifier.system", [0, 0]),
    rule("identifier.type", [0, 0]),
    rule("status", [1, 1]),
    fixed("category.coding.code", [1, MANY], "phd-observation"),
    fixed(
        "category.coding.system",
        [1, MANY],
        "http://hl7.org/fhir/uv/phd/CodeSystem/PhdObservationCategories",
    ),
    fixed("code.coding.system", [1, 2], MDC),
    rule("code.coding.code", [1, 2]),
    rule("subject.reference", [1, 1]),
    rule("device.reference", [1, 1]),
];

/// PhdDevice.
const DEVICE_RULES: &[Rule] = &[
    fixed("meta.profile", [1, 1], "http://hl7.org/fhir/uv/phd/StructureDefinition/PhdDevice"),
    fixed("identifier.type.coding.system", [1, MANY], IDENTIFIERS),
    fixed("identifier.type.coding.code", [1, MANY], "SYSID"),
    fixed("identifier.system", [1, MANY], EUI64),
    rule("identifier.value", [1, MANY]),
    rule("manufacturer", [1, 1]),
    rule("modelNumber", [1, 1]),
    fixed("type.coding.system", [1, MANY], MDC),
    fixed("type.coding.code", [1, MANY], "65573"),
    rule("specialization", [1, MANY]),
    fixed("specialization.systemType.coding.system", [1, MANY], MDC),
    rule("specialization.systemType.coding.code", [1, MANY]),
    rule("specialization.version", [1, MANY]),
];

/// PhgDevice.
const GATEWAY_RULES: &[Rule] = &[
    fixed("identifier.type.coding.code", [1, MANY], "SYSID"),
    fixed("identifier.system", [1, MANY], EUI64),
    fixed("type.coding.system", [1, MANY], MDC),
    fixed("type.coding.code", [1, MANY], "531981"),
    rule("version", [1, MANY]),
    fixed("version.type.coding.system", [1, MANY], MDC),
    rule("version.type.coding.code", [1, MANY]),
    rule("property", [1, MANY]),
    fixed("property.type.coding.system", [1, 1], "http://hl7.org/fhir/uv/phd/CodeSystem/ASN1ToHL7"),
    rule("property.type.coding.code", [1, 1]),
    rule("property.valueQuantity", [0, 0]),
    rule("property.valueCode", [1, 1]),
    fixed(
        "property.valueCode.coding.system",
        [1, 1],
        "http://terminology.hl7.org/CodeSystem/v2-0136",
    ),
];

/// PhdCoincidentTimeStampObservation: its subject is the device, its device the gateway.
const CLOCK_RULES: &[Rule] = &[
    rule("meta.profile", [1, 1]),
    fixed("status", [1, 1], "final"),
    fixed("code.coding.system", [1, 1], MDC),
    fixed("subject.reference", [1, 1], "Device/2"),
    fixed("device.reference", [1, 1], "Device/3"),
    rule("valueDateTime", [1, 1]),
    rule("derivedFrom", [0, 0]),
    rule("hasMember", [0, 0]),
    rule("focus", [0, 0]),
];

/// What is at a path.
fn at<'a>(value: &'a Value, path: &str) -> Vec<&'a Value> {
    let items = |value: &'a Value| match value {
        Value::Array(items) => items.iter().collect(),
        other => vec![other],
    };
    path.split('.').fold(vec![value], |found, name| {
        found.into_iter().filter_map(|one| one.get(name)).flat_map(items).collect()
    })
}

fn check(resource: &Value, rules: &[Rule]) {
    for Rule { path, count: [least, most], one_is } in rules {
        let found = at(resource, path);
        assert!((*least..=*most).contains(&found.len()), "{path}: {found:?} in {resource:#}");
        if let Some(text) = one_is {
            assert!(found.iter().any(|one| one == text), "{path}: {found:?} has no {text}");
        }
    }
}

/// Every object of every kind of device is what the guide's profiles want: their required
/// elements, and a value or why there is none.
#[test]
fn what_the_profiles_require_is_there() {
    let context = Context { gateway: Some("Device/3"), ..CONTEXT };
    let mut profiles = std::collections::BTreeSet::new();
    for kind in specialisation::ALL {
        // Waveforms are left out.
        for metric in kind.metrics.iter().filter(|one| one.class != class::SAMPLE_ARRAY) {
            let length = metric.map.iter().map(|entry| usize::from(entry.length)).sum();
            let mut octets = vec![0; length];
            if metric.map[0].attribute == attribute::COMPOUND_BASIC {
                octets[..10].copy_from_slice(&[0, 3, 0, 6, 0, 120, 0, 80, 0, 93]);
            }
            let handle = metric.handle.0;
            let exported = exported(kind, SystemId([1; 8]), &context, (handle, &octets), |_| {});
            let resource = parsed(&exported);
            check(&resource, OBSERVATION_RULES);
            let profile = at(&resource, "meta.profile")[0].as_str().unwrap();
            let (place, name) = profile.rsplit_once('/').unwrap();
            assert_eq!(place, "http://hl7.org/fhir/uv/phd/StructureDefinition");
            profiles.insert(name.to_owned());
            let times = ["effectiveDateTime", "effectivePeriod"].map(|name| at(&resource, name));
            assert_eq!(times.iter().map(Vec::len).sum::<usize>(), 1, "{resource:#}");
            let gateway = at(&resource, "extension.valueReference.reference");
            assert_eq!(gateway, ["Device/3"]);
            // Numbers have units of UCUM or of MDC, by code.
            let parts = at(&resource, "component").into_iter().chain([&resource]);
            for quantity in parts.flat_map(|part| at(part, "valueQuantity")) {
                assert!(quantity["value"].is_number() && quantity["code"].is_string());
                let system = quantity["system"].as_str().unwrap();
                assert!([MDC, "http://unitsofmeasure.org"].contains(&system), "{system}");
            }
            let numeric = name == "PhdNumericObservation";
            assert_eq!(at(&resource, "valueQuantity").len(), usize::from(numeric), "{resource:#}");
            for coding in at(&resource, "code.coding").into_iter().chain(at(&resource, "category"))
            {
                assert!(coding.is_object());
            }
            assert!(
                at(&resource, "category.coding.system")[0].as_str().unwrap().starts_with(GUIDE)
            );
        }
    }
    let known = [
        "PhdBitsEnumerationObservation",
        "PhdCodedEnumerationObservation",
        "PhdCompoundNumericObservation",
        "PhdNumericObservation",
    ];
    assert_eq!(profiles.iter().map(String::as_str).collect::<Vec<_>>(), known);
}
