//! The forwarder of reports: an application on the worker that sends readings of associated devices
//! to a CSE.
//!
//! It is the data plane of an IEEE 11073 gateway: a report of a device in the AE table becomes CoAP
//! requests by the plan in that table, and leaves at once. Everything else of an associated device,
//! and each association request, is passed on to the control plane. Datagrams of others are dropped
//! and counted. So reports go on while the control plane is away.
//!
//! Requests for unconfirmed reports are non-confirmable: a lost one is lost, as the report itself would
//! be. A confirmed report is answered when the CSE has executed its requests. If the CSE answers that
//! it lacks the place of a reading, the device's reports go to the control plane, which creates the
//! place again and compiles another plan.

mod confirmed;

use crate::plain::{ApplicationSetup, Plain};
use confirmed::{ConfirmedReports, Met, Outcome, Peer, Reply};
use gatewright_health::numbers::ReportNumbers;
use gatewright_interwork::{CoapPlan, CoapWriter, ReportArrival};
use gatewright_onem2m::{
    Status, Timestamp,
    coap::{EXCHANGE_LIFETIME, NON_LIFETIME, primitive::option},
};
use gatewright_stack::{
    ApplicationSockets, Counter, Datagram, Origin, RunningApplication, SocketApplication,
    SocketIndex, Sockets,
};
use gatewright_tables::{
    DRIVER_PORTS, DataEntities, DriverDevice, DriverReports, EntityTables, TableWriter,
    records::{Entity, EntityReports, LatestReport, Sender},
};
use gatewright_wire::coap::{Code, Message, MessageType};
use std::{
    hash::{BuildHasher, RandomState},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A forwarder of reports to be started.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReportForwarderSetup {
    /// The address of this gateway to which devices send.
    pub listen: SocketAddr,
    /// The CoAP address of the CSE.
    pub cse: SocketAddr,
}

/// Counts of a forwarder at one moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ReportForwarderCounts {
    /// Reports sent on.
    pub reports: u64,
    /// Requests that they became.
    pub requests: u64,
    /// Requests that could not be sent.
    pub not_sent: u64,
    /// Datagrams passed on to the control plane.
    pub passed_on: u64,
    /// Datagrams of senders that are not associated, and of other senders than the CSE.
    pub strangers: u64,
    /// Requests that the CSE has executed.
    pub created: u64,
    /// Requests that the CSE has refused.
    pub refused: u64,
    /// Plans that could not be read.
    pub plans_unread: u64,
    /// Requests with a message ID that may be remembered still (RFC 7252 §4.4): the CSE may take them
    /// for repetitions.
    pub ids_reused: u64,
    /// Answers in the CSE's name to no request that waits for one: late, repeated or forged.
    pub unmatched: u64,
    /// Confirmed reports that were answered.
    pub answered: u64,
    /// Confirmed reports that were rejected: the CSE has refused a reading, or said nothing in time.
    pub rejected: u64,
    /// Confirmed reports that came once more.
    pub repeated: u64,
    /// Confirmable requests that were sent again.
    pub sent_again: u64,
}

/// The names of [`ReportForwarderCounts`] in the table of counters, in their order.
pub(crate) const FORWARDER_ITEMS: [&str; 14] = [
    "reports",
    "requests",
    "not-sent",
    "passed-on",
    "strangers",
    "created",
    "refused",
    "plans-unread",
    "ids-reused",
    "unmatched",
    "answered",
    "rejected",
    "repeated",
    "sent-again",
];

impl ReportForwarderCounts {
    /// The counts by the name of each.
    fn of(count: impl Fn(usize, &str) -> u64) -> Self {
        let mut counts = FORWARDER_ITEMS.iter().enumerate().map(|(at, item)| count(at, item));
        let mut next = || counts.next().unwrap_or_default();
        Self {
            reports: next(),
            requests: next(),
            not_sent: next(),
            passed_on: next(),
            strangers: next(),
            created: next(),
            refused: next(),
            plans_unread: next(),
            ids_reused: next(),
            unmatched: next(),
            answered: next(),
            rejected: next(),
            repeated: next(),
            sent_again: next(),
        }
    }

