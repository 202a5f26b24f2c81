//! Device specialisations known by name, and their configurations.
//!
//! Standard configurations are those of the specialisations (ISO/IEEE 11073-104zz); an agent that
//! offers one need not report it. The extended ones (4001 to 4009) are this project's own: the
//! objects of those specialisations' standard configurations are not public, so a manager requests
//! the configuration from a device that offers one.

use crate::apdu::Attribute;
use crate::code::{
    AttributeId, ConfigId, Handle, ObjectClass, Type, UnitCode, attribute, class, partition, unit,
};
use crate::configuration::{Configuration, ConfigurationBuilder, MapEntry, value_map};
use crate::mder::TooLong;

/// A kind of device with its configuration.
#[derive(Clone, Copy, Debug)]
pub struct Specialisation {
    /// Its name, as `gatewright device simulate --kind` takes it.
    pub name: &'static str,
    /// The standard that describes it.
    pub standard: &'static str,
    /// Its code as a device specialisation (partition 8).
    pub profile: u16,
    /// The number of its configuration.
    pub config: ConfigId,
    /// Its metrics.
    pub metrics: &'static [Metric],
}

/// A measurement of a specialisation.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Numeric or coded.
    pub class: ObjectClass,
    /// The handle in this configuration.
    pub handle: Handle,
    /// The quantity measured.
    pub kind: Type,
    /// Its availability, as bits (MetricSpecSmall).
    pub spec: u16,
    /// Its unit.
    pub unit: Option<UnitCode>,
    /// Further attributes, in octets.
    pub more: &'static [(AttributeId, &'static [u8])],
    /// Attributes of an observation.
    pub map: &'static [MapEntry],
}

/// Stored data, agent-initiated, measured.
const SPEC_STREAM: u16 = 0x4040;
/// Intermittent, stored data, aperiodic, agent-initiated, measured.
const SPEC_SPOT: u16 = 0xF040;

const fn entry(attribute: AttributeId, length: u16) -> MapEntry {
    MapEntry { attribute, length }
}

const BASIC: &[MapEntry] = &[entry(attribute::NUMERIC_BASIC, 2)];
const BASIC_AT: &[MapEntry] =
    &[entry(attribute::NUMERIC_BASIC, 2), entry(attribute::TIMESTAMP_ABSOLUTE, 8)];
const SIMPLE_AT: &[MapEntry] =
    &[entry(attribute::NUMERIC_SIMPLE, 4), entry(attribute::TIMESTAMP_ABSOLUTE, 8)];
const THREE_AT: &[MapEntry] =
    &[entry(attribute::COMPOUND_BASIC, 10), entry(attribute::TIMESTAMP_ABSOLUTE, 8)];
const BITS_AT: &[MapEntry] =
    &[entry(attribute::ENUMERATION_BITS16, 2), entry(attribute::TIMESTAMP_ABSOLUTE, 8)];
const OID_LASTING_AT: &[MapEntry] = &[
    entry(attribute::ENUMERATION_OID, 2),
    entry(attribute::ACTIVE_PERIOD, 4),
    entry(attribute::TIMESTAMP_ABSOLUTE, 8),
];

/// Of spot modality: 2:19516, as the examples of the HL7 guide for personal health devices show.
const SPOT: &[(AttributeId, &[u8])] = &[(attribute::SUPPLEMENTAL, &[0, 1, 0, 4, 0, 2, 0x4C, 0x3C])];
/// A compound of three: systolic, diastolic, mean.
const THREE_PRESSURES: &[(AttributeId, &[u8])] = &[
    (attribute::METRIC_STRUCTURE, &[3, 3]),
    (attribute::METRIC_IDS, &[0, 3, 0, 6, 0x4A, 0x05, 0x4A, 0x06, 0x4A, 0x07]),
];
/// Belongs to the session, handle 1.
const IN_SESSION: &[(AttributeId, &[u8])] = &[(attribute::SOURCE_HANDLE, &[0, 1])];

const fn numeric(
    handle: u16,
    kind: Type,
    spec: u16,
    unit: UnitCode,
    map: &'static [MapEntry],
) -> Metric {
    let handle = Handle(handle);
    Metric { class: class::NUMERIC, handle, kind, spec, unit: Some(unit), more: &[], map }
}

const fn coded(handle: u16, kind: Type, map: &'static [MapEntry]) -> Metric {
    let handle = Handle(handle);
    let spec = SPEC_SPOT;
    Metric { class: class::ENUMERATION, handle, kind, spec, unit: None, more: &[], map }
}

const fn physiological(code: u16) -> Type {
    Type::new(partition::SCADA, code)
}

