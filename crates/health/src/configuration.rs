//! Configuration of an agent: its objects, and how the octets of their observations are decoded.

use crate::apdu::{Attribute, find};
use crate::code::{
    AttributeId, ConfigId, Handle, ObjectClass, Type, UnitCode, attribute, partition,
};
use crate::decimal::Number;
use crate::mder::{Element, List, Malformed, MderWriter, Reader, TooLong};
use crate::report::{ConfigObject, ConfigReport};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::code::SystemId;

/// Objects of one configuration; a device of the standards has fewer than 20.
pub const OBJECTS_MAX: usize = 256;

/// Octets of one configuration; those of the standards have fewer than 400.
pub const OCTETS_MAX: usize = 8 * 1024;

/// Extended configurations remembered of one device.
pub const REMEMBERED_OF_ONE_MAX: usize = 4;

/// Extended configurations remembered before the longest unused is forgotten.
pub const REMEMBERED_MAX: usize = 4_096;

/// Why a configuration is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigurationError {
    /// The report is malformed: the agent's fault.
    #[error("configuration: {0}")]
    Malformed(#[from] Malformed),
    /// More objects than this manager accepts.
    #[error("{count} objects, more than {OBJECTS_MAX}")]
    TooManyObjects {
        /// Objects reported.
        count: usize,
    },
    /// More octets than this manager remembers.
    #[error("{count} octets of configuration, more than {OCTETS_MAX}")]
    TooManyOctets {
        /// Octets reported.
        count: usize,
    },
    /// Two objects have the same handle: their reports could not be distinguished.
    #[error("handle {handle} twice")]
    HandleTwice {
        /// The handle.
        handle: Handle,
    },
}

/// One attribute in the octets of an observation.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct MapEntry {
    /// The attribute.
    pub attribute: AttributeId,
    /// Its length in octets.
    pub length: u16,
}

impl Element<'_> for MapEntry {
    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self { attribute: AttributeId(reader.u16()?), length: reader.u16()? })
    }

    fn put(&self, writer: &mut MderWriter) {
        writer.u16(self.attribute.0);
        writer.u16(self.length);
    }
}

/// The part of a scanner's grouped observation that belongs to one object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupEntry {
    /// The object.
    pub handle: Handle,
    /// Its attributes, in order.
    pub map: Vec<MapEntry>,
}

/// An object of an agent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Object {
    /// Its handle.
    pub handle: Handle,
    /// Its class.
    pub class: ObjectClass,
    /// The quantity it measures, from its Type.
    pub kind: Type,
    /// The more precise quantity from its Metric-Id, if it has one: oral temperature of body
    /// temperature.
    pub metric: Option<Type>,
    /// Its unit.
    pub unit: Option<UnitCode>,
    /// Waveform parameters, if it is one.
    pub waveform: Option<Waveform>,
    /// Attributes of its fixed observations.
    pub map: Vec<MapEntry>,
    /// Codes of the values of a compound, in the partition of `kind`.
    pub components: Vec<u16>,
    /// The object it belongs to.
    pub source: Option<Handle>,
    /// Further properties of the measurement: modality, place.
    pub supplemental: Vec<Type>,
    /// Grouped observations, if it is a scanner.
    pub groups: Vec<GroupEntry>,
}

impl Object {
    fn new(reported: &ConfigObject<'_>) -> Result<Self, Malformed> {
        let short = |id| find(reported.attributes, id).map(|octets| Reader::new(octets).u16());
        let kind = match find(reported.attributes, attribute::TYPE) {
            Some(octets) => Type::take(&mut Reader::new(octets))?,
            None => Type::new(partition::OBJECT, reported.class.0),
        };
        let partition = short(attribute::METRIC_ID_PARTITION).transpose()?;
        let partition = partition.unwrap_or(kind.partition);
        let metric = short(attribute::METRIC_ID).transpose()?;
        let metric = metric.map(|code| Type { partition, code });
        let list = |id| find(reported.attributes, id).map(|octets| Reader::new(octets).list());
        let map = find(reported.attributes, attribute::VALUE_MAP);
        let map: Option<List<'_, MapEntry>> =
            map.map(|octets| Reader::new(octets).list()).transpose()?;
        let components: Option<List<'_, u16>> = list(attribute::METRIC_IDS).transpose()?;
        let supplemental = find(reported.attributes, attribute::SUPPLEMENTAL);
        let supplemental: Option<List<'_, Type>> =
            supplemental.map(|octets| Reader::new(octets).list()).transpose()?;
        let groups = find(reported.attributes, attribute::HANDLE_VALUE_MAP);
        Ok(Self {
            handle: reported.handle,
            class: reported.class,
            kind,
            metric,
            unit: short(attribute::UNIT).transpose()?.map(UnitCode),
            waveform: Waveform::of(reported)?,
            map: useful(map.unwrap_or_default()),
            components: components.unwrap_or_default().iter().collect(),
            source: short(attribute::SOURCE_HANDLE).transpose()?.map(Handle),
            supplemental: supplemental.unwrap_or_default().iter().collect(),
            groups: groups.map(groups_of).transpose()?.unwrap_or_default(),
        })
    }
}

