//! FHIR R4 resources after the HL7 implementation guide for personal health devices (PHD IG):
//! Device, Observation, and the transaction that creates them once.
//!
//! Decimals keep the device's number of places, as the guide demands. An observation's identifier
//! prevents a second creation (`ifNoneExist`).

use crate::command::{MANUFACTURER, MODEL_NUMBER, VERSIONS, describe, readable_model};
use crate::device::ObjectContainer;
use crate::json::Json;
use crate::mapping::Mapping;
use core::fmt::{self, Write};
use gatewright_health::code::{AttributeId, SystemId, Type, attribute, partition};
use gatewright_health::convert::{MeasurementStatus, Observation, Value};
use gatewright_health::decimal::{Decimal, Number};
use gatewright_health::mder::Reader;
use gatewright_health::time::AbsoluteTime;
use gatewright_onem2m::Timestamp;

/// The code system of ISO/IEEE 11073-10101.
const MDC: &str = "urn:iso:std:iso:11073:10101";
const UCUM: &str = "http://unitsofmeasure.org";
/// Beats per minute, annotated.
const BEATS_PER_MINUTE: &str = "{beat}/min";
/// Its computable UCUM code.
const PER_MINUTE: &str = "/min";
const LOINC: &str = "http://loinc.org";
/// URL prefix of the guide's profiles.
const PROFILE: &str = "http://hl7.org/fhir/uv/phd/StructureDefinition/";
const CATEGORIES: &str = "http://hl7.org/fhir/uv/phd/CodeSystem/PhdObservationCategories";
const VITAL_SIGNS: &str = "http://terminology.hl7.org/CodeSystem/observation-category";
const ABSENT: &str = "http://terminology.hl7.org/CodeSystem/data-absent-reason";
const STATUS: &str = "http://hl7.org/fhir/uv/pocd/CodeSystem/measurement-status";
const BITS: &str = "http://hl7.org/fhir/uv/phd/CodeSystem/ASN1ToHL7";
/// Bit of the regulation status: the device is not approved
/// (MDC_REG_CERT_DATA_CONTINUA_REG_STATUS).
const UNREGULATED: &str = "532354.0";
const YES_NO: &str = "http://terminology.hl7.org/CodeSystem/v2-0136";
const TEST_DATA: &str = "http://terminology.hl7.org/CodeSystem/v3-ActReason";
const GATEWAY: &str = "http://hl7.org/fhir/StructureDefinition/observation-gatewayDevice";
const DEVICE_IDENTIFIERS: &str = "http://hl7.org/fhir/uv/phd/CodeSystem/ContinuaDeviceIdentifiers";
/// The system of EUI-64 identifiers.
const EUI64: &str = "urn:oid:1.2.840.10004.1.1.1.0.0.1.0.0.1.2680";
/// MDC_ATTR_SUPPLEMENTAL_TYPES, with its partition.
const SUPPLEMENTAL_TYPES: u32 = 68_193;
/// MDC_ATTR_TIME_STAMP_REL, with its partition.
const RELATIVE_TIME: u32 = 67_985;
/// MDC_MOC_VMS_MDS_SIMP, with its partition: type of every personal health device.
const SIMPLE_DEVICE: (u32, &str) = (65_573, "MDC_MOC_VMS_MDS_SIMP");
/// MDC_MOC_VMS_MDS_AHD, with its partition: type of every gateway.
const GATEWAY_DEVICE: (u32, &str) = (531_981, "MDC_MOC_VMS_MDS_AHD");
/// MDC_ID_PROD_SPEC_SW, with its partition.
const SOFTWARE_REVISION: u32 = 531_975;
/// MDC_ATTR_TIME_ABS, with its partition.
const CLOCK: u32 = 67_975;

