//! Agent side of one association: the device. It associates, offers its configurations, sends
//! reports, keeps each confirmed report until it is answered, and serves its manager.
//!
//! It is driven like [`manager`](crate::manager): [`handle`](Agent::handle),
//! [`poll_output`](Agent::poll_output), [`poll_timeout`](Agent::poll_timeout).

use crate::apdu::{
    ASSOCIATION_VERSION, Aare, Aarq, AbortReason, Apdu, AssociateResult, AssociationInformation,
    Attribute, PROTOCOL_20601, Protocol, ReleaseReason,
};
use crate::association::{
    AGENT, ASSOCIATE_ATTEMPTS, Action as Do, AssociationEvent, AssociationState, TO_REPORT,
    patience, step,
};
use crate::code::{
    AttributeId, ConfigId, DataRequestId, EventType, Handle, InvokeId, SystemId, action, attribute,
    event,
};
use crate::data::{
    Action, Attributes, DataApdu, DataMessage, ErrorCode, EventReport, OperationError,
    RejectProblem,
};
use crate::mder::{MderWriter, Reader};
use crate::report::{ConfigAnswer, ConfigResult, SegmentData, SegmentStatus};
use crate::store::{SegmentInfo, Selection, Transfer};
use crate::time::{AbsoluteTime, NO_RELATIVE_TIME};
use core::time::Duration;
use std::collections::VecDeque;

/// Reports queued in an agent; more are refused.
pub const REPORTS_MAX: usize = 64;
/// Octets of a segment's entries in one report.
const SEGMENT_OCTETS_MAX: usize = 1_024;

/// Identity and content of a device.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// Its system-id.
    pub system_id: SystemId,
    /// The configurations it offers, best first: numbers and encoded reports.
    pub configurations: Vec<(ConfigId, Vec<u8>)>,
    /// Its MDS attributes besides system-id and configuration.
    pub attributes: Vec<(AttributeId, Vec<u8>)>,
    /// Stored segments.
    pub segments: Vec<PmSegment>,
    /// Its scanners.
    pub scanners: Vec<Handle>,
    /// Its clock, if it has one: hundredths of a second since 1970 when the caller's time is zero.
    pub clock: Option<u64>,
}

/// A segment of a store.
#[derive(Clone, Debug)]
pub struct PmSegment {
    /// The store.
    pub store: Handle,
    /// The segment's number.
    pub instance: u16,
    /// Its attributes, including its map.
    pub attributes: Vec<(AttributeId, Vec<u8>)>,
    /// Octets of one entry; 0 means that the segment has none.
    pub entry_len: usize,
    /// The entries.
    pub entries: Vec<u8>,
}

/// The caller's number for a report.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ReportId(pub u64);

/// A report to be sent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OutgoingReport {
    /// The caller's number.
    pub id: ReportId,
    /// The object that reports.
    pub handle: Handle,
    /// The event type.
    pub event: EventType,
    /// The event information.
    pub info: Vec<u8>,
    /// Whether it is confirmed, and so kept until it is answered.
    pub confirmed: bool,
}

/// Input to an agent.
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
    /// Time has passed; see [`Agent::poll_timeout`].
    Tick,
    /// Associate.
    Associate,
    /// Report this.
    Report(OutgoingReport),
    /// End the association in good order.
    Release,
    /// End it at once.
    Abort,
}

/// Output of an agent: an action or a notification.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Output {
    /// Send these octets, one APDU.
    Send(Vec<u8>),
    /// The manager has the configuration; reports may be sent.
    Operating,
    /// The association has ended, or was not established.
    Unassociated(Ending),
    /// This report was acknowledged (confirmed) or sent (unconfirmed).
    Reported(ReportId),
    /// This report was not acknowledged; it may have arrived.
    NotReported(ReportId),
    /// The manager has set the clock.
    ClockSet(AbsoluteTime),
    /// The manager requests measurements.
    DataRequested(DataRequestId),
    /// The manager has started or stopped a scanner.
    ScannerSet(Handle, bool),
    /// The manager has cleared segments of a store.
    Cleared(Handle),
}

