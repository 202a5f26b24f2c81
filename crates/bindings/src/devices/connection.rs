//! One connection of a device: octets in, reports to the CSE, answers out.
//!
//! Work is sequential: while a report is being stored nothing more is read, so that a device that
//! sends faster than the store commits is slowed by its own connection.

use super::associating::Associating;
use super::deliver::Delivered;
use super::forwarded::has_views;
use super::shards::SharedLibrary;
use super::stages::Passage;
use super::transport::{Arrived, PIECE, Transport};
use super::{ConnectionHandle, Counters, Shared};
use crate::quota::Arriving;
use core::future::poll_fn;
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;
use gatewright_health::apdu::AbortReason;
use gatewright_health::association::AssociationState;
use gatewright_health::code::{Handle, SystemId};
use gatewright_health::configuration::Configuration;
use gatewright_health::convert::Tally;
use gatewright_health::frame::Framer;
use gatewright_health::manager::{self, Ending, Input, Manager, Output, ReportRecord, RequestId};
use gatewright_health::operation::{Operation, OperationFailure, OperationResult};
use gatewright_health::roster::SessionId;
use gatewright_interwork::{Device, DeviceAssociation};
use gatewright_onem2m::{Request, Status, Timestamp};
use gatewright_tables::records::Sender;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::sync::{Notify, mpsc, watch};

/// Time limit for a device to accept what is sent to it.
const WRITE_WITHIN: Duration = Duration::from_secs(10);
/// Sleep of a manager without a deadline.
const NO_DEADLINE: Duration = Duration::from_hours(1);

/// Number of the gateway's own request to a device; other requests count from 1.
const ABOUT: RequestId = RequestId(0);
/// Devices remembered as silent; beyond, all are asked.
const SILENT_MAX: usize = 100_000;

/// One connection of a device.
#[derive(Debug)]
pub(super) struct DeviceConnection {
    pub(super) shared: Arc<Shared>,
    pub(super) id: SessionId,
    pub(super) manager: Manager,
    pub(super) framer: Framer,
    pub(super) transport: Transport,
    pub(super) handle: ConnectionHandle,
    /// Its association request, which may have to wait.
    pub(super) associating: Associating,
    /// Its address, the key of the AE table.
    pub(super) sender: Sender,
    /// System-ids in the device's certificate, if they are compared.
    pub(super) named: Option<Vec<SystemId>>,
    /// The device, while it is associated.
    pub(super) device: Option<SystemId>,
    /// Set when the device has associated over another connection.
    pub(super) is_displaced: Arc<AtomicBool>,
    /// Its resources, while its configuration is known.
    pub(super) session: Option<DeviceAssociation>,
    /// Whether what it reports is test data.
    pub(super) is_test: bool,
    /// Requests to the device.
    pub(super) asked: mpsc::Receiver<(RequestId, Operation)>,
    /// Device that was asked for its MDS attributes.
    pub(super) described: Option<SystemId>,
    pub(super) is_closing: bool,
    /// The manager's counters already added to the shared ones.
    pub(super) counted: manager::Counters,
    /// Arrival time of the octets being processed.
    pub(super) arrived: Instant,
    /// The report to be answered.
    pub(super) passage: Option<Passage>,
    /// Whether the report whose answer leaves next is stored, if only its number distinguishes it
    /// from others.
    pub(super) answering: Option<bool>,
    /// Stored reports not yet shown in the views.
    pub(super) stored: Vec<ReportRecord>,
    /// Octets of an incomplete APDU, counted for the peer's address.
    pub(super) arriving: Arriving,
    /// Its reports that were to be planned for the data plane, and arrived here.
    pub(super) reports_here: u32,
}

