//! Codes of ISO/IEEE 11073-10101 that personal health devices use, one type for each kind.

use crate::mder::{Element, Malformed, MderWriter, Reader};
use core::fmt;

/// Declares 16-bit codes, each its own type.
macro_rules! codes {
    ($($(#[$doc:meta])+ $name:ident;)+) => { $(
        $(#[$doc])+
        #[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub struct $name(pub u16);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl Element<'_> for $name {
            fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
                reader.u16().map(Self)
            }

            fn put(&self, writer: &mut MderWriter) {
                writer.u16(self.0);
            }
        }
    )+ };
}

codes! {
    /// Handle of an agent's object; 0 is the MDS, the device itself.
    Handle;
    /// Attribute.
    AttributeId;
    /// Class of an object.
    ObjectClass;
    /// Type of an event report.
    EventType;
    /// Type of an action.
    ActionType;
    /// A unit of measurement (partition 4, dimensions).
    UnitCode;
    /// Number that a response shares with its request.
    InvokeId;
    /// Configuration of an agent, standard or extended.
    ConfigId;
    /// Person measured, on a device that several persons use.
    PersonId;
    /// Number of the data request that a scan report belongs to.
    DataRequestId;
}

impl Handle {
    /// The device itself.
    pub const MDS: Self = Self(0);
}

impl PersonId {
    /// The measured person is unknown to the device.
    pub const UNKNOWN: Self = Self(0xFFFF);
}

impl DataRequestId {
    /// The agent reports on its own initiative.
    pub const AGENT_INITIATED: Self = Self(0xF000);
}

impl ConfigId {
    /// Configuration number of a manager.
    pub const MANAGER: Self = Self(0x0000);
    /// First of the extended configurations.
    pub const EXTENDED_FIRST: Self = Self(0x4000);
    /// Last of the extended configurations.
    pub const EXTENDED_LAST: Self = Self(0x7FFF);

    /// Whether a specialisation standard defines this configuration.
    pub const fn is_standard(self) -> bool {
        self.0 > Self::MANAGER.0 && self.0 < Self::EXTENDED_FIRST.0
    }

    /// Whether the maker of the device defines this configuration.
    pub const fn is_extended(self) -> bool {
        self.0 >= Self::EXTENDED_FIRST.0 && self.0 <= Self::EXTENDED_LAST.0
    }
}

/// A device's unique EUI-64.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SystemId(pub [u8; 8]);

impl SystemId {
    /// Reads the octets of a system-id attribute.
    ///
    /// # Errors
    ///
    /// [`Malformed::SystemId`] if there are not eight.
    pub fn from_octets(octets: &[u8]) -> Result<Self, Malformed> {
        let eui64 = octets.try_into().map(Self);
        eui64.map_err(|_| Malformed::SystemId { length: octets.len() })
    }
}

/// Sixteen hexadecimal digits.
impl fmt::Display for SystemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

/// A code within its partition, such as the quantity measured.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Type {
    /// The part of the nomenclature.
    pub partition: u16,
    /// The code within it.
    pub code: u16,
}

impl Type {
    /// Combines partition and code.
    pub const fn new(partition: u16, code: u16) -> Self {
        Self { partition, code }
    }

    /// The standard's name of the quantity or coded value, if this crate knows it.
    pub fn name(self) -> Option<&'static str> {
        METRICS.iter().find(|(kind, _)| *kind == self).map(|&(_, name)| name)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.partition, self.code)
    }
}

impl Element<'_> for Type {
    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self { partition: reader.u16()?, code: reader.u16()? })
    }

    fn put(&self, writer: &mut MderWriter) {
        writer.u16(self.partition);
        writer.u16(self.code);
    }
}

impl UnitCode {
    /// The unit in UCUM, where this crate knows it.
    pub fn ucum(self) -> Option<&'static str> {
        UNITS.iter().find(|(unit, _)| *unit == self).map(|&(_, ucum)| ucum)
    }
}

