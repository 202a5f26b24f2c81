//! Confirmed reports on their way: requests that the CSE acknowledges, and the answer to the device.
//!
//! A device keeps a confirmed report until it is answered, so it is answered when the CSE has executed
//! the request of each reading, and rejected when that fails. The requests are confirmable: one that is
//! not acknowledged is sent again (RFC 7252 §4.2). All of it ends before a device gives up.

use super::{RequestNumber, SocketIndex};
use gatewright_health::code::{Handle, InvokeId, event};
use gatewright_health::data::{ACKNOWLEDGEMENT_LEN, RejectProblem, acknowledge, reject};
use gatewright_tables::records::Sender;
use std::{cmp::Reverse, collections::BinaryHeap, net::IpAddr, ops::Range, time::Duration};

/// Time after which a request that is not acknowledged is sent again, at least: twice as early as by
/// default, as there is time for one repetition only. "A decrease of ACK_TIMEOUT below 1 second would
/// violate the guidelines of RFC 5405" (RFC 7252 §4.8.1).
const ACK_TIMEOUT: Duration = Duration::from_secs(1);
/// The wait is longer by up to half of it (RFC 7252 §4.8, `ACK_RANDOM_FACTOR`).
const ACK_SPREAD: Duration = Duration::from_millis(500);
/// Time limit of the CSE: less than a device waits for its answer (3 s).
const WITHIN: Duration = Duration::from_millis(2_500);
/// Message IDs of the last confirmable requests that are recognised in acknowledgements.
const IDS_MAX: usize = 1 << 14;
/// Octets of a report before the invoke-id of its APDU, and before its object's handle.
const INVOKE_ID_AT: usize = 6;
const HANDLE_AT: usize = 12;

/// State of a confirmed report.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ReportState {
    /// The CSE has not executed all requests.
    Waiting,
    /// The device was answered.
    Answered,
    /// The device was told to keep its report.
    Rejected,
}

/// State of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum RequestState {
    Sent,
    Acknowledged,
    Executed,
}

#[derive(Debug)]
struct ConfirmedRequest {
    number: RequestNumber,
    /// Its message among those of the report.
    message: Range<usize>,
    state: RequestState,
}

/// A device, and the address of ours to which it sends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Peer {
    pub(super) sender: Sender,
    pub(super) own: IpAddr,
}

/// The last confirmed report by one plan; its buffers are reused.
#[derive(Debug)]
struct ConfirmedReport {
    serial: u32,
    state: ReportState,
    /// Its octets: a device repeats them if the answer is lost.
    report: Vec<u8>,
    peer: Peer,
    requests: Vec<ConfirmedRequest>,
    messages: Vec<u8>,
    begun: Duration,
    /// When it is looked at next, if it waits.
    due: Duration,
    /// Whether it is among those that are due at some time.
    is_listed: bool,
}

/// What a confirmed report is to be done with.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Met {
    /// It is converted.
    New,
    /// It is under way already, or was answered by this, which was lost.
    Repeated(Option<Reply>),
    /// Another one of its device is under way.
    Busy,
}

/// What the CSE has said.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Outcome {
    Executed,
    Refused,
}

/// An APDU for a device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Reply {
    pub(super) peer: Peer,
    /// The plan of its report: its place and its serial number.
    pub(super) plan: (u32, u32),
    pub(super) is_answer: bool,
    octets: [u8; REPLY_MAX],
    length: usize,
}

const REPLY_MAX: usize = ACKNOWLEDGEMENT_LEN;

impl Reply {
    fn new(peer: Peer, plan: (u32, u32), report: &[u8], is_answer: bool) -> Self {
        let number = |at: usize| {
            let octets = report.get(at..).and_then(|rest| rest.first_chunk().copied());
            u16::from_be_bytes(octets.unwrap_or_default())
        };
        let invoke_id = InvokeId(number(INVOKE_ID_AT));
        if is_answer {
            let octets = acknowledge(invoke_id, Handle(number(HANDLE_AT)), event::SCAN_FIXED);
            return Self { peer, plan, is_answer, octets, length: octets.len() };
        }
        let mut octets = [0; REPLY_MAX];
        let rejection = reject(invoke_id, RejectProblem::RESOURCE_LIMITATION);
        octets.iter_mut().zip(rejection).for_each(|(to, from)| *to = from);
        let length = rejection.len();
        Self { peer, plan, is_answer, octets, length }
    }

    pub(super) fn octets(&self) -> &[u8] {
        self.octets.get(..self.length).unwrap_or_default()
    }
}