impl DeviceConnection {
    /// Serves until the device disconnects, another connection replaces this one, or `stop` is set.
    pub(super) async fn serve(
        &mut self,
        hang_up: &Notify,
        mut stop: watch::Receiver<bool>,
    ) -> io::Result<()> {
        // Made once: to make them anew for each report costs as much as to decode it.
        let mut hung_up = pin!(hang_up.notified());
        let mut stopped = pin!(async { stop.wait_for(|stops| *stops).await.is_ok() });
        let mut alarm = pin!(tokio::time::sleep(NO_DEADLINE));
        self.step(Input::Connected);
        loop {
            self.perform().await?;
            if self.is_closing {
                break;
            }
            alarm.as_mut().reset(self.due().into());
            // In this order: an answer that lies in the socket came before a time limit that passed
            // while a commit was waited for, and so did a request that repeats one that waits.
            tokio::select! {
                biased;
                () = &mut hung_up => break,
                _ = &mut stopped => break,
                arrived = self.transport.receive(&mut self.framer) => {
                    self.arrived = Instant::now();
                    match arrived? {
                        Arrived::End => return Ok(()),
                        Arrived::Octets => {
                            self.apdus().await?;
                            if !self.has_room() {
                                break;
                            }
                        }
                        Arrived::Apdu(apdu) => self.take_apdu(&apdu),
                    }
                    // Whoever always sends something has time limits all the same.
                    self.tick();
                }
                apdu = self.associating.turn_comes() => self.step(Input::Apdu(&apdu)),
                Some((request, operation)) = self.asked.recv() => {
                    self.step(Input::Ask(request, operation));
                }
                () = &mut alarm => self.tick(),
            }
        }
        self.step(Input::Abort);
        self.perform().await
    }

    /// When its manager has something to do. One that holds a request back waits for no other.
    fn due(&self) -> Instant {
        let due = self.manager.poll_timeout().filter(|_| !self.associating.is_waiting());
        due.map_or_else(|| Instant::now() + NO_DEADLINE, |due| self.shared.started + due)
    }

    fn tick(&mut self) {
        if !self.associating.is_waiting() {
            self.step(Input::Tick);
        }
    }

    /// Processes an APDU, unless it is an association request that has to wait.
    fn take_apdu(&mut self, apdu: &[u8]) {
        if !self.associating.holds(self.manager.state(), apdu) {
            self.step(Input::Apdu(apdu));
        }
    }

    /// Ends the manager's transport and fails pending requests.
    pub(super) fn end(&mut self) {
        self.tell_gone();
        self.step(Input::Disconnected);
        while let Some(output) = self.manager.poll_output() {
            match output {
                Output::Answer(ABOUT, _) => self.remember_silence(),
                Output::Answer(request, outcome) => self.shared.answered(request, &outcome),
                _ => {}
            }
        }
        self.asked.close();
        while let Ok((request, _)) = self.asked.try_recv() {
            self.shared.answered(request, &Err(OperationFailure::WentAway));
        }
    }

    /// Tells that the device is gone, unless it is here by another connection.
    fn tell_gone(&self) {
        if let Some(session) = self.session.as_ref().filter(|_| !self.is_displaced()) {
            self.shared.home_assistant.associated(session.device(), false);
        }
    }

    /// Whether the address may have so many octets of unfinished APDUs; one read is always allowed.
    fn has_room(&mut self) -> bool {
        let held = self.framer.pending().saturating_sub(PIECE);
        let has_room = self.arriving.hold(held).is_ok();
        if !has_room {
            self.shared.count(|counters| counters.octets_full += 1);
        }
        has_room
    }

    fn step(&mut self, input: Input<'_>) {
        let now = self.shared.now();
        let library = &mut SharedLibrary { shared: &self.shared, named: self.named.as_deref() };
        self.manager.handle(now, input, library);
    }

    /// Processes every complete APDU in order.
    async fn apdus(&mut self) -> io::Result<()> {
        while !self.is_closing {
            let now = self.shared.now();
            match self.framer.next_apdu() {
                Ok(Some(apdu)) => {
                    if self.associating.holds(self.manager.state(), apdu) {
                        continue;
                    }
                    let (shared, named) = (&self.shared, self.named.as_deref());
                    let library = &mut SharedLibrary { shared, named };
                    self.manager.handle(now, Input::Apdu(apdu), library);
                }
                Ok(None) => return Ok(()),
                Err(_) => {
                    self.is_closing = true;
                    self.step(Input::Unreadable);
                }
            }
            self.perform().await?;
        }
        Ok(())
    }

