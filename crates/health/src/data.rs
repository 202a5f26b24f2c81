//! Messages within an association: remote operations and their responses (DATA-APDU).
//!
//! | octets | field |
//! |---|---|
//! | 2 | invoke-id, repeated by the answer |
//! | 2 | choice: `01xx` invoke, `02xx` answer, `0300` error, `0400` reject |
//! | 2 | length of what follows |

use crate::apdu::{Apdu, Attribute};
use crate::code::{ActionType, AttributeId, EventType, Handle, InvokeId};
use crate::mder::{Element, List, Malformed, MderWriter, Reader, TooLong};

const EVENT_REPORT: u16 = 0x0100;
const CONFIRMED_EVENT_REPORT: u16 = 0x0101;
const GET: u16 = 0x0103;
const SET: u16 = 0x0104;
const CONFIRMED_SET: u16 = 0x0105;
const ACTION: u16 = 0x0106;
const CONFIRMED_ACTION: u16 = 0x0107;
const EVENT_REPORT_RESULT: u16 = 0x0201;
const GET_RESULT: u16 = 0x0203;
const SET_RESULT: u16 = 0x0205;
const ACTION_RESULT: u16 = 0x0207;
const ERROR: u16 = 0x0300;
const REJECT: u16 = 0x0400;

/// A remote operation, or the answer to one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DataApdu<'a> {
    /// Number shared by request and response.
    pub invoke_id: InvokeId,
    /// The operation or response.
    pub message: DataMessage<'a>,
}

