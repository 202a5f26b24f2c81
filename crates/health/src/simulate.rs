//! Simulated devices: real agents with plausible readings from a seed, correct or, on request, with
//! the faults of devices in use.
//!
//! A device measures at intervals, keeps unacknowledged reports, associates again when its
//! association ends, and counts both sides of the comparison: what it measured and what was
//! acknowledged. Used as the machines are: [`handle`](Device::handle),
//! [`poll_output`](Device::poll_output), [`poll_timeout`](Device::poll_timeout).

mod control;

use crate::agent::{self, Agent, Ending, OutgoingReport, ReportId};
use crate::apdu::Apdu;
use crate::association::AssociationState;
use crate::code::{AttributeId, DataRequestId, Handle, InvokeId, SystemId, Type, attribute, event};
use crate::configuration::MapEntry;
use crate::data::{DataApdu, DataMessage, EventReport};
use crate::decimal::Number;
use crate::mder::MderWriter;
use crate::report::{FixedObservation, encode_scan};
use crate::specialisation::{Metric, Specialisation};
use crate::time::{AbsoluteTime, NO_RELATIVE_TIME};
use control::{Control, Turn};
use core::time::Duration;
use std::collections::VecDeque;

/// Unacknowledged measurements that a device keeps; beyond, it forgets the oldest.
pub const KEPT_MAX: usize = 1_024;
/// Pause before a device associates again.
const ASSOCIATE_AGAIN: Duration = Duration::from_secs(1);
/// Measurements skipped to keep the interval; a device that is later than that starts a new
/// schedule.
const LEFT_OUT_MAX: u32 = 64;
/// Pause before a device repeats a rejected report.
const REPORT_AGAIN: Duration = Duration::from_millis(500);
/// With [`Faults::MALFORMED`], one in so many reports is malformed.
const MALFORMED_EVERY: u64 = 16;
/// With [`Faults::UNKNOWN_HANDLE`], the handle that no configuration has.
const UNKNOWN_HANDLE: Handle = Handle(99);

/// Faults of a device, combined with `|`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Faults(u16);

impl Faults {
    /// None at all.
    pub const NONE: Self = Self(0);
    /// Its reports are unconfirmed.
    pub const UNCONFIRMED: Self = Self(1);
    /// Its observations have octets after the mapped ones.
    pub const TRAILING: Self = Self(1 << 1);
    /// It reports a handle that it never configured.
    pub const UNKNOWN_HANDLE: Self = Self(1 << 2);
    /// Its report number never changes.
    pub const STANDING_NUMBER: Self = Self(1 << 3);
    /// It reports its configuration although the manager knows it.
    pub const LATE_CONFIGURATION: Self = Self(1 << 4);
    /// It reports before it associates.
    pub const EARLY_REPORT: Self = Self(1 << 5);
    /// Some of its reports are malformed.
    pub const MALFORMED: Self = Self(1 << 6);

    /// The faults by name, as the command line takes them.
    pub const NAMES: [(&'static str, Self); 7] = [
        ("unconfirmed", Self::UNCONFIRMED),
        ("trailing", Self::TRAILING),
        ("unknown-handle", Self::UNKNOWN_HANDLE),
        ("standing-number", Self::STANDING_NUMBER),
        ("late-configuration", Self::LATE_CONFIGURATION),
        ("early-report", Self::EARLY_REPORT),
        ("malformed", Self::MALFORMED),
    ];

    /// The fault called `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.into_iter().find(|(known, _)| *known == name).map(|(_, fault)| fault)
    }

    /// Whether `fault` is among them.
    pub const fn has(self, fault: Self) -> bool {
        self.0 & fault.0 == fault.0
    }
}