    const fn in_order(self) -> [u64; FORWARDER_ITEMS.len()] {
        [
            self.reports,
            self.requests,
            self.not_sent,
            self.passed_on,
            self.strangers,
            self.created,
            self.refused,
            self.plans_unread,
            self.ids_reused,
            self.unmatched,
            self.answered,
            self.rejected,
            self.repeated,
            self.sent_again,
        ]
    }
}

type ForwarderCounters = [Counter; FORWARDER_ITEMS.len()];

/// A running forwarder; dropping it ends it.
#[derive(Debug)]
pub struct ReportForwarder {
    /// Its counters, if it runs in this process.
    counters: ForwarderCounters,
    running: RunningApplication,
}

impl ReportForwarder {
    /// Starts to forward reports with sockets of the gateway's own stack, beside the socket at which
    /// the control plane receives what devices send.
    ///
    /// # Errors
    ///
    /// If too many sockets are open.
    pub fn start(
        sockets: &Sockets,
        setup: ReportForwarderSetup,
        entities: &DataEntities,
    ) -> io::Result<Self> {
        let any: IpAddr = match setup.cse {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let counters = ForwarderCounters::default();
        let run = forwarder(setup, entities, counters.clone());
        let of_drivers = entities.drivers.as_ref();
        let own = usize::from(NON.count + CONFIRMABLE.count);
        let towards_cse = own + of_drivers.map_or(0, |_| DRIVER_PORTS);
        let towards_cse = vec![SocketAddr::new(any, 0); towards_cse];
        let running = sockets.run_before(setup.listen, &towards_cse, run)?;
        if let Some(drivers) = of_drivers {
            give_ports(drivers, running.locals().get(1 + own..).unwrap_or_default());
        }
        Ok(Self { counters, running })
    }

    /// Its counts at this moment.
    pub fn counts(&self) -> ReportForwarderCounts {
        ReportForwarderCounts::of(|at, item| {
            let own = || self.counters.get(at).map_or(0, Counter::get);
            self.running.count(item).unwrap_or_else(own)
        })
    }
}

/// The application of a forwarder.
pub(crate) fn forwarder(
    setup: ReportForwarderSetup,
    entities: &DataEntities,
    counters: ForwarderCounters,
) -> Box<dyn SocketApplication> {
    let (tables, reports) = (entities.readers.clone(), entities.reports());
    let mut plans = Vec::new();
    plans.resize_with(usize::try_from(tables.plans.capacity()).unwrap_or_default(), || None);
    let drivers = entities.drivers.clone();
    let drivers = drivers.map(|all| DrivenDevices { all, noted: Vec::new(), due: Duration::ZERO });
    let table = PlanTable { tables, reports, plans };
    let writer = CoapWriter::default();
    let (clock, now) = (wall_micros, wall_micros());
    let requests = [NON, CONFIRMABLE].map(|kind| RequestNumbers {
        ids: MessageIds::new(kind, now),
        awaited: AwaitedAnswers::default(),
    });
    let confirmed = ConfirmedReports::new(table.plans.len());
    Box::new(Forwarder { setup, table, drivers, writer, counters, requests, confirmed, clock })
}

/// Has drivers send requests from these sockets, at which their answers arrive.
fn give_ports(drivers: &DriverReports, sockets: &[SocketAddr]) {
    let mut ports = [0; DRIVER_PORTS];
    ports.iter_mut().zip(sockets).for_each(|(port, socket)| *port = socket.port());
    // Anywhere, as those before may just have used the first numbers; never 0.
    drivers.begin_at((wall_micros() >> MILLISECOND_BITS) | 1);
    drivers.set_ports(&ports);
}

/// Microseconds since 1970.
fn wall_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The socket of devices; the others lead to the CSE.
const DEVICES: SocketIndex = SocketIndex(0);

/// Ports towards the CSE for messages of one kind. Each has 65,536 message IDs, which it may use again
/// after their lifetime (RFC 7252 §4.4, §4.8.2).
#[derive(Clone, Copy, Debug)]
struct Ports {
    /// The first one's socket.
    first: u16,
    count: u16,
    lifetime: Duration,
    /// First octet of a message: version 1, its type, the length of the token (RFC 7252 §3).
    header: u8,
}

/// Non-confirmable messages: 28,900 requests a second.
const NON: Ports = Ports { first: 1, count: 64, lifetime: NON_LIFETIME, header: 0x54 };
/// Confirmable ones, whose devices wait for each: 2,120 requests a second.
const CONFIRMABLE: Ports = Ports { first: 65, count: 8, lifetime: EXCHANGE_LIFETIME, header: 0x44 };

/// The first socket of requests that drivers send.
const OF_DRIVERS: u16 = CONFIRMABLE.first + CONFIRMABLE.count;

/// First octets of an association request and of data (ISO/IEEE 11073-20601, AARQ and PRST).
const AARQ: [u8; 2] = [0xE2, 0x00];
const PRST: [u8; 2] = [0xE7, 0x00];
/// Where a fixed scan report has its number.
const SCAN_NUMBER: usize = 24;

/// A plan that was read from the table, and what came of it.
struct KnownPlan {
    serial: u32,
    /// None if it is not to be used: unreadable, or for places that the CSE lacks.
    plan: Option<CoapPlan>,
    numbers: ReportNumbers,
    /// The time of the last report, if the device reports one.
    time: Option<u64>,
    reports: u64,
}

/// The plans in the AE table, read once each.
struct PlanTable {
    tables: EntityTables,
    reports: TableWriter<EntityReports>,
    /// By their places in the table.
    plans: Vec<Option<Box<KnownPlan>>>,
}

impl PlanTable {
    /// The plan of a device.
    fn known(
        &mut self,
        entity: &Entity,
        tally: &mut ReportForwarderCounts,
    ) -> Option<&mut KnownPlan> {
        let (place, serial) = entity.plan;
        let known = self.plans.get_mut(usize::try_from(place).ok()?)?;
        if known.as_ref().is_none_or(|known| known.serial != serial) {
            // The control plane may be writing another one there: then this device has none.
            let plan = self.tables.plans.get(place).ok().flatten();
            let plan = plan.filter(|plan| plan.serial == serial)?;
            let plan = CoapPlan::of(plan.octets());
            tally.plans_unread += u64::from(plan.is_none());
            let before = self.reports.get(place).filter(|before| before.serial == serial);
            let numbers = before
                .map_or_else(ReportNumbers::default, |before| ReportNumbers::after(before.last));
            let reports = before.map_or(0, |before| before.reports);
            let time = plan.as_ref().and_then(CoapPlan::last_time);
            *known = Some(Box::new(KnownPlan { serial, plan, numbers, time, reports }));
        }
        known.as_deref_mut()
    }