const fn fitness(code: u16) -> Type {
    Type::new(partition::FITNESS, code)
}

const fn medication(code: u16) -> Type {
    Type::new(partition::AGEING, code)
}

/// Pulse oximeter, continuous (10404, configuration 0190).
pub const OXIMETER: Specialisation = Specialisation {
    name: "oximeter",
    standard: "ISO/IEEE 11073-10404",
    profile: 4100,
    config: ConfigId(0x0190),
    metrics: &[
        numeric(1, physiological(19_384), SPEC_STREAM, unit::PERCENT, BASIC),
        numeric(10, physiological(18_458), SPEC_STREAM, unit::BEATS_PER_MINUTE, BASIC),
    ],
};

/// Pulse oximeter, spot check (10404, configuration 0191).
pub const SPOT_OXIMETER: Specialisation = Specialisation {
    name: "spot-oximeter",
    config: ConfigId(0x0191),
    metrics: &[
        Metric {
            more: SPOT,
            ..numeric(1, physiological(19_384), SPEC_SPOT, unit::PERCENT, BASIC_AT)
        },
        Metric {
            more: SPOT,
            ..numeric(10, physiological(18_458), SPEC_SPOT, unit::BEATS_PER_MINUTE, BASIC_AT)
        },
    ],
    ..OXIMETER
};

/// Blood pressure monitor (10407, configuration 02BC).
pub const BLOOD_PRESSURE: Specialisation = Specialisation {
    name: "blood-pressure",
    standard: "ISO/IEEE 11073-10407",
    profile: 4103,
    config: ConfigId(0x02BC),
    metrics: &[
        Metric {
            more: THREE_PRESSURES,
            ..numeric(1, physiological(18_948), SPEC_SPOT, unit::MILLIMETRE_OF_MERCURY, THREE_AT)
        },
        numeric(2, physiological(18_474), SPEC_SPOT, unit::BEATS_PER_MINUTE, BASIC_AT),
    ],
};

/// Thermometer (10408, configuration 0320).
pub const THERMOMETER: Specialisation = Specialisation {
    name: "thermometer",
    standard: "ISO/IEEE 11073-10408",
    profile: 4104,
    config: ConfigId(0x0320),
    metrics: &[numeric(1, physiological(19_292), SPEC_SPOT, unit::DEGREE_CELSIUS, SIMPLE_AT)],
};

/// Weighing scale (10415, configuration 05DC).
pub const SCALE: Specialisation = Specialisation {
    name: "scale",
    standard: "ISO/IEEE 11073-10415",
    profile: 4111,
    config: ConfigId(0x05DC),
    metrics: &[numeric(1, physiological(57_664), SPEC_SPOT, unit::KILOGRAM, SIMPLE_AT)],
};

/// Glucose meter (10417, configuration 06A4).
pub const GLUCOSE: Specialisation = Specialisation {
    name: "glucose",
    standard: "ISO/IEEE 11073-10417",
    profile: 4113,
    config: ConfigId(0x06A4),
    metrics: &[numeric(
        1,
        physiological(29_112),
        SPEC_SPOT,
        unit::MILLIGRAM_PER_DECILITRE,
        BASIC_AT,
    )],
};

/// Medication dispenser (10472; our configuration 4001).
pub const DISPENSER: Specialisation = Specialisation {
    name: "dispenser",
    standard: "ISO/IEEE 11073-10472",
    profile: 4168,
    config: ConfigId(0x4001),
    metrics: &[
        numeric(1, medication(13_312), SPEC_SPOT, UnitCode(0x0200), BASIC_AT),
        numeric(2, medication(13_313), SPEC_SPOT, unit::MILLIGRAM, SIMPLE_AT),
        coded(3, medication(13_314), BITS_AT),
    ],
};

/// Activity monitor (10441; our configuration 4002).
pub const ACTIVITY: Specialisation = Specialisation {
    name: "activity",
    standard: "ISO/IEEE 11073-10441",
    profile: 4137,
    config: ConfigId(0x4002),
    metrics: &[
        coded(1, fitness(123), OID_LASTING_AT),
        Metric { more: IN_SESSION, ..numeric(2, fitness(103), SPEC_SPOT, unit::METRE, SIMPLE_AT) },
        Metric { more: IN_SESSION, ..coded(3, fitness(125), OID_LASTING_AT) },
        Metric { more: IN_SESSION, ..numeric(4, fitness(127), SPEC_SPOT, unit::PERCENT, BASIC_AT) },
        Metric { more: IN_SESSION, ..numeric(5, fitness(103), SPEC_SPOT, unit::STEP, SIMPLE_AT) },
    ],
};

