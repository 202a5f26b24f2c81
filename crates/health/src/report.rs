//! Content of event reports: configurations, measurements, entries of a store.

use crate::apdu::Attribute;
use crate::code::{ConfigId, DataRequestId, EventType, Handle, ObjectClass, PersonId, event};
use crate::data::EventReport;
use crate::mder::{Element, Elements, List, Malformed, MderWriter, Reader, TooLong};

/// Content of an event report.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Report<'a> {
    /// The agent's configuration.
    Configuration(ConfigReport<'a>),
    /// Measurements.
    Scan(ScanReport<'a>),
    /// Entries of a store's segment.
    Segment(SegmentData<'a>),
    /// An event that 20601 does not define.
    Unknown,
}

impl<'a> EventReport<'a> {
    /// Decodes the report. Octets after it are skipped: [`padding`](Self::padding) counts them.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn report(&self) -> Result<Report<'a>, Malformed> {
        self.read().map(|(report, _)| report)
    }

    /// Octets after the report's last field: one agent in use appends two to its list. 0 if the
    /// report is malformed.
    pub fn padding(&self) -> usize {
        self.read().map_or(0, |(_, padding)| padding)
    }

    /// Decodes the report and counts the octets after it.
    fn read(&self) -> Result<(Report<'a>, usize), Malformed> {
        let mut reader = Reader::new(self.info);
        let report = match self.event {
            event::CONFIG => Report::Configuration(ConfigReport::take(&mut reader)?),
            event::SEGMENT_DATA => Report::Segment(SegmentData::take(&mut reader)?),
            event => match ScanForm::of(event) {
                Some(form) => Report::Scan(ScanReport::take(form, &mut reader)?),
                None => return Ok((Report::Unknown, 0)),
            },
        };
        Ok((report, reader.rest().len()))
    }
}

/// An agent's configuration: its objects and their attributes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConfigReport<'a> {
    /// The agent's number of it.
    pub id: ConfigId,
    /// Its objects.
    pub objects: List<'a, ConfigObject<'a>>,
}

impl<'a> ConfigReport<'a> {
    /// Decodes a report's information.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn decode(octets: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(octets);
        let report = Self::take(&mut reader)?;
        reader.finish()?;
        Ok(report)
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { id: ConfigId(reader.u16()?), objects: reader.list()? })
    }

    /// Encodes a report's information.
    ///
    /// # Errors
    ///
    /// [`TooLong`] if it does not fit the 16-bit lengths.
    pub fn encode(&self) -> Result<Vec<u8>, TooLong> {
        let mut writer = MderWriter::new();
        writer.u16(self.id.0);
        self.objects.put(&mut writer);
        writer.finish()
    }
}

/// One object of a configuration.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConfigObject<'a> {
    /// Its class.
    pub class: ObjectClass,
    /// Its handle.
    pub handle: Handle,
    /// Its attributes.
    pub attributes: List<'a, Attribute<'a>>,
}

impl<'a> Element<'a> for ConfigObject<'a> {
    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            class: ObjectClass(reader.u16()?),
            handle: Handle(reader.u16()?),
            attributes: reader.list()?,
        })
    }

    fn put(&self, writer: &mut MderWriter) {
        writer.u16(self.class.0);
        writer.u16(self.handle.0);
        self.attributes.put(writer);
    }
}

/// Result of a configuration report.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConfigResult(pub u16);

impl ConfigResult {
    /// Accepted; measurements may follow.
    pub const ACCEPTED: Self = Self(0);
    /// Not supported; the agent may offer a different one.
    pub const UNSUPPORTED: Self = Self(1);
    /// Unknown standard configuration; report it.
    pub const STANDARD_UNKNOWN: Self = Self(2);
}

/// The response to a configuration report (ConfigReportRsp).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConfigAnswer {
    /// The configuration answered.
    pub id: ConfigId,
    /// The result.
    pub result: ConfigResult,
}