    /// Ends the use of a plan, for places that the CSE lacks.
    fn end_plan(&mut self, place: u32) {
        let known = usize::try_from(place).ok().and_then(|place| self.plans.get_mut(place));
        if let Some(known) = known.and_then(Option::as_mut) {
            known.plan = None;
        }
    }
}

impl KnownPlan {
    /// Goes on behind what was sent on for the device by drivers.
    fn go_on_behind(&mut self, device: &DriverDevice) {
        let DriverDevice { reports, last, time, .. } = *device;
        self.numbers = last.map_or_else(ReportNumbers::default, ReportNumbers::after);
        (self.reports, self.time) = (reports, time);
    }
}

/// Devices whose reports drivers send on.
struct DrivenDevices {
    all: DriverReports,
    /// What was noted in the AE table.
    noted: Vec<(u32, u32)>,
    /// When it is noted again.
    due: Duration,
}

/// Time after which the AE table has what drivers have sent on: a control plane after this one finds it
/// there.
const NOTED_AFTER: Duration = Duration::from_secs(1);

impl DrivenDevices {
    /// Notes in the AE table what drivers have sent on, if that is due.
    fn note(&mut self, now: Duration, reports: &mut TableWriter<EntityReports>) {
        if now < self.due {
            return;
        }
        self.due = now + NOTED_AFTER;
        self.all.changed(&mut self.noted, |place, device| {
            // Its place is that of the plan.
            let _noted = reports.set(place, device);
        });
    }
}

/// The application.
struct Forwarder {
    setup: ReportForwarderSetup,
    table: PlanTable,
    /// The devices whose reports drivers send on.
    drivers: Option<DrivenDevices>,
    writer: CoapWriter,
    counters: ForwarderCounters,
    /// Of non-confirmable requests, and of confirmable ones.
    requests: [RequestNumbers; 2],
    confirmed: ConfirmedReports,
    /// Microseconds since 1970.
    clock: fn() -> u64,
}

impl SocketApplication for Forwarder {
    fn parameters(&self) -> Option<Vec<u8>> {
        Some(ApplicationSetup::ReportForwarder(self.setup).octets())
    }

