//! What is written into a CSE is read back as it was, whatever was measured.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail loudly"
)]

use gatewright_health::code::{Handle, SystemId, class};
use gatewright_health::convert::{MeasurementStatus, Observation, Timestamps, Value as Measured};
use gatewright_health::decimal::{Decimal, Number};
use gatewright_health::specialisation::{self, Specialisation};
use gatewright_health::time::{AbsoluteTime, BaseOffsetTime};
use gatewright_interwork::device::ObjectContainer;
use gatewright_interwork::fhir::{Description, described, device};
use gatewright_interwork::stored::{Stored, kind, system_id, together};
use gatewright_interwork::{Device, Instances, Mapping, ReportArrival};
use gatewright_onem2m::Timestamp;
use proptest::prelude::*;
use serde_json::Value;

const DEVICE: SystemId = SystemId([0, 0x22, 0x09, 0x22, 0x5C, 0xFE, 0x4D, 0x32]);
/// 2026-11-21T13:00:00Z.
const NOW: Timestamp = Timestamp::from_micros(1_795_266_000_000_000);

fn resources(kind: &Specialisation) -> Device {
    Device::new(&Mapping::default(), "cse-mn", DEVICE, 7, &kind.configuration().unwrap())
}

/// What the requests that make a device's resources say of each: content by name.
fn made(device: &Device) -> Vec<Value> {
    let requests = device.registration(&Mapping::default());
    let content = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let inner = |content: Value| content.as_object().unwrap().values().next().unwrap().clone();
    requests.iter().map(|it| inner(content(it.content.as_deref().unwrap()))).collect()
}

fn labels(resource: &Value) -> Vec<&str> {
    let list = resource["lbl"].as_array();
    list.into_iter().flatten().map(|label| label.as_str().unwrap()).collect()
}

#[test]
fn labels_tell_the_device_and_its_objects() {
    let mapping = Mapping::default();
    for known in specialisation::ALL {
        let device = resources(known);
        let made = made(&device);
        assert_eq!(system_id(&labels(&made[0])), Some(DEVICE));
        // An extended configuration does not say the kind; the device will.
        let told = if known.config.is_standard() { known.name } else { "device" };
        assert_eq!(kind(&labels(&made[0])), Some(told));
        for (resource, place) in made[1..].iter().zip(device.places()) {
            let name = resource["rn"].as_str().unwrap();
            let read =
                ObjectContainer::stored(&mapping, name, &place.address, &labels(resource)).unwrap();
            assert_eq!(
                (read.handle, read.kind, read.class),
                (place.handle, place.kind, place.class)
            );
            assert_eq!((read.unit, &read.supplemental), (place.unit, &place.supplemental));
            assert_eq!(read.rule(&mapping), place.rule(&mapping));
        }
        let rest = &made[1 + device.places().len()..];
        assert_eq!(rest.len(), 3);
        for resource in rest {
            assert_eq!(ObjectContainer::stored(&mapping, "x", "cse-mn/x", &labels(resource)), None);
        }
    }
}

fn numbers() -> impl Strategy<Value = Number> {
    let finite = (-8_388_604..8_388_604_i32, -20..20_i8)
        .prop_map(|(mantissa, exponent)| Number::finite(mantissa, exponent))
        // Zeros behind a whole number are digits when they are read back.
        .prop_filter("as it is shown", |number| {
            number.to_string().parse().ok() == number.decimal()
        });
    prop_oneof![
        8 => finite,
        1 => prop_oneof![
            Just(Number::NotANumber),
            Just(Number::NotAtThisResolution),
            Just(Number::PositiveInfinity),
            Just(Number::NegativeInfinity),
            Just(Number::Reserved),
        ],
    ]
}

fn times() -> impl Strategy<Value = Timestamps> {
    let base = (any::<u32>(), any::<i16>());
    (
        prop::option::of(0..400_000_000_000_u64),
        prop::option::of(any::<u32>()),
        prop::option::of(any::<u64>()),
        prop::option::of(base),
    )
        .prop_map(|(calendar, relative, high_resolution, base)| Timestamps {
            absolute: calendar.map(AbsoluteTime::from_unix),
            relative,
            high_resolution,
            base_offset: base.map(|(seconds, offset_minutes)| BaseOffsetTime {
                seconds,
                fraction: 0,
                offset_minutes,
            }),
        })
}

/// Periods in seconds, as short as JSON's numbers are written again.
fn periods() -> impl Strategy<Value = Decimal> {
    let shortest = |(mantissa, exponent): &(i32, i8)| *exponent == 0 || mantissa % 10 != 0;
    let drawn = (0_i32..0x7F_FFFE, -9_i8..=0).prop_filter("shortest", shortest);
    drawn.prop_map(|(mantissa, exponent)| Decimal::new(mantissa, exponent))
}

/// Value of an object of a class.
#[derive(Clone, Debug)]
enum Drawn {
    Number(Number),
    Code(u16, u16),
    Bits16(u16),
    Bits32(u32),
    Text(String),
}

fn values(of: gatewright_health::code::ObjectClass) -> BoxedStrategy<Drawn> {
    if of == class::NUMERIC {
        return numbers().prop_map(Drawn::Number).boxed();
    }
    prop_oneof![
        any::<(u16, u16)>().prop_map(|(partition, code)| Drawn::Code(partition, code)),
        any::<u16>().prop_map(Drawn::Bits16),
        any::<u32>().prop_map(Drawn::Bits32),
        "[g-z][ a-z\"é]{0,20}[g-z]".prop_map(Drawn::Text),
    ]
    .boxed()
}

