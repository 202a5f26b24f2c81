//! Control messages of a simulated device: configuration reports and association cycles among its
//! data, and their responses.

use crate::apdu::Apdu;
use crate::code::event;
use crate::data::{DataApdu, DataMessage};
use core::time::Duration;

/// The control messages of one device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Control {
    /// Time between two of them.
    period: Duration,
    /// When the next is due.
    pub(super) due: Option<Duration>,
    /// Control messages sent before the present turn.
    before: u64,
    turn: u64,
    tally: ControlTally,
}

/// Counts of control messages: everything except reports of measurements.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct ControlTally {
    /// Those sent: the device's requests and responses.
    pub(super) sent: u64,
    /// Those of them that need a response.
    pub(super) asked: u64,
    /// Responses to those.
    pub(super) answered: u64,
}

/// Action of the device in a turn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Turn {
    /// It reports its configuration, without a request.
    Configuration,
    /// It releases its association and establishes a new one, in which the manager may request
    /// attributes.
    Association,
}

impl Control {
    pub(super) const fn new(period: Duration) -> Self {
        let tally = ControlTally { sent: 0, asked: 0, answered: 0 };
        Self { period, due: None, before: 0, turn: 0, tally }
    }

    pub(super) const fn tally(&self) -> ControlTally {
        self.tally
    }

    /// Starts the schedule; the first turn is a `share` of 256 of the period away.
    pub(super) fn begin(&mut self, now: Duration, share: u32) {
        if self.due.is_none() {
            self.due = Some(now + self.period * share / 256);
        }
    }

    /// The turn that is due; `None` while a response is outstanding.
    pub(super) fn turn(&mut self, now: Duration) -> Option<Turn> {
        let due = self.due.filter(|due| *due <= now)?;
        // What the last turn sent beyond one message (its answers, too) has used up time.
        let sent = self.tally.sent.saturating_sub(self.before).max(1);
        self.before = self.tally.sent;
        let periods = u32::try_from(sent).unwrap_or(u32::MAX);
        self.due = Some(due.max(now.saturating_sub(self.period)) + self.period * periods);
        if self.tally.asked > self.tally.answered {
            return None;
        }
        self.turn += 1;
        Some(if self.turn.is_multiple_of(2) { Turn::Association } else { Turn::Configuration })
    }

    /// Counts an APDU that the device sent.
    pub(super) fn sent(&mut self, octets: &[u8]) {
        let Ok(apdu) = Apdu::decode(octets) else { return };
        let (is_control, asks) = match apdu {
            Apdu::Aarq(_) | Apdu::Rlrq(_) => (true, true),
            Apdu::Prst(DataApdu { message: DataMessage::ConfirmedEventReport(report), .. }) => {
                let is_control = report.event == event::CONFIG;
                (is_control, is_control)
            }
            Apdu::Prst(DataApdu { message: DataMessage::EventReport(_), .. }) => (false, false),
            _ => (true, false),
        };
        self.tally.sent += u64::from(is_control);
        self.tally.asked += u64::from(asks);
    }

    /// Counts an APDU that the device received.
    pub(super) fn arrived(&mut self, octets: &[u8]) {
        let Ok(apdu) = Apdu::decode(octets) else { return };
        let answers = match apdu {
            Apdu::Aare(_) | Apdu::Rlre(_) => true,
            Apdu::Prst(DataApdu { message: DataMessage::EventReportResult(report), .. }) => {
                report.event == event::CONFIG
            }
            _ => false,
        };
        self.tally.answered += u64::from(answers);
    }
}