/// Sample parameters of the simulated electrocardiogram.
const ECG_SAMPLES: &[(AttributeId, &[u8])] = &[
    // 80 ticks of 1/8 ms: a hundred samples a second.
    (attribute::SAMPLE_PERIOD, &[0, 0, 0, 80]),
    // From -2 to 2 mV in 800 steps.
    (attribute::SCALE_16, &[0x00, 0xFF, 0xFF, 0xFE, 0, 0, 0, 2, 0, 0, 0x03, 0x20]),
    // Twenty samples of 16 bits, all significant, unsigned.
    (attribute::SAMPLE_SPECIFICATION, &[0, 20, 16, 16, 0, 0]),
];
const SAMPLES_AT: &[MapEntry] =
    &[entry(attribute::SAMPLES, 42), entry(attribute::TIMESTAMP_ABSOLUTE, 8)];

/// Basic electrocardiograph (10406; our configuration 4003).
pub const ECG: Specialisation = Specialisation {
    name: "ecg",
    standard: "ISO/IEEE 11073-10406",
    profile: 4102,
    config: ConfigId(0x4003),
    metrics: &[
        Metric {
            class: class::SAMPLE_ARRAY,
            more: ECG_SAMPLES,
            ..numeric(1, physiological(257), SPEC_STREAM, unit::MILLIVOLT, SAMPLES_AT)
        },
        numeric(2, physiological(16_770), SPEC_STREAM, unit::BEATS_PER_MINUTE, BASIC_AT),
    ],
};

/// INR meter (10418; our configuration 4004).
pub const INR: Specialisation = Specialisation {
    name: "inr",
    standard: "ISO/IEEE 11073-10418",
    profile: 4114,
    config: ConfigId(0x4004),
    metrics: &[numeric(1, physiological(29_188), SPEC_SPOT, unit::INR, BASIC_AT)],
};

/// Insulin pump (10419; our configuration 4005).
pub const INSULIN_PUMP: Specialisation = Specialisation {
    name: "insulin-pump",
    standard: "ISO/IEEE 11073-10419",
    profile: 4115,
    config: ConfigId(0x4005),
    metrics: &[numeric(1, physiological(58_380), SPEC_SPOT, unit::INTERNATIONAL_UNIT, SIMPLE_AT)],
};

/// Body composition analyser (10420; our configuration 4006).
pub const BODY_COMPOSITION: Specialisation = Specialisation {
    name: "body-composition",
    standard: "ISO/IEEE 11073-10420",
    profile: 4116,
    config: ConfigId(0x4006),
    metrics: &[
        numeric(1, physiological(57_664), SPEC_SPOT, unit::KILOGRAM, SIMPLE_AT),
        numeric(2, physiological(57_676), SPEC_SPOT, unit::PERCENT, SIMPLE_AT),
        numeric(3, physiological(57_684), SPEC_SPOT, unit::KILOGRAM, SIMPLE_AT),
    ],
};

/// Peak expiratory flow monitor (10421; our configuration 4007).
pub const PEAK_FLOW: Specialisation = Specialisation {
    name: "peak-flow",
    standard: "ISO/IEEE 11073-10421",
    profile: 4117,
    config: ConfigId(0x4007),
    metrics: &[
        numeric(1, physiological(21_512), SPEC_SPOT, unit::LITRE_PER_MINUTE, BASIC_AT),
        numeric(2, physiological(21_514), SPEC_SPOT, unit::LITRE, BASIC_AT),
    ],
};

/// Continuous glucose monitor (10425; our configuration 4008).
pub const CONTINUOUS_GLUCOSE: Specialisation = Specialisation {
    name: "continuous-glucose",
    standard: "ISO/IEEE 11073-10425",
    profile: 4121,
    config: ConfigId(0x4008),
    metrics: &[numeric(
        1,
        physiological(29_140),
        SPEC_STREAM,
        unit::MILLIGRAM_PER_DECILITRE,
        BASIC_AT,
    )],
};

/// Respiration rate monitor (our configuration 4009).
pub const RESPIRATION_RATE: Specialisation = Specialisation {
    name: "respiration-rate",
    standard: "ISO/IEEE 11073-20601",
    profile: 4109,
    config: ConfigId(0x4009),
    metrics: &[numeric(1, physiological(20_490), SPEC_STREAM, unit::BREATHS_PER_MINUTE, BASIC_AT)],
};