proptest! {
    #[test]
    fn what_was_written_is_read(
        (known, place, value) in (0..specialisation::ALL.len(), any::<prop::sample::Index>())
            .prop_flat_map(|(known, index)| {
                let device = resources(specialisation::ALL[known]);
                let place = index.get(device.places()).clone();
                (Just(known), Just(place.handle), values(place.class))
            }),
        time in times(),
        person in prop::option::of(any::<u16>()),
        period in prop::option::of(periods()),
        bits in any::<u16>(),
        report in any::<u64>(),
        micros in 0..4_000_000_000_000_000_u64,
    ) {
        let mapping = Mapping::default();
        let device = resources(specialisation::ALL[known]);
        let place = device.place(place).unwrap();
        let status = MeasurementStatus::NAMES.iter().fold(0, |all, (bit, _)| all | (bits & bit));
        let observation = Observation {
            handle: place.handle,
            component: 0,
            person: person.map(gatewright_health::code::PersonId),
            kind: place.kind,
            value: match &value {
                Drawn::Number(number) => Measured::Number(*number),
                Drawn::Code(partition, code) => {
                    Measured::Code(gatewright_health::code::Type::new(*partition, *code))
                }
                Drawn::Bits16(bits) => Measured::Bits16(*bits),
                Drawn::Bits32(bits) => Measured::Bits32(*bits),
                Drawn::Text(text) => Measured::Text(text.as_bytes()),
            },
            unit: place.unit,
            time,
            active_period: period,
            status: MeasurementStatus(status),
            source: Some(Handle(9)),
            waveform: None,
        };
        let received = Timestamp::from_micros(micros);
        let mut instances = Instances::new();
        instances.start(ReportArrival { report, received });
        let made = instances.make(&mapping, &device, &observation).unwrap();
        let content: Value = serde_json::from_str(made.content).unwrap();
        let (name, con) = (made.name.to_string(), &content["m2m:cin"]["con"]);
        let read = Stored::read(&mapping, place, &name, con).unwrap();
        prop_assert_eq!(read.observation(), observation);
        prop_assert_eq!((read.received, read.nth), (received, 0));
        prop_assert!(name.len() <= 64, "FHIR takes no longer id: {}", name);
    }

    #[test]
    fn other_content_is_no_reading_and_no_panic(name in ".{0,40}", con in ".{0,80}") {
        let mapping = Mapping::default();
        let device = resources(&specialisation::SCALE);
        let con: Value = serde_json::from_str(&con).unwrap_or(Value::String(con));
        let _ = Stored::read(&mapping, &device.places()[0], &name, &con);
    }
}

/// The three values of a blood pressure are one measurement; the next three are the next.
#[test]
fn values_of_a_compound_come_together() {
    let mapping = Mapping::default();
    let device = resources(&specialisation::BLOOD_PRESSURE);
    let place = device.places().iter().find(|place| place.name == "blood-pressure").unwrap();
    let mut instances = Instances::new();
    instances.start(ReportArrival { report: 3, received: NOW });
    let mut stored = Vec::new();
    for (turn, code) in [(0, 18_949), (0, 18_950), (0, 18_951), (1, 18_949), (1, 18_950)] {
        let kind = gatewright_health::code::Type::new(2, code);
        let value = Measured::Number(Number::finite(100 + turn, 0));
        let observation = Observation {
            handle: place.handle,
            component: 0,
            person: None,
            kind,
            value,
            unit: place.unit,
            time: Timestamps::default(),
            active_period: None,
            status: MeasurementStatus::default(),
            source: None,
            waveform: None,
        };
        let made = instances.make(&mapping, &device, &observation).unwrap();
        let content: Value = serde_json::from_str(made.content).unwrap();
        let con = &content["m2m:cin"]["con"];
        stored.push(Stored::read(&mapping, place, &made.name.to_string(), con).unwrap());
    }
    stored.reverse();
    let groups = together(place, stored);
    assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [3, 2]);
}

/// The description that a gateway keeps gives the same Device as the device's own attributes.
#[test]
fn a_description_is_kept_whole() {
    use gatewright_health::code::attribute;
    let mapping = Mapping::default();
    let sized = |text: &str| {
        let length = u16::try_from(text.len()).unwrap().to_be_bytes();
        [&length[..], text.as_bytes()].concat()
    };
    let model = [sized("Acme"), sized("Ox 7")].concat();
    let serial = [&[0, 1, 0, 0][..], &sized("SN-0042")].concat();
    let length = u16::try_from(serial.len()).unwrap().to_be_bytes();
    let production = [&[0, 1][..], &length, &serial].concat();
    let attributes = vec![
        (attribute::MODEL, model),
        (attribute::PRODUCTION, production),
        (attribute::SPECIALISATIONS, vec![0, 1, 0, 4, 0x10, 0x04, 0, 1]),
    ];
    let request = resources(&specialisation::OXIMETER).about(&mapping, &attributes, NOW);
    let content: Value = serde_json::from_str(request.content.as_deref().unwrap()).unwrap();
    let known = Description::stored(&mapping, &content["m2m:cin"]["con"]);
    let expected = Description {
        manufacturer: Some("Acme".to_owned()),
        model: Some("Ox 7".to_owned()),
        serial: Some("SN-0042".to_owned()),
        specialisations: vec![(4100, Some(1))],
    };
    assert_eq!(known, expected, "{content}");
    assert_eq!(described(DEVICE, &known), device(&mapping, DEVICE, &attributes));
}
