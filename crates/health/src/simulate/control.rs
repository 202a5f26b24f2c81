//! Control messages of a simulated device: configuration reports and association cycles among its
//! data, and what of all that was answered.

use crate::apdu::Apdu;
use crate::code::event;
use crate::data::{DataApdu, Message};
use core::time::Duration;

/// The control messages of one device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Control {
    /// Time between two of them.
    period: Duration,
    /// When the next is due.
    pub(super) due: Option<Duration>,
    /// How many had left when the present turn began.
    before: u64,
    turn: u64,
    tally: Tally,
}

/// Control messages: everything but reports of measurements.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Tally {
    /// Those that left: what the device asked, and its answers.
    pub(super) sent: u64,
    /// Those of them that want an answer.
    pub(super) asked: u64,
    /// Answers to those.
    pub(super) answered: u64,
}

/// What the device does in a turn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Turn {
    /// It reports its configuration, unasked.
    Configuration,
    /// It releases its association and makes a new one, in which the manager may ask what it is.
    Association,
}

impl Control {
    pub(super) const fn new(period: Duration) -> Self {
        let tally = Tally { sent: 0, asked: 0, answered: 0 };
        Self { period, due: None, before: 0, turn: 0, tally }
    }

    pub(super) const fn tally(&self) -> Tally {
        self.tally
    }

    /// The device reports; the first turn is a `share` of 256 of the period away.
    pub(super) fn begin(&mut self, now: Duration, share: u32) {
        if self.due.is_none() {
            self.due = Some(now + self.period * share / 256);
        }
    }

    /// What to do now, if anything is due: nothing while something asked is not answered.
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

    /// An APDU of the device has left.
    pub(super) fn sent(&mut self, octets: &[u8]) {
        let Ok(apdu) = Apdu::decode(octets) else { return };
        let (is_control, asks) = match apdu {
            Apdu::Aarq(_) | Apdu::Rlrq(_) => (true, true),
            Apdu::Prst(DataApdu { message: Message::ConfirmedEventReport(report), .. }) => {
                let is_control = report.event == event::CONFIG;
                (is_control, is_control)
            }
            Apdu::Prst(DataApdu { message: Message::EventReport(_), .. }) => (false, false),
            _ => (true, false),
        };
        self.tally.sent += u64::from(is_control);
        self.tally.asked += u64::from(asks);
    }

    /// An APDU has arrived.
    pub(super) fn arrived(&mut self, octets: &[u8]) {
        let Ok(apdu) = Apdu::decode(octets) else { return };
        let answers = match apdu {
            Apdu::Aare(_) | Apdu::Rlre(_) => true,
            Apdu::Prst(DataApdu { message: Message::EventReportResult(report), .. }) => {
                report.event == event::CONFIG
            }
            _ => false,
        };
        self.tally.answered += u64::from(answers);
    }
}
