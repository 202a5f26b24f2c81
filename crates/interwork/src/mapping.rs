//! Mapping tables: devices to resources, and commands to operations.
//!
//! The tables are plain data with defaults; a configuration may replace or extend each of them.

use gatewright_health::code::{AttributeId, ObjectClass, Type, UnitCode, attribute, class, unit};
use gatewright_onem2m::address::is_name;

/// All mapping tables.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mapping {
    /// App-ID of the devices' AEs; begins with `N` (TS-0001 §7.1.3).
    pub app_id: String,
    /// Prefix of such an AE's name; the system-id follows.
    pub entity_prefix: String,
    /// Containers of objects: the first matching rule applies.
    pub rules: Vec<Rule>,
    /// Members of an instance's content, in this order.
    pub fields: Vec<MappedMember>,
    /// Commands to devices.
    pub commands: Vec<DeviceCommand>,
    /// Names and shapes of a device's attributes.
    pub attributes: Vec<Shown>,
    /// Instances that a container keeps, unless its rule says otherwise.
    pub instances_max: u64,
}

/// Condition of a rule; `None` matches everything.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ObjectMatch {
    /// The quantity.
    pub kind: Option<Type>,
    /// The class: numeric, coded, waveform.
    pub class: Option<ObjectClass>,
    /// The unit: the activity monitor's steps differ from its distance by unit alone.
    pub unit: Option<UnitCode>,
}

impl ObjectMatch {
    /// Whether an object of this type, class and unit matches.
    pub fn fits(&self, kind: Type, class: ObjectClass, unit: Option<UnitCode>) -> bool {
        self.kind.is_none_or(|wanted| wanted == kind)
            && self.class.is_none_or(|wanted| wanted == class)
            && self.unit.is_none_or(|wanted| Some(wanted) == unit)
    }
}

/// A mapping rule for objects.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rule {
    /// Matching objects.
    pub when: ObjectMatch,
    /// Name of the container; the handle is appended if another object has the same name or the
    /// name is empty.
    pub container: String,
    /// Labels of the container, beside those that every container gets.
    pub labels: Vec<String>,
    /// Instances that the container keeps.
    pub instances_max: Option<u64>,
    /// A flexContainer with the latest value rounded, for readers of TS-0023.
    pub view: Option<FlexView>,
    /// LOINC code, for FHIR.
    pub loinc: Option<String>,
    /// Whether FHIR calls it a vital sign.
    pub vital_sign: bool,
}

/// A flexContainer of TS-0023 with one whole number.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FlexView {
    /// containerDefinition.
    pub definition: String,
    /// Short name with its namespace.
    pub tag: String,
    /// The attribute.
    pub attribute: String,
}

/// One member of an instance's content.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MappedMember {
    /// Its name.
    pub name: String,
    /// Source of its value; without a value there is no member.
    pub source: ValueSource,
}

/// Source of a member's value.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ValueSource {
    /// The exact decimal as text, the code, the flags or the text.
    Value,
    /// The standard's name of a coded value.
    Meaning,
    /// The unit in UCUM.
    Unit,
    /// The unit's code.
    UnitCode,
    /// Partition and code of what is measured.
    Type,
    /// The standard's name of it.
    Name,
    /// The person measured.
    Person,
    /// Device time by its calendar clock, without zone.
    DeviceTime,
    /// Octets of the calendar clock if they are no valid date, in hexadecimal.
    DeviceTimeOctets,
    /// Device time by its relative clock, in 1/8 ms.
    DeviceTicks,
    /// Device time by its high-resolution clock, in microseconds.
    DeviceMicros,
    /// Device time by its base time: seconds since 1900 and minutes of offset.
    DeviceBase,
    /// Time of reception at the gateway, UTC.
    Received,
    /// Duration of the measurement, in seconds.
    Period,
    /// Measurement status: the names of the bits that are set.
    Status,
    /// Waveform parameters.
    Waveform,
    /// The object it belongs to.
    BelongsTo,
    /// The agent's number of the report.
    Report,
}

/// A command to a device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeviceCommand {
    /// Its name in a request.
    pub name: String,
    /// Its operation.
    pub verb: CommandAction,
}

/// Operation of a command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CommandAction {
    /// GET of some attributes of the device; none named means all.
    Read(Vec<AttributeId>),
    /// ACTION that sets the clock, to `time` or else to the gateway's.
    SetClock,
    /// ACTION that requests measurements: all, or those of `handles`.
    RequestData,
    /// ACTION that describes the segments of the store `handle`.
    DescribeStore,
    /// ACTION that starts the transfer of `segment` of the store `handle`.
    TransferSegment,
    /// ACTION that clears the store `handle`, or its `segments`.
    ClearStore,
    /// SET that starts or stops the scanner `handle`, as `enabled` says.
    EnableScanner,
}