/// Confirmed reports, the last one of each plan.
#[derive(Debug)]
pub(super) struct ConfirmedReports {
    /// By the places of their plans.
    all: Vec<Option<Box<ConfirmedReport>>>,
    /// Those that wait, each at most once.
    due: BinaryHeap<Reverse<(Duration, u32)>>,
    /// The plans' places of the last requests, by message ID.
    ids: Vec<Option<(RequestNumber, u32)>>,
}

impl ConfirmedReports {
    /// None yet, with so many plans.
    pub(super) fn new(plans: usize) -> Self {
        let mut all = Vec::new();
        all.resize_with(plans, || None);
        Self { all, due: BinaryHeap::new(), ids: vec![None; IDS_MAX] }
    }

    fn report(&mut self, place: u32) -> Option<&mut ConfirmedReport> {
        self.all.get_mut(usize::try_from(place).ok()?)?.as_deref_mut()
    }

    /// What is to be done with a report that arrives from `peer`.
    pub(super) fn meet(&mut self, (place, serial): (u32, u32), peer: Peer, report: &[u8]) -> Met {
        let Some(known) = self.report(place).filter(|known| known.serial == serial) else {
            return Met::New;
        };
        let is_same = known.peer.sender == peer.sender && known.report == report;
        match known.state {
            ReportState::Waiting if is_same => Met::Repeated(None),
            ReportState::Waiting => Met::Busy,
            ReportState::Answered if is_same => {
                Met::Repeated(Some(Reply::new(peer, (place, serial), report, true)))
            }
            ReportState::Answered | ReportState::Rejected => Met::New,
        }
    }

    /// Begins a report, whose requests follow.
    pub(super) fn begin(
        &mut self,
        (place, serial): (u32, u32),
        peer: Peer,
        report: &[u8],
        now: Duration,
    ) {
        let Some(known) = usize::try_from(place).ok().and_then(|place| self.all.get_mut(place))
        else {
            return;
        };
        let known = known.get_or_insert_with(|| {
            Box::new(ConfirmedReport {
                serial,
                state: ReportState::Waiting,
                report: Vec::new(),
                peer,
                requests: Vec::new(),
                messages: Vec::new(),
                begun: now,
                due: now,
                is_listed: false,
            })
        });
        (known.serial, known.peer, known.state) = (serial, peer, ReportState::Waiting);
        (known.begun, known.due) = (now, now + WITHIN);
        known.report.clear();
        known.report.extend_from_slice(report);
        known.requests.clear();
        known.messages.clear();
    }

    /// Keeps a request of the report that was begun last, until it is acknowledged.
    pub(super) fn keep(&mut self, place: u32, number: RequestNumber, message: &[u8]) {
        let Some(known) = self.report(place) else { return };
        let start = known.messages.len();
        known.messages.extend_from_slice(message);
        let message = start..known.messages.len();
        let state = RequestState::Sent;
        known.requests.push(ConfirmedRequest { number, message, state });
        if let Some(kept) = self.ids.get_mut(usize::from(number.id) % IDS_MAX) {
            *kept = Some((number, place));
        }
    }

    /// Takes a report back that was not converted.
    pub(super) fn forget(&mut self, place: u32) {
        if let Some(known) = self.report(place) {
            known.state = ReportState::Rejected;
        }
    }

    /// Has the report that was begun last looked at in time: `drawn` is any number.
    pub(super) fn list(&mut self, place: u32, drawn: u32) {
        let Some(known) = self.report(place) else { return };
        let spread = ACK_SPREAD * (drawn & 0xFF) / 0xFF;
        known.due = known.begun + ACK_TIMEOUT + spread;
        // One that is listed already is looked at half a second late at the most.
        if !core::mem::replace(&mut known.is_listed, true) {
            let due = known.due;
            self.due.push(Reverse((due, place)));
        }
    }