impl core::ops::BitOr for Faults {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Plan of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct SimulationPlan {
    /// The kind of device.
    pub kind: &'static Specialisation,
    /// Its system-id; two devices may share one, as some in use do.
    pub system_id: SystemId,
    /// Seed of its readings: the same seed, the same readings.
    pub seed: u64,
    /// How often it measures.
    pub period: Duration,
    /// Interval after which it releases its association to establish a new one; never if `None`.
    pub reassociate: Option<Duration>,
    /// Time between two control messages among its data: configuration reports, association
    /// cycles; none, if `None`.
    pub control: Option<Duration>,
    /// Its faults.
    pub faults: Faults,
    /// Its clock: hundredths of a second since 1970 when the caller's time is zero.
    pub clock: u64,
}

impl SimulationPlan {
    /// A correct device that measures once a second, its clock at 2026-01-01.
    pub const fn new(kind: &'static Specialisation, system_id: SystemId, seed: u64) -> Self {
        Self {
            kind,
            system_id,
            seed,
            period: Duration::from_secs(1),
            reassociate: None,
            control: None,
            faults: Faults::NONE,
            clock: 1_767_225_600 * 100,
        }
    }
}

/// Input to a device.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// The transport is connected.
    Connected,
    /// The transport is disconnected.
    Disconnected,
    /// One complete APDU has arrived.
    Apdu(&'a [u8]),
    /// Time has passed; see [`SimulatedDevice::poll_timeout`].
    Tick,
    /// Stop measuring, and end the association once everything is acknowledged.
    Finish,
}

/// Output of a device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Output {
    /// Send these octets, one APDU.
    Send(Vec<u8>),
    /// The device is associated and reports.
    Operating,
    /// Everything is acknowledged and the association released, after [`Input::Finish`].
    Finished,
}

/// Counters of both sides of the comparison.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Associations that reached the state operating.
    pub associations: u64,
    /// Reports measured.
    pub measured: u64,
    /// Values in them that a manager should see.
    pub values: u64,
    /// Reports acknowledged, or sent if unconfirmed.
    pub acknowledged: u64,
    /// Values in those.
    pub acknowledged_values: u64,
    /// Reports returned to the queue and sent again.
    pub repeated: u64,
    /// Reports forgotten because of [`KEPT_MAX`].
    pub forgotten: u64,
    /// Measurements skipped because the device was too late.
    pub left_out: u64,
    /// Control messages sent: all except reports of measurements. Like the next two, counted if
    /// [`SimulationPlan::control`] is set.
    pub control_sent: u64,
    /// Control messages that need a response: of association, release and configuration.
    pub control_asked: u64,
    /// Responses to those.
    pub control_answered: u64,
}

/// Delay of one report's answer, and lateness of the report.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Answered {
    /// Time since it was measured; or since it was due, if the manager had not accepted earlier
    /// data: a manager that slows a device down does not shorten the delay by that.
    pub took: Duration,
    /// How late it was measured because of other work in the device's process: not included in
    /// `took`.
    pub late: Duration,
}

/// A simulated device.
#[derive(Clone, Debug)]
pub struct SimulatedDevice {
    plan: SimulationPlan,
    agent: Agent,
    random: Random,
    /// Distance of each metric from its middle, in steps.
    walks: Vec<i32>,
    kept: VecDeque<PendingMeasurement>,
    measured: u64,
    number: u16,
    measure_at: Option<Duration>,
    associate_at: Option<Duration>,
    release_at: Option<Duration>,
    /// Time to pass the agent further reports.
    give_at: Option<Duration>,
    is_finishing: bool,
    outputs: VecDeque<Output>,
    counters: Counters,
    control: Option<Control>,
    /// Whether it will release its association, to establish a new one, once no report waits.
    is_cycling: bool,
    /// Delays not taken by the caller yet.
    delays: Vec<Answered>,
    /// Time until which the manager did not accept data.
    held_until: Duration,
}

/// An unacknowledged measurement.
#[derive(Clone, Debug)]
struct PendingMeasurement {
    id: ReportId,
    observations: Vec<(Handle, Vec<u8>)>,
    values: u64,
    /// Whether the agent has it.
    given: bool,
    /// Start of its wait for the answer.
    since: Duration,
    late: Duration,
}

impl SimulatedDevice {
    /// Creates a device that starts when its transport is connected.
    pub fn new(plan: SimulationPlan) -> Self {
        let configuration = plan.kind.octets().unwrap_or_default();
        let settings = agent::AgentSettings {
            system_id: plan.system_id,
            configurations: vec![(plan.kind.config, configuration)],
            attributes: description(plan.kind),
            segments: Vec::new(),
            scanners: Vec::new(),
            clock: Some(plan.clock),
        };
        Self {
            plan,
            agent: Agent::new(settings),
            random: Random(plan.seed),
            walks: vec![0; plan.kind.metrics.len()],
            kept: VecDeque::new(),
            measured: 0,
            number: 0,
            measure_at: None,
            associate_at: None,
            release_at: None,
            give_at: None,
            is_finishing: false,
            outputs: VecDeque::new(),
            counters: Counters::default(),
            control: plan.control.map(Control::new),
            is_cycling: false,
            delays: Vec::new(),
            held_until: Duration::ZERO,
        }
    }