impl ConfigAnswer {
    /// Reads the information of an event report's result.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn decode(octets: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(octets);
        let answer = Self { id: ConfigId(reader.u16()?), result: ConfigResult(reader.u16()?) };
        reader.finish()?;
        Ok(answer)
    }

    /// Writes the information of an event report's result.
    pub const fn encode(self) -> [u8; 4] {
        let [id_high, id_low] = self.id.0.to_be_bytes();
        let [high, low] = self.result.0.to_be_bytes();
        [id_high, id_low, high, low]
    }
}

/// Layout of observations.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ObservationLayout {
    /// Octets, read by the object's attribute value map.
    Fixed,
    /// Attributes with their ids.
    Variable,
    /// Octets of several objects, read by the scanner's handle attribute value map.
    Grouped,
}

/// The form of a report of measurements.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ScanForm {
    /// Layout of observations.
    pub layout: ObservationLayout,
    /// Whether they are grouped by person.
    pub multi_person: bool,
}

impl ScanForm {
    /// The form of `event`, if it reports measurements.
    pub const fn of(event: EventType) -> Option<Self> {
        use ObservationLayout::{Fixed, Grouped, Variable};
        let (layout, multi_person) = match event {
            event::SCAN_FIXED | event::UNBUFFERED_FIXED | event::BUFFERED_FIXED => (Fixed, false),
            event::SCAN_VAR | event::UNBUFFERED_VAR | event::BUFFERED_VAR => (Variable, false),
            event::UNBUFFERED_GROUPED | event::BUFFERED_GROUPED => (Grouped, false),
            event::SCAN_MP_FIXED | event::UNBUFFERED_MP_FIXED | event::BUFFERED_MP_FIXED => {
                (Fixed, true)
            }
            event::SCAN_MP_VAR | event::UNBUFFERED_MP_VAR | event::BUFFERED_MP_VAR => {
                (Variable, true)
            }
            event::UNBUFFERED_MP_GROUPED | event::BUFFERED_MP_GROUPED => (Grouped, true),
            _ => return None,
        };
        Some(Self { layout, multi_person })
    }
}

/// A report of measurements.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ScanReport<'a> {
    /// The request for data that it answers.
    pub request: DataRequestId,
    /// Counted by the agent, modulo 65536.
    pub number: u16,
    /// Its form.
    pub form: ScanForm,
    /// The observations, by person or not.
    body: ScanBody<'a>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ScanBody<'a> {
    Fixed(List<'a, FixedObservation<'a>>),
    Variable(List<'a, VariableObservation<'a>>),
    Grouped(List<'a, &'a [u8]>),
    FixedByPerson(List<'a, ByPerson<'a, FixedObservation<'a>>>),
    VariableByPerson(List<'a, ByPerson<'a, VariableObservation<'a>>>),
    GroupedByPerson(List<'a, GroupedByPerson<'a>>),
}

impl<'a> ScanReport<'a> {
    fn take(form: ScanForm, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let request = DataRequestId(reader.u16()?);
        let number = reader.u16()?;
        let body = match (form.layout, form.multi_person) {
            (ObservationLayout::Fixed, false) => ScanBody::Fixed(reader.list()?),
            (ObservationLayout::Variable, false) => ScanBody::Variable(reader.list()?),
            (ObservationLayout::Grouped, false) => ScanBody::Grouped(reader.list()?),
            (ObservationLayout::Fixed, true) => ScanBody::FixedByPerson(reader.list()?),
            (ObservationLayout::Variable, true) => ScanBody::VariableByPerson(reader.list()?),
            (ObservationLayout::Grouped, true) => ScanBody::GroupedByPerson(reader.list()?),
        };
        Ok(Self { request, number, form, body })
    }

    /// The observations from first to last.
    pub fn observations(&self) -> Observations<'a> {
        let done = List::default().iter();
        let (outer, inner) = match self.body {
            ScanBody::Fixed(list) => (OuterPart::Done, InnerPart::Fixed(list.iter())),
            ScanBody::Variable(list) => (OuterPart::Done, InnerPart::Variable(list.iter())),
            ScanBody::Grouped(list) => (OuterPart::Done, InnerPart::Grouped(list.iter())),
            ScanBody::FixedByPerson(list) => {
                (OuterPart::Fixed(list.iter()), InnerPart::Grouped(done))
            }
            ScanBody::VariableByPerson(list) => {
                (OuterPart::Variable(list.iter()), InnerPart::Grouped(done))
            }
            ScanBody::GroupedByPerson(list) => {
                (OuterPart::Grouped(list.iter()), InnerPart::Grouped(done))
            }
        };
        Observations { person: None, outer, inner }
    }
}

/// The observations of a [`ScanReport`].
#[derive(Clone, Debug)]
pub struct Observations<'a> {
    person: Option<PersonId>,
    outer: OuterPart<'a>,
    inner: InnerPart<'a>,
}