/// Partitions of the nomenclature.
pub mod partition {
    /// Objects and their attributes.
    pub const OBJECT: u16 = 1;
    /// Physiological measurements.
    pub const SCADA: u16 = 2;
    /// Units.
    pub const DIMENSION: u16 = 4;
    /// Infrastructure: device specialisations.
    pub const INFRASTRUCTURE: u16 = 8;
    /// Disease management.
    pub const DISEASE: u16 = 128;
    /// Health and fitness.
    pub const FITNESS: u16 = 129;
    /// Living independently: medication among others.
    pub const AGEING: u16 = 130;
}

/// Classes of objects.
pub mod class {
    use super::ObjectClass;
    /// A coded or textual measurement.
    pub const ENUMERATION: ObjectClass = ObjectClass(5);
    /// A numeric measurement.
    pub const NUMERIC: ObjectClass = ObjectClass(6);
    /// A waveform.
    pub const SAMPLE_ARRAY: ObjectClass = ObjectClass(9);
    /// A scanner that reports on events.
    pub const EPISODIC_SCANNER: ObjectClass = ObjectClass(18);
    /// A scanner that reports at intervals.
    pub const PERIODIC_SCANNER: ObjectClass = ObjectClass(19);
    /// The device.
    pub const MDS: ObjectClass = ObjectClass(37);
    /// A store of measurements taken without a connection.
    pub const PM_STORE: ObjectClass = ObjectClass(61);
    /// One segment of a store.
    pub const PM_SEGMENT: ObjectClass = ObjectClass(62);
}