/// Parameters of a waveform: `None` where the device reports none.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Waveform {
    /// Sample period, in 1/8 ms (Sample-Period).
    pub period: Option<u32>,
    /// Sample format (Sa-Specification).
    pub samples: Option<SampleForm>,
    /// Two values and the samples that stand for them (Scale-and-Range-Specification).
    pub scale: Option<Scale>,
}

/// Format of a waveform's samples (SaSpec).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SampleForm {
    /// Samples in one observation.
    pub count: u16,
    /// Bits of one sample.
    pub bits: u8,
    /// Significant bits; 255 means that samples are signed.
    pub significant: u8,
    /// Further flags of the waveform (SaFlags).
    pub flags: u16,
}

/// The values that the lowest and the highest sample stand for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Scale {
    /// The value of the lowest sample and of the highest.
    pub values: [Number; 2],
    /// The lowest and the highest sample.
    pub samples: [u32; 2],
}

impl Waveform {
    /// Waveform parameters of an object; `None` if it has none.
    fn of(reported: &ConfigObject<'_>) -> Result<Option<Self>, Malformed> {
        let reader = |id| find(reported.attributes, id).map(Reader::new);
        let period = reader(attribute::SAMPLE_PERIOD).map(|mut reader| reader.u32()).transpose()?;
        let samples = reader(attribute::SAMPLE_SPECIFICATION).map(SampleForm::take).transpose()?;
        let scales = [
            (attribute::SCALE_8, size_of::<u8>()),
            (attribute::SCALE_16, size_of::<u16>()),
            (attribute::SCALE_32, size_of::<u32>()),
        ];
        let scale = scales.into_iter().find_map(|(id, octets)| Some((reader(id)?, octets)));
        let scale = scale.map(|(reader, octets)| Scale::take(reader, octets)).transpose()?;
        let waveform = Self { period, samples, scale };
        Ok((waveform != Self::default()).then_some(waveform))
    }
}

impl SampleForm {
    fn take(mut reader: Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            count: reader.u16()?,
            bits: reader.u8()?,
            significant: reader.u8()?,
            flags: reader.u16()?,
        })
    }
}

impl Scale {
    /// Takes two FLOATs and two samples of a number of octets.
    fn take(mut reader: Reader<'_>, octets: usize) -> Result<Self, Malformed> {
        let low = Number::from_float(reader.array()?);
        let high = Number::from_float(reader.array()?);
        let mut sample = || -> Result<u32, Malformed> {
            let octets = reader.octets(octets)?;
            Ok(octets.iter().fold(0, |sample, octet| sample << 8 | u32::from(*octet)))
        };
        Ok(Self { values: [low, high], samples: [sample()?, sample()?] })
    }
}

/// The entries that have octets: an entry of length 0 has no value and would cost time in each
/// report.
pub(crate) fn useful(map: List<'_, MapEntry>) -> Vec<MapEntry> {
    map.iter().filter(|entry| entry.length > 0).collect()
}

/// A handle and its attribute value map, as they stand in a scanner's map.
struct WireGroup<'a> {
    handle: Handle,
    map: List<'a, MapEntry>,
}

impl<'a> Element<'a> for WireGroup<'a> {
    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { handle: Handle(reader.u16()?), map: reader.list()? })
    }

    fn put(&self, writer: &mut MderWriter) {
        writer.u16(self.handle.0);
        self.map.put(writer);
    }
}

/// Reads a handle attribute value map.
pub(crate) fn groups_of(octets: &[u8]) -> Result<Vec<GroupEntry>, Malformed> {
    let groups: List<'_, WireGroup<'_>> = Reader::new(octets).list()?;
    let owned =
        |group: WireGroup<'_>| GroupEntry { handle: group.handle, map: group.map.iter().collect() };
    Ok(groups.iter().map(owned).collect())
}