    /// When something is due.
    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        self.due.peek().map(|Reverse((due, _))| *due)
    }

    /// Does what is due at `now`: passes each message to be sent again to `send`, and returns the
    /// reply to a device that the CSE has not been heard for. Called until it returns none.
    pub(super) fn poll(
        &mut self,
        now: Duration,
        mut send: impl FnMut(SocketIndex, &[u8]),
    ) -> Option<Reply> {
        while let Some(Reverse((_, place))) = self.due.peek().copied().filter(|it| it.0.0 <= now) {
            self.due.pop();
            let Some(known) = self.report(place) else { continue };
            known.is_listed = false;
            if known.state != ReportState::Waiting {
                continue;
            }
            if known.begun + WITHIN <= now {
                return self.end(place, false);
            }
            if known.due <= now {
                for request in known.requests.iter().filter(|it| it.state == RequestState::Sent) {
                    let message = known.messages.get(request.message.clone());
                    send(request.number.socket, message.unwrap_or_default());
                }
                known.due = known.begun + WITHIN;
            }
            known.is_listed = true;
            let due = known.due;
            self.due.push(Reverse((due, place)));
        }
        None
    }

    /// Ends a report, and makes the reply to its device.
    fn end(&mut self, place: u32, is_answer: bool) -> Option<Reply> {
        let known = self.report(place).filter(|known| known.state == ReportState::Waiting)?;
        known.state = if is_answer { ReportState::Answered } else { ReportState::Rejected };
        Some(Reply::new(known.peer, (place, known.serial), &known.report, is_answer))
    }

    /// Takes the acknowledgement of a request, or its rejection as a message, which ends its report;
    /// returns whether there is such a request, and the reply to its device.
    pub(super) fn acknowledged(
        &mut self,
        (socket, id): (SocketIndex, u16),
        is_reset: bool,
    ) -> (bool, Option<Reply>) {
        let kept = self.ids.get(usize::from(id) % IDS_MAX).copied().flatten();
        let kept = kept.filter(|(it, _)| (it.socket, it.id) == (socket, id));
        let Some((number, place)) = kept else { return (false, None) };
        let requests = self.report(place).into_iter().flat_map(|known| &mut known.requests);
        let Some(request) = requests.into_iter().find(|it| it.number == number) else {
            return (false, None);
        };
        if request.state == RequestState::Sent {
            request.state = RequestState::Acknowledged;
        }
        (true, if is_reset { self.end(place, false) } else { None })
    }

    /// Takes the outcome of the request with `token`; returns the reply that it leads to.
    pub(super) fn executed(&mut self, place: u32, token: u32, outcome: Outcome) -> Option<Reply> {
        let known = self.report(place)?;
        let request = known.requests.iter_mut().find(|it| it.number.token == token)?;
        if outcome == Outcome::Refused {
            return self.end(place, false);
        }
        request.state = RequestState::Executed;
        let is_whole = known.requests.iter().all(|it| it.state == RequestState::Executed);
        if is_whole { self.end(place, true) } else { None }
    }

    /// The report that was answered last.
    pub(super) fn answered(&self, place: u32) -> Option<&[u8]> {
        let known = self.all.get(usize::try_from(place).ok()?)?.as_deref()?;
        (known.state == ReportState::Answered).then_some(known.report.as_slice())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

    use super::*;

    const PLAN: (u32, u32) = (3, 9);
    const SECOND: Duration = Duration::from_secs(1);

    fn peer(port: u16) -> Peer {
        let address = IpAddr::from([192, 0, 2, 7]);
        Peer { sender: Sender { address, port }, own: IpAddr::from([192, 0, 2, 1]) }
    }

    /// A report with this invoke-id (ISO/IEEE 11073-20601, PRST with a confirmed fixed scan).
    fn report(invoke_id: u8) -> Vec<u8> {
        let head = [0xE7, 0, 0, 12, 0, 10, 0, invoke_id, 1, 1, 0, 4, 0, 0, 0, 0];
        head.to_vec()
    }

    fn numbers(number: u16) -> RequestNumber {
        RequestNumber { socket: SocketIndex(65), id: number, token: number.into() }
    }

    /// A report under way whose two requests have IDs and tokens 1 and 2.
    fn begun(now: Duration) -> ConfirmedReports {
        let mut all = ConfirmedReports::new(8);
        assert_eq!(all.meet(PLAN, peer(1), &report(5)), Met::New);
        all.begin(PLAN, peer(1), &report(5), now);
        for number in [1_u16, 2] {
            let message = [0x44, 2, 0, u8::try_from(number).unwrap()];
            all.keep(PLAN.0, numbers(number), &message);
        }
        all.list(PLAN.0, 0xFF);
        all
    }

    fn sent_again(all: &mut ConfirmedReports, now: Duration) -> (Vec<Vec<u8>>, Option<Reply>) {
        let mut sent = Vec::new();
        let reply = all.poll(now, |socket, message| {
            assert_eq!(socket, SocketIndex(65));
            sent.push(message.to_vec());
        });
        (sent, reply)
    }

    #[test]
    fn a_report_is_answered_when_all_its_requests_are_executed() {
        let mut all = begun(SECOND);
        assert_eq!(all.executed(PLAN.0, 1, Outcome::Executed), None);
        assert_eq!(all.executed(PLAN.0, 1, Outcome::Executed), None, "the same once more");
        assert_eq!(all.executed(PLAN.0, 7, Outcome::Executed), None, "of another report");
        assert_eq!(all.answered(PLAN.0), None);
        let reply = all.executed(PLAN.0, 2, Outcome::Executed).unwrap();
        assert_eq!((reply.is_answer, reply.plan, reply.peer), (true, PLAN, peer(1)));
        // rors-cmip-confirmed-event-report with the invoke-id of the report.
        assert_eq!(reply.octets()[..12], [0xE7, 0, 0, 18, 0, 16, 0, 5, 2, 1, 0, 10]);
        assert_eq!(all.answered(PLAN.0), Some(report(5).as_slice()));
        assert_eq!(all.executed(PLAN.0, 2, Outcome::Refused), None, "it has ended");
        assert_eq!(sent_again(&mut all, 9 * SECOND), (vec![], None));
        assert_eq!(all.poll_timeout(), None);
    }

    #[test]
    fn a_refused_reading_rejects_its_report_once() {
        let mut all = begun(SECOND);
        let reply = all.executed(PLAN.0, 1, Outcome::Refused).unwrap();
        // rorj, resource limitation.
        assert_eq!(reply.octets(), [0xE7, 0, 0, 10, 0, 8, 0, 5, 4, 0, 0, 2, 0, 103]);
        assert_eq!(all.executed(PLAN.0, 2, Outcome::Refused), None);
        assert_eq!(all.meet(PLAN, peer(1), &report(5)), Met::New, "the device may try again");
        let mut all = begun(SECOND);
        let (is_known, reply) = all.acknowledged((SocketIndex(65), 2), true);
        assert!(is_known && !reply.unwrap().is_answer);
    }

    #[test]
    fn what_is_not_acknowledged_is_sent_again_once_and_then_given_up() {
        let mut all = begun(SECOND);
        assert_eq!(all.acknowledged((SocketIndex(65), 1), false), (true, None));
        for stranger in [(SocketIndex(65), 3), (SocketIndex(66), 1)] {
            assert_eq!(all.acknowledged(stranger, false), (false, None));
        }
        let due = all.poll_timeout().unwrap();
        assert_eq!(due, SECOND + ACK_TIMEOUT + ACK_SPREAD);
        assert_eq!(sent_again(&mut all, SECOND + ACK_TIMEOUT), (vec![], None));
        assert_eq!(sent_again(&mut all, due), (vec![vec![0x44, 2, 0, 2]], None));
        assert_eq!(sent_again(&mut all, due), (vec![], None), "once");
        let end = all.poll_timeout().unwrap();
        assert_eq!(end, SECOND + WITHIN);
        let (sent, reply) = sent_again(&mut all, end);
        assert!(sent.is_empty() && !reply.unwrap().is_answer);
        assert_eq!(all.executed(PLAN.0, 1, Outcome::Executed), None, "too late");
        assert_eq!(all.poll_timeout(), None);
    }

    #[test]
    fn a_repeated_report_is_known_and_another_one_waits_elsewhere() {
        let mut all = begun(SECOND);
        assert_eq!(all.meet(PLAN, peer(1), &report(5)), Met::Repeated(None));
        assert_eq!(all.meet(PLAN, peer(1), &report(6)), Met::Busy);
        assert_eq!(all.meet((PLAN.0, PLAN.1 + 1), peer(1), &report(5)), Met::New, "another plan");
        all.executed(PLAN.0, 1, Outcome::Executed);
        let reply = all.executed(PLAN.0, 2, Outcome::Executed).unwrap();
        assert_eq!(all.meet(PLAN, peer(1), &report(5)), Met::Repeated(Some(reply)));
        assert_eq!(all.meet(PLAN, peer(2), &report(5)), Met::New, "another device");
        assert_eq!(all.meet(PLAN, peer(1), &report(6)), Met::New);
    }

    #[test]
    fn each_plan_is_listed_once_however_many_reports_it_has() {
        let mut all = begun(SECOND);
        for nth in 0..100_u8 {
            all.executed(PLAN.0, 1, Outcome::Refused);
            all.begin(PLAN, peer(1), &report(nth), SECOND);
            all.keep(PLAN.0, numbers(1), &[0x44]);
            all.list(PLAN.0, 0);
        }
        assert_eq!(all.due.len(), 1);
        assert!(all.all[3].as_ref().unwrap().messages.len() == 1);
    }
}
