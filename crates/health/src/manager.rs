//! Manager side of one association: it accepts an agent, learns its configuration, records its
//! reports and sends it requests.
//!
//! Getters return the association's state. [`handle`](Manager::handle) takes an input; then call
//! [`poll_output`](Manager::poll_output) until it returns `None`, and send [`Input::Tick`] at
//! [`poll_timeout`](Manager::poll_timeout).
//!
//! A report becomes an [`Output::Report`] with a number. A confirmed one is answered only when the
//! caller reports this number as committed: the agent keeps its data until then.

mod edge;

pub use edge::{
    Counters, Ending, Input, ManagerSettings, Output, RecordId, ReportRecord, RequestId,
};

use crate::apdu::{
    Aare, Aarq, AbortReason, Apdu, AssociateResult, AssociationInformation, ENCODING_MDER,
    NOMENCLATURE_VERSION, PROTOCOL_20601, Protocol, ReleaseReason, SYSTEM_AGENT,
    UNIT_TEST_ASSOCIATION,
};
use crate::association::{
    Action as Do, AssociationEvent, AssociationState, MANAGER, TO_CLEAR, TO_OPERATION, TO_REPORT,
    patience, step,
};
use crate::code::{ConfigId, EventType, Handle, InvokeId, SystemId, action, event};
use crate::configuration::{Configuration, Configurations, Remembered};
use crate::data::{DataApdu, DataMessage, ErrorCode, EventReport, OperationError, RejectProblem};
use crate::digest::digest;
use crate::mder::Malformed;
use crate::numbers::ReportNumbers;
use crate::operation::{Operation, OperationFailure, OperationResult};
use crate::report::{ConfigAnswer, ConfigResult, Report, ScanForm, SegmentStatus};
use crate::time::NO_RELATIVE_TIME;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

/// Confirmed reports of one agent that wait for their commit; more are rejected, and the agent
/// keeps them.
pub const WAITING_MAX: usize = 64;
/// Requests queued for one agent, including the one in progress.
pub const ASKED_MAX: usize = 16;
/// Association versions (bit 0: version 1).
const ASSOCIATION_VERSION: u32 = crate::apdu::ASSOCIATION_VERSION;
/// Versions of 20601 that this crate decodes: 1, 2 and 3.
const PROTOCOL_VERSIONS: u32 = 0xE000_0000;

/// State of the associated agent.
#[derive(Clone, Debug)]
struct AssociatedAgent {
    system_id: SystemId,
    config_id: ConfigId,
    configuration: Option<Arc<Configuration>>,
    records: u64,
    /// Extends its reports' numbers.
    numbers: ReportNumbers,
    /// The last confirmed report that was answered, and when, to recognise a repetition.
    answered: Option<(Sent, Duration)>,
    waiting: VecDeque<PendingReport>,
}

/// Identity of a confirmed report within its association.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Sent {
    invoke_id: InvokeId,
    /// Digest of the whole APDU.
    digest: u64,
}

/// A confirmed report that waits for its commit.
#[derive(Clone, Debug)]
struct PendingReport {
    record: RecordId,
    sent: Sent,
    handle: Handle,
    event: EventType,
    /// Event information of the response.
    info: Vec<u8>,
}

/// A request to the device.
#[derive(Clone, Debug)]
struct DeviceRequest {
    request: RequestId,
    operation: Operation,
    /// Set once it is sent.
    sent: Option<(InvokeId, Duration)>,
}

/// Manager side of one association.
#[derive(Clone, Debug)]
pub struct Manager {
    settings: ManagerSettings,
    state: AssociationState,
    /// Time of the last state change.
    since: Duration,
    /// Time of the last message from the agent.
    heard: Duration,
    peer: Option<AssociatedAgent>,
    asked: VecDeque<DeviceRequest>,
    invoke_id: u16,
    /// Reason of an abort by either side.
    abort_reason: AbortReason,
    outputs: VecDeque<Output>,
    counters: Counters,
}