/// Attributes.
pub mod attribute {
    use super::AttributeId;
    /// Whether a scanner's reports are confirmed.
    pub const CONFIRM_MODE: AttributeId = AttributeId(0x0913);
    /// Instance number.
    pub const INSTANCE: AttributeId = AttributeId(0x0922);
    /// Manufacturer and model.
    pub const MODEL: AttributeId = AttributeId(0x0928);
    /// Code of what is measured, in the partition of the type.
    pub const METRIC_ID: AttributeId = AttributeId(0x092B);
    /// Serial number, revisions.
    pub const PRODUCTION: AttributeId = AttributeId(0x092D);
    /// Type of the measurement.
    pub const TYPE: AttributeId = AttributeId(0x092F);
    /// Sampling algorithm of a store.
    pub const STORE_SAMPLE_ALGORITHM: AttributeId = AttributeId(0x0943);
    /// Number of entries in a store.
    pub const STORE_USAGE: AttributeId = AttributeId(0x0944);
    /// Quality of a measurement.
    pub const MEASUREMENT_STATUS: AttributeId = AttributeId(0x0947);
    /// Several values with code, status and unit each.
    pub const COMPOUND: AttributeId = AttributeId(0x094B);
    /// One value with code, status and unit.
    pub const NUMERIC: AttributeId = AttributeId(0x0950);
    /// Number of segments in a store.
    pub const SEGMENTS: AttributeId = AttributeId(0x0951);
    /// Whether a scanner or segment is at work.
    pub const OPERATIONAL_STATE: AttributeId = AttributeId(0x0953);
    /// Mains, battery, charging.
    pub const POWER_STATUS: AttributeId = AttributeId(0x0955);
    /// Interval of a periodic scanner.
    pub const REPORTING_INTERVAL: AttributeId = AttributeId(0x0975);
    /// Number of entries in a segment.
    pub const SEGMENT_USAGE: AttributeId = AttributeId(0x097B);
    /// EUI-64 of the device.
    pub const SYSTEM_ID: AttributeId = AttributeId(0x0984);
    /// Type of the device, if it is of one only.
    pub const SYSTEM_TYPE: AttributeId = AttributeId(0x0986);
    /// Coding of a waveform's samples.
    pub const SAMPLE_SPECIFICATION: AttributeId = AttributeId(0x096D);
    /// Scale and offset of samples of 16 bits.
    pub const SCALE_16: AttributeId = AttributeId(0x096F);
    /// Scale and offset of samples of 32 bits.
    pub const SCALE_32: AttributeId = AttributeId(0x0970);
    /// Scale and offset of samples of 8 bits.
    pub const SCALE_8: AttributeId = AttributeId(0x0971);
    /// Time from one sample of a waveform to the next, in 1/8 ms.
    pub const SAMPLE_PERIOD: AttributeId = AttributeId(0x098D);
    /// The device's clock.
    pub const TIME_ABSOLUTE: AttributeId = AttributeId(0x0987);
    /// The device's running counter, in 1/8 ms.
    pub const TIME_RELATIVE: AttributeId = AttributeId(0x098F);
    /// Time of a measurement, by the device's clock.
    pub const TIMESTAMP_ABSOLUTE: AttributeId = AttributeId(0x0990);
    /// Time of a measurement, by the device's running counter.
    pub const TIMESTAMP_RELATIVE: AttributeId = AttributeId(0x0991);
    /// Unit of measurement.
    pub const UNIT: AttributeId = AttributeId(0x0996);
    /// Charge of the battery in percent.
    pub const BATTERY: AttributeId = AttributeId(0x099C);
    /// A coded value with code and status.
    pub const ENUMERATION: AttributeId = AttributeId(0x099E);
    /// Time of a measurement, by the device's fine counter, in microseconds.
    pub const TIMESTAMP_HIGH_RESOLUTION: AttributeId = AttributeId(0x09E9);
    /// Configuration.
    pub const CONFIG_ID: AttributeId = AttributeId(0x0A44);
    /// Capabilities of the device's clocks.
    pub const TIME_INFO: AttributeId = AttributeId(0x0A45);
    /// Availability of a measurement: stored, fixed, updated on request.
    pub const METRIC_SPEC: AttributeId = AttributeId(0x0A46);
    /// The object that a measurement belongs to.
    pub const SOURCE_HANDLE: AttributeId = AttributeId(0x0A47);
    /// Samples of a waveform.
    pub const SAMPLES: AttributeId = AttributeId(0x0A48);
    /// A code as value.
    pub const ENUMERATION_OID: AttributeId = AttributeId(0x0A49);
    /// A text as value.
    pub const ENUMERATION_TEXT: AttributeId = AttributeId(0x0A4A);
    /// An SFLOAT as value.
    pub const NUMERIC_BASIC: AttributeId = AttributeId(0x0A4C);
    /// Capabilities of a store.
    pub const STORE_CAPABILITIES: AttributeId = AttributeId(0x0A4D);
    /// Layout of a segment's entries.
    pub const SEGMENT_MAP: AttributeId = AttributeId(0x0A4E);
    /// Layout of a scanner's grouped observations.
    pub const HANDLE_VALUE_MAP: AttributeId = AttributeId(0x0A53);
    /// Layout of an object's fixed observations.
    pub const VALUE_MAP: AttributeId = AttributeId(0x0A55);
    /// A FLOAT as value.
    pub const NUMERIC_SIMPLE: AttributeId = AttributeId(0x0A56);
    /// Name of a store.
    pub const STORE_LABEL: AttributeId = AttributeId(0x0A57);
    /// Name of a segment.
    pub const SEGMENT_LABEL: AttributeId = AttributeId(0x0A58);
    /// Duration of the measured activity: a FLOAT, in seconds.
    pub const ACTIVE_PERIOD: AttributeId = AttributeId(0x0A59);
    /// Specialisations that the device follows.
    pub const SPECIALISATIONS: AttributeId = AttributeId(0x0A5A);
    /// Partition of a metric id.
    pub const METRIC_ID_PARTITION: AttributeId = AttributeId(0x0A5F);
    /// Partition of a coded value.
    pub const ENUMERATION_PARTITION: AttributeId = AttributeId(0x0A60);
    /// More about the measurement: modality, place.
    pub const SUPPLEMENTAL: AttributeId = AttributeId(0x0A61);
    /// Longest duration of clearing a store.
    pub const CLEAR_TIMEOUT: AttributeId = AttributeId(0x0A63);
    /// 32 flags as value.
    pub const ENUMERATION_BITS32: AttributeId = AttributeId(0x0A65);
    /// 16 flags as value.
    pub const ENUMERATION_BITS16: AttributeId = AttributeId(0x0A66);
    /// Number of values in a compound.
    pub const METRIC_STRUCTURE: AttributeId = AttributeId(0x0A73);
    /// Several FLOATs as value.
    pub const COMPOUND_SIMPLE: AttributeId = AttributeId(0x0A74);
    /// Several SFLOATs as value.
    pub const COMPOUND_BASIC: AttributeId = AttributeId(0x0A75);
    /// The codes of a compound's values.
    pub const METRIC_IDS: AttributeId = AttributeId(0x0A76);
    /// The objects that a scanner watches.
    pub const SCAN_HANDLES: AttributeId = AttributeId(0x0A77);
    /// Time of a measurement, as base time with offset from UTC (20601:2014).
    pub const TIMESTAMP_BASE_OFFSET: AttributeId = AttributeId(0x0A82);
}

