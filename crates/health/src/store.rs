//! Stores of measurements taken without a connection: PM-stores, their segments, and how entries
//! are requested and decoded.

use crate::apdu::{Attribute, find};
use crate::code::{Handle, ObjectClass, Type, attribute};
use crate::configuration::{Configuration, MapEntry, Object, useful};
use crate::convert::{Draft, Ended, Observation, Tally, Timestamps, deliver};
use crate::mder::{Element, List, Malformed, MderWriter, Reader, TooLong};
use crate::report::SegmentData;
use crate::time::AbsoluteTime;

/// Selected segments of a store (SegmSelection).
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Selection {
    /// All of them.
    All,
    /// Those with these instance numbers.
    Instances(Vec<u16>),
    /// Those with entries between two times.
    Between(AbsoluteTime, AbsoluteTime),
}

const ALL: u16 = 1;
const INSTANCES: u16 = 2;
const BETWEEN: u16 = 3;

impl Selection {
    /// Encodes the arguments of the actions that describe and clear segments.
    ///
    /// # Errors
    ///
    /// [`TooLong`] if there are more than 32765 instances.
    pub fn encode(&self) -> Result<Vec<u8>, TooLong> {
        let mut writer = MderWriter::new();
        match self {
            Self::All => {
                writer.u16(ALL);
                writer.sized(|writer| writer.u16(0));
            }
            Self::Instances(instances) => {
                writer.u16(INSTANCES);
                writer.sized(|writer| writer.list(instances));
            }
            Self::Between(from, to) => {
                writer.u16(BETWEEN);
                writer.sized(|writer| {
                    writer.octets(&from.0);
                    writer.octets(&to.0);
                });
            }
        }
        writer.finish()
    }

    /// Decodes the arguments of an action.
    ///
    /// # Errors
    ///
    /// [`Malformed`] with the cause.
    pub fn decode(octets: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(octets);
        let choice = reader.u16()?;
        let mut body = Reader::new(reader.octet_string()?);
        reader.finish()?;
        let selection = match choice {
            ALL => {
                body.u16()?;
                Self::All
            }
            INSTANCES => Self::Instances(body.list::<u16>()?.iter().collect()),
            BETWEEN => Self::Between(AbsoluteTime(body.array()?), AbsoluteTime(body.array()?)),
            choice => return Err(Malformed::UnknownChoice { choice }),
        };
        body.finish()?;
        Ok(selection)
    }
}

/// A segment as its store describes it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SegmentInfo<'a> {
    /// Its number.
    pub instance: u16,
    /// Its attributes, including its map.
    pub attributes: List<'a, Attribute<'a>>,
}

impl<'a> Element<'a> for SegmentInfo<'a> {
    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { instance: reader.u16()?, attributes: reader.list()? })
    }

    fn put(&self, writer: &mut MderWriter) {
        writer.u16(self.instance);
        self.attributes.put(writer);
    }
}

impl SegmentInfo<'_> {
    /// Layout of its entries.
    ///
    /// # Errors
    ///
    /// [`Malformed`] with the map's fault; a missing map is [`Malformed::Truncated`].
    pub fn map(&self) -> Result<SegmentMap, Malformed> {
        SegmentMap::decode(find(self.attributes, attribute::SEGMENT_MAP).unwrap_or_default())
    }
}

/// Decodes the response to a request for the descriptions of segments.
///
/// # Errors
///
/// [`Malformed`] with the cause.
pub fn segments(octets: &[u8]) -> Result<List<'_, SegmentInfo<'_>>, Malformed> {
    let mut reader = Reader::new(octets);
    let list = reader.list()?;
    reader.finish()?;
    Ok(list)
}

/// Entries begin with a calendar time of 8 octets.
const HEADER_ABSOLUTE: u16 = 0x8000;
/// Entries begin with a relative time of 4 octets.
const HEADER_RELATIVE: u16 = 0x4000;
/// Entries begin with a high-resolution time of 8 octets.
const HEADER_HIGH_RESOLUTION: u16 = 0x2000;

/// Layout of a segment's entries (PmSegmentEntryMap).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SegmentMap {
    /// Which times an entry begins with, as bits.
    pub header: u16,
    /// The parts of an entry, one for each object.
    pub elements: Vec<SegmentElement>,
}

/// One object's part of an entry.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SegmentElement {
    /// The class of the object.
    pub class: ObjectClass,
    /// The measured quantity.
    pub kind: Type,
    /// The object.
    pub handle: Handle,
    /// Its octets.
    pub map: Vec<MapEntry>,
}

