//! What goes into a manager and comes out of it.

use crate::apdu::{AbortReason, Apdu};
use crate::code::{ConfigId, Handle, SystemId};
use crate::configuration::{Configuration, Remembered};
use crate::data::Message;
use crate::operation::{Answer, Operation, OperationFailure};
use crate::report::Report;
use core::time::Duration;
use std::sync::Arc;

/// What a manager is told once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Settings {
    /// Who the manager is.
    pub system_id: SystemId,
    /// How long a transport may stay without association before it is to be closed.
    pub idle: Duration,
    /// How long an associated agent may be silent before it is aborted: agents that measure once
    /// a day exist.
    pub silence: Duration,
    /// Whether the transport may repeat what the agent sent once (datagrams).
    pub datagrams: bool,
}

impl Settings {
    /// Waits half a minute for an association and a day for the next report, on a stream.
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

/// Ties an answer to the caller's request.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RequestId(pub u64);

/// What has happened.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// The transport is there.
    Connected,
    /// The transport is gone.
    Disconnected,
    /// One APDU has arrived, whole.
    Apdu(&'a [u8]),
    /// The stream is out of step, or an APDU too long.
    Unreadable,
    /// Time has passed; see [`Manager::poll_timeout`](super::Manager::poll_timeout).
    Tick,
    /// Every report up to this one is safe: answer them.
    Committed(RecordId),
    /// This report cannot be kept: say so to the agent, which keeps it.
    NotCommitted(RecordId),
    /// Nothing of this report can be read: say so to the agent.
    NotReadable(RecordId),
    /// Ask the device something.
    Ask(RequestId, Operation),
    /// End the association in good order.
    Release,
    /// End it at once.
    Abort,
}

/// What is to be done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Output {
    /// Send these octets, one APDU.
    Send(Vec<u8>),
    /// An agent is associated; reports may follow once it is configured.
    Associated {
        /// Which.
        system_id: SystemId,
        /// The configuration it offers.
        config_id: ConfigId,
        /// Whether it asks for a test association: what it reports then is test data.
        is_test: bool,
    },
    /// The agent's configuration is known: its reports can be read.
    Configured {
        /// The configuration.
        configuration: Arc<Configuration>,
        /// What was known of it before.
        remembered: Remembered,
    },
    /// Keep this report.
    Report(Record),
    /// What a request came to.
    Answer(RequestId, Result<Answer, OperationFailure>),
    /// The association has ended. Reports not committed are the agent's again.
    Disassociated {
        /// Whose.
        system_id: SystemId,
        /// How.
        ending: Ending,
    },
    /// Close the transport: nobody uses it.
    Close,
}

/// A report to be kept.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    /// Its number in this association.
    pub id: RecordId,
    /// The agent's number, unwrapped: it grows even where the agent's 16 bits start again or
    /// stand still. Within an association no two reports have the same.
    pub number: u64,
    /// Whether the agent waits for the commit.
    pub confirmed: bool,
    /// The whole APDU; [`report`](Self::report) reads it.
    pub apdu: Vec<u8>,
}

impl Record {
    /// The object that reports, its time, and what it reports; `None` never happens to a record
    /// that a manager has made.
    pub fn report(&self) -> Option<(Handle, u32, Report<'_>)> {
        let Ok(Apdu::Prst(data)) = Apdu::decode(&self.apdu) else { return None };
        let (Message::EventReport(event) | Message::ConfirmedEventReport(event)) = data.message
        else {
            return None;
        };
        event.report().ok().map(|report| (event.handle, event.time, report))
    }

    /// The octets of what was measured alone: without the numbers that are others when the same is
    /// reported again, in another association (invoke-id, event time, data-req-id,
    /// scan-report-no).
    pub fn measured(&self) -> Option<&[u8]> {
        let Ok(Apdu::Prst(data)) = Apdu::decode(&self.apdu) else { return None };
        let (Message::EventReport(event) | Message::ConfirmedEventReport(event)) = data.message
        else {
            return None;
        };
        match event.report().ok()? {
            Report::Scan(_) => event.info.get(SCAN_NUMBERS..),
            _ => Some(event.info),
        }
    }
}

/// Octets of data-req-id and scan-report-no, with which every scan report begins.
const SCAN_NUMBERS: usize = 4;

/// How an association ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    /// In good order.
    Released,
    /// The agent has aborted.
    AbortedByAgent(AbortReason),
    /// This manager has aborted: what came did not belong there, or nothing came.
    Aborted,
    /// The transport went.
    Disconnected,
}

/// How often what has happened.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// APDUs taken.
    pub apdus: u64,
    /// APDUs that were none, or badly built.
    pub malformed: u64,
    /// Reports recorded.
    pub reports: u64,
    /// Of these, those with octets behind their list, which were passed over.
    pub padded: u64,
    /// Confirmed reports that repeated one of their association: the same octets, invoke-id and
    /// report number included.
    pub repeated: u64,
    /// Reports whose number did not grow.
    pub numbers_not_growing: u64,
    /// Reports rejected because [`WAITING_MAX`](super::WAITING_MAX) waited already.
    pub waiting_full: u64,
    /// Reports that came when none was allowed.
    pub early_reports: u64,
    /// Datagrams that belong to no association, dropped.
    pub strangers: u64,
    /// Configuration reports of an agent that was configured already.
    pub late_configurations: u64,
    /// Configurations that could not be used.
    pub unusable_configurations: u64,
    /// Association requests refused.
    pub refused: u64,
    /// Reports of events that 20601 does not name; rejected if confirmed.
    pub unknown_events: u64,
    /// Test associations accepted.
    pub test_associations: u64,
    /// Answers to nothing that was asked.
    pub unasked_answers: u64,
    /// Waits that ended without what was waited for.
    pub timeouts: u64,
    /// Requests refused because [`ASKED_MAX`](super::ASKED_MAX) waited already.
    pub asked_full: u64,
}