/// Types of event reports.
pub mod event {
    use super::EventType;
    /// The agent's configuration.
    pub const CONFIG: EventType = EventType(0x0D1C);
    /// First of the reports of measurements.
    pub const SCAN_FIXED: EventType = EventType(0x0D1D);
    /// Measurements with their attributes named.
    pub const SCAN_VAR: EventType = EventType(0x0D1E);
    /// As [`SCAN_FIXED`], for several persons.
    pub const SCAN_MP_FIXED: EventType = EventType(0x0D1F);
    /// As [`SCAN_VAR`], for several persons.
    pub const SCAN_MP_VAR: EventType = EventType(0x0D20);
    /// Entries of a store's segment.
    pub const SEGMENT_DATA: EventType = EventType(0x0D21);
    /// Episodic scanner, attributes named.
    pub const UNBUFFERED_VAR: EventType = EventType(0x0D22);
    /// Episodic scanner, fixed.
    pub const UNBUFFERED_FIXED: EventType = EventType(0x0D23);
    /// Episodic scanner, grouped.
    pub const UNBUFFERED_GROUPED: EventType = EventType(0x0D24);
    /// Episodic scanner, several persons, attributes named.
    pub const UNBUFFERED_MP_VAR: EventType = EventType(0x0D25);
    /// Episodic scanner, several persons, fixed.
    pub const UNBUFFERED_MP_FIXED: EventType = EventType(0x0D26);
    /// Episodic scanner, several persons, grouped.
    pub const UNBUFFERED_MP_GROUPED: EventType = EventType(0x0D27);
    /// Periodic scanner, attributes named.
    pub const BUFFERED_VAR: EventType = EventType(0x0D28);
    /// Periodic scanner, fixed.
    pub const BUFFERED_FIXED: EventType = EventType(0x0D29);
    /// Periodic scanner, grouped.
    pub const BUFFERED_GROUPED: EventType = EventType(0x0D2A);
    /// Periodic scanner, several persons, attributes named.
    pub const BUFFERED_MP_VAR: EventType = EventType(0x0D2B);
    /// Periodic scanner, several persons, fixed.
    pub const BUFFERED_MP_FIXED: EventType = EventType(0x0D2C);
    /// Periodic scanner, several persons, grouped.
    pub const BUFFERED_MP_GROUPED: EventType = EventType(0x0D2D);
}

/// Types of actions.
pub mod action {
    use super::ActionType;
    /// Empties segments of a store.
    pub const SEGMENT_CLEAR: ActionType = ActionType(0x0C0C);
    /// Describes segments of a store.
    pub const SEGMENT_INFO: ActionType = ActionType(0x0C0D);
    /// Sets the device's clock.
    pub const SET_TIME: ActionType = ActionType(0x0C17);
    /// Requests measurements.
    pub const DATA_REQUEST: ActionType = ActionType(0x0C1B);
    /// Starts the transfer of a segment.
    pub const SEGMENT_TRANSFER: ActionType = ActionType(0x0C1C);
}

