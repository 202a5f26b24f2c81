//! Devices without a clock, a manager that stalls and connections that break: what was measured has
//! one name each, wherever it can be told that a report came again.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

use core::time::Duration;
use gatewright_health::apdu::AbortReason;
use gatewright_health::code::SystemId;
use gatewright_health::configuration::Library;
use gatewright_health::manager::{self, Ending, Manager, ReportRecord};
use gatewright_health::simulate::{self, SimulatedDevice, SimulationPlan};
use gatewright_health::specialisation::OXIMETER;
use gatewright_interwork::repeats::{DEVICES_MAX, Numbered, REPORTS_MAX, Repeats};
use gatewright_interwork::{DeviceAssociation, Mapping, ReportIdentity};
use gatewright_onem2m::Timestamp;
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};

const DEVICE: SystemId = SystemId(*b"OXIMETER");
const TICK: Duration = Duration::from_millis(100);

/// What befalls the manager, or the connection.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    /// The manager reads nothing for so many ticks.
    Stalls(u32),
    /// The next report takes so many ticks to be stored, and nothing is read meanwhile.
    Stores(u32),
    /// The connection breaks; answers that have left arrive, or do not.
    Breaks { arrive: bool },
}

fn trouble() -> impl Strategy<Value = Trouble> {
    prop_oneof![
        (1..80_u32).prop_map(Trouble::Stalls),
        (1..80_u32).prop_map(Trouble::Stores),
        Just(Trouble::Breaks { arrive: true }),
    ]
}