/// Presentation of a device's attribute.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Shown {
    /// The attribute.
    pub id: AttributeId,
    /// Its name.
    pub name: String,
    /// Its shape.
    pub shape: AttributeType,
}

/// Type of an attribute's octets.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum AttributeType {
    /// A number of 16 bits.
    Number16,
    /// A number of 32 bits.
    Number32,
    /// An octet string, shown in hexadecimal.
    Octets,
    /// Texts, one after the other: manufacturer and model.
    Texts,
    /// Calendar time.
    Time,
    /// A list of specialisations and versions.
    Specialisations,
    /// A list of serial numbers and revisions.
    Production,
}

fn rule(kind: Type, container: &str, loinc: Option<&str>) -> Rule {
    Rule {
        when: ObjectMatch { kind: Some(kind), ..ObjectMatch::default() },
        container: container.to_owned(),
        vital_sign: loinc.is_some(),
        loinc: loinc.map(str::to_owned),
        ..Rule::default()
    }
}

/// Rules for the known specialisations. LOINC codes are those of the HL7 guide's examples and of
/// FHIR's vital signs profile; other measurements have none.
fn rules() -> Vec<Rule> {
    let oximeter_view = FlexView {
        definition: "org.onem2m.common.moduleclass.oximeter".to_owned(),
        tag: "cod:oximr".to_owned(),
        attribute: "oxySn".to_owned(),
    };
    let pulse_view = FlexView {
        definition: "org.onem2m.common.moduleclass.pulsemeter".to_owned(),
        tag: "cod:pulsr".to_owned(),
        attribute: "pulRe".to_owned(),
    };
    let pulse = rule(Type::new(2, 18_458), "pulse-rate", Some("8867-4"));
    let saturation = rule(Type::new(2, 19_384), "spo2", Some("2708-6"));
    let steps = rule(Type::new(129, 103), "steps", None);
    let steps = Rule { when: ObjectMatch { unit: Some(unit::STEP), ..steps.when }, ..steps };
    let waveform = Rule {
        when: ObjectMatch { class: Some(class::SAMPLE_ARRAY), ..ObjectMatch::default() },
        container: "waveform".to_owned(),
        ..Rule::default()
    };
    vec![
        Rule { view: Some(oximeter_view), ..saturation },
        Rule { view: Some(pulse_view), ..pulse },
        rule(Type::new(2, 18_474), "pulse-rate", Some("8867-4")),
        rule(Type::new(2, 18_948), "blood-pressure", Some("85354-9")),
        rule(Type::new(2, 19_292), "temperature", Some("8310-5")),
        rule(Type::new(2, 57_664), "weight", Some("29463-7")),
        rule(Type::new(2, 57_668), "height", Some("8302-2")),
        rule(Type::new(2, 57_680), "body-mass-index", Some("39156-5")),
        rule(Type::new(2, 29_112), "glucose", None),
        rule(Type::new(2, 29_140), "interstitial-glucose", None),
        rule(Type::new(2, 57_676), "body-fat", None),
        rule(Type::new(2, 57_684), "fat-free-mass", None),
        rule(Type::new(2, 16_770), "heart-rate", Some("8867-4")),
        rule(Type::new(2, 20_490), "respiration-rate", Some("9279-1")),
        rule(Type::new(2, 21_512), "peak-flow", None),
        rule(Type::new(2, 21_514), "forced-volume", None),
        rule(Type::new(2, 29_188), "inr", None),
        rule(Type::new(2, 58_380), "insulin-bolus", None),
        steps,
        rule(Type::new(129, 103), "distance", None),
        rule(Type::new(129, 123), "session", None),
        rule(Type::new(129, 125), "activity-time", None),
        rule(Type::new(129, 127), "intensity", None),
        rule(Type::new(130, 13_312), "dispensed-fixed", None),
        rule(Type::new(130, 13_313), "dispensed-variable", None),
        rule(Type::new(130, 13_314), "medication-status", None),
        waveform,
        Rule { container: "object".to_owned(), ..Rule::default() },
    ]
}