/// The same, as it stands in the map.
struct WireElement<'a> {
    class: ObjectClass,
    kind: Type,
    handle: Handle,
    map: List<'a, MapEntry>,
}

impl<'a> Element<'a> for WireElement<'a> {
    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            class: ObjectClass(reader.u16()?),
            kind: Type::take(reader)?,
            handle: Handle(reader.u16()?),
            map: reader.list()?,
        })
    }

    fn put(&self, writer: &mut MderWriter) {
        writer.u16(self.class.0);
        self.kind.put(writer);
        writer.u16(self.handle.0);
        self.map.put(writer);
    }
}

impl SegmentMap {
    /// Reads the attribute's value.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn decode(octets: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(octets);
        let header = reader.u16()?;
        let list: List<'_, WireElement<'_>> = reader.list()?;
        reader.finish()?;
        let owned = |element: WireElement<'_>| SegmentElement {
            class: element.class,
            kind: element.kind,
            handle: element.handle,
            map: useful(element.map),
        };
        Ok(Self { header, elements: list.iter().map(owned).collect() })
    }

    /// Takes the times that an entry begins with.
    fn times(&self, reader: &mut Reader<'_>) -> Result<Timestamps, Malformed> {
        let mut time = Timestamps::default();
        if self.header & HEADER_ABSOLUTE != 0 {
            time.absolute = Some(AbsoluteTime(reader.array()?));
        }
        if self.header & HEADER_RELATIVE != 0 {
            time.relative = Some(reader.u32()?);
        }
        if self.header & HEADER_HIGH_RESOLUTION != 0 {
            time.high_resolution = Some(reader.array().map(u64::from_be_bytes)?);
        }
        Ok(time)
    }
}

/// Reads the entries of a segment, and passes each observation, with its entry's index, to `sink`.
///
/// Units come from the configuration's objects. Entries beyond the announced count are trailing
/// octets; an entry that is cut ends the segment.
pub fn observe_segment<'a>(
    configuration: &Configuration,
    map: &SegmentMap,
    data: &SegmentData<'a>,
    mut sink: impl FnMut(u32, &Observation<'a>),
) -> Tally {
    let mut tally = Tally::default();
    let mut reader = Reader::new(data.entries);
    let objects: Vec<Object> =
        map.elements.iter().map(|element| element.object(configuration)).collect();
    for entry in 0..data.count {
        if reader.is_empty() {
            break;
        }
        let before = reader.rest().len();
        let Ok(time) = map.times(&mut reader) else {
            tally.cut += 1;
            return tally;
        };
        let index = data.first.wrapping_add(entry);
        for object in &objects {
            let mut draft = Draft::new(object, None);
            draft.set_time(time);
            let ended = draft.take_mapped(&object.map, &mut reader);
            let mut indexed = |observation: &Observation<'a>| sink(index, observation);
            deliver(&draft, &[], &mut tally, &mut indexed);
            if ended == Ended::Early {
                return tally;
            }
        }
        // A map without octets could be applied four thousand million times.
        if reader.rest().len() == before {
            break;
        }
    }
    tally.trailing += u32::from(!reader.is_empty());
    tally
}

impl SegmentElement {
    /// The object that this part belongs to, with the octets of the entry as its map.
    fn object(&self, configuration: &Configuration) -> Object {
        let known = configuration.object(self.handle);
        Object {
            handle: self.handle,
            class: self.class,
            kind: self.kind,
            metric: None,
            waveform: known.and_then(|object| object.waveform),
            unit: known.and_then(|object| object.unit),
            map: self.map.clone(),
            components: known.map(|object| object.components.clone()).unwrap_or_default(),
            source: known.and_then(|object| object.source),
            supplemental: known.map(|object| object.supplemental.clone()).unwrap_or_default(),
            groups: Vec::new(),
        }
    }
}

/// The arguments of the action that starts the transfer of a segment, and of its answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Transfer {
    /// The segment.
    pub instance: u16,
    /// In the answer: 0 the transfer starts, otherwise why it does not.
    pub result: u16,
}

impl Transfer {
    /// No segment has this number (from memory, *unverified*).
    pub const NO_SUCH_SEGMENT: u16 = 1;
    /// Not possible for another reason (from memory, *unverified*).
    pub const NOT_NOW: u16 = 512;

    /// Reads the answer.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn decode(octets: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(octets);
        let transfer = Self { instance: reader.u16()?, result: reader.u16()? };
        reader.finish()?;
        Ok(transfer)
    }
}
