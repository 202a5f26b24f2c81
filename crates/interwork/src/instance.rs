//! Observations as contentInstances, named so that a second creation is a conflict.

use crate::device::{Device, ObjectContainer};
use crate::json::Json;
use crate::mapping::{Mapping, ValueSource};
use crate::template::{push_digits, push_number};
use core::fmt::{self, Write};
use gatewright_health::code::{Handle, SystemId, UnitCode};
use gatewright_health::configuration::{Scale, Waveform};
use gatewright_health::convert::{Observation, Value};
use gatewright_health::digest::digest;
use gatewright_health::time::AbsoluteTime;
use gatewright_onem2m::{Operation, Request, ResourceType, Timestamp};

/// Name of a reading, equal whenever it is made from the same report: system-id, epoch, report
/// number, handle, and index of the handle's value.
///
/// A CSE refuses a second instance of a name with *conflict*, which counts as success: exactly
/// once, by name. A report with the device's own time is the same report in any association: its
/// epoch is that time, its number a digest of the measurements ([`ReportIdentity`]). Any other report is
/// identified by its association's epoch and its unwrapped number in it, that of
/// [`Record`](gatewright_health::manager::Record). If it is recognised as repeated
/// ([`Repeats`](crate::repeats::Repeats)), it has the identity of the first one.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ReadingName {
    /// The device.
    pub system_id: SystemId,
    /// The device's time of its report, or its association's epoch.
    pub epoch: u64,
    /// The digest of its report, or its number in the association.
    pub report: u64,
    /// The object.
    pub handle: Handle,
    /// Index of the object's value in this report, from 0.
    pub nth: u32,
}

/// Written as `002209225cfe4d32-7-51-1`, with `-2` after it for the third value of the handle.
impl fmt::Display for ReadingName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { system_id, epoch, report, handle, nth } = self;
        write!(f, "{system_id}-{epoch}-{report}-{handle}")?;
        if *nth > 0 {
            write!(f, "-{nth}")?;
        }
        Ok(())
    }
}

/// Arrival of a report: number and time.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ReportArrival {
    /// The report's unwrapped number.
    pub report: u64,
    /// When the gateway received it.
    pub received: Timestamp,
}

/// Identity of a report that a device repeats in another association because the answer was lost.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ReportIdentity {
    /// Epoch in its name: the device's own time, or the epoch of the report's first association.
    pub epoch: u64,
    /// Report number in its name: a digest of the measurements, or its number there.
    pub report: u64,
}

impl ReportIdentity {
    /// Identity of a report whose first time, by the device's clock, is `time`; `measured` are its
    /// octets without the numbers that change.
    pub fn timed(time: u64, measured: &[u8]) -> Self {
        Self { epoch: time, report: digest(measured) }
    }
}

/// Builds instances of one report's observations; its buffers are reused.
#[derive(Debug, Default)]
pub struct Instances {
    arrival: ReportArrival,
    known: Option<ReportIdentity>,
    /// The time of arrival, written.
    received: String,
    /// Values per handle in this report.
    met: Vec<(Handle, u32)>,
    text: String,
}

/// One instance, ready to be created.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Instance<'text> {
    /// Its name.
    pub name: ReadingName,
    /// Its name as text.
    pub name_text: &'text str,
    /// Address of the container.
    pub container: &'text str,
    /// Originator.
    pub originator: &'text str,
    /// The content of the creation, JSON: `{"m2m:cin":{…}}`.
    pub content: &'text str,
}

impl Instance<'_> {
    /// The request that creates it.
    pub fn request(&self) -> Request {
        Request::new(Operation::Create, self.container, self.originator, self.name_text)
            .creating(ResourceType::ContentInstance, self.content)
    }
}

impl Instances {
    /// Ready for the first report.
    pub const fn new() -> Self {
        let arrival = ReportArrival { report: 0, received: Timestamp::from_micros(0) };
        Self { arrival, known: None, received: String::new(), met: Vec::new(), text: String::new() }
    }