    /// Counters of both sides of the comparison.
    pub fn counters(&self) -> Counters {
        let Some(control) = &self.control else { return self.counters };
        let tally = control.tally();
        Counters {
            control_sent: tally.sent,
            control_asked: tally.asked,
            control_answered: tally.answered,
            ..self.counters
        }
    }

    /// Delays of the reports acknowledged since the last call, at most [`KEPT_MAX`].
    pub fn take_delays(&mut self) -> Vec<Answered> {
        core::mem::take(&mut self.delays)
    }

    /// The manager has accepted earlier data only now: the delay of what was due meanwhile counts
    /// from then.
    pub const fn held(&mut self, now: Duration) {
        self.held_until = now;
    }

    /// State of the association.
    pub const fn state(&self) -> AssociationState {
        self.agent.state()
    }

    /// The next output.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Latest time of the next [`Input::Tick`].
    pub fn poll_timeout(&self) -> Option<Duration> {
        let control = self.control.as_ref().and_then(|control| control.due);
        let control = control.filter(|_| !self.is_finishing);
        let own = [self.measure_at, self.associate_at, self.release_at, self.give_at, control];
        own.into_iter().flatten().chain(self.agent.poll_timeout()).min()
    }

    /// Processes an input at `now`.
    pub fn handle(&mut self, now: Duration, input: Input<'_>) {
        match input {
            Input::Connected => {
                self.agent.handle(now, agent::Input::Connected);
                if self.plan.faults.has(Faults::EARLY_REPORT) {
                    self.report_early(now);
                }
                self.agent.handle(now, agent::Input::Associate);
            }
            Input::Disconnected => {
                self.agent.handle(now, agent::Input::Disconnected);
                self.associate_at = None;
            }
            Input::Apdu(octets) => {
                if let Some(control) = &mut self.control {
                    control.arrived(octets);
                }
                self.agent.handle(now, agent::Input::Apdu(octets));
            }
            Input::Tick => self.tick(now),
            Input::Finish => {
                self.is_finishing = true;
                self.measure_at = None;
            }
        }
        self.drain(now);
        if self.give_at.is_some_and(|at| at <= now) {
            self.give_at = None;
            self.give(now);
            self.drain(now);
        }
        self.cycle(now);
        self.finish(now);
    }

    fn tick(&mut self, now: Duration) {
        let due = |at: Option<Duration>| at.is_some_and(|at| at <= now);
        if let Some(at) = self.measure_at.filter(|at| *at <= now) {
            let next = self.next_measurement(at, now);
            self.measure_at = Some(next);
            let beats = next.saturating_sub(at).as_nanos() / self.plan.period.as_nanos().max(1);
            let left_out = u64::try_from(beats).unwrap_or(u64::MAX).saturating_sub(1);
            self.counters.left_out = self.counters.left_out.saturating_add(left_out);
            self.measure(now, at);
            self.give(now);
        }
        if due(self.associate_at) {
            self.associate_at = None;
            self.agent.handle(now, agent::Input::Associate);
        }
        if due(self.release_at) {
            self.release_at = None;
            self.is_cycling = true;
        }
        self.agent.handle(now, agent::Input::Tick);
        if !self.is_finishing
            && let Some(turn) = self.control.as_mut().and_then(|control| control.turn(now))
            && self.agent.state() == AssociationState::Operating
        {
            match turn {
                Turn::Association => self.is_cycling = true,
                Turn::Configuration => self.report_configuration(now),
            }
        }
    }

    /// Time of the measurement after the one due at `at`. It counts from then and not from `now`,
    /// or devices that were late together once would stay together. A measurement sooner than half
    /// a period from now is skipped: no device measures twice at once.
    fn next_measurement(&self, at: Duration, now: Duration) -> Duration {
        let period = self.plan.period;
        let mut due = (1..=LEFT_OUT_MAX).map(|times| at + period * times);
        due.find(|due| *due >= now + period / 2).unwrap_or(now + period)
    }

    /// Releases the association, to establish a new one, once no report waits for its answer: a
    /// report without a time stamp would count as a different one there.
    fn cycle(&mut self, now: Duration) {
        if !self.is_cycling || self.is_finishing || self.kept.iter().any(|kept| kept.given) {
            return;
        }
        if self.agent.state() == AssociationState::Operating {
            self.agent.handle(now, agent::Input::Release);
            self.drain(now);
        }
    }

