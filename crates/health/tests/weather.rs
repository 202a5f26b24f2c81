//! The real machines over a transport that loses, repeats and reorders, on a virtual clock: what
//! was acknowledged is recorded, and when the weather clears everything arrives.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail loudly"
)]

use core::time::Duration;
use gatewright_health::agent::{self, Agent, OutgoingReport, ReportId};
use gatewright_health::association::AssociationState;
use gatewright_health::code::*;
use gatewright_health::configuration::Library;
use gatewright_health::convert::{Value, observe};
use gatewright_health::manager::{self, Manager, RecordId};
use gatewright_health::report::{FixedObservation, Report, encode_scan};
use gatewright_health::specialisation::SCALE;
use std::collections::BTreeSet;

/// Numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.next() % 100 < chance
    }
}

/// A datagram on its way: when it arrives, and to whom.
struct Datagram {
    at: Duration,
    to_manager: bool,
    octets: Vec<u8>,
}

struct World {
    random: Random,
    now: Duration,
    stormy: bool,
    library: Library,
    manager: Manager,
    agent: Agent,
    on_the_way: Vec<Datagram>,
    commits: Vec<(Duration, RecordId)>,
    /// Readings to report, and those whose fate is open.
    to_report: Vec<u32>,
    in_agent: BTreeSet<u32>,
    acknowledged: BTreeSet<u32>,
    recorded: BTreeSet<u32>,
    /// Numbers of records of this association.
    numbers: BTreeSet<u64>,
}

const READINGS: u32 = 200;

impl World {
    fn new(seed: u64) -> Self {
        let mut settings = manager::ManagerSettings::new(SystemId(*b"GATEWAY1"));
        settings.datagrams = true;
        let mut world = Self {
            random: Random(seed),
            now: Duration::ZERO,
            stormy: true,
            library: if seed.is_multiple_of(2) { Library::standard() } else { Library::empty() },
            manager: Manager::new(settings),
            agent: Agent::new(agent::AgentSettings {
                system_id: SystemId(*b"SCALE001"),
                configurations: vec![(SCALE.config, SCALE.octets().unwrap())],
                attributes: Vec::new(),
                segments: Vec::new(),
                scanners: Vec::new(),
                clock: None,
            }),
            on_the_way: Vec::new(),
            commits: Vec::new(),
            to_report: (0..READINGS).collect(),
            in_agent: BTreeSet::new(),
            acknowledged: BTreeSet::new(),
            recorded: BTreeSet::new(),
            numbers: BTreeSet::new(),
        };
        world.manage(manager::Input::Connected);
        world.act(agent::Input::Connected);
        world
    }

    fn send(&mut self, to_manager: bool, octets: &[u8]) {
        let copies = match self.stormy {
            true if self.random.percent(20) => 0,
            true if self.random.percent(20) => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let delay = if self.stormy { self.random.next() % 1_500 } else { 5 };
            let at = self.now + Duration::from_millis(delay);
            self.on_the_way.push(Datagram { at, to_manager, octets: octets.to_vec() });
        }
    }

    fn manage(&mut self, input: manager::Input<'_>) {
        self.manager.handle(self.now, input, &mut self.library);
        while let Some(output) = self.manager.poll_output() {
            match output {
                manager::Output::Send(octets) => self.send(false, &octets),
                manager::Output::Report(record) => {
                    assert!(self.numbers.insert(record.number), "number {} twice", record.number);
                    let delay = Duration::from_millis(self.random.next() % 500);
                    self.commits.push((self.now + delay, record.id));
                    let configuration = self.manager.configuration().unwrap();
                    let Some((handle, _, Report::Scan(scan))) = record.report() else { panic!() };
                    observe(configuration, handle, &scan, |observation| {
                        let Value::Number(number) = observation.value else { panic!() };
                        let reading = number.decimal().unwrap().mantissa;
                        self.recorded.insert(u32::try_from(reading).unwrap());
                    });
                }
                manager::Output::Associated { .. } => self.numbers.clear(),
                manager::Output::Disassociated { .. } => self.commits.clear(),
                _ => {}
            }
        }
    }

    fn act(&mut self, input: agent::Input<'_>) {
        self.agent.handle(self.now, input);
        while let Some(output) = self.agent.poll_output() {
            match output {
                agent::Output::Send(octets) => self.send(true, &octets),
                agent::Output::Reported(ReportId(id)) => {
                    let reading = u32::try_from(id).unwrap();
                    assert!(
                        self.recorded.contains(&reading),
                        "{reading} acknowledged, not recorded"
                    );
                    self.in_agent.remove(&reading);
                    self.acknowledged.insert(reading);
                }
                agent::Output::NotReported(ReportId(id)) => {
                    let reading = u32::try_from(id).unwrap();
                    self.in_agent.remove(&reading);
                    self.to_report.push(reading);
                }
                _ => {}
            }
        }
    }

    fn step(&mut self) {
        self.now += Duration::from_millis(100);
        let now = self.now;
        let mut due: Vec<_> = self.on_the_way.extract_if(.., |one| one.at <= now).collect();
        due.sort_by_key(|one| one.at);
        for Datagram { to_manager, octets, .. } in due {
            if to_manager {
                self.manage(manager::Input::Apdu(&octets));
            } else {
                self.act(agent::Input::Apdu(&octets));
            }
        }
        for (_, record) in self.commits.extract_if(.., |(at, _)| *at <= now).collect::<Vec<_>>() {
            self.manage(manager::Input::Committed(record));
        }
        self.manage(manager::Input::Tick);
        self.act(agent::Input::Tick);
        match self.agent.state() {
            AssociationState::Unassociated => self.act(agent::Input::Associate),
            AssociationState::Operating if self.random.percent(30) => self.report(),
            _ => {}
        }
        if self.stormy && self.random.percent(1) {
            self.manage(manager::Input::Release);
        }
    }

    fn report(&mut self) {
        let Some(reading) = self.to_report.pop() else { return };
        self.in_agent.insert(reading);
        let mut octets = [0; 12];
        octets[..4].copy_from_slice(&reading.to_be_bytes());
        let observation = FixedObservation { handle: Handle(1), octets: &octets };
        let number = u16::try_from(reading).unwrap();
        let info = encode_scan(DataRequestId::AGENT_INITIATED, number, &[observation]).unwrap();
        let (id, handle, event) = (ReportId(reading.into()), Handle::MDS, event::SCAN_FIXED);
        self.act(agent::Input::Report(OutgoingReport { id, handle, event, info, confirmed: true }));
    }
}

#[test]
fn after_the_storm_everything_has_arrived() {
    let mut repeated = 0;
    let mut timeouts = 0;
    for seed in 0..60 {
        let mut world = World::new(seed);
        for _ in 0..2_000 {
            world.step();
        }
        world.stormy = false;
        for _ in 0..1_500 {
            world.step();
        }
        let all: BTreeSet<u32> = (0..READINGS).collect();
        assert_eq!(world.acknowledged, all, "seed {seed}: {:?}", world.manager.counters());
        assert_eq!(world.recorded, all, "seed {seed}");
        repeated += world.manager.counters().repeated;
        timeouts += world.agent.counters().timeouts;
    }
    assert!(repeated > 60 && timeouts > 60, "no storm: {repeated} repeated, {timeouts} timeouts");
}