impl Description {
    /// Parses an instance of the container [`about`](crate::device::ABOUT).
    pub fn stored(mapping: &Mapping, con: &serde_json::Value) -> Self {
        let text = |member: &serde_json::Value| member.as_str().map(str::to_owned);
        let named = |id| mapping.attributes.iter().find(|shown| shown.id == id);
        let member = |id| named(id).and_then(|shown| con.get(&shown.name));
        let short = |number: &serde_json::Value| u16::try_from(number.as_u64()?).ok();
        let list = |member: Option<&serde_json::Value>| -> Vec<Option<u16>> {
            let list = member.and_then(serde_json::Value::as_array);
            list.into_iter().flatten().map(short).collect()
        };
        let versions = list(con.get(VERSIONS)).into_iter().chain(core::iter::repeat(None));
        let codes = list(member(attribute::SPECIALISATIONS)).into_iter();
        Self {
            manufacturer: con.get(MANUFACTURER).and_then(text),
            model: con.get(MODEL_NUMBER).and_then(text),
            serial: member(attribute::PRODUCTION)
                .and_then(|production| production.get("serialNumber"))
                .and_then(text),
            specialisations: codes.zip(versions).filter_map(|(c, v)| Some((c?, v))).collect(),
        }
    }
}

/// A code with its partition, in FHIR's form: partition · 2¹⁶ + code.
pub fn mdc(kind: Type) -> u32 {
    u32::from(kind.partition) << 16 | u32::from(kind.code)
}

/// References of an observation: patient, device, gateway.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Patient: a reference, `Patient/123`.
    pub subject: &'a str,
    /// Patient in the observation's identifier: identifier and its system, joined by a dash, or the
    /// logical id.
    pub patient: &'a str,
    /// The measuring device: a reference.
    pub device: &'a str,
    /// The gateway: a reference.
    pub gateway: Option<&'a str>,
    /// The comparison of the device's clock with the gateway's: a reference; see [`coincident`].
    pub coincident: Option<&'a str>,
    /// Minutes that the device's calendar is ahead of UTC.
    pub offset_minutes: i16,
    /// When the gateway received the report.
    pub received: Timestamp,
}

/// A resource and its unique identifier.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Exported {
    /// `Observation` or `Device`.
    pub resource_type: &'static str,
    /// The resource, JSON.
    pub resource: String,
    /// The value of its identifier, and its system if it has one.
    pub identifier: String,
    /// The identifier's system.
    pub system: Option<&'static str>,
    /// Reference to it from other resources of one transaction, if allowed.
    pub full_url: Option<String>,
}

impl Exported {
    /// The resource with a logical id, for use outside a transaction: `[A-Za-z0-9.-]`, at most 64
    /// characters (FHIR R4, id).
    pub fn with_id(&self, id: &str) -> String {
        let head = format!("{{\"resourceType\":\"{}\"", self.resource_type);
        let rest = self.resource.strip_prefix(head.as_str()).unwrap_or_default();
        format!("{head},\"id\":\"{id}\"{rest}")
    }
}

/// A device's attributes for a Device resource.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Description {
    /// Its manufacturer.
    pub manufacturer: Option<String>,
    /// Its model number.
    pub model: Option<String>,
    /// Its serial number.
    pub serial: Option<String>,
    /// Its specialisations: codes of partition 8, with the standards' versions if known.
    pub specialisations: Vec<(u16, Option<u16>)>,
}