/// Units that this crate's specialisations use.
pub mod unit {
    use super::UnitCode;
    /// Litre.
    pub const LITRE: UnitCode = UnitCode(1_600);
    /// Breaths per minute.
    pub const BREATHS_PER_MINUTE: UnitCode = UnitCode(2_784);
    /// Litre per minute.
    pub const LITRE_PER_MINUTE: UnitCode = UnitCode(3_072);
    /// Millivolt.
    pub const MILLIVOLT: UnitCode = UnitCode(4_274);
    /// International unit.
    pub const INTERNATIONAL_UNIT: UnitCode = UnitCode(5_472);
    /// International normalised ratio.
    pub const INR: UnitCode = UnitCode(6_608);
    /// Percent.
    pub const PERCENT: UnitCode = UnitCode(0x0220);
    /// Centimetre.
    pub const CENTIMETRE: UnitCode = UnitCode(0x0511);
    /// Metre.
    pub const METRE: UnitCode = UnitCode(0x0500);
    /// Millilitre.
    pub const MILLILITRE: UnitCode = UnitCode(0x0652);
    /// Kilogram.
    pub const KILOGRAM: UnitCode = UnitCode(0x06C3);
    /// Milligram.
    pub const MILLIGRAM: UnitCode = UnitCode(0x06D2);
    /// Kilogram per square metre.
    pub const KILOGRAM_PER_SQUARE_METRE: UnitCode = UnitCode(0x07A0);
    /// Milligram per decilitre.
    pub const MILLIGRAM_PER_DECILITRE: UnitCode = UnitCode(0x0852);
    /// Minute.
    pub const MINUTE: UnitCode = UnitCode(0x08A0);
    /// Beats per minute.
    pub const BEATS_PER_MINUTE: UnitCode = UnitCode(0x0AA0);
    /// Millimetre of mercury.
    pub const MILLIMETRE_OF_MERCURY: UnitCode = UnitCode(0x0F20);
    /// Degree Celsius.
    pub const DEGREE_CELSIUS: UnitCode = UnitCode(0x17A0);
    /// Step.
    pub const STEP: UnitCode = UnitCode(0x1A00);
}

