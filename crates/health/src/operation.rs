//! Operations that a manager requests from a device (GET, SET and ACTION), and their results.

use crate::apdu::Attribute;
use crate::code::{
    ActionType, AttributeId, DataRequestId, Handle, InvokeId, ObjectClass, action, attribute,
};
use crate::data::{
    Action, AttributeChange, DataApdu, DataMessage, ErrorCode, Get, RejectProblem, Set,
};
use crate::mder::{List, MderWriter, Reader, TooLong};
use crate::store::Selection;
use crate::time::AbsoluteTime;

/// An operation requested from a device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Operation {
    /// Read attributes; none named means all.
    Get {
        /// The object.
        handle: Handle,
        /// The attributes.
        attributes: Vec<AttributeId>,
    },
    /// Replace attributes' values.
    Set {
        /// The object.
        handle: Handle,
        /// Attributes and their new values.
        changes: Vec<(AttributeId, Vec<u8>)>,
    },
    /// Perform an action.
    Action {
        /// The object.
        handle: Handle,
        /// The action.
        action: ActionType,
        /// Its arguments.
        info: Vec<u8>,
    },
}

/// Scope of a data request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DataScope {
    /// All measurements of the device.
    All,
    /// Those of one class of objects.
    Class(ObjectClass),
    /// Those of some objects.
    Handles(Vec<Handle>),
}

/// Data request mode: start (and not stop).
const DATA_START: u16 = 0x8000;
const DATA_ALL: u16 = 0x0800;
const DATA_CLASS: u16 = 0x0400;
const DATA_HANDLES: u16 = 0x0200;
/// Data request mode: one report.
const DATA_SINGLE: u16 = 0x0080;

impl Operation {
    /// Reads all attributes of the device (GET of the MDS).
    pub const fn read_device() -> Self {
        Self::Get { handle: Handle::MDS, attributes: Vec::new() }
    }

    /// Sets the device's clock (SetTimeInvoke: the time, and 0 for its accuracy).
    pub fn set_clock(time: AbsoluteTime) -> Self {
        let mut info = time.0.to_vec();
        info.extend([0; 4]);
        Self::Action { handle: Handle::MDS, action: action::SET_TIME, info }
    }

    /// Requests one report of measurements, under the number `request`.
    ///
    /// # Errors
    ///
    /// [`TooLong`] if too many handles are named.
    pub fn request_data(request: DataRequestId, scope: &DataScope) -> Result<Self, TooLong> {
        let (mode, class, handles) = match scope {
            DataScope::All => (DATA_ALL, 0, [].as_slice()),
            DataScope::Class(class) => (DATA_CLASS, class.0, [].as_slice()),
            DataScope::Handles(handles) => (DATA_HANDLES, 0, handles.as_slice()),
        };
        let mut writer = MderWriter::new();
        writer.u16(request.0);
        writer.u16(DATA_START | DATA_SINGLE | mode);
        writer.u32(0);
        writer.u16(0);
        writer.u16(class);
        writer.list(handles);
        let info = writer.finish()?;
        Ok(Self::Action { handle: Handle::MDS, action: action::DATA_REQUEST, info })
    }

    /// Requests descriptions of a store's segments.
    ///
    /// # Errors
    ///
    /// [`TooLong`] if too many segments are named.
    pub fn describe_segments(store: Handle, segments: &Selection) -> Result<Self, TooLong> {
        let info = segments.encode()?;
        Ok(Self::Action { handle: store, action: action::SEGMENT_INFO, info })
    }

    /// Starts the transfer of a segment; its entries come as reports.
    pub fn transfer_segment(store: Handle, instance: u16) -> Self {
        let info = instance.to_be_bytes().to_vec();
        Self::Action { handle: store, action: action::SEGMENT_TRANSFER, info }
    }

    /// Empties segments of a store.
    ///
    /// # Errors
    ///
    /// [`TooLong`] if too many segments are named.
    pub fn clear_segments(store: Handle, segments: &Selection) -> Result<Self, TooLong> {
        let info = segments.encode()?;
        Ok(Self::Action { handle: store, action: action::SEGMENT_CLEAR, info })
    }

    /// Starts or stops a scanner.
    pub fn enable_scanner(scanner: Handle, enabled: bool) -> Self {
        let state = u16::from(enabled).to_be_bytes().to_vec();
        Self::Set { handle: scanner, changes: vec![(attribute::OPERATIONAL_STATE, state)] }
    }

    /// Encodes the request as a complete APDU.
    ///
    /// # Errors
    ///
    /// [`TooLong`] if it does not fit the 16-bit lengths.
    pub fn encode(&self, invoke_id: InvokeId) -> Result<Vec<u8>, TooLong> {
        let mut writer = MderWriter::new();
        match self {
            Self::Get { attributes, .. } => writer.list(attributes),
            Self::Set { changes, .. } => {
                let changes: Vec<_> = changes
                    .iter()
                    .map(|(id, value)| Attribute { id: *id, value })
                    .map(|attribute| AttributeChange {
                        operator: AttributeChange::REPLACE,
                        attribute,
                    })
                    .collect();
                writer.list(&changes);
            }
            Self::Action { info, .. } => writer.octets(info),
        }
        let octets = writer.finish()?;
        let message = match self {
            Self::Get { handle, .. } => {
                DataMessage::Get(Get { handle: *handle, attributes: listed(&octets)? })
            }
            Self::Set { handle, .. } => {
                DataMessage::ConfirmedSet(Set { handle: *handle, changes: listed(&octets)? })
            }
            Self::Action { handle, action, .. } => DataMessage::ConfirmedAction(Action {
                handle: *handle,
                action: *action,
                info: &octets,
            }),
        };
        DataApdu { invoke_id, message }.encode()
    }

    /// Whether `message` is a response to this operation.
    pub(crate) fn is_answered_by(&self, message: &DataMessage<'_>) -> bool {
        matches!(
            (self, message),
            (Self::Get { .. }, DataMessage::GetResult(_))
                | (Self::Set { .. }, DataMessage::SetResult(_))
                | (Self::Action { .. }, DataMessage::ActionResult(_))
                | (_, DataMessage::Error(_) | DataMessage::Reject(_))
        )
    }
}

/// Decodes a list encoded just before.
fn listed<'a, E: crate::mder::Element<'a>>(octets: &'a [u8]) -> Result<List<'a, E>, TooLong> {
    Reader::new(octets).list().map_err(|_| TooLong)
}

/// Response of a device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum OperationResult {
    /// Attributes read or changed.
    Attributes {
        /// The object.
        handle: Handle,
        /// Its attributes with their values.
        values: Vec<(AttributeId, Vec<u8>)>,
    },
    /// Result of an action.
    Action {
        /// The object.
        handle: Handle,
        /// The action.
        action: ActionType,
        /// Its results.
        info: Vec<u8>,
    },
}

/// Why a device has not performed an operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OperationFailure {
    /// The device is not associated.
    #[error("the device is away")]
    Away,
    /// Too many requests are queued for this device.
    #[error("{0} requests wait for this device already")]
    Busy(usize),
    /// The device did not answer in time; the association was aborted.
    #[error("the device did not answer in time")]
    TimedOut,
    /// The association ended before the response.
    #[error("the device disconnected before it answered")]
    WentAway,
    /// The operation failed.
    #[error("the device answered error {}", .0.0)]
    Failed(ErrorCode),
    /// The device rejected the message.
    #[error("the device rejected the request, problem {}", .0.0)]
    Rejected(RejectProblem),
    /// The request does not fit an APDU.
    #[error("the request is too long")]
    TooLong,
}