    /// Carries out the manager's outputs.
    async fn perform(&mut self) -> io::Result<()> {
        self.count();
        while let Some(output) = self.manager.poll_output() {
            match output {
                Output::Send(octets) => {
                    self.send(&octets).await?;
                    self.note_answer();
                }
                Output::Associated { system_id, config_id, is_test } => {
                    (self.device, self.is_test) = (Some(system_id), is_test);
                    let mut state = self.shared.lock();
                    let (device, over_stack) = ((system_id, config_id), self.is_over_stack());
                    let has_room = state.entities.join(&self.sender, device, over_stack)
                        && state.join(system_id, self.id);
                    drop(state);
                    if has_room {
                        self.handle.set_associated(true);
                    } else {
                        self.shared.count(|counters| counters.connections_refused += 1);
                        self.step(Input::Abort);
                    }
                }
                Output::Configured { configuration, .. } => {
                    self.register(configuration).await;
                    self.note();
                    self.ask_about();
                    self.collect();
                }
                Output::Report(record) => self.keep(record).await,
                Output::Disassociated { system_id, ending } => {
                    self.tell_gone();
                    let session = self.session.take();
                    self.device = None;
                    if let (Ending::AbortedByAgent(AbortReason::RESPONSE_TIMEOUT), Some(session)) =
                        (ending, session)
                    {
                        let repeats = &mut self.shared.shards.of(Some(system_id)).repeats;
                        repeats.unheard(system_id, session.device().epoch());
                    }
                    let mut state = self.shared.lock();
                    state.roster.leave(system_id, self.id);
                    state.entities.leave(&self.sender);
                    drop(state);
                    self.handle.set_associated(false);
                }
                Output::Close => {
                    let is_idle =
                        !self.is_closing && self.manager.state() == AssociationState::Unassociated;
                    self.shared.count(|counters| counters.connections_idle += u64::from(is_idle));
                    self.is_closing = true;
                }
                Output::Answer(ABOUT, outcome) => self.describe(outcome.ok()).await,
                Output::Answer(request, outcome) => {
                    if let (Ok(answer), Some(session)) = (&outcome, &mut self.session) {
                        session.learn(answer);
                    }
                    self.shared.answered(request, &outcome);
                }
            }
        }
        self.associating.end_turn();
        // Of a report that wants no answer.
        self.passage = None;
        // The device has its answer.
        for record in core::mem::take(&mut self.stored) {
            self.show(&record).await;
        }
        Ok(())
    }

    /// Adds the manager's counters to the shared ones.
    fn count(&mut self) {
        let (now, before) = (self.manager.counters(), self.counted);
        let of = |counters: &manager::Counters| {
            let more = (counters.padded, counters.unknown_events, counters.test_associations);
            (counters.malformed, counters.strangers, counters.repeated, more)
        };
        if of(&now) != of(&before) {
            self.shared.count(|counters| {
                counters.malformed += now.malformed - before.malformed;
                counters.reports_padded += now.padded - before.padded;
                counters.unknown_events += now.unknown_events - before.unknown_events;
                counters.test_associations += now.test_associations - before.test_associations;
                counters.strangers += now.strangers - before.strangers;
                counters.reports_repeated += now.repeated - before.repeated;
            });
            self.counted = now;
        }
    }

    async fn send(&mut self, octets: &[u8]) -> io::Result<()> {
        let mut sending = pin!(self.transport.send(octets));
        // Mostly it is taken at once.
        let first = poll_fn(|context| Poll::Ready(sending.as_mut().poll(context))).await;
        if let Poll::Ready(sent) = first {
            return sent;
        }
        // Who reads nothing must not keep out others.
        self.associating.end_turn();
        let sent = tokio::time::timeout(WRITE_WITHIN, sending).await;
        sent.unwrap_or_else(|_| {
            self.shared.count(|counters| counters.connections_stuck += 1);
            Err(io::ErrorKind::TimedOut.into())
        })
    }

