//! Inputs and outputs of a manager.

use crate::apdu::{AbortReason, Apdu};
use crate::code::{ConfigId, Handle, SystemId};
use crate::configuration::{Configuration, Remembered};
use crate::data::DataMessage;
use crate::operation::{Operation, OperationFailure, OperationResult};
use crate::report::Report;
use core::time::Duration;
use std::sync::Arc;

/// Settings of a manager.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ManagerSettings {
    /// The manager's system-id.
    pub system_id: SystemId,
    /// Time limit of a transport without an association.
    pub idle: Duration,
    /// Time limit of an associated agent's silence before it is aborted: some agents measure once a
    /// day.
    pub silence: Duration,
    /// Whether the transport may duplicate messages (datagrams).
    pub datagrams: bool,
}

impl ManagerSettings {
    /// Settings for a stream: half a minute for an association and a day for the next report.
    pub const fn new(system_id: SystemId) -> Self {
        Self {
            system_id,
            idle: Duration::from_secs(30),
            silence: Duration::from_hours(24),
            datagrams: false,
        }
    }
}

/// Numbers the reports of one association, from 1.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RecordId(pub u64);

/// The caller's number of a request.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RequestId(pub u64);

/// Input to a manager.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// The transport is connected.
    Connected,
    /// The transport is disconnected.
    Disconnected,
    /// One complete APDU has arrived.
    Apdu(&'a [u8]),
    /// The stream is out of step, or an APDU is too long.
    Unreadable,
    /// Time has passed; see [`Manager::poll_timeout`](super::Manager::poll_timeout).
    Tick,
    /// Every report up to this one is stored: answer them.
    Committed(RecordId),
    /// This report cannot be stored: reject it; the agent keeps it.
    NotCommitted(RecordId),
    /// This report cannot be decoded: reject it.
    NotReadable(RecordId),
    /// Send the device a request.
    Ask(RequestId, Operation),
    /// End the association in good order.
    Release,
    /// End it at once.
    Abort,
}

/// Output of a manager.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Output {
    /// Send these octets, one APDU.
    Send(Vec<u8>),
    /// An agent is associated; reports may follow once it is configured.
    Associated {
        /// Its system-id.
        system_id: SystemId,
        /// The configuration it offers.
        config_id: ConfigId,
        /// Whether it requests a test association, whose reports are test data.
        is_test: bool,
    },
    /// The agent's configuration is known: its reports can be decoded.
    Configured {
        /// The configuration.
        configuration: Arc<Configuration>,
        /// Its relation to the known one.
        remembered: Remembered,
    },
    /// Store this report.
    Report(ReportRecord),
    /// Result of a request.
    Answer(RequestId, Result<OperationResult, OperationFailure>),
    /// The association has ended. The agent keeps uncommitted reports.
    Disassociated {
        /// The agent.
        system_id: SystemId,
        /// The cause.
        ending: Ending,
    },
    /// Close the unused transport.
    Close,
}

/// A report to be stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReportRecord {
    /// Its number in this association.
    pub id: RecordId,
    /// The agent's number, unwrapped: it grows even if the agent's 16 bits wrap or stand still. It
    /// is unique within an association.
    pub number: u64,
    /// Whether the agent waits for the commit.
    pub confirmed: bool,
    /// The complete APDU; [`report`](Self::report) decodes it.
    pub apdu: Vec<u8>,
}

impl ReportRecord {
    /// The reporting object, its time and the report; never `None` for a manager's own record.
    pub fn report(&self) -> Option<(Handle, u32, Report<'_>)> {
        let Ok(Apdu::Prst(data)) = Apdu::decode(&self.apdu) else { return None };
        let (DataMessage::EventReport(event) | DataMessage::ConfirmedEventReport(event)) =
            data.message
        else {
            return None;
        };
        event.report().ok().map(|report| (event.handle, event.time, report))
    }

    /// The octets of the measurements alone, without the numbers that differ when they are reported
    /// again in another association (invoke-id, event time, data-req-id, scan-report-no).
    pub fn measured(&self) -> Option<&[u8]> {
        let Ok(Apdu::Prst(data)) = Apdu::decode(&self.apdu) else { return None };
        let (DataMessage::EventReport(event) | DataMessage::ConfirmedEventReport(event)) =
            data.message
        else {
            return None;
        };
        match event.report().ok()? {
            Report::Scan(_) => event.info.get(SCAN_NUMBERS..),
            _ => Some(event.info),
        }
    }
}

/// Octets of data-req-id and scan-report-no at the start of every scan report.
const SCAN_NUMBERS: usize = 4;

/// The end of an association.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    /// In good order.
    Released,
    /// The agent has aborted.
    AbortedByAgent(AbortReason),
    /// This manager has aborted, after an unexpected message or a timeout.
    Aborted,
    /// The transport was disconnected.
    Disconnected,
}

/// Counters of a manager.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// APDUs taken.
    pub apdus: u64,
    /// Malformed APDUs.
    pub malformed: u64,
    /// Reports recorded.
    pub reports: u64,
    /// Of these, those with octets after their list, which were skipped.
    pub padded: u64,
    /// Confirmed reports repeated within their association: the same octets, invoke-id and report
    /// number.
    pub repeated: u64,
    /// Reports whose number did not grow.
    pub numbers_not_growing: u64,
    /// Reports rejected because [`WAITING_MAX`](super::WAITING_MAX) were waiting already.
    pub waiting_full: u64,
    /// Reports before the agent was configured.
    pub early_reports: u64,
    /// Datagrams that belong to no association, dropped.
    pub strangers: u64,
    /// Configuration reports of an agent that was configured already.
    pub late_configurations: u64,
    /// Configurations that could not be used.
    pub unusable_configurations: u64,
    /// Association requests refused.
    pub refused: u64,
    /// Reports of events that 20601 does not define; rejected if confirmed.
    pub unknown_events: u64,
    /// Test associations accepted.
    pub test_associations: u64,
    /// Responses without a request.
    pub unasked_answers: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Requests refused because [`ASKED_MAX`](super::ASKED_MAX) were queued already.
    pub asked_full: u64,
}