/// An agent's configuration, prepared for decoding its reports.
///
/// Two configurations are equal if the agent reported the same octets.
#[derive(Clone, Debug)]
pub struct Configuration {
    id: ConfigId,
    octets: Vec<u8>,
    /// Sorted by handle.
    objects: Vec<Object>,
}

impl PartialEq for Configuration {
    fn eq(&self, other: &Self) -> bool {
        self.octets == other.octets
    }
}

impl Eq for Configuration {}

impl Configuration {
    /// Parses an agent's configuration report.
    ///
    /// # Errors
    ///
    /// [`ConfigurationError`] with the cause.
    pub fn new(report: &ConfigReport<'_>) -> Result<Self, ConfigurationError> {
        let count = usize::from(report.objects.len());
        if count > OBJECTS_MAX {
            return Err(ConfigurationError::TooManyObjects { count });
        }
        let octets = report.encode().unwrap_or_default();
        if octets.len() > OCTETS_MAX {
            return Err(ConfigurationError::TooManyOctets { count: octets.len() });
        }
        let mut objects = Vec::with_capacity(count);
        for reported in report.objects {
            objects.push(Object::new(&reported)?);
        }
        objects.sort_by_key(|object| object.handle);
        if let Some(twice) = objects
            .array_windows()
            .find_map(|[one, next]| (one.handle == next.handle).then_some(one.handle))
        {
            return Err(ConfigurationError::HandleTwice { handle: twice });
        }
        Ok(Self { id: report.id, octets, objects })
    }

    /// Parses the octets of a configuration report, for example from a store.
    ///
    /// # Errors
    ///
    /// [`ConfigurationError`] with the cause.
    pub fn from_octets(octets: &[u8]) -> Result<Self, ConfigurationError> {
        Self::new(&ConfigReport::decode(octets)?)
    }

    /// The octets of the configuration report.
    pub fn octets(&self) -> &[u8] {
        &self.octets
    }

    /// The agent's number of it.
    pub const fn id(&self) -> ConfigId {
        self.id
    }

    /// The objects, by handle.
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// The object with this handle.
    pub fn object(&self, handle: Handle) -> Option<&Object> {
        let place = self.objects.binary_search_by_key(&handle, |object| object.handle).ok()?;
        self.objects.get(place)
    }
}

/// Builds a configuration report object by object: for agents and for the standard configurations.
#[derive(Debug, Default)]
pub struct ConfigurationBuilder {
    objects: Vec<(ObjectClass, Handle, Vec<u8>)>,
}

impl ConfigurationBuilder {
    /// Creates a builder without objects.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends an object with its attributes.
    ///
    /// # Errors
    ///
    /// [`TooLong`] if the attributes are.
    pub fn object(
        mut self,
        class: ObjectClass,
        handle: Handle,
        attributes: &[Attribute<'_>],
    ) -> Result<Self, TooLong> {
        let mut writer = MderWriter::new();
        writer.list(attributes);
        self.objects.push((class, handle, writer.finish()?));
        Ok(self)
    }

    /// The octets of the configuration report.
    ///
    /// # Errors
    ///
    /// [`TooLong`] if the objects are.
    pub fn finish(self, id: ConfigId) -> Result<Vec<u8>, TooLong> {
        let mut writer = MderWriter::new();
        writer.u16(id.0);
        writer.u16(u16::try_from(self.objects.len()).map_err(|_| TooLong)?);
        writer.sized(|writer| {
            for (class, handle, attributes) in &self.objects {
                writer.u16(class.0);
                writer.u16(handle.0);
                writer.octets(attributes);
            }
        });
        writer.finish()
    }
}

/// The octets of an attribute value map.
///
/// # Errors
///
/// [`TooLong`] if there are more than 16383 entries.
pub fn value_map(entries: &[MapEntry]) -> Result<Vec<u8>, TooLong> {
    let mut writer = MderWriter::new();
    writer.list(entries);
    writer.finish()
}

/// Result of remembering an agent's configuration.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Remembered {
    /// It is new.
    New,
    /// It equals the known one.
    Same,
    /// The same number had other content: the device was changed, or two devices share a system-id.
    Changed {
        /// The previous one.
        before: Arc<Configuration>,
    },
}

/// Configurations that a manager looks up: a [`Library`] of its own, or a shared one that is locked
/// during each call.
pub trait Configurations {
    /// Whether the device `system` may associate.
    fn admits(&self, system: SystemId) -> bool;