    /// Creates the device's resources. The association ends if that fails, since its readings could
    /// not be stored.
    async fn register(&mut self, configuration: Arc<Configuration>) {
        let Some(system_id) = self.device else { return };
        let mapping = &self.shared.mapping;
        let same = self.session.as_ref().map(|session| session.device().epoch());
        let epoch = same.unwrap_or_else(|| self.shared.lock().next_epoch());
        let mut device = Device::new(mapping, &self.shared.base, system_id, epoch, &configuration);
        self.shared.lock().recall_kind(&mut device, configuration.id());
        let requests = device.registration(mapping);
        self.reports_here = 0;
        if self.shared.register(&device, requests).await {
            self.shared.follow(&device, configuration.id()).await;
            self.shared.home_assistant.associated(&device, true);
            self.session = Some(DeviceAssociation::new(device, configuration).test(self.is_test));
            self.note_heard();
        } else {
            self.session = None;
            self.shared.count(|counters| counters.registrations_failed += 1);
            self.step(Input::Abort);
        }
    }

    /// Notes that its device is not silent.
    fn note_heard(&self) {
        if let Some(session) = &self.session {
            let device = session.device();
            self.shared.note_heard(device.system_id(), device.kind());
        }
    }

    /// Updates the association's record in the AE table.
    fn note(&self) {
        let device = self.session.as_ref().map(DeviceAssociation::device);
        self.shared.lock().entities.update(&self.sender, &self.manager, device);
    }

    /// Requests the device's MDS attributes (GET), as managers do. A device that does not answer
    /// loses its association by that and is not asked again.
    fn ask_about(&mut self) {
        let (Some(device), Some(_)) = (self.device, &self.session) else { return };
        self.described = Some(device);
        if !self.shared.lock().silent.contains(&device) {
            let attributes = Vec::new();
            self.step(Input::Ask(ABOUT, Operation::Get { handle: Handle::MDS, attributes }));
        }
    }

    /// Stores the device's attributes.
    async fn describe(&mut self, answer: Option<OperationResult>) {
        let Some(OperationResult::Attributes { values, .. }) = answer else {
            return self.remember_silence();
        };
        let Some(session) = &mut self.session else { return };
        session.hear(&values);
        let received = Timestamp::new(crate::engine::wall());
        let (device, configuration) = (session.device(), session.configuration().id());
        let request = device.about(&self.shared.mapping, &values, received);
        self.shared.describe(device, request).await;
        self.shared.follow(device, configuration).await;
    }

    fn remember_silence(&mut self) {
        if let Some(session) = &mut self.session {
            session.hear(&[]);
        }
        let Some(device) = self.described else { return };
        let silent = &mut self.shared.lock().silent;
        if silent.len() < SILENT_MAX {
            silent.insert(device);
        }
    }

    /// Sends the device the requests that waited for it.
    fn collect(&mut self) {
        let (Some(device), Some(_)) = (self.device, &self.session) else { return };
        let waiting = self.shared.lock().desk.collect(device);
        for (request, operation) in waiting {
            self.step(Input::Ask(request, operation));
        }
    }