/// The standard's names of quantities and coded values.
const METRICS: &[(Type, &str)] = &[
    (Type::new(2, 256), "MDC_ECG_ELEC_POTL"),
    (Type::new(2, 257), "MDC_ECG_ELEC_POTL_I"),
    (Type::new(2, 258), "MDC_ECG_ELEC_POTL_II"),
    (Type::new(2, 317), "MDC_ECG_ELEC_POTL_III"),
    (Type::new(2, 16_168), "MDC_ECG_TIME_PD_RR_GL"),
    (Type::new(2, 16_770), "MDC_ECG_HEART_RATE"),
    (Type::new(2, 18_458), "MDC_PULS_OXIM_PULS_RATE"),
    (Type::new(2, 18_474), "MDC_PULS_RATE_NON_INV"),
    (Type::new(2, 18_948), "MDC_PRESS_BLD_NONINV"),
    (Type::new(2, 18_949), "MDC_PRESS_BLD_NONINV_SYS"),
    (Type::new(2, 18_950), "MDC_PRESS_BLD_NONINV_DIA"),
    (Type::new(2, 18_951), "MDC_PRESS_BLD_NONINV_MEAN"),
    (Type::new(2, 19_292), "MDC_TEMP_BODY"),
    (Type::new(2, 19_320), "MDC_TEMP_TYMP"),
    (Type::new(2, 19_376), "MDC_PULS_OXIM_PERF_REL"),
    (Type::new(2, 19_380), "MDC_PULS_OXIM_PLETH"),
    (Type::new(2, 19_384), "MDC_PULS_OXIM_SAT_O2"),
    (Type::new(2, 20_490), "MDC_RESP_RATE"),
    (Type::new(2, 21_512), "MDC_FLOW_AWAY_EXP_FORCED_PEAK"),
    (Type::new(2, 21_513), "MDC_FLOW_AWAY_EXP_FORCED_PEAK_PB"),
    (Type::new(2, 21_514), "MDC_VOL_AWAY_EXP_FORCED_1S"),
    (Type::new(2, 21_515), "MDC_VOL_AWAY_EXP_FORCED_6S"),
    (Type::new(2, 28_948), "MDC_CONC_GLU_GEN"),
    (Type::new(2, 29_112), "MDC_CONC_GLU_CAPILLARY_WHOLEBLOOD"),
    (Type::new(2, 29_116), "MDC_CONC_GLU_CAPILLARY_PLASMA"),
    (Type::new(2, 29_120), "MDC_CONC_GLU_VENOUS_WHOLEBLOOD"),
    (Type::new(2, 29_124), "MDC_CONC_GLU_VENOUS_PLASMA"),
    (Type::new(2, 29_136), "MDC_CONC_GLU_CONTROL"),
    (Type::new(2, 29_140), "MDC_CONC_GLU_ISF"),
    (Type::new(2, 29_148), "MDC_CONC_HBA1C"),
    (Type::new(2, 29_188), "MDC_RATIO_INR_COAG"),
    (Type::new(2, 29_192), "MDC_TIME_PD_COAG"),
    (Type::new(2, 29_196), "MDC_QUICK_VALUE_COAG"),
    (Type::new(2, 57_348), "MDC_TEMP_RECT"),
    (Type::new(2, 57_352), "MDC_TEMP_ORAL"),
    (Type::new(2, 57_356), "MDC_TEMP_EAR"),
    (Type::new(2, 57_360), "MDC_TEMP_FINGER"),
    (Type::new(2, 57_380), "MDC_TEMP_AXILLA"),
    (Type::new(2, 57_664), "MDC_MASS_BODY_ACTUAL"),
    (Type::new(2, 57_668), "MDC_LEN_BODY_ACTUAL"),
    (Type::new(2, 57_676), "MDC_BODY_FAT"),
    (Type::new(2, 57_680), "MDC_RATIO_MASS_BODY_LEN_SQ"),
    (Type::new(2, 57_684), "MDC_MASS_BODY_FAT_FREE"),
    (Type::new(2, 57_688), "MDC_MASS_BODY_SOFT_LEAN"),
    (Type::new(2, 57_692), "MDC_BODY_WATER"),
    (Type::new(2, 58_368), "MDC_INS_DELIV_BASAL"),
    (Type::new(2, 58_380), "MDC_INS_DELIV_BOLUS_FAST"),
    (Type::new(2, 58_384), "MDC_INS_DELIV_BOLUS_SLOW"),
    (Type::new(128, 29_152), "MDC_CTXT_GLU_EXERCISE"),
    (Type::new(128, 29_256), "MDC_CTXT_GLU_MEAL"),
    (Type::new(129, 103), "MDC_HF_DISTANCE"),
    (Type::new(129, 110), "MDC_HF_SPEED"),
    (Type::new(129, 119), "MDC_HF_ENERGY"),
    (Type::new(129, 123), "MDC_HF_SESSION"),
    (Type::new(129, 124), "MDC_HF_SUBSESSION"),
    (Type::new(129, 125), "MDC_HF_ACTIVITY_TIME"),
    (Type::new(129, 127), "MDC_HF_ACTIVITY_INTENSITY"),
    (Type::new(129, 1_000), "MDC_HF_ACT_AMB"),
    (Type::new(129, 1_001), "MDC_HF_ACT_REST"),
    (Type::new(129, 1_002), "MDC_HF_ACT_MOTOR"),
    (Type::new(129, 1_003), "MDC_HF_ACT_LYING"),
    (Type::new(129, 1_004), "MDC_HF_ACT_SLEEP"),
    (Type::new(129, 1_005), "MDC_HF_ACT_PHYS"),
    (Type::new(129, 1_006), "MDC_HF_ACT_SUS_PHYS"),
    (Type::new(129, 1_007), "MDC_HF_ACT_UNKNOWN"),
    (Type::new(129, 1_008), "MDC_HF_ACT_MULTIPLE"),
    (Type::new(129, 1_009), "MDC_HF_ACT_MONITOR"),
    (Type::new(129, 1_010), "MDC_HF_ACT_SKI"),
    (Type::new(129, 1_011), "MDC_HF_ACT_RUN"),
    (Type::new(129, 1_012), "MDC_HF_ACT_BIKE"),
    (Type::new(129, 1_013), "MDC_HF_ACT_STAIR"),
    (Type::new(129, 1_014), "MDC_HF_ACT_ROW"),
    (Type::new(129, 1_015), "MDC_HF_ACT_HOME"),
    (Type::new(129, 1_016), "MDC_HF_ACT_WORK"),
    (Type::new(129, 1_017), "MDC_HF_ACT_WALK"),
    (Type::new(130, 13_312), "MDC_AI_MED_DISPENSED_FIXED"),
    (Type::new(130, 13_313), "MDC_AI_MED_DISPENSED_VARIABLE"),
    (Type::new(130, 13_314), "MDC_AI_MED_STATUS"),
    (Type::new(130, 13_315), "MDC_AI_MED_FEEDBACK"),
    (Type::new(130, 13_316), "MDC_AI_MED_UF_LOCATION"),
    (Type::new(130, 13_317), "MDC_AI_MED_UF_RESPONSE"),
    (Type::new(130, 13_318), "MDC_AI_MED_UF_TYPE_YESNO"),
    (Type::new(130, 13_319), "MDC_AI_MED_UF_TYPE_1_5"),
];