    /// The configuration `id` of the device `system`, if known.
    fn find(&mut self, system: SystemId, id: ConfigId) -> Option<Arc<Configuration>>;

    /// Remembers a configuration of the device `system`.
    fn remember(&mut self, system: SystemId, configuration: Arc<Configuration>) -> Remembered;
}

impl Configurations for Library {
    fn admits(&self, system: SystemId) -> bool {
        Self::admits(self, system)
    }

    fn find(&mut self, system: SystemId, id: ConfigId) -> Option<Arc<Configuration>> {
        Self::find(self, system, id)
    }

    fn remember(&mut self, system: SystemId, configuration: Arc<Configuration>) -> Remembered {
        Self::remember(self, system, configuration)
    }
}

/// Known configurations: the standard ones, and the extended ones by device.
#[derive(Clone, Debug, Default)]
pub struct Library {
    standard: BTreeMap<ConfigId, Arc<Configuration>>,
    extended: BTreeMap<(SystemId, ConfigId), Entry>,
    /// The devices that may associate; all, if `None`.
    admitted: Option<BTreeSet<SystemId>>,
    uses: u64,
    forgotten: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    configuration: Arc<Configuration>,
    used: u64,
}

impl Library {
    /// Creates an empty library: every agent must report its configuration.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Creates a library of the standard configurations of
    /// [`specialisation`](crate::specialisation).
    pub fn standard() -> Self {
        let mut library = Self::default();
        for specialisation in crate::specialisation::ALL {
            if specialisation.config.is_standard()
                && let Some(configuration) = specialisation.configuration()
            {
                library.standard.insert(specialisation.config, Arc::new(configuration));
            }
        }
        library
    }

    /// Admits these devices only, or all if `None`, as initially.
    pub fn admit(&mut self, devices: Option<BTreeSet<SystemId>>) {
        self.admitted = devices;
    }

    /// Whether the device `system` may associate.
    pub fn admits(&self, system: SystemId) -> bool {
        self.admitted.as_ref().is_none_or(|admitted| admitted.contains(&system))
    }

    /// The configuration `id` of the device `system`, if known.
    ///
    /// A configuration reported by the device takes precedence over the standard one.
    pub fn find(&mut self, system: SystemId, id: ConfigId) -> Option<Arc<Configuration>> {
        self.uses += 1;
        if let Some(entry) = self.extended.get_mut(&(system, id)) {
            entry.used = self.uses;
            return Some(Arc::clone(&entry.configuration));
        }
        self.standard.get(&id).map(Arc::clone)
    }

    /// Remembers a configuration of the device `system`.
    pub fn remember(&mut self, system: SystemId, configuration: Arc<Configuration>) -> Remembered {
        self.uses += 1;
        let key = (system, configuration.id());
        if let Some(entry) = self.extended.get_mut(&key) {
            entry.used = self.uses;
            if entry.configuration == configuration {
                return Remembered::Same;
            }
            let before = core::mem::replace(&mut entry.configuration, configuration);
            return Remembered::Changed { before };
        }
        let standard = self.standard.get(&key.1).map(Arc::clone);
        if standard.as_ref() == Some(&configuration) {
            return Remembered::Same;
        }
        let of_one = (system, ConfigId(0))..=(system, ConfigId(u16::MAX));
        if self.extended.range(of_one.clone()).count() >= REMEMBERED_OF_ONE_MAX {
            self.forget_oldest(of_one);
        } else if self.extended.len() >= REMEMBERED_MAX {
            self.forget_oldest(..);
        }
        self.extended.insert(key, Entry { configuration, used: self.uses });
        // A device may report more than the standard of its number: it knows itself better.
        standard.map_or(Remembered::New, |before| Remembered::Changed { before })
    }

    /// The remembered configurations, for a store.
    pub fn remembered(&self) -> impl Iterator<Item = (SystemId, &Arc<Configuration>)> {
        self.extended.iter().map(|((system, _), entry)| (*system, &entry.configuration))
    }

    /// Configurations forgotten because of [`REMEMBERED_MAX`], or of [`REMEMBERED_OF_ONE_MAX`] for
    /// one device.
    pub const fn forgotten(&self) -> u64 {
        self.forgotten
    }