    /// Stores a report's readings, then tells the manager the result.
    async fn keep(&mut self, record: ReportRecord) {
        if record.confirmed && self.is_displaced() {
            // The device is elsewhere by now: there it sends again what was not answered here.
            return self.step(Input::NotCommitted(record.id));
        }
        let mut counted = Counters { reports: 1, ..Counters::default() };
        let is_numbered = self.recognise(&record, &mut counted);
        let read = self.read_record(&record, &mut counted);
        let is_readable = !read.as_ref().is_some_and(|(tally, _)| tally.is_unreadable());
        let requests = read.map(|(_, requests)| requests).filter(|_| is_readable);
        let mut delivered = Delivered { is_whole: requests.is_some(), taken: None };
        if let (Some(requests), Some(session)) = (requests, &self.session) {
            let (device, is_confirmed) = (session.device(), record.confirmed);
            delivered = self.shared.deliver(device, requests, is_confirmed, &mut counted).await;
        }
        let Delivered { is_whole, taken } = delivered;
        counted.reports_not_stored = u64::from(!is_whole);
        self.shared.shards.of(self.device).counters.add(&counted);
        self.note_heard();
        let done = match (is_whole, is_readable) {
            (true, _) => Input::Committed,
            (false, true) => Input::NotCommitted,
            (false, false) => Input::NotReadable,
        };
        self.step(done(record.id));
        self.answering = is_numbered.then_some(is_whole);
        if is_whole {
            let (arrived, stored) = (self.arrived, Instant::now());
            self.passage = taken.map(|taken| Passage { arrived, taken, stored });
            self.plan(&record);
            if has_views(&self.shared.mapping) {
                self.stored.push(record);
            }
        }
    }

    /// Whether its device sends datagrams to the gateway's own stack.
    pub(super) fn is_over_stack(&self) -> bool {
        matches!(&self.transport, Transport::Datagrams(it) if it.socket.is_of_own_stack())
    }

    /// Whether its device has associated over another connection since.
    fn is_displaced(&self) -> bool {
        self.is_displaced.load(Ordering::Acquire)
    }

    /// Looks up whether a report was received before if only its number distinguishes it from
    /// others. Returns whether it is such a report.
    fn recognise(&mut self, record: &ReportRecord, counted: &mut Counters) -> bool {
        let (Some(device), Some(session)) = (self.device, &mut self.session) else { return false };
        let Some(report) = session.numbered(record) else { return false };
        let now = self.shared.now();
        let known = self.shared.shards.of(Some(device)).repeats.meet(now, device, report);
        if let Some(known) = known {
            counted.reports_repeated += 1;
            session.recognise(record.id, known);
        }
        true
    }

    /// Records that the answer to a report was sent: the duration, and for a report known only by
    /// its number that its device has the answer.
    fn note_answer(&mut self) {
        let (answering, passage) = (self.answering.take(), self.passage.take());
        if answering.is_none() && passage.is_none() {
            return;
        }
        let now = self.shared.now();
        let epoch = self.session.as_ref().map(|session| session.device().epoch());
        let mut shard = self.shared.shards.of(self.device);
        if let (Some(is_stored), Some(device), Some(epoch)) = (answering, self.device, epoch) {
            if is_stored {
                shard.repeats.answered(now, device, epoch);
            } else {
                shard.repeats.refused(device, epoch);
            }
        }
        if let Some(passage) = passage {
            shard.stages.get_or_insert_default().add(&passage, Instant::now());
        }
    }

    /// Updates the views of a stored report. They follow the readings: after a failure the next
    /// report updates them.
    async fn show(&mut self, record: &ReportRecord) {
        let Some(session) = &self.session else { return };
        let views = session.views(&self.shared.mapping, record);
        for [change, make] in views {
            let changed = self.shared.put(change).await;
            if changed.is_some_and(|answer| answer.status == Status::NotFound) {
                let policy = self.shared.policy_on(&make);
                let _ = self.shared.put(make).await;
                if let Some(policy) = policy {
                    let _ = self.shared.put(policy).await;
                }
            }
        }
    }

    /// Decodes a report and converts its readings into requests; `None` if that is not possible
    /// here and now.
    fn read_record(
        &mut self,
        record: &ReportRecord,
        counters: &mut Counters,
    ) -> Option<(Tally, Vec<Request>)> {
        let received = Timestamp::new(crate::engine::wall());
        let mut requests = Vec::new();
        let session = self.session.as_mut()?;
        let read = session.read(&self.shared.mapping, record, received, |instance| {
            requests.push(instance.request());
        });
        let tally = read.ok()?;
        counters.unknown_handles += u64::from(tally.unknown_handles);
        counters.trailing += u64::from(tally.trailing);
        counters.cut += u64::from(tally.cut);
        counters.invalid_times += u64::from(tally.invalid_times);
        Some((tally, requests))
    }
}