/// A device, its connection and what is made of it.
struct World {
    now: Duration,
    library: Library,
    manager: Manager,
    session: Option<DeviceAssociation>,
    device: SimulatedDevice,
    repeats: Repeats,
    epochs: u64,
    to_manager: VecDeque<Vec<u8>>,
    to_device: VecDeque<Vec<u8>>,
    /// The report that is being stored, and until when.
    storing: Option<(ReportRecord, Duration)>,
    stalled_until: Duration,
    next_takes: Duration,
    names: BTreeSet<String>,
    recognised: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let period = Duration::from_millis(700);
        let mut world = Self {
            now: Duration::ZERO,
            library: Library::standard(),
            manager: Manager::new(manager::ManagerSettings::new(SystemId(*b"GATEWAY1"))),
            session: None,
            device: SimulatedDevice::new(SimulationPlan {
                period,
                ..SimulationPlan::new(&OXIMETER, DEVICE, seed)
            }),
            repeats: Repeats::default(),
            epochs: 0,
            to_manager: VecDeque::new(),
            to_device: VecDeque::new(),
            storing: None,
            stalled_until: Duration::ZERO,
            next_takes: Duration::ZERO,
            names: BTreeSet::new(),
            recognised: 0,
        };
        world.connect();
        world
    }

    fn connect(&mut self) {
        self.manager = Manager::new(manager::ManagerSettings::new(SystemId(*b"GATEWAY1")));
        self.session = None;
        self.manage(manager::Input::Connected);
        self.act(simulate::Input::Connected);
    }

    fn act(&mut self, input: simulate::Input<'_>) {
        self.device.handle(self.now, input);
        while let Some(output) = self.device.poll_output() {
            if let simulate::Output::Send(octets) = output {
                self.to_manager.push_back(octets);
            }
        }
    }

    fn manage(&mut self, input: manager::Input<'_>) {
        self.manager.handle(self.now, input, &mut self.library);
        while let Some(output) = self.manager.poll_output() {
            match output {
                manager::Output::Send(octets) => self.to_device.push_back(octets),
                manager::Output::Configured { configuration, .. } => {
                    self.epochs += 1;
                    let (mapping, epoch) = (Mapping::default(), self.epochs);
                    let device = gatewright_interwork::Device::new(
                        &mapping,
                        "cse-mn",
                        DEVICE,
                        epoch,
                        &configuration,
                    );
                    self.session = Some(DeviceAssociation::new(device, configuration));
                }
                manager::Output::Report(record) => self.store(record),
                manager::Output::Disassociated { ending, .. } => {
                    let unheard = Ending::AbortedByAgent(AbortReason::RESPONSE_TIMEOUT);
                    if let Some(session) = self.session.take()
                        && ending == unheard
                    {
                        self.repeats.unheard(DEVICE, session.device().epoch());
                    }
                }
                _ => {}
            }
        }
    }

    fn store(&mut self, record: ReportRecord) {
        let session = self.session.as_mut().unwrap();
        let report = session.numbered(&record).unwrap();
        if let Some(known) = self.repeats.meet(self.now, DEVICE, report) {
            self.recognised += 1;
            session.recognise(record.id, known);
        }
        let received = Timestamp::from_micros(1_795_266_000_000_000);
        let read = session.read(&Mapping::default(), &record, received, |instance| {
            self.names.insert(instance.name.to_string());
        });
        assert_eq!(read.unwrap().observations, 2);
        let takes = core::mem::take(&mut self.next_takes);
        self.storing = Some((record, self.now + takes));
    }

    /// Reads what has come, one after the other, as far as nothing is in the way.
    fn read(&mut self) {
        while self.now >= self.stalled_until {
            if let Some((record, until)) = &self.storing {
                if self.now < *until {
                    return;
                }
                let (id, epoch) = (record.id, self.session.as_ref().unwrap().device().epoch());
                self.storing = None;
                self.manage(manager::Input::Committed(id));
                self.repeats.answered(self.now, DEVICE, epoch);
                continue;
            }
            let Some(octets) = self.to_manager.pop_front() else { break };
            self.manage(manager::Input::Apdu(&octets));
        }
        if self.now >= self.stalled_until {
            self.manage(manager::Input::Tick);
        }
    }

    fn hear(&mut self) {
        while let Some(octets) = self.to_device.pop_front() {
            self.act(simulate::Input::Apdu(&octets));
        }
    }

    fn meets(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::Stalls(ticks) => self.stalled_until = self.now + TICK * ticks,
            Trouble::Stores(ticks) => self.next_takes = TICK * ticks,
            Trouble::Breaks { arrive } => {
                if arrive {
                    self.hear();
                }
                self.act(simulate::Input::Disconnected);
                self.to_manager.clear();
                self.to_device.clear();
                self.storing = None;
                self.connect();
            }
        }
    }

    fn tick(&mut self) {
        self.now += TICK;
        self.act(simulate::Input::Tick);
        self.read();
        self.hear();
    }

    /// After so much trouble, with so many ticks after each: calm, and the end.
    fn run(mut self, troubles: &[(Trouble, u32)]) -> Self {
        for (trouble, ticks) in troubles {
            self.meets(*trouble);
            (0..*ticks).for_each(|_| self.tick());
        }
        self.act(simulate::Input::Finish);
        (0..600).for_each(|_| self.tick());
        let counters = self.device.counters();
        assert_eq!(counters.acknowledged, counters.measured, "{counters:?}");
        self
    }
}

proptest! {
    /// However long the manager stalls or stores, and wherever the connection breaks: every value
    /// that was measured has one name, and no other has it, equal values included.
    #[test]
    fn names_are_one_to_one_with_measurements(
        seed: u64,
        troubles in proptest::collection::vec((trouble(), 1..90_u32), 1..20),
    ) {
        let world = World::new(seed).run(&troubles);
        let counters = world.device.counters();
        prop_assert_eq!(world.names.len() as u64, counters.values, "{:?}", counters);
    }

    /// Where an answer is lost with its connection nobody can tell what came again: nothing is
    /// lost, and each such answer costs one report's values more at the most.
    #[test]
    fn a_lost_answer_costs_no_reading(
        seed: u64,
        troubles in proptest::collection::vec(
            (prop_oneof![trouble(), Just(Trouble::Breaks { arrive: false })], 1..90_u32),
            1..20,
        ),
    ) {
        let breaks = |(trouble, _): &&(Trouble, u32)| matches!(trouble, Trouble::Breaks { .. });
        let lost = troubles.iter().filter(breaks).count() as u64;
        let world = World::new(seed).run(&troubles);
        let (names, values) = (world.names.len() as u64, world.device.counters().values);
        prop_assert!((values..=values + 2 * lost).contains(&names), "{names} {values}");
    }
}