    /// Processes the agent's outputs.
    fn drain(&mut self, now: Duration) {
        while let Some(output) = self.agent.poll_output() {
            match output {
                agent::Output::Send(octets) => {
                    if let Some(control) = &mut self.control {
                        control.sent(&octets);
                    }
                    self.outputs.push_back(Output::Send(octets));
                }
                agent::Output::Operating => {
                    self.counters.associations += 1;
                    self.number = 0;
                    self.outputs.push_back(Output::Operating);
                    self.release_at = self.plan.reassociate.map(|after| now + after);
                    if self.measure_at.is_none() && !self.is_finishing {
                        // Not all at once, if thousands are switched on together.
                        let share = u32::from(self.random.octet());
                        self.measure_at = Some(now + self.plan.period * share / 256);
                    }
                    self.is_cycling = false;
                    if let Some(control) = &mut self.control {
                        control.begin(now, self.random.octet().into());
                    }
                    if self.plan.faults.has(Faults::LATE_CONFIGURATION) {
                        self.report_configuration(now);
                    }
                    self.give(now);
                }
                agent::Output::Unassociated(ending) => {
                    self.release_at = None;
                    let connected = self.agent.state() != AssociationState::Disconnected;
                    let at_once = self.is_cycling && ending == Ending::Released;
                    let pause = if at_once { Duration::ZERO } else { ASSOCIATE_AGAIN };
                    self.associate_at = connected.then(|| now + pause);
                }
                agent::Output::Reported(id) => {
                    self.acknowledged(now, id);
                    // There is room for one more.
                    if self.kept.iter().any(|kept| !kept.given) && self.give_at.is_none() {
                        self.give_at = Some(now);
                    }
                }
                agent::Output::NotReported(id) => {
                    if let Some(kept) = self.kept.iter_mut().find(|kept| kept.id == id) {
                        kept.given = false;
                        self.counters.repeated += 1;
                        self.give_at = Some(now + REPORT_AGAIN);
                    }
                }
                _ => {}
            }
        }
    }

    fn acknowledged(&mut self, now: Duration, id: ReportId) {
        let Some(place) = self.kept.iter().position(|kept| kept.id == id) else { return };
        if let Some(kept) = self.kept.remove(place) {
            if self.delays.len() < KEPT_MAX {
                let took = now.saturating_sub(kept.since);
                self.delays.push(Answered { took, late: kept.late });
            }
            self.counters.acknowledged += 1;
            self.counters.acknowledged_values += kept.values;
        }
    }

    /// Releases the association when nothing is left to be acknowledged.
    fn finish(&mut self, now: Duration) {
        if !self.is_finishing || !self.kept.is_empty() {
            return;
        }
        match self.agent.state() {
            AssociationState::Operating => {
                self.agent.handle(now, agent::Input::Release);
                self.drain(now);
            }
            AssociationState::Unassociated if self.associate_at.take().is_some() => {
                self.outputs.push_back(Output::Finished);
            }
            _ => {}
        }
    }

    /// Takes the measurement due at `due` and keeps it.
    fn measure(&mut self, now: Duration, due: Duration) {
        let time = self.agent.calendar(now).unwrap_or_default();
        let mut observations = Vec::with_capacity(self.plan.kind.metrics.len());
        let mut values = 0;
        for (metric, walk) in self.plan.kind.metrics.iter().zip(&mut self.walks) {
            *walk += self.random.between(-2, 2);
            *walk = (*walk).clamp(-20, 20);
            let mut octets = reading(metric, *walk, self.measured, time);
            let is_compound = metric.map.iter().any(|entry| is_compound(entry.attribute));
            values += if is_compound { 3 } else { 1 };
            if self.plan.faults.has(Faults::TRAILING) {
                octets.extend(time.0);
            }
            observations.push((metric.handle, octets));
        }
        if self.plan.faults.has(Faults::UNKNOWN_HANDLE) {
            observations.push((UNKNOWN_HANDLE, vec![0; 2]));
        }
        self.measured += 1;
        self.counters.measured += 1;
        self.counters.values += values;
        if self.kept.len() >= KEPT_MAX {
            self.kept.pop_front();
            self.counters.forgotten += 1;
        }
        let id = ReportId(self.measured);
        let since = if self.held_until > due { due } else { now };
        let late = since.saturating_sub(due);
        self.kept.push_back(PendingMeasurement {
            id,
            observations,
            values,
            given: false,
            since,
            late,
        });
    }