impl Manager {
    /// Creates a manager without transport.
    pub fn new(settings: ManagerSettings) -> Self {
        Self {
            settings,
            state: AssociationState::Disconnected,
            since: Duration::ZERO,
            heard: Duration::ZERO,
            peer: None,
            asked: VecDeque::new(),
            invoke_id: 0,
            abort_reason: AbortReason::UNDEFINED,
            outputs: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// State of the association.
    pub const fn state(&self) -> AssociationState {
        self.state
    }

    /// System-id of the associated agent.
    pub fn system_id(&self) -> Option<SystemId> {
        self.peer.as_ref().map(|peer| peer.system_id)
    }

    /// The agent's configuration, once it is known.
    pub fn configuration(&self) -> Option<&Arc<Configuration>> {
        self.peer.as_ref().and_then(|peer| peer.configuration.as_ref())
    }

    /// Counters so far.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// The next output.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Latest time of the next [`Input::Tick`].
    pub fn poll_timeout(&self) -> Option<Duration> {
        let state = match self.state {
            AssociationState::Disconnected => None,
            AssociationState::Unassociated => Some(self.since + self.settings.idle),
            AssociationState::Operating => Some(self.heard + self.settings.silence),
            state => patience(state).map(|wait| self.since + wait),
        };
        let answer = self.asked.iter().find_map(|asked| asked.sent).map(|(_, until)| until);
        state.into_iter().chain(answer).min()
    }

    /// Processes an input at `now`.
    pub fn handle(&mut self, now: Duration, input: Input<'_>, library: &mut dyn Configurations) {
        match input {
            Input::Connected => self.turn(now, AssociationEvent::TransportUp, None),
            Input::Disconnected => self.turn(now, AssociationEvent::TransportDown, None),
            Input::Apdu(octets) => self.apdu(now, octets, library),
            Input::Unreadable => {
                self.counters.malformed += 1;
                self.abort_reason = AbortReason::BUFFER_OVERFLOW;
                self.turn(now, AssociationEvent::AskAbort, None);
                self.abort_reason = AbortReason::UNDEFINED;
                self.outputs.push_back(Output::Close);
            }
            Input::Tick => self.tick(now),
            Input::Committed(record) => self.committed(now, record),
            Input::NotCommitted(record) => {
                self.rejected(record, RejectProblem::RESOURCE_LIMITATION);
            }
            Input::NotReadable(record) => self.rejected(record, RejectProblem::BADLY_STRUCTURED),
            Input::Ask(request, operation) => self.ask(now, request, operation),
            Input::Release => self.turn(now, AssociationEvent::AskRelease, None),
            Input::Abort => self.turn(now, AssociationEvent::AskAbort, None),
        }
    }

    /// Applies the table's rule for an event, and its action if that needs only the rule.
    fn turn(&mut self, now: Duration, event: AssociationEvent, data: Option<&DataApdu<'_>>) {
        let Some(rule) = step(MANAGER, self.state, event) else { return };
        let before = self.state;
        self.state = rule.to;
        if before != rule.to {
            self.since = now;
        }
        match rule.action {
            Do::Abort => self.abort(self.abort_reason),
            Do::AbortResponse => self.abort(AbortReason::RESPONSE_TIMEOUT),
            Do::AbortConfig => self.abort(AbortReason::CONFIGURATION_TIMEOUT),
            Do::SendRlrq => self.send(&Apdu::Rlrq(ReleaseReason::NORMAL)),
            Do::SendRlre => self.send(&Apdu::Rlre(ReleaseReason::NORMAL)),
            Do::Refuse => self.refuse(data),
            Do::Match => self.answered(now, data),
            // The rest belongs to `apdu`, which knows the message, or to the agent.
            _ => {}
        }
        if matches!(rule.to, AssociationState::Unassociated | AssociationState::Disconnected)
            && before != rule.to
        {
            self.ended(event);
        }
    }

    /// Removes the agent and reports how the association ended.
    fn ended(&mut self, event: AssociationEvent) {
        let gone = match event {
            AssociationEvent::Timeout => OperationFailure::TimedOut,
            _ => OperationFailure::WentAway,
        };
        for asked in self.asked.drain(..) {
            self.outputs.push_back(Output::Answer(asked.request, Err(gone)));
        }
        let Some(peer) = self.peer.take() else { return };
        let ending = match event {
            AssociationEvent::Rlrq | AssociationEvent::Rlre => Ending::Released,
            AssociationEvent::TransportDown => Ending::Disconnected,
            AssociationEvent::Abrt => Ending::AbortedByAgent(self.abort_reason),
            _ => Ending::Aborted,
        };
        self.outputs.push_back(Output::Disassociated { system_id: peer.system_id, ending });
    }

    fn apdu(&mut self, now: Duration, octets: &[u8], library: &mut dyn Configurations) {
        self.heard = now;
        self.counters.apdus += 1;
        match Apdu::decode(octets) {
            Ok(Apdu::Aarq(aarq)) => self.associate(now, &aarq, library),
            Ok(Apdu::Aare(_)) => self.turn(now, AssociationEvent::AareKnown, None),
            Ok(Apdu::Rlrq(_)) => self.turn(now, AssociationEvent::Rlrq, None),
            Ok(Apdu::Rlre(_)) => self.turn(now, AssociationEvent::Rlre, None),
            Ok(Apdu::Abrt(reason)) => {
                self.abort_reason = reason;
                self.turn(now, AssociationEvent::Abrt, None);
                self.abort_reason = AbortReason::UNDEFINED;
            }
            Ok(Apdu::Prst(data)) => self.presentation(now, &data, octets, library),
            Err(why) => self.malformed(now, octets, why),
        }
    }

    /// Answers a malformed APDU: with a rejection if it names its operation or was an association
    /// request.
    fn malformed(&mut self, now: Duration, octets: &[u8], why: Malformed) {
        /// Octets before the invoke-id: choice and length of the APDU, length of the DATA-APDU.
        const BEFORE_INVOKE_ID: usize = 6;
        self.counters.malformed += 1;
        let invoke_id = octets.get(BEFORE_INVOKE_ID..).and_then(<[u8]>::first_chunk::<2>);
        match (self.state, octets, invoke_id) {
            (AssociationState::Operating, [0xE7, 0x00, ..], Some(id)) => {
                let invoke_id = InvokeId(u16::from_be_bytes(*id));
                let problem = match why {
                    Malformed::UnknownChoice { .. } => RejectProblem::UNRECOGNIZED_APDU,
                    _ => RejectProblem::BADLY_STRUCTURED,
                };
                self.reply(invoke_id, DataMessage::Reject(problem));
            }
            (AssociationState::Unassociated, [0xE2, 0x00, ..], _) => {
                self.counters.refused += 1;
                self.send_aare(AssociateResult::REJECTED_PERMANENT, None);
                self.turn(now, AssociationEvent::AarqRefused, None);
            }
            _ => self.turn(now, AssociationEvent::AskAbort, None),
        }
    }

    fn associate(&mut self, now: Duration, aarq: &Aarq<'_>, library: &mut dyn Configurations) {
        if self.state != AssociationState::Unassociated {
            return self.turn(now, AssociationEvent::AarqRefused, None);
        }
        let information = match acceptable(aarq) {
            Ok(information) => information,
            Err(result) => {
                self.counters.refused += 1;
                self.send_aare(result, None);
                return self.turn(now, AssociationEvent::AarqRefused, None);
            }
        };
        let AssociationInformation { system_id, config_id, functional_units, .. } = information;
        let is_test = functional_units & UNIT_TEST_ASSOCIATION != 0;
        if !library.admits(system_id) {
            self.counters.refused += 1;
            self.send_aare(AssociateResult::REJECTED_UNAUTHORIZED, None);
            return self.turn(now, AssociationEvent::AarqRefused, None);
        }
        let configuration = library.find(system_id, config_id);
        let (event, result) = match configuration {
            Some(_) => (AssociationEvent::AarqKnown, AssociateResult::ACCEPTED),
            None => (AssociationEvent::AarqUnknown, AssociateResult::ACCEPTED_UNKNOWN_CONFIG),
        };
        self.send_aare(result, Some(&information));
        self.peer = Some(AssociatedAgent {
            system_id,
            config_id,
            configuration: None,
            records: 0,
            numbers: ReportNumbers::default(),
            answered: None,
            waiting: VecDeque::new(),
        });
        self.counters.test_associations += u64::from(is_test);
        self.outputs.push_back(Output::Associated { system_id, config_id, is_test });
        self.turn(now, event, None);
        if let Some(configuration) = configuration {
            self.configured(configuration, Remembered::Same);
        }
    }

    fn configured(&mut self, configuration: Arc<Configuration>, remembered: Remembered) {
        if let Some(peer) = &mut self.peer {
            peer.configuration = Some(Arc::clone(&configuration));
        }
        self.outputs.push_back(Output::Configured { configuration, remembered });
    }

    fn presentation(
        &mut self,
        now: Duration,
        data: &DataApdu<'_>,
        octets: &[u8],
        library: &mut dyn Configurations,
    ) {
        // On a connection a stranger is aborted, as the standard says. A datagram may be forged or
        // late: it is dropped, or whoever can send one could end associations.
        if self.settings.datagrams && self.state == AssociationState::Unassociated {
            self.counters.strangers += 1;
            return;
        }
        match &data.message {
            DataMessage::ConfirmedEventReport(report) if report.event == event::CONFIG => {
                self.config_report(now, data, report, library);
            }
            DataMessage::ConfirmedEventReport(report) => {
                self.report(now, data, report, true, octets);
            }
            DataMessage::EventReport(report) => self.report(now, data, report, false, octets),
            DataMessage::Get(_)
            | DataMessage::Set(_)
            | DataMessage::ConfirmedSet(_)
            | DataMessage::Action(_)
            | DataMessage::ConfirmedAction(_) => {
                self.turn(now, AssociationEvent::Invoke, Some(data));
            }
            _ => self.turn(now, AssociationEvent::Response, Some(data)),
        }
    }

    fn config_report(
        &mut self,
        now: Duration,
        data: &DataApdu<'_>,
        report: &EventReport<'_>,
        library: &mut dyn Configurations,
    ) {
        let was_operating = self.state == AssociationState::Operating;
        self.turn(now, AssociationEvent::ConfigReport, Some(data));
        let Some(peer) = &mut self.peer else { return };
        let system_id = peer.system_id;
        if !matches!(self.state, AssociationState::CheckingConfig | AssociationState::Operating) {
            return;
        }
        self.counters.late_configurations += u64::from(was_operating);
        let Ok(Report::Configuration(reported)) = report.report() else {
            self.counters.malformed += 1;
            self.counters.unusable_configurations += 1;
            // The answer names the configuration, so that the agent may offer another: by the
            // report's first field, or else by what the agent offered to associate.
            let told = report.info.first_chunk::<2>().map(|id| ConfigId(u16::from_be_bytes(*id)));
            let id = told.unwrap_or(peer.config_id);
            self.answer_config(data, report, id, ConfigResult::UNSUPPORTED);
            return self.turn(now, AssociationEvent::ConfigUnusable, None);
        };
        let result = if let Ok(configuration) = Configuration::new(&reported) {
            let configuration = Arc::new(configuration);
            let remembered = library.remember(system_id, Arc::clone(&configuration));
            if !was_operating || remembered != Remembered::Same {
                peer.config_id = reported.id;
                self.configured(configuration, remembered);
            }
            ConfigResult::ACCEPTED
        } else {
            self.counters.unusable_configurations += 1;
            ConfigResult::UNSUPPORTED
        };
        self.answer_config(data, report, reported.id, result);
        let accepted = result == ConfigResult::ACCEPTED;
        let event =
            if accepted { AssociationEvent::ConfigTaken } else { AssociationEvent::ConfigUnusable };
        self.turn(now, event, None);
    }

    fn answer_config(
        &mut self,
        data: &DataApdu<'_>,
        report: &EventReport<'_>,
        id: ConfigId,
        result: ConfigResult,
    ) {
        let info = ConfigAnswer { id, result }.encode();
        let EventReport { handle, event, .. } = *report;
        let result = EventReport { handle, time: NO_RELATIVE_TIME, event, info: &info };
        self.reply(data.invoke_id, DataMessage::EventReportResult(result));
    }

    fn report(
        &mut self,
        now: Duration,
        data: &DataApdu<'_>,
        report: &EventReport<'_>,
        confirmed: bool,
        octets: &[u8],
    ) {
        self.turn(now, AssociationEvent::Report, Some(data));
        if self.state != AssociationState::Operating {
            self.counters.early_reports += 1;
            return;
        }
        let Some((number, info)) = self.content_of(data, report, confirmed) else { return };
        let datagrams = self.settings.datagrams;
        let Some(peer) = &mut self.peer else { return };
        let sent = Sent { invoke_id: data.invoke_id, digest: digest(octets) };
        if confirmed {
            match peer.repetition(now, sent, datagrams) {
                Repetition::None => {}
                Repetition::Waiting => {
                    self.counters.repeated += 1;
                    return;
                }
                Repetition::Answered => {
                    self.counters.repeated += 1;
                    return self.answer_report(data.invoke_id, report.handle, report.event, &info);
                }
            }
            if peer.waiting.len() >= WAITING_MAX {
                self.counters.waiting_full += 1;
                let full = DataMessage::Reject(RejectProblem::RESOURCE_LIMITATION);
                return self.reply(data.invoke_id, full);
            }
        }
        let (number, grows) = peer.numbers.extend(number);
        peer.records += 1;
        let record = RecordId(peer.records);
        if confirmed {
            peer.waiting.push_back(PendingReport {
                record,
                sent,
                handle: report.handle,
                event: report.event,
                info,
            });
        }
        self.counters.reports += 1;
        self.counters.padded += u64::from(report.padding() > 0);
        self.counters.numbers_not_growing += u64::from(!grows);
        let record = ReportRecord { id: record, number, confirmed, apdu: octets.to_vec() };
        self.outputs.push_back(Output::Report(record));
    }

    /// The number of a scan, if it is one, and the content of the response. `None` for a report
    /// that cannot be stored; the agent learns it if it waits for a response.
    fn content_of(
        &mut self,
        data: &DataApdu<'_>,
        report: &EventReport<'_>,
        confirmed: bool,
    ) -> Option<(Option<u16>, Vec<u8>)> {
        let problem = match report.report() {
            Ok(Report::Scan(scan)) => return Some((Some(scan.number), Vec::new())),
            Ok(Report::Segment(segment)) => {
                let answer = segment.encode_answer(SegmentStatus::MANAGER_CONFIRM);
                return Some((None, answer.unwrap_or_default()));
            }
            Ok(_) => {
                self.counters.unknown_events += 1;
                RejectProblem::UNRECOGNIZED_OPERATION
            }
            Err(_) => {
                self.counters.malformed += 1;
                RejectProblem::BADLY_STRUCTURED
            }
        };
        if confirmed {
            self.reply(data.invoke_id, DataMessage::Reject(problem));
        }
        None
    }

    /// Answers every waiting report up to `record`.
    fn committed(&mut self, now: Duration, record: RecordId) {
        while let Some(peer) = &mut self.peer
            && peer.waiting.front().is_some_and(|waiting| waiting.record <= record)
            && let Some(waiting) = peer.waiting.pop_front()
        {
            let PendingReport { sent, handle, event, info, .. } = waiting;
            peer.answered = Some((sent, now));
            self.answer_report(sent.invoke_id, handle, event, &info);
        }
    }

    /// Rejects one waiting report.
    fn rejected(&mut self, record: RecordId, problem: RejectProblem) {
        let Some(peer) = &mut self.peer else { return };
        let place = peer.waiting.iter().position(|waiting| waiting.record == record);
        if let Some(waiting) = place.and_then(|place| peer.waiting.remove(place)) {
            let invoke_id = waiting.sent.invoke_id;
            self.reply(invoke_id, DataMessage::Reject(problem));
        }
    }

    fn answer_report(
        &mut self,
        invoke_id: InvokeId,
        handle: Handle,
        event: EventType,
        info: &[u8],
    ) {
        let result = EventReport { handle, time: NO_RELATIVE_TIME, event, info };
        self.reply(invoke_id, DataMessage::EventReportResult(result));
    }

    /// Answers that an operation is not possible, if the agent expects a response.
    fn refuse(&mut self, data: Option<&DataApdu<'_>>) {
        let Some(data) = data else { return };
        if matches!(
            data.message,
            DataMessage::EventReport(_) | DataMessage::Set(_) | DataMessage::Action(_)
        ) {
            return;
        }
        let error = OperationError { code: ErrorCode::NOT_ALLOWED, parameter: &[] };
        self.reply(data.invoke_id, DataMessage::Error(error));
    }

    fn ask(&mut self, now: Duration, request: RequestId, operation: Operation) {
        let refusal = if self.state != AssociationState::Operating {
            Some(OperationFailure::Away)
        } else if self.asked.len() >= ASKED_MAX {
            self.counters.asked_full += 1;
            Some(OperationFailure::Busy(ASKED_MAX))
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return self.outputs.push_back(Output::Answer(request, Err(refusal)));
        }
        self.asked.push_back(DeviceRequest { request, operation, sent: None });
        self.send_asked(now);
    }

    /// Sends the next request unless one is in progress: one confirmed operation at a time.
    fn send_asked(&mut self, now: Duration) {
        while let Some(asked) = self.asked.front_mut() {
            if asked.sent.is_some() {
                return;
            }
            self.invoke_id = self.invoke_id.wrapping_add(1);
            let invoke_id = InvokeId(self.invoke_id);
            let wait = match &asked.operation {
                Operation::Action { action: action::SEGMENT_CLEAR, .. } => TO_CLEAR,
                _ => TO_OPERATION,
            };
            asked.sent = Some((invoke_id, now + wait));
            if let Ok(octets) = asked.operation.encode(invoke_id) {
                return self.outputs.push_back(Output::Send(octets));
            }
            let too_long = Output::Answer(asked.request, Err(OperationFailure::TooLong));
            self.outputs.push_back(too_long);
            self.asked.pop_front();
        }
    }

    /// Matches a response with its request.
    fn answered(&mut self, now: Duration, data: Option<&DataApdu<'_>>) {
        let Some(data) = data else { return };
        let belongs = |asked: &DeviceRequest| {
            asked.sent.is_some_and(|(invoke_id, _)| invoke_id == data.invoke_id)
                && asked.operation.is_answered_by(&data.message)
        };
        let Some(asked) = self.asked.pop_front_if(|asked| belongs(asked)) else {
            self.counters.unasked_answers += 1;
            return;
        };
        let result = match data.message {
            DataMessage::GetResult(found) | DataMessage::SetResult(found) => {
                let values = found.attributes.iter();
                let values = values.map(|one| (one.id, one.value.to_vec())).collect();
                Ok(OperationResult::Attributes { handle: found.handle, values })
            }
            DataMessage::ActionResult(done) => Ok(OperationResult::Action {
                handle: done.handle,
                action: done.action,
                info: done.info.to_vec(),
            }),
            DataMessage::Error(error) => Err(OperationFailure::Failed(error.code)),
            DataMessage::Reject(problem) => Err(OperationFailure::Rejected(problem)),
            _ => Err(OperationFailure::Rejected(RejectProblem::UNEXPECTED_ERROR)),
        };
        self.outputs.push_back(Output::Answer(asked.request, result));
        self.send_asked(now);
    }

    fn tick(&mut self, now: Duration) {
        if self.poll_timeout().is_none_or(|due| now < due) {
            return;
        }
        self.counters.timeouts += 1;
        if self.state == AssociationState::Unassociated {
            self.since = now;
            return self.outputs.push_back(Output::Close);
        }
        self.turn(now, AssociationEvent::Timeout, None);
    }

    fn send_aare(&mut self, result: AssociateResult, agent: Option<&AssociationInformation<'_>>) {
        let mut ours = AssociationInformation::manager(self.settings.system_id);
        if let Some(agent) = agent {
            ours.protocol_version = newest(agent.protocol_version);
        }
        let info = ours.encode().unwrap_or_default();
        let protocol = match result {
            AssociateResult::NO_COMMON_PROTOCOL => Protocol { id: 0, info: &[] },
            _ => Protocol { id: PROTOCOL_20601, info: &info },
        };
        self.send(&Apdu::Aare(Aare { result, protocol }));
    }

    fn abort(&mut self, reason: AbortReason) {
        self.send(&Apdu::Abrt(reason));
    }

    fn reply(&mut self, invoke_id: InvokeId, message: DataMessage<'_>) {
        self.send(&Apdu::Prst(DataApdu { invoke_id, message }));
    }

    fn send(&mut self, apdu: &Apdu<'_>) {
        // What a manager says by itself is short: only a request can be too long, and that is
        // told to the one who asked.
        if let Ok(octets) = apdu.encode() {
            self.outputs.push_back(Output::Send(octets));
        }
    }
}

/// Whether a report is a repetition.
enum Repetition {
    None,
    Waiting,
    Answered,
}

impl AssociatedAgent {
    /// Whether this confirmed report was taken before: the same octets with the same invoke-id and
    /// report number. While the first one waits it must be a repetition, as two reports in progress
    /// never share an invoke-id. On datagrams it must be one too, since the network repeats them.
    /// On a stream an agent repeats before it would give up; an agent that repeats later does not
    /// number its reports.
    fn repetition(&self, now: Duration, sent: Sent, datagrams: bool) -> Repetition {
        if self.waiting.iter().any(|waiting| waiting.sent == sent) {
            return Repetition::Waiting;
        }
        let is_in_time = |at: Duration| datagrams || now.saturating_sub(at) < TO_REPORT;
        match self.answered {
            Some((before, at)) if before == sent && is_in_time(at) => Repetition::Answered,
            _ => Repetition::None,
        }
    }
}

/// The newest version of 20601 that both sides support.
const fn newest(offered: u32) -> u32 {
    let common = offered & PROTOCOL_VERSIONS;
    common & common.wrapping_neg()
}

/// The agent's parameters, if this manager supports them.
fn acceptable<'a>(aarq: &Aarq<'a>) -> Result<AssociationInformation<'a>, AssociateResult> {
    if aarq.version & ASSOCIATION_VERSION == 0 {
        return Err(AssociateResult::UNSUPPORTED_VERSION);
    }
    let offer = aarq.offer().ok_or(AssociateResult::NO_COMMON_PROTOCOL)?;
    let information =
        AssociationInformation::decode(offer).map_err(|_| AssociateResult::REJECTED_PERMANENT)?;
    let common = information.protocol_version & PROTOCOL_VERSIONS != 0
        && information.encoding_rules & ENCODING_MDER != 0
        && information.nomenclature_version & NOMENCLATURE_VERSION != 0;
    if !common {
        return Err(AssociateResult::NO_COMMON_PARAMETER);
    }
    let config_id = information.config_id;
    let is_agent = information.system_type & SYSTEM_AGENT != 0
        && (config_id.is_standard() || config_id.is_extended());
    is_agent.then_some(information).ok_or(AssociateResult::REJECTED_PERMANENT)
}

/// Whether a report of this kind carries measurements: the set that the paper calls
/// `MDC_NOTI_SCAN_REPORT`.
pub const fn is_measurement(event: EventType) -> bool {
    ScanForm::of(event).is_some()
}