/// The end of an association.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    /// In good order.
    Released,
    /// The manager has rejected it.
    Rejected(AssociateResult),
    /// The manager has aborted.
    AbortedByManager(AbortReason),
    /// This agent has aborted, or got no response.
    Aborted,
    /// The transport was disconnected.
    Disconnected,
}

/// Counters of an agent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Malformed APDUs.
    pub malformed: u64,
    /// Reports refused because [`REPORTS_MAX`] were queued already.
    pub queue_full: u64,
    /// Responses that match no report in progress.
    pub unasked_answers: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Reports answered.
    pub answered: u64,
    /// Operations served.
    pub served: u64,
}

/// Agent side of one association.
#[derive(Clone, Debug)]
pub struct Agent {
    settings: AgentSettings,
    state: AssociationState,
    /// Time of the last state change or repeated request.
    since: Duration,
    attempts: u8,
    /// Index of the offered configuration.
    offer: usize,
    invoke_id: u16,
    /// Invoke-id of the configuration report in progress.
    config_invoke_id: InvokeId,
    reports: VecDeque<OutgoingReport>,
    /// The confirmed report in progress, with its deadline.
    under_way: Option<(InvokeId, Duration)>,
    ending: Ending,
    outputs: VecDeque<Output>,
    counters: Counters,
}

/// Number of an agent's own reports, which no caller waits for.
const OWN: ReportId = ReportId(u64::MAX);

impl Agent {
    /// Creates a device without transport.
    pub const fn new(settings: AgentSettings) -> Self {
        Self {
            settings,
            state: AssociationState::Disconnected,
            since: Duration::ZERO,
            attempts: 0,
            offer: 0,
            invoke_id: 0,
            config_invoke_id: InvokeId(0),
            reports: VecDeque::new(),
            under_way: None,
            ending: Ending::Aborted,
            outputs: VecDeque::new(),
            counters: Counters {
                malformed: 0,
                queue_full: 0,
                unasked_answers: 0,
                timeouts: 0,
                answered: 0,
                served: 0,
            },
        }
    }

    /// State of the association.
    pub const fn state(&self) -> AssociationState {
        self.state
    }

    /// Counters so far.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Its clock's time at `now`, if it has one.
    pub fn calendar(&self, now: Duration) -> Option<AbsoluteTime> {
        let passed = hundredths(now);
        self.settings.clock.map(|clock| AbsoluteTime::from_unix(clock.saturating_add(passed)))
    }

    /// The next output.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Latest time of the next [`Input::Tick`].
    pub fn poll_timeout(&self) -> Option<Duration> {
        let state = patience(self.state).map(|wait| self.since + wait);
        state.into_iter().chain(self.under_way.map(|(_, until)| until)).min()
    }

    /// Processes an input at `now`.
    pub fn handle(&mut self, now: Duration, input: Input<'_>) {
        match input {
            Input::Connected => self.turn(now, AssociationEvent::TransportUp, None),
            Input::Disconnected => {
                self.ending = Ending::Disconnected;
                self.turn(now, AssociationEvent::TransportDown, None);
            }
            Input::Apdu(octets) => self.apdu(now, octets),
            Input::Unreadable => {
                self.counters.malformed += 1;
                self.turn(now, AssociationEvent::AskAbort, None);
            }
            Input::Tick => self.tick(now),
            Input::Associate => {
                self.attempts = 0;
                self.offer = 0;
                self.turn(now, AssociationEvent::AskAssociate, None);
            }
            Input::Report(report) => self.report(now, report),
            Input::Release => self.turn(now, AssociationEvent::AskRelease, None),
            Input::Abort => self.turn(now, AssociationEvent::AskAbort, None),
        }
    }