    /// Passes waiting reports to the agent, as far as it accepts them.
    fn give(&mut self, now: Duration) {
        let waits = self.is_cycling && !self.is_finishing;
        if self.agent.state() != AssociationState::Operating || waits {
            return;
        }
        let faults = self.plan.faults;
        let waiting = self.kept.iter().filter(|kept| kept.given).count();
        let room = agent::REPORTS_MAX.saturating_sub(waiting);
        for kept in self.kept.iter_mut().filter(|kept| !kept.given).take(room) {
            kept.given = true;
            self.number = self.number.wrapping_add(1);
            let number = if faults.has(Faults::STANDING_NUMBER) { 0 } else { self.number };
            let mut info = kept.info(number);
            if faults.has(Faults::MALFORMED)
                && u64::from(self.number).is_multiple_of(MALFORMED_EVERY)
            {
                info.pop();
            }
            self.agent.handle(
                now,
                agent::Input::Report(OutgoingReport {
                    id: kept.id,
                    handle: Handle::MDS,
                    event: event::SCAN_FIXED,
                    info,
                    confirmed: !faults.has(Faults::UNCONFIRMED),
                }),
            );
        }
    }

    /// Reports the configuration once more, without a request.
    fn report_configuration(&mut self, now: Duration) {
        let info = self.plan.kind.octets().unwrap_or_default();
        // No reading has this number.
        let (id, handle, event) = (ReportId(0), Handle::MDS, event::CONFIG);
        let report = OutgoingReport { id, handle, event, info, confirmed: true };
        self.agent.handle(now, agent::Input::Report(report));
    }

    /// Sends a report before an association.
    fn report_early(&mut self, now: Duration) {
        self.measure(now, now);
        let Some(kept) = self.kept.back() else { return };
        let info = kept.info(0);
        let report = EventReport {
            handle: Handle::MDS,
            time: NO_RELATIVE_TIME,
            event: event::SCAN_FIXED,
            info: &info,
        };
        let message = DataMessage::ConfirmedEventReport(report);
        let early = Apdu::Prst(DataApdu { invoke_id: InvokeId(0x1111), message });
        if let Ok(octets) = early.encode() {
            self.outputs.push_back(Output::Send(octets));
        }
    }
}

impl PendingMeasurement {
    fn info(&self, number: u16) -> Vec<u8> {
        let observations: Vec<_> = self
            .observations
            .iter()
            .map(|(handle, octets)| FixedObservation { handle: *handle, octets })
            .collect();
        encode_scan(DataRequestId::AGENT_INITIATED, number, &observations).unwrap_or_default()
    }
}

/// MDS attributes of a device: model, specialisation.
fn description(kind: &Specialisation) -> Vec<(AttributeId, Vec<u8>)> {
    let text = |writer: &mut MderWriter, text: &str| {
        // Strings have an even number of octets.
        let padding = if text.len().is_multiple_of(2) { "" } else { "\0" };
        writer.octet_string(format!("{text}{padding}").as_bytes());
    };
    let mut model = MderWriter::new();
    text(&mut model, "Gatewright");
    text(&mut model, kind.name);
    let mut profile = MderWriter::new();
    profile.u16(1);
    profile.sized(|profile| {
        profile.u16(kind.profile);
        profile.u16(1);
    });
    vec![
        (attribute::MODEL, model.finish().unwrap_or_default()),
        (attribute::SPECIALISATIONS, profile.finish().unwrap_or_default()),
    ]
}

const fn is_compound(id: AttributeId) -> bool {
    matches!(id, attribute::COMPOUND_BASIC | attribute::COMPOUND_SIMPLE | attribute::COMPOUND)
}