    /// Starts a report with its own identity; value indices start at 0.
    pub fn start_known(&mut self, arrival: ReportArrival, known: ReportIdentity) {
        self.start(arrival);
        self.known = Some(known);
    }

    /// Starts a report identified by its number; value indices start at 0.
    pub fn start(&mut self, arrival: ReportArrival) {
        self.known = None;
        self.met.clear();
        let micros = arrival.received.micros();
        if self.received.is_empty() || micros / SECOND != self.arrival.received.micros() / SECOND {
            self.received.clear();
            // Writing into a `String` cannot fail.
            let _ = write!(self.received, "{}", arrival.received);
        } else {
            // Within the second only the six digits behind the comma differ.
            self.received.truncate(self.received.len().saturating_sub(FRACTION_DIGITS));
            push_digits(&mut self.received, micros % SECOND, FRACTION_DIGITS);
        }
        self.arrival = arrival;
    }

    /// The instance of an observation in the current report; `None` if the object has no container,
    /// because it is not in the device's configuration.
    pub fn make<'text>(
        &'text mut self,
        mapping: &Mapping,
        device: &'text Device,
        observation: &Observation<'_>,
    ) -> Option<Instance<'text>> {
        let place = device.place(observation.handle)?;
        let name = self.name(device, observation.handle);
        self.text.clear();
        self.text.push_str("{\"m2m:cin\":{\"rn\":\"");
        let start = self.text.len();
        push_name(&mut self.text, device, name);
        let written = start..self.text.len();
        self.content(mapping, place, observation);
        Some(Instance {
            name,
            name_text: self.text.get(written).unwrap_or_default(),
            container: &place.address,
            originator: device.originator(),
            content: &self.text,
        })
    }

    /// The complete request primitive of an observation, JSON with short names, as it is sent in
    /// *direct* delivery; `release` is the release version indicator.
    pub fn primitive(
        &mut self,
        mapping: &Mapping,
        device: &Device,
        observation: &Observation<'_>,
        release: &str,
    ) -> Option<&str> {
        let place = device.place(observation.handle)?;
        let name = self.name(device, observation.handle);
        self.text.clear();
        self.text.push_str(&place.primitive);
        let start = self.text.len();
        push_name(&mut self.text, device, name);
        let written = start..self.text.len();
        self.text.push_str("\",\"rvi\":\"");
        self.text.push_str(release);
        self.text.push_str("\",\"ty\":4,\"pc\":{\"m2m:cin\":{\"rn\":\"");
        self.text.extend_from_within(written);
        self.content(mapping, place, observation);
        self.text.push('}');
        Some(&self.text)
    }

    /// The time of arrival of the current report, and the reused buffer.
    pub(crate) const fn received_and_text(&mut self) -> (&str, &mut String) {
        (self.received.as_str(), &mut self.text)
    }

    fn name(&mut self, device: &Device, handle: Handle) -> ReadingName {
        let mut nth = 0;
        if let Some((_, count)) = self.met.iter_mut().find(|(met, _)| *met == handle) {
            *count += 1;
            nth = *count;
        } else {
            self.met.push((handle, 0));
        }
        let system_id = device.system_id();
        let (epoch, report) = match self.known {
            Some(known) => (known.epoch, known.report),
            None => (device.epoch(), self.arrival.report),
        };
        ReadingName { system_id, epoch, report, handle, nth }
    }

    /// The content of a creation behind its name: media type and the members that the mapping
    /// names.
    fn content(
        &mut self,
        mapping: &Mapping,
        place: &ObjectContainer,
        observation: &Observation<'_>,
    ) {
        let text = &mut self.text;
        text.push_str("\",\"cnf\":\"application/json:0\",\"con\":");
        match place.templates.iter().find(|template| template.fits(observation)) {
            Some(template) => {
                text.push('{');
                template.write(text, &self.received, self.arrival, observation);
                text.push('}');
            }
            // The device says something else than its configuration: every member anew.
            None => Json::new(text).object(|json| {
                for field in &mapping.fields {
                    member(json, &field.name, field.source, self.arrival, observation);
                }
            }),
        }
        text.push_str("}}");
    }
}