    /// Applies the table's rule for an event: next state and action.
    fn turn(&mut self, now: Duration, event: AssociationEvent, data: Option<&DataApdu<'_>>) {
        let Some(rule) = step(AGENT, self.state, event) else { return };
        let before = self.state;
        self.state = rule.to;
        if before != rule.to {
            self.since = now;
        }
        match rule.action {
            Do::SendAarq => self.send_aarq(now),
            Do::Reject => self.send_rejection(),
            Do::Abort => self.send(&Apdu::Abrt(AbortReason::UNDEFINED)),
            Do::AbortResponse => self.send(&Apdu::Abrt(AbortReason::RESPONSE_TIMEOUT)),
            Do::AbortConfig => self.send(&Apdu::Abrt(AbortReason::CONFIGURATION_TIMEOUT)),
            Do::SendRlrq => self.send(&Apdu::Rlrq(self.release_reason())),
            Do::SendRlre => self.send(&Apdu::Rlre(ReleaseReason::NORMAL)),
            Do::SendConfig => self.send_configuration(),
            Do::OfferNext => self.offer_next(now),
            Do::Serve => self.serve(now, data),
            Do::Refuse => self.refuse(data, ErrorCode::NOT_ALLOWED),
            Do::Match => self.answered(now, data),
            _ => {}
        }
        if before != self.state {
            self.arrived(now, before);
        }
    }

    fn release_reason(&self) -> ReleaseReason {
        if self.offer < self.settings.configurations.len() {
            ReleaseReason::NORMAL
        } else {
            ReleaseReason::NO_MORE_CONFIGURATIONS
        }
    }

    /// Performs the entry action of a state.
    fn arrived(&mut self, now: Duration, before: AssociationState) {
        match self.state {
            AssociationState::ConfigSending if before == AssociationState::Associating => {
                self.turn(now, AssociationEvent::SendConfig, None);
            }
            AssociationState::Operating => {
                self.outputs.push_back(Output::Operating);
                self.send_reports(now);
            }
            AssociationState::Unassociated | AssociationState::Disconnected
                if before > AssociationState::Unassociated =>
            {
                self.under_way = None;
                for report in self.reports.drain(..).filter(|report| report.id != OWN) {
                    self.outputs.push_back(Output::NotReported(report.id));
                }
                self.outputs.push_back(Output::Unassociated(self.ending));
                self.ending = Ending::Aborted;
            }
            _ => {}
        }
    }

    fn apdu(&mut self, now: Duration, octets: &[u8]) {
        let Ok(apdu) = Apdu::decode(octets) else {
            self.counters.malformed += 1;
            return self.turn(now, AssociationEvent::AskAbort, None);
        };
        match apdu {
            Apdu::Aarq(_) => self.turn(now, AssociationEvent::AarqKnown, None),
            Apdu::Aare(aare) => {
                let event = match aare.result {
                    AssociateResult::ACCEPTED => AssociationEvent::AareKnown,
                    AssociateResult::ACCEPTED_UNKNOWN_CONFIG => AssociationEvent::AareUnknown,
                    _ => AssociationEvent::AareRejected,
                };
                self.ending = match event {
                    AssociationEvent::AareRejected => Ending::Rejected(aare.result),
                    _ => Ending::Aborted,
                };
                self.turn(now, event, None);
            }
            Apdu::Rlrq(_) | Apdu::Rlre(_) => {
                let is_request = matches!(apdu, Apdu::Rlrq(_));
                self.ending = Ending::Released;
                self.turn(
                    now,
                    if is_request { AssociationEvent::Rlrq } else { AssociationEvent::Rlre },
                    None,
                );
            }
            Apdu::Abrt(reason) => {
                self.ending = Ending::AbortedByManager(reason);
                self.turn(now, AssociationEvent::Abrt, None);
            }
            Apdu::Prst(data) => {
                let event = self.presentation(&data);
                self.turn(now, event, Some(&data));
            }
        }
    }