    fn poll_timeout(&self) -> Option<Duration> {
        let noted = self.drivers.as_ref().map(|drivers| drivers.due);
        [self.confirmed.poll_timeout(), noted].into_iter().flatten().min()
    }

    fn handle(&mut self, sockets: &mut ApplicationSockets<'_, '_>) {
        let mut tally = ReportForwarderCounts::default();
        let received = (self.clock)();
        while let Some(socket) = sockets.next_ready() {
            for _ in 0..sockets.waiting(socket) {
                let Some(datagram) = sockets.receive(socket) else { break };
                if socket == DEVICES {
                    self.device(datagram, received, sockets, &mut tally);
                } else {
                    self.answer(socket, &datagram, sockets, &mut tally);
                }
            }
        }
        self.tick(sockets, &mut tally);
        if let Some(drivers) = &mut self.drivers {
            drivers.note(sockets.now(), &mut self.table.reports);
        }
        let counts = self.counters.iter().zip(tally.in_order());
        counts.filter(|(_, count)| *count > 0).for_each(|(counter, count)| counter.add(count));
    }
}

impl Forwarder {
    /// Handles what a device has sent.
    fn device(
        &mut self,
        datagram: Datagram,
        received: u64,
        sockets: &mut ApplicationSockets<'_, '_>,
        tally: &mut ReportForwarderCounts,
    ) {
        let from = datagram.from();
        let sender = Sender { address: from.ip(), port: from.port() };
        let asks = datagram.octets().starts_with(&AARQ);
        match self.table.tables.entities.get(&sender) {
            Ok(None) if !asks => tally.strangers += 1,
            Ok(Some(entity)) if self.forward(&datagram, &entity, received, sockets, tally) => {}
            // The control plane judges what it is just writing, too.
            _ => {
                tally.passed_on += 1;
                sockets.pass_on(datagram);
            }
        }
    }

    /// Sends a report on; returns whether it did.
    fn forward(
        &mut self,
        datagram: &Datagram,
        entity: &Entity,
        received: u64,
        sockets: &mut ApplicationSockets<'_, '_>,
        tally: &mut ReportForwarderCounts,
    ) -> bool {
        let report = datagram.octets();
        if entity.plan.1 == 0 || !report.starts_with(&PRST) || datagram.to().is_multicast() {
            return false;
        }
        let Self { setup, table, drivers, writer, requests, confirmed, .. } = self;
        let [non, confirmable] = requests;
        let (place, serial) = entity.plan;
        let from = datagram.from();
        let sender = Sender { address: from.ip(), port: from.port() };
        let drivers = drivers.as_ref().map(|drivers| &drivers.all);
        let held = drivers.and_then(|drivers| drivers.hold(&sender, serial));
        if held.is_none() && drivers.is_some_and(|drivers| drivers.has(&sender, serial)) {
            // What drivers have sent on is not known, and a number of it must not come twice.
            return false;
        }
        let Some(known) = table.known(entity, tally) else { return false };
        if let Some(held) = &held {
            known.go_on_behind(&held.get());
        }
        let Some(plan) = &known.plan else { return false };
        let (is_confirmed, origin) = (plan.is_confirmed(), datagram.origin().of_own_message());
        if is_confirmed
            && let Some(is_done) = known_report(confirmed, datagram, entity.plan, sockets, tally)
        {
            return is_done;
        }
        let mut numbers = known.numbers;
        let (last, _) = numbers.extend(scan_number(report));
        let arrival = ReportArrival { report: last, received: Timestamp::from_micros(received) };
        // A device whose clock stands still gives different reports the same time.
        let own = plan.identity(report);
        let time = own.map(|own| own.epoch);
        let own = own.filter(|_| time != known.time);
        let latest = LatestReport::new(report, own.is_some());
        let requests = if is_confirmed { confirmable } else { non };
        let mut drawn = 0;
        let is_planned = writer.convert(plan, (arrival, own), report, |message| {
            let (request, is_reused) = requests.number(message, place, received);
            let sent = sockets.send(request.socket, message, setup.cse, origin);
            tally.ids_reused += u64::from(is_reused);
            tally.requests += u64::from(sent.is_ok());
            tally.not_sent += u64::from(sent.is_err());
            if is_confirmed {
                drawn = request.token >> AWAITED_MAX.trailing_zeros();
                confirmed.keep(place, request, message);
            }
        });
        match (is_confirmed, is_planned) {
            (true, true) => confirmed.list(place, drawn),
            (true, false) => confirmed.forget(place),
            (false, _) => {}
        }
        if is_planned {
            tally.reports += 1;
            // One that is not answered comes again, under the same name.
            let time = if is_confirmed { None } else { time };
            (known.numbers, known.time) = (numbers, time.or(known.time));
            known.reports += 1;
            let reports = known.reports;
            if let Some(held) = &held {
                let (last, time) = (Some(last), known.time);
                held.set(&DriverDevice { reports, last, received, time, latest });
            }
            let noted = EntityReports { serial, reports, last, received, latest };
            // Its place is that of the plan.
            let _noted = table.reports.set(place, &noted);
        }
        is_planned
    }