/// Microseconds in a second.
const SECOND: u64 = 1_000_000;
/// Digits behind the comma of a oneM2M time.
const FRACTION_DIGITS: usize = 6;

/// Start of a primitive, up to the name of the reading in its request identifier.
///
/// Addresses consist of unreserved characters of URIs: nothing needs an escape.
pub(crate) fn primitive_head(address: &str, originator: &str) -> String {
    const CREATE: u8 = Operation::Create.number();
    format!(r#"{{"op":{CREATE},"to":"{address}","fr":"{originator}","rqi":""#)
}

/// Writes the name of a reading; the device's part is cached.
fn push_name(text: &mut String, device: &Device, name: ReadingName) {
    let (system, epoch) = device.name_head();
    text.push_str(system);
    if name.epoch == device.epoch() {
        text.push_str(epoch);
    } else {
        push_number(text, name.epoch);
        text.push('-');
    }
    push_number(text, name.report);
    text.push('-');
    push_number(text, name.handle.0.into());
    if name.nth > 0 {
        text.push('-');
        push_number(text, name.nth.into());
    }
}

/// Writes a member, unless its value is missing.
pub(crate) fn member(
    json: &mut Json<'_>,
    name: &str,
    source: ValueSource,
    arrival: ReportArrival,
    observation: &Observation<'_>,
) {
    let time = &observation.time;
    match source {
        ValueSource::Value => value(json, name, observation.value),
        ValueSource::Meaning => {
            if let Some(term) = meaning(observation) {
                json.text(name, term);
            }
        }
        ValueSource::Unit => {
            if let Some(ucum) = observation.unit.and_then(UnitCode::ucum) {
                json.text(name, ucum);
            }
        }
        ValueSource::UnitCode => number(json, name, observation.unit.map(|unit| unit.0)),
        ValueSource::Type => json.key(name).shown(observation.kind),
        ValueSource::Name => {
            if let Some(term) = observation.kind.name() {
                json.text(name, term);
            }
        }
        ValueSource::Person => number(json, name, observation.person.map(|person| person.0)),
        ValueSource::DeviceTime => {
            if let Some(iso) = time.absolute.and_then(AbsoluteTime::iso) {
                json.key(name).shown(iso);
            }
        }
        ValueSource::DeviceTimeOctets => {
            if let Some(time) = time.absolute.filter(|time| time.parts().is_none()) {
                json.key(name).shown(Hex(&time.0));
            }
        }
        ValueSource::Waveform => {
            if let Some(waveform) = observation.waveform {
                json.key(name).object(|json| samples(json, waveform));
            }
        }
        ValueSource::DeviceTicks => number(json, name, time.relative),
        ValueSource::DeviceMicros => number(json, name, time.high_resolution),
        ValueSource::DeviceBase => {
            if let Some(base) = time.base_offset {
                json.key(name).object(|json| {
                    json.key("seconds").raw(base.seconds);
                    json.key("offsetMinutes").raw(base.offset_minutes);
                });
            }
        }
        ValueSource::Received => json.key(name).shown(arrival.received),
        ValueSource::Period => {
            if let Some(seconds) = observation.active_period {
                json.key(name).raw(seconds);
            }
        }
        ValueSource::Status => {
            if observation.status.0 != 0 {
                json.key(name).array(|json| {
                    observation.status.names().for_each(|bit| json.string(bit));
                });
            }
        }
        ValueSource::BelongsTo => number(json, name, observation.source.map(|handle| handle.0)),
        ValueSource::Report => json.key(name).raw(arrival.report),
    }
}

/// Writes a waveform's sample parameters, as far as the device reports them.
fn samples(json: &mut Json<'_>, waveform: Waveform) {
    if let Some(ticks) = waveform.period {
        // Ticks of 1/8 ms, which are 125 microseconds.
        let micros = u64::from(ticks) * 125;
        let (seconds, rest) = (micros / SECOND, micros % SECOND);
        json.key("period").raw(format_args!("{seconds}.{rest:06}"));
    }
    if let Some(form) = waveform.samples {
        json.key("count").raw(form.count);
        json.key("bits").raw(form.bits);
        json.key("significantBits").raw(form.significant);
        json.key("flags").shown(format_args!("{:04x}", form.flags));
    }
    if let Some(Scale { values: [low, high], samples: [lowest, highest] }) = waveform.scale {
        json.key("low").shown(low);
        json.key("high").shown(high);
        json.key("lowSample").raw(lowest);
        json.key("highSample").raw(highest);
    }
}

/// The standard's name of a coded value, where it is known.
pub(crate) fn meaning(observation: &Observation<'_>) -> Option<&'static str> {
    let Value::Code(code) = observation.value else { return None };
    code.name()
}

fn number(json: &mut Json<'_>, name: &str, value: Option<impl fmt::Display>) {
    if let Some(value) = value {
        json.key(name).raw(value);
    }
}

/// Writes a value: decimals as text, so that no reader rounds them.
fn value(json: &mut Json<'_>, name: &str, value: Value<'_>) {
    match value {
        Value::None => {}
        Value::Number(number) => json.key(name).shown(number),
        Value::Code(code) => json.key(name).shown(code),
        Value::Bits16(bits) => json.key(name).shown(format_args!("{bits:04x}")),
        Value::Bits32(bits) => json.key(name).shown(format_args!("{bits:08x}")),
        Value::Text(octets) => {
            let text = String::from_utf8_lossy(octets);
            json.text(name, text.trim_end_matches('\0'));
        }
        Value::Samples(octets) => json.key(name).shown(Hex(octets)),
    }
}

/// Octets in hexadecimal.
pub(crate) struct Hex<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

/// The flexContainer with the rounded value, if the object's rule has one: short name with
/// namespace, and the content of a creation (`created`) or of an update.
pub fn view(
    mapping: &Mapping,
    place: &ObjectContainer,
    observation: &Observation<'_>,
    created: bool,
) -> Option<String> {
    let view = place.rule(mapping)?.view.as_ref()?;
    let Value::Number(number) = observation.value else { return None };
    let whole = rounded(number.decimal()?)?;
    let mut text = String::new();
    Json::new(&mut text).object(|json| {
        json.key(&view.tag).object(|json| {
            if created {
                json.text("rn", &format!("{}-view", place.name));
                json.text("cnd", &view.definition);
            }
            json.key(&view.attribute).raw(whole);
        });
    });
    Some(text)
}

/// The nearest whole number, half away from zero; `None` beyond 64 bits.
fn rounded(decimal: gatewright_health::decimal::Decimal) -> Option<i64> {
    let mantissa = i64::from(decimal.mantissa);
    let Ok(zeros) = u32::try_from(decimal.exponent) else {
        let Some(unit) = 10_i64.checked_pow(u32::from(decimal.exponent.unsigned_abs())) else {
            return Some(0);
        };
        return Some((mantissa + mantissa.signum() * (unit / 2)) / unit);
    };
    mantissa.checked_mul(10_i64.checked_pow(zeros)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_health::decimal::Decimal;

    #[test]
    fn whole_numbers_are_the_nearest() {
        let cases = [
            (965, -1, Some(97)),
            (964, -1, Some(96)),
            (-965, -1, Some(-97)),
            (7, 2, Some(700)),
            (1, -30, Some(0)),
            (1, 30, None),
        ];
        for (mantissa, exponent, expected) in cases {
            assert_eq!(rounded(Decimal::new(mantissa, exponent)), expected);
        }
    }

    #[test]
    fn times_of_arrival_are_written_anew() {
        let mut instances = Instances::new();
        for micros in [1_795_266_000_000_007, 1_795_266_000_999_999, 1_795_266_001_000_000, 0] {
            let received = Timestamp::from_micros(micros);
            instances.start(ReportArrival { report: 0, received });
            assert_eq!(instances.received, received.to_string());
        }
    }
}
