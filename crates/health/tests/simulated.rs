//! Every kind of simulated device against a manager, correct and with each fault.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail loudly"
)]

use core::time::Duration;
use gatewright_health::code::SystemId;
use gatewright_health::configuration::Library;
use gatewright_health::convert::{Tally, Value, observe};
use gatewright_health::manager::{self, Manager, ManagerSettings};
use gatewright_health::report::Report;
use gatewright_health::simulate::{self, Faults, SimulatedDevice, SimulationPlan};
use gatewright_health::specialisation::{self, Specialisation};

/// What a run of a minute and its end came to.
struct Run {
    device: simulate::Counters,
    manager: manager::Counters,
    tally: Tally,
    finished: bool,
    readings: Vec<String>,
}

/// Runs device and manager for a minute on a virtual clock, and lets the device finish.
fn run(plan: SimulationPlan) -> Run {
    let mut library = Library::standard();
    let mut manager = Manager::new(ManagerSettings::new(SystemId(*b"GATEWAY1")));
    let mut device = SimulatedDevice::new(plan);
    let mut tally = Tally::default();
    let mut finished = false;
    let mut readings = Vec::new();
    manager.handle(Duration::ZERO, manager::Input::Connected, &mut library);
    device.handle(Duration::ZERO, simulate::Input::Connected);
    for tick in 0..800_u32 {
        let now = Duration::from_millis(100) * tick;
        device.handle(now, simulate::Input::Tick);
        manager.handle(now, manager::Input::Tick, &mut library);
        if tick == 600 {
            device.handle(now, simulate::Input::Finish);
        }
        loop {
            let mut quiet = true;
            while let Some(output) = device.poll_output() {
                quiet = false;
                match output {
                    simulate::Output::Send(octets) => {
                        manager.handle(now, manager::Input::Apdu(&octets), &mut library);
                    }
                    simulate::Output::Finished => finished = true,
                    simulate::Output::Operating => {}
                }
            }
            while let Some(output) = manager.poll_output() {
                quiet = false;
                match output {
                    manager::Output::Send(octets) => {
                        device.handle(now, simulate::Input::Apdu(&octets));
                    }
                    manager::Output::Report(record) => {
                        let configuration = manager.configuration().unwrap();
                        let Some((handle, _, Report::Scan(scan))) = record.report() else {
                            panic!()
                        };
                        tally.add(observe(configuration, handle, &scan, |observation| {
                            if let Value::Number(number) = observation.value {
                                let decimal = number.decimal().unwrap();
                                readings.push(format!("{} {decimal}", observation.kind));
                            }
                        }));
                        manager.handle(now, manager::Input::Committed(record.id), &mut library);
                    }
                    _ => {}
                }
            }
            if quiet {
                break;
            }
        }
    }
    Run { device: device.counters(), manager: manager.counters(), tally, finished, readings }
}

fn plan(kind: &'static Specialisation, faults: Faults) -> SimulationPlan {
    SimulationPlan { faults, ..SimulationPlan::new(kind, SystemId(*b"DEVICE01"), 42) }
}

#[test]
fn every_kind_is_understood_to_the_last_value() {
    for kind in specialisation::ALL {
        let run = run(plan(kind, Faults::NONE));
        assert!(run.device.measured >= 59, "{}: {:?}", kind.name, run.device);
        assert_eq!(run.device.acknowledged, run.device.measured, "{}", kind.name);
        assert_eq!(u64::from(run.tally.observations), run.device.values, "{}", kind.name);
        assert_eq!(run.tally, Tally { observations: run.tally.observations, ..Tally::default() });
        assert!(run.finished, "{}", kind.name);
        assert_eq!(run.manager.malformed + run.manager.timeouts, 0, "{}", kind.name);
    }
}

#[test]
fn one_seed_gives_one_series() {
    let series = |seed| {
        run(SimulationPlan { seed, ..plan(&specialisation::OXIMETER, Faults::NONE) }).readings
    };
    assert_eq!(series(1), series(1));
    assert_ne!(series(1), series(2));
}

/// Each fault is tolerated as far as it is harmless, and counted.
#[test]
fn each_fault_is_counted_and_costs_no_reading() {
    for (name, fault) in Faults::NAMES {
        let run = run(plan(&specialisation::OXIMETER, fault));
        let measured = run.device.measured;
        let (manager, tally) = (run.manager, run.tally);
        let counted = match name {
            "unconfirmed" => measured,
            "trailing" => u64::from(tally.trailing) / 2,
            "unknown-handle" => u64::from(tally.unknown_handles),
            "standing-number" => manager.numbers_not_growing + 1,
            "late-configuration" => measured * manager.late_configurations,
            // The early report ends in an abort; the device associates again and reports it.
            "early-report" => measured * u64::from(run.device.associations == 1),
            // A badly built report is rejected and sent again.
            "malformed" => {
                measured
                    * u64::from(manager.malformed == run.device.repeated && manager.malformed > 0)
            }
            other => panic!("{other} is not tested"),
        };
        assert_eq!(counted, measured, "{name}: {manager:?} {tally:?} {:?}", run.device);
        assert_eq!(run.device.acknowledged, measured, "{name}");
        assert_eq!(u64::from(tally.observations), run.device.values, "{name}");
    }
}

#[test]
fn a_device_that_comes_and_goes_loses_nothing() {
    let reassociate = Some(Duration::from_secs(7));
    let run =
        run(SimulationPlan { reassociate, ..plan(&specialisation::BLOOD_PRESSURE, Faults::NONE) });
    assert!(run.device.associations >= 7, "{:?}", run.device);
    assert_eq!(run.device.acknowledged, run.device.measured);
    assert_eq!(u64::from(run.tally.observations), run.device.values);
}

/// Configurations and association cycles among the data: at the rate asked for, each answered, and
/// the data as before.
#[test]
fn control_messages_keep_their_rate_and_cost_no_reading() {
    for kind in specialisation::ALL {
        let control = Some(Duration::from_millis(500));
        let run = run(SimulationPlan { control, ..plan(kind, Faults::NONE) });
        let name = kind.name;
        assert!(run.device.measured >= 59, "{name}: {:?}", run.device);
        assert_eq!(run.device.acknowledged, run.device.measured, "{name}: {:?}", run.device);
        assert_eq!(u64::from(run.tally.observations), run.device.values, "{name}");
        assert_eq!(run.device.repeated, 0, "{name}: {:?}", run.device);
        assert_eq!(run.device.control_answered, run.device.control_asked, "{name}");
        assert!((110..=130).contains(&run.device.control_sent), "{name}: {:?}", run.device);
        assert!(run.device.associations > 15, "{name}: {:?}", run.device);
        assert!(run.manager.late_configurations > 15, "{name}: {:?}", run.manager);
        assert!(run.finished, "{name}");
    }
}