#[derive(Clone, Debug)]
enum OuterPart<'a> {
    Done,
    Fixed(Elements<'a, ByPerson<'a, FixedObservation<'a>>>),
    Variable(Elements<'a, ByPerson<'a, VariableObservation<'a>>>),
    Grouped(Elements<'a, GroupedByPerson<'a>>),
}

#[derive(Clone, Debug)]
enum InnerPart<'a> {
    Fixed(Elements<'a, FixedObservation<'a>>),
    Variable(Elements<'a, VariableObservation<'a>>),
    Grouped(Elements<'a, &'a [u8]>),
}

/// One observation, before its decoding by the configuration.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RawObservation<'a> {
    /// The person, in a report by person.
    pub person: Option<PersonId>,
    /// Undecoded values of an observation.
    pub values: RawValues<'a>,
}

/// Undecoded values of an observation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RawValues<'a> {
    /// An object's octets.
    Fixed(FixedObservation<'a>),
    /// An object's attributes.
    Variable(VariableObservation<'a>),
    /// The octets of all objects of the scanner.
    Grouped(&'a [u8]),
}

impl<'a> Iterator for Observations<'a> {
    type Item = RawObservation<'a>;

    fn next(&mut self) -> Option<RawObservation<'a>> {
        loop {
            let values = match &mut self.inner {
                InnerPart::Fixed(list) => list.next().map(RawValues::Fixed),
                InnerPart::Variable(list) => list.next().map(RawValues::Variable),
                InnerPart::Grouped(list) => list.next().map(RawValues::Grouped),
            };
            if let Some(values) = values {
                return Some(RawObservation { person: self.person, values });
            }
            self.inner = match &mut self.outer {
                OuterPart::Done => return None,
                OuterPart::Fixed(people) => {
                    let one = people.next()?;
                    self.person = Some(one.person);
                    InnerPart::Fixed(one.observations.iter())
                }
                OuterPart::Variable(people) => {
                    let one = people.next()?;
                    self.person = Some(one.person);
                    InnerPart::Variable(one.observations.iter())
                }
                OuterPart::Grouped(people) => {
                    let one = people.next()?;
                    let values = RawValues::Grouped(one.octets);
                    return Some(RawObservation { person: Some(one.person), values });
                }
            };
        }
    }
}

/// An object's octets, to be read by its attribute value map.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FixedObservation<'a> {
    /// The object.
    pub handle: Handle,
    /// The octets.
    pub octets: &'a [u8],
}

impl<'a> Element<'a> for FixedObservation<'a> {
    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { handle: Handle(reader.u16()?), octets: reader.octet_string()? })
    }

    fn put(&self, writer: &mut MderWriter) {
        writer.u16(self.handle.0);
        writer.octet_string(self.octets);
    }
}

/// An object's attributes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct VariableObservation<'a> {
    /// The object.
    pub handle: Handle,
    /// The attributes observed.
    pub attributes: List<'a, Attribute<'a>>,
}