/// Units in UCUM, the unit system of FHIR.
const UNITS: &[(UnitCode, &str)] = &[
    (UnitCode(0x0200), "1"),
    (UnitCode(1_760), "[lb_av]"),
    (unit::LITRE, "L"),
    (UnitCode(2_176), "s"),
    (UnitCode(2_194), "ms"),
    (UnitCode(2_272), "d"),
    (UnitCode(2_368), "a"),
    (unit::BREATHS_PER_MINUTE, "{breaths}/min"),
    (UnitCode(2_816), "m/s"),
    (unit::LITRE_PER_MINUTE, "L/min"),
    (UnitCode(3_842), "hPa"),
    (UnitCode(3_843), "kPa"),
    (UnitCode(3_968), "J"),
    (UnitCode(4_032), "W"),
    (UnitCode(4_256), "V"),
    (unit::MILLIVOLT, "mV"),
    (UnitCode(4_288), "Ohm"),
    (UnitCode(4_384), "K"),
    (UnitCode(4_416), "[degF]"),
    (UnitCode(4_723), "umol/L"),
    (unit::INTERNATIONAL_UNIT, "[iU]"),
    (UnitCode(5_696), "[iU]/h"),
    (unit::INR, "{INR}"),
    (unit::PERCENT, "%"),
    (unit::METRE, "m"),
    (unit::CENTIMETRE, "cm"),
    (UnitCode(0x0540), "[ft_i]"),
    (UnitCode(0x0560), "[in_i]"),
    (unit::MILLILITRE, "mL"),
    (UnitCode(0x06C0), "g"),
    (unit::KILOGRAM, "kg"),
    (unit::MILLIGRAM, "mg"),
    (unit::KILOGRAM_PER_SQUARE_METRE, "kg/m2"),
    (unit::MILLIGRAM_PER_DECILITRE, "mg/dL"),
    (unit::MINUTE, "min"),
    (UnitCode(0x08C0), "h"),
    (unit::BEATS_PER_MINUTE, "{beat}/min"),
    (unit::MILLIMETRE_OF_MERCURY, "mm[Hg]"),
    (UnitCode(0x1272), "mmol/L"),
    (unit::DEGREE_CELSIUS, "Cel"),
    (unit::STEP, "{steps}"),
    (UnitCode(0x1A80), "cal"),
];