    /// Event of a presentation APDU.
    fn presentation(&self, data: &DataApdu<'_>) -> AssociationEvent {
        match data.message {
            DataMessage::Get(get) if get.handle == Handle::MDS => AssociationEvent::Get,
            DataMessage::Get(_)
            | DataMessage::Set(_)
            | DataMessage::ConfirmedSet(_)
            | DataMessage::Action(_)
            | DataMessage::ConfirmedAction(_)
            | DataMessage::EventReport(_)
            | DataMessage::ConfirmedEventReport(_) => AssociationEvent::Invoke,
            DataMessage::EventReportResult(result)
                if result.event == event::CONFIG && data.invoke_id == self.config_invoke_id =>
            {
                match ConfigAnswer::decode(result.info) {
                    Ok(ConfigAnswer { result: ConfigResult::ACCEPTED, .. }) => {
                        AssociationEvent::ConfigAccepted
                    }
                    Ok(_) => AssociationEvent::ConfigRefused,
                    Err(_) => AssociationEvent::Response,
                }
            }
            _ => AssociationEvent::Response,
        }
    }

    fn tick(&mut self, now: Duration) {
        if self.poll_timeout().is_none_or(|due| now < due) {
            return;
        }
        self.counters.timeouts += 1;
        let again =
            self.state == AssociationState::Associating && self.attempts < ASSOCIATE_ATTEMPTS;
        self.turn(
            now,
            if again { AssociationEvent::TimeoutRetry } else { AssociationEvent::Timeout },
            None,
        );
    }

    fn send_aarq(&mut self, now: Duration) {
        self.attempts += 1;
        self.since = now;
        let offered = self.settings.configurations.get(self.offer);
        let config_id = offered.map(|(id, _)| *id).unwrap_or_default();
        let information = AssociationInformation::agent(self.settings.system_id, config_id);
        let info = information.encode().unwrap_or_default();
        let mut writer = MderWriter::new();
        writer.list(&[Protocol { id: PROTOCOL_20601, info: &info }]);
        let octets = writer.finish().unwrap_or_default();
        if let Ok(protocols) = Reader::new(&octets).list() {
            self.send(&Apdu::Aarq(Aarq { version: ASSOCIATION_VERSION, protocols }));
        }
    }

    fn send_rejection(&mut self) {
        let protocol = Protocol { id: 0, info: &[] };
        self.send(&Apdu::Aare(Aare { result: AssociateResult::REJECTED_PERMANENT, protocol }));
    }

    fn send_configuration(&mut self) {
        let Some((_, info)) = self.settings.configurations.get(self.offer).cloned() else { return };
        let invoke_id = self.next_invoke_id();
        self.config_invoke_id = invoke_id;
        let report = EventReport {
            handle: Handle::MDS,
            time: NO_RELATIVE_TIME,
            event: event::CONFIG,
            info: &info,
        };
        self.reply(invoke_id, DataMessage::ConfirmedEventReport(report));
    }

    /// Offers the next configuration, or releases the association.
    fn offer_next(&mut self, now: Duration) {
        self.offer += 1;
        if self.offer < self.settings.configurations.len() {
            return self.turn(now, AssociationEvent::SendConfig, None);
        }
        self.turn(now, AssociationEvent::AskRelease, None);
    }

    fn report(&mut self, now: Duration, report: OutgoingReport) {
        if self.reports.len() >= REPORTS_MAX {
            self.counters.queue_full += 1;
            return self.outputs.push_back(Output::NotReported(report.id));
        }
        self.reports.push_back(report);
        self.send_reports(now);
    }