/// The law above holds because repetitions are recognised, and not because there are none.
#[test]
fn a_stall_makes_a_repetition_that_is_recognised() {
    let stalls = [(Trouble::Stores(50), 90), (Trouble::Stalls(50), 90)];
    let world = World::new(1).run(&stalls);
    assert!(world.recognised >= 2, "{} {:?}", world.recognised, world.device.counters());
    assert!(world.device.counters().repeated >= 2);
}

fn numbered(epoch: u64, number: u64, digest: u64) -> Numbered {
    Numbered { epoch, number, digest, running: None }
}

const fn known(epoch: u64, report: u64) -> ReportIdentity {
    ReportIdentity { epoch, report }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn what_was_refused_may_come_at_any_time() {
    let mut repeats = Repeats::default();
    assert_eq!(repeats.meet(SECOND, DEVICE, numbered(1, 1, 97)), None);
    repeats.refused(DEVICE, 1);
    assert_eq!(repeats.meet(SECOND, DEVICE, numbered(1, 2, 98)), None, "another goes before it");
    repeats.answered(SECOND, DEVICE, 1);
    assert_eq!(repeats.meet(SECOND, DEVICE, numbered(1, 3, 97)), Some(known(1, 1)));
    repeats.answered(SECOND, DEVICE, 1);
    assert_eq!(repeats.meet(SECOND, DEVICE, numbered(1, 4, 97)), None, "it came once more");
}

/// A device that was answered in time and then measures the same in its next association has
/// measured twice; so has one that begins with something else.
#[test]
fn only_what_was_not_answered_and_comes_first_is_the_same() {
    let mut repeats = Repeats::default();
    repeats.meet(SECOND, DEVICE, numbered(1, 1, 97));
    repeats.answered(SECOND * 2, DEVICE, 1);
    assert_eq!(repeats.meet(SECOND * 2, DEVICE, numbered(2, 1, 97)), None, "answered");
    // Not answered in time, and then not at all.
    repeats.answered(SECOND * 5, DEVICE, 2);
    assert_eq!(repeats.meet(SECOND * 9, DEVICE, numbered(3, 1, 97)), Some(known(2, 1)));
    assert_eq!(
        repeats.meet(SECOND * 9, DEVICE, numbered(4, 1, 97)),
        Some(known(2, 1)),
        "a third time"
    );
    assert_eq!(repeats.meet(SECOND * 9, DEVICE, numbered(5, 1, 98)), None);
    assert_eq!(repeats.meet(SECOND * 9, DEVICE, numbered(5, 2, 97)), None, "not the first");
}

/// A counter that runs since the device was switched on says the same again only if it was not
/// switched off: if less time has passed than it shows.
#[test]
fn a_running_counter_tells_what_an_answer_does_not() {
    for (running, since, is_again) in [(60, 59, true), (60, 60, false), (5, 86_400, false)] {
        let running = Some(SECOND * running);
        let report = |epoch| Numbered { running, ..numbered(epoch, 1, 97) };
        let mut repeats = Repeats::default();
        repeats.meet(SECOND, DEVICE, report(1));
        repeats.answered(SECOND, DEVICE, 1);
        let found = repeats.meet(SECOND + SECOND * since, DEVICE, report(2));
        assert_eq!(found.is_some(), is_again, "{running:?} {since}");
    }
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut repeats = Repeats::default();
    for number in 0..=REPORTS_MAX as u64 {
        repeats.meet(SECOND, DEVICE, numbered(1, number, number));
        repeats.refused(DEVICE, 1);
    }
    assert_eq!(repeats.meet(SECOND, DEVICE, numbered(1, 9, 0)), None, "the oldest is forgotten");
    assert_eq!(repeats.meet(SECOND, DEVICE, numbered(1, 9, 2)), Some(known(1, 2)));
    for number in 0..DEVICES_MAX as u64 {
        repeats.meet(SECOND, SystemId(number.to_be_bytes()), numbered(1, 1, 1));
    }
    assert_eq!(repeats.forgotten(), DEVICES_MAX as u64);
}