impl<'a> Element<'a> for VariableObservation<'a> {
    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { handle: Handle(reader.u16()?), attributes: reader.list()? })
    }

    fn put(&self, writer: &mut MderWriter) {
        writer.u16(self.handle.0);
        self.attributes.put(writer);
    }
}

/// The observations of one person.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ByPerson<'a, O: Element<'a>> {
    /// The person.
    pub person: PersonId,
    /// The observations.
    pub observations: List<'a, O>,
}

impl<'a, O: Element<'a>> Element<'a> for ByPerson<'a, O> {
    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { person: PersonId(reader.u16()?), observations: reader.list()? })
    }

    fn put(&self, writer: &mut MderWriter) {
        writer.u16(self.person.0);
        self.observations.put(writer);
    }
}

/// The grouped observation of one person.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GroupedByPerson<'a> {
    /// The person.
    pub person: PersonId,
    /// The octets of all objects of the scanner.
    pub octets: &'a [u8],
}

impl<'a> Element<'a> for GroupedByPerson<'a> {
    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { person: PersonId(reader.u16()?), octets: reader.octet_string()? })
    }

    fn put(&self, writer: &mut MderWriter) {
        writer.u16(self.person.0);
        writer.octet_string(self.octets);
    }
}

/// Writes the information of a scan report: request, number and the list of observations in the
/// layout of the event.
///
/// # Errors
///
/// [`TooLong`] if it does not fit the 16-bit lengths.
pub fn encode_scan<'a, E: Element<'a>>(
    request: DataRequestId,
    number: u16,
    observations: &[E],
) -> Result<Vec<u8>, TooLong> {
    let mut writer = MderWriter::new();
    writer.u16(request.0);
    writer.u16(number);
    writer.list(observations);
    writer.finish()
}

/// Entries of a store's segment in a transfer (SegmentDataEvent).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SegmentData<'a> {
    /// The segment.
    pub instance: u16,
    /// Index of the first entry.
    pub first: u32,
    /// Number of entries.
    pub count: u32,
    /// Position in the transfer, as bits.
    pub status: SegmentStatus,
    /// The entries, to be read by the segment's map.
    pub entries: &'a [u8],
}

impl<'a> SegmentData<'a> {
    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            instance: reader.u16()?,
            first: reader.u32()?,
            count: reader.u32()?,
            status: SegmentStatus(reader.u16()?),
            entries: reader.octet_string()?,
        })
    }

    /// Writes a report's information.
    ///
    /// # Errors
    ///
    /// [`TooLong`] if it does not fit the 16-bit lengths.
    pub fn encode(&self) -> Result<Vec<u8>, TooLong> {
        let mut writer = MderWriter::new();
        self.describe(self.status, &mut writer);
        writer.octet_string(self.entries);
        writer.finish()
    }

    /// Writes the answer: the description alone, with the manager's status.
    ///
    /// # Errors
    ///
    /// Never: twelve octets always fit.
    pub fn encode_answer(&self, status: SegmentStatus) -> Result<Vec<u8>, TooLong> {
        let mut writer = MderWriter::new();
        self.describe(status, &mut writer);
        writer.finish()
    }

    fn describe(&self, status: SegmentStatus, writer: &mut MderWriter) {
        writer.u16(self.instance);
        writer.u32(self.first);
        writer.u32(self.count);
        writer.u16(status.0);
    }
}

/// Position of a segment's entries in a transfer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SegmentStatus(pub u16);

impl SegmentStatus {
    /// The first entries.
    pub const FIRST: Self = Self(0x8000);
    /// The last entries.
    pub const LAST: Self = Self(0x4000);
    /// The agent aborts.
    pub const AGENT_ABORT: Self = Self(0x0800);
    /// The manager has received them.
    pub const MANAGER_CONFIRM: Self = Self(0x0080);
    /// The manager aborts.
    pub const MANAGER_ABORT: Self = Self(0x0008);

    /// Whether all bits of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}