impl Default for Mapping {
    fn default() -> Self {
        let field =
            |(name, source): (&str, ValueSource)| MappedMember { name: name.to_owned(), source };
        let command =
            |(name, verb): (&str, CommandAction)| DeviceCommand { name: name.to_owned(), verb };
        let shown = |(id, name, shape): (AttributeId, &str, AttributeType)| Shown {
            id,
            name: name.to_owned(),
            shape,
        };
        let fields = [
            ("value", ValueSource::Value),
            ("meaning", ValueSource::Meaning),
            ("unit", ValueSource::Unit),
            ("unitCode", ValueSource::UnitCode),
            ("type", ValueSource::Type),
            ("name", ValueSource::Name),
            ("time", ValueSource::DeviceTime),
            ("timeOctets", ValueSource::DeviceTimeOctets),
            ("ticks", ValueSource::DeviceTicks),
            ("micros", ValueSource::DeviceMicros),
            ("base", ValueSource::DeviceBase),
            ("received", ValueSource::Received),
            ("period", ValueSource::Period),
            ("status", ValueSource::Status),
            ("person", ValueSource::Person),
            ("samples", ValueSource::Waveform),
            ("belongsTo", ValueSource::BelongsTo),
            ("report", ValueSource::Report),
        ];
        let commands = [
            ("read", CommandAction::Read(Vec::new())),
            ("battery", CommandAction::Read(vec![attribute::BATTERY, attribute::POWER_STATUS])),
            ("set-clock", CommandAction::SetClock),
            ("request-data", CommandAction::RequestData),
            ("describe-store", CommandAction::DescribeStore),
            ("transfer-segment", CommandAction::TransferSegment),
            ("clear-store", CommandAction::ClearStore),
            ("enable-scanner", CommandAction::EnableScanner),
        ];
        let attributes = [
            (attribute::SYSTEM_ID, "systemId", AttributeType::Octets),
            (attribute::MODEL, "model", AttributeType::Texts),
            (attribute::PRODUCTION, "production", AttributeType::Production),
            (attribute::CONFIG_ID, "configuration", AttributeType::Number16),
            (attribute::SPECIALISATIONS, "specialisations", AttributeType::Specialisations),
            (attribute::TIME_ABSOLUTE, "clock", AttributeType::Time),
            (attribute::TIME_RELATIVE, "ticks", AttributeType::Number32),
            (attribute::BATTERY, "battery", AttributeType::Number16),
            (attribute::POWER_STATUS, "power", AttributeType::Number16),
            (attribute::OPERATIONAL_STATE, "operationalState", AttributeType::Number16),
            (attribute::STORE_USAGE, "entries", AttributeType::Number32),
            (attribute::SEGMENT_USAGE, "entries", AttributeType::Number32),
            (attribute::SEGMENT_LABEL, "label", AttributeType::Texts),
        ];
        Self {
            app_id: "Ngatewright.phd".to_owned(),
            entity_prefix: "phd-".to_owned(),
            rules: rules(),
            fields: fields.map(field).to_vec(),
            commands: commands.map(command).to_vec(),
            attributes: attributes.map(shown).to_vec(),
            instances_max: 10_000,
        }
    }
}

/// Error in a user's tables.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MappingError {
    /// A resource name has other characters than URIs' unreserved ones, or is reserved.
    #[error("\"{0}\" cannot be part of a resource name")]
    Name(String),
    /// An App-ID begins neither with N nor with R (registered).
    #[error("App-ID \"{0}\" does not begin with N or R")]
    AppId(String),
    /// One name is used twice.
    #[error("\"{0}\" twice")]
    Twice(String),
}

impl Mapping {
    /// Checks that the tables are usable; to be called once on a user's tables.
    ///
    /// # Errors
    ///
    /// The first fault.
    pub fn check(&self) -> Result<(), MappingError> {
        if !self.app_id.starts_with(['N', 'R']) || self.app_id.len() < 2 {
            return Err(MappingError::AppId(self.app_id.clone()));
        }
        let named = self.rules.iter().map(|rule| &rule.container).filter(|name| !name.is_empty());
        for name in named.chain([&self.entity_prefix]) {
            if !is_name(name) {
                return Err(MappingError::Name(name.clone()));
            }
        }
        let fields = self.fields.iter().map(|field| &field.name);
        let commands = self.commands.iter().map(|command| &command.name);
        for mut names in [fields.collect::<Vec<_>>(), commands.collect()] {
            names.sort_unstable();
            if let Some([twice, _]) = names.array_windows().find(|[one, next]| one == next) {
                return Err(MappingError::Twice((*twice).clone()));
            }
        }
        Ok(())
    }

    /// Removes the flexContainers that show latest values.
    #[must_use]
    pub fn without_views(mut self) -> Self {
        for rule in &mut self.rules {
            rule.view = None;
        }
        self
    }

    /// The rule for an object of this type, class and unit; by default the last rule matches
    /// everything.
    pub fn rule(&self, kind: Type, class: ObjectClass, unit: Option<UnitCode>) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.when.fits(kind, class, unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_checked() {
        assert_eq!(Mapping::default().check(), Ok(()));
        let mut mapping = Mapping::default();
        mapping.rules.insert(0, Rule { container: "sp o2".to_owned(), ..Rule::default() });
        assert_eq!(mapping.check(), Err(MappingError::Name("sp o2".to_owned())));
        let mapping = Mapping { app_id: "phd".to_owned(), ..Mapping::default() };
        assert_eq!(mapping.check(), Err(MappingError::AppId("phd".to_owned())));
        let mut mapping = Mapping::default();
        mapping.fields.push(MappedMember { name: "value".to_owned(), source: ValueSource::Unit });
        assert_eq!(mapping.check(), Err(MappingError::Twice("value".to_owned())));
    }
}