/// The Observation of one object at one time: one observation, or all those of a compound. `None`
/// for a waveform, whose profile needs more than a report contains, and without observations.
pub fn observation(
    mapping: &Mapping,
    context: &Context<'_>,
    system_id: SystemId,
    place: &ObjectContainer,
    observations: &[Observation<'_>],
) -> Option<Exported> {
    let first = observations.first()?;
    let is_compound = observations.len() > 1;
    let kind = if is_compound { place.kind } else { first.kind };
    let profile = match first.value {
        Value::Samples(_) => return None,
        _ if is_compound => "PhdCompoundNumericObservation",
        Value::Number(_) | Value::None => "PhdNumericObservation",
        Value::Code(_) => "PhdCodedEnumerationObservation",
        Value::Bits16(_) | Value::Bits32(_) => "PhdBitsEnumerationObservation",
        Value::Text(_) => "PhdStringEnumerationObservation",
    };
    let identifier = identifier(context, system_id, place, kind, observations);
    let rule = place.rule(mapping);
    let mut resource = String::new();
    Json::new(&mut resource).object(|json| {
        json.text("resourceType", "Observation");
        meta(json, profile, first.status);
        if let Some(gateway) = context.gateway {
            json.key("extension").array(|json| {
                json.object(|json| {
                    json.text("url", GATEWAY);
                    reference(json, "valueReference", gateway);
                });
            });
        }
        json.key("identifier").array(|json| json.object(|json| json.text("value", &identifier)));
        json.text("status", "final");
        json.key("category").array(|json| {
            concept(json, &[(CATEGORIES, "phd-observation")], None);
            if rule.is_some_and(|rule| rule.vital_sign) {
                concept(json, &[(VITAL_SIGNS, "vital-signs")], None);
            }
        });
        json.key("code");
        let code = mdc(kind).to_string();
        let loinc = rule.and_then(|rule| rule.loinc.as_deref());
        let codings: Vec<_> =
            [(MDC, code.as_str())].into_iter().chain(loinc.map(|code| (LOINC, code))).collect();
        concept(json, &codings, kind.name());
        reference(json, "subject", context.subject);
        effective(json, context, first);
        if !is_compound {
            value(json, first);
        }
        interpretation(json, first.status);
        reference(json, "device", context.device);
        if let Some(coincident) = context.coincident {
            json.key("derivedFrom").array(|json| {
                json.object(|json| json.text("reference", coincident));
            });
        }
        components(json, place, first, if is_compound { observations } else { &[] });
    });
    let full_url = None;
    Some(Exported { resource_type: "Observation", resource, identifier, system: None, full_url })
}

/// The guide's identifier: device, patient, type, values, unit, the device's own time and the
/// supplemental types, joined by dashes.
fn identifier(
    context: &Context<'_>,
    system_id: SystemId,
    place: &ObjectContainer,
    kind: Type,
    observations: &[Observation<'_>],
) -> String {
    let mut text = String::new();
    // Writing into a `String` cannot fail.
    let _ = write!(text, "{}-{}-{}", Eui64(system_id, ""), context.patient, mdc(kind));
    for observation in observations {
        let _ = write!(text, "-{}", Shown(observation.value));
    }
    let first = observations.first();
    if let Some(unit) = first.and_then(|first| first.unit) {
        let _ = match unit.ucum() {
            Some(ucum) => write!(text, "-{ucum}"),
            None => write!(text, "-{unit}"),
        };
    }
    let time = first.map(|first| first.time).unwrap_or_default();
    let received = || AbsoluteTime::from_unix(context.received.micros() / 10_000);
    let _ = match (time.absolute, time.relative, time.high_resolution) {
        (None, Some(ticks), _) => write!(text, "-{ticks}"),
        (None, None, Some(micros)) => write!(text, "-{micros}"),
        (time, ..) => write!(text, "-{}", Compact(time.unwrap_or_else(received))),
    };
    for more in &place.supplemental {
        let _ = write!(text, "-{}", mdc(*more));
    }
    text
}

fn meta(json: &mut Json<'_>, profile: &str, status: MeasurementStatus) {
    /// Test data and demonstration data.
    const NOT_REAL: u16 = 0x0800 | 0x0400;
    json.key("meta").object(|json| {
        json.key("profile").array(|json| json.string(&format!("{PROFILE}{profile}")));
        if status.0 & NOT_REAL != 0 {
            json.key("security").array(|json| coding(json, TEST_DATA, "HTEST"));
        }
    });
}

/// Writes the time, or a period for a duration. Without a device time, the time of reception.
fn effective(json: &mut Json<'_>, context: &Context<'_>, observation: &Observation<'_>) {
    let device = observation.time.absolute.and_then(AbsoluteTime::to_unix);
    let moment = |hundredths, offset| Moment { hundredths, offset };
    let received = context.received.micros() / 10_000;
    let period = observation.active_period.map(hundredths);
    let (start, end, offset) = match (device, period) {
        (Some(start), Some(period)) => {
            (start, start.saturating_add(period), context.offset_minutes)
        }
        (Some(time), None) => (time, time, context.offset_minutes),
        (None, Some(period)) => (received.saturating_sub(period), received, 0),
        (None, None) => (received, received, 0),
    };
    if period.is_some() {
        json.key("effectivePeriod").object(|json| {
            json.key("start").shown(moment(start, offset));
            json.key("end").shown(moment(end, offset));
        });
    } else {
        json.key("effectiveDateTime").shown(moment(start, offset));
    }
}

/// Seconds in hundredths of a second; negative values become 0.
fn hundredths(seconds: Decimal) -> u64 {
    let mantissa = u64::try_from(seconds.mantissa).unwrap_or(0);
    // A hundredth is two places more.
    let exponent = i16::from(seconds.exponent) + 2;
    let power = 10_u64.checked_pow(exponent.unsigned_abs().into());
    match (power, exponent < 0) {
        (Some(power), false) => mantissa.saturating_mul(power),
        (Some(power), true) => mantissa / power,
        (None, _) if mantissa == 0 || exponent < 0 => 0,
        (None, _) => u64::MAX,
    }
}

/// Writes the value, or why there is none.
fn value(json: &mut Json<'_>, observation: &Observation<'_>) {
    let absent = absent(observation);
    match observation.value {
        _ if absent.is_some() => {
            json.key("dataAbsentReason");
            concept(json, &[(ABSENT, absent.unwrap_or_default())], None);
        }
        Value::Number(number) => {
            json.key("valueQuantity").object(|json| quantity(json, number, observation));
        }
        Value::Code(code) => {
            json.key("valueCodeableConcept");
            concept(json, &[(MDC, &mdc(code).to_string())], code.name());
        }
        Value::Text(octets) => {
            let text = String::from_utf8_lossy(octets);
            json.text("valueString", text.trim_end_matches('\0'));
        }
        // Flags are components; a period has said all; a waveform is not exported.
        Value::None | Value::Bits16(_) | Value::Bits32(_) | Value::Samples(_) => {}
    }
}

fn quantity(json: &mut Json<'_>, number: Number, observation: &Observation<'_>) {
    json.key("value").raw(number);
    // 1 is UCUM's unit of what has none.
    match observation.unit.map(|unit| (unit, unit.ucum())) {
        None => {
            json.text("system", UCUM);
            json.text("code", "1");
        }
        Some((_, Some(ucum))) => {
            // The profiles of vital signs (FHIR R4) want what people read, too, and count beats a
            // minute as `/min`: UCUM's annotations are for reading.
            json.text("unit", ucum);
            json.text("system", UCUM);
            json.text("code", if ucum == BEATS_PER_MINUTE { PER_MINUTE } else { ucum });
        }
        Some((unit, None)) => {
            json.text("system", MDC);
            json.key("code").shown(mdc(Type::new(partition::DIMENSION, unit.0)));
        }
    }
}

/// Why there is no value: from the status, or because the number is a special value.
fn absent(observation: &Observation<'_>) -> Option<&'static str> {
    let by_status = [(0x8000, "error"), (0x2000, "not-performed"), (0x0020, "temp-unknown")];
    if let Some((_, reason)) = by_status.iter().find(|(bit, _)| observation.status.0 & bit != 0) {
        return Some(reason);
    }
    match observation.value {
        Value::Number(Number::NotANumber) => Some("not-a-number"),
        Value::Number(Number::PositiveInfinity) => Some("positive-infinity"),
        Value::Number(Number::NegativeInfinity) => Some("negative-infinity"),
        Value::Number(Number::NotAtThisResolution | Number::Reserved) => Some("error"),
        _ => None,
    }
}

/// Writes the interpretation of a value's status.
fn interpretation(json: &mut Json<'_>, status: MeasurementStatus) {
    let known = [
        (0x4000, "questionable"),
        (0x1000, "calibration-ongoing"),
        (0x0080, "validated-data"),
        (0x0040, "early-indication"),
        (0x0002, "in-alarm"),
        (0x0001, "alarm-inhibited"),
    ];
    let mut set = known.iter().filter(|(bit, _)| status.0 & bit != 0).peekable();
    if set.peek().is_some() {
        json.key("interpretation").array(|json| {
            set.for_each(|(_, code)| concept(json, &[(STATUS, code)], None));
        });
    }
}

/// LOINC codes of a blood pressure's values in FHIR R4's profile.
const fn part_loinc(kind: Type) -> Option<&'static str> {
    match (kind.partition, kind.code) {
        (partition::SCADA, 18_949) => Some("8480-6"),
        (partition::SCADA, 18_950) => Some("8462-4"),
        (partition::SCADA, 18_951) => Some("8478-0"),
        _ => None,
    }
}

/// Writes the values of a compound, the flags that are set, and further properties.
fn components(
    json: &mut Json<'_>,
    place: &ObjectContainer,
    first: &Observation<'_>,
    compound: &[Observation<'_>],
) {
    let bits = match first.value {
        Value::Bits16(bits) => u64::from(bits) << 48,
        Value::Bits32(bits) => u64::from(bits) << 32,
        _ => 0,
    };
    let relative = first.time.relative;
    if compound.is_empty() && bits == 0 && relative.is_none() && place.supplemental.is_empty() {
        return;
    }
    json.key("component").array(|json| {
        for part in compound {
            json.object(|json| {
                json.key("code");
                let code = mdc(part.kind).to_string();
                let loinc = part_loinc(part.kind).map(|code| (LOINC, code));
                let codings: Vec<_> = core::iter::once((MDC, code.as_str())).chain(loinc).collect();
                concept(json, &codings, part.kind.name());
                value(json, part);
            });
        }
        // Bit 0 is the highest: flags are numbered as ASN.1 does.
        for bit in (0..32_u32).filter(|bit| bits & (1 << (63 - bit)) != 0) {
            json.object(|json| {
                json.key("code");
                concept(json, &[(BITS, &format!("{}.{bit}", mdc(first.kind)))], None);
                json.key("valueCodeableConcept");
                concept(json, &[(YES_NO, "Y")], None);
            });
        }
        for more in &place.supplemental {
            json.object(|json| {
                json.key("code");
                let code = SUPPLEMENTAL_TYPES.to_string();
                concept(json, &[(MDC, &code)], Some("MDC_ATTR_SUPPLEMENTAL_TYPES"));
                json.key("valueCodeableConcept");
                concept(json, &[(MDC, &mdc(*more).to_string())], more.name());
            });
        }
        if let Some(ticks) = relative {
            json.object(|json| {
                json.key("code");
                let code = RELATIVE_TIME.to_string();
                concept(json, &[(MDC, &code)], Some("MDC_ATTR_TIME_STAMP_REL"));
                json.key("valueQuantity").object(|json| {
                    json.key("value").raw(u64::from(ticks) * 125);
                    json.text("system", UCUM);
                    json.text("code", "us");
                });
            });
        }
    });
}

/// The Device resource of a personal health device, from its attributes.
pub fn device(
    mapping: &Mapping,
    system_id: SystemId,
    attributes: &[(AttributeId, Vec<u8>)],
) -> Exported {
    let find = |wanted| attributes.iter().find(|(id, _)| *id == wanted).map(|(_, octets)| octets);
    let model = find(attribute::MODEL).and_then(|octets| readable_model(octets));
    let [manufacturer, model] = model.map_or([None, None], |texts| texts.map(Some));
    let production = describe(mapping, attribute::PRODUCTION, find(attribute::PRODUCTION));
    let serial = production.get("serialNumber").and_then(|text| text.as_str());
    let list =
        find(attribute::SPECIALISATIONS).and_then(|octets| Reader::new(octets).list::<Type>().ok());
    // The list pairs codes of partition 8 with versions.
    let pair = |Type { partition: code, code: version }| (code, Some(version));
    let description = Description {
        manufacturer,
        model,
        serial: serial.map(str::to_owned),
        specialisations: list
            .iter()
            .flat_map(gatewright_health::mder::List::iter)
            .map(pair)
            .collect(),
    };
    described(system_id, &description)
}

/// The Device resource of a personal health device, from its description. It claims the guide's
/// profile if all that the profile requires is known.
pub fn described(system_id: SystemId, known: &Description) -> Exported {
    let is_said = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    let versions = known.specialisations.iter().all(|(_, version)| version.is_some());
    let is_whole = is_said(&known.manufacturer)
        && is_said(&known.model)
        && !known.specialisations.is_empty()
        && versions;
    device_resource(is_whole.then_some("PhdDevice"), system_id, SIMPLE_DEVICE, |json| {
        let texts = [
            ("manufacturer", &known.manufacturer),
            ("modelNumber", &known.model),
            ("serialNumber", &known.serial),
        ];
        for (name, text) in texts {
            if let Some(text) = text.as_ref().filter(|text| !text.is_empty()) {
                json.text(name, text);
            }
        }
        if known.specialisations.is_empty() {
            return;
        }
        json.key("specialization").array(|json| {
            for (code, version) in &known.specialisations {
                json.object(|json| {
                    json.key("systemType");
                    let code = mdc(Type::new(partition::INFRASTRUCTURE, *code)).to_string();
                    concept(json, &[(MDC, &code)], None);
                    if let Some(version) = version {
                        json.key("version").shown(version);
                    }
                });
            }
        });
    })
}

/// The Device resource of a gateway: manufacturer and software version.
pub fn gateway(system_id: SystemId, manufacturer: &str, model: &str, version: &str) -> Exported {
    device_resource(Some("PhgDevice"), system_id, GATEWAY_DEVICE, |json| {
        json.text("manufacturer", manufacturer);
        json.text("modelNumber", model);
        json.key("version").array(|json| {
            json.object(|json| {
                json.key("type");
                let code = SOFTWARE_REVISION.to_string();
                concept(json, &[(MDC, &code)], Some("MDC_ID_PROD_SPEC_SW"));
                json.text("value", version);
            });
        });
        json.key("property").array(|json| {
            json.object(|json| {
                json.key("type");
                concept(json, &[(BITS, UNREGULATED)], Some("unregulated-device"));
                json.key("valueCode").array(|json| concept(json, &[(YES_NO, "Y")], None));
            });
        });
    })
}

fn device_resource(
    profile: Option<&str>,
    system_id: SystemId,
    (code, name): (u32, &str),
    more: impl FnOnce(&mut Json<'_>),
) -> Exported {
    let identifier = Eui64(system_id, "-").to_string();
    let mut resource = String::new();
    Json::new(&mut resource).object(|json| {
        json.text("resourceType", "Device");
        if let Some(profile) = profile {
            meta(json, profile, MeasurementStatus::default());
        }
        json.key("identifier").array(|json| {
            json.object(|json| {
                json.key("type");
                concept(json, &[(DEVICE_IDENTIFIERS, "SYSID")], None);
                json.text("system", EUI64);
                json.text("value", &identifier);
            });
        });
        json.key("type");
        concept(json, &[(MDC, &code.to_string())], Some(name));
        more(json);
    });
    let full_url = Some(uuid(system_id));
    Exported { resource_type: "Device", resource, identifier, system: Some(EUI64), full_url }
}

/// Name of a device's resource within a transaction: a UUID of version 8 (RFC 9562 §5.8) that
/// contains the EUI-64.
fn uuid(SystemId(octets): SystemId) -> String {
    let id = u64::from_be_bytes(octets);
    // The version stands behind 48 bits, the variant behind 12 more; the rest is "gateway".
    let [high, middle, low] = [id >> 32, id >> 16 & 0xFFFF, id >> 4 & 0x0FFF];
    let last = 0x8000 | (id & 0x0F) << 8 | u64::from(b'g');
    format!("urn:uuid:{high:08x}-{middle:04x}-8{low:03x}-{last:04x}-617465776179")
}

/// Comparison of a device's reported clock with the gateway's, which shows the accuracy of its
/// observations' times. `None` if the device's time is no valid date.
pub fn coincident(
    context: &Context<'_>,
    system_id: SystemId,
    clock: AbsoluteTime,
) -> Option<Exported> {
    let told = clock.to_unix()?;
    let patient = context.patient;
    let identifier = format!("{}-{patient}-{CLOCK}-{}", Eui64(system_id, ""), Compact(clock));
    let mut resource = String::new();
    Json::new(&mut resource).object(|json| {
        json.text("resourceType", "Observation");
        // The profile wants the gateway that saw the clock.
        if context.gateway.is_some() {
            meta(json, "PhdCoincidentTimeStampObservation", MeasurementStatus::default());
        }
        json.key("identifier").array(|json| json.object(|json| json.text("value", &identifier)));
        json.text("status", "final");
        json.key("category").array(|json| {
            concept(json, &[(CATEGORIES, "phd-observation")], None);
        });
        json.key("code");
        concept(json, &[(MDC, &CLOCK.to_string())], Some("MDC_ATTR_TIME_ABS"));
        // It is about the device and seen by the gateway.
        reference(json, "subject", context.device);
        let received = context.received.micros() / 10_000;
        json.key("effectiveDateTime").shown(Moment { hundredths: received, offset: 0 });
        let told = Moment { hundredths: told, offset: context.offset_minutes };
        json.key("valueDateTime").shown(told);
        if let Some(gateway) = context.gateway {
            reference(json, "device", gateway);
        }
    });
    let full_url = None;
    Some(Exported { resource_type: "Observation", resource, identifier, system: None, full_url })
}

/// A transaction that creates each resource unless one with its identifier exists.
pub fn transaction<'a>(resources: impl IntoIterator<Item = &'a Exported>) -> String {
    let mut text = String::new();
    Json::new(&mut text).object(|json| {
        json.text("resourceType", "Bundle");
        json.text("type", "transaction");
        json.key("entry").array(|json| {
            for Exported { resource_type, resource, identifier, system, full_url } in resources {
                json.object(|json| {
                    if let Some(full_url) = full_url {
                        json.text("fullUrl", full_url);
                    }
                    json.key("resource").raw(resource);
                    json.key("request").object(|json| {
                        json.text("method", "POST");
                        json.text("url", resource_type);
                        let system = system.unwrap_or_default();
                        let criteria = format!("{}|{}", Query(system), Query(identifier));
                        json.text("ifNoneExist", &format!("identifier={criteria}"));
                    });
                });
            }
        });
    });
    text
}

fn coding(json: &mut Json<'_>, system: &str, code: &str) {
    json.object(|json| {
        json.text("system", system);
        json.text("code", code);
    });
}

/// A CodeableConcept.
fn concept(json: &mut Json<'_>, codings: &[(&str, &str)], text: Option<&str>) {
    json.object(|json| {
        json.key("coding").array(|json| {
            for (system, code) in codings {
                coding(json, system, code);
            }
        });
        if let Some(text) = text {
            json.text("text", text);
        }
    });
}

fn reference(json: &mut Json<'_>, name: &str, target: &str) {
    json.key(name).object(|json| json.text("reference", target));
}

/// A system-id in capital hexadecimal, its octets joined by something.
struct Eui64<'a>(SystemId, &'a str);

impl fmt::Display for Eui64<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(SystemId(octets), separator) = self;
        for (place, octet) in octets.iter().enumerate() {
            let separator = if place == 0 { "" } else { separator };
            write!(f, "{separator}{octet:02X}")?;
        }
        Ok(())
    }
}