    /// Sends queued reports up to the next confirmed one; only one is in progress at a time.
    fn send_reports(&mut self, now: Duration) {
        while self.state == AssociationState::Operating && self.under_way.is_none() {
            let Some(next) = self.reports.pop_front() else { return };
            let invoke_id = self.next_invoke_id();
            let OutgoingReport { id, handle, event, confirmed, ref info } = next;
            let report = EventReport { handle, time: NO_RELATIVE_TIME, event, info };
            if confirmed {
                self.reply(invoke_id, DataMessage::ConfirmedEventReport(report));
                self.under_way = Some((invoke_id, now + TO_REPORT));
                self.reports.push_front(next);
            } else {
                self.reply(invoke_id, DataMessage::EventReport(report));
                self.outputs.push_back(Output::Reported(id));
            }
        }
    }

    /// Takes the response to the report in progress.
    fn answered(&mut self, now: Duration, data: Option<&DataApdu<'_>>) {
        let expected = self.under_way.map(|(invoke_id, _)| invoke_id);
        let Some(data) = data.filter(|data| Some(data.invoke_id) == expected) else {
            self.counters.unasked_answers += 1;
            return;
        };
        self.under_way = None;
        if let Some(report) = self.reports.pop_front()
            && report.id != OWN
        {
            let arrived = matches!(data.message, DataMessage::EventReportResult(_));
            self.counters.answered += u64::from(arrived);
            let outcome = if arrived { Output::Reported } else { Output::NotReported };
            self.outputs.push_back(outcome(report.id));
        }
        self.send_reports(now);
    }

    /// Serves an operation of the manager.
    fn serve(&mut self, now: Duration, data: Option<&DataApdu<'_>>) {
        let Some(data) = data else { return };
        self.counters.served += 1;
        match data.message {
            DataMessage::Get(get) if get.handle == Handle::MDS => {
                let wanted: Vec<_> = get.attributes.iter().collect();
                self.serve_attributes(now, data.invoke_id, &wanted);
            }
            DataMessage::ConfirmedSet(set) | DataMessage::Set(set) => {
                let state = set
                    .changes
                    .iter()
                    .find(|change| change.attribute.id == attribute::OPERATIONAL_STATE)
                    .and_then(|change| Reader::new(change.attribute.value).u16().ok());
                let Some(state) = state.filter(|_| self.settings.scanners.contains(&set.handle))
                else {
                    return self.refuse(Some(data), ErrorCode::NO_SUCH_OBJECT);
                };
                self.outputs.push_back(Output::ScannerSet(set.handle, state == 1));
                if matches!(data.message, DataMessage::ConfirmedSet(_)) {
                    let value = state.to_be_bytes();
                    let changed = [Attribute { id: attribute::OPERATIONAL_STATE, value: &value }];
                    self.reply_attributes(data.invoke_id, set.handle, &changed, true);
                }
            }
            DataMessage::ConfirmedAction(action) | DataMessage::Action(action) => {
                self.serve_action(now, data, action);
            }
            DataMessage::ConfirmedEventReport(_) | DataMessage::EventReport(_) => {
                let unknown = DataMessage::Reject(RejectProblem::UNRECOGNIZED_OPERATION);
                self.reply(data.invoke_id, unknown);
            }
            _ => self.refuse(Some(data), ErrorCode::NO_SUCH_OBJECT),
        }
    }

    fn serve_attributes(&mut self, now: Duration, invoke_id: InvokeId, wanted: &[AttributeId]) {
        let offered = self.settings.configurations.get(self.offer);
        let config_id = offered.map(|(id, _)| *id).unwrap_or_default().0.to_be_bytes();
        let mut writer = MderWriter::new();
        writer.octet_string(&self.settings.system_id.0);
        let system_id = writer.finish().unwrap_or_default();
        let more = self.settings.attributes.clone();
        let own = [
            Attribute { id: attribute::SYSTEM_ID, value: &system_id },
            Attribute { id: attribute::CONFIG_ID, value: &config_id },
        ];
        let more = more.iter().map(|(id, value)| Attribute { id: *id, value });
        let calendar = self.calendar(now);
        let clock = calendar
            .as_ref()
            .map(|time| Attribute { id: attribute::TIME_ABSOLUTE, value: time.0.as_slice() });
        let found: Vec<_> = own
            .into_iter()
            .chain(clock)
            .chain(more)
            .filter(|one| wanted.is_empty() || wanted.contains(&one.id))
            .collect();
        self.reply_attributes(invoke_id, Handle::MDS, &found, false);
    }