/// An operation or a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DataMessage<'a> {
    /// Unconfirmed report of an agent.
    EventReport(EventReport<'a>),
    /// Confirmed report of an agent, which keeps its data until the response.
    ConfirmedEventReport(EventReport<'a>),
    /// Reads attributes.
    Get(Get<'a>),
    /// Changes attributes, unconfirmed.
    Set(Set<'a>),
    /// Changes attributes, confirmed.
    ConfirmedSet(Set<'a>),
    /// Performs an action, unconfirmed.
    Action(Action<'a>),
    /// Performs an action, confirmed.
    ConfirmedAction(Action<'a>),
    /// Response to a confirmed report.
    EventReportResult(EventReport<'a>),
    /// Attributes read.
    GetResult(Attributes<'a>),
    /// Attributes changed.
    SetResult(Attributes<'a>),
    /// Result of an action.
    ActionResult(Action<'a>),
    /// The operation was understood and failed.
    Error(OperationError<'a>),
    /// The operation was not understood.
    Reject(RejectProblem),
}

impl<'a> DataApdu<'a> {
    /// Decodes exactly one DATA-APDU.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn decode(octets: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(octets);
        let invoke_id = InvokeId(reader.u16()?);
        let choice = reader.u16()?;
        let mut body = Reader::new(reader.octet_string()?);
        reader.finish()?;
        let message = match choice {
            EVENT_REPORT => DataMessage::EventReport(EventReport::take(&mut body)?),
            CONFIRMED_EVENT_REPORT => {
                DataMessage::ConfirmedEventReport(EventReport::take(&mut body)?)
            }
            GET => DataMessage::Get(Get::take(&mut body)?),
            SET => DataMessage::Set(Set::take(&mut body)?),
            CONFIRMED_SET => DataMessage::ConfirmedSet(Set::take(&mut body)?),
            ACTION => DataMessage::Action(Action::take(&mut body)?),
            CONFIRMED_ACTION => DataMessage::ConfirmedAction(Action::take(&mut body)?),
            EVENT_REPORT_RESULT => DataMessage::EventReportResult(EventReport::take(&mut body)?),
            GET_RESULT => DataMessage::GetResult(Attributes::take(&mut body)?),
            SET_RESULT => DataMessage::SetResult(Attributes::take(&mut body)?),
            ACTION_RESULT => DataMessage::ActionResult(Action::take(&mut body)?),
            ERROR => DataMessage::Error(OperationError::take(&mut body)?),
            REJECT => DataMessage::Reject(RejectProblem(body.u16()?)),
            choice => return Err(Malformed::UnknownChoice { choice }),
        };
        body.finish()?;
        Ok(Self { invoke_id, message })
    }

    pub(crate) fn put(&self, writer: &mut MderWriter) {
        writer.u16(self.invoke_id.0);
        let (choice, body): (u16, &dyn Body) = match &self.message {
            DataMessage::EventReport(report) => (EVENT_REPORT, report),
            DataMessage::ConfirmedEventReport(report) => (CONFIRMED_EVENT_REPORT, report),
            DataMessage::Get(get) => (GET, get),
            DataMessage::Set(set) => (SET, set),
            DataMessage::ConfirmedSet(set) => (CONFIRMED_SET, set),
            DataMessage::Action(action) => (ACTION, action),
            DataMessage::ConfirmedAction(action) => (CONFIRMED_ACTION, action),
            DataMessage::EventReportResult(report) => (EVENT_REPORT_RESULT, report),
            DataMessage::GetResult(attributes) => (GET_RESULT, attributes),
            DataMessage::SetResult(attributes) => (SET_RESULT, attributes),
            DataMessage::ActionResult(action) => (ACTION_RESULT, action),
            DataMessage::Error(error) => (ERROR, error),
            DataMessage::Reject(problem) => (REJECT, problem),
        };
        writer.u16(choice);
        writer.sized(|writer| body.put(writer));
    }

    /// Encodes it as a complete APDU.
    ///
    /// # Errors
    ///
    /// [`TooLong`] if it does not fit the 16-bit lengths.
    pub fn encode(self) -> Result<Vec<u8>, TooLong> {
        Apdu::Prst(self).encode()
    }
}

/// Octets of the answer to a report of measurements.
pub const ACKNOWLEDGEMENT_LEN: usize = 22;

/// Encodes the APDU that answers a confirmed report of measurements, without allocation: for a data
/// plane without a [`Manager`](crate::manager::Manager).
pub fn acknowledge(
    invoke_id: InvokeId,
    handle: Handle,
    event: EventType,
) -> [u8; ACKNOWLEDGEMENT_LEN] {
    let [invoke_high, invoke_low] = invoke_id.0.to_be_bytes();
    let [handle_high, handle_low] = handle.0.to_be_bytes();
    let [event_high, event_low] = event.0.to_be_bytes();
    [
        0xE7,
        0x00,
        0x00,
        18,
        0x00,
        16, // a presentation APDU, an octet string
        invoke_high,
        invoke_low,
        0x02,
        0x01,
        0x00,
        10, // the result of an event report
        handle_high,
        handle_low,
        0xFF,
        0xFF,
        0xFF,
        0xFF, // the object, and no time
        event_high,
        event_low,
        0x00,
        0x00, // the event, and nothing more
    ]
}

/// Octets of a rejection.
pub const REJECTION_LEN: usize = 14;

/// Encodes the APDU that rejects an operation, without allocation, as [`acknowledge`] does.
pub fn reject(invoke_id: InvokeId, problem: RejectProblem) -> [u8; REJECTION_LEN] {
    let [invoke_high, invoke_low] = invoke_id.0.to_be_bytes();
    let [choice_high, choice_low] = REJECT.to_be_bytes();
    let [high, low] = problem.0.to_be_bytes();
    [
        0xE7,
        0x00,
        0x00,
        10,
        0x00,
        8, // a presentation APDU, an octet string
        invoke_high,
        invoke_low,
        choice_high,
        choice_low,
        0x00,
        2,
        high,
        low, // the problem
    ]
}

/// Content after the choice.
trait Body {
    fn put(&self, writer: &mut MderWriter);
}

/// A report, or the response to one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EventReport<'a> {
    /// The object that reports: the device, a scanner or a store.
    pub handle: Handle,
    /// The device's running counter, or [`NO_RELATIVE_TIME`](crate::time::NO_RELATIVE_TIME).
    pub time: u32,
    /// The type of the event.
    pub event: EventType,
    /// The report itself; see [`report`](crate::report).
    pub info: &'a [u8],
}

impl<'a> EventReport<'a> {
    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            handle: Handle(reader.u16()?),
            time: reader.u32()?,
            event: EventType(reader.u16()?),
            info: reader.octet_string()?,
        })
    }
}

impl Body for EventReport<'_> {
    fn put(&self, writer: &mut MderWriter) {
        writer.u16(self.handle.0);
        writer.u32(self.time);
        writer.u16(self.event.0);
        writer.octet_string(self.info);
    }
}

/// Asks an object for attributes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Get<'a> {
    /// The object.
    pub handle: Handle,
    /// The attributes; none means all.
    pub attributes: List<'a, AttributeId>,
}

impl<'a> Get<'a> {
    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { handle: Handle(reader.u16()?), attributes: reader.list()? })
    }
}

impl Body for Get<'_> {
    fn put(&self, writer: &mut MderWriter) {
        writer.u16(self.handle.0);
        self.attributes.put(writer);
    }
}

/// Changes attributes of an object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Set<'a> {
    /// The object.
    pub handle: Handle,
    /// The changes.
    pub changes: List<'a, AttributeChange<'a>>,
}

impl<'a> Set<'a> {
    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { handle: Handle(reader.u16()?), changes: reader.list()? })
    }
}

impl Body for Set<'_> {
    fn put(&self, writer: &mut MderWriter) {
        writer.u16(self.handle.0);
        self.changes.put(writer);
    }
}