/// A value in an identifier.
struct Shown<'a>(Value<'a>);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::None | Value::Samples(_) => Ok(()),
            Value::Number(number) => number.fmt(f),
            Value::Code(code) => mdc(code).fmt(f),
            Value::Bits16(bits) => write!(f, "{bits:04X}"),
            Value::Bits32(bits) => write!(f, "{bits:08X}"),
            Value::Text(octets) => {
                f.write_str(String::from_utf8_lossy(octets).trim_end_matches('\0'))
            }
        }
    }
}

/// A device's time in an identifier: `20230221T083640.00`.
struct Compact(AbsoluteTime);

impl fmt::Display for Compact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [century, year, month, day, hour, minute, second, hundredth] = self.0.0;
        write!(f, "{century:02x}{year:02x}{month:02x}{day:02x}T")?;
        write!(f, "{hour:02x}{minute:02x}{second:02x}.{hundredth:02x}")
    }
}

/// A FHIR dateTime: local time with its offset from UTC.
struct Moment {
    hundredths: u64,
    offset: i16,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = AbsoluteTime::from_unix(self.hundredths).iso();
        let text = shown.map(|iso| iso.to_string()).unwrap_or_default();
        f.write_str(text.strip_suffix(".00").unwrap_or(&text))?;
        if self.offset == 0 {
            return f.write_str("Z");
        }
        let sign = if self.offset < 0 { '-' } else { '+' };
        let minutes = self.offset.unsigned_abs();
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

/// A text in a query: everything but unreserved characters of URIs is escaped (RFC 3986 §2.1).
struct Query<'a>(&'a str);

impl fmt::Display for Query<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for octet in self.0.bytes() {
            if octet.is_ascii_alphanumeric() || b"-._~:".contains(&octet) {
                f.write_char(char::from(octet))?;
            } else {
                write!(f, "%{octet:02X}")?;
            }
        }
        Ok(())
    }
}