    /// Sends again what the CSE has not acknowledged, and rejects reports that it has not executed in
    /// time.
    fn tick(
        &mut self,
        sockets: &mut ApplicationSockets<'_, '_>,
        tally: &mut ReportForwarderCounts,
    ) {
        let (now, cse) = (sockets.now(), self.setup.cse);
        loop {
            let reply = self.confirmed.poll(now, |socket, message| {
                tally.sent_again += 1;
                let sent = sockets.send(socket, message, cse, Origin::default());
                tally.not_sent += u64::from(sent.is_err());
            });
            let Some(reply) = reply else { return };
            self.reply(&reply, Origin::default(), sockets, tally);
        }
    }

    /// Replies to a device, if it is still associated there.
    fn reply(
        &mut self,
        reply: &Reply,
        origin: Origin,
        sockets: &mut ApplicationSockets<'_, '_>,
        tally: &mut ReportForwarderCounts,
    ) {
        let (place, _) = reply.plan;
        let entity = self.table.tables.entities.get(&reply.peer.sender).ok().flatten();
        if entity.is_none_or(|entity| entity.plan != reply.plan) {
            return;
        }
        tally.answered += u64::from(reply.is_answer);
        tally.rejected += u64::from(!reply.is_answer);
        send_reply(sockets, reply, origin);
        let known = usize::try_from(place).ok();
        let known = known.and_then(|place| self.table.plans.get_mut(place)?.as_mut());
        let (Some(known), Some(report)) = (known, self.confirmed.answered(place)) else { return };
        let time = known.plan.as_ref().and_then(|plan| plan.identity(report));
        known.time = time.map(|own| own.epoch).or(known.time);
    }

    /// Handles an answer of the CSE.
    fn answer(
        &mut self,
        socket: SocketIndex,
        datagram: &Datagram,
        sockets: &mut ApplicationSockets<'_, '_>,
        tally: &mut ReportForwarderCounts,
    ) {
        let message = Message::parse(datagram.octets());
        let Some(message) = message.ok().filter(|_| datagram.from() == self.setup.cse) else {
            tally.strangers += 1;
            return;
        };
        let kind = message.message_type();
        let is_reset = kind == MessageType::RESET;
        if is_reset || (kind == MessageType::ACKNOWLEDGEMENT && message.code() == Code::EMPTY) {
            let message = (socket, message.message_id());
            let (is_known, reply) = self.confirmed.acknowledged(message, is_reset);
            tally.unmatched += u64::from(!is_known);
            if let Some(reply) = reply {
                self.reply(&reply, Origin::default(), sockets, tally);
            }
            return;
        }
        if kind == MessageType::CONFIRMABLE {
            let [high, low] = message.message_id().to_be_bytes();
            // Version 1, acknowledgement, empty (RFC 7252 §3). A lost one is asked for again.
            let acknowledgement = [0x60, 0, high, low];
            let _lost = sockets.send(socket, &acknowledgement, self.setup.cse, Origin::default());
        }
        let token = <[u8; 4]>::try_from(message.token()).ok().map(u32::from_be_bytes);
        let awaited = token.and_then(|token| Some((token, self.end_awaited(socket, token)?)));
        let Some((token, place)) = awaited else {
            tally.unmatched += 1;
            return;
        };
        // A name that is there is a reading that has arrived before.
        let is_there = message.uint(option::RSC) == Some(Status::Conflict.number().into());
        let is_executed = message.code().class() == 2 || is_there;
        let outcome = if is_executed { Outcome::Executed } else { Outcome::Refused };
        if let Some(reply) = self.confirmed.executed(place, token, outcome) {
            self.reply(&reply, datagram.origin().of_own_message(), sockets, tally);
        }
        if is_executed {
            tally.created += 1;
            return;
        }
        tally.refused += 1;
        let is_lacking = message.code() == Code::NOT_FOUND;
        if is_lacking {
            self.table.end_plan(place);
            self.drivers.iter().for_each(|drivers| drivers.all.end_plan(place));
        }
    }