    fn forget_oldest(&mut self, among: impl core::ops::RangeBounds<(SystemId, ConfigId)>) {
        let oldest = self.extended.range(among).min_by_key(|(_, entry)| entry.used);
        if let Some(key) = oldest.map(|(key, _)| *key) {
            self.extended.remove(&key);
            self.forgotten += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::class;

    fn one_object(id: u16, handle: u16) -> Arc<Configuration> {
        let builder = ConfigurationBuilder::new();
        let builder = builder.object(class::NUMERIC, Handle(handle), &[]).unwrap();
        let octets = builder.finish(ConfigId(id)).unwrap();
        Arc::new(Configuration::from_octets(&octets).unwrap())
    }

    #[test]
    fn the_same_number_with_other_content_is_noticed() {
        let mut library = Library::standard();
        let [system, other] = [SystemId([1; 8]), SystemId([2; 8])];
        assert_eq!(library.remember(system, one_object(0x4000, 1)), Remembered::New);
        assert_eq!(library.remember(system, one_object(0x4000, 1)), Remembered::Same);
        assert_eq!(library.remember(other, one_object(0x4000, 2)), Remembered::New);
        let before = one_object(0x4000, 1);
        assert_eq!(library.remember(system, one_object(0x4000, 2)), Remembered::Changed { before });
        assert_eq!(library.find(system, ConfigId(0x4000)), Some(one_object(0x4000, 2)));
        assert_eq!(library.find(system, ConfigId(0x4001)), None);
    }

    /// A blood pressure monitor in the field reports more than 02BC says.
    #[test]
    fn a_standard_number_with_other_content_is_noticed() {
        let mut library = Library::standard();
        let system = SystemId([1; 8]);
        let before = library.find(system, ConfigId(0x02BC)).unwrap();
        let own = one_object(0x02BC, 1);
        assert_eq!(library.remember(system, Arc::clone(&own)), Remembered::Changed { before });
        assert_eq!(library.remember(system, Arc::clone(&own)), Remembered::Same);
        assert_eq!(library.find(system, ConfigId(0x02BC)), Some(own));
    }

    #[test]
    fn the_longest_unused_is_forgotten() {
        let mut library = Library::empty();
        let system = |number: usize| SystemId((number as u64).to_be_bytes());
        for number in 0..REMEMBERED_MAX {
            library.remember(system(number), one_object(0x4000, 1));
        }
        assert!(library.find(system(0), ConfigId(0x4000)).is_some());
        library.remember(system(REMEMBERED_MAX), one_object(0x4000, 1));
        assert!(library.find(system(0), ConfigId(0x4000)).is_some(), "used a moment ago");
        assert!(library.find(system(1), ConfigId(0x4000)).is_none());
        assert_eq!(library.forgotten(), 1);
    }

    /// A device that invents configurations costs no other device its own.
    #[test]
    fn a_device_is_remembered_with_few_configurations() {
        let mut library = Library::empty();
        let [modest, inventive] = [SystemId([1; 8]), SystemId([2; 8])];
        library.remember(modest, one_object(0x4000, 1));
        for id in 0x4000..0x4100 {
            library.remember(inventive, one_object(id, 1));
        }
        assert_eq!(library.remembered().count(), 1 + REMEMBERED_OF_ONE_MAX);
        assert!(library.find(modest, ConfigId(0x4000)).is_some());
        assert!(library.find(inventive, ConfigId(0x40FF)).is_some());
        assert_eq!(library.forgotten(), 0x100 - 4);
    }

    #[test]
    fn a_long_configuration_is_refused() {
        let value = vec![0; 4_100];
        let attribute = Attribute { id: attribute::STORE_LABEL, value: &value };
        let builder = ConfigurationBuilder::new();
        let builder = builder.object(class::NUMERIC, Handle(1), &[attribute; 2]).unwrap();
        let octets = builder.finish(ConfigId(0x4000)).unwrap();
        let count = octets.len();
        let refused = Err(ConfigurationError::TooManyOctets { count });
        assert_eq!(Configuration::from_octets(&octets), refused);
    }

    #[test]
    fn one_handle_for_two_objects_is_refused() {
        let builder = ConfigurationBuilder::new();
        let builder = builder.object(class::NUMERIC, Handle(1), &[]).unwrap();
        let builder = builder.object(class::ENUMERATION, Handle(1), &[]).unwrap();
        let octets = builder.finish(ConfigId(0x4000)).unwrap();
        let twice = ConfigurationError::HandleTwice { handle: Handle(1) };
        assert_eq!(Configuration::from_octets(&octets), Err(twice));
    }
}