/// Every kind of device that can be simulated; [`KINDS`](crate::kind::KINDS) has all names.
pub const ALL: [&Specialisation; 15] = [
    &OXIMETER,
    &SPOT_OXIMETER,
    &BLOOD_PRESSURE,
    &THERMOMETER,
    &SCALE,
    &GLUCOSE,
    &DISPENSER,
    &ACTIVITY,
    &ECG,
    &INR,
    &INSULIN_PUMP,
    &BODY_COMPOSITION,
    &PEAK_FLOW,
    &CONTINUOUS_GLUCOSE,
    &RESPIRATION_RATE,
];

impl Specialisation {
    /// The kind called `name`.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.into_iter().find(|known| known.name == name)
    }

    /// The octets of its configuration report.
    ///
    /// # Errors
    ///
    /// [`TooLong`] if it has too many metrics; those of this module have not.
    pub fn octets(&self) -> Result<Vec<u8>, TooLong> {
        let mut builder = ConfigurationBuilder::new();
        for metric in self.metrics {
            builder = metric.report(builder)?;
        }
        builder.finish(self.config)
    }

    /// Its configuration; `None` if that is invalid, which none of this module is.
    pub fn configuration(&self) -> Option<Configuration> {
        self.octets().ok().and_then(|octets| Configuration::from_octets(&octets).ok())
    }
}

impl Metric {
    fn report(&self, builder: ConfigurationBuilder) -> Result<ConfigurationBuilder, TooLong> {
        let [partition_high, partition_low] = self.kind.partition.to_be_bytes();
        let [high, low] = self.kind.code.to_be_bytes();
        let kind = [partition_high, partition_low, high, low];
        let spec = self.spec.to_be_bytes();
        let unit = self.unit.map(|unit| unit.0.to_be_bytes());
        let map = value_map(self.map)?;
        let mut attributes = vec![
            Attribute { id: attribute::TYPE, value: &kind },
            Attribute { id: attribute::METRIC_SPEC, value: &spec },
        ];
        attributes.extend(self.more.iter().map(|&(id, value)| Attribute { id, value }));
        attributes.extend(unit.as_ref().map(|value| Attribute { id: attribute::UNIT, value }));
        attributes.push(Attribute { id: attribute::VALUE_MAP, value: &map });
        builder.object(self.class, self.handle, &attributes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16);
        digits.chunks(2).map(|pair| octet(pair).unwrap()).collect()
    }

    /// The configuration that a thermometer's firmware reports, and those that a field manager
    /// builds for oximeter, blood pressure, scale and glucose meter.
    #[test]
    fn standard_configurations_are_those_of_the_field() {
        let cases = [
            (
                &THERMOMETER,
                "0320 0001 002C 0006 0001 0004 0024 092F 0004 00024B5C
                0A46 0002 F040 0996 0002 17A0 0A55 000C 0002 0008 0A56 0004 0990 0008",
            ),
            (
                &SCALE,
                "05DC 0001 002C 0006 0001 0004 0024 092F 0004 0002E140
                0A46 0002 F040 0996 0002 06C3 0A55 000C 0002 0008 0A56 0004 0990 0008",
            ),
            (
                &GLUCOSE,
                "06A4 0001 002C 0006 0001 0004 0024 092F 0004 000271B8
                0A46 0002 F040 0996 0002 0852 0A55 000C 0002 0008 0A4C 0002 0990 0008",
            ),
            (
                &OXIMETER,
                "0190 0002 0050 0006 0001 0004 0020 092F 0004 00024BB8
                0A46 0002 4040 0996 0002 0220 0A55 0008 0001 0004 0A4C 0002
                0006 000A 0004 0020 092F 0004 0002481A
                0A46 0002 4040 0996 0002 0AA0 0A55 0008 0001 0004 0A4C 0002",
            ),
            (
                &BLOOD_PRESSURE,
                "02BC 0002 006C 0006 0001 0006 0038 092F 0004 00024A04
                0A46 0002 F040 0A73 0002 0303 0A76 000A 0003 0006 4A05 4A06 4A07 0996 0002 0F20
                0A55 000C 0002 0008 0A75 000A 0990 0008
                0006 0002 0004 0024 092F 0004 0002482A
                0A46 0002 F040 0996 0002 0AA0 0A55 000C 0002 0008 0A4C 0002 0990 0008",
            ),
        ];
        for (specialisation, octets) in cases {
            assert_eq!(specialisation.octets().unwrap(), hex(octets), "{}", specialisation.name);
        }
    }

    #[test]
    fn every_kind_has_a_configuration() {
        for specialisation in ALL {
            let configuration = specialisation.configuration().unwrap();
            assert_eq!(configuration.objects().len(), specialisation.metrics.len());
            assert_eq!(
                Specialisation::named(specialisation.name).unwrap().config,
                configuration.id()
            );
        }
    }
}