    /// The plan of the request from this socket that is answered with `token`.
    fn end_awaited(&mut self, socket: SocketIndex, token: u32) -> Option<u32> {
        let [non, confirmable] = &mut self.requests;
        match socket.0 {
            OF_DRIVERS.. => self.drivers.as_ref()?.all.end_awaited(token),
            at if at < CONFIRMABLE.first => non.awaited.end(token),
            _ => confirmable.awaited.end(token),
        }
    }
}

/// Looks whether a confirmed report is to be converted, and begins it then. If not, returns whether
/// it is done: it was met before, and not one that goes to the control plane.
fn known_report(
    confirmed: &mut ConfirmedReports,
    datagram: &Datagram,
    plan: (u32, u32),
    sockets: &mut ApplicationSockets<'_, '_>,
    tally: &mut ReportForwarderCounts,
) -> Option<bool> {
    let (from, report) = (datagram.from(), datagram.octets());
    let sender = Sender { address: from.ip(), port: from.port() };
    let peer = Peer { sender, own: datagram.to() };
    match confirmed.meet(plan, peer, report) {
        Met::New => {
            confirmed.begin(plan, peer, report, sockets.now());
            None
        }
        Met::Busy => Some(false),
        Met::Repeated(answer) => {
            tally.repeated += 1;
            let origin = datagram.origin().of_own_message();
            if let Some(reply) = &answer {
                send_reply(sockets, reply, origin);
            }
            Some(true)
        }
    }
}

/// The number of a fixed scan report.
fn scan_number(report: &[u8]) -> Option<u16> {
    let number = report.get(SCAN_NUMBER..).and_then(|rest| rest.first_chunk().copied());
    number.map(u16::from_be_bytes)
}

/// Sends a device what its confirmed report is answered by; a lost answer is asked for again.
fn send_reply(sockets: &mut ApplicationSockets<'_, '_>, reply: &Reply, origin: Origin) {
    let Peer { sender, own } = reply.peer;
    let to = SocketAddr::new(sender.address, sender.port);
    let _lost = sockets.send_from(DEVICES, own, reply.octets(), to, origin);
}

/// Requests whose answers are awaited at the most; a further one displaces the oldest.
const AWAITED_MAX: u32 = 1 << 14;

/// The last requests by their tokens. 14 bits of a token are a request's place here, and 18 are drawn
/// with keys that nobody outside knows: who only forges the CSE's address meets none of them (RFC 7252
/// §5.3.1), and each is answered once.
struct AwaitedAnswers {
    /// Token, and the plan of the request.
    requests: Vec<Option<(u32, u32)>>,
    begun: u64,
    keys: RandomState,
}

impl Default for AwaitedAnswers {
    fn default() -> Self {
        let len = usize::try_from(AWAITED_MAX).unwrap_or_default();
        Self { requests: vec![None; len], begun: 0, keys: RandomState::new() }
    }
}

impl AwaitedAnswers {
    /// The token of a further request, of the plan at `place`.
    fn begin(&mut self, place: u32) -> u32 {
        let slot = u32::try_from(self.begun % u64::from(AWAITED_MAX)).unwrap_or_default();
        let drawn = u32::try_from(self.keys.hash_one(self.begun) >> 32).unwrap_or_default();
        let token = drawn & !(AWAITED_MAX - 1) | slot;
        self.begun = self.begun.wrapping_add(1);
        if let Some(request) = self.at(token) {
            *request = Some((token, place));
        }
        token
    }