/// The octets of one observation: `walk` steps from the middle, the `nth` of its device.
fn reading(metric: &Metric, walk: i32, nth: u64, time: AbsoluteTime) -> Vec<u8> {
    let mut writer = MderWriter::new();
    let nth = i32::try_from(nth % 100_000).unwrap_or_default();
    for MapEntry { attribute: id, length } in metric.map {
        match *id {
            attribute::NUMERIC_BASIC => {
                writer.octets(&value(metric.kind, walk, nth).to_sfloat().unwrap_or_default());
            }
            attribute::NUMERIC_SIMPLE => {
                let value = match metric.unit {
                    // Steps share the code of distance; they differ by their unit alone.
                    Some(crate::code::unit::STEP) => Number::finite(nth * 7 + 3, 0),
                    _ => value(metric.kind, walk, nth),
                };
                writer.octets(&value.to_float().unwrap_or_default());
            }
            attribute::COMPOUND_BASIC => {
                let (systolic, diastolic) = (120 + walk, 80 + walk / 2);
                let mean = diastolic + (systolic - diastolic) / 3;
                writer.u16(3);
                writer.sized(|writer| {
                    for pressure in [systolic, diastolic, mean] {
                        let pressure = Number::finite(pressure, 0);
                        writer.octets(&pressure.to_sfloat().unwrap_or_default());
                    }
                });
            }
            attribute::SAMPLES => samples(*length, walk, &mut writer),
            attribute::ENUMERATION_OID => writer.u16(ACTIVITY_WALKING),
            attribute::ENUMERATION_BITS16 => writer.u16(0),
            // Every observation is of one more minute.
            attribute::ACTIVE_PERIOD => {
                writer.octets(&Number::finite(60, 0).to_float().unwrap_or_default());
            }
            attribute::TIMESTAMP_ABSOLUTE => writer.octets(&time.0),
            _ => writer.octets(&vec![0; usize::from(*length)]),
        }
    }
    writer.finish().unwrap_or_default()
}

/// A waveform of 16 bits a sample, with one beat in it: an octet string of `length` octets in all.
fn samples(length: u16, walk: i32, writer: &mut MderWriter) {
    /// The middle of 800 steps.
    const REST: u16 = 400;
    let count = length.saturating_sub(2) / 2;
    let beat = REST.saturating_add_signed(i16::try_from(200 + walk).unwrap_or_default());
    writer.sized(|writer| {
        for nth in 0..count {
            writer.u16(if nth == count / 2 { beat } else { REST });
        }
    });
}

/// The code that the activity monitor's session and time bear here (129:1017, MDC_HF_ACT_WALK).
const ACTIVITY_WALKING: u16 = 1_017;

/// A plausible value: middle, and how much a step is.
const fn value(kind: Type, walk: i32, nth: i32) -> Number {
    match (kind.partition, kind.code) {
        (2, 19_384) => Number::finite(970 + walk, -1),
        (2, 16_770 | 18_458 | 18_474) => Number::finite(72 + walk, 0),
        (2, 19_292) => Number::finite(368 + walk / 2, -1),
        (2, 57_664) => Number::finite(762 + walk, -1),
        (2, 29_112 | 29_140) => Number::finite(105 + walk * 2, 0),
        (2, 20_490) => Number::finite(15 + walk / 4, 0),
        (2, 21_512) => Number::finite(480 + walk * 5, 0),
        (2, 21_514) => Number::finite(320 + walk, -2),
        (2, 29_188) => Number::finite(25 + walk / 2, -1),
        (2, 57_676) => Number::finite(225 + walk, -1),
        (2, 57_684) => Number::finite(590 + walk, -1),
        (2, 58_380) => Number::finite(40 + walk, -1),
        (129, 103) => Number::finite(nth * 5 + 2, 0),
        (129, 127) => Number::finite(40 + walk, 0),
        (130, 13_312) => Number::finite(1, 0),
        (130, 13_313) => Number::finite(250 + walk.abs() * 25, 0),
        _ => Number::NotANumber,
    }
}

/// Numbers from a seed (splitmix64; Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    const fn octet(&mut self) -> u8 {
        let [first, ..] = self.next().to_be_bytes();
        first
    }

    /// One of `low` to `high`, both included.
    fn between(&mut self, low: i8, high: i8) -> i32 {
        let span = i32::from(high) - i32::from(low) + 1;
        i32::from(low) + i32::from(self.octet()) % span
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::specialisation::SCALE;

    #[test]
    fn a_device_keeps_its_beat_and_never_measures_twice_at_once() {
        let device = SimulatedDevice::new(SimulationPlan::new(&SCALE, SystemId(*b"DEVICE01"), 1));
        let second = Duration::from_secs(1);
        for (late_ms, next_ms) in [(0, 1_000), (499, 1_000), (501, 2_000), (7_600, 9_000)] {
            let now = second + Duration::from_millis(late_ms);
            let next = second + Duration::from_millis(next_ms);
            assert_eq!(device.next_measurement(second, now), next, "{late_ms} ms late");
        }
        // Who was away for an hour begins another beat.
        let now = Duration::from_hours(1);
        assert_eq!(device.next_measurement(second, now), now + second);
    }
}