    fn reply_attributes(
        &mut self,
        invoke_id: InvokeId,
        handle: Handle,
        attributes: &[Attribute<'_>],
        changed: bool,
    ) {
        let mut writer = MderWriter::new();
        writer.list(attributes);
        let octets = writer.finish().unwrap_or_default();
        let Ok(attributes) = Reader::new(&octets).list() else { return };
        let found = Attributes { handle, attributes };
        let message =
            if changed { DataMessage::SetResult(found) } else { DataMessage::GetResult(found) };
        self.reply(invoke_id, message);
    }

    fn serve_action(&mut self, now: Duration, data: &DataApdu<'_>, asked: Action<'_>) {
        let result = match asked.action {
            action::SET_TIME if asked.handle == Handle::MDS => {
                Reader::new(asked.info).array().map_err(|_| ErrorCode::NOT_ALLOWED).map(|time| {
                    let time = AbsoluteTime(time);
                    // A device without a calendar hears of it, and has none for that.
                    let set = time.to_unix().filter(|_| self.settings.clock.is_some());
                    if let Some(unix) = set {
                        self.settings.clock = Some(unix.saturating_sub(hundredths(now)));
                    }
                    self.outputs.push_back(Output::ClockSet(time));
                    Vec::new()
                })
            }
            action::DATA_REQUEST if asked.handle == Handle::MDS => {
                Reader::new(asked.info).u16().map_err(|_| ErrorCode::NOT_ALLOWED).map(|request| {
                    self.outputs.push_back(Output::DataRequested(DataRequestId(request)));
                    // DataResponse: no time, no error, no report in the answer itself.
                    let mut writer = MderWriter::new();
                    writer.u32(NO_RELATIVE_TIME);
                    writer.u16(0);
                    writer.u16(event::SCAN_FIXED.0);
                    writer.u16(0);
                    writer.finish().unwrap_or_default()
                })
            }
            action::SEGMENT_INFO | action::SEGMENT_TRANSFER | action::SEGMENT_CLEAR => {
                self.serve_store(asked)
            }
            _ => Err(ErrorCode::NO_SUCH_ACTION),
        };
        match result {
            Ok(_) if matches!(data.message, DataMessage::Action(_)) => {}
            Ok(info) => {
                let done = Action { info: &info, ..asked };
                self.reply(data.invoke_id, DataMessage::ActionResult(done));
            }
            Err(code) => self.refuse(Some(data), code),
        }
        self.send_reports(now);
    }

    /// Describes, transfers or clears segments.
    fn serve_store(&mut self, asked: Action<'_>) -> Result<Vec<u8>, ErrorCode> {
        let store = asked.handle;
        if self.settings.segments.iter().all(|segment| segment.store != store) {
            return Err(ErrorCode::NO_SUCH_OBJECT);
        }
        if asked.action == action::SEGMENT_TRANSFER {
            let instance = Reader::new(asked.info).u16().map_err(|_| ErrorCode::NOT_ALLOWED)?;
            let mut result = Transfer::NO_SUCH_SEGMENT;
            let mine = |one: &&PmSegment| one.store == store && one.instance == instance;
            if let Some(segment) = self.settings.segments.iter().find(mine) {
                let reports = segment.reports();
                result = Transfer::NOT_NOW;
                if self.reports.len() + reports.len() <= REPORTS_MAX {
                    self.reports.extend(reports);
                    result = 0;
                } else {
                    self.counters.queue_full += 1;
                }
            }
            let [a, b] = instance.to_be_bytes();
            let [c, d] = result.to_be_bytes();
            return Ok(vec![a, b, c, d]);
        }
        let selection = Selection::decode(asked.info).map_err(|_| ErrorCode::NOT_ALLOWED)?;
        let is_meant = |one: &PmSegment| {
            one.store == store
                && match &selection {
                    Selection::All => true,
                    Selection::Instances(some) => some.contains(&one.instance),
                    Selection::Between(..) => false,
                }
        };
        if asked.action == action::SEGMENT_CLEAR {
            self.settings.segments.iter_mut().filter(|one| is_meant(one)).for_each(|one| {
                one.entries.clear();
            });
            self.outputs.push_back(Output::Cleared(store));
            return Ok(Vec::new());
        }
        let mut writer = MderWriter::new();
        let described: Vec<_> = self.settings.segments.iter().filter(|one| is_meant(one)).collect();
        let lists: Vec<Vec<u8>> = described.iter().map(|one| one.attribute_list()).collect();
        let infos: Vec<SegmentInfo<'_>> = described
            .iter()
            .zip(&lists)
            .filter_map(|(one, octets)| {
                let attributes = Reader::new(octets).list().ok()?;
                Some(SegmentInfo { instance: one.instance, attributes })
            })
            .collect();
        writer.list(&infos);
        writer.finish().map_err(|_| ErrorCode::NOT_ALLOWED)
    }

    fn refuse(&mut self, data: Option<&DataApdu<'_>>, code: ErrorCode) {
        let Some(data) = data else { return };
        if !matches!(
            data.message,
            DataMessage::EventReport(_) | DataMessage::Set(_) | DataMessage::Action(_)
        ) {
            let error = OperationError { code, parameter: &[] };
            self.reply(data.invoke_id, DataMessage::Error(error));
        }
    }

    const fn next_invoke_id(&mut self) -> InvokeId {
        self.invoke_id = self.invoke_id.wrapping_add(1);
        InvokeId(self.invoke_id)
    }

    fn reply(&mut self, invoke_id: InvokeId, message: DataMessage<'_>) {
        self.send(&Apdu::Prst(DataApdu { invoke_id, message }));
    }

    fn send(&mut self, apdu: &Apdu<'_>) {
        if let Ok(octets) = apdu.encode() {
            self.outputs.push_back(Output::Send(octets));
        }
    }
}

/// `time` in hundredths of a second.
fn hundredths(time: Duration) -> u64 {
    u64::try_from(time.as_millis() / 10).unwrap_or(u64::MAX)
}

impl PmSegment {
    /// Its attributes as a list.
    fn attribute_list(&self) -> Vec<u8> {
        let attributes: Vec<_> =
            self.attributes.iter().map(|(id, value)| Attribute { id: *id, value }).collect();
        let mut writer = MderWriter::new();
        writer.list(&attributes);
        writer.finish().unwrap_or_default()
    }

    /// Its entries, in reports of at most [`SEGMENT_OCTETS_MAX`] octets.
    fn reports(&self) -> Vec<OutgoingReport> {
        let per_report = SEGMENT_OCTETS_MAX.checked_div(self.entry_len).unwrap_or(0).max(1);
        let octets = (per_report * self.entry_len).max(1);
        let total = self.entries.chunks(octets).count();
        let mut first = 0;
        let mut reports = Vec::with_capacity(total);
        for (place, entries) in self.entries.chunks(octets).enumerate() {
            let count = entries.len().checked_div(self.entry_len).unwrap_or(0);
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            let mut status = 0;
            if place == 0 {
                status |= SegmentStatus::FIRST.0;
            }
            if place + 1 == total {
                status |= SegmentStatus::LAST.0;
            }
            let status = SegmentStatus(status);
            let data = SegmentData { instance: self.instance, first, count, status, entries };
            reports.push(OutgoingReport {
                id: OWN,
                handle: self.store,
                event: event::SEGMENT_DATA,
                info: data.encode().unwrap_or_default(),
                confirmed: true,
            });
            first += count;
        }
        reports
    }
}