    /// The plan of the request that is answered with `token`, whose answer is awaited no longer.
    fn end(&mut self, token: u32) -> Option<u32> {
        let request = self.at(token)?;
        let (_, place) = request.take_if(|(awaited, _)| *awaited == token)?;
        Some(place)
    }

    fn at(&mut self, token: u32) -> Option<&mut Option<(u32, u32)>> {
        self.requests.get_mut(usize::try_from(token & (AWAITED_MAX - 1)).ok()?)
    }
}

/// Numbers of one request to the CSE.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct RequestNumber {
    socket: SocketIndex,
    id: u16,
    token: u32,
}

/// Numbers of requests of one kind.
struct RequestNumbers {
    ids: MessageIds,
    awaited: AwaitedAnswers,
}

impl RequestNumbers {
    /// Gives a planned message its type and numbers, and returns these and whether the message ID may be
    /// remembered still.
    fn number(&mut self, message: &mut [u8], place: u32, now: u64) -> (RequestNumber, bool) {
        let (socket, id, is_reused) = self.ids.next(now);
        let token = self.awaited.begin(place);
        set_header(message, self.ids.ports.header, id, token);
        (RequestNumber { socket, id, token }, is_reused)
    }
}

/// Gives out message IDs of one kind: all of one port, then those of the next.
struct MessageIds {
    ports: Ports,
    port: u16,
    id: u16,
    /// When each port's turn began, 0 for never.
    begun: Vec<u64>,
    /// Whether the IDs of this turn may be remembered still.
    is_early: bool,
}

impl MessageIds {
    /// Begins anywhere, as a forwarder before this one may just have used the first ones.
    fn new(ports: Ports, now: u64) -> Self {
        let [.., a, b, c] = (now >> MILLISECOND_BITS).to_be_bytes();
        Self {
            ports,
            port: u16::from(a) % ports.count,
            id: u16::from_be_bytes([b, c]),
            begun: vec![0; ports.count.into()],
            is_early: false,
        }
    }

    /// The next ID with its socket, and whether it may be remembered still.
    fn next(&mut self, now: u64) -> (SocketIndex, u16, bool) {
        let given = (SocketIndex(self.ports.first + self.port), self.id, self.is_early);
        self.id = self.id.wrapping_add(1);
        if self.id == 0 {
            self.port = (self.port + 1) % self.ports.count;
            if let Some(begun) = self.begun.get_mut(usize::from(self.port)) {
                let ended = now.saturating_sub(*begun);
                let lifetime = self.ports.lifetime.as_micros();
                self.is_early = *begun > 0 && u128::from(ended) < lifetime;
                *begun = now;
            }
        }
        given
    }
}

/// Bits of microseconds that are about a millisecond.
const MILLISECOND_BITS: u32 = 10;

/// Sets type, message ID and token of a planned message.
fn set_header(message: &mut [u8], header: u8, id: u16, token: u32) {
    if let Some([kind, _, id_place @ .., _, _, _, _]) = message.first_chunk_mut::<8>() {
        *kind = header;
        id_place.copy_from_slice(&id.to_be_bytes());
    }
    if let Some(place) = message.get_mut(4..8) {
        place.copy_from_slice(&token.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_once_and_no_other_is_taken_for_it() {
        let mut awaited = AwaitedAnswers::default();
        let (first, second) = (awaited.begin(7), awaited.begin(9));
        for drawn in 1..4096 {
            assert_eq!(awaited.end(first ^ (drawn * AWAITED_MAX)), None, "another token");
        }
        assert_eq!((awaited.end(first), awaited.end(first)), (Some(7), None));
        assert_eq!(awaited.end(2), None, "no request has been there");
        // The oldest is displaced; those of this round wait.
        let mut third = 0;
        for place in 2..=AWAITED_MAX + 1 {
            third = awaited.begin(place);
        }
        assert_eq!((awaited.end(second), awaited.end(third)), (None, Some(AWAITED_MAX + 1)));
        // Another forwarder draws other ones.
        let mut other = AwaitedAnswers::default();
        let same = (0..64).filter(|place| awaited.begin(*place) == other.begin(*place)).count();
        assert!(same < 8, "{same} of 64 tokens are the same");
    }
}