/// One change of one attribute.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AttributeChange<'a> {
    /// 0 replace, 1 add values, 2 remove values, 3 set to default.
    pub operator: u16,
    /// The attribute and its value.
    pub attribute: Attribute<'a>,
}

impl AttributeChange<'_> {
    /// Puts a new value in place of the old.
    pub const REPLACE: u16 = 0;
}

impl<'a> Element<'a> for AttributeChange<'a> {
    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { operator: reader.u16()?, attribute: Attribute::take(reader)? })
    }

    fn put(&self, writer: &mut MderWriter) {
        writer.u16(self.operator);
        self.attribute.put(writer);
    }
}

/// An action of an object, or its result.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Action<'a> {
    /// The object.
    pub handle: Handle,
    /// The action.
    pub action: ActionType,
    /// Arguments or results.
    pub info: &'a [u8],
}

impl<'a> Action<'a> {
    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            handle: Handle(reader.u16()?),
            action: ActionType(reader.u16()?),
            info: reader.octet_string()?,
        })
    }
}

impl Body for Action<'_> {
    fn put(&self, writer: &mut MderWriter) {
        writer.u16(self.handle.0);
        writer.u16(self.action.0);
        writer.octet_string(self.info);
    }
}

/// Attributes of an object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Attributes<'a> {
    /// The object.
    pub handle: Handle,
    /// Its attributes.
    pub attributes: List<'a, Attribute<'a>>,
}

impl<'a> Attributes<'a> {
    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { handle: Handle(reader.u16()?), attributes: reader.list()? })
    }
}

impl Body for Attributes<'_> {
    fn put(&self, writer: &mut MderWriter) {
        writer.u16(self.handle.0);
        self.attributes.put(writer);
    }
}

/// An operation that failed (roer).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OperationError<'a> {
    /// The cause.
    pub code: ErrorCode,
    /// Further information.
    pub parameter: &'a [u8],
}

impl<'a> OperationError<'a> {
    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { code: ErrorCode(reader.u16()?), parameter: reader.octet_string()? })
    }
}

impl Body for OperationError<'_> {
    fn put(&self, writer: &mut MderWriter) {
        writer.u16(self.code.0);
        writer.octet_string(self.parameter);
    }
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ErrorCode(pub u16);

impl ErrorCode {
    /// No object has this handle.
    pub const NO_SUCH_OBJECT: Self = Self(1);
    /// Access denied.
    pub const ACCESS_DENIED: Self = Self(2);
    /// The object does not support the action.
    pub const NO_SUCH_ACTION: Self = Self(9);
    /// The instance does not exist.
    pub const INVALID_INSTANCE: Self = Self(17);
    /// Not allowed in this state.
    pub const PROTOCOL_VIOLATION: Self = Self(23);
    /// The object refuses it now.
    pub const NOT_ALLOWED: Self = Self(24);
    /// Timed out.
    pub const ACTION_TIMED_OUT: Self = Self(25);
    /// Aborted.
    pub const ACTION_ABORTED: Self = Self(26);
}

/// Why an operation was not understood (rorj).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct RejectProblem(pub u16);

impl RejectProblem {
    /// Not an APDU.
    pub const UNRECOGNIZED_APDU: Self = Self(0);
    /// Malformed APDU.
    pub const BADLY_STRUCTURED: Self = Self(2);
    /// The operation does not exist.
    pub const UNRECOGNIZED_OPERATION: Self = Self(101);
    /// No resources now.
    pub const RESOURCE_LIMITATION: Self = Self(103);
    /// Anything else.
    pub const UNEXPECTED_ERROR: Self = Self(303);
}

impl Body for RejectProblem {
    fn put(&self, writer: &mut MderWriter) {
        writer.u16(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::event;
    use crate::time::NO_RELATIVE_TIME;

    #[test]
    fn an_acknowledgement_is_what_the_encoder_writes() {
        let (invoke_id, handle) = (InvokeId(0x1236), Handle(0x0102));
        let event = event::SCAN_FIXED;
        let result = EventReport { handle, time: NO_RELATIVE_TIME, event, info: &[] };
        let encoded =
            DataApdu { invoke_id, message: DataMessage::EventReportResult(result) }.encode();
        assert_eq!(acknowledge(invoke_id, handle, event).as_slice(), encoded.unwrap());
    }

    #[test]
    fn a_rejection_is_what_the_encoder_writes() {
        let (invoke_id, problem) = (InvokeId(0x1236), RejectProblem::RESOURCE_LIMITATION);
        let encoded = DataApdu { invoke_id, message: DataMessage::Reject(problem) }.encode();
        assert_eq!(reject(invoke_id, problem).as_slice(), encoded.unwrap());
    }
}
